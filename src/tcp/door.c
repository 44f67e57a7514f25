#include "tcp.h"
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
