/* The table of reference kernels. */

#include "augment.h"
#include "reference.h"

#define MIRT__REF_UPDATE(kind, name, kernel) case kind: mirt__ref_##kernel(args, where); break;
static void mirt__ref_update(const mirt__update *args, const mirt__where *where) {
    switch (args->kind) {
    MIRT_OPTIMIZER_LIST(MIRT__REF_UPDATE)
    case MIRT__OPTIMIZER_COUNT: break;
    }
}
#undef MIRT__REF_UPDATE

MIRT__KERNEL_TABLE mirt__kernels mirt__kernels_reference = {
    "reference", false, false,
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
    mirt__ref_logic,
    mirt__ref_reduce,
    mirt__ref_reduce_max_grad,
    mirt__ref_scan,
    mirt__ref_move,
    mirt__ref_gather,
    mirt__ref_gather_grad,
    mirt__ref_softmax,
    mirt__ref_softmax_grad,
    mirt__ref_loss,
    mirt__ref_loss_grad,
    mirt__ref_accuracy,
    mirt__ref_dropout,
    mirt__ref_cast,
    mirt__ref_one_hot,
    mirt__ref_resize,
    mirt__ref_resize_grad,
    mirt__ref_norm_stats,
    mirt__ref_normalize,
    mirt__ref_norm_grad_sums,
    mirt__ref_norm_grad_input,
    mirt__augment_batch,
    mirt__ref_fill,
    mirt__ref_constant,
    mirt__ref_accumulate,
    mirt__ref_update,
};
