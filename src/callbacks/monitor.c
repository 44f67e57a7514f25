/* Logs that callbacks watch: whether they exist, and which direction is better. */
#include "../function/fit_program.h"
#include "callbacks.h"

MIRT__LIB bool mirt__log_there(const mirt_logs *logs, const char *name) {
    for (int i = 0; i < logs->count; i++) {
        if (strcmp(logs->name[i], name) == 0) return true;
    }
    return false;
}

/* Whether there will be a log of this name; otherwise sets an error that names the most similar one. */
static mirt_status mirt__log_check(const char *who, const char *name, const mirt_event *event) {
    const char *names[MIRT_MAX_LOGS];
    mirt__text list = {NULL, 0, 0, false};
    const char *like_text;
    mirt__suggestion like;
    bool validation = event->validation != NULL, found = false;
    const int known = mirt__log_names(event->model, true, names);
    for (int i = 0; i < known; i++) found = found || strcmp(names[i], name) == 0;
    if (found && !validation && strncmp(name, "val_", 4) == 0) {
        return mirt__fail(MIRT_E_INVALID, "%s watches \"%s\", but this fit has no validation data; use \"%s\"", who,
                          name, name + 4);
    }
    if (found) return MIRT_OK;
    memset(&like, 0, sizeof like);
    like.word = name;
    const int have = mirt__log_names(event->model, validation, names);
    for (int i = 0; i < have; i++) {
        mirt__guess(&like, names[i]);
        mirt__text_add(&list, "%s%s", i ? ", " : "", names[i]);
    }
    like_text = mirt__did_you_mean(&like);
    mirt_status status = mirt__fail(MIRT_E_INVALID, "%s watches \"%s\", which this fit does not report%s%s", who, name,
                                    *like_text ? like_text : "; there are ", *like_text || !list.data ? "" : list.data);
    mirt__text_free(&list);
    return status;
}

static void mirt__watcher_release(mirt__readymade *ready) { mirt__free(((mirt__watcher *)ready)->monitor); }

MIRT__LIB mirt__watcher *mirt__watcher_new(size_t size, const char *name, const mirt__state_field *fields,
                                           int num_fields, const char *who, const char *monitor, mirt_mode mode,
                                           double min_delta) {
    if ((int)mode < 0 || mode > MIRT_MODE_MAX) {
        mirt__fail(MIRT_E_INVALID, "%s: invalid mode (%d)", who, (int)mode);
        return NULL;
    }
    if (!isfinite(min_delta)) {
        mirt__fail(MIRT_E_INVALID, "%s: min_delta is %g; it must be finite", who, min_delta);
        return NULL;
    }
    mirt__watcher *self = (mirt__watcher *)mirt__ready_new(size, name, fields, num_fields);
    if (!self) return NULL;
    self->ready.release = mirt__watcher_release;
    self->who = who;
    self->asked = self->mode = mode;
    self->min_delta = fabs(min_delta);
    if ((self->monitor = mirt__strdup(monitor ? monitor : "val_loss"))) return self;
    mirt_callback_destroy(&self->ready.base);
    return NULL;
}

/* The log `name`, or the validation log of the same metric. */
static bool mirt__log_is(const char *name, const char *log, const char *val_log) {
    return strcmp(name, log) == 0 || strcmp(name, val_log) == 0;
}

/* Whether small or large values of a log of this model are better; AUTO: not declared. */
static mirt_mode mirt__log_direction(const mirt_model *model, const char *name) {
    bool loss = mirt__log_is(name, "loss", "val_loss");
    for (int i = 0; i < model->num_outputs; i++) {
        loss = loss ||
               (mirt__output_has_loss(model, i) && mirt__log_is(name, model->loss_name[i], model->val_loss_name[i]));
    }
    for (int m = 0; m < model->num_metrics && !loss; m++) {
        if (mirt__log_is(name, model->metric[m].name, model->metric[m].val_name))
            return mirt__metric_direction(&model->metric[m]);
    }
    return loss ? MIRT_MODE_MIN : MIRT_MODE_AUTO;
}

MIRT__LIB mirt_status mirt__watcher_begin(mirt__watcher *self, const mirt_event *event) {
    if (mirt__log_check(self->who, self->monitor, event) != MIRT_OK) return mirt_last_status();
    self->mode = self->asked != MIRT_MODE_AUTO ? self->asked : mirt__log_direction(event->model, self->monitor);
    if (self->mode != MIRT_MODE_AUTO) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "%s watches \"%s\", which does not declare whether small or large values are better: set the "
                      "metric's direction, or the "
                      "callback's mode, to MIRT_MODE_MIN or MIRT_MODE_MAX",
                      self->who, self->monitor);
}

MIRT__LIB bool mirt__watcher_better(const mirt__watcher *self, double value, double than) {
    return self->mode == MIRT_MODE_MAX ? value - self->min_delta > than : value + self->min_delta < than;
}

MIRT__LIB bool mirt__watcher_improved(mirt__watcher *self, double value) {
    if (value != value || (self->has_best && !mirt__watcher_better(self, value, self->best))) return false;
    self->has_best = true;
    self->best = value;
    return true;
}
