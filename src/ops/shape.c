#include "ops.h"
/* Reshaping, casting and one-hot encoding. */

/* reshape: a.shape. cast: a.dtype. one_hot: the family's depth. */

static bool mirt__reshape_shape(mirt__node *node) {
    const mirt_tensor *x = node->in[0];
    bool rows_kept = mirt__is_batched(&x->shape) == mirt__is_batched(&node->a.shape);
    if (!rows_kept || mirt__shape_count(&x->shape) != mirt__shape_count(&node->a.shape)) {
        char from[96], to[96];
        mirt__fail(MIRT_E_SHAPE, "%s cannot be reshaped to %s", mirt__shape_text(&x->shape, from),
                   mirt__shape_text(&node->a.shape, to));
        return false;
    }
    return mirt__declare(node, x->dtype, &node->a.shape);
}

MIRT__TRAINING void mirt__reshape_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__reshape_op(dy[0], &node->in[0]->shape);
}

MIRT__OP_ROW(reshape, mirt__reshape_shape, NULL,
    MIRT__SET_GRADIENT(mirt__reshape_gradient) MIRT__IS(alias) MIRT__IS(row_wise) MIRT__IS(keeps_range)
    MIRT__SET_EXTENT(mirt__extent_kept) MIRT__SAVED(1, 1, MIRT__SAVES_shape))

MIRT__LIB mirt_tensor *mirt__reshape_op(mirt_tensor *x, const mirt_shape *shape) {
    if (!x || mirt__shape_equal(&x->shape, shape)) return x;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_reshape);
    a.shape = *shape;
    return mirt__apply(MIRT__OP_reshape, &a, &x, 1);
}

MIRT_API mirt_tensor *mirt_reshape(mirt_tensor *x, mirt_shape shape) {
    if (!x) return NULL;
    bool batched = mirt__is_batched(&x->shape);
    if (shape.rank < 0 || shape.rank > MIRT_MAX_RANK - batched) {
        mirt__fail(MIRT_E_SHAPE, "reshape: %d axes; at most %d are possible%s", shape.rank, MIRT_MAX_RANK - batched,
                   batched ? " besides the rows" : "");
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    if (batched) {
        for (int i = shape.rank; i > 0; i--) shape.dim[i] = shape.dim[i - 1];
        shape.dim[0] = MIRT_ROWS;
        shape.rank++;
    }
    return mirt__reshape_op(x, &shape);
}

static bool mirt__cast_shape(mirt__node *node) {
    if (!mirt__dtype_known(node->a.dtype))
        return mirt__fail(MIRT_E_INVALID, "invalid dtype (%d); it must be one of mirt_dtype", (int)node->a.dtype),
               false;
    return mirt__declare(node, node->a.dtype, &node->in[0]->shape);
}

static bool mirt__cast_half(const mirt__node *node) { return node->a.half; }

MIRT__OP_ROW(cast, mirt__cast_shape, mirt__copy_run,
    MIRT__IS(row_wise) MIRT__IS(keeps_range) MIRT__SET_EXTENT(mirt__extent_kept) MIRT__SET(half, mirt__cast_half)
    MIRT__IS(half_out) MIRT__SAVED(1, 1, MIRT__SAVES_dtype))

MIRT_API mirt_tensor *mirt_cast(mirt_tensor *x, mirt_dtype dtype) {
    if (!x || x->dtype == dtype) return x;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_cast);
    a.dtype = dtype;
    return mirt__apply(MIRT__OP_cast, &a, &x, 1);
}

static bool mirt__one_hot_shape(mirt__node *node) {
    mirt_shape shape = node->in[0]->shape;
    const int64_t depth = MIRT__OF(&node->a, one_hot)->depth;
    if (node->in[0]->dtype == MIRT_FLOAT32)
        return mirt__fail(MIRT_E_INVALID, "takes int32 or uint8 indices, not float32"), false;
    if (depth < 1) return mirt__fail(MIRT_E_INVALID, "depth is %lld; it must be positive", (long long)depth), false;
    if (shape.rank == MIRT_MAX_RANK) return mirt__fail(MIRT_E_SHAPE, "makes more than %d axes", MIRT_MAX_RANK), false;
    shape.dim[shape.rank++] = depth;
    return mirt__declare(node, MIRT_FLOAT32, &shape);
}

static void mirt__one_hot_run(const mirt__call *call) {
    mirt__one_hot o;
    o.count = mirt__elements(call->node->in[0], call->rows);
    o.depth = MIRT__OF(&call->node->a, one_hot)->depth;
    o.dtype = mirt__bytes_dtype(call->node->in[0]);
    o.x = call->in[0];
    o.y = mirt__out(call, 0);
    call->kernels->one_hot(&o, &call->where);
}

MIRT__OP_ROW(one_hot, mirt__one_hot_shape, mirt__one_hot_run, MIRT__IS(row_wise) MIRT__SAVED(1, 1, MIRT__SAVES_depth))

MIRT_API mirt_tensor *mirt_one_hot(mirt_tensor *x, int64_t depth) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_one_hot);
    MIRT__OF(&a, one_hot)->depth = depth;
    return mirt__apply(MIRT__OP_one_hot, &a, &x, 1);
}

MIRT__OP_ROW(stop_gradient, mirt__shape_kept, NULL,
    MIRT__IS(alias) MIRT__IS(stops_gradient) MIRT__IS(row_wise) MIRT__SET_EXTENT(mirt__extent_kept)
    MIRT__SAVED(1, 1, 0))

MIRT_API mirt_tensor *mirt_stop_gradient(mirt_tensor *x) {
    return mirt__apply(MIRT__OP_stop_gradient, NULL, &x, 1);
}

MIRT_API mirt_shape mirt_tensor_shape(const mirt_tensor *x) {
    return x ? x->shape : mirt_make_shape(0, 0, 0, 0, 0, 0);
}
MIRT_API mirt_dtype mirt_tensor_dtype(const mirt_tensor *x) { return x ? x->dtype : MIRT_FLOAT32; }
