#ifndef MIRT__FIT_H
#define MIRT__FIT_H
/* One fit: what it was asked for and where it is. */
#include "../formats/safetensors.h"
#include "trainer.h"

typedef enum mirt__moment {
    MIRT__TRAIN_BEGIN,
    MIRT__TRAIN_END,
    MIRT__EPOCH_BEGIN,
    MIRT__EPOCH_END,
    MIRT__BATCH_BEGIN,
    MIRT__BATCH_END,
    MIRT__TEST_BEGIN,
    MIRT__TEST_END,
    MIRT__INTERRUPTED /* training ends in the middle of an epoch: for ready-made callbacks */
} mirt__moment;

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

/* --- fit_position.c --- */
/* Begins the next pass over the data. */
MIRT__LIB mirt_status mirt__fit_begin(mirt__fit *fit);
/* Begins the pass over the data that run.pass is the key of, behind its first run.passed batches. */
MIRT__LIB mirt_status mirt__fit_reopen(mirt__fit *fit);
/* Room for the logs of `need` epochs: for a usual number of epochs all of it at the beginning. */
MIRT__LIB mirt_status mirt__history_reserve(mirt__fit *fit, int need);

/* --- weight_file.c --- */
/* "adam/conv2d_kernel_momentum", as Keras names it. */
MIRT__LIB const char *mirt__slot_name(mirt__pool *pool, const mirt_model *model, int slot, const mirt__variable *v);
MIRT__LIB void mirt__tensor_of(const mirt__variable *v, const char *name, const mirt__real *values,
                               mirt__safetensor *out);
/* Whether the tensor has the variable's shape. */
MIRT__LIB bool mirt__load_fits(const mirt__safetensor *t, const mirt__variable *v);
/* Block 0 is the weights, on every device; the others are optimizer slots. */
MIRT__LIB void mirt__load_take(const mirt__safetensor *t, mirt_model *model, int block, int variable);
/* The tensor `name` with the variable's shape, or NULL with the error set. */
MIRT__LIB const mirt__safetensor *mirt__load_find(const mirt__safetensors *file, const char *name,
                                                  const mirt__variable *v);
/* Finds every tensor of the weights and of `slots` slots, and takes all of them over if `take` and all are there;
   otherwise nothing changes. */
MIRT__LIB mirt_status mirt__load_blocks(const mirt__safetensors *file, mirt_model *model, int slots, bool take);
/* Whatever is wrong with `part` of what a file describes is wrong with the file. */
MIRT__LIB mirt_status mirt__load_bad(const mirt__safetensors *file, const char *part);

/* --- load_training.c --- */
/* Compiles a model that has just been recorded, and loads its weights and the state of training. */
MIRT__LIB mirt_status mirt__load_compiled(mirt_model *model, const mirt__safetensors *file, const mirt__json *compile,
                                          const mirt__json *training);

/* --- run_state.c --- */
#define MIRT__STATE_FIELDS 8     /* most members of a ready-made callback that checkpoints keep */
#define MIRT__CALLBACK_LABEL 96  /* bytes of a callback's name in a checkpoint */

typedef struct mirt__state_value {
    double number;
    int64_t integer;
    bool truth;
    char *text; /* allocated, or NULL */
} mirt__state_value;
/* The state of a ready-made callback, in the order of its fields. */
typedef struct mirt__ready_state {
    mirt__state_value value[MIRT__STATE_FIELDS];
} mirt__ready_state;

/* What a checkpoint holds of one callback of the fit. */
typedef struct mirt__loaded_callback {
    const char *text;         /* its state; NULL: there is none */
    mirt__ready_state state;  /* of a ready-made one, parsed */
    const mirt__safetensor *const *kept; /* the weights it kept, one tensor for each of the model's; or NULL */
} mirt__loaded_callback;

/* What a checkpoint holds of a run, checked against this fit's model, data and callbacks. Points into the file and into
   `pool`. */
typedef struct mirt__run_state {
    mirt__fit *fit;
    const mirt__safetensors *file;
    mirt__pool pool;
    const mirt__json *json;  /* the member "run" */
    mirt__position position;
    int64_t step, epoch;     /* the model's counters */
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
MIRT__LIB mirt_status mirt__run_parse(mirt__run_state *state, mirt__fit *fit, const mirt__safetensors *file);
MIRT__LIB void mirt__run_state_free(mirt__run_state *state);
/* Sets the members that have to be the same when a run is resumed. */
MIRT__LIB void mirt__run_describe(const mirt__fit *fit, mirt__position *run);
MIRT__LIB void mirt__run_write_numbers(mirt__position *run, mirt__text *out);
MIRT__LIB int mirt__num_callbacks(const mirt__fit *fit);
/* "early_stopping", and for the next one of that name "early_stopping_1". */
MIRT__LIB const char *mirt__callback_label(const mirt__fit *fit, int index, char out[MIRT__CALLBACK_LABEL]);
/* "callbacks/early_stopping/conv2d/kernel", or NULL. */
MIRT__LIB const char *mirt__kept_name(mirt__pool *pool, const char *label, const mirt__variable *v);

/* --- run_write.c --- */
/* What a checkpoint holds beside the model: a member "run" of the metadata "training", and tensors, of which there are
   at most mirt__run_most_tensors, appended to tensor[*count]. */
MIRT__LIB int mirt__run_most_tensors(const mirt__fit *fit);
MIRT__LIB mirt_status mirt__run_write(mirt__fit *fit, mirt__pool *pool, mirt__text *out, mirt__safetensor *tensor,
                                      int *count);
/* A time for a file, later than all before. */
MIRT__LIB int64_t mirt__run_saved(mirt__fit *fit);

/* --- resume.c --- */
/* Goes on from an open checkpoint: parses all of it (mirt__run_parse), then applies it. */
MIRT__LIB mirt_status mirt__fit_resume_file(mirt__fit *fit, const mirt__safetensors *file);
/* Goes on from the checkpoint that the fit was asked to, if it was and there is one. Nothing is changed after a
   failure: of callbacks whose states cannot be told apart, too. */
MIRT__LIB mirt_status mirt__fit_resume(mirt__fit *fit);

/* --- checkpoint.c --- */
/* Opens a file that is whole: as mirt__safetensors_open, and MIRT_E_FORMAT for one without checksums, of which nothing
   tells that. */
MIRT__LIB mirt_status mirt__checkpoint_open(mirt__safetensors *file, const char *path);
/* When the newest of a directory was written, whole or not; 0: there is none that can be read. MIRT_E_NOMEM */
MIRT__LIB mirt_status mirt__checkpoint_newest(const char *directory, int64_t *saved);
/* Opens the newest valid checkpoint in a directory, and says which: *found false: there is none. `runs`: of those that
   a fit can go on from; where all of these were refused it fails, naming the newest. */
MIRT__LIB mirt_status mirt__checkpoint_latest(const mirt_strategy *strategy, const char *directory, bool runs,
                                              mirt__safetensors *file, bool *found);

#endif
