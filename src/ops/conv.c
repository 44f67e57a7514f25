#include "ops.h"
#include "../kernels/shapes.h"
/* Convolutions and their gradients. */

/* conv2d: x NHWC, kernel HWIO; strides, dilation, groups, padding of the family. Fused: a.bias,
   a.activation, a.affine. Gradients: a.shape is the shape of x or of the kernel;
   a.mask_activation, a.column_sum (bias gradient as second output). conv2d_pool: convolution +
   bias + relu + 2x2 max pooling, for inputs that need no gradient. conv2d_transpose: the input
   gradient of a convolution as an op of its own, kernel [kh, kw, filters / groups, channels]; a.shape is that
   of its output, for which w.size is what output_padding is.

   What tiled_reads.c gives conv2d and its gradients beside (padded, norm, a.residual, slope, sums, both) comes with
   inputs after the two operands, in this order: [bias], [mean, variance, [gamma], [beta]] of norm, [what a.residual
   adds], [mask], [x, mean, variance, [gamma], [beta]] of slope, [x of both]; and with outputs after the first: two sums
   (or the means), the weight gradient, its bias's. */

MIRT__LIB bool mirt__window_check(const int kernel[2], const int strides[2], const int dilation[2],
                                  mirt_padding padding) {
    const double most = 1 << 28;
    if (padding != MIRT_VALID && padding != MIRT_SAME)
        return mirt__fail(MIRT_E_INVALID, "invalid padding (%d); it must be MIRT_VALID or MIRT_SAME", (int)padding),
               false;
    for (int i = 0; i < 2; i++) {
        if (kernel[i] < 1 || strides[i] < 1 || dilation[i] < 1)
            return mirt__fail(MIRT_E_INVALID, "window size, strides and dilation must be positive"), false;
        if ((double)kernel[i] * dilation[i] > most)
            return mirt__fail(MIRT_E_SHAPE, "a window that reaches over %.0f pixels is too large",
                              (double)kernel[i] * dilation[i]),
                   false;
    }
    if ((double)kernel[0] * kernel[1] > most)
        return mirt__fail(MIRT_E_SHAPE, "a window of %dx%d is too large", kernel[0], kernel[1]), false;
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
static bool mirt__conv_geometry(const mirt__node *node, const mirt_shape *x, const mirt_shape *k, int64_t rows,
                                mirt__conv *s) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    memset(s, 0, sizeof *s);
    s->rows = rows;
    s->h = x->dim[1];
    s->w = x->dim[2];
    s->ci = x->dim[3];
    s->kh = (int)k->dim[0];
    s->kw = (int)k->dim[1];
    s->co = k->dim[3];
    s->stride_h = w->strides[0];
    s->stride_w = w->strides[1];
    s->dilation_h = w->dilation[0];
    s->dilation_w = w->dilation[1];
    s->groups = w->groups;
    if (w->padded) {
        s->pad_top = w->pad[0];
        s->pad_left = w->pad[1];
        s->oh = w->size[0];
        s->ow = w->size[1];
        return true;
    }
    return mirt__window_out(s->h, s->kh, s->stride_h, s->dilation_h, w->padding, &s->oh, &s->pad_top) &&
           mirt__window_out(s->w, s->kw, s->stride_w, s->dilation_w, w->padding, &s->ow, &s->pad_left);
}

static bool mirt__conv2d_check(const mirt__node *node) {
    const mirt_tensor *x = node->in[0], *k = node->in[1];
    const mirt__attrs_window *a = MIRT__OF(&node->a, window);
    if (k->dtype != MIRT_FLOAT32 || (x->dtype != MIRT_FLOAT32 && !node->a.affine)) return mirt__need_float(node, 2);
    char tx[96], tk[96];
    if (x->shape.rank != 4 || k->shape.rank != 4)
        return mirt__fail(MIRT_E_SHAPE,
                          "input is %s and the kernel %s; a convolution takes (rows, height, width, channels) and "
                          "(height, width, channels, filters)",
                          mirt__shape_text(&x->shape, tx), mirt__shape_text(&k->shape, tk)),
               false;
    const int kernel[2] = {(int)k->shape.dim[0], (int)k->shape.dim[1]};
    if (!mirt__window_check(kernel, a->strides, a->dilation, a->padding)) return false;
    if (a->groups < 1) return mirt__fail(MIRT_E_INVALID, "%d groups: there must be at least one", a->groups), false;
    if (x->shape.dim[3] != k->shape.dim[2] * a->groups || k->shape.dim[3] % a->groups) {
        return mirt__fail(
                   MIRT_E_SHAPE,
                   "%lld input channels and %lld filters do not divide into %d groups of a kernel for %lld channels",
                   (long long)x->shape.dim[3], (long long)k->shape.dim[3], a->groups, (long long)k->shape.dim[2]),
               false;
    }
    return true;
}

/* Kernels copy padded tiled_reads of an image and count their elements: those have to stay countable. */
static bool mirt__conv_countable(const mirt__conv *s) {
    double h = (double)s->h + (double)s->kh * s->dilation_h + 2.0 * s->stride_h,
           w = (double)s->w + (double)s->kw * s->dilation_w + 2.0 * s->stride_w;
    double input_tile = h * w * (double)(s->ci + s->co),
           windows = (double)s->kh * s->kw * (double)s->ci * (33.0 + 2.0 * (double)s->ow);
    if (input_tile < (double)MIRT__MAX_BYTES && windows < (double)MIRT__MAX_BYTES) return true;
    return mirt__fail(MIRT_E_SHAPE, "a kernel of %dx%d, dilated by %dx%d, on %lldx%lldx%lld is too large", s->kh, s->kw,
                      s->dilation_h, s->dilation_w, (long long)s->h, (long long)s->w, (long long)s->ci),
           false;
}

static bool mirt__conv2d_shape(mirt__node *node) {
    if (!mirt__conv2d_check(node)) return false;
    mirt__conv s;
    if (!mirt__conv_geometry(node, &node->in[0]->shape, &node->in[1]->shape, 1, &s)) {
        return mirt__fail(MIRT_E_SHAPE, "kernel %dx%d%s is larger than its input %lldx%lld with padding VALID", s.kh,
                          s.kw, s.dilation_h > 1 || s.dilation_w > 1 ? " (dilated)" : "", (long long)s.h,
                          (long long)s.w),
               false;
    }
    if (!mirt__conv_countable(&s)) return false;
    mirt_shape y = node->in[0]->shape;
    y.dim[1] = s.oh;
    y.dim[2] = s.ow;
    y.dim[3] = s.co;
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

/* x's shape and the kernel's, wherever this op of the family keeps them. */
static void mirt__conv_of(const mirt__node *node, int64_t rows, mirt__conv *s) {
    const mirt_shape *x = &node->in[0]->shape, *k = &node->in[1]->shape;
    if (node->id == MIRT__OP_conv2d_input_grad || node->id == MIRT__OP_conv2d_transpose) x = &node->a.shape;
    if (node->id == MIRT__OP_conv2d_weight_grad || node->id == MIRT__OP_conv2d_pool_weight_grad) k = &node->a.shape;
    mirt__conv_geometry(node, x, k, mirt__dim_at(x, 0, rows), s);
}

static void mirt__conv_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__conv s;
    mirt__conv_of(node, rows, &s);
    out->scratch = mirt__conv_scratch(&s);
    out->shared = mirt__conv_shared(&s);
    if (node->a.winograd && !node->a.half) mirt__winograd_room(&s, &out->scratch, &out->shared);
}

MIRT__TRAINING double mirt__conv_macs(const mirt__node *node, int64_t rows) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    mirt__conv s;
    mirt__conv_of(node, rows, &s);
    return (w->both ? 2 : 1) * (double)s.rows * (double)(s.oh * s.ow) * (double)s.co * (double)(s.kh * s.kw) *
           (double)(s.ci / s.groups);
}

MIRT__TRAINING_LIB bool mirt__conv_both_pays(const mirt__node *node) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    mirt__conv s;
    mirt__conv_of(node, 1, &s);
    return w->groups > 1 || mirt__both_applies(&s);
}

MIRT__LIB int64_t mirt__conv_again(const mirt__node *node, int input, int columns) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    mirt__conv s;
    mirt__conv_of(node, 1, &s);
    const int64_t taps = (int64_t)s.kh * s.kw, ci = s.ci / s.groups, co = s.co / s.groups;
    const bool weights = node->id == MIRT__OP_conv2d_weight_grad, x = weights && input == 0;
    const bool both = w->both && input == node->num_in - 1;
    const int64_t across = x || both || node->id == MIRT__OP_conv2d ? co : weights ? taps * ci : ci;
    int64_t again = (weights && !x ? 1 : taps) * (columns ? (across + columns - 1) / columns : 1);
    if (w->both && input == 0) again += columns ? (taps * ci + columns - 1) / columns : 1; /* for the weights */
    return again;
}

/* What is read of a lazy tensor, for as long as the call lasts. */
typedef struct mirt__lazy_read {
    mirt__scaling norm;
    mirt__norm_back back;
} mirt__lazy_read;

/* Where the numbers of an input are, or of what a lazy one is computed from. */
static const mirt__real *mirt__values(const mirt__call *call, const mirt_tensor *t) {
    return (const mirt__real *)mirt__address(call->bases, t);
}

/* A normalization whose mean, variance, [gamma], [beta] are the node's inputs from `at` on; returns what comes after.
 */
static int mirt__scaling_of(const mirt__call *call, const mirt__node *node, const mirt__attrs_scaling *a, int at,
                            mirt_activation_kind activation, mirt__scaling *out) {
    out->mean = mirt__values(call, node->in[at++]);
    out->variance = mirt__values(call, node->in[at++]);
    out->gamma = a->gamma ? mirt__values(call, node->in[at++]) : NULL;
    out->beta = a->beta ? mirt__values(call, node->in[at++]) : NULL;
    out->epsilon = a->epsilon;
    out->activation = activation;
    return at;
}

/* The gradient of a normalization's input: dy, z, mean, variance, [gamma], [beta], [the two sums]. */
MIRT__TRAINING void mirt__norm_back_of(const mirt__call *call, const mirt__node *node, mirt__norm_back *out) {
    const mirt__attrs_scaling *a = &MIRT__OF(&node->a, norm)->scaling;
    int next = mirt__scaling_of(call, node, a, 2, node->a.mask_activation, &out->norm);
    out->z = mirt__address(call->bases, node->in[1]);
    for (int i = 0; i < 2; i++) out->sum[i] = next < node->num_in ? mirt__values(call, node->in[next + i]) : NULL;
    out->count = mirt__norm_count(call, node, mirt__elements(node->in[1], call->rows) / mirt__last_dim(node->in[1]));
}

/* Of an input, which may be lazy. */
static mirt__reader mirt__lazy_reader_of(const mirt__call *call, int input, mirt__lazy_read *own) {
    mirt__reader r = mirt__reader_of(call, input);
    const mirt_tensor *t = call->node->in[input];
    r.channels = mirt__last_dim(t);
    if (t->lazy && t->node->id == MIRT__OP_binary) {
        r.gate = mirt__values(call, t->node->in[1]);
        r.gate_pixels = t->shape.dim[1] * t->shape.dim[2];
        t = t->node->in[0];
    }
    if (t->lazy && t->node->id == MIRT__OP_normalize) {
        const mirt__attrs_scaling *a = &MIRT__OF(&t->node->a, norm)->scaling;
        mirt__scaling_of(call, t->node, a, 1, t->node->a.activation, &own->norm);
        r.norm = &own->norm;
    } else if (MIRT__TRAINS && t->lazy) {
        mirt__norm_back_of(call, t->node, &own->back);
        r.back = &own->back;
    }
    if (t->lazy) t = t->node->in[0];
    r.data = mirt__address(call->bases, t);
    r.dtype = mirt__bytes_dtype(t);
    return r;
}

/* *next: the input after those of the epilogue. */
static mirt__epilogue mirt__fused_epilogue(const mirt__call *call, mirt__scaling *own, int *next) {
    const mirt__attrs *a = &call->node->a;
    const mirt__attrs_window *w = MIRT__OF(a, window);
    mirt__epilogue e;
    memset(&e, 0, sizeof e);
    int at = 2;
    if (a->bias) e.bias = mirt__in(call, at++);
    if (w->norm) {
        at = mirt__scaling_of(call, call->node, &w->scaling, at, MIRT_LINEAR, own);
        e.norm = own;
    }
    if (a->residual) e.add = call->in[at++];
    e.activation = a->activation;
    if (MIRT__TRAINS && a->mask_activation) e.mask = call->in[at++];
    e.mask_activation = a->mask_activation;
    if (MIRT__TRAINS && w->slope) {
        e.slope_x = call->in[at++];
        at = mirt__scaling_of(call, call->node, &w->scaling, at, w->slope_activation, own);
        e.slope = own;
    }
    e.sums = w->sums;
    const int outputs = w->sums == MIRT__SUMS_IMAGES ? 1 : 2;
    for (int i = 0; w->sums && i < outputs; i++) e.sum[i] = mirt__out(call, 1 + i);
    *next = at;
    return e;
}

static void mirt__conv2d_run(const mirt__call *call) {
    mirt__conv_forward f;
    mirt__lazy_read x;
    mirt__scaling norm;
    int next;
    memset(&f, 0, sizeof f);
    mirt__conv_of(call->node, call->rows, &f.s);
    f.x = mirt__lazy_reader_of(call, 0, &x);
    f.kernel = mirt__in(call, 1);
    f.y = call->out[0];
    f.y_dtype = call->node->out[0]->dtype;
    f.half = call->node->a.half;
    f.winograd = call->node->a.winograd;
    f.epilogue = mirt__fused_epilogue(call, &norm, &next);
    call->kernels->conv_forward(&f, &call->where);
}

/* The attributes of a gradient of `shape`. */
MIRT__TRAINING mirt__attrs mirt__conv_grad_attrs(const mirt__node *node, const mirt_shape *shape) {
    mirt__attrs a = node->a;
    a.shape = *shape;
    a.activation = MIRT_LINEAR;
    a.bias = false;
    a.of = node;
    return a;
}

/* Weight gradient (of conv2d or, with `which`, conv2d_pool): dx[1], and dx[2] when there is a bias. */
MIRT__TRAINING void mirt__conv_weight_gradient(mirt__node *node, mirt_tensor *dz, mirt_tensor *which,
                                               mirt_tensor **dx) {
    if (!node->in[1]->needs_grad && !(node->a.bias && node->in[2]->needs_grad)) return;
    mirt__attrs a = mirt__conv_grad_attrs(node, &node->in[1]->shape);
    mirt_tensor *in[3] = {node->in[0], dz, which};
    a.column_sum = node->a.bias && node->in[2]->needs_grad;
    dx[1] = mirt__apply(which ? MIRT__OP_conv2d_pool_weight_grad : MIRT__OP_conv2d_weight_grad, &a, in, which ? 3 : 2);
    if (dx[1] && a.column_sum) dx[2] = dx[1]->node->out[1];
}

MIRT__TRAINING void mirt__conv2d_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *dz = mirt__activation_grad_op(node->a.activation, dy[0], node->out[0]);
    const mirt__attrs a = mirt__conv_grad_attrs(node, &node->in[0]->shape);
    mirt__conv_weight_gradient(node, dz, NULL, dx);
    if (!node->in[0]->needs_grad) return;
    dx[0] = mirt__apply_two(MIRT__OP_conv2d_input_grad, &a, dz, node->in[1]);
}

/* Dense or depthwise, between images `a` and `b`. */
static bool mirt__tiled_between(const mirt__node *node, const mirt_tensor *a, const mirt_tensor *b) {
    const int groups = MIRT__OF(&node->a, window)->groups;
    return groups == 1 || (groups == mirt__last_dim(a) && mirt__last_dim(a) == mirt__last_dim(b));
}
static bool mirt__conv2d_tiled(const mirt__node *node) {
    return mirt__tiled_between(node, node->in[0], node->out[0]);
}
MIRT__TRAINING bool mirt__conv2d_weight_grad_tiled(const mirt__node *node) {
    return mirt__tiled_between(node, node->in[0], node->in[1]);
}

static bool mirt__conv2d_half_products(const mirt__node *node) { return MIRT__OF(&node->a, window)->groups == 1; }

/* Images that an epilogue reads have the output's dtype. */
static int mirt__conv2d_half_tied(const mirt__node *node, mirt_tensor **tied) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    int n = 0;
    if (!mirt__conv2d_tiled(node)) return 0;
    tied[n++] = node->out[0];
    for (int k = 2; k < node->num_in - w->both; k++) {
        if (node->in[k]->shape.rank == 4) tied[n++] = node->in[k];
    }
    return n;
}

MIRT__OP_ROW(conv2d, mirt__conv2d_shape, mirt__conv2d_run,
    MIRT__SET_GRADIENT(mirt__conv2d_gradient) MIRT__SET(workspace, mirt__conv_workspace)
    MIRT__SET_MACS(mirt__conv_macs) MIRT__IS(row_wise) MIRT__IS(multiplies) MIRT__IS(weighted_sum)
    MIRT__SET(takes, MIRT__TAKES_READER | MIRT__TAKES_BIAS | MIRT__TAKES_ACTIVATION | MIRT__TAKES_PADDING |
                     MIRT__TAKES_NORM | MIRT__TAKES_MOMENTS | MIRT__TAKES_MEANS)
    MIRT__SET(tiled_reads, mirt__conv2d_tiled) MIRT__SET(lazy_x, MIRT__INPUT(0)) MIRT__SET(half, mirt__conv2d_tiled)
    MIRT__SET(half_in, ~MIRT__INPUT(1)) MIRT__IS(half_out) MIRT__SET(half_tied, mirt__conv2d_half_tied)
    MIRT__SET(half_products, mirt__conv2d_half_products))

MIRT__TRAINING bool mirt__conv_grad_shape(mirt__node *node) {
    if (!mirt__declare(node, MIRT_FLOAT32, &node->a.shape)) return false;
    mirt_shape bias = mirt_make_shape(node->a.shape.dim[3], 0, 0, 0, 0, 0);
    return !node->a.column_sum || mirt__declare(node, MIRT_FLOAT32, &bias);
}

/* With `both` the last input is x, and the weight gradient, [bias gradient] follow the outputs. */
static void mirt__conv2d_input_grad_run(const mirt__call *call) {
    mirt__conv_input_grad g;
    mirt__lazy_read read[2];
    mirt__reader x;
    mirt__scaling norm;
    int next;
    const mirt__attrs *a = &call->node->a;
    const mirt__attrs_window *w = MIRT__OF(a, window);
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.dy = mirt__lazy_reader_of(call, 0, &read[0]);
    g.kernel = mirt__in(call, 1);
    g.dx = call->out[0];
    g.dx_dtype = call->node->out[0]->dtype;
    g.half = a->half;
    g.winograd = a->winograd;
    g.epilogue = mirt__fused_epilogue(call, &norm, &next);
    if (MIRT__TRAINS && w->both) {
        const int out = w->sums ? 3 : 1;
        x = mirt__lazy_reader_of(call, next, &read[1]);
        g.x = &x;
        g.dkernel = mirt__out(call, out);
        if (a->column_sum) g.db = mirt__out(call, out + 1);
    }
    call->kernels->conv_input_grad(&g, &call->where);
}

MIRT__TRAINING_ROW(conv2d_input_grad, mirt__conv_grad_shape, mirt__conv2d_input_grad_run,
    MIRT__SET(workspace, mirt__conv_workspace) MIRT__SET_MACS(mirt__conv_macs)
    MIRT__SET(takes, MIRT__TAKES_MASK | MIRT__TAKES_GRADIENT | MIRT__TAKES_SLICE | MIRT__TAKES_NORM_SUMS)
    MIRT__SET(tiled_reads, mirt__conv2d_tiled) MIRT__SET(lazy_dy, MIRT__INPUT(0)) MIRT__SET(half, mirt__conv2d_tiled)
    MIRT__SET(half_in, ~MIRT__INPUT(1)) MIRT__IS(half_out) MIRT__SET(half_tied, mirt__conv2d_half_tied)
    MIRT__SET(half_products, mirt__conv2d_half_products))

MIRT__TRAINING void mirt__conv2d_weight_grad_run(const mirt__call *call) {
    mirt__conv_weight_grad g;
    mirt__lazy_read x, dy;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.x = mirt__lazy_reader_of(call, 0, &x);
    g.dy = mirt__lazy_reader_of(call, 1, &dy);
    g.half = call->node->a.half;
    g.dkernel = mirt__out(call, 0);
    if (call->node->a.column_sum) g.db = mirt__out(call, 1);
    call->kernels->conv_weight_grad(&g, &call->where);
}

MIRT__TRAINING_ROW(conv2d_weight_grad, mirt__conv_grad_shape, mirt__conv2d_weight_grad_run,
    MIRT__SET(workspace, mirt__conv_workspace) MIRT__SET_MACS(mirt__conv_macs) MIRT__SET(takes, MIRT__TAKES_PADDING)
    MIRT__SET(tiled_reads, mirt__conv2d_weight_grad_tiled) MIRT__SET(lazy_x, MIRT__INPUT(0))
    MIRT__SET(lazy_dy, MIRT__INPUT(1)) MIRT__SET(half, mirt__conv2d_weight_grad_tiled)
    MIRT__SET(half_in, MIRT__INPUTS_ALL) MIRT__SET(half_products, mirt__conv2d_half_products))

/* One axis of the output of `in` pixels. Without output padding (0) the largest whose convolution has x's size;
   otherwise (-1: none) as Keras, beyond the smallest, or with SAME beyond what ends in the middle of a window. */
static bool mirt__transposed_size(const mirt__attrs_window *w, int axis, int kernel, int64_t in, int64_t *out) {
    const int64_t stride = w->strides[axis], reach = (int64_t)(kernel - 1) * w->dilation[axis] + 1;
    const int64_t extra = w->size[axis] == -1 ? 0 : w->size[axis];
    const bool same = w->padding == MIRT_SAME;
    if (in > MIRT__MAX_ELEMENTS / stride)
        return mirt__fail(MIRT_E_SHAPE, "strides of %lld make too large an output", (long long)stride), false;
    *out = in * stride + (same || reach < stride ? 0 : reach - stride);
    if (!w->size[axis]) return true;
    *out = (in - 1) * stride + (same ? reach % 2 : reach) + extra;
    if (extra >= 0 && extra < stride && (!same || *out > (in - 1) * stride)) return true;
    return mirt__fail(MIRT_E_INVALID,
                      "output_padding is %lld; it must be less than the stride, %lld, and with an even kernel and SAME "
                      "more than 0",
                      (long long)extra, (long long)stride),
           false;
}

static bool mirt__conv2d_transpose_shape(mirt__node *node) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    const mirt_shape *x = &node->in[0]->shape, *k = &node->in[1]->shape;
    mirt_shape *y = &node->a.shape;
    mirt__conv s;
    char tx[96], tk[96];
    if (!mirt__need_float(node, 2)) return false;
    if (x->rank != 4 || k->rank != 4 || x->dim[3] != k->dim[3] || w->groups < 1 || x->dim[3] % w->groups) {
        return mirt__fail(MIRT_E_SHAPE,
                          "input is %s and the kernel %s; a transposed convolution takes (rows, height, width, "
                          "channels) and (height, width, filters / groups, channels)",
                          mirt__shape_text(x, tx), mirt__shape_text(k, tk)),
               false;
    }
    const int kernel[2] = {(int)k->dim[0], (int)k->dim[1]};
    if (!mirt__window_check(kernel, w->strides, w->dilation, w->padding)) return false;
    *y = *x;
    for (int i = 0; i < 2; i++) {
        if (!mirt__transposed_size(w, i, kernel[i], x->dim[1 + i], &y->dim[1 + i])) return false;
    }
    y->dim[3] = k->dim[2] * w->groups;
    return mirt__declare(node, MIRT_FLOAT32, y) && mirt__conv_geometry(node, y, k, 1, &s) && mirt__conv_countable(&s);
}

MIRT__TRAINING void mirt__conv2d_transpose_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt_tensor *x = node->in[0], *k = node->in[1];
    mirt__attrs a = node->a;
    a.shape = k->shape;
    if (x->needs_grad) dx[0] = mirt__conv2d_op(dy[0], k, &a);
    if (k->needs_grad) dx[1] = mirt__apply_two(MIRT__OP_conv2d_weight_grad, &a, dy[0], x);
}

MIRT__OP_ROW(conv2d_transpose, mirt__conv2d_transpose_shape, mirt__conv2d_input_grad_run,
    MIRT__SET_GRADIENT(mirt__conv2d_transpose_gradient) MIRT__SET(workspace, mirt__conv_workspace)
    MIRT__SET_MACS(mirt__conv_macs) MIRT__IS(row_wise) MIRT__IS(multiplies) MIRT__IS(weighted_sum))

MIRT__LIB mirt_tensor *mirt__conv2d_transpose_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    mirt__attrs own = *a;
    if (!MIRT__OF(&own, window)->groups) MIRT__OF(&own, window)->groups = 1;
    return mirt__apply_two(MIRT__OP_conv2d_transpose, &own, x, kernel);
}

static void mirt__conv2d_pool_run(const mirt__call *call) {
    mirt__conv_pool p;
    memset(&p, 0, sizeof p);
    mirt__conv_of(call->node, call->rows, &p.s);
    p.x = mirt__reader_of(call, 0);
    p.kernel = mirt__in(call, 1);
    if (call->node->a.bias) p.bias = mirt__in(call, 2);
    p.y = mirt__out(call, 0);
    p.which = (uint8_t *)call->out[1];
    call->kernels->conv_pool(&p, &call->where);
}

MIRT__TRAINING void mirt__conv2d_pool_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    mirt__conv_weight_gradient(node, dy[0], node->out[1], dx);
}

/* Never recorded: mirt__fuse_pool makes it from a convolution whose shape is known. */
MIRT__OP_ROW(conv2d_pool, NULL, mirt__conv2d_pool_run,
    MIRT__SET_GRADIENT(mirt__conv2d_pool_gradient) MIRT__SET(workspace, mirt__conv_workspace)
    MIRT__SET_MACS(mirt__conv_macs) MIRT__SET(optional_outputs, MIRT__OUTPUT(1)))

MIRT__TRAINING void mirt__conv2d_pool_weight_grad_run(const mirt__call *call) {
    mirt__conv_pool_weight_grad g;
    memset(&g, 0, sizeof g);
    mirt__conv_of(call->node, call->rows, &g.s);
    g.x = mirt__reader_of(call, 0);
    g.dy = mirt__in(call, 1);
    g.which = (const uint8_t *)call->in[2];
    g.dkernel = mirt__out(call, 0);
    if (call->node->a.column_sum) g.db = mirt__out(call, 1);
    call->kernels->conv_pool_weight_grad(&g, &call->where);
}

/* Of every window's four places one counts at most. */
MIRT__TRAINING double mirt__conv2d_pool_weight_grad_macs(const mirt__node *node, int64_t rows) {
    return mirt__conv_macs(node, rows) / 4;
}

MIRT__TRAINING_ROW(conv2d_pool_weight_grad, mirt__conv_grad_shape, mirt__conv2d_pool_weight_grad_run,
    MIRT__SET(workspace, mirt__conv_workspace) MIRT__SET_MACS(mirt__conv2d_pool_weight_grad_macs))

MIRT__LIB mirt_tensor *mirt__conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    return mirt__apply_two(MIRT__OP_conv2d, a, x, kernel);
}

MIRT__LIB mirt_tensor *mirt__depthwise_conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a) {
    if (!x || !kernel) return NULL;
    mirt_shape k = kernel->shape;
    mirt__attrs own = *a;
    if (k.rank != 4 || k.dim[2] != mirt__last_dim(x) || k.dim[2] > INT_MAX) {
        char tx[96], tk[96];
        mirt__fail(MIRT_E_SHAPE,
                   "a depthwise kernel of %s does not fit %s: it is (height, width, channels, multiplier)",
                   mirt__shape_text(&k, tk), mirt__shape_text(&x->shape, tx));
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    MIRT__OF(&own, window)->groups = (int)k.dim[2];
    k.dim[3] *= k.dim[2];
    k.dim[2] = 1;
    return mirt__conv2d_op(x, mirt__reshape_op(kernel, &k), &own);
}
