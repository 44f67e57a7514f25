#include "tcp.h"
/* Rounds of messages, and single ones. A message follows the number of its bytes. */

static bool mirt__tcp_fails(mirt__engine_failure *failure, int peer, const char *text) {
    failure->peer = peer;
    snprintf(failure->text, sizeof failure->text, "%s", text);
    return false;
}

/* When a process ends, others end at once because of it: the first that was lost in the second before this one. */
static int mirt__tcp_first_lost(int rank) {
    int first = rank;
    pthread_mutex_lock(&mirt__tcp_mutex);
    const double own = mirt__tcp.peer[rank].lost_at, until = own > 0 ? own : mirt__tcp_now();
    double least = until;
    for (int p = 0; p < mirt__tcp.size; p++) {
        const double at = mirt__tcp.peer[p].lost_at;
        if (at <= until - 1 || at >= least) continue;
        least = at;
        first = p;
    }
    pthread_mutex_unlock(&mirt__tcp_mutex);
    return first;
}

static bool mirt__tcp_gone(mirt__engine_failure *failure, int peer) {
    const char *text = errno ? strerror(errno) : "it has closed its connection";
    mirt__tcp_nap(0.05); /* until the thread that listens has seen it, too */
    failure->gone = true;
    return mirt__tcp_fails(failure, mirt__tcp_first_lost(peer), text);
}

/* From message `at` on. */
static void mirt__tcp_next(mirt__tcp_flow *flow, int peer, int at) {
    while (at < flow->count && flow->message[at].peer != peer) at++;
    flow->at = at;
    flow->done = 0;
    flow->header = at < flow->count ? (uint64_t)flow->message[at].bytes : 0;
}

/* Moves what can be moved of a message without waiting; *moved: bytes. False: *failure. */
static bool mirt__tcp_push(int fd, int peer, mirt__tcp_flow *flow, bool sends, size_t *moved,
                           mirt__engine_failure *failure) {
    const mirt__message *m = &flow->message[flow->at];
    const size_t head = sizeof flow->header, ahead = flow->done < head ? head - flow->done : 0,
                 data = flow->done < head ? 0 : flow->done - head;
    struct iovec part[2] = {{(char *)&flow->header + (head - ahead), ahead}, {(char *)m->data + data, m->bytes - data}};
    const ssize_t n = mirt__tcp_some(fd, ahead ? part : part + 1, ahead ? 2 : 1, sends);
    if (n < 0) return mirt__tcp_gone(failure, peer);
    *moved = (size_t)n;
    flow->done += (size_t)n;
    if (sends || flow->done < head || flow->header == (uint64_t)m->bytes) return true;
    failure->peer = peer;
    snprintf(failure->text, sizeof failure->text,
             "%llu bytes came where %llu were expected: the processes do different things",
             (unsigned long long)flow->header, (unsigned long long)m->bytes);
    return false;
}

static bool mirt__tcp_complete(const mirt__tcp_flow *flow) {
    return flow->done == sizeof flow->header + flow->message[flow->at].bytes;
}

/* Moves all that can be moved with a process. */
static bool mirt__tcp_serve(int channel, int peer, const mirt__round *round, bool *moves,
                            mirt__engine_failure *failure) {
    mirt__tcp_desk *desk = &mirt__tcp.desk[channel];
    const int fd = mirt__tcp.peer[peer].link[channel];
    for (int sends = 0; sends < 2; sends++) {
        mirt__tcp_flow *flow = sends ? &desk->out[peer] : &desk->in[peer];
        for (size_t moved = 1; flow->at < flow->count && moved;) {
            if (!mirt__tcp_push(fd, peer, flow, sends, &moved, failure)) return false;
            *moves = *moves || moved;
            if (!mirt__tcp_complete(flow)) continue;
            const int done = flow->at;
            mirt__tcp_next(flow, peer, done + 1);
            if (!sends && round->got) round->got(round->user, done);
        }
    }
    return true;
}

/* Those with messages in a round; false: one has no connection. */
static bool mirt__tcp_begin_round(int channel, const mirt__round *round, int *active,
                                  mirt__engine_failure *failure) {
    mirt__tcp_desk *desk = &mirt__tcp.desk[channel];
    *active = 0;
    for (int p = 0; p < mirt__tcp.size; p++) {
        mirt__tcp_flow *in = &desk->in[p], *out = &desk->out[p];
        in->message = round->receive;
        in->count = round->receives;
        out->message = round->send;
        out->count = round->sends;
        mirt__tcp_next(in, p, 0);
        mirt__tcp_next(out, p, 0);
        if (in->at == in->count && out->at == out->count) continue;
        if (mirt__tcp.peer[p].link[channel] < 0) return mirt__tcp_fails(failure, p, "there is no connection");
        desk->active[(*active)++] = p;
    }
    return true;
}

/* Waits for a connection to be ready, or only lets others run. */
static void mirt__tcp_pause(int channel, int active, bool spins) {
    mirt__tcp_desk *desk = &mirt__tcp.desk[channel];
    if (spins) {
        sched_yield();
        return;
    }
    for (int i = 0; i < active; i++) {
        const int p = desk->active[i];
        const bool sends = desk->out[p].at < desk->out[p].count, receives = desk->in[p].at < desk->in[p].count;
        desk->polled[i].fd = mirt__tcp.peer[p].link[channel];
        desk->polled[i].events = (short)((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
    }
    poll(desk->polled, active > 0 ? (nfds_t)active : 0, 20);
}

/* Whether a wait since `since` has been long enough; notes for whom it is. */
static bool mirt__tcp_waited(int channel, int active, mirt__waiting *w, double *since) {
    const mirt__tcp_desk *desk = &mirt__tcp.desk[channel];
    int peer = desk->active[0];
    for (int i = active - 1; i >= 0; i--) {
        const int p = desk->active[i];
        if (desk->in[p].at < desk->in[p].count) peer = p;
    }
    __atomic_store_n(&w->peer, peer, __ATOMIC_RELAXED);
    if (w->limit <= 0 || mirt__tcp_now() - *since <= w->limit) return false;
    if (!w->patient || !w->patient(w->user, peer)) return true;
    *since = mirt__tcp_now();
    return false;
}

static bool mirt__tcp_round(int channel, const mirt__round *round, mirt__engine_failure *failure) {
    mirt__tcp_desk *desk = &mirt__tcp.desk[channel];
    mirt__waiting *w = round->waiting;
    double since = mirt__tcp_now();
    int active;
    if (!mirt__tcp_begin_round(channel, round, &active, failure)) return false;
    for (int idle = 0; active > 0;) {
        bool moves = false;
        int left = 0;
        for (int i = 0; i < active; i++) {
            const int p = desk->active[i];
            if (!mirt__tcp_serve(channel, p, round, &moves, failure)) return false;
            if (desk->in[p].at < desk->in[p].count || desk->out[p].at < desk->out[p].count) desk->active[left++] = p;
        }
        active = left;
        if (moves) since = mirt__tcp_now();
        idle = moves ? 0 : idle + 1;
        if (moves || !active) continue;
        const bool spins = __atomic_load_n(&w->hurry, __ATOMIC_RELAXED) && idle < MIRT__TCP_SPINS;
        mirt__tcp_pause(channel, active, spins);
        if ((spins && idle % 64) || !mirt__tcp_waited(channel, active, w, &since)) continue;
        failure->silent = true;
        return mirt__tcp_fails(failure, w->peer, "no message came");
    }
    __atomic_store_n(&w->peer, -1, __ATOMIC_RELAXED);
    return true;
}

static bool mirt__tcp_trade(int channel, const mirt__round *round, mirt__engine_failure *failure) {
    memset(failure, 0, sizeof *failure);
    failure->peer = -1;
    if (mirt__tcp_round(channel, round, failure)) return true;
    __atomic_store_n(&mirt__tcp.broken, true, __ATOMIC_RELAXED);
    return false;
}

/* >>single messages */

typedef struct mirt__tcp_single {
    mirt__message message;
    mirt__tcp_flow flow;
    bool receives;
} mirt__tcp_single;

static void *mirt__tcp_post(const mirt__message *message, bool receives) {
    mirt__tcp_single *s = (mirt__tcp_single *)calloc(1, sizeof *s);
    if (!s) return NULL;
    s->message = *message;
    s->receives = receives;
    s->flow.message = &s->message;
    s->flow.count = 1;
    mirt__tcp_next(&s->flow, message->peer, 0);
    return s;
}

/* What comes after a part of a message could not be told from its rest. */
static void mirt__tcp_forget(void *post) {
    const mirt__tcp_single *s = (const mirt__tcp_single *)post;
    const int fd = mirt__tcp.peer[s->message.peer].link[MIRT__ENGINE_CHANNELS - 1];
    if (s->flow.done) shutdown(fd, SHUT_RDWR);
    free(post);
}

static int mirt__tcp_posted(void *post) {
    mirt__tcp_single *s = (mirt__tcp_single *)post;
    const int fd = mirt__tcp.peer[s->message.peer].link[MIRT__ENGINE_CHANNELS - 1];
    mirt__engine_failure failure;
    size_t moved;
    const bool good = mirt__tcp_push(fd, s->message.peer, &s->flow, !s->receives, &moved, &failure);
    if (good && !mirt__tcp_complete(&s->flow)) return 0;
    free(s);
    return good ? 1 : -1;
}
