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
    X(MIRT_E_THREAD, "threads could not be started") \
    X(MIRT_E_CALLBACK, "code of the caller failed")

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
/* NULL is allowed. Refused while mirt_fit trains on it (MIRT_E_STATE); its validation data have to live as long. */
MIRT_API void mirt_dataset_destroy(mirt_dataset *dataset);

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

/* An op of one's own, on buffers of host memory. */
typedef struct mirt_op_call {
    int num_in;
    const mirt_shape *in_shape; /* [num_in]; batched ones begin with the rows of this call */
    const mirt_dtype *in_dtype; /* [num_in] */
    const void *const *in;      /* [num_in] dense values of these dtypes */
    mirt_shape out_shape;
    float *out;                 /* forward: to be written; backward: what was written */
    const float *dout;          /* backward: the gradient of out */
    float *const *din;          /* backward: [num_in] gradients to be written; NULL where nobody asks */
    const void *config;
    int64_t first_row;          /* of these rows in the global batch */
} mirt_op_call;
/* Functions return 0, or a code of failure, which ends the step with MIRT_E_CALLBACK and changes nothing. They are called
   by several threads at once, each for the rows of a replica: they must be thread safe, and a row's result
   must not depend on the other rows if it is not to depend on the number of replicas. */
typedef struct mirt_op_class {
    const char *name;
    size_t config_size; /* bytes of numbers without pointers, copied, and saved as they are */
    /* The output's shape from the inputs', in which MIRT_ROWS stands for rows; NULL: that of the first input. */
    int (*shape)(const mirt_shape *in, int num_in, const void *config, mirt_shape *out, void *user);
    int (*forward)(const mirt_op_call *call, void *user);
    int (*backward)(const mirt_op_call *call, void *user); /* NULL: not differentiable */
    void *user;
} mirt_op_class;
/* Records it, in a model or in the body of a function, on 1 to 6 tensors; the class is copied. The output is float32. */
MIRT_API mirt_tensor *mirt_custom_op(const mirt_op_class *op, mirt_tensor *const *in, int num_in, const void *config);
/* Makes the class known to mirt_load. MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_register_op(mirt_strategy *strategy, const mirt_op_class *op);

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
/* NULL is allowed. A part of another model lives on as its layer; the weights of parts and views go with their owner. */
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

/* A weight of one's own, for operations outside of layers; its name has no '/'. NULL as for layers. */
MIRT_API mirt_tensor *mirt_variable(mirt_model *model, const char *name, mirt_shape shape, mirt_initializer initializer, bool trainable);
/* A number or a value a sample that is added to the loss of whatever trains this model. Keras: add_loss. A
   number that depends on weights alone counts once, whatever the number of replicas and of calls of the model.
   MIRT_E_STATE: compiled, or a part of another model already. */
MIRT_API mirt_status mirt_add_loss(mirt_model *model, mirt_tensor *loss);

/* Calls a model on a tensor. Recording another model, `model` becomes a part of that one: its weights are
   from then on those of the model around it, under names that begin with its own; it may be called
   several times there, sharing them, but be a part of one model only. In the body of a function,
   `model` is the function's or a part of it. Its outputs: the first is returned, all of them go to `out`
   (may be NULL), which holds MIRT_MAX_OUTPUTS. Tensors of another dtype are cast. Keras: model(x, training=...). Errors mark
   what is recorded. */
MIRT_API mirt_tensor *mirt_call(mirt_model *model, mirt_tensor *x, mirt_training training);
MIRT_API mirt_tensor *mirt_call_many(mirt_model *model, mirt_tensor *const *x, int count, mirt_training training, mirt_tensor **out);
/* The (first) output of a layer, to be made an output or to build upon. Keras: get_layer(name).output.
   NULL: MIRT_E_NOT_FOUND with the nearest right name. */
MIRT_API mirt_tensor *mirt_layer_output(mirt_model *model, const char *layer);
/* A model from `model`'s inputs to other tensors of it, sharing its weights: intermediate outputs. It predicts as it is, and
   cannot be a part of another model. */
MIRT_API mirt_model *mirt_model_view(mirt_model *model, mirt_tensor *const *outputs, int count);

/* >>training ------------------------------------------------------------------------------ */
/* Threads: all functions on a model are for the one thread at a time that has its strategy; a history is read
   by that thread. Functions without either among their arguments: any thread at any time. */

/* The learning rate for 0-based `step`; must depend on its arguments alone. */
typedef float (*mirt_schedule_fn)(int64_t step, void *user);

typedef enum mirt_optimizer_kind { MIRT_ADAM = 0, MIRT_SGD, MIRT__OPTIMIZER_COUNT } mirt_optimizer_kind;
typedef struct mirt_optimizer {
    mirt_optimizer_kind kind;
    float learning_rate;           /* SGD: 0 is 0 */
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

/* A loss of one's own: records operations on labels (as they are in the data, cast to float32) and an
   output; returns one value a sample (the library averages over the global batch). */
typedef struct mirt_custom_loss {
    const char *name;
    mirt_tensor *(*record)(mirt_tensor *labels, mirt_tensor *output, void *user);
    void *user;
} mirt_custom_loss;
/* A metric of one's own: records a value for each sample, or several (rows, n). They are summed over all
   samples in double precision; `result` makes the metric of the `count` sums; NULL: their mean. */
typedef struct mirt_custom_metric {
    const char *name;
    mirt_tensor *(*record)(mirt_tensor *labels, mirt_tensor *output, void *user);
    double (*result)(const double *sums, int count, int64_t samples, void *user);
    void *user;
} mirt_custom_metric;

/* Makes them known to mirt_load, by name, as mirt_compile does too. Copied. MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_register_loss(mirt_strategy *strategy, const mirt_custom_loss *loss);
MIRT_API mirt_status mirt_register_metric(mirt_strategy *strategy, const mirt_custom_metric *metric);

/* A model with several outputs takes as many labels, in their order, one for each output that has a loss;
   the loss is the sum of the outputs' losses times their weights. Names in logs then begin with the output's
   layer: "digit_loss", "digit_accuracy". */
typedef struct mirt_compile_desc {
    mirt_optimizer optimizer; /* all zeros: mirt_adam(1e-3) */
    mirt_loss loss;           /* of every output that has none of its own below */
    bool from_logits;         /* outputs, all of them, are what a softmax or sigmoid would begin with */
    mirt_reduction reduction;
    mirt_metric metrics[MIRT_MAX_METRICS]; /* of every output with a loss; ends at the first MIRT_METRIC_NONE */
    mirt_loss losses[MIRT_MAX_OUTPUTS];
    float loss_weights[MIRT_MAX_OUTPUTS];  /* 0: 1 */
    const mirt_custom_loss *custom_losses[MIRT_MAX_OUTPUTS];       /* copied */
    const mirt_custom_metric *custom_metrics[MIRT_MAX_METRICS];    /* of every output with a loss; copied; ends at the first NULL */
} mirt_compile_desc;

/* Checks the recorded model, creates its weights and fixes optimizer, loss and metrics; desc NULL: all
   defaults, which is enough to predict. A second call keeps the weights, and starts optimizer state
   and step count anew. Returns the first error of the model's recording, if any; MIRT_E_STATE,
   MIRT_E_SHAPE, MIRT_E_INVALID, MIRT_E_NOMEM. Warns where from_logits and an output's activation do not go together. */
MIRT_API mirt_status mirt_compile(mirt_model *model, const mirt_compile_desc *desc);

/* Named numbers of a moment in training: "loss", "accuracy", "val_loss", "learning_rate". The names are the model's and
   live as long. */
#define MIRT_MAX_LOGS 72
typedef struct mirt_logs {
    int count;
    const char *name[MIRT_MAX_LOGS];
    double value[MIRT_MAX_LOGS];
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
    int64_t batch;             /* global batch of a dataset without a batch stage; default 32. With one: 0, or the same */
    mirt_dataset *validation;  /* borrowed */
    const mirt_callback *callbacks[MIRT_MAX_CALLBACKS]; /* borrowed; ends at the first NULL */
    mirt_epoch_schedule_fn learning_rate; /* asked at the beginning of every epoch */
    void *learning_rate_user;
    int64_t max_steps;         /* of this fit; 0: no limit */
    bool no_progress;          /* leave the progress line out */
    int initial_epoch;         /* 0-based: `epochs` is where fit ends, as in Keras */
    int64_t steps_per_epoch;   /* 0: all of the data; otherwise the data go on where the last epoch left them, over and over */
    int64_t validation_steps;  /* 0: all of the validation data */
    int validation_freq;       /* validates after every n-th epoch; default 1 */
    const float *class_weights; /* [num_class_weights], of class numbers or one-hot labels: what each sample's loss is multiplied with */
    int num_class_weights;
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
/* The value named `name`, or NAN. */
MIRT_API double mirt_logs_value(const mirt_logs *logs, const char *name);
/* The same of the last epoch. */
MIRT_API double mirt_history_last(const mirt_history *history, const char *name);

/* Keras: Model.evaluate: "loss" and metrics, by the names in `out` (may be NULL). Sums over samples in
   their order in double precision: with the default reduction the same bits for any batch size,
   device or replica count. Errors as mirt_fit. */
MIRT_API mirt_status mirt_evaluate(mirt_model *model, mirt_dataset *dataset, mirt_logs *out);
MIRT_API mirt_status mirt_evaluate_arrays(mirt_model *model, mirt_array x, mirt_array y, mirt_logs *out);
/* Keras: Model.predict. Writes one output per sample, in the data set's order, to `out`, which
   holds `capacity` floats; too few are MIRT_E_SHAPE. Needs no labels, and no mirt_compile
   either: once weights are made, no layer can be added. */
MIRT_API mirt_status mirt_predict(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity);
MIRT_API mirt_status mirt_predict_arrays(mirt_model *model, mirt_array x, float *out, size_t capacity);

/* Keras: train_on_batch, test_on_batch, predict_on_batch: one global batch, borrowed during the call. `out` (may be
   NULL) receives the loss (before the update) and metrics of the batch. out[i] holds capacity[i] floats for the
   model's i-th output. Errors as mirt_fit; the model is then unchanged. */
MIRT_API mirt_status mirt_train_on_batch(mirt_model *model, const mirt_data *batch, mirt_logs *out);
MIRT_API mirt_status mirt_test_on_batch(mirt_model *model, const mirt_data *batch, mirt_logs *out);
MIRT_API mirt_status mirt_predict_on_batch(mirt_model *model, const mirt_data *batch, float *const *out, const size_t *capacity);
/* mirt_predict for models of several outputs. */
MIRT_API mirt_status mirt_predict_outputs(mirt_model *model, mirt_dataset *dataset, float *const *out, const size_t *capacity);

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

/* >>functions ----------------------------------------------------------------------------- */
/* Threads: a function, its tensors and its distributed data set are for the one thread at a time that has their strategy. */

/* A step of one's own, recorded once and replayed by every replica on its share of a global batch. Keras
   and TensorFlow: tf.function and strategy.run. */

/* One global batch, valid until the next mirt_dataset_next, which alone makes one. Only `rows` and
   `epoch` are to be read. */
typedef struct mirt_global_batch {
    int64_t rows;  /* 0: the epoch is over */
    int64_t epoch; /* 0-based */
    const void *field[2 * MIRT_MAX_INPUTS + 1];
    const int64_t *index;
    const mirt_dataset *dataset;
} mirt_global_batch;

/* Deals a batched data set (which it takes over) to a strategy's replicas: the last stage. When
   the strategy is gone it can only be destroyed. Keras: experimental_distribute_dataset. */
MIRT_API mirt_dataset *mirt_distribute(mirt_strategy *strategy, mirt_dataset *dataset);
/* The next batch of a distributed data set; after the end of an epoch the next call begins the next one, in
   its own order. MIRT_E_STATE: not distributed; and what the data's files may give. */
MIRT_API mirt_status mirt_dataset_next(mirt_dataset *dataset, mirt_global_batch *out);

/* Records the step; returns false when it failed (an error inside the library needs no return value). */
typedef bool (*mirt_body_fn)(mirt_function *function, void *user);
/* Calls `body` once to record it. `dataset`, distributed to the model's strategy, says what batches look like;
   NULL: a step without data, of one row a replica. Lives as long as its model, or until it is destroyed. A
   later mirt_compile that changes which weights are trained makes it invalid. NULL: the first error of recording, MIRT_E_NOMEM. */
MIRT_API mirt_function *mirt_function_create(mirt_model *model, mirt_dataset *dataset, mirt_body_fn body, void *user);
/* NULL is allowed. */
MIRT_API void mirt_function_destroy(mirt_function *function);

/* In the body. The batch's inputs, labels and sample weights (NULL when there are none), as they are in the data:
   mirt_call casts them, other operations take float32. A weight of the model by name, to read. A constant, copied. */
MIRT_API mirt_tensor *mirt_function_x(mirt_function *function, int index);
MIRT_API mirt_tensor *mirt_function_y(mirt_function *function, int index);
MIRT_API mirt_tensor *mirt_function_weights(mirt_function *function);
MIRT_API mirt_tensor *mirt_function_variable(mirt_function *function, const char *name);
MIRT_API mirt_tensor *mirt_function_constant(mirt_function *function, mirt_array value);
/* In the body: one value a sample. Class numbers of the sparse loss are checked with every batch. */
MIRT_API mirt_tensor *mirt_loss_values(mirt_loss loss, bool from_logits, mirt_tensor *labels, mirt_tensor *output);
/* In the body: what regularizers and mirt_add_loss add for the models called so far, term by term; `index` from 0; NULL
   behind the last. */
MIRT_API mirt_tensor *mirt_function_loss_term(mirt_function *function, int index);
/* In the body: adds a term to what the step minimizes. One value a sample (of several, their mean) counts by the global
   batch's true size; a number made of weights, or of all-reduced values, counts once; a mean over rows is weighted by
   the replica's rows, with a warning; a sum over rows is taken as it is; a sum of such numbers is taken apart. Trainable
   weights without a gradient are left alone, with one warning; none at all with one is an error. The compiled optimizer
   applies the gradients' sum over all replicas when the step is over. */
MIRT_API mirt_status mirt_minimize(mirt_function *function, mirt_tensor *loss);
/* In the body, by hand: out[i] is the gradient of `loss` (weighted as above) with respect to x[i], of this replica alone;
   NULL, with one warning, where loss does not depend on x[i]; on none of them: MIRT_E_INVALID. Few gradients can be
   differentiated again. */
MIRT_API mirt_status mirt_gradients(mirt_tensor *loss, mirt_tensor *const *x, int count, mirt_tensor **out);
/* In the body: gives the optimizer gradients[i] for variables[i] (from mirt_function_variable), one for each weight; NULL
   gradients are left out, all of them NULL is an error. They are summed over all replicas. */
MIRT_API mirt_status mirt_apply_gradients(mirt_function *function, mirt_tensor *const *variables, mirt_tensor *const *gradients, int count);
typedef enum mirt_reduce_op { MIRT_REDUCE_SUM = 0, MIRT_REDUCE_MEAN } mirt_reduce_op;
/* In the body: the sum over all replicas, or the mean weighted by their rows, of an unbatched float32 tensor.
   tf.distribute: all_reduce in a replica's context. */
MIRT_API mirt_tensor *mirt_replica_all_reduce(mirt_tensor *x, mirt_reduce_op op);
/* How a variable's new values on the replicas become one. tf.VariableAggregation. */
typedef enum mirt_aggregation {
    MIRT_AGGREGATE_NONE = 0, /* replicas must not write it */
    MIRT_AGGREGATE_MEAN,     /* weighted by the replicas' rows */
    MIRT_AGGREGATE_SUM,
    MIRT_AGGREGATE_FIRST     /* of the first replica */
} mirt_aggregation;
/* In the body: `variable`, not trainable, becomes `value` on all devices when the step is over. MIRT_AGGREGATE_NONE is
   an error, as in TensorFlow. */
MIRT_API mirt_status mirt_assign(mirt_function *function, mirt_tensor *variable, mirt_tensor *value, mirt_aggregation aggregation);
/* In the body: keeps a tensor, to be read after a run under `name`: for every row, or (unbatched) for every
   replica. */
MIRT_API mirt_status mirt_function_result(mirt_function *function, const char *name, mirt_tensor *value);

/* Runs the step on a batch of the data set it was made for (NULL without one). On an error (MIRT_E_CALLBACK: an op of
   the user failed) nothing is changed. */
MIRT_API mirt_status mirt_function_run(mirt_function *function, const mirt_global_batch *batch);
/* A result of the last run over all replicas: the sum or mean of all rows (batched), or of the replicas' values, the
   mean weighted by their rows; `count` doubles, a row's or a value's elements. tf.distribute: strategy.reduce.
   MIRT_E_NOT_FOUND with the nearest right name, MIRT_E_SHAPE: another count, MIRT_E_STATE: not run yet. */
MIRT_API mirt_status mirt_reduce(mirt_function *function, const char *name, mirt_reduce_op op, double *out, size_t count);
/* All rows in the order of the batch, or the values of all replicas that had rows, one after the other, as float32
   (strategy.gather); or those of replica `replica` alone (experimental_local_results), none where it had no rows. `capacity`
   elements fit into out; *written (may be NULL) are there then. MIRT_E_NOT_FOUND, MIRT_E_SHAPE, MIRT_E_STATE: not run yet. */
MIRT_API mirt_status mirt_gather_result(mirt_function *function, const char *name, float *out, size_t capacity, size_t *written);
MIRT_API mirt_status mirt_local_result(mirt_function *function, const char *name, int replica, float *out, size_t capacity, size_t *written);

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
/* Whether the weights of a layer (or a model called as one), by the name or the prefix of names, are trained: "conv2d" is
   that layer alone, "block1*" all whose names begin so, NULL all. Takes effect with the next mirt_compile; a frozen
   batch normalization then uses its moving statistics. Keras: layer.trainable. MIRT_E_NOT_FOUND. */
MIRT_API mirt_status mirt_set_trainable(mirt_model *model, const char *prefix, bool trainable);

typedef enum mirt_save_flags { MIRT_SAVE_ALL = 0, MIRT_SAVE_WEIGHTS_ONLY = 1 } mirt_save_flags;
/* One .safetensors file: weights under their Keras names, optimizer slots, architecture (layers, models inside of
   the model, operations outside of layers, constants among them) and compile settings as JSON in its metadata. The same model
   gives the same bytes. Replaces `path` atomically. Code is not saved: of a schedule the rate in force is, and ops, layers,
   losses and metrics of your own are by their names. MIRT_E_STATE: not compiled, or a view (both fine with
   MIRT_SAVE_WEIGHTS_ONLY); MIRT_E_IO. */
MIRT_API mirt_status mirt_save(mirt_model *model, const char *path, mirt_save_flags flags);
/* Rebuilds a saved model under any strategy, which knows what of it is your own (mirt_register_op, ..._layer, ..._loss,
   ..._metric); ready to evaluate, predict and train on. NULL: MIRT_E_NOT_FOUND, MIRT_E_IO, MIRT_E_FORMAT or MIRT_E_SHAPE
   with file and tensor, MIRT_E_NOMEM. */
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
    size_t weights;     /* of a copy of all variables */
    size_t gradients;   /* per device */
    size_t activations; /* per device: tensors of the step, by liveness */
    size_t scratch;     /* per device: threads' scratch and partial sums */
    size_t slots;       /* optimizer state, once for all devices that share memory */
    size_t host;        /* losses, metrics and new values of one global batch */
    size_t total;       /* devices * (weights + gradients + activations + scratch) + slots + host; central storage
                           has the weights once */
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
