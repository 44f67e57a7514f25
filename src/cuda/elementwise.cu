/* Elementwise kernels, with broadcasting, and conversions. */
#include "cuda.cuh"
#include "layout.cuh"

#define MIRT__CU_ELEMENT_BLOCK 256
/* A kernel that goes over `count` by MIRT__CU_PIECES. */
#define MIRT__CU_LAUNCH_PIECES(cu, kernel, count, ...) \
    MIRT_LAUNCH(cu, kernel, mirt__cu_blocks(count, MIRT__CU_ELEMENT_BLOCK), MIRT__CU_ELEMENT_BLOCK, 0, __VA_ARGS__)

/* ---- Elements of operands that are walked through together, in row-major order of `dim`. Dimensions of one are left
   out, and neighbors that no operand jumps between are one: same shapes become one run, a bias becomes rows by
   columns. */
typedef struct mirt__cu_walk {
    int rank, operands;
    int64_t count;
    mirt__cu_divisor dim[MIRT_MAX_RANK];
    int64_t stride[3][MIRT_MAX_RANK];
} mirt__cu_walk;

static mirt__cu_walk mirt__cu_walk_of(int rank, const int64_t *dim, int operands, const int64_t *const *stride) {
    mirt__cu_walk w;
    int64_t size[MIRT_MAX_RANK] = {1};
    memset(&w, 0, sizeof w);
    w.operands = operands;
    w.count = 1;
    for (int i = 0; i < rank; i++) {
        bool joins = w.rank > 0;
        w.count *= dim[i];
        if (dim[i] == 1) continue;
        for (int k = 0; k < operands; k++) joins = joins && w.stride[k][w.rank - 1] == stride[k][i] * dim[i];
        if (!joins) size[w.rank++] = 1;
        size[w.rank - 1] *= dim[i];
        for (int k = 0; k < operands; k++) w.stride[k][w.rank - 1] = stride[k][i];
    }
    if (w.rank == 0) {
        w.rank = 1;
        for (int k = 0; k < operands; k++) w.stride[k][0] = 1;
    }
    for (int i = 0; i < w.rank; i++) w.dim[i] = mirt__cu_divisor_of(size[i]);
    return w;
}

/* Whether n neighbors along the last dimension can be taken at a time: they lie side by side or are one, and all of
   them begin at multiples of n. */
static bool mirt__cu_walk_by(const mirt__cu_walk *w, int64_t n) {
    const int last = w->rank - 1;
    if (last > 0 && w->dim[last].by % n) return false;
    for (int k = 0; k < w->operands; k++) {
        if (w->stride[k][last] != 0 && w->stride[k][last] != 1) return false;
        for (int i = 0; i < last; i++) {
            if (w->stride[k][last] && w->stride[k][i] % n) return false;
        }
    }
    return true;
}

/* Where element number `at` lies in each operand. */
template <int OPERANDS>
static inline __device__ void mirt__cu_walk_place(const mirt__cu_walk &w, int64_t at, int64_t *place) {
#pragma unroll
    for (int k = 0; k < OPERANDS; k++) place[k] = 0;
    for (int i = w.rank - 1; i > 0; i--) {
        int64_t rest;
        at = mirt__cu_divmod(at, w.dim[i], &rest);
#pragma unroll
        for (int k = 0; k < OPERANDS; k++) place[k] += rest * w.stride[k][i];
    }
#pragma unroll
    for (int k = 0; k < OPERANDS; k++) place[k] += at * w.stride[k][0];
}

/* Up to N neighbors of float32 or 16 bits. */
template <int N>
static inline __device__ void mirt__cu_get_left(const void *x, mirt_dtype dtype, int64_t at, int64_t left, float *to) {
    if (N == 1 || left >= N) {
        mirt__cu_get<MIRT__CU_EITHER, N>(x, dtype, at, to);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            to[j] = 0;
            if (j < left) mirt__cu_get<MIRT__CU_EITHER, 1>(x, dtype, at + j, to + j);
        }
    }
}
template <int N>
static inline __device__ void mirt__cu_put_left(void *y, mirt_dtype dtype, int64_t at, int64_t left,
                                                const float *from) {
    if (N == 1 || left >= N) {
        mirt__cu_put<MIRT__CU_EITHER, N>(y, dtype, at, from);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j < left) mirt__cu_put<MIRT__CU_EITHER, 1>(y, dtype, at + j, from + j);
        }
    }
}

/* The number of neighbors that a thread takes of tensors that begin there (NULL: of none): 8 where some are of 16 bits,
   otherwise 4, or fewer. `walk`: how they are walked through, or NULL for one run. */
static int mirt__cu_element_width(const mirt__cu_walk *walk, const void *const *x, const mirt_dtype *dtype, int count) {
    bool halves = false;
    for (int k = 0; k < count; k++) halves = halves || (x[k] && mirt__cu_is_half(dtype[k]));
    for (int n = halves ? 8 : 4; n > 1; n = n == 8 ? 4 : 1) {
        bool good = !walk || mirt__cu_walk_by(walk, n);
        for (int k = 0; k < count; k++) good = good && mirt__cu_aligned_for(x[k], dtype[k], n);
        if (good) return n;
    }
    return 1;
}

/* ---- unary */

/* The rows that say CALL. */
#define MIRT__CU_RARE_INLINE(expression) break;
#define MIRT__CU_RARE_CALL(expression) return expression;
#define MIRT__CU_RARE(number, id, label, function, reference, fast, gpu, gradient) case MIRT__##id: MIRT__CU_RARE_##gpu
static __attribute__((noinline)) __device__ float mirt__cu_unary_rare(mirt__unary_kind kind, float x, float scale) {
    switch (kind) { MIRT__UNARY_LIST(MIRT__CU_RARE) }
    return NAN;
}

#define MIRT__CU_UNARY_INLINE(expression) \
    _Pragma("unroll") for (int j = 0; j < N; j++) { \
        const float x = v[j]; \
        v[j] = (expression); \
    }
#define MIRT__CU_UNARY_CALL(expression) rare = true;
#define MIRT__CU_UNARY(number, id, label, function, reference, fast, gpu, ...) \
    case MIRT__##id: \
        MIRT__CU_UNARY_##gpu \
        break;

template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_unary_kernel(const mirt__unary u) {
    const float scale = u.scale, offset = u.offset;
    MIRT__CU_PIECES(at, left, u.count, N) {
        float v[N];
        mirt__cu_get_left<N>(u.x, u.x_dtype, at, left, v);
        bool rare = false;
        switch (u.kind) { MIRT__UNARY_LIST(MIRT__CU_UNARY) }
        for (int j = 0; rare && j < N; j++) v[j] = mirt__cu_unary_rare(u.kind, v[j], scale);
        mirt__cu_put_left<N>(u.y, u.y_dtype, at, left, v);
    }
}

static void mirt__cu_unary(const mirt__unary *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__unary u = *args;
    if (u.count <= 0) return;
    const void *const of[2] = {u.x, u.y};
    const mirt_dtype dtype[2] = {u.x_dtype, u.y_dtype};
    const int n = mirt__cu_element_width(NULL, of, dtype, 2);
    MIRT__CU_LAUNCH_PIECES(cu,
                           (n == 8   ? mirt__cu_unary_kernel<8>
                            : n == 4 ? mirt__cu_unary_kernel<4>
                                     : mirt__cu_unary_kernel<1>),
                           mirt__cu_ceil(u.count, n), u);
}

/* ---- binary */

typedef struct mirt__cu_binary_args {
    mirt__binary b; /* b.b is NULL: it is the number `scale` */
    mirt__cu_walk walk;
} mirt__cu_binary_args;

#undef MIRT__CU_RARE
#define MIRT__CU_RARE(number, id, label, function, reference, fast, gpu) case MIRT__##id: MIRT__CU_RARE_##gpu
static __attribute__((noinline)) __device__ float mirt__cu_binary_rare(mirt__binary_kind kind, float a, float b,
                                                                       float scale) {
    switch (kind) { MIRT__BINARY_LIST(MIRT__CU_RARE) }
    return NAN;
}
#undef MIRT__CU_RARE_INLINE
#undef MIRT__CU_RARE_CALL
#undef MIRT__CU_RARE

#define MIRT__CU_BINARY_INLINE(expression) \
    _Pragma("unroll") for (int j = 0; j < N; j++) { \
        const float a = v[j], b = w[j]; \
        v[j] = (expression); \
    }
#define MIRT__CU_BINARY_CALL(expression) rare = true;
#define MIRT__CU_BINARY(number, id, label, function, reference, fast, gpu) \
    case MIRT__##id: \
        MIRT__CU_BINARY_##gpu \
        break;

/* N neighbors of an operand, or one that stands for all of them. */
template <int N>
static inline __device__ void mirt__cu_get_step(const void *x, mirt_dtype dtype, int64_t at, int64_t step, int64_t left,
                                                float *to) {
    if (N > 1 && step == 0) {
        float one;
        mirt__cu_get<MIRT__CU_EITHER, 1>(x, dtype, at, &one);
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = one;
        return;
    }
    mirt__cu_get_left<N>(x, dtype, at, left, to);
}

/* ADDS: c is added. */
template <int N, bool ADDS>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_binary_kernel(const mirt__cu_binary_args call) {
    const mirt__binary &args = call.b;
    const float scale = args.scale, offset = args.offset;
    const int last = call.walk.rank - 1;
    const int64_t a_step = call.walk.stride[0][last], b_step = call.walk.stride[1][last];
    MIRT__CU_PIECES(at, left, call.walk.count, N) {
        float v[N], w[N];
        int64_t place[ADDS ? 3 : 2];
        mirt__cu_walk_place<ADDS ? 3 : 2>(call.walk, at, place);
        mirt__cu_get_step<N>(args.a, args.a_dtype, place[0], a_step, left, v);
        if (args.b) {
            mirt__cu_get_step<N>(args.b, args.b_dtype, place[1], b_step, left, w);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) w[j] = scale;
        }
        bool rare = false;
        switch (args.kind) { MIRT__BINARY_LIST(MIRT__CU_BINARY) }
        for (int j = 0; rare && j < N; j++) v[j] = mirt__cu_binary_rare(args.kind, v[j], w[j], scale);
        if constexpr (ADDS) {
            mirt__cu_get_step<N>(args.c, args.c_dtype, place[2], call.walk.stride[2][last], left, w);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = __fadd_rn(v[j], w[j]);
        }
        mirt__cu_put_left<N>(args.y, args.y_dtype, at, left, v);
    }
}
#undef MIRT__CU_UNARY_INLINE
#undef MIRT__CU_UNARY_CALL
#undef MIRT__CU_UNARY
#undef MIRT__CU_BINARY_INLINE
#undef MIRT__CU_BINARY_CALL
#undef MIRT__CU_BINARY

template <bool ADDS> static void mirt__cu_binary_launch(mirt__cu *cu, const mirt__cu_binary_args &call, int n) {
    MIRT__CU_LAUNCH_PIECES(cu,
                           (n == 8   ? mirt__cu_binary_kernel<8, ADDS>
                            : n == 4 ? mirt__cu_binary_kernel<4, ADDS>
                                     : mirt__cu_binary_kernel<1, ADDS>),
                           mirt__cu_ceil(call.walk.count, n), call);
}
static void mirt__cu_binary(const mirt__binary *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t *const stride[3] = {args->a_stride, args->b_stride, args->c_stride};
    mirt__cu_binary_args call;
    mirt__binary *b = &call.b;
    *b = *args;
    if (b->number) b->b = NULL;
    call.walk = mirt__cu_walk_of(b->rank, b->dim, b->c ? 3 : 2, stride);
    if (call.walk.count <= 0) return;
    const void *const of[4] = {b->a, b->b, b->c, b->y};
    const mirt_dtype dtype[4] = {b->a_dtype, b->b_dtype, b->c_dtype, b->y_dtype};
    const int n = mirt__cu_element_width(&call.walk, of, dtype, 4);
    if (b->c) mirt__cu_binary_launch<true>(cu, call, n);
    else mirt__cu_binary_launch<false>(cu, call, n);
}

static void mirt__cu_accumulate(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where) {
    mirt__binary b;
    memset(&b, 0, sizeof b);
    b.kind = MIRT__ADD;
    b.rank = 1;
    b.dim[0] = count;
    b.a_stride[0] = b.b_stride[0] = 1;
    b.a = into;
    b.b = from;
    b.y = into;
    mirt__cu_binary(&b, where);
}

/* ---- logic */

typedef struct mirt__cu_logic_args {
    mirt__logic_kind kind;
    const void *in[3];
    void *y;
    mirt__cu_walk walk;
} mirt__cu_logic_args;

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_logic_kernel(const mirt__cu_logic_args l) {
    const bool choice = l.kind == MIRT__WHERE;
    const T *x = static_cast<const T *>(l.in[choice ? 1 : 0]), *z = static_cast<const T *>(l.in[choice ? 2 : 1]);
    uint8_t *truth = static_cast<uint8_t *>(l.y);
    MIRT__CU_PIECES(at, left, l.walk.count, 1) {
        int64_t place[3];
        mirt__cu_walk_place<3>(l.walk, at, place);
        if (choice) {
            static_cast<T *>(l.y)[at] = static_cast<const uint8_t *>(l.in[0])[place[0]] ? x[place[1]] : z[place[2]];
            continue;
        }
        const T a = x[place[0]], b = l.kind == MIRT__NOT ? (T)0 : z[place[1]];
        bool is = false;
#define MIRT__CU_TRUTH(number, id, label, value) case MIRT__##id: is = value; break;
#define MIRT__CU_CHOICE(number, id, label) case MIRT__##id: break;
        switch (l.kind) { MIRT__LOGIC_LIST(MIRT__CU_TRUTH, MIRT__CU_CHOICE) }
#undef MIRT__CU_TRUTH
#undef MIRT__CU_CHOICE
        truth[at] = is ? 1 : 0;
    }
}

static void mirt__cu_logic(const mirt__logic *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t *const stride[3] = {args->stride[0], args->stride[1], args->stride[2]};
    mirt__cu_logic_args l;
    l.kind = args->kind;
    for (int k = 0; k < 3; k++) l.in[k] = args->in[k];
    l.y = args->y;
    l.walk = mirt__cu_walk_of(args->rank, args->dim,
                              args->kind == MIRT__WHERE ? 3
                              : args->kind == MIRT__NOT ? 1
                                                        : 2,
                              stride);
    if (l.walk.count <= 0) return;
    const auto logic = args->dtype == MIRT_FLOAT32 ? mirt__cu_logic_kernel<float>
                       : args->dtype == MIRT_INT32 ? mirt__cu_logic_kernel<int32_t>
                                                   : mirt__cu_logic_kernel<uint8_t>;
    MIRT__CU_LAUNCH_PIECES(cu, logic, l.walk.count, l);
}

/* ---- cast */

/* Truncated toward zero, saturated; not a number becomes 0. */
static inline __device__ int32_t mirt__cu_to_int(float x) {
    return x >= 2147483648.0f ? INT32_MAX : x >= -2147483648.0f ? (int32_t)x : x != x ? 0 : INT32_MIN;
}
static inline __device__ int32_t mirt__cu_to_int(int32_t x) { return x; }
static inline __device__ int32_t mirt__cu_to_int(uint8_t x) { return x; }
static inline __device__ uint8_t mirt__cu_to_byte(float x) { return (uint8_t)(x >= 255 ? 255 : x > 0 ? (int)x : 0); }
static inline __device__ uint8_t mirt__cu_to_byte(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }
static inline __device__ uint8_t mirt__cu_to_byte(uint8_t x) { return x; }

/* N neighbors as one access where there are so many. */
template <int N, class T> struct mirt__cu_pack {
    T v[N];
};
template <int N, class T> static inline __device__ mirt__cu_pack<N, T> mirt__cu_pack_load(const T *x, int64_t left) {
    mirt__cu_pack<N, T> p;
    if (N * sizeof(T) >= 4 && left >= N) {
        const int bytes = N * sizeof(T) < 4 ? 4 : N * sizeof(T) > 16 ? 16 : (int)(N * sizeof(T));
        const mirt__cu_bytes<bytes> raw = mirt__cu_load_bytes<bytes>(x);
        memcpy(p.v, raw.word, sizeof p.v);
        return p;
    }
#pragma unroll
    for (int j = 0; j < N; j++) p.v[j] = j < left ? x[j] : (T)0;
    return p;
}
template <int N, class T>
static inline __device__ void mirt__cu_pack_store(T *y, int64_t left, const mirt__cu_pack<N, T> &p) {
    if (N * sizeof(T) >= 4 && left >= N) {
        const int bytes = N * sizeof(T) < 4 ? 4 : N * sizeof(T) > 16 ? 16 : (int)(N * sizeof(T));
        mirt__cu_bytes<bytes> raw;
        memcpy(raw.word, p.v, sizeof p.v);
        mirt__cu_store_bytes<bytes>(y, raw);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j < left) y[j] = p.v[j];
    }
}

template <int N, class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_cast_kernel(const T *x, void *y, mirt_dtype to, int64_t count) {
    MIRT__CU_PIECES(at, left, count, N) {
        const mirt__cu_pack<N, T> from = mirt__cu_pack_load<N>(x + at, left);
        if (to == MIRT_FLOAT32) {
            mirt__cu_pack<N, float> v;
#pragma unroll
            for (int j = 0; j < N; j++) v.v[j] = (float)from.v[j];
            mirt__cu_pack_store<N>(static_cast<float *>(y) + at, left, v);
        } else if (to == MIRT_INT32) {
            mirt__cu_pack<N, int32_t> v;
#pragma unroll
            for (int j = 0; j < N; j++) v.v[j] = mirt__cu_to_int(from.v[j]);
            mirt__cu_pack_store<N>(static_cast<int32_t *>(y) + at, left, v);
        } else if ((int)to == MIRT__BFLOAT16) {
            mirt__cu_pack<N, uint16_t> v;
#pragma unroll
            for (int j = 0; j < N; j++) mirt__cu_to_half((float)from.v[j], &v.v[j]);
            mirt__cu_pack_store<N>(static_cast<uint16_t *>(y) + at, left, v);
        } else if ((int)to == MIRT__FLOAT16) {
            mirt__cu_pack<N, mirt__cu_f16> v;
#pragma unroll
            for (int j = 0; j < N; j++) mirt__cu_to_half((float)from.v[j], &v.v[j]);
            mirt__cu_pack_store<N>(static_cast<mirt__cu_f16 *>(y) + at, left, v);
        } else {
            mirt__cu_pack<N, uint8_t> v;
#pragma unroll
            for (int j = 0; j < N; j++)
                v.v[j] = to == MIRT_BOOL ? (uint8_t)(from.v[j] != (T)0) : mirt__cu_to_byte(from.v[j]);
            mirt__cu_pack_store<N>(static_cast<uint8_t *>(y) + at, left, v);
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_copy_kernel(const T *x, T *y, int64_t count) {
    MIRT__CU_PIECES(at, left, count, 1) y[at] = x[at];
}
template <class T> static bool mirt__cu_copy_as(mirt__cu *cu, void *y, const void *x, int64_t bytes) {
    const int64_t size = sizeof(T);
    if (bytes % size || !mirt__cu_aligned(x, size) || !mirt__cu_aligned(y, size)) return false;
    MIRT__CU_LAUNCH_PIECES(cu, mirt__cu_copy_kernel<T>, bytes / size, static_cast<const T *>(x), static_cast<T *>(y),
                           bytes / size);
    return true;
}
/* Within the device; `x` and `y` are the same or do not meet. */
static void mirt__cu_copy_bytes(mirt__cu *cu, void *y, const void *x, int64_t bytes) {
    if (x == y || bytes <= 0 || mirt__cu_copy_as<uint4>(cu, y, x, bytes)) return;
    if (!mirt__cu_copy_as<uint32_t>(cu, y, x, bytes)) mirt__cu_copy_as<uint8_t>(cu, y, x, bytes);
}

template <class T> static void mirt__cu_cast_from(mirt__cu *cu, const mirt__cast *c) {
    const int n = mirt__cu_aligned_for(c->x, c->from, 4) && mirt__cu_aligned_for(c->y, c->to, 4) ? 4 : 1;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_cast_kernel<4, T> : mirt__cu_cast_kernel<1, T>),
                           mirt__cu_ceil(c->count, n), static_cast<const T *>(c->x), c->y, c->to, c->count);
}

static void mirt__cu_cast(const mirt__cast *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->count <= 0) return;
    if (args->from == args->to) {
        mirt__cu_copy_bytes(cu, args->y, args->x, args->count * mirt__cu_size(args->from));
    } else if (args->from == MIRT_FLOAT32) {
        mirt__cu_cast_from<float>(cu, args);
    } else if (args->from == MIRT_INT32) {
        mirt__cu_cast_from<int32_t>(cu, args);
    } else {
        mirt__cu_cast_from<uint8_t>(cu, args);
    }
}

/* ---- fill and constant */

template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_fill_kernel(float *y, const float *value, int64_t count) {
    const float one = *value;
    float v[N];
#pragma unroll
    for (int j = 0; j < N; j++) v[j] = one;
    MIRT__CU_PIECES(at, left, count, N) mirt__cu_store_left<N>(y + at, left, v);
}

/* The value may be another one in each step: the share of the loss of a batch's samples is. */
static void mirt__cu_fill(mirt__real *y, mirt__real value, int64_t count, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (count <= 0) return;
    const float *number = static_cast<const float *>(mirt__cu_number(cu, &value, sizeof value));
    const int n = mirt__cu_aligned(y, 16) ? 4 : 1;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_fill_kernel<4> : mirt__cu_fill_kernel<1>), mirt__cu_ceil(count, n), y,
                           number, count);
}

static void mirt__cu_constant(void *y, const void *data, size_t bytes, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (bytes == 0) return;
    const void *copy = mirt__cu_constant_copy(cu, data, bytes);
    if (copy) mirt__cu_copy_bytes(cu, y, copy, (int64_t)bytes);
}
