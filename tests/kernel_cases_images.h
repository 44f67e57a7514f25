#ifndef KERNEL_CASES_IMAGES_H
#define KERNEL_CASES_IMAGES_H
/* Plans, runs and shapes of products, convolutions, pooling, resizing and normalization. Their rows are in
   kernel_cases.h. */
#include "kernel_job.h"

/* ---- matrix products */

/* A reader that turns a stored element into about [-1, 1]. */
static mirt_dtype reader_dtype(int kind) { return kind == 1 ? MIRT_UINT8 : kind == 2 ? MIRT_INT32 : MIRT_FLOAT32; }
static mirt__reader reader(const job *j, int i, int kind) {
    mirt__reader r;
    memset(&r, 0, sizeof r);
    r.data = j->at[i];
    r.dtype = reader_dtype(kind);
    r.affine = kind != 0;
    r.scale = kind == 3 ? 0.5f : 1.0f / 128;
    r.offset = kind == 2 ? 0.0f : kind == 3 ? 0.25f : -1.0f;
    return r;
}

enum { G_M, G_N, G_K, G_LAYOUT, G_READER, G_BIAS, G_ACTIVATION, G_MASK, G_COLUMN_SUM, G_GRID };
enum { AB, AT_B, A_BT };
static const int32_t gemm_shapes[][MAX_NUMBERS] = {
    /* m, n, k, layout, reader, bias, activation, mask, column sum, grid */
    {1, 1, 1, AB, 0, 0, 0, 0, 0, 1},
    {6, 16, 3, AB, 0, 0, 0, 0, 0, 1},
    {7, 17, 33, AB, 0, 1, MIRT_RELU, 0, 0, 1},
    {13, 65, 21, AB, 0, 1, 0, 0, 0, 0},
    {5, 10, 130, AB, 1, 1, MIRT_RELU, 0, 0, 0},
    {12, 64, 64, AB, 2, 0, 0, 0, 0, 1},
    {3, 129, 9, AB, 3, 0, MIRT_TANH, 0, 0, 0},
    {14, 31, 1100, AB, 0, 1, MIRT_SIGMOID, 0, 0, 0},
    {4, 5, 0, AB, 0, 1, MIRT_RELU, 0, 0, 1},
    {0, 5, 4, AB, 0, 1, MIRT_RELU, 0, 0, 1},
    {1, 1, 1, AT_B, 0, 0, 0, 0, 1, 1},
    {33, 10, 7, AT_B, 0, 0, 0, 0, 1, 1},
    {97, 66, 5, AT_B, 0, 0, 0, 0, 0, 0},
    {20, 48, 600, AT_B, 1, 0, 0, 0, 1, 0},
    {9, 15, 13, AT_B, 2, 0, 0, 0, 1, 0},
    {9, 70, 0, AT_B, 0, 0, 0, 0, 1, 1},
    {1, 1, 1, A_BT, 0, 0, 0, 0, 0, 1},
    {7, 66, 10, A_BT, 0, 0, 0, MIRT_RELU, 0, 1},
    {12, 19, 64, A_BT, 0, 0, 0, MIRT_SIGMOID, 0, 0},
    {5, 130, 65, A_BT, 0, 0, 0, MIRT_TANH, 0, 0},
    {2, 3, 515, A_BT, 0, 1, MIRT_RELU, 0, 0, 0},
    {9, 37, 40, AB, 0, 1, MIRT_RELU6, 0, 0, 1},
    {7, 66, 10, A_BT, 0, 0, 0, MIRT_RELU6, 0, 1},
    {1, 61, 1100, AB, 0, 1, MIRT_RELU, 0, 0, 0}, /* threads share a panel of b */
    {2, 64, 600, A_BT, 0, 0, 0, MIRT_RELU, 0, 0},
    {1, 60, 1100, AB, 1, 1, MIRT_TANH, 0, 0, 0},
    {3, 40, 600, AT_B, 0, 0, 0, 0, 1, 0},
    {SHAPE_LARGE},
    {130, 21, 1100, AB, 1, 1, MIRT_RELU, 0, 0, 0}, /* several tiles of rows of a */
    {200, 70, 600, AT_B, 0, 0, 0, 0, 1, 0},
    {SHAPE_END}};

static void gemm_args(const job *j, mirt__gemm *g) {
    const int32_t *s = j->s;
    memset(g, 0, sizeof *g);
    g->m = s[G_LAYOUT] == AT_B ? s[G_M] : j->count;
    g->n = s[G_N];
    g->k = s[G_K];
    g->a = reader(j, 0, s[G_READER]);
    g->a_row = s[G_LAYOUT] == AT_B ? 1 : g->k;
    g->a_col = s[G_LAYOUT] == AT_B ? g->m : 1;
    g->b = (const float *)j->at[1];
    g->b_row = s[G_LAYOUT] == A_BT ? 1 : g->n;
    g->b_col = s[G_LAYOUT] == A_BT ? g->k : 1;
    g->epilogue.bias = s[G_BIAS] ? (const float *)j->at[2] : NULL;
    g->epilogue.activation = (mirt_activation_kind)s[G_ACTIVATION];
    g->epilogue.mask = s[G_MASK] ? (const float *)j->at[3] : NULL;
    g->epilogue.mask_activation = (mirt_activation_kind)s[G_MASK];
    g->c = out_at(j, 4);
    g->column_sum = s[G_COLUMN_SUM] ? out_at(j, 5) : NULL;
}

static void gemm_plan(job *j) {
    const int32_t *s = j->s;
    const fill how = s[G_GRID] ? GRID : UNIT;
    const bool by_row = s[G_LAYOUT] != AT_B, exact = s[G_GRID] && s[G_READER] != 1;
    mirt__gemm g;
    if (by_row) j->rows = s[G_M];
    int64_t m = s[G_M], n = s[G_N], k = s[G_K];
    add_buffer(j, IN, reader_dtype(s[G_READER]), how, by_row ? k : 0, m * k);
    input(j, how, k * n);
    input(j, how, n);
    add_buffer(j, IN, MIRT_FLOAT32, how, by_row ? n : 0, m * n);
    if (by_row) row_output(j, exact ? 0 : (double)k + 4, n);
    else output(j, exact ? 0 : (double)k + 4, m * n);
    output(j, s[G_GRID] ? 0 : (double)k, s[G_COLUMN_SUM] ? n : 0);
    j->count = j->rows;
    gemm_args(j, &g);
    j->scratch = mirt__gemm_scratch(&g);
}

static void gemm_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__gemm g;
    gemm_args(j, &g);
    k->gemm(&g, where);
}

/* ---- convolutions */

enum {
    C_ROWS, C_H, C_W, C_CI, C_CO, C_KH, C_KW, C_SH, C_SW, C_DH, C_DW, C_GROUPS, C_SAME, C_READER, C_BIAS, C_ACTIVATION,
    C_MASK, C_GRID
};
static const int32_t conv_shapes[][MAX_NUMBERS] = {
    /* rows, h, w, ci, co, kh, kw, stride, dilation, groups, same, reader, bias, activation, mask of the input gradient,
       grid */
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1},
    {2, 5, 7, 3, 5, 3, 3, 1, 1, 1, 1, 1, 0, 0, 1, MIRT_RELU, MIRT_RELU, 1},
    {3, 8, 6, 4, 17, 3, 2, 1, 1, 1, 1, 1, 1, 0, 1, MIRT_RELU, MIRT_SIGMOID, 0},
    {9, 12, 12, 1, 33, 5, 5, 1, 1, 1, 1, 1, 0, 1, 1, MIRT_RELU, 0, 0},
    {2, 7, 9, 6, 65, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 0, MIRT_TANH, 1},
    {3, 9, 9, 5, 16, 2, 2, 3, 3, 1, 1, 1, 1, 0, 1, 0, 0, 1},
    {2, 10, 8, 4, 6, 3, 3, 1, 1, 2, 2, 1, 1, 0, 0, 0, MIRT_RELU, 1},
    {2, 11, 9, 3, 7, 3, 2, 2, 1, 2, 3, 1, 1, 3, 1, 0, 0, 0},
    {5, 6, 6, 8, 12, 3, 3, 1, 1, 1, 1, 4, 1, 0, 1, MIRT_TANH, 0, 1},
    {4, 7, 5, 6, 6, 3, 3, 2, 2, 1, 1, 6, 1, 0, 0, 0, MIRT_RELU, 0},
    {5, 6, 7, 37, 37, 3, 3, 1, 1, 1, 1, 37, 1, 0, 1, MIRT_RELU, MIRT_RELU, 1}, /* one filter a channel */
    {9, 7, 8, 150, 150, 3, 2, 2, 3, 1, 1, 150, 1, 0, 0, 0, 0, 1},
    {2, 9, 8, 16, 16, 3, 3, 1, 1, 2, 3, 16, 0, 0, 1, 0, MIRT_TANH, 0},
    {2, 6, 6, 5, 5, 3, 3, 1, 1, 1, 1, 5, 1, 1, 1, 0, 0, 0},
    {1, 10, 9, 3, 3, 9, 9, 1, 1, 1, 1, 3, 1, 0, 0, 0, 0, 0},
    {2, 5, 5, 4, 4, 1, 1, 3, 3, 1, 1, 4, 1, 0, 0, 0, 0, 1},
    {6, 5, 5, 70, 3, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0},
    {2, 4, 4, 2, 3, 4, 4, 1, 1, 1, 1, 1, 0, 2, 1, 0, 0, 1},
    {2, 4, 4, 2, 3, 4, 4, 4, 4, 1, 1, 1, 1, 0, 1, 0, 0, 1},
    {2, 3, 3, 2, 4, 5, 5, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1}, /* the kernel is larger than the image */
    {0, 6, 6, 3, 5, 3, 3, 1, 1, 1, 1, 1, 0, 0, 1, MIRT_RELU, MIRT_RELU, 1},
    {1, 9, 10, 1, 3, 9, 9, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0}, /* more taps than a block of runs */
    {1, 7, 7, 5, 192, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, MIRT_RELU, 0, 0}, /* panels for two or three threads */
    {1, 7, 6, 10, 384, 3, 3, 1, 1, 1, 1, 2, 1, 0, 1, 0, 0, 0},
    {2, 4, 5, 129, 192, 1, 1, 1, 1, 1, 1, 1, 0, 3, 1, 0, 0, 0},
    {SHAPE_LARGE},
    {2, 40, 30, 64, 4, 3, 3, 1, 1, 1, 1, 1, 1, 0, 1, MIRT_RELU, MIRT_RELU, 0}, /* several tiles of an image */
    {2, 40, 30, 4, 64, 3, 3, 1, 1, 1, 1, 1, 1, 0, 1, 0, MIRT_RELU, 0},
    {1, 33, 61, 48, 4, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0},
    {5, 1, 1, 1024, 520, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0}, /* a kernel so large that all images are one chunk */
    {SHAPE_END}};

/* As TensorFlow's SAME: the odd zero goes after. */
static void window_out(int64_t in, int kernel, int stride, int dilation, bool same, int64_t *out, int64_t *before) {
    int64_t reach = (int64_t)(kernel - 1) * dilation + 1, pad;
    *out = same ? (in + stride - 1) / stride : (in - reach) / stride + 1;
    pad = (*out - 1) * stride + reach - in;
    *before = same && pad > 0 ? pad / 2 : 0;
}

static mirt__conv conv_of(const job *j) {
    const int32_t *s = j->s;
    mirt__conv c;
    c.rows = j->count;
    c.h = s[C_H];
    c.w = s[C_W];
    c.ci = s[C_CI];
    c.co = s[C_CO];
    c.kh = s[C_KH];
    c.kw = s[C_KW];
    c.stride_h = s[C_SH];
    c.stride_w = s[C_SW];
    c.dilation_h = s[C_DH];
    c.dilation_w = s[C_DW];
    c.groups = s[C_GROUPS];
    window_out(c.h, c.kh, c.stride_h, c.dilation_h, s[C_SAME] != 0, &c.oh, &c.pad_top);
    window_out(c.w, c.kw, c.stride_w, c.dilation_w, s[C_SAME] != 0, &c.ow, &c.pad_left);
    return c;
}

/* Sizes common to the family. */
static mirt__conv conv_plan(job *j) {
    j->count = j->rows = j->s[C_ROWS];
    mirt__conv c = conv_of(j);
    j->scratch = mirt__conv_scratch(&c);
    j->shared = mirt__conv_shared(&c);
    return c;
}
static fill conv_fill(const job *j) { return j->s[C_GRID] ? GRID : UNIT; }
/* x, of rows that may be cut or not. */
static void conv_input_x(job *j, const mirt__conv *c, bool by_row) {
    const int64_t image = c->h * c->w * c->ci;
    add_buffer(j, IN, reader_dtype(j->s[C_READER]), conv_fill(j), by_row ? image : 0, c->rows * image);
}
static int64_t conv_kernel_count(const mirt__conv *c) { return c->kh * c->kw * (c->ci / c->groups) * c->co; }
/* On bytes the sums are exact too: eight bits by three. */
static double conv_roundings(const job *j, int64_t k) { return j->s[C_GRID] ? 0 : (double)k + 4; }

static void conv_forward_plan(job *j) {
    mirt__conv c = conv_plan(j);
    conv_input_x(j, &c, true);
    input(j, conv_fill(j), conv_kernel_count(&c));
    input(j, conv_fill(j), j->s[C_BIAS] ? c.co : 0);
    double roundings = conv_roundings(j, conv_kernel_count(&c) / c.co);
    row_output(j, j->s[C_ACTIVATION] > MIRT_RELU ? roundings + 4 : roundings, c.oh * c.ow * c.co);
}

static void conv_forward_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__conv_forward f;
    memset(&f, 0, sizeof f);
    f.s = conv_of(j);
    f.x = reader(j, 0, j->s[C_READER]);
    f.kernel = in_at(j, 1);
    f.epilogue.bias = in_at(j, 2);
    f.epilogue.activation = (mirt_activation_kind)j->s[C_ACTIVATION];
    f.y = out_at(j, 3);
    k->conv_forward(&f, where);
}

static void conv_input_grad_plan(job *j) {
    mirt__conv c = conv_plan(j);
    row_input(j, conv_fill(j), c.oh * c.ow * c.co);
    input(j, conv_fill(j), conv_kernel_count(&c));
    row_input(j, conv_fill(j), c.h * c.w * c.ci);
    double roundings = conv_roundings(j, c.kh * c.kw * (c.co / c.groups));
    row_output(j, j->s[C_MASK] > MIRT_RELU ? roundings + 4 : roundings, c.h * c.w * c.ci);
}

static void conv_input_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__conv_input_grad g;
    memset(&g, 0, sizeof g);
    g.s = conv_of(j);
    g.dy.data = (const float *)j->at[0];
    g.kernel = in_at(j, 1);
    if (j->s[C_MASK]) g.epilogue.mask = (const float *)j->at[2];
    g.epilogue.mask_activation = (mirt_activation_kind)j->s[C_MASK];
    g.dx = out_at(j, 3);
    k->conv_input_grad(&g, where);
}

static void conv_weight_grad_plan(job *j) {
    mirt__conv c = conv_plan(j);
    double roundings = conv_roundings(j, c.rows * c.oh * c.ow);
    conv_input_x(j, &c, false);
    input(j, conv_fill(j), c.rows * c.oh * c.ow * c.co);
    output(j, roundings, conv_kernel_count(&c));
    output(j, roundings, j->s[C_BIAS] ? c.co : 0);
}

static void conv_weight_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__conv_weight_grad g;
    memset(&g, 0, sizeof g);
    g.s = conv_of(j);
    g.x = reader(j, 0, j->s[C_READER]);
    g.dy.data = (const float *)j->at[1];
    g.dkernel = out_at(j, 2);
    g.db = j->s[C_BIAS] ? out_at(j, 3) : NULL;
    k->conv_weight_grad(&g, where);
}

static const int32_t conv_pool_shapes[][MAX_NUMBERS] = {
    /* as conv_shapes */
    {1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1},
    {3, 6, 8, 2, 5, 3, 3, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1},
    {2, 9, 11, 3, 17, 3, 2, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1},
    {9, 10, 10, 1, 32, 3, 3, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1},
    {6, 12, 12, 1, 32, 3, 3, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0},
    {4, 8, 7, 5, 70, 2, 2, 1, 1, 1, 1, 1, 0, 3, 0, 0, 0, 0},
    {2, 7, 7, 4, 16, 5, 5, 1, 1, 1, 1, 1, 0, 2, 1, 0, 0, 1},
    {1, 3, 3, 2, 3, 3, 3, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1}, /* no whole window */
    {0, 6, 6, 2, 5, 3, 3, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1},
    {SHAPE_LARGE},
    {5, 28, 28, 1, 32, 3, 3, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0},
    {2, 24, 24, 8, 9, 5, 5, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1}, /* several blocks of windows */
    {1, 40, 30, 64, 4, 3, 3, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0}, /* several tiles of an image */
    {SHAPE_END}};

static void conv_pool_plan(job *j) {
    mirt__conv c = conv_plan(j);
    int64_t pooled = c.oh / 2 * (c.ow / 2) * c.co;
    conv_input_x(j, &c, true);
    input(j, conv_fill(j), conv_kernel_count(&c));
    input(j, conv_fill(j), j->s[C_BIAS] ? c.co : 0);
    row_output(j, conv_roundings(j, conv_kernel_count(&c) / c.co), pooled);
    int which = add_buffer(j, OUT, MIRT_UINT8, BYTES, pooled, pooled * c.rows);
    j->buffer[which].unchecked = !j->s[C_GRID]; /* roundings decide between near equals */
}

static void conv_pool_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__conv_pool p;
    memset(&p, 0, sizeof p);
    p.s = conv_of(j);
    p.x = reader(j, 0, j->s[C_READER]);
    p.kernel = in_at(j, 1);
    p.bias = in_at(j, 2);
    p.y = out_at(j, 3);
    p.which = (uint8_t *)j->at[4];
    k->conv_pool(&p, where);
}

static void conv_pool_weight_grad_plan(job *j) {
    mirt__conv c = conv_plan(j);
    int64_t pooled = c.rows * (c.oh / 2) * (c.ow / 2) * c.co;
    double roundings = conv_roundings(j, c.rows * (c.oh / 2) * (c.ow / 2));
    conv_input_x(j, &c, false);
    input(j, conv_fill(j), pooled);
    add_buffer(j, IN, MIRT_UINT8, BYTES, 0, pooled);
    uint8_t *which = (uint8_t *)j->buffer[2].initial;
    for (int64_t i = 0; i < pooled; i++) which[i] %= 5;
    output(j, roundings, conv_kernel_count(&c));
    output(j, roundings, j->s[C_BIAS] ? c.co : 0);
}

static void conv_pool_weight_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__conv_pool_weight_grad g;
    memset(&g, 0, sizeof g);
    g.s = conv_of(j);
    g.x = reader(j, 0, j->s[C_READER]);
    g.dy = (const float *)j->at[1];
    g.which = (const uint8_t *)j->at[2];
    g.dkernel = out_at(j, 3);
    g.db = j->s[C_BIAS] ? out_at(j, 4) : NULL;
    k->conv_pool_weight_grad(&g, where);
}

/* ---- pooling: sums in one order everywhere, hence equal values */

enum { P_ROWS, P_H, P_W, P_C, P_KH, P_KW, P_SH, P_SW, P_SAME };
static const int32_t pool_shapes[][MAX_NUMBERS] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},
    {3, 6, 6, 5, 2, 2, 2, 2, 0},
    {3, 7, 9, 17, 2, 2, 2, 2, 1},
    {2, 8, 7, 3, 3, 3, 1, 1, 1},
    {4, 9, 8, 16, 3, 2, 2, 1, 0},
    {2, 9, 9, 2, 2, 2, 3, 4, 1},
    {5, 4, 4, 65, 4, 4, 4, 4, 0},
    {2, 3, 3, 4, 5, 5, 1, 1, 1},
    {1, 20, 19, 18, 17, 17, 1, 2, 0},
    {2, 16, 16, 3, 16, 16, 16, 16, 0},
    {2, 9, 11, 40, 3, 3, 2, 2, 1},
    {1, 5, 7, 33, 1, 1, 2, 3, 0},
    {0, 6, 6, 5, 2, 2, 2, 2, 0},
    {SHAPE_END}};

static mirt__pool2d pool_of(const job *j) {
    const int32_t *s = j->s;
    mirt__pool2d p;
    memset(&p, 0, sizeof p);
    p.rows = j->count;
    p.h = s[P_H];
    p.w = s[P_W];
    p.c = s[P_C];
    p.kh = s[P_KH];
    p.kw = s[P_KW];
    p.stride_h = s[P_SH];
    p.stride_w = s[P_SW];
    window_out(p.h, p.kh, p.stride_h, 1, s[P_SAME] != 0, &p.oh, &p.pad_top);
    window_out(p.w, p.kw, p.stride_w, 1, s[P_SAME] != 0, &p.ow, &p.pad_left);
    return p;
}

static void pool_call(const job *j, void (*kernel)(const mirt__pool2d *, const mirt__where *), int from, int to,
                      int which, const mirt__where *where) {
    mirt__pool2d p = pool_of(j);
    p.x = j->at[from];
    p.y = out_at(j, to);
    if (which >= 0) p.which = (void *)j->at[which];
    kernel(&p, where);
}

static void max_pool_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    pool_call(j, k->max_pool, 0, 1, 2, where);
}
static void max_pool_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    pool_call(j, k->max_pool_grad, 3, 4, 2, where);
}
static void average_pool_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    pool_call(j, k->average_pool, 0, 1, -1, where);
}
static void average_pool_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    pool_call(j, k->average_pool_grad, 0, 1, -1, where);
}

/* The images before pooling and after; of a gradient the other way round. */
static mirt__pool2d pool_plan(job *j, fill how, bool back) {
    j->count = j->rows = j->s[P_ROWS];
    const mirt__pool2d p = pool_of(j);
    const int64_t x = p.h * p.w * p.c, y = p.oh * p.ow * p.c;
    row_input(j, how, back ? y : x);
    row_output(j, 0, back ? x : y);
    return p;
}
static void average_pool_plan(job *j) { pool_plan(j, UNIT, false); }
static void average_pool_grad_plan(job *j) { pool_plan(j, UNIT, true); }

static void max_pool_plan(job *j) {
    const mirt__pool2d p = pool_plan(j, ODD, false);
    const bool wide = mirt__pool_wide((int64_t)p.kh * p.kw);
    add_buffer(j, OUT, wide ? MIRT_INT32 : MIRT_UINT8, wide ? WORDS : BYTES, p.oh * p.ow * p.c,
               p.rows * p.oh * p.ow * p.c);
}

static void max_pool_grad_plan(job *j) {
    max_pool_plan(j);
    prepare(j, max_pool_run);
    mirt__pool2d p = pool_of(j);
    j->buffer[1].role = j->buffer[2].role = IN;
    row_input(j, UNIT, p.oh * p.ow * p.c);
    row_output(j, 0, p.h * p.w * p.c);
}

/* ---- images of another size */

enum { R_ROWS, R_H, R_W, R_C, R_OH, R_OW, R_BILINEAR };
static const int32_t resize_shapes[][MAX_NUMBERS] = {{1, 1, 1, 1, 1, 1, 0},    {1, 1, 1, 1, 1, 1, 1},
                                                     {2, 3, 2, 5, 6, 6, 0},    {2, 3, 2, 5, 6, 6, 1},
                                                     {3, 5, 7, 17, 3, 9, 0},   {3, 5, 7, 17, 3, 9, 1},
                                                     {1, 1, 4, 3, 3, 4, 1},    {0, 2, 2, 3, 4, 4, 1},
                                                     {5, 20, 13, 8, 7, 40, 1}, {SHAPE_END}};
static mirt__resize resize_args(const job *j) {
    mirt__resize r;
    r.rows = j->count;
    r.h = j->s[R_H];
    r.w = j->s[R_W];
    r.c = j->s[R_C];
    r.oh = j->s[R_OH];
    r.ow = j->s[R_OW];
    r.bilinear = j->s[R_BILINEAR] != 0;
    r.x = (const float *)j->at[0];
    r.y = out_at(j, 1);
    return r;
}
static void resize_plan(job *j) {
    j->rows = j->s[R_ROWS];
    row_input(j, UNIT, j->s[R_H] * j->s[R_W] * j->s[R_C]);
    row_output(j, j->s[R_BILINEAR] ? 8 : 0, j->s[R_OH] * j->s[R_OW] * j->s[R_C]);
}
static void resize_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    const mirt__resize r = resize_args(j);
    k->resize(&r, where);
}
static void resize_grad_plan(job *j) {
    j->rows = j->s[R_ROWS];
    row_input(j, UNIT, j->s[R_OH] * j->s[R_OW] * j->s[R_C]);
    row_output(j, j->s[R_BILINEAR] ? 16 : 0, j->s[R_H] * j->s[R_W] * j->s[R_C]);
}
static void resize_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    const mirt__resize r = resize_args(j);
    k->resize_grad(&r, where);
}

/* ---- normalization: sums of rows in chunks and doubles, quotients by square roots of at least 0.01 */

enum { N_ROWS, N_N, N_BY_ROW, N_GAMMA, N_BETA, N_ACTIVATION, N_ADD }; /* N_ACTIVATION: of u */
static const int32_t norm_shapes[][MAX_NUMBERS] = {{1, 1, 0, 0, 0},
                                                   {1, 1, 1, 1, 1},
                                                   {7, 5, 0, 1, 1},
                                                   {6, 5, 1, 1, 1},
                                                   {300, 3, 0, 1, 0},
                                                   {515, 17, 0, 0, 1},
                                                   {256, 64, 0, 1, 1},
                                                   {5, 300, 1, 1, 0},
                                                   {9, 257, 1, 0, 1},
                                                   {260, 8, 1, 0, 0},
                                                   {3, 70, 0, 0, 0},
                                                   {9, 21, 0, 1, 1, MIRT_RELU},
                                                   {270, 9, 0, 0, 0, MIRT_RELU6},
                                                   {9, 21, 1, 1, 0, MIRT_RELU},
                                                   {9, 35, 0, 1, 1, MIRT_SILU},
                                                   {300, 17, 0, 1, 1, MIRT_SIGMOID},
                                                   {9, 21, 1, 1, 1, MIRT_TANH},
                                                   {7, 33, 0, 0, 1, MIRT_LEAKY_RELU, 1},
                                                   {5, 18, 0, 1, 1, MIRT_GELU},
                                                   {5, 20, 1, 1, 1, MIRT_SILU, 1},
                                                   {6, 19, 0, 1, 0, MIRT_ELU, 1},
                                                   {6, 19, 0, 1, 0, MIRT_HARD_SWISH},
                                                   {6, 19, 0, 1, 0, MIRT_HARD_SIGMOID},
                                                   {6, 19, 0, 1, 1, MIRT_SOFTPLUS},
                                                   {6, 19, 0, 1, 0, MIRT_SELU},
                                                   {6, 19, 0, 1, 1, MIRT_MISH},
                                                   {6, 19, 0, 0, 1, MIRT_SOFTSIGN},
                                                   {6, 19, 0, 1, 1, MIRT_EXPONENTIAL},
                                                   {6, 19, 1, 1, 1, MIRT_GELU_APPROXIMATE},
                                                   {40, 64, 0, 1, 1, MIRT_RELU, 1},
                                                   {300, 100, 0, 1, 1, MIRT_RELU6, 1},
                                                   {0, 4, 0, 1, 1},
                                                   {0, 4, 1, 1, 1},
                                                   {SHAPE_LARGE},
                                                   {1100, 130, 0, 1, 1},
                                                   {40, 1100, 1, 1, 1},
                                                   {SHAPE_END}};
static int norm_rows_of(job *j, bool per_row, fill how, int64_t count) {
    return per_row ? row_input(j, how, count) : input(j, how, count * j->s[N_ROWS]);
}
/* x, dy, mean, variance, gamma, beta, the two sums and what is added, whether they are read or not. */
static void norm_inputs(job *j, bool per_row) {
    const int64_t n = j->s[N_N];
    mirt__norm shape;
    memset(&shape, 0, sizeof shape);
    shape.rows = j->s[N_ROWS];
    shape.n = n;
    j->shared = mirt__norm_shared(&shape);
    if (per_row) j->rows = shape.rows;
    for (int i = 0; i < 2; i++) norm_rows_of(j, per_row, UNIT, n);
    for (int i = 0; i < 2; i++) {
        if (j->s[N_BY_ROW]) norm_rows_of(j, per_row, i ? POSITIVE : UNIT, 1);
        else input(j, i ? POSITIVE : UNIT, n);
    }
    for (int i = 0; i < 4; i++) input(j, UNIT, n);
    norm_rows_of(j, per_row, UNIT, n);
    j->scratch = mirt__norm_scratch(&shape);
}
static mirt__norm norm_args(const job *j, bool per_row) {
    mirt__norm s;
    memset(&s, 0, sizeof s);
    s.rows = per_row ? j->count : j->s[N_ROWS];
    s.n = j->s[N_N];
    s.by_row = j->s[N_BY_ROW] != 0;
    s.epsilon = 1e-3f;
    s.x = (const float *)j->at[0];
    s.dy = (const float *)j->at[1];
    s.mean = (const float *)j->at[2];
    s.variance = (const float *)j->at[3];
    s.gamma = j->s[N_GAMMA] ? (const float *)j->at[4] : NULL;
    s.beta = j->s[N_BETA] ? (const float *)j->at[5] : NULL;
    s.activation = (mirt_activation_kind)j->s[N_ACTIVATION];
    return s;
}
static void norm_stats_plan(job *j) {
    norm_inputs(j, j->s[N_BY_ROW]);
    for (int i = 0; i < 2; i++) {
        if (j->s[N_BY_ROW]) row_output(j, 8, 1);
        else output(j, 12, j->s[N_N]);
    }
}
static void norm_stats_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__norm s = norm_args(j, j->s[N_BY_ROW]);
    for (int i = 0; i < 2; i++) s.out[i] = out_at(j, 9 + i);
    k->norm_stats(&s, where);
}
static void normalize_plan(job *j) {
    norm_inputs(j, true);
    row_output(j, 16, j->s[N_N]);
}
static void normalize_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__norm s = norm_args(j, true);
    if (j->s[N_ADD]) s.add = (const float *)j->at[8];
    s.y = out_at(j, 9);
    k->normalize(&s, where);
}
static void norm_grad_sums_plan(job *j) {
    norm_inputs(j, false);
    for (int i = 0; i < 2; i++) output(j, 64, j->s[N_N]);
}
static void norm_grad_sums_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__norm s = norm_args(j, false);
    for (int i = 0; i < 2; i++) s.out[i] = out_at(j, 9 + i);
    k->norm_grad_sums(&s, where);
}
static void norm_grad_input_plan(job *j) {
    norm_inputs(j, true);
    row_output(j, 64, j->s[N_N]);
}
static void norm_grad_input_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__norm s = norm_args(j, true);
    /* three rows: constant statistics */
    for (int i = 0; i < 2 && j->s[N_ROWS] != 3; i++) s.sum[i] = (const float *)j->at[6 + i];
    s.count = 1.5 * j->s[N_ROWS];
    s.y = out_at(j, 9);
    k->norm_grad_input(&s, where);
}

#endif
