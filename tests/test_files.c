/* Files while system calls fail, and what the library reads about the machine. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, SYNC, CLOSE, RENAME, UNLINK, MAKE, CUT, LOOK, CALLS };
static const char *const call_names[CALLS] = {"open",   "pread",  "pwrite", "fsync",     "close",
                                              "rename", "unlink", "mkdir",  "ftruncate", "stat"};
static int failing = -1, code;      /* the call that fails, with this error */
static long after, seen[CALLS];     /* after so many that work */
static bool stays;                  /* all that follow fail too */
static char root[300];              /* what stands for /proc and /sys; "" for the machine's own */

static bool fails_now(int call) {
    const long number = seen[call]++;
    if (call != failing || number < after || (!stays && number > after)) return false;
    errno = code;
    return true;
}

int hook_open(const char *path, int flags, unsigned mode) {
    char other[600];
    if (fails_now(OPEN)) return -1;
    if (root[0] && (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0)) {
        snprintf(other, sizeof other, "%s%s", root, path);
        path = other;
    }
    return open(path, flags, mode);
}
ssize_t hook_pread(int fd, void *data, size_t size, off_t at) {
    return fails_now(READ) ? -1 : pread(fd, data, size, at);
}
ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t at) {
    return fails_now(WRITE) ? -1 : pwrite(fd, data, size, at);
}
int hook_fsync(int fd) { return fails_now(SYNC) ? -1 : fsync(fd); }
int hook_close(int fd) {
    const bool fail = fails_now(CLOSE);
    const int result = close(fd);
    if (fail) errno = code;
    return fail ? -1 : result;
}
int hook_rename(const char *from, const char *to) { return fails_now(RENAME) ? -1 : rename(from, to); }
int hook_unlink(const char *path) { return fails_now(UNLINK) ? -1 : unlink(path); }
int hook_mkdir(const char *path, unsigned mode) { return fails_now(MAKE) ? -1 : mkdir(path, mode); }
int hook_ftruncate(int fd, off_t size) { return fails_now(CUT) ? -1 : ftruncate(fd, size); }
int hook_stat(const char *path, struct stat *info) { return fails_now(LOOK) ? -1 : stat(path, info); }
int hook_fstat(int fd, struct stat *info) { return fails_now(LOOK) ? -1 : fstat(fd, info); }

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

static const char *in_work(const char *name) {
    static char path[4][800];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", work_directory(), name);
    return path[next];
}

static void fail(int call, int error, long works, bool forever) {
    memset(seen, 0, sizeof seen);
    failing = call;
    code = error;
    after = works;
    stays = forever;
}
static void fail_nothing(void) { failing = -1; }

static bool holds(const char *path, const char *want) {
    size_t size;
    char *data = file_bytes(path, &size);
    const bool same = data && size == strlen(want) && memcmp(data, want, size) == 0;
    free(data);
    return same;
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    if (f) fputs(text, f), fclose(f);
}

/* >>replacing a file */

/* Whether nothing but `name` is in the directory of the tests' files. */
static bool alone(const char *name) {
    char command[900];
    snprintf(command, sizeof command, "test \"$(ls -A '%s')\" = '%s'", work_directory(), name);
    return system(command) == 0;
}

static void expect_write(int call, int error, mirt_status want, const char *says, const char *content) {
    const char *path = in_work("file");
    write_text(path, "old");
    fail(call, error, 0, false);
    const mirt_status status = mirt_write_file(path, "new", 3);
    fail_nothing();
    ok(status == want && (want == MIRT_OK || (strstr(mirt_last_error(), says) && strstr(mirt_last_error(), path))) &&
           holds(path, content) && alone("file"),
       "%s fails with %s: %s, \"%s\" stands there", call_names[call], strerror(error),
       want == MIRT_OK ? "no harm" : mirt_last_error(), content);
}

static void check_write(void) {
    expect_write(OPEN, EACCES, MIRT_E_IO, "cannot", "old");
    expect_write(OPEN, EINTR, MIRT_OK, "", "new");
    expect_write(WRITE, ENOSPC, MIRT_E_IO, "No space left", "old");
    expect_write(WRITE, EINTR, MIRT_OK, "", "new");
    expect_write(SYNC, EIO, MIRT_E_IO, "cannot sync the file", "old");
    expect_write(SYNC, EINTR, MIRT_OK, "", "new");
    expect_write(SYNC, EINVAL, MIRT_OK, "", "new");
    expect_write(SYNC, ENOSYS, MIRT_OK, "", "new");
    expect_write(SYNC, ENOTSUP, MIRT_OK, "", "new");
    expect_write(CLOSE, EIO, MIRT_E_IO, "cannot close the file", "old");
    expect_write(CLOSE, EINTR, MIRT_OK, "", "new");
    expect_write(RENAME, EXDEV, MIRT_E_IO, "cannot put the new file in place", "old");
    const char *path = in_work("file");
    fail(SYNC, EIO, 1, false);
    ok(mirt_write_file(path, "newer", 5) == MIRT_E_IO && strstr(mirt_last_error(), "may not survive a power failure") &&
           holds(path, "newer"),
       "a directory that cannot be synced: %s", mirt_last_error());
    fail(OPEN, EIO, 1, false);
    ok(mirt_write_file(path, "x", 1) == MIRT_E_IO && strstr(mirt_last_error(), "cannot open its directory") &&
           holds(path, "newer"),
       "a directory that cannot be opened: %s", mirt_last_error());
    fail(OPEN, EACCES, 1, false);
    ok(mirt_write_file(path, "x", 1) == MIRT_OK && holds(path, "x"),
       "a directory that may only be written to is no reason to lose a file");
    fail_nothing();
    ok(mirt_write_file(NULL, "x", 1) == MIRT_E_INVALID && mirt_write_file(path, NULL, 1) == MIRT_E_INVALID,
       "no path, no data: %s", mirt_last_error());
    ok(mirt_write_file(path, NULL, 0) == MIRT_OK && holds(path, ""), "no bytes make an empty file");
    ok(mirt_write_file("/mirrortrain-test/none/file", "x", 1) == MIRT_E_NOT_FOUND, "no directory: %s",
       mirt_last_error());
    int wrong = 0, met = 0;
    bool reached = true;
    for (long number = 1; reached; number++) {
        const long before = live_blocks;
        allocations = 0;
        fails = number;
        const mirt_status status = mirt_write_file(path, "y", 1);
        fails = 0;
        reached = allocations >= number;
        met += reached;
        wrong +=
            status != (reached ? MIRT_E_NOMEM : MIRT_OK) || live_blocks != before || !holds(path, reached ? "" : "y");
    }
    ok(!wrong && met >= 2, "%d failed allocations: the old file stays", met);
    unlink(path);
}

/* >>logs */

static void check_logs(void) {
    const char *path = in_work("log");
    mirt__appender a;
    ok(mirt__append_open(&a, path, -1) == MIRT_OK && mirt__append(&a, "one\n", 4) == MIRT_OK &&
           mirt__append_sync(&a) == MIRT_OK,
       "a log");
    fail(SYNC, EIO, 0, false);
    ok(mirt__append_sync(&a) == MIRT_E_IO && strstr(mirt_last_error(), "cannot sync the file"),
       "it cannot be synced: %s", mirt_last_error());
    fail(WRITE, ENOSPC, 0, false);
    ok(mirt__append(&a, "two\n", 4) == MIRT_E_IO && strstr(mirt_last_error(), path), "it cannot grow: %s",
       mirt_last_error());
    fail_nothing();
    ok(mirt__append(&a, "three\n", 6) == MIRT_OK && holds(path, "one\nthree\n"),
       "what follows stands where the failed line would");
    fail(CLOSE, EIO, 0, false);
    ok(mirt__append_close(&a) == MIRT_E_IO, "it cannot be closed: %s", mirt_last_error());
    fail_nothing();
    ok(mirt__append_close(&a) == MIRT_OK && mirt__append_sync(&a) == MIRT_OK, "closing it again does nothing");
    ok(mirt__append(&a, "four\n", 5) == MIRT_E_STATE, "writing to a closed one: %s", mirt_last_error());
    fail(CLOSE, EINTR, 0, false);
    ok(mirt__append_open(&a, path, 4) == MIRT_OK && mirt__append_close(&a) == MIRT_OK && holds(path, "one\n"),
       "cut back, and closed though interrupted");
    write_text(path, "one\ntwo\n");
    fail(CUT, EIO, 0, false);
    ok(mirt__append_open(&a, path, 4) == MIRT_E_IO && strstr(mirt_last_error(), "cannot shorten"),
       "it cannot be cut back: %s", mirt_last_error());
    fail(LOOK, EIO, 0, false);
    ok(mirt__append_open(&a, path, 4) == MIRT_E_IO && strstr(mirt_last_error(), "cannot get the status of"),
       "it cannot be looked at: %s", mirt_last_error());
    fail(SYNC, EIO, 1, false);
    ok(mirt__append_open(&a, path, -1) == MIRT_OK && mirt__append_sync(&a) == MIRT_E_IO &&
           strstr(mirt_last_error(), "its directory"),
       "its directory cannot be synced: %s", mirt_last_error());
    fail(OPEN, EIO, 0, false);
    ok(mirt__append_sync(&a) == MIRT_E_IO && strstr(mirt_last_error(), "its directory"),
       "its directory cannot be opened: %s", mirt_last_error());
    fail(OPEN, EACCES, 0, false);
    ok(mirt__append_sync(&a) == MIRT_OK && mirt__append_close(&a) == MIRT_OK,
       "a directory that may not be read is no failure");
    fail_nothing();
    const char *link = in_work("link");
    ok(symlink(path, link) == 0 && mirt__append_open(&a, link, -1) == MIRT_E_IO &&
           strstr(mirt_last_error(), "symbolic link"),
       "%s", mirt_last_error());
    fail(LOOK, EIO, 0, false);
    ok(mirt__append_open(&a, link, -1) == MIRT_E_IO && strstr(mirt_last_error(), "symbolic link"),
       "a link that cannot be looked at");
    fail_nothing();
    unlink(link);
    ok(symlink("/dev/null", link) == 0 && mirt__append_open(&a, link, 0) == MIRT_OK &&
           mirt__append(&a, "x", 1) == MIRT_OK && mirt__append_close(&a) == MIRT_OK,
       "a link to a device");
    unlink(link);
    ok(symlink("/mirrortrain-test/none", link) == 0 && mirt__append_open(&a, link, 0) == MIRT_E_IO,
       "a link to nothing: %s", mirt_last_error());
    unlink(link);
    unlink(path);
}

/* >>directories, and looking at files */

static void check_directories(void) {
    uint64_t size;
    int fd;
    ok(mirt__make_directory(in_work("a/b//c/")) == MIRT_OK && mirt__is_directory(in_work("a/b/c")),
       "directories in each other");
    ok(mirt__make_directory(in_work("a/b")) == MIRT_OK && mirt__make_directory_of(in_work("a/x/file")) == MIRT_OK &&
           mirt__is_directory(in_work("a/x")),
       "one that is there, that of a file");
    ok(mirt__make_directory_of("file") == MIRT_OK && mirt__make_directory_of("/file") == MIRT_OK &&
           mirt__make_directory("/") == MIRT_OK,
       "none to make");
    ok(mirt__make_directory("") != MIRT_OK, "one without a name: %s", mirt_last_error());
    write_text(in_work("a/file"), "");
    ok(mirt__make_directory(in_work("a/file/c")) == MIRT_E_IO && strstr(mirt_last_error(), strerror(ENOTDIR)),
       "below a file: %s", mirt_last_error());
    fail(MAKE, EACCES, 0, true);
    ok(mirt__make_directory(in_work("a/new")) == MIRT_E_IO && strstr(mirt_last_error(), "cannot create the directory"),
       "%s", mirt_last_error());
    fail(SYNC, EIO, 0, true);
    ok(mirt__make_directory(in_work("a/newer")) == MIRT_E_IO, "one that cannot be brought to the disk: %s",
       mirt_last_error());
    fail_nothing();
    ok(mirt__file_exists(in_work("a/file")) && !mirt__file_exists(in_work("a/none")) &&
           !mirt__file_exists(in_work("a/file/none")),
       "what exists");
    fail(LOOK, EACCES, 0, false);
    ok(mirt__file_exists(in_work("a/none")), "what may not be looked at counts as there");
    fail_nothing();
    ok(mirt__is_device("/dev/null") && !mirt__is_device(in_work("a/file")) && !mirt__is_device(in_work("a")) &&
           !mirt__is_device(in_work("none")),
       "devices");
    ok(mirt__file_remove(in_work("a/file")) == MIRT_OK && mirt__file_remove(in_work("a/file")) == MIRT_OK,
       "removed, and not there");
    ok(mirt__file_remove(in_work("a")) == MIRT_E_IO && strstr(mirt_last_error(), "cannot remove"), "a directory: %s",
       mirt_last_error());
    ok(mirt__file_open(in_work("a"), &fd, &size) == MIRT_E_IO && fd == -1 &&
           strstr(mirt_last_error(), "is a directory"),
       "%s", mirt_last_error());
    ok(mirt__file_open("/dev/null", &fd, &size) == MIRT_E_IO && fd == -1 &&
           strstr(mirt_last_error(), "not a regular file"),
       "%s", mirt_last_error());
    write_text(in_work("a/file"), "text");
    fail(LOOK, EIO, 0, false);
    ok(mirt__file_open(in_work("a/file"), &fd, &size) == MIRT_E_IO && fd == -1, "%s", mirt_last_error());
    fail_nothing();
    for (int pass = 0; pass < 3; pass++) {
        unsigned char *data = NULL;
        size_t bytes = 0;
        if (pass) fail(READ, pass == 1 ? EIO : EINTR, 0, false);
        const mirt_status status = mirt__file_read(in_work("a/file"), 100, &data, &bytes);
        fail_nothing();
        ok(pass == 1 ? status == MIRT_E_IO : status == MIRT_OK && bytes == 4 && memcmp(data, "text", 5) == 0,
           "reading%s",
           pass == 0   ? ""
           : pass == 1 ? " fails"
                       : " is interrupted");
        if (status == MIRT_OK) mirt__aligned_free(data);
    }
    unsigned char *data;
    size_t bytes;
    ok(mirt__file_read(in_work("a/file"), 3, &data, &bytes) == MIRT_E_FORMAT, "a file above the limit: %s",
       mirt_last_error());
}

/* >>the machine */

static void lay(const char *path, const char *text) {
    char full[700];
    snprintf(full, sizeof full, "%s%s", root, path);
    mirt__make_directory_of(full);
    write_text(full, text);
}

/* What mirt_machine says of a machine whose system files are those below `root`. */
static mirt_machine_info machine_now(void) {
    mirt_machine_info m;
    if (mirt_machine(&m) != MIRT_OK) memset(&m, 0, sizeof m);
    return m;
}

static void fresh_root(const char *name) { snprintf(root, sizeof root, "%s/%s", work_directory(), name); }

static void check_machine(void) {
    enum { MIB = 1 << 20 };
    fresh_root("nothing");
    mirt_machine_info m = machine_now();
    ok(m.cores > 0 && m.memory_total > 0 && m.memory_available == m.memory_total && !m.memory_limit &&
           m.core_limit == 0,
       "a machine without /proc and /sys: all of its memory");
    fresh_root("plain");
    lay("/proc/meminfo", "MemTotal: 900 kB\nMemAvailable:   2048 kB\n");
    m = machine_now();
    ok(m.memory_available == 2 * MIB && !m.memory_limit, "memory that is available");
    lay("/proc/meminfo", "MemTotal: 900 kB");
    m = machine_now();
    ok(m.memory_available == m.memory_total, "a system that does not say what is available");
    fresh_root("nested");
    lay("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    lay("/proc/self/cgroup", "1:name=x:/y\n0::/outer/inner\n");
    lay("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    lay("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    lay("/sys/fs/cgroup/outer/memory.max", "104857600\n"); /* 100 MiB */
    lay("/sys/fs/cgroup/outer/memory.current", "52428800\n");
    lay("/sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 20971520\nfile 3\n");
    lay("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
    m = machine_now();
    ok(m.memory_limit == 100u * MIB && m.memory_available == 70u * MIB,
       "the limit of a group around ours; cached files give way: %llu, %llu", (unsigned long long)m.memory_limit,
       (unsigned long long)m.memory_available);
    ok(m.core_limit == 1.5, "one and a half cores' time: %g", m.core_limit);
    lay("/sys/fs/cgroup/outer/inner/memory.max", "62914560\n"); /* 60 MiB */
    lay("/sys/fs/cgroup/outer/inner/memory.current", "73400320\n");
    lay("/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n");
    m = machine_now();
    ok(m.memory_limit == 60u * MIB && m.memory_available == 0 && m.core_limit == 0.5,
       "the narrowest limit of all groups; more than it is taken");
    lay("/sys/fs/cgroup/outer/inner/memory.current", "x\n");
    lay("/sys/fs/cgroup/outer/inner/cpu.max", "200000 100000\n");
    m = machine_now();
    ok(m.memory_limit == 60u * MIB && m.memory_available == 70u * MIB && m.core_limit == 1.5,
       "a group that does not say what is taken, and allows more time");
    lay("/sys/fs/cgroup/outer/inner/cpu.max", "-5 100000\n");
    lay("/sys/fs/cgroup/outer/cpu.max", "100000 0\n");
    m = machine_now();
    ok(m.core_limit == 0, "times that make no sense are no limit");
    fresh_root("old");
    lay("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    lay("/proc/self/cgroup", "0::/\n");
    lay("/sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
    lay("/sys/fs/cgroup/memory/memory.usage_in_bytes", "94371840\n");
    m = machine_now();
    ok(m.memory_limit == 100u * MIB && m.memory_available == 10u * MIB, "groups of the first version");
    lay("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    m = machine_now();
    ok(!m.memory_limit && m.memory_available == 1024u * MIB, "a limit above the machine's memory is none");
    fail(READ, EIO, 0, true);
    m = machine_now();
    fail_nothing();
    ok(!m.memory_limit && m.memory_available == m.memory_total, "files that cannot be read are as none");
    root[0] = 0;
}

int main(void) {
    char command[400];
    check_write();
    check_logs();
    check_directories();
    check_machine();
    ok(live_blocks == 0, "%ld blocks are left", live_blocks);
    snprintf(command, sizeof command, "rm -rf '%s'", work_directory());
    ok(system(command) == 0, "cleaned up");
    return done_testing();
}
