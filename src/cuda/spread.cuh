#ifndef MIRT__CUDA_SPREAD_CUH
#define MIRT__CUDA_SPREAD_CUH
/* Inputs that products cannot read as they lie in memory are written down first. They are as products want them then:
   each group's channels filled up with zeros. */

#include "layout.cuh"
#include "reader.cuh"

typedef struct mirt__cu_mm_spread {
    mirt__cu_reader x;
    void *to;
    int64_t pixels, stride,
        turned; /* stride: from pixel to pixel; turned: element p * turned + i is channel p of pixel i */
    int k, k_pad, groups;
    mirt_dtype dtype, factors; /* of `to`; what numbers are rounded to */
    bool wide; /* all channels of a piece exist and can be read at once */
    int across, down; /* of a block of mirt__cu_mm_spread_wide_kernel: pieces, and pixels at a time */
    mirt__cu_divisor by_pieces, by_pixels, by_groups;
} mirt__cu_mm_spread;

/* Four channels per thread. */
static __global__ void __launch_bounds__(256) mirt__cu_mm_spread_kernel(mirt__cu_mm_spread p) {
    const int64_t pieces = p.k_pad / 4, all = p.pixels * p.groups * pieces;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all; at += (int64_t)gridDim.x * 256) {
        float value[4] = {0, 0, 0, 0};
        int64_t set, piece, group;
        if (p.turned) piece = mirt__cu_divmod(at, p.by_pixels, &set);
        else set = mirt__cu_divmod(at, p.by_pieces, &piece);
        const int64_t pixel = mirt__cu_divmod(set, p.by_groups, &group), j = piece * 4;
        const int64_t from = pixel * p.stride + group * p.k + j;
        if (p.wide && j < p.k) {
            mirt__cu_columns<4> c;
            mirt__cu_columns_of<MIRT__CU_READ_ANY, 4>(p.x, group * p.k + j, c);
            mirt__cu_read<MIRT__CU_READ_ANY, 4>(p.x, c, from, mirt__cu_gate_of(p.x, pixel), group * p.k + j, value);
        } else {
#pragma unroll 1
            for (int i = 0; i < 4 && j + i < p.k; i++) {
                const float one = mirt__cu_read_one(p.x, p.turned ? (j + i) * p.turned + pixel : from + i);
                value[0] = i == 0 ? one : value[0];
                value[1] = i == 1 ? one : value[1];
                value[2] = i == 2 ? one : value[2];
                value[3] = i == 3 ? one : value[3];
            }
        }
        const int64_t to = set * p.k_pad + j;
#pragma unroll
        for (int i = 0; i < 4; i++) value[i] = p.dtype == p.factors ? value[i] : mirt__cu_round(value[i], p.factors);
        mirt__cu_store_as<4>(p.to, p.dtype, to, value);
    }
}

/* Four channels per thread as well, of one group: those of its columns in each pixel it comes to, whose constants it
   works out once. */
static __global__ void __launch_bounds__(256, 2) mirt__cu_mm_spread_wide_kernel(mirt__cu_mm_spread p) {
    const int rows = 4;
    const int64_t j = ((int64_t)blockIdx.y * p.across + (int)threadIdx.x % p.across) * 4,
                  step = (int64_t)gridDim.x * p.down;
    mirt__cu_columns<4> c;
    if (j >= p.k_pad) return;
    if (j < p.k) mirt__cu_columns_of<MIRT__CU_READ_ANY, 4>(p.x, j, c);
    for (int64_t first = (int64_t)blockIdx.x * p.down + (int)threadIdx.x / p.across; first < p.pixels;
         first += rows * step) {
        mirt__cu_raw<4> raw[rows];
#pragma unroll
        for (int i = 0; i < rows && j < p.k; i++) {
            if (first + i * step >= p.pixels) break;
            mirt__cu_fetch<MIRT__CU_READ_ANY, 4>(p.x, (first + i * step) * p.stride + j, raw[i]);
        }
#pragma unroll
        for (int i = 0; i < rows; i++) {
            const int64_t pixel = first + i * step;
            float value[4] = {0, 0, 0, 0};
            if (pixel >= p.pixels) break;
            if (j < p.k)
                mirt__cu_make<MIRT__CU_READ_ANY, 4>(p.x, c, raw[i], mirt__cu_gate_of(p.x, pixel), j, value);
#pragma unroll
            for (int v = 0; v < 4; v++)
                value[v] = p.dtype == p.factors ? value[v] : mirt__cu_round(value[v], p.factors);
            mirt__cu_store_as<4>(p.to, p.dtype, pixel * p.k_pad + j, value);
        }
    }
}

/* A pixel per thread, of up to four channels that are read as they are: colors. */
static __global__ void __launch_bounds__(256) mirt__cu_mm_spread_colors_kernel(mirt__cu_mm_spread p) {
    for (int64_t pixel = (int64_t)blockIdx.x * 256 + threadIdx.x; pixel < p.pixels;
         pixel += (int64_t)gridDim.x * 256) {
        uint32_t word[4];
        float value[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i < p.k) mirt__cu_fetch_words<1>(p.x.data, p.x.dtype, pixel * p.stride + i, &word[i]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i >= p.k) break;
            mirt__cu_make_words<1>(&word[i], p.x.dtype, &value[i]);
            if (p.x.affine) value[i] = fmaf(value[i], p.x.scale, p.x.offset);
            if (p.dtype != p.factors) value[i] = mirt__cu_round(value[i], p.factors);
        }
        if (p.k_pad == 8) mirt__cu_store_as<8>(p.to, p.dtype, pixel * 8, value);
        else mirt__cu_store_as<4>(p.to, p.dtype, pixel * 4, value);
    }
}

/* Of `pixels` that are `stride` elements apart, each of which has k channels per group. */
static mirt__cu_mm_spread mirt__cu_mm_spread_of(const mirt__cu_reader &x, int64_t pixels, int64_t stride, int groups,
                                                int k, mirt_dtype dtype, mirt_dtype factors, int64_t turned) {
    mirt__cu_mm_spread s;
    memset(&s, 0, sizeof s);
    s.x = x;
    s.pixels = pixels;
    s.stride = stride;
    s.turned = turned;
    s.k = k;
    s.k_pad = (int)mirt__cu_round_up(k, dtype == MIRT_FLOAT32 ? 4 : 8);
    s.groups = groups;
    s.dtype = dtype;
    s.factors = factors;
    s.wide = k % 4 == 0 && x.width >= 4 && !turned;
    s.by_pieces = mirt__cu_divisor_of(s.k_pad / 4);
    s.by_pixels = mirt__cu_divisor_of(pixels);
    s.by_groups = mirt__cu_divisor_of(groups);
    return s;
}
static int64_t mirt__cu_mm_spread_bytes(const mirt__cu_mm_spread &s) {
    return s.pixels * s.groups * s.k_pad * (s.dtype == MIRT_FLOAT32 ? 4 : 2);
}
static void mirt__cu_mm_spread_run(mirt__cu *cu, mirt__cu_mm_spread s, void *to) {
    s.to = to;
    if (s.pixels < 1 || s.k_pad < 1) return;
    if (s.groups == 1 && s.wide) {
        const mirt__cu_layout c = mirt__cu_layout_of(s.k_pad / 4, 256, 256);
        const int64_t blocks = mirt__cu_ceil(s.pixels, c.down * 4), most = c.blocks < 1024 ? 2048 / c.blocks : 2;
        s.across = c.across;
        s.down = c.down;
        MIRT_LAUNCH(cu, mirt__cu_mm_spread_wide_kernel, dim3((unsigned)(blocks < most ? blocks : most), c.blocks),
                    c.across * c.down, 0, s);
    } else if (s.groups == 1 && !s.turned && s.k <= 4 && s.x.kind == MIRT__CU_READ_PLAIN) {
        MIRT_LAUNCH(cu, mirt__cu_mm_spread_colors_kernel, mirt__cu_blocks(s.pixels, 256), 256, 0, s);
    } else {
        MIRT_LAUNCH(cu, mirt__cu_mm_spread_kernel, mirt__cu_blocks(s.pixels * s.groups * (s.k_pad / 4), 256), 256, 0,
                    s);
    }
}

/* A call's memory: what is asked for first, then where it is. */
typedef struct mirt__cu_mm_rooms {
    int64_t x, b, partial, chunks, end;
} mirt__cu_mm_rooms;
static int64_t mirt__cu_mm_rooms_take(mirt__cu_mm_rooms *r, int64_t bytes) {
    const int64_t at = r->end;
    r->end += mirt__cu_round_up(bytes, 256);
    return at;
}

#endif
