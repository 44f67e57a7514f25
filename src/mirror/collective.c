#include "strategy.h"
/* The list of all-reduce algorithms: which device sends which partial sums where. */

/* Appends what `device` is left with and returns its subtrees. */
MIRT__TRAINING mirt__tree_stack mirt__append_parts(mirt__exchange *x, int device) {
    mirt__tree_stack own;
    int first, count = mirt__device_replicas(x->strategy, x->replicas, device, &first);
    own.depth = 0;
    for (int r = first; r < first + count && r < x->active; r++) mirt__tree_push(&own, r, 1);
    for (int i = 0; i < own.depth; i++) {
        x->device[x->parts] = device;
        x->slot[x->parts++] = x->slot_per_replica ? own.node[i].lo - first : i;
    }
    return own;
}

/* The uppermost sums of a stack, from `top` down to `bottom`, become one; returns the next addition. */
MIRT__TRAINING mirt__addition *mirt__merge_parts(mirt__addition *add, const int *part_of, int top, int bottom) {
    for (; top > bottom; top--, add++) {
        add->into = part_of[top - 1];
        add->from = part_of[top];
    }
    return add;
}

MIRT__TRAINING void mirt__plan_tree(mirt__exchange *x, int device) {
    mirt__tree_stack all;
    int part_of[64], part = 0;
    mirt__addition *add = x->add;
    (void)device;
    all.depth = 0;
    for (int d = x->first; d < x->end; d++) {
        mirt__tree_stack own = mirt__append_parts(x, d);
        for (int i = 0; i < own.depth; i++) {
            const int top = all.depth;
            part_of[top] = part++;
            mirt__tree_push(&all, own.node[i].lo, own.node[i].size);
            add = mirt__merge_parts(add, part_of, top, all.depth - 1);
        }
    }
    x->adds = (int)(add - x->add);
    x->left = all.depth;
    memcpy(x->leaves, part_of, (size_t)all.depth * sizeof *part_of);
    mirt__merge_parts(add, part_of, all.depth - 1, 0);
}

/* All parts in the order of devices that begins with `first`. */
MIRT__TRAINING void mirt__plan_chain(mirt__exchange *x, int first) {
    for (int i = 0; i < x->strategy->num_devices; i++)
        mirt__append_parts(x, (first + i) % x->strategy->num_devices);
    for (int part = 1; part < x->parts; part++) {
        x->add[part - 1].into = 0;
        x->add[part - 1].from = part;
    }
}

MIRT__TRAINING void mirt__plan_ring(mirt__exchange *x, int device) { mirt__plan_chain(x, device + 1); }

MIRT__TRAINING void mirt__plan_one_device(mirt__exchange *x, int device) {
    (void)device;
    mirt__plan_chain(x, 0);
}

typedef struct mirt__collective_row {
    const char *name, *why;
    void (*plan)(mirt__exchange *x, int device);
    bool first_device; /* sums and updates everything; otherwise each device its share */
} mirt__collective_row;

static const mirt__collective_row mirt__collectives[] = {
    {"tree", "the same bits on any number of devices", MIRT__TRAINING_ENTRY(mirt__plan_tree), false},
    {"ring", "every device adds its share in the order of its neighbors", MIRT__TRAINING_ENTRY(mirt__plan_ring), false},
    {"one device", "the first device adds and updates everything", MIRT__TRAINING_ENTRY(mirt__plan_one_device), true},
    {"NCCL", "its own all-reduce, of which order it likes", MIRT__TRAINING_ENTRY(mirt__plan_tree), false},
    {"MPI_Allreduce", "MPI's own, of which order it likes", MIRT__TRAINING_ENTRY(mirt__plan_tree), false}
};

static const mirt__collective_row *mirt__collective_get(mirt_collective collective) {
    int row = collective == MIRT_COLLECTIVE_AUTO ? 0 : (int)collective - (int)MIRT_TREE;
    return row < 0 || row >= MIRT__COUNT(mirt__collectives) ? NULL : &mirt__collectives[row];
}

MIRT__LIB const char *mirt__collective_name(mirt_collective collective, const char **why) {
    const mirt__collective_row *row = mirt__collective_get(collective);
    if (row) *why = row->why;
    return row ? row->name : NULL;
}

MIRT__LIB void mirt__summed_devices(const mirt_strategy *s, int *first, int *end) {
    const bool joined = MIRT__PEERS(s) && !s->able.in_place;
    *first = joined ? -s->first_device : 0;
    *end = joined ? s->all_devices - s->first_device : s->num_devices;
}

MIRT__TRAINING_LIB void mirt__exchange_plan(const mirt_strategy *strategy, int replicas, int active,
                                            bool slot_per_replica, int device, mirt__exchange *out) {
    out->strategy = strategy;
    out->replicas = replicas;
    out->active = active;
    out->slot_per_replica = slot_per_replica;
    out->parts = 0;
    mirt__summed_devices(strategy, &out->first, &out->end);
    mirt__collective_get(strategy->collective)->plan(out, device);
}

MIRT__TRAINING_LIB void mirt__exchange_range(const mirt_strategy *strategy, int64_t elements, int device,
                                             int64_t *begin, int64_t *end) {
    const int64_t vector = MIRT__ALIGN / (int64_t)sizeof(mirt__real);
    int64_t first = 0, count = elements / vector + (elements % vector != 0);
    if (!mirt__collective_get(strategy->collective)->first_device) {
        count = mirt__share(count, strategy->num_devices, device, &first);
    } else if (device > 0) {
        first = count;
        count = 0;
    }
    *begin = first * vector;
    *end = (first + count) * vector;
    if (*end > elements) *end = elements;
    if (*begin > *end) *begin = *end;
}

MIRT__TRAINING_LIB void mirt__update_range(const mirt_strategy *strategy, int64_t elements, int device,
                                           int64_t *begin, int64_t *end) {
    *begin = 0;
    *end = elements;
    if (strategy->able.shards || mirt__device_copies(strategy) == 1)
        mirt__exchange_range(strategy, elements, device, begin, end);
}
