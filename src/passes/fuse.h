#ifndef MIRT__FUSE_H
#define MIRT__FUSE_H
/* Elementwise work moves into the kernel that reads or writes the tensor. The rewrites depend on
   the graph alone, never on the machine, so the order of every sum is the same everywhere; but for `products`, which
   are for kernels with `fused_elements`.

   forward (before gradients are recorded; the fused ops know their own gradients):
     product(reshape(rescale(cast(x))))   -> product reading x
     activation(bias_add(product(x, w)))  -> product with an epilogue
     activation(normalize(x) + r)         -> normalize, likewise
     max_pool2d 2x2(relu(conv2d(data)))   -> conv2d_pool
   backward:
     activation gradient(product)         -> product with a mask
   elements (of sums that no other pass has taken):
     x + broadcast(y)                     -> x + y, which repeats it
     x * y + z                            -> product with an addend, with `products`
     reduce(x * y)                        -> sum or mean of products, likewise */
#include "../graph/graph.h"

MIRT__LIB void mirt__fuse_forward(mirt__graph *graph, mirt_tensor *const *keep, int count);
MIRT__TRAINING_LIB void mirt__fuse_backward(mirt__graph *graph, mirt_tensor *const *keep, int count);
MIRT__TRAINING_LIB void mirt__fuse_elements(mirt__graph *graph, bool products, mirt_tensor *const *keep, int count);

#endif
