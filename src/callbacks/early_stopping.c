/* EarlyStopping: stops training when a log no longer improves. */

#include "callbacks.h"

typedef struct mirt__early_stopping {
    mirt__watcher watcher;
    mirt_early_stopping_desc desc;
    int64_t wait, best_epoch; /* epochs without improvement; 0-based */
    int64_t stopped;          /* the epoch in which it stopped training, 1-based; 0: it did not */
} mirt__early_stopping;

static const mirt__state_field mirt__early_stopping_fields[] = {
    MIRT__WATCHER_FIELDS,
    MIRT__STATE_EPOCHS(mirt__early_stopping, wait),
    MIRT__STATE_EPOCHS(mirt__early_stopping, best_epoch),
    MIRT__STATE_EPOCHS(mirt__early_stopping, stopped),
};

static const char mirt__early_stopping_who[] = "early stopping";

/* A run that it stopped is not resumed. */
static int mirt__early_stopping_train_begin(const mirt_event *event, void *user) {
    mirt__early_stopping *self = (mirt__early_stopping *)user;
    if (mirt__watcher_begin(&self->watcher, event) != MIRT_OK) return MIRT_CALLBACK_FAILED;
    if (self->desc.restore_best_weights && mirt__ready_reserve(&self->watcher.ready, event->model) != MIRT_OK)
        return MIRT_CALLBACK_FAILED;
    if (!self->watcher.ready.loaded) {
        self->wait = self->best_epoch = self->stopped = 0;
        self->watcher.has_best = self->watcher.ready.weights_set = false;
    }
    self->watcher.ready.loaded = false;
    return self->stopped > 0;
}

static int mirt__early_stopping_epoch_end(const mirt_event *event, void *user) {
    mirt__early_stopping *self = (mirt__early_stopping *)user;
    const double value = mirt_logs_value(event->logs, self->watcher.monitor);
    if (!mirt__log_there(event->logs, self->watcher.monitor) || event->epoch < self->desc.start_from_epoch) return 0;
    self->wait++;
    const bool better = mirt__watcher_improved(&self->watcher, value);
    if (self->desc.restore_best_weights && (better || !self->watcher.ready.weights_set))
        mirt__ready_keep(&self->watcher.ready, event->model);
    if (better) {
        self->best_epoch = event->epoch;
        if (!self->desc.has_baseline || mirt__watcher_better(&self->watcher, value, self->desc.baseline))
            self->wait = 0;
        return 0;
    }
    if (self->wait < self->desc.patience || event->epoch == 0) return 0;
    self->stopped = event->epoch + 1;
    mirt__log(event->model->strategy, MIRT_LOG_INFO,
              "epoch %d: early stopping: the best \"%s\", %g, is from epoch %lld", event->epoch + 1,
              self->watcher.monitor, self->watcher.best, (long long)self->best_epoch + 1);
    return 1;
}

static int mirt__early_stopping_train_end(const mirt_event *event, void *user) {
    const mirt__early_stopping *self = (const mirt__early_stopping *)user;
    const mirt__readymade *ready = &self->watcher.ready;
    if (self->desc.restore_best_weights && ready->weights_set) mirt__ready_restore(ready, event->model);
    return 0;
}

MIRT_API mirt_callback *mirt_early_stopping(const mirt_early_stopping_desc *desc) {
    MIRT__ENTER;
    mirt_early_stopping_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    if (!desc) desc = &defaults;
    if (desc->patience < 0 || desc->start_from_epoch < 0) {
        mirt__fail(MIRT_E_INVALID, "%s: patience %d and start_from_epoch %d must not be negative",
                   mirt__early_stopping_who, desc->patience, desc->start_from_epoch);
        return NULL;
    }
    if (desc->has_baseline && !isfinite(desc->baseline)) {
        mirt__fail(MIRT_E_INVALID, "%s: the baseline is %g; it must be finite", mirt__early_stopping_who,
                   desc->baseline);
        return NULL;
    }
    mirt__early_stopping *self = (mirt__early_stopping *)mirt__watcher_new(
        sizeof *self, "early_stopping", MIRT__FIELDS(mirt__early_stopping_fields), mirt__early_stopping_who,
        desc->monitor, desc->mode, desc->min_delta);
    if (!self) return NULL;
    mirt_callback *base = &self->watcher.ready.base;
    self->desc = *desc;
    base->train_begin = mirt__early_stopping_train_begin;
    base->epoch_end = mirt__early_stopping_epoch_end;
    base->train_end = mirt__early_stopping_train_end;
    return base;
}
