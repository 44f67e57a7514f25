/* Where a fit is: passes over its data, and room for its history. */
#include "fit.h"

MIRT__LIB mirt_status mirt__fit_begin(mirt__fit *fit) {
    const mirt_model *model = fit->model;
    fit->run.pass = fit->model->epoch++;
    fit->run.begun = 1;
    fit->run.passed = 0;
    return fit->features[0] ? mirt__features_begin(fit->features[0], model->strategy->seed, fit->run.pass)
                            : mirt__dataset_begin(fit->train, model->strategy->seed, fit->run.pass);
}

/* What is kept from the first pass on is what that pass made. */
static mirt_status mirt__fit_first_pass(const mirt__fit *fit) {
    return mirt__dataset_keeps(fit->train)
               ? mirt__dataset_begin(fit->train, fit->model->strategy->seed, fit->run.first_pass)
               : MIRT_OK;
}

MIRT__LIB mirt_status mirt__fit_reopen(mirt__fit *fit) {
    const uint64_t seed = fit->model->strategy->seed;
    mirt__batch batch;
    if (mirt__fit_first_pass(fit) != MIRT_OK) return mirt_last_status();
    if (!fit->run.begun && (!fit->run.done || fit->desc->steps_per_epoch > 0)) return MIRT_OK;
    fit->run.begun = 1; /* behind the last batch of an epoch that is still open, too: its pass has no more of them */
    int64_t left = mirt__dataset_pass_over(fit->train, fit->run.passed) ? 0 : fit->run.passed;
    mirt_status status = fit->features[0] ? mirt__features_begin(fit->features[0], seed, fit->run.pass)
                                          : mirt__dataset_begin(fit->train, seed, fit->run.pass);
    for (; left > 0 && status == MIRT_OK; left--) {
        status = mirt__dataset_next(fit->train, &batch);
        if (status == MIRT_OK && !batch.rows)
            return mirt__fail(MIRT_E_INVALID,
                              "the data end before the %lld batches that the checkpoint has gone through",
                              (long long)fit->run.passed);
    }
    return status;
}

MIRT__LIB mirt_status mirt__history_reserve(mirt__fit *fit, int need) {
    const int usual = 1024, epochs = fit->desc->epochs > 0 ? fit->desc->epochs : 1;
    mirt_model *model = fit->model;
    const int used = model->history.epochs;
    if (need <= model->history_capacity) return MIRT_OK;
    int capacity = need < usual ? usual : need > INT_MAX / 2 ? INT_MAX : 2 * need;
    if (capacity > epochs) capacity = epochs < need ? need : epochs;
    if (!mirt__grow((void **)&model->history_logs, (size_t)used, (size_t)capacity, sizeof *model->history_logs))
        return mirt_last_status();
    /* memory is taken now, not by and by */
    memset(model->history_logs + used, 0, (size_t)(capacity - used) * sizeof *model->history_logs);
    model->history_capacity = capacity;
    model->history.epoch = model->history_logs;
    return MIRT_OK;
}
