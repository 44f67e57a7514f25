#include "ops.h"
/* Matrix products. */

/* transpose_a, transpose_b. An operand is the matrix [all other axes, last axis]. Fused: a.bias,
   a.activation, a.mask_activation, a.column_sum, a.affine (first operand). a.half: products of bfloat16, as those of
   the 1x1 convolution that it is, of images of one pixel: forward, its input gradient when the second operand is
   transposed, its weight gradient when the first one is. */

/* An operand as it lies in memory, before its transposition. */
typedef struct mirt__matrix {
    int64_t rows, cols;
    bool batched; /* `rows` is that of one row of the batch */
} mirt__matrix;

static mirt__matrix mirt__matrix_of(const mirt_tensor *x) {
    mirt__matrix m;
    m.cols = mirt__last_dim(x);
    m.rows = m.cols ? mirt__shape_count(&x->shape) / m.cols : 0;
    m.batched = mirt__is_batched(&x->shape) && x->shape.rank > 1;
    return m;
}

static bool mirt__matmul_misfit(const mirt__node *node) {
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    char ta[96], tb[96];
    mirt__fail(MIRT_E_SHAPE, "%s%s and %s%s: inner sizes differ", mirt__shape_text(&node->in[0]->shape, ta),
               t->transpose_a ? " transposed" : "", mirt__shape_text(&node->in[1]->shape, tb),
               t->transpose_b ? " transposed" : "");
    return false;
}

static bool mirt__matmul_shape(mirt__node *node) {
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    const mirt_tensor *a = node->in[0], *b = node->in[1];
    if (b->dtype != MIRT_FLOAT32 || (a->dtype != MIRT_FLOAT32 && !node->a.affine)) return mirt__need_float(node, 2);
    if (a->shape.rank < 1 || b->shape.rank < 1)
        return mirt__fail(MIRT_E_SHAPE, "takes tensors of rank 1 and more"), false;
    if (mirt__last_dim(a) == MIRT_ROWS || mirt__last_dim(b) == MIRT_ROWS) {
        return mirt__fail(MIRT_E_SHAPE, "takes (rows, features), not a bare column of rows: reshape it"), false;
    }
    mirt__matrix ma = mirt__matrix_of(a), mb = mirt__matrix_of(b);
    int64_t ka = t->transpose_a ? ma.rows : ma.cols, kb = t->transpose_b ? mb.cols : mb.rows;
    bool ka_batched = t->transpose_a && ma.batched, kb_batched = !t->transpose_b && mb.batched;
    if (ka != kb || ka_batched != kb_batched) return mirt__matmul_misfit(node);
    if (t->transpose_b && mb.batched) {
        return mirt__fail(MIRT_E_SHAPE, "the rows of a batch can only come first in the result"), false;
    }
    mirt_shape y = a->shape;
    if (t->transpose_a) {
        memset(&y, 0, sizeof y);
        y.rank = 2;
        y.dim[0] = ma.cols;
    }
    y.dim[y.rank - 1] = t->transpose_b ? mb.rows : mb.cols;
    if (!mirt__declare(node, MIRT_FLOAT32, &y)) return false;
    mirt_shape column = mirt_make_shape(mirt__last_dim(node->out[0]), 0, 0, 0, 0, 0);
    return !node->a.column_sum || mirt__declare(node, MIRT_FLOAT32, &column);
}

static void mirt__matmul_args(const mirt__node *node, int64_t rows, mirt__gemm *g) {
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    mirt__matrix ma = mirt__matrix_of(node->in[0]), mb = mirt__matrix_of(node->in[1]);
    int64_t ra = ma.rows * (ma.batched ? rows : 1), rb = mb.rows * (mb.batched ? rows : 1);
    memset(g, 0, sizeof *g);
    g->m = t->transpose_a ? ma.cols : ra;
    g->k = t->transpose_a ? ra : ma.cols;
    g->n = t->transpose_b ? rb : mb.cols;
    g->a_row = t->transpose_a ? 1 : ma.cols;
    g->a_col = t->transpose_a ? ma.cols : 1;
    g->b_row = t->transpose_b ? 1 : mb.cols;
    g->b_col = t->transpose_b ? mb.cols : 1;
    g->a.dtype = node->in[0]->dtype;
    g->a.affine = node->a.affine;
}

/* The operands after the two matrices, as recorded by the fusion. */
static mirt__epilogue mirt__epilogue_of(const mirt__call *call) {
    mirt__epilogue e;
    memset(&e, 0, sizeof e);
    int next = 2;
    if (call->node->a.bias) e.bias = mirt__in(call, next++);
    if (call->node->a.mask_activation) e.mask = mirt__in(call, next);
    e.activation = call->node->a.activation;
    e.mask_activation = call->node->a.mask_activation;
    return e;
}

static mirt__conv mirt__matmul_conv(const mirt__node *node, int64_t rows) {
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    mirt__gemm g;
    mirt__conv s;
    mirt__matmul_args(node, rows, &g);
    memset(&s, 0, sizeof s);
    s.h = s.w = s.oh = s.ow = 1;
    s.kh = s.kw = s.stride_h = s.stride_w = s.dilation_h = s.dilation_w = s.groups = 1;
    s.rows = t->transpose_a ? g.k : g.m;
    s.ci = t->transpose_a ? g.m : t->transpose_b ? g.n : g.k;
    s.co = t->transpose_b ? g.k : g.n;
    return s;
}

static void mirt__matmul_half(const mirt__call *call) {
    const mirt__node *node = call->node;
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    if (t->transpose_a) {
        mirt__conv_weight_grad g;
        memset(&g, 0, sizeof g);
        g.s = mirt__matmul_conv(node, call->rows);
        g.x = mirt__reader_of(call, 0);
        g.dy = mirt__reader_of(call, 1);
        g.half = true;
        g.dkernel = mirt__out(call, 0);
        if (node->a.column_sum) g.db = mirt__out(call, 1);
        call->kernels->conv_weight_grad(&g, &call->where);
    } else if (t->transpose_b) {
        mirt__conv_input_grad g;
        memset(&g, 0, sizeof g);
        g.s = mirt__matmul_conv(node, call->rows);
        g.dy = mirt__reader_of(call, 0);
        g.kernel = mirt__in(call, 1);
        g.dx = call->out[0];
        g.half = true;
        g.epilogue = mirt__epilogue_of(call);
        call->kernels->conv_input_grad(&g, &call->where);
    } else {
        mirt__conv_forward f;
        memset(&f, 0, sizeof f);
        f.s = mirt__matmul_conv(node, call->rows);
        f.x = mirt__reader_of(call, 0);
        f.kernel = mirt__in(call, 1);
        f.y = call->out[0];
        f.half = true;
        f.epilogue = mirt__epilogue_of(call);
        call->kernels->conv_forward(&f, &call->where);
    }
}

static void mirt__matmul_run(const mirt__call *call) {
    mirt__gemm g;
    if (call->node->a.half) {
        mirt__matmul_half(call);
        return;
    }
    mirt__matmul_args(call->node, call->rows, &g);
    g.a = mirt__reader_of(call, 0);
    g.b = mirt__in(call, 1);
    g.c = mirt__out(call, 0);
    if (call->node->a.column_sum) g.column_sum = mirt__out(call, 1);
    g.epilogue = mirt__epilogue_of(call);
    call->kernels->gemm(&g, &call->where);
}

static void mirt__matmul_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__gemm g;
    if (node->a.half) {
        const mirt__conv s = mirt__matmul_conv(node, rows);
        out->scratch = mirt__conv_scratch(&s);
        out->shared = mirt__conv_shared(&s);
        return;
    }
    mirt__matmul_args(node, rows, &g);
    out->scratch = mirt__gemm_scratch(&g);
}

MIRT__TRAINING double mirt__matmul_macs(const mirt__node *node, int64_t rows) {
    mirt__gemm g;
    mirt__matmul_args(node, rows, &g);
    return (double)g.m * (double)g.n * (double)g.k;
}

/* The weight gradient of a dense layer, and its bias gradient in the same pass. */
MIRT__TRAINING void mirt__matmul_weight_grad(mirt__node *node, mirt_tensor *dz, mirt_tensor **dx) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_matmul);
    MIRT__OF(&a, matmul)->transpose_a = true;
    a.affine = node->a.affine;
    a.scale = node->a.scale;
    a.offset = node->a.offset;
    a.column_sum = node->a.bias && node->in[2]->needs_grad;
    mirt_tensor *db = mirt__apply_two(MIRT__OP_matmul, &a, node->in[0], dz);
    dx[1] = mirt__reshape_op(db, &node->in[1]->shape);
    if (db && a.column_sum) dx[2] = db->node->out[1];
}

MIRT__TRAINING void mirt__matmul_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    mirt_tensor *a = node->in[0], *b = node->in[1];
    bool ta = t->transpose_a, tb = t->transpose_b;
    mirt_tensor *dz = mirt__activation_grad_op(node->a.activation, dy[0], node->out[0]);
    if (a->needs_grad) {
        mirt_tensor *da = ta ? mirt__matmul_op(b, dz, tb, true) : mirt__matmul_op(dz, b, false, !tb);
        dx[0] = mirt__reshape_op(da, &a->shape);
    }
    if (!ta && !tb && (b->needs_grad || node->a.bias)) {
        mirt__matmul_weight_grad(node, dz, dx);
    } else if (b->needs_grad) {
        mirt_tensor *db = tb ? mirt__matmul_op(dz, a, true, ta) : mirt__matmul_op(a, dz, !ta, false);
        dx[1] = mirt__reshape_op(db, &b->shape);
    }
}

static bool mirt__matmul_half_products(const mirt__node *node) {
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    return !(t->transpose_a && t->transpose_b) && mirt__shape_count(&node->in[0]->shape) > 0 &&
           mirt__shape_count(&node->in[1]->shape) > 0;
}

MIRT__OP_ROW(matmul, mirt__matmul_shape, mirt__matmul_run,
    MIRT__SET_GRADIENT(mirt__matmul_gradient) MIRT__SET(workspace, mirt__matmul_workspace)
    MIRT__SET_MACS(mirt__matmul_macs) MIRT__IS(row_wise) MIRT__IS(multiplies) MIRT__IS(weighted_sum)
    MIRT__SET(takes, MIRT__TAKES_READER | MIRT__TAKES_BIAS | MIRT__TAKES_ACTIVATION | MIRT__TAKES_MASK)
    MIRT__SET(half_products, mirt__matmul_half_products)
    MIRT__SAVED(2, 2, MIRT__SAVES_transpose_a | MIRT__SAVES_transpose_b))

MIRT__LIB mirt_tensor *mirt__matmul_op(mirt_tensor *a, mirt_tensor *b, bool transpose_a, bool transpose_b) {
    mirt__attrs attrs = mirt__attrs_of(MIRT__OP_matmul);
    MIRT__OF(&attrs, matmul)->transpose_a = transpose_a;
    MIRT__OF(&attrs, matmul)->transpose_b = transpose_b;
    return mirt__apply_two(MIRT__OP_matmul, &attrs, a, b);
}

MIRT_API mirt_tensor *mirt_matmul(mirt_tensor *a, mirt_tensor *b, bool transpose_a, bool transpose_b) {
    return mirt__matmul_op(a, b, transpose_a, transpose_b);
}
