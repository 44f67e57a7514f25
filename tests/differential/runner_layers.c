/* Layers of a specification, by the functions that a user calls. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

static const char *const activations[] = {"linear",       "relu",       "sigmoid",  "tanh", "softmax",
                                          "relu6",        "leaky_relu", "elu",      "gelu", "silu",
                                          "hard_sigmoid", "hard_swish", "softplus", "selu", "mish", "softsign",
                                          "exponential",  "log_softmax", "gelu_approximate", "celu", "glu",
                                          "hard_shrink", "hard_tanh", "log_sigmoid", "soft_shrink", "sparse_plus",
                                          "sparse_sigmoid", "squareplus", "tanh_shrink", "sparsemax", NULL};
static const char *const paddings[] = {"valid", "same", NULL};

static mirt_activation_kind get_activation(const item *it) {
    return (mirt_activation_kind)get_name(it, "activation", activations, MIRT_LINEAR);
}
static mirt_padding get_padding(const item *it) { return (mirt_padding)get_name(it, "padding", paddings, MIRT_VALID); }

static void get_pair(const item *it, const char *key, int out[2]) {
    float pair[2] = {(float)out[0], (float)out[1]};
    get_range(it, key, pair);
    for (int i = 0; i < 2; i++) out[i] = (int)pair[i];
}

static mirt_regularizer get_regularizer(const item *it, const char *key) {
    float pair[2] = {0, 0};
    get_range(it, key, pair);
    mirt_regularizer r = {pair[0], pair[1]};
    return r;
}

/* Kind, least and most norm, rate, axes. */
static mirt_constraint get_constraint(const item *it, const char *key) {
    mirt_constraint c;
    double v[4 + MIRT_MAX_RANK];
    memset(&c, 0, sizeof c);
    const int count = get_list(it, key, v, 4 + MIRT_MAX_RANK);
    int axes = 0;
    for (int i = 4; i < count; i++) axes |= 1 << (int)v[i];
    if (count < 5) return c;
    switch ((int)v[0]) {
    case 1: return mirt_max_norm((float)v[2], axes);
    case 2: return mirt_non_neg();
    case 3: return mirt_unit_norm(axes);
    default: return mirt_min_max_norm((float)v[1], (float)v[2], (float)v[3], axes);
    }
}

typedef mirt_tensor *(*record_fn)(const item *it, mirt_tensor **in, int num_in);

/* A layer of the one input x, from the line `it`. */
#define LAYER(name, expression)                                                                                        \
    static mirt_tensor *name(const item *it, mirt_tensor **in, int num_in) {                                           \
        mirt_tensor *x = in[0];                                                                                        \
        (void)it, (void)num_in;                                                                                        \
        return expression;                                                                                             \
    }
/* The same with a description, which `describe` reads. */
#define DESCRIBED(name, type, describe)                                                                                \
    static mirt_tensor *name(const item *it, mirt_tensor **in, int num_in) {                                           \
        type d = describe(it);                                                                                         \
        (void)num_in;                                                                                                  \
        return mirt_##name(in[0], &d);                                                                                 \
    }
/* A layer of several inputs that has no settings. */
#define MERGING(name)                                                                                                  \
    static mirt_tensor *name(const item *it, mirt_tensor **in, int num_in) {                                           \
        (void)it;                                                                                                      \
        return mirt_##name##_layer(in, num_in);                                                                        \
    }

/* What layers with a kernel have in common. */
static void get_sums(const item *it, mirt_activation_kind *activation, bool *no_bias, mirt_regularizer *bias) {
    *activation = get_activation(it);
    *no_bias = !get_bool(it, "use_bias", true);
    *bias = get_regularizer(it, "bias_regularizer");
}

static void get_windows(const item *it, int kernel[2], int strides[2], int dilation[2], mirt_padding *padding) {
    get_pair(it, "kernel", kernel);
    get_pair(it, "strides", strides);
    get_pair(it, "dilation", dilation);
    *padding = get_padding(it);
}

/* What normalizations of batches and layers have in common. */
static void get_affine(const item *it, bool *no_center, bool *no_scale, mirt_regularizer *gamma,
                       mirt_regularizer *beta) {
    *no_center = !get_bool(it, "center", true);
    *no_scale = !get_bool(it, "scale", true);
    *gamma = get_regularizer(it, "gamma_regularizer");
    *beta = get_regularizer(it, "beta_regularizer");
}

static mirt_conv2d_desc conv_desc(const item *it) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = get_int(it, "filters", 0);
    d.groups = get_int(it, "groups", 0);
    d.kernel_regularizer = get_regularizer(it, "kernel_regularizer");
    d.activity_regularizer = get_regularizer(it, "activity_regularizer");
    d.kernel_constraint = get_constraint(it, "kernel_constraint");
    d.bias_constraint = get_constraint(it, "bias_constraint");
    get_pair(it, "output_padding", d.output_padding);
    get_windows(it, d.kernel, d.strides, d.dilation, &d.padding);
    get_sums(it, &d.activation, &d.no_bias, &d.bias_regularizer);
    return d;
}

static mirt_depthwise_conv2d_desc depthwise_desc(const item *it) {
    mirt_depthwise_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.depth_multiplier = get_int(it, "depth_multiplier", 0);
    d.depthwise_regularizer = get_regularizer(it, "depthwise_regularizer");
    d.activity_regularizer = get_regularizer(it, "activity_regularizer");
    d.bias_constraint = get_constraint(it, "bias_constraint");
    get_windows(it, d.kernel, d.strides, d.dilation, &d.padding);
    get_sums(it, &d.activation, &d.no_bias, &d.bias_regularizer);
    return d;
}

DESCRIBED(conv2d, mirt_conv2d_desc, conv_desc)

DESCRIBED(conv2d_transpose, mirt_conv2d_desc, conv_desc)

DESCRIBED(depthwise_conv2d, mirt_depthwise_conv2d_desc, depthwise_desc)

static mirt_separable_conv2d_desc separable_conv2d_desc(const item *it) {
    mirt_separable_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = get_int(it, "filters", 0);
    d.depthwise = depthwise_desc(it);
    d.pointwise_regularizer = get_regularizer(it, "pointwise_regularizer");
    return d;
}
DESCRIBED(separable_conv2d, mirt_separable_conv2d_desc, separable_conv2d_desc)

static mirt_dense_desc dense_desc(const item *it) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = get_int(it, "units", 0);
    d.kernel_regularizer = get_regularizer(it, "kernel_regularizer");
    d.activity_regularizer = get_regularizer(it, "activity_regularizer");
    d.kernel_constraint = get_constraint(it, "kernel_constraint");
    d.bias_constraint = get_constraint(it, "bias_constraint");
    get_sums(it, &d.activation, &d.no_bias, &d.bias_regularizer);
    return d;
}
DESCRIBED(dense, mirt_dense_desc, dense_desc)

static mirt_pool2d_desc pool_desc(const item *it) {
    mirt_pool2d_desc d;
    memset(&d, 0, sizeof d);
    get_pair(it, "size", d.size);
    get_pair(it, "strides", d.strides);
    d.padding = get_padding(it);
    return d;
}

DESCRIBED(max_pool2d, mirt_pool2d_desc, pool_desc)

DESCRIBED(average_pool2d, mirt_pool2d_desc, pool_desc)

static mirt_tensor *global_pool(const item *it, mirt_tensor *x, bool max) {
    mirt_global_pool2d_desc d;
    memset(&d, 0, sizeof d);
    d.max = max;
    d.keepdims = get_bool(it, "keepdims", false);
    return mirt_global_pool2d(x, &d);
}

LAYER(global_max_pool2d, global_pool(it, x, true))
LAYER(global_average_pool2d, global_pool(it, x, false))

static mirt_up_sampling2d_desc up_sampling2d_desc(const item *it) {
    mirt_up_sampling2d_desc d;
    memset(&d, 0, sizeof d);
    get_pair(it, "size", d.size);
    d.bilinear = get_bool(it, "bilinear", false);
    return d;
}
DESCRIBED(up_sampling2d, mirt_up_sampling2d_desc, up_sampling2d_desc)

static mirt_tensor *border(const item *it, mirt_tensor *x, mirt_tensor *(*layer)(mirt_tensor *, int, int, int, int)) {
    double b[4];
    if (get_list(it, "border", b, 4) != 4) die("border has four numbers");
    return layer(x, (int)b[0], (int)b[1], (int)b[2], (int)b[3]);
}

LAYER(zero_padding2d, border(it, x, mirt_zero_padding2d))
LAYER(cropping2d, border(it, x, mirt_cropping2d))

static mirt_augmentation size_desc(const item *it) {
    mirt_augmentation d;
    int size[2] = {0, 0};
    memset(&d, 0, sizeof d);
    get_pair(it, "size", size);
    d.height = size[0];
    d.width = size[1];
    d.interpolation = get_interpolation(it);
    d.crop_to_aspect_ratio = get_bool(it, "crop_to_aspect_ratio", false);
    d.antialias = get_bool(it, "antialias", false);
    return d;
}

DESCRIBED(resizing, mirt_augmentation, size_desc)

DESCRIBED(center_crop, mirt_augmentation, size_desc)

static mirt_batch_norm_desc batch_norm_desc(const item *it) {
    mirt_batch_norm_desc d;
    memset(&d, 0, sizeof d);
    d.momentum = get_float(it, "momentum", 0);
    d.has_momentum = true;
    d.axis = get_int(it, "axis", 0);
    d.epsilon = get_float(it, "epsilon", 0);
    d.synchronized = get_bool(it, "synchronized", false);
    get_affine(it, &d.no_center, &d.no_scale, &d.gamma_regularizer, &d.beta_regularizer);
    return d;
}
DESCRIBED(batch_norm, mirt_batch_norm_desc, batch_norm_desc)

static mirt_layer_norm_desc layer_norm_desc(const item *it) {
    mirt_layer_norm_desc d;
    memset(&d, 0, sizeof d);
    double axis[MIRT_MAX_RANK];
    for (int i = get_list(it, "axis", axis, MIRT_MAX_RANK) - 1; i >= 0; i--) d.axis |= 1 << (int)axis[i];
    d.axes = get_int(it, "axes", 1);
    d.epsilon = get_float(it, "epsilon", 0);
    get_affine(it, &d.no_center, &d.no_scale, &d.gamma_regularizer, &d.beta_regularizer);
    return d;
}
DESCRIBED(layer_norm, mirt_layer_norm_desc, layer_norm_desc)

static mirt_rms_norm_desc rms_norm_desc(const item *it) {
    mirt_rms_norm_desc d;
    double axis[MIRT_MAX_RANK];
    memset(&d, 0, sizeof d);
    for (int i = get_list(it, "axis", axis, MIRT_MAX_RANK) - 1; i >= 0; i--) d.axis |= 1 << (int)axis[i];
    d.epsilon = get_float(it, "epsilon", 0);
    return d;
}
DESCRIBED(rms_norm, mirt_rms_norm_desc, rms_norm_desc)

static mirt_group_norm_desc group_norm_desc(const item *it) {
    mirt_group_norm_desc d;
    memset(&d, 0, sizeof d);
    d.groups = get_int(it, "groups", 0);
    d.epsilon = get_float(it, "epsilon", 0);
    get_affine(it, &d.no_center, &d.no_scale, &d.gamma_regularizer, &d.beta_regularizer);
    return d;
}
DESCRIBED(group_norm, mirt_group_norm_desc, group_norm_desc)

static mirt_tensor *adaptive_average(const item *it, mirt_tensor *x) {
    int size[2] = {0, 0};
    get_pair(it, "size", size);
    return mirt_adaptive_average_pool2d(x, size[0], size[1]);
}
LAYER(adaptive_average_pool2d, adaptive_average(it, x))
LAYER(unit_normalization, mirt_unit_normalization(x, get_int(it, "axis", -1)))
LAYER(softmax_axis, mirt_softmax_axis(x, get_int(it, "axis", -1)))
LAYER(gaussian_noise, mirt_gaussian_noise(x, get_float(it, "rate", 0)))
LAYER(spatial_dropout2d, mirt_spatial_dropout2d(x, get_float(it, "rate", 0)))
LAYER(activity_regularization, mirt_activity_regularization(x, get_float(it, "l1", 0), get_float(it, "l2", 0)))

static mirt_normalization_desc normalization_desc(const item *it) {
    mirt_normalization_desc d;
    double mean[MIRT_MAX_CHANNELS], variance[MIRT_MAX_CHANNELS];
    memset(&d, 0, sizeof d);
    int count = get_list(it, "mean", mean, MIRT_MAX_CHANNELS);
    if (get_list(it, "variance", variance, MIRT_MAX_CHANNELS) != count) die("as many means as variances");
    for (int i = 0; i < count; i++) {
        d.mean[i] = (float)mean[i];
        d.variance[i] = (float)variance[i];
    }
    return d;
}
DESCRIBED(normalization, mirt_normalization_desc, normalization_desc)

LAYER(rescaling, mirt_rescale(x, get_float(it, "scale", 1), get_float(it, "offset", 0)))

static mirt_dropout_desc dropout_desc(const item *it) {
    mirt_dropout_desc d;
    memset(&d, 0, sizeof d);
    d.rate = get_float(it, "rate", 0);
    d.noise_shape = get_shape(it, "noise_shape");
    return d;
}
DESCRIBED(dropout_layer, mirt_dropout_desc, dropout_desc)
DESCRIBED(alpha_dropout, mirt_dropout_desc, dropout_desc)
LAYER(gaussian_dropout, mirt_gaussian_dropout(x, get_float(it, "rate", 0)))
LAYER(flatten, mirt_flatten(x))
LAYER(reshape, mirt_reshape_layer(x, get_shape(it, "target")))
LAYER(permute, mirt_permute(x, get_shape(it, "dims")))
LAYER(activation, mirt_activation(x, get_activation(it)))

static mirt_tensor *relu(const item *it, mirt_tensor **in, int num_in) {
    mirt_relu_desc d;
    memset(&d, 0, sizeof d);
    d.max_value = get_float(it, "max_value", 0);
    d.negative_slope = get_float(it, "negative_slope", 0);
    d.threshold = get_float(it, "threshold", 0);
    return (void)num_in, mirt_relu_layer(in[0], &d);
}

LAYER(leaky_relu, mirt_leaky_relu_layer(x, get_float(it, "slope", 0)))
LAYER(elu, mirt_elu_layer(x, get_float(it, "alpha", 1)))
LAYER(softmax, mirt_softmax_layer(x))

static mirt_prelu_desc prelu_desc(const item *it) {
    mirt_prelu_desc d;
    double axis[MIRT_MAX_RANK];
    memset(&d, 0, sizeof d);
    for (int i = get_list(it, "shared_axes", axis, MIRT_MAX_RANK) - 1; i >= 0; i--) d.shared_axes |= 1 << (int)axis[i];
    d.alpha_regularizer = get_regularizer(it, "alpha_regularizer");
    return d;
}
DESCRIBED(prelu, mirt_prelu_desc, prelu_desc)

LAYER(glu, mirt_activation(x, MIRT_GLU))
LAYER(threshold, mirt_threshold(x, get_float(it, "threshold", 0), get_float(it, "value", 0)))

static mirt_tensor *dot(const item *it, mirt_tensor **in, int num_in) {
    mirt_dot_desc d;
    memset(&d, 0, sizeof d);
    get_pair(it, "axes", d.axes);
    d.normalize = get_bool(it, "normalize", false);
    return (void)num_in, mirt_dot(in[0], in[1], &d);
}

static mirt_tensor *concatenate(const item *it, mirt_tensor **in, int num_in) {
    return mirt_concatenate(in, num_in, get_int(it, "axis", -1));
}
MERGING(add)
MERGING(subtract)
MERGING(multiply)
MERGING(average)
MERGING(maximum)
MERGING(minimum)

static const struct {
    const char *kind;
    record_fn record;
} layers[] = {{"conv2d", conv2d},
              {"conv2d_transpose", conv2d_transpose},
              {"depthwise_conv2d", depthwise_conv2d},
              {"separable_conv2d", separable_conv2d},
              {"dense", dense},
              {"max_pool2d", max_pool2d},
              {"average_pool2d", average_pool2d},
              {"global_max_pool2d", global_max_pool2d},
              {"global_average_pool2d", global_average_pool2d},
              {"up_sampling2d", up_sampling2d},
              {"zero_padding2d", zero_padding2d},
              {"cropping2d", cropping2d},
              {"resizing", resizing},
              {"center_crop", center_crop},
              {"batch_norm", batch_norm},
              {"layer_norm", layer_norm},
              {"rms_norm", rms_norm},
              {"group_norm", group_norm},
              {"adaptive_average_pool2d", adaptive_average_pool2d},
              {"unit_normalization", unit_normalization},
              {"softmax_axis", softmax_axis},
              {"gaussian_noise", gaussian_noise},
              {"spatial_dropout2d", spatial_dropout2d},
              {"activity_regularization", activity_regularization},
              {"normalization", normalization},
              {"rescaling", rescaling},
              {"dropout", dropout_layer},
              {"alpha_dropout", alpha_dropout},
              {"gaussian_dropout", gaussian_dropout},
              {"flatten", flatten},
              {"reshape", reshape},
              {"permute", permute},
              {"activation", activation},
              {"relu", relu},
              {"leaky_relu", leaky_relu},
              {"elu", elu},
              {"softmax", softmax},
              {"prelu", prelu},
              {"threshold", threshold},
              {"glu", glu},
              {"dot", dot},
              {"concatenate", concatenate},
              {"add", add},
              {"subtract", subtract},
              {"multiply", multiply},
              {"average", average},
              {"maximum", maximum},
              {"minimum", minimum}};

mirt_tensor *record_layer(mirt_model *model, const item *it, mirt_tensor **in, int num_in) {
    const char *kind = get_text(it, "kind");
    for (size_t i = 0; kind && i < sizeof layers / sizeof *layers; i++) {
        if (strcmp(layers[i].kind, kind) != 0) continue;
        mirt_next_name(model, get_text(it, "name"));
        return layers[i].record(it, in, num_in);
    }
    die("there is no layer of kind %s", kind ? kind : "(none)");
    return NULL;
}
