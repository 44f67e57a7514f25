#ifndef MIRT__MODELS_API_H
#define MIRT__MODELS_API_H
/* Models: tensors, layers and ready-made networks. */

#include "strategy_api.h"

MIRT__BEGIN_C

/* >>tensors ------------------------------------------------------------------------------- */
/* Threads: a model, its tensors and functions are for the one thread at a time that has their strategy. */

/* A model records layers and operations. Recording is sticky: a bad argument marks the model,
   the call returns NULL, calls given NULL hand it on, and mirt_compile returns the first error. */
typedef struct mirt_model mirt_model;
/* A node of a recorded graph; owned by its model or function. */
typedef struct mirt_tensor mirt_tensor;
/* A custom step, recorded once and replayed by every replica: see >>functions. */
typedef struct mirt_function mirt_function;

/* How a model that is called runs what differs in training: AUTO is as the model around it does. */
typedef enum mirt_training { MIRT_TRAINING_AUTO = 0, MIRT_TRAINING_ON, MIRT_TRAINING_OFF } mirt_training;

typedef enum mirt_padding { MIRT_VALID = 0, MIRT_SAME } mirt_padding;
typedef enum mirt_activation_kind {
    MIRT_LINEAR = 0,
    MIRT_RELU,
    MIRT_SIGMOID,
    MIRT_TANH,
    MIRT_SOFTMAX,
    MIRT_RELU6,
    MIRT_LEAKY_RELU /* slope 0.2 */,
    MIRT_ELU,
    MIRT_GELU,
    MIRT_SILU,
    MIRT_HARD_SIGMOID,
    MIRT_HARD_SWISH,
    MIRT_SOFTPLUS,
    MIRT_SELU,
    MIRT_MISH,
    MIRT_SOFTSIGN,
    MIRT_EXPONENTIAL,
    MIRT_LOG_SOFTMAX,
    MIRT_GELU_APPROXIMATE,
    /* Composed of other operations; numbers are Keras's defaults, for others there are functions. */
    MIRT_CELU,
    MIRT_GLU /* half as many channels */,
    MIRT_HARD_SHRINK,
    MIRT_HARD_TANH,
    MIRT_LOG_SIGMOID,
    MIRT_SOFT_SHRINK,
    MIRT_SPARSE_PLUS,
    MIRT_SPARSE_SIGMOID,
    MIRT_SQUAREPLUS,
    MIRT_TANH_SHRINK,
    MIRT_SPARSEMAX /* over the last axis */,
    MIRT__ACTIVATION_COUNT
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
/* Activations, as in keras.activations: gelu is the exact one, of the error function; gelu_approximate is Keras's
   gelu(approximate=True). */
MIRT_API mirt_tensor *mirt_relu6(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_leaky_relu(mirt_tensor *x, float slope);
MIRT_API mirt_tensor *mirt_elu(mirt_tensor *x, float alpha);
MIRT_API mirt_tensor *mirt_gelu(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_silu(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_hard_sigmoid(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_hard_swish(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_softplus(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_selu(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_mish(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_softsign(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_gelu_approximate(mirt_tensor *x);
/* alpha must be positive; Keras's default is 1. */
MIRT_API mirt_tensor *mirt_celu(mirt_tensor *x, float alpha);
/* The first half along `axis`, which counts as for mirt_argmax, times the sigmoid of the second one. */
MIRT_API mirt_tensor *mirt_glu(mirt_tensor *x, int axis);
/* 0 from -threshold to threshold; Keras's default is 0.5. */
MIRT_API mirt_tensor *mirt_hard_shrink(mirt_tensor *x, float threshold);
MIRT_API mirt_tensor *mirt_soft_shrink(mirt_tensor *x, float threshold);
/* `value` where x is not above the threshold. */
MIRT_API mirt_tensor *mirt_threshold(mirt_tensor *x, float threshold, float value);
/* (x + sqrt(x^2 + b)) / 2; Keras's default is 4. */
MIRT_API mirt_tensor *mirt_squareplus(mirt_tensor *x, float b);
MIRT_API mirt_tensor *mirt_hard_tanh(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_log_sigmoid(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_sparse_plus(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_sparse_sigmoid(mirt_tensor *x);
MIRT_API mirt_tensor *mirt_tanh_shrink(mirt_tensor *x);
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
/* The nearest probabilities to x along `axis`, which counts as for mirt_argmax; small ones are 0. Martins & Astudillo
   2016. Keras: activations.sparsemax. */
MIRT_API mirt_tensor *mirt_sparsemax(mirt_tensor *x, int axis);
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
/* Axis i of the result is axis permutation[i] of x; NULL reverses all but the rows. */
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

/* A custom op, on buffers of host memory. */
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
/* Functions return 0, or a code of failure, which ends the step with MIRT_E_CALLBACK and changes nothing. They are
   called by several threads at once, each for the rows of a replica: they must be thread safe, and a row's result must
   not depend on the other rows if it is not to depend on the number of replicas. */
typedef struct mirt_op_class {
    const char *name;
    size_t config_size; /* bytes of numbers without pointers, copied, and saved as they are */
    /* The output's shape from the inputs', in which MIRT_ROWS stands for rows; NULL: that of the first input. */
    int (*shape)(const mirt_shape *in, int num_in, const void *config, mirt_shape *out, void *user);
    int (*forward)(const mirt_op_call *call, void *user);
    int (*backward)(const mirt_op_call *call, void *user); /* NULL: not differentiable */
    void *user;
    /* The same of the library's operations, for files of other formats (mirt_save_onnx); NULL: they cannot hold it. On
       failure it returns NULL. */
    mirt_tensor *(*compose)(mirt_tensor *const *in, int num_in, const void *config, void *user);
} mirt_op_class;
/* Records it, in a model or in the body of a function, on 1 to 6 tensors; the class is copied. The output is
   float32. */
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
typedef enum mirt_distribution {
    MIRT_DIST_TRUNCATED_NORMAL = 0, MIRT_DIST_UNTRUNCATED_NORMAL, MIRT_DIST_UNIFORM
} mirt_distribution;

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

/* Adds l1 * sum |w| + l2 * sum w^2 to the loss, while the weight is trained: of a frozen one it adds nothing, as in
   Keras. Keras: regularizers.L1L2. */
typedef struct mirt_regularizer {
    float l1, l2;
} mirt_regularizer;

typedef enum mirt_constraint_kind {
    MIRT_NO_CONSTRAINT = 0, MIRT_MAX_NORM, MIRT_NON_NEG, MIRT_UNIT_NORM, MIRT_MIN_MAX_NORM, MIRT_SPECTRAL_NORM,
    MIRT__CONSTRAINT_COUNT
} mirt_constraint_kind;
/* What a weight is made to fulfill after every update of it. Values by the functions below; all zeros: nothing. */
typedef struct mirt_constraint {
    mirt_constraint_kind kind;
    float min_value, max_value, rate; /* of norms; rate: the part of the way that a weight is moved */
    int axis; /* bits: a norm is over these axes */
    int power_iterations;
} mirt_constraint;

/* Keras: constraints.MaxNorm, NonNeg, UnitNorm, MinMaxNorm. Bits of `axis` are axes of the weight: 1 is Keras's
   default, 0, one norm for each unit of a dense layer; 7 is [0, 1, 2], one for each filter of a convolution. */
MIRT_API mirt_constraint mirt_max_norm(float max_value, int axis);
MIRT_API mirt_constraint mirt_non_neg(void);
MIRT_API mirt_constraint mirt_unit_norm(int axis);
MIRT_API mirt_constraint mirt_min_max_norm(float min_value, float max_value, float rate, int axis);
/* For a layer's kernel as a matrix [all other axes, last axis] of at most 4096 columns: after each update it is divided
   by its largest singular value, estimated by so many iterations, 1 to 100, from what the weight "vector_u" of the
   layer keeps, which is not trained. A kernel of zeros stays. Refused with parameter servers. Miyato et al. 2018.
   Keras: SpectralNormalization. */
MIRT_API mirt_constraint mirt_spectral_norm(int power_iterations);

typedef struct mirt_dense_desc {
    int units;
    mirt_activation_kind activation;
    bool no_bias;
    mirt_initializer kernel_initializer; /* default glorot_uniform */
    mirt_initializer bias_initializer;   /* default zeros */
    mirt_regularizer kernel_regularizer, bias_regularizer;
    mirt_regularizer activity_regularizer; /* of the output: adds its penalty's mean over samples to the loss */
    mirt_constraint kernel_constraint, bias_constraint;
    const char *name;                    /* default dense, dense_1, ... */
} mirt_dense_desc;

typedef struct mirt_conv2d_desc {
    int filters;
    int kernel[2];   /* height, width; {k, 0} means {k, k} */
    int strides[2];  /* default 1, 1; {s, 0} means {s, s}, here and below */
    int dilation[2]; /* default 1, 1 */
    int groups;      /* default 1 */
    int output_padding[2]; /* of transposed ones, less than the strides; -1: Keras's 0; {0, 0}: Keras's None;
                              {k, 0} means {k, k}, {0, k} is refused */
    mirt_padding padding;
    mirt_activation_kind activation;
    bool no_bias;
    mirt_initializer kernel_initializer; /* default glorot_uniform */
    mirt_initializer bias_initializer;   /* default zeros */
    mirt_regularizer kernel_regularizer, bias_regularizer, activity_regularizer;
    mirt_constraint kernel_constraint, bias_constraint;
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
    mirt_regularizer depthwise_regularizer, bias_regularizer, activity_regularizer;
    mirt_constraint depthwise_constraint, bias_constraint;
    const char *name;
} mirt_depthwise_conv2d_desc;

typedef struct mirt_separable_conv2d_desc {
    int filters;
    mirt_depthwise_conv2d_desc depthwise;   /* the first part, and bias, activation and name of the whole */
    mirt_initializer pointwise_initializer; /* default glorot_uniform */
    mirt_regularizer pointwise_regularizer;
    mirt_constraint pointwise_constraint;
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
    float momentum;    /* of the moving statistics; default 0.99 */
    bool has_momentum; /* the momentum is as given, 0 too */
    int axis;          /* of the channels, counted as for mirt_argmax; default: the last */
    float epsilon;     /* default 1e-3 */
    bool no_center;    /* without beta */
    bool no_scale;     /* without gamma */
    bool synchronized; /* normalizes with the statistics of the global batch, not with a replica's own */
    mirt_initializer beta_initializer, gamma_initializer;                  /* default zeros, ones */
    mirt_initializer moving_mean_initializer, moving_variance_initializer; /* default zeros, ones */
    mirt_regularizer beta_regularizer, gamma_regularizer;
    mirt_constraint beta_constraint, gamma_constraint;
    const char *name;
} mirt_batch_norm_desc;

typedef struct mirt_layer_norm_desc {
    int axes;       /* how many of the last axes; default 1 */
    int axis;       /* instead of `axes`: Keras's axis as bits, 6 is height and width of images */
    float epsilon;  /* default 1e-3 */
    bool no_center; /* without beta */
    bool no_scale;  /* without gamma */
    mirt_initializer beta_initializer, gamma_initializer; /* default zeros, ones */
    mirt_regularizer beta_regularizer, gamma_regularizer;
    mirt_constraint beta_constraint, gamma_constraint;
    const char *name;
} mirt_layer_norm_desc;

typedef struct mirt_rms_norm_desc {
    int axis;      /* as in mirt_layer_norm_desc; default: the last one */
    float epsilon; /* default 1e-6 */
    const char *name;
} mirt_rms_norm_desc;

typedef struct mirt_dot_desc {
    int axes[2];    /* of the two tensors, counted as for mirt_argmax; {k, 0}: k of both; default: the last ones */
    bool normalize; /* to unit length along the axes first: cosines */
    const char *name;
} mirt_dot_desc;

typedef struct mirt_group_norm_desc {
    int groups;     /* of channels; default 32; -1: one per channel, which is instance normalization */
    float epsilon;  /* default 1e-3 */
    bool no_center; /* without beta */
    bool no_scale;  /* without gamma */
    mirt_initializer beta_initializer, gamma_initializer; /* default zeros, ones */
    mirt_regularizer beta_regularizer, gamma_regularizer;
    mirt_constraint beta_constraint, gamma_constraint;
    const char *name;
} mirt_group_norm_desc;

typedef struct mirt_dropout_desc {
    float rate;
    mirt_shape noise_shape; /* of one sample: 1 where one draw is for all elements along an axis, otherwise x's
                               dimension. MIRT_SHAPE(1, 1, 1): whole images, which is stochastic depth. Default: one
                               draw per element */
    const char *name;
} mirt_dropout_desc;

#define MIRT_MAX_CHANNELS 4
typedef struct mirt_normalization_desc {
    float mean[MIRT_MAX_CHANNELS], variance[MIRT_MAX_CHANNELS]; /* of channels 0, 1, ...; default 0 and 1 */
    bool reverse; /* x's channels in the other order, RGB as BGR, before all else; not in Keras */
    const char *name;
} mirt_normalization_desc;

typedef struct mirt_relu_desc {
    float max_value;      /* 0: none */
    float negative_slope;
    float threshold;
    const char *name;
} mirt_relu_desc;

typedef struct mirt_prelu_desc {
    mirt_initializer alpha_initializer; /* default zeros */
    mirt_regularizer alpha_regularizer;
    mirt_constraint alpha_constraint;
    int shared_axes;                    /* bits: 6 is height and width of images */
    const char *name;
} mirt_prelu_desc;

/* A model lives in its strategy and may be destroyed before it. Copies `name`, NULL being "model".
   Returns NULL (MIRT_E_INVALID, MIRT_E_NOMEM). */
MIRT_API mirt_model *mirt_model_create(mirt_strategy *strategy, const char *name);
/* NULL is allowed. A part of another model lives on as its layer; the weights of parts and views go with their
   owner. */
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
   [h, w, filters / groups, channels]; groups are PyTorch's. Keras: Conv2DTranspose. */
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
/* (rows, h, w, c) -> (rows, height, width, c): output i along an axis is of the pixels from i * in / out, rounded down,
   to (i + 1) * in / out, rounded up. Keras: AdaptiveAveragePooling2D(output_size), AdaptiveMaxPooling2D. */
MIRT_API mirt_tensor *mirt_adaptive_average_pool2d(mirt_tensor *x, int height, int width);
MIRT_API mirt_tensor *mirt_adaptive_max_pool2d(mirt_tensor *x, int height, int width);
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
/* The same with what it may be told. Keras: Dropout(noise_shape=(None, ...)). */
MIRT_API mirt_tensor *mirt_dropout_layer(mirt_tensor *x, const mirt_dropout_desc *desc);
/* Products with normal numbers around 1 of standard deviation sqrt(rate / (1 - rate)), for rates below 1, in
   training only. Keras: GaussianDropout. Srivastava et al. 2014. */
MIRT_API mirt_tensor *mirt_gaussian_dropout(mirt_tensor *x, float rate);
/* Dropout for selu, to selu's least value: mean and variance stay. Rates below 1. NULL desc is an error. Keras:
   AlphaDropout. Klambauer et al. 2017. */
MIRT_API mirt_tensor *mirt_alpha_dropout(mirt_tensor *x, const mirt_dropout_desc *desc);
/* Dropout of whole channels of images. Keras: SpatialDropout2D. Tompson et al. 2015. */
MIRT_API mirt_tensor *mirt_spatial_dropout2d(mirt_tensor *x, float rate);
/* Adds normal numbers with this standard deviation, in training only; keyed as those of dropout, and the same to the
   bit on all CPUs and GPUs. Keras: GaussianNoise. */
MIRT_API mirt_tensor *mirt_gaussian_noise(mirt_tensor *x, float stddev);
/* x itself, of which l1 * sum |x| + l2 * sum x^2, as a mean over samples, is added to the loss. Keras:
   ActivityRegularization. */
MIRT_API mirt_tensor *mirt_activity_regularization(mirt_tensor *x, float l1, float l2);
/* (x - mean) / sqrt(variance) by channel, of which there are at most 4. Keras: Normalization(mean, variance). */
MIRT_API mirt_tensor *mirt_normalization(mirt_tensor *x, const mirt_normalization_desc *desc);
MIRT_API mirt_tensor *mirt_activation(mirt_tensor *x, mirt_activation_kind kind);
/* Keras: ReLU, LeakyReLU, ELU, PReLU, Softmax over the last axis. The operations without _layer do the same without
   being a layer of the model. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_relu_layer(mirt_tensor *x, const mirt_relu_desc *desc);
MIRT_API mirt_tensor *mirt_leaky_relu_layer(mirt_tensor *x, float slope);
MIRT_API mirt_tensor *mirt_elu_layer(mirt_tensor *x, float alpha);
MIRT_API mirt_tensor *mirt_prelu(mirt_tensor *x, const mirt_prelu_desc *desc);
MIRT_API mirt_tensor *mirt_softmax_layer(mirt_tensor *x);
/* Over one axis, counted as for mirt_argmax. Keras: Softmax(axis). */
MIRT_API mirt_tensor *mirt_softmax_axis(mirt_tensor *x, int axis);
/* Over all axes but that of the channels. In training with the batch's statistics, of each replica's own rows unless
   synchronized; otherwise with the moving ones. Weights gamma, beta, moving_mean, moving_variance; the last two
   are not trained, and all replicas' statistics, weighted by rows, move them in every step. Ioffe & Szegedy 2015.
   NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_batch_norm(mirt_tensor *x, const mirt_batch_norm_desc *desc);
/* Ba et al. 2016. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_layer_norm(mirt_tensor *x, const mirt_layer_norm_desc *desc);
/* Divides by the root of the mean square, and multiplies by the weight "scale". Zhang & Sennrich 2019. Keras:
   RMSNormalization. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_rms_norm(mirt_tensor *x, const mirt_rms_norm_desc *desc);
/* Over all axes of a sample, within groups of channels. Wu & He 2018. Keras: GroupNormalization. NULL desc: all
   defaults. */
MIRT_API mirt_tensor *mirt_group_norm(mirt_tensor *x, const mirt_group_norm_desc *desc);
/* Divides by the Euclidean norm over an axis, counted as for mirt_argmax. Keras: UnitNormalization. */
MIRT_API mirt_tensor *mirt_unit_normalization(mirt_tensor *x, int axis);
/* Per sample, as mirt_reshape; one dimension may be -1: what is left. Keras: Reshape. */
MIRT_API mirt_tensor *mirt_reshape_layer(mirt_tensor *x, mirt_shape shape);
/* Axis i + 1 becomes axis dims[i], counted from 1 after the rows: MIRT_SHAPE(3, 1, 2). Keras: Permute. */
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
/* Sums of products along one axis of each: (rows, the other axes of a, those of b), or (rows, 1) where none is left.
   Takes rows * (all of a but its axis) * b numbers while it does. MIRT_E_SHAPE: the axes differ in size, name that of
   the rows, or more than MIRT_MAX_RANK are left. Keras: Dot. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_dot(mirt_tensor *a, mirt_tensor *b, const mirt_dot_desc *desc);
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
MIRT_API mirt_tensor *mirt_custom_layer(const mirt_layer_class *layer_class, mirt_tensor *const *in, int num_in,
                                        const void *config, const char *name);
/* Copies the class, so that mirt_load finds it; the latest of a name holds. MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_register_layer(mirt_strategy *strategy, const mirt_layer_class *layer_class);
/* In build: a weight "layer/name"; an initializer of all zeros is glorot_uniform. Keras: add_weight. */
MIRT_API mirt_tensor *mirt_layer_variable(mirt_layer *layer, const char *name, mirt_shape shape,
                                          mirt_initializer initializer, bool trainable);
/* In build: adds a number made of weights alone, or one per sample, to the model's loss. Keras: add_loss. */
MIRT_API void mirt_layer_add_loss(mirt_layer *layer, mirt_tensor *loss);
/* Declares the model's output or outputs, batched float32; the last call before mirt_compile holds. A NULL tensor
   marks the model, so that mirt_compile fails. A compiled model keeps its outputs and stays usable, but its next
   mirt_compile fails. */
MIRT_API void mirt_model_output(mirt_model *model, mirt_tensor *output);
MIRT_API void mirt_model_outputs(mirt_model *model, mirt_tensor *const *outputs, int count);

/* An input or output of a model, for its shape or for more layers: `index` from 0, NULL after the last. Layers may be
   added to a model that has its weights, such as a ready-made network, until it is compiled; the weights are kept.
   Keras: model.inputs, model.outputs. */
MIRT_API mirt_tensor *mirt_input_of(const mirt_model *model, int index);
MIRT_API mirt_tensor *mirt_output_of(const mirt_model *model, int index);

/* A custom weight, for operations outside of layers; its name has no '/'. NULL as for layers. */
MIRT_API mirt_tensor *mirt_variable(mirt_model *model, const char *name, mirt_shape shape, mirt_initializer initializer,
                                    bool trainable);
/* A number, or a value per sample, that is added to the loss of whatever trains this model. Keras: add_loss. A
   number that depends on weights alone counts once, whatever the number of replicas and of calls of the model.
   MIRT_E_STATE: compiled, or a part of another model already. */
MIRT_API mirt_status mirt_add_loss(mirt_model *model, mirt_tensor *loss);

/* Calls a model on a tensor. Recording another model, `model` becomes a part of that one: its weights are from then on
   those of the model around it, under names that begin with its own; it may be called several times there, sharing
   them, but be a part of one model only. In the body of a function, `model` is the function's or a part of it. Its
   outputs: the first is returned, all of them go to `out` (may be NULL), which holds MIRT_MAX_OUTPUTS. Tensors of
   another dtype are cast. Keras: model(x, training=...). Errors mark what is recorded. */
MIRT_API mirt_tensor *mirt_call(mirt_model *model, mirt_tensor *x, mirt_training training);
MIRT_API mirt_tensor *mirt_call_many(mirt_model *model, mirt_tensor *const *x, int count, mirt_training training,
                                     mirt_tensor **out);
/* The (first) output of a layer, to be made an output or to build upon. Keras: get_layer(name).output.
   NULL: MIRT_E_NOT_FOUND with the nearest right name. */
MIRT_API mirt_tensor *mirt_layer_output(mirt_model *model, const char *layer);
/* A model from `model`'s inputs to other tensors of it, sharing its weights: intermediate outputs. It predicts as it
   is, and cannot be a part of another model. */
MIRT_API mirt_model *mirt_model_view(mirt_model *model, mirt_tensor *const *outputs, int count);

#ifndef MIRRORTRAIN_NO_MODELS
/* >>applications (names and defaults as in keras.applications) ---------------------------- */
/* Threads: a model is for the one thread at a time that has its strategy. */

typedef enum mirt_pooling { MIRT_POOLING_NONE = 0, MIRT_POOLING_AVG, MIRT_POOLING_MAX } mirt_pooling;
/* Whether the network takes pixels from 0 to 255, as its first layers then make of them what its family is used to. As
   in Keras EfficientNetV2 and MobileNetV3 do by default, and the others want it done for them (preprocess_input). */
typedef enum mirt_preprocessing {
    MIRT_PREPROCESSING_DEFAULT = 0, MIRT_PREPROCESSING_ON, MIRT_PREPROCESSING_OFF
} mirt_preprocessing;
typedef enum mirt_efficientnet_v2_variant {
    MIRT_EFFICIENTNET_V2_B0 = 0, MIRT_EFFICIENTNET_V2_B1, MIRT_EFFICIENTNET_V2_B2, MIRT_EFFICIENTNET_V2_B3,
    MIRT_EFFICIENTNET_V2_S, MIRT_EFFICIENTNET_V2_M, MIRT_EFFICIENTNET_V2_L
} mirt_efficientnet_v2_variant;

/* All zeros: Keras's defaults, without weights. */
typedef struct mirt_application_desc {
    int size;             /* height and width of the images, at least 32; default 224; B1 240, B2 260, B3 300, S 384, M
                             and L 480 */
    float alpha;          /* width of MobileNetV2 and V3; default 1 */
    bool no_top;          /* include_top=False: the features (rows, h, w, c), or after pooling (rows, c) */
    int classes;          /* of the top; default 1000 */
    mirt_pooling pooling; /* of a network without its top */
    bool logits;          /* classifier_activation=None; otherwise the top ends with a softmax */
    mirt_preprocessing preprocessing;
    float dropout_rate, drop_connect_rate; /* EfficientNetV2: before the top (MobileNetV3: in it), and stochastic depth;
                                              default 0.2; negative: none */
    const char *name;     /* of the model; default Keras's: "mobilenetv2_1.00_224", "resnet50", "efficientnetv2-b0" */
    const char *weights;  /* a .safetensors file, as mirt_load_weights; NULL: random ones. Keras: weights=path */
} mirt_application_desc;

/* Networks for images of three channels, recorded and not yet compiled; layers and weights have Keras's names and
   order. ResNet18 and 34, which Keras does not have, are torchvision's, with names like those of ResNet50. desc NULL:
   all defaults. NULL (MIRT_E_INVALID, MIRT_E_SHAPE: images too small, MIRT_E_NOMEM; errors of mirt_load_weights).
   Sandler et al. 2018; Howard et al. 2019; He et al. 2016; Simonyan & Zisserman 2014; Tan & Le 2021. */
MIRT_API mirt_model *mirt_mobilenet_v2(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_mobilenet_v3_small(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_mobilenet_v3_large(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_resnet18(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_resnet34(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_resnet50(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_resnet101(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_vgg16(mirt_strategy *strategy, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_efficientnet_v2(mirt_strategy *strategy, mirt_efficientnet_v2_variant variant,
                                          const mirt_application_desc *desc);
/* The same by name: "mobilenet_v2", "resnet18", "efficientnet_v2_b0" to "..._b3", "..._s", "..._m", "..._l"; and
   "mnist", the small network of 28x28 images in the tutorials, which divides them by 255 unless it is told not to, and
   has 10 classes, as logits. MIRT_E_NOT_FOUND with the nearest right name. */
MIRT_API mirt_model *mirt_application(mirt_strategy *strategy, const char *name, const mirt_application_desc *desc);
MIRT_API mirt_model *mirt_model_by_name(mirt_strategy *strategy, const char *name);
#endif /* MIRRORTRAIN_NO_MODELS */

MIRT__END_C

#endif /* MIRT__MODELS_API_H */
