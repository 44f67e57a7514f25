/* The thread team: every task once, every member once, barriers, any size. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

#include <pthread.h>
#include <sched.h>

void hook_late_unlocked(pthread_mutex_t *mutex); /* hooks.h */

static int asleep; /* atomic: threads that wait for a condition */

int hook_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
    const int code = pthread_cond_wait(cond, mutex);
    __atomic_sub_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
    hook_late_unlocked(mutex);
    return code;
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

int main(void) {
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
    ok(mirt__affinity_cores("0-3,8") == 5 && mirt__affinity_cores("7") == 1 && mirt__affinity_cores("0-4095") == 4096 &&
           !mirt__affinity_cores("") && !mirt__affinity_cores("3-1") && !mirt__affinity_cores("0-99999999999"),
       "cores of an affinity mask are counted");
    return done_testing();
}
