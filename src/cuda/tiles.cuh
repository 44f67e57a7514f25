#ifndef MIRT__CUDA_TILES_CUH
#define MIRT__CUDA_TILES_CUH
/* Tiles of matrix products: what their rows read from images, and their sums. */

#include "epilogue.cuh"
#include "ptx.cuh"

/* A phase of an axis: targets first + i * step, i < count, read sources i * move + off + tap * tap_off, tap < taps. */
typedef struct mirt__cu_mm_line {
    int first, step, count, move, off, tap_off, taps;
} mirt__cu_mm_line;
/* An axis of target and source: target t reads source t * stride - pad + tap * dilation; `back`: the source that reads
   t so. Then targets fall into phases, by t % stride, each of which has its own taps: every tap_step-th. */
typedef struct mirt__cu_mm_axis {
    int source, target, kernel, stride, dilation, pad, phases, tap_step;
    bool back;
    mirt__cu_mm_line line; /* of the first phase, most often the only one, which blocks need not work out */
} mirt__cu_mm_axis;
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
    bool pixelwise;       /* pixels of the target are products of the pixels at their places in the source */
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
    static const int warp_n = 32, warp_m = half && (BM == 64 || BN == 32) ? 32 : 64;
    static const int threads = BM / warp_m * (BN / warp_n) * 32;
    static const int resident = !half ? 1 : BN == 32 ? 4 : BN == 64 ? 3 : 2; /* blocks of a processor, at least */
    static const int stages = half ? 4 : 2;
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
#define MIRT__CU_MM_TAPS 15 /* of an axis, at most, where rows have a bit for each */
struct mirt__cu_mm_bits { /* the same of what is copied as it is stored */
    int64_t at;
    unsigned reads, none; /* reads: by which taps across it reads something, and from bit 16 on by which down */
};
template <bool BARE> struct mirt__cu_mm_row_by {
    typedef mirt__cu_mm_row type;
};
template <> struct mirt__cu_mm_row_by<true> {
    typedef mirt__cu_mm_bits type;
};
/* In shared memory, as one access. */
template <class ROW> static inline __device__ ROW mirt__cu_mm_row_get(const ROW *from) {
    ROW row;
    const mirt__cu_bytes<16> raw = mirt__cu_load_bytes<16>(from);
    memcpy(&row, raw.word, sizeof row);
    return row;
}
template <class ROW> static inline __device__ void mirt__cu_mm_row_put(ROW *to, const ROW &row) {
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
    b.group = b.phase = 0;
    b.down = p.down.line;
    b.across = p.across.line;
    b.b_at = 0;
    if (at > 0) {
        b.group = (int)(at % (unsigned)p.groups);
        b.phase = (int)(at / (unsigned)p.groups);
        b.b_at = b.group * p.b_group;
    }
    if (b.phase > 0) {
        const int down = b.phase / p.across.phases, across = b.phase - down * p.across.phases;
        b.down = mirt__cu_mm_line_of(p.down, down);
        b.across = mirt__cu_mm_line_of(p.across, across);
        b.b_at += mirt__cu_mm_taps_before(p.down, p.across, down, across, b.down.taps) * p.k * p.b_row;
    }
    b.rows = p.images * b.down.count * b.across.count;
    b.part = (int64_t)b.phase * p.blocks_m + b.row / BM;
    b.depth = b.row < b.rows ? b.down.taps * b.across.taps * p.k : 0;
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

/* Row m of a phase: what it reads, where in y it is stored (-1: nowhere), which image it is of. */
static inline __device__ mirt__cu_mm_row mirt__cu_mm_row_of(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                            int64_t m, int64_t *out, int64_t *image) {
    mirt__cu_mm_row r;
    r.at = 0;
    r.y = r.x = -(1 << 29);
    *out = -1;
    *image = 0;
    if (m >= b.rows) return r;
    const int64_t lines = mirt__cu_mm_divide(m, b.across.count), x = m - lines * b.across.count;
    const int64_t of = mirt__cu_mm_divide(lines, b.down.count), y = lines - of * b.down.count;
    r.y = (int)y * b.down.move + b.down.off;
    r.x = (int)x * b.across.move + b.across.off;
    r.at = ((of * p.down.source + r.y) * p.across.source + r.x) * p.c + (int64_t)b.group * p.k;
    *out = ((of * p.down.target + b.down.first + y * b.down.step) * p.across.target + b.across.first +
            x * b.across.step) * p.e.columns;
    *image = of;
    return r;
}
/* Of all rows of a tile. */
template <int BM, int THREADS>
static inline __device__ void mirt__cu_mm_rows_put(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                   mirt__cu_mm_row *rows, int64_t *out, int *image) {
    for (int i = (int)threadIdx.x; i < BM; i += THREADS) {
        int64_t of;
        mirt__cu_mm_row_put(rows + i, mirt__cu_mm_row_of(p, b, b.row + i, out + i, &of));
        image[i] = (int)of;
    }
}
/* Bits of the taps of a line that read one of `source` from `first` on. */
static inline __device__ unsigned mirt__cu_mm_taps_that_read(const mirt__cu_mm_line &line, int first, int source) {
    unsigned bits = 0;
#pragma unroll 1
    for (int tap = 0; tap < line.taps; tap++, first += line.tap_off)
        bits |= ((unsigned)first < (unsigned)source ? 1u : 0u) << tap;
    return bits;
}
template <int BM, int THREADS>
static inline __device__ void mirt__cu_mm_rows_put(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                   mirt__cu_mm_bits *rows, int64_t *out) {
    for (int i = (int)threadIdx.x; i < BM; i += THREADS) {
        const int64_t m = b.row + i;
        mirt__cu_mm_bits bits;
        bits.none = 0;
        if (p.pixelwise) {
            bits.at = m * p.c;
            bits.reads = m < b.rows ? 1u | 1u << 16 : 0u;
            out[i] = m < b.rows ? m * p.e.columns : -1;
        } else {
            int64_t image;
            const mirt__cu_mm_row r = mirt__cu_mm_row_of(p, b, m, out + i, &image);
            bits.at = r.at;
            bits.reads = mirt__cu_mm_taps_that_read(b.across, r.x, p.across.source) |
                         mirt__cu_mm_taps_that_read(b.down, r.y, p.down.source) << 16;
        }
        mirt__cu_mm_row_put(rows + i, bits);
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
    return BN == 32 ? mirt__cu_mm_half_a(k, piece) : k * BN * 2 + (piece ^ (k & 7)) * 16;
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

#endif
