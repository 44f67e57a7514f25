/* Resumes a run from a checkpoint. */
#include "../base/file.h"
#include "../mirror/watch.h"
#include "run_state.h"

/* All that can run out of memory; what is parsed stays as it is. */
static mirt_status mirt__resume_reserve(const mirt__run_state *r) {
    mirt__training_run *run = r->run;
    if (mirt__history_reserve(run, r->epochs) != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < mirt__num_callbacks(run); i++) {
        mirt__readymade *ready = mirt__ready_of(run->desc->callbacks[i]);
        if (ready && r->callback[i].kept && mirt__ready_reserve(ready, run->model) != MIRT_OK)
            return mirt_last_status();
    }
    mirt__free(run->sums_loaded);
    run->sums_loaded = r->sums ? (double *)mirt__calloc((size_t)r->num_sums, sizeof(double)) : NULL;
    return r->sums && !run->sums_loaded ? mirt_last_status() : MIRT_OK;
}

static bool mirt__load_state(const mirt_callback *callback, const char *text) {
    MIRT__OUTSIDE;
    return !callback->load_state(text, callback->user);
}

/* The caller's own callbacks may refuse their state: the last that can fail. */
static mirt_status mirt__resume_ask_callbacks(const mirt__run_state *r) {
    for (int i = 0; i < mirt__num_callbacks(r->run); i++) {
        const mirt_callback *callback = r->run->desc->callbacks[i];
        if (mirt__ready_of(callback) || !r->callback[i].text) continue;
        if (mirt__load_state(callback, r->callback[i].text)) continue;
        return mirt__fail(MIRT_E_FORMAT, "the callback %s cannot use the state it has there",
                          mirt__callback_label(r->run, i).text);
    }
    return MIRT_OK;
}

static void mirt__resume_take_callbacks(mirt__run_state *r) {
    const mirt_model *model = r->run->model;
    for (int i = 0; i < mirt__num_callbacks(r->run); i++) {
        mirt__readymade *ready = mirt__ready_of(r->run->desc->callbacks[i]);
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
    mirt_model *model = r->run->model;
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
    const mirt_model *model = r->run->model;
    const mirt_optimizer *o = &model->config.optimizer;
    const float was = (float)r->position.rate;
    if (was == o->learning_rate || o->schedule || o->decay.kind || r->run->desc->learning_rate) return;
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
    mirt__training_run *run = r->run;
    mirt_model *model = run->model;
    mirt_status status = mirt__load_blocks(r->file, model, mirt__slots(&model->config), true);
    if (status != MIRT_OK) return status;
    mirt__resume_take_history(r);
    mirt__resume_take_callbacks(r);
    if (r->sums) memcpy(run->sums_loaded, r->sums, (size_t)r->num_sums * sizeof(double));
    model->step = r->step;
    model->epoch = r->epoch;
    model->swapped = r->swapped;
    mirt__averages_swap(model, false);
    mirt__loss_scale_set(mirt__root(model, NULL), r->position.loss_scale, r->position.scale_steps);
    mirt__resume_tell_rate(r);
    if (r->position.rate_set) {
        model->rate_set = true;
        model->config.optimizer.learning_rate = (float)r->position.rate;
    }
    run->at = r->position;
    run->event.resumed = true;
    if (r->unknown) {
        mirt__log(model->strategy, MIRT_LOG_WARNING, "%s: this fit lacks %d of the callbacks whose state it holds",
                  r->file->origin, (int)r->unknown);
    }
    char place[64] = "";
    if (run->at.done) snprintf(place, sizeof place, ", behind %lld of its batches", (long long)run->at.done);
    mirt__log(model->strategy, MIRT_LOG_INFO, "%s: going on from %s: step %lld, epoch %lld%s", model->name,
              r->file->origin, (long long)model->step, (long long)run->at.epoch + (run->at.epoch < run->event.epochs),
              place);
    return run->reopen(run);
}

/* Parses all of an open checkpoint (mirt__run_parse), then applies it. */
static mirt_status mirt__run_resume_file(mirt__training_run *run, const mirt__safetensors *file) {
    mirt__run_state r;
    mirt_status status = mirt__run_parse(&r, run, file);
    if (status == MIRT_OK) status = mirt__resume_reserve(&r);
    if (status == MIRT_OK) status = mirt__resume_ask_callbacks(&r);
    if (status != MIRT_OK) mirt__fail_at("mirt_fit cannot go on from %s", file->origin);
    else status = mirt__resume_take(&r);
    for (int i = 0; status != MIRT_OK && i < mirt__num_callbacks(run); i++) {
        mirt__readymade *ready = mirt__ready_of(run->desc->callbacks[i]);
        if (ready) ready->loaded = false;
    }
    mirt__run_state_free(&r);
    return status;
}

/* Finds and opens the checkpoint, which must have checksums. */
static mirt_status mirt__resume_open(const mirt__training_run *run, const char *path, mirt__safetensors *file,
                                     bool *found) {
    const mirt_strategy *strategy = run->model->strategy;
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

/* Checkpoints could not tell states of one name apart. */
static mirt_status mirt__run_check_names(const mirt__training_run *run) {
    mirt__phrase label[MIRT_MAX_CALLBACKS];
    for (int i = 0; i < mirt__num_callbacks(run); i++) {
        const mirt_callback *callback = run->desc->callbacks[i];
        if (!callback->name || !callback->save_state) continue;
        if (strlen(callback->name) > 80 || !mirt__utf8_valid(callback->name, strlen(callback->name))) {
            return mirt__fail(
                MIRT_E_INVALID,
                "mirt_fit: callback %d keeps a state under a name of more than 80 bytes, or not valid UTF-8", i);
        }
        label[i] = mirt__callback_label(run, i);
        for (int k = 0; k < i; k++) {
            const mirt_callback *other = run->desc->callbacks[k];
            if (other->name && other->save_state && strcmp(label[i].text, label[k].text) == 0) {
                return mirt__fail(MIRT_E_INVALID,
                                  "mirt_fit: the callbacks %d and %d keep their states under one name, \"%s\"; give "
                                  "one of them another",
                                  k, i, label[i].text);
            }
        }
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__run_resume(mirt__training_run *run) {
    mirt__safetensors file;
    const char *path = run->desc->resume;
    mirt_strategy *strategy = run->model->strategy;
    mirt_status status = MIRT_OK;
    bool found = false;
    if (mirt__run_check_names(run) != MIRT_OK) return mirt_last_status();
    for (int i = 0; !path && i < mirt__num_callbacks(run); i++) {
        const mirt__readymade *ready = mirt__ready_of(run->desc->callbacks[i]);
        path = ready ? ready->restores : NULL;
    }
    if (!path) return MIRT_OK;
    if (mirt__writes_files(strategy)) status = mirt__resume_open(run, path, &file, &found);
    if (MIRT__PEERS(strategy)) status = mirt__resume_together(strategy, status, &file, &found);
    if (status != MIRT_OK || !found) return status;
    status = mirt__run_resume_file(run, &file);
    mirt__safetensors_close(&file);
    return status;
}
