#ifndef MIRT__RUN_H
#define MIRT__RUN_H
/* Runs a function's step on a batch. */
#include "../function/function.h"

/* --- run.c --- */
/* Makes a batch the one under way: memory is there, class numbers are checked. */
MIRT__LIB mirt_status mirt__function_begin(mirt_function *function, const mirt__batch *batch);
/* Forward and, where there are gradients, backward, exchange and update. */
MIRT__LIB mirt_status mirt__function_step(mirt_function *function);
/* The same; of a function that sends ahead, `next` is called while the devices are at work, if that can be. It gives
   the next batch, or NULL: it is there, or cannot be had now. Of the batch under way only labels and weights are still
   there then. The strategy's `prefetched` tells whether it lies on the devices. */
typedef const mirt__batch *(*mirt__next_fn)(void *arg);
MIRT__LIB mirt_status mirt__function_step_ahead(mirt_function *function, mirt__next_fn next, void *arg);
/* The parts of it. */
MIRT__LIB mirt_status mirt__function_replicas(mirt_function *function);
MIRT__LIB mirt_status mirt__function_all_reduce(mirt_function *function);
MIRT__LIB mirt_status mirt__function_update(mirt_function *function);

/* Gradients of the batch under way and new values of variables that it sets, without an update. */
MIRT__TOGETHER_ONLY_LIB mirt_status mirt__function_gradients(mirt_function *function);
/* The weights become the mean over processes (local SGD). */
MIRT__TOGETHER_ONLY_LIB mirt_status mirt__average_weights(mirt_model *model);
/* Makes the function ready for updates by gradients from elsewhere, which go to mirt__sum_at of its devices. */
MIRT__TOGETHER_ONLY_LIB mirt_status mirt__function_take(mirt_function *function);

/* --- rule.c --- */
/* How the function's gradients become weights. */
MIRT__LIB void mirt__rule_set(mirt_function *function);

/* --- follow.c --- */
/* Whether the step of `batch` can be launched before the results of the step under way are read. */
MIRT__LIB bool mirt__can_follow(mirt_function *function, const mirt__batch *batch);
/* Launches it, and waits for the results of the step under way. */
MIRT__LIB mirt_status mirt__follow(mirt_function *function, const mirt__batch *batch);
/* The step that was launched becomes the one under way. */
MIRT__LIB mirt_status mirt__follow_begin(mirt_function *function, const mirt__batch *batch);

/* --- run.c, for follow.c --- */
/* Whether the batch's class numbers are such; otherwise the error is set. valid_weight: by field. */
MIRT__LIB mirt_status mirt__check_class_numbers(const mirt_function *function, const mirt__batch *batch,
                                                double *valid_weight);
/* Whether buckets are reduced while backward runs. */
MIRT__TRAINING_LIB bool mirt__can_overlap(const mirt_function *function);
/* What every replay of the step is told. */
MIRT__LIB void mirt__info_set(mirt_function *function);
MIRT__LIB mirt_status mirt__run_round(mirt_function *function, void (*fn)(void *arg, int device));

#endif
