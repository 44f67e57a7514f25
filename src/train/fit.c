#include "../inspect/finite.h"
#include "../inspect/inspect.h"
#include "../inspect/timeline.h"
#include "../mirror/watch.h"
#include "../ops/ops.h"
#include "fit.h"
/* Trains a model on a data set: epochs, steps, validation, callbacks. */

typedef int (*mirt__callback_fn)(const mirt_event *event, void *user);

static mirt__callback_fn mirt__callback_at(const mirt_callback *c, mirt__moment moment) {
    const mirt__callback_fn all[] = {c->train_begin, c->train_end, c->epoch_begin, c->epoch_end,
                                     c->batch_begin, c->batch_end, c->test_begin,  c->test_end};
    return (int)moment < MIRT__COUNT(all) ? all[moment] : NULL;
}

/* The error of whatever ends this fit, to be set again when others have had their last word. */
static void mirt__fit_keep_error(mirt__fit *fit, mirt_status status) {
    if (fit->status != MIRT_OK || status == MIRT_OK) return;
    fit->status = status;
    mirt__error_get(&fit->failure);
}

/* `before`: the number of the last error, before the callback was called. */
static void mirt__take_answer(mirt__fit *fit, const mirt_callback *callback, uint32_t before, int code) {
    if (!code) return;
    fit->run.stop = true;
    if (code != MIRT_CALLBACK_FAILED) return;
    mirt_status status = mirt_last_status();
    if (status == MIRT_OK || mirt__error_number() == before)
        status =
            mirt__fail(MIRT_E_CALLBACK, "the callback %s failed", callback->name ? callback->name : "of the caller");
    mirt__fit_keep_error(fit, status);
}

typedef struct mirt__telling {
    mirt__callback_fn fn;
    const mirt_event *event;
    void *user;
    int code;
} mirt__telling;

static void mirt__tell_user(void *arg) {
    mirt__telling *telling = (mirt__telling *)arg;
    MIRT__OUTSIDE;
    telling->code = telling->fn(telling->event, telling->user);
}

MIRT__LIB float mirt__scheduled_rate(mirt_epoch_schedule_fn schedule, int epoch, const mirt_model *model, void *user) {
    const float rate = (float)mirt_get_learning_rate(model);
    MIRT__OUTSIDE;
    return schedule(epoch, rate, user);
}

/* Callbacks of the library run on any thread, those of the user on his own. */
static int mirt__tell_one(mirt__fit *fit, const mirt_callback *callback, mirt__callback_fn fn) {
    mirt__telling telling = {fn, &fit->run.event, callback->user, 0};
    if (mirt__ready_of(callback)) telling.code = fn(telling.event, telling.user);
    else mirt__on_caller(fit->run.model->strategy, mirt__tell_user, &telling);
    return telling.code;
}

static void mirt__tell(mirt__fit *fit, mirt__moment moment) {
    mirt__training_run *run = &fit->run;
    if (moment != MIRT__BATCH_END) run->event.step = run->model->step; /* a batch keeps its number to its end */
    mirt__timing_phase(run->model, MIRT_PHASE_CALLBACKS);
    for (int i = 0; i < MIRT_MAX_CALLBACKS && run->desc->callbacks[i]; i++) {
        const mirt_callback *callback = run->desc->callbacks[i];
        if (moment == MIRT__TRAIN_BEGIN && fit->status == MIRT_OK) fit->told = i + 1;
        if (i >= fit->told) break; /* one before has failed to begin */
        const mirt__readymade *ready = mirt__ready_of(callback);
        const bool idle = ready && ready->logs && !mirt__writes_files(run->model->strategy);
        mirt__callback_fn fn = idle ? NULL : mirt__callback_at(callback, moment);
        const uint32_t before = mirt__error_number();
        if (fn) mirt__take_answer(fit, callback, before, mirt__tell_one(fit, callback, fn));
    }
    for (int i = 0; i < fit->told && fit->status == MIRT_OK; i++) {
        mirt__readymade *ready = mirt__ready_of(run->desc->callbacks[i]);
        const uint32_t before = mirt__error_number();
        if (ready && ready->after)
            mirt__take_answer(fit, &ready->base, before, ready->after(ready, &run->event, moment));
    }
    mirt__timing_phase(run->model, MIRT_PHASE_LAUNCH);
}

static mirt_status mirt__check_class_weights(const mirt__fit *fit) {
    const mirt_fit_desc *d = fit->run.desc;
    const mirt_model *model = fit->run.model;
    if (!d->class_weights) return MIRT_OK;
    if (mirt__num_labels(model) != 1)
        return mirt__fail(MIRT_E_INVALID, "class weights are for models with one label; %s takes %d", model->name,
                          mirt__num_labels(model));
    int output = 0;
    while (!mirt__output_has_loss(model, output)) output++;
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    int64_t classes = mirt__last_dim(model->output[output]) > 1 ? mirt__last_dim(model->output[output]) : 2;
    if (cls && cls->sparse && !cls->classes) classes = mirt__max(d->num_class_weights, 2); /* of any number of groups */
    if (d->num_class_weights != classes) {
        return mirt__fail(MIRT_E_SHAPE, "num_class_weights is %d, but %s has %lld classes: each needs a weight",
                          d->num_class_weights, model->name, (long long)classes);
    }
    for (int i = 0; i < d->num_class_weights; i++) {
        if (!(d->class_weights[i] >= 0 && d->class_weights[i] <= FLT_MAX)) {
            return mirt__fail(MIRT_E_INVALID, "the weight of class %d is %g; it must be a number and not negative", i,
                              (double)d->class_weights[i]);
        }
    }
    return MIRT_OK;
}

/* A single epoch has no use for them. */
static mirt_status mirt__fit_open_features(mirt__fit *fit) {
    const int64_t usual = (int64_t)1 << 30;
    const mirt_fit_desc *d = fit->run.desc;
    int64_t budget = d->feature_cache_bytes ? d->feature_cache_bytes : usual;
    if (d->epochs - d->initial_epoch < 2 || MIRT__SERVED(fit)) return MIRT_OK;
    mirt_status status = mirt__features_open(fit->run.model, fit->run.train, &budget, "data", &fit->features[0]);
    if (status != MIRT_OK || !fit->features[0] || !fit->validation) return status;
    return mirt__features_open(fit->run.model, fit->validation, &budget, "validation data", &fit->features[1]);
}

static mirt_status mirt__fit_prepare(mirt__fit *fit) {
    mirt__training_run *run = &fit->run;
    const mirt__data_spec *spec = mirt__dataset_spec(run->train);
    if (spec->samples < 0 && run->desc->steps_per_epoch < 1 && run->desc->max_steps < 1) {
        return mirt__fail(MIRT_E_INVALID, "the data set has no end: steps_per_epoch says where an epoch ends");
    }
    if (mirt__check_data(run->model, spec, true) != MIRT_OK || mirt__check_class_weights(fit) != MIRT_OK)
        return mirt_last_status();
    if (fit->validation && mirt__check_data(run->model, mirt__dataset_spec(fit->validation), true) != MIRT_OK)
        return mirt__fail_at("validation");
    if (fit->validation && mirt__dataset_spec(fit->validation)->samples < 0 && run->desc->validation_steps < 1) {
        return mirt__fail(MIRT_E_INVALID, "the validation data have no end: validation_steps says how much is used");
    }
    if (mirt__fit_open_features(fit) != MIRT_OK || !mirt__fit_prepared(fit, false)) return mirt_last_status();
    mirt__traps_before(run->model, spec, mirt__fit_prepared(fit, false));
    return !fit->validation || mirt__fit_prepared(fit, true) ? MIRT_OK : mirt_last_status();
}

static void mirt__set_logs(mirt__fit *fit, bool with_batch, double batch_loss) {
    fit->logs.count = 0;
    mirt__sums_to_logs(fit->run.model, &fit->run.sums, false, &fit->logs);
    if (with_batch) mirt__logs_add(&fit->logs, "batch_loss", batch_loss);
    mirt__logs_add(&fit->logs, "learning_rate", mirt_get_learning_rate(fit->run.model));
}

static bool mirt__max_steps_reached(const mirt__fit *fit) {
    return fit->run.desc->max_steps > 0 && fit->run.model->history.steps >= fit->run.desc->max_steps;
}

/* Once a fit: from here on every weight is lost. */
static void mirt__warn_of_nan(mirt__fit *fit, double loss) {
    if (loss == loss || fit->warned || !mirt__writes_files(fit->run.model->strategy)) return;
    fit->warned = true;
    mirt__log(fit->run.model->strategy, MIRT_LOG_WARNING,
              "the loss is not a number since step %lld: a lower learning rate may help, or the data holds NaN",
              (long long)fit->run.event.step + 1);
}

/* The next batch; where an epoch is a number of steps, the data are begun again at their end. */
static mirt_status mirt__fit_read(mirt__fit *fit, mirt__batch *batch) {
    bool by_steps = fit->run.desc->steps_per_epoch > 0;
    if (MIRT__SERVED(fit)) return mirt__served_next(fit, batch);
    memset(batch, 0, sizeof *batch);
    if (by_steps && fit->run.event.batch == fit->run.desc->steps_per_epoch) return MIRT_OK;
    for (int tries = 0; tries < 2; tries++) {
        if (!fit->run.at.begun && mirt__fit_begin(fit) != MIRT_OK) return mirt_last_status();
        mirt_status status = mirt__feed_next(&fit->feed, batch);
        if (status != MIRT_OK) return status;
        if (batch->rows) return MIRT_OK;
        fit->run.at.begun = 0;
        if (!by_steps) return MIRT_OK;
    }
    return MIRT_OK;
}

static mirt_status mirt__fit_next(mirt__fit *fit, mirt__batch *batch) {
    const double before = mirt__timing_seconds(fit->run.model, MIRT_PHASE_INPUT);
    mirt__timing_phase(fit->run.model, MIRT_PHASE_INPUT);
    mirt_status status = mirt__fit_read(fit, batch);
    mirt__timing_phase(fit->run.model, MIRT_PHASE_LAUNCH);
    fit->run.event.input_seconds +=
        mirt__timing_seconds(fit->run.model, MIRT_PHASE_INPUT) - before; /* making features is none */
    return status;
}

/* Whether training is to end by mirt_request_stop. Processes that train together go by what all of them know. */
static bool mirt__fit_requested(const mirt__fit *fit) {
    const mirt_model *model = fit->run.model;
    const bool alone = !MIRT__PEERS(model->strategy);
    return fit->requested || (alone && __atomic_load_n(&model->stop_requested, __ATOMIC_RELAXED));
}

static mirt_status mirt__fit_meet(mirt__fit *fit, mirt_status status) {
    const mirt_model *model = fit->run.model;
    bool asked = __atomic_load_n(&model->stop_requested, __ATOMIC_RELAXED);
    if (!MIRT__PEERS(model->strategy)) return status;
    status = mirt__meet_others(model->strategy, status, &asked);
    fit->requested = fit->requested || asked;
    return status;
}

/* Whether another batch is asked for behind the one under way, if nobody stops. */
static bool mirt__fit_goes_on(const mirt__fit *fit) {
    const mirt_fit_desc *d = fit->run.desc;
    return !mirt__fit_requested(fit) &&
           (d->steps_per_epoch < 1 || fit->run.event.batch + 1 < d->steps_per_epoch) &&
           (d->max_steps < 1 || fit->run.model->history.steps + 1 < d->max_steps);
}

/* Whether the user's code runs at the end of a step: it says what a metric is. */
static bool mirt__fit_asks_metrics(const mirt_model *model) {
    for (int i = 0; i < model->num_metrics; i++) {
        if (!model->metric[i].cls && model->metric[i].custom.result) return true;
    }
    return false;
}

/* Whether the next step may be launched before the results of the step under way are handled: nothing that reads
   weights, can fail, or is the user's comes in between. */
static bool mirt__fit_follows(const mirt__fit *fit, const mirt_function *f) {
    const mirt_fit_desc *d = fit->run.desc;
    const int64_t step = fit->run.model->step + 1;
    bool follows = !mirt__fit_asks_metrics(fit->run.model), shows = fit->shows;
    if (d->check_drift_every > 0 && step % d->check_drift_every == 0) follows = false;
    for (int i = 0; i < fit->told; i++) {
        const mirt__readymade *ready = mirt__ready_of(d->callbacks[i]);
        const int64_t every = ready ? ready->every : 0;
        shows = shows || (ready && ready->shows_progress);
        follows = follows && (!every || (f->step.has_gradients && step % every != 0));
    }
    return follows && !(shows && mirt__log_is_users(fit->run.model->strategy));
}

static mirt_status mirt__train_batch(mirt__fit *fit, const mirt__batch *batch, double *loss) {
    mirt__training_run *run = &fit->run;
    mirt_function *f = mirt__fit_prepared(fit, false);
    mirt__timing_phase(run->model, MIRT_PHASE_SCATTER);
    if (!f || mirt__trainer_begin(f, batch) != MIRT_OK) return mirt_last_status();
    if (!run->model->history.steps) mirt__traps_in_batch(run->model, &f->spec, batch);
    mirt__timing_phase(run->model, MIRT_PHASE_LAUNCH);
    f->counted = true;
    if (MIRT__SERVED(fit)) return mirt__served_step(fit, f, loss);
    f->guard = run->model->nan_watch > 0 ? mirt__finite_guard() : NULL;
    run->model->not_finite[0] = 0;
    fit->feed.follows = fit->feed.ahead && mirt__fit_follows(fit, f);
    const double waited = mirt__timing_seconds(run->model, MIRT_PHASE_INPUT);
    f->step.stop = __atomic_load_n(&run->model->stop_requested, __ATOMIC_RELAXED);
    if (mirt__feed_step(&fit->feed, f, mirt__fit_goes_on(fit)) != MIRT_OK) return mirt_last_status();
    fit->requested = fit->requested || f->step.stop;
    run->event.input_seconds += mirt__timing_seconds(run->model, MIRT_PHASE_INPUT) - waited;
    f->guard = NULL;
    *loss = mirt__add_results(f, &run->sums);
    const int64_t every = run->desc->check_drift_every;
    return every > 0 && run->model->step % every == 0 ? mirt_check_drift(run->model) : MIRT_OK;
}

/* From nothing, or from where a checkpoint was. */
static void mirt__fit_start_sums(mirt__fit *fit) {
    mirt__training_run *run = &fit->run;
    const double *loaded = run->sums_loaded;
    mirt__sums_start(run->model, MIRT__TRAIN, &run->sums);
    if (!loaded) return;
    run->sums.count = run->at.count;
    mirt__sums_get(&run->sums, loaded);
    mirt__free(run->sums_loaded);
    run->sums_loaded = NULL;
}

/* Code of the user is told of batches. */
static bool mirt__fit_tells_batches(const mirt__fit *fit) {
    bool tells = false;
    for (int i = 0; i < fit->told; i++) {
        const mirt_callback *callback = fit->run.desc->callbacks[i];
        tells = tells || ((callback->batch_begin || callback->batch_end) && !mirt__ready_of(callback));
    }
    return tells;
}

/* Whether a checkpoint may be written at the end of this step. */
static bool mirt__fit_saves(const mirt__fit *fit) {
    bool saves = false;
    for (int i = 0; i < fit->told; i++) {
        const mirt__readymade *ready = mirt__ready_of(fit->run.desc->callbacks[i]);
        saves = saves || (ready && ready->after && ready->every && fit->run.model->step % ready->every == 0);
    }
    return saves;
}

/* Local SGD: weights that are saved or evaluated have to be those of all processes. `saving`: only for a checkpoint. */
static mirt_status mirt__fit_average(const mirt__fit *fit, bool saving) {
    mirt_model *model = fit->run.model;
    const mirt_strategy *s = model->strategy;
    if (!MIRT__PEERS(s) || !s->average_every || fit->status != MIRT_OK) return MIRT_OK;
    if (mirt__root(model, NULL)->averaged == model->step || (saving && !mirt__fit_saves(fit))) return MIRT_OK;
    return mirt__average_weights(model);
}

/* Whether training ends here, as a callback or mirt_request_stop wants it. */
static bool mirt__fit_stops(mirt__fit *fit) {
    if (mirt__fit_requested(fit)) fit->asked = fit->run.stop = true;
    return fit->run.stop;
}

static mirt_status mirt__train_batches(void *arg) {
    mirt__fit *fit = (mirt__fit *)arg;
    mirt__training_run *run = &fit->run;
    mirt_model *model = run->model;
    mirt__batch batch;
    double loss = 0;
    mirt__fit_start_sums(fit);
    mirt__feed_open(&fit->feed, model, run->train, fit->features[0], !mirt__fit_tells_batches(fit));
    run->trained = false;
    run->event.batch = run->at.done;
    run->event.input_seconds = run->at.epoch_input_seconds;
    mirt_status status = MIRT_OK;
    if (MIRT__SERVED(fit)) status = mirt__served_begin(fit);
    else if (!run->at.begun) status = mirt__fit_begin(fit);
    const double began = mirt__now() - run->at.epoch_seconds; /* loading the data is no training step */
    const int64_t first = run->event.batch;
    mirt__timing_start(model);
    /* A request is looked for after steps and at the end of an epoch, so that whatever it ends has a checkpoint. A step
       that is launched is finished first. */
    while (status == MIRT_OK &&
           (mirt__feed_launched(&fit->feed) ||
            (!(run->event.batch > first ? mirt__fit_stops(fit) : run->stop) && !mirt__max_steps_reached(fit)))) {
        status = mirt__fit_next(fit, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        run->event.seconds = mirt__now() - began;
        mirt__tell(fit, MIRT__BATCH_BEGIN);
        if (run->stop && !mirt__feed_launched(&fit->feed)) break;
        status = mirt__train_batch(fit, &batch, &loss);
        if (status != MIRT_OK) break;
        mirt__warn_of_nan(fit, loss);
        run->at.done++;
        run->at.passed++;
        model->history.steps++;
        mirt__set_logs(fit, true, loss);
        status = mirt__fit_average(fit, true);
        if (status != MIRT_OK) break;
        run->event.seconds = mirt__now() - began;
        mirt__tell(fit, MIRT__BATCH_END);
        run->event.batch++;
        if (fit->shows) mirt__progress_line(&fit->progress, model, &run->event, false);
    }
    mirt__feed_close(&fit->feed);
    if (MIRT__SERVED(fit) && status == MIRT_OK) status = mirt__served_end(fit);
    else if (status == MIRT_OK) status = mirt__fit_average(fit, false);
    if (status == MIRT_OK && run->event.batch && (run->stop || mirt__max_steps_reached(fit)))
        mirt__tell(fit, MIRT__INTERRUPTED);
    mirt__timing_stop(model);
    if (model->trainer) mirt__dataset_cost(run->train, &model->trainer->cost);
    run->event.seconds = mirt__now() - began;
    model->history.seconds += run->event.seconds;
    model->history.input_seconds += run->event.input_seconds;
    run->at.images += run->sums.count;
    run->trained = true;
    return status;
}

/* Watched from the caller's thread; but where only the usual time limit is to be kept, not at the cost of going back
   there twice a batch. */
static mirt_status mirt__train_epoch(mirt__fit *fit) {
    return mirt__fit_tells_batches(fit) && !fit->run.model->strategy->limit_asked
               ? mirt__train_batches(fit)
               : mirt__watched_pass(fit->run.model, fit->run.train, mirt__train_batches, fit);
}

static mirt_status mirt__fit_validate(mirt__fit *fit) {
    mirt__sums sums;
    mirt__tell(fit, MIRT__TEST_BEGIN);
    if (fit->status != MIRT_OK) return MIRT_OK;
    if (!mirt__fit_prepared(fit, true)) return mirt_last_status();
    mirt__sums_start(fit->run.model, MIRT__EVALUATE, &sums);
    if (mirt__evaluate_pass(fit->run.model, fit->validation, fit->features[1], fit->run.desc->validation_steps,
                            &sums) != MIRT_OK)
        return mirt_last_status();
    mirt__sums_to_logs(fit->run.model, &sums, true, &fit->logs);
    mirt__tell(fit, MIRT__TEST_END);
    return MIRT_OK;
}

static mirt_status mirt__fit_epoch(mirt__fit *fit, int epoch) {
    mirt__training_run *run = &fit->run;
    mirt_model *model = run->model;
    run->event.epoch = epoch;
    run->at.epoch = epoch;
    if (!run->at.opened && run->desc->learning_rate) {
        const float rate = mirt__scheduled_rate(run->desc->learning_rate, epoch, model, run->desc->learning_rate_user);
        if (mirt_set_learning_rate(model, (double)rate) != MIRT_OK) return mirt_last_status();
    }
    fit->logs.count = 0;
    if (!run->at.opened) {
        run->at.opened = 1;
        mirt__tell(fit, MIRT__EPOCH_BEGIN);
    }
    if (run->stop) return MIRT_OK;
    if (fit->shows) mirt__progress_epoch(&fit->progress, model, epoch, run->event.epochs);
    if (mirt__train_epoch(fit) != MIRT_OK) return mirt_last_status();
    if (fit->status == MIRT_OK && run->desc->check_drift_every == 0 && mirt_check_drift(model) != MIRT_OK)
        return mirt_last_status();
    if (run->sums.count == 0 || fit->status != MIRT_OK) return run->at.opened = 0, MIRT_OK;
    mirt__set_logs(fit, false, 0);
    int every = run->desc->validation_freq > 0 ? run->desc->validation_freq : 1;
    if (fit->validation && !fit->asked && (epoch + 1) % every == 0 && mirt__fit_validate(fit) != MIRT_OK)
        return mirt_last_status();
    if (fit->status != MIRT_OK) return MIRT_OK;
    if (mirt__history_reserve(run, model->history.epochs + 1) != MIRT_OK) return mirt_last_status();
    model->history_logs[model->history.epochs++] = fit->logs;
    if (fit->shows) mirt__progress_line(&fit->progress, model, &run->event, true);
    run->at.epoch = epoch + 1;
    run->at.opened = run->at.done = 0;
    run->at.epoch_seconds = run->at.epoch_input_seconds = 0;
    mirt__fit_stops(fit); /* a request during validation: callbacks are told that this epoch is the last one */
    mirt__tell(fit, MIRT__EPOCH_END);
    return MIRT_OK;
}

static mirt_status mirt__fit_run(mirt__fit *fit) {
    mirt__training_run *run = &fit->run;
    if (MIRT__PEERS(run->model->strategy)) MIRT__PEERS(run->model->strategy)->left = false;
    mirt_status status = mirt__fit_meet(fit, mirt__fit_prepare(fit));
    if (status != MIRT_OK && !MIRT__SERVED(fit)) return status;
    run->event.model = run->model;
    run->event.epochs = run->desc->epochs > 0 ? run->desc->epochs : 1;
    run->event.batches = run->desc->steps_per_epoch > 0 ? run->desc->steps_per_epoch : mirt_dataset_batches(run->train);
    run->event.batch_size = mirt__dataset_spec(run->train)->batch;
    run->event.logs = &fit->logs;
    run->event.validation = run->desc->validation;
    run->event.initial_epoch = run->desc->initial_epoch;
    run->at.epoch = run->desc->initial_epoch;
    run->at.first_pass = run->model->epoch;
    const bool resumes = !MIRT__SERVED(fit) || mirt__writes_files(run->model->strategy);
    if (status == MIRT_OK && resumes) status = mirt__run_resume(run);
    bool ends = false;
    status = MIRT__SERVED(fit) ? mirt__served_run(fit, status, &ends) : mirt__fit_meet(fit, status);
    if (ends || status != MIRT_OK) return status;
    if (MIRT__PEERS(run->model->strategy) && mirt__fit_together(run->model, run->train, run->desc) != MIRT_OK)
        return mirt_last_status();
    mirt__trap_random(run->model);
    mirt__tell(fit, MIRT__TRAIN_BEGIN);
    if (MIRT__PEERS(run->model->strategy)) mirt__fit_look_for_files(fit);
    mirt__fit_stops(fit);
    for (int epoch = (int)run->at.epoch; epoch < run->event.epochs && status == MIRT_OK && !run->stop &&
                                         (run->at.opened || !mirt__max_steps_reached(fit));
         epoch++) {
        status = mirt__fit_epoch(fit, epoch);
    }
    mirt__averages_swap(run->model, false); /* wherever training has ended */
    if (status == MIRT_OK && fit->status == MIRT_OK && run->model->config.optimizer.use_ema) {
        status = mirt_apply_averages(run->model);
        mirt__root(run->model, NULL)->averaged = -1; /* each process has its own */
        if (status == MIRT_OK) status = mirt__fit_average(fit, false);
    }
    mirt__fit_keep_error(fit, status);
    run->model->history.stopped = fit->asked || (run->stop && run->at.epoch < run->event.epochs);
    if (fit->status != MIRT_OK) run->event.failure = fit->failure.text;
    if (run->model->history.seconds > 0)
        run->model->history.images_per_second = (double)run->at.images / run->model->history.seconds;
    mirt__tell(fit, MIRT__TRAIN_END);
    if (fit->status != MIRT_OK) mirt__error_set(&fit->failure);
    return MIRT__SERVED(fit) ? mirt__served_leave(fit, fit->status) : mirt__fit_meet(fit, fit->status);
}

/* The model's from now on, if it tells these classes apart; names that no file could hold are left out. */
static mirt_status mirt__fit_class_names(const mirt__fit *fit) {
    mirt_model *model = fit->run.model;
    const mirt_dataset *named = mirt__names_of(fit->run.train);
    const int64_t units = model->num_outputs == 1 ? mirt__last_dim(model->output[0]) : 0;
    if (!named || !named->names_in_files) return MIRT_OK;
    return units == named->num_names || (units == 1 && named->num_names == 2)
               ? mirt__names_set("mirt_fit", (const char *const *)named->names, named->num_names, &model->class_names,
                                 &model->num_class_names)
               : MIRT_OK;
}

static mirt_status mirt__fit_check(const mirt_model *model, const mirt_dataset *dataset, const mirt_fit_desc *d) {
    if (mirt__need_compiled(model, "mirt_fit") != MIRT_OK) return mirt_last_status();
    if (!dataset) return mirt__fail_missing("mirt_fit", "data set");
    if (mirt__check_distributed(model, dataset, "mirt_fit") != MIRT_OK ||
        (d->validation && mirt__check_distributed(model, d->validation, "mirt_fit, validation") != MIRT_OK))
        return mirt_last_status();
    if (d->epochs < 0 || d->batch < 0 || d->max_steps < 0 || d->initial_epoch < 0 || d->steps_per_epoch < 0 ||
        d->validation_steps < 0 || d->validation_freq < 0)
        return mirt__fail(MIRT_E_INVALID, "mirt_fit: epochs, batch and the numbers of steps cannot be negative");
    const int every = model->strategy->average_every;
    if (every && d->check_drift_every > 0 && d->check_drift_every % every)
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_fit: weights differ between averages: check_drift_every must be a multiple of "
                          "average_every, %d",
                          every);
    if (model->busy)
        return mirt__fail(MIRT_E_STATE, "%s is being trained already: mirt_fit was called from its own callback",
                          model->name);
    if (dataset->busy) return mirt__fail(MIRT_E_STATE, "mirt_fit: this data set is being trained on already");
    if (d->validation && d->validation != dataset && d->validation->busy)
        return mirt__fail(MIRT_E_STATE, "mirt_fit: the validation data are being trained on");
    if (d->validation == dataset && d->steps_per_epoch)
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_fit: with steps_per_epoch the validation data need a data set of their own");
    const int64_t batches_of = mirt__dataset_spec(dataset)->batch;
    if (!d->batch || !batches_of || d->batch == batches_of) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "mirt_fit: batch is %lld, but the data set is in batches of %lld already: leave batch 0",
                      (long long)d->batch, (long long)batches_of);
}

static mirt_history *mirt__fit_any(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc, bool shuffle) {
    mirt_fit_desc defaults;
    mirt_dataset *view[2] = {NULL, NULL};
    mirt__fit fit;
    memset(&defaults, 0, sizeof defaults);
    memset(&fit, 0, sizeof fit);
    fit.run.model = model;
    fit.run.desc = desc ? desc : &defaults;
    fit.run.reopen = mirt__fit_reopen;
    const mirt_fit_desc *d = fit.run.desc;
    if (mirt__fit_check(model, dataset, d) != MIRT_OK) return NULL;
    fit.shows = !d->no_progress;
    for (int i = 0; i < MIRT_MAX_CALLBACKS && d->callbacks[i]; i++) {
        const mirt__readymade *ready = mirt__ready_of(d->callbacks[i]);
        fit.shows = fit.shows && !(ready && ready->shows_progress);
    }
    dataset->busy = true;
    mirt__hold(model);
    mirt__free(model->history_logs);
    memset(&model->history, 0, sizeof model->history);
    model->history_logs = NULL;
    model->history_capacity = 0;
    mirt__timing_reset(model);
    mirt_status status = mirt__history_reserve(&fit.run, 1);
    const int64_t batch = d->batch ? d->batch : MIRT__USUAL_BATCH;
    if (status == MIRT_OK && !(fit.run.train = mirt__dataset_batched(dataset, batch, shuffle, &view[0])))
        status = mirt_last_status();
    if (status == MIRT_OK) status = mirt__fit_class_names(&fit);
    if (status == MIRT_OK && d->validation) {
        const int64_t same = mirt__dataset_spec(fit.run.train)->batch;
        fit.validation = mirt__dataset_batched(d->validation, same, false, &view[1]);
        if (!fit.validation) status = mirt_last_status();
    }
    model->run = &fit.run;
    if (status == MIRT_OK) status = mirt__fit_run(&fit);
    __atomic_store_n(&model->stop_requested, false, __ATOMIC_RELAXED);
    if (model->strategy->death) mirt__dataset_lose(fit.run.train);
    model->run = NULL;
    mirt__free(fit.run.sums_loaded);
    for (int i = 0; i < 2 && !model->strategy->death; i++) mirt__features_close(fit.features[i]);
    dataset->busy = false;
    mirt__let_go(model);
    mirt_dataset_destroy(view[0]);
    mirt_dataset_destroy(view[1]);
    return status == MIRT_OK ? &model->history : NULL;
}

MIRT_API void mirt_request_stop(mirt_model *model) {
    if (model) __atomic_store_n(&model->stop_requested, true, __ATOMIC_RELAXED);
}

MIRT_API mirt_history *mirt_fit(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc) {
    MIRT__USE_MODEL(model, NULL);
    return mirt__fit_any(model, dataset, desc, false);
}

MIRT_API mirt_history *mirt_fit_arrays(mirt_model *model, mirt_array x, mirt_array y, const mirt_fit_desc *desc) {
    MIRT__USE_MODEL(model, NULL);
    mirt_dataset *dataset = mirt_arrays(x, y);
    mirt_history *history = dataset ? mirt__fit_any(model, dataset, desc, true) : NULL;
    mirt_dataset_destroy(dataset);
    return history;
}

MIRT_API double mirt_logs_value(const mirt_logs *logs, const char *name) {
    for (int i = 0; logs && name && i < logs->count; i++) {
        if (strcmp(logs->name[i], name) == 0) return logs->value[i];
    }
    return (double)NAN;
}

MIRT_API double mirt_history_last(const mirt_history *history, const char *name) {
    return mirt_logs_value(history && history->epochs ? &history->epoch[history->epochs - 1] : NULL, name);
}
