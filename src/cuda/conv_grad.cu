/* Weight gradients of convolutions. dkernel[tap, c][o] is a product over all pixels of dy, which are divided into parts
   that depend on the shape alone; the sums of the parts are added in order. */
#include "cuda.cuh"
#include "layout.cuh"
#include "parts.cuh"
#include "spread.cuh"
#include "weight_grad.cuh"

/* Blocks that a device should have: so that large ones run evenly. Pixels that a part has at least. */
#define MIRT__CU_WGRAD_BLOCKS 792
#define MIRT__CU_WGRAD_LARGE 528
#define MIRT__CU_WGRAD_PIXELS 512
#define MIRT__CU_WGRAD_SUMS ((int64_t)1 << 24) /* floats of all parts, about */

/* ---- Of floats, by FMA or TF32: tiles of BM by BN, 16 pixels at a time. */

template <int BM_, int BN_> struct mirt__cu_wgrad_shape {
    static constexpr int BM = BM_, BN = BN_, BK = 16;
    static constexpr int THREADS = BM * BN >= 128 * 128 ? 256 : 128;
    static constexpr int WARPS_N = THREADS == 256 ? 4 : 2, WARPS_M = THREADS / 32 / WARPS_N;
    static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;           /* of a warp */
    static constexpr int TN = BN >= 128 ? 8 : 4, TM = BM * BN / THREADS / TN; /* of a thread, by FMA */
    static constexpr int A_PITCH = BM + 8, B_PITCH = BN + 8;
    static constexpr int A_FLOATS = BK * A_PITCH, B_FLOATS = BK * B_PITCH;
    static constexpr int SHARE = THREADS / BN; /* threads of a column */
    static constexpr int BYTES = (2 * (A_FLOATS + B_FLOATS) + MIRT__CU_COLUMN_ROWS * (BM + BN)) * (int)sizeof(float);
};

/* V numbers to shared memory. */
template <int V> static inline __device__ void mirt__cu_wgrad_put(float *to, float *v, mirt_dtype factors) {
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = mirt__cu_round(v[i], factors);
    mirt__cu_store_n<V>(to, v);
}

/* A thread's share of a tile: V neighbors of every DOWN-th pixel, in raw form from when they are asked for until they
   are put. */
template <class S, int V, bool X> struct mirt__cu_wgrad_side {
    static constexpr int COLUMNS = X ? S::BM : S::BN, PITCH = X ? S::A_PITCH : S::B_PITCH, ACROSS = COLUMNS / V,
                         DOWN = S::THREADS / ACROSS;
    static constexpr int COUNT = V > 1 ? S::BK / DOWN : 1;
    mirt__cu_raw<V> raw[COUNT];
    int64_t gates[X ? COUNT : 1];
    unsigned there; /* of those, bits */
    int column, line;
    int64_t channel, y, x; /* y, x: of its tap, from the first */

    /* As the reader is, but for what is known of it here: the usual ones have neighbors. */
    static __device__ mirt__cu_reader reader(const mirt__cu_wgrad &g) {
        mirt__cu_reader r = X ? g.x : g.dy;
        if (V > 1) r.kind &= X ? MIRT__CU_READ_NORM | MIRT__CU_READ_GATE : MIRT__CU_READ_BACK;
        return r;
    }
    __device__ bool begin(const mirt__cu_wgrad &g, int64_t group, int64_t first, int thread) {
        column = thread % ACROSS * V;
        line = thread / ACROSS;
        there = 0;
        const int64_t at = first + column;
        if (!X) {
            channel = group * g.n + at;
            y = x = 0;
            return at < g.n;
        }
        const int64_t tap = at / g.channels, down = tap / g.kw;
        channel = group * g.channels + (at - tap * g.channels);
        y = down * g.dilation_h - g.pad_top;
        x = (tap - down * g.kw) * g.dilation_w - g.pad_left;
        return at < g.m;
    }
    /* Asks for pixel k of the part; false: there is nothing. */
    __device__ bool fetch_one(const mirt__cu_wgrad &g, const mirt__cu_reader &r, const mirt__cu_wgrad_start &start,
                              int k, mirt__cu_raw<V> &to, int64_t &gate) {
        int64_t pixel = start.pixel + k;
        if (k >= start.count) return false;
        if (X && (!g.flat || r.kind & MIRT__CU_READ_GATE)) {
            const uint32_t within = start.rest + (uint32_t)k, image = mirt__cu_divide32(within, g.image);
            const int64_t row = start.row + image;
            if (!g.flat) {
                const uint32_t place = within - image * (uint32_t)g.image.by, oy = mirt__cu_divide32(place, g.line),
                               ox = place - oy * (uint32_t)g.line.by;
                const int64_t iy = (int64_t)oy * g.stride_h + y, ix = (int64_t)ox * g.stride_w + x;
                if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) return false;
                pixel = (row * g.h + iy) * g.w + ix;
            }
            gate = g.gate_images ? row * g.ci : mirt__cu_gate_of(r, pixel);
        }
        if (!X && V == 1) gate = mirt__cu_gate_of(r, pixel);
        mirt__cu_fetch<MIRT__CU_READ_ANY, V>(r, pixel * (X ? g.ci : g.co) + channel, to);
        return true;
    }
    /* Pixels [k, k + BK) of the part; without V, only when they are put. */
    __device__ void fetch(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k, bool mine) {
        if (V == 1) return;
        const mirt__cu_reader r = reader(g);
        there = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (mine && fetch_one(g, r, start, k + line + i * DOWN, raw[i], gates[X ? i : 0])) there |= 1u << i;
        }
    }
    __device__ void put(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k, bool mine,
                        const float *columns, float *shared) {
        const mirt__cu_reader r = reader(g);
        mirt__cu_columns<V> c;
        mirt__cu_columns_get<MIRT__CU_READ_ANY, V>(r, columns, COLUMNS, column, c);
        if constexpr (V > 1) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                float v[V] = {0};
                if (there >> i & 1) mirt__cu_make<MIRT__CU_READ_ANY, V>(r, c, raw[i], X ? gates[i] : 0, channel, v);
                mirt__cu_wgrad_put<V>(shared + (line + i * DOWN) * PITCH + column, v, g.factors);
            }
        } else {
#pragma unroll 2
            for (int i = line; i < S::BK; i += DOWN) {
                float v[1] = {0};
                if (mine && fetch_one(g, r, start, k + i, raw[0], gates[0]))
                    mirt__cu_make<MIRT__CU_READ_ANY, 1>(r, c, raw[0], gates[0], channel, v);
                mirt__cu_wgrad_put<1>(shared + i * PITCH + column, v, g.factors);
            }
        }
    }
};

/* The sums of a thread. */
template <class S, int BY> struct mirt__cu_wgrad_sums {
    static constexpr int MT = S::WM / 16, NT = S::WN / 8;
    float d[BY == MIRT__CU_BY_FMA ? 1 : MT][BY == MIRT__CU_BY_FMA ? 1 : NT][4];
    float c[BY == MIRT__CU_BY_FMA ? S::TM : 1][BY == MIRT__CU_BY_FMA ? S::TN : 1];
};

template <class S, int BY>
static __device__ void mirt__cu_wgrad_multiply(mirt__cu_wgrad_sums<S, BY> &sums, int thread,
                                               const float *as, const float *bs) {
    constexpr int MT = S::WM / 16, NT = S::WN / 8;
    const int lane = thread % 32, warp = thread / 32, wm = warp / S::WARPS_N * S::WM, wn = warp % S::WARPS_N * S::WN;
    if constexpr (BY == MIRT__CU_BY_FMA) {
        const int tx = thread % 16 * 4, ty = thread / 16 * 4;
        constexpr int DOWN = S::THREADS / 16 * 4;
#pragma unroll
        for (int k = 0; k < S::BK; k++) {
            float a[S::TM], b[S::TN];
#pragma unroll
            for (int i = 0; i < S::TM; i += 4) mirt__cu_load_n<4>(as + k * S::A_PITCH + ty + i / 4 * DOWN, a + i);
#pragma unroll
            for (int j = 0; j < S::TN; j += 4) mirt__cu_load_n<4>(bs + k * S::B_PITCH + tx + j / 4 * 64, b + j);
#pragma unroll
            for (int i = 0; i < S::TM; i++) {
#pragma unroll
                for (int j = 0; j < S::TN; j++) sums.c[i][j] = fmaf(a[i], b[j], sums.c[i][j]);
            }
        }
    } else {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int k = 0; k < S::BK; k += 8) {
            uint32_t a[MT][4], b[NT][2];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                const float *from = as + (k + t) * S::A_PITCH + wm + i * 16 + g;
#pragma unroll
                for (int e = 0; e < 4; e++) a[i][e] = mirt__cu_to_tf32(from[e / 2 * 4 * S::A_PITCH + e % 2 * 8]);
            }
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const float *from = bs + (k + t) * S::B_PITCH + wn + j * 8 + g;
                b[j][0] = mirt__cu_to_tf32(from[0]), b[j][1] = mirt__cu_to_tf32(from[4 * S::B_PITCH]);
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < NT; j++) mirt__cu_mma_tf32(sums.d[i][j], a[i], b[j]);
            }
        }
    }
}

/* A tile of one part's sums: x is read with its taps as the rows of a matrix [pixels][taps * channels], dy is one
   [pixels][columns]. Both lie in shared memory by pixels, two tiles of each: some warps read the next one while others
   multiply. */
template <int BY, int BM, int BN, int V>
static __global__ void __launch_bounds__(mirt__cu_wgrad_shape<BM, BN>::THREADS, BM > 64 ? 1 : 3)
    mirt__cu_wgrad_kernel(const mirt__cu_wgrad g) {
    typedef mirt__cu_wgrad_shape<BM, BN> S;
    MIRT_DYNAMIC_SHARED(float, shared);
    float *as = shared, *bs = shared + 2 * S::A_FLOATS, *a_columns = bs + 2 * S::B_FLOATS,
          *b_columns = a_columns + MIRT__CU_COLUMN_ROWS * BM;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const mirt__cu_wgrad_tile t = mirt__cu_wgrad_tile_of<BM, BN>(g);
    const int64_t group = t.group, m0 = t.m0, n0 = t.n0;
    for (int i = thread; i < BM; i += S::THREADS) {
        if (m0 + i < g.m) mirt__cu_column_put(g.x, group * g.channels + (m0 + i) % g.channels, a_columns, BM, i);
    }
    for (int i = thread; i < BN && n0 + i < g.n; i += S::THREADS)
        mirt__cu_column_put(g.dy, group * g.n + n0 + i, b_columns, BN, i);
    mirt__cu_wgrad_side<S, V, true> x;
    mirt__cu_wgrad_side<S, V, false> dy;
    const bool x_mine = x.begin(g, group, m0, thread), dy_mine = dy.begin(g, group, n0, thread);
    mirt__cu_wgrad_sums<S, BY> sums;
    float sum = 0;
    memset(&sums, 0, sizeof sums);
    const mirt__cu_wgrad_start start = mirt__cu_wgrad_start_of(g);
    __syncthreads();
    /* A tile is asked for, the one before is multiplied, then it is put beside that. */
    int at = 1;
#pragma unroll 1
    for (int k = -S::BK; k < start.count; k += S::BK, at ^= 1) {
        const bool more = k + S::BK < start.count;
        const float *a = as + at * S::A_FLOATS, *b = bs + at * S::B_FLOATS;
        if (more) {
            x.fetch(g, start, k + S::BK, x_mine);
            dy.fetch(g, start, k + S::BK, dy_mine);
        }
        if (k >= 0) {
            mirt__cu_wgrad_multiply<S, BY>(sums, thread, a, b);
            if (t.bias) {
#pragma unroll 4
                for (int i = thread / BN; i < S::BK; i += S::SHARE) sum += b[i * S::B_PITCH + thread % BN];
            }
        }
        if (more) {
            x.put(g, start, k + S::BK, x_mine, a_columns, as + (at ^ 1) * S::A_FLOATS);
            dy.put(g, start, k + S::BK, dy_mine, b_columns, bs + (at ^ 1) * S::B_FLOATS);
        }
        __syncthreads();
    }

    if constexpr (BY == MIRT__CU_BY_FMA) {
        float *to = mirt__cu_wgrad_to(g);
        const int tx = thread % 16 * 4, ty = thread / 16 * 4;
#pragma unroll
        for (int i = 0; i < S::TM; i++) {
            const int64_t row = m0 + ty + i / 4 * (S::THREADS / 16 * 4) + i % 4;
#pragma unroll
            for (int j = 0; j < S::TN; j++) {
                const int64_t column = n0 + tx + j / 4 * 64 + j % 4;
                if (row < g.m && column < g.n) to[row * g.co + group * g.n + column] = sums.c[i][j];
            }
        }
    } else {
        const int wm = warp / S::WARPS_N * S::WM + lane / 4, wn = warp % S::WARPS_N * S::WN + lane % 4 * 2;
        mirt__cu_wgrad_leave(g, group, m0 + wm, n0 + wn, sums.d);
    }
    if (t.bias) mirt__cu_wgrad_leave_bias<S::THREADS, BN>(g, t, sum, shared);
}

template <int BY, int BM, int BN, int V>
static void mirt__cu_wgrad_launch(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    typedef mirt__cu_wgrad_shape<BM, BN> S;
    const dim3 grid((unsigned)((int64_t)g.tiles_m * g.tiles_n * g.groups), (unsigned)parts);
    MIRT_LAUNCH(cu, (mirt__cu_wgrad_kernel<BY, BM, BN, V>), grid, S::THREADS, S::BYTES, g);
}
template <int BY> static void mirt__cu_wgrad_by(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    if (g.large) mirt__cu_wgrad_launch<BY, 128, 128, 4>(cu, g, parts);
    else if (g.width == 4) mirt__cu_wgrad_launch<BY, 64, 64, 4>(cu, g, parts);
    else mirt__cu_wgrad_launch<BY, 64, 64, 1>(cu, g, parts);
}

/* What is not stored as it is multiplied is written down first. */
static bool mirt__cu_wgrad_stored(const mirt__cu_reader &r, int64_t channels, mirt_dtype factors) {
    return r.kind == MIRT__CU_READ_PLAIN && !r.affine && r.dtype == factors && r.width == 8 && channels % 8 == 0;
}

static void mirt__cu_conv_weight_grad(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__conv *s = &args->s;
    const mirt_dtype factors = mirt__cu_factors(args->half, where);
    if (mirt__cu_depthwise_weight_grad(args, cu) || mirt__cu_blas_conv_weight_grad(args, factors, cu)) return;
    mirt__cu_wgrad g;
    memset(&g, 0, sizeof g);
    static_cast<mirt__conv &>(g) = *s;
    g.x = mirt__cu_reader_of(&args->x, s->ci);
    g.dy = mirt__cu_reader_of(&args->dy, s->co);
    g.channels = s->ci / s->groups;
    g.lines = (int64_t)s->kh * s->kw * g.channels;
    g.n = s->co / s->groups;
    g.pixels = s->rows * s->oh * s->ow;
    g.flat = mirt__cu_pixelwise(s);
    g.image = mirt__cu_divisor_of(s->oh * s->ow);
    g.line = mirt__cu_divisor_of(s->ow);
    g.gate_images = g.x.gate_pixels == s->h * s->w;
    g.bias = args->db != NULL;
    g.factors = factors;
    if (g.lines < 1 || s->co < 1) return;

    const mirt__cu_math math = mirt__cu_math_of(cu, factors);
    const int64_t sources = s->rows * s->h * s->w, x_padded = mirt__cu_round_up(g.channels, 8),
                  dy_padded = mirt__cu_round_up(g.n, 8);
    const bool half = math >= MIRT__CU_BY_HALF && sources * s->groups * x_padded < MIRT__CU_WGRAD_NUMBERS &&
                      g.pixels * s->groups * dy_padded < MIRT__CU_WGRAD_NUMBERS;
    const bool x_spread = half && !mirt__cu_wgrad_stored(g.x, g.channels, factors),
               dy_spread = half && !mirt__cu_wgrad_stored(g.dy, g.n, factors);
    mirt__cu_mm_spread x, dy;
    mirt__cu_mm_rooms r;
    memset(&r, 0, sizeof r);
    memset(&x, 0, sizeof x);
    memset(&dy, 0, sizeof dy);
    if (x_spread) {
        x = mirt__cu_mm_spread_of(g.x, sources, s->ci, s->groups, (int)g.channels, factors, factors, 0);
        r.x = mirt__cu_mm_rooms_take(&r, mirt__cu_mm_spread_bytes(x));
    }
    if (dy_spread) {
        dy = mirt__cu_mm_spread_of(g.dy, g.pixels, s->co, s->groups, (int)g.n, factors, factors, 0);
        r.b = mirt__cu_mm_rooms_take(&r, mirt__cu_mm_spread_bytes(dy));
    }
    if (half) {
        g.filled = x_padded - g.channels;
        g.channels = x_padded;
        g.x_row = s->groups * x_padded / 8;
        g.dy_row = s->groups * dy_padded / 8;
    } else {
        const bool odd = g.x.kind & MIRT__CU_READ_BACK || g.dy.kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_GATE);
        g.width = !odd && g.x.width >= 4 && g.dy.width >= 4 && g.channels % 4 == 0 && g.n % 4 == 0 ? 4 : 1;
    }
    g.m = (int64_t)s->kh * s->kw * g.channels;
    g.large = (half ? mirt__cu_wgrad_copies<128>::BYTES <= cu->shared_most : g.width == 4) && g.m > 64 && g.n > 64;
    const int tile = g.large ? 128 : 64;
    g.tiles_m = (int)mirt__cu_ceil(g.m, tile);
    g.tiles_n = (int)mirt__cu_ceil(g.n, tile);
    g.sum_floats = g.lines * s->co + (g.bias ? s->co : 0);
    /* Never more parts for fewer pixels. */
    int64_t parts = (g.large ? MIRT__CU_WGRAD_LARGE : MIRT__CU_WGRAD_BLOCKS) /
                    ((int64_t)g.tiles_m * g.tiles_n * s->groups);
    const int64_t worth = g.pixels / MIRT__CU_WGRAD_PIXELS, most = MIRT__CU_WGRAD_SUMS / g.sum_floats;
    if (parts > worth) parts = worth;
    if (parts > most) parts = most;
    if (parts <= g.pixels >> 30) parts = (g.pixels >> 30) + 1; /* they are counted in 32 bits */
    g.part = mirt__cu_ceil(mirt__cu_ceil(g.pixels, parts), 32) * 32;
    if (parts > 1) r.partial = mirt__cu_mm_rooms_take(&r, parts * g.sum_floats * (int64_t)sizeof(float));
    char *room = r.end > 0 ? (char *)mirt__cu_room(cu, (size_t)r.end) : NULL;
    if (r.end > 0 && !room) return;
    g.sums = (float *)(room + r.partial);
    parts = g.pixels > 0 ? mirt__cu_ceil(g.pixels, g.part) : 0;
    if (parts == 1) {
        g.dkernel = args->dkernel;
        g.db = args->db;
    }
    if (x_spread) {
        mirt__cu_mm_spread_run(cu, x, room + r.x);
        g.x.data = room + r.x;
    }
    if (dy_spread) {
        mirt__cu_mm_spread_run(cu, dy, room + r.b);
        g.dy.data = room + r.b;
    }
    if (parts > 0) {
        if (half && math == MIRT__CU_BY_FLOAT16) mirt__cu_copied_wgrad<true>(cu, g, parts);
        else if (half) mirt__cu_copied_wgrad<false>(cu, g, parts);
        else if (math == MIRT__CU_BY_TF32) mirt__cu_wgrad_by<MIRT__CU_BY_TF32>(cu, g, parts);
        else mirt__cu_wgrad_by<MIRT__CU_BY_FMA>(cu, g, parts);
    }
    if (parts != 1)
        mirt__cu_parts_total(cu, g.sums, parts, g.sum_floats, g.lines * s->co, args->dkernel, s->co, args->db);
}
