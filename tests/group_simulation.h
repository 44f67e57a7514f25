#ifndef GROUP_SIMULATION_H
#define GROUP_SIMULATION_H
/* All processes of a group in one: each does what its plan says. Include after mirrortrain.h. */
#include "group_layouts.h"

/* One side of a message. */
typedef struct side {
    int from, to, order; /* order: in the round, among those of its process */
    int64_t begin, end;
    const mirt__real *data; /* sent */
    mirt__real *into;       /* received */
    bool add;
} side;

typedef struct simulation {
    const layout *l;
    mirt__group_plan *plan;
    mirt__real ***slot; /* of each process */
    mirt__real **sum, **own_sum;
    int *at; /* its next item */
    side *sent, *received;
    int sends, receives;
    const char *wrong; /* the first thing, or NULL */
} simulation;

static int side_order(const void *a, const void *b) {
    const side *x = (const side *)a, *y = (const side *)b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Whether what is divided is cut at multiples of 16 elements, and 64 elements or less are not. */
static bool simulation_cut_well(const simulation *s, const mirt__plan_item *item) {
    const int64_t n = s->l->elements;
    if (item->begin < 0 || item->begin >= item->end || item->end > n) return false;
    if (n <= 64) return item->begin == 0 && item->end == n;
    return item->begin % 16 == 0 && (item->end % 16 == 0 || item->end == n);
}

/* Both sides of the messages of a round. */
static void simulation_collect(simulation *s, int round) {
    s->sends = s->receives = 0;
    for (int p = 0; p < s->l->processes; p++) {
        const mirt__group_plan *plan = &s->plan[p];
        int64_t inbox = 0;
        for (int i = s->at[p]; i < plan->count && plan->item[i].round == round; i++) {
            const mirt__plan_item *item = &plan->item[i];
            const bool sends = item->op == MIRT__PLAN_SEND || item->op == MIRT__PLAN_GIVE;
            if (item->op == MIRT__PLAN_JOIN || item->op == MIRT__PLAN_KEEP) continue;
            const bool final = item->op == MIRT__PLAN_GIVE || item->op == MIRT__PLAN_TAKE;
            if (item->peer < 0 || item->peer >= s->l->processes || item->peer == p) s->wrong = "a wrong peer";
            if (item->slot < 0 || (!final && item->slot >= plan->slots)) s->wrong = "a wrong slot";
            if (!simulation_cut_well(s, item)) s->wrong = "wrong elements";
            if (s->wrong) return;
            mirt__real *data = (final ? s->sum[p] : s->slot[p][item->slot]) + item->begin;
            const side one = {sends ? p : item->peer, sends ? item->peer : p, i, item->begin, item->end, data, data,
                              item->op == MIRT__PLAN_ADD};
            if (sends)
                s->sent[s->sends++] = one;
            else
                s->received[s->receives++] = one;
            if (one.add) inbox += item->end - item->begin;
        }
        if (inbox > plan->inbox) s->wrong = "the inbox is too small";
    }
}

/* All that is sent is sent before anything is added or taken, and is still what it was afterwards. */
static void simulation_deliver(simulation *s) {
    if (s->sends != s->receives) s->wrong = "messages that nobody sends or receives";
    if (s->wrong || !s->sends) return;
    qsort(s->sent, (size_t)s->sends, sizeof *s->sent, side_order);
    qsort(s->received, (size_t)s->receives, sizeof *s->received, side_order);
    size_t total = 0;
    for (int i = 0; i < s->sends; i++) {
        const side *a = &s->sent[i], *b = &s->received[i];
        if (a->from != b->from || a->to != b->to || a->begin != b->begin || a->end != b->end)
            s->wrong = "messages that differ on their two sides";
        total += (size_t)(a->end - a->begin);
    }
    if (s->wrong) return;
    mirt__real *copies = (mirt__real *)layout_memory(total, sizeof *copies), *copy = copies;
    for (int i = 0; i < s->sends; copy += s->sent[i].end - s->sent[i].begin, i++)
        memcpy(copy, s->sent[i].data, (size_t)(s->sent[i].end - s->sent[i].begin) * sizeof *copy);
    copy = copies;
    for (int i = 0; i < s->receives; i++) {
        const side *r = &s->received[i];
        for (int64_t k = 0; k < r->end - r->begin; k++) r->into[k] = r->add ? r->into[k] + copy[k] : copy[k];
        copy += r->end - r->begin;
    }
    copy = copies;
    for (int i = 0; i < s->sends; copy += s->sent[i].end - s->sent[i].begin, i++) {
        if (memcmp(copy, s->sent[i].data, (size_t)(s->sent[i].end - s->sent[i].begin) * sizeof *copy) != 0)
            s->wrong = "elements that are sent and changed in one round";
    }
    free(copies);
}

static void simulation_own(simulation *s, int round) {
    for (int p = 0; p < s->l->processes; p++) {
        const mirt__group_plan *plan = &s->plan[p];
        for (; s->at[p] < plan->count && plan->item[s->at[p]].round == round; s->at[p]++) {
            const mirt__plan_item *item = &plan->item[s->at[p]];
            if (item->op != MIRT__PLAN_JOIN && item->op != MIRT__PLAN_KEEP) continue;
            if (item->slot < 0 || item->slot >= plan->slots || item->from < 0 || item->from >= plan->slots) {
                s->wrong = "a wrong slot";
                return;
            }
            for (int64_t i = item->begin; i < item->end; i++) {
                if (item->op == MIRT__PLAN_JOIN)
                    s->slot[p][item->slot][i] += s->slot[p][item->from][i];
                else
                    s->sum[p][i] = s->slot[p][item->slot][i];
            }
        }
    }
}

static void simulation_begin(simulation *s, const layout *l, const addition *a) {
    const size_t n = (size_t)l->processes;
    int most = 0;
    memset(s, 0, sizeof *s);
    s->l = l;
    s->plan = (mirt__group_plan *)layout_memory(n, sizeof *s->plan);
    s->slot = (mirt__real ***)layout_memory(n, sizeof *s->slot);
    s->sum = (mirt__real **)layout_memory(n, sizeof *s->sum);
    s->own_sum = (mirt__real **)layout_memory(n, sizeof *s->own_sum);
    s->at = (int *)layout_memory(n, sizeof *s->at);
    for (int p = 0; p < l->processes && !s->wrong; p++) {
        if (mirt__group_plan_make(&s->plan[p], l->processes, l->begin, l->active, p, l->elements) != MIRT_OK)
            s->wrong = mirt_last_error();
        if (s->plan[p].slots != a->slots[p]) s->wrong = "a wrong number of slots";
        if (s->plan[p].rounds != s->plan[0].rounds) s->wrong = "a wrong number of rounds";
        most += s->plan[p].count;
        s->slot[p] = (mirt__real **)layout_memory((size_t)a->slots[p], sizeof **s->slot);
        addition_slots(l, a, p, s->slot[p]);
        s->own_sum[p] = (mirt__real *)layout_memory((size_t)l->elements, sizeof **s->own_sum);
        memset(s->own_sum[p], 0xff, (size_t)l->elements * sizeof **s->own_sum);
        s->sum[p] = a->slots[p] && draw(2) ? s->slot[p][0] : s->own_sum[p];
    }
    s->sent = (side *)layout_memory((size_t)most, sizeof *s->sent);
    s->received = (side *)layout_memory((size_t)most, sizeof *s->received);
}

static void simulation_end(simulation *s) {
    for (int p = 0; p < s->l->processes; p++) {
        mirt__group_plan_free(&s->plan[p]);
        free(s->slot[p]);
        free(s->own_sum[p]);
    }
    free(s->plan);
    free(s->slot);
    free(s->sum);
    free(s->own_sum);
    free(s->at);
    free(s->sent);
    free(s->received);
}

/* NULL: every process ends with the sum; otherwise what is wrong. The slots of `a` are overwritten. */
TAP_UNUSED static const char *simulate(const layout *l, const addition *a) {
    simulation s;
    simulation_begin(&s, l, a);
    for (int round = 0; !s.wrong && round < s.plan[0].rounds; round++) {
        simulation_collect(&s, round);
        if (!s.wrong) simulation_deliver(&s);
        if (!s.wrong) simulation_own(&s, round);
    }
    for (int p = 0; p < l->processes && !s.wrong; p++) {
        if (s.at[p] != s.plan[p].count) s.wrong = "items after the last round";
        if (l->active && memcmp(s.sum[p], a->expected, (size_t)l->elements * sizeof **s.sum) != 0)
            s.wrong = "a wrong sum";
        if (!l->active && s.plan[p].count) s.wrong = "items without replicas";
    }
    const char *wrong = s.wrong;
    simulation_end(&s);
    return wrong;
}
#endif
