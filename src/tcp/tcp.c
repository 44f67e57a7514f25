#include "tcp.h"

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
