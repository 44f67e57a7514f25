#include "models.h"
/* Builds layers with the names of keras.applications. */

MIRT__LIB const char *mirt__network_name(mirt__network *n, const char *suffix) {
    if (!suffix) return NULL;
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

MIRT__LIB void mirt__network_depthwise(mirt__network *n, const char *suffix, int kernel, int stride,
                                       mirt_padding padding) {
    mirt_depthwise_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.kernel[0] = kernel;
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

MIRT__LIB void mirt__network_relu(mirt__network *n, const char *suffix, float max_value) {
    mirt_relu_desc d;
    memset(&d, 0, sizeof d);
    d.max_value = max_value;
    d.name = mirt__network_name(n, suffix);
    n->x = mirt_relu_layer(n->x, &d);
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

MIRT__LIB void mirt__network_excite(mirt__network *n, const char *suffix, mirt_tensor *image) {
    mirt_tensor *in[2];
    in[0] = image;
    in[1] = n->x;
    mirt_next_name(n->model, mirt__network_name(n, suffix));
    n->x = mirt_multiply_layer(in, 2);
}

MIRT__LIB void mirt__network_pool(mirt__network *n, const char *suffix, bool max, bool keepdims) {
    mirt_global_pool2d_desc d;
    memset(&d, 0, sizeof d);
    d.max = max;
    d.keepdims = keepdims;
    d.name = mirt__network_name(n, suffix);
    n->x = mirt_global_pool2d(n->x, &d);
}

MIRT__LIB void mirt__network_dense(mirt__network *n, const char *suffix, int units, mirt_activation_kind activation) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.activation = activation;
    d.kernel_initializer = n->top_initializer;
    d.name = mirt__network_name(n, suffix);
    n->x = mirt_dense(n->x, &d);
}

MIRT__LIB mirt_activation_kind mirt__network_scores(const mirt__network *n) {
    return n->d.logits ? MIRT_LINEAR : MIRT_SOFTMAX;
}

MIRT__LIB void mirt__network_top(mirt__network *n, const char *average, const char *max) {
    const bool largest = n->d.pooling == MIRT_POOLING_MAX;
    n->prefix[0] = 0;
    if (!n->d.no_top || n->d.pooling) mirt__network_pool(n, largest ? max : average, largest, false);
    if (n->d.no_top) return;
    if (n->d.dropout_rate > 0) mirt__network_dropout(n, "top_dropout", (double)n->d.dropout_rate, false);
    mirt__network_dense(n, "predictions", n->d.classes, mirt__network_scores(n));
}

MIRT__LIB void mirt__network_caffe(mirt__network *n) {
    mirt_normalization_desc d;
    memset(&d, 0, sizeof d);
    d.reverse = true;
    d.mean[0] = 103.939f;
    d.mean[1] = 116.779f;
    d.mean[2] = 123.68f;
    n->x = mirt_normalization(n->x, &d);
}

MIRT__LIB void mirt__network_imagenet(mirt__network *n) {
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, deviation[3] = {0.229f, 0.224f, 0.225f};
    mirt_normalization_desc d;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < 3; i++) {
        d.mean[i] = mean[i];
        d.variance[i] = deviation[i] * deviation[i];
    }
    n->x = mirt_normalization(mirt_rescale(n->x, 1 / 255.0f, 0), &d);
}

MIRT__LIB double mirt__network_alpha(const mirt__network *n) {
    return round((double)n->d.alpha * 1e7) / 1e7;
}

MIRT__LIB int mirt__network_filters(double v) {
    int filters = (int)(v + 4) / 8 * 8;
    if (filters < 8) filters = 8;
    return (double)filters < 0.9 * v ? filters + 8 : filters;
}
