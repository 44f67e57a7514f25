#ifndef MIRT__TRAIN_REMOTE_H
#define MIRT__TRAIN_REMOTE_H
/* Running a function on devices with memory of their own (mirror/backend.h): what travels, and when. */
#include "function.h"

/* Whether the function's devices are such. */
MIRT__LIB bool mirt__is_remote(const mirt_function *function);
/* Where kernels outside of the program run. */
MIRT__LIB mirt__where mirt__where_of(const mirt_function *function, int device);
/* The program can run there; bytes of its room and of copies of batch and results into function->needs. */
MIRT__LIB mirt_status mirt__remote_needs(mirt_function *function);
/* A batch is about to run: room for its rows, weights and optimizer state are there. Memory has been reserved. */
MIRT__LIB mirt_status mirt__remote_begin(mirt_function *function);
/* The part of the bases that depends on the rows; `place` is where results that are not batched go. */
MIRT__LIB void mirt__remote_bases(const mirt_function *function, int device, mirt__bases *bases);
MIRT__LIB void mirt__remote_row_bases(const mirt_function *function, int device, mirt__bases *bases, int64_t first_row, int place);

/* The following are called by a device's thread. */
/* Its rows of the batch under way go there, */
MIRT__LIB void mirt__remote_scatter(const mirt_function *function, int device);
/* and those of the batch that is sent ahead, beside its work. */
MIRT__LIB void mirt__remote_scatter_ahead(const mirt_function *function, int device);
/* Its results come back, once it has waited. */
MIRT__LIB void mirt__remote_fetch(const mirt_function *function, int device);
/* Around work that comes back the same: a part of a step, 0 to 3. shut false: nothing of it was done; open and do it once more. */
MIRT__LIB void mirt__remote_open(const mirt_function *function, int device, int part);
MIRT__LIB bool mirt__remote_shut(const mirt_function *function, int device);
/* Marks the end of a stage of the step, for its clock: 0 the beginning, 1 replicas, 2 exchange, 3 update. */
MIRT__LIB void mirt__remote_stage(const mirt_function *function, int device, int stage);
/* Waits. False: something failed, which is kept for the caller. */
MIRT__LIB bool mirt__remote_finish(mirt_function *function, int device);
/* All devices have come this far in their work; false: they were given up. */
MIRT__LIB bool mirt__remote_meet(const mirt_function *function, int device, int number);
/* At a cut: the values of the node's inputs of all replicas make its outputs. False: they were given up. */
MIRT__LIB bool mirt__remote_cut(mirt_function *function, const mirt__node *node, int device);
/* Elements [begin, end) of the gradients travel, beside what is enqueued next. */
MIRT__LIB void mirt__remote_exchange_range(const mirt_function *function, int device, int64_t begin, int64_t end);
/* They are all there before what is enqueued next. */
MIRT__LIB void mirt__remote_exchanged(const mirt_function *function, int device);
/* Afterwards every device has the sum of all gradients in its first buffer, and all replicas' states. */
MIRT__LIB bool mirt__remote_reduce(mirt_function *function, int device);
/* Variables get their new values. */
MIRT__LIB void mirt__remote_states(const mirt_function *function, int device);
/* Squares of pieces [first, first + count) of the gradients' sum, into the model's. */
MIRT__LIB void mirt__remote_squares(mirt_function *function, int device, int64_t first, int64_t count);
/* What failed on the devices, if anything. */
MIRT__LIB mirt_status mirt__remote_failure(mirt_function *function);

/* --- run.c --- */
/* The outputs of an all_reduce node from `active` replicas' inputs. */
MIRT__LIB void mirt__all_reduce_values(const mirt__node *node, int active, const mirt__real *value[][MIRT__MAX_REPLICAS], const int64_t *rows, mirt__real **out);
MIRT__LIB bool mirt__device_meets(const mirt_function *function, int device, int phase, int node);
MIRT__LIB void mirt__exchange_of(const mirt_function *function, int device, mirt__exchange *out);
MIRT__LIB void mirt__device_sum(const mirt_function *function, int device);
MIRT__LIB void mirt__replica_bases(const mirt_function *function, int device, int first, int replica, mirt__bases *bases);

#endif
