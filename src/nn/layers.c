#include "model.h"
#include "../ops/ops.h"
/* One layer: a description, its fields for files, a build function, a row in the table at the end. */

typedef struct mirt__input_desc { mirt_shape shape; } mirt__input_desc;
typedef struct mirt__rescaling_desc { float scale, offset; } mirt__rescaling_desc;
typedef struct mirt__dropout_desc { float rate; } mirt__dropout_desc;
typedef struct mirt__activation_desc { mirt_activation_kind activation; } mirt__activation_desc;

static void mirt__default_initializer(mirt_initializer *i, mirt_initializer fallback) {
    if (i->kind == MIRT_INIT_DEFAULT) *i = fallback;
}

/* {0, 0} is `fallback` twice and {k, 0} is {k, k}. */
static void mirt__default_pair(int pair[2], int fallback) {
    if (!pair[0]) pair[0] = fallback;
    if (!pair[1]) pair[1] = pair[0];
}

static mirt_tensor *mirt__bias_and_activation(mirt_model *model, mirt__layer *layer, mirt_tensor *x, bool no_bias,
                                              const mirt_initializer *initializer, double fan_in, mirt_activation_kind activation) {
    if (x && !no_bias) {
        mirt_shape shape = mirt_make_shape(mirt__last_dim(x), 0, 0, 0, 0, 0);
        x = mirt__bias_add_op(x, mirt__variable_add(model, layer, "bias", &shape, initializer, fan_in, (double)shape.dim[0], true));
    }
    return mirt__activation_op(activation, x);
}

static mirt_tensor *mirt__input_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_shape shape = ((mirt__input_desc *)desc)->shape;
    (void)layer;
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

static mirt_tensor *mirt__rescaling_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    const mirt__rescaling_desc *d = (const mirt__rescaling_desc *)desc;
    (void)model;
    (void)layer;
    if (!isfinite(d->scale) || !isfinite(d->offset)) {
        return mirt__fail(MIRT_E_INVALID, "scale %g and offset %g must be finite", (double)d->scale, (double)d->offset), (mirt_tensor *)NULL;
    }
    return mirt__unary_op(MIRT__AFFINE, x, d->scale, d->offset);
}

static mirt_tensor *mirt__dense_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_dense_desc *d = (mirt_dense_desc *)desc;
    if (d->units < 1) return mirt__fail(MIRT_E_INVALID, "units is %d; it must be positive", d->units), (mirt_tensor *)NULL;
    if (x->shape.rank < 2) return mirt__fail(MIRT_E_SHAPE, "takes (rows, ..., features)"), (mirt_tensor *)NULL;
    mirt__default_initializer(&d->kernel_initializer, mirt_glorot_uniform());
    mirt__default_initializer(&d->bias_initializer, mirt_zeros());
    int64_t in = mirt__last_dim(x);
    mirt_shape shape = mirt_make_shape(in, d->units, 0, 0, 0, 0);
    mirt_tensor *kernel = mirt__variable_add(model, layer, "kernel", &shape, &d->kernel_initializer, (double)in, d->units, true);
    return mirt__bias_and_activation(model, layer, mirt__matmul_op(x, kernel, false, false), d->no_bias, &d->bias_initializer, d->units, d->activation);
}

static mirt_tensor *mirt__conv2d_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_conv2d_desc *d = (mirt_conv2d_desc *)desc;
    mirt__default_pair(d->kernel, 0);
    mirt__default_pair(d->strides, 1);
    mirt__default_pair(d->dilation, 1);
    if (!d->groups) d->groups = 1;
    mirt__default_initializer(&d->kernel_initializer, mirt_glorot_uniform());
    mirt__default_initializer(&d->bias_initializer, mirt_zeros());
    if (d->filters < 1) return mirt__fail(MIRT_E_INVALID, "filters is %d; it must be positive", d->filters), (mirt_tensor *)NULL;
    if (d->kernel[0] < 1 || d->kernel[1] < 1) return mirt__fail(MIRT_E_INVALID, "kernel is %dx%d; it must be positive", d->kernel[0], d->kernel[1]), (mirt_tensor *)NULL;
    if (x->shape.rank != 4) return mirt__fail(MIRT_E_SHAPE, "takes (rows, height, width, channels)"), (mirt_tensor *)NULL;
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
    double area = (double)d->kernel[0] * d->kernel[1];
    mirt_tensor *kernel = mirt__variable_add(model, layer, "kernel", &shape, &d->kernel_initializer, area * (double)shape.dim[2], area * d->filters, true);
    return mirt__bias_and_activation(model, layer, mirt__conv2d_op(x, kernel, &a), d->no_bias, &d->bias_initializer, d->filters, d->activation);
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

static mirt_tensor *mirt__max_pool_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt__attrs a;
    (void)model;
    (void)layer;
    mirt__pool_attrs((mirt_pool2d_desc *)desc, &a);
    return mirt__max_pool2d_op(x, &a);
}

static mirt_tensor *mirt__average_pool_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt__attrs a;
    (void)model;
    (void)layer;
    mirt__pool_attrs((mirt_pool2d_desc *)desc, &a);
    return mirt__average_pool2d_op(x, &a);
}

static mirt_tensor *mirt__global_average_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)model;
    (void)layer;
    (void)desc;
    if (x->shape.rank != 4) return mirt__fail(MIRT_E_SHAPE, "takes (rows, height, width, channels)"), (mirt_tensor *)NULL;
    return mirt__reduce_op(MIRT__REDUCE_MEAN, x, 6u, false);
}

static mirt_tensor *mirt__flatten_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    mirt_shape shape = mirt_make_shape(1, mirt__shape_count(&x->shape), 0, 0, 0, 0);
    (void)model;
    (void)layer;
    (void)desc;
    if (!mirt__is_batched(&x->shape)) return mirt__fail(MIRT_E_SHAPE, "takes a batch"), (mirt_tensor *)NULL;
    shape.dim[0] = MIRT_ROWS;
    return mirt__reshape_op(x, &shape);
}

static mirt_tensor *mirt__dropout_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)model;
    return mirt__dropout_op(x, ((const mirt__dropout_desc *)desc)->rate, mirt__hash(layer->name));
}

static mirt_tensor *mirt__activation_build(mirt_model *model, mirt__layer *layer, mirt_tensor *x, void *desc) {
    (void)model;
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
                                                 {"bias_initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt_dense_desc, bias_initializer)}};
static const mirt__field mirt__conv2d_fields[] = {{"filters", MIRT__FIELD_INT, offsetof(mirt_conv2d_desc, filters)},
                                                  {"kernel_size", MIRT__FIELD_INT2, offsetof(mirt_conv2d_desc, kernel)},
                                                  {"strides", MIRT__FIELD_INT2, offsetof(mirt_conv2d_desc, strides)},
                                                  {"padding", MIRT__FIELD_PADDING, offsetof(mirt_conv2d_desc, padding)},
                                                  {"dilation_rate", MIRT__FIELD_INT2, offsetof(mirt_conv2d_desc, dilation)},
                                                  {"groups", MIRT__FIELD_INT, offsetof(mirt_conv2d_desc, groups)},
                                                  {"activation", MIRT__FIELD_ACTIVATION, offsetof(mirt_conv2d_desc, activation)},
                                                  {"use_bias", MIRT__FIELD_NO, offsetof(mirt_conv2d_desc, no_bias)},
                                                  {"kernel_initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt_conv2d_desc, kernel_initializer)},
                                                  {"bias_initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt_conv2d_desc, bias_initializer)}};
static const mirt__field mirt__pool_fields[] = {{"pool_size", MIRT__FIELD_INT2, offsetof(mirt_pool2d_desc, size)},
                                                {"strides", MIRT__FIELD_INT2, offsetof(mirt_pool2d_desc, strides)},
                                                {"padding", MIRT__FIELD_PADDING, offsetof(mirt_pool2d_desc, padding)}};
static const mirt__field mirt__dropout_fields[] = {{"rate", MIRT__FIELD_FLOAT, offsetof(mirt__dropout_desc, rate)}};
static const mirt__field mirt__activation_fields[] = {{"activation", MIRT__FIELD_ACTIVATION, offsetof(mirt__activation_desc, activation)}};

enum {
    MIRT__LAYER_INPUT, MIRT__LAYER_RESCALING, MIRT__LAYER_DENSE, MIRT__LAYER_CONV2D, MIRT__LAYER_MAX_POOL, MIRT__LAYER_AVERAGE_POOL,
    MIRT__LAYER_GLOBAL_AVERAGE, MIRT__LAYER_FLATTEN, MIRT__LAYER_DROPOUT, MIRT__LAYER_ACTIVATION, MIRT__LAYER_COUNT
};
#define MIRT__FIELDS(f) f, MIRT__COUNT(f)
/* The size of a description; one that a layer has no room for does not compile. */
#define MIRT__DESC(type) (sizeof(type) / (sizeof(type) <= MIRT__MAX_DESC))
static const mirt__layer_class mirt__layer_table[MIRT__LAYER_COUNT] = {
    {"InputLayer", "input_layer", MIRT__FIELDS(mirt__input_fields), MIRT__DESC(mirt__input_desc), mirt__input_build},
    {"Rescaling", "rescaling", MIRT__FIELDS(mirt__rescaling_fields), MIRT__DESC(mirt__rescaling_desc), mirt__rescaling_build},
    {"Dense", "dense", MIRT__FIELDS(mirt__dense_fields), MIRT__DESC(mirt_dense_desc), mirt__dense_build},
    {"Conv2D", "conv2d", MIRT__FIELDS(mirt__conv2d_fields), MIRT__DESC(mirt_conv2d_desc), mirt__conv2d_build},
    {"MaxPooling2D", "max_pooling2d", MIRT__FIELDS(mirt__pool_fields), MIRT__DESC(mirt_pool2d_desc), mirt__max_pool_build},
    {"AveragePooling2D", "average_pooling2d", MIRT__FIELDS(mirt__pool_fields), MIRT__DESC(mirt_pool2d_desc), mirt__average_pool_build},
    {"GlobalAveragePooling2D", "global_average_pooling2d", NULL, 0, 0, mirt__global_average_build},
    {"Flatten", "flatten", NULL, 0, 0, mirt__flatten_build},
    {"Dropout", "dropout", MIRT__FIELDS(mirt__dropout_fields), MIRT__DESC(mirt__dropout_desc), mirt__dropout_build},
    {"Activation", "activation", MIRT__FIELDS(mirt__activation_fields), MIRT__DESC(mirt__activation_desc), mirt__activation_build},
};
#undef MIRT__FIELDS
#undef MIRT__DESC

MIRT__LIB const mirt__layer_class *mirt__layer_class_by_name(const char *class_name) {
    for (int i = 0; i < MIRT__LAYER_COUNT; i++) {
        if (strcmp(mirt__layer_table[i].class_name, class_name) == 0) return &mirt__layer_table[i];
    }
    return NULL;
}

static mirt_tensor *mirt__layer_on(int index, mirt_tensor *x, const void *desc, const char *name) {
    return x ? mirt__layer_add(NULL, &mirt__layer_table[index], x, desc, name) : NULL;
}

/* A layer whose description has no defaults. */
static mirt_tensor *mirt__layer_needs_desc(int index, mirt_tensor *x, const void *desc, const char *name) {
    if (!x || desc) return mirt__layer_on(index, x, desc, name);
    mirt__fail(MIRT_E_INVALID, "%s needs a description", mirt__layer_table[index].base_name);
    return mirt__model_poison(x->node->graph->model);
}

MIRT_API mirt_tensor *mirt_input(mirt_model *model, mirt_shape shape) {
    mirt__input_desc d;
    memset(&d, 0, sizeof d);
    d.shape = shape;
    return model ? mirt__layer_add(model, &mirt__layer_table[MIRT__LAYER_INPUT], NULL, &d, NULL) : NULL;
}

MIRT_API mirt_tensor *mirt_rescale(mirt_tensor *x, float scale, float offset) {
    mirt__rescaling_desc d;
    d.scale = scale;
    d.offset = offset;
    return mirt__layer_on(MIRT__LAYER_RESCALING, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_dense(mirt_tensor *x, const mirt_dense_desc *desc) {
    return mirt__layer_needs_desc(MIRT__LAYER_DENSE, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_conv2d(mirt_tensor *x, const mirt_conv2d_desc *desc) {
    return mirt__layer_needs_desc(MIRT__LAYER_CONV2D, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_max_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc) {
    return mirt__layer_on(MIRT__LAYER_MAX_POOL, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_average_pool2d(mirt_tensor *x, const mirt_pool2d_desc *desc) {
    return mirt__layer_on(MIRT__LAYER_AVERAGE_POOL, x, desc, desc ? desc->name : NULL);
}

MIRT_API mirt_tensor *mirt_global_average_pool2d(mirt_tensor *x) { return mirt__layer_on(MIRT__LAYER_GLOBAL_AVERAGE, x, NULL, NULL); }
MIRT_API mirt_tensor *mirt_flatten(mirt_tensor *x) { return mirt__layer_on(MIRT__LAYER_FLATTEN, x, NULL, NULL); }

MIRT_API mirt_tensor *mirt_dropout(mirt_tensor *x, float rate) {
    mirt__dropout_desc d;
    d.rate = rate;
    return mirt__layer_on(MIRT__LAYER_DROPOUT, x, &d, NULL);
}

MIRT_API mirt_tensor *mirt_activation(mirt_tensor *x, mirt_activation_kind kind) {
    mirt__activation_desc d;
    d.activation = kind;
    return mirt__layer_on(MIRT__LAYER_ACTIVATION, x, &d, NULL);
}
