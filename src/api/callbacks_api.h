#ifndef MIRT__CALLBACKS_API_H
#define MIRT__CALLBACKS_API_H
/* Callbacks and logs of training. */

#include "compile_api.h"

MIRT__BEGIN_C

/* >>callbacks ----------------------------------------------------------------------------- */
/* Threads: all functions on a model are for the one thread at a time that has its strategy; a history is read
   by that thread. Functions without either among their arguments: any thread at any time. */

/* Named numbers of a moment in training: "loss", "accuracy", "val_loss", "learning_rate". The names are the model's and
   live as long. */
#define MIRT_MAX_LOGS 88
typedef struct mirt_logs {
    int count;
    const char *name[MIRT_MAX_LOGS];
    double value[MIRT_MAX_LOGS];
} mirt_logs;

/* Staleness of gradients at parameter servers: updates by other workers between a worker's pull and its push. Each
   server counts those of its own range. */
enum { MIRT_STALENESS_BINS = 32 };
typedef struct mirt_staleness {
    int64_t updates; /* of all servers; 0: there was none */
    int64_t sum, max; /* sum / updates is the mean */
    int64_t histogram[MIRT_STALENESS_BINS]; /* updates with this staleness; the last: with this or more */
} mirt_staleness;

/* What a callback sees. `epoch`, `batch` and `step` are 0-based; `step` counts since the start of
   training, over all fits. */
typedef struct mirt_event {
    mirt_model *model;
    int epoch, epochs;     /* 0-based epoch, and the number fit was asked for */
    int64_t batch, batches;
    int64_t batch_size;    /* samples of a global batch; the last one of an epoch may have fewer */
    int64_t step;
    const mirt_logs *logs; /* batch end: so far in this epoch, and "batch_loss"; test and epoch end: with validation */
    double seconds;        /* since the epoch began, */
    double input_seconds;  /* and those of them spent waiting for batches */
    const mirt_dataset *validation; /* of this fit, or NULL */
    int initial_epoch;     /* of this fit: where it began, before any resuming */
    bool resumed;          /* it resumes from a checkpoint; states have been loaded before train_begin */
    const char *failure;   /* train end: what went wrong, if fit is going to return NULL; otherwise NULL */
    const mirt_staleness *staleness; /* epoch end: of this epoch; NULL: there are no parameter servers */
} mirt_event;

/* What a function of a callback returns when the callback itself failed, such as on a full disk: fit then returns NULL
   with the error that it has left; with one that names the callback (MIRT_E_CALLBACK) if it has left none. */
#define MIRT_CALLBACK_FAILED (-2147483647 - 1)

/* A row of functions, each may be NULL; a non-zero return ends training cleanly, after which fit returns what it has.
   Called from the thread that called fit, in the order of the list. Keras: Callback, LambdaCallback. */
typedef struct mirt_callback {
    void *user;
    int (*train_begin)(const mirt_event *event, void *user);
    int (*train_end)(const mirt_event *event, void *user);
    int (*epoch_begin)(const mirt_event *event, void *user);
    int (*epoch_end)(const mirt_event *event, void *user);
    int (*batch_begin)(const mirt_event *event, void *user);
    int (*batch_end)(const mirt_event *event, void *user);
    int (*test_begin)(const mirt_event *event, void *user); /* around validation */
    int (*test_end)(const mirt_event *event, void *user);
    /* What a checkpoint keeps of it, under its name: save_state writes at most `capacity` bytes of UTF-8 text with its
       final 0 and returns how many characters there are, as snprintf does; load_state is given that text before
       train_begin of a fit that resumes from the checkpoint (non-zero: the text is invalid, which is an error). NULL:
       it has no state. Names have at most 80 bytes of UTF-8; of several with one name the second is called NAME_1 in
       the file, and so on. */
    const char *name;
    size_t (*save_state)(char *text, size_t capacity, void *user);
    int (*load_state)(const char *text, void *user);
    void (*destroy)(void *user); /* by mirt_callback_destroy */
} mirt_callback;
#define MIRT_MAX_CALLBACKS 16

#ifndef MIRRORTRAIN_NO_TRAIN
/* Frees a ready-made callback, or calls destroy of another; no fit may be using it. NULL is allowed. Ready-made ones
   below are made for one fit after the other; descriptions are copied, all zeros (or NULL) mean Keras's defaults; NULL
   on errors: MIRT_E_INVALID, MIRT_E_NOMEM. What they can only know in a fit, as whether there is a log of that name, is
   an error of the fit. */
MIRT_API void mirt_callback_destroy(mirt_callback *callback);
#endif

/* What happens to a step that has, or would write, a NaN or infinite value. Every step is checked for its loss, for
   gradients (without clipping those above 1e17 count as well, or 1.8e19 divided by the replicas if that is less: the
   squares of sums of smaller ones are finite) and for new values of weights that are not trained, such as moving
   statistics; the first step also for the weights and the optimizer's state. This reads each gradient and new value
   once more. With mixed_float16 the loss scale takes care of gradients. The step is run once more to find where the
   first such value comes from: the log names replica and layer, weights or data. Stop: the step is not applied, so
   weights and optimizer state are those before it, and training ends. Warn: it is applied, and the log says so once. */
typedef enum mirt_nan_policy { MIRT_NAN_STOP = 0, MIRT_NAN_WARN, MIRT_NAN_OFF } mirt_nan_policy;
#ifndef MIRRORTRAIN_NO_TRAIN
/* Writes into `path`, which holds `capacity` bytes, the newest checkpoint in a directory (not below it) that is whole,
   whatever its name: all checksums are verified. Damaged ones are named in the log of `strategy` (NULL: of nobody) and
   passed over. Keras: tf.train.latest_checkpoint. MIRT_E_NOT_FOUND: there is none, MIRT_E_IO, MIRT_E_SHAPE: too little
   room. Thread: the strategy's. */
MIRT_API mirt_status mirt_latest_checkpoint(const mirt_strategy *strategy, const char *directory, char *path,
                                            size_t capacity);
#endif

/* The learning rate of 0-based `epoch`, given the rate in force. Keras: LearningRateScheduler. */
typedef float (*mirt_epoch_schedule_fn)(int epoch, float learning_rate, void *user);

#ifndef MIRRORTRAIN_NO_CALLBACKS
/* Ends training when a log has not become better for `patience` epochs. Keras: EarlyStopping. */
typedef struct mirt_early_stopping_desc {
    const char *monitor;   /* default "val_loss" */
    mirt_mode mode;        /* AUTO: the direction that the metric declares; losses are minimized. A log without one,
                              such as a custom metric whose `direction` is not set, is an error of the fit. Also for the
                              callbacks below */
    double min_delta;      /* what is better by no more than this is not better */
    int patience;
    bool has_baseline;     /* an epoch counts as better only if it is better than `baseline` too */
    double baseline;
    bool restore_best_weights; /* of the best epoch, when training ends */
    int start_from_epoch;  /* epochs before this are not looked at */
} mirt_early_stopping_desc;
MIRT_API mirt_callback *mirt_early_stopping(const mirt_early_stopping_desc *desc);

/* Keras: TerminateOnNaN. */
MIRT_API mirt_callback *mirt_terminate_on_nan(mirt_nan_policy policy);

/* Validation uses the averages of the weights (mirt_optimizer.use_ema). With swap_on_epoch callbacks after this one and
   checkpoints of whole epochs do, too; a fit that resumes from such a file continues from the weights themselves, which
   a fit that fails leaves as well. Keras: SwapEMAWeights. Errors of the fit: MIRT_E_STATE (no use_ema), MIRT_E_INVALID
   (with average_every, where each process has its own averages). */
MIRT_API mirt_callback *mirt_swap_ema_weights(bool swap_on_epoch);

/* Writes checkpoints: files as mirt_save writes them and what a fit needs to resume (mirt_fit_desc.resume), each
   atomically and when all callbacks have seen the moment. Keras: ModelCheckpoint. */
typedef struct mirt_model_checkpoint_desc {
    /* "ckpt_{epoch}", "run/{step:08d}-{val_loss:.2f}.safetensors": epoch counts from 1, step the training steps done;
       any log; printf's widths and precisions with d, f, e or g; "{{" is a brace. Directories are made. */
    const char *path;
    const char *monitor;   /* of best_only; default "val_loss" */
    mirt_mode mode;
    bool best_only;        /* when `monitor` is the best so far */
    bool weights_only;     /* weights alone, from which no fit can resume */
    int64_t every_steps;   /* after every n-th step of training; 0: after every epoch. Keras: save_freq */
    int keep;              /* so many files written by it; those before are removed. 0: all */
    bool at_end;           /* with every_steps, or where training ends in the middle of an epoch: also a last one, so
                              that nothing is lost; a fit that resumes from it finishes that epoch. Without, the
                              checkpoint of an interrupted epoch counts as that of a whole one */
} mirt_model_checkpoint_desc;
MIRT_API mirt_callback *mirt_model_checkpoint(const mirt_model_checkpoint_desc *desc);

/* Interrupted fits resume: keeps one checkpoint in `directory`, from which the next fit with this callback resumes;
   removes it when a fit ends without an error. Keras: BackupAndRestore. */
typedef struct mirt_backup_desc {
    const char *directory;
    int64_t every_steps;   /* 0: after every epoch */
    bool keep;             /* do not remove it */
} mirt_backup_desc;
MIRT_API mirt_callback *mirt_backup_and_restore(const mirt_backup_desc *desc);

/* Multiplies the learning rate by `factor` when a log has not become better for `patience` epochs. Keras:
   ReduceLROnPlateau. */
typedef struct mirt_reduce_lr_desc {
    const char *monitor;   /* default "val_loss" */
    mirt_mode mode;
    double factor;         /* below 1; default 0.1 */
    int patience;          /* default 10 */
    double min_delta;      /* default 1e-4; negative: 0 */
    int cooldown;          /* epochs after a reduction in which none is counted */
    double min_rate;       /* it ends there. Keras: min_lr */
} mirt_reduce_lr_desc;
MIRT_API mirt_callback *mirt_reduce_lr_on_plateau(const mirt_reduce_lr_desc *desc);

/* Asks `schedule` at the beginning of every epoch; mirt_fit_desc.learning_rate is the short form. */
MIRT_API mirt_callback *mirt_learning_rate_scheduler(mirt_epoch_schedule_fn schedule, void *user);

/* The line of progress that fit shows in any case, unless told no_progress; of one in its list it shows that alone,
   whose numbers are those of its place in the list. Keras: ProgbarLogger. */
MIRT_API mirt_callback *mirt_progbar_logger(void);

/* Ready-made callbacks that write files, in directories that they make. What cannot be written ends fit with an error
   that names the file. A run that resumes from a checkpoint continues its files as they were at the checkpoint: later
   lines are removed. */

/* A line of numbers after every epoch: "epoch", 0-based, and the logs in the order of their names. Keras: CSVLogger. */
typedef struct mirt_csv_logger_desc {
    const char *path;
    char separator; /* default ',' */
    bool append;    /* to a file whose first line names these columns; otherwise it begins anew */
} mirt_csv_logger_desc;
MIRT_API mirt_callback *mirt_csv_logger(const mirt_csv_logger_desc *desc);

/* A line of JSON for whatever happens: {"event": "begin", ...} with the model, its compilation, strategy, environment
   and, by name, the direction ("min", "max") of each log and whether it is a share from 0 to 1; "step"; "epoch" with
   all logs and "use": for each device of this process the shares of the time since the last such entry that it was busy
   and waited for input, its samples and memory, and for a GPU utilization, memory and power as NVIDIA's driver says
   (NVML, loaded if it is there); "use", the same every 10 seconds within an epoch, if there are lines for steps;
   "timing"; "end" with "status": finished, stopped (before the last epoch) or failed; "resume", where a run was
   resumed. */
typedef struct mirt_json_logger_desc {
    const char *path;
    bool append;
    int64_t steps;  /* a line for every n-th step; 0: for none */
} mirt_json_logger_desc;
MIRT_API mirt_callback *mirt_json_logger(const mirt_json_logger_desc *desc);

/* Event files for TensorBoard, below log_dir: train/ with "epoch_loss", "epoch_learning_rate" and the like, and the
   model as a graph; in train/ over steps, too, "device_busy/cpu:0", "device_input_wait/...", "device_memory/..." and
   "process_memory" in bytes, and of GPUs "driver_utilization/...", "driver_memory/...", "driver_watts/..." (see
   mirt_json_logger); validation/ with "epoch_loss" and, over steps, "evaluation_loss_vs_iterations"; in log_dir itself
   the hyper-parameters. Keras: TensorBoard. */
typedef struct mirt_tensorboard_desc {
    const char *log_dir; /* default "logs" */
    int64_t update_freq; /* besides epochs, every n-th step: "batch_loss" (so far in the epoch, as Keras has it) and the
                            other logs; 0: epochs alone */
    int histogram_freq;  /* of the weights, after every n-th epoch; 0: none */
    bool write_images;   /* and pictures of them: least is black, largest white; of convolutions a sheet of kernels */
    bool no_graph;
} mirt_tensorboard_desc;
MIRT_API mirt_callback *mirt_tensorboard(const mirt_tensorboard_desc *desc);

/* Event files of a custom loop. Keras and TensorFlow: tf.summary.create_file_writer, scalar, text, histogram, image.
   Threads: one at a time per writer. Everything is in the file when a call returns;
   errors name it (MIRT_E_IO and the like, MIRT_E_INVALID: nothing to write). */
typedef struct mirt_event_writer mirt_event_writer;
MIRT_API mirt_event_writer *mirt_event_writer_create(const char *log_dir);
MIRT_API mirt_status mirt_write_scalar(mirt_event_writer *writer, const char *tag, double value, int64_t step);
MIRT_API mirt_status mirt_write_text(mirt_event_writer *writer, const char *tag, const char *text, int64_t step);
MIRT_API mirt_status mirt_write_histogram(mirt_event_writer *writer, const char *tag, const float *values,
                                          int64_t count, int64_t step);
/* Images as of mirt_write_png; several are a sheet in `columns`. */
MIRT_API mirt_status mirt_write_images(mirt_event_writer *writer, const char *tag, mirt_array images, int columns,
                                       int64_t step);
/* NULL is allowed. */
MIRT_API void mirt_event_writer_destroy(mirt_event_writer *writer);
#endif /* MIRRORTRAIN_NO_CALLBACKS */

MIRT__END_C

#endif /* MIRT__CALLBACKS_API_H */
