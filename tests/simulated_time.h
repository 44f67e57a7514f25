#ifndef SIMULATED_TIME_H
#define SIMULATED_TIME_H
/* Runs the library's threads in simulated time. What a test asserts then does not depend on the machine. One
   thread runs at a time. Computing takes no time; the clock moves when every thread sleeps or waits, to the next
   moment at which one of them continues. Works with tests that are linked with parts.a, as it replaces the
   functions of hooks.h. A test that defines TIMED runs in real time. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* hooks.h */
void hook_late(void);
void hook_late_unlocked(pthread_mutex_t *mutex);

#define SIMULATED_FUNCTION __attribute__((unused)) static

/* A thread that does not run: it sleeps, waits for a condition, or waits for its turn. */
typedef struct simulated_waiter {
    struct simulated_waiter *next;
    const void *condition; /* NULL: none, or it has been signaled */
    double until;          /* simulated seconds; INFINITY: until it is signaled */
    uint64_t turn;         /* of those with the same time, the lowest goes first */
    bool runs;
    pthread_cond_t go;
} simulated_waiter;

typedef struct simulated_thread {
    struct simulated_thread *next;
    pthread_t thread;
    void *(*fn)(void *arg);
    void *arg;
    bool ended;
    simulated_waiter start; /* until it begins */
} simulated_thread;

static struct {
    bool on;     /* changed only while the library has no threads that run */
    double now;  /* seconds */
    double wake; /* simulated seconds from a signal to the moment at which the thread that it wakes runs */
    double hurry; /* not 0: in real time a timed wait ends after so many seconds, as if it had been woken */
    uint64_t turns;
    simulated_waiter *waiting;
    simulated_thread *threads; /* the newest first: the system uses handles again */
    pthread_mutex_t mutex;     /* guards all of this */
} simulated = {false, 0, 0, 0, 0, NULL, NULL, PTHREAD_MUTEX_INITIALIZER};

static void simulated_bail_out(const char *why) {
    printf("Bail out! simulated time: %s\n", why);
    fflush(stdout);
    _exit(1);
}

/* Lets the thread run whose time comes first. With the mutex locked. */
static void simulated_hand_over(void) {
    simulated_waiter **best = NULL;
    for (simulated_waiter **w = &simulated.waiting; *w; w = &(*w)->next) {
        const bool earlier = !best || (*w)->until < (*best)->until;
        if (earlier || ((*w)->until <= (*best)->until && (*w)->turn < (*best)->turn)) best = w;
    }
    if (!best || isinf((*best)->until)) simulated_bail_out("every thread waits, and none will ever be woken");
    simulated_waiter *next = *best;
    *best = next->next;
    if (next->until > simulated.now) simulated.now = next->until;
    next->runs = true;
    pthread_cond_signal(&next->go);
}

/* With the mutex locked. */
static void simulated_enlist(simulated_waiter *self, const void *condition, double until) {
    pthread_cond_init(&self->go, NULL);
    self->condition = condition;
    self->until = until;
    self->turn = ++simulated.turns;
    self->runs = false;
    self->next = simulated.waiting;
    simulated.waiting = self;
}

static void simulated_await_turn(simulated_waiter *self) {
    pthread_mutex_lock(&simulated.mutex);
    while (!self->runs) pthread_cond_wait(&self->go, &simulated.mutex);
    pthread_mutex_unlock(&simulated.mutex);
    pthread_cond_destroy(&self->go);
}

/* The calling thread does not run until the time comes, or the condition is signaled (true). */
static bool simulated_block(const void *condition, double until, pthread_mutex_t *held) {
    simulated_waiter self;
    pthread_mutex_lock(&simulated.mutex);
    simulated_enlist(&self, condition, until);
    if (held) pthread_mutex_unlock(held);
    simulated_hand_over();
    pthread_mutex_unlock(&simulated.mutex);
    simulated_await_turn(&self);
    if (held) hook_late();
    if (held) pthread_mutex_lock(held);
    return condition && !self.condition;
}

/* Wakes the first thread that waits for the condition, or all. With the mutex locked. */
static void simulated_wake(const void *condition, bool all) {
    for (;;) {
        simulated_waiter *first = NULL;
        for (simulated_waiter *w = simulated.waiting; w; w = w->next) {
            if (w->condition == condition && (!first || w->turn < first->turn)) first = w;
        }
        if (!first) return;
        first->condition = NULL;
        first->until = simulated.now + simulated.wake;
        first->turn = ++simulated.turns;
        if (!all) return;
    }
}

SIMULATED_FUNCTION void simulated_sleep(double seconds) {
    struct timespec t;
    if (seconds <= 0) return;
    if (simulated.on) {
        simulated_block(NULL, simulated.now + seconds, NULL);
        return;
    }
    t.tv_sec = (time_t)seconds;
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t) != 0) continue;
}

/* Never returns. */
SIMULATED_FUNCTION void simulated_freeze(void) {
    for (;;) {
        if (simulated.on) simulated_block(NULL, (double)INFINITY, NULL);
        else pause();
    }
}

/* The calling thread is the only one; the others that the library starts from here on are simulated. `cores` is the
   number of cores that the library sees: with as many as threads, teams poll the clock, which then stands still. */
SIMULATED_FUNCTION void simulated_begin(double wake, int cores) {
#ifdef TIMED
    (void)wake, (void)cores;
#else
    char text[16];
    snprintf(text, sizeof text, "%d", cores);
    setenv("MIRT_CORES", text, 1);
    simulated.wake = wake;
    if (simulated.now <= 0) simulated.now = 1000; /* a clock that stands at 0 may mean that there is none */
    simulated.on = true;
#endif
}

/* The library's threads have ended, or are frozen. */
SIMULATED_FUNCTION void simulated_end(void) {
    if (simulated.on) unsetenv("MIRT_CORES");
    simulated.on = false;
}

static void simulated_thread_ends(void *arg) {
    pthread_mutex_lock(&simulated.mutex);
    ((simulated_thread *)arg)->ended = true;
    simulated_wake(arg, true);
    simulated_hand_over();
    pthread_mutex_unlock(&simulated.mutex);
}

static void *simulated_main(void *arg) {
    simulated_thread *self = (simulated_thread *)arg;
    void *result;
    simulated_await_turn(&self->start);
    pthread_cleanup_push(simulated_thread_ends, arg);
    result = self->fn(self->arg);
    pthread_cleanup_pop(1);
    return result;
}

/* >>the functions of hooks.h */

int hook_clock(clockid_t clock, struct timespec *out) {
    if (!simulated.on || clock != CLOCK_MONOTONIC) return clock_gettime(clock, out);
    out->tv_sec = (time_t)simulated.now;
    out->tv_nsec = (long)((simulated.now - floor(simulated.now)) * 1e9);
    return 0;
}

int hook_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    if (simulated.on) return simulated_block(cond, (double)INFINITY, mutex), 0;
    const int code = pthread_cond_wait(cond, mutex);
    hook_late_unlocked(mutex);
    return code;
}

int hook_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    if (simulated.on) {
        return simulated_block(cond, (double)until->tv_sec + (double)until->tv_nsec * 1e-9, mutex) ? 0 : ETIMEDOUT;
    }
    struct timespec soon;
    if (simulated.hurry > 0) {
        clock_gettime(CLOCK_MONOTONIC, &soon);
        const double nanoseconds = (double)soon.tv_nsec + simulated.hurry * 1e9;
        soon.tv_sec += (time_t)(nanoseconds / 1e9);
        soon.tv_nsec = (long)fmod(nanoseconds, 1e9);
        until = &soon;
    }
    const int code = pthread_cond_timedwait(cond, mutex, until);
    hook_late_unlocked(mutex);
    return code;
}

static int simulated_signal(pthread_cond_t *cond, bool all) {
    pthread_mutex_lock(&simulated.mutex);
    simulated_wake(cond, all);
    pthread_mutex_unlock(&simulated.mutex);
    return 0;
}

int hook_signal(pthread_cond_t *cond) {
    return simulated.on ? simulated_signal(cond, false) : pthread_cond_signal(cond);
}

int hook_broadcast(pthread_cond_t *cond) {
    return simulated.on ? simulated_signal(cond, true) : pthread_cond_broadcast(cond);
}

int hook_pause(void) {
    simulated_freeze();
    return 0;
}

/* What hook_thread is, where a test has none. */
SIMULATED_FUNCTION int simulated_create(pthread_t *thread, void *(*fn)(void *), void *arg) {
    if (!simulated.on) return pthread_create(thread, NULL, fn, arg);
    simulated_thread *self = (simulated_thread *)calloc(1, sizeof *self);
    if (!self) return EAGAIN;
    self->fn = fn;
    self->arg = arg;
    pthread_mutex_lock(&simulated.mutex);
    simulated_enlist(&self->start, NULL, simulated.now + simulated.wake);
    self->next = simulated.threads;
    simulated.threads = self;
    pthread_mutex_unlock(&simulated.mutex);
    if (pthread_create(&self->thread, NULL, simulated_main, self) != 0) simulated_bail_out("a thread could not be started");
    *thread = self->thread;
    return 0;
}

#ifndef SIMULATED_WITHOUT_HOOK_THREAD
int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg) { return simulated_create(thread, fn, arg); }
#endif

int hook_join(pthread_t thread, void **result) {
    simulated_thread *t = simulated.on ? simulated.threads : NULL;
    while (t && !pthread_equal(t->thread, thread)) t = t->next;
    while (t && !t->ended) simulated_block(t, (double)INFINITY, NULL);
    return pthread_join(thread, result);
}

#endif
