#include "models.h"
/* Builds layers with the names of keras.applications. */

MIRT__LIB const char *mirt__network_name(mirt__network *n, const char *suffix) {
    snprintf(n->name, sizeof n->name, "%s%s", n->prefix, suffix);
    return n->name;
}

MIRT__LIB void mirt__network_conv(mirt__network *n, const char *suffix, int filters, int kernel, int stride,
                                  mirt_padding padding, bool bias, mirt_activation_kind activation) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = filters;
    d.kernel[0] = kernel;
    d.strides[0] = stride;
    d.padding = padding;
    d.no_bias = !bias;
    d.activation = activation;
    d.kernel_initializer = n->conv_initializer;
    d.name = mirt__network_name(n, suffix);
    n->x = mirt_conv2d(n->x, &d);
}

MIRT__LIB void mirt__network_depthwise(mirt__network *n, const char *suffix, int stride, mirt_padding padding) {
    mirt_depthwise_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.kernel[0] = 3;
    d.strides[0] = stride;
    d.padding = padding;
    d.no_bias = true;
    d.depthwise_initializer = n->conv_initializer;
    d.name = mirt__network_name(n, suffix);
    n->x = mirt_depthwise_conv2d(n->x, &d);
}

MIRT__LIB void mirt__network_norm(mirt__network *n, const char *suffix) {
    mirt_batch_norm_desc d;
    memset(&d, 0, sizeof d);
    d.momentum = n->momentum;
    d.epsilon = n->epsilon;
    d.name = mirt__network_name(n, suffix);
    n->x = mirt_batch_norm(n->x, &d);
}

MIRT__LIB void mirt__network_activation(mirt__network *n, const char *suffix, mirt_activation_kind kind) {
    mirt_next_name(n->model, mirt__network_name(n, suffix));
    n->x = mirt_activation(n->x, kind);
}

MIRT__LIB void mirt__network_pad(mirt__network *n, const char *suffix, int before, int after) {
    mirt_next_name(n->model, mirt__network_name(n, suffix));
    n->x = mirt_zero_padding2d(n->x, before, after, before, after);
}

MIRT__LIB void mirt__network_dropout(mirt__network *n, const char *suffix, double rate, bool whole_rows) {
    mirt_dropout_desc d;
    memset(&d, 0, sizeof d);
    d.rate = (float)rate;
    if (whole_rows) d.noise_shape = MIRT_SHAPE(1, 1, 1);
    d.name = mirt__network_name(n, suffix);
    n->x = mirt_dropout_layer(n->x, &d);
}

MIRT__LIB void mirt__network_add(mirt__network *n, const char *suffix, mirt_tensor *a, mirt_tensor *b) {
    mirt_tensor *in[2];
    in[0] = a;
    in[1] = b;
    mirt_next_name(n->model, mirt__network_name(n, suffix));
    n->x = mirt_add_layer(in, 2);
}

MIRT__LIB void mirt__network_top(mirt__network *n, const char *average, const char *max) {
    mirt_global_pool2d_desc pool;
    mirt_dense_desc dense;
    memset(&pool, 0, sizeof pool);
    memset(&dense, 0, sizeof dense);
    n->prefix[0] = 0;
    pool.max = n->d.pooling == MIRT_POOLING_MAX;
    pool.name = pool.max ? max : average;
    if (!n->d.no_top || n->d.pooling) n->x = mirt_global_pool2d(n->x, &pool);
    if (n->d.no_top) return;
    if (n->d.dropout_rate > 0) mirt__network_dropout(n, "top_dropout", (double)n->d.dropout_rate, false);
    dense.units = n->d.classes;
    dense.activation = n->d.logits ? MIRT_LINEAR : MIRT_SOFTMAX;
    dense.kernel_initializer = n->top_initializer;
    dense.name = "predictions";
    n->x = mirt_dense(n->x, &dense);
}
