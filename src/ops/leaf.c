#include "ops.h"
/* What ops share to record nodes and call kernels; inputs, variables, constants. Also the weight of a sample's loss. */

MIRT__LIB mirt_tensor *mirt__apply(mirt__op_id id, const mirt__attrs *a, mirt_tensor *const *in, int num_in) {
    return in[0] ? mirt__record(in[0]->node->graph, id, a, in, num_in) : NULL;
}

MIRT__LIB mirt_tensor *mirt__apply_two(mirt__op_id id, const mirt__attrs *attrs, mirt_tensor *a, mirt_tensor *b) {
    mirt_tensor *in[2] = {a, b};
    return mirt__apply(id, attrs, in, 2);
}

MIRT__LIB bool mirt__shape_given(mirt__node *node) { return mirt__declare(node, node->a.dtype, &node->a.shape); }

MIRT__LIB bool mirt__shape_kept(mirt__node *node) {
    return mirt__declare(node, node->in[0]->dtype, &node->in[0]->shape);
}

MIRT__LIB int64_t mirt__dim_at(const mirt_shape *shape, int axis, int64_t rows) {
    return shape->dim[axis] == MIRT_ROWS ? rows : shape->dim[axis];
}

MIRT__LIB mirt_dtype mirt__bytes_dtype(const mirt_tensor *x) { return x->dtype == MIRT_BOOL ? MIRT_UINT8 : x->dtype; }

MIRT__TRAINING_LIB mirt__extent mirt__extent_kept(const mirt__node *node, const mirt__extent in[2]) {
    (void)node;
    return in[0];
}

MIRT__LIB bool mirt__in_training(const mirt__node *node, const mirt__mode *mode) {
    return node->a.training == MIRT_TRAINING_AUTO ? mode->training : node->a.training == MIRT_TRAINING_ON;
}

MIRT__LIB mirt_tensor *mirt__without_training(const char *action) {
    return mirt__fail(MIRT_E_STATE, "compiled with MIRRORTRAIN_NO_TRAIN, which cannot %s", action), (mirt_tensor *)NULL;
}

MIRT__LIB int64_t mirt__last_dim(const mirt_tensor *x) { return x->shape.rank ? x->shape.dim[x->shape.rank - 1] : 1; }

MIRT__TRAINING_LIB int64_t mirt__positions(const mirt_tensor *x) {
    return x->shape.rank < 2 ? 1 : mirt__shape_count(&x->shape) / mirt__last_dim(x);
}

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
    memset(&r, 0, sizeof r);
    r.data = call->in[input];
    r.dtype = mirt__bytes_dtype(call->node->in[input]);
    r.affine = input == 0 && call->node->a.affine;
    r.scale = call->node->a.scale;
    r.offset = call->node->a.offset;
    return r;
}

static mirt_tensor *mirt__leaf(mirt__graph *graph, mirt__op_id id, int index, mirt_dtype dtype,
                               const mirt_shape *shape) {
    mirt__attrs a = mirt__attrs_of(id);
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

MIRT__TRAINING mirt_tensor *mirt__weight_op(mirt__graph *graph, mirt__weight_kind kind, int field) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_loss_weight);
    a.kind = (int)kind;
    a.index = field;
    a.shape.rank = kind == MIRT__WEIGHT_SAMPLE || kind == MIRT__WEIGHT_VALID;
    if (a.shape.rank) a.shape.dim[0] = MIRT_ROWS;
    return mirt__record(graph, MIRT__OP_loss_weight, &a, NULL, 0);
}

MIRT__TRAINING_LIB mirt_tensor *mirt__loss_weight_op(mirt__graph *graph, mirt__weight_kind kind) {
    return mirt__weight_op(graph, kind, 0);
}

MIRT__TRAINING_LIB mirt_tensor *mirt__valid_weight_op(mirt__graph *graph, int field) {
    return mirt__weight_op(graph, MIRT__WEIGHT_VALID, field);
}

MIRT__TRAINING void mirt__loss_weight_run(const mirt__call *call) {
    const mirt__step_info *run = call->run;
    const mirt__attrs *a = &call->node->a;
    double weight = 1;
    if (a->kind == MIRT__WEIGHT_SAMPLE) weight = run->loss_scale;
    else if (a->kind == MIRT__WEIGHT_VALID) weight = run->valid_weight ? run->valid_weight[a->index] : 1;
    else if (a->kind == MIRT__WEIGHT_SHARE) weight = (double)call->rows / (double)run->global_rows;
    else if (a->kind == MIRT__WEIGHT_ONCE) weight = run->replica == 0;
    if (MIRT__OF(a, loss)->scaled) weight *= run->gradient_scale;
    call->kernels->fill(mirt__out(call, 0), (mirt__real)weight, a->shape.rank ? call->rows : 1, &call->where);
}

static void mirt__constant_run(const mirt__call *call) {
    const void *data = MIRT__OF(&call->node->a, data)->data;
    call->kernels->constant(call->out[0], data, mirt__tensor_bytes(call->node->out[0], 1), &call->where);
}

MIRT__LIB void mirt__copy_run(const mirt__call *call) {
    for (int i = 0; i < call->node->num_in; i++) {
        mirt__cast c;
        c.from = call->node->in[i]->dtype;
        c.to = call->node->out[i]->dtype;
        c.count = mirt__elements(call->node->out[i], call->rows);
        c.x = call->in[i];
        c.y = call->out[i];
        call->kernels->cast(&c, &call->where);
    }
}

static mirt_tensor *mirt__constant_of(mirt__graph *graph, const mirt_array *array, size_t bytes) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_constant);
    void *data = mirt__pool_alloc(&graph->pool, bytes);
    if (!data) return NULL;
    if (array->dtype == MIRT_FLOAT32) {
        for (size_t i = 0; i < bytes / sizeof(mirt__real); i++)
            ((mirt__real *)data)[i] = ((const float *)array->data)[i];
    } else {
        memcpy(data, array->data, bytes);
    }
    MIRT__OF(&a, data)->data = data;
    MIRT__OF(&a, data)->bytes = bytes;
    a.dtype = array->dtype;
    a.shape = array->shape;
    return mirt__record(graph, MIRT__OP_constant, &a, NULL, 0);
}

MIRT__LIB mirt_tensor *mirt__constant_op(mirt__graph *graph, mirt_array array) {
    int64_t count = 1;
    if (graph->status != MIRT_OK) return NULL;
    const bool shaped = array.shape.rank >= 0 && array.shape.rank <= MIRT_MAX_RANK;
    for (int i = 0; shaped && i < array.shape.rank; i++) count = array.shape.dim[i] < 1 ? -1 : count;
    if (shaped && count > 0) count = mirt__shape_count(&array.shape);
    mirt_tensor *t = NULL;
    if (!array.data || !mirt__dtype_known(array.dtype))
        mirt__fail(MIRT_E_INVALID, "constant: an array needs data of a known dtype");
    else if (!shaped || count < 1 || count > MIRT__MAX_ELEMENTS)
        mirt__fail(MIRT_E_SHAPE, "constant: every dimension must be positive, and there are at most %d", MIRT_MAX_RANK);
    else t = mirt__constant_of(graph, &array, (size_t)count * mirt__dtype_size(array.dtype));
    if (!t) mirt__graph_poison(graph);
    return t;
}

MIRT__LIB mirt_tensor *mirt__scalar_op(mirt__graph *graph, float value) {
    return mirt__constant_op(graph, mirt_make_array(&value, MIRT_FLOAT32, mirt_make_shape(0, 0, 0, 0, 0, 0)));
}

MIRT_API mirt_tensor *mirt_constant_tensor(mirt_tensor *like, mirt_array array) {
    return like ? mirt__constant_op(like->node->graph, array) : NULL;
}

/* Weights of a share or of the first replica differ between replicas. */
MIRT__TRAINING mirt__extent mirt__loss_weight_extent(const mirt__node *node, const mirt__extent in[2]) {
    (void)node;
    (void)in;
    return MIRT__EXTENT_OTHER;
}

MIRT__OP_ROW(constant, mirt__shape_given, mirt__constant_run,
    MIRT__IS(row_wise) MIRT__SAVED(0, 0, MIRT__SAVES_dtype | MIRT__SAVES_shape | MIRT__SAVES_data))
MIRT__OP_ROW(input, mirt__shape_given, NULL, MIRT__SET(space, MIRT__SPACE_IO) MIRT__IS(row_wise))
MIRT__OP_ROW(variable, mirt__shape_given, NULL, MIRT__SET(space, MIRT__SPACE_WEIGHT) MIRT__IS(row_wise))
MIRT__TRAINING_ROW(loss_weight, mirt__shape_given, mirt__loss_weight_run, MIRT__SET_EXTENT(mirt__loss_weight_extent))
