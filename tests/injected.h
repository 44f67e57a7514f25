#ifndef INJECTED_H
#define INJECTED_H
/* Faults at MIRT__TEST_POINT: a device freezes, dies or slows down, or all are delayed. Delays are random. */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>

#include "simulated_time.h"

typedef enum injected_fault { NO_FAULT, FREEZE, DIE, SLOW, SLOW_EACH, RANDOM } injected_fault;

static struct {
    int fault;        /* atomic; set last */
    int place;        /* atomic: 64 * point + device */
    int visits, wait; /* atomic: the fault comes at the visit with this number */
    double seconds;           /* of slow ones */
    int over;                 /* a slow one has woken up */
    uint64_t seed;
} injected;

/* The draw depends on the seed and on how many there were, not on who comes first. */
static void injected_random(void) {
    uint64_t x = __atomic_add_fetch(&injected.seed, 0x9E3779B97F4A7C15u, __ATOMIC_RELAXED);
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    if (x % 4 == 0) sched_yield();
    else if (x % 16 == 1) simulated_sleep((double)(x >> 40) / (1 << 24) * 5e-4);
}

void hook_point(int point, int device, int number) {
    (void)number;
    int fault = __atomic_load_n(&injected.fault, __ATOMIC_ACQUIRE);
    if (fault == NO_FAULT) return;
    if (fault == RANDOM) {
        injected_random();
        return;
    }
    if (__atomic_load_n(&injected.place, __ATOMIC_RELAXED) != 64 * point + device) return;
    if (fault == SLOW_EACH) {
        simulated_sleep(injected.seconds);
        return;
    }
    if (__atomic_add_fetch(&injected.visits, 1, __ATOMIC_RELAXED) != __atomic_load_n(&injected.wait, __ATOMIC_RELAXED))
        return;
    if (fault == DIE) pthread_exit(NULL);
    if (fault == FREEZE) simulated_freeze();
    simulated_sleep(injected.seconds);
    __atomic_store_n(&injected.over, 1, __ATOMIC_RELEASE);
}

#endif
