/* Reads a data set for a loop, in one process or in several. */
#include "trainer.h"

MIRT__LIB mirt_status mirt__pass_data_begin(const mirt__pass_data *r, int64_t epoch) {
    return MIRT__PEERS(r->strategy) ? mirt__begin_together(r, epoch)
                                              : mirt__dataset_begin(r->dataset, r->strategy->seed, epoch);
}

MIRT__LIB mirt_status mirt__pass_data_next(const mirt__pass_data *r, mirt__batch *out) {
    return MIRT__PEERS(r->strategy) ? mirt__next_together(r, out) : mirt__dataset_next(r->dataset, out);
}

MIRT_API mirt_status mirt_barrier(mirt_strategy *strategy, mirt_status status) {
    MIRT__USE(strategy, mirt_last_status());
    bool asked = false;
    if (!strategy) return mirt__fail_missing(__func__, "strategy");
    if (MIRT__PEERS(strategy)) MIRT__PEERS(strategy)->left = false;
    return MIRT__PEERS(strategy) ? mirt__meet_others(strategy, status, &asked) : status;
}
