/* What a checkpoint holds of a fit, and going on from there. */
#include "../callbacks/callbacks.h"
#include "../base/file.h"
#include "../mirror/watch.h"
#include "../nn/config.h"

/* >>the numbers */

typedef struct mirt__run_field {
    const char *name;
    size_t offset;
    const char *what; /* NULL, or how a message calls what must be the same: "%lld replicas" */
} mirt__run_field;

#define MIRT__RUN(name) #name, offsetof(mirt__position, name)
static const mirt__run_field mirt__run_ints[] = {
    {MIRT__RUN(replicas), "%lld replicas"}, {MIRT__RUN(batch), "global batches of %lld samples"},
    {MIRT__RUN(joined), "steps of %lld batches (mirt_accumulate)"}, {MIRT__RUN(samples), "a data set of %lld samples"},
    {MIRT__RUN(steps_per_epoch), "epochs of %lld steps (steps_per_epoch; 0: all of the data)"},
    {MIRT__RUN(epoch), NULL}, {MIRT__RUN(opened), NULL}, {MIRT__RUN(done), NULL}, {MIRT__RUN(begun), NULL}, {MIRT__RUN(pass), NULL},
    {MIRT__RUN(passed), NULL}, {MIRT__RUN(first_pass), NULL}, {MIRT__RUN(steps), NULL}, {MIRT__RUN(images), NULL}, {MIRT__RUN(count), NULL},
    {MIRT__RUN(rate_set), NULL}, {MIRT__RUN(saved), NULL}, {MIRT__RUN(scale_steps), NULL},
};
static const mirt__run_field mirt__run_doubles[] = {
    {MIRT__RUN(rate), NULL}, {MIRT__RUN(seconds), NULL}, {MIRT__RUN(input_seconds), NULL}, {MIRT__RUN(epoch_seconds), NULL},
    {MIRT__RUN(epoch_input_seconds), NULL}, {MIRT__RUN(loss_scale), NULL},
};
#undef MIRT__RUN

static int64_t *mirt__run_int(mirt__position *run, int i) { return (int64_t *)(void *)((char *)run + mirt__run_ints[i].offset); }
static double *mirt__run_double(mirt__position *run, int i) { return (double *)(void *)((char *)run + mirt__run_doubles[i].offset); }

static void mirt__run_describe(const mirt__fit *fit, mirt__position *run) {
    const mirt__data_spec *spec = mirt__dataset_spec(fit->train);
    run->replicas = fit->model->strategy->num_replicas;
    run->batch = spec->batch;
    run->joined = spec->accumulate;
    run->samples = spec->samples;
    run->steps_per_epoch = fit->desc->steps_per_epoch;
}

MIRT__LIB int64_t mirt__run_saved(mirt__fit *fit) {
    struct timespec now;
    int64_t micros = clock_gettime(CLOCK_REALTIME, &now) == 0 ? (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 : 0;
    return fit->run.saved = micros > fit->run.saved ? micros : fit->run.saved + (fit->run.saved < INT64_MAX);
}

/* >>writing */

/* "early_stopping", and for the next one of that name "early_stopping_1". */
static const char *mirt__callback_label(const mirt__fit *fit, int index, char out[96]) {
    const char *name = fit->desc->callbacks[index]->name;
    int same = 0;
    for (int i = 0; i < index; i++) same += fit->desc->callbacks[i]->name && strcmp(fit->desc->callbacks[i]->name, name) == 0;
    if (same) snprintf(out, 96, "%.80s_%d", name, same);
    else snprintf(out, 96, "%.80s", name);
    return out;
}

static int mirt__num_callbacks(const mirt__fit *fit) {
    int count = 0;
    while (count < MIRT_MAX_CALLBACKS && fit->desc->callbacks[count]) count++;
    return count;
}

/* Checkpoints could not tell states of one name apart. */
static mirt_status mirt__run_check_names(const mirt__fit *fit) {
    char label[MIRT_MAX_CALLBACKS][96];
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
    char label[96];
    bool first = true;
    for (int i = 0; i < mirt__num_callbacks(fit); i++) {
        const mirt_callback *callback = fit->desc->callbacks[i];
        if (!callback->name || !callback->save_state) continue;
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

static void mirt__double_write(mirt__text *out, double value) {
    if (isfinite(value)) mirt__json_write_number(out, value);
    else mirt__text_add(out, "0");
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

/* "callbacks/early_stopping/conv2d/kernel" */
static const char *mirt__kept_name(mirt__pool *pool, const char *label, const mirt__variable *v) {
    const size_t size = strlen(label) + strlen(v->name) + 16;
    char *name = (char *)mirt__pool_alloc(pool, size);
    if (name) snprintf(name, size, "callbacks/%s/%s", label, v->name);
    return name;
}

static mirt_status mirt__run_write_kept(const mirt__fit *fit, mirt__pool *pool, mirt__safetensor *tensor, int *count) {
    char label[96];
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
    for (int i = 0; i < MIRT__COUNT(mirt__run_ints); i++) mirt__text_add(out, ",\"%s\":%lld", mirt__run_ints[i].name, (long long)*mirt__run_int(&run, i));
    for (int i = 0; i < MIRT__COUNT(mirt__run_doubles); i++) {
        mirt__text_add(out, ",\"%s\":", mirt__run_doubles[i].name);
        mirt__double_write(out, *mirt__run_double(&run, i));
    }
    if (mirt__run_write_history(model, pool, out, tensor, count) != MIRT_OK) return mirt_last_status();
    if (run.done && mirt__run_write_sums(fit, pool, tensor, count) != MIRT_OK) return mirt_last_status();
    if (mirt__run_write_kept(fit, pool, tensor, count) != MIRT_OK) return mirt_last_status();
    mirt__text_add(out, ",\"callbacks\":{");
    if (mirt__run_write_callbacks(fit, out) != MIRT_OK) return mirt_last_status();
    mirt__text_add(out, "}}");
    return out->failed ? mirt_last_status() : MIRT_OK;
}

/* >>checking */

typedef struct mirt__resume {
    mirt__fit *fit;
    mirt__safetensors file;
    mirt__pool pool;
    const mirt__json *run;
    mirt__position loaded;
    const char *log_name[MIRT_MAX_LOGS]; /* of the history's columns */
    int64_t step, epoch;
} mirt__resume;

static mirt_status mirt__resume_numbers(mirt__resume *r) {
    const int64_t most = (int64_t)1 << 53;
    const mirt__json *run = r->run;
    for (int i = 0; i < MIRT__COUNT(mirt__run_ints); i++) {
        if (mirt__json_get_int(run, mirt__run_ints[i].name, -1, most, mirt__run_int(&r->loaded, i)) != MIRT_OK) return mirt_last_status();
    }
    for (int i = 0; i < MIRT__COUNT(mirt__run_doubles); i++) {
        const mirt__json *value = mirt__json_get(run, mirt__run_doubles[i].name, MIRT__JSON_NUMBER);
        if (!value) return mirt_last_status();
        *mirt__run_double(&r->loaded, i) = value->number;
    }
    const mirt__position *l = &r->loaded;
    if (l->epoch >= 0 && l->epoch < INT_MAX && l->done >= 0 && l->passed >= 0 && l->pass >= 0 && l->steps >= 0 && l->count >= 0 && l->images >= 0 &&
        l->first_pass >= 0 && (l->opened || !l->done) && l->rate >= 0 && l->rate <= (double)FLT_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_FORMAT, "run: numbers that do not go together");
}

/* Both sides of what must be the same. */
static mirt_status mirt__resume_same_run(const mirt__resume *r) {
    mirt__position now, then = r->loaded;
    char a[96], b[96];
    memset(&now, 0, sizeof now);
    mirt__run_describe(r->fit, &now);
    const mirt__json *seed = mirt__json_get(r->run, "seed", MIRT__JSON_STRING);
    if (!seed) return mirt_last_status();
    snprintf(a, sizeof a, "%llu", (unsigned long long)r->fit->model->strategy->seed);
    if (strcmp(a, seed->string) != 0) return mirt__fail(MIRT_E_STATE, "it is of a run with seed %s, this strategy has seed %s: going on needs the same", seed->string, a);
    for (int i = 0; i < MIRT__COUNT(mirt__run_ints); i++) {
        const char *what = mirt__run_ints[i].what;
        long long was = *mirt__run_int(&then, i), is = *mirt__run_int(&now, i);
        if (!what || was == is) continue;
        const char *rest = strstr(what, "%lld") + 4;
        const int lead = (int)(rest - what) - 4;
        if (was < 0) snprintf(a, sizeof a, "data without an end");
        else snprintf(a, sizeof a, "%.*s%lld%s", lead, what, was, rest);
        if (is < 0) snprintf(b, sizeof b, "data without an end");
        else snprintf(b, sizeof b, "%.*s%lld%s", lead, what, is, rest);
        return mirt__fail(MIRT_E_STATE, "it is of a run with %s, this one has %s: going on needs the same", a, b);
    }
    const int64_t batches = mirt_dataset_batches(r->fit->train);
    if (batches < 0 || then.passed <= batches) return MIRT_OK;
    return mirt__fail(MIRT_E_FORMAT, "run: %lld batches of a pass over %lld", (long long)then.passed, (long long)batches);
}

/* The text of item i of a list, and its length. */
static const char *mirt__json_item_text(const char *text, const mirt__json *list, size_t i, size_t *size) {
    size_t begin = list->item[i]->offset, end = i + 1 < list->count ? list->item[i + 1]->offset : begin;
    if (end == begin) { /* the last: up to its closing brace */
        int depth = 0;
        bool quoted = false;
        for (end = begin; text[end]; end++) {
            if (text[end] == '\\' && quoted) end++;
            else if (text[end] == '"') quoted = !quoted;
            else if (!quoted && text[end] == '{') depth++;
            else if (!quoted && text[end] == '}' && --depth == 0) break;
        }
    }
    while (end > begin && text[end - 1] != '}') end--;
    *size = end - begin;
    return text + begin;
}

static const char *mirt__json_layer_name(const mirt__json *layer, char out[MIRT__JSON_LABEL]) {
    const mirt__json *name = mirt__json_member(layer, "name");
    if (!name) name = mirt__json_member(layer, "op");
    return mirt__json_label(name && name->type == MIRT__JSON_STRING ? name->string : "?", out);
}

/* The first layer that is not the same in two texts of architectures. */
static mirt_status mirt__resume_other_model(mirt__resume *r, const char *was, const char *is) {
    char a[MIRT__JSON_LABEL], b[MIRT__JSON_LABEL];
    const mirt__json *then = mirt__json_parse(&r->pool, was, strlen(was)), *now = mirt__json_parse(&r->pool, is, strlen(is));
    if (!then || !now) return mirt_last_status();
    const mirt__json *old_list = mirt__json_get(then, "layers", MIRT__JSON_ARRAY), *new_list = mirt__json_get(now, "layers", MIRT__JSON_ARRAY);
    if (!old_list || !new_list) return mirt_last_status();
    for (size_t i = 0; i < old_list->count && i < new_list->count; i++) {
        size_t old_size, new_size;
        const char *x = mirt__json_item_text(was, old_list, i, &old_size), *y = mirt__json_item_text(is, new_list, i, &new_size);
        if (old_size == new_size && memcmp(x, y, old_size) == 0) continue;
        return mirt__fail(MIRT_E_STATE, "it is of another model: its layer %d, \"%s\", is not the layer \"%s\" of %s, or has other settings", (int)i,
                          mirt__json_layer_name(old_list->item[i], a), mirt__json_layer_name(new_list->item[i], b), r->fit->model->name);
    }
    if (old_list->count != new_list->count) {
        return mirt__fail(MIRT_E_STATE, "it is of another model: that has %d layers, %s has %d", (int)old_list->count, r->fit->model->name, (int)new_list->count);
    }
    return mirt__fail(MIRT_E_STATE, "it is of another model: outputs, losses or weights that are not trained are not those of %s", r->fit->model->name);
}

static mirt_status mirt__resume_same_model(mirt__resume *r) {
    mirt__text now = {NULL, 0, 0, false};
    const char *was = mirt__safetensors_metadata(&r->file, "architecture");
    mirt_status status = mirt__architecture_write(r->fit->model, &now);
    if (status == MIRT_OK && now.failed) status = mirt_last_status();
    if (status == MIRT_OK && !was) status = mirt__fail(MIRT_E_FORMAT, "it holds no architecture");
    if (status == MIRT_OK) {
        const char *x = strstr(was, "\"layers\""), *y = strstr(now.data, "\"layers\""); /* the name of the model does not matter */
        if (!x || !y || strcmp(x, y) != 0) status = mirt__resume_other_model(r, was, now.data);
    }
    mirt__text_free(&now);
    return status;
}

static mirt_status mirt__resume_same_optimizer(mirt__resume *r) {
    mirt_compile_desc then;
    const char *text = mirt__safetensors_metadata(&r->file, "compile");
    const mirt__json *compile = text ? mirt__json_parse(&r->pool, text, strlen(text)) : NULL;
    if (!text) return mirt__fail(MIRT_E_FORMAT, "it holds no compile settings");
    if (!compile || mirt__compile_read(r->fit->model->strategy, compile, &then) != MIRT_OK) return mirt_last_status();
    const mirt_optimizer *now = &r->fit->model->config.optimizer;
    if (then.optimizer.kind == now->kind && mirt__optimizer_slots(&then.optimizer) == mirt__optimizer_slots(now)) return MIRT_OK;
    return mirt__fail(MIRT_E_STATE, "it is of a run with the optimizer %s (%d values a weight), this model is compiled with %s (%d)",
                      mirt__optimizer_class_get(then.optimizer.kind)->name, mirt__optimizer_slots(&then.optimizer), mirt__optimizer_class_get(now->kind)->name, mirt__optimizer_slots(now));
}

/* The tensor as `rows` times `columns` (0: any, taken over) doubles; absent only where nothing is wanted. */
static const mirt__safetensor *mirt__resume_table(const mirt__resume *r, const char *name, int rank, int64_t columns) {
    const mirt__safetensor *t = mirt__safetensors_find(&r->file, name);
    if (t && t->dtype == MIRT__ST_F64 && t->rank == rank && t->dim[rank - 1] == columns) return t;
    if (!t) mirt__fail(MIRT_E_FORMAT, "there is no tensor %s", name);
    else mirt__fail(MIRT_E_STATE, "%s has %lld columns, this model's losses and metrics make %lld: it is of a run with others", name, (long long)t->dim[rank - 1], (long long)columns);
    return NULL;
}

/* The columns' names, as this model's logs have them. */
static mirt_status mirt__resume_log_names(mirt__resume *r) {
    const char *names[MIRT_MAX_LOGS];
    const int known = mirt__log_names(r->fit->model, true, names);
    const mirt__json *list = mirt__json_get(r->run, "logs", MIRT__JSON_ARRAY);
    if (!list) return mirt_last_status();
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->item[i]->type == MIRT__JSON_STRING ? list->item[i]->string : "";
        for (int k = 0; k < known && i < MIRT_MAX_LOGS; k++) {
            if (strcmp(names[k], name) == 0) r->log_name[i] = names[k];
        }
        if (i < MIRT_MAX_LOGS && r->log_name[i]) continue;
        return mirt__fail(MIRT_E_STATE, "its history has \"%s\", which this model does not report: it is of a run with other losses or metrics", name);
    }
    if (!list->count) return MIRT_OK;
    const mirt__safetensor *t = mirt__resume_table(r, "run/history", 2, (int64_t)list->count + 1);
    if (!t) return mirt_last_status();
    for (int64_t e = 0; e < t->dim[0]; e++) {
        double count;
        memcpy(&count, (const char *)t->data + (size_t)(e * t->dim[1]) * sizeof count, sizeof count);
        if (!(count >= 0 && count <= (double)list->count) || e >= INT_MAX) return mirt__fail(MIRT_E_FORMAT, "run/history: epoch %lld is damaged", (long long)e);
    }
    return mirt__history_reserve(r->fit, (int)t->dim[0]);
}

static mirt_status mirt__resume_sums(mirt__resume *r) {
    mirt__fit *fit = r->fit;
    if (!r->loaded.done) return MIRT_OK;
    mirt__sums_start(fit->model, MIRT__TRAIN, &fit->sums);
    const int64_t all = 1 + MIRT_MAX_OUTPUTS + fit->sums.num_metric;
    const mirt__safetensor *t = mirt__resume_table(r, "run/sums", 1, all);
    if (!t || !(fit->sums_loaded = (double *)mirt__calloc((size_t)all, sizeof(double)))) return mirt_last_status();
    memcpy(fit->sums_loaded, t->data, (size_t)all * sizeof(double));
    return MIRT_OK;
}

/* >>callbacks */

/* The weights a callback kept: all of them, or none. */
static mirt_status mirt__resume_kept(mirt__resume *r, mirt__readymade *ready, const char *label) {
    const mirt_model *model = r->fit->model;
    for (int pass = 0; pass < 2; pass++) {
        mirt__real *to = ready->weights;
        for (int k = 0; k < model->num_variables; k++) {
            const mirt__variable *v = &model->variable[k];
            const char *name = mirt__kept_name(&r->pool, label, v);
            if (!name) return mirt_last_status();
            if (k == 0 && !mirt__safetensors_find(&r->file, name)) return MIRT_OK;
            const mirt__safetensor *t = mirt__load_find(&r->file, name, v);
            if (!t) return mirt_last_status();
            if (pass) memcpy(to, t->data, t->size);
            if (pass) to += v->count;
        }
        if (!pass && mirt__ready_reserve(ready, model) != MIRT_OK) return mirt_last_status();
    }
    ready->weights_set = true;
    return MIRT_OK;
}

static mirt_status mirt__resume_callbacks(mirt__resume *r) {
    char label[96];
    const mirt__json *states = mirt__json_get(r->run, "callbacks", MIRT__JSON_OBJECT);
    if (!states) return mirt_last_status();
    size_t taken = 0;
    for (int i = 0; i < mirt__num_callbacks(r->fit); i++) {
        const mirt_callback *callback = r->fit->desc->callbacks[i];
        if (!callback->name || !callback->load_state) continue;
        const mirt__json *state = mirt__json_member(states, mirt__callback_label(r->fit, i, label));
        mirt__readymade *ready = mirt__ready_of(callback);
        if (!state || state->type != MIRT__JSON_STRING) continue;
        taken++;
        if (ready) ready->weights_set = false;
        const bool good = mirt__load_state(callback, state->string);
        if (!good && ready) return mirt__fail_at("the state of %s", label);
        if (!good) return mirt__fail(MIRT_E_FORMAT, "the callback %s cannot use the state it has there", label);
        if (ready && mirt__resume_kept(r, ready, label) != MIRT_OK) return mirt_last_status();
    }
    if (taken < states->count) {
        mirt__log(r->fit->model->strategy, MIRT_LOG_WARNING, "%s: this fit lacks %d of the callbacks whose state it holds", r->file.origin, (int)(states->count - taken));
    }
    return MIRT_OK;
}

/* >>going on */

static void mirt__resume_take_history(mirt__resume *r) {
    mirt_model *model = r->fit->model;
    const mirt__safetensor *t = mirt__safetensors_find(&r->file, "run/history");
    model->history.epochs = t ? (int)t->dim[0] : 0;
    for (int e = 0; e < model->history.epochs; e++) {
        mirt_logs *logs = &model->history_logs[e];
        double row[1 + MIRT_MAX_LOGS];
        memcpy(row, (const char *)t->data + (size_t)(e * t->dim[1]) * sizeof *row, (size_t)t->dim[1] * sizeof *row);
        logs->count = (int)row[0];
        for (int i = 0; i < logs->count; i++) {
            logs->name[i] = r->log_name[i];
            logs->value[i] = row[1 + i];
        }
    }
    model->history.steps = r->loaded.steps;
    model->history.seconds = r->loaded.seconds;
    model->history.input_seconds = r->loaded.input_seconds;
}

/* Nothing fails from here on but reading the data. */
static mirt_status mirt__resume_take(mirt__resume *r) {
    mirt__fit *fit = r->fit;
    mirt_model *model = fit->model;
    mirt_status status = mirt__load_blocks(&r->file, model, mirt__optimizer_slots(&model->config.optimizer), true);
    if (status != MIRT_OK) return status;
    mirt__resume_take_history(r);
    model->step = r->step;
    model->epoch = r->epoch;
    mirt__loss_scale_set(mirt__root(model, NULL), r->loaded.loss_scale, r->loaded.scale_steps);
    if (r->loaded.rate_set) {
        model->rate_set = true;
        model->config.optimizer.learning_rate = (float)r->loaded.rate;
    }
    fit->run = r->loaded;
    fit->event.resumed = true;
    char place[64] = "";
    if (fit->run.done) snprintf(place, sizeof place, ", behind %lld of its batches", (long long)fit->run.done);
    mirt__log(model->strategy, MIRT_LOG_INFO, "%s: going on from %s: step %lld, epoch %lld%s", model->name, r->file.origin, (long long)model->step,
              (long long)fit->run.epoch + (fit->run.epoch < fit->event.epochs), place);
    return mirt__fit_reopen(fit);
}

static mirt_status mirt__resume_from(mirt__resume *r) {
    const int64_t most = (int64_t)1 << 53;
    const char *text = mirt__safetensors_metadata(&r->file, "training");
    const mirt__json *training = text ? mirt__json_parse(&r->pool, text, strlen(text)) : NULL;
    if (text && !training) return mirt_last_status();
    r->run = training && training->type == MIRT__JSON_OBJECT ? mirt__json_member(training, "run") : NULL;
    if (!r->run || r->run->type != MIRT__JSON_OBJECT) {
        return mirt__fail(MIRT_E_FORMAT, "it holds a model but no run to go on with; mirt_load and mirt_load_weights read it");
    }
    if (mirt__json_get_int(training, "iterations", 0, most, &r->step) != MIRT_OK || mirt__json_get_int(training, "epoch", 0, most, &r->epoch) != MIRT_OK) return mirt_last_status();
    if (mirt__resume_numbers(r) != MIRT_OK || mirt__resume_same_model(r) != MIRT_OK || mirt__resume_same_optimizer(r) != MIRT_OK ||
        mirt__resume_same_run(r) != MIRT_OK || mirt__load_blocks(&r->file, r->fit->model, mirt__optimizer_slots(&r->fit->model->config.optimizer), false) != MIRT_OK ||
        mirt__resume_log_names(r) != MIRT_OK || mirt__resume_sums(r) != MIRT_OK || mirt__resume_callbacks(r) != MIRT_OK) {
        return mirt_last_status();
    }
    return MIRT_OK;
}

static mirt_status mirt__resume_open(mirt__resume *r, const char *path, bool *found) {
    const mirt_strategy *strategy = r->fit->model->strategy;
    const size_t length = strlen(path), ending = strlen(".safetensors");
    const bool named = length > ending && strcmp(path + length - ending, ".safetensors") == 0;
    if (!mirt__is_directory(path) && (named || mirt__file_exists(path))) {
        *found = true;
        return mirt__safetensors_open(&r->file, path);
    }
    *found = false;
    if (mirt__file_exists(path) && mirt__checkpoint_latest(strategy, path, true, &r->file, found) != MIRT_OK) return mirt_last_status();
    if (!*found) mirt__log(strategy, MIRT_LOG_INFO, "%s holds no checkpoint to go on from: training begins anew", path);
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__fit_resume(mirt__fit *fit) {
    mirt__resume r;
    const char *path = fit->desc->resume;
    bool found;
    if (mirt__run_check_names(fit) != MIRT_OK) return mirt_last_status();
    for (int i = 0; !path && i < mirt__num_callbacks(fit); i++) {
        const mirt__readymade *ready = mirt__ready_of(fit->desc->callbacks[i]);
        path = ready ? ready->restores : NULL;
    }
    if (!path) return MIRT_OK;
    memset(&r, 0, sizeof r);
    r.fit = fit;
    mirt_status status = mirt__resume_open(&r, path, &found);
    if (status != MIRT_OK || !found) return status;
    status = mirt__resume_from(&r);
    for (int i = 0; status != MIRT_OK && i < mirt__num_callbacks(fit); i++) {
        mirt__readymade *ready = mirt__ready_of(fit->desc->callbacks[i]);
        if (ready) ready->loaded = false;
    }
    if (status != MIRT_OK) mirt__fail_at("mirt_fit cannot go on from %s", r.file.origin);
    if (status == MIRT_OK) status = mirt__resume_take(&r);
    mirt__pool_free(&r.pool);
    mirt__safetensors_close(&r.file);
    return status;
}
