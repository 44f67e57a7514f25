#ifndef MIRRORTRAIN_CLI_H
#define MIRRORTRAIN_CLI_H
/* The program mirrortrain: shared declarations. Uses the public API only. */

#include "../mirrortrain.h"

#include <stdio.h>

/* Exit statuses. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SIGNAL = 128 /* plus the number of the signal */ };

/* One bit per command: the commands that take a flag. */
enum {
    CMD_DEVICES = 1, CMD_FIT = 2, CMD_EVALUATE = 4, CMD_SUMMARY = 8, CMD_GRAPH = 16, CMD_BENCH = 32,
    CMD_PREDICT = 64, CMD_VERIFY = 128, CMD_AUGMENT = 256, CMD_DOCTOR = 512, CMD_REPORT = 1024, CMD_SCALING = 2048,
    CMD_EXPORT = 4096
};

/* Learning rates by epoch: rate[i] from epoch first[i] (counted from 0) on; first[0] is 0. */
enum { MAX_RATES = 16, LR_KEYS = 14 };
typedef struct rates {
    int count; /* 0: the optimizer's default */
    int first[MAX_RATES];
    float rate[MAX_RATES];
    int plan;  /* 1 + the kind of a schedule that begins with rate[0] */
    double value[LR_KEYS]; /* the numbers of that schedule */
} rates;

/* Batch sizes or device counts to measure. */
enum { MAX_BATCHES = 16 };
typedef struct batches {
    int count;
    int64_t rows[MAX_BATCHES];
} batches;

/* The values of flags; the defaults are in parse_flags. */
typedef struct options {
    int argc;               /* the whole command line, */
    const char *const *argv; /* as passed to main */
    const char *trace;
    const char *model, *data, *devices, *init, *load, *save;
    const char *validation, *weights, *freeze, *head, *augment, *out; /* of photographs; out: also of report */
    const char *const *operand; /* words that are not flags */
    int operands;
    const char *optimizer, *strategy, *collective, *dtype, *pooling, *corrupt, *on_nan, *format; /* for chosen() */
    const char *shares;
    int64_t servers, average_every;
    int64_t max_staleness; /* -1: any */
    int64_t epochs, batch, replicas, threads, max_steps, accumulate;
    uint64_t seed;
    rates lr;
    float weight_decay, clip_norm, ema, label_smoothing;
    float mix_up, cut_mix; /* of photographs; 0: not */
    float timeout;         /* seconds; 0: the library's default */
    const char *metrics, *confusion;
    int64_t size, classes; /* of the model; 0: its default */
    float alpha;           /* of the model; 0: its default */
    double validation_split;
    batches batch_list; /* of bench and scaling */
    batches device_counts; /* of scaling; none: powers of two */
    const char *point;     /* of a child process of scaling: what to measure */
    const char *svg;       /* of graph */
    const char *onnx;      /* of export */
    bool channels_first, keep_normalization; /* of it */
    bool costs;            /* of graph: show what is stored, and what it costs */
    float price;           /* per hour */
    int64_t predict, devices_per_host; /* of scaling; 0: no prediction, the strategy's number */
    const char *network;               /* of scaling */
    int64_t steps, seconds; /* of bench; 0: its default */
    batches core_counts;    /* of bench --parallelism; none: powers of two up to 64 */
    float bandwidth, barrier; /* GB/s of a socket, microseconds; 0: as measured here */
    int64_t sockets;        /* that the largest of these numbers has; 0: one */
    bool parallelism, json, check;
    bool simulate;          /* set by the program: mirt_strategy_desc.simulate_threads */
    uint64_t memory; /* of summary: bytes per device; 0: all free memory */
    const char *run; /* the directory of a run, and what to write there */
    int64_t checkpoint_every, keep, early_stopping; /* 0: none */
    bool resume, overwrite, tensorboard, report, weights_only, per_class, swap_ema;
    bool no_top, no_shuffle, no_cache, originals, winograd, feed, log_steps, forward, profile, help;
} options;

extern const char default_model[]; /* options.model where no flag names another */

typedef struct command {
    const char *name;
    const char *purpose;
    int bit;
    const char *operands; /* names of its operands; NULL: it takes none */
    const char *examples; /* lines for --help */
    int (*run)(const options *o); /* returns an exit status */
} command;

extern const command commands[];
extern const int command_count;

/* Fills *o from the words after the command's name; false after complaining. Reorders words of commands that take
   operands. */
bool parse_flags(const command *c, int argc, char **argv, options *o);
/* Whether the flags about processes fit together; false after complaining. several: a launcher started this one. */
bool processes_fit(const options *o, bool several);
void print_help(FILE *out);
void print_command_help(const command *c);
/* Whether an option, chosen from several names, is `name`. */
bool chosen(const char *option, const char *name);
/* KIND:RATE[,KEY:VALUE]...; false after complaining. */
bool parse_lr_plan(const char *text, rates *out);
/* Applies --lr: gives fit a function of the epoch, or the model a schedule over steps. False after complaining. */
bool plan_rates(const rates *lr, mirt_model *model, int64_t epoch_steps, int64_t all_steps, mirt_fit_desc *desc);
/* Accuracy and the metrics of --metrics. */
typedef struct metric_list {
    int count;
    mirt_metric metric[MIRT_MAX_METRICS];
    mirt_metric_options options[MIRT_MAX_METRICS];
    char name[MIRT_MAX_METRICS][24];
} metric_list;
/* False after complaining. */
bool parse_metrics(const options *o, metric_list *list);
/* Whether a network with this many outputs supports them; false after complaining. */
bool metrics_fit(const metric_list *list, int64_t outputs);
/* Top k of one-hot labels. */
void metrics_of_one_hot(metric_list *list);
/* Prints " precision=0.9" for all but accuracy; their names in `logs` begin with `before`. */
void print_metrics(const metric_list *list, const mirt_logs *logs, const char *before);
/* Counts the confusion matrix of a data set. Writes it as a picture and prints its path, or prints precision, recall
   and F1 of each class, as the flags ask for. False after complaining. */
bool show_classes(mirt_model *model, mirt_dataset *dataset, const options *o);
/* The name most similar to `word`, or NULL if none is similar. */
const char *nearest(const char *word, const char *const *names, int count);
/* One line each: "mirrortrain: <sentence>" on stderr, a line on stderr, a line of results on stdout; the newline is
   added. Names may come from files, so mirt_printable escapes them for the terminal. */
#if defined(__GNUC__)
#define ONE_LINE __attribute__((format(printf, 1, 2)))
#else
#define ONE_LINE
#endif
ONE_LINE void complain(const char *format, ...);
ONE_LINE void note(const char *format, ...);
ONE_LINE void tell(const char *format, ...);

/* Prints text as a JSON string; bytes that are not UTF-8 stay as they are. */
void print_json_text(FILE *file, const char *text);

/* Starts this program as a child process with the same command line followed by `more`; false after complaining. A fork
   without exec is not enough: GPU runtimes and threads do not survive it. One child at a time; signals that end this
   process end the child first. */
bool start_again(const options *o, const char *const *more, int count);
/* Waits for that child and returns its exit status, minus the number of the signal that ended it, or -1. */
int wait_for_child(void);

/* From now on the first SIGINT, SIGTERM or SIGHUP that is not ignored ends a fit of `model` after its step; a second
   one ends the process. */
void catch_signals(mirt_model *model);
/* Call before the model is destroyed: the signals end the process again. */
void release_signals(void);
/* The first signal so far, or 0. */
int caught_signal(void);
const char *name_of_signal(int number);
/* The command line that resumes this run, quoted for a shell; to be freed; NULL: out of memory. */
char *resume_command(const options *o);
/* Adds the line "interrupted" to the log of a run. */
void log_interruption(const options *o, int signal, const char *resume);

/* Call first. *several: a launcher started this process as one of several, which are not to be independent
   (MIRT_WORKERS=1). Until work_together or work_alone the first process speaks for all. False: the library's error. */
bool find_launcher(bool *several);
/* What it has found; a process whose variables are wrong counts as the first. */
const mirt_launch *own_launch(void);
/* The processes train together: the first one prints results and writes files, the others only say what is wrong. */
void work_together(void);
/* This process has nothing to do with the others. */
void work_alone(void);
bool works_together(void);
/* The number of this process; whether it is the first, or alone; whether errors are to be printed. */
int own_number(void);
bool is_first(void);
bool may_complain(void);
/* The strategy is there: what goes wrong from here on may be wrong in this process alone. */
void join_others(void);
bool joined_others(void);
/* The words that start as many processes, as "mpirun -n 4"; "": other words, or the process is alone. */
void start_words(char *out, size_t size);
/* Whether the library is to see this process alone. */
void pretend_alone(bool alone);

/* The engine itself, or one for the processes that scaling measures. */
struct mirt__engine;
const struct mirt__engine *limited_engine(const struct mirt__engine *whole);

/* Monotonic. */
double seconds_now(void);
/* Compares two doubles for qsort. */
int by_size(const void *a, const void *b);

/* Call first: prevents that a file gets the number of a closed standard stream and receives what is printed. Printing
   still fails. */
void hold_streams(void);
/* Opens a regular file; NULL and errno on failure. To append, the file must exist and must not be a symbolic link. */
FILE *open_to_read(const char *path);
FILE *open_to_append(const char *path);
/* A descriptor of a regular file, created if missing, which must not be a symbolic link; -1 and errno on failure. */
int open_lock(const char *path);
/* The message for an errno of these three functions. */
const char *reason_of(int code);
/* Whether `path` is a regular file, or a directory, or a symbolic link to one. */
bool is_file(const char *path);
bool is_directory(const char *path);
/* Tests whether `size` bytes can be written in the directory of `path`: writes zeros to a temporary file, syncs it and
   removes it. NULL, or what failed. */
typedef struct probe {
    int code; /* errno of the failure */
    double write_seconds, sync_seconds;
} probe;
const char *try_to_write(const char *path, size_t size, probe *p);
/* All devices of the machine, cores first; the caller frees them. NULL after complaining. */
mirt_device_info *list_devices(int *count, int *cores);
/* The library's last error message without the name of its function. */
const char *library_sentence(void);
/* Prints it with complain; returns EXIT_FAILED. */
int complain_of_library(void);
/* A text of the library without names of functions, "(mirt_...)"; the caller frees it. `cache`, unless NULL, replaces
   "(mirt_cache)". NULL: out of memory. */
char *without_calls(const char *text, const char *cache);
/* If the library's error is that a run resumes with other settings, complains and names the flag to change; otherwise
   returns false. */
bool complain_of_resume(const options *o);

int run_devices(const options *o);
int run_fit(const options *o);
int run_evaluate(const options *o);
int run_summary(const options *o);
int run_graph(const options *o);
int run_export(const options *o);
int run_bench(const options *o);
int run_predict(const options *o);
int run_verify(const options *o);
int run_augment(const options *o);
int run_doctor(const options *o);
int run_scaling(const options *o);
int run_report(const options *o);

/* The class predicted by the outputs for one image, and its probability; its score if the outputs are neither
   probabilities nor logits. A single output means class 1 above 0.5, a logit above 0, as in mirt_confusion_matrix. */
int class_of_scores(mirt_scores kind, const float *scores, int count, float *p);
/* Adds predictions for the validation images to a run's log. False after complaining. */
bool log_predictions(const options *o, mirt_model *model, const char *directory);
/* Makes DIR/report.html from DIR/log.jsonl and prints its path. `own`: this process holds the lock of the run. False
   after complaining. */
bool write_report(const char *directory, bool own);
/* Makes the page --out that compares the runs in the directories of the command line. False after complaining. */
bool write_comparison(const options *o);
/* Writes that page during a fit too, from its beginning on. NULL: there is no memory for that. */
typedef struct live_report live_report;
live_report *begin_live_report(const options *o, mirt_fit_desc *desc);
/* After the fit, before the last page. NULL is allowed. */
void end_live_report(live_report *live);
/* Whether a process holds the lock of a run. Never call it for a run of this process: it would release the lock. */
typedef enum run_owner { OWNER_UNKNOWN, OWNER_GONE, OWNER_RUNNING } run_owner;
run_owner owner_of_run(const char *directory);

/* The strategy that the flags ask for. NULL after complaining, with the exit status in *status. `quiet`: only warnings
   are logged. */
mirt_strategy *open_strategy(const options *o, bool quiet, int *status);
/* Whether all processes that work together have come here with `good`; false after complaining of another one. */
bool all_good(mirt_strategy *strategy, bool good);
/* Whether the network is for MNIST digits; the others are for photographs. */
bool is_for_digits(const options *o);
/* Whether --batch lists one, as the command `name` needs in processes that work together; false after complaining. */
bool has_one_batch(const options *o, const char *name);
/* --batch, or the default of the network. */
int64_t batch_of(const options *o);
/* Whether labels are mixed, so that they are shares of classes and no class numbers. */
bool mixes_photos(const options *o);
/* Parses --augment, or `otherwise` without it, into `list`; returns their number, or -1 after complaining. */
enum { MAX_AUGMENTATIONS = 16 };
int parse_augment(const options *o, const char *otherwise, mirt_augmentation list[MAX_AUGMENTATIONS]);
/* Prints that drawn photographs are used; `looked`: the default directory does not exist either. */
void note_drawn_photos(bool looked);
/* Describes how to read the photographs of a directory: one at a time, in the order of their names, resized to this
   size. All commands use it, so that a model gets the same pixels in all of them. */
void describe_images(const options *o, int height, int width, mirt_image_directory_desc *desc);
/* Its `log`, for no messages. */
void log_nothing(mirt_log_level level, const char *text, void *user);
/* Whether `path` names tar archives: a file or a pattern that ends in .tar, or a directory with such files and without
   directories. */
bool has_shards(const char *path);
/* The photographs of shards or of a directory. NULL with the library's error. */
mirt_dataset *open_photographs(const char *path, const mirt_image_directory_desc *desc);
enum { MAX_PHOTO_PATH = 4096 };
/* If the directory is already split, the path of one part, written to `path`; otherwise `directory`. */
const char *photo_part(const char *directory, const mirt_image_directory_desc *desc, mirt_subset part,
                       char path[MAX_PHOTO_PATH]);
/* Sets the dtype policy of --dtype. False: the library's error. */
bool set_policy(mirt_model *model, const options *o);
/* --dtype's value, and whether it rounds the operands of products. */
const char *dtype_name(const options *o);
bool rounds_products(const options *o);
/* Same as open_model, but not compiled. */
mirt_model *build_model(mirt_strategy *strategy, const options *o, int *status);
/* The model of --model, compiled. NULL after complaining, with the exit status in *status. */
mirt_model *open_model(mirt_strategy *strategy, const options *o, int *status);
/* Compiles a classifier with the settings of the flags; `logits`: its outputs are logits. */
mirt_model *compile_model(mirt_model *model, const options *o, bool logits, int *status);
/* Complains with the library's error about a model and returns NULL, with the exit status in *status. */
mirt_model *complain_of_model(int *status);
/* Draws the compiled model's training step before and after mirroring; returns an exit status. */
int write_graph_svg(mirt_model *model, int64_t batch, const char *path);
/* Callbacks that flags ask for. */
typedef struct run_callbacks {
    mirt_callback *list[MIRT_MAX_CALLBACKS];
    int count;
} run_callbacks;
/* Checks the flags of --run, creates its directory if necessary, and locks it until end_run. False after complaining,
   with the exit status in *status. */
bool begin_run(const options *o, int *lock, int *status);
void end_run(const options *o, int lock);
/* Creates the callbacks for --run, --early-stopping and --on-nan and lists them in `desc`. False after complaining. */
bool open_run(const options *o, mirt_fit_desc *desc, run_callbacks *callbacks);
void close_run(run_callbacks *callbacks);
/* The model that fit trains, and its data. */
typedef struct training_job {
    mirt_strategy *strategy;
    mirt_model *model;
    mirt_dataset *training, *test;
} training_job;
/* Opens photographs and builds a network with a new head for them. False after complaining, with the exit status in
   *status. */
bool open_photo_job(mirt_strategy *strategy, const options *o, training_job *j, int *status);
/* The format of labels in data sets. */
typedef enum label_form { LABEL_UINT8, LABEL_INT32, LABEL_FLOAT32 } label_form;
/* Opens fit's validation photographs again, without messages. NULL after complaining. */
mirt_dataset *open_photo_validation(const options *o, int height, int width, label_form *labels);
/* The photographs to evaluate a model with inputs of `shape` on, labeled by its class names. NULL after complaining. */
mirt_dataset *open_photo_test(const mirt_model *model, const options *o);
/* Complains with the library's error about a run over photographs, and says how to handle damaged ones; returns
   EXIT_FAILED. */
int complain_of_photos(const options *o);
/* Whether a directory contains directories, as data sets of photographs do and MNIST does not. */
bool has_directories(const char *path);
/* Prints how many photographs were damaged, if any. */
void tell_of_corrupt(const options *o);
/* The data of --data, or of data/mnist, or drawn digits (with a note that says so). NULL after complaining. */
mirt_dataset *open_data(const options *o, mirt_split split, bool note);
/* Complains with the library's error about a run over that data, and names its directory if the error is about labels
   or shapes; returns EXIT_FAILED. */
int complain_of_run(const options *o);

#endif
