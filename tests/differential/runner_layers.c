/* Layers of a specification, by the functions that a user calls. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

static const char *const activations[] = {"linear",       "relu",       "sigmoid",  "tanh", "softmax",
                                          "relu6",        "leaky_relu", "elu",      "gelu", "silu",
                                          "hard_sigmoid", "hard_swish", "softplus", NULL};
static const char *const paddings[] = {"valid", "same", NULL};
static const char *const interpolations[] = {"bilinear", "nearest",  "bicubic",       "area", "lanczos3",
                                             "lanczos5", "gaussian", "mitchellcubic", NULL};

static mirt_activation_kind get_activation(const item *it) {
    return (mirt_activation_kind)get_name(it, "activation", activations, MIRT_LINEAR);
}
static mirt_padding get_padding(const item *it) { return (mirt_padding)get_name(it, "padding", paddings, MIRT_VALID); }

static void get_pair(const item *it, const char *key, int out[2]) {
    double pair[2];
    int count = get_list(it, key, pair, 2);
    for (int i = 0; i < count; i++) out[i] = (int)pair[i];
}

static mirt_regularizer get_regularizer(const item *it, const char *key) {
    mirt_regularizer r = {0, 0};
    double pair[2];
    if (get_list(it, key, pair, 2) == 2) {
        r.l1 = (float)pair[0];
        r.l2 = (float)pair[1];
    }
    return r;
}

typedef mirt_tensor *(*record_fn)(const item *it, mirt_tensor **in, int num_in);

static mirt_conv2d_desc conv_desc(const item *it) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = get_int(it, "filters", 0);
    get_pair(it, "kernel", d.kernel);
    get_pair(it, "strides", d.strides);
    get_pair(it, "dilation", d.dilation);
    d.groups = get_int(it, "groups", 0);
    d.padding = get_padding(it);
    d.activation = get_activation(it);
    d.no_bias = !get_bool(it, "use_bias", true);
    d.kernel_regularizer = get_regularizer(it, "kernel_regularizer");
    d.bias_regularizer = get_regularizer(it, "bias_regularizer");
    return d;
}

static mirt_depthwise_conv2d_desc depthwise_desc(const item *it) {
    mirt_depthwise_conv2d_desc d;
    memset(&d, 0, sizeof d);
    get_pair(it, "kernel", d.kernel);
    get_pair(it, "strides", d.strides);
    get_pair(it, "dilation", d.dilation);
    d.depth_multiplier = get_int(it, "depth_multiplier", 0);
    d.padding = get_padding(it);
    d.activation = get_activation(it);
    d.no_bias = !get_bool(it, "use_bias", true);
    d.depthwise_regularizer = get_regularizer(it, "depthwise_regularizer");
    d.bias_regularizer = get_regularizer(it, "bias_regularizer");
    return d;
}

static mirt_tensor *conv2d(const item *it, mirt_tensor **in, int num_in) {
    mirt_conv2d_desc d = conv_desc(it);
    return (void)num_in, mirt_conv2d(in[0], &d);
}

static mirt_tensor *conv2d_transpose(const item *it, mirt_tensor **in, int num_in) {
    mirt_conv2d_desc d = conv_desc(it);
    return (void)num_in, mirt_conv2d_transpose(in[0], &d);
}

static mirt_tensor *depthwise_conv2d(const item *it, mirt_tensor **in, int num_in) {
    mirt_depthwise_conv2d_desc d = depthwise_desc(it);
    return (void)num_in, mirt_depthwise_conv2d(in[0], &d);
}

static mirt_tensor *separable_conv2d(const item *it, mirt_tensor **in, int num_in) {
    mirt_separable_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = get_int(it, "filters", 0);
    d.depthwise = depthwise_desc(it);
    d.pointwise_regularizer = get_regularizer(it, "pointwise_regularizer");
    return (void)num_in, mirt_separable_conv2d(in[0], &d);
}

static mirt_tensor *dense(const item *it, mirt_tensor **in, int num_in) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = get_int(it, "units", 0);
    d.activation = get_activation(it);
    d.no_bias = !get_bool(it, "use_bias", true);
    d.kernel_regularizer = get_regularizer(it, "kernel_regularizer");
    d.bias_regularizer = get_regularizer(it, "bias_regularizer");
    return (void)num_in, mirt_dense(in[0], &d);
}

static mirt_pool2d_desc pool_desc(const item *it) {
    mirt_pool2d_desc d;
    memset(&d, 0, sizeof d);
    get_pair(it, "size", d.size);
    get_pair(it, "strides", d.strides);
    d.padding = get_padding(it);
    return d;
}

static mirt_tensor *max_pool2d(const item *it, mirt_tensor **in, int num_in) {
    mirt_pool2d_desc d = pool_desc(it);
    return (void)num_in, mirt_max_pool2d(in[0], &d);
}

static mirt_tensor *average_pool2d(const item *it, mirt_tensor **in, int num_in) {
    mirt_pool2d_desc d = pool_desc(it);
    return (void)num_in, mirt_average_pool2d(in[0], &d);
}

static mirt_tensor *global_pool(const item *it, mirt_tensor *x, bool max) {
    mirt_global_pool2d_desc d;
    memset(&d, 0, sizeof d);
    d.max = max;
    d.keepdims = get_bool(it, "keepdims", false);
    return mirt_global_pool2d(x, &d);
}

static mirt_tensor *global_max_pool2d(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, global_pool(it, in[0], true);
}
static mirt_tensor *global_average_pool2d(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, global_pool(it, in[0], false);
}

static mirt_tensor *up_sampling2d(const item *it, mirt_tensor **in, int num_in) {
    mirt_up_sampling2d_desc d;
    memset(&d, 0, sizeof d);
    get_pair(it, "size", d.size);
    d.bilinear = get_bool(it, "bilinear", false);
    return (void)num_in, mirt_up_sampling2d(in[0], &d);
}

static mirt_tensor *border(const item *it, mirt_tensor *x, mirt_tensor *(*layer)(mirt_tensor *, int, int, int, int)) {
    double b[4];
    if (get_list(it, "border", b, 4) != 4) die("border has four numbers");
    return layer(x, (int)b[0], (int)b[1], (int)b[2], (int)b[3]);
}

static mirt_tensor *zero_padding2d(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, border(it, in[0], mirt_zero_padding2d);
}
static mirt_tensor *cropping2d(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, border(it, in[0], mirt_cropping2d);
}

static mirt_augmentation size_desc(const item *it) {
    mirt_augmentation d;
    int size[2] = {0, 0};
    memset(&d, 0, sizeof d);
    get_pair(it, "size", size);
    d.height = size[0];
    d.width = size[1];
    d.interpolation = (mirt_interpolation)get_name(it, "interpolation", interpolations, MIRT_BILINEAR);
    d.crop_to_aspect_ratio = get_bool(it, "crop_to_aspect_ratio", false);
    d.antialias = get_bool(it, "antialias", false);
    return d;
}

static mirt_tensor *resizing(const item *it, mirt_tensor **in, int num_in) {
    mirt_augmentation d = size_desc(it);
    return (void)num_in, mirt_resizing(in[0], &d);
}

static mirt_tensor *center_crop(const item *it, mirt_tensor **in, int num_in) {
    mirt_augmentation d = size_desc(it);
    return (void)num_in, mirt_center_crop(in[0], &d);
}

static mirt_tensor *batch_norm(const item *it, mirt_tensor **in, int num_in) {
    mirt_batch_norm_desc d;
    memset(&d, 0, sizeof d);
    d.momentum = get_float(it, "momentum", 0);
    d.epsilon = get_float(it, "epsilon", 0);
    d.no_center = !get_bool(it, "center", true);
    d.no_scale = !get_bool(it, "scale", true);
    d.synchronized = get_bool(it, "synchronized", false);
    d.gamma_regularizer = get_regularizer(it, "gamma_regularizer");
    d.beta_regularizer = get_regularizer(it, "beta_regularizer");
    return (void)num_in, mirt_batch_norm(in[0], &d);
}

static mirt_tensor *layer_norm(const item *it, mirt_tensor **in, int num_in) {
    mirt_layer_norm_desc d;
    memset(&d, 0, sizeof d);
    d.axes = get_int(it, "axes", 1);
    d.epsilon = get_float(it, "epsilon", 0);
    d.no_center = !get_bool(it, "center", true);
    d.no_scale = !get_bool(it, "scale", true);
    d.gamma_regularizer = get_regularizer(it, "gamma_regularizer");
    d.beta_regularizer = get_regularizer(it, "beta_regularizer");
    return (void)num_in, mirt_layer_norm(in[0], &d);
}

static mirt_tensor *normalization(const item *it, mirt_tensor **in, int num_in) {
    mirt_normalization_desc d;
    double mean[MIRT_MAX_CHANNELS], variance[MIRT_MAX_CHANNELS];
    memset(&d, 0, sizeof d);
    int count = get_list(it, "mean", mean, MIRT_MAX_CHANNELS);
    if (get_list(it, "variance", variance, MIRT_MAX_CHANNELS) != count) die("as many means as variances");
    for (int i = 0; i < count; i++) {
        d.mean[i] = (float)mean[i];
        d.variance[i] = (float)variance[i];
    }
    return (void)num_in, mirt_normalization(in[0], &d);
}

static mirt_tensor *rescaling(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, mirt_rescale(in[0], get_float(it, "scale", 1), get_float(it, "offset", 0));
}

static mirt_tensor *dropout(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, mirt_dropout(in[0], get_float(it, "rate", 0));
}
static mirt_tensor *flatten(const item *it, mirt_tensor **in, int num_in) {
    return (void)it, (void)num_in, mirt_flatten(in[0]);
}
static mirt_tensor *reshape(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, mirt_reshape_layer(in[0], get_shape(it, "target"));
}
static mirt_tensor *permute(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, mirt_permute(in[0], get_shape(it, "dims"));
}
static mirt_tensor *activation(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, mirt_activation(in[0], get_activation(it));
}

static mirt_tensor *relu(const item *it, mirt_tensor **in, int num_in) {
    mirt_relu_desc d;
    memset(&d, 0, sizeof d);
    d.max_value = get_float(it, "max_value", 0);
    d.negative_slope = get_float(it, "negative_slope", 0);
    d.threshold = get_float(it, "threshold", 0);
    return (void)num_in, mirt_relu_layer(in[0], &d);
}

static mirt_tensor *leaky_relu(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, mirt_leaky_relu_layer(in[0], get_float(it, "slope", 0));
}
static mirt_tensor *elu(const item *it, mirt_tensor **in, int num_in) {
    return (void)num_in, mirt_elu_layer(in[0], get_float(it, "alpha", 1));
}
static mirt_tensor *softmax(const item *it, mirt_tensor **in, int num_in) {
    return (void)it, (void)num_in, mirt_softmax_layer(in[0]);
}

static mirt_tensor *prelu(const item *it, mirt_tensor **in, int num_in) {
    mirt_prelu_desc d;
    double axis[MIRT_MAX_RANK];
    memset(&d, 0, sizeof d);
    for (int i = get_list(it, "shared_axes", axis, MIRT_MAX_RANK) - 1; i >= 0; i--) d.shared_axes |= 1 << (int)axis[i];
    d.alpha_regularizer = get_regularizer(it, "alpha_regularizer");
    return (void)num_in, mirt_prelu(in[0], &d);
}

static mirt_tensor *concatenate(const item *it, mirt_tensor **in, int num_in) {
    return mirt_concatenate(in, num_in, get_int(it, "axis", -1));
}
static mirt_tensor *add(const item *it, mirt_tensor **in, int num_in) { return (void)it, mirt_add_layer(in, num_in); }
static mirt_tensor *subtract(const item *it, mirt_tensor **in, int num_in) {
    return (void)it, mirt_subtract_layer(in, num_in);
}
static mirt_tensor *multiply(const item *it, mirt_tensor **in, int num_in) {
    return (void)it, mirt_multiply_layer(in, num_in);
}
static mirt_tensor *average(const item *it, mirt_tensor **in, int num_in) {
    return (void)it, mirt_average_layer(in, num_in);
}
static mirt_tensor *maximum(const item *it, mirt_tensor **in, int num_in) {
    return (void)it, mirt_maximum_layer(in, num_in);
}
static mirt_tensor *minimum(const item *it, mirt_tensor **in, int num_in) {
    return (void)it, mirt_minimum_layer(in, num_in);
}

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
              {"normalization", normalization},
              {"rescaling", rescaling},
              {"dropout", dropout},
              {"flatten", flatten},
              {"reshape", reshape},
              {"permute", permute},
              {"activation", activation},
              {"relu", relu},
              {"leaky_relu", leaky_relu},
              {"elu", elu},
              {"softmax", softmax},
              {"prelu", prelu},
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
