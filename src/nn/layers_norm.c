#include "layers.h"
/* Batch and layer normalization. */

/* gamma or beta, or NULL if the layer has none; *ok: no error. */
static mirt_tensor *mirt__norm_weight(mirt__layer *layer, const char *name, const mirt_shape *shape, bool none,
                                      mirt_initializer *initializer, mirt_initializer fallback,
                                      const mirt_regularizer *regularizer, bool *ok) {
    mirt__default_initializer(initializer, fallback);
    if (none || !*ok) return NULL;
    mirt_tensor *w = mirt__weight_add(layer, name, shape, initializer, fallback, regularizer);
    *ok = w != NULL;
    return w;
}

static mirt_tensor *mirt__batch_norm_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_batch_norm_desc *d = (mirt_batch_norm_desc *)layer->desc;
    mirt_shape shape = MIRT_SHAPE(mirt__last_dim(x));
    mirt__attrs a = mirt__attrs_of(MIRT__OP_batch_norm);
    mirt__attrs_norm *own = MIRT__OF(&a, norm);
    mirt_tensor *in[5] = {x, NULL, NULL, NULL, NULL};
    bool good = true;
    if (x->shape.rank < 2) {
        mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., channels)");
        return NULL;
    }
    if (d->momentum == 0) d->momentum = 0.99f;
    if (d->epsilon == 0) d->epsilon = 1e-3f;
    own->scaling.gamma = !d->no_scale;
    own->scaling.beta = !d->no_center;
    own->scaling.epsilon = d->epsilon;
    own->momentum = round((double)d->momentum * 1e7) / 1e7; /* 0.99, not the float next to it */
    own->synchronized = d->synchronized;
    mirt_tensor *gamma = mirt__norm_weight(layer, "gamma", &shape, d->no_scale, &d->gamma_initializer, mirt_ones(),
                                           &d->gamma_regularizer, &good);
    mirt_tensor *beta = mirt__norm_weight(layer, "beta", &shape, d->no_center, &d->beta_initializer, mirt_zeros(),
                                          &d->beta_regularizer, &good);
    mirt__default_initializer(&d->moving_mean_initializer, mirt_zeros());
    mirt__default_initializer(&d->moving_variance_initializer, mirt_ones());
    if (good) in[1] = mirt__variable_add(layer, "moving_mean", &shape, &d->moving_mean_initializer, false);
    if (in[1]) in[2] = mirt__variable_add(layer, "moving_variance", &shape, &d->moving_variance_initializer, false);
    in[3] = gamma ? gamma : beta;
    in[4] = beta;
    return in[2] ? mirt__batch_norm_op(in, &a) : NULL;
}

static mirt_tensor *mirt__layer_norm_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_layer_norm_desc *d = (mirt_layer_norm_desc *)layer->desc;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_normalize);
    mirt_shape shape;
    bool good = true;
    memset(&shape, 0, sizeof shape);
    if (!d->axes) d->axes = 1;
    if (d->epsilon == 0) d->epsilon = 1e-3f;
    if (d->axes < 0 || d->axes > x->shape.rank - mirt__is_batched(&x->shape)) {
        mirt__fail(MIRT_E_SHAPE, "axes is %d; an input with %d axes besides its rows does not have that many",
                   d->axes, x->shape.rank - mirt__is_batched(&x->shape));
        return NULL;
    }
    if (!(d->epsilon > 0 && isfinite(d->epsilon))) {
        mirt__fail(MIRT_E_INVALID, "epsilon is %g; it must not be negative", (double)d->epsilon);
        return NULL;
    }
    MIRT__OF(&a, norm)->last_axes = shape.rank = d->axes;
    MIRT__OF(&a, norm)->scaling.epsilon = d->epsilon;
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = x->shape.dim[x->shape.rank - shape.rank + i];
    mirt_tensor *gamma = mirt__norm_weight(layer, "gamma", &shape, d->no_scale, &d->gamma_initializer, mirt_ones(),
                                           &d->gamma_regularizer, &good);
    mirt_tensor *beta = mirt__norm_weight(layer, "beta", &shape, d->no_center, &d->beta_initializer, mirt_zeros(),
                                          &d->beta_regularizer, &good);
    return good ? mirt__layer_norm_op(x, gamma, beta, &a) : NULL;
}

#define MIRT__NORM_FIELDS(desc) \
    MIRT__OWN_FIELD(desc, FLOAT, epsilon), MIRT__FIELD(desc, "center", NO, no_center), \
        MIRT__FIELD(desc, "scale", NO, no_scale), MIRT__OWN_FIELD(desc, INITIALIZER, beta_initializer), \
        MIRT__OWN_FIELD(desc, INITIALIZER, gamma_initializer)
#define MIRT__NORM_REGULARIZERS(desc) \
    MIRT__OWN_FIELD(desc, REGULARIZER, beta_regularizer), MIRT__OWN_FIELD(desc, REGULARIZER, gamma_regularizer)
static const mirt__field mirt__batch_norm_fields[] = {
    MIRT__OWN_FIELD(mirt_batch_norm_desc, FLOAT, momentum), MIRT__NORM_FIELDS(mirt_batch_norm_desc),
    MIRT__OWN_FIELD(mirt_batch_norm_desc, INITIALIZER, moving_mean_initializer),
    MIRT__OWN_FIELD(mirt_batch_norm_desc, INITIALIZER, moving_variance_initializer),
    MIRT__NORM_REGULARIZERS(mirt_batch_norm_desc), MIRT__OWN_FIELD(mirt_batch_norm_desc, BOOL, synchronized)};
static const mirt__field mirt__layer_norm_fields[] = {MIRT__OWN_FIELD(mirt_layer_norm_desc, INT, axes),
                                                      MIRT__NORM_FIELDS(mirt_layer_norm_desc),
                                                      MIRT__NORM_REGULARIZERS(mirt_layer_norm_desc)};
#undef MIRT__NORM_FIELDS
#undef MIRT__NORM_REGULARIZERS

MIRT__LAYER(batch_norm, "BatchNormalization", "batch_normalization", 1, 1, mirt__batch_norm_fields,
            mirt_batch_norm_desc);
MIRT__LAYER(layer_norm, "LayerNormalization", "layer_normalization", 1, 1, mirt__layer_norm_fields,
            mirt_layer_norm_desc);

MIRT__LAYER_FUNCTION(mirt_batch_norm, batch_norm, mirt_batch_norm_desc, mirt__layer_on)
MIRT__LAYER_FUNCTION(mirt_layer_norm, layer_norm, mirt_layer_norm_desc, mirt__layer_on)
