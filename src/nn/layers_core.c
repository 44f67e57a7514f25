#include "layers.h"
/* Input, dense, and layers for any shape. */

typedef struct mirt__rescaling_desc { float scale, offset; } mirt__rescaling_desc;

static mirt_tensor *mirt__input_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_model *model = layer->model;
    mirt_shape shape = *(const mirt_shape *)layer->desc;
    if (shape.rank < 1 || shape.rank >= MIRT_MAX_RANK) {
        mirt__fail(MIRT_E_SHAPE, "an input needs the shape of one sample: 1 to %d dimensions, each positive",
                   MIRT_MAX_RANK - 1);
        return NULL;
    }
    for (int i = shape.rank; i > 0; i--) {
        if (shape.dim[i - 1] < 1) {
            mirt__fail(MIRT_E_SHAPE,
                       "dimension %d of the input is %lld; give the shape of one sample, without rows, with "
                       "positive dimensions",
                       i, (long long)shape.dim[i - 1]);
            return NULL;
        }
        shape.dim[i] = shape.dim[i - 1];
    }
    shape.dim[0] = MIRT_ROWS;
    shape.rank++;
    if (model->num_inputs == MIRT_MAX_INPUTS) {
        mirt__fail(MIRT_E_STATE, "a model has at most %d inputs", MIRT_MAX_INPUTS);
        return NULL;
    }
    x = mirt__input_op(&model->graph, model->num_inputs, MIRT_FLOAT32, &shape);
    if (x) model->input[model->num_inputs++] = x;
    return x;
}

static mirt_tensor *mirt__rescaling_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt__rescaling_desc *d = (const mirt__rescaling_desc *)layer->desc;
    if (!isfinite(d->scale) || !isfinite(d->offset)) {
        mirt__fail(MIRT_E_INVALID, "scale %g and offset %g must be finite", (double)d->scale, (double)d->offset);
        return NULL;
    }
    return mirt__unary_op(MIRT__AFFINE, x, d->scale, d->offset);
}

static mirt_tensor *mirt__dense_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_dense_desc *d = (mirt_dense_desc *)layer->desc;
    if (d->units < 1) {
        mirt__fail(MIRT_E_INVALID, "units is %d; it must be positive", d->units);
        return NULL;
    }
    if (x->shape.rank < 2) {
        mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., features)");
        return NULL;
    }
    int64_t in = mirt__last_dim(x);
    mirt_shape shape = MIRT_SHAPE(in, d->units);
    mirt_tensor *kernel = mirt__weight_add(layer, "kernel", &shape, &d->kernel_initializer, mirt_glorot_uniform(),
                                           &d->kernel_regularizer, &d->kernel_constraint);
    const mirt__outcome outcome = MIRT__OUTCOME_OF(d);
    return mirt__bias_and_activation(layer, mirt__matmul_op(x, kernel, false, false), &outcome);
}

static mirt_tensor *mirt__flatten_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_shape shape = MIRT_SHAPE(1, mirt__shape_count(&x->shape));
    (void)layer;
    if (!mirt__is_batched(&x->shape)) {
        mirt__fail(MIRT_E_SHAPE, "takes a batch");
        return NULL;
    }
    shape.dim[0] = MIRT_ROWS;
    return mirt__reshape_op(x, &shape);
}

static mirt_tensor *mirt__dropped(mirt__layer *layer, mirt_tensor *x, mirt__dropout_kind kind, float rate,
                                  const mirt_shape *noise) {
    return mirt__random_op(MIRT__OP_dropout, x, kind, rate, mirt__hash(layer->name), noise);
}

/* With the description's noise shape, of one sample. */
static mirt_tensor *mirt__dropped_by(mirt__layer *layer, mirt_tensor *x, mirt__dropout_kind kind) {
    const mirt_dropout_desc *d = (const mirt_dropout_desc *)layer->desc;
    mirt_shape noise = d->noise_shape;
    if (!noise.rank) return mirt__dropped(layer, x, kind, d->rate, NULL);
    if (noise.rank < 0 || noise.rank >= MIRT_MAX_RANK) {
        mirt__fail(MIRT_E_SHAPE, "noise_shape has %d axes; it must have those of one sample", noise.rank);
        return NULL;
    }
    for (int i = noise.rank; i > 0; i--) noise.dim[i] = noise.dim[i - 1];
    noise.dim[0] = MIRT_ROWS;
    noise.rank++;
    return mirt__dropped(layer, x, kind, d->rate, &noise);
}

static mirt_tensor *mirt__dropout_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__dropped_by(layer, x, MIRT__DROPOUT_ZEROS);
}

static mirt_tensor *mirt__alpha_dropout_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__dropped_by(layer, x, MIRT__DROPOUT_ALPHA);
}

static mirt_tensor *mirt__gaussian_dropout_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__dropped(layer, x, MIRT__DROPOUT_GAUSSIAN, *(const float *)layer->desc, NULL);
}

/* One draw for each channel of an image. */
static mirt_tensor *mirt__spatial_dropout2d_build(mirt__layer *layer, mirt_tensor *x) {
    if (!mirt__layer_takes_images(x)) return NULL;
    const mirt_shape noise = MIRT_SHAPE(MIRT_ROWS, 1, 1, x->shape.dim[3]);
    return mirt__dropped(layer, x, MIRT__DROPOUT_ZEROS, *(const float *)layer->desc, &noise);
}

static mirt_tensor *mirt__gaussian_noise_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__random_op(MIRT__OP_gaussian_noise, x, MIRT__DROPOUT_ZEROS, *(const float *)layer->desc,
                           mirt__hash(layer->name), NULL);
}

static mirt_tensor *mirt__activity_regularization_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__regularize_activity(layer, mirt__unary_op(MIRT__COPY, x, 0, 0),
                                     (const mirt_regularizer *)layer->desc);
}

/* A product with a small matrix: the order of the channels and their scales. */
static mirt_tensor *mirt__normalization_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_normalization_desc *d = (mirt_normalization_desc *)layer->desc;
    const int64_t n = mirt__last_dim(x);
    float matrix[MIRT_MAX_CHANNELS * MIRT_MAX_CHANNELS], offset[MIRT_MAX_CHANNELS];
    memset(matrix, 0, sizeof matrix);
    if (x->shape.rank < 2 || n > MIRT_MAX_CHANNELS) {
        mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., channels) of at most %d channels", MIRT_MAX_CHANNELS);
        return NULL;
    }
    for (int64_t i = 0; i < MIRT_MAX_CHANNELS; i++) {
        if (d->variance[i] == 0) d->variance[i] = 1;
        if (!isfinite(d->mean[i]) || !isfinite(d->variance[i]) || !(d->variance[i] > 0)) {
            mirt__fail(MIRT_E_INVALID,
                       "channel %d has mean %g and variance %g; they must be finite, and a variance positive",
                       (int)i, (double)d->mean[i], (double)d->variance[i]);
            return NULL;
        }
        const double deviation = fmax(sqrt((double)d->variance[i]), 1e-7);
        if (i < n) matrix[(d->reverse ? n - 1 - i : i) * n + i] = (float)(1 / deviation);
        offset[i] = (float)(-(double)d->mean[i] / deviation);
    }
    mirt__graph *graph = &layer->model->graph;
    x = mirt__matmul_op(
        x, mirt__constant_op(graph, mirt_make_array(matrix, MIRT_FLOAT32, MIRT_SHAPE(n, n))), false,
        false);
    return mirt__bias_add_op(
        x, mirt__constant_op(graph, mirt_make_array(offset, MIRT_FLOAT32, MIRT_SHAPE(n))));
}

/* At most one dimension of the target is -1, which is computed from the others. */
static mirt_tensor *mirt__reshape_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_shape *shape = (mirt_shape *)layer->desc;
    int64_t count = mirt__shape_count(&x->shape), known = 1;
    int open = -1;
    char text[96];
    if (shape->rank < 1 || shape->rank >= MIRT_MAX_RANK) {
        mirt__fail(MIRT_E_SHAPE, "the target has %d axes; it must be 1 to %d", shape->rank, MIRT_MAX_RANK - 1);
        return NULL;
    }
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == -1 && open < 0) open = i;
        else if (shape->dim[i] > 0 && shape->dim[i] <= count / known) known *= shape->dim[i];
        else {
            mirt__fail(MIRT_E_SHAPE,
                       "the target's dimension %lld does not fit %s: the target must have %lld elements in all, "
                       "and one dimension may be -1",
                       (long long)shape->dim[i], mirt__shape_text(&x->shape, text), (long long)count);
            return NULL;
        }
    }
    if (open >= 0) shape->dim[open] = count / known;
    return mirt_reshape(x, *shape);
}

/* Keras counts axes from 1, without the rows. */
static mirt_tensor *mirt__permute_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt_shape *dims = (const mirt_shape *)layer->desc;
    int permutation[MIRT_MAX_RANK] = {0};
    if (!mirt__is_batched(&x->shape) || dims->rank != x->shape.rank - 1) {
        mirt__fail(MIRT_E_SHAPE,
                   "%d dims; the input must be a batch, and dims must name every axis but the rows once",
                   dims->rank);
        return NULL;
    }
    for (int i = 0; i < dims->rank; i++)
        permutation[i + 1] = dims->dim[i] > 0 && dims->dim[i] <= dims->rank ? (int)dims->dim[i] : -1;
    return mirt_transpose(x, permutation);
}

static const mirt__field mirt__input_fields[] = {MIRT__ONLY_FIELD("shape", SHAPE)};
static const mirt__field mirt__rescaling_fields[] = {MIRT__OWN_FIELD(mirt__rescaling_desc, FLOAT, scale),
                                                     MIRT__OWN_FIELD(mirt__rescaling_desc, FLOAT, offset)};
static const mirt__field mirt__dense_fields[] = {MIRT__OWN_FIELD(mirt_dense_desc, INT, units),
                                                 MIRT__KERNEL_FIELDS(mirt_dense_desc)};
static const mirt__field mirt__dropout_fields[] = {MIRT__OWN_FIELD(mirt_dropout_desc, FLOAT, rate),
                                                   MIRT__OWN_FIELD(mirt_dropout_desc, NOISE, noise_shape)};
static const mirt__field mirt__rate_fields[] = {MIRT__ONLY_FIELD("rate", FLOAT)};
static const mirt__field mirt__gaussian_noise_fields[] = {MIRT__ONLY_FIELD("stddev", FLOAT)};
static const mirt__field mirt__activity_regularization_fields[] = {MIRT__OWN_FIELD(mirt_regularizer, FLOAT, l1),
                                                                   MIRT__OWN_FIELD(mirt_regularizer, FLOAT, l2)};
static const mirt__field mirt__normalization_fields[] = {
    MIRT__OWN_FIELD(mirt_normalization_desc, CHANNELS, mean),
    MIRT__OWN_FIELD(mirt_normalization_desc, CHANNELS, variance),
    MIRT__OWN_FIELD(mirt_normalization_desc, BOOL, reverse)};
static const mirt__field mirt__permute_fields[] = {MIRT__ONLY_FIELD("dims", SHAPE)};
static const mirt__field mirt__reshape_fields[] = {MIRT__ONLY_FIELD("target_shape", SHAPE)};

MIRT__LAYER(input, "InputLayer", "input_layer", 0, 0, mirt__input_fields, mirt_shape);
MIRT__LAYER(rescaling, "Rescaling", "rescaling", 1, 1, mirt__rescaling_fields, mirt__rescaling_desc);
MIRT__LAYER(dense, "Dense", "dense", 1, 1, mirt__dense_fields, mirt_dense_desc);
MIRT__PLAIN_LAYER(flatten, "Flatten", "flatten", 1, 1);
MIRT__LAYER(dropout, "Dropout", "dropout", 1, 1, mirt__dropout_fields, mirt_dropout_desc);
MIRT__LAYER(alpha_dropout, "AlphaDropout", "alpha_dropout", 1, 1, mirt__dropout_fields, mirt_dropout_desc);
MIRT__LAYER(gaussian_dropout, "GaussianDropout", "gaussian_dropout", 1, 1, mirt__rate_fields, float);
MIRT__LAYER(spatial_dropout2d, "SpatialDropout2D", "spatial_dropout2d", 1, 1, mirt__rate_fields, float);
MIRT__LAYER(gaussian_noise, "GaussianNoise", "gaussian_noise", 1, 1, mirt__gaussian_noise_fields, float);
MIRT__LAYER(activity_regularization, "ActivityRegularization", "activity_regularization", 1, 1,
            mirt__activity_regularization_fields, mirt_regularizer);
MIRT__LAYER(normalization, "Normalization", "normalization", 1, 1, mirt__normalization_fields, mirt_normalization_desc);
MIRT__LAYER(permute, "Permute", "permute", 1, 1, mirt__permute_fields, mirt_shape);
MIRT__LAYER(reshape, "Reshape", "reshape", 1, 1, mirt__reshape_fields, mirt_shape);

MIRT_API mirt_tensor *mirt_input(mirt_model *model, mirt_shape shape) {
    return model ? mirt__layer_add(model, &mirt__input_layer, NULL, 0, &shape, NULL) : NULL;
}

MIRT_API mirt_tensor *mirt_rescale(mirt_tensor *x, float scale, float offset) {
    const mirt__rescaling_desc d = {scale, offset};
    return mirt__layer_on(&mirt__rescaling_layer, x, &d, NULL);
}

MIRT__LAYER_FUNCTION(mirt_dense, dense, mirt_dense_desc, mirt__layer_needs_desc)
MIRT_API mirt_tensor *mirt_flatten(mirt_tensor *x) { return mirt__layer_on(&mirt__flatten_layer, x, NULL, NULL); }

MIRT_API mirt_tensor *mirt_dropout(mirt_tensor *x, float rate) {
    mirt_dropout_desc d;
    memset(&d, 0, sizeof d);
    d.rate = rate;
    return mirt_dropout_layer(x, &d);
}

MIRT__LAYER_FUNCTION(mirt_dropout_layer, dropout, mirt_dropout_desc, mirt__layer_needs_desc)
MIRT__LAYER_FUNCTION(mirt_alpha_dropout, alpha_dropout, mirt_dropout_desc, mirt__layer_needs_desc)
MIRT_API mirt_tensor *mirt_gaussian_dropout(mirt_tensor *x, float rate) {
    return mirt__layer_on(&mirt__gaussian_dropout_layer, x, &rate, NULL);
}

MIRT_API mirt_tensor *mirt_spatial_dropout2d(mirt_tensor *x, float rate) {
    return mirt__layer_on(&mirt__spatial_dropout2d_layer, x, &rate, NULL);
}

MIRT_API mirt_tensor *mirt_gaussian_noise(mirt_tensor *x, float stddev) {
    return mirt__layer_on(&mirt__gaussian_noise_layer, x, &stddev, NULL);
}

MIRT_API mirt_tensor *mirt_activity_regularization(mirt_tensor *x, float l1, float l2) {
    const mirt_regularizer r = {l1, l2};
    return mirt__layer_on(&mirt__activity_regularization_layer, x, &r, NULL);
}

MIRT__LAYER_FUNCTION(mirt_normalization, normalization, mirt_normalization_desc, mirt__layer_needs_desc)
MIRT_API mirt_tensor *mirt_reshape_layer(mirt_tensor *x, mirt_shape shape) {
    return mirt__layer_on(&mirt__reshape_layer, x, &shape, NULL);
}

MIRT_API mirt_tensor *mirt_permute(mirt_tensor *x, mirt_shape dims) {
    return mirt__layer_on(&mirt__permute_layer, x, &dims, NULL);
}
