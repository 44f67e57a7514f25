#ifndef MIRT__HALF_H
#define MIRT__HALF_H
/* The policy mixed_bfloat16 (or mixed_float16, `half` says which), for kernels that read and write by tiled_reads:
   products of convolutions are of numbers rounded to bfloat16, added up in float32; images that are written and read by
   nodes that can are stored as bfloat16. Weights, statistics, sums, gradients of weights and what is kept are float32.
   A gradient made in float32 that normalizations read is copied. `elements`: images of models that elementwise kernels
   read and write are stored so, too; of custom losses and metrics they are float32. After tiled_reads.c. On an error
   the graph is marked. */
#include "storage.h"

MIRT__LIB void mirt__fuse_half(mirt__graph *graph, const mirt__storage_costs *costs, mirt_dtype half,
                               bool elements, mirt_tensor *const *keep, int count);

#endif
