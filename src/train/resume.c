/* Writes the state of a run into a checkpoint, and resumes from one. */
#include "readymade.h"
#include "../base/file.h"
#include "../mirror/watch.h"
#include "../nn/config.h"

MIRT__LIB int64_t mirt__run_saved(mirt__fit *fit) {
    struct timespec now;
    int64_t micros = clock_gettime(CLOCK_REALTIME, &now) == 0 ? (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 : 0;
    const int64_t most = (int64_t)1 << 53; /* what readers accept */
    return fit->run.saved =
               micros > fit->run.saved && micros <= most ? micros : fit->run.saved + (fit->run.saved < most);
}

/* >>writing */

MIRT__LIB const char *mirt__callback_label(const mirt__fit *fit, int index, char out[MIRT__CALLBACK_LABEL]) {
    const char *name = fit->desc->callbacks[index]->name;
    int same = 0;
    for (int i = 0; i < index; i++) same += fit->desc->callbacks[i]->name && strcmp(fit->desc->callbacks[i]->name, name) == 0;
    if (same) snprintf(out, MIRT__CALLBACK_LABEL, "%.80s_%d", name, same);
    else snprintf(out, MIRT__CALLBACK_LABEL, "%.80s", name);
    return out;
}

MIRT__LIB int mirt__num_callbacks(const mirt__fit *fit) {
    int count = 0;
    while (count < MIRT_MAX_CALLBACKS && fit->desc->callbacks[count]) count++;
    return count;
}

/* Checkpoints could not tell states of one name apart. */
static mirt_status mirt__run_check_names(const mirt__fit *fit) {
    char label[MIRT_MAX_CALLBACKS][MIRT__CALLBACK_LABEL];
    for (int i = 0; i < mirt__num_callbacks(fit); i++) {
        const mirt_callback *callback = fit->desc->callbacks[i];
        label[i][0] = 0;
        if (!callback->name || !callback->save_state) continue;
        if (strlen(callback->name) > 80 || !mirt__utf8_valid(callback->name, strlen(callback->name))) {
            return mirt__fail(MIRT_E_INVALID, "mirt_fit: callback %d keeps a state under a name of more than 80 bytes, or not valid UTF-8", i);
        }
        mirt__callback_label(fit, i, label[i]);
        for (int k = 0; k < i; k++) {
            const mirt_callback *other = fit->desc->callbacks[k];
            if (other->name && other->save_state && strcmp(label[i], label[k]) == 0) {
                return mirt__fail(MIRT_E_INVALID, "mirt_fit: the callbacks %d and %d keep their states under one name, \"%s\"; give one of them another", k, i, label[i]);
            }
        }
    }
    return MIRT_OK;
}

typedef struct mirt__state_question {
    const mirt_callback *callback;
    char *text;
    size_t capacity, size;
} mirt__state_question;

static bool mirt__load_state(const mirt_callback *callback, const char *text) {
    if (mirt__ready_of(callback)) return !callback->load_state(text, callback->user);
    MIRT__OUTSIDE;
    return !callback->load_state(text, callback->user);
}

static void mirt__ask_state(void *arg) {
    mirt__state_question *q = (mirt__state_question *)arg;
    if (!mirt__ready_of(q->callback)) {
        MIRT__OUTSIDE;
        q->size = q->callback->save_state(q->text, q->capacity, q->callback->user);
        return;
    }
    q->size = q->callback->save_state(q->text, q->capacity, q->callback->user);
}

/* As with all functions of the user, on his thread. */
static size_t mirt__state_of(const mirt__fit *fit, const mirt_callback *callback, char *text, size_t capacity) {
    mirt__state_question q;
    q.callback = callback;
    q.text = text;
    q.capacity = capacity;
    q.size = 0;
    if (mirt__ready_of(callback)) mirt__ask_state(&q);
    else mirt__on_caller(fit->model->strategy, mirt__ask_state, &q);
    return q.size;
}

static mirt_status mirt__run_write_callbacks(const mirt__fit *fit, mirt__text *out) {
    char label[MIRT__CALLBACK_LABEL];
    bool first = true;
    for (int i = 0; i < mirt__num_callbacks(fit); i++) {
        const mirt_callback *callback = fit->desc->callbacks[i];
        if (!callback->name || !callback->save_state) continue;
        mirt__readymade *ready = mirt__ready_of(callback);
        if (ready && ready->sync && ready->sync(ready) != MIRT_OK) return mirt_last_status();
        size_t size = mirt__state_of(fit, callback, NULL, 0);
        if (size == SIZE_MAX) return mirt__ready_of(callback) ? mirt_last_status() : mirt__fail(MIRT_E_CALLBACK, "callback %d has no state to save", i);
        char *text = (char *)mirt__calloc(size + 1, 1);
        if (!text) return mirt_last_status();
        const bool whole = mirt__state_of(fit, callback, text, size + 1) == size;
        const bool good = mirt__utf8_valid(text, strlen(text));
        mirt__text_add(out, first ? "" : ",");
        mirt__json_write_string(out, mirt__callback_label(fit, i, label));
        mirt__text_add(out, ":");
        mirt__json_write_string(out, text);
        mirt__free(text);
        if (!whole && mirt__ready_of(callback)) return mirt_last_status(); /* memory ran out */
        if (!good || !whole) return mirt__fail(MIRT_E_CALLBACK, "the state of callback %d is another one at a second look, or not valid UTF-8", i);
        first = false;
    }
    return MIRT_OK;
}

MIRT__LIB int mirt__run_most_tensors(const mirt__fit *fit) { return 2 + mirt__num_callbacks(fit) * fit->model->num_variables; }

static mirt__safetensor *mirt__run_tensor(mirt__safetensor *tensor, int *count, const char *name, int64_t rows, int64_t columns, const double *data) {
    mirt__safetensor *t = &tensor[(*count)++];
    memset(t, 0, sizeof *t);
    t->name = name;
    t->dtype = MIRT__ST_F64;
    t->rank = columns ? 2 : 1;
    t->dim[0] = rows;
    t->dim[1] = columns;
    t->data = data;
    return t;
}

/* A row an epoch: how many logs it has, and their values; `names` gets all names. */
static mirt_status mirt__run_write_history(const mirt_model *model, mirt__pool *pool, mirt__text *out, mirt__safetensor *tensor, int *count) {
    const mirt_logs *longest = NULL;
    const int epochs = model->history.epochs;
    for (int e = 0; e < epochs; e++) {
        if (!longest || model->history_logs[e].count > longest->count) longest = &model->history_logs[e];
    }
    mirt__text_add(out, ",\"logs\":[");
    for (int i = 0; longest && i < longest->count; i++) {
        mirt__text_add(out, i ? "," : "");
        mirt__json_write_string(out, longest->name[i]);
    }
    mirt__text_add(out, "]");
    if (!longest) return MIRT_OK;
    const int64_t columns = longest->count + 1;
    double *table = (double *)mirt__pool_alloc(pool, (size_t)epochs * (size_t)columns * sizeof *table);
    if (!table) return mirt_last_status();
    for (int e = 0; e < epochs; e++) {
        const mirt_logs *logs = &model->history_logs[e];
        table[e * columns] = logs->count;
        memcpy(table + e * columns + 1, logs->value, (size_t)logs->count * sizeof *table);
    }
    mirt__run_tensor(tensor, count, "run/history", epochs, columns, table);
    return MIRT_OK;
}

static mirt_status mirt__run_write_sums(const mirt__fit *fit, mirt__pool *pool, mirt__safetensor *tensor, int *count) {
    const mirt__sums *sums = &fit->sums;
    const int64_t all = 1 + MIRT_MAX_OUTPUTS + sums->num_metric;
    double *values = (double *)mirt__pool_alloc(pool, (size_t)all * sizeof *values);
    if (!values) return mirt_last_status();
    values[0] = sums->loss;
    memcpy(values + 1, sums->output_loss, sizeof sums->output_loss);
    if (sums->num_metric) memcpy(values + 1 + MIRT_MAX_OUTPUTS, sums->metric, (size_t)sums->num_metric * sizeof *values);
    mirt__run_tensor(tensor, count, "run/sums", all, 0, values);
    return MIRT_OK;
}

MIRT__LIB const char *mirt__kept_name(mirt__pool *pool, const char *label, const mirt__variable *v) {
    const size_t size = strlen(label) + strlen(v->name) + 16;
    char *name = (char *)mirt__pool_alloc(pool, size);
    if (name) snprintf(name, size, "callbacks/%s/%s", label, v->name);
    return name;
}

static mirt_status mirt__run_write_kept(const mirt__fit *fit, mirt__pool *pool, mirt__safetensor *tensor, int *count) {
    char label[MIRT__CALLBACK_LABEL];
    for (int i = 0; i < mirt__num_callbacks(fit); i++) {
        const mirt__readymade *ready = mirt__ready_of(fit->desc->callbacks[i]);
        const mirt__real *values = ready && ready->weights_set ? ready->weights : NULL;
        for (int k = 0; values && k < fit->model->num_variables; k++) {
            const mirt__variable *v = &fit->model->variable[k];
            const char *name = mirt__kept_name(pool, mirt__callback_label(fit, i, label), v);
            if (!name) return mirt_last_status();
            mirt__tensor_of(v, name, values, &tensor[(*count)++]);
            values += v->count;
        }
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__run_write(mirt__fit *fit, mirt__pool *pool, mirt__text *out, mirt__safetensor *tensor, int *count) {
    mirt_model *model = fit->model;
    mirt__run_saved(fit);
    mirt__position run = fit->run;
    mirt__run_describe(fit, &run);
    run.steps = model->history.steps;
    run.seconds = model->history.seconds;
    run.input_seconds = model->history.input_seconds;
    run.count = run.opened ? fit->sums.count : 0;
    run.epoch_seconds = run.done ? fit->event.seconds : 0;
    run.epoch_input_seconds = run.done ? fit->event.input_seconds : 0;
    if (run.done && fit->trained) { /* in an epoch that is still open: whoever goes on from here adds them again */
        run.images -= run.count;
        run.seconds -= run.epoch_seconds;
        run.input_seconds -= run.epoch_input_seconds;
    }
    run.rate_set = model->rate_set;
    run.scale_steps = mirt__root(model, NULL)->scale_steps;
    run.loss_scale = mirt__root(model, NULL)->loss_scale;
    run.rate = (double)model->config.optimizer.learning_rate;
    mirt__text_add(out, ",\"run\":{\"seed\":\"%llu\"", (unsigned long long)model->strategy->seed);
    mirt__run_write_numbers(&run, out);
    if (mirt__run_write_history(model, pool, out, tensor, count) != MIRT_OK) return mirt_last_status();
    if (run.done && mirt__run_write_sums(fit, pool, tensor, count) != MIRT_OK) return mirt_last_status();
    if (mirt__run_write_kept(fit, pool, tensor, count) != MIRT_OK) return mirt_last_status();
    mirt__text_add(out, ",\"callbacks\":{");
    if (mirt__run_write_callbacks(fit, out) != MIRT_OK) return mirt_last_status();
    mirt__text_add(out, "}}");
    return out->failed ? mirt_last_status() : MIRT_OK;
}

/* >>resuming */

/* All that can run out of memory; what is parsed stays as it is. */
static mirt_status mirt__resume_reserve(const mirt__run_state *r) {
    mirt__fit *fit = r->fit;
    if (mirt__history_reserve(fit, r->epochs) != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < mirt__num_callbacks(fit); i++) {
        mirt__readymade *ready = mirt__ready_of(fit->desc->callbacks[i]);
        if (ready && r->callback[i].kept && mirt__ready_reserve(ready, fit->model) != MIRT_OK)
            return mirt_last_status();
    }
    mirt__free(fit->sums_loaded);
    fit->sums_loaded = r->sums ? (double *)mirt__calloc((size_t)r->num_sums, sizeof(double)) : NULL;
    return r->sums && !fit->sums_loaded ? mirt_last_status() : MIRT_OK;
}

/* The caller's own callbacks may refuse their state: the last that can fail. */
static mirt_status mirt__resume_ask_callbacks(const mirt__run_state *r) {
    char label[MIRT__CALLBACK_LABEL];
    for (int i = 0; i < mirt__num_callbacks(r->fit); i++) {
        const mirt_callback *callback = r->fit->desc->callbacks[i];
        if (mirt__ready_of(callback) || !r->callback[i].text) continue;
        if (mirt__load_state(callback, r->callback[i].text)) continue;
        return mirt__fail(MIRT_E_FORMAT, "the callback %s cannot use the state it has there",
                          mirt__callback_label(r->fit, i, label));
    }
    return MIRT_OK;
}

static void mirt__resume_take_callbacks(mirt__run_state *r) {
    const mirt_model *model = r->fit->model;
    for (int i = 0; i < mirt__num_callbacks(r->fit); i++) {
        mirt__readymade *ready = mirt__ready_of(r->fit->desc->callbacks[i]);
        const mirt__safetensor *const *kept = r->callback[i].kept;
        if (!ready || !r->callback[i].text) continue;
        mirt__ready_take(ready, &r->callback[i].state);
        ready->weights_set = kept != NULL;
        mirt__real *to = ready->weights;
        for (int k = 0; kept && k < model->num_variables; k++) {
            memcpy(to, kept[k]->data, kept[k]->size);
            to += model->variable[k].count;
        }
    }
}

static void mirt__resume_take_history(const mirt__run_state *r) {
    mirt_model *model = r->fit->model;
    model->history.epochs = r->epochs;
    for (int e = 0; e < r->epochs; e++) {
        mirt_logs *logs = &model->history_logs[e];
        double row[1 + MIRT_MAX_LOGS];
        const size_t bytes = (size_t)r->columns * sizeof *row;
        memcpy(row, r->history + (size_t)e * bytes, bytes);
        logs->count = (int)row[0];
        for (int i = 0; i < logs->count; i++) {
            logs->name[i] = r->log_name[i];
            logs->value[i] = row[1 + i];
        }
    }
    model->history.steps = r->position.steps;
    model->history.seconds = r->position.seconds;
    model->history.input_seconds = r->position.input_seconds;
}

/* The optimizer's own rate is not part of what is gone on with; one that was set during training is. */
static void mirt__resume_tell_rate(const mirt__run_state *r) {
    const mirt_model *model = r->fit->model;
    const mirt_optimizer *o = &model->config.optimizer;
    const float was = (float)r->position.rate;
    if (was == o->learning_rate || o->schedule || o->decay.kind || r->fit->desc->learning_rate) return;
    if (r->position.rate_set)
        mirt__log(model->strategy, MIRT_LOG_INFO,
                  "%s: the learning rate goes on at %g, to which it was set during training, not at the optimizer's %g",
                  model->name, (double)was, (double)o->learning_rate);
    else
        mirt__log(model->strategy, MIRT_LOG_INFO, "%s: the learning rate is the optimizer's %g from here on; it was %g",
                  model->name, (double)o->learning_rate, (double)was);
}

/* Nothing fails from here on but reading the data. */
static mirt_status mirt__resume_take(mirt__run_state *r) {
    mirt__fit *fit = r->fit;
    mirt_model *model = fit->model;
    mirt_status status = mirt__load_blocks(r->file, model, mirt__optimizer_slots(&model->config.optimizer), true);
    if (status != MIRT_OK) return status;
    mirt__resume_take_history(r);
    mirt__resume_take_callbacks(r);
    if (r->sums) memcpy(fit->sums_loaded, r->sums, (size_t)r->num_sums * sizeof(double));
    model->step = r->step;
    model->epoch = r->epoch;
    mirt__loss_scale_set(mirt__root(model, NULL), r->position.loss_scale, r->position.scale_steps);
    mirt__resume_tell_rate(r);
    if (r->position.rate_set) {
        model->rate_set = true;
        model->config.optimizer.learning_rate = (float)r->position.rate;
    }
    fit->run = r->position;
    fit->event.resumed = true;
    if (r->unknown) {
        mirt__log(model->strategy, MIRT_LOG_WARNING, "%s: this fit lacks %d of the callbacks whose state it holds",
                  r->file->origin, (int)r->unknown);
    }
    char place[64] = "";
    if (fit->run.done) snprintf(place, sizeof place, ", behind %lld of its batches", (long long)fit->run.done);
    mirt__log(model->strategy, MIRT_LOG_INFO, "%s: going on from %s: step %lld, epoch %lld%s", model->name,
              r->file->origin, (long long)model->step, (long long)fit->run.epoch + (fit->run.epoch < fit->event.epochs),
              place);
    return mirt__fit_reopen(fit);
}

MIRT__LIB mirt_status mirt__fit_resume_file(mirt__fit *fit, const mirt__safetensors *file) {
    mirt__run_state r;
    mirt_status status = mirt__run_parse(&r, fit, file);
    if (status == MIRT_OK) status = mirt__resume_reserve(&r);
    if (status == MIRT_OK) status = mirt__resume_ask_callbacks(&r);
    if (status != MIRT_OK) mirt__fail_at("mirt_fit cannot go on from %s", file->origin);
    else status = mirt__resume_take(&r);
    for (int i = 0; status != MIRT_OK && i < mirt__num_callbacks(fit); i++) {
        mirt__readymade *ready = mirt__ready_of(fit->desc->callbacks[i]);
        if (ready) ready->loaded = false;
    }
    mirt__run_state_free(&r);
    return status;
}

/* Finds and opens the checkpoint, which must have checksums. */
static mirt_status mirt__resume_open(const mirt__fit *fit, const char *path, mirt__safetensors *file, bool *found) {
    const mirt_strategy *strategy = fit->model->strategy;
    const size_t length = strlen(path), ending = strlen(".safetensors");
    const bool named = length > ending && strcmp(path + length - ending, ".safetensors") == 0;
    if (!mirt__is_directory(path) && (named || mirt__file_exists(path))) {
        *found = true;
        return mirt__checkpoint_open(file, path);
    }
    *found = false;
    if (mirt__file_exists(path) && mirt__checkpoint_latest(strategy, path, true, file, found) != MIRT_OK)
        return mirt_last_status();
    if (!*found) mirt__log(strategy, MIRT_LOG_INFO, "%s holds no checkpoint to go on from: training begins anew", path);
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__fit_resume(mirt__fit *fit) {
    mirt__safetensors file;
    const char *path = fit->desc->resume;
    bool found;
    if (mirt__run_check_names(fit) != MIRT_OK) return mirt_last_status();
    for (int i = 0; !path && i < mirt__num_callbacks(fit); i++) {
        const mirt__readymade *ready = mirt__ready_of(fit->desc->callbacks[i]);
        path = ready ? ready->restores : NULL;
    }
    if (!path) return MIRT_OK;
    mirt_status status = mirt__resume_open(fit, path, &file, &found);
    if (status != MIRT_OK || !found) return status;
    status = mirt__fit_resume_file(fit, &file);
    mirt__safetensors_close(&file);
    return status;
}
