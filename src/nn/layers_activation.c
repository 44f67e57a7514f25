#include "layers.h"
/* Activations as layers. */

static mirt_tensor *mirt__activation_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__activation_op(*(const mirt_activation_kind *)layer->desc, x);
}

static mirt_tensor *mirt__slope_build(mirt__unary_kind kind, mirt_tensor *x, const void *desc) {
    const float slope = *(const float *)desc;
    if (!isfinite(slope)) {
        mirt__fail(MIRT_E_INVALID, "the slope is %g; it must be finite", (double)slope);
        return NULL;
    }
    return mirt__unary_op(kind, x, slope, 0);
}

static mirt_tensor *mirt__leaky_relu_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__slope_build(MIRT__ACT_LEAKY_RELU, x, layer->desc);
}

static mirt_tensor *mirt__elu_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__slope_build(MIRT__ACT_ELU, x, layer->desc);
}

/* Files older than the axis have none: it is 0 then, which is the last. */
static mirt_tensor *mirt__softmax_build(mirt__layer *layer, mirt_tensor *x) {
    const int axis = *(const int *)layer->desc, at = axis ? mirt__layer_axis(x, axis) : x->shape.rank - 1;
    if (axis && !at) return NULL;
    const unsigned last = at < x->shape.rank - 1 ? 1u << at : 0;
    return mirt__axes_last(mirt_softmax(mirt__axes_last(x, last, false)), last, true);
}

static mirt_tensor *mirt__relu_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt_relu_desc *d = (const mirt_relu_desc *)layer->desc;
    const float slope = d->negative_slope, threshold = d->threshold;
    if (!(d->max_value >= 0 && slope >= 0 && threshold >= 0 && isfinite(d->max_value + slope + threshold))) {
        mirt__fail(MIRT_E_INVALID,
                   "max_value %g, negative_slope %g, threshold %g: they must be finite and not negative",
                   (double)d->max_value, (double)slope, (double)threshold);
        return NULL;
    }
    mirt_tensor *y;
    if (d->max_value == 6 && slope == 0 && threshold == 0) return mirt__unary_op(MIRT__ACT_RELU6, x, 0, 0);
    if (threshold > 0) {
        mirt_tensor *limit = mirt__scalar_op(x->node->graph, threshold);
        y = mirt__where_op(mirt__logic_op(MIRT__IS_LESS_EQUAL, limit, x), x,
                           mirt__unary_op(MIRT__AFFINE, x, slope, -slope * threshold));
    } else {
        y = slope > 0 ? mirt__unary_op(MIRT__ACT_LEAKY_RELU, x, slope, 0) : mirt__unary_op(MIRT__ACT_RELU, x, 0, 0);
    }
    return d->max_value > 0 ? mirt__unary_op(MIRT__CLIP, y, -INFINITY, d->max_value) : y;
}

/* max(x, 0) - alpha * max(-x, 0). */
static mirt_tensor *mirt__prelu_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_prelu_desc *d = (mirt_prelu_desc *)layer->desc;
    mirt_shape shape;
    memset(&shape, 0, sizeof shape);
    if (x->shape.rank < 2 || !mirt__is_batched(&x->shape)) {
        mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., features)");
        return NULL;
    }
    if (d->shared_axes < 0 || d->shared_axes & 1 || d->shared_axes >> x->shape.rank) {
        mirt__fail(MIRT_E_INVALID, "shared_axes is %d; bits 1 to %d are axes of its input", d->shared_axes,
                   x->shape.rank - 1);
        return NULL;
    }
    shape.rank = x->shape.rank - 1;
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = d->shared_axes >> (i + 1) & 1 ? 1 : x->shape.dim[i + 1];
    mirt_tensor *alpha =
        mirt__weight_add(layer, "alpha", &shape, &d->alpha_initializer, mirt_zeros(), &d->alpha_regularizer,
                         &d->alpha_constraint);
    mirt_tensor *negative = mirt__unary_op(MIRT__ACT_RELU, mirt__unary_op(MIRT__NEGATIVE, x, 0, 0), 0, 0);
    return mirt__binary_op(MIRT__SUBTRACT, mirt__unary_op(MIRT__ACT_RELU, x, 0, 0),
                           mirt__binary_op(MIRT__MULTIPLY, negative, alpha));
}

static const mirt__field mirt__activation_fields[] = {MIRT__ONLY_FIELD("activation", ACTIVATION)};
static const mirt__field mirt__leaky_relu_fields[] = {MIRT__ONLY_FIELD("negative_slope", FLOAT)};
static const mirt__field mirt__elu_fields[] = {MIRT__ONLY_FIELD("alpha", FLOAT)};
static const mirt__field mirt__softmax_fields[] = {{"axis", MIRT__FIELD_SIGNED, 0, true}};
static const mirt__field mirt__relu_fields[] = {MIRT__OWN_FIELD(mirt_relu_desc, FLOAT, max_value),
                                                MIRT__OWN_FIELD(mirt_relu_desc, FLOAT, negative_slope),
                                                MIRT__OWN_FIELD(mirt_relu_desc, FLOAT, threshold)};
static const mirt__field mirt__prelu_fields[] = {
    MIRT__OWN_FIELD(mirt_prelu_desc, INITIALIZER, alpha_initializer),
    MIRT__OWN_FIELD(mirt_prelu_desc, REGULARIZER, alpha_regularizer),
    MIRT__OWN_FIELD(mirt_prelu_desc, INT, shared_axes),
    MIRT__OPTIONAL_FIELD(mirt_prelu_desc, CONSTRAINT, alpha_constraint)};

MIRT__LAYER(activation, "Activation", "activation", 1, 1, mirt__activation_fields, mirt_activation_kind);
MIRT__LAYER(leaky_relu, "LeakyReLU", "leaky_re_lu", 1, 1, mirt__leaky_relu_fields, float);
MIRT__LAYER(elu, "ELU", "elu", 1, 1, mirt__elu_fields, float);
MIRT__LAYER(softmax, "Softmax", "softmax", 1, 1, mirt__softmax_fields, int);
MIRT__LAYER(relu, "ReLU", "re_lu", 1, 1, mirt__relu_fields, mirt_relu_desc);
MIRT__LAYER(prelu, "PReLU", "p_re_lu", 1, 1, mirt__prelu_fields, mirt_prelu_desc);

MIRT_API mirt_tensor *mirt_activation(mirt_tensor *x, mirt_activation_kind kind) {
    return mirt__layer_on(&mirt__activation_layer, x, &kind, NULL);
}

MIRT_API mirt_tensor *mirt_leaky_relu_layer(mirt_tensor *x, float slope) {
    return mirt__layer_on(&mirt__leaky_relu_layer, x, &slope, NULL);
}

MIRT_API mirt_tensor *mirt_elu_layer(mirt_tensor *x, float alpha) {
    return mirt__layer_on(&mirt__elu_layer, x, &alpha, NULL);
}

MIRT_API mirt_tensor *mirt_softmax_layer(mirt_tensor *x) { return mirt__layer_on(&mirt__softmax_layer, x, NULL, NULL); }

MIRT_API mirt_tensor *mirt_softmax_axis(mirt_tensor *x, int axis) {
    const int other = axis == -1 ? 0 : axis;
    if (x && !axis) {
        mirt__fail(MIRT_E_SHAPE, "softmax: axis is 0, that of the rows");
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    return mirt__layer_on(&mirt__softmax_layer, x, &other, NULL);
}

MIRT__LAYER_FUNCTION(mirt_relu_layer, relu, mirt_relu_desc, mirt__layer_on)
MIRT__LAYER_FUNCTION(mirt_prelu, prelu, mirt_prelu_desc, mirt__layer_on)
