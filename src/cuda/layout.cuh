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
