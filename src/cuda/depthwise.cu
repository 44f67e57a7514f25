/* Depthwise convolutions and both of their gradients in one pass. A thread owns some neighboring channels and walks
   along a segment of the image's columns, holding in registers the outputs that the current column reaches. Shapes
   without such a kernel are computed pixel by pixel. */
#include "depthwise.cuh"
#include "parts.cuh"

#define MIRT__CU_DEPTH_TAPS 64
#define MIRT__CU_DEPTH_BLOCKS 1024  /* of a grid, at most: as many chunks of sums */
#define MIRT__CU_DEPTH_THREADS 262144 /* for which segments are cut shorter */

/* >>forward: `LINES` rows of y at a time; column o + t of x, taken S at a time, reaches outputs o, o - 1, ... */

/* The usual ones, whose image is stored. TRAINS: nothing follows but the moments. PREDICTS: a normalization follows, an
   activation of mirt__cu_simple, and perhaps sums of images. Their loop is unrolled by as many columns as it takes for
   each sum to stay in its register. */
typedef enum mirt__cu_depth_usual {
    MIRT__CU_DEPTH_ANY, MIRT__CU_DEPTH_TRAINS, MIRT__CU_DEPTH_PREDICTS
} mirt__cu_depth_usual;
template <int K, int S, int LINES, int N, int HALF, int USUAL>
static __global__ __launch_bounds__(128, K == 3 ? 3 : 2)
    void mirt__cu_depth_forward(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    constexpr int OPEN = (K + S - 1) / S, READ = (LINES - 1) * S + K, TURNS = USUAL && K == 3 ? OPEN : 1;
    constexpr bool TRAINS = USUAL == MIRT__CU_DEPTH_TRAINS, PREDICTS = USUAL == MIRT__CU_DEPTH_PREDICTS;
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    mirt__cu_finish_columns<N> finish;
    mirt__cu_columns<N> columns;
    mirt__cu_sums<N> sums;
    float k[K * K][N];
    mirt__cu_sums_begin<N>(sums);
    if (p.live) {
        if (!USUAL) mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.x, p.j, columns);
        if (!TRAINS) mirt__cu_finish_columns_of<N>(d.e, p.j, N, finish);
#pragma unroll
        for (int t = 0; t < K * K; t++) mirt__cu_load_n<N>(d.kernel + (int64_t)t * d.c + p.j, k[t]);
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        const int64_t unit = p.group * d.units + i;
        const uint32_t line = mirt__cu_divide32((uint32_t)unit, d.by_segments),
                       image = mirt__cu_divide32(line, d.by_lines);
        const int oy = (int)(line - image * (uint32_t)d.by_lines.by) * LINES, iy = oy * S - d.top;
        const int begin = (int)(unit - (int64_t)line * d.by_segments.by) * d.length,
                  end = d.ow - begin < d.length ? d.ow : begin + d.length, last = end + OPEN - 1;
        const int lines = d.oh - oy < LINES ? d.oh - oy : LINES;
        const int64_t row = (int64_t)d.w * d.c, y_row = (int64_t)d.ow * d.c, column = d.c * (HALF ? 2 : 4);
        /* Rows, shifted so that pass o reads column o * S of x and writes column o of y. */
        char *x_near[READ], *y_near[LINES];
        mirt__cu_depth_mask<HALF> mask[READ];
#pragma unroll
        for (int q = 0; q < READ; q++) {
            const int nearest = USUAL ? mirt__cu_depth_nearest(iy + q, d.h) : iy + q;
            x_near[q] =
                mirt__cu_depth_near<HALF>(d.x.data, ((int64_t)image * d.h + nearest) * row - d.left * d.c + p.j);
            if (USUAL) mirt__cu_depth_keep(x_near[q]);
            if (USUAL) mirt__cu_depth_mask_of<HALF>(iy + q == nearest, mask[q]);
        }
#pragma unroll
        for (int r = 0; r < LINES; r++) {
            y_near[r] =
                mirt__cu_depth_near<HALF>(d.e.y, ((int64_t)image * d.oh + oy + r) * y_row - (OPEN - 1) * d.c + p.j);
            if (USUAL) mirt__cu_depth_keep(y_near[r]);
        }
        /* Columns where x begins and ends; the pass whose outputs set the shift, -1 if it is set. */
        int before = d.left, after = d.h > 0 ? d.left + d.w : 0, shift_at = sums.count == 0 ? begin + OPEN - 1 : -1;
        if (USUAL) {
            mirt__cu_depth_keep(before);
            mirt__cu_depth_keep(after);
        }
        if (TRAINS) {
            mirt__cu_depth_keep(shift_at);
            sums.count += (float)(lines * (end - begin));
        }
        float sum[LINES][OPEN][N] = {};
#pragma unroll 1
        for (int o = begin; o < last;) {
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                if (o >= last) continue;
#pragma unroll
                for (int t = 0; t < S; t++) {
                    if (o * S + t >= before && o * S + t < after) {
                        mirt__cu_depth_raw<HALF, N> raw[READ];
#pragma unroll
                        for (int q = 0; q < READ; q++)
                            mirt__cu_depth_load<HALF, N>(raw[q],
                                                         mirt__cu_depth_after(x_near[q], (o * S + t) * column), 0,
                                                         USUAL || (iy + q >= 0 && iy + q < d.h));
#pragma unroll
                        for (int q = 0; q < READ; q++) {
                            float x[N];
                            if constexpr (USUAL) mirt__cu_depth_masked<HALF, N>(raw[q], mask[q], x);
                            else mirt__cu_depth_x<HALF, N>(d.x, columns, raw[q], iy + q >= 0 && iy + q < d.h, x);
#pragma unroll
                            for (int r = 0; r < LINES; r++) {
                                const int ky = q - r * S;
                                if (ky < 0 || ky >= K) continue;
#pragma unroll
                                for (int m = 0; m < OPEN; m++) {
                                    if (t + m * S >= K) continue;
                                    float *const to = sum[r][(m + OPEN - turn) % OPEN];
#pragma unroll
                                    for (int v = 0; v < N; v++)
                                        to[v] = fmaf(x[v], k[ky * K + t + m * S][v], m + t + ky > 0 ? to[v] : 0.0f);
                                }
                            }
                        }
                    } else if (t == 0) {
#pragma unroll
                        for (int i = 0; i < LINES * N; i++)
                            mirt__cu_depth_clear(sum[i / N][(OPEN - turn) % OPEN][i % N]);
                    }
                }
                if (o >= begin + OPEN - 1) {
                    constexpr int DONE = 2 * OPEN - 1;
                    if (TRAINS && o == shift_at) {
#pragma unroll
                        for (int v = 0; v < N; v++) sums.shift[v] = sum[0][(DONE - turn) % OPEN][v];
                    }
#pragma unroll
                    for (int r = 0; r < LINES; r++) {
                        if (r >= lines) break;
                        float *const y = sum[r][(DONE - turn) % OPEN];
                        if (!USUAL && d.e.bias) {
#pragma unroll
                            for (int v = 0; v < N; v++) y[v] = __fadd_rn(y[v], finish.bias[v]);
                        }
                        if (PREDICTS || (!USUAL && d.e.norm.mean)) {
#pragma unroll
                            for (int v = 0; v < N; v++)
                                y[v] = mirt__cu_normed(y[v], finish.mean[v], finish.factor[v], finish.offset[v]);
                        }
                        if (!TRAINS) mirt__cu_activate_n<N, true>(d.e.activation, y);
                        mirt__cu_put<HALF, N>(mirt__cu_depth_after(y_near[r], o * column), d.e.dtype, 0, y);
                        if (TRAINS) mirt__cu_moments_above<N>(sums, y);
                        else mirt__cu_sums_add<N>(d.e, finish, sums, y, y);
                    }
                }
#pragma unroll
                for (int r = 0; r < LINES && TURNS == 1; r++) {
#pragma unroll
                    for (int m = OPEN - 1; m > 0; m--) {
#pragma unroll
                        for (int v = 0; v < N; v++) sum[r][m][v] = sum[r][m - 1][v];
                    }
                }
                o++;
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
   or ReLU6, with its sums. Its loop is unrolled as that of forward. Offsets are relative to the beginnings of tensors,
   which have fewer than 2^31 numbers: an address then takes one instruction. */
template <int K, int S, int LINES, int N, int HALF, int WANTS, bool USUAL>
static __global__ __launch_bounds__(128, HALF && K == 3 ? 3 : 2) void mirt__cu_depth_back(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    constexpr int OPEN = (K + S - 1) / S, READ = LINES + OPEN - 1, MAKE = LINES * S,
                  TURNS = USUAL && K == 3 && S == 1 ? K : 1;
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
        const int a = d.first_y + (int)(line - image * (uint32_t)d.by_lines.by) * LINES, iy = a * S - d.top,
                  a0 = a - (OPEN - 1); /* first rows of dy that reach dx, of dx, of dy */
        const int begin = d.first_x + (int)(unit - line * (uint32_t)d.by_segments.by) * d.length,
                  end = d.end_x - begin < d.length ? d.end_x : begin + d.length;
        int x0 = begin * S - d.left > 0 ? begin * S - d.left : 0,
            x1 = d.h < 1 ? 0 : end * S - d.left < d.w ? end * S - d.left : d.w, /* of dx */
            after = d.oh > 0 ? d.ow : 0;
        const int row = d.ow * d.c, x_row = d.w * d.c;
        const int64_t dy_first = ((int64_t)image * d.oh + a0) * row + p.j,
                      x_first = ((int64_t)image * d.h + iy) * x_row + p.j;
        const int64_t dy_from = USUAL ? 0 : dy_first, x_from = USUAL ? 0 : x_first;
        const char *const dy_near = mirt__cu_depth_near<HALF>(d.dy.data, dy_from),
                   *const z_near = mirt__cu_depth_near<HALF>(d.dy.z, dy_from);
        const char *const x_near = mirt__cu_depth_near<HALF>(d.x.data, x_from),
                   *const slope_near = mirt__cu_depth_near<HALF>(d.e.slope_x, x_from);
        char *const dx_near = mirt__cu_depth_near<HALF>(d.e.y, x_from);
        /* USUAL: offsets of column o of each row of dy, and of column o * S - left of x; how many rows of x exist. */
        mirt__cu_depth_mask<HALF> dy_mask[READ], x_mask[MAKE];
        int dy_away[READ], x_away[MAKE], made_rows = 0;
        if (USUAL) {
#pragma unroll
            for (int q = 0; q < READ; q++) {
                const int nearest = mirt__cu_depth_nearest(a0 + q, d.oh);
                mirt__cu_depth_mask_of<HALF>(a0 + q == nearest, dy_mask[q]);
                dy_away[q] = (int)dy_first + (nearest - a0) * row + (begin - (OPEN - 1)) * d.c;
            }
#pragma unroll
            for (int q = 0; q < MAKE; q++) {
                const int nearest = mirt__cu_depth_nearest(iy + q, d.h);
                mirt__cu_depth_mask_of<HALF>(iy + q == nearest, x_mask[q]);
                x_away[q] = (int)x_first + (nearest - iy) * x_row + ((begin - (OPEN - 1)) * S - d.left) * d.c;
                made_rows += iy + q == nearest;
            }
            if (x1 > x0) sums.count += (float)(made_rows * (x1 - x0));
            mirt__cu_depth_keep(x0);
            mirt__cu_depth_keep(x1);
            mirt__cu_depth_keep(after);
        }
        float sum[DX ? MAKE : 1][K][N] = {}, x[DK ? MAKE : 1][K][N] = {};
#pragma unroll 1
        for (int o = begin - (OPEN - 1); o < end;) {
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                if (o >= end) continue;
                const bool inside = o >= 0 && (USUAL ? o < after : o < d.ow && d.oh > 0);
                const int ix = o * S - d.left;
                mirt__cu_depth_raw<HALF, N> raw[READ], raw_z[READ], raw_x[DK ? MAKE : 1][S], slope[MAKE][S];
                const auto take_slope = [&](int s) {
#pragma unroll
                    for (int q = 0; q < MAKE; q++)
                        mirt__cu_depth_load<HALF, N>(slope[q][s], slope_near,
                                                     USUAL ? x_away[q] + s * d.c : (ix + s) * d.c + q * x_row,
                                                     USUAL || (iy + q >= 0 && iy + q < d.h));
                };
                if (!USUAL || inside) {
#pragma unroll
                    for (int q = 0; q < READ; q++) {
                        const bool there = USUAL || (inside && a0 + q >= 0 && a0 + q < d.oh);
                        const int away = USUAL ? dy_away[q] : o * d.c + q * row;
                        mirt__cu_depth_load<HALF, N>(raw[q], dy_near, away, there);
                        if (!USUAL && d.dy.kind != MIRT__CU_READ_PLAIN)
                            mirt__cu_depth_load<HALF, N>(raw_z[q], z_near, away, there);
                    }
                }
                if constexpr (DK) {
#pragma unroll
                    for (int s = 0; s < S; s++) {
                        const int column = ix + K - S + s;
                        const bool beside = column >= x0 && column < x1;
#pragma unroll
                        for (int q = 0; q < MAKE; q++)
                            mirt__cu_depth_load<HALF, N>(
                                raw_x[q][s], x_near, USUAL ? x_away[q] + (K - S + s) * d.c : column * d.c + q * x_row,
                                beside && (USUAL || (iy + q >= 0 && iy + q < d.h)));
#pragma unroll
                        for (int q = 0; q < MAKE; q++) {
                            float *const to = x[q][(K - S + s + turn * S) % K];
                            if constexpr (USUAL) mirt__cu_depth_masked<HALF, N>(raw_x[q][s], x_mask[q], to);
                            else mirt__cu_depth_x<HALF, N>(d.x, x_columns, raw_x[q][s],
                                                           beside && iy + q >= 0 && iy + q < d.h, to);
                        }
                    }
                }
                if (USUAL) { /* early, so that the loads overlap with the products */
#pragma unroll
                    for (int s = 0; s < S; s++) {
                        if (ix + s >= x0 && ix + s < x1) take_slope(s);
                    }
                }
                if (!USUAL || inside) {
#pragma unroll
                    for (int q = 0; q < READ; q++) {
                        float g[N];
                        if constexpr (USUAL) mirt__cu_depth_masked<HALF, N>(raw[q], dy_mask[q], g);
                        else mirt__cu_depth_dy<HALF, N>(d.dy, columns, raw[q], raw_z[q],
                                                        inside && a0 + q >= 0 && a0 + q < d.oh, g);
#pragma unroll
                        for (int made = 0; made < MAKE; made++) {
                            const int ky = made - (q - (OPEN - 1)) * S;
                            if (ky < 0 || ky >= K) continue;
#pragma unroll
                            for (int kx = 0; kx < K; kx++) {
                                const int slot = (kx + turn * S) % K, tap = ky * K + kx;
                                const bool first = kx + S >= K && ky + S >= K;
#pragma unroll
                                for (int v = 0; v < N; v++) {
                                    if constexpr (DX) {
                                        float &to = sum[made][slot][v];
                                        to = fmaf(g[v], k[tap][v], first ? 0.0f : to);
                                    }
                                    if constexpr (DK) dk[tap][v] = fmaf(g[v], x[made][slot][v], dk[tap][v]);
                                }
                            }
                        }
                        if (DK && !USUAL && q >= OPEN - 1 && o >= begin) {
#pragma unroll
                            for (int v = 0; v < N; v++) dk[DK ? K * K : 0][v] += g[v];
                        }
                    }
                } else if (DX) {
#pragma unroll
                    for (int i = 0; i < MAKE * S * N; i++)
                        mirt__cu_depth_clear(sum[i / (S * N)][(K - S + i / N % S + turn * S) % K][i % N]);
                }
#pragma unroll
                for (int s = 0; s < S && DX; s++) {
                    if (USUAL ? ix + s < x0 || ix + s >= x1 : o < begin || ix + s < 0 || ix + s >= d.w) continue;
                    if (!USUAL && d.e.slope.mean) take_slope(s);
#pragma unroll
                    for (int q = 0; q < MAKE; q++) {
                        if (USUAL ? !x_mask[q].low : iy + q < 0 || iy + q >= d.h) continue;
                        float *const g = sum[DX ? q : 0][(s + turn * S) % K], z[N], u[N];
                        if constexpr (USUAL) {
                            mirt__cu_depth_floats<HALF, N>(slope[q][s], z);
#pragma unroll
                            for (int v = 0; v < N; v++) {
                                const float away = __fsub_rn(z[v], finish.slope_mean[v]);
                                u[v] = __fadd_rn(__fmul_rn(away, finish.slope_factor[v]), finish.slope_offset[v]);
                                g[v] = u[v] > 0 && u[v] < most ? g[v] : 0.0f;
                                sums.first[v] += g[v];
                                sums.second[v] = fmaf(g[v], away, sums.second[v]);
                            }
                        } else {
                            if (d.e.slope.mean) {
                                mirt__cu_depth_floats<HALF, N>(slope[q][s], z);
#pragma unroll
                                for (int v = 0; v < N; v++)
                                    u[v] = mirt__cu_normed(z[v], finish.slope_mean[v], finish.slope_factor[v],
                                                           finish.slope_offset[v]);
                                mirt__cu_times_slope_n<N, true>(d.e.slope.activation, g, u);
                            }
                            mirt__cu_sums_add<N>(d.e, finish, sums, g, z);
                        }
                        mirt__cu_put<HALF, N>(dx_near, d.e.dtype,
                                              (int64_t)(USUAL ? x_away[q] + s * d.c : (ix + s) * d.c + q * x_row), g);
                    }
                }
#pragma unroll
                for (int q = 0; q < READ && USUAL; q++) dy_away[q] += d.c;
#pragma unroll
                for (int q = 0; q < MAKE; q++) {
                    if (USUAL) x_away[q] += S * d.c;
#pragma unroll
                    for (int kx = 0; kx + S < K && TURNS == 1; kx++) {
#pragma unroll
                        for (int v = 0; v < N; v++) {
                            if constexpr (DX) sum[q][kx][v] = sum[q][kx + S][v];
                            if constexpr (DK) x[q][kx][v] = x[q][kx + S][v];
                        }
                    }
                }
                o++;
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

template <int K, int S, int LINES, int USUAL>
static mirt__cu_depth_kernel mirt__cu_depth_forward_as(mirt__cu_dtypes dtypes) {
    return dtypes == MIRT__CU_FLOATS   ? mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_FLOATS, USUAL>
           : dtypes == MIRT__CU_HALVES ? mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_HALVES, USUAL>
                                       : mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_FLOAT16S, USUAL>;
}
template <int K, int S, int LINES>
static mirt__cu_depth_kernel mirt__cu_depth_forward_of(mirt__cu_dtypes dtypes, mirt__cu_depth_usual usual) {
    return usual == MIRT__CU_DEPTH_TRAINS     ? mirt__cu_depth_forward_as<K, S, LINES, MIRT__CU_DEPTH_TRAINS>(dtypes)
           : usual == MIRT__CU_DEPTH_PREDICTS ? mirt__cu_depth_forward_as<K, S, LINES, MIRT__CU_DEPTH_PREDICTS>(dtypes)
                                              : mirt__cu_depth_forward_as<K, S, LINES, MIRT__CU_DEPTH_ANY>(dtypes);
}
static mirt__cu_depth_usual mirt__cu_depth_usual_of(const mirt__cu_depth *d) {
    if (d->x.kind != MIRT__CU_READ_PLAIN || d->e.bias) return MIRT__CU_DEPTH_ANY;
    if (d->e.norm.mean)
        return d->e.sums == MIRT__SUMS_MOMENTS ? MIRT__CU_DEPTH_ANY : MIRT__CU_DEPTH_PREDICTS;
    return d->e.activation == MIRT_LINEAR && d->e.sums == MIRT__SUMS_MOMENTS ? MIRT__CU_DEPTH_TRAINS
                                                                              : MIRT__CU_DEPTH_ANY;
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
    const mirt__cu_depth_usual usual = mirt__cu_depth_usual_of(&d);
    /* Three blocks have registers for four lines only if nothing else follows. */
    const int size = reads ? mirt__cu_depth_size(&d) : 0, stride = d.stride_h,
              lines = size == 3 && stride == 1 && usual == MIRT__CU_DEPTH_TRAINS ? 4 : 2;
    const int n = size ? 4 : d.x.width >= 4 && d.e.width >= 4 && mirt__cu_aligned(d.kernel, 16) ? 4 : 1;
    if (images && d.rows == 0) return true;
    mirt__cu_depth_cut(&d, size ? mirt__cu_ceil(d.oh, lines) : d.oh, d.ow, n, !size, images);
    mirt__cu_depth_room(cu, &d, &d, 0);
    mirt__cu_depth_launch(cu,
                          !size && n == 4            ? mirt__cu_depth_any<4, false>
                          : !size                    ? mirt__cu_depth_any<1, false>
                          : lines == 4 ? mirt__cu_depth_forward_as<3, 1, 4, MIRT__CU_DEPTH_TRAINS>(dtypes)
                          : size == 3 && stride == 1 && usual
                              ? mirt__cu_depth_forward_as<3, 1, 2, MIRT__CU_DEPTH_PREDICTS>(dtypes)
                          : size == 3 && stride == 1 ? mirt__cu_depth_forward_as<3, 1, 2, MIRT__CU_DEPTH_ANY>(dtypes)
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
static bool mirt__cu_depth_trains(const mirt__cu_depth *d, mirt__cu_depth_wants wants) {
    const mirt_activation_kind kind = d->e.slope.activation;
    const int64_t x = (int64_t)d->h * d->w, y = (int64_t)d->oh * d->ow, pixels = x > y ? x : y;
    return wants == MIRT__CU_DEPTH_BOTH && !d->db && d->dy.kind == MIRT__CU_READ_PLAIN &&
           d->x.kind == MIRT__CU_READ_PLAIN && d->e.slope.mean && (kind == MIRT_RELU || kind == MIRT_RELU6) &&
           d->e.sums == MIRT__SUMS_GRADIENT && (d->rows + 1) * pixels * d->c < INT32_MAX;
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
        const bool usual = mirt__cu_depth_trains(&d, wants);
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
