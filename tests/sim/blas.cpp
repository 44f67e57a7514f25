/* The products of cuBLAS and cublasLt that the library calls, in float32. Each element is summed in the order of k. */
#include "sim_internal.h"
#include <cstdio>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <set>
#include <vector>

bool &mirt_sim::host_memory() {
    static bool may;
    return may;
}
extern "C" void mirt_sim_host_memory(int on) { mirt_sim::host_memory() = on != 0; }

using namespace mirt_sim;

struct cublasContext {
    int device;
    cudaStream_t stream;
    void *room;
    size_t room_bytes;
    int mode;
    long number;
};

namespace {
std::set<cublasContext *> handles;
long made;

struct Matrix {
    const void *at;
    cudaDataType type;
    int64_t rows, columns, pitch, stride;
    bool by_rows;
};

size_t size_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

float read(const void *p, cudaDataType type, int64_t i) {
    if (type == CUDA_R_32F) return static_cast<const float *>(p)[i];
    if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i]);
    return __half2float(static_cast<const __half *>(p)[i]);
}

void write(void *p, cudaDataType type, int64_t i, float v) {
    if (type == CUDA_R_32F) static_cast<float *>(p)[i] = v;
    else if (type == CUDA_R_16BF) static_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16(v);
    else static_cast<__half *>(p)[i] = __float2half(v);
}

/* Rounded to what a tensor core multiplies. */
float as_operand(float v, cublasComputeType_t compute) {
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        return bits<float>((bits<uint32_t>(v) + 0x0FFFu + (bits<uint32_t>(v) >> 13 & 1)) & 0xFFFFE000u);
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) return __bfloat162float(__float2bfloat16(v));
    return v;
}

struct Product : Work {
    Matrix a, b, c, d;
    bool a_turned = false, b_turned = false;
    float alpha, beta;
    cublasComputeType_t compute;
    int64_t batch = 1;
    void *room = nullptr;
    size_t room_bytes = 0;
    int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void *bias = nullptr;
    cudaDataType bias_type = CUDA_R_32F;

    /* A matrix of the batch as it is multiplied, column by column. */
    std::vector<float> lines(const Matrix &x, int64_t batch_index, bool turned) const {
        int64_t rows = turned ? x.columns : x.rows, columns = turned ? x.rows : x.columns;
        std::vector<float> out((size_t)(rows * columns));
        const char *p = static_cast<const char *>(x.at) + (size_t)(batch_index * x.stride) * size_of(x.type);
        for (int64_t column = 0; column < columns; column++)
            for (int64_t row = 0; row < rows; row++) {
                int64_t r = turned ? column : row, c_ = turned ? row : column;
                float v = as_operand(read(p, x.type, x.by_rows ? r * x.pitch + c_ : c_ * x.pitch + r), compute);
                out[(size_t)(column * rows + row)] = v;
            }
        return out;
    }
    void run() override {
        if (options().skip) return;
        int64_t m = d.rows, n = d.columns, k = a_turned ? a.rows : a.columns;
        reads(a.at, span(a));
        reads(b.at, span(b));
        if (beta != 0) reads(c.at, span(c));
        writes(d.at, span(d));
        scribble();
        std::vector<float> line((size_t)m);
        for (int64_t z = 0; z < batch; z++) {
            std::vector<float> left = lines(a, z, a_turned), right = lines(b, z, b_turned);
            const char *from = static_cast<const char *>(c.at) + (size_t)(z * c.stride) * size_of(c.type);
            char *to = static_cast<char *>(const_cast<void *>(d.at)) + (size_t)(z * d.stride) * size_of(d.type);
            for (int64_t j = 0; j < n; j++) {
                float *sum = line.data();
                for (int64_t i = 0; i < m; i++) sum[i] = 0;
                for (int64_t p = 0; p < k; p++) {
                    const float *column = left.data() + p * m, factor = right[(size_t)(j * k + p)];
                    for (int64_t i = 0; i < m; i++) sum[i] += column[i] * factor;
                }
                for (int64_t i = 0; i < m; i++) {
                    float v = alpha * sum[i];
                    if (beta != 0) v += beta * read(from, c.type, c.by_rows ? i * c.pitch + j : j * c.pitch + i);
                    if (bias) v += read(bias, bias_type, i);
                    if (epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
                        v = v > 0 ? v : v != v ? v : 0;
                    write(to, d.type, d.by_rows ? i * d.pitch + j : j * d.pitch + i, v);
                }
            }
        }
        scribble();
    }
    size_t span(const Matrix &x) const {
        int64_t lines_ = x.by_rows ? x.rows : x.columns, length = x.by_rows ? x.columns : x.rows;
        return (size_t)((batch - 1) * x.stride + (lines_ - 1) * x.pitch + length) * size_of(x.type);
    }
    /* The room is anybody's guess before and after. */
    void scribble() {
        if (!room) return;
        check_range("cuBLAS's room", room, room_bytes);
        size_t end = room_bytes < 4096 ? room_bytes : 4096;
        writes(room, end);
        memset(room, 0xFF, end);
        memset(static_cast<char *>(room) + room_bytes - end, 0xFF, end);
    }
};

void check_matrix(const char *call, const Matrix &x, int64_t batch) {
    int64_t lines = x.by_rows ? x.rows : x.columns, length = x.by_rows ? x.columns : x.rows;
    if (!lines || !length || !batch) return;
    if (device_of_address(x.at) < 0 && host_memory()) return;
    if (device_of_address(x.at) < 0) fatal("host pointer: %s of a matrix at %s", call, describe(x.at).c_str());
    check_range(call, x.at, (size_t)((batch - 1) * x.stride + (lines - 1) * x.pitch + length) * size_of(x.type));
    if (reinterpret_cast<uintptr_t>(x.at) % size_of(x.type))
        fatal("misaligned: %s of a matrix at %s", call, describe(x.at).c_str());
}

bool known(cudaDataType type) { return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F; }
bool known(cublasComputeType_t t) {
    return t == CUBLAS_COMPUTE_32F || t == CUBLAS_COMPUTE_32F_PEDANTIC || t == CUBLAS_COMPUTE_32F_FAST_TF32 ||
           t == CUBLAS_COMPUTE_32F_FAST_16BF;
}

/* What is read while the result is written, in no order. */
void check_apart(const char *call, const Product &p) {
    const Matrix *const read[2] = {&p.a, &p.b};
    const char *to = static_cast<const char *>(p.d.at), *end = to + p.span(p.d);
    for (const Matrix *x : read) {
        const char *from = static_cast<const char *>(x->at);
        if (from < end && to < from + p.span(*x))
            fatal("overlap: %s writes its result over a matrix that it multiplies, at %s", call,
                  describe(p.d.at).c_str());
    }
}

cublasStatus_t start(const char *call, const std::shared_ptr<Product> &p, cudaStream_t stream) {
    p->what = call;
    check_stream(stream, call);
    check_apart(call, *p);
    if (stream_device(stream) != current_device()) return CUBLAS_STATUS_EXECUTION_FAILED;
    check_matrix(call, p->a, p->batch);
    check_matrix(call, p->b, p->batch);
    if (p->beta != 0) check_matrix(call, p->c, p->batch);
    check_matrix(call, p->d, p->batch);
    p->device = stream_device(stream);
    const int64_t depth = p->a_turned ? p->a.rows : p->a.columns;
    report_launch({call, nullptr, p->d.rows, p->d.columns, depth, p->batch, {}, {}, 0});
    return enqueue(stream, p, call) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

void check_handle(const void *handle, const char *call) {
    if (!handles.count(static_cast<cublasContext *>(const_cast<void *>(handle))))
        fatal("wrong handle: %s of a handle that was destroyed, or never was", call);
}
} // namespace

#define BLAS(name, code) \
    Entry entry; \
    cudaError_t injected = cudaErrorUnknown; \
    if (entry.fails(name, &injected)) return code

int mirt_sim::blas_leaks() {
    for (cublasContext *h : handles) fprintf(stderr, "sim: leak: cuBLAS handle %ld\n", h->number);
    return (int)handles.size();
}

cublasStatus_t cublasCreate(cublasHandle_t *handle) {
    BLAS("cublasCreate", CUBLAS_STATUS_NOT_INITIALIZED);
    *handle = nullptr;
    if (refused_by_capture("cublasCreate")) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext{current_device(), nullptr, nullptr, 0, CUBLAS_DEFAULT_MATH, ++made};
    handles.insert(*handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    FREEING();
    check_handle(handle, "cublasDestroy");
    finish_device(handle->device);
    handles.erase(handle);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    BLAS("cublasSetStream", CUBLAS_STATUS_INTERNAL_ERROR);
    check_handle(handle, "cublasSetStream");
    check_stream(stream, "cublasSetStream");
    if (handle->room) fprintf(stderr, "sim: note: cublasSetStream takes the handle's room away\n");
    handle->stream = stream;
    handle->room = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *room, size_t bytes) {
    BLAS("cublasSetWorkspace", CUBLAS_STATUS_INTERNAL_ERROR);
    check_handle(handle, "cublasSetWorkspace");
    if (reinterpret_cast<uintptr_t>(room) % 256) return CUBLAS_STATUS_INVALID_VALUE;
    check_range("cublasSetWorkspace", room, bytes);
    handle->room = room;
    handle->room_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    BLAS("cublasSetMathMode", CUBLAS_STATUS_INTERNAL_ERROR);
    check_handle(handle, "cublasSetMathMode");
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int *version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "failure of cuBLAS";
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void *alpha, const void *a, cudaDataType a_type,
                                          int lda, long long int a_stride, const void *b, cudaDataType b_type, int ldb,
                                          long long int b_stride, const void *beta, void *c, cudaDataType c_type,
                                          int ldc, long long int c_stride, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
    BLAS("a product of cuBLAS", CUBLAS_STATUS_EXECUTION_FAILED);
    check_handle(handle, "a product");
    if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < (transa == CUBLAS_OP_N ? m : k) ||
        ldb < (transb == CUBLAS_OP_N ? k : n) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!known(a_type) || a_type != b_type || !known(c_type) || !known(compute) ||
        (a_type == CUDA_R_32F && c_type != CUDA_R_32F) ||
        (a_type != CUDA_R_32F && c_type != CUDA_R_32F && c_type != a_type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!m || !n || !batch) return CUBLAS_STATUS_SUCCESS;
    if (handle->device != current_device()) return CUBLAS_STATUS_EXECUTION_FAILED;
    std::shared_ptr<Product> p(new Product());
    p->a_turned = transa != CUBLAS_OP_N;
    p->b_turned = transb != CUBLAS_OP_N;
    p->a = {a, a_type, p->a_turned ? k : m, p->a_turned ? m : k, lda, a_stride, false};
    p->b = {b, b_type, p->b_turned ? n : k, p->b_turned ? k : n, ldb, b_stride, false};
    p->c = p->d = {c, c_type, m, n, ldc, c_stride, false};
    memcpy(&p->alpha, alpha, sizeof(float));
    memcpy(&p->beta, beta, sizeof(float));
    p->batch = batch;
    p->compute = compute == CUBLAS_COMPUTE_32F && a_type == CUDA_R_32F &&
                         (handle->mode & 15) == CUBLAS_TF32_TENSOR_OP_MATH
                     ? CUBLAS_COMPUTE_32F_FAST_TF32
                     : compute;
    p->room = handle->room;
    p->room_bytes = handle->room_bytes;
    return start("a product of cuBLAS", p, handle->stream);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void *alpha, const void *a, cudaDataType a_type, int lda, const void *b,
                            cudaDataType b_type, int ldb, const void *beta, void *c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0,
                                      beta, c, c_type, ldc, 0, 1, compute, algo);
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                           int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                           const float *beta, float *c, int ldc) {
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c,
                        CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                         int m, int n, int k, const float *alpha, const float *a, int lda,
                                         long long int a_stride, const float *b, int ldb, long long int b_stride,
                                         const float *beta, float *c, int ldc, long long int c_stride, int batch) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, a_stride, b,
                                      CUDA_R_32F, ldb, b_stride, beta, c, CUDA_R_32F, ldc, c_stride, batch,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

/* cublasLt. Descriptions live in NVIDIA's opaque structs. */
namespace {
struct Description {
    cublasComputeType_t compute;
    int a, b, epilogue;
    const void *bias;
    cudaDataType bias_type;
};
struct Layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t pitch, stride;
    int32_t batch, order;
};
struct Preference {
    size_t room;
};
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t) &&
                  sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t),
              "room for ours");

template <class T> T *inside(void *opaque) { return static_cast<T *>(opaque); }
template <class T> const T *inside(const void *opaque) { return static_cast<const T *>(opaque); }

template <class T> cublasStatus_t take(T *to, const void *from, size_t bytes) {
    if (bytes != sizeof *to) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

Matrix matrix_of(const void *at, const Layout *l) {
    return {at, l->type, (int64_t)l->rows, (int64_t)l->columns, l->pitch, l->stride, l->order == CUBLASLT_ORDER_ROW};
}

bool supported(const Description *x, const Layout *a, const Layout *b, const Layout *c, const Layout *d) {
    uint64_t m = x->a == CUBLAS_OP_N ? a->rows : a->columns, k = x->a == CUBLAS_OP_N ? a->columns : a->rows;
    uint64_t n = x->b == CUBLAS_OP_N ? b->columns : b->rows, l = x->b == CUBLAS_OP_N ? b->rows : b->columns;
    return k == l && d->rows == m && d->columns == n && c->rows == m && c->columns == n && known(a->type) &&
           a->type == b->type && c->type == d->type && known(d->type) && known(x->compute) &&
           (d->type == CUDA_R_32F || d->type == a->type) && a->batch == b->batch && a->batch == d->batch;
}
} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    return cublasCreate(reinterpret_cast<cublasHandle_t *>(handle));
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return cublasDestroy(reinterpret_cast<cublasHandle_t>(handle));
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    BLAS("cublasLtMatmulDescCreate", CUBLAS_STATUS_ALLOC_FAILED);
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = new cublasLtMatmulDescOpaque_t();
    Description d = {compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, (cudaDataType)-1};
    memcpy(static_cast<void *>(*out), &d, sizeof d);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    BLAS("cublasLtMatmulDescSetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    Description *d = inside<Description>(desc);
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&d->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&d->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(&d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(&d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: break;
    default: fatal("not simulated: attribute %d of a product of cublasLt", (int)attribute);
    }
    int epilogue = 0;
    cublasStatus_t status = take(&epilogue, value, bytes);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_BIAS &&
        epilogue != CUBLASLT_EPILOGUE_RELU && epilogue != CUBLASLT_EPILOGUE_RELU_BIAS)
        fatal("not simulated: epilogue %d of cublasLt", epilogue);
    d->epilogue = epilogue;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t pitch) {
    BLAS("cublasLtMatrixLayoutCreate", CUBLAS_STATUS_ALLOC_FAILED);
    *out = new cublasLtMatrixLayoutOpaque_t();
    Layout l = {type, rows, columns, pitch, 0, 1, CUBLASLT_ORDER_COL};
    memcpy(static_cast<void *>(*out), &l, sizeof l);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
    BLAS("cublasLtMatrixLayoutSetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    Layout *l = inside<Layout>(layout);
    switch ((int)attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return take(&l->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(&l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(&l->stride, value, bytes);
    default: fatal("not simulated: attribute %d of a matrix of cublasLt", (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    BLAS("cublasLtMatmulPreferenceCreate", CUBLAS_STATUS_ALLOC_FAILED);
    *out = new cublasLtMatmulPreferenceOpaque_t();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
    BLAS("cublasLtMatmulPreferenceSetAttribute", CUBLAS_STATUS_INVALID_VALUE);
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return take(&inside<Preference>(preference)->room, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    BLAS("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
    check_handle(handle, "cublasLtMatmulAlgoGetHeuristic");
    *found = 0;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (!supported(inside<Description>(desc), inside<Layout>(a), inside<Layout>(b), inside<Layout>(c),
                   inside<Layout>(d)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(static_cast<void *>(results), 0, sizeof results[0]);
    results[0].workspaceSize = inside<Preference>(preference)->room < 4096 ? inside<Preference>(preference)->room
                                                                           : 4096;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *, void *room,
                              size_t room_bytes, cudaStream_t stream) {
    BLAS("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED);
    check_handle(handle, "cublasLtMatmul");
    const Description *x = inside<Description>(desc);
    const Layout *la = inside<Layout>(a_layout), *lb = inside<Layout>(b_layout), *lc = inside<Layout>(c_layout),
                 *ld = inside<Layout>(d_layout);
    if (!supported(x, la, lb, lc, ld)) return CUBLAS_STATUS_INVALID_VALUE;
    std::shared_ptr<Product> p(new Product());
    p->a_turned = x->a != CUBLAS_OP_N;
    p->b_turned = x->b != CUBLAS_OP_N;
    p->a = matrix_of(a, la);
    p->b = matrix_of(b, lb);
    p->c = matrix_of(c, lc);
    p->d = matrix_of(d, ld);
    memcpy(&p->alpha, alpha, sizeof(float));
    memcpy(&p->beta, beta, sizeof(float));
    p->batch = la->batch;
    p->compute = x->compute;
    p->epilogue = x->epilogue;
    if (x->epilogue == CUBLASLT_EPILOGUE_BIAS || x->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS) {
        p->bias = x->bias;
        p->bias_type = (int)x->bias_type < 0 ? ld->type : x->bias_type;
        check_aligned(x->bias, 16);
        check_matrix("the bias of cublasLtMatmul",
                     Matrix{x->bias, p->bias_type, (int64_t)ld->rows, 1, (int64_t)ld->rows, 0, false}, 1);
    }
    p->room = room_bytes ? room : nullptr;
    p->room_bytes = room_bytes;
    return start("cublasLtMatmul", p, stream);
}
