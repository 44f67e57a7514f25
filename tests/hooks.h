#ifndef HOOKS_H
#define HOOKS_H
/* Functions that the tests' library calls instead of the system's. The library is build/NAME/parts.a. A test
   that defines one replaces it; the others call the system (hooks.c). */
#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

void *hook_malloc(size_t size);
void hook_free(void *block);
int hook_mutex(pthread_mutex_t *mutex);
int hook_cond(pthread_cond_t *cond, const pthread_condattr_t *attributes);
int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg);
int hook_join(pthread_t thread, void **result);
int hook_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int hook_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int hook_signal(pthread_cond_t *cond);
int hook_broadcast(pthread_cond_t *cond);
int hook_pause(void);
/* Sleeps for as many microseconds as the environment variable MIRT_TEST_WAKE_DELAY says: as if the system took that
   long to wake a thread. hook_wait and hook_timedwait do so after each wait, while the mutex is unlocked. */
void hook_late(void);
void hook_late_unlocked(pthread_mutex_t *mutex);
int hook_open(const char *path, int flags, unsigned mode);
ssize_t hook_pread(int fd, void *data, size_t size, off_t offset);
ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t offset);
int hook_fsync(int fd);
int hook_close(int fd);
int hook_rename(const char *from, const char *to);
int hook_unlink(const char *path);
int hook_mkdir(const char *path, unsigned mode);
int hook_ftruncate(int fd, off_t size);
int hook_stat(const char *path, struct stat *info);
int hook_fstat(int fd, struct stat *info);
int hook_clock(clockid_t clock, struct timespec *out);
void hook_point(int kind, int device, int number); /* base/device_timeline.h */

#define MIRRORTRAIN_MALLOC(size) hook_malloc(size)
#define MIRRORTRAIN_FREE(block) hook_free(block)
#define pthread_mutex_init(mutex, attributes) hook_mutex(mutex)
#define pthread_cond_init(cond, attributes) hook_cond(cond, attributes)
#define pthread_create(thread, attributes, fn, arg) hook_thread(thread, fn, arg)
#define pthread_join(thread, result) hook_join(thread, result)
#define pthread_cond_wait(cond, mutex) hook_wait(cond, mutex)
#define pthread_cond_timedwait(cond, mutex, until) hook_timedwait(cond, mutex, until)
#define pthread_cond_signal(cond) hook_signal(cond)
#define pthread_cond_broadcast(cond) hook_broadcast(cond)
#define pause() hook_pause()
#define MIRRORTRAIN_OPEN(path, flags, mode) hook_open(path, flags, mode)
#define MIRRORTRAIN_PREAD(fd, data, size, offset) hook_pread(fd, data, size, offset)
#define MIRRORTRAIN_PWRITE(fd, data, size, offset) hook_pwrite(fd, data, size, offset)
#define MIRRORTRAIN_FSYNC(fd) hook_fsync(fd)
#define MIRRORTRAIN_CLOSE(fd) hook_close(fd)
#define MIRRORTRAIN_RENAME(from, to) hook_rename(from, to)
#define MIRRORTRAIN_UNLINK(path) hook_unlink(path)
#define MIRRORTRAIN_MKDIR(path, mode) hook_mkdir(path, mode)
#define MIRRORTRAIN_FTRUNCATE(fd, size) hook_ftruncate(fd, size)
#define MIRRORTRAIN_STAT(path, info) hook_stat(path, info)
#define MIRRORTRAIN_FSTAT(fd, info) hook_fstat(fd, info)
#define MIRT__TEST_POINT(kind, device, number) hook_point(kind, device, number)
#define clock_gettime(clock, out) hook_clock(clock, out)
#endif
