#ifndef MIRT__CUDA_MATH_CUH
#define MIRT__CUDA_MATH_CUH
/* Arithmetic on devices: activations, 16-bit numbers, vector accesses, sums over warps and blocks. Also quotients by a
   divisor that is the same for a whole kernel. */

#include "cuda.cuh"

#include <math.h>
#include <stdint.h>

/* ---- Activations. As on CPUs; exponentials are those of the device's library at full precision. */

#define MIRT__CU_ELU_SCALE 1.0f
#define MIRT__CU_LEAKY_SCALE 0.2f
static inline __device__ float mirt__cu_layer_scale(mirt_activation_kind kind) {
    return kind == MIRT_LEAKY_RELU ? MIRT__CU_LEAKY_SCALE : MIRT__CU_ELU_SCALE;
}

/* Not a number stays none; far below zero nothing overflows. The exact exponential and quotient would take more time
   than the products that these follow; the fast ones' errors stay below a rounding of 1. */
static inline __device__ float mirt__cu_sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
static inline __device__ float mirt__cu_silu(float x) {
    const float above = x < -88.0f ? -88.0f : x;
    return __fdividef(above, 1.0f + __expf(-above));
}
static inline __device__ float mirt__cu_softplus(float x) { return (x < 0 ? 0.0f : x) + log1pf(expf(-fabsf(x))); }
/* The standard normal distribution's probability of less than x. */
static inline __device__ float mirt__cu_normal(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
static inline __device__ float mirt__cu_hard_sigmoid(float x) { return (x < -3 ? 0.0f : x > 3 ? 6.0f : x + 3) / 6.0f; }

static inline __device__ float mirt__cu_clamped(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}
/* tanh(softplus(x)) = n / (n + 2), n = e (e + 2), e = exp(x). */
static inline __device__ float mirt__cu_mish(float x) {
    const float e = expf(mirt__cu_clamped(x, -88.0f, 20.0f)), n = e * (e + 2);
    return (x < -88.0f ? -88.0f : x) * (n / (n + 2));
}
static inline __device__ float mirt__cu_mish_slope(float u) {
    const float x = mirt__cu_clamped(u, -88.0f, 20.0f), e = expf(x), n = e * (e + 2), w = n + 2;
    return n / w + x * (4 * e * (e + 1)) / (w * w);
}
static inline __device__ float mirt__cu_gelu_gate(float x) {
    return mirt__cu_sigmoid(x * fmaf(MIRT__GELU_CUBE, x * x, MIRT__GELU_SLOPE));
}
static inline __device__ float mirt__cu_gelu_approximate_slope(float u) {
    const float x = mirt__cu_clamped(u, -12.0f, 12.0f), s = mirt__cu_gelu_gate(x);
    return fmaf(x * (s * (1 - s)), fmaf(3 * MIRT__GELU_CUBE, x * x, MIRT__GELU_SLOPE), s);
}

/* The rarer ones by a call, which keeps kernels small. */
static __attribute__((noinline)) __device__ float mirt__cu_activate_curved(mirt_activation_kind kind, float x,
                                                                           float scale) {
    switch (kind) {
    case MIRT_TANH: return tanhf(x);
    case MIRT_ELU: return x > 0 ? x : expm1f(x) * scale;
    case MIRT_GELU: return x * mirt__cu_normal(x);
    case MIRT_SOFTPLUS: return mirt__cu_softplus(x);
    case MIRT_HARD_SIGMOID: return mirt__cu_hard_sigmoid(x);
    case MIRT_HARD_SWISH: return x * mirt__cu_hard_sigmoid(x);
    case MIRT_SELU: return MIRT__SELU_SCALE * (x > 0 ? x : expm1f(x) * MIRT__SELU_ALPHA);
    case MIRT_MISH: return mirt__cu_mish(x);
    case MIRT_SOFTSIGN: return x / (1 + fabsf(x));
    case MIRT_EXPONENTIAL: return expf(x);
    case MIRT_GELU_APPROXIMATE: return (x < -12.0f ? -12.0f : x) * mirt__cu_gelu_gate(x);
    case MIRT_RELU:
    case MIRT_RELU6:
    case MIRT_LEAKY_RELU:
    case MIRT_SIGMOID:
    case MIRT_SILU: break; /* mirt__cu_activate_by */
    MIRT__NOT_ELEMENTWISE;
    }
    return x;
}
static __attribute__((noinline)) __device__ float mirt__cu_slope_curved(mirt_activation_kind kind, float u,
                                                                        float scale) {
    float s;
    switch (kind) {
    case MIRT_TANH: s = tanhf(u); return 1 - s * s;
    case MIRT_ELU: return u > 0 ? 1.0f : expf(u) * scale;
    case MIRT_GELU: return fmaf(u, expf(-0.5f * u * u) * 0.39894228040143268f, mirt__cu_normal(u)); /* 1 / sqrt(2 pi) */
    case MIRT_SOFTPLUS: return mirt__cu_sigmoid(u);
    case MIRT_HARD_SIGMOID: return u > -3 && u < 3 ? 1 / 6.0f : 0.0f;
    case MIRT_HARD_SWISH: return mirt__cu_hard_sigmoid(u) + (u > -3 && u < 3 ? u / 6.0f : 0.0f);
    case MIRT_SELU: return MIRT__SELU_SCALE * (u > 0 ? 1.0f : expf(u) * MIRT__SELU_ALPHA);
    case MIRT_MISH: return mirt__cu_mish_slope(u);
    case MIRT_SOFTSIGN: s = 1 + fabsf(u); return 1 / (s * s);
    case MIRT_EXPONENTIAL: return expf(u);
    case MIRT_GELU_APPROXIMATE: return mirt__cu_gelu_approximate_slope(u);
    case MIRT_RELU:
    case MIRT_RELU6:
    case MIRT_LEAKY_RELU:
    case MIRT_SIGMOID:
    case MIRT_SILU: break; /* mirt__cu_times_slope_by */
    MIRT__NOT_ELEMENTWISE;
    }
    return 1;
}

/* activation(x); `scale` is the slope of leaky relu below zero, or elu's factor. */
static inline __device__ float mirt__cu_activate_by(mirt_activation_kind kind, float x, float scale) {
    switch (kind) {
    case MIRT_RELU: return x < 0 ? 0.0f : x;
    case MIRT_RELU6: return x < 0 ? 0.0f : x > 6 ? 6.0f : x;
    case MIRT_LEAKY_RELU: return x > 0 ? x : x * scale;
    case MIRT_SIGMOID: return mirt__cu_sigmoid(x);
    case MIRT_SILU: return mirt__cu_silu(x);
    case MIRT_TANH:
    case MIRT_ELU:
    case MIRT_GELU:
    case MIRT_HARD_SIGMOID:
    case MIRT_HARD_SWISH:
    case MIRT_SOFTPLUS:
    case MIRT_SELU:
    case MIRT_MISH:
    case MIRT_SOFTSIGN:
    case MIRT_EXPONENTIAL:
    case MIRT_GELU_APPROXIMATE: return mirt__cu_activate_curved(kind, x, scale);
    MIRT__NOT_ELEMENTWISE;
    }
    return x;
}
/* g times the activation's derivative at its input u. */
static inline __device__ float mirt__cu_times_slope_by(mirt_activation_kind kind, float g, float u, float scale) {
    float s;
    switch (kind) {
    case MIRT_RELU: return u > 0 ? g : 0.0f;
    case MIRT_RELU6: return u > 0 && u < 6 ? g : 0.0f;
    case MIRT_LEAKY_RELU: return u > 0 ? g : g * scale;
    case MIRT_SIGMOID: s = mirt__cu_sigmoid(u); return g * (s * (1 - s));
    case MIRT_SILU: s = mirt__cu_sigmoid(u); return g * (s * fmaf(u, 1 - s, 1.0f));
    case MIRT_TANH:
    case MIRT_ELU:
    case MIRT_GELU:
    case MIRT_HARD_SIGMOID:
    case MIRT_HARD_SWISH:
    case MIRT_SOFTPLUS:
    case MIRT_SELU:
    case MIRT_MISH:
    case MIRT_SOFTSIGN:
    case MIRT_EXPONENTIAL:
    case MIRT_GELU_APPROXIMATE: return g * mirt__cu_slope_curved(kind, u, scale);
    MIRT__NOT_ELEMENTWISE;
    }
    return g;
}
/* g times the derivative of a fused activation given its output y. */
static inline __device__ float mirt__cu_times_slope_of_output(mirt_activation_kind kind, float g, float y) {
    switch (kind) {
    case MIRT_RELU: return y > 0 ? g : 0.0f;
    case MIRT_RELU6: return y > 0 && y < 6 ? g : 0.0f;
    case MIRT_SIGMOID: return g * (y * (1 - y));
    case MIRT_TANH: return g * (1 - y * y);
    default: return g;
    }
}
/* Of layers. */
static inline __device__ float mirt__cu_activate(mirt_activation_kind kind, float x) {
    return mirt__cu_activate_by(kind, x, mirt__cu_layer_scale(kind));
}
static inline __device__ float mirt__cu_times_slope(mirt_activation_kind kind, float g, float u) {
    return mirt__cu_times_slope_by(kind, g, u, mirt__cu_layer_scale(kind));
}
static inline __device__ float mirt__cu_slope_of_output(mirt_activation_kind kind, float y) {
    return mirt__cu_times_slope_of_output(kind, 1.0f, y);
}

/* ---- Numbers of 16 bits: bfloat16 as uint16_t, and float16. Rounded to the nearest even; not a number stays none. */

struct mirt__cu_f16 {
    uint16_t bits;
};
template <bool FLOAT16> struct mirt__cu_half_of {
    typedef uint16_t type;
};
template <> struct mirt__cu_half_of<true> {
    typedef mirt__cu_f16 type;
};
static inline __host__ __device__ bool mirt__cu_is_half(mirt_dtype dtype) { return (int)dtype >= MIRT__BFLOAT16; }

static inline __device__ float mirt__cu_from_half(uint16_t half) { return __uint_as_float((uint32_t)half << 16); }
static inline __device__ float mirt__cu_from_half(mirt__cu_f16 half) {
    __half_raw raw;
    raw.x = half.bits;
    return __half2float(__half(raw));
}
static inline __device__ void mirt__cu_to_half(float x, uint16_t *to) {
    *to = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
static inline __device__ void mirt__cu_to_half(float x, mirt__cu_f16 *to) {
    to->bits = static_cast<__half_raw>(__float2half_rn(x)).x;
}
/* Two in a word, the first one low. */
template <bool FLOAT16> static inline __device__ uint32_t mirt__cu_to_word(float low, float high) {
    if constexpr (FLOAT16) {
        const __half2_raw both = static_cast<__half2_raw>(__floats2half2_rn(low, high));
        return (uint32_t)both.x | (uint32_t)both.y << 16;
    } else {
        return (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(low)) |
               (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16;
    }
}
template <bool FLOAT16> static inline __device__ void mirt__cu_from_word(uint32_t word, float *low, float *high) {
    if constexpr (FLOAT16) {
        __half2_raw both;
        both.x = (unsigned short)word;
        both.y = (unsigned short)(word >> 16);
        const float2 floats = __half22float2(__half2(both));
        *low = floats.x;
        *high = floats.y;
    } else {
        *low = __uint_as_float(word << 16);
        *high = __uint_as_float(word & 0xFFFF0000u);
    }
}
/* x as it is read back from memory of a dtype. */
static inline __device__ float mirt__cu_round(float x, mirt_dtype dtype) {
    if ((int)dtype == MIRT__FLOAT16) return __half2float(__float2half_rn(x));
    return (int)dtype == MIRT__BFLOAT16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

/* ---- Accesses. N neighbors from number `at` on, as float; addresses are multiples of N elements (at most of 16
   bytes). */

template <int BYTES> struct mirt__cu_bytes { /* 4, 8 or 16 as one access */
    uint32_t word[BYTES / 4];
};
template <int BYTES> static inline __device__ mirt__cu_bytes<BYTES> mirt__cu_load_bytes(const void *from) {
    mirt__cu_bytes<BYTES> to;
#ifdef MIRT_SIM
    mirt_sim::check_aligned(from, BYTES);
    memcpy(to.word, from, BYTES);
#else
    if (BYTES == 16) {
        const uint4 v = *static_cast<const uint4 *>(from);
        to.word[0] = v.x, to.word[1 % (BYTES / 4)] = v.y, to.word[2 % (BYTES / 4)] = v.z,
        to.word[3 % (BYTES / 4)] = v.w;
    } else if (BYTES == 8) {
        const uint2 v = *static_cast<const uint2 *>(from);
        to.word[0] = v.x, to.word[1 % (BYTES / 4)] = v.y;
    } else {
        to.word[0] = *static_cast<const uint32_t *>(from);
    }
#endif
    return to;
}
template <int BYTES> static inline __device__ void mirt__cu_store_bytes(void *to, const mirt__cu_bytes<BYTES> &from) {
#ifdef MIRT_SIM
    mirt__cu_bytes<BYTES> whole = from;
    mirt_sim::check_aligned(to, BYTES);
    mirt_sim::keep_whole(whole);
    memcpy(to, whole.word, BYTES);
#else
    if (BYTES == 16) {
        *static_cast<uint4 *>(to) = make_uint4(from.word[0], from.word[1 % (BYTES / 4)], from.word[2 % (BYTES / 4)],
                                               from.word[3 % (BYTES / 4)]);
    } else if (BYTES == 8) {
        *static_cast<uint2 *>(to) = make_uint2(from.word[0], from.word[1 % (BYTES / 4)]);
    } else {
        *static_cast<uint32_t *>(to) = from.word[0];
    }
#endif
}

/* N is 1, 2, 4 or 8. */
template <int N> static inline __device__ void mirt__cu_load_n(const float *x, float *to) {
    if (N == 1) {
        to[0] = x[0];
        return;
    }
    const int piece = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += piece) {
        const mirt__cu_bytes<piece * 4> v = mirt__cu_load_bytes<piece * 4>(x + i);
#pragma unroll
        for (int j = 0; j < piece; j++) to[i + j] = __uint_as_float(v.word[j]);
    }
}
template <int N, bool FLOAT16, class H> static inline __device__ void mirt__cu_load_halves(const H *x, float *to) {
    if (N == 1) {
        to[0] = mirt__cu_from_half(x[0]);
        return;
    }
    const int pairs = N < 2 ? 1 : N / 2;
    const mirt__cu_bytes<pairs * 4> v = mirt__cu_load_bytes<pairs * 4>(x);
#pragma unroll
    for (int j = 0; j < pairs; j++) mirt__cu_from_word<FLOAT16>(v.word[j], &to[2 * j], &to[2 * j + (N > 1)]);
}
template <int N>
static inline __device__ void mirt__cu_load_n(const uint16_t *x, float *to) {
    mirt__cu_load_halves<N, false>(x, to);
}
template <int N>
static inline __device__ void mirt__cu_load_n(const mirt__cu_f16 *x, float *to) {
    mirt__cu_load_halves<N, true>(x, to);
}
template <int N> static inline __device__ void mirt__cu_load_n(const uint8_t *x, float *to) {
    if (N < 4) {
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = (float)x[j];
        return;
    }
    const int words = N < 4 ? 1 : N / 4;
    const mirt__cu_bytes<words * 4> v = mirt__cu_load_bytes<words * 4>(x);
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = (float)(v.word[j / 4] >> j % 4 * 8 & 255);
}
template <int N> static inline __device__ void mirt__cu_load_n(const int32_t *x, float *to) {
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = (float)x[j];
}
template <int N> static inline __device__ void mirt__cu_store_n(float *y, const float *from) {
    if (N == 1) {
        y[0] = from[0];
        return;
    }
    const int piece = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += piece) {
        mirt__cu_bytes<piece * 4> v;
#pragma unroll
        for (int j = 0; j < piece; j++) v.word[j] = __float_as_uint(from[i + j]);
        mirt__cu_store_bytes<piece * 4>(y + i, v);
    }
}
template <int N, bool FLOAT16, class H> static inline __device__ void mirt__cu_store_halves(H *y, const float *from) {
    if (N == 1) {
        mirt__cu_to_half(from[0], y);
        return;
    }
    const int pairs = N < 2 ? 1 : N / 2;
    mirt__cu_bytes<pairs * 4> v;
#pragma unroll
    for (int j = 0; j < pairs; j++) v.word[j] = mirt__cu_to_word<FLOAT16>(from[2 * j], from[2 * j + (N > 1)]);
    mirt__cu_store_bytes<pairs * 4>(y, v);
}
template <int N>
static inline __device__ void mirt__cu_store_n(uint16_t *y, const float *from) {
    mirt__cu_store_halves<N, false>(y, from);
}
template <int N>
static inline __device__ void mirt__cu_store_n(mirt__cu_f16 *y, const float *from) {
    mirt__cu_store_halves<N, true>(y, from);
}

/* Goes over [0, count) in pieces of N by all threads of a grid: `first`, and how many there are. */
#define MIRT__CU_PIECES(first, left, count, N) \
    for (int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * (N), left = (count) - first; left > 0; \
         first += (int64_t)gridDim.x * blockDim.x * (N), left = (count) - first)
/* Up to N neighbors of x. */
template <int N> static inline __device__ void mirt__cu_load_left(const float *x, int64_t left, float *to) {
    if (N == 1 || left >= N) {
        mirt__cu_load_n<N>(x, to);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = j < left ? x[j] : 0.0f;
    }
}
template <int N> static inline __device__ void mirt__cu_store_left(float *y, int64_t left, const float *from) {
    if (N == 1 || left >= N) {
        mirt__cu_store_n<N>(y, from);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j < left) y[j] = from[j];
        }
    }
}

/* Of float32, 16 bits, uint8, bool or int32. */
template <int N>
static inline __device__ void mirt__cu_load_as(const void *x, mirt_dtype dtype, int64_t at, float *to) {
    switch ((int)dtype) {
    case MIRT__BFLOAT16: mirt__cu_load_n<N>(static_cast<const uint16_t *>(x) + at, to); break;
    case MIRT__FLOAT16: mirt__cu_load_n<N>(static_cast<const mirt__cu_f16 *>(x) + at, to); break;
    case MIRT_UINT8:
    case MIRT_BOOL: mirt__cu_load_n<N>(static_cast<const uint8_t *>(x) + at, to); break;
    case MIRT_INT32: mirt__cu_load_n<N>(static_cast<const int32_t *>(x) + at, to); break;
    default: mirt__cu_load_n<N>(static_cast<const float *>(x) + at, to); break;
    }
}
static inline __device__ float mirt__cu_load(const void *x, mirt_dtype dtype, int64_t at) {
    float value;
    mirt__cu_load_as<1>(x, dtype, at, &value);
    return value;
}
/* To float32 or 16 bits. */
template <int N>
static inline __device__ void mirt__cu_store_as(void *y, mirt_dtype dtype, int64_t at, const float *from) {
    if ((int)dtype == MIRT__BFLOAT16) mirt__cu_store_n<N>(static_cast<uint16_t *>(y) + at, from);
    else if ((int)dtype == MIRT__FLOAT16) mirt__cu_store_n<N>(static_cast<mirt__cu_f16 *>(y) + at, from);
    else mirt__cu_store_n<N>(static_cast<float *>(y) + at, from);
}
static inline __device__ void mirt__cu_store(void *y, mirt_dtype dtype, int64_t at, float value) {
    mirt__cu_store_as<1>(y, dtype, at, &value);
}

static inline int64_t mirt__cu_size(mirt_dtype dtype) {
    return dtype == MIRT_UINT8 || dtype == MIRT_BOOL ? 1 : mirt__cu_is_half(dtype) ? 2 : 4;
}
/* Whether `pointer` (NULL: yes) begins at a multiple of `bytes`, a power of two. */
static inline bool mirt__cu_aligned(const void *pointer, int64_t bytes) {
    return ((uintptr_t)pointer & (uintptr_t)(bytes - 1)) == 0;
}
/* Whether N neighbors at multiples of N can be accessed at once. */
static inline bool mirt__cu_aligned_for(const void *pointer, mirt_dtype dtype, int64_t n) {
    const int64_t bytes = n * mirt__cu_size(dtype);
    return mirt__cu_aligned(pointer, bytes < 16 ? bytes : 16);
}

/* ---- Quotients of numbers >= 0 by one that is the same for a whole kernel. */

/* By a product with `magic`, which is 2^64 * (2^shift / by - 1), rounded up; `small` is that of 2^32. */
typedef struct mirt__cu_divisor {
    int64_t by;
    uint64_t magic;
    uint32_t small; /* 0: `by` is too large */
    int shift;
} mirt__cu_divisor;
static inline mirt__cu_divisor mirt__cu_divisor_of(int64_t by) {
    mirt__cu_divisor d;
    d.by = by < 1 ? 1 : by;
    d.shift = 0;
    while (((uint64_t)1 << d.shift) < (uint64_t)d.by) d.shift++;
    uint64_t rest = ((uint64_t)1 << d.shift) - (uint64_t)d.by;
    d.magic = 0;
    d.small = d.by > INT32_MAX ? 0 : (uint32_t)((rest << 32) / (uint64_t)d.by + 1);
    for (int i = 0; rest > 0 && i < 64; i++) { /* never 0 later on */
        const bool more = (rest <<= 1) >= (uint64_t)d.by;
        d.magic = d.magic << 1 | (more ? 1 : 0);
        if (more) rest -= (uint64_t)d.by;
    }
    d.magic++;
    return d;
}
static inline __device__ int64_t mirt__cu_divide(int64_t n, const mirt__cu_divisor &d) {
    if ((uint64_t)n >> 31 || d.small == 0)
        return (int64_t)((__umul64hi((uint64_t)n, d.magic) + (uint64_t)n) >> d.shift);
    const uint32_t low = (uint32_t)n;
    return (int64_t)(((uint32_t)(((uint64_t)low * d.small) >> 32) + low) >> d.shift);
}
/* The quotient; *rest takes what remains. */
static inline __device__ int64_t mirt__cu_divmod(int64_t n, const mirt__cu_divisor &d, int64_t *rest) {
    const int64_t quotient = mirt__cu_divide(n, d);
    *rest = n - quotient * d.by;
    return quotient;
}
/* Where n and the divisor are known to be below 2^31. */
static inline __device__ uint32_t mirt__cu_divide32(uint32_t n, const mirt__cu_divisor &d) {
    return ((uint32_t)(((uint64_t)n * d.small) >> 32) + n) >> d.shift;
}

/* ---- Over the threads of a warp or a block, all of which call; the order of additions depends on nothing. */

#define MIRT__CU_ALL 0xFFFFFFFFu
struct mirt__cu_plus {
    template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};
/* A number before none: what is not a number counts for nothing, unless there is nothing else. */
struct mirt__cu_greater {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct mirt__cu_less {
    __device__ float operator()(float a, float b) const { return fminf(a, b); }
};
/* Of each `width` neighboring lanes (a power of two); all of them get it. `what` is commutative. */
template <int WIDTH, class T, class F> static inline __device__ T mirt__cu_lanes(T x, F what) {
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) x = what(x, __shfl_xor_sync(MIRT__CU_ALL, x, step));
    return x;
}
template <class T> static inline __device__ T mirt__cu_warp_sum(T x) { return mirt__cu_lanes<32>(x, mirt__cu_plus()); }
static inline __device__ float mirt__cu_warp_max(float x) { return mirt__cu_lanes<32>(x, mirt__cu_greater()); }
/* Of a block of whole warps along x; all threads get it. `room` is 32 T in shared memory, `none` what adds nothing. */
template <class T, class F> static inline __device__ T mirt__cu_block_all(T x, F what, T none, T *room) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    x = mirt__cu_lanes<32>(x, what);
    if (warps == 1) return x;
    __syncthreads(); /* the last call's readers have gone */
    if (lane == 0) room[warp] = x;
    __syncthreads();
    return mirt__cu_lanes<32>(lane < warps ? room[lane] : none, what);
}
template <class T>
static inline __device__ T mirt__cu_block_sum(T x, T *room) {
    return mirt__cu_block_all(x, mirt__cu_plus(), (T)0, room);
}
static inline __device__ float mirt__cu_block_max(float x, float *room) {
    return mirt__cu_block_all(x, mirt__cu_greater(), -INFINITY, room);
}

#endif
