/* The table of kernels. */
#include "cuda.cuh"

static const mirt__kernels mirt__cu_kernels = {
    "cuda", true, true,
    NULL, /* gemm */
    NULL, /* conv_forward */
    NULL, /* conv_input_grad */
    NULL, /* conv_weight_grad */
    NULL, /* conv_pool */
    NULL, /* conv_pool_weight_grad */
    NULL, /* max_pool */
    NULL, /* max_pool_grad */
    NULL, /* average_pool */
    NULL, /* average_pool_grad */
    NULL, /* unary */
    NULL, /* binary */
    NULL, /* logic */
    NULL, /* reduce */
    NULL, /* reduce_max_grad */
    NULL, /* scan */
    NULL, /* move */
    NULL, /* gather */
    NULL, /* gather_grad */
    NULL, /* softmax */
    NULL, /* softmax_grad */
    NULL, /* loss */
    NULL, /* loss_grad */
    NULL, /* accuracy */
    NULL, /* dropout */
    NULL, /* cast */
    NULL, /* one_hot */
    NULL, /* resize */
    NULL, /* resize_grad */
    NULL, /* norm_stats */
    NULL, /* normalize */
    NULL, /* norm_grad_sums */
    NULL, /* norm_grad_input */
    NULL, /* augment */
    NULL, /* fill */
    NULL, /* constant */
    NULL, /* accumulate */
    NULL, /* sgd */
    NULL, /* adam */
    NULL  /* rmsprop */
};
