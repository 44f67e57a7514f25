#include "ops.h"
/* Softmax, losses and accuracy. */

/* softmax and its logarithm over the last axis. loss: a.kind (mirt_loss), `how`; inputs predictions, labels; one value
   for each sample, or of losses along the last axis for each position: the shape without that axis. circle: likewise,
   but two values for each sample, over pairs with all other rows (kernels/circle.h). accuracy: a.kind
   (mirt__accuracy_kind), likewise. */

static bool mirt__softmax_shape(mirt__node *node) {
    return mirt__need_float(node, 1) && mirt__shape_kept(node);
}

/* Forward of x and, with two inputs, the gradient of dy and the output. */
static void mirt__softmax_run(const mirt__call *call) {
    const bool grad = MIRT__TRAINS && call->node->num_in > 1; /* its inputs are dy and y, not x */
    mirt__softmax s;
    memset(&s, 0, sizeof s);
    s.n = mirt__last_dim(call->node->in[0]);
    s.rows = mirt__elements(call->node->in[0], call->rows) / (s.n ? s.n : 1);
    s.x = mirt__in(call, grad ? 1 : 0);
    s.y = mirt__out(call, 0);
    s.log = call->node->id == MIRT__OP_log_softmax || call->node->id == MIRT__OP_log_softmax_grad;
    if (!grad) {
        call->kernels->softmax(&s, &call->where);
        return;
    }
    s.dy = mirt__in(call, 0);
    call->kernels->softmax_grad(&s, &call->where);
}

MIRT__TRAINING void mirt__softmax_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    const mirt__op_id id = node->id == MIRT__OP_softmax ? MIRT__OP_softmax_grad : MIRT__OP_log_softmax_grad;
    dx[0] = mirt__apply_two(id, NULL, dy[0], node->out[0]);
}

MIRT__OP_ROW(softmax, mirt__softmax_shape, mirt__softmax_run,
    MIRT__SET_GRADIENT(mirt__softmax_gradient) MIRT__IS(row_wise) MIRT__SAVED(1, 1, 0))
MIRT__TRAINING_ROW(softmax_grad, mirt__shape_kept, mirt__softmax_run, )

MIRT__OP_ROW(log_softmax, mirt__softmax_shape, mirt__softmax_run,
    MIRT__SET_GRADIENT(mirt__softmax_gradient) MIRT__IS(row_wise) MIRT__SAVED(1, 1, 0))
MIRT__TRAINING_ROW(log_softmax_grad, mirt__shape_kept, mirt__softmax_run, )

MIRT_API mirt_tensor *mirt_log_softmax(mirt_tensor *x) {
    return mirt__apply(MIRT__OP_log_softmax, NULL, &x, 1);
}
MIRT_API mirt_tensor *mirt_softmax(mirt_tensor *x) {
    return mirt__apply(MIRT__OP_softmax, NULL, &x, 1);
}

/* Whether a node computes a value for each position, and not for each sample. */
MIRT__TRAINING bool mirt__by_positions(const mirt__node *node) {
    if (node->id == MIRT__OP_accuracy) return node->a.kind != MIRT__ACCURACY_BINARY;
    return node->a.kind == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY || node->a.kind == MIRT_CATEGORICAL_CROSSENTROPY;
}

/* Elements that are compared with each other. */
MIRT__TRAINING int64_t mirt__compared(const mirt__node *node) {
    return mirt__by_positions(node) ? mirt__last_dim(node->in[0]) : mirt__shape_count(&node->in[0]->shape);
}

MIRT__TRAINING_LIB bool mirt__labels_fit(const mirt_tensor *x, const mirt_tensor *labels, bool positions) {
    const int64_t count = mirt__shape_count(&x->shape), classes = mirt__last_dim(x);
    const bool sparse = labels->dtype != MIRT_FLOAT32;
    char tx[96], tl[96];
    if (!mirt__is_batched(&x->shape) || !mirt__is_batched(&labels->shape))
        return mirt__fail(MIRT_E_SHAPE, "a loss compares batches"), false;
    if (mirt__shape_count(&labels->shape) == (sparse && classes ? count / classes : count) &&
        (!positions || x->shape.rank > 1))
        return true;
    return mirt__fail(MIRT_E_SHAPE, "labels %s do not fit predictions %s", mirt__shape_text(&labels->shape, tl),
                      mirt__shape_text(&x->shape, tx)),
           false;
}

MIRT__TRAINING bool mirt__compared_shape(mirt__node *node) {
    const bool positions = mirt__by_positions(node);
    mirt_shape y = node->in[0]->shape;
    if (!mirt__need_float(node, 1) || !mirt__labels_fit(node->in[0], node->in[1], positions)) return false;
    y.rank = positions ? y.rank - 1 : 1;
    if (node->id == MIRT__OP_circle) y.dim[y.rank++] = 2;
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

/* Forward and, with the gradient of the loss as a third input, and circle's values as a fourth, back. */
MIRT__TRAINING void mirt__loss_run(const mirt__call *call) {
    mirt__loss l;
    memset(&l, 0, sizeof l);
    l.kind = (mirt_loss)call->node->a.kind;
    l.how = MIRT__OF(&call->node->a, loss)->how;
    l.n = mirt__compared(call->node);
    l.rows = l.n ? mirt__elements(call->node->in[0], call->rows) / l.n : 0;
    l.x = mirt__in(call, 0);
    l.labels = call->in[1];
    if (call->node->num_in < 3) {
        l.loss = mirt__out(call, 0);
    } else {
        l.dloss = mirt__in(call, 2);
        l.dx = mirt__out(call, 0);
        if (call->node->num_in > 3) l.loss = (mirt__real *)call->in[3];
    }
    call->kernels->loss(&l, &call->where);
}

MIRT__TRAINING void mirt__loss_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *in[4] = {node->in[0], node->in[1], dy[0], node->out[0]};
    dx[0] = mirt__apply(MIRT__OP_loss_grad, &node->a, in, node->id == MIRT__OP_circle ? 4 : 3);
}

MIRT__TRAINING void mirt__accuracy_run(const mirt__call *call) {
    mirt__accuracy a;
    a.kind = (mirt__accuracy_kind)call->node->a.kind;
    a.n = mirt__compared(call->node);
    a.rows = a.n ? mirt__elements(call->node->in[0], call->rows) / a.n : 0;
    a.x = mirt__in(call, 0);
    a.labels = call->in[1];
    a.y = mirt__out(call, 0);
    call->kernels->accuracy(&a, &call->where);
}

MIRT__TRAINING_ROW(loss, mirt__compared_shape, mirt__loss_run,
    MIRT__SET_GRADIENT(mirt__loss_gradient) MIRT__IS(row_wise))
MIRT__TRAINING_ROW(circle, mirt__compared_shape, mirt__loss_run, MIRT__SET_GRADIENT(mirt__loss_gradient))
MIRT__TRAINING_ROW(loss_grad, mirt__shape_kept, mirt__loss_run, )
MIRT__TRAINING_ROW(accuracy, mirt__compared_shape, mirt__accuracy_run, MIRT__IS(row_wise))

MIRT__TRAINING_LIB mirt_tensor *mirt__loss_op(mirt_loss kind, const mirt_loss_options *how, mirt_tensor *x,
                                              mirt_tensor *labels) {
    const mirt__op_id id = kind == MIRT_CIRCLE ? MIRT__OP_circle : MIRT__OP_loss;
    mirt__attrs a = mirt__attrs_of(id);
    a.kind = (int)kind;
    MIRT__OF(&a, loss)->how = *how;
    return mirt__apply_two(id, &a, x, labels);
}

MIRT__TRAINING_LIB mirt_tensor *mirt__accuracy_op(mirt__accuracy_kind kind, mirt_tensor *x, mirt_tensor *labels) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_accuracy);
    a.kind = (int)kind;
    return mirt__apply_two(MIRT__OP_accuracy, &a, x, labels);
}
