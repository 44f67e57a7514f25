#ifndef MIRT__TEAM_H
#define MIRT__TEAM_H
/* A team (pool) of long-lived threads; the caller is always member 0. */

#include "cpus.h"

/* Who is told of tasks (mirt_record_tasks). */
typedef struct mirt__task_recorder {
    mirt_task_fn fn; /* NULL: nobody */
    void *user;
} mirt__task_recorder;
/* Tells that this happened just now. */
MIRT__TRAINING_LIB void mirt__task_tell(const mirt__task_recorder *recorder, mirt_task_kind kind, int64_t index);

/* Starts size - 1 threads. A member that waits spins for mirt__spin_seconds before it sleeps, while no more than `spin`
   threads of the process are at work; 0: never. NULL with the error set. */
MIRT__LIB mirt__team *mirt__team_create(int size, int spin);
/* A team of no threads, whose caller does the work of all `size` members, one after another: kernels divide their work
   as for that many. Its members must not meet at a barrier. NULL with the error set. */
MIRT__TRAINING_LIB mirt__team *mirt__team_simulated(int size);
/* Loops are told of from now on; NULL: they are not. */
MIRT__TRAINING_LIB void mirt__team_record(mirt__team *team, const mirt__task_recorder *recorder);
MIRT__LIB void mirt__team_destroy(mirt__team *team);
/* 1 for NULL, which means only the caller. */
MIRT__LIB int mirt__team_size(const mirt__team *team);
/* Runs fn once on every member and returns when all have finished; false: the caller stopped waiting for them
   (mirt__team_look). */
MIRT__LIB bool mirt__team_run(mirt__team *team, void (*fn)(void *arg, int member), void *arg);
/* Runs fn for every task in [0, tasks). Each member begins with a part of its own, always the same, then claims what
   others have yet to begin: the result must not depend on the member that runs a task. */
MIRT__LIB void mirt__team_for(mirt__team *team, int64_t tasks, void (*fn)(void *arg, int64_t task, int member),
                              void *arg);
/* A barrier for all members of a running mirt__team_run; false: as above. */
MIRT__TRAINING_LIB bool mirt__team_barrier(mirt__team *team);
/* While the calling thread waits for the others, it calls look(arg) every `seconds`; if that returns true, it stops
   waiting. The team can then no longer be used and must not be destroyed. With look NULL, and on other threads, waits
   are unlimited. */
MIRT__LIB void mirt__team_look(mirt__team *team, bool (*look)(void *arg), void *arg, double seconds);
/* A member whose thread ended in the middle of a job; 0: none. */
MIRT__LIB int mirt__team_ended(const mirt__team *team);

/* Counts the threads of strategies that are in use: `more` begin to work, negative: end. Returns their number. */
MIRT__LIB int mirt__team_busy(int more);
/* What waking the members of a team cost when the first that may spin was created, and how long threads that wait spin
   because of it; 0: no team was. */
MIRT__LIB double mirt__wake_seconds(void);
MIRT__LIB double mirt__spin_seconds(void);

#ifndef MIRRORTRAIN_NO_THREADS
#include <pthread.h>
/* Condition variables with timed waits. */
MIRT__LIB int mirt__cond_create(pthread_cond_t *cond);
MIRT__LIB void mirt__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double seconds);
#endif

#endif
