/* Which thread uses a strategy, and in which process. */

#include "strategy.h"

#include <unistd.h>

static int mirt__own_threads(const mirt_strategy *s) { return s->num_devices * s->threads; }

/* MIRT_E_STATE: another thread uses it, or this is a child of the process that created it. */
static mirt_status mirt__may_use(const mirt_strategy *s, const char *call) {
    if (mirt__own_process(s->process, call, "strategy") != MIRT_OK) return MIRT_E_STATE;
    const void *owner = __atomic_load_n(&s->owner, __ATOMIC_ACQUIRE);
    if (!owner || owner == mirt__thread_identity()) return MIRT_OK;
    const char *other = __atomic_load_n(&s->owner_call, __ATOMIC_ACQUIRE);
    return mirt__fail(
        MIRT_E_STATE,
        "%s: another thread is in %s on the same strategy; a strategy and its models serve one thread at a time", call,
        other ? other : "a call");
}

MIRT__LIB bool mirt__use_begin(mirt_strategy **strategy, const char *call) {
    mirt_strategy *s = *strategy;
    const void *nobody = NULL, *self = mirt__thread_identity();
    if (!s) return true;
    *strategy = NULL; /* nothing to end */
    if (mirt__own_process(s->process, call, "strategy") != MIRT_OK) return false;
    if (s->death || s->lost[0]) return true; /* the call will say so; claims may never end */
    if (__atomic_load_n(&s->owner, __ATOMIC_ACQUIRE) != self) {
        if (!__atomic_compare_exchange_n(&s->owner, &nobody, self, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            if (mirt__may_use(s, call) != MIRT_OK) return false;
            return *strategy = s, mirt__use_begin(strategy, call); /* it has just become free */
        }
        __atomic_store_n(&s->owner_call, call, __ATOMIC_RELEASE);
    }
    if (!s->owner_depth++) mirt__team_busy(mirt__own_threads(s));
    *strategy = s;
    return true;
}

MIRT__LIB void mirt__use_end(mirt_strategy **strategy) {
    mirt_strategy *s = *strategy;
    if (!s || --s->owner_depth) return;
    mirt__team_busy(-mirt__own_threads(s));
    __atomic_store_n(&s->owner_call, (const char *)NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&s->owner, (const void *)NULL, __ATOMIC_RELEASE);
}

MIRT__LIB bool mirt__may_destroy(const mirt_strategy *s, const char *call) {
    if (s->death || mirt__own_process(s->process, call, "strategy") != MIRT_OK) return false;
    if (mirt__may_use(s, call) == MIRT_OK) return true;
    mirt__log(s, MIRT_LOG_ERROR, "%s; nothing was destroyed", mirt_last_error());
    return false;
}
