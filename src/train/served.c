/* A fit at parameter servers.

   The first worker, the chief, goes through epochs as any fit does, with the batches that the servers give it. The
   other workers train on batches until they are told to stop. */
#include "fit.h"

#include "../inspect/timeline.h"
#include "../mirror/watch.h"

/* >>batches */

/* The data set goes to a batch: it reads on if that is near, and begins anew otherwise. */
static mirt_status mirt__served_seek(mirt_dataset *data, uint64_t seed, mirt__place_of *at, const mirt__lease *to) {
    const int64_t near = 8;
    mirt__batch passed;
    if (!at->begun || at->pass != to->pass || at->next > to->at || to->at - at->next >= near) {
        at->next = mirt__dataset_pass_over(data, to->at) ? to->at : 0;
        at->pass = to->pass;
        at->begun = true;
        if (mirt__dataset_begin(data, seed, to->pass) != MIRT_OK) return mirt_last_status();
    }
    for (; at->next < to->at; at->next++) {
        if (mirt__dataset_next(data, &passed) != MIRT_OK) return mirt_last_status();
        if (!passed.rows) break;
    }
    return MIRT_OK;
}

/* No rows: the data end before it. A fit is not touched inside of a section (feed.c). */
static mirt_status mirt__served_read(mirt__fit *fit, mirt__batch *out) {
    mirt_strategy *s = fit->run.model->strategy;
    mirt_dataset *data = fit->run.train;
    const mirt__lease to = fit->served.working.lease;
    mirt__place_of at = fit->served.at;
    mirt__batch batch;
    memset(&batch, 0, sizeof batch);
    mirt__section before = mirt__watch_input(s, data);
    mirt_status status = mirt__served_seek(data, s->seed, &at, &to);
    if (status == MIRT_OK && at.next == to.at) status = mirt__dataset_next(data, &batch);
    if (!mirt__watch_leave(s, before)) return MIRT_E_TIMEOUT;
    at.next++;
    at.begun = batch.rows > 0;
    fit->served.at = at;
    *out = batch;
    return status;
}

MIRT__LIB mirt_status mirt__served_next(mirt__fit *fit, mirt__batch *batch) {
    mirt__working *w = &fit->served.working;
    memset(batch, 0, sizeof *batch);
    for (;;) {
        if (mirt__working_lease(w) != MIRT_OK) return mirt_last_status();
        if (w->lease.at == w->lease.end) return MIRT_OK;
        if (mirt__served_read(fit, batch) != MIRT_OK) return mirt_last_status();
        if (batch->rows) return MIRT_OK;
        if (mirt__working_end(w) != MIRT_OK) return mirt_last_status();
    }
}

MIRT__LIB mirt_status mirt__served_step(mirt__fit *fit, mirt_function *f, double *loss) {
    mirt_model *model = fit->run.model;
    mirt__sums *sums = &fit->run.sums;
    mirt__working *w = &fit->served.working;
    mirt__timing_phase(model, MIRT_PHASE_REDUCE);
    if (mirt__working_pull(w) != MIRT_OK) return mirt_last_status();
    mirt__timing_phase(model, MIRT_PHASE_LAUNCH);
    if (mirt__function_gradients(f) != MIRT_OK) return mirt_last_status();
    mirt__sums_start(model, MIRT__TRAIN, sums);
    *loss = mirt__add_results(f, sums);
    mirt__timing_phase(model, MIRT_PHASE_REDUCE);
    if (mirt__working_push(w, sums) != MIRT_OK) return mirt_last_status();
    mirt__timing_phase(model, MIRT_PHASE_LAUNCH);
    fit->run.event.batch = w->reply[0].epoch.done;
    return MIRT_OK;
}

/* >>the chief's epochs */

static int64_t mirt__served_quota(const mirt__fit *fit) {
    const mirt_fit_desc *d = fit->run.desc;
    int64_t left = d->steps_per_epoch > 0 ? d->steps_per_epoch - fit->run.at.done : INT64_MAX;
    const int64_t steps = d->max_steps > 0 ? d->max_steps - fit->run.model->history.steps : INT64_MAX;
    left = left < steps ? left : steps;
    return left > 0 ? left : 0;
}

MIRT__LIB mirt_status mirt__served_begin(mirt__fit *fit) {
    mirt__training_run *run = &fit->run;
    mirt__epoch epoch;
    if (!run->at.begun) {
        run->at.pass = run->model->epoch++;
        run->at.begun = 1;
        run->at.passed = 0;
    }
    memset(&epoch, 0, sizeof epoch);
    epoch.pass = run->at.pass;
    epoch.next = run->at.passed;
    epoch.length = mirt_dataset_batches(run->train);
    if (epoch.length < 0) epoch.length = INT64_MAX;
    epoch.left = mirt__served_quota(fit);
    epoch.done = fit->served.done = run->at.done;
    epoch.goes_on = run->desc->steps_per_epoch > 0;
    fit->served.steps = run->model->history.steps;
    fit->served.at.begun = false;
    return mirt__working_begin(&fit->served.working, &epoch, &run->sums);
}

MIRT__LIB mirt_status mirt__served_end(mirt__fit *fit) {
    mirt__training_run *run = &fit->run;
    mirt__working *w = &fit->served.working;
    mirt_staleness *all = &run->model->history.staleness;
    if (mirt__working_stop(w) != MIRT_OK || mirt__working_lease(w) != MIRT_OK) return mirt_last_status();
    const mirt__epoch at = w->reply[0].epoch;
    mirt__sums_start(run->model, MIRT__TRAIN, &run->sums);
    if (mirt__working_all(w, &run->sums) != MIRT_OK) return mirt_last_status();
    mirt__staleness_add(all, &w->payload.staleness);
    run->event.staleness = &w->payload.staleness;
    run->event.batch = run->at.done = at.done;
    run->model->history.steps = fit->served.steps + at.done - fit->served.done;
    run->at.pass = at.pass;
    run->at.passed = at.next < at.length ? at.next : at.length;
    run->at.begun = at.next < at.length;
    run->model->epoch = at.pass + 1;
    return MIRT_OK;
}

static void mirt__served_tell(const mirt_model *model) {
    const mirt_staleness *seen = &model->history.staleness;
    if (seen->updates)
        mirt__log(model->strategy, MIRT_LOG_INFO, "staleness of %lld updates: mean %.2f, at most %lld",
                  (long long)seen->updates, (double)seen->sum / (double)seen->updates, (long long)seen->max);
}

MIRT__LIB mirt_status mirt__served_leave(mirt__fit *fit, mirt_status status) {
    if (fit->served.open && mirt__writes_files(fit->run.model->strategy)) mirt__served_tell(fit->run.model);
    if (fit->served.open) status = mirt__working_leave(&fit->served.working, status);
    if (fit->served.open) mirt__working_close(&fit->served.working);
    fit->served.open = false;
    return status;
}

/* >>other workers */

static mirt_status mirt__served_work(void *arg) {
    mirt__fit *fit = (mirt__fit *)arg;
    const mirt__reply *reply = fit->served.working.reply;
    double loss;
    for (;;) {
        mirt__batch batch;
        mirt_function *f = mirt__fit_prepared(fit, false);
        if (!f || mirt__served_next(fit, &batch) != MIRT_OK) return mirt_last_status();
        if (reply->kind == MIRT__REPLY_STOP) return MIRT_OK;
        if (mirt__trainer_begin(f, &batch) != MIRT_OK) return mirt_last_status();
        f->counted = true;
        if (mirt__served_step(fit, f, &loss) != MIRT_OK) return mirt_last_status();
    }
}

/* >>the fit */

static mirt_status mirt__served_check(const mirt__fit *fit) {
    const mirt_model *model = fit->run.model;
    if (model->strategy->peers->lost)
        return mirt__fail(MIRT_E_WORKER, "a process was lost in an earlier fit: start the processes again");
    if (model->nan_watch > 0)
        return mirt__fail(MIRT_E_INVALID, "parameter servers do not watch for NaN: take mirt_terminate_on_nan");
    if (fit->run.desc->check_drift_every > 0)
        return mirt__fail(MIRT_E_INVALID, "there is no drift between parameter servers: leave check_drift_every 0");
    return MIRT_OK;
}

/* Weights that are not trained are not pulled: all processes get those of the chief. */
static mirt_status mirt__served_share(mirt_strategy *s, mirt_model *root) {
    mirt__weights_to_host(root);
    root->edits++;
    mirt__weights_changed(root);
    return root->weight_bytes == root->trained_bytes
               ? MIRT_OK
               : mirt__peers_hear_first(s, root->weight + root->trained_bytes,
                                        root->weight_bytes - root->trained_bytes);
}

MIRT__LIB mirt_status mirt__served_run(mirt__fit *fit, mirt_status status, bool *ends) {
    mirt_model *model = fit->run.model;
    mirt_strategy *s = model->strategy;
    bool asked = false;
    *ends = true;
    if (s->peers->lost) return mirt__served_check(fit);
    s->peers->left = false;
    if (status == MIRT_OK) status = mirt__served_check(fit);
    if (status == MIRT_OK && !mirt__fit_prepared(fit, false)) status = mirt_last_status();
    if (mirt__meet_others(s, status, &asked) != MIRT_OK) return mirt_last_status();
    if (mirt__fit_together(model, fit->run.train, fit->run.desc) != MIRT_OK) return mirt_last_status();
    mirt_model *root = mirt__root(model, NULL);
    if (mirt__served_share(s, root) != MIRT_OK) return mirt_last_status();
    mirt_function *f = mirt__fit_prepared(fit, false);
    if (s->peers->rank >= s->peers->size - s->servers) return mirt__serve(f);
    if (mirt__working_open(&fit->served.working, f) != MIRT_OK) {
        mirt__peers_end(s);
        return mirt_last_status();
    }
    fit->served.open = true;
    *ends = !mirt__writes_files(s);
    if (!*ends) return MIRT_OK;
    return mirt__served_leave(fit, mirt__watched_pass(model, fit->run.train, mirt__served_work, fit));
}
