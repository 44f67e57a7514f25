#include "step.h"
/* Gradient buffers of a device: adds up its replicas' gradients and sends finished buckets. */

MIRT__TRAINING int mirt__counter_slot(const mirt__counter *c, int depth) {
    return c->slot_per_replica ? c->stack.node[depth].lo - c->first : depth;
}

MIRT__LIB mirt__range mirt__overlap(const mirt__range *a, int64_t begin, int64_t end) {
    mirt__range r;
    r.begin = a->begin > begin ? a->begin : begin;
    r.end = a->end < end ? a->end : end;
    return r;
}

MIRT__TRAINING_LIB void mirt__counter_add(const mirt__step *step, const mirt__counter *c, int device, int replica,
                                          int64_t begin, int64_t end) {
    int slot[64];
    mirt__tree_stack stack = c->stack;
    const mirt__where where = mirt__where_of(step, device);
    for (int i = 0; i < stack.depth; i++) slot[i] = mirt__counter_slot(c, i);
    slot[stack.depth] = c->slot_per_replica ? replica - c->first : stack.depth;
    int merges = mirt__tree_push(&stack, replica, 1);
    if (merges && step->num_ranges) mirt__step_mark(step, device, MIRT_PHASE_REDUCE_HIDDEN, replica, -1);
    for (int top = stack.depth - 1 + merges; merges > 0; merges--, top--) {
        mirt__real *into = mirt__gradient_at(step, device, slot[top - 1]),
                   *from = mirt__gradient_at(step, device, slot[top]);
        for (int i = 0; i < step->num_ranges; i++) {
            const mirt__range range = mirt__overlap(&step->range[i], begin, end);
            if (range.begin < range.end)
                step->strategy->kernels->accumulate(into + range.begin, from + range.begin, range.end - range.begin,
                                                    &where);
        }
    }
}

/* The bucket that node `i` reduces, or NULL. */
MIRT__TRAINING const mirt__bucket *mirt__reduced_by(const mirt__step *step, int i) {
    const mirt__node *node = step->program.graph.node[i];
    return node->op->reduces ? &step->bucket[node->a.index] : NULL;
}

MIRT__TRAINING void mirt__send_bucket(const mirt__sending *s, const mirt__bucket *bucket) {
    if (s->replica >= 0) mirt__counter_add(s->step, s->counter, s->device, s->replica, bucket->begin, bucket->end);
    mirt__step_reduce(s->step, s->device, bucket);
}

MIRT__TRAINING_LIB void mirt__send_buckets(mirt__sending *s, int ready) {
    for (; s->next < s->step->program.graph.count; s->next++) {
        const mirt__bucket *bucket = mirt__reduced_by(s->step, s->next);
        if (bucket && bucket->ready > ready) return;
        if (bucket) mirt__send_bucket(s, bucket);
    }
}

MIRT__TRAINING_LIB void mirt__send_ready(void *user, const mirt__call *call, int node) {
    (void)call;
    mirt__send_buckets((mirt__sending *)user, node);
}
