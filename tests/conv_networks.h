#ifndef CONV_NETWORKS_H
#define CONV_NETWORKS_H
/* Small networks of convolutions and batch normalization, with and without fusion. Include after mirror_util.h. */

enum { SIDE = 12, SAMPLES = 14, CLASSES = 4, MAX_WEIGHTS = 200000 };
static uint8_t data_x[SAMPLES][SIDE * SIDE * 3];
static uint8_t data_y[SAMPLES];

static void draw_data(void) {
    mirt__random random = mirt__random_stream(7, 8);
    for (int i = 0; i < SAMPLES; i++) {
        data_y[i] = (uint8_t)(i % CLASSES);
        for (int k = 0; k < SIDE * SIDE * 3; k++)
            data_x[i][k] = (uint8_t)(mirt__random_below(&random, 160) + (k % (data_y[i] + 2) == 0 ? 95 : 0));
    }
}

/* >>networks */

typedef struct how {
    bool synchronized, frozen;
    mirt__policy policy;
} how;

static mirt_tensor *conv(mirt_tensor *x, int filters, int kernel, int stride, mirt_padding padding, bool bias) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = filters;
    d.kernel[0] = d.kernel[1] = kernel;
    d.strides[0] = d.strides[1] = stride;
    d.padding = padding;
    d.no_bias = !bias;
    return mirt_conv2d(x, &d);
}

static mirt_tensor *depthwise(mirt_tensor *x, int kernel, int stride, mirt_padding padding) {
    mirt_depthwise_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.kernel[0] = d.kernel[1] = kernel;
    d.strides[0] = d.strides[1] = stride;
    d.padding = padding;
    d.no_bias = true;
    return mirt_depthwise_conv2d(x, &d);
}

static mirt_tensor *norm(mirt_tensor *x, const how *h) {
    mirt_batch_norm_desc d;
    memset(&d, 0, sizeof d);
    d.momentum = 0.9f;
    d.synchronized = h->synchronized;
    return mirt_batch_norm(x, &d);
}

static mirt_tensor *mobile_block(mirt_tensor *x, int expand, int filters, int stride, const how *h) {
    mirt_tensor *y = mirt_relu6(norm(conv(x, expand, 1, 1, MIRT_SAME, false), h));
    if (stride == 2) y = mirt_zero_padding2d(y, 0, 1, 0, 1);
    y = mirt_relu6(norm(depthwise(y, 3, stride, stride == 2 ? MIRT_VALID : MIRT_SAME), h));
    y = norm(conv(y, filters, 1, 1, MIRT_SAME, false), h);
    mirt_tensor *both[2] = {x, y};
    return stride == 1 && x->shape.dim[3] == filters ? mirt_add_layer(both, 2) : y;
}

static mirt_tensor *mobile(mirt_tensor *x, const how *h) {
    x = mirt_relu6(norm(conv(x, 8, 3, 2, MIRT_SAME, false), h));
    x = mobile_block(x, 18, 6, 1, h);
    x = mobile_block(x, 20, 6, 1, h);
    x = mobile_block(x, 20, 6, 1, h);
    x = mobile_block(x, 17, 9, 2, h);
    return mirt_relu6(norm(conv(x, 21, 1, 1, MIRT_SAME, false), h));
}

static mirt_tensor *resnet_block(mirt_tensor *x, int filters, int stride, bool shortcut, const how *h) {
    mirt_tensor *sum[2] = {x, x};
    if (shortcut) sum[0] = norm(conv(x, 2 * filters, 1, stride, MIRT_SAME, true), h);
    mirt_tensor *y = mirt_relu(norm(conv(x, filters, 1, stride, MIRT_SAME, true), h));
    y = mirt_relu(norm(conv(y, filters, 3, 1, MIRT_SAME, true), h));
    sum[1] = norm(conv(y, 2 * filters, 1, 1, MIRT_SAME, true), h);
    return mirt_relu(mirt_add_layer(sum, 2));
}

static mirt_tensor *resnet(mirt_tensor *x, const how *h) {
    mirt_pool2d_desc pool;
    memset(&pool, 0, sizeof pool);
    pool.size[0] = pool.size[1] = 3;
    pool.strides[0] = pool.strides[1] = 2;
    x = mirt_relu(norm(conv(mirt_zero_padding2d(x, 2, 2, 2, 2), 8, 5, 1, MIRT_VALID, true), h));
    x = mirt_max_pool2d(mirt_zero_padding2d(x, 1, 1, 1, 1), &pool);
    x = resnet_block(x, 5, 1, true, h);
    x = resnet_block(x, 5, 1, false, h);
    return resnet_block(x, 7, 2, true, h);
}

static mirt_tensor *squeeze_block(mirt_tensor *x, int expand, int filters, const how *h) {
    mirt_tensor *y = mirt_silu(norm(conv(x, expand, 1, 1, MIRT_SAME, false), h));
    y = mirt_silu(norm(depthwise(y, 5, 1, MIRT_SAME), h));
    mirt_tensor *gate = mirt_reduce_mean(y, 6, true);
    gate = mirt_sigmoid(conv(mirt_silu(conv(gate, 3, 1, 1, MIRT_SAME, true)), expand, 1, 1, MIRT_SAME, true));
    mirt_tensor *gated[2] = {gate, y}, *both[2] = {NULL, x};
    y = norm(conv(mirt_multiply_layer(gated, 2), filters, 1, 1, MIRT_SAME, false), h);
    both[0] = y;
    return x->shape.dim[3] == filters ? mirt_add_layer(both, 2) : y;
}

static mirt_tensor *squeeze(mirt_tensor *x, const how *h) {
    x = mirt_silu(norm(conv(x, 6, 3, 2, MIRT_SAME, false), h));
    x = squeeze_block(x, 11, 7, h);
    x = squeeze_block(x, 13, 7, h);
    return mirt_gelu(norm(conv(x, 12, 3, 1, MIRT_SAME, true), h));
}

static mirt_tensor *dilated(mirt_tensor *x, int filters, int groups, int dilation, bool depth) {
    mirt_conv2d_desc d;
    mirt_depthwise_conv2d_desc w;
    memset(&d, 0, sizeof d);
    memset(&w, 0, sizeof w);
    d.filters = filters;
    d.groups = groups;
    d.kernel[0] = w.kernel[0] = 3;
    d.kernel[1] = w.kernel[1] = 2;
    d.dilation[0] = w.dilation[0] = dilation;
    d.padding = w.padding = MIRT_SAME;
    w.depth_multiplier = filters;
    return depth ? mirt_depthwise_conv2d(x, &w) : mirt_conv2d(x, &d);
}

/* What is not to be fused, or only in part: groups, multipliers, dilation, biases of depthwise convolutions, two
   readers of what would be lazy, sums of more than two gradients, padding of one side, a normalization of a
   normalization, shared statistics, layers in between. */
static mirt_tensor *odd(mirt_tensor *x, const how *h) {
    mirt_tensor *in[3];
    x = mirt_tanh(norm(conv(mirt_zero_padding2d(x, 0, 2, 1, 0), 6, 3, 2, MIRT_VALID, true), h));
    mirt_tensor *a = norm(conv(x, 8, 1, 1, MIRT_SAME, false), h), *b = mirt_relu6(a);
    in[0] = norm(dilated(b, 8, 2, 2, false), h);
    in[1] = norm(dilated(b, 1, 0, 2, true), h);
    in[2] = norm(norm(conv(mirt_zero_padding2d(b, 1, 1, 1, 1), 8, 3, 1, MIRT_VALID, false), h), h);
    x = mirt_silu(mirt_add_layer(in, 3));
    b = mirt_leaky_relu(norm(dilated(x, 2, 0, 1, true), h), 0.1f);
    x = norm(conv(mirt_add(b, mirt_concat(in, 2, 3)), 8, 1, 1, MIRT_SAME, true), h);
    x = mirt_relu(mirt_add(x, a));
    a = mirt_elu(norm(depthwise(mirt_zero_padding2d(x, 2, 0, 0, 2), 3, 2, MIRT_VALID), h), 1);
    b = mirt_multiply(a, mirt_sigmoid(mirt_reduce_mean(x, 6, true)));
    x = mirt_add(conv(b, 7, 1, 1, MIRT_SAME, false), conv(a, 7, 3, 1, MIRT_SAME, true));
    return mirt_relu(mirt_layer_norm(mirt_max_pool2d(mirt_zero_padding2d(norm(x, h), 0, 1, 0, 1), NULL), NULL));
}

/* Where tensors and gradients have several readers, of which the first one may not change what the others read. */
static mirt_tensor *branches(mirt_tensor *x, const how *h) {
    mirt_pool2d_desc pool;
    memset(&pool, 0, sizeof pool);
    pool.size[0] = pool.size[1] = 2;
    x = mirt_add(mirt_relu(conv(x, 8, 3, 2, MIRT_SAME, true)), mirt_relu6(conv(x, 8, 3, 2, MIRT_SAME, true)));
    x = mirt_add(mirt_relu(norm(conv(x, 8, 1, 1, MIRT_SAME, false), h)),
                 mirt_relu6(norm(conv(x, 8, 3, 1, MIRT_SAME, false), h)));
    mirt_tensor *z = conv(x, 9, 1, 1, MIRT_SAME, true), *y = conv(mirt_relu(z), 9, 3, 1, MIRT_SAME, false);
    x = mirt_add(y, conv(z, 9, 1, 1, MIRT_SAME, false));
    z = conv(x, 9, 1, 1, MIRT_SAME, true);
    x = mirt_add(conv(z, 9, 1, 1, MIRT_SAME, false), conv(mirt_relu(z), 9, 3, 1, MIRT_SAME, false));
    x = norm(mirt_add(conv(x, 9, 1, 1, MIRT_SAME, false), mirt_tanh(x)), h);
    y = norm(conv(x, 9, 1, 1, MIRT_SAME, false), h);
    z = norm(conv(x, 9, 1, 1, MIRT_SAME, false), h);
    z = conv(mirt_add(y, z), 9, 1, 1, MIRT_SAME, false);
    x = mirt_add(z, conv(y, 9, 3, 1, MIRT_SAME, false));
    y = norm(conv(x, 9, 1, 1, MIRT_SAME, false), h);
    z = conv(y, 9, 3, 1, MIRT_SAME, false);
    x = mirt_add(z, conv(mirt_add(y, norm(conv(x, 9, 1, 1, MIRT_SAME, false), h)), 9, 1, 1, MIRT_SAME, false));
    x = norm(mirt_relu(conv(x, 10, 1, 1, MIRT_SAME, true)), h);
    x = mirt_relu(norm(conv(mirt_zero_padding2d(x, 1, 1, 1, 1), 8, 3, 1, MIRT_SAME, false), h));
    x = conv(mirt_max_pool2d(mirt_zero_padding2d(x, 2, 2, 2, 2), &pool), 8, 1, 1, MIRT_SAME, false);
    x = mirt_relu(norm(x, h));
    return norm(conv(mirt_multiply(x, mirt_reduce_max(x, 6, true)), 7, 1, 1, MIRT_SAME, false), h);
}

/* What looks like something to be fused, but is not the same: a padding by other numbers than zero, one before the
   rescaling that a convolution reads through, and a gradient that the sums of one normalization and the input of
   another, frozen one read, each with the slope of its own activation. */
static mirt_tensor *alike(mirt_tensor *x, const how *h) {
    static const int64_t around[] = {0, 1, 1, 0};
    mirt_batch_norm_desc still;
    memset(&still, 0, sizeof still);
    still.name = "still";
    mirt_tensor *a = mirt_relu(norm(x, h)), *b = mirt_batch_norm(conv(x, 3, 3, 1, MIRT_SAME, true), &still);
    a = conv(mirt_add(a, b), 6, 3, 2, MIRT_SAME, false);
    b = conv(mirt_rescale(mirt_zero_padding2d(x, 1, 1, 1, 1), 0.5f, 0.75f), 6, 3, 2, MIRT_VALID, false);
    x = mirt_relu6(norm(mirt_add(a, b), h));
    x = mirt_relu(norm(conv(mirt_pad(x, around, around, 0.5f), 30, 3, 1, MIRT_VALID, false), h));
    return mirt_relu(norm(conv(x, 30, 1, 1, MIRT_SAME, false), h));
}

/* A kernel of single pixels, of which some are fused and others stay as they are. */
static mirt_tensor *point(mirt_tensor *x, int filters, bool bias) { return conv(x, filters, 1, 1, MIRT_SAME, bias); }

static mirt_tensor *rectified(mirt_tensor *x, int filters) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = filters;
    d.kernel[0] = d.kernel[1] = 3;
    d.padding = MIRT_SAME;
    d.activation = MIRT_RELU;
    return mirt_conv2d(x, &d);
}

static mirt_tensor *pooled(mirt_tensor *x, int stride, mirt_padding padding) {
    mirt_pool2d_desc d;
    memset(&d, 0, sizeof d);
    d.size[0] = d.size[1] = 3;
    d.strides[0] = d.strides[1] = stride;
    d.padding = padding;
    return mirt_max_pool2d(x, &d);
}

/* Paddings of channels, of paddings, with several readers, and before poolings: of what may be below zero, wider than a
   window, and in a pooling that pads itself. */
static mirt_tensor *paddings(mirt_tensor *x, const how *h) {
    static const int64_t none[] = {0, 0, 0, 0}, first[] = {0, 0, 0, 1}, last[] = {0, 0, 0, 2}, around[] = {0, 1, 1, 0},
                         wide[] = {0, 1, 3, 0}, high[] = {0, 3, 1, 0};
    x = mirt_silu(norm(conv(mirt_pad(x, first, around, 0), 6, 3, 1, MIRT_VALID, true), h));
    x = mirt_relu6(norm(conv(x, 6, 3, 2, MIRT_SAME, false), h));
    mirt_tensor *a = norm(point(mirt_pad(x, none, last, 0), 8, false), h);
    mirt_tensor *b = norm(conv(mirt_zero_padding2d(mirt_zero_padding2d(a, 1, 0, 0, 1), 0, 1, 1, 0), 8, 3, 1, MIRT_VALID,
                               false),
                          h);
    x = mirt_relu6(mirt_add(a, b));
    a = mirt_zero_padding2d(x, 1, 1, 1, 1);
    x = mirt_add(conv(a, 9, 3, 1, MIRT_VALID, true), conv(a, 9, 3, 1, MIRT_VALID, false));
    x = norm(mirt_add(x, mirt_slice(mirt_pad(x, none, around, 0), (const int64_t[]){0, 1, 1, 0},
                                    (const int64_t[]){-1, -1, -1, -1})),
             h);
    x = norm(point(pooled(mirt_zero_padding2d(mirt_tanh(x), 1, 1, 1, 1), 2, MIRT_VALID), 7, false), h);
    a = pooled(mirt_pad(mirt_relu6(x), wide, none, 0), 1, MIRT_VALID);
    b = pooled(mirt_pad(mirt_relu(x), none, high, 0), 1, MIRT_VALID);
    x = mirt_concat((mirt_tensor *[]){mirt_reduce_mean(a, 6, true), mirt_reduce_mean(b, 6, true)}, 2, 3);
    a = pooled(mirt_zero_padding2d(mirt_relu(norm(point(a, 6, false), h)), 1, 1, 1, 1), 1, MIRT_SAME);
    return mirt_silu(norm(mirt_multiply(point(a, 14, true), x), h));
}

/* Normalizations and activations after a convolution that has one already, or that more reads; means of other axes, of
   dense convolutions and of large kernels; products that are no gates. */
static mirt_tensor *readers(mirt_tensor *x, const how *h) {
    mirt_layer_norm_desc layer;
    memset(&layer, 0, sizeof layer);
    x = mirt_tanh(rectified(norm(rectified(x, 6), h), 6));
    mirt_tensor *a = conv(x, 8, 3, 2, MIRT_SAME, false), *b = norm(a, h);
    x = mirt_add(mirt_silu(a), mirt_layer_norm(point(b, 8, true), &layer));
    a = mirt_relu(norm(depthwise(mirt_relu(norm(x, h)), 3, 1, MIRT_SAME), h));
    b = depthwise(a, 11, 1, MIRT_SAME);
    mirt_tensor *means = mirt_add(mirt_reduce_mean(b, 6, true), mirt_reduce_mean(point(a, 8, false), 6, true));
    means = mirt_add(means, mirt_reduce_max(mirt_reduce_mean(depthwise(a, 3, 1, MIRT_SAME), 2, true), 4, true));
    x = point(mirt_multiply(a, mirt_sigmoid(means)), 8, false);
    x = mirt_add(mirt_multiply(norm(x, h), a), mirt_multiply(b, mirt_reduce_mean(x, 14, true)));
    b = point(mirt_square(means), 8, true);
    return mirt_relu(norm(mirt_add(x, mirt_multiply(b, b)), h));
}

typedef struct network {
    const char *name;
    mirt_tensor *(*body)(mirt_tensor *x, const how *h);
} network;
static const network networks[] = {{"mobile", mobile},     {"resnet", resnet},     {"squeeze", squeeze},
                                   {"odd", odd},           {"paddings", paddings}, {"readers", readers},
                                   {"branches", branches}, {"alike", alike}};

static mirt_model *build(mirt_strategy *s, const network *net, const how *h) {
    mirt_model *m = mirt_model_create(s, net->name);
    mirt_dense_desc dense;
    mirt_compile_desc c = image_compile(mirt_sgd(0.02f, 0, false));
    memset(&dense, 0, sizeof dense);
    dense.units = CLASSES;
    mirt_tensor *x = mirt_global_average_pool2d(
        net->body(mirt_rescale(mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 3)), 1 / 127.5f, -1), h));
    mirt_model_output(m, mirt_dense(x, &dense));
    if (mirt_set_dtype_policy(m, mirt__policy_name(h->policy)) != MIRT_OK) return NULL;
    if (h->frozen) mirt_set_trainable(m, "batch_normalization*", false);
    if (net->body == alike) mirt_set_trainable(m, "still", false);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

#endif
