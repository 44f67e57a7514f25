#include "ops.h"
/* Ops on single elements: unary, binary, bias, activations. */

/* unary: a.kind (mirt__unary_kind), a.scale, a.offset. binary: a.kind (mirt__binary_kind), a.scale and
   a.offset of the unary kind whose gradient it is; numpy broadcasting. broadcast: a.kind MIRT__REDUCE_MEAN means divide
   by the number of repeats. bias_add. */

static bool mirt__unary_shape(mirt__node *node) {
    const mirt__attrs *a = &node->a;
    if (a->kind == MIRT__COPY) return mirt__shape_kept(node);
    if (a->kind == MIRT__CLIP && !(a->scale <= a->offset)) {
        return mirt__fail(MIRT_E_INVALID, "clip: %g to %g is no range", (double)a->scale, (double)a->offset), false;
    }
    if (a->kind != MIRT__CLIP && !(isfinite(a->scale) && isfinite(a->offset))) {
        return mirt__fail(MIRT_E_INVALID, "%g, %g: its numbers must be finite", (double)a->scale, (double)a->offset),
               false;
    }
    return mirt__need_float(node, 1) && mirt__shape_kept(node);
}

static void mirt__unary_run(const mirt__call *call) {
    mirt__unary u;
    u.kind = (mirt__unary_kind)call->node->a.kind;
    u.x_dtype = call->node->in[0]->dtype;
    u.y_dtype = call->node->out[0]->dtype;
    u.count = mirt__elements(call->node->out[0], call->rows);
    u.x = call->in[0];
    u.y = call->out[0];
    u.scale = call->node->a.scale;
    u.offset = call->node->a.offset;
    if (mirt__dtype_known(u.x_dtype) && u.x_dtype != MIRT_FLOAT32) mirt__copy_run(call);
    else call->kernels->unary(&u, &call->where);
}

static mirt_tensor *mirt__binary_with(mirt__binary_kind kind, mirt_tensor *a, mirt_tensor *b, float scale,
                                      float offset) {
    mirt__attrs attrs = mirt__attrs_of(MIRT__OP_binary);
    attrs.kind = (int)kind;
    attrs.scale = scale;
    attrs.offset = offset;
    return mirt__apply_two(MIRT__OP_binary, &attrs, a, b);
}

MIRT__LIB mirt_tensor *mirt__binary_op(mirt__binary_kind kind, mirt_tensor *a, mirt_tensor *b) {
    return mirt__binary_with(kind, a, b, 0, 0);
}

MIRT__TRAINING mirt_tensor *mirt__times(mirt_tensor *a, mirt_tensor *b) {
    return mirt__binary_op(MIRT__MULTIPLY, a, b);
}
/* Of a repeated tensor, before it is repeated. */
MIRT__TRAINING mirt_tensor *mirt__affine(mirt_tensor *x, float scale, float offset) {
    if (!x || x->node->id != MIRT__OP_broadcast || offset != 0) return mirt__unary_op(MIRT__AFFINE, x, scale, offset);
    return mirt__broadcast_op(mirt__unary_op(MIRT__AFFINE, x->node->in[0], scale, 0), x->node->in[1],
                              x->node->a.kind == MIRT__REDUCE_MEAN);
}

#define MIRT__GRADIENT_PASS(tensor) dx[0] = tensor; break;
#define MIRT__GRADIENT_SLOPE(kind, of) dx[0] = mirt__binary_with(kind, dy, of, node->a.scale, node->a.offset); break;
#define MIRT__GRADIENT_END break;
#define MIRT__GRADIENT_CASE(number, id, label, function, reference, fast, gpu, gradient) \
    case MIRT__##id: MIRT__GRADIENT_##gradient

MIRT__TRAINING void mirt__unary_gradient(mirt__node *node, mirt_tensor *const *dys, mirt_tensor **dx) {
    mirt_tensor *x = node->in[0], *y = node->out[0], *dy = dys[0];
    switch ((mirt__unary_kind)node->a.kind) { MIRT__UNARY_LIST(MIRT__GRADIENT_CASE) }
}

#undef MIRT__GRADIENT_PASS
#undef MIRT__GRADIENT_SLOPE
#undef MIRT__GRADIENT_END
#undef MIRT__GRADIENT_CASE

MIRT__TRAINING mirt__extent mirt__unary_extent(const mirt__node *node, const mirt__extent in[2]) {
    const int kind = node->a.kind;
    const bool linear = kind == MIRT__COPY || kind == MIRT__NEGATIVE || (kind == MIRT__AFFINE && node->a.offset == 0);
    return linear ? in[0] : MIRT__EXTENT_OTHER;
}

MIRT__OP_ROW(unary, mirt__unary_shape, mirt__unary_run,
    MIRT__SET_GRADIENT(mirt__unary_gradient) MIRT__IS(row_wise) MIRT__SET_EXTENT(mirt__unary_extent)
    MIRT__SET(overwrites, MIRT__INPUTS_ALL) MIRT__IS(half_elements)
    MIRT__SAVED(1, 1, MIRT__SAVES_kind | MIRT__SAVES_scale | MIRT__SAVES_offset))

MIRT__LIB mirt_tensor *mirt__unary_op(mirt__unary_kind kind, mirt_tensor *x, float scale, float offset) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_unary);
    a.kind = (int)kind;
    a.scale = scale;
    a.offset = offset;
    return mirt__apply(MIRT__OP_unary, &a, &x, 1);
}

MIRT__LIB bool mirt__broadcast_shape(const mirt_shape *a, const mirt_shape *b, mirt_shape *out) {
    memset(out, 0, sizeof *out);
    out->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < out->rank; i++) {
        int ia = i - (out->rank - a->rank), ib = i - (out->rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (da != db && da != 1 && db != 1) {
            char ta[96], tb[96];
            mirt__fail(MIRT_E_SHAPE, "shapes %s and %s cannot be broadcast together", mirt__shape_text(a, ta),
                       mirt__shape_text(b, tb));
            return false;
        }
        out->dim[i] = da == 1 ? db : da;
        if (out->dim[i] == MIRT_ROWS && i > 0) {
            mirt__fail(MIRT_E_SHAPE, "the rows of a batch must come first; reshape the other side to more axes");
            return false;
        }
    }
    return true;
}

static bool mirt__binary_shape(mirt__node *node) {
    mirt_shape shape;
    return mirt__need_float(node, 2) && mirt__broadcast_shape(&node->in[0]->shape, &node->in[1]->shape, &shape) &&
           mirt__declare(node, MIRT_FLOAT32, &shape);
}

MIRT__LIB void mirt__broadcast_strides(const mirt_shape *x, const mirt_shape *out, int64_t stride[MIRT_MAX_RANK]) {
    int64_t step = 1;
    for (int i = out->rank - 1, k = x->rank - 1; i >= 0; i--, k--) {
        bool repeats = k < 0 || x->dim[k] == 1;
        stride[i] = repeats ? 0 : step;
        if (!repeats)
            step *= x->dim[k] == MIRT_ROWS ? 1 : x->dim[k]; /* rows come first: nothing is left to step over */
    }
}

static void mirt__binary_args(const mirt__call *call, mirt__binary *b) {
    const mirt_shape *out = &call->node->out[0]->shape;
    memset(b, 0, sizeof *b);
    b->rank = out->rank;
    for (int i = 0; i < out->rank; i++) b->dim[i] = mirt__dim_at(out, i, call->rows);
    b->scale = call->node->a.scale;
    b->offset = call->node->a.offset;
    b->a_dtype = call->node->in[0]->dtype;
    b->y_dtype = call->node->out[0]->dtype;
    b->a = call->in[0];
    b->y = call->out[0];
    mirt__broadcast_strides(&call->node->in[0]->shape, out, b->a_stride);
}

static void mirt__binary_call(const mirt__call *call, mirt__binary_kind kind) {
    mirt__binary b;
    mirt__binary_args(call, &b);
    b.kind = kind;
    b.b_dtype = call->node->in[1]->dtype;
    b.b = call->in[1];
    mirt__broadcast_strides(&call->node->in[1]->shape, &call->node->out[0]->shape, b.b_stride);
    if (call->node->a.residual) {
        b.c_dtype = call->node->in[2]->dtype;
        b.c = call->in[2];
        mirt__broadcast_strides(&call->node->in[2]->shape, &call->node->out[0]->shape, b.c_stride);
    }
    call->kernels->binary(&b, &call->where);
}

static void mirt__binary_run(const mirt__call *call) { mirt__binary_call(call, (mirt__binary_kind)call->node->a.kind); }

MIRT__TRAINING_LIB mirt_tensor *mirt__unbroadcast(mirt_tensor *dy, const mirt_tensor *x) {
    if (!dy || mirt__shape_equal(&dy->shape, &x->shape)) return dy;
    unsigned axes = 0;
    int extra = dy->shape.rank - x->shape.rank;
    for (int i = 0; i < dy->shape.rank; i++) {
        if (i < extra || (x->shape.dim[i - extra] == 1 && dy->shape.dim[i] != 1)) axes |= 1u << i;
    }
    return mirt__reshape_op(mirt__reduce_op(MIRT__REDUCE_SUM, dy, axes, true), &x->shape);
}

MIRT__TRAINING void mirt__binary_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *a = node->in[0], *b = node->in[1], *da = dy[0], *db = dy[0];
    switch ((mirt__binary_kind)node->a.kind) {
    case MIRT__ADD: break;
    case MIRT__SUBTRACT:
        if (b->needs_grad) db = mirt__unary_op(MIRT__NEGATIVE, dy[0], 0, 0);
        break;
    case MIRT__MULTIPLY:
        if (a->needs_grad) da = mirt__times(dy[0], b);
        if (b->needs_grad) db = mirt__times(dy[0], a);
        break;
    case MIRT__DIVIDE:
        da = mirt__binary_op(MIRT__DIVIDE, dy[0], b);
        if (b->needs_grad) db = mirt__unary_op(MIRT__NEGATIVE, mirt__times(da, node->out[0]), 0, 0);
        break;
    case MIRT__MAXIMUM: /* of equals the first has the gradient, as in TensorFlow */
        mirt__where_gradient(mirt__logic_op(MIRT__IS_LESS_EQUAL, b, a), a, b, dy[0], dx);
        return;
    case MIRT__MINIMUM:
        mirt__where_gradient(mirt__logic_op(MIRT__IS_LESS_EQUAL, a, b), a, b, dy[0], dx);
        return;
    default:
        mirt__fail(MIRT_E_INVALID, "the gradient of a gradient is not available for activations");
        mirt__graph_poison(node->graph);
        return;
    }
    if (a->needs_grad) dx[0] = mirt__unbroadcast(da, a);
    if (b->needs_grad) dx[1] = mirt__unbroadcast(db, b);
}

MIRT__TRAINING mirt__extent mirt__binary_extent(const mirt__node *node, const mirt__extent in[2]) {
    const int kind = node->a.kind;
    if (kind == MIRT__ADD || kind == MIRT__SUBTRACT) return in[0] == in[1] ? in[0] : MIRT__EXTENT_OTHER;
    if (kind == MIRT__MULTIPLY && in[0] == MIRT__EXTENT_NONE) return in[1];
    return (kind == MIRT__MULTIPLY || kind == MIRT__DIVIDE) && in[1] == MIRT__EXTENT_NONE ? in[0] : MIRT__EXTENT_OTHER;
}

/* Readers of a lazy product read its image directly. */
static bool mirt__binary_half(const mirt__node *node) { return node->out[0]->lazy; }

MIRT__OP_ROW(binary, mirt__binary_shape, mirt__binary_run,
    MIRT__SET_GRADIENT(mirt__binary_gradient) MIRT__IS(row_wise) MIRT__SET_EXTENT(mirt__binary_extent)
    MIRT__SET(overwrites, MIRT__INPUTS_ALL) MIRT__SET(lazy, MIRT__LAZY_GATE) MIRT__SET(half, mirt__binary_half)
    MIRT__SET(half_in, MIRT__INPUT(0)) MIRT__IS(half_elements) MIRT__SAVED(2, 2, MIRT__SAVES_kind))

static bool mirt__broadcast_to_shape(mirt__node *node) {
    return mirt__need_float(node, 1) && mirt__declare(node, MIRT_FLOAT32, &node->in[1]->shape);
}

/* A product with a constant that repeats everywhere: the copy and the division of a mean in one pass. The output may
   still have the input's shape, for a reader that repeats it. */
static void mirt__broadcast_run(const mirt__call *call) {
    mirt__real factor = 1;
    int64_t repeats = mirt__elements(call->node->in[0], call->rows);
    if (call->node->a.kind == MIRT__REDUCE_MEAN && repeats)
        factor = (mirt__real)repeats / (mirt__real)mirt__elements(call->node->in[1], call->rows);
    mirt__binary b;
    mirt__binary_args(call, &b);
    b.kind = MIRT__MULTIPLY;
    b.b = &factor;
    b.number = true;
    b.scale = (float)factor;
    call->kernels->binary(&b, &call->where);
}

MIRT__OP_ROW(broadcast, mirt__broadcast_to_shape, mirt__broadcast_run,
    MIRT__IS(row_wise) MIRT__SET_EXTENT(mirt__extent_kept) MIRT__SET(shape_only, MIRT__INPUT(1))
    MIRT__IS(half_elements))

MIRT__TRAINING_LIB mirt_tensor *mirt__broadcast_op(mirt_tensor *x, mirt_tensor *like, bool mean) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_broadcast);
    a.kind = mean ? MIRT__REDUCE_MEAN : MIRT__REDUCE_SUM;
    return mirt__apply_two(MIRT__OP_broadcast, &a, x, like);
}

static bool mirt__bias_add_shape(mirt__node *node) {
    if (!mirt__need_float(node, 2)) return false;
    if (node->in[1]->shape.rank != 1 || node->in[1]->shape.dim[0] != mirt__last_dim(node->in[0])) {
        char tx[96], tb[96];
        mirt__fail(MIRT_E_SHAPE, "bias %s does not fit the last axis of %s", mirt__shape_text(&node->in[1]->shape, tb),
                   mirt__shape_text(&node->in[0]->shape, tx));
        return false;
    }
    return mirt__shape_kept(node);
}

static void mirt__bias_add_run(const mirt__call *call) { mirt__binary_call(call, MIRT__ADD); }

MIRT__TRAINING void mirt__bias_add_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = dy[0];
    if (node->in[1]->needs_grad) dx[1] = mirt__unbroadcast(dy[0], node->in[1]);
}

MIRT__OP_ROW(bias_add, mirt__bias_add_shape, mirt__bias_add_run,
    MIRT__SET_GRADIENT(mirt__bias_add_gradient) MIRT__IS(row_wise) MIRT__IS(weighted_sum)
    MIRT__SET(overwrites, MIRT__INPUT(0)) MIRT__IS(half_elements))

MIRT__LIB mirt_tensor *mirt__bias_add_op(mirt_tensor *x, mirt_tensor *bias) {
    return mirt__apply_two(MIRT__OP_bias_add, NULL, x, bias);
}

MIRT__LIB mirt_activation_kind mirt__activation_of(const mirt__node *node) {
    for (int i = 0; node->id == MIRT__OP_unary && i < MIRT__ACTIVATION_COUNT; i++) {
        const mirt__activation_class *c = mirt__activation_get((mirt_activation_kind)i);
        if (c->unary != MIRT__COPY && c->unary == (mirt__unary_kind)node->a.kind && node->a.scale == c->scale)
            return (mirt_activation_kind)i;
    }
    return MIRT_LINEAR;
}

MIRT__TRAINING_LIB mirt_activation_kind mirt__activation_grad_of(const mirt__node *node) {
    for (int i = 0; node->id == MIRT__OP_binary && i < MIRT__ACTIVATION_COUNT; i++) {
        const mirt__activation_class *c = mirt__activation_get((mirt_activation_kind)i);
        if (c->fused && c->grad == (mirt__binary_kind)node->a.kind) return (mirt_activation_kind)i;
    }
    return MIRT_LINEAR;
}

MIRT__LIB mirt_tensor *mirt__activation_op(mirt_activation_kind kind, mirt_tensor *x) {
    const mirt__activation_class *activation = mirt__activation_get(kind);
    if (!x || kind == MIRT_LINEAR) return x;
    switch (kind) {
    case MIRT_SOFTMAX: return mirt_softmax(x);
    case MIRT_LOG_SOFTMAX: return mirt_log_softmax(x);
    case MIRT_CELU: return mirt_celu(x, 1);
    case MIRT_GLU: return mirt_glu(x, -1);
    case MIRT_HARD_SHRINK: return mirt_hard_shrink(x, 0.5f);
    case MIRT_HARD_TANH: return mirt_hard_tanh(x);
    case MIRT_LOG_SIGMOID: return mirt_log_sigmoid(x);
    case MIRT_SOFT_SHRINK: return mirt_soft_shrink(x, 0.5f);
    case MIRT_SPARSE_PLUS: return mirt_sparse_plus(x);
    case MIRT_SPARSE_SIGMOID: return mirt_sparse_sigmoid(x);
    case MIRT_SQUAREPLUS: return mirt_squareplus(x, 4);
    case MIRT_TANH_SHRINK: return mirt_tanh_shrink(x);
    case MIRT_SPARSEMAX: return mirt_sparsemax(x, -1);
    default: break;
    }
    if (activation) return mirt__unary_op(activation->unary, x, activation->scale, 0);
    mirt__fail(MIRT_E_INVALID, "invalid activation (%d); it must be one of mirt_activation_kind", (int)kind);
    mirt__graph_poison(x->node->graph);
    return NULL;
}

MIRT__TRAINING_LIB mirt_tensor *mirt__activation_grad_op(mirt_activation_kind kind, mirt_tensor *dy, mirt_tensor *y) {
    const mirt__activation_class *activation = mirt__activation_get(kind);
    return activation && activation->fused ? mirt__binary_op(activation->grad, dy, y) : dy;
}

/* The public functions: mirt_<label> of the rows that have one. */
#define MIRT__FUNCTION_NONE(id, label)
#define MIRT__FUNCTION_0(id, label) \
    MIRT_API mirt_tensor *mirt_##label(mirt_tensor *x) { return mirt__unary_op(MIRT__##id, x, 0, 0); }
#define MIRT__FUNCTION_1(id, label) \
    MIRT_API mirt_tensor *mirt_##label(mirt_tensor *x, float scale) { return mirt__unary_op(MIRT__##id, x, scale, 0); }
#define MIRT__FUNCTION_2(id, label) \
    MIRT_API mirt_tensor *mirt_##label(mirt_tensor *x, float scale, float offset) { \
        return mirt__unary_op(MIRT__##id, x, scale, offset); \
    }
#define MIRT__FUNCTION(number, id, label, function, ...) MIRT__FUNCTION_##function(id, label)
MIRT__UNARY_LIST(MIRT__FUNCTION)
#undef MIRT__FUNCTION_0
#define MIRT__FUNCTION_0(id, label) \
    MIRT_API mirt_tensor *mirt_##label(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__##id, a, b); }
MIRT__BINARY_LIST(MIRT__FUNCTION)
#undef MIRT__FUNCTION_NONE
#undef MIRT__FUNCTION_0
#undef MIRT__FUNCTION_1
#undef MIRT__FUNCTION_2
#undef MIRT__FUNCTION
