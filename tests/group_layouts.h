#ifndef GROUP_LAYOUTS_H
#define GROUP_LAYOUTS_H
/* Layouts of replicas on processes, and the tree's sum by its definition. Include after mirrortrain.h. */
#include "tap.h"

typedef struct layout {
    int processes, active;
    int *begin; /* [processes + 1] replicas */
    int64_t elements;
    uint32_t seed;
} layout;

/* What a layout adds up: the sums that each process begins with, and what each must end with. */
typedef struct addition {
    int *slots;       /* of each process */
    float **slot;     /* [replicas] of the elements, by the first replica of a slot; NULL: none begins there */
    int *slot_size;   /* [replicas] */
    float *expected;
} addition;

static uint64_t layout_state;

/* A number below `bound`, of splitmix64. */
TAP_UNUSED static int draw(int bound) {
    uint64_t z = (layout_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (int)((z ^ (z >> 31)) % (uint64_t)bound);
}

/* Of magnitudes so different that each order of additions gives another sum. */
static float layout_value(const layout *l, int replica, int64_t i) {
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)replica * 40503u ^ l->seed;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    h ^= h >> 16;
    return (float)(int32_t)h * (float)(1 << (h & 7));
}

/* Memory that a test cannot do without. */
static void *layout_memory(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        printf("Bail out! out of memory\n");
        exit(1);
    }
    return memory;
}

/* Replicas in blocks: `kind` 0: as devices have them, so many for each process; 1: drawn, some empty. */
TAP_UNUSED static layout layout_make(int processes, int devices, int replicas, int kind) {
    layout l;
    memset(&l, 0, sizeof l);
    l.processes = processes;
    l.begin = (int *)layout_memory((size_t)processes + 1, sizeof *l.begin);
    for (int p = 1; p < processes; p++) {
        int64_t first;
        mirt__share(replicas, (int64_t)processes * devices, (int64_t)p * devices, &first);
        int at = kind ? draw(replicas + 1) : (int)first, i = p;
        for (; l.begin[i - 1] > at; i--) l.begin[i] = l.begin[i - 1];
        l.begin[i] = at;
    }
    l.begin[processes] = l.active = replicas;
    l.seed = (uint32_t)draw(1 << 30);
    return l;
}

TAP_UNUSED static void layout_free(layout *l) { free(l->begin); }

static void addition_node(const layout *l, addition *a, int lo, int hi, float *out) {
    if (hi - lo == 1) {
        for (int64_t i = 0; i < l->elements; i++) out[i] = layout_value(l, lo, i);
    } else {
        float *right = (float *)layout_memory((size_t)l->elements, sizeof *right);
        int half = 1;
        while (2 * half < hi - lo) half *= 2;
        addition_node(l, a, lo, lo + half, out);
        addition_node(l, a, lo + half, hi, right);
        for (int64_t i = 0; i < l->elements; i++) out[i] += right[i];
        free(right);
    }
    if (a->slot[lo] && a->slot_size[lo] == hi - lo) memcpy(a->slot[lo], out, (size_t)l->elements * sizeof *out);
}

TAP_UNUSED static addition addition_make(const layout *l) {
    addition a;
    const size_t replicas = (size_t)l->begin[l->processes];
    a.slots = (int *)layout_memory((size_t)l->processes, sizeof *a.slots);
    a.slot = (float **)layout_memory(replicas, sizeof *a.slot);
    a.slot_size = (int *)layout_memory(replicas, sizeof *a.slot_size);
    a.expected = (float *)layout_memory((size_t)l->elements, sizeof *a.expected);
    for (int p = 0; p < l->processes; p++) {
        const int end = l->begin[p + 1] < l->active ? l->begin[p + 1] : l->active;
        for (int at = l->begin[p], size; at < end; at += size) {
            for (size = 1; at % (2 * size) == 0 && at + 2 * size <= end;) size *= 2;
            a.slot[at] = (float *)layout_memory((size_t)l->elements, sizeof **a.slot);
            a.slot_size[at] = size;
            a.slots[p]++;
        }
    }
    if (l->active) addition_node(l, &a, 0, l->active, a.expected);
    return a;
}

/* The slots of a process, in order. */
TAP_UNUSED static void addition_slots(const layout *l, const addition *a, int process, mirt__real **out) {
    for (int r = l->begin[process]; r < l->begin[process + 1]; r++) {
        if (a->slot[r]) *out++ = a->slot[r];
    }
}

TAP_UNUSED static void addition_free(const layout *l, addition *a) {
    for (int r = 0; r < l->begin[l->processes]; r++) free(a->slot[r]);
    free(a->slots);
    free(a->slot);
    free(a->slot_size);
    free(a->expected);
}
#endif
