#ifndef MIRT__HALF_H
#define MIRT__HALF_H
/* Dtype policies other than float32, for kernels with tiled reads: images whose writer and readers all support it are
   stored in 16 bits. Weights, statistics, sums, gradients of weights and what is kept are float32. A gradient made in
   float32 that normalizations read is copied. After tiled_reads.c. On an error the graph is marked. */
#include "storage.h"

typedef struct mirt__half_rule {
    mirt_dtype dtype; /* of stored images: bfloat16 or float16 */
    bool products;    /* operands of products are rounded to it, too, and added up in float32 */
    bool elements;    /* elementwise kernels can read and write such images; not those of custom losses and metrics */
} mirt__half_rule;
MIRT__LIB void mirt__fuse_half(mirt__graph *graph, const mirt__storage_costs *costs, const mirt__half_rule *rule,
                               mirt_tensor *const *keep, int count);

#endif
