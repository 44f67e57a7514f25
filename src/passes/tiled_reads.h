#ifndef MIRT__TILED_READS_H
#define MIRT__TILED_READS_H
/* For kernels that read and write by tiled_reads: what stands between convolutions is computed by the convolutions
   themselves. Rewrites of a graph that is complete with its gradients; they depend on the graph alone.

     conv2d(pad(x)), max_pool2d(pad(relu(x)))    -> with that padding, and their gradients
     conv2d_input_grad + another gradient, masked -> in its epilogue
     norm_stats(conv2d)                          -> the convolution leaves the moments of its output
     norm_grad_sums(conv2d_input_grad)           -> leaves the two sums, of what it writes times the activation's slope
     normalize(conv2d) by constants + add        -> in its epilogue, where nothing else reads the convolution
     both gradients of a depthwise convolution, or of
     one of single pixels and few weights        -> one node
   What is left of normalize, norm_grad_input and multiplications by a gate a channel, and is read by convolutions only,
   can be lazy: storage.h decides whether it is stored or its readers compute it. */
#include "storage.h"

MIRT__LIB void mirt__fuse_tiled(mirt__graph *graph, const mirt__storage_costs *costs, mirt_tensor *const *keep,
                                 int count);

#endif
