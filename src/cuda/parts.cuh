#ifndef MIRT__CUDA_PARTS_CUH
#define MIRT__CUDA_PARTS_CUH
/* Partial sums of weight gradients, and their total. */

#include "cuda.cuh"
#include "math.cuh"

/* to[i] = the sum of part[p * stride + i] over `parts`: by the threads of a column of a block, which each take some
   that follow each other, then in their order. The first `count` numbers go to `to`, the others to `rest`. */
static __global__ void __launch_bounds__(1024)
    mirt__cu_parts_add(const float *part, int64_t parts, int64_t stride, int64_t count, float *to, int64_t more,
                       float *rest) {
    MIRT_SHARED(float, sums, 1024);
    const int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x, each = (parts + blockDim.y - 1) / blockDim.y;
    const int64_t first = threadIdx.y * each, end = first + each < parts ? first + each : parts;
    float sum = 0;
    if (i < count + more) {
        const float *from = part + i;
        int64_t p = first;
        for (; p + 4 <= end; p += 4) {
            const float a = from[p * stride], b = from[(p + 1) * stride], c = from[(p + 2) * stride],
                        d = from[(p + 3) * stride];
            sum += (a + b) + (c + d);
        }
        for (; p < end; p++) sum += from[p * stride];
    }
    sums[threadIdx.y * 32 + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || i >= count + more) return;
    for (int t = 1; t < (int)blockDim.y; t++) sum += sums[t * 32 + threadIdx.x];
    if (i < count) to[i] = sum;
    else rest[i - count] = sum;
}
/* The same of few parts, four numbers per thread: all lengths are multiples of four. */
static __global__ void __launch_bounds__(256)
    mirt__cu_parts_add_few(const float *part, int64_t parts, int64_t stride, int64_t count, float *to, int64_t more,
                           float *rest) {
    const int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 4;
    float sum[4] = {0, 0, 0, 0};
    if (i >= count + more) return;
    for (int64_t p = 0; p < parts; p += 4) {
        float x[4][4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (p + k < parts) mirt__cu_load_n<4>(part + (p + k) * stride + i, x[k]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (p + k >= parts) break;
#pragma unroll
            for (int v = 0; v < 4; v++) sum[v] += x[k][v];
        }
    }
    mirt__cu_store_n<4>(i < count ? to + i : rest + (i - count), sum);
}
/* No parts: zeros. `rest` may be NULL. */
static void mirt__cu_parts_total(mirt__cu *cu, const float *part, int64_t parts, int64_t stride, int64_t count,
                                 float *to, int64_t more, float *rest) {
    if (!rest) more = 0;
    if (count + more < 1) return;
    if (parts <= 32 && count + more >= 1 << 14 && (stride | count | more) % 4 == 0 && mirt__cu_aligned(part, 16) &&
        mirt__cu_aligned(to, 16) && mirt__cu_aligned(rest, 16)) {
        MIRT_LAUNCH(cu, mirt__cu_parts_add_few, (unsigned)mirt__cu_ceil(count + more, 1024), 256, 0, part, parts,
                    stride, count, to, more, rest);
        return;
    }
    const dim3 block(32, parts > 64 ? 32 : 8);
    MIRT_LAUNCH(cu, mirt__cu_parts_add, (unsigned)mirt__cu_ceil(count + more, 32), block, 0, part, parts, stride, count,
                to, more, rest);
}

#endif
