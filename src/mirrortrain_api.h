/* mirrortrain.h - v0.1.0 - train image networks in C, mirrored over all devices of a machine
   No warranty; public domain or MIT, as you like: see the end of this file.

   Do this:
       #define MIRRORTRAIN_IMPLEMENTATION
   before you include this file in *one* C or C++ file, ahead of that file's
   other includes, to create the implementation:
       #define MIRRORTRAIN_IMPLEMENTATION
       #include "mirrortrain.h"
   All other files include it without the define. Then:
       cc -O2 program.c -o program -lm -lpthread

@MANUAL@
*/
#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8 && !defined(__wasm__)
#error "mirrortrain.h: addresses of 64 bits are required; compile without -m32"
#define MIRRORTRAIN_H
#undef MIRRORTRAIN_IMPLEMENTATION
#elif defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "mirrortrain.h: a little-endian processor is required; tensors are read from files in place"
#define MIRRORTRAIN_H
#undef MIRRORTRAIN_IMPLEMENTATION
#endif

#ifndef MIRRORTRAIN_H
#define MIRRORTRAIN_H

#define MIRT_VERSION_MAJOR 0
#define MIRT_VERSION_MINOR 1
#define MIRT_VERSION_PATCH 0
#define MIRT_VERSION_STRING "0.1.0"

#include "api/configuration.inc"

#ifdef __cplusplus
extern "C" {
#endif

/* >>basics -------------------------------------------------------------------------------- */
/* Threads: any thread may call these at any time; the last error and status are the calling thread's own. */

/* Status codes and their texts. Functions that return a pointer return NULL instead of a code;
   mirt_last_status() then says which one, and mirt_last_error() says it in a sentence. */
#define MIRT_STATUS_LIST(X) \
    X(MIRT_OK, "ok") \
    X(MIRT_E_INVALID, "invalid argument") \
    X(MIRT_E_SHAPE, "shapes do not fit") \
    X(MIRT_E_NOMEM, "out of memory") \
    X(MIRT_E_IO, "input or output failed") \
    X(MIRT_E_FORMAT, "file is damaged or of another format") \
    X(MIRT_E_NOT_FOUND, "not found") \
    X(MIRT_E_DEVICE, "no such device") \
    X(MIRT_E_STATE, "called at the wrong time") \
    X(MIRT_E_THREAD, "threads could not be started") \
    X(MIRT_E_CALLBACK, "code of the caller failed") \
    X(MIRT_E_TIMEOUT, "no progress within the time limit") \
    X(MIRT_E_DRIFT, "copies of the weights differ")

typedef enum mirt_status {
#define MIRT__STATUS_ENUM(code, text) code,
    MIRT_STATUS_LIST(MIRT__STATUS_ENUM)
#undef MIRT__STATUS_ENUM
    MIRT__STATUS_COUNT
} mirt_status;

/* The version the implementation was compiled from, "major.minor.patch". */
MIRT_API const char *mirt_version(void);

/* A short fixed text for a status code. */
MIRT_API const char *mirt_status_text(mirt_status status);

/* What went wrong in the calling thread's last failed call, as one sentence that names the
   culprit; "" before the first failure. Valid until that thread's next failed call. */
MIRT_API const char *mirt_last_error(void);
MIRT_API mirt_status mirt_last_status(void);

/* Where a failure comes from, and so who can do something about it: data and files that are read; the machine and what surrounds the
   program; what was asked for, which does not go together; memory, disk or threads that ran out; a mistake in the program, or in
   code that it gave to the library, or in the library. */
typedef enum mirt_cause {
    MIRT_CAUSE_NONE = 0, MIRT_CAUSE_INPUT, MIRT_CAUSE_ENVIRONMENT, MIRT_CAUSE_CONFIGURATION, MIRT_CAUSE_RESOURCES, MIRT_CAUSE_BUG, MIRT__CAUSE_COUNT
} mirt_cause;
/* Of the calling thread's last failed call; MIRT_CAUSE_NONE before the first. */
MIRT_API mirt_cause mirt_last_cause(void);
/* "input", "environment", "configuration", "resources", "bug"; "none". */
MIRT_API const char *mirt_cause_text(mirt_cause cause);

/* Makes text safe to print on a terminal: control characters (C0, DEL, C1), characters that reorder the text around them and
   bytes that are not UTF-8 become \xNN, byte by byte; all else is copied. For names that come from files: of classes, layers,
   files. Writes at most `size` bytes including the final 0 and cuts between characters; `out` may be NULL if size is 0. Returns
   the length of the whole text, as snprintf does. The library's own messages, log lines and texts are printable already. */
MIRT_API size_t mirt_printable(const char *text, char *out, size_t size);

/* Replaces the file at `path` as a whole, or creates it: after a crash or a power failure it holds the old bytes or the new
   ones. A symbolic link at `path` is itself replaced. MIRT_E_NOT_FOUND (no such directory), MIRT_E_IO, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_write_file(const char *path, const void *data, size_t size);
/* Creates an empty, private file beside `path` under a name that did not exist before; no link is followed. Returns a descriptor
   for writing, which the caller closes before removing or renaming the file; -1 on failure, and errno says why. `name`, of at
   least strlen(path) + 48 bytes, receives the name. Those of the library itself are made so too, but with the mode
   of the file that they replace, or for a new one the mode that the umask leaves. */
MIRT_API int mirt_create_temporary(const char *path, char *name, size_t size);

/* Element types. Pixels stay MIRT_UINT8 until a kernel reads them; a MIRT_BOOL is one byte, 0 or 1. */
typedef enum mirt_dtype { MIRT_FLOAT32 = 0, MIRT_INT32, MIRT_UINT8, MIRT_BOOL, MIRT__DTYPE_COUNT } mirt_dtype;

#define MIRT_MAX_RANK 6
/* Inputs and outputs of a model, and so arrays of inputs and of labels. */
#define MIRT_MAX_INPUTS 8
#define MIRT_MAX_OUTPUTS 8
/* The first dimension of a batched tensor, known only when it runs. */
#define MIRT_ROWS (-1)

typedef struct mirt_shape {
    int rank;
    int64_t dim[MIRT_MAX_RANK];
} mirt_shape;

/* MIRT_SHAPE(28, 28, 1): one to six positive dimensions, in C and in C++. */
#define MIRT_SHAPE(...) MIRT__SHAPE_6(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define MIRT__SHAPE_6(a, b, c, d, e, f, ...) mirt_make_shape(a, b, c, d, e, f)
/* Six dimensions; the first 0 ends the shape. */
MIRT_API mirt_shape mirt_make_shape(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f);

/* A borrowed, dense, row-major block in host memory; the first dimension counts samples. */
typedef struct mirt_array {
    const void *data;
    mirt_dtype dtype;
    mirt_shape shape;
} mirt_array;

/* mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(n, 28, 28, 1)). Borrows data. */
MIRT_API mirt_array mirt_make_array(const void *data, mirt_dtype dtype, mirt_shape shape);

/* >>strategy ------------------------------------------------------------------------------ */
/* Threads: a strategy, and everything created from it, is for one thread at a time, not always the same one;
   different strategies may be used by different threads at once. Any thread may create one at any time. A call while another thread
   uses the strategy, or in a child of the process that created it, returns MIRT_E_STATE; destroying then does nothing. */

typedef struct mirt_strategy mirt_strategy;

typedef enum mirt_log_level { MIRT_LOG_ERROR, MIRT_LOG_WARNING, MIRT_LOG_INFO, MIRT_LOG_PROGRESS } mirt_log_level;

/* Receives everything a strategy's objects say, one line without its newline a call (a progress
   line may start with '\r' to overwrite the line before). Called from the thread that called the
   library. */
typedef void (*mirt_log_fn)(mirt_log_level level, const char *text, void *user);

/* Where weights live. Keras: tf.distribute's MirroredStrategy, OneDeviceStrategy, CentralStorageStrategy.
   MIRT_MIRRORED: every device has its copy. MIRT_ONE_DEVICE: one device runs all replicas.
   MIRT_CENTRAL_STORAGE: one copy that all devices read; in the same bits as MIRT_MIRRORED. */
typedef enum mirt_strategy_kind { MIRT_MIRRORED = 0, MIRT_ONE_DEVICE, MIRT_CENTRAL_STORAGE } mirt_strategy_kind;

/* How the replicas' gradients meet (tf.distribute.CrossDeviceOps). MIRT_TREE: one fixed binary tree
   over replica numbers; the result does not depend on the number of devices. MIRT_RING: a
   reduce-scatter in ring order, device d's share of the elements summed over devices d + 1, d + 2,
   ..., d. MIRT_REDUCE_TO_ONE_DEVICE: the first device adds in device order and updates all weights.
   Ring and one device give other roundings on other numbers of devices, and so does MIRT_NCCL: NCCL's own
   all-reduce, between GPUs. */
typedef enum mirt_collective {
    MIRT_COLLECTIVE_AUTO = 0, /* now MIRT_TREE: the same bits on any number of devices */
    MIRT_TREE, MIRT_RING, MIRT_REDUCE_TO_ONE_DEVICE, MIRT_NCCL
} mirt_collective;

/* Zero means default. */
typedef struct mirt_strategy_desc {
    const char *devices; /* NULL: every GPU, or where there is none (or the program is built without mirrortrain_cuda.cu) every core as
                            one device; "cpu": every core as one device; "2": two equal shares of the cores; "cpu:0,cpu:1": two
                            devices of one core each, so that strategies can have cores of their own; "gpu": every GPU;
                            "gpu:0,gpu:2": these. Where the environment's MIRT_DEVICES is "cpu", NULL means cores whatever there is; where
                            it is "gpu", numbers mean so many GPUs, and no GPU is an error */
    int replicas;        /* logical replicas V; 0: one a device */
    int threads;         /* threads per device, if it is of cores; 0: the device's cores. The system places them on cores */
    uint64_t seed;       /* of initial weights, dropout and shuffling */
    mirt_collective collective;
    mirt_log_fn log;     /* NULL: stderr */
    void *log_user;
    bool silent;         /* no log at all */
    mirt_strategy_kind kind;
    double timeout_seconds; /* a device, or a wait for samples, that gets on with nothing for so long is given up: the call returns
                            MIRT_E_TIMEOUT, which names it, the log has what it did last, and the strategy is of no use any more: every
                            call says so at once, its threads and memory, lent memory too, are left to themselves, and destroying
                            it, its models and the data sets in use returns at once and frees nothing. Other strategies live on. 0: 60, of
                            single steps (mirt_train_step and the like) only for devices behind the first, as the caller is that one;
                            a number: exactly; negative: none. While the process is suspended (SIGSTOP, a debugger,
                            a snapshot of a virtual machine) no time counts: afterwards the limit starts again */
    bool winograd;       /* 3x3 convolutions of stride 1 and the gradients of their inputs by Winograd's F(2x2, 3x3), where that is
                            faster (it takes up to half the time): float32, with other roundings. CPUs alone do so */
    bool repeat_devices; /* a GPU may be named several times, and is as many devices: for tests of mirroring on one GPU */
    bool tf32;           /* GPUs multiply float32 numbers of 10 bits behind the point (TF32): faster, with other roundings */
} mirt_strategy_desc;

/* Keras: tf.distribute.MirroredStrategy(devices). `devices` as in mirt_strategy_desc; desc NULL: all
   defaults. Owns its threads. Returns NULL (MIRT_E_DEVICE, MIRT_E_INVALID: numbers that do not go
   together, MIRT_E_NOMEM, MIRT_E_THREAD). */
MIRT_API mirt_strategy *mirt_mirrored(const char *devices);
/* `device` as "cpu:1" or "gpu:0"; NULL: the first GPU, or where there is none every core as one device. MIRT_E_INVALID: several. */
MIRT_API mirt_strategy *mirt_one_device(const char *device);
MIRT_API mirt_strategy *mirt_central_storage(const char *devices);
MIRT_API mirt_strategy *mirt_strategy_create(const mirt_strategy_desc *desc);
/* Destroys the strategy and the models still living in it. NULL is allowed. */
MIRT_API void mirt_strategy_destroy(mirt_strategy *strategy);
/* Logical replicas (Keras: num_replicas_in_sync), devices and threads per device; 0 for NULL. */
MIRT_API int mirt_num_replicas(const mirt_strategy *strategy);
MIRT_API int mirt_num_devices(const mirt_strategy *strategy);
MIRT_API int mirt_num_threads(const mirt_strategy *strategy);
/* Replaces the log sink; fn NULL is silent. */
MIRT_API void mirt_set_log(mirt_strategy *strategy, mirt_log_fn fn, void *user);

typedef struct mirt_device_info {
    char name[32];        /* "cpu:0", "gpu:0" */
    char description[96]; /* instruction set and core count; of a GPU its name and memory */
    int cores;            /* 1; of a GPU 0 */
    uint64_t memory;      /* bytes of a GPU's own; 0: it is the machine's */
} mirt_device_info;
/* Fills up to `capacity` entries with what this machine has, cores first; returns how many there are, 0 (MIRT_E_DEVICE) where an
   environment variable asks for what it has not. Thread safe: any thread at any time. */
MIRT_API int mirt_devices(mirt_device_info *out, int capacity);

/* >>data ---------------------------------------------------------------------------------- */
/* Threads: a dataset, with the stages it owns, is for one thread at a time; during fit, evaluate and predict it
   is the model's. Different datasets may be used, and any created, by different threads at once. */

/* A stream of samples (inputs, labels, weight) built from stages. A stage takes ownership of the stage it is given
   and hands NULL through, so a chain is checked once, at its end: a stage that fails destroys the
   stages it was given and returns NULL. Destroying the last stage destroys them all. Errors of all stages: MIRT_E_INVALID, MIRT_E_SHAPE, MIRT_E_NOMEM. */
typedef struct mirt_dataset mirt_dataset;

typedef enum mirt_split { MIRT_TRAIN = 0, MIRT_TEST } mirt_split;
#define MIRT_AUTOTUNE (-1)

/* Samples in arrays whose first dimensions agree: inputs, labels (there may be none), one float32
   weight a sample ([n], or no data: none). Each list ends at its first array without data. */
typedef struct mirt_data {
    mirt_array x[MIRT_MAX_INPUTS];
    mirt_array y[MIRT_MAX_OUTPUTS];
    mirt_array weights;
} mirt_data;

/* Samples borrowed from arrays until the dataset is destroyed; y.data may be NULL (no labels).
   mirt_arrays is the short form for one input and at most one array of labels. */
MIRT_API mirt_dataset *mirt_arrays(mirt_array x, mirt_array y);
MIRT_API mirt_dataset *mirt_arrays_of(const mirt_data *data);
/* IDX files, plain or gzipped (recognized by content), images as [n, h, w, 1] uint8 and labels as
   [n] uint8. Errors: MIRT_E_NOT_FOUND, MIRT_E_FORMAT with the offset, MIRT_E_IO. */
MIRT_API mirt_dataset *mirt_idx(const char *images_path, const char *labels_path);
/* MNIST in its usual four files, plain or .gz, in a directory. Keras: datasets.mnist.load_data. */
MIRT_API mirt_dataset *mirt_mnist(const char *directory, mirt_split split);
/* Digits this library draws itself: strokes, a random affine distortion, noise; [28, 28, 1] uint8.
   The same (count, seed, split) gives the same pixels everywhere; splits do not overlap. */
MIRT_API mirt_dataset *mirt_drawn_digits(int64_t count, uint64_t seed, mirt_split split);
/* Writes sample `index` of this pass: out[i] is the memory of its inputs, labels and weight (1 so far), in this order, dense.
   MIRT_END_OF_DATA: there is none, the pass is over; any other code but 0 is an error of the run (MIRT_E_CALLBACK), which names it. */
typedef int (*mirt_generator_fn)(void *const *out, int64_t index, void *user);
#define MIRT_END_OF_DATA (-1)
typedef struct mirt_generator_desc {
    mirt_generator_fn fn; /* called with 0, 1, 2, ... */
    int (*begin)(int64_t epoch, void *user); /* before a pass; may be NULL; not 0 is an error */
    void *user;
    mirt_array x[MIRT_MAX_INPUTS];  /* [num_x] dtype and shape of one sample, rank 0 for a number; data is not read */
    mirt_array y[MIRT_MAX_OUTPUTS]; /* [num_y] */
    int num_x, num_y;
    bool weights;         /* samples have a float32 weight */
    int64_t samples;      /* in a pass; 0: a stream, whose length nobody knows */
    bool any_order;       /* fn is thread safe and may be called with any index below `samples` at any time: shuffles are full, and
                             worker threads call it */
    const char *name;     /* for errors; default "the generator" */
} mirt_generator_desc;
/* Samples of one's own source. Copies desc. tf.data: Dataset.from_generator. */
MIRT_API mirt_dataset *mirt_dataset_from_generator(const mirt_generator_desc *desc);
/* Keeps every sample in memory, all made when the first epoch begins. Comes before mirt_batch.
   tf.data: cache. */
MIRT_API mirt_dataset *mirt_cache(mirt_dataset *dataset);
typedef struct mirt_cache_desc {
    uint64_t budget_bytes; /* samples that take more are refused (MIRT_E_NOMEM); 0: no limit */
    const char *file;      /* keeps them in this file, from which every epoch reads them, and the next run too if they are as many,
                              of the same shapes, from the same stages and files, which are known by their names; otherwise, or
                              if its head is damaged or its length wrong, it is written anew. Maps and generators are
                              known by their names too, arrays by nothing. */
} mirt_cache_desc;
/* desc NULL: mirt_cache. Samples are checked when they are read: MIRT_E_FORMAT, MIRT_E_IO. */
MIRT_API mirt_dataset *mirt_cache_with(mirt_dataset *dataset, const mirt_cache_desc *desc);
/* A new order every epoch, keyed by (strategy seed, epoch). Where the stage before has random
   access (arrays, images, cache, a part or a map of these) it is a full permutation whatever `buffer`; otherwise a
   buffer of that many samples. Comes before mirt_batch. tf.data: shuffle. */
MIRT_API mirt_dataset *mirt_shuffle(mirt_dataset *dataset, int64_t buffer);
/* The first `count` samples, or behind mirt_batch batches; all but those. Random access stays. Nothing
   left is an error. tf.data: take, skip. */
MIRT_API mirt_dataset *mirt_take(mirt_dataset *dataset, int64_t count);
MIRT_API mirt_dataset *mirt_skip(mirt_dataset *dataset, int64_t count);
/* Passes `count` times, or for ever (0 or less), as one epoch. To the stages before each pass is an
   epoch of its own: their shuffles differ. Before mirt_batch, batches cross the ends of passes.
   tf.data: repeat. */
MIRT_API mirt_dataset *mirt_repeat(mirt_dataset *dataset, int64_t count);

/* Makes one sample of another: in[i] and out[i] are one sample's inputs, labels and weight, in this
   order, dense. `out` begins as a copy of `in`, but for an x[0] that changes. `index`: the sample's
   place in the first stage. Not 0 is an error of the run (MIRT_E_CALLBACK), which names the stage, the
   code and the sample. It may be called from several threads at once and in any order: it must be thread safe. */
typedef int (*mirt_map_fn)(const void *const *in, void *const *out, int64_t index, void *user);
typedef struct mirt_map_desc {
    mirt_map_fn fn;
    void *user;
    mirt_dtype dtype;  /* of x[0] behind it, and */
    mirt_shape shape;  /* its shape; left zero, both stay as they are */
    bool add_weights;  /* samples get a weight, 1 unless fn writes another */
    const char *name;  /* for errors; default "mirt_map" */
} mirt_map_desc;
/* Calls fn for every sample; comes before mirt_batch. Random access stays, and where there is any the threads
   of the batch or cache stage behind it make the samples. Copies desc. tf.data: map. */
MIRT_API mirt_dataset *mirt_map(mirt_dataset *dataset, const mirt_map_desc *desc);
/* Groups samples into *global* batches; the last may be smaller. tf.data: batch. */
MIRT_API mirt_dataset *mirt_batch(mirt_dataset *dataset, int64_t batch);
/* The same without a last batch that is not full. tf.data: batch(drop_remainder=True). */
MIRT_API mirt_dataset *mirt_batch_drop_remainder(mirt_dataset *dataset, int64_t batch);
/* Threads that make the samples of costly stages (images, maps) for each batch and cache stage of this data set: 1 to
   256, or MIRT_AUTOTUNE, the default: what the time lost in waiting asks for, at most a thread a core. No number changes
   a sample or its place. Comes before the first epoch (MIRT_E_STATE). tf.data: num_parallel_calls. */
MIRT_API mirt_status mirt_dataset_workers(mirt_dataset *dataset, int workers);
/* Joins `batches` batches into one step: equal in bits to one batch that many times as large with that
   many times the replicas. Comes after mirt_batch. Keras: gradient_accumulation_steps. */
MIRT_API mirt_dataset *mirt_accumulate(mirt_dataset *dataset, int batches);
/* Prepares up to `depth` batches ahead in a worker thread, unless there is nothing to prepare.
   MIRT_AUTOTUNE: 2, and more if the consumer has to wait. Also MIRT_E_THREAD. tf.data: prefetch. */
MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth);
/* Samples in one epoch, and batches (steps, behind mirt_accumulate); -1: without an end; 0 for NULL, and
   batches before mirt_batch. */
MIRT_API int64_t mirt_dataset_size(const mirt_dataset *dataset);
MIRT_API int64_t mirt_dataset_batches(const mirt_dataset *dataset);

/* Copies all samples into arrays, in the order of the pass that mirt_dataset_read reads without a description: inputs,
   labels and weights of the data set's own types, of shape [samples, ...]. Batches are joined; images that
   MIRT_CORRUPT_SKIP leaves out are missing. The arrays belong to the caller: mirt_data_free. They may go to
   mirt_fit_arrays or mirt_arrays_of as they are. MIRT_E_INVALID: no end is known (mirt_repeat, a generator that is a
   stream); mirt_take gives one. Other errors as of mirt_dataset_read. Keras: datasets.mnist.load_data() is this of
   mirt_mnist. */
MIRT_API mirt_status mirt_dataset_arrays(mirt_dataset *dataset, mirt_data *out);
/* Which pass of a data set is read. Zero: the first of a strategy with the default seed. */
typedef struct mirt_read_desc {
    int64_t epoch; /* from 0; mirt_fit counts on from fit to fit. Validation data are always read as of epoch 0 */
    uint64_t seed; /* of the strategy (mirt_strategy_desc) */
} mirt_read_desc;
/* Copies element `index` of a pass into arrays: a batch, or where there is no mirt_batch one sample, as [rows, ...].
   It is the element that mirt_fit trains on in that pass, bit for bit: shuffled, mapped and augmented. The call makes
   a pass of its own from the first stage on and is the first epoch for mirt_cache and mirt_dataset_workers; passes
   before and after it are as without it. It reads only this element where the stages have random access, otherwise all
   elements up to it. The arrays belong to the caller: mirt_data_free; on failure they are empty. desc NULL: zeros.
   MIRT_E_INVALID: no such element; MIRT_E_STATE: mirt_fit is training on the data set, or mirt_dataset_next is in the
   middle of an epoch; MIRT_E_SHAPE: samples of MIRT_MAX_RANK dimensions; MIRT_E_NOMEM; and what reading samples may
   give. tf.data: take(1), skip(index). */
MIRT_API mirt_status mirt_dataset_read(mirt_dataset *dataset, int64_t index, const mirt_read_desc *desc,
                                       mirt_data *out);
/* Frees arrays that mirt_dataset_arrays, mirt_dataset_read or mirt_to_categorical made, and no others, and empties the
   structure. NULL and empty arrays are allowed. Thread safe. */
MIRT_API void mirt_data_free(mirt_data *data);
/* The same for one array. Thread safe. */
MIRT_API void mirt_array_free(mirt_array *array);
/* Class numbers [n] or [n, 1] as one-hot rows, float32 [n, classes], into *out: mirt_array_free. `classes` 0: the
   largest label plus 1. MIRT_E_INVALID: a label that is none of the classes, with its sample; MIRT_E_SHAPE,
   MIRT_E_NOMEM. Any thread at any time. Keras: utils.to_categorical. */
MIRT_API mirt_status mirt_to_categorical(mirt_array labels, int64_t classes, mirt_array *out);

/* Names of the classes 0, 1, ...: copied, and kept by all stages behind this one. MNIST's and the
   drawn digits' are "0" to "9". */
MIRT_API mirt_status mirt_set_class_names(mirt_dataset *dataset, const char *const *names, int count);
/* NULL and a count of 0 without names. Valid until names are set again or the data set is destroyed. */
MIRT_API const char *const *mirt_class_names(const mirt_dataset *dataset, int *count);
/* NULL is allowed. Refused while mirt_fit trains on it (MIRT_E_STATE); its validation data have to live as long. */
MIRT_API void mirt_dataset_destroy(mirt_dataset *dataset);

#include "api/images.inc"

#include "api/models.inc"

#include "api/augment.inc"

#include "api/optimizers.inc"

#include "api/training.inc"

#include "api/timing.inc"
#include "api/checks.inc"

#ifdef __cplusplus
}
#endif

#endif /* MIRRORTRAIN_H */

/* A system header that was included before this one has hidden the POSIX names. */
#if defined(MIRRORTRAIN_IMPLEMENTATION) && !defined(MIRRORTRAIN_IMPLEMENTED)
#include <time.h>
#ifndef CLOCK_MONOTONIC
#error "mirrortrain.h: with -std=c11 include it before any system header, or define _POSIX_C_SOURCE as 200809L"
#undef MIRRORTRAIN_IMPLEMENTATION
#endif
#endif
