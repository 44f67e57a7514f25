#include "layers.h"
/* Layers that change the size of images. */

typedef struct mirt__border_desc { int border[2][2]; } mirt__border_desc; /* top, bottom; left, right */

static mirt__attrs mirt__pool_attrs(mirt__layer *layer, mirt__op_id id) {
    mirt_pool2d_desc *d = (mirt_pool2d_desc *)layer->desc;
    mirt__attrs a = mirt__attrs_of(id);
    mirt__attrs_window *w = MIRT__OF(&a, window);
    mirt__default_pair(d->size, 2);
    if (!d->strides[0] && !d->strides[1]) d->strides[1] = d->size[1];
    mirt__default_pair(d->strides, d->size[0]);
    for (int i = 0; i < 2; i++) {
        w->kernel[i] = d->size[i];
        w->strides[i] = d->strides[i];
    }
    w->padding = d->padding;
    return a;
}

static mirt_tensor *mirt__max_pool2d_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt__attrs a = mirt__pool_attrs(layer, MIRT__OP_max_pool2d);
    return mirt__max_pool2d_op(x, &a);
}

static mirt_tensor *mirt__average_pool2d_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt__attrs a = mirt__pool_attrs(layer, MIRT__OP_average_pool2d);
    return mirt__average_pool2d_op(x, &a);
}

static mirt_tensor *mirt__global_pool(mirt__reduce_kind kind, mirt_tensor *x, const void *desc) {
    return mirt__layer_takes_images(x) ? mirt__reduce_op(kind, x, 6u, ((const mirt_global_pool2d_desc *)desc)->keepdims)
                                       : NULL;
}

static mirt_tensor *mirt__global_average_pool2d_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__global_pool(MIRT__REDUCE_MEAN, x, layer->desc);
}

static mirt_tensor *mirt__global_max_pool2d_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__global_pool(MIRT__REDUCE_MAX, x, layer->desc);
}

static mirt_tensor *mirt__zero_padding2d_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt__border_desc *d = (const mirt__border_desc *)layer->desc;
    const int64_t before[4] = {0, d->border[0][0], d->border[1][0], 0},
                  after[4] = {0, d->border[0][1], d->border[1][1], 0};
    return mirt__layer_takes_images(x) ? mirt_pad(x, before, after, 0) : NULL;
}

static mirt_tensor *mirt__cropping2d_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt__border_desc *d = (const mirt__border_desc *)layer->desc;
    int64_t begin[4] = {0, d->border[0][0], d->border[1][0], 0}, size[4] = {-1, 0, 0, -1};
    if (!mirt__layer_takes_images(x)) return NULL;
    for (int i = 0; i < 2; i++) {
        size[1 + i] = x->shape.dim[1 + i] - d->border[i][0] - d->border[i][1];
        if (d->border[i][0] >= 0 && d->border[i][1] >= 0 && size[1 + i] > 0) continue;
        mirt__fail(MIRT_E_SHAPE, "cropping %lld pixels by %d and %d leaves nothing, or is negative",
                   (long long)x->shape.dim[1 + i], d->border[i][0], d->border[i][1]);
        return NULL;
    }
    return mirt_slice(x, begin, size);
}

static mirt_tensor *mirt__up_sampling2d_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_up_sampling2d_desc *d = (mirt_up_sampling2d_desc *)layer->desc;
    mirt__default_pair(d->size, 2);
    if (d->size[0] < 1 || d->size[1] < 1) {
        mirt__fail(MIRT_E_INVALID, "size is %dx%d; it must be positive", d->size[0], d->size[1]);
        return NULL;
    }
    return mirt__layer_takes_images(x) ? mirt__upsampling2d_op(x, d->size, d->bilinear) : NULL;
}

static const mirt__field mirt__pool_fields[] = {MIRT__FIELD(mirt_pool2d_desc, "pool_size", INT2, size),
                                                MIRT__OWN_FIELD(mirt_pool2d_desc, INT2, strides),
                                                MIRT__OWN_FIELD(mirt_pool2d_desc, PADDING, padding)};
static const mirt__field mirt__global_pool_fields[] = {
    MIRT__OWN_FIELD(mirt_global_pool2d_desc, BOOL, keepdims)};
static const mirt__field mirt__zero_padding_fields[] = {MIRT__FIELD(mirt__border_desc, "padding", INT2X2, border)};
static const mirt__field mirt__cropping_fields[] = {MIRT__FIELD(mirt__border_desc, "cropping", INT2X2, border)};
static const mirt__field mirt__up_sampling_fields[] = {
    MIRT__OWN_FIELD(mirt_up_sampling2d_desc, INT2, size),
    MIRT__OWN_FIELD(mirt_up_sampling2d_desc, BOOL, bilinear)};

MIRT__LAYER(max_pool2d, "MaxPooling2D", "max_pooling2d", 1, 1, mirt__pool_fields, mirt_pool2d_desc);
MIRT__LAYER(average_pool2d, "AveragePooling2D", "average_pooling2d", 1, 1, mirt__pool_fields, mirt_pool2d_desc);
MIRT__LAYER(global_average_pool2d, "GlobalAveragePooling2D", "global_average_pooling2d", 1, 1, mirt__global_pool_fields,
            mirt_global_pool2d_desc);
MIRT__LAYER(global_max_pool2d, "GlobalMaxPooling2D", "global_max_pooling2d", 1, 1, mirt__global_pool_fields,
            mirt_global_pool2d_desc);
MIRT__LAYER(zero_padding2d, "ZeroPadding2D", "zero_padding2d", 1, 1, mirt__zero_padding_fields, mirt__border_desc);
MIRT__LAYER(cropping2d, "Cropping2D", "cropping2d", 1, 1, mirt__cropping_fields, mirt__border_desc);
MIRT__LAYER(up_sampling2d, "UpSampling2D", "up_sampling2d", 1, 1, mirt__up_sampling_fields, mirt_up_sampling2d_desc);

MIRT__LAYER_FUNCTION(mirt_max_pool2d, max_pool2d, mirt_pool2d_desc, mirt__layer_on)
MIRT__LAYER_FUNCTION(mirt_average_pool2d, average_pool2d, mirt_pool2d_desc, mirt__layer_on)
MIRT_API mirt_tensor *mirt_global_average_pool2d(mirt_tensor *x) {
    return mirt__layer_on(&mirt__global_average_pool2d_layer, x, NULL, NULL);
}
MIRT_API mirt_tensor *mirt_global_max_pool2d(mirt_tensor *x) {
    return mirt__layer_on(&mirt__global_max_pool2d_layer, x, NULL, NULL);
}

MIRT_API mirt_tensor *mirt_global_pool2d(mirt_tensor *x, const mirt_global_pool2d_desc *desc) {
    return mirt__layer_on(desc && desc->max ? &mirt__global_max_pool2d_layer : &mirt__global_average_pool2d_layer, x,
                          desc, desc ? desc->name : NULL);
}

static mirt_tensor *mirt__border_layer(const mirt__layer_class *cls, mirt_tensor *x, int top, int bottom, int left,
                                       int right) {
    const mirt__border_desc d = {{{top, bottom}, {left, right}}};
    return mirt__layer_on(cls, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_zero_padding2d(mirt_tensor *x, int top, int bottom, int left, int right) {
    return mirt__border_layer(&mirt__zero_padding2d_layer, x, top, bottom, left, right);
}

MIRT_API mirt_tensor *mirt_cropping2d(mirt_tensor *x, int top, int bottom, int left, int right) {
    return mirt__border_layer(&mirt__cropping2d_layer, x, top, bottom, left, right);
}

MIRT__LAYER_FUNCTION(mirt_up_sampling2d, up_sampling2d, mirt_up_sampling2d_desc, mirt__layer_on)
