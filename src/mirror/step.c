#include "step.h"
/* The mirrored step: scatter, run, reduce, apply. The devices' threads run it at the same time. */

MIRT__TRAINING_LIB bool mirt__step_updates(const mirt__step *step) { return step->num_ranges || step->num_states; }

MIRT__TRAINING_LIB bool mirt__step_norms(const mirt__step *step) {
    return step->num_ranges && (step->rule.norms || (step->check && !step->strategy->able.in_place));
}

/* Whether the sum has to be complete before the update, which otherwise adds up the partial sums itself. */
MIRT__TRAINING bool mirt__step_sums_first(const mirt__step *step) {
    return mirt__step_norms(step) || MIRT__PEERS(step->strategy) || !step->strategy->able.shards;
}

/* >>run */

/* One segment of the program. `look`: what is told of every node, or NULL. */
static void mirt__replay(mirt__turn *t, int segment, const mirt__bases *b, int replica, int64_t first_row, int64_t rows,
                         void (*look)(void *user, const mirt__call *call, int node)) {
    mirt__step *step = t->step;
    mirt__step_info run = step->info;
    run.first_row = first_row;
    run.replica = replica;
    run.clock = t->device == 0 && step->clocks ? step->clocks->node : NULL;
    run.look = step->look ? step->look : look;
    run.look_user = step->look ? (void *)(step->look_user + (size_t)t->device * step->look_bytes) : (void *)t;
    run.timeline = &step->strategy->timeline[t->device];
    const int at = step->program.first_gradient, begin = segment ? step->program.cut[segment - 1] : 0;
    mirt__step_mark(step, t->device, at >= 0 && begin > at ? MIRT_PHASE_BACKWARD : MIRT_PHASE_FORWARD, replica, -1);
    MIRT__TEST_POINT(MIRT__POINT_REPLAY, t->device, replica);
    mirt__park_if_given_up(step->strategy, t->device);
    if (run.clock && segment == 0) {
        step->clocks->replays++;
        step->clocks->replayed += rows;
    }
    mirt__program_run(&step->program, segment, step->strategy->kernels, &run, b, rows);
}

/* The device's replicas through one segment. */
MIRT__TRAINING void mirt__run_segment(mirt__turn *t, int segment) {
    mirt__step *step = t->step;
    mirt__bases bases;
    for (int r = t->first; r < t->end; r++) {
        const bool sends = step->overlaps && r == t->end - 1;
        int64_t first_row, rows = mirt__replica_share(step, r, &first_row);
        mirt__replica_bases(step, t->device, t->first, r, &bases);
        if (!step->program.num_cuts) bases.gradient = (char *)mirt__gradient_at(step, t->device, t->stack.depth);
        if (sends) t->sent = r;
        mirt__replay(t, segment, &bases, r, first_row, rows, sends ? mirt__send_ready : NULL);
        if (segment < step->program.num_cuts || sends) continue;
        mirt__counter_add(t, r, 0, INT64_MAX);
        mirt__tree_push(&t->stack, r, 1);
    }
}

/* False: the devices were given up. */
MIRT__TRAINING bool mirt__run_segments(mirt__turn *t) {
    mirt__step *step = t->step;
    const int cuts = step->program.num_cuts;
    t->end = mirt__own_replicas(step, t->device, &t->first);
    for (int segment = 0; segment <= cuts; segment++) {
        mirt__run_segment(t, segment);
        if (segment < cuts && !mirt__step_cut(step, t->device, step->program.cut[segment])) return false;
    }
    if (step->overlaps) mirt__send_buckets(t, INT_MAX);
    if (step->overlaps) step->strategy->backend->reduced(step->strategy->device[t->device].handle);
    return true;
}

/* The device's rows, as many at a time as the program takes. */
static bool mirt__run_pieces(mirt__turn *t) {
    mirt__step *step = t->step;
    int place = (step->strategy->first_device + t->device) * mirt__device_pieces(step);
    mirt__bases bases;
    int64_t first, rows = mirt__device_share(step->strategy, step->rows, t->device, &first);
    mirt__device_bases(step, t->device, &bases);
    for (int64_t end = first + rows; first < end; first += rows) {
        rows = end - first < step->program.max_rows ? end - first : step->program.max_rows;
        mirt__row_bases(step, t->device, &bases, first, place++);
        mirt__replay(t, 0, &bases, first != 0, first, rows, NULL);
    }
    return true;
}

/* Scatter, and all replicas or rows of the device. */
static bool mirt__run_all(mirt__step *step, int device) {
    bool good;
    mirt__step_scatter(step, device);
    mirt__step_clock(step, device, 0);
    do {
        mirt__turn turn;
        memset(&turn, 0, sizeof turn);
        turn.step = step;
        turn.device = device;
        turn.sent = -1;
        turn.next = step->program.mirrored;
        mirt__step_begin(step, device, step->by_replicas ? 0 : 2);
        if (MIRT__TRAINS && step->by_replicas) good = mirt__run_segments(&turn);
        else good = mirt__run_pieces(&turn);
        if (!good) return false;
    } while (!mirt__step_end(step, device));
    mirt__step_clock(step, device, 1);
    mirt__step_fetch(step, device);
    return true;
}

MIRT__TRAINING_LIB void mirt__step_replicas(void *arg, int device) {
    mirt__step *step = (mirt__step *)arg;
    if (!mirt__run_all(step, device)) return;
    mirt__step_finish(step, device);
    if (MIRT__PEERS(step->strategy)) mirt__peers_tell_step(step, device);
}

/* >>reduce */

/* The sum of all buckets on every device, once the devices have met. False: the devices timed out. */
MIRT__TRAINING bool mirt__reduce_all(mirt__step *step, int device) {
    const mirt_strategy *s = step->strategy;
    if (MIRT__HOST_PEERS(s)) return mirt__peers_reduce(step, device);
    if (step->overlaps) return true; /* it is on its way */
    for (int i = step->program.mirrored; i < step->program.graph.count; i++) {
        const mirt__node *node = step->program.graph.node[i];
        if (node->op->reduces) mirt__step_reduce(step, device, &step->bucket[node->a.index]);
    }
    s->backend->reduced(s->device[device].handle);
    return true;
}

MIRT__TRAINING_LIB void mirt__step_all_reduce(void *arg, int device) {
    mirt__step *step = (mirt__step *)arg;
    if (mirt__reduce_all(step, device)) mirt__step_finish(step, device);
}

/* The squares of all pieces of the sum, of which each device takes its share. False: it failed, or was given up. */
MIRT__TRAINING bool mirt__reduce_squares(mirt__step *step, int device) {
    const mirt_strategy *s = step->strategy;
    mirt__square_piece piece[MIRT__MOST_SQUARES];
    double squares[MIRT__MOST_SQUARES];
    int64_t at, left = mirt__share(step->rule.num_pieces, s->num_devices, device, &at);
    for (; left > 0; at += MIRT__MOST_SQUARES, left -= MIRT__MOST_SQUARES) {
        mirt__piece *own = step->rule.piece + at;
        const int pieces = left < MIRT__MOST_SQUARES ? (int)left : MIRT__MOST_SQUARES;
        for (int i = 0; i < pieces; i++) {
            piece[i].begin = own[i].begin;
            piece[i].count = own[i].count;
            squares[i] = 0;
        }
        s->backend->squares(s->device[device].handle, mirt__sum_at(step, device), piece, pieces, squares);
        if (!mirt__step_finish(step, device)) break;
        for (int i = 0; i < pieces; i++) own[i].squares = squares[i];
    }
    return mirt__step_meet(step, device, MIRT_PHASE_UPDATE, -1);
}

/* >>apply */

/* New values of variables from all replicas', written into the device's copy. */
MIRT__TRAINING void mirt__apply_states(const mirt__step *step, int device) {
    const mirt_strategy *s = step->strategy;
    mirt__aggregation_job a;
    if (device >= mirt__device_copies(s) || !step->num_states) return;
    a.value = step->state;
    a.values = step->num_states;
    a.active = mirt__active_replicas(step);
    a.replicas = step->replicas;
    a.rows = step->rows;
    a.stride = (int64_t)(step->state_bytes / sizeof(mirt__real));
    a.from = (const mirt__real *)(const void *)mirt__states_of(step, device);
    a.to = (mirt__real *)(void *)step->weight[device];
    s->backend->aggregate(s->device[device].handle, &a);
}

/* Where the device finds the gradients' parts, and the weights it writes. */
MIRT__TRAINING void mirt__apply_parts(const mirt__step *step, int device, mirt__update *u) {
    const mirt_strategy *s = step->strategy;
    const bool shards = s->able.shards;
    mirt__exchange x;
    u->parts = 1;
    u->part[0] = mirt__sum_at(step, device);
    u->copies = mirt__written_copies(s);
    for (int d = 0; d < u->copies; d++) u->weight[d] = (mirt__real *)(void *)step->weight[shards ? d : device];
    if (step->reduced || mirt__step_sums_first(step)) return;
    mirt__step_plan(step, device, &x);
    u->parts = x.parts;
    for (int i = 0; i < x.parts; i++) u->part[i] = mirt__gradient_at(step, x.device[i], x.slot[i]);
    memcpy(u->tree, x.add, sizeof u->tree);
    if (u->parts == 1) return;
    mirt__step_mark(step, device, MIRT_PHASE_REDUCE, -1, -1);
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)step->info.step);
    mirt__step_mark(step, device, MIRT__PHASE_FUSED, -1, -1);
}

/* `at`, or where the first variable after it begins, or the end. */
MIRT__TRAINING int64_t mirt__next_variable(const mirt__piece *piece, int pieces, int64_t at, int64_t end) {
    int64_t next = pieces ? end : at;
    for (int i = 0; i < pieces; i++) {
        const bool first = i == 0 || piece[i - 1].variable != piece[i].variable;
        if (first && piece[i].begin >= at && piece[i].begin < next) next = piece[i].begin;
    }
    return next;
}

MIRT__TRAINING_LIB mirt__range mirt__update_share(const mirt_strategy *s, int64_t elements, int device,
                                                  const mirt__piece *piece, int pieces) {
    mirt__range own;
    mirt__update_range(s, elements, device, &own.begin, &own.end);
    own.begin = mirt__next_variable(piece, pieces, own.begin, elements);
    own.end = mirt__next_variable(piece, pieces, own.end, elements);
    return own;
}

/* Updates the device's share of a bucket: sums the parts, if they are several, and writes every copy. */
MIRT__TRAINING void mirt__apply_bucket(const mirt__step *step, int device, const mirt__bucket *bucket,
                                       const mirt__update *u) {
    const mirt__rule *rule = &step->rule;
    mirt__range own = mirt__update_share(step->strategy, (int64_t)(step->gradient_bytes / sizeof(mirt__real)), device,
                                         rule->piece, rule->whole ? rule->num_pieces : 0);
    own = mirt__overlap(&own, bucket->begin, bucket->end);
    if (own.begin >= own.end) return;
    rule->prepare(rule->user, device, own.begin, own.end, u);
    for (int i = 0; i < step->num_ranges; i++) {
        const mirt__range range = mirt__overlap(&step->range[i], own.begin, own.end);
        if (range.begin < range.end) rule->update(rule->user, device, range, u);
    }
}

MIRT__TRAINING void mirt__apply_gradients(const mirt__step *step, int device) {
    mirt__update u;
    memset(&u, 0, sizeof u);
    mirt__apply_parts(step, device, &u);
    for (int i = step->program.mirrored; i < step->program.graph.count; i++) {
        const mirt__node *node = step->program.graph.node[i];
        if (node->op->updates) mirt__apply_bucket(step, device, &step->bucket[node->a.index], &u);
    }
}

/* Every device's own copy, of which others may have updated parts. False: the devices timed out. */
MIRT__TRAINING bool mirt__apply_constraints(const mirt__step *step, int device) {
    const mirt_strategy *s = step->strategy;
    const mirt__where where = mirt__where_of(step, device);
    if (!step->rule.constrain) return true;
    if (s->able.shards && s->num_devices > 1) {
        if (!mirt__step_meet(step, device, MIRT_PHASE_IMBALANCE, -1)) return false;
        mirt__step_mark(step, device, MIRT_PHASE_UPDATE, -1, -1);
    }
    if (device < mirt__device_copies(s))
        step->rule.constrain(step->rule.user, &where, (mirt__real *)(void *)step->weight[device]);
    return true;
}

/* False: the devices timed out. */
MIRT__TRAINING bool mirt__step_apply(mirt__step *step, int device) {
    const bool norms = mirt__step_norms(step);
    if (norms && !mirt__reduce_squares(step, device)) return false;
    if (norms && !step->rule.accepts(step->rule.user)) return true;
    mirt__apply_states(step, device);
    if (!step->num_ranges) return true;
    mirt__apply_gradients(step, device);
    return mirt__apply_constraints(step, device);
}

MIRT__TRAINING_LIB void mirt__step_update(void *arg, int device) {
    mirt__step *step = (mirt__step *)arg;
    const mirt_strategy *s = step->strategy;
    const bool norms = mirt__step_norms(step), sums = step->num_ranges && !step->reduced && mirt__step_sums_first(step);
    mirt__step_mark(step, device, MIRT_PHASE_UPDATE, -1, -1);
    MIRT__TEST_POINT(MIRT__POINT_UPDATE, device, (int)step->info.step);
    if (sums && !mirt__reduce_all(step, device)) return;
    mirt__step_gather_states(step, device);
    if (s->able.direct && (sums || (step->num_states && !s->able.in_place)) &&
        !mirt__step_meet_work(step, device, 1, MIRT_PHASE_REDUCE))
        return;
    if (sums) mirt__step_mark(step, device, MIRT_PHASE_UPDATE, -1, -1);
    mirt__step_clock(step, device, 2);
    do {
        if (!norms) mirt__step_begin(step, device, 1); /* with norms it waits in between */
        if (!mirt__step_apply(step, device)) return;
    } while (!norms && !mirt__step_end(step, device));
    mirt__step_clock(step, device, 3);
    if (mirt__device_copies(s) < s->num_devices && !mirt__step_meet_work(step, device, 2, MIRT_PHASE_IMBALANCE)) return;
    if (!step->holds) mirt__step_finish(step, device);
}

/* >>the step */

/* What follows the replicas. False: the devices were given up. */
static bool mirt__step_ends(mirt__step *step, int device) {
    const bool updates = MIRT__TRAINS && mirt__step_updates(step);
    if (!step->holds && (step->check || !updates || MIRT__PEERS(step->strategy))) mirt__step_finish(step, device);
    if (step->check) __atomic_fetch_or(&step->not_finite, step->check(step->rule.user, device), __ATOMIC_ACQ_REL);
    if (MIRT__PEERS(step->strategy) && !mirt__peers_tell_step(step, device)) return false;
    if (!MIRT__TRAINS || !updates) return true;
    if (!mirt__step_meet_work(step, device, 0, MIRT_PHASE_IMBALANCE)) return false;
    if (!__atomic_load_n(&step->failed, __ATOMIC_ACQUIRE) && !__atomic_load_n(&step->not_finite, __ATOMIC_ACQUIRE))
        mirt__step_update(step, device);
    return true;
}

MIRT__LIB void mirt__step_run(void *arg, int device) {
    mirt__step *step = (mirt__step *)arg;
    MIRT__TEST_POINT(MIRT__POINT_STEP, device, (int)step->info.step);
    if (!mirt__run_all(step, device)) return;
    if ((!step->holds || !MIRT__TRAINS || !mirt__step_norms(step)) && !mirt__step_ends(step, device)) return;
    mirt__step_mark(step, device, MIRT__PHASE_JOIN, -1, -1);
}

MIRT__LIB void mirt__step_run_held(void *arg, int device) {
    mirt__step *step = (mirt__step *)arg;
    mirt__step_scatter_ahead(step, device);
    const bool updates = MIRT__TRAINS && mirt__step_updates(step);
    mirt__step_mark(step, device, updates ? MIRT_PHASE_UPDATE : MIRT_PHASE_FORWARD, -1, -1);
    if (!MIRT__TRAINS || !mirt__step_norms(step)) mirt__step_finish(step, device);
    else if (!mirt__step_ends(step, device)) return;
    mirt__step_mark(step, device, MIRT__PHASE_JOIN, -1, -1);
}

MIRT__LIB void mirt__step_run_next(void *arg, int device) {
    mirt__step *step = (mirt__step *)arg;
    const mirt_strategy *s = step->strategy;
    s->backend->mark(s->device[device].handle);
    mirt__step_scatter_ahead(step, device);
    mirt__step_run(step, device);
}

MIRT__LIB void mirt__step_run_marked(void *arg, int device) {
    mirt__step *step = (mirt__step *)arg;
    const bool updates = MIRT__TRAINS && mirt__step_updates(step);
    mirt__step_mark(step, device, updates ? MIRT_PHASE_UPDATE : MIRT_PHASE_FORWARD, -1, -1);
    mirt__step_finish_marked(step, device);
    mirt__step_mark(step, device, MIRT__PHASE_JOIN, -1, -1);
}
