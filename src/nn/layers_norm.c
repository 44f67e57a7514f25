#include "layers.h"
/* Batch, layer, RMS, group and unit normalization. */

/* gamma or beta, or NULL if the layer has none; *ok: no error. */
static mirt_tensor *mirt__norm_weight(mirt__layer *layer, const char *name, const mirt_shape *shape, bool none,
                                      mirt_initializer *initializer, mirt_initializer fallback,
                                      const mirt_regularizer *regularizer, const mirt_constraint *constraint,
                                      bool *ok) {
    mirt__default_initializer(initializer, fallback);
    if (none || !*ok) return NULL;
    mirt_tensor *w = mirt__weight_add(layer, name, shape, initializer, fallback, regularizer, constraint);
    *ok = w != NULL;
    return w;
}

/* Those of a description `d` in a build function that has a layer, a shape, and `good`: no error so far. */
#define MIRT__GAMMA_OF(d) \
    mirt__norm_weight(layer, "gamma", &shape, (d)->no_scale, &(d)->gamma_initializer, mirt_ones(), \
                      &(d)->gamma_regularizer, &(d)->gamma_constraint, &good)
#define MIRT__BETA_OF(d) \
    mirt__norm_weight(layer, "beta", &shape, (d)->no_center, &(d)->beta_initializer, mirt_zeros(), \
                      &(d)->beta_regularizer, &(d)->beta_constraint, &good)

static mirt_tensor *mirt__batch_norm_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_batch_norm_desc *d = (mirt_batch_norm_desc *)layer->desc;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_batch_norm);
    mirt__attrs_norm *own = MIRT__OF(&a, norm);
    mirt_tensor *in[5] = {NULL, NULL, NULL, NULL, NULL};
    bool good = true;
    if (x->shape.rank < 2) {
        mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., channels)");
        return NULL;
    }
    const int axis = d->axis ? mirt__layer_axis(x, d->axis) : x->shape.rank - 1;
    if (!axis) return NULL;
    const mirt_shape shape = MIRT_SHAPE(x->shape.dim[axis]);
    in[0] = mirt__axes_last(x, 1u << axis, false);
    if (d->momentum == 0 && !d->has_momentum) d->momentum = 0.99f;
    if (d->epsilon == 0) d->epsilon = 1e-3f;
    own->scaling.gamma = !d->no_scale;
    own->scaling.beta = !d->no_center;
    own->scaling.epsilon = d->epsilon;
    own->momentum = round((double)d->momentum * 1e7) / 1e7; /* 0.99, not the float next to it */
    own->synchronized = d->synchronized;
    mirt_tensor *gamma = MIRT__GAMMA_OF(d);
    mirt_tensor *beta = MIRT__BETA_OF(d);
    mirt__default_initializer(&d->moving_mean_initializer, mirt_zeros());
    mirt__default_initializer(&d->moving_variance_initializer, mirt_ones());
    if (good) in[1] = mirt__variable_add(layer, "moving_mean", &shape, &d->moving_mean_initializer, false);
    if (in[1]) in[2] = mirt__variable_add(layer, "moving_variance", &shape, &d->moving_variance_initializer, false);
    in[3] = gamma ? gamma : beta;
    in[4] = beta;
    return in[2] ? mirt__axes_last(mirt__batch_norm_op(in, &a), 1u << axis, true) : NULL;
}

static bool mirt__norm_epsilon(float epsilon) {
    return (epsilon > 0 && isfinite(epsilon)) ||
           (mirt__fail(MIRT_E_INVALID, "epsilon is %g; it must not be negative", (double)epsilon), false);
}

/* The axes to normalize over, as bits; 0 with the error set: x does not have them. */
static unsigned mirt__layer_norm_axes(mirt_layer_norm_desc *d, const mirt_tensor *x) {
    const int rank = x->shape.rank, rows = mirt__is_batched(&x->shape), most = rank - rows;
    if (d->axis && (d->axes || d->axis < 0 || d->axis >> rank || (rows && (d->axis & 1))))
        return mirt__fail(MIRT_E_SHAPE, "axis is %d and axes %d; one of them must name axes other than the rows, which "
                                        "of %d axes are bits 1 to %d", d->axis, d->axes, rank, rank - 1),
               0;
    if (d->axis) return (unsigned)d->axis;
    if (!d->axes) d->axes = 1;
    if (d->axes > 0 && d->axes <= most) return ((1u << d->axes) - 1) << (rank - d->axes);
    return mirt__fail(MIRT_E_SHAPE, "axes is %d; an input with %d axes besides its rows does not have that many",
                      d->axes, most),
           0;
}

static mirt_shape mirt__shape_of_axes(const mirt_tensor *x, unsigned axes) {
    mirt_shape shape;
    memset(&shape, 0, sizeof shape);
    for (int i = 0; i < x->shape.rank; i++) {
        if (axes >> i & 1) shape.dim[shape.rank++] = x->shape.dim[i];
    }
    return shape;
}

static mirt_tensor *mirt__layer_norm_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_layer_norm_desc *d = (mirt_layer_norm_desc *)layer->desc;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_normalize);
    bool good = true;
    if (d->epsilon == 0) d->epsilon = 1e-3f;
    const unsigned axes = mirt__layer_norm_axes(d, x);
    if (!axes || !mirt__norm_epsilon(d->epsilon)) return NULL;
    const mirt_shape shape = mirt__shape_of_axes(x, axes);
    MIRT__OF(&a, norm)->last_axes = shape.rank;
    MIRT__OF(&a, norm)->scaling.epsilon = d->epsilon;
    mirt_tensor *gamma = MIRT__GAMMA_OF(d);
    mirt_tensor *beta = MIRT__BETA_OF(d);
    if (!good || !(x = mirt__axes_last(x, axes, false))) return NULL;
    return mirt__axes_last(mirt__layer_norm_op(x, gamma, beta, &a), axes, true);
}

/* x / sqrt(mean of its squares + epsilon) * scale */
static mirt_tensor *mirt__rms_norm_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_rms_norm_desc *d = (mirt_rms_norm_desc *)layer->desc;
    mirt_layer_norm_desc like;
    memset(&like, 0, sizeof like);
    like.axis = d->axis;
    if (d->epsilon == 0) d->epsilon = 1e-6f;
    const unsigned axes = mirt__layer_norm_axes(&like, x);
    if (!axes || !mirt__norm_epsilon(d->epsilon)) return NULL;
    const mirt_shape shape = mirt__shape_of_axes(x, axes);
    mirt_tensor *scale = mirt__weight_add(layer, "scale", &shape, &like.gamma_initializer, mirt_ones(),
                                          &like.gamma_regularizer, &like.gamma_constraint);
    if (!scale || !(x = mirt__axes_last(x, axes, false))) return NULL;
    const unsigned last = ((1u << shape.rank) - 1) << (x->shape.rank - shape.rank);
    mirt_tensor *mean = mirt__reduce_op(MIRT__REDUCE_MEAN, mirt__unary_op(MIRT__SQUARE, x, 0, 0), last, true);
    mean = mirt__unary_op(MIRT__RSQRT, mirt__unary_op(MIRT__AFFINE, mean, 1, d->epsilon), 0, 0);
    x = mirt__binary_op(MIRT__MULTIPLY, mirt__binary_op(MIRT__MULTIPLY, x, mean), scale);
    return mirt__axes_last(x, axes, true);
}

/* A constant of `count` ones, which repeats what it is multiplied by. */
static mirt_tensor *mirt__ones(mirt__graph *graph, int64_t count) {
    float *ones = (float *)mirt__calloc((size_t)count, sizeof *ones);
    if (!ones) {
        mirt__fail(MIRT_E_NOMEM, "no memory for %lld numbers", (long long)count);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) ones[i] = 1;
    mirt_tensor *out = mirt__constant_op(graph, mirt_make_array(ones, MIRT_FLOAT32, MIRT_SHAPE(count)));
    mirt__free(ones);
    return out;
}

/* The mean over the pixels, and over the channels of each group, of x (rows, pixels, channels): (rows, 1, channels), so
   that all further work is on rows of channels. `ones`: as many as a group has channels. */
static mirt_tensor *mirt__group_mean(mirt_tensor *x, mirt_tensor *ones) {
    mirt_tensor *mean = x ? mirt__reduce_op(MIRT__REDUCE_MEAN, x, 2u, true) : NULL;
    if (!mean) return NULL;
    const int64_t channels = mirt__last_dim(x), each = ones->shape.dim[0];
    const mirt_shape split = MIRT_SHAPE(MIRT_ROWS, channels / each, each), joined = mean->shape;
    if (each == 1) return mean;
    mean = mirt__reduce_op(MIRT__REDUCE_MEAN, mirt__reshape_op(mean, &split), 4u, true);
    return mirt__reshape_op(mirt__binary_op(MIRT__MULTIPLY, mean, ones), &joined);
}

/* (x - mean) * (gamma / sqrt(variance + epsilon)) + beta */
static mirt_tensor *mirt__group_norm_op(mirt_tensor *x, int64_t groups, float epsilon, mirt_tensor *gamma,
                                        mirt_tensor *beta) {
    const int64_t channels = mirt__last_dim(x);
    mirt_shape whole = x->shape, pixels = MIRT_SHAPE(MIRT_ROWS, 1, channels);
    for (int i = 1; i < whole.rank - 1; i++) pixels.dim[1] *= whole.dim[i];
    mirt_tensor *ones = mirt__ones(x->node->graph, channels / groups);
    if (!ones) return NULL;
    x = mirt__reshape_op(x, &pixels);
    /* Changing the sign of the means, not of gradients, leaves images alone. */
    mirt_tensor *means = mirt__unary_op(MIRT__NEGATIVE, mirt__group_mean(x, ones), 0, 0),
                *deviation = mirt__binary_op(MIRT__ADD, x, means),
                *variance = mirt__group_mean(mirt__unary_op(MIRT__SQUARE, deviation, 0, 0), ones),
                *factor = mirt__unary_op(MIRT__RSQRT, mirt__unary_op(MIRT__AFFINE, variance, 1, epsilon), 0, 0);
    if (gamma) factor = mirt__binary_op(MIRT__MULTIPLY, factor, gamma);
    mirt_tensor *y = mirt__binary_op(MIRT__MULTIPLY, deviation, factor);
    if (beta) y = mirt__binary_op(MIRT__ADD, y, beta);
    return y ? mirt__reshape_op(y, &whole) : NULL;
}

static mirt_tensor *mirt__group_norm_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_group_norm_desc *d = (mirt_group_norm_desc *)layer->desc;
    const int64_t channels = x->shape.rank > 1 ? mirt__last_dim(x) : 0;
    const mirt_shape shape = MIRT_SHAPE(channels);
    bool good = true;
    if (!d->groups) d->groups = 32;
    if (d->epsilon == 0) d->epsilon = 1e-3f;
    if (x->shape.rank < 2 || !mirt__is_batched(&x->shape)) {
        mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., channels)");
        return NULL;
    }
    const int64_t groups = d->groups == -1 ? channels : d->groups;
    if (groups < 1 || channels % groups) {
        mirt__fail(MIRT_E_SHAPE, "%lld channels are not divisible by %d groups", (long long)channels, d->groups);
        return NULL;
    }
    if (!mirt__norm_epsilon(d->epsilon)) return NULL;
    mirt_tensor *gamma = MIRT__GAMMA_OF(d);
    mirt_tensor *beta = MIRT__BETA_OF(d);
    return good ? mirt__group_norm_op(x, groups, d->epsilon, gamma, beta) : NULL;
}

MIRT__LIB mirt_tensor *mirt__unit_length(mirt_tensor *x, int axis, float least) {
    mirt_tensor *squares = mirt__reduce_op(MIRT__REDUCE_SUM, mirt__unary_op(MIRT__SQUARE, x, 0, 0), 1u << axis, true);
    squares = mirt__unary_op(MIRT__CLIP, squares, least, INFINITY);
    return mirt__binary_op(MIRT__MULTIPLY, x, mirt__unary_op(MIRT__RSQRT, squares, 0, 0));
}

/* Keras's epsilon of 1e-12 is the smallest norm. */
static mirt_tensor *mirt__unit_normalization_build(mirt__layer *layer, mirt_tensor *x) {
    const int axis = mirt__layer_axis(x, *(const int *)layer->desc);
    return axis ? mirt__unit_length(x, axis, 1e-24f) : NULL;
}

#define MIRT__NORM_FIELDS(desc) \
    MIRT__OWN_FIELD(desc, FLOAT, epsilon), MIRT__FIELD(desc, "center", NO, no_center), \
        MIRT__FIELD(desc, "scale", NO, no_scale), MIRT__OWN_FIELD(desc, INITIALIZER, beta_initializer), \
        MIRT__OWN_FIELD(desc, INITIALIZER, gamma_initializer)
#define MIRT__NORM_REGULARIZERS(desc) \
    MIRT__OWN_FIELD(desc, REGULARIZER, beta_regularizer), MIRT__OWN_FIELD(desc, REGULARIZER, gamma_regularizer), \
        MIRT__OPTIONAL_FIELD(desc, CONSTRAINT, beta_constraint), \
        MIRT__OPTIONAL_FIELD(desc, CONSTRAINT, gamma_constraint)
static const mirt__field mirt__batch_norm_fields[] = {
    MIRT__OWN_FIELD(mirt_batch_norm_desc, FLOAT, momentum), MIRT__NORM_FIELDS(mirt_batch_norm_desc),
    MIRT__OWN_FIELD(mirt_batch_norm_desc, INITIALIZER, moving_mean_initializer),
    MIRT__OWN_FIELD(mirt_batch_norm_desc, INITIALIZER, moving_variance_initializer),
    MIRT__NORM_REGULARIZERS(mirt_batch_norm_desc), MIRT__OWN_FIELD(mirt_batch_norm_desc, BOOL, synchronized),
    MIRT__OPTIONAL_FIELD(mirt_batch_norm_desc, BOOL, has_momentum),
    MIRT__OPTIONAL_FIELD(mirt_batch_norm_desc, SIGNED, axis)};
static const mirt__field mirt__layer_norm_fields[] = {MIRT__OWN_FIELD(mirt_layer_norm_desc, INT, axes),
                                                      MIRT__NORM_FIELDS(mirt_layer_norm_desc),
                                                      MIRT__NORM_REGULARIZERS(mirt_layer_norm_desc),
                                                      MIRT__OPTIONAL_FIELD(mirt_layer_norm_desc, INT, axis)};
static const mirt__field mirt__rms_norm_fields[] = {MIRT__OPTIONAL_FIELD(mirt_rms_norm_desc, INT, axis),
                                                    MIRT__OWN_FIELD(mirt_rms_norm_desc, FLOAT, epsilon)};
static const mirt__field mirt__group_norm_fields[] = {MIRT__OWN_FIELD(mirt_group_norm_desc, SIGNED, groups),
                                                      MIRT__NORM_FIELDS(mirt_group_norm_desc),
                                                      MIRT__NORM_REGULARIZERS(mirt_group_norm_desc)};
static const mirt__field mirt__unit_normalization_fields[] = {MIRT__ONLY_FIELD("axis", SIGNED)};
#undef MIRT__GAMMA_OF
#undef MIRT__BETA_OF
#undef MIRT__NORM_FIELDS
#undef MIRT__NORM_REGULARIZERS

MIRT__LAYER(batch_norm, "BatchNormalization", "batch_normalization", 1, 1, mirt__batch_norm_fields,
            mirt_batch_norm_desc);
MIRT__LAYER(layer_norm, "LayerNormalization", "layer_normalization", 1, 1, mirt__layer_norm_fields,
            mirt_layer_norm_desc);
MIRT__LAYER(rms_norm, "RMSNormalization", "rms_normalization", 1, 1, mirt__rms_norm_fields, mirt_rms_norm_desc);
MIRT__LAYER(group_norm, "GroupNormalization", "group_normalization", 1, 1, mirt__group_norm_fields,
            mirt_group_norm_desc);
MIRT__LAYER(unit_normalization, "UnitNormalization", "unit_normalization", 1, 1, mirt__unit_normalization_fields, int);

MIRT__LAYER_FUNCTION(mirt_batch_norm, batch_norm, mirt_batch_norm_desc, mirt__layer_on)
MIRT__LAYER_FUNCTION(mirt_layer_norm, layer_norm, mirt_layer_norm_desc, mirt__layer_on)
MIRT__LAYER_FUNCTION(mirt_rms_norm, rms_norm, mirt_rms_norm_desc, mirt__layer_on)
MIRT__LAYER_FUNCTION(mirt_group_norm, group_norm, mirt_group_norm_desc, mirt__layer_on)
MIRT_API mirt_tensor *mirt_unit_normalization(mirt_tensor *x, int axis) {
    return mirt__layer_on(&mirt__unit_normalization_layer, x, &axis, NULL);
}
