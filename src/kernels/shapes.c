/* How the kernels cut their work, and the scratch that takes. */

#include "shapes.h"

MIRT__LIB int64_t mirt__floor_div(int64_t a, int64_t b) {
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static int64_t mirt__shapes_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t mirt__shapes_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

MIRT__LIB int64_t mirt__gemm_strip_rows(int64_t m, int64_t k) {
    int64_t rows = MIRT__STRIP / (k > 0 ? k : 1) / 12 * 12; /* whole tiles of any instruction set */
    return mirt__shapes_min(mirt__shapes_max(rows, 12), mirt__shapes_max(m, 1));
}

MIRT__LIB size_t mirt__gemm_scratch(const mirt__gemm *args) {
    int64_t floats = MIRT__PANEL_FLOATS;
    if (args->a_col == 1) floats += mirt__gemm_strip_rows(args->m, args->k) * args->k;
    else floats += MIRT__BLOCK_K * MIRT__GRAD_COLUMNS;
    return mirt__align_up((size_t)floats * sizeof(mirt__real));
}

MIRT__LIB mirt__conv_blocks mirt__conv_block_sizes(const mirt__conv *s) {
    mirt__conv_blocks blocks;
    const int64_t reach_h = (int64_t)(s->kh - 1) * s->dilation_h, reach_w = (int64_t)(s->kw - 1) * s->dilation_w;
    const int64_t window = (int64_t)s->kh * s->kw * s->ci * 4 * mirt__shapes_max(s->ow / 2, 1);

    blocks.forward_cols = (s->ow - 1) * s->stride_w + reach_w + 1;
    int64_t rows = (MIRT__STRIP / (blocks.forward_cols * s->ci) - reach_h - 1) / s->stride_h + 1;
    blocks.forward_rows = mirt__shapes_min(mirt__shapes_max(rows / 2 * 2, 2), mirt__shapes_max((s->oh + 1) / 2 * 2, 2));
    rows = mirt__shapes_min(blocks.forward_rows, mirt__shapes_max(s->oh, 1));
    blocks.forward_floats = ((rows - 1) * s->stride_h + reach_h + 1) * blocks.forward_cols * s->ci;

    blocks.grad_cols = mirt__floor_div(s->w - 1 + s->pad_left, s->stride_w) -
                       mirt__floor_div(s->pad_left - reach_w, s->stride_w) + 1;
    rows = (MIRT__STRIP / (blocks.grad_cols * s->co) - 2) * s->stride_h - reach_h;
    blocks.grad_rows = mirt__shapes_min(mirt__shapes_max(rows, 1), mirt__shapes_max(s->h, 1));
    blocks.grad_floats = ((blocks.grad_rows - 1 + reach_h) / s->stride_h + 2) * blocks.grad_cols * s->co;

    blocks.run_count = mirt__shapes_max((int64_t)s->kh * s->kw, blocks.forward_rows);
    blocks.window_rows = mirt__shapes_max(MIRT__WINDOWS / window, 1);
    blocks.window_floats = blocks.window_rows * window;
    return blocks;
}

MIRT__LIB bool mirt__is_depthwise(const mirt__conv *s) {
    return s->groups > 1 && s->groups == s->ci && s->ci == s->co && (int64_t)s->kh * s->kw <= MIRT__MAX_TAPS;
}

/* Few images are cut into blocks of 8 rows or more, so that there are some 16 units. */
MIRT__LIB mirt__depth_cut mirt__depth_cut_of(const mirt__conv *s) {
    const int64_t reach_h = (int64_t)(s->kh - 1) * s->dilation_h, reach_w = (int64_t)(s->kw - 1) * s->dilation_w, c = s->ci;
    const int64_t low = mirt__floor_div(s->pad_left - reach_w, s->stride_w), high = mirt__floor_div(s->w - 1 + s->pad_left, s->stride_w);
    const int64_t rows = mirt__shapes_max(s->rows, 1), height = mirt__shapes_max(s->oh, 1);
    mirt__depth_cut cut;
    cut.sum_pixels = MIRT__REDUCE_CHUNK;
    cut.sum_rows = mirt__shapes_max(cut.sum_pixels / mirt__shapes_max(s->ow, 1), 1);
    cut.sum_pieces = mirt__shapes_max((s->ow + cut.sum_pixels - 1) / cut.sum_pixels, 1);
    cut.grad_rows = mirt__shapes_max(cut.sum_pixels / mirt__shapes_max(s->w, 1), 1);
    cut.grad_pieces = mirt__shapes_max((s->w + cut.sum_pixels - 1) / cut.sum_pixels, 1);
    cut.blocks = mirt__shapes_min(mirt__shapes_max(16 / rows, 1), (height + 7) / 8);
    cut.block_rows = ((height + cut.blocks - 1) / cut.blocks + cut.sum_rows - 1) / cut.sum_rows * cut.sum_rows;
    cut.blocks = (height + cut.block_rows - 1) / cut.block_rows;
    const int64_t most = cut.blocks == 1 ? s->h : mirt__shapes_max(cut.block_rows * s->stride_h, s->h - ((cut.blocks - 1) * cut.block_rows * s->stride_h - s->pad_top));
    cut.grad_sums = (most + cut.grad_rows - 1) / cut.grad_rows * cut.grad_pieces;
    cut.x_rows = reach_h + 1;
    cut.x_before = s->pad_left;
    cut.x_columns = s->pad_left + mirt__shapes_max(s->w, (s->ow - 1) * s->stride_w + reach_w + 1 - s->pad_left);
    cut.dy_rows = reach_h / s->stride_h + 2;
    cut.dy_before = mirt__shapes_max(-low, 0);
    cut.dy_columns = cut.dy_before + mirt__shapes_max(s->ow, high + 1);
    cut.images = (rows + 63) / 64;
    cut.parts = cut.images > 1 ? (rows + cut.images - 1) / cut.images : rows * cut.blocks;
    /* As much as fewer rows would take, too. */
    const int64_t parts = rows > 64 ? 64 : mirt__shapes_max(rows, 16);
    const int64_t sums = (height + cut.sum_rows - 1) / cut.sum_rows * cut.sum_pieces, grad_sums = (s->h + cut.grad_rows - 1) / cut.grad_rows * cut.grad_pieces;
    cut.scratch_floats = (cut.x_rows * cut.x_columns + cut.dy_rows * cut.dy_columns + mirt__shapes_max(s->w, s->ow)) * c;
    cut.shared_floats = parts * mirt__conv_partial_floats(s) + (mirt__shapes_max(rows * sums * 3, mirt__shapes_max(rows, 16) * grad_sums * 2) + 16) * c;
    return cut;
}

MIRT__LIB size_t mirt__conv_scratch(const mirt__conv *s) {
    if (mirt__is_depthwise(s)) return mirt__align_up((size_t)mirt__depth_cut_of(s).scratch_floats * sizeof(mirt__real));
    const mirt__conv_blocks blocks = mirt__conv_block_sizes(s);
    const int64_t k = (int64_t)s->kh * s->kw * s->ci;
    /* conv_pool keeps all of k for the last columns, and an offset for each k. */
    const int64_t pool = mirt__shapes_max(k * 33, blocks.window_floats + k);
    const int64_t floats = mirt__shapes_max(MIRT__PANEL_FLOATS, pool) +
                           mirt__shapes_max(blocks.forward_floats, blocks.grad_floats);
    return mirt__align_up((size_t)blocks.run_count * sizeof(mirt__run)) + mirt__align_up((size_t)floats * sizeof(mirt__real));
}

MIRT__LIB int64_t mirt__conv_partial_floats(const mirt__conv *s) {
    return (int64_t)s->kh * s->kw * (s->ci / s->groups) * s->co + s->co;
}

/* At least 4 images; more where the kernel is large, so that the partial sums of 256 images stay
   near 4 MB; all in one chunk for the largest. */
MIRT__LIB int64_t mirt__conv_chunk_rows(const mirt__conv *s) {
    int64_t rows = mirt__conv_partial_floats(s) / 4096;
    return rows > 128 ? INT64_MAX : mirt__shapes_max(rows, 4);
}

MIRT__LIB size_t mirt__conv_weight_grad_shared(const mirt__conv *s) {
    if (mirt__is_depthwise(s)) return mirt__align_up((size_t)mirt__depth_cut_of(s).shared_floats * sizeof(mirt__real));
    const int64_t chunk = mirt__conv_chunk_rows(s);
    const int64_t parts = s->rows / chunk + (s->rows % chunk != 0);
    return parts < 2 ? 0 : mirt__align_up((size_t)(parts * mirt__conv_partial_floats(s)) * sizeof(mirt__real));
}

static void mirt__tree_node(mirt__real *part, int64_t lo, int64_t hi, int64_t stride, int64_t count) {
    if (hi - lo < 2) return;
    int64_t half = 1;
    while (half * 2 < hi - lo) half *= 2;
    mirt__tree_node(part, lo, lo + half, stride, count);
    mirt__tree_node(part, lo + half, hi, stride, count);
    mirt__real *into = part + lo * stride;
    const mirt__real *from = part + (lo + half) * stride;
    for (int64_t i = 0; i < count; i++) into[i] += from[i];
}

MIRT__LIB void mirt__tree(mirt__real *part, int64_t parts, int64_t stride, int64_t count) {
    mirt__tree_node(part, 0, parts, stride, count);
}

/* One row of partial sums for each binary digit of the number of chunks. */
MIRT__LIB size_t mirt__reduce_scratch(const mirt__reduce *args) {
    int64_t elements = 1;
    size_t digits = 1;
    for (int i = 0; i < args->rank; i++) {
        if (args->axes >> i & 1) elements *= args->dim[i];
    }
    for (int64_t chunks = (elements + MIRT__REDUCE_CHUNK - 1) / MIRT__REDUCE_CHUNK; chunks > 1; chunks /= 2) digits++;
    return mirt__align_up(digits * MIRT__REDUCE_COLUMNS * sizeof(mirt__real));
}

/* Two rows of n, and three for each chunk of rows. */
MIRT__LIB size_t mirt__norm_shared(const mirt__norm *args) {
    const int64_t chunks = args->rows / MIRT__REDUCE_CHUNK + 1;
    return mirt__align_up((size_t)((chunks * 3 + 2) * args->n) * sizeof(mirt__real));
}

/* A row. */
MIRT__LIB size_t mirt__norm_scratch(const mirt__norm *args) { return mirt__align_up((size_t)args->n * sizeof(mirt__real)); }

/* In units of a half output step, so that it is exact. */
MIRT__LIB mirt__between mirt__resize_at(int64_t o, int64_t in, int64_t out, bool bilinear) {
    const int64_t center = (2 * o + 1) * in, at = center - out, low = mirt__floor_div(at, 2 * out);
    mirt__between b;
    b.low = b.high = center / (2 * out);
    b.part = 0;
    if (!bilinear) return b;
    b.low = low < 0 ? 0 : low;
    b.high = low + 1 < in ? low + 1 : in - 1;
    if (b.high != b.low) b.part = (mirt__real)(at - low * 2 * out) / (mirt__real)(2 * out);
    return b;
}
