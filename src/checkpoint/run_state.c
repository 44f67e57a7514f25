/* The state of a run in a checkpoint: parsed and checked as a whole before any of it is used. */
#include "run_state.h"

/* >>names of callbacks */

MIRT__LIB mirt__phrase mirt__callback_label(const mirt__training_run *run, int index) {
    const char *name = run->desc->callbacks[index]->name;
    mirt__phrase out;
    int same = 0;
    for (int i = 0; i < index; i++)
        same += run->desc->callbacks[i]->name && strcmp(run->desc->callbacks[i]->name, name) == 0;
    snprintf(out.text, sizeof out.text, "%.80s", name);
    if (same) mirt__line_add(out.text, sizeof out.text, "_%d", same);
    return out;
}

MIRT__LIB int mirt__num_callbacks(const mirt__training_run *run) {
    int count = 0;
    while (count < MIRT_MAX_CALLBACKS && run->desc->callbacks[count]) count++;
    return count;
}

MIRT__LIB const char *mirt__kept_name(mirt__pool *pool, const char *label, const mirt__variable *v) {
    return mirt__pool_print(pool, "callbacks/%s/%s", label, v->name);
}

/* >>the numbers */

MIRT__LIB int64_t mirt__run_images(const mirt_model *model) {
    const mirt__training_run *run = model->run;
    if (!run || run->trained) return run ? run->at.images : 0;
    return run->at.images + (run->sums_loaded ? run->at.count : run->sums.count);
}

/* Counts stay exact in double precision, and adding to them cannot overflow. */
#define MIRT__RUN_MOST ((int64_t)1 << 53)

typedef struct mirt__run_int_field {
    const char *name;
    size_t offset;
    int64_t least, most;
    const char *before, *unit, *plural, *after; /* a message's words for what must be the same; unit NULL: it need
                                                   not */
} mirt__run_int_field;

typedef struct mirt__run_double_field {
    const char *name;
    size_t offset;
    double least, most;
} mirt__run_double_field;

#define MIRT__RUN(name) #name, offsetof(mirt__position, name)
#define MIRT__RUN_FREE NULL, NULL, NULL, NULL
static const mirt__run_int_field mirt__run_ints[] = {
    {MIRT__RUN(replicas), -1, MIRT__RUN_MOST, "", "replica", "s", ""},
    {MIRT__RUN(joined), -1, MIRT__RUN_MOST, "steps of ", "batch", "es", " (mirt_accumulate)"},
    {MIRT__RUN(batch), -1, MIRT__RUN_MOST, "global batches of ", "sample", "s", ""}, /* of all that are joined */
    {MIRT__RUN(samples), -1, MIRT__RUN_MOST, "a data set of ", "sample", "s", ""},
    {MIRT__RUN(steps_per_epoch), -1, MIRT__RUN_MOST, "epochs of ", "step", "s",
     " (steps_per_epoch; 0: all of the data)"},
    {MIRT__RUN(epoch), 0, INT_MAX - 1, MIRT__RUN_FREE}, {MIRT__RUN(opened), 0, 1, MIRT__RUN_FREE},
    {MIRT__RUN(done), 0, MIRT__RUN_MOST, MIRT__RUN_FREE}, {MIRT__RUN(begun), 0, 1, MIRT__RUN_FREE},
    {MIRT__RUN(pass), 0, MIRT__RUN_MOST, MIRT__RUN_FREE}, {MIRT__RUN(passed), 0, MIRT__RUN_MOST, MIRT__RUN_FREE},
    {MIRT__RUN(first_pass), 0, MIRT__RUN_MOST, MIRT__RUN_FREE}, {MIRT__RUN(steps), 0, MIRT__RUN_MOST, MIRT__RUN_FREE},
    {MIRT__RUN(images), 0, MIRT__RUN_MOST, MIRT__RUN_FREE}, {MIRT__RUN(count), 0, MIRT__RUN_MOST, MIRT__RUN_FREE},
    {MIRT__RUN(rate_set), 0, 1, MIRT__RUN_FREE}, {MIRT__RUN(saved), 0, MIRT__RUN_MOST, MIRT__RUN_FREE},
    {MIRT__RUN(scale_steps), 0, 1999, MIRT__RUN_FREE},
};
#undef MIRT__RUN_FREE
/* Differences of times may be a rounding below 0. */
static const mirt__run_double_field mirt__run_doubles[] = {
    {MIRT__RUN(rate), 0, (double)FLT_MAX},      {MIRT__RUN(seconds), -1, 1e15},
    {MIRT__RUN(input_seconds), -1, 1e15},       {MIRT__RUN(epoch_seconds), -1, 1e15},
    {MIRT__RUN(epoch_input_seconds), -1, 1e15}, {MIRT__RUN(loss_scale), 0, DBL_MAX},
};
#undef MIRT__RUN

static int64_t *mirt__run_int(mirt__position *at, int i) {
    return (int64_t *)(void *)((char *)at + mirt__run_ints[i].offset);
}
static double *mirt__run_double(mirt__position *at, int i) {
    return (double *)(void *)((char *)at + mirt__run_doubles[i].offset);
}

MIRT__LIB void mirt__run_write_numbers(mirt__position *at, mirt__text *out) {
    for (int i = 0; i < MIRT__COUNT(mirt__run_ints); i++) {
        mirt__text_add(out, ",\"%s\":%lld", mirt__run_ints[i].name, (long long)*mirt__run_int(at, i));
    }
    for (int i = 0; i < MIRT__COUNT(mirt__run_doubles); i++) {
        const double value = *mirt__run_double(at, i);
        mirt__text_add(out, ",\"%s\":", mirt__run_doubles[i].name);
        mirt__json_write_number(out, isfinite(value) ? value : 0);
    }
}

static mirt_status mirt__run_read_numbers(mirt__run_state *r) {
    for (int i = 0; i < MIRT__COUNT(mirt__run_ints); i++) {
        const mirt__run_int_field *f = &mirt__run_ints[i];
        if (mirt__json_get_int(r->json, f->name, f->least, f->most, mirt__run_int(&r->position, i)) != MIRT_OK)
            return mirt__fail_at("run");
    }
    for (int i = 0; i < MIRT__COUNT(mirt__run_doubles); i++) {
        const mirt__run_double_field *f = &mirt__run_doubles[i];
        const mirt__json *value = mirt__json_get(r->json, f->name, MIRT__JSON_NUMBER);
        if (!value) return mirt__fail_at("run");
        if (!(value->number >= f->least && value->number <= f->most)) {
            return mirt__fail(MIRT_E_FORMAT, "run: \"%s\" is %g, but must lie between %g and %g", f->name,
                              value->number, f->least, f->most);
        }
        *mirt__run_double(&r->position, i) = value->number;
    }
    return MIRT_OK;
}

/* What the numbers say about each other and about the data, which a run keeps to at each moment at which it can be
   saved. */
static mirt_status mirt__run_check_position(const mirt__run_state *r) {
    const mirt__position *p = &r->position;
    const long long done = (long long)p->done, passed = (long long)p->passed, steps = (long long)p->steps,
                    per_epoch = (long long)p->steps_per_epoch;
    const int64_t batches = mirt_dataset_batches(r->run->train);
    if (done > steps || passed > steps) {
        return mirt__fail(MIRT_E_FORMAT,
                          "run: \"steps\" is %lld, but \"done\" is %lld and \"passed\" %lld batches of them", steps,
                          done, passed);
    }
    if (done && !p->opened)
        return mirt__fail(MIRT_E_FORMAT, "run: \"opened\" is 0, but %lld batches of the epoch are done", done);
    if (batches >= 0 && p->passed > batches) {
        return mirt__fail(MIRT_E_FORMAT, "run: \"passed\" is %lld batches, but a pass over the data has %lld", passed,
                          (long long)batches);
    }
    if (per_epoch > 0 ? done > per_epoch : done > passed) {
        return mirt__fail(MIRT_E_FORMAT, "run: \"done\" is %lld, but the epoch has had at most %lld batches", done,
                          per_epoch > 0 ? per_epoch : passed);
    }
    if ((p->begun || done || passed) && !(p->first_pass <= p->pass && p->pass < r->epoch)) {
        return mirt__fail(
            MIRT_E_FORMAT,
            "run: \"pass\" is %lld, but passes from \"first_pass\" %lld to below \"epoch\" %lld were begun",
            (long long)p->pass, (long long)p->first_pass, (long long)r->epoch);
    }
    if (done && (p->count < 1 || (p->batch > 0 && (p->count - 1) / p->batch >= p->done))) {
        return mirt__fail(MIRT_E_FORMAT, "run: \"count\" is %lld samples, but %lld batches of at most %lld are done",
                          (long long)p->count, done, (long long)p->batch);
    }
    return MIRT_OK;
}

/* >>what must be the same */

MIRT__LIB void mirt__run_describe(const mirt__training_run *run, mirt__position *at) {
    const mirt__data_spec *spec = mirt__dataset_spec(run->train);
    at->replicas = run->model->strategy->num_replicas;
    at->batch = spec->batch;
    at->joined = spec->accumulate;
    at->samples = spec->samples;
    at->steps_per_epoch = run->desc->steps_per_epoch;
}

static const char *mirt__run_words(const mirt__run_int_field *f, long long value, char out[96]) {
    if (value < 0) snprintf(out, 96, "data without an end");
    else snprintf(out, 96, "%s%lld %s%s%s", f->before, value, f->unit, value == 1 ? "" : f->plural, f->after);
    return out;
}

/* Both sides of what must be the same. */
static mirt_status mirt__run_same_settings(const mirt__run_state *r) {
    mirt__position now, then = r->position;
    char a[96], b[96];
    memset(&now, 0, sizeof now);
    mirt__run_describe(r->run, &now);
    const mirt__json *seed = mirt__json_get(r->json, "seed", MIRT__JSON_STRING);
    if (!seed) return mirt__fail_at("run");
    snprintf(a, sizeof a, "%llu", (unsigned long long)r->run->model->strategy->seed);
    if (strcmp(a, seed->string) != 0) {
        return mirt__fail(MIRT_E_STATE,
                          "it is of a run with seed %s, this strategy has seed %s: going on needs the same",
                          mirt__label(seed->string).text, a);
    }
    for (int i = 0; i < MIRT__COUNT(mirt__run_ints); i++) {
        const mirt__run_int_field *f = &mirt__run_ints[i];
        long long was = *mirt__run_int(&then, i), is = *mirt__run_int(&now, i);
        if (!f->unit || was == is) continue;
        return mirt__fail(MIRT_E_STATE, "it is of a run with %s, this one has %s: going on needs the same",
                          mirt__run_words(f, was, a), mirt__run_words(f, is, b));
    }
    return MIRT_OK;
}

static mirt__phrase mirt__json_layer_name(const mirt__json *layer) {
    const mirt__json *name = mirt__json_member(layer, "name");
    if (!name) name = mirt__json_member(layer, "op");
    return mirt__label(name && name->type == MIRT__JSON_STRING ? name->string : "?");
}

/* The first layer that is not the same in two texts of architectures. */
static mirt_status mirt__run_other_model(mirt__run_state *r, const char *was, const char *is) {
    const mirt__json *then = mirt__json_parse(&r->pool, was, strlen(was)),
                     *now = mirt__json_parse(&r->pool, is, strlen(is));
    if (!then || !now) return mirt_last_status();
    const mirt__json *old_list = mirt__json_get(then, "layers", MIRT__JSON_ARRAY),
                     *new_list = mirt__json_get(now, "layers", MIRT__JSON_ARRAY);
    if (!old_list || !new_list) return mirt_last_status();
    for (size_t i = 0; i < old_list->count && i < new_list->count; i++) {
        const mirt__json *x = old_list->item[i], *y = new_list->item[i];
        const size_t size = x->end - x->offset;
        if (size == y->end - y->offset && memcmp(was + x->offset, is + y->offset, size) == 0) continue;
        return mirt__fail(
            MIRT_E_STATE,
            "it is of another model: its layer %d, \"%s\", is not the layer \"%s\" of %s, or has other settings",
            (int)i, mirt__json_layer_name(x).text, mirt__json_layer_name(y).text, r->run->model->name);
    }
    if (old_list->count != new_list->count) {
        return mirt__fail(MIRT_E_STATE, "it is of another model: that has %d layers, %s has %d", (int)old_list->count,
                          r->run->model->name, (int)new_list->count);
    }
    return mirt__fail(MIRT_E_STATE,
                      "it is of another model: outputs, losses or weights that are not trained are not those of %s",
                      r->run->model->name);
}

static mirt_status mirt__run_same_model(mirt__run_state *r) {
    mirt__text now = {NULL, 0, 0, false};
    const char *was = mirt__safetensors_metadata(r->file, "architecture");
    mirt_status status = mirt__architecture_write(r->run->model, &now);
    if (status == MIRT_OK && now.failed) status = mirt_last_status();
    if (status == MIRT_OK && !was) status = mirt__fail(MIRT_E_FORMAT, "it holds no architecture");
    if (status == MIRT_OK) {
        const char *x = strstr(was, "\"layers\""),
                   *y = strstr(now.data, "\"layers\""); /* the name of the model does not matter */
        if (!x || !y || strcmp(x, y) != 0) status = mirt__run_other_model(r, was, now.data);
    }
    mirt__text_free(&now);
    return status;
}

static mirt_status mirt__run_same_optimizer(mirt__run_state *r) {
    mirt_compile_desc then;
    const char *text = mirt__safetensors_metadata(r->file, "compile");
    const mirt__json *compile = text ? mirt__json_parse(&r->pool, text, strlen(text)) : NULL;
    if (!text) return mirt__fail(MIRT_E_FORMAT, "it holds no compile settings");
    if (!compile || mirt__compile_read(r->run->model->strategy, compile, &then) != MIRT_OK) return mirt_last_status();
    const mirt_model *model = r->run->model;
    for (int i = 0; i < model->num_variables; i++) {
        const mirt__variable *v = &model->variable[i];
        const mirt_optimizer *was = mirt__optimizer_named(&then, v->name),
                             *is = mirt__optimizer_named(&model->config, v->name);
        const char *name[MIRT__MAX_SLOTS];
        const int had = mirt__optimizer_slot_names(was, name), has = mirt__optimizer_slot_names(is, name);
        if (!mirt__is_trained(v) || (was->kind == is->kind && had == has)) continue;
        return mirt__fail(
            MIRT_E_STATE,
            "it is of a run with the optimizer %s (%d values per weight) for %s, this model is compiled with %s (%d)",
            mirt__optimizer_class_get(was->kind)->name, had, v->name, mirt__optimizer_class_get(is->kind)->name, has);
    }
    return MIRT_OK;
}

/* >>tensors */

/* The tensor, which must be there, of F64 with this rank and this many columns; NULL with the error set. */
static const mirt__safetensor *mirt__run_table(const mirt__run_state *r, const char *name, int rank, int64_t columns) {
    const mirt__safetensor *t = mirt__safetensors_find(r->file, name);
    if (t && t->dtype == MIRT__ST_F64 && t->rank == rank && t->dim[rank - 1] == columns) return t;
    if (!t) mirt__fail(MIRT_E_FORMAT, "there is no tensor %s", name);
    else
        mirt__fail(MIRT_E_STATE,
                   "%s is %s %s, but this model's losses and metrics give F64 of rank %d with %lld columns: it is of a "
                   "run with others",
                   name, mirt__st_dtype_name(t->dtype), mirt__st_shape_text(t).text, rank, (long long)columns);
    return NULL;
}

/* The columns' names, as this model's logs have them. */
static mirt_status mirt__run_read_log_names(mirt__run_state *r, const mirt__json *list) {
    const char *names[MIRT_MAX_LOGS];
    const int known = mirt__log_names(r->run->model, true, names);
    if (list->count > (size_t)known) {
        return mirt__fail(MIRT_E_STATE,
                          "run: \"logs\" has %zu names, but this model reports at most %d: it is of a run with other "
                          "losses or metrics",
                          list->count, known);
    }
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->item[i]->type == MIRT__JSON_STRING ? list->item[i]->string : NULL;
        if (!name)
            return mirt__fail(MIRT_E_FORMAT, "run: \"logs\" has %s in it, but must hold names",
                              mirt__json_type_name(list->item[i]->type));
        for (int k = 0; k < known; k++) {
            if (strcmp(names[k], name) == 0) r->log_name[i] = names[k];
        }
        if (r->log_name[i]) continue;
        return mirt__fail(
            MIRT_E_STATE,
            "its history has \"%s\", which this model does not report: it is of a run with other losses or metrics",
            mirt__label(name).text);
    }
    return MIRT_OK;
}

/* A row for each epoch: how many logs it has, and their values. */
static mirt_status mirt__run_read_history(mirt__run_state *r) {
    const mirt__json *list = mirt__json_get(r->json, "logs", MIRT__JSON_ARRAY);
    if (!list) return mirt__fail_at("run");
    if (!list->count && !mirt__safetensors_find(r->file, "run/history")) return MIRT_OK;
    if (!list->count) return mirt__fail(MIRT_E_FORMAT, "run: \"logs\" is empty, but there is a tensor run/history");
    if (mirt__run_read_log_names(r, list) != MIRT_OK) return mirt_last_status();
    const mirt__safetensor *t = mirt__run_table(r, "run/history", 2, (int64_t)list->count + 1);
    if (!t) return mirt_last_status();
    if (t->dim[0] < 1 || t->dim[0] > r->position.epoch) {
        return mirt__fail(MIRT_E_FORMAT, "run/history has %lld epochs, but the run has ended %lld",
                          (long long)t->dim[0], (long long)r->position.epoch);
    }
    r->epochs = (int)t->dim[0];
    r->columns = (int)t->dim[1];
    r->history = (const unsigned char *)t->data;
    for (int e = 0; e < r->epochs; e++) {
        double count;
        memcpy(&count, r->history + (size_t)e * (size_t)r->columns * sizeof count, sizeof count);
        if (count >= 1 && count <= (double)list->count && count == floor(count)) continue;
        return mirt__fail(MIRT_E_FORMAT, "run/history: epoch %d has %g logs, but must have 1 to %zu", e, count,
                          list->count);
    }
    return MIRT_OK;
}

/* Sums of the epoch that the run is in the middle of. */
static mirt_status mirt__run_read_sums(mirt__run_state *r) {
    mirt__sums sums;
    mirt__sums_start(r->run->model, MIRT__TRAIN, &sums);
    r->num_sums = 1 + MIRT_MAX_OUTPUTS + sums.num_metric;
    const mirt__safetensor *t = mirt__safetensors_find(r->file, "run/sums");
    if (!r->position.done)
        return !t ? MIRT_OK
                  : mirt__fail(MIRT_E_FORMAT, "there is a tensor run/sums, but no batch of the epoch is done");
    if (!(t = mirt__run_table(r, "run/sums", 1, r->num_sums))) return mirt_last_status();
    r->sums = (const unsigned char *)t->data;
    return MIRT_OK;
}

static mirt_status mirt__run_check_tensors(const mirt__run_state *r) {
    for (int i = 0; i < r->file->count; i++) {
        const char *name = r->file->tensor[i].name;
        if (strncmp(name, "run/", 4) != 0 || strcmp(name, "run/history") == 0 || strcmp(name, "run/sums") == 0)
            continue;
        return mirt__fail(MIRT_E_FORMAT, "there is a tensor %s, which no run has", mirt__label(name).text);
    }
    return MIRT_OK;
}

/* >>callbacks */

/* The weights that a callback kept: all of them, or none. */
static mirt_status mirt__run_read_kept(mirt__run_state *r, const char *label, mirt__loaded_callback *out) {
    const mirt_model *model = r->run->model;
    const mirt__safetensor **kept =
        (const mirt__safetensor **)mirt__pool_alloc(&r->pool, ((size_t)model->num_variables + 1) * sizeof *kept);
    if (!kept) return mirt_last_status();
    for (int k = 0; k < model->num_variables; k++) {
        const mirt__variable *v = &model->variable[k];
        const char *name = mirt__kept_name(&r->pool, label, v);
        if (!name) return mirt_last_status();
        if (k == 0 && !mirt__safetensors_find(r->file, name)) return MIRT_OK;
        if (!(kept[k] = mirt__load_find(r->file, name, v))) return mirt_last_status();
    }
    out->kept = model->num_variables ? kept : NULL;
    return MIRT_OK;
}

static mirt_status mirt__run_read_callback(mirt__run_state *r, int i, const mirt__json *state, const char *label) {
    const mirt__readymade *ready = mirt__ready_of(r->run->desc->callbacks[i]);
    mirt__loaded_callback *out = &r->callback[i];
    if (ready && ready->logs && !mirt__writes_files(r->run->model->strategy)) return MIRT_OK;
    out->text = state->string;
    if (!ready) return MIRT_OK;
    if (mirt__ready_parse(ready, state->string, &out->state) != MIRT_OK) return mirt__fail_at("the state of %s", label);
    return mirt__run_read_kept(r, label, out);
}

static mirt_status mirt__run_read_callbacks(mirt__run_state *r) {
    const mirt__json *states = mirt__json_get(r->json, "callbacks", MIRT__JSON_OBJECT);
    if (!states) return mirt__fail_at("run");
    for (size_t i = 0; i < states->count; i++) {
        if (states->item[i]->type == MIRT__JSON_STRING) continue;
        return mirt__fail(MIRT_E_FORMAT, "the state of %s is %s, but must be a string",
                          mirt__label(states->item[i]->key).text, mirt__json_type_name(states->item[i]->type));
    }
    size_t taken = 0;
    for (int i = 0; i < mirt__num_callbacks(r->run); i++) {
        const mirt_callback *callback = r->run->desc->callbacks[i];
        if (!callback->name || !callback->load_state) continue;
        const mirt__phrase label = mirt__callback_label(r->run, i);
        const mirt__json *state = mirt__json_member(states, label.text);
        if (!state) continue;
        taken++;
        if (mirt__run_read_callback(r, i, state, label.text) != MIRT_OK) return mirt_last_status();
    }
    r->unknown = states->count - taken;
    return MIRT_OK;
}

/* >>all of it */

static mirt_status mirt__run_find(mirt__run_state *r) {
    const char *text = mirt__safetensors_metadata(r->file, "training");
    const mirt__json *training = text ? mirt__json_parse(&r->pool, text, strlen(text)) : NULL;
    if (text && !training) return mirt__fail_at("training");
    r->json = mirt__json_member(training, "run");
    if (!r->json || r->json->type != MIRT__JSON_OBJECT) {
        return mirt__fail(MIRT_E_FORMAT,
                          "it holds a model but no run to go on with; mirt_load and mirt_load_weights read it");
    }
    if (mirt__json_get_int(training, "iterations", 0, MIRT__RUN_MOST, &r->step) != MIRT_OK ||
        mirt__json_get_int(training, "epoch", 0, MIRT__RUN_MOST, &r->epoch) != MIRT_OK ||
        mirt__load_swapped(training, r->run->model->config.optimizer.use_ema, &r->swapped) != MIRT_OK) {
        return mirt__fail_at("training");
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__run_parse(mirt__run_state *r, mirt__training_run *run, const mirt__safetensors *file) {
    const int slots = mirt__slots(&run->model->config);
    memset(r, 0, sizeof *r);
    r->run = run;
    r->file = file;
    if (mirt__run_find(r) != MIRT_OK || mirt__run_read_numbers(r) != MIRT_OK || mirt__run_same_model(r) != MIRT_OK ||
        mirt__run_same_optimizer(r) != MIRT_OK || mirt__run_same_settings(r) != MIRT_OK ||
        mirt__run_check_position(r) != MIRT_OK || mirt__load_blocks(file, run->model, slots, false) != MIRT_OK ||
        mirt__run_read_history(r) != MIRT_OK || mirt__run_read_sums(r) != MIRT_OK ||
        mirt__run_check_tensors(r) != MIRT_OK || mirt__run_read_callbacks(r) != MIRT_OK) {
        return mirt_last_status();
    }
    return MIRT_OK;
}

MIRT__LIB void mirt__run_state_free(mirt__run_state *r) {
    for (int i = 0; i < MIRT_MAX_CALLBACKS; i++) mirt__ready_state_free(&r->callback[i].state);
    mirt__pool_free(&r->pool);
}

#undef MIRT__RUN_MOST
