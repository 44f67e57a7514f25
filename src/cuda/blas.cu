/* Matrix products by cuBLAS, of operands that lie in memory as they are multiplied. That is dense layers and 1x1
   convolutions. MIRT_CUDA_BLAS=0 turns it off. */
#include "cuda.cuh"
#include "math.cuh"

#include <cublasLt.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

static bool mirt__cu_blas_good(mirt__cu *cu, cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    mirt__cu_fail(cu, MIRT_E_DEVICE, "cuBLAS could not %s (status %d); MIRT_CUDA_BLAS=0 does without it", what,
                  (int)status);
    return false;
}

/* cublasLt comes with cuBLAS, which needs it; found at run time, it needs no library on the command line. */
typedef struct mirt__cu_lt {
    decltype(&cublasLtMatmulDescCreate) desc;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmul) matmul;
    bool there;
} mirt__cu_lt;

template <class F> static bool mirt__cu_lt_find(F *function, const char *name) {
    *function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    return *function != NULL;
}
static mirt__cu_lt mirt__cu_lt_load() {
    mirt__cu_lt lt;
    lt.there = mirt__cu_lt_find(&lt.desc, "cublasLtMatmulDescCreate") &&
               mirt__cu_lt_find(&lt.desc_destroy, "cublasLtMatmulDescDestroy") &&
               mirt__cu_lt_find(&lt.desc_set, "cublasLtMatmulDescSetAttribute") &&
               mirt__cu_lt_find(&lt.layout, "cublasLtMatrixLayoutCreate") &&
               mirt__cu_lt_find(&lt.layout_destroy, "cublasLtMatrixLayoutDestroy") &&
               mirt__cu_lt_find(&lt.preference, "cublasLtMatmulPreferenceCreate") &&
               mirt__cu_lt_find(&lt.preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
               mirt__cu_lt_find(&lt.preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
               mirt__cu_lt_find(&lt.heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
               mirt__cu_lt_find(&lt.matmul, "cublasLtMatmul");
    return lt;
}

/* c[m, n] = a[m, k] b[k, n], as mirt__gemm; for cuBLAS, whose matrices lie by columns, n x m = (n x k) (k x m). */
typedef struct mirt__cu_product {
    int m, n, k;
    const void *a, *b;
    void *c;
    cudaDataType from, to;
    cublasOperation_t a_as, b_as;
    int a_pitch, b_pitch;
} mirt__cu_product;

static bool mirt__cu_blas_side(int64_t step, int64_t next, int64_t along, int64_t across, cublasOperation_t *as,
                               int *pitch) {
    const bool plain = next == 1;
    const int64_t line = plain ? along : across, lines = plain ? step : next;
    *as = plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    *pitch = (int)(lines > line ? lines : line);
    return lines <= INT_MAX && line <= INT_MAX;
}
static bool mirt__cu_blas_product(mirt__cu_product *p, cudaDataType from, cudaDataType to, int64_t m, int64_t n,
                                  int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
                                  int64_t b_col, void *c) {
    if (m < 1 || n < 1 || k < 1 || m > INT_MAX || n > INT_MAX || k > INT_MAX) return false;
    p->m = (int)m;
    p->n = (int)n;
    p->k = (int)k;
    p->a = a;
    p->b = b;
    p->c = c;
    p->from = from;
    p->to = to;
    return mirt__cu_blas_side(a_row, a_col, k, m, &p->a_as, &p->a_pitch) &&
           mirt__cu_blas_side(b_row, b_col, n, k, &p->b_as, &p->b_pitch);
}

static void mirt__cu_blas_run(mirt__cu *cu, const mirt__cu_product *p) {
    const float one = 1, zero = 0;
    if (!mirt__cu_launches(cu)) return;
    if (p->from == CUDA_R_32F) {
        mirt__cu_blas_good(cu,
                           cublasSgemm(cu->blas, p->b_as, p->a_as, p->n, p->m, p->k, &one, (const float *)p->b,
                                       p->b_pitch, (const float *)p->a, p->a_pitch, &zero, (float *)p->c, p->n),
                           "multiply");
        return;
    }
    mirt__cu_blas_good(cu,
                       cublasGemmEx(cu->blas, p->b_as, p->a_as, p->n, p->m, p->k, &one, p->b, p->from, p->b_pitch, p->a,
                                    p->from, p->a_pitch, &zero, p->c, p->to, p->n, CUBLAS_COMPUTE_32F,
                                    CUBLAS_GEMM_DEFAULT),
                       "multiply");
}

static uint32_t mirt__cu_blas_alignment(const void *pointer) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(pointer) & 255;
    return at ? (uint32_t)(at & (~at + 1)) : 256;
}

/* The product of float32 with bias and relu in the same kernel; false where cublasLt has none for it. */
static bool mirt__cu_blas_fused(mirt__cu *cu, const mirt__cu_product *p, const float *bias, bool relu) {
    static const mirt__cu_lt lt = mirt__cu_lt_load();
    if (!lt.there || !mirt__cu_aligned(bias, 16))
        return false; /* it reads a bias by 16 bytes, whatever it is told of alignment */
    const float one = 1, zero = 0;
    const cublasLtEpilogue_t epilogue = bias ? relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS
                                             : CUBLASLT_EPILOGUE_RELU;
    const uint32_t align[4] = {mirt__cu_blas_alignment(p->b), mirt__cu_blas_alignment(p->a),
                               mirt__cu_blas_alignment(p->c), mirt__cu_blas_alignment(p->c)};
    const size_t room = MIRT__CU_BLAS_ROOM;
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t a = NULL, b = NULL, c = NULL;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const bool a_plain = p->a_as == CUBLAS_OP_N, b_plain = p->b_as == CUBLAS_OP_N;
    const uint64_t a_rows = (uint64_t)(a_plain ? p->k : p->m), a_cols = (uint64_t)(a_plain ? p->m : p->k);
    const uint64_t b_rows = (uint64_t)(b_plain ? p->n : p->k), b_cols = (uint64_t)(b_plain ? p->k : p->n);
    bool fine = lt.desc(&desc, cu->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
                    CUBLAS_STATUS_SUCCESS &&
                lt.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &p->b_as, sizeof p->b_as) == CUBLAS_STATUS_SUCCESS &&
                lt.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &p->a_as, sizeof p->a_as) == CUBLAS_STATUS_SUCCESS &&
                lt.desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) == CUBLAS_STATUS_SUCCESS &&
                (!bias ||
                 lt.desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias) == CUBLAS_STATUS_SUCCESS) &&
                lt.layout(&b, CUDA_R_32F, b_rows, b_cols, p->b_pitch) == CUBLAS_STATUS_SUCCESS &&
                lt.layout(&a, CUDA_R_32F, a_rows, a_cols, p->a_pitch) == CUBLAS_STATUS_SUCCESS &&
                lt.layout(&c, CUDA_R_32F, (uint64_t)p->n, (uint64_t)p->m, p->n) == CUBLAS_STATUS_SUCCESS &&
                lt.preference(&preference) == CUBLAS_STATUS_SUCCESS &&
                lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room) ==
                    CUBLAS_STATUS_SUCCESS;
    const cublasLtMatmulPreferenceAttributes_t alignment[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (int i = 0; fine && i < 4; i++) {
        fine = lt.preference_set(preference, alignment[i], &align[i], sizeof align[i]) == CUBLAS_STATUS_SUCCESS;
    }
    /* A handle of cuBLAS is one of cublasLt, too. */
    const cublasLtHandle_t handle = reinterpret_cast<cublasLtHandle_t>(cu->blas);
    fine = fine && lt.heuristic(handle, desc, b, a, c, c, preference, 1, &found, &count) == CUBLAS_STATUS_SUCCESS &&
           count > 0 &&
           lt.matmul(handle, desc, &one, p->b, b, p->a, a, &zero, p->c, c, p->c, c, &found.algo, cu->blas_room, room,
                     cu->stream) == CUBLAS_STATUS_SUCCESS;
    if (preference) lt.preference_destroy(preference);
    if (c) lt.layout_destroy(c);
    if (a) lt.layout_destroy(a);
    if (b) lt.layout_destroy(b);
    if (desc) lt.desc_destroy(desc);
    return fine;
}

/* Bias, activation and mask of c [rows, n], in place. */
static __global__ void __launch_bounds__(256)
    mirt__cu_blas_finish(float *c, int64_t rows, int64_t n, const float *bias, mirt_activation_kind activation,
                         const float *mask, mirt_activation_kind mask_activation) {
    const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x;
    if (column >= n) return;
    const float add = bias ? bias[column] : 0;
    for (int64_t row = (int64_t)blockIdx.y * 8 + threadIdx.y; row < rows; row += (int64_t)gridDim.y * 8) {
        const int64_t at = row * n + column;
        float y = mirt__cu_activate(activation, c[at] + add);
        if (mask) y *= mirt__cu_slope_of_output(mask_activation, mask[at]);
        c[at] = y;
    }
}

/* Sums of the columns of x [rows, n], `each` rows a part; parts [part, n]. */
template <class T>
static __global__ void __launch_bounds__(256)
    mirt__cu_blas_columns(const T *x, int64_t rows, int64_t n, int64_t each, float *parts) {
    MIRT_SHARED(float, sums, 256);
    const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x, first = (int64_t)blockIdx.y * each;
    const int64_t end = first + each < rows ? first + each : rows;
    float sum = 0;
    if (column < n) {
        for (int64_t row = first + threadIdx.y; row < end; row += 8) sum += (float)x[row * n + column];
    }
    sums[threadIdx.y * 32 + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= n) return;
    for (int i = 1; i < 8; i++) sum += sums[i * 32 + threadIdx.x];
    parts[(int64_t)blockIdx.y * n + column] = sum;
}

/* Parts of a long column, and the room for their sums; none for a short one. */
#define MIRT__CU_BLAS_COLUMN 1024
static int64_t mirt__cu_blas_column_parts(int64_t rows) {
    const int64_t parts = mirt__cu_ceil(rows, MIRT__CU_BLAS_COLUMN);
    return parts > 512 ? 512 : parts;
}
static size_t mirt__cu_blas_column_room(int64_t rows, int64_t n) {
    const int64_t parts = mirt__cu_blas_column_parts(rows);
    return parts > 1 ? (size_t)(parts * n) * sizeof(float) : 0;
}
template <class T>
static void mirt__cu_blas_column_sums(mirt__cu *cu, const T *x, int64_t rows, int64_t n, float *sums, float *room) {
    const int64_t parts = mirt__cu_blas_column_parts(rows), each = mirt__cu_ceil(rows, parts > 1 ? parts : 1);
    const dim3 block(32, 8);
    const unsigned across = (unsigned)mirt__cu_ceil(n, 32);
    if (parts <= 1) {
        MIRT_LAUNCH(cu, mirt__cu_blas_columns<T>, dim3(across), block, 0, x, rows, n, rows, sums);
        return;
    }
    MIRT_LAUNCH(cu, mirt__cu_blas_columns<T>, dim3(across, (unsigned)mirt__cu_ceil(rows, each)), block, 0, x, rows, n,
                each, room);
    MIRT_LAUNCH(cu, mirt__cu_blas_columns<float>, dim3(across), block, 0, room, mirt__cu_ceil(rows, each), n, parts,
                sums);
}

static bool mirt__cu_blas_wanted() {
    const char *value = getenv("MIRT_CUDA_BLAS");
    return !value || strcmp(value, "0") != 0;
}
static bool mirt__cu_blas_on(const mirt__cu *cu) { return cu->blas && mirt__cu_blas_wanted(); }
static bool mirt__cu_blas_plain(const mirt__reader *r, mirt_dtype dtype) {
    return r->dtype == dtype && !r->affine && !r->norm && !r->gate && !r->back;
}
/* What can be done to a finished product of float32. */
static bool mirt__cu_blas_finishes(const mirt__epilogue *e) {
    return !e->norm && !e->add && !e->slope && e->sums == MIRT__SUMS_NONE;
}
static bool mirt__cu_blas_nothing(const mirt__epilogue *e) {
    return mirt__cu_blas_finishes(e) && !e->bias && e->activation == MIRT_LINEAR && !e->mask;
}

/* Whether that takes a kernel of its own, which small products are not worth. */
#define MIRT__CU_BLAS_WORTH ((int64_t)1 << 22) /* multiplications */
static bool mirt__cu_blas_worth(const mirt__cu_product *p, const mirt__epilogue *e) {
    return (!e->mask && (e->activation == MIRT_LINEAR || e->activation == MIRT_RELU)) ||
           (int64_t)p->m * p->n * p->k >= MIRT__CU_BLAS_WORTH;
}

/* The product and what follows it. */
static void mirt__cu_blas_finished(mirt__cu *cu, const mirt__cu_product *p, const mirt__epilogue *e) {
    const bool relu = e->activation == MIRT_RELU;
    if (!mirt__cu_launches(cu)) return;
    if (mirt__cu_blas_nothing(e)) {
        mirt__cu_blas_run(cu, p);
        return;
    }
    if (p->from == CUDA_R_32F && !e->mask && (relu || e->activation == MIRT_LINEAR) &&
        mirt__cu_blas_fused(cu, p, e->bias, relu))
        return;
    mirt__cu_blas_run(cu, p);
    const int64_t down = mirt__cu_ceil(p->m, 8);
    MIRT_LAUNCH(cu, mirt__cu_blas_finish,
                dim3((unsigned)mirt__cu_ceil(p->n, 32), (unsigned)(down > 4096 ? 4096 : down)), dim3(32, 8), 0,
                (float *)p->c, (int64_t)p->m, (int64_t)p->n, e->bias, e->activation, (const float *)e->mask,
                e->mask_activation);
}

static bool mirt__cu_blas_gemm(const mirt__gemm *g, mirt__cu *cu) {
    mirt__cu_product p;
    if (!mirt__cu_blas_on(cu) || !mirt__cu_blas_plain(&g->a, MIRT_FLOAT32) || !mirt__cu_blas_finishes(&g->epilogue))
        return false;
    if ((g->a_row != 1 && g->a_col != 1) || (g->b_row != 1 && g->b_col != 1) || (g->column_sum && g->b_row != g->n))
        return false;
    if (!mirt__cu_blas_product(&p, CUDA_R_32F, CUDA_R_32F, g->m, g->n, g->k, g->a.data, g->a_row, g->a_col, g->b,
                               g->b_row, g->b_col, g->c))
        return false;
    if (!mirt__cu_blas_worth(&p, &g->epilogue)) return false;
    if (g->column_sum) {
        float *room = NULL;
        const size_t bytes = mirt__cu_blas_column_room(g->k, g->n);
        if (bytes) room = (float *)mirt__cu_room(cu, bytes);
        mirt__cu_blas_column_sums(cu, g->b, g->k, g->n, g->column_sum, room);
    }
    mirt__cu_blas_finished(cu, &p, &g->epilogue);
    return true;
}

static bool mirt__cu_blas_pixels(const mirt__conv *s) {
    return s->kh == 1 && s->kw == 1 && s->stride_h == 1 && s->stride_w == 1 && s->groups == 1 && s->pad_top == 0 &&
           s->pad_left == 0 && s->oh == s->h && s->ow == s->w;
}

static cudaDataType mirt__cu_blas_type(mirt_dtype dtype) {
    return dtype == MIRT_FLOAT32 ? CUDA_R_32F : (int)dtype == MIRT__FLOAT16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* Weights rounded to 16 bits. */
static __global__ void __launch_bounds__(256)
    mirt__cu_blas_round(const float *x, int64_t count, void *y, mirt_dtype dtype) {
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < count; i += (int64_t)gridDim.x * 256)
        mirt__cu_store(y, dtype, i, x[i]);
}

/* out[pixels, n] = in[pixels, k] and the kernel [k, n], or, for a gradient, [n, k]. */
static bool mirt__cu_blas_conv(mirt__cu *cu, const mirt__conv *s, bool back, mirt_dtype factors, const mirt__reader *in,
                               const float *kernel, void *out, mirt_dtype out_dtype, const mirt__epilogue *e) {
    const bool half = factors != MIRT_FLOAT32;
    mirt__cu_product p;
    if (!mirt__cu_blas_on(cu) || !mirt__cu_blas_pixels(s) || !mirt__cu_blas_plain(in, factors)) return false;
    if (out_dtype == MIRT_FLOAT32 ? !mirt__cu_blas_finishes(e) : out_dtype != factors || !mirt__cu_blas_nothing(e))
        return false;
    if (half && !mirt__cu_multiplies(cu, factors)) return false;
    const int64_t pixels = s->rows * s->h * s->w, n = back ? s->ci : s->co, k = back ? s->co : s->ci;
    const void *b = kernel;
    if (!mirt__cu_blas_product(&p, mirt__cu_blas_type(factors), mirt__cu_blas_type(out_dtype), pixels, n, k, in->data,
                               k, 1, b, back ? 1 : n, back ? k : 1, out) || !mirt__cu_blas_worth(&p, e)) return false;
    if (half) {
        void *rounded = mirt__cu_room(cu, (size_t)(n * k) * 2);
        MIRT_LAUNCH(cu, mirt__cu_blas_round, mirt__cu_blocks(n * k, 256), 256, 0, kernel, n * k, rounded, factors);
        p.b = rounded;
    }
    mirt__cu_blas_finished(cu, &p, e);
    return true;
}

static bool mirt__cu_blas_conv_forward(const mirt__conv_forward *f, mirt_dtype factors, mirt__cu *cu) {
    return mirt__cu_blas_conv(cu, &f->s, false, factors, &f->x, f->kernel, f->y, f->y_dtype, &f->epilogue);
}
/* Without the weights' gradient. */
static bool mirt__cu_blas_conv_input_grad(const mirt__conv_input_grad *g, mirt_dtype factors, mirt__cu *cu) {
    return mirt__cu_blas_conv(cu, &g->s, true, factors, &g->dy, g->kernel, g->dx, g->dx_dtype, &g->epilogue);
}

static bool mirt__cu_blas_conv_weight_grad(const mirt__conv_weight_grad *g, mirt_dtype factors, mirt__cu *cu) {
    const mirt__conv *s = &g->s;
    const int64_t pixels = s->rows * s->h * s->w;
    mirt__cu_product p;
    if (!mirt__cu_blas_on(cu) || !mirt__cu_blas_pixels(s) || !mirt__cu_blas_plain(&g->x, factors) ||
        !mirt__cu_blas_plain(&g->dy, factors))
        return false;
    if (factors != MIRT_FLOAT32 && !mirt__cu_multiplies(cu, factors)) return false;
    if (!mirt__cu_blas_product(&p, mirt__cu_blas_type(factors), CUDA_R_32F, s->ci, s->co, pixels, g->x.data, 1, s->ci,
                               g->dy.data, s->co, 1, g->dkernel))
        return false;
    if (g->db) {
        float *room = NULL;
        const size_t bytes = mirt__cu_blas_column_room(pixels, s->co);
        if (bytes) room = (float *)mirt__cu_room(cu, bytes);
        if ((int)factors == MIRT__FLOAT16)
            mirt__cu_blas_column_sums(cu, (const __half *)g->dy.data, pixels, s->co, g->db, room);
        else if ((int)factors == MIRT__BFLOAT16)
            mirt__cu_blas_column_sums(cu, (const __nv_bfloat16 *)g->dy.data, pixels, s->co, g->db, room);
        else mirt__cu_blas_column_sums(cu, (const float *)g->dy.data, pixels, s->co, g->db, room);
    }
    mirt__cu_blas_run(cu, &p);
    return true;
}
