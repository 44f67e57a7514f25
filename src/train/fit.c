#include "trainer.h"

/* One fit: what it was asked for and where it is. */
typedef struct mirt__fit {
    mirt_model *model;
    const mirt_fit_desc *desc;
    mirt_dataset *train, *validation;
    mirt__needs needs;
    mirt_event event;
    mirt_logs logs;
    mirt__sums sums;
    mirt__progress progress;
    int64_t images; /* trained on so far */
    bool stop, warned;
} mirt__fit;

typedef int (*mirt__callback_fn)(const mirt_event *event, void *user);
typedef enum mirt__moment {
    MIRT__TRAIN_BEGIN, MIRT__TRAIN_END, MIRT__EPOCH_BEGIN, MIRT__EPOCH_END, MIRT__BATCH_BEGIN, MIRT__BATCH_END
} mirt__moment;

static mirt__callback_fn mirt__callback_at(const mirt_callback *c, mirt__moment moment) {
    switch (moment) {
    case MIRT__TRAIN_BEGIN: return c->train_begin;
    case MIRT__TRAIN_END: return c->train_end;
    case MIRT__EPOCH_BEGIN: return c->epoch_begin;
    case MIRT__EPOCH_END: return c->epoch_end;
    case MIRT__BATCH_BEGIN: return c->batch_begin;
    default: return c->batch_end;
    }
}

static void mirt__tell(mirt__fit *fit, mirt__moment moment) {
    if (moment != MIRT__BATCH_END) fit->event.step = fit->model->step; /* a batch keeps its number to its end */
    for (int i = 0; i < MIRT_MAX_CALLBACKS && fit->desc->callbacks[i]; i++) {
        mirt__callback_fn fn = mirt__callback_at(fit->desc->callbacks[i], moment);
        if (fn && fn(&fit->event, fit->desc->callbacks[i]->user)) fit->stop = true;
    }
}

static mirt_status mirt__fit_prepare(mirt__fit *fit) {
    const mirt__data_spec *spec = mirt__dataset_spec(fit->train);
    mirt__needs *needs = &fit->needs;
    needs->x_dtype = spec->field[0].dtype;
    needs->batch[MIRT__TRAIN] = mirt__largest_batch(fit->train);
    if (mirt__check_data(fit->model, spec, true) != MIRT_OK) return mirt_last_status();
    if (fit->validation) {
        if (mirt__check_data(fit->model, mirt__dataset_spec(fit->validation), true) != MIRT_OK) return mirt__fail_at("validation");
        if (mirt__dataset_spec(fit->validation)->field[0].dtype != spec->field[0].dtype) {
            return mirt__fail(MIRT_E_INVALID, "validation samples are %s, training samples %s: they must agree",
                              mirt__dtype_name(mirt__dataset_spec(fit->validation)->field[0].dtype), mirt__dtype_name(spec->field[0].dtype));
        }
        needs->batch[MIRT__EVALUATE] = mirt__largest_batch(fit->validation);
    }
    return mirt__trainer_prepare(fit->model, needs);
}

static void mirt__set_logs(mirt__fit *fit, bool with_batch, double batch_loss) {
    fit->logs.count = 0;
    mirt__sums_to_logs(fit->model, &fit->sums, false, &fit->logs);
    if (with_batch) mirt__logs_add(&fit->logs, "batch_loss", batch_loss);
    mirt__logs_add(&fit->logs, "learning_rate", mirt_get_learning_rate(fit->model));
}

static bool mirt__max_steps_reached(const mirt__fit *fit) {
    return fit->desc->max_steps > 0 && fit->model->history.steps >= fit->desc->max_steps;
}

/* Once a fit: from here on every weight is lost. */
static void mirt__warn_of_nan(mirt__fit *fit, double loss) {
    if (loss == loss || fit->warned) return;
    fit->warned = true;
    mirt__log(fit->model->strategy, MIRT_LOG_WARNING, "the loss is not a number since step %lld: a lower learning rate may help, or the data holds NaN",
              (long long)fit->model->step);
}

static mirt_status mirt__train_epoch(mirt__fit *fit) {
    mirt_model *model = fit->model;
    const mirt__data_spec *spec = mirt__dataset_spec(fit->train);
    mirt__batch batch;
    memset(&fit->sums, 0, sizeof fit->sums);
    mirt_status status = mirt__dataset_begin(fit->train, model->strategy->seed, model->epoch++);
    double began = mirt__now(); /* loading the data is no training step */
    fit->event.batch = 0;
    while (status == MIRT_OK && !fit->stop && !mirt__max_steps_reached(fit)) {
        status = mirt__dataset_next(fit->train, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        fit->event.seconds = mirt__now() - began;
        mirt__tell(fit, MIRT__BATCH_BEGIN);
        if (fit->stop) break;
        /* a callback may have evaluated data of another dtype */
        status = mirt__trainer_prepare(model, &fit->needs);
        if (status == MIRT_OK) status = mirt__begin_batch(model, spec, &batch, true);
        if (status != MIRT_OK) break;
        status = mirt__run_train(model);
        if (status != MIRT_OK) break;
        double loss = mirt__add_results(model, &fit->sums);
        mirt__warn_of_nan(fit, loss);
        model->history.steps++;
        mirt__set_logs(fit, true, loss);
        fit->event.seconds = mirt__now() - began;
        mirt__tell(fit, MIRT__BATCH_END);
        fit->event.batch++;
        if (!fit->desc->no_progress) mirt__progress_line(&fit->progress, model, &fit->event, false);
    }
    fit->event.seconds = mirt__now() - began;
    model->history.seconds += fit->event.seconds;
    fit->images += fit->sums.count;
    return status;
}

/* Room for this epoch's logs: for a usual number of epochs all of it at the beginning. */
static mirt_status mirt__history_reserve(mirt__fit *fit) {
    mirt_model *model = fit->model;
    int epochs = fit->desc->epochs > 0 ? fit->desc->epochs : 1, used = model->history.epochs;
    if (used < model->history_capacity) return MIRT_OK;
    int capacity = used < 128 ? 256 : used > INT_MAX / 2 ? INT_MAX : 2 * used;
    if (capacity > epochs) capacity = epochs;
    if (!mirt__grow((void **)&model->history_logs, (size_t)used, (size_t)capacity, sizeof *model->history_logs)) return mirt_last_status();
    model->history_capacity = capacity;
    model->history.epoch = model->history_logs;
    return MIRT_OK;
}

static mirt_status mirt__fit_epoch(mirt__fit *fit, int epoch) {
    mirt_model *model = fit->model;
    mirt__sums validation;
    fit->event.epoch = epoch;
    if (fit->desc->learning_rate) {
        float rate = fit->desc->learning_rate(epoch, (float)mirt_get_learning_rate(model), fit->desc->learning_rate_user);
        if (mirt_set_learning_rate(model, (double)rate) != MIRT_OK) return mirt_last_status();
    }
    fit->logs.count = 0;
    mirt__tell(fit, MIRT__EPOCH_BEGIN);
    if (fit->stop) return MIRT_OK;
    if (!fit->desc->no_progress) mirt__progress_epoch(&fit->progress, model, epoch, fit->event.epochs);
    if (mirt__train_epoch(fit) != MIRT_OK) return mirt_last_status();
    if (fit->sums.count == 0) return MIRT_OK;
    mirt__set_logs(fit, false, 0);
    if (fit->validation) {
        memset(&validation, 0, sizeof validation);
        if (mirt__trainer_prepare(model, &fit->needs) != MIRT_OK) return mirt_last_status();
        if (mirt__evaluate_pass(model, fit->validation, &validation) != MIRT_OK) return mirt_last_status();
        mirt__sums_to_logs(model, &validation, true, &fit->logs);
    }
    if (mirt__history_reserve(fit) != MIRT_OK) return mirt_last_status();
    model->history_logs[model->history.epochs++] = fit->logs;
    if (!fit->desc->no_progress) mirt__progress_line(&fit->progress, model, &fit->event, true);
    mirt__tell(fit, MIRT__EPOCH_END);
    return MIRT_OK;
}

static mirt_status mirt__fit_run(mirt__fit *fit) {
    mirt_status status = mirt__fit_prepare(fit);
    if (status != MIRT_OK) return status;
    const mirt__data_spec *spec = mirt__dataset_spec(fit->train);
    fit->event.model = fit->model;
    fit->event.epochs = fit->desc->epochs > 0 ? fit->desc->epochs : 1;
    fit->event.batches = spec->samples / spec->batch + (spec->samples % spec->batch != 0);
    fit->event.logs = &fit->logs;
    mirt__tell(fit, MIRT__TRAIN_BEGIN);
    for (int epoch = 0; epoch < fit->event.epochs && status == MIRT_OK && !fit->stop && !mirt__max_steps_reached(fit); epoch++) {
        status = mirt__fit_epoch(fit, epoch);
    }
    mirt__tell(fit, MIRT__TRAIN_END);
    return status;
}

static mirt_history *mirt__fit_any(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc, bool shuffle) {
    mirt_fit_desc defaults;
    mirt_dataset *view[2] = {NULL, NULL};
    mirt__fit fit;
    memset(&defaults, 0, sizeof defaults);
    memset(&fit, 0, sizeof fit);
    fit.model = model;
    fit.desc = desc ? desc : &defaults;
    if (mirt__need_compiled(model, "mirt_fit") != MIRT_OK) return NULL;
    if (!dataset) return mirt__fail_missing("mirt_fit", "data set"), (mirt_history *)NULL;
    if (fit.desc->epochs < 0 || fit.desc->batch < 0) return mirt__fail(MIRT_E_INVALID, "epochs and batch cannot be negative"), (mirt_history *)NULL;
    if (model->busy) return mirt__fail(MIRT_E_STATE, "%s is being trained already: mirt_fit was called from its own callback", model->name), (mirt_history *)NULL;
    if (dataset->busy) return mirt__fail(MIRT_E_STATE, "mirt_fit: this data set is being trained on already"), (mirt_history *)NULL;
    model->busy = dataset->busy = true;
    model->strategy->fits++;
    mirt__free(model->history_logs);
    memset(&model->history, 0, sizeof model->history);
    model->history_logs = NULL;
    model->history_capacity = 0;
    mirt_status status = mirt__history_reserve(&fit);
    if (status == MIRT_OK && !(fit.train = mirt__batched(dataset, fit.desc->batch, shuffle, &view[0]))) status = mirt_last_status();
    if (status == MIRT_OK && fit.desc->validation &&
        !(fit.validation = mirt__batched(fit.desc->validation, mirt__dataset_spec(fit.train)->batch, false, &view[1]))) {
        status = mirt_last_status();
    }
    if (status == MIRT_OK) status = mirt__fit_run(&fit);
    model->busy = dataset->busy = false;
    model->strategy->fits--;
    mirt_dataset_destroy(view[0]);
    mirt_dataset_destroy(view[1]);
    if (model->history.seconds > 0) model->history.images_per_second = (double)fit.images / model->history.seconds;
    return status == MIRT_OK ? &model->history : NULL;
}

MIRT_API mirt_history *mirt_fit(mirt_model *model, mirt_dataset *dataset, const mirt_fit_desc *desc) {
    return mirt__fit_any(model, dataset, desc, false);
}

MIRT_API mirt_history *mirt_fit_arrays(mirt_model *model, mirt_array x, mirt_array y, const mirt_fit_desc *desc) {
    mirt_dataset *dataset = mirt_arrays(x, y);
    mirt_history *history = dataset ? mirt__fit_any(model, dataset, desc, true) : NULL;
    mirt_dataset_destroy(dataset);
    return history;
}

MIRT_API double mirt_history_last(const mirt_history *history, const char *name) {
    if (!history || !history->epochs || !name) return NAN;
    const mirt_logs *logs = &history->epoch[history->epochs - 1];
    for (int i = 0; i < logs->count; i++) {
        if (strcmp(logs->name[i], name) == 0) return logs->value[i];
    }
    return NAN;
}
