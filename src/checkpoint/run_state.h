#ifndef MIRT__RUN_STATE_H
#define MIRT__RUN_STATE_H
/* What checkpoints hold of a run, and how it is resumed. */
#include "../function/fit_program.h"
#include "checkpoint.h"
#include "readymade.h"

/* Where a fit is, and what it is of: all of it is in its checkpoints. */
typedef struct mirt__position {
    int64_t replicas, batch, joined, samples, steps_per_epoch; /* what makes it the same run; joined: by
                                                                  mirt_accumulate */
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

/* A run: a fit as its checkpoints see it. */
typedef struct mirt__training_run {
    mirt_model *model;
    const mirt_fit_desc *desc;
    mirt_dataset *train;
    mirt_event event;
    mirt__sums sums;
    mirt__position at;
    double *sums_loaded; /* of the epoch that a checkpoint was in the middle of, or NULL */
    bool trained;        /* all batches of this epoch are: its samples and seconds are among those of the run */
    bool stop;           /* training ends with the step or epoch under way */
    /* Continues the pass over the data where `at` says; the data may be a fit's features. */
    mirt_status (*reopen)(struct mirt__training_run *run);
} mirt__training_run;

/* --- run_state.c --- */
/* Images that the model's run was trained on so far, those of this epoch included; with parameter servers those of this
   process until the epoch ends. */
MIRT__LIB int64_t mirt__run_images(const mirt_model *model);
/* What a checkpoint holds of one callback of the fit. */
typedef struct mirt__loaded_callback {
    const char *text;         /* its state; NULL: there is none */
    mirt__ready_state state;  /* of a ready-made one, parsed */
    const mirt__safetensor *const *kept; /* the weights it kept, one tensor for each of the model's; or NULL */
} mirt__loaded_callback;

/* What a checkpoint holds of a run, checked against this fit's model, data and callbacks. Points into the file and into
   `pool`. */
typedef struct mirt__run_state {
    mirt__training_run *run;
    const mirt__safetensors *file;
    mirt__pool pool;
    const mirt__json *json;  /* the member "run" */
    mirt__position position;
    int64_t step, epoch;     /* the model's counters */
    bool swapped;            /* as mirt_model.swapped */
    int epochs, columns;     /* of the history: a row for each epoch, */
    const unsigned char *history; /* doubles, not aligned; NULL without epochs */
    const char *log_name[MIRT_MAX_LOGS]; /* the model's names of the columns after the first */
    int num_sums;
    const unsigned char *sums; /* doubles, not aligned; NULL between epochs */
    mirt__loaded_callback callback[MIRT_MAX_CALLBACKS];
    size_t unknown;          /* states of callbacks that this fit does not have */
} mirt__run_state;

/* Parses and checks the whole state of a run, and changes nothing but *state, which is freed after a failure too.
   Checksums are not its business: `file` may come from mirt__safetensors_open_memory. MIRT_E_FORMAT: no run writes
   this; MIRT_E_STATE: it is of another run. */
MIRT__LIB mirt_status mirt__run_parse(mirt__run_state *state, mirt__training_run *run, const mirt__safetensors *file);
MIRT__LIB void mirt__run_state_free(mirt__run_state *state);
/* Sets the members that have to be the same when a run is resumed. */
MIRT__LIB void mirt__run_describe(const mirt__training_run *run, mirt__position *at);
MIRT__LIB void mirt__run_write_numbers(mirt__position *at, mirt__text *out);
MIRT__LIB int mirt__num_callbacks(const mirt__training_run *run);
/* "early_stopping", and for the next one of that name "early_stopping_1". */
MIRT__LIB mirt__phrase mirt__callback_label(const mirt__training_run *run, int index);
/* "callbacks/early_stopping/conv2d/kernel", or NULL. */
MIRT__LIB const char *mirt__kept_name(mirt__pool *pool, const char *label, const mirt__variable *v);

/* --- run_write.c --- */
/* A file that is being made: its tensors, and pairs of metadata, which point into these texts. */
typedef struct mirt__saving {
    mirt__pool pool;
    mirt__safetensor *tensor;
    int count, pairs;
    const char *pair[16];
    mirt__text architecture, compile, training, classes;
} mirt__saving;
/* What a checkpoint holds beside the model: a member "run" of the metadata "training", and tensors, of which there are
   at most mirt__run_most_tensors. */
MIRT__LIB int mirt__run_most_tensors(const mirt__training_run *run);
MIRT__LIB mirt_status mirt__run_write(mirt__training_run *run, mirt__saving *out);
/* A time for a file, later than all before. */
MIRT__LIB int64_t mirt__run_saved(mirt__training_run *run);

/* --- history.c --- */
/* Room for the logs of `need` epochs: for a usual number of epochs all of it at the beginning. */
MIRT__LIB mirt_status mirt__history_reserve(mirt__training_run *run, int need);

/* --- resume_together.c --- */
/* Where processes train together: what the first one has found and opened, or why it could not, becomes that of all. */
MIRT__LIB mirt_status mirt__resume_together(mirt_strategy *strategy, mirt_status status, mirt__safetensors *file,
                                            bool *found);

/* --- resume.c --- */
/* Goes on from the checkpoint that the fit was asked to, if it was and there is one. Nothing is changed after a
   failure: of callbacks whose states cannot be told apart, too. */
MIRT__LIB mirt_status mirt__run_resume(mirt__training_run *run);

#endif
