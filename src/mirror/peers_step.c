#include "../ops/ops.h"
#include "step.h"
/* What processes exchange in a step: their devices meet, and the first one trades. */

/* The failure of messages, whose error is set, is the step's. */
static void mirt__peer_lost(mirt__step *step) {
    mirt__error_get(&step->strategy->device_error);
    step->device_failed = -1;
    __atomic_store_n(&step->device_status, (int)mirt_last_status(), __ATOMIC_RELEASE);
}

/* All devices call it: the first one trades once all have come. False: the devices timed out, or it failed. */
static bool mirt__peer_turn(mirt__step *step, int device, int node, void (*trade)(mirt__step *step, int node)) {
    const mirt__peers *w = step->strategy->peers;
    if (!mirt__step_meet(step, device, MIRT_PHASE_IMBALANCE, node)) return false;
    mirt__step_mark(step, device, MIRT_PHASE_REDUCE, -1, node);
    if (device == 0 && !w->broken) trade(step, node);
    return mirt__step_meet(step, device, MIRT_PHASE_REDUCE, node) && !w->broken;
}

/* >>who has what */

/* Replicas that have rows of the processes before `rank`. */
static int64_t mirt__peer_active(const mirt__step *step, int rank) {
    const int64_t begin = mirt__peer_begin(step->strategy, step->replicas, rank), active = mirt__active_replicas(step);
    return begin < active ? begin : active;
}

static int64_t mirt__peer_rows(const mirt__step *step, int rank) {
    int64_t first;
    if (!step->by_replicas) return mirt__peer_begin(step->strategy, step->rows, rank);
    const int64_t begin = mirt__peer_begin(step->strategy, step->replicas, rank);
    return mirt__share(step->rows, step->replicas, begin, &first), first;
}

/* >>results and states */

static void mirt__peer_befores(const mirt__step *step) {
    mirt__peers *w = step->strategy->peers;
    const int64_t pieces = step->by_replicas ? 0 : mirt__device_pieces(step);
    for (int p = 0; p <= w->size; p++) {
        const int64_t active = mirt__peer_active(step, p);
        w->before[MIRT__BEFORE_ROWS][p] = mirt__peer_rows(step, p);
        w->before[MIRT__BEFORE_PLACES][p] = step->by_replicas ? active : w->first_device[p] * pieces;
        w->before[MIRT__BEFORE_REPLICAS][p] = active;
    }
}

/* What this process has found goes to all. */
static mirt__peer_flags mirt__peer_flags_of(mirt__step *step) {
    mirt__peer_flags flags;
    memset(&flags, 0, sizeof flags);
    flags.failed = __atomic_load_n(&step->failed, __ATOMIC_ACQUIRE) != NULL;
    flags.lost = __atomic_load_n(&step->device_status, __ATOMIC_ACQUIRE) != MIRT_OK;
    flags.failed_code = step->failed_code;
    flags.not_finite = __atomic_load_n(&step->not_finite, __ATOMIC_ACQUIRE);
    flags.stop = step->stop;
    return flags;
}

/* A device of a process has failed: no process begins an exchange with it. */
static void mirt__peer_device_lost(mirt__step *step, int rank) {
    const mirt__peers *w = step->strategy->peers;
    if (__atomic_load_n(&step->device_status, __ATOMIC_ACQUIRE) == MIRT_OK) {
        mirt__fail(MIRT_E_WORKER, "a device of process %d (%s) has failed", rank, w->engine->host(rank));
        mirt__peer_lost(step);
    } else {
        mirt__error_set(&step->strategy->device_error);
    }
    mirt__peers_end(step->strategy);
}

static void mirt__peer_flags_take(mirt__step *step) {
    mirt__peers *w = step->strategy->peers;
    for (int p = 0; p < w->size; p++) {
        __atomic_fetch_or(&step->not_finite, w->flags[p].not_finite, __ATOMIC_ACQ_REL);
        step->stop = step->stop || w->flags[p].stop;
        if (w->flags[p].lost) mirt__peer_device_lost(step, p);
        if (!w->flags[p].failed || step->failed) continue;
        snprintf(w->failed, sizeof w->failed, "process %d (%s)", p, w->engine->host(p));
        step->failed_code = w->flags[p].failed_code;
        __atomic_store_n(&step->failed, (const char *)w->failed, __ATOMIC_RELEASE);
    }
}

static void mirt__peer_tell(mirt__step *step, int node) {
    mirt__peers *w = step->strategy->peers;
    mirt__gathered array[MIRT__MAX_IO + 2];
    int arrays = 0;
    (void)node;
    mirt__peer_befores(step);
    w->flags[w->rank] = mirt__peer_flags_of(step);
    array[arrays].base = w->flags;
    array[arrays].before = w->before[MIRT__BEFORE_ONE];
    array[arrays++].bytes = sizeof *w->flags;
    for (int i = 0; i < step->num_results; i++) {
        const mirt__port *port = &step->program.io[step->result_port + i];
        array[arrays].base = step->result[i];
        array[arrays].before = w->before[port->batched ? MIRT__BEFORE_ROWS : MIRT__BEFORE_PLACES];
        array[arrays++].bytes = port->bytes;
    }
    array[arrays].base = step->states;
    array[arrays].before = w->before[MIRT__BEFORE_REPLICAS];
    array[arrays].bytes = step->state_bytes;
    arrays += step->num_states > 0 && step->strategy->able.in_place; /* otherwise the devices gather them */
    if (mirt__peers_gather(step->strategy, array, arrays) == MIRT_OK) mirt__peer_flags_take(step);
    else mirt__peer_lost(step);
}

MIRT__LIB bool mirt__peers_tell_step(mirt__step *step, int device) {
    return mirt__peer_turn(step, device, -1, mirt__peer_tell);
}

/* >>cuts */

static void mirt__peer_cut(mirt__step *step, int node) {
    mirt__gathered values;
    (void)node;
    mirt__peer_befores(step);
    values.base = step->cut_values;
    values.before = step->strategy->peers->before[MIRT__BEFORE_REPLICAS];
    values.bytes = step->cut_stride * sizeof *step->cut_values;
    if (mirt__peers_gather(step->strategy, &values, 1) != MIRT_OK) mirt__peer_lost(step);
}

MIRT__LIB bool mirt__peers_cut(mirt__step *step, int device, int cut) {
    return mirt__peer_turn(step, device, cut, mirt__peer_cut);
}

/* >>gradients */

static mirt__real *mirt__part_at(const mirt__step *step, const mirt__exchange *x, int part) {
    return mirt__gradient_at(step, x->device[part], x->slot[part]);
}

/* The additions of this process, of elements [begin, end). */
static void mirt__peer_add_own(const mirt__step *step, int device, const mirt__exchange *x, int64_t begin,
                               int64_t end) {
    const mirt__where where = mirt__where_of(step, device);
    for (int i = 0; i < x->adds && begin < end; i++) {
        step->strategy->kernels->accumulate(mirt__part_at(step, x, x->add[i].into) + begin,
                                            mirt__part_at(step, x, x->add[i].from) + begin, end - begin, &where);
    }
}

/* Where elements from `begin` on of the partial sums lie that the devices of this process are left with. */
static void mirt__peer_slots(const mirt__step *step, const mirt__exchange *x, int64_t begin, mirt__real **slot) {
    for (int i = 0; i < x->left; i++) slot[i] = mirt__part_at(step, x, x->leaves[i]) + begin;
}

/* The plan of a bucket, for as many active replicas as this step has. */
static const mirt__group_plan *mirt__peer_plan(mirt__step *step, int bucket) {
    const mirt_strategy *s = step->strategy;
    const mirt__bucket *b = &step->bucket[bucket];
    mirt__peer_plans *plans = &step->plans;
    const int active = mirt__active_replicas(step);
    if (plans->active != active) {
        for (int i = 0; i < step->num_buckets && plans->plan; i++) mirt__group_plan_free(&plans->plan[i]);
        plans->active = active;
    }
    if (!plans->plan) {
        plans->plan = (mirt__group_plan *)mirt__calloc((size_t)step->num_buckets, sizeof *plans->plan);
        plans->begin = (int *)mirt__calloc((size_t)s->peers->size + 1, sizeof *plans->begin);
        if (!plans->plan || !plans->begin) return NULL;
        for (int p = 0; p <= s->peers->size; p++) plans->begin[p] = (int)mirt__peer_begin(s, step->replicas, p);
    }
    mirt__group_plan *plan = &plans->plan[bucket];
    if (!plan->elements && mirt__group_plan_make(plan, s->peers->size, plans->begin, active, s->peers->rank,
                                             b->end - b->begin) != MIRT_OK)
        return NULL;
    if (plan->inbox > plans->inbox_elements) {
        mirt__aligned_free(plans->inbox);
        plans->inbox_elements = 0;
        if (!(plans->inbox = (mirt__real *)mirt__aligned_alloc((size_t)plan->inbox * sizeof *plans->inbox)))
            return NULL;
        plans->inbox_elements = plan->inbox;
    }
    return plan;
}

/* The sum of a bucket of this process alone, in the first buffer of the first device. */
static mirt__real *mirt__peer_own_sum(const mirt__step *step, const mirt__bucket *bucket, const mirt__exchange *x) {
    mirt__real *sum = mirt__gradient_at(step, 0, 0) + bucket->begin;
    const int64_t count = bucket->end - bucket->begin;
    const mirt__where where = mirt__where_of(step, 0);
    for (int i = x->adds; i + 1 < x->parts; i++)
        step->strategy->kernels->accumulate(mirt__part_at(step, x, x->add[i].into) + bucket->begin,
                                            mirt__part_at(step, x, x->add[i].from) + bucket->begin, count, &where);
    if (!x->parts) memset(sum, 0, (size_t)count * sizeof *sum);
    else if (mirt__part_at(step, x, 0) + bucket->begin != sum)
        memcpy(sum, mirt__part_at(step, x, 0) + bucket->begin, (size_t)count * sizeof *sum);
    return sum;
}

/* Local SGD: the mean over the rows of this process, where the step's is that over all. */
static void mirt__peer_own_mean(const mirt__step *step, const mirt__bucket *bucket, const mirt__exchange *x) {
    const int rank = step->strategy->peers->rank;
    const int64_t rows = mirt__peer_rows(step, rank + 1) - mirt__peer_rows(step, rank);
    mirt__real *sum = mirt__peer_own_sum(step, bucket, x);
    const mirt__real scale = rows ? (mirt__real)((double)step->rows / (double)rows) : 0;
    for (int64_t i = 0; i < bucket->end - bucket->begin; i++) sum[i] *= scale;
}

static bool mirt__peer_tree(mirt__step *step, int bucket, const mirt__exchange *x, mirt__engine_failure *failure) {
    mirt_strategy *s = step->strategy;
    const int64_t begin = step->bucket[bucket].begin;
    const mirt__group_plan *plan = mirt__peer_plan(step, bucket);
    const mirt__where where = mirt__where_of(step, 0);
    mirt__real *slot[64];
    if (!plan) {
        memset(failure, 0, sizeof *failure);
        failure->peer = s->peers->rank;
        snprintf(failure->text, sizeof failure->text, "%.250s", mirt_last_error());
        return false;
    }
    mirt__peer_slots(step, x, begin, slot);
    return mirt__peers_add_up(s, plan, slot, mirt__gradient_at(step, 0, 0) + begin, step->plans.inbox, &where, failure);
}

/* By MPI, which adds up the sums of processes in its own order. */
static bool mirt__peer_all_reduce(mirt__step *step, const mirt__bucket *b, const mirt__exchange *x,
                                  mirt__engine_failure *failure) {
    mirt__peers *p = step->strategy->peers;
    mirt__real *sum = mirt__peer_own_sum(step, b, x);
    __atomic_fetch_add(&p->trades, 1, __ATOMIC_RELAXED);
    const bool good = p->engine->all_reduce(0, sum, b->end - b->begin, &p->waiting[0], failure);
    __atomic_fetch_sub(&p->trades, 1, __ATOMIC_RELAXED);
    return good;
}

MIRT__LIB bool mirt__peers_sum(mirt__step *step, int bucket, mirt__engine_failure *failure) {
    mirt_strategy *s = step->strategy;
    const mirt__bucket *b = &step->bucket[bucket];
    mirt__exchange x;
    memset(failure, 0, sizeof *failure);
    mirt__step_plan(step, 0, &x);
    if (step->overlaps) mirt__peer_add_own(step, 0, &x, b->begin, b->end);
    if (s->average_every) return mirt__peer_own_mean(step, b, &x), true;
    return s->collective == MIRT_MPI_ALLREDUCE ? mirt__peer_all_reduce(step, b, &x, failure)
                                               : mirt__peer_tree(step, bucket, &x, failure);
}

static bool mirt__peer_sums(mirt__step *step, mirt__engine_failure *failure) {
    bool good = true;
    if (step->overlaps) return mirt__courier_await(step, failure);
    for (int i = step->program.mirrored; i < step->program.graph.count && good; i++) {
        const mirt__node *reduce = step->program.graph.node[i];
        good = !reduce->op->reduces || mirt__peers_sum(step, reduce->a.index, failure);
    }
    return good;
}

static void mirt__peer_reduce(mirt__step *step, int node) {
    mirt__engine_failure failure;
    (void)node;
    if (mirt__peer_sums(step, &failure)) return;
    mirt__peers_fail(step->strategy, 0, &failure);
    mirt__peer_lost(step);
}

MIRT__LIB bool mirt__peers_reduce(mirt__step *step, int device) {
    int64_t begin, end;
    mirt__exchange x;
    mirt__step_mark(step, device, MIRT_PHASE_REDUCE, -1, -1);
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)step->info.step);
    mirt__exchange_range(step->strategy, (int64_t)(step->gradient_bytes / sizeof(mirt__real)), device, &begin, &end);
    mirt__step_plan(step, device, &x);
    if (!step->overlaps) mirt__peer_add_own(step, device, &x, begin, end);
    return mirt__peer_turn(step, device, -1, mirt__peer_reduce);
}

MIRT__LIB void mirt__peers_free(mirt__step *step) {
    mirt__peer_plans *plans = &step->plans;
    for (int i = 0; plans->plan && i < step->num_buckets; i++) mirt__group_plan_free(&plans->plan[i]);
    mirt__free(plans->plan);
    mirt__free(plans->begin);
    mirt__aligned_free(plans->inbox);
    memset(plans, 0, sizeof *plans);
}
