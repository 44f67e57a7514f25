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

   WHAT IT DOES
   ============
   A program records its network once; mirrortrain differentiates it, plans its
   memory, gives one copy of the weights to every device, adds up the gradients
   of all replicas in every step, and replays that step as fast as the machine
   allows. Layers, losses, optimizers, names and defaults are those of Keras:

   - layers: input, rescale, dense, conv2d, max and average pooling, global
     average pooling, flatten, dropout, activation; arithmetic with broadcasting,
     matmul, reductions, reshape, cast and one_hot for layers of your own
   - losses: binary, categorical and sparse categorical cross-entropy, mean
     squared error; optimizers: Adam, SGD with momentum and Nesterov
   - the mirrored strategy: any number of replicas on any number of devices; a
     CPU device is a set of cores with threads of its own
   - data from arrays, from IDX files (MNIST, plain or .gz), or drawn by the
     library: several inputs, several labels, sample weights; cache, shuffle,
     take, skip, repeat, map, batch, accumulate, prefetch
   - fit, evaluate, predict, callbacks, history; one step by hand
   - one .safetensors file a model, with its architecture: loading needs no model
     code

   Trained weights are the same bits for 1, 2, 3 ... devices and any number of
   threads, as long as the number of replicas stays the same. The gradient is the
   sum over the global batch divided by its true size, whatever the remainder.

   WHAT IT DOES NOT DO
   ===================
   - GPUs, several machines, batch normalization, images in other formats than
     IDX: not in this version
   - float64, float16 and bfloat16: tensors are float32, int32 or uint8
   - change the program behind your back: no files but those you name, no
     network, no signal handlers, no output but through the log, and never exit
     or abort

   STEP BY STEP
   ============
   A whole program. It is also the shape of most others:

       begin example
       #define MIRRORTRAIN_IMPLEMENTATION
       #include "mirrortrain.h"
       #include <stdio.h>

       int main(void) {
           // 1. A strategy: where to train. NULL: all cores as one device; "2": two devices.
           mirt_strategy *strategy = mirt_mirrored("2");
           int batch = 32 * mirt_num_replicas(strategy); // a batch is always the global batch

           // 2. Data: stages, each owning the one before. MNIST: mirt_mnist("data/mnist", MIRT_TRAIN).
           mirt_dataset *train = mirt_drawn_digits(2000, 0, MIRT_TRAIN);
           mirt_dataset *test = mirt_drawn_digits(500, 0, MIRT_TEST);
           train = mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(train), 2000), batch), MIRT_AUTOTUNE);
           test = mirt_batch(test, batch);

           // 3. A model: recorded once. In descriptors zero means default.
           mirt_model *model = mirt_model_create(strategy, "digits");
           mirt_tensor *x = mirt_input(model, MIRT_SHAPE(28, 28, 1));
           x = mirt_rescale(x, 1.0f / 255, 0);
           x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 8, .kernel = {3, 3}, .activation = MIRT_RELU});
           x = mirt_max_pool2d(x, NULL);
           x = mirt_dropout(mirt_flatten(x), 0.25f);
           x = mirt_dense(x, &(mirt_dense_desc){.units = 10});
           mirt_model_output(model, x);

           // 4. Optimizer, loss, metrics.
           mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f),
               .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true, .metrics = {MIRT_ACCURACY}});

           // 5. Train. Errors of all calls above were handed on to here.
           mirt_history *history = mirt_fit(model, train, &(mirt_fit_desc){.epochs = 2, .validation = test});
           if (!history) {
               fprintf(stderr, "%s\n", mirt_last_error());
               return 1;
           }
           printf("accuracy %.3f\n", mirt_history_last(history, "val_accuracy"));

           // 6. Save, and load under another strategy: the same bits.
           mirt_logs logs;
           mirt_strategy *other = mirt_mirrored(NULL);
           mirt_model *loaded = NULL;
           if (mirt_save(model, "digits.safetensors", MIRT_SAVE_ALL) == MIRT_OK) loaded = mirt_load(other, "digits.safetensors");
           if (!loaded || mirt_evaluate(loaded, test, &logs) != MIRT_OK) {
               fprintf(stderr, "%s\n", mirt_last_error());
               return 1;
           }
           printf("loaded: %s %.3f\n", logs.name[1], logs.value[1]);

           // 7. What a strategy or dataset created dies with it.
           mirt_dataset_destroy(train);
           mirt_dataset_destroy(test);
           mirt_strategy_destroy(other);
           mirt_strategy_destroy(strategy);
           return 0;
       }
       end example

   Data in memory goes straight in, borrowed, not copied; one step at a time, if
   the loop is to be yours:

       begin example
       #define MIRRORTRAIN_IMPLEMENTATION
       #include "mirrortrain.h"
       #include <stdio.h>

       int main(void) {
           static float x[64][2], y[64][1];
           for (int i = 0; i < 64; i++) {
               x[i][0] = (float)(i % 8) / 8;
               x[i][1] = (float)(i / 8) / 8;
               y[i][0] = 3 * x[i][0] - 2 * x[i][1] + 1;
           }
           mirt_array inputs = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(64, 2));
           mirt_array labels = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(64, 1));

           mirt_strategy *strategy = mirt_mirrored(NULL);
           mirt_model *model = mirt_model_create(strategy, "plane");
           mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(2)), &(mirt_dense_desc){.units = 1}));
           mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_sgd(0.3f, 0.9f, false), .loss = MIRT_MEAN_SQUARED_ERROR});

           double loss = 0;
           for (int step = 0; step < 200; step++) {
               if (mirt_train_step(model, inputs, labels, &loss) != MIRT_OK) {
                   fprintf(stderr, "%s\n", mirt_last_error());
                   return 1;
               }
           }
           float kernel[2], bias[1];
           mirt_get_weight(model, "dense/kernel", 0, kernel, 2);
           mirt_get_weight(model, "dense/bias", 0, bias, 1);
           printf("loss %.2g: %.2f x0 %+.2f x1 %+.2f\n", loss, kernel[0], kernel[1], bias[0]);
           mirt_strategy_destroy(strategy);
           return loss < 1e-4 ? 0 : 1;
       }
       end example

   From C++, which has no compound literals before C++20, fill a descriptor
   first: `mirt_dense_desc d = {}; d.units = 64; x = mirt_dense(x, &d);`

   ERRORS
   ======
   Functions return a mirt_status, or a pointer that is NULL when they failed;
   mirt_last_error() then says what went wrong in one sentence that names the
   culprit, and mirt_last_status() gives the code. Both belong to the calling
   thread. Recording and data stages are sticky: a call that is given NULL
   returns NULL, so that a chain is checked once, at mirt_compile or mirt_fit.
   A call that failed has changed nothing; a fit that failed keeps the weights
   of its last whole step.

   THREADS
   =======
   A strategy, and all that was created from it, belongs to one thread at a time;
   so does a dataset. Different strategies may be used by different threads at
   once: there is no global state but the error text of each thread and what was
   found out about the processor. A strategy starts its threads when it is
   created: they sleep between steps, or spin for microseconds where cores are
   free. Callbacks and the log run in the thread that called the library.

   MEMORY
   ======
   What a strategy creates dies with it, and so do its models; a dataset owns the
   stages it was made from. Arrays are borrowed. mirt_fit, mirt_evaluate and
   mirt_predict allocate before their first step and in no step; the same sizes
   are not asked for twice. mirt_plan_memory and mirt_summary say how many bytes
   that is. Weights, gradients and optimizer slots are one block each, and
   activations share one by their lifetimes.

   CONFIGURATION
   =============
   Define these before the implementation; they change nothing that other files
   see.

   MIRRORTRAIN_IMPLEMENTATION   create the implementation here
   MIRRORTRAIN_STATIC           make all functions static: a private copy for this
                                file; several files may have one each
   MIRRORTRAIN_MALLOC(size), MIRRORTRAIN_FREE(pointer)
                                both or none; instead of malloc and free. All
                                memory comes from there, but for the stacks of
                                threads; several threads may ask at once
   MIRRORTRAIN_OPEN(path, flags, mode), MIRRORTRAIN_CLOSE(fd),
   MIRRORTRAIN_STAT(path, info), MIRRORTRAIN_FSTAT(fd, info),
   MIRRORTRAIN_PREAD(fd, data, size, offset),
   MIRRORTRAIN_PWRITE(fd, data, size, offset), MIRRORTRAIN_FSYNC(fd),
   MIRRORTRAIN_RENAME(from, to), MIRRORTRAIN_UNLINK(path)
                                instead of POSIX's functions of these names, which
                                they behave like; no file is touched by any other
                                way. For a file system of your own define all of
                                them: reading asks of info st_mode (S_IFREG) and
                                st_size alone; a directory is only opened to be
                                synced after a file in it was replaced, which
                                errno = EACCES skips
   MIRRORTRAIN_NO_SIMD          plain C kernels only
   MIRRORTRAIN_NO_THREADS       no threads: one device of one thread

   The implementation sets _POSIX_C_SOURCE, so include it before any system
   header. With gcc it optimizes its kernels itself; with clang compile it at -O2
   or above. -march is never needed: the processor is asked at run time.

   Two environment variables are for tests: MIRT_CPU (plain, neon, avx2, avx512,
   reference) picks the kernels, MIRT_CORES the number of cores to pretend.
*/
#ifndef MIRRORTRAIN_H
#define MIRRORTRAIN_H

#define MIRT_VERSION_MAJOR 0
#define MIRT_VERSION_MINOR 1
#define MIRT_VERSION_PATCH 0
#define MIRT_VERSION_STRING "0.1.0"

/* The implementation needs POSIX names (threads, clocks), which -std=c11 hides unless this
   macro stands before the first system header. */
#if defined(MIRRORTRAIN_IMPLEMENTATION) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef MIRT_API
#ifdef MIRRORTRAIN_STATIC
#if defined(__GNUC__)
#define MIRT_API static __attribute__((unused))
#else
#define MIRT_API static
#endif
#else
#define MIRT_API extern
#endif
#endif

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
    X(MIRT_E_THREAD, "threads could not be started")

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

/* Element types. Pixels stay MIRT_UINT8 until a kernel reads them; a MIRT_BOOL is one byte, 0 or 1. */
typedef enum mirt_dtype { MIRT_FLOAT32 = 0, MIRT_INT32, MIRT_UINT8, MIRT_BOOL, MIRT__DTYPE_COUNT } mirt_dtype;

#define MIRT_MAX_RANK 6
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
   different strategies may be used by different threads at once. Any thread may create one at any time. */

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
   Ring and one device give other roundings on other numbers of devices. */
typedef enum mirt_collective {
    MIRT_COLLECTIVE_AUTO = 0, /* now MIRT_TREE: the same bits on any number of devices */
    MIRT_TREE, MIRT_RING, MIRT_REDUCE_TO_ONE_DEVICE
} mirt_collective;

/* Zero means default. */
typedef struct mirt_strategy_desc {
    const char *devices; /* NULL: every core as one device; "2": two equal shares of the cores; "cpu:0,cpu:1":
                            two devices of one core each, so that strategies can have cores of their own */
    int replicas;        /* logical replicas V; 0: one a device */
    int threads;         /* threads per device; 0: the device's cores. The system places them on cores */
    uint64_t seed;       /* of initial weights, dropout and shuffling */
    mirt_collective collective;
    mirt_log_fn log;     /* NULL: stderr */
    void *log_user;
    bool silent;         /* no log at all */
    mirt_strategy_kind kind;
} mirt_strategy_desc;

/* Keras: tf.distribute.MirroredStrategy(devices). `devices` as in mirt_strategy_desc; desc NULL: all
   defaults. Owns its threads. Returns NULL (MIRT_E_DEVICE, MIRT_E_INVALID: numbers that do not go
   together, MIRT_E_NOMEM, MIRT_E_THREAD). */
MIRT_API mirt_strategy *mirt_mirrored(const char *devices);
/* `device` as "cpu:1"; NULL: every core as one device. MIRT_E_INVALID: several devices. */
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
    char name[32];        /* "cpu:0" */
    char description[96]; /* instruction set and core count */
    int cores;
} mirt_device_info;
/* Fills up to `capacity` entries with what this machine has; returns how many there are.
   Thread safe: any thread at any time. */
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
#define MIRT_MAX_INPUTS 8
#define MIRT_MAX_OUTPUTS 8
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
/* Keeps every sample in memory, all read when the first epoch begins. Comes before mirt_batch.
   tf.data: cache. */
MIRT_API mirt_dataset *mirt_cache(mirt_dataset *dataset);
/* A new order every epoch, keyed by (strategy seed, epoch). Where the stage before has random
   access (arrays, cache, a part of these) it is a full permutation whatever `buffer`; otherwise a
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
   place in the first stage. Not 0 is an error of the run, which names the stage, the code and the
   sample. It may be called from several threads at once and in any order: it must be thread safe. */
typedef int (*mirt_map_fn)(const void *const *in, void *const *out, int64_t index, void *user);
typedef struct mirt_map_desc {
    mirt_map_fn fn;
    void *user;
    mirt_dtype dtype;  /* of x[0] behind it, and */
    mirt_shape shape;  /* its shape; left zero, both stay as they are */
    bool add_weights;  /* samples get a weight, 1 unless fn writes another */
    const char *name;  /* for errors; default "mirt_map" */
} mirt_map_desc;
/* Calls fn for every sample; comes before mirt_batch, and behind mirt_shuffle, since random access
   ends with it. Copies desc. tf.data: map. */
MIRT_API mirt_dataset *mirt_map(mirt_dataset *dataset, const mirt_map_desc *desc);
/* Groups samples into *global* batches; the last may be smaller. tf.data: batch. */
MIRT_API mirt_dataset *mirt_batch(mirt_dataset *dataset, int64_t batch);
/* Joins `batches` batches into one step: equal in bits to one batch that many times as large with that
   many times the replicas. Comes after mirt_batch. Keras: gradient_accumulation_steps. */
MIRT_API mirt_dataset *mirt_accumulate(mirt_dataset *dataset, int batches);
/* Prepares up to `depth` batches ahead in a worker thread, unless there is nothing to prepare.
   MIRT_AUTOTUNE: 2. Also MIRT_E_THREAD. tf.data: prefetch. */
MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth);
/* Samples in one epoch, and batches (steps, behind mirt_accumulate); -1: without an end; 0 for NULL, and
   batches before mirt_batch. */
MIRT_API int64_t mirt_dataset_size(const mirt_dataset *dataset);
MIRT_API int64_t mirt_dataset_batches(const mirt_dataset *dataset);
/* Names of the classes 0, 1, ...: copied, and kept by all stages behind this one. MNIST's and the
   drawn digits' are "0" to "9". */
MIRT_API mirt_status mirt_set_class_names(mirt_dataset *dataset, const char *const *names, int count);
/* NULL and a count of 0 without names. Valid until names are set again or the data set is destroyed. */
MIRT_API const char *const *mirt_class_names(const mirt_dataset *dataset, int *count);
/* NULL is allowed. Not while mirt_fit reads it. */
MIRT_API void mirt_dataset_destroy(mirt_dataset *dataset);

/* How a variable's new values on the replicas become one. tf.VariableAggregation. */
typedef enum mirt_aggregation {
    MIRT_AGGREGATE_NONE = 0, /* replicas must not write it */
    MIRT_AGGREGATE_MEAN,     /* weighted by the replicas' rows */
    MIRT_AGGREGATE_SUM,
    MIRT_AGGREGATE_FIRST     /* of the first replica */
} mirt_aggregation;

/* >>tensors ------------------------------------------------------------------------------- */
/* Threads: a model, its tensors and functions are for the one thread at a time that has their strategy. */

/* A model records layers and operations. Recording is sticky: a bad argument marks the model,
   the call returns NULL, calls given NULL hand it on, and mirt_compile returns the first error. */
typedef struct mirt_model mirt_model;
/* A node of a recorded graph; owned by its model or function. */
typedef struct mirt_tensor mirt_tensor;
/* A step of one's own, recorded once and replayed by every replica: see >>functions. */
typedef struct mirt_function mirt_function;

/* How a model that is called runs what differs in training: AUTO is as the model around it does. */
typedef enum mirt_training { MIRT_TRAINING_AUTO = 0, MIRT_TRAINING_ON, MIRT_TRAINING_OFF } mirt_training;

typedef enum mirt_padding { MIRT_VALID = 0, MIRT_SAME } mirt_padding;
typedef enum mirt_activation_kind {
    MIRT_LINEAR = 0, MIRT_RELU, MIRT_SIGMOID, MIRT_TANH, MIRT_SOFTMAX, MIRT_RELU6, MIRT_LEAKY_RELU /* slope 0.2 */, MIRT_ELU,
    MIRT_GELU, MIRT_SILU, MIRT_HARD_SIGMOID, MIRT_HARD_SWISH, MIRT_SOFTPLUS, MIRT__ACTIVATION_COUNT
} mirt_activation_kind;

/* With MIRT_ROWS in front where it is batched; rank 0 and MIRT_FLOAT32 for NULL. */
MIRT_API mirt_shape mirt_tensor_shape(const mirt_tensor *x);
MIRT_API mirt_dtype mirt_tensor_dtype(const mirt_tensor *x);

/* Elementwise arithmetic with numpy broadcasting, float32. */
MIRT_API mirt_tensor *mirt_add(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_subtract(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_multiply(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_divide(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_negative(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_square(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_relu(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_sigmoid(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_tanh(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_exp(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_log(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_sqrt(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_rsqrt(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_abs(mirt_tensor *x);
/* Gradients end at these two. */
MIRT_API mirt_tensor *mirt_sign(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_floor(mirt_tensor *x);
/* Between low and high, of which one may be infinite; the bounds themselves pass gradients on. */
MIRT_API mirt_tensor *mirt_clip(mirt_tensor *x, float low, float high);
MIRT_API mirt_tensor *mirt_power(mirt_tensor *x, float exponent);
/* x * scale + offset, as an operation; mirt_rescale is the layer. */
MIRT_API mirt_tensor *mirt_scale(mirt_tensor *x, float scale, float offset);
/* Of equals `a` has the gradient, as in TensorFlow. */
MIRT_API mirt_tensor *mirt_maximum(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_minimum(mirt_tensor *a, mirt_tensor *b);
/* Activations, as in keras.activations: gelu is the exact one, of the error function. */
MIRT_API mirt_tensor *mirt_relu6(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_leaky_relu(mirt_tensor *x, float slope);
MIRT_API mirt_tensor *mirt_elu(mirt_tensor *x, float alpha);
MIRT_API mirt_tensor *mirt_gelu(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_silu(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_hard_sigmoid(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_hard_swish(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_softplus(mirt_tensor *x);
/* Comparisons of two tensors of one dtype, with numpy broadcasting -> MIRT_BOOL, through which no
   gradient passes. Casts to and from bool: what is not 0 is true, which is 1. */
MIRT_API mirt_tensor *mirt_equal(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_not_equal(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_less(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_less_equal(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_greater(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_greater_equal(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_logical_and(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_logical_or(mirt_tensor *a, mirt_tensor *b);
MIRT_API mirt_tensor *mirt_logical_not(mirt_tensor *x);
/* a where the bool `condition` is true, otherwise b: of one dtype; all three broadcast. */
MIRT_API mirt_tensor *mirt_where(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b);
/* x itself, through which no gradient passes. */
MIRT_API mirt_tensor *mirt_stop_gradient(mirt_tensor *x);
/* A copy of `array`, all of its dimensions as given (rank 0: one number), where `like` is recorded. */
MIRT_API mirt_tensor *mirt_constant_tensor(mirt_tensor *like, mirt_array array);
/* Over the last axis. */
MIRT_API mirt_tensor *mirt_softmax(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_log_softmax(mirt_tensor *x);
/* [.., m, k] x [k, n]; transposes swap the last two axes first. Keras: ops.matmul. A batched left
   side is one matrix of rows; the right side is [k, n] (or [n, k] transposed). */
MIRT_API mirt_tensor *mirt_matmul(mirt_tensor *a, mirt_tensor *b, bool transpose_a, bool transpose_b);
/* Reductions over the axes whose bits are set in `axes` (bit 0 is the first axis); 0: all axes
   but the rows of a batched tensor. Reducing the rows themselves needs bit 0. */
MIRT_API mirt_tensor *mirt_reduce_sum(mirt_tensor *x, unsigned axes, bool keepdims);
MIRT_API mirt_tensor *mirt_reduce_mean(mirt_tensor *x, unsigned axes, bool keepdims);
MIRT_API mirt_tensor *mirt_reduce_max(mirt_tensor *x, unsigned axes, bool keepdims);
MIRT_API mirt_tensor *mirt_reduce_min(mirt_tensor *x, unsigned axes, bool keepdims);
/* The mean of squared distances from the mean. */
MIRT_API mirt_tensor *mirt_reduce_variance(mirt_tensor *x, unsigned axes, bool keepdims);
/* Below, `axis` counts as in mirt_tensor_shape, or from the end when negative, and arrays have an entry
   for every axis. The rows of a batched tensor are axis 0 and stay as they are: it cannot be `axis`.
   argmax, argmin: int32, the first of equals, with the axis gone; no gradient passes. */
MIRT_API mirt_tensor *mirt_argmax(mirt_tensor *x, int axis);
MIRT_API mirt_tensor *mirt_argmin(mirt_tensor *x, int axis);
MIRT_API mirt_tensor *mirt_cumsum(mirt_tensor *x, int axis);
/* Axis i of the result is axis permutation[i] of x; NULL reverses them (behind the rows). */
MIRT_API mirt_tensor *mirt_transpose(mirt_tensor *x, const int *permutation);
/* Of `n` tensors of one dtype whose shapes are equal but for `axis`. Keras: ops.concatenate. */
MIRT_API mirt_tensor *mirt_concat(mirt_tensor *const *x, int n, int axis);
/* Fills out[n] with equal parts and returns the first; all are NULL on error. */
MIRT_API mirt_tensor *mirt_split_tensor(mirt_tensor *x, int n, int axis, mirt_tensor **out);
/* size[i] elements from begin[i] on, -1: all that follow; of rows, 0 and -1. */
MIRT_API mirt_tensor *mirt_slice(mirt_tensor *x, const int64_t *begin, const int64_t *size);
/* `value` before and after x, nothing around rows; other dtypes than float32 take the value 0 only. */
MIRT_API mirt_tensor *mirt_pad(mirt_tensor *x, const int64_t *before, const int64_t *after, float value);
/* Rows of an unbatched `table` [n, ...] by int32 or uint8 indices of any shape -> [indices, ...]; an
   index outside [0, n) gives zeros. Keras: ops.take(table, indices, axis=0). */
MIRT_API mirt_tensor *mirt_gather(mirt_tensor *table, mirt_tensor *indices);
/* Per sample: the rows of a batched tensor stay first and are not named in `shape`. */
MIRT_API mirt_tensor *mirt_reshape(mirt_tensor *x, mirt_shape shape);
MIRT_API mirt_tensor *mirt_cast(mirt_tensor *x, mirt_dtype dtype);
/* int32, uint8 or bool indices -> float32 [.., depth]; an index outside [0, depth) gives zeros. */
MIRT_API mirt_tensor *mirt_one_hot(mirt_tensor *x, int64_t depth);

/* >>layers (names and defaults as in keras.layers) ---------------------------------------- */
/* Threads: a model and its layers are for the one thread at a time that has their strategy. Functions without
   a model or tensor among their arguments: any thread at any time. */

typedef enum mirt_initializer_kind {
    MIRT_INIT_DEFAULT = 0, MIRT_INIT_ZEROS, MIRT_INIT_ONES, MIRT_INIT_CONSTANT, MIRT_INIT_UNIFORM,
    MIRT_INIT_NORMAL, MIRT_INIT_TRUNCATED_NORMAL, MIRT_INIT_VARIANCE_SCALING, MIRT__INIT_COUNT
} mirt_initializer_kind;
typedef enum mirt_fan { MIRT_FAN_IN = 0, MIRT_FAN_OUT, MIRT_FAN_AVG } mirt_fan;
typedef enum mirt_distribution { MIRT_DIST_TRUNCATED_NORMAL = 0, MIRT_DIST_UNTRUNCATED_NORMAL, MIRT_DIST_UNIFORM } mirt_distribution;

/* Values by the functions below; all zeros: the layer's default. */
typedef struct mirt_initializer {
    mirt_initializer_kind kind;
    float a;  /* constant; minimum; mean; scale of VarianceScaling */
    float b;  /* maximum; standard deviation */
    mirt_fan mode;
    mirt_distribution distribution;
} mirt_initializer;

/* Every value the same, or drawn; the seed is the strategy's. */
MIRT_API mirt_initializer mirt_zeros(void);
MIRT_API mirt_initializer mirt_ones(void);
MIRT_API mirt_initializer mirt_constant(float value);
MIRT_API mirt_initializer mirt_random_uniform(float minimum, float maximum);
MIRT_API mirt_initializer mirt_random_normal(float mean, float stddev);
/* Normal values beyond two standard deviations are drawn again. */
MIRT_API mirt_initializer mirt_truncated_normal(float mean, float stddev);
MIRT_API mirt_initializer mirt_variance_scaling(float scale, mirt_fan mode, mirt_distribution distribution);
/* Glorot & Bengio 2010; He et al. 2015. */
MIRT_API mirt_initializer mirt_glorot_uniform(void);
MIRT_API mirt_initializer mirt_glorot_normal(void);
MIRT_API mirt_initializer mirt_he_uniform(void);
MIRT_API mirt_initializer mirt_he_normal(void);

/* Adds l1 * sum |w| + l2 * sum w^2 to the loss. Keras: regularizers.L1L2. */
typedef struct mirt_regularizer {
    float l1, l2;
} mirt_regularizer;

typedef struct mirt_dense_desc {
    int units;
    mirt_activation_kind activation;
    bool no_bias;
    mirt_initializer kernel_initializer; /* default glorot_uniform */
    mirt_initializer bias_initializer;   /* default zeros */
    mirt_regularizer kernel_regularizer, bias_regularizer;
    const char *name;                    /* default dense, dense_1, ... */
} mirt_dense_desc;

typedef struct mirt_conv2d_desc {
    int filters;
    int kernel[2];   /* height, width; {k, 0} means {k, k} */
    int strides[2];  /* default 1, 1; {s, 0} means {s, s}, here and below */
    int dilation[2]; /* default 1, 1 */
    int groups;      /* default 1 */
    mirt_padding padding;
    mirt_activation_kind activation;
    bool no_bias;
    mirt_initializer kernel_initializer; /* default glorot_uniform */
    mirt_initializer bias_initializer;   /* default zeros */
    mirt_regularizer kernel_regularizer, bias_regularizer;
    const char *name;
} mirt_conv2d_desc;

typedef struct mirt_depthwise_conv2d_desc {
    int kernel[2], strides[2], dilation[2]; /* as in mirt_conv2d_desc */
    int depth_multiplier;                   /* filters for each channel; default 1 */
    mirt_padding padding;
    mirt_activation_kind activation;
    bool no_bias;
    mirt_initializer depthwise_initializer; /* default glorot_uniform */
    mirt_initializer bias_initializer;      /* default zeros */
    mirt_regularizer depthwise_regularizer, bias_regularizer;
    const char *name;
} mirt_depthwise_conv2d_desc;

typedef struct mirt_separable_conv2d_desc {
    int filters;
    mirt_depthwise_conv2d_desc depthwise;   /* the first part, and bias, activation and name of the whole */
    mirt_initializer pointwise_initializer; /* default glorot_uniform */
    mirt_regularizer pointwise_regularizer;
} mirt_separable_conv2d_desc;

typedef struct mirt_pool2d_desc {
    int size[2];    /* default 2, 2; {k, 0} means {k, k} */
    int strides[2]; /* default: size; {s, 0} means {s, s} */
    mirt_padding padding;
    const char *name;
} mirt_pool2d_desc;

typedef struct mirt_global_pool2d_desc {
    bool max;      /* GlobalMaxPooling2D; otherwise GlobalAveragePooling2D */
    bool keepdims; /* (rows, 1, 1, c) */
    const char *name;
} mirt_global_pool2d_desc;

typedef struct mirt_up_sampling2d_desc {
    int size[2];   /* default 2, 2; {k, 0} means {k, k} */
    bool bilinear; /* otherwise the nearest pixel */
    const char *name;
} mirt_up_sampling2d_desc;

typedef struct mirt_batch_norm_desc {
    float momentum;    /* of the moving statistics; default 0.99: a momentum of 0 cannot be had */
    float epsilon;     /* default 1e-3 */
    bool no_center;    /* without beta */
    bool no_scale;     /* without gamma */
    bool synchronized; /* normalizes with the statistics of the global batch, not with a replica's own */
    mirt_initializer beta_initializer, gamma_initializer;                  /* default zeros, ones */
    mirt_initializer moving_mean_initializer, moving_variance_initializer; /* default zeros, ones */
    mirt_regularizer beta_regularizer, gamma_regularizer;
    const char *name;
} mirt_batch_norm_desc;

typedef struct mirt_layer_norm_desc {
    int axes;       /* how many of the last axes; default 1 */
    float epsilon;  /* default 1e-3 */
    bool no_center; /* without beta */
    bool no_scale;  /* without gamma */
    mirt_initializer beta_initializer, gamma_initializer; /* default zeros, ones */
    mirt_regularizer beta_regularizer, gamma_regularizer;
    const char *name;
} mirt_layer_norm_desc;

typedef struct mirt_relu_desc {
    float max_value;      /* 0: none */
    float negative_slope;
    float threshold;
    const char *name;
} mirt_relu_desc;

typedef struct mirt_prelu_desc {
    mirt_initializer alpha_initializer; /* default zeros */
    mirt_regularizer alpha_regularizer;
    int shared_axes;                    /* bits: 6 is height and width of images */
    const char *name;
} mirt_prelu_desc;

/* A model lives in its strategy and may be destroyed before it. Copies `name`, NULL being "model".
   Returns NULL (MIRT_E_INVALID, MIRT_E_NOMEM). */
MIRT_API mirt_model *mirt_model_create(mirt_strategy *strategy, const char *name);
/* NULL is allowed. */
MIRT_API void mirt_model_destroy(mirt_model *model);
/* `shape` is that of one sample: MIRT_SHAPE(28, 28, 1). Keras: Input. Data of another dtype is
   cast when it is read. */
MIRT_API mirt_tensor *mirt_input(mirt_model *model, mirt_shape shape);
/* x * scale + offset. Keras: Rescaling. */
MIRT_API mirt_tensor *mirt_rescale(mirt_tensor *x, float scale, float offset);
/* Kernel [in, units]; acts on the last axis. NULL desc is an error: units has no default. */
MIRT_API mirt_tensor *mirt_dense(mirt_tensor *x, const mirt_dense_desc *desc);
/* NHWC, kernel HWIO. SAME pads as TensorFlow: the odd pixel at the bottom and right. */
MIRT_API mirt_tensor *mirt_conv2d(mirt_tensor *x, const mirt_conv2d_desc *desc);
/* The transpose of a convolution: (rows, h, w, c) -> (rows, h * stride, w * stride, filters) with SAME. Kernel
   [h, w, filters, channels]; no groups. Keras: Conv2DTranspose without output_padding. */
MIRT_API mirt_tensor *mirt_conv2d_transpose(mirt_tensor *x, const mirt_conv2d_desc *desc);
/* Every channel by itself, kernel [h, w, channels, depth_multiplier]. Keras: DepthwiseConv2D. */
MIRT_API mirt_tensor *mirt_depthwise_conv2d(mirt_tensor *x, const mirt_depthwise_conv2d_desc *desc);
/* A depthwise convolution and a 1x1 one over its channels. Keras: SeparableConv2D. */
MIRT_API mirt_tensor *mirt_separable_conv2d(mirt_tensor *x, const mirt_separable_conv2d_desc *desc);
/* Of equal values in a window the first wins the gradient. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_max_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc);
/* Padding is not counted in the mean. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_average_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc);
/* (rows, h, w, c) -> (rows, c). */
MIRT_API mirt_tensor *mirt_global_average_pool2d(mirt_tensor *x);
/* Of equal values the first has the gradient. */
MIRT_API mirt_tensor *mirt_global_max_pool2d(mirt_tensor *x);
/* Either of them with what it may be told. NULL desc: the average. */
MIRT_API mirt_tensor *mirt_global_pool2d(mirt_tensor *x, const mirt_global_pool2d_desc *desc);
/* Zeros around an image; or the pixels at its edges taken off. Keras: ZeroPadding2D, Cropping2D. */
MIRT_API mirt_tensor *mirt_zero_padding2d(mirt_tensor *x, int top, int bottom, int left, int right);
MIRT_API mirt_tensor *mirt_cropping2d(mirt_tensor *x, int top, int bottom, int left, int right);
/* NULL desc: all defaults. Keras: UpSampling2D. */
MIRT_API mirt_tensor *mirt_up_sampling2d(mirt_tensor *x, const mirt_up_sampling2d_desc *desc);
/* (rows, ...) -> (rows, all the rest). */
MIRT_API mirt_tensor *mirt_flatten(mirt_tensor *x);
/* Inverted dropout, active in training only; 0 <= rate <= 1. Masks are keyed by (seed, step,
   layer, row in the global batch): another mask for every sample, the same for any number of
   devices. Srivastava et al. 2014. */
MIRT_API mirt_tensor *mirt_dropout(mirt_tensor *x, float rate);
MIRT_API mirt_tensor *mirt_activation(mirt_tensor *x, mirt_activation_kind kind);
/* Keras: ReLU, LeakyReLU, ELU, PReLU, Softmax over the last axis. The operations without _layer do the same without
   being a layer of the model. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_relu_layer(mirt_tensor *x, const mirt_relu_desc *desc);
MIRT_API mirt_tensor *mirt_leaky_relu_layer(mirt_tensor *x, float slope);
MIRT_API mirt_tensor *mirt_elu_layer(mirt_tensor *x, float alpha);
MIRT_API mirt_tensor *mirt_prelu(mirt_tensor *x, const mirt_prelu_desc *desc);
MIRT_API mirt_tensor *mirt_softmax_layer(mirt_tensor *x);
/* Over all axes but the last. In training with the batch's statistics, of each replica's own rows unless
   synchronized; otherwise with the moving ones. Weights gamma, beta, moving_mean, moving_variance; the last two
   are not trained, and all replicas' statistics, weighted by rows, move them in every step. Ioffe & Szegedy 2015.
   NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_batch_norm(mirt_tensor *x, const mirt_batch_norm_desc *desc);
/* Ba et al. 2016. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_layer_norm(mirt_tensor *x, const mirt_layer_norm_desc *desc);
/* Per sample, as mirt_reshape; one dimension may be -1: what is left. Keras: Reshape. */
MIRT_API mirt_tensor *mirt_reshape_layer(mirt_tensor *x, mirt_shape shape);
/* Axis i + 1 becomes axis dims[i], counted from 1 behind the rows: MIRT_SHAPE(3, 1, 2). Keras: Permute. */
MIRT_API mirt_tensor *mirt_permute(mirt_tensor *x, mirt_shape dims);
/* `count` tensors, 1 to 8, that differ in `axis` alone, -1 being the last. Keras: Concatenate. */
MIRT_API mirt_tensor *mirt_concatenate(mirt_tensor *const *in, int count, int axis);
/* `count` tensors, 1 to 8 (Subtract: 2), that broadcast. Keras: Add, Subtract, Multiply, Average, Maximum, Minimum. */
MIRT_API mirt_tensor *mirt_add_layer(mirt_tensor *const *in, int count);
MIRT_API mirt_tensor *mirt_subtract_layer(mirt_tensor *const *in, int count);
MIRT_API mirt_tensor *mirt_multiply_layer(mirt_tensor *const *in, int count);
MIRT_API mirt_tensor *mirt_average_layer(mirt_tensor *const *in, int count);
MIRT_API mirt_tensor *mirt_maximum_layer(mirt_tensor *const *in, int count);
MIRT_API mirt_tensor *mirt_minimum_layer(mirt_tensor *const *in, int count);
/* The name of the model's next layer, for those whose description has none: valid UTF-8 without '/', copied.
   Keras: layer(name=...). */
MIRT_API void mirt_next_name(mirt_model *model, const char *name);

/* A layer of your own: Keras's class Mine(Layer). What its build function records (operations, variables,
   other layers, which get names inside of its own) is the layer. */
typedef struct mirt_layer mirt_layer; /* while it is being built */
typedef enum mirt_field_kind { MIRT_FIELD_INT = 0, MIRT_FIELD_FLOAT, MIRT_FIELD_BOOL } mirt_field_kind;
/* A member of a layer's config that is saved: {"units", MIRT_FIELD_INT, offsetof(mine, units)}. */
typedef struct mirt_field {
    const char *name;
    mirt_field_kind kind; /* int, float, bool */
    size_t offset;
} mirt_field;
typedef struct mirt_layer_class {
    const char *class_name; /* "Mine"; the layers' default names are then mine, mine_1, ... */
    int inputs;             /* how many tensors it takes; 0: one; -1: one or more */
    size_t config_size;     /* of what `config` points to */
    const mirt_field *fields;
    int num_fields;
    /* Records the layer on in[0 .. num_in) and returns its output; NULL: it failed. `config` is a copy. Also
       called when a model is loaded, with what the file says: check it, and report by returning NULL. */
    mirt_tensor *(*build)(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user);
    void *user;             /* handed to build; must live as long as the strategy */
} mirt_layer_class;
/* Adds a layer to the model of its tensors; `config` (NULL only if config_size is 0) is copied, name NULL: the
   default. Registers the class too. */
MIRT_API mirt_tensor *mirt_custom_layer(const mirt_layer_class *layer_class, mirt_tensor *const *in, int num_in, const void *config, const char *name);
/* Copies the class, so that mirt_load finds it; the latest of a name holds. MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_register_layer(mirt_strategy *strategy, const mirt_layer_class *layer_class);
/* In build: a weight "layer/name"; an initializer of all zeros is glorot_uniform. Keras: add_weight. */
MIRT_API mirt_tensor *mirt_layer_variable(mirt_layer *layer, const char *name, mirt_shape shape, mirt_initializer initializer, bool trainable);
/* In build: adds a number made of weights alone, or one a sample, to the model's loss. Keras: add_loss. */
MIRT_API void mirt_layer_add_loss(mirt_layer *layer, mirt_tensor *loss);
/* Declares the model's output or outputs, batched float32; the last call before mirt_compile holds. */
MIRT_API void mirt_model_output(mirt_model *model, mirt_tensor *output);
MIRT_API void mirt_model_outputs(mirt_model *model, mirt_tensor *const *outputs, int count);

/* >>training ------------------------------------------------------------------------------ */
/* Threads: all functions on a model are for the one thread at a time that has its strategy; a history is read
   by that thread. Functions without either among their arguments: any thread at any time. */

/* The learning rate for 0-based `step`; must depend on its arguments alone. */
typedef float (*mirt_schedule_fn)(int64_t step, void *user);

typedef enum mirt_optimizer_kind { MIRT_ADAM = 0, MIRT_SGD, MIRT__OPTIMIZER_COUNT } mirt_optimizer_kind;
typedef struct mirt_optimizer {
    mirt_optimizer_kind kind;
    float learning_rate;
    float beta_1, beta_2, epsilon; /* Adam */
    float momentum;                /* SGD */
    bool nesterov;
    mirt_schedule_fn schedule;     /* overrides learning_rate when set */
    void *schedule_user;
} mirt_optimizer;

/* Keras Adam: beta_1 0.9, beta_2 0.999, epsilon 1e-7. Kingma & Ba 2015. */
MIRT_API mirt_optimizer mirt_adam(float learning_rate);
/* Keras SGD. Plain when momentum is 0. */
MIRT_API mirt_optimizer mirt_sgd(float learning_rate, float momentum, bool nesterov);

typedef enum mirt_loss {
    MIRT_LOSS_NONE = 0, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, MIRT_CATEGORICAL_CROSSENTROPY,
    MIRT_BINARY_CROSSENTROPY, MIRT_MEAN_SQUARED_ERROR, MIRT__LOSS_COUNT
} mirt_loss;
/* The default divides the sum over the global batch by its true size. MIRT_SUM does not; a loss over
   several batches then is, as in Keras, the mean of their sums, weighted by their sizes. */
typedef enum mirt_reduction { MIRT_SUM_OVER_BATCH_SIZE = 0, MIRT_SUM } mirt_reduction;
/* MIRT_ACCURACY becomes binary, sparse categorical or categorical accuracy by loss and shape, as in
   Keras; but for the binary one the output has to be (rows, classes). */
typedef enum mirt_metric { MIRT_METRIC_NONE = 0, MIRT_ACCURACY, MIRT__METRIC_COUNT } mirt_metric;
#define MIRT_MAX_METRICS 8

typedef struct mirt_compile_desc {
    mirt_optimizer optimizer; /* all zeros: mirt_adam(1e-3) */
    mirt_loss loss;
    bool from_logits;
    mirt_reduction reduction;
    mirt_metric metrics[MIRT_MAX_METRICS]; /* ends at the first MIRT_METRIC_NONE */
} mirt_compile_desc;

/* Checks the recorded model, creates its weights and fixes optimizer, loss and metrics; desc NULL: all
   defaults, which is enough to predict. A second call keeps the weights, and starts optimizer state
   and step count anew. Returns the first error of the model's recording, if any; MIRT_E_STATE,
   MIRT_E_SHAPE, MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_compile(mirt_model *model, const mirt_compile_desc *desc);

/* Named numbers of a moment in training: "loss", "accuracy", "val_loss", "learning_rate". */
typedef struct mirt_logs {
    int count;
    const char *name[2 * MIRT_MAX_METRICS + 4];
    double value[2 * MIRT_MAX_METRICS + 4];
} mirt_logs;

/* What a callback sees. `epoch`, `batch` and `step` are 0-based; `step` counts since the start of
   training, over all fits. */
typedef struct mirt_event {
    mirt_model *model;
    int epoch, epochs;     /* 0-based epoch, and the number fit was asked for */
    int64_t batch, batches;
    int64_t step;
    const mirt_logs *logs; /* batch end: so far in this epoch, and "batch_loss"; epoch end: with validation */
    double seconds;        /* since the epoch began */
} mirt_event;

/* A row of functions, each may be NULL; a non-zero return ends training cleanly, after which fit
   returns what it has. Called from the thread that called fit. */
typedef struct mirt_callback {
    void *user;
    int (*train_begin)(const mirt_event *event, void *user);
    int (*train_end)(const mirt_event *event, void *user);
    int (*epoch_begin)(const mirt_event *event, void *user);
    int (*epoch_end)(const mirt_event *event, void *user);
    int (*batch_begin)(const mirt_event *event, void *user);
    int (*batch_end)(const mirt_event *event, void *user);
} mirt_callback;
#define MIRT_MAX_CALLBACKS 16

/* The learning rate of 0-based `epoch`, given the rate in force. Keras: LearningRateScheduler. */
typedef float (*mirt_epoch_schedule_fn)(int epoch, float learning_rate, void *user);

typedef struct mirt_fit_desc {
    int epochs;                /* default 1 */
    int64_t batch;             /* global batch of a dataset without a batch stage; default 32 */
    mirt_dataset *validation;  /* borrowed */
    const mirt_callback *callbacks[MIRT_MAX_CALLBACKS]; /* borrowed; ends at the first NULL */
    mirt_epoch_schedule_fn learning_rate; /* asked at the beginning of every epoch */
    void *learning_rate_user;
    int64_t max_steps;         /* 0: no limit */
    bool no_progress;          /* leave the progress line out */
} mirt_fit_desc;

/* What fit returns; owned by the model, valid until its next fit. */
typedef struct mirt_history {
    int epochs;          /* epochs with at least one step */
    int64_t steps;       /* of this fit */
    const mirt_logs *epoch; /* [epochs] */
    double seconds;      /* spent in steps, callbacks between them included, validation and loading not */
    double images_per_second;
} mirt_history;

/* Keras: Model.fit. Trains on `dataset` (borrowed; callbacks leave it alone); allocates only before
   the first step. NULL on error (MIRT_E_STATE before mirt_compile or from a callback of fit,
   MIRT_E_SHAPE, MIRT_E_INVALID: labels, MIRT_E_NOMEM, and what the dataset's files may give). desc
   NULL: all defaults. */
MIRT_API mirt_history *mirt_fit(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc);
/* The same on arrays, shuffled every epoch as Keras does. */
MIRT_API mirt_history *mirt_fit_arrays(mirt_model *model, mirt_array x, mirt_array y, const mirt_fit_desc *desc);
/* The value named `name` of the last epoch, or NAN. */
MIRT_API double mirt_history_last(const mirt_history *history, const char *name);

/* Keras: Model.evaluate: "loss" and metrics, by the names in `out` (may be NULL). Sums over samples in
   their order in double precision: with the default reduction the same bits for any batch size,
   device or replica count. Errors as mirt_fit. */
MIRT_API mirt_status mirt_evaluate(mirt_model *model, mirt_dataset *dataset, mirt_logs *out);
MIRT_API mirt_status mirt_evaluate_arrays(mirt_model *model, mirt_array x, mirt_array y, mirt_logs *out);
/* Keras: Model.predict. Writes one output per sample, in the data set's order, to `out`, which
   holds `capacity` floats; too few are MIRT_E_SHAPE. Needs no loss and no labels. */
MIRT_API mirt_status mirt_predict(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity);
MIRT_API mirt_status mirt_predict_arrays(mirt_model *model, mirt_array x, float *out, size_t capacity);

/* One training step on one global batch of arrays (borrowed during the call); *loss, if asked
   for, is the exact mean over the batch (with MIRT_SUM its sum), before the update. Errors as
   mirt_fit; the model is then unchanged. */
MIRT_API mirt_status mirt_train_step(mirt_model *model, mirt_array x, mirt_array y, double *loss);
/* The four parts of a mirrored step, in this order; mirt_train_step is their sum, in the same
   bits. scatter borrows its arrays until grad has returned. Out of order: MIRT_E_STATE; anything
   else that runs the model in between starts over at scatter. */
MIRT_API mirt_status mirt_scatter(mirt_model *model, mirt_array x, mirt_array y);
MIRT_API mirt_status mirt_grad(mirt_model *model, double *loss);
MIRT_API mirt_status mirt_all_reduce(mirt_model *model);
MIRT_API mirt_status mirt_apply(mirt_model *model);
/* Rows of the last batch scattered or trained on that replica `replica` owns, and the first of them. */
MIRT_API int64_t mirt_replica_rows(const mirt_model *model, int replica, int64_t *first);

/* The learning rate the next step will use, 0 for NULL; set overrides a schedule (MIRT_E_INVALID: not
   a number, or negative). */
MIRT_API double mirt_get_learning_rate(const mirt_model *model);
MIRT_API mirt_status mirt_set_learning_rate(mirt_model *model, double rate);
/* Steps applied so far; 0 for NULL. */
MIRT_API int64_t mirt_step(const mirt_model *model);

/* >>weights and files --------------------------------------------------------------------- */
/* Threads: one at a time, that has the model's strategy; two that save to one path: one of the two files, whole. */

typedef struct mirt_weight_info {
    const char *name; /* "conv2d/kernel"; owned by the model */
    mirt_shape shape;
    int64_t count;
    bool trainable;
} mirt_weight_info;

/* Weights in the order in which their layers were recorded, `index` counting from 0. */
MIRT_API int mirt_num_weights(const mirt_model *model);
MIRT_API mirt_status mirt_weight(const mirt_model *model, int index, mirt_weight_info *out);
/* Copies device `device`'s copy of a weight, or of its gradient after mirt_grad (that device's own
   sum) or mirt_all_reduce (the sum over all replicas), into `out`, which holds `count` floats.
   MIRT_E_NOT_FOUND with the nearest right name, MIRT_E_DEVICE, MIRT_E_SHAPE: another count,
   MIRT_E_STATE: no gradients now. Before mirt_compile, get and set create the initial weights, after
   which no layer can be added. */
MIRT_API mirt_status mirt_get_weight(mirt_model *model, const char *name, int device, float *out, size_t count);
MIRT_API mirt_status mirt_get_gradient(mirt_model *model, const char *name, int device, float *out, size_t count);
/* Sets a weight on every device. */
MIRT_API mirt_status mirt_set_weight(mirt_model *model, const char *name, const float *values, size_t count);

typedef enum mirt_save_flags { MIRT_SAVE_ALL = 0, MIRT_SAVE_WEIGHTS_ONLY = 1 } mirt_save_flags;
/* One .safetensors file: weights under their Keras names, optimizer slots, architecture and
   compile settings as JSON in its metadata. The same model gives the same bytes. Replaces `path`
   atomically. A schedule is code and is not saved: the rate in force is. MIRT_E_STATE: not compiled,
   or made of more than layers (both fine with MIRT_SAVE_WEIGHTS_ONLY); MIRT_E_IO. */
MIRT_API mirt_status mirt_save(mirt_model *model, const char *path, mirt_save_flags flags);
/* Rebuilds a saved model under any strategy; ready to evaluate, predict and train on. NULL:
   MIRT_E_NOT_FOUND, MIRT_E_IO, MIRT_E_FORMAT or MIRT_E_SHAPE with file and tensor, MIRT_E_NOMEM. */
MIRT_API mirt_model *mirt_load(mirt_strategy *strategy, const char *path);
/* `data` is borrowed during the call. */
MIRT_API mirt_model *mirt_load_memory(mirt_strategy *strategy, const void *data, size_t size);
/* Weights by name into an existing model; every weight of the model must be there, with its shape,
   otherwise nothing is changed. Errors as mirt_load. */
MIRT_API mirt_status mirt_load_weights(mirt_model *model, const char *path);

/* >>looking inside ------------------------------------------------------------------------ */
/* Threads: one at a time, that has the model's strategy. */

/* Bytes a model asks for to train (without a loss: to predict) on global batches of `batch` rows: what
   is planned is what is allocated. Data are taken to be of the dtype seen last, uint8 at first. */
typedef struct mirt_memory {
    size_t weights;     /* per device: its copy of all variables */
    size_t gradients;   /* per device */
    size_t activations; /* per device: tensors of the step, by liveness */
    size_t scratch;     /* per device: threads' scratch and partial sums */
    size_t slots;       /* optimizer state, once for all devices that share memory */
    size_t host;        /* labels, losses and metrics of one global batch */
    size_t total;       /* devices * (weights + gradients + activations + scratch) + slots + host */
} mirt_memory;
/* NULL is an error: MIRT_E_STATE before mirt_compile, MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_plan_memory(mirt_model *model, int64_t batch, mirt_memory *out);

/* Keras: Model.summary: layers, shapes, parameters, multiply-accumulates, memory per device for
   global batches of `batch`. Owned by the model, valid until the next call. NULL before mirt_compile
   (MIRT_E_STATE), MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API const char *mirt_summary(mirt_model *model, int64_t batch);
/* The training step as text, before and after mirroring. Owned by the model, valid until the
   next call. Errors as mirt_summary; MIRT_E_STATE without a loss too. */
MIRT_API const char *mirt_graph_text(mirt_model *model, int64_t batch);

/* A ready-made network, not yet compiled: "mnist". NULL with the nearest right name otherwise. */
MIRT_API mirt_model *mirt_model_by_name(mirt_strategy *strategy, const char *name);

#ifdef __cplusplus
}
#endif

#endif /* MIRRORTRAIN_H */

#if defined(MIRRORTRAIN_IMPLEMENTATION) && !defined(MIRRORTRAIN_IMPLEMENTED)
#define MIRRORTRAIN_IMPLEMENTED

/* In .cu files nvcc hands the pragmas for gcc on, but warns of them. */
#if defined(__NVCC__) && defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif

/* >>section base/base.h */

#ifndef MIRT__BASE_H
#define MIRT__BASE_H
/* What every room stands on: linkage, errors, memory, random numbers, clock. */

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef CLOCK_MONOTONIC
#error "include mirrortrain.h with MIRRORTRAIN_IMPLEMENTATION before any system header, or define _POSIX_C_SOURCE as 200809L"
#endif

/* Internal functions: static in the single header, extern when src/ is compiled file by file. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__LIB extern
#else
#define MIRT__LIB static
#endif

#if defined(__GNUC__)
#define MIRT__PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define MIRT__PRINTF(text, first)
#endif

#if defined(MIRRORTRAIN_MALLOC) && defined(MIRRORTRAIN_FREE)
/* both given */
#elif !defined(MIRRORTRAIN_MALLOC) && !defined(MIRRORTRAIN_FREE)
#define MIRRORTRAIN_MALLOC(size) malloc(size)
#define MIRRORTRAIN_FREE(pointer) free(pointer)
#else
#error "define both of MIRRORTRAIN_MALLOC and MIRRORTRAIN_FREE, or neither"
#endif

/* The number type of MIRT_FLOAT32 tensors. Only the gradient tests make it double, and then
   only the reference kernels exist. */
#ifdef MIRT__REAL_DOUBLE
typedef double mirt__real;
#else
typedef float mirt__real;
#endif

#define MIRT__ALIGN 64
#define MIRT__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Errors: record the sentence for mirt_last_error() and return `status`. */
MIRT__LIB mirt_status mirt__fail(mirt_status status, const char *format, ...) MIRT__PRINTF(2, 3);
/* Puts "prefix: " before the sentence of the current error. */
MIRT__LIB mirt_status mirt__fail_at(const char *format, ...) MIRT__PRINTF(1, 2);
/* For a call that was given NULL: says that `what` is missing, and the thread's last failure, which
   is most likely why; its status is kept. */
MIRT__LIB mirt_status mirt__fail_missing(const char *caller, const char *what);
/* The sentence for out of memory; returns NULL so that allocation failures read `return mirt__no_memory(n)`. */
MIRT__LIB void *mirt__no_memory(size_t bytes);

/* Zeroed memory, any size including 0; NULL with the error set. count * size is overflow checked. */
MIRT__LIB void *mirt__calloc(size_t count, size_t size);
/* Grows `*pointer` (may be NULL) to hold `count` elements, keeping the first `used`; false with the
   error set and the old block intact. */
MIRT__LIB bool mirt__grow(void **pointer, size_t used, size_t count, size_t size);
MIRT__LIB void mirt__free(void *pointer);
/* Large blocks: aligned to MIRT__ALIGN, not zeroed. */
MIRT__LIB void *mirt__aligned_alloc(size_t bytes);
MIRT__LIB void mirt__aligned_free(void *pointer);
MIRT__LIB char *mirt__strdup(const char *text);

/* a * b and a + b into *out; false on overflow. */
MIRT__LIB bool mirt__mul_size(size_t a, size_t b, size_t *out);
MIRT__LIB bool mirt__add_size(size_t a, size_t b, size_t *out);
MIRT__LIB size_t mirt__align_up(size_t bytes);

/* A text that grows; after a failed append `failed` is set and further appends do nothing. */
typedef struct mirt__text {
    char *data; /* always ends in 0 once non-NULL */
    size_t size, capacity;
    bool failed;
} mirt__text;
MIRT__LIB void mirt__text_add(mirt__text *text, const char *format, ...) MIRT__PRINTF(2, 3);
MIRT__LIB void mirt__text_add_bytes(mirt__text *text, const void *data, size_t size);
MIRT__LIB void mirt__text_clear(mirt__text *text);
MIRT__LIB void mirt__text_free(mirt__text *text);

/* Objects of one lifetime: freed together. */
typedef struct mirt__pool_block mirt__pool_block;
typedef struct mirt__pool {
    mirt__pool_block *head;
} mirt__pool;
MIRT__LIB void *mirt__pool_alloc(mirt__pool *pool, size_t bytes); /* zeroed */
MIRT__LIB char *mirt__pool_strdup(mirt__pool *pool, const char *text);
MIRT__LIB void mirt__pool_free(mirt__pool *pool);

/* Monotonic seconds. */
MIRT__LIB double mirt__now(void);

/* Philox4x32-10 (Salmon et al. 2011): counter -> four words. */
MIRT__LIB void mirt__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* A stream of random numbers keyed by (seed, key); value i depends on nothing else. */
typedef struct mirt__random {
    uint64_t seed, key;
    uint64_t position; /* in blocks of four words */
    uint32_t word[4];
    int left;
} mirt__random;
MIRT__LIB mirt__random mirt__random_stream(uint64_t seed, uint64_t key);
MIRT__LIB uint32_t mirt__random_u32(mirt__random *random);
/* Uniform below `bound` > 0, without bias. */
MIRT__LIB uint64_t mirt__random_below(mirt__random *random, uint64_t bound);
/* [0, 1) with 24 bits; normal by Box-Muller. */
MIRT__LIB float mirt__random_unit(mirt__random *random);
MIRT__LIB double mirt__random_normal(mirt__random *random);
/* FNV-1a 64, for keys from names. */
MIRT__LIB uint64_t mirt__hash(const char *text);

MIRT__LIB size_t mirt__dtype_size(mirt_dtype dtype); /* of an element in device memory */
MIRT__LIB const char *mirt__dtype_name(mirt_dtype dtype);
/* "(rows, 28, 28, 1)" into `out`, which is also returned. */
MIRT__LIB const char *mirt__shape_text(const mirt_shape *shape, char out[96]);
/* Elements of one row of a batched shape, or of the whole of another; -1 on overflow. */
MIRT__LIB int64_t mirt__shape_count(const mirt_shape *shape);
MIRT__LIB bool mirt__shape_equal(const mirt_shape *a, const mirt_shape *b);
/* The candidate nearest to `word` in edits, or NULL when none is near. */
MIRT__LIB const char *mirt__nearest(const char *word, const char *const *candidates, int count);

#endif

/* >>section base/team.h */

#ifndef MIRT__TEAM_H
#define MIRT__TEAM_H
/* A team of long-lived threads; the caller is always member 0. */

typedef struct mirt__team mirt__team;

/* Starts size - 1 threads. Members spin for a short while between jobs only when `spin`: set it
   false when threads outnumber cores. NULL with the error set. */
MIRT__LIB mirt__team *mirt__team_create(int size, bool spin);
MIRT__LIB void mirt__team_destroy(mirt__team *team);
/* 1 for NULL: a NULL team is the caller alone. */
MIRT__LIB int mirt__team_size(const mirt__team *team);
/* Runs fn once on every member and returns when all have. */
MIRT__LIB void mirt__team_run(mirt__team *team, void (*fn)(void *arg, int member), void *arg);
/* Runs fn for every task in [0, tasks), claimed dynamically: which member runs a task must not
   matter to the result. */
MIRT__LIB void mirt__team_for(mirt__team *team, int64_t tasks, void (*fn)(void *arg, int64_t task, int member), void *arg);
/* All members of a running mirt__team_run wait here for each other. */
MIRT__LIB void mirt__team_barrier(mirt__team *team);

MIRT__LIB int mirt__cpu_cores(void);

#endif

/* >>section base/digest.h */

#ifndef MIRT__DIGEST_H
#define MIRT__DIGEST_H
/* Checksums of bytes: SHA-256 (FIPS 180-4) and CRC-32C (Castagnoli). */

#define MIRT__SHA256_HEX 65 /* 64 hexadecimal digits and the final 0 */

typedef struct mirt__sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[64];
} mirt__sha256;

MIRT__LIB void mirt__sha256_begin(mirt__sha256 *sha);
MIRT__LIB void mirt__sha256_add(mirt__sha256 *sha, const void *data, size_t size);
/* The digest as lower-case hexadecimal; `sha` is used up. */
MIRT__LIB void mirt__sha256_end(mirt__sha256 *sha, char out[MIRT__SHA256_HEX]);

/* Continues from the checksum of the bytes before; 0 to begin. */
MIRT__LIB uint32_t mirt__crc32c(uint32_t crc, const void *data, size_t size);

#endif

/* >>section base/file.h */

#ifndef MIRT__FILE_H
#define MIRT__FILE_H
/* Files: read piece by piece or whole, or replaced atomically. */

/* Opens a regular file for reading and says its size: MIRT_E_NOT_FOUND, MIRT_E_IO. *fd is -1 after a
   failure, which mirt__file_close allows. */
MIRT__LIB mirt_status mirt__file_open(const char *path, int *fd, uint64_t *size);
MIRT__LIB void mirt__file_close(int *fd);
/* Bytes read, fewer than `size` only at the end of the file; -1 and errno. */
MIRT__LIB int64_t mirt__file_read_at(int fd, uint64_t offset, void *data, size_t size);
/* False only if nothing is there. */
MIRT__LIB bool mirt__file_exists(const char *path);

/* Reads all of `path` into *data, which mirt__aligned_free frees; one zero byte follows the *size
   bytes. MIRT_E_NOT_FOUND, MIRT_E_IO, MIRT_E_NOMEM; MIRT_E_FORMAT above `limit` bytes. */
MIRT__LIB mirt_status mirt__file_read(const char *path, size_t limit, unsigned char **data, size_t *size);

/* A file that is written beside `path` under a temporary name and takes its place only when
   everything is on the disk. Until then, and after any failure, what was at `path` stays as it
   was. A symbolic link at `path` is replaced itself. Every begun writer ends in exactly one commit
   or abort. */
typedef struct mirt__file_writer {
    int fd;              /* -1: not begun, or ended */
    uint64_t size;       /* bytes appended */
    char *path, *temporary;
    mirt_status status;  /* the first failure; it makes all later calls fail */
} mirt__file_writer;

/* On failure there is nothing to abort (but abort is allowed). */
MIRT__LIB mirt_status mirt__file_begin(mirt__file_writer *writer, const char *path);
MIRT__LIB mirt_status mirt__file_append(mirt__file_writer *writer, const void *data, size_t size);
/* Overwrites bytes that were appended before. */
MIRT__LIB mirt_status mirt__file_patch(mirt__file_writer *writer, uint64_t offset, const void *data, size_t size);
/* The only failure after which the new file stands at `path` is that its directory could not be
   synced; the message says so. */
MIRT__LIB mirt_status mirt__file_commit(mirt__file_writer *writer);
MIRT__LIB void mirt__file_abort(mirt__file_writer *writer);

#endif

/* >>section base/cold_begin.inc */

/* What follows runs once or waits for kernels. gcc takes half the time to compile it this way;
   without optimization (for debuggers) nothing changes. a * b + c is never contracted: initial
   weights are the same whatever the flags. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC push_options
#pragma GCC optimize("O1,fp-contract=off")
#endif

/* >>section base/base.c */

/* Version, status texts, the thread's last error, shapes, element types, clock. */

MIRT_API const char *mirt_version(void) {
    return MIRT_VERSION_STRING;
}

MIRT_API const char *mirt_status_text(mirt_status status) {
    static const char *const texts[] = {
#define MIRT__STATUS_TEXT(code, text) text,
        MIRT_STATUS_LIST(MIRT__STATUS_TEXT)
#undef MIRT__STATUS_TEXT
    };
    int code = (int)status;
    return code >= 0 && code < MIRT__COUNT(texts) ? texts[code] : "unknown status";
}

#define MIRT__ERROR_SIZE 512

/* The library's only writable globals; per thread, so that different strategies may fail at once. */
static __thread char mirt__error_text[MIRT__ERROR_SIZE];
static __thread mirt_status mirt__error_status;

MIRT_API const char *mirt_last_error(void) {
    return mirt__error_text;
}

MIRT_API mirt_status mirt_last_status(void) {
    return mirt__error_status;
}

MIRT__LIB mirt_status mirt__fail(mirt_status status, const char *format, ...) {
    /* By way of a second buffer: an argument may be the current error itself. */
    char text[MIRT__ERROR_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(mirt__error_text, text, strlen(text) + 1);
    mirt__error_status = status;
    return status;
}

MIRT__LIB mirt_status mirt__fail_at(const char *format, ...) {
    char text[2 * MIRT__ERROR_SIZE + 4];
    va_list args;
    va_start(args, format);
    vsnprintf(text, MIRT__ERROR_SIZE, format, args);
    va_end(args);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, ": %s", mirt__error_text);
    text[MIRT__ERROR_SIZE - 1] = 0;
    memcpy(mirt__error_text, text, strlen(text) + 1);
    return mirt__error_status;
}

static const char mirt__error_before[] = "; the failure before it: ";

MIRT__LIB mirt_status mirt__fail_missing(const char *caller, const char *what) {
    if (mirt__error_status == MIRT_OK) return mirt__fail(MIRT_E_INVALID, "%s: no %s", caller, what);
    char cause[MIRT__ERROR_SIZE];
    const char *last = strstr(mirt__error_text, mirt__error_before);
    snprintf(cause, sizeof cause, "%s", last ? last + strlen(mirt__error_before) : mirt__error_text);
    return mirt__fail(mirt__error_status, "%s: no %s%s%s", caller, what, mirt__error_before, cause);
}

#undef MIRT__ERROR_SIZE

MIRT_API mirt_shape mirt_make_shape(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f) {
    const int64_t dims[MIRT_MAX_RANK] = {a, b, c, d, e, f};
    mirt_shape shape;
    memset(&shape, 0, sizeof shape);
    while (shape.rank < MIRT_MAX_RANK && dims[shape.rank] != 0) {
        shape.dim[shape.rank] = dims[shape.rank];
        shape.rank++;
    }
    return shape;
}

MIRT_API mirt_array mirt_make_array(const void *data, mirt_dtype dtype, mirt_shape shape) {
    mirt_array array;
    array.data = data;
    array.dtype = dtype;
    array.shape = shape;
    return array;
}

MIRT__LIB size_t mirt__dtype_size(mirt_dtype dtype) {
    switch (dtype) {
    case MIRT_FLOAT32: return sizeof(mirt__real);
    case MIRT_INT32: return sizeof(int32_t);
    case MIRT_UINT8:
    case MIRT_BOOL: return 1;
    default: return 0;
    }
}

MIRT__LIB const char *mirt__dtype_name(mirt_dtype dtype) {
    switch (dtype) {
    case MIRT_FLOAT32: return "float32";
    case MIRT_INT32: return "int32";
    case MIRT_UINT8: return "uint8";
    case MIRT_BOOL: return "bool";
    default: return "unknown dtype";
    }
}

MIRT__LIB const char *mirt__shape_text(const mirt_shape *shape, char out[96]) {
    size_t used = 0;
    out[used++] = '(';
    for (int i = 0; i < shape->rank && i < MIRT_MAX_RANK; i++) {
        /* The widest text, six full int64 and their commas, would not fit; it is cut short. */
        size_t room = 96 - used;
        const char *comma = i ? ", " : "";
        int wrote = shape->dim[i] == MIRT_ROWS
                        ? snprintf(out + used, room, "%srows", comma)
                        : snprintf(out + used, room, "%s%lld", comma, (long long)shape->dim[i]);
        if (wrote < 0 || (size_t)wrote + 2 > room) break;
        used += (size_t)wrote;
    }
    out[used++] = ')';
    out[used] = 0;
    return out;
}

MIRT__LIB int64_t mirt__shape_count(const mirt_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dim[i];
        if (i == 0 && dim == MIRT_ROWS) continue;
        if (dim < 0 || (dim > 0 && count > INT64_MAX / dim)) return -1;
        count *= dim;
    }
    return count;
}

MIRT__LIB bool mirt__shape_equal(const mirt_shape *a, const mirt_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

MIRT__LIB double mirt__now(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0.0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* >>section base/text.c */

/* Growing texts, and the word that was probably meant. */

/* Room for `more` bytes and the final 0. */
static bool mirt__text_reserve(mirt__text *text, size_t more) {
    size_t needed;
    if (text->failed) return false;
    if (!mirt__add_size(text->size, more, &needed) || !mirt__add_size(needed, 1, &needed)) {
        mirt__no_memory(SIZE_MAX);
        text->failed = true;
        return false;
    }
    if (needed <= text->capacity) return true;
    size_t capacity = text->capacity < 128 ? 128 : text->capacity;
    while (capacity < needed) capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
    void *data = text->data;
    if (!mirt__grow(&data, text->size, capacity, 1)) {
        text->failed = true;
        return false;
    }
    text->data = (char *)data;
    text->capacity = capacity;
    return true;
}

MIRT__LIB void mirt__text_add(mirt__text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        mirt__fail(MIRT_E_INVALID, "text could not be formatted");
        text->failed = true;
        return;
    }
    if (!mirt__text_reserve(text, (size_t)length)) return;
    va_start(args, format);
    vsnprintf(text->data + text->size, (size_t)length + 1, format, args);
    va_end(args);
    text->size += (size_t)length;
}

MIRT__LIB void mirt__text_add_bytes(mirt__text *text, const void *data, size_t size) {
    if (!mirt__text_reserve(text, size)) return;
    if (size) memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = 0;
}

MIRT__LIB void mirt__text_clear(mirt__text *text) {
    text->size = 0;
    text->failed = false;
    if (text->data) text->data[0] = 0;
}

MIRT__LIB void mirt__text_free(mirt__text *text) {
    mirt__free(text->data);
    memset(text, 0, sizeof *text);
}

#define MIRT__WORD_MAX 64

static int mirt__lower(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* Insertions, deletions, replacements and swaps of neighbours, letters of either case being equal.
   Both lengths are below MIRT__WORD_MAX. */
static int mirt__edit_distance(const char *a, int a_length, const char *b, int b_length) {
    int rows[3][MIRT__WORD_MAX + 1];
    for (int j = 0; j <= b_length; j++) rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3];
        const int *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            bool same = mirt__lower(a[i - 1]) == mirt__lower(b[j - 1]);
            int best = above[j - 1] + (same ? 0 : 1);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && mirt__lower(a[i - 1]) == mirt__lower(b[j - 2]) &&
                           mirt__lower(a[i - 2]) == mirt__lower(b[j - 1]);
            if (swapped && above2[j - 2] + 1 < best) best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

MIRT__LIB const char *mirt__nearest(const char *word, const char *const *candidates, int count) {
    const char *nearest = NULL;
    size_t length = word ? strlen(word) : 0;
    if (length == 0 || length >= MIRT__WORD_MAX) return NULL;
    /* One edit in three letters, and at least one. */
    int limit = length < 6 ? 1 : (int)length / 3;
    for (int i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        if (other >= MIRT__WORD_MAX) continue;
        int distance = mirt__edit_distance(word, (int)length, candidates[i], (int)other);
        if (distance <= limit) {
            nearest = candidates[i];
            limit = distance - 1;
        }
    }
    return nearest;
}

#undef MIRT__WORD_MAX

/* >>section base/memory.c */

/* Allocation by way of MIRRORTRAIN_MALLOC and MIRRORTRAIN_FREE, always checked. */

MIRT__LIB void *mirt__no_memory(size_t bytes) {
    mirt__fail(MIRT_E_NOMEM, "out of memory: %zu bytes were asked for", bytes);
    return NULL;
}

MIRT__LIB bool mirt__mul_size(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

MIRT__LIB bool mirt__add_size(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}

MIRT__LIB size_t mirt__align_up(size_t bytes) {
    return (bytes + (MIRT__ALIGN - 1)) & ~(size_t)(MIRT__ALIGN - 1);
}

MIRT__LIB void *mirt__calloc(size_t count, size_t size) {
    size_t bytes;
    if (!mirt__mul_size(count, size, &bytes)) return mirt__no_memory(SIZE_MAX);
    if (bytes == 0) bytes = 1;
    void *pointer = MIRRORTRAIN_MALLOC(bytes);
    if (!pointer) return mirt__no_memory(bytes);
    return memset(pointer, 0, bytes);
}

MIRT__LIB bool mirt__grow(void **pointer, size_t used, size_t count, size_t size) {
    void *bigger = mirt__calloc(count, size);
    if (!bigger) return false;
    if (*pointer && used) memcpy(bigger, *pointer, used * size);
    mirt__free(*pointer);
    *pointer = bigger;
    return true;
}

MIRT__LIB void mirt__free(void *pointer) {
    if (pointer) MIRRORTRAIN_FREE(pointer);
}

MIRT__LIB char *mirt__strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = (char *)mirt__calloc(size, 1);
    if (copy) memcpy(copy, text, size);
    return copy;
}

/* An aligned block asks the allocator for exactly this much more than its bytes: room to move its
   start up to the alignment, and before that start the pointer that is to be freed. */
#define MIRT__ALIGNED_EXTRA (MIRT__ALIGN + sizeof(void *))

MIRT__LIB void *mirt__aligned_alloc(size_t bytes) {
    size_t total;
    if (!mirt__add_size(bytes, MIRT__ALIGNED_EXTRA, &total)) return mirt__no_memory(bytes);
    char *base = (char *)MIRRORTRAIN_MALLOC(total);
    if (!base) return mirt__no_memory(bytes);
    size_t past = (size_t)((uintptr_t)(base + sizeof(void *)) & (MIRT__ALIGN - 1));
    char *start = base + sizeof(void *) + (past ? MIRT__ALIGN - past : 0);
    memcpy(start - sizeof(void *), &base, sizeof base);
    return start;
}

#undef MIRT__ALIGNED_EXTRA

MIRT__LIB void mirt__aligned_free(void *pointer) {
    if (!pointer) return;
    char *base;
    memcpy(&base, (char *)pointer - sizeof(void *), sizeof base);
    MIRRORTRAIN_FREE(base);
}

struct mirt__pool_block {
    mirt__pool_block *next;
    void *pad; /* keeps what follows aligned to 16 bytes */
};

MIRT__LIB void *mirt__pool_alloc(mirt__pool *pool, size_t bytes) {
    size_t total;
    if (!mirt__add_size(bytes, sizeof(mirt__pool_block), &total)) return mirt__no_memory(bytes);
    mirt__pool_block *block = (mirt__pool_block *)mirt__calloc(total, 1);
    if (!block) return NULL;
    block->next = pool->head;
    pool->head = block;
    return block + 1;
}

MIRT__LIB char *mirt__pool_strdup(mirt__pool *pool, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = (char *)mirt__pool_alloc(pool, size);
    if (copy) memcpy(copy, text, size);
    return copy;
}

MIRT__LIB void mirt__pool_free(mirt__pool *pool) {
    mirt__pool_block *block = pool->head;
    while (block) {
        mirt__pool_block *next = block->next;
        mirt__free(block);
        block = next;
    }
    pool->head = NULL;
}

/* >>section base/file.c */

/* Files on the disk, or wherever the program that includes this keeps them. */

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* Every access to a file goes through these; the manual says what they have to do. */
#ifndef MIRRORTRAIN_OPEN
#define MIRRORTRAIN_OPEN(path, flags, mode) open(path, flags, mode)
#endif
#ifndef MIRRORTRAIN_CLOSE
#define MIRRORTRAIN_CLOSE(fd) close(fd)
#endif
#ifndef MIRRORTRAIN_STAT
#define MIRRORTRAIN_STAT(path, info) stat(path, info)
#endif
#ifndef MIRRORTRAIN_FSTAT
#define MIRRORTRAIN_FSTAT(fd, info) fstat(fd, info)
#endif
#ifndef MIRRORTRAIN_PREAD
#define MIRRORTRAIN_PREAD(fd, data, size, offset) pread(fd, data, size, offset)
#endif
#ifndef MIRRORTRAIN_PWRITE
#define MIRRORTRAIN_PWRITE(fd, data, size, offset) pwrite(fd, data, size, offset)
#endif
#ifndef MIRRORTRAIN_FSYNC
#define MIRRORTRAIN_FSYNC(fd) fsync(fd)
#endif
#ifndef MIRRORTRAIN_RENAME
#define MIRRORTRAIN_RENAME(from, to) rename(from, to)
#endif
#ifndef MIRRORTRAIN_UNLINK
#define MIRRORTRAIN_UNLINK(path) unlink(path)
#endif

/* Systems refuse or shorten transfers beyond 2 GiB. */
#define MIRT__FILE_CHUNK ((size_t)1 << 30)

/* "path: what: reason" from errno. */
static mirt_status mirt__file_fail(const char *path, const char *what) {
    int code = errno;
    mirt_status status = code == ENOENT ? MIRT_E_NOT_FOUND : code == ENOMEM ? MIRT_E_NOMEM : MIRT_E_IO;
    return mirt__fail(status, "%s: %s: %s", path, what, strerror(code));
}

static mirt_status mirt__file_too_large(const char *path, size_t limit) {
    return mirt__fail(MIRT_E_FORMAT, "%s: the file is larger than the %zu bytes that are allowed here", path, limit);
}

static int mirt__file_open_as(const char *path, int flags, mode_t mode) {
    int fd;
    do fd = MIRRORTRAIN_OPEN(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

MIRT__LIB int64_t mirt__file_read_at(int fd, uint64_t offset, void *data, size_t size) {
    size_t done = 0;
    while (done < size) {
        size_t chunk = size - done < MIRT__FILE_CHUNK ? size - done : MIRT__FILE_CHUNK;
        ssize_t got = MIRRORTRAIN_PREAD(fd, (unsigned char *)data + done, chunk, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

MIRT__LIB bool mirt__file_exists(const char *path) {
    struct stat info;
    return MIRRORTRAIN_STAT(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

MIRT__LIB mirt_status mirt__file_open(const char *path, int *fd, uint64_t *size) {
    struct stat info;
    mirt_status status = MIRT_OK;
    *fd = mirt__file_open_as(path, O_RDONLY | O_NONBLOCK, 0); /* a pipe without a writer must not hold us */
    if (*fd < 0) return mirt__file_fail(path, "cannot open");
    if (MIRRORTRAIN_FSTAT(*fd, &info) != 0) status = mirt__file_fail(path, "cannot look at the file");
    else if (S_ISDIR(info.st_mode)) status = mirt__fail(MIRT_E_IO, "%s: is a directory, but must be a file", path);
    else if (!S_ISREG(info.st_mode)) status = mirt__fail(MIRT_E_IO, "%s: is not a regular file", path);
    *size = status == MIRT_OK ? (uint64_t)info.st_size : 0;
    if (status != MIRT_OK) mirt__file_close(fd);
    return status;
}

MIRT__LIB void mirt__file_close(int *fd) {
    if (*fd >= 0) MIRRORTRAIN_CLOSE(*fd); /* a descriptor that was only read from has nothing to lose */
    *fd = -1;
}

/* Room for `capacity` bytes and the final 0, keeping the first `used`. */
static bool mirt__file_reserve(unsigned char **data, size_t used, size_t capacity) {
    size_t bytes;
    if (!mirt__add_size(capacity, 1, &bytes)) return mirt__no_memory(SIZE_MAX) != NULL;
    unsigned char *bigger = (unsigned char *)mirt__aligned_alloc(bytes);
    if (!bigger) return false;
    if (used > 0) memcpy(bigger, *data, used);
    mirt__aligned_free(*data);
    *data = bigger;
    return true;
}

/* Reads to the end into *data, which the caller frees even after a failure. `expected` is a hint:
   a file may still be growing. */
static mirt_status mirt__file_read_all(const char *path, int fd, size_t expected, size_t limit, unsigned char **data,
                                       size_t *size) {
    size_t capacity = 0;
    for (;;) {
        if (*size == capacity) {
            /* One byte beyond what is expected, so that the end is seen without growing. */
            size_t wanted = capacity == 0 ? expected : capacity < limit / 2 ? capacity * 2 : limit;
            if (wanted < 4096) wanted = 4096;
            capacity = wanted + 1;
            if (!mirt__file_reserve(data, *size, capacity)) return mirt_last_status();
        }
        int64_t got = mirt__file_read_at(fd, *size, *data + *size, capacity - *size);
        if (got < 0) return mirt__file_fail(path, "cannot read");
        if (got == 0) break;
        *size += (size_t)got;
        if (*size > limit) return mirt__file_too_large(path, limit);
    }
    (*data)[*size] = 0;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__file_read(const char *path, size_t limit, unsigned char **data, size_t *size) {
    uint64_t expected;
    int fd;
    *data = NULL;
    *size = 0;
    if (limit > SIZE_MAX / 4) limit = SIZE_MAX / 4;
    mirt_status status = mirt__file_open(path, &fd, &expected);
    if (status == MIRT_OK && expected > limit) status = mirt__file_too_large(path, limit);
    if (status == MIRT_OK) status = mirt__file_read_all(path, fd, (size_t)expected, limit, data, size);
    mirt__file_close(&fd);
    if (status != MIRT_OK) {
        mirt__aligned_free(*data);
        *data = NULL;
        *size = 0;
    }
    return status;
}

/* Creates a file that did not exist before, next to the final one; names it in writer->temporary. */
static mirt_status mirt__file_create_temporary(mirt__file_writer *writer, size_t capacity, mode_t mode) {
    for (int attempt = 0; attempt < 1000; attempt++) {
        snprintf(writer->temporary, capacity, "%s.%ld-%d.tmp", writer->path, (long)getpid(), attempt);
        writer->fd = mirt__file_open_as(writer->temporary, O_WRONLY | O_CREAT | O_EXCL, mode);
        if (writer->fd >= 0) return MIRT_OK;
        if (errno != EEXIST) break;
    }
    return mirt__file_fail(writer->path, "cannot create a temporary file beside it");
}

static void mirt__file_forget(mirt__file_writer *writer) {
    mirt__free(writer->path);
    mirt__free(writer->temporary);
    writer->path = writer->temporary = NULL;
    writer->fd = -1;
}

MIRT__LIB mirt_status mirt__file_begin(mirt__file_writer *writer, const char *path) {
    struct stat info;
    memset(writer, 0, sizeof *writer);
    writer->fd = -1;
    bool exists = MIRRORTRAIN_STAT(path, &info) == 0;
    /* Replacing /dev/null or a pipe by a file would harm others. */
    if (exists && !S_ISREG(info.st_mode))
        return writer->status = mirt__fail(MIRT_E_IO, "%s: is not a regular file, so it cannot be replaced", path);
    size_t capacity = strlen(path) + 48;
    writer->path = mirt__strdup(path);
    writer->temporary = (char *)mirt__calloc(capacity, 1);
    /* What was private stays private. */
    mode_t mode = exists ? info.st_mode & 0777 : 0666;
    writer->status = MIRT_E_NOMEM;
    if (writer->path && writer->temporary) writer->status = mirt__file_create_temporary(writer, capacity, mode);
    if (writer->status != MIRT_OK) mirt__file_forget(writer);
    return writer->status;
}

MIRT__LIB mirt_status mirt__file_patch(mirt__file_writer *writer, uint64_t offset, const void *data, size_t size) {
    const unsigned char *from = (const unsigned char *)data;
    if (writer->status != MIRT_OK) return writer->status;
    while (size > 0) {
        size_t chunk = size < MIRT__FILE_CHUNK ? size : MIRT__FILE_CHUNK;
        ssize_t put = MIRRORTRAIN_PWRITE(writer->fd, from, chunk, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC;
        if (put <= 0) return writer->status = mirt__file_fail(writer->path, "cannot write");
        from += put;
        offset += (uint64_t)put;
        size -= (size_t)put;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__file_append(mirt__file_writer *writer, const void *data, size_t size) {
    mirt_status status = mirt__file_patch(writer, writer->size, data, size);
    if (status == MIRT_OK) writer->size += size;
    return status;
}

/* The directory `path` lies in, open for syncing: makes a rename last through a power failure. -1
   if that cannot be done. */
static int mirt__file_open_directory(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return mirt__file_open_as(".", O_RDONLY, 0);
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    char *directory = (char *)mirt__calloc(length + 1, 1);
    if (!directory) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(directory, path, length);
    int fd = mirt__file_open_as(directory, O_RDONLY, 0);
    int code = errno;
    mirt__free(directory);
    errno = code;
    return fd;
}

static bool mirt__file_sync(int fd) {
    int result;
    do result = MIRRORTRAIN_FSYNC(fd);
    while (result != 0 && errno == EINTR);
    /* Some file systems have no such call; the others mean it. */
    return result == 0 || errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
}

/* Puts the finished temporary file in place. */
static mirt_status mirt__file_replace(mirt__file_writer *writer, int directory) {
    if (!mirt__file_sync(writer->fd)) return mirt__file_fail(writer->path, "cannot bring the file to the disk");
    int fd = writer->fd;
    writer->fd = -1;
    /* After EINTR the descriptor is gone all the same, and its bytes are safe. */
    if (MIRRORTRAIN_CLOSE(fd) != 0 && errno != EINTR) return mirt__file_fail(writer->path, "cannot close the file");
    if (MIRRORTRAIN_RENAME(writer->temporary, writer->path) != 0)
        return mirt__file_fail(writer->path, "cannot put the new file in place of the old one");
    writer->temporary[0] = 0;
    if (directory >= 0 && !mirt__file_sync(directory))
        return mirt__file_fail(writer->path, "the new file is in place, but may not survive a power failure");
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__file_commit(mirt__file_writer *writer) {
    if (writer->status == MIRT_OK) {
        int directory = mirt__file_open_directory(writer->path);
        /* A directory one may write to but not read cannot be synced: that is no reason to lose the file. */
        if (directory < 0 && errno != EACCES) writer->status = mirt__file_fail(writer->path, "cannot open its directory");
        else writer->status = mirt__file_replace(writer, directory);
        if (directory >= 0) MIRRORTRAIN_CLOSE(directory);
    }
    mirt_status status = writer->status;
    mirt__file_abort(writer);
    return status;
}

MIRT__LIB void mirt__file_abort(mirt__file_writer *writer) {
    if (writer->fd >= 0) MIRRORTRAIN_CLOSE(writer->fd);
    if (writer->temporary && writer->temporary[0]) MIRRORTRAIN_UNLINK(writer->temporary);
    mirt__file_forget(writer);
}

#undef MIRT__FILE_CHUNK

/* >>section base/cold_end.inc */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC pop_options
#endif

/* >>section base/random.c */

/* Counter-based random numbers: the value at a position depends on seed, key and position only. */

MIRT__LIB void mirt__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

MIRT__LIB mirt__random mirt__random_stream(uint64_t seed, uint64_t key) {
    mirt__random random;
    memset(&random, 0, sizeof random);
    random.seed = seed;
    random.key = key;
    return random;
}

MIRT__LIB uint32_t mirt__random_u32(mirt__random *random) {
    if (random->left == 0) {
        const uint32_t counter[4] = {(uint32_t)random->position, (uint32_t)(random->position >> 32),
                                     (uint32_t)random->key, (uint32_t)(random->key >> 32)};
        const uint32_t key[2] = {(uint32_t)random->seed, (uint32_t)(random->seed >> 32)};
        mirt__philox(counter, key, random->word);
        random->position++;
        random->left = 4;
    }
    return random->word[4 - random->left--];
}

MIRT__LIB uint64_t mirt__random_below(mirt__random *random, uint64_t bound) {
    if (bound <= 1) return 0;
    if (bound <= UINT32_MAX) {
        /* Lemire 2019: multiply, and draw again only in the short biased stretch. */
        uint32_t small = (uint32_t)bound;
        uint64_t product = (uint64_t)mirt__random_u32(random) * small;
        if ((uint32_t)product < small) {
            uint32_t threshold = (uint32_t)(0u - small) % small;
            while ((uint32_t)product < threshold) product = (uint64_t)mirt__random_u32(random) * small;
        }
        return product >> 32;
    }
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    for (;;) {
        uint64_t value = mirt__random_u32(random);
        value |= (uint64_t)mirt__random_u32(random) << 32;
        if (value < limit) return value % bound;
    }
}

MIRT__LIB float mirt__random_unit(mirt__random *random) {
    return (float)(mirt__random_u32(random) >> 8) * (1.0f / 16777216.0f);
}

MIRT__LIB double mirt__random_normal(mirt__random *random) {
    double radius = ((double)mirt__random_u32(random) + 1.0) / 4294967296.0; /* (0, 1]: its logarithm is finite */
    double turn = (double)mirt__random_u32(random) / 4294967296.0;
    return sqrt(-2.0 * log(radius)) * cos(6.283185307179586 * turn);
}

MIRT__LIB uint64_t mirt__hash(const char *text) {
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++) {
        hash ^= (unsigned char)*text;
        hash *= 1099511628211u;
    }
    return hash;
}

/* >>section base/sha256.c */

static const uint32_t mirt__sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t mirt__sha256_rotate(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

static void mirt__sha256_block(uint32_t state[8], const unsigned char *in) {
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 16; i++, in += 4)
        w[i] = (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | (uint32_t)in[3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (mirt__sha256_rotate(x, 7) ^ mirt__sha256_rotate(x, 18) ^ x >> 3)
             + (mirt__sha256_rotate(y, 17) ^ mirt__sha256_rotate(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t sum1 = mirt__sha256_rotate(e, 6) ^ mirt__sha256_rotate(e, 11) ^ mirt__sha256_rotate(e, 25);
        uint32_t sum0 = mirt__sha256_rotate(a, 2) ^ mirt__sha256_rotate(a, 13) ^ mirt__sha256_rotate(a, 22);
        uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + mirt__sha256_k[i] + w[i];
        uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

MIRT__LIB void mirt__sha256_begin(mirt__sha256 *sha) {
    static const uint32_t start[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(sha->state, start, sizeof start);
    sha->length = 0;
}

MIRT__LIB void mirt__sha256_add(mirt__sha256 *sha, const void *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data;
    size_t have = (size_t)(sha->length % 64);
    sha->length += size;
    if (have > 0) {
        size_t take = size < 64 - have ? size : 64 - have;
        if (take > 0) memcpy(sha->block + have, at, take);
        if (have + take < 64) return;
        mirt__sha256_block(sha->state, sha->block);
        at += take;
        size -= take;
    }
    for (; size >= 64; size -= 64, at += 64) mirt__sha256_block(sha->state, at);
    if (size > 0) memcpy(sha->block, at, size);
}

MIRT__LIB void mirt__sha256_end(mirt__sha256 *sha, char out[MIRT__SHA256_HEX]) {
    uint64_t bits = sha->length * 8;
    size_t have = (size_t)(sha->length % 64);
    unsigned char tail[128] = {0x80};
    size_t padding = (have < 56 ? 56 : 120) - have;
    for (int i = 0; i < 8; i++) tail[padding + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    mirt__sha256_add(sha, tail, padding + 8);
    for (int i = 0; i < 64; i++) out[i] = "0123456789abcdef"[sha->state[i / 8] >> (28 - 4 * (i % 8)) & 15u];
    out[64] = 0;
}

/* >>section base/crc.c */

static uint32_t mirt__crc_byte(uint32_t crc) {
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
    return crc;
}

/* Four bytes at a time. The tables live on the stack, since filling them costs no more than a
   kilobyte of input does without them. */
static uint32_t mirt__crc_words(uint32_t crc, const unsigned char *at, size_t words) {
    uint32_t table[4][256];
    for (uint32_t i = 0; i < 256; i++) table[0][i] = mirt__crc_byte(i);
    for (int t = 1; t < 4; t++)
        for (int i = 0; i < 256; i++) table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 255u];
    for (; words > 0; words--, at += 4) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = table[3][crc & 255u] ^ table[2][(crc >> 8) & 255u] ^ table[1][(crc >> 16) & 255u] ^ table[0][crc >> 24];
    }
    return crc;
}

MIRT__LIB uint32_t mirt__crc32c(uint32_t crc, const void *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data;
    crc = ~crc;
    if (size >= 1024) {
        size_t words = size / 4;
        crc = mirt__crc_words(crc, at, words);
        at += 4 * words;
        size -= 4 * words;
    }
    for (; size > 0; size--) crc = mirt__crc_byte(crc ^ *at++);
    return ~crc;
}

/* >>section base/team.c */

/* Threads that wait for jobs, and the gates they wait at. */

#include <unistd.h>

MIRT__LIB int mirt__cpu_cores(void) {
    const char *pretended = getenv("MIRT_CORES"); /* lets tests run as on another machine */
    if (pretended && *pretended) {
        char *end;
        long cores = strtol(pretended, &end, 10);
        if (*end == 0 && cores > 0 && cores <= 4096) return (int)cores;
    }
#ifdef MIRRORTRAIN_NO_THREADS
    long online = 1;
#else
    long online = sysconf(_SC_NPROCESSORS_ONLN);
#endif
    return online < 1 ? 1 : online > 4096 ? 4096 : (int)online;
}

/* What mirt__team_for shares among the members. */
typedef struct mirt__team_loop {
    void (*fn)(void *arg, int64_t task, int member);
    void *arg;
    int64_t tasks;
    int64_t next; /* atomic: the first task nobody has claimed */
} mirt__team_loop;

static void mirt__team_loop_run(void *arg, int member) {
    mirt__team_loop *loop = (mirt__team_loop *)arg;
    for (;;) {
        int64_t task = __atomic_fetch_add(&loop->next, 1, __ATOMIC_RELAXED);
        if (task >= loop->tasks) return;
        loop->fn(loop->arg, task, member);
    }
}

MIRT__LIB void mirt__team_for(mirt__team *team, int64_t tasks, void (*fn)(void *arg, int64_t task, int member), void *arg) {
    if (tasks <= 1 || mirt__team_size(team) == 1) {
        for (int64_t task = 0; task < tasks; task++) fn(arg, task, 0);
        return;
    }
    mirt__team_loop loop;
    loop.fn = fn;
    loop.arg = arg;
    loop.tasks = tasks;
    loop.next = 0;
    mirt__team_run(team, mirt__team_loop_run, &loop);
}

#ifdef MIRRORTRAIN_NO_THREADS

struct mirt__team {
    int size;
};

MIRT__LIB mirt__team *mirt__team_create(int size, bool spin) {
    (void)spin;
    if (size < 1) {
        mirt__fail(MIRT_E_INVALID, "a team of %d threads: at least 1 is needed", size);
        return NULL;
    }
    if (size > 1) {
        mirt__fail(MIRT_E_THREAD, "a team of %d threads needs a build without MIRRORTRAIN_NO_THREADS", size);
        return NULL;
    }
    mirt__team *team = (mirt__team *)mirt__calloc(1, sizeof(mirt__team));
    if (team) team->size = 1;
    return team;
}

MIRT__LIB void mirt__team_destroy(mirt__team *team) {
    mirt__free(team);
}

MIRT__LIB int mirt__team_size(const mirt__team *team) {
    return team ? team->size : 1;
}

MIRT__LIB void mirt__team_run(mirt__team *team, void (*fn)(void *arg, int member), void *arg) {
    (void)team;
    fn(arg, 0);
}

MIRT__LIB void mirt__team_barrier(mirt__team *team) {
    (void)team;
}

#else

#include <pthread.h>

/* Waking a sleeper costs more than this; spinning longer would burn a core between steps. */
#define MIRT__SPIN_SECONDS 20e-6

/* A counter to wait at: whoever waits for it to leave a value spins for a while, then sleeps.
   Aligned so that waiting at one gate does not slow down another. */
typedef struct mirt__gate {
    uint32_t value;    /* atomic */
    uint32_t sleepers; /* atomic; changed under the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    bool ready; /* mutex and condition exist */
} __attribute__((aligned(MIRT__ALIGN))) mirt__gate;

typedef struct mirt__team_member {
    mirt__team *team;
    int number;
    pthread_t thread;
} mirt__team_member;

struct mirt__team {
    mirt__gate work;    /* moves when a job is there */
    mirt__gate done;    /* moves when the last worker has finished a job */
    mirt__gate barrier; /* moves when the last member has arrived */
    /* The job: written before `work` moves, read after. */
    void (*fn)(void *arg, int member);
    void *arg;
    int size, started;
    bool spin, quit;
    int unfinished __attribute__((aligned(MIRT__ALIGN))); /* atomic: workers still in the job */
    int arrived __attribute__((aligned(MIRT__ALIGN)));    /* atomic: members at the barrier */
    mirt__team_member *members;
};

static bool mirt__gate_create(mirt__gate *gate) {
    int code = pthread_mutex_init(&gate->mutex, NULL);
    if (code == 0) {
        code = pthread_cond_init(&gate->moved, NULL);
        if (code != 0) pthread_mutex_destroy(&gate->mutex);
    }
    gate->ready = code == 0;
    if (code != 0) mirt__fail(MIRT_E_THREAD, "a lock could not be made: %s", strerror(code));
    return gate->ready;
}

static void mirt__gate_destroy(mirt__gate *gate) {
    if (!gate->ready) return;
    pthread_cond_destroy(&gate->moved);
    pthread_mutex_destroy(&gate->mutex);
}

static uint32_t mirt__gate_value(const mirt__gate *gate) {
    return __atomic_load_n(&gate->value, __ATOMIC_ACQUIRE);
}

/* Moves the gate and wakes its sleepers. Either this thread sees the sleeper counted, or the
   sleeper, who looks again after counting itself, sees the new value: hence sequential consistency. */
static void mirt__gate_move(mirt__gate *gate) {
    __atomic_fetch_add(&gate->value, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&gate->sleepers, __ATOMIC_SEQ_CST) == 0) return;
    pthread_mutex_lock(&gate->mutex);
    pthread_cond_broadcast(&gate->moved);
    pthread_mutex_unlock(&gate->mutex);
}

static void mirt__spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__ __volatile__("pause");
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static bool mirt__gate_spin(const mirt__gate *gate, uint32_t old) {
    double end = 0.0;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            if (mirt__gate_value(gate) != old) return true;
            mirt__spin_pause();
        }
        double now = mirt__now();
        if (end == 0.0) end = now + MIRT__SPIN_SECONDS;
        if (now >= end) return false;
    }
}

/* Returns once the gate's value is not `old`. */
static void mirt__gate_wait(mirt__gate *gate, uint32_t old, bool spin) {
    if (spin ? mirt__gate_spin(gate, old) : mirt__gate_value(gate) != old) return;
    pthread_mutex_lock(&gate->mutex);
    __atomic_fetch_add(&gate->sleepers, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&gate->value, __ATOMIC_SEQ_CST) == old) pthread_cond_wait(&gate->moved, &gate->mutex);
    __atomic_fetch_sub(&gate->sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&gate->mutex);
}

static void *mirt__team_worker(void *arg) {
    mirt__team_member *self = (mirt__team_member *)arg;
    mirt__team *team = self->team;
    for (uint32_t job = 0;; job++) {
        mirt__gate_wait(&team->work, job, team->spin);
        if (team->quit) return NULL;
        team->fn(team->arg, self->number);
        if (__atomic_sub_fetch(&team->unfinished, 1, __ATOMIC_ACQ_REL) == 0) mirt__gate_move(&team->done);
    }
}

MIRT__LIB mirt__team *mirt__team_create(int size, bool spin) {
    if (size < 1) {
        mirt__fail(MIRT_E_INVALID, "a team of %d threads: at least 1 is needed", size);
        return NULL;
    }
    mirt__team *team = (mirt__team *)mirt__aligned_alloc(sizeof(mirt__team));
    if (!team) return NULL;
    memset(team, 0, sizeof *team);
    team->size = size;
    team->spin = spin;
    team->members = (mirt__team_member *)mirt__calloc((size_t)size, sizeof(mirt__team_member));
    bool fine = team->members && mirt__gate_create(&team->work) && mirt__gate_create(&team->done) &&
                mirt__gate_create(&team->barrier);
    for (int i = 1; fine && i < size; i++) {
        mirt__team_member *member = &team->members[i];
        member->team = team;
        member->number = i;
        int code = pthread_create(&member->thread, NULL, mirt__team_worker, member);
        if (code != 0) {
            mirt__fail(MIRT_E_THREAD, "thread %d of %d could not be started: %s", i, size - 1, strerror(code));
            fine = false;
        } else {
            team->started = i;
        }
    }
    if (fine) return team;
    mirt__team_destroy(team);
    return NULL;
}

MIRT__LIB void mirt__team_destroy(mirt__team *team) {
    if (!team) return;
    if (team->started > 0) {
        team->quit = true;
        mirt__gate_move(&team->work);
        for (int i = 1; i <= team->started; i++) pthread_join(team->members[i].thread, NULL);
    }
    mirt__gate_destroy(&team->work);
    mirt__gate_destroy(&team->done);
    mirt__gate_destroy(&team->barrier);
    mirt__free(team->members);
    mirt__aligned_free(team);
}

MIRT__LIB int mirt__team_size(const mirt__team *team) {
    return team ? team->size : 1;
}

MIRT__LIB void mirt__team_run(mirt__team *team, void (*fn)(void *arg, int member), void *arg) {
    if (mirt__team_size(team) == 1) {
        fn(arg, 0);
        return;
    }
    uint32_t done = mirt__gate_value(&team->done);
    team->fn = fn;
    team->arg = arg;
    __atomic_store_n(&team->unfinished, team->size - 1, __ATOMIC_RELAXED);
    mirt__gate_move(&team->work);
    fn(arg, 0);
    mirt__gate_wait(&team->done, done, team->spin);
}

MIRT__LIB void mirt__team_barrier(mirt__team *team) {
    if (mirt__team_size(team) == 1) return;
    uint32_t old = mirt__gate_value(&team->barrier);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == team->size) {
        __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
        mirt__gate_move(&team->barrier);
    } else {
        mirt__gate_wait(&team->barrier, old, team->spin);
    }
}

#undef MIRT__SPIN_SECONDS

#endif

/* >>section kernels/kernels.h */

#ifndef MIRT__KERNELS_H
#define MIRT__KERNELS_H
/* CPU kernels: pure functions on buffers. One table of function pointers per instruction set, all
   with the same arguments; the reference table is the obvious scalar version of each.

   The numerical law every table obeys (docs/architecture.md):
   - an output of a matrix product or convolution is one FMA chain in ascending k from zero
     (k = row-major order of kernel height, width, input channel); bias and activation come after;
   - a reduction over rows or space is cut into chunks fixed by shape alone, whose partials are
     summed by mirt__tree over ascending chunk numbers; no chunk belongs to a thread;
   - a row's result does not depend on the number of rows or its place among them.
   So AVX2, AVX-512 and NEON give the same bits, for any team. The reference table may round
   differently.

   All buffers are dense and row-major; kernels must not rely on alignment for correctness (a
   replica's rows may start anywhere in a user's array), and tails are not padded. `team` may be NULL (one thread). `scratch` is
   scratch_per_thread * team size bytes, aligned, where scratch_per_thread comes from the
   ..._scratch function of the call; `shared` likewise from ..._shared, once per call. These two
   depend on the arguments' shapes (at the largest row count), never on the table. */

/* Where a kernel runs. */
typedef struct mirt__where {
    mirt__team *team;
    void *scratch;             /* per-thread scratch, one after the other */
    size_t scratch_per_thread; /* bytes of each */
    void *shared;              /* partial sums of this call */
} mirt__where;

/* An input that is read as float: float32, or uint8/int32 converted, then x * scale + offset
   (one FMA) when `affine`. */
typedef struct mirt__reader {
    const void *data;
    mirt_dtype dtype;
    bool affine;
    float scale, offset;
} mirt__reader;

/* What happens to an output before it is stored: + bias[column], then activation (not softmax),
   or, for a gradient, * derivative of `mask_activation` given that activation's output `mask` at
   the same position. */
typedef struct mirt__epilogue {
    const mirt__real *bias;
    mirt_activation_kind activation;
    const mirt__real *mask;
    mirt_activation_kind mask_activation;
} mirt__epilogue;

/* c[m, n] = a[m, k] b[k, n]. a is read at a[i * a_row + p * a_col], one of a_row, a_col is 1;
   b likewise (b_col 1: rows of b are contiguous; b_row 1: b is transposed in memory); c rows are n apart.
   If column_sum is set it receives the sum over p of b[p, j], one chain of additions in ascending
   p (the bias gradient beside a weight gradient; b_col is 1 then). `reader` applies to a and needs
   a_col == 1 when it is not plain float32, except for weight gradients (a_row == 1). */
typedef struct mirt__gemm {
    int64_t m, n, k;
    mirt__reader a;
    int64_t a_row, a_col;
    const mirt__real *b;
    int64_t b_row, b_col;
    mirt__real *c;
    mirt__real *column_sum;
    mirt__epilogue epilogue;
} mirt__gemm;

/* NHWC x [rows, h, w, ci], kernel [kh, kw, ci / groups, co], y [rows, oh, ow, co]. */
typedef struct mirt__conv {
    int64_t rows, h, w, ci, oh, ow, co;
    int kh, kw, stride_h, stride_w, dilation_h, dilation_w, groups;
    int64_t pad_top, pad_left; /* zeros before; after follows from the rest. Padding is zero after the reader's affine. */
} mirt__conv;

typedef struct mirt__conv_forward {
    mirt__conv s;
    mirt__reader x;
    const mirt__real *kernel;
    mirt__real *y;
    mirt__epilogue epilogue;
} mirt__conv_forward;

typedef struct mirt__conv_input_grad {
    mirt__conv s;
    const mirt__real *dy, *kernel;
    mirt__real *dx;
    mirt__epilogue epilogue; /* mask only, over dx */
} mirt__conv_input_grad;

/* Chunks of whole images: mirt__conv_chunk_rows images each. db may be NULL. */
typedef struct mirt__conv_weight_grad {
    mirt__conv s;
    mirt__reader x;
    const mirt__real *dy;
    mirt__real *dkernel, *db;
} mirt__conv_weight_grad;

/* conv (stride 1, dilation 1, groups 1, no padding) + bias + relu + 2x2 max pooling of stride 2
   (VALID), for inputs that need no gradient. y is [rows, oh / 2, ow / 2, co]; `which` [same], one
   byte each, may be NULL: 0..3 the first place of the maximum in its window, row-major, or 4 when
   the pooled value is not > 0. The chain of the weight gradient visits windows in row-major order,
   within an image, and within a window its (up to one) live place. */
typedef struct mirt__conv_pool {
    mirt__conv s;
    mirt__reader x;
    const mirt__real *kernel, *bias; /* bias may be NULL */
    mirt__real *y;
    uint8_t *which;
} mirt__conv_pool;
typedef struct mirt__conv_pool_weight_grad {
    mirt__conv s;
    mirt__reader x;
    const mirt__real *dy;
    const uint8_t *which;
    mirt__real *dkernel, *db; /* db may be NULL */
} mirt__conv_pool_weight_grad;

typedef struct mirt__pool2d {
    int64_t rows, h, w, c, oh, ow;
    int kh, kw, stride_h, stride_w;
    int64_t pad_top, pad_left;
    const mirt__real *x; /* forward; dy for the gradients */
    mirt__real *y;       /* forward; dx for the gradients */
    int32_t *which;      /* max: place of the first maximum in its window, ky * kw + kx */
} mirt__pool2d;

typedef enum mirt__unary_kind {
    MIRT__COPY, MIRT__NEGATIVE, MIRT__SQUARE, MIRT__ACT_RELU, MIRT__ACT_SIGMOID, MIRT__ACT_TANH, MIRT__AFFINE,
    MIRT__EXP, MIRT__LOG, MIRT__SQRT, MIRT__RSQRT, MIRT__ABS, MIRT__SIGN, MIRT__FLOOR,
    MIRT__CLIP,           /* between scale and offset */
    MIRT__POWER,          /* to the power of scale */
    MIRT__ACT_RELU6,
    MIRT__ACT_LEAKY_RELU, /* x * scale below zero */
    MIRT__ACT_ELU,        /* (exp(x) - 1) * scale below zero */
    MIRT__ACT_GELU, MIRT__ACT_SILU, MIRT__ACT_HARD_SIGMOID, MIRT__ACT_HARD_SWISH, MIRT__ACT_SOFTPLUS
} mirt__unary_kind;
typedef enum mirt__binary_kind {
    MIRT__ADD, MIRT__SUBTRACT, MIRT__MULTIPLY, MIRT__DIVIDE,
    MIRT__MAXIMUM, MIRT__MINIMUM, /* not a number where a or b is none */
    MIRT__RELU_GRAD, MIRT__SIGMOID_GRAD, MIRT__TANH_GRAD, MIRT__RELU6_GRAD, /* a = dy, b = the activation's output */
    MIRT__LEAKY_RELU_GRAD, MIRT__ELU_GRAD, MIRT__GELU_GRAD, MIRT__SILU_GRAD, MIRT__HARD_SIGMOID_GRAD, /* a = dy, b = its input */
    MIRT__HARD_SWISH_GRAD, MIRT__SOFTPLUS_GRAD, MIRT__CLIP_GRAD, MIRT__POWER_GRAD
} mirt__binary_kind;

/* y = f(x), count elements; y may be x. */
typedef struct mirt__unary {
    mirt__unary_kind kind;
    int64_t count;
    const mirt__real *x;
    mirt__real *y;
    float scale, offset; /* MIRT__AFFINE: x * scale + offset, one FMA */
} mirt__unary;

/* y = f(a, b) over `rank` dimensions; a stride of 0 broadcasts. y is dense; y may be a or b where
   that one is not broadcast. */
typedef struct mirt__binary {
    mirt__binary_kind kind;
    int rank;
    int64_t dim[MIRT_MAX_RANK], a_stride[MIRT_MAX_RANK], b_stride[MIRT_MAX_RANK];
    const mirt__real *a, *b;
    mirt__real *y;
    float scale, offset; /* of the unary kind whose gradient it is */
} mirt__binary;

/* A bool is one byte, 0 or 1. */
typedef enum mirt__logic_kind {
    MIRT__IS_EQUAL, MIRT__IS_NOT_EQUAL, MIRT__IS_LESS, MIRT__IS_LESS_EQUAL, /* two of `dtype` -> bool */
    MIRT__AND, MIRT__OR, MIRT__NOT,                                         /* bools */
    MIRT__WHERE                                                             /* bool, two of `dtype` -> `dtype` */
} mirt__logic_kind;
/* Broadcasting as mirt__binary, over up to three inputs. */
typedef struct mirt__logic {
    mirt__logic_kind kind;
    mirt_dtype dtype;
    int rank;
    int64_t dim[MIRT_MAX_RANK], stride[3][MIRT_MAX_RANK];
    const void *in[3];
    void *y;
} mirt__logic;

typedef enum mirt__reduce_kind { MIRT__REDUCE_SUM, MIRT__REDUCE_MEAN, MIRT__REDUCE_MAX, MIRT__REDUCE_MIN } mirt__reduce_kind;
/* x of `rank` dimensions, those in `axes` reduced; y dense over the others. Sums over the reduced
   elements in row-major order, in chunks of MIRT__REDUCE_CHUNK elements, chunk partials by mirt__tree. */
typedef struct mirt__reduce {
    mirt__reduce_kind kind;
    int rank;
    unsigned axes;
    int64_t dim[MIRT_MAX_RANK];
    const mirt__real *x;
    mirt__real *y;
} mirt__reduce;
/* The gradient of MIRT__REDUCE_MAX and MIN: dy shared evenly by all equal maxima, as TensorFlow. */
typedef struct mirt__reduce_max_grad {
    mirt__reduce s; /* x and y of the forward call */
    const mirt__real *dy;
    mirt__real *dx;
} mirt__reduce_max_grad;
#define MIRT__REDUCE_CHUNK 256

/* Along the middle axis of x [outer, n, inner]. */
typedef enum mirt__scan_kind {
    MIRT__ARGMAX, MIRT__ARGMIN,   /* y int32 [outer, inner]: the first place of the extreme */
    MIRT__CUMSUM, MIRT__CUMSUM_BACK /* y as x: one chain of additions, ascending or descending */
} mirt__scan_kind;
typedef struct mirt__scan {
    mirt__scan_kind kind;
    int64_t outer, n, inner;
    const mirt__real *x;
    void *y;
} mirt__scan;

/* Copies elements of any dtype from one regular place to another: y[at with to] = x[at with from]
   for every index of `dim`. A stride of 0 in `from` repeats. */
typedef struct mirt__move {
    mirt_dtype dtype;
    int rank;
    int64_t dim[MIRT_MAX_RANK], from[MIRT_MAX_RANK], to[MIRT_MAX_RANK];
    const void *x;
    void *y;
} mirt__move;

/* y [count, width] = rows of x [n, width]; zeros where an index is none of 0 .. n - 1. The gradient
   (x [count, width] -> y [n, width]) adds up every row's x in ascending order. */
typedef struct mirt__gather {
    int64_t n, width, count;
    mirt_dtype dtype; /* of the indices: int32 or uint8 */
    const void *indices;
    const mirt__real *x;
    mirt__real *y;
} mirt__gather;

/* Over the last axis of [rows, n]. */
typedef struct mirt__softmax {
    int64_t rows, n;
    bool log; /* log(softmax(x)); gradient: dx = dy - exp(x) * sum(dy) */
    const mirt__real *x; /* forward: input; gradient: the softmax's output */
    const mirt__real *dy;
    mirt__real *y; /* forward: output; gradient: dx = x * (dy - sum(dy * x)) */
} mirt__softmax;

/* Per-sample losses of [rows, n] predictions, [rows] losses. Keras's formulas: probabilities are
   clipped to [1e-7, 1 - 1e-7] (categorical ones normalized by their sum first); binary and mean
   squared error average over n. labels: int32 [rows] for the sparse loss (already checked),
   otherwise float32 [rows, n]. With gradients, dx[r, j] = dloss[r] * d loss[r] / d x[r, j]. */
typedef struct mirt__loss {
    mirt_loss kind;
    bool from_logits;
    int64_t rows, n;
    const mirt__real *x;
    const void *labels;
    mirt__real *loss;        /* forward */
    const mirt__real *dloss; /* gradient: [rows] */
    mirt__real *dx;
} mirt__loss;

typedef enum mirt__accuracy_kind { MIRT__ACCURACY_SPARSE, MIRT__ACCURACY_CATEGORICAL, MIRT__ACCURACY_BINARY } mirt__accuracy_kind;
/* 1 or 0 per sample (binary: the share of n that agree at threshold 0.5, strictly greater). First of equal maxima. */
typedef struct mirt__accuracy {
    mirt__accuracy_kind kind;
    int64_t rows, n;
    const mirt__real *x;
    const void *labels; /* as in mirt__loss */
    mirt__real *y;      /* [rows] */
} mirt__accuracy;

/* y[r, j] = keep(r, j) ? x[r, j] / (1 - rate) : 0. keep: word (j % 4) of Philox with counter
   {j / 4, low and high word of (first_row + r), low word of step} and key {low, high word of
   `key` ^ (high word of step mixed in by the caller)}, as a 24-bit unit number, >= rate. The
   gradient is the same call on dy. */
typedef struct mirt__dropout {
    int64_t rows, n, first_row;
    uint64_t key;
    uint32_t step;
    float rate;
    const mirt__real *x;
    mirt__real *y;
} mirt__dropout;

typedef struct mirt__cast {
    mirt_dtype from, to;
    int64_t count;
    const void *x;
    void *y; /* to uint8 and int32: truncated toward zero, saturated, NaN 0; to bool: whether it is not 0 */
} mirt__cast;

typedef struct mirt__one_hot {
    int64_t count, depth;
    mirt_dtype dtype; /* int32 or uint8 */
    const void *x;
    mirt__real *y;
} mirt__one_hot;

/* x [rows, h, w, c] to y [rows, oh, ow, c]. Output o reads at (o + 1/2) * in / out - 1/2: the nearest
   input (halfway: the next), or the two around it, each weighted by how near it is. A gradient
   adds the outputs that read an input in ascending order. */
typedef struct mirt__resize {
    int64_t rows, h, w, c, oh, ow;
    bool bilinear;
    const mirt__real *x; /* gradient: dy */
    mirt__real *y;       /* gradient: dx */
} mirt__resize;

/* Normalization of x [rows, n]: hat = (x - mean) / sqrt(variance + epsilon), y = hat * gamma + beta.
   Statistics are [n], over the rows (batch normalization), or with `by_row` [rows], over each row
   (layer normalization); variances are divided by the count. gamma and beta are [n] or NULL. Sums
   over rows go in chunks of MIRT__REDUCE_CHUNK rows, whose partials are combined in double in
   ascending order. */
typedef struct mirt__norm {
    int64_t rows, n;
    bool by_row;
    float epsilon;
    const mirt__real *x, *mean, *variance, *gamma, *beta, *dy;
    const mirt__real *sum[2]; /* norm_grad_input, unless by_row: out[] of norm_grad_sums over `count` rows; NULL: the statistics are constants */
    double count;
    mirt__real *y;      /* normalize; norm_grad_input: dx */
    mirt__real *out[2]; /* norm_stats: mean and variance; norm_grad_sums: [n] sum(dy) and sum(dy * hat), the gradients of beta and gamma */
} mirt__norm;

/* An optimizer's update of the elements [begin, end) of the flat blocks. The gradient of element
   i is the sum of part[0][i] .. part[parts - 1][i] combined by the caller's tree: `tree` lists
   parts - 1 additions {into, from} to be done in order; the result is part `tree[last].into`
   (or part 0). Parts are only read. The new weight goes to every copy in `weight`; they are equal
   before and after. */
#define MIRT__MAX_PARTS 64
typedef struct mirt__update {
    int64_t begin, end;
    int parts;
    const mirt__real *part[MIRT__MAX_PARTS];
    struct { int into, from; } tree[MIRT__MAX_PARTS];
    int copies;
    mirt__real *weight[MIRT__MAX_PARTS];
    mirt__real *slot[2];
    float learning_rate; /* Adam: lr * sqrt(1 - b2^t) / (1 - b1^t), computed by the caller in double */
    float new_1, new_2, epsilon, momentum; /* Adam: 1 - beta_1 and 1 - beta_2, computed by the caller in double */
    bool nesterov;
} mirt__update;

typedef struct mirt__kernels {
    const char *name; /* "avx512", "avx2", "neon", "plain", "reference" */
    void (*gemm)(const mirt__gemm *args, const mirt__where *where);
    void (*conv_forward)(const mirt__conv_forward *args, const mirt__where *where);
    void (*conv_input_grad)(const mirt__conv_input_grad *args, const mirt__where *where);
    void (*conv_weight_grad)(const mirt__conv_weight_grad *args, const mirt__where *where);
    void (*conv_pool)(const mirt__conv_pool *args, const mirt__where *where);
    void (*conv_pool_weight_grad)(const mirt__conv_pool_weight_grad *args, const mirt__where *where);
    void (*max_pool)(const mirt__pool2d *args, const mirt__where *where);
    void (*max_pool_grad)(const mirt__pool2d *args, const mirt__where *where);
    void (*average_pool)(const mirt__pool2d *args, const mirt__where *where);
    void (*average_pool_grad)(const mirt__pool2d *args, const mirt__where *where);
    void (*unary)(const mirt__unary *args, const mirt__where *where);
    void (*binary)(const mirt__binary *args, const mirt__where *where);
    void (*logic)(const mirt__logic *args, const mirt__where *where);
    void (*reduce)(const mirt__reduce *args, const mirt__where *where);
    void (*reduce_max_grad)(const mirt__reduce_max_grad *args, const mirt__where *where);
    void (*scan)(const mirt__scan *args, const mirt__where *where);
    void (*move)(const mirt__move *args, const mirt__where *where);
    void (*gather)(const mirt__gather *args, const mirt__where *where);
    void (*gather_grad)(const mirt__gather *args, const mirt__where *where);
    void (*softmax)(const mirt__softmax *args, const mirt__where *where);
    void (*softmax_grad)(const mirt__softmax *args, const mirt__where *where);
    void (*loss)(const mirt__loss *args, const mirt__where *where);
    void (*loss_grad)(const mirt__loss *args, const mirt__where *where);
    void (*accuracy)(const mirt__accuracy *args, const mirt__where *where);
    void (*dropout)(const mirt__dropout *args, const mirt__where *where);
    void (*cast)(const mirt__cast *args, const mirt__where *where);
    void (*one_hot)(const mirt__one_hot *args, const mirt__where *where);
    void (*resize)(const mirt__resize *args, const mirt__where *where);
    void (*resize_grad)(const mirt__resize *args, const mirt__where *where);
    void (*norm_stats)(const mirt__norm *args, const mirt__where *where);
    void (*normalize)(const mirt__norm *args, const mirt__where *where);
    void (*norm_grad_sums)(const mirt__norm *args, const mirt__where *where);
    void (*norm_grad_input)(const mirt__norm *args, const mirt__where *where);
    /* into[i] = into[i] + from[i] */
    void (*accumulate)(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where);
    void (*sgd)(const mirt__update *args, const mirt__where *where);  /* slot[0]: momentum, NULL when plain */
    void (*adam)(const mirt__update *args, const mirt__where *where); /* slot[0]: m, slot[1]: v */
} mirt__kernels;

/* The tables of this build in order of preference, best first, "reference" last; *count of them.
   Those the running machine cannot execute are left out. Thread safe. */
MIRT__LIB const mirt__kernels *const *mirt__kernel_tables(int *count);
/* The best table, or the one the environment variable MIRT_CPU names. Thread safe. */
MIRT__LIB const mirt__kernels *mirt__kernels_best(void);

/* Bytes the calls need; they grow with m, rows. */
MIRT__LIB size_t mirt__gemm_scratch(const mirt__gemm *args);
MIRT__LIB size_t mirt__conv_scratch(const mirt__conv *shape);              /* forward, both gradients, conv_pool and its gradient: the most any needs */
MIRT__LIB size_t mirt__conv_weight_grad_shared(const mirt__conv *shape);      /* also for conv_pool_weight_grad */
MIRT__LIB size_t mirt__reduce_scratch(const mirt__reduce *args);
MIRT__LIB size_t mirt__norm_shared(const mirt__norm *args);

/* Images in one chunk of a weight gradient; a function of one image's shape alone. */
MIRT__LIB int64_t mirt__conv_chunk_rows(const mirt__conv *shape);

/* part[i] for i in [0, parts), each `count` long and `stride` apart, summed into part 0 by a fixed
   binary tree: the node over [lo, hi) adds its right child to its left one, the left child
   covering the largest power of two below hi - lo. */
MIRT__LIB void mirt__tree(mirt__real *part, int64_t parts, int64_t stride, int64_t count);

#endif

/* >>section kernels/shapes.h */

#ifndef MIRT__SHAPES_H
#define MIRT__SHAPES_H
/* How the kernels cut their work: functions of shapes alone. */

#define MIRT__PANEL 64       /* columns of b handled at a time; a multiple of every vector length */
#define MIRT__BLOCK_K 512    /* steps of k between spills: a panel of b stays in L2 */
#define MIRT__BLOCK_RUNS 64  /* runs in one such block */
#define MIRT__TILE_ROWS 6    /* the most rows of c in registers */
#define MIRT__STRIP 65536    /* floats of input copied to scratch at a time, where that is enough */
#define MIRT__GRAD_COLUMNS 96 /* columns of a copied at a time for a weight gradient */
#define MIRT__WINDOWS 4096   /* floats of window blocks at a time in a pooled weight gradient */
#define MIRT__PANEL_FLOATS (MIRT__BLOCK_K * MIRT__PANEL + MIRT__TILE_ROWS * MIRT__PANEL)
#define MIRT__REDUCE_COLUMNS 64 /* outputs reduced side by side */

/* `length` steps of k that lie at a constant distance in a, starting `a` floats from a row's
   first element; their rows of b start `b` floats from b. */
typedef struct mirt__run {
    int64_t a, b, length;
} mirt__run;

/* Rows of a that are read into scratch at a time. */
MIRT__LIB int64_t mirt__gemm_strip_rows(int64_t m, int64_t k);

/* How a convolution's images are cut into blocks of rows, whose inputs fit a strip of scratch. */
typedef struct mirt__conv_blocks {
    int64_t forward_rows, forward_cols, forward_floats; /* rows of y, even; columns of x with padding; floats of x */
    int64_t grad_rows, grad_cols, grad_floats;          /* rows of dx; columns of dy with padding; floats of dy */
    int64_t run_count;                                  /* the most runs of k any product needs */
    int64_t window_rows, window_floats;                 /* pooled rows whose windows are laid out at a time */
} mirt__conv_blocks;
MIRT__LIB mirt__conv_blocks mirt__conv_block_sizes(const mirt__conv *shape);
/* Floats of one chunk's partial sums: the kernel's, then the bias's. */
MIRT__LIB int64_t mirt__conv_partial_floats(const mirt__conv *shape);
/* Where output o of `out` reads an axis of `in` (mirt__resize): between `low` and `high`, which are
   equal at the edges, `part` of the way up; for the nearest input, low, and part 0. */
typedef struct mirt__between {
    int64_t low, high;
    mirt__real part;
} mirt__between;
MIRT__LIB mirt__between mirt__resize_at(int64_t o, int64_t in, int64_t out, bool bilinear);
/* Rounds toward minus infinity. */
MIRT__LIB int64_t mirt__floor_div(int64_t a, int64_t b);

#endif

/* >>section kernels/common.h */

#ifndef MIRT__COMMON_H
#define MIRT__COMMON_H
/* Kernels that every fast table shares: plain C whose inner loops run over contiguous channels,
   so that the compiler makes vectors of them. Nothing here depends on the instruction set, nor
   on how many threads there are. */

#ifndef MIRT__REAL_DOUBLE

/* Before a loop whose iterations are independent even where its output is its input. */
#if defined(__clang__)
#define MIRT__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define MIRT__INDEPENDENT _Pragma("GCC ivdep")
#else
#define MIRT__INDEPENDENT
#endif

/* Elements that one thread takes at a time: enough to be worth the claim. */
#define MIRT__GRAIN 16384

/* Runs fn(args, begin, end, scratch) over [0, count) in pieces of `step`, shared by the team;
   `scratch` is the running thread's. */
typedef void (*mirt__common_fn)(const void *args, int64_t begin, int64_t end, void *scratch);
MIRT__LIB void mirt__common_range(const mirt__where *where, int64_t count, int64_t step, mirt__common_fn fn, const void *args);
/* How many items of `size` elements each make one piece. */
MIRT__LIB int64_t mirt__common_step(int64_t size);

/* The elements of operands that are walked through together, in row-major order of `dim`. Dimensions
   of one are left out, and neighbours that no operand jumps between are one: same shapes become one
   run, a bias becomes rows by columns. */
typedef struct mirt__common_walk {
    const void *args;
    int rank, operands;
    int64_t count, dim[MIRT_MAX_RANK], stride[3][MIRT_MAX_RANK];
} mirt__common_walk;
MIRT__LIB mirt__common_walk mirt__common_walk_of(const void *args, int rank, const int64_t *dim, int operands, const int64_t *const *stride);
/* How many elements, at most `most`, lie in one line from number `at` on, which lies at place[i] of operand i. */
MIRT__LIB int64_t mirt__common_walk_line(const mirt__common_walk *walk, int64_t at, int64_t most, int64_t *place);

MIRT__LIB void mirt__common_max_pool(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__common_max_pool_grad(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__common_average_pool(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__common_average_pool_grad(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__common_unary(const mirt__unary *args, const mirt__where *where);
MIRT__LIB void mirt__common_binary(const mirt__binary *args, const mirt__where *where);
MIRT__LIB void mirt__common_logic(const mirt__logic *args, const mirt__where *where);
MIRT__LIB void mirt__common_reduce(const mirt__reduce *args, const mirt__where *where);
MIRT__LIB void mirt__common_reduce_max_grad(const mirt__reduce_max_grad *args, const mirt__where *where);
MIRT__LIB void mirt__common_scan(const mirt__scan *args, const mirt__where *where);
MIRT__LIB void mirt__common_move(const mirt__move *args, const mirt__where *where);
MIRT__LIB void mirt__common_gather(const mirt__gather *args, const mirt__where *where);
MIRT__LIB void mirt__common_gather_grad(const mirt__gather *args, const mirt__where *where);
MIRT__LIB void mirt__common_softmax(const mirt__softmax *args, const mirt__where *where);
MIRT__LIB void mirt__common_softmax_grad(const mirt__softmax *args, const mirt__where *where);
MIRT__LIB void mirt__common_loss(const mirt__loss *args, const mirt__where *where);
MIRT__LIB void mirt__common_loss_grad(const mirt__loss *args, const mirt__where *where);
MIRT__LIB void mirt__common_accuracy(const mirt__accuracy *args, const mirt__where *where);
MIRT__LIB void mirt__common_dropout(const mirt__dropout *args, const mirt__where *where);
MIRT__LIB void mirt__common_cast(const mirt__cast *args, const mirt__where *where);
MIRT__LIB void mirt__common_one_hot(const mirt__one_hot *args, const mirt__where *where);
MIRT__LIB void mirt__common_resize(const mirt__resize *args, const mirt__where *where);
MIRT__LIB void mirt__common_resize_grad(const mirt__resize *args, const mirt__where *where);
MIRT__LIB void mirt__common_norm_stats(const mirt__norm *args, const mirt__where *where);
MIRT__LIB void mirt__common_normalize(const mirt__norm *args, const mirt__where *where);
MIRT__LIB void mirt__common_norm_grad_sums(const mirt__norm *args, const mirt__where *where);
MIRT__LIB void mirt__common_norm_grad_input(const mirt__norm *args, const mirt__where *where);

#endif
#endif

/* >>section kernels/fast.h */

#ifndef MIRT__FAST_H
#define MIRT__FAST_H
/* What the fast kernels are made of. The loops over tiles, images and panels are written once, in
   fast_*.c, on top of the few primitives that each instruction set implements (simd.c). */

/* One tile of c in registers: c[i][column + j] (+)= sum over the runs of a[i] times b[j]. */
typedef struct mirt__tile {
    const float *a[MIRT__TILE_ROWS];
    float *c[MIRT__TILE_ROWS];
    int64_t column;
    const mirt__run *runs; /* offsets in b are not used: rows of b follow each other, b_row apart */
    int64_t run_count, a_step;
    const float *b;
    int64_t b_row;
    bool fresh; /* from zero, not from c */
} mirt__tile;

/* One row of pooling windows of a convolution, at most pool_vectors vectors of channels. */
typedef struct mirt__pool_row {
    const float *a; /* the first window's patch */
    int64_t pitch, ci, windows, k;
    const int32_t *offset; /* of each k in the patch */
    const float *b, *bias;
    int64_t b_row;
    float *y;
    uint8_t *which;
    int64_t co, columns; /* distance of windows; columns of these vectors that exist */
} mirt__pool_row;

/* Taps of a kernel that a depthwise convolution takes one by one. */
#define MIRT__MAX_TAPS 64

/* Weight gradient of windows: block holds, for each window and k, the four values that the
   window's four places see. */
typedef struct mirt__pool_windows {
    const float *block;
    int64_t windows, k, co;
    const float *dy;
    const uint8_t *which;
    float *dkernel, *db;
} mirt__pool_windows;

typedef struct mirt__simd {
    int lanes, rows, vectors; /* tile: at most `rows` rows of `vectors` vectors */
    int pool_vectors;         /* vectors of channels in pool_row */
    void (*tile[3][MIRT__TILE_ROWS])(const mirt__tile *tile); /* [log2 vectors][rows - 1]; NULL: use narrower ones */
    /* to[p * MIRT__PANEL + j] = from[p * from_row + j] for p in [0, k), j in [0, columns), and zeros up to whole vectors */
    void (*copy_rows)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns);
    /* to[p * MIRT__PANEL + j] = from[j * from_row + p] for p in [0, k), j in [0, columns) */
    void (*transpose)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns);
    /* `count` elements of the reader from element `at` on, as floats */
    void (*read)(float *to, const mirt__reader *reader, int64_t at, int64_t count);
    /* The epilogue on rows of c; mask[i] belongs to c[i]. */
    void (*finish)(const mirt__epilogue *epilogue, const float *bias, float *const *c, const float *const *mask,
                   int64_t rows, int64_t columns);
    /* sum[j] (+)= the chain over p of b[p * b_row + j] */
    void (*column_sum)(float *sum, const float *b, int64_t b_row, int64_t k, int64_t columns, bool fresh);
    void (*pool_row)(const mirt__pool_row *row);
    /* For each window and k the values at the window's four places, side by side. */
    void (*lay_windows)(float *block, const float *x, int64_t pitch, int64_t ci, int64_t windows, int64_t k, const int32_t *offset);
    void (*pool_windows)(const mirt__pool_windows *windows);
    /* y[j] = the chain over t < count of x[t][j] * k[t][j], j < n */
    void (*taps)(float *y, const float *const *x, const float *const *k, int count, int64_t n);
    /* dk[t][j] += x[t][j] * dy[j], fused */
    void (*taps_grad)(float *const *dk, const float *const *x, const float *dy, int count, int64_t n);
    void (*accumulate)(float *into, const float *from, int64_t count);
} mirt__simd;

/* The drivers, on the primitives of one instruction set. */
MIRT__LIB void mirt__fast_gemm(const mirt__simd *simd, const mirt__gemm *args, const mirt__where *where);
MIRT__LIB void mirt__fast_conv_forward(const mirt__simd *simd, const mirt__conv_forward *args, const mirt__where *where);
MIRT__LIB void mirt__fast_conv_input_grad(const mirt__simd *simd, const mirt__conv_input_grad *args, const mirt__where *where);
MIRT__LIB void mirt__fast_conv_weight_grad(const mirt__simd *simd, const mirt__conv_weight_grad *args, const mirt__where *where);
MIRT__LIB void mirt__fast_conv_pool(const mirt__simd *simd, const mirt__conv_pool *args, const mirt__where *where);
MIRT__LIB void mirt__fast_conv_pool_weight_grad(const mirt__simd *simd, const mirt__conv_pool_weight_grad *args,
                                                const mirt__where *where);
MIRT__LIB void mirt__fast_accumulate(const mirt__simd *simd, float *into, const float *from, int64_t count,
                                     const mirt__where *where);
MIRT__LIB void mirt__fast_update(const mirt__where *where, const mirt__update *args,
                                 void (*range)(const mirt__update *args, int64_t begin, int64_t end));

/* The tables that simd.c makes. In the single header they are simply defined before select.c. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
extern const mirt__kernels mirt__kernels_avx512, mirt__kernels_avx2, mirt__kernels_neon, mirt__kernels_plain;
#endif

/* c = a b, rows and columns of c in any regular place: the core of all drivers above. */
typedef struct mirt__product {
    int64_t m, n, width; /* row i is number i % width of line i / width */
    const float *a;
    int64_t a_x, a_y, a_step; /* distance of rows within a line, of lines, of k within a run */
    const mirt__run *runs;
    int64_t run_count;
    const float *b;
    int64_t b_row, b_col;
    float *c;
    int64_t c_x, c_y;
    bool fresh;
    const mirt__epilogue *epilogue; /* or NULL; with the next two in place of its pointers */
    const float *bias, *mask;       /* bias of column 0; the mask of c[0] */
    float *panel;                   /* scratch of MIRT__PANEL_FLOATS */
} mirt__product;
MIRT__LIB void mirt__product_run(const mirt__simd *simd, const mirt__product *product);

#endif

/* >>section kernels/reference.h */

#ifndef MIRT__REFERENCE_H
#define MIRT__REFERENCE_H
/* The reference kernels: every kernel as its formula, one thread, plain loops. Read these first.
   They are also what the fast tables are tested against and, built with mirt__real as double,
   what the gradients are tested with. Long sums run in double. */

#ifdef MIRT__REAL_DOUBLE
#define mirt__exp exp
#define mirt__log1p log1p
#define mirt__ln log
#define mirt__tanh tanh
#define mirt__sqrt sqrt
#define mirt__fabs fabs
#define mirt__fma fma
#define mirt__expm1 expm1
#define mirt__erfc erfc
#define mirt__pow pow
#define mirt__floor floor
#else
#define mirt__exp expf
#define mirt__log1p log1pf
#define mirt__ln logf
#define mirt__tanh tanhf
#define mirt__sqrt sqrtf
#define mirt__fabs fabsf
#define mirt__fma fmaf
#define mirt__expm1 expm1f
#define mirt__erfc erfcf
#define mirt__pow powf
#define mirt__floor floorf
#endif

/* A table that select.c names: static in the single header, extern otherwise. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__KERNEL_TABLE const
extern const mirt__kernels mirt__kernels_reference;
#else
#define MIRT__KERNEL_TABLE static const
#endif

/* An activation (not softmax), and its derivative as a function of the activation's output. */
MIRT__LIB mirt__real mirt__ref_activate(mirt_activation_kind kind, mirt__real x);
MIRT__LIB mirt__real mirt__ref_derivative(mirt_activation_kind kind, mirt__real y);

MIRT__LIB void mirt__ref_gemm(const mirt__gemm *args, const mirt__where *where);
MIRT__LIB void mirt__ref_conv_forward(const mirt__conv_forward *args, const mirt__where *where);
MIRT__LIB void mirt__ref_conv_input_grad(const mirt__conv_input_grad *args, const mirt__where *where);
MIRT__LIB void mirt__ref_conv_weight_grad(const mirt__conv_weight_grad *args, const mirt__where *where);
MIRT__LIB void mirt__ref_conv_pool(const mirt__conv_pool *args, const mirt__where *where);
MIRT__LIB void mirt__ref_conv_pool_weight_grad(const mirt__conv_pool_weight_grad *args, const mirt__where *where);
MIRT__LIB void mirt__ref_max_pool(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__ref_max_pool_grad(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__ref_average_pool(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__ref_average_pool_grad(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__ref_unary(const mirt__unary *args, const mirt__where *where);
MIRT__LIB void mirt__ref_binary(const mirt__binary *args, const mirt__where *where);
MIRT__LIB void mirt__ref_logic(const mirt__logic *args, const mirt__where *where);
MIRT__LIB void mirt__ref_reduce(const mirt__reduce *args, const mirt__where *where);
MIRT__LIB void mirt__ref_reduce_max_grad(const mirt__reduce_max_grad *args, const mirt__where *where);
MIRT__LIB void mirt__ref_scan(const mirt__scan *args, const mirt__where *where);
MIRT__LIB void mirt__ref_move(const mirt__move *args, const mirt__where *where);
MIRT__LIB void mirt__ref_gather(const mirt__gather *args, const mirt__where *where);
MIRT__LIB void mirt__ref_gather_grad(const mirt__gather *args, const mirt__where *where);
MIRT__LIB void mirt__ref_softmax(const mirt__softmax *args, const mirt__where *where);
MIRT__LIB void mirt__ref_softmax_grad(const mirt__softmax *args, const mirt__where *where);
MIRT__LIB void mirt__ref_loss(const mirt__loss *args, const mirt__where *where);
MIRT__LIB void mirt__ref_loss_grad(const mirt__loss *args, const mirt__where *where);
MIRT__LIB void mirt__ref_accuracy(const mirt__accuracy *args, const mirt__where *where);
MIRT__LIB void mirt__ref_dropout(const mirt__dropout *args, const mirt__where *where);
MIRT__LIB void mirt__ref_cast(const mirt__cast *args, const mirt__where *where);
MIRT__LIB void mirt__ref_one_hot(const mirt__one_hot *args, const mirt__where *where);
MIRT__LIB void mirt__ref_resize(const mirt__resize *args, const mirt__where *where);
MIRT__LIB void mirt__ref_resize_grad(const mirt__resize *args, const mirt__where *where);
MIRT__LIB void mirt__ref_norm_stats(const mirt__norm *args, const mirt__where *where);
MIRT__LIB void mirt__ref_normalize(const mirt__norm *args, const mirt__where *where);
MIRT__LIB void mirt__ref_norm_grad_sums(const mirt__norm *args, const mirt__where *where);
MIRT__LIB void mirt__ref_norm_grad_input(const mirt__norm *args, const mirt__where *where);
MIRT__LIB void mirt__ref_accumulate(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where);
MIRT__LIB void mirt__ref_sgd(const mirt__update *args, const mirt__where *where);
MIRT__LIB void mirt__ref_adam(const mirt__update *args, const mirt__where *where);

#endif

/* >>section base/cold_begin.inc */

/* What follows runs once or waits for kernels. gcc takes half the time to compile it this way;
   without optimization (for debuggers) nothing changes. a * b + c is never contracted: initial
   weights are the same whatever the flags. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC push_options
#pragma GCC optimize("O1,fp-contract=off")
#endif

/* >>section kernels/shapes.c */

/* How the kernels cut their work, and the scratch that takes. */

MIRT__LIB int64_t mirt__floor_div(int64_t a, int64_t b) {
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static int64_t mirt__shapes_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t mirt__shapes_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

MIRT__LIB int64_t mirt__gemm_strip_rows(int64_t m, int64_t k) {
    int64_t rows = MIRT__STRIP / (k > 0 ? k : 1) / 12 * 12; /* whole tiles of any instruction set */
    return mirt__shapes_min(mirt__shapes_max(rows, 12), mirt__shapes_max(m, 1));
}

MIRT__LIB size_t mirt__gemm_scratch(const mirt__gemm *args) {
    int64_t floats = MIRT__PANEL_FLOATS;
    if (args->a_col == 1) floats += mirt__gemm_strip_rows(args->m, args->k) * args->k;
    else floats += MIRT__BLOCK_K * MIRT__GRAD_COLUMNS;
    return mirt__align_up((size_t)floats * sizeof(mirt__real));
}

MIRT__LIB mirt__conv_blocks mirt__conv_block_sizes(const mirt__conv *s) {
    mirt__conv_blocks blocks;
    const int64_t reach_h = (int64_t)(s->kh - 1) * s->dilation_h, reach_w = (int64_t)(s->kw - 1) * s->dilation_w;
    const int64_t window = (int64_t)s->kh * s->kw * s->ci * 4 * mirt__shapes_max(s->ow / 2, 1);

    blocks.forward_cols = (s->ow - 1) * s->stride_w + reach_w + 1;
    int64_t rows = (MIRT__STRIP / (blocks.forward_cols * s->ci) - reach_h - 1) / s->stride_h + 1;
    blocks.forward_rows = mirt__shapes_min(mirt__shapes_max(rows / 2 * 2, 2), mirt__shapes_max((s->oh + 1) / 2 * 2, 2));
    rows = mirt__shapes_min(blocks.forward_rows, mirt__shapes_max(s->oh, 1));
    blocks.forward_floats = ((rows - 1) * s->stride_h + reach_h + 1) * blocks.forward_cols * s->ci;

    blocks.grad_cols = mirt__floor_div(s->w - 1 + s->pad_left, s->stride_w) -
                       mirt__floor_div(s->pad_left - reach_w, s->stride_w) + 1;
    rows = (MIRT__STRIP / (blocks.grad_cols * s->co) - 2) * s->stride_h - reach_h;
    blocks.grad_rows = mirt__shapes_min(mirt__shapes_max(rows, 1), mirt__shapes_max(s->h, 1));
    blocks.grad_floats = ((blocks.grad_rows - 1 + reach_h) / s->stride_h + 2) * blocks.grad_cols * s->co;

    blocks.run_count = mirt__shapes_max((int64_t)s->kh * s->kw, blocks.forward_rows);
    blocks.window_rows = mirt__shapes_max(MIRT__WINDOWS / window, 1);
    blocks.window_floats = blocks.window_rows * window;
    return blocks;
}

MIRT__LIB size_t mirt__conv_scratch(const mirt__conv *s) {
    const mirt__conv_blocks blocks = mirt__conv_block_sizes(s);
    const int64_t k = (int64_t)s->kh * s->kw * s->ci;
    /* conv_pool keeps all of k for the last columns, and an offset for each k. */
    const int64_t pool = mirt__shapes_max(k * 33, blocks.window_floats + k);
    const int64_t floats = mirt__shapes_max(MIRT__PANEL_FLOATS, pool) +
                           mirt__shapes_max(blocks.forward_floats, blocks.grad_floats);
    return mirt__align_up((size_t)blocks.run_count * sizeof(mirt__run)) + mirt__align_up((size_t)floats * sizeof(mirt__real));
}

MIRT__LIB int64_t mirt__conv_partial_floats(const mirt__conv *s) {
    return (int64_t)s->kh * s->kw * (s->ci / s->groups) * s->co + s->co;
}

/* At least 4 images; more where the kernel is large, so that the partial sums of 256 images stay
   near 4 MB; all in one chunk for the largest. */
MIRT__LIB int64_t mirt__conv_chunk_rows(const mirt__conv *s) {
    int64_t rows = mirt__conv_partial_floats(s) / 4096;
    return rows > 128 ? INT64_MAX : mirt__shapes_max(rows, 4);
}

MIRT__LIB size_t mirt__conv_weight_grad_shared(const mirt__conv *s) {
    const int64_t chunk = mirt__conv_chunk_rows(s);
    const int64_t parts = s->rows / chunk + (s->rows % chunk != 0);
    return parts < 2 ? 0 : mirt__align_up((size_t)(parts * mirt__conv_partial_floats(s)) * sizeof(mirt__real));
}

static void mirt__tree_node(mirt__real *part, int64_t lo, int64_t hi, int64_t stride, int64_t count) {
    if (hi - lo < 2) return;
    int64_t half = 1;
    while (half * 2 < hi - lo) half *= 2;
    mirt__tree_node(part, lo, lo + half, stride, count);
    mirt__tree_node(part, lo + half, hi, stride, count);
    mirt__real *into = part + lo * stride;
    const mirt__real *from = part + (lo + half) * stride;
    for (int64_t i = 0; i < count; i++) into[i] += from[i];
}

MIRT__LIB void mirt__tree(mirt__real *part, int64_t parts, int64_t stride, int64_t count) {
    mirt__tree_node(part, 0, parts, stride, count);
}

/* One row of partial sums for each binary digit of the number of chunks. */
MIRT__LIB size_t mirt__reduce_scratch(const mirt__reduce *args) {
    int64_t elements = 1;
    size_t digits = 1;
    for (int i = 0; i < args->rank; i++) {
        if (args->axes >> i & 1) elements *= args->dim[i];
    }
    for (int64_t chunks = (elements + MIRT__REDUCE_CHUNK - 1) / MIRT__REDUCE_CHUNK; chunks > 1; chunks /= 2) digits++;
    return mirt__align_up(digits * MIRT__REDUCE_COLUMNS * sizeof(mirt__real));
}

/* Three rows of n for each chunk of rows, or once. */
MIRT__LIB size_t mirt__norm_shared(const mirt__norm *args) {
    const int64_t chunks = args->rows / MIRT__REDUCE_CHUNK + 1;
    return mirt__align_up((size_t)(chunks * 3 * args->n) * sizeof(mirt__real));
}

/* In units of a half output step, so that it is exact. */
MIRT__LIB mirt__between mirt__resize_at(int64_t o, int64_t in, int64_t out, bool bilinear) {
    const int64_t center = (2 * o + 1) * in, at = center - out, low = mirt__floor_div(at, 2 * out);
    mirt__between b;
    b.low = b.high = center / (2 * out);
    b.part = 0;
    if (!bilinear) return b;
    b.low = low < 0 ? 0 : low;
    b.high = low + 1 < in ? low + 1 : in - 1;
    if (b.high != b.low) b.part = (mirt__real)(at - low * 2 * out) / (mirt__real)(2 * out);
    return b;
}

/* >>section kernels/reference.c */

/* The table of reference kernels. */

MIRT__KERNEL_TABLE mirt__kernels mirt__kernels_reference = {
    "reference",
    mirt__ref_gemm,
    mirt__ref_conv_forward,
    mirt__ref_conv_input_grad,
    mirt__ref_conv_weight_grad,
    mirt__ref_conv_pool,
    mirt__ref_conv_pool_weight_grad,
    mirt__ref_max_pool,
    mirt__ref_max_pool_grad,
    mirt__ref_average_pool,
    mirt__ref_average_pool_grad,
    mirt__ref_unary,
    mirt__ref_binary,
    mirt__ref_logic,
    mirt__ref_reduce,
    mirt__ref_reduce_max_grad,
    mirt__ref_scan,
    mirt__ref_move,
    mirt__ref_gather,
    mirt__ref_gather_grad,
    mirt__ref_softmax,
    mirt__ref_softmax_grad,
    mirt__ref_loss,
    mirt__ref_loss_grad,
    mirt__ref_accuracy,
    mirt__ref_dropout,
    mirt__ref_cast,
    mirt__ref_one_hot,
    mirt__ref_resize,
    mirt__ref_resize_grad,
    mirt__ref_norm_stats,
    mirt__ref_normalize,
    mirt__ref_norm_grad_sums,
    mirt__ref_norm_grad_input,
    mirt__ref_accumulate,
    mirt__ref_sgd,
    mirt__ref_adam,
};

/* >>section kernels/reference_elementwise.c */

/* Reference: elementwise kernels, broadcasting, reductions, dropout, conversions, optimizers. */

/* The standard normal distribution: the probability of less than x. */
static mirt__real mirt__ref_normal(mirt__real x) { return mirt__erfc(-x * (mirt__real)0.70710678118654752440) / 2; }

MIRT__LIB void mirt__ref_unary(const mirt__unary *u, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < u->count; i++) {
        const mirt__real x = u->x[i], scale = (mirt__real)u->scale, offset = (mirt__real)u->offset;
        switch (u->kind) {
        case MIRT__COPY: u->y[i] = x; break;
        case MIRT__NEGATIVE: u->y[i] = -x; break;
        case MIRT__SQUARE: u->y[i] = x * x; break;
        case MIRT__ACT_RELU: u->y[i] = mirt__ref_activate(MIRT_RELU, x); break;
        case MIRT__ACT_SIGMOID: u->y[i] = mirt__ref_activate(MIRT_SIGMOID, x); break;
        case MIRT__ACT_TANH: u->y[i] = mirt__ref_activate(MIRT_TANH, x); break;
        case MIRT__AFFINE: u->y[i] = mirt__fma(x, scale, offset); break;
        case MIRT__EXP: u->y[i] = mirt__exp(x); break;
        case MIRT__LOG: u->y[i] = mirt__ln(x); break;
        case MIRT__SQRT: u->y[i] = mirt__sqrt(x); break;
        case MIRT__RSQRT: u->y[i] = 1 / mirt__sqrt(x); break;
        case MIRT__ABS: u->y[i] = mirt__fabs(x); break;
        case MIRT__SIGN: u->y[i] = x > 0 ? 1 : x < 0 ? -1 : x; break;
        case MIRT__FLOOR: u->y[i] = mirt__floor(x); break;
        case MIRT__CLIP: u->y[i] = x < scale ? scale : x > offset ? offset : x; break;
        case MIRT__POWER: u->y[i] = mirt__pow(x, scale); break;
        case MIRT__ACT_RELU6: u->y[i] = mirt__ref_activate(MIRT_RELU6, x); break;
        case MIRT__ACT_LEAKY_RELU: u->y[i] = x > 0 ? x : scale * x; break;
        case MIRT__ACT_ELU: u->y[i] = x > 0 ? x : scale * mirt__expm1(x); break;
        case MIRT__ACT_GELU: u->y[i] = x * mirt__ref_normal(x); break;
        case MIRT__ACT_SILU: u->y[i] = x * mirt__ref_activate(MIRT_SIGMOID, x); break;
        case MIRT__ACT_HARD_SIGMOID: u->y[i] = mirt__ref_activate(MIRT_RELU6, x + 3) / 6; break;
        case MIRT__ACT_HARD_SWISH: u->y[i] = x * mirt__ref_activate(MIRT_RELU6, x + 3) / 6; break;
        case MIRT__ACT_SOFTPLUS: u->y[i] = (x > 0 ? x : 0) + mirt__log1p(mirt__exp(-mirt__fabs(x))); break; /* log(1 + exp(x)) */
        }
    }
}

/* The derivatives of activations that are functions of the input x. */
static mirt__real mirt__ref_slope(mirt__binary_kind kind, mirt__real x, mirt__real scale, mirt__real offset) {
    const mirt__real sigmoid = mirt__ref_activate(MIRT_SIGMOID, x), inside = x > -3 && x < 3 ? (mirt__real)1 : (mirt__real)0;
    switch (kind) {
    case MIRT__LEAKY_RELU_GRAD: return x > 0 ? 1 : scale;
    case MIRT__ELU_GRAD: return x > 0 ? 1 : scale * mirt__exp(x);
    case MIRT__GELU_GRAD: return mirt__ref_normal(x) + x * mirt__exp(-x * x / 2) * (mirt__real)0.39894228040143267794; /* its density */
    case MIRT__SILU_GRAD: return sigmoid + x * sigmoid * (1 - sigmoid);
    case MIRT__HARD_SIGMOID_GRAD: return inside / 6;
    case MIRT__HARD_SWISH_GRAD: return (mirt__ref_activate(MIRT_RELU6, x + 3) + x * inside) / 6;
    case MIRT__SOFTPLUS_GRAD: return sigmoid;
    case MIRT__CLIP_GRAD: return x < scale || x > offset ? 0 : 1;
    case MIRT__POWER_GRAD: return scale == 0 ? 0 : scale * mirt__pow(x, scale - 1);
    default: return 0;
    }
}

static mirt__real mirt__ref_binary_of(const mirt__binary *args, mirt__real a, mirt__real b) {
    switch (args->kind) {
    case MIRT__ADD: return a + b;
    case MIRT__SUBTRACT: return a - b;
    case MIRT__MULTIPLY: return a * b;
    case MIRT__DIVIDE: return a / b;
    case MIRT__RELU_GRAD: return b > 0 ? a : 0;
    case MIRT__SIGMOID_GRAD: return a * mirt__ref_derivative(MIRT_SIGMOID, b);
    case MIRT__TANH_GRAD: return a * mirt__ref_derivative(MIRT_TANH, b);
    case MIRT__RELU6_GRAD: return a * mirt__ref_derivative(MIRT_RELU6, b);
    case MIRT__MAXIMUM: return a >= b || a != a ? a : b;
    case MIRT__MINIMUM: return a <= b || a != a ? a : b;
    default: return a * mirt__ref_slope(args->kind, b, (mirt__real)args->scale, (mirt__real)args->offset);
    }
}

/* The index in every dimension of the element at row-major position `at`. */
static void mirt__ref_unflatten(int64_t at, const int64_t *dim, int rank, int64_t *index) {
    for (int i = rank - 1; i >= 0; i--) {
        index[i] = at % dim[i];
        at /= dim[i];
    }
}

static int64_t mirt__ref_count(const int64_t *dim, int rank) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dim[i];
    return count;
}

MIRT__LIB void mirt__ref_binary(const mirt__binary *b, const mirt__where *where) {
    int64_t count = mirt__ref_count(b->dim, b->rank), index[MIRT_MAX_RANK];
    (void)where;
    for (int64_t at = 0; at < count; at++) {
        int64_t a_at = 0, b_at = 0;
        mirt__ref_unflatten(at, b->dim, b->rank, index);
        for (int i = 0; i < b->rank; i++) {
            a_at += index[i] * b->a_stride[i];
            b_at += index[i] * b->b_stride[i];
        }
        b->y[at] = mirt__ref_binary_of(b, b->a[a_at], b->b[b_at]);
    }
}

/* Every dtype's numbers are numbers of double. */
static double mirt__ref_number(const void *x, mirt_dtype dtype, int64_t at) {
    switch (dtype) {
    case MIRT_INT32: return (double)((const int32_t *)x)[at];
    case MIRT_UINT8:
    case MIRT_BOOL: return (double)((const uint8_t *)x)[at];
    default: return (double)((const mirt__real *)x)[at];
    }
}

static void mirt__ref_logic_at(const mirt__logic *l, const int64_t *in, int64_t at) {
    const bool where = l->kind == MIRT__WHERE;
    const double a = mirt__ref_number(l->in[where], l->dtype, in[where]), b = mirt__ref_number(l->in[where + 1], l->dtype, in[where + 1]);
    uint8_t *y = (uint8_t *)l->y;
    const size_t size = mirt__dtype_size(l->dtype);
    const int from = where && ((const uint8_t *)l->in[0])[in[0]] ? 1 : 2;
    switch (l->kind) {
    case MIRT__IS_EQUAL: y[at] = a == b; break;
    case MIRT__IS_NOT_EQUAL: y[at] = a != b; break;
    case MIRT__IS_LESS: y[at] = a < b; break;
    case MIRT__IS_LESS_EQUAL: y[at] = a <= b; break;
    case MIRT__AND: y[at] = a != 0 && b != 0; break;
    case MIRT__OR: y[at] = a != 0 || b != 0; break;
    case MIRT__NOT: y[at] = a == 0; break;
    case MIRT__WHERE: memcpy(y + (size_t)at * size, (const char *)l->in[from] + (size_t)in[from] * size, size); break;
    }
}

MIRT__LIB void mirt__ref_logic(const mirt__logic *l, const mirt__where *where) {
    const int64_t count = mirt__ref_count(l->dim, l->rank);
    int64_t index[MIRT_MAX_RANK];
    (void)where;
    for (int64_t at = 0; at < count; at++) {
        int64_t in[3] = {0, 0, 0};
        mirt__ref_unflatten(at, l->dim, l->rank, index);
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < l->rank; i++) in[k] += index[i] * l->stride[k][i];
        }
        mirt__ref_logic_at(l, in, at);
    }
}

/* Splits the dimensions into those that stay and those that are reduced: how many elements each
   has, and the row-major steps of both in x. */
typedef struct mirt__ref_split {
    int kept_rank, gone_rank;
    int64_t kept_dim[MIRT_MAX_RANK], kept_step[MIRT_MAX_RANK], kept;
    int64_t gone_dim[MIRT_MAX_RANK], gone_step[MIRT_MAX_RANK], gone;
} mirt__ref_split;

static mirt__ref_split mirt__ref_split_of(const mirt__reduce *r) {
    mirt__ref_split s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < r->rank; i++) {
        int64_t step = mirt__ref_count(r->dim + i + 1, r->rank - i - 1);
        if (r->axes >> i & 1) {
            s.gone_dim[s.gone_rank] = r->dim[i];
            s.gone_step[s.gone_rank++] = step;
        } else {
            s.kept_dim[s.kept_rank] = r->dim[i];
            s.kept_step[s.kept_rank++] = step;
        }
    }
    s.kept = mirt__ref_count(s.kept_dim, s.kept_rank);
    s.gone = mirt__ref_count(s.gone_dim, s.gone_rank);
    return s;
}

/* The place in x of element `gone` of those that output `kept` stands for. */
static int64_t mirt__ref_place(const mirt__ref_split *s, int64_t kept, int64_t gone) {
    int64_t index[MIRT_MAX_RANK], place = 0;
    mirt__ref_unflatten(kept, s->kept_dim, s->kept_rank, index);
    for (int i = 0; i < s->kept_rank; i++) place += index[i] * s->kept_step[i];
    mirt__ref_unflatten(gone, s->gone_dim, s->gone_rank, index);
    for (int i = 0; i < s->gone_rank; i++) place += index[i] * s->gone_step[i];
    return place;
}

MIRT__LIB void mirt__ref_reduce(const mirt__reduce *r, const mirt__where *where) {
    mirt__ref_split s = mirt__ref_split_of(r);
    (void)where;
    for (int64_t i = 0; i < s.kept; i++) {
        double sum = 0;
        mirt__real best = (mirt__real)(r->kind == MIRT__REDUCE_MIN ? INFINITY : -INFINITY);
        for (int64_t j = 0; j < s.gone; j++) {
            mirt__real x = r->x[mirt__ref_place(&s, i, j)];
            sum += x;
            if (j == 0 || (r->kind == MIRT__REDUCE_MIN ? x < best : x > best)) best = x;
        }
        if (r->kind == MIRT__REDUCE_MEAN) sum /= (double)s.gone;
        r->y[i] = r->kind >= MIRT__REDUCE_MAX ? best : (mirt__real)sum;
    }
}

MIRT__LIB void mirt__ref_reduce_max_grad(const mirt__reduce_max_grad *g, const mirt__where *where) {
    mirt__ref_split s = mirt__ref_split_of(&g->s);
    (void)where;
    for (int64_t i = 0; i < s.kept; i++) {
        int64_t equal = 0;
        for (int64_t j = 0; j < s.gone; j++) equal += g->s.x[mirt__ref_place(&s, i, j)] == g->s.y[i];
        for (int64_t j = 0; j < s.gone; j++) {
            int64_t at = mirt__ref_place(&s, i, j);
            g->dx[at] = g->s.x[at] == g->s.y[i] ? g->dy[i] / (mirt__real)equal : 0;
        }
    }
}

MIRT__LIB void mirt__ref_dropout(const mirt__dropout *d, const mirt__where *where) {
    const uint32_t key[2] = {(uint32_t)d->key, (uint32_t)(d->key >> 32)};
    (void)where;
    for (int64_t r = 0; r < d->rows; r++) {
        uint64_t row = (uint64_t)(d->first_row + r);
        for (int64_t j = 0; j < d->n; j++) {
            const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)row, (uint32_t)(row >> 32), d->step};
            uint32_t word[4];
            mirt__philox(counter, key, word);
            float unit = (float)(word[j % 4] >> 8) * (1.0f / 16777216.0f);
            mirt__real x = d->x[r * d->n + j];
            d->y[r * d->n + j] = unit >= d->rate ? x / (1 - (mirt__real)d->rate) : 0;
        }
    }
}

/* x truncated toward zero and kept between low and high; 0 for NaN. */
static double mirt__ref_saturate(double x, double low, double high) {
    if (x != x) return 0;
    return x <= low ? low : x >= high ? high : x;
}

MIRT__LIB void mirt__ref_cast(const mirt__cast *c, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < c->count; i++) {
        const double x = mirt__ref_number(c->x, c->from, i);
        switch (c->to) {
        case MIRT_UINT8: ((uint8_t *)c->y)[i] = (uint8_t)mirt__ref_saturate(x, 0, 255); break;
        case MIRT_BOOL: ((uint8_t *)c->y)[i] = x != 0; break;
        case MIRT_INT32: ((int32_t *)c->y)[i] = (int32_t)mirt__ref_saturate(x, INT32_MIN, INT32_MAX); break;
        default: ((mirt__real *)c->y)[i] = (mirt__real)x; break;
        }
    }
}

MIRT__LIB void mirt__ref_one_hot(const mirt__one_hot *o, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < o->count; i++) {
        int64_t index = o->dtype == MIRT_UINT8 ? ((const uint8_t *)o->x)[i] : ((const int32_t *)o->x)[i];
        for (int64_t j = 0; j < o->depth; j++) o->y[i * o->depth + j] = j == index ? (mirt__real)1 : (mirt__real)0;
    }
}

MIRT__LIB void mirt__ref_accumulate(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < count; i++) into[i] = into[i] + from[i];
}

/* The gradient of element i: its parts added up as the caller's tree says. */
static mirt__real mirt__ref_gradient(const mirt__update *u, int64_t i) {
    mirt__real sum[MIRT__MAX_PARTS], result = u->part[0][i];
    for (int p = 0; p < u->parts; p++) sum[p] = u->part[p][i];
    for (int t = 0; t + 1 < u->parts; t++) {
        sum[u->tree[t].into] += sum[u->tree[t].from];
        result = sum[u->tree[t].into];
    }
    return result;
}

static void mirt__ref_store_weight(const mirt__update *u, int64_t i, mirt__real weight) {
    for (int copy = 0; copy < u->copies; copy++) u->weight[copy][i] = weight;
}

MIRT__LIB void mirt__ref_sgd(const mirt__update *u, const mirt__where *where) {
    const mirt__real rate = u->learning_rate, momentum = u->momentum;
    (void)where;
    for (int64_t i = u->begin; i < u->end; i++) {
        mirt__real step = -rate * mirt__ref_gradient(u, i);
        if (u->slot[0]) {
            mirt__real velocity = momentum * u->slot[0][i] + step;
            u->slot[0][i] = velocity;
            step = u->nesterov ? momentum * velocity + step : velocity;
        }
        mirt__ref_store_weight(u, i, u->weight[0][i] + step);
    }
}

MIRT__LIB void mirt__ref_adam(const mirt__update *u, const mirt__where *where) {
    const mirt__real rate = u->learning_rate, new_1 = u->new_1, new_2 = u->new_2, epsilon = u->epsilon;
    (void)where;
    for (int64_t i = u->begin; i < u->end; i++) {
        mirt__real g = mirt__ref_gradient(u, i);
        mirt__real m = u->slot[0][i] + (g - u->slot[0][i]) * new_1;
        mirt__real v = u->slot[1][i] + (g * g - u->slot[1][i]) * new_2;
        u->slot[0][i] = m;
        u->slot[1][i] = v;
        mirt__ref_store_weight(u, i, u->weight[0][i] - m * rate / (mirt__sqrt(v) + epsilon));
    }
}

/* >>section kernels/reference_move.c */

/* Reference: moves between regular places, rows by index, and what runs along one axis. */

MIRT__LIB void mirt__ref_scan(const mirt__scan *s, const mirt__where *where) {
    (void)where;
    for (int64_t at = 0; at < s->outer * s->inner; at++) {
        const int64_t first = at / s->inner * s->n * s->inner + at % s->inner;
        const bool back = s->kind == MIRT__CUMSUM_BACK;
        int64_t best = 0;
        double sum = 0;
        for (int64_t i = 0; i < s->n; i++) {
            const int64_t place = first + (back ? s->n - 1 - i : i) * s->inner;
            const mirt__real x = s->x[place], most = s->x[first + best * s->inner];
            sum += x;
            if (s->kind == MIRT__ARGMIN ? x < most : x > most) best = i;
            if (s->kind == MIRT__CUMSUM || back) ((mirt__real *)s->y)[place] = (mirt__real)sum;
        }
        if (s->kind == MIRT__ARGMAX || s->kind == MIRT__ARGMIN) ((int32_t *)s->y)[at] = (int32_t)best;
    }
}

MIRT__LIB void mirt__ref_move(const mirt__move *m, const mirt__where *where) {
    const size_t size = mirt__dtype_size(m->dtype);
    int64_t count = 1;
    (void)where;
    for (int i = 0; i < m->rank; i++) count *= m->dim[i];
    for (int64_t at = 0; at < count; at++) {
        int64_t rest = at, from = 0, to = 0;
        for (int i = m->rank - 1; i >= 0; rest /= m->dim[i], i--) {
            from += rest % m->dim[i] * m->from[i];
            to += rest % m->dim[i] * m->to[i];
        }
        memcpy((char *)m->y + (size_t)to * size, (const char *)m->x + (size_t)from * size, size);
    }
}

static int64_t mirt__ref_gather_index(const mirt__gather *g, int64_t i) {
    const int64_t index = g->dtype == MIRT_UINT8 ? ((const uint8_t *)g->indices)[i] : ((const int32_t *)g->indices)[i];
    return index >= 0 && index < g->n ? index : -1;
}

MIRT__LIB void mirt__ref_gather(const mirt__gather *g, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < g->count; i++) {
        const int64_t row = mirt__ref_gather_index(g, i);
        for (int64_t j = 0; j < g->width; j++) g->y[i * g->width + j] = row < 0 ? 0 : g->x[row * g->width + j];
    }
}

MIRT__LIB void mirt__ref_gather_grad(const mirt__gather *g, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < g->n * g->width; i++) g->y[i] = 0;
    for (int64_t i = 0; i < g->count; i++) {
        const int64_t row = mirt__ref_gather_index(g, i);
        for (int64_t j = 0; row >= 0 && j < g->width; j++) g->y[row * g->width + j] += g->x[i * g->width + j];
    }
}

/* >>section kernels/reference_matrix.c */

/* Reference: matrix products and convolutions. */

MIRT__LIB mirt__real mirt__ref_activate(mirt_activation_kind kind, mirt__real x) {
    switch (kind) {
    case MIRT_RELU: return x < 0 ? 0 : x;
    case MIRT_RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case MIRT_SIGMOID: return 1 / (1 + mirt__exp(-x));
    case MIRT_TANH: return mirt__tanh(x);
    default: return x;
    }
}

MIRT__LIB mirt__real mirt__ref_derivative(mirt_activation_kind kind, mirt__real y) {
    switch (kind) {
    case MIRT_RELU: return y > 0 ? (mirt__real)1 : (mirt__real)0;
    case MIRT_RELU6: return y > 0 && y < 6 ? (mirt__real)1 : (mirt__real)0;
    case MIRT_SIGMOID: return y * (1 - y);
    case MIRT_TANH: return 1 - y * y;
    default: return 1;
    }
}

/* What is stored in place of `sum` at position `at` of the output, which lies in column `column`. */
static mirt__real mirt__ref_finish(const mirt__epilogue *e, mirt__real sum, int64_t at, int64_t column) {
    if (e->bias) sum += e->bias[column];
    sum = mirt__ref_activate(e->activation, sum);
    if (e->mask) sum *= mirt__ref_derivative(e->mask_activation, e->mask[at]);
    return sum;
}

static mirt__real mirt__ref_read(const mirt__reader *reader, int64_t at) {
    mirt__real x;
    if (reader->dtype == MIRT_UINT8) {
        x = (mirt__real)((const uint8_t *)reader->data)[at];
    } else if (reader->dtype == MIRT_INT32) {
        x = (mirt__real)((const int32_t *)reader->data)[at];
    } else {
        x = ((const mirt__real *)reader->data)[at];
    }
    return reader->affine ? mirt__fma(x, (mirt__real)reader->scale, (mirt__real)reader->offset) : x;
}

MIRT__LIB void mirt__ref_gemm(const mirt__gemm *g, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < g->k; p++) {
                double a = mirt__ref_read(&g->a, i * g->a_row + p * g->a_col);
                sum += a * g->b[p * g->b_row + j * g->b_col];
            }
            g->c[i * g->n + j] = mirt__ref_finish(&g->epilogue, (mirt__real)sum, i * g->n + j, j);
        }
    }
    if (!g->column_sum) return;
    for (int64_t j = 0; j < g->n; j++) {
        double sum = 0;
        for (int64_t p = 0; p < g->k; p++) sum += g->b[p * g->b_row + j * g->b_col];
        g->column_sum[j] = (mirt__real)sum;
    }
}

/* x[row, iy, ix, c], and zero in the padding around it. */
static double mirt__ref_pixel(const mirt__conv *s, const mirt__reader *x, int64_t row, int64_t iy, int64_t ix, int64_t c) {
    if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w) return 0;
    return mirt__ref_read(x, ((row * s->h + iy) * s->w + ix) * s->ci + c);
}

/* y[row, oy, ox, o] before bias and activation. With groups, output channel o sees only the input
   channels of its own group. */
static mirt__real mirt__ref_conv_sum(const mirt__conv *s, const mirt__reader *x, const mirt__real *kernel, int64_t row,
                                     int64_t oy, int64_t ox, int64_t o) {
    int64_t channels = s->ci / s->groups, first = o / (s->co / s->groups) * channels;
    double sum = 0;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            int64_t iy = oy * s->stride_h + ky * s->dilation_h - s->pad_top;
            int64_t ix = ox * s->stride_w + kx * s->dilation_w - s->pad_left;
            for (int64_t c = 0; c < channels; c++) {
                sum += mirt__ref_pixel(s, x, row, iy, ix, first + c) * kernel[((ky * s->kw + kx) * channels + c) * s->co + o];
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_forward(const mirt__conv_forward *f, const mirt__where *where) {
    const mirt__conv *s = &f->s;
    int64_t at = 0;
    (void)where;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t oy = 0; oy < s->oh; oy++) {
            for (int64_t ox = 0; ox < s->ow; ox++) {
                for (int64_t o = 0; o < s->co; o++, at++) {
                    mirt__real sum = mirt__ref_conv_sum(s, &f->x, f->kernel, row, oy, ox, o);
                    f->y[at] = mirt__ref_finish(&f->epilogue, sum, at, o);
                }
            }
        }
    }
}

/* The output position whose tap `k` (of dilation `dilation`) read input position `in`, or -1. */
static int64_t mirt__ref_reader_of(int64_t in, int64_t k, int dilation, int stride, int64_t pad, int64_t out_size) {
    int64_t scaled = in + pad - k * dilation;
    if (scaled < 0 || scaled % stride != 0 || scaled / stride >= out_size) return -1;
    return scaled / stride;
}

/* The sum over all outputs that read x[row, iy, ix, c], each times the kernel value it used. */
static mirt__real mirt__ref_input_grad_sum(const mirt__conv_input_grad *g, int64_t row, int64_t iy, int64_t ix, int64_t c) {
    const mirt__conv *s = &g->s;
    int64_t channels = s->ci / s->groups, filters = s->co / s->groups, group = c / channels;
    double sum = 0;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        int64_t oy = mirt__ref_reader_of(iy, ky, s->dilation_h, s->stride_h, s->pad_top, s->oh);
        for (int64_t kx = 0; oy >= 0 && kx < s->kw; kx++) {
            int64_t ox = mirt__ref_reader_of(ix, kx, s->dilation_w, s->stride_w, s->pad_left, s->ow);
            for (int64_t o = group * filters; ox >= 0 && o < (group + 1) * filters; o++) {
                double dy = g->dy[((row * s->oh + oy) * s->ow + ox) * s->co + o];
                sum += dy * g->kernel[((ky * s->kw + kx) * channels + c % channels) * s->co + o];
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_input_grad(const mirt__conv_input_grad *g, const mirt__where *where) {
    const mirt__conv *s = &g->s;
    int64_t at = 0;
    (void)where;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t iy = 0; iy < s->h; iy++) {
            for (int64_t ix = 0; ix < s->w; ix++) {
                for (int64_t c = 0; c < s->ci; c++, at++) {
                    g->dx[at] = mirt__ref_finish(&g->epilogue, mirt__ref_input_grad_sum(g, row, iy, ix, c), at, c);
                }
            }
        }
    }
}

/* The sum over all outputs of channel o, each times the input that kernel[ky, kx, c, o] met there. */
static mirt__real mirt__ref_weight_grad_sum(const mirt__conv_weight_grad *g, int64_t ky, int64_t kx, int64_t c, int64_t o) {
    const mirt__conv *s = &g->s;
    int64_t first = o / (s->co / s->groups) * (s->ci / s->groups);
    double sum = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t oy = 0; oy < s->oh; oy++) {
            for (int64_t ox = 0; ox < s->ow; ox++) {
                int64_t iy = oy * s->stride_h + ky * s->dilation_h - s->pad_top;
                int64_t ix = ox * s->stride_w + kx * s->dilation_w - s->pad_left;
                double dy = g->dy[((row * s->oh + oy) * s->ow + ox) * s->co + o];
                sum += dy * mirt__ref_pixel(s, &g->x, row, iy, ix, first + c);
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_weight_grad(const mirt__conv_weight_grad *g, const mirt__where *where) {
    const mirt__conv *s = &g->s;
    int64_t at = 0;
    (void)where;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            for (int64_t c = 0; c < s->ci / s->groups; c++) {
                for (int64_t o = 0; o < s->co; o++, at++) g->dkernel[at] = mirt__ref_weight_grad_sum(g, ky, kx, c, o);
            }
        }
    }
    for (int64_t o = 0; g->db && o < s->co; o++) {
        double sum = 0;
        for (int64_t i = 0; i < s->rows * s->oh * s->ow; i++) sum += g->dy[i * s->co + o];
        g->db[o] = (mirt__real)sum;
    }
}

MIRT__LIB void mirt__ref_conv_pool(const mirt__conv_pool *p, const mirt__where *where) {
    const mirt__conv *s = &p->s;
    int64_t at = 0;
    (void)where;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t wy = 0; wy < s->oh / 2; wy++) {
            for (int64_t wx = 0; wx < s->ow / 2; wx++) {
                for (int64_t o = 0; o < s->co; o++, at++) {
                    mirt__real best = 0;
                    int best_place = 0;
                    for (int place = 0; place < 4; place++) {
                        int64_t oy = 2 * wy + place / 2, ox = 2 * wx + place % 2;
                        mirt__real y = mirt__ref_conv_sum(s, &p->x, p->kernel, row, oy, ox, o) + (p->bias ? p->bias[o] : 0);
                        if (place == 0 || y > best) {
                            best = y;
                            best_place = place;
                        }
                    }
                    p->y[at] = mirt__ref_activate(MIRT_RELU, best);
                    if (p->which) p->which[at] = (uint8_t)(best > 0 ? best_place : 4);
                }
            }
        }
    }
}

/* As mirt__ref_weight_grad_sum, where of the four outputs in a window only the maximum has a gradient. */
static mirt__real mirt__ref_pool_weight_grad_sum(const mirt__conv_pool_weight_grad *g, int64_t ky, int64_t kx, int64_t c,
                                                 int64_t o) {
    const mirt__conv *s = &g->s;
    double sum = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t wy = 0; wy < s->oh / 2; wy++) {
            for (int64_t wx = 0; wx < s->ow / 2; wx++) {
                int64_t window = ((row * (s->oh / 2) + wy) * (s->ow / 2) + wx) * s->co + o;
                int place = g->which[window];
                if (place == 4) continue;
                int64_t iy = 2 * wy + place / 2 + ky, ix = 2 * wx + place % 2 + kx;
                sum += (double)g->dy[window] * mirt__ref_pixel(s, &g->x, row, iy, ix, c);
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_pool_weight_grad(const mirt__conv_pool_weight_grad *g, const mirt__where *where) {
    const mirt__conv *s = &g->s;
    int64_t at = 0;
    (void)where;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            for (int64_t c = 0; c < s->ci; c++) {
                for (int64_t o = 0; o < s->co; o++, at++) g->dkernel[at] = mirt__ref_pool_weight_grad_sum(g, ky, kx, c, o);
            }
        }
    }
    for (int64_t o = 0; g->db && o < s->co; o++) {
        double sum = 0;
        for (int64_t i = 0; i < s->rows * (s->oh / 2) * (s->ow / 2); i++) {
            if (g->which[i * s->co + o] != 4) sum += g->dy[i * s->co + o];
        }
        g->db[o] = (mirt__real)sum;
    }
}

/* >>section kernels/reference_pool.c */

/* Reference: max and average pooling. */

/* One window: the rows and columns of x it covers, [y0, y1) and [x0, x1); padding is cut off. */
typedef struct mirt__ref_window {
    int64_t top, left; /* where it would begin with its padding */
    int64_t y0, y1, x0, x1;
} mirt__ref_window;

static mirt__ref_window mirt__ref_window_of(const mirt__pool2d *p, int64_t oy, int64_t ox) {
    mirt__ref_window w;
    w.top = oy * p->stride_h - p->pad_top;
    w.left = ox * p->stride_w - p->pad_left;
    w.y0 = w.top < 0 ? 0 : w.top;
    w.x0 = w.left < 0 ? 0 : w.left;
    w.y1 = w.top + p->kh > p->h ? p->h : w.top + p->kh;
    w.x1 = w.left + p->kw > p->w ? p->w : w.left + p->kw;
    return w;
}

/* Calls `visit` for every window and channel: `at` is its place in the output, `base` that of
   x[row, 0, 0, channel]. */
typedef void (*mirt__ref_visit)(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base);
static void mirt__ref_each_window(const mirt__pool2d *p, mirt__ref_visit visit) {
    int64_t at = 0;
    for (int64_t row = 0; row < p->rows; row++) {
        for (int64_t oy = 0; oy < p->oh; oy++) {
            for (int64_t ox = 0; ox < p->ow; ox++) {
                mirt__ref_window w = mirt__ref_window_of(p, oy, ox);
                for (int64_t c = 0; c < p->c; c++, at++) visit(p, &w, at, row * p->h * p->w * p->c + c);
            }
        }
    }
}

static void mirt__ref_max_of(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    mirt__real best = (mirt__real)-INFINITY;
    int32_t place = -1;
    for (int64_t y = w->y0; y < w->y1; y++) {
        for (int64_t x = w->x0; x < w->x1; x++) {
            mirt__real value = p->x[base + (y * p->w + x) * p->c];
            if (place < 0 || value > best) {
                best = value;
                place = (int32_t)((y - w->top) * p->kw + (x - w->left));
            }
        }
    }
    p->y[at] = best;
    p->which[at] = place;
}

static void mirt__ref_max_back(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    int64_t y = w->top + p->which[at] / p->kw, x = w->left + p->which[at] % p->kw;
    p->y[base + (y * p->w + x) * p->c] += p->x[at];
}

static void mirt__ref_average_of(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    mirt__real sum = 0;
    for (int64_t y = w->y0; y < w->y1; y++) {
        for (int64_t x = w->x0; x < w->x1; x++) sum += p->x[base + (y * p->w + x) * p->c];
    }
    p->y[at] = sum / (mirt__real)((w->y1 - w->y0) * (w->x1 - w->x0));
}

static void mirt__ref_average_back(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    mirt__real share = p->x[at] / (mirt__real)((w->y1 - w->y0) * (w->x1 - w->x0));
    for (int64_t y = w->y0; y < w->y1; y++) {
        for (int64_t x = w->x0; x < w->x1; x++) p->y[base + (y * p->w + x) * p->c] += share;
    }
}

MIRT__LIB void mirt__ref_max_pool(const mirt__pool2d *p, const mirt__where *where) {
    (void)where;
    mirt__ref_each_window(p, mirt__ref_max_of);
}

MIRT__LIB void mirt__ref_max_pool_grad(const mirt__pool2d *p, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < p->rows * p->h * p->w * p->c; i++) p->y[i] = 0;
    mirt__ref_each_window(p, mirt__ref_max_back);
}

MIRT__LIB void mirt__ref_average_pool(const mirt__pool2d *p, const mirt__where *where) {
    (void)where;
    mirt__ref_each_window(p, mirt__ref_average_of);
}

MIRT__LIB void mirt__ref_average_pool_grad(const mirt__pool2d *p, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < p->rows * p->h * p->w * p->c; i++) p->y[i] = 0;
    mirt__ref_each_window(p, mirt__ref_average_back);
}

/* >>section kernels/reference_loss.c */

/* Reference: softmax, losses and accuracy. */

static mirt__real mirt__ref_max(const mirt__real *x, int64_t n) {
    mirt__real best = x[0];
    for (int64_t j = 1; j < n; j++) best = x[j] > best ? x[j] : best;
    return best;
}

/* The place of the first of the largest. */
static int64_t mirt__ref_argmax(const mirt__real *x, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) best = x[j] > x[best] ? j : best;
    return best;
}

MIRT__LIB void mirt__ref_softmax(const mirt__softmax *s, const mirt__where *where) {
    (void)where;
    for (int64_t r = 0; s->n > 0 && r < s->rows; r++) {
        const mirt__real *x = s->x + r * s->n;
        mirt__real *y = s->y + r * s->n, best = mirt__ref_max(x, s->n), sum = 0;
        for (int64_t j = 0; j < s->n; j++) {
            y[j] = mirt__exp(x[j] - best); /* the largest becomes 1: nothing overflows */
            sum += y[j];
        }
        for (int64_t j = 0; j < s->n; j++) y[j] = s->log ? x[j] - best - mirt__ln(sum) : y[j] / sum;
    }
}

MIRT__LIB void mirt__ref_softmax_grad(const mirt__softmax *s, const mirt__where *where) {
    (void)where;
    for (int64_t r = 0; r < s->rows; r++) {
        const mirt__real *p = s->x + r * s->n, *dy = s->dy + r * s->n;
        double sum = 0;
        for (int64_t j = 0; j < s->n; j++) sum += s->log ? (double)dy[j] : (double)dy[j] * p[j];
        for (int64_t j = 0; j < s->n; j++) {
            s->y[r * s->n + j] = s->log ? dy[j] - mirt__exp(p[j]) * (mirt__real)sum : p[j] * (dy[j] - (mirt__real)sum);
        }
    }
}

/* Probabilities of 0 and 1 would have infinite logarithms. */
static const mirt__real mirt__ref_smallest = (mirt__real)1e-7, mirt__ref_largest = (mirt__real)(1 - 1e-7);

static mirt__real mirt__ref_clip(mirt__real p) {
    return p < mirt__ref_smallest ? mirt__ref_smallest : p > mirt__ref_largest ? mirt__ref_largest : p;
}

/* The derivative of mirt__ref_clip. */
static mirt__real mirt__ref_unclipped(mirt__real p) {
    return p < mirt__ref_smallest || p > mirt__ref_largest ? (mirt__real)0 : (mirt__real)1;
}

/* log(sum of exp(x)), less the largest x. */
static mirt__real mirt__ref_log_sum(const mirt__real *x, int64_t n, mirt__real largest) {
    mirt__real sum = 0;
    for (int64_t j = 0; j < n; j++) sum += mirt__exp(x[j] - largest);
    return mirt__ln(sum);
}

/* -log of the probability of `label`. Keras normalizes clipped probabilities again. */
static mirt__real mirt__ref_sparse(const mirt__loss *l, const mirt__real *x, int32_t label) {
    if (l->from_logits) {
        mirt__real largest = mirt__ref_max(x, l->n);
        return mirt__ref_log_sum(x, l->n, largest) - (x[label] - largest);
    }
    mirt__real sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__ref_clip(x[j]);
    return mirt__ln(sum) - mirt__ln(mirt__ref_clip(x[label]));
}

/* The sum of -t * log of the probability of each class; a class with t = 0 counts nothing. */
static mirt__real mirt__ref_categorical(const mirt__loss *l, const mirt__real *x, const mirt__real *t) {
    mirt__real loss = 0;
    if (l->from_logits) {
        mirt__real largest = mirt__ref_max(x, l->n), log_sum = mirt__ref_log_sum(x, l->n, largest);
        for (int64_t j = 0; j < l->n; j++) loss += t[j] == 0 ? 0 : t[j] * (log_sum - (x[j] - largest));
        return loss;
    }
    mirt__real sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += x[j];
    for (int64_t j = 0; j < l->n; j++) loss -= t[j] * mirt__ln(mirt__ref_clip(x[j] / sum));
    return loss;
}

/* The mean of -(t log p + (1 - t) log(1 - p)); from logits in the form that cannot overflow. */
static mirt__real mirt__ref_binary_loss(const mirt__loss *l, const mirt__real *x, const mirt__real *t) {
    mirt__real loss = 0;
    for (int64_t j = 0; j < l->n; j++) {
        if (l->from_logits) {
            loss += (x[j] > 0 ? x[j] : 0) - x[j] * t[j] + mirt__log1p(mirt__exp(-mirt__fabs(x[j])));
        } else {
            mirt__real p = mirt__ref_clip(x[j]);
            loss -= t[j] * mirt__ln(p) + (1 - t[j]) * mirt__ln(1 - p);
        }
    }
    return loss / (mirt__real)l->n;
}

static mirt__real mirt__ref_squared(const mirt__loss *l, const mirt__real *x, const mirt__real *t) {
    mirt__real loss = 0;
    for (int64_t j = 0; j < l->n; j++) loss += (x[j] - t[j]) * (x[j] - t[j]);
    return loss / (mirt__real)l->n;
}

/* Row r of float labels; the sparse loss has none. */
static const mirt__real *mirt__ref_targets(const void *labels, bool sparse, int64_t r, int64_t n) {
    return sparse ? NULL : (const mirt__real *)labels + r * n;
}

MIRT__LIB void mirt__ref_loss(const mirt__loss *l, const mirt__where *where) {
    (void)where;
    for (int64_t r = 0; r < l->rows; r++) {
        const mirt__real *x = l->x + r * l->n;
        const mirt__real *t = mirt__ref_targets(l->labels, l->kind == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, r, l->n);
        switch (l->kind) {
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            l->loss[r] = mirt__ref_sparse(l, x, ((const int32_t *)l->labels)[r]);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: l->loss[r] = mirt__ref_categorical(l, x, t); break;
        case MIRT_BINARY_CROSSENTROPY: l->loss[r] = mirt__ref_binary_loss(l, x, t); break;
        default: l->loss[r] = mirt__ref_squared(l, x, t); break;
        }
    }
}

/* d loss / d x of one row, into dx. */
static void mirt__ref_sparse_grad(const mirt__loss *l, const mirt__real *x, int32_t label, mirt__real *dx) {
    mirt__real largest = mirt__ref_max(x, l->n), sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += l->from_logits ? mirt__exp(x[j] - largest) : mirt__ref_clip(x[j]);
    for (int64_t j = 0; j < l->n; j++) {
        mirt__real hit = j == label ? (mirt__real)1 : (mirt__real)0;
        if (l->from_logits) {
            dx[j] = mirt__exp(x[j] - largest) / sum - hit;
        } else {
            dx[j] = mirt__ref_unclipped(x[j]) * (1 / sum - hit / mirt__ref_clip(x[j]));
        }
    }
}

static void mirt__ref_categorical_grad(const mirt__loss *l, const mirt__real *x, const mirt__real *t, mirt__real *dx) {
    mirt__real largest = mirt__ref_max(x, l->n), sum = 0, total = 0;
    for (int64_t j = 0; j < l->n; j++) sum += l->from_logits ? mirt__exp(x[j] - largest) : x[j];
    if (l->from_logits) {
        for (int64_t j = 0; j < l->n; j++) total += t[j];
        for (int64_t j = 0; j < l->n; j++) dx[j] = mirt__exp(x[j] - largest) / sum * total - t[j];
        return;
    }
    /* With q = x / sum and g = d loss / d q: dx = (g - sum of g q) / sum. */
    for (int64_t j = 0; j < l->n; j++) {
        mirt__real q = x[j] / sum;
        dx[j] = -t[j] / mirt__ref_clip(q) * mirt__ref_unclipped(q);
        total += dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) dx[j] = (dx[j] - total) / sum;
}

static void mirt__ref_binary_loss_grad(const mirt__loss *l, const mirt__real *x, const mirt__real *t, mirt__real *dx) {
    for (int64_t j = 0; j < l->n; j++) {
        if (l->from_logits) {
            dx[j] = mirt__ref_activate(MIRT_SIGMOID, x[j]) - t[j];
        } else {
            mirt__real p = mirt__ref_clip(x[j]);
            dx[j] = mirt__ref_unclipped(x[j]) * ((1 - t[j]) / (1 - p) - t[j] / p);
        }
        dx[j] /= (mirt__real)l->n;
    }
}

MIRT__LIB void mirt__ref_loss_grad(const mirt__loss *l, const mirt__where *where) {
    (void)where;
    for (int64_t r = 0; r < l->rows; r++) {
        const mirt__real *x = l->x + r * l->n;
        const mirt__real *t = mirt__ref_targets(l->labels, l->kind == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, r, l->n);
        mirt__real *dx = l->dx + r * l->n;
        switch (l->kind) {
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            mirt__ref_sparse_grad(l, x, ((const int32_t *)l->labels)[r], dx);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: mirt__ref_categorical_grad(l, x, t, dx); break;
        case MIRT_BINARY_CROSSENTROPY: mirt__ref_binary_loss_grad(l, x, t, dx); break;
        default:
            for (int64_t j = 0; j < l->n; j++) dx[j] = 2 * (x[j] - t[j]) / (mirt__real)l->n;
        }
        for (int64_t j = 0; j < l->n; j++) dx[j] *= l->dloss[r];
    }
}

MIRT__LIB void mirt__ref_accuracy(const mirt__accuracy *a, const mirt__where *where) {
    (void)where;
    for (int64_t r = 0; r < a->rows; r++) {
        const mirt__real *x = a->x + r * a->n;
        const mirt__real *t = mirt__ref_targets(a->labels, a->kind == MIRT__ACCURACY_SPARSE, r, a->n);
        mirt__real right = 0;
        switch (a->kind) {
        case MIRT__ACCURACY_SPARSE: right = mirt__ref_argmax(x, a->n) == ((const int32_t *)a->labels)[r]; break;
        case MIRT__ACCURACY_CATEGORICAL: right = mirt__ref_argmax(x, a->n) == mirt__ref_argmax(t, a->n); break;
        case MIRT__ACCURACY_BINARY:
            for (int64_t j = 0; j < a->n; j++) right += t[j] == (x[j] > (mirt__real)0.5 ? 1 : 0);
            right /= (mirt__real)a->n;
            break;
        }
        a->y[r] = right;
    }
}

/* >>section kernels/reference_norm.c */

/* Reference: batch and layer normalization. */

static int64_t mirt__ref_norm_of(const mirt__norm *s, int64_t row, int64_t j) { return s->by_row ? row : j; }

static mirt__real mirt__ref_norm_inverse(const mirt__norm *s, int64_t row, int64_t j) {
    return 1 / mirt__sqrt(s->variance[mirt__ref_norm_of(s, row, j)] + (mirt__real)s->epsilon);
}

static mirt__real mirt__ref_norm_hat(const mirt__norm *s, int64_t row, int64_t j) {
    return (s->x[row * s->n + j] - s->mean[mirt__ref_norm_of(s, row, j)]) * mirt__ref_norm_inverse(s, row, j);
}

/* The gradient of hat. */
static mirt__real mirt__ref_norm_dhat(const mirt__norm *s, int64_t row, int64_t j) {
    return s->gamma ? s->dy[row * s->n + j] * s->gamma[j] : s->dy[row * s->n + j];
}

MIRT__LIB void mirt__ref_norm_stats(const mirt__norm *s, const mirt__where *where) {
    const int64_t outputs = s->by_row ? s->rows : s->n, count = s->by_row ? s->n : s->rows, step = s->by_row ? 1 : s->n;
    (void)where;
    for (int64_t i = 0; i < outputs; i++) {
        const mirt__real *x = s->x + (s->by_row ? i * s->n : i);
        double mean = 0, variance = 0;
        for (int64_t k = 0; k < count; k++) mean += x[k * step];
        if (count > 0) mean /= (double)count;
        for (int64_t k = 0; k < count; k++) variance += (x[k * step] - mean) * (x[k * step] - mean);
        if (count > 0) variance /= (double)count;
        s->out[0][i] = (mirt__real)mean;
        s->out[1][i] = (mirt__real)variance;
    }
}

MIRT__LIB void mirt__ref_normalize(const mirt__norm *s, const mirt__where *where) {
    (void)where;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t j = 0; j < s->n; j++) {
            mirt__real y = mirt__ref_norm_hat(s, row, j);
            if (s->gamma) y *= s->gamma[j];
            if (s->beta) y += s->beta[j];
            s->y[row * s->n + j] = y;
        }
    }
}

MIRT__LIB void mirt__ref_norm_grad_sums(const mirt__norm *s, const mirt__where *where) {
    (void)where;
    for (int64_t j = 0; j < s->n; j++) {
        double sum = 0, product = 0;
        for (int64_t row = 0; row < s->rows; row++) {
            const double dy = s->dy[row * s->n + j];
            sum += dy;
            product += dy * mirt__ref_norm_hat(s, row, j);
        }
        s->out[0][j] = (mirt__real)sum;
        s->out[1][j] = (mirt__real)product;
    }
}

/* d hat less what the statistics take away: its mean, and its projection on hat. */
static void mirt__ref_norm_back_row(const mirt__norm *s, int64_t row) {
    double sum = 0, product = 0;
    for (int64_t j = 0; j < s->n; j++) {
        sum += mirt__ref_norm_dhat(s, row, j);
        product += mirt__ref_norm_dhat(s, row, j) * mirt__ref_norm_hat(s, row, j);
    }
    const mirt__real mean = (mirt__real)(sum / (double)s->n), part = (mirt__real)(product / (double)s->n);
    for (int64_t j = 0; j < s->n; j++) {
        s->y[row * s->n + j] = (mirt__ref_norm_dhat(s, row, j) - mean - mirt__ref_norm_hat(s, row, j) * part) * mirt__ref_norm_inverse(s, row, j);
    }
}

MIRT__LIB void mirt__ref_norm_grad_input(const mirt__norm *s, const mirt__where *where) {
    (void)where;
    for (int64_t row = 0; row < s->rows; row++) {
        if (s->by_row) {
            mirt__ref_norm_back_row(s, row);
            continue;
        }
        for (int64_t j = 0; j < s->n; j++) {
            mirt__real dhat = mirt__ref_norm_dhat(s, row, j);
            if (s->sum[0]) {
                const mirt__real away = (mirt__real)((s->sum[0][j] + mirt__ref_norm_hat(s, row, j) * s->sum[1][j]) / s->count);
                dhat -= s->gamma ? away * s->gamma[j] : away;
            }
            s->y[row * s->n + j] = dhat * mirt__ref_norm_inverse(s, row, j);
        }
    }
}

/* >>section kernels/reference_resize.c */

/* Reference: images of another size. */

/* The four inputs that output (oy, ox) reads: their places in an image, and their weights. */
static void mirt__ref_resize_corners(const mirt__resize *r, int64_t oy, int64_t ox, int64_t place[4], mirt__real weight[4]) {
    const mirt__between v = mirt__resize_at(oy, r->h, r->oh, r->bilinear), u = mirt__resize_at(ox, r->w, r->ow, r->bilinear);
    for (int i = 0; i < 4; i++) {
        place[i] = (i & 2 ? v.high : v.low) * r->w + (i & 1 ? u.high : u.low);
        weight[i] = (i & 2 ? v.part : 1 - v.part) * (i & 1 ? u.part : 1 - u.part);
    }
}

MIRT__LIB void mirt__ref_resize(const mirt__resize *r, const mirt__where *where) {
    int64_t place[4], at = 0;
    mirt__real weight[4];
    (void)where;
    for (int64_t row = 0; row < r->rows; row++) {
        for (int64_t o = 0; o < r->oh * r->ow; o++) {
            mirt__ref_resize_corners(r, o / r->ow, o % r->ow, place, weight);
            for (int64_t c = 0; c < r->c; c++, at++) {
                mirt__real sum = 0;
                for (int i = 0; i < 4; i++) sum += weight[i] * r->x[(row * r->h * r->w + place[i]) * r->c + c];
                r->y[at] = sum;
            }
        }
    }
}

MIRT__LIB void mirt__ref_resize_grad(const mirt__resize *r, const mirt__where *where) {
    int64_t place[4], at = 0;
    mirt__real weight[4];
    (void)where;
    for (int64_t i = 0; i < r->rows * r->h * r->w * r->c; i++) r->y[i] = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        for (int64_t o = 0; o < r->oh * r->ow; o++) {
            mirt__ref_resize_corners(r, o / r->ow, o % r->ow, place, weight);
            for (int64_t c = 0; c < r->c; c++, at++) {
                for (int i = 0; i < 4; i++) r->y[(row * r->h * r->w + place[i]) * r->c + c] += weight[i] * r->x[at];
            }
        }
    }
}

/* >>section base/cold_end.inc */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC pop_options
#endif

/* >>section kernels/common_elementwise.c */

/* Shared by the fast tables: elementwise kernels, conversions, dropout. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif

typedef struct mirt__common_pieces {
    const mirt__where *where;
    int64_t count, step;
    mirt__common_fn fn;
    const void *args;
} mirt__common_pieces;

static void mirt__common_piece(void *arg, int64_t task, int member) {
    const mirt__common_pieces *pieces = (const mirt__common_pieces *)arg;
    int64_t begin = task * pieces->step, end = begin + pieces->step;
    char *scratch = (char *)pieces->where->scratch;
    if (scratch) scratch += (size_t)member * pieces->where->scratch_per_thread;
    pieces->fn(pieces->args, begin, end < pieces->count ? end : pieces->count, scratch);
}

MIRT__LIB void mirt__common_range(const mirt__where *where, int64_t count, int64_t step, mirt__common_fn fn, const void *args) {
    mirt__common_pieces pieces;
    pieces.where = where;
    pieces.count = count;
    pieces.step = step;
    pieces.fn = fn;
    pieces.args = args;
    mirt__team_for(where->team, count / step + (count % step != 0), mirt__common_piece, &pieces);
}

MIRT__LIB int64_t mirt__common_step(int64_t size) {
    return size <= 0 || size > MIRT__GRAIN ? 1 : MIRT__GRAIN / size;
}

#define MIRT__ROOT_HALF 0.70710678118654752f    /* sqrt(1 / 2) */
#define MIRT__ROOT_HALF_PI 0.39894228040143268f /* sqrt(1 / (2 pi)) */

static float mirt__common_hard_sigmoid(float x) { return (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6; }

static float mirt__common_silu_derivative(float x) {
    const float s = 1 / (1 + expf(-x));
    return s * (1 + x * (1 - s));
}

#define MIRT__UNARY_CASE(kind, expression) \
    case kind: \
        MIRT__INDEPENDENT \
        for (int64_t i = begin; i < end; i++) { \
            const float x = px[i]; \
            y[i] = (expression); \
        } \
        break;

static void mirt__common_unary_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__unary *u = (const mirt__unary *)args;
    const float *px = u->x, scale = u->scale, offset = u->offset;
    float *y = u->y;
    (void)scratch;
    switch (u->kind) {
    case MIRT__COPY:
        if (px != y) memcpy(y + begin, px + begin, (size_t)(end - begin) * sizeof(float));
        break;
        MIRT__UNARY_CASE(MIRT__NEGATIVE, -x)
        MIRT__UNARY_CASE(MIRT__SQUARE, x * x)
        MIRT__UNARY_CASE(MIRT__AFFINE, fmaf(x, scale, offset))
        MIRT__UNARY_CASE(MIRT__EXP, expf(x))
        MIRT__UNARY_CASE(MIRT__LOG, logf(x))
        MIRT__UNARY_CASE(MIRT__SQRT, sqrtf(x))
        MIRT__UNARY_CASE(MIRT__RSQRT, 1 / sqrtf(x))
        MIRT__UNARY_CASE(MIRT__ABS, fabsf(x))
        MIRT__UNARY_CASE(MIRT__SIGN, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
        MIRT__UNARY_CASE(MIRT__FLOOR, floorf(x))
        MIRT__UNARY_CASE(MIRT__CLIP, x < scale ? scale : x > offset ? offset : x)
        MIRT__UNARY_CASE(MIRT__POWER, powf(x, scale))
        MIRT__UNARY_CASE(MIRT__ACT_RELU, x < 0 ? 0 : x)
        MIRT__UNARY_CASE(MIRT__ACT_RELU6, x < 0 ? 0 : x > 6 ? 6 : x)
        MIRT__UNARY_CASE(MIRT__ACT_SIGMOID, 1 / (1 + expf(-x)))
        MIRT__UNARY_CASE(MIRT__ACT_TANH, tanhf(x))
        MIRT__UNARY_CASE(MIRT__ACT_LEAKY_RELU, x > 0 ? x : x * scale)
        MIRT__UNARY_CASE(MIRT__ACT_ELU, x > 0 ? x : expm1f(x) * scale)
        MIRT__UNARY_CASE(MIRT__ACT_GELU, 0.5f * x * erfcf(-MIRT__ROOT_HALF * x))
        MIRT__UNARY_CASE(MIRT__ACT_SILU, x / (1 + expf(-x)))
        MIRT__UNARY_CASE(MIRT__ACT_HARD_SIGMOID, mirt__common_hard_sigmoid(x))
        MIRT__UNARY_CASE(MIRT__ACT_HARD_SWISH, x * mirt__common_hard_sigmoid(x))
        MIRT__UNARY_CASE(MIRT__ACT_SOFTPLUS, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))))
    }
}

#undef MIRT__UNARY_CASE

MIRT__LIB void mirt__common_unary(const mirt__unary *args, const mirt__where *where) {
    mirt__common_range(where, args->count, MIRT__GRAIN, mirt__common_unary_range, args);
}

MIRT__LIB mirt__common_walk mirt__common_walk_of(const void *args, int rank, const int64_t *dim, int operands, const int64_t *const *stride) {
    mirt__common_walk w;
    memset(&w, 0, sizeof w);
    w.args = args;
    w.operands = operands;
    w.count = 1;
    for (int i = 0; i < rank; i++) {
        bool joins = w.rank > 0;
        w.count *= dim[i];
        if (dim[i] == 1) continue;
        for (int k = 0; k < operands; k++) joins = joins && w.stride[k][w.rank - 1] == stride[k][i] * dim[i];
        if (!joins) w.dim[w.rank++] = 1;
        w.dim[w.rank - 1] *= dim[i];
        for (int k = 0; k < operands; k++) w.stride[k][w.rank - 1] = stride[k][i];
    }
    if (w.rank == 0) { /* a single element */
        w.rank = 1;
        w.dim[0] = 1;
        for (int k = 0; k < operands; k++) w.stride[k][0] = 1;
    }
    return w;
}

MIRT__LIB int64_t mirt__common_walk_line(const mirt__common_walk *w, int64_t at, int64_t most, int64_t *place) {
    const int last = w->rank - 1;
    int64_t rest = at / w->dim[last], column = at % w->dim[last], left = w->dim[last] - column;
    for (int k = 0; k < w->operands; k++) place[k] = column * w->stride[k][last];
    for (int i = last - 1; i >= 0; rest /= w->dim[i], i--) {
        for (int k = 0; k < w->operands; k++) place[k] += rest % w->dim[i] * w->stride[k][i];
    }
    return left < most ? left : most;
}

#define MIRT__BINARY_PIECE 256 /* elements of an operand gathered at a time */

#define MIRT__BINARY_CASE(kind, expression) \
    case kind: \
        MIRT__INDEPENDENT \
        for (int64_t i = 0; i < count; i++) { \
            const float a = pa[i], b = pb[i]; \
            y[i] = (expression); \
        } \
        break;

static void mirt__common_binary_dense(const mirt__binary *args, const float *pa, const float *pb, float *y, int64_t count) {
    const float scale = args->scale, offset = args->offset;
    switch (args->kind) {
        MIRT__BINARY_CASE(MIRT__ADD, a + b)
        MIRT__BINARY_CASE(MIRT__SUBTRACT, a - b)
        MIRT__BINARY_CASE(MIRT__MULTIPLY, a * b)
        MIRT__BINARY_CASE(MIRT__DIVIDE, a / b)
        MIRT__BINARY_CASE(MIRT__MAXIMUM, a >= b || a != a ? a : b)
        MIRT__BINARY_CASE(MIRT__MINIMUM, a <= b || a != a ? a : b)
        MIRT__BINARY_CASE(MIRT__RELU_GRAD, b > 0 ? a : 0)
        MIRT__BINARY_CASE(MIRT__RELU6_GRAD, b > 0 && b < 6 ? a : 0)
        MIRT__BINARY_CASE(MIRT__SIGMOID_GRAD, a * (b * (1 - b)))
        MIRT__BINARY_CASE(MIRT__TANH_GRAD, a * (1 - b * b))
        MIRT__BINARY_CASE(MIRT__LEAKY_RELU_GRAD, b > 0 ? a : a * scale)
        MIRT__BINARY_CASE(MIRT__ELU_GRAD, b > 0 ? a : a * (expf(b) * scale))
        MIRT__BINARY_CASE(MIRT__GELU_GRAD, a * (0.5f * erfcf(-MIRT__ROOT_HALF * b) + b * (MIRT__ROOT_HALF_PI * expf(-0.5f * b * b))))
        MIRT__BINARY_CASE(MIRT__SILU_GRAD, a * mirt__common_silu_derivative(b))
        MIRT__BINARY_CASE(MIRT__HARD_SIGMOID_GRAD, b > -3 && b < 3 ? a / 6 : 0)
        MIRT__BINARY_CASE(MIRT__HARD_SWISH_GRAD, a * (mirt__common_hard_sigmoid(b) + (b > -3 && b < 3 ? b / 6 : 0)))
        MIRT__BINARY_CASE(MIRT__SOFTPLUS_GRAD, a / (1 + expf(-b)))
        MIRT__BINARY_CASE(MIRT__CLIP_GRAD, b < scale || b > offset ? 0 : a)
        MIRT__BINARY_CASE(MIRT__POWER_GRAD, scale == 0 ? 0 : a * (scale * powf(b, scale - 1)))
    }
}

#undef MIRT__BINARY_CASE

/* `count` elements `step` apart (0: one that repeats) side by side in `piece`, or where they lie. */
static const float *mirt__common_gather_line(const float *from, int64_t step, float *piece, int64_t count) {
    if (step == 1) return from;
    for (int64_t i = 0; i < count; i++) piece[i] = from[i * step];
    return piece;
}

static void mirt__common_binary_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_walk *walk = (const mirt__common_walk *)args;
    const mirt__binary *b = (const mirt__binary *)walk->args;
    const int64_t *step[2] = {walk->stride[0] + walk->rank - 1, walk->stride[1] + walk->rank - 1};
    const bool dense = *step[0] == 1 && *step[1] == 1;
    float piece[2][MIRT__BINARY_PIECE];
    (void)scratch;
    for (int64_t at = begin, count, place[3]; at < end; at += count) {
        count = mirt__common_walk_line(walk, at, dense || end - at < MIRT__BINARY_PIECE ? end - at : MIRT__BINARY_PIECE, place);
        mirt__common_binary_dense(b, mirt__common_gather_line(b->a + place[0], *step[0], piece[0], count),
                                  mirt__common_gather_line(b->b + place[1], *step[1], piece[1], count), b->y + at, count);
    }
}

MIRT__LIB void mirt__common_binary(const mirt__binary *args, const mirt__where *where) {
    const int64_t *const stride[2] = {args->a_stride, args->b_stride};
    const mirt__common_walk walk = mirt__common_walk_of(args, args->rank, args->dim, 2, stride);
    mirt__common_range(where, walk.count, MIRT__GRAIN, mirt__common_binary_range, &walk);
}

#undef MIRT__BINARY_PIECE

#define MIRT__DRAWS 16 /* Philox blocks drawn side by side */

/* mirt__philox for the counters {block .. block + MIRT__DRAWS - 1, c1, c2, c3}, here so that the
   compiler can do several at once; each block's four words follow each other. */
static void mirt__common_draw(uint32_t block, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key, uint32_t *word) {
    for (int i = 0; i < MIRT__DRAWS; i++) {
        uint32_t x0 = block + (uint32_t)i, x1 = c1, x2 = c2, x3 = c3, k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
            x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
            x1 = (uint32_t)p1;
            x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
            x3 = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        word[4 * i] = x0;
        word[4 * i + 1] = x1;
        word[4 * i + 2] = x2;
        word[4 * i + 3] = x3;
    }
}

static void mirt__common_dropout_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__dropout *d = (const mirt__dropout *)args;
    const float kept = 1 - d->rate;
    const int32_t limit = (int32_t)ceilf(d->rate * 16777216.0f); /* unit >= rate, without the fraction */
    uint32_t word[4 * MIRT__DRAWS];
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const uint64_t row = (uint64_t)(d->first_row + r);
        for (int64_t j = 0; j < d->n; j += 4 * MIRT__DRAWS) {
            const int64_t count = d->n - j < 4 * MIRT__DRAWS ? d->n - j : 4 * MIRT__DRAWS;
            const float *x = d->x + r * d->n + j;
            float *y = d->y + r * d->n + j;
            mirt__common_draw((uint32_t)(j / 4), (uint32_t)row, (uint32_t)(row >> 32), d->step, d->key, word);
            MIRT__INDEPENDENT
            for (int64_t i = 0; i < count; i++) {
                /* Whether to keep an element cannot be predicted: bits cut off instead of a branch. */
                const float scaled = x[i] / kept;
                uint32_t bits;
                memcpy(&bits, &scaled, sizeof bits);
                bits &= (int32_t)(word[i] >> 8) >= limit ? UINT32_MAX : 0;
                memcpy(&y[i], &bits, sizeof bits);
            }
        }
    }
}

#undef MIRT__DRAWS

MIRT__LIB void mirt__common_dropout(const mirt__dropout *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_dropout_rows, args);
}

static uint8_t mirt__common_float_to_u8(float x) {
    return x >= 255 ? 255 : x > 0 ? (uint8_t)x : 0; /* NaN is not > 0 */
}

static int32_t mirt__common_float_to_i32(float x) {
    if (x >= 2147483648.0f) return INT32_MAX;
    if (x >= -2147483648.0f) return (int32_t)x;
    return x != x ? 0 : INT32_MIN;
}

/* A bool is read as the byte it is. */
static void mirt__common_cast_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__cast *c = (const mirt__cast *)args;
    const float *xf = (const float *)c->x;
    const int32_t *xi = (const int32_t *)c->x;
    const uint8_t *xb = (const uint8_t *)c->x;
    float *yf = (float *)c->y;
    int32_t *yi = (int32_t *)c->y;
    uint8_t *yb = (uint8_t *)c->y;
    (void)scratch;
    if (c->from == c->to) {
        const size_t size = mirt__dtype_size(c->from);
        memcpy(yb + (size_t)begin * size, xb + (size_t)begin * size, (size_t)(end - begin) * size);
    } else if (c->from == MIRT_FLOAT32) {
        if (c->to == MIRT_INT32) {
            for (int64_t i = begin; i < end; i++) yi[i] = mirt__common_float_to_i32(xf[i]);
        } else if (c->to == MIRT_BOOL) {
            for (int64_t i = begin; i < end; i++) yb[i] = xf[i] != 0;
        } else {
            for (int64_t i = begin; i < end; i++) yb[i] = mirt__common_float_to_u8(xf[i]);
        }
    } else if (c->to == MIRT_BOOL) {
        for (int64_t i = begin; i < end; i++) yb[i] = c->from == MIRT_INT32 ? xi[i] != 0 : xb[i] != 0;
    } else if (c->from == MIRT_INT32 && c->to == MIRT_FLOAT32) {
        for (int64_t i = begin; i < end; i++) yf[i] = (float)xi[i];
    } else if (c->from == MIRT_INT32) {
        for (int64_t i = begin; i < end; i++) yb[i] = (uint8_t)(xi[i] < 0 ? 0 : xi[i] > 255 ? 255 : xi[i]);
    } else if (c->to == MIRT_FLOAT32) {
        MIRT__INDEPENDENT
        for (int64_t i = begin; i < end; i++) yf[i] = (float)xb[i];
    } else if (c->to == MIRT_INT32) {
        MIRT__INDEPENDENT
        for (int64_t i = begin; i < end; i++) yi[i] = xb[i];
    } else if (xb != yb) {
        memcpy(yb + begin, xb + begin, (size_t)(end - begin));
    }
}

MIRT__LIB void mirt__common_cast(const mirt__cast *args, const mirt__where *where) {
    mirt__common_range(where, args->count, MIRT__GRAIN, mirt__common_cast_range, args);
}

static void mirt__common_one_hot_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__one_hot *o = (const mirt__one_hot *)args;
    (void)scratch;
    memset(o->y + begin * o->depth, 0, (size_t)((end - begin) * o->depth) * sizeof(float));
    for (int64_t i = begin; i < end; i++) {
        const int64_t index = o->dtype == MIRT_UINT8 ? ((const uint8_t *)o->x)[i] : ((const int32_t *)o->x)[i];
        if (index >= 0 && index < o->depth) o->y[i * o->depth + index] = 1;
    }
}

MIRT__LIB void mirt__common_one_hot(const mirt__one_hot *args, const mirt__where *where) {
    mirt__common_range(where, args->count, mirt__common_step(args->depth), mirt__common_one_hot_range, args);
}

#undef MIRT__ROOT_HALF
#undef MIRT__ROOT_HALF_PI
#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/common_logic.c */

/* Shared by the fast tables: comparisons, bools and choices. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif
#if !defined(__clang__) && defined(__GNUC__)
/* Making vectors of so many short loops takes longer to compile than it is worth. */
#pragma GCC optimize("O1,no-tree-loop-vectorize")
#endif

#define MIRT__LOGIC_PIECE 256 /* elements of an operand gathered at a time */

/* `count` elements `step` apart (0: one that repeats) side by side in `piece`, or where they lie. */
#define MIRT__GATHER(type, name) \
    static const type *mirt__common_gather_##name(const type *from, int64_t step, type *piece, int64_t count) { \
        if (step == 1) return from; \
        for (int64_t i = 0; i < count; i++) piece[i] = from[i * step]; \
        return piece; \
    }
MIRT__GATHER(float, f32)
MIRT__GATHER(int32_t, i32)
MIRT__GATHER(uint8_t, u8)
#undef MIRT__GATHER

#define MIRT__LOGIC_CASE(kind, expression) \
    case kind: \
        for (int64_t i = 0; i < count; i++) truth[i] = (uint8_t)(expression); \
        break;

/* At most a piece of elements in one line, the operands being of `type`. */
#define MIRT__LOGIC(type, name) \
    static void mirt__common_logic_##name(const mirt__common_walk *walk, const int64_t *place, int64_t at, int64_t count) { \
        const mirt__logic *l = (const mirt__logic *)walk->args; \
        const int last = walk->rank - 1, first = l->kind == MIRT__WHERE; \
        type pieces[2][MIRT__LOGIC_PIECE], *y = (type *)l->y + at; \
        uint8_t conditions[MIRT__LOGIC_PIECE], *truth = (uint8_t *)l->y + at; \
        const type *a = mirt__common_gather_##name((const type *)l->in[first] + place[first], walk->stride[first][last], pieces[0], count); \
        const type *b = mirt__common_gather_##name((const type *)l->in[first + 1] + place[first + 1], walk->stride[first + 1][last], pieces[1], count); \
        const uint8_t *c = NULL; \
        switch (l->kind) { \
            MIRT__LOGIC_CASE(MIRT__IS_EQUAL, a[i] == b[i]) \
            MIRT__LOGIC_CASE(MIRT__IS_NOT_EQUAL, a[i] != b[i]) \
            MIRT__LOGIC_CASE(MIRT__IS_LESS, a[i] < b[i]) \
            MIRT__LOGIC_CASE(MIRT__IS_LESS_EQUAL, a[i] <= b[i]) \
            MIRT__LOGIC_CASE(MIRT__AND, (a[i] != 0) & (b[i] != 0)) \
            MIRT__LOGIC_CASE(MIRT__OR, (a[i] != 0) | (b[i] != 0)) \
            MIRT__LOGIC_CASE(MIRT__NOT, a[i] == 0) \
        case MIRT__WHERE: \
            c = mirt__common_gather_u8((const uint8_t *)l->in[0] + place[0], walk->stride[0][last], conditions, count); \
            for (int64_t i = 0; i < count; i++) y[i] = c[i] ? a[i] : b[i]; \
            break; \
        } \
    }
MIRT__LOGIC(float, f32)
MIRT__LOGIC(int32_t, i32)
MIRT__LOGIC(uint8_t, u8)
#undef MIRT__LOGIC
#undef MIRT__LOGIC_CASE

static void mirt__common_logic_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_walk *walk = (const mirt__common_walk *)args;
    const mirt_dtype dtype = ((const mirt__logic *)walk->args)->dtype;
    (void)scratch;
    for (int64_t at = begin, count, place[3]; at < end; at += count) {
        count = mirt__common_walk_line(walk, at, end - at < MIRT__LOGIC_PIECE ? end - at : MIRT__LOGIC_PIECE, place);
        if (dtype == MIRT_FLOAT32) mirt__common_logic_f32(walk, place, at, count);
        else if (dtype == MIRT_INT32) mirt__common_logic_i32(walk, place, at, count);
        else mirt__common_logic_u8(walk, place, at, count);
    }
}

#undef MIRT__LOGIC_PIECE

MIRT__LIB void mirt__common_logic(const mirt__logic *args, const mirt__where *where) {
    const int64_t *const stride[3] = {args->stride[0], args->stride[1], args->stride[2]};
    const mirt__common_walk walk = mirt__common_walk_of(args, args->rank, args->dim, args->kind == MIRT__WHERE ? 3 : 2, stride);
    mirt__common_range(where, walk.count, MIRT__GRAIN, mirt__common_logic_range, &walk);
}

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/common_move.c */

/* Shared by the fast tables: moves between regular places, rows by index, and what runs along one axis. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif

/* `count` elements of `size` bytes, `from` and `to` bytes apart. */
static void mirt__common_move_line(char *y, const char *x, size_t size, int64_t to, int64_t from, int64_t count) {
    if (from == (int64_t)size && to == from) {
        memcpy(y, x, (size_t)count * size);
    } else if (size == 1) {
        for (int64_t i = 0; i < count; i++) y[i * to] = x[i * from];
    } else {
        for (int64_t i = 0; i < count; i++) memcpy(y + i * to, x + i * from, 4); /* float32 or int32 */
    }
}

static void mirt__common_move_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_walk *walk = (const mirt__common_walk *)args;
    const mirt__move *m = (const mirt__move *)walk->args;
    const int64_t size = (int64_t)mirt__dtype_size(m->dtype);
    const int last = walk->rank - 1;
    (void)scratch;
    for (int64_t at = begin, count, place[3]; at < end; at += count) {
        count = mirt__common_walk_line(walk, at, end - at, place);
        mirt__common_move_line((char *)m->y + place[1] * size, (const char *)m->x + place[0] * size, (size_t)size,
                               walk->stride[1][last] * size, walk->stride[0][last] * size, count);
    }
}

MIRT__LIB void mirt__common_move(const mirt__move *args, const mirt__where *where) {
    const int64_t *const stride[2] = {args->from, args->to};
    const mirt__common_walk walk = mirt__common_walk_of(args, args->rank, args->dim, 2, stride);
    mirt__common_range(where, walk.count, MIRT__GRAIN, mirt__common_move_range, &walk);
}

/* The row that number i names, or -1. */
static int64_t mirt__common_gather_index(const mirt__gather *g, int64_t i) {
    const int64_t index = g->dtype == MIRT_UINT8 ? ((const uint8_t *)g->indices)[i] : ((const int32_t *)g->indices)[i];
    return index >= 0 && index < g->n ? index : -1;
}

static void mirt__common_gather_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__gather *g = (const mirt__gather *)args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = mirt__common_gather_index(g, i);
        if (row < 0) memset(g->y + i * g->width, 0, (size_t)g->width * sizeof(float));
        else memcpy(g->y + i * g->width, g->x + row * g->width, (size_t)g->width * sizeof(float));
    }
}

MIRT__LIB void mirt__common_gather(const mirt__gather *args, const mirt__where *where) {
    mirt__common_range(where, args->count, mirt__common_step(args->width), mirt__common_gather_range, args);
}

/* Blocks of columns, so that each sum is one thread's. */
static void mirt__common_gather_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__gather *g = (const mirt__gather *)args;
    (void)scratch;
    for (int64_t r = 0; r < g->n; r++) memset(g->y + r * g->width + begin, 0, (size_t)(end - begin) * sizeof(float));
    for (int64_t i = 0; i < g->count; i++) {
        const int64_t row = mirt__common_gather_index(g, i);
        float *y = g->y + row * g->width;
        const float *x = g->x + i * g->width;
        if (row < 0) continue;
        MIRT__INDEPENDENT
        for (int64_t j = begin; j < end; j++) y[j] += x[j];
    }
}

MIRT__LIB void mirt__common_gather_grad(const mirt__gather *args, const mirt__where *where) {
    mirt__common_range(where, args->width, MIRT__REDUCE_COLUMNS, mirt__common_gather_back, args);
}

/* Up to MIRT__REDUCE_COLUMNS columns side by side, `place` being the first's first element. */
static void mirt__common_scan_block(const mirt__scan *s, int64_t place, int64_t outer, int64_t column, int64_t width) {
    float most[MIRT__REDUCE_COLUMNS];
    int32_t best[MIRT__REDUCE_COLUMNS];
    const bool extreme = s->kind == MIRT__ARGMAX || s->kind == MIRT__ARGMIN, back = s->kind == MIRT__CUMSUM_BACK;
    for (int64_t j = 0; j < width; j++) {
        most[j] = extreme ? s->x[place + j] : 0;
        best[j] = 0;
    }
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t at = place + (back ? s->n - 1 - i : i) * s->inner;
        const float *x = s->x + at;
        if (extreme) {
            for (int64_t j = 0; j < width; j++) {
                const bool better = s->kind == MIRT__ARGMIN ? x[j] < most[j] : x[j] > most[j];
                most[j] = better ? x[j] : most[j];
                best[j] = better ? (int32_t)i : best[j];
            }
        } else {
            float *y = (float *)s->y + at;
            for (int64_t j = 0; j < width; j++) y[j] = most[j] += x[j];
        }
    }
    if (extreme) memcpy((int32_t *)s->y + outer * s->inner + column, best, (size_t)width * sizeof best[0]);
}

static void mirt__common_scan_blocks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__scan *s = (const mirt__scan *)args;
    const int64_t blocks = (s->inner + MIRT__REDUCE_COLUMNS - 1) / MIRT__REDUCE_COLUMNS;
    (void)scratch;
    for (int64_t b = begin; b < end; b++) {
        const int64_t outer = b / blocks, column = b % blocks * MIRT__REDUCE_COLUMNS, left = s->inner - column;
        mirt__common_scan_block(s, outer * s->n * s->inner + column, outer, column, left < MIRT__REDUCE_COLUMNS ? left : MIRT__REDUCE_COLUMNS);
    }
}

MIRT__LIB void mirt__common_scan(const mirt__scan *args, const mirt__where *where) {
    const int64_t blocks = (args->inner + MIRT__REDUCE_COLUMNS - 1) / MIRT__REDUCE_COLUMNS;
    const int64_t width = args->inner < MIRT__REDUCE_COLUMNS ? args->inner : MIRT__REDUCE_COLUMNS;
    mirt__common_range(where, args->outer * blocks, mirt__common_step(args->n * width), mirt__common_scan_blocks, args);
}

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/common_reduce.c */

/* Shared by the fast tables: reductions over any axes. Columns that lie side by side are summed
   side by side; the order of additions of one output depends on nothing but the shape. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif

/* A set of dimensions: sizes and steps in x, outermost first. */
typedef struct mirt__common_axes {
    int rank;
    int64_t dim[MIRT_MAX_RANK], step[MIRT_MAX_RANK], count;
} mirt__common_axes;

typedef struct mirt__common_reduction {
    mirt__reduce_kind kind;
    const float *x;
    float *y;
    const float *dy; /* gradient */
    float *dx;
    mirt__common_axes kept, gone; /* kept without the columns */
    int64_t columns;              /* outputs whose inputs lie side by side */
    int64_t blocks;               /* of MIRT__REDUCE_COLUMNS columns */
} mirt__common_reduction;

/* Adds an axis outside all others; it joins the outermost one where that leaves no jump. */
static void mirt__common_axes_add(mirt__common_axes *axes, int64_t dim, int64_t step) {
    axes->count *= dim;
    if (axes->rank > 0 && axes->step[0] * axes->dim[0] == step) {
        axes->dim[0] *= dim;
        return;
    }
    for (int i = axes->rank++; i > 0; i--) {
        axes->dim[i] = axes->dim[i - 1];
        axes->step[i] = axes->step[i - 1];
    }
    axes->dim[0] = dim;
    axes->step[0] = step;
}

static int64_t mirt__common_axes_place(const mirt__common_axes *axes, int rank, int64_t at) {
    int64_t place = 0;
    for (int i = rank - 1; i > 0; i--) {
        place += at % axes->dim[i] * axes->step[i];
        at /= axes->dim[i];
    }
    return rank > 0 ? place + at * axes->step[0] : 0;
}

static mirt__common_reduction mirt__common_reduction_of(const mirt__reduce *r) {
    mirt__common_reduction s;
    int64_t step = 1;
    memset(&s, 0, sizeof s);
    s.kind = r->kind;
    s.x = r->x;
    s.y = r->y;
    s.kept.count = s.gone.count = s.columns = 1;
    bool innermost = true;
    for (int i = r->rank - 1; i >= 0; step *= r->dim[i], i--) {
        if (r->dim[i] == 1) continue;
        bool gone = r->axes >> i & 1;
        innermost = innermost && !gone;
        if (innermost) s.columns *= r->dim[i];
        else mirt__common_axes_add(gone ? &s.gone : &s.kept, r->dim[i], step);
    }
    s.blocks = s.columns / MIRT__REDUCE_COLUMNS + (s.columns % MIRT__REDUCE_COLUMNS != 0);
    return s;
}

/* Columns [column, column + width) of one row of outputs. */
typedef struct mirt__common_block {
    int64_t column, width;
    int64_t x, y; /* where they begin in x and in y */
} mirt__common_block;

static mirt__common_block mirt__common_block_of(const mirt__common_reduction *s, int64_t block) {
    mirt__common_block b;
    int64_t row = block / s->blocks;
    b.column = block % s->blocks * MIRT__REDUCE_COLUMNS;
    b.width = s->columns - b.column < MIRT__REDUCE_COLUMNS ? s->columns - b.column : MIRT__REDUCE_COLUMNS;
    b.x = mirt__common_axes_place(&s->kept, s->kept.rank, row) + b.column;
    b.y = row * s->columns + b.column;
    return b;
}

/* `count` elements of every column, `step` apart. */
typedef struct mirt__common_stretch {
    int64_t place, step, count;
} mirt__common_stretch;

/* The longest stretch of at most `most` reduced elements from number `at` on. */
static mirt__common_stretch mirt__common_stretch_of(const mirt__common_axes *gone, int64_t at, int64_t most) {
    mirt__common_stretch run;
    const int last = gone->rank - 1;
    const int64_t length = last >= 0 ? gone->dim[last] : 1, first = at % length;
    run.step = last >= 0 ? gone->step[last] : 0;
    run.place = mirt__common_axes_place(gone, last, at / length) + first * run.step;
    run.count = length - first < most ? length - first : most;
    return run;
}

static void mirt__common_sum_stretch(const float *x, const mirt__common_stretch *run, int64_t width, float *sum) {
    if (width == 1) {
        float one = sum[0];
        for (int64_t i = 0; i < run->count; i++) one += x[i * run->step];
        sum[0] = one;
        return;
    }
    for (int64_t i = 0; i < run->count; i++, x += run->step) {
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < width; j++) sum[j] += x[j];
    }
}

/* Hands in chunk number `chunk`'s sum. partial[b] is the sum of a whole subtree of 2^b chunks:
   counting in binary adds in the order of mirt__tree, with a few partials instead of all. */
static void mirt__common_count_in(float *partial, int64_t chunk, float *sum, int64_t width) {
    int bit = 0;
    for (; chunk >> bit & 1; bit++) {
        const float *left = partial + bit * MIRT__REDUCE_COLUMNS;
        for (int64_t j = 0; j < width; j++) sum[j] = left[j] + sum[j];
    }
    memcpy(partial + bit * MIRT__REDUCE_COLUMNS, sum, (size_t)width * sizeof(float));
}

/* The sum of all `chunks` > 0 chunks. */
static void mirt__common_count_out(const float *partial, int64_t chunks, float *sum, int64_t width) {
    int bit = 0;
    while (!(chunks >> bit & 1)) bit++;
    memcpy(sum, partial + bit * MIRT__REDUCE_COLUMNS, (size_t)width * sizeof(float));
    for (bit++; chunks >> bit; bit++) {
        const float *left = partial + bit * MIRT__REDUCE_COLUMNS;
        if (!(chunks >> bit & 1)) continue;
        for (int64_t j = 0; j < width; j++) sum[j] = left[j] + sum[j];
    }
}

static void mirt__common_sum_block(const mirt__common_reduction *s, const mirt__common_block *b, float *partial) {
    float sum[MIRT__REDUCE_COLUMNS];
    const int64_t count = s->gone.count;
    memset(sum, 0, sizeof sum);
    for (int64_t at = 0; at < count;) {
        const mirt__common_stretch run = mirt__common_stretch_of(&s->gone, at, MIRT__REDUCE_CHUNK - at % MIRT__REDUCE_CHUNK);
        mirt__common_sum_stretch(s->x + b->x + run.place, &run, b->width, sum);
        at += run.count;
        if (at % MIRT__REDUCE_CHUNK == 0 || at == count) {
            mirt__common_count_in(partial, (at - 1) / MIRT__REDUCE_CHUNK, sum, b->width);
            memset(sum, 0, sizeof sum);
        }
    }
    if (count > 0) mirt__common_count_out(partial, (count - 1) / MIRT__REDUCE_CHUNK + 1, sum, b->width);
    const float divisor = s->kind == MIRT__REDUCE_MEAN ? (float)count : 1.0f;
    for (int64_t j = 0; j < b->width; j++) s->y[b->y + j] = sum[j] / divisor;
}

static void mirt__common_max_block(const mirt__common_reduction *s, const mirt__common_block *b) {
    float best[MIRT__REDUCE_COLUMNS];
    for (int64_t j = 0; j < b->width; j++) best[j] = s->gone.count > 0 ? s->x[b->x + j] : s->kind == MIRT__REDUCE_MIN ? INFINITY : -INFINITY;
    for (int64_t at = 0; at < s->gone.count;) {
        const mirt__common_stretch run = mirt__common_stretch_of(&s->gone, at, s->gone.count - at);
        const float *x = s->x + b->x + run.place;
        for (int64_t i = 0; i < run.count; i++, x += run.step) {
            if (s->kind == MIRT__REDUCE_MIN) {
                for (int64_t j = 0; j < b->width; j++) best[j] = x[j] < best[j] ? x[j] : best[j];
            } else {
                for (int64_t j = 0; j < b->width; j++) best[j] = x[j] > best[j] ? x[j] : best[j];
            }
        }
        at += run.count;
    }
    memcpy(s->y + b->y, best, (size_t)b->width * sizeof(float));
}

static void mirt__common_reduce_blocks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_reduction *s = (const mirt__common_reduction *)args;
    for (int64_t i = begin; i < end; i++) {
        const mirt__common_block b = mirt__common_block_of(s, i);
        if (s->kind >= MIRT__REDUCE_MAX) mirt__common_max_block(s, &b);
        else mirt__common_sum_block(s, &b, (float *)scratch);
    }
}

MIRT__LIB void mirt__common_reduce(const mirt__reduce *args, const mirt__where *where) {
    const mirt__common_reduction s = mirt__common_reduction_of(args);
    const int64_t width = s.columns < MIRT__REDUCE_COLUMNS ? s.columns : MIRT__REDUCE_COLUMNS;
    mirt__common_range(where, s.kept.count * s.blocks, mirt__common_step(s.gone.count * width), mirt__common_reduce_blocks, &s);
}

static void mirt__common_reduce_max_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_reduction *s = (const mirt__common_reduction *)args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const mirt__common_block b = mirt__common_block_of(s, i);
        const float *y = s->y + b.y, *dy = s->dy + b.y;
        int32_t equal[MIRT__REDUCE_COLUMNS];
        memset(equal, 0, sizeof equal);
        for (int64_t at = 0; at < s->gone.count; at++) {
            const float *x = s->x + b.x + mirt__common_stretch_of(&s->gone, at, 1).place;
            for (int64_t j = 0; j < b.width; j++) equal[j] += x[j] == y[j];
        }
        for (int64_t at = 0; at < s->gone.count; at++) {
            const int64_t place = b.x + mirt__common_stretch_of(&s->gone, at, 1).place;
            for (int64_t j = 0; j < b.width; j++) s->dx[place + j] = s->x[place + j] == y[j] ? dy[j] / (float)equal[j] : 0;
        }
    }
}

MIRT__LIB void mirt__common_reduce_max_grad(const mirt__reduce_max_grad *args, const mirt__where *where) {
    mirt__common_reduction s = mirt__common_reduction_of(&args->s);
    const int64_t width = s.columns < MIRT__REDUCE_COLUMNS ? s.columns : MIRT__REDUCE_COLUMNS;
    s.dy = args->dy;
    s.dx = args->dx;
    mirt__common_range(where, s.kept.count * s.blocks, mirt__common_step(s.gone.count * width), mirt__common_reduce_max_back, &s);
}

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/common_pool.c */

/* Shared by the fast tables: max and average pooling. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif

/* The part [*first, *last) of a window's kernel that lies inside the input. */
static void mirt__common_clip(int64_t start, int kernel, int64_t size, int64_t *first, int64_t *last) {
    *first = start < 0 ? -start : 0;
    *last = size - start < kernel ? size - start : kernel;
}

/* One window: x is its first pixel, which may lie outside; kernel rows [ky, ky1) and columns [kx, kx1) do not. */
typedef struct mirt__common_window {
    int64_t y, x;
    int64_t ky, ky1, kx, kx1;
} mirt__common_window;

static mirt__common_window mirt__common_window_of(const mirt__pool2d *p, int64_t oy, int64_t ox) {
    mirt__common_window w;
    w.y = oy * p->stride_h - p->pad_top;
    w.x = ox * p->stride_w - p->pad_left;
    mirt__common_clip(w.y, p->kh, p->h, &w.ky, &w.ky1);
    mirt__common_clip(w.x, p->kw, p->w, &w.kx, &w.kx1);
    return w;
}

/* Where the pixel under the kernel's place (ky, kx) begins in an image. */
static int64_t mirt__common_pixel(const mirt__pool2d *p, const mirt__common_window *w, int64_t ky, int64_t kx) {
    return ((w->y + ky) * p->w + w->x + kx) * p->c;
}

static void mirt__common_max_window(const mirt__pool2d *p, const mirt__common_window *w, const float *image,
                                    float *y, int32_t *which) {
    const int64_t channels = p->c;
    const int32_t first = (int32_t)(w->ky * p->kw + w->kx);
    memcpy(y, image + mirt__common_pixel(p, w, w->ky, w->kx), (size_t)channels * sizeof(float));
    for (int64_t c = 0; c < channels; c++) which[c] = first;
    for (int64_t ky = w->ky; ky < w->ky1; ky++) {
        for (int64_t kx = w->kx; kx < w->kx1; kx++) {
            const float *x = image + mirt__common_pixel(p, w, ky, kx);
            const int32_t place = (int32_t)(ky * p->kw + kx);
            MIRT__INDEPENDENT
            for (int64_t c = 0; c < channels; c++) {
                const bool more = x[c] > y[c];
                y[c] = more ? x[c] : y[c];
                which[c] = more ? place : which[c];
            }
        }
    }
}

/* Rows [begin, end) of windows, counted through all images. */
static void mirt__common_max_pool_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__pool2d *p = (const mirt__pool2d *)args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const float *image = p->x + i / p->oh * p->h * p->w * p->c;
        for (int64_t ox = 0; ox < p->ow; ox++) {
            const int64_t at = (i * p->ow + ox) * p->c;
            const mirt__common_window w = mirt__common_window_of(p, i % p->oh, ox);
            mirt__common_max_window(p, &w, image, p->y + at, p->which + at);
        }
    }
}

static void mirt__common_average_pool_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__pool2d *p = (const mirt__pool2d *)args;
    const int64_t channels = p->c;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const float *image = p->x + i / p->oh * p->h * p->w * p->c;
        for (int64_t ox = 0; ox < p->ow; ox++) {
            float *y = p->y + (i * p->ow + ox) * channels;
            const mirt__common_window w = mirt__common_window_of(p, i % p->oh, ox);
            const float count = (float)((w.ky1 - w.ky) * (w.kx1 - w.kx));
            memset(y, 0, (size_t)channels * sizeof(float));
            for (int64_t ky = w.ky; ky < w.ky1; ky++) {
                for (int64_t kx = w.kx; kx < w.kx1; kx++) {
                    const float *x = image + mirt__common_pixel(p, &w, ky, kx);
                    MIRT__INDEPENDENT
                    for (int64_t c = 0; c < channels; c++) y[c] += x[c];
                }
            }
            for (int64_t c = 0; c < channels; c++) y[c] /= count;
        }
    }
}

/* One window's gradient, added to the pixel that was its maximum. */
static void mirt__common_max_back(const mirt__pool2d *p, const mirt__common_window *w, const float *dy,
                                  const int32_t *which, float *image) {
    for (int64_t ky = w->ky; ky < w->ky1; ky++) {
        for (int64_t kx = w->kx; kx < w->kx1; kx++) {
            float *dx = image + mirt__common_pixel(p, w, ky, kx);
            const int32_t place = (int32_t)(ky * p->kw + kx);
            MIRT__INDEPENDENT
            for (int64_t c = 0; c < p->c; c++) dx[c] += which[c] == place ? dy[c] : 0;
        }
    }
}

/* One window's gradient, added in equal shares to its pixels. */
static void mirt__common_average_back(const mirt__pool2d *p, const mirt__common_window *w, const float *dy, float *image) {
    const float count = (float)((w->ky1 - w->ky) * (w->kx1 - w->kx));
    for (int64_t ky = w->ky; ky < w->ky1; ky++) {
        for (int64_t kx = w->kx; kx < w->kx1; kx++) {
            float *dx = image + mirt__common_pixel(p, w, ky, kx);
            MIRT__INDEPENDENT
            for (int64_t c = 0; c < p->c; c++) dx[c] += dy[c] / count;
        }
    }
}

/* Images [begin, end): windows may overlap, so one thread takes all of an image, in order. */
static void mirt__common_pool_back(const void *args, int64_t begin, int64_t end, bool max) {
    const mirt__pool2d *p = (const mirt__pool2d *)args;
    for (int64_t row = begin; row < end; row++) {
        float *image = p->y + row * p->h * p->w * p->c;
        memset(image, 0, (size_t)(p->h * p->w * p->c) * sizeof(float));
        for (int64_t i = 0; i < p->oh * p->ow; i++) {
            const int64_t at = (row * p->oh * p->ow + i) * p->c;
            const mirt__common_window w = mirt__common_window_of(p, i / p->ow, i % p->ow);
            if (max) mirt__common_max_back(p, &w, p->x + at, p->which + at, image);
            else mirt__common_average_back(p, &w, p->x + at, image);
        }
    }
}

static void mirt__common_max_pool_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    mirt__common_pool_back(args, begin, end, true);
}

static void mirt__common_average_pool_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    mirt__common_pool_back(args, begin, end, false);
}

static int64_t mirt__common_pool_step(const mirt__pool2d *p, int64_t windows) {
    return mirt__common_step(windows * p->kh * p->kw * p->c);
}

MIRT__LIB void mirt__common_max_pool(const mirt__pool2d *p, const mirt__where *where) {
    mirt__common_range(where, p->rows * p->oh, mirt__common_pool_step(p, p->ow), mirt__common_max_pool_rows, p);
}

MIRT__LIB void mirt__common_max_pool_grad(const mirt__pool2d *p, const mirt__where *where) {
    mirt__common_range(where, p->rows, mirt__common_pool_step(p, p->oh * p->ow), mirt__common_max_pool_back, p);
}

MIRT__LIB void mirt__common_average_pool(const mirt__pool2d *p, const mirt__where *where) {
    mirt__common_range(where, p->rows * p->oh, mirt__common_pool_step(p, p->ow), mirt__common_average_pool_rows, p);
}

MIRT__LIB void mirt__common_average_pool_grad(const mirt__pool2d *p, const mirt__where *where) {
    mirt__common_range(where, p->rows, mirt__common_pool_step(p, p->oh * p->ow), mirt__common_average_pool_back, p);
}

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/common_loss.c */

/* Shared by the fast tables: softmax, losses and accuracy, row by row. The formulas are explained
   in reference_loss.c. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif

#define MIRT__SMALLEST 1e-7f
#define MIRT__LARGEST (1.0f - 1e-7f)

static float mirt__common_max(const float *x, int64_t n) {
    float best = x[0];
    for (int64_t j = 1; j < n; j++) best = x[j] > best ? x[j] : best;
    return best;
}

static int64_t mirt__common_argmax(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) best = x[j] > x[best] ? j : best;
    return best;
}

static float mirt__common_total(const float *x, int64_t n) {
    float sum = 0;
    for (int64_t j = 0; j < n; j++) sum += x[j];
    return sum;
}

static float mirt__common_clipped(float p) {
    return p < MIRT__SMALLEST ? MIRT__SMALLEST : p > MIRT__LARGEST ? MIRT__LARGEST : p;
}

static bool mirt__common_is_clipped(float p) {
    return p < MIRT__SMALLEST || p > MIRT__LARGEST;
}

static void mirt__common_softmax_row(const float *x, float *y, int64_t n) {
    const float largest = mirt__common_max(x, n);
    for (int64_t j = 0; j < n; j++) y[j] = expf(x[j] - largest);
    const float sum = mirt__common_total(y, n);
    for (int64_t j = 0; j < n; j++) y[j] /= sum;
}

/* log(sum of exp(x)), less the largest x. */
static float mirt__common_log_sum(const float *x, int64_t n, float largest) {
    float sum = 0;
    for (int64_t j = 0; j < n; j++) sum += expf(x[j] - largest);
    return logf(sum);
}

static void mirt__common_softmax_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__softmax *s = (const mirt__softmax *)args;
    (void)scratch;
    for (int64_t r = begin; r < end && s->n > 0; r++) {
        const float *x = s->x + r * s->n;
        float *y = s->y + r * s->n;
        if (s->log) {
            const float largest = mirt__common_max(x, s->n), log_sum = mirt__common_log_sum(x, s->n, largest);
            for (int64_t j = 0; j < s->n; j++) y[j] = x[j] - largest - log_sum;
        } else {
            mirt__common_softmax_row(x, y, s->n);
        }
    }
}

static void mirt__common_softmax_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__softmax *s = (const mirt__softmax *)args;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *p = s->x + r * s->n, *dy = s->dy + r * s->n;
        float *dx = s->y + r * s->n, sum = 0;
        for (int64_t j = 0; j < s->n; j++) sum += s->log ? dy[j] : dy[j] * p[j];
        for (int64_t j = 0; j < s->n; j++) dx[j] = s->log ? dy[j] - expf(p[j]) * sum : p[j] * (dy[j] - sum);
    }
}

MIRT__LIB void mirt__common_softmax(const mirt__softmax *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_softmax_rows, args);
}

MIRT__LIB void mirt__common_softmax_grad(const mirt__softmax *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_softmax_back, args);
}

static float mirt__common_sparse(const mirt__loss *l, const float *x, int32_t label) {
    if (l->from_logits) {
        const float largest = mirt__common_max(x, l->n);
        return mirt__common_log_sum(x, l->n, largest) - (x[label] - largest);
    }
    float sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__common_clipped(x[j]);
    return logf(sum) - logf(mirt__common_clipped(x[label]));
}

static float mirt__common_categorical(const mirt__loss *l, const float *x, const float *t) {
    float loss = 0;
    if (l->from_logits) {
        const float largest = mirt__common_max(x, l->n), log_sum = mirt__common_log_sum(x, l->n, largest);
        for (int64_t j = 0; j < l->n; j++) {
            if (t[j] != 0) loss += t[j] * (log_sum - (x[j] - largest));
        }
    } else {
        const float sum = mirt__common_total(x, l->n);
        for (int64_t j = 0; j < l->n; j++) {
            if (t[j] != 0) loss -= t[j] * logf(mirt__common_clipped(x[j] / sum));
        }
    }
    return loss;
}

static float mirt__common_binary_loss(const mirt__loss *l, const float *x, const float *t) {
    float loss = 0;
    for (int64_t j = 0; j < l->n; j++) {
        if (l->from_logits) {
            loss += (x[j] > 0 ? x[j] : 0) - x[j] * t[j] + log1pf(expf(-fabsf(x[j])));
        } else {
            const float p = mirt__common_clipped(x[j]);
            loss -= t[j] * logf(p) + (1 - t[j]) * logf(1 - p);
        }
    }
    return loss / (float)l->n;
}

static float mirt__common_squared(const mirt__loss *l, const float *x, const float *t) {
    float loss = 0;
    for (int64_t j = 0; j < l->n; j++) loss += (x[j] - t[j]) * (x[j] - t[j]);
    return loss / (float)l->n;
}

static void mirt__common_loss_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__loss *l = (const mirt__loss *)args;
    const float *labels = (const float *)l->labels;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = l->x + r * l->n;
        switch (l->kind) {
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            l->loss[r] = mirt__common_sparse(l, x, ((const int32_t *)l->labels)[r]);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: l->loss[r] = mirt__common_categorical(l, x, labels + r * l->n); break;
        case MIRT_BINARY_CROSSENTROPY: l->loss[r] = mirt__common_binary_loss(l, x, labels + r * l->n); break;
        default: l->loss[r] = mirt__common_squared(l, x, labels + r * l->n); break;
        }
    }
}

/* In the gradients `scale` is the loss's own gradient. */
static void mirt__common_sparse_grad(const mirt__loss *l, const float *x, int32_t label, float scale, float *dx) {
    if (l->from_logits) {
        mirt__common_softmax_row(x, dx, l->n);
        dx[label] -= 1;
        for (int64_t j = 0; j < l->n; j++) dx[j] *= scale;
        return;
    }
    float sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__common_clipped(x[j]);
    for (int64_t j = 0; j < l->n; j++) {
        const float hit = j == label ? 1 / mirt__common_clipped(x[j]) : 0;
        dx[j] = mirt__common_is_clipped(x[j]) ? 0 : scale * (1 / sum - hit);
    }
}

static void mirt__common_categorical_grad(const mirt__loss *l, const float *x, const float *t, float scale, float *dx) {
    if (l->from_logits) {
        const float total = mirt__common_total(t, l->n);
        mirt__common_softmax_row(x, dx, l->n);
        for (int64_t j = 0; j < l->n; j++) dx[j] = scale * (dx[j] * total - t[j]);
        return;
    }
    const float sum = mirt__common_total(x, l->n);
    float total = 0;
    for (int64_t j = 0; j < l->n; j++) {
        const float q = x[j] / sum;
        dx[j] = mirt__common_is_clipped(q) ? 0 : -t[j] / q;
        total += dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) dx[j] = scale * ((dx[j] - total) / sum);
}

static void mirt__common_binary_loss_grad(const mirt__loss *l, const float *x, const float *t, float scale, float *dx) {
    const float share = scale / (float)l->n;
    for (int64_t j = 0; j < l->n; j++) {
        if (l->from_logits) dx[j] = share * (1 / (1 + expf(-x[j])) - t[j]);
        else dx[j] = mirt__common_is_clipped(x[j]) ? 0 : share * ((1 - t[j]) / (1 - x[j]) - t[j] / x[j]);
    }
}

static void mirt__common_loss_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__loss *l = (const mirt__loss *)args;
    const float *labels = (const float *)l->labels;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = l->x + r * l->n, scale = l->dloss[r];
        float *dx = l->dx + r * l->n;
        switch (l->kind) {
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            mirt__common_sparse_grad(l, x, ((const int32_t *)l->labels)[r], scale, dx);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: mirt__common_categorical_grad(l, x, labels + r * l->n, scale, dx); break;
        case MIRT_BINARY_CROSSENTROPY: mirt__common_binary_loss_grad(l, x, labels + r * l->n, scale, dx); break;
        default:
            for (int64_t j = 0; j < l->n; j++) dx[j] = scale * (2 * (x[j] - labels[r * l->n + j]) / (float)l->n);
        }
    }
}

MIRT__LIB void mirt__common_loss(const mirt__loss *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_loss_rows, args);
}

MIRT__LIB void mirt__common_loss_grad(const mirt__loss *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_loss_back, args);
}

static void mirt__common_accuracy_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__accuracy *a = (const mirt__accuracy *)args;
    const float *labels = (const float *)a->labels;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->x + r * a->n;
        float right = 0;
        switch (a->kind) {
        case MIRT__ACCURACY_SPARSE: right = mirt__common_argmax(x, a->n) == ((const int32_t *)a->labels)[r]; break;
        case MIRT__ACCURACY_CATEGORICAL:
            right = mirt__common_argmax(x, a->n) == mirt__common_argmax(labels + r * a->n, a->n);
            break;
        case MIRT__ACCURACY_BINARY:
            for (int64_t j = 0; j < a->n; j++) right += labels[r * a->n + j] == (x[j] > 0.5f ? 1.0f : 0.0f);
            right /= (float)a->n;
            break;
        }
        a->y[r] = right;
    }
}

MIRT__LIB void mirt__common_accuracy(const mirt__accuracy *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_accuracy_rows, args);
}

#undef MIRT__SMALLEST
#undef MIRT__LARGEST
#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/common_norm.c */

/* Shared by the fast tables: batch and layer normalization. What depends on a column alone is
   worked out once per call, in the shared memory, before the rows are gone through. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif

/* Rows whose mean a chunk is shifted by: what is left to add up then has the size of the
   deviations, however far the values are from zero. */
#define MIRT__NORM_SHIFT 8

typedef struct mirt__common_norm {
    mirt__norm s;
    float *part;    /* of each chunk `parts` rows of n: partial sums; or the factors of each column */
    int parts;
    int64_t chunks;
} mirt__common_norm;

static mirt__common_norm mirt__common_norm_of(const mirt__norm *args, const mirt__where *where, int parts) {
    mirt__common_norm c;
    c.s = *args;
    c.part = (float *)where->shared;
    c.parts = parts;
    c.chunks = args->rows / MIRT__REDUCE_CHUNK + (args->rows % MIRT__REDUCE_CHUNK != 0);
    return c;
}

static int64_t mirt__common_chunk_rows(const mirt__common_norm *c, int64_t chunk) {
    const int64_t left = c->s.rows - chunk * MIRT__REDUCE_CHUNK;
    return left < MIRT__REDUCE_CHUNK ? left : MIRT__REDUCE_CHUNK;
}

static float mirt__common_inverse(const mirt__norm *s, int64_t i) { return 1 / sqrtf(s->variance[i] + s->epsilon); }

/* Columns: the shift, then sums of the deviations from it and of their squares. */
static void mirt__common_stats_chunks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    (void)scratch;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t rows = mirt__common_chunk_rows(c, chunk), first = rows < MIRT__NORM_SHIFT ? rows : MIRT__NORM_SHIFT;
        const float *x = c->s.x + chunk * MIRT__REDUCE_CHUNK * n;
        float *shift = c->part + chunk * 3 * n, *sum = shift + n, *square = sum + n;
        memset(shift, 0, (size_t)(3 * n) * sizeof(float));
        for (int64_t r = 0; r < first; r++) {
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) shift[j] += x[r * n + j] / (float)first;
        }
        for (int64_t r = 0; r < rows; r++, x += n) {
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) {
                const float d = x[j] - shift[j];
                sum[j] += d;
                square[j] += d * d;
            }
        }
    }
}

/* Columns [begin, end): two sets of samples become one with each chunk (Chan et al. 1983). */
static void mirt__common_stats_finish(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    (void)scratch;
    for (int64_t j = begin; j < end; j++) {
        double mean = 0, squares = 0, count = 0;
        for (int64_t chunk = 0; chunk < c->chunks; chunk++) {
            const float *part = c->part + chunk * 3 * n + j;
            const double rows = (double)mirt__common_chunk_rows(c, chunk), sum = (double)part[n] / rows;
            const double delta = (double)part[0] + sum - mean, total = count + rows;
            mean += delta * (rows / total);
            squares += (double)part[2 * n] - sum * (double)part[n] + delta * delta * (count * rows / total);
            count = total;
        }
        c->s.out[0][j] = (float)mean;
        c->s.out[1][j] = (float)(squares < 0 || count == 0 ? 0 : squares / count);
    }
}

/* The sum of `count` <= MIRT__REDUCE_CHUNK numbers, side by side in eight columns. */
static double mirt__common_lanes(const float *x, int64_t count) {
    float lane[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    double sum = 0;
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int j = 0; j < 8; j++) lane[j] += x[i + j];
    }
    for (; i < count; i++) lane[i & 7] += x[i];
    for (int j = 0; j < 8; j++) sum += (double)lane[j];
    return sum;
}

static void mirt__common_stats_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n, first = n < MIRT__NORM_SHIFT ? n : MIRT__NORM_SHIFT;
    float d[MIRT__REDUCE_CHUNK], square[MIRT__REDUCE_CHUNK];
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->s.x + row * n;
        const float shift = first > 0 ? (float)(mirt__common_lanes(x, first) / (double)first) : 0;
        double sum = 0, squares = 0;
        for (int64_t at = 0; at < n; at += MIRT__REDUCE_CHUNK) {
            const int64_t count = n - at < MIRT__REDUCE_CHUNK ? n - at : MIRT__REDUCE_CHUNK;
            for (int64_t j = 0; j < count; j++) {
                d[j] = x[at + j] - shift;
                square[j] = d[j] * d[j];
            }
            sum += mirt__common_lanes(d, count);
            squares += mirt__common_lanes(square, count);
        }
        sum /= (double)n;
        squares = squares / (double)n - sum * sum;
        c->s.out[0][row] = (float)((double)shift + sum);
        c->s.out[1][row] = (float)(squares < 0 ? 0 : squares);
    }
}

MIRT__LIB void mirt__common_norm_stats(const mirt__norm *args, const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(args, where, 3);
    if (args->by_row) {
        mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_stats_rows, &c);
        return;
    }
    mirt__common_range(where, c.chunks, mirt__common_step(args->n * MIRT__REDUCE_CHUNK), mirt__common_stats_chunks, &c);
    mirt__common_range(where, args->n, MIRT__REDUCE_COLUMNS, mirt__common_stats_finish, &c);
}

static void mirt__common_normalize_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    const float *factor = c->part, *offset = factor + n;
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->s.x + row * n, *mean = c->s.mean;
        float *y = c->s.y + row * n;
        if (c->s.by_row) {
            const float middle = mean[row], inverse = mirt__common_inverse(&c->s, row);
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) y[j] = (x[j] - middle) * inverse * factor[j] + offset[j];
        } else {
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean[j]) * factor[j] + offset[j];
        }
    }
}

/* gamma, times 1 / sqrt(variance + epsilon) where that is a column's. */
static void mirt__common_norm_factors(const mirt__common_norm *c) {
    for (int64_t j = 0; j < c->s.n; j++) {
        c->part[j] = c->s.gamma ? c->s.gamma[j] : 1;
        if (!c->s.by_row) c->part[j] *= mirt__common_inverse(&c->s, j);
    }
}

MIRT__LIB void mirt__common_normalize(const mirt__norm *args, const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(args, where, 2);
    mirt__common_norm_factors(&c);
    for (int64_t j = 0; j < args->n; j++) c.part[args->n + j] = args->beta ? args->beta[j] : 0;
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_normalize_rows, &c);
}

static void mirt__common_norm_sums_chunks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    (void)scratch;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t first = chunk * MIRT__REDUCE_CHUNK, rows = mirt__common_chunk_rows(c, chunk);
        float *sum = c->part + chunk * 2 * n, *product = sum + n;
        memset(sum, 0, (size_t)(2 * n) * sizeof(float));
        for (int64_t row = first; row < first + rows; row++) {
            const float *x = c->s.x + row * n, *dy = c->s.dy + row * n, *mean = c->s.mean;
            const float middle = c->s.by_row ? mean[row] : 0, inverse = c->s.by_row ? mirt__common_inverse(&c->s, row) : 1;
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) sum[j] += dy[j];
            if (c->s.by_row) {
                MIRT__INDEPENDENT
                for (int64_t j = 0; j < n; j++) product[j] += dy[j] * ((x[j] - middle) * inverse);
            } else {
                MIRT__INDEPENDENT
                for (int64_t j = 0; j < n; j++) product[j] += dy[j] * (x[j] - mean[j]);
            }
        }
    }
}

static void mirt__common_norm_sums_finish(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    (void)scratch;
    for (int64_t j = begin; j < end; j++) {
        double sum = 0, product = 0;
        for (int64_t chunk = 0; chunk < c->chunks; chunk++) {
            const float *part = c->part + chunk * 2 * c->s.n + j;
            sum += (double)part[0];
            product += (double)part[c->s.n];
        }
        if (!c->s.by_row) product /= sqrt((double)c->s.variance[j] + (double)c->s.epsilon);
        c->s.out[0][j] = (float)sum;
        c->s.out[1][j] = (float)product;
    }
}

MIRT__LIB void mirt__common_norm_grad_sums(const mirt__norm *args, const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(args, where, 2);
    mirt__common_range(where, c.chunks, mirt__common_step(args->n * MIRT__REDUCE_CHUNK), mirt__common_norm_sums_chunks, &c);
    mirt__common_range(where, args->n, MIRT__REDUCE_COLUMNS, mirt__common_norm_sums_finish, &c);
}

static void mirt__common_norm_back_columns(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    const float *factor = c->part, *less = factor + n, *part = less + n, *mean = c->s.mean;
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->s.x + row * n, *dy = c->s.dy + row * n;
        float *dx = c->s.y + row * n;
        if (c->s.sum[0]) {
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) dx[j] = (dy[j] - less[j] - (x[j] - mean[j]) * part[j]) * factor[j];
        } else {
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) dx[j] = dy[j] * factor[j];
        }
    }
}

static void mirt__common_norm_back_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    const float *factor = c->part;
    float dhat[MIRT__REDUCE_CHUNK], along[MIRT__REDUCE_CHUNK];
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->s.x + row * n, *dy = c->s.dy + row * n;
        const float middle = c->s.mean[row], inverse = mirt__common_inverse(&c->s, row);
        float *dx = c->s.y + row * n;
        double sum = 0, product = 0;
        for (int64_t at = 0; at < n; at += MIRT__REDUCE_CHUNK) {
            const int64_t count = n - at < MIRT__REDUCE_CHUNK ? n - at : MIRT__REDUCE_CHUNK;
            for (int64_t j = 0; j < count; j++) {
                dhat[j] = dy[at + j] * factor[at + j];
                along[j] = dhat[j] * ((x[at + j] - middle) * inverse);
            }
            sum += mirt__common_lanes(dhat, count);
            product += mirt__common_lanes(along, count);
        }
        const float less = (float)(sum / (double)n), part = (float)(product / (double)n);
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < n; j++) dx[j] = (dy[j] * factor[j] - less - (x[j] - middle) * inverse * part) * inverse;
    }
}

MIRT__LIB void mirt__common_norm_grad_input(const mirt__norm *args, const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(args, where, 3);
    const int64_t n = args->n;
    mirt__common_norm_factors(&c);
    for (int64_t j = 0; !args->by_row && args->sum[0] && j < n; j++) {
        c.part[n + j] = (float)((double)args->sum[0][j] / args->count);
        c.part[2 * n + j] = (float)((double)args->sum[1][j] / args->count) * mirt__common_inverse(args, j);
    }
    mirt__common_range(where, args->rows, mirt__common_step(n), args->by_row ? mirt__common_norm_back_rows : mirt__common_norm_back_columns, &c);
}

#undef MIRT__NORM_SHIFT

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/common_resize.c */

/* Shared by the fast tables: images of another size. */

#ifndef MIRT__REAL_DOUBLE
/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif

static void mirt__common_resize_line(const mirt__resize *r, int64_t row, int64_t oy, float *y) {
    const mirt__between v = mirt__resize_at(oy, r->h, r->oh, r->bilinear);
    const float *above = r->x + (row * r->h + v.low) * r->w * r->c, *below = r->x + (row * r->h + v.high) * r->w * r->c;
    for (int64_t ox = 0; ox < r->ow; ox++, y += r->c) {
        const mirt__between u = mirt__resize_at(ox, r->w, r->ow, r->bilinear);
        const float *a = above + u.low * r->c, *b = above + u.high * r->c, *c = below + u.low * r->c, *d = below + u.high * r->c;
        if (!r->bilinear) {
            memcpy(y, a, (size_t)r->c * sizeof(float));
            continue;
        }
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < r->c; j++) {
            const float top = a[j] + (b[j] - a[j]) * u.part, bottom = c[j] + (d[j] - c[j]) * u.part;
            y[j] = top + (bottom - top) * v.part;
        }
    }
}

static void mirt__common_resize_lines(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__resize *r = (const mirt__resize *)args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) mirt__common_resize_line(r, i / r->oh, i % r->oh, r->y + i * r->ow * r->c);
}

MIRT__LIB void mirt__common_resize(const mirt__resize *args, const mirt__where *where) {
    mirt__common_range(where, args->rows * args->oh, mirt__common_step(args->ow * args->c), mirt__common_resize_lines, args);
}

/* One output line adds to the input line `dx`, `part` of it; both ends of a pixel's reach may be one. */
static void mirt__common_resize_back(const mirt__resize *r, const float *dy, float *dx, float part) {
    for (int64_t ox = 0; ox < r->ow; ox++, dy += r->c) {
        const mirt__between u = mirt__resize_at(ox, r->w, r->ow, r->bilinear);
        float *a = dx + u.low * r->c, *b = dx + u.high * r->c;
        const float left = part * (1 - u.part), right = part * u.part;
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < r->c; j++) a[j] += left * dy[j];
        if (right == 0) continue;
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < r->c; j++) b[j] += right * dy[j];
    }
}

static void mirt__common_resize_images(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__resize *r = (const mirt__resize *)args;
    const int64_t in_line = r->w * r->c, out_line = r->ow * r->c;
    (void)scratch;
    memset(r->y + begin * r->h * in_line, 0, (size_t)((end - begin) * r->h * in_line) * sizeof(float));
    for (int64_t i = begin * r->oh; i < end * r->oh; i++) {
        const mirt__between v = mirt__resize_at(i % r->oh, r->h, r->oh, r->bilinear);
        float *image = r->y + i / r->oh * r->h * in_line;
        mirt__common_resize_back(r, r->x + i * out_line, image + v.low * in_line, 1 - v.part);
        if (v.part != 0) mirt__common_resize_back(r, r->x + i * out_line, image + v.high * in_line, v.part);
    }
}

MIRT__LIB void mirt__common_resize_grad(const mirt__resize *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->oh * args->ow * args->c), mirt__common_resize_images, args);
}

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

/* >>section kernels/simd.c */

/* The hot kernels for each instruction set: one text, compiled once for each set of wrappers. */

#ifndef MIRT__REAL_DOUBLE

/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif
#if !defined(__clang__) && defined(__GNUC__)
/* The vectors are written out and the loops unrolled: more passes only take longer. */
#pragma GCC optimize("O1,no-tree-loop-vectorize,schedule-insns2")
#endif

#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__x86_64__)
#if !defined(__clang__)
/* gcc 12 warns of the undefined registers that its own intrinsics start from. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#endif
#define MIRT__K(name) mirt__##name##_avx512
#define MIRT__NAME "avx512"
/* AVX-512: sixteen lanes, masked tails. */
#define MIRT__LANES 16
#define MIRT__ROWS 6
#define MIRT__VECTORS 4
#define MIRT__POOL_VECTORS 1
#define MIRT__TRANSPOSE 8
#define MIRT__INLINE static inline __attribute__((always_inline))

typedef __m512 mirt__vector_avx512;
typedef __mmask16 mirt__mask_avx512;
typedef __m512i mirt__which_avx512;

MIRT__INLINE __mmask16 mirt__first_avx512(int64_t count) { return (__mmask16)((1u << count) - 1u); }
MIRT__INLINE __m512 mirt__zero_avx512(void) { return _mm512_setzero_ps(); }
MIRT__INLINE __m512 mirt__set_avx512(float x) { return _mm512_set1_ps(x); }
MIRT__INLINE __m512 mirt__load_avx512(const float *p) { return _mm512_loadu_ps(p); }
MIRT__INLINE void mirt__store_avx512(float *p, __m512 x) { _mm512_storeu_ps(p, x); }
MIRT__INLINE __m512 mirt__load_some_avx512(const float *p, int64_t count) {
    return _mm512_maskz_loadu_ps(mirt__first_avx512(count), p);
}
MIRT__INLINE void mirt__store_some_avx512(float *p, __m512 x, int64_t count) {
    _mm512_mask_storeu_ps(p, mirt__first_avx512(count), x);
}
MIRT__INLINE __m512 mirt__fma_avx512(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
MIRT__INLINE __m512 mirt__add_avx512(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
MIRT__INLINE __m512 mirt__sub_avx512(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
MIRT__INLINE __m512 mirt__mul_avx512(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
MIRT__INLINE __m512 mirt__div_avx512(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
MIRT__INLINE __m512 mirt__sqrt_avx512(__m512 a) { return _mm512_sqrt_ps(a); }
MIRT__INLINE __mmask16 mirt__greater_avx512(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
MIRT__INLINE __m512 mirt__select_avx512(__mmask16 mask, __m512 yes, __m512 no) {
    return _mm512_mask_blend_ps(mask, no, yes);
}
MIRT__INLINE __m512 mirt__max_avx512(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
MIRT__INLINE __m512 mirt__relu_avx512(__m512 x) { return _mm512_max_ps(_mm512_setzero_ps(), x); }
MIRT__INLINE __m512 mirt__from_u8_avx512(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
MIRT__INLINE __m512 mirt__from_i32_avx512(const int32_t *p) {
    return _mm512_cvtepi32_ps(_mm512_loadu_si512((const void *)p));
}
/* The place of a window's maximum, from: right of left, above and below; below of above; over 0. */
MIRT__INLINE void mirt__store_place_avx512(uint8_t *p, __mmask16 right, __mmask16 right_below, __mmask16 below,
                                           __mmask16 live, int64_t count) {
    __m128i above = _mm_maskz_set1_epi8(right, 1);
    __m128i place = _mm_mask_mov_epi8(_mm_set1_epi8(2), right_below, _mm_set1_epi8(3));
    place = _mm_mask_mov_epi8(_mm_set1_epi8(4), live, _mm_mask_mov_epi8(above, below, place));
    if (count == 16) _mm_storeu_si128((__m128i *)(void *)p, place);
    else _mm_mask_storeu_epi8(p, mirt__first_avx512(count), place);
}
MIRT__INLINE __m512i mirt__load_which_avx512(const uint8_t *p, int64_t count) {
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mirt__first_avx512(count), p));
}
MIRT__INLINE __m512 mirt__live_avx512(__m512i which, __m512 x) {
    return _mm512_maskz_mov_ps(_mm512_cmplt_epi32_mask(which, _mm512_set1_epi32(4)), x);
}
MIRT__INLINE __m512i mirt__place_avx512(__m512i which) { return which; }
MIRT__INLINE __m512 mirt__pick_avx512(const float *four, __m512i place) {
    return _mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_loadu_ps(four)), place);
}
/* Two pairs of `above` and `below` each, as fours `next` floats apart. */
MIRT__INLINE void mirt__pair_avx512(float *to, int64_t next, const float *above, const float *below) {
    __m128 a = _mm_loadu_ps(above), b = _mm_loadu_ps(below);
    _mm_storeu_ps(to, _mm_movelh_ps(a, b));
    _mm_storeu_ps(to + next, _mm_movehl_ps(b, a));
}
/* Eight by eight floats, for the instruction sets that have AVX: half the rows at a time in each
   half of the registers. */
MIRT__INLINE __m256 MIRT__K(two_rows)(const float *from, int64_t from_row) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * from_row), 1);
}
MIRT__INLINE void MIRT__K(transpose_half)(float *to, const float *from, int64_t from_row) {
    const __m256 a0 = MIRT__K(two_rows)(from, from_row), a1 = MIRT__K(two_rows)(from + from_row, from_row);
    const __m256 a2 = MIRT__K(two_rows)(from + 2 * from_row, from_row), a3 = MIRT__K(two_rows)(from + 3 * from_row, from_row);
    const __m256 b0 = _mm256_unpacklo_ps(a0, a1), b1 = _mm256_unpackhi_ps(a0, a1);
    const __m256 b2 = _mm256_unpacklo_ps(a2, a3), b3 = _mm256_unpackhi_ps(a2, a3);
    _mm256_storeu_ps(to, _mm256_shuffle_ps(b0, b2, 0x44));
    _mm256_storeu_ps(to + MIRT__PANEL, _mm256_shuffle_ps(b0, b2, 0xee));
    _mm256_storeu_ps(to + 2 * MIRT__PANEL, _mm256_shuffle_ps(b1, b3, 0x44));
    _mm256_storeu_ps(to + 3 * MIRT__PANEL, _mm256_shuffle_ps(b1, b3, 0xee));
}
MIRT__INLINE void MIRT__K(transpose_block)(float *to, const float *from, int64_t from_row) {
    MIRT__K(transpose_half)(to, from, from_row);
    MIRT__K(transpose_half)(to + 4 * MIRT__PANEL, from + 4, from_row);
}
/* The primitives of one instruction set, over its wrappers. MIRT__K(name) is name_<set>. */
#define MIRT__VEC MIRT__K(vector)

/* Accumulators are variables, not an array: gcc keeps arrays in memory here. With constant `rows`
   and `vectors` the unused ones vanish. */
#define MIRT__EACH_VECTOR(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define MIRT__EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define MIRT__EACH(X) \
    MIRT__EACH_VECTOR(X, 0) MIRT__EACH_VECTOR(X, 1) MIRT__EACH_VECTOR(X, 2) \
    MIRT__EACH_VECTOR(X, 3) MIRT__EACH_VECTOR(X, 4) MIRT__EACH_VECTOR(X, 5)
#define MIRT__ROW_OF_A(i) const float *a##i = tile->a[rows > i ? i : 0];
#define MIRT__ROW_OF_B(i, j) if (vectors > j) b##j = MIRT__K(load)(b + j * MIRT__LANES);
#define MIRT__CLEAR(i, j) MIRT__VEC s##i##j = MIRT__K(zero)();
#define MIRT__RELOAD(i, j) \
    if (rows > i && vectors > j) s##i##j = MIRT__K(load)(tile->c[i] + tile->column + j * MIRT__LANES);
#define MIRT__STEP(i) \
    if (rows > i) { \
        const MIRT__VEC x = MIRT__K(set)(a##i[at]); \
        s##i##0 = MIRT__K(fma)(x, b0, s##i##0); \
        if (vectors > 1) s##i##1 = MIRT__K(fma)(x, b1, s##i##1); \
        if (vectors > 2) s##i##2 = MIRT__K(fma)(x, b2, s##i##2); \
        if (vectors > 3) s##i##3 = MIRT__K(fma)(x, b3, s##i##3); \
    }
#define MIRT__SPILL(i, j) \
    if (rows > i && vectors > j) MIRT__K(store)(tile->c[i] + tile->column + j * MIRT__LANES, s##i##j);
MIRT__INLINE void MIRT__K(tile_of)(const mirt__tile *tile, const int rows, const int vectors) {
    MIRT__EACH_ROW(MIRT__ROW_OF_A)
    MIRT__EACH(MIRT__CLEAR)
    if (!tile->fresh) { MIRT__EACH(MIRT__RELOAD) }
    const float *b = tile->b;
    const int64_t b_row = tile->b_row, a_step = tile->a_step;
    MIRT__VEC b0 = s00, b1 = s00, b2 = s00, b3 = s00;
    for (int64_t r = 0; r < tile->run_count; r++) {
        int64_t at = tile->runs[r].a;
        for (int64_t left = tile->runs[r].length; left > 0; left--) {
            MIRT__EACH_VECTOR(MIRT__ROW_OF_B, 0)
            MIRT__EACH_ROW(MIRT__STEP)
            at += a_step;
            b += b_row;
        }
    }
    MIRT__EACH(MIRT__SPILL)
}

#define MIRT__TILE(rows, vectors) \
    static void MIRT__K(tile_##rows##_##vectors)(const mirt__tile *tile) { MIRT__K(tile_of)(tile, rows, vectors); }
#if MIRT__ROWS == 6
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) \
    MIRT__TILE(4, vectors) MIRT__TILE(5, vectors) MIRT__TILE(6, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), \
     MIRT__K(tile_4_##vectors), MIRT__K(tile_5_##vectors), MIRT__K(tile_6_##vectors)}
#else
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) MIRT__TILE(4, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), MIRT__K(tile_4_##vectors), NULL, NULL}
#endif
#define MIRT__NO_TILES {NULL, NULL, NULL, NULL, NULL, NULL}
MIRT__TILES(1)
#if MIRT__VECTORS == 2 || MIRT__LANES < 16
MIRT__TILES(2)
#endif
#if MIRT__VECTORS == 4
MIRT__TILES(4)
#endif
#if MIRT__VECTORS == 2
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__NO_TILES}
#elif MIRT__LANES < 16
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__TILE_NAMES(4)}
#else /* six chains of one vector already keep the machine busy */
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__NO_TILES, MIRT__TILE_NAMES(4)}
#endif

MIRT__INLINE MIRT__VEC MIRT__K(load_up_to)(const float *p, int64_t n) {
    return n < MIRT__LANES ? MIRT__K(load_some)(p, n) : MIRT__K(load)(p);
}
MIRT__INLINE void MIRT__K(store_up_to)(float *p, MIRT__VEC x, int64_t n) {
    if (n < MIRT__LANES) MIRT__K(store_some)(p, x, n);
    else MIRT__K(store)(p, x);
}
static void MIRT__K(copy_rows)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        for (int64_t p = 0; p < k; p++) {
            MIRT__K(store)(to + p * MIRT__PANEL + j, MIRT__K(load_up_to)(from + p * from_row + j, columns - j));
        }
    }
}

static void MIRT__K(transpose)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    int64_t whole_k = k - k % MIRT__TRANSPOSE, whole_columns = columns - columns % MIRT__TRANSPOSE;
    for (int64_t j = 0; j < whole_columns; j += MIRT__TRANSPOSE) {
        for (int64_t p = 0; p < whole_k; p += MIRT__TRANSPOSE) {
            MIRT__K(transpose_block)(to + p * MIRT__PANEL + j, from + j * from_row + p, from_row);
        }
    }
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t p = j < whole_columns ? whole_k : 0; p < k; p++) to[p * MIRT__PANEL + j] = from[j * from_row + p];
    }
}

MIRT__INLINE void MIRT__K(read_bytes)(float *to, const uint8_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__VEC y = MIRT__K(from_u8)(x + i);
        MIRT__K(store)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y);
    }
    if (i == count) return;
    uint8_t some[MIRT__LANES] = {0};
    memcpy(some, x + i, (size_t)(count - i));
    MIRT__VEC y = MIRT__K(from_u8)(some);
    MIRT__K(store_some)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, count - i);
}
MIRT__INLINE void MIRT__K(read_words)(float *to, const int32_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    for (int64_t i = 0; i < count; i += MIRT__LANES) {
        int32_t some[MIRT__LANES] = {0};
        const int64_t n = count - i < MIRT__LANES ? count - i : MIRT__LANES;
        memcpy(some, x + i, (size_t)n * sizeof(int32_t));
        MIRT__VEC y = MIRT__K(from_i32)(some);
        MIRT__K(store_up_to)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, n);
    }
}
static void MIRT__K(read)(float *to, const mirt__reader *reader, int64_t at, int64_t count) {
    if (reader->dtype == MIRT_UINT8) {
        MIRT__K(read_bytes)(to, (const uint8_t *)reader->data + at, count, reader);
    } else if (reader->dtype == MIRT_INT32) {
        MIRT__K(read_words)(to, (const int32_t *)reader->data + at, count, reader);
    } else if (!reader->affine) {
        memcpy(to, (const float *)reader->data + at, (size_t)count * sizeof(float));
    } else {
        const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
        const float *x = (const float *)reader->data + at;
        for (int64_t i = 0; i < count; i += MIRT__LANES) {
            MIRT__K(store_up_to)(to + i, MIRT__K(fma)(MIRT__K(load_up_to)(x + i, count - i), scale, offset), count - i);
        }
    }
}

MIRT__INLINE MIRT__VEC MIRT__K(finish_vector)(MIRT__VEC x, MIRT__VEC bias, MIRT__VEC mask, const mirt__epilogue *epilogue,
                                              bool with_bias, bool with_mask) {
    if (with_bias) x = MIRT__K(add)(x, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), one = MIRT__K(set)(1.0f), six = MIRT__K(set)(6.0f);
    if (epilogue->activation == MIRT_RELU || epilogue->activation == MIRT_RELU6) x = MIRT__K(relu)(x);
    if (epilogue->activation == MIRT_RELU6) x = MIRT__K(select)(MIRT__K(greater)(x, six), six, x);
    if (!with_mask) return x;
    switch (epilogue->mask_activation) {
    case MIRT_RELU: return MIRT__K(select)(MIRT__K(greater)(mask, zero), x, zero);
    case MIRT_RELU6: return MIRT__K(select)(MIRT__K(greater)(mask, zero), MIRT__K(select)(MIRT__K(greater)(six, mask), x, zero), zero);
    case MIRT_SIGMOID: return MIRT__K(mul)(x, MIRT__K(mul)(mask, MIRT__K(sub)(one, mask)));
    case MIRT_TANH: return MIRT__K(mul)(x, MIRT__K(sub)(one, MIRT__K(mul)(mask, mask)));
    default: return x;
    }
}

static void MIRT__K(finish)(const mirt__epilogue *epilogue, const float *bias, float *const *c, const float *const *mask,
                            int64_t rows, int64_t columns) {
    const bool with_mask = epilogue->mask != NULL;
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j;
        MIRT__VEC beta = MIRT__K(zero)(), output = beta;
        if (n >= MIRT__LANES) {
            if (bias) beta = MIRT__K(load)(bias + j);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load)(mask[i] + j);
                MIRT__VEC x = MIRT__K(load)(c[i] + j);
                MIRT__K(store)(c[i] + j, MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask));
            }
        } else {
            if (bias) beta = MIRT__K(load_some)(bias + j, n);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load_some)(mask[i] + j, n);
                MIRT__VEC x = MIRT__K(load_some)(c[i] + j, n);
                x = MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask);
                MIRT__K(store_some)(c[i] + j, x, n);
            }
        }
    }
    if (epilogue->activation != MIRT_SIGMOID && epilogue->activation != MIRT_TANH) return;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            c[i][j] = epilogue->activation == MIRT_TANH ? tanhf(c[i][j]) : 1.0f / (1.0f + expf(-c[i][j]));
        }
    }
}

static void MIRT__K(column_sum)(float *sum, const float *b, int64_t b_row, int64_t k, int64_t columns, bool fresh) {
    int64_t j = 0;
    for (; j + 2 * MIRT__LANES <= columns; j += 2 * MIRT__LANES) { /* two chains hide half of the latency */
        MIRT__VEC s0 = MIRT__K(zero)(), s1 = s0;
        if (!fresh) {
            s0 = MIRT__K(load)(sum + j);
            s1 = MIRT__K(load)(sum + j + MIRT__LANES);
        }
        for (int64_t p = 0; p < k; p++) {
            s0 = MIRT__K(add)(s0, MIRT__K(load)(b + p * b_row + j));
            s1 = MIRT__K(add)(s1, MIRT__K(load)(b + p * b_row + j + MIRT__LANES));
        }
        MIRT__K(store)(sum + j, s0);
        MIRT__K(store)(sum + j + MIRT__LANES, s1);
    }
    for (; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j < MIRT__LANES ? columns - j : MIRT__LANES;
        MIRT__VEC s = fresh ? MIRT__K(zero)() : MIRT__K(load_some)(sum + j, n);
        for (int64_t p = 0; p < k; p++) s = MIRT__K(add)(s, MIRT__K(load_some)(b + p * b_row + j, n));
        MIRT__K(store_some)(sum + j, s, n);
    }
}

/* The place of the maximum among the four sums of a window, and its store. */
MIRT__INLINE void MIRT__K(pool_store)(float *y, uint8_t *which, MIRT__VEC s0, MIRT__VEC s1, MIRT__VEC s2, MIRT__VEC s3,
                                      MIRT__VEC bias, int64_t count) {
    s0 = MIRT__K(add)(s0, bias);
    s1 = MIRT__K(add)(s1, bias);
    s2 = MIRT__K(add)(s2, bias);
    s3 = MIRT__K(add)(s3, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), above = MIRT__K(max)(s1, s0), under = MIRT__K(max)(s3, s2);
    const MIRT__VEC best = MIRT__K(max)(under, above);
    MIRT__K(store_up_to)(y, MIRT__K(max)(best, zero), count);
    if (!which) return;
    MIRT__K(store_place)(which, MIRT__K(greater)(s1, s0), MIRT__K(greater)(s3, s2), MIRT__K(greater)(under, above),
                         MIRT__K(greater)(best, zero), count);
}

/* The four places of a window are the rows of a small tile. `last` channels of the last vector exist. */
MIRT__INLINE void MIRT__K(pool_row_of)(const mirt__pool_row *row, const int vectors, const int64_t last) {
    const MIRT__VEC zero = MIRT__K(zero)();
    MIRT__VEC bias0 = zero, bias1 = zero;
    if (row->bias) bias0 = MIRT__K(load_up_to)(row->bias, vectors > 1 ? MIRT__LANES : last);
    if (row->bias && vectors > 1) bias1 = MIRT__K(load_up_to)(row->bias + MIRT__LANES, last);
    const int32_t *offset = row->offset;
    const int64_t k = row->k, b_row = row->b_row, co = row->co, next = 2 * row->ci;
    const float *a0 = row->a, *a1 = a0 + row->ci, *a2 = a0 + row->pitch, *a3 = a2 + row->ci;
    float *y = row->y;
    uint8_t *which = row->which;
    for (int64_t w = 0; w < row->windows; w++) {
        const float *b = row->b;
        MIRT__VEC s00 = zero, s01 = zero, s10 = zero, s11 = zero, s20 = zero, s21 = zero, s30 = zero, s31 = zero;
        for (int64_t p = 0; p < k; p++) {
            const int64_t at = offset[p];
            const MIRT__VEC x0 = MIRT__K(set)(a0[at]), x1 = MIRT__K(set)(a1[at]);
            const MIRT__VEC x2 = MIRT__K(set)(a2[at]), x3 = MIRT__K(set)(a3[at]);
            const MIRT__VEC b0 = MIRT__K(load)(b), b1 = vectors > 1 ? MIRT__K(load)(b + MIRT__LANES) : zero;
            s00 = MIRT__K(fma)(x0, b0, s00);
            s10 = MIRT__K(fma)(x1, b0, s10);
            s20 = MIRT__K(fma)(x2, b0, s20);
            s30 = MIRT__K(fma)(x3, b0, s30);
            if (vectors > 1) {
                s01 = MIRT__K(fma)(x0, b1, s01);
                s11 = MIRT__K(fma)(x1, b1, s11);
                s21 = MIRT__K(fma)(x2, b1, s21);
                s31 = MIRT__K(fma)(x3, b1, s31);
            }
            b += b_row;
        }
        MIRT__K(pool_store)(y, which, s00, s10, s20, s30, bias0, vectors > 1 ? MIRT__LANES : last);
        if (vectors > 1) {
            MIRT__K(pool_store)(y + MIRT__LANES, which ? which + MIRT__LANES : NULL, s01, s11, s21, s31, bias1, last);
        }
        a0 += next;
        a1 += next;
        a2 += next;
        a3 += next;
        y += co;
        if (which) which += co;
    }
}
static void MIRT__K(pool_row)(const mirt__pool_row *row) {
    const int64_t last = row->columns > MIRT__LANES ? row->columns - MIRT__LANES : row->columns;
    if (last == MIRT__LANES && row->columns == MIRT__POOL_VECTORS * MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, MIRT__LANES);
    } else if (row->columns > MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, last);
    } else {
        MIRT__K(pool_row_of)(row, 1, last);
    }
}

static void MIRT__K(lay_windows)(float *block, const float *x, int64_t pitch, int64_t ci, int64_t windows, int64_t k,
                                 const int32_t *offset) {
    int64_t w = 0;
    for (; ci == 1 && w + 2 <= windows; w += 2, x += 4, block += 8 * k) {
        for (int64_t p = 0; p < k; p++) MIRT__K(pair)(block + 4 * p, 4 * k, x + offset[p], x + offset[p] + pitch);
    }
    for (; w < windows; w++, x += 2 * ci) {
        for (int64_t p = 0; p < k; p++, block += 4) {
            const float *at = x + offset[p];
            block[0] = at[0];
            block[1] = at[ci];
            block[2] = at[pitch];
            block[3] = at[pitch + ci];
        }
    }
}

/* `taps` steps of k from `first` on, one vector of `columns` channels from `column` on. */
#define MIRT__EACH_TAP(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define MIRT__TAP_LOAD(t) MIRT__VEC s##t = MIRT__K(load_up_to)(to + (taps > t ? t : 0) * s->co, columns);
#define MIRT__TAP(t) if (taps > t) s##t = MIRT__K(fma)(MIRT__K(pick)(block + 4 * t, place), g, s##t);
#define MIRT__TAP_STORE(t) if (taps > t) MIRT__K(store_up_to)(to + t * s->co, s##t, columns);
MIRT__INLINE void MIRT__K(pool_taps)(const mirt__pool_windows *s, int64_t first, int64_t column, int64_t columns,
                                     const int taps) {
    float *to = s->dkernel + first * s->co + column;
    const float *block = s->block + first * 4, *dy = s->dy + column;
    const uint8_t *which = s->which + column;
    MIRT__VEC bias = MIRT__K(zero)();
    if (s->db) bias = MIRT__K(load_up_to)(s->db + column, columns);
    MIRT__EACH_TAP(MIRT__TAP_LOAD)
    for (int64_t w = 0; w < s->windows; w++) {
        const MIRT__K(which) at = MIRT__K(load_which)(which, columns);
        const MIRT__VEC g = MIRT__K(live)(at, MIRT__K(load_up_to)(dy, columns));
        const MIRT__K(which) place = MIRT__K(place)(at);
        MIRT__EACH_TAP(MIRT__TAP)
        bias = MIRT__K(add)(bias, g);
        block += 4 * s->k;
        dy += s->co;
        which += s->co;
    }
    MIRT__EACH_TAP(MIRT__TAP_STORE)
    if (first == 0 && s->db) MIRT__K(store_up_to)(s->db + column, bias, columns);
}
static void MIRT__K(pool_windows)(const mirt__pool_windows *windows) {
    int64_t j = 0, first;
    for (; j + MIRT__LANES <= windows->co; j += MIRT__LANES) {
        for (first = 0; first + 9 <= windows->k; first += 9) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 9);
        for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 1);
    }
    if (j == windows->co) return;
    for (first = 0; first + 3 <= windows->k; first += 3) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 3);
    for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 1);
}
#undef MIRT__EACH_TAP
#undef MIRT__TAP_LOAD
#undef MIRT__TAP
#undef MIRT__TAP_STORE

static void MIRT__K(taps)(float *y, const float *const *x, const float *const *k, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        MIRT__VEC sum = MIRT__K(zero)();
        if (n - j >= MIRT__LANES) {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load)(x[t] + j), MIRT__K(load)(k[t] + j), sum);
            MIRT__K(store)(y + j, sum);
        } else {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load_some)(x[t] + j, n - j), MIRT__K(load_some)(k[t] + j, n - j), sum);
            MIRT__K(store_some)(y + j, sum, n - j);
        }
    }
}

static void MIRT__K(taps_grad)(float *const *dk, const float *const *x, const float *dy, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        const MIRT__VEC g = MIRT__K(load_up_to)(dy + j, n - j);
        for (int t = 0; t < count; t++) {
            const MIRT__VEC sum = MIRT__K(fma)(MIRT__K(load_up_to)(x[t] + j, n - j), g, MIRT__K(load_up_to)(dk[t] + j, n - j));
            MIRT__K(store_up_to)(dk[t] + j, sum, n - j);
        }
    }
}

static void MIRT__K(accumulate_range)(float *into, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__K(store)(into + i, MIRT__K(add)(MIRT__K(load)(into + i), MIRT__K(load)(from + i)));
    }
    for (; i < count; i++) into[i] += from[i];
}

static __attribute__((noinline)) MIRT__VEC MIRT__K(sum_parts)(const mirt__update *args, int64_t i, int64_t n) {
    MIRT__VEC part[MIRT__MAX_PARTS];
    int root = 0;
    part[0] = MIRT__K(load_up_to)(args->part[0] + i, n);
    for (int p = 1; p < args->parts; p++) part[p] = MIRT__K(load_up_to)(args->part[p] + i, n);
    for (int t = 0; t + 1 < args->parts; t++) {
        root = args->tree[t].into;
        part[root] = MIRT__K(add)(part[root], part[args->tree[t].from]);
    }
    return part[root];
}
/* One part, or the sum of the two that most steps have; more are summed by sum_parts. */
MIRT__INLINE MIRT__VEC MIRT__K(gradient)(const mirt__update *args, const float *into, const float *from, int64_t i, int64_t n) {
    if (args->parts > 2) return MIRT__K(sum_parts)(args, i, n);
    const MIRT__VEC g = MIRT__K(load_up_to)(into + i, n);
    return from ? MIRT__K(add)(g, MIRT__K(load_up_to)(from + i, n)) : g;
}
#define MIRT__UPDATE_PARTS \
    const float *into = args->part[args->parts == 2 ? args->tree[0].into : 0]; \
    const float *from = args->parts == 2 ? args->part[args->tree[0].from] : NULL;

/* What the loops need is in variables: the stores could change *args for all the compiler knows. */
static void MIRT__K(sgd_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), momentum = MIRT__K(set)(args->momentum);
    float *slot = args->slot[0], *weights = args->weight[0];
    const bool nesterov = args->nesterov;
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC step = MIRT__K(mul)(rate, MIRT__K(gradient)(args, into, from, i, n));
        MIRT__VEC weight = MIRT__K(load_up_to)(weights + i, n);
        if (slot) {
            MIRT__VEC velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, MIRT__K(load_up_to)(slot + i, n)), step);
            MIRT__K(store_up_to)(slot + i, velocity, n);
            if (nesterov) velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, velocity), step);
            weight = MIRT__K(add)(weight, velocity);
        } else {
            weight = MIRT__K(sub)(weight, step);
        }
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}

static void MIRT__K(adam_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), epsilon = MIRT__K(set)(args->epsilon);
    const MIRT__VEC new_1 = MIRT__K(set)(args->new_1), new_2 = MIRT__K(set)(args->new_2);
    float *first = args->slot[0], *second = args->slot[1], *weights = args->weight[0];
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC g = MIRT__K(gradient)(args, into, from, i, n);
        MIRT__VEC m = MIRT__K(load_up_to)(first + i, n), v = MIRT__K(load_up_to)(second + i, n);
        m = MIRT__K(fma)(MIRT__K(sub)(g, m), new_1, m);
        v = MIRT__K(fma)(MIRT__K(sub)(MIRT__K(mul)(g, g), v), new_2, v);
        MIRT__K(store_up_to)(first + i, m, n);
        MIRT__K(store_up_to)(second + i, v, n);
        const MIRT__VEC step = MIRT__K(div)(MIRT__K(mul)(rate, m), MIRT__K(add)(MIRT__K(sqrt)(v), epsilon));
        const MIRT__VEC weight = MIRT__K(sub)(MIRT__K(load_up_to)(weights + i, n), step);
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}
#undef MIRT__UPDATE_PARTS

static const mirt__simd MIRT__K(simd) = {
    MIRT__LANES, MIRT__ROWS, MIRT__VECTORS, MIRT__POOL_VECTORS, MIRT__TILE_TABLE,
    MIRT__K(copy_rows), MIRT__K(transpose), MIRT__K(read), MIRT__K(finish), MIRT__K(column_sum), MIRT__K(pool_row),
    MIRT__K(lay_windows), MIRT__K(pool_windows),
    MIRT__K(taps), MIRT__K(taps_grad), MIRT__K(accumulate_range)
};

static void MIRT__K(gemm)(const mirt__gemm *args, const mirt__where *where) {
    mirt__fast_gemm(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_forward)(const mirt__conv_forward *args, const mirt__where *where) {
    mirt__fast_conv_forward(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_input_grad)(const mirt__conv_input_grad *args, const mirt__where *where) {
    mirt__fast_conv_input_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_weight_grad)(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool)(const mirt__conv_pool *args, const mirt__where *where) {
    mirt__fast_conv_pool(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool_weight_grad)(const mirt__conv_pool_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_pool_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(accumulate)(float *into, const float *from, int64_t count, const mirt__where *where) {
    mirt__fast_accumulate(&MIRT__K(simd), into, from, count, where);
}
static void MIRT__K(sgd)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(sgd_range));
}
static void MIRT__K(adam)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(adam_range));
}

MIRT__KERNEL_TABLE mirt__kernels MIRT__K(kernels) = {
    MIRT__NAME,
    MIRT__K(gemm), MIRT__K(conv_forward), MIRT__K(conv_input_grad), MIRT__K(conv_weight_grad),
    MIRT__K(conv_pool), MIRT__K(conv_pool_weight_grad),
    mirt__common_max_pool, mirt__common_max_pool_grad, mirt__common_average_pool, mirt__common_average_pool_grad,
    mirt__common_unary, mirt__common_binary, mirt__common_logic,
    mirt__common_reduce, mirt__common_reduce_max_grad,
    mirt__common_scan, mirt__common_move, mirt__common_gather, mirt__common_gather_grad,
    mirt__common_softmax, mirt__common_softmax_grad, mirt__common_loss, mirt__common_loss_grad,
    mirt__common_accuracy, mirt__common_dropout, mirt__common_cast, mirt__common_one_hot,
    mirt__common_resize, mirt__common_resize_grad,
    mirt__common_norm_stats, mirt__common_normalize, mirt__common_norm_grad_sums, mirt__common_norm_grad_input,
    MIRT__K(accumulate), MIRT__K(sgd), MIRT__K(adam)
};

#undef MIRT__VEC
#undef MIRT__EACH_VECTOR
#undef MIRT__EACH_ROW
#undef MIRT__EACH
#undef MIRT__ROW_OF_A
#undef MIRT__ROW_OF_B
#undef MIRT__CLEAR
#undef MIRT__RELOAD
#undef MIRT__STEP
#undef MIRT__SPILL
#undef MIRT__TILE
#undef MIRT__TILES
#undef MIRT__TILE_NAMES
#undef MIRT__NO_TILES
#undef MIRT__TILE_TABLE
#undef MIRT__LANES
#undef MIRT__ROWS
#undef MIRT__VECTORS
#undef MIRT__POOL_VECTORS
#undef MIRT__TRANSPOSE
#undef MIRT__INLINE
#undef MIRT__K
#undef MIRT__NAME
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define MIRT__K(name) mirt__##name##_avx2
#define MIRT__NAME "avx2"
/* AVX2 with FMA: eight lanes. */
#define MIRT__LANES 8
#define MIRT__ROWS 6
#define MIRT__VECTORS 2
#define MIRT__POOL_VECTORS 2
#define MIRT__TRANSPOSE 8
#define MIRT__INLINE static inline __attribute__((always_inline))

typedef __m256 mirt__vector_avx2;
typedef __m256 mirt__mask_avx2;
typedef __m256i mirt__which_avx2;

MIRT__INLINE __m256 mirt__zero_avx2(void) { return _mm256_setzero_ps(); }
MIRT__INLINE __m256 mirt__set_avx2(float x) { return _mm256_set1_ps(x); }
MIRT__INLINE __m256 mirt__load_avx2(const float *p) { return _mm256_loadu_ps(p); }
MIRT__INLINE void mirt__store_avx2(float *p, __m256 x) { _mm256_storeu_ps(p, x); }
MIRT__INLINE __m256i mirt__first_avx2(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
MIRT__INLINE __m256 mirt__load_some_avx2(const float *p, int64_t count) {
    return _mm256_maskload_ps(p, mirt__first_avx2(count));
}
MIRT__INLINE void mirt__store_some_avx2(float *p, __m256 x, int64_t count) {
    _mm256_maskstore_ps(p, mirt__first_avx2(count), x);
}
MIRT__INLINE __m256 mirt__fma_avx2(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
MIRT__INLINE __m256 mirt__add_avx2(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
MIRT__INLINE __m256 mirt__sub_avx2(__m256 a, __m256 b) { return _mm256_sub_ps(a, b); }
MIRT__INLINE __m256 mirt__mul_avx2(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
MIRT__INLINE __m256 mirt__div_avx2(__m256 a, __m256 b) { return _mm256_div_ps(a, b); }
MIRT__INLINE __m256 mirt__sqrt_avx2(__m256 a) { return _mm256_sqrt_ps(a); }
MIRT__INLINE __m256 mirt__greater_avx2(__m256 a, __m256 b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
MIRT__INLINE __m256 mirt__select_avx2(__m256 mask, __m256 yes, __m256 no) { return _mm256_blendv_ps(no, yes, mask); }
MIRT__INLINE __m256 mirt__max_avx2(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
MIRT__INLINE __m256 mirt__relu_avx2(__m256 x) { return _mm256_max_ps(_mm256_setzero_ps(), x); }
MIRT__INLINE __m256 mirt__from_u8_avx2(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
MIRT__INLINE __m256 mirt__from_i32_avx2(const int32_t *p) {
    return _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
MIRT__INLINE void mirt__store_place_avx2(uint8_t *p, __m256 right, __m256 right_below, __m256 below, __m256 live, int64_t count) {
    __m256i above = _mm256_srli_epi32(_mm256_castps_si256(right), 31);
    __m256i place = _mm256_sub_epi32(_mm256_set1_epi32(2), _mm256_castps_si256(right_below));
    place = _mm256_blendv_epi8(above, place, _mm256_castps_si256(below));
    place = _mm256_blendv_epi8(_mm256_set1_epi32(4), place, _mm256_castps_si256(live));
    __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(place), _mm256_extracti128_si256(place, 1));
    __m128i bytes = _mm_packus_epi16(halves, halves);
    if (count == 8) {
        _mm_storel_epi64((__m128i *)(void *)p, bytes);
    } else {
        long long some = _mm_cvtsi128_si64(bytes);
        memcpy(p, &some, (size_t)count);
    }
}
MIRT__INLINE __m256i mirt__load_which_avx2(const uint8_t *p, int64_t count) {
    long long bytes = 0;
    memcpy(&bytes, p, (size_t)count);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes));
}
MIRT__INLINE __m256 mirt__live_avx2(__m256i which, __m256 x) {
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(4), which)));
}
MIRT__INLINE __m256i mirt__place_avx2(__m256i which) { return which; }
MIRT__INLINE __m256 mirt__pick_avx2(const float *four, __m256i place) {
    return _mm256_permutevar_ps(_mm256_broadcast_ps((const __m128 *)(const void *)four), place);
}
MIRT__INLINE void mirt__pair_avx2(float *to, int64_t next, const float *above, const float *below) {
    __m128 a = _mm_loadu_ps(above), b = _mm_loadu_ps(below);
    _mm_storeu_ps(to, _mm_movelh_ps(a, b));
    _mm_storeu_ps(to + next, _mm_movehl_ps(b, a));
}
/* Eight by eight floats, for the instruction sets that have AVX: half the rows at a time in each
   half of the registers. */
MIRT__INLINE __m256 MIRT__K(two_rows)(const float *from, int64_t from_row) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * from_row), 1);
}
MIRT__INLINE void MIRT__K(transpose_half)(float *to, const float *from, int64_t from_row) {
    const __m256 a0 = MIRT__K(two_rows)(from, from_row), a1 = MIRT__K(two_rows)(from + from_row, from_row);
    const __m256 a2 = MIRT__K(two_rows)(from + 2 * from_row, from_row), a3 = MIRT__K(two_rows)(from + 3 * from_row, from_row);
    const __m256 b0 = _mm256_unpacklo_ps(a0, a1), b1 = _mm256_unpackhi_ps(a0, a1);
    const __m256 b2 = _mm256_unpacklo_ps(a2, a3), b3 = _mm256_unpackhi_ps(a2, a3);
    _mm256_storeu_ps(to, _mm256_shuffle_ps(b0, b2, 0x44));
    _mm256_storeu_ps(to + MIRT__PANEL, _mm256_shuffle_ps(b0, b2, 0xee));
    _mm256_storeu_ps(to + 2 * MIRT__PANEL, _mm256_shuffle_ps(b1, b3, 0x44));
    _mm256_storeu_ps(to + 3 * MIRT__PANEL, _mm256_shuffle_ps(b1, b3, 0xee));
}
MIRT__INLINE void MIRT__K(transpose_block)(float *to, const float *from, int64_t from_row) {
    MIRT__K(transpose_half)(to, from, from_row);
    MIRT__K(transpose_half)(to + 4 * MIRT__PANEL, from + 4, from_row);
}
/* The primitives of one instruction set, over its wrappers. MIRT__K(name) is name_<set>. */
#define MIRT__VEC MIRT__K(vector)

/* Accumulators are variables, not an array: gcc keeps arrays in memory here. With constant `rows`
   and `vectors` the unused ones vanish. */
#define MIRT__EACH_VECTOR(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define MIRT__EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define MIRT__EACH(X) \
    MIRT__EACH_VECTOR(X, 0) MIRT__EACH_VECTOR(X, 1) MIRT__EACH_VECTOR(X, 2) \
    MIRT__EACH_VECTOR(X, 3) MIRT__EACH_VECTOR(X, 4) MIRT__EACH_VECTOR(X, 5)
#define MIRT__ROW_OF_A(i) const float *a##i = tile->a[rows > i ? i : 0];
#define MIRT__ROW_OF_B(i, j) if (vectors > j) b##j = MIRT__K(load)(b + j * MIRT__LANES);
#define MIRT__CLEAR(i, j) MIRT__VEC s##i##j = MIRT__K(zero)();
#define MIRT__RELOAD(i, j) \
    if (rows > i && vectors > j) s##i##j = MIRT__K(load)(tile->c[i] + tile->column + j * MIRT__LANES);
#define MIRT__STEP(i) \
    if (rows > i) { \
        const MIRT__VEC x = MIRT__K(set)(a##i[at]); \
        s##i##0 = MIRT__K(fma)(x, b0, s##i##0); \
        if (vectors > 1) s##i##1 = MIRT__K(fma)(x, b1, s##i##1); \
        if (vectors > 2) s##i##2 = MIRT__K(fma)(x, b2, s##i##2); \
        if (vectors > 3) s##i##3 = MIRT__K(fma)(x, b3, s##i##3); \
    }
#define MIRT__SPILL(i, j) \
    if (rows > i && vectors > j) MIRT__K(store)(tile->c[i] + tile->column + j * MIRT__LANES, s##i##j);
MIRT__INLINE void MIRT__K(tile_of)(const mirt__tile *tile, const int rows, const int vectors) {
    MIRT__EACH_ROW(MIRT__ROW_OF_A)
    MIRT__EACH(MIRT__CLEAR)
    if (!tile->fresh) { MIRT__EACH(MIRT__RELOAD) }
    const float *b = tile->b;
    const int64_t b_row = tile->b_row, a_step = tile->a_step;
    MIRT__VEC b0 = s00, b1 = s00, b2 = s00, b3 = s00;
    for (int64_t r = 0; r < tile->run_count; r++) {
        int64_t at = tile->runs[r].a;
        for (int64_t left = tile->runs[r].length; left > 0; left--) {
            MIRT__EACH_VECTOR(MIRT__ROW_OF_B, 0)
            MIRT__EACH_ROW(MIRT__STEP)
            at += a_step;
            b += b_row;
        }
    }
    MIRT__EACH(MIRT__SPILL)
}

#define MIRT__TILE(rows, vectors) \
    static void MIRT__K(tile_##rows##_##vectors)(const mirt__tile *tile) { MIRT__K(tile_of)(tile, rows, vectors); }
#if MIRT__ROWS == 6
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) \
    MIRT__TILE(4, vectors) MIRT__TILE(5, vectors) MIRT__TILE(6, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), \
     MIRT__K(tile_4_##vectors), MIRT__K(tile_5_##vectors), MIRT__K(tile_6_##vectors)}
#else
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) MIRT__TILE(4, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), MIRT__K(tile_4_##vectors), NULL, NULL}
#endif
#define MIRT__NO_TILES {NULL, NULL, NULL, NULL, NULL, NULL}
MIRT__TILES(1)
#if MIRT__VECTORS == 2 || MIRT__LANES < 16
MIRT__TILES(2)
#endif
#if MIRT__VECTORS == 4
MIRT__TILES(4)
#endif
#if MIRT__VECTORS == 2
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__NO_TILES}
#elif MIRT__LANES < 16
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__TILE_NAMES(4)}
#else /* six chains of one vector already keep the machine busy */
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__NO_TILES, MIRT__TILE_NAMES(4)}
#endif

MIRT__INLINE MIRT__VEC MIRT__K(load_up_to)(const float *p, int64_t n) {
    return n < MIRT__LANES ? MIRT__K(load_some)(p, n) : MIRT__K(load)(p);
}
MIRT__INLINE void MIRT__K(store_up_to)(float *p, MIRT__VEC x, int64_t n) {
    if (n < MIRT__LANES) MIRT__K(store_some)(p, x, n);
    else MIRT__K(store)(p, x);
}
static void MIRT__K(copy_rows)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        for (int64_t p = 0; p < k; p++) {
            MIRT__K(store)(to + p * MIRT__PANEL + j, MIRT__K(load_up_to)(from + p * from_row + j, columns - j));
        }
    }
}

static void MIRT__K(transpose)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    int64_t whole_k = k - k % MIRT__TRANSPOSE, whole_columns = columns - columns % MIRT__TRANSPOSE;
    for (int64_t j = 0; j < whole_columns; j += MIRT__TRANSPOSE) {
        for (int64_t p = 0; p < whole_k; p += MIRT__TRANSPOSE) {
            MIRT__K(transpose_block)(to + p * MIRT__PANEL + j, from + j * from_row + p, from_row);
        }
    }
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t p = j < whole_columns ? whole_k : 0; p < k; p++) to[p * MIRT__PANEL + j] = from[j * from_row + p];
    }
}

MIRT__INLINE void MIRT__K(read_bytes)(float *to, const uint8_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__VEC y = MIRT__K(from_u8)(x + i);
        MIRT__K(store)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y);
    }
    if (i == count) return;
    uint8_t some[MIRT__LANES] = {0};
    memcpy(some, x + i, (size_t)(count - i));
    MIRT__VEC y = MIRT__K(from_u8)(some);
    MIRT__K(store_some)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, count - i);
}
MIRT__INLINE void MIRT__K(read_words)(float *to, const int32_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    for (int64_t i = 0; i < count; i += MIRT__LANES) {
        int32_t some[MIRT__LANES] = {0};
        const int64_t n = count - i < MIRT__LANES ? count - i : MIRT__LANES;
        memcpy(some, x + i, (size_t)n * sizeof(int32_t));
        MIRT__VEC y = MIRT__K(from_i32)(some);
        MIRT__K(store_up_to)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, n);
    }
}
static void MIRT__K(read)(float *to, const mirt__reader *reader, int64_t at, int64_t count) {
    if (reader->dtype == MIRT_UINT8) {
        MIRT__K(read_bytes)(to, (const uint8_t *)reader->data + at, count, reader);
    } else if (reader->dtype == MIRT_INT32) {
        MIRT__K(read_words)(to, (const int32_t *)reader->data + at, count, reader);
    } else if (!reader->affine) {
        memcpy(to, (const float *)reader->data + at, (size_t)count * sizeof(float));
    } else {
        const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
        const float *x = (const float *)reader->data + at;
        for (int64_t i = 0; i < count; i += MIRT__LANES) {
            MIRT__K(store_up_to)(to + i, MIRT__K(fma)(MIRT__K(load_up_to)(x + i, count - i), scale, offset), count - i);
        }
    }
}

MIRT__INLINE MIRT__VEC MIRT__K(finish_vector)(MIRT__VEC x, MIRT__VEC bias, MIRT__VEC mask, const mirt__epilogue *epilogue,
                                              bool with_bias, bool with_mask) {
    if (with_bias) x = MIRT__K(add)(x, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), one = MIRT__K(set)(1.0f), six = MIRT__K(set)(6.0f);
    if (epilogue->activation == MIRT_RELU || epilogue->activation == MIRT_RELU6) x = MIRT__K(relu)(x);
    if (epilogue->activation == MIRT_RELU6) x = MIRT__K(select)(MIRT__K(greater)(x, six), six, x);
    if (!with_mask) return x;
    switch (epilogue->mask_activation) {
    case MIRT_RELU: return MIRT__K(select)(MIRT__K(greater)(mask, zero), x, zero);
    case MIRT_RELU6: return MIRT__K(select)(MIRT__K(greater)(mask, zero), MIRT__K(select)(MIRT__K(greater)(six, mask), x, zero), zero);
    case MIRT_SIGMOID: return MIRT__K(mul)(x, MIRT__K(mul)(mask, MIRT__K(sub)(one, mask)));
    case MIRT_TANH: return MIRT__K(mul)(x, MIRT__K(sub)(one, MIRT__K(mul)(mask, mask)));
    default: return x;
    }
}

static void MIRT__K(finish)(const mirt__epilogue *epilogue, const float *bias, float *const *c, const float *const *mask,
                            int64_t rows, int64_t columns) {
    const bool with_mask = epilogue->mask != NULL;
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j;
        MIRT__VEC beta = MIRT__K(zero)(), output = beta;
        if (n >= MIRT__LANES) {
            if (bias) beta = MIRT__K(load)(bias + j);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load)(mask[i] + j);
                MIRT__VEC x = MIRT__K(load)(c[i] + j);
                MIRT__K(store)(c[i] + j, MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask));
            }
        } else {
            if (bias) beta = MIRT__K(load_some)(bias + j, n);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load_some)(mask[i] + j, n);
                MIRT__VEC x = MIRT__K(load_some)(c[i] + j, n);
                x = MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask);
                MIRT__K(store_some)(c[i] + j, x, n);
            }
        }
    }
    if (epilogue->activation != MIRT_SIGMOID && epilogue->activation != MIRT_TANH) return;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            c[i][j] = epilogue->activation == MIRT_TANH ? tanhf(c[i][j]) : 1.0f / (1.0f + expf(-c[i][j]));
        }
    }
}

static void MIRT__K(column_sum)(float *sum, const float *b, int64_t b_row, int64_t k, int64_t columns, bool fresh) {
    int64_t j = 0;
    for (; j + 2 * MIRT__LANES <= columns; j += 2 * MIRT__LANES) { /* two chains hide half of the latency */
        MIRT__VEC s0 = MIRT__K(zero)(), s1 = s0;
        if (!fresh) {
            s0 = MIRT__K(load)(sum + j);
            s1 = MIRT__K(load)(sum + j + MIRT__LANES);
        }
        for (int64_t p = 0; p < k; p++) {
            s0 = MIRT__K(add)(s0, MIRT__K(load)(b + p * b_row + j));
            s1 = MIRT__K(add)(s1, MIRT__K(load)(b + p * b_row + j + MIRT__LANES));
        }
        MIRT__K(store)(sum + j, s0);
        MIRT__K(store)(sum + j + MIRT__LANES, s1);
    }
    for (; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j < MIRT__LANES ? columns - j : MIRT__LANES;
        MIRT__VEC s = fresh ? MIRT__K(zero)() : MIRT__K(load_some)(sum + j, n);
        for (int64_t p = 0; p < k; p++) s = MIRT__K(add)(s, MIRT__K(load_some)(b + p * b_row + j, n));
        MIRT__K(store_some)(sum + j, s, n);
    }
}

/* The place of the maximum among the four sums of a window, and its store. */
MIRT__INLINE void MIRT__K(pool_store)(float *y, uint8_t *which, MIRT__VEC s0, MIRT__VEC s1, MIRT__VEC s2, MIRT__VEC s3,
                                      MIRT__VEC bias, int64_t count) {
    s0 = MIRT__K(add)(s0, bias);
    s1 = MIRT__K(add)(s1, bias);
    s2 = MIRT__K(add)(s2, bias);
    s3 = MIRT__K(add)(s3, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), above = MIRT__K(max)(s1, s0), under = MIRT__K(max)(s3, s2);
    const MIRT__VEC best = MIRT__K(max)(under, above);
    MIRT__K(store_up_to)(y, MIRT__K(max)(best, zero), count);
    if (!which) return;
    MIRT__K(store_place)(which, MIRT__K(greater)(s1, s0), MIRT__K(greater)(s3, s2), MIRT__K(greater)(under, above),
                         MIRT__K(greater)(best, zero), count);
}

/* The four places of a window are the rows of a small tile. `last` channels of the last vector exist. */
MIRT__INLINE void MIRT__K(pool_row_of)(const mirt__pool_row *row, const int vectors, const int64_t last) {
    const MIRT__VEC zero = MIRT__K(zero)();
    MIRT__VEC bias0 = zero, bias1 = zero;
    if (row->bias) bias0 = MIRT__K(load_up_to)(row->bias, vectors > 1 ? MIRT__LANES : last);
    if (row->bias && vectors > 1) bias1 = MIRT__K(load_up_to)(row->bias + MIRT__LANES, last);
    const int32_t *offset = row->offset;
    const int64_t k = row->k, b_row = row->b_row, co = row->co, next = 2 * row->ci;
    const float *a0 = row->a, *a1 = a0 + row->ci, *a2 = a0 + row->pitch, *a3 = a2 + row->ci;
    float *y = row->y;
    uint8_t *which = row->which;
    for (int64_t w = 0; w < row->windows; w++) {
        const float *b = row->b;
        MIRT__VEC s00 = zero, s01 = zero, s10 = zero, s11 = zero, s20 = zero, s21 = zero, s30 = zero, s31 = zero;
        for (int64_t p = 0; p < k; p++) {
            const int64_t at = offset[p];
            const MIRT__VEC x0 = MIRT__K(set)(a0[at]), x1 = MIRT__K(set)(a1[at]);
            const MIRT__VEC x2 = MIRT__K(set)(a2[at]), x3 = MIRT__K(set)(a3[at]);
            const MIRT__VEC b0 = MIRT__K(load)(b), b1 = vectors > 1 ? MIRT__K(load)(b + MIRT__LANES) : zero;
            s00 = MIRT__K(fma)(x0, b0, s00);
            s10 = MIRT__K(fma)(x1, b0, s10);
            s20 = MIRT__K(fma)(x2, b0, s20);
            s30 = MIRT__K(fma)(x3, b0, s30);
            if (vectors > 1) {
                s01 = MIRT__K(fma)(x0, b1, s01);
                s11 = MIRT__K(fma)(x1, b1, s11);
                s21 = MIRT__K(fma)(x2, b1, s21);
                s31 = MIRT__K(fma)(x3, b1, s31);
            }
            b += b_row;
        }
        MIRT__K(pool_store)(y, which, s00, s10, s20, s30, bias0, vectors > 1 ? MIRT__LANES : last);
        if (vectors > 1) {
            MIRT__K(pool_store)(y + MIRT__LANES, which ? which + MIRT__LANES : NULL, s01, s11, s21, s31, bias1, last);
        }
        a0 += next;
        a1 += next;
        a2 += next;
        a3 += next;
        y += co;
        if (which) which += co;
    }
}
static void MIRT__K(pool_row)(const mirt__pool_row *row) {
    const int64_t last = row->columns > MIRT__LANES ? row->columns - MIRT__LANES : row->columns;
    if (last == MIRT__LANES && row->columns == MIRT__POOL_VECTORS * MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, MIRT__LANES);
    } else if (row->columns > MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, last);
    } else {
        MIRT__K(pool_row_of)(row, 1, last);
    }
}

static void MIRT__K(lay_windows)(float *block, const float *x, int64_t pitch, int64_t ci, int64_t windows, int64_t k,
                                 const int32_t *offset) {
    int64_t w = 0;
    for (; ci == 1 && w + 2 <= windows; w += 2, x += 4, block += 8 * k) {
        for (int64_t p = 0; p < k; p++) MIRT__K(pair)(block + 4 * p, 4 * k, x + offset[p], x + offset[p] + pitch);
    }
    for (; w < windows; w++, x += 2 * ci) {
        for (int64_t p = 0; p < k; p++, block += 4) {
            const float *at = x + offset[p];
            block[0] = at[0];
            block[1] = at[ci];
            block[2] = at[pitch];
            block[3] = at[pitch + ci];
        }
    }
}

/* `taps` steps of k from `first` on, one vector of `columns` channels from `column` on. */
#define MIRT__EACH_TAP(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define MIRT__TAP_LOAD(t) MIRT__VEC s##t = MIRT__K(load_up_to)(to + (taps > t ? t : 0) * s->co, columns);
#define MIRT__TAP(t) if (taps > t) s##t = MIRT__K(fma)(MIRT__K(pick)(block + 4 * t, place), g, s##t);
#define MIRT__TAP_STORE(t) if (taps > t) MIRT__K(store_up_to)(to + t * s->co, s##t, columns);
MIRT__INLINE void MIRT__K(pool_taps)(const mirt__pool_windows *s, int64_t first, int64_t column, int64_t columns,
                                     const int taps) {
    float *to = s->dkernel + first * s->co + column;
    const float *block = s->block + first * 4, *dy = s->dy + column;
    const uint8_t *which = s->which + column;
    MIRT__VEC bias = MIRT__K(zero)();
    if (s->db) bias = MIRT__K(load_up_to)(s->db + column, columns);
    MIRT__EACH_TAP(MIRT__TAP_LOAD)
    for (int64_t w = 0; w < s->windows; w++) {
        const MIRT__K(which) at = MIRT__K(load_which)(which, columns);
        const MIRT__VEC g = MIRT__K(live)(at, MIRT__K(load_up_to)(dy, columns));
        const MIRT__K(which) place = MIRT__K(place)(at);
        MIRT__EACH_TAP(MIRT__TAP)
        bias = MIRT__K(add)(bias, g);
        block += 4 * s->k;
        dy += s->co;
        which += s->co;
    }
    MIRT__EACH_TAP(MIRT__TAP_STORE)
    if (first == 0 && s->db) MIRT__K(store_up_to)(s->db + column, bias, columns);
}
static void MIRT__K(pool_windows)(const mirt__pool_windows *windows) {
    int64_t j = 0, first;
    for (; j + MIRT__LANES <= windows->co; j += MIRT__LANES) {
        for (first = 0; first + 9 <= windows->k; first += 9) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 9);
        for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 1);
    }
    if (j == windows->co) return;
    for (first = 0; first + 3 <= windows->k; first += 3) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 3);
    for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 1);
}
#undef MIRT__EACH_TAP
#undef MIRT__TAP_LOAD
#undef MIRT__TAP
#undef MIRT__TAP_STORE

static void MIRT__K(taps)(float *y, const float *const *x, const float *const *k, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        MIRT__VEC sum = MIRT__K(zero)();
        if (n - j >= MIRT__LANES) {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load)(x[t] + j), MIRT__K(load)(k[t] + j), sum);
            MIRT__K(store)(y + j, sum);
        } else {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load_some)(x[t] + j, n - j), MIRT__K(load_some)(k[t] + j, n - j), sum);
            MIRT__K(store_some)(y + j, sum, n - j);
        }
    }
}

static void MIRT__K(taps_grad)(float *const *dk, const float *const *x, const float *dy, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        const MIRT__VEC g = MIRT__K(load_up_to)(dy + j, n - j);
        for (int t = 0; t < count; t++) {
            const MIRT__VEC sum = MIRT__K(fma)(MIRT__K(load_up_to)(x[t] + j, n - j), g, MIRT__K(load_up_to)(dk[t] + j, n - j));
            MIRT__K(store_up_to)(dk[t] + j, sum, n - j);
        }
    }
}

static void MIRT__K(accumulate_range)(float *into, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__K(store)(into + i, MIRT__K(add)(MIRT__K(load)(into + i), MIRT__K(load)(from + i)));
    }
    for (; i < count; i++) into[i] += from[i];
}

static __attribute__((noinline)) MIRT__VEC MIRT__K(sum_parts)(const mirt__update *args, int64_t i, int64_t n) {
    MIRT__VEC part[MIRT__MAX_PARTS];
    int root = 0;
    part[0] = MIRT__K(load_up_to)(args->part[0] + i, n);
    for (int p = 1; p < args->parts; p++) part[p] = MIRT__K(load_up_to)(args->part[p] + i, n);
    for (int t = 0; t + 1 < args->parts; t++) {
        root = args->tree[t].into;
        part[root] = MIRT__K(add)(part[root], part[args->tree[t].from]);
    }
    return part[root];
}
/* One part, or the sum of the two that most steps have; more are summed by sum_parts. */
MIRT__INLINE MIRT__VEC MIRT__K(gradient)(const mirt__update *args, const float *into, const float *from, int64_t i, int64_t n) {
    if (args->parts > 2) return MIRT__K(sum_parts)(args, i, n);
    const MIRT__VEC g = MIRT__K(load_up_to)(into + i, n);
    return from ? MIRT__K(add)(g, MIRT__K(load_up_to)(from + i, n)) : g;
}
#define MIRT__UPDATE_PARTS \
    const float *into = args->part[args->parts == 2 ? args->tree[0].into : 0]; \
    const float *from = args->parts == 2 ? args->part[args->tree[0].from] : NULL;

/* What the loops need is in variables: the stores could change *args for all the compiler knows. */
static void MIRT__K(sgd_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), momentum = MIRT__K(set)(args->momentum);
    float *slot = args->slot[0], *weights = args->weight[0];
    const bool nesterov = args->nesterov;
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC step = MIRT__K(mul)(rate, MIRT__K(gradient)(args, into, from, i, n));
        MIRT__VEC weight = MIRT__K(load_up_to)(weights + i, n);
        if (slot) {
            MIRT__VEC velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, MIRT__K(load_up_to)(slot + i, n)), step);
            MIRT__K(store_up_to)(slot + i, velocity, n);
            if (nesterov) velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, velocity), step);
            weight = MIRT__K(add)(weight, velocity);
        } else {
            weight = MIRT__K(sub)(weight, step);
        }
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}

static void MIRT__K(adam_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), epsilon = MIRT__K(set)(args->epsilon);
    const MIRT__VEC new_1 = MIRT__K(set)(args->new_1), new_2 = MIRT__K(set)(args->new_2);
    float *first = args->slot[0], *second = args->slot[1], *weights = args->weight[0];
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC g = MIRT__K(gradient)(args, into, from, i, n);
        MIRT__VEC m = MIRT__K(load_up_to)(first + i, n), v = MIRT__K(load_up_to)(second + i, n);
        m = MIRT__K(fma)(MIRT__K(sub)(g, m), new_1, m);
        v = MIRT__K(fma)(MIRT__K(sub)(MIRT__K(mul)(g, g), v), new_2, v);
        MIRT__K(store_up_to)(first + i, m, n);
        MIRT__K(store_up_to)(second + i, v, n);
        const MIRT__VEC step = MIRT__K(div)(MIRT__K(mul)(rate, m), MIRT__K(add)(MIRT__K(sqrt)(v), epsilon));
        const MIRT__VEC weight = MIRT__K(sub)(MIRT__K(load_up_to)(weights + i, n), step);
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}
#undef MIRT__UPDATE_PARTS

static const mirt__simd MIRT__K(simd) = {
    MIRT__LANES, MIRT__ROWS, MIRT__VECTORS, MIRT__POOL_VECTORS, MIRT__TILE_TABLE,
    MIRT__K(copy_rows), MIRT__K(transpose), MIRT__K(read), MIRT__K(finish), MIRT__K(column_sum), MIRT__K(pool_row),
    MIRT__K(lay_windows), MIRT__K(pool_windows),
    MIRT__K(taps), MIRT__K(taps_grad), MIRT__K(accumulate_range)
};

static void MIRT__K(gemm)(const mirt__gemm *args, const mirt__where *where) {
    mirt__fast_gemm(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_forward)(const mirt__conv_forward *args, const mirt__where *where) {
    mirt__fast_conv_forward(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_input_grad)(const mirt__conv_input_grad *args, const mirt__where *where) {
    mirt__fast_conv_input_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_weight_grad)(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool)(const mirt__conv_pool *args, const mirt__where *where) {
    mirt__fast_conv_pool(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool_weight_grad)(const mirt__conv_pool_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_pool_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(accumulate)(float *into, const float *from, int64_t count, const mirt__where *where) {
    mirt__fast_accumulate(&MIRT__K(simd), into, from, count, where);
}
static void MIRT__K(sgd)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(sgd_range));
}
static void MIRT__K(adam)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(adam_range));
}

MIRT__KERNEL_TABLE mirt__kernels MIRT__K(kernels) = {
    MIRT__NAME,
    MIRT__K(gemm), MIRT__K(conv_forward), MIRT__K(conv_input_grad), MIRT__K(conv_weight_grad),
    MIRT__K(conv_pool), MIRT__K(conv_pool_weight_grad),
    mirt__common_max_pool, mirt__common_max_pool_grad, mirt__common_average_pool, mirt__common_average_pool_grad,
    mirt__common_unary, mirt__common_binary, mirt__common_logic,
    mirt__common_reduce, mirt__common_reduce_max_grad,
    mirt__common_scan, mirt__common_move, mirt__common_gather, mirt__common_gather_grad,
    mirt__common_softmax, mirt__common_softmax_grad, mirt__common_loss, mirt__common_loss_grad,
    mirt__common_accuracy, mirt__common_dropout, mirt__common_cast, mirt__common_one_hot,
    mirt__common_resize, mirt__common_resize_grad,
    mirt__common_norm_stats, mirt__common_normalize, mirt__common_norm_grad_sums, mirt__common_norm_grad_input,
    MIRT__K(accumulate), MIRT__K(sgd), MIRT__K(adam)
};

#undef MIRT__VEC
#undef MIRT__EACH_VECTOR
#undef MIRT__EACH_ROW
#undef MIRT__EACH
#undef MIRT__ROW_OF_A
#undef MIRT__ROW_OF_B
#undef MIRT__CLEAR
#undef MIRT__RELOAD
#undef MIRT__STEP
#undef MIRT__SPILL
#undef MIRT__TILE
#undef MIRT__TILES
#undef MIRT__TILE_NAMES
#undef MIRT__NO_TILES
#undef MIRT__TILE_TABLE
#undef MIRT__LANES
#undef MIRT__ROWS
#undef MIRT__VECTORS
#undef MIRT__POOL_VECTORS
#undef MIRT__TRANSPOSE
#undef MIRT__INLINE
#undef MIRT__K
#undef MIRT__NAME
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif

#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__aarch64__)
#include <arm_neon.h>

#define MIRT__K(name) mirt__##name##_neon
#define MIRT__NAME "neon"
/* NEON of 64-bit ARM: four lanes, thirty-two registers. */
#define MIRT__LANES 4
#define MIRT__ROWS 6
#define MIRT__VECTORS 4
#define MIRT__POOL_VECTORS 2
#define MIRT__TRANSPOSE 4
#define MIRT__INLINE static inline __attribute__((always_inline))

typedef float32x4_t mirt__vector_neon;
typedef uint32x4_t mirt__mask_neon;
typedef uint8x16_t mirt__which_neon;

MIRT__INLINE float32x4_t mirt__zero_neon(void) { return vdupq_n_f32(0.0f); }
MIRT__INLINE float32x4_t mirt__set_neon(float x) { return vdupq_n_f32(x); }
MIRT__INLINE float32x4_t mirt__load_neon(const float *p) { return vld1q_f32(p); }
MIRT__INLINE void mirt__store_neon(float *p, float32x4_t x) { vst1q_f32(p, x); }
MIRT__INLINE float32x4_t mirt__load_some_neon(const float *p, int64_t count) {
    float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    memcpy(four, p, (size_t)count * sizeof(float));
    return vld1q_f32(four);
}
MIRT__INLINE void mirt__store_some_neon(float *p, float32x4_t x, int64_t count) {
    float four[4];
    vst1q_f32(four, x);
    memcpy(p, four, (size_t)count * sizeof(float));
}
MIRT__INLINE float32x4_t mirt__fma_neon(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
MIRT__INLINE float32x4_t mirt__add_neon(float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); }
MIRT__INLINE float32x4_t mirt__sub_neon(float32x4_t a, float32x4_t b) { return vsubq_f32(a, b); }
MIRT__INLINE float32x4_t mirt__mul_neon(float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); }
MIRT__INLINE float32x4_t mirt__div_neon(float32x4_t a, float32x4_t b) { return vdivq_f32(a, b); }
MIRT__INLINE float32x4_t mirt__sqrt_neon(float32x4_t a) { return vsqrtq_f32(a); }
MIRT__INLINE uint32x4_t mirt__greater_neon(float32x4_t a, float32x4_t b) { return vcgtq_f32(a, b); }
MIRT__INLINE float32x4_t mirt__select_neon(uint32x4_t mask, float32x4_t yes, float32x4_t no) {
    return vbslq_f32(mask, yes, no);
}
/* Not vmaxq: equal values, NaN and -0 come out as on x86. */
MIRT__INLINE float32x4_t mirt__max_neon(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
MIRT__INLINE float32x4_t mirt__relu_neon(float32x4_t x) {
    return vbslq_f32(vcltq_f32(x, vdupq_n_f32(0.0f)), vdupq_n_f32(0.0f), x);
}
MIRT__INLINE float32x4_t mirt__from_u8_neon(const uint8_t *p) {
    uint32_t bytes;
    memcpy(&bytes, p, 4);
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
}
MIRT__INLINE float32x4_t mirt__from_i32_neon(const int32_t *p) { return vcvtq_f32_s32(vld1q_s32(p)); }
MIRT__INLINE void mirt__store_place_neon(uint8_t *p, uint32x4_t right, uint32x4_t right_below, uint32x4_t below,
                                         uint32x4_t live, int64_t count) {
    uint32x4_t place = vbslq_u32(below, vsubq_u32(vdupq_n_u32(2), right_below), vshrq_n_u32(right, 31));
    uint16x4_t words = vmovn_u32(vbslq_u32(live, place, vdupq_n_u32(4)));
    uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(words, words))), 0);
    memcpy(p, &bytes, (size_t)count);
}
MIRT__INLINE uint8x16_t mirt__load_which_neon(const uint8_t *p, int64_t count) {
    uint32_t bytes = 0;
    memcpy(&bytes, p, (size_t)count);
    return vreinterpretq_u8_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
}
MIRT__INLINE float32x4_t mirt__live_neon(uint8x16_t which, float32x4_t x) {
    uint32x4_t live = vcltq_u32(vreinterpretq_u32_u8(which), vdupq_n_u32(4));
    return vreinterpretq_f32_u32(vandq_u32(live, vreinterpretq_u32_f32(x)));
}
/* The four bytes of the chosen float. */
MIRT__INLINE uint8x16_t mirt__place_neon(uint8x16_t which) {
    uint32x4_t place = vandq_u32(vreinterpretq_u32_u8(which), vdupq_n_u32(3));
    return vreinterpretq_u8_u32(vmlaq_n_u32(vdupq_n_u32(0x03020100), place, 0x04040404));
}
MIRT__INLINE float32x4_t mirt__pick_neon(const float *four, uint8x16_t place) {
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(vld1q_f32(four)), place));
}
MIRT__INLINE void mirt__transpose_block_neon(float *to, const float *from, int64_t from_row) {
    float32x4x2_t low = vtrnq_f32(vld1q_f32(from), vld1q_f32(from + from_row));
    float32x4x2_t high = vtrnq_f32(vld1q_f32(from + 2 * from_row), vld1q_f32(from + 3 * from_row));
    vst1q_f32(to, vcombine_f32(vget_low_f32(low.val[0]), vget_low_f32(high.val[0])));
    vst1q_f32(to + MIRT__PANEL, vcombine_f32(vget_low_f32(low.val[1]), vget_low_f32(high.val[1])));
    vst1q_f32(to + 2 * MIRT__PANEL, vcombine_f32(vget_high_f32(low.val[0]), vget_high_f32(high.val[0])));
    vst1q_f32(to + 3 * MIRT__PANEL, vcombine_f32(vget_high_f32(low.val[1]), vget_high_f32(high.val[1])));
}
MIRT__INLINE void mirt__pair_neon(float *to, int64_t next, const float *above, const float *below) {
    float32x4_t a = vld1q_f32(above), b = vld1q_f32(below);
    vst1q_f32(to, vcombine_f32(vget_low_f32(a), vget_low_f32(b)));
    vst1q_f32(to + next, vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
}
/* The primitives of one instruction set, over its wrappers. MIRT__K(name) is name_<set>. */
#define MIRT__VEC MIRT__K(vector)

/* Accumulators are variables, not an array: gcc keeps arrays in memory here. With constant `rows`
   and `vectors` the unused ones vanish. */
#define MIRT__EACH_VECTOR(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define MIRT__EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define MIRT__EACH(X) \
    MIRT__EACH_VECTOR(X, 0) MIRT__EACH_VECTOR(X, 1) MIRT__EACH_VECTOR(X, 2) \
    MIRT__EACH_VECTOR(X, 3) MIRT__EACH_VECTOR(X, 4) MIRT__EACH_VECTOR(X, 5)
#define MIRT__ROW_OF_A(i) const float *a##i = tile->a[rows > i ? i : 0];
#define MIRT__ROW_OF_B(i, j) if (vectors > j) b##j = MIRT__K(load)(b + j * MIRT__LANES);
#define MIRT__CLEAR(i, j) MIRT__VEC s##i##j = MIRT__K(zero)();
#define MIRT__RELOAD(i, j) \
    if (rows > i && vectors > j) s##i##j = MIRT__K(load)(tile->c[i] + tile->column + j * MIRT__LANES);
#define MIRT__STEP(i) \
    if (rows > i) { \
        const MIRT__VEC x = MIRT__K(set)(a##i[at]); \
        s##i##0 = MIRT__K(fma)(x, b0, s##i##0); \
        if (vectors > 1) s##i##1 = MIRT__K(fma)(x, b1, s##i##1); \
        if (vectors > 2) s##i##2 = MIRT__K(fma)(x, b2, s##i##2); \
        if (vectors > 3) s##i##3 = MIRT__K(fma)(x, b3, s##i##3); \
    }
#define MIRT__SPILL(i, j) \
    if (rows > i && vectors > j) MIRT__K(store)(tile->c[i] + tile->column + j * MIRT__LANES, s##i##j);
MIRT__INLINE void MIRT__K(tile_of)(const mirt__tile *tile, const int rows, const int vectors) {
    MIRT__EACH_ROW(MIRT__ROW_OF_A)
    MIRT__EACH(MIRT__CLEAR)
    if (!tile->fresh) { MIRT__EACH(MIRT__RELOAD) }
    const float *b = tile->b;
    const int64_t b_row = tile->b_row, a_step = tile->a_step;
    MIRT__VEC b0 = s00, b1 = s00, b2 = s00, b3 = s00;
    for (int64_t r = 0; r < tile->run_count; r++) {
        int64_t at = tile->runs[r].a;
        for (int64_t left = tile->runs[r].length; left > 0; left--) {
            MIRT__EACH_VECTOR(MIRT__ROW_OF_B, 0)
            MIRT__EACH_ROW(MIRT__STEP)
            at += a_step;
            b += b_row;
        }
    }
    MIRT__EACH(MIRT__SPILL)
}

#define MIRT__TILE(rows, vectors) \
    static void MIRT__K(tile_##rows##_##vectors)(const mirt__tile *tile) { MIRT__K(tile_of)(tile, rows, vectors); }
#if MIRT__ROWS == 6
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) \
    MIRT__TILE(4, vectors) MIRT__TILE(5, vectors) MIRT__TILE(6, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), \
     MIRT__K(tile_4_##vectors), MIRT__K(tile_5_##vectors), MIRT__K(tile_6_##vectors)}
#else
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) MIRT__TILE(4, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), MIRT__K(tile_4_##vectors), NULL, NULL}
#endif
#define MIRT__NO_TILES {NULL, NULL, NULL, NULL, NULL, NULL}
MIRT__TILES(1)
#if MIRT__VECTORS == 2 || MIRT__LANES < 16
MIRT__TILES(2)
#endif
#if MIRT__VECTORS == 4
MIRT__TILES(4)
#endif
#if MIRT__VECTORS == 2
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__NO_TILES}
#elif MIRT__LANES < 16
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__TILE_NAMES(4)}
#else /* six chains of one vector already keep the machine busy */
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__NO_TILES, MIRT__TILE_NAMES(4)}
#endif

MIRT__INLINE MIRT__VEC MIRT__K(load_up_to)(const float *p, int64_t n) {
    return n < MIRT__LANES ? MIRT__K(load_some)(p, n) : MIRT__K(load)(p);
}
MIRT__INLINE void MIRT__K(store_up_to)(float *p, MIRT__VEC x, int64_t n) {
    if (n < MIRT__LANES) MIRT__K(store_some)(p, x, n);
    else MIRT__K(store)(p, x);
}
static void MIRT__K(copy_rows)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        for (int64_t p = 0; p < k; p++) {
            MIRT__K(store)(to + p * MIRT__PANEL + j, MIRT__K(load_up_to)(from + p * from_row + j, columns - j));
        }
    }
}

static void MIRT__K(transpose)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    int64_t whole_k = k - k % MIRT__TRANSPOSE, whole_columns = columns - columns % MIRT__TRANSPOSE;
    for (int64_t j = 0; j < whole_columns; j += MIRT__TRANSPOSE) {
        for (int64_t p = 0; p < whole_k; p += MIRT__TRANSPOSE) {
            MIRT__K(transpose_block)(to + p * MIRT__PANEL + j, from + j * from_row + p, from_row);
        }
    }
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t p = j < whole_columns ? whole_k : 0; p < k; p++) to[p * MIRT__PANEL + j] = from[j * from_row + p];
    }
}

MIRT__INLINE void MIRT__K(read_bytes)(float *to, const uint8_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__VEC y = MIRT__K(from_u8)(x + i);
        MIRT__K(store)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y);
    }
    if (i == count) return;
    uint8_t some[MIRT__LANES] = {0};
    memcpy(some, x + i, (size_t)(count - i));
    MIRT__VEC y = MIRT__K(from_u8)(some);
    MIRT__K(store_some)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, count - i);
}
MIRT__INLINE void MIRT__K(read_words)(float *to, const int32_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    for (int64_t i = 0; i < count; i += MIRT__LANES) {
        int32_t some[MIRT__LANES] = {0};
        const int64_t n = count - i < MIRT__LANES ? count - i : MIRT__LANES;
        memcpy(some, x + i, (size_t)n * sizeof(int32_t));
        MIRT__VEC y = MIRT__K(from_i32)(some);
        MIRT__K(store_up_to)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, n);
    }
}
static void MIRT__K(read)(float *to, const mirt__reader *reader, int64_t at, int64_t count) {
    if (reader->dtype == MIRT_UINT8) {
        MIRT__K(read_bytes)(to, (const uint8_t *)reader->data + at, count, reader);
    } else if (reader->dtype == MIRT_INT32) {
        MIRT__K(read_words)(to, (const int32_t *)reader->data + at, count, reader);
    } else if (!reader->affine) {
        memcpy(to, (const float *)reader->data + at, (size_t)count * sizeof(float));
    } else {
        const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
        const float *x = (const float *)reader->data + at;
        for (int64_t i = 0; i < count; i += MIRT__LANES) {
            MIRT__K(store_up_to)(to + i, MIRT__K(fma)(MIRT__K(load_up_to)(x + i, count - i), scale, offset), count - i);
        }
    }
}

MIRT__INLINE MIRT__VEC MIRT__K(finish_vector)(MIRT__VEC x, MIRT__VEC bias, MIRT__VEC mask, const mirt__epilogue *epilogue,
                                              bool with_bias, bool with_mask) {
    if (with_bias) x = MIRT__K(add)(x, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), one = MIRT__K(set)(1.0f), six = MIRT__K(set)(6.0f);
    if (epilogue->activation == MIRT_RELU || epilogue->activation == MIRT_RELU6) x = MIRT__K(relu)(x);
    if (epilogue->activation == MIRT_RELU6) x = MIRT__K(select)(MIRT__K(greater)(x, six), six, x);
    if (!with_mask) return x;
    switch (epilogue->mask_activation) {
    case MIRT_RELU: return MIRT__K(select)(MIRT__K(greater)(mask, zero), x, zero);
    case MIRT_RELU6: return MIRT__K(select)(MIRT__K(greater)(mask, zero), MIRT__K(select)(MIRT__K(greater)(six, mask), x, zero), zero);
    case MIRT_SIGMOID: return MIRT__K(mul)(x, MIRT__K(mul)(mask, MIRT__K(sub)(one, mask)));
    case MIRT_TANH: return MIRT__K(mul)(x, MIRT__K(sub)(one, MIRT__K(mul)(mask, mask)));
    default: return x;
    }
}

static void MIRT__K(finish)(const mirt__epilogue *epilogue, const float *bias, float *const *c, const float *const *mask,
                            int64_t rows, int64_t columns) {
    const bool with_mask = epilogue->mask != NULL;
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j;
        MIRT__VEC beta = MIRT__K(zero)(), output = beta;
        if (n >= MIRT__LANES) {
            if (bias) beta = MIRT__K(load)(bias + j);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load)(mask[i] + j);
                MIRT__VEC x = MIRT__K(load)(c[i] + j);
                MIRT__K(store)(c[i] + j, MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask));
            }
        } else {
            if (bias) beta = MIRT__K(load_some)(bias + j, n);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load_some)(mask[i] + j, n);
                MIRT__VEC x = MIRT__K(load_some)(c[i] + j, n);
                x = MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask);
                MIRT__K(store_some)(c[i] + j, x, n);
            }
        }
    }
    if (epilogue->activation != MIRT_SIGMOID && epilogue->activation != MIRT_TANH) return;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            c[i][j] = epilogue->activation == MIRT_TANH ? tanhf(c[i][j]) : 1.0f / (1.0f + expf(-c[i][j]));
        }
    }
}

static void MIRT__K(column_sum)(float *sum, const float *b, int64_t b_row, int64_t k, int64_t columns, bool fresh) {
    int64_t j = 0;
    for (; j + 2 * MIRT__LANES <= columns; j += 2 * MIRT__LANES) { /* two chains hide half of the latency */
        MIRT__VEC s0 = MIRT__K(zero)(), s1 = s0;
        if (!fresh) {
            s0 = MIRT__K(load)(sum + j);
            s1 = MIRT__K(load)(sum + j + MIRT__LANES);
        }
        for (int64_t p = 0; p < k; p++) {
            s0 = MIRT__K(add)(s0, MIRT__K(load)(b + p * b_row + j));
            s1 = MIRT__K(add)(s1, MIRT__K(load)(b + p * b_row + j + MIRT__LANES));
        }
        MIRT__K(store)(sum + j, s0);
        MIRT__K(store)(sum + j + MIRT__LANES, s1);
    }
    for (; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j < MIRT__LANES ? columns - j : MIRT__LANES;
        MIRT__VEC s = fresh ? MIRT__K(zero)() : MIRT__K(load_some)(sum + j, n);
        for (int64_t p = 0; p < k; p++) s = MIRT__K(add)(s, MIRT__K(load_some)(b + p * b_row + j, n));
        MIRT__K(store_some)(sum + j, s, n);
    }
}

/* The place of the maximum among the four sums of a window, and its store. */
MIRT__INLINE void MIRT__K(pool_store)(float *y, uint8_t *which, MIRT__VEC s0, MIRT__VEC s1, MIRT__VEC s2, MIRT__VEC s3,
                                      MIRT__VEC bias, int64_t count) {
    s0 = MIRT__K(add)(s0, bias);
    s1 = MIRT__K(add)(s1, bias);
    s2 = MIRT__K(add)(s2, bias);
    s3 = MIRT__K(add)(s3, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), above = MIRT__K(max)(s1, s0), under = MIRT__K(max)(s3, s2);
    const MIRT__VEC best = MIRT__K(max)(under, above);
    MIRT__K(store_up_to)(y, MIRT__K(max)(best, zero), count);
    if (!which) return;
    MIRT__K(store_place)(which, MIRT__K(greater)(s1, s0), MIRT__K(greater)(s3, s2), MIRT__K(greater)(under, above),
                         MIRT__K(greater)(best, zero), count);
}

/* The four places of a window are the rows of a small tile. `last` channels of the last vector exist. */
MIRT__INLINE void MIRT__K(pool_row_of)(const mirt__pool_row *row, const int vectors, const int64_t last) {
    const MIRT__VEC zero = MIRT__K(zero)();
    MIRT__VEC bias0 = zero, bias1 = zero;
    if (row->bias) bias0 = MIRT__K(load_up_to)(row->bias, vectors > 1 ? MIRT__LANES : last);
    if (row->bias && vectors > 1) bias1 = MIRT__K(load_up_to)(row->bias + MIRT__LANES, last);
    const int32_t *offset = row->offset;
    const int64_t k = row->k, b_row = row->b_row, co = row->co, next = 2 * row->ci;
    const float *a0 = row->a, *a1 = a0 + row->ci, *a2 = a0 + row->pitch, *a3 = a2 + row->ci;
    float *y = row->y;
    uint8_t *which = row->which;
    for (int64_t w = 0; w < row->windows; w++) {
        const float *b = row->b;
        MIRT__VEC s00 = zero, s01 = zero, s10 = zero, s11 = zero, s20 = zero, s21 = zero, s30 = zero, s31 = zero;
        for (int64_t p = 0; p < k; p++) {
            const int64_t at = offset[p];
            const MIRT__VEC x0 = MIRT__K(set)(a0[at]), x1 = MIRT__K(set)(a1[at]);
            const MIRT__VEC x2 = MIRT__K(set)(a2[at]), x3 = MIRT__K(set)(a3[at]);
            const MIRT__VEC b0 = MIRT__K(load)(b), b1 = vectors > 1 ? MIRT__K(load)(b + MIRT__LANES) : zero;
            s00 = MIRT__K(fma)(x0, b0, s00);
            s10 = MIRT__K(fma)(x1, b0, s10);
            s20 = MIRT__K(fma)(x2, b0, s20);
            s30 = MIRT__K(fma)(x3, b0, s30);
            if (vectors > 1) {
                s01 = MIRT__K(fma)(x0, b1, s01);
                s11 = MIRT__K(fma)(x1, b1, s11);
                s21 = MIRT__K(fma)(x2, b1, s21);
                s31 = MIRT__K(fma)(x3, b1, s31);
            }
            b += b_row;
        }
        MIRT__K(pool_store)(y, which, s00, s10, s20, s30, bias0, vectors > 1 ? MIRT__LANES : last);
        if (vectors > 1) {
            MIRT__K(pool_store)(y + MIRT__LANES, which ? which + MIRT__LANES : NULL, s01, s11, s21, s31, bias1, last);
        }
        a0 += next;
        a1 += next;
        a2 += next;
        a3 += next;
        y += co;
        if (which) which += co;
    }
}
static void MIRT__K(pool_row)(const mirt__pool_row *row) {
    const int64_t last = row->columns > MIRT__LANES ? row->columns - MIRT__LANES : row->columns;
    if (last == MIRT__LANES && row->columns == MIRT__POOL_VECTORS * MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, MIRT__LANES);
    } else if (row->columns > MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, last);
    } else {
        MIRT__K(pool_row_of)(row, 1, last);
    }
}

static void MIRT__K(lay_windows)(float *block, const float *x, int64_t pitch, int64_t ci, int64_t windows, int64_t k,
                                 const int32_t *offset) {
    int64_t w = 0;
    for (; ci == 1 && w + 2 <= windows; w += 2, x += 4, block += 8 * k) {
        for (int64_t p = 0; p < k; p++) MIRT__K(pair)(block + 4 * p, 4 * k, x + offset[p], x + offset[p] + pitch);
    }
    for (; w < windows; w++, x += 2 * ci) {
        for (int64_t p = 0; p < k; p++, block += 4) {
            const float *at = x + offset[p];
            block[0] = at[0];
            block[1] = at[ci];
            block[2] = at[pitch];
            block[3] = at[pitch + ci];
        }
    }
}

/* `taps` steps of k from `first` on, one vector of `columns` channels from `column` on. */
#define MIRT__EACH_TAP(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define MIRT__TAP_LOAD(t) MIRT__VEC s##t = MIRT__K(load_up_to)(to + (taps > t ? t : 0) * s->co, columns);
#define MIRT__TAP(t) if (taps > t) s##t = MIRT__K(fma)(MIRT__K(pick)(block + 4 * t, place), g, s##t);
#define MIRT__TAP_STORE(t) if (taps > t) MIRT__K(store_up_to)(to + t * s->co, s##t, columns);
MIRT__INLINE void MIRT__K(pool_taps)(const mirt__pool_windows *s, int64_t first, int64_t column, int64_t columns,
                                     const int taps) {
    float *to = s->dkernel + first * s->co + column;
    const float *block = s->block + first * 4, *dy = s->dy + column;
    const uint8_t *which = s->which + column;
    MIRT__VEC bias = MIRT__K(zero)();
    if (s->db) bias = MIRT__K(load_up_to)(s->db + column, columns);
    MIRT__EACH_TAP(MIRT__TAP_LOAD)
    for (int64_t w = 0; w < s->windows; w++) {
        const MIRT__K(which) at = MIRT__K(load_which)(which, columns);
        const MIRT__VEC g = MIRT__K(live)(at, MIRT__K(load_up_to)(dy, columns));
        const MIRT__K(which) place = MIRT__K(place)(at);
        MIRT__EACH_TAP(MIRT__TAP)
        bias = MIRT__K(add)(bias, g);
        block += 4 * s->k;
        dy += s->co;
        which += s->co;
    }
    MIRT__EACH_TAP(MIRT__TAP_STORE)
    if (first == 0 && s->db) MIRT__K(store_up_to)(s->db + column, bias, columns);
}
static void MIRT__K(pool_windows)(const mirt__pool_windows *windows) {
    int64_t j = 0, first;
    for (; j + MIRT__LANES <= windows->co; j += MIRT__LANES) {
        for (first = 0; first + 9 <= windows->k; first += 9) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 9);
        for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 1);
    }
    if (j == windows->co) return;
    for (first = 0; first + 3 <= windows->k; first += 3) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 3);
    for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 1);
}
#undef MIRT__EACH_TAP
#undef MIRT__TAP_LOAD
#undef MIRT__TAP
#undef MIRT__TAP_STORE

static void MIRT__K(taps)(float *y, const float *const *x, const float *const *k, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        MIRT__VEC sum = MIRT__K(zero)();
        if (n - j >= MIRT__LANES) {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load)(x[t] + j), MIRT__K(load)(k[t] + j), sum);
            MIRT__K(store)(y + j, sum);
        } else {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load_some)(x[t] + j, n - j), MIRT__K(load_some)(k[t] + j, n - j), sum);
            MIRT__K(store_some)(y + j, sum, n - j);
        }
    }
}

static void MIRT__K(taps_grad)(float *const *dk, const float *const *x, const float *dy, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        const MIRT__VEC g = MIRT__K(load_up_to)(dy + j, n - j);
        for (int t = 0; t < count; t++) {
            const MIRT__VEC sum = MIRT__K(fma)(MIRT__K(load_up_to)(x[t] + j, n - j), g, MIRT__K(load_up_to)(dk[t] + j, n - j));
            MIRT__K(store_up_to)(dk[t] + j, sum, n - j);
        }
    }
}

static void MIRT__K(accumulate_range)(float *into, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__K(store)(into + i, MIRT__K(add)(MIRT__K(load)(into + i), MIRT__K(load)(from + i)));
    }
    for (; i < count; i++) into[i] += from[i];
}

static __attribute__((noinline)) MIRT__VEC MIRT__K(sum_parts)(const mirt__update *args, int64_t i, int64_t n) {
    MIRT__VEC part[MIRT__MAX_PARTS];
    int root = 0;
    part[0] = MIRT__K(load_up_to)(args->part[0] + i, n);
    for (int p = 1; p < args->parts; p++) part[p] = MIRT__K(load_up_to)(args->part[p] + i, n);
    for (int t = 0; t + 1 < args->parts; t++) {
        root = args->tree[t].into;
        part[root] = MIRT__K(add)(part[root], part[args->tree[t].from]);
    }
    return part[root];
}
/* One part, or the sum of the two that most steps have; more are summed by sum_parts. */
MIRT__INLINE MIRT__VEC MIRT__K(gradient)(const mirt__update *args, const float *into, const float *from, int64_t i, int64_t n) {
    if (args->parts > 2) return MIRT__K(sum_parts)(args, i, n);
    const MIRT__VEC g = MIRT__K(load_up_to)(into + i, n);
    return from ? MIRT__K(add)(g, MIRT__K(load_up_to)(from + i, n)) : g;
}
#define MIRT__UPDATE_PARTS \
    const float *into = args->part[args->parts == 2 ? args->tree[0].into : 0]; \
    const float *from = args->parts == 2 ? args->part[args->tree[0].from] : NULL;

/* What the loops need is in variables: the stores could change *args for all the compiler knows. */
static void MIRT__K(sgd_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), momentum = MIRT__K(set)(args->momentum);
    float *slot = args->slot[0], *weights = args->weight[0];
    const bool nesterov = args->nesterov;
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC step = MIRT__K(mul)(rate, MIRT__K(gradient)(args, into, from, i, n));
        MIRT__VEC weight = MIRT__K(load_up_to)(weights + i, n);
        if (slot) {
            MIRT__VEC velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, MIRT__K(load_up_to)(slot + i, n)), step);
            MIRT__K(store_up_to)(slot + i, velocity, n);
            if (nesterov) velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, velocity), step);
            weight = MIRT__K(add)(weight, velocity);
        } else {
            weight = MIRT__K(sub)(weight, step);
        }
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}

static void MIRT__K(adam_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), epsilon = MIRT__K(set)(args->epsilon);
    const MIRT__VEC new_1 = MIRT__K(set)(args->new_1), new_2 = MIRT__K(set)(args->new_2);
    float *first = args->slot[0], *second = args->slot[1], *weights = args->weight[0];
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC g = MIRT__K(gradient)(args, into, from, i, n);
        MIRT__VEC m = MIRT__K(load_up_to)(first + i, n), v = MIRT__K(load_up_to)(second + i, n);
        m = MIRT__K(fma)(MIRT__K(sub)(g, m), new_1, m);
        v = MIRT__K(fma)(MIRT__K(sub)(MIRT__K(mul)(g, g), v), new_2, v);
        MIRT__K(store_up_to)(first + i, m, n);
        MIRT__K(store_up_to)(second + i, v, n);
        const MIRT__VEC step = MIRT__K(div)(MIRT__K(mul)(rate, m), MIRT__K(add)(MIRT__K(sqrt)(v), epsilon));
        const MIRT__VEC weight = MIRT__K(sub)(MIRT__K(load_up_to)(weights + i, n), step);
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}
#undef MIRT__UPDATE_PARTS

static const mirt__simd MIRT__K(simd) = {
    MIRT__LANES, MIRT__ROWS, MIRT__VECTORS, MIRT__POOL_VECTORS, MIRT__TILE_TABLE,
    MIRT__K(copy_rows), MIRT__K(transpose), MIRT__K(read), MIRT__K(finish), MIRT__K(column_sum), MIRT__K(pool_row),
    MIRT__K(lay_windows), MIRT__K(pool_windows),
    MIRT__K(taps), MIRT__K(taps_grad), MIRT__K(accumulate_range)
};

static void MIRT__K(gemm)(const mirt__gemm *args, const mirt__where *where) {
    mirt__fast_gemm(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_forward)(const mirt__conv_forward *args, const mirt__where *where) {
    mirt__fast_conv_forward(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_input_grad)(const mirt__conv_input_grad *args, const mirt__where *where) {
    mirt__fast_conv_input_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_weight_grad)(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool)(const mirt__conv_pool *args, const mirt__where *where) {
    mirt__fast_conv_pool(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool_weight_grad)(const mirt__conv_pool_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_pool_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(accumulate)(float *into, const float *from, int64_t count, const mirt__where *where) {
    mirt__fast_accumulate(&MIRT__K(simd), into, from, count, where);
}
static void MIRT__K(sgd)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(sgd_range));
}
static void MIRT__K(adam)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(adam_range));
}

MIRT__KERNEL_TABLE mirt__kernels MIRT__K(kernels) = {
    MIRT__NAME,
    MIRT__K(gemm), MIRT__K(conv_forward), MIRT__K(conv_input_grad), MIRT__K(conv_weight_grad),
    MIRT__K(conv_pool), MIRT__K(conv_pool_weight_grad),
    mirt__common_max_pool, mirt__common_max_pool_grad, mirt__common_average_pool, mirt__common_average_pool_grad,
    mirt__common_unary, mirt__common_binary, mirt__common_logic,
    mirt__common_reduce, mirt__common_reduce_max_grad,
    mirt__common_scan, mirt__common_move, mirt__common_gather, mirt__common_gather_grad,
    mirt__common_softmax, mirt__common_softmax_grad, mirt__common_loss, mirt__common_loss_grad,
    mirt__common_accuracy, mirt__common_dropout, mirt__common_cast, mirt__common_one_hot,
    mirt__common_resize, mirt__common_resize_grad,
    mirt__common_norm_stats, mirt__common_normalize, mirt__common_norm_grad_sums, mirt__common_norm_grad_input,
    MIRT__K(accumulate), MIRT__K(sgd), MIRT__K(adam)
};

#undef MIRT__VEC
#undef MIRT__EACH_VECTOR
#undef MIRT__EACH_ROW
#undef MIRT__EACH
#undef MIRT__ROW_OF_A
#undef MIRT__ROW_OF_B
#undef MIRT__CLEAR
#undef MIRT__RELOAD
#undef MIRT__STEP
#undef MIRT__SPILL
#undef MIRT__TILE
#undef MIRT__TILES
#undef MIRT__TILE_NAMES
#undef MIRT__NO_TILES
#undef MIRT__TILE_TABLE
#undef MIRT__LANES
#undef MIRT__ROWS
#undef MIRT__VECTORS
#undef MIRT__POOL_VECTORS
#undef MIRT__TRANSPOSE
#undef MIRT__INLINE
#undef MIRT__K
#undef MIRT__NAME
#endif

#define MIRT__K(name) mirt__##name##_plain
#define MIRT__NAME "plain"
/* Any machine: sixteen-byte vectors of the compiler, which are registers almost everywhere. */
#define MIRT__LANES 4
#define MIRT__ROWS 4
#define MIRT__VECTORS 2
#define MIRT__POOL_VECTORS 2
#define MIRT__TRANSPOSE 4
#define MIRT__INLINE static inline __attribute__((always_inline))

typedef float mirt__vector_plain __attribute__((vector_size(16)));
typedef int32_t mirt__mask_plain __attribute__((vector_size(16)));
typedef mirt__mask_plain mirt__which_plain;

MIRT__INLINE mirt__vector_plain mirt__set_plain(float x) {
    mirt__vector_plain y = {x, x, x, x};
    return y;
}
MIRT__INLINE mirt__vector_plain mirt__zero_plain(void) { return mirt__set_plain(0.0f); }
MIRT__INLINE mirt__vector_plain mirt__load_plain(const float *p) {
    mirt__vector_plain x;
    memcpy(&x, p, sizeof x);
    return x;
}
MIRT__INLINE void mirt__store_plain(float *p, mirt__vector_plain x) { memcpy(p, &x, sizeof x); }
MIRT__INLINE mirt__vector_plain mirt__load_some_plain(const float *p, int64_t count) {
    mirt__vector_plain x = mirt__zero_plain();
    memcpy(&x, p, (size_t)count * sizeof(float));
    return x;
}
MIRT__INLINE void mirt__store_some_plain(float *p, mirt__vector_plain x, int64_t count) {
    memcpy(p, &x, (size_t)count * sizeof(float));
}
MIRT__INLINE mirt__vector_plain mirt__fma_plain(mirt__vector_plain a, mirt__vector_plain b, mirt__vector_plain c) {
#ifdef FP_FAST_FMAF
    const mirt__vector_plain y = {fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3])};
    return y;
#else
    return a * b + c;
#endif
}
MIRT__INLINE mirt__vector_plain mirt__add_plain(mirt__vector_plain a, mirt__vector_plain b) { return a + b; }
MIRT__INLINE mirt__vector_plain mirt__sub_plain(mirt__vector_plain a, mirt__vector_plain b) { return a - b; }
MIRT__INLINE mirt__vector_plain mirt__mul_plain(mirt__vector_plain a, mirt__vector_plain b) { return a * b; }
MIRT__INLINE mirt__vector_plain mirt__div_plain(mirt__vector_plain a, mirt__vector_plain b) { return a / b; }
MIRT__INLINE mirt__vector_plain mirt__sqrt_plain(mirt__vector_plain a) {
    const mirt__vector_plain y = {sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
    return y;
}
MIRT__INLINE mirt__mask_plain mirt__greater_plain(mirt__vector_plain a, mirt__vector_plain b) {
    return (mirt__mask_plain)(a > b);
}
MIRT__INLINE mirt__vector_plain mirt__select_plain(mirt__mask_plain mask, mirt__vector_plain yes, mirt__vector_plain no) {
    return (mirt__vector_plain)((mask & (mirt__mask_plain)yes) | (~mask & (mirt__mask_plain)no));
}
MIRT__INLINE mirt__vector_plain mirt__max_plain(mirt__vector_plain a, mirt__vector_plain b) {
    return mirt__select_plain((mirt__mask_plain)(a > b), a, b);
}
MIRT__INLINE mirt__vector_plain mirt__relu_plain(mirt__vector_plain x) {
    return (mirt__vector_plain)(~(mirt__mask_plain)(x < mirt__zero_plain()) & (mirt__mask_plain)x);
}
MIRT__INLINE mirt__vector_plain mirt__from_u8_plain(const uint8_t *p) {
    mirt__vector_plain x = {(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
    return x;
}
MIRT__INLINE mirt__vector_plain mirt__from_i32_plain(const int32_t *p) {
    mirt__vector_plain x = {(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
    return x;
}
MIRT__INLINE void mirt__store_place_plain(uint8_t *p, mirt__mask_plain right, mirt__mask_plain right_below,
                                          mirt__mask_plain below, mirt__mask_plain live, int64_t count) {
    const mirt__mask_plain four = {4, 4, 4, 4}, place = (below & (2 - right_below)) | (~below & -right);
    const mirt__mask_plain known = (live & place) | (~live & four);
    p[0] = (uint8_t)known[0];
    if (count > 1) p[1] = (uint8_t)known[1];
    if (count > 2) p[2] = (uint8_t)known[2];
    if (count > 3) p[3] = (uint8_t)known[3];
}
MIRT__INLINE mirt__mask_plain mirt__load_which_plain(const uint8_t *p, int64_t count) {
    const mirt__mask_plain which = {p[0], count > 1 ? p[1] : 4, count > 2 ? p[2] : 4, count > 3 ? p[3] : 4};
    return which;
}
MIRT__INLINE mirt__vector_plain mirt__live_plain(mirt__mask_plain which, mirt__vector_plain x) {
    mirt__mask_plain four = {4, 4, 4, 4};
    return (mirt__vector_plain)((mirt__mask_plain)(which < four) & (mirt__mask_plain)x);
}
MIRT__INLINE mirt__mask_plain mirt__place_plain(mirt__mask_plain which) {
    mirt__mask_plain three = {3, 3, 3, 3};
    return which & three;
}
MIRT__INLINE mirt__vector_plain mirt__pick_plain(const float *four, mirt__mask_plain place) {
    mirt__vector_plain x = {four[place[0]], four[place[1]], four[place[2]], four[place[3]]};
    return x;
}
MIRT__INLINE void mirt__transpose_block_plain(float *to, const float *from, int64_t from_row) {
    for (int j = 0; j < 4; j++) {
        for (int p = 0; p < 4; p++) to[p * MIRT__PANEL + j] = from[j * from_row + p];
    }
}
MIRT__INLINE void mirt__pair_plain(float *to, int64_t next, const float *above, const float *below) {
    memcpy(to, above, 2 * sizeof(float));
    memcpy(to + 2, below, 2 * sizeof(float));
    memcpy(to + next, above + 2, 2 * sizeof(float));
    memcpy(to + next + 2, below + 2, 2 * sizeof(float));
}
/* The primitives of one instruction set, over its wrappers. MIRT__K(name) is name_<set>. */
#define MIRT__VEC MIRT__K(vector)

/* Accumulators are variables, not an array: gcc keeps arrays in memory here. With constant `rows`
   and `vectors` the unused ones vanish. */
#define MIRT__EACH_VECTOR(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define MIRT__EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define MIRT__EACH(X) \
    MIRT__EACH_VECTOR(X, 0) MIRT__EACH_VECTOR(X, 1) MIRT__EACH_VECTOR(X, 2) \
    MIRT__EACH_VECTOR(X, 3) MIRT__EACH_VECTOR(X, 4) MIRT__EACH_VECTOR(X, 5)
#define MIRT__ROW_OF_A(i) const float *a##i = tile->a[rows > i ? i : 0];
#define MIRT__ROW_OF_B(i, j) if (vectors > j) b##j = MIRT__K(load)(b + j * MIRT__LANES);
#define MIRT__CLEAR(i, j) MIRT__VEC s##i##j = MIRT__K(zero)();
#define MIRT__RELOAD(i, j) \
    if (rows > i && vectors > j) s##i##j = MIRT__K(load)(tile->c[i] + tile->column + j * MIRT__LANES);
#define MIRT__STEP(i) \
    if (rows > i) { \
        const MIRT__VEC x = MIRT__K(set)(a##i[at]); \
        s##i##0 = MIRT__K(fma)(x, b0, s##i##0); \
        if (vectors > 1) s##i##1 = MIRT__K(fma)(x, b1, s##i##1); \
        if (vectors > 2) s##i##2 = MIRT__K(fma)(x, b2, s##i##2); \
        if (vectors > 3) s##i##3 = MIRT__K(fma)(x, b3, s##i##3); \
    }
#define MIRT__SPILL(i, j) \
    if (rows > i && vectors > j) MIRT__K(store)(tile->c[i] + tile->column + j * MIRT__LANES, s##i##j);
MIRT__INLINE void MIRT__K(tile_of)(const mirt__tile *tile, const int rows, const int vectors) {
    MIRT__EACH_ROW(MIRT__ROW_OF_A)
    MIRT__EACH(MIRT__CLEAR)
    if (!tile->fresh) { MIRT__EACH(MIRT__RELOAD) }
    const float *b = tile->b;
    const int64_t b_row = tile->b_row, a_step = tile->a_step;
    MIRT__VEC b0 = s00, b1 = s00, b2 = s00, b3 = s00;
    for (int64_t r = 0; r < tile->run_count; r++) {
        int64_t at = tile->runs[r].a;
        for (int64_t left = tile->runs[r].length; left > 0; left--) {
            MIRT__EACH_VECTOR(MIRT__ROW_OF_B, 0)
            MIRT__EACH_ROW(MIRT__STEP)
            at += a_step;
            b += b_row;
        }
    }
    MIRT__EACH(MIRT__SPILL)
}

#define MIRT__TILE(rows, vectors) \
    static void MIRT__K(tile_##rows##_##vectors)(const mirt__tile *tile) { MIRT__K(tile_of)(tile, rows, vectors); }
#if MIRT__ROWS == 6
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) \
    MIRT__TILE(4, vectors) MIRT__TILE(5, vectors) MIRT__TILE(6, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), \
     MIRT__K(tile_4_##vectors), MIRT__K(tile_5_##vectors), MIRT__K(tile_6_##vectors)}
#else
#define MIRT__TILES(vectors) \
    MIRT__TILE(1, vectors) MIRT__TILE(2, vectors) MIRT__TILE(3, vectors) MIRT__TILE(4, vectors)
#define MIRT__TILE_NAMES(vectors) \
    {MIRT__K(tile_1_##vectors), MIRT__K(tile_2_##vectors), MIRT__K(tile_3_##vectors), MIRT__K(tile_4_##vectors), NULL, NULL}
#endif
#define MIRT__NO_TILES {NULL, NULL, NULL, NULL, NULL, NULL}
MIRT__TILES(1)
#if MIRT__VECTORS == 2 || MIRT__LANES < 16
MIRT__TILES(2)
#endif
#if MIRT__VECTORS == 4
MIRT__TILES(4)
#endif
#if MIRT__VECTORS == 2
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__NO_TILES}
#elif MIRT__LANES < 16
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__TILE_NAMES(2), MIRT__TILE_NAMES(4)}
#else /* six chains of one vector already keep the machine busy */
#define MIRT__TILE_TABLE {MIRT__TILE_NAMES(1), MIRT__NO_TILES, MIRT__TILE_NAMES(4)}
#endif

MIRT__INLINE MIRT__VEC MIRT__K(load_up_to)(const float *p, int64_t n) {
    return n < MIRT__LANES ? MIRT__K(load_some)(p, n) : MIRT__K(load)(p);
}
MIRT__INLINE void MIRT__K(store_up_to)(float *p, MIRT__VEC x, int64_t n) {
    if (n < MIRT__LANES) MIRT__K(store_some)(p, x, n);
    else MIRT__K(store)(p, x);
}
static void MIRT__K(copy_rows)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        for (int64_t p = 0; p < k; p++) {
            MIRT__K(store)(to + p * MIRT__PANEL + j, MIRT__K(load_up_to)(from + p * from_row + j, columns - j));
        }
    }
}

static void MIRT__K(transpose)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns) {
    int64_t whole_k = k - k % MIRT__TRANSPOSE, whole_columns = columns - columns % MIRT__TRANSPOSE;
    for (int64_t j = 0; j < whole_columns; j += MIRT__TRANSPOSE) {
        for (int64_t p = 0; p < whole_k; p += MIRT__TRANSPOSE) {
            MIRT__K(transpose_block)(to + p * MIRT__PANEL + j, from + j * from_row + p, from_row);
        }
    }
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t p = j < whole_columns ? whole_k : 0; p < k; p++) to[p * MIRT__PANEL + j] = from[j * from_row + p];
    }
}

MIRT__INLINE void MIRT__K(read_bytes)(float *to, const uint8_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__VEC y = MIRT__K(from_u8)(x + i);
        MIRT__K(store)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y);
    }
    if (i == count) return;
    uint8_t some[MIRT__LANES] = {0};
    memcpy(some, x + i, (size_t)(count - i));
    MIRT__VEC y = MIRT__K(from_u8)(some);
    MIRT__K(store_some)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, count - i);
}
MIRT__INLINE void MIRT__K(read_words)(float *to, const int32_t *x, int64_t count, const mirt__reader *reader) {
    const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
    for (int64_t i = 0; i < count; i += MIRT__LANES) {
        int32_t some[MIRT__LANES] = {0};
        const int64_t n = count - i < MIRT__LANES ? count - i : MIRT__LANES;
        memcpy(some, x + i, (size_t)n * sizeof(int32_t));
        MIRT__VEC y = MIRT__K(from_i32)(some);
        MIRT__K(store_up_to)(to + i, reader->affine ? MIRT__K(fma)(y, scale, offset) : y, n);
    }
}
static void MIRT__K(read)(float *to, const mirt__reader *reader, int64_t at, int64_t count) {
    if (reader->dtype == MIRT_UINT8) {
        MIRT__K(read_bytes)(to, (const uint8_t *)reader->data + at, count, reader);
    } else if (reader->dtype == MIRT_INT32) {
        MIRT__K(read_words)(to, (const int32_t *)reader->data + at, count, reader);
    } else if (!reader->affine) {
        memcpy(to, (const float *)reader->data + at, (size_t)count * sizeof(float));
    } else {
        const MIRT__VEC scale = MIRT__K(set)(reader->scale), offset = MIRT__K(set)(reader->offset);
        const float *x = (const float *)reader->data + at;
        for (int64_t i = 0; i < count; i += MIRT__LANES) {
            MIRT__K(store_up_to)(to + i, MIRT__K(fma)(MIRT__K(load_up_to)(x + i, count - i), scale, offset), count - i);
        }
    }
}

MIRT__INLINE MIRT__VEC MIRT__K(finish_vector)(MIRT__VEC x, MIRT__VEC bias, MIRT__VEC mask, const mirt__epilogue *epilogue,
                                              bool with_bias, bool with_mask) {
    if (with_bias) x = MIRT__K(add)(x, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), one = MIRT__K(set)(1.0f), six = MIRT__K(set)(6.0f);
    if (epilogue->activation == MIRT_RELU || epilogue->activation == MIRT_RELU6) x = MIRT__K(relu)(x);
    if (epilogue->activation == MIRT_RELU6) x = MIRT__K(select)(MIRT__K(greater)(x, six), six, x);
    if (!with_mask) return x;
    switch (epilogue->mask_activation) {
    case MIRT_RELU: return MIRT__K(select)(MIRT__K(greater)(mask, zero), x, zero);
    case MIRT_RELU6: return MIRT__K(select)(MIRT__K(greater)(mask, zero), MIRT__K(select)(MIRT__K(greater)(six, mask), x, zero), zero);
    case MIRT_SIGMOID: return MIRT__K(mul)(x, MIRT__K(mul)(mask, MIRT__K(sub)(one, mask)));
    case MIRT_TANH: return MIRT__K(mul)(x, MIRT__K(sub)(one, MIRT__K(mul)(mask, mask)));
    default: return x;
    }
}

static void MIRT__K(finish)(const mirt__epilogue *epilogue, const float *bias, float *const *c, const float *const *mask,
                            int64_t rows, int64_t columns) {
    const bool with_mask = epilogue->mask != NULL;
    for (int64_t j = 0; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j;
        MIRT__VEC beta = MIRT__K(zero)(), output = beta;
        if (n >= MIRT__LANES) {
            if (bias) beta = MIRT__K(load)(bias + j);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load)(mask[i] + j);
                MIRT__VEC x = MIRT__K(load)(c[i] + j);
                MIRT__K(store)(c[i] + j, MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask));
            }
        } else {
            if (bias) beta = MIRT__K(load_some)(bias + j, n);
            for (int64_t i = 0; i < rows; i++) {
                if (with_mask) output = MIRT__K(load_some)(mask[i] + j, n);
                MIRT__VEC x = MIRT__K(load_some)(c[i] + j, n);
                x = MIRT__K(finish_vector)(x, beta, output, epilogue, bias != NULL, with_mask);
                MIRT__K(store_some)(c[i] + j, x, n);
            }
        }
    }
    if (epilogue->activation != MIRT_SIGMOID && epilogue->activation != MIRT_TANH) return;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            c[i][j] = epilogue->activation == MIRT_TANH ? tanhf(c[i][j]) : 1.0f / (1.0f + expf(-c[i][j]));
        }
    }
}

static void MIRT__K(column_sum)(float *sum, const float *b, int64_t b_row, int64_t k, int64_t columns, bool fresh) {
    int64_t j = 0;
    for (; j + 2 * MIRT__LANES <= columns; j += 2 * MIRT__LANES) { /* two chains hide half of the latency */
        MIRT__VEC s0 = MIRT__K(zero)(), s1 = s0;
        if (!fresh) {
            s0 = MIRT__K(load)(sum + j);
            s1 = MIRT__K(load)(sum + j + MIRT__LANES);
        }
        for (int64_t p = 0; p < k; p++) {
            s0 = MIRT__K(add)(s0, MIRT__K(load)(b + p * b_row + j));
            s1 = MIRT__K(add)(s1, MIRT__K(load)(b + p * b_row + j + MIRT__LANES));
        }
        MIRT__K(store)(sum + j, s0);
        MIRT__K(store)(sum + j + MIRT__LANES, s1);
    }
    for (; j < columns; j += MIRT__LANES) {
        int64_t n = columns - j < MIRT__LANES ? columns - j : MIRT__LANES;
        MIRT__VEC s = fresh ? MIRT__K(zero)() : MIRT__K(load_some)(sum + j, n);
        for (int64_t p = 0; p < k; p++) s = MIRT__K(add)(s, MIRT__K(load_some)(b + p * b_row + j, n));
        MIRT__K(store_some)(sum + j, s, n);
    }
}

/* The place of the maximum among the four sums of a window, and its store. */
MIRT__INLINE void MIRT__K(pool_store)(float *y, uint8_t *which, MIRT__VEC s0, MIRT__VEC s1, MIRT__VEC s2, MIRT__VEC s3,
                                      MIRT__VEC bias, int64_t count) {
    s0 = MIRT__K(add)(s0, bias);
    s1 = MIRT__K(add)(s1, bias);
    s2 = MIRT__K(add)(s2, bias);
    s3 = MIRT__K(add)(s3, bias);
    const MIRT__VEC zero = MIRT__K(zero)(), above = MIRT__K(max)(s1, s0), under = MIRT__K(max)(s3, s2);
    const MIRT__VEC best = MIRT__K(max)(under, above);
    MIRT__K(store_up_to)(y, MIRT__K(max)(best, zero), count);
    if (!which) return;
    MIRT__K(store_place)(which, MIRT__K(greater)(s1, s0), MIRT__K(greater)(s3, s2), MIRT__K(greater)(under, above),
                         MIRT__K(greater)(best, zero), count);
}

/* The four places of a window are the rows of a small tile. `last` channels of the last vector exist. */
MIRT__INLINE void MIRT__K(pool_row_of)(const mirt__pool_row *row, const int vectors, const int64_t last) {
    const MIRT__VEC zero = MIRT__K(zero)();
    MIRT__VEC bias0 = zero, bias1 = zero;
    if (row->bias) bias0 = MIRT__K(load_up_to)(row->bias, vectors > 1 ? MIRT__LANES : last);
    if (row->bias && vectors > 1) bias1 = MIRT__K(load_up_to)(row->bias + MIRT__LANES, last);
    const int32_t *offset = row->offset;
    const int64_t k = row->k, b_row = row->b_row, co = row->co, next = 2 * row->ci;
    const float *a0 = row->a, *a1 = a0 + row->ci, *a2 = a0 + row->pitch, *a3 = a2 + row->ci;
    float *y = row->y;
    uint8_t *which = row->which;
    for (int64_t w = 0; w < row->windows; w++) {
        const float *b = row->b;
        MIRT__VEC s00 = zero, s01 = zero, s10 = zero, s11 = zero, s20 = zero, s21 = zero, s30 = zero, s31 = zero;
        for (int64_t p = 0; p < k; p++) {
            const int64_t at = offset[p];
            const MIRT__VEC x0 = MIRT__K(set)(a0[at]), x1 = MIRT__K(set)(a1[at]);
            const MIRT__VEC x2 = MIRT__K(set)(a2[at]), x3 = MIRT__K(set)(a3[at]);
            const MIRT__VEC b0 = MIRT__K(load)(b), b1 = vectors > 1 ? MIRT__K(load)(b + MIRT__LANES) : zero;
            s00 = MIRT__K(fma)(x0, b0, s00);
            s10 = MIRT__K(fma)(x1, b0, s10);
            s20 = MIRT__K(fma)(x2, b0, s20);
            s30 = MIRT__K(fma)(x3, b0, s30);
            if (vectors > 1) {
                s01 = MIRT__K(fma)(x0, b1, s01);
                s11 = MIRT__K(fma)(x1, b1, s11);
                s21 = MIRT__K(fma)(x2, b1, s21);
                s31 = MIRT__K(fma)(x3, b1, s31);
            }
            b += b_row;
        }
        MIRT__K(pool_store)(y, which, s00, s10, s20, s30, bias0, vectors > 1 ? MIRT__LANES : last);
        if (vectors > 1) {
            MIRT__K(pool_store)(y + MIRT__LANES, which ? which + MIRT__LANES : NULL, s01, s11, s21, s31, bias1, last);
        }
        a0 += next;
        a1 += next;
        a2 += next;
        a3 += next;
        y += co;
        if (which) which += co;
    }
}
static void MIRT__K(pool_row)(const mirt__pool_row *row) {
    const int64_t last = row->columns > MIRT__LANES ? row->columns - MIRT__LANES : row->columns;
    if (last == MIRT__LANES && row->columns == MIRT__POOL_VECTORS * MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, MIRT__LANES);
    } else if (row->columns > MIRT__LANES) {
        MIRT__K(pool_row_of)(row, MIRT__POOL_VECTORS, last);
    } else {
        MIRT__K(pool_row_of)(row, 1, last);
    }
}

static void MIRT__K(lay_windows)(float *block, const float *x, int64_t pitch, int64_t ci, int64_t windows, int64_t k,
                                 const int32_t *offset) {
    int64_t w = 0;
    for (; ci == 1 && w + 2 <= windows; w += 2, x += 4, block += 8 * k) {
        for (int64_t p = 0; p < k; p++) MIRT__K(pair)(block + 4 * p, 4 * k, x + offset[p], x + offset[p] + pitch);
    }
    for (; w < windows; w++, x += 2 * ci) {
        for (int64_t p = 0; p < k; p++, block += 4) {
            const float *at = x + offset[p];
            block[0] = at[0];
            block[1] = at[ci];
            block[2] = at[pitch];
            block[3] = at[pitch + ci];
        }
    }
}

/* `taps` steps of k from `first` on, one vector of `columns` channels from `column` on. */
#define MIRT__EACH_TAP(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define MIRT__TAP_LOAD(t) MIRT__VEC s##t = MIRT__K(load_up_to)(to + (taps > t ? t : 0) * s->co, columns);
#define MIRT__TAP(t) if (taps > t) s##t = MIRT__K(fma)(MIRT__K(pick)(block + 4 * t, place), g, s##t);
#define MIRT__TAP_STORE(t) if (taps > t) MIRT__K(store_up_to)(to + t * s->co, s##t, columns);
MIRT__INLINE void MIRT__K(pool_taps)(const mirt__pool_windows *s, int64_t first, int64_t column, int64_t columns,
                                     const int taps) {
    float *to = s->dkernel + first * s->co + column;
    const float *block = s->block + first * 4, *dy = s->dy + column;
    const uint8_t *which = s->which + column;
    MIRT__VEC bias = MIRT__K(zero)();
    if (s->db) bias = MIRT__K(load_up_to)(s->db + column, columns);
    MIRT__EACH_TAP(MIRT__TAP_LOAD)
    for (int64_t w = 0; w < s->windows; w++) {
        const MIRT__K(which) at = MIRT__K(load_which)(which, columns);
        const MIRT__VEC g = MIRT__K(live)(at, MIRT__K(load_up_to)(dy, columns));
        const MIRT__K(which) place = MIRT__K(place)(at);
        MIRT__EACH_TAP(MIRT__TAP)
        bias = MIRT__K(add)(bias, g);
        block += 4 * s->k;
        dy += s->co;
        which += s->co;
    }
    MIRT__EACH_TAP(MIRT__TAP_STORE)
    if (first == 0 && s->db) MIRT__K(store_up_to)(s->db + column, bias, columns);
}
static void MIRT__K(pool_windows)(const mirt__pool_windows *windows) {
    int64_t j = 0, first;
    for (; j + MIRT__LANES <= windows->co; j += MIRT__LANES) {
        for (first = 0; first + 9 <= windows->k; first += 9) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 9);
        for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, MIRT__LANES, 1);
    }
    if (j == windows->co) return;
    for (first = 0; first + 3 <= windows->k; first += 3) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 3);
    for (; first < windows->k; first++) MIRT__K(pool_taps)(windows, first, j, windows->co - j, 1);
}
#undef MIRT__EACH_TAP
#undef MIRT__TAP_LOAD
#undef MIRT__TAP
#undef MIRT__TAP_STORE

static void MIRT__K(taps)(float *y, const float *const *x, const float *const *k, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        MIRT__VEC sum = MIRT__K(zero)();
        if (n - j >= MIRT__LANES) {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load)(x[t] + j), MIRT__K(load)(k[t] + j), sum);
            MIRT__K(store)(y + j, sum);
        } else {
            for (int t = 0; t < count; t++) sum = MIRT__K(fma)(MIRT__K(load_some)(x[t] + j, n - j), MIRT__K(load_some)(k[t] + j, n - j), sum);
            MIRT__K(store_some)(y + j, sum, n - j);
        }
    }
}

static void MIRT__K(taps_grad)(float *const *dk, const float *const *x, const float *dy, int count, int64_t n) {
    for (int64_t j = 0; j < n; j += MIRT__LANES) {
        const MIRT__VEC g = MIRT__K(load_up_to)(dy + j, n - j);
        for (int t = 0; t < count; t++) {
            const MIRT__VEC sum = MIRT__K(fma)(MIRT__K(load_up_to)(x[t] + j, n - j), g, MIRT__K(load_up_to)(dk[t] + j, n - j));
            MIRT__K(store_up_to)(dk[t] + j, sum, n - j);
        }
    }
}

static void MIRT__K(accumulate_range)(float *into, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + MIRT__LANES <= count; i += MIRT__LANES) {
        MIRT__K(store)(into + i, MIRT__K(add)(MIRT__K(load)(into + i), MIRT__K(load)(from + i)));
    }
    for (; i < count; i++) into[i] += from[i];
}

static __attribute__((noinline)) MIRT__VEC MIRT__K(sum_parts)(const mirt__update *args, int64_t i, int64_t n) {
    MIRT__VEC part[MIRT__MAX_PARTS];
    int root = 0;
    part[0] = MIRT__K(load_up_to)(args->part[0] + i, n);
    for (int p = 1; p < args->parts; p++) part[p] = MIRT__K(load_up_to)(args->part[p] + i, n);
    for (int t = 0; t + 1 < args->parts; t++) {
        root = args->tree[t].into;
        part[root] = MIRT__K(add)(part[root], part[args->tree[t].from]);
    }
    return part[root];
}
/* One part, or the sum of the two that most steps have; more are summed by sum_parts. */
MIRT__INLINE MIRT__VEC MIRT__K(gradient)(const mirt__update *args, const float *into, const float *from, int64_t i, int64_t n) {
    if (args->parts > 2) return MIRT__K(sum_parts)(args, i, n);
    const MIRT__VEC g = MIRT__K(load_up_to)(into + i, n);
    return from ? MIRT__K(add)(g, MIRT__K(load_up_to)(from + i, n)) : g;
}
#define MIRT__UPDATE_PARTS \
    const float *into = args->part[args->parts == 2 ? args->tree[0].into : 0]; \
    const float *from = args->parts == 2 ? args->part[args->tree[0].from] : NULL;

/* What the loops need is in variables: the stores could change *args for all the compiler knows. */
static void MIRT__K(sgd_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), momentum = MIRT__K(set)(args->momentum);
    float *slot = args->slot[0], *weights = args->weight[0];
    const bool nesterov = args->nesterov;
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC step = MIRT__K(mul)(rate, MIRT__K(gradient)(args, into, from, i, n));
        MIRT__VEC weight = MIRT__K(load_up_to)(weights + i, n);
        if (slot) {
            MIRT__VEC velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, MIRT__K(load_up_to)(slot + i, n)), step);
            MIRT__K(store_up_to)(slot + i, velocity, n);
            if (nesterov) velocity = MIRT__K(sub)(MIRT__K(mul)(momentum, velocity), step);
            weight = MIRT__K(add)(weight, velocity);
        } else {
            weight = MIRT__K(sub)(weight, step);
        }
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}

static void MIRT__K(adam_range)(const mirt__update *args, int64_t begin, int64_t end) {
    const MIRT__VEC rate = MIRT__K(set)(args->learning_rate), epsilon = MIRT__K(set)(args->epsilon);
    const MIRT__VEC new_1 = MIRT__K(set)(args->new_1), new_2 = MIRT__K(set)(args->new_2);
    float *first = args->slot[0], *second = args->slot[1], *weights = args->weight[0];
    const int copies = args->copies;
    MIRT__UPDATE_PARTS
    for (int64_t i = begin; i < end; i += MIRT__LANES) {
        const int64_t n = end - i < MIRT__LANES ? end - i : MIRT__LANES;
        const MIRT__VEC g = MIRT__K(gradient)(args, into, from, i, n);
        MIRT__VEC m = MIRT__K(load_up_to)(first + i, n), v = MIRT__K(load_up_to)(second + i, n);
        m = MIRT__K(fma)(MIRT__K(sub)(g, m), new_1, m);
        v = MIRT__K(fma)(MIRT__K(sub)(MIRT__K(mul)(g, g), v), new_2, v);
        MIRT__K(store_up_to)(first + i, m, n);
        MIRT__K(store_up_to)(second + i, v, n);
        const MIRT__VEC step = MIRT__K(div)(MIRT__K(mul)(rate, m), MIRT__K(add)(MIRT__K(sqrt)(v), epsilon));
        const MIRT__VEC weight = MIRT__K(sub)(MIRT__K(load_up_to)(weights + i, n), step);
        MIRT__K(store_up_to)(weights + i, weight, n);
        for (int c = 1; c < copies; c++) MIRT__K(store_up_to)(args->weight[c] + i, weight, n);
    }
}
#undef MIRT__UPDATE_PARTS

static const mirt__simd MIRT__K(simd) = {
    MIRT__LANES, MIRT__ROWS, MIRT__VECTORS, MIRT__POOL_VECTORS, MIRT__TILE_TABLE,
    MIRT__K(copy_rows), MIRT__K(transpose), MIRT__K(read), MIRT__K(finish), MIRT__K(column_sum), MIRT__K(pool_row),
    MIRT__K(lay_windows), MIRT__K(pool_windows),
    MIRT__K(taps), MIRT__K(taps_grad), MIRT__K(accumulate_range)
};

static void MIRT__K(gemm)(const mirt__gemm *args, const mirt__where *where) {
    mirt__fast_gemm(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_forward)(const mirt__conv_forward *args, const mirt__where *where) {
    mirt__fast_conv_forward(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_input_grad)(const mirt__conv_input_grad *args, const mirt__where *where) {
    mirt__fast_conv_input_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_weight_grad)(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool)(const mirt__conv_pool *args, const mirt__where *where) {
    mirt__fast_conv_pool(&MIRT__K(simd), args, where);
}
static void MIRT__K(conv_pool_weight_grad)(const mirt__conv_pool_weight_grad *args, const mirt__where *where) {
    mirt__fast_conv_pool_weight_grad(&MIRT__K(simd), args, where);
}
static void MIRT__K(accumulate)(float *into, const float *from, int64_t count, const mirt__where *where) {
    mirt__fast_accumulate(&MIRT__K(simd), into, from, count, where);
}
static void MIRT__K(sgd)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(sgd_range));
}
static void MIRT__K(adam)(const mirt__update *args, const mirt__where *where) {
    mirt__fast_update(where, args, MIRT__K(adam_range));
}

MIRT__KERNEL_TABLE mirt__kernels MIRT__K(kernels) = {
    MIRT__NAME,
    MIRT__K(gemm), MIRT__K(conv_forward), MIRT__K(conv_input_grad), MIRT__K(conv_weight_grad),
    MIRT__K(conv_pool), MIRT__K(conv_pool_weight_grad),
    mirt__common_max_pool, mirt__common_max_pool_grad, mirt__common_average_pool, mirt__common_average_pool_grad,
    mirt__common_unary, mirt__common_binary, mirt__common_logic,
    mirt__common_reduce, mirt__common_reduce_max_grad,
    mirt__common_scan, mirt__common_move, mirt__common_gather, mirt__common_gather_grad,
    mirt__common_softmax, mirt__common_softmax_grad, mirt__common_loss, mirt__common_loss_grad,
    mirt__common_accuracy, mirt__common_dropout, mirt__common_cast, mirt__common_one_hot,
    mirt__common_resize, mirt__common_resize_grad,
    mirt__common_norm_stats, mirt__common_normalize, mirt__common_norm_grad_sums, mirt__common_norm_grad_input,
    MIRT__K(accumulate), MIRT__K(sgd), MIRT__K(adam)
};

#undef MIRT__VEC
#undef MIRT__EACH_VECTOR
#undef MIRT__EACH_ROW
#undef MIRT__EACH
#undef MIRT__ROW_OF_A
#undef MIRT__ROW_OF_B
#undef MIRT__CLEAR
#undef MIRT__RELOAD
#undef MIRT__STEP
#undef MIRT__SPILL
#undef MIRT__TILE
#undef MIRT__TILES
#undef MIRT__TILE_NAMES
#undef MIRT__NO_TILES
#undef MIRT__TILE_TABLE
#undef MIRT__LANES
#undef MIRT__ROWS
#undef MIRT__VECTORS
#undef MIRT__POOL_VECTORS
#undef MIRT__TRANSPOSE
#undef MIRT__INLINE
#undef MIRT__K
#undef MIRT__NAME

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#endif

/* >>section base/cold_begin.inc */

/* What follows runs once or waits for kernels. gcc takes half the time to compile it this way;
   without optimization (for debuggers) nothing changes. a * b + c is never contracted: initial
   weights are the same whatever the flags. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC push_options
#pragma GCC optimize("O1,fp-contract=off")
#endif

/* >>section kernels/fast_gemm.c */

/* Matrix products: panels of b, blocks of k, tiles of c. */

#ifndef MIRT__REAL_DOUBLE

/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif
#if !defined(__clang__) && defined(__GNUC__)
#pragma GCC optimize("O2,no-tree-loop-vectorize") /* O3 only takes longer */
#endif

static int64_t mirt__fast_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
/* The part of the runs between two spills. */
typedef struct mirt__fast_block {
    mirt__run runs[MIRT__BLOCK_RUNS];
    int64_t count, k;
    bool contiguous; /* in b, row after row */
} mirt__fast_block;

/* Takes the next block, starting `skip` steps into run `*run`; false when it is the last. */
static bool mirt__fast_next_block(const mirt__product *p, int64_t *run, int64_t *skip, mirt__fast_block *block) {
    block->count = block->k = 0;
    block->contiguous = true;
    while (*run < p->run_count && block->count < MIRT__BLOCK_RUNS && block->k < MIRT__BLOCK_K) {
        const mirt__run *from = &p->runs[*run];
        mirt__run *to = &block->runs[block->count];
        to->a = from->a + *skip * p->a_step;
        to->b = from->b + *skip * p->b_row;
        to->length = mirt__fast_min(from->length - *skip, MIRT__BLOCK_K - block->k);
        if (to->b != block->runs[0].b + block->k * p->b_row) block->contiguous = false;
        block->k += to->length;
        block->count++;
        *skip += to->length;
        if (*skip == from->length) {
            ++*run;
            *skip = 0;
        }
    }
    return *run < p->run_count;
}

/* Copies the block's rows of b into the panel, `columns` from j on, filled up with zeros to whole vectors. */
static void mirt__fast_pack(const mirt__simd *simd, const mirt__product *p, const mirt__fast_block *block, int64_t j,
                            int64_t columns) {
    const int64_t filled = (columns + simd->lanes - 1) / simd->lanes * simd->lanes;
    float *to = p->panel;
    for (int64_t r = 0; r < block->count; r++) {
        const int64_t k = block->runs[r].length;
        const float *from = p->b + block->runs[r].b + j * p->b_col;
        if (p->b_col == 1) {
            simd->copy_rows(to, from, p->b_row, k, columns);
        } else {
            simd->transpose(to, from, p->b_col, k, columns);
            for (int64_t i = 0; i < k && filled > columns; i++) {
                memset(to + i * MIRT__PANEL + columns, 0, (size_t)(filled - columns) * sizeof(float));
            }
        }
        to += k * MIRT__PANEL;
    }
}

/* The columns of a tile that do not fill their vectors, by way of scratch. */
static void mirt__fast_tile_edge(const mirt__simd *simd, const mirt__tile *tile, int64_t rows, int kind, int64_t columns, float *spare) {
    mirt__tile edge = *tile;
    edge.column = 0;
    for (int64_t i = 0; i < rows; i++) {
        edge.c[i] = spare + i * MIRT__PANEL;
        if (!tile->fresh) memcpy(edge.c[i], tile->c[i] + tile->column, (size_t)columns * sizeof(float));
    }
    simd->tile[kind][rows - 1](&edge);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(tile->c[i] + tile->column, edge.c[i], (size_t)columns * sizeof(float));
    }
}

/* Up to a panel's columns of up to six rows of c. */
static void mirt__fast_tile(const mirt__simd *simd, mirt__tile *tile, int64_t rows, int64_t columns, float *spare) {
    const float *b = tile->b;
    const int widest = simd->vectors == 4 ? 2 : 1;
    for (int64_t j = 0; j < columns;) {
        int kind = widest;
        /* No vector may be without a column. */
        while (((int64_t)simd->lanes << kind) - simd->lanes >= columns - j || !simd->tile[kind][0]) kind--;
        const int64_t wide = (int64_t)simd->lanes << kind;
        tile->b = b + j;
        tile->column = j;
        if (columns - j >= wide) simd->tile[kind][rows - 1](tile);
        else mirt__fast_tile_edge(simd, tile, rows, kind, columns - j, spare);
        j += wide;
    }
    tile->b = b;
}

/* All rows of c, `columns` from j on, one block of k. */
static void mirt__fast_rows(const mirt__simd *simd, const mirt__product *p, mirt__tile *tile, int64_t j, int64_t columns,
                            bool last) {
    const float *mask[MIRT__TILE_ROWS];
    float *spare = p->panel + MIRT__BLOCK_K * MIRT__PANEL;
    const int64_t tiles = (p->m + simd->rows - 1) / simd->rows;
    int64_t line = 0, place = 0, left = p->m;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t rows = (left + tiles - t - 1) / (tiles - t); /* as even as possible */
        left -= rows;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = line * p->c_y + place * p->c_x + j;
            tile->a[i] = p->a + line * p->a_y + place * p->a_x;
            tile->c[i] = p->c + at;
            mask[i] = p->mask ? p->mask + at : NULL;
            if (++place == p->width) {
                place = 0;
                line++;
            }
        }
        mirt__fast_tile(simd, tile, rows, columns, spare);
        if (last && p->epilogue) simd->finish(p->epilogue, p->bias ? p->bias + j : NULL, tile->c, mask, rows, columns);
    }
}

MIRT__LIB void mirt__product_run(const mirt__simd *simd, const mirt__product *p) {
    mirt__fast_block block;
    mirt__tile tile;
    memset(&tile, 0, sizeof tile);
    tile.runs = block.runs;
    tile.a_step = p->a_step;
    for (int64_t j = 0; j < p->n; j += MIRT__PANEL) {
        const int64_t columns = mirt__fast_min(MIRT__PANEL, p->n - j);
        int64_t run = 0, skip = 0;
        tile.fresh = p->fresh;
        for (bool more = true; more;) {
            more = mirt__fast_next_block(p, &run, &skip, &block);
            /* Rows of b that are far apart cost more than a copy when there are many rows of a. */
            if (p->b_col == 1 && block.contiguous && columns % simd->lanes == 0 && !(p->b_row >= 512 && p->m >= 96)) {
                tile.b = p->b + (block.count > 0 ? block.runs[0].b : 0) + j;
                tile.b_row = p->b_row;
            } else {
                mirt__fast_pack(simd, p, &block, j, columns);
                tile.b = p->panel;
                tile.b_row = MIRT__PANEL;
            }
            tile.run_count = block.count;
            mirt__fast_rows(simd, p, &tile, j, columns, !more);
            tile.fresh = false;
        }
    }
}

typedef struct mirt__gemm_job {
    const mirt__simd *simd;
    const mirt__gemm *args;
    const mirt__where *where;
    int64_t rows, columns, column_tasks; /* of c in a task */
    bool strip;                          /* a is read into scratch */
} mirt__gemm_job;

static bool mirt__gemm_needs_read(const mirt__reader *reader) {
    return reader->dtype != MIRT_FLOAT32 || reader->affine;
}

/* Some columns of c for a weight gradient whose a must be read: k in blocks. */
static void mirt__gemm_read_columns(const mirt__gemm_job *job, mirt__product *p, int64_t i, float *strip) {
    const mirt__gemm *args = job->args;
    const int64_t m = p->m;
    float *const c = p->c;
    const float *const b = p->b, *const mask = p->mask;
    mirt__run run = {0, 0, 0};
    p->runs = &run;
    p->a = strip;
    p->a_step = MIRT__GRAD_COLUMNS;
    for (int64_t ci = 0; ci < m; ci += MIRT__GRAD_COLUMNS) {
        p->m = p->width = mirt__fast_min(MIRT__GRAD_COLUMNS, m - ci);
        p->c = c + ci * args->n;
        p->mask = mask ? mask + ci * args->n : NULL;
        int64_t k = 0;
        do {
            run.length = mirt__fast_min(MIRT__BLOCK_K, args->k - k);
            for (int64_t q = 0; q < run.length; q++) {
                job->simd->read(strip + q * MIRT__GRAD_COLUMNS, &args->a, (k + q) * args->a_col + i + ci, p->m);
            }
            p->b = b + k * args->b_row;
            p->fresh = k == 0;
            k += run.length;
            p->epilogue = k == args->k ? &args->epilogue : NULL;
            mirt__product_run(job->simd, p);
        } while (k < args->k);
    }
}

static void mirt__gemm_task(void *arg, int64_t task, int member) {
    const mirt__gemm_job *job = (const mirt__gemm_job *)arg;
    const mirt__gemm *args = job->args;
    const int64_t i = task / job->column_tasks * job->rows, j = task % job->column_tasks * job->columns;
    float *scratch = (float *)(void *)((char *)job->where->scratch + (size_t)member * job->where->scratch_per_thread);
    const mirt__run run = {0, 0, args->k};
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.m = p.width = mirt__fast_min(job->rows, args->m - i);
    p.n = mirt__fast_min(job->columns, args->n - j);
    p.runs = &run;
    p.run_count = 1;
    p.b = args->b + j * args->b_col;
    p.b_row = args->b_row;
    p.b_col = args->b_col;
    p.c = args->c + i * args->n + j;
    p.c_x = args->n;
    p.fresh = true;
    const mirt__epilogue *epilogue = &args->epilogue;
    if (epilogue->bias || epilogue->activation != MIRT_LINEAR || epilogue->mask) p.epilogue = epilogue;
    p.bias = epilogue->bias ? epilogue->bias + j : NULL;
    p.mask = epilogue->mask ? epilogue->mask + i * args->n + j : NULL;
    p.panel = scratch;
    if (args->column_sum && i == 0) {
        job->simd->column_sum(args->column_sum + j, args->b + j, args->b_row, args->k, p.n, true);
    }
    float *strip = scratch + MIRT__PANEL_FLOATS;
    if (!job->strip) {
        p.a = (const float *)args->a.data + i * args->a_row;
        p.a_x = args->a_row;
        p.a_step = args->a_col;
        mirt__product_run(job->simd, &p);
    } else if (args->a_col == 1) {
        for (int64_t r = 0; r < p.m; r++) job->simd->read(strip + r * args->k, &args->a, (i + r) * args->a_row, args->k);
        p.a = strip;
        p.a_x = args->k;
        p.a_step = 1;
        mirt__product_run(job->simd, &p);
    } else {
        p.a_x = 1;
        mirt__gemm_read_columns(job, &p, i, strip);
    }
}

MIRT__LIB void mirt__fast_gemm(const mirt__simd *simd, const mirt__gemm *args, const mirt__where *where) {
    if (args->m < 1 && args->column_sum) simd->column_sum(args->column_sum, args->b, args->b_row, args->k, args->n, true);
    if (args->m < 1 || args->n < 1) return;
    const int64_t threads = mirt__team_size(where->team);
    mirt__gemm_job job;
    job.simd = simd;
    job.args = args;
    job.where = where;
    /* Rows of a weight gradient's a that are a multiple of 1 KB apart share too few places in the cache. */
    job.strip = mirt__gemm_needs_read(&args->a) || (args->a_col != 1 && args->a_col % 256 == 0 && args->k > 8);
    job.columns = MIRT__PANEL;
    if (args->a_col == 1) {
        job.rows = job.strip ? mirt__gemm_strip_rows(args->m, args->k) : args->m;
        if (job.strip && threads == 1) job.columns = args->n;
    } else {
        job.rows = threads == 1 && !job.strip ? args->m : 8 * MIRT__GRAD_COLUMNS;
    }
    job.rows = mirt__fast_min(job.rows, args->m);
    job.column_tasks = (args->n + job.columns - 1) / job.columns;
    if (threads > 1 && job.column_tasks * ((args->m + job.rows - 1) / job.rows) < 3 * threads) {
        const int64_t parts = (2 * threads + job.column_tasks - 1) / job.column_tasks;
        const int64_t rows = ((args->m + parts - 1) / parts + 11) / 12 * 12;
        job.rows = mirt__fast_min(job.rows, rows);
    }
    mirt__team_for(where->team, (args->m + job.rows - 1) / job.rows * job.column_tasks, mirt__gemm_task, &job);
}

typedef struct mirt__range_job {
    const mirt__simd *simd;
    const mirt__update *update;
    void (*range)(const mirt__update *args, int64_t begin, int64_t end);
    float *into;
    const float *from;
    int64_t begin, end;
} mirt__range_job;
#define MIRT__RANGE 16384

static void mirt__range_task(void *arg, int64_t task, int member) {
    const mirt__range_job *job = (const mirt__range_job *)arg;
    const int64_t begin = job->begin + task * MIRT__RANGE, end = mirt__fast_min(begin + MIRT__RANGE, job->end);
    (void)member;
    if (job->update) job->range(job->update, begin, end);
    else job->simd->accumulate(job->into + begin, job->from + begin, end - begin);
}

MIRT__LIB void mirt__fast_accumulate(const mirt__simd *simd, float *into, const float *from, int64_t count,
                                     const mirt__where *where) {
    mirt__range_job job;
    memset(&job, 0, sizeof job);
    job.simd = simd;
    job.into = into;
    job.from = from;
    job.end = count;
    mirt__team_for(where->team, (count + MIRT__RANGE - 1) / MIRT__RANGE, mirt__range_task, &job);
}

MIRT__LIB void mirt__fast_update(const mirt__where *where, const mirt__update *args,
                                 void (*range)(const mirt__update *args, int64_t begin, int64_t end)) {
    mirt__range_job job;
    memset(&job, 0, sizeof job);
    job.update = args;
    job.range = range;
    job.begin = args->begin;
    job.end = args->end;
    mirt__team_for(where->team, (args->end - args->begin + MIRT__RANGE - 1) / MIRT__RANGE, mirt__range_task, &job);
}

#undef MIRT__RANGE

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#endif

/* >>section kernels/fast_conv.c */

/* Convolutions as products: a kernel's taps are runs of k in the input, or in a strip of it that
   has been read, converted and padded into scratch. */

#ifndef MIRT__REAL_DOUBLE

/* The kernels need the optimizer even where the including program goes without it, and the
   numerical law forbids contracting a * b + c. Clang knows no pragma for the former. gcc -O2 alone
   makes vectors only of loops of known length; the cost model says that all may be. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop marked independent may still call the math library */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("O1,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off")
#endif
#if !defined(__clang__) && defined(__GNUC__)
#pragma GCC optimize("O2,no-tree-loop-vectorize") /* O3 only takes longer */
#endif

typedef struct mirt__conv_job {
    const mirt__simd *simd;
    const mirt__conv *s;
    const mirt__where *where;
    mirt__conv_blocks blocks;
    mirt__reader x;
    bool direct; /* no strip is needed */
    int64_t blocks_per_image;
    const mirt__conv_forward *forward;
    const mirt__conv_input_grad *input_grad;
    const mirt__conv_weight_grad *weight_grad;
    const mirt__conv_pool *pool;
    const mirt__conv_pool_weight_grad *pool_grad;
    int64_t chunk, parts, partial_stride, column_tasks;
    float *partial;
} mirt__conv_job;

/* A thread's scratch. */
typedef struct mirt__conv_scratch_parts {
    mirt__run *runs;
    float *strip, *panel;
} mirt__conv_scratch_parts;

static mirt__conv_scratch_parts mirt__conv_scratch_of(const mirt__conv_job *job, int member) {
    char *base = (char *)job->where->scratch + (size_t)member * job->where->scratch_per_thread;
    mirt__conv_scratch_parts scratch;
    const int64_t strip = job->blocks.forward_floats > job->blocks.grad_floats ? job->blocks.forward_floats : job->blocks.grad_floats;
    scratch.runs = (mirt__run *)(void *)base;
    scratch.strip = (float *)(void *)(base + mirt__align_up((size_t)job->blocks.run_count * sizeof(mirt__run)));
    scratch.panel = scratch.strip + strip;
    return scratch;
}

/* Rows [row, row + rows) and columns [column, column + columns) of an image of h x w x c numbers,
   zero outside of it. */
static void mirt__conv_read_strip(const mirt__simd *simd, const mirt__reader *reader, int64_t image, int64_t h, int64_t w,
                                  int64_t c, int64_t row, int64_t rows, int64_t column, int64_t columns, float *to) {
    const int64_t from = column > 0 ? column : 0, end = column + columns < w ? column + columns : w;
    if (from == column && end == column + columns && columns == w && row >= 0 && row + rows <= h) {
        simd->read(to, reader, (image * h + row) * w * c, rows * w * c);
        return;
    }
    for (int64_t y = row; y < row + rows; y++, to += columns * c) {
        if (y < 0 || y >= h || from >= end) {
            memset(to, 0, (size_t)(columns * c) * sizeof(float));
            continue;
        }
        const int64_t before = from - column, inside = end - from, after = columns - before - inside;
        if (before > 0) memset(to, 0, (size_t)(before * c) * sizeof(float));
        simd->read(to + before * c, reader, ((image * h + y) * w + from) * c, inside * c);
        if (after > 0) memset(to + (before + inside) * c, 0, (size_t)(after * c) * sizeof(float));
    }
}

/* The input that rows [y, y + rows) of the output see; *pitch: floats between its rows. */
static const float *mirt__conv_input(const mirt__conv_job *job, int64_t image, int64_t y, int64_t rows, float *strip,
                                     int64_t *pitch) {
    const mirt__conv *s = job->s;
    if (job->direct) {
        *pitch = s->w * s->ci;
        return (const float *)job->x.data + (image * s->h + y * s->stride_h) * s->w * s->ci;
    }
    *pitch = job->blocks.forward_cols * s->ci;
    mirt__conv_read_strip(job->simd, &job->x, image, s->h, s->w, s->ci, y * s->stride_h - s->pad_top,
                          (rows - 1) * s->stride_h + (int64_t)(s->kh - 1) * s->dilation_h + 1, -s->pad_left,
                          job->blocks.forward_cols, strip);
    return strip;
}

static void mirt__conv_job_init(mirt__conv_job *job, const mirt__simd *simd, const mirt__conv *s, const mirt__reader *x,
                                const mirt__where *where) {
    memset(job, 0, sizeof *job);
    job->simd = simd;
    job->s = s;
    job->where = where;
    job->blocks = mirt__conv_block_sizes(s);
    job->blocks_per_image = (s->oh + job->blocks.forward_rows - 1) / job->blocks.forward_rows;
    if (!x) return;
    job->x = *x;
    const int64_t rows = (s->oh - 1) * s->stride_h + (int64_t)(s->kh - 1) * s->dilation_h + 1;
    job->direct = x->dtype == MIRT_FLOAT32 && !x->affine && s->pad_top == 0 && s->pad_left == 0 && rows <= s->h &&
                  job->blocks.forward_cols <= s->w;
}

/* k in runs: a whole row of the kernel where its inputs lie together, otherwise one tap each. */
static int64_t mirt__conv_runs(const mirt__conv *s, int64_t pitch, mirt__run *runs) {
    const int64_t cig = s->ci / s->groups;
    int64_t count = 0;
    if (s->groups == 1 && s->dilation_w == 1) {
        for (int ky = 0; ky < s->kh; ky++) {
            runs[count].a = ky * s->dilation_h * pitch;
            runs[count].b = ky * s->kw * s->ci * s->co;
            runs[count++].length = s->kw * s->ci;
        }
        return count;
    }
    for (int ky = 0; ky < s->kh; ky++) {
        for (int kx = 0; kx < s->kw; kx++) {
            runs[count].a = ky * s->dilation_h * pitch + kx * s->dilation_w * s->ci;
            runs[count].b = ((int64_t)ky * s->kw + kx) * cig * s->co;
            runs[count++].length = cig;
        }
    }
    return count;
}

static const mirt__epilogue *mirt__conv_epilogue(const mirt__epilogue *epilogue) {
    return epilogue->bias || epilogue->activation != MIRT_LINEAR || epilogue->mask ? epilogue : NULL;
}

/* One filter for each channel, all channels of a tap side by side. */
static bool mirt__conv_is_depthwise(const mirt__conv *s, const mirt__reader *x) {
    return s->groups > 1 && s->groups == s->ci && s->ci == s->co && (int64_t)s->kh * s->kw <= MIRT__MAX_TAPS && x->dtype == MIRT_FLOAT32 && !x->affine;
}

/* The taps within the image that output (oy, ox) sees: places of the pixel in the image, and numbers of the tap. */
static int mirt__depthwise_taps(const mirt__conv *s, int64_t oy, int64_t ox, int64_t *pixel, int *tap) {
    int count = 0;
    for (int ky = 0; ky < s->kh; ky++) {
        const int64_t y = oy * s->stride_h - s->pad_top + (int64_t)ky * s->dilation_h;
        for (int kx = 0; y >= 0 && y < s->h && kx < s->kw; kx++) {
            const int64_t x = ox * s->stride_w - s->pad_left + (int64_t)kx * s->dilation_w;
            if (x < 0 || x >= s->w) continue;
            pixel[count] = y * s->w + x;
            tap[count++] = ky * s->kw + kx;
        }
    }
    return count;
}

/* The output that input place `at` reaches through a tap; -1 when there is none. */
static int64_t mirt__depthwise_reached(int64_t at, int64_t pad, int tap, int dilation, int stride, int64_t outputs) {
    const int64_t distance = at + pad - (int64_t)tap * dilation;
    return distance >= 0 && distance % stride == 0 && distance / stride < outputs ? distance / stride : -1;
}

/* Likewise the outputs that input (y, x) reaches. */
static int mirt__depthwise_taps_back(const mirt__conv *s, int64_t y, int64_t x, int64_t *pixel, int *tap) {
    int count = 0;
    for (int ky = 0; ky < s->kh; ky++) {
        const int64_t oy = mirt__depthwise_reached(y, s->pad_top, ky, s->dilation_h, s->stride_h, s->oh);
        for (int kx = 0; oy >= 0 && kx < s->kw; kx++) {
            const int64_t ox = mirt__depthwise_reached(x, s->pad_left, kx, s->dilation_w, s->stride_w, s->ow);
            if (ox < 0) continue;
            pixel[count] = oy * s->ow + ox;
            tap[count++] = ky * s->kw + kx;
        }
    }
    return count;
}

/* One line of the output or, for the input gradient, of the input. */
static void mirt__depthwise_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const bool back = job->input_grad != NULL;
    const mirt__epilogue *epilogue = mirt__conv_epilogue(back ? &job->input_grad->epilogue : &job->forward->epilogue);
    const int64_t height = back ? s->h : s->oh, width = back ? s->w : s->ow, c = s->ci;
    const float *kernel = back ? job->input_grad->kernel : job->forward->kernel;
    const float *from = (const float *)job->x.data + task / height * (back ? s->oh * s->ow : s->h * s->w) * c;
    float *to = (back ? job->input_grad->dx : job->forward->y) + task * width * c;
    const float *x[MIRT__MAX_TAPS], *k[MIRT__MAX_TAPS];
    int64_t pixel[MIRT__MAX_TAPS];
    int tap[MIRT__MAX_TAPS];
    (void)member;
    for (int64_t i = 0; i < width; i++, to += c) {
        const int count = back ? mirt__depthwise_taps_back(s, task % height, i, pixel, tap) : mirt__depthwise_taps(s, task % height, i, pixel, tap);
        for (int t = 0; t < count; t++) {
            x[t] = from + pixel[t] * c;
            k[t] = kernel + tap[t] * c;
        }
        job->simd->taps(to, x, k, count, c);
        if (!epilogue) continue;
        const float *mask = epilogue->mask ? epilogue->mask + (task * width + i) * c : NULL;
        job->simd->finish(epilogue, epilogue->bias, &to, &mask, 1, c);
    }
}

static void mirt__conv_forward_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__epilogue *epilogue = &job->forward->epilogue;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.forward_rows;
    const int64_t rows = s->oh - y < job->blocks.forward_rows ? s->oh - y : job->blocks.forward_rows;
    const int64_t cig = s->ci / s->groups, cog = s->co / s->groups;
    int64_t pitch;
    const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &pitch);
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.m = rows * s->ow;
    p.n = cog;
    p.width = s->ow;
    p.a_x = s->stride_w * s->ci;
    p.a_y = s->stride_h * pitch;
    p.a_step = 1;
    p.runs = scratch.runs;
    p.run_count = mirt__conv_runs(s, pitch, scratch.runs);
    p.b_row = s->co;
    p.b_col = 1;
    p.c_x = s->co;
    p.c_y = s->ow * s->co;
    p.fresh = true;
    p.epilogue = mirt__conv_epilogue(epilogue);
    p.panel = scratch.panel;
    const int64_t out = (image * s->oh + y) * s->ow * s->co;
    for (int64_t g = 0; g < s->groups; g++) {
        p.a = x + g * cig;
        p.b = job->forward->kernel + g * cog;
        p.c = job->forward->y + out + g * cog;
        p.bias = epilogue->bias ? epilogue->bias + g * cog : NULL;
        p.mask = epilogue->mask ? epilogue->mask + out + g * cog : NULL;
        mirt__product_run(job->simd, &p);
    }
}

MIRT__LIB void mirt__fast_conv_forward(const mirt__simd *simd, const mirt__conv_forward *args, const mirt__where *where) {
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, &args->x, where);
    job.forward = args;
    if (mirt__conv_is_depthwise(&args->s, &args->x)) mirt__team_for(where->team, args->s.rows * args->s.oh, mirt__depthwise_task, &job);
    else mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__conv_forward_task, &job);
}

/* Places of dx in [begin, begin + count) that have the same taps: those at phase `phase` of the stride. */
typedef struct mirt__conv_phase {
    int64_t first, count; /* place of the first, how many, `stride` apart */
    int64_t output;       /* the output that tap 0 of the first would belong to */
} mirt__conv_phase;

static mirt__conv_phase mirt__conv_phase_of(int64_t begin, int64_t count, int64_t pad, int stride, int phase) {
    mirt__conv_phase places;
    const int64_t skip = (phase - (begin + pad) % stride + stride) % stride;
    places.first = begin + skip;
    places.count = count > skip ? (count - skip + stride - 1) / stride : 0;
    places.output = (places.first + pad) / stride;
    return places;
}

/* Whether the tap reaches this phase; *by outputs it lies before tap 0's. */
static bool mirt__conv_tap_offset(int phase, int tap, int dilation, int stride, int64_t *by) {
    const int64_t distance = phase - (int64_t)tap * dilation;
    *by = mirt__floor_div(distance, stride);
    return *by * stride == distance;
}

/* One phase of a block: gathers, so that every element of dx is one chain over the taps that reach it. */
static void mirt__conv_input_grad_phase(const mirt__conv_job *job, mirt__product *p, int64_t image, int phase_y, int phase_x,
                                        const mirt__conv_phase *py, const mirt__conv_phase *px, const float *dy,
                                        int64_t pitch, mirt__run *runs) {
    const mirt__conv *s = job->s;
    const mirt__epilogue *epilogue = &job->input_grad->epilogue;
    const int64_t cig = s->ci / s->groups, cog = s->co / s->groups;
    int64_t by_y, by_x, count = 0;
    for (int ky = 0; ky < s->kh; ky++) {
        if (!mirt__conv_tap_offset(phase_y, ky, s->dilation_h, s->stride_h, &by_y)) continue;
        for (int kx = 0; kx < s->kw; kx++) {
            if (!mirt__conv_tap_offset(phase_x, kx, s->dilation_w, s->stride_w, &by_x)) continue;
            runs[count].a = by_y * pitch + by_x * s->co;
            runs[count].b = ((int64_t)ky * s->kw + kx) * cig * s->co;
            runs[count++].length = cog;
        }
    }
    p->m = py->count * px->count;
    p->width = px->count;
    p->runs = runs;
    p->run_count = count;
    p->a_y = pitch;
    const int64_t out = ((image * s->h + py->first) * s->w + px->first) * s->ci;
    for (int64_t g = 0; g < s->groups; g++) {
        p->a = dy + g * cog;
        p->b = job->input_grad->kernel + g * cog;
        p->c = job->input_grad->dx + out + g * cig;
        p->mask = epilogue->mask ? epilogue->mask + out + g * cig : NULL;
        mirt__product_run(job->simd, p);
    }
}

static void mirt__conv_input_grad_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.grad_rows;
    const int64_t rows = s->h - y < job->blocks.grad_rows ? s->h - y : job->blocks.grad_rows;
    /* The outputs that the block's places reach, and their strip of dy. */
    const int64_t top = mirt__floor_div(y + s->pad_top - (int64_t)(s->kh - 1) * s->dilation_h, s->stride_h);
    const int64_t bottom = (y + rows - 1 + s->pad_top) / s->stride_h;
    const int64_t left = mirt__floor_div(s->pad_left - (int64_t)(s->kw - 1) * s->dilation_w, s->stride_w);
    const int64_t columns = job->blocks.grad_cols;
    const float *dy = scratch.strip;
    if (top >= 0 && bottom < s->oh && left == 0 && columns == s->ow) {
        dy = job->input_grad->dy + (image * s->oh + top) * s->ow * s->co;
    } else {
        mirt__conv_read_strip(job->simd, &job->x, image, s->oh, s->ow, s->co, top, bottom - top + 1, left, columns, scratch.strip);
    }
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.n = s->ci / s->groups;
    p.a_x = s->co;
    p.a_step = 1;
    p.b_row = 1;
    p.b_col = s->co;
    p.c_x = s->stride_w * s->ci;
    p.c_y = s->stride_h * s->w * s->ci;
    p.fresh = true;
    p.epilogue = mirt__conv_epilogue(&job->input_grad->epilogue);
    p.panel = scratch.panel;
    for (int phase_y = 0; phase_y < s->stride_h; phase_y++) {
        const mirt__conv_phase py = mirt__conv_phase_of(y, rows, s->pad_top, s->stride_h, phase_y);
        for (int phase_x = 0; phase_x < s->stride_w && py.count > 0; phase_x++) {
            const mirt__conv_phase px = mirt__conv_phase_of(0, s->w, s->pad_left, s->stride_w, phase_x);
            if (px.count < 1) continue;
            mirt__conv_input_grad_phase(job, &p, image, phase_y, phase_x, &py, &px,
                                        dy + ((py.output - top) * columns + px.output - left) * s->co, columns * s->co,
                                        scratch.runs);
        }
    }
}

MIRT__LIB void mirt__fast_conv_input_grad(const mirt__simd *simd, const mirt__conv_input_grad *args, const mirt__where *where) {
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, NULL, where);
    job.input_grad = args;
    job.x.data = args->dy;
    job.x.dtype = MIRT_FLOAT32;
    job.blocks_per_image = (args->s.h + job.blocks.grad_rows - 1) / job.blocks.grad_rows;
    if (mirt__conv_is_depthwise(&args->s, &job.x)) mirt__team_for(where->team, args->s.rows * args->s.h, mirt__depthwise_task, &job);
    else mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__conv_input_grad_task, &job);
}

/* A chunk's partial sums: the outputs themselves where one chunk is all. */
static void mirt__conv_partial(const mirt__conv_job *job, int64_t chunk, float *dkernel, float *db, float **kernel_part,
                               float **bias_part) {
    *kernel_part = dkernel;
    *bias_part = db;
    if (job->parts == 1) return;
    *kernel_part = job->partial + chunk * job->partial_stride;
    if (db) *bias_part = *kernel_part + (job->partial_stride - job->s->co);
}

static void mirt__conv_chunks_init(mirt__conv_job *job) {
    const int64_t rows = job->s->rows;
    job->chunk = mirt__conv_chunk_rows(job->s);
    job->parts = rows / job->chunk + (rows % job->chunk != 0);
    if (job->parts < 1) job->parts = 1;
    job->partial_stride = mirt__conv_partial_floats(job->s);
    job->partial = (float *)job->where->shared;
}

#define MIRT__TREE_RANGE 4096
static void mirt__conv_tree_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const int64_t begin = task * MIRT__TREE_RANGE, left = job->partial_stride - begin;
    (void)member;
    mirt__tree(job->partial + begin, job->parts, job->partial_stride, left < MIRT__TREE_RANGE ? left : MIRT__TREE_RANGE);
}

static void mirt__conv_chunks_finish(mirt__conv_job *job, float *dkernel, float *db) {
    if (job->parts == 1) return;
    const int64_t bias = job->s->co, kernel = job->partial_stride - bias;
    if (!db) memset(job->partial + kernel, 0, (size_t)bias * sizeof(float));
    for (int64_t part = 1; part < job->parts && !db; part++) {
        memset(job->partial + part * job->partial_stride + kernel, 0, (size_t)bias * sizeof(float));
    }
    mirt__team_for(job->where->team, (job->partial_stride + MIRT__TREE_RANGE - 1) / MIRT__TREE_RANGE, mirt__conv_tree_task, job);
    memcpy(dkernel, job->partial, (size_t)kernel * sizeof(float));
    if (db) memcpy(db, job->partial + kernel, (size_t)bias * sizeof(float));
}
#undef MIRT__TREE_RANGE

/* Adds one block of output rows to a chunk's gradient, for `columns` channels of group g from j on. */
static void mirt__conv_weight_grad_block(const mirt__conv_job *job, mirt__product *p, int64_t g, int64_t j, const float *x,
                                         int64_t pitch, const float *dy, float *dkernel) {
    const mirt__conv *s = job->s;
    const int64_t cig = s->ci / s->groups;
    p->b = dy + j;
    p->a_x = 1;
    if (s->groups == 1 && s->dilation_w == 1) {
        p->m = (int64_t)s->kh * s->kw * s->ci;
        p->width = s->kw * s->ci;
        p->a = x;
        p->a_y = s->dilation_h * pitch;
        p->c = dkernel + j;
        p->c_y = p->width * s->co;
        mirt__product_run(job->simd, p);
        return;
    }
    p->m = p->width = cig;
    for (int64_t tap = 0; tap < (int64_t)s->kh * s->kw; tap++) {
        p->a = x + tap / s->kw * s->dilation_h * pitch + tap % s->kw * s->dilation_w * s->ci + g * cig;
        p->c = dkernel + tap * cig * s->co + j;
        mirt__product_run(job->simd, p);
    }
}

static void mirt__conv_weight_grad_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_weight_grad *args = job->weight_grad;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t chunk = task / job->column_tasks, column_task = task % job->column_tasks;
    const int64_t cog = s->co / s->groups, per_group = job->column_tasks / s->groups;
    const int64_t g = column_task / per_group, in_group = column_task % per_group * MIRT__PANEL, j = g * cog + in_group;
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk;
    const int64_t end = s->rows - first < job->chunk ? s->rows : first + job->chunk;
    float *dkernel, *db;
    mirt__conv_partial(job, chunk, args->dkernel, args->db, &dkernel, &db);
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.n = cog - in_group < MIRT__PANEL ? cog - in_group : MIRT__PANEL;
    p.a_step = s->stride_w * s->ci;
    p.runs = scratch.runs;
    p.b_row = s->co;
    p.b_col = 1;
    p.c_x = s->co;
    p.panel = scratch.panel;
    p.fresh = true;
    for (int64_t image = first; image < end; image++) {
        for (int64_t y = 0; y < s->oh; y += job->blocks.forward_rows) {
            const int64_t rows = s->oh - y < job->blocks.forward_rows ? s->oh - y : job->blocks.forward_rows;
            const float *dy = args->dy + (image * s->oh + y) * s->ow * s->co;
            int64_t pitch;
            const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &pitch);
            for (int64_t r = 0; r < rows; r++) {
                scratch.runs[r].a = r * s->stride_h * pitch;
                scratch.runs[r].b = r * s->ow * s->co;
                scratch.runs[r].length = s->ow;
            }
            p.run_count = rows;
            mirt__conv_weight_grad_block(job, &p, g, j, x, pitch, dy, dkernel);
            if (db) job->simd->column_sum(db + j, dy + j, s->co, rows * s->ow, p.n, p.fresh);
            p.fresh = false;
        }
    }
}

/* A chunk of images, MIRT__DEPTHWISE_COLUMNS channels. */
#define MIRT__DEPTHWISE_COLUMNS 128
static void mirt__depthwise_weight_grad_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_weight_grad *args = job->weight_grad;
    const int64_t chunk = task / job->column_tasks, j = task % job->column_tasks * MIRT__DEPTHWISE_COLUMNS;
    const int64_t c = s->co, columns = c - j < MIRT__DEPTHWISE_COLUMNS ? c - j : MIRT__DEPTHWISE_COLUMNS;
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk, end = s->rows - first < job->chunk ? s->rows : first + job->chunk;
    const float *x[MIRT__MAX_TAPS], *dy = args->dy + first * s->oh * s->ow * c + j;
    float *dkernel, *db, *dk[MIRT__MAX_TAPS];
    int64_t pixel[MIRT__MAX_TAPS];
    int tap[MIRT__MAX_TAPS];
    (void)member;
    mirt__conv_partial(job, chunk, args->dkernel, args->db, &dkernel, &db);
    for (int64_t t = 0; t < (int64_t)s->kh * s->kw; t++) memset(dkernel + t * c + j, 0, (size_t)columns * sizeof(float));
    if (db) job->simd->column_sum(db + j, dy, c, (end - first) * s->oh * s->ow, columns, true);
    for (int64_t image = first; image < end; image++) {
        for (int64_t o = 0; o < s->oh * s->ow; o++, dy += c) {
            const int count = mirt__depthwise_taps(s, o / s->ow, o % s->ow, pixel, tap);
            for (int t = 0; t < count; t++) {
                x[t] = (const float *)args->x.data + (image * s->h * s->w + pixel[t]) * c + j;
                dk[t] = dkernel + tap[t] * c + j;
            }
            job->simd->taps_grad(dk, x, dy, count, columns);
        }
    }
}

MIRT__LIB void mirt__fast_conv_weight_grad(const mirt__simd *simd, const mirt__conv_weight_grad *args, const mirt__where *where) {
    const mirt__conv *s = &args->s;
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, s, &args->x, where);
    job.weight_grad = args;
    mirt__conv_chunks_init(&job);
    if (s->rows < 1 || s->oh < 1 || s->ow < 1) {
        memset(args->dkernel, 0, (size_t)(job.partial_stride - s->co) * sizeof(float));
        if (args->db) memset(args->db, 0, (size_t)s->co * sizeof(float));
        return;
    }
    job.column_tasks = (s->co / s->groups + MIRT__PANEL - 1) / MIRT__PANEL * s->groups;
    if (mirt__conv_is_depthwise(s, &args->x)) {
        job.column_tasks = (s->co + MIRT__DEPTHWISE_COLUMNS - 1) / MIRT__DEPTHWISE_COLUMNS;
        mirt__team_for(where->team, job.parts * job.column_tasks, mirt__depthwise_weight_grad_task, &job);
    } else {
        mirt__team_for(where->team, job.parts * job.column_tasks, mirt__conv_weight_grad_task, &job);
    }
    mirt__conv_chunks_finish(&job, args->dkernel, args->db);
}

#undef MIRT__DEPTHWISE_COLUMNS

/* Where each k of a 1-dilated kernel lies in its patch. */
static void mirt__conv_offsets(const mirt__conv *s, int64_t pitch, int32_t *offset) {
    for (int ky = 0; ky < s->kh; ky++) {
        for (int64_t q = 0; q < s->kw * s->ci; q++) *offset++ = (int32_t)(ky * pitch + q);
    }
}

static void mirt__conv_pool_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_pool *args = job->pool;
    const mirt__simd *simd = job->simd;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.forward_rows;
    const int64_t pooled = s->oh / 2 * 2, rows = pooled - y < job->blocks.forward_rows ? pooled - y : job->blocks.forward_rows;
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, group = (int64_t)simd->pool_vectors * simd->lanes;
    int32_t *offset = (int32_t *)(void *)scratch.panel;
    float *panel = scratch.panel + k;
    mirt__pool_row row;
    memset(&row, 0, sizeof row);
    const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &row.pitch);
    mirt__conv_offsets(s, row.pitch, offset);
    row.ci = s->ci;
    row.windows = s->ow / 2;
    row.k = k;
    row.offset = offset;
    row.co = s->co;
    for (int64_t j = 0; j < s->co; j += group) {
        row.columns = s->co - j < group ? s->co - j : group;
        row.b = args->kernel + j;
        row.b_row = s->co;
        if (row.columns % simd->lanes != 0) {
            memset(panel, 0, (size_t)(k * group) * sizeof(float));
            for (int64_t p = 0; p < k; p++) memcpy(panel + p * group, row.b + p * s->co, (size_t)row.columns * sizeof(float));
            row.b = panel;
            row.b_row = group;
        }
        row.bias = args->bias ? args->bias + j : NULL;
        for (int64_t r = 0; r < rows; r += 2) {
            const int64_t at = ((image * (s->oh / 2) + (y + r) / 2) * row.windows) * s->co + j;
            row.a = x + r * row.pitch;
            row.y = args->y + at;
            row.which = args->which ? args->which + at : NULL;
            simd->pool_row(&row);
        }
    }
}

MIRT__LIB void mirt__fast_conv_pool(const mirt__simd *simd, const mirt__conv_pool *args, const mirt__where *where) {
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, &args->x, where);
    job.pool = args;
    job.blocks_per_image = (args->s.oh / 2 * 2 + job.blocks.forward_rows - 1) / job.blocks.forward_rows;
    mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__conv_pool_task, &job);
}

static void mirt__conv_pool_grad_task(void *arg, int64_t chunk, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_pool_weight_grad *args = job->pool_grad;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk;
    const int64_t end = s->rows - first < job->chunk ? s->rows : first + job->chunk;
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, across = s->ow / 2, down = s->oh / 2;
    int32_t *offset = (int32_t *)(void *)scratch.panel;
    float *block = scratch.panel + k;
    mirt__pool_windows windows;
    memset(&windows, 0, sizeof windows);
    mirt__conv_partial(job, chunk, args->dkernel, args->db, &windows.dkernel, &windows.db);
    memset(windows.dkernel, 0, (size_t)(k * s->co) * sizeof(float));
    if (windows.db) memset(windows.db, 0, (size_t)s->co * sizeof(float));
    windows.block = block;
    windows.k = k;
    windows.co = s->co;
    for (int64_t image = first; image < end; image++) {
        for (int64_t y = 0; y < down * 2; y += job->blocks.forward_rows) {
            const int64_t rows = down * 2 - y < job->blocks.forward_rows ? down * 2 - y : job->blocks.forward_rows;
            int64_t pitch;
            const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &pitch);
            mirt__conv_offsets(s, pitch, offset);
            for (int64_t r = 0; r < rows / 2; r += job->blocks.window_rows) {
                const int64_t lines = rows / 2 - r < job->blocks.window_rows ? rows / 2 - r : job->blocks.window_rows;
                for (int64_t line = 0; line < lines; line++) {
                    job->simd->lay_windows(block + line * across * k * 4, x + (r + line) * 2 * pitch, pitch, s->ci,
                                           across, k, offset);
                }
                const int64_t at = ((image * down + y / 2 + r) * across) * s->co;
                windows.windows = lines * across;
                windows.dy = args->dy + at;
                windows.which = args->which + at;
                job->simd->pool_windows(&windows);
            }
        }
    }
}

MIRT__LIB void mirt__fast_conv_pool_weight_grad(const mirt__simd *simd, const mirt__conv_pool_weight_grad *args,
                                                const mirt__where *where) {
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, &args->x, where);
    job.pool_grad = args;
    mirt__conv_chunks_init(&job);
    mirt__team_for(where->team, job.parts, mirt__conv_pool_grad_task, &job);
    mirt__conv_chunks_finish(&job, args->dkernel, args->db);
}

#if defined(__clang__)
#pragma clang diagnostic pop
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#endif

/* >>section kernels/select.c */

/* Which kernels run here. */

#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__x86_64__)
#define MIRT__TABLES_X86
#endif

static const mirt__kernels *const mirt__select_tables[] = {
#ifdef MIRT__TABLES_X86
    &mirt__kernels_avx512, &mirt__kernels_avx2,
#endif
#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__aarch64__)
    &mirt__kernels_neon,
#endif
#ifndef MIRT__REAL_DOUBLE
    &mirt__kernels_plain,
#endif
    &mirt__kernels_reference
};

/* A machine that runs one table runs all after it. */
MIRT__LIB const mirt__kernels *const *mirt__kernel_tables(int *count) {
    int first = 0;
#ifdef MIRT__TABLES_X86
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    first = avx512 ? 0 : avx2 ? 1 : 2;
#endif
    *count = MIRT__COUNT(mirt__select_tables) - first;
    return mirt__select_tables + first;
}

MIRT__LIB const mirt__kernels *mirt__kernels_best(void) {
    int count;
    const mirt__kernels *const *tables = mirt__kernel_tables(&count);
    const char *name = getenv("MIRT_CPU");
    for (int i = 0; name && i < count; i++) {
        if (strcmp(name, tables[i]->name) == 0) return tables[i];
    }
    return tables[0];
}

#undef MIRT__TABLES_X86

/* >>section base/cold_end.inc */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC pop_options
#endif

/* >>section base/cold_begin.inc */

/* What follows runs once or waits for kernels. gcc takes half the time to compile it this way;
   without optimization (for debuggers) nothing changes. a * b + c is never contracted: initial
   weights are the same whatever the flags. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC push_options
#pragma GCC optimize("O1,fp-contract=off")
#endif

/* >>section data/data.h */

#ifndef MIRT__DATA_H
#define MIRT__DATA_H
/* Data sets: chains of stages, each pulling samples from the one before. */

#define MIRT__MAX_FIELDS 17 /* inputs, labels, sample weights */

typedef struct mirt__data_field {
    mirt_dtype dtype;
    mirt_shape shape; /* of one sample; rank may be 0 (a scalar) */
    size_t bytes;     /* of one sample */
} mirt__data_field;

typedef struct mirt__data_spec {
    int num_x, num_y;
    bool has_weights;
    int num_fields; /* inputs, labels, weights, in this order */
    mirt__data_field field[MIRT__MAX_FIELDS];
    int64_t batch;   /* global batch size, 0 when there is no batch stage */
    int64_t samples; /* in one epoch; -1: a stream of unknown length or without an end */
    int accumulate;  /* batches that make one step, 1 unless a stage says so */
} mirt__data_spec;

/* One element or one batch: `rows` samples in sample order of this epoch. */
typedef struct mirt__batch {
    const void *field[MIRT__MAX_FIELDS]; /* dense [rows, ...] as the spec says; valid until the next call */
    int64_t rows;
    const int64_t *index; /* [rows] each sample's index in the first stage's data */
} mirt__batch;

MIRT__LIB const mirt__data_spec *mirt__dataset_spec(const mirt_dataset *dataset);
/* Starts an epoch (also in mid-epoch): order keyed by (seed, epoch). May load and allocate the
   first time only. */
MIRT__LIB mirt_status mirt__dataset_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
/* Next batch (or single sample, rows == 1, without a batch stage); rows == 0 at the end of the
   epoch. Never allocates. */
MIRT__LIB mirt_status mirt__dataset_next(mirt_dataset *dataset, mirt__batch *out);
/* A batch stage (and before it, if `shuffle`, a shuffle stage) on a data set without one, which is
   borrowed. */
MIRT__LIB mirt_dataset *mirt__dataset_batch_view(mirt_dataset *dataset, int64_t batch, bool shuffle);
/* Rows of the largest batch; 1 without a batch stage. */
MIRT__LIB int64_t mirt__data_most_rows(const mirt__data_spec *spec);

/* The spec of samples in arrays; the arrays' data into field[num_fields]. */
MIRT__LIB mirt_status mirt__arrays_spec(const mirt_data *data, mirt__data_spec *spec, const void **field);
/* "x", "y[1]", "weights" into `out`, which is also returned. */
MIRT__LIB const char *mirt__field_name(const mirt__data_spec *spec, int field, char out[16]);

/* The rest is for stages. */

typedef struct mirt__sample {
    const void *field[MIRT__MAX_FIELDS];
    int64_t index;
} mirt__sample;

/* Memory for samples. */
typedef struct mirt__slot {
    void *block; /* what the others point into */
    void *field[MIRT__MAX_FIELDS];
    int64_t *index;
    int64_t rows; /* filled */
} mirt__slot;

/* What a kind of stage does; NULL where it does nothing. */
typedef struct mirt__stage {
    mirt_status (*begin)(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
    mirt_status (*next)(mirt_dataset *dataset, mirt__batch *out);
    /* Sample i of this epoch's order, without copying; NULL: a stream. */
    mirt_status (*at)(mirt_dataset *dataset, int64_t i, mirt__sample *out);
    /* `next` into memory of the caller, who has set `lent` before begin; NULL: copy what next gives. */
    mirt_status (*fill)(mirt_dataset *dataset, mirt__slot *out);
    /* Frees what the stage holds, not its slot nor the stage before. */
    void (*release)(mirt_dataset *dataset);
    /* Samples in the first `batches` batches, of which there are as many; NULL: as many as in those of the stage before. */
    int64_t (*rows)(const mirt_dataset *dataset, int64_t batches);
} mirt__stage;

/* The first member of every stage's own struct. */
struct mirt_dataset {
    const mirt__stage *stage;
    mirt_dataset *source; /* the stage before, or NULL */
    bool borrows;         /* source is not ours to destroy */
    bool contiguous;      /* `at` finds sample i + 1 right behind sample i */
    bool pointing;        /* `next` points into memory that stays: preparing ahead would gain nothing */
    bool lent;            /* the next stage calls fill, never next */
    bool busy;            /* a fit is passing through it */
    int shuffles;         /* shuffle stages so far; gives each its own order */
    mirt__data_spec spec;
    int64_t batches;  /* in one epoch; 0 before a batch stage, -1 like samples */
    int64_t position; /* samples given in this epoch, in stages that count */
    int64_t current;  /* index of the sample last given, in stages without batches */
    mirt__slot slot;  /* samples the stage holds, freed with it */
    char **names;     /* of classes; NULL: those of the stage before */
    int num_names;
};

/* A stage of `size` bytes on `source` (NULL for a first stage), with its spec. NULL with the error
   set, `source` then being destroyed unless borrowed. */
MIRT__LIB mirt_dataset *mirt__dataset_new(size_t size, const mirt__stage *stage, mirt_dataset *source, bool borrows);
/* Checks the spec of a first stage (the fields' bytes and num_fields excepted, which are set). */
MIRT__LIB mirt_status mirt__dataset_set_spec(mirt_dataset *dataset, const mirt__data_spec *spec);
/* The next field of a spec under way. */
MIRT__LIB void mirt__data_add_field(mirt__data_spec *spec, mirt_dtype dtype, mirt_shape shape);
/* `next` for stages that have `at`. */
MIRT__LIB mirt_status mirt__dataset_next_at(mirt_dataset *dataset, mirt__batch *out);
/* `next` for stages that have `fill`, and `begin`, which makes the slot. */
MIRT__LIB mirt_status mirt__dataset_next_filled(mirt_dataset *dataset, mirt__batch *out);
MIRT__LIB mirt_status mirt__dataset_begin_filled(mirt_dataset *dataset, uint64_t seed, int64_t epoch);
/* Destroys `dataset` unless borrowed; returns NULL: the way out of a constructor that failed. */
MIRT__LIB mirt_dataset *mirt__dataset_give_up(mirt_dataset *dataset, bool borrowed);

/* Samples in the first `batches` batches of a data set that has as many. */
MIRT__LIB int64_t mirt__dataset_rows(const mirt_dataset *dataset, int64_t batches);
/* Calls the classes "0" to "9"; hands NULL through. */
MIRT__LIB mirt_dataset *mirt__dataset_name_digits(mirt_dataset *dataset);

/* Room for `rows` samples; without `samples` only for their indices. */
MIRT__LIB mirt_status mirt__slot_create(mirt__slot *slot, const mirt__data_spec *spec, int64_t rows, bool samples);
/* Copies samples to the place of sample `row`. */
MIRT__LIB void mirt__slot_put(mirt__slot *slot, const mirt__data_spec *spec, int64_t row, const void *const *from,
                              const int64_t *index, int64_t rows);
MIRT__LIB void mirt__slot_give(const mirt__slot *slot, const mirt__data_spec *spec, int64_t row, int64_t rows, mirt__batch *out);
/* The next batch of `source`, with slot->rows 0 at the end. */
MIRT__LIB mirt_status mirt__slot_pull(mirt__slot *slot, mirt_dataset *source);

MIRT__LIB mirt_dataset *mirt__shuffle_over(mirt_dataset *source, int64_t buffer, bool borrows);
MIRT__LIB mirt_dataset *mirt__batch_over(mirt_dataset *source, int64_t batch, bool borrows);

/* Samples in memory: arrays, caches, drawn digits. */
typedef struct mirt__block_dataset {
    mirt_dataset base;
    const void *field[MIRT__MAX_FIELDS];
    uint64_t seed; /* of drawn digits */
    mirt_split split;
} mirt__block_dataset;
MIRT__LIB mirt_status mirt__block_at(mirt_dataset *dataset, int64_t i, mirt__sample *out);
/* The samples are now those in the slot. */
MIRT__LIB void mirt__block_from_slot(mirt__block_dataset *block);

/* A file read from its start through a small buffer. */
typedef struct mirt__bytes {
    int fd;
    uint64_t file_size;
    uint64_t end;    /* offset in the file of the end of data */
    size_t at, size; /* data[at, size) is still to be read */
    unsigned char data[16384];
} mirt__bytes;
MIRT__LIB void mirt__bytes_rewind(mirt__bytes *bytes);
/* Refills the buffer once it is used up; size is 0 at the end of the file. */
MIRT__LIB mirt_status mirt__bytes_fill(mirt__bytes *bytes);

/* The unpacked content of a gzip file. */
typedef struct mirt__gunzip mirt__gunzip;
MIRT__LIB mirt__gunzip *mirt__gunzip_create(mirt__bytes *bytes);
/* Starts at the gzip header, to which `bytes` has been rewound. */
MIRT__LIB mirt_status mirt__gunzip_begin(mirt__gunzip *gunzip);
/* Fewer than `size` bytes come only at the end, whose checksum and length have then been checked. */
MIRT__LIB mirt_status mirt__gunzip_read(mirt__gunzip *gunzip, unsigned char *out, size_t size, size_t *got);
MIRT__LIB void mirt__gunzip_destroy(mirt__gunzip *gunzip);

#endif

/* >>section data/dataset.c */

/* What all stages share, and the stages that hold their samples in memory. */

MIRT__LIB const mirt__data_spec *mirt__dataset_spec(const mirt_dataset *dataset) {
    return &dataset->spec;
}

MIRT__LIB mirt_status mirt__dataset_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    dataset->position = 0;
    return dataset->stage->begin ? dataset->stage->begin(dataset, seed, epoch) : MIRT_OK;
}

MIRT__LIB mirt_status mirt__dataset_next(mirt_dataset *dataset, mirt__batch *out) {
    return dataset->stage->next(dataset, out);
}

MIRT_API int64_t mirt_dataset_size(const mirt_dataset *dataset) {
    return dataset ? dataset->spec.samples : 0;
}

MIRT_API int64_t mirt_dataset_batches(const mirt_dataset *dataset) {
    return dataset ? dataset->batches : 0;
}

MIRT_API void mirt_dataset_destroy(mirt_dataset *dataset) {
    while (dataset) {
        mirt_dataset *before = dataset->borrows ? NULL : dataset->source;
        if (dataset->stage->release) dataset->stage->release(dataset);
        mirt__aligned_free(dataset->slot.block);
        mirt__free(dataset->names);
        mirt__free(dataset);
        dataset = before;
    }
}

MIRT__LIB mirt_dataset *mirt__dataset_give_up(mirt_dataset *dataset, bool borrowed) {
    if (!borrowed) mirt_dataset_destroy(dataset);
    return NULL;
}

MIRT__LIB mirt_dataset *mirt__dataset_new(size_t size, const mirt__stage *stage, mirt_dataset *source, bool borrows) {
    mirt_dataset *dataset = (mirt_dataset *)mirt__calloc(1, size);
    if (!dataset) return mirt__dataset_give_up(source, borrows);
    dataset->stage = stage;
    dataset->source = source;
    dataset->borrows = borrows;
    if (source) {
        dataset->spec = source->spec;
        dataset->batches = source->batches;
        dataset->shuffles = source->shuffles;
    }
    return dataset;
}

/* >>class names: of the last stage that has any */

static mirt_dataset *mirt__names_of(mirt_dataset *dataset) {
    while (dataset && !dataset->names) dataset = dataset->source;
    return dataset;
}

MIRT_API mirt_status mirt_set_class_names(mirt_dataset *dataset, const char *const *names, int count) {
    size_t bytes = 0;
    if (!dataset) return mirt__fail_missing("mirt_set_class_names", "data set");
    if (!names || count < 1) return mirt__fail(MIRT_E_INVALID, "mirt_set_class_names needs at least one name");
    for (int i = 0; i < count; i++) {
        if (!names[i]) return mirt__fail(MIRT_E_INVALID, "mirt_set_class_names: class %d of %d has no name", i, count);
        bytes += sizeof(char *) + strlen(names[i]) + 1;
    }
    /* pointers, and behind them what they point at */
    char **copy = (char **)mirt__calloc(1, bytes);
    if (!copy) return MIRT_E_NOMEM;
    char *text = (char *)(copy + count);
    for (int i = 0; i < count; i++) {
        size_t size = strlen(names[i]) + 1;
        copy[i] = (char *)memcpy(text, names[i], size);
        text += size;
    }
    mirt__free(dataset->names);
    dataset->names = copy;
    dataset->num_names = count;
    return MIRT_OK;
}

MIRT_API const char *const *mirt_class_names(const mirt_dataset *dataset, int *count) {
    const mirt_dataset *named = mirt__names_of((mirt_dataset *)dataset);
    if (count) *count = named ? named->num_names : 0;
    return named ? (const char *const *)named->names : NULL;
}

MIRT__LIB mirt_dataset *mirt__dataset_name_digits(mirt_dataset *dataset) {
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    if (dataset && mirt_set_class_names(dataset, names, MIRT__COUNT(names)) != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    return dataset;
}

/* >>fields */

MIRT__LIB const char *mirt__field_name(const mirt__data_spec *spec, int field, char out[16]) {
    int of = field < spec->num_x ? spec->num_x : spec->num_y;
    const char *what = field < spec->num_x ? "x" : "y";
    if (field >= spec->num_x) field -= spec->num_x;
    if (field >= of) snprintf(out, 16, "weights");
    else if (of == 1) snprintf(out, 16, "%s", what);
    else snprintf(out, 16, "%s[%d]", what, field);
    return out;
}

MIRT__LIB void mirt__data_add_field(mirt__data_spec *spec, mirt_dtype dtype, mirt_shape shape) {
    mirt__data_field *field = &spec->field[spec->num_fields++];
    field->dtype = dtype;
    field->shape = shape;
}

/* Bytes of one sample; the error names the field. */
static mirt_status mirt__data_field_bytes(const char *what, mirt__data_field *field) {
    char text[96];
    int64_t count = mirt__shape_count(&field->shape);
    size_t size = mirt__dtype_size(field->dtype);
    bool positive = true;
    for (int i = 0; i < field->shape.rank; i++) positive = positive && field->shape.dim[i] > 0;
    if (size == 0) return mirt__fail(MIRT_E_INVALID, "%s has the unknown dtype %d", what, (int)field->dtype);
    if (!positive)
        return mirt__fail(MIRT_E_SHAPE, "%s has samples of shape %s: every dimension must be positive", what,
                          mirt__shape_text(&field->shape, text));
    if (count < 0 || (uint64_t)count > SIZE_MAX || !mirt__mul_size((size_t)count, size, &field->bytes))
        return mirt__fail(MIRT_E_SHAPE, "%s has samples of shape %s: too large for this machine", what,
                          mirt__shape_text(&field->shape, text));
    return MIRT_OK;
}

/* Bytes of a slot of `rows` samples, each field rounded up to MIRT__ALIGN; false on overflow. */
static bool mirt__slot_bytes(const mirt__data_spec *spec, int64_t rows, bool samples, size_t *bytes) {
    size_t size;
    if (rows < 0 || (uint64_t)rows > SIZE_MAX / 64) return false;
    *bytes = (size_t)rows * sizeof(int64_t);
    for (int f = 0; samples && f < spec->num_fields; f++) {
        if (!mirt__mul_size((size_t)rows, spec->field[f].bytes, &size) || size > SIZE_MAX / 4) return false;
        if (!mirt__add_size(*bytes, mirt__align_up(size), bytes) || *bytes > SIZE_MAX / 2) return false;
    }
    return true;
}

MIRT__LIB mirt_status mirt__dataset_set_spec(mirt_dataset *dataset, const mirt__data_spec *spec) {
    char name[16];
    size_t bytes;
    mirt_status status = MIRT_OK;
    dataset->spec = *spec;
    dataset->spec.accumulate = 1;
    for (int f = 0; f < spec->num_fields && status == MIRT_OK; f++)
        status = mirt__data_field_bytes(mirt__field_name(spec, f, name), &dataset->spec.field[f]);
    if (status == MIRT_OK && !mirt__slot_bytes(&dataset->spec, spec->samples < 0 ? 1 : spec->samples, true, &bytes))
        status = mirt__fail(MIRT_E_SHAPE, "%lld samples of this size are too many for this machine", (long long)spec->samples);
    return status;
}

MIRT__LIB int64_t mirt__data_most_rows(const mirt__data_spec *spec) {
    int64_t rows = spec->batch ? spec->batch : 1;
    return spec->samples >= 0 && spec->samples < rows ? spec->samples : rows;
}

/* >>slots */

MIRT__LIB mirt_status mirt__slot_create(mirt__slot *slot, const mirt__data_spec *spec, int64_t rows, bool samples) {
    size_t bytes;
    if (!mirt__slot_bytes(spec, rows, samples, &bytes)) {
        mirt__no_memory(SIZE_MAX);
        return MIRT_E_NOMEM;
    }
    slot->block = mirt__aligned_alloc(bytes);
    if (!slot->block) return MIRT_E_NOMEM;
    char *at = (char *)slot->block;
    for (int f = 0; samples && f < spec->num_fields; f++) {
        slot->field[f] = at;
        at += mirt__align_up((size_t)rows * spec->field[f].bytes);
    }
    slot->index = (int64_t *)(void *)at;
    return MIRT_OK;
}

MIRT__LIB void mirt__slot_put(mirt__slot *slot, const mirt__data_spec *spec, int64_t row, const void *const *from,
                              const int64_t *index, int64_t rows) {
    for (int f = 0; f < spec->num_fields; f++) {
        size_t bytes = spec->field[f].bytes;
        memcpy((char *)slot->field[f] + (size_t)row * bytes, from[f], (size_t)rows * bytes);
    }
    memcpy(slot->index + row, index, (size_t)rows * sizeof *index);
}

MIRT__LIB void mirt__slot_give(const mirt__slot *slot, const mirt__data_spec *spec, int64_t row, int64_t rows, mirt__batch *out) {
    for (int f = 0; f < spec->num_fields; f++) out->field[f] = (const char *)slot->field[f] + (size_t)row * spec->field[f].bytes;
    out->index = slot->index + row;
    out->rows = rows;
}

MIRT__LIB mirt_status mirt__slot_pull(mirt__slot *slot, mirt_dataset *source) {
    if (source->lent) return source->stage->fill(source, slot);
    mirt__batch batch;
    mirt_status status = mirt__dataset_next(source, &batch);
    if (status != MIRT_OK) return status;
    slot->rows = batch.rows;
    if (batch.rows) mirt__slot_put(slot, &source->spec, 0, batch.field, batch.index, batch.rows);
    return MIRT_OK;
}

/* >>what stages have in common */

MIRT__LIB mirt_status mirt__dataset_next_at(mirt_dataset *dataset, mirt__batch *out) {
    memset(out, 0, sizeof *out);
    if (dataset->position >= dataset->spec.samples) return MIRT_OK;
    mirt__sample sample;
    mirt_status status = dataset->stage->at(dataset, dataset->position, &sample);
    if (status != MIRT_OK) return status;
    dataset->position++;
    dataset->current = sample.index;
    for (int f = 0; f < dataset->spec.num_fields; f++) out->field[f] = sample.field[f];
    out->rows = 1;
    out->index = &dataset->current;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__dataset_begin_filled(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    if (!dataset->lent && !dataset->slot.block) {
        mirt_status status = mirt__slot_create(&dataset->slot, &dataset->spec, mirt__data_most_rows(&dataset->spec), true);
        if (status != MIRT_OK) return status;
    }
    return mirt__dataset_begin(dataset->source, seed, epoch);
}

MIRT__LIB mirt_status mirt__dataset_next_filled(mirt_dataset *dataset, mirt__batch *out) {
    memset(out, 0, sizeof *out);
    mirt_status status = dataset->stage->fill(dataset, &dataset->slot);
    if (status == MIRT_OK && dataset->slot.rows) mirt__slot_give(&dataset->slot, &dataset->spec, 0, dataset->slot.rows, out);
    return status;
}

MIRT__LIB mirt_dataset *mirt__dataset_batch_view(mirt_dataset *dataset, int64_t batch, bool shuffle) {
    const int64_t stream_buffer = 1024;
    if (!shuffle) return mirt__batch_over(dataset, batch, true);
    return mirt__batch_over(mirt__shuffle_over(dataset, stream_buffer, true), batch, false);
}

/* >>samples in memory */

MIRT__LIB mirt_status mirt__block_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    const mirt__block_dataset *block = (const mirt__block_dataset *)dataset;
    const mirt__data_spec *spec = &dataset->spec;
    for (int f = 0; f < spec->num_fields; f++) out->field[f] = (const char *)block->field[f] + (size_t)i * spec->field[f].bytes;
    out->index = dataset->slot.index ? dataset->slot.index[i] : i;
    return MIRT_OK;
}

MIRT__LIB void mirt__block_from_slot(mirt__block_dataset *block) {
    for (int f = 0; f < block->base.spec.num_fields; f++) block->field[f] = block->base.slot.field[f];
}

static const mirt__stage mirt__arrays_stage = {NULL, mirt__dataset_next_at, mirt__block_at, NULL, NULL, NULL};

static mirt_status mirt__arrays_check(const char *what, const mirt_array *array) {
    char text[96];
    const mirt_shape *shape = &array->shape;
    if (mirt__dtype_size(array->dtype) == 0) return mirt__fail(MIRT_E_INVALID, "%s has the unknown dtype %d", what, (int)array->dtype);
    /* mirt_make_shape ends a shape at its first 0, so no samples means no dimensions. */
    if (shape->rank < 1 || shape->dim[0] == 0)
        return mirt__fail(MIRT_E_INVALID, "%s is empty: its first dimension counts samples and must be positive", what);
    if (shape->rank > MIRT_MAX_RANK)
        return mirt__fail(MIRT_E_SHAPE, "%s has %d dimensions: at most %d are possible", what, shape->rank, MIRT_MAX_RANK);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] <= 0)
            return mirt__fail(MIRT_E_SHAPE, "%s has shape %s: every dimension must be positive", what,
                              mirt__shape_text(shape, text));
    }
    return MIRT_OK;
}

/* Without the first dimension. */
static mirt_shape mirt__arrays_sample_shape(const mirt_shape *shape) {
    mirt_shape sample;
    memset(&sample, 0, sizeof sample);
    sample.rank = shape->rank - 1;
    for (int i = 0; i < sample.rank; i++) sample.dim[i] = shape->dim[i + 1];
    return sample;
}

/* Arrays of a list, which ends at the first without data; -1: there is one with data behind that. */
static int mirt__arrays_count(const char *what, const mirt_array *list, int most) {
    int count = 0;
    while (count < most && list[count].data) count++;
    for (int i = count; i < most; i++) {
        if (!list[i].data) continue;
        mirt__fail(MIRT_E_INVALID, "%s[%d] has data, but %s[%d] before it has none, which ends the list", what, i, what, count);
        return -1;
    }
    return count;
}

static mirt_status mirt__arrays_add(mirt__data_spec *spec, const mirt_array *array, const void **field) {
    char name[16], first[16];
    mirt__field_name(spec, spec->num_fields, name);
    mirt_status status = mirt__arrays_check(name, array);
    if (status != MIRT_OK) return status;
    if (spec->num_fields == 0) spec->samples = array->shape.dim[0];
    if (array->shape.dim[0] != spec->samples)
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld samples, %s has %lld: both need the same number", mirt__field_name(spec, 0, first),
                          (long long)spec->samples, name, (long long)array->shape.dim[0]);
    field[spec->num_fields] = array->data;
    mirt__data_add_field(spec, array->dtype, mirt__arrays_sample_shape(&array->shape));
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__arrays_spec(const mirt_data *data, mirt__data_spec *spec, const void **field) {
    memset(spec, 0, sizeof *spec);
    spec->accumulate = 1;
    spec->num_x = mirt__arrays_count("x", data->x, MIRT_MAX_INPUTS);
    spec->num_y = mirt__arrays_count("y", data->y, MIRT_MAX_OUTPUTS);
    if (spec->num_x < 0 || spec->num_y < 0) return MIRT_E_INVALID;
    if (spec->num_x == 0) return mirt__fail(MIRT_E_INVALID, "x has no data: its pointer is NULL");
    spec->has_weights = data->weights.data != NULL;
    mirt_status status = MIRT_OK;
    for (int i = 0; i < spec->num_x && status == MIRT_OK; i++) status = mirt__arrays_add(spec, &data->x[i], field);
    for (int i = 0; i < spec->num_y && status == MIRT_OK; i++) status = mirt__arrays_add(spec, &data->y[i], field);
    if (status != MIRT_OK || !spec->has_weights) return status;
    if (data->weights.dtype != MIRT_FLOAT32 || data->weights.shape.rank != 1)
        return mirt__fail(MIRT_E_INVALID, "weights must be float32 and of one dimension: one number a sample");
    return mirt__arrays_add(spec, &data->weights, field);
}

MIRT_API mirt_dataset *mirt_arrays_of(const mirt_data *data) {
    mirt__data_spec spec;
    if (!data) return mirt__fail_missing("mirt_arrays_of", "data"), (mirt_dataset *)NULL;
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__block_dataset), &mirt__arrays_stage, NULL, false);
    if (!dataset) return NULL;
    dataset->contiguous = true;
    if (mirt__arrays_spec(data, &spec, ((mirt__block_dataset *)dataset)->field) == MIRT_OK &&
        mirt__dataset_set_spec(dataset, &spec) == MIRT_OK)
        return dataset;
    return mirt__dataset_give_up(dataset, false);
}

MIRT_API mirt_dataset *mirt_arrays(mirt_array x, mirt_array y) {
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = x;
    data.y[0] = y;
    return mirt_arrays_of(&data);
}

/* Pulls one whole epoch of the stage before into the slot. */
static mirt_status mirt__cache_load(mirt_dataset *cache) {
    mirt__batch sample;
    mirt_status status;
    for (int64_t i = 0; i < cache->spec.samples; i++) {
        status = mirt__dataset_next(cache->source, &sample);
        if (status != MIRT_OK) return status;
        if (sample.rows == 0)
            return mirt__fail(MIRT_E_FORMAT, "the data set ended after %lld of its %lld samples", (long long)i,
                              (long long)cache->spec.samples);
        mirt__slot_put(&cache->slot, &cache->spec, i, sample.field, sample.index, 1);
    }
    /* Once more past the last sample: files check their ends only there. */
    return mirt__dataset_next(cache->source, &sample);
}

static mirt_status mirt__cache_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    if (dataset->slot.block) return MIRT_OK;
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    if (status == MIRT_OK) status = mirt__slot_create(&dataset->slot, &dataset->spec, dataset->spec.samples, true);
    if (status != MIRT_OK) return status;
    status = mirt__cache_load(dataset);
    if (status != MIRT_OK) {
        mirt__aligned_free(dataset->slot.block);
        dataset->slot.block = NULL;
        return status;
    }
    mirt__block_from_slot((mirt__block_dataset *)dataset);
    /* The stages before have done their work: their buffers and files are not needed again. The
       last names are kept by the stage that has them, or else by this one. */
    mirt_dataset *named = mirt__names_of(dataset);
    if (named && named != dataset) {
        dataset->names = named->names;
        dataset->num_names = named->num_names;
        named->names = NULL;
    }
    mirt__dataset_give_up(dataset->source, dataset->borrows);
    dataset->source = NULL;
    return MIRT_OK;
}

static const mirt__stage mirt__cache_stage = {mirt__cache_begin, mirt__dataset_next_at, mirt__block_at, NULL, NULL, NULL};

MIRT_API mirt_dataset *mirt_cache(mirt_dataset *dataset) {
    if (!dataset) return NULL;
    if (dataset->contiguous) return dataset; /* in memory already */
    if (dataset->spec.batch) {
        mirt__fail(MIRT_E_INVALID, "mirt_cache comes before mirt_batch: samples are cached one by one");
        return mirt__dataset_give_up(dataset, false);
    }
    if (dataset->spec.samples < 0) {
        mirt__fail(MIRT_E_INVALID, "mirt_cache cannot keep a stream without an end: mirt_take before it, or mirt_repeat behind it");
        return mirt__dataset_give_up(dataset, false);
    }
    mirt_dataset *cache = mirt__dataset_new(sizeof(mirt__block_dataset), &mirt__cache_stage, dataset, false);
    if (cache) cache->contiguous = true;
    return cache;
}

/* >>section data/shuffle.c */

/* A new order every epoch: a permutation where samples can be reached at random, a buffer of
   samples where they come as a stream. */

typedef struct mirt__shuffle_dataset {
    mirt_dataset base;
    mirt__random random;
    int64_t *order;         /* [samples] of a permutation */
    int64_t capacity, held; /* samples in the slot, for streams */
    int64_t given; /* the slot given last, to be filled again; -1: none */
} mirt__shuffle_dataset;

static void mirt__shuffle_start(mirt__shuffle_dataset *shuffle, uint64_t seed, int64_t epoch) {
    uint64_t key = mirt__hash("shuffle") + ((uint64_t)shuffle->base.shuffles << 48) + (uint64_t)epoch;
    shuffle->random = mirt__random_stream(seed, key);
}

/* Fisher-Yates. */
static mirt_status mirt__shuffle_permute(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    if (status != MIRT_OK) return status;
    mirt__shuffle_start(shuffle, seed, epoch);
    for (int64_t i = 0; i < dataset->spec.samples; i++) {
        int64_t j = (int64_t)mirt__random_below(&shuffle->random, (uint64_t)i + 1);
        shuffle->order[i] = shuffle->order[j];
        shuffle->order[j] = i;
    }
    return MIRT_OK;
}

static mirt_status mirt__shuffle_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    const mirt__shuffle_dataset *shuffle = (const mirt__shuffle_dataset *)dataset;
    return dataset->source->stage->at(dataset->source, shuffle->order[i], out);
}

static void mirt__shuffle_release(mirt_dataset *dataset) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    mirt__free(shuffle->order);
}

static const mirt__stage mirt__permutation_stage = {mirt__shuffle_permute, mirt__dataset_next_at, mirt__shuffle_at, NULL,
                                                    mirt__shuffle_release, NULL};

/* Pulls the stream's next sample into `slot`; *got is false at its end. */
static mirt_status mirt__shuffle_pull(mirt__shuffle_dataset *shuffle, int64_t slot, bool *got) {
    mirt__batch sample;
    mirt_status status = mirt__dataset_next(shuffle->base.source, &sample);
    *got = status == MIRT_OK && sample.rows > 0;
    if (!*got) return status;
    mirt__slot_put(&shuffle->base.slot, &shuffle->base.spec, slot, sample.field, sample.index, 1);
    return MIRT_OK;
}

static mirt_status mirt__shuffle_buffer_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    if (status != MIRT_OK) return status;
    mirt__shuffle_start(shuffle, seed, epoch);
    shuffle->given = -1;
    shuffle->held = 0;
    bool got = true;
    while (got && shuffle->held < shuffle->capacity) {
        status = mirt__shuffle_pull(shuffle, shuffle->held, &got);
        if (status != MIRT_OK) return status;
        if (got) shuffle->held++;
    }
    return MIRT_OK;
}

/* Closes the gap in the buffer that the sample given last has left. */
static mirt_status mirt__shuffle_mend(mirt__shuffle_dataset *shuffle) {
    int64_t slot = shuffle->given;
    bool got;
    mirt_status status = mirt__shuffle_pull(shuffle, slot, &got);
    if (status != MIRT_OK) return status;
    shuffle->given = -1;
    if (got) return MIRT_OK;
    int64_t last = --shuffle->held;
    if (slot == last) return MIRT_OK;
    mirt__batch moved;
    mirt__slot_give(&shuffle->base.slot, &shuffle->base.spec, last, 1, &moved);
    mirt__slot_put(&shuffle->base.slot, &shuffle->base.spec, slot, moved.field, moved.index, 1);
    return MIRT_OK;
}

static mirt_status mirt__shuffle_buffer_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    memset(out, 0, sizeof *out);
    if (shuffle->given >= 0) {
        mirt_status status = mirt__shuffle_mend(shuffle);
        if (status != MIRT_OK) return status;
    }
    if (shuffle->held == 0) return MIRT_OK;
    int64_t slot = (int64_t)mirt__random_below(&shuffle->random, (uint64_t)shuffle->held);
    shuffle->given = slot;
    mirt__slot_give(&dataset->slot, &dataset->spec, slot, 1, out);
    return MIRT_OK;
}

static const mirt__stage mirt__shuffle_buffer_stage = {mirt__shuffle_buffer_begin, mirt__shuffle_buffer_next, NULL, NULL,
                                                       mirt__shuffle_release, NULL};

MIRT__LIB mirt_dataset *mirt__shuffle_over(mirt_dataset *source, int64_t buffer, bool borrows) {
    if (!source) return NULL;
    bool reachable = source->stage->at != NULL;
    if (source->spec.batch) {
        mirt__fail(MIRT_E_INVALID, "mirt_shuffle comes before mirt_batch: samples are shuffled, not batches");
        return mirt__dataset_give_up(source, borrows);
    }
    if (buffer < 1) {
        mirt__fail(MIRT_E_INVALID, "a shuffle buffer of %lld samples: at least 1 is needed", (long long)buffer);
        return mirt__dataset_give_up(source, borrows);
    }
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__shuffle_dataset),
                                              reachable ? &mirt__permutation_stage : &mirt__shuffle_buffer_stage, source,
                                              borrows);
    if (!dataset) return NULL;
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    dataset->shuffles++;
    int64_t samples = dataset->spec.samples;
    shuffle->capacity = samples >= 0 && buffer > samples ? samples : buffer;
    mirt_status status = MIRT_OK;
    if (!reachable) status = mirt__slot_create(&dataset->slot, &dataset->spec, shuffle->capacity, true);
    else if (!(shuffle->order = (int64_t *)mirt__calloc((size_t)samples, sizeof(int64_t)))) status = MIRT_E_NOMEM;
    return status == MIRT_OK ? dataset : mirt__dataset_give_up(dataset, false);
}

MIRT_API mirt_dataset *mirt_shuffle(mirt_dataset *dataset, int64_t buffer) {
    return mirt__shuffle_over(dataset, buffer, false);
}

/* >>section data/batch.c */

/* Groups samples into batches: copies them together, or points at them where they lie in order. */

/* Touches a sample that will be copied soon: after a shuffle no hardware foresees it. */
static void mirt__batch_foresee(const mirt__sample *sample, size_t bytes) {
#if defined(__GNUC__)
    const char *x = (const char *)sample->field[0];
    for (size_t i = 0; i < bytes && i < 1024; i += 64) __builtin_prefetch(x + i);
#else
    (void)sample;
    (void)bytes;
#endif
}

/* From a stage that can reach its samples at random. */
static mirt_status mirt__batch_gather(mirt_dataset *dataset, mirt__slot *out) {
    const int64_t ahead = 3;
    mirt_dataset *source = dataset->source;
    int64_t left = dataset->spec.samples - dataset->position, rows = dataset->spec.batch;
    if (rows > left) rows = left;
    for (int64_t i = 0; i < rows; i++) {
        mirt__sample sample;
        mirt_status status;
        if (i + ahead < rows) {
            status = source->stage->at(source, dataset->position + ahead, &sample);
            if (status != MIRT_OK) return status;
            mirt__batch_foresee(&sample, dataset->spec.field[0].bytes);
        }
        status = source->stage->at(source, dataset->position, &sample);
        if (status != MIRT_OK) return status;
        mirt__slot_put(out, &dataset->spec, out->rows++, sample.field, &sample.index, 1);
        dataset->position++;
    }
    return MIRT_OK;
}

static mirt_status mirt__batch_collect(mirt_dataset *dataset, mirt__slot *out) {
    while (out->rows < dataset->spec.batch) {
        mirt__batch one;
        mirt_status status = mirt__dataset_next(dataset->source, &one);
        if (status != MIRT_OK) return status;
        if (one.rows == 0) break;
        mirt__slot_put(out, &dataset->spec, out->rows++, one.field, one.index, 1);
    }
    return MIRT_OK;
}

static mirt_status mirt__batch_fill(mirt_dataset *dataset, mirt__slot *out) {
    out->rows = 0;
    return dataset->source->stage->at ? mirt__batch_gather(dataset, out) : mirt__batch_collect(dataset, out);
}

/* Samples that lie in memory in the order of the epoch are only pointed at. */
static mirt_status mirt__batch_point(mirt_dataset *dataset, mirt__batch *out) {
    int64_t left = dataset->spec.samples - dataset->position;
    mirt__sample sample;
    out->rows = dataset->spec.batch < left ? dataset->spec.batch : left;
    for (int64_t i = 0; i < out->rows; i++) {
        mirt_status status = dataset->source->stage->at(dataset->source, dataset->position++, &sample);
        if (status != MIRT_OK) return status;
        dataset->slot.index[i] = sample.index;
        for (int f = 0; i == 0 && f < dataset->spec.num_fields; f++) out->field[f] = sample.field[f];
    }
    out->index = dataset->slot.index;
    return MIRT_OK;
}

static mirt_status mirt__batch_next(mirt_dataset *dataset, mirt__batch *out) {
    if (!dataset->pointing) return mirt__dataset_next_filled(dataset, out);
    memset(out, 0, sizeof *out);
    return dataset->position < dataset->spec.samples ? mirt__batch_point(dataset, out) : MIRT_OK;
}

static int64_t mirt__batch_rows(const mirt_dataset *dataset, int64_t batches) {
    if (dataset->batches >= 0 && batches >= dataset->batches) return dataset->spec.samples;
    return batches > INT64_MAX / dataset->spec.batch ? INT64_MAX : batches * dataset->spec.batch;
}

static const mirt__stage mirt__batch_stage = {mirt__dataset_begin_filled, mirt__batch_next, NULL, mirt__batch_fill, NULL,
                                              mirt__batch_rows};

MIRT__LIB mirt_dataset *mirt__batch_over(mirt_dataset *source, int64_t batch, bool borrows) {
    if (!source) return NULL;
    mirt_status status = MIRT_OK;
    if (batch < 1 || batch > INT32_MAX)
        status = mirt__fail(MIRT_E_INVALID, "a batch of %lld samples: 1 to %d are possible", (long long)batch, (int)INT32_MAX);
    if (source->spec.batch)
        status = mirt__fail(MIRT_E_INVALID, "the data set is already in batches of %lld samples", (long long)source->spec.batch);
    if (status != MIRT_OK) return mirt__dataset_give_up(source, borrows);
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt_dataset), &mirt__batch_stage, source, borrows);
    if (!dataset) return NULL;
    int64_t samples = dataset->spec.samples;
    dataset->spec.batch = batch;
    dataset->batches = samples < 0 ? -1 : samples / batch + (samples % batch != 0);
    dataset->pointing = source->contiguous;
    if (dataset->pointing && mirt__slot_create(&dataset->slot, &dataset->spec, mirt__data_most_rows(&dataset->spec), false) != MIRT_OK)
        return mirt__dataset_give_up(dataset, false);
    return dataset;
}

MIRT_API mirt_dataset *mirt_batch(mirt_dataset *dataset, int64_t batch) {
    return mirt__batch_over(dataset, batch, false);
}

/* >>section data/stages.c */

/* Stages that change which samples come and how: take, skip, repeat, map, accumulate. */

static mirt_status mirt__stage_count(const char *caller, int64_t count, int least) {
    if (count >= least && count <= INT32_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "%s(%lld): %d to %d are possible", caller, (long long)count, least, (int)INT32_MAX);
}

MIRT__LIB int64_t mirt__dataset_rows(const mirt_dataset *dataset, int64_t batches) {
    while (!dataset->stage->rows) dataset = dataset->source;
    return dataset->stage->rows(dataset, batches);
}

/* >>take and skip: elements [first, first + count) of the stage before, which are samples, or
   batches behind a batch stage */

typedef struct mirt__window_dataset {
    mirt_dataset base;
    int64_t first, count; /* count -1: all that follow */
} mirt__window_dataset;

static mirt_status mirt__window_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    return mirt__dataset_begin(dataset->source, seed, epoch);
}

static mirt_status mirt__window_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    return dataset->source->stage->at(dataset->source, ((mirt__window_dataset *)dataset)->first + i, out);
}

static mirt_status mirt__window_next(mirt_dataset *dataset, mirt__batch *out) {
    const mirt__window_dataset *window = (const mirt__window_dataset *)dataset;
    memset(out, 0, sizeof *out);
    if (window->count >= 0 && dataset->position >= window->count) return MIRT_OK;
    for (int64_t i = dataset->position ? window->first : 0; i < window->first; i++) {
        mirt_status status = mirt__dataset_next(dataset->source, out);
        if (status != MIRT_OK || out->rows == 0) return status;
    }
    mirt_status status = mirt__dataset_next(dataset->source, out);
    if (status == MIRT_OK && out->rows) dataset->position++;
    return status;
}

static int64_t mirt__window_rows(const mirt_dataset *dataset, int64_t batches) {
    const mirt__window_dataset *window = (const mirt__window_dataset *)dataset;
    return mirt__dataset_rows(dataset->source, window->first + batches) - mirt__dataset_rows(dataset->source, window->first);
}

static const mirt__stage mirt__window_stage = {mirt__window_begin, mirt__window_next, NULL, NULL, NULL, mirt__window_rows};
static const mirt__stage mirt__window_at_stage = {mirt__window_begin, mirt__dataset_next_at, mirt__window_at, NULL, NULL, NULL};

static mirt_dataset *mirt__window(mirt_dataset *source, int64_t given, bool skips) {
    if (!source) return NULL;
    const char *caller = skips ? "mirt_skip" : "mirt_take";
    int64_t first = skips ? given : 0, count = skips ? -1 : given;
    int64_t have = source->spec.batch ? source->batches : source->spec.samples;
    mirt_status status = mirt__stage_count(caller, given, skips ? 0 : 1);
    if (status == MIRT_OK && have >= 0 && first >= have)
        status = mirt__fail(MIRT_E_INVALID, "%s(%lld) leaves nothing of %lld %s%s", caller, (long long)first, (long long)have,
                            source->spec.batch ? "batch" : "sample", have == 1 ? "" : source->spec.batch ? "es" : "s");
    if (status != MIRT_OK) return mirt__dataset_give_up(source, false);
    const mirt__stage *stage = source->stage->at ? &mirt__window_at_stage : &mirt__window_stage;
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__window_dataset), stage, source, false);
    if (!dataset) return NULL;
    mirt__window_dataset *window = (mirt__window_dataset *)dataset;
    if (have >= 0 && (count < 0 || count > have - first)) count = have - first;
    window->first = first;
    window->count = count;
    dataset->contiguous = source->contiguous;
    dataset->pointing = source->pointing;
    if (!source->spec.batch) {
        dataset->spec.samples = count;
    } else {
        dataset->batches = count;
        dataset->spec.samples = count < 0 ? -1 : mirt__window_rows(dataset, count);
    }
    return dataset;
}

MIRT_API mirt_dataset *mirt_take(mirt_dataset *dataset, int64_t count) { return mirt__window(dataset, count, false); }

MIRT_API mirt_dataset *mirt_skip(mirt_dataset *dataset, int64_t count) { return mirt__window(dataset, count, true); }

/* >>repeat */

typedef struct mirt__repeat_dataset {
    mirt_dataset base;
    int64_t passes, pass; /* passes 0: for ever */
    bool any;             /* this pass has given something */
    uint64_t seed;
    int64_t epoch;
} mirt__repeat_dataset;

/* Each pass is an epoch of its own for the stages before. */
static mirt_status mirt__repeat_pass(mirt__repeat_dataset *repeat) {
    const int bits = 24; /* of epochs, when passes have no end */
    uint64_t epoch = (uint64_t)repeat->epoch, pass = (uint64_t)repeat->pass;
    epoch = repeat->passes ? epoch * (uint64_t)repeat->passes + pass : (pass << bits) + epoch;
    repeat->any = false;
    return mirt__dataset_begin(repeat->base.source, repeat->seed, (int64_t)epoch);
}

static mirt_status mirt__repeat_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__repeat_dataset *repeat = (mirt__repeat_dataset *)dataset;
    repeat->pass = 0;
    repeat->seed = seed;
    repeat->epoch = epoch;
    return mirt__repeat_pass(repeat);
}

static mirt_status mirt__repeat_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__repeat_dataset *repeat = (mirt__repeat_dataset *)dataset;
    for (;;) {
        mirt_status status = mirt__dataset_next(dataset->source, out);
        if (status != MIRT_OK) return status;
        /* A pass without samples ends it: there would be no end otherwise. */
        if (out->rows) repeat->any = true;
        if (out->rows || !repeat->any || repeat->pass + 1 == repeat->passes) return MIRT_OK;
        repeat->pass++;
        status = mirt__repeat_pass(repeat);
        if (status != MIRT_OK) return status;
    }
}

static int64_t mirt__repeat_rows(const mirt_dataset *dataset, int64_t batches) {
    const mirt_dataset *source = dataset->source;
    if (source->batches < 0) return mirt__dataset_rows(source, batches);
    if (dataset->batches >= 0 && batches >= dataset->batches) return dataset->spec.samples;
    return batches / source->batches * source->spec.samples + mirt__dataset_rows(source, batches % source->batches);
}

static const mirt__stage mirt__repeat_stage = {mirt__repeat_begin, mirt__repeat_next, NULL, NULL, NULL, mirt__repeat_rows};

MIRT_API mirt_dataset *mirt_repeat(mirt_dataset *dataset, int64_t count) {
    if (!dataset) return NULL;
    mirt_status status = count > 0 ? mirt__stage_count("mirt_repeat", count, 1) : MIRT_OK;
    if (count < 0) count = 0;
    if (status == MIRT_OK && count && dataset->spec.samples > INT64_MAX / count)
        status = mirt__fail(MIRT_E_INVALID, "mirt_repeat(%lld): %lld samples are too many to repeat that often", (long long)count,
                            (long long)dataset->spec.samples);
    if (status != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__repeat_dataset), &mirt__repeat_stage, dataset, false);
    if (!stage) return NULL;
    ((mirt__repeat_dataset *)stage)->passes = count;
    stage->pointing = dataset->pointing;
    bool endless = count == 0 || dataset->spec.samples < 0;
    stage->spec.samples = endless ? -1 : dataset->spec.samples * count;
    if (dataset->spec.batch) stage->batches = endless ? -1 : dataset->batches * count;
    return stage;
}

/* >>map */

typedef struct mirt__map_dataset {
    mirt_dataset base;
    mirt_map_fn fn;
    void *user;
    char *name;
    bool keeps_x; /* x[0] has the shape and type it had */
} mirt__map_dataset;

static mirt_status mirt__map_fill(mirt_dataset *dataset, mirt__slot *out) {
    const mirt__map_dataset *map = (const mirt__map_dataset *)dataset;
    const mirt__data_spec *from = &dataset->source->spec;
    mirt__batch in;
    out->rows = 0;
    mirt_status status = mirt__dataset_next(dataset->source, &in);
    if (status != MIRT_OK || in.rows == 0) return status;
    const float one = 1;
    for (int f = map->keeps_x ? 0 : 1; f < from->num_fields; f++) memcpy(out->field[f], in.field[f], from->field[f].bytes);
    if (dataset->spec.num_fields > from->num_fields) memcpy(out->field[from->num_fields], &one, sizeof one);
    out->index[0] = in.index[0];
    int code = map->fn(in.field, out->field, in.index[0], map->user);
    if (code) return mirt__fail(MIRT_E_INVALID, "%s gave the code %d for sample %lld", map->name, code, (long long)in.index[0]);
    out->rows = 1;
    return MIRT_OK;
}

static void mirt__map_release(mirt_dataset *dataset) { mirt__free(((mirt__map_dataset *)dataset)->name); }

static const mirt__stage mirt__map_stage = {mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, mirt__map_fill,
                                            mirt__map_release, NULL};

static mirt_status mirt__map_set(mirt_dataset *dataset, const mirt_map_desc *desc) {
    mirt__map_dataset *map = (mirt__map_dataset *)dataset;
    mirt__data_spec spec = dataset->spec;
    map->fn = desc->fn;
    map->user = desc->user;
    map->keeps_x = desc->shape.rank == 0;
    map->name = mirt__strdup(desc->name ? desc->name : "mirt_map");
    if (!map->name) return MIRT_E_NOMEM;
    if (!map->keeps_x) {
        spec.field[0].dtype = desc->dtype;
        spec.field[0].shape = desc->shape;
    }
    if (desc->add_weights && !spec.has_weights) {
        mirt__data_add_field(&spec, MIRT_FLOAT32, mirt_make_shape(0, 0, 0, 0, 0, 0));
        spec.has_weights = true;
    }
    return mirt__dataset_set_spec(dataset, &spec) == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", map->name);
}

MIRT_API mirt_dataset *mirt_map(mirt_dataset *dataset, const mirt_map_desc *desc) {
    if (!dataset) return NULL;
    mirt_status status = MIRT_OK;
    if (!desc || !desc->fn) status = mirt__fail(MIRT_E_INVALID, "mirt_map needs a function");
    else if (desc->shape.rank < 0 || desc->shape.rank > MIRT_MAX_RANK)
        status = mirt__fail(MIRT_E_SHAPE, "mirt_map: a shape of %d dimensions: at most %d are possible", desc->shape.rank, MIRT_MAX_RANK);
    else if (dataset->spec.batch)
        status = mirt__fail(MIRT_E_INVALID, "mirt_map comes before mirt_batch: it is given one sample at a time");
    if (status != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__map_dataset), &mirt__map_stage, dataset, false);
    if (!stage) return NULL;
    return mirt__map_set(stage, desc) == MIRT_OK ? stage : mirt__dataset_give_up(stage, false);
}

/* >>accumulate: `joined` batches of the stage before are one */

typedef struct mirt__accumulate_dataset {
    mirt_dataset base;
    int joined;
} mirt__accumulate_dataset;

static mirt_status mirt__accumulate_fill(mirt_dataset *dataset, mirt__slot *out) {
    mirt__slot part = *out;
    out->rows = 0;
    for (int i = 0; i < ((mirt__accumulate_dataset *)dataset)->joined; i++) {
        for (int f = 0; f < dataset->spec.num_fields; f++)
            part.field[f] = (char *)out->field[f] + (size_t)out->rows * dataset->spec.field[f].bytes;
        part.index = out->index + out->rows;
        mirt_status status = mirt__slot_pull(&part, dataset->source);
        if (status != MIRT_OK) return status;
        if (part.rows == 0) break;
        out->rows += part.rows;
    }
    return MIRT_OK;
}

static int64_t mirt__accumulate_rows(const mirt_dataset *dataset, int64_t batches) {
    if (dataset->batches >= 0 && batches >= dataset->batches) return dataset->spec.samples;
    return mirt__dataset_rows(dataset->source, batches * ((const mirt__accumulate_dataset *)dataset)->joined);
}

static const mirt__stage mirt__accumulate_stage = {mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, mirt__accumulate_fill,
                                                   NULL, mirt__accumulate_rows};

MIRT_API mirt_dataset *mirt_accumulate(mirt_dataset *dataset, int batches) {
    if (!dataset) return NULL;
    mirt_status status = mirt__stage_count("mirt_accumulate", batches, 1);
    if (status == MIRT_OK && !dataset->spec.batch)
        status = mirt__fail(MIRT_E_INVALID, "mirt_accumulate comes after mirt_batch: it joins batches to one step");
    if (status == MIRT_OK && dataset->spec.batch > INT32_MAX / batches)
        status = mirt__fail(MIRT_E_INVALID, "mirt_accumulate(%d): %d batches of %lld samples are too large a step", batches, batches,
                            (long long)dataset->spec.batch);
    if (status != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    if (batches == 1) return dataset;
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__accumulate_dataset), &mirt__accumulate_stage, dataset, false);
    if (!stage) return NULL;
    ((mirt__accumulate_dataset *)stage)->joined = batches;
    stage->spec.batch *= batches;
    stage->spec.accumulate *= batches;
    if (dataset->batches > 0) stage->batches = dataset->batches / batches + (dataset->batches % batches != 0);
    dataset->lent = dataset->stage->fill && !dataset->pointing;
    return stage;
}

/* >>section data/prefetch.c */

/* Prepares batches ahead of their use in a worker thread. */

static mirt_status mirt__prefetch_check(int depth) {
    const int most = 4096;
    if ((depth >= 1 && depth <= most) || depth == MIRT_AUTOTUNE) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "a prefetch depth of %d: 1 to %d are possible, or MIRT_AUTOTUNE", depth, most);
}

#ifdef MIRRORTRAIN_NO_THREADS

MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth) {
    return dataset && mirt__prefetch_check(depth) != MIRT_OK ? mirt__dataset_give_up(dataset, false) : dataset;
}

#else

#include <pthread.h>

/* The worker fills slots in a ring while the consumer holds the one it was given last. Slot
   contents belong to whoever the counters say; everything else is guarded by the mutex. */
typedef struct mirt__prefetch_dataset {
    mirt_dataset base;
    int slots; /* depth and the one the consumer holds */
    mirt__slot *slot;
    pthread_mutex_t mutex;
    pthread_cond_t to_worker, to_consumer;
    pthread_t thread;
    bool has_mutex, has_worker_cond, has_consumer_cond, has_thread;
    int64_t filled, taken; /* slots in this epoch; the consumer holds number taken - 1 */
    bool busy;             /* the worker runs through an epoch */
    bool cancel, quit;     /* wishes to the worker */
    mirt_status status;    /* why the epoch ended; MIRT_OK at its regular end */
    char error[512];
} mirt__prefetch_dataset;

/* Runs through one epoch; called and left with the mutex locked. */
static void mirt__prefetch_epoch(mirt__prefetch_dataset *prefetch) {
    for (;;) {
        /* One slot stays free of work: the consumer reads it until its next call. */
        while (!prefetch->cancel && prefetch->filled - prefetch->taken >= prefetch->slots - 1)
            pthread_cond_wait(&prefetch->to_worker, &prefetch->mutex);
        if (prefetch->cancel) return;
        mirt__slot *slot = &prefetch->slot[prefetch->filled % prefetch->slots];
        pthread_mutex_unlock(&prefetch->mutex);
        mirt_status status = mirt__slot_pull(slot, prefetch->base.source);
        pthread_mutex_lock(&prefetch->mutex);
        if (status != MIRT_OK) {
            prefetch->status = status;
            snprintf(prefetch->error, sizeof prefetch->error, "%s", mirt_last_error());
            return;
        }
        if (slot->rows == 0) return;
        prefetch->filled++;
        pthread_cond_signal(&prefetch->to_consumer);
    }
}

static void *mirt__prefetch_worker(void *arg) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)arg;
    pthread_mutex_lock(&prefetch->mutex);
    while (!prefetch->quit) {
        if (prefetch->busy) {
            mirt__prefetch_epoch(prefetch);
            prefetch->busy = false;
            pthread_cond_signal(&prefetch->to_consumer);
        } else {
            pthread_cond_wait(&prefetch->to_worker, &prefetch->mutex);
        }
    }
    pthread_mutex_unlock(&prefetch->mutex);
    return NULL;
}

/* Returns once the worker is idle. */
static void mirt__prefetch_stop(mirt__prefetch_dataset *prefetch) {
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->cancel = true;
    pthread_cond_signal(&prefetch->to_worker);
    while (prefetch->busy) pthread_cond_wait(&prefetch->to_consumer, &prefetch->mutex);
    prefetch->cancel = false;
    pthread_mutex_unlock(&prefetch->mutex);
}

static mirt_status mirt__prefetch_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    mirt__prefetch_stop(prefetch);
    /* The worker being idle, the stages before are ours: what they have to say comes at once. */
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->filled = 0;
    prefetch->taken = 0;
    prefetch->status = MIRT_OK;
    prefetch->busy = status == MIRT_OK;
    pthread_cond_signal(&prefetch->to_worker);
    pthread_mutex_unlock(&prefetch->mutex);
    return status;
}

static mirt_status mirt__prefetch_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&prefetch->mutex);
    while (prefetch->busy && prefetch->filled == prefetch->taken)
        pthread_cond_wait(&prefetch->to_consumer, &prefetch->mutex);
    mirt__slot *slot = NULL;
    if (prefetch->filled > prefetch->taken) slot = &prefetch->slot[prefetch->taken++ % prefetch->slots];
    mirt_status status = prefetch->status;
    pthread_cond_signal(&prefetch->to_worker);
    pthread_mutex_unlock(&prefetch->mutex);
    if (!slot) return status == MIRT_OK ? MIRT_OK : mirt__fail(status, "%s", prefetch->error);
    mirt__slot_give(slot, &dataset->spec, 0, slot->rows, out);
    return MIRT_OK;
}

static void mirt__prefetch_release(mirt_dataset *dataset) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    if (prefetch->has_thread) {
        pthread_mutex_lock(&prefetch->mutex);
        prefetch->cancel = true;
        prefetch->quit = true;
        pthread_cond_signal(&prefetch->to_worker);
        pthread_mutex_unlock(&prefetch->mutex);
        pthread_join(prefetch->thread, NULL);
    }
    if (prefetch->has_consumer_cond) pthread_cond_destroy(&prefetch->to_consumer);
    if (prefetch->has_worker_cond) pthread_cond_destroy(&prefetch->to_worker);
    if (prefetch->has_mutex) pthread_mutex_destroy(&prefetch->mutex);
    for (int i = 0; prefetch->slot && i < prefetch->slots; i++) mirt__aligned_free(prefetch->slot[i].block);
    mirt__free(prefetch->slot);
}

static const mirt__stage mirt__prefetch_stage = {mirt__prefetch_begin, mirt__prefetch_next, NULL, NULL,
                                                 mirt__prefetch_release, NULL};

static mirt_status mirt__prefetch_create_slots(mirt__prefetch_dataset *prefetch) {
    const mirt__data_spec *spec = &prefetch->base.spec;
    mirt_status status = MIRT_OK;
    prefetch->slot = (mirt__slot *)mirt__calloc((size_t)prefetch->slots, sizeof(mirt__slot));
    if (!prefetch->slot) return MIRT_E_NOMEM;
    for (int i = 0; i < prefetch->slots && status == MIRT_OK; i++)
        status = mirt__slot_create(&prefetch->slot[i], spec, mirt__data_most_rows(spec), true);
    return status;
}

static mirt_status mirt__prefetch_start(mirt__prefetch_dataset *prefetch) {
    int code = pthread_mutex_init(&prefetch->mutex, NULL);
    prefetch->has_mutex = code == 0;
    if (code == 0) {
        code = pthread_cond_init(&prefetch->to_worker, NULL);
        prefetch->has_worker_cond = code == 0;
    }
    if (code == 0) {
        code = pthread_cond_init(&prefetch->to_consumer, NULL);
        prefetch->has_consumer_cond = code == 0;
    }
    if (code == 0) {
        code = pthread_create(&prefetch->thread, NULL, mirt__prefetch_worker, prefetch);
        prefetch->has_thread = code == 0;
    }
    if (code != 0) return mirt__fail(MIRT_E_THREAD, "the prefetch thread could not be started: %s", strerror(code));
    return MIRT_OK;
}

MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth) {
    if (!dataset) return NULL;
    if (mirt__prefetch_check(depth) != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    if (dataset->stage->at || dataset->pointing) return dataset; /* nothing to prepare */
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__prefetch_dataset), &mirt__prefetch_stage, dataset, false);
    if (!stage) return NULL;
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)stage;
    prefetch->slots = (depth == MIRT_AUTOTUNE ? 2 : depth) + 1;
    dataset->lent = dataset->stage->fill != NULL;
    if (mirt__prefetch_create_slots(prefetch) != MIRT_OK || mirt__prefetch_start(prefetch) != MIRT_OK)
        return mirt__dataset_give_up(stage, false);
    return stage;
}

#endif

/* >>section data/inflate.c */

/* Unpacks gzip (RFC 1952, deflate: RFC 1951) as a stream, checking checksum and length. Errors give
   the offset in the packed file; the caller puts the file's name before them. */

#define MIRT__WINDOW 32768
#define MIRT__FAST_BITS 10

MIRT__LIB void mirt__bytes_rewind(mirt__bytes *bytes) {
    bytes->end = 0;
    bytes->at = 0;
    bytes->size = 0;
}

MIRT__LIB mirt_status mirt__bytes_fill(mirt__bytes *bytes) {
    const int64_t got = mirt__file_read_at(bytes->fd, bytes->end, bytes->data, sizeof bytes->data);
    bytes->at = 0;
    bytes->size = got < 0 ? 0 : (size_t)got;
    if (got < 0) return mirt__fail(MIRT_E_IO, "could not be read at byte %llu: %s", (unsigned long long)bytes->end, strerror(errno));
    bytes->end += bytes->size;
    return MIRT_OK;
}

/* A Huffman code: short words by table, long ones by counting (canonical codes of one length are
   consecutive numbers). */
typedef struct mirt__huffman {
    uint16_t fast[1 << MIRT__FAST_BITS]; /* next bits -> symbol * 16 + length, or 0 */
    uint16_t count[16];                  /* words of each length */
    uint16_t symbol[288];                /* in order of their words */
} mirt__huffman;

typedef enum mirt__gunzip_mode {
    MIRT__GUNZIP_BLOCK, MIRT__GUNZIP_STORED, MIRT__GUNZIP_CODES, MIRT__GUNZIP_TRAILER, MIRT__GUNZIP_END
} mirt__gunzip_mode;

struct mirt__gunzip {
    mirt__bytes *bytes;
    uint64_t bits; /* the next bit_count bits of the file, lowest first; what lies above is undefined */
    int bit_count;
    mirt__gunzip_mode mode;
    bool last;            /* the current block is the last */
    uint32_t stored_left; /* bytes of a stored block */
    int copy_left, copy_back;
    uint32_t crc;
    uint64_t total; /* bytes unpacked */
    mirt__huffman lengths, distances;
    uint32_t crc_table[8][256];
    unsigned char window[MIRT__WINDOW]; /* byte i of the output is at i % MIRT__WINDOW */
};

MIRT__LIB mirt__gunzip *mirt__gunzip_create(mirt__bytes *bytes) {
    mirt__gunzip *z = (mirt__gunzip *)mirt__calloc(1, sizeof(mirt__gunzip));
    if (!z) return NULL;
    z->bytes = bytes;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        z->crc_table[0][i] = c;
    }
    for (int k = 1; k < 8; k++) {
        for (int i = 0; i < 256; i++) {
            uint32_t c = z->crc_table[k - 1][i];
            z->crc_table[k][i] = (c >> 8) ^ z->crc_table[0][c & 255];
        }
    }
    return z;
}

MIRT__LIB void mirt__gunzip_destroy(mirt__gunzip *z) {
    mirt__free(z);
}

/* Eight bytes a turn. */
static void mirt__gunzip_checksum(mirt__gunzip *z, const unsigned char *p, size_t size) {
    uint32_t c = ~z->crc;
    uint32_t(*t)[256] = z->crc_table;
    for (; size >= 8; size -= 8, p += 8) {
        c ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        c = t[7][c & 255] ^ t[6][c >> 8 & 255] ^ t[5][c >> 16 & 255] ^ t[4][c >> 24] ^ t[3][p[4]] ^ t[2][p[5]] ^
            t[1][p[6]] ^ t[0][p[7]];
    }
    for (; size > 0; size--, p++) c = (c >> 8) ^ t[0][(c ^ *p) & 255];
    z->crc = ~c;
}

static mirt_status mirt__gunzip_fail(const mirt__gunzip *z, const char *what) {
    uint64_t unread = z->bytes->size - z->bytes->at + (uint64_t)(z->bit_count / 8);
    return mirt__fail(MIRT_E_FORMAT, "damaged gzip data at byte %llu: %s", (unsigned long long)(z->bytes->end - unread), what);
}

/* Tops the bits up to 56 or more, or to what the file still has. */
static mirt_status mirt__gunzip_refill(mirt__gunzip *z) {
    mirt__bytes *bytes = z->bytes;
    if (bytes->size - bytes->at >= 8) {
        const unsigned char *p = bytes->data + bytes->at;
        uint64_t word = (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
                        (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
        int whole = (63 - z->bit_count) >> 3;
        z->bits |= word << z->bit_count;
        z->bit_count += whole * 8;
        bytes->at += (size_t)whole;
        return MIRT_OK;
    }
    /* Byte by byte across the buffer's end; undefined bits have to go first. */
    z->bits &= ((uint64_t)1 << z->bit_count) - 1;
    while (z->bit_count <= 55) {
        if (bytes->at == bytes->size) {
            mirt_status status = mirt__bytes_fill(bytes);
            if (status != MIRT_OK) return status;
            if (bytes->size == 0) return MIRT_OK;
        }
        z->bits |= (uint64_t)bytes->data[bytes->at++] << z->bit_count;
        z->bit_count += 8;
    }
    return MIRT_OK;
}

static void mirt__gunzip_drop(mirt__gunzip *z, int count) {
    z->bits >>= count;
    z->bit_count -= count;
}

/* The next `count` <= 32 bits. */
static mirt_status mirt__gunzip_take(mirt__gunzip *z, int count, uint32_t *out) {
    *out = 0;
    if (z->bit_count < count) {
        mirt_status status = mirt__gunzip_refill(z);
        if (status != MIRT_OK) return status;
        if (z->bit_count < count) return mirt__gunzip_fail(z, "the file ends too early");
    }
    *out = (uint32_t)(z->bits & (((uint64_t)1 << count) - 1));
    mirt__gunzip_drop(z, count);
    return MIRT_OK;
}

/* False if the lengths are no code: too many words, or too few and not the one word that RFC 1951
   allows to stand alone. */
static bool mirt__huffman_build(mirt__huffman *h, const unsigned char *length, int symbols) {
    uint16_t next[16], offset[16];
    memset(h, 0, sizeof *h);
    for (int s = 0; s < symbols; s++) h->count[length[s]]++;
    bool none = h->count[0] == symbols;
    h->count[0] = 0;
    int left = 1, longest = 0;
    uint16_t code = 0, before = 0;
    for (int l = 1; l <= 15; l++) {
        left = left * 2 - h->count[l];
        if (left < 0) return false;
        if (h->count[l]) longest = l;
        code = (uint16_t)((code + h->count[l - 1]) << 1);
        next[l] = code;
        offset[l] = before;
        before = (uint16_t)(before + h->count[l]);
    }
    if (left > 0 && !none && longest != 1) return false;
    for (int s = 0; s < symbols; s++) {
        int l = length[s];
        if (l == 0) continue;
        h->symbol[offset[l]++] = (uint16_t)s;
        unsigned word = next[l]++, reversed = 0;
        if (l > MIRT__FAST_BITS) continue;
        for (int bit = 0; bit < l; bit++) reversed |= (word >> bit & 1u) << (l - 1 - bit);
        for (unsigned i = reversed; i < 1u << MIRT__FAST_BITS; i += 1u << l) h->fast[i] = (uint16_t)(s << 4 | l);
    }
    return true;
}

/* The symbol at the head of `bits`, and its length; -1 if no word fits. */
static int mirt__huffman_find(const mirt__huffman *h, uint64_t bits, int *length) {
    unsigned entry = h->fast[bits & ((1u << MIRT__FAST_BITS) - 1)];
    if (entry) {
        *length = (int)(entry & 15);
        return (int)(entry >> 4);
    }
    int code = 0, first = 0, index = 0;
    for (int l = 1; l <= 15; l++) {
        code |= (int)(bits & 1);
        bits >>= 1;
        int count = h->count[l];
        if (code - count < first) {
            *length = l;
            return h->symbol[index + (code - first)];
        }
        index += count;
        first = (first + count) << 1;
        code <<= 1;
    }
    *length = 0;
    return -1;
}

static mirt_status mirt__gunzip_symbol(mirt__gunzip *z, const mirt__huffman *h, int *symbol) {
    int length;
    if (z->bit_count < 15) {
        mirt_status status = mirt__gunzip_refill(z);
        if (status != MIRT_OK) return status;
    }
    *symbol = mirt__huffman_find(h, z->bits, &length);
    if (length > z->bit_count || (*symbol < 0 && z->bit_count < 15)) return mirt__gunzip_fail(z, "the file ends too early");
    if (*symbol < 0) return mirt__gunzip_fail(z, "a code word that does not exist");
    mirt__gunzip_drop(z, length);
    return MIRT_OK;
}

static void mirt__gunzip_fixed_codes(mirt__gunzip *z) {
    unsigned char length[288];
    for (int i = 0; i < 288; i++) length[i] = (unsigned char)(i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8);
    mirt__huffman_build(&z->lengths, length, 288);
    memset(length, 5, 32);
    mirt__huffman_build(&z->distances, length, 32);
}

/* Reads `wanted` code lengths, themselves packed by the code in z->lengths. */
static mirt_status mirt__gunzip_code_lengths(mirt__gunzip *z, unsigned char *length, int wanted) {
    int n = 0;
    while (n < wanted) {
        int symbol;
        mirt_status status = mirt__gunzip_symbol(z, &z->lengths, &symbol);
        if (status != MIRT_OK) return status;
        if (symbol < 16) {
            length[n++] = (unsigned char)symbol;
            continue;
        }
        uint32_t repeat;
        status = mirt__gunzip_take(z, symbol == 16 ? 2 : symbol == 17 ? 3 : 7, &repeat);
        if (status != MIRT_OK) return status;
        repeat += symbol == 18 ? 11 : 3;
        if (symbol == 16 && n == 0) return mirt__gunzip_fail(z, "a repeated code length with none before it");
        if (repeat > (uint32_t)(wanted - n)) return mirt__gunzip_fail(z, "too many code lengths");
        memset(length + n, symbol == 16 ? length[n - 1] : 0, repeat);
        n += (int)repeat;
    }
    return MIRT_OK;
}

static mirt_status mirt__gunzip_dynamic_codes(mirt__gunzip *z) {
    static const unsigned char order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    unsigned char length[286 + 30];
    uint32_t literals, distances, codes, value;
    mirt_status status = mirt__gunzip_take(z, 5, &literals);
    if (status == MIRT_OK) status = mirt__gunzip_take(z, 5, &distances);
    if (status == MIRT_OK) status = mirt__gunzip_take(z, 4, &codes);
    if (status != MIRT_OK) return status;
    literals += 257;
    distances += 1;
    codes += 4;
    if (literals > 286 || distances > 30) return mirt__gunzip_fail(z, "too many code words");
    memset(length, 0, 19);
    for (uint32_t i = 0; i < codes; i++) {
        status = mirt__gunzip_take(z, 3, &value);
        if (status != MIRT_OK) return status;
        length[order[i]] = (unsigned char)value;
    }
    if (!mirt__huffman_build(&z->lengths, length, 19)) return mirt__gunzip_fail(z, "code lengths that make no code");
    status = mirt__gunzip_code_lengths(z, length, (int)(literals + distances));
    if (status != MIRT_OK) return status;
    if (length[256] == 0) return mirt__gunzip_fail(z, "a block without an end");
    if (!mirt__huffman_build(&z->lengths, length, (int)literals) ||
        !mirt__huffman_build(&z->distances, length + literals, (int)distances))
        return mirt__gunzip_fail(z, "code lengths that make no code");
    return MIRT_OK;
}

/* Blocks that are not packed start at a whole byte. */
static mirt_status mirt__gunzip_stored_header(mirt__gunzip *z) {
    uint32_t size, check;
    mirt__gunzip_drop(z, z->bit_count & 7);
    mirt_status status = mirt__gunzip_take(z, 16, &size);
    if (status == MIRT_OK) status = mirt__gunzip_take(z, 16, &check);
    if (status != MIRT_OK) return status;
    if ((size ^ check) != 0xFFFF) return mirt__gunzip_fail(z, "a stored block whose two lengths differ");
    z->stored_left = size;
    return MIRT_OK;
}

static mirt_status mirt__gunzip_block(mirt__gunzip *z) {
    if (z->last) {
        z->mode = MIRT__GUNZIP_TRAILER;
        return MIRT_OK;
    }
    uint32_t head;
    mirt_status status = mirt__gunzip_take(z, 3, &head);
    if (status != MIRT_OK) return status;
    z->last = head & 1;
    z->mode = head >> 1 ? MIRT__GUNZIP_CODES : MIRT__GUNZIP_STORED;
    switch (head >> 1) {
    case 0: return mirt__gunzip_stored_header(z);
    case 1: mirt__gunzip_fixed_codes(z); return MIRT_OK;
    case 2: return mirt__gunzip_dynamic_codes(z);
    default: return mirt__gunzip_fail(z, "an unknown kind of block");
    }
}

static mirt_status mirt__gunzip_stored(mirt__gunzip *z, unsigned char *out, size_t size, size_t *made) {
    size_t n = 0;
    while (n < size && z->stored_left > 0) {
        uint32_t byte;
        mirt_status status = mirt__gunzip_take(z, 8, &byte);
        if (status != MIRT_OK) return status;
        out[n++] = (unsigned char)byte;
        z->window[z->total++ % MIRT__WINDOW] = (unsigned char)byte;
        z->stored_left--;
    }
    if (z->stored_left == 0) z->mode = MIRT__GUNZIP_BLOCK;
    *made = n;
    return MIRT_OK;
}

/* Length and distance of a repetition, after its length symbol. */
static mirt_status mirt__gunzip_match(mirt__gunzip *z, int symbol) {
    static const uint16_t length_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                             31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const unsigned char length_bits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_base[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                               193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    uint32_t extra;
    if (symbol > 285) return mirt__gunzip_fail(z, "an unknown length");
    mirt_status status = mirt__gunzip_take(z, length_bits[symbol - 257], &extra);
    if (status != MIRT_OK) return status;
    z->copy_left = length_base[symbol - 257] + (int)extra;
    status = mirt__gunzip_symbol(z, &z->distances, &symbol);
    if (status != MIRT_OK) return status;
    if (symbol > 29) return mirt__gunzip_fail(z, "an unknown distance");
    status = mirt__gunzip_take(z, symbol < 4 ? 0 : symbol / 2 - 1, &extra);
    if (status != MIRT_OK) return status;
    z->copy_back = distance_base[symbol] + (int)extra;
    if ((uint64_t)z->copy_back > z->total) return mirt__gunzip_fail(z, "a repetition of what lies before the start");
    return MIRT_OK;
}

static mirt_status mirt__gunzip_codes(mirt__gunzip *z, unsigned char *out, size_t size, size_t *made) {
    size_t n = 0;
    while (n < size) {
        uint64_t total = z->total;
        while (z->copy_left > 0 && n < size) {
            unsigned char byte = z->window[(total - (uint64_t)z->copy_back) % MIRT__WINDOW];
            z->window[total++ % MIRT__WINDOW] = byte;
            out[n++] = byte;
            z->copy_left--;
        }
        z->total = total;
        if (n == size) break;
        int symbol;
        mirt_status status = mirt__gunzip_symbol(z, &z->lengths, &symbol);
        if (status != MIRT_OK) return status;
        if (symbol < 256) {
            z->window[z->total++ % MIRT__WINDOW] = (unsigned char)symbol;
            out[n++] = (unsigned char)symbol;
        } else if (symbol == 256) {
            z->mode = MIRT__GUNZIP_BLOCK;
            break;
        } else {
            status = mirt__gunzip_match(z, symbol);
            if (status != MIRT_OK) return status;
        }
    }
    *made = n;
    return MIRT_OK;
}

static mirt_status mirt__gunzip_trailer(mirt__gunzip *z) {
    uint32_t crc, size;
    mirt__gunzip_drop(z, z->bit_count & 7);
    mirt_status status = mirt__gunzip_take(z, 32, &crc);
    if (status == MIRT_OK) status = mirt__gunzip_take(z, 32, &size);
    if (status != MIRT_OK) return status;
    if (crc != z->crc) return mirt__gunzip_fail(z, "the checksum is wrong");
    if (size != (uint32_t)z->total) return mirt__gunzip_fail(z, "the length at the end is wrong");
    status = mirt__gunzip_refill(z);
    if (status != MIRT_OK) return status;
    if (z->bit_count > 0) return mirt__gunzip_fail(z, "more data follow its end");
    z->mode = MIRT__GUNZIP_END;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__gunzip_read(mirt__gunzip *z, unsigned char *out, size_t size, size_t *got) {
    *got = 0;
    while (*got < size && z->mode != MIRT__GUNZIP_END) {
        mirt_status status;
        size_t made = 0;
        switch (z->mode) {
        case MIRT__GUNZIP_BLOCK: status = mirt__gunzip_block(z); break;
        case MIRT__GUNZIP_STORED: status = mirt__gunzip_stored(z, out + *got, size - *got, &made); break;
        case MIRT__GUNZIP_CODES: status = mirt__gunzip_codes(z, out + *got, size - *got, &made); break;
        default: status = mirt__gunzip_trailer(z); break;
        }
        if (status != MIRT_OK) return status;
        mirt__gunzip_checksum(z, out + *got, made);
        *got += made;
    }
    return MIRT_OK;
}

/* Skips `count` bytes, or up to and with a zero byte when count is negative. */
static mirt_status mirt__gunzip_skip(mirt__gunzip *z, int64_t count) {
    uint32_t byte = 1;
    while (count < 0 ? byte != 0 : count > 0) {
        mirt_status status = mirt__gunzip_take(z, 8, &byte);
        if (status != MIRT_OK) return status;
        if (count > 0) count--;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__gunzip_begin(mirt__gunzip *z) {
    const uint32_t header_check = 2, extra = 4, name = 8, comment = 16;
    uint32_t magic, flags, length = 0;
    z->bits = 0;
    z->bit_count = 0;
    z->mode = MIRT__GUNZIP_BLOCK;
    z->last = false;
    z->copy_left = 0;
    z->crc = 0;
    z->total = 0;
    mirt_status status = mirt__gunzip_take(z, 24, &magic);
    if (status == MIRT_OK && magic != 0x088B1F) status = mirt__gunzip_fail(z, "not gzip, or packed by another method than deflate");
    if (status == MIRT_OK) status = mirt__gunzip_take(z, 8, &flags);
    if (status != MIRT_OK) return status;
    if (flags & 0xE0) return mirt__gunzip_fail(z, "unknown flags");
    status = mirt__gunzip_skip(z, 6); /* time, extra flags, operating system */
    if (status == MIRT_OK && (flags & extra)) {
        status = mirt__gunzip_take(z, 16, &length);
        if (status == MIRT_OK) status = mirt__gunzip_skip(z, length);
    }
    if (status == MIRT_OK && (flags & name)) status = mirt__gunzip_skip(z, -1);
    if (status == MIRT_OK && (flags & comment)) status = mirt__gunzip_skip(z, -1);
    if (status == MIRT_OK && (flags & header_check)) status = mirt__gunzip_skip(z, 2);
    return status;
}

#undef MIRT__WINDOW
#undef MIRT__FAST_BITS

/* >>section data/idx.c */

/* IDX files, the format of MNIST: big-endian magic number and dimensions, then unsigned bytes. */

typedef struct mirt__idx_file {
    char *path;
    mirt__bytes bytes;
    mirt__gunzip *gunzip; /* NULL: a plain file */
    int rank;
    int64_t dim[3];
    uint64_t size; /* bytes of header and samples */
    uint64_t read; /* of these, since the start */
} mirt__idx_file;

typedef struct mirt__idx_dataset {
    mirt_dataset base;
    mirt__idx_file *images, *labels; /* labels may be NULL */
    unsigned char *x;                /* one sample */
    unsigned char y;
} mirt__idx_dataset;

static void mirt__idx_close(mirt__idx_file *file) {
    if (!file) return;
    mirt__file_close(&file->bytes.fd);
    mirt__gunzip_destroy(file->gunzip);
    mirt__free(file->path);
    mirt__free(file);
}

static mirt_status mirt__idx_read_plain(mirt__bytes *bytes, unsigned char *out, size_t size, size_t *got) {
    *got = 0;
    while (*got < size) {
        if (bytes->at == bytes->size) {
            mirt_status status = mirt__bytes_fill(bytes);
            if (status != MIRT_OK) return status;
            if (bytes->size == 0) return MIRT_OK;
        }
        size_t count = bytes->size - bytes->at;
        if (count > size - *got) count = size - *got;
        memcpy(out + *got, bytes->data + bytes->at, count);
        bytes->at += count;
        *got += count;
    }
    return MIRT_OK;
}

static mirt_status mirt__idx_read(mirt__idx_file *file, unsigned char *out, size_t size) {
    size_t got;
    mirt_status status = file->gunzip ? mirt__gunzip_read(file->gunzip, out, size, &got)
                                      : mirt__idx_read_plain(&file->bytes, out, size, &got);
    if (status != MIRT_OK) return mirt__fail_at("%s", file->path);
    file->read += got;
    if (got == size) return MIRT_OK;
    uint64_t expected = file->size > file->read ? file->size : file->read - got + size;
    return mirt__fail(MIRT_E_FORMAT, "%s is cut short: expected %llu bytes%s, got %llu", file->path,
                      (unsigned long long)expected, file->gunzip ? " unpacked" : "", (unsigned long long)file->read);
}

/* Nothing may follow the last sample; in a gzip file the checksum is looked at only here. */
static mirt_status mirt__idx_check_end(mirt__idx_file *file) {
    unsigned char more;
    size_t got;
    mirt_status status = file->gunzip ? mirt__gunzip_read(file->gunzip, &more, 1, &got)
                                      : mirt__idx_read_plain(&file->bytes, &more, 1, &got);
    if (status != MIRT_OK) return mirt__fail_at("%s", file->path);
    if (got > 0)
        return mirt__fail(MIRT_E_FORMAT, "%s goes on behind its last sample: expected %llu bytes%s", file->path,
                          (unsigned long long)file->size, file->gunzip ? " unpacked" : "");
    return MIRT_OK;
}

/* To the start of the file, plain or unpacked. */
static mirt_status mirt__idx_rewind(mirt__idx_file *file) {
    file->read = 0;
    mirt__bytes_rewind(&file->bytes);
    mirt_status status = file->gunzip ? mirt__gunzip_begin(file->gunzip) : MIRT_OK;
    return status == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", file->path);
}

/* Gzip is recognized by content. */
static mirt_status mirt__idx_recognize(mirt__idx_file *file) {
    mirt__bytes *bytes = &file->bytes;
    if (mirt__bytes_fill(bytes) != MIRT_OK) return mirt__fail_at("%s", file->path);
    if (bytes->size >= 2 && bytes->data[0] == 0x1F && bytes->data[1] == 0x8B) {
        file->gunzip = mirt__gunzip_create(bytes);
        if (!file->gunzip) return MIRT_E_NOMEM;
    }
    return mirt__idx_rewind(file);
}

static uint32_t mirt__idx_big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

/* Reads magic number and dimensions; sets the size the whole file has to have. */
static mirt_status mirt__idx_read_header(mirt__idx_file *file, int rank) {
    unsigned char word[4];
    mirt_status status = mirt__idx_read(file, word, 4);
    if (status != MIRT_OK) return status;
    uint32_t magic = mirt__idx_big_endian(word), expected = 0x0800u + (uint32_t)rank;
    if (magic != expected)
        return mirt__fail(MIRT_E_FORMAT, "%s at byte 0: expected the magic number 0x%08X (unsigned bytes, %d dimension%s), got 0x%08X",
                          file->path, (unsigned)expected, rank, rank == 1 ? "" : "s", (unsigned)magic);
    file->rank = rank;
    file->size = 4 + 4 * (uint64_t)rank;
    uint64_t count = 1;
    for (int i = 0; i < rank; i++) {
        status = mirt__idx_read(file, word, 4);
        if (status != MIRT_OK) return status;
        uint32_t dim = mirt__idx_big_endian(word);
        if (dim == 0 && i == 0) return mirt__fail(MIRT_E_INVALID, "%s holds no samples: at least one is needed", file->path);
        if (dim == 0)
            return mirt__fail(MIRT_E_FORMAT, "%s at byte %d: a dimension of 0, expected at least 1", file->path, 4 + 4 * i);
        if (count > (uint64_t)INT64_MAX / 8 / dim || count * dim > SIZE_MAX / 8)
            return mirt__fail(MIRT_E_FORMAT, "%s at byte %d: a dimension of %lu makes the file too large for any machine",
                              file->path, 4 + 4 * i, (unsigned long)dim);
        count *= dim;
        file->dim[i] = dim;
    }
    file->size += count;
    return MIRT_OK;
}

/* Compares the size by the header with the file's, or with the one in gzip's last four bytes. */
static mirt_status mirt__idx_check_size(mirt__idx_file *file) {
    const uint64_t packed = file->bytes.file_size;
    if (file->gunzip) {
        unsigned char last[4] = {0};
        if (mirt__file_read_at(file->bytes.fd, packed < 4 ? 0 : packed - 4, last, 4) < 0)
            return mirt__fail(MIRT_E_IO, "%s: its end could not be read: %s", file->path, strerror(errno));
        uint32_t size = (uint32_t)last[3] << 24 | (uint32_t)last[2] << 16 | (uint32_t)last[1] << 8 | (uint32_t)last[0];
        if (size != (uint32_t)file->size)
            return mirt__fail(MIRT_E_FORMAT, "%s is damaged or cut short: expected %llu bytes unpacked, got %lu by its last four bytes",
                              file->path, (unsigned long long)file->size, (unsigned long)size);
        /* Deflate packs at most 1032 to 1, and those four bytes count modulo 2^32. */
        if (file->size / 1032 > packed)
            return mirt__fail(MIRT_E_FORMAT, "%s is damaged: %llu bytes cannot hold the %llu that its dimensions need", file->path,
                              (unsigned long long)packed, (unsigned long long)file->size);
        return MIRT_OK;
    }
    if (packed != file->size)
        return mirt__fail(MIRT_E_FORMAT, "%s is %s: expected %llu bytes, got %llu", file->path,
                          packed < file->size ? "cut short" : "too long", (unsigned long long)file->size,
                          (unsigned long long)packed);
    return MIRT_OK;
}

static mirt_status mirt__idx_prepare(mirt__idx_file *file, const char *path, int rank) {
    file->path = mirt__strdup(path);
    if (!file->path) return MIRT_E_NOMEM;
    mirt_status status = mirt__file_open(path, &file->bytes.fd, &file->bytes.file_size);
    if (status == MIRT_OK) status = mirt__idx_recognize(file);
    if (status == MIRT_OK) status = mirt__idx_read_header(file, rank);
    if (status == MIRT_OK) status = mirt__idx_check_size(file);
    return status;
}

static mirt__idx_file *mirt__idx_open(const char *path, int rank) {
    mirt__idx_file *file = (mirt__idx_file *)mirt__calloc(1, sizeof(mirt__idx_file));
    if (!file) return NULL;
    file->bytes.fd = -1;
    if (mirt__idx_prepare(file, path, rank) == MIRT_OK) return file;
    mirt__idx_close(file);
    return NULL;
}

static mirt_status mirt__idx_skip_header(mirt__idx_file *file) {
    unsigned char header[16];
    mirt_status status = mirt__idx_rewind(file);
    return status == MIRT_OK ? mirt__idx_read(file, header, 4 + 4 * (size_t)file->rank) : status;
}

static mirt_status mirt__idx_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__idx_dataset *idx = (mirt__idx_dataset *)dataset;
    (void)seed;
    (void)epoch;
    mirt_status status = mirt__idx_skip_header(idx->images);
    if (status == MIRT_OK && idx->labels) status = mirt__idx_skip_header(idx->labels);
    return status;
}

static mirt_status mirt__idx_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__idx_dataset *idx = (mirt__idx_dataset *)dataset;
    memset(out, 0, sizeof *out);
    if (dataset->position > dataset->spec.samples) return MIRT_OK;
    mirt_status status;
    if (dataset->position == dataset->spec.samples) {
        status = mirt__idx_check_end(idx->images);
        if (status == MIRT_OK && idx->labels) status = mirt__idx_check_end(idx->labels);
        dataset->position++;
        return status;
    }
    status = mirt__idx_read(idx->images, idx->x, dataset->spec.field[0].bytes);
    if (status == MIRT_OK && idx->labels) status = mirt__idx_read(idx->labels, &idx->y, 1);
    if (status != MIRT_OK) return status;
    dataset->current = dataset->position++;
    out->field[0] = idx->x;
    if (idx->labels) out->field[1] = &idx->y;
    out->rows = 1;
    out->index = &dataset->current;
    return MIRT_OK;
}

static void mirt__idx_release(mirt_dataset *dataset) {
    mirt__idx_dataset *idx = (mirt__idx_dataset *)dataset;
    mirt__idx_close(idx->images);
    mirt__idx_close(idx->labels);
    mirt__free(idx->x);
}

static const mirt__stage mirt__idx_stage = {mirt__idx_begin, mirt__idx_next, NULL, NULL, mirt__idx_release, NULL};

static mirt_status mirt__idx_set(mirt__idx_dataset *idx, const char *images_path, const char *labels_path) {
    idx->images = mirt__idx_open(images_path, 3);
    if (!idx->images) return mirt_last_status();
    const int64_t *dim = idx->images->dim;
    if (labels_path) {
        idx->labels = mirt__idx_open(labels_path, 1);
        if (!idx->labels) return mirt_last_status();
        if (idx->labels->dim[0] != dim[0])
            return mirt__fail(MIRT_E_SHAPE, "%s has %lld images, %s has %lld labels: both need the same number", images_path,
                              (long long)dim[0], labels_path, (long long)idx->labels->dim[0]);
    }
    mirt__data_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.num_x = 1;
    spec.num_y = labels_path != NULL;
    mirt__data_add_field(&spec, MIRT_UINT8, mirt_make_shape(dim[1], dim[2], 1, 0, 0, 0));
    if (spec.num_y) mirt__data_add_field(&spec, MIRT_UINT8, mirt_make_shape(0, 0, 0, 0, 0, 0));
    spec.samples = dim[0];
    mirt_status status = mirt__dataset_set_spec(&idx->base, &spec);
    if (status != MIRT_OK) return mirt__fail_at("%s", images_path);
    idx->x = (unsigned char *)mirt__calloc(1, idx->base.spec.field[0].bytes);
    return idx->x ? MIRT_OK : MIRT_E_NOMEM;
}

MIRT_API mirt_dataset *mirt_idx(const char *images_path, const char *labels_path) {
    if (!images_path) {
        mirt__fail(MIRT_E_INVALID, "mirt_idx needs the path of a file of images");
        return NULL;
    }
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__idx_dataset), &mirt__idx_stage, NULL, false);
    if (!dataset) return NULL;
    if (mirt__idx_set((mirt__idx_dataset *)dataset, images_path, labels_path) == MIRT_OK) return dataset;
    return mirt__dataset_give_up(dataset, false);
}

/* directory/name or directory/name.gz, whichever is there first; false with the error set. */
static bool mirt__mnist_find(mirt__text *path, const char *directory, const char *name) {
    static const char *const endings[] = {"", ".gz"};
    const char *slash = *directory && directory[strlen(directory) - 1] == '/' ? "" : "/";
    for (int i = 0; i < MIRT__COUNT(endings); i++) {
        mirt__text_clear(path);
        mirt__text_add(path, "%s%s%s%s", directory, slash, name, endings[i]);
        if (path->failed) return false;
        if (mirt__file_exists(path->data)) return true; /* whether it can be opened is for mirt_idx to say */
    }
    mirt__fail(MIRT_E_NOT_FOUND,
               "%s: found neither %s nor %s.gz; put MNIST's four files there, from "
               "https://storage.googleapis.com/cvdf-datasets/mnist/",
               directory, name, name);
    return false;
}

MIRT_API mirt_dataset *mirt_mnist(const char *directory, mirt_split split) {
    if (!directory) {
        mirt__fail(MIRT_E_INVALID, "mirt_mnist needs a directory");
        return NULL;
    }
    if (split != MIRT_TRAIN && split != MIRT_TEST) {
        mirt__fail(MIRT_E_INVALID, "mirt_mnist has the splits MIRT_TRAIN and MIRT_TEST, not %d", (int)split);
        return NULL;
    }
    mirt__text images, labels;
    memset(&images, 0, sizeof images);
    memset(&labels, 0, sizeof labels);
    mirt_dataset *dataset = NULL;
    if (mirt__mnist_find(&images, directory, split == MIRT_TEST ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte") &&
        mirt__mnist_find(&labels, directory, split == MIRT_TEST ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte"))
        dataset = mirt__dataset_name_digits(mirt_idx(images.data, labels.data));
    mirt__text_free(&images);
    mirt__text_free(&labels);
    return dataset;
}

/* >>section data/digits.c */

/* Handwritten-looking digits, drawn: strokes through a few points, bent, slanted, turned, scaled and
   shifted at random, drawn with a round pen, with noise. All in integers, so that every compiler
   and machine draws the same pixels. */

#define MIRT__DIGIT_SIDE 28
#define MIRT__DIGIT_PIXELS (MIRT__DIGIT_SIDE * MIRT__DIGIT_SIDE)
/* Coordinates on the canvas are in 1/256 of a pixel. */
#define MIRT__DIGIT_ONE 256

/* Ways to write a digit: points x, y in a square of 100 by 100, y downwards; a curve goes through
   them, with a corner where a point stands twice. 255 ends a stroke, 254 the digit. */
static const unsigned char mirt__digit_ways[][32] = {
    {50, 10, 31, 24, 25, 50, 31, 77, 50, 90, 69, 77, 75, 50, 69, 24, 50, 10, 254},
    {64, 12, 40, 16, 27, 44, 30, 78, 50, 90, 70, 74, 73, 40, 58, 14, 46, 18, 254},
    {50, 10, 50, 50, 50, 90, 254},
    {36, 30, 52, 11, 52, 11, 51, 50, 50, 90, 254},
    {36, 26, 51, 11, 51, 11, 51, 89, 255, 34, 89, 68, 89, 254},
    {28, 30, 38, 13, 58, 11, 70, 27, 61, 49, 43, 70, 27, 88, 27, 88, 74, 87, 254},
    {29, 26, 43, 11, 63, 15, 68, 34, 54, 60, 34, 83, 27, 78, 38, 73, 56, 87, 75, 86, 254},
    {28, 19, 48, 10, 67, 21, 64, 39, 45, 47, 45, 47, 67, 56, 71, 74, 53, 90, 27, 82, 254},
    {28, 12, 28, 12, 70, 12, 70, 12, 46, 42, 46, 42, 68, 52, 72, 72, 54, 90, 28, 83, 254},
    {32, 12, 27, 54, 27, 54, 74, 53, 255, 63, 16, 61, 50, 59, 90, 254},
    {61, 90, 62, 50, 63, 10, 63, 10, 24, 62, 24, 62, 79, 61, 254},
    {70, 12, 37, 13, 37, 13, 33, 45, 33, 45, 54, 40, 72, 56, 68, 79, 48, 90, 27, 82, 254},
    {36, 14, 32, 48, 32, 48, 56, 44, 70, 60, 64, 82, 44, 90, 28, 80, 255, 36, 14, 72, 11, 254},
    {64, 11, 43, 29, 30, 56, 33, 80, 51, 90, 68, 79, 67, 60, 50, 52, 33, 64, 254},
    {50, 10, 35, 40, 31, 68, 40, 88, 58, 88, 68, 72, 56, 60, 34, 70, 254},
    {26, 14, 26, 14, 73, 13, 73, 13, 53, 50, 43, 90, 254},
    {27, 14, 27, 14, 74, 13, 74, 13, 55, 50, 44, 90, 255, 36, 52, 66, 49, 254},
    {50, 47, 33, 36, 33, 18, 50, 10, 67, 18, 66, 36, 50, 47, 30, 62, 30, 81, 50, 90, 70, 81, 69, 62, 50, 47, 254},
    {68, 22, 52, 10, 34, 20, 39, 40, 61, 57, 69, 76, 50, 90, 31, 76, 39, 58, 60, 40, 68, 22, 254},
    {68, 32, 54, 48, 34, 43, 30, 25, 46, 10, 64, 16, 68, 32, 66, 60, 60, 90, 254},
    {67, 28, 52, 46, 33, 38, 34, 18, 52, 10, 67, 22, 68, 50, 60, 80, 44, 90, 30, 82, 254},
};
static const unsigned char mirt__digit_first_way[11] = {0, 2, 5, 7, 9, 11, 13, 15, 17, 19, 21};

/* How one image is distorted: a second-degree map from the square to the canvas, then the pen. */
typedef struct mirt__digit_hand {
    int turn, slant;     /* tangents in 1/1024 */
    int width, height;   /* canvas units per unit of the square */
    int shift_x, shift_y;
    int bend[6];         /* coefficients of xx, xy, yy in x and in y, in 1/1024 of a half square */
    int wobble;          /* of single points, in the square's units */
    int pen;             /* radius */
    int ink, noise;      /* of 255 */
} mirt__digit_hand;

typedef struct mirt__digit_point {
    int x, y;
} mirt__digit_point;

static int mirt__digit_between(mirt__random *random, int low, int high) {
    return low + (int)mirt__random_below(random, (uint64_t)(high - low + 1));
}

static mirt__digit_hand mirt__digit_draw_hand(mirt__random *random) {
    mirt__digit_hand hand;
    hand.turn = mirt__digit_between(random, -300, 300);
    hand.slant = mirt__digit_between(random, -350, 350);
    hand.width = mirt__digit_between(random, 40, 78);
    hand.height = mirt__digit_between(random, 45, 76);
    hand.shift_x = mirt__digit_between(random, -2 * MIRT__DIGIT_ONE, 2 * MIRT__DIGIT_ONE);
    hand.shift_y = mirt__digit_between(random, -2 * MIRT__DIGIT_ONE, 2 * MIRT__DIGIT_ONE);
    for (int i = 0; i < 6; i++) hand.bend[i] = mirt__digit_between(random, -160, 160);
    hand.wobble = mirt__digit_between(random, 1, 6);
    hand.pen = mirt__digit_between(random, 170, 440);
    hand.ink = mirt__digit_between(random, 150, 255);
    hand.noise = mirt__digit_between(random, 0, 80);
    return hand;
}

static mirt__digit_point mirt__digit_place(const mirt__digit_hand *hand, mirt__random *random, int x, int y) {
    const int centre = MIRT__DIGIT_SIDE / 2 * MIRT__DIGIT_ONE;
    x += mirt__digit_between(random, -hand->wobble, hand->wobble) - 50;
    y += mirt__digit_between(random, -hand->wobble, hand->wobble) - 50;
    /* In 1/16 of the square's units from here on. */
    int xx = x * x, xy = x * y, yy = y * y;
    int bent_x = x * 16 + (hand->bend[0] * xx + hand->bend[1] * xy + hand->bend[2] * yy) * 16 / (50 * 1024);
    int bent_y = y * 16 + (hand->bend[3] * xx + hand->bend[4] * xy + hand->bend[5] * yy) * 16 / (50 * 1024);
    int wide = bent_x * hand->width / 16, high = bent_y * hand->height / 16;
    mirt__digit_point point;
    point.x = centre + hand->shift_x + wide - high * (hand->turn + hand->slant) / 1024;
    point.y = centre + hand->shift_y + high + wide * hand->turn / 1024;
    return point;
}

static int mirt__digit_clamp(int value, int low, int high) {
    return value < low ? low : value > high ? high : value;
}

/* The first pixel of the range [centre - reach, centre + reach], kept inside the canvas. */
static int mirt__digit_pixel(int coordinate) {
    return mirt__digit_clamp(coordinate, 0, MIRT__DIGIT_SIDE * MIRT__DIGIT_ONE - 1) / MIRT__DIGIT_ONE;
}

/* Darkens the pixels near the straight line from a to b: fully inside the pen, less and less over
   one pixel at its rim. */
static void mirt__digit_line(unsigned char *canvas, mirt__digit_point a, mirt__digit_point b, int pen) {
    const int half = MIRT__DIGIT_ONE / 2;
    int reach = pen + half;
    int outer = reach * reach, inner = (pen - half) * (pen - half);
    int dx = b.x - a.x, dy = b.y - a.y;
    int64_t length2 = (int64_t)dx * dx + (int64_t)dy * dy;
    int64_t inverse = length2 > 0 ? ((int64_t)1 << 40) / length2 : 0;
    int left = mirt__digit_pixel((a.x < b.x ? a.x : b.x) - reach), right = mirt__digit_pixel((a.x < b.x ? b.x : a.x) + reach);
    int top = mirt__digit_pixel((a.y < b.y ? a.y : b.y) - reach), bottom = mirt__digit_pixel((a.y < b.y ? b.y : a.y) + reach);
    for (int row = top; row <= bottom; row++) {
        for (int column = left; column <= right; column++) {
            int x = column * MIRT__DIGIT_ONE + half - a.x, y = row * MIRT__DIGIT_ONE + half - a.y;
            int64_t along = (int64_t)x * dx + (int64_t)y * dy;
            along = along < 0 ? 0 : along > length2 ? length2 : along;
            int part = (int)((along * inverse) >> 32); /* of the line, in 1/256 */
            int64_t away_x = x - dx * part / 256, away_y = y - dy * part / 256;
            int64_t away2 = away_x * away_x + away_y * away_y;
            if (away2 >= outer) continue;
            int shade = away2 <= inner ? 255 : (int)(255 * (outer - away2) / (outer - inner));
            unsigned char *pixel = &canvas[row * MIRT__DIGIT_SIDE + column];
            if (shade > *pixel) *pixel = (unsigned char)shade;
        }
    }
}

/* Catmull-Rom: from b to c, with a before and d after. `part` of 4. */
static int mirt__digit_spline(int a, int b, int c, int d, int part) {
    int t = part, t2 = t * t, t3 = t2 * t;
    return (2 * b * 64 + (c - a) * t * 16 + (2 * a - 5 * b + 4 * c - d) * t2 * 4 + (3 * b - a - 3 * c + d) * t3) / 128;
}

static void mirt__digit_stroke(unsigned char *canvas, const mirt__digit_point *point, int count, int pen) {
    const int parts = 4;
    mirt__digit_point from = point[0];
    for (int i = 0; i + 1 < count; i++) {
        mirt__digit_point a = point[i > 0 ? i - 1 : 0], b = point[i], c = point[i + 1], d = point[i + 2 < count ? i + 2 : i + 1];
        for (int part = 1; part <= parts; part++) {
            mirt__digit_point to;
            to.x = mirt__digit_spline(a.x, b.x, c.x, d.x, part);
            to.y = mirt__digit_spline(a.y, b.y, c.y, d.y, part);
            if (to.x != from.x || to.y != from.y) mirt__digit_line(canvas, from, to, pen);
            from = to;
        }
    }
}

static void mirt__digit_add_noise(unsigned char *canvas, const mirt__digit_hand *hand, mirt__random *random) {
    uint32_t word = 0;
    for (int i = 0; i < MIRT__DIGIT_PIXELS; i++) {
        if (i % 4 == 0) word = mirt__random_u32(random);
        int grain = (int)(word & 255) - 128;
        word >>= 8;
        canvas[i] = (unsigned char)mirt__digit_clamp(canvas[i] * hand->ink / 255 + grain * hand->noise / 128, 0, 255);
    }
}

static void mirt__digit_draw(unsigned char *canvas, int digit, mirt__random *random) {
    mirt__digit_point points[16];
    int first = mirt__digit_first_way[digit], last = mirt__digit_first_way[digit + 1] - 1, count = 0;
    const unsigned char *way = mirt__digit_ways[mirt__digit_between(random, first, last)];
    mirt__digit_hand hand = mirt__digit_draw_hand(random);
    memset(canvas, 0, MIRT__DIGIT_PIXELS);
    for (bool more = true; more;) {
        if (*way >= 254) {
            mirt__digit_stroke(canvas, points, count, hand.pen);
            count = 0;
            more = *way++ == 255;
        } else if (count > 0 && way[0] == way[-2] && way[1] == way[-1]) {
            points[count] = points[count - 1]; /* a corner stays one */
            count++;
            way += 2;
        } else {
            points[count++] = mirt__digit_place(&hand, random, way[0], way[1]);
            way += 2;
        }
    }
    mirt__digit_add_noise(canvas, &hand, random);
}

static mirt_status mirt__digits_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__block_dataset *block = (mirt__block_dataset *)dataset;
    (void)seed;
    (void)epoch;
    if (dataset->slot.block) return MIRT_OK;
    mirt_status status = mirt__slot_create(&dataset->slot, &dataset->spec, dataset->spec.samples, true);
    if (status != MIRT_OK) return status;
    unsigned char *x = (unsigned char *)dataset->slot.field[0], *y = (unsigned char *)dataset->slot.field[1];
    for (int64_t i = 0; i < dataset->spec.samples; i++) {
        /* One stream an image: splits have different ones, and more images leave the first as they were. */
        uint64_t key = mirt__hash("digits") ^ ((uint64_t)i * 2 + (uint64_t)block->split);
        mirt__random random = mirt__random_stream(block->seed, key);
        int digit = (int)mirt__random_below(&random, 10);
        mirt__digit_draw(x + i * MIRT__DIGIT_PIXELS, digit, &random);
        y[i] = (unsigned char)digit;
        dataset->slot.index[i] = i;
    }
    mirt__block_from_slot(block);
    return MIRT_OK;
}

static const mirt__stage mirt__digits_stage = {mirt__digits_begin, mirt__dataset_next_at, mirt__block_at, NULL, NULL, NULL};

MIRT_API mirt_dataset *mirt_drawn_digits(int64_t count, uint64_t seed, mirt_split split) {
    if (split != MIRT_TRAIN && split != MIRT_TEST) {
        mirt__fail(MIRT_E_INVALID, "mirt_drawn_digits has the splits MIRT_TRAIN and MIRT_TEST, not %d", (int)split);
        return NULL;
    }
    if (count < 1) {
        mirt__fail(MIRT_E_INVALID, "mirt_drawn_digits needs a count of at least 1, not %lld", (long long)count);
        return NULL;
    }
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__block_dataset), &mirt__digits_stage, NULL, false);
    if (!dataset) return NULL;
    mirt__block_dataset *block = (mirt__block_dataset *)dataset;
    block->seed = seed;
    block->split = split;
    dataset->contiguous = true;
    mirt__data_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.num_x = spec.num_y = 1;
    mirt__data_add_field(&spec, MIRT_UINT8, mirt_make_shape(MIRT__DIGIT_SIDE, MIRT__DIGIT_SIDE, 1, 0, 0, 0));
    mirt__data_add_field(&spec, MIRT_UINT8, mirt_make_shape(0, 0, 0, 0, 0, 0));
    spec.samples = count;
    if (mirt__dataset_set_spec(dataset, &spec) != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    return mirt__dataset_name_digits(dataset);
}

#undef MIRT__DIGIT_SIDE
#undef MIRT__DIGIT_PIXELS
#undef MIRT__DIGIT_ONE

/* >>section formats/json.h */

#ifndef MIRT__JSON_H
#define MIRT__JSON_H
/* A strict JSON reader (RFC 8259) and the two writers that need care. Neither depends on the
   locale. */

#define MIRT__JSON_DEPTH 64          /* containers inside each other */
#define MIRT__JSON_VALUES (1 << 21)  /* values of one text: bounds the memory a hostile text costs */
#define MIRT__JSON_DIGITS 128        /* characters of one number */

typedef enum mirt__json_type {
    MIRT__JSON_NULL = 0, MIRT__JSON_BOOL, MIRT__JSON_NUMBER, MIRT__JSON_STRING, MIRT__JSON_ARRAY, MIRT__JSON_OBJECT
} mirt__json_type;

typedef struct mirt__json {
    mirt__json_type type;
    bool truth;
    bool integral;           /* written without fraction or exponent, and fits `integer` */
    int64_t integer;
    double number;
    const char *string;      /* UTF-8 that ends in 0 and has no other 0 */
    const char *key;         /* of a member of an object */
    size_t offset;           /* of the value's first byte in the text */
    size_t count;            /* items or members */
    struct mirt__json **item; /* in the order of the text */
    struct mirt__json **by_key; /* members in the order of their keys */
    struct mirt__json *next; /* the item or member behind this one */
} mirt__json;

/* The whole of `text` as one value allocated from `pool`, or NULL with the error set
   (MIRT_E_FORMAT with the offset, MIRT_E_NOMEM); then `pool` may hold parts. Two members of the
   same name, invalid UTF-8, U+0000 and numbers beyond double are errors. */
MIRT__LIB mirt__json *mirt__json_parse(mirt__pool *pool, const char *text, size_t size);
/* The member of an object, or NULL, without an error, when there is none. */
MIRT__LIB const mirt__json *mirt__json_member(const mirt__json *object, const char *key);
/* The member, which must be there and of that type; NULL with the error set. */
MIRT__LIB const mirt__json *mirt__json_get(const mirt__json *object, const char *key, mirt__json_type type);
/* An integer member in [minimum, maximum]. */
MIRT__LIB mirt_status mirt__json_get_int(const mirt__json *object, const char *key, int64_t minimum, int64_t maximum,
                                         int64_t *out);
MIRT__LIB const char *mirt__json_type_name(mirt__json_type type);

/* A quoted string; `value` should be UTF-8. */
MIRT__LIB void mirt__json_write_string(mirt__text *text, const char *value);
/* The first of integer, %.9g and %.17g that reads back as the same double; null when not finite. */
MIRT__LIB void mirt__json_write_number(mirt__text *text, double value);

#define MIRT__JSON_LABEL 80
/* The beginning of a foreign name, safe to print in a message: cut between characters, control
   characters replaced. Returns `out`. */
MIRT__LIB const char *mirt__json_label(const char *name, char out[MIRT__JSON_LABEL]);

/* Bytes of the UTF-8 sequence at `at`, of which `size` may be read; 0 when it is invalid. */
MIRT__LIB int mirt__utf8_length(const char *at, size_t size);
MIRT__LIB bool mirt__utf8_valid(const char *text, size_t size);

#endif

/* >>section formats/safetensors.h */

#ifndef MIRT__SAFETENSORS_H
#define MIRT__SAFETENSORS_H
/* The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes, all little
   endian. Files written here also carry checksums in their metadata:
     mirrortrain.crc32c  JSON, {"tensor": "8 hexadecimal digits"}: CRC-32C of each tensor's bytes
     mirrortrain.sha256  SHA-256 of all tensor bytes, 64 digits
     mirrortrain.header  CRC-32C of the header in which these 8 digits are zeros
   A reader that finds one of them expects all three and verifies them. Files without them, as
   other programs write, are read as well. */

#define MIRT__ST_RANK 8
#define MIRT__ST_HEADER_LIMIT 100000000

/* Name and bytes of an element. */
#define MIRT__ST_DTYPE_LIST(X) \
    X(BOOL, 1) X(U8, 1) X(I8, 1) X(F8_E5M2, 1) X(F8_E4M3, 1) X(F8_E8M0, 1) X(I16, 2) X(U16, 2) X(F16, 2) X(BF16, 2) \
    X(I32, 4) X(U32, 4) X(F32, 4) X(C64, 8) X(F64, 8) X(I64, 8) X(U64, 8)

typedef enum mirt__st_dtype {
#define MIRT__ST_ENUM(name, size) MIRT__ST_##name,
    MIRT__ST_DTYPE_LIST(MIRT__ST_ENUM)
#undef MIRT__ST_ENUM
    MIRT__ST_DTYPE_COUNT
} mirt__st_dtype;

typedef struct mirt__safetensor {
    const char *name;
    mirt__st_dtype dtype;
    int rank;
    int64_t dim[MIRT__ST_RANK];
    size_t size;      /* bytes; filled in by the reader, computed by the writer */
    const void *data; /* when read: not aligned to anything */
} mirt__safetensor;

/* A file that was read. */
typedef struct mirt__safetensors {
    mirt__safetensor *tensor; /* in the header's order */
    int count;
    const mirt__json *metadata; /* an object of strings, or NULL */
    const unsigned char *data;  /* bytes of all tensors */
    size_t data_size;
    char sha256[MIRT__SHA256_HEX]; /* of these, "" when the file does not tell */
    const char *origin;         /* the path, or "memory" */
    unsigned char *owned;
    mirt__pool pool;
} mirt__safetensors;

/* Reads and checks a whole file, or a block that stays borrowed until close. Any failure closes
   the file; the message names it, the tensor, and what is wrong (MIRT_E_FORMAT). */
MIRT__LIB mirt_status mirt__safetensors_open(mirt__safetensors *file, const char *path);
MIRT__LIB mirt_status mirt__safetensors_open_memory(mirt__safetensors *file, const void *data, size_t size);
MIRT__LIB void mirt__safetensors_close(mirt__safetensors *file);
/* NULL, without an error, when there is none of that name. */
MIRT__LIB const mirt__safetensor *mirt__safetensors_find(const mirt__safetensors *file, const char *name);
MIRT__LIB const char *mirt__safetensors_metadata(const mirt__safetensors *file, const char *key);

MIRT__LIB const char *mirt__st_dtype_name(mirt__st_dtype dtype);
MIRT__LIB size_t mirt__st_dtype_size(mirt__st_dtype dtype);
#define MIRT__ST_SHAPE_TEXT 192
/* "(3, 3, 1, 32)" into `out`, which is also returned. */
MIRT__LIB const char *mirt__st_shape_text(const mirt__safetensor *tensor, char out[MIRT__ST_SHAPE_TEXT]);
/* Bytes that dtype and shape ask for; false on overflow. */
MIRT__LIB bool mirt__st_bytes(const mirt__safetensor *tensor, size_t *out);

/* What to write. Tensors come in the given order, packed. */
typedef struct mirt__safetensors_content {
    const mirt__safetensor *tensor; /* `size` is ignored */
    int count;
    const char *const *metadata; /* key, value, key, value, ... */
    int metadata_count;          /* pairs */
    /* Provides the bytes of tensors whose data is NULL, once each and in order; they stay valid
       until the next call. Fails with the error set. */
    mirt_status (*fetch)(void *user, int index, const void **data);
    void *user;
} mirt__safetensors_content;

/* Replaces `path` atomically. The same content gives the same bytes. */
MIRT__LIB mirt_status mirt__safetensors_write(const char *path, const mirt__safetensors_content *content);

#endif

/* >>section formats/json.c */

typedef struct mirt__json_reader {
    mirt__pool *pool;
    const char *text;
    size_t size, at;
    int depth, values;
} mirt__json_reader;

static mirt__json *mirt__json_read_value(mirt__json_reader *in);

static mirt__json *mirt__json_bad(size_t offset, const char *what) {
    mirt__fail(MIRT_E_FORMAT, "JSON at offset %zu: %s", offset, what);
    return NULL;
}

MIRT__LIB int mirt__utf8_length(const char *at, size_t size) {
    const unsigned char *s = (const unsigned char *)at;
    unsigned char low = 0x80, high = 0xBF; /* range of the second byte */
    int length;
    if (size == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) length = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF) length = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4) length = 4;
    else return 0;
    if (s[0] == 0xE0) low = 0xA0;  /* shorter forms exist */
    if (s[0] == 0xED) high = 0x9F; /* surrogates */
    if (s[0] == 0xF0) low = 0x90;
    if (s[0] == 0xF4) high = 0x8F; /* beyond U+10FFFF */
    if (size < (size_t)length || s[1] < low || s[1] > high) return 0;
    for (int i = 2; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return length;
}

MIRT__LIB bool mirt__utf8_valid(const char *text, size_t size) {
    while (size > 0) {
        int length = mirt__utf8_length(text, size);
        if (length == 0) return false;
        text += length;
        size -= (size_t)length;
    }
    return true;
}

MIRT__LIB const char *mirt__json_label(const char *name, char out[MIRT__JSON_LABEL]) {
    size_t used = 0, left = strlen(name);
    while (left > 0) {
        int length = mirt__utf8_length(name, left);
        bool plain = length > 0 && (unsigned char)*name >= 0x20 && *name != 0x7F;
        if (length == 0) length = 1;
        if (used + (size_t)length + 4 > MIRT__JSON_LABEL) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (plain) memcpy(out + used, name, (size_t)length);
        else out[used] = '?';
        used += (size_t)length;
        name += length;
        left -= (size_t)length;
    }
    out[used] = 0;
    return out;
}

static void mirt__json_skip_space(mirt__json_reader *in) {
    while (in->at < in->size && in->text[in->at] != 0 && strchr(" \t\n\r", in->text[in->at])) in->at++;
}

/* Steps over `c` if it is next, after white space. */
static bool mirt__json_accept(mirt__json_reader *in, char c) {
    mirt__json_skip_space(in);
    if (in->at == in->size || in->text[in->at] != c) return false;
    in->at++;
    return true;
}

/* Four hexadecimal digits at `at`, or -1. */
static int mirt__json_hex4(const mirt__json_reader *in, size_t at) {
    int value = 0;
    if (in->size < 4 || at > in->size - 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        char c = in->text[i];
        if (c >= '0' && c <= '9') value = value * 16 + (c - '0');
        else if (c >= 'a' && c <= 'f') value = value * 16 + (c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') value = value * 16 + (c - 'A' + 10);
        else return -1;
    }
    return value;
}

static char *mirt__json_put_utf8(char *out, int code) {
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 63));
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    }
    return out;
}

/* The escape whose backslash is at in->at; writes to `out` and returns its new end, or NULL. */
static char *mirt__json_read_escape(mirt__json_reader *in, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = in->at++;
    char kind = in->text[in->at++]; /* there is one: the closing quote was found behind it */
    const char *known = kind ? strchr(from, kind) : NULL;
    if (known) {
        *out++ = to[known - from];
        return out;
    }
    int code = kind == 'u' ? mirt__json_hex4(in, in->at) : -1;
    if (code >= 0) in->at += 4;
    if (code >= 0xD800 && code <= 0xDBFF) {
        bool pair = in->size - in->at >= 2 && in->text[in->at] == '\\' && in->text[in->at + 1] == 'u';
        int second = pair ? mirt__json_hex4(in, in->at + 2) : -1;
        code = second >= 0xDC00 && second <= 0xDFFF ? 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00) : -2;
        in->at += 6;
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        code = -2;
    }
    if (code > 0) return mirt__json_put_utf8(out, code);
    mirt__json_bad(start, code == -1 ? "unknown escape in a string"
                        : code == -2 ? "half of a surrogate pair" : "U+0000 in a string is not supported");
    return NULL;
}

/* The string whose opening quote is at in->at, decoded; NULL with the error set. */
static const char *mirt__json_read_string(mirt__json_reader *in) {
    size_t start = in->at++, end = in->at;
    while (end < in->size && in->text[end] != '"') end += in->text[end] == '\\' ? 2 : 1;
    if (end >= in->size) {
        mirt__json_bad(start, "string without an end");
        return NULL;
    }
    char *value = (char *)mirt__pool_alloc(in->pool, end - start); /* escapes never grow when decoded */
    char *out = value;
    if (!value) return NULL;
    while (in->at < end) {
        if (in->text[in->at] == '\\') {
            out = mirt__json_read_escape(in, out);
            if (!out) return NULL;
            continue;
        }
        int length = mirt__utf8_length(in->text + in->at, end - in->at);
        if (length == 0 || (unsigned char)in->text[in->at] < 0x20) {
            mirt__json_bad(in->at, length == 0 ? "invalid UTF-8" : "control character in a string");
            return NULL;
        }
        for (; length > 0; length--) *out++ = in->text[in->at++];
    }
    in->at = end + 1;
    return value;
}

static bool mirt__json_digit(const mirt__json_reader *in, size_t at) {
    return at < in->size && in->text[at] >= '0' && in->text[at] <= '9';
}

/* Where the number at `at` ends by JSON's grammar, or `at` itself if there is none. */
static size_t mirt__json_number_end(const mirt__json_reader *in, size_t at, bool *integral) {
    size_t begin = at;
    *integral = true;
    if (at < in->size && in->text[at] == '-') at++;
    if (!mirt__json_digit(in, at)) return begin;
    if (in->text[at] == '0') at++;
    else while (mirt__json_digit(in, at)) at++;
    if (at < in->size && in->text[at] == '.') {
        *integral = false;
        if (!mirt__json_digit(in, ++at)) return begin;
        while (mirt__json_digit(in, at)) at++;
    }
    if (at < in->size && (in->text[at] == 'e' || in->text[at] == 'E')) {
        *integral = false;
        at++;
        if (at < in->size && (in->text[at] == '+' || in->text[at] == '-')) at++;
        if (!mirt__json_digit(in, at)) return begin;
        while (mirt__json_digit(in, at)) at++;
    }
    return at;
}

static bool mirt__json_to_int(const char *digits, int64_t *out) {
    bool negative = *digits == '-';
    int64_t value = 0;
    for (digits += negative; *digits; digits++) {
        int digit = *digits - '0';
        /* Counted downwards, because the smallest integer has no positive twin. */
        if (value < (INT64_MIN + digit) / 10) return false;
        value = value * 10 - digit;
    }
    if (!negative && value == INT64_MIN) return false;
    *out = negative ? value : -value;
    return true;
}

/* What stands between 0 and 5 when the C library prints a half: the locale's decimal point. */
static void mirt__json_decimal_point(char out[16]) {
    char half[16];
    snprintf(half, sizeof half, "%.1f", 0.5);
    size_t length = strlen(half);
    memcpy(out, half + 1, length - 2);
    out[length - 2] = 0;
}

static bool mirt__json_to_double(const char *digits, double *out) {
    char local[MIRT__JSON_DIGITS + 16], point[16];
    const char *dot = strchr(digits, '.');
    mirt__json_decimal_point(point);
    int before = dot ? (int)(dot - digits) : (int)strlen(digits);
    snprintf(local, sizeof local, "%.*s%s%s", before, digits, dot ? point : "", dot ? dot + 1 : "");
    *out = strtod(local, NULL);
    return isfinite(*out);
}

static mirt__json *mirt__json_read_number(mirt__json_reader *in, mirt__json *node) {
    char digits[MIRT__JSON_DIGITS + 1];
    size_t end = mirt__json_number_end(in, in->at, &node->integral), length = end - in->at;
    if (length == 0) return mirt__json_bad(in->at, "expected a value");
    if (length > MIRT__JSON_DIGITS) return mirt__json_bad(in->at, "number of more than 128 characters");
    memcpy(digits, in->text + in->at, length);
    digits[length] = 0;
    node->type = MIRT__JSON_NUMBER;
    if (!mirt__json_to_double(digits, &node->number)) return mirt__json_bad(in->at, "number too large for a double");
    if (node->integral) node->integral = mirt__json_to_int(digits, &node->integer);
    in->at = end;
    return node;
}

static bool mirt__json_accept_word(mirt__json_reader *in, const char *word) {
    size_t length = strlen(word);
    if (in->size - in->at < length || memcmp(in->text + in->at, word, length) != 0) return false;
    in->at += length;
    return true;
}

/* qsort's comparison of two members. */
static int mirt__json_compare_keys(const void *a, const void *b) {
    return strcmp((*(mirt__json *const *)a)->key, (*(mirt__json *const *)b)->key);
}

/* Turns the list of items that begins at `first` into the node's arrays. */
static mirt__json *mirt__json_index(mirt__json_reader *in, mirt__json *node, mirt__json *first) {
    if (node->count == 0) return node;
    size_t bytes = node->count * sizeof(mirt__json *);
    node->item = (mirt__json **)mirt__pool_alloc(in->pool, bytes);
    if (!node->item) return NULL;
    for (size_t i = 0; i < node->count; i++, first = first->next) node->item[i] = first;
    if (node->type != MIRT__JSON_OBJECT) return node;
    node->by_key = (mirt__json **)mirt__pool_alloc(in->pool, bytes);
    if (!node->by_key) return NULL;
    memcpy(node->by_key, node->item, bytes);
    qsort(node->by_key, node->count, sizeof(mirt__json *), mirt__json_compare_keys);
    for (size_t i = 1; i < node->count; i++) {
        const mirt__json *a = node->by_key[i - 1], *b = node->by_key[i];
        if (strcmp(a->key, b->key) != 0) continue;
        char label[MIRT__JSON_LABEL];
        mirt__fail(MIRT_E_FORMAT, "JSON at offset %zu: the name \"%s\" appears twice",
                   a->offset > b->offset ? a->offset : b->offset, mirt__json_label(a->key, label));
        return NULL;
    }
    return node;
}

/* "name": ahead of a member's value; NULL with the error set. */
static const char *mirt__json_read_key(mirt__json_reader *in) {
    mirt__json_skip_space(in);
    if (in->at == in->size || in->text[in->at] != '"') {
        mirt__json_bad(in->at, "expected a member's name");
        return NULL;
    }
    const char *key = mirt__json_read_string(in);
    if (!key) return NULL;
    if (mirt__json_accept(in, ':')) return key;
    mirt__json_bad(in->at, "expected ':' behind a member's name");
    return NULL;
}

/* An array or object whose opening bracket has been read. */
static mirt__json *mirt__json_read_container(mirt__json_reader *in, mirt__json *node) {
    bool object = in->text[in->at - 1] == '{';
    mirt__json *first = NULL, *last = NULL;
    node->type = object ? MIRT__JSON_OBJECT : MIRT__JSON_ARRAY;
    if (++in->depth > MIRT__JSON_DEPTH) return mirt__json_bad(in->at - 1, "nested more than 64 levels deep");
    if (!mirt__json_accept(in, object ? '}' : ']')) {
        do {
            const char *key = object ? mirt__json_read_key(in) : NULL;
            mirt__json *item = object && !key ? NULL : mirt__json_read_value(in);
            if (!item) return NULL;
            item->key = key;
            if (last) last->next = item;
            else first = item;
            last = item;
            node->count++;
        } while (mirt__json_accept(in, ','));
        if (!mirt__json_accept(in, object ? '}' : ']'))
            return mirt__json_bad(in->at, object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    in->depth--;
    return mirt__json_index(in, node, first);
}

static mirt__json *mirt__json_read_value(mirt__json_reader *in) {
    mirt__json_skip_space(in);
    if (in->at == in->size) return mirt__json_bad(in->at, "the text ends where a value is expected");
    if (++in->values > MIRT__JSON_VALUES) return mirt__json_bad(in->at, "more than 2097152 values");
    mirt__json *node = (mirt__json *)mirt__pool_alloc(in->pool, sizeof(mirt__json));
    if (!node) return NULL;
    node->offset = in->at;
    char c = in->text[in->at];
    if (c == '{' || c == '[') {
        in->at++;
        return mirt__json_read_container(in, node);
    }
    if (c == '"') {
        node->type = MIRT__JSON_STRING;
        node->string = mirt__json_read_string(in);
        return node->string ? node : NULL;
    }
    if (mirt__json_accept_word(in, "null")) return node;
    node->truth = mirt__json_accept_word(in, "true");
    if (!node->truth && !mirt__json_accept_word(in, "false")) return mirt__json_read_number(in, node);
    node->type = MIRT__JSON_BOOL;
    return node;
}

MIRT__LIB mirt__json *mirt__json_parse(mirt__pool *pool, const char *text, size_t size) {
    mirt__json_reader in = {pool, text, size, 0, 0, 0};
    mirt__json *root = mirt__json_read_value(&in);
    if (!root) return NULL;
    mirt__json_skip_space(&in);
    return in.at == size ? root : mirt__json_bad(in.at, "something follows the value");
}

MIRT__LIB const mirt__json *mirt__json_member(const mirt__json *object, const char *key) {
    size_t low = 0, high = object->type == MIRT__JSON_OBJECT ? object->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(key, object->by_key[middle]->key);
        if (order == 0) return object->by_key[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

MIRT__LIB const char *mirt__json_type_name(mirt__json_type type) {
    static const char *const names[] = {"null", "true or false", "a number", "a string", "an array", "an object"};
    return names[type];
}

MIRT__LIB const mirt__json *mirt__json_get(const mirt__json *object, const char *key, mirt__json_type type) {
    const mirt__json *member = mirt__json_member(object, key);
    if (member && member->type == type) return member;
    if (!member) mirt__fail(MIRT_E_FORMAT, "\"%s\" is missing", key);
    else mirt__fail(MIRT_E_FORMAT, "\"%s\" is %s, but must be %s", key, mirt__json_type_name(member->type),
                    mirt__json_type_name(type));
    return NULL;
}

MIRT__LIB mirt_status mirt__json_get_int(const mirt__json *object, const char *key, int64_t minimum, int64_t maximum,
                                         int64_t *out) {
    const mirt__json *member = mirt__json_get(object, key, MIRT__JSON_NUMBER);
    if (!member) return mirt_last_status();
    if (!member->integral || member->integer < minimum || member->integer > maximum)
        return mirt__fail(MIRT_E_FORMAT, "\"%s\" must be an integer from %lld to %lld", key, (long long)minimum,
                          (long long)maximum);
    *out = member->integer;
    return MIRT_OK;
}

MIRT__LIB void mirt__json_write_string(mirt__text *text, const char *value) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    mirt__text_add_bytes(text, "\"", 1);
    while (*value) {
        size_t plain = 0;
        while ((unsigned char)value[plain] >= 0x20 && value[plain] != '"' && value[plain] != '\\') plain++;
        mirt__text_add_bytes(text, value, plain);
        value += plain;
        if (!*value) break;
        const char *known = strchr(from, *value);
        if (known) mirt__text_add(text, "\\%c", to[known - from]);
        else mirt__text_add(text, "\\u%04x", (unsigned)(unsigned char)*value);
        value++;
    }
    mirt__text_add_bytes(text, "\"", 1);
}

MIRT__LIB void mirt__json_write_number(mirt__text *text, double value) {
    char digits[64], point[16];
    if (!isfinite(value)) {
        mirt__text_add(text, "null");
        return;
    }
    if (fabs(value) < 9007199254740992.0 && value == floor(value) && !(value == 0 && signbit(value))) {
        mirt__text_add(text, "%lld", (long long)value);
        return;
    }
    snprintf(digits, sizeof digits, "%.9g", value);
    if (strtod(digits, NULL) != value) snprintf(digits, sizeof digits, "%.17g", value);
    mirt__json_decimal_point(point);
    char *comma = strstr(digits, point);
    int before = comma ? (int)(comma - digits) : (int)strlen(digits);
    mirt__text_add(text, "%.*s%s%s", before, digits, comma ? "." : "", comma ? comma + strlen(point) : "");
}

/* >>section formats/safetensors.c */

/* Reading: nothing in a file is believed before it was checked. */

#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "tensors are read and written in place, which needs a little-endian machine"
#endif

static const struct {
    const char *name;
    size_t size;
} mirt__st_dtypes[MIRT__ST_DTYPE_COUNT] = {
#define MIRT__ST_ROW(name, size) {#name, size},
    MIRT__ST_DTYPE_LIST(MIRT__ST_ROW)
#undef MIRT__ST_ROW
};

MIRT__LIB const char *mirt__st_dtype_name(mirt__st_dtype dtype) {
    return mirt__st_dtypes[dtype].name;
}

MIRT__LIB size_t mirt__st_dtype_size(mirt__st_dtype dtype) {
    return mirt__st_dtypes[dtype].size;
}

MIRT__LIB bool mirt__st_bytes(const mirt__safetensor *tensor, size_t *out) {
    size_t bytes = mirt__st_dtype_size(tensor->dtype);
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->dim[i] < 0 || (uint64_t)tensor->dim[i] > SIZE_MAX / 2) return false;
        if (!mirt__mul_size(bytes, (size_t)tensor->dim[i], &bytes)) return false;
    }
    *out = bytes;
    return bytes <= SIZE_MAX / 2;
}

MIRT__LIB const char *mirt__st_shape_text(const mirt__safetensor *tensor, char out[MIRT__ST_SHAPE_TEXT]) {
    size_t used = 1;
    out[0] = '(';
    for (int i = 0; i < tensor->rank; i++)
        used += (size_t)snprintf(out + used, MIRT__ST_SHAPE_TEXT - used, "%s%lld", i ? ", " : "",
                                 (long long)tensor->dim[i]);
    out[used] = ')';
    out[used + 1] = 0;
    return out;
}

/* "origin: tensor: what", the tensor being NULL when the whole file is meant. */
static mirt_status mirt__st_bad(const mirt__safetensors *file, const char *tensor, const char *format, ...)
    MIRT__PRINTF(3, 4);
static mirt_status mirt__st_bad(const mirt__safetensors *file, const char *tensor, const char *format, ...) {
    char what[400], label[MIRT__JSON_LABEL];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return mirt__fail(MIRT_E_FORMAT, "%s: %s%s%s", file->origin, tensor ? mirt__json_label(tensor, label) : "",
                      tensor ? ": " : "", what);
}

/* The current error, put into words as mirt__st_bad does. */
static mirt_status mirt__st_bad_json(const mirt__safetensors *file, const char *tensor) {
    char label[MIRT__JSON_LABEL];
    return mirt__fail_at("%s: %s", file->origin, mirt__json_label(tensor, label));
}

static mirt_status mirt__st_read_dtype(const mirt__safetensors *file, const mirt__json *node,
                                       mirt__safetensor *tensor) {
    char label[MIRT__JSON_LABEL];
    const mirt__json *dtype = mirt__json_get(node, "dtype", MIRT__JSON_STRING);
    if (!dtype) return mirt__st_bad_json(file, node->key);
    for (int i = 0; i < MIRT__ST_DTYPE_COUNT; i++) {
        if (strcmp(dtype->string, mirt__st_dtypes[i].name) != 0) continue;
        tensor->dtype = (mirt__st_dtype)i;
        return MIRT_OK;
    }
    return mirt__st_bad(file, node->key, "dtype \"%s\" is not one that is known here (such as F32, I32, U8)",
                        mirt__json_label(dtype->string, label));
}

static mirt_status mirt__st_read_shape(const mirt__safetensors *file, const mirt__json *node,
                                       mirt__safetensor *tensor) {
    char text[MIRT__ST_SHAPE_TEXT];
    const mirt__json *shape = mirt__json_get(node, "shape", MIRT__JSON_ARRAY);
    if (!shape) return mirt__st_bad_json(file, node->key);
    if (shape->count > MIRT__ST_RANK)
        return mirt__st_bad(file, node->key, "shape has %zu dimensions, but at most %d are supported", shape->count,
                            MIRT__ST_RANK);
    for (size_t i = 0; i < shape->count; i++) {
        const mirt__json *dim = shape->item[i];
        if (dim->type != MIRT__JSON_NUMBER || !dim->integral || dim->integer < 0)
            return mirt__st_bad(file, node->key, "shape[%zu] must be a whole number from 0 to %lld", i,
                                (long long)INT64_MAX);
        tensor->dim[tensor->rank++] = dim->integer;
    }
    if (mirt__st_bytes(tensor, &tensor->size)) return MIRT_OK;
    return mirt__st_bad(file, node->key, "shape %s of %s has more bytes than can be addressed",
                        mirt__st_shape_text(tensor, text), mirt__st_dtype_name(tensor->dtype));
}

static mirt_status mirt__st_read_offsets(const mirt__safetensors *file, const mirt__json *node,
                                         mirt__safetensor *tensor) {
    char text[MIRT__ST_SHAPE_TEXT];
    uint64_t offset[2] = {0, 0};
    const mirt__json *pair = mirt__json_get(node, "data_offsets", MIRT__JSON_ARRAY);
    if (!pair) return mirt__st_bad_json(file, node->key);
    if (pair->count != 2)
        return mirt__st_bad(file, node->key, "data_offsets has %zu items, but must have 2", pair->count);
    for (int i = 0; i < 2; i++) {
        const mirt__json *item = pair->item[i];
        if (item->type != MIRT__JSON_NUMBER || !item->integral || item->integer < 0)
            return mirt__st_bad(file, node->key, "data_offsets[%d] must be a whole number from 0 to %zu", i,
                                file->data_size);
        offset[i] = (uint64_t)item->integer;
    }
    unsigned long long begin = offset[0], end = offset[1];
    if (begin > end)
        return mirt__st_bad(file, node->key, "data_offsets [%llu, %llu] end before they begin", begin, end);
    if (end > file->data_size)
        return mirt__st_bad(file, node->key, "data_offsets [%llu, %llu] go beyond the %zu bytes of tensor data", begin,
                            end, file->data_size);
    if (end - begin != tensor->size)
        return mirt__st_bad(file, node->key, "data_offsets [%llu, %llu] hold %llu bytes, shape %s of %s needs %zu", begin,
                            end, end - begin, mirt__st_shape_text(tensor, text), mirt__st_dtype_name(tensor->dtype),
                            tensor->size);
    tensor->data = file->data + begin;
    return MIRT_OK;
}

static mirt_status mirt__st_read_metadata(mirt__safetensors *file, const mirt__json *node) {
    if (node->type != MIRT__JSON_OBJECT)
        return mirt__st_bad(file, node->key, "is %s, but must be an object", mirt__json_type_name(node->type));
    for (size_t i = 0; i < node->count; i++)
        if (node->item[i]->type != MIRT__JSON_STRING)
            return mirt__st_bad(file, node->item[i]->key, "this metadata is %s, but must be a string",
                                mirt__json_type_name(node->item[i]->type));
    file->metadata = node;
    return MIRT_OK;
}

static mirt_status mirt__st_read_tensor(mirt__safetensors *file, const mirt__json *node) {
    mirt__safetensor *tensor = &file->tensor[file->count];
    if (node->type != MIRT__JSON_OBJECT)
        return mirt__st_bad(file, node->key, "is %s, but must be an object", mirt__json_type_name(node->type));
    tensor->name = node->key;
    mirt_status status = mirt__st_read_dtype(file, node, tensor);
    if (status == MIRT_OK) status = mirt__st_read_shape(file, node, tensor);
    if (status == MIRT_OK) status = mirt__st_read_offsets(file, node, tensor);
    if (status == MIRT_OK) file->count++;
    return status;
}

/* qsort's comparison by place in the file; empty tensors come before what begins at their place. */
static int mirt__st_compare_places(const void *a, const void *b) {
    const mirt__safetensor *x = *(const mirt__safetensor *const *)a, *y = *(const mirt__safetensor *const *)b;
    uintptr_t begin_x = (uintptr_t)x->data, begin_y = (uintptr_t)y->data;
    if (begin_x != begin_y) return begin_x < begin_y ? -1 : 1;
    return x->size == y->size ? 0 : x->size < y->size ? -1 : 1;
}

/* Every byte behind the header belongs to exactly one tensor. */
static mirt_status mirt__st_check_layout(mirt__safetensors *file) {
    size_t count = (size_t)file->count, end = 0;
    const char *before = "";
    const mirt__safetensor **order =
        (const mirt__safetensor **)mirt__pool_alloc(&file->pool, (count + 1) * sizeof(mirt__safetensor *));
    if (!order) return mirt_last_status();
    for (size_t i = 0; i < count; i++) order[i] = &file->tensor[i];
    qsort(order, count, sizeof *order, mirt__st_compare_places);
    for (size_t i = 0; i < count; i++) {
        char label[MIRT__JSON_LABEL];
        size_t begin = (size_t)((const unsigned char *)order[i]->data - file->data);
        if (begin > end)
            return mirt__st_bad(file, order[i]->name, "begins at %zu, but the bytes from %zu on belong to no tensor",
                                begin, end);
        if (begin < end)
            return mirt__st_bad(file, order[i]->name, "begins at %zu, but \"%s\" goes on to %zu: they overlap", begin,
                                mirt__json_label(before, label), end);
        end = begin + order[i]->size;
        before = order[i]->name;
    }
    if (end == file->data_size) return MIRT_OK;
    return mirt__st_bad(file, NULL, "the tensors end at %zu, but the file has %zu bytes of tensor data", end,
                        file->data_size);
}

static mirt_status mirt__st_read_header(mirt__safetensors *file, const mirt__json *header) {
    file->tensor = (mirt__safetensor *)mirt__pool_alloc(&file->pool, (header->count + 1) * sizeof(mirt__safetensor));
    if (!file->tensor) return mirt_last_status();
    for (size_t i = 0; i < header->count; i++) {
        const mirt__json *node = header->item[i];
        bool metadata = strcmp(node->key, "__metadata__") == 0;
        mirt_status status = metadata ? mirt__st_read_metadata(file, node) : mirt__st_read_tensor(file, node);
        if (status != MIRT_OK) return status;
    }
    return mirt__st_check_layout(file);
}

static mirt_status mirt__st_mismatch(const mirt__safetensors *file, const char *tensor, const char *what,
                                     const char *want, const char *got) {
    char label[MIRT__JSON_LABEL];
    return mirt__st_bad(file, tensor,
                        "%s is %s, but the file promises %s: it is damaged, or was changed by a program that "
                        "kept the old mirrortrain.* metadata", what, got, mirt__json_label(want, label));
}

static mirt_status mirt__st_check_tensors(mirt__safetensors *file, const char *promised) {
    const mirt__json *sums = mirt__json_parse(&file->pool, promised, strlen(promised));
    if (!sums) return mirt__st_bad_json(file, "mirrortrain.crc32c");
    if (sums->type != MIRT__JSON_OBJECT || sums->count != (size_t)file->count)
        return mirt__st_bad(file, "mirrortrain.crc32c", "must be an object with one member for each of the %d tensors",
                            file->count);
    for (int i = 0; i < file->count; i++) {
        char got[16];
        const mirt__safetensor *tensor = &file->tensor[i];
        const mirt__json *sum = mirt__json_get(sums, tensor->name, MIRT__JSON_STRING);
        if (!sum) return mirt__st_bad_json(file, "mirrortrain.crc32c");
        snprintf(got, sizeof got, "%08x", (unsigned)mirt__crc32c(0, tensor->data, tensor->size));
        if (strcmp(got, sum->string) != 0) return mirt__st_mismatch(file, tensor->name, "CRC-32C", sum->string, got);
    }
    return MIRT_OK;
}

static mirt_status mirt__st_check_header(const mirt__safetensors *file, const mirt__json *promised,
                                         const unsigned char *header, size_t size) {
    size_t at = promised->offset + 1; /* behind the quote */
    char got[16];
    if (strlen(promised->string) != 8 || memcmp(header + at, promised->string, 8) != 0)
        return mirt__st_bad(file, "mirrortrain.header", "must be 8 hexadecimal digits");
    uint32_t crc = mirt__crc32c(0, header, at);
    crc = mirt__crc32c(crc, "00000000", 8);
    crc = mirt__crc32c(crc, header + at + 8, size - at - 8);
    snprintf(got, sizeof got, "%08x", (unsigned)crc);
    return strcmp(got, promised->string) == 0 ? MIRT_OK
                                              : mirt__st_mismatch(file, "header", "CRC-32C", promised->string, got);
}

static mirt_status mirt__st_check_sums(mirt__safetensors *file, const unsigned char *header, size_t header_size) {
    static const char *const keys[3] = {"mirrortrain.header", "mirrortrain.crc32c", "mirrortrain.sha256"};
    const mirt__json *value[3];
    int found = 0;
    for (int i = 0; i < 3; i++) {
        value[i] = file->metadata ? mirt__json_member(file->metadata, keys[i]) : NULL;
        found += value[i] != NULL;
    }
    if (found == 0) return MIRT_OK;
    for (int i = 0; i < 3; i++)
        if (!value[i]) return mirt__st_bad(file, "__metadata__", "%s is missing beside the other checksums", keys[i]);
    mirt_status status = mirt__st_check_header(file, value[0], header, header_size);
    if (status == MIRT_OK) status = mirt__st_check_tensors(file, value[1]->string);
    if (status != MIRT_OK) return status;
    mirt__sha256 sha;
    mirt__sha256_begin(&sha);
    mirt__sha256_add(&sha, file->data, file->data_size);
    mirt__sha256_end(&sha, file->sha256);
    if (strcmp(file->sha256, value[2]->string) == 0) return MIRT_OK;
    return mirt__st_mismatch(file, "all tensors", "SHA-256", value[2]->string, file->sha256);
}

static mirt_status mirt__st_read(mirt__safetensors *file, const unsigned char *bytes, size_t size) {
    uint64_t length = 0;
    if (size < 8)
        return mirt__st_bad(file, NULL, "%zu bytes are too few for a safetensors file: the header length alone takes 8",
                            size);
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > MIRT__ST_HEADER_LIMIT)
        return mirt__st_bad(file, NULL, "the header length %llu is above the limit of %d: this is no safetensors file",
                            (unsigned long long)length, MIRT__ST_HEADER_LIMIT);
    if (length > size - 8)
        return mirt__st_bad(file, NULL, "the header length %llu goes beyond the end of the file, which has %zu bytes",
                            (unsigned long long)length, size);
    if (length == 0 || bytes[8] != '{') return mirt__st_bad(file, NULL, "the header does not begin with '{'");
    file->data = bytes + 8 + length;
    file->data_size = size - 8 - (size_t)length;
    const mirt__json *header = mirt__json_parse(&file->pool, (const char *)bytes + 8, (size_t)length);
    if (!header) return mirt__st_bad_json(file, "header");
    mirt_status status = mirt__st_read_header(file, header);
    return status == MIRT_OK ? mirt__st_check_sums(file, bytes + 8, (size_t)length) : status;
}

/* Reads bytes that are in memory; closes the file after a failure. */
static mirt_status mirt__st_open(mirt__safetensors *file, const char *origin, const unsigned char *bytes, size_t size) {
    file->origin = mirt__pool_strdup(&file->pool, origin);
    mirt_status status = file->origin ? mirt__st_read(file, bytes, size) : MIRT_E_NOMEM;
    if (status != MIRT_OK) mirt__safetensors_close(file);
    return status;
}

MIRT__LIB mirt_status mirt__safetensors_open(mirt__safetensors *file, const char *path) {
    size_t size;
    memset(file, 0, sizeof *file);
    mirt_status status = mirt__file_read(path, SIZE_MAX, &file->owned, &size);
    return status == MIRT_OK ? mirt__st_open(file, path, file->owned, size) : status;
}

MIRT__LIB mirt_status mirt__safetensors_open_memory(mirt__safetensors *file, const void *data, size_t size) {
    memset(file, 0, sizeof *file);
    return mirt__st_open(file, "memory", (const unsigned char *)data, size);
}

MIRT__LIB void mirt__safetensors_close(mirt__safetensors *file) {
    mirt__pool_free(&file->pool);
    mirt__aligned_free(file->owned);
    memset(file, 0, sizeof *file);
}

MIRT__LIB const mirt__safetensor *mirt__safetensors_find(const mirt__safetensors *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
    return NULL;
}

MIRT__LIB const char *mirt__safetensors_metadata(const mirt__safetensors *file, const char *key) {
    const mirt__json *value = file->metadata ? mirt__json_member(file->metadata, key) : NULL;
    return value ? value->string : NULL;
}

/* >>section formats/safetensors_write.c */

/* Checksums of what is written; zeros until the bytes have been seen. */
typedef struct mirt__st_sums {
    uint32_t *crc; /* per tensor */
    char sha256[MIRT__SHA256_HEX];
} mirt__st_sums;

static mirt_status mirt__st_check_text(const char *what, const char *text) {
    if (!text) return mirt__fail(MIRT_E_INVALID, "%s is NULL", what);
    if (mirt__utf8_valid(text, strlen(text))) return MIRT_OK;
    char label[MIRT__JSON_LABEL];
    return mirt__fail(MIRT_E_INVALID, "%s \"%s\" is not valid UTF-8", what, mirt__json_label(text, label));
}

static mirt_status mirt__st_check_content(const mirt__safetensors_content *content) {
    char label[MIRT__JSON_LABEL];
    mirt_status status = MIRT_OK;
    size_t bytes, total = 0;
    for (int i = 0; i < content->count; i++) {
        const mirt__safetensor *tensor = &content->tensor[i];
        status = mirt__st_check_text("tensor name", tensor->name);
        if (status != MIRT_OK) return status;
        for (int j = 0; j < i; j++)
            if (strcmp(content->tensor[j].name, tensor->name) == 0)
                return mirt__fail(MIRT_E_INVALID, "two tensors are named \"%s\"", mirt__json_label(tensor->name, label));
        if (strcmp(tensor->name, "__metadata__") == 0)
            return mirt__fail(MIRT_E_INVALID, "a tensor must not be named \"__metadata__\"");
        if (tensor->rank < 0 || tensor->rank > MIRT__ST_RANK || !mirt__st_bytes(tensor, &bytes) ||
            !mirt__add_size(total, bytes, &total))
            return mirt__fail(MIRT_E_INVALID, "tensor \"%s\" has an impossible shape",
                              mirt__json_label(tensor->name, label));
    }
    for (int i = 0; i < 2 * content->metadata_count; i++) {
        const char *text = content->metadata[i];
        status = mirt__st_check_text(i % 2 ? "metadata value" : "metadata key", text);
        if (status != MIRT_OK) return status;
        if (i % 2) continue;
        bool taken = strncmp(text, "mirrortrain.", 12) == 0;
        for (int j = 0; j < i; j += 2) taken = taken || strcmp(content->metadata[j], text) == 0;
        if (taken)
            return mirt__fail(MIRT_E_INVALID, "metadata key \"%s\" is used twice or reserved",
                              mirt__json_label(text, label));
    }
    return MIRT_OK;
}

static void mirt__st_add_pair(mirt__text *text, const char *key, const char *value) {
    mirt__json_write_string(text, key);
    mirt__text_add_bytes(text, ":", 1);
    mirt__json_write_string(text, value);
}

static void mirt__st_add_crcs(mirt__text *text, const mirt__safetensors_content *content, const mirt__st_sums *sums) {
    mirt__text inner = {NULL, 0, 0, false};
    for (int i = 0; i < content->count; i++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%08x", (unsigned)sums->crc[i]);
        mirt__text_add_bytes(&inner, i ? "," : "{", 1);
        mirt__st_add_pair(&inner, content->tensor[i].name, digits);
    }
    mirt__text_add(&inner, content->count ? "}" : "{}");
    if (inner.failed) text->failed = true;
    else mirt__st_add_pair(text, "mirrortrain.crc32c", inner.data);
    mirt__text_free(&inner);
}

static void mirt__st_add_tensors(mirt__text *text, const mirt__safetensors_content *content) {
    size_t offset = 0, bytes = 0;
    for (int i = 0; i < content->count; i++) {
        const mirt__safetensor *tensor = &content->tensor[i];
        mirt__text_add_bytes(text, ",", 1);
        mirt__json_write_string(text, tensor->name);
        mirt__text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", mirt__st_dtype_name(tensor->dtype));
        for (int d = 0; d < tensor->rank; d++) mirt__text_add(text, "%s%lld", d ? "," : "", (long long)tensor->dim[d]);
        mirt__st_bytes(tensor, &bytes);
        mirt__text_add(text, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes);
        offset += bytes;
    }
}

/* Length and header as they begin the file. Their size does not depend on the checksums. */
static mirt_status mirt__st_build_header(mirt__text *text, const mirt__safetensors_content *content,
                                         const mirt__st_sums *sums) {
    mirt__text_clear(text);
    mirt__text_add(text, "LLLLLLLL{\"__metadata__\":{");
    for (int i = 0; i < content->metadata_count; i++) {
        mirt__st_add_pair(text, content->metadata[2 * i], content->metadata[2 * i + 1]);
        mirt__text_add_bytes(text, ",", 1);
    }
    mirt__st_add_crcs(text, content, sums);
    mirt__text_add(text, ",\"mirrortrain.header\":\"00000000");
    size_t digits = text->size - 8;
    mirt__text_add(text, "\",\"mirrortrain.sha256\":\"%s\"}", sums->sha256);
    mirt__st_add_tensors(text, content);
    mirt__text_add(text, "}");
    while (!text->failed && text->size % 8 != 0) mirt__text_add_bytes(text, " ", 1);
    if (text->failed) return mirt_last_status();
    if (text->size - 8 > MIRT__ST_HEADER_LIMIT)
        return mirt__fail(MIRT_E_INVALID, "the header would take %zu bytes, more than the %d that readers accept",
                          text->size - 8, MIRT__ST_HEADER_LIMIT);
    char crc[16];
    snprintf(crc, sizeof crc, "%08x", (unsigned)mirt__crc32c(0, text->data + 8, text->size - 8));
    memcpy(text->data + digits, crc, 8);
    for (int i = 0; i < 8; i++) text->data[i] = (char)((uint64_t)(text->size - 8) >> (8 * i) & 255u);
    return MIRT_OK;
}

/* Appends all tensors and takes their checksums on the way. */
static mirt_status mirt__st_write_tensors(mirt__file_writer *writer, const mirt__safetensors_content *content,
                                          mirt__st_sums *sums) {
    mirt__sha256 sha;
    mirt__sha256_begin(&sha);
    for (int i = 0; i < content->count; i++) {
        const void *data = content->tensor[i].data;
        size_t bytes = 0;
        mirt__st_bytes(&content->tensor[i], &bytes);
        mirt_status status = data || bytes == 0 ? MIRT_OK : content->fetch(content->user, i, &data);
        if (status == MIRT_OK) status = mirt__file_append(writer, data, bytes);
        if (status != MIRT_OK) return status;
        sums->crc[i] = mirt__crc32c(0, data, bytes);
        mirt__sha256_add(&sha, data, bytes);
    }
    mirt__sha256_end(&sha, sums->sha256);
    return MIRT_OK;
}

static mirt_status mirt__st_write_all(mirt__file_writer *writer, const mirt__safetensors_content *content,
                                      mirt__text *header, mirt__st_sums *sums) {
    mirt_status status = mirt__st_build_header(header, content, sums);
    if (status == MIRT_OK) status = mirt__file_append(writer, header->data, header->size);
    if (status == MIRT_OK) status = mirt__st_write_tensors(writer, content, sums);
    if (status == MIRT_OK) status = mirt__st_build_header(header, content, sums);
    return status == MIRT_OK ? mirt__file_patch(writer, 0, header->data, header->size) : status;
}

MIRT__LIB mirt_status mirt__safetensors_write(const char *path, const mirt__safetensors_content *content) {
    mirt__text header = {NULL, 0, 0, false};
    mirt__st_sums sums;
    mirt__file_writer writer;
    mirt_status status = mirt__st_check_content(content);
    if (status != MIRT_OK) {
        mirt__fail_at("%s", path);
        return status;
    }
    memset(sums.sha256, '0', MIRT__SHA256_HEX - 1);
    sums.sha256[MIRT__SHA256_HEX - 1] = 0;
    sums.crc = (uint32_t *)mirt__calloc((size_t)content->count, sizeof(uint32_t));
    if (!sums.crc) return MIRT_E_NOMEM;
    status = mirt__file_begin(&writer, path);
    if (status == MIRT_OK) {
        status = mirt__st_write_all(&writer, content, &header, &sums);
        if (status == MIRT_OK) status = mirt__file_commit(&writer);
        else mirt__file_abort(&writer);
    }
    mirt__text_free(&header);
    mirt__free(sums.crc);
    return status;
}

/* >>section graph/graph.h */

#ifndef MIRT__GRAPH_H
#define MIRT__GRAPH_H
/* The recorded graph. A node is one call of an op; a tensor is one output of a node. Recording
   infers shapes; gradients are recorded as further nodes; a program (program.h) replays a graph. */

#define MIRT__MAX_IN 8
#define MIRT__MAX_OUT 4
/* Elements of a tensor (of one row, when batched), and bytes of a batch of them: far beyond any
   machine, and so small that sums and products of a few cannot overflow. */
#define MIRT__MAX_ELEMENTS ((int64_t)1 << 40)
#define MIRT__MAX_BYTES ((int64_t)1 << 46)

typedef struct mirt__graph mirt__graph;
typedef struct mirt__node mirt__node;
typedef struct mirt__op mirt__op;

/* Every op: a row here, a file in src/ops, a row in tests/op_cases.h. Node number NAME is
   MIRT__OP_NAME, its definition mirt__op_NAME. */
#define MIRT__OP_LIST(X) \
    X(input) X(variable) X(loss_weight) \
    X(constant) X(logic) X(stop_gradient) X(scan) X(log_softmax) X(log_softmax_grad) \
    X(transpose) X(concat) X(slice) X(pad) X(gather) X(gather_grad) \
    X(unary) X(binary) X(broadcast) X(bias_add) X(reduce) X(reduce_max_grad) \
    X(reshape) X(cast) X(one_hot) \
    X(matmul) X(conv2d) X(conv2d_input_grad) X(conv2d_weight_grad) X(conv2d_pool) X(conv2d_pool_weight_grad) \
    X(max_pool2d) X(max_pool2d_grad) X(average_pool2d) X(average_pool2d_grad) \
    X(softmax) X(softmax_grad) X(loss) X(loss_grad) X(accuracy) X(dropout) \
    X(conv2d_transpose) X(resize2d) X(resize2d_grad) \
    X(norm_stats) X(normalize) X(norm_grad_sums) X(norm_grad_input) X(batch_norm) \
    X(all_reduce)
typedef enum mirt__op_id {
#define MIRT__OP_ENUM(name) MIRT__OP_##name,
    MIRT__OP_LIST(MIRT__OP_ENUM)
#undef MIRT__OP_ENUM
    MIRT__OP_COUNT
} mirt__op_id;

/* What an op needs to know beside its inputs; each op's file says which fields it reads. */
typedef struct mirt__attrs {
    int index;             /* of an input or variable */
    int kind;              /* which of a family: mirt__unary_kind, mirt__binary_kind, ... */
    mirt_dtype dtype;
    mirt_shape shape;
    int kernel[2], strides[2], dilation[2], groups;
    mirt_padding padding;
    bool transpose_a, transpose_b;
    unsigned axes;
    bool keepdims;
    bool affine;           /* the first input is read as x * scale + offset */
    float scale, offset;
    float rate;
    int64_t depth;
    bool bias;             /* fused: the input after the operands is a bias */
    mirt_activation_kind activation;      /* fused */
    mirt_activation_kind mask_activation; /* fused: the last input is an activation's output */
    bool column_sum;       /* fused: a second output, the bias gradient */
    bool from_logits;
    uint64_t key;          /* of a random stream */
    int axis;
    int64_t begin[MIRT_MAX_RANK]; /* of a slice, a padding or a permutation */
    const void *data;      /* of a constant, in the graph's pool */
    size_t bytes;          /* of data */
    int last_axes;         /* normalization is over the last so many axes; 0: over all axes but the last */
    bool gamma, beta;      /* normalization: which of these are inputs, after the statistics */
    bool batch_statistics; /* normalization: gradients flow through the statistics */
    bool synchronized;     /* normalization: the statistics are of the global batch */
    float epsilon;
    double momentum;
    mirt_training training; /* how a model called as a layer was to be run */
} mirt__attrs;

/* How a model's nodes become those of a program. */
typedef struct mirt__mode {
    bool training;
    bool (*frozen)(const void *arg, int variable);
    const void *arg;
} mirt__mode;

/* Where a tensor's bytes live. */
typedef enum mirt__space {
    MIRT__SPACE_NONE, MIRT__SPACE_ARENA, MIRT__SPACE_REPLICA, MIRT__SPACE_WEIGHT, MIRT__SPACE_GRADIENT, MIRT__SPACE_STATE, MIRT__SPACE_IO
} mirt__space;

struct mirt_tensor {
    mirt__node *node;
    int slot;
    mirt_dtype dtype;
    mirt_shape shape;
    bool needs_grad;
    mirt_tensor *grad;  /* recorded by mirt__gradients */
    mirt_tensor *clone; /* while a graph is being copied */
    int uses;           /* counted by mirt__graph_count_uses */
    mirt__space space;  /* set by the plan */
    size_t offset;      /* bytes into the space; MIRT__SPACE_IO: the slot */
    int first, last;    /* positions in the program between which it is alive */
};

struct mirt__node {
    mirt__op_id id;
    const mirt__op *op;
    mirt__attrs a;
    int num_in, num_out;
    mirt_tensor *in[MIRT__MAX_IN];
    mirt_tensor *out[MIRT__MAX_OUT];
    const char *name; /* of the layer that recorded it, or NULL */
    mirt__graph *graph;
    bool live;
};

/* A variable's new value, to be written when the step is over. */
typedef struct mirt__assignment {
    int variable;
    mirt_tensor *value;
    mirt_aggregation aggregation; /* of the replicas' values */
} mirt__assignment;

struct mirt__graph {
    mirt__pool pool;
    mirt__node **node; /* in recording order, which is an order of execution */
    int count, capacity;
    const char *scope; /* name of the layer being recorded */
    mirt_status status; /* the first error */
    char error[512];
    mirt_model *model;       /* whose graph it is, or NULL */
    mirt_function *function; /* whose program's graph it is, or NULL */
    mirt__assignment *assignment;
    int num_assignments, assignment_capacity;
};

/* What one replica's replay of a step is told at run time. */
typedef struct mirt__step_info {
    uint64_t seed;
    int64_t step;
    int64_t first_row;   /* of this replica in the global batch */
    int64_t global_rows; /* of that batch */
    int replica;
    double loss_scale;   /* the weight of one sample's loss */
    bool training;
    const char **failed; /* takes the name of a node whose user code failed */
} mirt__step_info;

typedef struct mirt__call {
    const mirt__node *node;
    const mirt__kernels *kernels;
    const mirt__step_info *run;
    mirt__where where;
    int64_t rows;
    void *in[MIRT__MAX_IN];
    void *out[MIRT__MAX_OUT]; /* NULL for an optional output nobody reads */
} mirt__call;

typedef struct mirt__workspace {
    size_t scratch; /* bytes per thread */
    size_t shared;  /* bytes per call */
} mirt__workspace;

/* One row of the op table. */
struct mirt__op {
    const char *name;
    /* Checks inputs and attributes, declares the outputs by mirt__declare; false with the error set. */
    bool (*shape)(mirt__node *node);
    /* Records gradients: dx[i] for every input with needs_grad, given dy[i] (NULL: zero). NULL: not
       differentiable. */
    bool (*gradient)(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx);
    void (*run)(const mirt__call *call); /* NULL: nothing runs (leaves, aliases) */
    void (*workspace)(const mirt__node *node, int64_t rows, mirt__workspace *out); /* NULL: none */
    double (*macs)(const mirt__node *node, int64_t rows); /* multiply-accumulates; NULL: none to speak of */
    bool alias; /* output 0 is the bytes of input 0 */
    unsigned optional_outputs; /* bits of outputs that may be NULL */
    /* What a node of a model is in a program: records it there with the inputs `in`, returns its output.
       NULL: the same node. */
    mirt_tensor *(*lower)(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in, const mirt__mode *mode);
};

MIRT__LIB void mirt__graph_init(mirt__graph *graph, mirt_model *model);
MIRT__LIB void mirt__graph_free(mirt__graph *graph);
/* Marks the graph with the current error; later recordings return NULL. */
MIRT__LIB void mirt__graph_poison(mirt__graph *graph);
/* Records a node; returns output 0, or NULL with the error set and the graph marked. */
MIRT__LIB mirt_tensor *mirt__record(mirt__graph *graph, mirt__op_id id, const mirt__attrs *attrs,
                                    mirt_tensor *const *in, int num_in);
/* From a shape rule: adds the next output of `node`. */
MIRT__LIB bool mirt__declare(mirt__node *node, mirt_dtype dtype, const mirt_shape *shape);
/* Copies nodes of a model's graph into another graph. */
typedef struct mirt__copying {
    const mirt__graph *source;
    const mirt_tensor *const *replaced; /* tensors of source (its inputs) ... */
    mirt_tensor *const *replacement;    /* ... and what stands for them in the target */
    int num_replaced;
    int first_variable;    /* added to the variables' indices */
    const char *prefix;    /* of the nodes' names, or NULL */
    uint64_t salt;         /* mixed into the keys of random streams; 0: none */
    mirt_training training; /* marks the copies, unless MIRT_TRAINING_AUTO */
    const mirt__mode *mode; /* NULL: copies as they are; otherwise lowers */
} mirt__copying;
/* The `count` tensors of `keep` (NULL allowed) are replaced by their copies; only what they depend on is copied. */
MIRT__LIB bool mirt__graph_copy(mirt__graph *graph, const mirt__copying *copying, mirt_tensor **keep, int count);
/* Variable `variable` shall have `value` after the step. */
MIRT__LIB bool mirt__graph_assign(mirt__graph *graph, int variable, mirt_tensor *value, mirt_aggregation aggregation);
/* Counts readers of every tensor, `keep` included. */
MIRT__LIB void mirt__graph_count_uses(mirt__graph *graph, mirt_tensor *const *keep, int count);
/* Removes nodes that none of `keep` depends on. */
MIRT__LIB void mirt__graph_prune(mirt__graph *graph, mirt_tensor *const *keep, int count);
/* Sets needs_grad everywhere: trainable variables and what is computed from them. `trainable` is
   asked per variable index. */
MIRT__LIB void mirt__graph_mark_gradients(mirt__graph *graph, bool (*trainable)(const void *arg, int variable), const void *arg);
/* Records the gradient of the sum of all y[i] * dy[i]; afterwards x->grad is the gradient of x, or NULL
   when no y depends on it. */
MIRT__LIB bool mirt__gradients(mirt__graph *graph, mirt_tensor *const *y, mirt_tensor *const *dy, int count);

MIRT__LIB bool mirt__is_batched(const mirt_shape *shape);
/* Elements at `rows` rows. */
MIRT__LIB int64_t mirt__elements(const mirt_tensor *tensor, int64_t rows);
MIRT__LIB size_t mirt__tensor_bytes(const mirt_tensor *tensor, int64_t rows);

#endif

/* >>section graph/program.h */

#ifndef MIRT__PROGRAM_H
#define MIRT__PROGRAM_H
/* A graph made ready to replay: every tensor has a place, every node its kernel. Replay allocates
   nothing. One plan at the largest row count runs any smaller one. */

#define MIRT__MAX_IO (4 + MIRT_MAX_METRICS)

typedef struct mirt__program {
    mirt__graph graph;
    int64_t max_rows;
    size_t arena;   /* bytes of the tensors of a step, by liveness */
    size_t scratch; /* bytes per thread */
    size_t shared;  /* bytes */
    size_t io_row[MIRT__MAX_IO]; /* bytes of one row of each input and result; 0: not used */
} mirt__program;

/* The memory one replay works on. */
typedef struct mirt__bases {
    mirt__team *team;
    char *arena, *weight, *gradient, *scratch, *shared;
    size_t scratch_per_thread;
    char *io[MIRT__MAX_IO]; /* of the replica's first row */
} mirt__bases;

/* What a program computes. A result goes to an io slot, a gradient to the gradient block. */
typedef struct mirt__output {
    mirt_tensor *tensor;
    mirt__space space; /* MIRT__SPACE_IO or MIRT__SPACE_GRADIENT */
    size_t offset;     /* slot, or bytes */
} mirt__output;

/* Places the tensors of program->graph, which is complete but for copies this adds.
   variable_offset: bytes of each variable in the weight block. */
MIRT__LIB bool mirt__plan(mirt__program *program, mirt__output *outputs, int num_outputs,
                          const size_t *variable_offset, int64_t max_rows);
MIRT__LIB void mirt__program_free(mirt__program *program);
/* rows <= max_rows; rows 0 does nothing. */
MIRT__LIB void mirt__program_run(const mirt__program *program, const mirt__kernels *kernels, const mirt__step_info *run,
                                 const mirt__bases *bases, int64_t rows);
/* One line a node. */
MIRT__LIB void mirt__program_text(const mirt__program *program, mirt__text *out);

#endif

/* >>section graph/fuse.h */

#ifndef MIRT__FUSE_H
#define MIRT__FUSE_H
/* Elementwise work moves into the kernel that reads or writes the tensor. The rewrites depend on
   the graph alone, never on the machine, so the order of every sum is the same everywhere.

   forward (before gradients are recorded; the fused ops know their own gradients):
     product(reshape(rescale(cast(x))))   -> product reading x
     activation(bias_add(product(x, w)))  -> product with an epilogue
     max_pool2d 2x2(relu(conv2d(data)))   -> conv2d_pool
   backward:
     activation gradient(product)         -> product with a mask */

MIRT__LIB void mirt__fuse_forward(mirt__graph *graph, mirt_tensor *const *keep, int count);
MIRT__LIB void mirt__fuse_backward(mirt__graph *graph, mirt_tensor *const *keep, int count);

#endif

/* >>section ops/ops.h */

#ifndef MIRT__OPS_H
#define MIRT__OPS_H
/* The op table and the recorders that ops, layers and gradients share. One file an op family. */

/* A table that later files name: static in the single header, extern otherwise. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__TABLE const
#define MIRT__OP_EXTERN(name) extern const mirt__op mirt__op_##name;
MIRT__OP_LIST(MIRT__OP_EXTERN)
#undef MIRT__OP_EXTERN
#else
#define MIRT__TABLE static const
#endif

MIRT__LIB const mirt__op *mirt__op_get(mirt__op_id id);
MIRT__LIB mirt__attrs mirt__no_attrs(void);
/* Whether a node of a model is lowered for training. */
MIRT__LIB bool mirt__in_training(const mirt__node *node, const mirt__mode *mode);

/* Leaves. input: `slot` is its place among the program's inputs; shape batched. */
MIRT__LIB mirt_tensor *mirt__input_op(mirt__graph *graph, int slot, mirt_dtype dtype, const mirt_shape *shape);
MIRT__LIB mirt_tensor *mirt__variable_op(mirt__graph *graph, int index, const mirt_shape *shape);
/* What a term of the loss weighs in this step. */
typedef enum mirt__weight_kind {
    MIRT__WEIGHT_SAMPLE, /* [rows]: each sample's share of the global batch */
    MIRT__WEIGHT_SHARE,  /* a number: the share of this replica's rows */
    MIRT__WEIGHT_ONCE,   /* a number: 1 on the first replica, 0 on the others */
    MIRT__WEIGHT_ONE
} mirt__weight_kind;
MIRT__LIB mirt_tensor *mirt__loss_weight_op(mirt__graph *graph, mirt__weight_kind kind);

MIRT__LIB mirt_tensor *mirt__unary_op(mirt__unary_kind kind, mirt_tensor *x, float scale, float offset);
MIRT__LIB mirt_tensor *mirt__binary_op(mirt__binary_kind kind, mirt_tensor *a, mirt_tensor *b);
/* b is not read for MIRT__NOT. */
MIRT__LIB mirt_tensor *mirt__logic_op(mirt__logic_kind kind, mirt_tensor *a, mirt_tensor *b);
MIRT__LIB mirt_tensor *mirt__where_op(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b);
/* Gradients of where(condition, a, b), or of what chose so, in dx[0] and dx[1]. */
MIRT__LIB bool mirt__where_gradient(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b, mirt_tensor *dy, mirt_tensor **dx);
/* A leaf with the values of `array`, copied. */
MIRT__LIB mirt_tensor *mirt__constant_op(mirt__graph *graph, mirt_array array);
MIRT__LIB mirt_tensor *mirt__scalar_op(mirt__graph *graph, float value);
/* What there is to know of an activation: the one place where a new one is described. */
typedef struct mirt__activation_class {
    const char *name;
    bool fused; /* its gradient needs its output alone: epilogues compute both */
    mirt__unary_kind unary; /* MIRT__COPY: it is not elementwise */
    mirt__binary_kind grad; /* of dy and, when fused, the activation's output; otherwise its input */
    float scale;            /* default of a.scale */
} mirt__activation_class;
/* NULL when there is no such activation. */
MIRT__LIB const mirt__activation_class *mirt__activation_get(mirt_activation_kind kind);
/* The fused activation that a unary or binary node computes, or whose gradient it is; MIRT_LINEAR for all other nodes. */
MIRT__LIB mirt_activation_kind mirt__activation_of(const mirt__node *node);
MIRT__LIB mirt_activation_kind mirt__activation_grad_of(const mirt__node *node);
/* The activation node of `kind` on x; x itself for MIRT_LINEAR. */
MIRT__LIB mirt_tensor *mirt__activation_op(mirt_activation_kind kind, mirt_tensor *x);
/* dy times the derivative of a fused activation whose output is y; dy for MIRT_LINEAR. */
MIRT__LIB mirt_tensor *mirt__activation_grad_op(mirt_activation_kind kind, mirt_tensor *dy, mirt_tensor *y);
/* numpy's rule, with MIRT_ROWS equal to itself only; false with the error set. */
MIRT__LIB bool mirt__broadcast_shape(const mirt_shape *a, const mirt_shape *b, mirt_shape *out);
/* Element strides of `x` seen as `out`: 0 where it repeats. */
MIRT__LIB void mirt__broadcast_strides(const mirt_shape *x, const mirt_shape *out, int64_t stride[MIRT_MAX_RANK]);
/* Sums `dy` over the axes along which `x` was repeated. */
MIRT__LIB mirt_tensor *mirt__unbroadcast(mirt_tensor *dy, const mirt_tensor *x);
/* x (already of like's rank, 1 where it repeats) over like's shape; divided by the repeats if `mean`. */
MIRT__LIB mirt_tensor *mirt__broadcast_op(mirt_tensor *x, mirt_tensor *like, bool mean);
/* x + bias over the last axis. */
MIRT__LIB mirt_tensor *mirt__bias_add_op(mirt_tensor *x, mirt_tensor *bias);
/* `axes` taken as it is. */
MIRT__LIB mirt_tensor *mirt__reduce_op(mirt__reduce_kind kind, mirt_tensor *x, unsigned axes, bool keepdims);
/* `shape` in full, MIRT_ROWS first where x has it. */
MIRT__LIB mirt_tensor *mirt__reshape_op(mirt_tensor *x, const mirt_shape *shape);
MIRT__LIB mirt_tensor *mirt__matmul_op(mirt_tensor *a, mirt_tensor *b, bool transpose_a, bool transpose_b);
/* `a` holds strides, dilation, groups, padding. */
MIRT__LIB mirt_tensor *mirt__conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a);
/* kernel [height, width, filters, channels of x]. */
MIRT__LIB mirt_tensor *mirt__conv2d_transpose_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a);
/* kernel [height, width, channels of x, multiplier]; filter c * multiplier + j sees channel c alone. */
MIRT__LIB mirt_tensor *mirt__depthwise_conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a);
/* An image of another size; pixels lie at the centers of their squares, as TensorFlow. */
MIRT__LIB mirt_tensor *mirt__resize2d_op(mirt_tensor *x, int height, int width, bool bilinear);
/* Keras UpSampling2D: `size` times as high and wide. */
MIRT__LIB mirt_tensor *mirt__upsampling2d_op(mirt_tensor *x, const int size[2], bool bilinear);
/* `a` holds kernel (the window), strides, padding. */
MIRT__LIB mirt_tensor *mirt__max_pool2d_op(mirt_tensor *x, const mirt__attrs *a);
MIRT__LIB mirt_tensor *mirt__average_pool2d_op(mirt_tensor *x, const mirt__attrs *a);
MIRT__LIB mirt_tensor *mirt__dropout_op(mirt_tensor *x, float rate, uint64_t key);
/* Per-sample loss [rows]. */
MIRT__LIB mirt_tensor *mirt__loss_op(mirt_loss kind, bool from_logits, mirt_tensor *x, mirt_tensor *labels);
MIRT__LIB mirt_tensor *mirt__accuracy_op(mirt__accuracy_kind kind, mirt_tensor *x, mirt_tensor *labels);

/* Normalization; `a` holds what the op reads (norm.c). in: x, mean, variance, [gamma], [beta]. */
MIRT__LIB mirt_tensor *mirt__normalize_op(mirt_tensor *const *in, const mirt__attrs *a);
/* gamma and beta, in the shape of x's last a->last_axes axes, may be NULL. */
MIRT__LIB mirt_tensor *mirt__layer_norm_op(mirt_tensor *x, mirt_tensor *gamma, mirt_tensor *beta, const mirt__attrs *a);
/* A model's batch normalization: in is x, moving mean, moving variance, [gamma], [beta]. The node is
   never run: a program has one of the two below in its place, recorded with its inputs and
   attributes. In training the new moving statistics are to be assigned to their variables. */
MIRT__LIB mirt_tensor *mirt__batch_norm_op(mirt_tensor *const *in, const mirt__attrs *a);
MIRT__LIB mirt_tensor *mirt__batch_norm_training(mirt_tensor *const *in, const mirt__attrs *a, mirt_tensor **moving_mean,
                                                 mirt_tensor **moving_variance);
MIRT__LIB mirt_tensor *mirt__batch_norm_inference(mirt_tensor *const *in, const mirt__attrs *a);

/* SUM adds over replicas, MEAN weighs them by their rows, MOMENTS takes a mean and a (biased)
   variance to those of all rows together. */
typedef enum mirt__all_reduce_kind { MIRT__ALL_REDUCE_SUM, MIRT__ALL_REDUCE_MEAN, MIRT__ALL_REDUCE_MOMENTS } mirt__all_reduce_kind;
/* Replaces `count` <= MIRT__MAX_OUT tensors by what they are over all replicas; returns the first, or NULL. */
MIRT__LIB mirt_tensor *mirt__all_reduce_op(mirt_tensor **inout, int count, int kind);

/* Shared by convolution and pooling. check: the attributes alone; false with the error set. out: one
   spatial axis of output and the zeros before it, as TensorFlow; false when nothing comes out. */
MIRT__LIB bool mirt__window_check(const int kernel[2], const int strides[2], const int dilation[2], mirt_padding padding);
MIRT__LIB bool mirt__window_out(int64_t in, int kernel, int stride, int dilation, mirt_padding padding,
                                int64_t *out, int64_t *pad_before);
/* The matrix a tensor is to matmul and dense layers: its last axis against all others. */
MIRT__LIB int64_t mirt__last_dim(const mirt_tensor *x);
/* Makes a.axis count from the front; false, with the error set, when x has no such axis or it is the rows. */
MIRT__LIB bool mirt__take_axis(mirt__node *node, const mirt_shape *x);
MIRT__LIB bool mirt__need_float(const mirt__node *node, int inputs);
/* Output 0 becomes the bytes of input 0. */
MIRT__LIB void mirt__copy_run(const mirt__call *call);
MIRT__LIB double mirt__conv_macs(const mirt__node *node, int64_t rows);
MIRT__LIB mirt__reader mirt__reader_of(const mirt__call *call, int input);

#endif

/* >>section ops/leaf.c */

/* Leaves of the graph: inputs, variables, constants (a.data), and the weight of a sample's loss. */

MIRT__LIB mirt__attrs mirt__no_attrs(void) {
    mirt__attrs a;
    memset(&a, 0, sizeof a);
    return a;
}

MIRT__LIB bool mirt__in_training(const mirt__node *node, const mirt__mode *mode) {
    return node->a.training == MIRT_TRAINING_AUTO ? mode->training : node->a.training == MIRT_TRAINING_ON;
}

MIRT__LIB int64_t mirt__last_dim(const mirt_tensor *x) { return x->shape.rank ? x->shape.dim[x->shape.rank - 1] : 1; }

MIRT__LIB bool mirt__need_float(const mirt__node *node, int inputs) {
    for (int i = 0; i < inputs; i++) {
        if (node->in[i]->dtype == MIRT_FLOAT32) continue;
        mirt__fail(MIRT_E_INVALID, "takes float32, not %s: cast it first", mirt__dtype_name(node->in[i]->dtype));
        return false;
    }
    return true;
}

MIRT__LIB mirt__reader mirt__reader_of(const mirt__call *call, int input) {
    mirt__reader r;
    r.data = call->in[input];
    r.dtype = call->node->in[input]->dtype == MIRT_BOOL ? MIRT_UINT8 : call->node->in[input]->dtype;
    r.affine = call->node->a.affine;
    r.scale = call->node->a.scale;
    r.offset = call->node->a.offset;
    return r;
}

static bool mirt__leaf_shape(mirt__node *node) { return mirt__declare(node, node->a.dtype, &node->a.shape); }

static mirt_tensor *mirt__leaf(mirt__graph *graph, mirt__op_id id, int index, mirt_dtype dtype, const mirt_shape *shape) {
    mirt__attrs a = mirt__no_attrs();
    a.index = index;
    a.dtype = dtype;
    a.shape = *shape;
    return mirt__record(graph, id, &a, NULL, 0);
}

MIRT__LIB mirt_tensor *mirt__input_op(mirt__graph *graph, int slot, mirt_dtype dtype, const mirt_shape *shape) {
    return mirt__leaf(graph, MIRT__OP_input, slot, dtype, shape);
}

MIRT__LIB mirt_tensor *mirt__variable_op(mirt__graph *graph, int index, const mirt_shape *shape) {
    return mirt__leaf(graph, MIRT__OP_variable, index, MIRT_FLOAT32, shape);
}

MIRT__LIB mirt_tensor *mirt__loss_weight_op(mirt__graph *graph, mirt__weight_kind kind) {
    mirt_shape shape = mirt_make_shape(kind == MIRT__WEIGHT_SAMPLE, 0, 0, 0, 0, 0);
    mirt__attrs a = mirt__no_attrs();
    if (shape.rank) shape.dim[0] = MIRT_ROWS;
    a.kind = kind;
    a.shape = shape;
    return mirt__record(graph, MIRT__OP_loss_weight, &a, NULL, 0);
}

static void mirt__loss_weight_run(const mirt__call *call) {
    const mirt__step_info *run = call->run;
    mirt__real *out = (mirt__real *)call->out[0];
    switch ((mirt__weight_kind)call->node->a.kind) {
    case MIRT__WEIGHT_SAMPLE:
        for (int64_t i = 0; i < call->rows; i++) out[i] = (mirt__real)run->loss_scale;
        break;
    case MIRT__WEIGHT_SHARE: *out = (mirt__real)((double)call->rows / (double)run->global_rows); break;
    case MIRT__WEIGHT_ONCE: *out = run->replica == 0; break;
    case MIRT__WEIGHT_ONE: *out = 1; break;
    }
}

MIRT__LIB void mirt__copy_run(const mirt__call *call) {
    mirt__cast c;
    c.from = c.to = call->node->out[0]->dtype;
    c.count = mirt__elements(call->node->out[0], call->rows);
    c.x = call->node->num_in ? call->in[0] : call->node->a.data;
    c.y = call->out[0];
    call->kernels->cast(&c, &call->where);
}

static mirt_tensor *mirt__constant_of(mirt__graph *graph, const mirt_array *array, size_t bytes) {
    mirt__attrs a = mirt__no_attrs();
    void *data = mirt__pool_alloc(&graph->pool, bytes);
    if (!data) return NULL;
    if (array->dtype == MIRT_FLOAT32) {
        for (size_t i = 0; i < bytes / sizeof(mirt__real); i++) ((mirt__real *)data)[i] = ((const float *)array->data)[i];
    } else {
        memcpy(data, array->data, bytes);
    }
    a.data = data;
    a.bytes = bytes;
    a.dtype = array->dtype;
    a.shape = array->shape;
    return mirt__record(graph, MIRT__OP_constant, &a, NULL, 0);
}

MIRT__LIB mirt_tensor *mirt__constant_op(mirt__graph *graph, mirt_array array) {
    int64_t count = 1;
    if (graph->status != MIRT_OK) return NULL;
    const bool shaped = array.shape.rank >= 0 && array.shape.rank <= MIRT_MAX_RANK;
    for (int i = 0; shaped && i < array.shape.rank; i++) count = array.shape.dim[i] < 1 ? -1 : count;
    if (shaped && count > 0) count = mirt__shape_count(&array.shape);
    mirt_tensor *t = NULL;
    if (!array.data || !mirt__dtype_size(array.dtype)) mirt__fail(MIRT_E_INVALID, "constant: an array needs data of a known dtype");
    else if (!shaped || count < 1 || count > MIRT__MAX_ELEMENTS) mirt__fail(MIRT_E_SHAPE, "constant: every dimension must be positive, and there are at most %d", MIRT_MAX_RANK);
    else t = mirt__constant_of(graph, &array, (size_t)count * mirt__dtype_size(array.dtype));
    if (!t) mirt__graph_poison(graph);
    return t;
}

MIRT__LIB mirt_tensor *mirt__scalar_op(mirt__graph *graph, float value) {
    mirt_shape none;
    memset(&none, 0, sizeof none);
    return mirt__constant_op(graph, mirt_make_array(&value, MIRT_FLOAT32, none));
}

MIRT_API mirt_tensor *mirt_constant_tensor(mirt_tensor *like, mirt_array array) {
    return like ? mirt__constant_op(like->node->graph, array) : NULL;
}

MIRT__TABLE mirt__op mirt__op_constant = {"constant", mirt__leaf_shape, NULL, mirt__copy_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_input = {"input", mirt__leaf_shape, NULL, NULL, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_variable = {"variable", mirt__leaf_shape, NULL, NULL, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_loss_weight = {"loss_weight", mirt__leaf_shape, NULL, mirt__loss_weight_run, NULL, NULL, false, 0, NULL};

/* >>section ops/elementwise.c */

/* unary: a.kind (mirt__unary_kind), a.scale, a.offset. binary: a.kind (mirt__binary_kind), a.scale and
   a.offset of the unary kind whose gradient it is; numpy broadcasting. broadcast: a.kind MIRT__REDUCE_MEAN means divide by the number of repeats. bias_add. */

static bool mirt__unary_shape(mirt__node *node) {
    const mirt__attrs *a = &node->a;
    const mirt_dtype dtype = node->in[0]->dtype;
    if (a->kind == MIRT__COPY) return mirt__declare(node, dtype, &node->in[0]->shape);
    if (a->kind == MIRT__CLIP && !(a->scale <= a->offset)) {
        return mirt__fail(MIRT_E_INVALID, "clip: %g to %g is no range", (double)a->scale, (double)a->offset), false;
    }
    if (a->kind != MIRT__CLIP && !(isfinite(a->scale) && isfinite(a->offset))) {
        return mirt__fail(MIRT_E_INVALID, "%g, %g: its numbers must be finite", (double)a->scale, (double)a->offset), false;
    }
    return mirt__need_float(node, 1) && mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape);
}

static void mirt__unary_run(const mirt__call *call) {
    mirt__unary u;
    u.kind = (mirt__unary_kind)call->node->a.kind;
    u.count = mirt__elements(call->node->out[0], call->rows);
    u.x = (const mirt__real *)call->in[0];
    u.y = (mirt__real *)call->out[0];
    u.scale = call->node->a.scale;
    u.offset = call->node->a.offset;
    if (call->node->in[0]->dtype != MIRT_FLOAT32) mirt__copy_run(call);
    else call->kernels->unary(&u, &call->where);
}

static mirt_tensor *mirt__binary_with(mirt__binary_kind kind, mirt_tensor *a, mirt_tensor *b, float scale, float offset) {
    if (!a || !b) return NULL;
    mirt__attrs attrs = mirt__no_attrs();
    attrs.kind = kind;
    attrs.scale = scale;
    attrs.offset = offset;
    mirt_tensor *in[2] = {a, b};
    return mirt__record(a->node->graph, MIRT__OP_binary, &attrs, in, 2);
}

MIRT__LIB mirt_tensor *mirt__binary_op(mirt__binary_kind kind, mirt_tensor *a, mirt_tensor *b) {
    return mirt__binary_with(kind, a, b, 0, 0);
}

/* dy times the derivative of an activation's node. */
static mirt_tensor *mirt__unary_activation_grad(const mirt__node *node, mirt_tensor *dy) {
    for (int i = 0; i < MIRT__ACTIVATION_COUNT; i++) {
        const mirt__activation_class *activation = mirt__activation_get((mirt_activation_kind)i);
        if (activation->unary == MIRT__COPY || (int)activation->unary != node->a.kind) continue;
        return mirt__binary_with(activation->grad, dy, activation->fused ? node->out[0] : node->in[0], node->a.scale, node->a.offset);
    }
    return NULL;
}

static bool mirt__unary_gradient(mirt__node *node, mirt_tensor *const *dys, mirt_tensor **dx) {
    mirt_tensor *x = node->in[0], *y = node->out[0], *dy = dys[0], *t;
    switch ((mirt__unary_kind)node->a.kind) {
    case MIRT__COPY: dx[0] = dy; break;
    case MIRT__NEGATIVE: dx[0] = mirt__unary_op(MIRT__NEGATIVE, dy, 0, 0); break;
    case MIRT__SQUARE: dx[0] = mirt__unary_op(MIRT__AFFINE, mirt__binary_op(MIRT__MULTIPLY, dy, x), 2, 0); break;
    case MIRT__AFFINE: dx[0] = mirt__unary_op(MIRT__AFFINE, dy, node->a.scale, 0); break;
    case MIRT__EXP: dx[0] = mirt__binary_op(MIRT__MULTIPLY, dy, y); break;
    case MIRT__LOG: dx[0] = mirt__binary_op(MIRT__DIVIDE, dy, x); break;
    case MIRT__SQRT: dx[0] = mirt__unary_op(MIRT__AFFINE, mirt__binary_op(MIRT__DIVIDE, dy, y), 0.5f, 0); break;
    case MIRT__RSQRT: /* -y^3 / 2 */
        t = mirt__binary_op(MIRT__MULTIPLY, y, mirt__unary_op(MIRT__SQUARE, y, 0, 0));
        dx[0] = mirt__unary_op(MIRT__AFFINE, mirt__binary_op(MIRT__MULTIPLY, dy, t), -0.5f, 0);
        break;
    case MIRT__ABS: dx[0] = mirt__binary_op(MIRT__MULTIPLY, dy, mirt__unary_op(MIRT__SIGN, x, 0, 0)); break;
    case MIRT__CLIP: dx[0] = mirt__binary_with(MIRT__CLIP_GRAD, dy, x, node->a.scale, node->a.offset); break;
    case MIRT__POWER: dx[0] = mirt__binary_with(MIRT__POWER_GRAD, dy, x, node->a.scale, 0); break;
    case MIRT__SIGN:
    case MIRT__FLOOR: return true; /* constant but for jumps: gradients end here */
    default: dx[0] = mirt__unary_activation_grad(node, dy); break;
    }
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_unary = {"unary", mirt__unary_shape, mirt__unary_gradient, mirt__unary_run, NULL, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__unary_op(mirt__unary_kind kind, mirt_tensor *x, float scale, float offset) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.kind = kind;
    a.scale = scale;
    a.offset = offset;
    return mirt__record(x->node->graph, MIRT__OP_unary, &a, &x, 1);
}

MIRT__LIB bool mirt__broadcast_shape(const mirt_shape *a, const mirt_shape *b, mirt_shape *out) {
    memset(out, 0, sizeof *out);
    out->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < out->rank; i++) {
        int ia = i - (out->rank - a->rank), ib = i - (out->rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (da != db && da != 1 && db != 1) {
            char ta[96], tb[96];
            mirt__fail(MIRT_E_SHAPE, "shapes %s and %s cannot be broadcast together", mirt__shape_text(a, ta), mirt__shape_text(b, tb));
            return false;
        }
        out->dim[i] = da == 1 ? db : da;
        if (out->dim[i] == MIRT_ROWS && i > 0) {
            mirt__fail(MIRT_E_SHAPE, "the rows of a batch must come first; reshape the other side to more axes");
            return false;
        }
    }
    return true;
}

static bool mirt__binary_shape(mirt__node *node) {
    mirt_shape shape;
    return mirt__need_float(node, 2) && mirt__broadcast_shape(&node->in[0]->shape, &node->in[1]->shape, &shape) &&
           mirt__declare(node, MIRT_FLOAT32, &shape);
}

MIRT__LIB void mirt__broadcast_strides(const mirt_shape *x, const mirt_shape *out, int64_t stride[MIRT_MAX_RANK]) {
    int64_t step = 1;
    for (int i = out->rank - 1, k = x->rank - 1; i >= 0; i--, k--) {
        bool repeats = k < 0 || x->dim[k] == 1;
        stride[i] = repeats ? 0 : step;
        if (!repeats) step *= x->dim[k] == MIRT_ROWS ? 1 : x->dim[k]; /* rows come first: nothing is left to step over */
    }
}

static void mirt__binary_args(const mirt__call *call, mirt__binary *b) {
    const mirt_shape *out = &call->node->out[0]->shape;
    memset(b, 0, sizeof *b);
    b->rank = out->rank;
    for (int i = 0; i < out->rank; i++) b->dim[i] = out->dim[i] == MIRT_ROWS ? call->rows : out->dim[i];
    b->scale = call->node->a.scale;
    b->offset = call->node->a.offset;
    b->a = (const mirt__real *)call->in[0];
    b->y = (mirt__real *)call->out[0];
    mirt__broadcast_strides(&call->node->in[0]->shape, out, b->a_stride);
}

static void mirt__binary_call(const mirt__call *call, mirt__binary_kind kind) {
    mirt__binary b;
    mirt__binary_args(call, &b);
    b.kind = kind;
    b.b = (const mirt__real *)call->in[1];
    mirt__broadcast_strides(&call->node->in[1]->shape, &call->node->out[0]->shape, b.b_stride);
    call->kernels->binary(&b, &call->where);
}

static void mirt__binary_run(const mirt__call *call) { mirt__binary_call(call, (mirt__binary_kind)call->node->a.kind); }

MIRT__LIB mirt_tensor *mirt__unbroadcast(mirt_tensor *dy, const mirt_tensor *x) {
    if (!dy || mirt__shape_equal(&dy->shape, &x->shape)) return dy;
    unsigned axes = 0;
    int extra = dy->shape.rank - x->shape.rank;
    for (int i = 0; i < dy->shape.rank; i++) {
        if (i < extra || (x->shape.dim[i - extra] == 1 && dy->shape.dim[i] != 1)) axes |= 1u << i;
    }
    return mirt__reshape_op(mirt__reduce_op(MIRT__REDUCE_SUM, dy, axes, true), &x->shape);
}

static bool mirt__binary_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *a = node->in[0], *b = node->in[1], *da = NULL, *db = NULL;
    switch ((mirt__binary_kind)node->a.kind) {
    case MIRT__ADD: da = db = dy[0]; break;
    case MIRT__SUBTRACT:
        da = dy[0];
        if (b->needs_grad) db = mirt__unary_op(MIRT__NEGATIVE, dy[0], 0, 0);
        break;
    case MIRT__MULTIPLY:
        if (a->needs_grad) da = mirt__binary_op(MIRT__MULTIPLY, dy[0], b);
        if (b->needs_grad) db = mirt__binary_op(MIRT__MULTIPLY, dy[0], a);
        break;
    case MIRT__DIVIDE:
        da = mirt__binary_op(MIRT__DIVIDE, dy[0], b);
        if (b->needs_grad) db = mirt__unary_op(MIRT__NEGATIVE, mirt__binary_op(MIRT__MULTIPLY, da, node->out[0]), 0, 0);
        break;
    case MIRT__MAXIMUM: /* of equals the first has the gradient, as in TensorFlow */
        return mirt__where_gradient(mirt__logic_op(MIRT__IS_LESS_EQUAL, b, a), a, b, dy[0], dx);
    case MIRT__MINIMUM: return mirt__where_gradient(mirt__logic_op(MIRT__IS_LESS_EQUAL, a, b), a, b, dy[0], dx);
    default:
        mirt__fail(MIRT_E_INVALID, "the gradient of a gradient is not available for activations");
        return false;
    }
    if (a->needs_grad) dx[0] = mirt__unbroadcast(da, a);
    if (b->needs_grad) dx[1] = mirt__unbroadcast(db, b);
    return (!a->needs_grad || dx[0]) && (!b->needs_grad || dx[1]);
}

MIRT__TABLE mirt__op mirt__op_binary = {"binary", mirt__binary_shape, mirt__binary_gradient, mirt__binary_run, NULL, NULL, false, 0, NULL};

static bool mirt__broadcast_to_shape(mirt__node *node) {
    return mirt__need_float(node, 1) && mirt__declare(node, MIRT_FLOAT32, &node->in[1]->shape);
}

/* A product with a constant that repeats everywhere: the copy and the division of a mean in one pass. */
static void mirt__broadcast_run(const mirt__call *call) {
    mirt__real factor = 1;
    int64_t repeats = mirt__elements(call->node->in[0], call->rows);
    if (call->node->a.kind == MIRT__REDUCE_MEAN && repeats) factor = (mirt__real)repeats / (mirt__real)mirt__elements(call->node->out[0], call->rows);
    mirt__binary b;
    mirt__binary_args(call, &b);
    b.kind = MIRT__MULTIPLY;
    b.b = &factor;
    call->kernels->binary(&b, &call->where);
}

MIRT__TABLE mirt__op mirt__op_broadcast = {"broadcast", mirt__broadcast_to_shape, NULL, mirt__broadcast_run, NULL, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__broadcast_op(mirt_tensor *x, mirt_tensor *like, bool mean) {
    if (!x || !like) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.kind = mean ? MIRT__REDUCE_MEAN : MIRT__REDUCE_SUM;
    mirt_tensor *in[2] = {x, like};
    return mirt__record(x->node->graph, MIRT__OP_broadcast, &a, in, 2);
}

static bool mirt__bias_add_shape(mirt__node *node) {
    if (!mirt__need_float(node, 2)) return false;
    if (node->in[1]->shape.rank != 1 || node->in[1]->shape.dim[0] != mirt__last_dim(node->in[0])) {
        char tx[96], tb[96];
        mirt__fail(MIRT_E_SHAPE, "bias %s does not fit the last axis of %s", mirt__shape_text(&node->in[1]->shape, tb),
                   mirt__shape_text(&node->in[0]->shape, tx));
        return false;
    }
    return mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape);
}

static void mirt__bias_add_run(const mirt__call *call) { mirt__binary_call(call, MIRT__ADD); }

static bool mirt__bias_add_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = dy[0];
    if (node->in[1]->needs_grad) dx[1] = mirt__unbroadcast(dy[0], node->in[1]);
    return !node->in[1]->needs_grad || dx[1];
}

MIRT__TABLE mirt__op mirt__op_bias_add = {"bias_add", mirt__bias_add_shape, mirt__bias_add_gradient, mirt__bias_add_run, NULL, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__bias_add_op(mirt_tensor *x, mirt_tensor *bias) {
    if (!x || !bias) return NULL;
    mirt_tensor *in[2] = {x, bias};
    return mirt__record(x->node->graph, MIRT__OP_bias_add, NULL, in, 2);
}

static const mirt__activation_class mirt__activation_table[MIRT__ACTIVATION_COUNT] = {
    {"linear", false, MIRT__COPY, MIRT__ADD, 0},
    {"relu", true, MIRT__ACT_RELU, MIRT__RELU_GRAD, 0},
    {"sigmoid", true, MIRT__ACT_SIGMOID, MIRT__SIGMOID_GRAD, 0},
    {"tanh", true, MIRT__ACT_TANH, MIRT__TANH_GRAD, 0},
    {"softmax", false, MIRT__COPY, MIRT__ADD, 0},
    {"relu6", true, MIRT__ACT_RELU6, MIRT__RELU6_GRAD, 0},
    {"leaky_relu", false, MIRT__ACT_LEAKY_RELU, MIRT__LEAKY_RELU_GRAD, 0.2f},
    {"elu", false, MIRT__ACT_ELU, MIRT__ELU_GRAD, 1},
    {"gelu", false, MIRT__ACT_GELU, MIRT__GELU_GRAD, 0},
    {"silu", false, MIRT__ACT_SILU, MIRT__SILU_GRAD, 0},
    {"hard_sigmoid", false, MIRT__ACT_HARD_SIGMOID, MIRT__HARD_SIGMOID_GRAD, 0},
    {"hard_swish", false, MIRT__ACT_HARD_SWISH, MIRT__HARD_SWISH_GRAD, 0},
    {"softplus", false, MIRT__ACT_SOFTPLUS, MIRT__SOFTPLUS_GRAD, 0},
};

MIRT__LIB const mirt__activation_class *mirt__activation_get(mirt_activation_kind kind) {
    return (int)kind >= 0 && kind < MIRT__ACTIVATION_COUNT ? &mirt__activation_table[kind] : NULL;
}

MIRT__LIB mirt_activation_kind mirt__activation_of(const mirt__node *node) {
    for (int i = 0; node->id == MIRT__OP_unary && i < MIRT__ACTIVATION_COUNT; i++) {
        if (mirt__activation_table[i].fused && mirt__activation_table[i].unary == (mirt__unary_kind)node->a.kind) return (mirt_activation_kind)i;
    }
    return MIRT_LINEAR;
}

MIRT__LIB mirt_activation_kind mirt__activation_grad_of(const mirt__node *node) {
    for (int i = 0; node->id == MIRT__OP_binary && i < MIRT__ACTIVATION_COUNT; i++) {
        if (mirt__activation_table[i].fused && mirt__activation_table[i].grad == (mirt__binary_kind)node->a.kind) return (mirt_activation_kind)i;
    }
    return MIRT_LINEAR;
}

MIRT__LIB mirt_tensor *mirt__activation_op(mirt_activation_kind kind, mirt_tensor *x) {
    const mirt__activation_class *activation = mirt__activation_get(kind);
    if (!x || kind == MIRT_LINEAR) return x;
    if (kind == MIRT_SOFTMAX) return mirt_softmax(x);
    if (activation) return mirt__unary_op(activation->unary, x, activation->scale, 0);
    mirt__fail(MIRT_E_INVALID, "there is no activation number %d", (int)kind);
    mirt__graph_poison(x->node->graph);
    return NULL;
}

MIRT__LIB mirt_tensor *mirt__activation_grad_op(mirt_activation_kind kind, mirt_tensor *dy, mirt_tensor *y) {
    const mirt__activation_class *activation = mirt__activation_get(kind);
    return activation && activation->fused ? mirt__binary_op(activation->grad, dy, y) : dy;
}

MIRT_API mirt_tensor *mirt_add(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__ADD, a, b); }
MIRT_API mirt_tensor *mirt_subtract(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__SUBTRACT, a, b); }
MIRT_API mirt_tensor *mirt_multiply(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__MULTIPLY, a, b); }
MIRT_API mirt_tensor *mirt_divide(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__DIVIDE, a, b); }
MIRT_API mirt_tensor *mirt_negative(mirt_tensor *x) { return mirt__unary_op(MIRT__NEGATIVE, x, 0, 0); }
MIRT_API mirt_tensor *mirt_square(mirt_tensor *x) { return mirt__unary_op(MIRT__SQUARE, x, 0, 0); }
MIRT_API mirt_tensor *mirt_relu(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_RELU, x, 0, 0); }
MIRT_API mirt_tensor *mirt_sigmoid(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_SIGMOID, x, 0, 0); }
MIRT_API mirt_tensor *mirt_tanh(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_TANH, x, 0, 0); }
MIRT_API mirt_tensor *mirt_maximum(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__MAXIMUM, a, b); }
MIRT_API mirt_tensor *mirt_minimum(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__MINIMUM, a, b); }
MIRT_API mirt_tensor *mirt_scale(mirt_tensor *x, float scale, float offset) { return mirt__unary_op(MIRT__AFFINE, x, scale, offset); }
MIRT_API mirt_tensor *mirt_exp(mirt_tensor *x) { return mirt__unary_op(MIRT__EXP, x, 0, 0); }
MIRT_API mirt_tensor *mirt_log(mirt_tensor *x) { return mirt__unary_op(MIRT__LOG, x, 0, 0); }
MIRT_API mirt_tensor *mirt_sqrt(mirt_tensor *x) { return mirt__unary_op(MIRT__SQRT, x, 0, 0); }
MIRT_API mirt_tensor *mirt_rsqrt(mirt_tensor *x) { return mirt__unary_op(MIRT__RSQRT, x, 0, 0); }
MIRT_API mirt_tensor *mirt_abs(mirt_tensor *x) { return mirt__unary_op(MIRT__ABS, x, 0, 0); }
MIRT_API mirt_tensor *mirt_sign(mirt_tensor *x) { return mirt__unary_op(MIRT__SIGN, x, 0, 0); }
MIRT_API mirt_tensor *mirt_floor(mirt_tensor *x) { return mirt__unary_op(MIRT__FLOOR, x, 0, 0); }
MIRT_API mirt_tensor *mirt_clip(mirt_tensor *x, float low, float high) { return mirt__unary_op(MIRT__CLIP, x, low, high); }
MIRT_API mirt_tensor *mirt_power(mirt_tensor *x, float exponent) { return mirt__unary_op(MIRT__POWER, x, exponent, 0); }
MIRT_API mirt_tensor *mirt_relu6(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_RELU6, x, 0, 0); }
MIRT_API mirt_tensor *mirt_leaky_relu(mirt_tensor *x, float slope) { return mirt__unary_op(MIRT__ACT_LEAKY_RELU, x, slope, 0); }
MIRT_API mirt_tensor *mirt_elu(mirt_tensor *x, float alpha) { return mirt__unary_op(MIRT__ACT_ELU, x, alpha, 0); }
MIRT_API mirt_tensor *mirt_gelu(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_GELU, x, 0, 0); }
MIRT_API mirt_tensor *mirt_silu(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_SILU, x, 0, 0); }
MIRT_API mirt_tensor *mirt_hard_sigmoid(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_HARD_SIGMOID, x, 0, 0); }
MIRT_API mirt_tensor *mirt_hard_swish(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_HARD_SWISH, x, 0, 0); }
MIRT_API mirt_tensor *mirt_softplus(mirt_tensor *x) { return mirt__unary_op(MIRT__ACT_SOFTPLUS, x, 0, 0); }

/* >>section ops/logic.c */

/* logic: a.kind (mirt__logic_kind), numpy broadcasting. Comparisons take two tensors of one dtype and
   make bools; and, or, not take bools; where takes a bool and two of one dtype. */

static bool mirt__logic_shape(mirt__node *node) {
    const bool where = node->a.kind == MIRT__WHERE, truth = node->a.kind >= MIRT__AND && node->a.kind <= MIRT__NOT;
    const mirt_tensor *a = node->in[where], *b = node->num_in > where + 1 ? node->in[where + 1] : a;
    mirt_shape shape;
    if (where && node->in[0]->dtype != MIRT_BOOL) {
        return mirt__fail(MIRT_E_INVALID, "the condition is %s, not bool: compare or cast it first", mirt__dtype_name(node->in[0]->dtype)), false;
    }
    if (a->dtype != b->dtype) {
        return mirt__fail(MIRT_E_INVALID, "%s and %s do not go together: cast one of them", mirt__dtype_name(a->dtype), mirt__dtype_name(b->dtype)), false;
    }
    if (truth && a->dtype != MIRT_BOOL) {
        return mirt__fail(MIRT_E_INVALID, "takes bool, not %s: compare or cast it first", mirt__dtype_name(a->dtype)), false;
    }
    if (!mirt__broadcast_shape(&a->shape, &b->shape, &shape)) return false;
    mirt_shape all = shape;
    if (where && !mirt__broadcast_shape(&node->in[0]->shape, &shape, &all)) return false;
    return mirt__declare(node, where ? a->dtype : MIRT_BOOL, &all);
}

static void mirt__logic_run(const mirt__call *call) {
    const mirt_shape *out = &call->node->out[0]->shape;
    mirt__logic l;
    memset(&l, 0, sizeof l);
    l.kind = (mirt__logic_kind)call->node->a.kind;
    l.dtype = call->node->in[call->node->num_in - 1]->dtype;
    l.rank = out->rank;
    for (int i = 0; i < out->rank; i++) l.dim[i] = out->dim[i] == MIRT_ROWS ? call->rows : out->dim[i];
    for (int k = 0; k < 3; k++) {
        const int from = k < call->node->num_in ? k : 0;
        l.in[k] = call->in[from];
        mirt__broadcast_strides(&call->node->in[from]->shape, out, l.stride[k]);
    }
    l.y = call->out[0];
    call->kernels->logic(&l, &call->where);
}

MIRT__LIB bool mirt__where_gradient(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b, mirt_tensor *dy, mirt_tensor **dx) {
    if (!condition || !dy) return false;
    mirt_tensor *zero = mirt__scalar_op(dy->node->graph, 0);
    if (a->needs_grad && !(dx[0] = mirt__unbroadcast(mirt__where_op(condition, dy, zero), a))) return false;
    return !b->needs_grad || (dx[1] = mirt__unbroadcast(mirt__where_op(condition, zero, dy), b)) != NULL;
}

/* Only `where` passes gradients on; everything else makes bools. */
static bool mirt__logic_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    return mirt__where_gradient(node->in[0], node->in[1], node->in[2], dy[0], dx + 1);
}

MIRT__TABLE mirt__op mirt__op_logic = {"logic", mirt__logic_shape, mirt__logic_gradient, mirt__logic_run, NULL, NULL, false, 0, NULL};

static mirt_tensor *mirt__logic_record(mirt__logic_kind kind, mirt_tensor *const *in, int num_in) {
    for (int i = 0; i < num_in; i++) {
        if (!in[i]) return NULL;
    }
    mirt__attrs a = mirt__no_attrs();
    a.kind = kind;
    return mirt__record(in[0]->node->graph, MIRT__OP_logic, &a, in, num_in);
}

MIRT__LIB mirt_tensor *mirt__logic_op(mirt__logic_kind kind, mirt_tensor *a, mirt_tensor *b) {
    mirt_tensor *in[2] = {a, b};
    return mirt__logic_record(kind, in, kind == MIRT__NOT ? 1 : 2);
}

MIRT__LIB mirt_tensor *mirt__where_op(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b) {
    mirt_tensor *in[3] = {condition, a, b};
    return mirt__logic_record(MIRT__WHERE, in, 3);
}

MIRT_API mirt_tensor *mirt_equal(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__IS_EQUAL, a, b); }
MIRT_API mirt_tensor *mirt_not_equal(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__IS_NOT_EQUAL, a, b); }
MIRT_API mirt_tensor *mirt_less(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__IS_LESS, a, b); }
MIRT_API mirt_tensor *mirt_less_equal(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__IS_LESS_EQUAL, a, b); }
MIRT_API mirt_tensor *mirt_greater(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__IS_LESS, b, a); }
MIRT_API mirt_tensor *mirt_greater_equal(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__IS_LESS_EQUAL, b, a); }
MIRT_API mirt_tensor *mirt_logical_and(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__AND, a, b); }
MIRT_API mirt_tensor *mirt_logical_or(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(MIRT__OR, a, b); }
MIRT_API mirt_tensor *mirt_logical_not(mirt_tensor *x) { return mirt__logic_op(MIRT__NOT, x, NULL); }
MIRT_API mirt_tensor *mirt_where(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b) { return mirt__where_op(condition, a, b); }

/* >>section ops/reduce.c */

/* a.kind (mirt__reduce_kind), a.axes, a.keepdims. */

static bool mirt__reduce_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape;
    if (!mirt__need_float(node, 1)) return false;
    if (node->a.axes >> x->rank) return mirt__fail(MIRT_E_SHAPE, "axes 0x%x name an axis beyond rank %d", node->a.axes, x->rank), false;
    mirt_shape y;
    memset(&y, 0, sizeof y);
    for (int i = 0; i < x->rank; i++) {
        bool reduced = node->a.axes >> i & 1;
        if (!reduced) y.dim[y.rank++] = x->dim[i];
        else if (node->a.keepdims) y.dim[y.rank++] = 1;
    }
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

static void mirt__reduce_args(const mirt__node *node, int64_t rows, mirt__reduce *r) {
    const mirt_shape *x = &node->in[0]->shape;
    memset(r, 0, sizeof *r);
    r->kind = (mirt__reduce_kind)node->a.kind;
    r->rank = x->rank;
    r->axes = node->a.axes;
    for (int i = 0; i < x->rank; i++) r->dim[i] = x->dim[i] == MIRT_ROWS ? rows : x->dim[i];
}

static void mirt__reduce_run(const mirt__call *call) {
    mirt__reduce r;
    mirt__reduce_args(call->node, call->rows, &r);
    r.x = (const mirt__real *)call->in[0];
    r.y = (mirt__real *)call->out[0];
    call->kernels->reduce(&r, &call->where);
}

static void mirt__reduce_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__reduce r;
    mirt__reduce_args(node, rows, &r);
    out->scratch = mirt__reduce_scratch(&r);
}

/* y with its reduced axes put back as ones. */
static mirt_tensor *mirt__keepdims(mirt_tensor *y, const mirt__node *node) {
    mirt_shape shape = node->in[0]->shape;
    for (int i = 0; i < shape.rank; i++) {
        if (node->a.axes >> i & 1) shape.dim[i] = 1;
    }
    return mirt__reshape_op(y, &shape);
}

static bool mirt__reduce_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *x = node->in[0];
    if (node->a.kind >= MIRT__REDUCE_MAX) {
        mirt_tensor *in[3] = {x, node->out[0], dy[0]};
        dx[0] = mirt__record(node->graph, MIRT__OP_reduce_max_grad, &node->a, in, 3);
    } else {
        dx[0] = mirt__broadcast_op(mirt__keepdims(dy[0], node), x, node->a.kind == MIRT__REDUCE_MEAN);
    }
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_reduce = {"reduce", mirt__reduce_shape, mirt__reduce_gradient, mirt__reduce_run, mirt__reduce_workspace, NULL, false, 0, NULL};

static bool mirt__reduce_max_grad_shape(mirt__node *node) { return mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape); }

static void mirt__reduce_max_grad_run(const mirt__call *call) {
    mirt__reduce_max_grad g;
    mirt__reduce_args(call->node, call->rows, &g.s);
    g.s.x = (const mirt__real *)call->in[0];
    g.s.y = (mirt__real *)call->in[1];
    g.dy = (const mirt__real *)call->in[2];
    g.dx = (mirt__real *)call->out[0];
    call->kernels->reduce_max_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_reduce_max_grad = {
    "reduce_max_grad", mirt__reduce_max_grad_shape, NULL, mirt__reduce_max_grad_run, mirt__reduce_workspace, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__reduce_op(mirt__reduce_kind kind, mirt_tensor *x, unsigned axes, bool keepdims) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.kind = kind;
    a.axes = axes;
    a.keepdims = keepdims;
    return mirt__record(x->node->graph, MIRT__OP_reduce, &a, &x, 1);
}

static mirt_tensor *mirt__public_reduce(mirt__reduce_kind kind, mirt_tensor *x, unsigned axes, bool keepdims) {
    if (!x) return NULL;
    if (!axes) axes = ((1u << x->shape.rank) - 1) & ~(mirt__is_batched(&x->shape) ? 1u : 0u);
    return mirt__reduce_op(kind, x, axes, keepdims);
}

MIRT_API mirt_tensor *mirt_reduce_sum(mirt_tensor *x, unsigned axes, bool keepdims) {
    return mirt__public_reduce(MIRT__REDUCE_SUM, x, axes, keepdims);
}
MIRT_API mirt_tensor *mirt_reduce_mean(mirt_tensor *x, unsigned axes, bool keepdims) {
    return mirt__public_reduce(MIRT__REDUCE_MEAN, x, axes, keepdims);
}
MIRT_API mirt_tensor *mirt_reduce_max(mirt_tensor *x, unsigned axes, bool keepdims) {
    return mirt__public_reduce(MIRT__REDUCE_MAX, x, axes, keepdims);
}
MIRT_API mirt_tensor *mirt_reduce_min(mirt_tensor *x, unsigned axes, bool keepdims) {
    return mirt__public_reduce(MIRT__REDUCE_MIN, x, axes, keepdims);
}
MIRT_API mirt_tensor *mirt_reduce_variance(mirt_tensor *x, unsigned axes, bool keepdims) {
    mirt_tensor *mean = mirt_reduce_mean(x, axes, true);
    return mirt_reduce_mean(mirt_square(mirt_subtract(x, mean)), axes, keepdims);
}

/* >>section ops/scan.c */

/* scan: a.kind (mirt__scan_kind) along a.axis. */

MIRT__LIB bool mirt__take_axis(mirt__node *node, const mirt_shape *x) {
    const int axis = node->a.axis < 0 ? node->a.axis + x->rank : node->a.axis;
    char text[96];
    if (axis < 0 || axis >= x->rank) {
        return mirt__fail(MIRT_E_SHAPE, "%s has no axis %d", mirt__shape_text(x, text), node->a.axis), false;
    }
    if (x->dim[axis] == MIRT_ROWS) return mirt__fail(MIRT_E_SHAPE, "axis %d is the rows of a batch, which are divided among replicas", node->a.axis), false;
    node->a.axis = axis;
    return true;
}

static bool mirt__scan_finds(const mirt__node *node) { return node->a.kind == MIRT__ARGMAX || node->a.kind == MIRT__ARGMIN; }

static bool mirt__scan_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    if (!mirt__need_float(node, 1) || !mirt__take_axis(node, &y)) return false;
    if (!mirt__scan_finds(node)) return mirt__declare(node, MIRT_FLOAT32, &y);
    if (y.dim[node->a.axis] > INT32_MAX) return mirt__fail(MIRT_E_SHAPE, "an axis of %lld is too long for int32", (long long)y.dim[node->a.axis]), false;
    y.rank--;
    for (int i = node->a.axis; i < y.rank; i++) y.dim[i] = y.dim[i + 1];
    return mirt__declare(node, MIRT_INT32, &y);
}

static void mirt__scan_run(const mirt__call *call) {
    const mirt_shape *x = &call->node->in[0]->shape;
    mirt__scan s;
    s.kind = (mirt__scan_kind)call->node->a.kind;
    s.outer = s.inner = 1;
    s.n = x->dim[call->node->a.axis];
    for (int i = 0; i < x->rank; i++) {
        if (i < call->node->a.axis) s.outer *= x->dim[i] == MIRT_ROWS ? call->rows : x->dim[i];
        if (i > call->node->a.axis) s.inner *= x->dim[i];
    }
    s.x = (const mirt__real *)call->in[0];
    s.y = call->out[0];
    call->kernels->scan(&s, &call->where);
}

static mirt_tensor *mirt__scan_op(int kind, mirt_tensor *x, int axis) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.kind = kind;
    a.axis = axis;
    return mirt__record(x->node->graph, MIRT__OP_scan, &a, &x, 1);
}

/* Only sums pass gradients on: places are int32. */
static bool mirt__scan_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__scan_op(node->a.kind == MIRT__CUMSUM ? MIRT__CUMSUM_BACK : MIRT__CUMSUM, dy[0], node->a.axis);
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_scan = {"scan", mirt__scan_shape, mirt__scan_gradient, mirt__scan_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_argmax(mirt_tensor *x, int axis) { return mirt__scan_op(MIRT__ARGMAX, x, axis); }
MIRT_API mirt_tensor *mirt_argmin(mirt_tensor *x, int axis) { return mirt__scan_op(MIRT__ARGMIN, x, axis); }
MIRT_API mirt_tensor *mirt_cumsum(mirt_tensor *x, int axis) { return mirt__scan_op(MIRT__CUMSUM, x, axis); }

/* >>section ops/shape.c */

/* reshape: a.shape. cast: a.dtype. one_hot: a.depth. */

static bool mirt__reshape_shape(mirt__node *node) {
    const mirt_tensor *x = node->in[0];
    bool rows_kept = mirt__is_batched(&x->shape) == mirt__is_batched(&node->a.shape);
    if (!rows_kept || mirt__shape_count(&x->shape) != mirt__shape_count(&node->a.shape)) {
        char from[96], to[96];
        mirt__fail(MIRT_E_SHAPE, "%s cannot be reshaped to %s", mirt__shape_text(&x->shape, from), mirt__shape_text(&node->a.shape, to));
        return false;
    }
    return mirt__declare(node, x->dtype, &node->a.shape);
}

static bool mirt__reshape_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__reshape_op(dy[0], &node->in[0]->shape);
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_reshape = {"reshape", mirt__reshape_shape, mirt__reshape_gradient, NULL, NULL, NULL, true, 0, NULL};

MIRT__LIB mirt_tensor *mirt__reshape_op(mirt_tensor *x, const mirt_shape *shape) {
    if (!x || mirt__shape_equal(&x->shape, shape)) return x;
    mirt__attrs a = mirt__no_attrs();
    a.shape = *shape;
    return mirt__record(x->node->graph, MIRT__OP_reshape, &a, &x, 1);
}

MIRT_API mirt_tensor *mirt_reshape(mirt_tensor *x, mirt_shape shape) {
    if (!x) return NULL;
    bool batched = mirt__is_batched(&x->shape);
    if (shape.rank < 0 || shape.rank > MIRT_MAX_RANK - batched) {
        mirt__fail(MIRT_E_SHAPE, "reshape: %d axes; at most %d are possible%s", shape.rank, MIRT_MAX_RANK - batched, batched ? " besides the rows" : "");
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    if (batched) {
        for (int i = shape.rank; i > 0; i--) shape.dim[i] = shape.dim[i - 1];
        shape.dim[0] = MIRT_ROWS;
        shape.rank++;
    }
    return mirt__reshape_op(x, &shape);
}

static bool mirt__cast_shape(mirt__node *node) {
    if (!mirt__dtype_size(node->a.dtype)) return mirt__fail(MIRT_E_INVALID, "there is no dtype number %d", (int)node->a.dtype), false;
    return mirt__declare(node, node->a.dtype, &node->in[0]->shape);
}

static void mirt__cast_run(const mirt__call *call) {
    mirt__cast c;
    c.from = call->node->in[0]->dtype;
    c.to = call->node->a.dtype;
    c.count = mirt__elements(call->node->out[0], call->rows);
    c.x = call->in[0];
    c.y = call->out[0];
    call->kernels->cast(&c, &call->where);
}

MIRT__TABLE mirt__op mirt__op_cast = {"cast", mirt__cast_shape, NULL, mirt__cast_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_cast(mirt_tensor *x, mirt_dtype dtype) {
    if (!x || x->dtype == dtype) return x;
    mirt__attrs a = mirt__no_attrs();
    a.dtype = dtype;
    return mirt__record(x->node->graph, MIRT__OP_cast, &a, &x, 1);
}

static bool mirt__one_hot_shape(mirt__node *node) {
    mirt_shape shape = node->in[0]->shape;
    if (node->in[0]->dtype == MIRT_FLOAT32) return mirt__fail(MIRT_E_INVALID, "takes int32 or uint8 indices, not float32"), false;
    if (node->a.depth < 1) return mirt__fail(MIRT_E_INVALID, "depth is %lld; it must be positive", (long long)node->a.depth), false;
    if (shape.rank == MIRT_MAX_RANK) return mirt__fail(MIRT_E_SHAPE, "makes more than %d axes", MIRT_MAX_RANK), false;
    shape.dim[shape.rank++] = node->a.depth;
    return mirt__declare(node, MIRT_FLOAT32, &shape);
}

static void mirt__one_hot_run(const mirt__call *call) {
    mirt__one_hot o;
    o.count = mirt__elements(call->node->in[0], call->rows);
    o.depth = call->node->a.depth;
    o.dtype = call->node->in[0]->dtype == MIRT_BOOL ? MIRT_UINT8 : call->node->in[0]->dtype;
    o.x = call->in[0];
    o.y = (mirt__real *)call->out[0];
    call->kernels->one_hot(&o, &call->where);
}

MIRT__TABLE mirt__op mirt__op_one_hot = {"one_hot", mirt__one_hot_shape, NULL, mirt__one_hot_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_one_hot(mirt_tensor *x, int64_t depth) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.depth = depth;
    return mirt__record(x->node->graph, MIRT__OP_one_hot, &a, &x, 1);
}

static bool mirt__stop_gradient_shape(mirt__node *node) { return mirt__declare(node, node->in[0]->dtype, &node->in[0]->shape); }

MIRT__TABLE mirt__op mirt__op_stop_gradient = {"stop_gradient", mirt__stop_gradient_shape, NULL, NULL, NULL, NULL, true, 0, NULL};

MIRT_API mirt_tensor *mirt_stop_gradient(mirt_tensor *x) { return x ? mirt__record(x->node->graph, MIRT__OP_stop_gradient, NULL, &x, 1) : NULL; }

MIRT_API mirt_shape mirt_tensor_shape(const mirt_tensor *x) {
    mirt_shape none;
    memset(&none, 0, sizeof none);
    return x ? x->shape : none;
}
MIRT_API mirt_dtype mirt_tensor_dtype(const mirt_tensor *x) { return x ? x->dtype : MIRT_FLOAT32; }

/* >>section ops/move.c */

/* transpose: output axis i is input axis a.begin[i]. concat: along a.axis. slice: from a.begin on, a.shape
   elements. pad: a.begin before and a.shape after, with a.scale. gather: rows of the first input by the
   indices of the second; gather_grad: a.shape is the table's. All keep rows where they are. */

/* One move of a call's bytes; the caller sets dimensions, strides and places. */
static mirt__move mirt__move_of(const mirt__call *call, const mirt_shape *shape) {
    mirt__move m;
    memset(&m, 0, sizeof m);
    m.dtype = call->node->out[0]->dtype;
    m.rank = shape->rank;
    for (int i = 0; i < shape->rank; i++) m.dim[i] = shape->dim[i] == MIRT_ROWS ? call->rows : shape->dim[i];
    m.y = call->out[0];
    return m;
}

static void mirt__move_strides(const mirt_shape *x, int64_t *stride) { mirt__broadcast_strides(x, x, stride); }

/* `base` moved by `place` along the axes with these strides. */
static void *mirt__move_at(void *base, const int64_t *stride, const int64_t *place, int rank, mirt_dtype dtype) {
    int64_t at = 0;
    for (int i = 0; i < rank; i++) at += stride[i] * place[i];
    return (char *)base + (size_t)at * mirt__dtype_size(dtype);
}

static bool mirt__move_keeps_rows(const mirt__node *node, bool kept) {
    if (mirt__is_batched(&node->in[0]->shape) && !kept) return mirt__fail(MIRT_E_SHAPE, "axis 0 is the rows of a batch and stays as it is"), false;
    return true;
}

static bool mirt__transpose_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape;
    mirt_shape y = *x;
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        const int64_t from = node->a.begin[i];
        if (from < 0 || from >= x->rank || seen >> from & 1) {
            return mirt__fail(MIRT_E_INVALID, "the permutation must name each of the axes 0 to %d once", x->rank - 1), false;
        }
        seen |= 1u << from;
        y.dim[i] = x->dim[from];
    }
    return mirt__move_keeps_rows(node, node->a.begin[0] == 0) && mirt__declare(node, node->in[0]->dtype, &y);
}

static void mirt__transpose_run(const mirt__call *call) {
    int64_t stride[MIRT_MAX_RANK];
    mirt__move m = mirt__move_of(call, &call->node->out[0]->shape);
    mirt__move_strides(&call->node->in[0]->shape, stride);
    mirt__move_strides(&call->node->out[0]->shape, m.to);
    for (int i = 0; i < m.rank; i++) m.from[i] = stride[call->node->a.begin[i]];
    m.x = call->in[0];
    call->kernels->move(&m, &call->where);
}

static bool mirt__transpose_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt__attrs a = mirt__no_attrs();
    for (int i = 0; i < node->in[0]->shape.rank; i++) a.begin[node->a.begin[i]] = i;
    dx[0] = mirt__record(node->graph, MIRT__OP_transpose, &a, dy, 1);
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_transpose = {"transpose", mirt__transpose_shape, mirt__transpose_gradient, mirt__transpose_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_transpose(mirt_tensor *x, const int *permutation) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    const int first = mirt__is_batched(&x->shape); /* behind which axes are reversed */
    for (int i = 0; i < x->shape.rank; i++) a.begin[i] = permutation ? permutation[i] : i < first ? i : x->shape.rank - 1 + first - i;
    return mirt__record(x->node->graph, MIRT__OP_transpose, &a, &x, 1);
}

static bool mirt__concat_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    if (!mirt__take_axis(node, &y)) return false;
    for (int k = 1; k < node->num_in; k++) {
        const mirt_tensor *x = node->in[k];
        mirt_shape same = x->shape;
        if (same.rank == y.rank) same.dim[node->a.axis] = y.dim[node->a.axis];
        if (!mirt__shape_equal(&same, &y)) {
            char tx[96], ty[96];
            return mirt__fail(MIRT_E_SHAPE, "%s and %s differ in more than axis %d", mirt__shape_text(&node->in[0]->shape, ty),
                              mirt__shape_text(&x->shape, tx), node->a.axis), false;
        }
        if (x->dtype != node->in[0]->dtype) {
            return mirt__fail(MIRT_E_INVALID, "%s and %s do not go together: cast one of them", mirt__dtype_name(node->in[0]->dtype),
                              mirt__dtype_name(x->dtype)), false;
        }
        if (y.dim[node->a.axis] > MIRT__MAX_ELEMENTS - x->shape.dim[node->a.axis]) return mirt__fail(MIRT_E_SHAPE, "makes too many elements"), false;
        y.dim[node->a.axis] += x->shape.dim[node->a.axis];
    }
    return mirt__declare(node, node->in[0]->dtype, &y);
}

static void mirt__concat_run(const mirt__call *call) {
    int64_t place[MIRT_MAX_RANK] = {0};
    for (int k = 0; k < call->node->num_in; k++) {
        const mirt_shape *x = &call->node->in[k]->shape;
        mirt__move m = mirt__move_of(call, x);
        mirt__move_strides(x, m.from);
        mirt__move_strides(&call->node->out[0]->shape, m.to);
        m.x = call->in[k];
        m.y = mirt__move_at(call->out[0], m.to, place, m.rank, m.dtype);
        call->kernels->move(&m, &call->where);
        place[call->node->a.axis] += x->dim[call->node->a.axis];
    }
}

static mirt_tensor *mirt__slice_op(mirt_tensor *x, const int64_t *begin, const int64_t *size) {
    mirt__attrs a = mirt__no_attrs();
    if (!x) return NULL;
    a.shape.rank = x->shape.rank;
    for (int i = 0; i < x->shape.rank; i++) {
        a.begin[i] = begin[i];
        a.shape.dim[i] = size[i];
    }
    return mirt__record(x->node->graph, MIRT__OP_slice, &a, &x, 1);
}

static bool mirt__concat_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    int64_t begin[MIRT_MAX_RANK] = {0};
    for (int k = 0; k < node->num_in; k++) {
        const mirt_shape *x = &node->in[k]->shape;
        if (node->in[k]->needs_grad && !(dx[k] = mirt__slice_op(dy[0], begin, x->dim))) return false;
        begin[node->a.axis] += x->dim[node->a.axis];
    }
    return true;
}

MIRT__TABLE mirt__op mirt__op_concat = {"concat", mirt__concat_shape, mirt__concat_gradient, mirt__concat_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_concat(mirt_tensor *const *x, int n, int axis) {
    mirt_tensor *in[MIRT__MAX_IN];
    mirt__attrs a = mirt__no_attrs();
    a.axis = axis;
    if (n < 1 || !x) return mirt__fail(MIRT_E_INVALID, "concat: there is nothing to join"), (mirt_tensor *)NULL;
    in[0] = x[0];
    for (int at = 1; at < n && in[0];) { /* as many at a time as a node takes */
        int count = 1;
        while (at < n && count < MIRT__MAX_IN) in[count++] = x[at++];
        in[0] = mirt__record(x[0]->node->graph, MIRT__OP_concat, &a, in, count);
    }
    return in[0];
}

static bool mirt__slice_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape;
    mirt__attrs *a = &node->a;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i] == MIRT_ROWS) {
            if (!mirt__move_keeps_rows(node, a->begin[i] == 0 && a->shape.dim[i] == -1)) return false;
            continue;
        }
        if (a->shape.dim[i] == -1) a->shape.dim[i] = x->dim[i] - a->begin[i];
        if (a->begin[i] < 0 || a->shape.dim[i] < 1 || a->begin[i] > x->dim[i] - a->shape.dim[i]) {
            return mirt__fail(MIRT_E_SHAPE, "%lld elements from %lld on are not within the %lld of axis %d", (long long)a->shape.dim[i],
                              (long long)a->begin[i], (long long)x->dim[i], i), false;
        }
    }
    return mirt__declare(node, node->in[0]->dtype, &a->shape);
}

static void mirt__slice_run(const mirt__call *call) {
    const mirt_shape *y = &call->node->out[0]->shape;
    mirt__move m = mirt__move_of(call, y);
    mirt__move_strides(&call->node->in[0]->shape, m.from);
    mirt__move_strides(y, m.to);
    m.x = mirt__move_at(call->in[0], m.from, call->node->a.begin, m.rank, m.dtype);
    call->kernels->move(&m, &call->where);
}

static mirt_tensor *mirt__pad_op(mirt_tensor *x, const int64_t *before, const int64_t *after, float value) {
    mirt__attrs a = mirt__no_attrs();
    if (!x) return NULL;
    a.scale = value;
    a.shape.rank = x->shape.rank;
    for (int i = 0; i < x->shape.rank; i++) {
        a.begin[i] = before[i];
        a.shape.dim[i] = after[i];
    }
    return mirt__record(x->node->graph, MIRT__OP_pad, &a, &x, 1);
}

static bool mirt__slice_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    const mirt_shape *x = &node->in[0]->shape;
    int64_t after[MIRT_MAX_RANK];
    for (int i = 0; i < x->rank; i++) after[i] = x->dim[i] - node->a.begin[i] - node->out[0]->shape.dim[i];
    dx[0] = mirt__pad_op(dy[0], node->a.begin, after, 0);
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_slice = {"slice", mirt__slice_shape, mirt__slice_gradient, mirt__slice_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_slice(mirt_tensor *x, const int64_t *begin, const int64_t *size) { return mirt__slice_op(x, begin, size); }

MIRT_API mirt_tensor *mirt_split_tensor(mirt_tensor *x, int n, int axis, mirt_tensor **out) {
    int64_t begin[MIRT_MAX_RANK] = {0}, size[MIRT_MAX_RANK];
    for (int i = 0; i < n; i++) out[i] = NULL;
    if (!x) return NULL;
    const int at = axis < 0 ? axis + x->shape.rank : axis;
    for (int i = 0; i < MIRT_MAX_RANK; i++) size[i] = -1;
    const int64_t whole = at >= 0 && at < x->shape.rank ? x->shape.dim[at] : 0;
    if (n < 1 || whole < n || whole % n) {
        char text[96];
        mirt__fail(MIRT_E_SHAPE, "split: %s does not divide into %d equal parts along axis %d", mirt__shape_text(&x->shape, text), n, axis);
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    size[at] = whole / n;
    for (int i = 0; i < n; i++, begin[at] += size[at]) out[i] = mirt__slice_op(x, begin, size);
    for (int i = 0; i < n && !out[n - 1]; i++) out[i] = NULL;
    return out[0];
}

static bool mirt__pad_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    const mirt__attrs *a = &node->a;
    for (int i = 0; i < y.rank; i++) {
        if (y.dim[i] == MIRT_ROWS) {
            if (!mirt__move_keeps_rows(node, a->begin[i] == 0 && a->shape.dim[i] == 0)) return false;
            continue;
        }
        if (a->begin[i] < 0 || a->shape.dim[i] < 0) return mirt__fail(MIRT_E_INVALID, "an axis cannot be padded by less than nothing; mirt_slice cuts"), false;
        if (a->begin[i] > MIRT__MAX_ELEMENTS || a->shape.dim[i] > MIRT__MAX_ELEMENTS) return mirt__fail(MIRT_E_SHAPE, "makes too many elements"), false;
        y.dim[i] += a->begin[i] + a->shape.dim[i];
    }
    if (node->in[0]->dtype != MIRT_FLOAT32 && a->scale != 0) {
        return mirt__fail(MIRT_E_INVALID, "pads %s with 0 only", mirt__dtype_name(node->in[0]->dtype)), false;
    }
    return mirt__declare(node, node->in[0]->dtype, &y);
}

/* All becomes the value, then x goes into its place. */
static void mirt__pad_run(const mirt__call *call) {
    const mirt_shape *x = &call->node->in[0]->shape, *y = &call->node->out[0]->shape;
    const mirt__real value = (mirt__real)call->node->a.scale;
    mirt__move m = mirt__move_of(call, y);
    mirt__move_strides(y, m.to);
    m.x = &value; /* a zero of any dtype is made of zero bytes */
    call->kernels->move(&m, &call->where);
    m = mirt__move_of(call, x);
    mirt__move_strides(x, m.from);
    mirt__move_strides(y, m.to);
    m.x = call->in[0];
    m.y = mirt__move_at(call->out[0], m.to, call->node->a.begin, m.rank, m.dtype);
    call->kernels->move(&m, &call->where);
}

static bool mirt__pad_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__slice_op(dy[0], node->a.begin, node->in[0]->shape.dim);
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_pad = {"pad", mirt__pad_shape, mirt__pad_gradient, mirt__pad_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_pad(mirt_tensor *x, const int64_t *before, const int64_t *after, float value) { return mirt__pad_op(x, before, after, value); }

static bool mirt__gather_shape(mirt__node *node) {
    const mirt_tensor *table = node->in[0], *indices = node->in[1];
    mirt_shape y = indices->shape;
    if (!mirt__need_float(node, 1)) return false;
    if (indices->dtype != MIRT_INT32 && indices->dtype != MIRT_UINT8) {
        return mirt__fail(MIRT_E_INVALID, "takes int32 or uint8 indices, not %s", mirt__dtype_name(indices->dtype)), false;
    }
    if (table->shape.rank < 1 || mirt__is_batched(&table->shape)) return mirt__fail(MIRT_E_SHAPE, "takes rows of a table, not of a batch"), false;
    if (y.rank + table->shape.rank - 1 > MIRT_MAX_RANK) return mirt__fail(MIRT_E_SHAPE, "makes more than %d axes", MIRT_MAX_RANK), false;
    for (int i = 1; i < table->shape.rank; i++) y.dim[y.rank++] = table->shape.dim[i];
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

/* `x` and `y` are the bytes read and written. */
static mirt__gather mirt__gather_of(const mirt__call *call, const mirt_shape *table, const void *x) {
    mirt__gather g;
    g.n = table->dim[0];
    g.width = g.n ? mirt__shape_count(table) / g.n : 0;
    g.count = mirt__elements(call->node->in[1], call->rows);
    g.dtype = call->node->in[1]->dtype;
    g.indices = call->in[1];
    g.x = (const mirt__real *)x;
    g.y = (mirt__real *)call->out[0];
    return g;
}

static void mirt__gather_run(const mirt__call *call) {
    const mirt__gather g = mirt__gather_of(call, &call->node->in[0]->shape, call->in[0]);
    call->kernels->gather(&g, &call->where);
}

static bool mirt__gather_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *in[2] = {dy[0], node->in[1]};
    mirt__attrs a = mirt__no_attrs();
    a.shape = node->in[0]->shape;
    dx[0] = mirt__record(node->graph, MIRT__OP_gather_grad, &a, in, 2);
    return dx[0] != NULL;
}

static bool mirt__gather_grad_shape(mirt__node *node) { return mirt__declare(node, MIRT_FLOAT32, &node->a.shape); }

static void mirt__gather_grad_run(const mirt__call *call) {
    const mirt__gather g = mirt__gather_of(call, &call->node->a.shape, call->in[0]);
    call->kernels->gather_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_gather = {"gather", mirt__gather_shape, mirt__gather_gradient, mirt__gather_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_gather_grad = {"gather_grad", mirt__gather_grad_shape, NULL, mirt__gather_grad_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_gather(mirt_tensor *table, mirt_tensor *indices) {
    mirt_tensor *in[2] = {table, indices};
    return table && indices ? mirt__record(table->node->graph, MIRT__OP_gather, NULL, in, 2) : NULL;
}

/* >>section ops/matmul.c */

/* a.transpose_a, a.transpose_b. An operand is the matrix [all other axes, last axis]. Fused: a.bias,
   a.activation, a.mask_activation, a.column_sum, a.affine (first operand). */

/* An operand as it lies in memory, before its transposition. */
typedef struct mirt__matrix {
    int64_t rows, cols;
    bool batched; /* `rows` is that of one row of the batch */
} mirt__matrix;

static mirt__matrix mirt__matrix_of(const mirt_tensor *x) {
    mirt__matrix m;
    m.cols = mirt__last_dim(x);
    m.rows = m.cols ? mirt__shape_count(&x->shape) / m.cols : 0;
    m.batched = mirt__is_batched(&x->shape) && x->shape.rank > 1;
    return m;
}

static bool mirt__matmul_misfit(const mirt__node *node) {
    char ta[96], tb[96];
    mirt__fail(MIRT_E_SHAPE, "%s%s and %s%s: inner sizes differ", mirt__shape_text(&node->in[0]->shape, ta),
               node->a.transpose_a ? " transposed" : "", mirt__shape_text(&node->in[1]->shape, tb),
               node->a.transpose_b ? " transposed" : "");
    return false;
}

static bool mirt__matmul_shape(mirt__node *node) {
    const mirt_tensor *a = node->in[0], *b = node->in[1];
    if (b->dtype != MIRT_FLOAT32 || (a->dtype != MIRT_FLOAT32 && !node->a.affine)) return mirt__need_float(node, 2);
    if (a->shape.rank < 1 || b->shape.rank < 1) return mirt__fail(MIRT_E_SHAPE, "takes tensors of rank 1 and more"), false;
    if (mirt__last_dim(a) == MIRT_ROWS || mirt__last_dim(b) == MIRT_ROWS) {
        return mirt__fail(MIRT_E_SHAPE, "takes (rows, features), not a bare column of rows: reshape it"), false;
    }
    mirt__matrix ma = mirt__matrix_of(a), mb = mirt__matrix_of(b);
    int64_t ka = node->a.transpose_a ? ma.rows : ma.cols, kb = node->a.transpose_b ? mb.cols : mb.rows;
    bool ka_batched = node->a.transpose_a && ma.batched, kb_batched = !node->a.transpose_b && mb.batched;
    if (ka != kb || ka_batched != kb_batched) return mirt__matmul_misfit(node);
    if (node->a.transpose_b && mb.batched) return mirt__fail(MIRT_E_SHAPE, "the rows of a batch can only come first in the result"), false;
    mirt_shape y;
    memset(&y, 0, sizeof y);
    if (node->a.transpose_a) {
        y.rank = 2;
        y.dim[0] = ma.cols;
    } else {
        y = a->shape;
    }
    y.dim[y.rank - 1] = node->a.transpose_b ? mb.rows : mb.cols;
    if (!mirt__declare(node, MIRT_FLOAT32, &y)) return false;
    mirt_shape column = mirt_make_shape(mirt__last_dim(node->out[0]), 0, 0, 0, 0, 0);
    return !node->a.column_sum || mirt__declare(node, MIRT_FLOAT32, &column);
}

static void mirt__matmul_args(const mirt__node *node, int64_t rows, mirt__gemm *g) {
    mirt__matrix ma = mirt__matrix_of(node->in[0]), mb = mirt__matrix_of(node->in[1]);
    int64_t ra = ma.rows * (ma.batched ? rows : 1), rb = mb.rows * (mb.batched ? rows : 1);
    memset(g, 0, sizeof *g);
    g->m = node->a.transpose_a ? ma.cols : ra;
    g->k = node->a.transpose_a ? ra : ma.cols;
    g->n = node->a.transpose_b ? rb : mb.cols;
    g->a_row = node->a.transpose_a ? 1 : ma.cols;
    g->a_col = node->a.transpose_a ? ma.cols : 1;
    g->b_row = node->a.transpose_b ? 1 : mb.cols;
    g->b_col = node->a.transpose_b ? mb.cols : 1;
    g->a.dtype = node->in[0]->dtype;
    g->a.affine = node->a.affine;
}

/* The operands after the two matrices, as recorded by the fusion. */
static mirt__epilogue mirt__epilogue_of(const mirt__call *call) {
    mirt__epilogue e;
    memset(&e, 0, sizeof e);
    int next = 2;
    if (call->node->a.bias) e.bias = (const mirt__real *)call->in[next++];
    if (call->node->a.mask_activation) e.mask = (const mirt__real *)call->in[next];
    e.activation = call->node->a.activation;
    e.mask_activation = call->node->a.mask_activation;
    return e;
}

static void mirt__matmul_run(const mirt__call *call) {
    mirt__gemm g;
    mirt__matmul_args(call->node, call->rows, &g);
    g.a = mirt__reader_of(call, 0);
    g.b = (const mirt__real *)call->in[1];
    g.c = (mirt__real *)call->out[0];
    if (call->node->a.column_sum) g.column_sum = (mirt__real *)call->out[1];
    g.epilogue = mirt__epilogue_of(call);
    call->kernels->gemm(&g, &call->where);
}

static void mirt__matmul_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__gemm g;
    mirt__matmul_args(node, rows, &g);
    out->scratch = mirt__gemm_scratch(&g);
}

static double mirt__matmul_macs(const mirt__node *node, int64_t rows) {
    mirt__gemm g;
    mirt__matmul_args(node, rows, &g);
    return (double)g.m * (double)g.n * (double)g.k;
}

/* The weight gradient of a dense layer, and its bias gradient in the same pass. */
static bool mirt__matmul_weight_grad(mirt__node *node, mirt_tensor *dz, mirt_tensor **dx) {
    mirt_tensor *in[2] = {node->in[0], dz};
    mirt__attrs a = mirt__no_attrs();
    a.transpose_a = true;
    a.affine = node->a.affine;
    a.scale = node->a.scale;
    a.offset = node->a.offset;
    a.column_sum = node->a.bias && node->in[2]->needs_grad;
    mirt_tensor *db = mirt__record(node->graph, MIRT__OP_matmul, &a, in, 2);
    if (!db) return false;
    dx[1] = db;
    if (a.column_sum) dx[2] = db->node->out[1];
    return true;
}

static bool mirt__matmul_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *a = node->in[0], *b = node->in[1];
    bool ta = node->a.transpose_a, tb = node->a.transpose_b;
    mirt_tensor *dz = mirt__activation_grad_op(node->a.activation, dy[0], node->out[0]);
    if (a->needs_grad) {
        mirt_tensor *da = ta ? mirt__matmul_op(b, dz, tb, true) : mirt__matmul_op(dz, b, false, !tb);
        if (!da || !(dx[0] = mirt__reshape_op(da, &a->shape))) return false;
    }
    if (!ta && !tb && (b->needs_grad || node->a.bias)) {
        if (!mirt__matmul_weight_grad(node, dz, dx)) return false;
        return (dx[1] = mirt__reshape_op(dx[1], &b->shape)) != NULL;
    }
    if (b->needs_grad) {
        mirt_tensor *db = tb ? mirt__matmul_op(dz, a, true, ta) : mirt__matmul_op(a, dz, !ta, false);
        if (!db || !(dx[1] = mirt__reshape_op(db, &b->shape))) return false;
    }
    return true;
}

MIRT__TABLE mirt__op mirt__op_matmul = {
    "matmul", mirt__matmul_shape, mirt__matmul_gradient, mirt__matmul_run, mirt__matmul_workspace, mirt__matmul_macs, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__matmul_op(mirt_tensor *a, mirt_tensor *b, bool transpose_a, bool transpose_b) {
    if (!a || !b) return NULL;
    mirt__attrs attrs = mirt__no_attrs();
    attrs.transpose_a = transpose_a;
    attrs.transpose_b = transpose_b;
    mirt_tensor *in[2] = {a, b};
    return mirt__record(a->node->graph, MIRT__OP_matmul, &attrs, in, 2);
}

MIRT_API mirt_tensor *mirt_matmul(mirt_tensor *a, mirt_tensor *b, bool transpose_a, bool transpose_b) {
    return mirt__matmul_op(a, b, transpose_a, transpose_b);
}

/* >>section ops/conv.c */

/* conv2d: x NHWC, kernel HWIO; a.strides, a.dilation, a.groups, a.padding. Fused: a.bias,
   a.activation, a.affine. Gradients: a.shape is the shape of x or of the kernel;
   a.mask_activation, a.column_sum (bias gradient as second output). conv2d_pool: convolution +
   bias + relu + 2x2 max pooling, for inputs that need no gradient. conv2d_transpose: the input
   gradient of a convolution as an op of its own, kernel [kh, kw, filters, channels]; a.shape is that
   of its output. */

MIRT__LIB bool mirt__window_check(const int kernel[2], const int strides[2], const int dilation[2], mirt_padding padding) {
    const double most = 1 << 28;
    if (padding != MIRT_VALID && padding != MIRT_SAME) return mirt__fail(MIRT_E_INVALID, "there is no padding number %d", (int)padding), false;
    for (int i = 0; i < 2; i++) {
        if (kernel[i] < 1 || strides[i] < 1 || dilation[i] < 1) return mirt__fail(MIRT_E_INVALID, "window size, strides and dilation must be positive"), false;
        if ((double)kernel[i] * dilation[i] > most) return mirt__fail(MIRT_E_SHAPE, "a window that reaches over %.0f pixels is too large", (double)kernel[i] * dilation[i]), false;
    }
    if ((double)kernel[0] * kernel[1] > most) return mirt__fail(MIRT_E_SHAPE, "a window of %dx%d is too large", kernel[0], kernel[1]), false;
    return true;
}

MIRT__LIB bool mirt__window_out(int64_t in, int kernel, int stride, int dilation, mirt_padding padding,
                                int64_t *out, int64_t *pad_before) {
    int64_t reach = (int64_t)(kernel - 1) * dilation + 1;
    *pad_before = 0;
    if (padding == MIRT_SAME) {
        *out = (in + stride - 1) / stride;
        int64_t pad = (*out - 1) * stride + reach - in;
        if (pad > 0) *pad_before = pad / 2;
        return true;
    }
    if (reach > in) return false;
    *out = (in - reach) / stride + 1;
    return true;
}

/* The geometry from x, kernel and attributes; the output's size is computed. */
static bool mirt__conv_geometry(const mirt__node *node, const mirt_shape *x, const mirt_shape *k, int64_t rows, mirt__conv *s) {
    memset(s, 0, sizeof *s);
    s->rows = rows;
    s->h = x->dim[1];
    s->w = x->dim[2];
    s->ci = x->dim[3];
    s->kh = (int)k->dim[0];
    s->kw = (int)k->dim[1];
    s->co = k->dim[3];
    s->stride_h = node->a.strides[0];
    s->stride_w = node->a.strides[1];
    s->dilation_h = node->a.dilation[0];
    s->dilation_w = node->a.dilation[1];
    s->groups = node->a.groups;
    return mirt__window_out(s->h, s->kh, s->stride_h, s->dilation_h, node->a.padding, &s->oh, &s->pad_top) &&
           mirt__window_out(s->w, s->kw, s->stride_w, s->dilation_w, node->a.padding, &s->ow, &s->pad_left);
}

static bool mirt__conv2d_check(const mirt__node *node) {
    const mirt_tensor *x = node->in[0], *k = node->in[1];
    const mirt__attrs *a = &node->a;
    if (k->dtype != MIRT_FLOAT32 || (x->dtype != MIRT_FLOAT32 && !a->affine)) return mirt__need_float(node, 2);
    if (x->shape.rank != 4 || k->shape.rank != 4) {
        char tx[96];
        return mirt__fail(MIRT_E_SHAPE, "input is %s; a convolution takes (rows, height, width, channels)", mirt__shape_text(&x->shape, tx)), false;
    }
    const int kernel[2] = {(int)k->shape.dim[0], (int)k->shape.dim[1]};
    if (!mirt__window_check(kernel, a->strides, a->dilation, a->padding)) return false;
    if (a->groups < 1) return mirt__fail(MIRT_E_INVALID, "%d groups: there must be at least one", a->groups), false;
    if (x->shape.dim[3] != k->shape.dim[2] * a->groups || k->shape.dim[3] % a->groups) {
        return mirt__fail(MIRT_E_SHAPE, "%lld input channels and %lld filters do not divide into %d groups of a kernel for %lld channels",
                          (long long)x->shape.dim[3], (long long)k->shape.dim[3], a->groups, (long long)k->shape.dim[2]), false;
    }
    return true;
}

/* Kernels copy padded strips of an image and count their elements: those have to stay countable. */
static bool mirt__conv_countable(const mirt__conv *s) {
    double h = (double)s->h + (double)s->kh * s->dilation_h + 2.0 * s->stride_h, w = (double)s->w + (double)s->kw * s->dilation_w + 2.0 * s->stride_w;
    double strip = h * w * (double)(s->ci + s->co), windows = (double)s->kh * s->kw * (double)s->ci * (33.0 + 2.0 * (double)s->ow);
    if (strip < (double)MIRT__MAX_BYTES && windows < (double)MIRT__MAX_BYTES) return true;
    return mirt__fail(MIRT_E_SHAPE, "a kernel of %dx%d, dilated by %dx%d, on %lldx%lldx%lld is too large", s->kh, s->kw, s->dilation_h, s->dilation_w,
                      (long long)s->h, (long long)s->w, (long long)s->ci), false;
}

static bool mirt__conv2d_shape(mirt__node *node) {
    if (!mirt__conv2d_check(node)) return false;
    mirt__conv s;
    if (!mirt__conv_geometry(node, &node->in[0]->shape, &node->in[1]->shape, 1, &s)) {
        return mirt__fail(MIRT_E_SHAPE, "kernel %dx%d%s is larger than its input %lldx%lld with padding VALID", s.kh, s.kw,
                          s.dilation_h > 1 || s.dilation_w > 1 ? " (dilated)" : "", (long long)s.h, (long long)s.w), false;
    }
    if (!mirt__conv_countable(&s)) return false;
    mirt_shape y = node->in[0]->shape;
    y.dim[1] = s.oh;
    y.dim[2] = s.ow;
    y.dim[3] = s.co;
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

static int64_t mirt__rows_of(const mirt_shape *x, int64_t rows) { return x->dim[0] == MIRT_ROWS ? rows : x->dim[0]; }

/* x's shape and the kernel's, wherever this op of the family keeps them. */
static void mirt__conv_of(const mirt__node *node, int64_t rows, mirt__conv *s) {
    const mirt_shape *x = &node->in[0]->shape, *k = &node->in[1]->shape;
    if (node->id == MIRT__OP_conv2d_input_grad || node->id == MIRT__OP_conv2d_transpose) x = &node->a.shape;
    if (node->id == MIRT__OP_conv2d_weight_grad || node->id == MIRT__OP_conv2d_pool_weight_grad) k = &node->a.shape;
    mirt__conv_geometry(node, x, k, mirt__rows_of(x, rows), s);
}

static void mirt__conv_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__conv s;
    mirt__conv_of(node, rows, &s);
    out->scratch = mirt__conv_scratch(&s);
    out->shared = mirt__conv_weight_grad_shared(&s);
}

MIRT__LIB double mirt__conv_macs(const mirt__node *node, int64_t rows) {
    mirt__conv s;
    mirt__conv_of(node, rows, &s);
    return (double)s.rows * (double)(s.oh * s.ow) * (double)s.co * (double)(s.kh * s.kw) * (double)(s.ci / s.groups);
}

static void mirt__conv2d_run(const mirt__call *call) {
    mirt__conv_forward f;
    memset(&f, 0, sizeof f);
    mirt__conv_of(call->node, call->rows, &f.s);
    f.x = mirt__reader_of(call, 0);
    f.kernel = (const mirt__real *)call->in[1];
    f.y = (mirt__real *)call->out[0];
    if (call->node->a.bias) f.epilogue.bias = (const mirt__real *)call->in[2];
    f.epilogue.activation = call->node->a.activation;
    call->kernels->conv_forward(&f, &call->where);
}

/* Weight gradient (of conv2d or, with `which`, conv2d_pool): dx[1], and dx[2] when there is a bias. */
static bool mirt__conv_weight_gradient(mirt__node *node, mirt_tensor *dz, mirt_tensor *which, mirt_tensor **dx) {
    if (!node->in[1]->needs_grad && !(node->a.bias && node->in[2]->needs_grad)) return true;
    mirt__attrs a = node->a;
    mirt_tensor *in[3] = {node->in[0], dz, which};
    a.shape = node->in[1]->shape;
    a.column_sum = node->a.bias && node->in[2]->needs_grad;
    a.activation = MIRT_LINEAR;
    a.bias = false;
    dx[1] = mirt__record(node->graph, which ? MIRT__OP_conv2d_pool_weight_grad : MIRT__OP_conv2d_weight_grad, &a, in, which ? 3 : 2);
    if (dx[1] && a.column_sum) dx[2] = dx[1]->node->out[1];
    return dx[1] != NULL;
}

static bool mirt__conv2d_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *dz = mirt__activation_grad_op(node->a.activation, dy[0], node->out[0]);
    if (!dz || !mirt__conv_weight_gradient(node, dz, NULL, dx)) return false;
    if (!node->in[0]->needs_grad) return true;
    mirt__attrs a = node->a;
    mirt_tensor *in[2] = {dz, node->in[1]};
    a.shape = node->in[0]->shape;
    a.activation = MIRT_LINEAR;
    a.bias = false;
    dx[0] = mirt__record(node->graph, MIRT__OP_conv2d_input_grad, &a, in, 2);
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_conv2d = {
    "conv2d", mirt__conv2d_shape, mirt__conv2d_gradient, mirt__conv2d_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

static bool mirt__conv_grad_shape(mirt__node *node) {
    if (!mirt__declare(node, MIRT_FLOAT32, &node->a.shape)) return false;
    mirt_shape bias = mirt_make_shape(node->a.shape.dim[3], 0, 0, 0, 0, 0);
    return !node->a.column_sum || mirt__declare(node, MIRT_FLOAT32, &bias);
}

static void mirt__conv2d_input_grad_run(const mirt__call *call) {
    mirt__conv_input_grad g;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.dy = (const mirt__real *)call->in[0];
    g.kernel = (const mirt__real *)call->in[1];
    g.dx = (mirt__real *)call->out[0];
    if (call->node->a.mask_activation) g.epilogue.mask = (const mirt__real *)call->in[2];
    g.epilogue.mask_activation = call->node->a.mask_activation;
    call->kernels->conv_input_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_conv2d_input_grad = {
    "conv2d_input_grad", mirt__conv_grad_shape, NULL, mirt__conv2d_input_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

static void mirt__conv2d_weight_grad_run(const mirt__call *call) {
    mirt__conv_weight_grad g;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.x = mirt__reader_of(call, 0);
    g.dy = (const mirt__real *)call->in[1];
    g.dkernel = (mirt__real *)call->out[0];
    if (call->node->a.column_sum) g.db = (mirt__real *)call->out[1];
    call->kernels->conv_weight_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_conv2d_weight_grad = {
    "conv2d_weight_grad", mirt__conv_grad_shape, NULL, mirt__conv2d_weight_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

/* The largest output whose convolution has x's size, as Keras without output padding. */
static bool mirt__conv2d_transpose_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape, *k = &node->in[1]->shape;
    mirt_shape *y = &node->a.shape;
    mirt__conv s;
    char tx[96], tk[96];
    if (!mirt__need_float(node, 2)) return false;
    if (x->rank != 4 || k->rank != 4 || x->dim[3] != k->dim[3]) {
        return mirt__fail(MIRT_E_SHAPE, "input is %s and the kernel %s; a transposed convolution takes (rows, height, width, channels) and (height, width, filters, channels)",
                          mirt__shape_text(x, tx), mirt__shape_text(k, tk)), false;
    }
    const int kernel[2] = {(int)k->dim[0], (int)k->dim[1]};
    if (!mirt__window_check(kernel, node->a.strides, node->a.dilation, node->a.padding)) return false;
    *y = *x;
    for (int i = 0; i < 2; i++) {
        const int64_t stride = node->a.strides[i], reach = (int64_t)(kernel[i] - 1) * node->a.dilation[i] + 1;
        if (x->dim[1 + i] > MIRT__MAX_ELEMENTS / stride) return mirt__fail(MIRT_E_SHAPE, "strides of %lld make too large an output", (long long)stride), false;
        y->dim[1 + i] = x->dim[1 + i] * stride;
        if (node->a.padding == MIRT_VALID && reach > stride) y->dim[1 + i] += reach - stride;
    }
    y->dim[3] = k->dim[2];
    return mirt__declare(node, MIRT_FLOAT32, y) && mirt__conv_geometry(node, y, k, 1, &s) && mirt__conv_countable(&s);
}

static bool mirt__conv2d_transpose_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *x = node->in[0], *k = node->in[1], *in[2] = {dy[0], x};
    mirt__attrs a = node->a;
    a.shape = k->shape;
    if (x->needs_grad) dx[0] = mirt__conv2d_op(dy[0], k, &a);
    if (k->needs_grad) dx[1] = mirt__record(node->graph, MIRT__OP_conv2d_weight_grad, &a, in, 2);
    return (!x->needs_grad || dx[0]) && (!k->needs_grad || dx[1]);
}

MIRT__TABLE mirt__op mirt__op_conv2d_transpose = {
    "conv2d_transpose", mirt__conv2d_transpose_shape, mirt__conv2d_transpose_gradient, mirt__conv2d_input_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__conv2d_transpose_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    mirt__attrs own = *a;
    mirt_tensor *in[2] = {x, kernel};
    own.groups = 1;
    return x && kernel ? mirt__record(x->node->graph, MIRT__OP_conv2d_transpose, &own, in, 2) : NULL;
}

static bool mirt__conv2d_pool_shape(mirt__node *node) {
    mirt__conv s;
    mirt_shape y = node->in[0]->shape;
    if (!mirt__conv2d_check(node)) return false;
    if (!mirt__conv_geometry(node, &y, &node->in[1]->shape, 1, &s)) return mirt__fail(MIRT_E_SHAPE, "kernel is larger than its input"), false;
    y.dim[1] = s.oh / 2;
    y.dim[2] = s.ow / 2;
    y.dim[3] = s.co;
    return mirt__declare(node, MIRT_FLOAT32, &y) && mirt__declare(node, MIRT_UINT8, &y);
}

static void mirt__conv2d_pool_run(const mirt__call *call) {
    mirt__conv_pool p;
    memset(&p, 0, sizeof p);
    mirt__conv_of(call->node, call->rows, &p.s);
    p.x = mirt__reader_of(call, 0);
    p.kernel = (const mirt__real *)call->in[1];
    if (call->node->a.bias) p.bias = (const mirt__real *)call->in[2];
    p.y = (mirt__real *)call->out[0];
    p.which = (uint8_t *)call->out[1];
    call->kernels->conv_pool(&p, &call->where);
}

static bool mirt__conv2d_pool_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    return mirt__conv_weight_gradient(node, dy[0], node->out[1], dx);
}

MIRT__TABLE mirt__op mirt__op_conv2d_pool = {
    "conv2d_pool", mirt__conv2d_pool_shape, mirt__conv2d_pool_gradient, mirt__conv2d_pool_run, mirt__conv_workspace, mirt__conv_macs, false, 2u, NULL};

static void mirt__conv2d_pool_weight_grad_run(const mirt__call *call) {
    mirt__conv_pool_weight_grad g;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.x = mirt__reader_of(call, 0);
    g.dy = (const mirt__real *)call->in[1];
    g.which = (const uint8_t *)call->in[2];
    g.dkernel = (mirt__real *)call->out[0];
    if (call->node->a.column_sum) g.db = (mirt__real *)call->out[1];
    call->kernels->conv_pool_weight_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_conv2d_pool_weight_grad = {
    "conv2d_pool_weight_grad", mirt__conv_grad_shape, NULL, mirt__conv2d_pool_weight_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    if (!x || !kernel) return NULL;
    mirt_tensor *in[2] = {x, kernel};
    return mirt__record(x->node->graph, MIRT__OP_conv2d, a, in, 2);
}

MIRT__LIB mirt_tensor *mirt__depthwise_conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    if (!x || !kernel) return NULL;
    mirt_shape k = kernel->shape;
    mirt__attrs own = *a;
    if (k.rank != 4 || k.dim[2] != mirt__last_dim(x) || k.dim[2] > INT_MAX) {
        char tx[96], tk[96];
        mirt__fail(MIRT_E_SHAPE, "a depthwise kernel of %s does not fit %s: it is (height, width, channels, multiplier)", mirt__shape_text(&k, tk),
                   mirt__shape_text(&x->shape, tx));
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    own.groups = (int)k.dim[2];
    k.dim[3] *= k.dim[2];
    k.dim[2] = 1;
    return mirt__conv2d_op(x, mirt__reshape_op(kernel, &k), &own);
}

/* >>section ops/pool.c */

/* a.kernel (the window), a.strides, a.padding. Gradients: a.shape is x's shape. */

static bool mirt__pool_geometry(const mirt__node *node, const mirt_shape *x, int64_t rows, mirt__pool2d *p) {
    memset(p, 0, sizeof *p);
    p->rows = x->dim[0] == MIRT_ROWS ? rows : x->dim[0];
    p->h = x->dim[1];
    p->w = x->dim[2];
    p->c = x->dim[3];
    p->kh = node->a.kernel[0];
    p->kw = node->a.kernel[1];
    p->stride_h = node->a.strides[0];
    p->stride_w = node->a.strides[1];
    return mirt__window_out(p->h, p->kh, p->stride_h, 1, node->a.padding, &p->oh, &p->pad_top) &&
           mirt__window_out(p->w, p->kw, p->stride_w, 1, node->a.padding, &p->ow, &p->pad_left);
}

static bool mirt__pool_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    mirt__pool2d p;
    char text[96];
    if (!mirt__need_float(node, 1)) return false;
    if (y.rank != 4) return mirt__fail(MIRT_E_SHAPE, "input is %s; pooling takes (rows, height, width, channels)", mirt__shape_text(&y, text)), false;
    const int undilated[2] = {1, 1};
    if (!mirt__window_check(node->a.kernel, node->a.strides, undilated, node->a.padding)) return false;
    if (!mirt__pool_geometry(node, &y, 1, &p)) {
        return mirt__fail(MIRT_E_SHAPE, "pool %dx%d is larger than its input %lldx%lld with padding VALID", p.kh, p.kw, (long long)p.h, (long long)p.w), false;
    }
    y.dim[1] = p.oh;
    y.dim[2] = p.ow;
    return mirt__declare(node, MIRT_FLOAT32, &y) && (node->id != MIRT__OP_max_pool2d || mirt__declare(node, MIRT_INT32, &y));
}

static void mirt__pool_run(const mirt__call *call) {
    mirt__pool2d p;
    mirt__pool_geometry(call->node, &call->node->in[0]->shape, call->rows, &p);
    p.x = (const mirt__real *)call->in[0];
    p.y = (mirt__real *)call->out[0];
    if (call->node->id == MIRT__OP_average_pool2d) {
        call->kernels->average_pool(&p, &call->where);
        return;
    }
    p.which = (int32_t *)call->out[1];
    call->kernels->max_pool(&p, &call->where);
}

static bool mirt__pool_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    bool max = node->id == MIRT__OP_max_pool2d;
    mirt__attrs a = node->a;
    mirt_tensor *in[2] = {dy[0], max ? node->out[1] : NULL};
    a.shape = node->in[0]->shape;
    dx[0] = mirt__record(node->graph, max ? MIRT__OP_max_pool2d_grad : MIRT__OP_average_pool2d_grad, &a, in, max ? 2 : 1);
    return dx[0] != NULL;
}

static bool mirt__pool_grad_shape(mirt__node *node) { return mirt__declare(node, MIRT_FLOAT32, &node->a.shape); }

static void mirt__pool_grad_run(const mirt__call *call) {
    mirt__pool2d p;
    mirt__pool_geometry(call->node, &call->node->a.shape, call->rows, &p);
    p.x = (const mirt__real *)call->in[0];
    p.y = (mirt__real *)call->out[0];
    if (call->node->id == MIRT__OP_average_pool2d_grad) {
        call->kernels->average_pool_grad(&p, &call->where);
        return;
    }
    p.which = (int32_t *)call->in[1];
    call->kernels->max_pool_grad(&p, &call->where);
}

MIRT__TABLE mirt__op mirt__op_max_pool2d = {"max_pool2d", mirt__pool_shape, mirt__pool_gradient, mirt__pool_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_max_pool2d_grad = {"max_pool2d_grad", mirt__pool_grad_shape, NULL, mirt__pool_grad_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_average_pool2d = {"average_pool2d", mirt__pool_shape, mirt__pool_gradient, mirt__pool_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_average_pool2d_grad = {
    "average_pool2d_grad", mirt__pool_grad_shape, NULL, mirt__pool_grad_run, NULL, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__max_pool2d_op(mirt_tensor *x, const mirt__attrs *a) {
    return x ? mirt__record(x->node->graph, MIRT__OP_max_pool2d, a, &x, 1) : NULL;
}
MIRT__LIB mirt_tensor *mirt__average_pool2d_op(mirt_tensor *x, const mirt__attrs *a) {
    return x ? mirt__record(x->node->graph, MIRT__OP_average_pool2d, a, &x, 1) : NULL;
}

/* >>section ops/loss.c */

/* softmax and its logarithm over the last axis. loss: a.kind (mirt_loss), a.from_logits; inputs predictions, labels;
   per-sample output. accuracy: a.kind (mirt__accuracy_kind). */

static bool mirt__softmax_shape(mirt__node *node) {
    return mirt__need_float(node, 1) && mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape);
}

static void mirt__softmax_args(const mirt__call *call, mirt__softmax *s) {
    memset(s, 0, sizeof *s);
    s->n = mirt__last_dim(call->node->in[0]);
    s->rows = mirt__elements(call->node->in[0], call->rows) / (s->n ? s->n : 1);
    s->y = (mirt__real *)call->out[0];
    s->log = call->node->id == MIRT__OP_log_softmax || call->node->id == MIRT__OP_log_softmax_grad;
}

static void mirt__softmax_run(const mirt__call *call) {
    mirt__softmax s;
    mirt__softmax_args(call, &s);
    s.x = (const mirt__real *)call->in[0];
    call->kernels->softmax(&s, &call->where);
}

static bool mirt__softmax_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *in[2] = {dy[0], node->out[0]};
    dx[0] = mirt__record(node->graph, node->id == MIRT__OP_softmax ? MIRT__OP_softmax_grad : MIRT__OP_log_softmax_grad, NULL, in, 2);
    return dx[0] != NULL;
}

static void mirt__softmax_grad_run(const mirt__call *call) {
    mirt__softmax s;
    mirt__softmax_args(call, &s);
    s.dy = (const mirt__real *)call->in[0];
    s.x = (const mirt__real *)call->in[1];
    call->kernels->softmax_grad(&s, &call->where);
}

MIRT__TABLE mirt__op mirt__op_softmax = {"softmax", mirt__softmax_shape, mirt__softmax_gradient, mirt__softmax_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_softmax_grad = {"softmax_grad", mirt__softmax_shape, NULL, mirt__softmax_grad_run, NULL, NULL, false, 0, NULL};

MIRT__TABLE mirt__op mirt__op_log_softmax = {"log_softmax", mirt__softmax_shape, mirt__softmax_gradient, mirt__softmax_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_log_softmax_grad = {
    "log_softmax_grad", mirt__softmax_shape, NULL, mirt__softmax_grad_run, NULL, NULL, false, 0, NULL};

MIRT_API mirt_tensor *mirt_log_softmax(mirt_tensor *x) { return x ? mirt__record(x->node->graph, MIRT__OP_log_softmax, NULL, &x, 1) : NULL; }
MIRT_API mirt_tensor *mirt_softmax(mirt_tensor *x) { return x ? mirt__record(x->node->graph, MIRT__OP_softmax, NULL, &x, 1) : NULL; }

static bool mirt__per_sample_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape, *labels = &node->in[1]->shape;
    bool sparse = node->in[1]->dtype != MIRT_FLOAT32;
    char tx[96], tl[96];
    if (!mirt__need_float(node, 1)) return false;
    if (x->rank < 1 || !mirt__is_batched(x) || !mirt__is_batched(labels)) return mirt__fail(MIRT_E_SHAPE, "a loss compares batches"), false;
    int64_t expected = sparse ? mirt__shape_count(x) / (mirt__last_dim(node->in[0]) ? mirt__last_dim(node->in[0]) : 1) : mirt__shape_count(x);
    if (mirt__shape_count(labels) != expected || (sparse && x->rank != 2)) {
        return mirt__fail(MIRT_E_SHAPE, "labels %s do not fit predictions %s", mirt__shape_text(labels, tl), mirt__shape_text(x, tx)), false;
    }
    mirt_shape y = mirt_make_shape(1, 0, 0, 0, 0, 0);
    y.dim[0] = MIRT_ROWS;
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

static void mirt__loss_args(const mirt__call *call, mirt__loss *l) {
    memset(l, 0, sizeof *l);
    l->kind = (mirt_loss)call->node->a.kind;
    l->from_logits = call->node->a.from_logits;
    l->rows = call->rows;
    l->n = mirt__shape_count(&call->node->in[0]->shape);
    l->x = (const mirt__real *)call->in[0];
    l->labels = call->in[1];
}

static void mirt__loss_run(const mirt__call *call) {
    mirt__loss l;
    mirt__loss_args(call, &l);
    l.loss = (mirt__real *)call->out[0];
    call->kernels->loss(&l, &call->where);
}

static bool mirt__loss_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *in[3] = {node->in[0], node->in[1], dy[0]};
    dx[0] = mirt__record(node->graph, MIRT__OP_loss_grad, &node->a, in, 3);
    return dx[0] != NULL;
}

static bool mirt__loss_grad_shape(mirt__node *node) { return mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape); }

static void mirt__loss_grad_run(const mirt__call *call) {
    mirt__loss l;
    mirt__loss_args(call, &l);
    l.dloss = (const mirt__real *)call->in[2];
    l.dx = (mirt__real *)call->out[0];
    call->kernels->loss_grad(&l, &call->where);
}

static void mirt__accuracy_run(const mirt__call *call) {
    mirt__accuracy a;
    a.kind = (mirt__accuracy_kind)call->node->a.kind;
    a.rows = call->rows;
    a.n = mirt__shape_count(&call->node->in[0]->shape);
    a.x = (const mirt__real *)call->in[0];
    a.labels = call->in[1];
    a.y = (mirt__real *)call->out[0];
    call->kernels->accuracy(&a, &call->where);
}

MIRT__TABLE mirt__op mirt__op_loss = {"loss", mirt__per_sample_shape, mirt__loss_gradient, mirt__loss_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_loss_grad = {"loss_grad", mirt__loss_grad_shape, NULL, mirt__loss_grad_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_accuracy = {"accuracy", mirt__per_sample_shape, NULL, mirt__accuracy_run, NULL, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__loss_op(mirt_loss kind, bool from_logits, mirt_tensor *x, mirt_tensor *labels) {
    if (!x || !labels) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.kind = kind;
    a.from_logits = from_logits;
    mirt_tensor *in[2] = {x, labels};
    return mirt__record(x->node->graph, MIRT__OP_loss, &a, in, 2);
}

MIRT__LIB mirt_tensor *mirt__accuracy_op(mirt__accuracy_kind kind, mirt_tensor *x, mirt_tensor *labels) {
    if (!x || !labels) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.kind = kind;
    mirt_tensor *in[2] = {x, labels};
    return mirt__record(x->node->graph, MIRT__OP_accuracy, &a, in, 2);
}

/* >>section ops/dropout.c */

/* a.rate, a.key. Outside of training it is left out. Its gradient is the same mask on dy. */

static bool mirt__dropout_shape(mirt__node *node) {
    if (!(node->a.rate >= 0 && node->a.rate <= 1)) {
        return mirt__fail(MIRT_E_INVALID, "rate is %g; it must lie between 0 and 1", (double)node->a.rate), false;
    }
    return mirt__need_float(node, 1) && mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape);
}

static void mirt__dropout_run(const mirt__call *call) {
    mirt__dropout d;
    d.rows = mirt__is_batched(&call->node->in[0]->shape) ? call->rows : 1;
    d.n = mirt__shape_count(&call->node->in[0]->shape);
    d.first_row = call->run->first_row;
    d.key = call->node->a.key ^ call->run->seed ^ ((uint64_t)call->run->step >> 32 << 32);
    d.step = (uint32_t)call->run->step;
    d.rate = call->node->a.rate;
    d.x = (const mirt__real *)call->in[0];
    d.y = (mirt__real *)call->out[0];
    call->kernels->dropout(&d, &call->where);
}

static bool mirt__dropout_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__dropout_op(dy[0], node->a.rate, node->a.key);
    return dx[0] != NULL;
}

static mirt_tensor *mirt__dropout_lower(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in, const mirt__mode *mode) {
    return mirt__in_training(node, mode) ? mirt__record(graph, MIRT__OP_dropout, &node->a, in, 1) : in[0];
}

MIRT__TABLE mirt__op mirt__op_dropout = {"dropout", mirt__dropout_shape, mirt__dropout_gradient, mirt__dropout_run, NULL, NULL, false, 0, mirt__dropout_lower};

MIRT__LIB mirt_tensor *mirt__dropout_op(mirt_tensor *x, float rate, uint64_t key) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.rate = rate;
    a.key = key;
    return mirt__record(x->node->graph, MIRT__OP_dropout, &a, &x, 1);
}

/* >>section ops/exchange.c */

/* all_reduce: a.kind (mirt__all_reduce_kind). With one replica every tensor is already its own sum. */

static bool mirt__all_reduce_shape(mirt__node *node) {
    if (!mirt__need_float(node, node->num_in)) return false;
    for (int i = 0; i < node->num_in; i++) {
        if (!mirt__declare(node, MIRT_FLOAT32, &node->in[i]->shape)) return false;
    }
    return true;
}

static void mirt__all_reduce_run(const mirt__call *call) {
    for (int i = 0; i < call->node->num_in; i++) {
        mirt__unary copy;
        memset(&copy, 0, sizeof copy);
        copy.kind = MIRT__COPY;
        copy.count = mirt__elements(call->node->in[i], call->rows);
        copy.x = (const mirt__real *)call->in[i];
        copy.y = (mirt__real *)call->out[i];
        call->kernels->unary(&copy, &call->where);
    }
}

MIRT__TABLE mirt__op mirt__op_all_reduce = {"all_reduce", mirt__all_reduce_shape, NULL, mirt__all_reduce_run, NULL, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__all_reduce_op(mirt_tensor **inout, int count, int kind) {
    mirt__attrs a = mirt__no_attrs();
    a.kind = kind;
    if (!inout[0] || !mirt__record(inout[0]->node->graph, MIRT__OP_all_reduce, &a, inout, count)) return NULL;
    mirt__graph *graph = inout[0]->node->graph;
    for (int i = 0; i < count; i++) inout[i] = graph->node[graph->count - 1]->out[i];
    return inout[0];
}

/* >>section ops/norm.c */

/* Batch normalization (a.last_axes 0: over all axes but the last) and layer normalization (over the
   last a.last_axes axes), a.epsilon.
   norm_stats: x -> mean, variance. normalize: x, mean, variance, [gamma], [beta] (a.gamma, a.beta);
   a.batch_statistics: the statistics are x's own, and the gradient flows through them;
   a.synchronized: they are of all replicas' rows. norm_grad_sums: dy, x, mean, variance -> gradients
   of beta and gamma. norm_grad_input: dy, x, mean, variance, [gamma], [the two sums] -> dx.
   batch_norm: see ops.h; also a.momentum, a.training. */

/* Of an x of `shape`: the axes that gamma and beta have. */
static mirt_shape mirt__norm_last(const mirt_shape *shape, int last_axes) {
    mirt_shape last;
    memset(&last, 0, sizeof last);
    last.rank = last_axes ? last_axes : 1;
    for (int i = 0; i < last.rank; i++) last.dim[i] = shape->dim[shape->rank - last.rank + i];
    return last;
}

static mirt_tensor *mirt__norm_x(const mirt__node *node) {
    bool grad = node->id == MIRT__OP_norm_grad_sums || node->id == MIRT__OP_norm_grad_input;
    return node->in[grad ? 1 : 0];
}

static void mirt__norm_args(const mirt__node *node, int64_t rows, mirt__norm *s) {
    const mirt_tensor *x = mirt__norm_x(node);
    const mirt_shape last = mirt__norm_last(&x->shape, node->a.last_axes);
    memset(s, 0, sizeof *s);
    s->n = mirt__shape_count(&last);
    s->rows = s->n ? mirt__elements(x, rows) / s->n : 0;
    s->by_row = node->a.last_axes > 0;
    s->epsilon = node->a.epsilon;
}

static void mirt__norm_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__norm s;
    mirt__norm_args(node, rows, &s);
    out->shared = mirt__norm_shared(&s);
}

/* Whether x has the axes: its rows are not among the last ones. */
static bool mirt__norm_check(const mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape;
    const int most = x->rank - mirt__is_batched(x);
    char text[96];
    if (!mirt__need_float(node, node->num_in)) return false;
    if (node->a.last_axes >= 0 && node->a.last_axes <= most && most > 0) return true;
    return mirt__fail(MIRT_E_SHAPE, "input is %s; it has %d axes to normalize over, not %d", mirt__shape_text(x, text), most, node->a.last_axes ? node->a.last_axes : 1), false;
}

static bool mirt__norm_fits(const mirt__node *node, int input, const mirt_shape *shape, const char *name) {
    char text[96], wanted[96];
    if (input < node->num_in && mirt__shape_equal(&node->in[input]->shape, shape)) return true;
    return mirt__fail(MIRT_E_SHAPE, "%s is %s; it should be %s", name, input < node->num_in ? mirt__shape_text(&node->in[input]->shape, text) : "missing",
                      mirt__shape_text(shape, wanted)), false;
}

/* The shape of mean and variance. */
static mirt_shape mirt__norm_stats_of(const mirt__node *node) {
    mirt_shape shape = mirt__norm_x(node)->shape;
    if (!node->a.last_axes) return mirt__norm_last(&shape, 0);
    shape.rank -= node->a.last_axes;
    for (int i = shape.rank; i < MIRT_MAX_RANK; i++) shape.dim[i] = 0;
    return shape;
}

static bool mirt__norm_stats_shape(mirt__node *node) {
    if (!mirt__norm_check(node)) return false;
    const mirt_shape stats = mirt__norm_stats_of(node);
    return mirt__declare(node, MIRT_FLOAT32, &stats) && mirt__declare(node, MIRT_FLOAT32, &stats);
}

static void mirt__norm_stats_run(const mirt__call *call) {
    mirt__norm s;
    mirt__norm_args(call->node, call->rows, &s);
    s.x = (const mirt__real *)call->in[0];
    for (int i = 0; i < 2; i++) s.out[i] = (mirt__real *)call->out[i];
    call->kernels->norm_stats(&s, &call->where);
}

MIRT__TABLE mirt__op mirt__op_norm_stats = {
    "norm_stats", mirt__norm_stats_shape, NULL, mirt__norm_stats_run, mirt__norm_workspace, NULL, false, 0, NULL};

/* Of normalize and batch_norm, whose inputs are alike. */
static bool mirt__normalize_shape(mirt__node *node) {
    int next = 3;
    if (!mirt__norm_check(node)) return false;
    const mirt_shape stats = mirt__norm_stats_of(node), last = mirt__norm_last(&node->in[0]->shape, node->a.last_axes);
    return mirt__norm_fits(node, 1, &stats, "mean") && mirt__norm_fits(node, 2, &stats, "variance") &&
           (!node->a.gamma || mirt__norm_fits(node, next++, &last, "gamma")) && (!node->a.beta || mirt__norm_fits(node, next, &last, "beta")) &&
           mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape);
}

static void mirt__normalize_run(const mirt__call *call) {
    mirt__norm s;
    int next = 3;
    mirt__norm_args(call->node, call->rows, &s);
    s.x = (const mirt__real *)call->in[0];
    s.mean = (const mirt__real *)call->in[1];
    s.variance = (const mirt__real *)call->in[2];
    if (call->node->a.gamma) s.gamma = (const mirt__real *)call->in[next++];
    if (call->node->a.beta) s.beta = (const mirt__real *)call->in[next];
    s.y = (mirt__real *)call->out[0];
    call->kernels->normalize(&s, &call->where);
}

/* dx; sums: of dy and dy * hat over this replica's rows, or NULL. */
static mirt_tensor *mirt__norm_input_gradient(mirt__node *node, mirt_tensor *dy, mirt_tensor *sums) {
    mirt_tensor *in[MIRT__MAX_IN] = {dy, node->in[0], node->in[1], node->in[2], NULL, NULL, NULL, NULL};
    int count = 4;
    if (node->a.gamma) in[count++] = node->in[3];
    if (node->a.batch_statistics && !node->a.last_axes) {
        in[count] = sums->node->out[0];
        in[count + 1] = sums->node->out[1];
        if (node->a.synchronized && !mirt__all_reduce_op(in + count, 2, MIRT__ALL_REDUCE_SUM)) return NULL;
        count += 2;
    }
    return mirt__record(node->graph, MIRT__OP_norm_grad_input, &node->a, in, count);
}

static bool mirt__normalize_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    const int gamma = 3, beta = 3 + node->a.gamma;
    const bool wants_gamma = node->a.gamma && node->in[gamma]->needs_grad, wants_beta = node->a.beta && node->in[beta]->needs_grad;
    mirt_tensor *in[4] = {dy[0], node->in[0], node->in[1], node->in[2]}, *sums = NULL;
    if (wants_gamma || wants_beta || (node->in[0]->needs_grad && node->a.batch_statistics && !node->a.last_axes)) {
        sums = mirt__record(node->graph, MIRT__OP_norm_grad_sums, &node->a, in, 4);
        if (!sums) return false;
        if (wants_beta) dx[beta] = sums->node->out[0];
        if (wants_gamma) dx[gamma] = sums->node->out[1];
    }
    if (node->in[0]->needs_grad) dx[0] = mirt__norm_input_gradient(node, dy[0], sums);
    return !node->in[0]->needs_grad || dx[0];
}

MIRT__TABLE mirt__op mirt__op_normalize = {
    "normalize", mirt__normalize_shape, mirt__normalize_gradient, mirt__normalize_run, mirt__norm_workspace, NULL, false, 0, NULL};

static bool mirt__norm_grad_sums_shape(mirt__node *node) {
    const mirt_shape last = mirt__norm_last(&node->in[1]->shape, node->a.last_axes);
    return mirt__declare(node, MIRT_FLOAT32, &last) && mirt__declare(node, MIRT_FLOAT32, &last);
}

static void mirt__norm_grad_args(const mirt__call *call, mirt__norm *s) {
    mirt__norm_args(call->node, call->rows, s);
    s->dy = (const mirt__real *)call->in[0];
    s->x = (const mirt__real *)call->in[1];
    s->mean = (const mirt__real *)call->in[2];
    s->variance = (const mirt__real *)call->in[3];
}

static void mirt__norm_grad_sums_run(const mirt__call *call) {
    mirt__norm s;
    mirt__norm_grad_args(call, &s);
    for (int i = 0; i < 2; i++) s.out[i] = (mirt__real *)call->out[i];
    call->kernels->norm_grad_sums(&s, &call->where);
}

MIRT__TABLE mirt__op mirt__op_norm_grad_sums = {
    "norm_grad_sums", mirt__norm_grad_sums_shape, NULL, mirt__norm_grad_sums_run, mirt__norm_workspace, NULL, false, 0, NULL};

static bool mirt__norm_grad_input_shape(mirt__node *node) { return mirt__declare(node, MIRT_FLOAT32, &node->in[1]->shape); }

static void mirt__norm_grad_input_run(const mirt__call *call) {
    const mirt__node *node = call->node;
    const int sums = 4 + node->a.gamma;
    mirt__norm s;
    mirt__norm_grad_args(call, &s);
    if (node->a.gamma) s.gamma = (const mirt__real *)call->in[4];
    for (int i = 0; i < 2 && sums < node->num_in; i++) s.sum[i] = (const mirt__real *)call->in[sums + i];
    s.count = (double)s.rows;
    if (node->a.synchronized && mirt__is_batched(&node->in[1]->shape)) s.count *= (double)call->run->global_rows / (double)call->rows;
    s.y = (mirt__real *)call->out[0];
    call->kernels->norm_grad_input(&s, &call->where);
}

MIRT__TABLE mirt__op mirt__op_norm_grad_input = {
    "norm_grad_input", mirt__norm_grad_input_shape, NULL, mirt__norm_grad_input_run, mirt__norm_workspace, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__normalize_op(mirt_tensor *const *in, const mirt__attrs *a) {
    return in[0] ? mirt__record(in[0]->node->graph, MIRT__OP_normalize, a, in, 3 + a->gamma + a->beta) : NULL;
}

/* x's statistics into in[1] and in[2]. */
static bool mirt__norm_stats_op(mirt_tensor **in, const mirt__attrs *a) {
    in[1] = in[0] ? mirt__record(in[0]->node->graph, MIRT__OP_norm_stats, a, in, 1) : NULL;
    in[2] = in[1] ? in[1]->node->out[1] : NULL;
    return in[1] != NULL;
}

MIRT__LIB mirt_tensor *mirt__layer_norm_op(mirt_tensor *x, mirt_tensor *gamma, mirt_tensor *beta, const mirt__attrs *a) {
    mirt_tensor *in[5] = {x, NULL, NULL, gamma ? gamma : beta, beta};
    mirt__attrs own = *a;
    own.gamma = gamma != NULL;
    own.beta = beta != NULL;
    own.batch_statistics = true;
    return mirt__norm_stats_op(in, &own) ? mirt__normalize_op(in, &own) : NULL;
}

static bool mirt__batch_norm_shape(mirt__node *node) {
    const mirt__attrs *a = &node->a;
    if (!(a->epsilon >= 0 && a->epsilon <= FLT_MAX)) return mirt__fail(MIRT_E_INVALID, "epsilon is %g; it must not be below 0", (double)a->epsilon), false;
    if (!(a->momentum >= 0 && a->momentum <= 1)) return mirt__fail(MIRT_E_INVALID, "momentum is %g; it must lie in [0, 1]", a->momentum), false;
    for (int i = 1; i < 3; i++) {
        if (node->in[i]->node->id != MIRT__OP_variable) return mirt__fail(MIRT_E_INVALID, "the moving statistics must be variables"), false;
    }
    return mirt__normalize_shape(node);
}

MIRT__LIB mirt_tensor *mirt__batch_norm_op(mirt_tensor *const *in, const mirt__attrs *a) {
    return in[0] ? mirt__record(in[0]->node->graph, MIRT__OP_batch_norm, a, in, 3 + a->gamma + a->beta) : NULL;
}

/* Keras rounds each product and their sum. */
static mirt_tensor *mirt__moving_average(mirt_tensor *moving, mirt_tensor *batch, double momentum) {
    mirt_tensor *kept = mirt__unary_op(MIRT__AFFINE, moving, (float)momentum, 0);
    return mirt__binary_op(MIRT__ADD, kept, mirt__unary_op(MIRT__AFFINE, batch, (float)(1 - momentum), 0));
}

MIRT__LIB mirt_tensor *mirt__batch_norm_training(mirt_tensor *const *in, const mirt__attrs *a, mirt_tensor **moving_mean,
                                                 mirt_tensor **moving_variance) {
    mirt__attrs own = *a;
    mirt_tensor *now[5] = {in[0], NULL, NULL, NULL, NULL};
    for (int i = 3; i < 3 + a->gamma + a->beta; i++) now[i] = in[i];
    own.last_axes = 0;
    own.batch_statistics = true;
    if (!mirt__norm_stats_op(now, &own)) return NULL;
    if (a->synchronized && !mirt__all_reduce_op(now + 1, 2, MIRT__ALL_REDUCE_MOMENTS)) return NULL;
    *moving_mean = mirt__moving_average(in[1], now[1], a->momentum);
    *moving_variance = mirt__moving_average(in[2], now[2], a->momentum);
    return *moving_mean && *moving_variance ? mirt__normalize_op(now, &own) : NULL;
}

MIRT__LIB mirt_tensor *mirt__batch_norm_inference(mirt_tensor *const *in, const mirt__attrs *a) {
    mirt__attrs own = *a;
    own.last_axes = 0;
    own.batch_statistics = own.synchronized = false;
    return mirt__normalize_op(in, &own);
}

/* The moving statistics get new values; a layer that is called again goes on from those of its last call. */
static bool mirt__batch_norm_lower_training(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in, mirt_tensor **y) {
    mirt_tensor *own[5] = {in[0], in[1], in[2], NULL, NULL}, *moving[2] = {NULL, NULL};
    mirt__assignment *earlier[2] = {NULL, NULL};
    for (int i = 3; i < node->num_in; i++) own[i] = in[i];
    for (int i = 0; i < graph->num_assignments; i++) {
        for (int k = 0; k < 2; k++) {
            if (graph->assignment[i].variable == in[1 + k]->node->a.index) earlier[k] = &graph->assignment[i];
        }
    }
    for (int k = 0; k < 2; k++) {
        if (earlier[k]) own[1 + k] = earlier[k]->value;
    }
    *y = mirt__batch_norm_training(own, &node->a, &moving[0], &moving[1]);
    for (int k = 0; *y && k < 2; k++) {
        if (earlier[k]) earlier[k]->value = moving[k];
        else if (!mirt__graph_assign(graph, in[1 + k]->node->a.index, moving[k], MIRT_AGGREGATE_MEAN)) return false;
    }
    return *y != NULL;
}

/* As Keras, a frozen layer normalizes by its moving statistics even in training. */
static mirt_tensor *mirt__batch_norm_lower(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in, const mirt__mode *mode) {
    mirt_tensor *y = NULL;
    const bool frozen = mode->frozen && mode->frozen(mode->arg, in[1]->node->a.index);
    if (frozen || !mirt__in_training(node, mode)) return mirt__batch_norm_inference(in, &node->a);
    return mirt__batch_norm_lower_training(graph, node, in, &y) ? y : NULL;
}

MIRT__TABLE mirt__op mirt__op_batch_norm = {"batch_norm", mirt__batch_norm_shape, NULL, NULL, NULL, NULL, false, 0, mirt__batch_norm_lower};

/* >>section ops/resize.c */

/* resize2d: a.kernel is the height and width to come, a.kind mirt__resize's bilinear. The gradient's
   a.shape is x's shape. */

static bool mirt__resize2d_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    char text[96];
    if (!mirt__need_float(node, 1)) return false;
    if (y.rank != 4) return mirt__fail(MIRT_E_SHAPE, "input is %s; it should be (rows, height, width, channels)", mirt__shape_text(&y, text)), false;
    for (int i = 0; i < 2; i++) {
        if (node->a.kernel[i] < 1 || y.dim[1 + i] > INT_MAX) {
            return mirt__fail(MIRT_E_INVALID, "%s to %dx%d: sizes must be positive and below 2^31", mirt__shape_text(&node->in[0]->shape, text), node->a.kernel[0], node->a.kernel[1]), false;
        }
        y.dim[1 + i] = node->a.kernel[i];
    }
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

/* Forward and, with the same sizes, back. */
static void mirt__resize2d_run(const mirt__call *call) {
    const mirt__node *node = call->node;
    const bool grad = node->id == MIRT__OP_resize2d_grad;
    const mirt_shape *x = grad ? &node->a.shape : &node->in[0]->shape;
    mirt__resize r;
    r.rows = mirt__is_batched(x) ? call->rows : x->dim[0];
    r.h = x->dim[1];
    r.w = x->dim[2];
    r.c = x->dim[3];
    r.oh = node->a.kernel[0];
    r.ow = node->a.kernel[1];
    r.bilinear = node->a.kind != 0;
    r.x = (const mirt__real *)call->in[0];
    r.y = (mirt__real *)call->out[0];
    if (grad) call->kernels->resize_grad(&r, &call->where);
    else call->kernels->resize(&r, &call->where);
}

static bool mirt__resize2d_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt__attrs a = node->a;
    a.shape = node->in[0]->shape;
    dx[0] = mirt__record(node->graph, MIRT__OP_resize2d_grad, &a, dy, 1);
    return dx[0] != NULL;
}

static bool mirt__resize2d_grad_shape(mirt__node *node) { return mirt__declare(node, MIRT_FLOAT32, &node->a.shape); }

MIRT__TABLE mirt__op mirt__op_resize2d = {"resize2d", mirt__resize2d_shape, mirt__resize2d_gradient, mirt__resize2d_run, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_resize2d_grad = {"resize2d_grad", mirt__resize2d_grad_shape, NULL, mirt__resize2d_run, NULL, NULL, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__resize2d_op(mirt_tensor *x, int height, int width, bool bilinear) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.kernel[0] = height;
    a.kernel[1] = width;
    a.kind = bilinear;
    return mirt__record(x->node->graph, MIRT__OP_resize2d, &a, &x, 1);
}

MIRT__LIB mirt_tensor *mirt__upsampling2d_op(mirt_tensor *x, const int size[2], bool bilinear) {
    int to[2] = {1, 1};
    for (int i = 0; x && x->shape.rank == 4 && i < 2; i++) {
        const bool fits = size[i] > 0 && x->shape.dim[1 + i] <= INT_MAX / size[i];
        to[i] = fits ? (int)x->shape.dim[1 + i] * size[i] : 0;
    }
    return mirt__resize2d_op(x, to[0], to[1], bilinear);
}

/* >>section ops/table.c */

MIRT__LIB const mirt__op *mirt__op_get(mirt__op_id id) {
    switch (id) {
#define MIRT__OP_CASE(name) case MIRT__OP_##name: return &mirt__op_##name;
    MIRT__OP_LIST(MIRT__OP_CASE)
#undef MIRT__OP_CASE
    default: return NULL;
    }
}

/* >>section graph/graph.c */

MIRT__LIB void mirt__graph_init(mirt__graph *graph, mirt_model *model) {
    memset(graph, 0, sizeof *graph);
    graph->model = model;
}

MIRT__LIB void mirt__graph_free(mirt__graph *graph) {
    mirt__free(graph->node);
    mirt__free(graph->assignment);
    mirt__pool_free(&graph->pool);
    memset(graph, 0, sizeof *graph);
}

MIRT__LIB void mirt__graph_poison(mirt__graph *graph) {
    if (graph->status != MIRT_OK) return;
    graph->status = mirt_last_status();
    snprintf(graph->error, sizeof graph->error, "%s", mirt_last_error());
}

MIRT__LIB bool mirt__is_batched(const mirt_shape *shape) { return shape->rank > 0 && shape->dim[0] == MIRT_ROWS; }

MIRT__LIB int64_t mirt__elements(const mirt_tensor *tensor, int64_t rows) {
    return mirt__shape_count(&tensor->shape) * (mirt__is_batched(&tensor->shape) ? rows : 1);
}

MIRT__LIB size_t mirt__tensor_bytes(const mirt_tensor *tensor, int64_t rows) {
    return (size_t)mirt__elements(tensor, rows) * mirt__dtype_size(tensor->dtype);
}

MIRT__LIB bool mirt__declare(mirt__node *node, mirt_dtype dtype, const mirt_shape *shape) {
    int64_t count = mirt__shape_count(shape);
    if (count < 0 || count > MIRT__MAX_ELEMENTS) {
        char text[96];
        return mirt__fail(MIRT_E_SHAPE, "a tensor of shape %s has too many elements", mirt__shape_text(shape, text)), false;
    }
    mirt_tensor *t = (mirt_tensor *)mirt__pool_alloc(&node->graph->pool, sizeof *t);
    if (!t) return false;
    t->node = node;
    t->slot = node->num_out;
    t->dtype = dtype;
    t->shape = *shape;
    node->out[node->num_out++] = t;
    return true;
}

static bool mirt__graph_append(mirt__graph *graph, mirt__node *node) {
    if (graph->count == graph->capacity) {
        int capacity = graph->capacity ? 2 * graph->capacity : 64;
        if (!mirt__grow((void **)&graph->node, (size_t)graph->count, (size_t)capacity, sizeof *graph->node)) return false;
        graph->capacity = capacity;
    }
    graph->node[graph->count++] = node;
    return true;
}

static mirt__node *mirt__graph_new_node(mirt__graph *graph, mirt__op_id id, const mirt__attrs *attrs,
                                        mirt_tensor *const *in, int num_in) {
    mirt__node *node = (mirt__node *)mirt__pool_alloc(&graph->pool, sizeof *node);
    if (!node) return NULL;
    node->id = id;
    node->op = mirt__op_get(id);
    if (attrs) node->a = *attrs;
    node->graph = graph;
    node->name = graph->scope;
    node->num_in = num_in;
    for (int i = 0; i < num_in; i++) {
        node->in[i] = in[i];
        if (in[i]->node->graph != graph) {
            mirt__fail(MIRT_E_INVALID, "one of its tensors is of another model");
            return NULL;
        }
    }
    return node;
}

static bool mirt__passes_gradients(const mirt_tensor *t) { return t->dtype == MIRT_FLOAT32 && t->node->id != MIRT__OP_stop_gradient; }

MIRT__LIB mirt_tensor *mirt__record(mirt__graph *graph, mirt__op_id id, const mirt__attrs *attrs,
                                    mirt_tensor *const *in, int num_in) {
    if (graph->status != MIRT_OK) return NULL;
    for (int i = 0; i < num_in; i++) {
        if (!in[i]) return NULL;
    }
    mirt__node *node = mirt__graph_new_node(graph, id, attrs, in, num_in);
    if (node && node->op->shape(node) && mirt__graph_append(graph, node)) {
        for (int i = 0; i < num_in; i++) {
            if (!in[i]->needs_grad) continue;
            for (int k = 0; k < node->num_out; k++) node->out[k]->needs_grad = mirt__passes_gradients(node->out[k]);
        }
        return node->out[0];
    }
    if (mirt_last_status() != MIRT_E_NOMEM) mirt__fail_at("%s", graph->scope ? graph->scope : mirt__op_get(id)->name);
    mirt__graph_poison(graph);
    return NULL;
}

static void mirt__mark_live(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    for (int i = 0; i < graph->count; i++) graph->node[i]->live = false;
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i]->node->live = true;
    }
    for (int i = graph->count - 1; i >= 0; i--) {
        mirt__node *node = graph->node[i];
        for (int k = 0; node->live && k < node->num_in; k++) node->in[k]->node->live = true;
    }
}

/* The ancestors of `keep` are live, but for what lies behind the tensors that are replaced. */
static void mirt__copy_mark(const mirt__copying *c, mirt_tensor *const *keep, int count) {
    mirt__graph *source = (mirt__graph *)c->source;
    for (int i = 0; i < source->count; i++) source->node[i]->live = false;
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i]->node->live = true;
    }
    for (int i = source->count - 1; i >= 0; i--) {
        mirt__node *node = source->node[i];
        for (int k = 0; k < c->num_replaced; k++) {
            if (node->out[0] == c->replaced[k]) node->live = false;
        }
        for (int k = 0; node->live && k < node->num_in; k++) node->in[k]->node->live = true;
    }
}

static const char *mirt__copy_name(mirt__graph *graph, const mirt__copying *c, const char *name) {
    if (!name || !c->prefix) return name ? mirt__pool_strdup(&graph->pool, name) : NULL;
    size_t size = strlen(name) + strlen(c->prefix) + 2;
    char *full = (char *)mirt__pool_alloc(&graph->pool, size);
    if (full) snprintf(full, size, "%s/%s", c->prefix, name);
    return full;
}

static bool mirt__copy_node(mirt__graph *graph, const mirt__copying *c, const mirt__node *from) {
    mirt_tensor *in[MIRT__MAX_IN];
    mirt__node copy = *from;
    for (int k = 0; k < from->num_in; k++) in[k] = from->in[k]->clone;
    if (copy.id == MIRT__OP_variable) copy.a.index += c->first_variable;
    if (copy.a.data) {
        void *data = mirt__pool_alloc(&graph->pool, copy.a.bytes);
        if (!data) return false;
        memcpy(data, copy.a.data, copy.a.bytes);
        copy.a.data = data;
    }
    if (c->salt) copy.a.key ^= c->salt * 0x9E3779B97F4A7C15u;
    if (c->training != MIRT_TRAINING_AUTO && copy.a.training == MIRT_TRAINING_AUTO) copy.a.training = c->training;
    if (from->name && !(copy.name = mirt__copy_name(graph, c, from->name))) return false;
    if (c->mode && from->op->lower) {
        graph->scope = copy.name;
        from->out[0]->clone = from->op->lower(graph, &copy, in, c->mode);
        graph->scope = NULL;
        return from->out[0]->clone != NULL;
    }
    mirt__node *node = mirt__graph_new_node(graph, from->id, &copy.a, in, from->num_in);
    if (!node) return false;
    node->name = copy.name;
    for (int k = 0; k < from->num_out; k++) {
        if (!mirt__declare(node, from->out[k]->dtype, &from->out[k]->shape)) return false;
        node->out[k]->needs_grad = from->out[k]->needs_grad;
        from->out[k]->clone = node->out[k];
    }
    return mirt__graph_append(graph, node);
}

MIRT__LIB bool mirt__graph_copy(mirt__graph *graph, const mirt__copying *c, mirt_tensor **keep, int count) {
    mirt__copy_mark(c, keep, count);
    for (int k = 0; k < c->num_replaced; k++) ((mirt_tensor *)c->replaced[k])->clone = c->replacement[k];
    for (int i = 0; i < c->source->count; i++) {
        if (c->source->node[i]->live && !mirt__copy_node(graph, c, c->source->node[i])) {
            mirt__graph_poison(graph);
            return false;
        }
    }
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i] = keep[i]->clone;
    }
    return true;
}

MIRT__LIB bool mirt__graph_assign(mirt__graph *graph, int variable, mirt_tensor *value, mirt_aggregation aggregation) {
    if (!value) return false;
    if (graph->num_assignments == graph->assignment_capacity) {
        int capacity = graph->assignment_capacity ? 2 * graph->assignment_capacity : 16;
        if (!mirt__grow((void **)&graph->assignment, (size_t)graph->num_assignments, (size_t)capacity, sizeof *graph->assignment)) {
            mirt__graph_poison(graph);
            return false;
        }
        graph->assignment_capacity = capacity;
    }
    mirt__assignment *a = &graph->assignment[graph->num_assignments++];
    a->variable = variable;
    a->value = value;
    a->aggregation = aggregation;
    return true;
}

MIRT__LIB void mirt__graph_count_uses(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) graph->node[i]->out[k]->uses = 0;
    }
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_in; k++) graph->node[i]->in[k]->uses++;
    }
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i]->uses++;
    }
}

MIRT__LIB void mirt__graph_prune(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    mirt__mark_live(graph, keep, count);
    int n = 0;
    for (int i = 0; i < graph->count; i++) {
        if (graph->node[i]->live) graph->node[n++] = graph->node[i];
    }
    graph->count = n;
}

MIRT__LIB void mirt__graph_mark_gradients(mirt__graph *graph, bool (*trainable)(const void *arg, int variable), const void *arg) {
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        bool needs = node->id == MIRT__OP_variable && trainable(arg, node->a.index);
        for (int k = 0; k < node->num_in; k++) needs = needs || node->in[k]->needs_grad;
        for (int k = 0; k < node->num_out; k++) node->out[k]->needs_grad = needs && mirt__passes_gradients(node->out[k]);
    }
}

/* Adds dx to the gradient of x. */
static bool mirt__gradient_add(mirt_tensor *x, mirt_tensor *dx) {
    x->grad = x->grad ? mirt__binary_op(MIRT__ADD, x->grad, dx) : dx;
    return x->grad != NULL;
}

static bool mirt__node_gradient(mirt__graph *graph, mirt__node *node) {
    mirt_tensor *dy[MIRT__MAX_OUT], *dx[MIRT__MAX_IN];
    memset(dy, 0, sizeof dy);
    memset(dx, 0, sizeof dx);
    bool reached = false, wanted = false;
    for (int k = 0; k < node->num_out; k++) {
        dy[k] = node->out[k]->grad;
        reached = reached || dy[k];
    }
    for (int k = 0; k < node->num_in; k++) wanted = wanted || node->in[k]->needs_grad;
    if (!reached || !wanted) return true;
    if (!node->op->gradient) {
        mirt__fail(MIRT_E_INVALID, "%s%s%s is not differentiable, and a loss depends on variables through it: mirt_stop_gradient its input",
                   node->name ? node->name : "", node->name ? ": " : "", node->op->name);
        return false;
    }
    graph->scope = node->name;
    if (!node->op->gradient(node, dy, dx)) return false;
    for (int k = 0; k < node->num_in; k++) {
        mirt_tensor *x = node->in[k];
        if (!dx[k] || !x->needs_grad) continue;
        if (!mirt__gradient_add(x, dx[k])) return false;
    }
    return true;
}

MIRT__LIB bool mirt__gradients(mirt__graph *graph, mirt_tensor *const *y, mirt_tensor *const *dy, int count) {
    int nodes = graph->count;
    for (int i = 0; i < nodes; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) graph->node[i]->out[k]->grad = NULL;
    }
    for (int i = 0; i < count; i++) {
        if (!y[i] || !dy[i] || !mirt__gradient_add(y[i], dy[i])) return false;
    }
    for (int i = nodes - 1; i >= 0; i--) {
        if (!mirt__node_gradient(graph, graph->node[i])) {
            mirt__graph_poison(graph);
            return false;
        }
    }
    graph->scope = NULL;
    return graph->status == MIRT_OK;
}

/* >>section graph/fuse.c */

/* `node` takes the place of its producer: it computes what `producer` and it did together. */
static void mirt__absorb(mirt__node *node, const mirt__node *producer, mirt_tensor *extra) {
    node->id = producer->id;
    node->op = producer->op;
    node->a = producer->a;
    node->name = producer->name ? producer->name : node->name;
    node->num_in = producer->num_in;
    for (int i = 0; i < producer->num_in; i++) node->in[i] = producer->in[i];
    if (extra) node->in[node->num_in++] = extra;
}

static bool mirt__is_product(const mirt__node *node) {
    return node->id == MIRT__OP_conv2d || (node->id == MIRT__OP_matmul && !node->a.transpose_a && !node->a.transpose_b);
}

static bool mirt__reads_data(const mirt__node *node) {
    return node->id == MIRT__OP_reshape || node->id == MIRT__OP_cast ||
           (node->id == MIRT__OP_unary && node->a.kind == MIRT__AFFINE);
}

/* product(reshape(rescale(cast(x)))) reads x itself, converting as it goes. */
static void mirt__fuse_reader(mirt__node *product) {
    mirt_tensor *t = product->in[0];
    mirt__node *reshape = NULL;
    bool affine = false, cast = false;
    float scale = 1, offset = 0;
    while (t->uses == 1 && !t->needs_grad && mirt__reads_data(t->node) && !(cast && t->node->id != MIRT__OP_reshape)) {
        mirt__node *node = t->node;
        if (node->id == MIRT__OP_reshape) {
            if (!reshape) reshape = node;
        } else if (node->id == MIRT__OP_cast) {
            cast = true;
        } else {
            if (affine) break;
            affine = true;
            scale = node->a.scale;
            offset = node->a.offset;
        }
        t = node->in[0];
    }
    if (!affine && !cast) return;
    product->a.affine = true;
    product->a.scale = scale;
    product->a.offset = offset;
    if (reshape) {
        reshape->in[0] = t;
        reshape->out[0]->dtype = t->dtype;
        t = reshape->out[0];
    }
    product->in[0] = t;
}

static void mirt__fuse_bias(mirt__node *node) {
    const mirt__node *p = node->in[0]->node;
    if (!mirt__is_product(p) || node->in[0]->uses != 1 || p->a.bias || p->a.activation != MIRT_LINEAR) return;
    mirt__absorb(node, p, node->in[1]);
    node->a.bias = true;
}

static void mirt__fuse_activation(mirt__node *node) {
    mirt_activation_kind kind = mirt__activation_of(node);
    const mirt__node *p = node->in[0]->node;
    if (kind == MIRT_LINEAR || !mirt__is_product(p) || node->in[0]->uses != 1 || p->a.activation != MIRT_LINEAR) return;
    mirt__absorb(node, p, NULL);
    node->a.activation = kind;
}

static bool mirt__is_2x2(const mirt__node *pool) {
    return pool->a.kernel[0] == 2 && pool->a.kernel[1] == 2 && pool->a.strides[0] == 2 && pool->a.strides[1] == 2 &&
           pool->a.padding == MIRT_VALID;
}

static void mirt__fuse_pool(mirt__node *node) {
    const mirt__node *p = node->in[0]->node;
    const mirt__attrs *a = &p->a;
    if (!mirt__is_2x2(node) || p->id != MIRT__OP_conv2d || node->in[0]->uses != 1 || a->activation != MIRT_RELU) return;
    if (p->in[0]->needs_grad || a->padding != MIRT_VALID || a->groups != 1) return;
    if (a->strides[0] != 1 || a->strides[1] != 1 || a->dilation[0] != 1 || a->dilation[1] != 1) return;
    mirt__absorb(node, p, NULL);
    node->id = MIRT__OP_conv2d_pool;
    node->op = mirt__op_get(MIRT__OP_conv2d_pool);
    node->a.activation = MIRT_LINEAR;
    node->out[1]->dtype = MIRT_UINT8;
}

MIRT__LIB void mirt__fuse_forward(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    mirt__graph_count_uses(graph, keep, count);
    for (int i = 0; i < graph->count; i++) {
        if (mirt__is_product(graph->node[i])) mirt__fuse_reader(graph->node[i]);
    }
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        if (node->id == MIRT__OP_bias_add) mirt__fuse_bias(node);
        else if (node->id == MIRT__OP_unary) mirt__fuse_activation(node);
        else if (node->id == MIRT__OP_max_pool2d) mirt__fuse_pool(node);
    }
    mirt__graph_prune(graph, keep, count);
}

MIRT__LIB void mirt__fuse_backward(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    mirt__graph_count_uses(graph, keep, count);
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        mirt_activation_kind kind = mirt__activation_grad_of(node);
        if (kind == MIRT_LINEAR || node->in[0]->uses != 1) continue;
        const mirt__node *p = node->in[0]->node;
        bool takes_mask = p->id == MIRT__OP_conv2d_input_grad || p->id == MIRT__OP_matmul;
        if (!takes_mask || p->a.bias || p->a.activation || p->a.mask_activation || p->a.column_sum) continue;
        if (!mirt__shape_equal(&node->in[0]->shape, &node->in[1]->shape)) continue;
        mirt__absorb(node, p, node->in[1]);
        node->a.mask_activation = kind;
    }
    mirt__graph_prune(graph, keep, count);
}

/* >>section graph/plan.c */

static bool mirt__runs(const mirt__node *node) { return node->op->run != NULL; }

/* The tensor whose bytes `t` is. */
static mirt_tensor *mirt__root(mirt_tensor *t) {
    while (t->node->op->alias) t = t->node->in[0];
    return t;
}

/* Outputs need a place of their own: copies those that are leaves, aliases or already placed. */
static bool mirt__plan_outputs(mirt__program *program, mirt__output *outputs, int count) {
    for (int i = 0; i < count; i++) {
        mirt_tensor *t = outputs[i].tensor;
        if (!t) continue;
        if (!mirt__runs(t->node) || t->space != MIRT__SPACE_NONE) {
            t = outputs[i].tensor = mirt__unary_op(MIRT__COPY, t, 0, 0);
            if (!t) return false;
        }
        t->space = outputs[i].space;
        t->offset = outputs[i].offset;
        if (t->space == MIRT__SPACE_IO) program->io_row[t->offset] = mirt__tensor_bytes(t, 1);
    }
    return true;
}

static void mirt__plan_leaves(mirt__program *program, const size_t *variable_offset) {
    for (int i = 0; i < program->graph.count; i++) {
        mirt__node *node = program->graph.node[i];
        if (node->id == MIRT__OP_input) {
            node->out[0]->space = MIRT__SPACE_IO;
            node->out[0]->offset = (size_t)node->a.index;
            program->io_row[node->a.index] = mirt__tensor_bytes(node->out[0], 1);
        } else if (node->id == MIRT__OP_variable) {
            node->out[0]->space = MIRT__SPACE_WEIGHT;
            node->out[0]->offset = variable_offset[node->a.index];
        }
    }
}

static void mirt__plan_lifetimes(mirt__graph *graph) {
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        for (int k = 0; k < node->num_out; k++) {
            node->out[k]->first = node->out[k]->last = i;
            node->out[k]->uses = 0;
        }
        for (int k = 0; k < node->num_in; k++) {
            mirt_tensor *root = mirt__root(node->in[k]);
            root->last = i;
            root->uses++;
        }
    }
}

/* Tensors that need arena memory, largest first (ties: in order of their birth). */
static int mirt__plan_order(const void *a, const void *b) {
    const mirt_tensor *x = *(mirt_tensor *const *)a, *y = *(mirt_tensor *const *)b;
    if (x->offset != y->offset) return x->offset > y->offset ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->slot - y->slot;
}

static bool mirt__plan_needs_place(const mirt__node *node, int slot) {
    const mirt_tensor *t = node->out[slot];
    return mirt__runs(node) && t->space == MIRT__SPACE_NONE && !(t->uses == 0 && (node->op->optional_outputs >> slot & 1));
}

/* Whether the bytes of every tensor at `rows` rows can be counted with. */
static bool mirt__plan_check(const mirt__graph *graph, int64_t rows) {
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            int64_t row = (int64_t)mirt__tensor_bytes(graph->node[i]->out[k], 1);
            if (row == 0 || rows <= MIRT__MAX_BYTES / row) continue;
            return mirt__fail(MIRT_E_NOMEM, "batches of %lld samples need more memory than any machine has", (long long)rows), false;
        }
    }
    return true;
}

static int mirt__plan_collect(mirt__graph *graph, int64_t max_rows, mirt_tensor **list) {
    int n = 0;
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            if (!mirt__plan_needs_place(graph->node[i], k)) continue;
            if (list) {
                list[n] = graph->node[i]->out[k];
                list[n]->offset = mirt__align_up(mirt__tensor_bytes(list[n], max_rows)); /* its size, until it is placed */
            }
            n++;
        }
    }
    return n;
}

static bool mirt__plan_overlap(const mirt_tensor *a, const mirt_tensor *b) { return a->first <= b->last && b->first <= a->last; }

/* The lowest offset where `t` meets no placed tensor that is alive with it. `size` and `place`
   run beside `list`. */
static size_t mirt__plan_lowest(mirt_tensor *const *list, const size_t *size, const size_t *place, int placed, const mirt_tensor *t, size_t bytes) {
    size_t at = 0;
    for (int i = 0; i < placed;) {
        bool hit = mirt__plan_overlap(list[i], t) && at < place[i] + size[i] && place[i] < at + bytes;
        if (hit) {
            at = place[i] + size[i];
            i = 0;
        } else {
            i++;
        }
    }
    return at;
}

static bool mirt__plan_arena(mirt__program *program) {
    int n = mirt__plan_collect(&program->graph, program->max_rows, NULL);
    mirt_tensor **list = (mirt_tensor **)mirt__calloc((size_t)n + 1, sizeof *list);
    size_t *size = (size_t *)mirt__calloc((size_t)n + 1, 2 * sizeof *size);
    bool good = list && size;
    if (good) {
        size_t *place = size + n;
        mirt__plan_collect(&program->graph, program->max_rows, list);
        qsort(list, (size_t)n, sizeof *list, mirt__plan_order);
        for (int i = 0; i < n; i++) {
            size[i] = list[i]->offset;
            place[i] = mirt__plan_lowest(list, size, place, i, list[i], size[i]);
            if (place[i] + size[i] > program->arena) program->arena = place[i] + size[i];
        }
        for (int i = 0; i < n; i++) {
            list[i]->space = MIRT__SPACE_ARENA;
            list[i]->offset = place[i];
        }
    }
    mirt__free(list);
    mirt__free(size);
    return good;
}

static void mirt__plan_aliases_and_workspace(mirt__program *program) {
    for (int i = 0; i < program->graph.count; i++) {
        mirt__node *node = program->graph.node[i];
        if (node->op->alias) {
            node->out[0]->space = node->in[0]->space;
            node->out[0]->offset = node->in[0]->offset;
        }
        if (!node->op->workspace) continue;
        mirt__workspace w = {0, 0};
        node->op->workspace(node, program->max_rows, &w);
        w.scratch = mirt__align_up(w.scratch);
        w.shared = mirt__align_up(w.shared);
        if (w.scratch > program->scratch) program->scratch = w.scratch;
        if (w.shared > program->shared) program->shared = w.shared;
    }
}

MIRT__LIB bool mirt__plan(mirt__program *program, mirt__output *outputs, int num_outputs,
                          const size_t *variable_offset, int64_t max_rows) {
    program->max_rows = max_rows;
    mirt__plan_leaves(program, variable_offset);
    if (!mirt__plan_outputs(program, outputs, num_outputs) || !mirt__plan_check(&program->graph, max_rows)) return false;
    mirt__plan_lifetimes(&program->graph);
    if (!mirt__plan_arena(program)) return false;
    mirt__plan_aliases_and_workspace(program);
    return true;
}

/* >>section graph/program.c */

MIRT__LIB void mirt__program_free(mirt__program *program) {
    mirt__graph_free(&program->graph);
    memset(program, 0, sizeof *program);
}

static void *mirt__address(const mirt__bases *bases, const mirt_tensor *t) {
    switch (t->space) {
    case MIRT__SPACE_ARENA: return bases->arena + t->offset;
    case MIRT__SPACE_WEIGHT: return bases->weight + t->offset;
    case MIRT__SPACE_GRADIENT: return bases->gradient + t->offset;
    case MIRT__SPACE_IO: return bases->io[t->offset];
    default: return NULL;
    }
}

MIRT__LIB void mirt__program_run(const mirt__program *program, const mirt__kernels *kernels, const mirt__step_info *run,
                                 const mirt__bases *bases, int64_t rows) {
    mirt__call call;
    call.kernels = kernels;
    call.run = run;
    call.rows = rows;
    call.where.team = bases->team;
    call.where.scratch = bases->scratch;
    call.where.scratch_per_thread = bases->scratch_per_thread;
    call.where.shared = bases->shared;
    for (int i = 0; rows > 0 && i < program->graph.count; i++) {
        const mirt__node *node = program->graph.node[i];
        if (!node->op->run) continue;
        call.node = node;
        for (int k = 0; k < node->num_in; k++) call.in[k] = mirt__address(bases, node->in[k]);
        for (int k = 0; k < node->num_out; k++) call.out[k] = mirt__address(bases, node->out[k]);
        node->op->run(&call);
    }
}

static void mirt__node_text(const mirt__node *node, mirt__text *out) {
    static const char *const space[] = {"-", "arena", "weight", "gradient", "io"};
    char shape[96];
    mirt__text_add(out, "  %-24s %-14s", node->op->name, node->name ? node->name : "");
    for (int k = 0; k < node->num_out; k++) {
        const mirt_tensor *t = node->out[k];
        if (t->space == MIRT__SPACE_NONE) continue;
        mirt__text_add(out, "%s%s %s", k ? ", " : " ", mirt__dtype_name(t->dtype), mirt__shape_text(&t->shape, shape));
        if (t->space == MIRT__SPACE_IO) mirt__text_add(out, " @io[%zu]", t->offset);
        else mirt__text_add(out, " @%s+%zu", space[t->space], t->offset);
    }
    if (node->a.affine) mirt__text_add(out, "  reads x*%g%+g", (double)node->a.scale, (double)node->a.offset);
    if (node->a.bias) mirt__text_add(out, "  +bias");
    if (node->a.activation) mirt__text_add(out, "  +%s", mirt__activation_get(node->a.activation)->name);
    if (node->a.mask_activation) mirt__text_add(out, "  *%s'", mirt__activation_get(node->a.mask_activation)->name);
    mirt__text_add(out, "\n");
}

MIRT__LIB void mirt__program_text(const mirt__program *program, mirt__text *out) {
    for (int i = 0; i < program->graph.count; i++) {
        if (program->graph.node[i]->op->run) mirt__node_text(program->graph.node[i], out);
    }
}

/* >>section mirror/strategy.h */

#ifndef MIRT__STRATEGY_H
#define MIRT__STRATEGY_H
/* V logical replicas on P <= V physical devices. A replica owns a slice of every global batch; a
   device runs its contiguous block of replicas one after another. */

#define MIRT__MAX_DEVICES 32
#define MIRT__MAX_REPLICAS 4096

typedef struct mirt__device {
    char name[32];
    mirt__team *team; /* NULL when it has one thread */
    int first_replica, num_replicas;
} mirt__device;

struct mirt_strategy {
    mirt_strategy_kind kind;
    mirt_collective collective;
    int num_devices, num_replicas, threads;
    uint64_t seed;
    bool named; /* devices by name, each one core */
    mirt__device device[MIRT__MAX_DEVICES];
    mirt__team *leaders; /* one member a device; NULL for one device */
    const mirt__kernels *kernels;
    mirt_log_fn log;
    void *log_user;
    int fits;           /* under way */
    mirt_model *models; /* living in it, a list */
    mirt__pool pool;    /* what lives as long as it does */
    struct mirt__layer_class *layer_classes; /* user-defined, a list, the latest first */
};

MIRT__LIB void mirt__log(const mirt_strategy *strategy, mirt_log_level level, const char *format, ...) MIRT__PRINTF(3, 4);
/* Whether the log is the default one on a terminal, where lines can be overwritten. */
MIRT__LIB bool mirt__log_is_terminal(const mirt_strategy *strategy);
/* Runs fn for every device, each on its own thread, and returns when all are done. */
MIRT__LIB void mirt__on_devices(mirt_strategy *strategy, void (*fn)(void *arg, int device), void *arg);
/* Inside mirt__on_devices: waits for the other devices. */
MIRT__LIB void mirt__devices_barrier(mirt_strategy *strategy);

/* Blocks of weights in memory: one a device, or one that all devices read. */
MIRT__LIB int mirt__weight_copies(const mirt_strategy *strategy);

/* --- replicas.c --- */
/* Balanced, contiguous shares: the first (total % shares) get one more. */
MIRT__LIB int64_t mirt__share(int64_t total, int64_t shares, int64_t index, int64_t *first);

/* The fixed binary tree over replicas [0, count): a node over [lo, hi) splits at the largest power
   of two below hi - lo, so that its left child is complete. A stack of complete subtrees is a
   binary counter: pushing a subtree merges it with its left sibling as long as there is one. */
typedef struct mirt__subtree {
    int lo, size;
} mirt__subtree;
typedef struct mirt__tree_stack {
    mirt__subtree node[64];
    int depth;
} mirt__tree_stack;
/* Pushes; returns how many times the top two then merge (each leaves the sum in the lower one). */
MIRT__LIB int mirt__tree_push(mirt__tree_stack *stack, int lo, int size);
/* Gradient buffers that replicas [first, first + count) need at most at one time. */
MIRT__LIB int mirt__tree_slots(int first, int count);

/* The following take a number of replicas of their own: the strategy's, or k times as many when a
   step accumulates the gradients of k batches. */

/* The replicas [*first, *first + result) that `device` runs. */
MIRT__LIB int mirt__device_replicas(const mirt_strategy *strategy, int replicas, int device, int *first);
/* Gradient buffers of each device: what the binary counter needs, or one a replica. */
MIRT__LIB int mirt__gradient_slots(const mirt_strategy *strategy, int replicas, bool slot_per_replica);
/* Whether the devices' partial sums fit a mirt__exchange, whatever number of replicas has rows. */
MIRT__LIB mirt_status mirt__check_parts(const mirt_strategy *strategy, int replicas);

/* --- collective.c --- */
/* How the partial sums that devices are left with are added, as one device does it for its range of elements. */
typedef struct mirt__exchange {
    int parts;
    int device[MIRT__MAX_PARTS], slot[MIRT__MAX_PARTS];
    struct { int into, from; } add[MIRT__MAX_PARTS]; /* parts - 1 of them, in order; the sum ends in part 0 */
} mirt__exchange;
/* `device`'s additions when the replicas [0, active) have rows. A partial sum lies in the slot of its
   depth in its device's binary counter or, with slot_per_replica, in that of its first replica. */
MIRT__LIB void mirt__exchange_plan(const mirt_strategy *strategy, int replicas, int active, bool slot_per_replica, int device, mirt__exchange *out);
/* The elements of a block of `elements` that `device` sums and updates: whole vectors, perhaps none. */
MIRT__LIB void mirt__exchange_range(const mirt_strategy *strategy, int64_t elements, int device, int64_t *begin, int64_t *end);
/* NULL when there is no such collective; the reasons to take it in *why. */
MIRT__LIB const char *mirt__collective_name(mirt_collective collective, const char **why);

/* --- aggregate.c --- */
/* One value of `count` elements from those of `active` replicas in their order, in double precision;
   `out` may be one of them. The mean of equal values is that value. NONE leaves `out` alone. */
MIRT__LIB void mirt__aggregate(mirt_aggregation kind, int active, const mirt__real *const *value, const int64_t *rows, int64_t count, mirt__real *out);
/* Mean and biased variance of all rows from those of each replica's. */
MIRT__LIB void mirt__combine_moments(int active, const mirt__real *const *mean, const mirt__real *const *variance, const int64_t *rows, int64_t count,
                                     mirt__real *mean_out, mirt__real *variance_out);

#endif

/* >>section mirror/replicas.c */

MIRT__LIB int64_t mirt__share(int64_t total, int64_t shares, int64_t index, int64_t *first) {
    int64_t each = total / shares, extra = total % shares;
    *first = index * each + (index < extra ? index : extra);
    return each + (index < extra);
}

MIRT__LIB int mirt__tree_push(mirt__tree_stack *stack, int lo, int size) {
    int merges = 0;
    stack->node[stack->depth].lo = lo;
    stack->node[stack->depth++].size = size;
    while (stack->depth > 1) {
        mirt__subtree *left = &stack->node[stack->depth - 2], *right = left + 1;
        if (left->size != right->size || left->lo % (2 * left->size)) break;
        left->size *= 2;
        stack->depth--;
        merges++;
    }
    return merges;
}

MIRT__LIB int mirt__tree_slots(int first, int count) {
    mirt__tree_stack stack;
    stack.depth = 0;
    int slots = 1;
    for (int r = first; r < first + count; r++) {
        if (stack.depth + 1 > slots) slots = stack.depth + 1;
        mirt__tree_push(&stack, r, 1);
    }
    return slots;
}

MIRT__LIB int mirt__device_replicas(const mirt_strategy *strategy, int replicas, int device, int *first) {
    int64_t at;
    int count = (int)mirt__share(replicas, strategy->num_devices, device, &at);
    *first = (int)at;
    return count;
}

MIRT__LIB int mirt__gradient_slots(const mirt_strategy *strategy, int replicas, bool slot_per_replica) {
    int slots = 1;
    for (int d = 0; d < strategy->num_devices; d++) {
        int first, count = mirt__device_replicas(strategy, replicas, d, &first);
        int own = slot_per_replica ? count : mirt__tree_slots(first, count);
        if (own > slots) slots = own;
    }
    return slots;
}

MIRT__LIB mirt_status mirt__check_parts(const mirt_strategy *strategy, int replicas) {
    int before = 0, most = 0;
    for (int d = 0; d < strategy->num_devices; d++) {
        int first, count = mirt__device_replicas(strategy, replicas, d, &first);
        mirt__tree_stack stack;
        stack.depth = 0;
        for (int r = first; r < first + count; r++) { /* r may be the last that has rows */
            mirt__tree_push(&stack, r, 1);
            if (before + stack.depth > most) most = before + stack.depth;
        }
        before += stack.depth;
    }
    if (most <= MIRT__MAX_PARTS) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "%d replicas on %d devices leave %d partial sums, at most %d work; make the replicas a power of two times the devices",
                      replicas, strategy->num_devices, most, MIRT__MAX_PARTS);
}

/* >>section mirror/collective.c */

/* The algorithms by which devices' partial sums of gradients meet. */

typedef struct mirt__exchange_job {
    const mirt_strategy *strategy;
    int replicas, active;
    bool slot_per_replica;
    mirt__exchange *out;
} mirt__exchange_job;

/* Appends what `device` is left with and returns its subtrees. */
static mirt__tree_stack mirt__append_parts(const mirt__exchange_job *job, int device) {
    mirt__tree_stack own;
    int first, count = mirt__device_replicas(job->strategy, job->replicas, device, &first);
    own.depth = 0;
    for (int r = first; r < first + count && r < job->active; r++) mirt__tree_push(&own, r, 1);
    for (int i = 0; i < own.depth; i++) {
        job->out->device[job->out->parts] = device;
        job->out->slot[job->out->parts++] = job->slot_per_replica ? own.node[i].lo - first : i;
    }
    return own;
}

static void mirt__plan_tree(const mirt__exchange_job *job, int device) {
    mirt__tree_stack all;
    int part_of[64], part = 0, adds = 0;
    (void)device;
    all.depth = 0;
    for (int d = 0; d < job->strategy->num_devices; d++) {
        mirt__tree_stack own = mirt__append_parts(job, d);
        for (int i = 0; i < own.depth; i++) {
            part_of[all.depth] = part++;
            int merges = mirt__tree_push(&all, own.node[i].lo, own.node[i].size);
            for (int at = all.depth - 1 + merges; merges > 0; merges--, at--) {
                job->out->add[adds].into = part_of[at - 1];
                job->out->add[adds++].from = part_of[at];
            }
        }
    }
    for (int at = all.depth - 1; at > 0; at--) {
        job->out->add[adds].into = part_of[at - 1];
        job->out->add[adds++].from = part_of[at];
    }
}

/* All parts in the order of devices that begins with `first`. */
static void mirt__plan_chain(const mirt__exchange_job *job, int first) {
    for (int i = 0; i < job->strategy->num_devices; i++) mirt__append_parts(job, (first + i) % job->strategy->num_devices);
    for (int part = 1; part < job->out->parts; part++) {
        job->out->add[part - 1].into = 0;
        job->out->add[part - 1].from = part;
    }
}

static void mirt__plan_ring(const mirt__exchange_job *job, int device) { mirt__plan_chain(job, device + 1); }

static void mirt__plan_one_device(const mirt__exchange_job *job, int device) {
    (void)device;
    mirt__plan_chain(job, 0);
}

typedef struct mirt__collective_row {
    const char *name, *why;
    void (*plan)(const mirt__exchange_job *job, int device);
    bool first_device; /* sums and updates everything; otherwise each device its share */
} mirt__collective_row;

static const mirt__collective_row mirt__collectives[] = {
    {"tree", "the same bits on any number of devices", mirt__plan_tree, false},
    {"ring", "every device adds its share in the order of its neighbours", mirt__plan_ring, false},
    {"one device", "the first device adds and updates everything", mirt__plan_one_device, true}
};

static const mirt__collective_row *mirt__collective_get(mirt_collective collective) {
    int row = collective == MIRT_COLLECTIVE_AUTO ? 0 : (int)collective - (int)MIRT_TREE;
    return row < 0 || row >= MIRT__COUNT(mirt__collectives) ? NULL : &mirt__collectives[row];
}

MIRT__LIB const char *mirt__collective_name(mirt_collective collective, const char **why) {
    const mirt__collective_row *row = mirt__collective_get(collective);
    if (row) *why = row->why;
    return row ? row->name : NULL;
}

MIRT__LIB void mirt__exchange_plan(const mirt_strategy *strategy, int replicas, int active, bool slot_per_replica, int device, mirt__exchange *out) {
    mirt__exchange_job job;
    job.strategy = strategy;
    job.replicas = replicas;
    job.active = active;
    job.slot_per_replica = slot_per_replica;
    job.out = out;
    out->parts = 0;
    mirt__collective_get(strategy->collective)->plan(&job, device);
}

MIRT__LIB void mirt__exchange_range(const mirt_strategy *strategy, int64_t elements, int device, int64_t *begin, int64_t *end) {
    const int64_t vector = MIRT__ALIGN / (int64_t)sizeof(mirt__real);
    int64_t first = 0, count = elements / vector + (elements % vector != 0);
    if (!mirt__collective_get(strategy->collective)->first_device) {
        count = mirt__share(count, strategy->num_devices, device, &first);
    } else if (device > 0) {
        first = count;
        count = 0;
    }
    *begin = first * vector;
    *end = (first + count) * vector;
    if (*end > elements) *end = elements;
    if (*begin > *end) *begin = *end;
}

/* >>section mirror/aggregate.c */

/* Values of replicas made into one. */

MIRT__LIB void mirt__aggregate(mirt_aggregation kind, int active, const mirt__real *const *value, const int64_t *rows, int64_t count, mirt__real *out) {
    double total = 0;
    if (kind == MIRT_AGGREGATE_NONE) return;
    for (int r = 0; r < active; r++) total += (double)rows[r];
    for (int64_t i = 0; i < count; i++) {
        double first = (double)value[0][i], sum = 0;
        /* the mean from differences to the first value: exactly that value when all are equal */
        if (kind == MIRT_AGGREGATE_MEAN) {
            for (int r = 1; r < active; r++) sum += (double)rows[r] * ((double)value[r][i] - first);
            sum /= total;
        }
        for (int r = 1; r < active && kind == MIRT_AGGREGATE_SUM; r++) sum += (double)value[r][i];
        out[i] = (mirt__real)(first + sum);
    }
}

/* Chan, Golub and LeVeque: moments of two sets of rows joined. */
MIRT__LIB void mirt__combine_moments(int active, const mirt__real *const *mean, const mirt__real *const *variance, const int64_t *rows, int64_t count,
                                     mirt__real *mean_out, mirt__real *variance_out) {
    for (int64_t i = 0; i < count; i++) {
        double n = (double)rows[0], m = (double)mean[0][i], squares = n * (double)variance[0][i];
        for (int r = 1; r < active; r++) {
            double more = (double)rows[r], delta = (double)mean[r][i] - m, all = n + more;
            m += delta * (more / all);
            squares += more * (double)variance[r][i] + delta * delta * (n * more / all);
            n = all;
        }
        mean_out[i] = (mirt__real)m;
        variance_out[i] = (mirt__real)(squares / n);
    }
}

/* >>section mirror/strategy.c */

#include <unistd.h>

static void mirt__log_stderr(mirt_log_level level, const char *text, void *user) {
    (void)user;
    fprintf(stderr, level == MIRT_LOG_PROGRESS && text[0] == '\r' ? "%s" : "%s\n", text);
}

MIRT__LIB bool mirt__log_is_terminal(const mirt_strategy *strategy) { return strategy->log == mirt__log_stderr && isatty(2); }

MIRT__LIB void mirt__log(const mirt_strategy *strategy, mirt_log_level level, const char *format, ...) {
    char text[512];
    va_list args;
    if (!strategy->log) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    strategy->log(level, text, strategy->log_user);
}

MIRT_API void mirt_set_log(mirt_strategy *strategy, mirt_log_fn fn, void *user) {
    if (!strategy) return;
    strategy->log = fn;
    strategy->log_user = user;
}

MIRT__LIB void mirt__on_devices(mirt_strategy *strategy, void (*fn)(void *arg, int device), void *arg) {
    mirt__team_run(strategy->leaders, fn, arg);
}

MIRT__LIB void mirt__devices_barrier(mirt_strategy *strategy) { mirt__team_barrier(strategy->leaders); }

MIRT_API int mirt_devices(mirt_device_info *out, int capacity) {
    int cores = mirt__cpu_cores();
    for (int i = 0; out && i < cores && i < capacity; i++) {
        snprintf(out[i].name, sizeof out[i].name, "cpu:%d", i);
        snprintf(out[i].description, sizeof out[i].description, "core %d of %d, %s kernels", i + 1, cores, mirt__kernels_best()->name);
        out[i].cores = 1;
    }
    return cores;
}

static mirt_status mirt__no_such_device(const char *name, size_t length) {
    int cores = mirt__cpu_cores();
    char more[32] = "";
    bool gpu = length >= 3 && strncmp(name, "gpu", 3) == 0;
    if (cores > 1) snprintf(more, sizeof more, " to cpu:%d", cores - 1);
    return mirt__fail(MIRT_E_DEVICE, "there is no device \"%.*s\"%s; this machine has cpu:0%s", (int)length, name,
                      gpu ? " (this build has no GPU code)" : "", more);
}

/* "2": shares of the cores, or "cpu:0,cpu:1": these cores. */
static mirt_status mirt__parse_devices(mirt_strategy *s, const char *text) {
    char *end;
    long n = strtol(text, &end, 10);
    if (end != text && *end == 0) {
        if (n < 1 || n > MIRT__MAX_DEVICES) {
            return mirt__fail(MIRT_E_DEVICE, "%ld devices asked for; it must be between 1 and %d", n, MIRT__MAX_DEVICES);
        }
        s->num_devices = (int)n;
        for (int d = 0; d < s->num_devices; d++) snprintf(s->device[d].name, sizeof s->device[d].name, "cpu:%d", d);
        return MIRT_OK;
    }
    s->named = true;
    s->num_devices = 0;
    for (const char *at = text; ; at += strcspn(at, ",") + 1) {
        size_t length = strcspn(at, ",");
        long index = -1;
        if (length > 4 && strncmp(at, "cpu:", 4) == 0 && at[4] >= '0' && at[4] <= '9') {
            index = strtol(at + 4, &end, 10);
            if (end != at + length) index = -1;
        }
        if (index < 0 || index >= mirt__cpu_cores()) return mirt__no_such_device(at, length);
        if (s->num_devices == MIRT__MAX_DEVICES) return mirt__fail(MIRT_E_DEVICE, "more than %d devices are named", MIRT__MAX_DEVICES);
        char *name = s->device[s->num_devices].name;
        snprintf(name, sizeof s->device[0].name, "cpu:%ld", index);
        for (int d = 0; d < s->num_devices; d++) {
            if (strcmp(s->device[d].name, name) != 0) continue;
            return mirt__fail(MIRT_E_DEVICE, "device %s is named twice; for more replicas than devices set the replica count", name);
        }
        s->num_devices++;
        if (!at[length]) return MIRT_OK;
    }
}

static mirt_status mirt__check_strategy(const mirt_strategy *s) {
    if (s->kind == MIRT_ONE_DEVICE && s->num_devices > 1) {
        return mirt__fail(MIRT_E_INVALID, "a strategy of one device is given %d; name one, or take a mirrored strategy", s->num_devices);
    }
    if (s->num_replicas < s->num_devices) {
        return mirt__fail(MIRT_E_INVALID, "%d replica%s on %d devices: every device needs at least one replica", s->num_replicas,
                          s->num_replicas == 1 ? "" : "s", s->num_devices);
    }
    if (s->num_replicas > MIRT__MAX_REPLICAS) return mirt__fail(MIRT_E_INVALID, "%d replicas asked for; at most %d work", s->num_replicas, MIRT__MAX_REPLICAS);
    if (s->threads < 1 || s->threads > 1024) return mirt__fail(MIRT_E_INVALID, "%d threads per device asked for; it must be between 1 and 1024", s->threads);
#ifdef MIRRORTRAIN_NO_THREADS
    if (s->num_devices > 1 || s->threads > 1) {
        return mirt__fail(MIRT_E_THREAD, "%d devices of %d threads: built with MIRRORTRAIN_NO_THREADS there is one device of one thread",
                          s->num_devices, s->threads);
    }
#endif
    return mirt__check_parts(s, s->num_replicas);
}

static mirt_status mirt__start_threads(mirt_strategy *s, int cores) {
    bool spin = (int64_t)s->num_devices * s->threads <= cores;
    if (s->num_devices > 1 && !(s->leaders = mirt__team_create(s->num_devices, spin))) return mirt_last_status();
    for (int d = 0; d < s->num_devices && s->threads > 1; d++) {
        if (!(s->device[d].team = mirt__team_create(s->threads, spin))) return mirt_last_status();
    }
    return MIRT_OK;
}

static void mirt__introduce(const mirt_strategy *s, const mirt_strategy_desc *desc, int cores) {
    const char *why = "", *name = mirt__collective_name(s->collective, &why);
    char how[160] = "", names[MIRT__MAX_DEVICES * 10] = "";
    for (int d = 0; s->named && d < s->num_devices; d++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", s->device[d].name);
    }
    if (s->num_replicas > 1) snprintf(how, sizeof how, ", gradients summed by %s (%s: %s)", name, s->collective == MIRT_COLLECTIVE_AUTO ? "auto" : "asked for", why);
    mirt__log(s, MIRT_LOG_INFO, "mirrortrain %s: %s%d CPU device%s%s of %d thread%s (%s), %d replica%s%s%s", mirt_version(),
              desc->devices ? "" : "no GPU, ", s->num_devices, s->num_devices == 1 ? "" : "s", names, s->threads,
              s->threads == 1 ? "" : "s", s->kernels->name, s->num_replicas, s->num_replicas == 1 ? "" : "s",
              s->kind == MIRT_CENTRAL_STORAGE ? ", one copy of the weights" : "", how);
    if ((int64_t)s->num_devices * s->threads > cores) {
        mirt__log(s, MIRT_LOG_WARNING, "%d devices of %d thread%s share %d core%s: the same results, but not faster", s->num_devices,
                  s->threads, s->threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    }
}

static mirt_status mirt__strategy_start(mirt_strategy *s, const mirt_strategy_desc *desc) {
    int cores = mirt__cpu_cores();
    s->log = desc->silent ? NULL : desc->log ? desc->log : mirt__log_stderr;
    s->log_user = desc->log_user;
    s->seed = desc->seed;
    s->kernels = mirt__kernels_best();
    if (mirt__parse_devices(s, desc->devices ? desc->devices : "1") != MIRT_OK) return mirt_last_status();
    if ((int)desc->kind < 0 || desc->kind > MIRT_CENTRAL_STORAGE) return mirt__fail(MIRT_E_INVALID, "there is no kind of strategy number %d", (int)desc->kind);
    const char *why;
    if (!mirt__collective_name(desc->collective, &why)) return mirt__fail(MIRT_E_INVALID, "there is no collective number %d", (int)desc->collective);
    s->kind = desc->kind;
    s->collective = desc->collective;
    if (desc->replicas < 0 || desc->threads < 0) return mirt__fail(MIRT_E_INVALID, "replicas and threads cannot be negative");
    s->num_replicas = desc->replicas ? desc->replicas : s->num_devices;
    s->threads = desc->threads ? desc->threads : !s->named && cores / s->num_devices > 1 ? cores / s->num_devices : 1;
    for (int d = 0; d < s->num_devices; d++) {
        s->device[d].num_replicas = mirt__device_replicas(s, s->num_replicas, d, &s->device[d].first_replica);
    }
    if (mirt__check_strategy(s) != MIRT_OK || mirt__start_threads(s, cores) != MIRT_OK) return mirt_last_status();
    mirt__introduce(s, desc, cores);
    return MIRT_OK;
}

MIRT_API mirt_strategy *mirt_strategy_create(const mirt_strategy_desc *desc) {
    mirt_strategy_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    mirt_strategy *s = (mirt_strategy *)mirt__calloc(1, sizeof *s);
    if (!s) return NULL;
    if (mirt__strategy_start(s, desc ? desc : &defaults) == MIRT_OK) return s;
    mirt_strategy_destroy(s);
    return NULL;
}

static mirt_strategy *mirt__strategy_of(mirt_strategy_kind kind, const char *devices) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    desc.devices = devices;
    return mirt_strategy_create(&desc);
}

MIRT_API mirt_strategy *mirt_mirrored(const char *devices) { return mirt__strategy_of(MIRT_MIRRORED, devices); }
MIRT_API mirt_strategy *mirt_one_device(const char *device) { return mirt__strategy_of(MIRT_ONE_DEVICE, device); }
MIRT_API mirt_strategy *mirt_central_storage(const char *devices) { return mirt__strategy_of(MIRT_CENTRAL_STORAGE, devices); }

MIRT_API void mirt_strategy_destroy(mirt_strategy *strategy) {
    if (!strategy) return;
    if (strategy->fits) {
        mirt__log(strategy, MIRT_LOG_ERROR, "a model of this strategy is being trained; it cannot be destroyed before mirt_fit returns");
        return;
    }
    while (strategy->models) mirt_model_destroy(strategy->models);
    for (int d = 0; d < strategy->num_devices; d++) mirt__team_destroy(strategy->device[d].team);
    mirt__team_destroy(strategy->leaders);
    mirt__pool_free(&strategy->pool);
    mirt__free(strategy);
}

MIRT__LIB int mirt__weight_copies(const mirt_strategy *strategy) { return strategy->kind == MIRT_CENTRAL_STORAGE ? 1 : strategy->num_devices; }

MIRT_API int mirt_num_replicas(const mirt_strategy *strategy) { return strategy ? strategy->num_replicas : 0; }
MIRT_API int mirt_num_devices(const mirt_strategy *strategy) { return strategy ? strategy->num_devices : 0; }
MIRT_API int mirt_num_threads(const mirt_strategy *strategy) { return strategy ? strategy->threads : 0; }

/* >>section nn/model.h */

#ifndef MIRT__MODEL_H
#define MIRT__MODEL_H
/* A model: the recorded graph, its layers and variables, and after mirt_compile its weights. */

typedef struct mirt__variable {
    const char *name; /* "conv2d/kernel" */
    mirt_shape shape;
    int64_t count;
    size_t offset;   /* bytes in the weight block */
    bool trainable;  /* as it was made */
    bool frozen;     /* by mirt_set_trainable */
    mirt_initializer initializer;
    double fan_in, fan_out;
} mirt__variable;

typedef struct mirt_layer mirt__layer;

/* Description fields of a layer or optimizer, for saving and loading; the order is that of the file. */
typedef enum mirt__field_kind {
    MIRT__FIELD_INT, MIRT__FIELD_SIGNED, /* an int that may be negative */
    MIRT__FIELD_INT2, MIRT__FIELD_INT2X2, /* two positive ints; int[2][2], none negative */
    MIRT__FIELD_FLOAT, MIRT__FIELD_BOOL, MIRT__FIELD_NO, /* "use_bias": !no_bias */
    MIRT__FIELD_PADDING, MIRT__FIELD_ACTIVATION, MIRT__FIELD_INITIALIZER, MIRT__FIELD_REGULARIZER,
    MIRT__FIELD_SHAPE, /* mirt_shape: of one sample */
    /* Of operations: */
    MIRT__FIELD_INT64, MIRT__FIELD_DOUBLE, MIRT__FIELD_LIMIT, /* a float that may be infinite */
    MIRT__FIELD_DTYPE, MIRT__FIELD_TRAINING, MIRT__FIELD_DIMS, /* mirt_shape: any */
    MIRT__FIELD_AXES /* int64_t[MIRT_MAX_RANK] */
} mirt__field_kind;
typedef struct mirt__field {
    const char *name; /* as in Keras's config */
    mirt__field_kind kind;
    size_t offset;
} mirt__field;

typedef struct mirt__layer_class mirt__layer_class;
struct mirt__layer_class {
    const char *class_name; /* "Conv2D" */
    const char *base_name;  /* "conv2d": default names are conv2d, conv2d_1, ... */
    int min_in, max_in; /* how many tensors it takes */
    const mirt__field *fields;
    int num_fields;
    size_t desc_size;
    /* Records the layer on layer->in, whose first is x (NULL for inputs); returns its first output. One that
       has more sets layer->out and num_out. The defaults in `desc` may be filled in. */
    mirt_tensor *(*build)(mirt__layer *layer, mirt_tensor *x, void *desc);
    const mirt_layer_class *user; /* of a user-defined layer, otherwise NULL */
    mirt__layer_class *next; /* in its strategy */
};

struct mirt_layer {
    const mirt__layer_class *cls;
    mirt_model *model;
    const char *name;
    mirt_tensor *in[MIRT__MAX_IN], *out[MIRT_MAX_OUTPUTS];
    int num_in, num_out;
    int first_variable, num_variables;
    int first_node, num_nodes; /* of the model's graph */
    int first_term, num_terms;
    char *desc;                /* cls->desc_size bytes, owned by the graph */
    mirt__layer *parent;       /* the layer whose build made this one, or NULL; only layers without stand in model->layer */
    mirt__layer *children, *sibling;
};

typedef void (*mirt__update_fn)(const mirt__update *args, const mirt__where *where);

/* An optimizer's row: slots are blocks as large as the weights. */
typedef struct mirt__optimizer_class {
    const char *name; /* "adam" */
    const char *slot_name[2]; /* Keras's: "momentum", "velocity" */
    const mirt__field *fields; /* of mirt_optimizer, beside the learning rate */
    int num_fields;
    int (*slots)(const mirt_optimizer *optimizer); /* how many it uses */
    mirt_status (*check)(const mirt_optimizer *optimizer);
    /* Fills the numbers of `update` for the 1-based `step` at learning rate `rate`; returns the kernel. */
    mirt__update_fn (*update)(const mirt_optimizer *optimizer, const mirt__kernels *kernels, int64_t step, double rate, mirt__update *update);
} mirt__optimizer_class;

/* A loss's row. */
typedef struct mirt__loss_class {
    const char *name;           /* Keras's */
    bool classes;               /* of (rows, classes) alone */
    bool sparse;                /* labels are class numbers, one a sample; otherwise float32, one an output */
    mirt_activation_kind undo;  /* behind this activation the loss is computed from what went into it */
} mirt__loss_class;

/* A metric's row. */
typedef struct mirt__metric_class {
    const char *name, *val_name; /* in logs: of training or evaluation, and of validation in fit */
    mirt_status (*check)(const mirt_model *model); /* whether the compiled model can have it */
    /* Records its value for each sample, [rows]; the metric is their mean. */
    mirt_tensor *(*record)(const mirt_model *model, mirt_tensor *output, mirt_tensor *labels);
} mirt__metric_class;

typedef struct mirt__trainer mirt__trainer;

struct mirt_model {
    mirt_strategy *strategy;
    mirt_model *previous, *next; /* in its strategy */
    const char *name;
    mirt__graph graph;
    mirt__variable *variable;
    int num_variables, variable_capacity;
    mirt__layer **layer;
    int num_layers, layer_capacity;
    mirt__layer *building; /* while a build function runs */
    char *next_name;       /* by mirt_next_name, or NULL */
    mirt_tensor *input[MIRT_MAX_INPUTS], *output[MIRT_MAX_OUTPUTS];
    int num_inputs, num_outputs;
    mirt_tensor **term; /* added to the loss: regularizers and the like */
    int num_terms, term_capacity;

    bool compiled;
    bool busy; /* inside mirt_fit, whose callbacks must not change what it works on */
    mirt_compile_desc config;
    size_t weight_bytes;      /* of one copy of all variables */
    char *weight[MIRT__MAX_DEVICES];
    char *slot[2];            /* optimizer state, once */
    int64_t step;
    bool rate_set;            /* by mirt_set_learning_rate: overrides a schedule */
    mirt__trainer *trainer;   /* programs and their memory, made when first needed */
    int64_t epoch;            /* epochs of training data begun, the key of their order */
    mirt_history history;     /* of the last fit */
    mirt_logs *history_logs;
    int history_capacity;
    mirt__text summary, graph_text;
};

/* --- layers.c, model.c --- */
/* Adds a layer of class `cls` on the `num_in` tensors of `in` to `model` (NULL: theirs): `desc` is cls->desc_size
   bytes (NULL: zeros), `name` NULL for the default. NULL with the model marked on errors. */
MIRT__LIB mirt_tensor *mirt__layer_add(mirt_model *model, const mirt__layer_class *cls, mirt_tensor *const *in, int num_in, const void *desc, const char *name);
/* A variable of the layer being built: "layer/name". Fans are Keras's, by shape. */
MIRT__LIB mirt_tensor *mirt__variable_add(mirt__layer *layer, const char *name, const mirt_shape *shape, const mirt_initializer *initializer, bool trainable);
/* A term of the model's loss: a number that depends on weights alone, or a value a sample. */
MIRT__LIB bool mirt__term_add(mirt_model *model, mirt_tensor *term);
/* Of the library, or registered with the strategy; NULL when there is none. */
MIRT__LIB const mirt__layer_class *mirt__layer_class_by_name(const mirt_strategy *strategy, const char *class_name);
MIRT__LIB int mirt__variable_find(const mirt_model *model, const char *name);
/* Marks the model with the current error and returns NULL. */
MIRT__LIB mirt_tensor *mirt__model_poison(mirt_model *model);
/* Creates the weight blocks and draws the initial values, once. */
MIRT__LIB mirt_status mirt__model_materialize(mirt_model *model);
MIRT__LIB mirt__real *mirt__weight_at(const mirt_model *model, int device, const mirt__variable *variable);

/* --- initializers.c --- */
MIRT__LIB void mirt__initialize(const mirt__variable *variable, uint64_t seed, mirt__real *out);
MIRT__LIB mirt_status mirt__initializer_check(const mirt_initializer *initializer);

/* --- optimizers.c --- */
MIRT__LIB const mirt__optimizer_class *mirt__optimizer_class_get(mirt_optimizer_kind kind);
MIRT__LIB int mirt__optimizer_slots(const mirt_optimizer *optimizer);
/* All zeros mean default: an Adam without betas and epsilon gets Keras's. */
MIRT__LIB void mirt__optimizer_defaults(mirt_optimizer *optimizer);
MIRT__LIB mirt_status mirt__optimizer_check(const mirt_optimizer *optimizer);
/* Fills slots and numbers of `update` for the model's next step at learning rate `rate`; returns the kernel. */
MIRT__LIB mirt__update_fn mirt__optimizer_update(const mirt_model *model, const mirt__kernels *kernels, double rate, mirt__update *update);

/* --- losses.c --- */
/* NULL when there is no such loss. */
MIRT__LIB const mirt__loss_class *mirt__loss_class_get(mirt_loss loss);
MIRT__LIB const char *mirt__loss_name(mirt_loss loss);
/* The dtype and per-sample shape labels are brought to for this loss and model. */
MIRT__LIB mirt_status mirt__labels_wanted(const mirt_model *model, mirt_dtype *dtype, int64_t *per_sample);

/* --- metrics.c --- */
/* NULL when there is no such metric. */
MIRT__LIB const mirt__metric_class *mirt__metric_class_get(mirt_metric metric);
/* Of the compiled model. */
MIRT__LIB int mirt__num_metrics(const mirt_model *model);

/* --- train/trainer.c --- */
MIRT__LIB void mirt__trainer_free(mirt_model *model);

#endif

/* >>section nn/initializers.c */

static mirt_initializer mirt__initializer(mirt_initializer_kind kind, float a, float b, mirt_fan mode, mirt_distribution distribution) {
    mirt_initializer i;
    i.kind = kind;
    i.a = a;
    i.b = b;
    i.mode = mode;
    i.distribution = distribution;
    return i;
}

static mirt_initializer mirt__plain_initializer(mirt_initializer_kind kind, float a, float b) {
    return mirt__initializer(kind, a, b, MIRT_FAN_IN, MIRT_DIST_TRUNCATED_NORMAL);
}

MIRT_API mirt_initializer mirt_zeros(void) { return mirt__plain_initializer(MIRT_INIT_ZEROS, 0, 0); }
MIRT_API mirt_initializer mirt_ones(void) { return mirt__plain_initializer(MIRT_INIT_ONES, 0, 0); }
MIRT_API mirt_initializer mirt_constant(float value) { return mirt__plain_initializer(MIRT_INIT_CONSTANT, value, 0); }
MIRT_API mirt_initializer mirt_random_uniform(float minimum, float maximum) {
    return mirt__plain_initializer(MIRT_INIT_UNIFORM, minimum, maximum);
}
MIRT_API mirt_initializer mirt_random_normal(float mean, float stddev) { return mirt__plain_initializer(MIRT_INIT_NORMAL, mean, stddev); }
MIRT_API mirt_initializer mirt_truncated_normal(float mean, float stddev) {
    return mirt__plain_initializer(MIRT_INIT_TRUNCATED_NORMAL, mean, stddev);
}
MIRT_API mirt_initializer mirt_variance_scaling(float scale, mirt_fan mode, mirt_distribution distribution) {
    return mirt__initializer(MIRT_INIT_VARIANCE_SCALING, scale, 0, mode, distribution);
}
MIRT_API mirt_initializer mirt_glorot_uniform(void) { return mirt_variance_scaling(1, MIRT_FAN_AVG, MIRT_DIST_UNIFORM); }
MIRT_API mirt_initializer mirt_glorot_normal(void) { return mirt_variance_scaling(1, MIRT_FAN_AVG, MIRT_DIST_TRUNCATED_NORMAL); }
MIRT_API mirt_initializer mirt_he_uniform(void) { return mirt_variance_scaling(2, MIRT_FAN_IN, MIRT_DIST_UNIFORM); }
MIRT_API mirt_initializer mirt_he_normal(void) { return mirt_variance_scaling(2, MIRT_FAN_IN, MIRT_DIST_TRUNCATED_NORMAL); }

MIRT__LIB mirt_status mirt__initializer_check(const mirt_initializer *i) {
    if ((int)i->kind < 0 || i->kind >= MIRT__INIT_COUNT) return mirt__fail(MIRT_E_INVALID, "there is no initializer number %d", (int)i->kind);
    if ((int)i->mode < 0 || i->mode > MIRT_FAN_AVG) return mirt__fail(MIRT_E_INVALID, "there is no fan mode number %d", (int)i->mode);
    if ((int)i->distribution < 0 || i->distribution > MIRT_DIST_UNIFORM) return mirt__fail(MIRT_E_INVALID, "there is no distribution number %d", (int)i->distribution);
    if (!isfinite(i->a) || !isfinite(i->b)) return mirt__fail(MIRT_E_INVALID, "an initializer's numbers are %g and %g; they must be finite", (double)i->a, (double)i->b);
    bool spread = i->kind == MIRT_INIT_NORMAL || i->kind == MIRT_INIT_TRUNCATED_NORMAL;
    if (spread && !(i->b >= 0)) return mirt__fail(MIRT_E_INVALID, "an initializer's standard deviation is %g; it cannot be negative", (double)i->b);
    if (i->kind == MIRT_INIT_VARIANCE_SCALING && !(i->a > 0)) {
        return mirt__fail(MIRT_E_INVALID, "VarianceScaling's scale is %g; it must be positive", (double)i->a);
    }
    return MIRT_OK;
}

static double mirt__draw_truncated(mirt__random *random) {
    double z;
    do z = mirt__random_normal(random);
    while (z < -2 || z > 2);
    return z;
}

/* VarianceScaling in terms of the simpler kinds. The truncated normal's standard deviation is
   divided by that of a unit normal cut at 2, as Keras does. */
static mirt_initializer mirt__scaled_initializer(const mirt__variable *v) {
    const mirt_initializer *i = &v->initializer;
    double fan = i->mode == MIRT_FAN_IN ? v->fan_in : i->mode == MIRT_FAN_OUT ? v->fan_out : 0.5 * (v->fan_in + v->fan_out);
    double variance = (double)i->a / (fan > 1 ? fan : 1);
    if (i->distribution == MIRT_DIST_UNIFORM) {
        float limit = (float)sqrt(3 * variance);
        return mirt_random_uniform(-limit, limit);
    }
    if (i->distribution == MIRT_DIST_UNTRUNCATED_NORMAL) return mirt_random_normal(0, (float)sqrt(variance));
    return mirt_truncated_normal(0, (float)(sqrt(variance) / 0.87962566103423978));
}

MIRT__LIB void mirt__initialize(const mirt__variable *variable, uint64_t seed, mirt__real *out) {
    mirt_initializer i = variable->initializer;
    mirt__random random = mirt__random_stream(seed, mirt__hash(variable->name));
    if (i.kind == MIRT_INIT_VARIANCE_SCALING) i = mirt__scaled_initializer(variable);
    for (int64_t k = 0; k < variable->count; k++) {
        float value = 0;
        switch (i.kind) {
        case MIRT_INIT_ONES: value = 1; break;
        case MIRT_INIT_CONSTANT: value = i.a; break;
        case MIRT_INIT_UNIFORM: value = i.a + (i.b - i.a) * mirt__random_unit(&random); break;
        case MIRT_INIT_NORMAL: value = (float)((double)i.a + (double)i.b * mirt__random_normal(&random)); break;
        case MIRT_INIT_TRUNCATED_NORMAL: value = (float)((double)i.a + (double)i.b * mirt__draw_truncated(&random)); break;
        default: break;
        }
        out[k] = (mirt__real)value;
    }
}

/* >>section nn/optimizers.c */

MIRT_API mirt_optimizer mirt_adam(float learning_rate) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = MIRT_ADAM;
    o.learning_rate = learning_rate;
    o.beta_1 = 0.9f;
    o.beta_2 = 0.999f;
    o.epsilon = 1e-7f;
    return o;
}

MIRT_API mirt_optimizer mirt_sgd(float learning_rate, float momentum, bool nesterov) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = MIRT_SGD;
    o.learning_rate = learning_rate;
    o.momentum = momentum;
    o.nesterov = nesterov;
    return o;
}

MIRT__LIB void mirt__optimizer_defaults(mirt_optimizer *o) {
    if (o->kind != MIRT_ADAM || o->beta_1 != 0 || o->beta_2 != 0 || o->epsilon != 0) return;
    const mirt_optimizer keras = mirt_adam(1e-3f);
    o->beta_1 = keras.beta_1;
    o->beta_2 = keras.beta_2;
    o->epsilon = keras.epsilon;
    if (o->learning_rate == 0 && !o->schedule) o->learning_rate = keras.learning_rate;
}

static bool mirt__is_share(float x) { return x >= 0 && x < 1; }

/* The decimal number that was meant: 0.999f is 0.99900001287, which would leave 1 - beta off by 1.3e-5. */
static double mirt__as_written(float beta) {
    double rounded = floor((double)beta * 1e7 + 0.5) / 1e7;
    return (float)rounded == beta ? rounded : (double)beta;
}

static int mirt__adam_slots(const mirt_optimizer *o) {
    (void)o;
    return 2;
}

static mirt_status mirt__adam_check(const mirt_optimizer *o) {
    if (mirt__is_share(o->beta_1) && mirt__is_share(o->beta_2) && o->epsilon >= 0 && o->epsilon <= FLT_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "Adam's beta_1 %g and beta_2 %g must lie in [0, 1) and epsilon %g not below 0; start from mirt_adam(rate)",
                      (double)o->beta_1, (double)o->beta_2, (double)o->epsilon);
}

static mirt__update_fn mirt__adam_update(const mirt_optimizer *o, const mirt__kernels *kernels, int64_t step, double rate, mirt__update *update) {
    double t = (double)step;
    update->new_1 = (float)(1 - mirt__as_written(o->beta_1));
    update->new_2 = (float)(1 - mirt__as_written(o->beta_2));
    update->epsilon = o->epsilon;
    /* the powers are of the float32 numbers, as in Keras */
    update->learning_rate = (float)(rate * (sqrt(1 - pow((double)o->beta_2, t)) / (1 - pow((double)o->beta_1, t))));
    return kernels->adam;
}

static int mirt__sgd_slots(const mirt_optimizer *o) { return o->momentum != 0; }

static mirt_status mirt__sgd_check(const mirt_optimizer *o) {
    if (mirt__is_share(o->momentum)) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "SGD's momentum is %g; it must lie in [0, 1)", (double)o->momentum);
}

static mirt__update_fn mirt__sgd_update(const mirt_optimizer *o, const mirt__kernels *kernels, int64_t step, double rate, mirt__update *update) {
    (void)step;
    update->momentum = o->momentum;
    update->nesterov = o->nesterov;
    update->learning_rate = (float)rate;
    return kernels->sgd;
}

static const mirt__field mirt__adam_fields[] = {{"beta_1", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, beta_1)},
                                                {"beta_2", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, beta_2)},
                                                {"epsilon", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, epsilon)}};
static const mirt__field mirt__sgd_fields[] = {{"momentum", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, momentum)},
                                               {"nesterov", MIRT__FIELD_BOOL, offsetof(mirt_optimizer, nesterov)}};

/* One row an optimizer. Keras calls Adam's moments momentum and velocity. */
static const mirt__optimizer_class mirt__optimizer_table[MIRT__OPTIMIZER_COUNT] = {
    {"adam", {"momentum", "velocity"}, mirt__adam_fields, MIRT__COUNT(mirt__adam_fields), mirt__adam_slots, mirt__adam_check, mirt__adam_update},
    {"sgd", {"momentum", NULL}, mirt__sgd_fields, MIRT__COUNT(mirt__sgd_fields), mirt__sgd_slots, mirt__sgd_check, mirt__sgd_update},
};

MIRT__LIB const mirt__optimizer_class *mirt__optimizer_class_get(mirt_optimizer_kind kind) { return &mirt__optimizer_table[kind]; }

MIRT__LIB int mirt__optimizer_slots(const mirt_optimizer *o) { return mirt__optimizer_table[o->kind].slots(o); }

MIRT__LIB mirt_status mirt__optimizer_check(const mirt_optimizer *o) {
    if ((int)o->kind < 0 || o->kind >= MIRT__OPTIMIZER_COUNT) return mirt__fail(MIRT_E_INVALID, "there is no optimizer number %d", (int)o->kind);
    if (!o->schedule && !(o->learning_rate >= 0 && o->learning_rate <= FLT_MAX)) {
        return mirt__fail(MIRT_E_INVALID, "the learning rate is %g; it must be a number and not negative", (double)o->learning_rate);
    }
    return mirt__optimizer_table[o->kind].check(o);
}

MIRT__LIB mirt__update_fn mirt__optimizer_update(const mirt_model *model, const mirt__kernels *kernels, double rate, mirt__update *update) {
    const mirt_optimizer *o = &model->config.optimizer;
    for (int i = 0; i < 2; i++) update->slot[i] = (mirt__real *)(void *)model->slot[i];
    return mirt__optimizer_table[o->kind].update(o, kernels, model->step + 1, rate, update);
}

MIRT_API double mirt_get_learning_rate(const mirt_model *model) {
    if (!model) return 0;
    const mirt_optimizer *o = &model->config.optimizer;
    return (double)(o->schedule && !model->rate_set ? o->schedule(model->step, o->schedule_user) : o->learning_rate);
}

MIRT_API mirt_status mirt_set_learning_rate(mirt_model *model, double rate) {
    if (!model) return mirt__fail(MIRT_E_INVALID, "mirt_set_learning_rate: no model");
    if (!(rate >= 0 && rate <= (double)FLT_MAX)) return mirt__fail(MIRT_E_INVALID, "the learning rate is %g; it must be a number and not negative", rate);
    model->config.optimizer.learning_rate = (float)rate;
    model->rate_set = true;
    return MIRT_OK;
}

MIRT_API int64_t mirt_step(const mirt_model *model) { return model ? model->step : 0; }

/* >>section nn/losses.c */

static const mirt__loss_class mirt__loss_table[MIRT__LOSS_COUNT] = {
    {"none", false, false, MIRT_LINEAR},
    {"sparse_categorical_crossentropy", true, true, MIRT_SOFTMAX},
    {"categorical_crossentropy", true, false, MIRT_SOFTMAX},
    {"binary_crossentropy", false, false, MIRT_SIGMOID},
    {"mean_squared_error", false, false, MIRT_LINEAR},
};

MIRT__LIB const mirt__loss_class *mirt__loss_class_get(mirt_loss loss) {
    return (int)loss >= 0 && loss < MIRT__LOSS_COUNT ? &mirt__loss_table[loss] : NULL;
}

MIRT__LIB const char *mirt__loss_name(mirt_loss loss) {
    const mirt__loss_class *cls = mirt__loss_class_get(loss);
    return cls ? cls->name : NULL;
}

MIRT__LIB mirt_status mirt__labels_wanted(const mirt_model *model, mirt_dtype *dtype, int64_t *per_sample) {
    const mirt__loss_class *cls = mirt__loss_class_get(model->config.loss);
    char text[96];
    if (cls->classes && (model->output[0]->shape.rank != 2 || mirt__last_dim(model->output[0]) < 2)) {
        return mirt__fail(MIRT_E_SHAPE, "%s needs an output of (rows, classes), not %s", cls->name, mirt__shape_text(&model->output[0]->shape, text));
    }
    *dtype = cls->sparse ? MIRT_INT32 : MIRT_FLOAT32;
    *per_sample = cls->sparse ? 1 : mirt__shape_count(&model->output[0]->shape);
    return MIRT_OK;
}

/* >>section nn/metrics.c */

/* Keras's choice for "accuracy": by the shapes of labels and predictions. */
static mirt__accuracy_kind mirt__accuracy_kind_of(const mirt_model *model) {
    if (mirt__loss_class_get(model->config.loss)->sparse) return MIRT__ACCURACY_SPARSE;
    return mirt__last_dim(model->output[0]) == 1 ? MIRT__ACCURACY_BINARY : MIRT__ACCURACY_CATEGORICAL;
}

static mirt_status mirt__accuracy_check(const mirt_model *model) {
    char text[96];
    if (model->output[0]->shape.rank == 2 || mirt__accuracy_kind_of(model) == MIRT__ACCURACY_BINARY) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "accuracy needs an output of (rows, classes), not %s", mirt__shape_text(&model->output[0]->shape, text));
}

static mirt_tensor *mirt__accuracy_record(const mirt_model *model, mirt_tensor *output, mirt_tensor *labels) {
    return mirt__accuracy_op(mirt__accuracy_kind_of(model), output, labels);
}

static const mirt__metric_class mirt__metric_table[MIRT__METRIC_COUNT] = {
    {NULL, NULL, NULL, NULL},
    {"accuracy", "val_accuracy", mirt__accuracy_check, mirt__accuracy_record},
};

MIRT__LIB const mirt__metric_class *mirt__metric_class_get(mirt_metric metric) {
    return (int)metric > MIRT_METRIC_NONE && metric < MIRT__METRIC_COUNT ? &mirt__metric_table[metric] : NULL;
}

MIRT__LIB int mirt__num_metrics(const mirt_model *model) {
    int n = 0;
    while (n < MIRT_MAX_METRICS && model->config.metrics[n] != MIRT_METRIC_NONE) n++;
    return n;
}

/* >>section nn/layers.h */

#ifndef MIRT__LAYERS_H
#define MIRT__LAYERS_H
/* The table of layers and what their files share. A layer: a description with its fields for files and a
   build function in a file nn/layers_*.c, and its name here. */

/* The class of layer NAME is mirt__NAME_layer. */
#define MIRT__LAYER_LIST(X) \
    X(input) X(rescaling) X(dense) X(flatten) X(reshape) X(permute) X(dropout) \
    X(activation) X(relu) X(leaky_relu) X(elu) X(prelu) X(softmax) \
    X(conv2d) X(conv2d_transpose) X(depthwise_conv2d) X(separable_conv2d) \
    X(max_pool2d) X(average_pool2d) X(global_average_pool2d) X(global_max_pool2d) \
    X(zero_padding2d) X(cropping2d) X(up_sampling2d) \
    X(batch_norm) X(layer_norm) \
    X(add) X(subtract) X(multiply) X(average) X(maximum) X(minimum) X(concatenate)

#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__LAYER_EXTERN(name) extern const mirt__layer_class mirt__##name##_layer;
MIRT__LAYER_LIST(MIRT__LAYER_EXTERN)
#undef MIRT__LAYER_EXTERN
#endif

/* A member of the description `desc`. */
#define MIRT__FIELD(desc, name, kind, member) {name, MIRT__FIELD_##kind, offsetof(desc, member)}
/* Class mirt__NAME_layer, recorded by mirt__NAME_build, with its fields in an array, or without a description. */
#define MIRT__LAYER(name, class_name, base_name, min_in, max_in, fields, desc) \
    MIRT__TABLE mirt__layer_class mirt__##name##_layer = { \
        class_name, base_name, min_in, max_in, fields, MIRT__COUNT(fields), sizeof(desc), mirt__##name##_build, NULL, NULL}
#define MIRT__PLAIN_LAYER(name, class_name, base_name, min_in, max_in) \
    MIRT__TABLE mirt__layer_class mirt__##name##_layer = {class_name, base_name, min_in, max_in, NULL, 0, 0, mirt__##name##_build, NULL, NULL}

/* The layer of class `cls` on x; NULL for NULL. */
MIRT__LIB mirt_tensor *mirt__layer_on(const mirt__layer_class *cls, mirt_tensor *x, const void *desc, const char *name);
/* The same for a class whose description has no defaults. */
MIRT__LIB mirt_tensor *mirt__layer_needs_desc(const mirt__layer_class *cls, mirt_tensor *x, const void *desc, const char *name);

/* In build functions: */
MIRT__LIB void mirt__default_initializer(mirt_initializer *i, mirt_initializer fallback);
/* {0, 0} is `fallback` twice and {k, 0} is {k, k}. */
MIRT__LIB void mirt__default_pair(int pair[2], int fallback);
/* Whether x is (rows, height, width, channels); says so if not. */
MIRT__LIB bool mirt__layer_takes_images(const mirt_tensor *x);
/* A trainable variable with its description's initializer (filled in when it is the default) and regularizer. */
MIRT__LIB mirt_tensor *mirt__weight_add(mirt__layer *layer, const char *name, const mirt_shape *shape, mirt_initializer *initializer,
                                        mirt_initializer fallback, const mirt_regularizer *regularizer);
/* x + a variable "bias" of the layer, unless no_bias; then the activation. */
MIRT__LIB mirt_tensor *mirt__bias_and_activation(mirt__layer *layer, mirt_tensor *x, bool no_bias, mirt_initializer *initializer,
                                                 const mirt_regularizer *regularizer, mirt_activation_kind activation);

#endif

/* >>section nn/layers_core.c */

/* Input, dense, and what works on any shape. */

typedef struct mirt__input_desc { mirt_shape shape; } mirt__input_desc;
typedef struct mirt__rescaling_desc { float scale, offset; } mirt__rescaling_desc;
typedef struct mirt__dropout_desc { float rate; } mirt__dropout_desc;
typedef struct mirt__reshape_desc { mirt_shape shape; } mirt__reshape_desc;

static mirt_tensor *mirt__input_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_model *model = layer->model;
    mirt_shape shape = ((mirt__input_desc *)desc)->shape;
    if (shape.rank < 1 || shape.rank >= MIRT_MAX_RANK) {
        return mirt__fail(MIRT_E_SHAPE, "an input needs 1 to %d dimensions, each positive", MIRT_MAX_RANK - 1), (mirt_tensor *)NULL;
    }
    for (int i = shape.rank; i > 0; i--) {
        if (shape.dim[i - 1] < 1) return mirt__fail(MIRT_E_SHAPE, "an input dimension is %lld; it must be positive", (long long)shape.dim[i - 1]), (mirt_tensor *)NULL;
        shape.dim[i] = shape.dim[i - 1];
    }
    shape.dim[0] = MIRT_ROWS;
    shape.rank++;
    if (model->num_inputs == MIRT_MAX_INPUTS) return mirt__fail(MIRT_E_STATE, "a model has at most %d inputs", MIRT_MAX_INPUTS), (mirt_tensor *)NULL;
    x = mirt__input_op(&model->graph, model->num_inputs, MIRT_FLOAT32, &shape);
    if (x) model->input[model->num_inputs++] = x;
    return x;
}

static mirt_tensor *mirt__rescaling_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt__rescaling_desc *d = (const mirt__rescaling_desc *)desc;
    (void)layer;
    if (!isfinite(d->scale) || !isfinite(d->offset)) {
        return mirt__fail(MIRT_E_INVALID, "scale %g and offset %g must be finite", (double)d->scale, (double)d->offset), (mirt_tensor *)NULL;
    }
    return mirt__unary_op(MIRT__AFFINE, x, d->scale, d->offset);
}

static mirt_tensor *mirt__dense_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_dense_desc *d = (mirt_dense_desc *)desc;
    if (d->units < 1) return mirt__fail(MIRT_E_INVALID, "units is %d; it must be positive", d->units), (mirt_tensor *)NULL;
    if (x->shape.rank < 2) return mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., features)"), (mirt_tensor *)NULL;
    int64_t in = mirt__last_dim(x);
    mirt_shape shape = mirt_make_shape(in, d->units, 0, 0, 0, 0);
    mirt_tensor *kernel = mirt__weight_add(layer, "kernel", &shape, &d->kernel_initializer, mirt_glorot_uniform(), &d->kernel_regularizer);
    return mirt__bias_and_activation(layer, mirt__matmul_op(x, kernel, false, false), d->no_bias, &d->bias_initializer, &d->bias_regularizer, d->activation);
}

static mirt_tensor *mirt__flatten_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_shape shape = mirt_make_shape(1, mirt__shape_count(&x->shape), 0, 0, 0, 0);
    (void)layer;
    (void)desc;
    if (!mirt__is_batched(&x->shape)) return mirt__fail(MIRT_E_SHAPE, "takes a batch"), (mirt_tensor *)NULL;
    shape.dim[0] = MIRT_ROWS;
    return mirt__reshape_op(x, &shape);
}

static mirt_tensor *mirt__dropout_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    return mirt__dropout_op(x, ((const mirt__dropout_desc *)desc)->rate, mirt__hash(layer->name));
}

/* At most one dimension of the target is -1: what is left. */
static mirt_tensor *mirt__reshape_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_shape *shape = &((mirt__reshape_desc *)desc)->shape;
    int64_t count = mirt__shape_count(&x->shape), known = 1;
    int open = -1;
    (void)layer;
    if (shape->rank < 1 || shape->rank >= MIRT_MAX_RANK) return mirt__fail(MIRT_E_SHAPE, "the target has %d axes; it must be 1 to %d", shape->rank, MIRT_MAX_RANK - 1), (mirt_tensor *)NULL;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == -1 && open < 0) open = i;
        else if (shape->dim[i] > 0 && shape->dim[i] <= count / known) known *= shape->dim[i];
        else return mirt__fail(MIRT_E_SHAPE, "a dimension of the target is %lld; it must be positive, one may be -1, and all fit %lld elements",
                               (long long)shape->dim[i], (long long)count), (mirt_tensor *)NULL;
    }
    if (open >= 0) shape->dim[open] = count / known;
    return mirt_reshape(x, *shape);
}

/* Keras counts the axes from 1 and leaves the rows out. */
static mirt_tensor *mirt__permute_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt_shape *dims = &((const mirt__reshape_desc *)desc)->shape;
    int permutation[MIRT_MAX_RANK] = {0};
    (void)layer;
    if (!mirt__is_batched(&x->shape) || dims->rank != x->shape.rank - 1) {
        return mirt__fail(MIRT_E_SHAPE, "%d dims; it must be a batch, and every axis but the rows be named once", dims->rank), (mirt_tensor *)NULL;
    }
    for (int i = 0; i < dims->rank; i++) permutation[i + 1] = dims->dim[i] > 0 && dims->dim[i] <= dims->rank ? (int)dims->dim[i] : -1;
    return mirt_transpose(x, permutation);
}

static const mirt__field mirt__input_fields[] = {MIRT__FIELD(mirt__input_desc, "shape", SHAPE, shape)};
static const mirt__field mirt__rescaling_fields[] = {MIRT__FIELD(mirt__rescaling_desc, "scale", FLOAT, scale),
                                                     MIRT__FIELD(mirt__rescaling_desc, "offset", FLOAT, offset)};
static const mirt__field mirt__dense_fields[] = {MIRT__FIELD(mirt_dense_desc, "units", INT, units),
                                                 MIRT__FIELD(mirt_dense_desc, "activation", ACTIVATION, activation),
                                                 MIRT__FIELD(mirt_dense_desc, "use_bias", NO, no_bias),
                                                 MIRT__FIELD(mirt_dense_desc, "kernel_initializer", INITIALIZER, kernel_initializer),
                                                 MIRT__FIELD(mirt_dense_desc, "bias_initializer", INITIALIZER, bias_initializer),
                                                  MIRT__FIELD(mirt_dense_desc, "kernel_regularizer", REGULARIZER, kernel_regularizer),
                                                  MIRT__FIELD(mirt_dense_desc, "bias_regularizer", REGULARIZER, bias_regularizer)};
static const mirt__field mirt__dropout_fields[] = {MIRT__FIELD(mirt__dropout_desc, "rate", FLOAT, rate)};
static const mirt__field mirt__permute_fields[] = {MIRT__FIELD(mirt__reshape_desc, "dims", SHAPE, shape)};
static const mirt__field mirt__reshape_fields[] = {MIRT__FIELD(mirt__reshape_desc, "target_shape", SHAPE, shape)};

MIRT__LAYER(input, "InputLayer", "input_layer", 0, 0, mirt__input_fields, mirt__input_desc);
MIRT__LAYER(rescaling, "Rescaling", "rescaling", 1, 1, mirt__rescaling_fields, mirt__rescaling_desc);
MIRT__LAYER(dense, "Dense", "dense", 1, 1, mirt__dense_fields, mirt_dense_desc);
MIRT__PLAIN_LAYER(flatten, "Flatten", "flatten", 1, 1);
MIRT__LAYER(dropout, "Dropout", "dropout", 1, 1, mirt__dropout_fields, mirt__dropout_desc);
MIRT__LAYER(permute, "Permute", "permute", 1, 1, mirt__permute_fields, mirt__reshape_desc);
MIRT__LAYER(reshape, "Reshape", "reshape", 1, 1, mirt__reshape_fields, mirt__reshape_desc);

MIRT_API mirt_tensor *mirt_input(mirt_model *model, mirt_shape shape) {
    mirt__input_desc d;
    memset(&d, 0, sizeof d);
    d.shape = shape;
    return model ? mirt__layer_add(model, &mirt__input_layer, NULL, 0, &d, NULL) : NULL;
}

MIRT_API mirt_tensor *mirt_rescale(mirt_tensor *x, float scale, float offset) {
    mirt__rescaling_desc d;
    d.scale = scale;
    d.offset = offset;
    return mirt__layer_on(&mirt__rescaling_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_dense(mirt_tensor *x, const mirt_dense_desc *desc) {
    return mirt__layer_needs_desc(&mirt__dense_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_flatten(mirt_tensor *x) { return mirt__layer_on(&mirt__flatten_layer, x, NULL, NULL); }

MIRT_API mirt_tensor *mirt_dropout(mirt_tensor *x, float rate) {
    mirt__dropout_desc d;
    d.rate = rate;
    return mirt__layer_on(&mirt__dropout_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_reshape_layer(mirt_tensor *x, mirt_shape shape) {
    mirt__reshape_desc d;
    d.shape = shape;
    return mirt__layer_on(&mirt__reshape_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_permute(mirt_tensor *x, mirt_shape dims) {
    mirt__reshape_desc d;
    d.shape = dims;
    return mirt__layer_on(&mirt__permute_layer, x, &d, NULL);
}

/* >>section nn/layers_activation.c */

/* Activations as layers. */

typedef struct mirt__activation_desc { mirt_activation_kind activation; } mirt__activation_desc;
typedef struct mirt__slope_desc { float slope; } mirt__slope_desc;

static mirt_tensor *mirt__activation_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    return mirt__activation_op(((const mirt__activation_desc *)desc)->activation, x);
}

static mirt_tensor *mirt__slope_build(mirt__unary_kind kind, mirt_tensor *x, const void *desc) {
    float slope = ((const mirt__slope_desc *)desc)->slope;
    if (!isfinite(slope)) return mirt__fail(MIRT_E_INVALID, "the slope is %g; it must be finite", (double)slope), (mirt_tensor *)NULL;
    return mirt__unary_op(kind, x, slope, 0);
}

static mirt_tensor *mirt__leaky_relu_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    return mirt__slope_build(MIRT__ACT_LEAKY_RELU, x, desc);
}

static mirt_tensor *mirt__elu_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    return mirt__slope_build(MIRT__ACT_ELU, x, desc);
}

static mirt_tensor *mirt__softmax_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    (void)desc;
    return mirt_softmax(x);
}

static mirt_tensor *mirt__relu_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt_relu_desc *d = (const mirt_relu_desc *)desc;
    const float slope = d->negative_slope, threshold = d->threshold;
    (void)layer;
    if (!(d->max_value >= 0 && slope >= 0 && threshold >= 0 && isfinite(d->max_value + slope + threshold))) {
        return mirt__fail(MIRT_E_INVALID, "max_value %g, negative_slope %g, threshold %g: they must be finite and not negative", (double)d->max_value,
                          (double)slope, (double)threshold), (mirt_tensor *)NULL;
    }
    mirt_tensor *y;
    if (threshold > 0) {
        mirt_tensor *limit = mirt__scalar_op(x->node->graph, threshold);
        y = mirt__where_op(mirt__logic_op(MIRT__IS_LESS_EQUAL, limit, x), x, mirt__unary_op(MIRT__AFFINE, x, slope, -slope * threshold));
    } else {
        y = slope > 0 ? mirt__unary_op(MIRT__ACT_LEAKY_RELU, x, slope, 0) : mirt__unary_op(MIRT__ACT_RELU, x, 0, 0);
    }
    return d->max_value > 0 ? mirt__unary_op(MIRT__CLIP, y, -INFINITY, d->max_value) : y;
}

/* max(x, 0) - alpha * max(-x, 0). */
static mirt_tensor *mirt__prelu_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_prelu_desc *d = (mirt_prelu_desc *)desc;
    mirt_shape shape;
    memset(&shape, 0, sizeof shape);
    if (x->shape.rank < 2 || !mirt__is_batched(&x->shape)) return mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., features)"), (mirt_tensor *)NULL;
    if (d->shared_axes < 0 || d->shared_axes & 1 || d->shared_axes >> x->shape.rank) {
        return mirt__fail(MIRT_E_INVALID, "shared_axes is %d; bits 1 to %d are axes of its input", d->shared_axes, x->shape.rank - 1), (mirt_tensor *)NULL;
    }
    shape.rank = x->shape.rank - 1;
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = d->shared_axes >> (i + 1) & 1 ? 1 : x->shape.dim[i + 1];
    mirt_tensor *alpha = mirt__weight_add(layer, "alpha", &shape, &d->alpha_initializer, mirt_zeros(), &d->alpha_regularizer);
    mirt_tensor *negative = mirt__unary_op(MIRT__ACT_RELU, mirt__unary_op(MIRT__NEGATIVE, x, 0, 0), 0, 0);
    return mirt__binary_op(MIRT__SUBTRACT, mirt__unary_op(MIRT__ACT_RELU, x, 0, 0), mirt__binary_op(MIRT__MULTIPLY, negative, alpha));
}

static const mirt__field mirt__activation_fields[] = {MIRT__FIELD(mirt__activation_desc, "activation", ACTIVATION, activation)};
static const mirt__field mirt__leaky_relu_fields[] = {MIRT__FIELD(mirt__slope_desc, "negative_slope", FLOAT, slope)};
static const mirt__field mirt__elu_fields[] = {MIRT__FIELD(mirt__slope_desc, "alpha", FLOAT, slope)};
static const mirt__field mirt__relu_fields[] = {MIRT__FIELD(mirt_relu_desc, "max_value", FLOAT, max_value),
                                                MIRT__FIELD(mirt_relu_desc, "negative_slope", FLOAT, negative_slope),
                                                MIRT__FIELD(mirt_relu_desc, "threshold", FLOAT, threshold)};
static const mirt__field mirt__prelu_fields[] = {MIRT__FIELD(mirt_prelu_desc, "alpha_initializer", INITIALIZER, alpha_initializer),
                                                 MIRT__FIELD(mirt_prelu_desc, "alpha_regularizer", REGULARIZER, alpha_regularizer),
                                                 MIRT__FIELD(mirt_prelu_desc, "shared_axes", INT, shared_axes)};

MIRT__LAYER(activation, "Activation", "activation", 1, 1, mirt__activation_fields, mirt__activation_desc);
MIRT__LAYER(leaky_relu, "LeakyReLU", "leaky_re_lu", 1, 1, mirt__leaky_relu_fields, mirt__slope_desc);
MIRT__LAYER(elu, "ELU", "elu", 1, 1, mirt__elu_fields, mirt__slope_desc);
MIRT__PLAIN_LAYER(softmax, "Softmax", "softmax", 1, 1);
MIRT__LAYER(relu, "ReLU", "re_lu", 1, 1, mirt__relu_fields, mirt_relu_desc);
MIRT__LAYER(prelu, "PReLU", "p_re_lu", 1, 1, mirt__prelu_fields, mirt_prelu_desc);

MIRT_API mirt_tensor *mirt_activation(mirt_tensor *x, mirt_activation_kind kind) {
    mirt__activation_desc d;
    d.activation = kind;
    return mirt__layer_on(&mirt__activation_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_leaky_relu_layer(mirt_tensor *x, float slope) {
    mirt__slope_desc d;
    d.slope = slope;
    return mirt__layer_on(&mirt__leaky_relu_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_elu_layer(mirt_tensor *x, float alpha) {
    mirt__slope_desc d;
    d.slope = alpha;
    return mirt__layer_on(&mirt__elu_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_softmax_layer(mirt_tensor *x) { return mirt__layer_on(&mirt__softmax_layer, x, NULL, NULL); }

MIRT_API mirt_tensor *mirt_relu_layer(mirt_tensor *x, const mirt_relu_desc *desc) {
    return mirt__layer_on(&mirt__relu_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_prelu(mirt_tensor *x, const mirt_prelu_desc *desc) {
    return mirt__layer_on(&mirt__prelu_layer, x, desc, desc ? desc->name : NULL);
}

/* >>section nn/layers_conv.c */

/* Convolutions. */

/* Fills in the defaults and the attributes the ops read. */
static bool mirt__conv_settings(int kernel[2], int strides[2], int dilation[2], mirt_padding padding, const mirt_tensor *x, mirt__attrs *a) {
    mirt__default_pair(kernel, 0);
    mirt__default_pair(strides, 1);
    mirt__default_pair(dilation, 1);
    *a = mirt__no_attrs();
    for (int i = 0; i < 2; i++) {
        a->strides[i] = strides[i];
        a->dilation[i] = dilation[i];
    }
    a->groups = 1;
    a->padding = padding;
    if (kernel[0] < 1 || kernel[1] < 1) return mirt__fail(MIRT_E_INVALID, "kernel is %dx%d; it must be positive", kernel[0], kernel[1]), false;
    return mirt__layer_takes_images(x);
}

static bool mirt__conv_filters(int filters) {
    return filters > 0 || (mirt__fail(MIRT_E_INVALID, "filters is %d; it must be positive", filters), false);
}

static mirt_tensor *mirt__conv2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_conv2d_desc *d = (mirt_conv2d_desc *)desc;
    mirt__attrs a;
    if (!mirt__conv_filters(d->filters) || !mirt__conv_settings(d->kernel, d->strides, d->dilation, d->padding, x, &a)) return NULL;
    if (!d->groups) d->groups = 1;
    if (d->groups < 1 || x->shape.dim[3] % d->groups || d->filters % d->groups) {
        return mirt__fail(MIRT_E_SHAPE, "%lld input channels and %d filters do not divide into %d groups", (long long)x->shape.dim[3], d->filters, d->groups), (mirt_tensor *)NULL;
    }
    a.groups = d->groups;
    mirt_shape shape = mirt_make_shape(d->kernel[0], d->kernel[1], x->shape.dim[3] / d->groups, d->filters, 0, 0);
    mirt_tensor *kernel = mirt__weight_add(layer, "kernel", &shape, &d->kernel_initializer, mirt_glorot_uniform(), &d->kernel_regularizer);
    return mirt__bias_and_activation(layer, mirt__conv2d_op(x, kernel, &a), d->no_bias, &d->bias_initializer, &d->bias_regularizer, d->activation);
}

static mirt_tensor *mirt__conv2d_transpose_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_conv2d_desc *d = (mirt_conv2d_desc *)desc;
    mirt__attrs a;
    if (!mirt__conv_filters(d->filters) || !mirt__conv_settings(d->kernel, d->strides, d->dilation, d->padding, x, &a)) return NULL;
    if (!d->groups) d->groups = 1;
    if (d->groups != 1) return mirt__fail(MIRT_E_INVALID, "groups is %d; a transposed convolution has none", d->groups), (mirt_tensor *)NULL;
    mirt_shape shape = mirt_make_shape(d->kernel[0], d->kernel[1], d->filters, x->shape.dim[3], 0, 0);
    mirt_tensor *kernel = mirt__weight_add(layer, "kernel", &shape, &d->kernel_initializer, mirt_glorot_uniform(), &d->kernel_regularizer);
    return mirt__bias_and_activation(layer, mirt__conv2d_transpose_op(x, kernel, &a), d->no_bias, &d->bias_initializer, &d->bias_regularizer, d->activation);
}

/* The depthwise part of either: a weight `name`. */
static mirt_tensor *mirt__depthwise(mirt__layer *layer, mirt_tensor *x, const char *name, mirt_depthwise_conv2d_desc *d) {
    mirt__attrs a;
    if (!mirt__conv_settings(d->kernel, d->strides, d->dilation, d->padding, x, &a)) return NULL;
    if (!d->depth_multiplier) d->depth_multiplier = 1;
    if (d->depth_multiplier < 0) return mirt__fail(MIRT_E_INVALID, "depth_multiplier is %d; it must be positive", d->depth_multiplier), (mirt_tensor *)NULL;
    mirt_shape shape = mirt_make_shape(d->kernel[0], d->kernel[1], x->shape.dim[3], d->depth_multiplier, 0, 0);
    mirt_tensor *kernel = mirt__weight_add(layer, name, &shape, &d->depthwise_initializer, mirt_glorot_uniform(), &d->depthwise_regularizer);
    return mirt__depthwise_conv2d_op(x, kernel, &a);
}

static mirt_tensor *mirt__depthwise_conv2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_depthwise_conv2d_desc *d = (mirt_depthwise_conv2d_desc *)desc;
    return mirt__bias_and_activation(layer, mirt__depthwise(layer, x, "kernel", d), d->no_bias, &d->bias_initializer, &d->bias_regularizer, d->activation);
}

static mirt_tensor *mirt__separable_conv2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_separable_conv2d_desc *d = (mirt_separable_conv2d_desc *)desc;
    mirt__attrs a = mirt__no_attrs();
    a.strides[0] = a.strides[1] = a.dilation[0] = a.dilation[1] = a.groups = 1;
    if (!mirt__conv_filters(d->filters) || !(x = mirt__depthwise(layer, x, "depthwise_kernel", &d->depthwise))) return NULL;
    mirt_shape shape = mirt_make_shape(1, 1, x->shape.dim[3], d->filters, 0, 0);
    mirt_tensor *kernel = mirt__weight_add(layer, "pointwise_kernel", &shape, &d->pointwise_initializer, mirt_glorot_uniform(), &d->pointwise_regularizer);
    x = mirt__conv2d_op(x, kernel, &a);
    return mirt__bias_and_activation(layer, x, d->depthwise.no_bias, &d->depthwise.bias_initializer, &d->depthwise.bias_regularizer, d->depthwise.activation);
}

static const mirt__field mirt__conv2d_fields[] = {
    MIRT__FIELD(mirt_conv2d_desc, "filters", INT, filters), MIRT__FIELD(mirt_conv2d_desc, "kernel_size", INT2, kernel),
    MIRT__FIELD(mirt_conv2d_desc, "strides", INT2, strides), MIRT__FIELD(mirt_conv2d_desc, "padding", PADDING, padding),
    MIRT__FIELD(mirt_conv2d_desc, "dilation_rate", INT2, dilation), MIRT__FIELD(mirt_conv2d_desc, "groups", INT, groups),
    MIRT__FIELD(mirt_conv2d_desc, "activation", ACTIVATION, activation), MIRT__FIELD(mirt_conv2d_desc, "use_bias", NO, no_bias),
    MIRT__FIELD(mirt_conv2d_desc, "kernel_initializer", INITIALIZER, kernel_initializer),
    MIRT__FIELD(mirt_conv2d_desc, "bias_initializer", INITIALIZER, bias_initializer),
    MIRT__FIELD(mirt_conv2d_desc, "kernel_regularizer", REGULARIZER, kernel_regularizer),
    MIRT__FIELD(mirt_conv2d_desc, "bias_regularizer", REGULARIZER, bias_regularizer)};

/* Of the description `type`, whose member `at` is (or, with nothing, which is) a mirt_depthwise_conv2d_desc. */
#define MIRT__DEPTHWISE_FIELDS(type, at) \
    MIRT__FIELD(type, "kernel_size", INT2, at kernel), MIRT__FIELD(type, "strides", INT2, at strides), MIRT__FIELD(type, "padding", PADDING, at padding), \
    MIRT__FIELD(type, "depth_multiplier", INT, at depth_multiplier), MIRT__FIELD(type, "dilation_rate", INT2, at dilation), \
    MIRT__FIELD(type, "activation", ACTIVATION, at activation), MIRT__FIELD(type, "use_bias", NO, at no_bias), \
    MIRT__FIELD(type, "depthwise_initializer", INITIALIZER, at depthwise_initializer), MIRT__FIELD(type, "bias_initializer", INITIALIZER, at bias_initializer), \
    MIRT__FIELD(type, "depthwise_regularizer", REGULARIZER, at depthwise_regularizer), MIRT__FIELD(type, "bias_regularizer", REGULARIZER, at bias_regularizer)
static const mirt__field mirt__depthwise_conv2d_fields[] = {MIRT__DEPTHWISE_FIELDS(mirt_depthwise_conv2d_desc, )};
static const mirt__field mirt__separable_conv2d_fields[] = {
    MIRT__FIELD(mirt_separable_conv2d_desc, "filters", INT, filters), MIRT__DEPTHWISE_FIELDS(mirt_separable_conv2d_desc, depthwise.),
    MIRT__FIELD(mirt_separable_conv2d_desc, "pointwise_initializer", INITIALIZER, pointwise_initializer),
    MIRT__FIELD(mirt_separable_conv2d_desc, "pointwise_regularizer", REGULARIZER, pointwise_regularizer)};
#undef MIRT__DEPTHWISE_FIELDS

MIRT__LAYER(conv2d, "Conv2D", "conv2d", 1, 1, mirt__conv2d_fields, mirt_conv2d_desc);
MIRT__LAYER(conv2d_transpose, "Conv2DTranspose", "conv2d_transpose", 1, 1, mirt__conv2d_fields, mirt_conv2d_desc);
MIRT__LAYER(depthwise_conv2d, "DepthwiseConv2D", "depthwise_conv2d", 1, 1, mirt__depthwise_conv2d_fields, mirt_depthwise_conv2d_desc);
MIRT__LAYER(separable_conv2d, "SeparableConv2D", "separable_conv2d", 1, 1, mirt__separable_conv2d_fields, mirt_separable_conv2d_desc);

MIRT_API mirt_tensor *mirt_conv2d(mirt_tensor *x, const mirt_conv2d_desc *desc) {
    return mirt__layer_needs_desc(&mirt__conv2d_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_conv2d_transpose(mirt_tensor *x, const mirt_conv2d_desc *desc) {
    return mirt__layer_needs_desc(&mirt__conv2d_transpose_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_depthwise_conv2d(mirt_tensor *x, const mirt_depthwise_conv2d_desc *desc) {
    return mirt__layer_needs_desc(&mirt__depthwise_conv2d_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_separable_conv2d(mirt_tensor *x, const mirt_separable_conv2d_desc *desc) {
    return mirt__layer_needs_desc(&mirt__separable_conv2d_layer, x, desc, desc ? desc->depthwise.name : NULL);
}

/* >>section nn/layers_image.c */

/* Layers that change the size of images. */

typedef struct mirt__border_desc { int border[2][2]; } mirt__border_desc; /* top, bottom; left, right */

static void mirt__pool_attrs(mirt_pool2d_desc *d, mirt__attrs *a) {
    mirt__default_pair(d->size, 2);
    if (!d->strides[0] && !d->strides[1]) d->strides[1] = d->size[1];
    mirt__default_pair(d->strides, d->size[0]);
    *a = mirt__no_attrs();
    for (int i = 0; i < 2; i++) {
        a->kernel[i] = d->size[i];
        a->strides[i] = d->strides[i];
    }
    a->padding = d->padding;
}

static mirt_tensor *mirt__max_pool2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt__attrs a;
    (void)layer;
    mirt__pool_attrs((mirt_pool2d_desc *)desc, &a);
    return mirt__max_pool2d_op(x, &a);
}

static mirt_tensor *mirt__average_pool2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt__attrs a;
    (void)layer;
    mirt__pool_attrs((mirt_pool2d_desc *)desc, &a);
    return mirt__average_pool2d_op(x, &a);
}

static mirt_tensor *mirt__global_pool(mirt__reduce_kind kind, mirt_tensor *x, const void *desc) {
    return mirt__layer_takes_images(x) ? mirt__reduce_op(kind, x, 6u, ((const mirt_global_pool2d_desc *)desc)->keepdims) : NULL;
}

static mirt_tensor *mirt__global_average_pool2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    return mirt__global_pool(MIRT__REDUCE_MEAN, x, desc);
}

static mirt_tensor *mirt__global_max_pool2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    return mirt__global_pool(MIRT__REDUCE_MAX, x, desc);
}

static mirt_tensor *mirt__zero_padding2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt__border_desc *d = (const mirt__border_desc *)desc;
    const int64_t before[4] = {0, d->border[0][0], d->border[1][0], 0}, after[4] = {0, d->border[0][1], d->border[1][1], 0};
    (void)layer;
    return mirt__layer_takes_images(x) ? mirt_pad(x, before, after, 0) : NULL;
}

static mirt_tensor *mirt__cropping2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt__border_desc *d = (const mirt__border_desc *)desc;
    int64_t begin[4] = {0, d->border[0][0], d->border[1][0], 0}, size[4] = {-1, 0, 0, -1};
    (void)layer;
    if (!mirt__layer_takes_images(x)) return NULL;
    for (int i = 0; i < 2; i++) {
        size[1 + i] = x->shape.dim[1 + i] - d->border[i][0] - d->border[i][1];
        if (d->border[i][0] >= 0 && d->border[i][1] >= 0 && size[1 + i] > 0) continue;
        return mirt__fail(MIRT_E_SHAPE, "cropping %lld pixels by %d and %d leaves nothing, or less than nothing is cropped", (long long)x->shape.dim[1 + i],
                          d->border[i][0], d->border[i][1]), (mirt_tensor *)NULL;
    }
    return mirt_slice(x, begin, size);
}

static mirt_tensor *mirt__up_sampling2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_up_sampling2d_desc *d = (mirt_up_sampling2d_desc *)desc;
    (void)layer;
    mirt__default_pair(d->size, 2);
    if (d->size[0] < 1 || d->size[1] < 1) return mirt__fail(MIRT_E_INVALID, "size is %dx%d; it must be positive", d->size[0], d->size[1]), (mirt_tensor *)NULL;
    return mirt__layer_takes_images(x) ? mirt__upsampling2d_op(x, d->size, d->bilinear) : NULL;
}

static const mirt__field mirt__pool_fields[] = {MIRT__FIELD(mirt_pool2d_desc, "pool_size", INT2, size),
                                                MIRT__FIELD(mirt_pool2d_desc, "strides", INT2, strides),
                                                MIRT__FIELD(mirt_pool2d_desc, "padding", PADDING, padding)};
static const mirt__field mirt__global_pool_fields[] = {MIRT__FIELD(mirt_global_pool2d_desc, "keepdims", BOOL, keepdims)};
static const mirt__field mirt__zero_padding_fields[] = {MIRT__FIELD(mirt__border_desc, "padding", INT2X2, border)};
static const mirt__field mirt__cropping_fields[] = {MIRT__FIELD(mirt__border_desc, "cropping", INT2X2, border)};
static const mirt__field mirt__up_sampling_fields[] = {MIRT__FIELD(mirt_up_sampling2d_desc, "size", INT2, size),
                                                       MIRT__FIELD(mirt_up_sampling2d_desc, "bilinear", BOOL, bilinear)};

MIRT__LAYER(max_pool2d, "MaxPooling2D", "max_pooling2d", 1, 1, mirt__pool_fields, mirt_pool2d_desc);
MIRT__LAYER(average_pool2d, "AveragePooling2D", "average_pooling2d", 1, 1, mirt__pool_fields, mirt_pool2d_desc);
MIRT__LAYER(global_average_pool2d, "GlobalAveragePooling2D", "global_average_pooling2d", 1, 1, mirt__global_pool_fields, mirt_global_pool2d_desc);
MIRT__LAYER(global_max_pool2d, "GlobalMaxPooling2D", "global_max_pooling2d", 1, 1, mirt__global_pool_fields, mirt_global_pool2d_desc);
MIRT__LAYER(zero_padding2d, "ZeroPadding2D", "zero_padding2d", 1, 1, mirt__zero_padding_fields, mirt__border_desc);
MIRT__LAYER(cropping2d, "Cropping2D", "cropping2d", 1, 1, mirt__cropping_fields, mirt__border_desc);
MIRT__LAYER(up_sampling2d, "UpSampling2D", "up_sampling2d", 1, 1, mirt__up_sampling_fields, mirt_up_sampling2d_desc);

MIRT_API mirt_tensor *mirt_max_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc) {
    return mirt__layer_on(&mirt__max_pool2d_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_average_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc) {
    return mirt__layer_on(&mirt__average_pool2d_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_global_average_pool2d(mirt_tensor *x) { return mirt__layer_on(&mirt__global_average_pool2d_layer, x, NULL, NULL); }
MIRT_API mirt_tensor *mirt_global_max_pool2d(mirt_tensor *x) { return mirt__layer_on(&mirt__global_max_pool2d_layer, x, NULL, NULL); }

MIRT_API mirt_tensor *mirt_global_pool2d(mirt_tensor *x, const mirt_global_pool2d_desc *desc) {
    return mirt__layer_on(desc && desc->max ? &mirt__global_max_pool2d_layer : &mirt__global_average_pool2d_layer, x, desc, desc ? desc->name : NULL);
}

static mirt_tensor *mirt__border_layer(const mirt__layer_class *cls, mirt_tensor *x, int top, int bottom, int left, int right) {
    mirt__border_desc d;
    d.border[0][0] = top;
    d.border[0][1] = bottom;
    d.border[1][0] = left;
    d.border[1][1] = right;
    return mirt__layer_on(cls, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_zero_padding2d(mirt_tensor *x, int top, int bottom, int left, int right) {
    return mirt__border_layer(&mirt__zero_padding2d_layer, x, top, bottom, left, right);
}

MIRT_API mirt_tensor *mirt_cropping2d(mirt_tensor *x, int top, int bottom, int left, int right) {
    return mirt__border_layer(&mirt__cropping2d_layer, x, top, bottom, left, right);
}

MIRT_API mirt_tensor *mirt_up_sampling2d(mirt_tensor *x, const mirt_up_sampling2d_desc *desc) {
    return mirt__layer_on(&mirt__up_sampling2d_layer, x, desc, desc ? desc->name : NULL);
}

/* >>section nn/layers_norm.c */

/* Batch and layer normalization. */

/* gamma or beta, or NULL when the layer has none; *ok: no error. */
static mirt_tensor *mirt__norm_weight(mirt__layer *layer, const char *name, const mirt_shape *shape, bool none, mirt_initializer *initializer,
                                      mirt_initializer fallback, const mirt_regularizer *regularizer, bool *ok) {
    mirt__default_initializer(initializer, fallback);
    if (none || !*ok) return NULL;
    mirt_tensor *w = mirt__weight_add(layer, name, shape, initializer, fallback, regularizer);
    *ok = w != NULL;
    return w;
}

static mirt_tensor *mirt__batch_norm_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_batch_norm_desc *d = (mirt_batch_norm_desc *)desc;
    mirt_shape shape = mirt_make_shape(mirt__last_dim(x), 0, 0, 0, 0, 0);
    mirt__attrs a = mirt__no_attrs();
    mirt_tensor *in[5] = {x, NULL, NULL, NULL, NULL};
    bool good = true;
    if (x->shape.rank < 2) return mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., channels)"), (mirt_tensor *)NULL;
    if (d->momentum == 0) d->momentum = 0.99f;
    if (d->epsilon == 0) d->epsilon = 1e-3f;
    a.gamma = !d->no_scale;
    a.beta = !d->no_center;
    a.epsilon = d->epsilon;
    a.momentum = round((double)d->momentum * 1e7) / 1e7; /* 0.99, not the float next to it */
    a.synchronized = d->synchronized;
    mirt_tensor *gamma = mirt__norm_weight(layer, "gamma", &shape, d->no_scale, &d->gamma_initializer, mirt_ones(), &d->gamma_regularizer, &good);
    mirt_tensor *beta = mirt__norm_weight(layer, "beta", &shape, d->no_center, &d->beta_initializer, mirt_zeros(), &d->beta_regularizer, &good);
    mirt__default_initializer(&d->moving_mean_initializer, mirt_zeros());
    mirt__default_initializer(&d->moving_variance_initializer, mirt_ones());
    if (good) in[1] = mirt__variable_add(layer, "moving_mean", &shape, &d->moving_mean_initializer, false);
    if (in[1]) in[2] = mirt__variable_add(layer, "moving_variance", &shape, &d->moving_variance_initializer, false);
    in[3] = gamma ? gamma : beta;
    in[4] = beta;
    return in[2] ? mirt__batch_norm_op(in, &a) : NULL;
}

static mirt_tensor *mirt__layer_norm_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_layer_norm_desc *d = (mirt_layer_norm_desc *)desc;
    mirt__attrs a = mirt__no_attrs();
    mirt_shape shape;
    bool good = true;
    memset(&shape, 0, sizeof shape);
    if (!d->axes) d->axes = 1;
    if (d->epsilon == 0) d->epsilon = 1e-3f;
    if (d->axes < 0 || d->axes > x->shape.rank - mirt__is_batched(&x->shape)) {
        return mirt__fail(MIRT_E_SHAPE, "axes is %d; an input of %d axes beside its rows has no such last axes", d->axes, x->shape.rank - mirt__is_batched(&x->shape)), (mirt_tensor *)NULL;
    }
    if (!(d->epsilon > 0 && isfinite(d->epsilon))) return mirt__fail(MIRT_E_INVALID, "epsilon is %g; it must not be below 0", (double)d->epsilon), (mirt_tensor *)NULL;
    a.last_axes = shape.rank = d->axes;
    a.epsilon = d->epsilon;
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = x->shape.dim[x->shape.rank - shape.rank + i];
    mirt_tensor *gamma = mirt__norm_weight(layer, "gamma", &shape, d->no_scale, &d->gamma_initializer, mirt_ones(), &d->gamma_regularizer, &good);
    mirt_tensor *beta = mirt__norm_weight(layer, "beta", &shape, d->no_center, &d->beta_initializer, mirt_zeros(), &d->beta_regularizer, &good);
    return good ? mirt__layer_norm_op(x, gamma, beta, &a) : NULL;
}

static const mirt__field mirt__batch_norm_fields[] = {MIRT__FIELD(mirt_batch_norm_desc, "momentum", FLOAT, momentum),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "epsilon", FLOAT, epsilon),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "center", NO, no_center),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "scale", NO, no_scale),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "beta_initializer", INITIALIZER, beta_initializer),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "gamma_initializer", INITIALIZER, gamma_initializer),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "moving_mean_initializer", INITIALIZER, moving_mean_initializer),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "moving_variance_initializer", INITIALIZER, moving_variance_initializer),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "beta_regularizer", REGULARIZER, beta_regularizer),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "gamma_regularizer", REGULARIZER, gamma_regularizer),
                                                      MIRT__FIELD(mirt_batch_norm_desc, "synchronized", BOOL, synchronized)};
static const mirt__field mirt__layer_norm_fields[] = {MIRT__FIELD(mirt_layer_norm_desc, "axes", INT, axes),
                                                      MIRT__FIELD(mirt_layer_norm_desc, "epsilon", FLOAT, epsilon),
                                                      MIRT__FIELD(mirt_layer_norm_desc, "center", NO, no_center),
                                                      MIRT__FIELD(mirt_layer_norm_desc, "scale", NO, no_scale),
                                                      MIRT__FIELD(mirt_layer_norm_desc, "beta_initializer", INITIALIZER, beta_initializer),
                                                      MIRT__FIELD(mirt_layer_norm_desc, "gamma_initializer", INITIALIZER, gamma_initializer),
                                                      MIRT__FIELD(mirt_layer_norm_desc, "beta_regularizer", REGULARIZER, beta_regularizer),
                                                      MIRT__FIELD(mirt_layer_norm_desc, "gamma_regularizer", REGULARIZER, gamma_regularizer)};

MIRT__LAYER(batch_norm, "BatchNormalization", "batch_normalization", 1, 1, mirt__batch_norm_fields, mirt_batch_norm_desc);
MIRT__LAYER(layer_norm, "LayerNormalization", "layer_normalization", 1, 1, mirt__layer_norm_fields, mirt_layer_norm_desc);

MIRT_API mirt_tensor *mirt_batch_norm(mirt_tensor *x, const mirt_batch_norm_desc *desc) {
    return mirt__layer_on(&mirt__batch_norm_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_layer_norm(mirt_tensor *x, const mirt_layer_norm_desc *desc) {
    return mirt__layer_on(&mirt__layer_norm_layer, x, desc, desc ? desc->name : NULL);
}

/* >>section nn/layers_merge.c */

/* Layers that join tensors. */

typedef struct mirt__axis_desc { int axis; } mirt__axis_desc;

/* ((in[0] op in[1]) op in[2]) ... */
static mirt_tensor *mirt__merge(mirt__layer *layer, mirt__binary_kind kind) {
    mirt_tensor *y = layer->in[0];
    for (int i = 1; i < layer->num_in; i++) y = mirt__binary_op(kind, y, layer->in[i]);
    return y;
}

#define MIRT__MERGE(name, kind, class_name, min_in, max_in) \
    static mirt_tensor *mirt__##name##_build(mirt__layer *layer, mirt_tensor *x, void *desc) { \
        (void)x; \
        (void)desc; \
        return mirt__merge(layer, kind); \
    } \
    MIRT__PLAIN_LAYER(name, class_name, #name, min_in, max_in); \
    MIRT_API mirt_tensor *mirt_##name##_layer(mirt_tensor *const *in, int count) { return mirt__layer_add(NULL, &mirt__##name##_layer, in, count, NULL, NULL); }

MIRT__MERGE(add, MIRT__ADD, "Add", 1, MIRT__MAX_IN)
MIRT__MERGE(subtract, MIRT__SUBTRACT, "Subtract", 2, 2)
MIRT__MERGE(multiply, MIRT__MULTIPLY, "Multiply", 1, MIRT__MAX_IN)
MIRT__MERGE(maximum, MIRT__MAXIMUM, "Maximum", 1, MIRT__MAX_IN)
MIRT__MERGE(minimum, MIRT__MINIMUM, "Minimum", 1, MIRT__MAX_IN)
#undef MIRT__MERGE

static mirt_tensor *mirt__average_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)x;
    (void)desc;
    return mirt__unary_op(MIRT__AFFINE, mirt__merge(layer, MIRT__ADD), 1.0f / (float)layer->num_in, 0);
}

MIRT__PLAIN_LAYER(average, "Average", "average", 1, MIRT__MAX_IN);

MIRT_API mirt_tensor *mirt_average_layer(mirt_tensor *const *in, int count) { return mirt__layer_add(NULL, &mirt__average_layer, in, count, NULL, NULL); }

static mirt_tensor *mirt__concatenate_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)x;
    return mirt_concat(layer->in, layer->num_in, ((const mirt__axis_desc *)desc)->axis);
}

static const mirt__field mirt__concatenate_fields[] = {MIRT__FIELD(mirt__axis_desc, "axis", SIGNED, axis)};
MIRT__LAYER(concatenate, "Concatenate", "concatenate", 1, MIRT__MAX_IN, mirt__concatenate_fields, mirt__axis_desc);

MIRT_API mirt_tensor *mirt_concatenate(mirt_tensor *const *in, int count, int axis) {
    mirt__axis_desc d;
    d.axis = axis;
    return mirt__layer_add(NULL, &mirt__concatenate_layer, in, count, &d, NULL);
}

/* >>section nn/layers.c */

/* Adding layers and their variables to a model. */

/* Names end up in files, and a search for a free or taken name looks at every layer. */
#define MIRT__NAME_BYTES 200
#define MIRT__MAX_LAYERS 10000

MIRT__LIB void mirt__default_initializer(mirt_initializer *i, mirt_initializer fallback) {
    if (i->kind == MIRT_INIT_DEFAULT) *i = fallback;
}

MIRT__LIB void mirt__default_pair(int pair[2], int fallback) {
    if (!pair[0]) pair[0] = fallback;
    if (!pair[1]) pair[1] = pair[0];
}

MIRT__LIB bool mirt__layer_takes_images(const mirt_tensor *x) {
    char text[96];
    if (x->shape.rank == 4) return true;
    return mirt__fail(MIRT_E_SHAPE, "takes (rows, height, width, channels), not %s", mirt__shape_text(&x->shape, text)), false;
}

/* l1 * sum |w| + l2 * sum w^2 as a term of the loss. */
static bool mirt__regularize(mirt__layer *layer, mirt_tensor *w, const mirt_regularizer *r) {
    unsigned all = w ? (1u << w->shape.rank) - 1 : 0;
    mirt_tensor *l1 = NULL, *l2 = NULL;
    if (!w) return false;
    if (!(r->l1 >= 0 && r->l2 >= 0 && isfinite(r->l1) && isfinite(r->l2))) {
        return mirt__fail(MIRT_E_INVALID, "a regularizer's numbers are %g and %g; they must be finite and not negative", (double)r->l1, (double)r->l2), false;
    }
    if (r->l1 != 0) l1 = mirt__unary_op(MIRT__AFFINE, mirt__reduce_op(MIRT__REDUCE_SUM, mirt__unary_op(MIRT__ABS, w, 0, 0), all, false), r->l1, 0);
    if (r->l2 != 0) l2 = mirt__unary_op(MIRT__AFFINE, mirt__reduce_op(MIRT__REDUCE_SUM, mirt__unary_op(MIRT__SQUARE, w, 0, 0), all, false), r->l2, 0);
    if ((r->l1 != 0 && !l1) || (r->l2 != 0 && !l2)) return false;
    if (!l1 && !l2) return true;
    return mirt__term_add(layer->model, l1 && l2 ? mirt__binary_op(MIRT__ADD, l1, l2) : l1 ? l1 : l2);
}

MIRT__LIB mirt_tensor *mirt__weight_add(mirt__layer *layer, const char *name, const mirt_shape *shape, mirt_initializer *initializer,
                                        mirt_initializer fallback, const mirt_regularizer *regularizer) {
    mirt__default_initializer(initializer, fallback);
    mirt_tensor *w = mirt__variable_add(layer, name, shape, initializer, true);
    return mirt__regularize(layer, w, regularizer) ? w : NULL;
}

MIRT__LIB mirt_tensor *mirt__bias_and_activation(mirt__layer *layer, mirt_tensor *x, bool no_bias, mirt_initializer *initializer,
                                                 const mirt_regularizer *regularizer, mirt_activation_kind activation) {
    mirt__default_initializer(initializer, mirt_zeros());
    if (x && !no_bias) {
        mirt_shape shape = mirt_make_shape(mirt__last_dim(x), 0, 0, 0, 0, 0);
        x = mirt__bias_add_op(x, mirt__weight_add(layer, "bias", &shape, initializer, mirt_zeros(), regularizer));
    }
    return mirt__activation_op(activation, x);
}

/* Among the layers of the model, or those inside of the layer being built. */
static bool mirt__layer_name_taken(const mirt_model *model, const char *name) {
    const mirt__layer *parent = model->building;
    for (const mirt__layer *l = parent ? parent->children : NULL; l; l = l->sibling) {
        if (strcmp(l->name, name) == 0) return true;
    }
    for (int i = 0; !parent && i < model->num_layers; i++) {
        if (strcmp(model->layer[i]->name, name) == 0) return true;
    }
    return false;
}

static bool mirt__layer_name_check(const char *name) {
    char label[MIRT__JSON_LABEL];
    size_t size = strlen(name);
    if (size > 0 && size <= MIRT__NAME_BYTES && !strchr(name, '/') && mirt__utf8_valid(name, size)) return true;
    return mirt__fail(MIRT_E_INVALID, "layer name \"%s\": it must be 1 to %d bytes of UTF-8 without a '/'", mirt__json_label(name, label), MIRT__NAME_BYTES), false;
}

/* `name`, or the first of "conv2d", "conv2d_1", ... that is free; behind "parent/" inside of a layer. */
static const char *mirt__layer_name(mirt_model *model, const char *base, const char *name) {
    const mirt__layer *parent = model->building;
    char full[2 * MIRT__NAME_BYTES + 16], label[MIRT__JSON_LABEL];
    if (name && !mirt__layer_name_check(name)) return NULL;
    int size = snprintf(full, sizeof full, "%s%s%s", parent ? parent->name : "", parent ? "/" : "", name ? name : base);
    for (int i = 1; !name && mirt__layer_name_taken(model, full); i++) snprintf(full + size, sizeof full - (size_t)size, "_%d", i);
    if (strlen(full) > MIRT__NAME_BYTES) return mirt__fail(MIRT_E_INVALID, "layer name \"%s\" is too long", mirt__json_label(full, label)), (const char *)NULL;
    if (name && mirt__layer_name_taken(model, full)) return mirt__fail(MIRT_E_INVALID, "there already is a layer \"%s\"", mirt__json_label(full, label)), (const char *)NULL;
    return mirt__pool_strdup(&model->graph.pool, full);
}

static mirt__layer *mirt__layer_new(mirt_model *model, const mirt__layer_class *cls, const void *desc, const char *name) {
    mirt__pool *pool = &model->graph.pool;
    if (model->num_layers == MIRT__MAX_LAYERS) return mirt__fail(MIRT_E_INVALID, "a model has at most %d layers", MIRT__MAX_LAYERS), (mirt__layer *)NULL;
    const char *full = mirt__layer_name(model, cls->base_name, name ? name : model->next_name);
    model->next_name = NULL;
    mirt__layer *layer = full ? (mirt__layer *)mirt__pool_alloc(pool, sizeof *layer) : NULL;
    if (!layer || !(layer->desc = (char *)mirt__pool_alloc(pool, cls->desc_size))) return NULL;
    layer->cls = cls;
    layer->model = model;
    layer->name = full;
    layer->parent = model->building;
    layer->first_variable = model->num_variables;
    layer->first_node = model->graph.count;
    layer->first_term = model->num_terms;
    if (desc) memcpy(layer->desc, desc, cls->desc_size);
    if (model->num_layers == model->layer_capacity) {
        int capacity = model->layer_capacity ? 2 * model->layer_capacity : 16;
        if (!mirt__grow((void **)&model->layer, (size_t)model->num_layers, (size_t)capacity, sizeof *model->layer)) return NULL;
        model->layer_capacity = capacity;
    }
    return layer;
}

static bool mirt__layer_inputs(mirt__layer *layer, mirt_tensor *const *in, int num_in) {
    const mirt__layer_class *cls = layer->cls;
    if (num_in < cls->min_in || num_in > cls->max_in) {
        return mirt__fail(MIRT_E_INVALID, "takes %d%s tensors, not %d", cls->min_in, cls->max_in > cls->min_in ? " or more" : "", num_in), false;
    }
    for (int i = 0; i < num_in; i++) {
        if (!in[i]) return mirt__fail(MIRT_E_INVALID, "tensor number %d of %d is NULL", i + 1, num_in), false;
        if (in[i]->node->graph != &layer->model->graph) return mirt__fail(MIRT_E_INVALID, "one of its tensors is of another model"), false;
        layer->in[i] = in[i];
    }
    layer->num_in = num_in;
    return true;
}

MIRT__LIB mirt_tensor *mirt__layer_add(mirt_model *model, const mirt__layer_class *cls, mirt_tensor *const *in, int num_in, const void *desc, const char *name) {
    if (num_in > 0 && !in) return mirt__fail(MIRT_E_INVALID, "%s: no tensors", cls->base_name), (mirt_tensor *)NULL;
    for (int i = 0; !model && i < num_in && i < MIRT__MAX_IN; i++) {
        if (!in[i]) continue;
        model = in[i]->node->graph->model;
        if (!model) return mirt__fail(MIRT_E_INVALID, "%s: layers belong to models; here only operations are possible", cls->base_name), mirt__graph_poison(in[i]->node->graph), (mirt_tensor *)NULL;
    }
    if (!model || model->graph.status != MIRT_OK) return NULL;
    if (model->weight[0]) { /* the model is complete and stays usable, so it is not marked */
        return mirt__fail(MIRT_E_STATE, "%s has its weights already; layers come before mirt_compile and before weights are read or set", model->name), (mirt_tensor *)NULL;
    }
    mirt__layer *layer = mirt__layer_new(model, cls, desc, name);
    if (!layer) return mirt__model_poison(model);
    model->building = layer;
    model->graph.scope = layer->name;
    mirt_tensor *out = mirt__layer_inputs(layer, in, num_in) ? cls->build(layer, layer->in[0], layer->desc) : NULL;
    model->building = layer->parent;
    model->graph.scope = layer->parent ? layer->parent->name : NULL;
    if (!out) {
        if (model->graph.status == MIRT_OK && mirt_last_status() != MIRT_E_NOMEM) mirt__fail_at("%s", layer->name);
        return mirt__model_poison(model);
    }
    layer->out[0] = out;
    if (!layer->num_out) layer->num_out = 1;
    layer->num_variables = model->num_variables - layer->first_variable;
    layer->num_nodes = model->graph.count - layer->first_node;
    layer->num_terms = model->num_terms - layer->first_term;
    if (layer->parent) {
        layer->sibling = layer->parent->children;
        layer->parent->children = layer;
    } else {
        model->layer[model->num_layers++] = layer;
    }
    return out;
}

MIRT_API void mirt_next_name(mirt_model *model, const char *name) {
    if (!model) return;
    model->next_name = name ? mirt__pool_strdup(&model->graph.pool, name) : NULL;
    if (name && !model->next_name) mirt__model_poison(model);
}

/* Keras's compute_fans. */
static void mirt__fans(mirt__variable *v) {
    const mirt_shape *s = &v->shape;
    double window = 1;
    for (int i = 0; i < s->rank - 2; i++) window *= (double)s->dim[i];
    v->fan_out = s->rank ? window * (double)s->dim[s->rank - 1] : 1;
    v->fan_in = s->rank > 1 ? window * (double)s->dim[s->rank - 2] : v->fan_out;
}

MIRT__LIB mirt_tensor *mirt__variable_add(mirt__layer *layer, const char *name, const mirt_shape *shape, const mirt_initializer *initializer, bool trainable) {
    mirt_model *model = layer->model;
    char full[2 * MIRT__NAME_BYTES + 16], text[96];
    size_t bytes;
    int64_t count = mirt__shape_count(shape);
    if (mirt__initializer_check(initializer) != MIRT_OK) return NULL;
    if (count < 0 || !mirt__mul_size((size_t)count, sizeof(mirt__real), &bytes) || !mirt__add_size(bytes, MIRT__ALIGN, &bytes) ||
        !mirt__add_size(bytes, model->weight_bytes, &bytes)) {
        return mirt__fail(MIRT_E_SHAPE, "a %s of %s has too many elements", name, mirt__shape_text(shape, text)), (mirt_tensor *)NULL;
    }
    if (model->num_variables == model->variable_capacity) {
        int capacity = model->variable_capacity ? 2 * model->variable_capacity : 16;
        if (!mirt__grow((void **)&model->variable, (size_t)model->num_variables, (size_t)capacity, sizeof *model->variable)) return NULL;
        model->variable_capacity = capacity;
    }
    mirt__variable *v = &model->variable[model->num_variables];
    memset(v, 0, sizeof *v);
    snprintf(full, sizeof full, "%s/%s", layer->name, name);
    v->name = mirt__pool_strdup(&model->graph.pool, full);
    if (!v->name) return NULL;
    v->shape = *shape;
    v->count = count;
    v->offset = model->weight_bytes;
    v->trainable = trainable;
    v->initializer = *initializer;
    mirt__fans(v);
    model->weight_bytes = mirt__align_up(v->offset + (size_t)count * sizeof(mirt__real));
    return mirt__variable_op(&model->graph, model->num_variables++, shape);
}

MIRT__LIB bool mirt__term_add(mirt_model *model, mirt_tensor *term) {
    if (!term) return false;
    if (model->num_terms == model->term_capacity) {
        int capacity = model->term_capacity ? 2 * model->term_capacity : 16;
        if (!mirt__grow((void **)&model->term, (size_t)model->num_terms, (size_t)capacity, sizeof *model->term)) return mirt__model_poison(model) != NULL;
        model->term_capacity = capacity;
    }
    model->term[model->num_terms++] = term;
    return true;
}

#undef MIRT__NAME_BYTES
#undef MIRT__MAX_LAYERS

MIRT__LIB const mirt__layer_class *mirt__layer_class_by_name(const mirt_strategy *strategy, const char *class_name) {
#define MIRT__LAYER_ADDRESS(name) &mirt__##name##_layer,
    static const mirt__layer_class *const table[] = {MIRT__LAYER_LIST(MIRT__LAYER_ADDRESS)};
#undef MIRT__LAYER_ADDRESS
    for (int i = 0; i < MIRT__COUNT(table); i++) {
        if (strcmp(table[i]->class_name, class_name) == 0) return table[i];
    }
    const mirt__layer_class *cls = strategy ? strategy->layer_classes : NULL;
    while (cls && strcmp(cls->class_name, class_name) != 0) cls = cls->next;
    return cls;
}

MIRT__LIB mirt_tensor *mirt__layer_on(const mirt__layer_class *cls, mirt_tensor *x, const void *desc, const char *name) {
    return x ? mirt__layer_add(NULL, cls, &x, 1, desc, name) : NULL;
}

MIRT__LIB mirt_tensor *mirt__layer_needs_desc(const mirt__layer_class *cls, mirt_tensor *x, const void *desc, const char *name) {
    if (!x || desc) return mirt__layer_on(cls, x, desc, name);
    mirt__fail(MIRT_E_INVALID, "%s needs a description", cls->base_name);
    mirt__graph_poison(x->node->graph);
    return NULL;
}

/* >>section nn/layers_custom.c */

/* User-defined layers. A class is copied into the strategy when it is registered or first used, where files find it. */

static mirt_tensor *mirt__custom_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt_layer_class *user = layer->cls->user;
    (void)x;
    mirt_tensor *y = user->build(layer, layer->in, layer->num_in, desc, user->user);
    if (layer->model->graph.status != MIRT_OK) return NULL;
    if (!y) return mirt__fail(MIRT_E_INVALID, "the build function of %s returned no tensor", user->class_name), (mirt_tensor *)NULL;
    if (y->node->graph == &layer->model->graph) return y;
    return mirt__fail(MIRT_E_INVALID, "the build function of %s returned a tensor of another model", user->class_name), (mirt_tensor *)NULL;
}

static size_t mirt__custom_field_size(mirt_field_kind kind) {
    switch (kind) {
    case MIRT_FIELD_INT: return sizeof(int);
    case MIRT_FIELD_FLOAT: return sizeof(float);
    case MIRT_FIELD_BOOL: return sizeof(bool);
    }
    return 0;
}

static mirt_status mirt__custom_check(const mirt_layer_class *c) {
    char label[MIRT__JSON_LABEL];
    if (!c || !c->class_name || !*c->class_name || strlen(c->class_name) > 100 || !mirt__utf8_valid(c->class_name, strlen(c->class_name))) {
        return mirt__fail(MIRT_E_INVALID, "a layer class needs a name of 1 to 100 bytes of UTF-8");
    }
    mirt__json_label(c->class_name, label);
    if (mirt__layer_class_by_name(NULL, c->class_name)) return mirt__fail(MIRT_E_INVALID, "there already is a layer class %s in the library", label);
    if (!c->build) return mirt__fail(MIRT_E_INVALID, "layer class %s has no build function", label);
    if (c->inputs < -1 || c->inputs > MIRT__MAX_IN) return mirt__fail(MIRT_E_INVALID, "layer class %s: %d inputs; at most %d are possible", label, c->inputs, MIRT__MAX_IN);
    if (c->num_fields < 0 || (c->num_fields && !c->fields)) return mirt__fail(MIRT_E_INVALID, "layer class %s: %d fields without a table of them", label, c->num_fields);
    for (int i = 0; i < c->num_fields; i++) {
        const mirt_field *f = &c->fields[i];
        size_t size = mirt__custom_field_size(f->kind);
        if (f->name && size && f->offset % size == 0 && size <= c->config_size && f->offset <= c->config_size - size) continue;
        return mirt__fail(MIRT_E_INVALID, "layer class %s: field number %d has no name, no kind, or lies outside of the %zu bytes of its config", label, i + 1, c->config_size);
    }
    return MIRT_OK;
}

static bool mirt__custom_same(const mirt_layer_class *a, const mirt_layer_class *b) {
    bool same = strcmp(a->class_name, b->class_name) == 0 && a->build == b->build && a->user == b->user && a->inputs == b->inputs &&
                a->config_size == b->config_size && a->num_fields == b->num_fields;
    for (int i = 0; same && i < a->num_fields; i++) {
        same = strcmp(a->fields[i].name, b->fields[i].name) == 0 && a->fields[i].kind == b->fields[i].kind && a->fields[i].offset == b->fields[i].offset;
    }
    return same;
}

/* As Keras makes "my_re_lu2d" of "MyReLU2D". */
static char *mirt__custom_base_name(mirt__pool *pool, const char *class_name) {
    char *out = (char *)mirt__pool_alloc(pool, 2 * strlen(class_name) + 8), *to = out;
    for (const char *c = class_name; out && *c; c++) {
        bool upper = *c >= 'A' && *c <= 'Z', lower = *c >= 'a' && *c <= 'z', before = c > class_name && c[-1] >= 'a' && c[-1] <= 'z';
        if (upper && to > out && (before || (c[1] >= 'a' && c[1] <= 'z'))) *to++ = '_';
        if (upper) *to++ = (char)(*c - 'A' + 'a');
        else if (lower || *c == '_' || (*c >= '0' && *c <= '9')) *to++ = *c;
    }
    if (out && to == out) memcpy(out, "layer", 6);
    return out;
}

static const mirt__layer_class *mirt__custom_copy(mirt_strategy *strategy, const mirt_layer_class *c) {
    mirt__pool *pool = &strategy->pool;
    mirt__layer_class *cls = (mirt__layer_class *)mirt__pool_alloc(pool, sizeof *cls);
    mirt_layer_class *user = (mirt_layer_class *)mirt__pool_alloc(pool, sizeof *user);
    mirt__field *fields = (mirt__field *)mirt__pool_alloc(pool, (size_t)c->num_fields * sizeof *fields);
    mirt_field *user_fields = (mirt_field *)mirt__pool_alloc(pool, (size_t)c->num_fields * sizeof *user_fields);
    const char *name = mirt__pool_strdup(pool, c->class_name), *base = mirt__custom_base_name(pool, c->class_name);
    if (!cls || !user || !fields || !user_fields || !name || !base) return NULL;
    for (int i = 0; i < c->num_fields; i++) {
        user_fields[i] = c->fields[i];
        if (!(user_fields[i].name = mirt__pool_strdup(pool, c->fields[i].name))) return NULL;
        fields[i].name = user_fields[i].name;
        fields[i].offset = c->fields[i].offset;
        fields[i].kind = c->fields[i].kind == MIRT_FIELD_INT ? MIRT__FIELD_SIGNED : c->fields[i].kind == MIRT_FIELD_FLOAT ? MIRT__FIELD_FLOAT : MIRT__FIELD_BOOL;
    }
    *user = *c;
    user->class_name = name;
    user->fields = user_fields;
    cls->class_name = name;
    cls->base_name = base;
    cls->min_in = c->inputs > 0 ? c->inputs : 1;
    cls->max_in = c->inputs < 0 ? MIRT__MAX_IN : cls->min_in;
    cls->fields = fields;
    cls->num_fields = c->num_fields;
    cls->desc_size = c->config_size;
    cls->build = mirt__custom_build;
    cls->user = user;
    cls->next = strategy->layer_classes;
    strategy->layer_classes = cls;
    return cls;
}

/* The strategy's copy of `c`, made if there is none like it. */
static const mirt__layer_class *mirt__custom_class(mirt_strategy *strategy, const mirt_layer_class *c) {
    if (mirt__custom_check(c) != MIRT_OK) return NULL;
    const mirt__layer_class *cls = mirt__layer_class_by_name(strategy, c->class_name);
    return cls && mirt__custom_same(cls->user, c) ? cls : mirt__custom_copy(strategy, c);
}

MIRT_API mirt_status mirt_register_layer(mirt_strategy *strategy, const mirt_layer_class *layer_class) {
    if (!strategy) return mirt__fail_missing("mirt_register_layer", "strategy");
    return mirt__custom_class(strategy, layer_class) ? MIRT_OK : mirt_last_status();
}

MIRT_API mirt_tensor *mirt_custom_layer(const mirt_layer_class *layer_class, mirt_tensor *const *in, int num_in, const void *config, const char *name) {
    mirt_tensor *first = NULL;
    for (int i = 0; in && i < num_in && !first; i++) first = in[i];
    if (!first) return NULL;
    mirt_model *model = first->node->graph->model;
    const mirt__layer_class *cls = model ? mirt__custom_class(model->strategy, layer_class) : NULL;
    if (cls && (config || !cls->desc_size)) return mirt__layer_add(model, cls, in, num_in, config, name);
    if (cls) mirt__fail(MIRT_E_INVALID, "%s needs its config", cls->base_name);
    else if (!model) mirt__fail(MIRT_E_INVALID, "layers belong to models; here only operations are possible");
    mirt__graph_poison(first->node->graph);
    return NULL;
}

static bool mirt__custom_building(mirt_layer *layer, const char *caller) {
    if (!layer) return false;
    if (layer->model->building == layer) return layer->model->graph.status == MIRT_OK;
    return mirt__fail(MIRT_E_STATE, "%s: %s belongs into the layer's build function", layer->name, caller), false;
}

MIRT_API mirt_tensor *mirt_layer_variable(mirt_layer *layer, const char *name, mirt_shape shape, mirt_initializer initializer, bool trainable) {
    if (!mirt__custom_building(layer, "mirt_layer_variable")) return NULL;
    mirt_model *model = layer->model;
    char label[MIRT__JSON_LABEL];
    mirt_tensor *variable = NULL;
    bool good = name && *name && strlen(name) <= 100 && !strchr(name, '/') && mirt__utf8_valid(name, strlen(name)), positive = shape.rank >= 0 && shape.rank <= MIRT_MAX_RANK;
    for (int i = 0; positive && i < shape.rank; i++) positive = shape.dim[i] > 0;
    for (int i = layer->first_variable; good && i < model->num_variables; i++) {
        good = strncmp(model->variable[i].name, layer->name, strlen(layer->name)) != 0 || strcmp(model->variable[i].name + strlen(layer->name) + 1, name) != 0;
    }
    mirt__default_initializer(&initializer, mirt_glorot_uniform());
    if (!good) mirt__fail(MIRT_E_INVALID, "variable name \"%s\": it must be 1 to 100 bytes of UTF-8 without a '/', another one for every variable", mirt__json_label(name ? name : "", label));
    else if (!positive) mirt__fail(MIRT_E_SHAPE, "variable %s needs at most %d dimensions, each positive", mirt__json_label(name, label), MIRT_MAX_RANK);
    else variable = mirt__variable_add(layer, name, &shape, &initializer, trainable);
    if (variable) return variable;
    if (model->graph.status == MIRT_OK && mirt_last_status() != MIRT_E_NOMEM) mirt__fail_at("%s", layer->name);
    return mirt__model_poison(model);
}

MIRT_API void mirt_layer_add_loss(mirt_layer *layer, mirt_tensor *term) {
    char text[96];
    if (!term || !mirt__custom_building(layer, "mirt_layer_add_loss")) return;
    bool number = term->shape.rank == 0 || (term->shape.rank == 1 && mirt__is_batched(&term->shape));
    if (number && term->dtype == MIRT_FLOAT32 && term->node->graph == &layer->model->graph) {
        mirt__term_add(layer->model, term);
        return;
    }
    mirt__fail(MIRT_E_SHAPE, "%s: a loss is a float32 number, or one a sample, of this model, not %s", layer->name, mirt__shape_text(&term->shape, text));
    mirt__model_poison(layer->model);
}

/* >>section nn/model.c */

MIRT_API mirt_model *mirt_model_create(mirt_strategy *strategy, const char *name) {
    if (!strategy) {
        mirt__fail_missing("mirt_model_create", "strategy");
        return NULL;
    }
    if (name && !mirt__utf8_valid(name, strlen(name))) return mirt__fail(MIRT_E_INVALID, "a model's name is not valid UTF-8"), (mirt_model *)NULL;
    mirt_model *model = (mirt_model *)mirt__calloc(1, sizeof *model);
    if (!model) return NULL;
    mirt__graph_init(&model->graph, model);
    model->name = mirt__pool_strdup(&model->graph.pool, name ? name : "model");
    if (!model->name) {
        mirt__free(model);
        return NULL;
    }
    model->strategy = strategy;
    model->next = strategy->models;
    if (model->next) model->next->previous = model;
    strategy->models = model;
    return model;
}

MIRT_API void mirt_model_destroy(mirt_model *model) {
    if (!model) return;
    if (model->busy) {
        mirt__log(model->strategy, MIRT_LOG_ERROR, "%s is being trained; it cannot be destroyed before mirt_fit returns", model->name);
        return;
    }
    mirt__trainer_free(model);
    for (int d = 0; d < mirt__weight_copies(model->strategy); d++) mirt__aligned_free(model->weight[d]);
    for (int i = 0; i < 2; i++) mirt__aligned_free(model->slot[i]);
    if (model->previous) model->previous->next = model->next;
    else model->strategy->models = model->next;
    if (model->next) model->next->previous = model->previous;
    mirt__free(model->history_logs);
    mirt__text_free(&model->summary);
    mirt__text_free(&model->graph_text);
    mirt__free(model->term);
    mirt__free(model->variable);
    mirt__free(model->layer);
    mirt__graph_free(&model->graph);
    mirt__free(model);
}

MIRT__LIB mirt_tensor *mirt__model_poison(mirt_model *model) {
    mirt__graph_poison(&model->graph);
    return NULL;
}

static mirt_status mirt__check_output(const mirt_model *model, const mirt_tensor *output) {
    if (output->node->graph != &model->graph) return mirt__fail(MIRT_E_INVALID, "%s: the output is a tensor of another model", model->name);
    if (mirt__is_batched(&output->shape) && output->dtype == MIRT_FLOAT32) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "%s: the output must be a float32 batch", model->name);
}

MIRT_API void mirt_model_outputs(mirt_model *model, mirt_tensor *const *outputs, int count) {
    if (!model || !outputs) return;
    if (model->compiled) {
        mirt__fail(MIRT_E_STATE, "%s is compiled; its outputs come before mirt_compile", model->name);
        return;
    }
    if (count < 1 || count > MIRT_MAX_OUTPUTS) {
        mirt__fail(MIRT_E_INVALID, "%s: %d outputs; it must be 1 to %d", model->name, count, MIRT_MAX_OUTPUTS);
        mirt__model_poison(model);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (!outputs[i]) return;
        if (mirt__check_output(model, outputs[i]) == MIRT_OK) continue;
        mirt__model_poison(model);
        return;
    }
    for (int i = 0; i < count; i++) model->output[i] = outputs[i];
    model->num_outputs = count;
}

MIRT_API void mirt_model_output(mirt_model *model, mirt_tensor *output) { mirt_model_outputs(model, &output, 1); }

/* >>compile */

static mirt_status mirt__compile_check(mirt_model *model, const mirt_compile_desc *desc) {
    mirt_dtype dtype;
    int64_t per_sample;
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (!model->num_inputs) return mirt__fail(MIRT_E_STATE, "%s has no input: begin with mirt_input", model->name);
    if (!model->num_outputs) return mirt__fail(MIRT_E_STATE, "%s has no output: end with mirt_model_output", model->name);
    if (!mirt__loss_class_get(desc->loss)) return mirt__fail(MIRT_E_INVALID, "there is no loss number %d", (int)desc->loss);
    if ((int)desc->reduction < 0 || desc->reduction > MIRT_SUM) return mirt__fail(MIRT_E_INVALID, "there is no reduction number %d", (int)desc->reduction);
    for (int i = 0; i < MIRT_MAX_METRICS && desc->metrics[i] != MIRT_METRIC_NONE; i++) {
        if (!mirt__metric_class_get(desc->metrics[i])) return mirt__fail(MIRT_E_INVALID, "there is no metric number %d", (int)desc->metrics[i]);
    }
    if (mirt__optimizer_check(&desc->optimizer) != MIRT_OK) return mirt_last_status();
    model->config = *desc;
    if (desc->loss == MIRT_LOSS_NONE) return MIRT_OK;
    mirt_status status = mirt__labels_wanted(model, &dtype, &per_sample);
    for (int i = 0; status == MIRT_OK && i < mirt__num_metrics(model); i++) status = mirt__metric_class_get(desc->metrics[i])->check(model);
    return status;
}

/* Zeroed optimizer state; false with the error set and nothing made. */
static bool mirt__slots_create(const mirt_model *model, const mirt_optimizer *optimizer, char *slot[2]) {
    slot[0] = slot[1] = NULL;
    for (int i = 0; i < mirt__optimizer_slots(optimizer); i++) {
        slot[i] = (char *)mirt__aligned_alloc(model->weight_bytes);
        if (!slot[i]) {
            mirt__aligned_free(slot[0]);
            return false;
        }
        memset(slot[i], 0, model->weight_bytes);
    }
    return true;
}

MIRT_API mirt_status mirt_compile(mirt_model *model, const mirt_compile_desc *desc) {
    if (!model) return mirt__fail_missing("mirt_compile", "model");
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    mirt__optimizer_defaults(&d.optimizer);
    if (model->busy) return mirt__fail(MIRT_E_STATE, "%s is being trained; mirt_compile has to wait until mirt_fit returns", model->name);
    mirt_compile_desc before = model->config;
    char *slot[2];
    if (mirt__compile_check(model, &d) != MIRT_OK || mirt__model_materialize(model) != MIRT_OK || !mirt__slots_create(model, &d.optimizer, slot)) {
        model->config = before;
        return mirt_last_status();
    }
    mirt__trainer_free(model);
    for (int i = 0; i < 2; i++) {
        mirt__aligned_free(model->slot[i]);
        model->slot[i] = slot[i];
    }
    model->step = 0;
    model->rate_set = false;
    model->compiled = true;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__model_materialize(mirt_model *model) {
    int copies = mirt__weight_copies(model->strategy);
    if (model->weight[0]) return MIRT_OK;
    for (int d = 0; d < copies; d++) {
        model->weight[d] = (char *)mirt__aligned_alloc(model->weight_bytes);
        if (model->weight[d]) continue;
        while (d-- > 0) {
            mirt__aligned_free(model->weight[d]);
            model->weight[d] = NULL;
        }
        return mirt_last_status();
    }
    memset(model->weight[0], 0, model->weight_bytes);
    for (int i = 0; i < model->num_variables; i++) {
        mirt__initialize(&model->variable[i], model->strategy->seed, mirt__weight_at(model, 0, &model->variable[i]));
    }
    for (int d = 1; d < copies; d++) memcpy(model->weight[d], model->weight[0], model->weight_bytes);
    for (int d = copies; d < model->strategy->num_devices; d++) model->weight[d] = model->weight[0];
    return MIRT_OK;
}

/* >>weights */

MIRT__LIB mirt__real *mirt__weight_at(const mirt_model *model, int device, const mirt__variable *variable) {
    return (mirt__real *)(void *)(model->weight[device] + variable->offset);
}

MIRT_API int mirt_num_weights(const mirt_model *model) { return model ? model->num_variables : 0; }

MIRT_API mirt_status mirt_weight(const mirt_model *model, int index, mirt_weight_info *out) {
    if (!model || !out) return mirt__fail(MIRT_E_INVALID, "mirt_weight: no model or no place for the answer");
    if (index < 0 || index >= model->num_variables) {
        return mirt__fail(MIRT_E_NOT_FOUND, "there is no weight %d; %s has %d", index, model->name, model->num_variables);
    }
    const mirt__variable *v = &model->variable[index];
    out->name = v->name;
    out->shape = v->shape;
    out->count = v->count;
    out->trainable = v->trainable;
    return MIRT_OK;
}

/* The index of the variable `name`, or -1 with an error that names the nearest one. */
MIRT__LIB int mirt__variable_find(const mirt_model *model, const char *name) {
    const char *nearest = NULL;
    for (int i = 0; i < model->num_variables; i++) {
        const char *pair[2] = {nearest, model->variable[i].name};
        if (strcmp(pair[1], name) == 0) return i;
        nearest = nearest ? mirt__nearest(name, pair, 2) : mirt__nearest(name, pair + 1, 1);
    }
    mirt__fail(MIRT_E_NOT_FOUND, "%s has no weight \"%s\"%s%s%s", model->name, name, nearest ? "; did you mean \"" : "", nearest ? nearest : "",
               nearest ? "\"?" : "");
    return -1;
}

static const mirt__variable *mirt__variable_checked(mirt_model *model, const char *name, int device, size_t count) {
    if (!model || !name) return mirt__fail(MIRT_E_INVALID, "no model or no weight name"), (const mirt__variable *)NULL;
    int index = mirt__variable_find(model, name);
    if (index < 0) return NULL;
    if (device < 0 || device >= model->strategy->num_devices) {
        return mirt__fail(MIRT_E_DEVICE, "there is no device %d; the strategy has %d", device, model->strategy->num_devices), (const mirt__variable *)NULL;
    }
    if ((int64_t)count != model->variable[index].count) {
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld elements, not %llu", name, (long long)model->variable[index].count, (unsigned long long)count), (const mirt__variable *)NULL;
    }
    if (mirt__model_materialize(model) != MIRT_OK) return NULL;
    return &model->variable[index];
}

MIRT_API mirt_status mirt_get_weight(mirt_model *model, const char *name, int device, float *out, size_t count) {
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_get_weight: no place for the values");
    const mirt__variable *v = mirt__variable_checked(model, name, device, count);
    if (!v) return mirt_last_status();
    const mirt__real *from = mirt__weight_at(model, device, v);
    for (size_t i = 0; i < count; i++) out[i] = (float)from[i];
    return MIRT_OK;
}

MIRT_API mirt_status mirt_set_weight(mirt_model *model, const char *name, const float *values, size_t count) {
    if (!values) return mirt__fail(MIRT_E_INVALID, "mirt_set_weight: no values");
    const mirt__variable *v = mirt__variable_checked(model, name, 0, count);
    if (!v) return mirt_last_status();
    for (int d = 0; d < mirt__weight_copies(model->strategy); d++) {
        mirt__real *to = mirt__weight_at(model, d, v);
        for (size_t i = 0; i < count; i++) to[i] = (mirt__real)values[i];
    }
    return MIRT_OK;
}

/* >>section nn/config.h */

#ifndef MIRT__CONFIG_H
#define MIRT__CONFIG_H
/* Models and compile settings as JSON, in Keras's words, and back. */

/* --- config.c --- */
/* `"key":`, behind a comma unless it is the object's first. */
MIRT__LIB void mirt__write_key(mirt__text *out, const char *key, bool first);
MIRT__LIB void mirt__write_name(mirt__text *out, const char *key, const char *value, bool first);
/* A member of `object`, whose `field` it is. */
MIRT__LIB void mirt__write_field(mirt__text *out, const mirt__field *field, const char *object, bool first);
MIRT__LIB mirt_status mirt__read_field(const mirt__json *json, const mirt__field *field, char *object);
MIRT__LIB void mirt__compile_write(const mirt_model *model, mirt__text *out);
MIRT__LIB mirt_status mirt__compile_read(const mirt__json *json, mirt_compile_desc *out);

/* --- architecture.c --- */
/* {"name", "layers": [...], "output"}: the layers and bare operations in the order of their recording, as
     {"class_name": "Conv2D", "name", "input", "config"}
     {"class_name": "Operation", "name", "op", "input", "attributes"}: attributes that are not zero; a constant has "data"
     {"class_name": "Variable", "name", "config"}: made outside of layers.
   A tensor is the name of what made it, or [name, number of its output]; several are "inputs": [...], and
   "outputs". "losses": terms of the loss that are no layer's. */
MIRT__LIB mirt_status mirt__architecture_write(mirt_model *model, mirt__text *out);
/* Records all that into an empty model. */
MIRT__LIB mirt_status mirt__architecture_read(mirt_model *model, const mirt__json *architecture);

#endif

/* >>section nn/config.c */

static const char *const mirt__training_names[] = {"auto", "on", "off"};
static const char *const mirt__padding_names[] = {"valid", "same"};
static const char *const mirt__fan_names[] = {"fan_in", "fan_out", "fan_avg"};
static const char *const mirt__distribution_names[] = {"truncated_normal", "untruncated_normal", "uniform"};
static const char *const mirt__reduction_names[] = {"sum_over_batch_size", "sum"};
static const char *const mirt__initializer_names[MIRT__INIT_COUNT] = {
    "Default", "Zeros", "Ones", "Constant", "RandomUniform", "RandomNormal", "TruncatedNormal", "VarianceScaling"};
/* Keras's names of an initializer's numbers a and b. */
static const char *const mirt__initializer_a[MIRT__INIT_COUNT] = {NULL, NULL, NULL, "value", "minval", "mean", "mean", "scale"};
static const char *const mirt__initializer_b[MIRT__INIT_COUNT] = {NULL, NULL, NULL, NULL, "maxval", "stddev", "stddev", NULL};

/* >>writing */

MIRT__LIB void mirt__write_key(mirt__text *out, const char *key, bool first) {
    mirt__text_add(out, first ? "" : ",");
    mirt__json_write_string(out, key);
    mirt__text_add(out, ":");
}

MIRT__LIB void mirt__write_name(mirt__text *out, const char *key, const char *value, bool first) {
    mirt__write_key(out, key, first);
    mirt__json_write_string(out, value);
}

static void mirt__write_number(mirt__text *out, const char *key, double value, bool first) {
    mirt__write_key(out, key, first);
    mirt__json_write_number(out, value);
}

static void mirt__write_initializer(mirt__text *out, const mirt_initializer *i) {
    mirt__text_add(out, "{");
    mirt__write_name(out, "class_name", mirt__initializer_names[i->kind], true);
    mirt__write_key(out, "config", false);
    mirt__text_add(out, "{");
    bool first = true;
    if (mirt__initializer_a[i->kind]) mirt__write_number(out, mirt__initializer_a[i->kind], (double)i->a, first), first = false;
    if (mirt__initializer_b[i->kind]) mirt__write_number(out, mirt__initializer_b[i->kind], (double)i->b, first);
    if (i->kind == MIRT_INIT_VARIANCE_SCALING) {
        mirt__write_name(out, "mode", mirt__fan_names[i->mode], false);
        mirt__write_name(out, "distribution", mirt__distribution_names[i->distribution], false);
    }
    mirt__text_add(out, "}}");
}

static void mirt__write_dims(mirt__text *out, const int64_t *dim, int count) {
    mirt__text_add(out, "[");
    for (int i = 0; i < count; i++) mirt__text_add(out, "%s%lld", i ? "," : "", (long long)dim[i]);
    mirt__text_add(out, "]");
}

static void mirt__write_regularizer(mirt__text *out, const mirt_regularizer *r) {
    if (r->l1 == 0 && r->l2 == 0) {
        mirt__text_add(out, "null");
        return;
    }
    mirt__text_add(out, "{\"class_name\":\"L1L2\",\"config\":{");
    mirt__write_number(out, "l1", (double)r->l1, true);
    mirt__write_number(out, "l2", (double)r->l2, false);
    mirt__text_add(out, "}}");
}

MIRT__LIB void mirt__write_field(mirt__text *out, const mirt__field *field, const char *desc, bool first) {
    const void *at = desc + field->offset;
    mirt__write_key(out, field->name, first);
    switch (field->kind) {
    case MIRT__FIELD_INT:
    case MIRT__FIELD_SIGNED: mirt__text_add(out, "%d", *(const int *)at); break;
    case MIRT__FIELD_INT2X2: mirt__text_add(out, "[[%d,%d],[%d,%d]]", ((const int *)at)[0], ((const int *)at)[1], ((const int *)at)[2], ((const int *)at)[3]); break;
    case MIRT__FIELD_INT2: mirt__text_add(out, "[%d,%d]", ((const int *)at)[0], ((const int *)at)[1]); break;
    case MIRT__FIELD_INT64: mirt__text_add(out, "%lld", (long long)*(const int64_t *)at); break;
    case MIRT__FIELD_FLOAT: mirt__json_write_number(out, (double)*(const float *)at); break;
    case MIRT__FIELD_LIMIT:
        if (isfinite(*(const float *)at)) mirt__json_write_number(out, (double)*(const float *)at);
        else mirt__json_write_string(out, isnan(*(const float *)at) ? "nan" : *(const float *)at > 0 ? "inf" : "-inf");
        break;
    case MIRT__FIELD_DOUBLE: mirt__json_write_number(out, *(const double *)at); break;
    case MIRT__FIELD_DTYPE: mirt__json_write_string(out, mirt__dtype_name(*(const mirt_dtype *)at)); break;
    case MIRT__FIELD_TRAINING: mirt__json_write_string(out, mirt__training_names[*(const mirt_training *)at]); break;
    case MIRT__FIELD_BOOL: mirt__text_add(out, "%s", *(const bool *)at ? "true" : "false"); break;
    case MIRT__FIELD_NO: mirt__text_add(out, "%s", *(const bool *)at ? "false" : "true"); break;
    case MIRT__FIELD_PADDING: mirt__json_write_string(out, mirt__padding_names[*(const mirt_padding *)at]); break;
    case MIRT__FIELD_ACTIVATION: mirt__json_write_string(out, mirt__activation_get(*(const mirt_activation_kind *)at)->name); break;
    case MIRT__FIELD_INITIALIZER: mirt__write_initializer(out, (const mirt_initializer *)at); break;
    case MIRT__FIELD_REGULARIZER: mirt__write_regularizer(out, (const mirt_regularizer *)at); break;
    case MIRT__FIELD_SHAPE:
    case MIRT__FIELD_DIMS: mirt__write_dims(out, ((const mirt_shape *)at)->dim, ((const mirt_shape *)at)->rank); break;
    case MIRT__FIELD_AXES: mirt__write_dims(out, (const int64_t *)at, MIRT_MAX_RANK); break;
    }
}

MIRT__LIB void mirt__compile_write(const mirt_model *model, mirt__text *out) {
    const mirt_compile_desc *c = &model->config;
    const mirt__optimizer_class *optimizer = mirt__optimizer_class_get(c->optimizer.kind);
    mirt__text_add(out, "{\"optimizer\":{");
    mirt__write_name(out, "class_name", optimizer->name, true);
    mirt__write_number(out, "learning_rate", mirt_get_learning_rate(model), false);
    for (int i = 0; i < optimizer->num_fields; i++) mirt__write_field(out, &optimizer->fields[i], (const char *)&c->optimizer, false);
    mirt__text_add(out, "}");
    mirt__write_name(out, "loss", mirt__loss_name(c->loss), false);
    mirt__text_add(out, ",\"from_logits\":%s", c->from_logits ? "true" : "false");
    mirt__write_name(out, "reduction", mirt__reduction_names[c->reduction], false);
    mirt__text_add(out, ",\"metrics\":[");
    for (int i = 0; i < mirt__num_metrics(model); i++) {
        mirt__text_add(out, i ? "," : "");
        mirt__json_write_string(out, mirt__metric_class_get(c->metrics[i])->name);
    }
    mirt__text_add(out, "]}");
}

/* >>reading */

/* The index of a string member among `names`. */
static mirt_status mirt__read_name(const mirt__json *object, const char *key, const char *const *names, int count, int *out) {
    const mirt__json *value = mirt__json_get(object, key, MIRT__JSON_STRING);
    char label[MIRT__JSON_LABEL];
    if (!value) return mirt_last_status();
    for (*out = 0; *out < count; ++*out) {
        if (strcmp(names[*out], value->string) == 0) return MIRT_OK;
    }
    return mirt__fail(MIRT_E_FORMAT, "%s is \"%s\", which this version does not know", key, mirt__json_label(value->string, label));
}

static mirt_status mirt__read_float(const mirt__json *object, const char *key, float *out) {
    const mirt__json *value = mirt__json_get(object, key, MIRT__JSON_NUMBER);
    if (!value) return mirt_last_status();
    *out = (float)value->number;
    return isfinite(*out) ? MIRT_OK : mirt__fail(MIRT_E_FORMAT, "%s is beyond float32", key);
}

static mirt_status mirt__read_bool(const mirt__json *object, const char *key, bool *out) {
    const mirt__json *value = mirt__json_get(object, key, MIRT__JSON_BOOL);
    if (!value) return mirt_last_status();
    *out = value->truth;
    return MIRT_OK;
}

static mirt_status mirt__read_int(const mirt__json *object, const char *key, int minimum, int *out) {
    int64_t value;
    if (mirt__json_get_int(object, key, minimum, INT_MAX, &value) != MIRT_OK) return mirt_last_status();
    *out = (int)value;
    return MIRT_OK;
}

/* An array of `minimum` to `maximum` integers, each from `low` to `high`; returns how many, or -1. */
static int mirt__read_ints(const mirt__json *object, const char *key, int64_t *out, int minimum, int maximum, int64_t low, int64_t high) {
    const mirt__json *array = mirt__json_get(object, key, MIRT__JSON_ARRAY);
    const char *what = low == 1 ? "positive integers" : low == 0 ? "integers, none negative" : "integers in range";
    if (!array) return -1;
    bool good = array->count >= (size_t)minimum && array->count <= (size_t)maximum;
    for (size_t i = 0; good && i < array->count; i++) {
        const mirt__json *item = array->item[i];
        good = item->type == MIRT__JSON_NUMBER && item->integral && item->integer >= low && item->integer <= high;
        if (good) out[i] = item->integer;
    }
    if (good) return (int)array->count;
    if (minimum == maximum) mirt__fail(MIRT_E_FORMAT, "%s must be %d %s", key, minimum, what);
    else mirt__fail(MIRT_E_FORMAT, "%s must be %d to %d %s", key, minimum, maximum, what);
    return -1;
}

/* An int64_t of any size, which JSON holds exactly. */
static mirt_status mirt__read_int64(const mirt__json *object, const char *key, int64_t *out) {
    return mirt__json_get_int(object, key, INT64_MIN, INT64_MAX, out);
}

static mirt_status mirt__read_limit(const mirt__json *object, const char *key, float *out) {
    static const char *const names[] = {"inf", "-inf", "nan"};
    const mirt__json *value = mirt__json_member(object, key);
    if (!value || value->type != MIRT__JSON_STRING) return mirt__read_float(object, key, out);
    *out = value->string[0] == '-' ? -INFINITY : value->string[0] == 'n' ? NAN : INFINITY;
    for (int i = 0; i < 3; i++) {
        if (strcmp(names[i], value->string) == 0) return MIRT_OK;
    }
    return mirt__fail(MIRT_E_FORMAT, "%s is neither a number nor \"inf\"", key);
}

static mirt_status mirt__read_initializer(const mirt__json *object, const char *key, mirt_initializer *out) {
    const mirt__json *json = mirt__json_get(object, key, MIRT__JSON_OBJECT), *config;
    int kind, mode = 0, distribution = 0;
    memset(out, 0, sizeof *out);
    if (!json || mirt__read_name(json, "class_name", mirt__initializer_names, MIRT__INIT_COUNT, &kind) != MIRT_OK ||
        !(config = mirt__json_get(json, "config", MIRT__JSON_OBJECT))) {
        return mirt_last_status();
    }
    out->kind = (mirt_initializer_kind)kind;
    if (mirt__initializer_a[kind] && mirt__read_float(config, mirt__initializer_a[kind], &out->a) != MIRT_OK) return mirt_last_status();
    if (mirt__initializer_b[kind] && mirt__read_float(config, mirt__initializer_b[kind], &out->b) != MIRT_OK) return mirt_last_status();
    if (out->kind != MIRT_INIT_VARIANCE_SCALING) return MIRT_OK;
    if (mirt__read_name(config, "mode", mirt__fan_names, MIRT__COUNT(mirt__fan_names), &mode) != MIRT_OK ||
        mirt__read_name(config, "distribution", mirt__distribution_names, MIRT__COUNT(mirt__distribution_names), &distribution) != MIRT_OK) {
        return mirt_last_status();
    }
    out->mode = (mirt_fan)mode;
    out->distribution = (mirt_distribution)distribution;
    return MIRT_OK;
}

/* None when it is missing or null. */
static mirt_status mirt__read_regularizer(const mirt__json *object, const char *key, mirt_regularizer *out) {
    static const char *const names[] = {"L1L2"};
    const mirt__json *json = mirt__json_member(object, key), *config;
    int index;
    out->l1 = out->l2 = 0;
    if (!json || json->type == MIRT__JSON_NULL) return MIRT_OK;
    if (!(json = mirt__json_get(object, key, MIRT__JSON_OBJECT)) || mirt__read_name(json, "class_name", names, 1, &index) != MIRT_OK ||
        !(config = mirt__json_get(json, "config", MIRT__JSON_OBJECT)) || mirt__read_float(config, "l1", &out->l1) != MIRT_OK) {
        return mirt_last_status();
    }
    return mirt__read_float(config, "l2", &out->l2);
}

/* [[top, bottom], [left, right]], none negative. */
static mirt_status mirt__read_2x2(const mirt__json *object, const char *key, int out[4]) {
    const mirt__json *array = mirt__json_get(object, key, MIRT__JSON_ARRAY);
    if (!array) return mirt_last_status();
    bool good = array->count == 2;
    for (int i = 0; good && i < 4; i++) {
        const mirt__json *pair = array->item[i / 2];
        good = pair->type == MIRT__JSON_ARRAY && pair->count == 2;
        const mirt__json *item = good ? pair->item[i % 2] : NULL;
        good = item && item->type == MIRT__JSON_NUMBER && item->integral && item->integer >= 0 && item->integer <= INT_MAX;
        if (good) out[i] = (int)item->integer;
    }
    return good ? MIRT_OK : mirt__fail(MIRT_E_FORMAT, "%s must be two pairs of integers, none negative", key);
}

/* Where any rank will do the rows of a batch may come first. */
static mirt_status mirt__read_shape(const mirt__json *object, const char *key, int minimum, int maximum, mirt_shape *out) {
    int rank = mirt__read_ints(object, key, out->dim, minimum, maximum, minimum ? 1 : MIRT_ROWS, minimum ? INT_MAX : MIRT__MAX_ELEMENTS);
    if (rank < 0) return mirt_last_status();
    out->rank = rank;
    for (int i = 0; i < rank; i++) {
        if (out->dim[i] < 1 && (i > 0 || out->dim[i] != MIRT_ROWS)) return mirt__fail(MIRT_E_FORMAT, "%s: a dimension is %lld", key, (long long)out->dim[i]);
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__read_field(const mirt__json *config, const mirt__field *field, char *desc) {
    void *at = desc + field->offset;
    int64_t values[MIRT_MAX_RANK];
    int index;
    bool truth = false;
    mirt_status status = MIRT_OK;
    const char *activations[MIRT__ACTIVATION_COUNT], *dtypes[MIRT__DTYPE_COUNT];
    switch (field->kind) {
    case MIRT__FIELD_INT: return mirt__read_int(config, field->name, 0, (int *)at);
    case MIRT__FIELD_SIGNED: return mirt__read_int(config, field->name, INT_MIN, (int *)at);
    case MIRT__FIELD_INT2X2: return mirt__read_2x2(config, field->name, (int *)at);
    case MIRT__FIELD_INT2:
        if (mirt__read_ints(config, field->name, values, 2, 2, 1, INT_MAX) < 0) return mirt_last_status();
        ((int *)at)[0] = (int)values[0];
        ((int *)at)[1] = (int)values[1];
        return MIRT_OK;
    case MIRT__FIELD_FLOAT: return mirt__read_float(config, field->name, (float *)at);
    case MIRT__FIELD_LIMIT: return mirt__read_limit(config, field->name, (float *)at);
    case MIRT__FIELD_DOUBLE: {
        const mirt__json *value = mirt__json_get(config, field->name, MIRT__JSON_NUMBER);
        if (value) *(double *)at = value->number;
        return value ? MIRT_OK : mirt_last_status();
    }
    case MIRT__FIELD_INT64: return mirt__read_int64(config, field->name, (int64_t *)at);
    case MIRT__FIELD_BOOL: /* missing in files older than the field */
        return mirt__json_member(config, field->name) ? mirt__read_bool(config, field->name, (bool *)at) : MIRT_OK;
    case MIRT__FIELD_NO:
        status = mirt__read_bool(config, field->name, &truth);
        if (status == MIRT_OK) *(bool *)at = !truth;
        return status;
    case MIRT__FIELD_PADDING:
        status = mirt__read_name(config, field->name, mirt__padding_names, MIRT__COUNT(mirt__padding_names), &index);
        if (status == MIRT_OK) *(mirt_padding *)at = (mirt_padding)index;
        return status;
    case MIRT__FIELD_ACTIVATION:
        for (int i = 0; i < MIRT__ACTIVATION_COUNT; i++) activations[i] = mirt__activation_get((mirt_activation_kind)i)->name;
        status = mirt__read_name(config, field->name, activations, MIRT__ACTIVATION_COUNT, &index);
        if (status == MIRT_OK) *(mirt_activation_kind *)at = (mirt_activation_kind)index;
        return status;
    case MIRT__FIELD_INITIALIZER: return mirt__read_initializer(config, field->name, (mirt_initializer *)at);
    case MIRT__FIELD_REGULARIZER: return mirt__read_regularizer(config, field->name, (mirt_regularizer *)at);
    case MIRT__FIELD_TRAINING:
        status = mirt__read_name(config, field->name, mirt__training_names, MIRT__COUNT(mirt__training_names), &index);
        if (status == MIRT_OK) *(mirt_training *)at = (mirt_training)index;
        return status;
    case MIRT__FIELD_DTYPE:
        for (int i = 0; i < MIRT__DTYPE_COUNT; i++) dtypes[i] = mirt__dtype_name((mirt_dtype)i);
        status = mirt__read_name(config, field->name, dtypes, MIRT__DTYPE_COUNT, &index);
        if (status == MIRT_OK) *(mirt_dtype *)at = (mirt_dtype)index;
        return status;
    case MIRT__FIELD_SHAPE: return mirt__read_shape(config, field->name, 1, MIRT_MAX_RANK - 1, (mirt_shape *)at);
    case MIRT__FIELD_DIMS: return mirt__read_shape(config, field->name, 0, MIRT_MAX_RANK, (mirt_shape *)at);
    case MIRT__FIELD_AXES:
        return mirt__read_ints(config, field->name, (int64_t *)at, MIRT_MAX_RANK, MIRT_MAX_RANK, -1, MIRT__MAX_ELEMENTS) < 0 ? mirt_last_status() : MIRT_OK;
    }
    return status;
}

static mirt_status mirt__optimizer_read(const mirt__json *json, mirt_optimizer *o) {
    const mirt__json *name = mirt__json_get(json, "class_name", MIRT__JSON_STRING);
    char label[MIRT__JSON_LABEL];
    int kind = 0;
    if (!name) return mirt_last_status();
    while (kind < MIRT__OPTIMIZER_COUNT && strcmp(mirt__optimizer_class_get((mirt_optimizer_kind)kind)->name, name->string) != 0) kind++;
    if (kind == MIRT__OPTIMIZER_COUNT) return mirt__fail(MIRT_E_FORMAT, "optimizer \"%s\" is not known to this version", mirt__json_label(name->string, label));
    o->kind = (mirt_optimizer_kind)kind;
    if (mirt__read_float(json, "learning_rate", &o->learning_rate) != MIRT_OK) return mirt_last_status();
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    for (int i = 0; i < cls->num_fields; i++) {
        if (mirt__read_field(json, &cls->fields[i], (char *)o) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

static mirt_status mirt__metrics_read(const mirt__json *array, mirt_metric *out) {
    char label[MIRT__JSON_LABEL];
    if (array->count > MIRT_MAX_METRICS) return mirt__fail(MIRT_E_FORMAT, "more than %d metrics", MIRT_MAX_METRICS);
    for (size_t i = 0; i < array->count; i++) {
        int m = 1;
        if (array->item[i]->type != MIRT__JSON_STRING) return mirt__fail(MIRT_E_FORMAT, "a metric is not a name");
        while (m < MIRT__METRIC_COUNT && strcmp(mirt__metric_class_get((mirt_metric)m)->name, array->item[i]->string) != 0) m++;
        if (m == MIRT__METRIC_COUNT) return mirt__fail(MIRT_E_FORMAT, "metric \"%s\" is not known to this version", mirt__json_label(array->item[i]->string, label));
        out[i] = (mirt_metric)m;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__compile_read(const mirt__json *json, mirt_compile_desc *out) {
    memset(out, 0, sizeof *out);
    if (json->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the compile settings are not an object");
    const mirt__json *optimizer = mirt__json_get(json, "optimizer", MIRT__JSON_OBJECT), *metrics = mirt__json_get(json, "metrics", MIRT__JSON_ARRAY);
    const char *losses[MIRT__LOSS_COUNT];
    int loss, reduction;
    for (int i = 0; i < MIRT__LOSS_COUNT; i++) losses[i] = mirt__loss_name((mirt_loss)i);
    if (!optimizer || !metrics || mirt__optimizer_read(optimizer, &out->optimizer) != MIRT_OK ||
        mirt__read_name(json, "loss", losses, MIRT__LOSS_COUNT, &loss) != MIRT_OK ||
        mirt__read_name(json, "reduction", mirt__reduction_names, MIRT__COUNT(mirt__reduction_names), &reduction) != MIRT_OK ||
        mirt__read_bool(json, "from_logits", &out->from_logits) != MIRT_OK) {
        return mirt_last_status();
    }
    out->loss = (mirt_loss)loss;
    out->reduction = (mirt_reduction)reduction;
    return mirt__metrics_read(metrics, out->metrics);
}

/* >>section nn/architecture.c */

#define MIRT__MAX_ENTRIES 10000 /* looking for a name goes through all of them */

/* Operations that a file may hold: those that public functions record. */
typedef struct mirt__file_op {
    mirt__op_id id;
    int min_in, max_in;
    int kinds; /* a.kind is below */
} mirt__file_op;
static const mirt__file_op mirt__file_ops[] = {
    {MIRT__OP_constant, 0, 0, 1},
    {MIRT__OP_logic, 1, 3, MIRT__WHERE + 1},
    {MIRT__OP_stop_gradient, 1, 1, 1},
    {MIRT__OP_unary, 1, 1, MIRT__ACT_SOFTPLUS + 1},
    {MIRT__OP_binary, 2, 2, MIRT__MINIMUM + 1},
    {MIRT__OP_reduce, 1, 1, MIRT__REDUCE_MIN + 1},
    {MIRT__OP_reshape, 1, 1, 1},
    {MIRT__OP_cast, 1, 1, 1},
    {MIRT__OP_one_hot, 1, 1, 1},
    {MIRT__OP_matmul, 2, 2, 1},
    {MIRT__OP_softmax, 1, 1, 1},
    {MIRT__OP_log_softmax, 1, 1, 1},
    {MIRT__OP_scan, 1, 1, MIRT__CUMSUM + 1},
    {MIRT__OP_transpose, 1, 1, 1},
    {MIRT__OP_concat, 1, MIRT__MAX_IN, 1},
    {MIRT__OP_slice, 1, 1, 1},
    {MIRT__OP_pad, 1, 1, 1},
    {MIRT__OP_gather, 2, 2, 1},
};

/* Attributes that these read. Kinds are saved by their numbers: new ones come last. */
typedef struct mirt__file_attr {
    mirt__field field;
    size_t size;
} mirt__file_attr;
#define MIRT__ATTR(name, kind) {{#name, kind, offsetof(mirt__attrs, name)}, sizeof(((mirt__attrs *)NULL)->name)}
static const mirt__file_attr mirt__file_attrs[] = {
    MIRT__ATTR(kind, MIRT__FIELD_INT), MIRT__ATTR(dtype, MIRT__FIELD_DTYPE), MIRT__ATTR(shape, MIRT__FIELD_DIMS),
    MIRT__ATTR(transpose_a, MIRT__FIELD_BOOL), MIRT__ATTR(transpose_b, MIRT__FIELD_BOOL), MIRT__ATTR(axes, MIRT__FIELD_INT),
    MIRT__ATTR(keepdims, MIRT__FIELD_BOOL), MIRT__ATTR(scale, MIRT__FIELD_LIMIT), MIRT__ATTR(offset, MIRT__FIELD_LIMIT),
    MIRT__ATTR(depth, MIRT__FIELD_INT64), MIRT__ATTR(axis, MIRT__FIELD_SIGNED), MIRT__ATTR(begin, MIRT__FIELD_AXES),
};
#undef MIRT__ATTR

static const mirt__file_op *mirt__file_op_of(const char *name) {
    for (int i = 0; i < MIRT__COUNT(mirt__file_ops); i++) {
        if (strcmp(mirt__op_get(mirt__file_ops[i].id)->name, name) == 0) return &mirt__file_ops[i];
    }
    return NULL;
}

/* A variable made outside of layers. */
typedef struct mirt__variable_desc {
    mirt_shape shape;
    mirt_initializer initializer;
    bool trainable;
} mirt__variable_desc;
static const mirt__field mirt__variable_fields[] = {{"shape", MIRT__FIELD_DIMS, offsetof(mirt__variable_desc, shape)},
                                                    {"initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt__variable_desc, initializer)},
                                                    {"trainable", MIRT__FIELD_BOOL, offsetof(mirt__variable_desc, trainable)}};

/* >>writing */

/* The name of operation number `index`: no layer's, which have no '/' of their own. */
static const char *mirt__op_label(const mirt_model *model, int index, char out[64]) {
    snprintf(out, 64, "%s/%d", model->graph.node[index]->op->name, index);
    return out;
}

/* How an entry names the tensor `t`. A layer that hands its input on names it too. */
static bool mirt__write_tensor(const mirt_model *model, mirt__text *out, const mirt_tensor *t, int layers, const char *reader) {
    const mirt__node *node = t->node;
    const char *name = NULL;
    char label[64];
    int slot = t->slot, index = node->out[0]->first;
    for (int i = layers - 1; i >= 0 && !name; i--) {
        const mirt__layer *layer = model->layer[i];
        for (int k = 0; k < layer->num_out && !name; k++) {
            if (layer->out[k] == t) name = layer->name, slot = k;
        }
        if (!name && index >= layer->first_node && index < layer->first_node + layer->num_nodes) {
            mirt__fail(MIRT_E_STATE, "%s reads a tensor from inside of %s; such a model cannot be saved whole (weights alone can)", reader, layer->name);
            return false;
        }
    }
    if (!name) name = node->id == MIRT__OP_variable ? model->variable[node->a.index].name : mirt__op_label(model, index, label);
    if (slot) mirt__text_add(out, "[");
    mirt__json_write_string(out, name);
    if (slot) mirt__text_add(out, ",%d]", slot);
    return true;
}

/* "input" or "inputs", whatever `key` is. */
static bool mirt__write_tensors(const mirt_model *model, mirt__text *out, const char *key, mirt_tensor *const *t, int count, int layers, const char *reader) {
    bool good = true;
    mirt__text_add(out, count == 1 ? ",\"%s\":" : ",\"%ss\":[", key);
    for (int i = 0; good && i < count; i++) {
        if (i) mirt__text_add(out, ",");
        good = mirt__write_tensor(model, out, t[i], layers, reader);
    }
    if (count != 1) mirt__text_add(out, "]");
    return good;
}

static void mirt__write_begin(mirt__text *out, const char *class_name, const char *name, bool first) {
    mirt__text_add(out, first ? "{" : ",{");
    mirt__write_name(out, "class_name", class_name, true);
    mirt__write_name(out, "name", name, false);
}

static void mirt__write_config(mirt__text *out, const mirt__field *fields, int count, const char *desc) {
    mirt__text_add(out, ",\"config\":{");
    for (int i = 0; i < count; i++) mirt__write_field(out, &fields[i], desc, i == 0);
    mirt__text_add(out, "}");
}

static bool mirt__write_layer(const mirt_model *model, mirt__text *out, int index, bool first) {
    const mirt__layer *layer = model->layer[index];
    mirt__write_begin(out, layer->cls->class_name, layer->name, first);
    if (layer->num_in && !mirt__write_tensors(model, out, "input", layer->in, layer->num_in, index, layer->name)) return false;
    mirt__write_config(out, layer->cls->fields, layer->cls->num_fields, layer->desc);
    mirt__text_add(out, "}");
    return true;
}

static void mirt__write_variable(const mirt__variable *v, mirt__text *out, bool first) {
    mirt__variable_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = v->shape;
    desc.initializer = v->initializer;
    desc.trainable = v->trainable;
    mirt__write_begin(out, "Variable", v->name, first);
    mirt__write_config(out, mirt__variable_fields, MIRT__COUNT(mirt__variable_fields), (const char *)&desc);
    mirt__text_add(out, "}");
}

/* As hexadecimal digits of the bytes, numbers as float32. */
static void mirt__write_data(mirt__text *out, const mirt__attrs *a) {
    const size_t size = mirt__dtype_size(a->dtype);
    mirt__text_add(out, ",\"data\":\"");
    for (size_t i = 0; i < a->bytes / size; i++) {
        const unsigned char *at = (const unsigned char *)a->data + i * size;
        float number = a->dtype == MIRT_FLOAT32 ? (float)((const mirt__real *)a->data)[i] : 0;
        if (a->dtype == MIRT_FLOAT32) at = (const unsigned char *)&number;
        for (size_t k = 0; k < (a->dtype == MIRT_FLOAT32 ? sizeof number : size); k++) mirt__text_add(out, "%02x", at[k]);
    }
    mirt__text_add(out, "\"");
}

static bool mirt__write_operation(const mirt_model *model, mirt__text *out, int index, int layers, bool first) {
    const mirt__node *node = model->graph.node[index];
    const mirt__attrs none = mirt__no_attrs();
    char label[64];
    bool plain = true;
    mirt__op_label(model, index, label);
    if (node->id == MIRT__OP_variable) {
        mirt__write_variable(&model->variable[node->a.index], out, first);
        return true;
    }
    if (!mirt__file_op_of(node->op->name)) return mirt__fail(MIRT_E_STATE, "%s: such an operation cannot be saved; weights alone can", label), false;
    mirt__write_begin(out, "Operation", label, first);
    mirt__write_name(out, "op", node->op->name, false);
    if (node->num_in && !mirt__write_tensors(model, out, "input", node->in, node->num_in, layers, label)) return false;
    mirt__text_add(out, ",\"attributes\":{");
    for (int i = 0; i < MIRT__COUNT(mirt__file_attrs); i++) {
        const mirt__file_attr *a = &mirt__file_attrs[i];
        if (memcmp((const char *)&node->a + a->field.offset, (const char *)&none + a->field.offset, a->size) == 0) continue;
        mirt__write_field(out, &a->field, (const char *)&node->a, plain);
        plain = false;
    }
    mirt__text_add(out, "}");
    if (node->a.data) mirt__write_data(out, &node->a);
    mirt__text_add(out, "}");
    return true;
}

/* Layers, and the nodes before, between and behind them. */
static bool mirt__write_entries(const mirt_model *model, mirt__text *out) {
    bool first = true;
    int node = 0;
    for (int i = 0; i <= model->num_layers; i++) {
        const mirt__layer *layer = i < model->num_layers ? model->layer[i] : NULL;
        for (; node < (layer ? layer->first_node : model->graph.count); node++, first = false) {
            if (!mirt__write_operation(model, out, node, i, first)) return false;
        }
        if (!layer) return true;
        if (!mirt__write_layer(model, out, i, first)) return false;
        node = layer->first_node + layer->num_nodes;
        first = false;
    }
    return true;
}

/* Terms of the loss that no layer makes again. */
static bool mirt__write_terms(const mirt_model *model, mirt__text *out) {
    int term = 0, written = 0;
    for (int i = 0; i <= model->num_layers; i++) {
        const mirt__layer *layer = i < model->num_layers ? model->layer[i] : NULL;
        for (; term < (layer ? layer->first_term : model->num_terms); term++, written++) {
            mirt__text_add(out, written ? "," : ",\"losses\":[");
            if (!mirt__write_tensor(model, out, model->term[term], model->num_layers, "a term of the loss")) return false;
        }
        if (layer) term = layer->first_term + layer->num_terms;
    }
    if (written) mirt__text_add(out, "]");
    return true;
}

MIRT__LIB mirt_status mirt__architecture_write(mirt_model *model, mirt__text *out) {
    for (int i = 0; i < model->graph.count; i++) model->graph.node[i]->out[0]->first = i;
    mirt__text_add(out, "{");
    mirt__write_name(out, "name", model->name, true);
    mirt__text_add(out, ",\"layers\":[");
    if (!mirt__write_entries(model, out)) return mirt_last_status();
    mirt__text_add(out, "]");
    if (!mirt__write_tensors(model, out, "output", model->output, model->num_outputs, model->num_layers, "the output") || !mirt__write_terms(model, out)) {
        return mirt_last_status();
    }
    mirt__text_add(out, "}");
    return out->failed ? mirt_last_status() : MIRT_OK;
}

/* >>reading */

/* What has been recorded so far. */
typedef struct mirt__entry {
    const char *name; /* the file's */
    mirt_tensor *const *out;
    int num_out;
} mirt__entry;
typedef struct mirt__reading {
    mirt_model *model;
    mirt__entry *entry;
    int count;
} mirt__reading;

/* A name, or [name, number]; NULL, without an error, when there is no such tensor. */
static mirt_tensor *mirt__read_tensor(const mirt__reading *r, const mirt__json *json) {
    int64_t slot = 0;
    if (json->type == MIRT__JSON_ARRAY) {
        if (json->count != 2 || json->item[1]->type != MIRT__JSON_NUMBER || !json->item[1]->integral) return NULL;
        slot = json->item[1]->integer;
        json = json->item[0];
    }
    for (int i = r->count - 1; json->type == MIRT__JSON_STRING && i >= 0; i--) {
        if (strcmp(r->entry[i].name, json->string) == 0) return slot >= 0 && slot < r->entry[i].num_out ? r->entry[i].out[slot] : NULL;
    }
    return NULL;
}

/* The members "input" or "inputs" of `json`, for key "input"; how many, or -1 without an error. */
static int mirt__read_tensors(const mirt__reading *r, const mirt__json *json, const char *key, mirt_tensor **out, int capacity) {
    char plural[16];
    snprintf(plural, sizeof plural, "%ss", key);
    const mirt__json *one = mirt__json_member(json, key), *all = mirt__json_member(json, plural);
    if (one && all) return -1;
    if (one) return (out[0] = mirt__read_tensor(r, one)) ? 1 : -1;
    if (!all) return 0;
    if (all->type != MIRT__JSON_ARRAY || all->count > (size_t)capacity) return -1;
    for (size_t i = 0; i < all->count; i++) {
        if (!(out[i] = mirt__read_tensor(r, all->item[i]))) return -1;
    }
    return (int)all->count;
}

static bool mirt__read_done(mirt__reading *r, const char *name, mirt_tensor *const *out, int num_out) {
    mirt__entry *e = &r->entry[r->count++];
    e->name = name;
    e->out = out;
    e->num_out = num_out;
    return true;
}

static bool mirt__read_layer(mirt__reading *r, const mirt__json *json, const char *class_name, const char *name) {
    mirt_model *model = r->model;
    const mirt__layer_class *cls = mirt__layer_class_by_name(model->strategy, class_name);
    const mirt__json *config = mirt__json_get(json, "config", MIRT__JSON_OBJECT);
    mirt_tensor *in[MIRT__MAX_IN];
    char other[MIRT__JSON_LABEL];
    if (!cls) {
        mirt__fail(MIRT_E_FORMAT, "class %s is neither the library's nor known by mirt_register_layer", mirt__json_label(class_name, other));
        return false;
    }
    char *desc = config ? (char *)mirt__pool_alloc(&model->graph.pool, cls->desc_size) : NULL;
    if (!desc) return false;
    for (int i = 0; i < cls->num_fields; i++) {
        if (mirt__read_field(config, &cls->fields[i], desc) != MIRT_OK) return false;
    }
    int num_in = mirt__read_tensors(r, json, "input", in, MIRT__MAX_IN);
    if (cls->max_in == 0 && num_in != 0) return mirt__fail(MIRT_E_FORMAT, "an InputLayer has no input"), false;
    if (num_in < 0 || (num_in == 0 && cls->min_in > 0)) return mirt__fail(MIRT_E_FORMAT, "its input is not a layer before it"), false;
    if (!mirt__layer_add(model, cls, in, num_in, desc, name)) return false;
    const mirt__layer *layer = model->layer[model->num_layers - 1];
    return mirt__read_done(r, name, layer->out, layer->num_out);
}

static int mirt__hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static mirt_tensor *mirt__read_constant(mirt__reading *r, const mirt__json *json, const mirt__attrs *a) {
    const mirt__json *data = mirt__json_get(json, "data", MIRT__JSON_STRING);
    const size_t size = a->dtype == MIRT_FLOAT32 || a->dtype == MIRT_INT32 ? 4 : 1;
    if (!data) return NULL;
    int64_t count = mirt__shape_count(&a->shape);
    bool good = count > 0 && !mirt__is_batched(&a->shape) && strlen(data->string) / 2 / size == (size_t)count && strlen(data->string) == 2 * size * (size_t)count;
    unsigned char *bytes = good ? (unsigned char *)mirt__pool_alloc(&r->model->graph.pool, (size_t)count * size) : NULL;
    if (good && !bytes) return NULL;
    for (size_t i = 0; good && i < (size_t)count * size; i++) {
        int high = mirt__hex_digit(data->string[2 * i]), low = mirt__hex_digit(data->string[2 * i + 1]);
        good = high >= 0 && low >= 0;
        if (good) bytes[i] = (unsigned char)(16 * high + low);
        good = good && (a->dtype != MIRT_BOOL || bytes[i] <= 1);
    }
    if (good) return mirt__constant_op(&r->model->graph, mirt_make_array(bytes, a->dtype, a->shape));
    return mirt__fail(MIRT_E_FORMAT, "its data are not those of its shape and dtype"), (mirt_tensor *)NULL;
}

static mirt_status mirt__read_attributes(const mirt__json *json, mirt__attrs *a) {
    char label[MIRT__JSON_LABEL];
    size_t known = 0;
    *a = mirt__no_attrs();
    for (int i = 0; i < MIRT__COUNT(mirt__file_attrs); i++) {
        const mirt__field *field = &mirt__file_attrs[i].field;
        if (!mirt__json_member(json, field->name)) continue;
        if (mirt__read_field(json, field, (char *)a) != MIRT_OK) return mirt_last_status();
        known++;
    }
    for (size_t i = 0; known < json->count && i < json->count; i++) {
        bool found = false;
        for (int k = 0; k < MIRT__COUNT(mirt__file_attrs); k++) found = found || strcmp(mirt__file_attrs[k].field.name, json->item[i]->key) == 0;
        if (!found) return mirt__fail(MIRT_E_FORMAT, "attribute \"%s\" is not known to this version", mirt__json_label(json->item[i]->key, label));
    }
    return MIRT_OK;
}

static bool mirt__read_operation(mirt__reading *r, const mirt__json *json, const char *name) {
    const mirt__json *op = mirt__json_get(json, "op", MIRT__JSON_STRING), *attributes = mirt__json_get(json, "attributes", MIRT__JSON_OBJECT);
    mirt_tensor *in[MIRT__MAX_IN], *out;
    char label[MIRT__JSON_LABEL];
    mirt__attrs a;
    if (!op || !attributes || mirt__read_attributes(attributes, &a) != MIRT_OK) return false;
    const mirt__file_op *row = mirt__file_op_of(op->string);
    if (!row) return mirt__fail(MIRT_E_FORMAT, "operation %s is not one that files may hold", mirt__json_label(op->string, label)), false;
    if (a.kind >= row->kinds) return mirt__fail(MIRT_E_FORMAT, "there is no %s of kind %d", label, a.kind), false;
    int num_in = mirt__read_tensors(r, json, "input", in, MIRT__MAX_IN), min_in = row->min_in, max_in = row->max_in;
    if (row->id == MIRT__OP_logic) min_in = max_in = a.kind == MIRT__NOT ? 1 : a.kind == MIRT__WHERE ? 3 : 2;
    if ((row->id == MIRT__OP_slice || row->id == MIRT__OP_pad) && num_in == 1 && in[0]->shape.rank != a.shape.rank) num_in = -1;
    if (num_in < min_in || num_in > max_in) return mirt__fail(MIRT_E_FORMAT, "its inputs are not what it takes, or not made before it"), false;
    out = row->id == MIRT__OP_constant ? mirt__read_constant(r, json, &a) : mirt__record(&r->model->graph, row->id, &a, in, num_in);
    return out && mirt__read_done(r, name, out->node->out, out->node->num_out);
}

static bool mirt__read_variable(mirt__reading *r, const mirt__json *json, const char *name) {
    const mirt__json *config = mirt__json_get(json, "config", MIRT__JSON_OBJECT);
    mirt__variable_desc desc;
    memset(&desc, 0, sizeof desc);
    for (int i = 0; i < MIRT__COUNT(mirt__variable_fields); i++) {
        if (!config || mirt__read_field(config, &mirt__variable_fields[i], (char *)&desc) != MIRT_OK) return false;
    }
    mirt_tensor *v = NULL; (void)name;/*TEMP*/
    return v && mirt__read_done(r, name, v->node->out, 1);
}

static bool mirt__read_entry(mirt__reading *r, const mirt__json *json, size_t number) {
    char label[MIRT__JSON_LABEL];
    if (json->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "layer number %zu is not an object", number), false;
    const mirt__json *class_name = mirt__json_get(json, "class_name", MIRT__JSON_STRING), *name = mirt__json_get(json, "name", MIRT__JSON_STRING);
    if (!class_name || !name) return mirt__fail_at("layer number %zu", number), false;
    bool operation = strcmp(class_name->string, "Operation") == 0;
    bool good = operation ? mirt__read_operation(r, json, name->string) :
                strcmp(class_name->string, "Variable") == 0 ? mirt__read_variable(r, json, name->string) :
                mirt__read_layer(r, json, class_name->string, name->string);
    if (!good && (operation || r->model->graph.status == MIRT_OK)) mirt__fail_at("layer %s", mirt__json_label(name->string, label));
    return good;
}

static mirt_status mirt__read_entries(mirt__reading *r, const mirt__json *json) {
    const mirt__json *layers = mirt__json_get(json, "layers", MIRT__JSON_ARRAY), *losses = mirt__json_member(json, "losses");
    mirt_tensor *out[MIRT_MAX_OUTPUTS], *term;
    if (!layers) return mirt_last_status();
    if (layers->count > MIRT__MAX_ENTRIES) return mirt__fail(MIRT_E_FORMAT, "%zu layers; a model has at most %d layers and operations", layers->count, MIRT__MAX_ENTRIES);
    if (!mirt__grow((void **)&r->entry, 0, layers->count + 1, sizeof *r->entry)) return mirt_last_status();
    for (size_t i = 0; i < layers->count; i++) {
        if (!mirt__read_entry(r, layers->item[i], i + 1)) return mirt_last_status();
    }
    int count = mirt__read_tensors(r, json, "output", out, MIRT_MAX_OUTPUTS);
    if (count == 0) return mirt__fail(MIRT_E_FORMAT, "\"output\" is missing");
    if (count < 0) return mirt__fail(MIRT_E_FORMAT, "the output is not a layer");
    mirt_model_outputs(r->model, out, count);
    if (losses && losses->type != MIRT__JSON_ARRAY) return mirt__fail(MIRT_E_FORMAT, "the losses are not an array");
    for (size_t i = 0; losses && i < losses->count; i++) {
        if (!(term = mirt__read_tensor(r, losses->item[i]))) return mirt__fail(MIRT_E_FORMAT, "a term of the loss is not an operation's");
        if (!mirt__term_add(r->model, term)) return mirt_last_status();
    }
    return r->model->graph.status == MIRT_OK ? MIRT_OK : mirt__fail(r->model->graph.status, "%s", r->model->graph.error);
}

MIRT__LIB mirt_status mirt__architecture_read(mirt_model *model, const mirt__json *architecture) {
    mirt__reading r;
    memset(&r, 0, sizeof r);
    r.model = model;
    if (architecture->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the architecture is not an object");
    const mirt__json *name = mirt__json_get(architecture, "name", MIRT__JSON_STRING);
    if (!name || !(model->name = mirt__pool_strdup(&model->graph.pool, name->string))) return mirt_last_status();
    mirt_status status = mirt__read_entries(&r, architecture);
    mirt__free(r.entry);
    return status;
}

#undef MIRT__MAX_ENTRIES

/* >>section train/trainer.h */

#ifndef MIRT__TRAINER_H
#define MIRT__TRAINER_H
/* What a model runs: its programs, the memory they work on, and the state of the step under way. */

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

/* >>section train/trainer.c */

MIRT__LIB mirt_status mirt__need_compiled(const mirt_model *model, const char *caller) {
    if (!model) return mirt__fail_missing(caller, "model");
    if (!model->compiled) return mirt__fail(MIRT_E_STATE, "%s: %s is not compiled; call mirt_compile first", caller, model->name);
    return MIRT_OK;
}

MIRT__LIB mirt__real *mirt__gradient_at(const mirt_model *model, int device, int slot) {
    return (mirt__real *)(void *)(model->trainer->block[device] + (size_t)slot * model->weight_bytes);
}

/* >>programs */

static bool mirt__variable_trainable(const void *arg, int variable) { return ((const mirt_model *)arg)->variable[variable].trainable; }

/* The model's nodes in the program's graph, reading data of `dtype`. */
static mirt_tensor *mirt__program_forward(mirt__graph *graph, const mirt_model *model, mirt_dtype dtype, const mirt__mode *mode) {
    mirt_tensor *output = model->output[0];
    mirt_tensor *x = mirt__input_op(graph, MIRT__IO_X, dtype, &model->input[0]->shape);
    if (!x || !(x = mirt_cast(x, MIRT_FLOAT32))) return NULL;
    mirt__copying copying;
    const mirt_tensor *input = model->input[0];
    memset(&copying, 0, sizeof copying);
    copying.source = &model->graph;
    copying.replaced = &input;
    copying.replacement = &x;
    copying.num_replaced = 1;
    copying.mode = mode;
    return mirt__graph_copy(graph, &copying, &output, 1) ? output : NULL;
}

/* Where probabilities come straight from the loss's own activation (softmax, sigmoid), it is computed
   from what went into that, which loses no digits. Keras does the same. */
static mirt_tensor *mirt__loss_input(const mirt_model *model, mirt_tensor *output, bool *from_logits) {
    const mirt__node *node = output->node;
    mirt_activation_kind undo = mirt__loss_class_get(model->config.loss)->undo;
    mirt_activation_kind last = node->id == MIRT__OP_softmax ? MIRT_SOFTMAX : mirt__activation_of(node);
    *from_logits = model->config.from_logits;
    if (*from_logits || undo == MIRT_LINEAR || last != undo) return output;
    *from_logits = true;
    return node->in[0];
}

/* Loss and metrics of `output` against labels; keep[0] is the loss. */
static int mirt__program_results(mirt__graph *graph, const mirt_model *model, mirt_tensor *output, mirt_tensor **keep) {
    mirt_dtype dtype;
    int64_t per_sample;
    int count = 0, metrics = mirt__num_metrics(model);
    if (mirt__labels_wanted(model, &dtype, &per_sample) != MIRT_OK) return -1;
    mirt_shape shape = mirt_make_shape(1, per_sample, 0, 0, 0, 0);
    shape.dim[0] = MIRT_ROWS;
    if (dtype == MIRT_INT32) shape.rank = 1;
    mirt_tensor *labels = mirt__input_op(graph, MIRT__IO_LABELS, dtype, &shape);
    bool from_logits;
    mirt_tensor *x = mirt__loss_input(model, output, &from_logits);
    keep[count++] = mirt__loss_op(model->config.loss, from_logits, x, labels);
    for (int i = 0; i < metrics; i++) keep[count++] = mirt__metric_class_get(model->config.metrics[i])->record(model, output, labels);
    for (int i = 0; i < count; i++) {
        if (!keep[i]) return -1;
    }
    return count;
}

/* Records the gradients and appends them to outputs, one for every trainable variable reached. */
static int mirt__program_gradients(mirt__graph *graph, const mirt_model *model, mirt_tensor *loss, mirt__output *outputs, int count) {
    int forward = graph->count;
    mirt_tensor *weight = mirt__loss_weight_op(graph, MIRT__WEIGHT_SAMPLE);
    if (!mirt__gradients(graph, &loss, &weight, 1)) return -1;
    for (int i = 0; i < forward; i++) {
        mirt__node *node = graph->node[i];
        if (node->id != MIRT__OP_variable || !node->out[0]->grad) continue;
        outputs[count].tensor = node->out[0]->grad;
        outputs[count].space = MIRT__SPACE_GRADIENT;
        outputs[count++].offset = model->variable[node->a.index].offset;
    }
    return count;
}

static int mirt__program_record(mirt__program *program, const mirt_model *model, mirt__program_kind kind, mirt_dtype dtype,
                                mirt__output *outputs, mirt_tensor **keep) {
    mirt__graph *graph = &program->graph;
    mirt__mode mode;
    memset(&mode, 0, sizeof mode);
    mode.training = kind == MIRT__TRAIN;
    keep[0] = mirt__program_forward(graph, model, dtype, &mode);
    int count = keep[0] ? 1 : -1;
    if (count > 0 && kind != MIRT__PREDICT) count = mirt__program_results(graph, model, keep[0], keep);
    if (count < 0) return -1;
    mirt__graph_mark_gradients(graph, mirt__variable_trainable, model);
    mirt__fuse_forward(graph, keep, count);
    for (int i = 0; i < count; i++) {
        outputs[i].tensor = keep[i];
        outputs[i].space = MIRT__SPACE_IO;
        outputs[i].offset = kind == MIRT__PREDICT ? (size_t)MIRT__IO_OUTPUT : (size_t)(MIRT__IO_LOSS + i);
    }
    if (kind != MIRT__TRAIN) return count;
    count = mirt__program_gradients(graph, model, keep[0], outputs, count);
    for (int i = 0; i < count; i++) keep[i] = outputs[i].tensor;
    if (count > 0) mirt__fuse_backward(graph, keep, count);
    return count;
}

static mirt_status mirt__program_build(mirt__program *program, const mirt_model *model, mirt__program_kind kind, mirt_dtype dtype, int64_t max_rows) {
    size_t most = (size_t)model->num_variables + 1 + MIRT_MAX_METRICS;
    mirt__output *outputs = (mirt__output *)mirt__calloc(most, sizeof *outputs);
    mirt_tensor **keep = (mirt_tensor **)mirt__calloc(most, sizeof *keep);
    size_t *offset = (size_t *)mirt__calloc((size_t)model->num_variables + 1, sizeof *offset);
    mirt__graph_init(&program->graph, NULL);
    bool good = outputs && keep && offset;
    if (good) {
        for (int i = 0; i < model->num_variables; i++) offset[i] = model->variable[i].offset;
        int count = mirt__program_record(program, model, kind, dtype, outputs, keep);
        good = count >= 0 && mirt__plan(program, outputs, count, offset, max_rows);
    }
    mirt__free(outputs);
    mirt__free(keep);
    mirt__free(offset);
    return good ? MIRT_OK : mirt_last_status();
}

/* >>memory */

static bool mirt__layout_add(size_t *total, size_t bytes) { return mirt__add_size(*total, mirt__align_up(bytes), total); }

static mirt_status mirt__layout_compute(mirt__trainer *t, const mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    mirt__layout *l = &t->layout;
    memset(l, 0, sizeof *l);
    if (t->needs.batch[MIRT__TRAIN]) l->gradients = (size_t)mirt__gradient_slots(s, s->num_replicas, false) * model->weight_bytes;
    int64_t rows = 0;
    size_t row = 0, scratch;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) {
        const mirt__program *p = &t->program[k];
        if (p->arena > l->arena) l->arena = p->arena;
        if (p->shared > l->shared) l->shared = p->shared;
        if (p->scratch > l->scratch_per_thread) l->scratch_per_thread = p->scratch;
        if (k != MIRT__PREDICT && t->needs.batch[k] > rows) rows = t->needs.batch[k];
        if (p->io_row[MIRT__IO_LABELS] > row) row = p->io_row[MIRT__IO_LABELS];
    }
    bool fits = mirt__mul_size(l->scratch_per_thread, (size_t)s->threads, &scratch) && mirt__layout_add(&l->total, l->gradients) &&
                mirt__layout_add(&l->total, l->arena) && mirt__layout_add(&l->total, l->shared) && mirt__layout_add(&l->total, scratch);
    row += (size_t)(1 + mirt__num_metrics(model)) * sizeof(mirt__real);
    fits = fits && mirt__mul_size(row, (size_t)rows, &l->host);
    return fits ? MIRT_OK : mirt__fail(MIRT_E_NOMEM, "a batch of this size needs more memory than can be addressed");
}

static mirt_status mirt__trainer_plan(mirt__trainer *t, const mirt_model *model, const mirt__needs *needs) {
    const mirt_strategy *s = model->strategy;
    t->needs = *needs;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) {
        int64_t shares = s->num_replicas;
        if (!needs->batch[k]) continue;
        int64_t rows = needs->batch[k] / shares + (needs->batch[k] % shares != 0);
        if (mirt__program_build(&t->program[k], model, (mirt__program_kind)k, needs->x_dtype, rows) != MIRT_OK) return mirt_last_status();
    }
    return mirt__layout_compute(t, model);
}

MIRT__LIB mirt__trainer *mirt__trainer_dry(mirt_model *model, const mirt__needs *needs) {
    mirt__trainer *t = (mirt__trainer *)mirt__calloc(1, sizeof *t);
    if (t && mirt__trainer_plan(t, model, needs) == MIRT_OK) return t;
    mirt__trainer_dry_free(t);
    return NULL;
}

MIRT__LIB void mirt__trainer_dry_free(mirt__trainer *t) {
    if (!t) return;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) mirt__program_free(&t->program[k]);
    for (int d = 0; d < MIRT__MAX_DEVICES; d++) mirt__aligned_free(t->block[d]);
    mirt__aligned_free(t->host);
    mirt__free(t);
}

static mirt_status mirt__trainer_allocate(mirt__trainer *t, const mirt_model *model) {
    for (int d = 0; d < model->strategy->num_devices; d++) {
        t->block[d] = (char *)mirt__aligned_alloc(t->layout.total);
        if (!t->block[d]) return mirt_last_status();
        memset(t->block[d], 0, t->layout.gradients);
    }
    t->host = (char *)mirt__aligned_alloc(t->layout.host);
    if (!t->host) return mirt_last_status();
    int64_t rows = t->needs.batch[MIRT__TRAIN] > t->needs.batch[MIRT__EVALUATE] ? t->needs.batch[MIRT__TRAIN] : t->needs.batch[MIRT__EVALUATE];
    mirt__real *at = (mirt__real *)(void *)t->host;
    for (int i = 0; i < 1 + mirt__num_metrics(model); i++, at += rows) t->result[i] = at;
    t->labels = (char *)at;
    return MIRT_OK;
}

static bool mirt__needs_met(const mirt__trainer *t, mirt__needs *needs) {
    bool met = t->needs.x_dtype == needs->x_dtype;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) {
        met = met && needs->batch[k] <= t->needs.batch[k];
        if (t->needs.batch[k] > needs->batch[k]) needs->batch[k] = t->needs.batch[k];
    }
    return met;
}

MIRT__LIB mirt_status mirt__trainer_prepare(mirt_model *model, const mirt__needs *needs) {
    mirt__needs all = *needs;
    mirt__trainer *old = model->trainer;
    if (old && mirt__needs_met(old, &all)) return MIRT_OK;
    mirt__trainer *t = mirt__trainer_dry(model, &all);
    if (!t) return mirt_last_status();
    if (mirt__trainer_allocate(t, model) != MIRT_OK) {
        mirt__trainer_dry_free(t);
        return mirt_last_status();
    }
    mirt__trainer_dry_free(old);
    model->trainer = t;
    return MIRT_OK;
}

MIRT__LIB void mirt__trainer_free(mirt_model *model) {
    mirt__trainer_dry_free(model->trainer);
    model->trainer = NULL;
}

/* >>section train/step.c */

/* >>batches */

static const char *mirt__sample_text(const mirt__batch *batch, int64_t row, char out[32]) {
    snprintf(out, 32, "sample %lld", (long long)(batch->index ? batch->index[row] : row));
    return out;
}

MIRT__LIB mirt_status mirt__check_data(const mirt_model *model, const mirt__data_spec *spec, bool labels) {
    mirt_shape want = model->input[0]->shape;
    mirt_dtype dtype;
    int64_t per_sample;
    char a[96], b[96];
    for (int i = 1; i < want.rank; i++) want.dim[i - 1] = want.dim[i];
    want.dim[--want.rank] = 0;
    if (!mirt__shape_equal(&want, &spec->field[0].shape)) {
        return mirt__fail(MIRT_E_SHAPE, "samples are %s, %s takes %s", mirt__shape_text(&spec->field[0].shape, a), model->name, mirt__shape_text(&want, b));
    }
    if (!labels) return MIRT_OK;
    if (!model->config.loss) return mirt__fail(MIRT_E_STATE, "%s is compiled without a loss", model->name);
    if (!spec->num_y) return mirt__fail(MIRT_E_INVALID, "the data set has no labels");
    if (mirt__labels_wanted(model, &dtype, &per_sample) != MIRT_OK) return mirt_last_status();
    const mirt__loss_class *cls = mirt__loss_class_get(model->config.loss);
    int64_t have = mirt__shape_count(&spec->field[spec->num_x].shape);
    if (have == per_sample) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "labels have %lld value%s a sample, %s of %s takes %lld%s", (long long)have, have == 1 ? "" : "s",
                      cls->name, model->name, (long long)per_sample,
                      cls->sparse ? " (the class number)" : cls->classes && have == 1 ? " (one-hot); sparse_categorical_crossentropy takes class numbers" : "");
}

static double mirt__label_at(const void *labels, mirt_dtype dtype, int64_t i) {
    if (dtype == MIRT_UINT8 || dtype == MIRT_BOOL) return ((const uint8_t *)labels)[i];
    if (dtype == MIRT_INT32) return ((const int32_t *)labels)[i];
    return (double)((const float *)labels)[i];
}

/* Class numbers, checked against the number of classes. */
static mirt_status mirt__take_classes(mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch) {
    int32_t *out = (int32_t *)(void *)model->trainer->labels;
    int64_t classes = model->output[0]->shape.dim[1];
    char text[32];
    for (int64_t i = 0; i < batch->rows; i++) {
        double label = mirt__label_at(batch->field[spec->num_x], spec->field[spec->num_x].dtype, i);
        if (!(label >= 0 && label < (double)classes)) {
            return mirt__fail(MIRT_E_INVALID, "label %g of %s is not one of the %lld classes 0 to %lld", label, mirt__sample_text(batch, i, text),
                              (long long)classes, (long long)classes - 1);
        }
        out[i] = (int32_t)label;
        if ((double)out[i] != label) return mirt__fail(MIRT_E_INVALID, "label %g of %s is not a whole number", label, mirt__sample_text(batch, i, text));
    }
    return MIRT_OK;
}

static mirt_status mirt__take_labels(mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch) {
    if (mirt__loss_class_get(model->config.loss)->sparse) return mirt__take_classes(model, spec, batch);
    mirt__real *out = (mirt__real *)(void *)model->trainer->labels;
    const mirt__data_field *field = &spec->field[spec->num_x];
    int64_t count = batch->rows * mirt__shape_count(&field->shape);
    for (int64_t i = 0; i < count; i++) out[i] = (mirt__real)mirt__label_at(batch->field[spec->num_x], field->dtype, i);
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__begin_batch(mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch, bool labels) {
    mirt__trainer *t = model->trainer;
    t->stage = MIRT__IDLE;
    if (labels && mirt__take_labels(model, spec, batch) != MIRT_OK) return mirt_last_status();
    t->x = (const char *)batch->field[0];
    t->rows = batch->rows;
    return MIRT_OK;
}

/* >>replay */

static void mirt__device_bases(const mirt_model *model, int device, mirt__bases *b) {
    const mirt__trainer *t = model->trainer;
    const mirt__layout *l = &t->layout;
    memset(b, 0, sizeof *b);
    b->team = model->strategy->device[device].team;
    b->weight = model->weight[device];
    b->gradient = t->block[device];
    b->arena = b->gradient + mirt__align_up(l->gradients);
    b->shared = b->arena + mirt__align_up(l->arena);
    b->scratch = b->shared + mirt__align_up(l->shared);
    b->scratch_per_thread = l->scratch_per_thread;
}

/* Replays `program` on rows [first, first + rows) of the batch under way. */
static void mirt__replay(const mirt_model *model, const mirt__program *program, mirt__bases *b, int64_t first, int64_t rows, bool training) {
    const mirt__trainer *t = model->trainer;
    mirt__step_info run;
    run.seed = model->strategy->seed;
    run.step = model->step;
    run.first_row = first;
    run.loss_scale = model->config.reduction == MIRT_SUM ? 1.0 : 1.0 / (double)t->rows;
    run.training = training;
    char *base[MIRT__MAX_IO];
    memset(base, 0, sizeof base);
    memcpy(&base[MIRT__IO_X], &t->x, sizeof t->x); /* read only: the program never writes an input */
    base[MIRT__IO_LABELS] = t->labels;
    base[MIRT__IO_OUTPUT] = t->output;
    for (int i = 0; i < 1 + MIRT_MAX_METRICS; i++) base[MIRT__IO_LOSS + i] = (char *)t->result[i];
    for (int i = 0; i < MIRT__MAX_IO; i++) b->io[i] = base[i] ? base[i] + (size_t)first * program->io_row[i] : NULL;
    mirt__program_run(program, model->strategy->kernels, &run, b, rows);
}

static mirt__where mirt__plain_where(const mirt_model *model, int device) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.team = model->strategy->device[device].team;
    return where;
}

/* Forward and backward of the device's replicas; their gradients join a binary counter of buffers. */
static void mirt__device_gradients(void *arg, int device) {
    mirt_model *model = (mirt_model *)arg;
    const mirt_strategy *s = model->strategy;
    const mirt__device *own = &s->device[device];
    mirt__bases bases;
    mirt__tree_stack stack;
    mirt__where where = mirt__plain_where(model, device);
    stack.depth = 0;
    mirt__device_bases(model, device, &bases);
    for (int r = own->first_replica; r < own->first_replica + own->num_replicas; r++) {
        int64_t first, rows = mirt__share(model->trainer->rows, s->num_replicas, r, &first);
        if (rows == 0) break;
        bases.gradient = (char *)mirt__gradient_at(model, device, stack.depth);
        mirt__replay(model, &model->trainer->program[MIRT__TRAIN], &bases, first, rows, true);
        for (int merges = mirt__tree_push(&stack, r, 1), top = stack.depth - 1 + merges; merges > 0; merges--, top--) {
            s->kernels->accumulate(mirt__gradient_at(model, device, top - 1), mirt__gradient_at(model, device, top),
                                   (int64_t)(model->weight_bytes / sizeof(mirt__real)), &where);
        }
    }
}

MIRT__LIB void mirt__device_range(const mirt_model *model, int device, int64_t *begin, int64_t *end) {
    mirt__exchange_range(model->strategy, (int64_t)(model->weight_bytes / sizeof(mirt__real)), device, begin, end);
}

/* After an all-reduce the sum is every device's first buffer. */
MIRT__LIB void mirt__device_exchange(const mirt_model *model, int device, mirt__exchange *out) {
    const mirt_strategy *s = model->strategy;
    bool reduced = model->trainer->stage == MIRT__REDUCED;
    int64_t active = reduced ? 1 : model->trainer->rows < s->num_replicas ? model->trainer->rows : s->num_replicas;
    mirt__exchange_plan(s, s->num_replicas, (int)active, false, device, out);
}

/* Sums all parts of the device's share in the plan's order, updates, writes into every copy. */
static void mirt__device_update(void *arg, int device) {
    mirt_model *model = (mirt_model *)arg;
    mirt__exchange x;
    mirt__update u;
    mirt__where where = mirt__plain_where(model, device);
    mirt__device_exchange(model, device, &x);
    memset(&u, 0, sizeof u);
    mirt__device_range(model, device, &u.begin, &u.end);
    u.parts = x.parts;
    for (int i = 0; i < x.parts; i++) u.part[i] = mirt__gradient_at(model, x.device[i], x.slot[i]);
    for (int i = 0; i + 1 < x.parts; i++) {
        u.tree[i].into = x.add[i].into;
        u.tree[i].from = x.add[i].from;
    }
    u.copies = mirt__weight_copies(model->strategy);
    for (int d = 0; d < u.copies; d++) u.weight[d] = (mirt__real *)(void *)model->weight[d];
    mirt__optimizer_update(model, model->strategy->kernels, model->trainer->rate, &u)(&u, &where);
}

static void mirt__device_train(void *arg, int device) {
    mirt__device_gradients(arg, device);
    mirt__devices_barrier(((mirt_model *)arg)->strategy);
    mirt__device_update(arg, device);
}

/* The rate of the coming step; only a schedule can give a wrong one. */
static mirt_status mirt__take_rate(mirt_model *model) {
    double rate = model->trainer->rate = mirt_get_learning_rate(model);
    if (rate >= 0 && rate <= (double)FLT_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "the learning-rate schedule gave %g for step %lld; it must be a finite number and not negative", rate,
                      (long long)model->step);
}

MIRT__LIB mirt_status mirt__run_train(mirt_model *model) {
    if (mirt__take_rate(model) != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_train, model);
    model->step++;
    model->trainer->stage = MIRT__IDLE;
    return MIRT_OK;
}

typedef struct mirt__forward_job {
    mirt_model *model;
    mirt__program_kind kind;
} mirt__forward_job;

/* Rows do not depend on each other here, so devices share them without regard to replicas. */
static void mirt__device_forward(void *arg, int device) {
    const mirt__forward_job *job = (const mirt__forward_job *)arg;
    const mirt_model *model = job->model;
    mirt__bases bases;
    const mirt__program *program = &model->trainer->program[job->kind];
    int64_t first, rows = mirt__share(model->trainer->rows, model->strategy->num_devices, device, &first);
    mirt__device_bases(model, device, &bases);
    for (int64_t end = first + rows; first < end; first += rows) {
        rows = end - first < program->max_rows ? end - first : program->max_rows;
        mirt__replay(model, program, &bases, first, rows, false);
    }
}

MIRT__LIB void mirt__run_forward(mirt_model *model, mirt__program_kind kind) {
    mirt__forward_job job;
    job.model = model;
    job.kind = kind;
    mirt__on_devices(model->strategy, mirt__device_forward, &job);
}

/* >>results */

MIRT__LIB double mirt__add_results(const mirt_model *model, mirt__sums *sums) {
    const mirt__trainer *t = model->trainer;
    double own = 0;
    bool mean = model->config.reduction != MIRT_SUM;
    for (int64_t i = 0; i < t->rows; i++) {
        own += (double)t->result[0][i];
        if (mean) sums->loss += (double)t->result[0][i];
    }
    if (!mean) sums->loss += own * (double)t->rows; /* Keras weights a batch's loss by its size */
    for (int m = 0; m < mirt__num_metrics(model); m++) {
        for (int64_t i = 0; i < t->rows; i++) sums->metric[m] += (double)t->result[1 + m][i];
    }
    sums->count += t->rows;
    return mean ? own / (double)t->rows : own;
}

MIRT__LIB void mirt__logs_add(mirt_logs *logs, const char *name, double value) {
    if (logs->count == MIRT__COUNT(logs->name)) return;
    logs->name[logs->count] = name;
    logs->value[logs->count++] = value == value ? value : (double)NAN; /* of one sign, for those who print it */
}

MIRT__LIB void mirt__sums_to_logs(const mirt_model *model, const mirt__sums *sums, bool validation, mirt_logs *logs) {
    double count = sums->count ? (double)sums->count : 1;
    mirt__logs_add(logs, validation ? "val_loss" : "loss", sums->loss / count);
    for (int m = 0; m < mirt__num_metrics(model); m++) {
        const mirt__metric_class *metric = mirt__metric_class_get(model->config.metrics[m]);
        mirt__logs_add(logs, validation ? metric->val_name : metric->name, sums->metric[m] / count);
    }
}

/* >>the four stages */

static mirt_status mirt__spec_of_arrays(const mirt_array *x, const mirt_array *y, mirt__data_spec *spec, mirt__batch *batch) {
    memset(batch, 0, sizeof *batch);
    if (!x->data || x->shape.rank < 1 || x->shape.dim[0] < 1) return mirt__fail(MIRT_E_INVALID, "the batch has no samples");
    if (!y->data || y->shape.rank < 1) return mirt__fail(MIRT_E_INVALID, "the batch has no labels");
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = *x;
    data.y[0] = *y;
    if (mirt__arrays_spec(&data, spec, batch->field) != MIRT_OK) return mirt_last_status();
    spec->batch = batch->rows = spec->samples;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_scatter(mirt_model *model, mirt_array x, mirt_array y) {
    mirt__data_spec spec;
    mirt__batch batch;
    mirt__needs needs;
    memset(&needs, 0, sizeof needs);
    if (mirt__need_compiled(model, "mirt_scatter") != MIRT_OK || mirt__spec_of_arrays(&x, &y, &spec, &batch) != MIRT_OK ||
        mirt__check_data(model, &spec, true) != MIRT_OK) {
        return mirt_last_status();
    }
    needs.x_dtype = x.dtype;
    needs.batch[MIRT__TRAIN] = batch.rows;
    if (mirt__trainer_prepare(model, &needs) != MIRT_OK || mirt__begin_batch(model, &spec, &batch, true) != MIRT_OK) return mirt_last_status();
    model->trainer->stage = MIRT__SCATTERED;
    return MIRT_OK;
}

static mirt_status mirt__need_stage(const mirt_model *model, mirt__step_stage stage, const char *caller, const char *before) {
    if (!model) return mirt__fail_missing(caller, "model");
    if (model->trainer && model->trainer->stage == stage) return MIRT_OK;
    return mirt__fail(MIRT_E_STATE, "%s: call %s first", caller, before);
}

MIRT_API mirt_status mirt_grad(mirt_model *model, double *loss) {
    mirt__sums sums;
    memset(&sums, 0, sizeof sums);
    if (mirt__need_stage(model, MIRT__SCATTERED, "mirt_grad", "mirt_scatter") != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_gradients, model);
    double mean = mirt__add_results(model, &sums);
    if (loss) *loss = mean;
    model->trainer->stage = MIRT__GRADIENTS;
    return MIRT_OK;
}

/* The device's share: parts summed in place in the plan's order, then written to every device's
   first buffer. */
static void mirt__device_all_reduce(void *arg, int device) {
    mirt_model *model = (mirt_model *)arg;
    mirt__exchange x;
    mirt__where where = mirt__plain_where(model, device);
    int64_t begin, end;
    mirt__device_exchange(model, device, &x);
    mirt__device_range(model, device, &begin, &end);
    for (int i = 0; i + 1 < x.parts; i++) {
        int into = x.add[i].into, from = x.add[i].from;
        model->strategy->kernels->accumulate(mirt__gradient_at(model, x.device[into], x.slot[into]) + begin,
                                             mirt__gradient_at(model, x.device[from], x.slot[from]) + begin, end - begin, &where);
    }
    const mirt__real *sum = mirt__gradient_at(model, x.device[0], x.slot[0]) + begin;
    for (int d = 0; d < model->strategy->num_devices; d++) {
        mirt__real *to = mirt__gradient_at(model, d, 0) + begin;
        if (to != sum) memcpy(to, sum, (size_t)(end - begin) * sizeof *to);
    }
}

MIRT_API mirt_status mirt_all_reduce(mirt_model *model) {
    if (mirt__need_stage(model, MIRT__GRADIENTS, "mirt_all_reduce", "mirt_grad") != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_all_reduce, model);
    model->trainer->stage = MIRT__REDUCED;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_apply(mirt_model *model) {
    if (mirt__need_stage(model, MIRT__REDUCED, "mirt_apply", "mirt_all_reduce") != MIRT_OK) return mirt_last_status();
    if (mirt__take_rate(model) != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_update, model);
    model->step++;
    model->trainer->stage = MIRT__IDLE;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_train_step(mirt_model *model, mirt_array x, mirt_array y, double *loss) {
    mirt__sums sums;
    memset(&sums, 0, sizeof sums);
    if (mirt_scatter(model, x, y) != MIRT_OK) return mirt_last_status();
    if (mirt__run_train(model) != MIRT_OK) return mirt_last_status();
    double mean = mirt__add_results(model, &sums);
    if (loss) *loss = mean;
    return MIRT_OK;
}

MIRT_API int64_t mirt_replica_rows(const mirt_model *model, int replica, int64_t *first) {
    int64_t at = 0, rows = 0;
    if (model && model->trainer && replica >= 0 && replica < model->strategy->num_replicas) {
        rows = mirt__share(model->trainer->rows, model->strategy->num_replicas, replica, &at);
    }
    if (first) *first = at;
    return rows;
}

MIRT_API mirt_status mirt_get_gradient(mirt_model *model, const char *name, int device, float *out, size_t count) {
    const mirt_strategy *s = model ? model->strategy : NULL;
    if (!model || !model->trainer || (model->trainer->stage != MIRT__GRADIENTS && model->trainer->stage != MIRT__REDUCED)) {
        return mirt__fail(MIRT_E_STATE, "mirt_get_gradient: call mirt_grad first");
    }
    if (!name || !out) return mirt__fail(MIRT_E_INVALID, "mirt_get_gradient: no weight name or no place for the values");
    int index = mirt__variable_find(model, name);
    if (index < 0) return mirt_last_status();
    const mirt__variable *v = &model->variable[index];
    if (device < 0 || device >= s->num_devices) return mirt__fail(MIRT_E_DEVICE, "there is no device %d; the strategy has %d", device, s->num_devices);
    if ((int64_t)count != v->count) {
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld elements, not %llu", name, (long long)v->count, (unsigned long long)count);
    }
    /* the device's parts, the later ones added to the earlier as the tree does */
    mirt__exchange x;
    mirt__device_exchange(model, device, &x);
    bool reduced = model->trainer->stage == MIRT__REDUCED, any = false;
    for (size_t i = 0; i < count; i++) out[i] = 0;
    for (int p = x.parts - 1; p >= 0; p--) {
        if (!reduced && x.device[p] != device) continue;
        const mirt__real *g = mirt__gradient_at(model, reduced ? device : x.device[p], x.slot[p]) + v->offset / sizeof(mirt__real);
        for (size_t i = 0; i < count; i++) out[i] = any ? (float)g[i] + out[i] : (float)g[i];
        any = true;
    }
    return MIRT_OK;
}

/* >>section train/evaluate.c */

MIRT__LIB mirt_status mirt__evaluate_pass(mirt_model *model, mirt_dataset *dataset, mirt__sums *sums) {
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    mirt__batch batch;
    mirt_status status = mirt__dataset_begin(dataset, model->strategy->seed, 0);
    while (status == MIRT_OK) {
        status = mirt__dataset_next(dataset, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        status = mirt__begin_batch(model, spec, &batch, true);
        if (status != MIRT_OK) break;
        mirt__run_forward(model, MIRT__EVALUATE);
        mirt__add_results(model, sums);
    }
    return status;
}

MIRT__LIB mirt_dataset *mirt__batched(mirt_dataset *dataset, int64_t batch, bool shuffle, mirt_dataset **view) {
    if (mirt__dataset_spec(dataset)->batch) return dataset;
    return *view = mirt__dataset_batch_view(dataset, batch > 0 ? batch : 32, shuffle);
}

MIRT__LIB int64_t mirt__largest_batch(const mirt_dataset *dataset) {
    return mirt__data_most_rows(mirt__dataset_spec(dataset));
}

/* A batched form of `dataset`, made ready for `kind`; *view is to be destroyed after use. */
static mirt_dataset *mirt__ready(mirt_model *model, mirt_dataset *dataset, mirt__program_kind kind, mirt_dataset **view) {
    mirt__needs needs;
    memset(&needs, 0, sizeof needs);
    if (!dataset) {
        mirt__fail_missing(kind == MIRT__EVALUATE ? "mirt_evaluate" : "mirt_predict", "data set");
        return NULL;
    }
    if (dataset->busy) {
        mirt__fail(MIRT_E_STATE, "this data set is being trained on; give the callback one of its own");
        return NULL;
    }
    if (mirt__check_data(model, mirt__dataset_spec(dataset), kind == MIRT__EVALUATE) != MIRT_OK) return NULL;
    if (!(dataset = mirt__batched(dataset, 0, false, view))) return NULL;
    needs.x_dtype = mirt__dataset_spec(dataset)->field[0].dtype;
    needs.batch[kind] = mirt__largest_batch(dataset);
    return mirt__trainer_prepare(model, &needs) == MIRT_OK ? dataset : NULL;
}

MIRT_API mirt_status mirt_evaluate(mirt_model *model, mirt_dataset *dataset, mirt_logs *out) {
    mirt_dataset *view = NULL;
    mirt__sums sums;
    memset(&sums, 0, sizeof sums);
    if (mirt__need_compiled(model, "mirt_evaluate") != MIRT_OK) return mirt_last_status();
    dataset = mirt__ready(model, dataset, MIRT__EVALUATE, &view);
    mirt_status status = dataset ? mirt__evaluate_pass(model, dataset, &sums) : mirt_last_status();
    mirt_dataset_destroy(view);
    if (status == MIRT_OK && out) {
        memset(out, 0, sizeof *out);
        mirt__sums_to_logs(model, &sums, false, out);
    }
    return status;
}

MIRT_API mirt_status mirt_evaluate_arrays(mirt_model *model, mirt_array x, mirt_array y, mirt_logs *out) {
    mirt_dataset *dataset = mirt_arrays(x, y);
    mirt_status status = dataset ? mirt_evaluate(model, dataset, out) : mirt_last_status();
    mirt_dataset_destroy(dataset);
    return status;
}

/* Predictions go straight from the devices into the caller's memory; in the gradient tests' double
   precision they would not fit, so those read tensors another way. */
static mirt_status mirt__predict_pass(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity) {
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    mirt__batch batch;
    size_t per_sample = (size_t)mirt__shape_count(&model->output[0]->shape), done = 0;
    if (capacity / (per_sample ? per_sample : 1) < (size_t)spec->samples) {
        return mirt__fail(MIRT_E_SHAPE, "predictions of %lld samples need %llu floats, there is room for %llu", (long long)spec->samples,
                          (unsigned long long)(per_sample * (size_t)spec->samples), (unsigned long long)capacity);
    }
    mirt_status status = mirt__dataset_begin(dataset, model->strategy->seed, 0);
    while (status == MIRT_OK) {
        status = mirt__dataset_next(dataset, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        status = mirt__begin_batch(model, spec, &batch, false);
        if (status != MIRT_OK) break;
        model->trainer->output = (char *)(out + done);
        mirt__run_forward(model, MIRT__PREDICT);
        done += (size_t)batch.rows * per_sample;
    }
    return status;
}

MIRT_API mirt_status mirt_predict(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity) {
    mirt_dataset *view = NULL;
    if (mirt__need_compiled(model, "mirt_predict") != MIRT_OK) return mirt_last_status();
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_predict: no place for the predictions");
    dataset = mirt__ready(model, dataset, MIRT__PREDICT, &view);
    mirt_status status = dataset ? mirt__predict_pass(model, dataset, out, capacity) : mirt_last_status();
    mirt_dataset_destroy(view);
    return status;
}

MIRT_API mirt_status mirt_predict_arrays(mirt_model *model, mirt_array x, float *out, size_t capacity) {
    mirt_array none;
    memset(&none, 0, sizeof none);
    mirt_dataset *dataset = mirt_arrays(x, none);
    mirt_status status = dataset ? mirt_predict(model, dataset, out, capacity) : mirt_last_status();
    mirt_dataset_destroy(dataset);
    return status;
}

/* >>section train/progress.c */

#define MIRT__BAR 20

MIRT__LIB void mirt__progress_epoch(mirt__progress *progress, const mirt_model *model, int epoch, int epochs) {
    progress->terminal = mirt__log_is_terminal(model->strategy);
    progress->last = 0;
    mirt__log(model->strategy, MIRT_LOG_PROGRESS, "Epoch %d/%d", epoch + 1, epochs);
}

/* Appends to a line of `size` bytes; what does not fit is cut. */
MIRT__PRINTF(3, 4) static void mirt__line_add(char *line, size_t size, const char *format, ...) {
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, size - used, format, args);
    va_end(args);
}

/* "1s 2ms/step" as Keras writes it. */
static void mirt__progress_time(char *line, size_t size, double seconds, int64_t steps) {
    double step = seconds / (double)(steps > 0 ? steps : 1);
    mirt__line_add(line, size, " %.0fs ", seconds);
    if (step >= 1) mirt__line_add(line, size, "%.0fs/step", step);
    else if (step >= 1e-3) mirt__line_add(line, size, "%.0fms/step", step * 1e3);
    else mirt__line_add(line, size, "%.0fus/step", step * 1e6);
}

static void mirt__progress_bar(char *line, size_t size, int64_t done, int64_t all) {
    int64_t full = all > 0 ? MIRT__BAR * done / all : MIRT__BAR;
    for (int i = 0; i < MIRT__BAR; i++) mirt__line_add(line, size, "%s", i < full ? "\xe2\x94\x81" : " ");
}

MIRT__LIB void mirt__progress_line(mirt__progress *progress, const mirt_model *model, const mirt_event *event, bool done) {
    char line[480] = "";
    double now = mirt__now();
    if (!done && (!progress->terminal || now - progress->last < 0.1)) return;
    progress->last = now;
    mirt__line_add(line, sizeof line, "%s%lld/%lld ", progress->terminal ? "\r" : "", (long long)event->batch, (long long)event->batches);
    mirt__progress_bar(line, sizeof line, event->batch, event->batches);
    mirt__progress_time(line, sizeof line, event->seconds, event->batch);
    for (int i = 0; i < event->logs->count; i++) {
        const char *name = event->logs->name[i];
        if (strcmp(name, "batch_loss") == 0 || strcmp(name, "learning_rate") == 0) continue;
        mirt__line_add(line, sizeof line, " - %s: %.4f", name, event->logs->value[i]);
    }
    if (progress->terminal && done) mirt__line_add(line, sizeof line, "\n");
    mirt__log(model->strategy, MIRT_LOG_PROGRESS, "%s", line);
}

/* >>section train/fit.c */

/* One fit: what it was asked for and where it is. */
typedef struct mirt__fit {
    mirt_model *model;
    const mirt_fit_desc *desc;
    mirt_dataset *train, *validation;
    mirt__needs needs;
    mirt_event event;
    mirt_logs logs;
    mirt__sums sums;
    mirt__progress progress;
    int64_t images; /* trained on so far */
    bool stop, warned;
} mirt__fit;

typedef int (*mirt__callback_fn)(const mirt_event *event, void *user);
typedef enum mirt__moment {
    MIRT__TRAIN_BEGIN, MIRT__TRAIN_END, MIRT__EPOCH_BEGIN, MIRT__EPOCH_END, MIRT__BATCH_BEGIN, MIRT__BATCH_END
} mirt__moment;

static mirt__callback_fn mirt__callback_at(const mirt_callback *c, mirt__moment moment) {
    switch (moment) {
    case MIRT__TRAIN_BEGIN: return c->train_begin;
    case MIRT__TRAIN_END: return c->train_end;
    case MIRT__EPOCH_BEGIN: return c->epoch_begin;
    case MIRT__EPOCH_END: return c->epoch_end;
    case MIRT__BATCH_BEGIN: return c->batch_begin;
    default: return c->batch_end;
    }
}

static void mirt__tell(mirt__fit *fit, mirt__moment moment) {
    if (moment != MIRT__BATCH_END) fit->event.step = fit->model->step; /* a batch keeps its number to its end */
    for (int i = 0; i < MIRT_MAX_CALLBACKS && fit->desc->callbacks[i]; i++) {
        mirt__callback_fn fn = mirt__callback_at(fit->desc->callbacks[i], moment);
        if (fn && fn(&fit->event, fit->desc->callbacks[i]->user)) fit->stop = true;
    }
}

static mirt_status mirt__fit_prepare(mirt__fit *fit) {
    const mirt__data_spec *spec = mirt__dataset_spec(fit->train);
    mirt__needs *needs = &fit->needs;
    needs->x_dtype = spec->field[0].dtype;
    needs->batch[MIRT__TRAIN] = mirt__largest_batch(fit->train);
    if (mirt__check_data(fit->model, spec, true) != MIRT_OK) return mirt_last_status();
    if (fit->validation) {
        if (mirt__check_data(fit->model, mirt__dataset_spec(fit->validation), true) != MIRT_OK) return mirt__fail_at("validation");
        if (mirt__dataset_spec(fit->validation)->field[0].dtype != spec->field[0].dtype) {
            return mirt__fail(MIRT_E_INVALID, "validation samples are %s, training samples %s: they must agree",
                              mirt__dtype_name(mirt__dataset_spec(fit->validation)->field[0].dtype), mirt__dtype_name(spec->field[0].dtype));
        }
        needs->batch[MIRT__EVALUATE] = mirt__largest_batch(fit->validation);
    }
    return mirt__trainer_prepare(fit->model, needs);
}

static void mirt__set_logs(mirt__fit *fit, bool with_batch, double batch_loss) {
    fit->logs.count = 0;
    mirt__sums_to_logs(fit->model, &fit->sums, false, &fit->logs);
    if (with_batch) mirt__logs_add(&fit->logs, "batch_loss", batch_loss);
    mirt__logs_add(&fit->logs, "learning_rate", mirt_get_learning_rate(fit->model));
}

static bool mirt__max_steps_reached(const mirt__fit *fit) {
    return fit->desc->max_steps > 0 && fit->model->history.steps >= fit->desc->max_steps;
}

/* Once a fit: from here on every weight is lost. */
static void mirt__warn_of_nan(mirt__fit *fit, double loss) {
    if (loss == loss || fit->warned) return;
    fit->warned = true;
    mirt__log(fit->model->strategy, MIRT_LOG_WARNING, "the loss is not a number since step %lld: a lower learning rate may help, or the data holds NaN",
              (long long)fit->model->step);
}

static mirt_status mirt__train_epoch(mirt__fit *fit) {
    mirt_model *model = fit->model;
    const mirt__data_spec *spec = mirt__dataset_spec(fit->train);
    mirt__batch batch;
    memset(&fit->sums, 0, sizeof fit->sums);
    mirt_status status = mirt__dataset_begin(fit->train, model->strategy->seed, model->epoch++);
    double began = mirt__now(); /* loading the data is no training step */
    fit->event.batch = 0;
    while (status == MIRT_OK && !fit->stop && !mirt__max_steps_reached(fit)) {
        status = mirt__dataset_next(fit->train, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        fit->event.seconds = mirt__now() - began;
        mirt__tell(fit, MIRT__BATCH_BEGIN);
        if (fit->stop) break;
        /* a callback may have evaluated data of another dtype */
        status = mirt__trainer_prepare(model, &fit->needs);
        if (status == MIRT_OK) status = mirt__begin_batch(model, spec, &batch, true);
        if (status != MIRT_OK) break;
        status = mirt__run_train(model);
        if (status != MIRT_OK) break;
        double loss = mirt__add_results(model, &fit->sums);
        mirt__warn_of_nan(fit, loss);
        model->history.steps++;
        mirt__set_logs(fit, true, loss);
        fit->event.seconds = mirt__now() - began;
        mirt__tell(fit, MIRT__BATCH_END);
        fit->event.batch++;
        if (!fit->desc->no_progress) mirt__progress_line(&fit->progress, model, &fit->event, false);
    }
    fit->event.seconds = mirt__now() - began;
    model->history.seconds += fit->event.seconds;
    fit->images += fit->sums.count;
    return status;
}

/* Room for this epoch's logs: for a usual number of epochs all of it at the beginning. */
static mirt_status mirt__history_reserve(mirt__fit *fit) {
    mirt_model *model = fit->model;
    int epochs = fit->desc->epochs > 0 ? fit->desc->epochs : 1, used = model->history.epochs;
    if (used < model->history_capacity) return MIRT_OK;
    int capacity = used < 128 ? 256 : used > INT_MAX / 2 ? INT_MAX : 2 * used;
    if (capacity > epochs) capacity = epochs;
    if (!mirt__grow((void **)&model->history_logs, (size_t)used, (size_t)capacity, sizeof *model->history_logs)) return mirt_last_status();
    model->history_capacity = capacity;
    model->history.epoch = model->history_logs;
    return MIRT_OK;
}

static mirt_status mirt__fit_epoch(mirt__fit *fit, int epoch) {
    mirt_model *model = fit->model;
    mirt__sums validation;
    fit->event.epoch = epoch;
    if (fit->desc->learning_rate) {
        float rate = fit->desc->learning_rate(epoch, (float)mirt_get_learning_rate(model), fit->desc->learning_rate_user);
        if (mirt_set_learning_rate(model, (double)rate) != MIRT_OK) return mirt_last_status();
    }
    fit->logs.count = 0;
    mirt__tell(fit, MIRT__EPOCH_BEGIN);
    if (fit->stop) return MIRT_OK;
    if (!fit->desc->no_progress) mirt__progress_epoch(&fit->progress, model, epoch, fit->event.epochs);
    if (mirt__train_epoch(fit) != MIRT_OK) return mirt_last_status();
    if (fit->sums.count == 0) return MIRT_OK;
    mirt__set_logs(fit, false, 0);
    if (fit->validation) {
        memset(&validation, 0, sizeof validation);
        if (mirt__trainer_prepare(model, &fit->needs) != MIRT_OK) return mirt_last_status();
        if (mirt__evaluate_pass(model, fit->validation, &validation) != MIRT_OK) return mirt_last_status();
        mirt__sums_to_logs(model, &validation, true, &fit->logs);
    }
    if (mirt__history_reserve(fit) != MIRT_OK) return mirt_last_status();
    model->history_logs[model->history.epochs++] = fit->logs;
    if (!fit->desc->no_progress) mirt__progress_line(&fit->progress, model, &fit->event, true);
    mirt__tell(fit, MIRT__EPOCH_END);
    return MIRT_OK;
}

static mirt_status mirt__fit_run(mirt__fit *fit) {
    mirt_status status = mirt__fit_prepare(fit);
    if (status != MIRT_OK) return status;
    const mirt__data_spec *spec = mirt__dataset_spec(fit->train);
    fit->event.model = fit->model;
    fit->event.epochs = fit->desc->epochs > 0 ? fit->desc->epochs : 1;
    fit->event.batches = spec->samples / spec->batch + (spec->samples % spec->batch != 0);
    fit->event.logs = &fit->logs;
    mirt__tell(fit, MIRT__TRAIN_BEGIN);
    for (int epoch = 0; epoch < fit->event.epochs && status == MIRT_OK && !fit->stop && !mirt__max_steps_reached(fit); epoch++) {
        status = mirt__fit_epoch(fit, epoch);
    }
    mirt__tell(fit, MIRT__TRAIN_END);
    return status;
}

static mirt_history *mirt__fit_any(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc, bool shuffle) {
    mirt_fit_desc defaults;
    mirt_dataset *view[2] = {NULL, NULL};
    mirt__fit fit;
    memset(&defaults, 0, sizeof defaults);
    memset(&fit, 0, sizeof fit);
    fit.model = model;
    fit.desc = desc ? desc : &defaults;
    if (mirt__need_compiled(model, "mirt_fit") != MIRT_OK) return NULL;
    if (!dataset) return mirt__fail_missing("mirt_fit", "data set"), (mirt_history *)NULL;
    if (fit.desc->epochs < 0 || fit.desc->batch < 0) return mirt__fail(MIRT_E_INVALID, "epochs and batch cannot be negative"), (mirt_history *)NULL;
    if (model->busy) return mirt__fail(MIRT_E_STATE, "%s is being trained already: mirt_fit was called from its own callback", model->name), (mirt_history *)NULL;
    if (dataset->busy) return mirt__fail(MIRT_E_STATE, "mirt_fit: this data set is being trained on already"), (mirt_history *)NULL;
    model->busy = dataset->busy = true;
    model->strategy->fits++;
    mirt__free(model->history_logs);
    memset(&model->history, 0, sizeof model->history);
    model->history_logs = NULL;
    model->history_capacity = 0;
    mirt_status status = mirt__history_reserve(&fit);
    if (status == MIRT_OK && !(fit.train = mirt__batched(dataset, fit.desc->batch, shuffle, &view[0]))) status = mirt_last_status();
    if (status == MIRT_OK && fit.desc->validation &&
        !(fit.validation = mirt__batched(fit.desc->validation, mirt__dataset_spec(fit.train)->batch, false, &view[1]))) {
        status = mirt_last_status();
    }
    if (status == MIRT_OK) status = mirt__fit_run(&fit);
    model->busy = dataset->busy = false;
    model->strategy->fits--;
    mirt_dataset_destroy(view[0]);
    mirt_dataset_destroy(view[1]);
    if (model->history.seconds > 0) model->history.images_per_second = (double)fit.images / model->history.seconds;
    return status == MIRT_OK ? &model->history : NULL;
}

MIRT_API mirt_history *mirt_fit(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc) {
    return mirt__fit_any(model, dataset, desc, false);
}

MIRT_API mirt_history *mirt_fit_arrays(mirt_model *model, mirt_array x, mirt_array y, const mirt_fit_desc *desc) {
    mirt_dataset *dataset = mirt_arrays(x, y);
    mirt_history *history = dataset ? mirt__fit_any(model, dataset, desc, true) : NULL;
    mirt_dataset_destroy(dataset);
    return history;
}

MIRT_API double mirt_history_last(const mirt_history *history, const char *name) {
    if (!history || !history->epochs || !name) return NAN;
    const mirt_logs *logs = &history->epoch[history->epochs - 1];
    for (int i = 0; i < logs->count; i++) {
        if (strcmp(logs->name[i], name) == 0) return logs->value[i];
    }
    return NAN;
}

/* >>section train/inspect.c */

/* Looking inside a model: its memory, its layers, its program before and after mirroring. */

/* The training program, or of a model without a loss the one that predicts. */
static mirt__trainer *mirt__inspect_plan(mirt_model *model, int64_t batch) {
    mirt__needs needs;
    memset(&needs, 0, sizeof needs);
    if (batch < 1) return mirt__fail(MIRT_E_INVALID, "a global batch of %lld: it must be positive", (long long)batch), (mirt__trainer *)NULL;
    needs.x_dtype = model->trainer ? model->trainer->needs.x_dtype : MIRT_UINT8; /* of the data seen so far */
    needs.batch[model->config.loss ? MIRT__TRAIN : MIRT__PREDICT] = batch;
    return mirt__trainer_dry(model, &needs);
}

static void mirt__memory_of(const mirt_model *model, const mirt__trainer *t, mirt_memory *out) {
    const mirt__layout *l = &t->layout;
    size_t devices = (size_t)model->strategy->num_devices;
    out->weights = model->weight_bytes;
    out->gradients = l->gradients;
    out->activations = l->arena;
    out->scratch = l->total - l->gradients - l->arena;
    out->slots = (size_t)mirt__optimizer_slots(&model->config.optimizer) * model->weight_bytes;
    out->host = l->host;
    out->total = (size_t)mirt__weight_copies(model->strategy) * model->weight_bytes + devices * l->total + out->slots + l->host;
}

MIRT_API mirt_status mirt_plan_memory(mirt_model *model, int64_t batch, mirt_memory *out) {
    if (mirt__need_compiled(model, "mirt_plan_memory") != MIRT_OK) return mirt_last_status();
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_plan_memory: no place for the answer");
    mirt__trainer *t = mirt__inspect_plan(model, batch);
    if (!t) return mirt_last_status();
    memset(out, 0, sizeof *out);
    mirt__memory_of(model, t, out);
    mirt__trainer_dry_free(t);
    return MIRT_OK;
}

static int64_t mirt__layer_parameters(const mirt_model *model, const mirt__layer *layer) {
    int64_t n = 0;
    for (int i = 0; i < layer->num_variables; i++) n += model->variable[layer->first_variable + i].count;
    return n;
}

/* Multiply-accumulates of one sample in the nodes that carry the layer's name. */
static double mirt__layer_macs(const mirt_model *model, const mirt__layer *layer) {
    double macs = 0;
    for (int i = 0; i < model->graph.count; i++) {
        const mirt__node *node = model->graph.node[i];
        if (node->name && node->op->macs && strcmp(node->name, layer->name) == 0) macs += node->op->macs(node, 1);
    }
    return macs;
}

static void mirt__summary_layers(const mirt_model *model, mirt__text *out) {
    int64_t parameters = 0;
    double macs = 0;
    char shape[96], name[128];
    mirt__text_add(out, "Model: \"%s\"\n%-42s %-24s %12s %14s\n", model->name, "Layer (type)", "Output shape", "Parameters", "MACs/sample");
    for (int i = 0; i < model->num_layers; i++) {
        const mirt__layer *layer = model->layer[i];
        snprintf(name, sizeof name, "%s (%s)", layer->name, layer->cls->class_name);
        mirt__text_add(out, "%-42s %-24s %12lld %14.0f\n", name, mirt__shape_text(&layer->out[0]->shape, shape),
                       (long long)mirt__layer_parameters(model, layer), mirt__layer_macs(model, layer));
        parameters += mirt__layer_parameters(model, layer);
        macs += mirt__layer_macs(model, layer);
    }
    mirt__text_add(out, "Total parameters: %lld (%.2f MB), %.2f million multiply-accumulates a sample\n", (long long)parameters,
                   (double)parameters * sizeof(mirt__real) / 1e6, macs / 1e6);
}

static void mirt__summary_memory(const mirt_model *model, const mirt__trainer *t, int64_t batch, mirt__text *out) {
    mirt_memory m;
    memset(&m, 0, sizeof m);
    mirt__memory_of(model, t, &m);
    mirt__text_add(out, "%s with a global batch of %lld on %d device%s, %d replica%s:\n", model->config.loss ? "Training" : "Predicting", (long long)batch, model->strategy->num_devices,
                   model->strategy->num_devices == 1 ? "" : "s", model->strategy->num_replicas, model->strategy->num_replicas == 1 ? "" : "s");
    mirt__text_add(out, "  per device  weights %.2f MB, gradients %.2f MB, activations %.2f MB, scratch %.2f MB\n", (double)m.weights / 1e6,
                   (double)m.gradients / 1e6, (double)m.activations / 1e6, (double)m.scratch / 1e6);
    mirt__text_add(out, "  in all      %.2f MB, of which optimizer slots %.2f MB\n", (double)m.total / 1e6, (double)m.slots / 1e6);
}

MIRT_API const char *mirt_summary(mirt_model *model, int64_t batch) {
    if (mirt__need_compiled(model, "mirt_summary") != MIRT_OK) return NULL;
    mirt__trainer *t = mirt__inspect_plan(model, batch);
    if (!t) return NULL;
    mirt__text_clear(&model->summary);
    mirt__summary_layers(model, &model->summary);
    mirt__summary_memory(model, t, batch, &model->summary);
    mirt__trainer_dry_free(t);
    return model->summary.failed ? NULL : model->summary.data;
}

/* What mirroring puts around the program: the split before it, the exchange and the update after it. */
static void mirt__mirrored_text(const mirt_model *model, int64_t batch, mirt__text *out) {
    const mirt_strategy *s = model->strategy;
    mirt__exchange x;
    int64_t active = batch < s->num_replicas ? batch : s->num_replicas, first, rows;
    mirt__text_add(out, "\nafter mirroring over %d replica%s on %d device%s:\n", s->num_replicas, s->num_replicas == 1 ? "" : "s", s->num_devices,
                   s->num_devices == 1 ? "" : "s");
    for (int r = 0; r < s->num_replicas; r++) {
        int device = 0;
        rows = mirt__share(batch, s->num_replicas, r, &first);
        while (r >= s->device[device].first_replica + s->device[device].num_replicas) device++;
        if (rows) mirt__text_add(out, "  scatter    rows %lld to %lld -> replica %d on %s\n", (long long)first, (long long)(first + rows - 1), r, s->device[device].name);
        else mirt__text_add(out, "  scatter    no rows -> replica %d on %s\n", r, s->device[device].name);
    }
    mirt__text_add(out, "  grad       the program above, once a replica\n");
    mirt__exchange_plan(s, s->num_replicas, (int)active, false, 0, &x);
    for (int i = 0; i + 1 < x.parts; i++) {
        mirt__text_add(out, "  all-reduce %s buffer %d += %s buffer %d\n", s->device[x.device[x.add[i].into]].name, x.slot[x.add[i].into],
                       s->device[x.device[x.add[i].from]].name, x.slot[x.add[i].from]);
    }
    if (s->collective == MIRT_RING && x.parts > 1) {
        mirt__text_add(out, "             so for the elements of %s; each other device begins with its own next one\n", s->device[0].name);
    }
    for (int d = 0; d < s->num_devices; d++) {
        int64_t begin, end;
        mirt__device_range(model, d, &begin, &end);
        if (begin < end) mirt__text_add(out, "  apply      %s: %s on elements %lld to %lld, written to %s\n", s->device[d].name,
                       mirt__optimizer_class_get(model->config.optimizer.kind)->name, (long long)begin,
                       (long long)end - 1, s->num_devices == 1 ? "its weights" : mirt__weight_copies(s) == 1 ? "the one copy" : "every device's copy");
    }
}

MIRT_API const char *mirt_graph_text(mirt_model *model, int64_t batch) {
    if (mirt__need_compiled(model, "mirt_graph_text") != MIRT_OK) return NULL;
    if (!model->config.loss) return mirt__fail(MIRT_E_STATE, "%s is compiled without a loss: it has no training step", model->name), (const char *)NULL;
    mirt__trainer *t = mirt__inspect_plan(model, batch);
    if (!t) return NULL;
    mirt__text *out = &model->graph_text;
    mirt__text_clear(out);
    mirt__text_add(out, "training step of one replica, as recorded, differentiated and fused:\n");
    mirt__program_text(&t->program[MIRT__TRAIN], out);
    mirt__mirrored_text(model, batch, out);
    mirt__trainer_dry_free(t);
    return out->failed ? NULL : out->data;
}

/* >>section train/save.c */

/* >>names */

/* "adam/conv2d_kernel_momentum", as Keras names it. */
static const char *mirt__slot_name(mirt__pool *pool, const mirt_model *model, int slot, const mirt__variable *v) {
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(model->config.optimizer.kind);
    size_t size = strlen(cls->name) + strlen(v->name) + strlen(cls->slot_name[slot]) + 3;
    char *name = (char *)mirt__pool_alloc(pool, size);
    if (!name) return NULL;
    snprintf(name, size, "%s/%s_%s", cls->name, v->name, cls->slot_name[slot]);
    for (char *at = name + strlen(cls->name) + 1; *at; at++) {
        if (*at == '/') *at = '_';
    }
    return name;
}

static void mirt__tensor_of(const mirt__variable *v, const char *name, const char *block, mirt__safetensor *out) {
    memset(out, 0, sizeof *out);
    out->name = name;
    out->dtype = MIRT__ST_F32;
    out->rank = v->shape.rank;
    for (int i = 0; i < v->shape.rank; i++) out->dim[i] = v->shape.dim[i];
    out->data = block + v->offset;
}

/* >>saving */

static mirt_status mirt__save_tensors(mirt__pool *pool, mirt_model *model, bool slots, mirt__safetensors_content *content) {
    int blocks = 1 + (slots ? mirt__optimizer_slots(&model->config.optimizer) : 0);
    mirt__safetensor *tensor = (mirt__safetensor *)mirt__pool_alloc(pool, (size_t)blocks * (size_t)model->num_variables * sizeof *tensor + 1);
    if (!tensor) return mirt_last_status();
    content->tensor = tensor;
    for (int b = 0; b < blocks; b++) {
        for (int i = 0; i < model->num_variables; i++) {
            const mirt__variable *v = &model->variable[i];
            const char *name = b ? mirt__slot_name(pool, model, b - 1, v) : v->name;
            if (!name) return mirt_last_status();
            mirt__tensor_of(v, name, b ? model->slot[b - 1] : model->weight[0], &tensor[content->count++]);
        }
    }
    return MIRT_OK;
}

static mirt_status mirt__save_whole(mirt_model *model, const char *path, mirt__safetensors_content *content, mirt__text text[3]) {
    const char *metadata[10];
    if (mirt__architecture_write(model, &text[0]) != MIRT_OK) return mirt_last_status();
    mirt__compile_write(model, &text[1]);
    mirt__text_add(&text[2], "{\"iterations\":%lld,\"epoch\":%lld}", (long long)model->step, (long long)model->epoch);
    if (text[1].failed || text[2].failed) return mirt_last_status();
    const char *const pairs[10] = {"format", "mirrortrain", "version", "1", "architecture", text[0].data,
                                   "compile", text[1].data, "training", text[2].data};
    memcpy(metadata, pairs, sizeof pairs);
    content->metadata = metadata;
    content->metadata_count = 5;
    return mirt__safetensors_write(path, content);
}

MIRT_API mirt_status mirt_save(mirt_model *model, const char *path, mirt_save_flags flags) {
    mirt__pool pool;
    mirt__text text[3];
    mirt__safetensors_content content;
    bool whole = flags != MIRT_SAVE_WEIGHTS_ONLY;
    memset(&pool, 0, sizeof pool);
    memset(text, 0, sizeof text);
    memset(&content, 0, sizeof content);
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_save: no model or no path");
    if (whole && mirt__need_compiled(model, "mirt_save") != MIRT_OK) return mirt_last_status();
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    mirt_status status = mirt__model_materialize(model);
    if (status == MIRT_OK) status = mirt__save_tensors(&pool, model, whole, &content);
    if (status == MIRT_OK) status = whole ? mirt__save_whole(model, path, &content, text) : mirt__safetensors_write(path, &content);
    for (int i = 0; i < 3; i++) mirt__text_free(&text[i]);
    mirt__pool_free(&pool);
    return status;
}

/* >>loading */

/* The tensor `name` with the variable's shape, or NULL with the error set. */
static const mirt__safetensor *mirt__load_find(const mirt__safetensors *file, const char *name, const mirt__variable *v) {
    const mirt__safetensor *t = mirt__safetensors_find(file, name);
    char have[MIRT__ST_SHAPE_TEXT], want[96];
    if (!t) return mirt__fail(MIRT_E_NOT_FOUND, "%s: there is no tensor \"%s\"", file->origin, name), (const mirt__safetensor *)NULL;
    bool same = t->dtype == MIRT__ST_F32 && t->rank == v->shape.rank;
    for (int i = 0; same && i < t->rank; i++) same = t->dim[i] == v->shape.dim[i];
    if (same) return t;
    mirt__fail(MIRT_E_SHAPE, "%s: %s is %s %s, the model needs F32 %s", file->origin, name, mirt__st_dtype_name(t->dtype),
               mirt__st_shape_text(t, have), mirt__shape_text(&v->shape, want));
    return NULL;
}

/* Block 0 is the weights, on every device; the others are optimizer slots. */
static void mirt__load_take(const mirt__safetensor *t, mirt_model *model, int block, const mirt__variable *v) {
    if (block) memcpy(model->slot[block - 1] + v->offset, t->data, t->size);
    for (int d = 0; !block && d < mirt__weight_copies(model->strategy); d++) memcpy(mirt__weight_at(model, d, v), t->data, t->size);
}

/* Finds every tensor of the weights and of `slots` slots, and takes it over if `take`: without, it
   checks that all is there before anything changes. */
static mirt_status mirt__load_blocks(const mirt__safetensors *file, mirt_model *model, int slots, bool take) {
    mirt__pool pool;
    mirt_status status = MIRT_OK;
    memset(&pool, 0, sizeof pool);
    for (int b = 0; b < 1 + slots && status == MIRT_OK; b++) {
        for (int i = 0; i < model->num_variables && status == MIRT_OK; i++) {
            const mirt__variable *v = &model->variable[i];
            const char *name = b ? mirt__slot_name(&pool, model, b - 1, v) : v->name;
            const mirt__safetensor *t = name ? mirt__load_find(file, name, v) : NULL;
            if (!t) status = mirt_last_status();
            else if (take) mirt__load_take(t, model, b, v);
        }
    }
    mirt__pool_free(&pool);
    return status;
}

static const mirt__json *mirt__load_metadata(const mirt__safetensors *file, mirt__pool *pool, const char *key) {
    const char *text = mirt__safetensors_metadata(file, key);
    if (!text) {
        mirt__fail(MIRT_E_FORMAT, "%s holds no %s: it is not a whole saved model; mirt_load_weights reads weights alone", file->origin, key);
        return NULL;
    }
    const mirt__json *json = mirt__json_parse(pool, text, strlen(text));
    if (!json) mirt__fail_at("%s: %s", file->origin, key);
    return json;
}

static mirt_status mirt__load_training(mirt_model *model, const mirt__json *training) {
    const int64_t most = (int64_t)1 << 53; /* counts stay exact in double precision */
    int64_t step, epoch;
    if (training->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the training state is not an object");
    if (mirt__json_get_int(training, "iterations", 0, most, &step) != MIRT_OK ||
        mirt__json_get_int(training, "epoch", 0, most, &epoch) != MIRT_OK) {
        return mirt_last_status();
    }
    model->step = step;
    model->epoch = epoch;
    return MIRT_OK;
}

/* Whatever is wrong with what a file describes is wrong with the file. */
static mirt_status mirt__load_bad(const mirt__safetensors *file, const char *part) {
    mirt_status status = mirt_last_status();
    bool described = status == MIRT_E_INVALID || status == MIRT_E_SHAPE || status == MIRT_E_STATE;
    mirt__fail(described ? MIRT_E_FORMAT : status, "%s: %s: %s", file->origin, part, mirt_last_error());
    return mirt_last_status();
}

static mirt_status mirt__load_into(mirt_model *model, const mirt__safetensors *file, mirt__pool *pool) {
    mirt_compile_desc config;
    const mirt__json *architecture = mirt__load_metadata(file, pool, "architecture"), *compile, *training;
    if (!architecture || !(compile = mirt__load_metadata(file, pool, "compile")) ||
        !(training = mirt__load_metadata(file, pool, "training"))) {
        return mirt_last_status();
    }
    if (mirt__architecture_read(model, architecture) != MIRT_OK) return mirt__load_bad(file, "architecture");
    if (mirt__compile_read(compile, &config) != MIRT_OK) return mirt__load_bad(file, "compile");
    model->config.optimizer = config.optimizer; /* names the slots to look for */
    if (mirt__optimizer_check(&config.optimizer) != MIRT_OK) return mirt__load_bad(file, "compile");
    int slots = mirt__optimizer_slots(&config.optimizer);
    if (mirt__load_blocks(file, model, slots, false) != MIRT_OK) return mirt_last_status();
    if (mirt_compile(model, &config) != MIRT_OK) return mirt__load_bad(file, "compile");
    if (mirt__load_blocks(file, model, slots, true) != MIRT_OK) return mirt_last_status();
    return mirt__load_training(model, training) == MIRT_OK ? MIRT_OK : mirt__load_bad(file, "training");
}

/* Closes `file`. */
static mirt_model *mirt__load_open(mirt_strategy *strategy, mirt__safetensors *file) {
    mirt__pool pool;
    memset(&pool, 0, sizeof pool);
    mirt_model *model = mirt_model_create(strategy, NULL);
    if (model && mirt__load_into(model, file, &pool) != MIRT_OK) {
        mirt_model_destroy(model);
        model = NULL;
    }
    mirt__pool_free(&pool);
    mirt__safetensors_close(file);
    return model;
}

MIRT_API mirt_model *mirt_load(mirt_strategy *strategy, const char *path) {
    mirt__safetensors file;
    if (!strategy || !path) return mirt__fail(MIRT_E_INVALID, "mirt_load: no strategy or no path"), (mirt_model *)NULL;
    return mirt__safetensors_open(&file, path) == MIRT_OK ? mirt__load_open(strategy, &file) : NULL;
}

MIRT_API mirt_model *mirt_load_memory(mirt_strategy *strategy, const void *data, size_t size) {
    mirt__safetensors file;
    if (!strategy || !data) return mirt__fail(MIRT_E_INVALID, "mirt_load_memory: no strategy or no data"), (mirt_model *)NULL;
    return mirt__safetensors_open_memory(&file, data, size) == MIRT_OK ? mirt__load_open(strategy, &file) : NULL;
}

MIRT_API mirt_status mirt_load_weights(mirt_model *model, const char *path) {
    mirt__safetensors file;
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_load_weights: no model or no path");
    if (mirt__model_materialize(model) != MIRT_OK || mirt__safetensors_open(&file, path) != MIRT_OK) return mirt_last_status();
    mirt_status status = mirt__load_blocks(&file, model, 0, false);
    if (status == MIRT_OK) status = mirt__load_blocks(&file, model, 0, true);
    mirt__safetensors_close(&file);
    return status;
}

/* >>section models/models.c */

/* Ready-made networks, one function and one row each. */

/* The convnet of Keras's "Distributed training" tutorial, on pixels from 0 to 255. */
static void mirt__build_mnist(mirt_model *model) {
    mirt_conv2d_desc conv;
    mirt_dense_desc hidden, logits;
    memset(&conv, 0, sizeof conv);
    memset(&hidden, 0, sizeof hidden);
    memset(&logits, 0, sizeof logits);
    conv.filters = 32;
    conv.kernel[0] = conv.kernel[1] = 3;
    conv.activation = MIRT_RELU;
    hidden.units = 64;
    hidden.activation = MIRT_RELU;
    logits.units = 10;
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(28, 28, 1));
    x = mirt_rescale(x, 1.0f / 255, 0);
    x = mirt_conv2d(x, &conv);
    x = mirt_max_pool2d(x, NULL);
    x = mirt_flatten(x);
    x = mirt_dense(x, &hidden);
    mirt_model_output(model, mirt_dense(x, &logits));
}

typedef struct mirt__model_row {
    const char *name;
    void (*build)(mirt_model *model);
} mirt__model_row;

static const mirt__model_row mirt__model_table[] = {
    {"mnist", mirt__build_mnist},
};

MIRT_API mirt_model *mirt_model_by_name(mirt_strategy *strategy, const char *name) {
    const char *names[MIRT__COUNT(mirt__model_table)];
    for (int i = 0; i < MIRT__COUNT(mirt__model_table); i++) names[i] = mirt__model_table[i].name;
    for (int i = 0; name && i < MIRT__COUNT(mirt__model_table); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        mirt_model *model = mirt_model_create(strategy, name);
        if (model) mirt__model_table[i].build(model);
        return model;
    }
    const char *nearest = name ? mirt__nearest(name, names, MIRT__COUNT(names)) : NULL;
    mirt__fail(MIRT_E_NOT_FOUND, "there is no model \"%s\"; %s \"%s\"%s", name ? name : "", nearest ? "did you mean" : "there is",
               nearest ? nearest : names[0], nearest ? "?" : "");
    return NULL;
}

/* >>section base/cold_end.inc */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC pop_options
#endif

#if defined(__NVCC__) && defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif

#endif /* MIRRORTRAIN_IMPLEMENTATION */

/*
mirrortrain is available under two licences; choose the one that you prefer.

Alternative A - MIT License

Copyright (c) 2026 the mirrortrain authors

Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in
the Software without restriction, including without limitation the rights to
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies
of the Software, and to permit persons to whom the Software is furnished to do
so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.

Alternative B - Public Domain (www.unlicense.org)

This is free and unencumbered software released into the public domain.

Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
software, either in source code form or as a compiled binary, for any purpose,
commercial or non-commercial, and by any means.

In jurisdictions that recognize copyright laws, the author or authors of this
software dedicate any and all copyright interest in the software to the public
domain. We make this dedication for the benefit of the public at large and to
the detriment of our heirs and successors. We intend this dedication to be an
overt act of relinquishment in perpetuity of all present and future rights to
this software under copyright law.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
