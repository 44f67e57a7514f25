#include "layers.h"
/* Input, dense, and what works on any shape. */

typedef struct mirt__input_desc { mirt_shape shape; } mirt__input_desc;
typedef struct mirt__rescaling_desc { float scale, offset; } mirt__rescaling_desc;
typedef struct mirt__dropout_desc { float rate; } mirt__dropout_desc;
typedef struct mirt__activation_desc { mirt_activation_kind activation; } mirt__activation_desc;

static mirt_tensor *mirt__input_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_model *model = layer->model;
    mirt_shape shape = ((mirt__input_desc *)desc)->shape;
    if (shape.rank < 1 || shape.rank >= MIRT_MAX_RANK) {
        return mirt__fail(MIRT_E_SHAPE, "an input needs 1 to %d dimensions, each positive", MIRT_MAX_RANK - 1), (mirt_tensor *)NULL;
    }
    for (int i = shape.rank; i > 0; i--) {
        if (shape.dim[i - 1] < 1) return mirt__fail(MIRT_E_SHAPE, "an input dimension is %lld; it must be positive", (long long)shape.dim[i - 1]), (mirt_tensor *)NULL;
        shape.dim[i] = shape.dim[i - 1];
    }
    shape.dim[0] = MIRT_ROWS;
    shape.rank++;
    if (model->num_inputs == MIRT_MAX_INPUTS) return mirt__fail(MIRT_E_STATE, "a model has at most %d inputs", MIRT_MAX_INPUTS), (mirt_tensor *)NULL;
    x = mirt__input_op(&model->graph, model->num_inputs, MIRT_FLOAT32, &shape);
    if (x) model->input[model->num_inputs++] = x;
    return x;
}

static mirt_tensor *mirt__rescaling_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt__rescaling_desc *d = (const mirt__rescaling_desc *)desc;
    (void)layer;
    if (!isfinite(d->scale) || !isfinite(d->offset)) {
        return mirt__fail(MIRT_E_INVALID, "scale %g and offset %g must be finite", (double)d->scale, (double)d->offset), (mirt_tensor *)NULL;
    }
    return mirt__unary_op(MIRT__AFFINE, x, d->scale, d->offset);
}

static mirt_tensor *mirt__dense_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_dense_desc *d = (mirt_dense_desc *)desc;
    if (d->units < 1) return mirt__fail(MIRT_E_INVALID, "units is %d; it must be positive", d->units), (mirt_tensor *)NULL;
    if (x->shape.rank < 2) return mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., features)"), (mirt_tensor *)NULL;
    int64_t in = mirt__last_dim(x);
    mirt_shape shape = mirt_make_shape(in, d->units, 0, 0, 0, 0);
    mirt_tensor *kernel = mirt__weight_add(layer, "kernel", &shape, &d->kernel_initializer, mirt_glorot_uniform(), &d->kernel_regularizer);
    return mirt__bias_and_activation(layer, mirt__matmul_op(x, kernel, false, false), d->no_bias, &d->bias_initializer, &d->bias_regularizer, d->activation);
}

static mirt_tensor *mirt__flatten_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_shape shape = mirt_make_shape(1, mirt__shape_count(&x->shape), 0, 0, 0, 0);
    (void)layer;
    (void)desc;
    if (!mirt__is_batched(&x->shape)) return mirt__fail(MIRT_E_SHAPE, "takes a batch"), (mirt_tensor *)NULL;
    shape.dim[0] = MIRT_ROWS;
    return mirt__reshape_op(x, &shape);
}

static mirt_tensor *mirt__dropout_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    return mirt__dropout_op(x, ((const mirt__dropout_desc *)desc)->rate, mirt__hash(layer->name));
}

static mirt_tensor *mirt__activation_build(mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)layer;
    return mirt__activation_op(((const mirt__activation_desc *)desc)->activation, x);
}

static const mirt__field mirt__input_fields[] = {{"shape", MIRT__FIELD_SHAPE, offsetof(mirt__input_desc, shape)}};
static const mirt__field mirt__rescaling_fields[] = {{"scale", MIRT__FIELD_FLOAT, offsetof(mirt__rescaling_desc, scale)},
                                                     {"offset", MIRT__FIELD_FLOAT, offsetof(mirt__rescaling_desc, offset)}};
static const mirt__field mirt__dense_fields[] = {{"units", MIRT__FIELD_INT, offsetof(mirt_dense_desc, units)},
                                                 {"activation", MIRT__FIELD_ACTIVATION, offsetof(mirt_dense_desc, activation)},
                                                 {"use_bias", MIRT__FIELD_NO, offsetof(mirt_dense_desc, no_bias)},
                                                 {"kernel_initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt_dense_desc, kernel_initializer)},
                                                 {"bias_initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt_dense_desc, bias_initializer)},
                                                  {"kernel_regularizer", MIRT__FIELD_REGULARIZER, offsetof(mirt_dense_desc, kernel_regularizer)},
                                                  {"bias_regularizer", MIRT__FIELD_REGULARIZER, offsetof(mirt_dense_desc, bias_regularizer)}};
static const mirt__field mirt__dropout_fields[] = {{"rate", MIRT__FIELD_FLOAT, offsetof(mirt__dropout_desc, rate)}};
static const mirt__field mirt__activation_fields[] = {{"activation", MIRT__FIELD_ACTIVATION, offsetof(mirt__activation_desc, activation)}};

MIRT__LAYER(input, "InputLayer", "input_layer", 0, 0, mirt__input_fields, mirt__input_desc);
MIRT__LAYER(rescaling, "Rescaling", "rescaling", 1, 1, mirt__rescaling_fields, mirt__rescaling_desc);
MIRT__LAYER(dense, "Dense", "dense", 1, 1, mirt__dense_fields, mirt_dense_desc);
MIRT__PLAIN_LAYER(flatten, "Flatten", "flatten", 1, 1);
MIRT__LAYER(dropout, "Dropout", "dropout", 1, 1, mirt__dropout_fields, mirt__dropout_desc);
MIRT__LAYER(activation, "Activation", "activation", 1, 1, mirt__activation_fields, mirt__activation_desc);

MIRT_API mirt_tensor *mirt_input(mirt_model *model, mirt_shape shape) {
    mirt__input_desc d;
    memset(&d, 0, sizeof d);
    d.shape = shape;
    return model ? mirt__layer_add(model, &mirt__input_layer, NULL, 0, &d, NULL) : NULL;
}

MIRT_API mirt_tensor *mirt_rescale(mirt_tensor *x, float scale, float offset) {
    mirt__rescaling_desc d;
    d.scale = scale;
    d.offset = offset;
    return mirt__layer_on(&mirt__rescaling_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_dense(mirt_tensor *x, const mirt_dense_desc *desc) {
    return mirt__layer_needs_desc(&mirt__dense_layer, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_flatten(mirt_tensor *x) { return mirt__layer_on(&mirt__flatten_layer, x, NULL, NULL); }

MIRT_API mirt_tensor *mirt_dropout(mirt_tensor *x, float rate) {
    mirt__dropout_desc d;
    d.rate = rate;
    return mirt__layer_on(&mirt__dropout_layer, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_activation(mirt_tensor *x, mirt_activation_kind kind) {
    mirt__activation_desc d;
    d.activation = kind;
    return mirt__layer_on(&mirt__activation_layer, x, &d, NULL);
}
