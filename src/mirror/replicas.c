#include "strategy.h"

MIRT__LIB int64_t mirt__share(int64_t total, int64_t shares, int64_t index, int64_t *first) {
    int64_t each = total / shares, extra = total % shares;
    *first = index * each + (index < extra ? index : extra);
    return each + (index < extra);
}

MIRT__LIB int mirt__tree_push(mirt__tree_stack *stack, int lo, int size) {
    int merges = 0;
    stack->node[stack->depth].lo = lo;
    stack->node[stack->depth++].size = size;
    while (stack->depth > 1) {
        mirt__subtree *left = &stack->node[stack->depth - 2], *right = left + 1;
        if (left->size != right->size || left->lo % (2 * left->size)) break;
        left->size *= 2;
        stack->depth--;
        merges++;
    }
    return merges;
}

MIRT__LIB int mirt__tree_slots(int first, int count) {
    mirt__tree_stack stack;
    stack.depth = 0;
    int slots = 1;
    for (int r = first; r < first + count; r++) {
        if (stack.depth + 1 > slots) slots = stack.depth + 1;
        mirt__tree_push(&stack, r, 1);
    }
    return slots;
}

MIRT__LIB void mirt__exchange_plan(const mirt_strategy *strategy, int active, mirt__exchange *out) {
    mirt__tree_stack all;
    int part_of[64], adds = 0;
    all.depth = 0;
    out->parts = 0;
    for (int d = 0; d < strategy->num_devices; d++) {
        const mirt__device *device = &strategy->device[d];
        mirt__tree_stack own;
        own.depth = 0;
        for (int r = device->first_replica; r < device->first_replica + device->num_replicas && r < active; r++) mirt__tree_push(&own, r, 1);
        for (int slot = 0; slot < own.depth; slot++) {
            int part = out->parts++;
            out->device[part] = d;
            out->slot[part] = slot;
            part_of[all.depth] = part;
            int merges = mirt__tree_push(&all, own.node[slot].lo, own.node[slot].size);
            for (int at = all.depth - 1 + merges; merges > 0; merges--, at--) {
                out->add[adds].into = part_of[at - 1];
                out->add[adds++].from = part_of[at];
            }
        }
    }
    for (int at = all.depth - 1; at > 0; at--) {
        out->add[adds].into = part_of[at - 1];
        out->add[adds++].from = part_of[at];
    }
}
