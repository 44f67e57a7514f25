#include "strategy.h"
/* Assigns replicas to devices, and builds the fixed tree of their sums. */

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

/* Gradient buffers that replicas [first, first + count) need at most at one time. */
MIRT__TRAINING int mirt__tree_slots(int first, int count) {
    mirt__tree_stack stack;
    stack.depth = 0;
    int slots = 1;
    for (int r = first; r < first + count; r++) {
        if (stack.depth + 1 > slots) slots = stack.depth + 1;
        mirt__tree_push(&stack, r, 1);
    }
    return slots;
}

MIRT__LIB int mirt__device_replicas(const mirt_strategy *strategy, int replicas, int device, int *first) {
    int64_t at;
    int count = (int)mirt__share(replicas, strategy->num_devices, device, &at);
    *first = (int)at;
    return count;
}

MIRT__TRAINING_LIB int mirt__gradient_slots(const mirt_strategy *strategy, int replicas, bool slot_per_replica) {
    int slots = 1;
    for (int d = 0; d < strategy->num_devices; d++) {
        int first, count = mirt__device_replicas(strategy, replicas, d, &first);
        int own = slot_per_replica ? count : mirt__tree_slots(first, count);
        if (own > slots) slots = own;
    }
    return slots;
}

MIRT__LIB mirt_status mirt__check_parts(const mirt_strategy *strategy, int replicas) {
    int before = 0, most = 0;
    for (int d = 0; d < strategy->num_devices; d++) {
        int first, count = mirt__device_replicas(strategy, replicas, d, &first);
        mirt__tree_stack stack;
        stack.depth = 0;
        for (int r = first; r < first + count; r++) { /* r may be the last that has rows */
            mirt__tree_push(&stack, r, 1);
            if (before + stack.depth > most) most = before + stack.depth;
        }
        before += stack.depth;
    }
    if (most <= MIRT__MAX_PARTS) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "%d replicas on %d devices leave %d partial sums, at most %d work; make the replicas a power of "
                      "two times the devices",
                      replicas, strategy->num_devices, most, MIRT__MAX_PARTS);
}
