/* Convolutions, the gradients of their inputs and dense layers, by multiply.cuh. */
#include "colors.cuh"
#include "layout.cuh"
#include "multiply.cuh"
#include "panel.cuh"
#include "spread.cuh"

/* ---- Weights as products want them: rows of k in the order in which they come, each of a few columns more than there
   are, zeros. */

typedef struct mirt__cu_mm_pack {
    const float *from;
    void *to;
    int64_t tap, row, column, group;       /* distances in `from` of taps, k, columns and groups */
    mirt__cu_mm_axis down, across;
    int k, n, groups;
    int64_t k_pad, n_pad, tiles_k, tiles_n, rows; /* rows: of a group */
    mirt_dtype dtype, factors; /* of `to`; what numbers are rounded to */
} mirt__cu_mm_pack;

static __global__ void __launch_bounds__(256) mirt__cu_mm_pack_kernel(mirt__cu_mm_pack p) {
    MIRT_SHARED(float, tile, 32 * 33);
    int64_t at = blockIdx.x;
    const int64_t n0 = at % p.tiles_n * 32;
    at /= p.tiles_n;
    const int64_t k0 = at % p.tiles_k * 32;
    at /= p.tiles_k;
    const int taps = p.down.kernel * p.across.kernel, tap = (int)(at % taps), ky = tap / p.across.kernel,
              kx = tap - ky * p.across.kernel;
    const int64_t group = at / taps;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;
    const float *from = p.from + group * p.group + tap * p.tap;
    /* Where this tap's rows begin: those of phases before, then taps before in its phase. */
    int64_t first = tap;
    if (p.down.back) {
        const int down = ((ky * p.down.dilation - p.down.pad) % p.down.stride + p.down.stride) % p.down.stride;
        const int across = ((kx * p.across.dilation - p.across.pad) % p.across.stride + p.across.stride) %
                           p.across.stride;
        if (down >= p.down.phases || across >= p.across.phases) return; /* no target reads by it */
        first = mirt__cu_mm_taps_before(p.down, p.across, down, across, mirt__cu_mm_line_of(p.down, down).taps) +
                (int64_t)(ky / p.down.tap_step) * mirt__cu_mm_line_of(p.across, across).taps + kx / p.across.tap_step;
    }
    for (int i = y; i < 32; i += 8) {
        const int64_t k = p.row == 1 ? k0 + x : k0 + i, n = p.row == 1 ? n0 + i : n0 + x;
        tile[p.row == 1 ? x * 33 + i : i * 33 + x] = k < p.k && n < p.n ? from[k * p.row + n * p.column] : 0.0f;
    }
    __syncthreads();
    for (int i = y; i < 32; i += 8) {
        if (k0 + i >= p.k_pad || n0 + x >= p.n_pad) continue;
        const int64_t to = (group * p.rows + first * p.k_pad + k0 + i) * p.n_pad + n0 + x;
        const float value = tile[i * 33 + x];
        mirt__cu_store(p.to, p.dtype, to, p.dtype == p.factors ? value : mirt__cu_round(value, p.factors));
    }
}

/* ---- Which tile, and what room that takes. */

/* Of a convolution from `in` to `out`. */
static mirt__cu_mm_axis mirt__cu_mm_axis_of(bool back, int64_t in, int64_t out, int kernel, int stride, int dilation,
                                            int64_t pad) {
    mirt__cu_mm_axis a;
    a.back = back;
    a.source = (int)(back ? out : in);
    a.target = (int)(back ? in : out);
    a.kernel = kernel;
    a.stride = stride;
    a.dilation = dilation;
    a.pad = (int)pad;
    a.phases = !back ? 1 : a.target < stride ? a.target : stride;
    a.tap_step = 1;
    while (back && (int64_t)a.tap_step * dilation % stride != 0) a.tap_step++;
    a.line = mirt__cu_mm_line_of(a, 0);
    return a;
}
static int mirt__cu_mm_axis_taps(const mirt__cu_mm_axis *a) { /* of a phase, at most */
    int most = 0;
    for (int i = 0; i < a->phases; i++) {
        const int taps = mirt__cu_mm_line_of(*a, i).taps;
        if (taps > most) most = taps;
    }
    return most;
}

typedef struct mirt__cu_mm_job {
    mirt__cu_multiply p;
    mirt__cu_mm_pack pack; /* from, distances */
    int64_t turned;     /* as of mirt__cu_mm_spread */
    mirt__real *const *sum;
    mirt_dtype factors; /* mirt__cu_factors */
} mirt__cu_mm_job;

#define MIRT__CU_MM_PARTIAL (1 << 24) /* floats of partial sums, at most */
#define MIRT__CU_MM_COLUMNS (48 << 10) /* bytes of columns in shared memory, at most */
#define MIRT__CU_MM_BACK (12 << 10)    /* beside gradients and z of 16 bits, so that two blocks fit a processor */

typedef void (*mirt__cu_multiply_code)(mirt__cu_multiply);
/* The kernel for what is multiplied as it is stored. */
template <int BM, int BN, int MATH> static mirt__cu_multiply_code mirt__cu_multiply_bare(mirt__cu_ending ending) {
#define MIRT__CU_BARE(end) mirt__cu_multiply_kernel<BM, BN, MATH, true, end>
    if constexpr (BM == 128) return MIRT__CU_BY_ENDING(ending, MIRT__CU_BARE);
    else return MIRT__CU_BARE(MIRT__CU_END_ANY);
#undef MIRT__CU_BARE
}
template <int BM, int BN, int MATH>
static int mirt__cu_multiply_as(mirt__cu *cu, const mirt__cu_multiply &p, int columns, bool launch) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    const dim3 grid((unsigned)((int64_t)p.blocks_m * p.blocks_n * p.groups * p.down.phases * p.across.phases),
                    (unsigned)p.splits);
    const int bytes = mirt__cu_mm_work_bytes(tile::stages, tile::a_bytes, tile::b_bytes, tile::slab,
                                             tile::half && p.x.kind & MIRT__CU_READ_BACK) +
                      tile::info;
    mirt__cu_multiply_code multiply_kernel = NULL;
    if constexpr (tile::half) {
        if (mirt__cu_multiply_is_bare(p, MATH))
            multiply_kernel = mirt__cu_multiply_bare<BM, BN, MATH>(mirt__cu_multiply_ending(p, (mirt__cu_math)MATH));
    }
    if constexpr (BN > 32) {
        if (!multiply_kernel) multiply_kernel = mirt__cu_multiply_kernel<BM, BN, MATH, false, MIRT__CU_END_ANY>;
    }
    if (launch) MIRT_LAUNCH(cu, multiply_kernel, grid, tile::threads, bytes + columns, p);
    return bytes;
}
template <int MATH>
static int mirt__cu_multiply_by(mirt__cu *cu, const mirt__cu_multiply &p, int bm, int bn, int columns, bool launch) {
    if constexpr (MATH >= MIRT__CU_BY_HALF) {
        if (bn == 32) return mirt__cu_multiply_as<128, 32, MATH>(cu, p, columns, launch);
    }
    return bn == 128   ? mirt__cu_multiply_as<128, 128, MATH>(cu, p, columns, launch)
           : bm == 128 ? mirt__cu_multiply_as<128, 64, MATH>(cu, p, columns, launch)
                       : mirt__cu_multiply_as<64, 64, MATH>(cu, p, columns, launch);
}
/* Launches one of the kernels; returns what it takes of shared memory beside the columns. */
static int mirt__cu_multiply_launch(mirt__cu *cu, const mirt__cu_multiply &p, mirt__cu_math math, int bm, int bn,
                                    int columns, bool launch) {
    return math == MIRT__CU_BY_HALF      ? mirt__cu_multiply_by<MIRT__CU_BY_HALF>(cu, p, bm, bn, columns, launch)
           : math == MIRT__CU_BY_FLOAT16 ? mirt__cu_multiply_by<MIRT__CU_BY_FLOAT16>(cu, p, bm, bn, columns, launch)
           : math == MIRT__CU_BY_TF32    ? mirt__cu_multiply_by<MIRT__CU_BY_TF32>(cu, p, bm, bn, columns, launch)
                                         : mirt__cu_multiply_by<MIRT__CU_BY_FMA>(cu, p, bm, bn, columns, launch);
}
/* Whether a kernel has room for itself and so many bytes of columns. */
static bool mirt__cu_multiply_fits(mirt__cu *cu, const mirt__cu_multiply &p, mirt__cu_math math, int bm, int bn,
                                   int columns) {
    return (size_t)(mirt__cu_multiply_launch(cu, p, math, bm, bn, 0, false) + columns) <= cu->shared_most;
}

/* Products of single pixels with a small matrix, which take no tiles; false: another product. */
static bool mirt__cu_multiply_small(mirt__cu *cu, const mirt__cu_mm_job *job) {
    const mirt__cu_multiply *p = &job->p;
    mirt__cu_colors c;
    if (!p->pixelwise || p->c != p->k || job->turned) return false;
    memset(&c, 0, sizeof c);
    c.x = p->x;
    c.b = job->pack.from;
    c.b_row = job->pack.row;
    c.b_column = job->pack.column;
    c.pixels = p->pixels;
    c.factors = job->factors;
    return mirt__cu_multiply_colors(cu, c, p->n, p->k, p->e);
}

/* Sets the tile, the blocks, and the parts of k: functions of shapes, and of what there is room for. */
static void mirt__cu_multiply_tiles(mirt__cu *cu, mirt__cu_multiply *p, mirt__cu_math math, int columns, int *bm,
                                    int *bn) {
    const int64_t rows = p->images * p->down.line.count * p->across.line.count,
                  sets = (int64_t)p->groups * p->down.phases * p->across.phases;
    const int64_t tiles = mirt__cu_ceil(rows, 128) * sets;
    const bool fourth_empty = mirt__cu_mm_fourth_empty(p->n), bare = mirt__cu_multiply_is_bare(*p, math);
    *bm = 128;
    *bn = 64;
    if (p->n > 64 && !(bare && fourth_empty) && tiles * mirt__cu_ceil(p->n, 128) >= MIRT__CU_MM_BLOCKS) *bn = 128;
    else if (tiles * mirt__cu_ceil(p->n, 64) < MIRT__CU_MM_BLOCKS) *bm = 64;
    else if (bare && p->n <= 32) *bn = 32;
    if (*bn != 64 && !mirt__cu_multiply_fits(cu, *p, math, *bm, *bn, columns)) *bn = 64;
    if (*bm == 128 && !mirt__cu_multiply_fits(cu, *p, math, *bm, *bn, columns)) *bm = 64;
    p->blocks_m = (int)mirt__cu_ceil(rows, *bm);
    p->blocks_n = (int)mirt__cu_ceil(p->n, *bn);
    const int64_t blocks = (int64_t)p->blocks_m * p->blocks_n * sets,
                  depth = (int64_t)mirt__cu_mm_axis_taps(&p->down) * mirt__cu_mm_axis_taps(&p->across) * p->k;
    const int64_t steps = mirt__cu_ceil(depth, math < MIRT__CU_BY_HALF ? 16 : 32), all = p->pixels * p->e.columns;
    int64_t splits = 1;
    if (blocks < MIRT__CU_MM_BLOCKS / 2 && steps >= 16 && all <= MIRT__CU_MM_PARTIAL / 2) {
        splits = mirt__cu_ceil(MIRT__CU_MM_BLOCKS, blocks);
        if (splits > steps / 8) splits = steps / 8;
        if (splits > 32) splits = 32;
        if (splits > MIRT__CU_MM_PARTIAL / all) splits = MIRT__CU_MM_PARTIAL / all;
    }
    p->split_steps = (int)mirt__cu_ceil(steps, splits);
    p->splits = splits > 1 ? (int)mirt__cu_ceil(steps, p->split_steps) : 1;
}

static void mirt__cu_multiply_run(mirt__cu *cu, mirt__cu_mm_job *job) {
    mirt__cu_multiply *p = &job->p;
    mirt__cu_mm_pack *w = &job->pack;
    const mirt__cu_math math = mirt__cu_math_of(cu, job->factors);
    const bool half = job->factors != MIRT_FLOAT32,
               exact = math < MIRT__CU_BY_HALF; /* rounded numbers are multiplied as floats */
    const mirt_dtype dtype = exact ? MIRT_FLOAT32 : job->factors;
    const int vector = exact ? 4 : 8, taps = p->down.kernel * p->across.kernel, k = p->k, size = exact ? 4 : 2;
    const bool round = half && exact, whole = !(p->x.kind & MIRT__CU_READ_GATE) ||
                                              p->x.gate_pixels == (int64_t)p->down.source * p->across.source;
    int columns = mirt__cu_columns_floats(p->x, k) * 4;
    const int most = !exact && p->x.kind & MIRT__CU_READ_BACK ? MIRT__CU_MM_BACK : MIRT__CU_MM_COLUMNS;
    const bool narrow = columns > most || !mirt__cu_multiply_fits(cu, *p, math, 64, 64, columns);
    const bool spread = narrow || k % vector != 0 || p->x.width < vector || p->x.dtype != dtype || !whole || round ||
                        job->turned || !mirt__cu_simple(p->x.norm.activation);
    mirt__cu_mm_spread s;
    mirt__cu_mm_rooms r;
    memset(&r, 0, sizeof r);
    memset(&s, 0, sizeof s);
    if (p->groups > 1 && p->n % 4 != 0) p->e.width = 1;
    if (spread) {
        s = mirt__cu_mm_spread_of(p->x, p->images * p->down.source * p->across.source, p->c, p->groups, k, dtype,
                               job->factors, job->turned);
        p->k = s.k_pad;
        p->c = p->groups * s.k_pad;
        r.x = mirt__cu_mm_rooms_take(&r, mirt__cu_mm_spread_bytes(s));
        memset(&p->x, 0, sizeof p->x);
        p->x.dtype = dtype;
        p->x.width = 8;
        columns = 0;
    }

    mirt__cu_panel_plan panel;
    int bm = 0, bn = 0;
    const bool by_panel = mirt__cu_panel_plan_of(cu, p, math, &panel);
    if (!by_panel) mirt__cu_multiply_tiles(cu, p, math, columns, &bm, &bn);

    /* Weights are used where they are if they lie as they should. */
    const bool packed = half || p->k != k || p->down.back || w->column != 1 || w->row % 4 != 0 || p->n % 4 != 0 ||
                        (taps > 1 && w->tap != w->row * k) || !mirt__cu_aligned(w->from, 16);
    w->k = k;
    w->k_pad = p->k;
    w->n = p->n;
    w->groups = p->groups;
    w->n_pad = mirt__cu_round_up(p->n, vector);
    w->rows = (int64_t)taps * p->k;
    w->down = p->down;
    w->across = p->across;
    w->tiles_k = mirt__cu_ceil(p->k, 32);
    w->tiles_n = mirt__cu_ceil(w->n_pad, 32);
    w->dtype = dtype;
    w->factors = job->factors;
    if (packed) r.b = mirt__cu_mm_rooms_take(&r, w->groups * w->rows * w->n_pad * size);
    if (p->splits > 1) r.partial = mirt__cu_mm_rooms_take(&r, p->splits * p->pixels * p->e.columns * 4);
    const int64_t chunks = p->splits > 1 ? mirt__cu_ceil(p->pixels, MIRT__CU_MM_SLAB)
                                         : (int64_t)p->blocks_m * p->down.phases * p->across.phases;
    r.chunks = mirt__cu_mm_rooms_take(&r, (int64_t)mirt__cu_sums_bytes(p->e.sums, p->e.columns, chunks));
    char *room = r.end > 0 ? (char *)mirt__cu_room(cu, (size_t)r.end) : NULL;
    if (r.end > 0 && !room) return;

    if (spread) {
        mirt__cu_mm_spread_run(cu, s, room + r.x);
        p->x.data = room + r.x;
    }
    if (packed && w->tiles_k > 0) {
        w->to = room + r.b;
        const mirt__cu_mm_pack pack = *w;
        const dim3 block(32, 8);
        MIRT_LAUNCH(cu, mirt__cu_mm_pack_kernel, (unsigned)(pack.tiles_n * pack.tiles_k * taps * pack.groups), block, 0,
                    pack);
    }
    p->b = packed ? w->to : w->from;
    p->b_row = packed ? w->n_pad : w->row;
    p->b_group = packed ? w->rows * w->n_pad : w->group;
    if (p->splits > 1) p->partial = (float *)(room + r.partial);
    p->chunks = mirt__cu_chunks_of(room ? room + r.chunks : NULL, p->e.sums, p->e.columns, chunks);

    if (by_panel) mirt__cu_panel_launch(cu, *p, math, panel, true);
    else mirt__cu_multiply_launch(cu, *p, math, bm, bn, columns, true);
    if (p->splits > 1) {
        mirt__cu_multiply together = *p;
        together.n = (int)p->e.columns;
        together.groups = 1;
        together.blocks_n = (int)mirt__cu_ceil(p->e.columns, 128);
        MIRT_LAUNCH(cu, mirt__cu_multiply_splits_kernel, (unsigned)(chunks * together.blocks_n), 256, 0, together);
    }
    mirt__cu_sums_finish(cu, &p->e, &p->chunks, job->sum, p->images, p->pixels);
}

/* ---- The table's functions. */

/* y = x by the kernel or, back, by its transpose. */
static void mirt__cu_conv_by(mirt__cu *cu, const mirt__conv *s, bool back, mirt_dtype factors, const mirt__reader *x,
                             const mirt__real *kernel, void *y, mirt_dtype dtype, const mirt__epilogue *epilogue) {
    const int64_t ci = s->ci / s->groups, co = s->co / s->groups, columns = back ? s->ci : s->co;
    mirt__cu_mm_job job;
    mirt__cu_multiply *p = &job.p;
    memset(&job, 0, sizeof job);
    p->e = mirt__cu_epilogue_of(epilogue, y, dtype, columns);
    if (s->rows < 1 || (back ? s->h : s->oh) < 1 || (back ? s->w : s->ow) < 1 || columns < 1) {
        const mirt__cu_chunks none = mirt__cu_chunks_of(NULL, p->e.sums, columns, 0);
        mirt__cu_sums_finish(cu, &p->e, &none, epilogue->sum, 0, 0);
        return;
    }
    p->down = mirt__cu_mm_axis_of(back, s->h, s->oh, s->kh, s->stride_h, s->dilation_h, s->pad_top);
    p->across = mirt__cu_mm_axis_of(back, s->w, s->ow, s->kw, s->stride_w, s->dilation_w, s->pad_left);
    p->images = s->rows;
    p->pixels = s->rows * p->down.target * p->across.target;
    p->pixelwise = mirt__cu_pixelwise(s) && s->groups == 1;
    p->groups = s->groups;
    p->c = (int)(back ? s->co : s->ci);
    p->k = (int)(back ? co : ci);
    p->n = (int)(back ? ci : co);
    p->x = mirt__cu_reader_of(x, p->c);
    job.pack.from = kernel;
    job.pack.tap = ci * s->co;
    job.pack.row = back ? 1 : s->co;
    job.pack.column = back ? s->co : 1;
    job.pack.group = co;
    job.sum = epilogue->sum;
    job.factors = factors;
    /* What is small first: cuBLAS, too, would take tiles for it. */
    if (mirt__cu_multiply_small(cu, &job) ||
        mirt__cu_blas_conv(cu, s, back, factors, x, kernel, y, dtype, epilogue))
        return;
    mirt__cu_multiply_run(cu, &job);
}

static void mirt__cu_conv_forward(const mirt__conv_forward *f, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (mirt__cu_depthwise_forward(f, cu)) return;
    mirt__cu_conv_by(cu, &f->s, false, mirt__cu_factors(f->half, where), &f->x, f->kernel, f->y, f->y_dtype,
                     &f->epilogue);
}

static void mirt__cu_conv_input_grad(const mirt__conv_input_grad *g, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (mirt__cu_depthwise_input_grad(g, cu)) return;
    if (g->x) { /* first, as dx may lie where x or dy does */
        mirt__conv_weight_grad w;
        memset(&w, 0, sizeof w);
        w.s = g->s;
        w.x = *g->x;
        w.dy = g->dy;
        w.dkernel = g->dkernel;
        w.db = g->db;
        w.half = g->half;
        mirt__cu_conv_weight_grad(&w, where);
    }
    mirt__cu_conv_by(cu, &g->s, true, mirt__cu_factors(g->half, where), &g->dy, g->kernel, g->dx, g->dx_dtype,
                     &g->epilogue);
}

/* The sums over p of b[p, j], 32 columns per block, in double. */
static __global__ void __launch_bounds__(512)
    mirt__cu_column_sum_kernel(const float *b, int64_t k, int64_t n, int64_t row, int64_t column, float *out) {
    MIRT_SHARED(double, part, 16 * 32);
    const int x = (int)threadIdx.x, lane = (int)threadIdx.y;
    const int64_t j = (int64_t)blockIdx.x * 32 + x;
    double sum = 0;
    if (j < n) {
#pragma unroll 4
        for (int64_t i = lane; i < k; i += 16) sum += (double)b[i * row + j * column];
    }
    part[lane * 32 + x] = sum;
    __syncthreads();
    if (lane > 0 || j >= n) return;
    for (int i = 1; i < 16; i++) sum += part[i * 32 + x];
    out[j] = (float)sum;
}

static void mirt__cu_gemm(const mirt__gemm *g, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_mm_job job;
    mirt__cu_multiply *p = &job.p;
    if (g->n < 1 || mirt__cu_blas_gemm(g, cu)) return;
    if (g->column_sum) {
        MIRT_LAUNCH(cu, mirt__cu_column_sum_kernel, (unsigned)mirt__cu_ceil(g->n, 32), dim3(32, 16), 0, g->b, g->k,
                    g->n, g->b_row, g->b_col, g->column_sum);
    }
    if (g->m < 1) return;
    memset(&job, 0, sizeof job);
    p->down = p->across = mirt__cu_mm_axis_of(false, 1, 1, 1, 1, 1, 0);
    p->images = p->pixels = g->m;
    p->pixelwise = true;
    p->groups = 1;
    p->c = (int)g->a_row;
    p->k = (int)g->k;
    p->n = (int)g->n;
    if (g->a_col != 1) job.turned = g->a_col;
    p->x = mirt__cu_reader_of(&g->a, g->a_col == 1 ? g->a_row : g->a_col);
    p->e = mirt__cu_epilogue_of(&g->epilogue, g->c, MIRT_FLOAT32, g->n);
    job.sum = g->epilogue.sum;
    job.pack.from = g->b;
    job.pack.row = g->b_row;
    job.pack.column = g->b_col;
    if (!mirt__cu_multiply_small(cu, &job)) mirt__cu_multiply_run(cu, &job);
}
