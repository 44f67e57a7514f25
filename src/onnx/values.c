#include "onnx.h"
/* The tensors of an ONNX file, with their axes in one order or another. */

MIRT__LIB mirt__onnx_value *mirt__onnx_value_of(const mirt__onnx *x, const mirt_tensor *t) {
    return &x->value[t->pass.index];
}

/* Axis i of a tensor in that order is this one of the model's. */
static const int mirt__onnx_from[MIRT__ONNX_ORDERS][4] = {{0, 1, 2, 3}, {0, 3, 1, 2}, {3, 2, 0, 1}};

MIRT__LIB int mirt__onnx_axis(mirt__onnx_order order, int axis) {
    int at = 0;
    if (order == MIRT__ONNX_OWN) return axis;
    while (mirt__onnx_from[order][at] != axis) at++;
    return at;
}

MIRT__LIB mirt_shape mirt__onnx_shape(const mirt_shape *shape, mirt__onnx_order order) {
    mirt_shape out = *shape;
    for (int i = 0; order != MIRT__ONNX_OWN && i < 4; i++) out.dim[i] = shape->dim[mirt__onnx_from[order][i]];
    return out;
}

MIRT__LIB mirt__onnx_order mirt__onnx_end_order(const mirt__onnx *x, const mirt_tensor *t) {
    return x->desc.channels_first && t->shape.rank == 4 ? MIRT__ONNX_FIRST : MIRT__ONNX_OWN;
}

MIRT__LIB mirt__onnx_order mirt__onnx_order_of(const mirt__onnx *x, const mirt_tensor *t) {
    return mirt__onnx_value_of(x, t)->name[MIRT__ONNX_FIRST] ? MIRT__ONNX_FIRST : MIRT__ONNX_OWN;
}

MIRT__LIB const char *mirt__onnx_set(mirt__onnx *x, const mirt_tensor *t, mirt__onnx_order order) {
    mirt__onnx_value *v = mirt__onnx_value_of(x, t);
    v->name[order] = v->output && order == mirt__onnx_end_order(x, t) ? v->output : mirt__onnx_fresh(x);
    return v->name[order];
}

MIRT__LIB const mirt__node *mirt__onnx_leaf(const mirt_tensor *t) {
    const mirt__node *node = t->node;
    while (node->id == MIRT__OP_reshape || node->id == MIRT__OP_stop_gradient) node = node->in[0]->node;
    const bool leaf = mirt__is_variable(node) || node->id == MIRT__OP_constant;
    return leaf && t->dtype == MIRT_FLOAT32 ? node : NULL;
}

MIRT__LIB float *mirt__onnx_numbers(mirt__onnx *x, const mirt_tensor *t) {
    const mirt__node *leaf = mirt__onnx_leaf(t);
    const int64_t count = mirt__shape_count(&t->shape);
    const mirt__real *from = mirt__is_variable(leaf) ? mirt__weight_at(x->model, leaf->a.index)
                                                     : (const mirt__real *)MIRT__OF(&leaf->a, data)->data;
    float *out = (float *)mirt__calloc((size_t)count, sizeof *out);
    for (int64_t i = 0; out && i < count; i++) out[i] = (float)from[i];
    if (!out) x->initializers.failed = true;
    return out;
}

MIRT__LIB float *mirt__onnx_moved(mirt__onnx *x, const mirt_shape *from, const float *data, mirt__onnx_order order) {
    const mirt_shape to = mirt__onnx_shape(from, order);
    const int *axis = mirt__onnx_from[order];
    float *moved = (float *)mirt__calloc((size_t)mirt__shape_count(from), sizeof *moved);
    int64_t step[4] = {0, 0, 0, 1}, at[4], out = 0;
    if (!moved) return x->initializers.failed = true, moved;
    for (int i = 2; i >= 0; i--) step[i] = step[i + 1] * from->dim[i + 1];
    for (at[0] = 0; at[0] < to.dim[0]; at[0]++) {
        for (at[1] = 0; at[1] < to.dim[1]; at[1]++) {
            for (at[2] = 0; at[2] < to.dim[2]; at[2]++) {
                for (at[3] = 0; at[3] < to.dim[3]; at[3]++) {
                    int64_t place = 0;
                    for (int i = 0; i < 4; i++) place += at[i] * step[axis[i]];
                    moved[out++] = data[place];
                }
            }
        }
    }
    return moved;
}

MIRT__LIB const char *mirt__onnx_weight(mirt__onnx *x, const mirt__node *like, const mirt_shape *shape,
                                        const float *data) {
    const char *name = NULL;
    if (mirt__is_variable(like) && !x->taken[like->a.index]) {
        x->taken[like->a.index] = true;
        name = x->model->variable[like->a.index].name;
    }
    return mirt__onnx_tensor(x, name, MIRT_FLOAT32, shape, data);
}

/* A leaf's numbers with their axes in that order. */
static const char *mirt__onnx_write_leaf(mirt__onnx *x, const mirt_tensor *t, mirt__onnx_order order) {
    const mirt_shape to = mirt__onnx_shape(&t->shape, order);
    float *data = mirt__onnx_numbers(x, t), *moved = NULL;
    if (data && order != MIRT__ONNX_OWN) moved = mirt__onnx_moved(x, &t->shape, data, order);
    const bool good = data && (moved || order == MIRT__ONNX_OWN);
    const char *name = good ? mirt__onnx_weight(x, mirt__onnx_leaf(t), &to, moved ? moved : data) : NULL;
    mirt__free(moved);
    mirt__free(data);
    return name;
}

/* A constant of another dtype. */
static const char *mirt__onnx_write_constant(mirt__onnx *x, const mirt_tensor *t) {
    return mirt__onnx_tensor(x, NULL, t->dtype, &t->shape, MIRT__OF(&t->node->a, data)->data);
}

static const char *mirt__onnx_reorder(mirt__onnx *x, const char *from, const int *axis, const char *to) {
    int64_t permutation[4];
    for (int i = 0; i < 4; i++) permutation[i] = axis[i];
    const size_t node = mirt__onnx_begin(x, "Transpose", &from, 1, to);
    mirt__onnx_ints(x, "perm", permutation, 4);
    mirt__onnx_end(x, node);
    return to;
}

MIRT__LIB const char *mirt__onnx_get(mirt__onnx *x, mirt_tensor *t, mirt__onnx_order order) {
    static const int back[4] = {0, 2, 3, 1}; /* from FIRST to OWN */
    mirt__onnx_value *v = mirt__onnx_value_of(x, t);
    const char *own = v->name[MIRT__ONNX_OWN], *first = v->name[MIRT__ONNX_FIRST];
    if (v->name[order]) return v->name[order];
    if (mirt__onnx_leaf(t)) return v->name[order] = mirt__onnx_write_leaf(x, t, order);
    if (!own && t->node->id == MIRT__OP_constant) own = v->name[MIRT__ONNX_OWN] = mirt__onnx_write_constant(x, t);
    if (!own && !first && t->node->id == MIRT__OP_norm_stats) {
        if (!mirt__onnx_stats(x, t->node)) return NULL;
        own = v->name[MIRT__ONNX_OWN];
    }
    if (v->name[order]) return v->name[order];
    if (order == MIRT__ONNX_OWN) return mirt__onnx_reorder(x, first, back, mirt__onnx_set(x, t, order));
    if (!own && !(own = mirt__onnx_get(x, t, MIRT__ONNX_OWN))) return NULL;
    return mirt__onnx_reorder(x, own, mirt__onnx_from[order], mirt__onnx_set(x, t, order));
}

/* A vector against images whose channels come first. */
static const char *mirt__onnx_channels(mirt__onnx *x, mirt_tensor *t) {
    const mirt__node *leaf = mirt__onnx_leaf(t);
    const mirt_shape shape = mirt_make_shape(t->shape.dim[0], 1, 1, 0, 0, 0);
    if (leaf) {
        float *data = mirt__onnx_numbers(x, t);
        const char *name = data ? mirt__onnx_weight(x, leaf, &shape, data) : NULL;
        mirt__free(data);
        return name;
    }
    return mirt__onnx_node(x, "Reshape", NULL, mirt__onnx_get(x, t, MIRT__ONNX_OWN), mirt__onnx_list(x, shape.dim, 3),
                           NULL);
}

MIRT__LIB const char *mirt__onnx_operand(mirt__onnx *x, mirt_tensor *t, int rank, mirt__onnx_order order) {
    const int have = t->shape.rank;
    int64_t shape[4] = {1, 1, 1, 1};
    if (have == rank || have == 0 || order == MIRT__ONNX_OWN)
        return mirt__onnx_get(x, t, have == rank ? order : MIRT__ONNX_OWN);
    if (have == 1 && t->shape.dim[0] != MIRT_ROWS) return mirt__onnx_channels(x, t);
    for (int i = 0; i < have; i++) shape[4 - have + i] = t->shape.dim[i];
    const char *whole = mirt__onnx_node(x, "Reshape", NULL, mirt__onnx_get(x, t, MIRT__ONNX_OWN),
                                        mirt__onnx_list(x, shape, 4), NULL);
    return mirt__onnx_reorder(x, whole, mirt__onnx_from[order], mirt__onnx_fresh(x));
}
