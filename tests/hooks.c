/* What a test leaves to the system. */
#include "hooks.h"
#undef pthread_mutex_init
#undef pthread_cond_init
#undef pthread_create
#undef clock_gettime

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT __attribute__((weak))

DEFAULT void *hook_malloc(size_t size) { return malloc(size); }
DEFAULT void hook_free(void *block) { free(block); }
DEFAULT int hook_mutex(pthread_mutex_t *mutex) { return pthread_mutex_init(mutex, NULL); }
DEFAULT int hook_cond(pthread_cond_t *cond, const pthread_condattr_t *attributes) { return pthread_cond_init(cond, attributes); }
DEFAULT int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg) { return pthread_create(thread, NULL, fn, arg); }
DEFAULT int hook_open(const char *path, int flags, unsigned mode) { return open(path, flags, mode); }
DEFAULT ssize_t hook_pread(int fd, void *data, size_t size, off_t offset) { return pread(fd, data, size, offset); }
DEFAULT ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }
DEFAULT int hook_fsync(int fd) { return fsync(fd); }
DEFAULT int hook_close(int fd) { return close(fd); }
DEFAULT int hook_clock(clockid_t clock, struct timespec *out) { return clock_gettime(clock, out); }
DEFAULT void hook_point(int kind, int device, int number) { (void)kind, (void)device, (void)number; }
DEFAULT int hook_rename(const char *from, const char *to) { return rename(from, to); }
