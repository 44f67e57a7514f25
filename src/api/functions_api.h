#ifndef MIRT__FUNCTIONS_API_H
#define MIRT__FUNCTIONS_API_H
/* Functions: custom training steps. */

#include "compile_api.h"

MIRT__BEGIN_C

/* >>functions ----------------------------------------------------------------------------- */
/* Threads: a function, its tensors and its distributed data set are for the one thread at a time that has their
   strategy. */

/* A custom step, recorded once and replayed by every replica on its share of a global batch. Keras
   and TensorFlow: tf.function and strategy.run. */

/* One global batch, valid until the next mirt_dataset_next, which alone makes one. Only `rows` and
   `epoch` are to be read. */
typedef struct mirt_global_batch {
    int64_t rows;  /* 0: the epoch is over */
    int64_t epoch; /* 0-based */
    const void *field[2 * MIRT_MAX_INPUTS + 1];
    const int64_t *index;
    const mirt_dataset *dataset;
} mirt_global_batch;

#ifndef MIRRORTRAIN_NO_TRAIN
/* Deals a batched data set (which it takes over) to a strategy's replicas: the last stage. When
   the strategy is gone it can only be destroyed. Keras: experimental_distribute_dataset. */
MIRT_API mirt_dataset *mirt_distribute(mirt_strategy *strategy, mirt_dataset *dataset);
/* The next batch of a distributed data set; after the end of an epoch, or an error, the next call begins the next one,
   in its own order. MIRT_E_STATE: not distributed, or another call reads it; and what the data's files may give. */
MIRT_API mirt_status mirt_dataset_next(mirt_dataset *dataset, mirt_global_batch *out);
#endif

/* Records the step; returns false when it failed (an error inside the library needs no return value). */
typedef bool (*mirt_body_fn)(mirt_function *function, void *user);
#ifndef MIRRORTRAIN_NO_TRAIN
/* Calls `body` once to record it. `dataset`, distributed to the model's strategy, says what batches look like; NULL: a
   step without data, of one row a replica. Lives as long as its model, or until it is destroyed. A later mirt_compile
   that changes which weights are trained makes it invalid. NULL: the first error of recording, MIRT_E_NOMEM. */
MIRT_API mirt_function *mirt_function_create(mirt_model *model, mirt_dataset *dataset, mirt_body_fn body, void *user);
/* NULL is allowed. */
MIRT_API void mirt_function_destroy(mirt_function *function);

/* In the body. The batch's inputs, labels and sample weights (NULL when there are none), as they are in the data:
   mirt_call casts them, other operations take float32. A weight of the model by name, to read. A constant, copied. */
MIRT_API mirt_tensor *mirt_function_x(mirt_function *function, int index);
MIRT_API mirt_tensor *mirt_function_y(mirt_function *function, int index);
MIRT_API mirt_tensor *mirt_function_weights(mirt_function *function);
MIRT_API mirt_tensor *mirt_function_variable(mirt_function *function, const char *name);
MIRT_API mirt_tensor *mirt_function_constant(mirt_function *function, mirt_array value);
/* Keras: model.trainable_variables. All trainable weights of `model` as tensors for mirt_gradients and
   mirt_apply_gradients; *count of them, perhaps 0. In the body of `function`: `model` is the function's model (NULL:
   that one) or a part of it. Outside of a body, `function` is NULL, and the tensors belong to the model's own graph: a
   term of mirt_add_loss may read them. The order is that of mirt_weight, which is Keras's for layers in a chain (Keras
   sorts parallel branches by their distance from the output). The array belongs to the function or to the model and
   lives as long. NULL, with *count 0: MIRT_E_INVALID (no model, no count, not a part of the function's model),
   MIRT_E_STATE (the function is recorded already), MIRT_E_NOMEM, or an earlier error of recording. */
MIRT_API mirt_tensor *const *mirt_trainable(mirt_function *function, mirt_model *model, int *count);
/* In the body: one value per sample, the mean over its positions. Class numbers of the sparse loss are checked with
   every batch. MIRT_DICE over the global batch is one number. */
MIRT_API mirt_tensor *mirt_loss_values(mirt_loss loss, bool from_logits, mirt_tensor *labels, mirt_tensor *output);
/* The same with options (NULL: none). ignore_class needs labels of the batch as they are, and, with the default
   reduction, multiplies each sample's mean by all labels of the global batch over those that count. MIRT_CIRCLE
   multiplies likewise by all samples over those whose loss is not 0. */
MIRT_API mirt_tensor *mirt_loss_values_with(mirt_loss loss, const mirt_loss_options *options, mirt_tensor *labels,
                                            mirt_tensor *output);
/* In the body: what regularizers and mirt_add_loss add for the models called so far, term by term; `index` from 0; NULL
   after the last. */
MIRT_API mirt_tensor *mirt_function_loss_term(mirt_function *function, int index);
/* In the body: adds a term to what the step minimizes. One value a sample (of several, their mean, or with MIRT_SUM
   their sum) counts by the global batch's true size; a number made of weights, or of all-reduced values, counts once;
   a mean over rows is weighted by the replica's rows, with a warning; a sum over rows is taken as it is; a sum of such
   numbers is taken apart. Trainable weights without a gradient are left alone, with one warning; none at all with one
   is an error. The compiled optimizer applies the gradients' sum over all replicas when the step is over. */
MIRT_API mirt_status mirt_minimize(mirt_function *function, mirt_tensor *loss);
/* In the body, by hand: out[i] is the gradient of `loss` (weighted as above) with respect to x[i], of this replica
   alone; NULL, with one warning, where loss does not depend on x[i]; on none of them: MIRT_E_INVALID. Few gradients can
   be differentiated again. */
MIRT_API mirt_status mirt_gradients(mirt_tensor *loss, mirt_tensor *const *x, int count, mirt_tensor **out);
/* In the body: gives the optimizer gradients[i] for variables[i] (from mirt_function_variable or
   mirt_trainable), one for each weight; NULL gradients are left out, all of them NULL is an error. They are summed over
   all replicas. */
MIRT_API mirt_status mirt_apply_gradients(mirt_function *function, mirt_tensor *const *variables,
                                          mirt_tensor *const *gradients, int count);
#endif
typedef enum mirt_reduce_op { MIRT_REDUCE_SUM = 0, MIRT_REDUCE_MEAN } mirt_reduce_op;
#ifndef MIRRORTRAIN_NO_TRAIN
/* In the body: the sum over all replicas, or the mean weighted by their rows, of an unbatched float32 tensor.
   tf.distribute: all_reduce in a replica's context. */
MIRT_API mirt_tensor *mirt_replica_all_reduce(mirt_tensor *x, mirt_reduce_op op);
#endif
/* How a variable's new values on the replicas become one. tf.VariableAggregation. */
typedef enum mirt_aggregation {
    MIRT_AGGREGATE_NONE = 0, /* replicas must not write it */
    MIRT_AGGREGATE_MEAN,     /* weighted by the replicas' rows */
    MIRT_AGGREGATE_SUM,
    MIRT_AGGREGATE_FIRST     /* of the first replica */
} mirt_aggregation;
#ifndef MIRRORTRAIN_NO_TRAIN
/* In the body: `variable`, not trainable, becomes `value` on all devices when the step is over. MIRT_AGGREGATE_NONE is
   an error, as in TensorFlow. */
MIRT_API mirt_status mirt_assign(mirt_function *function, mirt_tensor *variable, mirt_tensor *value,
                                 mirt_aggregation aggregation);
/* In the body: keeps a tensor, to be read after a run under `name`: for every row, or (unbatched) for every
   replica. */
MIRT_API mirt_status mirt_function_result(mirt_function *function, const char *name, mirt_tensor *value);

/* Runs the step on a batch of the data set it was made for (NULL without one). On an error (MIRT_E_CALLBACK: an op of
   the user failed) nothing is changed. */
MIRT_API mirt_status mirt_function_run(mirt_function *function, const mirt_global_batch *batch);
/* A result of the last run over all replicas: the sum or mean of all rows (batched), or of the replicas' values, the
   mean weighted by their rows; `count` doubles, a row's or a value's elements. tf.distribute: strategy.reduce.
   MIRT_E_NOT_FOUND with the nearest right name, MIRT_E_SHAPE: another count, MIRT_E_STATE: not run yet. */
MIRT_API mirt_status mirt_reduce(mirt_function *function, const char *name, mirt_reduce_op op, double *out,
                                 size_t count);
/* All rows in the order of the batch, or the values of all replicas that had rows, one after the other, as float32
   (strategy.gather); or those of replica `replica` alone (experimental_local_results), none where it had no rows.
   `capacity` elements fit into out; *written (may be NULL) are there then. MIRT_E_NOT_FOUND, MIRT_E_SHAPE,
   MIRT_E_STATE: not run yet. */
MIRT_API mirt_status mirt_gather_result(mirt_function *function, const char *name, float *out, size_t capacity,
                                        size_t *written);
MIRT_API mirt_status mirt_local_result(mirt_function *function, const char *name, int replica, float *out,
                                       size_t capacity, size_t *written);
#endif

MIRT__END_C

#endif /* MIRT__FUNCTIONS_API_H */
