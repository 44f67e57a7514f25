#include "ops.h"
/* a.rate, a.key. Outside of training it is left out. Its gradient is the same mask on dy. */

static bool mirt__dropout_shape(mirt__node *node) {
    if (!(node->a.rate >= 0 && node->a.rate <= 1)) {
        return mirt__fail(MIRT_E_INVALID, "rate is %g; it must lie between 0 and 1", (double)node->a.rate), false;
    }
    return mirt__need_float(node, 1) && mirt__declare(node, MIRT_FLOAT32, &node->in[0]->shape);
}

static void mirt__dropout_run(const mirt__call *call) {
    mirt__dropout d;
    d.rows = mirt__is_batched(&call->node->in[0]->shape) ? call->rows : 1;
    d.n = mirt__shape_count(&call->node->in[0]->shape);
    d.first_row = call->run->first_row;
    d.key = call->node->a.key ^ call->run->seed ^ ((uint64_t)call->run->step >> 32 << 32);
    d.step = (uint32_t)call->run->step;
    d.rate = call->node->a.rate;
    d.x = (const mirt__real *)call->in[0];
    d.y = (mirt__real *)call->out[0];
    call->kernels->dropout(&d, &call->where);
}

static bool mirt__dropout_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__dropout_op(dy[0], node->a.rate, node->a.key);
    return dx[0] != NULL;
}

static mirt_tensor *mirt__dropout_lower(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in, const mirt__mode *mode) {
    return mirt__in_training(node, mode) ? mirt__record(graph, MIRT__OP_dropout, &node->a, in, 1) : in[0];
}

MIRT__TABLE mirt__op mirt__op_dropout = {"dropout", mirt__dropout_shape, mirt__dropout_gradient, mirt__dropout_run, NULL, NULL, false, 0, mirt__dropout_lower};

MIRT__LIB mirt_tensor *mirt__dropout_op(mirt_tensor *x, float rate, uint64_t key) {
    if (!x) return NULL;
    mirt__attrs a = mirt__no_attrs();
    a.rate = rate;
    a.key = key;
    return mirt__record(x->node->graph, MIRT__OP_dropout, &a, &x, 1);
}
