#include "tcp.h"
/* The processes find each other. Each tells the first one where it listens, and gets the list of all in return;
   afterwards it calls those before it and is called by those after it. Nobody begins before the first one, which is
   told when a process has all its connections, says that all have. */

/* From the first process: with the list, and when all have joined. To it: this process has all its connections. */
typedef struct mirt__tcp_word {
    uint64_t mark, token;
    char why[MIRT__TCP_WHY]; /* "", or what is wrong */
} mirt__tcp_word;

/* Where a process can be called. */
typedef struct mirt__tcp_entry {
    char address[MIRT__TCP_ADDRESS], host[MIRT__TCP_HOST];
    int32_t port;
} mirt__tcp_entry;

/* This process on its way into the group. */
typedef struct mirt__tcp_joining {
    const mirt_launch *launch;
    double until; /* 0: for ever */
    mirt__tcp_door door;
    uint64_t token;
    int *fd;    /* [size] of the first process: to the others; of another one: [0] to the first */
    bool *told; /* [size] of the first process: who has all its connections */
} mirt__tcp_joining;

static bool mirt__tcp_late(const mirt__tcp_joining *j, double more) {
    return j->until > 0 && mirt__tcp_now() > j->until + more;
}

/* Whether the first process has something to say, which ends what is being waited for. */
static bool mirt__tcp_first_speaks(const mirt__tcp_joining *j) {
    struct pollfd polled = {mirt__tcp.rank ? j->fd[0] : -1, POLLIN, 0};
    return poll(&polled, 1, 0) > 0;
}

static bool mirt__tcp_say(int fd, uint64_t token, const char *why, double until) {
    mirt__tcp_word word;
    memset(&word, 0, sizeof word);
    word.mark = mirt__tcp_mark;
    word.token = token;
    snprintf(word.why, sizeof word.why, "%s", why);
    return mirt__tcp_move(fd, &word, sizeof word, true, until);
}

/* The next word of a process; errno as mirt__tcp_move has it. */
static bool mirt__tcp_hear_word(int fd, mirt__tcp_word *word, double until) {
    const bool good = mirt__tcp_move(fd, word, sizeof *word, false, until) && word->mark == mirt__tcp_mark;
    if (good) mirt__tcp_clean(word->why, sizeof word->why);
    return good;
}

/* >>links */

static bool mirt__tcp_has_links(int rank) {
    for (int link = 0; link < MIRT__TCP_LINKS; link++) {
        if (mirt__tcp.peer[rank].link[link] < 0) return false;
    }
    return true;
}

/* Looks after the door for some seconds. */
static void mirt__tcp_take_links(mirt__tcp_joining *j, double seconds) {
    mirt__tcp_hello h;
    for (int fd; (fd = mirt__tcp_await_caller(&j->door, seconds, &h)) >= 0; seconds = 0) {
        const bool fits = j->token && h.token == j->token && h.rank > mirt__tcp.rank && h.rank < mirt__tcp.size &&
                          h.link >= 0 && h.link < MIRT__TCP_LINKS && mirt__tcp.peer[h.rank].link[h.link] < 0;
        if (fits) mirt__tcp.peer[h.rank].link[h.link] = fd;
        else mirt__tcp_close(fd);
    }
}

/* Calls a process until it is there. */
static int mirt__tcp_reach(mirt__tcp_joining *j, const char *address, int port, char *why) {
    for (;;) {
        const int fd = mirt__tcp_dial(address, port, j->until, why);
        if (fd >= 0 || mirt__tcp_late(j, 0) || mirt__tcp_first_speaks(j)) return fd;
        mirt__tcp_take_links(j, 0.1);
    }
}

static bool mirt__tcp_call(mirt__tcp_joining *j, int rank, char *why) {
    mirt__tcp_peer *peer = &mirt__tcp.peer[rank];
    /* Who reached the first process from its own host is found there. */
    const char *address = peer->address[0] ? peer->address : j->launch->host;
    for (int link = 0; link < MIRT__TCP_LINKS; link++) {
        mirt__tcp_hello hello = mirt__tcp_own_hello(link, j->token, 0);
        peer->link[link] = mirt__tcp_reach(j, address, peer->port, why);
        if (peer->link[link] < 0) return false;
        if (!mirt__tcp_move(peer->link[link], &hello, sizeof hello, true, j->until))
            return mirt__tcp_why(why, "process %d (%s) has gone", rank, peer->host);
        mirt__tcp_take_links(j, 0);
    }
    return true;
}

/* A process that this one has no connections to yet; the size: none. */
static int mirt__tcp_first_missing(void) {
    int p = 0;
    while (p < mirt__tcp.size && (p == mirt__tcp.rank || mirt__tcp_has_links(p))) p++;
    return p;
}

/* >>the first process */

/* Says which processes are not there. */
static bool mirt__tcp_missing(const mirt__tcp_joining *j, char *why) {
    const int size = mirt__tcp.size, port = j->launch->port;
    int missing = 0, first = 0;
    for (int p = size - 1; p > 0; p--) {
        missing += j->fd[p] < 0;
        if (j->fd[p] < 0) first = p;
    }
    if (missing == 1) return mirt__tcp_why(why, "process %d of %d has not reached port %d", first, size, port);
    return mirt__tcp_why(why, "%d of %d processes have not reached port %d, process %d among them", missing, size, port,
                         first);
}

/* Of processes that wait for the others, or -1: one that is lost. */
static int mirt__tcp_lost_one(const mirt__tcp_joining *j) {
    for (int p = 1; p < mirt__tcp.size; p++) {
        char byte;
        const ssize_t n = j->fd[p] < 0 ? 1 : recv(j->fd[p], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return p;
    }
    return -1;
}

static bool mirt__tcp_is_lost(int rank, char *why) {
    return mirt__tcp_why(why, "process %d (%s) is lost", rank, mirt__tcp.peer[rank].host);
}

/* A caller that is waited for; another one is sent away with the reason, which goes to all. */
static bool mirt__tcp_admit(mirt__tcp_joining *j, int fd, const mirt__tcp_hello *hello, char *why) {
    bool good = true;
    if (hello->size != mirt__tcp.size)
        good = mirt__tcp_why(why, "process %d says that there are %d processes, process 0 says %d", hello->rank,
                             hello->size, mirt__tcp.size);
    else if (hello->rank < 1 || hello->rank >= mirt__tcp.size || j->fd[hello->rank] >= 0)
        good = mirt__tcp_why(why, "two processes have number %d", hello->rank);
    if (good) {
        mirt__tcp_peer *peer = &mirt__tcp.peer[hello->rank];
        j->fd[hello->rank] = fd;
        peer->port = hello->port;
        memcpy(peer->host, hello->host, sizeof peer->host);
        mirt__tcp_address(fd, peer->address);
    } else {
        mirt__tcp_say(fd, 0, why, mirt__tcp_now() + mirt__tcp_soon);
        mirt__tcp_close(fd);
    }
    return good;
}

static bool mirt__tcp_gather(mirt__tcp_joining *j, char *why) {
    for (int left = mirt__tcp.size - 1; left > 0;) {
        mirt__tcp_hello hello;
        const int lost = mirt__tcp_lost_one(j);
        if (lost > 0) return mirt__tcp_is_lost(lost, why);
        const int fd = mirt__tcp_await_caller(&j->door, 0.05, &hello);
        if (fd >= 0 && hello.link != MIRT__TCP_MEETING) mirt__tcp_close(fd);
        else if (fd >= 0) {
            if (!mirt__tcp_admit(j, fd, &hello, why)) return false;
            left--;
        } else if (mirt__tcp_late(j, 0)) return mirt__tcp_missing(j, why);
    }
    return true;
}

static bool mirt__tcp_tell_list(int fd, uint64_t token) {
    const double until = mirt__tcp_now() + mirt__tcp_soon;
    bool good = mirt__tcp_say(fd, token, "", until);
    for (int p = 0; p < mirt__tcp.size && good; p++) {
        mirt__tcp_entry entry;
        memset(&entry, 0, sizeof entry);
        memcpy(entry.address, mirt__tcp.peer[p].address, sizeof entry.address);
        memcpy(entry.host, mirt__tcp.peer[p].host, sizeof entry.host);
        entry.port = mirt__tcp.peer[p].port;
        good = mirt__tcp_move(fd, &entry, sizeof entry, true, until);
    }
    return good;
}

/* Takes what a process has to say of its connections, if it does; false: it, or another one, has failed. */
static bool mirt__tcp_take_report(mirt__tcp_joining *j, int rank, char *why) {
    mirt__tcp_word word;
    struct pollfd polled = {j->fd[rank], POLLIN, 0};
    if (j->told[rank] || poll(&polled, 1, 0) <= 0) return true;
    if (!mirt__tcp_hear_word(j->fd[rank], &word, mirt__tcp_now() + mirt__tcp_soon))
        return mirt__tcp_is_lost(rank, why);
    if (word.why[0]) mirt__tcp_why(why, "process %d (%s): %.150s", rank, mirt__tcp.peer[rank].host, word.why);
    j->told[rank] = true;
    return !word.why[0];
}

/* Until all processes have all their connections. Others, which say whom they wait for, have to come first. */
static bool mirt__tcp_await_reports(mirt__tcp_joining *j, char *why) {
    for (;;) {
        int waits = mirt__tcp_first_missing();
        mirt__tcp_take_links(j, 0.01);
        const int lost = mirt__tcp_lost_one(j);
        if (lost > 0) return mirt__tcp_is_lost(lost, why);
        for (int p = 1; p < mirt__tcp.size; p++) {
            if (!mirt__tcp_take_report(j, p, why)) return false;
        }
        for (int p = 1; p < mirt__tcp.size && waits == mirt__tcp.size; p++) {
            if (!j->told[p]) waits = p;
        }
        if (waits == mirt__tcp.size) return true;
        if (mirt__tcp_late(j, mirt__tcp_soon / 2))
            return mirt__tcp_why(why, "process %d (%s) has not connected to all others", waits,
                                 mirt__tcp.peer[waits].host);
    }
}

/* Keeps strangers, and processes of other groups, from being taken for one of this group. */
static uint64_t mirt__tcp_draw_token(void) {
    uint64_t token = (uint64_t)(mirt__tcp_now() * 1e9) ^ (uint64_t)getpid() << 32;
    FILE *file = fopen("/dev/urandom", "rb");
    if (file) {
        uint64_t drawn;
        if (fread(&drawn, sizeof drawn, 1, file) == 1) token ^= drawn;
        fclose(file);
    }
    return token;
}

/* Tells those who are only just calling, too, why there is no group. */
static void mirt__tcp_dismiss(mirt__tcp_joining *j, const char *why) {
    const double until = mirt__tcp_now() + 0.3;
    while (mirt__tcp_now() < until) {
        mirt__tcp_hello hello;
        const int fd = mirt__tcp_await_caller(&j->door, 0.1, &hello);
        if (fd >= 0) mirt__tcp_say(fd, 0, why, mirt__tcp_now() + mirt__tcp_soon);
        mirt__tcp_close(fd);
    }
}

static bool mirt__tcp_lead(mirt__tcp_joining *j, char *why) {
    j->token = mirt__tcp_draw_token();
    bool good = mirt__tcp_gather(j, why);
    for (int p = 1; p < mirt__tcp.size && good; p++) {
        if (!mirt__tcp_tell_list(j->fd[p], j->token)) good = mirt__tcp_is_lost(p, why);
    }
    good = good && mirt__tcp_await_reports(j, why) && mirt__tcp_start_answering(why);
    for (int p = 1; p < mirt__tcp.size; p++) {
        if (j->fd[p] >= 0) mirt__tcp_say(j->fd[p], 0, good ? "" : why, mirt__tcp_now() + mirt__tcp_soon);
    }
    if (!good) mirt__tcp_dismiss(j, why);
    return good;
}

/* >>other processes */

/* The first process's next word. It has some more time than this one, as it knows who is missing. */
static bool mirt__tcp_hear_first(mirt__tcp_joining *j, mirt__tcp_word *word, char *why) {
    const double later = j->until > 0 ? j->until + mirt__tcp_soon : 0;
    if (mirt__tcp_hear_word(j->fd[0], word, later)) return !word->why[0] || mirt__tcp_why(why, "%s", word->why);
    return mirt__tcp_why(why, "process 0 %s", errno == ETIMEDOUT ? "does not answer" : "has gone");
}

static bool mirt__tcp_take_list(mirt__tcp_joining *j, char *why) {
    mirt__tcp_word word;
    mirt__tcp_entry entry;
    if (!mirt__tcp_hear_first(j, &word, why)) return false;
    j->token = word.token;
    for (int p = 0; p < mirt__tcp.size; p++) {
        mirt__tcp_peer *peer = &mirt__tcp.peer[p];
        if (!mirt__tcp_move(j->fd[0], &entry, sizeof entry, false, mirt__tcp_now() + mirt__tcp_soon))
            return mirt__tcp_why(why, "process 0 has gone");
        mirt__tcp_clean(entry.address, sizeof entry.address);
        mirt__tcp_clean(entry.host, sizeof entry.host);
        memcpy(peer->address, entry.address, sizeof peer->address);
        memcpy(peer->host, entry.host, sizeof peer->host);
        peer->port = p ? entry.port : j->launch->port;
    }
    return true;
}

/* Until this process has all its connections, or the first one has something to say, which is that all is over. */
static bool mirt__tcp_connect_all(mirt__tcp_joining *j, char *why) {
    int missing;
    for (int p = 0; p < mirt__tcp.rank; p++) {
        if (!mirt__tcp_call(j, p, why)) return mirt__tcp_first_speaks(j);
    }
    while ((missing = mirt__tcp_first_missing()) < mirt__tcp.size) {
        mirt__tcp_take_links(j, 0.02);
        if (mirt__tcp_first_speaks(j)) return true;
        if (mirt__tcp_late(j, 0))
            return mirt__tcp_why(why, "process %d (%s) has not connected to it", missing, mirt__tcp.peer[missing].host);
    }
    return true;
}

static bool mirt__tcp_follow(mirt__tcp_joining *j, int own_port, char *why) {
    mirt__tcp_hello hello = mirt__tcp_own_hello(MIRT__TCP_MEETING, 0, own_port);
    mirt__tcp_word word;
    j->fd[0] = mirt__tcp_reach(j, j->launch->host, j->launch->port, why);
    if (j->fd[0] < 0) return false;
    if (!mirt__tcp_move(j->fd[0], &hello, sizeof hello, true, j->until))
        return mirt__tcp_why(why, "process 0 has gone");
    if (!mirt__tcp_take_list(j, why)) return false;
    char own[MIRT__TCP_WHY] = "";
    const bool good = mirt__tcp_connect_all(j, own) && mirt__tcp_start_answering(own);
    mirt__tcp_say(j->fd[0], 0, own, mirt__tcp_now() + mirt__tcp_soon);
    if (mirt__tcp_hear_first(j, &word, why)) return good || mirt__tcp_why(why, "%s", own);
    return false;
}

/* >>the meeting */

static bool mirt__tcp_join_others(mirt__tcp_joining *j, char *why) {
    const bool first = mirt__tcp.rank == 0;
    int port = first ? j->launch->port : 0;
    if (!j->fd || !j->told) return mirt__tcp_why(why, "out of memory");
    for (int p = 0; p < mirt__tcp.size; p++) j->fd[p] = -1;
    if (!mirt__tcp_open_door(&j->door, &port))
        return mirt__tcp_why(why, "port %d cannot be listened to: %s", port, strerror(errno));
    mirt__tcp_own_host(mirt__tcp.peer[mirt__tcp.rank].host);
    const bool good = first ? mirt__tcp_lead(j, why) : mirt__tcp_follow(j, port, why);
    for (int p = 0; p < mirt__tcp.size; p++) mirt__tcp_close(j->fd[p]);
    mirt__tcp_close_door(&j->door);
    return good;
}

static bool mirt__tcp_meet(const mirt_launch *launch, double until, char *why) {
    const size_t size = (size_t)mirt__tcp.size;
    mirt__tcp_joining j;
    memset(&j, 0, sizeof j);
    j.launch = launch;
    j.until = until;
    j.fd = (int *)malloc(size * sizeof *j.fd);
    j.told = (bool *)calloc(size, sizeof *j.told);
    const bool good = mirt__tcp_join_others(&j, why);
    free(j.fd);
    free(j.told);
    return good;
}
