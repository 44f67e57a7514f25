/* The simulator reports launches to a watcher, and skips them on request. */
#include "sim.h"
#include "tap.h"
#include <cublas_v2.h>
#include <vector>

static std::vector<mirt_sim_launch> seen;

static void add_one(float *x, int count) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count && threadIdx.y + threadIdx.z + blockIdx.z == 0) x[i] += 1;
}

static void fill_kernel(float *x, float value) { x[threadIdx.x] = value; }

static float first_of(const float *device, cudaStream_t stream) {
    float value = -1;
    cudaMemcpyAsync(&value, device, sizeof value, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    return value;
}

/* Three launches and a product of 2 x 4 by 4 x 3: x[0] is 5 + 1 = 6, c[0] is 4 * 5 * 5 = 100. */
static void work(float *x, float *a, float *c, cudaStream_t stream, cublasHandle_t blas) {
    const float one = 1, zero = 0;
    ::mirt_sim::start(1, 32, 0, stream, "fill_kernel", fill_kernel, x, 5.0f);
    ::mirt_sim::start(1, 32, 0, stream, "fill_kernel", fill_kernel, a, 5.0f);
    ::mirt_sim::start(dim3(2, 1, 3), dim3(8, 4, 2), 1024, stream, "add_one", add_one, x, 1);
    cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &one, a, 2, a, 4, &zero, c, 2);
}

int main(void) {
    float *x, *a, *c, *large;
    const size_t bytes = (size_t)32 << 20;
    cudaStream_t stream;
    cublasHandle_t blas;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc((void **)&x, 32 * sizeof(float));
    cudaMalloc((void **)&a, 32 * sizeof(float));
    cudaMalloc((void **)&c, 32 * sizeof(float));
    cudaMalloc((void **)&large, bytes);
    cublasCreate(&blas);
    cublasSetStream(blas, stream);
    cudaMemsetAsync(x, 0, 32 * sizeof(float), stream);
    cudaMemsetAsync(c, 0, 32 * sizeof(float), stream);

    mirt_sim_set("skip", 1);
    mirt_sim_watch([](const mirt_sim_launch *launch) { seen.push_back(*launch); });
    work(x, a, c, stream, blas);
    mirt_sim_watch(nullptr);
    ok(seen.size() == 4, "launches and products are reported in order");
    if (seen.size() == 4) {
        const mirt_sim_launch &l = seen[2], &p = seen[3];
        ok(l.function == (const void *)add_one && !strcmp(l.what, "add_one") && l.grid[0] == 2 && l.grid[2] == 3 &&
               l.block[0] == 8 && l.block[1] == 4 && l.block[2] == 2 && l.shared == 1024,
           "kernels with grid, block and shared memory");
        ok(!p.function && p.m == 2 && p.n == 3 && p.k == 4 && p.batch == 1, "products with their sizes");
    }
    ok(first_of(x, stream) == 0 && first_of(c, stream) == 0, "skipped: neither kernels nor products are computed");
    cudaMemsetAsync(large, 0x11, bytes, stream);
    const float before = first_of(large + (bytes >> 3), stream);
    mirt_sim_set("skip", 0);
    cudaMemsetAsync(large, 0x11, bytes, stream);
    ok(before == 0 && first_of(large + (bytes >> 3), stream) > 0, "skipped: large memory is not filled");
    work(x, a, c, stream, blas);
    ok(seen.size() == 4, "a watcher that was removed is not called");
    ok(first_of(x, stream) == 6 && first_of(c, stream) == 100, "not skipped: all is computed");

    cublasDestroy(blas);
    for (float *p : {x, a, c, large}) cudaFree(p);
    cudaStreamDestroy(stream);
    ok(!mirt_sim::report_leaks(), "nothing is left");
    return done_testing();
}
