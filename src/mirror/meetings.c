#include "../ops/ops.h"
#include "step.h"
/* Where the devices of a step meet: at cuts of the program, and to reduce gradients. */

MIRT__LIB bool mirt__step_meet(const mirt__step *step, int device, int phase, int node) {
    mirt__step_mark(step, device, phase, -1, node);
    MIRT__TEST_POINT(MIRT__POINT_BARRIER, device, (int)step->info.step);
    return mirt__devices_barrier(step->strategy, device);
}

MIRT__LIB bool mirt__step_meet_work(const mirt__step *step, int device, int number, int phase) {
    const mirt_strategy *s = step->strategy;
    const bool ordered = s->able.direct && s->num_devices > 1;
    if (ordered) s->backend->signal(s->device[device].handle, number);
    if (!mirt__step_meet(step, device, phase, -1)) return false;
    for (int d = 0; ordered && d < s->num_devices; d++) {
        if (d != device) s->backend->await(s->device[device].handle, s->device[d].handle, number);
    }
    return true;
}

/* >>cuts */

/* The outputs of an all_reduce node from `active` replicas' inputs. */
static void mirt__all_reduce_values(const mirt__node *node, int active,
                                            const mirt__real *value[][MIRT__MAX_REPLICAS], const int64_t *rows,
                                            mirt__real **out) {
    int64_t count = mirt__shape_count(&node->out[0]->shape);
    if (node->a.kind == MIRT__ALL_REDUCE_MOMENTS) {
        mirt__combine_moments(active, value[0], value[1], rows, count, out[0], out[1]);
        return;
    }
    mirt_aggregation kind = node->a.kind == MIRT__ALL_REDUCE_MEAN ? MIRT_AGGREGATE_MEAN : MIRT_AGGREGATE_SUM;
    for (int k = 0; k < node->num_in; k++)
        mirt__aggregate(kind, active, value[k], rows, mirt__shape_count(&node->out[k]->shape), out[k]);
}

/* Replica `holder`'s values at a cut; those after the replicas' are the devices'. */
static mirt__real *mirt__cut_values_of(const mirt__step *step, int holder) {
    return step->cut_values + (size_t)holder * step->cut_stride;
}

/* The inputs of the node at a cut, of the device's replicas [first, end), come to the host. */
static void mirt__cut_fetch(const mirt__step *step, int device, const mirt__node *node, int first, int end) {
    mirt__bases b;
    for (int r = first; r < end; r++) {
        mirt__real *at = mirt__cut_values_of(step, r);
        mirt__replica_bases(step, device, first, r, &b);
        for (int k = 0; k < node->num_in; k++) {
            b.backend->copy_out(b.where.handle, at, mirt__address(&b, node->in[k]), mirt__tensor_bytes(node->in[k], 1));
            at += mirt__shape_count(&node->in[k]->shape);
        }
    }
}

/* Every device computes the same outputs from the values of all replicas. */
static void mirt__cut_compute(const mirt__step *step, int device, const mirt__node *node, mirt__real **out) {
    const mirt__real *value[2][MIRT__MAX_REPLICAS];
    int64_t rows[MIRT__MAX_REPLICAS], none;
    const int active = mirt__active_replicas(step);
    for (int r = 0; r < active; r++) {
        const mirt__real *at = mirt__cut_values_of(step, r);
        rows[r] = mirt__replica_share(step, r, &none);
        for (int k = 0; k < node->num_in; at += mirt__shape_count(&node->in[k]->shape), k++) value[k][r] = at;
    }
    mirt__real *at = mirt__cut_values_of(step, step->replicas + device);
    for (int k = 0; k < node->num_out; at += mirt__shape_count(&node->out[k]->shape), k++) out[k] = at;
    if (active) mirt__all_reduce_values(node, active, value, rows, out);
}

/* Through the host's memory: cuts are few, and their values small. */
MIRT__LIB bool mirt__step_cut(mirt__step *step, int device, int cut) {
    const mirt__node *node = step->program.graph.node[cut];
    mirt__real *out[MIRT__MAX_OUT];
    mirt__bases b;
    int first, end = mirt__own_replicas(step, device, &first);
    mirt__cut_fetch(step, device, node, first, end);
    mirt__step_finish(step, device);
    if (MIRT__PEERS(step->strategy) ? !mirt__peers_cut(step, device, cut)
                                               : !mirt__step_meet(step, device, MIRT_PHASE_IMBALANCE, cut))
        return false;
    mirt__step_mark(step, device, MIRT_PHASE_REDUCE, -1, cut);
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)step->info.step);
    mirt__cut_compute(step, device, node, out);
    for (int r = first; r < end; r++) {
        mirt__replica_bases(step, device, first, r, &b);
        for (int k = 0; k < node->num_out; k++)
            b.backend->copy_in(b.where.handle, mirt__address(&b, node->out[k]), out[k],
                               mirt__tensor_bytes(node->out[k], 1), false);
    }
    return mirt__step_meet(step, device, MIRT_PHASE_REDUCE, cut);
}

/* >>gradients and states */

MIRT__LIB void mirt__step_plan(const mirt__step *step, int device, mirt__exchange *x) {
    mirt__exchange_plan(step->strategy, step->replicas, mirt__active_replicas(step), step->program.num_cuts > 0, device,
                        x);
}

MIRT__LIB void mirt__step_reduce(const mirt__step *step, int device, const mirt__bucket *bucket) {
    const mirt_strategy *s = step->strategy;
    mirt__exchange x;
    mirt__reduction r;
    memset(&r, 0, sizeof r);
    mirt__step_mark(step, device, MIRT_PHASE_REDUCE, -1, -1);
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)step->info.step);
    mirt__step_plan(step, device, &x);
    r.begin = bucket->begin;
    r.end = bucket->end;
    mirt__exchange_range(s, (int64_t)(step->gradient_bytes / sizeof(mirt__real)), device, &r.own_begin, &r.own_end);
    if (r.own_begin < r.begin) r.own_begin = r.begin;
    if (r.own_end > r.end) r.own_end = r.end;
    r.device = device;
    r.devices = s->num_devices;
    for (int d = 0; d < s->num_devices; d++) r.sum[d] = mirt__gradient_at(step, d, 0);
    r.parts = x.parts;
    memcpy(r.add, x.add, sizeof r.add);
    for (int i = 0; i < x.parts; i++) {
        r.part_device[i] = s->first_device + x.device[i];
        if (x.device[i] >= 0 && x.device[i] < s->num_devices)
            r.part[i] = mirt__gradient_at(step, x.device[i], x.slot[i]);
    }
    s->backend->reduce(s->device[device].handle, &r);
}

MIRT__LIB void mirt__step_gather_states(const mirt__step *step, int device) {
    const mirt_strategy *s = step->strategy;
    char *base[MIRT__MAX_DEVICES];
    size_t begin[MIRT__MAX_DEVICES + 1];
    int before, end, first = 0, count = 0;
    mirt__summed_devices(s, &before, &end);
    if (end - before == 1 || !step->num_states) return;
    for (int d = 0; d < s->num_devices; d++) base[d] = mirt__states_of(step, d);
    for (int d = before; d < end; d++) {
        count = mirt__device_replicas(s, step->replicas, d, &first);
        begin[d - before] = (size_t)first * step->state_bytes;
    }
    begin[end - before] = (size_t)(first + count) * step->state_bytes;
    s->backend->gather(s->device[device].handle, base, begin, s->num_devices);
}

/* The device's own sum: the later parts are added to the earlier as the tree does. */
MIRT__LIB mirt_status mirt__device_gradient(mirt__step *step, int device, int64_t at, int64_t count,
                                                     float *out) {
    const mirt_strategy *s = step->strategy;
    mirt__exchange x;
    bool any = false, good = true;
    mirt__real *copy = (mirt__real *)mirt__calloc((size_t)count, sizeof *copy);
    if (!copy) return mirt_last_status();
    mirt__step_plan(step, device, &x);
    for (int64_t i = 0; i < count; i++) out[i] = 0;
    for (int p = x.parts - 1; p >= 0 && good; p--) {
        if (step->reduced ? p > 0 : x.device[p] != device) continue;
        const mirt__real *part =
            (step->reduced ? mirt__sum_at(step, device) : mirt__gradient_at(step, device, x.slot[p])) + at;
        s->backend->copy_out(s->device[device].handle, copy, part, (size_t)count * sizeof *copy);
        good = mirt__step_finish(step, device);
        for (int64_t i = 0; i < count; i++) out[i] = any ? (float)copy[i] + out[i] : (float)copy[i];
        any = true;
    }
    mirt__free(copy);
    for (int64_t i = 0; step->float16 && i < count; i++) out[i] = (float)((double)out[i] / step->info.gradient_scale);
    return good ? MIRT_OK : mirt__step_failure(step);
}
