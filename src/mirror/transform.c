#include "../ops/ops.h"
#include "step.h"
/* Mirrors a program: chooses buckets of its gradients, appends an all-reduce and an update of each. */

/* The node after which the gradients of elements [begin, end) are complete, and nobody reads them any more: sums take
 * their place. */
static int mirt__bucket_ready(const mirt__program *program, int64_t begin, int64_t end) {
    int ready = 0;
    for (int i = 0; i < program->graph.count; i++) {
        const mirt__node *node = program->graph.node[i];
        for (int k = 0; k < node->num_out; k++) {
            const mirt_tensor *t = node->out[k];
            const int64_t at = (int64_t)(t->offset / sizeof(mirt__real));
            if (t->space == MIRT__SPACE_GRADIENT && at >= begin && at < end && t->last > ready) ready = t->last;
        }
    }
    return ready;
}

/* From the back of the block, where backward begins: whole variables, a small bucket first so that something travels
 * early. */
static mirt_status mirt__fill_buckets(mirt__step *step, const mirt__gradient_part *part, int count) {
    const int64_t each = step->strategy->bucket_bytes / (int64_t)sizeof(mirt__real),
                  small_one = (1 << 20) / (int64_t)sizeof(mirt__real), first = each < small_one ? each : small_one;
    int64_t end = (int64_t)(step->gradient_bytes / sizeof(mirt__real));
    if (!(step->bucket = (mirt__bucket *)mirt__calloc((size_t)count + 1, sizeof *step->bucket)))
        return mirt_last_status();
    while (count > 0) {
        mirt__bucket *b = &step->bucket[step->num_buckets];
        b->begin = b->end = end;
        do {
            const mirt__gradient_part *p = &part[--count];
            b->begin = count ? p->begin : 0;
            b->elements += p->count;
        } while (count > 0 && b->end - b->begin < (step->num_buckets ? each : first));
        b->ready = mirt__bucket_ready(&step->program, b->begin, b->end);
        if (step->num_buckets && b->ready < b[-1].ready) b->ready = b[-1].ready;
        end = b->begin;
        step->num_buckets++;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__mirror(mirt__step *step, const mirt__gradient_part *part, int count) {
    mirt__graph *graph = &step->program.graph;
    step->program.mirrored = graph->count;
    if (MIRT__TRAINS && mirt__fill_buckets(step, part, count) != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < step->num_buckets; i++) mirt__bucket_op(graph, MIRT__OP_all_reduce_bucket, i);
    for (int i = 0; i < step->num_buckets; i++) mirt__bucket_op(graph, MIRT__OP_update_bucket, i);
    return graph->status;
}
