/* Logs a run as JSON lines. */

#include "../base/file.h"
#include "../nn/config.h"
#include "callbacks.h"

typedef struct mirt__json_logger {
    mirt__readymade ready;
    char *path;
    bool append;
    int64_t steps;
    int64_t length;       /* of the file */
    int64_t epochs_ended; /* of the run; checkpoints store both */
    mirt__appender file;
    bool pending;         /* the run is to be resumed, but has not started: the file is unchanged */
    mirt__text line;
} mirt__json_logger;

static const mirt__state_field mirt__json_logger_fields[] = {
    MIRT__STATE_BYTES(mirt__json_logger, length),
    MIRT__STATE_EPOCHS(mirt__json_logger, epochs_ended),
};

static mirt_status mirt__json_accepts(const mirt__readymade *self, const mirt__ready_state *state) {
    return mirt__log_check_cut(((const mirt__json_logger *)self)->path, state->value[0].integer);
}

static void mirt__json_line_begin(mirt__json_logger *self, const char *event) {
    mirt__text_clear(&self->line);
    mirt__text_add(&self->line, "{\"event\":\"%s\"", event);
}

static void mirt__json_line_int(mirt__json_logger *self, const char *key, int64_t value) {
    mirt__text_add(&self->line, ",\"%s\":%lld", key, (long long)value);
}

static void mirt__json_line_number(mirt__json_logger *self, const char *key, double value) {
    mirt__write_key(&self->line, key, false);
    mirt__json_write_number(&self->line, value);
}

static mirt_status mirt__json_line_end(mirt__json_logger *self) {
    mirt__text_add(&self->line, "}\n");
    if (self->line.failed) return mirt_last_status();
    mirt_status status = mirt__append(&self->file, self->line.data, self->line.size);
    self->length = (int64_t)self->file.size;
    return status;
}

static void mirt__json_line_logs(mirt__json_logger *self, const mirt_logs *logs) {
    for (int i = 0; i < logs->count; i++) mirt__json_line_number(self, logs->name[i], logs->value[i]);
}

static void mirt__json_line_weights(mirt__json_logger *self, const mirt_model *model) {
    int64_t all = 0, trained = 0;
    for (int i = 0; i < model->num_variables; i++) {
        all += model->variable[i].count;
        if (mirt__is_trained(&model->variable[i])) trained += model->variable[i].count;
    }
    mirt__json_line_int(self, "parameters", all);
    mirt__json_line_int(self, "trained_parameters", trained);
}

static void mirt__json_line_log(mirt__json_logger *self, const char *name, mirt_mode direction, bool share,
                                bool first) {
    mirt__write_key(&self->line, name, first);
    mirt__text_add(&self->line, direction == MIRT_MODE_AUTO  ? "{"
                                : direction == MIRT_MODE_MIN ? "{\"direction\":\"min\""
                                                             : "{\"direction\":\"max\"");
    mirt__text_add(&self->line, share ? ",\"share\":true}" : "}");
}

/* Declares the meaning of the logged values, so that readers need not guess from names. */
static void mirt__json_line_declarations(mirt__json_logger *self, const mirt_model *model) {
    mirt__text_add(&self->line, ",\"logs\":{");
    mirt__json_line_log(self, "loss", MIRT_MODE_MIN, false, true);
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        if (mirt__output_has_loss(model, i))
            mirt__json_line_log(self, model->loss_name[i], MIRT_MODE_MIN, false, false);
    }
    for (int m = 0; m < model->num_metrics; m++) {
        const mirt__metric_use *use = &model->metric[m];
        mirt__json_line_log(self, use->name, mirt__metric_direction(use),
                            use->cls && use->cls->direction == MIRT_MODE_MAX, false);
    }
    mirt__text_add(&self->line, "}");
}

static mirt_status mirt__json_begin_line(mirt__json_logger *self, const mirt_event *event) {
    mirt_model *model = event->model;
    const char *environment = mirt_environment(model->strategy);
    if (!environment) return mirt_last_status();
    mirt__json_line_begin(self, "begin");
    mirt__json_line_number(self, "time", mirt__clock());
    mirt__write_name(&self->line, "model", model->name, false);
    mirt__json_line_weights(self, model);
    mirt__json_line_int(self, "epochs", event->epochs);
    mirt__json_line_int(self, "batches", event->batches);
    mirt__json_line_int(self, "batch", event->batch_size);
    mirt__json_line_int(self, "devices", mirt_num_devices(model->strategy));
    mirt__json_line_int(self, "replicas", mirt_num_replicas(model->strategy));
    mirt__json_line_int(self, "threads", mirt_num_threads(model->strategy));
    mirt__text_add(&self->line,
                   ",\"seed\":%llu,\"dtype\":\"%s\",\"compile\":", (unsigned long long)model->strategy->seed,
                   mirt__dtype_policy(model));
    mirt__compile_write(model, &self->line);
    mirt__json_line_declarations(self, model);
    mirt__text_add(&self->line, ",\"environment\":%s", environment);
    return mirt__json_line_end(self);
}

static int mirt__json_train_begin(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    self->pending = self->ready.loaded;
    self->ready.loaded = false;
    mirt__append_close(&self->file);
    mirt_status status = mirt__make_directory_of(self->path);
    if (status == MIRT_OK) status = mirt__append_open(&self->file, self->path, self->pending || self->append ? -1 : 0);
    if (status != MIRT_OK || self->pending) return mirt__callback_result(status);
    self->epochs_ended = 0;
    return mirt__callback_result(mirt__json_begin_line(self, event));
}

/* A run that has ended is not resumed, and its log is complete. */
static int mirt__json_go_on(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    if (!self->pending) return 0;
    self->pending = false;
    mirt__append_close(&self->file);
    if (mirt__append_open(&self->file, self->path, self->length) != MIRT_OK) return MIRT_CALLBACK_FAILED;
    mirt__json_line_begin(self, "resume");
    mirt__json_line_number(self, "time", mirt__clock());
    mirt__json_line_int(self, "step", mirt_step(event->model));
    mirt__json_line_int(self, "epochs", event->epochs);
    mirt__json_line_int(self, "devices", mirt_num_devices(event->model->strategy));
    return mirt__callback_result(mirt__json_line_end(self));
}

static int mirt__json_batch_end(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    if (!self->steps || (event->step + 1) % self->steps != 0) return 0;
    mirt__json_line_begin(self, "step");
    mirt__json_line_int(self, "step", event->step);
    mirt__json_line_int(self, "epoch", event->epoch);
    mirt__json_line_int(self, "batch", event->batch);
    mirt__json_line_int(self, "batches", event->batches);
    mirt__json_line_logs(self, event->logs);
    return mirt__callback_result(mirt__json_line_end(self));
}

static int mirt__json_epoch_end(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    if (self->pending) return 0;
    mirt__json_line_begin(self, "epoch");
    mirt__json_line_int(self, "epoch", event->epoch);
    mirt__json_line_int(self, "step", mirt_step(event->model));
    mirt__json_line_int(self, "batch", event->batch); /* number of samples trained on */
    mirt__json_line_int(self, "batches", event->batches);
    mirt__json_line_logs(self, event->logs);
    mirt__json_line_number(self, "seconds", event->seconds);
    mirt__json_line_number(self, "input_seconds", event->input_seconds);
    /* otherwise the epoch was interrupted; batches may be -1 */
    if (event->batch >= event->batches) self->epochs_ended = event->epoch + 1;
    return mirt__callback_result(mirt__json_line_end(self));
}

/* Writes the timing, if any step was trained. */
static mirt_status mirt__json_timing_line(mirt__json_logger *self, mirt_model *model) {
    mirt_timing t;
    if (mirt_fit_timing(model, &t) != MIRT_OK) return MIRT_OK;
    mirt__json_line_begin(self, "timing");
    mirt__json_line_int(self, "steps", t.steps);
    mirt__json_line_number(self, "seconds", t.wall);
    mirt__json_line_int(self, "peak_bytes", (int64_t)t.peak_memory);
    for (int d = -1; d < t.num_devices; d++) { /* -1: the mean over devices */
        const double *seconds = d < 0 ? t.seconds : t.device[d].seconds;
        if (d >= 0) {
            mirt__text_add(&self->line, d ? ",{\"samples\":%lld" : ",\"devices\":[{\"samples\":%lld",
                           (long long)t.device[d].samples);
            mirt__write_name(&self->line, "name", t.device[d].name, false);
            mirt__json_line_number(self, "busy", t.device[d].busy);
            mirt__json_line_int(self, "bytes", (int64_t)t.device[d].memory);
        }
        mirt__text_add(&self->line, ",\"phases\":{");
        for (int i = 0; i < MIRT_PHASE_COUNT; i++) {
            mirt__write_key(&self->line, mirt_phase_name((mirt_phase)i), i == 0);
            mirt__json_write_number(&self->line, seconds[i]);
        }
        mirt__text_add(&self->line, d < 0 ? "}" : "}}");
    }
    mirt__text_add(&self->line, "]");
    mirt__write_name(&self->line, "verdict", t.verdict, false);
    return mirt__json_line_end(self);
}

static int mirt__json_train_end(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    const mirt_history *history = &event->model->history;
    const bool finished = self->epochs_ended >= event->epochs;
    if (self->file.fd < 0) return 0;
    if (self->pending) return mirt__callback_result(mirt__append_close(&self->file));
    mirt_status timing = mirt__json_timing_line(self, event->model);
    mirt__json_line_begin(self, "end");
    mirt__json_line_number(self, "time", mirt__clock());
    mirt__write_name(&self->line, "status", event->failure ? "failed" : finished ? "finished" : "stopped", false);
    if (event->failure) mirt__write_name(&self->line, "error", event->failure, false);
    mirt__json_line_int(self, "step", mirt_step(event->model));
    mirt__json_line_number(self, "seconds", history->seconds);
    mirt__json_line_number(self, "input_seconds", history->input_seconds);
    mirt__json_line_number(self, "images_per_second", history->images_per_second);
    mirt_status status = timing == MIRT_OK ? mirt__json_line_end(self) : timing;
    if (mirt__append_close(&self->file) != MIRT_OK) status = mirt_last_status();
    return mirt__callback_result(status);
}

static mirt_status mirt__json_sync(mirt__readymade *ready) {
    return mirt__append_sync(&((mirt__json_logger *)ready)->file);
}

static void mirt__json_release(mirt__readymade *ready) {
    mirt__json_logger *self = (mirt__json_logger *)ready;
    mirt__append_close(&self->file);
    mirt__text_free(&self->line);
    mirt__free(self->path);
}

MIRT_API mirt_callback *mirt_json_logger(const mirt_json_logger_desc *desc) {
    MIRT__ENTER;
    if (!desc || !desc->path || desc->steps < 0)
        return mirt__fail(MIRT_E_INVALID, desc && desc->path ? "mirt_json_logger: steps must not be negative"
                                                             : "mirt_json_logger: the path is missing"),
               (mirt_callback *)NULL;
    mirt__readymade *ready = mirt__ready_new(sizeof(mirt__json_logger), "json_logger", mirt__json_logger_fields,
                                             MIRT__COUNT(mirt__json_logger_fields));
    if (!ready) return NULL;
    mirt__json_logger *self = (mirt__json_logger *)ready;
    self->file.fd = -1;
    self->append = desc->append;
    self->steps = desc->steps;
    ready->release = mirt__json_release;
    ready->accepts = mirt__json_accepts;
    ready->sync = mirt__json_sync;
    ready->base.train_begin = mirt__json_train_begin;
    ready->base.epoch_begin = ready->base.batch_begin = mirt__json_go_on; /* it may resume in the middle of an epoch */
    ready->base.batch_end = mirt__json_batch_end;
    ready->base.epoch_end = mirt__json_epoch_end;
    ready->base.train_end = mirt__json_train_end;
    if ((self->path = mirt__strdup(desc->path))) return &ready->base;
    mirt_callback_destroy(&ready->base);
    return NULL;
}
