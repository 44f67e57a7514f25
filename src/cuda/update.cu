/* Adds gradients of several buffers and updates weights, with the CPU kernels' rounding. */
#include "math.cuh"

/* Buffers and the additions that make one sum of them, in order. */
typedef struct mirt__cu_parts {
    int count;
    const float *part[MIRT__MAX_PARTS];
    uint8_t into[MIRT__MAX_PARTS], from[MIRT__MAX_PARTS];
} mirt__cu_parts;

template <class ADDITION>
static void mirt__cu_parts_take(mirt__cu_parts *parts, int count, const mirt__real *const *part, const ADDITION *add) {
    memset(parts, 0, sizeof *parts);
    parts->count = count;
    for (int i = 0; i < count; i++) parts->part[i] = part[i];
    for (int i = 0; i + 1 < count; i++) {
        parts->into[i] = (uint8_t)add[i].into;
        parts->from[i] = (uint8_t)add[i].from;
    }
}

/* The sum of the W elements at i. */
template <int W, int MOST>
static inline __device__ void mirt__cu_parts_sum(const mirt__cu_parts &parts, int64_t i, int64_t there, float *sum) {
    if (MOST <= 2) {
        mirt__cu_load_left<W>(parts.part[parts.into[0]] + i, there, sum);
        if (parts.count == 1) return;
        float other[W];
        mirt__cu_load_left<W>(parts.part[parts.from[0]] + i, there, other);
        for (int k = 0; k < W; k++) sum[k] = __fadd_rn(sum[k], other[k]);
    } else {
        float value[MOST][W];
        int root = 0;
        for (int p = 0; p < parts.count; p++) mirt__cu_load_left<W>(parts.part[p] + i, there, value[p]);
        for (int t = 0; t + 1 < parts.count; t++) {
            const int from = parts.from[t];
            root = parts.into[t];
            for (int k = 0; k < W; k++) value[root][k] = __fadd_rn(value[root][k], value[from][k]);
        }
        for (int k = 0; k < W; k++) sum[k] = value[root][k];
    }
}

/* sum[0 .. count) of the parts. */
template <int W, int MOST>
static __global__ void __launch_bounds__(256)
    mirt__cu_sum_kernel(const mirt__cu_parts parts, float *sum, int64_t count) {
    MIRT__CU_PIECES(i, left, count, W) {
        float value[W];
        mirt__cu_parts_sum<W, MOST>(parts, i, left, value);
        mirt__cu_store_left<W>(sum + i, left, value);
    }
}

static void mirt__cu_sum_parts(mirt__cu *cu, cudaStream_t stream, const mirt__cu_parts &parts, float *sum,
                               int64_t count) {
    bool wide = mirt__cu_aligned(sum, 16);
    if (count <= 0 || parts.count < 1) return;
    for (int i = 0; i < parts.count; i++) wide = wide && mirt__cu_aligned(parts.part[i], 16);
    const unsigned blocks = mirt__cu_blocks(mirt__cu_ceil(count, wide ? 4 : 1), 256);
    const auto sum_of_parts = !wide              ? mirt__cu_sum_kernel<1, MIRT__MAX_PARTS>
                              : parts.count <= 2 ? mirt__cu_sum_kernel<4, 2>
                              : parts.count <= 8 ? mirt__cu_sum_kernel<4, 8>
                                                 : mirt__cu_sum_kernel<4, MIRT__MAX_PARTS>;
    MIRT_LAUNCH_ON(cu, stream, sum_of_parts, blocks, 256, 0, parts, sum, count);
}

/* >>updates */

/* What a step may change. */
typedef struct mirt__cu_rates {
    float *average;
    float rate, new_1, new_2, epsilon, momentum, scale, clip, decay, keep, fresh;
    int nesterov, first, shaped, from_zero, overwrite;
} mirt__cu_rates;

typedef struct mirt__cu_updated {
    int64_t begin, end;
    int copies;
    float *slot[3];
    float *weight[MIRT__MAX_PARTS];
} mirt__cu_updated;

/* The kernels of MIRT_OPTIMIZER_LIST: g becomes what is taken off the weight; velocities of SGD are added to it. */
struct mirt__cu_sgd {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W];
        for (int k = 0; k < W; k++) g[k] = __fmul_rn(r.rate, g[k]);
        if (!u.slot[0]) return;
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) a[k] = __fsub_rn(__fmul_rn(r.momentum, a[k]), g[k]);
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) g[k] = -(r.nesterov ? __fsub_rn(__fmul_rn(r.momentum, a[k]), g[k]) : a[k]);
    }
};
/* The moving averages a of gradients and b of their squares, in slots 0 and 1. */
template <int W>
static inline __device__ void mirt__cu_moments(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i,
                                               int64_t there, const float *g, float *a, float *b) {
    mirt__cu_load_left<W>(u.slot[0] + i, there, a);
    mirt__cu_load_left<W>(u.slot[1] + i, there, b);
    for (int k = 0; k < W; k++) {
        a[k] = __fmaf_rn(__fsub_rn(g[k], a[k]), r.new_1, a[k]);
        b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_2, b[k]);
    }
    mirt__cu_store_left<W>(u.slot[0] + i, there, a);
    mirt__cu_store_left<W>(u.slot[1] + i, there, b);
}
struct mirt__cu_adam {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W], c[W];
        mirt__cu_moments<W>(u, r, i, there, g, a, b);
        if (u.slot[2]) {
            mirt__cu_load_left<W>(u.slot[2] + i, there, c);
            for (int k = 0; k < W; k++) b[k] = c[k] > b[k] ? c[k] : b[k];
            mirt__cu_store_left<W>(u.slot[2] + i, there, b);
        }
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, a[k]), __fadd_rn(__fsqrt_rn(b[k]), r.epsilon));
    }
};
struct mirt__cu_rmsprop {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W], c[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, b);
        for (int k = 0; k < W; k++) b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_1, b[k]);
        mirt__cu_store_left<W>(u.slot[0] + i, there, b);
        if (u.slot[2]) {
            mirt__cu_load_left<W>(u.slot[2] + i, there, a);
            for (int k = 0; k < W; k++) a[k] = __fmaf_rn(__fsub_rn(g[k], a[k]), r.new_1, a[k]);
            mirt__cu_store_left<W>(u.slot[2] + i, there, a);
            for (int k = 0; k < W; k++) {
                b[k] = __fsub_rn(b[k], __fmul_rn(a[k], a[k]));
                b[k] = 0.0f > b[k] ? 0.0f : b[k]; /* a variance: rounding alone can make it negative */
            }
        }
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, g[k]), __fsqrt_rn(__fadd_rn(b[k], r.epsilon)));
        if (!u.slot[1]) return;
        mirt__cu_load_left<W>(u.slot[1] + i, there, c);
        for (int k = 0; k < W; k++) g[k] = __fadd_rn(__fmul_rn(r.momentum, c[k]), g[k]);
        mirt__cu_store_left<W>(u.slot[1] + i, there, g);
    }
};
struct mirt__cu_nadam {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_moments<W>(u, r, i, there, g, a, b);
        for (int k = 0; k < W; k++)
            g[k] = __fdiv_rn(__fadd_rn(__fmul_rn(r.rate, a[k]), __fmul_rn(r.momentum, g[k])),
                             __fadd_rn(__fsqrt_rn(b[k]), r.epsilon));
    }
};
struct mirt__cu_adagrad {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) a[k] = __fadd_rn(a[k], __fmul_rn(g[k], g[k]));
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        /* In one loop with the division registers spill. */
        for (int k = 0; k < W; k++) a[k] = __fsqrt_rn(__fadd_rn(a[k], r.epsilon));
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, g[k]), a[k]);
    }
};
struct mirt__cu_adamax {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) {
            a[k] = __fmaf_rn(__fsub_rn(g[k], a[k]), r.new_1, a[k]);
            b[k] = __fsub_rn(b[k], __fmul_rn(b[k], r.new_2));
            b[k] = b[k] > fabsf(g[k]) ? b[k] : fabsf(g[k]);
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, a[k]), __fadd_rn(b[k], r.epsilon));
    }
};
struct mirt__cu_lion {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) {
            const float ahead = __fsub_rn(g[k], a[k]), way = __fmaf_rn(ahead, r.new_1, a[k]);
            a[k] = __fmaf_rn(ahead, r.new_2, a[k]);
            g[k] = way > 0 ? r.rate : way < 0 ? -r.rate : __fmul_rn(r.rate, way);
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
    }
};

struct mirt__cu_adadelta {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) a[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), a[k]), r.new_1, a[k]);
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) a[k] = __fsqrt_rn(__fadd_rn(a[k], r.epsilon));
        for (int k = 0; k < W; k++) {
            g[k] = __fdiv_rn(__fmul_rn(__fsqrt_rn(__fadd_rn(b[k], r.epsilon)), g[k]), a[k]);
            b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_1, b[k]);
            g[k] = __fmul_rn(g[k], r.rate);
        }
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
    }
};
/* The weights as they are before the update, after their decay. */
template <int W>
static inline __device__ void mirt__cu_decayed(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i,
                                               int64_t there, float *weight) {
    mirt__cu_load_left<W>(u.weight[0] + i, there, weight);
    for (int k = 0; k < W; k++) {
        if (r.from_zero) weight[k] = 0;
        if (r.decay != 0) weight[k] = __fsub_rn(weight[k], __fmul_rn(weight[k], r.decay));
    }
}
struct mirt__cu_schedule_free {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_2, b[k]);
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, g[k]), __fadd_rn(__fsqrt_rn(b[k]), r.epsilon));
        mirt__cu_load_left<W>((r.first ? u.weight[0] : u.slot[0]) + i, there, a);
        mirt__cu_decayed<W>(u, r, i, there, b);
        for (int k = 0; k < W; k++) {
            b[k] = __fmul_rn(r.new_1, __fsub_rn(b[k], a[k]));
            a[k] = __fsub_rn(a[k], g[k]);
            g[k] = __fadd_rn(b[k], __fmul_rn(r.momentum, g[k]));
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
    }
};
struct mirt__cu_ftrl {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W], weight[W];
        if (r.rate == 0) {
            for (int k = 0; k < W; k++) g[k] = 0;
            return;
        }
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        mirt__cu_decayed<W>(u, r, i, there, weight);
        for (int k = 0; k < W; k++) {
            const float before = __fsqrt_rn(a[k]);
            a[k] = __fadd_rn(a[k], __fmul_rn(g[k], g[k]));
            const float root = __fsqrt_rn(a[k]), rise = __fmul_rn(__fsub_rn(root, before), r.momentum);
            b[k] = __fadd_rn(b[k], __fadd_rn(g[k], __fmul_rn(__fsub_rn(r.new_2, rise), weight[k])));
            float clipped = -r.new_1 > b[k] ? -r.new_1 : b[k];
            clipped = r.new_1 < clipped ? r.new_1 : clipped;
            g[k] = __fsub_rn(weight[k],
                             __fdiv_rn(__fmul_rn(__fsub_rn(clipped, b[k]), r.rate), __fadd_rn(root, r.epsilon)));
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
    }
};

template <class RULE, int W, int MOST>
static __global__ void __launch_bounds__(256)
    mirt__cu_update_kernel(const mirt__cu_parts parts, const mirt__cu_updated u, const mirt__cu_rates *rates) {
    const mirt__cu_rates r = *rates;
    MIRT__CU_PIECES(at, there, u.end - u.begin, W) {
        const int64_t i = u.begin + at;
        float g[W], weight[W];
        mirt__cu_parts_sum<W, MOST>(parts, i, there, g);
        if (r.shaped) {
            for (int k = 0; k < W; k++) {
                g[k] = __fmul_rn(g[k], r.scale);
                if (r.clip == 0) continue;
                g[k] = -r.clip > g[k] ? -r.clip : g[k]; /* what is no number stays none */
                g[k] = r.clip < g[k] ? r.clip : g[k];
            }
        }
        RULE::template step<W>(u, r, i, there, g);
        mirt__cu_decayed<W>(u, r, i, there, weight);
        for (int k = 0; k < W; k++) weight[k] = __fsub_rn(weight[k], g[k]);
        if (r.average) {
            float average[W];
            mirt__cu_load_left<W>(r.average + i, there, average);
            for (int k = 0; k < W; k++)
                average[k] = __fadd_rn(__fmul_rn(r.keep, average[k]), __fmul_rn(r.fresh, weight[k]));
            mirt__cu_store_left<W>(r.average + i, there, average);
            for (int k = 0; k < W && r.overwrite; k++) weight[k] = average[k];
        }
        for (int c = 0; c < u.copies; c++) mirt__cu_store_left<W>(u.weight[c] + i, there, weight);
    }
}

template <class RULE> static void mirt__cu_update_by(const mirt__update *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_parts parts;
    mirt__cu_updated u;
    mirt__cu_rates r;
    const int64_t count = args->end - args->begin;
    bool wide = args->begin % 4 == 0 && mirt__cu_aligned(args->average, 16);
    if (count <= 0) return;
    memset(&r, 0, sizeof r);
    memset(&u, 0, sizeof u);
    mirt__cu_parts_take(&parts, args->parts, args->part, args->tree);
    u.begin = args->begin;
    u.end = args->end;
    for (int c = 0; c < args->copies; c++) { /* the same memory may be named for several devices */
        bool named = false;
        for (int k = 0; k < u.copies; k++) named = named || u.weight[k] == args->weight[c];
        if (!named) u.weight[u.copies++] = args->weight[c];
    }
    for (int i = 0; i < 3; i++) {
        u.slot[i] = args->slot[i];
        wide = wide && mirt__cu_aligned(u.slot[i], 16);
    }
    for (int i = 0; i < parts.count; i++) wide = wide && mirt__cu_aligned(parts.part[i], 16);
    for (int i = 0; i < u.copies; i++) wide = wide && mirt__cu_aligned(u.weight[i], 16);
    r.average = args->average;
    r.rate = args->learning_rate;
    r.new_1 = args->new_1;
    r.new_2 = args->new_2;
    r.epsilon = args->epsilon;
    r.momentum = args->momentum;
    r.scale = args->scale;
    r.clip = args->clip;
    r.decay = args->decay;
    r.keep = args->keep;
    r.fresh = args->fresh;
    r.nesterov = args->nesterov;
    r.first = args->first;
    r.shaped = args->shaped;
    r.from_zero = args->from_zero;
    r.overwrite = args->overwrite;
    const mirt__cu_rates *rates = static_cast<const mirt__cu_rates *>(mirt__cu_number(cu, &r, sizeof r));
    const unsigned blocks = mirt__cu_blocks(mirt__cu_ceil(count, wide ? 4 : 1), 256);
    const auto update = !wide              ? mirt__cu_update_kernel<RULE, 1, MIRT__MAX_PARTS>
                        : parts.count <= 2 ? mirt__cu_update_kernel<RULE, 4, 2>
                                           : mirt__cu_update_kernel<RULE, 4, MIRT__MAX_PARTS>;
    MIRT_LAUNCH(cu, update, blocks, 256, 0, parts, u, rates);
}

#define MIRT__CU_UPDATE(kind, name, kernel) case kind: mirt__cu_update_by<mirt__cu_##kernel>(args, where); break;
static void mirt__cu_update(const mirt__update *args, const mirt__where *where) {
    switch (args->kind) {
    MIRT_OPTIMIZER_LIST(MIRT__CU_UPDATE)
    case MIRT__OPTIMIZER_COUNT: break;
    }
}
#undef MIRT__CU_UPDATE

/* >>squares and variables */

/* Eight neighboring threads a piece, which add up every eighth number; squares of float32 are exact in double. */
static __global__ void __launch_bounds__(128)
    mirt__cu_squares_kernel(const float *block, const mirt__square_piece *piece, int pieces, double *squares) {
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = (int)(thread % 8);
    const int64_t number = thread / 8;
    double sum = 0;
    if (number < pieces) {
        const float *g = block + piece[number].begin;
        const int64_t count = piece[number].count, whole = count / 8 * 8;
        for (int64_t i = lane; i < whole; i += 8) sum += (double)g[i] * (double)g[i];
        for (int64_t i = whole; i < count && lane == 0; i++) sum += (double)g[i] * (double)g[i];
    }
    for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0 && number < pieces) squares[number] = sum;
}

static void mirt__cu_squares_now(mirt__cu *cu, const mirt__real *block, const mirt__square_piece *piece, int pieces,
                                 double *squares) {
    const mirt__square_piece *there = reinterpret_cast<const mirt__square_piece *>(cu->sums);
    double *to = reinterpret_cast<double *>(cu->sums + MIRT__MOST_SQUARES * sizeof *piece);
    mirt__cu_upload(cu, cu->sums, piece, (size_t)pieces * sizeof *piece, false);
    MIRT_LAUNCH(cu, mirt__cu_squares_kernel, (unsigned)mirt__cu_ceil(pieces, 16), 128, 0, block, there, pieces, to);
    mirt__cu_download(cu, squares, to, (size_t)pieces * sizeof *squares);
}

static void mirt__cu_squares(mirt__handle *cu, const mirt__real *block, const mirt__square_piece *piece, int pieces,
                             double *squares) {
    if (pieces < 1 || !mirt__cu_outside(cu)) return;
    mirt__cu_squares_now(cu, block, piece, pieces, squares);
    mirt__cu_inside(cu);
}

/* As mirt__aggregate_variable; a row of blocks a variable. */
static __global__ void __launch_bounds__(256) mirt__cu_aggregate_kernel(const mirt__aggregation_job a) {
    const mirt__aggregated v = a.value[blockIdx.y];
    const int64_t step = (int64_t)gridDim.x * blockDim.x, share = a.rows / a.replicas, more = a.rows % a.replicas;
    const float *from = a.from + v.from;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < v.count; i += step) {
        const double first = (double)from[i];
        double sum = 0, total = (double)(share + (0 < more));
        for (int r = 1; r < a.active && v.kind == MIRT_AGGREGATE_MEAN; r++) {
            const double rows = (double)(share + (r < more));
            total += rows;
            sum += rows * ((double)from[r * a.stride + i] - first);
        }
        if (v.kind == MIRT_AGGREGATE_MEAN) sum /= total;
        for (int r = 1; r < a.active && v.kind == MIRT_AGGREGATE_SUM; r++) sum += (double)from[r * a.stride + i];
        const float now = (float)(first + sum);
        float *to = a.to + v.to + i;
        *to = v.kept > 0 ? __fadd_rn(__fmul_rn(v.kept, *to), __fmul_rn(v.taken, now)) : now;
    }
}

static void mirt__cu_aggregate(mirt__handle *cu, const mirt__aggregation_job *args) {
    enum { MOST = 32768 }; /* rows of blocks */
    mirt__cu_enter(cu);
    if (args->active < 1) return;
    for (int at = 0; at < args->values; at += MOST) {
        const int values = args->values - at < (int)MOST ? args->values - at : (int)MOST;
        int64_t most = 0;
        for (int i = at; i < at + values; i++) most = args->value[i].count > most ? args->value[i].count : most;
        mirt__aggregation_job own = *args;
        own.value = static_cast<const mirt__aggregated *>(
            mirt__cu_constant_copy(cu, args->value + at, (size_t)values * sizeof *args->value));
        MIRT_LAUNCH(cu, mirt__cu_aggregate_kernel, dim3(mirt__cu_blocks(most, 256 * 8), (unsigned)values), 256, 0, own);
    }
}

/* >>loading */

template <class RULE> static bool mirt__cu_load_update(mirt__cu *cu) {
    return mirt__cu_load(cu, mirt__cu_update_kernel<RULE, 1, MIRT__MAX_PARTS>) &&
           mirt__cu_load(cu, mirt__cu_update_kernel<RULE, 4, 2>) &&
           mirt__cu_load(cu, mirt__cu_update_kernel<RULE, 4, MIRT__MAX_PARTS>);
}

/* The kernels that first run beside exchanges. */
#define MIRT__CU_LOAD_UPDATE(kind, name, kernel) && mirt__cu_load_update<mirt__cu_##kernel>(cu)
static bool mirt__cu_load_late(mirt__cu *cu) {
    return mirt__cu_load(cu, mirt__cu_sum_kernel<1, MIRT__MAX_PARTS>) && mirt__cu_load(cu, mirt__cu_sum_kernel<4, 2>) &&
           mirt__cu_load(cu, mirt__cu_sum_kernel<4, 8>) && mirt__cu_load(cu, mirt__cu_sum_kernel<4, MIRT__MAX_PARTS>) &&
           mirt__cu_load(cu, mirt__cu_squares_kernel) && mirt__cu_blas_load(cu) &&
           mirt__cu_load(cu, mirt__cu_aggregate_kernel) MIRT_OPTIMIZER_LIST(MIRT__CU_LOAD_UPDATE);
}
#undef MIRT__CU_LOAD_UPDATE
