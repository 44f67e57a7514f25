#ifndef LAYER_UTIL_H
#define LAYER_UTIL_H
/* Layers by their arguments, and a strategy that logs nothing. Include after mirrortrain.h. */
#include "tap.h"

static mirt_strategy *quiet(int replicas) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = "1";
    d.threads = 1;
    d.replicas = replicas;
    d.silent = true;
    return mirt_strategy_create(&d);
}

static mirt_tensor *dense(mirt_tensor *x, int units, mirt_activation_kind activation, bool no_bias) {
    ZEROED(mirt_dense_desc, d);
    d.units = units;
    d.activation = activation;
    d.no_bias = no_bias;
    return mirt_dense(x, &d);
}

static mirt_conv2d_desc conv(int filters, int kh, int kw, int stride, mirt_padding padding) {
    ZEROED(mirt_conv2d_desc, d);
    d.filters = filters;
    d.kernel[0] = kh;
    d.kernel[1] = kw;
    d.strides[0] = stride;
    d.padding = padding;
    return d;
}

static mirt_tensor *output_padded(mirt_tensor *x, mirt_conv2d_desc d, int height, int width) {
    d.output_padding[0] = height;
    d.output_padding[1] = width;
    return mirt_conv2d_transpose(x, &d);
}

static mirt_tensor *batch_norm_axis(mirt_tensor *x, int axis, bool has_momentum) {
    ZEROED(mirt_batch_norm_desc, d);
    d.axis = axis;
    d.has_momentum = has_momentum;
    return mirt_batch_norm(x, &d);
}

static mirt_tensor *layer_norm_axis(mirt_tensor *x, int axes, int axis, float epsilon) {
    ZEROED(mirt_layer_norm_desc, d);
    d.axes = axes;
    d.axis = axis;
    d.epsilon = epsilon;
    return mirt_layer_norm(x, &d);
}

static mirt_tensor *group_norm(mirt_tensor *x, int groups, bool no_scale, bool no_center, float epsilon) {
    ZEROED(mirt_group_norm_desc, d);
    d.groups = groups;
    d.epsilon = epsilon;
    d.no_scale = no_scale;
    d.no_center = no_center;
    return mirt_group_norm(x, &d);
}

static mirt_tensor *relu(mirt_tensor *x, float max_value, float slope, float threshold) {
    ZEROED(mirt_relu_desc, d);
    d.max_value = max_value;
    d.negative_slope = slope;
    d.threshold = threshold;
    return mirt_relu_layer(x, &d);
}

#endif
