/* Weight gradients of convolutions. dkernel[tap, c][o] is a product over all pixels of dy, which are divided into parts
   that depend on the shape alone; the sums of the parts are added in order. */
#include "cuda.cuh"
#include "parts.cuh"
#include "weight_grad.cuh"

/* Blocks that a device should have: so that large ones run evenly. Pixels that a part has at least. */
#define MIRT__CU_WGRAD_BLOCKS 792
#define MIRT__CU_WGRAD_LARGE 528
#define MIRT__CU_WGRAD_PIXELS 512
#define MIRT__CU_WGRAD_SUMS ((int64_t)1 << 24) /* floats of all parts, about */

template <int BY, int BM_, int BN_> struct mirt__cu_wgrad_shape {
    static constexpr bool HALF = BY >= MIRT__CU_BY_HALF;
    typedef typename mirt__cu_half_of<BY == MIRT__CU_BY_FLOAT16>::type H;
    static constexpr int BM = BM_, BN = BN_, BK = HALF ? 32 : 16;
    static constexpr int THREADS = BM * BN >= 128 * 128 ? 256 : 128;
    static constexpr int WARPS_N = THREADS == 256 ? 4 : 2, WARPS_M = THREADS / 32 / WARPS_N;
    static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;           /* of a warp */
    static constexpr int TN = BN >= 128 ? 8 : 4, TM = BM * BN / THREADS / TN; /* of a thread, by FMA */
    static constexpr int SIZE = HALF ? 2 : 4;
    static constexpr int A_PITCH = BM + 8, B_PITCH = BN + 8;
    static constexpr int A_BYTES = BK * A_PITCH * SIZE, B_BYTES = BK * B_PITCH * SIZE;
    static constexpr int SHARE = THREADS / BN; /* threads of a column */
    static constexpr int COLUMNS = MIRT__CU_COLUMN_ROWS * (BM + BN) * (int)sizeof(float);
    static constexpr int BYTES = 2 * (A_BYTES + B_BYTES) + COLUMNS;
};

/* V numbers to shared memory. */
template <class S, int V>
static inline __device__ void mirt__cu_wgrad_put(unsigned char *shared, int at, float *v, mirt_dtype factors) {
    if constexpr (S::HALF) {
        mirt__cu_store_n<V>(reinterpret_cast<typename S::H *>(shared) + at, v);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) v[i] = mirt__cu_round(v[i], factors);
        mirt__cu_store_n<V>(reinterpret_cast<float *>(shared) + at, v);
    }
}

/* A thread's share of a tile: V neighbors of every DOWN-th pixel, in raw form from when they are asked for until they
   are put. */
template <class S, int BY, int V, bool X> struct mirt__cu_wgrad_side {
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
        if (V == 8) {
            r.dtype = BY == MIRT__CU_BY_FLOAT16 ? (mirt_dtype)MIRT__FLOAT16 : (mirt_dtype)MIRT__BFLOAT16;
            r.affine = false;
        }
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
                        const float *columns, unsigned char *shared) {
        const mirt__cu_reader r = reader(g);
        if constexpr (V > 1) { /* by fours, which take less registers */
#pragma unroll
            for (int part = 0; part < V; part += 4) {
                mirt__cu_columns<4> c;
                mirt__cu_columns_get<MIRT__CU_READ_ANY, 4>(r, columns, COLUMNS, column + part, c);
#pragma unroll
                for (int i = 0; i < COUNT; i++) {
                    float v[4];
                    mirt__cu_raw<4> four;
#pragma unroll
                    for (int j = 0; j < 4; j++) { /* eight are two to a word */
                        four.x[j] = raw[i].x[(V == 8 ? part / 2 + j % 2 : j) % V];
                        four.z[j] = raw[i].z[(V == 8 ? part / 2 + j % 2 : j) % V];
                    }
                    if (there >> i & 1) {
                        mirt__cu_make<MIRT__CU_READ_ANY, 4>(r, c, four, X ? gates[i] : 0, channel + part, v);
                    } else {
#pragma unroll
                        for (int j = 0; j < 4; j++) v[j] = 0;
                    }
                    mirt__cu_wgrad_put<S, 4>(shared, (line + i * DOWN) * PITCH + column + part, v, g.factors);
                }
            }
        } else {
            mirt__cu_columns<1> c;
            mirt__cu_columns_get<MIRT__CU_READ_ANY, 1>(r, columns, COLUMNS, column, c);
#pragma unroll 2
            for (int i = line; i < S::BK; i += DOWN) {
                float v[1] = {0};
                if (mine && fetch_one(g, r, start, k + i, raw[0], gates[0]))
                    mirt__cu_make<MIRT__CU_READ_ANY, 1>(r, c, raw[0], gates[0], channel, v);
                mirt__cu_wgrad_put<S, 1>(shared, i * PITCH + column, v, g.factors);
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
                                               const unsigned char *a_shared, const unsigned char *b_shared) {
    constexpr int MT = S::WM / 16, NT = S::WN / 8;
    const int lane = thread % 32, warp = thread / 32, wm = warp / S::WARPS_N * S::WM, wn = warp % S::WARPS_N * S::WN;
    if constexpr (BY == MIRT__CU_BY_FMA) {
        const float *as = reinterpret_cast<const float *>(a_shared), *bs = reinterpret_cast<const float *>(b_shared);
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
    } else if constexpr (BY == MIRT__CU_BY_TF32) {
        const float *as = reinterpret_cast<const float *>(a_shared), *bs = reinterpret_cast<const float *>(b_shared);
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
    } else {
        const uint16_t *as = reinterpret_cast<const uint16_t *>(a_shared),
                       *bs = reinterpret_cast<const uint16_t *>(b_shared);
#pragma unroll
        for (int k = 0; k < S::BK; k += 16) {
            uint32_t a[MT][4], b[NT / 2][4];
#pragma unroll
            for (int i = 0; i < MT; i++)
                mirt__cu_ldmatrix_x4_trans(a[i], as + (k + lane % 8 + lane / 16 * 8) * S::A_PITCH + wm + i * 16 +
                                                     lane / 8 % 2 * 8);
#pragma unroll
            for (int j = 0; j < NT / 2; j++)
                mirt__cu_ldmatrix_x4_trans(b[j], bs + (k + lane % 16) * S::B_PITCH + wn + j * 16 + lane / 16 * 8);
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < NT; j++)
                    mirt__cu_mma_half<BY == MIRT__CU_BY_FLOAT16>(sums.d[i][j], a[i], b[j / 2] + j % 2 * 2);
            }
        }
    }
}

/* A tile of one part's sums: x is read with its taps as the rows of a matrix [pixels][taps * channels], dy is one
   [pixels][columns]. Both lie in shared memory by pixels, two tiles of each: some warps read the next one while others
   multiply. */
template <int BY, int BM, int BN, int V>
static __global__ void __launch_bounds__(mirt__cu_wgrad_shape<BY, BM, BN>::THREADS,
                                         BM > 64                               ? 1
                                         : BY >= MIRT__CU_BY_HALF && V == 4 ? 2
                                                                               : 3)
    mirt__cu_wgrad_kernel(const mirt__cu_wgrad g) {
    typedef mirt__cu_wgrad_shape<BY, BM, BN> S;
    MIRT_DYNAMIC_SHARED(unsigned char, shared);
    unsigned char *as = shared, *bs = shared + 2 * S::A_BYTES;
    float *a_columns = reinterpret_cast<float *>(bs + 2 * S::B_BYTES),
          *b_columns = a_columns + MIRT__CU_COLUMN_ROWS * BM;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const mirt__cu_wgrad_tile t = mirt__cu_wgrad_tile_of<BM, BN>(g);
    const int64_t group = t.group, m0 = t.m0, n0 = t.n0;
    for (int i = thread; i < BM; i += S::THREADS) {
        if (m0 + i < g.m) mirt__cu_column_put(g.x, group * g.channels + (m0 + i) % g.channels, a_columns, BM, i);
    }
    for (int i = thread; i < BN && n0 + i < g.n; i += S::THREADS)
        mirt__cu_column_put(g.dy, group * g.n + n0 + i, b_columns, BN, i);
    mirt__cu_wgrad_side<S, BY, V, true> x;
    mirt__cu_wgrad_side<S, BY, V, false> dy;
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
        const unsigned char *a = as + at * S::A_BYTES, *b = bs + at * S::B_BYTES;
        if (more) {
            x.fetch(g, start, k + S::BK, x_mine);
            dy.fetch(g, start, k + S::BK, dy_mine);
        }
        if (k >= 0) {
            mirt__cu_wgrad_multiply<S, BY>(sums, thread, a, b);
            if (t.bias) {
#pragma unroll 4
                for (int i = thread / BN; i < S::BK; i += S::SHARE) {
                    const int from = i * S::B_PITCH + thread % BN;
                    sum += S::HALF ? mirt__cu_from_half(reinterpret_cast<const typename S::H *>(b)[from])
                                   : reinterpret_cast<const float *>(b)[from];
                }
            }
        }
        if (more) {
            x.put(g, start, k + S::BK, x_mine, a_columns, as + (at ^ 1) * S::A_BYTES);
            dy.put(g, start, k + S::BK, dy_mine, b_columns, bs + (at ^ 1) * S::B_BYTES);
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
    if (t.bias) mirt__cu_wgrad_leave_bias<S::THREADS, BN>(g, t, sum, reinterpret_cast<float *>(shared));
}

template <int BY, int BM, int BN, int V>
static void mirt__cu_wgrad_launch(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    typedef mirt__cu_wgrad_shape<BY, BM, BN> S;
    const dim3 grid((unsigned)((int64_t)g.tiles_m * g.tiles_n * g.groups), (unsigned)parts);
    MIRT_LAUNCH(cu, (mirt__cu_wgrad_kernel<BY, BM, BN, V>), grid, S::THREADS, S::BYTES, g);
}
template <int BY, int V> static void mirt__cu_wgrad_by(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    if constexpr (BY < MIRT__CU_BY_HALF) {
        if (g.large) return mirt__cu_wgrad_launch<BY, 128, 128, V>(cu, g, parts);
    }
    if (g.width == V) mirt__cu_wgrad_launch<BY, 64, 64, V>(cu, g, parts);
    else if (g.width == 4) mirt__cu_wgrad_launch<BY, 64, 64, 4>(cu, g, parts);
    else mirt__cu_wgrad_launch<BY, 64, 64, 1>(cu, g, parts);
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
    g.m = (int64_t)s->kh * s->kw * g.channels;
    g.n = s->co / s->groups;
    g.pixels = s->rows * s->oh * s->ow;
    g.flat = mirt__cu_pixelwise(s);
    g.image = mirt__cu_divisor_of(s->oh * s->ow);
    g.line = mirt__cu_divisor_of(s->ow);
    g.gate_images = g.x.gate_pixels == s->h * s->w;
    g.bias = args->db != NULL;
    if (g.m < 1 || s->co < 1) return;

    const mirt__cu_math math = mirt__cu_math_of(cu, factors);
    const bool half = math >= MIRT__CU_BY_HALF;
    const int widest = half && g.x.dtype == factors && g.dy.dtype == g.x.dtype && !g.x.affine && !g.dy.affine ? 8 : 4;
    g.width = widest;
    if (g.x.kind & MIRT__CU_READ_BACK || g.dy.kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_GATE)) g.width = 1;
    while (g.width > 1 &&
           (g.x.width < g.width || g.dy.width < g.width || g.channels % g.width != 0 || g.n % g.width != 0))
        g.width = g.width == 8 ? 4 : 1;
    const int64_t pieces = (s->rows * s->h * s->w * s->ci > g.pixels * s->co ? s->rows * s->h * s->w * s->ci
                                                                              : g.pixels * s->co) / 8;
    const bool copied = g.width == 8 && g.x.kind == MIRT__CU_READ_PLAIN && g.dy.kind == MIRT__CU_READ_PLAIN &&
                        pieces < MIRT__CU_WGRAD_PIECES;
    g.large = (half ? copied && mirt__cu_wgrad_copies<128>::BYTES <= cu->shared_most : g.width == 4) && g.m > 64 &&
              g.n > 64;
    const int tile = g.large ? 128 : 64;
    g.tiles_m = (int)mirt__cu_ceil(g.m, tile);
    g.tiles_n = (int)mirt__cu_ceil(g.n, tile);
    g.sum_floats = g.m * s->co + (g.bias ? s->co : 0);
    /* Never more parts for fewer pixels. */
    int64_t parts = (g.large ? MIRT__CU_WGRAD_LARGE : MIRT__CU_WGRAD_BLOCKS) /
                    ((int64_t)g.tiles_m * g.tiles_n * s->groups);
    const int64_t worth = g.pixels / MIRT__CU_WGRAD_PIXELS, most = MIRT__CU_WGRAD_SUMS / g.sum_floats;
    if (parts > worth) parts = worth;
    if (parts > most) parts = most;
    if (parts <= g.pixels >> 30) parts = (g.pixels >> 30) + 1; /* they are counted in 32 bits */
    if (parts > 1) g.sums = (float *)mirt__cu_room(cu, (size_t)(parts * g.sum_floats) * sizeof(float));
    g.part = mirt__cu_ceil(mirt__cu_ceil(g.pixels, parts), 32) * 32;
    parts = g.pixels > 0 ? mirt__cu_ceil(g.pixels, g.part) : 0;
    if (parts == 1) {
        g.dkernel = args->dkernel;
        g.db = args->db;
    }
    if (parts > 0) {
        g.factors = factors;
        if (copied && math == MIRT__CU_BY_FLOAT16) mirt__cu_copied_wgrad<true>(cu, g, parts);
        else if (copied) mirt__cu_copied_wgrad<false>(cu, g, parts);
        else if (math == MIRT__CU_BY_FLOAT16) mirt__cu_wgrad_by<MIRT__CU_BY_FLOAT16, 8>(cu, g, parts);
        else if (half) mirt__cu_wgrad_by<MIRT__CU_BY_HALF, 8>(cu, g, parts);
        else if (math == MIRT__CU_BY_TF32) mirt__cu_wgrad_by<MIRT__CU_BY_TF32, 4>(cu, g, parts);
        else mirt__cu_wgrad_by<MIRT__CU_BY_FMA, 4>(cu, g, parts);
    }
    if (parts != 1) mirt__cu_parts_total(cu, g.sums, parts, g.sum_floats, g.m * s->co, args->dkernel, s->co, args->db);
}
