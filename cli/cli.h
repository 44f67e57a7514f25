#ifndef MIRRORTRAIN_CLI_H
#define MIRRORTRAIN_CLI_H
/* mirrortrain: the library's main jobs without writing code. Uses the public API only. */

#include "../mirrortrain.h"

#include <stdio.h>

/* Exit statuses. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SIGNAL = 128 /* and the number of the signal */ };

/* One bit a command: which commands take a flag. */
enum {
    CMD_DEVICES = 1, CMD_FIT = 2, CMD_EVALUATE = 4, CMD_SUMMARY = 8, CMD_GRAPH = 16, CMD_BENCH = 32,
    CMD_PREDICT = 64, CMD_VERIFY = 128, CMD_AUGMENT = 256, CMD_DOCTOR = 512, CMD_REPORT = 1024, CMD_SCALING = 2048
};

/* A learning rate for each stretch of epochs: rate[i] from 0-based epoch first[i] on; first[0] is 0. */
enum { MAX_RATES = 16, LR_KEYS = 14 };
typedef struct rates {
    int count; /* 0: the optimizer's default */
    int first[MAX_RATES];
    float rate[MAX_RATES];
    int plan;  /* 1 + the kind of a schedule that begins with rate[0], */
    double value[LR_KEYS]; /* and its numbers */
} rates;

/* Batch sizes to measure. */
enum { MAX_BATCHES = 16 };
typedef struct batches {
    int count;
    int64_t rows[MAX_BATCHES];
} batches;

/* What flags set; the defaults are in parse_flags. */
typedef struct options {
    int argc;               /* the whole command line, */
    const char *const *argv; /* as main received it */
    const char *trace;
    const char *model, *data, *devices, *init, *load, *save;
    const char *validation, *weights, *freeze, *head, *augment, *out; /* of photographs */
    const char *const *operand; /* words that are no flags */
    int operands;
    const char *optimizer, *strategy, *collective, *dtype, *pooling, *corrupt, *on_nan; /* for chosen() */
    int64_t epochs, batch, replicas, threads, max_steps, accumulate;
    uint64_t seed;
    rates lr;
    float weight_decay, clip_norm, ema;
    float timeout;         /* seconds; 0: the library's default */
    const char *metrics, *confusion;
    int64_t size, classes; /* of the model; 0: its own defaults, */
    float alpha;           /* here as well */
    double validation_split;
    batches batch_list; /* of bench and scaling */
    batches device_counts; /* of scaling; none: powers of two */
    const char *point;     /* of a child of scaling: what it measures */
    const char *svg;       /* of graph */
    float price;           /* of an hour */
    int64_t steps, seconds; /* of bench; 0: its defaults */
    uint64_t memory; /* of summary: bytes a device; 0: what there is */
    const char *run; /* the directory of a run, and what is written there */
    int64_t checkpoint_every, keep, early_stopping; /* 0: none */
    bool resume, overwrite, tensorboard, report;
    bool no_top, no_shuffle, no_cache, originals, winograd, log_steps, forward, profile, help;
} options;

typedef struct command {
    const char *name;
    const char *purpose;
    int bit;
    const char *operands; /* what its words are called, or NULL: it takes none */
    int (*run)(const options *o); /* returns an exit status */
} command;

extern const command commands[];
extern const int command_count;

/* Fills *o from the words after the command's name; false after it has said what is wrong. Reorders words of commands that take
   operands. */
bool parse_flags(const command *c, int argc, char **argv, options *o);
void print_flags(const command *c);
/* Whether an option that is one of several names is `name`. */
bool chosen(const char *option, const char *name);
/* KIND:RATE[,KEY:VALUE]...; false after complaining. */
bool parse_lr_plan(const char *text, rates *out);
/* Gives fit what --lr says: a function by epochs, or the model a schedule over steps. False after complaining. */
bool plan_rates(const rates *lr, mirt_model *model, int64_t epoch_steps, int64_t all_steps, mirt_fit_desc *desc);
/* Accuracy, and what --metrics names. */
typedef struct metric_list {
    int count;
    mirt_metric metric[MIRT_MAX_METRICS];
    mirt_metric_options options[MIRT_MAX_METRICS];
    char name[MIRT_MAX_METRICS][24];
} metric_list;
/* False after complaining. */
bool parse_metrics(const options *o, metric_list *list);
/* Whether a network of so many outputs has them; false after complaining. */
bool metrics_fit(const metric_list *list, int64_t outputs);
/* " precision=0.9", of those but accuracy, whose names in `logs` begin with `before`. */
void print_metrics(const metric_list *list, const mirt_logs *logs, const char *before);
/* Writes the confusion matrix of a data set as a picture, and says so. False after complaining. */
bool write_confusion(mirt_model *model, mirt_dataset *dataset, const char *path);
/* The name most like `word`, or NULL when none is like it. */
const char *nearest(const char *word, const char *const *names, int count);
/* One line each: "mirrortrain: <sentence>" on stderr, a line on stderr, a line of results on stdout; the newline is added. Names
   may come from files, so the line is made printable (mirt_printable): no name reaches the terminal as a command or as a line. */
#if defined(__GNUC__)
#define ONE_LINE __attribute__((format(printf, 1, 2)))
#else
#define ONE_LINE
#endif
ONE_LINE void complain(const char *format, ...);
ONE_LINE void note(const char *format, ...);
ONE_LINE void tell(const char *format, ...);

/* Starts this program with its own command line and `more` behind it; false after complaining. A fork that goes on would not do: GPU
   runtimes and threads do not survive it. One child at a time, which signals that end this process end first. */
bool start_again(const options *o, const char *const *more, int count);
/* Waits for that child: its exit status, minus the number of the signal that ended it, or -1. */
int wait_for_child(void);

/* From here on the first SIGINT, SIGTERM or SIGHUP, unless it is ignored, makes a fit of `model` end after its step; a second one ends
   the process. */
void catch_signals(mirt_model *model);
/* Before the model is destroyed: the signals end the process again. */
void release_signals(void);
/* The first signal so far, or 0. */
int caught_signal(void);
const char *name_of_signal(int number);
/* The command line that resumes this run, quoted for a shell; to be freed; NULL: out of memory. */
char *resume_command(const options *o);
/* Adds the line "interrupted" to the log of a run. */
void log_interruption(const options *o, const char *resume);

/* Monotonic. */
double seconds_now(void);

/* First of all: no file gets the number of a standard stream that is closed, which would print into it. Printing fails
   there as before. */
void hold_streams(void);
/* A regular file, or NULL and errno; to append to, one that is there and no link. */
FILE *open_to_read(const char *path);
FILE *open_to_append(const char *path);
/* A descriptor of a regular file that is no link, made if it is not there; -1 and errno. */
int open_lock(const char *path);
/* What errno says of a file that these three do not open. */
const char *reason_of(int code);
/* Whether there is a regular file, or a link to one. */
bool is_file(const char *path);
/* Whether `size` bytes can be written beside `path`: writes zeros to a temporary file, syncs it and removes it. NULL, or what
   failed. */
typedef struct probe {
    int code; /* errno of the failure */
    double write_seconds, sync_seconds;
} probe;
const char *try_to_write(const char *path, size_t size, probe *p);
/* All of the machine, cores first, to be freed; NULL after a complaint. */
mirt_device_info *list_devices(int *count, int *cores);
/* The library's sentence, without the name of the function that says it. */
const char *library_sentence(void);
/* Complains with it; returns EXIT_FAILED. */
int complain_of_library(void);
/* A text of the library without the names of its functions, "(mirt_...)", to be freed; `cache` stands where it names
   mirt_cache, unless it is NULL. NULL: out of memory. */
char *without_calls(const char *text, const char *cache);
/* Complains with the library's sentence about a run that does not go on as it was begun, and names the flag that it
   wants; false: the sentence is about something else. */
bool complain_of_resume(const options *o);

int run_devices(const options *o);
int run_fit(const options *o);
int run_evaluate(const options *o);
int run_summary(const options *o);
int run_graph(const options *o);
int run_bench(const options *o);
int run_predict(const options *o);
int run_verify(const options *o);
int run_augment(const options *o);
int run_doctor(const options *o);
int run_scaling(const options *o);
int run_report(const options *o);

/* The class that the outputs for one image name, and its probability; if they are neither probabilities nor logits, their
   value. One number is class 1 above 0.5, a logit above 0, as for mirt_confusion_matrix. */
int class_of_scores(mirt_scores kind, const float *scores, int count, float *p);
/* Adds to a run's log what the model makes of the images it was validated with. False after complaining. */
bool log_predictions(const options *o, mirt_model *model, const char *directory);
/* Makes DIR/report.html of DIR/log.jsonl, and says so. `own`: this process holds the lock of the run. False after complaining. */
bool write_report(const char *directory, bool own);
/* Whether a process holds the lock of a run. Not for one's own run: looking would give the lock up. */
typedef enum run_owner { OWNER_UNKNOWN, OWNER_GONE, OWNER_RUNNING } run_owner;
run_owner owner_of_run(const char *directory);

/* The strategy the flags ask for. NULL after complaining, with the exit status in *status.
   `quiet`: warnings are all that is logged. */
mirt_strategy *open_strategy(const options *o, bool quiet, int *status);
/* Whether the network is for the digits of MNIST; the others are for photographs. */
bool is_for_digits(const options *o);
/* --batch, or what is usual for such networks. */
int64_t batch_of(const options *o);
/* What --augment says, or `otherwise`, into `list`; how many, or -1 after complaining. */
enum { MAX_AUGMENTATIONS = 16 };
int parse_augment(const options *o, const char *otherwise, mirt_augmentation list[MAX_AUGMENTATIONS]);
/* Says that there are no photographs but drawn ones; `looked`: nor any where they usually are. */
void note_drawn_photos(bool looked);
/* Photographs of this size in a directory, one after the other, in the order of their names. All commands read photographs
   this way, so that a model sees the same pixels in all of them. */
void describe_images(const options *o, int height, int width, mirt_image_directory_desc *desc);
enum { MAX_PHOTO_PATH = 4096 };
/* The path of a part of a directory that is already split, in `path`; of any other directory its own. */
const char *photo_part(const char *directory, const mirt_image_directory_desc *desc, mirt_subset part,
                       char path[MAX_PHOTO_PATH]);
/* The model of --model, not yet compiled; otherwise as open_model. */
mirt_model *build_model(mirt_strategy *strategy, const options *o, int *status);
/* The model of --model, compiled. NULL after complaining, with the exit status in *status. */
mirt_model *open_model(mirt_strategy *strategy, const options *o, int *status);
/* Compiles a classifier as the flags say; `logits`: its outputs are. */
mirt_model *compile_model(mirt_model *model, const options *o, bool logits, int *status);
/* Complains with the library's sentence about a model and returns NULL, with the exit status in *status. */
mirt_model *complain_of_model(int *status);
/* A picture of the compiled model's training step, before and after mirroring; returns an exit status. */
int write_graph_svg(mirt_model *model, int64_t batch, const char *path);
/* Callbacks that flags ask for. */
typedef struct run_callbacks {
    mirt_callback *list[MIRT_MAX_CALLBACKS];
    int count;
} run_callbacks;
/* Whether the flags of --run go together and its directory, made if it is not there, can be written in, and by no other run, until
   end_run. False after complaining, with the exit status in *status. */
bool begin_run(const options *o, int *lock, int *status);
void end_run(const options *o, int lock);
/* Makes what --run, --early-stopping and --on-nan ask for, and lists it in `desc`. False after complaining. */
bool open_run(const options *o, mirt_fit_desc *desc, run_callbacks *callbacks);
void close_run(run_callbacks *callbacks);
/* What fit trains, and on what. */
typedef struct training_job {
    mirt_strategy *strategy;
    mirt_model *model;
    mirt_dataset *training, *test;
} training_job;
/* Photographs, and a network for them with a new head. False after complaining, with the exit status in *status. */
bool open_photo_job(mirt_strategy *strategy, const options *o, training_job *j, int *status);
/* How labels stand in data sets. */
typedef enum label_form { LABEL_UINT8, LABEL_INT32, LABEL_FLOAT32 } label_form;
/* The photographs that fit validates with, once more and without a word. NULL after complaining. */
mirt_dataset *open_photo_validation(const options *o, int height, int width, label_form *labels);
/* What a model that takes `shape` is evaluated on: photographs with the names of its classes. NULL after complaining. */
mirt_dataset *open_photo_test(const mirt_model *model, const options *o);
/* Complains with the library's sentence about a run over photographs, and what can be done about a damaged one; returns EXIT_FAILED. */
int complain_of_photos(const options *o);
/* Whether a directory has directories, as photographs have and MNIST's files have not. */
bool has_directories(const char *path);
/* Says how many photographs were damaged, if any. */
void tell_of_corrupt(const options *o);
/* --data, or data/mnist, or digits drawn here (with a note that says so). NULL after complaining. */
mirt_dataset *open_data(const options *o, mirt_split split, bool note);
/* Complains with the library's sentence about a run over that data, naming its directory where the
   sentence is about labels or shapes; returns EXIT_FAILED. */
int complain_of_run(const options *o);

#endif
