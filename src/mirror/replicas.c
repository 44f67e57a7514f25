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

enum { MIRT__SHARES_MOST = 1000000 }; /* of one device to another, and in all */

/* The numbers of "3,1"; their count, or -1. */
static int mirt__shares_read(const char *text, int64_t *share, int most) {
    int count = 0;
    for (;; text++) {
        char *end;
        const long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > MIRT__SHARES_MOST || count == most) return -1;
        share[count++] = value;
        if (!*end) return count;
        if (*end != ',') return -1;
        text = end;
    }
}

static int mirt__peer_devices(const mirt_strategy *s, int rank) {
    const mirt__peers *p = MIRT__PEERS(s);
    return p ? p->first_device[rank + 1] - p->first_device[rank] : s->all_devices;
}

/* A process's share is that of all its devices together. */
MIRT__TOGETHER_ONLY mirt_status mirt__shares_of_peers(mirt_strategy *s, const int64_t *share) {
    int64_t scale = 1;
    for (int p = 0; p < MIRT__PEERS(s)->size; p++) {
        int64_t a = scale, b = mirt__peer_devices(s, p);
        while (b) {
            const int64_t rest = a % b;
            a = b;
            b = rest;
        }
        scale = scale / a * mirt__peer_devices(s, p);
        if (scale > MIRT__SHARES_MOST)
            return mirt__fail(MIRT_E_INVALID, "shares for processes with so many different numbers of devices: give "
                                              "one for each device");
    }
    for (int p = 0, d = 0; p < MIRT__PEERS(s)->size; p++) {
        for (int i = mirt__peer_devices(s, p); i > 0; i--, d++)
            s->share_before[d + 1] = s->share_before[d] + share[p] * scale / mirt__peer_devices(s, p);
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__shares_set(mirt_strategy *s, const char *text) {
    const int processes = MIRT__PEERS(s) ? MIRT__PEERS(s)->size : 1;
    int64_t *share = (int64_t *)mirt__calloc((size_t)s->all_devices, sizeof *share);
    s->share_before = (int64_t *)mirt__calloc((size_t)s->all_devices + 1, sizeof *s->share_before);
    mirt_status status = share && s->share_before ? MIRT_OK : mirt_last_status();
    const int count = status == MIRT_OK ? mirt__shares_read(text, share, s->all_devices) : 0;
    if (status == MIRT_OK && count != s->all_devices && count != processes)
        status = mirt__fail(MIRT_E_INVALID,
                            "shares \"%.64s\": a whole number from 1 to %d is needed for each of %d devices or %d "
                            "processes, with commas",
                            text, MIRT__SHARES_MOST, s->all_devices, processes);
    for (int d = 0; status == MIRT_OK && count == s->all_devices && d < count; d++)
        s->share_before[d + 1] = s->share_before[d] + share[d];
    if (status == MIRT_OK && count != s->all_devices) {
        if (MIRT__PEERS(s)) status = mirt__shares_of_peers(s, share);
        else for (int d = 0; d <= s->all_devices; d++) s->share_before[d] = d;
    }
    mirt__free(share);
    return status;
}

MIRT__LIB int64_t mirt__share_units(const mirt_strategy *strategy) {
    return strategy->share_before ? strategy->share_before[strategy->all_devices] : strategy->all_devices;
}

MIRT__LIB int64_t mirt__share_begin(const mirt_strategy *strategy, int64_t total, int at) {
    int64_t first;
    mirt__share(total, mirt__share_units(strategy), strategy->share_before ? strategy->share_before[at] : at, &first);
    return first;
}

MIRT__LIB int64_t mirt__device_share(const mirt_strategy *strategy, int64_t total, int device, int64_t *first) {
    *first = mirt__share_begin(strategy, total, strategy->first_device + device);
    return mirt__share_begin(strategy, total, strategy->first_device + device + 1) - *first;
}

MIRT__TOGETHER_ONLY_LIB int64_t mirt__peer_begin(const mirt_strategy *strategy, int64_t total, int rank) {
    const mirt__peers *peers = MIRT__PEERS(strategy);
    return mirt__share_begin(strategy, total, peers ? peers->first_device[rank] : rank * strategy->all_devices);
}

MIRT__LIB int mirt__most_replicas(const mirt_strategy *strategy, int replicas) {
    int64_t most = 0;
    if (!strategy->share_before) return (int)mirt__parts(replicas, strategy->all_devices);
    for (int d = 0; d < strategy->all_devices; d++) {
        const int64_t own = mirt__share_begin(strategy, replicas, d + 1) - mirt__share_begin(strategy, replicas, d);
        if (own > most) most = own;
    }
    return (int)most;
}

MIRT__LIB int mirt__device_replicas(const mirt_strategy *strategy, int replicas, int device, int *first) {
    int64_t at;
    const int count = (int)mirt__device_share(strategy, replicas, device, &at);
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
    int before = 0, most = 0, d, end;
    mirt__summed_devices(strategy, &d, &end);
    for (; d < end; d++) {
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
                      replicas, strategy->all_devices, most, MIRT__MAX_PARTS);
}
