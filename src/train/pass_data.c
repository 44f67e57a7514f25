/* Reads a data set for a loop, in one process or in several. */
#include "trainer.h"

MIRT__LIB mirt_status mirt__pass_data_begin(mirt_strategy *s, mirt_dataset *dataset, int replicas, int64_t epoch) {
    return MIRT__PEERS(s) ? mirt__begin_together(s, dataset, replicas, epoch)
                          : mirt__dataset_begin(dataset, s->seed, epoch);
}

MIRT__LIB mirt_status mirt__pass_data_next(mirt_strategy *s, mirt_dataset *dataset, mirt__batch *out) {
    return MIRT__PEERS(s) ? mirt__next_together(s, dataset, out) : mirt__dataset_next(dataset, out);
}

MIRT_API mirt_status mirt_barrier(mirt_strategy *strategy, mirt_status status) {
    MIRT__USE(strategy, mirt_last_status());
    bool asked = false;
    if (!strategy) return mirt__fail_missing(__func__, "strategy");
    if (MIRT__PEERS(strategy)) MIRT__PEERS(strategy)->left = false;
    return MIRT__PEERS(strategy) ? mirt__meet_others(strategy, status, &asked) : status;
}
