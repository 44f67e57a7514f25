/* Layers and custom layers that are misused: every row marks its model with the sentence. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "layer_util.h"
#include "tap.h"

typedef struct wrong {
    mirt_model *model;
    mirt_tensor *image, *row, *foreign; /* (rows, 4, 5, 3), (rows, 4), of another model */
} wrong;

static mirt_tensor *null_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)layer;
    (void)num_in;
    (void)config;
    (void)user;
    return num_in == 2 ? in[0] : NULL;
}
static mirt_tensor *custom(mirt_tensor *x, const char *class_name, int inputs,
                           mirt_tensor *(*build)(mirt_layer *, mirt_tensor *const *, int, const void *, void *)) {
    ZEROED(mirt_layer_class, c);
    c.class_name = class_name;
    c.inputs = inputs;
    c.build = build;
    return mirt_custom_layer(&c, &x, 1, NULL, NULL);
}
static mirt_tensor *twice_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in;
    (void)config;
    (void)user;
    mirt_layer_variable(layer, "w", MIRT_SHAPE(4), mirt_zeros(), true);
    return mirt_add(in[0], mirt_layer_variable(layer, "w", MIRT_SHAPE(4), mirt_zeros(), true));
}
static mirt_tensor *negative_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                   void *user) {
    (void)num_in;
    (void)config;
    (void)user;
    return mirt_add(in[0], mirt_layer_variable(layer, "w", MIRT_SHAPE(-1), mirt_zeros(), true));
}
static mirt_tensor *loss_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in;
    (void)config;
    (void)user;
    mirt_layer_add_loss(layer, in[0]);
    return in[0];
}
static mirt_tensor *inside_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                 void *user) {
    (void)layer;
    (void)num_in;
    (void)config;
    (void)user;
    return dense(in[0], -1, MIRT_LINEAR, false);
}
static mirt_layer *kept;
static mirt_tensor *keep_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in;
    (void)config;
    (void)user;
    kept = layer;
    return in[0];
}

static mirt_tensor *two(mirt_tensor *(*merge)(mirt_tensor *const *, int), mirt_tensor *a, mirt_tensor *b, int count) {
    mirt_tensor *in[9];
    for (int i = 0; i < 9; i++) in[i] = i % 2 ? b : a;
    return merge(in, count);
}
static mirt_tensor *joined(mirt_tensor *a, mirt_tensor *b, int axis) {
    mirt_tensor *in[2];
    in[0] = a;
    in[1] = b;
    return mirt_concatenate(in, 2, axis);
}
static mirt_tensor *regularized(mirt_tensor *x, float l1, float l2) {
    ZEROED(mirt_dense_desc, d);
    d.units = 2;
    d.kernel_regularizer.l1 = l1;
    d.kernel_regularizer.l2 = l2;
    return mirt_dense(x, &d);
}
static mirt_tensor *normalized(mirt_tensor *x, float momentum, float epsilon) {
    ZEROED(mirt_batch_norm_desc, d);
    d.momentum = momentum;
    d.epsilon = epsilon;
    return mirt_batch_norm(x, &d);
}
static mirt_tensor *depthwise(mirt_tensor *x, int kernel, int multiplier, int stride) {
    ZEROED(mirt_depthwise_conv2d_desc, d);
    d.kernel[0] = kernel;
    d.depth_multiplier = multiplier;
    d.strides[0] = stride;
    return mirt_depthwise_conv2d(x, &d);
}
static mirt_tensor *separable(mirt_tensor *x, int filters, int kernel) {
    ZEROED(mirt_separable_conv2d_desc, d);
    d.filters = filters;
    d.depthwise.kernel[0] = kernel;
    return mirt_separable_conv2d(x, &d);
}
static mirt_tensor *transposed(mirt_tensor *x, int filters, int kernel, int stride, int groups) {
    mirt_conv2d_desc d = conv(filters, kernel, 0, stride, MIRT_VALID);
    d.groups = groups;
    return mirt_conv2d_transpose(x, &d);
}
static mirt_tensor *up(mirt_tensor *x, int size) {
    ZEROED(mirt_up_sampling2d_desc, d);
    d.size[0] = size;
    return mirt_up_sampling2d(x, &d);
}
static mirt_tensor *prelu(mirt_tensor *x, int shared) {
    ZEROED(mirt_prelu_desc, d);
    d.shared_axes = shared;
    return mirt_prelu(x, &d);
}
static mirt_tensor *named(mirt_model *model, mirt_tensor *x, const char *name) {
    mirt_next_name(model, name);
    return mirt_flatten(x);
}

#define WRONG(name, call) static mirt_tensor *wrong_##name(const wrong *w) { return call; }
WRONG(rank, mirt_global_max_pool2d(w->row))
WRONG(pad_rank, mirt_zero_padding2d(w->row, 1, 1, 1, 1))
WRONG(pad_negative, mirt_zero_padding2d(w->image, -1, 1, 1, 1))
WRONG(crop_all, mirt_cropping2d(w->image, 2, 2, 0, 0))
WRONG(crop_negative, mirt_cropping2d(w->image, 0, 0, -1, 0))
WRONG(up, up(w->image, -2))
WRONG(up_far, up(w->image, 2000000000))
WRONG(transpose_filters, transposed(w->image, 0, 3, 1, 0))
WRONG(transpose_kernel, transposed(w->image, 2, 0, 1, 0))
WRONG(transpose_groups, transposed(w->image, 2, 3, 1, 2))
WRONG(transpose_stride, transposed(w->image, 2, 3, -1, 0))
WRONG(transpose_null, mirt_conv2d_transpose(w->image, NULL))
WRONG(depthwise_kernel, depthwise(w->image, 9, 1, 1))
WRONG(depthwise_none, depthwise(w->image, 0, 1, 1))
WRONG(depthwise_multiplier, depthwise(w->image, 2, -1, 1))
WRONG(depthwise_rank, depthwise(w->row, 2, 1, 1))
WRONG(depthwise_null, mirt_depthwise_conv2d(w->image, NULL))
WRONG(separable_filters, separable(w->image, -3, 2))
WRONG(separable_kernel, separable(w->image, 3, -2))
WRONG(batch_norm_momentum, normalized(w->image, 1.5f, 0))
WRONG(batch_norm_epsilon, normalized(w->image, 0.5f, -1))
WRONG(layer_norm_axes, layer_norm_axis(w->row, 2, 0, 0))
WRONG(layer_norm_negative, layer_norm_axis(w->image, -1, 0, 0))
WRONG(layer_norm_epsilon, layer_norm_axis(w->image, 1, 0, -1))
WRONG(reshape, mirt_reshape_layer(w->image, MIRT_SHAPE(7, 9)))
WRONG(reshape_open, mirt_reshape_layer(w->image, MIRT_SHAPE(-1, -1)))
WRONG(reshape_rest, mirt_reshape_layer(w->image, MIRT_SHAPE(7, -1)))
WRONG(permute_count, mirt_permute(w->image, MIRT_SHAPE(2, 1)))
WRONG(permute_twice, mirt_permute(w->image, MIRT_SHAPE(1, 2, 2)))
WRONG(permute_far, mirt_permute(w->image, MIRT_SHAPE(1, 2, 4)))
WRONG(relu, relu(w->image, -1, 0, 0))
WRONG(transpose_padding, output_padded(w->image, conv(2, 3, 0, 2, MIRT_SAME), 2, 0))
WRONG(transpose_padding_low, output_padded(w->image, conv(2, 3, 0, 2, MIRT_SAME), -2, 0))
WRONG(transpose_padding_half, output_padded(w->image, conv(2, 3, 0, 2, MIRT_SAME), 0, 1))
WRONG(transpose_padding_even, output_padded(w->image, conv(2, 2, 0, 2, MIRT_SAME), -1, 0))
WRONG(batch_norm_axis, batch_norm_axis(w->image, 4, false))
WRONG(batch_norm_rows, batch_norm_axis(w->row, -2, false))
WRONG(layer_norm_both, layer_norm_axis(w->image, 1, 2, 0))
WRONG(layer_norm_rows, layer_norm_axis(w->image, 0, 3, 0))
WRONG(layer_norm_far, layer_norm_axis(w->image, 0, 16, 0))
WRONG(group_norm_groups, group_norm(w->image, 2, false, false, 0))
WRONG(group_norm_negative, group_norm(w->image, -2, false, false, 0))
WRONG(unit_norm_rows, mirt_unit_normalization(w->image, 0))
WRONG(unit_norm_axis, mirt_unit_normalization(w->image, -5))
WRONG(softmax_rows, mirt_softmax_axis(w->image, 0))
WRONG(softmax_axis, mirt_softmax_axis(w->image, 4))
WRONG(softmax_far, mirt_softmax_axis(w->image, -4))
WRONG(adaptive_none, mirt_adaptive_average_pool2d(w->image, 0, 3))
WRONG(adaptive_many, mirt_adaptive_max_pool2d(w->image, 4, 2000000000))
WRONG(adaptive_rank, mirt_adaptive_max_pool2d(w->row, 4, 2))
WRONG(spatial_rank, mirt_spatial_dropout2d(w->row, 0.5f))
WRONG(spatial_rate, mirt_spatial_dropout2d(w->image, 1.5f))
WRONG(gaussian_dropout, mirt_gaussian_dropout(w->row, 1))
WRONG(alpha_dropout, mirt_alpha_dropout(w->row, &(mirt_dropout_desc){.rate = 1}))
WRONG(alpha_dropout_null, mirt_alpha_dropout(w->row, NULL))
WRONG(rms_axis, mirt_rms_norm(w->row, &(mirt_rms_norm_desc){.axis = 1}))
WRONG(rms_epsilon, mirt_rms_norm(w->row, &(mirt_rms_norm_desc){.epsilon = -1}))
WRONG(noise_negative, mirt_gaussian_noise(w->row, -1))
WRONG(noise_nan, mirt_gaussian_noise(w->row, NAN))
WRONG(leaky, mirt_leaky_relu_layer(w->image, NAN))
WRONG(prelu, prelu(w->image, 1))
WRONG(prelu_far, prelu(w->image, 16))
WRONG(activation, mirt_activation(w->image, (mirt_activation_kind)99))
WRONG(celu, mirt_celu(w->image, 0))
WRONG(celu_nan, mirt_celu(w->image, (float)NAN))
WRONG(glu_odd, mirt_activation(w->image, MIRT_GLU))
WRONG(glu_rows, mirt_glu(w->image, 0))
WRONG(sparsemax_rows, mirt_sparsemax(w->image, 0))
WRONG(sparsemax_axis, mirt_sparsemax(w->image, 4))
WRONG(soft_shrink, mirt_soft_shrink(w->image, -1))
WRONG(squareplus, mirt_squareplus(w->image, (float)INFINITY))
WRONG(regularizer, regularized(w->row, -1, 0))
WRONG(regularizer_nan, regularized(w->row, 0, NAN))
WRONG(add_shapes, two(mirt_add_layer, w->image, w->row, 2))
WRONG(add_null, two(mirt_add_layer, w->image, NULL, 3))
WRONG(add_none, two(mirt_add_layer, w->image, w->image, 0))
WRONG(add_many, two(mirt_add_layer, w->image, w->image, 9))
WRONG(add_foreign, two(mirt_add_layer, w->row, w->foreign, 2))
WRONG(dot_rows, mirt_dot(w->row, w->row, &(mirt_dot_desc){.axes = {1, -2}}))
WRONG(dot_sizes, mirt_dot(w->image, w->row, NULL))
WRONG(dot_axes, mirt_dot(w->row, w->row, &(mirt_dot_desc){.axes = {2, 1}}))
WRONG(dot_null, mirt_dot(w->row, NULL, NULL))
WRONG(dot_rank, mirt_dot(mirt_dot(w->image, w->image, NULL), mirt_dot(w->image, w->image, NULL), NULL))
WRONG(subtract_three, two(mirt_subtract_layer, w->image, w->image, 3))
WRONG(concatenate_shapes, joined(w->image, w->row, -1))
WRONG(concatenate_axis, joined(w->row, w->row, 2))
WRONG(concatenate_rows, joined(w->row, w->row, 0))
WRONG(custom_null, custom(w->row, "Null", 0, null_build))
WRONG(custom_two, custom(w->row, "Null", 2, null_build))
WRONG(custom_library, custom(w->row, "Dense", 0, null_build))
WRONG(custom_name, custom(w->row, "", 0, null_build))
WRONG(custom_build, custom(w->row, "None", 0, NULL))
WRONG(custom_inputs, custom(w->row, "Many", 99, null_build))
WRONG(custom_twice, custom(w->row, "Twice", 0, twice_build))
WRONG(custom_negative, custom(w->row, "Negative", 0, negative_build))
WRONG(custom_loss, custom(w->row, "Loss", 0, loss_build))
WRONG(custom_inside, custom(w->row, "Inside", 0, inside_build))
WRONG(custom_class, mirt_custom_layer(NULL, &w->row, 1, NULL, NULL))
WRONG(name_taken, named(w->model, w->row, "input_layer"))
WRONG(name_slash, named(w->model, w->row, "a/b"))
WRONG(name_empty, named(w->model, w->row, ""))
WRONG(late,
      custom(w->row, "Keep", 0, keep_build) ? mirt_layer_variable(kept, "w", MIRT_SHAPE(1), mirt_zeros(), true) : NULL)

static const struct {
    mirt_tensor *(*record)(const wrong *w);
    const char *says;
} misuses[] = {
    {wrong_rank, "global_max_pooling2d: takes (rows, height, width, channels), not (rows, 4)"},
    {wrong_pad_rank, "zero_padding2d: takes (rows, height, width, channels)"},
    {wrong_pad_negative, "zero_padding2d: an axis cannot be padded by less than nothing"},
    {wrong_crop_all, "cropping2d: cropping 4 pixels by 2 and 2 leaves nothing"},
    {wrong_crop_negative, "cropping2d: cropping 5 pixels by -1 and 0"},
    {wrong_up, "up_sampling2d: size is -2x-2"},
    {wrong_up_far, "up_sampling2d: "},
    {wrong_transpose_filters, "conv2d_transpose: filters is 0"},
    {wrong_transpose_kernel, "conv2d_transpose: kernel is 0x0"},
    {wrong_transpose_groups, "conv2d_transpose: 3 input channels and 2 filters are not divisible by 2 groups"},
    {wrong_transpose_stride, "conv2d_transpose: window size, strides and dilation must be positive"},
    {wrong_transpose_null, "conv2d_transpose needs a description"},
    {wrong_depthwise_kernel, "depthwise_conv2d: kernel 9x9 is larger than its input 4x5"},
    {wrong_depthwise_none, "depthwise_conv2d: kernel is 0x0"},
    {wrong_depthwise_multiplier, "depthwise_conv2d: depth_multiplier is -1"},
    {wrong_depthwise_rank, "depthwise_conv2d: takes (rows, height"},
    {wrong_depthwise_null, "depthwise_conv2d needs a description"},
    {wrong_separable_filters, "separable_conv2d: filters is -3"},
    {wrong_separable_kernel, "separable_conv2d: kernel is -2x-2"},
    {wrong_batch_norm_momentum, "batch_normalization: momentum is 1.5"},
    {wrong_batch_norm_epsilon, "batch_normalization: epsilon is -1"},
    {wrong_layer_norm_axes, "layer_normalization: axes is 2"},
    {wrong_layer_norm_negative, "layer_normalization: axes is -1"},
    {wrong_layer_norm_epsilon, "layer_normalization: epsilon is -1"},
    {wrong_reshape, "reshape: the target's dimension 9 does not fit (rows, 4, 5, 3): the target must have 60 elements "
                    "in all, and one dimension may be -1"},
    {wrong_reshape_open, "reshape: the target's dimension -1 does not fit (rows, 4, 5, 3)"},
    {wrong_reshape_rest, "reshape: (rows, 4, 5, 3) cannot be reshaped to (rows, 7, 8)"},
    {wrong_permute_count, "permute: 2 dims"},
    {wrong_permute_twice, "permute: the permutation must name each of the axes"},
    {wrong_permute_far, "permute: the permutation"},
    {wrong_relu, "re_lu: max_value -1"},
    {wrong_transpose_padding, "conv2d_transpose: output_padding is 2; it must be less than the stride, 2"},
    {wrong_transpose_padding_low, "conv2d_transpose: output_padding is -2; it must be"},
    {wrong_transpose_padding_half, "output_padding is {0, 1}; give both, -1 for none"},
    {wrong_transpose_padding_even, "conv2d_transpose: output_padding is 0"},
    {wrong_batch_norm_axis, "batch_normalization: axis is 4"},
    {wrong_batch_norm_rows, "batch_normalization: axis is -2"},
    {wrong_layer_norm_both, "layer_normalization: axis is 2 and axes 1"},
    {wrong_layer_norm_rows, "layer_normalization: axis is 3"},
    {wrong_layer_norm_far, "layer_normalization: axis is 16"},
    {wrong_group_norm_groups, "group_normalization: 3 channels are not divisible by 2 groups"},
    {wrong_group_norm_negative, "group_normalization: 3 channels are not divisible by -2 groups"},
    {wrong_unit_norm_rows, "unit_normalization: axis is 0"},
    {wrong_unit_norm_axis, "unit_normalization: axis is -5"},
    {wrong_softmax_rows, "softmax: axis is 0"},
    {wrong_softmax_axis, "softmax: axis is 4"},
    {wrong_softmax_far, "softmax: axis is -4"},
    {wrong_adaptive_none, "adaptive_average_pooling2d: the output size is 0x3"},
    {wrong_adaptive_many, "adaptive_max_pooling2d: pooling 5 pixels to 2000000000 takes more than 1024"},
    {wrong_adaptive_rank, "adaptive_max_pooling2d: takes (rows, height"},
    {wrong_spatial_rank, "spatial_dropout2d: takes (rows, height"},
    {wrong_spatial_rate, "spatial_dropout2d: rate is 1.5"},
    {wrong_gaussian_dropout, "gaussian_dropout: rate is 1; it must lie between 0 and 1, and be below 1"},
    {wrong_alpha_dropout, "alpha_dropout: rate is 1; it must lie between 0 and 1, and be below 1"},
    {wrong_alpha_dropout_null, "alpha_dropout needs a description"},
    {wrong_rms_axis, "rms_normalization: axis is 1"},
    {wrong_rms_epsilon, "rms_normalization: epsilon is -1"},
    {wrong_noise_negative, "gaussian_noise: stddev is -1"},
    {wrong_noise_nan, "gaussian_noise: stddev is "},
    {wrong_leaky, "leaky_re_lu: the slope is"},
    {wrong_prelu, "p_re_lu: shared_axes is 1; bits 1 to 3"},
    {wrong_prelu_far, "p_re_lu: shared_axes is 16"},
    {wrong_activation, "invalid activation (99)"},
    {wrong_celu, "celu: alpha is 0; it must be positive"},
    {wrong_celu_nan, "celu: alpha is "},
    {wrong_glu_odd, "split: (rows, 4, 5, 3) does not divide into 2"},
    {wrong_glu_rows, "into 2 equal parts along axis 0"},
    {wrong_sparsemax_rows, "sparsemax: axis 0 is the rows of a batch"},
    {wrong_sparsemax_axis, "sparsemax: (rows, 4, 5, 3) has no axis 4"},
    {wrong_soft_shrink, "clip: 1 to -1 is no range"},
    {wrong_squareplus, "its numbers must be finite"},
    {wrong_regularizer, "dense: the factors of a regularizer are -1 and 0"},
    {wrong_regularizer_nan, "dense: the factors of a regularizer"},
    {wrong_add_shapes, "add: shapes (rows, 4, 5, 3) and (rows, 4) cannot be broadcast"},
    {wrong_add_null, "add: tensor number 2 of 3 is NULL"},
    {wrong_add_none, NULL},
    {wrong_add_many, "add: takes 1 or more tensors, not 9"},
    {wrong_add_foreign, "add: one of its tensors belongs to another model"},
    {wrong_dot_rows, "dot: axis is -2; it must name one of 2 axes other than that of the rows"},
    {wrong_dot_sizes, "dot: axis 3 of (rows, 4, 5, 3) and axis 1 of (rows, 4) differ in size"},
    {wrong_dot_axes, "dot: axis is 2; it must name one of 2 axes"},
    {wrong_dot_null, "dot: tensor number 2 of 2 is NULL"},
    {wrong_dot_rank, "dot_2: takes two tensors (rows, ...) that have at most 6 axes"},
    {wrong_subtract_three, "subtract: takes 2 tensors, not 3"},
    {wrong_concatenate_shapes, "concatenate: (rows, 4, 5, 3) and (rows, 4) differ"},
    {wrong_concatenate_axis, "concatenate: "},
    {wrong_concatenate_rows, "concatenate: "},
    {wrong_custom_null, "null: the build function of Null returned no tensor"},
    {wrong_custom_two, "null: takes 2 tensors, not 1"},
    {wrong_custom_library, "the library already has a layer class Dense"},
    {wrong_custom_name, "a layer class needs a name"},
    {wrong_custom_build, "layer class None has no build function"},
    {wrong_custom_inputs, "layer class Many: 99 inputs"},
    {wrong_custom_twice, "twice: variable name \"w\""},
    {wrong_custom_negative, "negative: variable w needs"},
    {wrong_custom_loss, "loss: a loss must be a float32 number, or one per sample, of this model, not (rows, 4)"},
    {wrong_custom_inside, "inside/dense: units is -1"},
    {wrong_custom_class, "a layer class needs a name"},
    {wrong_name_taken, "there already is a layer \"input_layer\""},
    {wrong_name_slash, "layer name \"a/b\""},
    {wrong_name_empty, "layer name \"\""},
    {wrong_late, NULL},
};

static void test_misuse(mirt_strategy *strategy) {
    for (int i = 0; i < MIRT__COUNT(misuses); i++) {
        wrong w;
        mirt_model *other = mirt_model_create(strategy, NULL);
        w.model = mirt_model_create(strategy, NULL);
        w.foreign = mirt_input(other, MIRT_SHAPE(4));
        w.image = mirt_input(w.model, MIRT_SHAPE(4, 5, 3));
        w.row = mirt_input(w.model, MIRT_SHAPE(4));
        mirt_tensor *y = misuses[i].record(&w);
        const char *said = w.model->graph.error;
        ok(!y && (misuses[i].says ? strstr(said, misuses[i].says) != NULL : said[0] == 0), "refused: %s",
           said[0] ? said : mirt_last_error());
        if (misuses[i].says && !strstr(said, misuses[i].says)) printf("# wanted: %s\n", misuses[i].says);
        mirt_model_destroy(w.model);
        mirt_model_destroy(other);
    }
    ok(mirt_add_layer(NULL, 2) == NULL && mirt_batch_norm(NULL, NULL) == NULL &&
           mirt_custom_layer(NULL, NULL, 1, NULL, NULL) == NULL &&
           mirt_layer_variable(NULL, "w", MIRT_SHAPE(1), mirt_zeros(), true) == NULL &&
           mirt_register_layer(NULL, NULL) == MIRT_E_INVALID,
       "NULL is handed on");
    mirt_next_name(NULL, "nobody");
    mirt_layer_add_loss(NULL, NULL);
}

int main(void) {
    mirt_strategy *strategy = quiet(1);
    test_misuse(strategy);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
