/* The thread team: every task once, every member once, barriers, any size. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

void hook_late_unlocked(pthread_mutex_t *mutex); /* hooks.h */

static int asleep; /* atomic: threads that wait for a condition */
static int prompt; /* atomic: how many of the next that wake are not delayed */

int hook_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
    const int code = pthread_cond_wait(cond, mutex);
    __atomic_sub_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
    if (__atomic_fetch_sub(&prompt, 1, __ATOMIC_SEQ_CST) <= 0) hook_late_unlocked(mutex);
    return code;
}

static __thread bool worker; /* this thread is one of a team's */
static int looks;            /* atomic: that workers took at the clock, which they do while they spin */

int hook_clock(clockid_t clock, struct timespec *out) {
    if (worker) __atomic_add_fetch(&looks, 1, __ATOMIC_SEQ_CST);
    return clock_gettime(clock, out);
}

#define SIZES 8
#define TASKS 1000

typedef struct counts {
    int hits[TASKS];
    int64_t sum[SIZES];
} counts;

static void count_task(void *arg, int64_t task, int member) {
    counts *c = (counts *)arg;
    c->hits[task]++; /* not atomic: a task run twice at once is a race the sanitizer sees */
    c->sum[member] += task;
}

/* The first task ends when all others have, or after ten seconds. */
static void wait_for_others(void *arg, int64_t task, int member) {
    int *done = (int *)arg;
    const double since = mirt__now();
    (void)member;
    while (task == 0 && __atomic_load_n(done, __ATOMIC_SEQ_CST) < TASKS - 1 && mirt__now() - since < 10)
        sched_yield();
    if (task > 0) __atomic_add_fetch(done, 1, __ATOMIC_SEQ_CST);
    else if (__atomic_load_n(done, __ATOMIC_SEQ_CST) < TASKS - 1) __atomic_store_n(done, -TASKS, __ATOMIC_SEQ_CST);
}

static void count_member(void *arg, int member) {
    ((int *)arg)[member]++;
}

typedef struct rounds {
    mirt__team *team;
    int size, count;
    int value[SIZES];
    int bad[SIZES];
} rounds;

/* Writes, meets, reads what all the others wrote, meets again. */
static void run_rounds(void *arg, int member) {
    rounds *r = (rounds *)arg;
    for (int i = 1; i <= r->count; i++) {
        r->value[member] = i * (member + 1);
        mirt__team_barrier(r->team);
        for (int other = 0; other < r->size; other++) {
            if (r->value[other] != i * (other + 1)) r->bad[member]++;
        }
        mirt__team_barrier(r->team);
    }
}

static void test_size(int size, bool spin) {
    mirt__team *team = mirt__team_create(size, spin);
    if (!ok(team != NULL && mirt__team_size(team) == size, "a team of %d%s", size, spin ? ", spinning" : "")) return;

    static counts c;
    int wrong = 0;
    const int64_t tasks[] = {0, 1, 2, 3, size, size + 1, 97, TASKS};
    for (int repeat = 0; repeat < 10; repeat++) {
        for (int k = 0; k < MIRT__COUNT(tasks); k++) {
            memset(&c, 0, sizeof c);
            mirt__team_for(team, tasks[k], count_task, &c);
            int64_t sum = 0;
            for (int m = 0; m < SIZES; m++) sum += c.sum[m];
            for (int64_t i = 0; i < TASKS; i++) wrong += c.hits[i] != (i < tasks[k]);
            wrong += sum != tasks[k] * (tasks[k] - 1) / 2;
        }
    }
    ok(wrong == 0, "every task runs exactly once (%d wrong)", wrong);
    if (size > 1) {
        int done = 0;
        mirt__team_for(team, TASKS, wait_for_others, &done);
        ok(done == TASKS - 1, "others do the tasks of a member that is late");
    }

    int runs[SIZES] = {0};
    for (int i = 0; i < 500; i++) mirt__team_run(team, count_member, runs);
    wrong = 0;
    for (int m = 0; m < SIZES; m++) wrong += runs[m] != (m < size ? 500 : 0);
    ok(wrong == 0, "500 jobs run once on every member");

    for (int i = 0; i < 5; i++) {
        while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < size - 1) sched_yield();
        mirt__team_run(team, count_member, runs);
    }
    wrong = 0;
    for (int m = 0; m < size; m++) wrong += runs[m] != 505;
    ok(wrong == 0, "sleeping members wake");

    rounds r;
    memset(&r, 0, sizeof r);
    r.team = team;
    r.size = size;
    r.count = 100;
    mirt__team_run(team, run_rounds, &r);
    wrong = 0;
    for (int m = 0; m < size; m++) wrong += r.bad[m] + (r.value[m] != 100 * (m + 1));
    ok(wrong == 0, "200 barriers hold everyone (%d wrong)", wrong);
    mirt__team_destroy(team);
}

#ifndef MIRRORTRAIN_NO_THREADS

static void be_worker(void *arg, int member) { (void)arg, worker = member != 0; }

/* Looks at the clock by a worker that waits after each of some jobs, while `busy` other threads are at work. */
static int looks_while(mirt__team *team, int busy) {
    mirt__team_busy(busy);
    mirt__team_run(team, be_worker, NULL);
    while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < 1) sched_yield();
    __atomic_store_n(&looks, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 5; i++) {
        mirt__team_run(team, be_worker, NULL);
        while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < 1) sched_yield();
    }
    mirt__team_busy(-busy);
    return __atomic_load_n(&looks, __ATOMIC_SEQ_CST);
}

static void test_spin(void) {
    mirt__team *spins = mirt__team_create(2, 2), *sleeps = mirt__team_create(2, 0);
    const double spin = fmin(fmax(2 * mirt__wake_seconds(), 20e-6), 400e-6);
    ok(spins && sleeps && mirt__wake_seconds() > 0 && fabs(mirt__spin_seconds() - spin) < 1e-9,
       "waking takes %g s, threads spin for %g s", mirt__wake_seconds(), mirt__spin_seconds());
    const double once = mirt__wake_seconds();
    mirt__team *another = mirt__team_create(2, 2);
    ok(another && mirt__wake_seconds() == once, "which is measured once");
    mirt__team_destroy(another);
    mirt__team_destroy(sleeps);
    if (!spins) return;
    const int alone = looks_while(spins, 0), enough = looks_while(spins, 2), many = looks_while(spins, 3);
    ok(alone >= 5 && enough >= 5 && many == 0,
       "a worker spins unless more threads than cores are at work: %d, %d, %d looks at the clock", alone, enough, many);
    mirt__team_destroy(spins);
}

/* In a process in which waking takes `delay` microseconds longer, but for the first `soon` threads that wake: whether
   the spin time lies in a range. */
static void test_wake_delay(const char *delay, int soon, double least, double most) {
    const pid_t child = fork();
    int status = 1;
    if (child == 0) {
        __atomic_store_n(&prompt, soon, __ATOMIC_SEQ_CST);
        setenv("MIRT_TEST_WAKE_DELAY", delay, 1);
        mirt__team *none = mirt__team_create(2, 0);
        bool good = none && mirt__wake_seconds() <= 0 && mirt__spin_seconds() <= 0;
        const double begin = mirt__now();
        mirt__team *team = mirt__team_create(3, 3);
        const double took = mirt__now() - begin, wake = mirt__wake_seconds(), spin = mirt__spin_seconds();
        good = good && team && wake >= least && spin >= 2 * least && spin <= most;
        if (!good) printf("# creating a team took %g s: waking %g s, spinning %g s\n", took, wake, spin);
        fflush(stdout);
        _exit(!good);
    }
    if (child > 0) waitpid(child, &status, 0);
    ok(child > 0 && status == 0, "waking that takes %s us, but for the first %d, makes threads spin for %g to %g s",
       delay, soon, 2 * least, most);
}

#endif

int main(void) {
#ifndef MIRRORTRAIN_NO_THREADS
    test_wake_delay("60", 0, 60e-6, 401e-6); /* first, as there are no threads yet */
    test_wake_delay("60", 2, 60e-6, 401e-6); /* the median */
    test_wake_delay("2000", 0, 199e-6, 401e-6);
    test_spin();
#endif
#ifdef MIRRORTRAIN_NO_THREADS
    ok(mirt__team_create(2, true) == NULL && mirt_last_status() == MIRT_E_THREAD, "no team of 2 without threads: %s",
       mirt_last_error());
    test_size(1, true);
#else
    for (int size = 1; size <= SIZES; size++) test_size(size, size <= 2);
    test_size(3, true);
#endif
    ok(mirt__team_create(0, true) == NULL && mirt_last_status() == MIRT_E_INVALID &&
           strstr(mirt_last_error(), "at least 1"),
       "a team of none is refused: %s", mirt_last_error());

    int wrong = 0;
    for (int i = 0; i < 50; i++) {
        mirt__team *team = mirt__team_create(1 + i % 3, true);
#ifndef MIRRORTRAIN_NO_THREADS
        wrong += team == NULL;
#endif
        mirt__team_destroy(team);
    }
    ok(wrong == 0, "teams come and go");

    static counts c;
    memset(&c, 0, sizeof c);
    mirt__team_for(NULL, 5, count_task, &c);
    mirt__team_destroy(NULL);
    mirt__team_barrier(NULL);
    ok(mirt__team_size(NULL) == 1 && c.sum[0] == 10, "no team is the caller alone");

    setenv("MIRT_CORES", "7", 1);
    int seven = mirt__cpu_cores();
    setenv("MIRT_CORES", "", 1);
    int real = mirt__cpu_cores();
    unsetenv("MIRT_CORES");
    ok(seven == 7 && real >= 1 && real == mirt__cpu_cores(), "MIRT_CORES pretends, unless it is empty");
    mirt__cpus set;
    ok(mirt__cpus_read(&set, "0-3,8") == 5 && mirt__cpus_read(&set, "7\n") == 1 &&
           mirt__cpus_read(&set, "0-4095") == 4096 && !mirt__cpus_read(&set, "") && !mirt__cpus_read(&set, "3-1") &&
           !mirt__cpus_read(&set, "0-99999999999") && !mirt__cpus_read(&set, "0-") && !set.bits[0],
       "cores of a list are counted");
    return done_testing();
}
