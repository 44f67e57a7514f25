#include "../ops/ops.h"
#include "finite.h"
/* Whether a step computes or would write non-finite values, and where the first one comes from. */

/* Of a device while it runs a step again: the first node, in the program's order, with a number that is not finite. */
typedef struct mirt__finder {
    int node, replica; /* node -1: none so far */
    const mirt_tensor *tensor;
} mirt__finder;

static bool mirt__all_finite(const void *data, mirt_dtype dtype, int64_t count) {
    uint16_t half;
    for (int64_t i = 0; dtype == MIRT_FLOAT32 && i < count; i++) {
        if (!(fabs((double)((const mirt__real *)data)[i]) <= DBL_MAX)) return false;
    }
    const int exponent = (int)dtype == MIRT__FLOAT16 ? 0x7c00 : 0x7f80;
    for (int64_t i = 0; (int)dtype >= MIRT__BFLOAT16 && i < count; i++) {
        memcpy(&half, (const char *)data + 2 * i, sizeof half);
        if ((half & exponent) == exponent) return false;
    }
    return true;
}

/* The losses of the device's replicas: the first result, and the terms among the results. */
static bool mirt__device_losses_finite(const mirt_function *f, int device) {
    int first, count = mirt__device_replicas(f->model->strategy, f->step.replicas, device, &first);
    int64_t begin, end, none;
    mirt__replica_share(&f->step, first, &begin);
    end = begin;
    for (int r = first; r < first + count; r++) end += mirt__replica_share(&f->step, r, &none);
    for (int k = 0; k < 2; k++) {
        if (k && f->results.terms < 0) continue;
        const mirt__result *r = &f->results.list[k ? f->results.terms : 0];
        int64_t from = r->batched ? begin : first, to = r->batched ? end : first + count;
        if (!r->batched && to > mirt__active_replicas(&f->step)) to = mirt__active_replicas(&f->step);
        if (from < to && !mirt__all_finite((const mirt__real *)(const void *)r->data + from * r->count, MIRT_FLOAT32,
                                           (to - from) * r->count))
            return false;
    }
    return true;
}

/* >>what a step reads to write it */

/* Of gradients: neither clipped nor divided by their norm. */
static bool mirt__takes_as_it_is(const mirt_optimizer *o) { return !mirt__optimizer_norms(o) && !(o->clipvalue > 0); }

/* Gradients above this count as not finite: sums over replicas, squares and moments of smaller ones stay finite. With
   clipping large ones are harmless, but their sums must be finite. */
static float mirt__gradient_bound(const mirt_function *f) {
    const float usual = 1e17f, whole = 1.8e19f; /* its square is finite */
    if (!mirt__optimizers_any(&f->model->config, mirt__takes_as_it_is)) return FLT_MAX / MIRT__MAX_REPLICAS;
    return whole / (float)f->step.replicas < usual ? whole / (float)f->step.replicas : usual;
}

typedef int32_t mirt__finite_four __attribute__((vector_size(16)));

typedef struct mirt__finite_job {
    const mirt__real *x;
    int64_t count;
    float bound;
    int32_t bad; /* atomic */
} mirt__finite_job;

enum { MIRT__FINITE_TASK = 1 << 14 };

/* The bits of numbers without their sign are ordered as the numbers are, with infinity and NaN above all others. */
static void mirt__finite_task(void *arg, int64_t task, int member) {
    mirt__finite_job *job = (mirt__finite_job *)arg;
    const int64_t most_elements = MIRT__FINITE_TASK, begin = task * most_elements, left = job->count - begin;
    const int64_t count = left < most_elements ? left : most_elements;
    const mirt__real *x = job->x + begin;
    int32_t bits, bad = 0;
    int64_t i = 0;
    (void)member;
    memcpy(&bits, &job->bound, sizeof bits);
    if (sizeof *x == sizeof bits) {
        const int32_t all = INT32_MAX;
        const mirt__finite_four most = {bits, bits, bits, bits}, mask = {all, all, all, all};
        mirt__finite_four some[2], above[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        for (; i + 8 <= count; i += 8) {
            memcpy(some, x + i, sizeof some);
            above[0] |= (mirt__finite_four)((some[0] & mask) > most);
            above[1] |= (mirt__finite_four)((some[1] & mask) > most);
        }
        above[0] |= above[1];
        bad = above[0][0] | above[0][1] | above[0][2] | above[0][3];
    }
    for (; i < count; i++) bad |= !(fabs((double)x[i]) <= (double)job->bound);
    if (bad) __atomic_store_n(&job->bad, 1, __ATOMIC_RELAXED);
}

static bool mirt__all_below(mirt__team *team, const mirt__real *x, int64_t count, float bound) {
    mirt__finite_job job = {x, count, bound, 0};
    mirt__team_for(team, (count + MIRT__FINITE_TASK - 1) / MIRT__FINITE_TASK, mirt__finite_task, &job);
    return !job.bad;
}

/* Elements [begin, end) of the gradient buffers that the device's replicas filled. */
static bool mirt__device_gradients_finite(const mirt_function *f, int device, int64_t begin, int64_t end) {
    const float bound = mirt__gradient_bound(f);
    mirt__exchange x;
    mirt__step_plan(&f->step, device, &x);
    for (int p = 0; p < x.parts; p++) {
        if (x.device[p] != device) continue;
        for (int i = 0; i < f->step.num_ranges; i++) {
            const mirt__range own = mirt__overlap(&f->step.range[i], begin, end);
            const mirt__real *gradient = mirt__gradient_at(&f->step, device, x.slot[p]) + own.begin;
            if (own.begin < own.end && !mirt__all_below(f->model->strategy->device[device].team, gradient,
                                                        own.end - own.begin, bound))
                return false;
        }
    }
    return true;
}

/* The new states of the device's replicas: moving statistics, for one. */
static bool mirt__device_states_finite(const mirt_function *f, int device) {
    int first, count = mirt__device_replicas(f->model->strategy, f->step.replicas, device, &first);
    const int active = mirt__active_replicas(&f->step);
    mirt__bases b;
    bool finite = true;
    for (int r = first; f->step.num_states && r < first + count && r < active && finite; r++) {
        char *host = f->step.states + (size_t)r * f->step.state_bytes;
        mirt__replica_bases(&f->step, device, first, r, &b);
        b.backend->copy_out(b.where.handle, host, b.state, f->step.state_bytes);
        if (b.backend->wait(b.where.handle) != MIRT_OK) return true; /* the step reports this error itself */
        const mirt__real *state = (const mirt__real *)(const void *)host;
        for (int i = 0; i < f->step.num_states && finite; i++)
            finite = mirt__all_finite(state + f->step.state[i].from, MIRT_FLOAT32, f->step.state[i].count);
    }
    return finite;
}

static int mirt__device_not_finite(void *function, int device) {
    const mirt_function *f = (const mirt_function *)function;
    int what = mirt__device_losses_finite(f, device) ? 0 : MIRT__LOSS_BAD;
    if (!mirt__device_states_finite(f, device)) what |= MIRT__STATE_BAD;
    if (!f->step.float16 && f->model->strategy->able.in_place &&
        !mirt__device_gradients_finite(f, device, 0, INT64_MAX))
        what |= MIRT__GRADIENT_BAD;
    return what;
}

/* Whose squares are not finite among the gradients; -1: none. */
static int mirt__squares_bad(const mirt_function *f) {
    const mirt_model *model = f->model;
    const double bound = (double)mirt__gradient_bound(f);
    for (int i = 0; i < model->num_pieces; i++) {
        if (!(model->piece[i].squares <= bound * bound * (double)model->piece[i].count))
            return model->piece[i].variable;
    }
    return -1;
}

static bool mirt__squares_finite(const mirt_function *function) { return mirt__squares_bad(function) < 0; }

static void mirt__describe_given(const mirt__variable *v, const char *what, char *out, size_t size) {
    mirt__line_add(out, size, "in %s %.200s, which an update before made so, or whoever set them", what, v->name);
}

/* Names a weight, or the optimizer's state of one, that is not finite on the host; false: all are. */
static bool mirt__name_not_finite(const mirt_function *f, char *out, size_t size) {
    const mirt_model *root = f->root;
    for (int block = 0; block <= MIRT__MAX_SLOTS; block++) {
        const char *at = block ? f->model->slot[block - 1] : root->weight;
        for (int i = 0; at && i < root->num_variables; i++) {
            const mirt__variable *v = &root->variable[i];
            if ((block && !mirt__is_trained(v)) || mirt__all_finite(at + v->offset, MIRT_FLOAT32, v->count)) continue;
            if (out) mirt__describe_given(v, block ? "the optimizer's state of" : "the weights", out, size);
            return true;
        }
    }
    return false;
}

static int mirt__model_not_finite(const mirt_function *f) {
    mirt__weights_to_host(f->root);
    mirt__slots_to_host(f->model);
    return mirt__name_not_finite(f, NULL, 0) ? MIRT__MODEL_BAD : 0;
}

/* The weight whose gradient is not finite, or NULL. */
static const char *mirt__gradient_not_finite(const mirt_function *f) {
    const mirt_model *root = f->root;
    const bool in_place = f->model->strategy->able.in_place;
    const int of = in_place ? -1 : mirt__squares_bad(f);
    if (!in_place) return of < 0 ? NULL : root->variable[of].name;
    for (int i = 0; i < root->num_variables; i++) {
        const mirt__variable *v = &root->variable[i];
        const int64_t begin = (int64_t)(v->offset / sizeof(mirt__real));
        for (int d = 0; mirt__is_trained(v) && d < f->model->strategy->num_devices; d++) {
            if (!mirt__device_gradients_finite(f, d, begin, begin + v->count)) return v->name;
        }
    }
    return NULL;
}

/* >>where it comes from */

static bool mirt__tensor_finite(const mirt__call *call, const mirt_tensor *t) {
    const mirt__bases *b = call->bases;
    const char *data = (const char *)mirt__address(b, t);
    const size_t size = mirt__dtype_size(t->dtype), bytes = mirt__tensor_bytes(t, call->rows);
    mirt__real chunk[4096];
    if (!data || t->lazy) return true;
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < sizeof chunk ? bytes - at : sizeof chunk;
        b->backend->copy_out(b->where.handle, chunk, data + at, part);
        if (b->backend->wait(b->where.handle) != MIRT_OK) return true; /* the step reports this error itself */
        if (!mirt__all_finite(chunk, t->dtype, (int64_t)(part / size))) return false;
    }
    return true;
}

/* What nobody has computed, weights and what is read of the batch; also of what is computed while it is read. */
static const mirt_tensor *mirt__given_not_finite(const mirt__call *call, const mirt__node *node) {
    for (int k = 0; k < node->num_in; k++) {
        const mirt_tensor *t = node->in[k], *found = NULL;
        if (t->lazy) found = mirt__given_not_finite(call, t->node);
        else if ((t->space == MIRT__SPACE_WEIGHT || t->space == MIRT__SPACE_IO) && !mirt__tensor_finite(call, t))
            found = t;
        if (found) return found;
    }
    return NULL;
}

static void mirt__finder_look(void *user, const mirt__call *call, int number) {
    mirt__finder *finder = (mirt__finder *)user;
    if (finder->node >= 0 && number >= finder->node) return;
    const mirt_tensor *found = mirt__given_not_finite(call, call->node);
    for (int k = 0; k < call->node->num_out && !found; k++) {
        if (!mirt__tensor_finite(call, call->node->out[k])) found = call->node->out[k];
    }
    if (!found) return;
    finder->node = number;
    finder->replica = call->run->replica;
    finder->tensor = found;
}

/* What is known where no tensor of the step has a number that is not finite. */
static void mirt__describe_without(const mirt_function *f, int what, char *out, size_t size) {
    const char *gradient = what & MIRT__GRADIENT_BAD ? mirt__gradient_not_finite(f) : NULL;
    if (what & MIRT__MODEL_BAD && mirt__name_not_finite(f, out, size)) return;
    if (gradient)
        mirt__line_add(out, size, "that of %.200s is above %g or not a number", gradient,
                       (double)mirt__gradient_bound(f));
    else mirt__line_add(out, size, "when the step was run again, it was");
}

static void mirt__describe_not_finite(const mirt_function *f, int what, const mirt__finder *first, char *out,
                                      size_t size) {
    char shape[96];
    const char *name = "a gradient of";
    if (what & MIRT__LOSS_BAD) name = "the loss of";
    else if (what & MIRT__MODEL_BAD) name = "the model before";
    else if (what & MIRT__STATE_BAD) name = "a moving statistic or other new state of";
    snprintf(out, size, "%s step %lld is not finite; ", name, (long long)f->model->step + 1);
    if (!first) {
        mirt__describe_without(f, what, out, size);
        return;
    }
    const mirt__node *node = f->step.program.graph.node[first->node];
    const mirt_tensor *t = first->tensor;
    mirt__line_add(out, size, "the first number that is not is in replica %d, ", first->replica);
    for (int i = 0; t->space == MIRT__SPACE_WEIGHT && i < f->root->num_variables; i++) {
        if (f->root->variable[i].offset != t->offset) continue;
        mirt__describe_given(&f->root->variable[i], "the weights", out, size);
        return;
    }
    if (t->space == MIRT__SPACE_IO && t->port < MIRT__MAX_FIELDS && t->node != node) {
        const bool input = t->port < f->spec.num_x;
        mirt__line_add(out, size, "in the data: %s number %d", input ? "input" : "label or weight",
                       input ? t->port : t->port - f->spec.num_x);
        return;
    }
    mirt__line_add(out, size, "in what layer %.100s (%.40s) makes of finite numbers: %s %.90s",
                   node->name ? node->name : "without a name", node->op->name, mirt__dtype_name(t->dtype),
                   mirt__shape_text(&t->shape, shape));
}

static mirt_status mirt__finders_open(mirt_function *f) {
    const int devices = f->model->strategy->num_devices;
    mirt__finder *finder = (mirt__finder *)mirt__calloc((size_t)devices, sizeof *finder);
    if (!finder) return mirt_last_status();
    for (int d = 0; d < devices; d++) finder[d].node = -1;
    f->step.look = mirt__finder_look;
    f->step.look_user = (char *)finder;
    f->step.look_bytes = sizeof *finder;
    return MIRT_OK;
}

/* What a process says of numbers that are not finite; node -1: none of its replicas has made them. */
typedef struct mirt__found_by {
    int node;
    char text[sizeof ((mirt_model *)NULL)->not_finite];
} mirt__found_by;

/* Every process takes the description of the one that found the first node. */
MIRT__TOGETHER_ONLY void mirt__finders_agree(mirt_function *f, int node) {
    mirt_strategy *s = f->model->strategy;
    const mirt__found_by *best = NULL;
    mirt__found_by own;
    memset(&own, 0, sizeof own);
    own.node = node;
    snprintf(own.text, sizeof own.text, "%s", f->model->not_finite);
    const mirt__found_by *all = (const mirt__found_by *)mirt__peers_tell(s, &own, sizeof own);
    for (int i = 0; all && i < MIRT__PEERS(s)->size; i++) {
        if (all[i].node >= 0 && (!best || all[i].node < best->node)) best = &all[i];
    }
    if (best) snprintf(f->model->not_finite, sizeof f->model->not_finite, "%s", best->text);
}

static void mirt__finders_close(mirt_function *f, int what, bool good) {
    const mirt_strategy *s = f->model->strategy;
    mirt__finder *finder = (mirt__finder *)(void *)f->step.look_user;
    const mirt__finder *first = NULL;
    if (s->death) return; /* its threads may still look */
    f->step.look = NULL;
    for (int d = 0; d < s->num_devices; d++) {
        if (finder[d].node >= 0 && (!first || finder[d].node < first->node)) first = &finder[d];
    }
    if (good) mirt__describe_not_finite(f, what, first, f->model->not_finite, sizeof f->model->not_finite);
    if (good && MIRT__PEERS(s)) mirt__finders_agree(f, first ? first->node : -1);
    mirt__free(finder);
}

MIRT__LIB const mirt__guard *mirt__finite_guard(void) {
    static const mirt__guard guard = {mirt__model_not_finite, mirt__device_not_finite, mirt__squares_finite,
                                      mirt__finders_open, mirt__finders_close};
    return &guard;
}
