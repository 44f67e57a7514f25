#ifndef PIPE_ENGINE_H
#define PIPE_ENGINE_H
/* An engine of sockets between forked processes, for tests. Include after mirrortrain.h.

   pipe_group_fork makes a group of the calling process, rank 0, and its children; each of them ends its part with
   pipe_group_end, and the caller then waits with pipe_group_wait. What pipe_faults asks for happens in `trade`. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tap.h"

enum { PIPE_MOST = 8 };

typedef struct pipe_faults {
    uint32_t seed;
    double delay;    /* seconds before a message, at most; 0: none. It also makes the system take messages in parts */
    int lost, after; /* the rank that ends in the middle of its message number `after`, from 0; -1: none */
    bool silent;     /* it stays, but sends nothing more */
    int *happened;   /* becomes 1 when it does, or NULL; in shared memory */
} pipe_faults;

enum { PIPE_QUESTIONS = MIRT__ENGINE_CHANNELS, PIPE_ANSWERS, PIPE_LINKS };

static struct pipe_group {
    int rank, size;
    int fd[PIPE_LINKS][PIPE_MOST]; /* to each peer, or -1 */
    pid_t child[PIPE_MOST];                   /* in rank 0 */
    pipe_faults faults;
    int sent; /* atomic: messages begun */
    pthread_t thread; /* answers questions */
    bool listens;
    int quits; /* atomic */
    void (*answer)(void *user, char *out); /* and user: guarded by the mutex */
    void *user;
} pipe_group;
static pthread_mutex_t pipe_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The messages of a round with one peer, one after the other. */
typedef struct pipe_queue {
    int at; /* in the list of messages; its length: all are done */
    size_t done;
    bool begun;
} pipe_queue;

/* Zeroed memory that processes forked later share, or NULL. */
TAP_UNUSED static void *pipe_shared(size_t bytes) {
    FILE *file = tmpfile();
    void *memory = MAP_FAILED;
    if (file && ftruncate(fileno(file), (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    if (file) fclose(file);
    return memory == MAP_FAILED ? NULL : memory;
}

static void pipe_sleep(uint32_t microseconds) {
    const struct timespec time = {(time_t)(microseconds / 1000000), (long)(microseconds % 1000000) * 1000};
    nanosleep(&time, NULL);
}

TAP_UNUSED static void pipe_group_end(void) {
    __atomic_store_n(&pipe_group.quits, 1, __ATOMIC_RELEASE);
    if (pipe_group.listens) pthread_join(pipe_group.thread, NULL);
    pipe_group.listens = false;
    for (int c = 0; c < PIPE_LINKS; c++) {
        for (int p = 0; p < pipe_group.size; p++) {
            if (pipe_group.fd[c][p] >= 0) close(pipe_group.fd[c][p]);
            pipe_group.fd[c][p] = -1;
        }
    }
}

/* Closes the sockets that only other processes use. link[a][b]: a's end towards b. */
static void pipe_keep_own(int link[][PIPE_MOST][PIPE_MOST]) {
    for (int c = 0; c < PIPE_LINKS; c++) {
        for (int a = 0; a < pipe_group.size; a++) {
            for (int b = 0; b < pipe_group.size; b++) {
                if (a == pipe_group.rank)
                    pipe_group.fd[c][b] = link[c][a][b];
                else if (link[c][a][b] >= 0)
                    close(link[c][a][b]);
            }
        }
    }
}

/* The rank; -1: the system has no sockets or processes left. */
TAP_UNUSED static int pipe_group_fork(int size, const pipe_faults *faults) {
    int link[PIPE_LINKS][PIPE_MOST][PIPE_MOST], pair[2];
    memset(link, -1, sizeof link);
    memset(&pipe_group, 0, sizeof pipe_group);
    pipe_group.size = size;
    pipe_group.faults = *faults;
    for (int c = 0; c < PIPE_LINKS; c++) {
        for (int a = 0; a < size; a++) {
            for (int b = a + 1; b < size; b++) {
                if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return -1;
                link[c][a][b] = pair[0];
                link[c][b][a] = pair[1];
            }
        }
    }
    fflush(stdout);
    for (int rank = 1; rank < size; rank++) {
        const pid_t child = fork();
        if (child < 0) return -1;
        if (child == 0) {
            pipe_group.rank = rank;
            break;
        }
        pipe_group.child[rank] = child;
    }
    pipe_keep_own(link);
    return pipe_group.rank;
}

/* Whether all children ended by themselves within `limit` seconds; the others are killed. */
TAP_UNUSED static bool pipe_group_wait(double limit) {
    const double since = mirt__now();
    bool good = true;
    for (int rank = 1; rank < pipe_group.size; rank++) {
        pid_t ended;
        while ((ended = waitpid(pipe_group.child[rank], NULL, WNOHANG)) == 0 && mirt__now() - since < limit)
            pipe_sleep(200);
        if (ended == 0) {
            kill(pipe_group.child[rank], SIGKILL);
            waitpid(pipe_group.child[rank], NULL, 0);
        }
        good = good && ended != 0;
    }
    return good;
}

static bool pipe_fails(mirt__engine_failure *failure, int peer, bool silent, const char *text) {
    failure->peer = peer;
    failure->silent = silent;
    failure->gone = false;
    snprintf(failure->text, sizeof failure->text, "%s", text);
    return false;
}

static bool pipe_gone(mirt__engine_failure *failure, int peer, const char *text) {
    pipe_fails(failure, peer, false, text);
    failure->gone = true;
    return false;
}

/* A number below `bound`. */
static uint32_t pipe_draw(uint32_t bound) {
    pipe_group.faults.seed = pipe_group.faults.seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(pipe_group.faults.seed ^ (uint32_t)pipe_group.rank * 2654435761u) * bound) >> 32);
}

/* The next message with the peer, from `at` on. */
static int pipe_next(const mirt__message *message, int count, int peer, int at) {
    while (at < count && message[at].peer != peer) at++;
    return at;
}

/* Whether this process is the one that is lost, and now is the moment. */
static bool pipe_lost(void) {
    const pipe_faults *f = &pipe_group.faults;
    return f->lost == pipe_group.rank && __atomic_load_n(&pipe_group.sent, __ATOMIC_RELAXED) > f->after;
}

/* At most half of the message that is in the way of the loss. */
static size_t pipe_part(size_t left) {
    if (pipe_lost()) return left / 2;
    return pipe_group.faults.delay > 0 && pipe_draw(3) == 0 ? 1 + pipe_draw((uint32_t)left) : left;
}

static void pipe_begin(pipe_queue *queue) {
    const uint32_t most = (uint32_t)(pipe_group.faults.delay * 1e6);
    if (queue->begun) return;
    queue->begun = true;
    __atomic_add_fetch(&pipe_group.sent, 1, __ATOMIC_RELAXED);
    if (most && pipe_draw(4) == 0) pipe_sleep(pipe_draw(most) + 1);
}

/* Ends this process, or what others see of it. */
static bool pipe_die(mirt__engine_failure *failure) {
    if (pipe_group.faults.happened) *pipe_group.faults.happened = 1;
    if (pipe_group.faults.silent) return true;
    if (pipe_group.rank) raise(SIGKILL);
    pipe_group_end();
    return pipe_fails(failure, -1, false, "this process is lost");
}

/* False: *failure is set. */
static bool pipe_send(int fd, int peer, const mirt__round *round, pipe_queue *queue, mirt__engine_failure *failure) {
    const mirt__message *m = &round->send[queue->at];
    if (m->bytes == 0) return pipe_fails(failure, -1, false, "a message without bytes");
    pipe_begin(queue);
    const size_t part = pipe_part(m->bytes - queue->done);
    const ssize_t n = part ? send(fd, (const char *)m->data + queue->done, part, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR) return pipe_gone(failure, peer, strerror(errno));
    if (pipe_lost()) return pipe_die(failure);
    if (n > 0) queue->done += (size_t)n;
    if (queue->done == m->bytes) {
        queue->at = pipe_next(round->send, round->sends, peer, queue->at + 1);
        queue->done = 0;
        queue->begun = false;
    }
    return true;
}

static bool pipe_receive(int fd, int peer, const mirt__round *round, pipe_queue *queue, mirt__engine_failure *failure) {
    const mirt__message *m = &round->receive[queue->at];
    const ssize_t n = recv(fd, (char *)m->data + queue->done, m->bytes - queue->done, MSG_DONTWAIT);
    if (n == 0) return pipe_gone(failure, peer, "its end of the connection is closed");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return pipe_gone(failure, peer, strerror(errno));
    if (n > 0) queue->done += (size_t)n;
    if (queue->done == m->bytes) {
        if (round->got) round->got(round->user, queue->at);
        queue->at = pipe_next(round->receive, round->receives, peer, queue->at + 1);
        queue->done = 0;
    }
    return true;
}

/* What is left of a round, as poll wants it; *waits: a peer that has not done its part, or -1. */
static bool pipe_pending(int channel, const mirt__round *round, const pipe_queue *out, const pipe_queue *in,
                         struct pollfd *polled, int *waits) {
    bool pending = false;
    *waits = -1;
    for (int p = pipe_group.size - 1; p >= 0; p--) {
        const bool sends = out[p].at < round->sends, receives = in[p].at < round->receives;
        const bool writes = sends && !(pipe_group.faults.silent && pipe_lost());
        polled[p].fd = sends || receives ? pipe_group.fd[channel][p] : -1;
        polled[p].events = (short)((writes ? POLLOUT : 0) | (receives ? POLLIN : 0));
        polled[p].revents = 0;
        pending = pending || sends || receives;
        if (receives || (sends && *waits < 0)) *waits = p;
    }
    return pending;
}

/* Whether nothing has moved for longer than the round waits. */
static bool pipe_waited(const mirt__round *round, int peer, double *moved) {
    mirt__waiting *w = round->waiting;
    __atomic_store_n(&w->peer, peer, __ATOMIC_RELAXED);
    if (w->limit <= 0 || mirt__now() - *moved <= w->limit) return false;
    if (!w->patient || !w->patient(w->user, peer)) return true;
    *moved = mirt__now();
    return false;
}

static bool pipe_trade(int channel, const mirt__round *round, mirt__engine_failure *failure) {
    pipe_queue out[PIPE_MOST], in[PIPE_MOST];
    struct pollfd polled[PIPE_MOST];
    double moved = mirt__now();
    int waits;
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    for (int p = 0; p < pipe_group.size; p++) {
        out[p].at = pipe_next(round->send, round->sends, p, 0);
        in[p].at = pipe_next(round->receive, round->receives, p, 0);
    }
    while (pipe_pending(channel, round, out, in, polled, &waits)) {
        const int ready = poll(polled, (nfds_t)pipe_group.size, 5);
        const double now = mirt__now();
        if (ready > 0) moved = now;
        if (pipe_waited(round, waits, &moved))
            return pipe_fails(failure, waits, true, "nothing came for longer than the limit");
        for (int p = 0; p < pipe_group.size && ready > 0; p++) {
            if (!polled[p].revents) continue;
            if (polled[p].events & polled[p].revents & POLLOUT &&
                !pipe_send(polled[p].fd, p, round, &out[p], failure))
                return false;
            if (polled[p].events & POLLIN && polled[p].revents & (POLLIN | POLLHUP | POLLERR) &&
                !pipe_receive(polled[p].fd, p, round, &in[p], failure))
                return false;
            if (!(polled[p].events & POLLIN) && polled[p].revents & (POLLHUP | POLLERR))
                return pipe_gone(failure, p, "its end of the connection is closed");
        }
    }
    __atomic_store_n(&round->waiting->peer, -1, __ATOMIC_RELAXED);
    return true;
}

/* >>single messages */

typedef struct pipe_single {
    mirt__message message;
    bool receives;
    size_t done;
} pipe_single;

TAP_UNUSED static void *pipe_post(const mirt__message *message, bool receives) {
    pipe_single *s = (pipe_single *)calloc(1, sizeof *s);
    if (!s) return NULL;
    s->message = *message;
    s->receives = receives;
    return s;
}

static int pipe_posted(void *post) {
    pipe_single *s = (pipe_single *)post;
    const int fd = pipe_group.fd[MIRT__ENGINE_CHANNELS - 1][s->message.peer];
    char *data = (char *)s->message.data + s->done;
    const size_t left = s->message.bytes - s->done;
    const ssize_t n = s->receives ? recv(fd, data, left, MSG_DONTWAIT)
                                  : send(fd, data, left, MSG_DONTWAIT | MSG_NOSIGNAL);
    const bool failed = n < 0 ? errno != EAGAIN && errno != EINTR : n == 0;
    if (n > 0) s->done += (size_t)n;
    if (!failed && s->done < s->message.bytes) return 0;
    free(s);
    return failed ? -1 : 1;
}

/* >>questions: a byte, answered by MIRT__ENGINE_ANSWER of them */

static void pipe_reply(int peer) {
    char question, answer[MIRT__ENGINE_ANSWER];
    if (recv(pipe_group.fd[PIPE_QUESTIONS][peer], &question, 1, MSG_DONTWAIT) != 1) return;
    memset(answer, 0, sizeof answer);
    pthread_mutex_lock(&pipe_mutex);
    if (pipe_group.answer) pipe_group.answer(pipe_group.user, answer);
    pthread_mutex_unlock(&pipe_mutex);
    if (send(pipe_group.fd[PIPE_ANSWERS][peer], answer, sizeof answer, MSG_NOSIGNAL) < 0) return;
}

static void *pipe_listen(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&pipe_group.quits, __ATOMIC_ACQUIRE)) {
        for (int p = 0; p < pipe_group.size; p++) {
            if (p != pipe_group.rank) pipe_reply(p);
        }
        pipe_sleep(2000);
    }
    return NULL;
}

static void pipe_answers(void (*answer)(void *user, char *out), void *user) {
    pthread_mutex_lock(&pipe_mutex);
    pipe_group.answer = answer;
    pipe_group.user = user;
    pthread_mutex_unlock(&pipe_mutex);
    if (answer && !pipe_group.listens)
        pipe_group.listens = pthread_create(&pipe_group.thread, NULL, pipe_listen, NULL) == 0;
}

/* Takes the place of an answer. */
static void pipe_leave_word(void) {
    char word[MIRT__ENGINE_ANSWER];
    memset(word, 0, sizeof word);
    pthread_mutex_lock(&pipe_mutex);
    if (pipe_group.answer) pipe_group.answer(pipe_group.user, word);
    pthread_mutex_unlock(&pipe_mutex);
    for (int p = 0; p < pipe_group.size; p++) {
        if (p != pipe_group.rank && send(pipe_group.fd[PIPE_ANSWERS][p], word, sizeof word, MSG_NOSIGNAL) < 0) continue;
    }
}

/* A process asks once, or gets an older answer, which tests do not mind. One that is gone may have left word. */
static bool pipe_ask_one(int peer, double limit, char *out) {
    const char question = '?';
    const double until = mirt__now() + limit;
    bool there = send(pipe_group.fd[PIPE_QUESTIONS][peer], &question, 1, MSG_NOSIGNAL) == 1;
    do {
        const ssize_t n = recv(pipe_group.fd[PIPE_ANSWERS][peer], out, MIRT__ENGINE_ANSWER, MSG_DONTWAIT);
        if (n == MIRT__ENGINE_ANSWER) return true;
        there = there && (n > 0 || (n < 0 && errno == EAGAIN));
        if (there) pipe_sleep(1000);
    } while (there && mirt__now() < until);
    return false;
}

static bool pipe_ask(int peer, double limit, char *out) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    const bool good = pipe_ask_one(peer, limit, out);
    pthread_mutex_unlock(&one);
    return good;
}

static bool pipe_start(const mirt_launch *launch, double limit, int *rank, int *size, char *why) {
    (void)launch;
    (void)limit;
    *rank = pipe_group.rank;
    *size = pipe_group.size;
    *why = 0;
    return true;
}

static bool pipe_one_host; /* all processes say that they are on the first one */

static const char *pipe_host(int rank) {
    static const char *const name[PIPE_MOST] = {"host0", "host1", "host2", "host3", "host4", "host5", "host6", "host7"};
    return name[pipe_one_host ? 0 : rank];
}

/* Sockets stay open from one strategy to the next. */
static void pipe_stop(bool broken, bool lost) { (void)broken, (void)lost; }

static const mirt__engine pipe_engine = {
    MIRT__ENGINE_VERSION, "pipes", pipe_start, pipe_trade, NULL, pipe_post, pipe_posted, free,
    pipe_answers, pipe_ask, pipe_leave_word, pipe_host, pipe_stop};
#endif
