#include "ops.h"
/* Resizing of images. */

/* resize2d: size and bilinear. The gradient's
   a.shape is x's shape. */

static bool mirt__resize2d_shape(mirt__node *node) {
    mirt_shape y = node->in[0]->shape;
    const int *size = MIRT__OF(&node->a, resize)->size;
    char text[96];
    if (!mirt__need_float(node, 1)) return false;
    if (y.rank != 4)
        return mirt__fail(MIRT_E_SHAPE, "input is %s; it should be (rows, height, width, channels)",
                          mirt__shape_text(&y, text)),
               false;
    for (int i = 0; i < 2; i++) {
        if (size[i] < 1 || y.dim[1 + i] > INT_MAX) {
            mirt__shape_text(&node->in[0]->shape, text);
            mirt__fail(MIRT_E_INVALID, "%s to %dx%d: sizes must be positive and below 2^31", text, size[0], size[1]);
            return false;
        }
        y.dim[1 + i] = size[i];
    }
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

/* Forward and, with the same sizes, back. */
static void mirt__resize2d_run(const mirt__call *call) {
    const mirt__node *node = call->node;
    const bool grad = node->id == MIRT__OP_resize2d_grad;
    const mirt_shape *x = grad ? &node->a.shape : &node->in[0]->shape;
    const mirt__attrs_resize *a = MIRT__OF(&node->a, resize);
    mirt__resize r;
    r.rows = mirt__dim_at(x, 0, call->rows);
    r.h = x->dim[1];
    r.w = x->dim[2];
    r.c = x->dim[3];
    r.oh = a->size[0];
    r.ow = a->size[1];
    r.bilinear = a->bilinear;
    r.x = mirt__in(call, 0);
    r.y = mirt__out(call, 0);
    if (grad) call->kernels->resize_grad(&r, &call->where);
    else call->kernels->resize(&r, &call->where);
}

MIRT__TRAINING void mirt__resize2d_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt__attrs a = node->a;
    a.shape = node->in[0]->shape;
    dx[0] = mirt__apply(MIRT__OP_resize2d_grad, &a, dy, 1);
}

MIRT__OP_ROW(resize2d, mirt__resize2d_shape, mirt__resize2d_run,
    MIRT__SET_GRADIENT(mirt__resize2d_gradient) MIRT__IS(row_wise) MIRT__IS(keeps_range))
MIRT__TRAINING_ROW(resize2d_grad, mirt__shape_given, mirt__resize2d_run, )

MIRT__LIB mirt_tensor *mirt__resize2d_op(mirt_tensor *x, int height, int width, bool bilinear) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_resize2d);
    MIRT__OF(&a, resize)->size[0] = height;
    MIRT__OF(&a, resize)->size[1] = width;
    MIRT__OF(&a, resize)->bilinear = bilinear;
    return mirt__apply(MIRT__OP_resize2d, &a, &x, 1);
}

MIRT__LIB mirt_tensor *mirt__upsampling2d_op(mirt_tensor *x, const int size[2], bool bilinear) {
    int to[2] = {1, 1};
    for (int i = 0; x && x->shape.rank == 4 && i < 2; i++) {
        const bool fits = size[i] > 0 && x->shape.dim[1 + i] <= INT_MAX / size[i];
        to[i] = fits ? (int)x->shape.dim[1 + i] * size[i] : 0;
    }
    return mirt__resize2d_op(x, to[0], to[1], bilinear);
}
