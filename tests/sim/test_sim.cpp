/* The simulator itself: results are right in every order, and misuse is caught and named. */
#include "sim.h"
#include "tap.h"
#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <functional>
#include <nccl.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    ::mirt_sim::start(grid, block, shared, stream, #kernel, kernel, __VA_ARGS__)
#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

typedef std::vector<float> floats;

/* A device's stream, and memory that goes with it. */
struct Device {
    cudaStream_t stream = nullptr;
    std::vector<void *> memory;
    int index;
    explicit Device(int device = 0) : index(device) {
        cudaSetDevice(device);
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    ~Device() {
        cudaSetDevice(index);
        for (void *p : memory) cudaFree(p);
        cudaStreamDestroy(stream);
    }
    template <class T> T *room(size_t count) {
        void *p = nullptr;
        cudaSetDevice(index);
        if (cudaMalloc(&p, count * sizeof(T))) return nullptr;
        memory.push_back(p);
        return static_cast<T *>(p);
    }
    template <class T> T *put(const std::vector<T> &host) {
        T *p = room<T>(host.size());
        cudaMemcpyAsync(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice, stream);
        return p;
    }
    template <class T> std::vector<T> get(const T *p, size_t count) {
        std::vector<T> host(count);
        cudaMemcpyAsync(host.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        return host;
    }
};

static floats numbers(size_t count, unsigned salt) {
    floats v(count);
    for (size_t i = 0; i < count; i++) v[i] = (float)((i * 7919 + salt * 104729 + (i * i) % 31) % 61) * 0.125f - 3.5f;
    return v;
}

/* ---- What must be caught ---- */

/* Faults are numbered; each runs in a process of its own: this program once more, with its number. */
static int fault, only = -1;

/* What it says on stderr, and how it ends. */
static std::string said_by(const std::function<void()> &f, int *status) {
    int ends[2], number = fault++;
    std::string said;
    if (only >= 0) {
        if (number != only) return said;
        mirt_sim::options().patience = 0.3;
        f();
        _exit(0);
    }
    fflush(stdout);
    if (pipe(ends)) return said;
    pid_t child = fork();
    if (!child) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test_sim", std::to_string(number).c_str(), (char *)nullptr);
        _exit(1);
    }
    close(ends[1]);
    char buffer[1000];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, (size_t)n);
    close(ends[0]);
    waitpid(child, status, 0);
    return said;
}

/* It must end with the simulator's status, and the message begin with the name of the fault and have the detail. */
static void caught(const char *what, const char *name, const char *detail, const std::function<void()> &f) {
    int status = 0;
    std::string said = said_by(f, &status), begin = std::string("sim: ") + name + ":";
    if (only >= 0) return;
    bool right = WIFEXITED(status) && WEXITSTATUS(status) == mirt_sim::FATAL_STATUS &&
                 said.find(begin) != std::string::npos && said.find(detail) != std::string::npos;
    /* The address sanitizer knows where memory ends, and says so first. */
    right = right || said.find("AddressSanitizer: use-after-poison") != std::string::npos;
    ok(right, "caught: %s", what);
    if (!right) printf("# status %d, said: %s\n", status, said.c_str());
}

/* The values are wrong for one of some seeds. */
static void differs(const char *what, const std::function<bool()> &wrong) {
    if (only >= 0) return;
    uint64_t seed = mirt_sim::options().seed;
    bool shown = false;
    for (uint64_t s = 1; s <= 20 && !shown; s++) {
        mirt_sim::options().seed = s;
        shown = wrong();
    }
    mirt_sim::options().seed = seed;
    ok(shown, "caught: %s, by values", what);
}

/* What lacks an order has wrong values, and the thread sanitizer names the two places. */
static void races(const char *what, const char *place, const std::function<bool()> &wrong) {
#if defined(__SANITIZE_THREAD__) && !defined(MIRT_SIM_ACCESS)
    int status = 0;
    std::string said = said_by([&] { wrong(); }, &status);
    if (only >= 0) return;
    ok(said.find("ThreadSanitizer: data race") != std::string::npos && said.find(place) != std::string::npos,
       "caught: %s, as a race in %s", what, place);
#else
    (void)place;
    differs(what, wrong);
#endif
}

/* ---- Kernels ---- */

static __global__ void transpose(const float *in, float *out, int rows, int columns, bool barrier) {
    MIRT_SHARED(float, tile, 32][33);
    int c = (int)(blockIdx.x * 32 + threadIdx.x), first = (int)blockIdx.y * 32;
    for (int j = (int)threadIdx.y; j < 32; j += 8)
        if (first + j < rows && c < columns) tile[j][threadIdx.x] = in[(first + j) * columns + c];
    if (barrier) __syncthreads();
    int r = first + (int)threadIdx.x, across = (int)blockIdx.x * 32;
    for (int j = (int)threadIdx.y; j < 32; j += 8)
        if (across + j < columns && r < rows) out[(across + j) * rows + r] = tile[threadIdx.x][j];
}

static int transpose_errors(bool barrier) {
    const int rows = 70, columns = 45;
    Device d;
    floats host = numbers((size_t)(rows * columns), 1);
    float *in = d.put(host), *out = d.room<float>(host.size());
    LAUNCH(transpose, dim3((columns + 31) / 32, (rows + 31) / 32), dim3(32, 8), 0, d.stream, in, out, rows, columns,
           barrier);
    floats back = d.get(out, host.size());
    int wrong = 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) wrong += back[(size_t)(c * rows + r)] != host[(size_t)(r * columns + c)];
    return wrong;
}

/* Sums over the block by shuffles, with every kind of meeting on the way. */
static __global__ void block_sums(const float *x, float *sums, int *counts, int n) {
    MIRT_DYNAMIC_SHARED(float, warps);
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), lane = (int)threadIdx.x % 32;
    if (i >= n && threadIdx.x >= blockDim.x - 3) return; /* some threads end early */
    float v = i < n ? x[i] : 0;
    unsigned all = threadIdx.x / 32 == blockDim.x / 32 - 1 && (int)((blockIdx.x + 1) * blockDim.x) > n ? 0x1FFFFFFFu
                                                                                                       : ~0u;
    float sum = v;
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_down_sync(all, sum, (unsigned)d);
        if (other == other) sum += other; /* of lanes that ended: not a number */
    }
    int positive = __popc(__ballot_sync(all, v > 0));
    if (lane == 0) warps[threadIdx.x / 32] = sum;
    int total = __syncthreads_count(v > 0);
    if (threadIdx.x == 0) {
        float s = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++) s += warps[w];
        sums[blockIdx.x] = s;
        counts[2 * blockIdx.x] = total;
    }
    if (lane == 0) atomicAdd(&counts[2 * blockIdx.x + 1], positive);
}

static void test_block_sums() {
    const int n = 1000, block = 96, blocks = (n + block - 1) / block;
    Device d;
    floats x = numbers(n, 2);
    float *in = d.put(x), *sums = d.room<float>(blocks);
    int *counts = d.put(std::vector<int>(2 * blocks));
    ok(!LAUNCH(block_sums, dim3(blocks), dim3(block), 3 * sizeof(float), d.stream, in, sums, counts, n),
       "sums over blocks are launched");
    floats s = d.get(sums, blocks);
    std::vector<int> c = d.get(counts, 2 * blocks);
    double error = 0;
    int wrong = 0;
    for (int b = 0; b < blocks; b++) {
        double want = 0;
        int positive = 0;
        for (int i = b * block; i < n && i < (b + 1) * block; i++) {
            want += x[(size_t)i];
            positive += x[(size_t)i] > 0;
        }
        error = worse(error, fabs(want - s[(size_t)b]));
        wrong += c[2 * (size_t)b] != positive || c[2 * (size_t)b + 1] != positive;
    }
    ok(error < 1e-4 && !wrong, "shuffles, votes, counts: error %g, %d wrong counts", error, wrong);
}

/* c[16, 8] = a[16, k] b[8, k]': through shared memory by asynchronous copies, two groups on the way, and ldmatrix. */
static __global__ void multiply(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int k, int late) {
    MIRT_SHARED(__nv_bfloat16, left, 2][16][16);
    MIRT_SHARED(__nv_bfloat16, right, 2][16][16);
    int lane = (int)threadIdx.x;
    float d[4] = {0, 0, 0, 0};
    auto fetch = [&](int step) {
        if (step * 16 < k) {
            for (int side = 0; side < 2; side++) {
                int row = lane / 2 % 16, column = lane % 2 * 8;
                if (side == 0)
                    mirt__cu_cp_async16(&left[step % 2][row][column], a + row * k + step * 16 + column, true);
                else mirt__cu_cp_async16(&right[step % 2][row][column], b + row % 8 * k + step * 16 + column, row < 8);
            }
        }
        mirt__cu_cp_async_commit();
    };
    fetch(0);
    for (int step = 0; step * 16 < k; step++) {
        fetch(step + 1);
        if (late) mirt__cu_cp_async_wait<2>();
        else mirt__cu_cp_async_wait<1>();
        __syncthreads();
        uint32_t fa[4], fb[4];
        /* Rows 0-7 and 8-15 of the left, then the same of its right half. */
        mirt__cu_ldmatrix_x4(fa, &left[step % 2][lane % 16][lane / 16 * 8]);
        mirt__cu_ldmatrix_x4(fb, &right[step % 2][lane % 8][lane / 8 % 2 * 8]);
        mirt__cu_mma_bf16(d, fa, fb);
        __syncthreads();
    }
    int g = lane / 4, t = lane % 4;
    c[g * 8 + 2 * t] = d[0];
    c[g * 8 + 2 * t + 1] = d[1];
    c[(g + 8) * 8 + 2 * t] = d[2];
    c[(g + 8) * 8 + 2 * t + 1] = d[3];
}

static double multiply_error(int late) {
    const int k = 64;
    Device d;
    floats x = numbers(16 * k, 3), y = numbers(8 * k, 4);
    std::vector<__nv_bfloat16> a, b;
    for (float v : x) a.push_back(__float2bfloat16(v));
    for (float v : y) b.push_back(__float2bfloat16(v));
    const __nv_bfloat16 *da = d.put(a), *db = d.put(b);
    float *dc = d.room<float>(128);
    LAUNCH(multiply, dim3(1), dim3(32), 0, d.stream, da, db, dc, k, late);
    floats c = d.get(dc, 128);
    double error = 0;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double want = 0;
            for (int p = 0; p < k; p++)
                want += (double)__bfloat162float(a[(size_t)(i * k + p)]) * __bfloat162float(b[(size_t)(j * k + p)]);
            error = worse(error, fabs(want - c[(size_t)(i * 8 + j)]));
        }
    return error;
}

static __global__ void multiply_tf32(const float *a, const float *b, float *c, bool transposed, const uint16_t *m,
                                     uint32_t *r) {
    int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t fa[4] = {__float_as_uint(a[g * 8 + t]), __float_as_uint(a[(g + 8) * 8 + t]),
                      __float_as_uint(a[g * 8 + t + 4]), __float_as_uint(a[(g + 8) * 8 + t + 4])};
    uint32_t fb[2] = {__float_as_uint(b[t * 8 + g]), __float_as_uint(b[(t + 4) * 8 + g])};
    float d[4] = {1, 1, 1, 1};
    mirt__cu_mma_tf32(d, fa, fb);
    for (int i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
    MIRT_SHARED(uint16_t, rows, 32 * 8);
    for (int i = 0; i < 8; i++) rows[lane * 8 + i] = m[lane * 8 + i];
    __syncwarp();
    uint32_t pair[4];
    if (transposed) mirt__cu_ldmatrix_x4_trans(pair, &rows[lane * 8]);
    else mirt__cu_ldmatrix_x4(pair, &rows[lane * 8]);
    for (int i = 0; i < 4; i++) r[lane * 4 + i] = pair[i];
}

static void test_matrices() {
    ok(multiply_error(0) < 1e-3, "bfloat16 products through cp.async, ldmatrix and mma: error %g", multiply_error(0));
    Device d;
    floats a = numbers(128, 5), b = numbers(64, 6);
    std::vector<uint16_t> m(256);
    for (size_t i = 0; i < m.size(); i++) m[i] = (uint16_t)i;
    float *da = d.put(a), *db = d.put(b), *dc = d.room<float>(128);
    uint16_t *dm = d.put(m);
    uint32_t *dr = d.room<uint32_t>(128);
    LAUNCH(multiply_tf32, dim3(1), dim3(32), 0, d.stream, da, db, dc, true, dm, dr);
    floats c = d.get(dc, 128);
    double error = 0;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double want = 1;
            for (int p = 0; p < 8; p++) want += (double)a[(size_t)(i * 8 + p)] * b[(size_t)(p * 8 + j)];
            error = worse(error, fabs(want - c[(size_t)(i * 8 + j)]));
        }
    ok(error < 1e-4, "a product of TF32: error %g", error);
    std::vector<uint32_t> r = d.get(dr, 128);
    int wrong = 0;
    for (uint32_t l = 0; l < 32; l++)
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t line = l % 4 * 2, column = l / 4, low = i * 64 + line * 8 + column, high = low + 8;
            wrong += r[l * 4 + i] != (high << 16 | low);
        }
    ok(!wrong, "ldmatrix transposes: %d wrong", wrong);
}

static __global__ void divergent(int *out) {
    if (threadIdx.x == 40) __shfl_sync(3u << 8, 1, 9);
    else __syncthreads();
    out[threadIdx.x] = 1;
}
static __global__ void overrun(float *p) { p[threadIdx.x] = 1; }
static __global__ void overrun_shared(float *p) {
    MIRT_SHARED(float, line, 32);
    line[threadIdx.x + 1] = (float)threadIdx.x;
    __syncwarp();
    p[threadIdx.x] = line[threadIdx.x];
}

/* ---- cuBLAS ---- */

static void test_products() {
    const int m = 5, n = 7, k = 9;
    Device d;
    cublasHandle_t blas;
    cublasCreate(&blas);
    cublasSetStream(blas, d.stream);
    void *room = d.room<char>(1 << 16);
    cublasSetWorkspace(blas, room, 1 << 16);
    double error = 0;
    for (int turned = 0; turned < 4; turned++) {
        floats a = numbers(m * k, 7), b = numbers(k * n, 8), c = numbers(m * n, 9);
        float *da = d.put(a), *db = d.put(b), *dc = d.put(c);
        const float alpha = 0.5f, beta = 2;
        bool ta = turned & 1, tb = turned & 2;
        cublasSgemm(blas, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &alpha, da,
                    ta ? k : m, db, tb ? n : k, &beta, dc, m);
        floats got = d.get(dc, (size_t)(m * n));
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                double want = beta * c[(size_t)(j * m + i)];
                for (int p = 0; p < k; p++)
                    want += alpha * a[(size_t)(ta ? i * k + p : p * m + i)] * b[(size_t)(tb ? p * n + j : j * k + p)];
                error = worse(error, fabs(want - got[(size_t)(j * m + i)]));
            }
    }
    ok(error < 1e-4, "cublasSgemm: error %g", error);
    auto matmul = reinterpret_cast<decltype(&cublasLtMatmul)>(dlsym(RTLD_DEFAULT, "cublasLtMatmul"));
    ok(matmul != nullptr, "cublasLtMatmul is found by name");
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
    floats a = numbers(m * k, 10), b = numbers(k * n, 11), bias = numbers(m, 12);
    float *da = d.put(a), *db = d.put(b), *dc = d.room<float>(m * n), *dbias = d.put(bias);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &dbias, sizeof dbias);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, m, k, m);
    cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, k, n, k);
    cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, m, n, m);
    const float one = 1, zero = 0;
    if (matmul)
        ok(!matmul(reinterpret_cast<cublasLtHandle_t>(blas), desc, &one, da, la, db, lb, &zero, dc, lc, dc, lc, nullptr,
                   room, 1 << 16, d.stream),
           "cublasLtMatmul is called");
    floats got = d.get(dc, (size_t)(m * n));
    error = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double want = bias[(size_t)i];
            for (int p = 0; p < k; p++) want += (double)a[(size_t)(p * m + i)] * b[(size_t)(j * k + p)];
            error = worse(error, fabs((want > 0 ? want : 0) - got[(size_t)(j * m + i)]));
        }
    ok(error < 1e-4, "cublasLtMatmul with bias and relu: error %g", error);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatmulDescDestroy(desc);
    cublasDestroy(blas);
}

/* ---- Training over devices: buckets of gradients are summed while more are made ---- */

static __global__ void gradients(const float *weights, float *g, int n, int device) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) g[i] = weights[i] * 0.01f + (float)device;
}
static __global__ void update(float *weights, const float *g, int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) weights[i] -= 0.1f * g[i];
}

enum Bug {
    NONE, NO_WAIT_FOR_GRADIENTS, NO_WAIT_FOR_SUMS, LATE_WAIT_FOR_SUMS, OTHER_ORDER, OTHER_COUNT, HOST_READS,
    OTHER_DEVICE, NEVER_RECORDED, RANK_MISSING, USE_FREED
};
enum { BUCKET = 256, BUCKETS = 3, STEPS = 6 };

/* What one device does for a step; the same calls make a graph. */
struct Trainer {
    int device, devices;
    Bug bug;
    float *g, *w;
    ncclComm_t comm;
    cudaStream_t compute, exchange;
    cudaEvent_t made[BUCKETS], summed;
    cudaGraphExec_t program = nullptr;
    float *foreign = nullptr;

    void open(int index, int of, Bug which) {
        device = index;
        devices = of;
        bug = which;
        cudaSetDevice(device);
        cudaMalloc((void **)&g, sizeof(float) * BUCKET * BUCKETS);
        cudaMalloc((void **)&w, sizeof(float) * BUCKET * BUCKETS);
        cudaFuncAttributes facts;
        cudaFuncGetAttributes(&facts, reinterpret_cast<const void *>(&gradients));
        cudaFuncGetAttributes(&facts, reinterpret_cast<const void *>(&update));
        cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&exchange, cudaStreamNonBlocking);
        for (cudaEvent_t &e : made) cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&summed, cudaEventDisableTiming);
        floats start = numbers(BUCKET * BUCKETS, 13);
        cudaMemcpyAsync(w, start.data(), sizeof(float) * start.size(), cudaMemcpyHostToDevice, compute);
    }
    void close() {
        cudaSetDevice(device);
        cudaStreamDestroy(compute);
        cudaStreamDestroy(exchange);
        for (cudaEvent_t e : made) cudaEventDestroy(e);
        cudaEventDestroy(summed);
        if (program) cudaGraphExecDestroy(program);
        cudaFree(g);
        cudaFree(w);
    }
    void enqueue() {
        if (bug == RANK_MISSING && device == 0) return;
        cudaSetDevice(device);
        for (int b = 0; b < BUCKETS; b++) {
            float *bucket = g + b * BUCKET;
            LAUNCH(gradients, dim3(2), dim3(128), 0, compute, w + b * BUCKET, bucket, BUCKET, device);
            cudaEventRecord(made[b], compute);
            if (!(bug == NO_WAIT_FOR_GRADIENTS && b == 2)) cudaStreamWaitEvent(exchange, made[b], 0);
            int place = bug == OTHER_ORDER && device == 1 && b > 0 ? 3 - b : b;
            bucket = g + place * BUCKET;
            ncclAllReduce(bucket, bucket, bug == OTHER_COUNT && device == 1 && b == 1 ? BUCKET - 1 : BUCKET, ncclFloat,
                          ncclSum, comm, exchange);
            for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) ncclCommGetAsyncError(comm, &state);
        }
        cudaEventRecord(summed, exchange);
        if (bug != NO_WAIT_FOR_SUMS && bug != LATE_WAIT_FOR_SUMS) cudaStreamWaitEvent(compute, summed, 0);
        const float *from = bug == OTHER_DEVICE && foreign ? foreign : g;
        LAUNCH(update, dim3(6), dim3(128), 0, compute, w, from, BUCKET * BUCKETS);
        if (bug == LATE_WAIT_FOR_SUMS) cudaStreamWaitEvent(compute, summed, 0);
    }
    bool capture() {
        cudaGraph_t graph = nullptr;
        cudaSetDevice(device);
        if (cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal)) return false;
        enqueue();
        if (cudaStreamEndCapture(compute, &graph)) return false;
        bool done = !cudaGraphInstantiate(&program, graph, 0);
        cudaGraphDestroy(graph);
        return done;
    }
    void steps(int count) {
        for (int i = 0; i < count; i++) {
            if (program) {
                cudaSetDevice(device);
                cudaGraphLaunch(program, compute);
            } else enqueue();
        }
    }
    floats weights() {
        floats host(BUCKET * BUCKETS);
        cudaSetDevice(device);
        cudaMemcpyAsync(host.data(), w, sizeof(float) * host.size(), cudaMemcpyDeviceToHost, compute);
        cudaStreamSynchronize(compute);
        return host;
    }
};

/* Trains on so many devices, one host thread each or one for all. */
static std::vector<floats> train(int devices, bool threads, bool graph, Bug bug) {
    std::vector<Trainer> t((size_t)devices);
    std::vector<floats> weights((size_t)devices);
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    for (int d = 0; d < devices; d++) t[(size_t)d].open(d, devices, bug);
    for (int d = 0; d < devices; d++) t[(size_t)d].foreign = t[(size_t)((d + 1) % devices)].g;
    if (threads) {
        std::vector<std::thread> all;
        for (int d = 0; d < devices; d++)
            all.emplace_back([&, d] {
                Trainer &own = t[(size_t)d];
                cudaSetDevice(d);
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;
                ncclCommInitRankConfig(&own.comm, devices, id, d, &config);
                for (ncclResult_t state = ncclInProgress; state == ncclInProgress;)
                    ncclCommGetAsyncError(own.comm, &state);
                own.steps(1);
                if (graph) own.capture();
                own.steps(STEPS - 1);
                while (cudaStreamQuery(own.compute) == cudaErrorNotReady) {}
                weights[(size_t)d] = own.weights();
                ncclCommDestroy(own.comm);
            });
        for (std::thread &one : all) one.join();
    } else {
        std::vector<ncclComm_t> comms((size_t)devices);
        ncclCommInitAll(comms.data(), devices, nullptr);
        for (int d = 0; d < devices; d++) t[(size_t)d].comm = comms[(size_t)d];
        for (Trainer &one : t)
            if (graph) one.capture();
        for (int s = 0; s < STEPS; s++)
            for (Trainer &one : t) one.steps(1);
        if (bug == HOST_READS) weights[0][0] = t[0].w[0];
        for (int d = 0; d < devices && bug == USE_FREED; d++) (void)t[(size_t)d].weights(); /* waits for its work */
        if (bug == USE_FREED) cudaFree(t[0].g);
        if (bug == USE_FREED) t[0].steps(1);
        for (int d = 0; d < devices; d++) weights[(size_t)d] = t[(size_t)d].weights();
        for (ncclComm_t c : comms) ncclCommDestroy(c);
    }
    for (Trainer &one : t) one.close();
    return weights;
}

/* The largest error of any device's weights. */
static double training_error(const std::vector<floats> &weights) {
    size_t n = weights.size();
    floats want = numbers(BUCKET * BUCKETS, 13);
    double error = 0;
    for (int s = 0; s < STEPS; s++)
        for (float &w : want) {
            float sum = 0;
            for (size_t d = 0; d < n; d++) sum += w * 0.01f + (float)d;
            w -= 0.1f * sum;
        }
    for (const floats &w : weights)
        for (size_t i = 0; i < want.size(); i++) error = worse(error, fabs((double)want[i] - w[i]));
    return error;
}

static bool same(const std::vector<floats> &weights) {
    for (const floats &w : weights)
        if (memcmp(w.data(), weights[0].data(), w.size() * sizeof(float))) return false;
    return true;
}

static void test_training() {
    for (int devices = 1; devices <= 4; devices++)
        for (int way = 0; way < 4; way++) {
            std::vector<floats> w = train(devices, way & 1, way & 2, NONE);
            double error = training_error(w);
            ok(error < 1e-3 && same(w), "%d devices, %s%s: error %g, replicas are the same", devices,
               way & 1 ? "a thread each" : "one thread", way & 2 ? ", as graphs" : "", error);
        }
}

/* ---- Sends ---- */

static void test_sends() {
    const int n = 3, each = 40;
    ncclComm_t comms[n];
    ncclCommInitAll(comms, n, nullptr);
    {
        Device d[n] = {Device(0), Device(1), Device(2)};
        float *in[n], *out[n];
        for (int i = 0; i < n; i++) {
            in[i] = d[i].put(numbers(n * each, (unsigned)i));
            out[i] = d[i].room<float>(n * each);
        }
        ncclGroupStart();
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                ncclSend(in[i] + j * each, each, ncclFloat, j, comms[i], d[i].stream);
                ncclRecv(out[i] + j * each, each, ncclFloat, j, comms[i], d[i].stream);
            }
        ok(!ncclGroupEnd(), "all send to all");
        int wrong = 0;
        for (int i = 0; i < n; i++) {
            cudaSetDevice(i);
            floats got = d[i].get(out[i], n * each);
            for (int j = 0; j < n; j++) {
                floats from = numbers(n * each, (unsigned)j);
                for (int k = 0; k < each; k++) wrong += got[(size_t)(j * each + k)] != from[(size_t)(i * each + k)];
            }
        }
        ok(!wrong, "all have what was sent: %d wrong", wrong);
        for (int i = 0; i < n; i++) ncclAllGather(in[i], out[i], each, ncclFloat, comms[i], d[i].stream);
        floats gathered = d[1].get(out[1], n * each);
        floats third = numbers(n * each, 2);
        ok(!memcmp(gathered.data() + 2 * each, third.data(), each * sizeof(float)), "gathered");
        for (int i = 0; i < n; i++) ncclBroadcast(in[i], out[i], each, ncclFloat, 1, comms[i], d[i].stream);
        floats cast = d[2].get(out[2], each), second = numbers(n * each, 1);
        ok(!memcmp(cast.data(), second.data(), each * sizeof(float)), "broadcast");
    }
    for (ncclComm_t c : comms) ncclCommDestroy(c);
}

/* ---- Faults that a program must live with ---- */

static void test_failures() {
    mirt_sim::reset_calls();
    train(2, false, false, NONE);
    long calls = mirt_sim::calls();
    ok(calls > 100, "%ld calls can fail", calls);
    cudaSetDevice(0);
    mirt_sim::reset_calls();
    mirt_sim::options().fail_call = 2;
    cudaStream_t s;
    void *p = nullptr;
    ok(!cudaStreamCreateWithFlags(&s, 0) && cudaMalloc(&p, 10) == cudaErrorMemoryAllocation && !cudaMalloc(&p, 10),
       "the second call fails, and no other");
    ok(!strcmp(mirt_sim::failed_call(), "cudaMalloc") && cudaGetLastError() == cudaErrorMemoryAllocation &&
           !cudaGetLastError(),
       "which, and what of it");
    mirt_sim::options().fail_call = 0;
    cudaFree(p);
    size_t before = mirt_sim::options().memory;
    mirt_sim::options().memory = 1 << 20;
    ok(cudaMalloc(&p, 2 << 20) == cudaErrorMemoryAllocation && !p && !cudaMalloc(&p, 1 << 19), "memory has an end");
    mirt_sim::options().memory = before;
    mirt_sim::lose_device(0, cudaErrorDevicesUnavailable);
    ok(cudaMemsetAsync(p, 0, 10, s) == cudaErrorDevicesUnavailable &&
           cudaStreamSynchronize(s) == cudaErrorDevicesUnavailable,
       "a lost device says so");
    mirt_sim::lose_device(0, 0);
    cudaFree(p);
    cudaStreamDestroy(s);
    cudaGetLastError();
    /* A rank dies: the others poll, and abort. */
    ncclComm_t comms[2];
    ncclCommInitAll(comms, 2, nullptr);
    Device a(0), b(1);
    float *x = a.put(numbers(8, 0)), *y = b.put(numbers(8, 0));
    mirt_sim::kill_rank(1, false);
    ok(ncclAllReduce(x, x, 8, ncclFloat, ncclSum, comms[0], a.stream) == ncclRemoteError,
       "a dead rank's peers are told");
    ncclResult_t state;
    ncclCommGetAsyncError(comms[0], &state);
    ok(state == ncclRemoteError, "by the asynchronous error, too");
    ncclCommAbort(comms[0]);
    ncclCommAbort(comms[1]);
    ncclCommInitAll(comms, 2, nullptr);
    cudaSetDevice(0);
    mirt_sim::kill_rank(1, true);
    ok(!ncclAllReduce(x, x, 8, ncclFloat, ncclSum, comms[0], a.stream), "silently dead: the call is taken");
    cudaSetDevice(1);
    ncclAllReduce(y, y, 8, ncclFloat, ncclSum, comms[1], b.stream);
    int pending = 0;
    for (int i = 0; i < 20; i++) pending += cudaStreamQuery(a.stream) == cudaErrorNotReady;
    ok(pending == 20, "and never ends");
    ncclCommAbort(comms[0]);
    ncclCommAbort(comms[1]);
    ok(!cudaStreamSynchronize(a.stream) && !cudaStreamSynchronize(b.stream), "until it is aborted");
}

static void test_capture_errors() {
    Device d;
    cudaStream_t other;
    cudaEvent_t event;
    cudaGraph_t graph;
    void *p;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    float *x = d.room<float>(64);
    cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal);
    ok(cudaMalloc(&p, 10) == cudaErrorStreamCaptureUnsupported, "no memory while a stream is captured");
    ok(cudaStreamEndCapture(d.stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph, "which ends the capture");
    cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(event, d.stream);
    cudaStreamWaitEvent(other, event, 0);
    cudaMemsetAsync(x, 0, 64, other);
    ok(cudaStreamEndCapture(d.stream, &graph) == cudaErrorStreamCaptureUnjoined, "streams must come together again");
    cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal);
    ok(cudaStreamSynchronize(d.stream) == cudaErrorStreamCaptureUnsupported, "nobody waits for a captured stream");
    cudaStreamEndCapture(d.stream, &graph);
    cudaEventDestroy(event);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, other);
    cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal);
    ok(cudaEventQuery(event) == cudaErrorStreamCaptureUnsupported,
       "while a thread captures, it does not ask what other streams have done");
    cudaStreamEndCapture(d.stream, &graph);
    cudaEventDestroy(event);
    cudaGetLastError();
    cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal);
    cudaMemsetAsync(x, 0, 64, d.stream);
    cudaStreamEndCapture(d.stream, &graph);
    ok(cudaGetLastError() == cudaSuccess, "no error is left over");
    cudaGraphDestroy(graph);
    cudaStreamDestroy(other);
    cudaGetLastError();
}

static __global__ void fill_dynamic(float *p) {
    MIRT_DYNAMIC_SHARED(float, all);
    all[threadIdx.x] = (float)threadIdx.x;
    p[threadIdx.x] = all[threadIdx.x];
}
static void test_dynamic_shared() {
    Device d;
    float *p = d.room<float>(32);
    const int bytes = 64 << 10;
    ok(LAUNCH(fill_dynamic, dim3(1), dim3(32), bytes, d.stream, p) == cudaErrorInvalidValue,
       "more than 48 KB of shared memory have to be asked for");
    cudaFuncSetAttribute(reinterpret_cast<const void *>(fill_dynamic), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         bytes);
    ok(LAUNCH(fill_dynamic, dim3(1), dim3(32), bytes, d.stream, p) == cudaSuccess, "then they are there");
    cudaStreamSynchronize(d.stream);
    cudaGetLastError();
}

static void test_faults() {
    races("a missing barrier", "transpose", [] { return transpose_errors(false) > 0; });
    differs("a missing wait for cp.async", [] { return !(multiply_error(1) < 1e-3); });
    races("a missing wait for gradients", "gradients",
          [] { return !(training_error(train(3, false, false, NO_WAIT_FOR_GRADIENTS)) < 1e-3); });
    races("a missing wait for sums", "update",
          [] { return !(training_error(train(3, false, false, NO_WAIT_FOR_SUMS)) < 1e-3); });
    races("the same in a graph", "update",
          [] { return !(training_error(train(3, true, true, LATE_WAIT_FOR_SUMS)) < 1e-3); });
    caught("a barrier that not all reach", "barrier", "63 of 64 wait in __syncthreads()", [] {
        Device d;
        int *p = d.room<int>(64);
        LAUNCH(divergent, dim3(1), dim3(64), 0, d.stream, p);
        cudaStreamSynchronize(d.stream);
    });
    caught("buckets in another order on one rank", "NCCL order", "rank 1 calls AllReduce of 256",
           [] { train(3, false, false, OTHER_ORDER); });
    caught("a bucket of another size on one rank", "NCCL mismatch", "AllReduce of 255",
           [] { train(3, false, false, OTHER_COUNT); });
    caught("a rank that does not come", "deadlock", "not there: rank 0", [] { train(3, false, false, RANK_MISSING); });
    caught("the same with threads", "deadlock", "not there: rank 0", [] { train(3, true, false, RANK_MISSING); });
    caught("the host reads device memory", "host access to device memory", "of device 0, of 3072 bytes",
           [] { train(2, false, false, HOST_READS); });
    caught("a kernel reads memory of another device", "memory of another device", "kernel update on device",
           [] { train(2, false, false, OTHER_DEVICE); });
    caught("use after free", "use after free", "", [] { train(2, false, false, USE_FREED); });
    caught("a wait for an event never recorded", "event", "never recorded", [] {
        Device d;
        cudaEvent_t event;
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        cudaStreamWaitEvent(d.stream, event, 0);
    });
    caught("a write beyond memory", "out of bounds", "allocation", [] {
        Device d;
        float *p = d.room<float>(100);
        LAUNCH(overrun, dim3(1), dim3(128), 0, d.stream, p);
        cudaStreamSynchronize(d.stream);
    });
    caught("a write far beyond memory", "out of bounds", "kernel overrun on device 0", [] {
        Device d;
        float *p = d.room<float>(100);
        LAUNCH(overrun, dim3(1), dim3(512), 0, d.stream, p);
        cudaStreamSynchronize(d.stream);
    });
    caught("a write beyond shared memory", "shared memory", "beyond array 'line'", [] {
        Device d;
        float *p = d.room<float>(32);
        LAUNCH(overrun_shared, dim3(1), dim3(32), 0, d.stream, p);
        cudaStreamSynchronize(d.stream);
    });
    caught("a copy longer than its memory", "out of bounds", "cudaMemcpyAsync of 44 bytes", [] {
        Device d;
        floats host(11);
        cudaMemcpyAsync(d.room<float>(10), host.data(), 44, cudaMemcpyHostToDevice, d.stream);
    });
    caught("memory freed twice", "freed twice", "cudaFree", [] {
        void *p;
        cudaMalloc(&p, 8);
        cudaFree(p);
        cudaFree(p);
    });
    caught("work on the default stream", "legacy stream", "kernel launch", [] {
        Device d;
        float *p = d.room<float>(128);
        LAUNCH(overrun, dim3(1), dim3(128), 0, (cudaStream_t) nullptr, p);
    });
    caught("a stream that was destroyed", "wrong handle", "cudaStreamSynchronize", [] {
        cudaStream_t s;
        cudaStreamCreateWithFlags(&s, 0);
        cudaStreamDestroy(s);
        cudaStreamSynchronize(s);
    });
#if !defined(__clang__) /* which does not tell arguments from what lies between them */
    caught("a kernel that is given a host pointer", "host pointer", "kernel overrun", [] {
        Device d;
        floats host(128);
        float *p = host.data();
        LAUNCH(overrun, dim3(1), dim3(128), 0, d.stream, p);
    });
#endif
    /* One rank's collective is under way, and stays so: the other's is yet to come. */
    const auto beside_exchange = [](const std::function<void(Device &)> &f) {
        Device d;
        ncclComm_t comms[2];
        ncclCommInitAll(comms, 2, nullptr);
        float *x = d.room<float>(8);
        ncclAllReduce(x, x, 8, ncclFloat, ncclSum, comms[0], d.stream);
        f(d);
    };
    caught("memory taken beside a collective", "beside an exchange", "cudaMalloc while", [&] {
        beside_exchange([](Device &) {
            void *p;
            cudaMalloc(&p, 8);
        });
    });
    caught("pinned memory taken beside a collective", "beside an exchange", "cudaMallocHost while", [&] {
        beside_exchange([](Device &) {
            void *p;
            cudaMallocHost(&p, 8);
        });
    });
    caught("memory freed beside a collective whose other rank never comes", "deadlock", "freeing memory", [&] {
        beside_exchange([](Device &d) { cudaFree(d.memory[0]); });
    });
    const auto launch_named = [](Device &d) {
        float *p = nullptr;
        mirt_sim::launch(dim3(1), dim3(32), 0, d.stream, [=] { overrun(p); }, "named",
                         reinterpret_cast<const void *>(&overrun));
    };
    caught("a kernel loaded beside a collective", "beside an exchange", "loading kernel named while", [&] {
        beside_exchange(launch_named);
    });
    caught("though not one that was loaded before", "all is well", "", [&] {
        cudaFuncAttributes facts;
        cudaFuncGetAttributes(&facts, reinterpret_cast<const void *>(&overrun));
        beside_exchange([&](Device &d) {
            launch_named(d);
            mirt_sim::fatal("all is well: it was loaded");
        });
    });
    caught("CUDA in a child process", "after a fork", "", [] {
        int status = 0;
        Device d;
        const pid_t child = fork();
        if (child == 0) cudaSetDevice(0);
        if (child == 0) _exit(0);
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    });
    caught("leaks", "leaks", "", [] {
        void *p;
        cudaStream_t s;
        cudaMalloc(&p, 100);
        cudaStreamCreateWithFlags(&s, 0);
        if (mirt_sim::report_leaks() == 2) mirt_sim::fatal("leaks: two");
    });
}

int main(int count, char **arguments) {
    mirt_sim::options().devices = 4;
    if (count > 1) {
        only = atoi(arguments[1]);
        test_faults();
        return 1;
    }
    ok(!transpose_errors(true), "transposed through shared memory");
    test_block_sums();
    test_matrices();
    test_products();
    test_training();
    test_sends();
    test_failures();
    test_capture_errors();
    test_dynamic_shared();
    test_faults();
    ok(!mirt_sim::report_leaks(), "nothing is left");
    return done_testing();
}
