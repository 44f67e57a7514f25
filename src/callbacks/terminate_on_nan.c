/* TerminateOnNaN: reports non-finite losses and can stop training. */

#include "callbacks.h"

typedef struct mirt__terminate_on_nan {
    mirt__readymade ready;
    mirt_nan_policy policy;
} mirt__terminate_on_nan;

static int mirt__nan_train_begin(const mirt_event *event, void *user) {
    const mirt__terminate_on_nan *self = (const mirt__terminate_on_nan *)user;
    event->model->nan_watch = self->policy == MIRT_NAN_OFF ? 0 : self->policy == MIRT_NAN_WARN ? 1 : 2;
    event->model->nan_first = event->model->nan_watch > 0;
    event->model->not_finite[0] = 0;
    return 0;
}

/* Warn only once. */
static int mirt__nan_batch_end(const mirt_event *event, void *user) {
    mirt_model *model = event->model;
    (void)user;
    if (!model->nan_watch || !model->not_finite[0]) return 0;
    const bool stop = model->nan_watch == 2;
    mirt__log(model->strategy, MIRT_LOG_WARNING, "%s%s", model->not_finite,
              stop ? "; training stops, and the step was not applied" : "");
    if (!stop) model->nan_watch = 0;
    return stop;
}

static int mirt__nan_train_end(const mirt_event *event, void *user) {
    (void)user;
    event->model->nan_watch = 0;
    return 0;
}

MIRT_API mirt_callback *mirt_terminate_on_nan(mirt_nan_policy policy) {
    if ((int)policy < 0 || policy > MIRT_NAN_OFF) {
        mirt__fail(MIRT_E_INVALID, "terminate on NaN: invalid policy (%d)", (int)policy);
        return NULL;
    }
    mirt__terminate_on_nan *self = (mirt__terminate_on_nan *)mirt__ready_new(sizeof *self, "terminate_on_nan", NULL, 0);
    if (!self) return NULL;
    self->policy = policy;
    self->ready.base.train_begin = mirt__nan_train_begin;
    self->ready.base.batch_end = mirt__nan_batch_end;
    self->ready.base.train_end = mirt__nan_train_end;
    return &self->ready.base;
}
