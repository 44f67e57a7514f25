#ifndef MIRT__CUDA_EPILOGUE_CUH
#define MIRT__CUDA_EPILOGUE_CUH
/* What happens to outputs before they are stored (mirt__epilogue), and their column sums. Each thread adds up what it
   stores, a block combines its threads' sums into a chunk, and a small kernel adds the chunks in ascending order, in
   double. */

#include "reader.cuh"

/* Usual epilogues, for which kernels may have code of their own. MOMENTS: of what is normalized next, perhaps with a
   bias. GRADIENT: of what was normalized, with an activation of mirt__cu_simple, perhaps added and masked by ReLU.
   OUTPUT: no sums, masks or slopes, an activation of mirt__cu_simple. NORMALIZED: of these, one that is normalized
   without a bias, to which nothing is added. */
typedef enum mirt__cu_ending {
    MIRT__CU_END_ANY,
    MIRT__CU_END_MOMENTS,
    MIRT__CU_END_GRADIENT,
    MIRT__CU_END_OUTPUT,
    MIRT__CU_END_NORMALIZED
} mirt__cu_ending;
/* Calls of(constant) with the constant that equals `ending`, so that `of` may name a template's instance. */
#define MIRT__CU_BY_ENDING(ending, of) \
    ((ending) == MIRT__CU_END_MOMENTS      ? of(MIRT__CU_END_MOMENTS) \
     : (ending) == MIRT__CU_END_GRADIENT   ? of(MIRT__CU_END_GRADIENT) \
     : (ending) == MIRT__CU_END_OUTPUT     ? of(MIRT__CU_END_OUTPUT) \
     : (ending) == MIRT__CU_END_NORMALIZED ? of(MIRT__CU_END_NORMALIZED) \
                                           : of(MIRT__CU_END_ANY))

typedef struct mirt__cu_epilogue {
    void *y;
    mirt_dtype dtype; /* of y, add, mask and slope_x: float32 or 16 bits */
    int width;        /* 8, 4 or 1: the most neighbors in a row that may be handled at once, at multiples of it */
    int64_t columns;
    const float *bias;
    const void *add, *mask, *slope_x;
    mirt__scaling norm, slope; /* mean NULL: there is none */
    mirt_activation_kind activation, mask_activation;
    mirt__column_sums sums;
} mirt__cu_epilogue;

static mirt__cu_epilogue mirt__cu_epilogue_of(const mirt__epilogue *e, void *y, mirt_dtype dtype, int64_t columns) {
    mirt__cu_epilogue d;
    memset(&d, 0, sizeof d);
    d.y = y;
    d.dtype = dtype;
    d.columns = columns;
    d.bias = e->bias;
    d.norm = mirt__cu_scaling_of(e->norm);
    d.add = e->add;
    d.activation = e->activation;
    d.mask = e->mask;
    d.mask_activation = e->mask_activation;
    d.slope = mirt__cu_scaling_of(e->slope);
    d.slope_x = e->slope ? e->slope_x : NULL;
    d.sums = e->sums;
    d.width = columns % 8 == 0 ? 8 : columns % 4 == 0 ? 4 : 1;
    while (d.width > 1 &&
           !(mirt__cu_aligned_for(y, dtype, d.width) && mirt__cu_aligned_for(d.add, dtype, d.width) &&
             mirt__cu_aligned_for(d.mask, dtype, d.width) && mirt__cu_aligned_for(d.slope_x, dtype, d.width))) {
        d.width = d.width == 8 ? 4 : 1;
    }
    return d;
}
/* Which usual one it is, where four neighbors can be handled at once. */
static inline mirt__cu_ending mirt__cu_ending_of(const mirt__cu_epilogue &e) {
    if (e.width < 4) return MIRT__CU_END_ANY;
    if (e.sums == MIRT__SUMS_NONE && !e.mask && !e.slope.mean && mirt__cu_simple(e.activation))
        return e.norm.mean && !e.bias && !e.add ? MIRT__CU_END_NORMALIZED : MIRT__CU_END_OUTPUT;
    if (e.norm.mean || e.activation != MIRT_LINEAR) return MIRT__CU_END_ANY;
    if (e.sums == MIRT__SUMS_MOMENTS && !e.add && !e.mask && !e.slope.mean) return MIRT__CU_END_MOMENTS;
    if (e.sums == MIRT__SUMS_GRADIENT && !e.bias && e.slope.mean && mirt__cu_simple(e.slope.activation) &&
        (!e.mask || e.mask_activation == MIRT_RELU))
        return MIRT__CU_END_GRADIENT;
    return MIRT__CU_END_ANY;
}
/* The same, such that a compiler knows which one it is, and from element `at` on. */
template <int END, int DTYPE>
static inline __device__ mirt__cu_epilogue mirt__cu_ending_from(const mirt__cu_epilogue &from, int64_t at) {
    mirt__cu_epilogue e = from;
    const bool written = END == MIRT__CU_END_OUTPUT || END == MIRT__CU_END_NORMALIZED;
    if (END != MIRT__CU_END_ANY) {
        e.dtype = (mirt_dtype)DTYPE;
        e.width = 4;
        e.mask_activation = MIRT_RELU;
        e.sums = END == MIRT__CU_END_MOMENTS    ? MIRT__SUMS_MOMENTS
                 : END == MIRT__CU_END_GRADIENT ? MIRT__SUMS_GRADIENT
                                                : MIRT__SUMS_NONE;
        if (END == MIRT__CU_END_MOMENTS || END == MIRT__CU_END_NORMALIZED) e.add = NULL;
        if (END == MIRT__CU_END_GRADIENT || END == MIRT__CU_END_NORMALIZED) e.bias = NULL;
        if (END != MIRT__CU_END_GRADIENT) {
            e.mask = NULL;
            e.slope.mean = NULL;
        }
        if (!written) {
            e.norm.mean = NULL;
            e.activation = MIRT_LINEAR;
        }
    }
    const int64_t bytes = at * (mirt__cu_is_half(e.dtype) ? 2 : 4);
    e.y = static_cast<char *>(e.y) + bytes;
    if (e.add) e.add = static_cast<const char *>(e.add) + bytes;
    if (e.mask) e.mask = static_cast<const char *>(e.mask) + bytes;
    if (e.slope.mean) e.slope_x = static_cast<const char *>(e.slope_x) + bytes;
    return e;
}

/* N columns of it; those that do not exist are not looked at. */
template <int N> struct mirt__cu_finish_columns {
    float bias[N], mean[N], factor[N], offset[N], slope_mean[N], slope_factor[N], slope_offset[N];
};
/* Columns [j, j + n), at most N. */
template <int N>
static inline __device__ void mirt__cu_finish_columns_of(const mirt__cu_epilogue &e, int64_t j, int n,
                                                         mirt__cu_finish_columns<N> &c) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i >= n) break;
        c.bias[i] = e.bias ? e.bias[j + i] : 0.0f;
        if (e.norm.mean) {
            c.mean[i] = e.norm.mean[j + i];
            c.factor[i] = mirt__cu_norm_factor(e.norm, j + i);
            c.offset[i] = e.norm.beta ? e.norm.beta[j + i] : 0.0f;
        }
        if (e.slope.mean) {
            c.slope_mean[i] = e.slope.mean[j + i];
            c.slope_factor[i] = mirt__cu_norm_factor(e.slope, j + i);
            c.slope_offset[i] = e.slope.beta ? e.slope.beta[j + i] : 0.0f;
        }
    }
}

/* Elements [at, at + n) of tensors like y, at most N of them, on their way: N words at once, or one by one as floats. N
   is 1, 4 or 8. */
template <int N> struct mirt__cu_finish_raw {
    uint32_t add[N], mask[N], z[N];
};
template <int N>
static inline __device__ void mirt__cu_finish_words(const mirt__cu_epilogue &e, const void *from, int64_t at, int n,
                                                    uint32_t *to) {
    if (n >= N && N <= e.width) {
        if (mirt__cu_is_half(e.dtype)) mirt__cu_fetch_words<N>(from, (mirt_dtype)MIRT__BFLOAT16, at, to);
        else mirt__cu_fetch_words<N>(from, MIRT_FLOAT32, at, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = i < n ? __float_as_uint(mirt__cu_load(from, e.dtype, at + i)) : 0;
}
template <int N>
static inline __device__ void mirt__cu_finish_floats(const mirt__cu_epilogue &e, int n, const uint32_t *words,
                                                     float *to) {
    if (n >= N && N <= e.width && mirt__cu_is_half(e.dtype)) {
        if ((int)e.dtype == MIRT__FLOAT16) mirt__cu_make_halves<true, N>(words, to);
        else mirt__cu_make_halves<false, N>(words, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = __uint_as_float(words[i]);
}
template <int N>
static inline __device__ void mirt__cu_finish_fetch(const mirt__cu_epilogue &e, int64_t at, int n,
                                                    mirt__cu_finish_raw<N> &raw) {
    if (e.add) mirt__cu_finish_words<N>(e, e.add, at, n, raw.add);
    if (e.mask) mirt__cu_finish_words<N>(e, e.mask, at, n, raw.mask);
    if (e.slope.mean) mirt__cu_finish_words<N>(e, e.slope_x, at, n, raw.z);
}
/* x, n columns, becomes what is to be stored. z takes slope_x, where there is a slope; SIMPLE: activations are of
   mirt__cu_simple. */
template <int N, bool SIMPLE = false>
static inline __device__ void mirt__cu_finish_with(const mirt__cu_epilogue &e, const mirt__cu_finish_columns<N> &c,
                                                   const mirt__cu_finish_raw<N> &raw, int n, float *x, float *z) {
    float other[N];
    if (e.bias) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __fadd_rn(x[i], c.bias[i]);
    }
    if (e.norm.mean) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = mirt__cu_normed(x[i], c.mean[i], c.factor[i], c.offset[i]);
    }
    if (e.add) {
        mirt__cu_finish_floats<N>(e, n, raw.add, other);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __fadd_rn(x[i], other[i]);
    }
    mirt__cu_activate_n<N, SIMPLE>(e.activation, x);
    if (e.mask) {
        mirt__cu_finish_floats<N>(e, n, raw.mask, other);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = mirt__cu_times_slope_of_output(e.mask_activation, x[i], other[i]);
    }
    if (e.slope.mean) {
        mirt__cu_finish_floats<N>(e, n, raw.z, z);
#pragma unroll
        for (int i = 0; i < N; i++)
            other[i] = mirt__cu_normed(z[i], c.slope_mean[i], c.slope_factor[i], c.slope_offset[i]);
        mirt__cu_times_slope_n<N, SIMPLE>(e.slope.activation, x, other);
    }
}
/* Both at once; the first column is element `at` of y. */
template <int N>
static inline __device__ void mirt__cu_finish(const mirt__cu_epilogue &e, const mirt__cu_finish_columns<N> &c,
                                              int64_t at, int n, float *x, float *z) {
    mirt__cu_finish_raw<N> raw;
    mirt__cu_finish_fetch<N>(e, at, n, raw);
    mirt__cu_finish_with<N>(e, c, raw, n, x, z);
}
template <int N>
static inline __device__ void mirt__cu_finish_store(const mirt__cu_epilogue &e, int64_t at, int n, const float *x) {
    if (n >= N && N <= e.width) {
        mirt__cu_store_as<N>(e.y, e.dtype, at, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i < n) mirt__cu_store(e.y, e.dtype, at + i, x[i]);
    }
}

/* ---- Sums of columns. */

/* What a thread has seen of N columns. Moments are of what lies above the first number; of gradients: dy and dy *
   (slope_x - mean). */
template <int N> struct mirt__cu_sums {
    float count, shift[N], first[N], second[N];
};
template <int N> static inline __device__ void mirt__cu_sums_begin(mirt__cu_sums<N> &s) {
    s.count = 0;
#pragma unroll
    for (int i = 0; i < N; i++) s.shift[i] = s.first[i] = s.second[i] = 0;
}
/* The same as mirt__cu_moments_add, but the caller sets the shift and the count. */
template <int N> static inline __device__ void mirt__cu_moments_above(mirt__cu_sums<N> &s, const float *x) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float away = x[i] - s.shift[i];
        s.first[i] += away;
        s.second[i] = fmaf(away, away, s.second[i]);
    }
}
template <int N>
static inline __device__ void mirt__cu_moments_add(mirt__cu_sums<N> &s, const float *x, bool later = false) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (!later && s.count == 0) s.shift[i] = x[i];
    }
    mirt__cu_moments_above<N>(s, x);
    s.count += 1;
}
/* `later`: these are not the first. */
template <int N>
static inline __device__ void mirt__cu_sums_add(const mirt__cu_epilogue &e, const mirt__cu_finish_columns<N> &c,
                                                mirt__cu_sums<N> &s, const float *x, const float *z,
                                                bool later = false) {
    if (e.sums == MIRT__SUMS_NONE) return;
    if (e.sums == MIRT__SUMS_MOMENTS) return mirt__cu_moments_add<N>(s, x, later);
#pragma unroll
    for (int i = 0; i < N; i++) {
        s.first[i] += x[i];
        if (e.sums == MIRT__SUMS_GRADIENT) s.second[i] = fmaf(x[i], z[i] - c.slope_mean[i], s.second[i]);
    }
    s.count += 1;
}

/* Where chunks' sums lie: of chunk i, `columns` first sums, second sums and, of moments, what those are above of; and
   how many numbers. Room of mirt__cu_sums_bytes. */
typedef struct mirt__cu_chunks {
    float *part, *count;
    double *group;
    int64_t columns, chunks;
} mirt__cu_chunks;

#define MIRT__CU_SUM_LANES 16
#define MIRT__CU_SUM_GROUP 128 /* chunks that one block adds up: each lane asks for all of its own at once */
static inline int64_t mirt__cu_round_up(int64_t n, int64_t to) { return mirt__cu_ceil(n, to) * to; }
static size_t mirt__cu_sums_bytes(mirt__column_sums sums, int64_t columns, int64_t chunks) {
    if (sums == MIRT__SUMS_NONE || chunks < 1) return 0;
    const int64_t groups = mirt__cu_ceil(chunks, MIRT__CU_SUM_GROUP);
    return (size_t)(mirt__cu_round_up(chunks * 3 * columns * 4, 256) + mirt__cu_round_up(chunks * 4, 256) +
                    (groups > 1 ? mirt__cu_round_up(groups * 3 * columns * 8, 256) : 0));
}
static mirt__cu_chunks mirt__cu_chunks_of(void *room, mirt__column_sums sums, int64_t columns, int64_t chunks) {
    mirt__cu_chunks c;
    memset(&c, 0, sizeof c);
    c.columns = columns;
    c.chunks = chunks;
    if (!room || sums == MIRT__SUMS_NONE) return c;
    char *at = (char *)room;
    c.part = (float *)at;
    at += mirt__cu_round_up(chunks * 3 * columns * 4, 256);
    c.count = (float *)at;
    c.group = (double *)(at + mirt__cu_round_up(chunks * 4, 256));
    return c;
}

/* Floats of shared memory for mirt__cu_sums_leave. */
static inline __host__ __device__ int mirt__cu_sums_floats(int lanes, int columns) { return lanes * (3 * columns + 1); }
/* All threads of a block call: thread `across` + `lane` * (columns / N) has the sums of columns [across * N, ...) of
   the block's `columns`, of which `n` exist; they become chunk `chunk`'s from column `first` on. `counts`: this block
   is the one to say how many numbers. */
template <int N>
static inline __device__ void mirt__cu_sums_leave(const mirt__cu_epilogue &e, const mirt__cu_chunks &to,
                                                  const mirt__cu_sums<N> &s, int across, int lane, int lanes,
                                                  int columns, int n, int64_t chunk, int64_t first, bool counts,
                                                  float *shared) {
    float *count = shared + lanes * 3 * columns;
    const bool moments = e.sums == MIRT__SUMS_MOMENTS;
    if (e.sums == MIRT__SUMS_NONE) return;
    __syncthreads(); /* of what was in `shared` */
    if (lane < lanes) {
        float *mine = shared + lane * 3 * columns + across * N;
        if (across == 0) count[lane] = s.count;
#pragma unroll
        for (int i = 0; i < N; i++) {
            mine[i] = s.first[i];
            mine[columns + i] = s.second[i];
            mine[2 * columns + i] = s.shift[i];
        }
    }
    __syncthreads();
    const int thread = (int)(threadIdx.x + blockDim.x * threadIdx.y), threads = (int)(blockDim.x * blockDim.y);
    for (int j = thread; j < n; j += threads) {
        float a = 0, b = 0, shift = 0, all = 0;
        for (int i = 0; i < lanes; i++) {
            const float more = count[i], x = shared[3 * i * columns + j], y = shared[(3 * i + 1) * columns + j],
                        z = shared[(3 * i + 2) * columns + j];
            if (more == 0) continue;
            if (all == 0) shift = z;
            if (moments) { /* all are brought above the same number, which is one of them */
                const float away = z - shift;
                a += fmaf(more, away, x);
                b += fmaf(away, fmaf(more, away, 2 * x), y);
            } else {
                a += x;
                b += y;
            }
            all += more;
        }
        float *part = to.part + 3 * chunk * to.columns + first + j;
        part[0] = a;
        part[to.columns] = b;
        part[2 * to.columns] = shift;
        if (counts && j == 0) to.count[chunk] = all;
    }
}

/* What `all` numbers' sums a and b in column j make; moments about `shift`. */
static inline __device__ void mirt__cu_sums_out(const mirt__cu_epilogue &e, int64_t j, double shift, double all,
                                                double a, double b, float *out0, float *out1) {
    if (e.sums == MIRT__SUMS_MOMENTS) {
        const double average = all > 0 ? a / all : 0, squares = b - average * a;
        out0[j] = (float)(shift + average);
        out1[j] = (float)(all > 0 && squares > 0 ? squares / all : 0);
    } else {
        out0[j] = (float)a;
        out1[j] = (float)(b / sqrt((double)e.slope.variance[j] + (double)e.slope.epsilon));
    }
}

/* A column's sums over the lanes of a block, in their order; lane 0 gets them. */
static inline __device__ void mirt__cu_sums_of_lanes(double *room, double *all, double *a, double *b) {
    const int lane = (int)threadIdx.y, x = (int)threadIdx.x;
    room[(3 * lane) * 32 + x] = *all;
    room[(3 * lane + 1) * 32 + x] = *a;
    room[(3 * lane + 2) * 32 + x] = *b;
    __syncthreads();
    for (int i = 1; i < MIRT__CU_SUM_LANES && lane == 0; i++) {
        *all += room[(3 * i) * 32 + x];
        *a += room[(3 * i + 1) * 32 + x];
        *b += room[(3 * i + 2) * 32 + x];
    }
}
/* The sums of the group of chunks blockIdx.y: moments about the shift of the first chunk. */
static __global__ void __launch_bounds__(32 * MIRT__CU_SUM_LANES)
mirt__cu_sums_kernel(mirt__cu_epilogue e, mirt__cu_chunks from, float *out0, float *out1) {
    MIRT_SHARED(double, room, 3 * MIRT__CU_SUM_LANES * 32);
    const int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x, begin = (int64_t)blockIdx.y * MIRT__CU_SUM_GROUP;
    const int64_t end = begin + MIRT__CU_SUM_GROUP < from.chunks ? begin + MIRT__CU_SUM_GROUP : from.chunks;
    const bool moments = e.sums == MIRT__SUMS_MOMENTS;
    double all = 0, a = 0, b = 0, shift = 0;
    if (j < from.columns) {
        if (moments && end > begin) shift = (double)from.part[2 * from.columns + j];
#pragma unroll
        for (int k = 0; k < MIRT__CU_SUM_GROUP / MIRT__CU_SUM_LANES; k++) {
            const int64_t i = begin + threadIdx.y + k * MIRT__CU_SUM_LANES;
            if (i >= end) continue;
            const float *part = from.part + 3 * i * from.columns + j;
            const double count = (double)from.count[i], p = (double)part[0], q = (double)part[from.columns];
            const double away = moments ? (double)part[2 * from.columns] - shift : 0;
            if (count == 0) continue;
            all += count;
            a += p + count * away;
            b += q + away * (2 * p + count * away);
        }
    }
    mirt__cu_sums_of_lanes(room, &all, &a, &b);
    if (threadIdx.y > 0 || j >= from.columns) return;
    if (gridDim.y > 1) {
        double *group = from.group + (int64_t)blockIdx.y * 3 * from.columns + j;
        group[0] = all;
        group[from.columns] = a;
        group[2 * from.columns] = b;
        return;
    }
    mirt__cu_sums_out(e, j, shift, all, a, b, out0, out1);
}
static __global__ void __launch_bounds__(32 * MIRT__CU_SUM_LANES)
    mirt__cu_sums_groups_kernel(mirt__cu_epilogue e, mirt__cu_chunks from, int64_t groups, float *out0, float *out1) {
    MIRT_SHARED(double, room, 3 * MIRT__CU_SUM_LANES * 32);
    const int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x;
    double all = 0, a = 0, b = 0;
    for (int64_t i = threadIdx.y; i < groups && j < from.columns; i += MIRT__CU_SUM_LANES) {
        const double *group = from.group + i * 3 * from.columns + j;
        all += group[0];
        a += group[from.columns];
        b += group[2 * from.columns];
    }
    mirt__cu_sums_of_lanes(room, &all, &a, &b);
    if (threadIdx.y > 0 || j >= from.columns) return;
    const double shift = e.sums == MIRT__SUMS_MOMENTS ? (double)from.part[2 * from.columns + j] : 0;
    mirt__cu_sums_out(e, j, shift, all, a, b, out0, out1);
}
/* Means of images, each of which has `each` chunks of sums and `pixels` pixels. */
static __global__ void __launch_bounds__(128)
    mirt__cu_sums_images_kernel(mirt__cu_chunks from, int64_t each, double pixels, int64_t images, float *out) {
    const int64_t at = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (at >= images * from.columns) return;
    const int64_t image = at / from.columns, j = at - image * from.columns;
    double sum = 0;
    for (int64_t i = image * each; i < (image + 1) * each; i++) sum += (double)from.part[3 * i * from.columns + j];
    out[at] = (float)(sum / pixels);
}

/* The chunks' sums as the epilogue's; chunk 0 has numbers, unless there is none: zeros. Of images: each has as many
   chunks, `pixels` numbers per column. */
static void mirt__cu_sums_finish(mirt__cu *cu, const mirt__cu_epilogue *epilogue, const mirt__cu_chunks *chunks,
                                 mirt__real *const *sum, int64_t images, int64_t pixels) {
    const mirt__cu_epilogue e = *epilogue;
    const mirt__cu_chunks from = *chunks;
    float *out0 = sum[0], *out1 = sum[1];
    if (e.sums == MIRT__SUMS_NONE || from.columns < 1) return;
    if (e.sums == MIRT__SUMS_IMAGES) {
        if (images < 1 || from.chunks < 1) return;
        const int64_t each = from.chunks / images;
        MIRT_LAUNCH(cu, mirt__cu_sums_images_kernel, (unsigned)mirt__cu_ceil(images * from.columns, 128), 128, 0, from,
                    each, (double)pixels, images, out0);
        return;
    }
    const int64_t groups = from.chunks > MIRT__CU_SUM_GROUP ? mirt__cu_ceil(from.chunks, MIRT__CU_SUM_GROUP) : 1;
    const dim3 grid((unsigned)mirt__cu_ceil(from.columns, 32), (unsigned)groups), block(32, MIRT__CU_SUM_LANES);
    MIRT_LAUNCH(cu, mirt__cu_sums_kernel, grid, block, 0, e, from, out0, out1);
    if (groups > 1)
        MIRT_LAUNCH(cu, mirt__cu_sums_groups_kernel, grid.x, block, 0, e, from, groups, out0, out1);
}

#endif
