#ifndef MIRT__CUDA_LAYOUT_CUH
#define MIRT__CUDA_LAYOUT_CUH
/* Kernels whose threads keep their columns (channels): N neighbors each, accessed at once. */

#include "reader.cuh"

/* A block of across * down threads: thread t has vector t % across of the block's columns, and every down-th of its
   rows. */
typedef struct mirt__cu_layout {
    int across, down;
    unsigned blocks; /* side by side, for all columns */
} mirt__cu_layout;
static inline mirt__cu_layout mirt__cu_layout_of(int64_t vectors, int most, int threads) {
    mirt__cu_layout c;
    c.blocks = (unsigned)mirt__cu_ceil(vectors < 1 ? 1 : vectors, most);
    c.across = (int)mirt__cu_ceil(vectors < 1 ? 1 : vectors, (int64_t)c.blocks);
    c.down = threads / c.across < 1 ? 1 : threads / c.across;
    return c;
}

/* What a grid goes over: lines of pixels, whose channels are taken N at a time. */
typedef struct mirt__cu_pixels {
    int64_t lines; /* of all images, below 2^31 */
    mirt__cu_divisor by_lines, by_vectors; /* lines of an image; vectors of a pixel */
    int items, across, down; /* of a line: vectors; of a block: those at a time, and lines */
} mirt__cu_pixels;
/* *grid: blocks of so many *threads; 0 where there is nothing. */
static void mirt__cu_pixels_of(mirt__cu_pixels *p, int64_t images, int64_t height, int64_t width, int64_t vectors,
                               unsigned *grid, unsigned *threads) {
    p->lines = images * height;
    p->by_lines = mirt__cu_divisor_of(height);
    p->by_vectors = mirt__cu_divisor_of(vectors);
    p->items = (int)(width * vectors);
    p->across = p->items < 256 ? p->items < 1 ? 1 : p->items : 256;
    p->down = 256 / p->across;
    const int64_t blocks = mirt__cu_ceil(p->lines, p->down);
    *grid = (unsigned)(p->items == 0 ? 0 : blocks < 1 << 20 ? blocks : 1 << 20);
    *threads = (unsigned)(p->across * p->down);
}
#define MIRT__CU_PIXELS_EACH(a) \
    for (int64_t line = (int64_t)blockIdx.x * a.down + (int)threadIdx.x / a.across; line < a.lines; \
         line += (int64_t)gridDim.x * a.down) \
        for (int item = (int)threadIdx.x % a.across; item < a.items; item += a.across)
/* There: N channels from `c` on of pixel `column` of row `y` of image `image`. */
#define MIRT__CU_PIXELS_PLACE(a) \
    const int64_t image = mirt__cu_divide32((uint32_t)line, a.by_lines), y = line - image * a.by_lines.by; \
    const int column = (int)mirt__cu_divide32((uint32_t)item, a.by_vectors), \
              c = (item - column * (int)a.by_vectors.by) * N;

/* Windows of an image that are pooled or convolved. */
typedef struct mirt__cu_windows {
    int h, w, oh, ow, kh, kw, stride_h, stride_w, top, left; /* top, left: padding */
} mirt__cu_windows;
template <class S> static void mirt__cu_windows_of(mirt__cu_windows *p, const S *s) {
    p->h = (int)s->h;
    p->w = (int)s->w;
    p->oh = (int)s->oh;
    p->ow = (int)s->ow;
    p->kh = s->kh;
    p->kw = s->kw;
    p->stride_h = s->stride_h;
    p->stride_w = s->stride_w;
    p->top = (int)s->pad_top;
    p->left = (int)s->pad_left;
}

/* Whether pixels of y are made of those of x. */
static bool mirt__cu_pixelwise(const mirt__conv *s) {
    return s->kh == 1 && s->kw == 1 && s->stride_h == 1 && s->stride_w == 1 && s->pad_top == 0 && s->pad_left == 0 &&
           s->oh == s->h && s->ow == s->w;
}

/* What the compiler knows of the dtypes of a kernel's tensors. */
typedef enum mirt__cu_dtypes {
    MIRT__CU_FLOATS, MIRT__CU_HALVES /* bfloat16 */, MIRT__CU_FLOAT16S, MIRT__CU_EITHER
} mirt__cu_dtypes;
static inline mirt__cu_dtypes mirt__cu_dtypes_of(mirt_dtype dtype) {
    return (int)dtype == MIRT__FLOAT16    ? MIRT__CU_FLOAT16S
           : (int)dtype == MIRT__BFLOAT16 ? MIRT__CU_HALVES
                                          : MIRT__CU_FLOATS;
}
#define MIRT__CU_ARE(dtypes, one) (DTYPES == dtypes || (DTYPES == MIRT__CU_EITHER && (int)dtype == one))
template <int DTYPES, int N>
static inline __device__ void mirt__cu_get(const void *x, mirt_dtype dtype, int64_t at, float *to) {
    if (MIRT__CU_ARE(MIRT__CU_HALVES, MIRT__BFLOAT16)) mirt__cu_load_n<N>(static_cast<const uint16_t *>(x) + at, to);
    else if (MIRT__CU_ARE(MIRT__CU_FLOAT16S, MIRT__FLOAT16))
        mirt__cu_load_n<N>(static_cast<const mirt__cu_f16 *>(x) + at, to);
    else mirt__cu_load_n<N>(static_cast<const float *>(x) + at, to);
}
template <int DTYPES, int N>
static inline __device__ void mirt__cu_put(void *y, mirt_dtype dtype, int64_t at, const float *from) {
    if (MIRT__CU_ARE(MIRT__CU_HALVES, MIRT__BFLOAT16)) mirt__cu_store_n<N>(static_cast<uint16_t *>(y) + at, from);
    else if (MIRT__CU_ARE(MIRT__CU_FLOAT16S, MIRT__FLOAT16))
        mirt__cu_store_n<N>(static_cast<mirt__cu_f16 *>(y) + at, from);
    else mirt__cu_store_n<N>(static_cast<float *>(y) + at, from);
}
#undef MIRT__CU_ARE
/* N numbers as they lie in memory, which take their time to come, and what they are. */
template <int DTYPES> static inline __device__ mirt_dtype mirt__cu_dtype_of(mirt_dtype dtype) {
    return DTYPES == MIRT__CU_EITHER ? dtype
                                     : (mirt_dtype)(DTYPES == MIRT__CU_FLOAT16S ? (int)MIRT__FLOAT16
                                                    : DTYPES == MIRT__CU_HALVES ? (int)MIRT__BFLOAT16
                                                                                : (int)MIRT_FLOAT32);
}
template <int DTYPES, int N>
static inline __device__ void mirt__cu_fetch_of(const void *x, mirt_dtype dtype, int64_t at, uint32_t *words) {
    mirt__cu_fetch_words<N>(x, mirt__cu_dtype_of<DTYPES>(dtype), at, words);
}
template <int DTYPES, int N>
static inline __device__ void mirt__cu_make_of(const uint32_t *words, mirt_dtype dtype, float *to) {
    mirt__cu_make_words<N>(words, mirt__cu_dtype_of<DTYPES>(dtype), to);
}

/* Sums of `count` numbers of each thread over the rows of threads of a block, by a tree: row 0 gets them. `room`: count
   floats for each thread. */
static inline __device__ void mirt__cu_down_sum(float *x, int count, int across, int down, float *room) {
    const int t = (int)threadIdx.x, all = across * down, row = t / across;
    for (int i = 0; i < count; i++) room[i * all + t] = x[i];
    for (int left = down; left > 1;) {
        const int half = (left + 1) / 2;
        __syncthreads();
        if (row + half < left) {
            for (int i = 0; i < count; i++) room[i * all + t] += room[i * all + t + half * across];
        }
        left = half;
    }
    if (row > 0) return;
    for (int i = 0; i < count; i++) x[i] = room[i * all + t];
}

#endif
