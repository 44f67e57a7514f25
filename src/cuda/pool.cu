/* Max and average pooling and their gradients. A thread owns N neighboring channels of a pixel; gradients gather from
   the windows that contain the pixel. */
#include "layout.cuh"

typedef struct mirt__cu_pool_call {
    int64_t lines, x_image, y_image; /* rows of the target in all images, below 2^31; numbers in an image of x, of y (as
                                        in the forward call) */
    int h, w, c, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left;
    const void *x;
    void *y, *which;
    mirt_dtype dtype;
    mirt__cu_divisor by_lines, by_vectors; /* lines of an image; vectors of a pixel */
    int items, across, down; /* of a line of the target: vectors; of a block: those at a time, and lines */
} mirt__cu_pool_call;

/* Places in windows. */
template <int N, class PLACE> static inline __device__ void mirt__cu_pool_store(PLACE *to, const int *place) {
    if constexpr (sizeof(PLACE) == 1 && N >= 4) {
        mirt__cu_bytes<N> bytes;
#pragma unroll
        for (int v = 0; v < N; v += 4)
            bytes.word[v / 4] = (uint32_t)place[v] | (uint32_t)place[v + 1] << 8 | (uint32_t)place[v + 2] << 16 |
                                (uint32_t)place[v + 3] << 24;
        mirt__cu_store_bytes<N>(to, bytes);
    } else {
#pragma unroll
        for (int v = 0; v < N; v++) to[v] = (PLACE)place[v];
    }
}
template <int N, class PLACE> static inline __device__ void mirt__cu_pool_places(const PLACE *from, int *place) {
    if constexpr (sizeof(PLACE) == 1 && N >= 4) {
        const mirt__cu_bytes<N> bytes = mirt__cu_load_bytes<N>(from);
#pragma unroll
        for (int v = 0; v < N; v++) place[v] = (int)(bytes.word[v / 4] >> v % 4 * 8 & 255);
    } else {
#pragma unroll
        for (int v = 0; v < N; v++) place[v] = (int)from[v];
    }
}

/* Goes over the target: N channels from `c` on of pixel `column` of row `y` of image `image`. */
#define MIRT__CU_POOL_EACH(a) \
    for (int64_t line = (int64_t)blockIdx.x * a.down + (int)threadIdx.x / a.across; line < a.lines; \
         line += (int64_t)gridDim.x * a.down) \
        for (int item = (int)threadIdx.x % a.across; item < a.items; item += a.across)
#define MIRT__CU_POOL_PLACE(a) \
    const int64_t image = mirt__cu_divide32((uint32_t)line, a.by_lines), y = line - image * a.by_lines.by; \
    const int column = (int)mirt__cu_divide32((uint32_t)item, a.by_vectors), \
              c = (item - column * (int)a.by_vectors.by) * N;

/* The part [first, end) of a window's kernel that lies inside. */
static inline __device__ int mirt__cu_pool_first(int start) { return start < 0 ? -start : 0; }
static inline __device__ int mirt__cu_pool_end(int start, int kernel, int size) {
    return size - start < kernel ? size - start : kernel;
}
/* The windows [first, end) that place `at` (padding counted) lies in. */
static inline __device__ int mirt__cu_pool_behind(int at, int kernel, int stride) {
    return at < kernel ? 0 : (at - kernel) / stride + 1;
}
static inline __device__ int mirt__cu_pool_beyond(int at, int stride, int windows) {
    return at / stride + 1 < windows ? at / stride + 1 : windows;
}

template <int DTYPES, int N, class PLACE>
static __global__ __launch_bounds__(256) void mirt__cu_pool_max(mirt__cu_pool_call a) {
    MIRT__CU_POOL_EACH(a) {
        MIRT__CU_POOL_PLACE(a)
        const int top = (int)y * a.stride_h - a.pad_top, left = column * a.stride_w - a.pad_left;
        const int ky1 = mirt__cu_pool_end(top, a.kh, a.h), kx1 = mirt__cu_pool_end(left, a.kw, a.w);
        float best[N], value[N];
        int place[N];
#pragma unroll
        for (int v = 0; v < N; v++) {
            best[v] = -INFINITY;
            place[v] = 0;
        }
        bool first = true;
        for (int ky = mirt__cu_pool_first(top); ky < ky1; ky++) {
            for (int kx = mirt__cu_pool_first(left); kx < kx1; kx++, first = false) {
                mirt__cu_get<DTYPES, N>(a.x, a.dtype,
                                        image * a.x_image + ((int64_t)(top + ky) * a.w + left + kx) * a.c + c, value);
#pragma unroll
                for (int v = 0; v < N; v++) {
                    const bool more = value[v] > best[v] || first;
                    best[v] = more ? value[v] : best[v];
                    place[v] = more ? ky * a.kw + kx : place[v];
                }
            }
        }
        const int64_t at = image * a.y_image + (y * a.ow + column) * a.c + c;
        mirt__cu_put<DTYPES, N>(a.y, a.dtype, at, best);
        mirt__cu_pool_store<N, PLACE>(static_cast<PLACE *>(a.which) + at, place);
    }
}

template <int DTYPES, int N, class PLACE>
static __global__ __launch_bounds__(256) void mirt__cu_pool_max_back(mirt__cu_pool_call a) {
    MIRT__CU_POOL_EACH(a) {
        MIRT__CU_POOL_PLACE(a)
        const int down = (int)y + a.pad_top, right = column + a.pad_left;
        const int oy1 = mirt__cu_pool_beyond(down, a.stride_h, a.oh),
                  ox0 = mirt__cu_pool_behind(right, a.kw, a.stride_w),
                  ox1 = mirt__cu_pool_beyond(right, a.stride_w, a.ow);
        float sum[N], dy[N];
        int place[N];
#pragma unroll
        for (int v = 0; v < N; v++) sum[v] = 0;
        for (int oy = mirt__cu_pool_behind(down, a.kh, a.stride_h); oy < oy1; oy++) {
            for (int ox = ox0; ox < ox1; ox++) {
                const int64_t at = image * a.y_image + ((int64_t)oy * a.ow + ox) * a.c + c;
                const int mine = (down - oy * a.stride_h) * a.kw + right - ox * a.stride_w;
                mirt__cu_pool_places<N, PLACE>(static_cast<const PLACE *>(a.which) + at, place);
                mirt__cu_get<DTYPES, N>(a.x, a.dtype, at, dy);
#pragma unroll
                for (int v = 0; v < N; v++) sum[v] += place[v] == mine ? dy[v] : 0.0f;
            }
        }
        mirt__cu_put<DTYPES, N>(a.y, a.dtype, image * a.x_image + (y * a.w + column) * a.c + c, sum);
    }
}

template <int N> static __global__ __launch_bounds__(256) void mirt__cu_pool_average(mirt__cu_pool_call a) {
    MIRT__CU_POOL_EACH(a) {
        MIRT__CU_POOL_PLACE(a)
        const int top = (int)y * a.stride_h - a.pad_top, left = column * a.stride_w - a.pad_left;
        const int ky0 = mirt__cu_pool_first(top), kx0 = mirt__cu_pool_first(left),
                  ky1 = mirt__cu_pool_end(top, a.kh, a.h), kx1 = mirt__cu_pool_end(left, a.kw, a.w);
        float sum[N], value[N];
#pragma unroll
        for (int v = 0; v < N; v++) sum[v] = 0;
        for (int ky = ky0; ky < ky1; ky++) {
            for (int kx = kx0; kx < kx1; kx++) {
                mirt__cu_load_n<N>(static_cast<const float *>(a.x) + image * a.x_image +
                                       ((int64_t)(top + ky) * a.w + left + kx) * a.c + c,
                                   value);
#pragma unroll
                for (int v = 0; v < N; v++) sum[v] += value[v];
            }
        }
        const float count = (float)((ky1 - ky0) * (kx1 - kx0));
#pragma unroll
        for (int v = 0; v < N; v++) sum[v] /= count;
        mirt__cu_store_n<N>(static_cast<float *>(a.y) + image * a.y_image + (y * a.ow + column) * a.c + c, sum);
    }
}

template <int N> static __global__ __launch_bounds__(256) void mirt__cu_pool_average_back(mirt__cu_pool_call a) {
    MIRT__CU_POOL_EACH(a) {
        MIRT__CU_POOL_PLACE(a)
        const int down = (int)y + a.pad_top, right = column + a.pad_left;
        const int oy1 = mirt__cu_pool_beyond(down, a.stride_h, a.oh),
                  ox0 = mirt__cu_pool_behind(right, a.kw, a.stride_w),
                  ox1 = mirt__cu_pool_beyond(right, a.stride_w, a.ow);
        float sum[N], dy[N];
#pragma unroll
        for (int v = 0; v < N; v++) sum[v] = 0;
        for (int oy = mirt__cu_pool_behind(down, a.kh, a.stride_h); oy < oy1; oy++) {
            const int top = oy * a.stride_h - a.pad_top,
                      rows = mirt__cu_pool_end(top, a.kh, a.h) - mirt__cu_pool_first(top);
            for (int ox = ox0; ox < ox1; ox++) {
                const int left = ox * a.stride_w - a.pad_left,
                          columns = mirt__cu_pool_end(left, a.kw, a.w) - mirt__cu_pool_first(left);
                const float count = (float)(rows * columns);
                mirt__cu_load_n<N>(
                    static_cast<const float *>(a.x) + image * a.y_image + ((int64_t)oy * a.ow + ox) * a.c + c, dy);
#pragma unroll
                for (int v = 0; v < N; v++) sum[v] += dy[v] / count;
            }
        }
        mirt__cu_store_n<N>(static_cast<float *>(a.y) + image * a.x_image + (y * a.w + column) * a.c + c, sum);
    }
}
#undef MIRT__CU_POOL_EACH
#undef MIRT__CU_POOL_PLACE

/* N, and what is launched: *grid blocks of *threads. */
static int mirt__cu_pool_call_of(const mirt__pool2d *p, bool back, mirt__cu_pool_call *a, unsigned *grid,
                                 unsigned *threads) {
    const bool wide = (int64_t)p->kh * p->kw > UINT8_MAX + 1;
    const int vector = mirt__cu_is_half(p->dtype) ? 8 : 4;
    const bool whole = p->c % vector == 0 && mirt__cu_aligned(p->x, 16) && mirt__cu_aligned(p->y, 16) && !wide &&
                       mirt__cu_aligned(p->which, vector);
    const int n = whole ? vector : 1;
    memset(a, 0, sizeof *a);
    a->h = (int)p->h;
    a->w = (int)p->w;
    a->c = (int)p->c;
    a->oh = (int)p->oh;
    a->ow = (int)p->ow;
    a->kh = p->kh;
    a->kw = p->kw;
    a->stride_h = p->stride_h;
    a->stride_w = p->stride_w;
    a->pad_top = (int)p->pad_top;
    a->pad_left = (int)p->pad_left;
    a->x = p->x;
    a->y = p->y;
    a->which = p->which;
    a->dtype = p->dtype;
    a->x_image = p->h * p->w * p->c;
    a->y_image = p->oh * p->ow * p->c;
    a->lines = p->rows * (back ? p->h : p->oh);
    a->by_lines = mirt__cu_divisor_of(back ? p->h : p->oh);
    a->by_vectors = mirt__cu_divisor_of(p->c / n);
    a->items = (int)((back ? p->w : p->ow) * (p->c / n));
    a->across = a->items < 256 ? a->items < 1 ? 1 : a->items : 256;
    a->down = 256 / a->across;
    const int64_t blocks = mirt__cu_ceil(a->lines, a->down);
    *grid = (unsigned)(a->items == 0 ? 0 : blocks < 1 << 20 ? blocks : 1 << 20);
    *threads = (unsigned)(a->across * a->down);
    return n;
}

#define MIRT__CU_POOL_LAUNCH(kernel, place) \
    do { \
        if (n == 4) MIRT_LAUNCH(cu, (kernel<MIRT__CU_FLOATS, 4, place>), grid, threads, 0, a); \
        else if (n == 8 && (int)a.dtype == MIRT__FLOAT16) \
            MIRT_LAUNCH(cu, (kernel<MIRT__CU_FLOAT16S, 8, place>), grid, threads, 0, a); \
        else if (n == 8) MIRT_LAUNCH(cu, (kernel<MIRT__CU_HALVES, 8, place>), grid, threads, 0, a); \
        else MIRT_LAUNCH(cu, (kernel<MIRT__CU_EITHER, 1, place>), grid, threads, 0, a); \
    } while (0)
static void mirt__cu_max_pool(const mirt__pool2d *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_pool_call a;
    unsigned grid, threads;
    const int n = mirt__cu_pool_call_of(args, false, &a, &grid, &threads);
    if (grid == 0) return;
    if ((int64_t)args->kh * args->kw > UINT8_MAX + 1)
        MIRT_LAUNCH(cu, (mirt__cu_pool_max<MIRT__CU_EITHER, 1, int32_t>), grid, threads, 0, a);
    else MIRT__CU_POOL_LAUNCH(mirt__cu_pool_max, uint8_t);
}
static void mirt__cu_max_pool_grad(const mirt__pool2d *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_pool_call a;
    unsigned grid, threads;
    const int n = mirt__cu_pool_call_of(args, true, &a, &grid, &threads);
    if (grid == 0) return;
    if ((int64_t)args->kh * args->kw > UINT8_MAX + 1)
        MIRT_LAUNCH(cu, (mirt__cu_pool_max_back<MIRT__CU_EITHER, 1, int32_t>), grid, threads, 0, a);
    else MIRT__CU_POOL_LAUNCH(mirt__cu_pool_max_back, uint8_t);
}
#undef MIRT__CU_POOL_LAUNCH
static void mirt__cu_average_pool(const mirt__pool2d *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_pool_call a;
    unsigned grid, threads;
    const int n = mirt__cu_pool_call_of(args, false, &a, &grid, &threads);
    if (grid == 0) return;
    if (n == 4) MIRT_LAUNCH(cu, mirt__cu_pool_average<4>, grid, threads, 0, a);
    else MIRT_LAUNCH(cu, mirt__cu_pool_average<1>, grid, threads, 0, a);
}
static void mirt__cu_average_pool_grad(const mirt__pool2d *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_pool_call a;
    unsigned grid, threads;
    const int n = mirt__cu_pool_call_of(args, true, &a, &grid, &threads);
    if (grid == 0) return;
    if (n == 4) MIRT_LAUNCH(cu, mirt__cu_pool_average_back<4>, grid, threads, 0, a);
    else MIRT_LAUNCH(cu, mirt__cu_pool_average_back<1>, grid, threads, 0, a);
}
