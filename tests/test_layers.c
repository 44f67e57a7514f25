/* Tests every layer: outputs, gradients, weights and names against float64 Keras (golden/layers.h). Layers are saved
   and loaded again; also regularizers, custom layers, and files of any graph. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/layers.h"
#include "layer_util.h"
#include "tap.h"

#include <unistd.h>

static mirt_strategy *strategy;
static char path[512], path_2[512];

/* >>a custom layer: x + shift, whose gradient is that of x summed over rows */

static mirt_tensor *shift_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    mirt_shape shape = mirt_tensor_shape(in[0]);
    (void)num_in;
    (void)config;
    (void)user;
    for (int i = 1; i < shape.rank; i++) shape.dim[i - 1] = shape.dim[i];
    shape.rank--;
    return mirt_add(in[0], mirt_layer_variable(layer, "shift", shape, mirt_zeros(), true));
}

static mirt_tensor *shifted(mirt_tensor *x) {
    mirt_layer_class c;
    memset(&c, 0, sizeof c);
    c.class_name = "Shift";
    c.build = shift_build;
    return mirt_custom_layer(&c, &x, 1, NULL, NULL);
}

/* >>one row for every row of the golden table */

static mirt_tensor *row_dense(mirt_tensor *x) { return dense(x, 4, MIRT_RELU, false); }
static mirt_tensor *row_dense_images(mirt_tensor *x) { return dense(x, 4, MIRT_TANH, true); }

static mirt_tensor *row_conv2d(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(4, 3, 0, 0, MIRT_VALID);
    return mirt_conv2d(x, &d);
}
static mirt_tensor *row_conv2d_same(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(3, 2, 3, 2, MIRT_SAME);
    d.activation = MIRT_ELU;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *row_conv2d_dilated(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 2, 0, 0, MIRT_VALID);
    d.dilation[0] = 2;
    d.dilation[1] = 3;
    d.no_bias = true;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *row_conv2d_groups(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(6, 3, 2, 0, MIRT_SAME);
    d.groups = 3;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *row_transpose(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 3, 0, 0, MIRT_VALID);
    return mirt_conv2d_transpose(x, &d);
}
static mirt_tensor *row_transpose_strides(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(4, 3, 2, 2, MIRT_SAME);
    d.activation = MIRT_RELU;
    return mirt_conv2d_transpose(x, &d);
}
static mirt_tensor *row_transpose_far(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 2, 0, 3, MIRT_VALID);
    d.no_bias = true;
    return mirt_conv2d_transpose(x, &d);
}
static mirt_tensor *row_depthwise(mirt_tensor *x) {
    ZEROED(mirt_depthwise_conv2d_desc, d);
    d.kernel[0] = 3;
    return mirt_depthwise_conv2d(x, &d);
}
static mirt_tensor *row_depthwise_multiplier(mirt_tensor *x) {
    ZEROED(mirt_depthwise_conv2d_desc, d);
    d.kernel[0] = 2;
    d.kernel[1] = 3;
    d.strides[0] = 2;
    d.padding = MIRT_SAME;
    d.depth_multiplier = 2;
    d.activation = MIRT_SILU;
    return mirt_depthwise_conv2d(x, &d);
}
static mirt_tensor *row_separable(mirt_tensor *x) {
    ZEROED(mirt_separable_conv2d_desc, d);
    d.filters = 5;
    d.depthwise.kernel[0] = 3;
    return mirt_separable_conv2d(x, &d);
}
static mirt_tensor *row_separable_multiplier(mirt_tensor *x) {
    ZEROED(mirt_separable_conv2d_desc, d);
    d.filters = 2;
    d.depthwise.kernel[0] = 2;
    d.depthwise.padding = MIRT_SAME;
    d.depthwise.depth_multiplier = 2;
    d.depthwise.no_bias = true;
    d.depthwise.activation = MIRT_RELU6;
    return mirt_separable_conv2d(x, &d);
}
static mirt_pool2d_desc pool(int h, int w, int sh, int sw) {
    ZEROED(mirt_pool2d_desc, d);
    d.size[0] = h;
    d.size[1] = w;
    d.strides[0] = sh;
    d.strides[1] = sw;
    d.padding = MIRT_SAME;
    return d;
}
static mirt_tensor *row_max(mirt_tensor *x) { return mirt_max_pool2d(x, NULL); }
static mirt_tensor *row_max_same(mirt_tensor *x) {
    mirt_pool2d_desc d = pool(3, 2, 2, 1);
    return mirt_max_pool2d(x, &d);
}
static mirt_tensor *row_average_pool(mirt_tensor *x) { return mirt_average_pool2d(x, NULL); }
static mirt_tensor *row_average_same(mirt_tensor *x) {
    mirt_pool2d_desc d = pool(3, 0, 2, 0);
    return mirt_average_pool2d(x, &d);
}
static mirt_tensor *global_pool(mirt_tensor *x, bool max) {
    ZEROED(mirt_global_pool2d_desc, d);
    d.max = max;
    d.keepdims = true;
    return mirt_global_pool2d(x, &d);
}
static mirt_tensor *row_global_average_keep(mirt_tensor *x) { return global_pool(x, false); }
static mirt_tensor *row_global_max_keep(mirt_tensor *x) { return global_pool(x, true); }
static mirt_tensor *row_zero_padding(mirt_tensor *x) { return mirt_zero_padding2d(x, 1, 0, 2, 3); }
static mirt_tensor *row_cropping(mirt_tensor *x) { return mirt_cropping2d(x, 1, 0, 2, 1); }
static mirt_tensor *row_sized(mirt_tensor *x, mirt_augmentation_kind kind, int height, int width, bool crop) {
    ZEROED(mirt_augmentation, d);
    d.kind = kind;
    d.height = height;
    d.width = width;
    d.crop_to_aspect_ratio = crop;
    d.interpolation = crop ? MIRT_NEAREST : MIRT_BILINEAR;
    return mirt_augmentation_layer(x, &d);
}
static mirt_tensor *row_center_crop(mirt_tensor *x) { return row_sized(x, MIRT_CENTER_CROP, 3, 2, false); }
static mirt_tensor *row_center_crop_larger(mirt_tensor *x) { return row_sized(x, MIRT_CENTER_CROP, 6, 4, false); }
static mirt_tensor *row_resizing(mirt_tensor *x) { return row_sized(x, MIRT_RESIZING, 3, 7, false); }
static mirt_tensor *row_auto_contrast(mirt_tensor *x) {
    ZEROED(mirt_augmentation, d);
    d.value_range[0] = -0.5f;
    d.value_range[1] = 1.5f;
    return mirt_auto_contrast(x, &d);
}
static mirt_tensor *row_transpose_padded(mirt_tensor *x) {
    return output_padded(x, conv(3, 3, 0, 2, MIRT_SAME), 1, 0);
}
static mirt_tensor *row_transpose_unpadded(mirt_tensor *x) {
    return output_padded(x, conv(2, 2, 3, 3, MIRT_VALID), -1, 0);
}
static mirt_tensor *row_transpose_differently(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 3, 2, 2, MIRT_VALID);
    d.strides[1] = 3;
    return output_padded(x, d, 1, 2);
}
static mirt_tensor *row_transpose_dilated(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 2, 3, 0, MIRT_VALID);
    d.dilation[0] = 2;
    return mirt_conv2d_transpose(x, &d);
}
static mirt_tensor *row_activity(mirt_tensor *x) { return mirt_activity_regularization(x, 0, 0); }
static mirt_tensor *row_transpose_groups(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(6, 3, 4, 2, MIRT_VALID);
    d.strides[1] = 3;
    d.groups = 2;
    return mirt_conv2d_transpose(x, &d);
}
static mirt_tensor *row_batch_norm_axis(mirt_tensor *x) { return batch_norm_axis(x, 1, false); }
static mirt_tensor *row_batch_norm_from_end(mirt_tensor *x) { return batch_norm_axis(x, -2, true); }
static mirt_tensor *row_layer_norm_pixels(mirt_tensor *x) { return layer_norm_axis(x, 0, 6, 0); }
static mirt_tensor *row_layer_norm_rows(mirt_tensor *x) { return layer_norm_axis(x, 0, 10, 0.01f); }
static mirt_tensor *row_group_norm(mirt_tensor *x) { return group_norm(x, 2, false, false, 0); }
static mirt_tensor *row_group_norm_features(mirt_tensor *x) { return group_norm(x, 3, true, false, 0.01f); }
static mirt_tensor *row_group_norm_instances(mirt_tensor *x) { return group_norm(x, -1, false, true, 0); }
static mirt_tensor *row_unit_norm(mirt_tensor *x) { return mirt_unit_normalization(x, -1); }
static mirt_tensor *row_unit_norm_axis(mirt_tensor *x) { return mirt_unit_normalization(x, 1); }
static mirt_tensor *row_softmax_axis(mirt_tensor *x) { return mirt_softmax_axis(x, 1); }
static mirt_tensor *row_softmax_from_end(mirt_tensor *x) { return mirt_softmax_axis(x, -2); }
static mirt_tensor *row_adaptive_average(mirt_tensor *x) { return mirt_adaptive_average_pool2d(x, 2, 3); }
static mirt_tensor *row_adaptive_average_tiled(mirt_tensor *x) { return mirt_adaptive_average_pool2d(x, 2, 5); }
static mirt_tensor *row_adaptive_average_larger(mirt_tensor *x) { return mirt_adaptive_average_pool2d(x, 6, 2); }
static mirt_tensor *row_adaptive_max(mirt_tensor *x) { return mirt_adaptive_max_pool2d(x, 3, 2); }
static mirt_tensor *row_adaptive_max_tiled(mirt_tensor *x) { return mirt_adaptive_max_pool2d(x, 2, 5); }
static mirt_tensor *row_adaptive_max_many(mirt_tensor *x) { return mirt_adaptive_max_pool2d(x, 3, 9); }
static mirt_tensor *row_resizing_crop(mirt_tensor *x) { return row_sized(x, MIRT_RESIZING, 4, 3, true); }
static mirt_tensor *row_up(mirt_tensor *x) { return mirt_up_sampling2d(x, NULL); }
static mirt_tensor *row_up_bilinear(mirt_tensor *x) {
    ZEROED(mirt_up_sampling2d_desc, d);
    d.size[0] = 3;
    d.size[1] = 2;
    d.bilinear = true;
    return mirt_up_sampling2d(x, &d);
}
static mirt_tensor *row_reshape(mirt_tensor *x) { return mirt_reshape_layer(x, MIRT_SHAPE(-1, 6)); }
static mirt_tensor *row_permute(mirt_tensor *x) { return mirt_permute(x, MIRT_SHAPE(3, 1, 2)); }
static mirt_tensor *row_rescaling(mirt_tensor *x) { return mirt_rescale(x, 0.5f, -0.25f); }
static mirt_tensor *row_relu(mirt_tensor *x) { return mirt_relu_layer(x, NULL); }
static mirt_tensor *row_relu_max(mirt_tensor *x) { return relu(x, 0.5f, 0.25f, 0); }
static mirt_tensor *row_relu_threshold(mirt_tensor *x) { return relu(x, 0.75f, 0.125f, 0.25f); }
static mirt_tensor *row_leaky(mirt_tensor *x) { return mirt_leaky_relu_layer(x, 0.3f); }
static mirt_tensor *row_elu(mirt_tensor *x) { return mirt_elu_layer(x, 0.5f); }
static mirt_tensor *row_prelu(mirt_tensor *x) { return mirt_prelu(x, NULL); }
static mirt_tensor *row_prelu_shared(mirt_tensor *x) {
    ZEROED(mirt_prelu_desc, d);
    d.shared_axes = 6;
    return mirt_prelu(x, &d);
}
#define ACTIVATION(name, kind) static mirt_tensor *act_##name(mirt_tensor *x) { return mirt_activation(x, kind); }
ACTIVATION(linear, MIRT_LINEAR)
ACTIVATION(relu, MIRT_RELU)
ACTIVATION(sigmoid, MIRT_SIGMOID)
ACTIVATION(tanh, MIRT_TANH)
ACTIVATION(softmax, MIRT_SOFTMAX)
ACTIVATION(relu6, MIRT_RELU6)
ACTIVATION(leaky_relu, MIRT_LEAKY_RELU)
ACTIVATION(elu, MIRT_ELU)
ACTIVATION(gelu, MIRT_GELU)
ACTIVATION(silu, MIRT_SILU)
ACTIVATION(hard_sigmoid, MIRT_HARD_SIGMOID)
ACTIVATION(hard_silu, MIRT_HARD_SWISH)
ACTIVATION(softplus, MIRT_SOFTPLUS)
ACTIVATION(selu, MIRT_SELU)
ACTIVATION(mish, MIRT_MISH)
ACTIVATION(softsign, MIRT_SOFTSIGN)
ACTIVATION(exponential, MIRT_EXPONENTIAL)
ACTIVATION(log_softmax, MIRT_LOG_SOFTMAX)
ACTIVATION(gelu_approximate, MIRT_GELU_APPROXIMATE)
ACTIVATION(celu, MIRT_CELU)
ACTIVATION(glu, MIRT_GLU)
ACTIVATION(hard_shrink, MIRT_HARD_SHRINK)
ACTIVATION(hard_tanh, MIRT_HARD_TANH)
ACTIVATION(log_sigmoid, MIRT_LOG_SIGMOID)
ACTIVATION(soft_shrink, MIRT_SOFT_SHRINK)
ACTIVATION(sparse_plus, MIRT_SPARSE_PLUS)
ACTIVATION(sparse_sigmoid, MIRT_SPARSE_SIGMOID)
ACTIVATION(squareplus, MIRT_SQUAREPLUS)
ACTIVATION(tanh_shrink, MIRT_TANH_SHRINK)
ACTIVATION(sparsemax, MIRT_SPARSEMAX)
static mirt_tensor *row_batch_norm(mirt_tensor *x) { return mirt_batch_norm(x, NULL); }
static mirt_tensor *row_batch_norm_features(mirt_tensor *x) {
    ZEROED(mirt_batch_norm_desc, d);
    d.momentum = 0.75f;
    d.epsilon = 0.01f;
    d.no_scale = true;
    return mirt_batch_norm(x, &d);
}
static mirt_tensor *row_batch_norm_plain(mirt_tensor *x) {
    ZEROED(mirt_batch_norm_desc, d);
    d.no_center = d.no_scale = true;
    return mirt_batch_norm(x, &d);
}
static mirt_tensor *row_layer_norm(mirt_tensor *x) { return mirt_layer_norm(x, NULL); }
static mirt_tensor *row_rms_norm(mirt_tensor *x) { return mirt_rms_norm(x, NULL); }
static mirt_tensor *row_rms_norm_axes(mirt_tensor *x) {
    ZEROED(mirt_rms_norm_desc, d);
    d.axis = 12;
    d.epsilon = 0.01f;
    return mirt_rms_norm(x, &d);
}
static mirt_tensor *row_layer_norm_axes(mirt_tensor *x) {
    ZEROED(mirt_layer_norm_desc, d);
    d.axes = 2;
    d.epsilon = 0.01f;
    d.no_center = true;
    return mirt_layer_norm(x, &d);
}
/* Merges of x, x / 2 + 1/4 and x^2, which bare operations make. */
#define MERGE(name, call) \
    static mirt_tensor *row_##name(mirt_tensor *x) { \
        mirt_tensor *in[3]; \
        in[0] = x; \
        in[1] = mirt_scale(x, 0.5f, 0.25f); \
        in[2] = mirt_square(x); \
        return call; \
    }
MERGE(add, mirt_add_layer(in, 3))
MERGE(subtract, mirt_subtract_layer(in, 2))
MERGE(multiply, mirt_multiply_layer(in, 3))
MERGE(average, mirt_average_layer(in, 3))
MERGE(maximum, mirt_maximum_layer(in, 3))
MERGE(minimum, mirt_minimum_layer(in, 3))
MERGE(concatenate, mirt_concatenate(in, 3, -1))
MERGE(concatenate_axis, mirt_concatenate(in, 2, 1))
static mirt_tensor *dot(mirt_tensor *const *in, int first, int second, bool normalize) {
    ZEROED(mirt_dot_desc, d);
    d.axes[0] = first;
    d.axes[1] = second;
    d.normalize = normalize;
    return mirt_dot(in[0], in[1], &d);
}
MERGE(dot, mirt_dot(in[0], in[1], NULL))
MERGE(dot_pixels, dot(in, 2, 0, true))
MERGE(dot_axes, dot(in, 1, -1, false))
static mirt_tensor *row_add_broadcast(mirt_tensor *x) {
    mirt_tensor *in[2];
    in[0] = x;
    in[1] = mirt_reduce_sum(mirt_scale(x, 0.5f, 0.25f), 6u, true);
    return mirt_add_layer(in, 2);
}
static mirt_tensor *row_normalization(mirt_tensor *x) {
    static const float mean[] = {0.485f, 0.456f, -0.25f}, variance[] = {0.05f, 0.3f, 2.0f};
    ZEROED(mirt_normalization_desc, d);
    memcpy(d.mean, mean, sizeof mean);
    memcpy(d.variance, variance, sizeof variance);
    return mirt_normalization(x, &d);
}

static const struct {
    const char *label;
    mirt_tensor *(*build)(mirt_tensor *x);
} rows[] = {
    {"dense", row_dense},
    {"dense of images", row_dense_images},
    {"conv2d", row_conv2d},
    {"conv2d same", row_conv2d_same},
    {"conv2d dilated", row_conv2d_dilated},
    {"conv2d groups", row_conv2d_groups},
    {"conv2d_transpose", row_transpose},
    {"conv2d_transpose strides", row_transpose_strides},
    {"conv2d_transpose far", row_transpose_far},
    {"depthwise_conv2d", row_depthwise},
    {"depthwise_conv2d multiplier", row_depthwise_multiplier},
    {"separable_conv2d", row_separable},
    {"separable_conv2d multiplier", row_separable_multiplier},
    {"max_pooling2d", row_max},
    {"max_pooling2d same", row_max_same},
    {"average_pooling2d", row_average_pool},
    {"average_pooling2d same", row_average_same},
    {"global_average_pooling2d", mirt_global_average_pool2d},
    {"global_average_pooling2d keepdims", row_global_average_keep},
    {"global_max_pooling2d", mirt_global_max_pool2d},
    {"global_max_pooling2d keepdims", row_global_max_keep},
    {"zero_padding2d", row_zero_padding},
    {"cropping2d", row_cropping},
    {"up_sampling2d", row_up},
    {"up_sampling2d bilinear", row_up_bilinear},
    {"flatten", mirt_flatten},
    {"reshape", row_reshape},
    {"permute", row_permute},
    {"rescaling", row_rescaling},
    {"re_lu", row_relu},
    {"re_lu max", row_relu_max},
    {"re_lu threshold", row_relu_threshold},
    {"leaky_re_lu", row_leaky},
    {"elu", row_elu},
    {"p_re_lu", row_prelu},
    {"p_re_lu shared", row_prelu_shared},
    {"softmax", mirt_softmax_layer},
    {"activation linear", act_linear},
    {"activation relu", act_relu},
    {"activation sigmoid", act_sigmoid},
    {"activation tanh", act_tanh},
    {"activation softmax", act_softmax},
    {"activation relu6", act_relu6},
    {"activation leaky_relu", act_leaky_relu},
    {"activation elu", act_elu},
    {"activation gelu", act_gelu},
    {"activation silu", act_silu},
    {"activation hard_sigmoid", act_hard_sigmoid},
    {"activation hard_silu", act_hard_silu},
    {"activation softplus", act_softplus},
    {"batch_normalization", row_batch_norm},
    {"batch_normalization of features", row_batch_norm_features},
    {"batch_normalization plain", row_batch_norm_plain},
    {"layer_normalization", row_layer_norm},
    {"layer_normalization axes", row_layer_norm_axes},
    {"add", row_add},
    {"add broadcast", row_add_broadcast},
    {"subtract", row_subtract},
    {"multiply", row_multiply},
    {"average", row_average},
    {"maximum", row_maximum},
    {"minimum", row_minimum},
    {"concatenate", row_concatenate},
    {"concatenate axis", row_concatenate_axis},
    {"normalization", row_normalization},
    {"center_crop", row_center_crop},
    {"center_crop larger", row_center_crop_larger},
    {"resizing", row_resizing},
    {"resizing crop", row_resizing_crop},
    {"group_normalization", row_group_norm},
    {"group_normalization of features", row_group_norm_features},
    {"group_normalization of instances", row_group_norm_instances},
    {"unit_normalization", row_unit_norm},
    {"unit_normalization axis", row_unit_norm_axis},
    {"softmax axis", row_softmax_axis},
    {"softmax axis from the end", row_softmax_from_end},
    {"adaptive_average_pooling2d", row_adaptive_average},
    {"adaptive_average_pooling2d tiled", row_adaptive_average_tiled},
    {"adaptive_average_pooling2d larger", row_adaptive_average_larger},
    {"adaptive_max_pooling2d", row_adaptive_max},
    {"adaptive_max_pooling2d tiled", row_adaptive_max_tiled},
    {"adaptive_max_pooling2d many", row_adaptive_max_many},
    {"batch_normalization axis", row_batch_norm_axis},
    {"batch_normalization axis from the end", row_batch_norm_from_end},
    {"layer_normalization height and width", row_layer_norm_pixels},
    {"layer_normalization height and channels", row_layer_norm_rows},
    {"conv2d_transpose padded", row_transpose_padded},
    {"conv2d_transpose unpadded", row_transpose_unpadded},
    {"conv2d_transpose padded differently", row_transpose_differently},
    {"conv2d_transpose dilated", row_transpose_dilated},
    {"conv2d_transpose groups", row_transpose_groups},
    {"activity_regularization", row_activity},
    {"activation selu", act_selu},
    {"activation mish", act_mish},
    {"activation softsign", act_softsign},
    {"activation exponential", act_exponential},
    {"activation log_softmax", act_log_softmax},
    {"activation gelu_approximate", act_gelu_approximate},
    {"activation celu", act_celu},
    {"activation glu", act_glu},
    {"activation hard_shrink", act_hard_shrink},
    {"activation hard_tanh", act_hard_tanh},
    {"activation log_sigmoid", act_log_sigmoid},
    {"activation soft_shrink", act_soft_shrink},
    {"activation sparse_plus", act_sparse_plus},
    {"activation sparse_sigmoid", act_sparse_sigmoid},
    {"activation squareplus", act_squareplus},
    {"activation tanh_shrink", act_tanh_shrink},
    {"rms_normalization", row_rms_norm},
    {"rms_normalization axes", row_rms_norm_axes},
    {"auto contrast", row_auto_contrast},
    {"activation sparsemax", act_sparsemax},
    {"dot", row_dot},
    {"dot pixels", row_dot_pixels},
    {"dot axes", row_dot_axes},
};

/* >>against Keras */

enum { MOST = 1024 };
static float x_values[MOST], t_values[MOST], y_values[MOST], again[MOST], weight_values[MOST];

static void fill(float *out, int64_t count, unsigned seed, float scale) {
    for (int64_t i = 0; i < count; i++) out[i] = golden_uniform(seed, (uint32_t)i) * scale;
}

/* How far `a` is from the golden array, relative to its norm. */
static double off(const golden_sum *g, const float *a, int64_t count) {
    double worst = count == g->count ? 0 : INFINITY, norm = 0;
    for (int k = 0; k < GOLDEN_PROJECTIONS && count == g->count; k++) {
        double product = 0;
        for (int i = 0; i < g->count; i++) product += (double)a[i] * golden_uniform(1000u + (unsigned)k, (uint32_t)i);
        worst = worse(worst, fabs(product - g->product[k]));
    }
    for (int i = 0; i < g->count && count == g->count; i++) norm += (double)a[i] * a[i];
    worst = worse(worst, fabs(sqrt(norm) - g->norm));
    return worst <= DBL_MAX ? worst / fmax(g->norm, 1e-2) : INFINITY;
}

static bool has_shape(mirt_tensor *y, const mirt_shape *want) {
    mirt_shape have = mirt_tensor_shape(y);
    bool same = have.rank == want->rank + 1;
    for (int i = 0; same && i < want->rank; i++) same = have.dim[i + 1] == want->dim[i];
    return same;
}

static mirt_model *row_model(const golden_layer *g, mirt_tensor *(*build)(mirt_tensor *x)) {
    ZEROED(mirt_compile_desc, d);
    d.loss = MIRT_MEAN_SQUARED_ERROR;
    d.optimizer = mirt_sgd(0, 0, false);
    mirt_model *model = mirt_model_create(strategy, "row");
    mirt_tensor *y = build(shifted(mirt_input(model, g->shape)));
    mirt_model_output(model, y);
    if (mirt_compile(model, &d) == MIRT_OK && has_shape(y, &g->y_shape)) return model;
    mirt_model_destroy(model);
    return NULL;
}

static mirt_array rows_of(const float *data, const mirt_shape *shape) {
    mirt_shape full = *shape;
    full.rank++;
    full.dim[0] = GOLDEN_ROWS;
    for (int i = 0; i < shape->rank; i++) full.dim[i + 1] = shape->dim[i];
    return mirt_make_array(data, MIRT_FLOAT32, full);
}

static bool set_weights(mirt_model *model, const golden_layer *g) {
    mirt_weight_info info;
    bool good = mirt_num_weights(model) == g->num_weights + 1;
    for (int k = 0; good && k < g->num_weights; k++) {
        good = mirt_weight(model, k + 1, &info) == MIRT_OK && info.count == g->weight[k].count &&
               info.trainable == (g->weight[k].trainable != 0);
        const char *name = good ? strchr(info.name, '/') + 1 : NULL;
        size_t base = strcspn(g->label, " ");
        good = good && strcmp(name, g->weight[k].name) == 0 && strncmp(info.name, g->label, base) == 0 &&
               info.name[base] == '/';
        if (!good) break;
        fill(weight_values, info.count, g->seed + 1u + (unsigned)k, 0.5f);
        for (int64_t i = 0; i < info.count && strstr(name, "variance"); i++)
            weight_values[i] = fabsf(weight_values[i]) + 0.5f;
        good = mirt_set_weight(model, info.name, weight_values, (size_t)info.count) == MIRT_OK;
    }
    return good;
}

/* The largest error of the gradients, and of the weights that training moves without them. */
static double gradients_off(mirt_model *model, const golden_layer *g) {
    mirt_weight_info info;
    double worst = 0;
    if (mirt_scatter(model, rows_of(x_values, &g->shape), rows_of(t_values, &g->y_shape)) != MIRT_OK ||
        mirt_grad(model, NULL) != MIRT_OK || mirt_all_reduce(model) != MIRT_OK) {
        return INFINITY;
    }
    for (int k = 0; k <= g->num_weights; k++) {
        const golden_sum *want = k ? &g->weight[k - 1] : &g->shift;
        if (mirt_weight(model, k, &info) != MIRT_OK) return INFINITY;
        if (!info.trainable) continue;
        if (mirt_get_gradient(model, info.name, 0, weight_values, (size_t)info.count) != MIRT_OK) return INFINITY;
        worst = worse(worst, off(want, weight_values, info.count));
    }
    if (mirt_apply(model) != MIRT_OK) return INFINITY;
    for (int k = 1; k <= g->num_weights; k++) {
        if (mirt_weight(model, k, &info) != MIRT_OK ||
            mirt_get_weight(model, info.name, 0, weight_values, (size_t)info.count) != MIRT_OK)
            return INFINITY;
        if (!info.trainable) worst = worse(worst, off(&g->weight[k - 1], weight_values, info.count));
    }
    return worst;
}

/* Saved, loaded, and saved again: the same predictions and the same file. */
static bool round_trip(mirt_model *model, mirt_array x, int64_t count) {
    if (mirt_predict_arrays(model, x, y_values, MOST) != MIRT_OK || mirt_save(model, path, MIRT_SAVE_ALL) != MIRT_OK)
        return false;
    mirt_model *loaded = mirt_load(strategy, path);
    bool good = loaded && mirt_predict_arrays(loaded, x, again, MOST) == MIRT_OK &&
                mirt_save(loaded, path_2, MIRT_SAVE_ALL) == MIRT_OK &&
                memcmp(again, y_values, (size_t)count * sizeof(float)) == 0 && tap_same_file(path, path_2);
    mirt_model_destroy(loaded);
    return good;
}

static void test_row(int number) {
    const golden_layer *g = &golden_layers[number];
    const int64_t xs = GOLDEN_ROWS * mirt__shape_count(&g->shape), ys = GOLDEN_ROWS * mirt__shape_count(&g->y_shape);
    mirt_model *model = strcmp(rows[number].label, g->label) == 0 ? row_model(g, rows[number].build) : NULL;
    if (!model) {
        ok(0, "%s: %s", g->label, mirt_last_error());
        return;
    }
    fill(x_values, xs, g->seed, 1);
    fill(t_values, ys, g->seed + 50, 1);
    bool named = set_weights(model, g);
    double y_off = mirt_predict_arrays(model, rows_of(x_values, &g->shape), y_values, MOST) == MIRT_OK
                       ? off(&g->y, y_values, ys)
                       : INFINITY;
    bool kept = round_trip(model, rows_of(x_values, &g->shape), ys);
    double g_off = gradients_off(model, g);
    ok(named && kept && y_off < 2e-6 && g_off < 1e-5, "%s: output off by %.1e, gradients by %.1e%s%s%s", g->label,
       y_off, g_off, named ? "" : ", other weights",
       kept ? "" : ", not the same when loaded: ", kept ? "" : mirt_last_error());
    mirt_model_destroy(model);
}

/* Whether a row has a layer of this class. */
static bool row_has(const char *class_name) {
    bool found = false;
    for (int i = 0; i < MIRT__COUNT(rows) && i < MIRT__COUNT(golden_layers) && !found; i++) {
        mirt_model *model = row_model(&golden_layers[i], rows[i].build);
        for (int k = 0; model && k < model->num_layers; k++)
            found = found || strcmp(model->layer[k]->cls->class_name, class_name) == 0;
        mirt_model_destroy(model);
    }
    return found;
}

/* Layers that are active in training alone, or that no gradient passes, have tests of their own. */
static bool is_random(const char *name) {
    return strncmp(name, "random_", 7) == 0 || strstr(name, "dropout") || strcmp(name, "gaussian_noise") == 0 ||
           strcmp(name, "solarization") == 0 || strcmp(name, "equalization") == 0 ||
           strcmp(name, "rand_augment") == 0 || strcmp(name, "aug_mix") == 0 ||
           strcmp(name, "clahe") == 0;
}

static void test_listed(const char *name, const mirt__layer_class *cls) {
    ok(is_random(name) || row_has(cls->class_name), "%s: make_layers.py has it, unless it is random", name);
}

/* A channel with a single number stays, and has the gradient of what stays. */
static void test_constant_channel(void) {
    ZEROED(mirt_compile_desc, d);
    const mirt_shape shape = mirt_make_shape(2, 2, 1, 0, 0, 0);
    double loss = NAN;
    d.loss = MIRT_MEAN_SQUARED_ERROR;
    d.optimizer = mirt_sgd(1, 0, false);
    mirt_model *m = mirt_model_create(strategy, "constant");
    mirt_model_output(m, row_auto_contrast(shifted(mirt_input(m, shape))));
    for (int i = 0; i < 4 * GOLDEN_ROWS; i++) x_values[i] = 0.25f, t_values[i] = 1.25f;
    memset(weight_values, 0, sizeof weight_values);
    mirt_weight_info info;
    const bool good = mirt_compile(m, &d) == MIRT_OK && mirt_weight(m, 0, &info) == MIRT_OK &&
                      mirt_set_weight(m, info.name, weight_values, 4) == MIRT_OK &&
                      mirt_train_step(m, rows_of(x_values, &shape), rows_of(t_values, &shape), &loss) == MIRT_OK &&
                      mirt_get_weight(m, info.name, 0, weight_values, 4) == MIRT_OK;
    ok(good && loss == 1 && weight_values[0] == 0.5f && weight_values[3] == 0.5f,
       "auto contrast of a single number stays, and so does its gradient: loss %g, %g instead of 0.5%s%s", loss,
       (double)weight_values[0], good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_model_destroy(m);
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_layers_%ld_a.safetensors", tap_tmpdir(), (long)getpid());
    snprintf(path_2, sizeof path_2, "%s/mirt_layers_%ld_b.safetensors", tap_tmpdir(), (long)getpid());
    strategy = quiet(1);
    ok(MIRT__COUNT(rows) == MIRT__COUNT(golden_layers), "every golden layer has a row");
    for (int i = 0; i < MIRT__COUNT(rows) && i < MIRT__COUNT(golden_layers); i++) test_row(i);
    test_constant_channel();
#define LISTED(name) test_listed(#name, &mirt__##name##_layer);
    MIRT__LAYER_LIST(LISTED)
    unlink(path);
    unlink(path_2);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
