/* Max and average pooling and their gradients. A thread owns N neighboring channels of a pixel; gradients gather from
   the windows that contain the pixel. */
#include "layout.cuh"

struct mirt__cu_pool_call : mirt__cu_pixels, mirt__cu_windows {
    int64_t x_image, y_image; /* numbers in an image of x, of y (as in the forward call) */
    int c;
    const void *x;
    void *y, *which;
    mirt_dtype dtype;
};

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
/* Place v of N as mirt__cu_fetch_as has read them. */
template <int N, class PLACE> static inline __device__ int mirt__cu_pool_place(const uint32_t *words, int v) {
    return (int)(sizeof(PLACE) == 1 && N >= 4 ? words[v / 4] >> v % 4 * 8 & 255 : words[v]);
}

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
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int top = (int)y * a.stride_h - a.top, left = column * a.stride_w - a.left;
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
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int down = (int)y + a.top, right = column + a.left;
        const int oy1 = mirt__cu_pool_beyond(down, a.stride_h, a.oh),
                  ox0 = mirt__cu_pool_behind(right, a.kw, a.stride_w),
                  ox1 = mirt__cu_pool_beyond(right, a.stride_w, a.ow);
        float sum[N] = {0};
        /* Two by two windows at a time, all asked for before the first is looked at. */
        for (int oy = mirt__cu_pool_behind(down, a.kh, a.stride_h); oy < oy1; oy += 2) {
            for (int ox = ox0; ox < ox1; ox += 2) {
                uint32_t places[4][N], dy_words[4][N];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int64_t at = image * a.y_image + ((int64_t)(oy + i / 2) * a.ow + ox + i % 2) * a.c + c;
                    if (oy + i / 2 >= oy1 || ox + i % 2 >= ox1) continue;
                    mirt__cu_fetch_as<N>(static_cast<const PLACE *>(a.which) + at, places[i]);
                    mirt__cu_fetch_of<DTYPES, N>(a.x, a.dtype, at, dy_words[i]);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int mine = (down - (oy + i / 2) * a.stride_h) * a.kw + right - (ox + i % 2) * a.stride_w;
                    float dy[N];
                    if (oy + i / 2 >= oy1 || ox + i % 2 >= ox1) continue;
                    mirt__cu_make_of<DTYPES, N>(dy_words[i], a.dtype, dy);
#pragma unroll
                    for (int v = 0; v < N; v++)
                        sum[v] += mirt__cu_pool_place<N, PLACE>(places[i], v) == mine ? dy[v] : 0.0f;
                }
            }
        }
        mirt__cu_put<DTYPES, N>(a.y, a.dtype, image * a.x_image + (y * a.w + column) * a.c + c, sum);
    }
}

template <int N> static __global__ __launch_bounds__(256) void mirt__cu_pool_average(mirt__cu_pool_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int top = (int)y * a.stride_h - a.top, left = column * a.stride_w - a.left;
        const int ky0 = mirt__cu_pool_first(top), kx0 = mirt__cu_pool_first(left),
                  ky1 = mirt__cu_pool_end(top, a.kh, a.h), kx1 = mirt__cu_pool_end(left, a.kw, a.w);
        float sum[N] = {0}, value[N];
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
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int down = (int)y + a.top, right = column + a.left;
        const int oy1 = mirt__cu_pool_beyond(down, a.stride_h, a.oh),
                  ox0 = mirt__cu_pool_behind(right, a.kw, a.stride_w),
                  ox1 = mirt__cu_pool_beyond(right, a.stride_w, a.ow);
        float sum[N] = {0}, dy[N];
        for (int oy = mirt__cu_pool_behind(down, a.kh, a.stride_h); oy < oy1; oy++) {
            const int top = oy * a.stride_h - a.top,
                      rows = mirt__cu_pool_end(top, a.kh, a.h) - mirt__cu_pool_first(top);
            for (int ox = ox0; ox < ox1; ox++) {
                const int left = ox * a.stride_w - a.left,
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

/* Kernels of vectors by mirt__cu_dtypes, then that of places in int32. */
typedef void (*const mirt__cu_pool_kernels[MIRT__CU_EITHER + 2])(mirt__cu_pool_call);

static void mirt__cu_pool_run(const mirt__pool2d *p, bool back, const mirt__cu_pool_kernels kernels,
                              const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const bool wide = (int64_t)p->kh * p->kw > UINT8_MAX + 1;
    const int vector = mirt__cu_is_half(p->dtype) ? 8 : 4;
    const bool whole = p->c % vector == 0 && mirt__cu_aligned(p->x, 16) && mirt__cu_aligned(p->y, 16) && !wide &&
                       mirt__cu_aligned(p->which, vector);
    const auto pooling = kernels[wide ? MIRT__CU_EITHER + 1 : whole ? mirt__cu_dtypes_of(p->dtype) : MIRT__CU_EITHER];
    mirt__cu_pool_call a;
    unsigned grid, threads;
    memset(&a, 0, sizeof a);
    mirt__cu_windows_of(&a, p);
    a.c = (int)p->c;
    a.x = p->x;
    a.y = p->y;
    a.which = p->which;
    a.dtype = p->dtype;
    a.x_image = p->h * p->w * p->c;
    a.y_image = p->oh * p->ow * p->c;
    mirt__cu_pixels_of(&a, p->rows, back ? p->h : p->oh, back ? p->w : p->ow, p->c / (whole ? vector : 1), &grid,
                       &threads);
    if (grid > 0) MIRT_LAUNCH(cu, pooling, grid, threads, 0, a);
}
#define MIRT__CU_MAX_POOLS(kernel) \
    {kernel<MIRT__CU_FLOATS, 4, uint8_t>, kernel<MIRT__CU_HALVES, 8, uint8_t>, \
     kernel<MIRT__CU_FLOAT16S, 8, uint8_t>, kernel<MIRT__CU_EITHER, 1, uint8_t>, kernel<MIRT__CU_EITHER, 1, int32_t>}
static void mirt__cu_max_pool(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_MAX_POOLS(mirt__cu_pool_max);
    mirt__cu_pool_run(args, false, kernels, where);
}
static void mirt__cu_max_pool_grad(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_MAX_POOLS(mirt__cu_pool_max_back);
    mirt__cu_pool_run(args, true, kernels, where);
}
#undef MIRT__CU_MAX_POOLS
#define MIRT__CU_AVERAGE_POOLS(kernel) {kernel<4>, NULL, NULL, kernel<1>, kernel<1>}
static void mirt__cu_average_pool(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_AVERAGE_POOLS(mirt__cu_pool_average);
    mirt__cu_pool_run(args, false, kernels, where);
}
static void mirt__cu_average_pool_grad(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_AVERAGE_POOLS(mirt__cu_pool_average_back);
    mirt__cu_pool_run(args, true, kernels, where);
}
#undef MIRT__CU_AVERAGE_POOLS
