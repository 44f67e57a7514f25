#include "step.h"
/* Gradient buffers of a device: adds up its replicas' gradients and sends finished buckets. */

MIRT__LIB mirt__range mirt__overlap(const mirt__range *a, int64_t begin, int64_t end) {
    mirt__range r;
    r.begin = a->begin > begin ? a->begin : begin;
    r.end = a->end < end ? a->end : end;
    return r;
}

/* The buffer of the sum at `depth` of the counter, whose first replica is `replica`. */
static mirt__real *mirt__counter_buffer(const mirt__turn *t, int depth, int replica) {
    return mirt__gradient_at(t->step, t->device, t->step->program.num_cuts ? replica - t->first : depth);
}

MIRT__LIB void mirt__counter_add(const mirt__turn *t, int replica, int64_t begin, int64_t end) {
    const mirt__step *step = t->step;
    mirt__real *buffer[64];
    mirt__tree_stack stack = t->stack;
    const mirt__where where = mirt__where_of(step, t->device);
    for (int i = 0; i < stack.depth; i++) buffer[i] = mirt__counter_buffer(t, i, stack.node[i].lo);
    buffer[stack.depth] = mirt__counter_buffer(t, stack.depth, replica);
    int merges = mirt__tree_push(&stack, replica, 1);
    if (merges && step->num_ranges) mirt__step_mark(step, t->device, MIRT_PHASE_REDUCE_HIDDEN, replica, -1);
    for (int top = stack.depth - 1 + merges; merges > 0; merges--, top--) {
        for (int i = 0; i < step->num_ranges; i++) {
            const mirt__range range = mirt__overlap(&step->range[i], begin, end);
            if (range.begin < range.end)
                step->strategy->kernels->accumulate(buffer[top - 1] + range.begin, buffer[top] + range.begin,
                                                    range.end - range.begin, &where);
        }
    }
}

MIRT__LIB void mirt__send_buckets(mirt__turn *t, int ready) {
    for (; t->next < t->step->program.graph.count; t->next++) {
        const mirt__node *node = t->step->program.graph.node[t->next];
        if (!node->op->reduces) continue;
        const mirt__bucket *bucket = &t->step->bucket[node->a.index];
        if (bucket->ready > ready) return;
        if (t->sent >= 0) mirt__counter_add(t, t->sent, bucket->begin, bucket->end);
        if (MIRT__HOST_PEERS(t->step->strategy)) mirt__courier_post(t->step, node->a.index);
        else mirt__step_reduce(t->step, t->device, bucket);
    }
}

MIRT__LIB void mirt__send_ready(void *turn, const mirt__call *call, int node) {
    (void)call;
    mirt__send_buckets((mirt__turn *)turn, node);
}
