/* The table of kernels. */
#include "cuda.cuh"

static const mirt__kernels mirt__cu_kernels = {
    "cuda", true, true, true, true,
#define MIRT__KERNEL_ENTRY(name, arguments, fast, use) mirt__cu_##name,
    MIRT__KERNEL_LIST(MIRT__KERNEL_ENTRY)
#undef MIRT__KERNEL_ENTRY
    mirt__cu_augment_all,
    mirt__cu_fill,
    mirt__cu_constant,
    mirt__cu_accumulate,
    mirt__cu_update
};
