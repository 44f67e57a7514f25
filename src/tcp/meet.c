#include "tcp.h"
/* The processes find each other. Each tells the first one where it listens, and gets the list of all in return;
   afterwards it calls those before it and waits for those after it. */

/* The first bytes on a connection. */
typedef struct mirt__tcp_hello {
    uint64_t mark, token; /* token: the first process's, of a link */
    int32_t rank, size, link, port;
    char host[MIRT__TCP_HOST];
} mirt__tcp_hello;

/* What the first process sends back, before the list. */
typedef struct mirt__tcp_welcome {
    uint64_t mark, token;
    char why[MIRT__TCP_WHY]; /* "", or why there is no list */
} mirt__tcp_welcome;

/* Where a process can be called. */
typedef struct mirt__tcp_entry {
    char address[MIRT__TCP_ADDRESS], host[MIRT__TCP_HOST];
    int32_t port;
} mirt__tcp_entry;

static const uint64_t mirt__tcp_mark = UINT64_C(0x6d69727474637000) + MIRT__ENGINE_VERSION;
static const double mirt__tcp_soon = 2; /* seconds in which whoever calls says who it is */

static mirt__tcp_hello mirt__tcp_own_hello(int link, uint64_t token, int port) {
    mirt__tcp_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.mark = mirt__tcp_mark;
    hello.token = token;
    hello.rank = mirt__tcp.rank;
    hello.size = mirt__tcp.size;
    hello.link = link;
    hello.port = port;
    if (gethostname(hello.host, sizeof hello.host - 1)) hello.host[0] = 0;
    return hello;
}

/* The next caller who says who it is; others are none of the group's business. -1: none by `until`. */
static int mirt__tcp_next_caller(int listener, double until, mirt__tcp_hello *hello) {
    for (int fd; (fd = mirt__tcp_accept(listener, until)) >= 0; mirt__tcp_close(fd)) {
        memset(hello, 0, sizeof *hello);
        if (mirt__tcp_move(fd, hello, sizeof *hello, false, mirt__tcp_now() + mirt__tcp_soon) &&
            hello->mark == mirt__tcp_mark)
            return fd;
    }
    return -1;
}

/* Says which processes have not come. */
static void mirt__tcp_missing(const int *fd, int port, char *why) {
    int missing = 0, first = 0;
    for (int p = mirt__tcp.size - 1; p > 0; p--) {
        missing += fd[p] < 0;
        if (fd[p] < 0) first = p;
    }
    if (errno != ETIMEDOUT) mirt__tcp_why(why, "connections cannot be accepted: %s", strerror(errno));
    else if (missing == 1)
        mirt__tcp_why(why, "process %d of %d has not reached port %d", first, mirt__tcp.size, port);
    else
        mirt__tcp_why(why, "%d of %d processes have not reached port %d, process %d among them", missing,
                      mirt__tcp.size, port, first);
}

/* Whether a caller is one that is waited for. A message about another one goes to all. */
static bool mirt__tcp_fits(const mirt__tcp_hello *hello, const int *fd, char *why) {
    const int size = mirt__tcp.size;
    if (hello->size != size)
        return mirt__tcp_why(why, "process %d says that there are %d processes, process 0 says %d", hello->rank,
                             hello->size, size);
    if (hello->rank < 1 || hello->rank >= size || fd[hello->rank] >= 0)
        return mirt__tcp_why(why, "two processes have number %d", hello->rank);
    return true;
}

/* The first process gathers the others in fd. */
static bool mirt__tcp_gather(int listener, double until, int *fd, char *why) {
    for (int left = mirt__tcp.size - 1; left > 0; left--) {
        mirt__tcp_hello hello;
        const int caller = mirt__tcp_next_caller(listener, until, &hello);
        if (caller < 0) return mirt__tcp_missing(fd, mirt__tcp.peer[0].port, why), false;
        if (hello.link != MIRT__TCP_MEETING) {
            mirt__tcp_close(caller);
            left++;
            continue;
        }
        if (!mirt__tcp_fits(&hello, fd, why)) {
            mirt__tcp_welcome sorry;
            memset(&sorry, 0, sizeof sorry);
            sorry.mark = mirt__tcp_mark;
            memcpy(sorry.why, why, sizeof sorry.why);
            mirt__tcp_move(caller, &sorry, sizeof sorry, true, mirt__tcp_now() + mirt__tcp_soon);
            return mirt__tcp_close(caller), false;
        }
        mirt__tcp_peer *peer = &mirt__tcp.peer[hello.rank];
        fd[hello.rank] = caller;
        peer->port = hello.port;
        memcpy(peer->host, hello.host, sizeof peer->host - 1);
        mirt__tcp_address(caller, peer->address);
    }
    return true;
}

/* Hard to guess, so that nobody else takes the place of a process. */
static uint64_t mirt__tcp_token(void) {
    uint64_t token = (uint64_t)(mirt__tcp_now() * 1e9) ^ (uint64_t)getpid() << 32;
    FILE *file = fopen("/dev/urandom", "rb");
    if (file) {
        uint64_t drawn;
        if (fread(&drawn, sizeof drawn, 1, file) == 1) token ^= drawn;
        fclose(file);
    }
    return token;
}

/* The first process tells a caller who all are, or why it does not. */
static bool mirt__tcp_tell(int fd, uint64_t token, const char *why, double until) {
    mirt__tcp_welcome welcome;
    memset(&welcome, 0, sizeof welcome);
    welcome.mark = mirt__tcp_mark;
    welcome.token = token;
    memcpy(welcome.why, why, sizeof welcome.why);
    bool good = mirt__tcp_move(fd, &welcome, sizeof welcome, true, until);
    for (int p = 0; p < mirt__tcp.size && good && !why[0]; p++) {
        mirt__tcp_entry entry;
        memset(&entry, 0, sizeof entry);
        memcpy(entry.address, mirt__tcp.peer[p].address, sizeof entry.address);
        memcpy(entry.host, mirt__tcp.peer[p].host, sizeof entry.host);
        entry.port = mirt__tcp.peer[p].port;
        good = mirt__tcp_move(fd, &entry, sizeof entry, true, until);
    }
    return good;
}

static bool mirt__tcp_host_meeting(int listener, double until, uint64_t *token, char *why) {
    const int size = mirt__tcp.size;
    char reason[MIRT__TCP_WHY] = "";
    int *fd = (int *)malloc((size_t)size * sizeof *fd);
    if (!fd) return mirt__tcp_why(why, "out of memory");
    for (int p = 0; p < size; p++) fd[p] = -1;
    *token = mirt__tcp_token();
    bool good = mirt__tcp_gather(listener, until, fd, reason);
    for (int p = 1; p < size; p++) {
        const double soon = mirt__tcp_now() + mirt__tcp_soon;
        if (fd[p] >= 0 && !mirt__tcp_tell(fd[p], *token, reason, soon) && good)
            good = mirt__tcp_why(reason, "process %d (%s) is lost", p, mirt__tcp.peer[p].host);
        mirt__tcp_close(fd[p]);
    }
    free(fd);
    return good || mirt__tcp_why(why, "%s", reason);
}

static bool mirt__tcp_take_list(int fd, double until, uint64_t *token, char *why) {
    mirt__tcp_welcome welcome;
    mirt__tcp_entry entry;
    if (!mirt__tcp_move(fd, &welcome, sizeof welcome, false, until) || welcome.mark != mirt__tcp_mark)
        return mirt__tcp_why(why, "process 0 %s", errno == ETIMEDOUT ? "does not answer" : "has gone");
    welcome.why[sizeof welcome.why - 1] = 0;
    if (welcome.why[0]) return mirt__tcp_why(why, "%s", welcome.why);
    *token = welcome.token;
    for (int p = 0; p < mirt__tcp.size; p++) {
        mirt__tcp_peer *peer = &mirt__tcp.peer[p];
        if (!mirt__tcp_move(fd, &entry, sizeof entry, false, until))
            return mirt__tcp_why(why, "process 0 has gone");
        memcpy(peer->address, entry.address, sizeof peer->address - 1);
        memcpy(peer->host, entry.host, sizeof peer->host - 1);
        peer->port = entry.port;
    }
    return true;
}

static bool mirt__tcp_attend_meeting(const char *address, int port, int own, double until, uint64_t *token,
                                     char *why) {
    const int fd = mirt__tcp_dial(address, port, until, why);
    mirt__tcp_hello hello = mirt__tcp_own_hello(MIRT__TCP_MEETING, 0, own);
    if (fd < 0) return false;
    /* The first process, which knows who is missing, has a word after its limit. */
    const double later = until > 0 ? until + mirt__tcp_soon : 0;
    const bool good = mirt__tcp_move(fd, &hello, sizeof hello, true, until)
                          ? mirt__tcp_take_list(fd, later, token, why)
                          : mirt__tcp_why(why, "process 0 has gone");
    mirt__tcp_close(fd);
    return good;
}

static bool mirt__tcp_meet(const char *address, int port, double until, int *listener, uint64_t *token, char *why) {
    const bool first = mirt__tcp.rank == 0;
    int own = first ? port : 0;
    mirt__tcp_peer *zero = &mirt__tcp.peer[0];
    const mirt__tcp_hello self = mirt__tcp_own_hello(0, 0, 0);
    *listener = mirt__tcp_open_port(&own);
    if (*listener < 0 && first) return mirt__tcp_why(why, "port %d cannot be listened to: %s", port, strerror(errno));
    if (*listener < 0) return mirt__tcp_why(why, "no port can be listened to: %s", strerror(errno));
    if (first) memcpy(zero->host, self.host, sizeof zero->host);
    zero->port = port;
    return first ? mirt__tcp_host_meeting(*listener, until, token, why)
                 : mirt__tcp_attend_meeting(address, port, own, until, token, why);
}

/* >>links */

static bool mirt__tcp_call_all(const char *first, uint64_t token, double until, char *why) {
    for (int p = 0; p < mirt__tcp.rank; p++) {
        mirt__tcp_peer *peer = &mirt__tcp.peer[p];
        /* Who reached the first process from its own host is found there. */
        const char *address = peer->address[0] ? peer->address : first;
        for (int link = 0; link < MIRT__TCP_LINKS; link++) {
            mirt__tcp_hello hello = mirt__tcp_own_hello(link, token, 0);
            peer->link[link] = mirt__tcp_dial(address, peer->port, until, why);
            if (peer->link[link] < 0) return false;
            if (!mirt__tcp_move(peer->link[link], &hello, sizeof hello, true, until))
                return mirt__tcp_why(why, "process %d (%s) has gone", p, peer->host);
        }
    }
    return true;
}

static bool mirt__tcp_await_all(int listener, uint64_t token, double until, char *why) {
    for (int left = (mirt__tcp.size - 1 - mirt__tcp.rank) * MIRT__TCP_LINKS; left > 0;) {
        mirt__tcp_hello hello;
        const int fd = mirt__tcp_next_caller(listener, until, &hello);
        if (fd < 0) return mirt__tcp_why(why, "%d connections have not come: %s", left, strerror(errno));
        int *link = hello.token == token && hello.rank > mirt__tcp.rank && hello.rank < mirt__tcp.size &&
                            hello.link >= 0 && hello.link < MIRT__TCP_LINKS
                        ? &mirt__tcp.peer[hello.rank].link[hello.link]
                        : NULL;
        if (link && *link < 0) {
            *link = fd;
            left--;
        } else mirt__tcp_close(fd);
    }
    return true;
}
