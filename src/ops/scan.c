#include "ops.h"
/* Running sums, places of extremes and sparsemax along an axis. */

/* scan: a.kind (mirt__scan_kind) along the family's axis. */

MIRT__LIB bool mirt__take_axis(mirt__node *node, const mirt_shape *x) {
    int *own = &MIRT__OF(&node->a, axis)->axis;
    const int axis = *own < 0 ? *own + x->rank : *own;
    char text[96];
    if (axis < 0 || axis >= x->rank) {
        return mirt__fail(MIRT_E_SHAPE, "%s has no axis %d", mirt__shape_text(x, text), *own), false;
    }
    if (x->dim[axis] == MIRT_ROWS) {
        mirt__fail(MIRT_E_SHAPE, "axis %d is the rows of a batch, which are divided among replicas", *own);
        return false;
    }
    *own = axis;
    return true;
}

MIRT__TRAINING bool mirt__scan_finds(const mirt__node *node) {
    return node->a.kind == MIRT__ARGMAX || node->a.kind == MIRT__ARGMIN;
}

static bool mirt__scan_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    if (!mirt__need_float(node, 1) || !mirt__take_axis(node, &y)) return false;
    const int axis = MIRT__OF(&node->a, axis)->axis;
    if (!mirt__scan_finds(node)) return mirt__declare(node, MIRT_FLOAT32, &y);
    if (y.dim[axis] > INT32_MAX) {
        return mirt__fail(MIRT_E_SHAPE, "an axis of %lld is too long for int32", (long long)y.dim[axis]), false;
    }
    y.rank--;
    for (int i = axis; i < y.rank; i++) y.dim[i] = y.dim[i + 1];
    return mirt__declare(node, MIRT_INT32, &y);
}

static void mirt__scan_run(const mirt__call *call) {
    const mirt_shape *x = &call->node->in[0]->shape;
    const int axis = MIRT__OF(&call->node->a, axis)->axis;
    mirt__scan s;
    s.kind = (mirt__scan_kind)call->node->a.kind;
    s.outer = s.inner = 1;
    s.n = x->dim[axis];
    for (int i = 0; i < x->rank; i++) {
        if (i < axis) s.outer *= mirt__dim_at(x, i, call->rows);
        if (i > axis) s.inner *= x->dim[i];
    }
    s.x = mirt__in(call, 0);
    s.y = call->out[0];
    call->kernels->scan(&s, &call->where);
}

static mirt_tensor *mirt__scan_op(int kind, mirt_tensor *x, int axis) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_scan);
    a.kind = kind;
    MIRT__OF(&a, axis)->axis = axis;
    return mirt__apply(MIRT__OP_scan, &a, &x, 1);
}

/* Of sparsemax: dy minus its mean over what is not 0, there; 0 elsewhere. */
MIRT__TRAINING mirt_tensor *mirt__sparsemax_gradient(mirt_tensor *y, mirt_tensor *dy, unsigned axes) {
    mirt_tensor *zero = mirt__scalar_op(y->node->graph, 0), *one = mirt__scalar_op(y->node->graph, 1),
                *kept = mirt__logic_op(MIRT__IS_LESS, zero, y),
                *count = mirt__reduce_op(MIRT__REDUCE_SUM, mirt__where_op(kept, one, zero), axes, true),
                *sum = mirt__reduce_op(MIRT__REDUCE_SUM, mirt__where_op(kept, dy, zero), axes, true);
    return mirt__where_op(kept, mirt__binary_op(MIRT__SUBTRACT, dy, mirt__binary_op(MIRT__DIVIDE, sum, count)), zero);
}

/* Places are int32, through which no gradient passes. */
MIRT__TRAINING void mirt__scan_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    const int kind = node->a.kind == MIRT__CUMSUM ? MIRT__CUMSUM_BACK : MIRT__CUMSUM,
              axis = MIRT__OF(&node->a, axis)->axis;
    dx[0] = node->a.kind == MIRT__SPARSEMAX ? mirt__sparsemax_gradient(node->out[0], dy[0], 1u << axis)
                                            : mirt__scan_op(kind, dy[0], axis);
}

MIRT__OP_ROW(scan, mirt__scan_shape, mirt__scan_run,
    MIRT__SET_GRADIENT(mirt__scan_gradient) MIRT__IS(row_wise) MIRT__SAVED(1, 1, MIRT__SAVES_kind | MIRT__SAVES_axis))

MIRT_API mirt_tensor *mirt_argmax(mirt_tensor *x, int axis) { return mirt__scan_op(MIRT__ARGMAX, x, axis); }
MIRT_API mirt_tensor *mirt_argmin(mirt_tensor *x, int axis) { return mirt__scan_op(MIRT__ARGMIN, x, axis); }
MIRT_API mirt_tensor *mirt_sparsemax(mirt_tensor *x, int axis) { return mirt__scan_op(MIRT__SPARSEMAX, x, axis); }
MIRT_API mirt_tensor *mirt_cumsum(mirt_tensor *x, int axis) { return mirt__scan_op(MIRT__CUMSUM, x, axis); }
