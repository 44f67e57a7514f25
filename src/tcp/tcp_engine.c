#include "tcp.h"
/* The engine's table. */

static bool mirt__tcp_memory(void) {
    const size_t size = (size_t)mirt__tcp.size;
    mirt__tcp.peer = (mirt__tcp_peer *)calloc(size, sizeof *mirt__tcp.peer);
    for (size_t p = 0; p < size && mirt__tcp.peer; p++) {
        for (int link = 0; link < MIRT__TCP_LINKS; link++) mirt__tcp.peer[p].link[link] = -1;
    }
    bool good = mirt__tcp.peer != NULL;
    for (int i = 0; i < MIRT__ENGINE_CHANNELS; i++) {
        mirt__tcp_desk *desk = &mirt__tcp.desk[i];
        desk->out = (mirt__tcp_flow *)calloc(2 * size, sizeof *desk->out);
        desk->active = (int *)calloc(size, sizeof *desk->active);
        desk->polled = (struct pollfd *)calloc(size, sizeof *desk->polled);
        good = good && desk->out && desk->active && desk->polled;
        if (good) desk->in = desk->out + size;
    }
    return good;
}

static void mirt__tcp_close_links(void) {
    for (int p = 0; p < mirt__tcp.size; p++) {
        for (int link = 0; link < MIRT__TCP_LINKS; link++)
            mirt__tcp.peer[p].link[link] = mirt__tcp_close(mirt__tcp.peer[p].link[link]);
    }
}

static bool mirt__tcp_join(const mirt_launch *launch, double limit, char *why) {
    if (launch->processes > MIRT__TCP_MOST)
        return mirt__tcp_why(why, "%d processes are more than %d", launch->processes, MIRT__TCP_MOST);
    mirt__tcp.rank = launch->index;
    mirt__tcp.size = launch->processes;
    if (!mirt__tcp_memory()) return mirt__tcp_why(why, "out of memory");
    if (mirt__tcp_meet(launch, limit > 0 ? mirt__tcp_now() + limit : 0, why)) return true;
    if (!mirt__tcp.process) mirt__tcp_close_links(); /* otherwise they are the thread's */
    return false;
}

/* Once in a process. */
static bool mirt__tcp_start_once(const mirt_launch *launch, double limit, char *why) {
    if (!mirt__tcp.begun) mirt__tcp.joined = mirt__tcp_join(launch, limit, mirt__tcp.why);
    mirt__tcp.begun = true;
    if (mirt__tcp.joined && mirt__tcp.process != getpid())
        return mirt__tcp_why(why, "the process that this one was forked from is in the group");
    return mirt__tcp.joined || mirt__tcp_why(why, "%s", mirt__tcp.why);
}

static bool mirt__tcp_start(const mirt_launch *launch, double limit, int *rank, int *size, char *why) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    const bool joined = mirt__tcp_start_once(launch, limit, why);
    pthread_mutex_unlock(&one);
    *rank = mirt__tcp.rank;
    *size = mirt__tcp.size;
    const bool broken = joined && __atomic_load_n(&mirt__tcp.broken, __ATOMIC_RELAXED);
    if (broken) mirt__tcp_why(why, "the processes have lost each other");
    return joined && !broken;
}

static const char *mirt__tcp_host(int rank) { return mirt__tcp.peer[rank].host; }

static void mirt__tcp_stop(bool broken, bool lost) {
    (void)lost;
    if (broken) __atomic_store_n(&mirt__tcp.broken, true, __ATOMIC_RELAXED);
}

const mirt__engine *mirt__tcp_engine(void) {
    static const mirt__engine engine = {MIRT__ENGINE_VERSION, "TCP",           mirt__tcp_start,  mirt__tcp_trade,
                                        NULL,                 mirt__tcp_post,  mirt__tcp_posted, mirt__tcp_forget,
                                        mirt__tcp_answers,    mirt__tcp_ask,   mirt__tcp_leave_word,
                                        mirt__tcp_host,       mirt__tcp_stop};
    return &engine;
}
