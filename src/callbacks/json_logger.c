/* Logs a run as JSON lines. */

#include "../checkpoint/run_state.h"
#include "../inspect/timeline.h"
#include "../nn/config.h"
#include "log_file.h"

typedef struct mirt__json_logger {
    mirt__log_file log;
    bool append;
    int64_t steps;
    int64_t epochs_ended; /* of the run; checkpoints store it */
    bool pending;         /* the run is to be resumed, but has not started: the file is unchanged */
    mirt__usage use;
} mirt__json_logger;

static const mirt__state_field mirt__json_logger_fields[] = {
    MIRT__STATE_BYTES(mirt__log_file, length),
    MIRT__STATE_EPOCHS(mirt__json_logger, epochs_ended),
};

static mirt__text *mirt__json_line_begin(mirt__json_logger *self, const char *event) {
    mirt__text_clear(&self->log.line);
    mirt__text_add(&self->log.line, "{\"event\":\"%s\"", event);
    return &self->log.line;
}

static mirt_status mirt__json_line_end(mirt__json_logger *self) {
    mirt__text_add(&self->log.line, "}");
    return mirt__log_file_write(&self->log);
}

static void mirt__json_int(mirt__text *line, const char *key, int64_t value) {
    mirt__text_add(line, ",\"%s\":%lld", key, (long long)value);
}

static void mirt__json_number(mirt__text *line, const char *key, double value) {
    mirt__write_number(line, key, value, false);
}

static void mirt__json_logs(mirt__text *line, const mirt_logs *logs) {
    for (int i = 0; i < logs->count; i++) mirt__json_number(line, logs->name[i], logs->value[i]);
}

static void mirt__json_weights(mirt__text *line, const mirt_model *model) {
    int64_t all = 0, trained = 0;
    for (int i = 0; i < model->num_variables; i++) {
        all += model->variable[i].count;
        if (mirt__is_trained(&model->variable[i])) trained += model->variable[i].count;
    }
    mirt__json_int(line, "parameters", all);
    mirt__json_int(line, "trained_parameters", trained);
}

static void mirt__json_log(mirt__text *line, const char *name, mirt_mode direction, bool share, bool first) {
    mirt__write_key(line, name, first);
    mirt__text_add(line, direction == MIRT_MODE_AUTO  ? "{"
                         : direction == MIRT_MODE_MIN ? "{\"direction\":\"min\""
                                                      : "{\"direction\":\"max\"");
    mirt__text_add(line, share ? ",\"share\":true}" : "}");
}

/* Declares the meaning of the logged values, so that readers need not guess from names. */
static void mirt__json_declarations(mirt__text *line, const mirt_model *model) {
    mirt__text_add(line, ",\"logs\":{");
    mirt__json_log(line, "loss", MIRT_MODE_MIN, false, true);
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        if (mirt__output_has_loss(model, i)) mirt__json_log(line, model->loss_name[i], MIRT_MODE_MIN, false, false);
    }
    for (int m = 0; m < model->num_metrics; m++) {
        const mirt__metric_use *use = &model->metric[m];
        mirt__json_log(line, use->name, mirt__metric_direction(use), use->cls && use->cls->share, false);
    }
    mirt__text_add(line, "}");
}

static mirt_status mirt__json_begin_line(mirt__json_logger *self, const mirt_event *event) {
    mirt_model *model = event->model;
    const char *environment = mirt_environment(model->strategy);
    if (!environment) return mirt_last_status();
    mirt__text *line = mirt__json_line_begin(self, "begin");
    mirt__json_number(line, "time", mirt__clock());
    mirt__write_name(line, "model", model->name, false);
    mirt__json_weights(line, model);
    mirt__json_int(line, "epochs", event->epochs);
    mirt__json_int(line, "batches", event->batches);
    mirt__json_int(line, "batch", event->batch_size);
    mirt__json_int(line, "devices", model->strategy->all_devices);
    if (MIRT__GROUP(model->strategy)) mirt__json_int(line, "processes", mirt_num_workers(model->strategy));
    if (model->strategy->servers) mirt__json_int(line, "servers", model->strategy->servers);
    mirt__json_int(line, "replicas", mirt_num_replicas(model->strategy));
    mirt__json_int(line, "threads", mirt_num_threads(model->strategy));
    mirt__text_add(line, ",\"seed\":%llu,\"dtype\":\"%s\",\"compile\":", (unsigned long long)model->strategy->seed,
                   mirt__policy_name(model->policy));
    mirt__compile_write(model, line);
    mirt__json_declarations(line, model);
    mirt__text_add(line, ",\"environment\":%s", environment);
    return mirt__json_line_end(self);
}

static int mirt__json_train_begin(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    mirt__usage_begin(&self->use, mirt__run_images(event->model));
    self->pending = self->log.ready.loaded;
    self->log.ready.loaded = false;
    mirt_status status = mirt__log_file_open(&self->log, self->pending || self->append ? -1 : 0);
    if (status != MIRT_OK || self->pending) return mirt__callback_result(status);
    self->epochs_ended = 0;
    return mirt__callback_result(mirt__json_begin_line(self, event));
}

/* A run that has ended is not resumed, and its log is complete. */
static int mirt__json_go_on(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    if (!self->pending) return 0;
    self->pending = false;
    if (mirt__log_file_open(&self->log, self->log.length) != MIRT_OK) return MIRT_CALLBACK_FAILED;
    mirt__text *line = mirt__json_line_begin(self, "resume");
    mirt__json_number(line, "time", mirt__clock());
    mirt__json_int(line, "step", mirt_step(event->model));
    mirt__json_int(line, "epochs", event->epochs);
    mirt__json_int(line, "devices", event->model->strategy->all_devices);
    return mirt__callback_result(mirt__json_line_end(self));
}

/* A number of which -1 or 0 means that it is not known. */
static void mirt__json_known(mirt__text *line, const char *key, double value) {
    if (value > 0) mirt__json_number(line, key, value);
}

/* "use": {"seconds", "images_per_second", "resident_bytes", "peak_bytes", "devices": [{"name", "busy", "input",
   "samples", "bytes", "utilization", "used_bytes", "all_bytes", "watts"}]} since the last one; nothing without a step
   since. */
static bool mirt__json_use(mirt__json_logger *self, mirt__text *line, const mirt_model *model) {
    mirt__usage *use = &self->use;
    if (!mirt__usage_take(use, model, mirt__run_images(model))) return false;
    mirt__write_key(line, "use", false);
    mirt__text_add(line, "{");
    mirt__write_number(line, "seconds", use->seconds, true);
    mirt__json_number(line, "images_per_second", use->images);
    mirt__json_known(line, "resident_bytes", (double)use->resident);
    mirt__json_known(line, "peak_bytes", (double)use->peak);
    for (int d = 0; d < use->num_devices; d++) {
        const mirt__device_usage *own = &use->device[d];
        mirt__text_add(line, d ? ",{" : ",\"devices\":[{");
        mirt__write_name(line, "name", own->name, true);
        mirt__json_number(line, "busy", own->busy);
        mirt__json_number(line, "input", own->input);
        mirt__json_int(line, "samples", own->samples);
        mirt__json_int(line, "bytes", (int64_t)own->bytes);
        if (own->gauges.utilization >= 0) mirt__json_number(line, "utilization", own->gauges.utilization);
        mirt__json_known(line, "used_bytes", own->gauges.memory);
        mirt__json_known(line, "all_bytes", own->gauges.all_memory);
        mirt__json_known(line, "watts", own->gauges.watts);
        mirt__text_add(line, "}");
    }
    mirt__text_add(line, "]}");
    return true;
}

/* Epochs may take hours: their use is logged in between, too. */
static mirt_status mirt__json_use_line(mirt__json_logger *self, const mirt_event *event) {
    if (!mirt__usage_due(&self->use)) return MIRT_OK;
    mirt__text *line = mirt__json_line_begin(self, "use");
    mirt__json_int(line, "epoch", event->epoch);
    mirt__json_int(line, "batch", event->batch);
    mirt__json_int(line, "batches", event->batches);
    return mirt__json_use(self, line, event->model) ? mirt__json_line_end(self) : MIRT_OK;
}

static int mirt__json_batch_end(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    if (!self->steps || (event->step + 1) % self->steps != 0) return 0;
    mirt__text *line = mirt__json_line_begin(self, "step");
    mirt__json_int(line, "step", event->step);
    mirt__json_int(line, "epoch", event->epoch);
    mirt__json_int(line, "batch", event->batch);
    mirt__json_int(line, "batches", event->batches);
    mirt__json_logs(line, event->logs);
    const mirt_status status = mirt__json_line_end(self);
    return mirt__callback_result(status == MIRT_OK ? mirt__json_use_line(self, event) : status);
}

/* "staleness": {"updates", "mean", "max", "histogram": updates by staleness, as far as there are any}. */
MIRT__TOGETHER_ONLY void mirt__json_staleness(mirt__text *line, const mirt_staleness *seen) {
    const double updates = seen->updates ? (double)seen->updates : 1;
    mirt__text_add(line, ",\"staleness\":{\"updates\":%lld", (long long)seen->updates);
    mirt__json_number(line, "mean", (double)seen->sum / updates);
    mirt__json_int(line, "max", seen->max);
    mirt__text_add(line, ",\"histogram\":[");
    for (int i = 0; i < MIRT_STALENESS_BINS && i <= seen->max; i++)
        mirt__text_add(line, "%s%lld", i ? "," : "", (long long)seen->histogram[i]);
    mirt__text_add(line, "]}");
}

static int mirt__json_epoch_end(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    if (self->pending) return 0;
    mirt__text *line = mirt__json_line_begin(self, "epoch");
    mirt__json_int(line, "epoch", event->epoch);
    mirt__json_int(line, "step", mirt_step(event->model));
    mirt__json_int(line, "batch", event->batch); /* number of samples trained on */
    mirt__json_int(line, "batches", event->batches);
    mirt__json_logs(line, event->logs);
    mirt__json_number(line, "seconds", event->seconds);
    mirt__json_number(line, "input_seconds", event->input_seconds);
    if (MIRT__TOGETHER && event->staleness) mirt__json_staleness(line, event->staleness);
    mirt__json_use(self, line, event->model);
    /* otherwise the epoch was interrupted; batches may be -1 */
    if (event->batch >= event->batches) self->epochs_ended = event->epoch + 1;
    return mirt__callback_result(mirt__json_line_end(self));
}

/* Writes the timing, if any step was trained. */
static mirt_status mirt__json_timing_line(mirt__json_logger *self, mirt_model *model) {
    mirt_timing t;
    if (mirt_fit_timing(model, &t) != MIRT_OK) return MIRT_OK;
    mirt__text *line = mirt__json_line_begin(self, "timing");
    mirt__json_int(line, "steps", t.steps);
    mirt__json_number(line, "seconds", t.wall);
    mirt__json_int(line, "peak_bytes", (int64_t)t.peak_memory);
    for (int d = -1; d < t.num_devices; d++) { /* -1: the mean over devices */
        const double *seconds = d < 0 ? t.seconds : t.device[d].seconds;
        if (d >= 0) {
            mirt__text_add(line, d ? ",{\"samples\":%lld" : ",\"devices\":[{\"samples\":%lld",
                           (long long)t.device[d].samples);
            mirt__write_name(line, "name", t.device[d].name, false);
            mirt__json_number(line, "busy", t.device[d].busy);
            mirt__json_int(line, "bytes", (int64_t)t.device[d].memory);
        }
        mirt__text_add(line, ",\"phases\":{");
        for (int i = 0; i < MIRT_PHASE_COUNT; i++)
            mirt__write_number(line, mirt_phase_name((mirt_phase)i), seconds[i], i == 0);
        mirt__text_add(line, d < 0 ? "}" : "}}");
    }
    mirt__text_add(line, "]");
    mirt__write_name(line, "verdict", t.verdict, false);
    return mirt__json_line_end(self);
}

static int mirt__json_train_end(const mirt_event *event, void *user) {
    mirt__json_logger *self = (mirt__json_logger *)user;
    const mirt_history *history = &event->model->history;
    const bool finished = self->epochs_ended >= event->epochs;
    if (self->log.file.fd < 0) return 0;
    if (self->pending) return mirt__callback_result(mirt__append_close(&self->log.file));
    mirt_status timing = mirt__json_timing_line(self, event->model);
    mirt__text *line = mirt__json_line_begin(self, "end");
    mirt__json_number(line, "time", mirt__clock());
    mirt__write_name(line, "status", event->failure ? "failed" : finished ? "finished" : "stopped", false);
    if (event->failure) mirt__write_name(line, "error", event->failure, false);
    mirt__json_int(line, "step", mirt_step(event->model));
    mirt__json_number(line, "seconds", history->seconds);
    mirt__json_number(line, "input_seconds", history->input_seconds);
    mirt__json_number(line, "images_per_second", history->images_per_second);
    mirt_status status = timing == MIRT_OK ? mirt__json_line_end(self) : timing;
    if (mirt__append_close(&self->log.file) != MIRT_OK) status = mirt_last_status();
    return mirt__callback_result(status);
}

MIRT_API mirt_callback *mirt_json_logger(const mirt_json_logger_desc *desc) {
    MIRT__ENTER;
    if (!desc || !desc->path || desc->steps < 0) {
        mirt__fail(MIRT_E_INVALID, desc && desc->path ? "mirt_json_logger: steps must not be negative"
                                                      : "mirt_json_logger: the path is missing");
        return NULL;
    }
    mirt__json_logger *self = (mirt__json_logger *)mirt__log_file_new(
        sizeof *self, "json_logger", MIRT__FIELDS(mirt__json_logger_fields), desc->path);
    if (!self) return NULL;
    mirt_callback *base = &self->log.ready.base;
    self->append = desc->append;
    self->steps = self->log.ready.every = desc->steps;
    base->train_begin = mirt__json_train_begin;
    base->epoch_begin = base->batch_begin = mirt__json_go_on; /* it may resume in the middle of an epoch */
    base->batch_end = mirt__json_batch_end;
    base->epoch_end = mirt__json_epoch_end;
    base->train_end = mirt__json_train_end;
    return base;
}
