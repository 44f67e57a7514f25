#ifndef MIRT__TRAINER_H
#define MIRT__TRAINER_H
/* What a model runs: its programs, the memory they work on, and the state of the step under way. */
#include "../data/data.h"
#include "../graph/program.h"
#include "../nn/model.h"

/* io slots of every program */
enum { MIRT__IO_X, MIRT__IO_LABELS, MIRT__IO_OUTPUT, MIRT__IO_LOSS }; /* and behind the loss, the metrics */

typedef enum mirt__program_kind { MIRT__TRAIN, MIRT__EVALUATE, MIRT__PREDICT, MIRT__PROGRAM_KINDS } mirt__program_kind;
typedef enum mirt__step_stage { MIRT__IDLE, MIRT__SCATTERED, MIRT__GRADIENTS, MIRT__REDUCED } mirt__step_stage;

/* What is asked of a trainer: the data's dtype and the largest global batch of each program; 0: not needed. */
typedef struct mirt__needs {
    mirt_dtype x_dtype;
    int64_t batch[MIRT__PROGRAM_KINDS];
} mirt__needs;

/* Bytes of the parts of a device's block, in this order. */
typedef struct mirt__layout {
    size_t gradients; /* slots * weight bytes */
    size_t arena, shared, scratch_per_thread;
    size_t total;
    size_t host; /* labels and results of a global batch */
} mirt__layout;

struct mirt__trainer {
    mirt__needs needs; /* what it was made for */
    mirt__program program[MIRT__PROGRAM_KINDS];
    mirt__layout layout;
    char *block[MIRT__MAX_DEVICES];
    char *host;
    char *labels;
    mirt__real *result[1 + MIRT_MAX_METRICS]; /* per-sample loss and metrics of the global batch */

    mirt__step_stage stage;
    int64_t rows;    /* of the global batch under way */
    const char *x;   /* its samples */
    char *output;    /* where predictions go */
    double rate;     /* asked for on the caller's thread: schedules are the user's code */
};

/* Sums over samples in their order. */
typedef struct mirt__sums {
    double loss, metric[MIRT_MAX_METRICS];
    int64_t count;
} mirt__sums;

/* --- trainer.c --- */
/* Makes programs and memory for `needs` unless they are there; the only place that allocates. */
MIRT__LIB mirt_status mirt__trainer_prepare(mirt_model *model, const mirt__needs *needs);
/* Programs and layout without memory, for plans and pictures; free with mirt__trainer_dry_free. */
MIRT__LIB mirt__trainer *mirt__trainer_dry(mirt_model *model, const mirt__needs *needs);
MIRT__LIB void mirt__trainer_dry_free(mirt__trainer *trainer);
/* The gradient buffer `slot` of `device`. */
MIRT__LIB mirt__real *mirt__gradient_at(const mirt_model *model, int device, int slot);
MIRT__LIB mirt_status mirt__need_compiled(const mirt_model *model, const char *caller);

/* --- step.c --- */
/* Checks labels and shapes of a global batch and makes it the one under way; `index` may be NULL. */
MIRT__LIB mirt_status mirt__begin_batch(mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch, bool labels);
/* grad, all-reduce and apply in one pass over the devices. */
MIRT__LIB mirt_status mirt__run_train(mirt_model *model);
MIRT__LIB void mirt__run_forward(mirt_model *model, mirt__program_kind kind);
/* Adds the results of the batch under way to `sums`; returns the batch's own loss. */
MIRT__LIB double mirt__add_results(const mirt_model *model, mirt__sums *sums);
MIRT__LIB void mirt__sums_to_logs(const mirt_model *model, const mirt__sums *sums, bool validation, mirt_logs *logs);
/* Whether data of this description fits the model's input (and labels). */
MIRT__LIB mirt_status mirt__check_data(const mirt_model *model, const mirt__data_spec *spec, bool labels);
MIRT__LIB void mirt__logs_add(mirt_logs *logs, const char *name, double value);
/* How and which elements of the weight block the device sums and updates in the step under way. */
MIRT__LIB void mirt__device_exchange(const mirt_model *model, int device, mirt__exchange *out);
MIRT__LIB void mirt__device_range(const mirt_model *model, int device, int64_t *begin, int64_t *end);

/* --- evaluate.c --- */
/* `dataset` itself when it is batched, otherwise a batching view of it (batch 0: of 32), also put into
   *view, to be destroyed after use. */
MIRT__LIB mirt_dataset *mirt__batched(mirt_dataset *dataset, int64_t batch, bool shuffle, mirt_dataset **view);
/* Rows of the largest batch of a batched data set. */
MIRT__LIB int64_t mirt__largest_batch(const mirt_dataset *dataset);
/* One pass over `dataset`, already batched and prepared for. */
MIRT__LIB mirt_status mirt__evaluate_pass(mirt_model *model, mirt_dataset *dataset, mirt__sums *sums);

/* --- progress.c --- */
typedef struct mirt__progress {
    bool terminal;
    double last; /* when the line was last written */
} mirt__progress;
MIRT__LIB void mirt__progress_epoch(mirt__progress *progress, const mirt_model *model, int epoch, int epochs);
/* `done`: the epoch's last line, with validation. */
MIRT__LIB void mirt__progress_line(mirt__progress *progress, const mirt_model *model, const mirt_event *event, bool done);

#endif
