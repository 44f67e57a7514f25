#include "ops.h"
/* Sums, means, maxima and products over axes. */

/* a.kind (mirt__reduce_kind); of the family: axes, keepdims. */

static bool mirt__reduce_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape;
    const mirt__attrs_reduce *a = MIRT__OF(&node->a, reduce);
    if (!mirt__need_float(node, 1)) return false;
    if (a->axes >> x->rank) {
        return mirt__fail(MIRT_E_SHAPE, "axes 0x%x name an axis beyond rank %d", a->axes, x->rank), false;
    }
    mirt_shape y;
    memset(&y, 0, sizeof y);
    for (int i = 0; i < x->rank; i++) {
        bool reduced = a->axes >> i & 1;
        if (!reduced) y.dim[y.rank++] = x->dim[i];
        else if (a->keepdims) y.dim[y.rank++] = 1;
    }
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

static void mirt__reduce_args(const mirt__node *node, int64_t rows, mirt__reduce *r) {
    const mirt_shape *x = &node->in[0]->shape;
    memset(r, 0, sizeof *r);
    r->kind = (mirt__reduce_kind)node->a.kind;
    r->rank = x->rank;
    r->axes = MIRT__OF(&node->a, reduce)->axes;
    for (int i = 0; i < x->rank; i++) r->dim[i] = mirt__dim_at(x, i, rows);
}

static void mirt__reduce_run(const mirt__call *call) {
    mirt__reduce r;
    mirt__reduce_args(call->node, call->rows, &r);
    r.x = call->in[0];
    if (call->node->num_in > 1) r.by = call->in[1];
    r.x_dtype = call->node->in[0]->dtype;
    r.y = mirt__out(call, 0);
    call->kernels->reduce(&r, &call->where);
}

static void mirt__reduce_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__reduce r;
    mirt__reduce_args(node, rows, &r);
    out->scratch = mirt__reduce_scratch(&r);
}

/* y with its reduced axes put back as ones. */
MIRT__TRAINING mirt_tensor *mirt__keepdims(mirt_tensor *y, const mirt__node *node) {
    mirt_shape shape = node->in[0]->shape;
    for (int i = 0; i < shape.rank; i++) {
        if (MIRT__OF(&node->a, reduce)->axes >> i & 1) shape.dim[i] = 1;
    }
    return mirt__reshape_op(y, &shape);
}

MIRT__TRAINING void mirt__reduce_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *x = node->in[0];
    if (node->a.kind >= MIRT__REDUCE_MAX) {
        mirt_tensor *in[3] = {x, node->out[0], dy[0]};
        dx[0] = mirt__apply(MIRT__OP_reduce_max_grad, &node->a, in, 3);
    } else {
        /* Squares that are added up as they are made are not stored for their shape. */
        if (x->node->id == MIRT__OP_unary && x->node->a.kind == MIRT__SQUARE) x = x->node->in[0];
        dx[0] = mirt__broadcast_op(mirt__keepdims(dy[0], node), x, node->a.kind == MIRT__REDUCE_MEAN);
    }
}

MIRT__TRAINING mirt__extent mirt__reduce_extent(const mirt__node *node, const mirt__extent in[2]) {
    const bool sum = node->a.kind == MIRT__REDUCE_SUM;
    if (mirt__is_batched(&node->in[0]->shape)) return sum ? MIRT__EXTENT_SUM : MIRT__EXTENT_OTHER;
    return sum || node->a.kind == MIRT__REDUCE_MEAN ? in[0] : MIRT__EXTENT_OTHER;
}

static bool mirt__reduce_half(const mirt__node *node) {
    return node->a.kind == MIRT__REDUCE_SUM || node->a.kind == MIRT__REDUCE_MEAN;
}

/* What is multiplied. */
static int mirt__reduce_half_tied(const mirt__node *node, mirt_tensor **tied) {
    for (int k = 0; k < node->num_in; k++) tied[k] = node->in[k];
    return node->num_in;
}

MIRT__OP_ROW(reduce, mirt__reduce_shape, mirt__reduce_run,
    MIRT__SET_GRADIENT(mirt__reduce_gradient) MIRT__SET(workspace, mirt__reduce_workspace) MIRT__IS(row_wise)
    MIRT__SET_EXTENT(mirt__reduce_extent) MIRT__SET(half, mirt__reduce_half) MIRT__SET(half_in, MIRT__INPUTS_ALL)
    MIRT__SET(half_tied, mirt__reduce_half_tied)
    MIRT__SAVED(1, 1, MIRT__SAVES_kind | MIRT__SAVES_axes | MIRT__SAVES_keepdims))

MIRT__TRAINING void mirt__reduce_max_grad_run(const mirt__call *call) {
    mirt__reduce_max_grad g;
    mirt__reduce_args(call->node, call->rows, &g.s);
    g.s.x = call->in[0];
    g.s.y = (mirt__real *)call->in[1];
    g.dy = mirt__in(call, 2);
    g.dx = mirt__out(call, 0);
    call->kernels->reduce_max_grad(&g, &call->where);
}

MIRT__TRAINING_ROW(reduce_max_grad, mirt__shape_kept, mirt__reduce_max_grad_run,
    MIRT__SET(workspace, mirt__reduce_workspace))

MIRT__LIB mirt_tensor *mirt__reduce_op(mirt__reduce_kind kind, mirt_tensor *x, unsigned axes, bool keepdims) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_reduce);
    a.kind = (int)kind;
    MIRT__OF(&a, reduce)->axes = axes;
    MIRT__OF(&a, reduce)->keepdims = keepdims;
    return mirt__apply(MIRT__OP_reduce, &a, &x, 1);
}

static mirt_tensor *mirt__public_reduce(mirt__reduce_kind kind, mirt_tensor *x, unsigned axes, bool keepdims) {
    if (!x) return NULL;
    if (!axes) axes = ((1u << x->shape.rank) - 1) & ~(mirt__is_batched(&x->shape) ? 1u : 0u);
    return mirt__reduce_op(kind, x, axes, keepdims);
}

#define MIRT__FUNCTION(name, kind) \
    MIRT_API mirt_tensor *mirt_##name(mirt_tensor *x, unsigned axes, bool keepdims) { \
        return mirt__public_reduce(kind, x, axes, keepdims); \
    }
MIRT__FUNCTION(reduce_sum, MIRT__REDUCE_SUM)
MIRT__FUNCTION(reduce_mean, MIRT__REDUCE_MEAN)
MIRT__FUNCTION(reduce_max, MIRT__REDUCE_MAX)
MIRT__FUNCTION(reduce_min, MIRT__REDUCE_MIN)
#undef MIRT__FUNCTION
MIRT_API mirt_tensor *mirt_reduce_variance(mirt_tensor *x, unsigned axes, bool keepdims) {
    mirt_tensor *mean = mirt_reduce_mean(x, axes, true);
    return mirt_reduce_mean(mirt_square(mirt_subtract(x, mean)), axes, keepdims);
}
