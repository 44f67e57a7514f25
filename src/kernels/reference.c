/* The table of reference kernels. */

#include "reference.h"

MIRT__KERNEL_TABLE mirt__kernels mirt__kernels_reference = {
    "reference",
    mirt__ref_gemm,
    mirt__ref_conv_forward,
    mirt__ref_conv_input_grad,
    mirt__ref_conv_weight_grad,
    mirt__ref_conv_pool,
    mirt__ref_conv_pool_weight_grad,
    mirt__ref_max_pool,
    mirt__ref_max_pool_grad,
    mirt__ref_average_pool,
    mirt__ref_average_pool_grad,
    mirt__ref_unary,
    mirt__ref_binary,
    mirt__ref_reduce,
    mirt__ref_reduce_max_grad,
    mirt__ref_softmax,
    mirt__ref_softmax_grad,
    mirt__ref_loss,
    mirt__ref_loss_grad,
    mirt__ref_accuracy,
    mirt__ref_dropout,
    mirt__ref_cast,
    mirt__ref_one_hot,
    mirt__ref_accumulate,
    mirt__ref_sgd,
    mirt__ref_adam,
};
