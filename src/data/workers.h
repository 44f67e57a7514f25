#ifndef MIRT__WORKERS_H
#define MIRT__WORKERS_H
/* Worker threads that make the samples of a data set with random access. */

#include "../base/entry.h"
#include "data.h"

#ifndef MIRRORTRAIN_NO_THREADS
/* A mutex, and the conditions that a consumer and the threads that work for it wait for. */
typedef struct mirt__signals {
    int made; /* number of the following that exist, in their order */
    pthread_mutex_t mutex;
    pthread_cond_t to_threads, to_consumer;
} mirt__signals;
/* An error number; mirt__signals_destroy frees what has been made until then, too. */
MIRT__LIB int mirt__signals_create(mirt__signals *signals);
MIRT__LIB void mirt__signals_destroy(mirt__signals *signals);
/* As the consumer, with the mutex. */
MIRT__LIB void mirt__signals_wait(mirt__signals *signals);
#endif

/* Waits for samples that are being made and drops the rest. */
MIRT__LIB void mirt__workers_destroy(mirt__worker_pool *pool);
/* Before a pass: the pool of `dataset` for samples of its source, without requests, and with its threads if their
   number is fixed. */
MIRT__LIB mirt_status mirt__workers_begin(mirt_dataset *dataset);
MIRT__LIB void mirt__workers_drop(mirt__worker_pool *pool);

/* Requests samples [first, first + count) in `slot`, whose memory must stay valid until this is finished or dropped.
   False: too many requests. `ahead`: the caller does not wait for them yet. */
MIRT__LIB bool mirt__workers_ask(mirt__worker_pool *pool, const mirt__slot *slot, int64_t first, int64_t count,
                                 bool ahead);
/* The index of sample `i`, by the requesting thread. */
MIRT__TOGETHER_ONLY_LIB mirt_status mirt__workers_index(mirt__worker_pool *pool, int64_t i, int64_t *index);
MIRT__LIB bool mirt__workers_asked(const mirt__worker_pool *pool);
/* Waits for the oldest request: all its samples in order without the skipped ones, or with `gaps` in their places, with
   index MIRT__NO_INDEX for skipped ones. The error is that of the first sample that failed. */
MIRT__LIB mirt_status mirt__workers_finish(mirt__worker_pool *pool, bool gaps, int64_t *rows);

#endif
