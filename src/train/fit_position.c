/* Where a fit is: its functions, and passes over its data. */
#include "fit.h"

static mirt_status mirt__fit_begin_pass(const mirt__fit *fit) {
    const mirt__training_run *run = &fit->run;
    if (fit->features[0]) return mirt__features_begin(fit->features[0], run->at.pass);
    return mirt__pass_data_begin(run->model->strategy, run->train, mirt__fit_replicas(fit), run->at.pass);
}

/* The training function is kept through the callbacks, which may evaluate other data. */
MIRT__LIB mirt_function *mirt__fit_prepared(const mirt__fit *fit, bool validation) {
    const mirt__features *features = fit->features[validation];
    const mirt__data_spec *spec = features ? mirt__features_spec(features)
                                           : mirt__dataset_spec(validation ? fit->validation : fit->run.train);
    return mirt__trainer_prepare(fit->run.model, validation ? MIRT__EVALUATE : MIRT__TRAIN, spec,
                                 mirt__data_most_rows(spec), validation ? NULL : fit->run.desc);
}

MIRT__LIB int mirt__fit_replicas(const mirt__fit *fit) {
    return fit->run.model->strategy->num_replicas * mirt__dataset_spec(fit->run.train)->accumulate;
}

MIRT__LIB mirt_status mirt__fit_begin(mirt__fit *fit) {
    fit->run.at.pass = fit->run.model->epoch++;
    fit->run.at.begun = 1;
    fit->run.at.passed = 0;
    return mirt__fit_begin_pass(fit);
}

MIRT__LIB mirt_status mirt__fit_reopen(mirt__training_run *run) {
    const mirt__fit *fit = (const mirt__fit *)run;
    mirt__batch batch;
    /* What is kept from the first pass on is what that pass made. */
    if (mirt__dataset_keeps(run->train) &&
        mirt__dataset_begin(run->train, run->model->strategy->seed, run->at.first_pass) != MIRT_OK)
        return mirt_last_status();
    if (!run->at.begun && (!run->at.done || run->desc->steps_per_epoch > 0)) return MIRT_OK;
    run->at.begun = 1; /* behind the last batch of an epoch that is still open, too: its pass has no more of them */
    if (MIRT__SERVED(fit)) return MIRT_OK; /* served.c goes to the batches that the servers name */
    int64_t left = mirt__dataset_pass_over(run->train, run->at.passed) ? 0 : run->at.passed;
    mirt_status status = mirt__fit_begin_pass(fit);
    for (; left > 0 && status == MIRT_OK; left--) {
        status = mirt__pass_data_next(run->model->strategy, run->train, &batch);
        if (status == MIRT_OK && !batch.rows)
            return mirt__fail(MIRT_E_INVALID,
                              "the data end before the %lld batches that the checkpoint has gone through",
                              (long long)run->at.passed);
    }
    return status;
}
