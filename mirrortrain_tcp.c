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
    MIRT__TCP_WHY = 256,     /* bytes of a reason */
    MIRT__TCP_MOST = 1 << 16, /* processes */
    MIRT__TCP_SPINS = 500     /* looks at connections before a thread in a hurry sleeps */
};

enum { MIRT__TCP_QUESTION, MIRT__TCP_ANSWER, MIRT__TCP_WORD /* an answer for the time after the end */ };
/* A question, or an answer, on its way; the serial number is the question's. */
typedef struct mirt__tcp_note {
    int32_t kind, serial;
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
    char answer[MIRT__ENGINE_ANSWER]; /* to the question of this number, */
    bool left_word;                   /* and */
    char word[MIRT__ENGINE_ANSWER];   /* what it has left: guarded by the mutex */
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
    bool begun, joined;
    bool broken; /* atomic */
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

/* The first bytes on a connection. */
typedef struct mirt__tcp_hello {
    uint64_t mark, token; /* token: the first process's, of a link */
    int32_t rank, size, link, port;
    char host[MIRT__TCP_HOST];
} mirt__tcp_hello;

typedef struct mirt__tcp_caller {
    int fd; /* -1: nobody */
    double since;
    size_t came;
    mirt__tcp_hello hello;
} mirt__tcp_caller;

enum { MIRT__TCP_CALLERS = 64 };
typedef struct mirt__tcp_door {
    int listener;
    mirt__tcp_caller caller[MIRT__TCP_CALLERS];
} mirt__tcp_door;

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
/* Starts the thread that answers questions. */
static bool mirt__tcp_start_answering(char *why);
/* A socket that listens to *port, 0: a free one, which is set; -1: errno. */
static int mirt__tcp_open_port(int *port);
/* A connection; -1: `why`. Takes up to 5 s for each address that does not answer. */
static int mirt__tcp_dial(const char *address, int port, double until, char *why);
/* A caller, who may not have said anything yet; -1: there is none. */
static int mirt__tcp_accept(int listener);
static int mirt__tcp_close(int fd);
/* Connects all processes, by `until`, 0: for ever. */
static bool mirt__tcp_meet(const mirt_launch *launch, double until, char *why);
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
        if (done == bytes) break;
        if (until > 0 && mirt__tcp_now() > until) return errno = ETIMEDOUT, false;
        struct pollfd polled = {fd, (short)(sends ? POLLOUT : POLLIN), 0};
        if (n == 0) poll(&polled, 1, 50);
    }
    return true;
}

/* >>section tcp/question.c */

#include <fcntl.h>
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
    if (peer->note.kind == MIRT__TCP_ANSWER) {
        peer->answered = peer->note.serial;
        memcpy(peer->answer, peer->note.text, sizeof peer->answer);
    } else if (peer->note.kind == MIRT__TCP_WORD) {
        peer->left_word = true;
        memcpy(peer->word, peer->note.text, sizeof peer->word);
    } else {
        memset(&reply, 0, sizeof reply);
        reply.kind = MIRT__TCP_ANSWER;
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

static bool mirt__tcp_start_answering(char *why) {
    const size_t all = (size_t)mirt__tcp.size + 1;
    sigset_t every, before;
    struct pollfd *polled = (struct pollfd *)calloc(all, sizeof *polled);
    if (!polled) return mirt__tcp_why(why, "out of memory");
    for (size_t i = 0; i < all; i++) polled[i].events = POLLIN;
    if (pipe(mirt__tcp.wake)) {
        free(polled);
        return mirt__tcp_why(why, "pipe: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) fcntl(mirt__tcp.wake[i], F_SETFD, FD_CLOEXEC);
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

static void mirt__tcp_leave_word(void) {
    mirt__tcp_note note;
    memset(&note, 0, sizeof note);
    note.kind = MIRT__TCP_WORD;
    pthread_mutex_lock(&mirt__tcp_mutex);
    if (mirt__tcp.answer) mirt__tcp.answer(mirt__tcp.user, note.text);
    for (int p = 0; p < mirt__tcp.size; p++) {
        if (p != mirt__tcp.rank) mirt__tcp_send_note(p, &note);
    }
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
    const bool word = !came && peer->lost_at > 0 && peer->left_word;
    if (came || word) memcpy(out, word ? peer->word : peer->answer, sizeof peer->answer);
    pthread_mutex_unlock(&mirt__tcp_mutex);
    return came || word;
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
static int mirt__tcp_connect(const struct addrinfo *to, double until) {
    int failed = 0;
    socklen_t length = sizeof failed;
    const int fd = mirt__tcp_tune(socket(to->ai_family, SOCK_STREAM, 0));
    if (fd < 0) return -1;
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0) return fd;
    const double soon = mirt__tcp_now() + 5, end = until > 0 && until < soon ? until : soon;
    struct pollfd polled = {fd, POLLOUT, 0};
    while (errno == EINPROGRESS || errno == EINTR) {
        if (poll(&polled, 1, 50) > 0) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length);
            if (!failed) return fd;
            errno = failed;
        } else errno = mirt__tcp_now() > end ? ETIMEDOUT : EINPROGRESS;
    }
    return mirt__tcp_close(fd);
}

/* Who calls a port of its own host that nobody listens to may get itself. */
static bool mirt__tcp_is_itself(int fd) {
    struct sockaddr_storage own, other;
    socklen_t length = sizeof own, others = sizeof other;
    memset(&own, 0, sizeof own);
    memset(&other, 0, sizeof other);
    return getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
           getpeername(fd, (struct sockaddr *)&other, &others) == 0 && length == others &&
           memcmp(&own, &other, length) == 0;
}

static int mirt__tcp_dial(const char *address, int port, double until, char *why) {
    char service[16];
    struct addrinfo hints, *found = NULL;
    int fd = -1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(address, service, &hints, &found);
    errno = EHOSTUNREACH;
    for (const struct addrinfo *to = code ? NULL : found; to && fd < 0; to = to->ai_next) {
        fd = mirt__tcp_connect(to, until);
        if (fd < 0 || !mirt__tcp_is_itself(fd)) continue;
        errno = ECONNREFUSED;
        fd = mirt__tcp_close(fd);
    }
    if (fd < 0)
        mirt__tcp_why(why, "%s port %d cannot be reached: %s", address, port,
                      code ? gai_strerror(code) : strerror(errno));
    if (!code) freeaddrinfo(found);
    return fd;
}

static int mirt__tcp_accept(int listener) { return mirt__tcp_tune(accept(listener, NULL, NULL)); }

/* The address of the other side, "": on this host alone. */
static void mirt__tcp_address(int fd, char out[MIRT__TCP_ADDRESS]) {
    static const char four[] = "::ffff:"; /* before an address that hosts without IPv6 know, too */
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    out[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&address, &length)) return;
    if (getnameinfo((struct sockaddr *)&address, length, out, MIRT__TCP_ADDRESS, NULL, 0, NI_NUMERICHOST)) out[0] = 0;
    if (!strncmp(out, four, sizeof four - 1)) memmove(out, out + sizeof four - 1, strlen(out + sizeof four - 1) + 1);
    if (!strncmp(out, "127.", 4) || !strcmp(out, "::1")) out[0] = 0;
}

/* >>section tcp/door.c */

/* Who calls, and says who it is. Callers that are silent, or say something else, keep nobody waiting. */

static const uint64_t mirt__tcp_mark = UINT64_C(0x6d69727474637000) + MIRT__ENGINE_VERSION;
static const double mirt__tcp_soon = 2; /* seconds in which whoever is there says something */

/* What comes from another process ends up in messages. */
static void mirt__tcp_clean(char *text, size_t size) {
    text[size - 1] = 0;
    for (; *text; text++) *text = (char)(*text < ' ' || *text > '~' ? '?' : *text);
}

static void mirt__tcp_own_host(char host[MIRT__TCP_HOST]) {
    memset(host, 0, MIRT__TCP_HOST);
    if (gethostname(host, MIRT__TCP_HOST - 1)) host[0] = 0;
}

static mirt__tcp_hello mirt__tcp_own_hello(int link, uint64_t token, int port) {
    mirt__tcp_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.mark = mirt__tcp_mark;
    hello.token = token;
    hello.rank = mirt__tcp.rank;
    hello.size = mirt__tcp.size;
    hello.link = link;
    hello.port = port;
    mirt__tcp_own_host(hello.host);
    return hello;
}

/* A place for the next caller; NULL: there is none. */
static mirt__tcp_caller *mirt__tcp_place(mirt__tcp_door *door) {
    for (int i = 0; i < MIRT__TCP_CALLERS; i++) {
        if (door->caller[i].fd < 0) return &door->caller[i];
    }
    return NULL;
}

static void mirt__tcp_let_in(mirt__tcp_door *door) {
    for (mirt__tcp_caller *c; (c = mirt__tcp_place(door)) != NULL;) {
        const int fd = mirt__tcp_accept(door->listener);
        if (fd < 0) return;
        c->fd = fd;
        c->since = mirt__tcp_now();
        c->came = 0;
    }
}

/* Whether a caller has said who it is; who says something else, or nothing for too long, is sent away. */
static bool mirt__tcp_introduced(mirt__tcp_caller *c) {
    struct iovec part = {(char *)&c->hello + c->came, sizeof c->hello - c->came};
    const ssize_t n = mirt__tcp_some(c->fd, &part, 1, false);
    c->came += n > 0 ? (size_t)n : 0;
    if (c->came == sizeof c->hello && c->hello.mark == mirt__tcp_mark) return true;
    if (n < 0 || c->came == sizeof c->hello || mirt__tcp_now() - c->since > mirt__tcp_soon)
        c->fd = mirt__tcp_close(c->fd);
    return false;
}

/* The next caller who has said who it is, within some seconds; -1: none. */
static int mirt__tcp_await_caller(mirt__tcp_door *door, double seconds, mirt__tcp_hello *hello) {
    struct pollfd polled[MIRT__TCP_CALLERS + 1];
    for (int i = 0; i < MIRT__TCP_CALLERS; i++) {
        polled[i].fd = door->caller[i].fd;
        polled[i].events = POLLIN;
    }
    polled[MIRT__TCP_CALLERS].fd = mirt__tcp_place(door) ? door->listener : -1; /* a full door would not wait */
    polled[MIRT__TCP_CALLERS].events = POLLIN;
    poll(polled, MIRT__TCP_CALLERS + 1, (int)(1e3 * seconds));
    mirt__tcp_let_in(door);
    for (int i = 0; i < MIRT__TCP_CALLERS; i++) {
        mirt__tcp_caller *c = &door->caller[i];
        if (c->fd < 0 || !mirt__tcp_introduced(c)) continue;
        const int fd = c->fd;
        *hello = c->hello;
        c->fd = -1;
        mirt__tcp_clean(hello->host, sizeof hello->host);
        return fd;
    }
    return -1;
}

/* *port: as mirt__tcp_open_port has it. */
static bool mirt__tcp_open_door(mirt__tcp_door *door, int *port) {
    for (int i = 0; i < MIRT__TCP_CALLERS; i++) door->caller[i].fd = -1;
    door->listener = mirt__tcp_open_port(port);
    return door->listener >= 0;
}

static void mirt__tcp_close_door(mirt__tcp_door *door) {
    for (int i = 0; i < MIRT__TCP_CALLERS; i++) mirt__tcp_close(door->caller[i].fd);
    mirt__tcp_close(door->listener);
}

/* >>section tcp/meet.c */

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

/* >>section tcp/trade.c */

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
