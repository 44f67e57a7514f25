#ifndef MIRT__CUDA_SPREAD_CUH
#define MIRT__CUDA_SPREAD_CUH
/* Inputs that products cannot read as they lie in memory are written down first. They are as products want them then:
   each group's channels filled up with zeros. */

#include "reader.cuh"

typedef struct mirt__cu_mm_spread {
    mirt__cu_reader x;
    void *to;
    int64_t pixels, stride,
        turned; /* stride: from pixel to pixel; turned: element p * turned + i is channel p of pixel i */
    int k, k_pad, groups;
    mirt_dtype dtype, factors; /* of `to`; what numbers are rounded to */
    bool wide; /* all channels of a piece exist and can be read at once */
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
    MIRT_LAUNCH(cu, mirt__cu_mm_spread_kernel, mirt__cu_blocks(s.pixels * s.groups * (s.k_pad / 4), 256), 256, 0, s);
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
