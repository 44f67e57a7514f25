/* Hands out the batches of an epoch to workers, one at a time.

   Each worker gets the next one of a stretch of its own, so that it can read ahead. When nothing else is left, it takes
   half of what another has not begun. */
#include "servers.h"

MIRT__LIB bool mirt__leases_create(mirt__leases *l, int workers) {
    memset(l, 0, sizeof *l);
    l->workers = workers;
    l->of = (mirt__lease *)mirt__calloc(2 * (size_t)workers, sizeof *l->of);
    l->busy = (bool *)mirt__calloc((size_t)workers, sizeof *l->busy);
    l->again = l->of ? l->of + workers : NULL;
    return l->of && l->busy;
}

MIRT__LIB void mirt__leases_free(mirt__leases *l) {
    mirt__free(l->of);
    mirt__free(l->busy);
}

MIRT__LIB void mirt__leases_begin(mirt__leases *l, const mirt__epoch *epoch) {
    l->at = *epoch;
    l->usual = epoch->length;
    l->returned = 0;
    l->closed = false;
}

/* Of what lost workers left. */
static bool mirt__leases_take_again(mirt__leases *l, mirt__lease *out) {
    while (l->returned) {
        *out = l->again[--l->returned];
        if (out->pass == l->at.pass && out->end > l->at.length) {
            l->at.left += l->at.goes_on ? out->end - mirt__max(out->at, l->at.length) : 0;
            out->end = l->at.length;
        }
        if (out->at < out->end) return true;
    }
    return false;
}

static bool mirt__leases_take_next(mirt__leases *l, mirt__lease *out) {
    const int64_t most = 16;
    if (l->at.next >= l->at.length && l->at.goes_on && l->at.left && l->at.length) {
        l->at.pass++;
        l->at.next = 0;
        l->at.length = l->usual;
    }
    const int64_t known = l->at.length == INT64_MAX ? l->at.left : l->at.length - l->at.next;
    const int64_t share = (known < l->at.left ? known : l->at.left) / (2 * (int64_t)l->workers);
    const int64_t size = share < 1 ? 1 : share > most ? most : share;
    if (!l->at.left || l->at.next >= l->at.length) return false;
    out->pass = l->at.pass;
    out->at = l->at.next;
    out->end = l->at.next += size;
    l->at.left -= size;
    return true;
}

static bool mirt__leases_take_half(mirt__leases *l, mirt__lease *out) {
    mirt__lease *longest = NULL;
    int64_t most = 0;
    for (int i = 0; i < l->workers; i++) {
        const int64_t rest = l->of[i].end - l->of[i].at - l->busy[i];
        if (rest <= most) continue;
        most = rest;
        longest = &l->of[i];
    }
    if (!longest) return false;
    *out = *longest;
    out->at = longest->end -= (most + 1) / 2;
    return true;
}

MIRT__LIB bool mirt__leases_give(mirt__leases *l, int worker, mirt__lease *out) {
    mirt__lease *own = &l->of[worker];
    if (own->at >= own->end && !mirt__leases_take_again(l, own) && !mirt__leases_take_next(l, own) &&
        !mirt__leases_take_half(l, own))
        return false;
    *out = *own;
    out->end = out->at + 1;
    return l->busy[worker] = true;
}

MIRT__LIB void mirt__leases_done(mirt__leases *l, int worker) {
    l->of[worker].at++;
    l->busy[worker] = false;
    l->at.done++;
}

MIRT__LIB void mirt__leases_end(mirt__leases *l, int worker) {
    mirt__lease *own = &l->of[worker];
    if (own->pass == l->at.pass && own->at < l->at.length) l->at.length = own->at;
    if (l->at.goes_on && !l->closed) l->at.left += own->end - own->at;
    own->at = own->end;
    l->busy[worker] = false;
}

MIRT__LIB void mirt__leases_lost(mirt__leases *l, int worker) {
    mirt__lease *own = &l->of[worker];
    if (own->at < own->end && !l->closed) l->again[l->returned++] = *own;
    own->at = own->end;
    l->busy[worker] = false;
}

/* What others have begun is trained on. */
MIRT__LIB void mirt__leases_close(mirt__leases *l) {
    l->at.left = 0;
    l->returned = 0;
    l->closed = true;
    for (int i = 0; i < l->workers; i++) {
        if (l->of[i].at < l->of[i].end) l->of[i].end = l->of[i].at + l->busy[i];
    }
}

MIRT__LIB bool mirt__leases_over(const mirt__leases *l) {
    bool over = !l->returned && (!l->at.left || (l->at.next >= l->at.length && (!l->at.goes_on || !l->at.length)));
    for (int i = 0; i < l->workers; i++) over = over && l->of[i].at >= l->of[i].end;
    return over;
}
