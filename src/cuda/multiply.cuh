#ifndef MIRT__CUDA_MULTIPLY_CUH
#define MIRT__CUDA_MULTIPLY_CUH
/* Matrix products whose left side is read from images: convolutions, input gradients, dense layers. A block computes a
   tile of the output, pixels by channels, and goes over k = (tap, channel) in ascending order. */

#include "epilogue.cuh"
#include "ptx.cuh"

/* An axis of target and source: target t reads source t * stride - pad + tap * dilation; `back`: the source that reads
   t so. Then targets fall into phases, by t % stride, each of which has its own taps: every tap_step-th. */
typedef struct mirt__cu_mm_axis {
    int source, target, kernel, stride, dilation, pad, phases, tap_step;
    bool back;
} mirt__cu_mm_axis;
/* A phase: targets first + i * step, i < count, read sources i * move + off + tap * tap_off, tap < taps. */
typedef struct mirt__cu_mm_line {
    int first, step, count, move, off, tap_off, taps;
} mirt__cu_mm_line;
static inline __host__ __device__ mirt__cu_mm_line mirt__cu_mm_line_of(const mirt__cu_mm_axis &a, int phase) {
    mirt__cu_mm_line l;
    if (!a.back) {
        l.first = 0;
        l.step = 1;
        l.count = a.target;
        l.move = a.stride;
        l.off = -a.pad;
        l.tap_off = a.dilation;
        l.taps = a.kernel;
        return l;
    }
    int tap = 0;
    while (tap < a.tap_step && (phase + a.pad - tap * a.dilation) % a.stride != 0) tap++;
    const bool none = tap == a.tap_step || tap >= a.kernel;
    l.first = phase;
    l.step = a.stride;
    l.count = (a.target - phase + a.stride - 1) / a.stride;
    l.move = 1;
    l.off = none ? 0 : (phase + a.pad - tap * a.dilation) / a.stride;
    l.tap_off = -(a.tap_step * a.dilation / a.stride);
    l.taps = none ? 0 : (a.kernel - tap + a.tap_step - 1) / a.tap_step;
    return l;
}

/* x is float32 or, for products of 16 bits, of those; it is read by 16 bytes, so k is a multiple of 4 or 8, and
   addresses are of 16. */
typedef struct mirt__cu_multiply {
    mirt__cu_reader x;    /* activations: mirt__cu_simple; gates are of whole images */
    mirt__cu_mm_axis down, across;
    int64_t images;
    int groups, c, k, n;  /* of a pixel of the source; of a group: channels of the source, of the target */
    const void *b; /* of each group, phase and k in turn b_row numbers, floats or of 16 bits, aligned to 16 bytes */
    int64_t b_row, b_group;
    mirt__cu_epilogue e;
    mirt__cu_chunks chunks;
    int64_t pixels;
    int blocks_m, blocks_n, splits, split_steps; /* of k, each of which leaves its sums in `partial` */
    float *partial;
} mirt__cu_multiply;

#ifndef MIRT__CU_MM_BLOCKS
#define MIRT__CU_MM_BLOCKS 128 /* so many keep a machine busy; tests say another number */
#endif
#define MIRT__CU_MM_SLAB 64 /* rows of a tile that are finished at a time, where shared memory may be short */

template <int BM, int BN, int MATH> struct mirt__cu_mm_tile {
    static const bool half = MATH >= MIRT__CU_BY_HALF;
    typedef typename mirt__cu_half_of<MATH == MIRT__CU_BY_FLOAT16>::type H;
    static const int k = half ? 32 : 16; /* of a step */
    static const int warp_n = 32, warp_m = half && BM == 64 ? 32 : 64;
    static const int threads = BM / warp_m * (BN / warp_n) * 32;
    static const int resident = !half ? 1 : BN == 64 ? 3 : 2; /* blocks of a processor, at least */
    static const int stages = half ? 4 : 2;
    static const int vector = half ? 8 : 4;
    static const int a_row = BM + (MATH == MIRT__CU_BY_TF32 ? 8 : 4),
                     b_row = BN + (MATH == MIRT__CU_BY_TF32 ? 8 : 0); /* of floats [k][row] */
    static const int a_bytes = half ? BM * k * 2 : a_row * k * 4, b_bytes = half ? BN * k * 2 : b_row * k * 4;
    static const int slab_rows = half ? BM : MIRT__CU_MM_SLAB, slab_row = BN + 4, slab = slab_rows * slab_row * 4;
    static const int info = BM * 32; /* mirt__cu_mm_row, out, image */
};
/* Bytes of shared memory for the stages; of 16 bits z has its place in them, too. */
static inline __host__ __device__ int mirt__cu_mm_work_bytes(int stages, int a_bytes, int b_bytes, int slab, bool z) {
    const int bytes = stages * (a_bytes + b_bytes + (z ? a_bytes : 0));
    return bytes > slab ? bytes : slab;
}

struct mirt__cu_mm_row { /* a pixel of the target: what its first tap reads, and where that begins */
    int64_t at;
    int y, x;
};
/* In shared memory, as one access. */
static inline __device__ mirt__cu_mm_row mirt__cu_mm_row_get(const mirt__cu_mm_row *from) {
    mirt__cu_mm_row row;
    const mirt__cu_bytes<16> raw = mirt__cu_load_bytes<16>(from);
    memcpy(&row, raw.word, sizeof row);
    return row;
}
static inline __device__ void mirt__cu_mm_row_put(mirt__cu_mm_row *to, const mirt__cu_mm_row &row) {
    mirt__cu_bytes<16> raw;
    memcpy(raw.word, &row, sizeof row);
    mirt__cu_store_bytes<16>(to, raw);
}
/* Where a thread is in k. */
struct mirt__cu_mm_walk {
    int c, y, x;
};
static inline __device__ void mirt__cu_mm_walk_on(mirt__cu_mm_walk &w, int by, int k, int taps_x) {
    w.c += by;
    while (w.c >= k) {
        w.c -= k;
        if (++w.x == taps_x) {
            w.x = 0;
            w.y++;
        }
    }
}

/* Taps of the phases before one, whose own taps down are `taps`. */
static inline __device__ int64_t mirt__cu_mm_taps_before(const mirt__cu_mm_axis &y, const mirt__cu_mm_axis &x, int down,
                                                         int across, int taps) {
    int64_t above = 0, all_across = 0, left = 0;
    for (int i = 0; i < x.phases; i++) {
        const int here = mirt__cu_mm_line_of(x, i).taps;
        all_across += here;
        left += i < across ? here : 0;
    }
    for (int i = 0; i < down; i++) above += mirt__cu_mm_line_of(y, i).taps;
    return above * all_across + taps * left;
}

/* What a block is for. */
struct mirt__cu_mm_block {
    mirt__cu_mm_line down, across;
    int group, column, steps, first_step, depth, phase; /* depth: of k */
    int64_t row, rows, part, b_at; /* part: of rows, of all phases */
};
template <int BM, int BN, int K>
static inline __device__ mirt__cu_mm_block mirt__cu_mm_block_of(const mirt__cu_multiply &p) {
    mirt__cu_mm_block b;
    unsigned at = blockIdx.x;
    b.column = (int)(at % (unsigned)p.blocks_n) * BN;
    at /= (unsigned)p.blocks_n;
    b.row = (int64_t)(at % (unsigned)p.blocks_m) * BM;
    at /= (unsigned)p.blocks_m;
    b.group = (int)(at % (unsigned)p.groups);
    b.phase = (int)(at / (unsigned)p.groups);
    const int down = b.phase / p.across.phases, across = b.phase - down * p.across.phases;
    b.down = mirt__cu_mm_line_of(p.down, down);
    b.across = mirt__cu_mm_line_of(p.across, across);
    b.rows = p.images * b.down.count * b.across.count;
    b.part = (int64_t)b.phase * p.blocks_m + b.row / BM;
    b.depth = b.row < b.rows ? b.down.taps * b.across.taps * p.k : 0;
    const int64_t before = p.down.back ? mirt__cu_mm_taps_before(p.down, p.across, down, across, b.down.taps) : 0;
    b.b_at = b.group * p.b_group + before * p.k * p.b_row;
    b.steps = (b.depth + K - 1) / K;
    b.first_step = 0;
    if (p.splits > 1) {
        b.first_step = (int)blockIdx.y * p.split_steps;
        b.steps = b.steps < b.first_step + p.split_steps ? b.steps : b.first_step + p.split_steps;
    }
    return b;
}

/* Most numbers are short, and so are their divisions. */
static inline __device__ int64_t mirt__cu_mm_divide(int64_t n, int by) {
    return (uint64_t)n >> 32 ? n / by : (int64_t)((uint32_t)n / (uint32_t)by);
}

/* Rows of a tile: what they read, where they are stored (out; -1: nowhere), which image they are of. */
template <int BM, int THREADS>
static inline __device__ void mirt__cu_mm_rows_put(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                   mirt__cu_mm_row *rows, int64_t *out, int *image) {
    for (int i = (int)threadIdx.x; i < BM; i += THREADS) {
        const int64_t m = b.row + i;
        mirt__cu_mm_row r;
        r.at = 0;
        r.y = r.x = -(1 << 29);
        int64_t to = -1, of = 0;
        if (m < b.rows) {
            const int64_t lines = mirt__cu_mm_divide(m, b.across.count), x = m - lines * b.across.count;
            of = mirt__cu_mm_divide(lines, b.down.count);
            const int64_t y = lines - of * b.down.count;
            r.y = (int)y * b.down.move + b.down.off;
            r.x = (int)x * b.across.move + b.across.off;
            r.at = ((of * p.down.source + r.y) * p.across.source + r.x) * p.c + (int64_t)b.group * p.k;
            to = (of * p.down.target + b.down.first + y * b.down.step) * p.across.target + b.across.first +
                 x * b.across.step;
        }
        mirt__cu_mm_row_put(rows + i, r);
        out[i] = to;
        image[i] = (int)of;
    }
}

/* Whether a row reads something by a tap. */
static inline __device__ bool mirt__cu_mm_row_reads(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                    const mirt__cu_mm_row &r, const mirt__cu_mm_walk &w) {
    const int y = r.y + w.y * b.down.tap_off, x = r.x + w.x * b.across.tap_off;
    return (unsigned)y < (unsigned)p.down.source && (unsigned)x < (unsigned)p.across.source && w.y < b.down.taps;
}
/* How far from what the first tap reads a tap reads, in all rows. */
static inline __device__ int64_t mirt__cu_mm_tap_at(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                    const mirt__cu_mm_walk &w) {
    return ((int64_t)(w.y * b.down.tap_off) * p.across.source + w.x * b.across.tap_off) * p.c;
}

/* The place of a row of x among the floats of a k. Four lanes store numbers whose k are 4 apart, and 4 pitches of tf32
   are a multiple of all banks: so rows are moved by 8 from one such k to the next. */
template <int MATH> static inline __host__ __device__ int mirt__cu_mm_float_a(int k, int row) {
    return MATH == MIRT__CU_BY_TF32 ? row ^ (k >> 2 & 3) * 8 : row;
}
/* Numbers of 16 bits in shared memory: rows of 64 bytes for x, of BN * 2 for b, whose pieces of 16 bytes lie so that
   eight rows' pieces of the same number lie in different banks. */
static inline __device__ int mirt__cu_mm_half_a(int row, int piece) { return row * 64 + (piece ^ (row >> 1 & 3)) * 16; }
template <int BN>
static inline __device__ int mirt__cu_mm_half_b(int k, int piece) {
    return k * BN * 2 + (piece ^ (k & 7)) * 16;
}

/* One step of k: sums += tile of x times tile of b. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_sums_of {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int mt = tile::warp_m / 16, nt = tile::warp_n / 8;
    float d[MATH == MIRT__CU_BY_FMA ? 16 : mt * nt][4]; /* by FMA: 8 rows of 8, in halves */

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < (MATH == MIRT__CU_BY_FMA ? 16 : mt * nt); i++) d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
    }
    __device__ void add(const char *a_tile, const char *b_tile) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        const int row = warp / (BN / tile::warp_n) * tile::warp_m, column = warp % (BN / tile::warp_n) * tile::warp_n;
        if constexpr (tile::half) {
            /* Rows 8 apart have their pieces at the same places, which the bits of the others do not touch. */
            const int a_at = mirt__cu_mm_half_a(row + lane % 16, lane / 16),
                      b_at = mirt__cu_mm_half_b<BN>(lane % 16, column / 8 + lane / 16);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                uint32_t b[nt / 2][4];
#pragma unroll
                for (int j = 0; j < nt / 2; j++)
                    mirt__cu_ldmatrix_x4_trans(b[j], b_tile + (b_at ^ j * 32) + k * 16 * BN * 2);
#pragma unroll
                for (int i = 0; i < mt; i++) {
                    uint32_t a[4];
                    mirt__cu_ldmatrix_x4(a, a_tile + (a_at ^ k * 32) + i * 16 * 64);
#pragma unroll
                    for (int j = 0; j < nt; j++)
                        mirt__cu_mma_half<MATH == MIRT__CU_BY_FLOAT16>(d[i * nt + j], a, b[j / 2] + j % 2 * 2);
                }
            }
        } else if constexpr (MATH == MIRT__CU_BY_TF32) {
            const uint32_t *as = reinterpret_cast<const uint32_t *>(a_tile) + row + lane / 4,
                           *bs = reinterpret_cast<const uint32_t *>(b_tile) + column + lane / 4;
#pragma unroll
            for (int k = 0; k < tile::k; k += 8) {
                uint32_t a[mt][4], b[nt][2];
                const int at = k + lane % 4;
#pragma unroll
                for (int i = 0; i < mt; i++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) /* `row` and lane / 4 have none of the bits that move */
                        a[i][e] = as[(at + e / 2 * 4) * tile::a_row +
                                     mirt__cu_mm_float_a<MATH>(k + e / 2 * 4, i * 16 + e % 2 * 8)];
                }
#pragma unroll
                for (int j = 0; j < nt; j++) {
                    b[j][0] = bs[at * tile::b_row + j * 8];
                    b[j][1] = bs[(at + 4) * tile::b_row + j * 8];
                }
#pragma unroll
                for (int i = 0; i < mt; i++) {
#pragma unroll
                    for (int j = 0; j < nt; j++) mirt__cu_mma_tf32(d[i * nt + j], a[i], b[j]);
                }
            }
        } else {
            const int x = (int)threadIdx.x % (BN / 8), y = (int)threadIdx.x / (BN / 8);
            const float *as = reinterpret_cast<const float *>(a_tile) + y * 4,
                        *bs = reinterpret_cast<const float *>(b_tile) + x * 4;
#pragma unroll
            for (int k = 0; k < tile::k; k++) {
                float a[8], b[8];
                mirt__cu_load_n<4>(as + k * tile::a_row, a);
                mirt__cu_load_n<4>(as + k * tile::a_row + BM / 2, a + 4);
                mirt__cu_load_n<4>(bs + k * tile::b_row, b);
                mirt__cu_load_n<4>(bs + k * tile::b_row + BN / 2, b + 4);
#pragma unroll
                for (int i = 0; i < 8; i++) {
#pragma unroll
                    for (int j = 0; j < 8; j++) d[i * 2 + j / 4][j % 4] = fmaf(a[i], b[j], d[i * 2 + j / 4][j % 4]);
                }
            }
        }
    }
    /* Rows of a slab into shared memory. */
    __device__ void put(float *to, int slab) const {
        if constexpr (MATH == MIRT__CU_BY_FMA) {
            const int x = (int)threadIdx.x % (BN / 8), y = (int)threadIdx.x / (BN / 8);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const int row = i / 4 * (BM / 2) + y * 4 + i % 4 - slab * tile::slab_rows;
                if (row < 0 || row >= tile::slab_rows) continue;
                mirt__cu_store_n<4>(to + row * tile::slab_row + x * 4, d[i * 2]);
                mirt__cu_store_n<4>(to + row * tile::slab_row + BN / 2 + x * 4, d[i * 2 + 1]);
            }
        } else {
            const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
            const int row = warp / (BN / tile::warp_n) * tile::warp_m - slab * tile::slab_rows,
                      column = warp % (BN / tile::warp_n) * tile::warp_n;
            if (row < 0 || row >= tile::slab_rows) return;
#pragma unroll
            for (int i = 0; i < mt; i++) {
#pragma unroll
                for (int j = 0; j < nt; j++) {
                    float *at = to + (row + i * 16 + lane / 4) * tile::slab_row + column + j * 8 + lane % 4 * 2;
                    mirt__cu_store_n<2>(at, d[i * nt + j]);
                    mirt__cu_store_n<2>(at + 8 * tile::slab_row, d[i * nt + j] + 2);
                }
            }
        }
    }
};

/* Columns of a thread in slabs, four side by side. */
template <int BN, int THREADS> struct mirt__cu_mm_finisher {
    static const int across = BN / 4, lanes = THREADS / across;
    mirt__cu_finish_columns<4> columns;
    mirt__cu_sums<4> sums;
    int x, lane, n;
    int64_t column;

    __device__ void begin(const mirt__cu_multiply &p, int group, int first) {
        x = (int)threadIdx.x % across;
        lane = (int)threadIdx.x / across;
        n = p.n - first - 4 * x;
        n = n < 0 ? 0 : n > 4 ? 4 : n;
        column = (int64_t)group * p.n + first + 4 * x;
        mirt__cu_finish_columns_of<4>(p.e, column, n, columns);
        mirt__cu_sums_begin(sums);
    }
    /* The n columns of ROWS pixels at `at` in y, of which `value` has the sums: first all that is read is asked for.
       Those that are not `there` come last. SIMPLE: as of mirt__cu_finish_with. */
    template <int ROWS, bool SIMPLE, class AT>
    __device__ void finish(const mirt__cu_epilogue &e, const AT *at, const bool *there, int n, float (*value)[4]) {
        mirt__cu_finish_raw<4> raw[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (there[i]) mirt__cu_finish_fetch<4>(e, at[i], n, raw[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float z[4] = {0, 0, 0, 0};
            if (!there[i]) continue;
            mirt__cu_finish_with<4, SIMPLE>(e, columns, raw[i], n, value[i], z);
            mirt__cu_sums_add<4>(e, columns, sums, value[i], z, i > 0);
            mirt__cu_finish_store<4>(e, at[i], n, value[i]);
        }
    }
    __device__ void slab(const mirt__cu_multiply &p, const float *from, const int64_t *out, int rows) {
        const int batch = THREADS > 128 ? 2 : 4; /* more would not fit in their registers */
        if (n == 0) return;
#pragma unroll 1
        for (int r = lane; r < rows; r += lanes * batch) {
            float value[batch][4];
            int64_t pixel[batch];
#pragma unroll
            for (int i = 0; i < batch; i++) {
                pixel[i] = out[r + i * lanes];
                mirt__cu_load_n<4>(from + (r + i * lanes) * (BN + 4) + 4 * x, value[i]);
            }
            if (p.splits == 1) {
                int64_t at[batch];
                bool there[batch];
#pragma unroll
                for (int i = 0; i < batch; i++) {
                    at[i] = pixel[i] * p.e.columns + column;
                    there[i] = pixel[i] >= 0;
                }
                finish<batch, false>(p.e, at, there, n, value);
                continue;
            }
#pragma unroll
            for (int i = 0; i < batch; i++) {
                float *to = p.partial + ((int64_t)blockIdx.y * p.pixels + pixel[i]) * p.e.columns + column;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    if (pixel[i] >= 0 && j < n) to[j] = value[i][j];
                }
            }
        }
    }
    __device__ void end(const mirt__cu_multiply &p, int group, int first, int64_t part, float *shared) {
        const int exist = p.n - first < BN ? p.n - first : BN;
        mirt__cu_sums_leave<4>(p.e, p.chunks, sums, x, lane, lanes, BN, exist, part, (int64_t)group * p.n + first,
                               group == 0 && first == 0, shared);
    }
};
template <int BM, int BN, int MATH>
static inline __device__ void mirt__cu_multiply_end(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                    const mirt__cu_mm_sums_of<BM, BN, MATH> &sums, float *slab,
                                                    const int64_t *out) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    mirt__cu_mm_finisher<BN, tile::threads> finisher;
    __syncthreads();
    sums.put(slab, 0);
    __syncthreads();
    finisher.begin(p, b.group, b.column);
    finisher.slab(p, slab, out, tile::slab_rows);
    if constexpr (tile::slab_rows < BM) {
        __syncthreads();
        sums.put(slab, 1);
        __syncthreads();
        finisher.slab(p, slab, out + tile::slab_rows, tile::slab_rows);
    }
    if (p.splits == 1) finisher.end(p, b.group, b.column, b.part, slab);
}

/* What a reader makes of N numbers. */
template <int N>
static inline __device__ void mirt__cu_mm_quick(const mirt__cu_reader &r, const mirt__cu_columns<N> &c, float *x,
                                                float *z, const float *gate) {
    const mirt_activation_kind kind = r.norm.activation;
    const float most = kind == MIRT_RELU6 ? 6.0f : INFINITY;
    if (r.kind & MIRT__CU_READ_BACK) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            z[i] = __fsub_rn(z[i], c.mean[i]);
            const float u = __fadd_rn(__fmul_rn(z[i], c.factor[i]), c.offset[i]);
            if (kind == MIRT_SILU) {
                const float s = __fdividef(1.0f, 1.0f + expf(-u));
                x[i] *= s * fmaf(u, 1.0f - s, 1.0f);
            } else if (kind != MIRT_LINEAR) {
                x[i] = u > 0 && u < most ? x[i] : 0.0f;
            }
            x[i] = __fmul_rn(__fsub_rn(__fsub_rn(x[i], c.less[i]), __fmul_rn(z[i], c.part[i])), c.factor[i]);
        }
    } else if (r.kind & MIRT__CU_READ_NORM) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = mirt__cu_normed(x[i], c.mean[i], c.factor[i], c.offset[i]);
            if (kind == MIRT_SILU) {
                x[i] = x[i] < -88.0f ? -88.0f : x[i];
                x[i] = __fdividef(x[i], 1.0f + expf(-x[i]));
            } else if (kind != MIRT_LINEAR) {
                x[i] = x[i] < 0 ? 0.0f : x[i] > most ? most : x[i];
            }
        }
    } else if (r.affine) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = fmaf(x[i], r.scale, r.offset);
    }
    if (r.kind & MIRT__CU_READ_GATE) {
        float by[N];
        mirt__cu_load_n<N>(gate, by);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __fmul_rn(x[i], by[i]);
    }
}
/* A thread's share of a step's x, of floats, on its way through registers. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_left {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int pieces = tile::k / 4, step = tile::threads / pieces, count = BM / step;
    mirt__cu_mm_walk at;
    int piece, row, c;
    unsigned live;
    int64_t from[count];
    mirt__cu_bytes<16> x[count], z[count];

    __device__ void look(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const mirt__cu_mm_row r = mirt__cu_mm_row_get(info + row + i * step);
            from[i] = mirt__cu_mm_row_reads(p, b, r, at) ? r.at + mirt__cu_mm_tap_at(p, b, at) : -1;
        }
    }
    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
        piece = (int)threadIdx.x % pieces;
        row = (int)threadIdx.x / pieces;
        at.c = at.y = at.x = 0;
        mirt__cu_mm_walk_on(at, b.first_step * tile::k + piece * 4, p.k, b.across.taps);
        look(p, b, info);
    }
    /* Asks for what the next step reads. */
    __device__ void fetch(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
        const mirt__cu_mm_walk was = at;
        c = at.c;
        live = 0;
#pragma unroll
        for (int i = 0; i < count; i++) {
            if (from[i] < 0) continue;
            live |= 1u << i;
            x[i] = mirt__cu_load_bytes<16>(static_cast<const float *>(p.x.data) + from[i] + c);
            if (p.x.kind & MIRT__CU_READ_BACK)
                z[i] = mirt__cu_load_bytes<16>(static_cast<const float *>(p.x.z) + from[i] + c);
        }
        mirt__cu_mm_walk_on(at, tile::k, p.k, b.across.taps);
        if (at.y != was.y || at.x != was.x) look(p, b, info);
    }
    /* What it asked for, as it is read, into the tile. */
    __device__ void store(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const int *image, const float *shared,
                          char *to) {
        mirt__cu_columns<4> columns;
        if (live) mirt__cu_columns_get<MIRT__CU_READ_ANY, 4>(p.x, shared, p.k, c, columns);
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int line = row + i * step, at_line = mirt__cu_mm_float_a<MATH>(piece * 4, line);
            float value[4] = {0, 0, 0, 0}, other[4] = {0, 0, 0, 0};
            if (live >> i & 1) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    value[e] = __uint_as_float(x[i].word[e]);
                    other[e] = __uint_as_float(z[i].word[e]);
                }
                mirt__cu_mm_quick<4>(p.x, columns, value, other,
                                     p.x.gate + image[line] * p.x.channels + (int64_t)b.group * p.k + c);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t *place = reinterpret_cast<uint32_t *>(to) + (piece * 4 + e) * tile::a_row + at_line;
                *place = MATH == MIRT__CU_BY_TF32 ? mirt__cu_to_tf32(value[e]) : __float_as_uint(value[e]);
            }
        }
    }
};
/* And of b. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_right {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int pieces = BN / 4, step = tile::threads / pieces, count = tile::k / step;
    mirt__cu_bytes<16> word[count];
    int piece, row;
    const float *from;
    bool inside;

    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b) {
        piece = (int)threadIdx.x % pieces;
        row = (int)threadIdx.x / pieces;
        inside = b.column + piece * 4 < p.n;
        from = static_cast<const float *>(p.b) + b.b_at + b.column + piece * 4;
    }
    __device__ void fetch(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, int s) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int k = s * tile::k + row + i * step;
            if (inside && k < b.depth) word[i] = mirt__cu_load_bytes<16>(from + k * p.b_row);
            else word[i].word[0] = word[i].word[1] = word[i].word[2] = word[i].word[3] = 0;
        }
    }
    __device__ void store(char *to) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            if (MATH == MIRT__CU_BY_TF32) {
#pragma unroll
                for (int e = 0; e < 4; e++) word[i].word[e] = mirt__cu_to_tf32(__uint_as_float(word[i].word[e]));
            }
            mirt__cu_store_bytes<16>(to + ((row + i * step) * tile::b_row + piece * 4) * 4, word[i]);
        }
    }
};
template <int BM, int BN, int MATH>
static inline __device__ void mirt__cu_mm_through_registers(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                            const mirt__cu_mm_row *rows, const int *image,
                                                            const float *columns, char *work,
                                                            mirt__cu_mm_sums_of<BM, BN, MATH> &sums) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    const int bytes = tile::a_bytes + tile::b_bytes;
    mirt__cu_mm_left<BM, BN, MATH> left;
    mirt__cu_mm_right<BM, BN, MATH> right;
    if (b.first_step >= b.steps) return;
    left.begin(p, b, rows);
    right.begin(p, b);
    left.fetch(p, b, rows);
    right.fetch(p, b, b.first_step);
    left.store(p, b, image, columns, work);
    right.store(work + tile::a_bytes);
    __syncthreads();
    for (int s = b.first_step; s < b.steps; s++) {
        char *now = work + (s - b.first_step) % 2 * bytes, *next = work + (s + 1 - b.first_step) % 2 * bytes;
        const bool more = s + 1 < b.steps;
        if (more) {
            left.fetch(p, b, rows);
            right.fetch(p, b, s + 1);
        }
        sums.add(now, now + tile::a_bytes);
        if (more) {
            left.store(p, b, image, columns, next);
            right.store(next + tile::a_bytes);
        }
        __syncthreads();
    }
}

/* A thread's share of copies of 16 bits to shared memory, of which each stage has a step of k. BARE: x is multiplied as
   it is stored; otherwise each thread makes what it copied there what its reader reads. */
template <int BM, int BN, int MATH, bool BARE> struct mirt__cu_mm_copies {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    typedef typename tile::H H;
    static const int step = tile::threads / 4, count = BM / step, b_step = tile::threads / (BN / 8),
                     b_count = tile::k / b_step, ahead = tile::stages - 1;
    mirt__cu_mm_walk at;
    int piece, row, a_at, b_at, b_left; /* b_left: rows of b from the thread's first one on */
    const H *x[count], *right[b_count]; /* of which nothing is read where there is nothing */
    bool there[count], back;
    /* For transforms: `there` of all stages, as bits, the newest in the lowest; the oldest stage's channel. */
    unsigned live;
    int c;

    /* What the thread reads by another tap. */
    __device__ void look(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *rows) {
        const int64_t off = mirt__cu_mm_tap_at(p, b, at) + at.c;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const mirt__cu_mm_row r = mirt__cu_mm_row_get(rows + row + i * step);
            x[i] = static_cast<const H *>(p.x.data) + (r.at + off);
            there[i] = mirt__cu_mm_row_reads(p, b, r, at);
        }
    }
    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *rows) {
        const int first = b.first_step * tile::k, b_piece = (int)threadIdx.x % (BN / 8),
                  b_row = (int)threadIdx.x / (BN / 8);
        piece = (int)threadIdx.x % 4;
        row = (int)threadIdx.x / 4;
        a_at = mirt__cu_mm_half_a(row, piece); /* those of rows 8 apart lie alike */
        b_at = mirt__cu_mm_half_b<BN>(b_row, b_piece);
        b_left = b.column + b_piece * 8 < p.b_row ? b.depth - first - b_row : 0;
#pragma unroll
        for (int i = 0; i < b_count; i++)
            right[i] = static_cast<const H *>(p.b) + b.b_at + b.column + b_piece * 8 +
                       (int64_t)(first + b_row + i * b_step) * p.b_row;
        at.c = at.y = at.x = 0;
        mirt__cu_mm_walk_on(at, first + piece * 8, p.k, b.across.taps);
        c = at.c;
        live = 0;
        back = !BARE && (p.x.kind & MIRT__CU_READ_BACK) != 0;
        look(p, b, rows);
    }
    /* Asks for the next step. */
    __device__ void ask(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *rows, char *to) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            char *place = to + a_at + i * step * 64;
            mirt__cu_cp_async16(place, x[i], there[i]);
            if (back)
                mirt__cu_cp_async16(place + tile::a_bytes + tile::b_bytes,
                                    static_cast<const H *>(p.x.z) + (x[i] - static_cast<const H *>(p.x.data)),
                                    there[i]);
            x[i] += tile::k;
            live |= (there[i] ? 1u : 0u) << i;
        }
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            mirt__cu_cp_async16(to + tile::a_bytes + b_at + i * b_step * BN * 2, right[i], i * b_step < b_left);
            right[i] += tile::k * p.b_row;
        }
        b_left -= tile::k;
        at.c += tile::k;
        if (at.c < p.k) return;
        mirt__cu_mm_walk_on(at, 0, p.k, b.across.taps);
        look(p, b, rows);
    }
    /* What came is as its reader reads it. */
    __device__ void make(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const int *image, const float *columns,
                         char *done) {
        const unsigned mine = live >> (ahead - 1) * count;
#pragma unroll 1
        for (int part = 0; part < 8; part += 4) {
            mirt__cu_columns<4> k;
            mirt__cu_columns_get<MIRT__CU_READ_ANY, 4>(p.x, columns, p.k, c + part, k);
#pragma unroll 1
            for (int i = 0; i < count; i++) {
                if (!(mine >> i & 1)) continue;
                const int line = row + i * step, at_byte = a_at + i * step * 64 + part * 2;
                H *place = reinterpret_cast<H *>(done + at_byte);
                float value[4], other[4] = {0, 0, 0, 0};
                mirt__cu_load_n<4>(place, value);
                if (back)
                    mirt__cu_load_n<4>(reinterpret_cast<const H *>(done + tile::a_bytes + tile::b_bytes + at_byte),
                                       other);
                mirt__cu_mm_quick<4>(p.x, k, value, other,
                                     p.x.gate + image[line] * p.x.channels + (int64_t)b.group * p.k + c + part);
                mirt__cu_store_n<4>(place, value);
            }
        }
        c += tile::k;
        while (c >= p.k) c -= p.k;
    }
};
/* Stages are copied while older ones are multiplied. */
template <int BM, int BN, int MATH, bool BARE>
static inline __device__ void mirt__cu_mm_through_copies(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                         const mirt__cu_mm_row *rows, const int *image,
                                                         const float *columns, char *work,
                                                         mirt__cu_mm_sums_of<BM, BN, MATH> &sums) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    typedef mirt__cu_mm_copies<BM, BN, MATH, BARE> mine;
    mine copies;
    if (b.first_step >= b.steps) return;
    copies.begin(p, b, rows);
    const int stage = tile::a_bytes + tile::b_bytes + (copies.back ? tile::a_bytes : 0),
              end = tile::stages * stage, steps = b.steps - b.first_step;
    /* The oldest stage is the one after the newest. */
#pragma unroll 1
    for (int s = -mine::ahead, newest = 0; s < steps; s++) {
        const int oldest = newest + stage == end ? 0 : newest + stage;
        if (s >= 0) {
            mirt__cu_cp_async_wait<tile::stages - 2>();
            if constexpr (!BARE) copies.make(p, b, image, columns, work + oldest);
            __syncthreads(); /* all of this stage is there, and nobody is at the one before any more */
        }
        copies.live <<= mine::count;
        if (s + mine::ahead < steps) copies.ask(p, b, rows, work + newest);
        mirt__cu_cp_async_commit();
        if (s >= 0) sums.add(work + oldest, work + oldest + tile::a_bytes);
        newest = oldest;
    }
    mirt__cu_cp_async_wait<0>();
}

/* BARE: x is read as it is stored, in 16 bits. */
template <int BM, int BN, int MATH, bool BARE>
static __global__ void __launch_bounds__((mirt__cu_mm_tile<BM, BN, MATH>::threads),
                                         (!BARE && BN == 128 ? 1 : mirt__cu_mm_tile<BM, BN, MATH>::resident))
    mirt__cu_multiply_kernel(mirt__cu_multiply p) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    MIRT_DYNAMIC_SHARED(char, work);
    const int bytes = mirt__cu_mm_work_bytes(tile::stages, tile::a_bytes, tile::b_bytes, tile::slab,
                                             tile::half && p.x.kind & MIRT__CU_READ_BACK);
    mirt__cu_mm_row *rows = reinterpret_cast<mirt__cu_mm_row *>(work + bytes);
    int64_t *out = reinterpret_cast<int64_t *>(rows + BM);
    int *image = reinterpret_cast<int *>(out + BM);
    float *columns = reinterpret_cast<float *>(work + bytes + tile::info);
    const mirt__cu_mm_block b = mirt__cu_mm_block_of<BM, BN, tile::k>(p);
    mirt__cu_mm_rows_put<BM, tile::threads>(p, b, rows, out, image);
    mirt__cu_columns_put(p.x, (int64_t)b.group * p.k, p.k, p.k, columns, (int)threadIdx.x, tile::threads);
    __syncthreads();

    mirt__cu_mm_sums_of<BM, BN, MATH> sums;
    sums.clear();
    if constexpr (tile::half) mirt__cu_mm_through_copies<BM, BN, MATH, BARE>(p, b, rows, image, columns, work, sums);
    else mirt__cu_mm_through_registers<BM, BN, MATH>(p, b, rows, image, columns, work, sums);
    mirt__cu_multiply_end<BM, BN, MATH>(p, b, sums, reinterpret_cast<float *>(work), out);
}

/* The sums of all parts of k in ascending order, finished: MIRT__CU_MM_SLAB pixels by 128 columns per block. */
static __global__ void __launch_bounds__(256) mirt__cu_multiply_splits_kernel(mirt__cu_multiply p) {
    MIRT_SHARED(float, shared, 8 * (3 * 128 + 1));
    mirt__cu_mm_finisher<128, 256> f;
    const int column = (int)(blockIdx.x % p.blocks_n) * 128;
    const int64_t chunk = blockIdx.x / p.blocks_n, first = chunk * MIRT__CU_MM_SLAB;
    const int splits = p.splits;
    f.begin(p, 0, column);
    for (int64_t pixel = first + f.lane; pixel < first + MIRT__CU_MM_SLAB && pixel < p.pixels && f.n > 0;
         pixel += f.lanes) {
        float value[1][4] = {{0, 0, 0, 0}};
        for (int s = 0; s < splits; s++) {
            const float *from = p.partial + (s * p.pixels + pixel) * p.e.columns + f.column;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (i < f.n) value[0][i] += from[i];
            }
        }
        const int64_t at = pixel * p.e.columns + f.column;
        const bool there = true;
        f.template finish<1, false>(p.e, &at, &there, f.n, value);
    }
    f.end(p, 0, column, chunk, shared);
}

#endif
