/* How kernels divide their work, and the scratch memory that they need. */

#include "shapes.h"

MIRT__LIB int64_t mirt__floor_div(int64_t a, int64_t b) {
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

MIRT__LIB int64_t mirt__gemm_tile_rows(int64_t m, int64_t k) {
    int64_t rows = MIRT__INPUT_TILE / (k > 0 ? k : 1) / 12 * 12; /* whole tiles of any instruction set */
    return mirt__min(mirt__max(rows, 12), mirt__max(m, 1));
}

MIRT__LIB size_t mirt__gemm_scratch(const mirt__gemm *args) {
    int64_t floats = MIRT__PANEL_FLOATS;
    if (args->a_col == 1) floats += mirt__gemm_tile_rows(args->m, args->k) * args->k;
    else floats += MIRT__BLOCK_K * MIRT__GRAD_COLUMNS;
    return mirt__align_up((size_t)floats * sizeof(mirt__real));
}

MIRT__LIB mirt__pool_blocks mirt__pool_blocks_of(const mirt__conv *s) {
    mirt__pool_blocks blocks;
    const int64_t window = (int64_t)s->kh * s->kw * s->ci * 4 * mirt__max(s->ow / 2, 1),
                  line = mirt__max((s->ow + s->kw - 1) * s->ci, 1),
                  rows = mirt__max(MIRT__INPUT_TILE / line - s->kh + 1, 2) / 2 * 2;
    blocks.rows = mirt__min(rows, mirt__max((s->oh + 1) / 2 * 2, 2));
    blocks.floats = (mirt__min(blocks.rows, mirt__max(s->oh, 1)) + s->kh - 1) * line;
    blocks.window_rows = mirt__max(MIRT__WINDOWS / window, 1);
    blocks.window_floats = blocks.window_rows * window;
    return blocks;
}

/* A vector of any instruction set has at most this many floats. */
#define MIRT__VECTOR 16

/* Rows of the source that `lines` rows of the target reach. */
static int64_t mirt__view_rows(const mirt__conv_view *v, bool back, int64_t lines) {
    const int64_t reach = (int64_t)(v->s.kh - 1) * v->s.dilation_h;
    if (back) return (lines - 1 + reach) / v->s.stride_h + 2;
    return reach == 0 ? lines : (lines - 1) * v->s.stride_h + reach + 1;
}

static void mirt__view_blocks(mirt__conv_view *v, bool back) {
    const int64_t width = mirt__max(v->target_w, 1), height = mirt__max(v->target_h, 1);
    const int64_t line = mirt__max(v->tile_columns * v->c, 1), step = back ? v->s.stride_h : 1;
    const int64_t flat = width == 1 ? 2 : 1; /* rows without neighbors are divided into small blocks of many channels */
    int64_t most = flat > 1 ? MIRT__SUM_CHUNK : mirt__max(MIRT__BLOCK_PIXELS / width, 1);
    while (most > 1 && mirt__view_rows(v, back, most) * line > flat * MIRT__INPUT_TILE) most--;
    v->images = 1;
    if (most >= height) {
        const int64_t image = mirt__view_rows(v, back, height) * line;
        v->lines = height;
        v->images = mirt__min(MIRT__SUM_CHUNK / (height * width), 2 * MIRT__INPUT_TILE / image);
        v->images = mirt__max(mirt__min(v->images, v->s.rows), 1);
    } else if (flat > 1 && most >= MIRT__TILE_GROUP) {
        v->lines = most - most % MIRT__TILE_GROUP;
    } else {
        v->lines = mirt__parts(height, mirt__parts(height, most));
        v->lines = mirt__min(mirt__parts(v->lines, step) * step, height);
    }
    v->parts = mirt__parts(v->target_h, v->lines);
    v->blocks = v->images > 1 ? mirt__parts(v->s.rows, v->images) : v->s.rows * v->parts;
    v->tile_rows = mirt__view_rows(v, back, v->lines);
    v->input_tile = v->images * v->tile_rows * v->tile_columns * v->c;
    const int64_t phase = mirt__parts(v->lines, step) * mirt__parts(width, back ? v->s.stride_w : 1);
    v->chunks = v->sets * mirt__parts(v->images * phase, MIRT__SUM_CHUNK);
}

static bool mirt__is_pointwise(const mirt__conv *s) {
    return s->kh == 1 && s->kw == 1 && s->stride_h == 1 && s->stride_w == 1 && s->oh == s->h && s->ow == s->w &&
           s->pad_top == 0 && s->pad_left == 0;
}

MIRT__LIB mirt__conv_view mirt__conv_view_of(const mirt__conv *shape, bool back) {
    mirt__conv_view v;
    memset(&v, 0, sizeof v);
    v.s = *shape;
    mirt__conv *s = &v.s;
    const int64_t taps = (int64_t)s->kh * s->kw;
    if (mirt__is_pointwise(s)) {
        s->h = s->oh = s->rows * s->h * s->w;
        s->rows = s->w = s->ow = 1;
    }
    const int64_t reach_w = (int64_t)(s->kw - 1) * s->dilation_w;
    const int64_t g = s->groups;
    v.h = back ? s->oh : s->h;
    v.w = back ? s->ow : s->w;
    v.c = back ? s->co : s->ci;
    v.target_h = back ? s->h : s->oh;
    v.target_w = back ? s->w : s->ow;
    v.target_c = back ? s->ci : s->co;
    v.k = v.c / g;
    v.n = v.target_c / g;
    v.sets = v.sets_across = 1;
    if (back) { /* taps that no pixel has are left out */
        v.sets_across = mirt__max(mirt__min(s->stride_w, s->w), 1);
        v.sets = v.sets_across * mirt__max(mirt__min(s->stride_h, s->h), 1);
        if (s->h < s->stride_h) v.phase_y = s->pad_top;
        if (s->w < s->stride_w) v.phase_x = s->pad_left;
    }
    v.runs = taps + taps * v.k / MIRT__BLOCK_K + v.sets;
    v.row_step = v.column_step = 1;
    if (back) {
        v.tile_left = mirt__floor_div(s->pad_left - reach_w, s->stride_w);
        v.tile_columns = mirt__floor_div(s->w - 1 + s->pad_left, s->stride_w) - v.tile_left + 1;
    } else {
        if (s->kh == 1) v.row_step = s->stride_h;
        if (s->kw == 1) v.column_step = s->stride_w;
        v.tile_left = -s->pad_left;
        v.tile_columns = s->kw == 1 ? s->ow : (s->ow - 1) * s->stride_w + reach_w + 1;
    }
    mirt__view_blocks(&v, back);
    return v;
}

MIRT__LIB void mirt__conv_view_share(mirt__conv_view *v, int64_t threads, int64_t tile_rows) {
    const int64_t images = v->s.rows, positions = v->target_h * v->target_w, most = v->lines;
    int64_t parts = v->parts;
    if (threads == 1 || v->images > 1 || v->blocks < 1 || v->blocks >= 16 * threads ||
        images * positions < 2 * tile_rows * threads)
        return;
    while (images * parts % threads != 0) parts++;
    v->lines = mirt__parts(v->target_h, parts);
    if (v->target_w == 1) v->lines = mirt__min(mirt__parts(v->lines, tile_rows) * tile_rows, most);
    v->parts = mirt__parts(v->target_h, v->lines);
    v->blocks = images * v->parts;
    v->tile_rows = mirt__view_rows(v, false, v->lines);
    v->input_tile = v->tile_rows * v->tile_columns * v->c;
}

static size_t mirt__shapes_place(size_t *end, int64_t count, size_t size) {
    const size_t place = *end;
    *end += mirt__align_up((size_t)count * size);
    return place;
}

/* Places what every convolution needs: columns of source and target, `packed` floats, sums and runs. */
static mirt__conv_places mirt__shapes_places(int64_t c, int64_t target_c, int64_t packed, int64_t chunks,
                                             int64_t runs) {
    mirt__conv_places p;
    memset(&p, 0, sizeof p);
    p.source = mirt__shapes_place(&p.end, 5 * c, sizeof(mirt__real));
    p.finishing = mirt__shapes_place(&p.end, 6 * target_c, sizeof(mirt__real));
    p.packed = mirt__shapes_place(&p.end, packed, sizeof(mirt__real));
    p.sums = mirt__shapes_place(&p.end, chunks * 3 * target_c, sizeof(mirt__real));
    p.counts = mirt__shapes_place(&p.end, chunks, sizeof(int32_t));
    p.runs = mirt__shapes_place(&p.end, runs, sizeof(mirt__run));
    return p;
}

MIRT__LIB mirt__conv_places mirt__conv_places_of(const mirt__conv_view *v) {
    const int64_t taps = (int64_t)v->s.kh * v->s.kw, panels = v->s.groups * mirt__parts(v->n, MIRT__PANEL);
    mirt__conv_places p = mirt__shapes_places(v->c, v->target_c, taps * v->k * panels * MIRT__PANEL,
                                              v->blocks * v->chunks, v->runs);
    p.sets = mirt__shapes_place(&p.end, v->sets, sizeof(mirt__conv_set));
    p.taps = mirt__shapes_place(&p.end, taps, sizeof(mirt__conv_tap));
    return p;
}

/* Whether it is faster: with enough channels for the transforms, and images that fill most of their tiles. */
MIRT__LIB bool mirt__winograd_applies(const mirt__conv *s, bool back) {
    const int64_t h = back ? s->h : s->oh, w = back ? s->w : s->ow, tiles = ((h + 1) / 2) * ((w + 1) / 2);
    return s->kh == 3 && s->kw == 3 && s->stride_h == 1 && s->stride_w == 1 && s->dilation_h == 1 &&
           s->dilation_w == 1 && s->groups == 1 && s->ci * s->co >= 10 * (s->ci + s->co) && h * w * 27 >= tiles * 64;
}
#define MIRT__WINOGRAD_FLOATS 163840 /* approximate floats in the planes of a block, which stay in L2, */
#define MIRT__WINOGRAD_TILES 32      /* but at least this many tiles, to amortize reading large weights */
MIRT__LIB mirt__winograd_view mirt__winograd_view_of(const mirt__conv *s, bool back) {
    mirt__winograd_view v;
    memset(&v, 0, sizeof v);
    v.back = back;
    v.rows = s->rows;
    v.h = back ? s->oh : s->h;
    v.w = back ? s->ow : s->w;
    v.c = back ? s->co : s->ci;
    v.target_h = back ? s->h : s->oh;
    v.target_w = back ? s->w : s->ow;
    v.target_c = back ? s->ci : s->co;
    v.before_h = back ? 2 - s->pad_top : s->pad_top;
    v.before_w = back ? 2 - s->pad_left : s->pad_left;
    v.down = (v.target_h + 1) / 2;
    v.across = (v.target_w + 1) / 2;
    const int64_t most = mirt__max(MIRT__WINOGRAD_FLOATS / (16 * (v.c + MIRT__PANEL)), MIRT__WINOGRAD_TILES),
                  image = mirt__max(v.down * v.across, 1);
    v.images = mirt__max(mirt__min(most / image, v.rows), 1);
    v.lines = mirt__max(mirt__min(most / mirt__max(v.across, 1), v.down), 1);
    v.lines = mirt__max(mirt__parts(v.down, mirt__parts(mirt__max(v.down, 1), v.lines)), 1);
    v.parts = mirt__parts(v.down, v.lines);
    v.blocks = v.images > 1 ? mirt__parts(v.rows, v.images) : v.rows * v.parts;
    const int64_t tiles = v.images * v.lines * v.across;
    v.chunks = mirt__parts(tiles, MIRT__WINOGRAD_CHUNK);
    v.tile_columns = 2 * v.across + 2;
    /* Planes that are a multiple of 4 KB apart compete for too few cache sets. */
    v.source_plane = tiles * v.c + MIRT__VECTOR;
    v.product_plane = tiles * MIRT__PANEL + MIRT__VECTOR;
    v.shared_floats = mirt__max(v.images * (2 * v.lines + 2) * v.tile_columns * v.c, 16 * v.product_plane);
    const int64_t floats = v.shared_floats + 16 * v.source_plane + MIRT__TILE_GROUP * MIRT__PANEL,
                  pack = 9 * MIRT__WINOGRAD_STEPS * MIRT__PANEL;
    v.scratch = mirt__align_up((size_t)mirt__max(floats, pack) * sizeof(mirt__real));
    v.places = mirt__shapes_places(v.c, v.target_c, 16 * v.c * mirt__parts(v.target_c, MIRT__PANEL) * MIRT__PANEL,
                                   v.blocks * v.chunks, v.c / MIRT__BLOCK_K + 1);
    return v;
}

MIRT__LIB bool mirt__is_depthwise(const mirt__conv *s) {
    return s->groups > 1 && s->groups == s->ci && s->ci == s->co && (int64_t)s->kh * s->kw <= MIRT__MAX_TAPS;
}

/* Chunks of a weight gradient, at most, whose sums have `floats` numbers each and take about 4 MB: four for each of 64
   cores, at least one. */
static int64_t mirt__chunks_most(int64_t floats) {
    return mirt__min(mirt__max((1 << 20) / floats, 64), 256);
}

/* Few images are divided into blocks of 8 rows or more, so that there are some 16 units. */
MIRT__LIB mirt__depth_cut mirt__depth_cut_of(const mirt__conv *s) {
    const int64_t reach_h = (int64_t)(s->kh - 1) * s->dilation_h, reach_w = (int64_t)(s->kw - 1) * s->dilation_w,
                  c = s->ci;
    const int64_t low = mirt__floor_div(s->pad_left - reach_w, s->stride_w),
                  high = mirt__floor_div(s->w - 1 + s->pad_left, s->stride_w);
    const int64_t rows = mirt__max(s->rows, 1), height = mirt__max(s->oh, 1);
    mirt__depth_cut cut;
    cut.sum_pixels = MIRT__REDUCE_CHUNK;
    cut.sum_rows = mirt__max(cut.sum_pixels / mirt__max(s->ow, 1), 1);
    cut.sum_pieces = mirt__max(mirt__parts(s->ow, cut.sum_pixels), 1);
    cut.grad_rows = mirt__max(cut.sum_pixels / mirt__max(s->w, 1), 1);
    cut.grad_pieces = mirt__max(mirt__parts(s->w, cut.sum_pixels), 1);
    cut.blocks = mirt__min(mirt__max(16 / rows, 1), (height + 7) / 8);
    cut.block_rows = mirt__parts(mirt__parts(height, cut.blocks), cut.sum_rows) * cut.sum_rows;
    cut.blocks = mirt__parts(height, cut.block_rows);
    const int64_t highest = cut.blocks == 1
                                ? s->h
                                : mirt__max(cut.block_rows * s->stride_h,
                                            s->h - ((cut.blocks - 1) * cut.block_rows * s->stride_h - s->pad_top));
    cut.grad_sums = mirt__parts(highest, cut.grad_rows) * cut.grad_pieces;
    cut.x_rows = reach_h + 1;
    cut.x_before = s->pad_left;
    cut.x_columns = s->pad_left + mirt__max(s->w, (s->ow - 1) * s->stride_w + reach_w + 1 - s->pad_left);
    cut.dy_rows = reach_h / s->stride_h + 2;
    cut.dy_before = mirt__max(-low, 0);
    cut.dy_columns = cut.dy_before + mirt__max(s->ow, high + 1);
    const int64_t most = mirt__chunks_most(mirt__conv_partial_floats(s));
    cut.images = mirt__parts(rows, most);
    cut.parts = cut.images > 1 ? mirt__parts(rows, cut.images) : rows * cut.blocks;
    /* Also enough for fewer rows. */
    const int64_t parts = rows > most ? most : mirt__max(rows, 16);
    const int64_t sums = mirt__parts(height, cut.sum_rows) * cut.sum_pieces,
                  grad_sums = mirt__parts(s->h, cut.grad_rows) * cut.grad_pieces;
    cut.scratch_floats =
        (cut.x_rows * cut.x_columns + cut.dy_rows * cut.dy_columns + mirt__max(s->w, s->ow)) * c;
    cut.shared_floats = parts * mirt__conv_partial_floats(s) +
                        (mirt__max(rows * sums * 3, mirt__max(rows, 16) * grad_sums * 2) + 16) * c;
    return cut;
}

MIRT__LIB int64_t mirt__conv_partial_floats(const mirt__conv *s) {
    return (int64_t)s->kh * s->kw * (s->ci / s->groups) * s->co + s->co;
}

/* At least 4 images; more if the kernel is large, so that the partial sums of 256 images take about 4 MB; all in one
   chunk for the largest. */
MIRT__LIB int64_t mirt__conv_chunk_rows(const mirt__conv *s) {
    int64_t rows = mirt__conv_partial_floats(s) / 4096;
    return rows > 128 ? INT64_MAX : mirt__max(rows, 4);
}

MIRT__TRAINING_LIB mirt__conv_grad_view mirt__conv_grad_view_of(const mirt__conv *shape) {
    mirt__conv_grad_view g;
    memset(&g, 0, sizeof g);
    g.v = mirt__conv_view_of(shape, false);
    const mirt__conv *s = &g.v.s;
    const int64_t ci = g.v.k, co = g.v.n, reach = (int64_t)(s->kh - 1) * s->dilation_h;
    g.k = (int64_t)s->kh * s->kw * ci;
    g.row = s->groups * mirt__parts(co, MIRT__VECTOR) * MIRT__VECTOR;
    g.sum = (g.k + 1) * g.row;
    /* Enough chunks to share the work, if they are large enough for an extra addition, and all sums take a few MB. */
    g.rows = s->rows * s->oh;
    const int64_t pixels = g.rows * s->ow;
    int64_t chunks = mirt__max(mirt__min(pixels / 128, 4), pixels / 1024);
    chunks = mirt__min(chunks, mirt__min((1 << 20) / g.sum, 256));
    g.chunks_most = mirt__max(chunks, 1);
    g.chunk = mirt__parts(mirt__max(g.rows, 1), mirt__max(chunks, 1));
    g.chunks = mirt__parts(mirt__max(g.rows, 1), g.chunk);
    /* Channels that leave space for some 200 pixels: the sums of a block pass through memory once. */
    const int64_t width = mirt__max(s->ow, 1),
                  lines = mirt__max(mirt__min(s->oh, MIRT__GRAD_PIXELS / width), 1);
    const int64_t step = s->kh == 1 ? 1 : s->stride_h,
                  images = mirt__max(MIRT__GRAD_PIXELS / (lines * width), 1);
    const int64_t floats = images * ((lines - 1) * step + reach + 1) * g.v.tile_columns; /* of a channel */
    const int64_t fit =
        mirt__max(mirt__min((MIRT__INPUT_TILE + MIRT__INPUT_TILE / 4) / floats, MIRT__GRAD_CHANNELS), 12);
    const int64_t most = g.k > ci ? MIRT__GRAD_CHANNELS / 2 : MIRT__GRAD_CHANNELS;
    g.channels = mirt__parts(mirt__parts(ci, mirt__parts(ci, fit)), 12) * 12;
    g.channels = mirt__min(g.channels, ci);
    g.columns = mirt__parts(mirt__parts(co, mirt__parts(co, most)), MIRT__PANEL) * MIRT__PANEL;
    g.columns = mirt__min(g.columns, co);
    g.x_floats = mirt__max((reach + 1) * g.v.tile_columns * g.channels, MIRT__INPUT_TILE + MIRT__INPUT_TILE / 4);
    g.dy_floats = mirt__max(s->ow * g.columns, MIRT__INPUT_TILE) + MIRT__PANEL;
    g.runs = (MIRT__BLOCK_PIXELS + s->ow / MIRT__BLOCK_K + 4 + 7) / 8 * 8; /* whole cache lines */
    return g;
}

/* The sums of a chunk stay in the cache together with the tiles. */
#define MIRT__BOTH_FLOATS 32768
MIRT__LIB bool mirt__both_applies(const mirt__conv *s) {
    return s->groups == 1 && mirt__is_pointwise(s) && s->ci * s->co <= MIRT__BOTH_FLOATS && s->ci <= 512 &&
           s->co <= 512;
}

/* Blocks in a chunk, of which there are at most `most`: so many that 64 cores are done at about the same time. */
static int64_t mirt__both_blocks(int64_t blocks, int64_t most) {
    int64_t best = 0, fullest = 0;
    for (int64_t tasks = 64; tasks <= most; tasks *= 2) {
        const int64_t each = mirt__max(mirt__parts(blocks, tasks), 4), chunks = mirt__max(mirt__parts(blocks, each), 1),
                      full = 64 * chunks / mirt__parts(chunks, 64); /* 4096: every core always has work */
        if (full < fullest) continue;
        best = each;
        fullest = full - 256; /* smaller chunks suit cores of unequal speed */
    }
    return best;
}

MIRT__TRAINING_LIB mirt__both_view mirt__both_view_of(const mirt__conv *s) {
    const mirt__conv_view v = mirt__conv_view_of(s, true);
    mirt__both_view b;
    memset(&b, 0, sizeof b);
    b.lines = v.lines;
    b.input_tile = mirt__parts(v.input_tile + MIRT__PANEL, MIRT__VECTOR) * MIRT__VECTOR;
    const int64_t most = mirt__chunks_most((s->ci + 1) * s->co);
    b.blocks = mirt__both_blocks(v.blocks, most);
    b.chunks = mirt__parts(v.blocks, b.blocks);
    b.scratch = (size_t)(MIRT__TILE_GROUP * MIRT__PANEL + b.input_tile + v.lines * (s->ci + s->co) + 2 * MIRT__PANEL) *
                sizeof(mirt__real);
    b.sums = mirt__conv_places_of(&v).end;
    const int64_t row = mirt__parts(s->co, MIRT__VECTOR) * MIRT__VECTOR,
                  chunks = mirt__min(mirt__parts(v.blocks, 4), most); /* fewer rows may have more than these */
    b.shared = b.sums + (size_t)(5 * s->ci + chunks * (s->ci + 1) * row) * sizeof(mirt__real);
    return b;
}
#undef MIRT__VECTOR
#undef MIRT__BOTH_FLOATS

/* Bytes of shared memory for the weight gradient. */
MIRT__TRAINING size_t mirt__conv_grad_shared(const mirt__conv *s) {
    const mirt__conv_grad_view g = mirt__conv_grad_view_of(s);
    const int64_t sources = 5 * (s->ci + s->co), chunk = mirt__conv_chunk_rows(s),
                  parts = mirt__parts(s->rows, chunk);
    const int64_t pool = parts < 2 ? 0 : parts * mirt__conv_partial_floats(s); /* for conv_pool and single channels */
    size_t most = mirt__align_up((size_t)mirt__max(sources + g.chunks_most * g.sum, pool) * sizeof(mirt__real));
    if (mirt__both_applies(s) && mirt__both_view_of(s).shared > most)
        most = mirt__align_up(mirt__both_view_of(s).shared);
    return most;
}

MIRT__LIB size_t mirt__conv_shared(const mirt__conv *s) {
    if (mirt__is_depthwise(s)) return mirt__align_up((size_t)mirt__depth_cut_of(s).shared_floats * sizeof(mirt__real));
    const mirt__conv_view forward = mirt__conv_view_of(s, false), back = mirt__conv_view_of(s, true);
    size_t most = MIRT__TRAINS ? mirt__conv_grad_shared(s) : 0;
    if (mirt__conv_places_of(&forward).end > most) most = mirt__conv_places_of(&forward).end;
    if (mirt__conv_places_of(&back).end > most) most = mirt__conv_places_of(&back).end;
    return most;
}

MIRT__TRAINING int64_t mirt__conv_grad_floats(const mirt__conv *s) {
    const mirt__conv_grad_view g = mirt__conv_grad_view_of(s);
    return g.x_floats + g.dy_floats +
           mirt__parts(g.runs * (int64_t)sizeof(mirt__run), (int64_t)sizeof(mirt__real));
}

MIRT__LIB size_t mirt__conv_scratch(const mirt__conv *s) {
    if (mirt__is_depthwise(s)) return mirt__align_up((size_t)mirt__depth_cut_of(s).scratch_floats * sizeof(mirt__real));
    const mirt__pool_blocks blocks = mirt__pool_blocks_of(s);
    const int64_t k = (int64_t)s->kh * s->kw * s->ci;
    /* conv_pool keeps all of k for the last columns, and an offset per k. */
    const int64_t pool = mirt__max(k * 33, blocks.window_floats + k);
    const int64_t input_tile =
        mirt__max(mirt__conv_view_of(s, false).input_tile, mirt__conv_view_of(s, true).input_tile);
    int64_t floats = mirt__max(pool + blocks.floats, input_tile + MIRT__TILE_GROUP * MIRT__PANEL);
    if (MIRT__TRAINS) floats = mirt__max(floats, mirt__conv_grad_floats(s));
    size_t most = mirt__align_up((size_t)floats * sizeof(mirt__real));
    if (MIRT__TRAINS && mirt__both_applies(s) && mirt__both_view_of(s).scratch > most)
        most = mirt__align_up(mirt__both_view_of(s).scratch);
    return most;
}

MIRT__LIB void mirt__winograd_room(const mirt__conv *s, size_t *scratch, size_t *shared) {
    for (int back = 0; back < 2; back++) {
        if (!mirt__winograd_applies(s, back == 1)) continue;
        const mirt__winograd_view v = mirt__winograd_view_of(s, back == 1);
        if (v.scratch > *scratch) *scratch = v.scratch;
        if (v.places.end > *shared) *shared = v.places.end;
    }
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

/* One row of partial sums per binary digit of the number of chunks. */
MIRT__LIB size_t mirt__reduce_scratch(const mirt__reduce *args) {
    int64_t elements = 1;
    size_t digits = 1;
    for (int i = 0; i < args->rank; i++) {
        if (args->axes >> i & 1) elements *= args->dim[i];
    }
    for (int64_t chunks = mirt__parts(elements, MIRT__REDUCE_CHUNK); chunks > 1; chunks /= 2) digits++;
    return mirt__align_up(digits * MIRT__REDUCE_WIDE * sizeof(mirt__real));
}

/* Memory for the columns of a source or an epilogue, and three rows per chunk of rows. */
MIRT__LIB size_t mirt__norm_shared(const mirt__norm *args) {
    const int64_t chunks = args->rows / MIRT__REDUCE_CHUNK + 1;
    return mirt__align_up((size_t)((chunks * 3 + 5) * args->n) * sizeof(mirt__real));
}

MIRT__LIB int64_t mirt__norm_piece(int64_t n) {
    return n < MIRT__NORM_PIECE / 8 ? MIRT__NORM_PIECE / (n > 0 ? n : 1) : 8;
}

MIRT__LIB size_t mirt__norm_scratch(const mirt__norm *args) {
    return mirt__align_up((size_t)(2 * mirt__norm_piece(args->n) * args->n) * sizeof(mirt__real));
}

MIRT__LIB bool mirt__pool_wide(int64_t places) { return places > UINT8_MAX + 1; }

/* In units of half an output step, so that it is exact. */
MIRT__LIB mirt__between mirt__resize_at(int64_t o, int64_t in, int64_t out, bool bilinear) {
    const int64_t center = (2 * o + 1) * in, at = center - out, low = mirt__floor_div(at, 2 * out);
    mirt__between b;
    b.low = b.high = center / (2 * out);
    b.part = 0;
    if (!bilinear) return b;
    b.low = mirt__max(low, 0);
    b.high = low + 1 < in ? low + 1 : in - 1;
    if (b.high != b.low) b.part = (mirt__real)(at - low * 2 * out) / (mirt__real)(2 * out);
    return b;
}
