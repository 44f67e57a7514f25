#ifndef KERNEL_CASES_H
#define KERNEL_CASES_H
/* One row per kernel: its buffers, its call, and the shapes to test. To add a
   kernel, add a plan, a run, a list of shapes and a row in kernel_cases[] at the end. Those of
   products and images are in kernel_cases_images.h. */
#include "kernel_cases_images.h"

/* ---- elementwise */

#define UNARY_KIND(number, id, ...) {MIRT__##id, 37},
#define BINARY_KIND(number, id, ...) {MIRT__##id, 0, 0, 2, 3, 37},
static const int32_t unary_shapes[][MAX_NUMBERS] = {MIRT__UNARY_LIST(UNARY_KIND){MIRT__COPY, 1},
                                                    {MIRT__COPY, 40000},
                                                    {MIRT__COPY, 0},
                                                    {MIRT__NEGATIVE, 17},
                                                    {MIRT__SQUARE, 33},
                                                    {MIRT__ACT_RELU, 100},
                                                    {MIRT__ACT_RELU, 33000},
                                                    {MIRT__ACT_SIGMOID, 65},
                                                    {MIRT__ACT_TANH, 15},
                                                    {MIRT__AFFINE, 19},
                                                    {MIRT__EXP, 33},
                                                    {MIRT__LOG, 17},
                                                    {MIRT__SQRT, 40},
                                                    {MIRT__RSQRT, 33},
                                                    {MIRT__ABS, 70},
                                                    {MIRT__SIGN, 35},
                                                    {MIRT__FLOOR, 21},
                                                    {MIRT__CLIP, 99},
                                                    {MIRT__POWER, 23},
                                                    {MIRT__ACT_RELU6, 140},
                                                    {MIRT__ACT_LEAKY_RELU, 20},
                                                    {MIRT__ACT_ELU, 35},
                                                    {MIRT__ACT_GELU, 90},
                                                    {MIRT__ACT_SILU, 65},
                                                    {MIRT__ACT_HARD_SIGMOID, 70},
                                                    {MIRT__ACT_HARD_SWISH, 70},
                                                    {MIRT__ACT_SOFTPLUS, 65},
                                                    {MIRT__ACT_SELU, 65},
                                                    {MIRT__ACT_MISH, 65},
                                                    {MIRT__ACT_SOFTSIGN, 65},
                                                    {MIRT__ACT_GELU_APPROXIMATE, 65},
                                                    {SHAPE_END}};

static void unary_plan(job *j) {
    j->rows = j->s[1];
    const int kind = j->s[0];
    const bool positive = kind == MIRT__LOG || kind == MIRT__SQRT || kind == MIRT__RSQRT || kind == MIRT__POWER;
    const bool wide = kind == MIRT__ACT_SIGMOID || kind == MIRT__SIGN || kind == MIRT__FLOOR || kind >= MIRT__ACT_RELU6;
    row_input(j, positive ? POSITIVE : wide ? WIDE : UNIT, 1);
    const bool curved = kind > MIRT__POWER || kind == MIRT__EXP || kind == MIRT__ACT_SIGMOID || kind == MIRT__ACT_TANH;
    row_output(j, curved ? 3 : 0, 1);
    j->library = kind == MIRT__LOG ? 1 : kind == MIRT__POWER ? 4 : 0; /* CUDA's logf and powf, as documented */
    j->alias_in = 0;
    j->alias_out = 1;
}

static void unary_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__unary u;
    memset(&u, 0, sizeof u);
    u.kind = (mirt__unary_kind)j->s[0];
    u.count = j->count;
    u.x = (const float *)j->at[0];
    u.y = out_at(j, 1);
    u.scale = u.kind == MIRT__CLIP ? -0.6f : 1.0f / 3;
    u.offset = -0.1f;
    k->unary(&u, where);
}

enum { B_KIND, B_A_REPEATS, B_B_REPEATS, B_RANK, B_DIM }; /* bit i: repeats along dimension i */
static const int32_t binary_shapes[][MAX_NUMBERS] = {MIRT__BINARY_LIST(BINARY_KIND){MIRT__ADD, 0, 0, 1, 1},
                                                     {MIRT__SUBTRACT, 0, 0, 2, 7, 13},
                                                     {MIRT__MULTIPLY, 0, 0, 4, 3, 4, 5, 6},
                                                     {MIRT__DIVIDE, 0, 0, 1, 100},
                                                     {MIRT__RELU_GRAD, 0, 0, 2, 9, 33},
                                                     {MIRT__SIGMOID_GRAD, 0, 0, 2, 5, 17},
                                                     {MIRT__TANH_GRAD, 0, 0, 2, 4, 65},
                                                     {MIRT__MAXIMUM, 0, 0, 2, 6, 50},
                                                     {MIRT__MINIMUM, 0, 1, 2, 6, 50},
                                                     {MIRT__ADD, 0, 0, 2, 3, 17000},
                                                     {MIRT__RELU6_GRAD, 0, 0, 1, 140},
                                                     {MIRT__LEAKY_RELU_GRAD, 0, 0, 1, 40},
                                                     {MIRT__ELU_GRAD, 0, 0, 1, 40},
                                                     {MIRT__GELU_GRAD, 0, 0, 1, 40},
                                                     {MIRT__SILU_GRAD, 0, 0, 1, 40},
                                                     {MIRT__HARD_SIGMOID_GRAD, 0, 0, 1, 40},
                                                     {MIRT__HARD_SWISH_GRAD, 0, 0, 1, 40},
                                                     {MIRT__SOFTPLUS_GRAD, 0, 0, 1, 40},
                                                     {MIRT__SELU_GRAD, 0, 0, 1, 40},
                                                     {MIRT__MISH_GRAD, 0, 0, 1, 40},
                                                     {MIRT__SOFTSIGN_GRAD, 0, 0, 1, 40},
                                                     {MIRT__GELU_APPROXIMATE_GRAD, 0, 0, 1, 40},
                                                     {MIRT__EXP_GRAD, 0, 0, 1, 40},
                                                     {MIRT__CLIP_GRAD, 0, 0, 1, 40},
                                                     {MIRT__POWER_GRAD, 0, 0, 1, 40},
                                                     {MIRT__POWER_GRAD, 0, 0, 2, 44, 3},
                                                     {MIRT__ADD, 0, 1, 2, 9, 33},
                                                     {MIRT__ADD, 0, 7, 4, 3, 4, 5, 6},
                                                     {MIRT__SUBTRACT, 1, 0, 2, 9, 33},
                                                     {MIRT__MULTIPLY, 0, 2, 2, 9, 33},
                                                     {MIRT__DIVIDE, 2, 0, 2, 5, 19},
                                                     {MIRT__MULTIPLY, 2, 5, 3, 4, 3, 7},
                                                     {MIRT__ADD, 0, 3, 2, 6, 7},
                                                     {MIRT__SUBTRACT, 10, 5, 4, 2, 3, 4, 5},
                                                     {MIRT__ADD, 6, 9, 6, 2, 3, 2, 3, 2, 3},
                                                     {MIRT__ADD, 0, 1, 2, 0, 5},
                                                     {MIRT__ADD, 0, 1, 2, 300, 130},
                                                     {SHAPE_END}};

static int64_t binary_strides(const job *j, int64_t repeats, int64_t *stride) {
    int64_t step = 1;
    for (int i = j->s[B_RANK] - 1; i >= 0; i--) {
        stride[i] = repeats >> i & 1 ? 0 : step;
        if (stride[i] && i > 0) step *= j->s[B_DIM + i];
    }
    return step; /* of one index of the first dimension, or of everything where that repeats */
}

static void binary_args(const job *j, mirt__binary *b, int64_t *a_row, int64_t *b_row) {
    memset(b, 0, sizeof *b);
    b->kind = (mirt__binary_kind)j->s[B_KIND];
    b->rank = j->s[B_RANK];
    for (int i = 0; i < b->rank; i++) b->dim[i] = i ? j->s[B_DIM + i] : j->count;
    b->scale = b->kind == MIRT__CLIP_GRAD ? -0.6f : b->kind == MIRT__POWER_GRAD && b->rank > 1 ? 0 : 1.0f / 3;
    b->offset = 0.1f;
    *a_row = binary_strides(j, j->s[B_A_REPEATS], b->a_stride);
    *b_row = binary_strides(j, j->s[B_B_REPEATS], b->b_stride);
}

static void binary_plan(job *j) {
    mirt__binary b;
    int64_t a_row, b_row, y_row = 1;
    j->count = j->rows = j->s[B_DIM];
    binary_args(j, &b, &a_row, &b_row);
    for (int i = 1; i < b.rank; i++) y_row *= b.dim[i];
    const bool a_repeats = j->s[B_A_REPEATS] & 1, b_repeats = j->s[B_B_REPEATS] & 1;
    const fill how = b.kind == MIRT__MAXIMUM || b.kind == MIRT__MINIMUM ? ODD : b.scale == 0 ? GRID : UNIT;
    const fill how_b = b.kind == MIRT__POWER_GRAD && b.scale != 0               ? POSITIVE
                       : (b.kind >= MIRT__RELU6_GRAD && b.kind < MIRT__CLIP_GRAD) || b.kind >= MIRT__SELU_GRAD ? WIDE
                                                                                : how;
    add_buffer(j, IN, MIRT_FLOAT32, how, a_repeats ? 0 : a_row, a_row * (a_repeats ? 1 : j->rows));
    add_buffer(j, IN, MIRT_FLOAT32, how_b, b_repeats ? 0 : b_row, b_row * (b_repeats ? 1 : j->rows));
    /* Several products and a difference, in whichever order. */
    row_output(j, b.kind >= MIRT__SIGMOID_GRAD ? 4 : 0, y_row);
    if (j->s[B_A_REPEATS] == 0) j->alias_in = 0;
    else if (j->s[B_B_REPEATS] == 0) j->alias_in = 1;
    j->alias_out = 2;
}

static void binary_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__binary b;
    int64_t a_row, b_row;
    binary_args(j, &b, &a_row, &b_row);
    b.a = (const float *)j->at[0];
    b.b = (const float *)j->at[1];
    b.y = out_at(j, 2);
    k->binary(&b, where);
}

enum { X_KIND, X_DTYPE, X_REPEATS, X_RANK = 5, X_DIM }; /* repeats of each input: bit i along dimension i */
static const int32_t logic_shapes[][MAX_NUMBERS] = {{MIRT__IS_EQUAL, MIRT_FLOAT32, 0, 0, 0, 1, 1},
                                                    {MIRT__IS_NOT_EQUAL, MIRT_FLOAT32, 0, 2, 0, 2, 9, 700},
                                                    {MIRT__IS_LESS, MIRT_FLOAT32, 0, 1, 0, 2, 7, 33},
                                                    {MIRT__IS_LESS_EQUAL, MIRT_FLOAT32, 5, 2, 0, 3, 4, 5, 6},
                                                    {MIRT__IS_EQUAL, MIRT_INT32, 0, 0, 0, 2, 6, 500},
                                                    {MIRT__IS_LESS, MIRT_INT32, 2, 0, 0, 2, 5, 19},
                                                    {MIRT__IS_NOT_EQUAL, MIRT_UINT8, 0, 0, 0, 2, 3, 17000},
                                                    {MIRT__IS_LESS_EQUAL, MIRT_UINT8, 0, 6, 0, 3, 4, 3, 7},
                                                    {MIRT__AND, MIRT_BOOL, 0, 2, 0, 2, 7, 65},
                                                    {MIRT__OR, MIRT_BOOL, 1, 0, 0, 2, 7, 65},
                                                    {MIRT__NOT, MIRT_BOOL, 0, 0, 0, 2, 7, 300},
                                                    {MIRT__WHERE, MIRT_FLOAT32, 0, 0, 0, 2, 9, 400},
                                                    {MIRT__WHERE, MIRT_FLOAT32, 4, 1, 2, 3, 5, 6, 70},
                                                    {MIRT__WHERE, MIRT_INT32, 1, 0, 2, 2, 5, 33},
                                                    {MIRT__WHERE, MIRT_UINT8, 0, 3, 0, 2, 5, 33},
                                                    {MIRT__WHERE, MIRT_FLOAT32, 0, 1, 0, 2, 0, 5},
                                                    {SHAPE_END}};

static void logic_args(const job *j, mirt__logic *l, int64_t *row) {
    memset(l, 0, sizeof *l);
    l->kind = (mirt__logic_kind)j->s[X_KIND];
    l->dtype = (mirt_dtype)j->s[X_DTYPE];
    l->rank = j->s[X_RANK];
    for (int i = 0; i < l->rank; i++) l->dim[i] = i ? j->s[X_DIM + i] : j->count;
    for (int k = 0; k < 3; k++) {
        row[k] = 1;
        for (int i = l->rank - 1; i >= 0; i--) {
            l->stride[k][i] = j->s[X_REPEATS + k] >> i & 1 ? 0 : row[k];
            if (l->stride[k][i] && i > 0) row[k] *= l->dim[i];
        }
        l->in[k] = j->at[k];
    }
    l->y = j->at[3];
}
static void logic_plan(job *j) {
    mirt__logic l;
    int64_t row[3], y_row = 1;
    j->count = j->rows = j->s[X_DIM];
    logic_args(j, &l, row);
    for (int i = 1; i < l.rank; i++) y_row *= l.dim[i];
    for (int k = 0; k < 3; k++) {
        const bool condition = l.kind == MIRT__WHERE && k == 0, repeats = j->s[X_REPEATS + k] & 1;
        add_buffer(j, IN, condition ? MIRT_BOOL : l.dtype, GRID, repeats ? 0 : row[k],
                   row[k] * (repeats ? 1 : j->rows));
    }
    add_buffer(j, OUT, l.kind == MIRT__WHERE ? l.dtype : MIRT_BOOL, UNIT, y_row, y_row * j->rows);
}
static void logic_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__logic l;
    int64_t row[3];
    logic_args(j, &l, row);
    k->logic(&l, where);
}

static const int32_t accumulate_shapes[][MAX_NUMBERS] = {{0}, {1}, {15}, {64}, {1000}, {70001}, {SHAPE_END}};
static void accumulate_plan(job *j) {
    j->rows = j->s[0];
    add_buffer(j, INOUT, MIRT_FLOAT32, UNIT, 1, j->rows);
    row_input(j, UNIT, 1);
}
static void accumulate_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    k->accumulate(out_at(j, 0), (const float *)j->at[1], j->count, where);
}

static const int32_t fill_shapes[][MAX_NUMBERS] = {{0}, {1}, {15}, {64}, {1000}, {70001}, {SHAPE_END}};
static void fill_plan(job *j) {
    j->rows = j->s[0];
    row_output(j, 0, 1);
}
static void fill_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    k->fill(out_at(j, 0), 1.75f, j->count, where);
}
static void constant_plan(job *j) {
    add_buffer(j, IN, MIRT_FLOAT32, UNIT, 0, j->s[0]);
    output(j, 0, j->s[0]);
}
static void constant_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    k->constant(j->at[1], j->at[0], (size_t)j->s[0] * sizeof(float), where);
}

/* All that transforms are is another test's; here the kernel is called. */
static const int32_t augment_shapes[][MAX_NUMBERS] = {{1, 4, 5, 3, MIRT_FLOAT32},
                                                      {6, 9, 7, 3, MIRT_UINT8},
                                                      {3, 8, 8, 1, MIRT_FLOAT32},
                                                      {0, 4, 4, 3, MIRT_FLOAT32},
                                                      {SHAPE_END}};
static void augment_plan(job *j) {
    const int64_t pixels = (int64_t)j->s[1] * j->s[2] * j->s[3];
    j->rows = j->s[0];
    add_buffer(j, IN, (mirt_dtype)j->s[4], UNIT, pixels, pixels * j->rows);
    row_output(j, 256, pixels);
    j->scratch = (size_t)pixels * 4 * sizeof(float) + 4096;
}
static void augment_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__transform t[2];
    mirt__augment_rows a;
    memset(t, 0, sizeof t);
    memset(&a, 0, sizeof a);
    for (int i = 0; i < 2; i++) {
        t[i].h = t[i].oh = j->s[1];
        t[i].w = t[i].ow = j->s[2];
        t[i].c = j->s[3];
        t[i].key = 77 + (uint64_t)i;
        t[i].range[1] = 255;
    }
    t[0].kind = MIRT_RANDOM_FLIP;
    t[1].kind = MIRT_RANDOM_BRIGHTNESS;
    t[1].low[0] = -0.2f;
    t[1].high[0] = 0.2f;
    a.transform = t;
    a.count = 2;
    a.seed = 5;
    a.step = 3;
    a.first_row = (uint64_t)j->first;
    a.rows = j->count;
    a.x_dtype = (mirt_dtype)j->s[4];
    a.x = j->at[0];
    a.y = out_at(j, 1);
    k->augment(&a, where);
}

static const int32_t cast_shapes[][MAX_NUMBERS] = {
    {MIRT_FLOAT32, MIRT_FLOAT32, 9},   {MIRT_FLOAT32, MIRT_INT32, 60}, {MIRT_FLOAT32, MIRT_UINT8, 60},
    {MIRT_INT32, MIRT_FLOAT32, 33},    {MIRT_INT32, MIRT_INT32, 7},    {MIRT_INT32, MIRT_UINT8, 40},
    {MIRT_UINT8, MIRT_FLOAT32, 20000}, {MIRT_UINT8, MIRT_INT32, 70},   {MIRT_UINT8, MIRT_UINT8, 5},
    {MIRT_FLOAT32, MIRT_BOOL, 60},     {MIRT_INT32, MIRT_BOOL, 60},    {MIRT_UINT8, MIRT_BOOL, 600},
    {MIRT_BOOL, MIRT_BOOL, 30},        {MIRT_BOOL, MIRT_FLOAT32, 60},  {MIRT_BOOL, MIRT_INT32, 60},
    {MIRT_BOOL, MIRT_UINT8, 60},       {MIRT_FLOAT32, MIRT_UINT8, 0},  {SHAPE_END}};
static void cast_plan(job *j) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e9f, -3e9f, 2147483648.0f, -2147483648.0f, 2147483520.0f,
                                255.0f, 255.9f, 256.0f, -0.9f, -1.0f, 0.9f, 1.9f, -1.9f, 1e-40f, 254.99f};
    static const int32_t odd_words[] = {INT32_MAX, INT32_MIN, 255, 256, -1, 16777217};
    j->rows = j->s[2];
    add_buffer(j, IN, (mirt_dtype)j->s[0], WIDE, 1, j->rows);
    if (j->s[0] == MIRT_FLOAT32 && j->rows >= MIRT__COUNT(odd)) memcpy(j->buffer[0].initial, odd, sizeof odd);
    if (j->s[0] == MIRT_INT32) memcpy(j->buffer[0].initial, odd_words, sizeof odd_words);
    add_buffer(j, OUT, (mirt_dtype)j->s[1], UNIT, 1, j->rows);
}
static void cast_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__cast c;
    c.from = (mirt_dtype)j->s[0];
    c.to = (mirt_dtype)j->s[1];
    c.count = j->count;
    c.x = j->at[0];
    c.y = j->at[1];
    k->cast(&c, where);
}

static const int32_t one_hot_shapes[][MAX_NUMBERS] = {{10, MIRT_INT32, 40},   {1, MIRT_INT32, 3}, {200, MIRT_UINT8, 33},
                                                      {100, MIRT_INT32, 400}, {5, MIRT_UINT8, 0}, {SHAPE_END}};
static void one_hot_plan(job *j) {
    j->rows = j->s[2];
    add_buffer(j, IN, (mirt_dtype)j->s[1], WORDS, 1, j->rows);
    row_output(j, 0, j->s[0]);
}
static void one_hot_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__one_hot o;
    o.count = j->count;
    o.depth = j->s[0];
    o.dtype = (mirt_dtype)j->s[1];
    o.x = j->at[0];
    o.y = out_at(j, 1);
    k->one_hot(&o, where);
}

static const int32_t dropout_shapes[][MAX_NUMBERS] = {
    /* rows, n, rate in thousandths, first row; that of the last one draws the number just below its rate */
    {1, 1, 500, 0},     {5, 33, 250, 0}, {7, 64, 900, 1000},   {3, 10, 0, 3}, {3, 10, 1000, 3},
    {300, 130, 500, 7}, {0, 9, 500, 0},  {1, 4, 100, 8725370}, {SHAPE_END}};
static const int32_t noise_shapes[][MAX_NUMBERS] = { /* the same; the reference takes long */
    {1, 1, 500, 0},    {5, 33, 250, 0}, {7, 64, 900, 1000}, {3, 10, 0, 3}, {3, 10, 1000, 3},
    {29, 130, 500, 7}, {0, 9, 500, 0},  {SHAPE_END}};
static void dropout_plan(job *j) {
    j->rows = j->s[0];
    row_input(j, UNIT, j->s[1]);
    row_output(j, 0, j->s[1]);
}
static void gaussian_noise_plan(job *j) { /* the reference has other normal numbers, within 9 roundings of 1 */
    dropout_plan(j);
    j->buffer[1].roundings = 12;
}
static mirt__dropout dropout_of(const job *j) {
    mirt__dropout d;
    d.rows = j->count;
    d.n = j->s[1];
    d.first_row = ((int64_t)3 << 32) + j->s[3] + j->first;
    d.key = 0x123456789abcdef0u;
    d.step = 17;
    d.rate = (float)j->s[2] / 1000;
    d.x = (const float *)j->at[0];
    d.y = out_at(j, 1);
    return d;
}
static void dropout_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    const mirt__dropout d = dropout_of(j);
    k->dropout(&d, where);
}
static void gaussian_noise_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    const mirt__dropout d = dropout_of(j);
    k->gaussian_noise(&d, where);
}

/* ---- reductions */

enum { R_KIND, R_AXES, R_RANK, R_DIM };
static const int32_t reduce_shapes[][MAX_NUMBERS] = {{MIRT__REDUCE_SUM, 1, 1, 1},
                                                     {MIRT__REDUCE_SUM, 1, 1, 5000},
                                                     {MIRT__REDUCE_SUM, 1, 2, 700, 33},
                                                     {MIRT__REDUCE_SUM, 2, 2, 9, 700},
                                                     {MIRT__REDUCE_SUM, 7, 4, 5, 9, 11, 70},
                                                     {MIRT__REDUCE_SUM, 6, 4, 3, 7, 6, 5},
                                                     {MIRT__REDUCE_SUM, 5, 4, 3, 4, 5, 6},
                                                     {MIRT__REDUCE_SUM, 10, 4, 3, 14, 5, 30},
                                                     {MIRT__REDUCE_SUM, 0, 2, 3, 5},
                                                     {MIRT__REDUCE_SUM, 1, 2, 0, 5},
                                                     {MIRT__REDUCE_SUM, 2, 2, 0, 5},
                                                     {MIRT__REDUCE_SUM, 21, 6, 2, 3, 2, 3, 2, 3},
                                                     {MIRT__REDUCE_MEAN, 6, 4, 4, 7, 7, 65},
                                                     {MIRT__REDUCE_MEAN, 3, 2, 13, 17},
                                                     {MIRT__REDUCE_MEAN, 4, 3, 2, 5, 257},
                                                     {MIRT__REDUCE_MEAN, 1, 2, 0, 3},
                                                     {MIRT__REDUCE_MAX, 2, 2, 9, 33},
                                                     {MIRT__REDUCE_MAX, 1, 2, 300, 130},
                                                     {MIRT__REDUCE_MAX, 6, 4, 3, 4, 5, 6},
                                                     {MIRT__REDUCE_MAX, 1, 2, 0, 5},
                                                     {MIRT__REDUCE_MIN, 2, 2, 9, 33},
                                                     {MIRT__REDUCE_MIN, 6, 4, 3, 4, 5, 6},
                                                     {MIRT__REDUCE_MIN, 1, 2, 0, 5},
                                                     {MIRT__REDUCE_SUM, 1, 1, 70000},
                                                     {MIRT__REDUCE_MEAN, 1, 2, 2500, 20},
                                                     {MIRT__REDUCE_MAX, 1, 2, 2500, 7},
                                                     {MIRT__REDUCE_MIN, 2, 2, 2, 9000},
                                                     {SHAPE_END}};

static void reduce_args(const job *j, mirt__reduce *r) {
    memset(r, 0, sizeof *r);
    r->kind = (mirt__reduce_kind)j->s[R_KIND];
    r->axes = (unsigned)j->s[R_AXES];
    r->rank = j->s[R_RANK];
    for (int i = 0; i < r->rank; i++) r->dim[i] = j->s[R_DIM + i];
    if (j->rows) r->dim[0] = j->count;
    r->x = (const float *)j->at[0];
    r->y = out_at(j, 1);
}

static void reduce_plan(job *j) {
    mirt__reduce r;
    int64_t elements = 1, outputs = 1, gone = 1;
    const bool by_row = !(j->s[R_AXES] & 1);
    reduce_args(j, &r);
    for (int i = 0; i < r.rank; i++) {
        if (i > 0 || !by_row) elements *= r.dim[i];
        if (r.axes >> i & 1) gone *= r.dim[i];
        else if (i > 0) outputs *= r.dim[i];
    }
    /* The mean divides a sum's roundings by as many elements. */
    const bool extreme = r.kind == MIRT__REDUCE_MAX || r.kind == MIRT__REDUCE_MIN;
    double roundings = extreme ? 0 : r.kind == MIRT__REDUCE_MEAN ? 3 : (double)gone;
    j->scratch = mirt__reduce_scratch(&r);
    if (by_row) {
        j->rows = r.dim[0];
        row_input(j, extreme ? gone > 100 ? BELOW : GRID : UNIT, elements);
        row_output(j, roundings, outputs);
    } else {
        input(j, extreme ? gone > 100 ? BELOW : GRID : UNIT, elements);
        output(j, roundings, outputs);
    }
}

static void reduce_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__reduce r;
    reduce_args(j, &r);
    k->reduce(&r, where);
}

static const int32_t reduce_max_grad_shapes[][MAX_NUMBERS] = {
    {MIRT__REDUCE_MAX, 1, 1, 1},           {MIRT__REDUCE_MAX, 2, 2, 9, 33},       {MIRT__REDUCE_MAX, 1, 2, 30, 130},
    {MIRT__REDUCE_MAX, 6, 4, 3, 4, 5, 6},  {MIRT__REDUCE_MAX, 10, 4, 3, 4, 5, 6}, {MIRT__REDUCE_MAX, 2, 2, 0, 5},
    {MIRT__REDUCE_MIN, 10, 4, 3, 4, 5, 6}, {MIRT__REDUCE_MAX, 1, 2, 70, 12},      {SHAPE_END}};
static void reduce_max_grad_plan(job *j) {
    reduce_plan(j);
    prepare(j, reduce_run);
    buffer x = j->buffer[0], y = j->buffer[1];
    j->buffer[1].role = IN;
    add_buffer(j, IN, MIRT_FLOAT32, UNIT, y.per_row, y.count);
    add_buffer(j, OUT, MIRT_FLOAT32, UNIT, x.per_row, x.count);
}
static void reduce_max_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__reduce_max_grad g;
    reduce_args(j, &g.s);
    g.dy = (const float *)j->at[2];
    g.dx = out_at(j, 3);
    k->reduce_max_grad(&g, where);
}

/* ---- moves, rows by index, and what runs along one axis */

static const int32_t scan_shapes[][MAX_NUMBERS] = {
    /* kind, outer, n, inner */
    {MIRT__ARGMAX, 1, 1, 1},         {MIRT__ARGMAX, 5, 33, 1},   {MIRT__ARGMIN, 3, 9, 130},
    {MIRT__ARGMAX, 7, 4, 6},         {MIRT__ARGMIN, 400, 60, 1}, {MIRT__CUMSUM, 1, 1, 1},
    {MIRT__CUMSUM, 4, 40, 3},        {MIRT__CUMSUM, 9, 70, 1},   {MIRT__CUMSUM_BACK, 3, 30, 130},
    {MIRT__CUMSUM_BACK, 300, 70, 1}, {MIRT__CUMSUM, 0, 4, 5},    {MIRT__SPARSEMAX, 5, 33, 1},
    {MIRT__SPARSEMAX, 3, 9, 130},    {MIRT__SPARSEMAX, 2, 1, 1},  {SHAPE_END}};
static void scan_plan(job *j) {
    const int64_t n = j->s[2], inner = j->s[3];
    j->rows = j->s[1];
    row_input(j, j->s[0] >= MIRT__CUMSUM ? UNIT : ODD, n * inner);
    if (j->s[0] >= MIRT__CUMSUM) row_output(j, (double)n, n * inner);
    else add_buffer(j, OUT, MIRT_INT32, WORDS, inner, inner * j->rows);
}
static void scan_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__scan s;
    s.kind = (mirt__scan_kind)j->s[0];
    s.outer = j->count;
    s.n = j->s[2];
    s.inner = j->s[3];
    s.x = (const float *)j->at[0];
    s.y = j->at[1];
    k->scan(&s, where);
}

/* From a dense block of `dim`, its axes in reverse where so asked, into every `step`-th element of the output. */
enum { M_DTYPE, M_REVERSED, M_STEP, M_PLACE, M_RANK, M_DIM }; /* place: where in y it goes */
static const int32_t move_shapes[][MAX_NUMBERS] = {
    {MIRT_FLOAT32, 0, 1, 0, 1, 1},          {MIRT_FLOAT32, 0, 1, 0, 2, 300, 130},
    {MIRT_FLOAT32, 1, 1, 0, 4, 3, 7, 5, 9}, {MIRT_FLOAT32, 1, 2, 0, 3, 4, 33, 5},
    {MIRT_INT32, 1, 1, 0, 2, 130, 200},     {MIRT_INT32, 0, 3, 0, 2, 5, 6},
    {MIRT_UINT8, 1, 1, 0, 3, 20, 9, 11},    {MIRT_BOOL, 0, 2, 0, 2, 7, 9},
    {MIRT_FLOAT32, 0, 1, 0, 2, 0, 5},       {MIRT_FLOAT32, 0, 1, 0, 1, 4002},
    {MIRT_FLOAT32, 1, 1, 0, 3, 40, 70, 33}, {MIRT_FLOAT32, 0, 1, 3, 1, 64},
    {MIRT_UINT8, 0, 1, 15, 2, 6, 32},       {SHAPE_END}};
static void move_plan(job *j) {
    int64_t count = 1;
    const mirt_dtype dtype = (mirt_dtype)j->s[M_DTYPE];
    for (int i = 0; i < j->s[M_RANK]; i++) count *= j->s[M_DIM + i];
    add_buffer(j, IN, dtype, UNIT, 0, count);
    add_buffer(j, INOUT, dtype, UNIT, 0, count * j->s[M_STEP] + j->s[M_PLACE]);
}
static void move_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__move m;
    int64_t from = 1, to = j->s[M_STEP];
    memset(&m, 0, sizeof m);
    m.dtype = (mirt_dtype)j->s[M_DTYPE];
    m.rank = j->s[M_RANK];
    for (int i = m.rank - 1; i >= 0; i--) {
        m.dim[i] = j->s[M_DIM + i];
        m.to[i] = to;
        to *= m.dim[i];
    }
    for (int i = 0; i < m.rank; i++) {
        const int axis = j->s[M_REVERSED] ? i : m.rank - 1 - i;
        m.from[axis] = from;
        from *= m.dim[axis];
    }
    m.x = j->at[0];
    m.y = (char *)j->at[1] + (size_t)j->s[M_PLACE] * mirt__dtype_size(m.dtype);
    k->move(&m, where);
}

static const int32_t gather_shapes[][MAX_NUMBERS] = {
    /* n, width, count, dtype */
    {1, 1, 1, MIRT_INT32},     {100, 3, 40, MIRT_INT32}, {30, 130, 500, MIRT_UINT8},
    {128, 70, 33, MIRT_INT32}, {9, 5, 0, MIRT_UINT8},    {SHAPE_END}};
static void gather_plan(job *j) {
    j->rows = j->s[2];
    input(j, UNIT, (int64_t)j->s[0] * j->s[1]);
    add_buffer(j, IN, (mirt_dtype)j->s[3], WORDS, 1, j->rows); /* some of them name no row */
    row_output(j, 0, j->s[1]);
}
static void gather_grad_plan(job *j) {
    input(j, UNIT, (int64_t)j->s[2] * j->s[1]);
    add_buffer(j, IN, (mirt_dtype)j->s[3], WORDS, 0, j->s[2]);
    output(j, 0, (int64_t)j->s[0] * j->s[1]);
    j->count = j->s[2];
}
static void gather_call(const job *j, void (*kernel)(const mirt__gather *, const mirt__where *),
                        const mirt__where *where) {
    mirt__gather g;
    g.n = j->s[0];
    g.width = j->s[1];
    g.count = j->rows ? j->count : j->s[2];
    g.dtype = (mirt_dtype)j->s[3];
    g.x = (const float *)j->at[0];
    g.indices = j->at[1];
    g.y = out_at(j, 2);
    kernel(&g, where);
}
static void gather_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    gather_call(j, k->gather, where);
}
static void gather_grad_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    gather_call(j, k->gather_grad, where);
}

/* ---- softmax, losses, accuracy */

static const int32_t softmax_shapes[][MAX_NUMBERS] = {
    /* n, rows, logarithm */
    {10, 7},   {1, 3},       {1000, 2},    {17, 65},  {64, 400},    {10, 0},    {10, 7, 1},
    {1, 3, 1}, {1000, 2, 1}, {64, 400, 1}, {3000, 3}, {3000, 3, 1}, {SHAPE_END}};
static void softmax_plan(job *j) {
    j->rows = j->s[1];
    row_input(j, WIDE, j->s[0]);
    row_output(j, j->s[0] + 4, j->s[0]);
}
static void softmax_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__softmax s;
    s.rows = j->count;
    s.n = j->s[0];
    s.log = j->s[2] != 0;
    s.x = (const float *)j->at[0];
    s.y = out_at(j, 1);
    s.dy = j->buffers > 2 ? (const float *)j->at[2] : NULL;
    if (s.dy) k->softmax_grad(&s, where);
    else k->softmax(&s, where);
}
static void softmax_grad_plan(job *j) {
    j->rows = j->s[1];
    row_input(j, POSITIVE, j->s[0]);
    row_output(j, 2 * j->s[0] + 4, j->s[0]);
    row_input(j, UNIT, j->s[0]);
}

/* L_PERCENT: label_smoothing. */
enum { L_N, L_ROWS, L_KIND, L_LOGITS, L_PERCENT };
#define LOSS_SHAPES(loss, activation) \
    {7, 9, loss, 0}, {7, 9, loss, activation != MIRT_LINEAR}, \
    {33, 9, loss, activation != MIRT_LINEAR, activation == MIRT_LINEAR ? 0 : 30},
static const int32_t loss_shapes[][MAX_NUMBERS] = {
    LOSS_SHAPES(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, MIRT_SOFTMAX)
    LOSS_SHAPES(MIRT_CATEGORICAL_CROSSENTROPY, MIRT_SOFTMAX)
    LOSS_SHAPES(MIRT_BINARY_CROSSENTROPY, MIRT_SIGMOID)
    LOSS_SHAPES(MIRT_MEAN_SQUARED_ERROR, MIRT_LINEAR)
    {10, 9, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, 1}, {10, 9, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, 0},
    {10, 9, MIRT_CATEGORICAL_CROSSENTROPY, 1},        {10, 9, MIRT_CATEGORICAL_CROSSENTROPY, 0},
    {3, 9, MIRT_BINARY_CROSSENTROPY, 1},              {3, 9, MIRT_BINARY_CROSSENTROPY, 0},
    {5, 9, MIRT_MEAN_SQUARED_ERROR, 0},               {1000, 4, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, 1},
    {1, 300, MIRT_BINARY_CROSSENTROPY, 1},            {17, 400, MIRT_CATEGORICAL_CROSSENTROPY, 1},
    {2, 1, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, 1},  {4, 0, MIRT_MEAN_SQUARED_ERROR, 0},
    {3000, 2, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, 1}, {2500, 3, MIRT_BINARY_CROSSENTROPY, 1},
    {10, 9, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, 0, 10}, {2500, 2, MIRT_CATEGORICAL_CROSSENTROPY, 1},
    {5, 9, MIRT_BINARY_CROSSENTROPY, 0, 10}, {5, 9, MIRT_CATEGORICAL_CROSSENTROPY, 0, 10},
    {2500, 3, MIRT_MEAN_SQUARED_ERROR, 0}, {1, 40, MIRT_MEAN_SQUARED_ERROR, 0}, {SHAPE_END}};

static void loss_inputs(job *j) {
    const bool sparse = j->s[L_KIND] == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    const int64_t n = j->s[L_N];
    j->rows = j->s[L_ROWS];
    row_input(j, j->s[L_LOGITS] ? WIDE : POSITIVE, n);
    if (sparse) add_buffer(j, IN, MIRT_INT32, LABELS, 1, j->rows);
    else row_input(j, POSITIVE, n);
    float *x = (float *)j->buffer[0].initial, *t = (float *)j->buffer[1].initial;
    if (!j->s[L_LOGITS] && j->rows > 1) { /* beyond the clipping, on both sides */
        for (int64_t i = 0; i < n; i++) x[i] = i == 1 ? 1.0f : 0.0f;
        for (int64_t i = 0; !sparse && i < n; i++) t[i] = i == 1 ? 1.0f : 0.0f;
    }
}
static void loss_plan(job *j) {
    loss_inputs(j);
    row_output(j, j->s[L_N] + 8, 1);
}
static void loss_grad_plan(job *j) {
    loss_inputs(j);
    row_input(j, UNIT, 1);
    row_output(j, j->s[L_N] + 8, j->s[L_N]);
}
static void loss_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__loss l;
    l.kind = (mirt_loss)j->s[L_KIND];
    memset(&l.how, 0, sizeof l.how);
    l.how.from_logits = j->s[L_LOGITS] != 0;
    l.how.label_smoothing = (float)j->s[L_PERCENT] / 100;
    l.how.has_ignore_class = j->s[L_PERCENT] != 0; /* only the sparse one looks */
    l.how.ignore_class = 1;
    l.rows = j->count;
    l.n = j->s[L_N];
    l.x = (const float *)j->at[0];
    l.labels = j->at[1];
    l.loss = out_at(j, 2);
    l.dloss = (const float *)j->at[2];
    l.dx = j->buffers > 3 ? out_at(j, 3) : NULL;
    k->loss(&l, where);
}

enum { CIRCLE_GROUPS, CIRCLE_ROWS, CIRCLE_N, CIRCLE_KEEP };
static const int32_t circle_shapes[][MAX_NUMBERS] = {{3, 17, 8, 0},   {3, 17, 9, 1},  {1, 5, 3, 0}, {2, 1, 7, 0},
                                                     {2, 1, 4, 1},    {40, 65, 1, 0}, {5, 3, 33, 1}, {2, 3, 2050, 0},
                                                     {7, 300, 30, 0}, {2, 0, 4, 0},   {SHAPE_END}};
static void circle_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__loss l;
    memset(&l, 0, sizeof l);
    l.kind = MIRT_CIRCLE;
    l.how.gamma = 2;
    l.how.margin = 0.25f;
    l.how.keep_diagonal = j->s[CIRCLE_KEEP] != 0;
    l.rows = j->s[CIRCLE_ROWS];
    l.n = j->s[CIRCLE_N];
    l.x = (const float *)j->at[0];
    l.labels = j->at[1];
    l.loss = out_at(j, 2);
    if (j->buffers > 3) {
        l.dloss = (const float *)j->at[3];
        l.dx = out_at(j, 4);
    }
    k->loss(&l, where);
}
/* Cosines below 1 in size, but for those of a row with itself. */
static void circle_plan(job *j) {
    const int64_t rows = j->s[CIRCLE_ROWS], n = j->s[CIRCLE_N];
    input(j, UNIT, rows * n);
    add_buffer(j, IN, MIRT_INT32, LABELS, 0, rows);
    output(j, 40, 2 * rows);
    float *x = (float *)j->buffer[0].initial;
    for (int64_t r = 0; r < rows; r++) {
        float length = 1e-30f;
        for (int64_t k = 0; k < n; k++) length += x[r * n + k] * x[r * n + k];
        for (int64_t k = 0; k < n; k++) x[r * n + k] *= 0.99f / sqrtf(length);
    }
}
static void circle_grad_plan(job *j) {
    circle_plan(j);
    prepare(j, circle_run);
    j->buffer[2].role = IN;
    input(j, UNIT, 2 * j->s[CIRCLE_ROWS]);
    output(j, 40, j->s[CIRCLE_ROWS] * j->s[CIRCLE_N]);
}

static const int32_t accuracy_shapes[][MAX_NUMBERS] = {
    {4, 200, MIRT__ACCURACY_SPARSE}, {1, 5, MIRT__ACCURACY_SPARSE}, {5, 300, MIRT__ACCURACY_CATEGORICAL},
    {1, 40, MIRT__ACCURACY_BINARY}, {7, 33, MIRT__ACCURACY_BINARY}, {7, 0, MIRT__ACCURACY_SPARSE}, {SHAPE_END}};
static void accuracy_plan(job *j) {
    const int64_t n = j->s[0];
    j->rows = j->s[1];
    row_input(j, GRID, n);
    if (j->s[2] == MIRT__ACCURACY_SPARSE) add_buffer(j, IN, MIRT_INT32, LABELS, 1, j->rows);
    else row_input(j, GRID, n);
    float *t = (float *)j->buffer[1].initial;
    for (int64_t i = 0; j->s[2] == MIRT__ACCURACY_BINARY && i < j->rows * n; i++) t[i] = t[i] > 0 ? 1.0f : 0.0f;
    row_output(j, 0, 1);
}
static void accuracy_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__accuracy a;
    a.kind = (mirt__accuracy_kind)j->s[2];
    a.rows = j->count;
    a.n = j->s[0];
    a.x = (const float *)j->at[0];
    a.labels = j->at[1];
    a.y = out_at(j, 2);
    k->accuracy(&a, where);
}

/* ---- constraints */

enum { W_KIND, W_AXES, W_RANK, W_DIM };
static const int32_t constrain_shapes[][MAX_NUMBERS] = {{MIRT_NON_NEG, 0, 2, 7, 33},
                                                        {MIRT_MAX_NORM, 1, 2, 300, 33},
                                                        {MIRT_MAX_NORM, 1, 1, 70},
                                                        {MIRT_MAX_NORM, 7, 4, 3, 2, 5, 131},
                                                        {MIRT_UNIT_NORM, 1, 2, 9, 10},
                                                        {MIRT_UNIT_NORM, 5, 3, 4, 5, 6},
                                                        {MIRT_MIN_MAX_NORM, 2, 2, 65, 40},
                                                        {MIRT_MIN_MAX_NORM, 11, 4, 2, 3, 4, 5},
                                                        {MIRT_SPECTRAL_NORM, 0, 2, 300, 33},
                                                        {MIRT_SPECTRAL_NORM, 0, 4, 3, 2, 5, 131},
                                                        {SHAPE_END}};
static void constrain_plan(job *j) {
    int64_t count = 1;
    for (int i = 0; i < j->s[W_RANK]; i++) count *= j->s[W_DIM + i];
    j->buffer[add_buffer(j, INOUT, MIRT_FLOAT32, UNIT, 0, count)].roundings = 4;
    if (j->s[W_KIND] == MIRT_SPECTRAL_NORM)
        j->buffer[add_buffer(j, INOUT, MIRT_FLOAT32, UNIT, 0, j->s[W_DIM + j->s[W_RANK] - 1])].roundings = 4;
}
static void constrain_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    mirt__constrain c;
    memset(&c, 0, sizeof c);
    c.constraint.kind = (mirt_constraint_kind)j->s[W_KIND];
    c.constraint.axis = j->s[W_AXES];
    c.constraint.min_value = 0.9f;
    c.constraint.max_value = 1.1f;
    c.constraint.rate = c.constraint.kind == MIRT_MIN_MAX_NORM ? 0.75f : 1;
    c.rank = j->s[W_RANK];
    for (int i = 0; i < c.rank; i++) c.dim[i] = j->s[W_DIM + i];
    c.constraint.power_iterations = 2;
    c.w = out_at(j, 0);
    if (c.constraint.kind == MIRT_SPECTRAL_NORM) c.u = out_at(j, 1);
    k->constrain(&c, where);
}

/* ---- optimizers: three or four roundings per number, and one for each part */

enum { U_KIND, U_COUNT, U_PARTS, U_COPIES, U_MOMENTUM, U_MORE, U_SHAPED };
#define UPDATE_SHAPES(kind, name, kernel) \
    {kind, 1, 1, 1, 0, 0, 0}, {kind, 33, 2, 1, 0, 0, 1}, {kind, 100, 1, 2, 1, 0, 2}, {kind, 65, 3, 2, 1, 1, 0}, \
    {kind, 1000, 5, 3, 1, 0, 1}, {kind, 70003, 4, 1, 1, 1, 2}, {kind, 15, 7, 1, 0, 1, 1}, {kind, 0, 1, 1, 1, 0, 1}, \
    {kind, 47, 2, 1, 0, 1, 3},
static const int32_t update_shapes[][MAX_NUMBERS] = {MIRT_OPTIMIZER_LIST(UPDATE_SHAPES) {SHAPE_END}};
enum { U_SLOT = 1, U_AVERAGE = U_SLOT + 3, U_COPY }; /* buffers after a weight's */

/* With Keras's numbers, and some of its options. */
static mirt_optimizer update_optimizer(const job *j) {
    const mirt__optimizer_class *cls = mirt__optimizer_class_get((mirt_optimizer_kind)j->s[U_KIND]);
    mirt_optimizer o = cls->keras(0.01f);
    if (j->s[U_MOMENTUM]) o.momentum = 0.9f;
    o.nesterov = o.centered = j->s[U_MORE] != 0;
    o.amsgrad = j->s[U_MORE] && mirt__optimizer_amsgrad(cls);
    return o;
}
static void update_buffer(job *j, fill how) {
    j->buffer[add_buffer(j, INOUT, MIRT_FLOAT32, how, 1, j->rows)].roundings = j->s[U_PARTS] + 12;
}
/* Velocities are means of squares. The square of the mean gradient stays well below them, as it does in training. */
static void update_plan(job *j) {
    const mirt_optimizer o = update_optimizer(j);
    const char *name[MIRT__MAX_SLOTS];
    const int slots = mirt__optimizer_slot_names(&o, name);
    j->rows = j->s[U_COUNT];
    j->ranged = true;
    update_buffer(j, UNIT);
    for (int i = 0; i < U_AVERAGE - U_SLOT; i++) {
        const bool positive = i < slots && (strncmp(name[i], "velocity", 8) == 0 || strcmp(name[i], "norm") == 0 ||
                                            strncmp(name[i], "accumulat", 9) == 0);
        update_buffer(j, positive ? POSITIVE : UNIT);
        float *slot = (float *)j->buffer[U_SLOT + i].initial;
        for (int64_t k = 0; i < slots && strcmp(name[i], "average_gradient") == 0 && k < j->rows; k++) slot[k] *= 0.05f;
        /* Lion goes by a sign, which is that of a rounding where momentum and gradient are near zero. */
        for (int64_t k = 0; tiny_numbers && o.kind == MIRT_LION && k < j->rows; k++) slot[k] += slot[k] < 0 ? -8 : 8;
    }
    update_buffer(j, UNIT);
    for (int copy = 1; copy < j->s[U_COPIES]; copy++) {
        update_buffer(j, UNIT);
        memcpy(j->buffer[U_COPY + copy - 1].initial, j->buffer[0].initial, (size_t)j->rows * sizeof(float));
    }
    input(j, UNIT, j->rows * j->s[U_PARTS]);
}
static void update_args(const job *j, mirt__update *u) {
    const int32_t *s = j->s;
    int additions = 0;
    u->begin = j->first;
    u->end = j->first + j->count;
    u->parts = s[U_PARTS];
    for (int p = 0; p < u->parts; p++) u->part[p] = (const float *)j->at[U_COPY - 1 + s[U_COPIES]] + p * j->rows;
    for (int step = 1; step < u->parts; step *= 2) {
        for (int p = 0; p + step < u->parts; p += 2 * step) {
            u->tree[additions].into = p;
            u->tree[additions++].from = p + step;
        }
    }
    u->copies = s[U_COPIES];
    for (int copy = 0; copy < u->copies; copy++) u->weight[copy] = out_at(j, copy ? U_COPY + copy - 1 : 0);
    u->from_zero = s[U_SHAPED] == 3;
    if (!s[U_SHAPED] || u->from_zero) return;
    u->shaped = true;
    u->scale = 0.7f;
    u->clip = s[U_SHAPED] == 1 ? 0.2f : 0;
    u->decay = 0.003f;
    u->average = out_at(j, U_AVERAGE);
    u->keep = 0.99f;
    u->fresh = 0.01f;
    u->overwrite = s[U_SHAPED] == 2;
}
static void update_run(const job *j, const mirt__kernels *k, const mirt__where *where) {
    const mirt_optimizer o = update_optimizer(j);
    mirt__real *const slot[] = {out_at(j, U_SLOT), out_at(j, U_SLOT + 1), out_at(j, U_SLOT + 2)};
    mirt__update u;
    memset(&u, 0, sizeof u);
    u.kind = o.kind;
    update_args(j, &u);
    mirt__optimizer_numbers(&o, 3, 0.01, slot, &u);
    k->update(&u, where);
}

static const kernel_case kernel_cases[] = {
    {"gemm", gemm_plan, gemm_run, gemm_shapes},
    {"conv_forward", conv_forward_plan, conv_forward_run, conv_shapes},
    {"conv_input_grad", conv_input_grad_plan, conv_input_grad_run, conv_shapes},
    {"conv_weight_grad", conv_weight_grad_plan, conv_weight_grad_run, conv_shapes},
    {"conv_pool", conv_pool_plan, conv_pool_run, conv_pool_shapes},
    {"conv_pool_weight_grad", conv_pool_weight_grad_plan, conv_pool_weight_grad_run, conv_pool_shapes},
    {"max_pool", max_pool_plan, max_pool_run, pool_shapes},
    {"max_pool_grad", max_pool_grad_plan, max_pool_grad_run, pool_shapes},
    {"average_pool", average_pool_plan, average_pool_run, pool_shapes},
    {"average_pool_grad", average_pool_grad_plan, average_pool_grad_run, pool_shapes},
    {"unary", unary_plan, unary_run, unary_shapes},
    {"binary", binary_plan, binary_run, binary_shapes},
    {"logic", logic_plan, logic_run, logic_shapes},
    {"reduce", reduce_plan, reduce_run, reduce_shapes},
    {"reduce_max_grad", reduce_max_grad_plan, reduce_max_grad_run, reduce_max_grad_shapes},
    {"scan", scan_plan, scan_run, scan_shapes},
    {"move", move_plan, move_run, move_shapes},
    {"gather", gather_plan, gather_run, gather_shapes},
    {"gather_grad", gather_grad_plan, gather_grad_run, gather_shapes},
    {"softmax", softmax_plan, softmax_run, softmax_shapes},
    {"softmax_grad", softmax_grad_plan, softmax_run, softmax_shapes},
    {"loss", loss_plan, loss_run, loss_shapes},
    {"loss_grad", loss_grad_plan, loss_run, loss_shapes},
    {"circle", circle_plan, circle_run, circle_shapes},
    {"circle_grad", circle_grad_plan, circle_run, circle_shapes},
    {"accuracy", accuracy_plan, accuracy_run, accuracy_shapes},
    {"dropout", dropout_plan, dropout_run, dropout_shapes},
    {"gaussian_noise", gaussian_noise_plan, gaussian_noise_run, noise_shapes},
    {"constrain", constrain_plan, constrain_run, constrain_shapes},
    {"cast", cast_plan, cast_run, cast_shapes},
    {"one_hot", one_hot_plan, one_hot_run, one_hot_shapes},
    {"resize", resize_plan, resize_run, resize_shapes},
    {"resize_grad", resize_grad_plan, resize_grad_run, resize_shapes},
    {"norm_stats", norm_stats_plan, norm_stats_run, norm_shapes},
    {"normalize", normalize_plan, normalize_run, norm_shapes},
    {"norm_grad_sums", norm_grad_sums_plan, norm_grad_sums_run, norm_shapes},
    {"norm_grad_input", norm_grad_input_plan, norm_grad_input_run, norm_shapes},
    {"augment", augment_plan, augment_run, augment_shapes},
    {"fill", fill_plan, fill_run, fill_shapes},
    {"constant", constant_plan, constant_run, fill_shapes},
    {"accumulate", accumulate_plan, accumulate_run, accumulate_shapes},
    {"update", update_plan, update_run, update_shapes},
};

#endif
