#ifndef MIRT__FIT_PROGRAM_H
#define MIRT__FIT_PROGRAM_H
/* The functions that fit, evaluate and predict run, and sums of their results. */
#include "function.h"

typedef enum mirt__program_kind {
    MIRT__TRAIN, MIRT__EVALUATE, MIRT__PREDICT, MIRT__FEATURES, MIRT__PROGRAM_KINDS
} mirt__program_kind;

/* Sums over samples in their order. */
typedef struct mirt__sums {
    mirt__program_kind kind; /* of the function whose results they are */
    double loss;
    double output_loss[MIRT_MAX_OUTPUTS];
    int64_t count;
    double *metric; /* all metrics' sums, one after the other: the trainer's */
    int num_metric;
} mirt__sums;

struct mirt__trainer {
    const mirt__data_spec *asked; /* while a plan for these data is looked for, or NULL */
    mirt_function *function[MIRT__PROGRAM_KINDS];
    float *class_weights; /* of the training function */
    int num_class_weights;
    double *metric[2];    /* sums for training and evaluation */
    mirt_tensor *cut[MIRT_MAX_INPUTS]; /* of the model: its features, where data sets are of these (spec.features) */
    mirt__stretch features;            /* this list */
    mirt__data_cost cost;              /* of the samples last trained on */
};

/* --- fit_program.c --- */
MIRT__TRAINING_LIB mirt_status mirt__need_compiled(const mirt_model *model, const char *caller);
/* Inputs and outputs are there, which is enough to predict. */
MIRT__LIB mirt_status mirt__need_recorded(const mirt_model *model, const char *caller);
/* Whether data of this description fits the model's inputs (and labels). */
MIRT__LIB mirt_status mirt__check_data(const mirt_model *model, const mirt__data_spec *spec, bool labels);
/* What a program is recorded for, and the places of its results. */
typedef struct mirt__fit_body {
    mirt__program_kind kind;
    const float *class_weights;
    int num_class_weights;
    int terms_result, metric_result[MIRT__MAX_METRIC_USES];
} mirt__fit_body;
/* `fit`: for its class weights, or NULL. */
MIRT__LIB void mirt__fit_body_set(mirt__fit_body *body, mirt__program_kind kind, const mirt_fit_desc *fit);
/* The function of body->kind for data like `spec` with batches of up to `most` samples, without memory. */
MIRT__LIB mirt_function *mirt__trainer_record(mirt_model *model, const mirt__data_spec *spec, int64_t most,
                                              mirt__fit_body *body);
/* The same without class weights, for plans and pictures; free with mirt__function_free. */
MIRT__LIB mirt_function *mirt__trainer_dry(mirt_model *model, mirt__program_kind kind, const mirt__data_spec *spec,
                                           int64_t most);

/* --- record_losses.c --- */
/* Losses and metrics of the outputs of f's model. */
MIRT__LIB bool mirt__record_losses(mirt_function *f, mirt__fit_body *body, mirt_tensor **output);

/* --- sums.c --- */
/* How many sums a metric of the function keeps. */
MIRT__LIB int mirt__sums_of(const mirt_function *function, int metric);
MIRT__LIB void mirt__sums_start(mirt_model *model, mirt__program_kind kind, mirt__sums *sums);
/* Adds the results of the batch under way to `sums`; returns the batch's own loss. */
MIRT__LIB double mirt__add_results(const mirt_function *function, mirt__sums *sums);
/* The sums as 1 + MIRT_MAX_OUTPUTS + num_metric numbers, without the count, and back. */
MIRT__LIB void mirt__sums_put(const mirt__sums *sums, double *out);
MIRT__LIB void mirt__sums_get(mirt__sums *sums, const double *from);
MIRT__LIB void mirt__sums_to_logs(const mirt_model *model, const mirt__sums *sums, bool validation, mirt_logs *logs);
MIRT__LIB void mirt__logs_add(mirt_logs *logs, const char *name, double value);
/* Names of the logs that a fit of this model has at the end of an epoch; with those of validation. Returns how many. */
MIRT__LIB int mirt__log_names(const mirt_model *model, bool validation, const char *names[MIRT_MAX_LOGS]);

#endif
