#ifndef FAULT_MODELS_H
#define FAULT_MODELS_H
/* Strategies, and models with every layer and operation, for test_faults.c.
   Each step returns MIRT_OK or the error. */
#include "mirror_util.h"

enum { SIDE = 6, CLASSES = 3 };

/* What a case has made so far. */
typedef struct world {
    mirt_strategy *strategy;
    mirt_model *model;
    mirt_dataset *train, *validation;
} world;

static mirt_status make_strategy(world *w) {
    w->strategy = strategy_of(2, 4, 1);
    return w->strategy ? MIRT_OK : mirt_last_status();
}

static mirt_status make_central_storage(world *w) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = MIRT_CENTRAL_STORAGE;
    desc.collective = MIRT_RING;
    desc.devices = "2";
    desc.threads = 1;
    desc.silent = true;
    w->strategy = mirt_strategy_create(&desc);
    return w->strategy ? MIRT_OK : mirt_last_status();
}

static mirt_status make_large_strategy(world *w) {
    w->strategy = strategy_of(2, 4, 2);
    return w->strategy ? MIRT_OK : mirt_last_status();
}

static mirt_tensor *every_layer(mirt_model *model) {
    mirt_conv2d_desc conv;
    mirt_pool2d_desc pool;
    mirt_dense_desc dense;
    memset(&conv, 0, sizeof conv);
    memset(&pool, 0, sizeof pool);
    memset(&dense, 0, sizeof dense);
    conv.filters = 4;
    conv.kernel[0] = 3;
    conv.padding = MIRT_SAME;
    conv.activation = MIRT_RELU;
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(SIDE, SIDE, 1)), 1.0f / 255, 0);
    x = mirt_dropout(mirt_conv2d(x, &conv), 0.25f);
    x = mirt_max_pool2d(x, NULL);
    conv.kernel[0] = conv.kernel[1] = 2;
    conv.padding = MIRT_VALID;
    x = mirt_conv2d(x, &conv);
    pool.size[0] = pool.size[1] = 2;
    pool.strides[0] = pool.strides[1] = 1;
    pool.padding = MIRT_SAME;
    x = mirt_global_average_pool2d(mirt_average_pool2d(x, &pool));
    dense.units = 5;
    dense.activation = MIRT_TANH;
    x = mirt_activation(mirt_dense(mirt_flatten(x), &dense), MIRT_SIGMOID);
    dense.units = CLASSES;
    dense.activation = MIRT_LINEAR;
    return mirt_dense(x, &dense);
}

static mirt_status make_model(world *w) {
    mirt_model_destroy(w->model); /* one whose recording failed is marked for good */
    w->model = mirt_model_create(w->strategy, "small");
    if (!w->model) return mirt_last_status();
    mirt_tensor *y = every_layer(w->model);
    mirt_model_output(w->model, y);
    return y ? MIRT_OK : mirt_last_status();
}

static mirt_status make_operations(world *w) {
    mirt_model_destroy(w->model);
    w->model = mirt_model_create(w->strategy, NULL);
    mirt_tensor *x = w->model ? mirt_input(w->model, MIRT_SHAPE(4, 4)) : NULL,
                *y = mirt_square(mirt_negative(mirt_relu(x)));
    y = mirt_add(mirt_subtract(y, mirt_sigmoid(x)), mirt_multiply(mirt_tanh(x), mirt_divide(x, y)));
    y = mirt_reshape(mirt_softmax(y), MIRT_SHAPE(16));
    mirt_tensor *z = mirt_one_hot(mirt_cast(mirt_reduce_max(x, 0, false), MIRT_INT32), 16);
    y = mirt_add(mirt_add(y, z), mirt_reduce_sum(y, 2u, true));
    z = mirt_reduce_mean(mirt_matmul(x, mirt_reduce_sum(x, 1u, false), false, true), 0, false);
    y = mirt_add(y, mirt_reshape(z, MIRT_SHAPE(1)));
    return y ? MIRT_OK : mirt_last_status();
}

static mirt_status make_moves(world *w) {
    static const float number[] = {0.5f};
    static const int32_t rows[] = {2, 0, 9};
    static const int64_t zeros[] = {0, 0, 0}, ones[] = {0, 1, 1}, all[] = {-1, -1, 2};
    mirt_model_destroy(w->model);
    w->model = mirt_model_create(w->strategy, NULL);
    mirt_tensor *x = w->model ? mirt_input(w->model, MIRT_SHAPE(4, 4)) : NULL, *part[2], *many[9];
    mirt_tensor *c = mirt_constant_tensor(x, mirt_make_array(number, MIRT_FLOAT32, MIRT_SHAPE(1)));
    mirt_tensor *y =
        mirt_where(mirt_logical_not(mirt_less(x, c)), mirt_maximum(x, c), mirt_stop_gradient(mirt_gelu(x)));
    if (!mirt_split_tensor(mirt_transpose(y, NULL), 2, 1, part)) return mirt_last_status();
    for (int i = 0; i < 9; i++) many[i] = mirt_slice(mirt_pad(part[i % 2], zeros, ones, 1), zeros, all);
    y = mirt_cumsum(mirt_log_softmax(mirt_concat(many, 9, -1)), 1);
    c = mirt_gather(mirt_reduce_sum(y, 1u, false),
                    mirt_constant_tensor(x, mirt_make_array(rows, MIRT_INT32, MIRT_SHAPE(3))));
    y = mirt_add(mirt_reduce_variance(y, 4u, true), mirt_cast(mirt_argmax(c, 0), MIRT_FLOAT32));
    return y ? MIRT_OK : mirt_last_status();
}

/* >>the layers and operations that every_layer has not */

static mirt_tensor *build_scaled(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                 void *user) {
    (void)num_in, (void)config, (void)user;
    mirt_tensor *scale = mirt_layer_variable(layer, "scale", MIRT_SHAPE(1), mirt_ones(), true);
    mirt_layer_add_loss(layer, mirt_reduce_sum(mirt_square(scale), 0, false));
    return mirt_multiply(in[0], scale);
}
static int copy_forward(const mirt_op_call *call, void *user) {
    (void)user;
    memcpy(call->out, call->in[0], (size_t)mirt__shape_count(&call->out_shape) * sizeof(float));
    return 0;
}
static int copy_backward(const mirt_op_call *call, void *user) {
    (void)user;
    if (call->din[0]) memcpy(call->din[0], call->dout, (size_t)mirt__shape_count(&call->out_shape) * sizeof(float));
    return 0;
}
/* A model that is called as a layer. */
static mirt_model *make_inner(mirt_strategy *strategy) {
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    dense.units = 3;
    mirt_model *inner = mirt_model_create(strategy, "inner");
    if (inner) mirt_model_output(inner, mirt_dense(mirt_batch_norm(mirt_input(inner, MIRT_SHAPE(3)), NULL), &dense));
    return inner;
}

static mirt_tensor *more_layers(mirt_model *model, mirt_model *inner) {
    mirt_conv2d_desc conv;
    mirt_depthwise_conv2d_desc depthwise;
    mirt_separable_conv2d_desc separable;
    mirt_batch_norm_desc norm;
    mirt_global_pool2d_desc global;
    mirt_up_sampling2d_desc up;
    mirt_prelu_desc prelu;
    mirt_layer_class layer;
    mirt_op_class op;
    memset(&conv, 0, sizeof conv);
    memset(&depthwise, 0, sizeof depthwise);
    memset(&separable, 0, sizeof separable);
    memset(&norm, 0, sizeof norm);
    memset(&global, 0, sizeof global);
    memset(&up, 0, sizeof up);
    memset(&prelu, 0, sizeof prelu);
    memset(&layer, 0, sizeof layer);
    memset(&op, 0, sizeof op);
    conv.filters = 2;
    conv.kernel[0] = 2;
    conv.kernel_regularizer.l2 = 0.1f;
    depthwise.kernel[0] = 2;
    depthwise.bias_regularizer.l1 = 0.1f;
    separable.filters = 2;
    separable.depthwise.kernel[0] = 2;
    norm.synchronized = true;
    global.max = global.keepdims = true;
    up.bilinear = true;
    prelu.shared_axes = 6;
    layer.class_name = "Scaled";
    layer.build = build_scaled;
    op.name = "copy";
    op.forward = copy_forward;
    op.backward = copy_backward;
    mirt_dropout_desc depth;
    mirt_normalization_desc channels;
    memset(&depth, 0, sizeof depth);
    memset(&channels, 0, sizeof channels);
    depth.rate = 0.25f;
    depth.noise_shape = MIRT_SHAPE(1, 1, 1);
    channels.mean[0] = 100;
    mirt_tensor *x = mirt_rescale(mirt_normalization(mirt_input(model, MIRT_SHAPE(SIDE, SIDE, 1)), &channels),
                                  1.0f / 255, 0),
                *many[4], *parts[2];
    x = mirt_batch_norm(mirt_conv2d_transpose(mirt_zero_padding2d(x, 1, 0, 0, 1), &conv), &norm);
    x = mirt_separable_conv2d(mirt_depthwise_conv2d(mirt_up_sampling2d(x, &up), &depthwise), &separable);
    x = mirt_prelu(mirt_cropping2d(mirt_leaky_relu_layer(mirt_elu_layer(x, 1), 0.1f), 1, 1, 0, 0), &prelu);
    many[0] = mirt_relu_layer(mirt_layer_norm(mirt_dropout_layer(x, &depth), NULL), NULL);
    many[1] = mirt_custom_layer(&layer, &x, 1, NULL, NULL);
    many[2] = mirt_maximum_layer(many, 2);
    many[0] = mirt_subtract_layer(many, 2);
    many[1] = mirt_average_layer(many + 1, 2);
    many[2] = mirt_multiply_layer(many, 2);
    many[0] = mirt_add_layer(many, 3);
    x = mirt_custom_op(&op, many, 1, NULL);
    parts[0] = mirt_flatten(mirt_global_pool2d(x, &global));
    parts[1] = mirt_global_max_pool2d(mirt_permute(x, MIRT_SHAPE(2, 1, 3)));
    x = mirt_concatenate(parts, 2, -1);
    mirt_next_name(model, "named");
    x = mirt_softmax_layer(mirt_reshape_layer(mirt_dropout(x, 0.5f), MIRT_SHAPE(2, -1)));
    x = mirt_matmul(mirt_flatten(x), mirt_variable(model, "projection", MIRT_SHAPE(4, CLASSES), mirt_he_normal(), true),
                    false, false);
    mirt_add_loss(model, mirt_reduce_mean(mirt_square(x), 0, false));
    return mirt_call(inner, x, MIRT_TRAINING_AUTO);
}

static mirt_status make_more(world *w) {
    if (w->model) mirt_model_destroy(w->model);
    w->model = NULL;
    mirt_model *inner = make_inner(w->strategy);
    w->model = inner ? mirt_model_create(w->strategy, "more") : NULL;
    if (!w->model) return mirt_last_status();
    mirt_tensor *y = more_layers(w->model, inner);
    mirt_model_output(w->model, y);
    return y ? MIRT_OK : mirt_last_status();
}

/* A base with weights of its own, in a model of two inputs and two outputs. */
static mirt_status make_parts(world *w) {
    float kernel[5 * CLASSES];
    mirt_model_destroy(w->model);
    w->model = NULL;
    mirt_model *base = mirt_model_create(w->strategy, "base");
    mirt_tensor *y = base ? every_layer(base) : NULL, *in[2], *out[2];
    if (!y) return mirt_last_status();
    mirt_model_output(base, y);
    if (mirt_add_loss(base, mirt_square(y)) != MIRT_OK ||
        mirt_get_weight(base, "dense_1/kernel", 0, kernel, 5 * CLASSES) != MIRT_OK)
        return mirt_last_status();
    w->model = mirt_model_create(w->strategy, "parts");
    for (int i = 0; i < 2; i++) {
        in[i] = w->model ? mirt_input(w->model, MIRT_SHAPE(SIDE, SIDE, 1)) : NULL;
        out[i] = mirt_call(base, in[i], i ? MIRT_TRAINING_OFF : MIRT_TRAINING_AUTO);
    }
    mirt_model_destroy(base); /* lives on as a layer */
    mirt_tensor *weight = w->model ? mirt_variable(w->model, "w", MIRT_SHAPE(CLASSES), mirt_ones(), true) : NULL;
    out[1] = mirt_multiply(out[1], weight);
    if (!out[0] || !out[1]) return mirt_last_status();
    mirt_model_outputs(w->model, out, 2);
    return MIRT_OK;
}

static mirt_status make_ready_made(world *w) {
    mirt_model_destroy(w->model);
    w->model = mirt_model_by_name(w->strategy, "mnist");
    return w->model ? w->model->graph.status : mirt_last_status();
}

static mirt_status make_network(world *w) {
    mirt_application_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.size = 32;
    mirt_model_destroy(w->model);
    w->model = mirt_mobilenet_v2(w->strategy, &desc);
    return w->model ? w->model->graph.status : mirt_last_status();
}

/* In mixed_bfloat16, with a gradient that is made in float32 and copied: that of the pooling, which a normalization
   reads. */
static mirt_status make_half(world *w) {
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    conv.filters = 8;
    conv.kernel[0] = 3;
    dense.units = CLASSES;
    mirt_model_destroy(w->model);
    w->model = mirt_model_create(w->strategy, "half");
    if (!w->model) return mirt_last_status();
    mirt_tensor *x = mirt_rescale(mirt_input(w->model, MIRT_SHAPE(SIDE, SIDE, 1)), 1.0f / 255, 0);
    x = mirt_average_pool2d(mirt_batch_norm(mirt_conv2d(x, &conv), NULL), NULL);
    mirt_tensor *y = mirt_dense(mirt_global_average_pool2d(x), &dense);
    mirt_model_output(w->model, y);
    return y ? mirt_set_dtype_policy(w->model, "mixed_bfloat16") : mirt_last_status();
}

#endif
