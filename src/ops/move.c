#include "ops.h"
/* Transposing, joining, slicing and padding tensors. */

/* transpose: output axis i is input axis begin[i]. concat: along the family's axis. slice: from begin on, a.shape
   elements. pad: begin before and a.shape after, with a.scale. gather: rows of the first input by the
   indices of the second; gather_grad: a.shape is the table's. All keep rows where they are. */

/* An input's bytes into the output: elements of `shape`, from the first of each on. */
static mirt__move mirt__move_of(const mirt__call *call, int input, const mirt_shape *shape) {
    const mirt_shape *x = &call->node->in[input]->shape, *y = &call->node->out[0]->shape;
    mirt__move m;
    memset(&m, 0, sizeof m);
    m.dtype = call->node->out[0]->dtype;
    m.rank = shape->rank;
    for (int i = 0; i < shape->rank; i++) m.dim[i] = mirt__dim_at(shape, i, call->rows);
    mirt__broadcast_strides(x, x, m.from);
    mirt__broadcast_strides(y, y, m.to);
    m.x = call->in[input];
    m.y = call->out[0];
    return m;
}

/* `base` moved by `place` along the axes with these strides. */
static void *mirt__move_at(void *base, const int64_t *stride, const int64_t *place, int rank, mirt_dtype dtype) {
    int64_t at = 0;
    for (int i = 0; i < rank; i++) at += stride[i] * place[i];
    return (char *)base + (size_t)at * mirt__dtype_size(dtype);
}

static bool mirt__move_keeps_rows(const mirt__node *node, bool kept) {
    if (mirt__is_batched(&node->in[0]->shape) && !kept)
        return mirt__fail(MIRT_E_SHAPE, "axis 0 is the rows of a batch and stays as it is"), false;
    return true;
}

static bool mirt__transpose_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape;
    const int64_t *permutation = MIRT__OF(&node->a, move)->begin;
    mirt_shape y = *x;
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        const int64_t from = permutation[i];
        if (from < 0 || from >= x->rank || seen >> from & 1)
            return mirt__fail(MIRT_E_INVALID, "the permutation must name each of the axes 0 to %d once", x->rank - 1),
                   false;
        seen |= 1u << from;
        y.dim[i] = x->dim[from];
    }
    return mirt__move_keeps_rows(node, permutation[0] == 0) && mirt__declare(node, node->in[0]->dtype, &y);
}

static void mirt__transpose_run(const mirt__call *call) {
    const mirt__move straight = mirt__move_of(call, 0, &call->node->out[0]->shape);
    mirt__move m = straight;
    for (int i = 0; i < m.rank; i++) m.from[i] = straight.from[MIRT__OF(&call->node->a, move)->begin[i]];
    call->kernels->move(&m, &call->where);
}

MIRT__TRAINING void mirt__transpose_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_transpose);
    const int64_t *permutation = MIRT__OF(&node->a, move)->begin;
    for (int i = 0; i < node->in[0]->shape.rank; i++) MIRT__OF(&a, move)->begin[permutation[i]] = i;
    dx[0] = mirt__apply(MIRT__OP_transpose, &a, dy, 1);
}

MIRT__OP_ROW(transpose, mirt__transpose_shape, mirt__transpose_run,
    MIRT__SET_GRADIENT(mirt__transpose_gradient) MIRT__IS(row_wise) MIRT__IS(keeps_range)
    MIRT__SAVED(1, 1, MIRT__SAVES_begin))

MIRT_API mirt_tensor *mirt_transpose(mirt_tensor *x, const int *permutation) {
    if (!x) return NULL;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_transpose);
    const int first = mirt__is_batched(&x->shape); /* behind which axes are reversed */
    for (int i = 0; i < x->shape.rank; i++) {
        const int reversed = i < first ? i : x->shape.rank - 1 + first - i;
        MIRT__OF(&a, move)->begin[i] = permutation ? permutation[i] : reversed;
    }
    return mirt__apply(MIRT__OP_transpose, &a, &x, 1);
}

static bool mirt__concat_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    if (!mirt__take_axis(node, &y)) return false;
    const int axis = MIRT__OF(&node->a, axis)->axis;
    for (int k = 1; k < node->num_in; k++) {
        const mirt_tensor *x = node->in[k];
        mirt_shape same = x->shape;
        if (same.rank == y.rank) same.dim[axis] = y.dim[axis];
        if (!mirt__shape_equal(&same, &y)) {
            char tx[96], ty[96];
            return mirt__fail(MIRT_E_SHAPE, "%s and %s differ in more than axis %d",
                              mirt__shape_text(&node->in[0]->shape, ty), mirt__shape_text(&x->shape, tx), axis),
                   false;
        }
        if (x->dtype != node->in[0]->dtype) {
            return mirt__fail(MIRT_E_INVALID, "%s and %s do not go together: cast one of them",
                              mirt__dtype_name(node->in[0]->dtype), mirt__dtype_name(x->dtype)),
                   false;
        }
        if (y.dim[axis] > MIRT__MAX_ELEMENTS - x->shape.dim[axis]) {
            return mirt__fail(MIRT_E_SHAPE, "makes too many elements"), false;
        }
        y.dim[axis] += x->shape.dim[axis];
    }
    return mirt__declare(node, node->in[0]->dtype, &y);
}

static void mirt__concat_run(const mirt__call *call) {
    int64_t place[MIRT_MAX_RANK] = {0};
    const int axis = MIRT__OF(&call->node->a, axis)->axis;
    for (int k = 0; k < call->node->num_in; k++) {
        const mirt_shape *x = &call->node->in[k]->shape;
        mirt__move m = mirt__move_of(call, k, x);
        m.y = mirt__move_at(call->out[0], m.to, place, m.rank, m.dtype);
        call->kernels->move(&m, &call->where);
        place[axis] += x->dim[axis];
    }
}

/* A slice from `first` on, of so many elements; or so many values before x, and after it. */
static mirt_tensor *mirt__fitted(mirt__op_id id, mirt_tensor *x, const int64_t *first, const int64_t *last,
                                 float value) {
    if (!x) return NULL;
    mirt__attrs a = mirt__attrs_of(id);
    a.scale = value;
    a.shape.rank = x->shape.rank;
    for (int i = 0; i < x->shape.rank; i++) {
        MIRT__OF(&a, move)->begin[i] = first[i];
        a.shape.dim[i] = last[i];
    }
    return mirt__apply(id, &a, &x, 1);
}

static mirt_tensor *mirt__slice_op(mirt_tensor *x, const int64_t *begin, const int64_t *size) {
    return mirt__fitted(MIRT__OP_slice, x, begin, size, 0);
}

/* Whether both lists of an op on x were given; marks the graph if not. */
static bool mirt__need_lists(const mirt_tensor *x, const void *a, const void *b, const char *op) {
    if (!x || (a && b)) return x != NULL;
    mirt__fail(MIRT_E_INVALID, "%s: a list is NULL", op);
    mirt__graph_poison(x->node->graph);
    return false;
}

MIRT__TRAINING void mirt__concat_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    int64_t begin[MIRT_MAX_RANK] = {0};
    const int axis = MIRT__OF(&node->a, axis)->axis;
    for (int k = 0; k < node->num_in; k++) {
        const mirt_shape *x = &node->in[k]->shape;
        if (node->in[k]->needs_grad) dx[k] = mirt__slice_op(dy[0], begin, x->dim);
        begin[axis] += x->dim[axis];
    }
}

MIRT__OP_ROW(concat, mirt__concat_shape, mirt__concat_run,
    MIRT__SET_GRADIENT(mirt__concat_gradient) MIRT__IS(row_wise) MIRT__IS(keeps_range)
    MIRT__SAVED(1, MIRT__MAX_IN, MIRT__SAVES_axis))

MIRT_API mirt_tensor *mirt_concat(mirt_tensor *const *x, int n, int axis) {
    mirt_tensor *in[MIRT__MAX_IN];
    mirt__attrs a = mirt__attrs_of(MIRT__OP_concat);
    MIRT__OF(&a, axis)->axis = axis;
    if (n < 1 || !x) return mirt__fail(MIRT_E_INVALID, "concat: there is nothing to join"), (mirt_tensor *)NULL;
    in[0] = x[0];
    for (int at = 1; at < n && in[0];) { /* as many at a time as a node takes */
        int count = 1;
        while (at < n && count < MIRT__MAX_IN) in[count++] = x[at++];
        in[0] = mirt__apply(MIRT__OP_concat, &a, in, count);
    }
    return in[0];
}

static bool mirt__slice_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape;
    const int64_t *begin = MIRT__OF(&node->a, move)->begin;
    mirt_shape *y = &node->a.shape;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i] == MIRT_ROWS) {
            if (!mirt__move_keeps_rows(node, begin[i] == 0 && y->dim[i] == -1)) return false;
            continue;
        }
        if (y->dim[i] == -1 && begin[i] >= 0) y->dim[i] = x->dim[i] - begin[i];
        if (begin[i] < 0 || y->dim[i] < 1 || begin[i] > x->dim[i] - y->dim[i]) {
            return mirt__fail(MIRT_E_SHAPE, "%lld elements from %lld on are not within the %lld of axis %d",
                              (long long)y->dim[i], (long long)begin[i], (long long)x->dim[i], i), false;
        }
    }
    return mirt__declare(node, node->in[0]->dtype, y);
}

static void mirt__slice_run(const mirt__call *call) {
    mirt__move m = mirt__move_of(call, 0, &call->node->out[0]->shape);
    m.x = mirt__move_at(call->in[0], m.from, MIRT__OF(&call->node->a, move)->begin, m.rank, m.dtype);
    call->kernels->move(&m, &call->where);
}

MIRT__TRAINING void mirt__slice_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    const mirt_shape *x = &node->in[0]->shape;
    const int64_t *begin = MIRT__OF(&node->a, move)->begin;
    int64_t after[MIRT_MAX_RANK];
    for (int i = 0; i < x->rank; i++) after[i] = x->dim[i] - begin[i] - node->out[0]->shape.dim[i];
    dx[0] = mirt__fitted(MIRT__OP_pad, dy[0], begin, after, 0);
}

/* Slice and pad: the attributes name every axis. */
static bool mirt__move_fits(const mirt__attrs *a, mirt_tensor *const *in, int num_in) {
    (void)num_in;
    return in[0]->shape.rank == a->shape.rank;
}

MIRT__OP_ROW(slice, mirt__slice_shape, mirt__slice_run,
    MIRT__SET_GRADIENT(mirt__slice_gradient) MIRT__IS(row_wise) MIRT__IS(keeps_range)
    MIRT__SAVED(1, 1, MIRT__SAVES_begin | MIRT__SAVES_shape) MIRT__SET(fits, mirt__move_fits))

MIRT_API mirt_tensor *mirt_slice(mirt_tensor *x, const int64_t *begin, const int64_t *size) {
    return mirt__need_lists(x, begin, size, "slice") ? mirt__slice_op(x, begin, size) : NULL;
}

MIRT_API mirt_tensor *mirt_split_tensor(mirt_tensor *x, int n, int axis, mirt_tensor **out) {
    int64_t begin[MIRT_MAX_RANK] = {0}, size[MIRT_MAX_RANK];
    for (int i = 0; out && i < n; i++) out[i] = NULL;
    if (!mirt__need_lists(x, out, out, "split")) return NULL;
    const int at = axis < 0 ? axis + x->shape.rank : axis;
    for (int i = 0; i < MIRT_MAX_RANK; i++) size[i] = -1;
    const int64_t whole = at >= 0 && at < x->shape.rank ? x->shape.dim[at] : 0;
    if (n < 1 || whole < n || whole % n) {
        char text[96];
        mirt__fail(MIRT_E_SHAPE, "split: %s does not divide into %d equal parts along axis %d",
                   mirt__shape_text(&x->shape, text), n, axis);
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    size[at] = whole / n;
    for (int i = 0; i < n; i++, begin[at] += size[at]) out[i] = mirt__slice_op(x, begin, size);
    for (int i = 0; i < n && !out[n - 1]; i++) out[i] = NULL;
    return out[0];
}

static bool mirt__pad_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    const int64_t *before = MIRT__OF(&node->a, move)->begin, *after = node->a.shape.dim;
    for (int i = 0; i < y.rank; i++) {
        if (y.dim[i] == MIRT_ROWS) {
            if (!mirt__move_keeps_rows(node, before[i] == 0 && after[i] == 0)) return false;
            continue;
        }
        if (before[i] < 0 || after[i] < 0) {
            return mirt__fail(MIRT_E_INVALID, "an axis cannot be padded by less than nothing; mirt_slice cuts"), false;
        }
        if (before[i] > MIRT__MAX_ELEMENTS || after[i] > MIRT__MAX_ELEMENTS) {
            return mirt__fail(MIRT_E_SHAPE, "makes too many elements"), false;
        }
        y.dim[i] += before[i] + after[i];
    }
    if (node->in[0]->dtype != MIRT_FLOAT32 && node->a.scale != 0) {
        return mirt__fail(MIRT_E_INVALID, "pads %s with 0 only", mirt__dtype_name(node->in[0]->dtype)), false;
    }
    return mirt__declare(node, node->in[0]->dtype, &y);
}

/* Zero bytes, which are a zero of any dtype: no byte is another than itself. */
static void mirt__pad_clear(const mirt__call *call) {
    mirt__logic l;
    memset(&l, 0, sizeof l);
    l.kind = MIRT__IS_NOT_EQUAL;
    l.dtype = MIRT_UINT8;
    l.rank = 1;
    l.dim[0] = (int64_t)mirt__tensor_bytes(call->node->out[0], call->rows);
    l.stride[0][0] = l.stride[1][0] = 1;
    l.in[0] = l.in[1] = l.y = call->out[0];
    call->kernels->logic(&l, &call->where);
}

/* All becomes the value, then x goes into its place. */
static void mirt__pad_run(const mirt__call *call) {
    mirt__move m = mirt__move_of(call, 0, &call->node->in[0]->shape);
    if (m.dtype != MIRT_FLOAT32) mirt__pad_clear(call);
    else
        call->kernels->fill(mirt__out(call, 0), (mirt__real)call->node->a.scale,
                            mirt__elements(call->node->out[0], call->rows), &call->where);
    m.y = mirt__move_at(call->out[0], m.to, MIRT__OF(&call->node->a, move)->begin, m.rank, m.dtype);
    call->kernels->move(&m, &call->where);
}

MIRT__TRAINING void mirt__pad_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__slice_op(dy[0], MIRT__OF(&node->a, move)->begin, node->in[0]->shape.dim);
}

MIRT__OP_ROW(pad, mirt__pad_shape, mirt__pad_run,
    MIRT__SET_GRADIENT(mirt__pad_gradient) MIRT__IS(row_wise) MIRT__IS(keeps_range)
    MIRT__SAVED(1, 1, MIRT__SAVES_begin | MIRT__SAVES_shape | MIRT__SAVES_scale) MIRT__SET(fits, mirt__move_fits))

MIRT_API mirt_tensor *mirt_pad(mirt_tensor *x, const int64_t *before, const int64_t *after, float value) {
    return mirt__need_lists(x, before, after, "pad") ? mirt__fitted(MIRT__OP_pad, x, before, after, value) : NULL;
}

static bool mirt__gather_shape(mirt__node *node) {
    const mirt_tensor *table = node->in[0], *indices = node->in[1];
    mirt_shape y = indices->shape;
    if (!mirt__need_float(node, 1)) return false;
    if (indices->dtype != MIRT_INT32 && indices->dtype != MIRT_UINT8) {
        return mirt__fail(MIRT_E_INVALID, "takes int32 or uint8 indices, not %s", mirt__dtype_name(indices->dtype)),
               false;
    }
    if (table->shape.rank < 1 || mirt__is_batched(&table->shape))
        return mirt__fail(MIRT_E_SHAPE, "takes rows of a table, not of a batch"), false;
    if (y.rank + table->shape.rank - 1 > MIRT_MAX_RANK)
        return mirt__fail(MIRT_E_SHAPE, "makes more than %d axes", MIRT_MAX_RANK), false;
    for (int i = 1; i < table->shape.rank; i++) y.dim[y.rank++] = table->shape.dim[i];
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

/* Forward and, of the table's gradient, back. */
static void mirt__gather_run(const mirt__call *call) {
    const bool grad = MIRT__TRAINS && call->node->id == MIRT__OP_gather_grad;
    const mirt_shape *table = grad ? &call->node->a.shape : &call->node->in[0]->shape;
    mirt__gather g;
    g.n = table->dim[0];
    g.width = g.n ? mirt__shape_count(table) / g.n : 0;
    g.count = mirt__elements(call->node->in[1], call->rows);
    g.dtype = call->node->in[1]->dtype;
    g.indices = call->in[1];
    g.x = mirt__in(call, 0);
    g.y = mirt__out(call, 0);
    if (grad) call->kernels->gather_grad(&g, &call->where);
    else call->kernels->gather(&g, &call->where);
}

MIRT__TRAINING void mirt__gather_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_gather_grad);
    a.shape = node->in[0]->shape;
    dx[0] = mirt__apply_two(MIRT__OP_gather_grad, &a, dy[0], node->in[1]);
}

MIRT__OP_ROW(gather, mirt__gather_shape, mirt__gather_run,
    MIRT__SET_GRADIENT(mirt__gather_gradient) MIRT__IS(row_wise) MIRT__SAVED(2, 2, 0))
MIRT__TRAINING_ROW(gather_grad, mirt__shape_given, mirt__gather_run, )

MIRT_API mirt_tensor *mirt_gather(mirt_tensor *table, mirt_tensor *indices) {
    return mirt__apply_two(MIRT__OP_gather, NULL, table, indices);
}
