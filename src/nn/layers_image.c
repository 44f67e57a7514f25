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

/* Output i of an adaptive pooling of `in` pixels to `out` has those from i * in / out to (i + 1) * in / out, rounded
   down and up, as in PyTorch. Outputs whose numbers differ by `period` have windows of one size, in / divisor apart. */
typedef struct mirt__adaptive {
    int64_t in, out, period, divisor;
} mirt__adaptive;

#define MIRT__MAX_WINDOWS 1024 /* different ones along an axis: each is a node */

static mirt__adaptive mirt__adaptive_of(int64_t in, int64_t out) {
    mirt__adaptive a = {in, out, 1, in};
    for (int64_t b = out; b;) {
        const int64_t rest = a.divisor % b;
        a.divisor = b;
        b = rest;
    }
    a.period = out / a.divisor;
    return a;
}

/* The pixels of window `i`: the first, and how many. */
static int64_t mirt__adaptive_window(const mirt__adaptive *a, int64_t i, int64_t *count) {
    const int64_t first = i * a->in / a->out;
    *count = ((i + 1) * a->in + a->out - 1) / a->out - first;
    return first;
}

static mirt_tensor *mirt__pool_by(mirt_tensor *x, bool max, const int64_t kernel[2], const int64_t strides[2]) {
    mirt__attrs a = mirt__attrs_of(max ? MIRT__OP_max_pool2d : MIRT__OP_average_pool2d);
    mirt__attrs_window *w = MIRT__OF(&a, window);
    for (int i = 0; i < 2; i++) {
        w->kernel[i] = (int)kernel[i];
        w->strides[i] = (int)strides[i];
    }
    return max ? mirt__max_pool2d_op(x, &a) : mirt__average_pool2d_op(x, &a);
}

/* Every period-th window of the axis 1 + `axis`, from window `first` on. */
static mirt_tensor *mirt__adaptive_part(mirt_tensor *x, int axis, bool max, const mirt__adaptive *a, int64_t first) {
    int64_t begin[4] = {0, 0, 0, 0}, size[4] = {-1, -1, -1, -1}, kernel[2] = {1, 1}, strides[2] = {1, 1};
    strides[axis] = a->in / a->divisor;
    begin[1 + axis] = mirt__adaptive_window(a, first, &kernel[axis]);
    size[1 + axis] = (a->divisor - 1) * strides[axis] + kernel[axis];
    return mirt__pool_by(a->period > 1 ? mirt_slice(x, begin, size) : x, max, kernel, strides);
}

/* `count` parts [rows, h, w, c], one after the other along a new axis after `axis` + 1 of their shape without it: their
   elements along `axis` + 1 alternate. */
static mirt_tensor *mirt__interleave(mirt_tensor **part, int64_t count, int axis) {
    mirt_shape shape = part[0]->shape, split = shape;
    split.rank = 5;
    for (int i = 4; i > axis + 2; i--) split.dim[i] = shape.dim[i - 1];
    split.dim[axis + 2] = 1;
    shape.dim[axis + 1] *= count;
    for (int64_t i = 0; i < count; i++) {
        if (!part[i] || !(part[i] = mirt__reshape_op(part[i], &split))) return NULL;
    }
    while (count > 1) { /* an op takes so many */
        int64_t joined = 0;
        for (int64_t i = 0; i < count; i += MIRT__MAX_IN) {
            const int some = (int)mirt__min(count - i, MIRT__MAX_IN);
            if (!(part[joined++] = mirt_concat(part + i, some, axis + 2))) return NULL;
        }
        count = joined;
    }
    return mirt__reshape_op(part[0], &shape);
}

static mirt_tensor *mirt__adaptive_axis(mirt_tensor *x, int axis, bool max, const mirt__adaptive *a) {
    if (a->in == a->out || !x) return x;
    mirt_tensor **part = (mirt_tensor **)mirt__calloc((size_t)a->period, sizeof *part), *y = NULL;
    if (!part) {
        mirt__fail(MIRT_E_NOMEM, "no memory for %lld windows", (long long)a->period);
        return NULL;
    }
    bool good = true;
    for (int64_t i = 0; good && i < a->period; i++) good = (part[i] = mirt__adaptive_part(x, axis, max, a, i)) != NULL;
    if (good) y = a->period > 1 ? mirt__interleave(part, a->period, axis) : part[0];
    mirt__free(part);
    return y;
}

/* Along one axis after the other, unless equal windows tile the image. */
static mirt_tensor *mirt__adaptive_pool(mirt_tensor *x, const int size[2], bool max) {
    mirt__adaptive a[2];
    if (!mirt__layer_takes_images(x)) return NULL;
    for (int i = 0; i < 2; i++) {
        if (size[i] < 1) {
            mirt__fail(MIRT_E_INVALID, "the output size is %dx%d; it must be positive", size[0], size[1]);
            return NULL;
        }
        a[i] = mirt__adaptive_of(x->shape.dim[1 + i], size[i]);
        if (a[i].in > INT_MAX || a[i].period > MIRT__MAX_WINDOWS) {
            mirt__fail(MIRT_E_SHAPE, "pooling %lld pixels to %d takes more than %d different windows",
                       (long long)a[i].in, size[i], MIRT__MAX_WINDOWS);
            return NULL;
        }
    }
    if (a[0].period > 1 || a[1].period > 1)
        return mirt__adaptive_axis(mirt__adaptive_axis(x, 1, max, &a[1]), 0, max, &a[0]);
    const int64_t window[2] = {a[0].in / a[0].out, a[1].in / a[1].out};
    return mirt__pool_by(x, max, window, window);
}

#undef MIRT__MAX_WINDOWS

static mirt_tensor *mirt__adaptive_average_pool2d_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__adaptive_pool(x, (const int *)layer->desc, false);
}

static mirt_tensor *mirt__adaptive_max_pool2d_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__adaptive_pool(x, (const int *)layer->desc, true);
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
static const mirt__field mirt__adaptive_fields[] = {MIRT__ONLY_FIELD("output_size", INT2)};
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
MIRT__LAYER(adaptive_average_pool2d, "AdaptiveAveragePooling2D", "adaptive_average_pooling2d", 1, 1,
            mirt__adaptive_fields, int[2]);
MIRT__LAYER(adaptive_max_pool2d, "AdaptiveMaxPooling2D", "adaptive_max_pooling2d", 1, 1, mirt__adaptive_fields, int[2]);
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

MIRT_API mirt_tensor *mirt_adaptive_average_pool2d(mirt_tensor *x, int height, int width) {
    const int size[2] = {height, width};
    return mirt__layer_on(&mirt__adaptive_average_pool2d_layer, x, size, NULL);
}

MIRT_API mirt_tensor *mirt_adaptive_max_pool2d(mirt_tensor *x, int height, int width) {
    const int size[2] = {height, width};
    return mirt__layer_on(&mirt__adaptive_max_pool2d_layer, x, size, NULL);
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
