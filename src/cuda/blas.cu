/* Matrix products by cuBLAS, of operands that lie in memory as they are multiplied. That is dense layers and 1x1
   convolutions. MIRT_CUDA_BLAS=0 turns it off. */
#include "cuda.cuh"
#include "layout.cuh"

#include <cublasLt.h>
#include <dlfcn.h>
#include <limits.h>

/* cublasLt comes with cuBLAS, which needs it; found at run time, it needs no library on the command line. */
#define MIRT__CU_LT_LIST(X) \
    X(MatmulDescCreate) \
    X(MatmulDescDestroy) \
    X(MatmulDescSetAttribute) \
    X(MatrixLayoutCreate) \
    X(MatrixLayoutDestroy) \
    X(MatmulPreferenceCreate) \
    X(MatmulPreferenceDestroy) \
    X(MatmulPreferenceSetAttribute) \
    X(MatmulAlgoGetHeuristic) \
    X(Matmul)
typedef struct mirt__cu_lt {
#define MIRT__CU_LT_MEMBER(name) decltype(&cublasLt##name) name;
    MIRT__CU_LT_LIST(MIRT__CU_LT_MEMBER)
#undef MIRT__CU_LT_MEMBER
    bool there;
} mirt__cu_lt;

static mirt__cu_lt mirt__cu_lt_load() {
    mirt__cu_lt lt;
    lt.there = true;
#define MIRT__CU_LT_FIND(name) \
    lt.name = reinterpret_cast<decltype(lt.name)>(dlsym(RTLD_DEFAULT, "cublasLt" #name)); \
    lt.there = lt.there && lt.name;
    MIRT__CU_LT_LIST(MIRT__CU_LT_FIND)
#undef MIRT__CU_LT_FIND
    return lt;
}
#undef MIRT__CU_LT_LIST

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
    const cublasStatus_t status =
        p->from == CUDA_R_32F
            ? cublasSgemm(cu->blas, p->b_as, p->a_as, p->n, p->m, p->k, &one, (const float *)p->b, p->b_pitch,
                          (const float *)p->a, p->a_pitch, &zero, (float *)p->c, p->n)
            : cublasGemmEx(cu->blas, p->b_as, p->a_as, p->n, p->m, p->k, &one, p->b, p->from, p->b_pitch, p->a, p->from,
                           p->a_pitch, &zero, p->c, p->to, p->n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
        mirt__cu_fail(cu, MIRT_E_DEVICE, "cuBLAS could not multiply (status %d); MIRT_CUDA_BLAS=0 does without it",
                      (int)status);
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
    const size_t room = MIRT__CU_BLAS_ROOM;
    const auto good = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t a = NULL, b = NULL, c = NULL;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto &value) {
        return good(lt.MatmulDescSetAttribute(desc, what, &value, sizeof value));
    };
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto &value) {
        return good(lt.MatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
    };
    const bool a_plain = p->a_as == CUBLAS_OP_N, b_plain = p->b_as == CUBLAS_OP_N;
    const uint64_t a_rows = (uint64_t)(a_plain ? p->k : p->m), a_cols = (uint64_t)(a_plain ? p->m : p->k);
    const uint64_t b_rows = (uint64_t)(b_plain ? p->n : p->k), b_cols = (uint64_t)(b_plain ? p->k : p->n);
    /* A handle of cuBLAS is one of cublasLt, too. */
    const cublasLtHandle_t handle = reinterpret_cast<cublasLtHandle_t>(cu->blas);
    const bool fine =
        good(lt.MatmulDescCreate(&desc, cu->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
        set(CUBLASLT_MATMUL_DESC_TRANSA, p->b_as) && set(CUBLASLT_MATMUL_DESC_TRANSB, p->a_as) &&
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) && (!bias || set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)) &&
        good(lt.MatrixLayoutCreate(&b, CUDA_R_32F, b_rows, b_cols, p->b_pitch)) &&
        good(lt.MatrixLayoutCreate(&a, CUDA_R_32F, a_rows, a_cols, p->a_pitch)) &&
        good(lt.MatrixLayoutCreate(&c, CUDA_R_32F, (uint64_t)p->n, (uint64_t)p->m, p->n)) &&
        good(lt.MatmulPreferenceCreate(&preference)) && prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, room) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, mirt__cu_blas_alignment(p->b)) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, mirt__cu_blas_alignment(p->a)) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, mirt__cu_blas_alignment(p->c)) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, mirt__cu_blas_alignment(p->c)) &&
        good(lt.MatmulAlgoGetHeuristic(handle, desc, b, a, c, c, preference, 1, &found, &count)) && count > 0 &&
        good(lt.Matmul(handle, desc, &one, p->b, b, p->a, a, &zero, p->c, c, p->c, c, &found.algo, cu->blas_room, room,
                       cu->stream));
    if (preference) lt.MatmulPreferenceDestroy(preference);
    if (c) lt.MatrixLayoutDestroy(c);
    if (a) lt.MatrixLayoutDestroy(a);
    if (b) lt.MatrixLayoutDestroy(b);
    if (desc) lt.MatmulDescDestroy(desc);
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

/* Long columns have parts, whose sums take room. */
#define MIRT__CU_BLAS_COLUMN 1024
template <class T>
static void mirt__cu_blas_column_sums(mirt__cu *cu, const void *from, int64_t rows, int64_t n, float *sums) {
    const int64_t whole = mirt__cu_ceil(rows, MIRT__CU_BLAS_COLUMN), parts = whole > 512 ? 512 : whole,
                  each = mirt__cu_ceil(rows, parts > 1 ? parts : 1);
    const dim3 block(32, 8);
    const unsigned across = (unsigned)mirt__cu_ceil(n, 32);
    const T *x = static_cast<const T *>(from);
    if (parts <= 1) {
        MIRT_LAUNCH(cu, mirt__cu_blas_columns<T>, dim3(across), block, 0, x, rows, n, rows, sums);
        return;
    }
    float *room = static_cast<float *>(mirt__cu_room(cu, (size_t)(parts * n) * sizeof(float)));
    MIRT_LAUNCH(cu, mirt__cu_blas_columns<T>, dim3(across, (unsigned)mirt__cu_ceil(rows, each)), block, 0, x, rows, n,
                each, room);
    MIRT_LAUNCH(cu, mirt__cu_blas_columns<float>, dim3(across), block, 0, room, mirt__cu_ceil(rows, each), n, parts,
                sums);
}

static bool mirt__cu_blas_on(const mirt__cu *cu) { return cu->blas && !mirt__cu_switched_off("MIRT_CUDA_BLAS"); }
static bool mirt__cu_blas_plain(const mirt__reader *r, mirt_dtype dtype) {
    return r->dtype == dtype && !r->affine && !r->norm && !r->gate && !r->back;
}
static bool mirt__cu_blas_load(mirt__cu *cu) { return !cu->blas || mirt__cu_load(cu, mirt__cu_blas_finish); }

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
    const bool nothing = mirt__cu_blas_nothing(e), fuses = p->from == CUDA_R_32F && !e->mask &&
                                                           (relu || e->activation == MIRT_LINEAR);
    if (!mirt__cu_launches(cu)) return;
    if (!nothing && fuses && mirt__cu_blas_fused(cu, p, e->bias, relu)) return;
    mirt__cu_blas_run(cu, p);
    if (nothing) return;
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
    if (g->column_sum) mirt__cu_blas_column_sums<float>(cu, g->b, g->k, g->n, g->column_sum);
    mirt__cu_blas_finished(cu, &p, &g->epilogue);
    return true;
}

/* Whether a convolution can be a product of cuBLAS. */
static bool mirt__cu_blas_can(const mirt__cu *cu, const mirt__conv *s, mirt_dtype factors, const mirt__reader *x) {
    return mirt__cu_blas_on(cu) && mirt__cu_pixelwise(s) && s->groups == 1 && mirt__cu_blas_plain(x, factors) &&
           (factors == MIRT_FLOAT32 || mirt__cu_multiplies(cu, factors));
}

static cudaDataType mirt__cu_blas_type(mirt_dtype dtype) {
    return dtype == MIRT_FLOAT32 ? CUDA_R_32F : (int)dtype == MIRT__FLOAT16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* Weights rounded to 16 bits. */
static __global__ void __launch_bounds__(256)
    mirt__cu_blas_round(const float *x, int64_t count, void *y, mirt_dtype dtype) {
    MIRT__CU_PIECES(i, left, count, 1) mirt__cu_store(y, dtype, i, x[i]);
}

/* out[pixels, n] = in[pixels, k] and the kernel [k, n], or, for a gradient, [n, k]. */
static bool mirt__cu_blas_conv(mirt__cu *cu, const mirt__conv *s, bool back, mirt_dtype factors, const mirt__reader *in,
                               const float *kernel, void *out, mirt_dtype out_dtype, const mirt__epilogue *e) {
    mirt__cu_product p;
    if (!mirt__cu_blas_can(cu, s, factors, in)) return false;
    if (out_dtype == MIRT_FLOAT32 ? !mirt__cu_blas_finishes(e) : out_dtype != factors || !mirt__cu_blas_nothing(e))
        return false;
    const int64_t pixels = s->rows * s->h * s->w, n = back ? s->ci : s->co, k = back ? s->co : s->ci;
    if (!mirt__cu_blas_product(&p, mirt__cu_blas_type(factors), mirt__cu_blas_type(out_dtype), pixels, n, k, in->data,
                               k, 1, kernel, back ? 1 : n, back ? k : 1, out) ||
        !mirt__cu_blas_worth(&p, e))
        return false;
    if (factors != MIRT_FLOAT32) {
        void *rounded = mirt__cu_room(cu, (size_t)(n * k) * 2);
        MIRT_LAUNCH(cu, mirt__cu_blas_round, mirt__cu_blocks(n * k, 256), 256, 0, kernel, n * k, rounded, factors);
        p.b = rounded;
    }
    mirt__cu_blas_finished(cu, &p, e);
    return true;
}

static bool mirt__cu_blas_conv_weight_grad(const mirt__conv_weight_grad *g, mirt_dtype factors, mirt__cu *cu) {
    const mirt__conv *s = &g->s;
    const int64_t pixels = s->rows * s->h * s->w;
    mirt__cu_product p;
    if (!mirt__cu_blas_can(cu, s, factors, &g->x) || !mirt__cu_blas_plain(&g->dy, factors) ||
        !mirt__cu_blas_product(&p, mirt__cu_blas_type(factors), CUDA_R_32F, s->ci, s->co, pixels, g->x.data, 1,
                               s->ci, g->dy.data, s->co, 1, g->dkernel))
        return false;
    if (g->db) {
        const auto column_sums = (int)factors == MIRT__FLOAT16    ? mirt__cu_blas_column_sums<__half>
                                 : (int)factors == MIRT__BFLOAT16 ? mirt__cu_blas_column_sums<__nv_bfloat16>
                                                                  : mirt__cu_blas_column_sums<float>;
        column_sums(cu, g->dy.data, pixels, s->co, g->db);
    }
    mirt__cu_blas_run(cu, &p);
    return true;
}
