/* ReduceLROnPlateau and LearningRateScheduler. */
#include "../train/fit.h"
#include "callbacks.h"

typedef struct mirt__plateau {
    mirt__watcher watcher;
    mirt_reduce_lr_desc desc;
    int64_t wait, cooldown; /* epochs without improvement; remaining epochs of cooldown */
} mirt__plateau;

static const mirt__state_field mirt__plateau_fields[] = {
    MIRT__WATCHER_FIELDS,
    MIRT__STATE_EPOCHS(mirt__plateau, wait),
    MIRT__STATE_EPOCHS(mirt__plateau, cooldown),
};

static const char mirt__plateau_who[] = "reducing the learning rate";

static int mirt__plateau_begin(const mirt_event *event, void *user) {
    mirt__plateau *self = (mirt__plateau *)user;
    if (mirt__watcher_begin(&self->watcher, event) != MIRT_OK || mirt__one_rate(event->model) != MIRT_OK)
        return MIRT_CALLBACK_FAILED;
    if (!self->watcher.ready.loaded) {
        self->wait = self->cooldown = 0;
        self->watcher.has_best = false;
    }
    self->watcher.ready.loaded = false;
    return 0;
}

/* Whether the rate can be reduced further. */
static bool mirt__plateau_reduce(const mirt__plateau *self, const mirt_event *event) {
    const double rate = mirt_get_learning_rate(event->model);
    double reduced = rate * self->desc.factor;
    if (!(rate > (double)(float)self->desc.min_rate)) return false;
    if (reduced < self->desc.min_rate) reduced = self->desc.min_rate;
    mirt_set_learning_rate(event->model, reduced);
    mirt__log(event->model->strategy, MIRT_LOG_INFO, "epoch %d: \"%s\" has not improved: the learning rate is now %g",
              event->epoch + 1, self->watcher.monitor, mirt_get_learning_rate(event->model));
    return true;
}

static int mirt__plateau_epoch_end(const mirt_event *event, void *user) {
    mirt__plateau *self = (mirt__plateau *)user;
    if (!mirt__log_there(event->logs, self->watcher.monitor)) return 0;
    if (self->cooldown > 0) {
        self->cooldown--;
        self->wait = 0;
    }
    if (mirt__watcher_improved(&self->watcher, mirt_logs_value(event->logs, self->watcher.monitor))) self->wait = 0;
    else if (self->cooldown == 0 && ++self->wait >= self->desc.patience && mirt__plateau_reduce(self, event)) {
        self->cooldown = self->desc.cooldown;
        self->wait = 0;
    }
    return 0;
}

MIRT_API mirt_callback *mirt_reduce_lr_on_plateau(const mirt_reduce_lr_desc *given) {
    MIRT__ENTER;
    mirt_reduce_lr_desc desc;
    memset(&desc, 0, sizeof desc);
    if (given) desc = *given;
    if (desc.factor == 0) desc.factor = 0.1;
    if (desc.patience == 0) desc.patience = 10;
    desc.min_delta = desc.min_delta == 0 ? 1e-4 : desc.min_delta < 0 ? 0 : desc.min_delta;
    if (!(desc.factor > 0 && desc.factor < 1)) {
        mirt__fail(MIRT_E_INVALID, "%s: the factor is %g; it must lie between 0 and 1", mirt__plateau_who,
                   desc.factor);
        return NULL;
    }
    if (desc.patience < 0 || desc.cooldown < 0 || !(desc.min_rate >= 0 && desc.min_rate <= (double)FLT_MAX)) {
        mirt__fail(MIRT_E_INVALID, "%s: patience %d, cooldown %d and min_rate %g must not be negative",
                   mirt__plateau_who, desc.patience, desc.cooldown, desc.min_rate);
        return NULL;
    }
    mirt__plateau *self = (mirt__plateau *)mirt__watcher_new(
        sizeof *self, "reduce_lr_on_plateau", MIRT__FIELDS(mirt__plateau_fields), mirt__plateau_who, desc.monitor,
        desc.mode, desc.min_delta);
    if (!self) return NULL;
    self->desc = desc;
    self->watcher.ready.base.train_begin = mirt__plateau_begin;
    self->watcher.ready.base.epoch_end = mirt__plateau_epoch_end;
    return &self->watcher.ready.base;
}

typedef struct mirt__rate_scheduler {
    mirt__readymade ready;
    mirt_epoch_schedule_fn schedule;
    void *user;
} mirt__rate_scheduler;

static int mirt__rate_scheduler_epoch_begin(const mirt_event *event, void *user) {
    const mirt__rate_scheduler *self = (const mirt__rate_scheduler *)user;
    const float rate = mirt__scheduled_rate(self->schedule, event->epoch, event->model, self->user);
    return mirt__callback_result(mirt_set_learning_rate(event->model, (double)rate));
}

MIRT_API mirt_callback *mirt_learning_rate_scheduler(mirt_epoch_schedule_fn schedule, void *user) {
    if (!schedule) {
        mirt__fail(MIRT_E_INVALID, "mirt_learning_rate_scheduler: no function");
        return NULL;
    }
    mirt__rate_scheduler *self =
        (mirt__rate_scheduler *)mirt__ready_new(sizeof *self, "learning_rate_scheduler", NULL, 0);
    if (!self) return NULL;
    self->schedule = schedule;
    self->user = user;
    self->ready.base.epoch_begin = mirt__rate_scheduler_epoch_begin;
    return &self->ready.base;
}
