#include "ops.h"
/* The user's own ops: user_op, and its config: data, bytes. user_grad: the forward's inputs, its output, the
   output's gradient; an output for every input. */

/* With the rows of this call in front of batched tensors. */
static mirt_shape mirt__user_shape_at(const mirt_tensor *t, int64_t rows) {
    mirt_shape shape = t->shape;
    if (mirt__is_batched(&shape)) shape.dim[0] = rows;
    return shape;
}

static bool mirt__user_out_check(const mirt__node *node, const mirt_shape *out, bool batched) {
    char text[96];
    const char *name = MIRT__OF(&node->a, data)->user_op->name;
    bool good = out->rank >= 0 && out->rank <= MIRT_MAX_RANK;
    for (int i = 0; good && i < out->rank; i++)
        good = out->dim[i] > 0 || (i == 0 && out->dim[0] == MIRT_ROWS && batched);
    if (good) return true;
    if (out->rank > MIRT_MAX_RANK || out->rank < 0) {
        return mirt__fail(MIRT_E_SHAPE, "the shape function of %s gave %d axes", name, out->rank), false;
    }
    return mirt__fail(MIRT_E_SHAPE, "the shape function of %s gave %s", name, mirt__shape_text(out, text)), false;
}

static bool mirt__user_shape(mirt__node *node) {
    const mirt_op_class *op = MIRT__OF(&node->a, data)->user_op;
    mirt_shape in[MIRT__MAX_IN], out = node->in[0]->shape;
    bool batched = false;
    for (int i = 0; i < node->num_in; i++) {
        in[i] = node->in[i]->shape;
        batched = batched || mirt__is_batched(&in[i]);
    }
    mirt_model *model = node->graph->model ? node->graph->model : node->graph->root;
    node->graph->hold(model);
    int code = 0;
    if (op->shape) {
        MIRT__OUTSIDE;
        code = op->shape(in, node->num_in, MIRT__OF(&node->a, data)->data, &out, op->user);
    }
    node->graph->let_go(model);
    if (code) return mirt__fail(MIRT_E_CALLBACK, "%s does not take these shapes (code %d)", op->name, code), false;
    return mirt__user_out_check(node, &out, batched) && mirt__declare(node, MIRT_FLOAT32, &out);
}

/* Calls the user's function; its failure stops the step. */
static void mirt__user_call(const mirt__call *call, int num_in, bool backward) {
    const mirt__node *node = call->node;
    const mirt_op_class *op = MIRT__OF(&node->a, data)->user_op;
    mirt_op_call c;
    mirt_shape in[MIRT__MAX_IN];
    mirt_dtype dtype[MIRT__MAX_IN];
    const mirt_tensor *out = backward ? node->in[num_in] : node->out[0];
    for (int i = 0; i < num_in; i++) {
        in[i] = mirt__user_shape_at(node->in[i], call->rows);
        dtype[i] = node->in[i]->dtype;
    }
    memset(&c, 0, sizeof c);
    c.num_in = num_in;
    c.in_shape = in;
    c.in_dtype = dtype;
    c.in = (const void *const *)call->in;
    c.out_shape = mirt__user_shape_at(out, call->rows);
    c.config = MIRT__OF(&node->a, data)->data;
    c.first_row = call->run->first_row;
    if (backward) {
        c.out = (float *)call->in[num_in];
        c.dout = (const float *)call->in[num_in + 1];
        c.din = (float *const *)call->out;
    } else {
        c.out = (float *)call->out[0];
    }
    int code;
    {
        MIRT__OUTSIDE;
        code = backward ? op->backward(&c, op->user) : op->forward(&c, op->user);
    }
    if (!code || !call->run->failed) return;
    __atomic_store_n(call->run->failed_code, code, __ATOMIC_RELAXED);
    __atomic_store_n(call->run->failed, op->name, __ATOMIC_RELEASE);
}

static void mirt__user_run(const mirt__call *call) { mirt__user_call(call, call->node->num_in, false); }
MIRT__TRAINING void mirt__user_grad_run(const mirt__call *call) { mirt__user_call(call, call->node->num_in - 2, true); }

MIRT__TRAINING void mirt__user_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *in[MIRT__MAX_IN];
    const mirt_op_class *op = MIRT__OF(&node->a, data)->user_op;
    if (!op->backward) {
        mirt__fail(MIRT_E_INVALID, "%s has no backward function, and a loss depends on variables through it: "
                                   "mirt_stop_gradient its input", op->name);
        mirt__graph_poison(node->graph);
        return;
    }
    for (int i = 0; i < node->num_in; i++) in[i] = node->in[i];
    in[node->num_in] = node->out[0];
    in[node->num_in + 1] = dy[0];
    mirt_tensor *first = mirt__apply(MIRT__OP_user_grad, &node->a, in, node->num_in + 2);
    for (int i = 0; first && i < node->num_in; i++)
        dx[i] = node->in[i]->dtype == MIRT_FLOAT32 ? first->node->out[i] : NULL;
}

MIRT__TRAINING bool mirt__user_grad_shape(mirt__node *node) {
    for (int i = 0; i < node->num_in - 2; i++) {
        if (!mirt__declare(node, MIRT_FLOAT32, &node->in[i]->shape)) return false;
    }
    return true;
}

MIRT__OP_ROW(user, mirt__user_shape, mirt__user_run,
    MIRT__SET_GRADIENT(mirt__user_gradient) MIRT__IS(user_code)
    MIRT__SAVED(1, MIRT__MAX_IN - 2, MIRT__SAVES_dtype | MIRT__SAVES_data | MIRT__SAVES_user_op))
MIRT__TRAINING_ROW(user_grad, mirt__user_grad_shape, mirt__user_grad_run,
    MIRT__SET(optional_outputs, 0xffu) MIRT__IS(user_code))
