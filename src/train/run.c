#include "../ops/ops.h"
#include "finite.h"
#include "remote.h"
#include "timeline.h"

MIRT__LIB int64_t mirt__replica_share(const mirt_function *f, int replica, int64_t *first) {
    return mirt__share(f->rows, f->replicas, replica, first);
}

/* The replicas that have rows are the first ones. */
MIRT__LIB int mirt__active_replicas(const mirt_function *f) { return f->rows < f->replicas ? (int)f->rows : f->replicas; }

MIRT__LIB mirt__real *mirt__gradient_at(const mirt_function *f, int device, int slot) {
    return (mirt__real *)(void *)(f->model->strategy->block[device] + (size_t)slot * f->root->trained_bytes);
}

/* >>replay */

/* The device's part of the bases; the replica's is set below. */
static void mirt__device_bases(const mirt_function *f, int device, mirt__bases *b) {
    const mirt_strategy *s = f->model->strategy;
    const mirt__layout *l = &s->layout;
    memset(b, 0, sizeof *b);
    if (s->backend) {
        mirt__remote_bases(f, device, b);
        return;
    }
    b->team = s->device[device].team;
    b->weight = f->root->weight[device];
    b->gradient = s->block[device];
    b->arena = b->gradient + mirt__align_up(l->gradients);
    b->replica = b->arena + mirt__align_up(l->arena);
    b->shared = b->replica + mirt__align_up(l->replica);
    b->scratch = b->shared + mirt__align_up(l->shared);
    b->scratch_per_thread = l->scratch / (size_t)s->threads;
}

/* `place` is where results that are not batched go. */
static void mirt__row_bases(const mirt_function *f, int device, mirt__bases *b, int64_t first_row, int place) {
    if (mirt__is_remote(f)) {
        mirt__remote_row_bases(f, device, b, first_row, place);
        return;
    }
    for (int i = 0; i < f->spec.num_fields; i++) {
        char *base;
        memcpy(&base, &f->io[i], sizeof base); /* read only: a program never writes an input */
        b->io[i] = base ? base + (size_t)first_row * f->program.io[i].bytes : NULL;
    }
    for (int i = 0; i < f->num_results; i++) {
        const mirt__port *port = &f->program.io[MIRT__MAX_FIELDS + i];
        b->io[MIRT__MAX_FIELDS + i] = f->result[i].data + (size_t)(port->batched ? first_row : (int64_t)place) * port->bytes;
    }
}

MIRT__LIB void mirt__replica_bases(const mirt_function *f, int device, int first, int replica, mirt__bases *b) {
    int64_t row;
    mirt__device_bases(f, device, b);
    mirt__replica_share(f, replica, &row);
    mirt__row_bases(f, device, b, row, replica);
    b->replica += (size_t)(replica - first) * f->program.replica;
    if (!b->remote) b->state = f->states + (size_t)replica * f->state_bytes;
    if (f->program.num_cuts) b->gradient = (char *)mirt__gradient_at(f, device, replica - first); /* a gradient may be what a cut reads */
}

typedef struct mirt__sending mirt__sending;
static void mirt__send_ready(void *user, const mirt__call *call, int node);

/* `sending`: what is told of every node, or NULL. */
static void mirt__replay(mirt_function *f, int segment, int device, const mirt__bases *b, int replica, int64_t first_row, int64_t rows, mirt__sending *sending) {
    const mirt_model *model = f->model;
    mirt__step_info run;
    run.seed = model->strategy->seed;
    run.step = model->step;
    run.first_row = first_row;
    run.global_rows = f->rows;
    run.replica = replica;
    run.loss_scale = model->config.reduction == MIRT_SUM ? 1.0 : 1.0 / (double)f->rows;
    run.gradient_scale = f->root->loss_scale;
    run.failed = &f->failed;
    run.failed_code = &f->failed_code;
    run.clock = device == 0 && f->clocks ? f->clocks->node : NULL;
    run.look = f->finder ? mirt__finder_look : sending ? mirt__send_ready : NULL;
    run.look_user = f->finder ? (void *)&f->finder[device] : (void *)sending;
    run.lane = &model->strategy->lane[device];
    const int at = f->program.first_gradient, begin = segment ? f->program.cut[segment - 1] : 0;
    mirt__mark(f, device, at >= 0 && begin > at ? MIRT_PHASE_BACKWARD : MIRT_PHASE_FORWARD, replica, -1);
    MIRT__TEST_POINT(MIRT__POINT_REPLAY, device, replica);
    mirt__park_if_given_up(model->strategy, device);
    if (run.clock && segment == 0) {
        f->clocks->replays++;
        f->clocks->replayed += rows;
    }
    mirt__program_run(&f->program, segment, model->strategy->kernels, &run, b, rows);
}

/* >>cuts */

MIRT__LIB void mirt__all_reduce_values(const mirt__node *node, int active, const mirt__real *value[][MIRT__MAX_REPLICAS], const int64_t *rows, mirt__real **out) {
    int64_t count = mirt__shape_count(&node->out[0]->shape);
    if (node->a.kind == MIRT__ALL_REDUCE_MOMENTS) {
        mirt__combine_moments(active, value[0], value[1], rows, count, out[0], out[1]);
        return;
    }
    mirt_aggregation kind = node->a.kind == MIRT__ALL_REDUCE_MEAN ? MIRT_AGGREGATE_MEAN : MIRT_AGGREGATE_SUM;
    for (int k = 0; k < node->num_in; k++) mirt__aggregate(kind, active, value[k], rows, mirt__shape_count(&node->out[k]->shape), out[k]);
}

/* Fills the outputs of the node at a cut for every replica of the device, from all replicas' inputs. */
static void mirt__device_cut(const mirt_function *f, const mirt__node *node, int device) {
    const mirt_strategy *s = f->model->strategy;
    const mirt__real *value[2][MIRT__MAX_REPLICAS];
    int64_t rows[MIRT__MAX_REPLICAS], row;
    int active = mirt__active_replicas(f), own_first, own = mirt__device_replicas(s, f->replicas, device, &own_first), first;
    mirt__bases b;
    for (int d = 0; d < s->num_devices; d++) {
        int count = mirt__device_replicas(s, f->replicas, d, &first);
        for (int r = first; r < first + count && r < active; r++) {
            mirt__replica_bases(f, d, first, r, &b);
            rows[r] = mirt__replica_share(f, r, &row);
            for (int k = 0; k < node->num_in; k++) value[k][r] = (const mirt__real *)mirt__address(&b, node->in[k]);
        }
    }
    mirt__real *done[MIRT__MAX_OUT] = {NULL};
    for (int r = own_first; r < own_first + own && r < active; r++) {
        mirt__real *out[MIRT__MAX_OUT];
        mirt__replica_bases(f, device, own_first, r, &b);
        for (int k = 0; k < node->num_out; k++) out[k] = (mirt__real *)mirt__address(&b, node->out[k]);
        for (int k = 0; k < node->num_out && done[0]; k++) memcpy(out[k], done[k], mirt__tensor_bytes(node->out[k], 1));
        if (!done[0]) mirt__all_reduce_values(node, active, value, rows, out);
        memcpy(done, out, sizeof done);
    }
}

/* >>a device's replicas */

static mirt__range mirt__overlap(const mirt__range *a, int64_t begin, int64_t end) {
    mirt__range r;
    r.begin = a->begin > begin ? a->begin : begin;
    r.end = a->end < end ? a->end : end;
    return r;
}

typedef struct mirt__counter {
    mirt__tree_stack stack;
    int first;
    bool slot_per_replica;
} mirt__counter;

static int mirt__counter_slot(const mirt__counter *c, int depth) {
    return c->slot_per_replica ? c->stack.node[depth].lo - c->first : depth;
}

/* The gradients of `replica` join the binary counter of buffers: its additions, of elements [begin, end). */
static void mirt__counter_add(const mirt_function *f, const mirt__counter *c, int device, int replica, int64_t begin, int64_t end) {
    const mirt_strategy *s = f->model->strategy;
    int slot[64];
    mirt__tree_stack stack = c->stack;
    const mirt__where where = mirt__where_of(f, device);
    for (int i = 0; i < stack.depth; i++) slot[i] = mirt__counter_slot(c, i);
    slot[stack.depth] = c->slot_per_replica ? replica - c->first : stack.depth;
    int merges = mirt__tree_push(&stack, replica, 1);
    if (merges && f->num_ranges) mirt__mark(f, device, MIRT_PHASE_REDUCE_HIDDEN, replica, -1);
    for (int top = stack.depth - 1 + merges; merges > 0; merges--, top--) {
        for (int i = 0; i < f->num_ranges; i++) {
            const mirt__range range = mirt__overlap(&f->range[i], begin, end);
            if (range.begin >= range.end) continue;
            s->kernels->accumulate(mirt__gradient_at(f, device, slot[top - 1]) + range.begin, mirt__gradient_at(f, device, slot[top]) + range.begin,
                                   range.end - range.begin, &where);
        }
    }
}

/* The last replica of a device, whose gradients travel as backward makes them. */
struct mirt__sending {
    const mirt_function *f;
    const mirt__counter *counter;
    int device, replica, next; /* replica -1: the device has none in this step */
};

static void mirt__send(mirt__sending *s) {
    const mirt__bucket *b = &s->f->bucket[s->next++];
    if (s->replica >= 0) mirt__counter_add(s->f, s->counter, s->device, s->replica, b->begin, b->end);
    mirt__remote_exchange_range(s->f, s->device, b->begin, b->end);
}

static void mirt__send_ready(void *user, const mirt__call *call, int node) {
    mirt__sending *s = (mirt__sending *)user;
    (void)call;
    while (s->next < s->f->num_buckets && s->f->bucket[s->next].ready <= node) mirt__send(s);
}

/* Waits for the other devices; the seconds count as `phase`. False: nobody waits for this one any more. */
MIRT__LIB bool mirt__device_meets(const mirt_function *f, int device, int phase, int node) {
    mirt__mark(f, device, phase, -1, node);
    MIRT__TEST_POINT(MIRT__POINT_BARRIER, device, (int)f->model->step);
    return mirt__devices_barrier(f->model->strategy, device);
}

/* At a cut every replica's values become all replicas'. False: they were given up. */
static bool mirt__device_at_cut(mirt_function *f, int device, int cut) {
    if (mirt__is_remote(f)) return mirt__remote_cut(f, f->program.graph.node[cut], device);
    if (!mirt__device_meets(f, device, MIRT_PHASE_IMBALANCE, cut)) return false;
    mirt__mark(f, device, MIRT_PHASE_REDUCE, -1, cut);
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)f->model->step);
    mirt__device_cut(f, f->program.graph.node[cut], device);
    return mirt__device_meets(f, device, MIRT_PHASE_REDUCE, cut);
}

/* The replicas [counter->first, end) through one segment. */
static void mirt__device_segment(mirt_function *f, int device, int segment, int end, mirt__counter *counter, mirt__sending *sending) {
    mirt__bases bases;
    for (int r = counter->first; r < end; r++) {
        const bool sends = f->overlaps && r == end - 1;
        int64_t first_row, rows = mirt__replica_share(f, r, &first_row);
        mirt__replica_bases(f, device, counter->first, r, &bases);
        if (!f->program.num_cuts) bases.gradient = (char *)mirt__gradient_at(f, device, counter->stack.depth);
        if (sends) sending->replica = r;
        mirt__replay(f, segment, device, &bases, r, first_row, rows, sends ? sending : NULL);
        if (segment < f->program.num_cuts || sends) continue;
        mirt__counter_add(f, counter, device, r, 0, INT64_MAX);
        mirt__tree_push(&counter->stack, r, 1);
    }
}

static bool mirt__device_segments(void *arg, int device) {
    mirt_function *f = (mirt_function *)arg;
    int cuts = f->program.num_cuts, active = mirt__active_replicas(f);
    mirt__counter counter;
    mirt__sending sending;
    memset(&counter, 0, sizeof counter);
    counter.slot_per_replica = cuts > 0;
    int own = mirt__device_replicas(f->model->strategy, f->replicas, device, &counter.first), end = counter.first + own;
    memset(&sending, 0, sizeof sending);
    sending.f = f;
    sending.counter = &counter;
    sending.device = device;
    sending.replica = -1;
    for (int segment = 0; segment <= cuts; segment++) {
        mirt__device_segment(f, device, segment, end < active ? end : active, &counter, &sending);
        if (segment < cuts && !mirt__device_at_cut(f, device, f->program.cut[segment])) return false;
    }
    while (f->overlaps && sending.next < f->num_buckets) mirt__send(&sending);
    if (f->overlaps) mirt__remote_exchanged(f, device);
    return true;
}

/* All replicas of the device. */
static bool mirt__device_replicas_run(mirt_function *f, int device) {
    if (!mirt__is_remote(f)) return mirt__device_segments(f, device);
    mirt__remote_scatter(f, device);
    mirt__remote_stage(f, device, 0);
    do {
        mirt__remote_open(f, device, 0);
        if (!mirt__device_segments(f, device)) return false;
    } while (!mirt__remote_shut(f, device));
    mirt__remote_stage(f, device, 1);
    return true;
}

static void mirt__device_replay(void *arg, int device) {
    mirt_function *f = (mirt_function *)arg;
    if (!mirt__device_replicas_run(f, device) || !mirt__is_remote(f)) return;
    mirt__remote_fetch(f, device);
    mirt__remote_finish(f, device);
}

/* Rows do not depend on each other here, so devices share them without regard to replicas. */
static void mirt__device_pieces(mirt_function *f, int device) {
    int devices = f->model->strategy->num_devices, place = device * ((f->replicas + devices - 1) / devices + 2);
    mirt__bases bases;
    int64_t first, rows = mirt__share(f->rows, devices, device, &first);
    mirt__device_bases(f, device, &bases);
    for (int64_t end = first + rows; first < end; first += rows) {
        rows = end - first < f->program.max_rows ? end - first : f->program.max_rows;
        mirt__row_bases(f, device, &bases, first, place++);
        mirt__replay(f, 0, device, &bases, first != 0, first, rows, NULL);
    }
}

static void mirt__device_rows(void *arg, int device) {
    mirt_function *f = (mirt_function *)arg;
    if (mirt__is_remote(f)) {
        mirt__remote_scatter(f, device);
        mirt__remote_stage(f, device, 0);
        do {
            mirt__remote_open(f, device, 2);
            mirt__device_pieces(f, device);
        } while (!mirt__remote_shut(f, device));
        mirt__remote_stage(f, device, 1);
        mirt__remote_fetch(f, device);
        if (!f->holds) mirt__remote_finish(f, device);
    } else {
        mirt__device_pieces(f, device);
    }
    mirt__mark(f, device, MIRT__PHASE_JOIN, -1, -1);
}

/* >>all-reduce and update */

MIRT__LIB void mirt__exchange_of(const mirt_function *f, int device, mirt__exchange *x) {
    mirt__exchange_plan(f->model->strategy, f->replicas, mirt__active_replicas(f), f->program.num_cuts > 0, device, x);
}

/* The device's share: parts summed in place in the plan's order, then written to every device's
   first buffer. */
MIRT__LIB void mirt__device_sum(const mirt_function *f, int device) {
    const mirt_strategy *s = f->model->strategy;
    const mirt__where where = mirt__where_of(f, device);
    mirt__exchange x;
    int64_t begin, end;
    mirt__exchange_of(f, device, &x);
    mirt__exchange_range(s, (int64_t)(f->root->trained_bytes / sizeof(mirt__real)), device, &begin, &end);
    mirt__mark(f, device, MIRT_PHASE_REDUCE, -1, -1);
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)f->model->step);
    for (int i = 0; i + 1 < x.parts; i++) {
        int into = x.add[i].into, from = x.add[i].from;
        s->kernels->accumulate(mirt__gradient_at(f, x.device[into], x.slot[into]) + begin, mirt__gradient_at(f, x.device[from], x.slot[from]) + begin,
                               end - begin, &where);
    }
    const mirt__real *sum = mirt__gradient_at(f, x.device[0], x.slot[0]) + begin;
    for (int d = 0; d < s->num_devices; d++) {
        mirt__real *to = mirt__gradient_at(f, d, 0) + begin;
        if (to == sum || begin == end) continue;
        if (s->backend) s->backend->copy(where.remote, to, sum, (size_t)(end - begin) * sizeof *to);
        else memcpy(to, sum, (size_t)(end - begin) * sizeof *to);
    }
}

static void mirt__device_all_reduce(void *arg, int device) {
    mirt_function *f = (mirt_function *)arg;
    if (!mirt__is_remote(f)) mirt__device_sum(f, device);
    else if (mirt__remote_reduce(f, device)) mirt__remote_finish(f, device);
}

/* The device's own sum, the later parts added to the earlier as the tree does, or after the all-reduce that of all. */
MIRT__LIB mirt_status mirt__device_gradient(mirt_function *f, int device, int64_t at, int64_t count, float *out) {
    const mirt_strategy *s = f->model->strategy;
    mirt__exchange x;
    mirt__real *copy = NULL;
    bool any = false, good = true;
    if (s->backend && !(copy = (mirt__real *)mirt__calloc((size_t)count, sizeof *copy))) return mirt_last_status();
    mirt__exchange_of(f, device, &x);
    for (int64_t i = 0; i < count; i++) out[i] = 0;
    for (int p = x.parts - 1; p >= 0 && good; p--) {
        if (f->stage == MIRT__REDUCED ? p > 0 : x.device[p] != device) continue;
        const mirt__real *g = mirt__gradient_at(f, device, f->stage == MIRT__REDUCED ? 0 : x.slot[p]) + at;
        if (copy) {
            s->backend->fetch(s->device[device].remote, copy, g, (size_t)count * sizeof *copy);
            good = mirt__remote_finish(f, device);
            g = copy;
        }
        for (int64_t i = 0; i < count; i++) out[i] = any ? (float)g[i] + out[i] : (float)g[i];
        any = true;
    }
    mirt__free(copy);
    for (int64_t i = 0; f->scaled && i < count; i++) out[i] = (float)((double)out[i] / f->root->loss_scale);
    return good ? MIRT_OK : mirt__remote_failure(f);
}

/* The new values of variables, written into the device's copy. */
static void mirt__device_states(const mirt_function *f, int device) {
    const mirt__real *value[MIRT__MAX_REPLICAS];
    int64_t rows[MIRT__MAX_REPLICAS], first;
    int active = mirt__active_replicas(f);
    for (int i = 0; i < f->num_states && device == 0; i++) f->root->edits += f->root->variable[f->state[i].variable].frozen;
    if (mirt__is_remote(f)) mirt__remote_states(f, device);
    if (mirt__is_remote(f) || device >= mirt__weight_copies(f->model->strategy)) return;
    for (int r = 0; r < active; r++) rows[r] = mirt__replica_share(f, r, &first);
    for (int i = 0; i < f->num_states; i++) {
        for (int r = 0; r < active; r++) value[r] = (const mirt__real *)(const void *)(f->states + (size_t)r * f->state_bytes) + f->state[i].from;
        mirt__aggregate_variable(&f->state[i], active, value, rows, (mirt__real *)(void *)f->root->weight[device] + f->state[i].to);
    }
}

/* >>norms of gradients */

typedef struct mirt__squares_job {
    mirt__piece *piece;
    const mirt__real *gradient;
} mirt__squares_job;

/* Squares of float32 numbers are exact in double, and the order of additions is that of the elements' places. */
static void mirt__squares_task(void *arg, int64_t task, int member) {
    const mirt__squares_job *job = (const mirt__squares_job *)arg;
    mirt__piece *p = &job->piece[task];
    const mirt__real *g = job->gradient + p->begin;
    double sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t i = 0;
    (void)member;
    for (; i + 8 <= p->count; i += 8) {
        for (int k = 0; k < 8; k++) sum[k] += (double)g[i + k] * (double)g[i + k];
    }
    for (; i < p->count; i++) sum[0] += (double)g[i] * (double)g[i];
    p->squares = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* The sums of all pieces' squares, of which each device makes its share: the gradients are summed first. */
static bool mirt__device_norms(mirt_function *f, int device) {
    const mirt_strategy *s = f->model->strategy;
    mirt__squares_job job;
    int64_t first;
    if (f->stage != MIRT__REDUCED && !s->backend) {
        mirt__device_all_reduce(f, device);
        if (!mirt__device_meets(f, device, MIRT_PHASE_REDUCE, -1)) return false;
    }
    const int64_t count = mirt__share(f->model->num_pieces, s->num_devices, device, &first);
    if (s->backend) {
        mirt__remote_squares(f, device, first, count);
        return mirt__device_meets(f, device, MIRT_PHASE_UPDATE, -1);
    }
    job.piece = f->model->piece + first;
    job.gradient = mirt__gradient_at(f, device, 0);
    mirt__team_for(s->device[device].team, count, mirt__squares_task, &job);
    return mirt__device_meets(f, device, MIRT_PHASE_UPDATE, -1);
}

/* Of the variable, or (-1) of all of them. */
static double mirt__squares_of(const mirt_function *f, int variable) {
    const mirt_model *model = f->model;
    double sum = 0;
    for (int i = 0; i < model->num_pieces; i++) {
        if (variable < 0 || model->piece[i].variable == variable) sum += model->piece[i].squares;
    }
    return f->scaled ? sum / (f->root->loss_scale * f->root->loss_scale) : sum;
}

/* Gradients that were scaled are made smaller again, by a power of two. */
static void mirt__unscale(const mirt_function *f, mirt__update *u) {
    if (!f->scaled) return;
    u->scale = (float)((u->shaped ? (double)u->scale : 1.0) / f->root->loss_scale);
    u->shaped = true;
}

/* >>the update */

/* An update of elements [begin, end), one variable at a time where each has its own numbers. */
static void mirt__update_piece(const mirt_function *f, mirt__update *u, const mirt__where *where, mirt__range r) {
    const mirt_model *root = f->root;
    const mirt__kernels *kernels = f->model->strategy->kernels;
    const bool by_variable = mirt__optimizer_by_variable(&f->model->config.optimizer);
    u->begin = r.begin;
    u->end = r.end;
    if (r.begin < r.end && !by_variable) kernels->update(u, where);
    for (int i = 0; by_variable && i < root->num_variables; i++) {
        const mirt__variable *v = &root->variable[i];
        const int64_t begin = (int64_t)(v->offset / sizeof(mirt__real));
        const mirt__range own = mirt__overlap(&r, begin, begin + v->count);
        if (!mirt__is_trained(v) || own.begin >= own.end) continue;
        u->begin = own.begin;
        u->end = own.end;
        mirt__optimizer_variable(f->model, v, mirt__squares_of(f, i), f->rate, u);
        mirt__unscale(f, u);
        kernels->update(u, where);
    }
}

/* The averages begin with the weights, also of variables that have no gradient. */
static void mirt__begin_averages(const mirt_function *f, int device, const mirt__update *u, int64_t begin, int64_t end) {
    const mirt_strategy *s = f->model->strategy;
    const size_t bytes = (size_t)(end - begin) * sizeof *u->average;
    if (!u->average || f->model->step > 0) return;
    if (s->backend) s->backend->copy(s->device[device].remote, u->average + begin, u->weight[0] + begin, bytes);
    else memcpy(u->average + begin, u->weight[0] + begin, bytes);
}

/* Where the device finds the gradients, and the weights it writes. */
static void mirt__update_parts(const mirt_function *f, int device, bool summed, mirt__update *u) {
    const mirt_strategy *s = f->model->strategy;
    mirt__exchange x;
    u->parts = 1;
    u->part[0] = mirt__gradient_at(f, device, 0);
    if (!summed) {
        mirt__exchange_of(f, device, &x);
        u->parts = x.parts;
        for (int i = 0; i < x.parts; i++) u->part[i] = mirt__gradient_at(f, x.device[i], x.slot[i]);
        for (int i = 0; i + 1 < x.parts; i++) {
            u->tree[i].into = x.add[i].into;
            u->tree[i].from = x.add[i].from;
        }
    }
    u->copies = mirt__weight_copies(s);
    for (int d = 0; d < u->copies; d++) u->weight[d] = (mirt__real *)(void *)(s->backend ? f->root->remote_weight[device] : f->root->weight[d]);
    if (u->parts == 1) return;
    mirt__mark(f, device, MIRT_PHASE_REDUCE, -1, -1);
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)f->model->step);
    mirt__mark(f, device, MIRT__PHASE_FUSED, -1, -1);
}

/* Sums all parts of the device's share, updates, writes into every copy. A device with memory of its own updates its own copy. */
static void mirt__device_apply(mirt_function *f, int device, bool norms) {
    const mirt_strategy *s = f->model->strategy;
    const mirt__where where = mirt__where_of(f, device);
    mirt__update u;
    int64_t begin, end;
    memset(&u, 0, sizeof u);
    mirt__update_parts(f, device, norms || s->backend || f->stage == MIRT__REDUCED, &u);
    mirt__optimizer_update(f->model, s->backend ? f->model->remote_slot[device] : f->model->slot, f->rate, &u);
    mirt__optimizer_extras(f->model, norms ? mirt__squares_of(f, -1) : 0, &u);
    mirt__unscale(f, &u);
    mirt__update_range(s, (int64_t)(f->root->trained_bytes / sizeof(mirt__real)), device, &begin, &end);
    mirt__begin_averages(f, device, &u, begin, end);
    for (int i = 0; i < f->num_ranges; i++) mirt__update_piece(f, &u, &where, mirt__overlap(&f->range[i], begin, end));
}

/* False: the devices were given up. */
static bool mirt__device_new_values(mirt_function *f, int device, bool norms) {
    if (norms && !mirt__device_norms(f, device)) return false;
    if (f->scaled && norms && !(mirt__squares_of(f, -1) <= DBL_MAX)) {
        __atomic_store_n(&f->overflow, true, __ATOMIC_RELAXED);
        return true;
    }
    if (f->finite_only && norms && !f->scaled && f->model->strategy->backend && !mirt__squares_finite(f)) {
        __atomic_fetch_or(&f->not_finite, MIRT__GRADIENT_BAD, __ATOMIC_RELAXED);
        return true;
    }
    mirt__device_states(f, device);
    mirt__device_apply(f, device, norms);
    return true;
}

static void mirt__remote_update(mirt_function *f, int device, bool norms) {
    if (!mirt__remote_reduce(f, device)) return;
    mirt__remote_stage(f, device, 2);
    do {
        if (!norms) mirt__remote_open(f, device, 1); /* with norms it waits in between */
        if (!mirt__device_new_values(f, device, norms)) return;
    } while (!norms && !mirt__remote_shut(f, device));
    mirt__remote_stage(f, device, 3);
    if ((f->model->strategy->kind != MIRT_CENTRAL_STORAGE || mirt__remote_meet(f, device, 2)) && !f->holds) mirt__remote_finish(f, device);
}

/* With norms of gradients the machine waits in the middle of the update. */
static bool mirt__needs_norms(const mirt_function *f) {
    const bool looks = f->finite_only && f->model->strategy->backend;
    return f->num_ranges && (f->scaled || looks || mirt__optimizer_norms(&f->model->config.optimizer));
}

static void mirt__device_update(void *arg, int device) {
    mirt_function *f = (mirt_function *)arg;
    const bool norms = mirt__needs_norms(f);
    mirt__mark(f, device, MIRT_PHASE_UPDATE, -1, -1);
    MIRT__TEST_POINT(MIRT__POINT_UPDATE, device, (int)f->model->step);
    if (mirt__is_remote(f)) mirt__remote_update(f, device, norms);
    else mirt__device_new_values(f, device, norms);
}

static bool mirt__step_failed(const mirt_function *f) { return __atomic_load_n(&f->failed, __ATOMIC_ACQUIRE) != NULL; }

static bool mirt__step_updates(const mirt_function *f) { return f->num_ranges || f->num_states; }

/* What a step does behind its replicas. False: the devices were given up. */
static bool mirt__device_step_ends(mirt_function *f, int device) {
    if (mirt__is_remote(f) && !f->holds && (f->finite_only || !mirt__step_updates(f))) mirt__remote_finish(f, device);
    if (f->finite_only) __atomic_fetch_or(&f->not_finite, mirt__device_not_finite(f, device), __ATOMIC_ACQ_REL);
    if (!mirt__step_updates(f)) return true;
    if (!mirt__device_meets(f, device, MIRT_PHASE_IMBALANCE, -1)) return false;
    if (!mirt__step_failed(f) && !__atomic_load_n(&f->not_finite, __ATOMIC_ACQUIRE)) mirt__device_update(f, device);
    return true;
}

static void mirt__device_step(void *arg, int device) {
    mirt_function *f = (mirt_function *)arg;
    MIRT__TEST_POINT(MIRT__POINT_STEP, device, (int)f->model->step);
    if (!mirt__device_replicas_run(f, device)) return;
    if (mirt__is_remote(f)) mirt__remote_fetch(f, device);
    if ((!f->holds || !mirt__needs_norms(f)) && !mirt__device_step_ends(f, device)) return;
    mirt__mark(f, device, MIRT__PHASE_JOIN, -1, -1);
}

/* The second round of a step that holds: the next batch sets out, then results are waited for. */
static void mirt__device_step_held(void *arg, int device) {
    mirt_function *f = (mirt_function *)arg;
    if (f->ahead) mirt__remote_scatter_ahead(f, device);
    mirt__mark(f, device, mirt__step_updates(f) ? MIRT_PHASE_UPDATE : MIRT_PHASE_FORWARD, -1, -1);
    if (!mirt__needs_norms(f)) mirt__remote_finish(f, device);
    else if (!mirt__device_step_ends(f, device)) return;
    mirt__mark(f, device, MIRT__PHASE_JOIN, -1, -1);
}

/* >>on the caller's thread */

/* Class numbers have to be whole, and of a class. */
static mirt_status mirt__check_classes(const mirt_function *f, int field, const mirt__batch *batch) {
    const mirt__data_field *spec = &f->spec.field[field];
    int64_t per_row = mirt__shape_count(&spec->shape), count = batch->rows * per_row;
    int classes = f->classes[field];
    for (int64_t i = 0; i < count; i++) {
        double label = mirt__element(batch->field[field], spec->dtype, i);
        if (label >= 0 && label < (double)classes && label == floor(label)) continue;
        long long sample = (long long)(batch->index ? batch->index[i / per_row] : i / per_row);
        if (label >= 0 && label < (double)classes) return mirt__fail(MIRT_E_INVALID, "label %g of sample %lld is not a whole number", label, sample);
        return mirt__fail(MIRT_E_INVALID, "label %g of sample %lld is not one of the %d classes 0 to %d", label, sample, classes, classes - 1);
    }
    return MIRT_OK;
}

/* The gradient buffers belong to whoever ran last: what this function leaves out of its sums is zero. */
static void mirt__take_memory(mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    if (s->in_memory == f) return;
    for (int d = 0; d < s->num_devices; d++) {
        if (s->backend) s->backend->clear(s->device[d].remote, s->block[d], f->needs.gradients);
        else memset(s->block[d], 0, f->needs.gradients);
    }
    s->in_memory = f;
}

MIRT__LIB mirt_status mirt__function_begin(mirt_function *f, const mirt__batch *batch) {
    if (mirt__usable(f->model->strategy) != MIRT_OK) return mirt_last_status();
    f->stage = MIRT__IDLE;
    f->prefetched = false;
    if (f->model->strategy->prefetched != f) f->model->strategy->prefetched = NULL;
    if (f->root != mirt__root(f->model, NULL) || f->layout != f->root->layout) {
        return mirt__fail(
            MIRT_E_STATE,
            "%s was compiled anew, was extended, or became a part of another model after this function was recorded: "
            "record it again",
            f->model->name);
    }
    if (batch->rows > f->max_batch) {
        return mirt__fail(MIRT_E_SHAPE, "a batch of %lld samples is larger than the %lld the function was made for", (long long)batch->rows, (long long)f->max_batch);
    }
    for (int i = 0; i < f->spec.num_fields; i++) {
        if (f->classes[i] && mirt__check_classes(f, i, batch) != MIRT_OK) return mirt_last_status();
        f->io[i] = batch->field[i];
    }
    f->rows = batch->rows;
    if (mirt__memory_reserve(f->model->strategy, &f->needs) != MIRT_OK || mirt__remote_begin(f) != MIRT_OK) return mirt_last_status();
    mirt__take_memory(f);
    f->failed = NULL;
    f->finite_only = f->overlaps = f->overflow = false;
    f->not_finite = 0;
    return MIRT_OK;
}

static mirt_status mirt__check_failed(const mirt_function *f) {
    if (!mirt__step_failed(f)) return MIRT_OK;
    return mirt__fail(MIRT_E_CALLBACK, "%s gave the code %d in a step of %s, which changed nothing", f->failed, f->failed_code, f->model->name);
}

/* The rate of the coming step; only a schedule can give a wrong one. */
static mirt_status mirt__take_rate(mirt_function *f) {
    double rate = f->rate = mirt_get_learning_rate(f->model);
    if (rate >= 0 && rate <= (double)FLT_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "the learning-rate schedule gave %g for step %lld; it must be a finite number and not negative", rate,
                      (long long)f->model->step);
}

/* Ops of the user run on the devices: they cannot run models of this strategy, nor destroy this one. */
static mirt_status mirt__run_round(mirt_function *f, void (*fn)(void *arg, int device)) {
    mirt_strategy *s = f->model->strategy;
    s->running = true;
    s->program = &f->program;
    const mirt_status status = mirt__on_devices(s, fn, f);
    s->running = false;
    return status;
}

/* In one round or, with `next`, in two, between which it is called. */
static mirt_status mirt__run_devices(mirt_function *f, void (*fn)(void *arg, int device), mirt__next_fn next, void *arg) {
    mirt_strategy *s = f->model->strategy;
    mirt__hold(f->model);
    mirt__lanes_begin(f);
    f->holds = next != NULL;
    mirt_status status = mirt__run_round(f, fn);
    if (next && status == MIRT_OK) {
        mirt__lanes_ahead(f);
        f->holds = false;
        f->ahead = f->remote_status == MIRT_OK ? next(arg) : NULL;
        status = mirt__run_round(f, mirt__device_step_held);
        s->prefetched = status == MIRT_OK && f->ahead ? f : NULL;
    }
    if (status == MIRT_OK) mirt__lanes_end(f);
    mirt__let_go(f->model);
    return status == MIRT_OK && s->backend ? mirt__remote_failure(f) : status;
}

/* The devices' weights, and the optimizer's state, are the newer ones now. */
static void mirt__remote_changed(const mirt_function *f) {
    if (!mirt__is_remote(f)) return;
    if (f->scaled && f->num_ranges) mirt__loss_scale_step(f->root, f->overflow);
    if (f->num_ranges) f->model->slots_newer = MIRT__NEWER_THERE;
    if (f->num_ranges || f->num_states) f->root->weights_newer = MIRT__NEWER_THERE;
}

/* The step was not applied. It is run again with an eye on every tensor; then a warning takes it after all. */
static mirt_status mirt__step_not_finite(mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    const int what = f->not_finite;
    f->not_finite = 0;
    f->finite_only = false;
    if (!(f->finder = (mirt__finder *)mirt__calloc((size_t)s->num_devices, sizeof *f->finder))) return mirt_last_status();
    for (int d = 0; d < s->num_devices; d++) f->finder[d].node = -1;
    mirt_status status = mirt__run_devices(f, mirt__device_replay, NULL, NULL);
    if (s->death) return status; /* its threads may still be at work */
    if (status == MIRT_OK) status = mirt__check_failed(f);
    if (status == MIRT_OK)
        mirt__describe_not_finite(f, what, f->finder, s->num_devices, f->model->not_finite,
                                  sizeof f->model->not_finite);
    mirt__free(f->finder);
    f->finder = NULL;
    if (status != MIRT_OK) return status;
    return f->model->nan_watch == 1 ? mirt__run_devices(f, mirt__device_update, NULL, NULL) : MIRT_OK;
}

MIRT__LIB mirt_status mirt__function_step(mirt_function *f) { return mirt__function_step_ahead(f, NULL, NULL); }

MIRT__LIB mirt_status mirt__function_step_ahead(mirt_function *f, mirt__next_fn next, void *arg) {
    if ((f->num_applied && mirt__take_rate(f) != MIRT_OK) || mirt__clocks_ready(f) != MIRT_OK || mirt__trace_ready(f) != MIRT_OK) return mirt_last_status();
    const double begin = f->clocks ? mirt__now() : 0;
    if (!f->by_replicas) {
        for (int i = 0; i < f->num_results; i++) {
            const mirt__result *r = &f->result[i];
            if (!r->batched) memset(r->data, 0, (size_t)mirt__result_places(f) * (size_t)r->count * mirt__dtype_size(r->dtype));
        }
    }
    if (f->finite_only && f->model->nan_first) {
        f->not_finite = mirt__model_not_finite(f);
        f->model->nan_first = false;
    }
    f->overlaps = f->by_replicas && f->num_buckets > 0 && !f->finite_only;
    if (!f->sends_ahead || f->finite_only || f->clocks) next = NULL; /* results are wanted before anything else, or their seconds */
    if (mirt__run_devices(f, f->by_replicas ? mirt__device_step : mirt__device_rows, next, arg) != MIRT_OK) return mirt_last_status();
    f->overlaps = false;
    if (f->clocks) {
        f->clocks->step += mirt__now() - begin;
        f->clocks->steps++;
        f->clocks->rows += f->rows;
    }
    if (mirt__check_failed(f) != MIRT_OK) return mirt_last_status();
    if (f->not_finite) {
        if (mirt__step_not_finite(f) != MIRT_OK) return mirt_last_status();
        if (f->model->nan_watch == 2) return MIRT_OK;
    }
    mirt__remote_changed(f);
    if (f->num_applied && !f->overflow) f->model->step++;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__function_replicas(mirt_function *f) {
    if (mirt__trace_ready(f) != MIRT_OK) return mirt_last_status();
    if (mirt__run_devices(f, mirt__device_replay, NULL, NULL) != MIRT_OK || mirt__check_failed(f) != MIRT_OK) return mirt_last_status();
    f->stage = MIRT__GRADIENTS;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__function_all_reduce(mirt_function *f) {
    f->model->strategy->program = NULL;
    if (mirt__on_devices(f->model->strategy, mirt__device_all_reduce, f) != MIRT_OK || mirt__remote_failure(f) != MIRT_OK) return mirt_last_status();
    f->stage = MIRT__REDUCED;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__function_update(mirt_function *f) {
    if (mirt__take_rate(f) != MIRT_OK) return mirt_last_status();
    if (mirt__on_devices(f->model->strategy, mirt__device_update, f) != MIRT_OK || mirt__remote_failure(f) != MIRT_OK) return mirt_last_status();
    mirt__remote_changed(f);
    if (!f->overflow) f->model->step++;
    f->stage = MIRT__IDLE;
    return MIRT_OK;
}
