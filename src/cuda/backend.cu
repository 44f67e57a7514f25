/* The device table of GPUs, which the library finds by its name. */
#include "cuda.cuh"

static const mirt__kernels *mirt__cu_kernels_get(void) { return &mirt__cu_kernels; }

/* Devices that reach each other's memory add up their shares themselves. */
static void mirt__cu_reduce(mirt__handle *cu, const mirt__reduction *r) {
    const int64_t begin = r->own_begin, count = r->own_end - r->own_begin;
    mirt__where where;
#if MIRT__CU_NCCL
    if (cu->group && cu->group->comm[cu->rank]) return mirt__cu_exchange(cu, r);
#endif
    memset(&where, 0, sizeof where);
    where.handle = cu;
    if (count <= 0 || r->parts < 1) return;
    for (int i = 0; i + 1 < r->parts; i++)
        mirt__cu_accumulate(r->part[r->add[i].into] + begin, r->part[r->add[i].from] + begin, count, &where);
    for (int d = 0; d < r->devices; d++) {
        if (r->sum[d] != r->part[0])
            mirt__cu_copy(cu, r->sum[d] + begin, r->part[0] + begin, (size_t)count * sizeof *r->sum[d]);
    }
}

extern "C" const mirt__backend *mirt__cuda_backend(void) {
    static const mirt__backend backend = {
        MIRT__BACKEND_VERSION, "gpu",           mirt__cu_kernels_get, mirt__cu_devices,   mirt__cu_info,
        mirt__cu_one_thread,   mirt__cu_open,   mirt__cu_close,       mirt__cu_join,      mirt__cu_alloc,
        mirt__cu_release,      mirt__cu_free_bytes, mirt__cu_stage,   mirt__cu_behind,    mirt__cu_fetch,
        mirt__cu_copy,         mirt__cu_clear,  mirt__cu_wait,        mirt__cu_mark,      mirt__cu_wait_mark,
        mirt__cu_measure,      mirt__cu_set_room,
        mirt__cu_begin,        mirt__cu_end,    mirt__cu_forget,      mirt__cu_signal,    mirt__cu_await,
        mirt__cu_reduce,       mirt__cu_exchanged, mirt__cu_gather,   mirt__cu_aggregate, mirt__cu_squares,
        mirt__cu_seconds,      mirt__cu_gauge};
    return &backend;
}
