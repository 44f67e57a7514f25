#include "tcp.h"

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
