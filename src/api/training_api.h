#ifndef MIRT__TRAINING_API_H
#define MIRT__TRAINING_API_H
/* Training, evaluation and prediction. */

#include "callbacks_api.h"

MIRT__BEGIN_C

/* >>training and prediction -------------------------------------------------------------- */
/* Threads: all functions on a model are for the one thread at a time that has its strategy; a history is read
   by that thread. Functions without either among their arguments: any thread at any time. */

typedef struct mirt_fit_desc {
    int epochs;                /* default 1 */
    int64_t batch;             /* global batch of a dataset without a batch stage; default 32. With one: 0, or the
                                  same */
    mirt_dataset *validation;  /* borrowed */
    const mirt_callback *callbacks[MIRT_MAX_CALLBACKS]; /* borrowed; ends at the first NULL */
    mirt_epoch_schedule_fn learning_rate; /* asked at the beginning of every epoch */
    void *learning_rate_user;
    int64_t max_steps;         /* of this fit; 0: no limit */
    bool no_progress;          /* leave the progress line out; mirt_progbar_logger is one */
    int initial_epoch;         /* 0-based: `epochs` is where fit ends, as in Keras */
    int64_t steps_per_epoch;   /* 0: all of the data; otherwise the data continue where the last epoch left them,
                                  repeatedly */
    int64_t validation_steps;  /* 0: all of the validation data */
    int validation_freq;       /* validates after every n-th epoch; default 1 */
    const float *class_weights; /* [num_class_weights], of class numbers or one-hot labels: what each sample's loss is
                                   multiplied with */
    int num_class_weights;
    /* What the frozen layers at the beginning of a model make of each sample is computed once and kept, if it takes no
       more memory than this and cannot change: nothing random or of your own code among these layers or, without
       mirt_cache after it, among the data's stages. The log says what is kept, and otherwise why not. 0: 1 GiB;
       negative: never. */
    int64_t feature_cache_bytes;
    /* A checkpoint (a file written by mirt_model_checkpoint or, in a callback of a fit, by mirt_save), or a directory,
       of which the newest valid checkpoint is used. fit resumes from it, also in the middle of an epoch; weights, logs
       and history are bit-identical to a run without a break, on any number of devices. Model, data, seed, replicas,
       global batch and this description, except `epochs` and `max_steps`, must be the same: otherwise an error, and
       nothing is changed. Files that are damaged or lack the library's checksums are refused; in a directory they are
       named in the log and skipped, and fit fails if there are no others (MIRT_E_FORMAT). If the directory holds no
       checkpoint, or does not exist, fit starts over and logs it. */
    const char *resume;
    int64_t check_drift_every; /* steps after which mirt_check_drift looks; 0: at the end of every epoch; negative:
                                  never */
} mirt_fit_desc;

/* What fit returns; owned by the model, valid until its next fit. */
typedef struct mirt_history {
    int epochs;          /* epochs with at least one step */
    int64_t steps;       /* of this fit */
    const mirt_logs *epoch; /* [epochs] */
    double seconds;      /* spent in steps, callbacks between them included, validation and loading not */
    double images_per_second;
    double input_seconds; /* of them, spent waiting for batches */
    bool stopped;         /* before its last epoch was complete, by mirt_request_stop or by a callback */
    mirt_staleness staleness; /* of all epochs of this call; of process 0 */
} mirt_history;

#ifndef MIRRORTRAIN_NO_TRAIN
/* Keras: Model.fit. Trains on `dataset` (borrowed; callbacks leave it alone); allocates only before
   the first step. NULL on error (MIRT_E_STATE before mirt_compile or from a callback of fit,
   MIRT_E_SHAPE, MIRT_E_INVALID: labels, MIRT_E_NOMEM, and what the dataset's files may give). desc
   NULL: all defaults. */
MIRT_API mirt_history *mirt_fit(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc);
/* Ends the fit of `model` that is running after its current step: fit then returns its history with `stopped` set,
   without a last validation, though one that is running is finished; checkpoints with at_end are written. Without a
   running fit, it ends the next one before its first step. Thread safe, and safe in signal handlers; the library
   installs none. NULL is allowed. Keras: Model.stop_training. */
MIRT_API void mirt_request_stop(mirt_model *model);
/* The same on arrays, shuffled every epoch as Keras does. */
MIRT_API mirt_history *mirt_fit_arrays(mirt_model *model, mirt_array x, mirt_array y, const mirt_fit_desc *desc);
/* The value named `name`, or NAN. */
MIRT_API double mirt_logs_value(const mirt_logs *logs, const char *name);
/* The same of the last epoch. */
MIRT_API double mirt_history_last(const mirt_history *history, const char *name);

/* Keras: Model.evaluate: "loss" and metrics, by the names in `out` (may be NULL). Sums over samples in
   their order in double precision: with the default reduction the same bits for any batch size,
   device or replica count. Errors as mirt_fit. */
MIRT_API mirt_status mirt_evaluate(mirt_model *model, mirt_dataset *dataset, mirt_logs *out);
MIRT_API mirt_status mirt_evaluate_arrays(mirt_model *model, mirt_array x, mirt_array y, mirt_logs *out);
/* The values by class of a metric of the last evaluation (mirt_evaluate, mirt_test_on_batch, fit's validation), by its
   name in logs: values[i] of class i, `classes` in all. For precision, recall and F1 with an `average`, and mean IoU,
   whose classes that do not occur are NAN. Keras: result() of F1Score(average=None). MIRT_E_STATE:
   nothing has been evaluated yet; MIRT_E_INVALID: the metric is one number, MIRT_E_NOT_FOUND, MIRT_E_SHAPE. */
MIRT_API mirt_status mirt_metric_result(const mirt_model *model, const char *name, double *values, int classes);
#endif
/* Keras: Model.predict. Writes one output per sample, in the data set's order, to `out`, which
   holds `capacity` floats; too few are MIRT_E_SHAPE. Needs no labels, and no mirt_compile
   either: once weights are made, no layer can be added. */
MIRT_API mirt_status mirt_predict(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity);
MIRT_API mirt_status mirt_predict_arrays(mirt_model *model, mirt_array x, float *out, size_t capacity);

/* Keras: train_on_batch, test_on_batch, predict_on_batch: one global batch, borrowed during the call. `out` (may be
   NULL) receives the loss (before the update) and metrics of the batch. out[i] holds capacity[i] floats for the
   model's i-th output. Errors as mirt_fit; the model is then unchanged. */
#ifndef MIRRORTRAIN_NO_TRAIN
MIRT_API mirt_status mirt_train_on_batch(mirt_model *model, const mirt_data *batch, mirt_logs *out);
MIRT_API mirt_status mirt_test_on_batch(mirt_model *model, const mirt_data *batch, mirt_logs *out);
#endif
MIRT_API mirt_status mirt_predict_on_batch(mirt_model *model, const mirt_data *batch, float *const *out,
                                           const size_t *capacity);
/* mirt_predict for models of several outputs. */
MIRT_API mirt_status mirt_predict_outputs(mirt_model *model, mirt_dataset *dataset, float *const *out,
                                          const size_t *capacity);

#ifndef MIRRORTRAIN_NO_TRAIN
/* One training step on one global batch of arrays (borrowed during the call); *loss, if asked
   for, is the exact mean over the batch (with MIRT_SUM its sum), before the update. Errors as
   mirt_fit; the model is then unchanged. */
MIRT_API mirt_status mirt_train_step(mirt_model *model, mirt_array x, mirt_array y, double *loss);
/* The four parts of a mirrored step, in this order; mirt_train_step is their sum, with
   bit-identical results. scatter borrows its arrays until grad has returned. Out of order: MIRT_E_STATE; anything
   else that runs the model in between starts over at scatter. */
MIRT_API mirt_status mirt_scatter(mirt_model *model, mirt_array x, mirt_array y);
MIRT_API mirt_status mirt_grad(mirt_model *model, double *loss);
MIRT_API mirt_status mirt_all_reduce(mirt_model *model);
MIRT_API mirt_status mirt_apply(mirt_model *model);
/* Rows of the last batch scattered or trained on that replica `replica` owns, and the first of them. */
MIRT_API int64_t mirt_replica_rows(const mirt_model *model, int replica, int64_t *first);

/* The learning rate the next step will use, 0 for NULL; set overrides a schedule (MIRT_E_INVALID: not
   a number, or negative). Of several optimizers, that of mirt_compile_desc.optimizer; set is MIRT_E_STATE. */
MIRT_API double mirt_get_learning_rate(const mirt_model *model);
MIRT_API mirt_status mirt_set_learning_rate(mirt_model *model, double rate);
/* Gives a compiled model a schedule, in the place of its learning rate or of another schedule, from the next step on;
   one of kind MIRT_SCHEDULE_NONE leaves the rate in force for good. MIRT_E_INVALID; MIRT_E_STATE: it has several
   optimizers. */
MIRT_API mirt_status mirt_set_schedule(mirt_model *model, const mirt_schedule *schedule);
/* Steps applied so far; 0 for NULL. */
MIRT_API int64_t mirt_step(const mirt_model *model);
#endif

MIRT__END_C

#endif /* MIRT__TRAINING_API_H */
