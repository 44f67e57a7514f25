#include "run.h"
/* Runs a step from the caller's thread: checks the batch's labels, starts the devices, reports failures. */

static bool mirt__is_class(const mirt__class_numbers *use, double label) {
    if (use->ignores && label == (double)use->ignored) return true;
    return label >= 0 && label < (double)use->classes && label == floor(label);
}

/* How many of the labels are neither classes nor ignored; *ignored: how many are. Labels of pixels are many. */
MIRT__TRAINING int64_t mirt__count_labels(const void *labels, mirt_dtype dtype, int64_t count,
                                          const mirt__class_numbers *use, int64_t *ignored) {
    int64_t others = 0, out = 0;
    for (int64_t i = 0; dtype == MIRT_UINT8 && i < count; i++) {
        const int label = ((const uint8_t *)labels)[i], skip = use->ignores && label == use->ignored;
        out += skip;
        others += label >= use->classes && !skip;
    }
    for (int64_t i = 0; dtype == MIRT_INT32 && i < count; i++) {
        const int label = ((const int32_t *)labels)[i], skip = use->ignores && label == use->ignored;
        out += skip;
        others += (label < 0 || label >= use->classes) && !skip;
    }
    for (int64_t i = 0; dtype != MIRT_UINT8 && dtype != MIRT_INT32 && i < count; i++) {
        const double label = mirt__element(labels, dtype, i);
        out += use->ignores && label == (double)use->ignored;
        others += !mirt__is_class(use, label);
    }
    *ignored = out;
    return others;
}

/* Class numbers have to be whole, and of a class. */
MIRT__TRAINING mirt_status mirt__check_classes(const mirt_function *f, int field, const mirt__batch *batch,
                                               double *valid_weight) {
    const mirt__data_field *spec = &f->spec.field[field];
    const mirt__class_numbers *use = &f->classes[field];
    const int64_t per_row = mirt__shape_count(&spec->shape), count = batch->rows * per_row;
    int64_t ignored, at = 0;
    const int64_t others = mirt__count_labels(batch->field[field], spec->dtype, count, use, &ignored);
    *valid_weight = ignored < count ? (double)count / (double)(count - ignored) : 0;
    if (!others) return MIRT_OK;
    while (mirt__is_class(use, mirt__element(batch->field[field], spec->dtype, at))) at++;
    const double label = mirt__element(batch->field[field], spec->dtype, at);
    const long long sample = (long long)(batch->index ? batch->index[at / per_row] : at / per_row);
    if (label >= 0 && label < (double)use->classes)
        return mirt__fail(MIRT_E_INVALID, "label %g of sample %lld is not a whole number", label, sample);
    return mirt__fail(MIRT_E_INVALID, "label %g of sample %lld is not one of the %d classes 0 to %d", label, sample,
                      use->classes, use->classes - 1);
}

/* What the optimizer reads and writes, on the devices. */
static mirt_status mirt__weights_ready(const mirt_function *f) {
    if (mirt__weights_to_devices(f->root) != MIRT_OK) return mirt_last_status();
    return MIRT__TRAINS && f->step.has_gradients ? mirt__slots_to_devices(f->model) : MIRT_OK;
}

MIRT__LIB mirt_status mirt__check_class_numbers(const mirt_function *f, const mirt__batch *batch,
                                                double *valid_weight) {
    for (int i = 0; i < f->spec.num_fields; i++) {
        if (MIRT__TRAINS && f->classes[i].classes &&
            mirt__check_classes(f, i, batch, &valid_weight[i]) != MIRT_OK)
            return mirt_last_status();
    }
    return MIRT_OK;
}

/* Memory, weights and a clean state for a step of so many rows. */
static mirt_status mirt__function_reserve(mirt_function *f, int64_t rows) {
    mirt__step *step = &f->step;
    step->rows = rows;
    step->there = false;
    if (MIRT__TRAINS) mirt__rule_set(f);
    if (mirt__step_reserve(step) != MIRT_OK || mirt__weights_ready(f) != MIRT_OK) return mirt_last_status();
    step->same = step->same && step->strategy->in_memory == f; /* reserving may have moved it */
    if (MIRT__TRAINS) mirt__step_take_memory(step);
    step->failed = NULL;
    step->overlaps = step->reduced = f->overflow = false;
    f->guard = NULL;
    step->not_finite = 0;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__function_begin(mirt_function *f, const mirt__batch *batch) {
    mirt_strategy *s = f->model->strategy;
    mirt__step *step = &f->step;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    f->stage = MIRT__IDLE;
    if (f->following.launched) return mirt__follow_begin(f, batch);
    step->prefetched = false;
    if (s->prefetched != f) s->prefetched = NULL;
    if (f->root != mirt__root(f->model, NULL) || f->layout != f->root->layout) {
        return mirt__fail(
            MIRT_E_STATE,
            "%s was compiled anew, was extended, or became a part of another model after this function was recorded: "
            "record it again",
            f->model->name);
    }
    if (batch->rows > step->max_rows) {
        return mirt__fail(MIRT_E_SHAPE, "a batch of %lld samples is larger than the %lld the function was made for",
                          (long long)batch->rows, (long long)step->max_rows);
    }
    step->same = batch->same && step->there && step->rows == batch->rows && s->in_memory == f;
    if (mirt__check_class_numbers(f, batch, f->valid_weight) != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < f->spec.num_fields; i++) {
        step->same = step->same && step->io[i] == batch->field[i];
        step->io[i] = batch->field[i];
    }
    return mirt__function_reserve(f, batch->rows);
}

static mirt_status mirt__check_failed(const mirt_function *f) {
    const char *failed = __atomic_load_n(&f->step.failed, __ATOMIC_ACQUIRE);
    if (!failed) return MIRT_OK;
    return mirt__fail(MIRT_E_CALLBACK, "%s gave the code %d in a step of %s, which changed nothing", failed,
                      f->step.failed_code, f->model->name);
}

/* Ops of the user run on the devices: they cannot run models of this strategy, nor destroy this one. */
MIRT__LIB mirt_status mirt__run_round(mirt_function *f, void (*fn)(void *arg, int device)) {
    mirt_strategy *s = f->model->strategy;
    s->running = true;
    s->program = &f->step.program;
    const mirt_status status = mirt__on_devices(s, fn, &f->step);
    s->running = false;
    return status;
}

MIRT__LIB void mirt__info_set(mirt_function *f) {
    const mirt_model *model = f->model;
    mirt__step_info *info = &f->step.info;
    memset(info, 0, sizeof *info);
    info->seed = model->strategy->seed;
    info->step = model->step;
    info->global_rows = f->step.rows;
    info->loss_scale = model->config.reduction == MIRT_SUM ? 1.0 : 1.0 / (double)f->step.rows;
    info->gradient_scale = f->root->loss_scale;
    info->valid_weight = f->valid_weight;
    info->failed = &f->step.failed;
    info->failed_code = &f->step.failed_code;
    f->step.captures = !model->profiled;
    f->step.check = f->guard ? f->guard->device : NULL;
}

/* What follows the launch of a step: the next batch is read and sent, its step launched if that can be, and results are
   waited for. */
static mirt_status mirt__run_rest(mirt_function *f, mirt__next_fn next, void *arg) {
    mirt_strategy *s = f->model->strategy;
    mirt__step *step = &f->step;
    if (MIRT__TRAINS && next && s->observer) s->observer->ahead(f);
    step->holds = false;
    const mirt__batch *ahead = next && step->device_status == MIRT_OK ? next(arg) : NULL;
    step->ahead = ahead ? ahead->field : NULL;
    step->ahead_rows = ahead ? ahead->rows : 0;
    if (ahead && mirt__can_follow(f, ahead)) return mirt__follow(f, ahead);
    const mirt_status status = mirt__run_round(f, mirt__step_run_held);
    s->prefetched = status == MIRT_OK && ahead ? f : NULL;
    return status;
}

/* In one round or, with `next`, in more, between which it is called. A step that was launched ahead has had its
   first. */
static mirt_status mirt__run_devices(mirt_function *f, void (*fn)(void *arg, int device), mirt__next_fn next,
                                     void *arg) {
    mirt_strategy *s = f->model->strategy;
    mirt__step *step = &f->step;
    mirt__info_set(f);
    mirt__hold(f->model);
    for (int d = 0; d < s->num_devices; d++) __atomic_store_n(&s->timeline[d].step, f->model->step, __ATOMIC_RELAXED);
    if (MIRT__TRAINS && s->observer) s->observer->begin(f);
    step->holds = next != NULL;
    const bool launched = f->following.launched;
    f->following.launched = false;
    mirt_status status = launched ? MIRT_OK : mirt__run_round(f, fn);
    if ((next || launched) && status == MIRT_OK) status = mirt__run_rest(f, next, arg);
    for (int d = 0; d < s->num_devices && status == MIRT_OK; d++)
        mirt__timeline_mark(&s->timeline[d], MIRT_PHASE_LAUNCH, -1, -1);
    if (MIRT__TRAINS && s->observer && status == MIRT_OK) s->observer->end(f);
    mirt__let_go(f->model);
    if (status == MIRT_OK) status = mirt__step_failure(step);
    f->following.launched = f->following.launched && status == MIRT_OK;
    step->there = status == MIRT_OK && !f->following.launched;
    return status;
}

/* The devices' weights, and the optimizer's state, are the newer ones now. */
MIRT__TRAINING void mirt__devices_changed(mirt_function *f) {
    const mirt__step *step = &f->step;
    for (int i = 0; i < step->num_states && !f->overflow; i++)
        f->root->edits += f->root->variable[step->state[i].variable].frozen;
    if (step->float16 && step->num_ranges) mirt__loss_scale_step(f->root, f->overflow);
    if (step->num_ranges) f->model->slots_newer = MIRT__NEWER_DEVICES;
    if (mirt__step_updates(step)) f->root->weights_newer = MIRT__NEWER_DEVICES;
}

/* The step was not applied: runs it again without its update to tell the caller why. Then a warning takes it after
   all. */
MIRT__TRAINING mirt_status mirt__step_not_finite(mirt_function *f) {
    const mirt__guard *guard = f->guard;
    const int what = f->step.not_finite;
    f->step.not_finite = 0;
    f->guard = NULL;
    if (guard->open(f) != MIRT_OK) return mirt_last_status();
    mirt_status status = mirt__run_devices(f, mirt__step_replicas, NULL, NULL);
    if (status == MIRT_OK) status = mirt__check_failed(f);
    guard->close(f, what, status == MIRT_OK);
    if (status != MIRT_OK) return status;
    return f->model->nan_watch == 1 ? mirt__run_devices(f, mirt__step_update, NULL, NULL) : MIRT_OK;
}

/* Where devices send, and nothing can keep the step from being applied. The first step of as many rows loads kernels
   and takes memory for constants: both may wait for what a device sends, which may wait for what this one has yet to
   launch. */
MIRT__TRAINING_LIB bool mirt__can_overlap(const mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    if (!f->step.by_replicas || !f->step.num_buckets || f->step.program.num_cuts) return false;
    if (MIRT__HOST_PEERS(s)) return !s->average_every && f->step.num_buckets > 1 && s->peers->overlaps;
    return !s->able.direct && s->all_devices > 1 && !f->guard && f->step.ran[f->step.rows];
}

MIRT__TOGETHER_ONLY_LIB mirt_status mirt__average_weights(mirt_model *model) {
    mirt_model *root = mirt__root(model, NULL);
    root->averaged = model->step;
    mirt__weights_to_host(root);
    if (mirt__peers_average(root->strategy, (mirt__real *)(void *)root->weight,
                            (int64_t)(root->trained_bytes / sizeof(mirt__real))) != MIRT_OK)
        return mirt_last_status();
    mirt__weights_changed(root);
    return mirt__weights_to_devices(root);
}

/* Of local SGD, once a step has been applied. */
MIRT__TRAINING mirt_status mirt__average_when_due(const mirt_function *f) {
    const mirt_strategy *s = f->model->strategy;
    if (!MIRT__PEERS(s) || !s->average_every || f->model->step % s->average_every) return MIRT_OK;
    return mirt__average_weights(f->model);
}

MIRT__TRAINING mirt_status mirt__observer_ready(mirt_function *f) {
    const mirt__observer *observer = f->model->strategy->observer;
    return observer ? observer->ready(f) : MIRT_OK;
}

MIRT__LIB mirt_status mirt__function_step(mirt_function *f) { return mirt__function_step_ahead(f, NULL, NULL); }

MIRT__LIB mirt_status mirt__function_step_ahead(mirt_function *f, mirt__next_fn next, void *arg) {
    if (!MIRT__TRAINS) {
        if (!f->step.sends_ahead) next = NULL;
        if (mirt__run_devices(f, mirt__step_run, next, arg) != MIRT_OK) return mirt_last_status();
        if (f->step.ran) f->step.ran[f->step.rows] = true;
        return mirt__check_failed(f);
    }
    if (f->step.has_gradients && mirt__coming_rate(f->model, &f->rate) != MIRT_OK) return mirt_last_status();
    if (mirt__observer_ready(f) != MIRT_OK) return mirt_last_status();
    const double begin = f->step.clocks ? mirt__now() : 0;
    if (f->guard && f->model->nan_first) {
        f->step.not_finite = f->guard->model(f);
        f->model->nan_first = false;
    }
    f->step.overlaps = mirt__can_overlap(f) && (!MIRT__HOST_PEERS(f->model->strategy) || mirt__courier_begin(&f->step));
    if (!f->step.sends_ahead || f->guard || f->step.clocks)
        next = NULL; /* results are wanted before anything else, or their seconds */
    const mirt_status ran = mirt__run_devices(f, mirt__step_run, next, arg);
    if (f->step.overlaps && MIRT__HOST_PEERS(f->model->strategy)) mirt__courier_end(&f->step, ran != MIRT_OK);
    if (ran != MIRT_OK) return ran;
    f->step.overlaps = false;
    if (f->step.ran) f->step.ran[f->step.rows] = true;
    if (f->step.clocks) {
        f->step.clocks->step += mirt__now() - begin;
        f->step.clocks->steps++;
        f->step.clocks->rows += f->step.rows;
    }
    if (mirt__check_failed(f) != MIRT_OK) return mirt_last_status();
    if (f->step.not_finite) {
        if (mirt__step_not_finite(f) != MIRT_OK) return mirt_last_status();
        if (f->model->nan_watch == 2) return MIRT_OK;
    }
    mirt__devices_changed(f);
    if (!f->step.has_gradients || f->overflow) return MIRT_OK;
    f->model->step++;
    return mirt__average_when_due(f);
}

MIRT__TRAINING_LIB mirt_status mirt__function_replicas(mirt_function *f) {
    if (mirt__observer_ready(f) != MIRT_OK) return mirt_last_status();
    if (mirt__run_devices(f, mirt__step_replicas, NULL, NULL) != MIRT_OK || mirt__check_failed(f) != MIRT_OK)
        return mirt_last_status();
    f->stage = MIRT__GRADIENTS;
    return MIRT_OK;
}

/* A stage in which no program runs. */
MIRT__TRAINING mirt_status mirt__run_stage(mirt_function *f, void (*fn)(void *arg, int device)) {
    const mirt_status status = mirt__on_devices(f->model->strategy, fn, &f->step);
    return status == MIRT_OK ? mirt__step_failure(&f->step) : status;
}

MIRT__TRAINING_LIB mirt_status mirt__function_all_reduce(mirt_function *f) {
    f->model->strategy->program = NULL;
    if (mirt__run_stage(f, mirt__step_all_reduce) != MIRT_OK) return mirt_last_status();
    f->step.reduced = true;
    f->stage = MIRT__REDUCED;
    return MIRT_OK;
}

MIRT__TRAINING_LIB mirt_status mirt__function_update(mirt_function *f) {
    if (mirt__coming_rate(f->model, &f->rate) != MIRT_OK || mirt__run_stage(f, mirt__step_update) != MIRT_OK)
        return mirt_last_status();
    mirt__devices_changed(f);
    f->stage = MIRT__IDLE;
    if (f->overflow) return MIRT_OK;
    f->model->step++;
    return mirt__average_when_due(f);
}

MIRT__TOGETHER_ONLY_LIB mirt_status mirt__function_gradients(mirt_function *f) {
    const int ranges = f->step.num_ranges;
    if (mirt__function_replicas(f) != MIRT_OK || mirt__function_all_reduce(f) != MIRT_OK) return mirt_last_status();
    if (!f->step.num_states) return MIRT_OK;
    f->step.num_ranges = 0;
    const mirt_status status = mirt__run_stage(f, mirt__step_update);
    if (status == MIRT_OK) mirt__devices_changed(f);
    f->step.num_ranges = ranges;
    return status;
}

MIRT__TOGETHER_ONLY_LIB mirt_status mirt__function_take(mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    mirt__step *step = &f->step;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    step->same = false;
    if (mirt__function_reserve(f, 1) != MIRT_OK) return mirt_last_status();
    mirt__info_set(f);
    for (int d = 0; d < s->num_devices; d++) memset(mirt__sum_at(step, d), 0, step->gradient_bytes);
    step->reduced = true;
    return MIRT_OK;
}
