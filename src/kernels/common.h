#ifndef MIRT__COMMON_H
#define MIRT__COMMON_H
/* Kernels that all fast tables share. Plain C whose inner loops run over contiguous channels, so that the compiler
   vectorizes them. Nothing here depends on the instruction set or the number of threads. */

#include "kernels.h"

#ifndef MIRT__REAL_DOUBLE

/* Marks a loop whose iterations are independent even if its output is its input. */
#if defined(__clang__)
#define MIRT__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define MIRT__INDEPENDENT _Pragma("GCC ivdep")
#else
#define MIRT__INDEPENDENT
#endif

/* Functions of one instruction set: y = activation(x), dx = dy times the derivative at x, a unary kind whose row says
   VECTOR, and y = exp(x - less). An output may be an input. `scale` is elu's factor. */
typedef struct mirt__curves {
    void (*activate)(mirt_activation_kind kind, float scale, const float *x, float *y, int64_t count);
    void (*slope)(mirt_activation_kind kind, float scale, const float *dy, const float *x, float *dx, int64_t count);
    void (*unary)(mirt__unary_kind kind, const float *x, float *y, int64_t count);
    void (*exp)(const float *x, float less, float *y, int64_t count);
} mirt__curves;
/* A call and the functions that compute it. */
typedef struct mirt__common_curved {
    const void *args;
    const mirt__curves *curves;
} mirt__common_curved;

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

MIRT__LIB void mirt__common_average_pool(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__common_average_pool_grad(const mirt__pool2d *args, const mirt__where *where);
MIRT__LIB void mirt__common_unary(const mirt__unary *args, const mirt__where *where, const mirt__curves *curves);
MIRT__LIB void mirt__common_binary(const mirt__binary *args, const mirt__where *where, const mirt__curves *curves);
MIRT__LIB void mirt__common_logic(const mirt__logic *args, const mirt__where *where);
MIRT__LIB void mirt__common_reduce(const mirt__reduce *args, const mirt__where *where);
MIRT__LIB void mirt__common_reduce_max_grad(const mirt__reduce_max_grad *args, const mirt__where *where);
MIRT__LIB void mirt__common_scan(const mirt__scan *args, const mirt__where *where);
MIRT__LIB void mirt__common_move(const mirt__move *args, const mirt__where *where);
MIRT__LIB void mirt__common_gather(const mirt__gather *args, const mirt__where *where);
MIRT__LIB void mirt__common_gather_grad(const mirt__gather *args, const mirt__where *where);
/* x = activation(x), and u = dy * the activation's slope at u, of `count` numbers. */
MIRT__LIB void mirt__common_activate(const mirt__curves *curves, mirt_activation_kind kind, float *x, int64_t count);
MIRT__LIB void mirt__common_slope(const mirt__curves *curves, mirt_activation_kind kind, const float *dy, float *u,
                                  int64_t count);
MIRT__LIB void mirt__common_softmax(const mirt__softmax *args, const mirt__where *where, const mirt__curves *curves);
MIRT__LIB void mirt__common_softmax_grad(const mirt__softmax *args, const mirt__where *where);
MIRT__LIB void mirt__common_loss(const mirt__loss *args, const mirt__where *where, const mirt__curves *curves);
MIRT__LIB void mirt__common_loss_grad(const mirt__loss *args, const mirt__where *where, const mirt__curves *curves);
MIRT__LIB void mirt__common_accuracy(const mirt__accuracy *args, const mirt__where *where);
/* mirt__philox for the counters {block .. block + MIRT__DRAWS - 1, counter[0 .. 2]}; the four words of a block are
   adjacent. The instruction sets compute several blocks at once. */
#define MIRT__DRAWS 16
typedef void (*mirt__draw_fn)(uint32_t block, const uint32_t counter[3], uint64_t key, uint32_t *word);
MIRT__LIB void mirt__common_draw(uint32_t block, const uint32_t counter[3], uint64_t key, uint32_t *word);
MIRT__LIB void mirt__common_dropout(const mirt__dropout *args, const mirt__where *where, mirt__draw_fn draw);
MIRT__LIB void mirt__common_cast(const mirt__cast *args, const mirt__where *where);
MIRT__LIB void mirt__common_one_hot(const mirt__one_hot *args, const mirt__where *where);
MIRT__LIB void mirt__common_resize(const mirt__resize *args, const mirt__where *where);
MIRT__LIB void mirt__common_resize_grad(const mirt__resize *args, const mirt__where *where);
/* By row. */
MIRT__LIB void mirt__common_norm_stats(const mirt__norm *args, const mirt__where *where, const mirt__curves *curves);
MIRT__LIB void mirt__common_normalize(const mirt__norm *args, const mirt__where *where, const mirt__curves *curves);
MIRT__LIB void mirt__common_norm_grad_sums(const mirt__norm *args, const mirt__where *where,
                                           const mirt__curves *curves);
MIRT__LIB void mirt__common_norm_grad_input(const mirt__norm *args, const mirt__where *where,
                                            const mirt__curves *curves);

#endif
#endif
