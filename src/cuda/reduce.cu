/* Reductions over any axes, and what runs along one axis. */
#include "../kernels/sparsemax.h"
#include "cuda.cuh"
#include "math.cuh"

#define MIRT__CU_REDUCE_BLOCK 256

/* Dimensions: sizes, and steps in x. */
typedef struct mirt__cu_axes {
    int rank;
    int64_t count;
    mirt__cu_divisor dim[MIRT_MAX_RANK];
    int64_t step[MIRT_MAX_RANK];
} mirt__cu_axes;

/* x's outputs are `kept` by `columns`, those being outputs whose inputs lie side by side; each is made of the elements
   of `gone`. A block has `down` threads for the elements of each of `across` pieces of columns of each of `rows` of
   kept, all powers of two, and takes a chunk of those elements, whose sums are added up in a second step. Each thread
   takes every `down`th element of the chunk. Without columns, elements that lie side by side are taken N at a time
   instead. All sizes but the number of blocks follow from columns and gone alone, so that a row of kept does not depend
   on the others. */
typedef struct mirt__cu_reduction {
    mirt__reduce_kind kind;
    const void *x, *by; /* by: what x is multiplied by, or NULL */
    float *y, *partial;
    int across, down, rows; /* as powers of two: 1 << across ... */
    int64_t columns, chunk, chunks, count; /* count: of the elements in each output */
    mirt__cu_divisor blocks, pieces; /* blocks of columns; those of all chunks */
    mirt__cu_axes kept, gone;
} mirt__cu_reduction;

/* Adds an axis outside all others; it joins the outermost one where that leaves no jump. They stand innermost first. */
static void mirt__cu_axes_add(mirt__cu_axes *axes, int64_t dim, int64_t step) {
    const int last = axes->rank - 1;
    axes->count *= dim;
    if (last >= 0 && axes->step[last] * axes->dim[last].by == step) {
        axes->dim[last] = mirt__cu_divisor_of(axes->dim[last].by * dim);
        return;
    }
    axes->dim[axes->rank] = mirt__cu_divisor_of(dim);
    axes->step[axes->rank++] = step;
}

static inline __device__ int64_t mirt__cu_axes_place(const mirt__cu_axes &axes, int64_t at) {
    const int last = axes.rank - 1;
    int64_t place = 0;
    for (int i = 0; i < last; i++) {
        int64_t rest;
        at = mirt__cu_divmod(at, axes.dim[i], &rest);
        place += rest * axes.step[i];
    }
    return last >= 0 ? place + at * axes.step[last] : 0;
}

/* The power of two that is not below n, at most 1 << most. */
static int mirt__cu_power(int64_t n, int most) {
    int power = 0;
    while (power < most && (int64_t)1 << power < n) power++;
    return power;
}

/* Whether places in axes, but for their first ones, are multiples of n. */
static bool mirt__cu_axes_by(const mirt__cu_axes *axes, int first, int64_t n) {
    for (int i = first; i < axes->rank; i++) {
        if (axes->step[i] % n) return false;
    }
    return true;
}

/* *n: how many neighbors are taken at a time, columns or elements. */
static mirt__cu_reduction mirt__cu_reduction_of(const mirt__reduce *r, bool split, int *n) {
    mirt__cu_reduction s;
    int64_t step = 1;
    bool innermost = true;
    memset(&s, 0, sizeof s);
    s.kind = r->kind;
    s.x = r->x;
    s.by = r->by;
    s.y = r->y;
    s.kept.count = s.gone.count = s.columns = 1;
    for (int i = r->rank - 1; i >= 0; step *= r->dim[i], i--) {
        if (r->dim[i] == 1) continue;
        const bool gone = r->axes >> i & 1;
        innermost = innermost && !gone;
        if (innermost) s.columns *= r->dim[i];
        else mirt__cu_axes_add(gone ? &s.gone : &s.kept, r->dim[i], step);
    }
    s.count = s.gone.count;
    *n = mirt__cu_aligned_for(r->x, r->x_dtype, 4) && mirt__cu_aligned_for(r->by, r->x_dtype, 4) ? 4 : 1;
    if (s.columns > 1) {
        if (s.columns % 4 || !mirt__cu_aligned(r->y, 16)) *n = 1; /* then all steps are multiples of 4 */
        s.across = mirt__cu_power(mirt__cu_ceil(s.columns, *n), 5);
    } else if (!split || s.gone.rank == 0 || s.gone.step[0] != 1 || s.gone.dim[0].by % 4 ||
               !mirt__cu_axes_by(&s.gone, 1, 4) || !mirt__cu_axes_by(&s.kept, 0, 4)) {
        *n = 1;
    } else if (*n == 4) {
        s.gone.dim[0] = mirt__cu_divisor_of(s.gone.dim[0].by / 4);
        s.gone.step[0] = 4;
        s.gone.count /= 4;
    }
    s.down = mirt__cu_power(s.gone.count, 8 - s.across);
    s.rows = 8 - s.across - s.down;
    /* Each thread takes 32 elements, or more where there would be over 512 chunks, up to 256, which float32 adds up
       accurately. */
    int64_t each = mirt__cu_ceil(s.gone.count, (int64_t)512 << s.down);
    each = each < 32 ? 32 : each > 256 ? 256 : each;
    s.chunk = split ? each << s.down : s.gone.count;
    s.chunks = split && s.gone.count > 0 ? mirt__cu_ceil(s.gone.count, s.chunk) : 1;
    const int64_t blocks = mirt__cu_ceil(s.columns, (int64_t)*n << s.across);
    s.blocks = mirt__cu_divisor_of(blocks);
    s.pieces = mirt__cu_divisor_of(blocks * s.chunks);
    return s;
}

static unsigned mirt__cu_reduction_blocks(const mirt__cu_reduction *s) {
    return (unsigned)(mirt__cu_ceil(s->kept.count, (int64_t)1 << s->rows) * s->pieces.by);
}

/* What a thread of a reduction has to do. */
typedef struct mirt__cu_reducing {
    int64_t begin, end, step; /* elements */
    int64_t x, y;             /* where its columns begin in x, not counting the elements, and in y */
    int64_t chunk;
    int down;                 /* number among the threads with the same columns */
    bool has;                 /* columns at all */
} mirt__cu_reducing;
template <int N> static inline __device__ mirt__cu_reducing mirt__cu_reducing_of(const mirt__cu_reduction &s) {
    mirt__cu_reducing r;
    int64_t rest, block, row = mirt__cu_divmod(blockIdx.x, s.pieces, &rest);
    const int across = (int)threadIdx.x & ((1 << s.across) - 1);
    r.down = ((int)threadIdx.x >> s.across) & ((1 << s.down) - 1);
    r.chunk = mirt__cu_divmod(rest, s.blocks, &block);
    row = (row << s.rows) + ((int)threadIdx.x >> (s.across + s.down));
    const int64_t column = s.columns > 1 ? ((block << s.across) + across) * N : 0;
    r.has = row < s.kept.count && column < s.columns;
    r.begin = r.chunk * s.chunk + r.down;
    r.end = r.chunk * s.chunk + s.chunk;
    if (r.end > s.gone.count) r.end = s.gone.count;
    if (!r.has) r.end = r.begin;
    r.step = (int64_t)1 << s.down;
    r.x = r.has ? mirt__cu_axes_place(s.kept, row) + column : 0;
    r.y = row * s.columns + column;
    return r;
}

/* Not a number is what there is before the first element. */
static inline __device__ float mirt__cu_reduce_pair(mirt__reduce_kind kind, float a, float b) {
    return kind == MIRT__REDUCE_MAX ? fmaxf(a, b) : kind == MIRT__REDUCE_MIN ? fminf(a, b) : a + b;
}
static inline __device__ float mirt__cu_reduce_none(mirt__reduce_kind kind) {
    return kind >= MIRT__REDUCE_MAX ? NAN : 0.0f;
}

/* What becomes of all elements of an output. */
static inline __device__ float mirt__cu_reduce_done(mirt__reduce_kind kind, float x, int64_t count) {
    if (kind == MIRT__REDUCE_MEAN) return x / (float)count;
    if (kind == MIRT__REDUCE_SUM || count > 0) return x;
    return kind == MIRT__REDUCE_MIN ? INFINITY : -INFINITY;
}

template <int N, class T, class F>
static inline __device__ void mirt__cu_reduce_threads(const mirt__cu_reduction &s, int down, T *sum, T *room, F what) {
    for (int half = 1 << s.down >> 1; half > 0; half >>= 1) {
#pragma unroll
        for (int j = 0; j < N; j++) room[j * MIRT__CU_REDUCE_BLOCK + (int)threadIdx.x] = sum[j];
        __syncthreads();
        if (down < half) {
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] = what(sum[j], room[j * MIRT__CU_REDUCE_BLOCK + (int)threadIdx.x + (half << s.across)]);
        }
        __syncthreads();
    }
}

template <int N, class T>
static __global__ void __launch_bounds__(MIRT__CU_REDUCE_BLOCK) mirt__cu_reduce_kernel(const mirt__cu_reduction s) {
    MIRT_SHARED(float, room, N * MIRT__CU_REDUCE_BLOCK);
    const mirt__cu_reducing r = mirt__cu_reducing_of<N>(s);
    const T *x = static_cast<const T *>(s.x) + r.x, *by = s.by ? static_cast<const T *>(s.by) + r.x : NULL;
    const mirt__reduce_kind kind = s.kind;
    float sum[N];
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] = mirt__cu_reduce_none(kind);
#pragma unroll 4
    for (int64_t at = r.begin; at < r.end; at += r.step) {
        float v[N], w[N];
        const int64_t place = mirt__cu_axes_place(s.gone, at);
        mirt__cu_load_n<N>(x + place, v);
        if (by) mirt__cu_load_n<N>(by + place, w);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] = mirt__cu_reduce_pair(kind, sum[j], by ? __fmul_rn(v[j], w[j]) : v[j]);
    }
    mirt__cu_reduce_threads<N>(s, r.down, sum, room,
                               [=](float a, float b) { return mirt__cu_reduce_pair(kind, a, b); });
    if (r.down || !r.has) return;
    if (s.columns == 1) {
#pragma unroll
        for (int step = N / 2; step > 0; step /= 2) {
#pragma unroll
            for (int j = 0; j < step; j++) sum[j] = mirt__cu_reduce_pair(kind, sum[j], sum[j + step]);
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j > 0 && s.columns == 1) break;
        if (s.chunks > 1) s.partial[r.chunk * s.kept.count * s.columns + r.y + j] = sum[j];
        else s.y[r.y + j] = mirt__cu_reduce_done(kind, sum[j], s.count);
    }
}

/* A warp for the chunks of 32 / LANES outputs, in double. */
#define MIRT__CU_FINISH_WARPS 32
static __global__ void __launch_bounds__(1024)
    mirt__cu_reduce_finish_kernel(mirt__reduce_kind kind, const float *partial, float *y, int64_t outputs,
                                  int64_t chunks, int64_t count) {
    MIRT_SHARED(double, room, 1024);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    const int64_t output = (int64_t)blockIdx.x * 32 + lane;
    double sum = kind >= MIRT__REDUCE_MAX ? NAN : 0.0;
    if (output < outputs) {
#pragma unroll 4
        for (int64_t i = warp; i < chunks; i += warps) {
            const float x = partial[i * outputs + output];
            if (kind == MIRT__REDUCE_MAX) sum = fmax(sum, (double)x);
            else if (kind == MIRT__REDUCE_MIN) sum = fmin(sum, (double)x);
            else sum += x;
        }
    }
    room[threadIdx.x] = sum;
    __syncthreads();
    if (warp || output >= outputs) return;
    for (int i = 1; i < warps; i++) {
        const double x = room[i * 32 + lane];
        sum = kind == MIRT__REDUCE_MAX ? fmax(sum, x) : kind == MIRT__REDUCE_MIN ? fmin(sum, x) : sum + x;
    }
    y[output] = mirt__cu_reduce_done(kind, (float)sum, count);
}

template <class T> static auto mirt__cu_reduce_of(int n) {
    return n == 4 ? mirt__cu_reduce_kernel<4, T> : mirt__cu_reduce_kernel<1, T>;
}
static void mirt__cu_reduce(const mirt__reduce *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int n;
    mirt__cu_reduction s = mirt__cu_reduction_of(args, true, &n);
    const int64_t outputs = s.kept.count * s.columns;
    if (outputs <= 0) return;
    if (s.chunks > 1) s.partial = static_cast<float *>(mirt__cu_room(cu, (size_t)(outputs * s.chunks) * sizeof(float)));
    const auto reduce = (int)args->x_dtype == MIRT__BFLOAT16  ? mirt__cu_reduce_of<uint16_t>(n)
                        : (int)args->x_dtype == MIRT__FLOAT16 ? mirt__cu_reduce_of<mirt__cu_f16>(n)
                                                              : mirt__cu_reduce_of<float>(n);
    MIRT_LAUNCH(cu, reduce, mirt__cu_reduction_blocks(&s), MIRT__CU_REDUCE_BLOCK, 0, s);
    if (s.chunks > 1) {
        const int warps = s.chunks < 8 ? 4 : s.chunks < 64 ? 8 : MIRT__CU_FINISH_WARPS;
        MIRT_LAUNCH(cu, mirt__cu_reduce_finish_kernel, (unsigned)mirt__cu_ceil(outputs, 32), warps * 32, 0, s.kind,
                    s.partial, s.y, outputs, s.chunks, s.count);
    }
}

/* A block goes over its elements twice: to count those that equal the extreme, and to share dy among them. */
static __global__ void __launch_bounds__(MIRT__CU_REDUCE_BLOCK)
    mirt__cu_reduce_max_grad_kernel(const mirt__cu_reduction s, const float *dy, float *dx) {
    MIRT_SHARED(int, room, MIRT__CU_REDUCE_BLOCK);
    const mirt__cu_reducing r = mirt__cu_reducing_of<1>(s);
    const float *x = static_cast<const float *>(s.x) + r.x, most = r.has ? s.y[r.y] : 0.0f;
    int equal = 0;
    for (int64_t at = r.begin; at < r.end; at += r.step) equal += x[mirt__cu_axes_place(s.gone, at)] == most;
    mirt__cu_reduce_threads<1>(s, r.down, &equal, room, mirt__cu_plus());
    if (r.down == 0) room[threadIdx.x] = equal;
    __syncthreads();
    if (!r.has) return;
    const float share = dy[r.y] / (float)room[(int)threadIdx.x - (r.down << s.across)];
    for (int64_t at = r.begin; at < r.end; at += r.step) {
        const int64_t place = mirt__cu_axes_place(s.gone, at);
        dx[r.x + place] = x[place] == most ? share : 0.0f;
    }
}

static void mirt__cu_reduce_max_grad(const mirt__reduce_max_grad *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__reduce plain = args->s;
    int n;
    mirt__cu_reduction s = mirt__cu_reduction_of(&plain, false, &n);
    if (n > 1) { /* one column for each thread */
        s.across = mirt__cu_power(s.columns, 5);
        s.down = mirt__cu_power(s.gone.count, 8 - s.across);
        s.rows = 8 - s.across - s.down;
        s.blocks = s.pieces = mirt__cu_divisor_of(mirt__cu_ceil(s.columns, (int64_t)1 << s.across));
    }
    if (s.kept.count * s.columns * s.gone.count <= 0) return;
    MIRT_LAUNCH(cu, mirt__cu_reduce_max_grad_kernel, mirt__cu_reduction_blocks(&s), MIRT__CU_REDUCE_BLOCK, 0, s,
                args->dy, args->dx);
}

/* ---- scan */

struct mirt__cu_scan_args : mirt__scan {
    mirt__cu_divisor by_inner;
};

/* A thread for each line. */
static __global__ void __launch_bounds__(64) mirt__cu_cumsum_kernel(const mirt__cu_scan_args s) {
    const int64_t step = s.kind == MIRT__CUMSUM_BACK ? -s.inner : s.inner;
    MIRT__CU_PIECES(at, left, s.outer * s.inner, 1) {
        int64_t column;
        const int64_t row = mirt__cu_divmod(at, s.by_inner, &column),
                      first = (row * s.n + (step < 0 ? s.n - 1 : 0)) * s.inner + column;
        const float *x = s.x + first;
        float *y = static_cast<float *>(s.y) + first, sum = 0;
        for (int64_t i = 0; i < s.n; i++) y[i * step] = sum += x[i * step];
    }
}
static __global__ void __launch_bounds__(64) mirt__cu_sparsemax_kernel(const mirt__cu_scan_args s) {
    MIRT__CU_PIECES(at, left, s.outer * s.inner, 1) {
        int64_t column;
        const int64_t row = mirt__cu_divmod(at, s.by_inner, &column);
        mirt__sparsemax_line(&s, row * s.n * s.inner + column);
    }
}
static __global__ void __launch_bounds__(64) mirt__cu_extreme_kernel(const mirt__cu_scan_args s) {
    const bool least = s.kind == MIRT__ARGMIN;
    MIRT__CU_PIECES(at, left, s.outer * s.inner, 1) {
        int64_t column;
        const int64_t row = mirt__cu_divmod(at, s.by_inner, &column);
        const float *line = s.x + row * s.n * s.inner + column;
        float most = line[0];
        int32_t best = 0;
        for (int64_t i = 1; i < s.n; i++) {
            const float x = line[i * s.inner];
            if (least ? x < most : x > most) {
                most = x;
                best = (int32_t)i;
            }
        }
        static_cast<int32_t *>(s.y)[at] = best;
    }
}

/* The place of the first of the largest of n > 0 numbers side by side (`sign` -1: of the smallest), by a whole warp. As
   one after the other finds it, what is not a number is above none; a first one that is not stays. */
static inline __device__ int32_t mirt__cu_warp_argmax(const float *x, int64_t n, float sign) {
    const int lane = (int)threadIdx.x % 32;
    float most = -INFINITY;
    int32_t best = INT32_MAX;
    for (int64_t i = lane; i < n; i += 32) {
        const float v = sign * x[i];
        if (v > most || (v == most && best == INT32_MAX)) {
            most = v;
            best = (int32_t)i;
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float v = __shfl_xor_sync(MIRT__CU_ALL, most, step);
        const int32_t place = __shfl_xor_sync(MIRT__CU_ALL, best, step);
        if (v > most || (v == most && place < best)) {
            most = v;
            best = place;
        }
    }
    return x[0] != x[0] || best == INT32_MAX ? 0 : best;
}

/* A warp for each row, along which the numbers lie side by side. */
static __global__ void __launch_bounds__(MIRT__CU_REDUCE_BLOCK) mirt__cu_argmax_kernel(const mirt__cu_scan_args s) {
    const int warps = MIRT__CU_REDUCE_BLOCK / 32;
    for (int64_t row = (int64_t)blockIdx.x * warps + threadIdx.x / 32; row < s.outer;
         row += (int64_t)gridDim.x * warps) {
        const int32_t best = mirt__cu_warp_argmax(s.x + row * s.n, s.n, s.kind == MIRT__ARGMIN ? -1.0f : 1.0f);
        if (threadIdx.x % 32 == 0) static_cast<int32_t *>(s.y)[row] = best;
    }
}

static void mirt__cu_scan(const mirt__scan *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__cu_scan_args s = {*args, mirt__cu_divisor_of(args->inner)};
    const int64_t lines = args->outer * args->inner;
    if (lines <= 0 || args->n <= 0) return;
    if (args->kind == MIRT__CUMSUM || args->kind == MIRT__CUMSUM_BACK) {
        MIRT_LAUNCH(cu, mirt__cu_cumsum_kernel, mirt__cu_blocks(lines, 64), 64, 0, s);
    } else if (args->kind == MIRT__SPARSEMAX) {
        MIRT_LAUNCH(cu, mirt__cu_sparsemax_kernel, mirt__cu_blocks(lines, 64), 64, 0, s);
    } else if (args->inner == 1) {
        MIRT_LAUNCH(cu, mirt__cu_argmax_kernel, mirt__cu_blocks(args->outer, MIRT__CU_REDUCE_BLOCK / 32),
                    MIRT__CU_REDUCE_BLOCK, 0, s);
    } else {
        MIRT_LAUNCH(cu, mirt__cu_extreme_kernel, mirt__cu_blocks(lines, 64), 64, 0, s);
    }
}
