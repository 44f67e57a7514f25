/* Watchdog: detects devices that make no progress, and says where they are. */

#include "watch.h"

#include "../data/workers.h"

#include <unistd.h>

MIRT__LIB mirt_status mirt__usable(const mirt_strategy *s) {
    if (s->lost[0]) return mirt__fail(MIRT_E_DEVICE, "this strategy cannot be used any more: %s", s->lost);
    return s->death ? mirt__fail(MIRT_E_TIMEOUT, "this strategy cannot be used any more: %s", s->death) : MIRT_OK;
}

MIRT__LIB mirt_status mirt__on_devices(mirt_strategy *s, void (*fn)(void *arg, int device), void *arg) {
    return mirt__usable(s) == MIRT_OK ? s->round(s, fn, arg) : mirt_last_status();
}

static void mirt__lead_devices(mirt_strategy *s, void (*fn)(void *arg, int device), void *arg) {
    mirt__pinned pinned;
    mirt__pin_begin(&pinned, s->socket); /* this thread, which may be the runner, is the first device's */
    mirt__team_run(s->leaders, fn, arg);
    mirt__pin_end(&pinned);
}

/* A round without a watchdog. */
static mirt_status mirt__round_free(mirt_strategy *s, void (*fn)(void *arg, int device), void *arg) {
    return mirt__lead_devices(s, fn, arg), MIRT_OK;
}

#if defined(MIRRORTRAIN_NO_THREADS) || defined(MIRRORTRAIN_NO_TRAIN)

MIRT__LIB void mirt__watch_destroy(mirt_strategy *s) { (void)s; }
MIRT__LIB mirt_status mirt__watched(mirt_strategy *s, mirt_status (*fn)(void *arg), void *arg) {
    return (void)s, fn(arg);
}
MIRT__LIB void mirt__on_caller(const mirt_strategy *s, void (*fn)(void *arg), void *arg) { (void)s, fn(arg); }
MIRT__LIB mirt_status mirt__watch_mine(const mirt_strategy *s) { return (void)s, MIRT_OK; }
MIRT__LIB bool mirt__watch_leave(mirt_strategy *s, mirt__section before) { return (void)s, (void)before, true; }
MIRT__LIB void mirt__park_if_given_up(const mirt_strategy *s, int device) { (void)s, (void)device; }
MIRT__TRAINING_LIB bool mirt__devices_barrier(mirt_strategy *s, int device) { return (void)s, (void)device, true; }

MIRT__LIB mirt__section mirt__watch_input(mirt_strategy *s, mirt_dataset *dataset) {
    mirt__section none;
    memset(&none, 0, sizeof none);
    return (void)s, (void)dataset, none;
}

MIRT__LIB mirt_status mirt__watch_create(mirt_strategy *s, double seconds) {
    return (void)seconds, s->round = mirt__round_free, MIRT_OK;
}

#else

/* Atomic fields, in no order with others. */
#define MIRT__PEEK(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define MIRT__POKE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)

/* A state is its code and, above that, a number that no two sections share. */
enum { MIRT__SECTION_NONE, MIRT__SECTION_DEVICES, MIRT__SECTION_INPUT, MIRT__SECTION_DEAD, MIRT__SECTION_CODES };
enum { MIRT__TURN_NOBODY, MIRT__TURN_JOB, MIRT__TURN_DONE, MIRT__TURN_CALL, MIRT__TURN_BACK };

typedef struct mirt__device_watch {
    uint32_t meetings; /* atomic: of this round, at which it has arrived */
    uint32_t done;     /* atomic: with this round */
} __attribute__((aligned(MIRT__ALIGN))) mirt__device_watch;

/* How far somebody was when last looked at, */
typedef struct mirt__last_seen {
    uint64_t at;
    double since; /* and since when he has been there */
} mirt__last_seen;

struct mirt__watch {
    double limit, period;
    uint32_t state;                 /* atomic */
    uint32_t serial;                /* of the last section */
    mirt_dataset *data;             /* atomic: of a wait for samples */
    mirt__device_watch device[MIRT__MAX_DEVICES];
    void (*round)(void *arg, int device);
    void *round_arg;
    /* the one who looks */
    uint32_t seen_state;
    double looked; /* when it last did */
    mirt__last_seen seen[MIRT__MAX_DEVICES];
    char death[512];
    /* the runner thread; the mutex guards the rest */
    mirt__thread runner;
    mirt__caller caller; /* for whom the job is, */
    const void *lent;    /* and its identity; atomic: w itself when it has stopped waiting */
    bool has_runner, quit;
    int made; /* of the mutex and the two conditions */
    int ended; /* atomic: the runner's thread has */
    pthread_mutex_t mutex;
    pthread_cond_t to_runner, to_caller;
    int turn;
    int depth;          /* jobs under way, one in the call of the other, */
    pthread_t owner;    /* of this thread */
    mirt_status (*job)(void *arg);
    void *job_arg;
    mirt_status status; /* of the job */
    void (*call)(void *arg);
    void *call_arg;
    mirt__error error;  /* travels with the turn */
};

/* >>sections */

static bool mirt__is_runner(const mirt_strategy *s) {
    return s->watch && s->watch->has_runner && pthread_equal(s->watch->runner.id, pthread_self());
}

static bool mirt__given_up(const mirt_strategy *s) {
    return s->watch && MIRT__PEEK(s->watch->state) % MIRT__SECTION_CODES == MIRT__SECTION_DEAD;
}

static void mirt__park(void) {
    for (;;) pause();
}

MIRT__LIB void mirt__park_if_given_up(const mirt_strategy *s, int device) {
    if (mirt__given_up(s) && (device || mirt__is_runner(s))) mirt__park();
}

/* The runner thread does not return from an abandoned section. */
static bool mirt__watch_change(mirt_strategy *s, uint32_t from, uint32_t code, mirt_dataset *data) {
    mirt__watch *w = s->watch;
    uint32_t next = ++w->serial * MIRT__SECTION_CODES + code;
    MIRT__POKE(w->data, data);
    if (from % MIRT__SECTION_CODES != MIRT__SECTION_DEAD &&
        __atomic_compare_exchange_n(&w->state, &from, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return true;
    if (mirt__is_runner(s)) mirt__park();
    return false;
}

static mirt__section mirt__watch_enter(mirt_strategy *s, uint32_t code, mirt_dataset *data) {
    mirt__watch *w = s->watch;
    mirt__section before;
    memset(&before, 0, sizeof before);
    if (!w) return before;
    uint32_t now = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
    before.code = now % MIRT__SECTION_CODES;
    before.data = w->data;
    mirt__watch_change(s, now, code, data);
    return before;
}

MIRT__LIB bool mirt__watch_leave(mirt_strategy *s, mirt__section before) {
    mirt__watch *w = s->watch;
    if (!w) return true;
    return mirt__watch_change(s,
                              w->serial * MIRT__SECTION_CODES + (w->data ? MIRT__SECTION_INPUT : MIRT__SECTION_DEVICES),
                              before.code, before.data);
}

MIRT__LIB mirt__section mirt__watch_input(mirt_strategy *s, mirt_dataset *dataset) {
    return mirt__watch_enter(s, MIRT__SECTION_INPUT, dataset);
}

/* >>looking */

/* Whether nothing has changed for longer than the limit. */
static bool mirt__seen_too_long(const mirt__watch *w, mirt__last_seen *seen, uint64_t at, bool fresh, double now) {
    if (fresh || at != seen->at) seen->since = now;
    seen->at = at;
    return now - seen->since >= w->limit;
}

static bool mirt__device_ended(const mirt_strategy *s, int device) {
    if (device == 0 && __atomic_load_n(&s->watch->ended, __ATOMIC_ACQUIRE)) return true;
    return (device && mirt__team_ended(s->leaders) == device) || mirt__team_ended(s->device[device].team);
}

/* The device that holds up the others: one of those that have met the others least often. -1: they get on. */
static int mirt__look_at_devices(mirt_strategy *s, bool fresh, double now) {
    mirt__watch *w = s->watch;
    uint32_t least = UINT32_MAX;
    int worst = -1;
    for (int d = 0; d < s->num_devices; d++) {
        uint32_t meetings = MIRT__PEEK(w->device[d].meetings);
        if (!MIRT__PEEK(w->device[d].done) && meetings < least) least = meetings;
    }
    for (int d = 0; d < s->num_devices; d++) {
        const mirt__device_timeline *timeline = &s->timeline[d];
        uint32_t meetings = MIRT__PEEK(w->device[d].meetings);
        bool waits = MIRT__PEEK(w->device[d].done) || meetings != least;
        uint64_t at = ((uint64_t)MIRT__PEEK(timeline->events) << 32 | meetings) ^
                      (uint64_t)MIRT__PEEK(timeline->node) << 16;
        bool slow = mirt__seen_too_long(w, &w->seen[d], at, fresh || waits, now);
        if (waits || !(slow || mirt__device_ended(s, d))) continue;
        if (worst < 0 || w->seen[d].since < w->seen[worst].since || mirt__device_ended(s, d)) worst = d;
    }
    return worst;
}

/* "conv2d_1 (conv2d)", or "" */
static const char *mirt__node_label(const mirt_strategy *s, int number, char out[96]) {
    const mirt__node *node = s->program && number >= 0 && number < s->program->graph.count
                                 ? s->program->graph.node[number]
                                 : NULL;
    out[0] = 0;
    if (node && node->name) snprintf(out, 96, ", %.48s (%.32s)", node->name, node->op->name);
    else if (node) snprintf(out, 96, ", %.48s", node->op->name);
    return out;
}

static void mirt__describe_device(const mirt_strategy *s, int device, double now, char *out, size_t size) {
    const double waited = now - s->watch->seen[device].since;
    const mirt__device_timeline *timeline = &s->timeline[device];
    const mirt__device *own = &s->device[device];
    char node[96], replica[48], limit[64] = "its thread has ended";
    const int at = MIRT__PEEK(timeline->replica), first = own->first_replica, more = own->num_replicas - 1;
    if (at >= 0 || !more) snprintf(replica, sizeof replica, "replica %d", at >= 0 ? at : first);
    else snprintf(replica, sizeof replica, "replicas %d to %d", first, first + more);
    if (!mirt__device_ended(s, device)) snprintf(limit, sizeof limit, "made no progress for %.3g s", waited);
    snprintf(out, size, "device %s (%s) %s in step %lld: %s%s", own->name, replica, limit,
             (long long)MIRT__PEEK(timeline->step) + 1,
             mirt_phase_name((mirt_phase)MIRT__PEEK(timeline->phase)),
             mirt__node_label(s, MIRT__PEEK(timeline->node), node));
}

static void mirt__describe_input(const mirt_dataset *data, double waited, char *out, size_t size) {
    char name[200];
    const int64_t index = mirt__dataset_at(data, name, sizeof name);
    if (name[0]) snprintf(out, size, "waited %.3g s for sample %lld of %s", waited, (long long)index, name);
    else snprintf(out, size, "waited %.3g s for samples", waited);
}

/* What the device did last, the newest event at the end. */
static void mirt__log_events(const mirt_strategy *s, int device, double now) {
    const mirt__device_timeline *timeline = &s->timeline[device];
    const uint32_t end = __atomic_load_n(&timeline->events, __ATOMIC_ACQUIRE);
    mirt__log(s, MIRT_LOG_ERROR, "the last events of %s:", s->device[device].name);
    for (uint32_t i = end > MIRT__TIMELINE_EVENTS ? end - MIRT__TIMELINE_EVENTS : 0; i != end; i++) {
        const mirt__timeline_event *e = &timeline->event[i % MIRT__TIMELINE_EVENTS];
        char node[96], replica[32] = "";
        double time;
        int of = MIRT__PEEK(e->replica);
        __atomic_load(&e->time, &time, __ATOMIC_RELAXED);
        if (of >= 0) snprintf(replica, sizeof replica, ", replica %d", of);
        mirt__log(s, MIRT_LOG_ERROR, "  %9.4f s  step %lld: %s%s%s", time - now,
                  (long long)MIRT__PEEK(e->step) + 1,
                  mirt_phase_name((mirt_phase)MIRT__PEEK(e->phase)), replica,
                  mirt__node_label(s, MIRT__PEEK(e->node), node));
    }
}

static void mirt__log_death(const mirt_strategy *s, int device, double now) {
    mirt__log(s, MIRT_LOG_ERROR, "%s", s->death);
    for (int d = 0; d < s->num_devices; d++) {
        char text[256];
        if (d == device) continue;
        mirt__describe_device(s, d, now, text, sizeof text);
        mirt__log(s, MIRT_LOG_ERROR, "at the same time: %s%s", text,
                  MIRT__PEEK(s->watch->device[d].done) ? " (done)" : "");
    }
    if (device >= 0) mirt__log_events(s, device, now);
}

/* Whether this look comes so long after the last that the process must have been suspended (SIGSTOP, a debugger, a
   snapshot of a virtual machine): then no device could make progress either, and every count restarts. */
static bool mirt__was_suspended(mirt__watch *w, double now) {
    const double longest = 1, part = 0.75 * w->limit, least = 4 * w->period;
    const double late = part < least ? least : part > longest ? longest : part;
    const bool suspended = now - w->looked > late;
    w->looked = now;
    return suspended;
}

/* Asked now and then by the thread that waits; true: the strategy is dead. */
static bool mirt__watch_look(void *arg) {
    mirt_strategy *s = (mirt_strategy *)arg;
    mirt__watch *w = s->watch;
    const double now = mirt__now();
    uint32_t state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE), code = state % MIRT__SECTION_CODES;
    /* Waits for other processes have limits of their own. */
    const bool trades = MIRT__GROUP(s) && __atomic_load_n(&MIRT__GROUP(s)->trades, __ATOMIC_RELAXED) > 0;
    const bool fresh = mirt__was_suspended(w, now) || state != w->seen_state || trades;
    int device = -1;
    bool late = false;
    w->seen_state = state;
    if (code == MIRT__SECTION_DEAD) return true;
    if (code == MIRT__SECTION_DEVICES) late = (device = mirt__look_at_devices(s, fresh, now)) >= 0;
    if (code == MIRT__SECTION_INPUT) {
        late = mirt__seen_too_long(w, &w->seen[0], mirt__dataset_made(MIRT__PEEK(w->data)),
                                   fresh, now);
        late = late || __atomic_load_n(&w->ended, __ATOMIC_ACQUIRE);
    }
    if (!late || !__atomic_compare_exchange_n(&w->state, &state, state - code + MIRT__SECTION_DEAD, false,
                                              __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return false;
    if (device >= 0) mirt__describe_device(s, device, now, w->death, sizeof w->death);
    else mirt__describe_input(w->data, now - w->seen[0].since, w->death, sizeof w->death);
    __atomic_store_n(&s->death, &w->death[0], __ATOMIC_RELEASE);
    s->timing = NULL;
    mirt__log_death(s, device, now);
    mirt__fail(MIRT_E_TIMEOUT, "%s; this strategy cannot be used any more", s->death);
    if (device < 0) mirt__because(MIRT_CAUSE_INPUT, MIRT_E_TIMEOUT);
    return true;
}

/* >>the runner thread */

/* Runs what the caller or the runner thread itself hands over; returns when a call that the runner made has ended, or
   at the end. */
static void mirt__runner_serve(mirt__watch *w) {
    pthread_mutex_lock(&w->mutex);
    while (!w->quit && w->turn != MIRT__TURN_BACK) {
        if (w->turn != MIRT__TURN_JOB) {
            pthread_cond_wait(&w->to_runner, &w->mutex);
            continue;
        }
        mirt_status (*job)(void *) = w->job;
        void *arg = w->job_arg;
        w->turn = MIRT__TURN_NOBODY;
        const mirt__caller caller = w->caller;
        pthread_mutex_unlock(&w->mutex);
        mirt__error_set(&w->error);
        mirt__caller_set(&caller, &w->lent);
        mirt_status status = job(arg);
        mirt__error_get(&w->error);
        pthread_mutex_lock(&w->mutex);
        w->status = status;
        w->turn = MIRT__TURN_DONE;
        pthread_cond_signal(&w->to_caller);
    }
    w->turn = MIRT__TURN_NOBODY;
    pthread_mutex_unlock(&w->mutex);
}

static void mirt__runner_note_end(void *arg) {
    pthread_detach(pthread_self());
    __atomic_store_n(&((mirt__watch *)arg)->ended, 1, __ATOMIC_RELEASE);
}

static void *mirt__runner_main(void *arg) {
    pthread_cleanup_push(mirt__runner_note_end, arg);
    mirt__runner_serve((mirt__watch *)arg);
    pthread_cleanup_pop(0);
    return NULL;
}

MIRT__LIB void mirt__on_caller(const mirt_strategy *s, void (*fn)(void *arg), void *arg) {
    mirt__watch *w = s->watch;
    if (!mirt__is_runner(s)) {
        fn(arg);
        return;
    }
    mirt__error_get(&w->error);
    pthread_mutex_lock(&w->mutex);
    w->call = fn;
    w->call_arg = arg;
    w->turn = MIRT__TURN_CALL;
    pthread_cond_signal(&w->to_caller);
    pthread_mutex_unlock(&w->mutex);
    mirt__runner_serve(w);
    mirt__error_set(&w->error);
}

/* The runner's turn is over; false: the strategy is dead. With the mutex locked. */
static bool mirt__await_runner(mirt_strategy *s) {
    mirt__watch *w = s->watch;
    while (w->turn != MIRT__TURN_DONE && w->turn != MIRT__TURN_CALL) {
        mirt__cond_wait(&w->to_caller, &w->mutex, w->period);
        if (w->turn == MIRT__TURN_DONE || w->turn == MIRT__TURN_CALL) break;
        pthread_mutex_unlock(&w->mutex); /* the log is code of the user */
        bool dead = mirt__watch_look(s);
        pthread_mutex_lock(&w->mutex);
        if (dead) return false;
    }
    return true;
}

/* Threads that make samples for a job would wait for themselves. */
static mirt_status mirt__runner_take(mirt__watch *w, int jobs) {
    pthread_mutex_lock(&w->mutex);
    const bool taken = w->depth && !pthread_equal(w->owner, pthread_self());
    if (!taken) {
        w->owner = pthread_self();
        w->depth += jobs;
    }
    pthread_mutex_unlock(&w->mutex);
    if (!taken) return MIRT_OK;
    return mirt__fail(MIRT_E_STATE,
                      "another thread is running a model of this strategy: what makes samples for it cannot run one "
                      "too");
}

static mirt_status mirt__hand_over(mirt_strategy *s, mirt_status (*fn)(void *arg), void *arg) {
    mirt__watch *w = s->watch;
    mirt__error_get(&w->error);
    pthread_mutex_lock(&w->mutex);
    w->job = fn;
    w->job_arg = arg;
    w->caller = mirt__caller_get();
    __atomic_store_n(&w->lent, mirt__thread_identity(), __ATOMIC_RELEASE);
    for (w->turn = MIRT__TURN_JOB; w->turn != MIRT__TURN_DONE;) {
        pthread_cond_signal(&w->to_runner);
        bool alive = mirt__await_runner(s);
        if (!alive || w->turn == MIRT__TURN_DONE) {
            mirt_status status = alive ? w->status : MIRT_E_TIMEOUT;
            w->turn = MIRT__TURN_NOBODY;
            if (!alive) __atomic_store_n(&w->lent, (const void *)w, __ATOMIC_RELEASE);
            pthread_mutex_unlock(&w->mutex);
            if (alive) mirt__error_set(&w->error);
            return status;
        }
        void (*call)(void *) = w->call;
        void *call_arg = w->call_arg;
        w->turn = MIRT__TURN_NOBODY;
        pthread_mutex_unlock(&w->mutex);
        mirt__error_set(&w->error);
        call(call_arg);
        if (s->death) { /* in a call of the call's */
            __atomic_store_n(&w->lent, (const void *)w, __ATOMIC_RELEASE);
            return mirt__usable(s);
        }
        mirt__error_get(&w->error);
        pthread_mutex_lock(&w->mutex);
        w->turn = MIRT__TURN_BACK;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__watched(mirt_strategy *s, mirt_status (*fn)(void *arg), void *arg) {
    mirt__watch *w = s->watch;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    if (!w || mirt__is_runner(s)) return fn(arg);
    if (!w->has_runner) {
        int code = mirt__thread_start(&w->runner, mirt__runner_main, w);
        if (code)
            return mirt__fail(MIRT_E_THREAD,
                              "the thread that works while the caller looks at the clock could not be started: %s",
                              strerror(code));
        w->has_runner = true;
    }
    if (mirt__runner_take(w, 1) != MIRT_OK) return MIRT_E_STATE;
    const mirt_status status = mirt__hand_over(s, fn, arg);
    mirt__runner_take(w, -1);
    return status;
}

MIRT__LIB mirt_status mirt__watch_mine(const mirt_strategy *s) {
    return s->watch && !mirt__is_runner(s) ? mirt__runner_take(s->watch, 0) : MIRT_OK;
}

/* >>devices */

static void mirt__round_device(void *arg, int device) {
    mirt__watch *w = ((mirt_strategy *)arg)->watch;
    w->round(w->round_arg, device);
    MIRT__POKE(w->device[device].done, 1);
}

static mirt_status mirt__round_run(void *arg) {
    mirt_strategy *s = (mirt_strategy *)arg;
    const bool looks = !mirt__is_runner(s);
    for (int d = 0; d < s->num_devices; d++) {
        MIRT__POKE(s->watch->device[d].meetings, 0);
        MIRT__POKE(s->watch->device[d].done, 0);
    }
    mirt__team_look(s->leaders, looks ? mirt__watch_look : NULL, s, s->watch->period);
    mirt__team_look(s->device[0].team, looks ? mirt__watch_look : NULL, s, s->watch->period);
    mirt__section before = mirt__watch_enter(s, MIRT__SECTION_DEVICES, NULL);
    mirt__lead_devices(s, mirt__round_device, s);
    return mirt__watch_leave(s, before) ? MIRT_OK : MIRT_E_TIMEOUT;
}

/* By the caller, who is the first device; where a limit was asked for, by the runner thread. */
static mirt_status mirt__round_watched(mirt_strategy *s, void (*fn)(void *arg, int device), void *arg) {
    s->watch->round = fn;
    s->watch->round_arg = arg;
    return s->limit_asked ? mirt__watched(s, mirt__round_run, s) : mirt__round_run(s);
}

MIRT__TRAINING_LIB bool mirt__devices_barrier(mirt_strategy *s, int device) {
    if (s->watch)
        MIRT__POKE(s->watch->device[device].meetings, s->watch->device[device].meetings + 1);
    bool met = mirt__team_barrier(s->leaders);
    if (met) mirt__park_if_given_up(s, device);
    return met && !mirt__given_up(s);
}

/* >>making it */

MIRT__LIB mirt_status mirt__watch_create(mirt_strategy *s, double seconds) {
    const double usual = 60, longest = 0.25, shortest = 1e-3;
    if (seconds != seconds || seconds > 1e9)
        return mirt__fail(MIRT_E_INVALID, "a time limit of %g seconds: it must be below 1e9; negative is none",
                          seconds);
    s->round = seconds < 0 ? mirt__round_free : mirt__round_watched;
    if (seconds < 0) return MIRT_OK;
    mirt__watch *w = (mirt__watch *)mirt__aligned_alloc(sizeof *w);
    if (!(s->watch = w)) return mirt_last_status();
    memset(w, 0, sizeof *w);
    s->limit_asked = seconds > 0;
    w->limit = seconds > 0 ? seconds : usual;
    w->period = w->limit / 16 < shortest ? shortest : w->limit / 16 > longest ? longest : w->limit / 16;
    int code = pthread_mutex_init(&w->mutex, NULL);
    if (!code && ++w->made) code = mirt__cond_create(&w->to_runner);
    if (!code && ++w->made) code = mirt__cond_create(&w->to_caller);
    if (!code) w->made++;
    return code ? mirt__fail(MIRT_E_THREAD, "a lock could not be made: %s", strerror(code)) : MIRT_OK;
}

MIRT__LIB void mirt__watch_destroy(mirt_strategy *s) {
    mirt__watch *w = s->watch;
    if (!w) return;
    if (w->has_runner) {
        pthread_mutex_lock(&w->mutex);
        w->quit = true;
        pthread_cond_signal(&w->to_runner);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->runner.id, NULL);
    }
    if (w->made > 2) pthread_cond_destroy(&w->to_caller);
    if (w->made > 1) pthread_cond_destroy(&w->to_runner);
    if (w->made > 0) pthread_mutex_destroy(&w->mutex);
    mirt__aligned_free(w);
    s->watch = NULL;
}

#undef MIRT__PEEK
#undef MIRT__POKE
#endif
