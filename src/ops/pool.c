#include "ops.h"
/* Max and average pooling, and their gradients. */

/* kernel (the window), strides, padding. Gradients: a.shape is x's shape. */

static bool mirt__pool_geometry(const mirt__node *node, const mirt_shape *x, int64_t rows, mirt__pool2d *p) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    memset(p, 0, sizeof *p);
    p->rows = mirt__dim_at(x, 0, rows);
    p->h = x->dim[1];
    p->w = x->dim[2];
    p->c = x->dim[3];
    p->kh = w->kernel[0];
    p->kw = w->kernel[1];
    p->stride_h = w->strides[0];
    p->stride_w = w->strides[1];
    if (w->padded) {
        p->pad_top = w->pad[0];
        p->pad_left = w->pad[1];
        p->oh = w->size[0];
        p->ow = w->size[1];
        return true;
    }
    return mirt__window_out(p->h, p->kh, p->stride_h, 1, w->padding, &p->oh, &p->pad_top) &&
           mirt__window_out(p->w, p->kw, p->stride_w, 1, w->padding, &p->ow, &p->pad_left);
}

static bool mirt__pool_shape(mirt__node *node) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    mirt_shape y = node->in[0]->shape;
    mirt__pool2d p;
    char text[96];
    if (!mirt__need_float(node, 1)) return false;
    if (y.rank != 4)
        return mirt__fail(MIRT_E_SHAPE, "input is %s; pooling takes (rows, height, width, channels)",
                          mirt__shape_text(&y, text)),
               false;
    const int undilated[2] = {1, 1};
    if (!mirt__window_check(w->kernel, w->strides, undilated, w->padding)) return false;
    if (!mirt__pool_geometry(node, &y, 1, &p)) {
        return mirt__fail(MIRT_E_SHAPE, "pool %dx%d is larger than its input %lldx%lld with padding VALID", p.kh, p.kw,
                          (long long)p.h, (long long)p.w),
               false;
    }
    y.dim[1] = p.oh;
    y.dim[2] = p.ow;
    const mirt_dtype which = mirt__pool_wide((int64_t)p.kh * p.kw) ? MIRT_INT32 : MIRT_UINT8;
    return mirt__declare(node, MIRT_FLOAT32, &y) && (node->id != MIRT__OP_max_pool2d || mirt__declare(node, which, &y));
}

/* Of a pooling of images of shape x. */
static mirt__pool2d mirt__pool_args(const mirt__call *call, const mirt_shape *x) {
    mirt__pool2d p;
    mirt__pool_geometry(call->node, x, call->rows, &p);
    p.dtype = call->node->in[0]->dtype;
    p.x = call->in[0];
    p.y = call->out[0];
    return p;
}

static void mirt__pool_run(const mirt__call *call) {
    mirt__pool2d p = mirt__pool_args(call, &call->node->in[0]->shape);
    if (call->node->id == MIRT__OP_average_pool2d) {
        call->kernels->average_pool(&p, &call->where);
        return;
    }
    p.which = call->out[1];
    call->kernels->max_pool(&p, &call->where);
}

MIRT__TRAINING void mirt__pool_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    bool max = node->id == MIRT__OP_max_pool2d;
    mirt__attrs a = node->a;
    mirt_tensor *in[2] = {dy[0], max ? node->out[1] : NULL};
    a.shape = node->in[0]->shape;
    dx[0] = mirt__apply(max ? MIRT__OP_max_pool2d_grad : MIRT__OP_average_pool2d_grad, &a, in, max ? 2 : 1);
}

MIRT__TRAINING void mirt__pool_grad_run(const mirt__call *call) {
    mirt__pool2d p = mirt__pool_args(call, &call->node->a.shape);
    if (call->node->id == MIRT__OP_average_pool2d_grad) {
        call->kernels->average_pool_grad(&p, &call->where);
        return;
    }
    p.which = (void *)call->in[1];
    call->kernels->max_pool_grad(&p, &call->where);
}

static bool mirt__max_pool_half(const mirt__node *node) {
    (void)node;
    return true;
}

static int mirt__max_pool_half_tied(const mirt__node *node, mirt_tensor **tied) {
    tied[0] = node->in[0];
    tied[1] = node->out[0];
    return 2;
}

MIRT__OP_ROW(max_pool2d, mirt__pool_shape, mirt__pool_run,
    MIRT__SET_GRADIENT(mirt__pool_gradient) MIRT__IS(row_wise) MIRT__IS(keeps_range)
    MIRT__SET(takes, MIRT__TAKES_PADDING) MIRT__SET(half, mirt__max_pool_half) MIRT__SET(half_in, MIRT__INPUT(0))
    MIRT__IS(half_out) MIRT__SET(half_tied, mirt__max_pool_half_tied))
MIRT__TRAINING_ROW(max_pool2d_grad, mirt__shape_given, mirt__pool_grad_run,
    MIRT__SET(half, mirt__max_pool_half) MIRT__SET(half_in, MIRT__INPUT(0)) MIRT__IS(half_out)
    MIRT__SET(half_tied, mirt__max_pool_half_tied))
MIRT__OP_ROW(average_pool2d, mirt__pool_shape, mirt__pool_run,
    MIRT__SET_GRADIENT(mirt__pool_gradient) MIRT__IS(row_wise) MIRT__IS(keeps_range))
MIRT__TRAINING_ROW(average_pool2d_grad, mirt__shape_given, mirt__pool_grad_run, )

MIRT__LIB mirt_tensor *mirt__max_pool2d_op(mirt_tensor *x, const mirt__attrs *a) {
    return mirt__apply(MIRT__OP_max_pool2d, a, &x, 1);
}
MIRT__LIB mirt_tensor *mirt__average_pool2d_op(mirt_tensor *x, const mirt__attrs *a) {
    return mirt__apply(MIRT__OP_average_pool2d, a, &x, 1);
}
