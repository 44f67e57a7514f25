#include "layers.h"
/* Layers on images: convolution and pooling. */

static mirt_tensor *mirt__conv2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_conv2d_desc *d = (mirt_conv2d_desc *)desc;
    mirt__default_pair(d->kernel, 0);
    mirt__default_pair(d->strides, 1);
    mirt__default_pair(d->dilation, 1);
    if (!d->groups) d->groups = 1;
    if (d->filters < 1) return mirt__fail(MIRT_E_INVALID, "filters is %d; it must be positive", d->filters), (mirt_tensor *)NULL;
    if (d->kernel[0] < 1 || d->kernel[1] < 1) return mirt__fail(MIRT_E_INVALID, "kernel is %dx%d; it must be positive", d->kernel[0], d->kernel[1]), (mirt_tensor *)NULL;
    if (!mirt__layer_takes_images(x)) return NULL;
    if (d->groups < 1 || x->shape.dim[3] % d->groups || d->filters % d->groups) {
        return mirt__fail(MIRT_E_SHAPE, "%lld input channels and %d filters do not divide into %d groups", (long long)x->shape.dim[3], d->filters, d->groups), (mirt_tensor *)NULL;
    }
    mirt__attrs a = mirt__no_attrs();
    for (int i = 0; i < 2; i++) {
        a.strides[i] = d->strides[i];
        a.dilation[i] = d->dilation[i];
    }
    a.groups = d->groups;
    a.padding = d->padding;
    mirt_shape shape = mirt_make_shape(d->kernel[0], d->kernel[1], x->shape.dim[3] / d->groups, d->filters, 0, 0);
    mirt_tensor *kernel = mirt__weight_add(layer, "kernel", &shape, &d->kernel_initializer, mirt_glorot_uniform(), &d->kernel_regularizer);
    return mirt__bias_and_activation(layer, mirt__conv2d_op(x, kernel, &a), d->no_bias, &d->bias_initializer, &d->bias_regularizer, d->activation);
}

static void mirt__pool_attrs(mirt_pool2d_desc *d, mirt__attrs *a) {
    mirt__default_pair(d->size, 2);
    if (!d->strides[0] && !d->strides[1]) d->strides[1] = d->size[1];
    mirt__default_pair(d->strides, d->size[0]);
    *a = mirt__no_attrs();
    for (int i = 0; i < 2; i++) {
        a->kernel[i] = d->size[i];
        a->strides[i] = d->strides[i];
    }
    a->padding = d->padding;
}

static mirt_tensor *mirt__max_pool2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt__attrs a;
    (void)layer;
    mirt__pool_attrs((mirt_pool2d_desc *)desc, &a);
    return mirt__max_pool2d_op(x, &a);
}

static mirt_tensor *mirt__average_pool2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt__attrs a;
    (void)layer;
    mirt__pool_attrs((mirt_pool2d_desc *)desc, &a);
    return mirt__average_pool2d_op(x, &a);
}

static mirt_tensor *mirt__global_average_pool2d_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    (void)desc;
    if (!mirt__layer_takes_images(x)) return NULL;
    return mirt__reduce_op(MIRT__REDUCE_MEAN, x, 6u, false);
}

static const mirt__field mirt__conv2d_fields[] = {{"filters", MIRT__FIELD_INT, offsetof(mirt_conv2d_desc, filters)},
                                                  {"kernel_size", MIRT__FIELD_INT2, offsetof(mirt_conv2d_desc, kernel)},
                                                  {"strides", MIRT__FIELD_INT2, offsetof(mirt_conv2d_desc, strides)},
                                                  {"padding", MIRT__FIELD_PADDING, offsetof(mirt_conv2d_desc, padding)},
                                                  {"dilation_rate", MIRT__FIELD_INT2, offsetof(mirt_conv2d_desc, dilation)},
                                                  {"groups", MIRT__FIELD_INT, offsetof(mirt_conv2d_desc, groups)},
                                                  {"activation", MIRT__FIELD_ACTIVATION, offsetof(mirt_conv2d_desc, activation)},
                                                  {"use_bias", MIRT__FIELD_NO, offsetof(mirt_conv2d_desc, no_bias)},
                                                  {"kernel_initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt_conv2d_desc, kernel_initializer)},
                                                  {"bias_initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt_conv2d_desc, bias_initializer)},
                                                  {"kernel_regularizer", MIRT__FIELD_REGULARIZER, offsetof(mirt_conv2d_desc, kernel_regularizer)},
                                                  {"bias_regularizer", MIRT__FIELD_REGULARIZER, offsetof(mirt_conv2d_desc, bias_regularizer)}};
static const mirt__field mirt__pool_fields[] = {{"pool_size", MIRT__FIELD_INT2, offsetof(mirt_pool2d_desc, size)},
                                                {"strides", MIRT__FIELD_INT2, offsetof(mirt_pool2d_desc, strides)},
                                                {"padding", MIRT__FIELD_PADDING, offsetof(mirt_pool2d_desc, padding)}};
MIRT__LAYER(conv2d, "Conv2D", "conv2d", 1, 1, mirt__conv2d_fields, mirt_conv2d_desc);
MIRT__LAYER(max_pool2d, "MaxPooling2D", "max_pooling2d", 1, 1, mirt__pool_fields, mirt_pool2d_desc);
MIRT__LAYER(average_pool2d, "AveragePooling2D", "average_pooling2d", 1, 1, mirt__pool_fields, mirt_pool2d_desc);
MIRT__PLAIN_LAYER(global_average_pool2d, "GlobalAveragePooling2D", "global_average_pooling2d", 1, 1);

MIRT_API mirt_tensor *mirt_conv2d(mirt_tensor *x, const mirt_conv2d_desc *desc) {
    return mirt__layer_needs_desc(&mirt__conv2d_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_max_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc) {
    return mirt__layer_on(&mirt__max_pool2d_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_average_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc) {
    return mirt__layer_on(&mirt__average_pool2d_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_global_average_pool2d(mirt_tensor *x) { return mirt__layer_on(&mirt__global_average_pool2d_layer, x, NULL, NULL); }
