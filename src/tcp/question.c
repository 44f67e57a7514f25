#include "tcp.h"

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
