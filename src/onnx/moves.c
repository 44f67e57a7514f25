#include "onnx.h"
/* ONNX's ops that move, copy or convert elements. */

/* Both names of a node whose inputs and output are in one order; false without the input. */
static bool mirt__onnx_names(mirt__onnx *x, const mirt__node *node, mirt__onnx_order order, const char **in,
                             const char **out) {
    *in = mirt__onnx_get(x, node->in[0], order);
    *out = mirt__onnx_set(x, node->out[0], order);
    return *in != NULL;
}

/* Whether the elements of a tensor stay where they are when its channels come first. */
static bool mirt__onnx_indifferent(const mirt_shape *shape) {
    return shape->rank == 4 && ((shape->dim[1] == 1 && shape->dim[2] == 1) || shape->dim[3] == 1);
}

MIRT__LIB bool mirt__onnx_reshape(mirt__onnx *x, const mirt__node *node) {
    const mirt_tensor *from = node->in[0];
    const bool first = !mirt__onnx_value_of(x, from)->name[MIRT__ONNX_OWN] && mirt__onnx_indifferent(&from->shape) &&
                       mirt__onnx_order_of(x, from) == MIRT__ONNX_FIRST;
    const mirt__onnx_order to = mirt__onnx_indifferent(&node->out[0]->shape) ? MIRT__ONNX_FIRST : MIRT__ONNX_OWN;
    const mirt_shape shape = mirt__onnx_shape(&node->out[0]->shape, to); /* rows are -1 here and there */
    const char *in = mirt__onnx_get(x, node->in[0], first ? MIRT__ONNX_FIRST : MIRT__ONNX_OWN);
    const char *out = mirt__onnx_set(x, node->out[0], to);
    if (!in) return false;
    mirt__onnx_node(x, "Reshape", out, in, mirt__onnx_list(x, shape.dim, shape.rank), NULL);
    return true;
}

MIRT__LIB bool mirt__onnx_stop_gradient(mirt__onnx *x, const mirt__node *node) {
    const char *in, *out;
    return mirt__onnx_names(x, node, mirt__onnx_order_of(x, node->in[0]), &in, &out) &&
           mirt__onnx_node(x, "Identity", out, in, NULL, NULL);
}

MIRT__LIB bool mirt__onnx_transpose(mirt__onnx *x, const mirt__node *node) {
    const char *in, *out;
    if (!mirt__onnx_names(x, node, MIRT__ONNX_OWN, &in, &out)) return false;
    const size_t begin = mirt__onnx_begin(x, "Transpose", &in, 1, out);
    mirt__onnx_ints(x, "perm", MIRT__OF(&node->a, move)->begin, node->in[0]->shape.rank);
    mirt__onnx_end(x, begin);
    return true;
}

MIRT__LIB bool mirt__onnx_concat(mirt__onnx *x, const mirt__node *node) {
    const char *in[MIRT__MAX_IN];
    mirt__onnx_order order = MIRT__ONNX_OWN;
    for (int i = 0; i < node->num_in; i++) {
        if (mirt__onnx_order_of(x, node->in[i]) == MIRT__ONNX_FIRST) order = MIRT__ONNX_FIRST;
    }
    for (int i = 0; i < node->num_in; i++) {
        if (!(in[i] = mirt__onnx_get(x, node->in[i], order))) return false;
    }
    const size_t begin = mirt__onnx_begin(x, "Concat", in, node->num_in, mirt__onnx_set(x, node->out[0], order));
    mirt__onnx_int(x, "axis", mirt__onnx_axis(order, MIRT__OF(&node->a, axis)->axis));
    mirt__onnx_end(x, begin);
    return true;
}

MIRT__LIB bool mirt__onnx_slice(mirt__onnx *x, const mirt__node *node) {
    const mirt__onnx_order order = mirt__onnx_order_of(x, node->in[0]);
    const int64_t *begin = MIRT__OF(&node->a, move)->begin;
    int64_t first[MIRT_MAX_RANK], end[MIRT_MAX_RANK], axes[MIRT_MAX_RANK];
    const char *in[4], *out;
    int count = 0;
    if (!mirt__onnx_names(x, node, order, in, &out)) return false;
    for (int i = 0; i < node->in[0]->shape.rank; i++) {
        if (node->in[0]->shape.dim[i] == node->out[0]->shape.dim[i]) continue;
        first[count] = begin[i];
        end[count] = begin[i] + node->out[0]->shape.dim[i];
        axes[count++] = mirt__onnx_axis(order, i);
    }
    if (!count) return mirt__onnx_node(x, "Identity", out, in[0], NULL, NULL), true;
    in[1] = mirt__onnx_list(x, first, count);
    in[2] = mirt__onnx_list(x, end, count);
    in[3] = mirt__onnx_list(x, axes, count);
    mirt__onnx_end(x, mirt__onnx_begin(x, "Slice", in, 4, out));
    return true;
}

MIRT__LIB bool mirt__onnx_pad(mirt__onnx *x, const mirt__node *node) {
    const mirt__onnx_order order = mirt__onnx_order_of(x, node->in[0]);
    const int rank = node->in[0]->shape.rank;
    int64_t pads[2 * MIRT_MAX_RANK];
    const char *in, *out;
    if (!mirt__onnx_names(x, node, order, &in, &out)) return false;
    for (int i = 0; i < rank; i++) {
        pads[mirt__onnx_axis(order, i)] = MIRT__OF(&node->a, move)->begin[i];
        pads[rank + mirt__onnx_axis(order, i)] = node->a.shape.dim[i];
    }
    const char *list = mirt__onnx_list(x, pads, 2 * rank);
    mirt__onnx_node(x, "Pad", out, in, list,
                    node->a.scale != 0 ? mirt__onnx_number(x, (double)node->a.scale) : NULL);
    return true;
}

MIRT__LIB bool mirt__onnx_gather(mirt__onnx *x, const mirt__node *node) {
    const char *table = mirt__onnx_get(x, node->in[0], MIRT__ONNX_OWN),
               *at = mirt__onnx_get(x, node->in[1], MIRT__ONNX_OWN);
    if (!table || !at) return false;
    if (node->in[1]->dtype != MIRT_INT32) at = mirt__onnx_convert(x, at, MIRT_INT32, NULL);
    mirt__onnx_node(x, "Gather", mirt__onnx_set(x, node->out[0], MIRT__ONNX_OWN), table, at, NULL);
    return true;
}

MIRT__LIB bool mirt__onnx_broadcast(mirt__onnx *x, const mirt__node *node) {
    const char *in, *out, *like = mirt__onnx_get(x, node->in[1], MIRT__ONNX_OWN);
    if (node->a.kind == MIRT__REDUCE_MEAN) return mirt__onnx_refuse(x, node); /* of gradients */
    if (!like || !mirt__onnx_names(x, node, MIRT__ONNX_OWN, &in, &out)) return false;
    mirt__onnx_node(x, "Expand", out, in, mirt__onnx_node(x, "Shape", NULL, like, NULL, NULL), NULL);
    return true;
}

MIRT__LIB bool mirt__onnx_cast(mirt__onnx *x, const mirt__node *node) {
    const char *in, *out;
    return mirt__onnx_names(x, node, mirt__onnx_order_of(x, node->in[0]), &in, &out) &&
           mirt__onnx_convert(x, in, node->a.dtype, out);
}

MIRT__LIB bool mirt__onnx_one_hot(mirt__onnx *x, const mirt__node *node) {
    static const float values[2] = {0, 1};
    const int32_t depth = (int32_t)MIRT__OF(&node->a, one_hot)->depth;
    const mirt_shape one = mirt_make_shape(1, 0, 0, 0, 0, 0), pair = mirt_make_shape(2, 0, 0, 0, 0, 0);
    const char *in, *out;
    if (!mirt__onnx_names(x, node, MIRT__ONNX_OWN, &in, &out)) return false;
    if (node->in[0]->dtype != MIRT_INT32) in = mirt__onnx_convert(x, in, MIRT_INT32, NULL);
    const char *size = mirt__onnx_tensor(x, NULL, MIRT_INT32, &one, &depth);
    mirt__onnx_node(x, "OneHot", out, in, size, mirt__onnx_tensor(x, NULL, MIRT_FLOAT32, &pair, values));
    return true;
}

/* Rows are known when it runs, so the new shape is made of the old one. */
MIRT__LIB bool mirt__onnx_resize(mirt__onnx *x, const mirt__node *node) {
    const mirt__attrs_resize *a = MIRT__OF(&node->a, resize);
    const int64_t begin[1] = {0}, end[1] = {2}, size[2] = {a->size[0], a->size[1]};
    const char *all[4] = {NULL, "", "", NULL}, *out, *part[2];
    if (!mirt__onnx_names(x, node, MIRT__ONNX_FIRST, all, &out)) return false;
    const char *shape = mirt__onnx_node(x, "Shape", NULL, all[0], NULL, NULL), *from = mirt__onnx_list(x, begin, 1);
    part[0] = mirt__onnx_node(x, "Slice", NULL, shape, from, mirt__onnx_list(x, end, 1));
    part[1] = mirt__onnx_list(x, size, 2);
    all[3] = mirt__onnx_fresh(x);
    size_t node_at = mirt__onnx_begin(x, "Concat", part, 2, all[3]);
    mirt__onnx_int(x, "axis", 0);
    mirt__onnx_end(x, node_at);
    node_at = mirt__onnx_begin(x, "Resize", all, 4, out);
    mirt__onnx_text(x, "mode", a->bilinear ? "linear" : "nearest");
    mirt__onnx_text(x, "coordinate_transformation_mode", "half_pixel");
    if (!a->bilinear) mirt__onnx_text(x, "nearest_mode", "round_prefer_ceil");
    mirt__onnx_end(x, node_at);
    return true;
}
