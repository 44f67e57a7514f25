/* Batch and layer normalization on their own. */
#include "layout.cuh"

#define MIRT__CU_NORM_BLOCKS 1056 /* of a pass: four or eight for each of 132 processors */
#define MIRT__CU_NORM_CHUNK 64    /* rows whose sums one block takes, at least, */
#define MIRT__CU_NORM_CHUNKS 1024 /* so that there are no more of them */

struct mirt__cu_norm_call : mirt__norm {
    int across;
    int64_t chunk;
    float *part; /* [chunks][2 or 3][n] */
    int down;
};

/* The constants of a normalization in some columns; by rows mean is 0, factor gamma. */
template <int N> struct mirt__cu_norm_column {
    float mean[N], factor[N], offset[N];
};
template <int N>
static inline __device__ void mirt__cu_norm_columns(const mirt__cu_norm_call &a, int64_t column,
                                                    mirt__cu_norm_column<N> *k) {
#pragma unroll
    for (int v = 0; v < N; v++) {
        k->mean[v] = a.by_row ? 0.0f : a.mean[column + v];
        k->factor[v] = a.gamma ? a.gamma[column + v] : 1.0f;
        if (!a.by_row)
            k->factor[v] = __fmul_rn(k->factor[v], mirt__cu_norm_inverse_of(a.variance[column + v], a.epsilon));
        k->offset[v] = a.beta ? a.beta[column + v] : 0.0f;
    }
}

/* Rows that a thread asks for before it works on them: with fewer, memory waits. Activations that need calls are left
   to kernels for one row at a time, which would be too large otherwise. */
#define MIRT__CU_NORM_ROWS 4

/* y = activation(u + add). SIMPLE: an activation of mirt__cu_simple. */
template <int DTYPES, int N, bool SIMPLE>
static __global__ __launch_bounds__(256, DTYPES == MIRT__CU_FLOATS ? 2 : 4)
    void mirt__cu_norm_apply(mirt__cu_norm_call a) {
    const int rows = SIMPLE ? MIRT__CU_NORM_ROWS : 1, lane = (int)threadIdx.x % a.across;
    const int64_t column = ((int64_t)blockIdx.y * a.across + lane) * N, step = (int64_t)gridDim.x * a.down,
                  next = step * a.n;
    if (column >= a.n) return;
    mirt__cu_norm_column<N> k;
    mirt__cu_norm_columns<N>(a, column, &k);
    for (int64_t row = (int64_t)blockIdx.x * a.down + (int)threadIdx.x / a.across; row < a.rows;
         row += rows * step) {
        const int64_t at = row * a.n + column;
        uint32_t x_words[rows][N], add_words[rows][N];
#pragma unroll
        for (int i = 0; i < rows; i++) {
            if (row + i * step >= a.rows) break;
            mirt__cu_fetch_of<DTYPES, N>(a.x, a.x_dtype, at + i * next, x_words[i]);
            if (a.add) mirt__cu_fetch_of<DTYPES, N>(a.add, a.add_dtype, at + i * next, add_words[i]);
        }
#pragma unroll
        for (int i = 0; i < rows; i++) {
            float x[N];
            if (row + i * step >= a.rows) break;
            mirt__cu_make_of<DTYPES, N>(x_words[i], a.x_dtype, x);
            if (a.by_row) {
                const float mean = a.mean[row + i * step],
                            inverse = mirt__cu_norm_inverse_of(a.variance[row + i * step], a.epsilon);
#pragma unroll
                for (int v = 0; v < N; v++) x[v] = __fmul_rn(x[v] - mean, inverse);
            }
#pragma unroll
            for (int v = 0; v < N; v++) x[v] = __fadd_rn(__fmul_rn(x[v] - k.mean[v], k.factor[v]), k.offset[v]);
            if (a.add) {
                float add[N];
                mirt__cu_make_of<DTYPES, N>(add_words[i], a.add_dtype, add);
#pragma unroll
                for (int v = 0; v < N; v++) x[v] += add[v];
            }
            mirt__cu_activate_n<N, SIMPLE>(a.activation, x);
            mirt__cu_put<DTYPES, N>(a.y, a.y_dtype, at + i * next, x);
        }
    }
}

/* The gradient of x, of columns. */
template <int DTYPES, int N, bool SIMPLE>
static __global__ __launch_bounds__(256, 2) void mirt__cu_norm_back(mirt__cu_norm_call a) {
    const int rows = SIMPLE ? MIRT__CU_NORM_ROWS : 1, lane = (int)threadIdx.x % a.across;
    const int64_t column = ((int64_t)blockIdx.y * a.across + lane) * N, step = (int64_t)gridDim.x * a.down,
                  next = step * a.n;
    if (column >= a.n) return;
    mirt__cu_norm_column<N> k;
    float less[N], part[N];
    mirt__cu_norm_columns<N>(a, column, &k);
    const double share = a.sum[0] ? 1 / a.count : 0;
#pragma unroll
    for (int v = 0; v < N; v++) {
        less[v] = a.sum[0] ? (float)((double)a.sum[0][column + v] * share) : 0.0f;
        part[v] = a.sum[0] ? (float)((double)a.sum[1][column + v] * share) *
                                 mirt__cu_norm_inverse_of(a.variance[column + v], a.epsilon)
                           : 0.0f;
    }
    for (int64_t row = (int64_t)blockIdx.x * a.down + (int)threadIdx.x / a.across; row < a.rows;
         row += rows * step) {
        const int64_t at = row * a.n + column;
        uint32_t x_words[rows][N], g_words[rows][N];
#pragma unroll
        for (int i = 0; i < rows; i++) {
            if (row + i * step >= a.rows) break;
            mirt__cu_fetch_of<DTYPES, N>(a.x, a.x_dtype, at + i * next, x_words[i]);
            mirt__cu_fetch_of<DTYPES, N>(a.dy, a.dy_dtype, at + i * next, g_words[i]);
        }
#pragma unroll
        for (int i = 0; i < rows; i++) {
            float x[N], g[N], u[N];
            if (row + i * step >= a.rows) break;
            mirt__cu_make_of<DTYPES, N>(x_words[i], a.x_dtype, x);
            mirt__cu_make_of<DTYPES, N>(g_words[i], a.dy_dtype, g);
#pragma unroll
            for (int v = 0; v < N; v++) {
                x[v] -= k.mean[v];
                u[v] = __fadd_rn(__fmul_rn(x[v], k.factor[v]), k.offset[v]);
            }
            mirt__cu_times_slope_n<N, SIMPLE>(a.activation, g, u);
#pragma unroll
            for (int v = 0; v < N; v++) g[v] = (g[v] - less[v] - x[v] * part[v]) * k.factor[v];
            mirt__cu_put<DTYPES, N>(a.y, a.y_dtype, at + i * next, g);
        }
    }
}

/* >>sums of columns */

typedef enum mirt__cu_norm_sum {
    MIRT__CU_NORM_MOMENTS, MIRT__CU_NORM_GRADIENT, MIRT__CU_NORM_GRADIENT_BY_ROW
} mirt__cu_norm_sum;

/* Of the chunk of rows blockIdx.x. Moments: its first row, and the sums of what differs from it and of its squares. */
template <int DTYPES, int N, int SUM>
static __global__ __launch_bounds__(256) void mirt__cu_norm_sums(mirt__cu_norm_call a) {
    MIRT_DYNAMIC_SHARED(float, room);
    const int lane = (int)threadIdx.x % a.across;
    const int64_t column = ((int64_t)blockIdx.y * a.across + lane) * N, first = (int64_t)blockIdx.x * a.chunk;
    const int64_t end = a.rows - first < a.chunk ? a.rows : first + a.chunk;
    const bool live = column < a.n;
    mirt__cu_norm_column<N> k;
    float sum[2 * N] = {0};
    if (live && SUM == MIRT__CU_NORM_MOMENTS) mirt__cu_get<DTYPES, N>(a.x, a.x_dtype, first * a.n + column, k.mean);
    else if (live) mirt__cu_norm_columns<N>(a, column, &k);
    for (int64_t row = first + (int)threadIdx.x / a.across; live && row < end; row += 2 * a.down) {
        float x[2][N], g[2][N];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (row + i * a.down >= end) break;
            mirt__cu_get<DTYPES, N>(a.x, a.x_dtype, (row + i * a.down) * a.n + column, x[i]);
            if (SUM != MIRT__CU_NORM_MOMENTS)
                mirt__cu_get<DTYPES, N>(a.dy, a.dy_dtype, (row + i * a.down) * a.n + column, g[i]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (row + i * a.down >= end) break;
            if (SUM == MIRT__CU_NORM_MOMENTS) {
#pragma unroll
                for (int v = 0; v < N; v++) {
                    const float away = x[i][v] - k.mean[v];
                    sum[v] += away;
                    sum[N + v] = fmaf(away, away, sum[N + v]);
                }
                continue;
            }
            const float mean = SUM == MIRT__CU_NORM_GRADIENT_BY_ROW ? a.mean[row + i * a.down] : 0.0f;
            const float inverse = SUM == MIRT__CU_NORM_GRADIENT_BY_ROW
                                      ? mirt__cu_norm_inverse_of(a.variance[row + i * a.down], a.epsilon)
                                      : 0.0f;
            float u[N];
#pragma unroll
            for (int v = 0; v < N; v++) {
                x[i][v] = SUM == MIRT__CU_NORM_GRADIENT_BY_ROW ? __fmul_rn(x[i][v] - mean, inverse)
                                                               : x[i][v] - k.mean[v];
                u[v] = __fadd_rn(__fmul_rn(x[i][v], k.factor[v]), k.offset[v]);
            }
            mirt__cu_times_slope_n<N>(a.activation, g[i], u);
#pragma unroll
            for (int v = 0; v < N; v++) {
                sum[v] += g[i][v];
                sum[N + v] = fmaf(g[i][v], x[i][v], sum[N + v]);
            }
        }
    }
    mirt__cu_down_sum(sum, 2 * N, a.across, a.down, room);
    if (!live || (int)threadIdx.x >= a.across) return;
    float *part = a.part + (int64_t)blockIdx.x * (SUM == MIRT__CU_NORM_MOMENTS ? 3 : 2) * a.n + column;
    if (SUM == MIRT__CU_NORM_MOMENTS) {
#pragma unroll
        for (int v = 0; v < N; v++) part[v] = k.mean[v];
        part += a.n;
    }
#pragma unroll
    for (int v = 0; v < N; v++) {
        part[v] = sum[v];
        part[a.n + v] = sum[N + v];
    }
}

/* The sum over the block's rows of threads, of MIRT__CU_FINISH_COLUMNS each; all get it. */
#define MIRT__CU_FINISH_COLUMNS 8
#define MIRT__CU_FINISH_MOST 128
static inline __device__ double mirt__cu_finish_sum(double x, double *room) {
    const int t = (int)threadIdx.x;
    __syncthreads();
    room[t] = x;
    for (int half = (int)blockDim.x / MIRT__CU_FINISH_COLUMNS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half * MIRT__CU_FINISH_COLUMNS) room[t] += room[t + half * MIRT__CU_FINISH_COLUMNS];
    }
    __syncthreads();
    return room[t % MIRT__CU_FINISH_COLUMNS];
}

/* All chunks' sums in double: the mean first, then what the chunks' squares are about it, all of one sign. */
template <int SUM>
static __global__ __launch_bounds__(MIRT__CU_FINISH_COLUMNS *MIRT__CU_FINISH_MOST) void mirt__cu_norm_finish(
    mirt__cu_norm_call a, int64_t chunks) {
    MIRT_SHARED(double, room, MIRT__CU_FINISH_COLUMNS * MIRT__CU_FINISH_MOST);
    const int64_t column = (int64_t)blockIdx.x * MIRT__CU_FINISH_COLUMNS + (int)threadIdx.x % MIRT__CU_FINISH_COLUMNS;
    const int64_t first = (int)threadIdx.x / MIRT__CU_FINISH_COLUMNS, step = (int)blockDim.x / MIRT__CU_FINISH_COLUMNS;
    const int64_t wide = (SUM == MIRT__CU_NORM_MOMENTS ? 3 : 2) * a.n;
    const bool live = column < a.n;
    const float *part = a.part + column;
    double one = 0, two = 0;
    if (SUM == MIRT__CU_NORM_MOMENTS) {
        for (int64_t chunk = first; live && chunk < chunks; chunk += step) {
            const int64_t left = a.rows - chunk * a.chunk, rows = left < a.chunk ? left : a.chunk;
            one += (double)part[chunk * wide] * (double)rows + (double)part[chunk * wide + a.n];
        }
        one = mirt__cu_finish_sum(one, room);
        if (a.rows > 0) one /= (double)a.rows;
        const double share = 1 / (double)a.chunk;
        for (int64_t chunk = first; live && chunk < chunks; chunk += step) {
            const int64_t left = a.rows - chunk * a.chunk, rows = left < a.chunk ? left : a.chunk;
            const double sum = (double)part[chunk * wide + a.n],
                         average = rows < a.chunk ? sum / (double)rows : sum * share;
            const double away = (double)part[chunk * wide] - one + average,
                         squares = (double)part[chunk * wide + 2 * a.n] - average * sum;
            two += (squares < 0 ? 0 : squares) + away * away * (double)rows;
        }
        two = mirt__cu_finish_sum(two, room);
        if (a.rows > 0) two /= (double)a.rows;
    } else {
        for (int64_t chunk = first; live && chunk < chunks; chunk += step) {
            one += (double)part[chunk * wide];
            two += (double)part[chunk * wide + a.n];
        }
        one = mirt__cu_finish_sum(one, room);
        two = mirt__cu_finish_sum(two, room);
        if (SUM == MIRT__CU_NORM_GRADIENT && live) two /= sqrt((double)a.variance[column] + (double)a.epsilon);
    }
    if (!live || first > 0) return;
    a.out[0][column] = (float)one;
    a.out[1][column] = (float)two;
}

/* >>by rows, of float32: a block each */

template <int N> static __global__ void mirt__cu_norm_row_stats(mirt__cu_norm_call a) {
    MIRT_SHARED(double, room, 32);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *x = static_cast<const float *>(a.x) + row * a.n;
        const float shift = a.n > 0 ? x[0] : 0.0f;
        float sum = 0, squares = 0, away[N];
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_load_n<N>(x + j, away);
#pragma unroll
            for (int v = 0; v < N; v++) sum += away[v] - shift;
        }
        const double mean = (double)shift + mirt__cu_block_sum((double)sum, room) / (double)a.n;
        /* About the rounded mean, and what that rounding makes. */
        const float middle = (float)mean;
        sum = 0;
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_load_n<N>(x + j, away);
#pragma unroll
            for (int v = 0; v < N; v++) {
                away[v] -= middle;
                sum += away[v];
                squares = fmaf(away[v], away[v], squares);
            }
        }
        const double rest = mirt__cu_block_sum((double)sum, room) / (double)a.n,
                     all = mirt__cu_block_sum((double)squares, room) / (double)a.n - rest * rest;
        if (threadIdx.x > 0) continue;
        a.out[0][row] = a.n > 0 ? (float)((double)middle + rest) : 0.0f;
        a.out[1][row] = a.n > 0 && all > 0 ? (float)all : 0.0f;
    }
}

/* dhat, and hat in place of x. */
template <int N>
static inline __device__ void mirt__cu_norm_row_read(const mirt__cu_norm_call &a, int64_t at, int64_t column,
                                                     float mean, float inverse, float *hat, float *g) {
    float u[N], gamma[N];
    mirt__cu_load_n<N>(static_cast<const float *>(a.x) + at, hat);
    mirt__cu_load_n<N>(static_cast<const float *>(a.dy) + at, g);
#pragma unroll
    for (int v = 0; v < N; v++) {
        hat[v] = __fmul_rn(hat[v] - mean, inverse);
        gamma[v] = a.gamma ? a.gamma[column + v] : 1.0f;
        u[v] = __fadd_rn(__fmul_rn(hat[v], gamma[v]),
                         a.beta && a.activation != MIRT_LINEAR ? a.beta[column + v] : 0.0f);
    }
    mirt__cu_times_slope_n<N>(a.activation, g, u);
#pragma unroll
    for (int v = 0; v < N; v++) g[v] *= gamma[v];
}
template <int N> static __global__ void mirt__cu_norm_row_back(mirt__cu_norm_call a) {
    MIRT_SHARED(double, room, 32);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float mean = a.mean[row], inverse = mirt__cu_norm_inverse_of(a.variance[row], a.epsilon);
        float sum = 0, product = 0, hat[N], g[N];
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_norm_row_read<N>(a, row * a.n + j, j, mean, inverse, hat, g);
#pragma unroll
            for (int v = 0; v < N; v++) {
                sum += g[v];
                product = fmaf(g[v], hat[v], product);
            }
        }
        const float less = (float)(mirt__cu_block_sum((double)sum, room) / (double)a.n),
                    part = (float)(mirt__cu_block_sum((double)product, room) / (double)a.n);
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_norm_row_read<N>(a, row * a.n + j, j, mean, inverse, hat, g);
#pragma unroll
            for (int v = 0; v < N; v++) g[v] = (g[v] - less - hat[v] * part) * inverse;
            mirt__cu_store_n<N>(static_cast<float *>(a.y) + row * a.n + j, g);
        }
    }
}

/* >>calls */

/* Columns at once, at most `most`, where all that is accessed allows it; *dtypes. NULL stands for what is not. */
static int mirt__cu_norm_vector(const mirt__cu_norm_call *a, bool x, bool dy, bool y, int most, int *dtypes) {
    const void *const data[4] = {x ? a->x : NULL, dy ? a->dy : NULL, y ? a->add : NULL, y ? a->y : NULL};
    const mirt_dtype dtype[4] = {a->x_dtype, a->dy_dtype, a->add_dtype, a->y_dtype};
    const mirt_dtype one = x ? a->x_dtype : a->y_dtype;
    const int vector = mirt__cu_is_half(one) ? most : 4;
    bool all = a->n % vector == 0;
    for (int i = 0; i < 4; i++)
        all = all && (!data[i] || (dtype[i] == one && mirt__cu_aligned_for(data[i], one, vector)));
    *dtypes = all ? mirt__cu_dtypes_of(one) : MIRT__CU_EITHER;
    return all ? vector : 1;
}
/* Kernels by mirt__cu_dtypes. */
typedef void (*mirt__cu_norm_kernel)(mirt__cu_norm_call);
#define MIRT__CU_NORM_KERNELS(kernel, n, simple) \
    { \
        kernel<MIRT__CU_FLOATS, 4, simple>, kernel<MIRT__CU_HALVES, n, simple>, \
            kernel<MIRT__CU_FLOAT16S, n, simple>, kernel<MIRT__CU_EITHER, 1, simple> \
    }
/* Four columns at a time leave registers for twice as many threads, which memory needs where only x is read. */
static const mirt__cu_norm_kernel
    mirt__cu_norm_applies[2][4] = {MIRT__CU_NORM_KERNELS(mirt__cu_norm_apply, 4, false),
                                   MIRT__CU_NORM_KERNELS(mirt__cu_norm_apply, 4, true)},
    mirt__cu_norm_backs[2][4] = {MIRT__CU_NORM_KERNELS(mirt__cu_norm_back, 8, false),
                                 MIRT__CU_NORM_KERNELS(mirt__cu_norm_back, 8, true)};
#undef MIRT__CU_NORM_KERNELS

template <int SUM> static void mirt__cu_norm_column_sums(mirt__cu *cu, mirt__cu_norm_call *a) {
    static const mirt__cu_norm_kernel norm_sums[] = {
        mirt__cu_norm_sums<MIRT__CU_FLOATS, 4, SUM>, mirt__cu_norm_sums<MIRT__CU_HALVES, 8, SUM>,
        mirt__cu_norm_sums<MIRT__CU_FLOAT16S, 8, SUM>, mirt__cu_norm_sums<MIRT__CU_EITHER, 1, SUM>};
    int dtypes;
    const int64_t vector = mirt__cu_norm_vector(a, true, SUM != MIRT__CU_NORM_MOMENTS, false, 8, &dtypes);
    const mirt__cu_layout c = mirt__cu_layout_of(mirt__cu_ceil(a->n, vector), 64, 256);
    const int64_t most = MIRT__CU_NORM_CHUNKS / c.blocks > 1 ? MIRT__CU_NORM_CHUNKS / c.blocks : 1,
                  share = mirt__cu_ceil(a->rows, most);
    const int64_t wide = SUM == MIRT__CU_NORM_MOMENTS ? 3 : 2;
    if (a->n == 0) return;
    a->across = c.across;
    a->down = c.down;
    a->chunk = share > MIRT__CU_NORM_CHUNK ? share : MIRT__CU_NORM_CHUNK;
    const int64_t chunks = mirt__cu_ceil(a->rows, a->chunk);
    a->part = static_cast<float *>(mirt__cu_room(cu, (size_t)(chunks * wide * a->n) * sizeof(float)));
    const mirt__cu_norm_call call = *a;
    const dim3 grid((unsigned)chunks, c.blocks), block((unsigned)(c.across * c.down));
    const size_t shared = (size_t)(c.across * c.down) * 2 * (size_t)vector * sizeof(float);
    if (chunks > 0) MIRT_LAUNCH(cu, norm_sums[dtypes], grid, block, shared, call);
    int lanes = 4;
    while (lanes < MIRT__CU_FINISH_MOST && lanes < chunks) lanes *= 2;
    const unsigned blocks = (unsigned)mirt__cu_ceil(a->n, MIRT__CU_FINISH_COLUMNS),
                   threads = (unsigned)(lanes * MIRT__CU_FINISH_COLUMNS);
    MIRT_LAUNCH(cu, mirt__cu_norm_finish<SUM>, blocks, threads, 0, call, chunks);
}

/* A block for a row, whose threads take n numbers at a time. */
static void mirt__cu_norm_by_rows(mirt__cu *cu, mirt__cu_norm_kernel norm_of_rows, const mirt__cu_norm_call &a, int n) {
    const int64_t vectors = a.n / n;
    const unsigned threads = vectors > 1024 ? 256 : vectors > 512 ? 128 : vectors > 256 ? 64 : 32;
    MIRT_LAUNCH(cu, norm_of_rows, (unsigned)(a.rows > 1 << 20 ? 1 << 20 : a.rows), threads, 0, a);
}

static void mirt__cu_norm_stats(const mirt__norm *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    if (!args->by_row) return mirt__cu_norm_column_sums<MIRT__CU_NORM_MOMENTS>(cu, &a);
    if (a.rows == 0) return;
    const bool four = a.n % 4 == 0 && mirt__cu_aligned(a.x, 16);
    mirt__cu_norm_by_rows(cu, four ? mirt__cu_norm_row_stats<4> : mirt__cu_norm_row_stats<1>, a, four ? 4 : 1);
}

/* A pass over rows. Each thread takes several, so that it computes the constants of its columns once. */
static void mirt__cu_norm_pass(mirt__cu *cu, mirt__cu_norm_kernel norm_of_columns, mirt__cu_norm_call a, int vector) {
    const mirt__cu_layout c = mirt__cu_layout_of(mirt__cu_ceil(a.n, vector), 256, 256);
    const int64_t blocks = mirt__cu_ceil(a.rows, (int64_t)c.down * MIRT__CU_NORM_ROWS),
                  most = c.blocks < 512 ? MIRT__CU_NORM_BLOCKS / (int64_t)c.blocks : 2;
    a.across = c.across;
    a.down = c.down;
    MIRT_LAUNCH(cu, norm_of_columns, dim3((unsigned)(blocks < most ? blocks : most), c.blocks), c.across * c.down, 0,
                a);
}

static void mirt__cu_normalize(const mirt__norm *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    int dtypes;
    const int vector = mirt__cu_norm_vector(&a, true, false, true, 4, &dtypes);
    if (a.rows > 0 && a.n > 0)
        mirt__cu_norm_pass(cu, mirt__cu_norm_applies[mirt__cu_simple(a.activation)][dtypes], a, vector);
}

static void mirt__cu_norm_grad_sums(const mirt__norm *args, const mirt__where *where) {
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    if (args->by_row) mirt__cu_norm_column_sums<MIRT__CU_NORM_GRADIENT_BY_ROW>(mirt__cu_of(where), &a);
    else mirt__cu_norm_column_sums<MIRT__CU_NORM_GRADIENT>(mirt__cu_of(where), &a);
}

static void mirt__cu_norm_grad_input(const mirt__norm *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    int dtypes;
    a.add = NULL;
    const int vector = mirt__cu_norm_vector(&a, true, true, true, 8, &dtypes);
    if (a.rows == 0 || a.n == 0) return;
    if (!args->by_row) mirt__cu_norm_pass(cu, mirt__cu_norm_backs[mirt__cu_simple(a.activation)][dtypes], a, vector);
    else if (vector == 4) mirt__cu_norm_by_rows(cu, mirt__cu_norm_row_back<4>, a, 4);
    else mirt__cu_norm_by_rows(cu, mirt__cu_norm_row_back<1>, a, 1);
}
#undef MIRT__CU_NORM_BLOCKS
#undef MIRT__CU_NORM_CHUNK
#undef MIRT__CU_NORM_CHUNKS
#undef MIRT__CU_NORM_ROWS
