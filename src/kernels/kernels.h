#ifndef MIRT__KERNELS_H
#define MIRT__KERNELS_H
/* The CPU's tables of kernels (table.h), and the memory that their calls need. */

#include "../base/base.h"
#include "../base/team.h"
#include "table.h"

/* By the last column of MIRT__KERNEL_LIST: around entries of tables of kernels, and before their functions. */
#define MIRT__USE_TRAIN(entry) MIRT__TRAINING_ENTRY(entry)
#define MIRT__USE_ALL(entry) entry
#define MIRT__TRAIN_LIB MIRT__TRAINING_LIB
#define MIRT__ALL_LIB MIRT__LIB
/* Whether a kind of MIRT__BINARY_LIST is ever recorded; those without a public function are gradients. */
#define MIRT__RECORDED_0 true
#define MIRT__RECORDED_NONE MIRT__TRAINS

#define MIRT__INLINE static inline __attribute__((always_inline))
MIRT__INLINE int64_t mirt__min(int64_t a, int64_t b) { return a < b ? a : b; }
MIRT__INLINE int64_t mirt__max(int64_t a, int64_t b) { return a > b ? a : b; }
/* The number of parts of `all`, which have `each` but for the last one. */
MIRT__INLINE int64_t mirt__parts(int64_t all, int64_t each) { return all / each + (all % each != 0); }
MIRT__INLINE int64_t mirt__index_at(const void *indices, mirt_dtype dtype, int64_t i) { /* int32 or uint8 */
    return dtype == MIRT_UINT8 ? ((const uint8_t *)indices)[i] : ((const int32_t *)indices)[i];
}
/* The scratch memory of a member of the team. */
MIRT__INLINE void *mirt__scratch(const mirt__where *where, int member) {
    return where->scratch ? (char *)where->scratch + (size_t)member * where->scratch_per_thread : NULL;
}

/* Whether positions in a window of this size need int32 instead of a byte. */
MIRT__LIB bool mirt__pool_wide(int64_t places);
/* NULL: the activation does not exist. */
MIRT__LIB const mirt__activation_class *mirt__activation_get(mirt_activation_kind kind);

/* The tables of this build in order of preference, best first, "reference" last; *count of them.
   Tables that this machine cannot execute are left out. Thread safe. */
MIRT__LIB const mirt__kernels *const *mirt__kernel_tables(int *count);
/* The best table, or the one named by the environment variable MIRT_CPU; NULL (MIRT_E_DEVICE): not available on this
   machine. Thread safe. */
MIRT__LIB const mirt__kernels *mirt__kernels_best(void);

/* Bytes that calls need; they grow with m, rows. */
MIRT__LIB size_t mirt__gemm_scratch(const mirt__gemm *args);
MIRT__LIB size_t mirt__conv_scratch(const mirt__conv *shape);              /* forward, both gradients, conv_pool and its
                                                                              gradient: the most any needs */
MIRT__LIB size_t mirt__conv_shared(const mirt__conv *shape);                  /* likewise */
/* Raises both to the needs of calls with `winograd`. */
MIRT__LIB void mirt__winograd_room(const mirt__conv *shape, size_t *scratch, size_t *shared);
MIRT__LIB size_t mirt__reduce_scratch(const mirt__reduce *args);
MIRT__LIB size_t mirt__norm_shared(const mirt__norm *args);
MIRT__LIB size_t mirt__norm_scratch(const mirt__norm *args);

/* Images in one chunk of a weight gradient; depends only on the shape of an image. */
MIRT__LIB int64_t mirt__conv_chunk_rows(const mirt__conv *shape);

/* What the tables' `constrain` does with SPECTRAL_NORM. */
MIRT__TRAINING_LIB void mirt__spectral_norm(const mirt__constrain *args);
/* What `loss` does with row r of MIRT_CIRCLE: its sums or, if there is a dx, its gradient. */
MIRT__ABSENT_LIB void mirt__circle_row(const mirt__loss *loss, int64_t r);

/* part[i] for i in [0, parts), each `count` long and `stride` apart, summed into part 0 by a fixed
   binary tree: the node over [lo, hi) adds its right child to its left one, the left child
   covering the largest power of two below hi - lo. */
MIRT__LIB void mirt__tree(mirt__real *part, int64_t parts, int64_t stride, int64_t count);

#endif
