#ifndef MIRT__COMMON_H
#define MIRT__COMMON_H
/* Kernels that all fast tables share. Plain C whose inner loops run over contiguous channels, so that the compiler
   vectorizes them. Nothing here depends on the instruction set or the number of threads. */

#include "fast.h"

/* Marks a loop whose iterations are independent even if its output is its input. */
#if defined(__clang__)
#define MIRT__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define MIRT__INDEPENDENT _Pragma("GCC ivdep")
#else
#define MIRT__INDEPENDENT
#endif

/* A call, and the primitives for it. */
typedef struct mirt__common_call {
    const void *args;
    const mirt__simd *simd;
} mirt__common_call;

/* Elements that one thread claims at a time: enough to be worth it. */
#define MIRT__GRAIN 16384

/* Runs fn(args, begin, end, scratch) over [0, count) in pieces of `step`, shared by the team;
   `scratch` is the running thread's. */
typedef void (*mirt__common_fn)(const void *args, int64_t begin, int64_t end, void *scratch);
MIRT__LIB void mirt__common_range(const mirt__where *where, int64_t count, int64_t step, mirt__common_fn fn,
                                  const void *args);
/* The number of items of `size` elements in one piece. */
MIRT__LIB int64_t mirt__common_step(int64_t size);

/* Iterates over the elements of several operands together, in row-major order of `dim`. Dimensions of size 1 are
   removed, and adjacent ones that are contiguous in all operands are merged: equal shapes become one run, a bias
   becomes rows by columns. */
typedef struct mirt__common_walk {
    const void *args;
    int rank, operands;
    int64_t count, dim[MIRT_MAX_RANK], stride[3][MIRT_MAX_RANK];
} mirt__common_walk;
MIRT__LIB mirt__common_walk mirt__common_walk_of(const void *args, int rank, const int64_t *dim, int operands,
                                                 const int64_t *const *stride);
/* The number of elements, at most `most`, in one line from element `at` on, which is at place[i] of operand i. */
MIRT__LIB int64_t mirt__common_walk_line(const mirt__common_walk *walk, int64_t at, int64_t most, int64_t *place);

/* The part [*first, return value) of a window's kernel that lies inside the input. */
MIRT__INLINE int64_t mirt__common_inside(int64_t start, int kernel, int64_t size, int64_t *first) {
    *first = start < 0 ? -start : 0;
    return mirt__min(size - start, kernel);
}

/* x = activation(x), and u = dy * the activation's slope at u, of `count` numbers. */
MIRT__LIB void mirt__common_activate(const mirt__simd *simd, mirt_activation_kind kind, float *x, int64_t count);
MIRT__LIB void mirt__common_slope(const mirt__simd *simd, mirt_activation_kind kind, const float *dy, float *u,
                                  int64_t count);
MIRT__LIB void mirt__common_draw(uint32_t block, const uint32_t counter[3], uint64_t key, uint32_t *word);

#endif
