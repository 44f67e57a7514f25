#ifndef MIRT__WORKERS_H
#define MIRT__WORKERS_H
/* Threads that make the samples of a reachable data set. */

#include "data.h"

/* For samples of `source`, as many threads as its `workers` says, when it begins. */
MIRT__LIB mirt__worker_pool *mirt__workers_create(mirt_dataset *source);
/* Waits for samples under way and drops the rest. */
MIRT__LIB void mirt__workers_destroy(mirt__worker_pool *pool);
/* Before an epoch: drops what was asked for, and starts threads of which the number was given. */
MIRT__LIB mirt_status mirt__workers_begin(mirt__worker_pool *pool);
MIRT__LIB void mirt__workers_drop(mirt__worker_pool *pool);

/* Samples [first, first + count) are wanted in `slot`, whose memory stays until this is finished or dropped. False: too
   much is asked for already. `ahead`: the one who asks does not wait for it yet. */
MIRT__LIB bool mirt__workers_ask(mirt__worker_pool *pool, const mirt__slot *slot, int64_t first, int64_t count,
                                 bool ahead);
MIRT__LIB void mirt__workers_at(mirt__worker_pool *pool, mirt__at *out);
MIRT__LIB bool mirt__workers_asked(const mirt__worker_pool *pool);
/* What was asked for first is there: all samples in their order, but the skipped ones, or with `gaps` in their places,
   the index of the skipped being MIRT__NO_INDEX. The failure is that of the first sample that failed. */
MIRT__LIB mirt_status mirt__workers_finish(mirt__worker_pool *pool, bool gaps, int64_t *rows);
/* The threads that make samples (0: the one who asks does), and the seconds one takes for a sample; 0: not known. */
MIRT__LIB int mirt__workers_numbers(mirt__worker_pool *pool, double *seconds);
#define MIRT__NO_INDEX INT64_MIN

#endif
