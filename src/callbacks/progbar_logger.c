/* ProgbarLogger: the progress line. */

#include "../train/trainer.h"
#include "callbacks.h"

typedef struct mirt__progbar_logger {
    mirt__readymade ready;
    mirt__progress progress;
    int shown; /* epochs that already have a line */
} mirt__progbar_logger;

static int mirt__progbar_train_begin(const mirt_event *event, void *user) {
    (void)event;
    ((mirt__progbar_logger *)user)->shown = 0;
    return 0;
}

static int mirt__progbar_epoch_begin(const mirt_event *event, void *user) {
    mirt__progbar_logger *self = (mirt__progbar_logger *)user;
    self->shown = event->epoch + 1;
    mirt__progress_epoch(&self->progress, event->model, event->epoch, event->epochs);
    return 0;
}

/* An epoch that is resumed in the middle gets no call at its beginning. */
static int mirt__progbar_batch_end(const mirt_event *event, void *user) {
    mirt__progbar_logger *self = (mirt__progbar_logger *)user;
    mirt_event after = *event;
    after.batch++;
    if (self->shown != event->epoch + 1) mirt__progbar_epoch_begin(event, user);
    mirt__progress_line(&self->progress, event->model, &after, false);
    return 0;
}

static int mirt__progbar_epoch_end(const mirt_event *event, void *user) {
    mirt__progress_line(&((mirt__progbar_logger *)user)->progress, event->model, event, true);
    return 0;
}

MIRT_API mirt_callback *mirt_progbar_logger(void) {
    mirt__progbar_logger *self = (mirt__progbar_logger *)mirt__ready_new(sizeof *self, "progbar_logger", NULL, 0);
    if (!self) return NULL;
    self->ready.base.train_begin = mirt__progbar_train_begin;
    self->ready.base.epoch_begin = mirt__progbar_epoch_begin;
    self->ready.base.batch_end = mirt__progbar_batch_end;
    self->ready.base.epoch_end = mirt__progbar_epoch_end;
    self->ready.shows_progress = true;
    return &self->ready.base;
}
