#include "ops.h"
/* Comparisons, boolean operations and choices. */

/* logic: a.kind (mirt__logic_kind), numpy broadcasting. Comparisons take two tensors of one dtype and
   make bools; and, or, not take bools; where takes a bool and two of one dtype. */

static bool mirt__logic_shape(mirt__node *node) {
    const bool where = node->a.kind == MIRT__WHERE, truth = node->a.kind >= MIRT__AND && node->a.kind <= MIRT__NOT;
    const mirt_tensor *a = node->in[where], *b = node->num_in > where + 1 ? node->in[where + 1] : a;
    mirt_shape shape;
    if (where && node->in[0]->dtype != MIRT_BOOL) {
        return mirt__fail(MIRT_E_INVALID, "the condition is %s, not bool: compare or cast it first",
                          mirt__dtype_name(node->in[0]->dtype)),
               false;
    }
    if (a->dtype != b->dtype) {
        return mirt__fail(MIRT_E_INVALID, "%s and %s do not go together: cast one of them", mirt__dtype_name(a->dtype),
                          mirt__dtype_name(b->dtype)),
               false;
    }
    if (truth && a->dtype != MIRT_BOOL) {
        return mirt__fail(MIRT_E_INVALID, "takes bool, not %s: compare or cast it first", mirt__dtype_name(a->dtype)),
               false;
    }
    if (!mirt__broadcast_shape(&a->shape, &b->shape, &shape)) return false;
    mirt_shape all = shape;
    if (where && !mirt__broadcast_shape(&node->in[0]->shape, &shape, &all)) return false;
    return mirt__declare(node, where ? a->dtype : MIRT_BOOL, &all);
}

static void mirt__logic_run(const mirt__call *call) {
    const mirt_shape *out = &call->node->out[0]->shape;
    mirt__logic l;
    memset(&l, 0, sizeof l);
    l.kind = (mirt__logic_kind)call->node->a.kind;
    l.dtype = call->node->in[call->node->num_in - 1]->dtype;
    l.rank = out->rank;
    for (int i = 0; i < out->rank; i++) l.dim[i] = mirt__dim_at(out, i, call->rows);
    for (int k = 0; k < 3; k++) {
        const int from = k < call->node->num_in ? k : 0;
        l.in[k] = call->in[from];
        mirt__broadcast_strides(&call->node->in[from]->shape, out, l.stride[k]);
    }
    l.y = call->out[0];
    call->kernels->logic(&l, &call->where);
}

MIRT__TRAINING_LIB void mirt__where_gradient(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b, mirt_tensor *dy,
                                             mirt_tensor **dx) {
    mirt_tensor *zero = mirt__scalar_op(dy->node->graph, 0);
    if (a->needs_grad) dx[0] = mirt__unbroadcast(mirt__where_op(condition, dy, zero), a);
    if (b->needs_grad) dx[1] = mirt__unbroadcast(mirt__where_op(condition, zero, dy), b);
}

/* Only `where` passes gradients on; everything else makes bools. */
MIRT__TRAINING void mirt__logic_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt__where_gradient(node->in[0], node->in[1], node->in[2], dy[0], dx + 1);
}

static bool mirt__logic_fits(const mirt__attrs *a, mirt_tensor *const *in, int num_in) {
    (void)in;
    return num_in == (a->kind == MIRT__NOT ? 1 : a->kind == MIRT__WHERE ? 3 : 2);
}

MIRT__OP_ROW(logic, mirt__logic_shape, mirt__logic_run,
    MIRT__SET_GRADIENT(mirt__logic_gradient) MIRT__IS(row_wise) MIRT__SAVED(1, 3, MIRT__SAVES_kind)
    MIRT__SET(fits, mirt__logic_fits))

static mirt_tensor *mirt__logic_record(mirt__logic_kind kind, mirt_tensor *const *in, int num_in) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_logic);
    a.kind = (int)kind;
    return mirt__apply(MIRT__OP_logic, &a, in, num_in);
}

MIRT__LIB mirt_tensor *mirt__logic_op(mirt__logic_kind kind, mirt_tensor *a, mirt_tensor *b) {
    mirt_tensor *in[2] = {a, b};
    return mirt__logic_record(kind, in, kind == MIRT__NOT ? 1 : 2);
}

MIRT__LIB mirt_tensor *mirt__where_op(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b) {
    mirt_tensor *in[3] = {condition, a, b};
    return mirt__logic_record(MIRT__WHERE, in, 3);
}

#define MIRT__FUNCTION(name, kind, first, second) \
    MIRT_API mirt_tensor *mirt_##name(mirt_tensor *a, mirt_tensor *b) { return mirt__logic_op(kind, first, second); }
MIRT__FUNCTION(equal, MIRT__IS_EQUAL, a, b)
MIRT__FUNCTION(not_equal, MIRT__IS_NOT_EQUAL, a, b)
MIRT__FUNCTION(less, MIRT__IS_LESS, a, b)
MIRT__FUNCTION(less_equal, MIRT__IS_LESS_EQUAL, a, b)
MIRT__FUNCTION(greater, MIRT__IS_LESS, b, a)
MIRT__FUNCTION(greater_equal, MIRT__IS_LESS_EQUAL, b, a)
MIRT__FUNCTION(logical_and, MIRT__AND, a, b)
MIRT__FUNCTION(logical_or, MIRT__OR, a, b)
#undef MIRT__FUNCTION
MIRT_API mirt_tensor *mirt_logical_not(mirt_tensor *x) { return mirt__logic_op(MIRT__NOT, x, NULL); }
MIRT_API mirt_tensor *mirt_where(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b) {
    return mirt__where_op(condition, a, b);
}
