#ifndef MIRT__CUDA_DEPTHWISE_CUH
#define MIRT__CUDA_DEPTHWISE_CUH
/* Depthwise convolutions: what a thread works on, and how it reads rows. */

#include "epilogue.cuh"
#include "layout.cuh"

/* A unit is a segment of `length` columns of a block of rows of an image. Forward they are those of y, backward of dx:
   there number i of a line stands for those that y's number i is the last to reach, stride * i - padding and on. */
struct mirt__cu_depth : mirt__cu_windows {
    int rows, c, dilation_h, dilation_w;
    mirt__cu_reader x, dy;
    const float *kernel;
    mirt__cu_epilogue e;
    mirt__cu_chunks sums;
    float *part; /* of each block: sums of dkernel, then of db */
    bool db;
    int first_y, first_x, end_y, end_x, length;
    int64_t units, each; /* of an image, where sums are; blocks for those */
    mirt__cu_divisor by_segments, by_lines, by_each;
    int across, down;
    unsigned blocks, beside; /* of the grid: for all units, for all columns */
};

/* >>what is read */

/* N numbers as they lie in memory. HALF: 0, or which of mirt__cu_dtypes of 16 bits. */
template <int HALF, int N> struct mirt__cu_depth_raw {
    mirt__cu_bytes<HALF ? 2 * N : 4 * N> bytes;
};
/* Number `at` of a tensor, from where numbers near it are few bytes away. */
template <int HALF> static inline __device__ char *mirt__cu_depth_near(const void *from, int64_t at) {
    return static_cast<char *>(const_cast<void *>(from)) + at * (HALF ? 2 : 4);
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_floats(const mirt__cu_depth_raw<HALF, N> &raw, float *to) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if constexpr (HALF == MIRT__CU_FLOATS) to[i] = __uint_as_float(raw.bytes.word[i]);
        else if (i % 2 == 0) mirt__cu_from_word<HALF == MIRT__CU_FLOAT16S>(raw.bytes.word[i / 2], &to[i], &to[i + 1]);
    }
}
/* x as its reader has it; dy with the z beside it. Zero where there is none. */
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_x(const mirt__cu_reader &r, const mirt__cu_columns<N> &c,
                                               const mirt__cu_depth_raw<HALF, N> &raw, bool there, float *to) {
    mirt__cu_depth_floats<HALF, N>(raw, to);
    if (r.kind == MIRT__CU_READ_PLAIN) return;
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = mirt__cu_normed(to[i], c.mean[i], c.factor[i], c.offset[i]);
    mirt__cu_activate_n<N, true>(r.norm.activation, to);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = there ? to[i] : 0.0f;
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_dy(const mirt__cu_reader &r, const mirt__cu_columns<N> &c,
                                                const mirt__cu_depth_raw<HALF, N> &raw,
                                                const mirt__cu_depth_raw<HALF, N> &raw_z, bool there, float *to) {
    float z[N], u[N];
    mirt__cu_depth_floats<HALF, N>(raw, to);
    if (r.kind == MIRT__CU_READ_PLAIN) return;
    mirt__cu_depth_floats<HALF, N>(raw_z, z);
#pragma unroll
    for (int i = 0; i < N; i++) {
        z[i] = __fsub_rn(z[i], c.mean[i]);
        u[i] = __fadd_rn(__fmul_rn(z[i], c.factor[i]), c.offset[i]);
    }
    mirt__cu_times_slope_n<N, true>(r.norm.activation, to, u);
#pragma unroll
    for (int i = 0; i < N; i++) {
        to[i] = __fmul_rn(__fsub_rn(__fsub_rn(to[i], c.less[i]), __fmul_rn(z[i], c.part[i])), c.factor[i]);
        to[i] = there ? to[i] : 0.0f;
    }
}

template <int HALF, int N> static inline __device__ void mirt__cu_depth_none(mirt__cu_depth_raw<HALF, N> &raw) {
#pragma unroll
    for (int i = 0; i < (HALF ? N / 2 : N); i++) raw.bytes.word[i] = 0;
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_load(mirt__cu_depth_raw<HALF, N> &raw, const char *near, int away,
                                                  bool there) {
    if (there) raw.bytes = mirt__cu_load_bytes<HALF ? 2 * N : 4 * N>(near + (int64_t)away * (HALF ? 2 : 4));
    else mirt__cu_depth_none<HALF, N>(raw);
}

/* >>rows of stored tensors, in loops whose time is that of their instructions */

/* Keeps a value in its register. The compiler would move its computation into a branch, and repeat it in each pass. */
template <class T> static inline __device__ void mirt__cu_depth_keep(T &value) {
#ifdef MIRT_SIM
    (void)value;
#else
    if constexpr (sizeof value == 8) asm volatile("" : "+l"(value));
    else asm volatile("" : "+r"(value));
#endif
}
/* Sets zero in a rare branch. The compiler would set a constant before the branch, in each pass. */
static inline __device__ void mirt__cu_depth_clear(float &value) {
#ifdef MIRT_SIM
    value = 0;
#else
    asm volatile("mov.b32 %0, 0;" : "=f"(value));
#endif
}
/* The address `bytes` after a pointer that mirt__cu_depth_keep hid, so that the compiler no longer knows its memory. */
static inline __device__ char *mirt__cu_depth_after(char *kept, int64_t bytes) {
    char *at = kept + bytes;
#ifndef MIRT_SIM
    __builtin_assume(__isGlobal(at));
#endif
    return at;
}
/* Row `at` of `rows`, or the nearest one. */
static inline __device__ int mirt__cu_depth_nearest(int at, int rows) { return at < 0 ? 0 : at < rows ? at : rows - 1; }
/* Replaces a row beyond the image by zeros during the conversion to floats. With bfloat16 this takes no additional
   instruction: `low` multiplies a word to get its lower number, `high` selects the upper one. With other types `low`
   selects all of a word. */
template <int HALF> struct mirt__cu_depth_mask {
    uint32_t low, high;
};
template <int HALF> static inline __device__ void mirt__cu_depth_mask_of(bool there, mirt__cu_depth_mask<HALF> &mask) {
    mask.low = !there ? 0u : HALF == MIRT__CU_HALVES ? 0x10000u : ~0u;
    mask.high = there ? 0xFFFF0000u : 0u;
    mirt__cu_depth_keep(mask.low);
    if (HALF == MIRT__CU_HALVES) mirt__cu_depth_keep(mask.high);
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_masked(const mirt__cu_depth_raw<HALF, N> &raw,
                                                    const mirt__cu_depth_mask<HALF> &mask, float *to) {
    if constexpr (HALF == MIRT__CU_HALVES) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            to[i] = __uint_as_float(raw.bytes.word[i / 2] * mask.low);
            to[i + 1] = __uint_as_float(raw.bytes.word[i / 2] & mask.high);
        }
    } else {
        mirt__cu_depth_raw<HALF, N> kept;
#pragma unroll
        for (int i = 0; i < (HALF ? N / 2 : N); i++) kept.bytes.word[i] = raw.bytes.word[i] & mask.low;
        mirt__cu_depth_floats<HALF, N>(kept, to);
    }
}

/* Where a thread is. */
typedef struct mirt__cu_depth_place {
    int lane, column, j; /* of its threads of one column; vector of columns in the block; first channel */
    bool live;
    int64_t group, begin, step; /* image, where there are sums of it; units begin, begin + step, ... of it */
} mirt__cu_depth_place;
template <int N> static inline __device__ mirt__cu_depth_place mirt__cu_depth_place_of(const mirt__cu_depth &d) {
    mirt__cu_depth_place p;
    p.lane = (int)threadIdx.x / d.across;
    p.column = (int)threadIdx.x - p.lane * d.across;
    p.j = ((int)blockIdx.y * d.across + p.column) * N;
    p.live = p.j < d.c;
    p.group = mirt__cu_divide32(blockIdx.x, d.by_each);
    p.begin = ((int64_t)blockIdx.x - p.group * d.each) * d.down + p.lane;
    p.step = d.each * d.down;
    return p;
}
/* The block's sums of columns become a chunk. */
template <int N>
static inline __device__ void mirt__cu_depth_leave(const mirt__cu_depth &d, const mirt__cu_depth_place &p,
                                                   const mirt__cu_sums<N> &s, float *room) {
    const int first = (int)blockIdx.y * d.across * N, left = d.c - first, columns = d.across * N;
    mirt__cu_sums_leave<N>(d.e, d.sums, s, p.column, p.lane, d.down, columns, left < columns ? left : columns,
                           blockIdx.x, first, blockIdx.y == 0, room);
}

#endif
