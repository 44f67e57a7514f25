#include "run.h"
/* Launches the next step before the results of the previous one are read. Devices then do not wait for the host. */

/* The rate of the step after the one under way; false: it is not known yet, as the user's code says it. */
static bool mirt__coming_known(const mirt_function *f, double *rate) {
    const mirt_model *model = f->model;
    const mirt_optimizer *o = &model->config.optimizer;
    *rate = 0;
    if (!MIRT__TRAINS || !f->step.has_gradients) return true;
    if (o->schedule && !model->rate_set) return false;
    *rate = model->rate_set ? (double)o->learning_rate : mirt__optimizer_rate(o, model->step + 1);
    return mirt__is_rate(mirt__rates_at(model, *rate, model->step + 1));
}

/* Whether the host neither waits in the middle of its steps nor looks at what they do. */
static bool mirt__runs_freely(const mirt_function *f) {
    const mirt__step *step = &f->step;
    const bool norms = MIRT__TRAINS && mirt__step_norms(step);
    return !norms && !step->program.num_cuts && !step->look && !step->clocks && !f->guard && !f->model->profiled &&
           !f->model->strategy->trace;
}

MIRT__LIB bool mirt__can_follow(mirt_function *f, const mirt__batch *batch) {
    const mirt__step *step = &f->step;
    double rate;
    /* The first step of that many rows may move memory, loads kernels, and takes memory for constants. */
    return f->following.allowed && step->ran && step->ran[batch->rows] && mirt__runs_freely(f) &&
           mirt__coming_known(f, &rate) && mirt__check_class_numbers(f, batch, f->following.valid_weight) == MIRT_OK;
}

/* The other step becomes the one under way. */
static void mirt__follow_swap(mirt_function *f) {
    mirt__following *other = &f->following;
    mirt__step *step = &f->step;
    const int64_t rows = step->rows;
    const double rate = f->rate;
    step->rows = other->rows;
    other->rows = rows;
    f->rate = other->rate;
    other->rate = rate;
    for (int i = 0; i < f->spec.num_fields; i++) {
        const void *field = step->io[i];
        step->io[i] = other->io[i];
        other->io[i] = field;
        const double weight = f->valid_weight[i];
        f->valid_weight[i] = other->valid_weight[i];
        other->valid_weight[i] = weight;
    }
    step->turn ^= 1;
    mirt__results_place(f);
}

/* For the devices' threads the model is `steps` further. */
static void mirt__follow_count(const mirt_function *f, int steps) {
    mirt_strategy *s = f->model->strategy;
    if (f->step.has_gradients) f->model->step += steps;
    for (int d = 0; d < s->num_devices; d++) __atomic_store_n(&s->timeline[d].step, f->model->step, __ATOMIC_RELAXED);
}

static mirt_status mirt__follow_launch(mirt_function *f) {
    mirt__step *step = &f->step;
    mirt__follow_swap(f);
    mirt__follow_count(f, 1);
    mirt__info_set(f);
    step->prefetched = step->holds = true;
    step->overlaps = MIRT__TRAINS && mirt__can_overlap(f);
    const mirt_status status = mirt__run_round(f, mirt__step_run_next);
    step->prefetched = step->holds = step->overlaps = false;
    mirt__follow_count(f, -1);
    mirt__follow_swap(f);
    return status;
}

MIRT__LIB mirt_status mirt__follow(mirt_function *f, const mirt__batch *batch) {
    f->following.rows = batch->rows;
    for (int i = 0; i < f->spec.num_fields; i++) f->following.io[i] = batch->field[i];
    mirt__coming_known(f, &f->following.rate);
    if (mirt__follow_launch(f) != MIRT_OK) return mirt_last_status();
    f->following.launched = true;
    return mirt__run_round(f, mirt__step_run_marked);
}

MIRT__LIB mirt_status mirt__follow_begin(mirt_function *f, const mirt__batch *batch) {
    if (batch->rows != f->following.rows)
        return mirt__fail(MIRT_E_STATE, "the step of another batch of %lld samples was launched already",
                          (long long)f->following.rows);
    mirt__follow_swap(f);
    f->step.failed = NULL;
    f->step.same = false;
    return MIRT_OK;
}
