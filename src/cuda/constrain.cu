/* Constraints of weights: norms by one block each. */
#include "cuda.cuh"
#include "math.cuh"

typedef struct mirt__cu_constrain_args {
    mirt_constraint c;
    mirt__cu_axes kept, gone;
    float *w;
} mirt__cu_constrain_args;

static mirt__cu_axes mirt__cu_constrain_axes(const mirt__constrain *args, unsigned axes) {
    mirt__cu_axes a;
    int64_t step = 1;
    memset(&a, 0, sizeof a);
    a.count = 1;
    for (int i = args->rank - 1; i >= 0; step *= args->dim[i--]) {
        if (axes >> i & 1) mirt__cu_axes_add(&a, args->dim[i], step);
    }
    return a;
}

#define MIRT__CU_CONSTRAIN_BLOCK 128

static __global__ void __launch_bounds__(MIRT__CU_CONSTRAIN_BLOCK)
    mirt__cu_constrain_kernel(const mirt__cu_constrain_args a) {
    MIRT_SHARED(double, sums, MIRT__CU_CONSTRAIN_BLOCK);
    const int thread = (int)threadIdx.x;
    for (int64_t at = blockIdx.x; at < a.kept.count; at += gridDim.x) {
        float *w = a.w + mirt__cu_axes_place(a.kept, at);
        double sum = 0;
        for (int64_t r = thread; r < a.gone.count; r += MIRT__CU_CONSTRAIN_BLOCK) {
            const double x = (double)w[mirt__cu_axes_place(a.gone, r)];
            sum += x * x;
        }
        sums[thread] = sum;
        __syncthreads();
        for (int half = MIRT__CU_CONSTRAIN_BLOCK / 2; half > 0; half /= 2) { /* a tree */
            if (thread < half) sums[thread] += sums[thread + half];
            __syncthreads();
        }
        const float norm = (float)sqrt(sums[0]), least = a.c.min_value, most = a.c.max_value,
                    clipped = norm < least ? least : norm > most ? most : norm, below = 1e-7f + norm,
                    desired = __fadd_rn(__fmul_rn(a.c.rate, clipped), __fmul_rn(1 - a.c.rate, norm));
        for (int64_t r = thread; r < a.gone.count; r += MIRT__CU_CONSTRAIN_BLOCK) {
            float *x = w + mirt__cu_axes_place(a.gone, r);
            *x = a.c.kind == MIRT_UNIT_NORM ? *x / below : *x * (desired / below);
        }
        __syncthreads(); /* the next norm takes the place of this one */
    }
}

/* A power iteration of a block's threads, as mirt__spectral_norm has it: the next u in `sum`, not divided by its norm,
   which is returned. */
static inline __device__ double mirt__cu_spectral_step(const float *w, const float *u, int64_t rows, int columns,
                                                       double *sum, double *v) {
    const int thread = (int)threadIdx.x, lane = thread % 32;
    double squares = 0, norm = 0;
    for (int j = thread; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK) sum[j] = 0;
    for (int64_t first = 0; first < rows; first += MIRT__CU_CONSTRAIN_BLOCK) {
        const int count = (int)(rows - first < MIRT__CU_CONSTRAIN_BLOCK ? rows - first : MIRT__CU_CONSTRAIN_BLOCK);
        const float *part = w + first * columns;
        for (int r = thread / 32; r < count; r += MIRT__CU_CONSTRAIN_BLOCK / 32) {
            double product = 0;
            for (int j = lane; j < columns; j += 32) product += (double)part[(int64_t)r * columns + j] * (double)u[j];
            product = mirt__cu_warp_sum(product);
            if (lane == 0) v[r] = product;
        }
        __syncthreads();
        for (int r = 0; r < count; r++) squares += v[r] * v[r];
        for (int j = thread; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK) {
            double x = sum[j];
            for (int r = 0; r < count; r++) x += v[r] * (double)part[(int64_t)r * columns + j];
            sum[j] = x;
        }
        __syncthreads();
    }
    const double length = fmax(sqrt(squares), 1e-7);
    for (int j = 0; j < columns; j++) norm += sum[j] / length * (sum[j] / length);
    __syncthreads();
    for (int j = thread; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK) sum[j] /= length;
    return sqrt(norm);
}

static __global__ void __launch_bounds__(MIRT__CU_CONSTRAIN_BLOCK)
    mirt__cu_spectral_kernel(float *w, float *u, int64_t rows, int columns, int iterations) {
    MIRT_SHARED(double, sum, MIRT__SPECTRAL_COLUMNS);
    MIRT_SHARED(double, v, MIRT__CU_CONSTRAIN_BLOCK);
    double norm = 0;
    for (int k = 0; k < iterations; k++) {
        norm = mirt__cu_spectral_step(w, u, rows, columns, sum, v);
        if (!(norm > 0)) return;
        for (int j = (int)threadIdx.x; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK)
            u[j] = (float)(sum[j] / fmax(norm, 1e-7));
        __syncthreads();
    }
    const double sigma = norm * norm / fmax(norm, 1e-7);
    for (int64_t i = threadIdx.x; i < rows * columns; i += MIRT__CU_CONSTRAIN_BLOCK)
        w[i] = (float)((double)w[i] / sigma);
}

static void mirt__cu_spectral_norm(const mirt__constrain *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int64_t rows = 1;
    for (int i = 0; i < args->rank - 1; i++) rows *= args->dim[i];
    MIRT_LAUNCH(cu, mirt__cu_spectral_kernel, 1, MIRT__CU_CONSTRAIN_BLOCK, 0, args->w, args->u, rows,
                (int)args->dim[args->rank - 1], args->constraint.power_iterations);
}

static void mirt__cu_not_negative(const mirt__constrain *args, const mirt__where *where) {
    mirt__unary u;
    memset(&u, 0, sizeof u);
    u.kind = MIRT__ACT_RELU;
    u.count = 1;
    for (int i = 0; i < args->rank; i++) u.count *= args->dim[i];
    u.x = args->w;
    u.y = args->w;
    mirt__cu_unary(&u, where);
}

static void mirt__cu_constrain(const mirt__constrain *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_constrain_args a;
    const unsigned axes = (unsigned)args->constraint.axis;
    if (args->constraint.kind == MIRT_NON_NEG) {
        mirt__cu_not_negative(args, where);
        return;
    }
    if (args->constraint.kind == MIRT_SPECTRAL_NORM) {
        mirt__cu_spectral_norm(args, where);
        return;
    }
    memset(&a, 0, sizeof a);
    a.c = args->constraint;
    a.kept = mirt__cu_constrain_axes(args, ~axes);
    a.gone = mirt__cu_constrain_axes(args, axes);
    a.w = args->w;
    if (a.kept.count <= 0 || a.gone.count <= 0) return;
    const unsigned blocks = (unsigned)(a.kept.count < 65536 ? a.kept.count : 65536);
    MIRT_LAUNCH(cu, mirt__cu_constrain_kernel, blocks, MIRT__CU_CONSTRAIN_BLOCK, 0, a);
}

#undef MIRT__CU_CONSTRAIN_BLOCK
