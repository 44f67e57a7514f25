#ifndef MIRT__CUDA_READER_CUH
#define MIRT__CUDA_READER_CUH
/* Inputs as kernels read them (mirt__reader): neighboring channels of a pixel, as float. Each thread or block
   computes the constants of a column's normalization once (mirt__cu_columns). */

#include "math.cuh"

/* What there is to do beyond loading and `affine`; MIRT__CU_READ_ANY as a kernel's parameter: as the reader says. */
enum {
    MIRT__CU_READ_ANY = -1, MIRT__CU_READ_PLAIN = 0, MIRT__CU_READ_NORM = 1, MIRT__CU_READ_GATE = 2, MIRT__CU_READ_BACK
    = 4
};

typedef struct mirt__cu_reader {
    const void *data, *z;
    mirt_dtype dtype; /* of both */
    int kind,
        width; /* width: 8, 4 or 1, the most neighbors that may be read at once, at multiples of it within a pixel */
    bool affine;
    float scale, offset;
    int64_t channels; /* 0: not known, data is plain */
    mirt__scaling norm; /* of kinds NORM and BACK */
    const float *sum[2];
    double count;
    const float *gate;
    int64_t gate_pixels;
} mirt__cu_reader;

/* N columns of it. */
template <int N> struct mirt__cu_columns {
    float mean[N], factor[N], offset[N], less[N], part[N];
};
#define MIRT__CU_COLUMN_ROWS 5 /* floats of a column */

/* NULL: zeros. */
static inline mirt__scaling mirt__cu_scaling_of(const mirt__scaling *s) {
    mirt__scaling none;
    memset(&none, 0, sizeof none);
    return s ? *s : none;
}
/* `channels`: of the last axis of what is read, where the reader does not say. */
static mirt__cu_reader mirt__cu_reader_of(const mirt__reader *reader, int64_t channels) {
    mirt__cu_reader r;
    memset(&r, 0, sizeof r);
    r.data = reader->data;
    r.dtype = reader->dtype;
    r.affine = reader->affine;
    r.scale = reader->scale;
    r.offset = reader->offset;
    r.channels = reader->channels > 0 ? reader->channels : channels;
    if (reader->back) {
        r.kind = MIRT__CU_READ_BACK;
        r.norm = reader->back->norm;
        r.z = reader->back->z;
        r.sum[0] = reader->back->sum[0];
        r.sum[1] = reader->back->sum[1];
        r.count = reader->back->count;
    } else if (reader->norm) {
        r.kind = MIRT__CU_READ_NORM;
        r.norm = *reader->norm;
    }
    if (reader->gate) {
        r.kind |= MIRT__CU_READ_GATE;
        r.gate = reader->gate;
        r.gate_pixels = reader->gate_pixels > 0 ? reader->gate_pixels : 1;
    }
    r.width = r.channels % 8 == 0 ? 8 : r.channels % 4 == 0 ? 4 : 1;
    while (r.width > 1 &&
           !(mirt__cu_aligned_for(r.data, r.dtype, r.width) && mirt__cu_aligned_for(r.z, r.dtype, r.width)))
        r.width = r.width == 8 ? 4 : 1;
    if (!mirt__cu_aligned(r.gate, 16)) r.width = 1;
    return r;
}

#define MIRT__CU_KIND(known, r) ((known) == MIRT__CU_READ_ANY ? (r).kind : (known))

static inline __device__ float mirt__cu_norm_inverse_of(float variance, float epsilon) {
    return __fdiv_rn(1.0f, __fsqrt_rn(variance + epsilon));
}
static inline __device__ float mirt__cu_norm_inverse(const mirt__scaling &n, int64_t j) {
    return mirt__cu_norm_inverse_of(n.variance[j], n.epsilon);
}
/* gamma / sqrt(variance + epsilon) */
static inline __device__ float mirt__cu_norm_factor(const mirt__scaling &n, int64_t j) {
    const float inverse = mirt__cu_norm_inverse(n, j);
    return n.gamma ? __fmul_rn(n.gamma[j], inverse) : inverse;
}
static inline __device__ float mirt__cu_normed(float x, float mean, float factor, float offset) {
    return __fadd_rn(__fmul_rn(__fsub_rn(x, mean), factor), offset);
}

/* Columns [j, j + N), which exist. */
template <int KIND, int N>
static inline __device__ void mirt__cu_columns_of(const mirt__cu_reader &r, int64_t j, mirt__cu_columns<N> &c) {
    const int kind = MIRT__CU_KIND(KIND, r);
    if (!(kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_BACK))) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        c.mean[i] = r.norm.mean[j + i];
        c.factor[i] = mirt__cu_norm_factor(r.norm, j + i);
        c.offset[i] = r.norm.beta ? r.norm.beta[j + i] : 0.0f;
        if (kind & MIRT__CU_READ_BACK) {
            c.less[i] = r.sum[0] ? (float)((double)r.sum[0][j + i] / r.count) : 0.0f;
            c.part[i] = r.sum[0] ? __fmul_rn((float)((double)r.sum[1][j + i] / r.count),
                                             mirt__cu_norm_inverse(r.norm, j + i))
                                 : 0.0f;
        }
    }
}
/* Floats of shared memory for rows of n columns; `some` of these are put there by all threads of a block (a barrier
   comes after), and got from there. */
static inline __host__ __device__ int mirt__cu_columns_floats(const mirt__cu_reader &r, int n) {
    return r.kind & MIRT__CU_READ_BACK ? 5 * n : r.kind & MIRT__CU_READ_NORM ? 3 * n : 0;
}
/* One of them, of `channel`, at place `at` of a row. */
static inline __device__ void mirt__cu_column_put(const mirt__cu_reader &r, int64_t channel, float *shared, int n,
                                                  int at) {
    mirt__cu_columns<1> c;
    if (!(r.kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_BACK))) return;
    mirt__cu_columns_of<MIRT__CU_READ_ANY, 1>(r, channel, c);
    shared[at] = c.mean[0];
    shared[n + at] = c.factor[0];
    shared[2 * n + at] = c.offset[0];
    if (!(r.kind & MIRT__CU_READ_BACK)) return;
    shared[3 * n + at] = c.less[0];
    shared[4 * n + at] = c.part[0];
}
static inline __device__ void mirt__cu_columns_put(const mirt__cu_reader &r, int64_t first, int some, int n,
                                                   float *shared, int thread, int threads) {
    for (int j = thread; j < some; j += threads) mirt__cu_column_put(r, first + j, shared, n, j);
}
/* Columns [j, j + N) of those: N 4 or 8 need n and j to be multiples of 4, and `shared` aligned. */
template <int KIND, int N>
static inline __device__ void mirt__cu_columns_get(const mirt__cu_reader &r, const float *shared, int n, int j,
                                                   mirt__cu_columns<N> &c) {
    const int kind = MIRT__CU_KIND(KIND, r);
    if (!(kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_BACK))) return;
    mirt__cu_load_n<N>(shared + j, c.mean);
    mirt__cu_load_n<N>(shared + n + j, c.factor);
    mirt__cu_load_n<N>(shared + 2 * n + j, c.offset);
    if (kind & MIRT__CU_READ_BACK) {
        mirt__cu_load_n<N>(shared + 3 * n + j, c.less);
        mirt__cu_load_n<N>(shared + 4 * n + j, c.part);
    }
}

/* activation(x), of N numbers: one branch for the usual ones. SIMPLE: it is one of mirt__cu_simple. */
template <int N, bool SIMPLE = false>
static inline __device__ void mirt__cu_activate_n(mirt_activation_kind kind, float *x) {
    if (kind == MIRT_LINEAR) return;
    if (SIMPLE ? kind != MIRT_SILU : kind == MIRT_RELU || kind == MIRT_RELU6) {
        const float most = kind == MIRT_RELU6 ? 6.0f : INFINITY;
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = x[i] < 0 ? 0.0f : x[i] > most ? most : x[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = mirt__cu_activate(SIMPLE ? MIRT_SILU : kind, x[i]);
}
/* g times the slope at u. */
template <int N, bool SIMPLE = false>
static inline __device__ void mirt__cu_times_slope_n(mirt_activation_kind kind, float *g, const float *u) {
    if (kind == MIRT_LINEAR) return;
    if (SIMPLE ? kind != MIRT_SILU : kind == MIRT_RELU || kind == MIRT_RELU6) {
        const float most = kind == MIRT_RELU6 ? 6.0f : INFINITY;
#pragma unroll
        for (int i = 0; i < N; i++) g[i] = u[i] > 0 && u[i] < most ? g[i] : 0.0f;
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) g[i] = mirt__cu_times_slope(SIMPLE ? MIRT_SILU : kind, g[i], u[i]);
}
/* Activations that need no calls. */
static inline bool mirt__cu_simple(mirt_activation_kind kind) {
    return kind == MIRT_LINEAR || kind == MIRT_RELU || kind == MIRT_RELU6 || kind == MIRT_SILU;
}

/* Where the gates of a pixel's image begin in `gate`, which is worked out once for a pixel; 0 without gates. */
static inline __device__ int64_t mirt__cu_gate_of(const mirt__cu_reader &r, int64_t pixel) {
    return r.kind & MIRT__CU_READ_GATE ? pixel / r.gate_pixels * r.channels : 0;
}

/* N elements as they lie in memory, which take their time to come: */
template <int N> struct mirt__cu_raw {
    uint32_t x[N], z[N];
};
template <int N, class T> static inline __device__ void mirt__cu_fetch_as(const T *from, uint32_t *to) {
    if constexpr (N == 1) {
        to[0] = from[0];
    } else {
        constexpr int BYTES = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
#pragma unroll
        for (int i = 0; i < N; i += BYTES / sizeof(T)) { /* more than once for words alone */
            const mirt__cu_bytes<BYTES> v = mirt__cu_load_bytes<BYTES>(from + i);
#pragma unroll
            for (int j = 0; j < BYTES / 4; j++) to[i + j] = v.word[j];
        }
    }
}
template <int N>
static inline __device__ void mirt__cu_fetch_words(const void *from, mirt_dtype dtype, int64_t at, uint32_t *to) {
    if (mirt__cu_is_half(dtype)) mirt__cu_fetch_as<N>(static_cast<const uint16_t *>(from) + at, to);
    else if (dtype == MIRT_UINT8 || dtype == MIRT_BOOL)
        mirt__cu_fetch_as<N>(static_cast<const uint8_t *>(from) + at, to);
    else mirt__cu_fetch_as<N>(static_cast<const uint32_t *>(from) + at, to);
}
template <bool FLOAT16, int N> static inline __device__ void mirt__cu_make_halves(const uint32_t *words, float *to) {
    float none;
#pragma unroll
    for (int i = 0; i < N; i += 2)
        mirt__cu_from_word<FLOAT16>(words[i / 2], &to[i], i + 1 < N ? &to[(i + 1) % N] : &none);
}
template <int N> static inline __device__ void mirt__cu_make_words(const uint32_t *words, mirt_dtype dtype, float *to) {
    if ((int)dtype == MIRT__BFLOAT16) {
        mirt__cu_make_halves<false, N>(words, to);
    } else if ((int)dtype == MIRT__FLOAT16) {
        mirt__cu_make_halves<true, N>(words, to);
    } else if (dtype == MIRT_UINT8 || dtype == MIRT_BOOL) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = (float)(words[i / 4] >> i % 4 * 8 & 255);
    } else if (dtype == MIRT_INT32) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = (float)(int32_t)words[i];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = __uint_as_float(words[i]);
    }
}
/* Elements [at, at + N) of a pixel. N is 1, or 4 or 8 and at most the reader's width. */
template <int KIND, int N>
static inline __device__ void mirt__cu_fetch(const mirt__cu_reader &r, int64_t at, mirt__cu_raw<N> &raw) {
    mirt__cu_fetch_words<N>(r.data, r.dtype, at, raw.x);
    if (MIRT__CU_KIND(KIND, r) & MIRT__CU_READ_BACK) mirt__cu_fetch_words<N>(r.z, r.dtype, at, raw.z);
}
/* What they are: channels [j, j + N) of a pixel, whose gates are at gate[gates + j]; c has those columns. */
template <int KIND, int N>
static inline __device__ void mirt__cu_make(const mirt__cu_reader &r, const mirt__cu_columns<N> &c,
                                            const mirt__cu_raw<N> &raw, int64_t gates, int64_t j, float *to) {
    const int kind = MIRT__CU_KIND(KIND, r);
    mirt__cu_make_words<N>(raw.x, r.dtype, to);
    if (kind & MIRT__CU_READ_BACK) {
        float z[N], u[N];
        mirt__cu_make_words<N>(raw.z, r.dtype, z);
#pragma unroll
        for (int i = 0; i < N; i++) {
            z[i] = __fsub_rn(z[i], c.mean[i]);
            u[i] = __fadd_rn(__fmul_rn(z[i], c.factor[i]), c.offset[i]);
        }
        mirt__cu_times_slope_n<N>(r.norm.activation, to, u);
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = __fmul_rn(__fsub_rn(__fsub_rn(to[i], c.less[i]), __fmul_rn(z[i], c.part[i])), c.factor[i]);
    } else if (kind & MIRT__CU_READ_NORM) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = mirt__cu_normed(to[i], c.mean[i], c.factor[i], c.offset[i]);
        mirt__cu_activate_n<N>(r.norm.activation, to);
    } else if (r.affine) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = fmaf(to[i], r.scale, r.offset);
    }
    if (kind & MIRT__CU_READ_GATE) {
        float gate[N];
        mirt__cu_load_n<N>(r.gate + gates + j, gate);
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = __fmul_rn(to[i], gate[i]);
    }
}
/* Both at once. */
template <int KIND, int N>
static inline __device__ void mirt__cu_read(const mirt__cu_reader &r, const mirt__cu_columns<N> &c, int64_t at,
                                            int64_t gates, int64_t j, float *to) {
    mirt__cu_raw<N> raw;
    mirt__cu_fetch<KIND, N>(r, at, raw);
    mirt__cu_make<KIND, N>(r, c, raw, gates, j, to);
}
/* One element, whose channel and gates are not known yet. */
static inline __device__ float mirt__cu_read_one(const mirt__cu_reader &r, int64_t at) {
    mirt__cu_columns<1> c;
    float x;
    int64_t j = 0, pixel = 0;
    if (r.kind != MIRT__CU_READ_PLAIN) {
        pixel = at / r.channels;
        j = at - pixel * r.channels;
        mirt__cu_columns_of<MIRT__CU_READ_ANY, 1>(r, j, c);
    }
    mirt__cu_read<MIRT__CU_READ_ANY, 1>(r, c, at, mirt__cu_gate_of(r, pixel), j, &x);
    return x;
}

#endif
