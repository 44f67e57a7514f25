/* What a test leaves to the system. */
#include "hooks.h"
#undef pthread_mutex_init
#undef pthread_cond_init
#undef pthread_create
#undef pthread_join
#undef pthread_cond_wait
#undef pthread_cond_timedwait
#undef pthread_cond_signal
#undef pthread_cond_broadcast
#undef pause
#undef clock_gettime

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT __attribute__((weak))

DEFAULT void *hook_malloc(size_t size) { return malloc(size); }
DEFAULT void hook_free(void *block) { free(block); }
DEFAULT int hook_mutex(pthread_mutex_t *mutex) { return pthread_mutex_init(mutex, NULL); }
DEFAULT int hook_cond(pthread_cond_t *cond, const pthread_condattr_t *attributes) {
    return pthread_cond_init(cond, attributes);
}
DEFAULT int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg) {
    return pthread_create(thread, NULL, fn, arg);
}
DEFAULT int hook_join(pthread_t thread, void **result) { return pthread_join(thread, result); }
DEFAULT int hook_signal(pthread_cond_t *cond) { return pthread_cond_signal(cond); }
DEFAULT int hook_broadcast(pthread_cond_t *cond) { return pthread_cond_broadcast(cond); }
DEFAULT int hook_pause(void) { return pause(); }
DEFAULT int hook_unlink(const char *path) { return unlink(path); }
DEFAULT int hook_mkdir(const char *path, unsigned mode) { return mkdir(path, mode); }
DEFAULT int hook_ftruncate(int fd, off_t size) { return ftruncate(fd, size); }
DEFAULT int hook_stat(const char *path, struct stat *info) { return stat(path, info); }
DEFAULT int hook_fstat(int fd, struct stat *info) { return fstat(fd, info); }
DEFAULT int hook_open(const char *path, int flags, unsigned mode) { return open(path, flags, mode); }
DEFAULT ssize_t hook_pread(int fd, void *data, size_t size, off_t offset) { return pread(fd, data, size, offset); }
DEFAULT ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t offset) {
    return pwrite(fd, data, size, offset);
}
DEFAULT int hook_fsync(int fd) { return fsync(fd); }
DEFAULT int hook_close(int fd) { return close(fd); }
DEFAULT int hook_clock(clockid_t clock, struct timespec *out) { return clock_gettime(clock, out); }
DEFAULT void hook_point(int kind, int device, int number) { (void)kind, (void)device, (void)number; }
DEFAULT int hook_rename(const char *from, const char *to) { return rename(from, to); }

void hook_late(void) {
    static long delay = -1; /* atomic: microseconds; -1: not asked yet */
    long microseconds = __atomic_load_n(&delay, __ATOMIC_RELAXED);
    struct timespec t;
    if (microseconds < 0) {
        const char *wanted = getenv("MIRT_TEST_WAKE_DELAY");
        microseconds = wanted ? strtol(wanted, NULL, 10) : 0;
        if (microseconds < 0) microseconds = 0;
        __atomic_store_n(&delay, microseconds, __ATOMIC_RELAXED);
    }
    t.tv_sec = microseconds / 1000000;
    t.tv_nsec = microseconds % 1000000 * 1000;
    while (microseconds && nanosleep(&t, &t) != 0) continue;
}

/* A thread that the system is late to wake does not hold the mutex yet. */
void hook_late_unlocked(pthread_mutex_t *mutex) {
    pthread_mutex_unlock(mutex);
    hook_late();
    pthread_mutex_lock(mutex);
}

DEFAULT int hook_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    const int code = pthread_cond_wait(cond, mutex);
    hook_late_unlocked(mutex);
    return code;
}

DEFAULT int hook_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    const int code = pthread_cond_timedwait(cond, mutex, until);
    hook_late_unlocked(mutex);
    return code;
}
