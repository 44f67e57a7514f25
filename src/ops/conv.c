#include "ops.h"
/* conv2d: x NHWC, kernel HWIO; a.strides, a.dilation, a.groups, a.padding. Fused: a.bias,
   a.activation, a.affine. Gradients: a.shape is the shape of x or of the kernel;
   a.mask_activation, a.column_sum (bias gradient as second output). conv2d_pool: convolution +
   bias + relu + 2x2 max pooling, for inputs that need no gradient. conv2d_transpose: the input
   gradient of a convolution as an op of its own, kernel [kh, kw, filters, channels]; a.shape is that
   of its output. */

MIRT__LIB bool mirt__window_check(const int kernel[2], const int strides[2], const int dilation[2], mirt_padding padding) {
    const double most = 1 << 28;
    if (padding != MIRT_VALID && padding != MIRT_SAME) return mirt__fail(MIRT_E_INVALID, "there is no padding number %d", (int)padding), false;
    for (int i = 0; i < 2; i++) {
        if (kernel[i] < 1 || strides[i] < 1 || dilation[i] < 1) return mirt__fail(MIRT_E_INVALID, "window size, strides and dilation must be positive"), false;
        if ((double)kernel[i] * dilation[i] > most) return mirt__fail(MIRT_E_SHAPE, "a window that reaches over %.0f pixels is too large", (double)kernel[i] * dilation[i]), false;
    }
    if ((double)kernel[0] * kernel[1] > most) return mirt__fail(MIRT_E_SHAPE, "a window of %dx%d is too large", kernel[0], kernel[1]), false;
    return true;
}

MIRT__LIB bool mirt__window_out(int64_t in, int kernel, int stride, int dilation, mirt_padding padding,
                                int64_t *out, int64_t *pad_before) {
    int64_t reach = (int64_t)(kernel - 1) * dilation + 1;
    *pad_before = 0;
    if (padding == MIRT_SAME) {
        *out = (in + stride - 1) / stride;
        int64_t pad = (*out - 1) * stride + reach - in;
        if (pad > 0) *pad_before = pad / 2;
        return true;
    }
    if (reach > in) return false;
    *out = (in - reach) / stride + 1;
    return true;
}

/* The geometry from x, kernel and attributes; the output's size is computed. */
static bool mirt__conv_geometry(const mirt__node *node, const mirt_shape *x, const mirt_shape *k, int64_t rows, mirt__conv *s) {
    memset(s, 0, sizeof *s);
    s->rows = rows;
    s->h = x->dim[1];
    s->w = x->dim[2];
    s->ci = x->dim[3];
    s->kh = (int)k->dim[0];
    s->kw = (int)k->dim[1];
    s->co = k->dim[3];
    s->stride_h = node->a.strides[0];
    s->stride_w = node->a.strides[1];
    s->dilation_h = node->a.dilation[0];
    s->dilation_w = node->a.dilation[1];
    s->groups = node->a.groups;
    return mirt__window_out(s->h, s->kh, s->stride_h, s->dilation_h, node->a.padding, &s->oh, &s->pad_top) &&
           mirt__window_out(s->w, s->kw, s->stride_w, s->dilation_w, node->a.padding, &s->ow, &s->pad_left);
}

static bool mirt__conv2d_check(const mirt__node *node) {
    const mirt_tensor *x = node->in[0], *k = node->in[1];
    const mirt__attrs *a = &node->a;
    if (k->dtype != MIRT_FLOAT32 || (x->dtype != MIRT_FLOAT32 && !a->affine)) return mirt__need_float(node, 2);
    if (x->shape.rank != 4 || k->shape.rank != 4) {
        char tx[96];
        return mirt__fail(MIRT_E_SHAPE, "input is %s; a convolution takes (rows, height, width, channels)", mirt__shape_text(&x->shape, tx)), false;
    }
    const int kernel[2] = {(int)k->shape.dim[0], (int)k->shape.dim[1]};
    if (!mirt__window_check(kernel, a->strides, a->dilation, a->padding)) return false;
    if (a->groups < 1) return mirt__fail(MIRT_E_INVALID, "%d groups: there must be at least one", a->groups), false;
    if (x->shape.dim[3] != k->shape.dim[2] * a->groups || k->shape.dim[3] % a->groups) {
        return mirt__fail(MIRT_E_SHAPE, "%lld input channels and %lld filters do not divide into %d groups of a kernel for %lld channels",
                          (long long)x->shape.dim[3], (long long)k->shape.dim[3], a->groups, (long long)k->shape.dim[2]), false;
    }
    return true;
}

/* Kernels copy padded strips of an image and count their elements: those have to stay countable. */
static bool mirt__conv_countable(const mirt__conv *s) {
    double h = (double)s->h + (double)s->kh * s->dilation_h + 2.0 * s->stride_h, w = (double)s->w + (double)s->kw * s->dilation_w + 2.0 * s->stride_w;
    double strip = h * w * (double)(s->ci + s->co), windows = (double)s->kh * s->kw * (double)s->ci * (33.0 + 2.0 * (double)s->ow);
    if (strip < (double)MIRT__MAX_BYTES && windows < (double)MIRT__MAX_BYTES) return true;
    return mirt__fail(MIRT_E_SHAPE, "a kernel of %dx%d, dilated by %dx%d, on %lldx%lldx%lld is too large", s->kh, s->kw, s->dilation_h, s->dilation_w,
                      (long long)s->h, (long long)s->w, (long long)s->ci), false;
}

static bool mirt__conv2d_shape(mirt__node *node) {
    if (!mirt__conv2d_check(node)) return false;
    mirt__conv s;
    if (!mirt__conv_geometry(node, &node->in[0]->shape, &node->in[1]->shape, 1, &s)) {
        return mirt__fail(MIRT_E_SHAPE, "kernel %dx%d%s is larger than its input %lldx%lld with padding VALID", s.kh, s.kw,
                          s.dilation_h > 1 || s.dilation_w > 1 ? " (dilated)" : "", (long long)s.h, (long long)s.w), false;
    }
    if (!mirt__conv_countable(&s)) return false;
    mirt_shape y = node->in[0]->shape;
    y.dim[1] = s.oh;
    y.dim[2] = s.ow;
    y.dim[3] = s.co;
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

static int64_t mirt__rows_of(const mirt_shape *x, int64_t rows) { return x->dim[0] == MIRT_ROWS ? rows : x->dim[0]; }

/* x's shape and the kernel's, wherever this op of the family keeps them. */
static void mirt__conv_of(const mirt__node *node, int64_t rows, mirt__conv *s) {
    const mirt_shape *x = &node->in[0]->shape, *k = &node->in[1]->shape;
    if (node->id == MIRT__OP_conv2d_input_grad || node->id == MIRT__OP_conv2d_transpose) x = &node->a.shape;
    if (node->id == MIRT__OP_conv2d_weight_grad || node->id == MIRT__OP_conv2d_pool_weight_grad) k = &node->a.shape;
    mirt__conv_geometry(node, x, k, mirt__rows_of(x, rows), s);
}

static void mirt__conv_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__conv s;
    mirt__conv_of(node, rows, &s);
    out->scratch = mirt__conv_scratch(&s);
    out->shared = mirt__conv_weight_grad_shared(&s);
}

MIRT__LIB double mirt__conv_macs(const mirt__node *node, int64_t rows) {
    mirt__conv s;
    mirt__conv_of(node, rows, &s);
    return (double)s.rows * (double)(s.oh * s.ow) * (double)s.co * (double)(s.kh * s.kw) * (double)(s.ci / s.groups);
}

static void mirt__conv2d_run(const mirt__call *call) {
    mirt__conv_forward f;
    memset(&f, 0, sizeof f);
    mirt__conv_of(call->node, call->rows, &f.s);
    f.x = mirt__reader_of(call, 0);
    f.kernel = (const mirt__real *)call->in[1];
    f.y = call->out[0];
    if (call->node->a.bias) f.epilogue.bias = (const mirt__real *)call->in[2];
    f.epilogue.activation = call->node->a.activation;
    call->kernels->conv_forward(&f, &call->where);
}

/* Weight gradient (of conv2d or, with `which`, conv2d_pool): dx[1], and dx[2] when there is a bias. */
static bool mirt__conv_weight_gradient(mirt__node *node, mirt_tensor *dz, mirt_tensor *which, mirt_tensor **dx) {
    if (!node->in[1]->needs_grad && !(node->a.bias && node->in[2]->needs_grad)) return true;
    mirt__attrs a = node->a;
    mirt_tensor *in[3] = {node->in[0], dz, which};
    a.shape = node->in[1]->shape;
    a.column_sum = node->a.bias && node->in[2]->needs_grad;
    a.activation = MIRT_LINEAR;
    a.bias = false;
    dx[1] = mirt__record(node->graph, which ? MIRT__OP_conv2d_pool_weight_grad : MIRT__OP_conv2d_weight_grad, &a, in, which ? 3 : 2);
    if (dx[1] && a.column_sum) dx[2] = dx[1]->node->out[1];
    return dx[1] != NULL;
}

static bool mirt__conv2d_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *dz = mirt__activation_grad_op(node->a.activation, dy[0], node->out[0]);
    if (!dz || !mirt__conv_weight_gradient(node, dz, NULL, dx)) return false;
    if (!node->in[0]->needs_grad) return true;
    mirt__attrs a = node->a;
    mirt_tensor *in[2] = {dz, node->in[1]};
    a.shape = node->in[0]->shape;
    a.activation = MIRT_LINEAR;
    a.bias = false;
    dx[0] = mirt__record(node->graph, MIRT__OP_conv2d_input_grad, &a, in, 2);
    return dx[0] != NULL;
}

MIRT__TABLE mirt__op mirt__op_conv2d = {
    "conv2d", mirt__conv2d_shape, mirt__conv2d_gradient, mirt__conv2d_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

static bool mirt__conv_grad_shape(mirt__node *node) {
    if (!mirt__declare(node, MIRT_FLOAT32, &node->a.shape)) return false;
    mirt_shape bias = mirt_make_shape(node->a.shape.dim[3], 0, 0, 0, 0, 0);
    return !node->a.column_sum || mirt__declare(node, MIRT_FLOAT32, &bias);
}

static void mirt__conv2d_input_grad_run(const mirt__call *call) {
    mirt__conv_input_grad g;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.dy = mirt__reader_of(call, 0);
    g.kernel = (const mirt__real *)call->in[1];
    g.dx = call->out[0];
    if (call->node->a.mask_activation) g.epilogue.mask = call->in[2];
    g.epilogue.mask_activation = call->node->a.mask_activation;
    call->kernels->conv_input_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_conv2d_input_grad = {
    "conv2d_input_grad", mirt__conv_grad_shape, NULL, mirt__conv2d_input_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

static void mirt__conv2d_weight_grad_run(const mirt__call *call) {
    mirt__conv_weight_grad g;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.x = mirt__reader_of(call, 0);
    g.dy = mirt__reader_of(call, 1);
    g.dkernel = (mirt__real *)call->out[0];
    if (call->node->a.column_sum) g.db = (mirt__real *)call->out[1];
    call->kernels->conv_weight_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_conv2d_weight_grad = {
    "conv2d_weight_grad", mirt__conv_grad_shape, NULL, mirt__conv2d_weight_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

/* The largest output whose convolution has x's size, as Keras without output padding. */
static bool mirt__conv2d_transpose_shape(mirt__node *node) {
    const mirt_shape *x = &node->in[0]->shape, *k = &node->in[1]->shape;
    mirt_shape *y = &node->a.shape;
    mirt__conv s;
    char tx[96], tk[96];
    if (!mirt__need_float(node, 2)) return false;
    if (x->rank != 4 || k->rank != 4 || x->dim[3] != k->dim[3]) {
        return mirt__fail(MIRT_E_SHAPE, "input is %s and the kernel %s; a transposed convolution takes (rows, height, width, channels) and (height, width, filters, channels)",
                          mirt__shape_text(x, tx), mirt__shape_text(k, tk)), false;
    }
    const int kernel[2] = {(int)k->dim[0], (int)k->dim[1]};
    if (!mirt__window_check(kernel, node->a.strides, node->a.dilation, node->a.padding)) return false;
    *y = *x;
    for (int i = 0; i < 2; i++) {
        const int64_t stride = node->a.strides[i], reach = (int64_t)(kernel[i] - 1) * node->a.dilation[i] + 1;
        if (x->dim[1 + i] > MIRT__MAX_ELEMENTS / stride) return mirt__fail(MIRT_E_SHAPE, "strides of %lld make too large an output", (long long)stride), false;
        y->dim[1 + i] = x->dim[1 + i] * stride;
        if (node->a.padding == MIRT_VALID && reach > stride) y->dim[1 + i] += reach - stride;
    }
    y->dim[3] = k->dim[2];
    return mirt__declare(node, MIRT_FLOAT32, y) && mirt__conv_geometry(node, y, k, 1, &s) && mirt__conv_countable(&s);
}

static bool mirt__conv2d_transpose_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *x = node->in[0], *k = node->in[1], *in[2] = {dy[0], x};
    mirt__attrs a = node->a;
    a.shape = k->shape;
    if (x->needs_grad) dx[0] = mirt__conv2d_op(dy[0], k, &a);
    if (k->needs_grad) dx[1] = mirt__record(node->graph, MIRT__OP_conv2d_weight_grad, &a, in, 2);
    return (!x->needs_grad || dx[0]) && (!k->needs_grad || dx[1]);
}

MIRT__TABLE mirt__op mirt__op_conv2d_transpose = {
    "conv2d_transpose", mirt__conv2d_transpose_shape, mirt__conv2d_transpose_gradient, mirt__conv2d_input_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__conv2d_transpose_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    mirt__attrs own = *a;
    mirt_tensor *in[2] = {x, kernel};
    own.groups = 1;
    return x && kernel ? mirt__record(x->node->graph, MIRT__OP_conv2d_transpose, &own, in, 2) : NULL;
}

static bool mirt__conv2d_pool_shape(mirt__node *node) {
    mirt__conv s;
    mirt_shape y = node->in[0]->shape;
    if (!mirt__conv2d_check(node)) return false;
    if (!mirt__conv_geometry(node, &y, &node->in[1]->shape, 1, &s)) return mirt__fail(MIRT_E_SHAPE, "kernel is larger than its input"), false;
    y.dim[1] = s.oh / 2;
    y.dim[2] = s.ow / 2;
    y.dim[3] = s.co;
    return mirt__declare(node, MIRT_FLOAT32, &y) && mirt__declare(node, MIRT_UINT8, &y);
}

static void mirt__conv2d_pool_run(const mirt__call *call) {
    mirt__conv_pool p;
    memset(&p, 0, sizeof p);
    mirt__conv_of(call->node, call->rows, &p.s);
    p.x = mirt__reader_of(call, 0);
    p.kernel = (const mirt__real *)call->in[1];
    if (call->node->a.bias) p.bias = (const mirt__real *)call->in[2];
    p.y = (mirt__real *)call->out[0];
    p.which = (uint8_t *)call->out[1];
    call->kernels->conv_pool(&p, &call->where);
}

static bool mirt__conv2d_pool_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    return mirt__conv_weight_gradient(node, dy[0], node->out[1], dx);
}

MIRT__TABLE mirt__op mirt__op_conv2d_pool = {
    "conv2d_pool", mirt__conv2d_pool_shape, mirt__conv2d_pool_gradient, mirt__conv2d_pool_run, mirt__conv_workspace, mirt__conv_macs, false, 2u, NULL};

static void mirt__conv2d_pool_weight_grad_run(const mirt__call *call) {
    mirt__conv_pool_weight_grad g;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.x = mirt__reader_of(call, 0);
    g.dy = (const mirt__real *)call->in[1];
    g.which = (const uint8_t *)call->in[2];
    g.dkernel = (mirt__real *)call->out[0];
    if (call->node->a.column_sum) g.db = (mirt__real *)call->out[1];
    call->kernels->conv_pool_weight_grad(&g, &call->where);
}

MIRT__TABLE mirt__op mirt__op_conv2d_pool_weight_grad = {
    "conv2d_pool_weight_grad", mirt__conv_grad_shape, NULL, mirt__conv2d_pool_weight_grad_run, mirt__conv_workspace, mirt__conv_macs, false, 0, NULL};

MIRT__LIB mirt_tensor *mirt__conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    if (!x || !kernel) return NULL;
    mirt_tensor *in[2] = {x, kernel};
    return mirt__record(x->node->graph, MIRT__OP_conv2d, a, in, 2);
}

MIRT__LIB mirt_tensor *mirt__depthwise_conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    if (!x || !kernel) return NULL;
    mirt_shape k = kernel->shape;
    mirt__attrs own = *a;
    if (k.rank != 4 || k.dim[2] != mirt__last_dim(x) || k.dim[2] > INT_MAX) {
        char tx[96], tk[96];
        mirt__fail(MIRT_E_SHAPE, "a depthwise kernel of %s does not fit %s: it is (height, width, channels, multiplier)", mirt__shape_text(&k, tk),
                   mirt__shape_text(&x->shape, tx));
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    own.groups = (int)k.dim[2];
    k.dim[3] *= k.dim[2];
    k.dim[2] = 1;
    return mirt__conv2d_op(x, mirt__reshape_op(kernel, &k), &own);
}
