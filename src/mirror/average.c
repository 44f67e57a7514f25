/* Averages weights over processes. */
#include "strategy.h"

struct mirt__averaging {
    mirt__group_plan plan;
    int64_t count;
    mirt__real *sum, *inbox;
};

MIRT__LIB void mirt__averaging_free(mirt__averaging *a) {
    if (!a) return;
    mirt__group_plan_free(&a->plan);
    mirt__aligned_free(a->sum);
    mirt__aligned_free(a->inbox);
    mirt__free(a);
}

/* A sum of `count` values, one part from each process. */
static mirt__averaging *mirt__averaging_create(const mirt__peers *p, int64_t count) {
    mirt__averaging *a = (mirt__averaging *)mirt__calloc(1, sizeof *a);
    int *begin = (int *)mirt__calloc((size_t)p->size + 1, sizeof *begin);
    for (int i = 0; begin && i <= p->size; i++) begin[i] = i;
    bool good = a && begin && mirt__group_plan_make(&a->plan, p->size, begin, p->size, p->rank, count) == MIRT_OK;
    mirt__free(begin);
    if (good) {
        a->count = count;
        a->sum = (mirt__real *)mirt__aligned_alloc((size_t)count * sizeof *a->sum);
        a->inbox = (mirt__real *)mirt__aligned_alloc((size_t)(a->plan.inbox + 1) * sizeof *a->inbox);
        good = a->sum && a->inbox;
    }
    if (good) return a;
    mirt__averaging_free(a);
    return NULL;
}

MIRT__LIB mirt_status mirt__peers_average(mirt_strategy *s, mirt__real *value, int64_t count) {
    mirt__peers *p = s->peers;
    mirt__engine_failure failure;
    mirt__where where;
    const int64_t replicas = s->num_replicas;
    const double part = (double)(mirt__peer_begin(s, replicas, p->rank + 1) - mirt__peer_begin(s, replicas, p->rank)) /
                        (double)replicas;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    if (p->averaging && p->averaging->count != count) {
        mirt__averaging_free(p->averaging);
        p->averaging = NULL;
    }
    if (!p->averaging && !(p->averaging = mirt__averaging_create(p, count))) {
        mirt__peers_end(s);
        return mirt_last_status();
    }
    mirt__averaging *a = p->averaging;
    for (int64_t i = 0; i < count; i++) a->sum[i] = (mirt__real)((double)value[i] * part);
    memset(&where, 0, sizeof where);
    if (!mirt__peers_add_up(s, &a->plan, &a->sum, a->sum, a->inbox, &where, &failure))
        return mirt__peers_fail(s, 0, &failure);
    memcpy(value, a->sum, (size_t)count * sizeof *value);
    return MIRT_OK;
}
