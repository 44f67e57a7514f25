/* SwapEMAWeights: validates with the averages of the weights. */

#include "callbacks.h"

typedef struct mirt__swap_ema {
    mirt__readymade ready;
    bool on_epoch;
} mirt__swap_ema;

static int mirt__swap_train_begin(const mirt_event *event, void *user) {
    const mirt_model *model = event->model;
    (void)user;
    if (!model->config.optimizer.use_ema)
        return mirt__callback_result(mirt__fail(
            MIRT_E_STATE, "swap EMA weights: %s is not compiled with use_ema: it has no averages of its weights",
            model->name));
    if (model->strategy->average_every)
        return mirt__callback_result(mirt__fail(
            MIRT_E_INVALID, "swap EMA weights: with average_every each process has its own averages of the weights"));
    return 0;
}

static int mirt__swap_test_begin(const mirt_event *event, void *user) {
    (void)user;
    mirt__averages_swap(event->model, true);
    return 0;
}

/* At the beginning of an epoch, too. */
static int mirt__swap_test_end(const mirt_event *event, void *user) {
    (void)user;
    mirt__averages_swap(event->model, false);
    return 0;
}

static int mirt__swap_epoch_end(const mirt_event *event, void *user) {
    if (((const mirt__swap_ema *)user)->on_epoch) mirt__averages_swap(event->model, true);
    return 0;
}

MIRT_API mirt_callback *mirt_swap_ema_weights(bool swap_on_epoch) {
    MIRT__ENTER;
    mirt__swap_ema *self = (mirt__swap_ema *)mirt__ready_new(sizeof *self, "swap_ema_weights", NULL, 0);
    if (!self) return NULL;
    self->on_epoch = swap_on_epoch;
    self->ready.base.train_begin = mirt__swap_train_begin;
    self->ready.base.epoch_begin = self->ready.base.test_end = mirt__swap_test_end;
    self->ready.base.epoch_end = mirt__swap_epoch_end;
    self->ready.base.test_begin = mirt__swap_test_begin;
    return &self->ready.base;
}
