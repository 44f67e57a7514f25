#include "layers.h"
/* Convolution layers. */

/* Fills in the defaults and the attributes the ops read. */
static bool mirt__conv_settings(int kernel[2], int strides[2], int dilation[2], mirt_padding padding,
                                const mirt_tensor *x, mirt__attrs *a) {
    mirt__default_pair(kernel, 0);
    mirt__default_pair(strides, 1);
    mirt__default_pair(dilation, 1);
    *a = mirt__attrs_of(MIRT__OP_conv2d);
    mirt__attrs_window *w = MIRT__OF(a, window);
    for (int i = 0; i < 2; i++) {
        w->strides[i] = strides[i];
        w->dilation[i] = dilation[i];
    }
    w->groups = 1;
    w->padding = padding;
    if (kernel[0] < 1 || kernel[1] < 1)
        return mirt__fail(MIRT_E_INVALID, "kernel is %dx%d; it must be positive", kernel[0], kernel[1]), false;
    return mirt__layer_takes_images(x);
}

static bool mirt__conv_filters(int filters) {
    return filters > 0 || (mirt__fail(MIRT_E_INVALID, "filters is %d; it must be positive", filters), false);
}

static mirt_tensor *mirt__conv_build(mirt__layer *layer, mirt_tensor *x, bool transposed) {
    mirt_conv2d_desc *d = (mirt_conv2d_desc *)layer->desc;
    mirt__attrs a;
    if (!mirt__conv_filters(d->filters) || !mirt__conv_settings(d->kernel, d->strides, d->dilation, d->padding, x, &a))
        return NULL;
    if (!d->groups) d->groups = 1;
    if (!transposed && (d->output_padding[0] || d->output_padding[1])) {
        mirt__fail(MIRT_E_INVALID, "output_padding is for transposed convolutions");
        return NULL;
    }
    if (!d->output_padding[0] && d->output_padding[1]) { /* files tell by the first number whether there is any */
        mirt__fail(MIRT_E_INVALID, "output_padding is {0, %d}; give both, -1 for none", d->output_padding[1]);
        return NULL;
    }
    mirt__default_pair(d->output_padding, 0);
    for (int i = 0; i < 2; i++) MIRT__OF(&a, window)->size[i] = d->output_padding[i];
    const int64_t channels = x->shape.dim[3];
    if (d->groups < 1 || channels % d->groups || d->filters % d->groups) {
        mirt__fail(MIRT_E_SHAPE, "%lld input channels and %d filters are not divisible by %d groups",
                   (long long)channels, d->filters, d->groups);
        return NULL;
    }
    MIRT__OF(&a, window)->groups = d->groups;
    mirt_shape shape = MIRT_SHAPE(d->kernel[0], d->kernel[1], channels / d->groups, d->filters);
    if (transposed) {
        shape.dim[2] = d->filters / d->groups;
        shape.dim[3] = channels;
    }
    mirt_tensor *kernel = mirt__weight_add(layer, "kernel", &shape, &d->kernel_initializer, mirt_glorot_uniform(),
                                           &d->kernel_regularizer, &d->kernel_constraint);
    const mirt__outcome outcome = MIRT__OUTCOME_OF(d);
    x = transposed ? mirt__conv2d_transpose_op(x, kernel, &a) : mirt__conv2d_op(x, kernel, &a);
    return mirt__bias_and_activation(layer, x, &outcome);
}

static mirt_tensor *mirt__conv2d_build(mirt__layer *layer, mirt_tensor *x) { return mirt__conv_build(layer, x, false); }

static mirt_tensor *mirt__conv2d_transpose_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__conv_build(layer, x, true);
}

/* The depthwise part of depthwise and separable convolutions, with a weight `name`. */
static mirt_tensor *mirt__depthwise(mirt__layer *layer, mirt_tensor *x, const char *name,
                                    mirt_depthwise_conv2d_desc *d) {
    mirt__attrs a;
    if (!mirt__conv_settings(d->kernel, d->strides, d->dilation, d->padding, x, &a)) return NULL;
    if (!d->depth_multiplier) d->depth_multiplier = 1;
    if (d->depth_multiplier < 0) {
        mirt__fail(MIRT_E_INVALID, "depth_multiplier is %d; it must be positive", d->depth_multiplier);
        return NULL;
    }
    mirt_shape shape = MIRT_SHAPE(d->kernel[0], d->kernel[1], x->shape.dim[3], d->depth_multiplier);
    mirt_tensor *kernel = mirt__weight_add(layer, name, &shape, &d->depthwise_initializer, mirt_glorot_uniform(),
                                           &d->depthwise_regularizer, &d->depthwise_constraint);
    return mirt__depthwise_conv2d_op(x, kernel, &a);
}

static mirt_tensor *mirt__depthwise_conv2d_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_depthwise_conv2d_desc *d = (mirt_depthwise_conv2d_desc *)layer->desc;
    const mirt__outcome outcome = MIRT__OUTCOME_OF(d);
    return mirt__bias_and_activation(layer, mirt__depthwise(layer, x, "kernel", d), &outcome);
}

static mirt_tensor *mirt__separable_conv2d_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_separable_conv2d_desc *d = (mirt_separable_conv2d_desc *)layer->desc;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_conv2d);
    mirt__attrs_window *w = MIRT__OF(&a, window);
    w->strides[0] = w->strides[1] = w->dilation[0] = w->dilation[1] = w->groups = 1;
    if (!mirt__conv_filters(d->filters) || !(x = mirt__depthwise(layer, x, "depthwise_kernel", &d->depthwise)))
        return NULL;
    mirt_shape shape = MIRT_SHAPE(1, 1, x->shape.dim[3], d->filters);
    mirt_tensor *kernel = mirt__weight_add(layer, "pointwise_kernel", &shape, &d->pointwise_initializer,
                                           mirt_glorot_uniform(), &d->pointwise_regularizer,
                                           &d->pointwise_constraint);
    const mirt__outcome outcome = MIRT__OUTCOME_OF(&d->depthwise);
    return mirt__bias_and_activation(layer, mirt__conv2d_op(x, kernel, &a), &outcome);
}

static const mirt__field mirt__conv2d_fields[] = {
    MIRT__OWN_FIELD(mirt_conv2d_desc, INT, filters),      MIRT__FIELD(mirt_conv2d_desc, "kernel_size", INT2, kernel),
    MIRT__OWN_FIELD(mirt_conv2d_desc, INT2, strides),     MIRT__OWN_FIELD(mirt_conv2d_desc, PADDING, padding),
    MIRT__FIELD(mirt_conv2d_desc, "dilation_rate", INT2, dilation),
    MIRT__OWN_FIELD(mirt_conv2d_desc, INT, groups),       MIRT__KERNEL_FIELDS(mirt_conv2d_desc),
    MIRT__OPTIONAL_FIELD(mirt_conv2d_desc, EXTRA2, output_padding)};

/* Fields of the description `type`, whose member `at` is a mirt_depthwise_conv2d_desc; empty `at`: it is one itself. */
#define MIRT__DEPTHWISE_FIELDS(type, at) \
    MIRT__FIELD(type, "kernel_size", INT2, at kernel), MIRT__FIELD(type, "strides", INT2, at strides), \
        MIRT__FIELD(type, "padding", PADDING, at padding), \
        MIRT__FIELD(type, "depth_multiplier", INT, at depth_multiplier), \
        MIRT__FIELD(type, "dilation_rate", INT2, at dilation), \
        MIRT__FIELD(type, "activation", ACTIVATION, at activation), MIRT__FIELD(type, "use_bias", NO, at no_bias), \
        MIRT__FIELD(type, "depthwise_initializer", INITIALIZER, at depthwise_initializer), \
        MIRT__FIELD(type, "bias_initializer", INITIALIZER, at bias_initializer), \
        MIRT__FIELD(type, "depthwise_regularizer", REGULARIZER, at depthwise_regularizer), \
        MIRT__FIELD(type, "bias_regularizer", REGULARIZER, at bias_regularizer), \
        {"activity_regularizer", MIRT__FIELD_REGULARIZER, offsetof(type, at activity_regularizer), true}, \
        {"depthwise_constraint", MIRT__FIELD_CONSTRAINT, offsetof(type, at depthwise_constraint), true}, \
        {"bias_constraint", MIRT__FIELD_CONSTRAINT, offsetof(type, at bias_constraint), true}
static const mirt__field mirt__depthwise_conv2d_fields[] = {MIRT__DEPTHWISE_FIELDS(mirt_depthwise_conv2d_desc, )};
static const mirt__field mirt__separable_conv2d_fields[] = {
    MIRT__OWN_FIELD(mirt_separable_conv2d_desc, INT, filters),
    MIRT__DEPTHWISE_FIELDS(mirt_separable_conv2d_desc, depthwise.),
    MIRT__OWN_FIELD(mirt_separable_conv2d_desc, INITIALIZER, pointwise_initializer),
    MIRT__OWN_FIELD(mirt_separable_conv2d_desc, REGULARIZER, pointwise_regularizer),
    MIRT__OPTIONAL_FIELD(mirt_separable_conv2d_desc, CONSTRAINT, pointwise_constraint)};
#undef MIRT__DEPTHWISE_FIELDS

MIRT__LAYER(conv2d, "Conv2D", "conv2d", 1, 1, mirt__conv2d_fields, mirt_conv2d_desc);
MIRT__LAYER(conv2d_transpose, "Conv2DTranspose", "conv2d_transpose", 1, 1, mirt__conv2d_fields, mirt_conv2d_desc);
MIRT__LAYER(depthwise_conv2d, "DepthwiseConv2D", "depthwise_conv2d", 1, 1, mirt__depthwise_conv2d_fields,
            mirt_depthwise_conv2d_desc);
MIRT__LAYER(separable_conv2d, "SeparableConv2D", "separable_conv2d", 1, 1, mirt__separable_conv2d_fields,
            mirt_separable_conv2d_desc);

MIRT__LAYER_FUNCTION(mirt_conv2d, conv2d, mirt_conv2d_desc, mirt__layer_needs_desc)
MIRT__LAYER_FUNCTION(mirt_conv2d_transpose, conv2d_transpose, mirt_conv2d_desc, mirt__layer_needs_desc)
MIRT__LAYER_FUNCTION(mirt_depthwise_conv2d, depthwise_conv2d, mirt_depthwise_conv2d_desc, mirt__layer_needs_desc)
MIRT_API mirt_tensor *mirt_separable_conv2d(mirt_tensor *x, const mirt_separable_conv2d_desc *desc) {
    return mirt__layer_needs_desc(&mirt__separable_conv2d_layer, x, desc, desc ? desc->depthwise.name : NULL);
}
