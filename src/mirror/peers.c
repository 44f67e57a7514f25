#include "strategy.h"
/* Messages between processes, and what happens when one is lost. */

/* What a process answers when it is asked where it is. */
typedef struct mirt__whereabouts {
    int64_t step;
    int32_t phase, awaits; /* awaits: one more than a rank; 0: nobody, as of a process without a strategy */
    char ended[200];          /* why its strategy cannot be used any more, or "" */
    unsigned char gone[32];   /* as mirt__peers has it */
} mirt__whereabouts;

MIRT__STATIC_ASSERT(sizeof(mirt__whereabouts) <= MIRT__ENGINE_ANSWER, "an answer has no room for it");

/* >>where a process is */

static int mirt__peers_awaited(const mirt__peers *p) {
    int peer = -1;
    for (int i = 0; i < MIRT__ENGINE_CHANNELS && peer < 0; i++)
        peer = __atomic_load_n(&p->waiting[i].peer, __ATOMIC_RELAXED);
    return peer;
}

/* Called by a thread of the engine. */
static void mirt__peers_answer(void *user, char *out) {
    const mirt_strategy *s = (const mirt_strategy *)user;
    mirt__whereabouts at;
    memset(&at, 0, sizeof at);
    const mirt__device_timeline *timeline = __atomic_load_n(&s->timeline, __ATOMIC_ACQUIRE);
    if (timeline) {
        at.phase = __atomic_load_n(&timeline->phase, __ATOMIC_RELAXED);
        at.step = __atomic_load_n(&timeline->step, __ATOMIC_RELAXED);
    }
    at.awaits = mirt__peers_awaited(s->peers) + 1;
    const char *death = __atomic_load_n(&s->death, __ATOMIC_ACQUIRE);
    if (!death && __atomic_load_n(&s->peers->broken, __ATOMIC_ACQUIRE))
        death = s->peers->cause[0] ? s->peers->cause : s->lost;
    if (!death && __atomic_load_n(&s->peers->device_failed, __ATOMIC_ACQUIRE)) death = s->peers->device_failure;
    if (death) snprintf(at.ended, sizeof at.ended, "%.199s", death);
    for (int i = 0; i < MIRT__COUNT(at.gone); i++) at.gone[i] = __atomic_load_n(&s->peers->gone[i], __ATOMIC_RELAXED);
    memcpy(out, &at, sizeof at);
}

/* Seconds in which a process answers: half of the limit, from 1, as it may be busy, to 2. */
static double mirt__peers_soon(const mirt__peers *p) {
    if (p->limit <= 0 || p->limit > 4) return 2;
    return p->limit > 2 ? p->limit / 2 : 1;
}

/* Whether a process answers. */
static bool mirt__peers_ask(const mirt__peers *p, int peer, mirt__whereabouts *out) {
    char answer[MIRT__ENGINE_ANSWER];
    const bool good = p->engine->ask(peer, mirt__peers_soon(p), answer);
    if (good) memcpy(out, answer, sizeof *out);
    return good;
}

MIRT__LIB bool mirt__peers_alive(mirt_strategy *s, int peer, char *why, size_t size) {
    mirt__whereabouts at;
    const bool answers = mirt__peers_ask(s->peers, peer, &at);
    snprintf(why, size, "%s", answers ? at.ended : "it does not answer");
    return answers && !at.ended[0];
}

MIRT__LIB void mirt__peers_give_up(mirt_strategy *s, int peer) {
    s->peers->lost = true;
    if (peer < 8 * MIRT__COUNT(s->peers->gone))
        __atomic_fetch_or(&s->peers->gone[peer / 8], (unsigned char)(1 << peer % 8), __ATOMIC_RELAXED);
}

MIRT__LIB bool mirt__peers_given_up(const mirt_strategy *s, int server, int peer, bool *answers) {
    mirt__whereabouts at;
    memset(&at, 0, sizeof at);
    *answers = mirt__peers_ask(s->peers, server, &at) && !at.ended[0];
    return *answers && peer < 8 * MIRT__COUNT(at.gone) && at.gone[peer / 8] >> peer % 8 & 1;
}

/* Whether a process takes part; otherwise `failed` says why not. */
static bool mirt__peers_takes_part(const mirt__peers *p, int peer, mirt__whereabouts *at, char *failed, size_t size) {
    if (!mirt__peers_ask(p, peer, at))
        snprintf(failed, size, "process %d (%s) does not answer", peer, p->engine->host(peer));
    else if (at->ended[0])
        snprintf(failed, size, "process %d (%s) has ended: %.180s", peer, p->engine->host(peer), at->ended);
    else return true;
    return false;
}

MIRT__LIB void mirt__peers_blame(mirt_strategy *s) {
    mirt__peers *p = s->peers;
    mirt__whereabouts at;
    char why[300];
    int gone = -1;
    for (int i = 0; i < p->size; i++) {
        if (i == p->rank) continue;
        memset(&at, 0, sizeof at);
        if (mirt__peers_takes_part(p, i, &at, why, sizeof why)) continue;
        gone = i;
        if (!at.ended[0]) break; /* it does not answer: those that have ended may have done so because of it */
    }
    if (gone >= 0) mirt__fail_at("%s", why);
    snprintf(p->device_failure, sizeof p->device_failure, "%.199s", mirt_last_error());
    __atomic_store_n(&p->device_failed, true, __ATOMIC_RELEASE);
}

/* Of processes that wait for each other, as each names only one of those it waits for: whether another one is at work.
   All of them are asked. */
static bool mirt__peers_any_works(mirt__patience *patience, int last) {
    const mirt__peers *p = patience->strategy->peers;
    mirt__whereabouts at, there;
    bool works = false;
    memset(&there, 0, sizeof there);
    for (int i = 0; i < p->size; i++) {
        if (i == p->rank) continue;
        if (!mirt__peers_takes_part(p, i, &at, patience->failed, sizeof patience->failed)) return false;
        works = works || !at.awaits;
        if (i == last) there = at;
    }
    if (!works)
        snprintf(patience->failed, sizeof patience->failed,
                 "processes wait for each other; process %d (%s) is at %s of step %lld", last, p->engine->host(last),
                 mirt_phase_name((mirt_phase)there.phase), (long long)there.step + 1);
    return works;
}

/* Follows who waits for whom from `peer` on, -1: it is not known. True: whoever is at the end is at work, and worth
   waiting for. */
static bool mirt__peers_patient(void *user, int peer) {
    mirt__patience *patience = (mirt__patience *)user;
    const mirt__peers *p = patience->strategy->peers;
    const bool known = peer >= 0;
    mirt__whereabouts at;
    int last = (p->rank + 1) % p->size;
    for (int asked = 0; peer >= 0 && peer != p->rank && asked < p->size; asked++) {
        last = peer;
        if (!mirt__peers_takes_part(p, peer, &at, patience->failed, sizeof patience->failed)) return false;
        peer = at.awaits - 1;
    }
    return (known && peer < 0) || mirt__peers_any_works(patience, last);
}

/* Others are asked early enough to know by the limit, if it is 2 s or more, that one does not answer. */
MIRT__LIB void mirt__peers_open(mirt_strategy *s, double limit) {
    s->peers->limit = limit;
    const double soon = mirt__peers_soon(s->peers), early = limit > 2 * soon ? limit - soon : limit / 2;
    for (int i = 0; i < MIRT__ENGINE_CHANNELS; i++) {
        mirt__waiting *w = &s->peers->waiting[i];
        w->limit = early;
        w->patient = mirt__peers_patient;
        s->peers->patience[i].strategy = s;
        w->user = &s->peers->patience[i];
        w->peer = -1;
        w->hurry = 1;
    }
    s->peers->engine->answers(mirt__peers_answer, s);
}

MIRT__LIB void mirt__peers_hurry(mirt_strategy *s, bool hurry) {
    __atomic_store_n(&s->peers->waiting[0].hurry, (int)hurry, __ATOMIC_RELAXED);
}

MIRT__LIB void mirt__peers_leave(mirt_strategy *s) {
    mirt__peers *p = s->peers;
    if (!p) return;
    mirt__courier_destroy(p->courier);
    mirt__averaging_free(p->averaging);
    p->engine->answers(NULL, NULL);
    p->engine->stop(p->broken, p->lost);
    for (int i = 0; i < MIRT__BEFORES; i++) mirt__free(p->before[i]);
    mirt__free(p->flags);
    mirt__free(p->told);
    mirt__free(p->first_device);
    mirt__free(p);
    s->peers = NULL;
}

/* >>messages */

/* "process 0 (host a) in step 12 at all-reduce": this one, for messages. */
static void mirt__peers_describe(const mirt_strategy *s, char *out, size_t size) {
    const mirt__peers *p = s->peers;
    snprintf(out, size, "process %d (%s)", p->rank, p->engine->host(p->rank));
    if (s->timeline)
        mirt__line_add(out, size, " in step %lld at %s",
                       (long long)__atomic_load_n(&s->timeline[0].step, __ATOMIC_RELAXED) + 1,
                       mirt_phase_name((mirt_phase)__atomic_load_n(&s->timeline[0].phase, __ATOMIC_RELAXED)));
}

MIRT__LIB void mirt__peers_end(mirt_strategy *s) {
    if (!s->lost[0]) snprintf(s->lost, sizeof s->lost, "%s", mirt_last_error());
    __atomic_store_n(&s->peers->broken, true, __ATOMIC_RELEASE);
    if (s->peers->engine->leave_word) s->peers->engine->leave_word();
}

/* Where a process has ended because of another one: what it knew of that one, for the message and for those that find
   this process gone. */
static const char *mirt__peers_cause(mirt__peers *p, const mirt__engine_failure *failure) {
    mirt__whereabouts at;
    if (failure->gone && mirt__peers_ask(p, failure->peer, &at)) snprintf(p->cause, sizeof p->cause, "%s", at.ended);
    return p->cause;
}

MIRT__LIB mirt_status mirt__peers_fail(mirt_strategy *s, int channel, const mirt__engine_failure *failure) {
    mirt__peers *p = s->peers;
    const char *failed = p->patience[channel].failed;
    char own[240], peer[160] = "another process";
    mirt_status status;
    mirt__peers_describe(s, own, sizeof own);
    if (failure->peer >= 0)
        snprintf(peer, sizeof peer, "process %d (%s)", failure->peer, p->engine->host(failure->peer));
    if (failure->silent)
        status = mirt__fail(MIRT_E_WORKER, "%s: %s has waited %.3g s for %s",
                            failed[0] ? failed : "no message came", own, p->limit, peer);
    else if (mirt__peers_cause(p, failure)[0])
        status = mirt__fail(MIRT_E_WORKER, "%s has lost %s, which has ended: %s", own, peer, p->cause);
    else status = mirt__fail(MIRT_E_WORKER, "%s has lost %s: %s", own, peer, failure->text);
    mirt__peers_end(s);
    return status;
}

MIRT__LIB mirt_status mirt__peers_gather(mirt_strategy *s, const mirt__gathered *array, int arrays) {
    mirt__peers *p = s->peers;
    const mirt__gathering gathering = {p->engine, 1, p->rank, p->size, &p->waiting[1]};
    mirt__engine_failure failure;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    __atomic_fetch_add(&s->peers->trades, 1, __ATOMIC_RELAXED);
    const bool good = mirt__gather_all(&gathering, array, arrays, &failure);
    __atomic_fetch_sub(&s->peers->trades, 1, __ATOMIC_RELAXED);
    return good ? MIRT_OK : mirt__peers_fail(s, 1, &failure);
}

MIRT__LIB const void *mirt__peers_tell(mirt_strategy *s, const void *own, size_t bytes) {
    mirt__peers *p = s->peers;
    const size_t all = (size_t)p->size * bytes;
    if (p->told_bytes < all && !mirt__grow((void **)&p->told, 0, (size_t)p->size, bytes))
        return mirt__peers_end(s), (const void *)NULL;
    p->told_bytes = mirt__max(p->told_bytes, all);
    const mirt__gathered array = {p->told, p->before[MIRT__BEFORE_ONE], bytes};
    memcpy(p->told + (size_t)p->rank * bytes, own, bytes);
    return mirt__peers_gather(s, &array, 1) == MIRT_OK ? p->told : NULL;
}

/* How a process fares. */
typedef struct mirt__faring {
    int32_t status;
    char reason[320];
} mirt__faring;

MIRT__LIB mirt_status mirt__peers_fare(mirt_strategy *s, mirt_status status, const char *what) {
    mirt__faring own;
    mirt__error error;
    memset(&own, 0, sizeof own);
    own.status = (int32_t)status;
    if (status != MIRT_OK) {
        mirt__error_get(&error);
        snprintf(own.reason, sizeof own.reason, "%.300s", error.text);
    }
    const mirt__faring *all = (const mirt__faring *)mirt__peers_tell(s, &own, sizeof own);
    if (status != MIRT_OK) return mirt__error_set(&error), status;
    for (int p = 0; all && p < s->peers->size; p++) {
        if (all[p].status != MIRT_OK)
            return mirt__fail(MIRT_E_WORKER, "process %d (%s) %s: %s", p, s->peers->engine->host(p), what,
                              all[p].reason);
    }
    return all ? MIRT_OK : mirt_last_status();
}

MIRT__LIB mirt_status mirt__peers_trade(mirt_strategy *s, const mirt__message *send, int sends,
                                        const mirt__message *receive, int receives) {
    const int channel = MIRT__ENGINE_CHANNELS - 1;
    mirt__engine_failure failure;
    mirt__round round;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    memset(&round, 0, sizeof round);
    round.send = send;
    round.sends = sends;
    round.receive = receive;
    round.receives = receives;
    round.waiting = &s->peers->waiting[channel];
    __atomic_fetch_add(&s->peers->trades, 1, __ATOMIC_RELAXED);
    const bool good = s->peers->engine->trade(channel, &round, &failure);
    __atomic_fetch_sub(&s->peers->trades, 1, __ATOMIC_RELAXED);
    return good ? MIRT_OK : mirt__peers_fail(s, channel, &failure);
}

typedef struct mirt__peer_adding {
    const mirt__kernels *kernels;
    const mirt__where *where;
} mirt__peer_adding;

static void mirt__peer_add(void *user, mirt__real *into, const mirt__real *from, int64_t count) {
    mirt__peer_adding *adding = (mirt__peer_adding *)user;
    adding->kernels->accumulate(into, from, count, adding->where);
}

MIRT__LIB bool mirt__peers_add_up(mirt_strategy *s, const mirt__group_plan *plan, mirt__real *const *slot,
                                  mirt__real *out, mirt__real *inbox, const mirt__where *where,
                                  mirt__engine_failure *failure) {
    mirt__peer_adding adding = {s->kernels, where};
    mirt__group_sum sum;
    memset(&sum, 0, sizeof sum);
    sum.engine = s->peers->engine;
    sum.waiting = &s->peers->waiting[0];
    sum.slot = slot;
    sum.sum = out;
    sum.inbox = inbox;
    sum.add = mirt__peer_add;
    sum.user = &adding;
    __atomic_fetch_add(&s->peers->trades, 1, __ATOMIC_RELAXED);
    const bool good = mirt__group_sum_run(plan, &sum, failure);
    __atomic_fetch_sub(&s->peers->trades, 1, __ATOMIC_RELAXED);
    return good;
}

MIRT__LIB mirt_status mirt__peers_hear_first(mirt_strategy *s, void *data, size_t bytes) {
    int64_t *before = s->peers->before[MIRT__BEFORE_ROWS];
    mirt__gathered first = {data, before, bytes};
    for (int p = 0; p <= s->peers->size; p++) before[p] = p > 0;
    return mirt__peers_gather(s, &first, 1);
}
