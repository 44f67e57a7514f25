#ifndef MIRT__FIT_H
#define MIRT__FIT_H
/* One fit: what it was asked for and where it is. */
#include "../formats/safetensors.h"
#include "trainer.h"

typedef enum mirt__moment {
    MIRT__TRAIN_BEGIN, MIRT__TRAIN_END, MIRT__EPOCH_BEGIN, MIRT__EPOCH_END, MIRT__BATCH_BEGIN, MIRT__BATCH_END, MIRT__TEST_BEGIN, MIRT__TEST_END,
    MIRT__INTERRUPTED /* training ends in the middle of an epoch: for ready-made callbacks */
} mirt__moment;

/* Where a fit is, and what it is of: all of it is in its checkpoints. */
typedef struct mirt__position {
    int64_t replicas, batch, joined, samples, steps_per_epoch; /* what makes it the same run; joined: by mirt_accumulate */
    int64_t epoch;   /* under way, or the next one */
    int64_t opened;  /* 1: epoch_begin has been told of it, */
    int64_t done;    /* and so many of its batches are trained on */
    int64_t begun;   /* 1: the data set is in the middle of a pass, */
    int64_t pass;    /* whose order has this key, */
    int64_t passed;  /* and so many of its batches are trained on */
    int64_t first_pass; /* the first key of all */
    int64_t steps, images, count; /* images: of whole epochs; count: samples in the sums of this one */
    int64_t rate_set;
    int64_t saved;   /* microseconds since 1970, and always later than the checkpoint before */
    int64_t scale_steps; /* of mixed_float16, with its scale: */
    double rate, seconds, input_seconds, epoch_seconds, epoch_input_seconds, loss_scale;
} mirt__position;

typedef struct mirt__fit {
    mirt_model *model;
    const mirt_fit_desc *desc;
    mirt_dataset *train, *validation;
    mirt__features *features[2]; /* of these two, or NULL */
    mirt_event event;
    mirt_logs logs;
    mirt__sums sums;
    mirt__feed feed;         /* of the epoch under way */
    mirt__progress progress; /* of the line that it shows without a callback */
    bool shows;
    mirt__position run;
    double *sums_loaded; /* of the epoch that a checkpoint was in the middle of, or NULL */
    bool stop, warned;
    bool asked;            /* to stop, by mirt_request_stop */
    bool trained;          /* all batches of this epoch are: its samples and seconds are among those of the run */
    int told;              /* callbacks whose train_begin was called */
    mirt_status status;    /* of a callback that failed, */
    mirt__error failure;   /* and its error */
} mirt__fit;

/* --- fit.c --- */
/* What the user's schedule says of `epoch`. */
MIRT__LIB float mirt__scheduled_rate(mirt_epoch_schedule_fn schedule, int epoch, const mirt_model *model, void *user);
/* Begins the pass over the data that run.pass is the key of, behind its first run.passed batches. */
MIRT__LIB mirt_status mirt__fit_reopen(mirt__fit *fit);
/* Room for the logs of `need` epochs: for a usual number of epochs all of it at the beginning. */
MIRT__LIB mirt_status mirt__history_reserve(mirt__fit *fit, int need);

/* --- save.c --- */
MIRT__LIB void mirt__tensor_of(const mirt__variable *v, const char *name, const mirt__real *values, mirt__safetensor *out);
/* The tensor `name` with the variable's shape, or NULL with the error set. */
MIRT__LIB const mirt__safetensor *mirt__load_find(const mirt__safetensors *file, const char *name, const mirt__variable *v);
/* Finds every tensor of the weights and of `slots` slots, and takes it over if `take`: without, it
   checks that all is there before anything changes. */
MIRT__LIB mirt_status mirt__load_blocks(const mirt__safetensors *file, mirt_model *model, int slots, bool take);

/* --- resume.c --- */
/* What a checkpoint holds beside the model: a member "run" of the metadata "training", and tensors, of which there are at most
   mirt__run_most_tensors, appended to tensor[*count]. */
MIRT__LIB int mirt__run_most_tensors(const mirt__fit *fit);
MIRT__LIB mirt_status mirt__run_write(mirt__fit *fit, mirt__pool *pool, mirt__text *out, mirt__safetensor *tensor, int *count);
/* A time for a file, later than all before. */
MIRT__LIB int64_t mirt__run_saved(mirt__fit *fit);
/* Goes on from the checkpoint that the fit was asked to, if it was and there is one. Nothing is changed after a failure: of callbacks
   whose states cannot be told apart, too. */
MIRT__LIB mirt_status mirt__fit_resume(mirt__fit *fit);

/* --- checkpoint.c --- */
/* When the newest of a directory was written, whole or not; 0: there is none that can be read. MIRT_E_NOMEM */
MIRT__LIB mirt_status mirt__checkpoint_newest(const char *directory, int64_t *saved);
/* Opens the newest valid checkpoint in a directory, and says which: *found false: there is none. `runs`: of those that a fit can go on from. */
MIRT__LIB mirt_status mirt__checkpoint_latest(const mirt_strategy *strategy, const char *directory, bool runs, mirt__safetensors *file, bool *found);

#endif
