#include "run.h"
/* Applies gradients to weights: clips them, scales them, and runs the optimizer's update. */

/* Sum of squares of the variable's gradient, or (-1) of all that the optimizer updates; NULL: of all. */
static double mirt__squares_of(const mirt_function *f, int variable, const mirt_optimizer *o) {
    const mirt__rule *rule = &f->step.rule;
    const double scale = f->root->loss_scale;
    bool own = true;
    double sum = 0;
    for (int i = 0; i < rule->num_pieces; i++) {
        const mirt__piece *p = &rule->piece[i];
        if (variable >= 0) own = p->variable == variable;
        else if (o && (!i || p->variable != p[-1].variable)) own = mirt__optimizer_of(f->model, p->variable) == o;
        if (own) sum += p->squares;
    }
    return f->step.float16 ? sum / (scale * scale) : sum;
}

/* Non-finite gradients keep the step from being applied. */
static bool mirt__rule_accepts(void *user) {
    mirt_function *f = (mirt_function *)user;
    if (f->step.float16 && !(mirt__squares_of(f, -1, NULL) <= DBL_MAX)) {
        __atomic_store_n(&f->overflow, true, __ATOMIC_RELAXED);
        return false;
    }
    if (f->guard && !f->step.float16 && !f->model->strategy->able.in_place && !f->guard->squares(f)) {
        __atomic_fetch_or(&f->step.not_finite, MIRT__GRADIENT_BAD, __ATOMIC_RELAXED);
        return false;
    }
    return true;
}

/* Gradients that were scaled are made smaller again, by a power of two. */
static void mirt__unscale(const mirt_function *f, mirt__update *u) {
    if (!f->step.float16) return;
    u->scale = (float)((u->shaped ? (double)u->scale : 1.0) / f->root->loss_scale);
    u->shaped = true;
}

/* Averages begin with the weights, also of variables that have no gradient. */
static void mirt__rule_prepare(void *user, int device, int64_t begin, int64_t end, const mirt__update *u) {
    const mirt_function *f = (const mirt_function *)user;
    const mirt_strategy *s = f->model->strategy;
    if (!f->model->config.optimizer.use_ema || f->model->step) return;
    mirt__real *average = (mirt__real *)(void *)f->step.slot[device][mirt__slots(&f->model->config) - 1];
    s->backend->copy(s->device[device].handle, average + begin, u->weight[0] + begin,
                     (size_t)(end - begin) * sizeof *average);
}

/* What a direction needs, if it only says so. */
typedef struct mirt__rule_needs {
    mirt_function *f;
    bool measures;
} mirt__rule_needs;

/* The variable's gradient becomes the direction of its optimizer, which looks at whole weights, or (needs) the
   direction says what it needs. */
static mirt__whole mirt__rule_direct(const mirt_function *f, int variable, double rate, const mirt__bases *b,
                                     mirt__real *sum, const mirt__rule_needs *needs, mirt__update *u) {
    const mirt_strategy *s = f->model->strategy;
    mirt__whole whole;
    memset(&whole, 0, sizeof whole);
    whole.optimizer = mirt__optimizer_of(f->model, variable);
    whole.variable = &f->root->variable[variable];
    whole.backend = s->backend;
    whole.kernels = s->kernels;
    whole.where = &b->where;
    whole.sum = sum;
    whole.room = b->arena; /* backward is done with it */
    whole.step = f->model->step + 1;
    whole.rate = rate;
    whole.update = u;
    whole.dry = needs != NULL;
    whole.measures = needs && needs->measures;
    mirt__optimizer_class_get(whole.optimizer->kind)->direction(&whole);
    return whole;
}

/* The directions of all variables, which only say what they need; addresses are made up. */
static void mirt__rule_dry(void *arg) {
    const mirt__rule_needs *own = (const mirt__rule_needs *)arg;
    const mirt_function *f = own->f;
    mirt__layout *needs = &own->f->step.needs;
    char *const beyond = (char *)((uintptr_t)1 << 40); /* NOLINT */
    for (int i = 0; i < f->root->num_variables; i++) {
        mirt__update u;
        mirt__bases b;
        if (!mirt__is_trained(&f->root->variable[i]) || !mirt__optimizer_whole(mirt__optimizer_of(f->model, i)))
            continue;
        memset(&u, 0, sizeof u);
        memset(&b, 0, sizeof b);
        b.where = mirt__where_of(&f->step, 0);
        b.arena = beyond;
        u.weight[0] = u.slot[0] = u.slot[1] = (mirt__real *)(void *)beyond;
        mirt__whole whole = mirt__rule_direct(f, i, 0, &b, u.weight[0], own, &u);
        if (!mirt__mul_size(whole.scratch, (size_t)f->model->strategy->threads, &whole.scratch))
            whole.scratch = SIZE_MAX; /* which is refused where memory is reserved */
        if (needs->arena < whole.taken) needs->arena = whole.taken;
        if (needs->scratch < whole.scratch) needs->scratch = whole.scratch;
    }
}

/* Memory for directions. */
static void mirt__rule_room(mirt_function *f) {
    const mirt_strategy *s = f->model->strategy;
    mirt__rule_needs own = {f, false};
    mirt__kernel_room room;
    memset(&room, 0, sizeof room);
    mirt__rule_dry(&own);
    own.measures = true;
    s->backend->measure(s->device[0].handle, mirt__rule_dry, &own, &room);
    if (f->step.needs.shared < room.shared) f->step.needs.shared = room.shared;
}

/* The front of the range, as far as one optimizer updates it. Trained variables lie in their order. */
static mirt__range mirt__rule_front(const mirt_function *f, mirt__range range, const mirt_optimizer **out) {
    const mirt_optimizer *o = NULL;
    const int variables = mirt__optimizer_number(&f->model->config, 1) ? f->root->num_variables : 0;
    for (int i = 0; i < variables; i++) {
        const mirt__variable *v = &f->root->variable[i];
        const int64_t first = (int64_t)(v->offset / sizeof(mirt__real));
        if (!mirt__is_trained(v) || first + v->count <= range.begin || first >= range.end) continue;
        const mirt_optimizer *own = mirt__optimizer_of(f->model, i);
        if (!o) o = own;
        if (own != o) range.end = first;
    }
    *out = o ? o : &f->model->config.optimizer;
    return range;
}

/* One variable at a time where each has its own numbers. */
static void mirt__rule_apply(const mirt_function *f, int device, const mirt_optimizer *o, mirt__range range,
                             mirt__update *u) {
    const mirt__kernels *kernels = f->model->strategy->kernels;
    const bool by_variable = mirt__optimizer_by_variable(o);
    const double rate = o == &f->model->config.optimizer ? f->rate : mirt__optimizer_rate(o, f->model->step);
    mirt__bases b;
    mirt__device_bases(&f->step, device, &b);
    mirt__optimizer_update(f->model, o, f->step.slot[device], rate, u);
    mirt__optimizer_extras(o, o->global_clipnorm > 0 ? mirt__squares_of(f, -1, o) : 0, u);
    mirt__unscale(f, u);
    u->begin = range.begin;
    u->end = range.end;
    if (!by_variable) kernels->update(u, &b.where);
    for (int i = 0; by_variable && i < f->root->num_variables; i++) {
        const mirt__variable *v = &f->root->variable[i];
        const int64_t first = (int64_t)(v->offset / sizeof(mirt__real));
        const mirt__range own = mirt__overlap(&range, first, first + v->count);
        mirt__update one = *u;
        one.begin = own.begin;
        one.end = own.end;
        if (!mirt__is_trained(v) || one.begin >= one.end) continue;
        mirt__optimizer_variable(o, v, o->clipnorm > 0 ? mirt__squares_of(f, i, NULL) : 0, rate, &one);
        if (o->clipnorm > 0) mirt__unscale(f, &one);
        if (mirt__optimizer_whole(o)) mirt__rule_direct(f, i, rate, &b, mirt__sum_at(&f->step, device), NULL, &one);
        kernels->update(&one, &b.where);
    }
}

static void mirt__rule_update(void *user, int device, mirt__range range, const mirt__update *u) {
    const mirt_function *f = (const mirt_function *)user;
    while (range.begin < range.end) {
        const mirt_optimizer *o;
        const mirt__range front = mirt__rule_front(f, range, &o);
        mirt__update own = *u;
        mirt__rule_apply(f, device, o, front, &own);
        range.begin = front.end;
    }
}

/* Whether the step updates it, and what it becomes is constrained. */
static bool mirt__is_constrained(const mirt_function *f, const mirt__variable *v) {
    const int64_t first = (int64_t)(v->offset / sizeof(mirt__real));
    bool updated = false;
    for (int i = 0; i < f->step.num_ranges && !updated && v->constraint.kind; i++)
        updated = f->step.range[i].begin <= first && first < f->step.range[i].end;
    return updated && mirt__is_trained(v);
}

static void mirt__rule_constrain(void *user, const mirt__where *where, mirt__real *weight) {
    const mirt_function *f = (const mirt_function *)user;
    for (int i = 0; i < f->root->num_variables; i++) {
        const mirt__variable *v = &f->root->variable[i];
        mirt__constrain c;
        if (!mirt__is_constrained(f, v)) continue;
        memset(&c, 0, sizeof c);
        c.constraint = v->constraint;
        c.rank = v->shape.rank;
        memcpy(c.dim, v->shape.dim, sizeof c.dim);
        c.w = weight + v->offset / sizeof *weight;
        if (v->constraint.kind == MIRT_SPECTRAL_NORM) c.u = weight + v[1].offset / sizeof *weight;
        f->model->strategy->kernels->constrain(&c, where);
    }
}

MIRT__LIB void mirt__rule_set(mirt_function *f) {
    mirt__rule *rule = &f->step.rule;
    rule->constrain = NULL;
    for (int i = 0; i < f->root->num_variables; i++) {
        if (mirt__is_constrained(f, &f->root->variable[i])) rule->constrain = mirt__rule_constrain;
    }
    rule->user = f;
    const bool whole = mirt__optimizers_any(&f->model->config, mirt__optimizer_whole);
    rule->norms = f->step.float16 || mirt__optimizers_any(&f->model->config, mirt__optimizer_norms);
    if (f->step.num_ranges && whole && !rule->whole) mirt__rule_room(f);
    rule->whole = whole;
    rule->piece = f->model->piece;
    rule->num_pieces = f->model->num_pieces;
    rule->accepts = mirt__rule_accepts;
    rule->prepare = mirt__rule_prepare;
    rule->update = mirt__rule_update;
}
