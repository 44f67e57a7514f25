#include "group.h"
/* Plans how processes evaluate the tree over replicas: which elements each sends to whom. */

#define MIRT__GROUP_ALIGN 16 /* elements: what is divided is cut at multiples of it */
#define MIRT__GROUP_WHOLE 64 /* elements: no more than these are not divided, */
#define MIRT__GROUP_EIGHTH 8 /* nor an eighth of a process's share: a piece is a message */

/* Elements of a node's sum, and which slot of which process they lie in. */
typedef struct mirt__holding {
    int process, slot;
    int64_t begin, end;
} mirt__holding;

/* A plan under way. Every process makes the plan of all of them, and keeps its own part. */
typedef struct mirt__group_planner {
    const int *first; /* replicas, of each process */
    int processes, process;
    int64_t elements, whole; /* whole: no more than these are not divided */
    mirt__holding *held; /* a stack: those of each node under way are in order and cover all elements */
    int holdings, holding_capacity;
    mirt__plan_item *item;
    int items, item_capacity;
    int64_t *total[2]; /* elements that each process holds of a left and of a right child; 0 between nodes */
    int leaf_process, leaf_slot; /* of the last leaf */
    int slots;
} mirt__group_planner;

/* Elements [begin, end) in the slot of `like`, on top of the stack. */
static bool mirt__group_hold(mirt__group_planner *p, const mirt__holding *like, int64_t begin, int64_t end) {
    if (begin == end) return true;
    mirt__holding *top = p->holdings ? &p->held[p->holdings - 1] : NULL;
    if (top && top->end == begin && top->process == like->process && top->slot == like->slot) {
        top->end = end;
        return true;
    }
    if (!mirt__grow_list((void **)&p->held, p->holdings, &p->holding_capacity, sizeof *p->held)) return false;
    top = &p->held[p->holdings++];
    *top = *like;
    top->begin = begin;
    top->end = end;
    return true;
}

/* Appends an item of this process. */
static bool mirt__group_item(mirt__group_planner *p, mirt__plan_op op, int round, int peer, int slot, int from,
                             int64_t begin, int64_t end) {
    if (begin == end) return true;
    if (!mirt__grow_list((void **)&p->item, p->items, &p->item_capacity, sizeof *p->item)) return false;
    mirt__plan_item *item = &p->item[p->items++];
    item->op = op;
    item->round = round;
    item->peer = peer;
    item->slot = slot;
    item->from = from;
    item->begin = begin;
    item->end = end;
    return true;
}

/* >>the sum: up the tree */

/* Elements [begin, end) go from one process to another, which adds them. */
static bool mirt__group_send(mirt__group_planner *p, int round, const mirt__holding *from, const mirt__holding *to,
                             int64_t begin, int64_t end) {
    if (p->process == from->process)
        return mirt__group_item(p, MIRT__PLAN_SEND, round, to->process, from->slot, 0, begin, end);
    if (p->process == to->process)
        return mirt__group_item(p, MIRT__PLAN_ADD, round, from->process, to->slot, 0, begin, end);
    return true;
}

/* Where elements [begin, end) are cut: `first` keeps the sum of those before the cut, and `second` of the rest. Each
   keeps a part in inverse proportion to what it holds, and half of that if it is on both sides of the tree: all end
   with equal shares. Integers, as all processes must get the same. */
static int64_t mirt__group_cut(const mirt__group_planner *p, int side, const mirt__holding *first,
                               const mirt__holding *second, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    if (count <= p->whole) return end;
    int64_t keep_first = p->total[!side][second->process], keep_second = p->total[side][first->process];
    while ((keep_first | keep_second) >> 20) {
        keep_first >>= 1;
        keep_second >>= 1;
    }
    if (!p->total[!side][first->process]) keep_first *= 2;
    if (!p->total[side][second->process]) keep_second *= 2;
    const int64_t both = keep_first + keep_second;
    const int64_t cut = begin + count / both * keep_first + count % both * keep_first / both;
    return mirt__max(cut / MIRT__GROUP_ALIGN * MIRT__GROUP_ALIGN, begin);
}

/* Elements [begin, end) of a left and of a right child become those of their parent. */
static bool mirt__group_meet(mirt__group_planner *p, const mirt__holding *left, const mirt__holding *right, int round,
                             int64_t begin, int64_t end) {
    if (left->process == right->process) {
        if (p->process == left->process &&
            !mirt__group_item(p, MIRT__PLAN_JOIN, round, -1, left->slot, right->slot, begin, end))
            return false;
        return mirt__group_hold(p, left, begin, end);
    }
    /* A process that has elements on the other side of a border keeps those next to it: fewer messages. */
    const mirt__holding *before = &p->held[p->holdings - 1];
    const bool goes_on = before->end == begin;
    const bool swap = (goes_on && before->process == right->process) ||
                      (!(goes_on && before->process == left->process) && left->end > end);
    const mirt__holding *first = swap ? right : left, *second = swap ? left : right;
    const int64_t cut = mirt__group_cut(p, swap, first, second, begin, end);
    return mirt__group_send(p, round, second, first, begin, cut) &&
           mirt__group_send(p, round, first, second, cut, end) && mirt__group_hold(p, first, begin, cut) &&
           mirt__group_hold(p, second, cut, end);
}

/* Replaces the holdings of a left child, from `bottom` on, and a right child, from `middle` on, by their parent's. */
static bool mirt__group_merge(mirt__group_planner *p, int bottom, int middle, int round) {
    const int top = p->holdings;
    if (top == bottom) return true; /* there are no elements */
    for (int i = bottom; i < top; i++) p->total[i >= middle][p->held[i].process] += p->held[i].end - p->held[i].begin;
    for (int64_t at = 0, l = bottom, r = middle; at < p->elements;) {
        const mirt__holding left = p->held[l], right = p->held[r]; /* copies: the stack moves when it grows */
        const int64_t end = mirt__min(left.end, right.end);
        if (!mirt__group_meet(p, &left, &right, round, at, end)) return false;
        l += left.end == end;
        r += right.end == end;
        at = end;
    }
    for (int i = bottom; i < top; i++) p->total[i >= middle][p->held[i].process] = 0;
    memmove(&p->held[bottom], &p->held[top], (size_t)(p->holdings - top) * sizeof *p->held);
    p->holdings -= top - bottom;
    return true;
}

/* The process that a replica belongs to. */
static int mirt__group_owner(const mirt__group_planner *p, int replica) {
    int low = 0, high = p->processes;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (p->first[middle] <= replica)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool mirt__group_leaf(mirt__group_planner *p, int process) {
    p->leaf_slot = process == p->leaf_process ? p->leaf_slot + 1 : 0;
    p->leaf_process = process;
    if (process == p->process) p->slots++;
    const mirt__holding all = {process, p->leaf_slot, 0, 0};
    return mirt__group_hold(p, &all, 0, p->elements);
}

/* Pushes the holdings of the node over replicas [lo, hi). *ready: the round after which they are its sum; -1: they are
   from the beginning. */
static bool mirt__group_node(mirt__group_planner *p, int lo, int hi, int *ready) {
    const int size = hi - lo, process = mirt__group_owner(p, lo);
    const bool one_process = process == mirt__group_owner(p, hi - 1);
    *ready = -1;
    if (one_process && (size & (size - 1)) == 0) return mirt__group_leaf(p, process);
    int half = 1, left, right;
    while (half < size - half) half *= 2;
    const int bottom = p->holdings;
    if (!mirt__group_node(p, lo, lo + half, &left)) return false;
    const int middle = p->holdings;
    if (!mirt__group_node(p, lo + half, hi, &right)) return false;
    *ready = (left > right ? left : right) + !one_process; /* additions within a process follow a round's messages */
    if (*ready < 0) *ready = 0;
    return mirt__group_merge(p, bottom, middle, *ready);
}

/* >>the way back: Bruck's all-gather, for any number of processes */

/* Where the final elements of a process lie, for sorting. */
typedef struct mirt__seat {
    int64_t center; /* twice; -1: it holds none */
    int process;
} mirt__seat;

static int mirt__seat_order(const void *a, const void *b) {
    const mirt__seat *one = (const mirt__seat *)a, *other = (const mirt__seat *)b;
    if (one->center != other->center) return one->center < other->center ? -1 : 1;
    return one->process < other->process ? -1 : 1;
}

/* Processes in a ring in the order of the elements that they hold, those that hold none spread among them.
   place[process], and the process at each place. */
static void mirt__group_seat(const mirt__group_planner *p, mirt__seat *seat, int *place, int *at) {
    int holders = 0, next = 0;
    for (int i = 0; i < p->processes; i++) {
        seat[i].center = -1;
        seat[i].process = i;
        at[i] = -1;
    }
    int64_t *begin = p->total[0];
    for (int i = 0; i < p->holdings; i++) {
        const mirt__holding *h = &p->held[i];
        if (seat[h->process].center < 0) begin[h->process] = h->begin;
        seat[h->process].center = begin[h->process] + h->end;
    }
    for (int i = 0; i < p->processes; i++) {
        if (seat[i].center < 0) continue;
        const mirt__seat holder = seat[i];
        seat[i] = seat[holders];
        seat[holders++] = holder;
    }
    qsort(seat, (size_t)holders, sizeof *seat, mirt__seat_order);
    for (int i = 0; i < holders; i++) at[(int64_t)i * p->processes / holders] = seat[i].process;
    for (int i = holders; i < p->processes; i++) {
        while (at[next] >= 0) next++;
        at[next] = seat[i].process;
    }
    for (int i = 0; i < p->processes; i++) place[at[i]] = i;
}

/* The final elements of the processes at places [from, from + count) of the ring go to `peer`, or come from it. */
static bool mirt__group_pass(mirt__group_planner *p, mirt__plan_op op, int round, int peer, const int *place, int from,
                             int count) {
    int64_t begin = 0, end = 0;
    for (int i = 0; i < p->holdings; i++) {
        const mirt__holding *h = &p->held[i];
        int offset = place[h->process] - from;
        if (offset < 0) offset += p->processes;
        if (offset >= count) continue;
        if (h->begin != end) {
            if (!mirt__group_item(p, op, round, peer, 0, 0, begin, end)) return false;
            begin = h->begin;
        }
        end = h->end;
    }
    return mirt__group_item(p, op, round, peer, 0, 0, begin, end);
}

/* After a round that begins with the elements of `known` places, those from a process's own place on, it has those of
   twice as many. *round becomes the one after the last. */
static bool mirt__group_gather(mirt__group_planner *p, const int *place, const int *at, int *round) {
    const int own = place[p->process], n = p->processes;
    for (int known = 1, count; known < n; known += count, ++*round) {
        const int above = (own + known) % n, below = (own + n - known) % n;
        count = known < n - known ? known : n - known;
        if (!mirt__group_pass(p, MIRT__PLAN_GIVE, *round, at[below], place, own, count) ||
            !mirt__group_pass(p, MIRT__PLAN_TAKE, *round, at[above], place, above, count))
            return false;
    }
    return true;
}

static bool mirt__group_return(mirt__group_planner *p, int *round) {
    mirt__seat *seat = (mirt__seat *)mirt__calloc((size_t)p->processes, sizeof *seat);
    int *place = (int *)mirt__calloc((size_t)p->processes, sizeof *place);
    int *at = (int *)mirt__calloc((size_t)p->processes, sizeof *at);
    bool good = seat && place && at;
    if (good) {
        mirt__group_seat(p, seat, place, at);
        good = mirt__group_gather(p, place, at, round);
    }
    mirt__free(seat);
    mirt__free(place);
    mirt__free(at);
    return good;
}

/* >>the plan */

/* All items of this process, in the order in which the tree has them. */
static bool mirt__group_all_items(mirt__group_planner *p, int active, int *rounds) {
    int round;
    if (!mirt__group_node(p, 0, active, &round)) return false;
    if (round < 0) round = 0;
    for (int i = 0; i < p->holdings; i++) {
        const mirt__holding *h = &p->held[i];
        if (h->process == p->process &&
            !mirt__group_item(p, MIRT__PLAN_KEEP, round, -1, h->slot, 0, h->begin, h->end))
            return false;
    }
    *rounds = round + 1;
    return mirt__group_return(p, rounds);
}

/* The items by rounds; those of a round stay in their order, which is the same in all processes. */
static bool mirt__group_sort(const mirt__group_planner *p, mirt__group_plan *plan) {
    plan->item = (mirt__plan_item *)mirt__calloc((size_t)p->items, sizeof *plan->item);
    if (!plan->item) return false;
    for (int round = 0; round < plan->rounds; round++) {
        for (int i = 0; i < p->items; i++) {
            if (p->item[i].round == round) plan->item[plan->count++] = p->item[i];
        }
    }
    return true;
}

/* Room for the messages and for what is to be added of any round. */
static bool mirt__group_room(mirt__group_plan *plan) {
    int64_t sends = 0, receives = 0;
    for (int i = 0; i < plan->count;) {
        const int round = plan->item[i].round;
        int64_t send = 0, receive = 0, add = 0;
        for (; i < plan->count && plan->item[i].round == round; i++) {
            const mirt__plan_item *item = &plan->item[i];
            const int64_t count = item->end - item->begin, messages = mirt__parts(count, MIRT__GROUP_CHUNK);
            if (item->op == MIRT__PLAN_SEND || item->op == MIRT__PLAN_GIVE) send += messages;
            if (item->op == MIRT__PLAN_ADD || item->op == MIRT__PLAN_TAKE) receive += messages;
            if (item->op == MIRT__PLAN_ADD) add += count;
        }
        sends = mirt__max(sends, send);
        receives = mirt__max(receives, receive);
        plan->inbox = mirt__max(plan->inbox, add);
    }
    if (sends > INT_MAX || receives > INT_MAX) {
        mirt__no_memory(SIZE_MAX);
        return false;
    }
    plan->send = (mirt__message *)mirt__calloc((size_t)sends, sizeof *plan->send);
    plan->receive = (mirt__message *)mirt__calloc((size_t)receives, sizeof *plan->receive);
    plan->into = (mirt__real **)mirt__calloc((size_t)receives, sizeof *plan->into);
    return plan->send && plan->receive && plan->into;
}

static mirt_status mirt__group_check(int processes, const int *begin, int active, int process, int64_t elements) {
    if (processes < 1 || processes > INT_MAX / 2 || !begin || process < 0 || process >= processes)
        return mirt__fail(MIRT_E_INVALID, "process %d of %d cannot take part in a sum", process, processes);
    bool good = begin[0] == 0;
    for (int i = 0; i < processes && good; i++) good = begin[i] <= begin[i + 1];
    if (!good) return mirt__fail(MIRT_E_INVALID, "the replicas of %d processes are not in order", processes);
    if (active < 0 || active > begin[processes])
        return mirt__fail(MIRT_E_INVALID, "%d of %d replicas cannot have rows", active, begin[processes]);
    if (elements < 0 || (uint64_t)elements > PTRDIFF_MAX / sizeof(mirt__real))
        return mirt__fail(MIRT_E_INVALID, "%lld elements cannot be added", (long long)elements);
    return MIRT_OK;
}

/* Of arguments that were checked. */
static bool mirt__group_fill(mirt__group_plan *plan, mirt__group_planner *p, int active) {
    for (int side = 0; side < 2; side++) {
        p->total[side] = (int64_t *)mirt__calloc((size_t)p->processes, sizeof **p->total);
        if (!p->total[side]) return false;
    }
    if (active && !mirt__group_all_items(p, active, &plan->rounds)) return false;
    plan->slots = p->slots;
    return mirt__group_sort(p, plan) && mirt__group_room(plan);
}

MIRT__LIB mirt_status mirt__group_plan_make(mirt__group_plan *plan, int processes, const int *begin, int active,
                                            int process, int64_t elements) {
    mirt__group_planner p;
    memset(plan, 0, sizeof *plan);
    if (mirt__group_check(processes, begin, active, process, elements) != MIRT_OK) return mirt_last_status();
    memset(&p, 0, sizeof p);
    p.first = begin;
    p.processes = processes;
    p.process = process;
    p.elements = plan->elements = elements;
    p.whole = mirt__max(MIRT__GROUP_WHOLE, elements / MIRT__GROUP_EIGHTH / processes);
    p.leaf_process = -1;
    const bool good = mirt__group_fill(plan, &p, active);
    mirt__free(p.held);
    mirt__free(p.item);
    mirt__free(p.total[0]);
    mirt__free(p.total[1]);
    if (good) return MIRT_OK;
    mirt__group_plan_free(plan);
    return mirt_last_status();
}

MIRT__LIB void mirt__group_plan_free(mirt__group_plan *plan) {
    mirt__free(plan->item);
    mirt__free(plan->send);
    mirt__free(plan->receive);
    mirt__free(plan->into);
    memset(plan, 0, sizeof *plan);
}
