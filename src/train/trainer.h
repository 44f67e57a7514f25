#ifndef MIRT__TRAINER_H
#define MIRT__TRAINER_H
/* Loops over data: functions recorded for the data at hand, batches, passes, progress. */
#include "../function/fit_program.h"
#include "../run/run.h"

/* --- trainer.c --- */
/* The model's, made if there is none; NULL with the error set. */
MIRT__LIB mirt__trainer *mirt__trainer_of(mirt_model *model);
/* The function of `kind` for data like `spec` with batches of up to `most` samples, recorded unless it is
   there. `fit`: for its class weights, or NULL. */
MIRT__LIB mirt_function *mirt__trainer_prepare(mirt_model *model, mirt__program_kind kind, const mirt__data_spec *spec,
                                               int64_t most, const mirt_fit_desc *fit);
/* Whether the batch's sample weights are numbers; otherwise the error is set. */
MIRT__LIB mirt_status mirt__check_weights(const mirt_function *function, const mirt__batch *batch);
/* mirt__function_begin in a loop, whose sample weights have to be numbers. */
MIRT__LIB mirt_status mirt__trainer_begin(mirt_function *function, const mirt__batch *batch);
/* Whether `rows` predictions fit into the caller's memory, capacity[i] floats for output i. */
MIRT__LIB mirt_status mirt__check_room(const mirt_function *function, int64_t rows, float *const *out,
                                       const size_t *capacity);
/* Copies the predictions of the batch under way behind the `done` samples before it. */
MIRT__LIB void mirt__copy_predictions(const mirt_function *function, int64_t done, float *const *out);

/* --- user_function.c --- */
/* MIRT_E_INVALID: the data set, or one it reads, is distributed to another strategy than the model's. */
MIRT__LIB mirt_status mirt__check_distributed(const mirt_model *model, const mirt_dataset *dataset, const char *caller);

/* --- pass_data.c --- */
/* A data set as a loop reads it: for steps of `replicas`, or 0 where devices share rows as they like. Where processes
   train together, each makes what its devices need of x, and gets the labels and weights of all rows. */
MIRT__LIB mirt_status mirt__pass_data_begin(mirt_strategy *strategy, mirt_dataset *dataset, int replicas,
                                            int64_t epoch);
MIRT__LIB mirt_status mirt__pass_data_next(mirt_strategy *strategy, mirt_dataset *dataset, mirt__batch *out);

/* --- together.c --- */
/* The same where processes train together. */
MIRT__LIB mirt_status mirt__begin_together(mirt_strategy *strategy, mirt_dataset *dataset, int replicas,
                                           int64_t epoch);
MIRT__LIB mirt_status mirt__next_together(mirt_strategy *strategy, mirt_dataset *dataset, mirt__batch *out);
/* Before a fit: whether all processes do the same. */
MIRT__LIB mirt_status mirt__fit_together(mirt_model *model, const mirt_dataset *data, const mirt_fit_desc *desc);
/* Before a step: whether all processes have a batch of as many rows. `*skipped`: of this process's rows; then of all
   rows. */
MIRT__LIB mirt_status mirt__meet_with_batch(mirt_strategy *strategy, mirt_status status, int64_t rows,
                                            int64_t *skipped);
/* At a point of a call that all processes reach: the error of one is the others' as well. `*asked`: in this process;
   then in any. */
MIRT__LIB mirt_status mirt__meet_others(mirt_strategy *strategy, mirt_status status, bool *asked);
/* At the end of a pass: an error of this process alone becomes known to the others. */
MIRT__LIB void mirt__leave_together(mirt_strategy *strategy, mirt_status status);

/* --- features.c --- */
/* What the frozen layers at the beginning of a model make of the samples of a data set, kept while mirt_fit goes over
   them again. */
typedef struct mirt__features mirt__features;
/* *out NULL: the model has no such layers, or they cannot be kept (which the log says). *budget: bytes, of which it
   takes its share; 0 or less: nothing is kept. */
MIRT__LIB mirt_status mirt__features_open(mirt_model *model, mirt_dataset *dataset, int64_t *budget, const char *what,
                                          mirt__features **out);
MIRT__LIB void mirt__features_close(mirt__features *features);
/* As those of the data set, whose place they take; the batches are of features, as this says. */
MIRT__LIB const mirt__data_spec *mirt__features_spec(const mirt__features *features);
MIRT__LIB mirt_status mirt__features_begin(mirt__features *features, int64_t epoch);
MIRT__LIB mirt_status mirt__features_next(mirt__features *features, mirt__batch *out);

/* --- feed.c --- */
/* Batches for a loop over steps: the data set's, or instead the features', with an eye on the time they take. While
   devices with memory of their own are at work on a step, the next batch is read and sent to them. */
typedef struct mirt__feed {
    mirt_model *model;
    mirt_dataset *dataset;
    mirt__features *features; /* or NULL */
    bool ahead;           /* it may do so */
    mirt_function *step;  /* under way */
    bool follows;         /* nothing runs on the devices or reads weights between the step under way and the next */
    bool held, prefetched;    /* the next batch was read; it was sent, too */
    mirt_status status;   /* of reading it, */
    mirt__error error;    /* which is told when its turn has come */
    mirt__batch batch;
} mirt__feed;
/* `ahead`: nobody minds that the data are one batch further than the steps. */
MIRT__LIB void mirt__feed_open(mirt__feed *feed, mirt_model *model, mirt_dataset *dataset, mirt__features *features,
                               bool ahead);
/* `replicas`: as of mirt__pass_data_begin. */
MIRT__LIB mirt_status mirt__feed_begin(mirt__feed *feed, int replicas, int64_t epoch);
MIRT__LIB mirt_status mirt__feed_next(mirt__feed *feed, mirt__batch *out);
/* mirt__function_step on the batch that came last; `more`: another one will be asked for. */
MIRT__LIB mirt_status mirt__feed_step(mirt__feed *feed, mirt_function *function, bool more);
/* Whether the step of the next batch is on the devices: then the loop takes it. */
MIRT__LIB bool mirt__feed_launched(const mirt__feed *feed);
/* At the end of a loop: takes a step that is still on the devices. */
MIRT__LIB void mirt__feed_close(mirt__feed *feed);

/* --- prediction.c --- */
/* A pass of the function of `kind` over a data set that is batched and prepared, or over its features (otherwise NULL).
   `take` gets the results of each batch. */
typedef struct mirt__pass {
    mirt_model *model;
    mirt_dataset *dataset;
    mirt__features *features;
    mirt__program_kind kind;
    bool ahead;    /* the next batch may be read before `take` */
    int64_t steps; /* 0: all of it */
    mirt_status (*take)(struct mirt__pass *pass, const mirt_function *function, const mirt__batch *batch);
    mirt__sums *sums;
    float *const *out;
    int64_t done, *counts;
    int classes;
} mirt__pass;
MIRT__LIB mirt_status mirt__pass_run(mirt__pass *pass);
/* Runs fn(arg), which goes through `dataset`, watched from the caller's thread; what a dead strategy leaves behind is
   marked. */
MIRT__LIB mirt_status mirt__watched_pass(const mirt_model *model, mirt_dataset *dataset, mirt_status (*fn)(void *arg),
                                         void *arg);
#define MIRT__USUAL_BATCH 32 /* of data sets without batches */
/* A batched form of `dataset`, ready for `kind` and marked as being read until mirt__unready; *view is its own. */
MIRT__LIB mirt_dataset *mirt__ready(mirt_model *model, mirt_dataset *dataset, mirt__program_kind kind,
                                    mirt_dataset **view);
/* After mirt__ready, whose result was `ready`, of the data set `given`. */
MIRT__LIB void mirt__unready(mirt_dataset *given, const mirt_dataset *ready, mirt_dataset *view);
/* The function of `kind`, with `data` as the current batch; NULL with the error set. */
MIRT__LIB mirt_function *mirt__begin_arrays(mirt_model *model, const mirt_data *data, mirt__program_kind kind,
                                            const char *caller);

/* --- evaluate.c --- */
/* As mirt__pass_run, of the metrics. */
MIRT__LIB mirt_status mirt__evaluate_pass(mirt_model *model, mirt_dataset *dataset, mirt__features *features,
                                          int64_t steps, mirt__sums *sums);

/* --- progress.c --- */
typedef struct mirt__progress {
    bool terminal;
    int columns; /* of the line that a shorter one overwrites */
    double last; /* when the line was last written */
} mirt__progress;
MIRT__LIB void mirt__progress_epoch(mirt__progress *progress, const mirt_model *model, int epoch, int epochs);
/* `done`: the epoch's last line, with validation. */
MIRT__LIB void mirt__progress_line(mirt__progress *progress, const mirt_model *model, const mirt_event *event,
                                   bool done);

#endif
