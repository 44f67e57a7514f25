#include "../kernels/shapes.h"
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

static const char *mirt__onnx_integer(mirt__onnx *x, int64_t value) {
    const mirt_shape number = mirt_make_shape(0, 0, 0, 0, 0, 0);
    const int32_t narrow = (int32_t)value;
    return mirt__onnx_tensor(x, NULL, MIRT_INT32, &number, &narrow);
}

/* An index as int32. */
static const char *mirt__onnx_index(mirt__onnx *x, mirt_tensor *t) {
    const char *name = mirt__onnx_get(x, t, MIRT__ONNX_OWN);
    return t->dtype == MIRT_INT32 ? name : mirt__onnx_convert(x, name, MIRT_INT32, NULL);
}

/* Rows of indices that the table does not have are zeros; ONNX would count from its end, or fail. */
MIRT__LIB bool mirt__onnx_gather(mirt__onnx *x, const mirt__node *node) {
    const int rank = node->in[0]->shape.rank;
    int64_t axes[MIRT_MAX_RANK];
    const char *table = mirt__onnx_get(x, node->in[0], MIRT__ONNX_OWN), *at = mirt__onnx_index(x, node->in[1]);
    if (!table || !at) return false;
    const char *zero = mirt__onnx_integer(x, 0), *count = mirt__onnx_integer(x, node->in[0]->shape.dim[0]),
               *least = mirt__onnx_node(x, "LessOrEqual", NULL, zero, at, NULL),
               *most = mirt__onnx_node(x, "Less", NULL, at, count, NULL),
               *known = mirt__onnx_node(x, "And", NULL, least, most, NULL),
               *row = mirt__onnx_node(x, "Where", NULL, known, at, zero),
               *rows = mirt__onnx_node(x, "Gather", NULL, table, row, NULL);
    for (int i = 1; i < rank; i++) axes[i - 1] = node->in[1]->shape.rank + i - 1;
    if (rank > 1) known = mirt__onnx_node(x, "Unsqueeze", NULL, known, mirt__onnx_list(x, axes, rank - 1), NULL);
    mirt__onnx_node(x, "Where", mirt__onnx_set(x, node->out[0], MIRT__ONNX_OWN), known, rows, mirt__onnx_number(x, 0));
    return true;
}

MIRT__LIB bool mirt__onnx_broadcast(mirt__onnx *x, const mirt__node *node) {
    const char *in, *out, *like = mirt__onnx_get(x, node->in[1], MIRT__ONNX_OWN);
    if (node->a.kind == MIRT__REDUCE_MEAN) return mirt__onnx_refuse(x, node); /* of gradients */
    if (!like || !mirt__onnx_names(x, node, MIRT__ONNX_OWN, &in, &out)) return false;
    mirt__onnx_node(x, "Expand", out, in, mirt__onnx_node(x, "Shape", NULL, like, NULL, NULL), NULL);
    return true;
}

/* What does not fit becomes the nearest number that does; ONNX leaves it open. Of floats doubles have both ends. */
static const char *mirt__onnx_saturated(mirt__onnx *x, const char *in, mirt_dtype from, mirt_dtype to) {
    const mirt_shape number = mirt_make_shape(0, 0, 0, 0, 0, 0);
    const double ends[2] = {to == MIRT_UINT8 ? 0 : (double)INT32_MIN, to == MIRT_UINT8 ? 255 : (double)INT32_MAX};
    const bool narrows = to == MIRT_UINT8 ? from == MIRT_INT32 || from == MIRT_FLOAT32
                                          : to == MIRT_INT32 && from == MIRT_FLOAT32;
    if (!narrows) return in;
    if (from == MIRT_INT32)
        return mirt__onnx_node(x, "Clip", NULL, in, mirt__onnx_integer(x, 0), mirt__onnx_integer(x, 255));
    const char *wide = mirt__onnx_fresh(x), *end[2];
    const size_t cast = mirt__onnx_begin(x, "Cast", &in, 1, wide);
    mirt__onnx_int(x, "to", MIRT__ONNX_DOUBLE);
    mirt__onnx_end(x, cast);
    for (int i = 0; i < 2; i++) end[i] = mirt__onnx_typed(x, MIRT__ONNX_DOUBLE, &number, &ends[i], sizeof ends[i]);
    return mirt__onnx_node(x, "Clip", NULL, wide, end[0], end[1]);
}

MIRT__LIB bool mirt__onnx_cast(mirt__onnx *x, const mirt__node *node) {
    const char *in, *out;
    if (!mirt__onnx_names(x, node, mirt__onnx_order_of(x, node->in[0]), &in, &out)) return false;
    in = mirt__onnx_saturated(x, in, node->in[0]->dtype, node->a.dtype);
    return mirt__onnx_convert(x, in, node->a.dtype, out) != NULL;
}

/* Indices beyond the depth are zeros; negative ones ONNX would count from the end. */
MIRT__LIB bool mirt__onnx_one_hot(mirt__onnx *x, const mirt__node *node) {
    static const float values[2] = {0, 1};
    const mirt_shape pair = mirt_make_shape(2, 0, 0, 0, 0, 0);
    const char *in = mirt__onnx_index(x, node->in[0]), *out = mirt__onnx_set(x, node->out[0], MIRT__ONNX_OWN);
    if (!in) return false;
    const char *depth = mirt__onnx_integer(x, MIRT__OF(&node->a, one_hot)->depth),
               *negative = mirt__onnx_node(x, "Less", NULL, in, mirt__onnx_integer(x, 0), NULL),
               *index = mirt__onnx_node(x, "Where", NULL, negative, depth, in);
    mirt__onnx_node(x, "OneHot", out, index, depth, mirt__onnx_tensor(x, NULL, MIRT_FLOAT32, &pair, values));
    return true;
}

/* The nearest pixels, one axis after the other: Resize computes their places in float32, which rounds. */
static bool mirt__onnx_nearest(mirt__onnx *x, const mirt__node *node, const char *in, const char *out) {
    const mirt__attrs_resize *a = MIRT__OF(&node->a, resize);
    for (int i = 0; i < 2; i++) {
        int64_t *place = (int64_t *)mirt__calloc((size_t)a->size[i], sizeof *place);
        if (!place) return false;
        for (int64_t o = 0; o < a->size[i]; o++)
            place[o] = mirt__resize_at(o, node->in[0]->shape.dim[1 + i], a->size[i], false).low;
        const char *both[2] = {in, mirt__onnx_list(x, place, a->size[i])}, *to = i ? out : mirt__onnx_fresh(x);
        mirt__free(place);
        const size_t begin = mirt__onnx_begin(x, "Gather", both, 2, to);
        mirt__onnx_int(x, "axis", 2 + i);
        mirt__onnx_end(x, begin);
        in = to;
    }
    return true;
}

/* Rows are known when it runs, so the new shape is made of the old one. */
MIRT__LIB bool mirt__onnx_resize(mirt__onnx *x, const mirt__node *node) {
    const mirt__attrs_resize *a = MIRT__OF(&node->a, resize);
    const int64_t begin[1] = {0}, end[1] = {2}, size[2] = {a->size[0], a->size[1]};
    const char *all[4] = {NULL, "", "", NULL}, *out, *part[2];
    if (!mirt__onnx_names(x, node, MIRT__ONNX_FIRST, all, &out)) return false;
    const bool whole = size[0] % node->in[0]->shape.dim[1] == 0 && size[1] % node->in[0]->shape.dim[2] == 0;
    if (!a->bilinear && !whole) return mirt__onnx_nearest(x, node, all[0], out);
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
