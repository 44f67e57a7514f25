#ifndef MIRT__CUDA_WEIGHT_GRAD_CUH
#define MIRT__CUDA_WEIGHT_GRAD_CUH
/* Weight gradients of tensors stored in 16 bits, and what their kernels share. Nothing is computed while tensors are
   read, so that copies to shared memory run stages ahead of the products. */

#include "ptx.cuh"
#include "reader.cuh"

struct mirt__cu_wgrad : mirt__conv {
    mirt__cu_reader x, dy;
    int64_t lines, n;         /* of a group: lines and columns of dkernel */
    int64_t m, channels;      /* of a group: rows of the product, channels of x; with those that are filled up */
    int64_t filled;           /* of the channels, the last ones, zeros */
    int64_t x_row, dy_row;    /* from one pixel to the next, in pieces of 8 */
    int64_t pixels, part;     /* of dy: all, in a part */
    int tiles_m, tiles_n;
    bool flat;                /* x's pixels are dy's */
    int width;                /* neighbors that are read at once */
    bool large;               /* tiles of 128 by 128 */
    mirt_dtype factors;       /* what numbers are rounded to */
    bool gate_images;         /* an image has the same gates */
    mirt__cu_divisor image, line;
    float *sums;              /* of part 0: dkernel, then db */
    int64_t sum_floats;       /* from one part to the next */
    bool bias;
    float *dkernel, *db;      /* where there is one part only */
};

/* Where a part of the pixels begins: pixels are counted from there on. */
struct mirt__cu_wgrad_start {
    int64_t pixel, row; /* row: its image */
    uint32_t rest;      /* pixels of that image before it */
    int count;
};
static inline __device__ mirt__cu_wgrad_start mirt__cu_wgrad_start_of(const mirt__cu_wgrad &g) {
    mirt__cu_wgrad_start start;
    start.pixel = (int64_t)blockIdx.y * g.part;
    start.count = (int)(start.pixel + g.part < g.pixels ? g.part : g.pixels - start.pixel);
    start.row = start.pixel / g.image.by;
    start.rest = (uint32_t)(start.pixel - start.row * g.image.by);
    return start;
}

/* Which tile of dkernel a block computes. */
struct mirt__cu_wgrad_tile {
    int64_t group, m0, n0;
    bool bias; /* it adds up dy, too */
};
template <int BM, int BN> static inline __device__ mirt__cu_wgrad_tile mirt__cu_wgrad_tile_of(const mirt__cu_wgrad &g) {
    const unsigned down = blockIdx.x % (unsigned)g.tiles_m, rest = blockIdx.x / (unsigned)g.tiles_m;
    mirt__cu_wgrad_tile t;
    t.group = rest / (unsigned)g.tiles_n;
    t.m0 = (int64_t)down * BM;
    t.n0 = (int64_t)(rest % (unsigned)g.tiles_n) * BN;
    t.bias = g.bias && down == 0;
    return t;
}
static inline __device__ float *mirt__cu_wgrad_to(const mirt__cu_wgrad &g) {
    return g.dkernel ? g.dkernel : g.sums + (int64_t)blockIdx.y * g.sum_floats;
}

/* The sums of a lane as mma.sync has them; row, column: of its first one. */
template <int MT, int NT>
static inline __device__ void mirt__cu_wgrad_leave(const mirt__cu_wgrad &g, int64_t group, int64_t row, int64_t column,
                                                   const float (&d)[MT][NT][4]) {
    float *to = mirt__cu_wgrad_to(g);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        int64_t r = row + i * 8;
        if (r >= g.m) break;
        if (g.filled) {
            const int64_t tap = r / g.channels;
            if (r - tap * g.channels >= g.channels - g.filled) continue;
            r -= tap * g.filled;
        }
#pragma unroll
        for (int j = 0; j < 2 * NT; j++) {
            const int64_t c = column + j / 2 * 8 + j % 2;
            if (c < g.n) to[r * g.co + group * g.n + c] = d[i / 2][j / 2][i % 2 * 2 + j % 2];
        }
    }
}
/* db of a tile from its threads' sums: those of the same column of dy, in their order. */
template <int THREADS, int BN>
static inline __device__ void mirt__cu_wgrad_leave_bias(const mirt__cu_wgrad &g, const mirt__cu_wgrad_tile &t,
                                                        float sum, float *room) {
    const int thread = (int)threadIdx.x;
    room[thread] = sum;
    __syncthreads();
    if (thread >= BN || t.n0 + thread >= g.n) return;
    for (int i = 1; i < THREADS / BN; i++) sum += room[i * BN + thread];
    (g.dkernel ? g.db : mirt__cu_wgrad_to(g) + g.lines * g.co)[t.group * g.n + t.n0 + thread] = sum;
}

/* ---- Through copies: tiles of 128 by BN, 32 pixels a stage. Warps multiply 64 by 32, which leaves room for 16 of them
   on a processor. */

/* Tensors have fewer numbers than this: pieces of 8 are counted in 32 bits. */
#define MIRT__CU_WGRAD_NUMBERS ((int64_t)1 << 34)

template <int BN> struct mirt__cu_wgrad_copies {
    static constexpr int BM = 128, BK = 32, THREADS = 2 * BN, RESIDENT = BN == 128 ? 2 : 4;
    static constexpr int STAGES = 4, AHEAD = STAGES - 1;
    static constexpr int A_BYTES = BK * BM * 2, STAGE = A_BYTES + BK * BN * 2;
    /* Pixels of x are looked up for so many steps at a time, a pixel per thread, while those before are read. */
    static constexpr int BYTES = STAGES * STAGE + 2 * THREADS * (int)sizeof(int4);

    /* Rows of a tile are pixels. Eight rows have the same piece in different banks, for ldmatrix. */
    template <int COLUMNS> static __device__ int place(int row, int piece) {
        return row * COLUMNS * 2 + (piece ^ (row & 7)) * 16;
    }

    static constexpr int X_LINES = THREADS / (BM / 8), DY_LINES = THREADS / (BN / 8); /* that are copied at a time */
    const uint4 *x, *dy;
    int x_put, dy_put, line;    /* where a thread's first pieces go in a stage; its first pixel of x */
    int y, across;              /* of its tap, from a pixel of dy: lines, pixels */
    unsigned tap, dy_at;        /* pieces: that far from a pixel's first one; its next one of dy */
    int left;                   /* pixels from that one on */

    __device__ void begin(const mirt__cu_wgrad &g, const mirt__cu_wgrad_tile &t, const mirt__cu_wgrad_start &start) {
        const int thread = (int)threadIdx.x, piece = thread % (BM / 8), dy_piece = thread % (BN / 8),
                  dy_line = thread / (BN / 8);
        const int64_t row = t.m0 + piece * 8, column = t.n0 + dy_piece * 8;
        const int64_t nth = row / g.channels, down = nth / g.kw;
        line = thread / (BM / 8);
        x = static_cast<const uint4 *>(g.x.data);
        dy = static_cast<const uint4 *>(g.dy.data);
        x_put = place<BM>(line, piece);
        dy_put = A_BYTES + place<BN>(dy_line, dy_piece);
        y = (int)(down * g.dilation_h - g.pad_top);
        across = (int)((nth - down * g.kw) * g.dilation_w - g.pad_left);
        tap = (unsigned)(((int64_t)y * g.w + across) * g.x_row +
                         (t.group * g.channels + row - nth * g.channels) / 8);
        if (row >= g.m) y = -(1 << 29);
        dy_at = (unsigned)((start.pixel + dy_line) * g.dy_row + t.group * (g.dy_row / g.groups) + column / 8);
        left = column < g.n ? start.count - dy_line : 0;
    }
    /* Pixel k of a part, as taps read x from it: its piece, line and place in the line; far above x if there is
       none. */
    static __device__ int4 pixel(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k) {
        if (k >= start.count) return make_int4(0, -(1 << 29), 0, 0);
        const uint32_t within = start.rest + (uint32_t)k, image = mirt__cu_divide32(within, g.image),
                       of = within - image * (uint32_t)g.image.by, down = mirt__cu_divide32(of, g.line);
        const int iy = (int)down * g.stride_h, ix = (int)(of - down * (uint32_t)g.line.by) * g.stride_w;
        return make_int4((int)((((start.row + image) * g.h + iy) * g.w + ix) * g.x_row), iy, ix, 0);
    }
    /* Pixel k is kept at `to`, as one access. */
    static __device__ void keep(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k, int4 *to) {
        const int4 p = pixel(g, start, k);
        mirt__cu_bytes<16> raw;
        memcpy(raw.word, &p, sizeof p);
        mirt__cu_store_bytes<16>(to, raw);
    }
    /* Asks for the next 32 pixels; `pixels`: those of x. */
    __device__ void ask(const mirt__cu_wgrad &g, const int4 *pixels, unsigned char *stage) {
        int4 p[BK / X_LINES]; /* all of them first: each copy after a load costs three instructions of waiting */
#pragma unroll
        for (int i = 0; i < BK / X_LINES; i++) p[i] = pixels[line + i * X_LINES];
#pragma unroll
        for (int i = 0; i < BK / X_LINES; i++) {
            const bool valid = (unsigned)(p[i].y + y) < (unsigned)g.h && (unsigned)(p[i].z + across) < (unsigned)g.w;
            mirt__cu_cp_async16(stage + x_put + i * X_LINES * BM * 2, x + ((unsigned)p[i].x + tap), valid);
        }
        const unsigned row = (unsigned)g.dy_row;
#pragma unroll
        for (int i = 0; i < BK / DY_LINES; i++)
            mirt__cu_cp_async16(stage + dy_put + i * DY_LINES * BN * 2, dy + (dy_at + i * DY_LINES * row),
                                i * DY_LINES < left);
        dy_at += BK * row;
        left -= BK;
        mirt__cu_cp_async_commit();
    }
};

/* A part's sums of a tile, in the order of pixels. */
template <bool FLOAT16, int BN>
static __global__ void __launch_bounds__(mirt__cu_wgrad_copies<BN>::THREADS, mirt__cu_wgrad_copies<BN>::RESIDENT)
    mirt__cu_copied_wgrad_kernel(const mirt__cu_wgrad g) {
    typedef mirt__cu_wgrad_copies<BN> S;
    typedef typename mirt__cu_half_of<FLOAT16>::type H;
    MIRT_DYNAMIC_SHARED(unsigned char, shared);
    int4 *pixels = reinterpret_cast<int4 *>(shared + S::STAGES * S::STAGE);
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int wm = warp / (BN / 32) * 64, wn = warp % (BN / 32) * 32;
    const int a_at = S::template place<S::BM>(lane % 8 + lane / 16 * 8, wm / 8 + lane / 8 % 2),
              b_at = S::A_BYTES + S::template place<BN>(lane % 16, wn / 8 + lane / 16);
    const int bias_at = S::A_BYTES + S::template place<BN>(thread / BN, thread % BN / 8) + thread % 8 * 2;
    const mirt__cu_wgrad_tile t = mirt__cu_wgrad_tile_of<S::BM, BN>(g);
    const mirt__cu_wgrad_start start = mirt__cu_wgrad_start_of(g);
    float d[4][4][4], sum = 0;
    memset(&d, 0, sizeof d);
    S copies;
    copies.begin(g, t, start);
    for (int i = thread; i < 2 * S::THREADS; i += S::THREADS) S::keep(g, start, i, pixels + i);
    __syncthreads();
    for (int i = 0; i < S::AHEAD; i++) copies.ask(g, pixels + i * S::BK, shared + i * S::STAGE);
    unsigned turn = S::AHEAD * S::BK; /* of pixels: those of the next stage */
    int now = 0, next = S::AHEAD * S::STAGE;
#pragma unroll 1
    for (int k = 0; k < start.count; k += S::BK) {
        mirt__cu_cp_async_wait<S::STAGES - 2>();
        __syncthreads(); /* all of this stage is there, and nobody is at the one before any more */
        if (turn % S::THREADS == 0)
            S::keep(g, start, k + S::AHEAD * S::BK + S::THREADS + thread, pixels + (turn ^ S::THREADS) + thread);
        copies.ask(g, pixels + turn, shared + next);
        turn = (turn + S::BK) % (2 * S::THREADS);
        const unsigned char *stage = shared + now;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t b[2][4];
#pragma unroll
            for (int j = 0; j < 2; j++) mirt__cu_ldmatrix_x4_trans(b[j], stage + (b_at ^ j * 32) + half * 16 * BN * 2);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t a[4];
                mirt__cu_ldmatrix_x4_trans(a, stage + (a_at ^ i * 32) + half * 16 * S::BM * 2);
#pragma unroll
                for (int j = 0; j < 4; j++) mirt__cu_mma_half<FLOAT16>(d[i][j], a, b[j / 2] + j % 2 * 2);
            }
        }
        if (t.bias) {
#pragma unroll
            for (int i = 0; i < S::BK; i += 2)
                sum += mirt__cu_from_half(
                    *reinterpret_cast<const H *>(stage + (bias_at ^ (i & 6) * 16) + i * BN * 2));
        }
        next = now;
        now = now + S::STAGE == S::STAGES * S::STAGE ? 0 : now + S::STAGE;
    }
    mirt__cu_wgrad_leave(g, t.group, t.m0 + wm + lane / 4, t.n0 + wn + lane % 4 * 2, d);
    mirt__cu_cp_async_wait<0>();
    if (!t.bias) return;
    __syncthreads();
    mirt__cu_wgrad_leave_bias<S::THREADS, BN>(g, t, sum, reinterpret_cast<float *>(shared));
}

template <bool FLOAT16, int BN>
static void mirt__cu_copied_wgrad_launch(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    typedef mirt__cu_wgrad_copies<BN> S;
    const dim3 grid((unsigned)((int64_t)g.tiles_m * g.tiles_n * g.groups), (unsigned)parts);
    MIRT_LAUNCH(cu, (mirt__cu_copied_wgrad_kernel<FLOAT16, BN>), grid, S::THREADS, S::BYTES, g);
}
/* Parts are those of tiles of 64 by 64, where they are not large. */
template <bool FLOAT16> static void mirt__cu_copied_wgrad(mirt__cu *cu, mirt__cu_wgrad g, int64_t parts) {
    g.tiles_m = (int)mirt__cu_ceil(g.m, 128);
    if (g.large) mirt__cu_copied_wgrad_launch<FLOAT16, 128>(cu, g, parts);
    else mirt__cu_copied_wgrad_launch<FLOAT16, 64>(cu, g, parts);
}

#endif
