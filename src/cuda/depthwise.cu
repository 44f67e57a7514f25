/* Depthwise convolutions and both of their gradients in one pass. A thread owns some neighboring channels and walks
   along a segment of the image's columns, holding in registers the outputs that the current column reaches. Shapes
   without such a kernel are computed pixel by pixel. */
#include "epilogue.cuh"
#include "layout.cuh"
#include "parts.cuh"

#define MIRT__CU_DEPTH_TAPS 64
#define MIRT__CU_DEPTH_BLOCKS 1024  /* of a grid, at most: as many chunks of sums */
#define MIRT__CU_DEPTH_THREADS 262144 /* for which segments are cut shorter */

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
/* N numbers of a row that exists, or by `kept` zeros: then it is another row's place. */
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_take(mirt__cu_depth_raw<HALF, N> &raw, const char *near, int away,
                                                  uint32_t kept) {
    raw.bytes = mirt__cu_load_bytes<HALF ? 2 * N : 4 * N>(near + (int64_t)away * (HALF ? 2 : 4));
#pragma unroll
    for (int i = 0; i < (HALF ? N / 2 : N); i++) raw.bytes.word[i] &= kept;
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

/* >>forward: `LINES` rows of y at a time; column o + t of x, taken S at a time, reaches outputs o, o - 1, ... */

/* USUAL: of training: the image is stored, and nothing follows but the moments. */
template <int K, int S, int LINES, int N, int HALF, bool USUAL>
static __global__ __launch_bounds__(128, K == 3 ? 3 : 2)
    void mirt__cu_depth_forward(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    constexpr int OPEN = (K + S - 1) / S, READ = (LINES - 1) * S + K;
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    mirt__cu_finish_columns<N> finish;
    mirt__cu_columns<N> columns;
    mirt__cu_sums<N> sums;
    float k[K * K][N];
    mirt__cu_sums_begin<N>(sums);
    if (p.live) {
        if (!USUAL) mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.x, p.j, columns);
        if (!USUAL) mirt__cu_finish_columns_of<N>(d.e, p.j, N, finish);
#pragma unroll
        for (int t = 0; t < K * K; t++) mirt__cu_load_n<N>(d.kernel + (int64_t)t * d.c + p.j, k[t]);
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        const int64_t unit = p.group * d.units + i;
        const uint32_t line = mirt__cu_divide32((uint32_t)unit, d.by_segments),
                       image = mirt__cu_divide32(line, d.by_lines);
        const int oy = (int)(line - image * (uint32_t)d.by_lines.by) * LINES, iy = oy * S - d.top;
        const int begin = (int)(unit - (int64_t)line * d.by_segments.by) * d.length,
                  end = d.ow - begin < d.length ? d.ow : begin + d.length;
        const int row = d.w * d.c, y_row = d.ow * d.c;
        const char *const x_near = mirt__cu_depth_near<HALF>(d.x.data, ((int64_t)image * d.h + iy) * row + p.j);
        char *const y_near = mirt__cu_depth_near<HALF>(d.e.y, ((int64_t)image * d.oh + oy) * y_row + p.j);
        /* Rows beyond the image are read as the nearest one, and become zeros. */
        uint32_t kept[READ];
        int away[READ];
#pragma unroll
        for (int q = 0; q < READ; q++) {
            const int nearest = iy + q < 0 ? 0 : iy + q < d.h ? iy + q : d.h - 1;
            kept[q] = iy + q == nearest ? ~0u : 0u;
            away[q] = (nearest - iy) * row + (begin * S - d.left) * d.c;
        }
        float sum[LINES][OPEN][N] = {};
#pragma unroll 1
        for (int o = begin; o < end + OPEN - 1; o++) {
#pragma unroll
            for (int t = 0; t < S; t++) {
                const int ix = o * S + t - d.left;
                const bool inside = ix >= 0 && ix < d.w && d.h > 0;
                mirt__cu_depth_raw<HALF, N> raw[READ];
                if (inside) {
#pragma unroll
                    for (int q = 0; q < READ; q++) mirt__cu_depth_take<HALF, N>(raw[q], x_near, away[q], kept[q]);
                } else {
#pragma unroll
                    for (int q = 0; q < READ; q++) mirt__cu_depth_none<HALF, N>(raw[q]);
                }
#pragma unroll
                for (int q = 0; q < READ; q++) away[q] += d.c;
#pragma unroll
                for (int q = 0; q < READ; q++) {
                    float x[N];
                    if constexpr (USUAL) mirt__cu_depth_floats<HALF, N>(raw[q], x);
                    else mirt__cu_depth_x<HALF, N>(d.x, columns, raw[q], inside && kept[q], x);
#pragma unroll
                    for (int r = 0; r < LINES; r++) {
                        const int ky = q - r * S;
                        if (ky < 0 || ky >= K) continue;
#pragma unroll
                        for (int m = 0; m < OPEN; m++) {
                            if (t + m * S >= K) continue;
#pragma unroll
                            for (int v = 0; v < N; v++)
                                sum[r][m][v] = fmaf(x[v], k[ky * K + t + m * S][v], sum[r][m][v]);
                        }
                    }
                }
            }
            const int ox = o - (OPEN - 1);
#pragma unroll
            for (int r = 0; r < LINES; r++) {
                if (ox >= begin && oy + r < d.oh) {
                    float *y = sum[r][OPEN - 1];
                    if (!USUAL && d.e.bias) {
#pragma unroll
                        for (int v = 0; v < N; v++) y[v] = __fadd_rn(y[v], finish.bias[v]);
                    }
                    if (!USUAL && d.e.norm.mean) {
#pragma unroll
                        for (int v = 0; v < N; v++)
                            y[v] = mirt__cu_normed(y[v], finish.mean[v], finish.factor[v], finish.offset[v]);
                    }
                    if (!USUAL) mirt__cu_activate_n<N, true>(d.e.activation, y);
                    mirt__cu_put<HALF, N>(y_near, d.e.dtype, (int64_t)(ox * d.c + r * y_row), y);
                    if (USUAL) mirt__cu_moments_add<N>(sums, y);
                    else mirt__cu_sums_add<N>(d.e, finish, sums, y, y);
                }
#pragma unroll
                for (int m = OPEN - 1; m >= 0; m--) {
#pragma unroll
                    for (int v = 0; v < N; v++) sum[r][m][v] = m > 0 ? sum[r][m - 1][v] : 0.0f;
                }
            }
        }
    }
    mirt__cu_depth_leave<N>(d, p, sums, room);
}

/* >>backward: column o of dy reaches K columns of dx from o * S - left on; after it the first S of them are done */

typedef enum mirt__cu_depth_wants {
    MIRT__CU_DEPTH_DX, MIRT__CU_DEPTH_BOTH, MIRT__CU_DEPTH_DKERNEL
} mirt__cu_depth_wants;

/* The sums of dkernel and db of a block; `room`: N floats for each thread. */
template <int TAPS, int N>
static inline __device__ void mirt__cu_depth_parts(const mirt__cu_depth &d, const mirt__cu_depth_place &p,
                                                   float (*sum)[N], float *room) {
    float *part = d.part + (int64_t)blockIdx.x * (TAPS + 1) * d.c + p.j;
#pragma unroll
    for (int t = 0; t < TAPS + 1; t++) {
        if (t == TAPS && !d.db) break;
        __syncthreads();
        mirt__cu_down_sum(sum[t], N, d.across, d.down, room);
        if (!p.live || p.lane > 0) continue;
#pragma unroll
        for (int v = 0; v < N; v++) part[(int64_t)t * d.c + v] = sum[t][v];
    }
}

/* USUAL: of training, with operands that are stored: the gradient of a normalization's output, times the slope of ReLU
   or ReLU6, with its sums. */
template <int K, int S, int LINES, int N, int HALF, int WANTS, bool USUAL>
static __global__ __launch_bounds__(128, HALF && K == 3 ? 3 : 2) void mirt__cu_depth_back(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    constexpr int OPEN = (K + S - 1) / S, READ = LINES + OPEN - 1, MAKE = LINES * S;
    constexpr bool DX = WANTS != MIRT__CU_DEPTH_DKERNEL, DK = WANTS != MIRT__CU_DEPTH_DX;
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    mirt__cu_finish_columns<N> finish;
    mirt__cu_columns<N> columns, x_columns;
    mirt__cu_sums<N> sums;
    float k[DX ? K * K : 1][N], dk[DK ? K * K + 1 : 1][N] = {};
    const float most = d.e.slope.activation == MIRT_RELU6 ? 6.0f : INFINITY;
    if (DX) mirt__cu_sums_begin<N>(sums);
    if (p.live) {
        if (!USUAL) mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.dy, p.j, columns);
        if (DK && !USUAL) mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.x, p.j, x_columns);
        if (DX) {
            mirt__cu_finish_columns_of<N>(d.e, p.j, N, finish);
#pragma unroll
            for (int t = 0; t < K * K; t++) mirt__cu_load_n<N>(d.kernel + (int64_t)t * d.c + p.j, k[t]);
        }
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        const uint32_t unit = (uint32_t)i, line = mirt__cu_divide32(unit, d.by_segments),
                       image = mirt__cu_divide32(line, d.by_lines);
        const int a = d.first_y + (int)(line - image * (uint32_t)d.by_lines.by) * LINES, iy = a * S - d.top;
        const int begin = d.first_x + (int)(unit - line * (uint32_t)d.by_segments.by) * d.length,
                  end = d.end_x - begin < d.length ? d.end_x : begin + d.length;
        const int x0 = begin * S - d.left > 0 ? begin * S - d.left : 0,
                  x1 = end * S - d.left < d.w ? end * S - d.left : d.w; /* of dx */
        const int row = d.ow * d.c, x_row = d.w * d.c;
        const int64_t dy_at = ((int64_t)image * d.oh + a - (OPEN - 1)) * row + p.j,
                      x_at = ((int64_t)image * d.h + iy) * x_row + p.j;
        const char *const dy_near = mirt__cu_depth_near<HALF>(d.dy.data, dy_at),
                   *const z_near = mirt__cu_depth_near<HALF>(d.dy.z, dy_at);
        const char *const x_near = mirt__cu_depth_near<HALF>(d.x.data, x_at),
                   *const slope_near = mirt__cu_depth_near<HALF>(d.e.slope_x, x_at);
        char *const dx_near = mirt__cu_depth_near<HALF>(d.e.y, x_at);
        /* USUAL: rows beyond the image are read as the nearest one, and become zeros. */
        uint32_t dy_kept[READ], x_kept[MAKE];
        int dy_away[READ], x_away[MAKE];
#pragma unroll
        for (int q = 0; q < READ; q++) {
            const int oy = a - (OPEN - 1) + q, nearest = oy < 0 ? 0 : oy < d.oh ? oy : d.oh - 1;
            dy_kept[q] = oy == nearest ? ~0u : 0u;
            dy_away[q] = (nearest - a + OPEN - 1) * row + (begin - (OPEN - 1)) * d.c;
        }
#pragma unroll
        for (int q = 0; q < MAKE; q++) {
            const int nearest = iy + q < 0 ? 0 : iy + q < d.h ? iy + q : d.h - 1;
            x_kept[q] = iy + q == nearest ? ~0u : 0u;
            x_away[q] = (nearest - iy) * x_row + ((begin - (OPEN - 1)) * S - d.left) * d.c;
        }
        float sum[DX ? MAKE : 1][K][N] = {}, x[DK ? MAKE : 1][K][N] = {};
        const int one = d.c, step = S * d.c;
        const char *const x_ahead = mirt__cu_depth_near<HALF>(x_near, (K - S) * d.c);
#pragma unroll 1
        for (int o = begin - (OPEN - 1); o < end; o++) {
            const bool inside = o >= 0 && o < d.ow && d.oh > 0;
            const int ix = o * S - d.left;
            mirt__cu_depth_raw<HALF, N> raw[READ], raw_z[READ], raw_x[DK ? MAKE : 1][S];
            if (USUAL && inside) {
#pragma unroll
                for (int q = 0; q < READ; q++)
                    mirt__cu_depth_take<HALF, N>(raw[q], dy_near, dy_away[q], dy_kept[q]);
            } else {
#pragma unroll
                for (int q = 0; q < READ; q++) {
                    const int oy = a - (OPEN - 1) + q;
                    const bool there = !USUAL && inside && oy >= 0 && oy < d.oh;
                    mirt__cu_depth_load<HALF, N>(raw[q], dy_near, o * d.c + q * row, there);
                    if (!USUAL && d.dy.kind != MIRT__CU_READ_PLAIN)
                        mirt__cu_depth_load<HALF, N>(raw_z[q], z_near, o * d.c + q * row, there);
                }
            }
            if constexpr (DK) {
#pragma unroll
                for (int s = 0; s < S; s++) {
                    const int column = ix + K - S + s;
                    const bool beside = column >= x0 && column < x1;
                    if (USUAL && beside) {
#pragma unroll
                        for (int q = 0; q < MAKE; q++)
                            mirt__cu_depth_take<HALF, N>(raw_x[q][s], x_ahead, x_away[q] + s * one, x_kept[q]);
                    } else {
#pragma unroll
                        for (int q = 0; q < MAKE; q++)
                            mirt__cu_depth_load<HALF, N>(raw_x[q][s], x_near, column * d.c + q * x_row,
                                                         !USUAL && beside && iy + q >= 0 && iy + q < d.h);
                    }
#pragma unroll
                    for (int q = 0; q < MAKE; q++) {
                        if constexpr (USUAL) mirt__cu_depth_floats<HALF, N>(raw_x[q][s], x[q][K - S + s]);
                        else mirt__cu_depth_x<HALF, N>(d.x, x_columns, raw_x[q][s],
                                                       beside && iy + q >= 0 && iy + q < d.h, x[q][K - S + s]);
                    }
                }
            }
#pragma unroll
            for (int q = 0; q < READ; q++) {
                float g[N];
                if constexpr (USUAL) mirt__cu_depth_floats<HALF, N>(raw[q], g);
                else mirt__cu_depth_dy<HALF, N>(d.dy, columns, raw[q], raw_z[q],
                                                inside && a - (OPEN - 1) + q >= 0 && a - (OPEN - 1) + q < d.oh, g);
#pragma unroll
                for (int made = 0; made < MAKE; made++) {
                    const int ky = made - (q - (OPEN - 1)) * S;
                    if (ky < 0 || ky >= K) continue;
#pragma unroll
                    for (int kx = 0; kx < K; kx++) {
#pragma unroll
                        for (int v = 0; v < N; v++) {
                            if constexpr (DX) sum[made][kx][v] = fmaf(g[v], k[ky * K + kx][v], sum[made][kx][v]);
                            if constexpr (DK) dk[ky * K + kx][v] = fmaf(g[v], x[made][kx][v], dk[ky * K + kx][v]);
                        }
                    }
                }
                if (DK && (!USUAL || d.db) && q >= OPEN - 1 && o >= begin) {
#pragma unroll
                    for (int v = 0; v < N; v++) dk[DK ? K * K : 0][v] += g[v];
                }
            }
            if (DX && o >= begin) {
#pragma unroll
                for (int s = 0; s < S; s++) {
                    if (ix + s < 0 || ix + s >= d.w) continue;
                    mirt__cu_depth_raw<HALF, N> slope[MAKE];
                    if (USUAL || d.e.slope.mean) {
#pragma unroll
                        for (int q = 0; q < MAKE; q++) {
                            if (USUAL) mirt__cu_depth_take<HALF, N>(slope[q], slope_near, x_away[q] + s * one, ~0u);
                            else
                                mirt__cu_depth_load<HALF, N>(slope[q], slope_near, (ix + s) * d.c + q * x_row,
                                                             iy + q >= 0 && iy + q < d.h);
                        }
                    }
#pragma unroll
                    for (int q = 0; q < MAKE; q++) {
                        if (USUAL ? !x_kept[q] : iy + q < 0 || iy + q >= d.h) continue;
                        float *g = sum[DX ? q : 0][s], z[N], u[N];
                        if constexpr (USUAL) {
                            mirt__cu_depth_floats<HALF, N>(slope[q], z);
#pragma unroll
                            for (int v = 0; v < N; v++) {
                                const float away = __fsub_rn(z[v], finish.slope_mean[v]);
                                u[v] = __fadd_rn(__fmul_rn(away, finish.slope_factor[v]), finish.slope_offset[v]);
                                g[v] = u[v] > 0 && u[v] < most ? g[v] : 0.0f;
                                sums.first[v] += g[v];
                                sums.second[v] = fmaf(g[v], away, sums.second[v]);
                            }
                            sums.count += 1;
                        } else {
                            if (d.e.slope.mean) {
                                mirt__cu_depth_floats<HALF, N>(slope[q], z);
#pragma unroll
                                for (int v = 0; v < N; v++)
                                    u[v] = mirt__cu_normed(z[v], finish.slope_mean[v], finish.slope_factor[v],
                                                           finish.slope_offset[v]);
                                mirt__cu_times_slope_n<N, true>(d.e.slope.activation, g, u);
                            }
                            mirt__cu_sums_add<N>(d.e, finish, sums, g, z);
                        }
                        mirt__cu_put<HALF, N>(dx_near, d.e.dtype,
                                              (int64_t)(USUAL ? x_away[q] + s * one : (ix + s) * d.c + q * x_row), g);
                    }
                }
            }
#pragma unroll
            for (int q = 0; q < READ; q++) dy_away[q] += one;
#pragma unroll
            for (int q = 0; q < MAKE; q++) x_away[q] += step;
#pragma unroll
            for (int q = 0; q < MAKE; q++) {
#pragma unroll
                for (int kx = 0; kx < K; kx++) {
#pragma unroll
                    for (int v = 0; v < N; v++) {
                        if constexpr (DX) sum[q][kx][v] = kx + S < K ? sum[q][(kx + S) % K][v] : 0.0f;
                        if constexpr (DK) x[q][kx][v] = kx + S < K ? x[q][(kx + S) % K][v] : 0.0f;
                    }
                }
            }
        }
    }
    if (DX) mirt__cu_depth_leave<N>(d, p, sums, room);
    if (DK) mirt__cu_depth_parts<DK ? K * K : 0, N>(d, p, dk, room);
}

/* >>any shape, reader and epilogue: pixel by pixel */

/* Where a target reads an axis of `size` by a tap, or (BACK) is read from by it; below 0: nowhere. */
template <bool BACK>
static inline __device__ int mirt__cu_depth_tap(int at, int tap, int stride, int dilation, int pad, int size) {
    int from = BACK ? at + pad - tap * dilation : at * stride + tap * dilation - pad;
    if (BACK && from >= 0) from = from % stride ? -1 : from / stride;
    return from < size ? from : -1;
}
template <int N, bool BACK> static __global__ __launch_bounds__(128) void mirt__cu_depth_any(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    const mirt__cu_reader &read = BACK ? d.dy : d.x;
    const int high = BACK ? d.oh : d.h, wide = BACK ? d.ow : d.w, across = BACK ? d.w : d.ow, down = BACK ? d.h : d.oh;
    mirt__cu_finish_columns<N> finish;
    mirt__cu_columns<N> columns;
    mirt__cu_sums<N> sums;
    mirt__cu_sums_begin<N>(sums);
    if (p.live) {
        mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(read, p.j, columns);
        mirt__cu_finish_columns_of<N>(d.e, p.j, N, finish);
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        const int64_t unit = p.group * d.units + i, line = unit / across, image = line / down;
        const int column = (int)(unit - line * across), row = (int)(line - image * down);
        float sum[N] = {0}, x[N], k[N], z[N];
        for (int ky = 0; ky < d.kh; ky++) {
            const int y = mirt__cu_depth_tap<BACK>(row, ky, d.stride_h, d.dilation_h, d.top, high);
            for (int kx = 0; y >= 0 && kx < d.kw; kx++) {
                const int at = mirt__cu_depth_tap<BACK>(column, kx, d.stride_w, d.dilation_w, d.left, wide);
                if (at < 0) continue;
                const int64_t pixel = (image * high + y) * wide + at;
                mirt__cu_read<MIRT__CU_READ_ANY, N>(read, columns, pixel * d.c + p.j, mirt__cu_gate_of(read, pixel),
                                                    p.j, x);
                mirt__cu_load_n<N>(d.kernel + (int64_t)(ky * d.kw + kx) * d.c + p.j, k);
#pragma unroll
                for (int v = 0; v < N; v++) sum[v] = fmaf(x[v], k[v], sum[v]);
            }
        }
        mirt__cu_finish<N>(d.e, finish, unit * d.c + p.j, N, sum, z);
        mirt__cu_finish_store<N>(d.e, unit * d.c + p.j, N, sum);
        mirt__cu_sums_add<N>(d.e, finish, sums, sum, z);
    }
    mirt__cu_depth_leave<N>(d, p, sums, room);
}

/* Tap blockIdx.z of dkernel, or db where there are no more of them. */
template <int N> static __global__ __launch_bounds__(128) void mirt__cu_depth_any_weights(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    const int taps = d.kh * d.kw, tap = (int)blockIdx.z, ky = tap / d.kw, kx = tap - ky * d.kw;
    mirt__cu_columns<N> columns, x_columns;
    float sum[N] = {0}, g[N], x[N];
#pragma unroll
    for (int v = 0; v < N; v++) x[v] = 1;
    if (p.live) {
        mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.dy, p.j, columns);
        mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.x, p.j, x_columns);
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        if (tap < taps) {
            const int64_t line = i / d.ow, image = line / d.oh;
            const int ix = (int)(i - line * d.ow) * d.stride_w + kx * d.dilation_w - d.left,
                      iy = (int)(line - image * d.oh) * d.stride_h + ky * d.dilation_h - d.top;
            if (ix < 0 || ix >= d.w || iy < 0 || iy >= d.h) continue;
            const int64_t pixel = (image * d.h + iy) * d.w + ix;
            mirt__cu_read<MIRT__CU_READ_ANY, N>(d.x, x_columns, pixel * d.c + p.j, mirt__cu_gate_of(d.x, pixel), p.j,
                                                x);
        }
        mirt__cu_read<MIRT__CU_READ_ANY, N>(d.dy, columns, i * d.c + p.j, mirt__cu_gate_of(d.dy, i), p.j, g);
#pragma unroll
        for (int v = 0; v < N; v++) sum[v] = fmaf(g[v], x[v], sum[v]);
    }
    mirt__cu_down_sum(sum, N, d.across, d.down, room);
    if (!p.live || p.lane > 0) return;
    float *part = d.part + ((int64_t)blockIdx.x * (taps + 1) + tap) * d.c + p.j;
#pragma unroll
    for (int v = 0; v < N; v++) part[v] = sum[v];
}

/* >>calls */

static mirt__cu_depth mirt__cu_depth_of(const mirt__conv *s, const mirt__real *kernel) {
    mirt__cu_depth d;
    memset(&d, 0, sizeof d);
    mirt__cu_windows_of(&d, s);
    d.rows = (int)s->rows;
    d.c = (int)s->ci;
    d.dilation_h = s->dilation_h;
    d.dilation_w = s->dilation_w;
    d.kernel = kernel;
    return d;
}
static bool mirt__cu_depth_is(const mirt__conv *s) {
    return s->groups > 1 && s->groups == s->ci && s->ci == s->co && (int64_t)s->kh * s->kw <= MIRT__CU_DEPTH_TAPS;
}
/* 3 or 5 where there are kernels for the shape, otherwise 0. */
static int mirt__cu_depth_size(const mirt__cu_depth *d) {
    const bool square = d->kh == d->kw && d->stride_h == d->stride_w && d->dilation_h == 1 && d->dilation_w == 1 &&
                        d->c % 4 == 0;
    return square && (d->kh == 3 || d->kh == 5) && (d->stride_h == 1 || d->stride_h == 2) &&
                   mirt__cu_aligned(d->kernel, 16)
               ? d->kh
               : 0;
}
/* Whether they can read it; kind: what else it may be but plain. */
static bool mirt__cu_depth_reads(const mirt__cu_reader *r, int kind, mirt_dtype dtype) {
    return r->dtype == dtype && (dtype == MIRT_FLOAT32 || mirt__cu_is_half(dtype)) && !r->affine &&
           (r->kind == MIRT__CU_READ_PLAIN || r->kind == kind) && r->width >= 4 &&
           mirt__cu_simple(r->norm.activation);
}
static bool mirt__cu_depth_finishes(const mirt__cu_epilogue *e, mirt_dtype dtype) {
    return e->dtype == dtype && e->width >= 4 && !e->add && !e->mask && mirt__cu_simple(e->activation) &&
           mirt__cu_simple(e->slope.activation);
}

/* Lines of `lines` rows, segments of `columns` columns: of all images, or of one for sums of each. */
static void mirt__cu_depth_cut(mirt__cu_depth *d, int64_t lines, int64_t columns, int n, bool whole, bool images) {
    const int64_t vectors = mirt__cu_ceil(d->c, n);
    const mirt__cu_layout layout = mirt__cu_layout_of(vectors, 64, 128);
    d->across = layout.across;
    d->down = layout.down;
    d->beside = layout.blocks;
    d->length = whole ? 1 : (int)columns;
    while (!whole && d->length > 16 &&
           (int64_t)d->rows * lines * mirt__cu_ceil(columns, d->length) * vectors < MIRT__CU_DEPTH_THREADS)
        d->length = (d->length + 1) / 2;
    const int64_t segments = columns > 0 ? mirt__cu_ceil(columns, d->length < 1 ? 1 : d->length) : 0,
                  image = lines * segments;
    d->by_segments = mirt__cu_divisor_of(segments);
    d->by_lines = mirt__cu_divisor_of(lines);
    d->units = images ? image : image * d->rows;
    if (images && d->down > image) d->down = image < 1 ? 1 : (int)image;
    const int64_t blocks = mirt__cu_ceil(d->units, d->down),
                  share = MIRT__CU_DEPTH_BLOCKS / d->beside / (images && d->rows > 0 ? d->rows : 1),
                  most = share < 1 ? 1 : share;
    d->each = blocks < 1 ? 1 : blocks < most ? blocks : most;
    d->by_each = mirt__cu_divisor_of(d->each);
    d->blocks = (unsigned)(images ? d->each * d->rows : d->each);
}

/* Room for the chunks of sums of d's blocks, then for parts of dkernel of `weights`' (which may be d). */
static void mirt__cu_depth_room(mirt__cu *cu, mirt__cu_depth *d, mirt__cu_depth *weights, int taps) {
    const int64_t sums = mirt__cu_round_up((int64_t)mirt__cu_sums_bytes(d->e.sums, d->c, d->blocks), 256);
    char *room = static_cast<char *>(mirt__cu_room(cu, (size_t)(sums + (int64_t)weights->blocks * taps * d->c * 4)));
    d->sums = mirt__cu_chunks_of(room, d->e.sums, d->c, d->blocks);
    weights->part = room ? (float *)(room + sums) : NULL;
}

typedef void (*mirt__cu_depth_kernel)(mirt__cu_depth);
/* Threads have `n` channels each; the grid is `taps` deep. */
static void mirt__cu_depth_launch(mirt__cu *cu, mirt__cu_depth_kernel depthwise, const mirt__cu_depth &d, int n,
                                  int taps) {
    const int floats = mirt__cu_sums_floats(d.down, d.across * n), least = d.across * d.down * n;
    MIRT_LAUNCH(cu, depthwise, dim3(d.blocks, d.beside, (unsigned)taps), d.across * d.down,
                (size_t)(floats > least ? floats : least) * sizeof(float), d);
}

template <int K, int S, int LINES, bool USUAL>
static mirt__cu_depth_kernel mirt__cu_depth_forward_as(mirt__cu_dtypes dtypes) {
    return dtypes == MIRT__CU_FLOATS   ? mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_FLOATS, USUAL>
           : dtypes == MIRT__CU_HALVES ? mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_HALVES, USUAL>
                                       : mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_FLOAT16S, USUAL>;
}
template <int K, int S, int LINES>
static mirt__cu_depth_kernel mirt__cu_depth_forward_of(mirt__cu_dtypes dtypes, bool usual) {
    return usual ? mirt__cu_depth_forward_as<K, S, LINES, true>(dtypes)
                 : mirt__cu_depth_forward_as<K, S, LINES, false>(dtypes);
}
static bool mirt__cu_depthwise_forward(const mirt__conv_forward *args, mirt__cu *cu) {
    if (!mirt__cu_depth_is(&args->s)) return false;
    mirt__cu_depth d = mirt__cu_depth_of(&args->s, args->kernel);
    d.x = mirt__cu_reader_of(&args->x, args->s.ci);
    d.e = mirt__cu_epilogue_of(&args->epilogue, args->y, args->y_dtype, args->s.co);
    const mirt__cu_dtypes dtypes = mirt__cu_dtypes_of(args->y_dtype);
    const bool images = d.e.sums == MIRT__SUMS_IMAGES;
    const bool reads = mirt__cu_depth_reads(&d.x, MIRT__CU_READ_NORM, args->y_dtype) &&
                       mirt__cu_depth_finishes(&d.e, args->y_dtype) && !d.e.slope.mean;
    const bool usual = d.x.kind == MIRT__CU_READ_PLAIN && !d.e.bias && !d.e.norm.mean &&
                       d.e.activation == MIRT_LINEAR && d.e.sums == MIRT__SUMS_MOMENTS;
    /* Three blocks have registers for four lines only if nothing else follows. */
    const int size = reads ? mirt__cu_depth_size(&d) : 0, stride = d.stride_h,
              lines = size == 3 && stride == 1 && usual ? 4 : 2;
    const int n = size ? 4 : d.x.width >= 4 && d.e.width >= 4 && mirt__cu_aligned(d.kernel, 16) ? 4 : 1;
    if (images && d.rows == 0) return true;
    mirt__cu_depth_cut(&d, size ? mirt__cu_ceil(d.oh, lines) : d.oh, d.ow, n, !size, images);
    mirt__cu_depth_room(cu, &d, &d, 0);
    mirt__cu_depth_launch(cu,
                          !size && n == 4            ? mirt__cu_depth_any<4, false>
                          : !size                    ? mirt__cu_depth_any<1, false>
                          : lines == 4               ? mirt__cu_depth_forward_as<3, 1, 4, true>(dtypes)
                          : size == 3 && stride == 1 ? mirt__cu_depth_forward_as<3, 1, 2, false>(dtypes)
                          : size == 3                ? mirt__cu_depth_forward_of<3, 2, 2>(dtypes, usual)
                          : stride == 1              ? mirt__cu_depth_forward_of<5, 1, 2>(dtypes, usual)
                                                     : mirt__cu_depth_forward_of<5, 2, 2>(dtypes, usual),
                          d, n, 1);
    mirt__cu_sums_finish(cu, &d.e, &d.sums, args->epilogue.sum, d.rows, (int64_t)d.oh * d.ow);
    return true;
}

/* Kernels of one size and stride, which make what is wanted. */
template <int K, int S, int LINES, int HALF>
static mirt__cu_depth_kernel mirt__cu_depth_back_as(mirt__cu_depth_wants wants, bool usual) {
    return usual                          ? mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_BOTH, true>
           : wants == MIRT__CU_DEPTH_DX   ? mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_DX, false>
           : wants == MIRT__CU_DEPTH_BOTH ? mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_BOTH, false>
                                          : mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_DKERNEL, false>;
}
template <int K, int S, int LINES>
static mirt__cu_depth_kernel mirt__cu_depth_back_of(mirt__cu_dtypes dtypes, mirt__cu_depth_wants wants, bool usual) {
    return dtypes == MIRT__CU_FLOATS   ? mirt__cu_depth_back_as<K, S, LINES, MIRT__CU_FLOATS>(wants, usual)
           : dtypes == MIRT__CU_HALVES ? mirt__cu_depth_back_as<K, S, LINES, MIRT__CU_HALVES>(wants, usual)
                                       : mirt__cu_depth_back_as<K, S, LINES, MIRT__CU_FLOAT16S>(wants, usual);
}
static bool mirt__cu_depth_usual(const mirt__cu_depth *d, mirt__cu_depth_wants wants) {
    const mirt_activation_kind kind = d->e.slope.activation;
    return wants == MIRT__CU_DEPTH_BOTH && d->dy.kind == MIRT__CU_READ_PLAIN &&
           d->x.kind == MIRT__CU_READ_PLAIN && d->e.slope.mean && (kind == MIRT_RELU || kind == MIRT_RELU6) &&
           d->e.sums == MIRT__SUMS_GRADIENT;
}
/* d has what is read, and e where dx is wanted. */
static void mirt__cu_depth_gradients(mirt__cu *cu, mirt__cu_depth d, mirt__cu_depth_wants wants, mirt__real *const *sum,
                                     mirt__real *dkernel, mirt__real *db) {
    const bool dx = wants != MIRT__CU_DEPTH_DKERNEL, dk = wants != MIRT__CU_DEPTH_DX;
    const mirt_dtype dtype = d.dy.dtype;
    const mirt__cu_dtypes dtypes = mirt__cu_dtypes_of(dtype);
    const bool fast = mirt__cu_depth_reads(&d.dy, MIRT__CU_READ_BACK, dtype) &&
                      (!dk || mirt__cu_depth_reads(&d.x, MIRT__CU_READ_NORM, dtype)) &&
                      (!dx || (mirt__cu_depth_finishes(&d.e, dtype) && !d.e.bias && !d.e.norm.mean &&
                               d.e.activation == MIRT_LINEAR));
    const int size = fast ? mirt__cu_depth_size(&d) : 0, stride = d.stride_h, taps = d.kh * d.kw;
    const int parts = dk ? taps + 1 : 0; /* of a channel's sums */
    mirt__cu_depth weights = d; /* where dkernel has kernels of its own */
    d.db = db != NULL;
    if (!size) {
        const bool four = d.dy.width >= 4 && (!dx || (d.e.width >= 4 && mirt__cu_aligned(d.kernel, 16))) &&
                          (!dk || d.x.width >= 4);
        const int n = four ? 4 : 1;
        if (dx) mirt__cu_depth_cut(&d, d.h, d.w, n, true, false);
        if (dk) mirt__cu_depth_cut(&weights, d.oh, d.ow, n, true, false);
        mirt__cu_depth_room(cu, &d, &weights, parts);
        if (dx) mirt__cu_depth_launch(cu, four ? mirt__cu_depth_any<4, true> : mirt__cu_depth_any<1, true>, d, n, 1);
        if (dk)
            mirt__cu_depth_launch(cu, four ? mirt__cu_depth_any_weights<4> : mirt__cu_depth_any_weights<1>, weights, n,
                                  taps + (db != NULL));
    } else {
        const int lines = size == 3 && stride == 1 ? 4 : size == 5 && stride == 2 ? 1 : 2;
        /* Places of y's grid that dx reaches back to; of all of y where db wants them. */
        d.first_y = db ? 0 : d.top / stride;
        d.first_x = db ? 0 : d.left / stride;
        d.end_y = (d.h - 1 + d.top) / stride + 1;
        d.end_x = (d.w - 1 + d.left) / stride + 1;
        if (d.end_y < d.oh && db) d.end_y = d.oh;
        if (d.end_x < d.ow && db) d.end_x = d.ow;
        mirt__cu_depth_cut(&d, mirt__cu_ceil(d.end_y - d.first_y, lines), d.end_x - d.first_x, 2, false, false);
        mirt__cu_depth_room(cu, &d, &d, parts);
        const bool usual = mirt__cu_depth_usual(&d, wants);
        mirt__cu_depth_launch(cu,
                              size == 3 && stride == 1 ? mirt__cu_depth_back_of<3, 1, 4>(dtypes, wants, usual)
                              : size == 3              ? mirt__cu_depth_back_of<3, 2, 2>(dtypes, wants, usual)
                              : stride == 1            ? mirt__cu_depth_back_of<5, 1, 2>(dtypes, wants, usual)
                                                       : mirt__cu_depth_back_of<5, 2, 1>(dtypes, wants, usual),
                              d, 2, 1);
        weights = d;
    }
    if (dx) mirt__cu_sums_finish(cu, &d.e, &d.sums, sum, d.rows, (int64_t)d.h * d.w);
    if (dk)
        mirt__cu_parts_total(cu, weights.part, weights.blocks, (int64_t)(taps + 1) * d.c, (int64_t)taps * d.c, dkernel,
                             d.c, db);
}

static bool mirt__cu_depthwise_input_grad(const mirt__conv_input_grad *args, mirt__cu *cu) {
    if (!mirt__cu_depth_is(&args->s)) return false;
    mirt__cu_depth d = mirt__cu_depth_of(&args->s, args->kernel);
    d.dy = mirt__cu_reader_of(&args->dy, args->s.co);
    d.e = mirt__cu_epilogue_of(&args->epilogue, args->dx, args->dx_dtype, args->s.ci);
    if (args->x) d.x = mirt__cu_reader_of(args->x, args->s.ci);
    mirt__cu_depth_gradients(
        cu, d, args->x && args->dkernel ? args->dx ? MIRT__CU_DEPTH_BOTH : MIRT__CU_DEPTH_DKERNEL : MIRT__CU_DEPTH_DX,
        args->epilogue.sum, args->dkernel, args->db);
    return true;
}
static bool mirt__cu_depthwise_weight_grad(const mirt__conv_weight_grad *args, mirt__cu *cu) {
    if (!mirt__cu_depth_is(&args->s)) return false;
    mirt__cu_depth d = mirt__cu_depth_of(&args->s, NULL);
    d.x = mirt__cu_reader_of(&args->x, args->s.ci);
    d.dy = mirt__cu_reader_of(&args->dy, args->s.co);
    mirt__cu_depth_gradients(cu, d, MIRT__CU_DEPTH_DKERNEL, NULL, args->dkernel, args->db);
    return true;
}
#undef MIRT__CU_DEPTH_TAPS
#undef MIRT__CU_DEPTH_BLOCKS
#undef MIRT__CU_DEPTH_THREADS
