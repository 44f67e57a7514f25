/* Writes the state of a run into a checkpoint. */
#include "../mirror/watch.h"
#include "run_state.h"

MIRT__LIB int64_t mirt__run_saved(mirt__training_run *run) {
    struct timespec now;
    int64_t micros = clock_gettime(CLOCK_REALTIME, &now) == 0 ? (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 : 0;
    const int64_t most = (int64_t)1 << 53; /* what readers accept */
    return run->at.saved =
               micros > run->at.saved && micros <= most ? micros : run->at.saved + (run->at.saved < most);
}

typedef struct mirt__state_question {
    const mirt_callback *callback;
    char *text;
    size_t capacity, size;
} mirt__state_question;

static void mirt__ask_state(void *arg) {
    mirt__state_question *q = (mirt__state_question *)arg;
    MIRT__OUTSIDE;
    q->size = q->callback->save_state(q->text, q->capacity, q->callback->user);
}

/* As with all functions of the user, on his thread. */
static size_t mirt__state_of(const mirt__training_run *run, const mirt_callback *callback, char *text,
                             size_t capacity) {
    mirt__state_question q = {callback, text, capacity, 0};
    if (mirt__ready_of(callback)) return callback->save_state(text, capacity, callback->user);
    mirt__on_caller(run->model->strategy, mirt__ask_state, &q);
    return q.size;
}

static mirt_status mirt__run_write_callbacks(const mirt__training_run *run, mirt__saving *s) {
    mirt__text *out = &s->training;
    bool first = true;
    for (int i = 0; i < mirt__num_callbacks(run); i++) {
        const mirt_callback *callback = run->desc->callbacks[i];
        if (!callback->name || !callback->save_state) continue;
        mirt__readymade *ready = mirt__ready_of(callback);
        if (ready && ready->sync && ready->sync(ready) != MIRT_OK) return mirt_last_status();
        size_t size = mirt__state_of(run, callback, NULL, 0);
        if (size == SIZE_MAX)
            return mirt__ready_of(callback) ? mirt_last_status()
                                            : mirt__fail(MIRT_E_CALLBACK, "callback %d has no state to save", i);
        char *text = (char *)mirt__pool_alloc(&s->pool, size + 1);
        if (!text) return mirt_last_status();
        const bool whole = mirt__state_of(run, callback, text, size + 1) == size;
        const bool good = mirt__utf8_valid(text, strlen(text));
        mirt__text_add(out, first ? "" : ",");
        mirt__json_write_string(out, mirt__callback_label(run, i).text);
        mirt__text_add(out, ":");
        mirt__json_write_string(out, text);
        if (!whole && mirt__ready_of(callback)) return mirt_last_status(); /* memory ran out */
        if (!good || !whole)
            return mirt__fail(MIRT_E_CALLBACK,
                              "the state of callback %d is another one at a second look, or not valid UTF-8", i);
        first = false;
    }
    return MIRT_OK;
}

MIRT__LIB int mirt__run_most_tensors(const mirt__training_run *run) {
    return 2 + mirt__num_callbacks(run) * run->model->num_variables;
}

static void mirt__run_tensor(mirt__saving *s, const char *name, int64_t rows, int64_t columns, const double *data) {
    mirt__safetensor *t = &s->tensor[s->count++];
    memset(t, 0, sizeof *t);
    t->name = name;
    t->dtype = MIRT__ST_F64;
    t->rank = columns ? 2 : 1;
    t->dim[0] = rows;
    t->dim[1] = columns;
    t->data = data;
}

/* A row an epoch: how many logs it has, and their values; `names` gets all names. */
static mirt_status mirt__run_write_history(const mirt_model *model, mirt__saving *s) {
    mirt__text *out = &s->training;
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
    double *table = (double *)mirt__pool_alloc(&s->pool, (size_t)epochs * (size_t)columns * sizeof *table);
    if (!table) return mirt_last_status();
    for (int e = 0; e < epochs; e++) {
        const mirt_logs *logs = &model->history_logs[e];
        table[e * columns] = logs->count;
        memcpy(table + e * columns + 1, logs->value, (size_t)logs->count * sizeof *table);
    }
    mirt__run_tensor(s, "run/history", epochs, columns, table);
    return MIRT_OK;
}

static mirt_status mirt__run_write_sums(const mirt__training_run *run, mirt__saving *s) {
    const mirt__sums *sums = &run->sums;
    const int64_t all = 1 + MIRT_MAX_OUTPUTS + sums->num_metric;
    double *values = (double *)mirt__pool_alloc(&s->pool, (size_t)all * sizeof *values);
    if (!values) return mirt_last_status();
    mirt__sums_put(sums, values);
    mirt__run_tensor(s, "run/sums", all, 0, values);
    return MIRT_OK;
}

static mirt_status mirt__run_write_kept(const mirt__training_run *run, mirt__saving *s) {
    for (int i = 0; i < mirt__num_callbacks(run); i++) {
        const mirt__readymade *ready = mirt__ready_of(run->desc->callbacks[i]);
        const mirt__real *values = ready && ready->weights_set ? ready->weights : NULL;
        for (int k = 0; values && k < run->model->num_variables; k++) {
            const mirt__variable *v = &run->model->variable[k];
            const char *name = mirt__kept_name(&s->pool, mirt__callback_label(run, i).text, v);
            if (!name) return mirt_last_status();
            mirt__tensor_of(v, name, values, &s->tensor[s->count++]);
            values += v->count;
        }
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__run_write(mirt__training_run *run, mirt__saving *s) {
    mirt__text *out = &s->training;
    mirt_model *model = run->model;
    mirt__run_saved(run);
    mirt__position at = run->at;
    mirt__run_describe(run, &at);
    at.steps = model->history.steps;
    at.seconds = model->history.seconds;
    at.input_seconds = model->history.input_seconds;
    at.count = at.opened ? run->sums.count : 0;
    at.epoch_seconds = at.done ? run->event.seconds : 0;
    at.epoch_input_seconds = at.done ? run->event.input_seconds : 0;
    if (at.done && run->trained) { /* in an epoch that is still open: whoever goes on from here adds them again */
        at.images -= at.count;
        at.seconds -= at.epoch_seconds;
        at.input_seconds -= at.epoch_input_seconds;
    }
    at.rate_set = model->rate_set;
    at.scale_steps = mirt__root(model, NULL)->scale_steps;
    at.loss_scale = mirt__root(model, NULL)->loss_scale;
    at.rate = (double)model->config.optimizer.learning_rate;
    mirt__text_add(out, ",\"run\":{\"seed\":\"%llu\"", (unsigned long long)model->strategy->seed);
    mirt__run_write_numbers(&at, out);
    if (mirt__run_write_history(model, s) != MIRT_OK || (at.done && mirt__run_write_sums(run, s) != MIRT_OK) ||
        mirt__run_write_kept(run, s) != MIRT_OK)
        return mirt_last_status();
    mirt__text_add(out, ",\"callbacks\":{");
    if (mirt__run_write_callbacks(run, s) != MIRT_OK) return mirt_last_status();
    mirt__text_add(out, "}}");
    return out->failed ? mirt_last_status() : MIRT_OK;
}
