#include "onnx.h"
/* Messages of onnx.proto. */

enum { MIRT__ONNX_NODE = 1, MIRT__ONNX_INITIALIZER = 5 };                                      /* GraphProto */
enum { MIRT__NODE_INPUT = 1, MIRT__NODE_OUTPUT = 2, MIRT__NODE_NAME = 3, MIRT__NODE_OP = 4, MIRT__NODE_ATTRIBUTE = 5 };
enum {
    MIRT__ATTRIBUTE_NAME = 1, MIRT__ATTRIBUTE_FLOAT = 2, MIRT__ATTRIBUTE_INT = 3, MIRT__ATTRIBUTE_TEXT = 4,
    MIRT__ATTRIBUTE_INTS = 8, MIRT__ATTRIBUTE_TYPE = 20
};
enum { MIRT__TYPE_FLOAT = 1, MIRT__TYPE_INT = 2, MIRT__TYPE_TEXT = 3, MIRT__TYPE_INTS = 7 };
enum { MIRT__DATA_DIMS = 1, MIRT__DATA_TYPE = 2, MIRT__DATA_NAME = 8, MIRT__DATA_BYTES = 9 };  /* TensorProto */

MIRT__LIB bool mirt__onnx_taken(const mirt__onnx *x, const char *name) {
    for (int i = 0; i < x->num_ends; i++) {
        if (strcmp(x->end[i], name) == 0) return true;
    }
    for (int i = 0; i < x->model->num_variables; i++) {
        if (strcmp(x->model->variable[i].name, name) == 0) return true;
    }
    return false;
}

MIRT__LIB const char *mirt__onnx_fresh(mirt__onnx *x) {
    const char *layer = x->node && x->node->name ? x->node->name : "value", *name;
    do name = mirt__pool_print(&x->graph.pool, "%s/%d", layer, x->numbers++);
    while (name && mirt__onnx_taken(x, name));
    if (!name) x->nodes.failed = true;
    return name;
}

MIRT__LIB size_t mirt__onnx_begin(mirt__onnx *x, const char *op, const char *const *in, int num_in, const char *out) {
    const size_t begin = mirt__pb_open(&x->nodes, MIRT__ONNX_NODE);
    for (int i = 0; i < num_in; i++) {
        if (in[i]) mirt__pb_string(&x->nodes, MIRT__NODE_INPUT, in[i]);
        else x->nodes.failed = true;
    }
    if (out) {
        mirt__pb_string(&x->nodes, MIRT__NODE_OUTPUT, out);
        mirt__pb_string(&x->nodes, MIRT__NODE_NAME, out);
    } else {
        x->nodes.failed = true;
    }
    mirt__pb_string(&x->nodes, MIRT__NODE_OP, op);
    return begin;
}

MIRT__LIB void mirt__onnx_end(mirt__onnx *x, size_t begin) { mirt__pb_close(&x->nodes, begin); }

static size_t mirt__onnx_attribute(mirt__onnx *x, const char *name, int type) {
    const size_t begin = mirt__pb_open(&x->nodes, MIRT__NODE_ATTRIBUTE);
    mirt__pb_string(&x->nodes, MIRT__ATTRIBUTE_NAME, name);
    mirt__pb_int(&x->nodes, MIRT__ATTRIBUTE_TYPE, type);
    return begin;
}

MIRT__LIB void mirt__onnx_int(mirt__onnx *x, const char *name, int64_t value) {
    const size_t begin = mirt__onnx_attribute(x, name, MIRT__TYPE_INT);
    mirt__pb_int(&x->nodes, MIRT__ATTRIBUTE_INT, value);
    mirt__pb_close(&x->nodes, begin);
}

MIRT__LIB void mirt__onnx_ints(mirt__onnx *x, const char *name, const int64_t *value, int count) {
    const size_t begin = mirt__onnx_attribute(x, name, MIRT__TYPE_INTS);
    for (int i = 0; i < count; i++) mirt__pb_int(&x->nodes, MIRT__ATTRIBUTE_INTS, value[i]);
    mirt__pb_close(&x->nodes, begin);
}

MIRT__LIB void mirt__onnx_float(mirt__onnx *x, const char *name, double value) {
    const size_t begin = mirt__onnx_attribute(x, name, MIRT__TYPE_FLOAT);
    mirt__pb_float(&x->nodes, MIRT__ATTRIBUTE_FLOAT, (float)value);
    mirt__pb_close(&x->nodes, begin);
}

MIRT__LIB void mirt__onnx_text(mirt__onnx *x, const char *name, const char *value) {
    const size_t begin = mirt__onnx_attribute(x, name, MIRT__TYPE_TEXT);
    mirt__pb_string(&x->nodes, MIRT__ATTRIBUTE_TEXT, value);
    mirt__pb_close(&x->nodes, begin);
}

MIRT__LIB const char *mirt__onnx_node(mirt__onnx *x, const char *op, const char *out, const char *a, const char *b,
                                      const char *c) {
    const char *in[3] = {a, b, c};
    if (!out) out = mirt__onnx_fresh(x);
    mirt__onnx_end(x, mirt__onnx_begin(x, op, in, c ? 3 : b ? 2 : 1, out));
    return out;
}

static int mirt__onnx_dtype(mirt_dtype dtype) {
    switch (dtype) {
    case MIRT_INT32: return 6;
    case MIRT_UINT8: return 2;
    case MIRT_BOOL: return 9;
    default: return 1;
    }
}

MIRT__LIB const char *mirt__onnx_convert(mirt__onnx *x, const char *in, mirt_dtype dtype, const char *out) {
    if (!out) out = mirt__onnx_fresh(x);
    const size_t begin = mirt__onnx_begin(x, "Cast", &in, 1, out);
    mirt__onnx_int(x, "to", mirt__onnx_dtype(dtype));
    mirt__onnx_end(x, begin);
    return out;
}

static const char *mirt__onnx_write_tensor(mirt__onnx *x, const char *name, int type, const mirt_shape *shape,
                                           const void *data, size_t bytes) {
    mirt__text *out = &x->initializers, head;
    memset(&head, 0, sizeof head);
    if (!name) name = mirt__onnx_fresh(x);
    for (int i = 0; i < shape->rank; i++) mirt__pb_int(&head, MIRT__DATA_DIMS, shape->dim[i]);
    mirt__pb_int(&head, MIRT__DATA_TYPE, type);
    if (name) mirt__pb_string(&head, MIRT__DATA_NAME, name);
    mirt__pb_varint(&head, MIRT__DATA_BYTES << 3 | 2);
    mirt__pb_varint(&head, bytes);
    if (!name || head.failed) out->failed = true;
    else {
        mirt__pb_varint(out, MIRT__ONNX_INITIALIZER << 3 | 2);
        mirt__pb_varint(out, head.size + bytes);
        mirt__text_add_bytes(out, head.data, head.size);
        mirt__text_add_bytes(out, data, bytes);
    }
    mirt__text_free(&head);
    return name;
}

MIRT__LIB const char *mirt__onnx_tensor(mirt__onnx *x, const char *name, mirt_dtype dtype, const mirt_shape *shape,
                                        const void *data) {
    return mirt__onnx_write_tensor(x, name, mirt__onnx_dtype(dtype), shape, data,
                                   (size_t)mirt__shape_count(shape) * mirt__dtype_size(dtype));
}

MIRT__LIB const char *mirt__onnx_typed(mirt__onnx *x, mirt__onnx_type type, const mirt_shape *shape,
                                       const void *data, size_t bytes) {
    return mirt__onnx_write_tensor(x, NULL, (int)type, shape, data, bytes);
}

MIRT__LIB const char *mirt__onnx_number(mirt__onnx *x, double value) {
    const mirt_shape shape = mirt_make_shape(0, 0, 0, 0, 0, 0);
    const float number = (float)value;
    return mirt__onnx_write_tensor(x, NULL, mirt__onnx_dtype(MIRT_FLOAT32), &shape, &number, sizeof number);
}

MIRT__LIB const char *mirt__onnx_list(mirt__onnx *x, const int64_t *value, int count) {
    mirt_shape shape = mirt_make_shape(count, 0, 0, 0, 0, 0);
    return mirt__onnx_typed(x, MIRT__ONNX_INT64, &shape, value, (size_t)count * sizeof *value);
}

MIRT__LIB void mirt__onnx_write_end(mirt__onnx *x, unsigned field, const char *name, const mirt_tensor *t,
                                    mirt__onnx_order order) {
    enum { NAME = 1, TYPE = 2, TENSOR = 1, ELEMENT = 1, SHAPE = 2, DIM = 1, VALUE = 1, PARAMETER = 2 };
    const mirt_shape shape = mirt__onnx_shape(&t->shape, order);
    mirt__text *out = &x->ends;
    const size_t info = mirt__pb_open(out, field);
    mirt__pb_string(out, NAME, name);
    const size_t type = mirt__pb_open(out, TYPE), tensor = mirt__pb_open(out, TENSOR);
    mirt__pb_int(out, ELEMENT, mirt__onnx_dtype(t->dtype));
    const size_t dims = mirt__pb_open(out, SHAPE);
    for (int i = 0; i < shape.rank; i++) {
        const size_t dim = mirt__pb_open(out, DIM);
        if (shape.dim[i] == MIRT_ROWS) mirt__pb_string(out, PARAMETER, "rows");
        else mirt__pb_int(out, VALUE, shape.dim[i]);
        mirt__pb_close(out, dim);
    }
    mirt__pb_close(out, dims);
    mirt__pb_close(out, tensor);
    mirt__pb_close(out, type);
    mirt__pb_close(out, info);
}
