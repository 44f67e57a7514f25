#ifndef GALLERY_H
#define GALLERY_H
/* Models of many kinds of parts, to be saved, damaged and read again. After mirrortrain.h. */

static int64_t gallery_count(const mirt_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= shape->dim[i];
    return count;
}

/* Twice its first input. */
static int gallery_forward(const mirt_op_call *call, void *user) {
    (void)user;
    for (int64_t i = 0, n = gallery_count(&call->out_shape); i < n; i++)
        call->out[i] = 2 * ((const float *)call->in[0])[i];
    return 0;
}

static int gallery_backward(const mirt_op_call *call, void *user) {
    (void)user;
    for (int k = 0; k < call->num_in; k++) {
        for (int64_t i = 0, n = gallery_count(&call->in_shape[k]); call->din[k] && i < n; i++)
            call->din[k][i] = k ? 0 : 2 * call->dout[i];
    }
    return 0;
}

static const mirt_op_class gallery_twice = {"twice", 4, NULL, gallery_forward, gallery_backward, NULL, NULL};

typedef struct gallery_config {
    int units;
    float scale;
    bool shifted;
} gallery_config;

static mirt_tensor *gallery_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                  void *user) {
    const gallery_config *c = (const gallery_config *)config;
    mirt_dense_desc dense;
    (void)num_in, (void)user;
    memset(&dense, 0, sizeof dense);
    dense.units = c->units;
    mirt_tensor *w = mirt_layer_variable(layer, "w", MIRT_SHAPE(3), mirt_ones(), c->shifted);
    mirt_layer_add_loss(layer, mirt_scale(mirt_reduce_sum(w, 1, false), 0.01f, 0));
    return mirt_scale(mirt_dense(in[0], &dense), c->scale, 0);
}

static const mirt_field gallery_fields[] = {{"units", MIRT_FIELD_INT, offsetof(gallery_config, units)},
                                            {"scale", MIRT_FIELD_FLOAT, offsetof(gallery_config, scale)},
                                            {"shifted", MIRT_FIELD_BOOL, offsetof(gallery_config, shifted)}};
static const mirt_layer_class gallery_layer = {"Mine",        1,   sizeof(gallery_config), gallery_fields, 3,
                                               gallery_build, NULL};

static mirt_tensor *gallery_distance(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    return mirt_square(mirt_subtract(labels, output));
}
static const mirt_custom_loss gallery_loss = {"distance", gallery_distance, NULL};
static const mirt_custom_metric gallery_metric = {"far", gallery_distance, NULL, NULL, MIRT_MODE_MIN};

static void gallery_register(mirt_strategy *s) {
    mirt_register_op(s, &gallery_twice);
    mirt_register_layer(s, &gallery_layer);
    mirt_register_loss(s, &gallery_loss);
    mirt_register_metric(s, &gallery_metric);
}

static mirt_tensor *gallery_dense(mirt_tensor *x, int units, float l2) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.kernel_regularizer.l2 = l2;
    return mirt_dense(x, &d);
}

/* Images through all sorts of layers. */
static void gallery_images(mirt_model *m) {
    mirt_conv2d_desc conv;
    mirt_depthwise_conv2d_desc depthwise;
    mirt_separable_conv2d_desc separable;
    mirt_batch_norm_desc norm;
    mirt_up_sampling2d_desc up;
    memset(&conv, 0, sizeof conv);
    memset(&depthwise, 0, sizeof depthwise);
    memset(&separable, 0, sizeof separable);
    memset(&norm, 0, sizeof norm);
    memset(&up, 0, sizeof up);
    conv.filters = 2;
    conv.kernel[0] = depthwise.kernel[0] = 3;
    conv.padding = depthwise.padding = MIRT_SAME;
    conv.strides[0] = 2;
    conv.activation = MIRT_GELU;
    separable.filters = 2;
    separable.depthwise.kernel[0] = 2;
    norm.synchronized = true;
    up.bilinear = true;
    mirt_tensor *x = mirt_zero_padding2d(mirt_input(m, MIRT_SHAPE(6, 6, 1)), 1, 0, 0, 1), *pair[2];
    x = mirt_batch_norm(mirt_conv2d(mirt_cropping2d(x, 0, 1, 1, 0), &conv), &norm);
    x = mirt_relu_layer(mirt_separable_conv2d(mirt_depthwise_conv2d(x, &depthwise), &separable), NULL);
    x = mirt_prelu(mirt_conv2d_transpose(mirt_up_sampling2d(x, &up), &conv), NULL);
    pair[0] = mirt_average_pool2d(x, NULL);
    pair[1] = mirt_elu_layer(mirt_max_pool2d(x, NULL), 1);
    x = mirt_concatenate(pair, 2, -1);
    pair[0] = mirt_layer_norm(mirt_global_average_pool2d(x), NULL);
    pair[1] = mirt_dropout(mirt_global_max_pool2d(x), 0.25f);
    x = mirt_permute(mirt_reshape_layer(mirt_average_layer(pair, 2), MIRT_SHAPE(2, 2)), MIRT_SHAPE(2, 1));
    mirt_model_output(m, mirt_softmax_layer(gallery_dense(mirt_flatten(x), 3, 1e-3f)));
}

/* Operations outside of layers: of each kind one. */
static void gallery_operations(mirt_model *m) {
    static const float numbers[] = {0.5f, -1, 2};
    static const int64_t begin[] = {0, 1}, size[] = {-1, 2}, before[] = {0, 1}, after[] = {0, 0};
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(3)), *part[3],
                *v = mirt_variable(m, "own", MIRT_SHAPE(3), mirt_ones(), true);
    mirt_tensor *c = mirt_constant_tensor(x, mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(3)));
    x = mirt_add(mirt_multiply(mirt_clip(x, -INFINITY, 1), v), c);
    x = mirt_maximum(mirt_where(mirt_greater(x, c), x, mirt_tanh(x)), mirt_power(mirt_abs(x), 1.5f));
    x = mirt_pad(mirt_slice(x, begin, size), before, after, 0.5f);
    mirt_split_tensor(x, 3, 1, part);
    x = mirt_concat(part, 3, -1);
    x = mirt_add(x, mirt_one_hot(mirt_argmax(x, 1), 3));
    x = mirt_add(x, mirt_gather(v, mirt_cast(mirt_less(x, c), MIRT_INT32)));
    x = mirt_custom_op(&gallery_twice, &x, 1, "conf");
    x = mirt_reshape(mirt_transpose(mirt_reshape(mirt_cumsum(x, 1), MIRT_SHAPE(3, 1)), NULL), MIRT_SHAPE(3));
    x = mirt_log_softmax(mirt_stop_gradient(mirt_subtract(x, mirt_reduce_variance(x, 0, true))));
    mirt_add_loss(m, mirt_reduce_sum(mirt_square(v), 1, false));
    mirt_model_output(
        m, mirt_softmax(
               mirt_matmul(x, mirt_variable(m, "other", MIRT_SHAPE(3, 3), mirt_glorot_uniform(), true), false, true)));
}

/* Models in models, shared, with several inputs and outputs, partly frozen; user-defined layer, loss and metric. */
static void gallery_nested(mirt_model *m, mirt_compile_desc *desc) {
    gallery_config config = {3, 0.5f, true};
    mirt_model *inner = mirt_model_create(m->strategy, "inner"), *outer = mirt_model_create(m->strategy, "outer");
    mirt_tensor *a = mirt_input(inner, MIRT_SHAPE(3)), *b = mirt_input(inner, MIRT_SHAPE(3)), *both[2],
                *out[MIRT_MAX_OUTPUTS];
    both[0] = gallery_dense(mirt_batch_norm(a, NULL), 3, 0.01f);
    both[1] = mirt_dropout(b, 0.5f);
    both[1] = mirt_add_layer(both, 2);
    mirt_model_outputs(inner, both, 2);
    both[0] = both[1] = mirt_input(outer, MIRT_SHAPE(3));
    mirt_call_many(inner, both, 2, MIRT_TRAINING_AUTO, out);
    mirt_call_many(inner, out, 2, MIRT_TRAINING_OFF, both);
    mirt_model_output(outer, mirt_subtract_layer(both, 2));
    a = mirt_input(m, MIRT_SHAPE(3));
    b = mirt_call(outer, mirt_call(outer, a, MIRT_TRAINING_ON), MIRT_TRAINING_AUTO);
    both[0] = mirt_softmax_layer(mirt_custom_layer(&gallery_layer, &b, 1, &config, "of_mine"));
    both[1] = gallery_dense(b, 2, 0);
    mirt_model_outputs(m, both, 2);
    mirt_set_trainable(m, "outer/inner*", false);
    desc->custom_losses[1] = &gallery_loss;
    desc->loss_weights[1] = 0.5f;
    desc->custom_metrics[0] = &gallery_metric;
}

enum { GALLERY = 3 };

/* Number `index`, compiled; NULL if that failed. */
static mirt_model *gallery_model(mirt_strategy *s, int index) {
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.metrics[0] = MIRT_ACCURACY;
    mirt_model *m = mirt_model_create(s, "gallery");
    if (!m) return NULL;
    if (index == 0) gallery_images(m);
    if (index == 1) gallery_operations(m);
    if (index == 2) gallery_nested(m, &desc);
    if (mirt_compile(m, &desc) == MIRT_OK) return m;
    mirt_model_destroy(m);
    return NULL;
}
#endif
