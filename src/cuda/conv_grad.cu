/* Weight gradients of convolutions: dkernel[tap, c][o] is a product over all pixels of dy, which are cut into parts that depend on
   the shape alone, and whose sums are added up in order. */
#include "cuda.cuh"
#include "parts.cuh"
#include "ptx.cuh"
#include "reader.cuh"

/* How the numbers are multiplied: float32 by FMA, tf32, bfloat16. */
enum { MIRT__CU_BY_FMA, MIRT__CU_BY_TF32, MIRT__CU_BY_HALF };

#define MIRT__CU_WGRAD_BLOCKS 528 /* that a device should have, about */
#define MIRT__CU_WGRAD_PIXELS 256 /* in a part, at least */
#define MIRT__CU_WGRAD_SUMS ((int64_t)1 << 24) /* floats of all parts, about */

typedef struct mirt__cu_wgrad {
    mirt__cu_reader x, dy;
    int64_t h, w, ci, oh, ow, co;
    int kw, stride_h, stride_w, dilation_h, dilation_w;
    int pad_top, pad_left;
    int64_t m, n, channels;   /* of a group: rows and columns of dkernel; channels of x */
    int64_t pixels, part;     /* of dy: all, in a part */
    int tiles_m, tiles_n;
    bool flat;                /* x's pixels are dy's */
    bool wide, large;         /* neighbours are read at once; and there are many rows and columns */
    bool round;               /* numbers are rounded to bfloat16, and multiplied as floats */
    mirt__cu_divisor image, line, gate;
    float *sums;              /* of part 0: dkernel, then db */
    int64_t sum_floats;       /* from one part to the next */
    bool bias;
    float *dkernel, *db;      /* where there is one part only */
} mirt__cu_wgrad;

template <int BY, int BM_, int BN_> struct mirt__cu_wgrad_shape {
    static constexpr int BM = BM_, BN = BN_, BK = BY == MIRT__CU_BY_HALF ? 32 : 16;
    static constexpr int THREADS = BM * BN >= 128 * 128 ? 256 : 128;
    static constexpr int WARPS_N = THREADS == 256 ? 4 : 2, WARPS_M = THREADS / 32 / WARPS_N;
    static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;           /* of a warp */
    static constexpr int TN = BN >= 128 ? 8 : 4, TM = BM * BN / THREADS / TN; /* of a thread, by FMA */
    static constexpr int SIZE = BY == MIRT__CU_BY_HALF ? 2 : 4;
    static constexpr int A_PITCH = BM + 8, B_PITCH = BN + 8;
    static constexpr int A_BYTES = BK * A_PITCH * SIZE, B_BYTES = BK * B_PITCH * SIZE;
    static constexpr int COLUMNS = MIRT__CU_COLUMN_ROWS * (BM + BN) * (int)sizeof(float);
    static constexpr int BYTES = 2 * (A_BYTES + B_BYTES) + COLUMNS;
};

/* V numbers to shared memory, as they are multiplied. */
template <int BY, int V> static inline __device__ void mirt__cu_wgrad_put(unsigned char *shared, int at, const float *v, bool round) {
    if (BY == MIRT__CU_BY_HALF) {
        mirt__cu_store_n<V>(reinterpret_cast<uint16_t *>(shared) + at, v);
    } else {
        float to[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            to[i] = BY == MIRT__CU_BY_TF32 ? __uint_as_float(mirt__cu_to_tf32(v[i])) : round ? mirt__cu_round_half(v[i]) : v[i];
        }
        mirt__cu_store_n<V>(reinterpret_cast<float *>(shared) + at, to);
    }
}

/* The place of column `column` of a tile from `first` on in mirt__cu_columns_get's memory; channel < 0: there is none. */
static inline __device__ void mirt__cu_wgrad_column(const mirt__cu_reader &r, float *shared, int n, int column, int64_t channel) {
    mirt__cu_columns<1> c;
    if (!(r.kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_BACK)) || channel < 0) return;
    mirt__cu_columns_of<MIRT__CU_READ_ANY, 1>(r, channel, c);
    shared[column] = c.mean[0];
    shared[n + column] = c.factor[0];
    shared[2 * n + column] = c.offset[0];
    if (!(r.kind & MIRT__CU_READ_BACK)) return;
    shared[3 * n + column] = c.less[0];
    shared[4 * n + column] = c.part[0];
}

/* What a thread reads of each pixel: V neighbouring rows of dkernel, and V of its columns. */
struct mirt__cu_wgrad_thread {
    bool there;
    int column; /* in the tile */
    int64_t channel, y, x; /* y and x: of the tap, from the first */
};

/* Pixels [first, first + BK) of x's columns of a tile, zeros where there are none. */
template <class S, int BY, int V>
static __device__ void mirt__cu_wgrad_read_x(const mirt__cu_wgrad &g, const mirt__cu_wgrad_thread &t, int thread, int64_t first, int64_t end,
                                             const float *columns, unsigned char *shared) {
    constexpr int ACROSS = S::BM / V, DOWN = S::THREADS / ACROSS;
#pragma unroll 1
    for (int i = thread / ACROSS; i < S::BK; i += DOWN) {
        const int64_t k = first + i;
        float v[V];
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = 0;
        if (t.there && k < end) {
            int64_t pixel = k;
            bool inside = true;
            if (!g.flat) {
                int64_t rest, ox;
                const int64_t row = mirt__cu_divmod(k, g.image, &rest), oy = mirt__cu_divmod(rest, g.line, &ox);
                const int64_t iy = oy * g.stride_h + t.y, ix = ox * g.stride_w + t.x;
                inside = iy >= 0 && iy < g.h && ix >= 0 && ix < g.w;
                pixel = (row * g.h + iy) * g.w + ix;
            }
            if (inside) {
                mirt__cu_columns<V> c;
                mirt__cu_columns_get<MIRT__CU_READ_ANY, V>(g.x, columns, S::BM, t.column, c);
                const int64_t gates = g.x.kind & MIRT__CU_READ_GATE ? mirt__cu_divide(pixel, g.gate) * g.ci : 0;
                mirt__cu_read<MIRT__CU_READ_ANY, V>(g.x, c, pixel * g.ci + t.channel, gates, t.channel, v);
            }
        }
        mirt__cu_wgrad_put<BY, V>(shared, i * S::A_PITCH + t.column, v, g.round);
    }
}
/* Likewise dy's, whose sums are noted. */
template <class S, int BY, int V>
static __device__ void mirt__cu_wgrad_read_dy(const mirt__cu_wgrad &g, const mirt__cu_wgrad_thread &t, int thread, int64_t first, int64_t end,
                                              const float *columns, unsigned char *shared, float *sum) {
    constexpr int ACROSS = S::BN / V, DOWN = S::THREADS / ACROSS;
#pragma unroll 1
    for (int i = thread / ACROSS; i < S::BK; i += DOWN) {
        const int64_t k = first + i;
        float v[V];
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = 0;
        if (t.there && k < end) {
            mirt__cu_columns<V> c;
            mirt__cu_columns_get<MIRT__CU_READ_ANY, V>(g.dy, columns, S::BN, t.column, c);
            mirt__cu_read<MIRT__CU_READ_ANY, V>(g.dy, c, k * g.co + t.channel, mirt__cu_gate_of(g.dy, k), t.channel, v);
        }
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] += v[j];
        mirt__cu_wgrad_put<BY, V>(shared, i * S::B_PITCH + t.column, v, g.round);
    }
}

/* The sums of a thread. */
template <class S, int BY> struct mirt__cu_wgrad_sums {
    static constexpr int MT = S::WM / 16, NT = S::WN / 8;
    float d[BY == MIRT__CU_BY_FMA ? 1 : MT][BY == MIRT__CU_BY_FMA ? 1 : NT][4];
    float c[BY == MIRT__CU_BY_FMA ? S::TM : 1][BY == MIRT__CU_BY_FMA ? S::TN : 1];
};

template <class S, int BY>
static __device__ void mirt__cu_wgrad_multiply(mirt__cu_wgrad_sums<S, BY> &sums, int thread, const unsigned char *a_shared, const unsigned char *b_shared) {
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
        const uint32_t *as = reinterpret_cast<const uint32_t *>(a_shared), *bs = reinterpret_cast<const uint32_t *>(b_shared);
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int k = 0; k < S::BK; k += 8) {
            uint32_t a[MT][4], b[NT][2];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                const uint32_t *from = as + (k + t) * S::A_PITCH + wm + i * 16 + g;
                a[i][0] = from[0], a[i][1] = from[8], a[i][2] = from[4 * S::A_PITCH], a[i][3] = from[4 * S::A_PITCH + 8];
            }
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const uint32_t *from = bs + (k + t) * S::B_PITCH + wn + j * 8 + g;
                b[j][0] = from[0], b[j][1] = from[4 * S::B_PITCH];
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < NT; j++) mirt__cu_mma_tf32(sums.d[i][j], a[i], b[j]);
            }
        }
    } else {
        const uint16_t *as = reinterpret_cast<const uint16_t *>(a_shared), *bs = reinterpret_cast<const uint16_t *>(b_shared);
#pragma unroll
        for (int k = 0; k < S::BK; k += 16) {
            uint32_t a[MT][4], b[NT / 2][4];
#pragma unroll
            for (int i = 0; i < MT; i++) mirt__cu_ldmatrix_x4_trans(a[i], as + (k + lane % 8 + lane / 16 * 8) * S::A_PITCH + wm + i * 16 + lane / 8 % 2 * 8);
#pragma unroll
            for (int j = 0; j < NT / 2; j++) mirt__cu_ldmatrix_x4_trans(b[j], bs + (k + lane % 16) * S::B_PITCH + wn + j * 16 + lane / 16 * 8);
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < NT; j++) mirt__cu_mma_bf16(sums.d[i][j], a[i], b[j / 2] + j % 2 * 2);
            }
        }
    }
}

/* A tile of one part's sums: x is read with its taps as the rows of a matrix [pixels][taps * channels], dy is one [pixels][columns]. Both lie
   in shared memory by pixels, two tiles of each: some warps read the next one while others multiply. */
template <int BY, int BM, int BN, int V>
static __global__ void __launch_bounds__(mirt__cu_wgrad_shape<BY, BM, BN>::THREADS) mirt__cu_wgrad_kernel(const mirt__cu_wgrad g) {
    typedef mirt__cu_wgrad_shape<BY, BM, BN> S;
    MIRT_DYNAMIC_SHARED(unsigned char, shared);
    unsigned char *as = shared, *bs = shared + 2 * S::A_BYTES;
    float *a_columns = reinterpret_cast<float *>(bs + 2 * S::B_BYTES), *b_columns = a_columns + MIRT__CU_COLUMN_ROWS * BM;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int tile_m = (int)(blockIdx.x % (unsigned)g.tiles_m), tile_n = (int)(blockIdx.x / (unsigned)g.tiles_m % (unsigned)g.tiles_n);
    const int64_t group = blockIdx.x / ((unsigned)g.tiles_m * (unsigned)g.tiles_n);
    const int64_t m0 = (int64_t)tile_m * BM, n0 = (int64_t)tile_n * BN;
    for (int i = thread; i < BM; i += S::THREADS) {
        mirt__cu_wgrad_column(g.x, a_columns, BM, i, m0 + i < g.m ? group * g.channels + (m0 + i) % g.channels : -1);
    }
    for (int i = thread; i < BN; i += S::THREADS) mirt__cu_wgrad_column(g.dy, b_columns, BN, i, n0 + i < g.n ? group * g.n + n0 + i : -1);
    mirt__cu_wgrad_thread x, dy;
    {
        x.column = thread % (BM / V) * V;
        const int64_t at = m0 + x.column, tap = at / g.channels;
        x.there = at < g.m;
        x.channel = group * g.channels + (at - tap * g.channels);
        x.y = tap / g.kw * g.dilation_h - g.pad_top;
        x.x = tap % g.kw * g.dilation_w - g.pad_left;
        dy.column = thread % (BN / V) * V;
        dy.there = n0 + dy.column < g.n;
        dy.channel = group * g.n + n0 + dy.column;
        dy.y = dy.x = 0;
    }
    mirt__cu_wgrad_sums<S, BY> sums;
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = 0;
    memset(&sums, 0, sizeof sums);
    const int64_t first = (int64_t)blockIdx.y * g.part, end = first + g.part < g.pixels ? first + g.part : g.pixels;
    __syncthreads();
    int at = 0;
    for (int64_t k = first; k < end; k += S::BK, at ^= 1) {
        mirt__cu_wgrad_read_x<S, BY, V>(g, x, thread, k, end, a_columns, as + at * S::A_BYTES);
        mirt__cu_wgrad_read_dy<S, BY, V>(g, dy, thread, k, end, b_columns, bs + at * S::B_BYTES, sum);
        __syncthreads(); /* all have multiplied what was here before */
        mirt__cu_wgrad_multiply<S, BY>(sums, thread, as + at * S::A_BYTES, bs + at * S::B_BYTES);
    }

    float *to = g.dkernel ? g.dkernel : g.sums + (int64_t)blockIdx.y * g.sum_floats;
    if constexpr (BY == MIRT__CU_BY_FMA) {
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
#pragma unroll
        for (int i = 0; i < S::WM / 16; i++) {
#pragma unroll
            for (int j = 0; j < S::WN / 8; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int64_t row = m0 + wm + i * 16 + e / 2 * 8, column = n0 + wn + j * 8 + e % 2;
                    if (row < g.m && column < g.n) to[row * g.co + group * g.n + column] = sums.d[i][j][e];
                }
            }
        }
    }
    if (!g.bias || tile_m != 0) return;
    /* dy's sums: threads that have the same columns, in their order */
    constexpr int ACROSS = BN / V, DOWN = S::THREADS / ACROSS;
    float *room = reinterpret_cast<float *>(shared);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < V; j++) room[thread / ACROSS * BN + dy.column + j] = sum[j];
    __syncthreads();
    float *bias = g.dkernel ? g.db : to + g.m * g.co;
    for (int column = thread; column < BN && n0 + column < g.n; column += S::THREADS) {
        float total = 0;
        for (int i = 0; i < DOWN; i++) total += room[i * BN + column];
        bias[group * g.n + n0 + column] = total;
    }
}

template <int BY, int BM, int BN, int V> static void mirt__cu_wgrad_launch(mirt__cu *cu, const mirt__cu_wgrad *g, int64_t groups, int64_t parts) {
    typedef mirt__cu_wgrad_shape<BY, BM, BN> S;
    static_assert(S::THREADS / (BN / V) * BN * (int)sizeof(float) <= S::BYTES - S::COLUMNS, "sums of dy's columns have their room");
    const dim3 grid((unsigned)((int64_t)g->tiles_m * g->tiles_n * groups), (unsigned)parts);
    const mirt__cu_wgrad args = *g;
    MIRT_LAUNCH(cu, (mirt__cu_wgrad_kernel<BY, BM, BN, V>), grid, S::THREADS, S::BYTES, args);
}
template <int BY, int V> static void mirt__cu_wgrad_by(mirt__cu *cu, const mirt__cu_wgrad *g, int64_t groups, int64_t parts) {
    if (g->large) mirt__cu_wgrad_launch<BY, 128, 128, V>(cu, g, groups, parts);
    else if (g->wide) mirt__cu_wgrad_launch<BY, 64, 64, V>(cu, g, groups, parts);
    else mirt__cu_wgrad_launch<BY, 64, 64, 1>(cu, g, groups, parts);
}

static bool mirt__cu_wgrad_pixels(const mirt__conv *s) {
    return s->kh == 1 && s->kw == 1 && s->stride_h == 1 && s->stride_w == 1 && s->pad_top == 0 && s->pad_left == 0 && s->oh == s->h && s->ow == s->w;
}

static void mirt__cu_conv_weight_grad(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__conv *s = &args->s;
    if (mirt__cu_blas_conv_weight_grad(args, cu)) return;
    mirt__cu_wgrad g;
    memset(&g, 0, sizeof g);
    g.x = mirt__cu_reader_of(&args->x, s->ci);
    g.dy = mirt__cu_reader_of(&args->dy, s->co);
    g.h = s->h;
    g.w = s->w;
    g.ci = s->ci;
    g.oh = s->oh;
    g.ow = s->ow;
    g.co = s->co;
    g.kw = s->kw;
    g.stride_h = s->stride_h;
    g.stride_w = s->stride_w;
    g.dilation_h = s->dilation_h;
    g.dilation_w = s->dilation_w;
    g.pad_top = (int)s->pad_top;
    g.pad_left = (int)s->pad_left;
    g.channels = s->ci / s->groups;
    g.m = (int64_t)s->kh * s->kw * g.channels;
    g.n = s->co / s->groups;
    g.pixels = s->rows * s->oh * s->ow;
    g.flat = mirt__cu_wgrad_pixels(s);
    g.image = mirt__cu_divisor_of(s->oh * s->ow);
    g.line = mirt__cu_divisor_of(s->ow);
    g.gate = mirt__cu_divisor_of(g.x.gate_pixels);
    g.bias = args->db != NULL;
    if (g.m < 1 || s->co < 1) return;

    const bool half = args->half && cu->major >= 8;
    const int width = half ? 8 : 4, tile_wide = 64, tile_large = 128;
    g.wide = g.x.width >= width && g.dy.width >= width && g.channels % width == 0 && g.n % width == 0;
    g.large = g.wide && g.m > tile_wide && g.n > tile_wide;
    const int tile = g.large ? tile_large : tile_wide;
    g.tiles_m = (int)mirt__cu_ceil(g.m, tile);
    g.tiles_n = (int)mirt__cu_ceil(g.n, tile);
    g.sum_floats = g.m * s->co + (g.bias ? s->co : 0);
    /* Never more parts for fewer pixels. */
    int64_t parts = MIRT__CU_WGRAD_BLOCKS / ((int64_t)g.tiles_m * g.tiles_n * s->groups);
    const int64_t worth = g.pixels / MIRT__CU_WGRAD_PIXELS, most = MIRT__CU_WGRAD_SUMS / g.sum_floats;
    if (parts > worth) parts = worth;
    if (parts > most) parts = most;
    if (parts < 1) parts = 1;
    if (parts > 1) g.sums = (float *)mirt__cu_room(cu, (size_t)(parts * g.sum_floats) * sizeof(float));
    g.part = mirt__cu_ceil(mirt__cu_ceil(g.pixels, parts), 32) * 32;
    parts = g.pixels > 0 ? mirt__cu_ceil(g.pixels, g.part) : 0;
    if (parts == 1) {
        g.dkernel = args->dkernel;
        g.db = args->db;
    }
    if (parts > 0) {
        g.round = args->half && !half;
        if (half) mirt__cu_wgrad_by<MIRT__CU_BY_HALF, 8>(cu, &g, s->groups, parts);
        else if (cu->tf32 && cu->major >= 8) mirt__cu_wgrad_by<MIRT__CU_BY_TF32, 4>(cu, &g, s->groups, parts);
        else mirt__cu_wgrad_by<MIRT__CU_BY_FMA, 4>(cu, &g, s->groups, parts);
    }
    if (parts != 1) mirt__cu_parts_total(cu, g.sums, parts, g.sum_floats, g.m * s->co, args->dkernel, s->co, args->db);
}
