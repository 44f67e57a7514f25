/* Bounds the staleness of gradients: updates by others between a worker's pull and its push.

   A worker that has pulled can still wait for slack = bound - stale updates by others. All of them can push within the
   bound, one after the other, if of those whose slack is at most n there are at most n + 1. Pulls and pushes are
   admitted where this stays true; the worker with the least slack may always push, so that nobody waits for ever. */
#include "servers.h"

MIRT__LIB bool mirt__admission_create(mirt__admission *a, int workers, int64_t bound) {
    memset(a, 0, sizeof *a);
    a->workers = workers;
    a->bound = bound;
    if (!(a->stale = (int64_t *)mirt__calloc((size_t)workers, sizeof *a->stale))) return false;
    for (int i = 0; i < workers; i++) a->stale[i] = -1;
    return true;
}

MIRT__LIB void mirt__admission_free(mirt__admission *a) { mirt__free(a->stale); }

MIRT__LIB bool mirt__admit_pull(mirt__admission *a, int worker) {
    if (a->bound >= 0 && a->pulls > a->bound) return false;
    a->stale[worker] = 0;
    a->pulls++;
    return true;
}

/* Whether the others can push within the bound once this worker has. */
static bool mirt__admission_leaves_slack(const mirt__admission *a, int worker) {
    for (int i = 0; i < a->workers; i++) {
        int64_t before = 0;
        if (i == worker || a->stale[i] < 0) continue;
        for (int k = 0; k < a->workers; k++) before += k != worker && a->stale[k] >= a->stale[i];
        if (before > a->bound - a->stale[i]) return false;
    }
    return true;
}

static void mirt__admission_count(mirt_staleness *seen, int64_t stale) {
    seen->updates++;
    seen->sum += stale;
    if (stale > seen->max) seen->max = stale;
    seen->histogram[stale < MIRT_STALENESS_BINS ? stale : MIRT_STALENESS_BINS - 1]++;
}

MIRT__LIB bool mirt__admit_push(mirt__admission *a, int worker) {
    if (a->bound >= 0 && !mirt__admission_leaves_slack(a, worker)) return false;
    mirt__admission_count(&a->seen, a->stale[worker]);
    mirt__admit_none(a, worker);
    for (int i = 0; i < a->workers; i++) a->stale[i] += a->stale[i] >= 0;
    return true;
}

MIRT__LIB void mirt__admit_none(mirt__admission *a, int worker) {
    a->pulls -= a->stale[worker] >= 0;
    a->stale[worker] = -1;
}
