/* The table of kernels. */
#include "cuda.cuh"

static const mirt__kernels mirt__cu_kernels = {
    "cuda", true, true,
    mirt__cu_gemm,
    mirt__cu_conv_forward,
    mirt__cu_conv_input_grad,
    mirt__cu_conv_weight_grad,
    mirt__cu_conv_pool,
    mirt__cu_conv_pool_weight_grad,
    mirt__cu_max_pool,
    mirt__cu_max_pool_grad,
    mirt__cu_average_pool,
    mirt__cu_average_pool_grad,
    mirt__cu_unary,
    mirt__cu_binary,
    mirt__cu_logic,
    mirt__cu_reduce,
    mirt__cu_reduce_max_grad,
    mirt__cu_scan,
    mirt__cu_move,
    mirt__cu_gather,
    mirt__cu_gather_grad,
    mirt__cu_softmax,
    mirt__cu_softmax_grad,
    mirt__cu_loss,
    mirt__cu_loss_grad,
    mirt__cu_accuracy,
    mirt__cu_dropout,
    mirt__cu_cast,
    mirt__cu_one_hot,
    NULL, /* resize */
    NULL, /* resize_grad */
    mirt__cu_norm_stats,
    mirt__cu_normalize,
    mirt__cu_norm_grad_sums,
    mirt__cu_norm_grad_input,
    NULL, /* augment */
    mirt__cu_fill,
    mirt__cu_constant,
    mirt__cu_accumulate,
    mirt__cu_sgd,
    mirt__cu_adam,
    mirt__cu_rmsprop
};
