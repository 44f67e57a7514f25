/* Sums that several kernels make together (src/cuda/parts.cuh, epilogue.cuh) against double arithmetic. Parts of weight
   gradients, few and many, of any length; chunks of statistics, in one group and in several, some of them empty. Tests
   of the whole table have too small shapes for most of this. */
#include "../../src/cuda/epilogue.cuh"
#include "../../src/cuda/parts.cuh"
#include "alone.h"
#include <vector>

#include "sim.h"
#include "tap.h"

static uint32_t state = 1;
static float any() { /* in [-1, 1) */
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * (1.0f / 8388608.0f) - 1.0f;
}
static void wait() { mirt__cu_try(&cu, cudaStreamSynchronize(cu.stream), "wait"); }

/* Floats from an address that is a multiple of 16 bytes on, or 4 more. */
struct Floats {
    std::vector<float> block;
    float *at;
    Floats(int64_t count, bool aligned, float value) : block((size_t)count + 8, value) {
        at = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(block.data()) + 15) & ~(uintptr_t)15) +
             (aligned ? 0 : 1);
    }
};

static void check_parts(int64_t parts, int64_t count, int64_t more, int64_t stride, bool aligned, bool wants_rest) {
    Floats part(parts * stride, aligned, NAN), to(count, aligned, NAN), rest(more, aligned, NAN);
    for (int64_t p = 0; p < parts; p++)
        for (int64_t i = 0; i < count + more; i++) part.at[p * stride + i] = any();
    mirt__cu_parts_total(&cu, part.at, parts, stride, count, to.at, more, wants_rest ? rest.at : NULL);
    wait();
    double worst = 0;
    for (int64_t i = 0; i < count + more; i++) {
        double sum = 0;
        for (int64_t p = 0; p < parts; p++) sum += (double)part.at[p * stride + i];
        if (i >= count && !wants_rest) {
            if (rest.at[i - count] == rest.at[i - count]) worst = INFINITY; /* nobody may write it */
            continue;
        }
        const double off = fabs((double)(i < count ? to.at[i] : rest.at[i - count]) - sum);
        if (!(off <= worst)) worst = off;
    }
    ok(worst <= 2e-7 * (double)(parts + 1), "%d parts of %d and %d numbers, %d apart%s%s: off by %.1e", (int)parts,
       (int)count, (int)more, (int)stride, aligned ? "" : ", not aligned", wants_rest ? "" : ", the rest not wanted",
       worst);
}

/* Chunk i has up to three numbers of each column, sometimes none. */
static void check_chunks(mirt__column_sums sums, int64_t columns, int64_t chunks) {
    std::vector<char> block(mirt__cu_sums_bytes(sums, columns, chunks) + 256, (char)0xFF);
    char *room = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(block.data()) + 255) & ~(uintptr_t)255);
    const mirt__cu_chunks c = mirt__cu_chunks_of(room, sums, columns, chunks);
    std::vector<float> out0((size_t)columns, NAN), out1((size_t)columns, NAN), variance((size_t)columns);
    float *const out[2] = {out0.data(), out1.data()};
    std::vector<double> all((size_t)columns), first((size_t)columns), second((size_t)columns);
    std::vector<std::vector<float>> numbers((size_t)columns);
    const bool moments = sums == MIRT__SUMS_MOMENTS;
    mirt__cu_epilogue e;
    memset(&e, 0, sizeof e);
    for (int64_t j = 0; j < columns; j++) variance[(size_t)j] = 0.5f + (float)j;
    e.sums = sums;
    e.slope.variance = variance.data();
    e.slope.epsilon = 1e-3f;
    for (int64_t i = 0; i < chunks; i++) {
        const int count = i == 0 ? 3 : (int)(i * 7 % 4);
        c.count[i] = (float)count;
        for (int64_t j = 0; j < columns; j++) {
            float *part = c.part + 3 * i * columns + j, shift = 0, a = 0, b = 0;
            for (int k = 0; k < count; k++) {
                const float x = any() + 10 * (float)(j % 3), z = any();
                if (k == 0 && moments) shift = x;
                a += x - shift;
                b += moments ? (x - shift) * (x - shift) : x * z;
                numbers[(size_t)j].push_back(x);
                second[(size_t)j] += moments ? 0 : (double)x * (double)z;
            }
            part[0] = a;
            part[columns] = b;
            part[2 * columns] = shift;
        }
    }
    double worst = 0;
    mirt__cu_sums_finish(&cu, &e, &c, out, 1, 1);
    wait();
    for (size_t j = 0; j < (size_t)columns; j++) {
        double sum = 0, squares = 0;
        for (float x : numbers[j]) sum += (double)x;
        const double n = (double)numbers[j].size(), mean = sum / n;
        for (float x : numbers[j]) squares += ((double)x - mean) * ((double)x - mean);
        const double want0 = moments ? mean : sum,
                     want1 = moments ? squares / n : second[j] / sqrt((double)variance[j] + (double)e.slope.epsilon);
        const double size = moments ? 1 : n * 20;
        for (const double off : {fabs((double)out0[j] - want0), fabs((double)out1[j] - want1)}) {
            if (!(off / size <= worst)) worst = off / size;
        }
    }
    ok(worst < 2e-6, "%s of %d columns in %d chunks: off by %.1e", moments ? "moments" : "sums of a gradient",
       (int)columns, (int)chunks, worst);
}

int main() {
    mirt_sim::host_memory() = true;
    cudaSetDevice(0);
    mirt__cu_try(&cu, cudaStreamCreateWithFlags(&cu.stream, cudaStreamNonBlocking), "stream");
    for (const int parts : {0, 1, 2, 5, 32, 33, 65, 70}) {
        check_parts(parts, 16384, 64, 16448, true, true);
        check_parts(parts, 16387, 5, 16400, true, true);
        check_parts(parts, 36, 8, 44, true, true);
    }
    check_parts(14, 20000, 12, 20016, true, false);
    check_parts(14, 20000, 12, 20012, false, true);
    check_parts(14, 20000, 0, 20000, true, false);
    for (const int chunks : {1, 2, 15, 127, 128, 129, 300, 2500}) {
        check_chunks(MIRT__SUMS_MOMENTS, 37, chunks);
        check_chunks(MIRT__SUMS_GRADIENT, 37, chunks);
    }
    check_chunks(MIRT__SUMS_MOMENTS, 1, 400);
    check_chunks(MIRT__SUMS_MOMENTS, 96, 140);
    return done_testing();
}
