#ifndef MIRT__WORKERS_H
#define MIRT__WORKERS_H
/* Threads that make the samples of a reachable data set. */

#include "data.h"

/* For samples of `source`, as many threads as its `workers` says, when it begins. */
MIRT__LIB mirt__crew *mirt__crew_create(mirt_dataset *source);
/* Waits for samples under way and drops the rest. */
MIRT__LIB void mirt__crew_destroy(mirt__crew *crew);
/* Before an epoch: drops what was asked for, and starts threads of which the number was given. */
MIRT__LIB mirt_status mirt__crew_begin(mirt__crew *crew);
MIRT__LIB void mirt__crew_drop(mirt__crew *crew);

/* Samples [first, first + count) are wanted in `slot`, whose memory stays until this is finished or dropped. False: too
   much is asked for already. `ahead`: the one who asks does not wait for it yet. */
MIRT__LIB bool mirt__crew_ask(mirt__crew *crew, const mirt__slot *slot, int64_t first, int64_t count, bool ahead);
MIRT__LIB void mirt__crew_at(mirt__crew *crew, mirt__at *out);
MIRT__LIB bool mirt__crew_asked(const mirt__crew *crew);
/* What was asked for first is there: all samples in their order, but the skipped ones, or with `gaps` in their places,
   the index of the skipped being MIRT__NO_INDEX. The failure is that of the first sample that failed. */
MIRT__LIB mirt_status mirt__crew_finish(mirt__crew *crew, bool gaps, int64_t *rows);
/* The threads that make samples (0: the one who asks does), and the seconds one takes for a sample; 0: not known. */
MIRT__LIB int mirt__crew_numbers(mirt__crew *crew, double *seconds);
#define MIRT__NO_INDEX INT64_MIN

#endif
