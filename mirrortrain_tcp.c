#define MIRRORTRAIN_BACKEND
#include "mirrortrain.h"

/* >>section tcp/tcp.h */

#ifndef MIRT__TCP_H
#define MIRT__TCP_H
/* Moves bytes between processes by TCP. Launchers say where the first process is (torchrun, TF_CONFIG, Slurm). Every
   two processes have a connection for each channel, and one for questions. */

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    MIRT__TCP_QUESTIONS = MIRT__ENGINE_CHANNELS, /* the link of questions, after those of the channels */
    MIRT__TCP_LINKS,
    MIRT__TCP_MEETING = MIRT__TCP_LINKS, /* what a connection to the first process is for before there are links */
    MIRT__TCP_ADDRESS = 64,
    MIRT__TCP_HOST = 64,
    MIRT__TCP_WHY = 256 /* bytes of a reason */
};

/* A question, or an answer, on its way; the serial number is the question's. */
typedef struct mirt__tcp_note {
    int32_t answers, serial;
    char text[MIRT__ENGINE_ANSWER];
} mirt__tcp_note;

typedef struct mirt__tcp_peer {
    int link[MIRT__TCP_LINKS]; /* sockets, -1: none */
    char address[MIRT__TCP_ADDRESS], host[MIRT__TCP_HOST];
    int32_t port;
    mirt__tcp_note note; /* the one that is coming, of which `came` bytes are here; of the thread that listens */
    size_t came;
    double lost_at; /* when its link of questions ended, 0: it has not; and */
    int32_t answered;
    char answer[MIRT__ENGINE_ANSWER]; /* to the question of this number: guarded by the mutex */
} mirt__tcp_peer;

/* The messages of a round with one process in one direction, one after the other. */
typedef struct mirt__tcp_flow {
    const mirt__message *message;
    int count, at; /* at == count: all are done */
    size_t done;   /* bytes of message `at`, its header included */
    uint64_t header;
} mirt__tcp_flow;

/* What a channel needs for a round, which is one thread's at a time. */
typedef struct mirt__tcp_desk {
    mirt__tcp_flow *out, *in; /* [size] */
    int *active;              /* [size] processes with messages in this round */
    struct pollfd *polled;    /* [size] */
} mirt__tcp_desk;

typedef struct mirt__tcp_group {
    bool begun, joined, broken;
    int rank, size;
    pid_t process; /* that joined; its connections are not for its children */
    mirt__tcp_peer *peer;
    mirt__tcp_desk desk[MIRT__ENGINE_CHANNELS];
    pthread_t thread; /* listens to questions */
    int wake[2];      /* a byte ends it */
    char why[MIRT__TCP_WHY];
    void (*answer)(void *user, char *out); /* and user: guarded by the mutex */
    void *user;
} mirt__tcp_group;

static mirt__tcp_group mirt__tcp;
static pthread_mutex_t mirt__tcp_mutex = PTHREAD_MUTEX_INITIALIZER;

static double mirt__tcp_now(void);
static void mirt__tcp_nap(double seconds);
/* False, with a reason. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool mirt__tcp_why(char *why, const char *format, ...);
/* Sends or receives all bytes by `until`, 0: for ever. False: errno, 0: the other side has closed. */
static bool mirt__tcp_move(int fd, void *data, size_t bytes, bool sends, double until);
/* What a call with these bytes moved; 0: it would block; -1: errno, 0: the other side has closed. */
static ssize_t mirt__tcp_some(int fd, struct iovec *part, int parts, bool sends);
static bool mirt__tcp_listen(char *why);
/* A socket that listens to *port, 0: a free one, which is set; -1: errno. */
static int mirt__tcp_open_port(int *port);
/* A connection by `until`, 0: for ever; -1: `why`. */
static int mirt__tcp_dial(const char *address, int port, double until, char *why);
static int mirt__tcp_accept(int listener, double until);
/* The processes find each other at the first one; each learns the addresses of all. */
static bool mirt__tcp_meet(const char *address, int port, double until, int *listener, uint64_t *token, char *why);
#endif

/* >>section tcp/tcp.c */

#include <stdarg.h>
/* Bytes on a connection. */

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE is a socket's instead */
#endif

static double mirt__tcp_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void mirt__tcp_nap(double seconds) {
    const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

static bool mirt__tcp_why(char *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, MIRT__TCP_WHY, format, arguments);
    va_end(arguments);
    return false;
}

static ssize_t mirt__tcp_some(int fd, struct iovec *part, int parts, bool sends) {
    struct msghdr message;
    memset(&message, 0, sizeof message);
    message.msg_iov = part;
    message.msg_iovlen = (size_t)parts;
    errno = 0;
    const ssize_t n = sends ? sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(fd, &message, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    return n == 0 ? -1 : n;
}

static bool mirt__tcp_move(int fd, void *data, size_t bytes, bool sends, double until) {
    for (size_t done = 0; done < bytes;) {
        struct iovec part = {(char *)data + done, bytes - done};
        const ssize_t n = mirt__tcp_some(fd, &part, 1, sends);
        if (n < 0) return false;
        done += (size_t)n;
        if (until > 0 && mirt__tcp_now() > until) return errno = ETIMEDOUT, false;
        struct pollfd polled = {fd, (short)(sends ? POLLOUT : POLLIN), 0};
        if (n == 0) poll(&polled, 1, 50);
    }
    return true;
}

/* >>section tcp/question.c */

/* Questions between processes, beside the rounds. A thread answers those of others and takes in their answers. */

/* A link that does not take all of a note can take no other. Whoever writes to it holds the mutex. */
static bool mirt__tcp_send_note(int rank, const mirt__tcp_note *note) {
    mirt__tcp_peer *peer = &mirt__tcp.peer[rank];
    mirt__tcp_note copy = *note;
    struct iovec part = {&copy, sizeof copy};
    const ssize_t n = peer->lost_at > 0 ? -1 : mirt__tcp_some(peer->link[MIRT__TCP_QUESTIONS], &part, 1, true);
    if (n > 0 && (size_t)n < sizeof copy) shutdown(peer->link[MIRT__TCP_QUESTIONS], SHUT_RDWR);
    return n == (ssize_t)sizeof copy;
}

static void mirt__tcp_take_note(int rank) {
    mirt__tcp_peer *peer = &mirt__tcp.peer[rank];
    mirt__tcp_note reply;
    pthread_mutex_lock(&mirt__tcp_mutex);
    if (peer->note.answers) {
        peer->answered = peer->note.serial;
        memcpy(peer->answer, peer->note.text, sizeof peer->answer);
    } else {
        memset(&reply, 0, sizeof reply);
        reply.answers = 1;
        reply.serial = peer->note.serial;
        if (mirt__tcp.answer) mirt__tcp.answer(mirt__tcp.user, reply.text);
        mirt__tcp_send_note(rank, &reply);
    }
    pthread_mutex_unlock(&mirt__tcp_mutex);
    peer->came = 0;
}

/* Takes in what has come from a process. */
static void mirt__tcp_hear(int rank) {
    mirt__tcp_peer *peer = &mirt__tcp.peer[rank];
    struct iovec part = {(char *)&peer->note + peer->came, sizeof peer->note - peer->came};
    const ssize_t n = mirt__tcp_some(peer->link[MIRT__TCP_QUESTIONS], &part, 1, false);
    if (n > 0 && (peer->came += (size_t)n) == sizeof peer->note) mirt__tcp_take_note(rank);
    if (n >= 0) return;
    pthread_mutex_lock(&mirt__tcp_mutex);
    peer->lost_at = mirt__tcp_now();
    pthread_mutex_unlock(&mirt__tcp_mutex);
}

static void *mirt__tcp_main(void *memory) {
    struct pollfd *polled = (struct pollfd *)memory;
    const int size = mirt__tcp.size;
    while (polled[size].revents == 0) {
        for (int p = 0; p < size; p++)
            polled[p].fd = mirt__tcp.peer[p].lost_at > 0 ? -1 : mirt__tcp.peer[p].link[MIRT__TCP_QUESTIONS];
        if (poll(polled, (nfds_t)size + 1, -1) < 0) continue;
        for (int p = 0; p < size; p++) {
            if (polled[p].revents) mirt__tcp_hear(p);
        }
    }
    free(polled);
    return NULL;
}

static void mirt__tcp_exit(void) {
    if (getpid() != mirt__tcp.process) return;
    if (write(mirt__tcp.wake[1], "", 1) == 1) pthread_join(mirt__tcp.thread, NULL);
}

static bool mirt__tcp_listen(char *why) {
    const size_t all = (size_t)mirt__tcp.size + 1;
    sigset_t every, before;
    struct pollfd *polled = (struct pollfd *)calloc(all, sizeof *polled);
    if (!polled) return mirt__tcp_why(why, "out of memory");
    for (size_t i = 0; i < all; i++) polled[i].events = POLLIN;
    if (pipe(mirt__tcp.wake)) {
        free(polled);
        return mirt__tcp_why(why, "pipe: %s", strerror(errno));
    }
    polled[all - 1].fd = mirt__tcp.wake[0];
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    const int code = pthread_create(&mirt__tcp.thread, NULL, mirt__tcp_main, polled);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) {
        free(polled);
        return mirt__tcp_why(why, "a thread could not be started: %s", strerror(code));
    }
    mirt__tcp.process = getpid();
    atexit(mirt__tcp_exit);
    return true;
}

static void mirt__tcp_answers(void (*answer)(void *user, char *out), void *user) {
    pthread_mutex_lock(&mirt__tcp_mutex);
    mirt__tcp.answer = answer;
    mirt__tcp.user = user;
    pthread_mutex_unlock(&mirt__tcp_mutex);
}

/* One question at a time. */
static bool mirt__tcp_ask_one(int rank, double limit, char *out) {
    static int32_t last;
    const double until = mirt__tcp_now() + limit;
    mirt__tcp_peer *peer = &mirt__tcp.peer[rank];
    mirt__tcp_note question;
    memset(&question, 0, sizeof question);
    question.serial = ++last;
    pthread_mutex_lock(&mirt__tcp_mutex);
    bool waits = mirt__tcp_send_note(rank, &question), came = false;
    while (waits) {
        pthread_mutex_unlock(&mirt__tcp_mutex);
        mirt__tcp_nap(0.001);
        pthread_mutex_lock(&mirt__tcp_mutex);
        came = peer->answered == question.serial;
        waits = !came && peer->lost_at == 0 && mirt__tcp_now() < until;
    }
    if (came) memcpy(out, peer->answer, sizeof peer->answer);
    pthread_mutex_unlock(&mirt__tcp_mutex);
    return came;
}

static bool mirt__tcp_ask(int rank, double limit, char *out) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    const bool good = mirt__tcp_ask_one(rank, limit, out);
    pthread_mutex_unlock(&one);
    return good;
}

/* >>section tcp/connect.c */

#include <fcntl.h>
/* Connections: who listens, who calls, and names and addresses. */

/* Neither for programs that this one starts, nor waiting for full packets; a host that vanishes is noticed. */
static int mirt__tcp_tune(int fd) {
    const int on = 1;
    if (fd < 0) return fd;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#if defined(SO_NOSIGPIPE)
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return fd;
}

static int mirt__tcp_close(int fd) {
    const int code = errno;
    if (fd >= 0) close(fd);
    errno = code;
    return -1;
}

static int mirt__tcp_open_family(int family, int *port) {
    const int on = 1, off = 0;
    struct sockaddr_storage address;
    struct sockaddr_in *four = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;
    socklen_t length = family == AF_INET6 ? sizeof *six : sizeof *four;
    const int fd = mirt__tcp_tune(socket(family, SOCK_STREAM, 0));
    if (fd < 0) return -1;
    memset(&address, 0, sizeof address);
    address.ss_family = (sa_family_t)family;
    if (family == AF_INET6) six->sin6_port = htons((uint16_t)*port);
    else four->sin_port = htons((uint16_t)*port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, 4096) ||
        getsockname(fd, (struct sockaddr *)&address, &length))
        return mirt__tcp_close(fd);
    *port = ntohs(family == AF_INET6 ? six->sin6_port : four->sin_port);
    return fd;
}

static int mirt__tcp_open_port(int *port) {
    const int fd = mirt__tcp_open_family(AF_INET6, port);
    return fd >= 0 || errno == EADDRINUSE ? fd : mirt__tcp_open_family(AF_INET, port);
}

/* A connection to one of these addresses; -1: errno. */
static int mirt__tcp_call(const struct addrinfo *to, double until) {
    int failed = 0;
    socklen_t length = sizeof failed;
    const int fd = mirt__tcp_tune(socket(to->ai_family, SOCK_STREAM, 0));
    if (fd < 0) return -1;
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0) return fd;
    const double soon = mirt__tcp_now() + 5, end = until > 0 && until < soon ? until : soon;
    struct pollfd polled = {fd, POLLOUT, 0};
    while (errno == EINPROGRESS || errno == EINTR) {
        if (mirt__tcp_now() > end) errno = ETIMEDOUT;
        else if (poll(&polled, 1, 50) > 0) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length);
            if (!failed) return fd;
            errno = failed;
        } else errno = EINPROGRESS;
    }
    return mirt__tcp_close(fd);
}

static int mirt__tcp_dial(const char *address, int port, double until, char *why) {
    char service[16];
    struct addrinfo hints, *found = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    snprintf(service, sizeof service, "%d", port);
    do {
        int fd = -1;
        const int code = getaddrinfo(address, service, &hints, &found);
        errno = EHOSTUNREACH;
        for (const struct addrinfo *to = code ? NULL : found; to && fd < 0; to = to->ai_next)
            fd = mirt__tcp_call(to, until);
        mirt__tcp_why(why, "%s port %d cannot be reached: %s", address, port,
                      code ? gai_strerror(code) : strerror(errno));
        if (!code) freeaddrinfo(found);
        if (fd >= 0) return fd;
        mirt__tcp_nap(0.1);
    } while (until <= 0 || mirt__tcp_now() < until);
    return -1;
}

static int mirt__tcp_accept(int listener, double until) {
    struct pollfd polled = {listener, POLLIN, 0};
    while (until <= 0 || mirt__tcp_now() < until) {
        if (poll(&polled, 1, 50) <= 0) continue;
        const int fd = mirt__tcp_tune(accept(listener, NULL, NULL));
        if (fd >= 0) return fd;
        if (errno == EMFILE || errno == ENFILE) return -1;
    }
    errno = ETIMEDOUT;
    return -1;
}

/* The address of the other side, "": on this host alone. */
static void mirt__tcp_address(int fd, char out[MIRT__TCP_ADDRESS]) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    out[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&address, &length)) return;
    if (getnameinfo((struct sockaddr *)&address, length, out, MIRT__TCP_ADDRESS, NULL, 0, NI_NUMERICHOST)) out[0] = 0;
    if (!strncmp(out, "127.", 4) || !strncmp(out, "::ffff:127.", 11) || !strcmp(out, "::1")) out[0] = 0;
}

/* >>section tcp/meet.c */

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

/* >>section tcp/trade.c */

/* Rounds of messages, and single ones. A message follows the number of its bytes. */

static bool mirt__tcp_fails(mirt__engine_failure *failure, int peer, const char *text) {
    failure->peer = peer;
    snprintf(failure->text, sizeof failure->text, "%s", text);
    return false;
}

/* When a process ends, others end because of it: of those whose connections are closed, the first in the last
   seconds. */
static int mirt__tcp_first_lost(int rank) {
    const double since = mirt__tcp_now() - 10;
    pthread_mutex_lock(&mirt__tcp_mutex);
    for (int p = 0; p < mirt__tcp.size; p++) {
        const double at = mirt__tcp.peer[p].lost_at, other = mirt__tcp.peer[rank].lost_at;
        if (at > since && (at < other || other == 0)) rank = p;
    }
    pthread_mutex_unlock(&mirt__tcp_mutex);
    return rank;
}

static bool mirt__tcp_gone(mirt__engine_failure *failure, int peer) {
    const char *text = errno ? strerror(errno) : "it has closed its connection";
    mirt__tcp_nap(0.05); /* until the thread that listens has seen it, too */
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

/* Waits for a connection to be ready, or not when the caller is in a hurry. */
static void mirt__tcp_pause(int channel, int active, int idle, bool hurry) {
    mirt__tcp_desk *desk = &mirt__tcp.desk[channel];
    if (hurry && idle < 500) {
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
        mirt__tcp_pause(channel, active, idle, __atomic_load_n(&w->hurry, __ATOMIC_RELAXED));
        if ((idle < 500 && idle % 64) || !mirt__tcp_waited(channel, active, w, &since)) continue;
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
    mirt__tcp.broken = true;
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

/* >>section tcp/tcp_engine.c */

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

static bool mirt__tcp_join(const mirt_launch *launch, double limit, char *why) {
    const double until = limit > 0 ? mirt__tcp_now() + limit : 0;
    uint64_t token = 0;
    int listener = -1;
    mirt__tcp.rank = launch->index;
    mirt__tcp.size = launch->processes;
    if (!mirt__tcp_memory()) return mirt__tcp_why(why, "out of memory");
    const bool good = mirt__tcp_meet(launch->host, launch->port, until, &listener, &token, why) &&
                      mirt__tcp_call_all(launch->host, token, until, why) &&
                      mirt__tcp_await_all(listener, token, until, why) && mirt__tcp_listen(why);
    mirt__tcp_close(listener);
    return good;
}

/* Once in a process. */
static bool mirt__tcp_start_once(const mirt_launch *launch, double limit, char *why) {
    if (!mirt__tcp.begun) mirt__tcp.joined = mirt__tcp_join(launch, limit, mirt__tcp.why);
    mirt__tcp.begun = true;
    return mirt__tcp.joined || mirt__tcp_why(why, "%s", mirt__tcp.why);
}

static bool mirt__tcp_start(const mirt_launch *launch, double limit, int *rank, int *size, char *why) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    const bool joined = mirt__tcp_start_once(launch, limit, why);
    pthread_mutex_unlock(&one);
    *rank = mirt__tcp.rank;
    *size = mirt__tcp.size;
    if (joined && mirt__tcp.broken) return mirt__tcp_why(why, "the processes have lost each other");
    return joined;
}

static const char *mirt__tcp_host(int rank) { return mirt__tcp.peer[rank].host; }

static void mirt__tcp_stop(bool broken, bool lost) {
    (void)lost;
    mirt__tcp.broken = mirt__tcp.broken || broken;
}

const mirt__engine *mirt__tcp_engine(void) {
    static const mirt__engine engine = {MIRT__ENGINE_VERSION, "TCP",          mirt__tcp_start,   mirt__tcp_trade,
                                        NULL,                 mirt__tcp_post, mirt__tcp_posted,  free,
                                        mirt__tcp_answers,    mirt__tcp_ask,  mirt__tcp_host,    mirt__tcp_stop};
    return &engine;
}

/*
mirrortrain is available under two licences; choose the one that you prefer.

Alternative A - MIT License

Copyright (c) 2026 the mirrortrain authors

Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in
the Software without restriction, including without limitation the rights to
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies
of the Software, and to permit persons to whom the Software is furnished to do
so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.

Alternative B - Public Domain (www.unlicense.org)

This is free and unencumbered software released into the public domain.

Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
software, either in source code form or as a compiled binary, for any purpose,
commercial or non-commercial, and by any means.

In jurisdictions that recognize copyright laws, the author or authors of this
software dedicate any and all copyright interest in the software to the public
domain. We make this dedication for the benefit of the public at large and to
the detriment of our heirs and successors. We intend this dedication to be an
overt act of relinquishment in perpetuity of all present and future rights to
this software under copyright law.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
