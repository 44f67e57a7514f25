#ifndef MIRT__TEAM_H
#define MIRT__TEAM_H
/* A team of long-lived threads; the caller is always member 0. */

#include "base.h"

/* Starts size - 1 threads. Members spin for a short while between jobs only when `spin`: set it
   false when threads outnumber cores. NULL with the error set. */
MIRT__LIB mirt__team *mirt__team_create(int size, bool spin);
MIRT__LIB void mirt__team_destroy(mirt__team *team);
/* 1 for NULL: a NULL team is the caller alone. */
MIRT__LIB int mirt__team_size(const mirt__team *team);
/* Runs fn once on every member and returns when all have; false: the caller gave up waiting for them
   (mirt__team_look). */
MIRT__LIB bool mirt__team_run(mirt__team *team, void (*fn)(void *arg, int member), void *arg);
/* Runs fn for every task in [0, tasks), claimed dynamically: which member runs a task must not
   matter to the result. */
MIRT__LIB void mirt__team_for(mirt__team *team, int64_t tasks, void (*fn)(void *arg, int64_t task, int member),
                              void *arg);
/* All members of a running mirt__team_run wait here for each other; false: as above. */
MIRT__LIB bool mirt__team_barrier(mirt__team *team);
/* While the calling thread waits for the others, look(arg) is asked every `seconds`: true makes it give up. The team
   can then no longer be used, and must not be destroyed. look NULL, or another thread: it waits. */
MIRT__LIB void mirt__team_look(mirt__team *team, bool (*look)(void *arg), void *arg, double seconds);
/* A member whose thread has ended in the middle of a job; 0: none. */
MIRT__LIB int mirt__team_ended(const mirt__team *team);

/* Of this machine, or as many as the environment variable MIRT_CORES says; 0 (MIRT_E_DEVICE): it says none. */
MIRT__LIB int mirt__cpu_cores(void);

#ifndef MIRRORTRAIN_NO_THREADS
#include <pthread.h>
/* Conditions with which one can wait for at most so many seconds. */
MIRT__LIB int mirt__cond_create(pthread_cond_t *cond);
MIRT__LIB void mirt__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double seconds);
#endif

#endif
