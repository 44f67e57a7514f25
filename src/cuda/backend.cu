/* What the library finds. */
#include "cuda.cuh"

extern "C" const mirt__backend *mirt__cuda_backend(void) {
    static const mirt__backend backend = {
        MIRT__BACKEND_VERSION, "gpu",           &mirt__cu_kernels,  mirt__cu_devices,  mirt__cu_info,
        mirt__cu_open,         mirt__cu_close,  mirt__cu_join,      mirt__cu_alloc,    mirt__cu_release,
        mirt__cu_free_bytes,   mirt__cu_stage,  mirt__cu_behind,    mirt__cu_fetch,    mirt__cu_copy,
        mirt__cu_clear,        mirt__cu_wait,   mirt__cu_measure,   mirt__cu_set_room, mirt__cu_begin,
        mirt__cu_end,          mirt__cu_forget, mirt__cu_signal,    mirt__cu_await,    mirt__cu_exchange,
        mirt__cu_exchanged,    mirt__cu_gather, mirt__cu_aggregate, mirt__cu_squares,  mirt__cu_seconds};
    return &backend;
}
