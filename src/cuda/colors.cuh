#ifndef MIRT__CUDA_COLORS_CUH
#define MIRT__CUDA_COLORS_CUH
/* Products of pixels with a small square matrix, as in preprocessing. They are one pass over memory; tiles of products
   would take many times as long. */

#include "epilogue.cuh"
#include "layout.cuh"

typedef struct mirt__cu_colors {
    mirt__cu_reader x; /* stored, or converted and affine */
    const float *b, *bias;
    int64_t b_row, b_column, pixels;
    void *y;
    mirt_dtype y_dtype, factors; /* factors: what numbers are rounded to */
    bool wide; /* four pixels of x and of y can be accessed at once */
} mirt__cu_colors;

/* Four pixels of N channels per thread. */
template <int N> static __global__ void __launch_bounds__(256) mirt__cu_colors_kernel(const mirt__cu_colors c) {
    float b[N][N], bias[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        bias[j] = c.bias ? c.bias[j] : 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++) b[k][j] = mirt__cu_round(c.b[k * c.b_row + j * c.b_column], c.factors);
    }
    MIRT__CU_PIECES(at, left, c.pixels, 4) {
        const bool wide = c.wide && left >= 4;
        float x[4 * N], y[4 * N];
#pragma unroll
        for (int i = 0; i < 4 * N; i += 4) {
            if (wide) mirt__cu_load_as<4>(c.x.data, c.x.dtype, at * N + i, x + i);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            if (!wide) x[i] = i < left * N ? mirt__cu_load(c.x.data, c.x.dtype, at * N + i) : 0.0f;
            x[i] = mirt__cu_round(c.x.affine ? fmaf(x[i], c.x.scale, c.x.offset) : x[i], c.factors);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < N; k++) sum = fmaf(x[i / N * N + k], b[k][i % N], sum);
            y[i] = c.bias ? __fadd_rn(sum, bias[i % N]) : sum;
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i += 4) {
            if (wide) mirt__cu_put<MIRT__CU_EITHER, 4>(c.y, c.y_dtype, at * N + i, y + i);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            if (!wide && i < left * N) mirt__cu_put<MIRT__CU_EITHER, 1>(c.y, c.y_dtype, at * N + i, y + i);
        }
    }
}

/* Pixels of n channels, side by side, times b; false: another kernel has to. */
static bool mirt__cu_multiply_colors(mirt__cu *cu, mirt__cu_colors c, int64_t n, int64_t k,
                                     const mirt__cu_epilogue &e) {
    if (n != k || n < 2 || n > 4 || c.x.kind != MIRT__CU_READ_PLAIN || c.pixels < 1) return false;
    if (e.activation != MIRT_LINEAR || e.mask || e.add || e.norm.mean || e.slope.mean || e.sums) return false;
    c.bias = e.bias;
    c.y = e.y;
    c.y_dtype = e.dtype;
    c.wide = mirt__cu_aligned_for(c.x.data, c.x.dtype, 4) && mirt__cu_aligned_for(c.y, c.y_dtype, 4);
    const unsigned blocks = mirt__cu_blocks(mirt__cu_ceil(c.pixels, 4), 256);
    MIRT_LAUNCH(cu, (n == 2   ? mirt__cu_colors_kernel<2>
                     : n == 3 ? mirt__cu_colors_kernel<3>
                              : mirt__cu_colors_kernel<4>),
                blocks, 256, 0, c);
    return true;
}

#endif
