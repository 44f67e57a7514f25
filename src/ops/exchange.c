#include "ops.h"
/* All-reduce of values among replicas within a step, for synchronized batch norm. */

/* all_reduce: a.kind (mirt__all_reduce_kind). It cuts a program: see program.h. Run by itself it is that
   of one replica, where every tensor is its own sum. */

static bool mirt__all_reduce_shape(mirt__node *node) {
    char text[96];
    if (!mirt__need_float(node, node->num_in)) return false;
    if (mirt__is_batched(&node->in[0]->shape)) {
        return mirt__fail(MIRT_E_SHAPE, "takes a value a replica, not the rows of %s: reduce them first",
                          mirt__shape_text(&node->in[0]->shape, text)),
               false;
    }
    for (int i = 0; i < node->num_in; i++) {
        if (!mirt__declare(node, MIRT_FLOAT32, &node->in[i]->shape)) return false;
    }
    return true;
}

/* Every replica's result depends on every replica's value. */
static void mirt__all_reduce_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    if (node->a.kind == MIRT__ALL_REDUCE_MOMENTS) {
        mirt__fail(MIRT_E_INVALID, "combined statistics are differentiated by the normalization that reads them");
        mirt__graph_poison(node->graph);
        return;
    }
    mirt_tensor *sum = dy[0];
    dx[0] = mirt__all_reduce_op(&sum, 1, MIRT__ALL_REDUCE_SUM);
    if (node->a.kind == MIRT__ALL_REDUCE_MEAN)
        dx[0] = mirt__binary_op(MIRT__MULTIPLY, dx[0], mirt__loss_weight_op(node->graph, MIRT__WEIGHT_SHARE));
}

static mirt__extent mirt__all_reduce_extent(const mirt__node *node, const mirt__extent in[2]) {
    (void)node;
    (void)in;
    return MIRT__EXTENT_NONE;
}

MIRT__OP_ROW(all_reduce, mirt__all_reduce_shape, mirt__copy_run,
    MIRT__SET_GRADIENT(mirt__all_reduce_gradient) MIRT__IS(meets) MIRT__SET_EXTENT(mirt__all_reduce_extent))

MIRT__LIB mirt_tensor *mirt__all_reduce_op(mirt_tensor **inout, int count, int kind) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_all_reduce);
    a.kind = kind;
    mirt_tensor *first = mirt__apply(MIRT__OP_all_reduce, &a, inout, count);
    for (int i = 0; first && i < count; i++) inout[i] = first->node->out[i];
    return first;
}
