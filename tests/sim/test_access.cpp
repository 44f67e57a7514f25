/* Planted bank conflicts, and bytes that two blocks touch, are found by access.cpp. */
#include "sim.h"
#include "tap.h"
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#define LAUNCH(kernel, grid, block, stream, ...) \
    ::mirt_sim::start(dim3(grid), dim3(block), 0, stream, #kernel, kernel, __VA_ARGS__)

/* ---- Bank conflicts ---- */

/* Each lane's word is `pitch` words after the one before. */
template <int PITCH> static __global__ void words(float *out) {
    MIRT_SHARED(float, tile, 32 * 33);
    for (int i = 0; i < 3; i++) tile[(int)threadIdx.x % 32 * PITCH] = (float)i;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x * PITCH];
}
/* Of two lanes one skips every other access, and all want the same word. */
static __global__ void one_word(float *out) {
    MIRT_SHARED(float, tile, 32);
    tile[threadIdx.x] = 1;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 8; i++)
        if (i % 2 == 0 || threadIdx.x % 2) sum += tile[7];
    out[threadIdx.x] = sum;
}
/* 16 bytes of each lane by one instruction. */
template <int PITCH> static __global__ void vectors(float *out) {
    MIRT_SHARED(float, tile, 32 * 36);
    float4 v = {1, 2, 3, 4};
    memcpy(tile + threadIdx.x * PITCH, &v, sizeof v);
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}
/* Rows of 16 bytes at a distance of PITCH bytes. */
template <int PITCH> static __global__ void rows(const float *in, float *out) {
    MIRT_SHARED(char, tile, 32 * 144);
    uint32_t r[4];
    mirt__cu_cp_async16(tile + threadIdx.x * PITCH, in + threadIdx.x * 4, true);
    mirt__cu_cp_async_commit();
    mirt__cu_cp_async_wait<0>();
    __syncwarp();
    mirt__cu_ldmatrix_x4(r, tile + threadIdx.x * PITCH);
    out[threadIdx.x] = (float)(r[0] + r[1] + r[2] + r[3]);
}

static void test_banks(float *in, float *out, cudaStream_t s) {
    LAUNCH(words<1>, 1, 64, s, out);
    LAUNCH(words<2>, 1, 32, s, out);
    LAUNCH(words<8>, 1, 32, s, out);
    LAUNCH(words<32>, 1, 32, s, out);
    LAUNCH(words<33>, 1, 64, s, out);
    LAUNCH(one_word, 1, 32, s, out);
    LAUNCH(vectors<4>, 1, 32, s, out);
    LAUNCH(vectors<8>, 1, 32, s, out);
    LAUNCH(vectors<32>, 1, 32, s, out);
    LAUNCH(vectors<36>, 1, 32, s, out);
    LAUNCH(rows<16>, 1, 32, s, in, out);
    LAUNCH(rows<64>, 1, 32, s, in, out);
    LAUNCH(rows<128>, 1, 32, s, in, out);
    LAUNCH(rows<144>, 1, 32, s, in, out);
    cudaStreamSynchronize(s);
    static const struct { const char *kernel; int conflicts; } want[] = {
        {"words<1>", 1}, {"words<2>", 2}, {"words<8>", 8}, {"words<32>", 32}, {"words<33>", 1}, {"one_word", 1},
        {"vectors<4>", 1}, {"vectors<8>", 2}, {"vectors<32>", 8}, {"vectors<36>", 1}, {"rows<16>", 1}, {"rows<64>", 4},
        {"rows<128>", 8}, {"rows<144>", 1}};
    for (const auto &w : want)
        ok(mirt_sim::bank_conflicts(w.kernel) == w.conflicts, "%s: %d-way, and it is %d", w.kernel,
           mirt_sim::bank_conflicts(w.kernel), w.conflicts);
}

/* ---- Bytes of two blocks ---- */

enum { THREADS = 64 };
static __global__ void own(float *x, int overlap) {
    x[blockIdx.x * (THREADS - overlap) + threadIdx.x] = 1; /* the same value, so no result shows it */
}
static __global__ void own_bytes(uint8_t *x, int overlap) {
    x[blockIdx.x * (THREADS - overlap) + threadIdx.x] = 1;
}
static __global__ void read_other(float *x, int away) {
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    x[i] = x[i + away] + 1;
}
static __global__ void read_first(float *x, float *sums) {
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    sums[i] = x[0];
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) x[0] = sums[i] + 1;
}
static __global__ void count(unsigned *x) { atomicAdd(x, 1u); }
static __global__ void copied(const float *in, float *x) {
    MIRT_SHARED(float4, tile, THREADS);
    mirt__cu_cp_async16(tile + threadIdx.x, in + (blockIdx.x * THREADS + threadIdx.x) * 4, true);
    mirt__cu_cp_async_commit();
    mirt__cu_cp_async_wait<0>();
    x[blockIdx.x * THREADS + threadIdx.x] = tile[threadIdx.x].x;
}

static void launch(int which, bool wrong, float *x, cudaStream_t s) {
    switch (which) {
    case 0: LAUNCH(own, 3, THREADS, s, x, wrong); break;
    case 1: LAUNCH(own_bytes, 2, THREADS, s, reinterpret_cast<uint8_t *>(x), wrong); break;
    case 2: LAUNCH(read_other, 2, THREADS, s, x, wrong ? 1 : 0); break;
    case 3: LAUNCH(read_other, 2, THREADS, s, x + THREADS, wrong ? -THREADS : 0); break;
    case 4: LAUNCH(read_first, wrong ? 3 : 1, THREADS, s, x, x + 1024); break;
    case 5: LAUNCH(copied, 2, THREADS, s, wrong ? x + THREADS : x + 1024, x); break;
    default: break;
    }
    cudaStreamSynchronize(s);
}

/* This program once more, with the number of the fault; what it says on stderr. */
static std::string said_by(int which, int *status) {
    int ends[2];
    std::string said;
    char buffer[1000];
    fflush(stdout);
    if (pipe(ends)) return said;
    const pid_t child = fork();
    if (!child) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test_access", std::to_string(which).c_str(), (char *)nullptr);
        _exit(1);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, (size_t)n);
    close(ends[0]);
    waitpid(child, status, 0);
    return said;
}

int main(int arguments, char **argument) {
    cudaStream_t s;
    void *memory, *other;
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaMalloc(&memory, 4096 * sizeof(float));
    cudaMalloc(&other, 4096 * sizeof(float));
    float *x = static_cast<float *>(memory);
    cudaMemsetAsync(x, 0, 4096 * sizeof(float), s);
    if (arguments > 1) {
        launch(atoi(argument[1]), true, x, s);
        return 0;
    }
    static const struct { const char *what, *said; } faults[] = {
        {"two blocks that write one float, and the same value", "is written here and by block (0, 0, 0)"},
        {"and one byte", "is written here and by block (0, 0, 0)"},
        {"a read before a write", "is written here that is read by block (0, 0, 0)"},
        {"a read after a write", "is read here that is written by"},
        {"a write of what several blocks read", "is written here that is read by several blocks"},
        {"a read by cp.async", "is written here that is read by block (0, 0, 0)"},
    };
    test_banks(x, static_cast<float *>(other), s);
    for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) {
        int status = 0;
        launch(i, false, x, s);
        const std::string said = said_by(i, &status);
        const bool right = WIFEXITED(status) && WEXITSTATUS(status) == mirt_sim::FATAL_STATUS &&
                           said.find("sim: bytes of two blocks: ") == 0 &&
                           said.find(faults[i].said) != std::string::npos;
        ok(right, "caught: %s", faults[i].what);
        if (!right) printf("# status %d, said: %s\n", status, said.c_str());
    }
    LAUNCH(count, 3, THREADS, s, static_cast<unsigned *>(other));
    ok(!cudaStreamSynchronize(s), "atomics are not faults");
    cudaFree(memory);
    cudaFree(other);
    cudaStreamDestroy(s);
    ok(!mirt_sim::report_leaks(), "nothing is left");
    return done_testing();
}
