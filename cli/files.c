/* Regular files that commands read and write, never through a symbolic link. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_MODE = 0666 };

/* Opens a regular file; O_NONBLOCK, since opening a pipe without a writer would block. -1 and errno. */
static int open_regular(const char *path, int flags) {
    struct stat info;
    int fd;
    do fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, DEFAULT_MODE);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 || (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))) return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

const char *reason_of(int code) {
    if (code == EINVAL) return "it is not a regular file";
    return code == ELOOP || code == EMLINK ? "it is a symbolic link; remove it" : strerror(code);
}

void hold_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return; /* gets the lowest free number */
    }
}

FILE *open_to_read(const char *path) {
    const int fd = open_regular(path, O_RDONLY);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
    if (fd >= 0 && !file) close(fd);
    return file;
}

FILE *open_to_append(const char *path) {
    const int fd = open_regular(path, O_WRONLY | O_APPEND | O_NOFOLLOW);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "ab");
    if (fd >= 0 && !file) close(fd);
    return file;
}

int open_lock(const char *path) { return open_regular(path, O_RDWR | O_CREAT | O_NOFOLLOW); }

bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t wrote = write(fd, data, size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote == 0) errno = ENOSPC;
        if (wrote <= 0) return false;
        data += wrote;
        size -= (size_t)wrote;
    }
    return true;
}

/* An unnamed file in the directory of `path`, which a killed process does not leave behind; otherwise one that is
   unlinked at once. */
static int open_nameless(const char *path, char *name, size_t room) {
    int fd = -1;
#ifdef O_TMPFILE
    const char *slash = strrchr(path, '/');
    snprintf(name, room, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./");
    fd = open(name, O_TMPFILE | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
#endif
    if (fd < 0 && (fd = mirt_create_temporary(path, name, room)) >= 0) unlink(name);
    return fd;
}

const char *try_to_write(const char *path, size_t size, probe *p) {
    const size_t room = strlen(path) + 48;
    char *name = (char *)malloc(room), *zeros = (char *)calloc(size + 1, 1);
    const int fd = name && zeros ? open_nameless(path, name, room) : -1;
    const char *failed = NULL;
    const double begin = seconds_now();
    double written = begin;
    memset(p, 0, sizeof *p);
    if (fd < 0) failed = "cannot create a file there";
    else if (!write_all(fd, zeros, size)) failed = "cannot write";
    else if (written = seconds_now(), size && fsync(fd) != 0) failed = "cannot sync";
    p->code = fd < 0 && !(name && zeros) ? ENOMEM : errno;
    p->write_seconds = written - begin;
    p->sync_seconds = seconds_now() - written;
    if (fd >= 0) close(fd);
    free(name);
    free(zeros);
    return failed;
}
