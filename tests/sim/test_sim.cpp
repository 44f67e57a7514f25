/* The simulator itself: what it runs is right in every order, and what must not be done is caught and named. */
#include "sim.h"
#include "tap.h"
#include <vector>

#define LAUNCH(kernel, grid, block, shared, stream, ...) ::mirt_sim::launch(grid, block, shared, stream, [=] { kernel(__VA_ARGS__); }, #kernel)

static __global__ void transpose(const float *in, float *out, int rows, int columns) {
    MIRT_SHARED(float, tile, 32][33);
    int c = (int)(blockIdx.x * 32 + threadIdx.x), first = (int)blockIdx.y * 32;
    for (int j = (int)threadIdx.y; j < 32; j += 8)
        if (first + j < rows && c < columns) tile[j][threadIdx.x] = in[(first + j) * columns + c];
    __syncthreads();
    int r = first + (int)threadIdx.x, across = (int)blockIdx.x * 32;
    for (int j = (int)threadIdx.y; j < 32; j += 8)
        if (across + j < columns && r < rows) out[(across + j) * rows + r] = tile[threadIdx.x][j];
}

int main() {
    cudaStream_t stream;
    float *in, *out;
    const int rows = 70, columns = 45;
    std::vector<float> host(rows * columns), back(rows * columns);
    for (size_t i = 0; i < host.size(); i++) host[i] = (float)i;
    ok(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    ok(!cudaMalloc((void **)&in, sizeof(float) * host.size()) && !cudaMalloc((void **)&out, sizeof(float) * host.size()), "memory");
    ok(!cudaMemcpyAsync(in, host.data(), sizeof(float) * host.size(), cudaMemcpyHostToDevice, stream), "a copy there");
    ok(!LAUNCH(transpose, dim3((columns + 31) / 32, (rows + 31) / 32), dim3(32, 8), 0, stream, in, out, rows, columns), "a launch");
    ok(!cudaMemcpyAsync(back.data(), out, sizeof(float) * host.size(), cudaMemcpyDeviceToHost, stream), "a copy back");
    ok(!cudaStreamSynchronize(stream), "waited");
    int wrong = 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) wrong += back[(size_t)(c * rows + r)] != host[(size_t)(r * columns + c)];
    ok(!wrong, "transposed: %d wrong", wrong);
    cudaFree(in);
    cudaFree(out);
    cudaStreamDestroy(stream);
    ok(!mirt_sim::report_leaks(), "nothing is left");
    return done_testing();
}
