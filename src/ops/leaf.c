#include "ops.h"
/* Leaves of the graph: inputs, variables, and the weight of a sample's loss. */

MIRT__LIB mirt__attrs mirt__no_attrs(void) {
    mirt__attrs a;
    memset(&a, 0, sizeof a);
    return a;
}

MIRT__LIB bool mirt__in_training(const mirt__node *node, const mirt__mode *mode) {
    return node->a.training == MIRT_TRAINING_AUTO ? mode->training : node->a.training == MIRT_TRAINING_ON;
}

MIRT__LIB int64_t mirt__last_dim(const mirt_tensor *x) { return x->shape.rank ? x->shape.dim[x->shape.rank - 1] : 1; }

MIRT__LIB bool mirt__need_float(const mirt__node *node, int inputs) {
    for (int i = 0; i < inputs; i++) {
        if (node->in[i]->dtype == MIRT_FLOAT32) continue;
        mirt__fail(MIRT_E_INVALID, "takes float32, not %s: cast it first", mirt__dtype_name(node->in[i]->dtype));
        return false;
    }
    return true;
}

MIRT__LIB mirt__reader mirt__reader_of(const mirt__call *call, int input) {
    mirt__reader r;
    r.data = call->in[input];
    r.dtype = call->node->in[input]->dtype;
    r.affine = call->node->a.affine;
    r.scale = call->node->a.scale;
    r.offset = call->node->a.offset;
    return r;
}

static bool mirt__leaf_shape(mirt__node *node) { return mirt__declare(node, node->a.dtype, &node->a.shape); }

static mirt_tensor *mirt__leaf(mirt__graph *graph, mirt__op_id id, int index, mirt_dtype dtype, const mirt_shape *shape) {
    mirt__attrs a = mirt__no_attrs();
    a.index = index;
    a.dtype = dtype;
    a.shape = *shape;
    return mirt__record(graph, id, &a, NULL, 0);
}

MIRT__LIB mirt_tensor *mirt__input_op(mirt__graph *graph, int slot, mirt_dtype dtype, const mirt_shape *shape) {
    return mirt__leaf(graph, MIRT__OP_input, slot, dtype, shape);
}

MIRT__LIB mirt_tensor *mirt__variable_op(mirt__graph *graph, int index, const mirt_shape *shape) {
    return mirt__leaf(graph, MIRT__OP_variable, index, MIRT_FLOAT32, shape);
}

MIRT__LIB mirt_tensor *mirt__loss_weight_op(mirt__graph *graph, mirt__weight_kind kind) {
    mirt_shape shape = mirt_make_shape(kind == MIRT__WEIGHT_SAMPLE, 0, 0, 0, 0, 0);
    mirt__attrs a = mirt__no_attrs();
    if (shape.rank) shape.dim[0] = MIRT_ROWS;
    a.kind = kind;
    a.shape = shape;
    return mirt__record(graph, MIRT__OP_loss_weight, &a, NULL, 0);
}

static void mirt__loss_weight_run(const mirt__call *call) {
    const mirt__step_info *run = call->run;
    mirt__real *out = (mirt__real *)call->out[0];
    switch ((mirt__weight_kind)call->node->a.kind) {
    case MIRT__WEIGHT_SAMPLE:
        for (int64_t i = 0; i < call->rows; i++) out[i] = (mirt__real)run->loss_scale;
        break;
    case MIRT__WEIGHT_SHARE: *out = (mirt__real)((double)call->rows / (double)run->global_rows); break;
    case MIRT__WEIGHT_ONCE: *out = run->replica == 0; break;
    case MIRT__WEIGHT_ONE: *out = 1; break;
    }
}

MIRT__TABLE mirt__op mirt__op_input = {"input", mirt__leaf_shape, NULL, NULL, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_variable = {"variable", mirt__leaf_shape, NULL, NULL, NULL, NULL, false, 0, NULL};
MIRT__TABLE mirt__op mirt__op_loss_weight = {"loss_weight", mirt__leaf_shape, NULL, mirt__loss_weight_run, NULL, NULL, false, 0, NULL};
