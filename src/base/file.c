/* Reads and writes files through hooks that the including program may replace. */

#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* Every access to a file goes through these; the manual documents them. */
#ifndef MIRRORTRAIN_OPEN
#define MIRRORTRAIN_OPEN(path, flags, mode) open(path, flags, mode)
#endif
#ifndef MIRRORTRAIN_CLOSE
#define MIRRORTRAIN_CLOSE(fd) close(fd)
#endif
#ifndef MIRRORTRAIN_FSTAT
#define MIRRORTRAIN_FSTAT(fd, info) fstat(fd, info)
#endif
#ifndef MIRRORTRAIN_PREAD
#define MIRRORTRAIN_PREAD(fd, data, size, offset) pread(fd, data, size, offset)
#endif
#ifndef MIRRORTRAIN_PWRITE
#define MIRRORTRAIN_PWRITE(fd, data, size, offset) pwrite(fd, data, size, offset)
#endif
#ifndef MIRRORTRAIN_FSYNC
#define MIRRORTRAIN_FSYNC(fd) fsync(fd)
#endif
#ifndef MIRRORTRAIN_RENAME
#define MIRRORTRAIN_RENAME(from, to) rename(from, to)
#endif
#ifndef MIRRORTRAIN_UNLINK
#define MIRRORTRAIN_UNLINK(path) unlink(path)
#endif
#ifndef MIRRORTRAIN_FTRUNCATE
#define MIRRORTRAIN_FTRUNCATE(fd, size) ftruncate(fd, size)
#endif

#ifndef MIRRORTRAIN_MKDIR
#define MIRRORTRAIN_MKDIR(path, mode) mkdir(path, mode)
#endif

/* Systems refuse or shorten transfers beyond 2 GiB. */
#define MIRT__FILE_CHUNK ((size_t)1 << 30)

MIRT__LIB mirt_status mirt__file_fail(const char *path, const char *what) {
    int code = errno;
    mirt_status status = code == ENOENT ? MIRT_E_NOT_FOUND : code == ENOMEM ? MIRT_E_NOMEM : MIRT_E_IO;
    return mirt__fail(status, "%s: %s: %s", path, what, strerror(code));
}

static mirt_status mirt__file_fail_pipe(const char *path) {
    return mirt__fail(MIRT_E_IO,
                      "%s: is a pipe or a terminal, which cannot be written at a position; name a regular "
                      "file",
                      path);
}

static mirt_status mirt__file_too_large(const char *path, size_t limit) {
    return mirt__fail(MIRT_E_FORMAT, "%s: the file is larger than the limit of %zu bytes", path, limit);
}

static int mirt__file_open_as(const char *path, int flags, mode_t mode) {
    int fd;
    do fd = MIRRORTRAIN_OPEN(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

MIRT__LIB int64_t mirt__file_read_at(int fd, uint64_t offset, void *data, size_t size) {
    size_t done = 0;
    while (done < size) {
        size_t chunk = size - done < MIRT__FILE_CHUNK ? size - done : MIRT__FILE_CHUNK;
        ssize_t got = MIRRORTRAIN_PREAD(fd, (unsigned char *)data + done, chunk, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

MIRT__LIB bool mirt__file_exists(const char *path) {
    struct stat info;
    return MIRRORTRAIN_STAT(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* The kind and permissions of what is at `path`; 0: nothing. */
static mode_t mirt__file_mode(const char *path) {
    struct stat info;
    return MIRRORTRAIN_STAT(path, &info) == 0 ? info.st_mode : 0;
}

MIRT__LIB bool mirt__is_directory(const char *path) { return S_ISDIR(mirt__file_mode(path)); }

MIRT__LIB bool mirt__is_device(const char *path) {
    const mode_t mode = mirt__file_mode(path);
    return mode && !S_ISREG(mode) && !S_ISDIR(mode);
}

MIRT__LIB mirt_status mirt__file_remove(const char *path) {
    return MIRRORTRAIN_UNLINK(path) == 0 || errno == ENOENT ? MIRT_OK : mirt__file_fail(path, "cannot remove the file");
}

MIRT__LIB mirt_status mirt__file_open(const char *path, int *fd, uint64_t *size) {
    struct stat info;
    mirt_status status = MIRT_OK;
    *fd = mirt__file_open_as(path, O_RDONLY | O_NONBLOCK, 0); /* opening a pipe without a writer must not block */
    if (*fd < 0) return mirt__file_fail(path, "cannot open");
    if (MIRRORTRAIN_FSTAT(*fd, &info) != 0) status = mirt__file_fail(path, "cannot get the status of the file");
    else if (S_ISDIR(info.st_mode)) status = mirt__fail(MIRT_E_IO, "%s: is a directory, but must be a file", path);
    else if (!S_ISREG(info.st_mode)) status = mirt__fail(MIRT_E_IO, "%s: is not a regular file", path);
    *size = status == MIRT_OK ? (uint64_t)info.st_size : 0;
    if (status != MIRT_OK) mirt__file_close(fd);
    return status;
}

MIRT__LIB void mirt__file_close(int *fd) {
    if (*fd >= 0) MIRRORTRAIN_CLOSE(*fd); /* closing a descriptor that was only read loses no data */
    *fd = -1;
}

MIRT__LIB void mirt__file_peek(const char *path, char *text, size_t capacity) {
    int fd = mirt__file_open_as(path, O_RDONLY | O_NONBLOCK, 0);
    int64_t got = fd < 0 ? 0 : mirt__file_read_at(fd, 0, text, capacity - 1);
    mirt__file_close(&fd);
    text[got < 0 ? 0 : got] = 0;
}

/* Allocates `capacity` bytes and the final 0, keeping the first `used`. */
static bool mirt__file_reserve(unsigned char **data, size_t used, size_t capacity) {
    size_t bytes;
    if (!mirt__add_size(capacity, 1, &bytes)) return mirt__no_memory(SIZE_MAX) != NULL;
    unsigned char *bigger = (unsigned char *)mirt__aligned_alloc(bytes);
    if (!bigger) return false;
    if (used > 0) memcpy(bigger, *data, used);
    mirt__aligned_free(*data);
    *data = bigger;
    return true;
}

/* Reads to the end into *data, which the caller frees even after a failure. `expected` is a hint:
   a file may still be growing. */
static mirt_status mirt__file_read_all(const char *path, int fd, size_t expected, size_t limit, unsigned char **data,
                                       size_t *size) {
    size_t capacity = 0;
    for (;;) {
        if (*size == capacity) {
            /* One byte more than expected, so that the end is detected without growing. */
            size_t wanted = capacity == 0 ? expected : capacity < limit / 2 ? capacity * 2 : limit;
            if (wanted < 4096) wanted = 4096;
            capacity = wanted + 1;
            if (!mirt__file_reserve(data, *size, capacity)) return mirt_last_status();
        }
        int64_t got = mirt__file_read_at(fd, *size, *data + *size, capacity - *size);
        if (got < 0) return mirt__file_fail(path, "cannot read");
        if (got == 0) break;
        *size += (size_t)got;
        if (*size > limit) return mirt__file_too_large(path, limit);
    }
    (*data)[*size] = 0;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__file_read(const char *path, size_t limit, unsigned char **data, size_t *size) {
    uint64_t expected = 0;
    int fd;
    *data = NULL;
    *size = 0;
    if (limit > SIZE_MAX / 4) limit = SIZE_MAX / 4;
    mirt_status status = mirt__file_open(path, &fd, &expected);
    if (status == MIRT_OK && expected > limit) status = mirt__file_too_large(path, limit);
    if (status == MIRT_OK) status = mirt__file_read_all(path, fd, (size_t)expected, limit, data, size);
    mirt__file_close(&fd);
    if (status != MIRT_OK) {
        mirt__aligned_free(*data);
        *data = NULL;
        *size = 0;
    }
    return status;
}

MIRT__LIB mirt_status mirt__file_read_part(const mirt__file_part *part, size_t limit, unsigned char **data,
                                           size_t *size) {
    uint64_t length;
    int fd;
    if (part->size == MIRT__WHOLE_FILE) return mirt__file_read(part->path, limit, data, size);
    *data = NULL;
    *size = 0;
    if (part->size > limit) return mirt__file_too_large(part->name, limit);
    mirt_status status = mirt__file_open(part->path, &fd, &length);
    if (status == MIRT_OK && mirt__file_reserve(data, 0, (size_t)part->size)) {
        const int64_t got = mirt__file_read_at(fd, part->offset, *data, (size_t)part->size);
        if (got < 0) status = mirt__file_fail(part->name, "cannot read");
        else if ((uint64_t)got < part->size)
            status = mirt__fail(MIRT_E_FORMAT, "%s: %s has become shorter since it was opened", part->name, part->path);
        else (*data)[*size = (size_t)got] = 0;
    } else if (status == MIRT_OK) {
        status = mirt_last_status();
    }
    mirt__file_close(&fd);
    if (status != MIRT_OK) mirt__aligned_free(*data);
    if (status != MIRT_OK) *data = NULL;
    return status;
}

/* >>temporary files */

#define MIRT__TEMPORARY_BYTES 48 /* bytes of a name in addition to those of the path */

/* Creates a new file "PATH.PROCESS-NUMBER.tmp" next to `path`. The number is hard to guess, so the name is rarely
   taken; existing files and links with that name are neither opened nor followed (O_EXCL), and another number is drawn.
   -1 and errno. */
static int mirt__file_open_temporary(const char *path, char *name, size_t capacity, mode_t mode) {
    int fd = -1;
    const uint64_t date = (uint64_t)(mirt__clock() * 1e9), time = (uint64_t)(mirt__now() * 1e9);
    mirt__random numbers = mirt__random_stream(date ^ (uint64_t)(uintptr_t)name << 20, (uint64_t)getpid() ^ time << 24);
    for (int attempt = 0; attempt < 1000 && fd < 0; attempt++) {
        snprintf(name, capacity, "%s.%ld-%d.tmp", path, (long)getpid(), (int)(mirt__random_u32(&numbers) >> 1));
        fd = mirt__file_open_as(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        if (fd < 0 && errno != EEXIST) break;
    }
    return fd;
}

MIRT_API int mirt_create_temporary(const char *path, char *name, size_t size) {
    if (!path || !name) return mirt__fail_missing(__func__, path ? "buffer for the name" : "path"), -1;
    name[0] = 0;
    if (size < strlen(path) + MIRT__TEMPORARY_BYTES) {
        mirt__fail(MIRT_E_INVALID, "mirt_create_temporary: the buffer has %zu bytes; the name needs %zu", size,
                   strlen(path) + MIRT__TEMPORARY_BYTES);
        return -1;
    }
    const int fd = mirt__file_open_temporary(path, name, size, 0600);
    if (fd < 0) {
        const int code = errno;
        name[0] = 0;
        mirt__file_fail(path, "cannot create a temporary file in its directory");
        errno = code;
    }
    return fd;
}

/* >>files replaced atomically */

static void mirt__file_forget(mirt__file_writer *writer) {
    mirt__free(writer->path);
    mirt__free(writer->temporary);
    writer->path = writer->temporary = NULL;
    writer->fd = -1;
}

MIRT__LIB mirt_status mirt__file_begin(mirt__file_writer *writer, const char *path) {
    const mode_t mode = mirt__file_mode(path);
    memset(writer, 0, sizeof *writer);
    writer->fd = -1;
    /* Replacing /dev/null or a pipe by a file would break other programs. */
    if (mode && !S_ISREG(mode))
        return writer->status = mirt__fail(MIRT_E_IO, "%s: is not a regular file, so it cannot be replaced", path);
    size_t capacity = strlen(path) + MIRT__TEMPORARY_BYTES;
    writer->path = mirt__strdup(path);
    writer->temporary = (char *)mirt__calloc(capacity, 1);
    writer->status = MIRT_E_NOMEM;
    if (writer->path && writer->temporary) {
        /* Keeps the permissions of a private file. */
        writer->fd = mirt__file_open_temporary(path, writer->temporary, capacity, mode ? mode & 0777 : 0666);
        writer->status =
            writer->fd >= 0 ? MIRT_OK : mirt__file_fail(path, "cannot create a temporary file in its directory");
    }
    if (writer->status != MIRT_OK) mirt__file_forget(writer);
    return writer->status;
}

static mirt_status mirt__file_write_at(int fd, const char *path, uint64_t offset, const void *data, size_t size) {
    const unsigned char *from = (const unsigned char *)data;
    while (size > 0) {
        size_t chunk = size < MIRT__FILE_CHUNK ? size : MIRT__FILE_CHUNK;
        ssize_t put = MIRRORTRAIN_PWRITE(fd, from, chunk, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC;
        if (put < 0 && errno == ESPIPE) return mirt__file_fail_pipe(path);
        if (put <= 0) return mirt__file_fail(path, "cannot write");
        from += put;
        offset += (uint64_t)put;
        size -= (size_t)put;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__file_patch(mirt__file_writer *writer, uint64_t offset, const void *data, size_t size) {
    if (writer->status == MIRT_OK) writer->status = mirt__file_write_at(writer->fd, writer->path, offset, data, size);
    return writer->status;
}

MIRT__LIB mirt_status mirt__file_append(mirt__file_writer *writer, const void *data, size_t size) {
    mirt_status status = mirt__file_patch(writer, writer->size, data, size);
    if (status == MIRT_OK) writer->size += size;
    return status;
}

/* Opens the directory of `path` for syncing, which makes a rename survive a power failure. -1 if that is not
   possible. */
static int mirt__file_open_directory(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return mirt__file_open_as(".", O_RDONLY, 0);
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    char *directory = (char *)mirt__calloc(length + 1, 1);
    if (!directory) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(directory, path, length);
    int fd = mirt__file_open_as(directory, O_RDONLY, 0);
    int code = errno;
    mirt__free(directory);
    errno = code;
    return fd;
}

static bool mirt__file_sync(int fd) {
    int result;
    do result = MIRRORTRAIN_FSYNC(fd);
    while (result != 0 && errno == EINTR);
    /* Some file systems do not support it; other errors are real. */
    return result == 0 || errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
}

/* Syncs the directory of `path`, so that its entry survives a power failure. */
static mirt_status mirt__file_sync_entry(const char *path) {
    int directory = mirt__file_open_directory(path);
    if (directory < 0)
        return errno == EACCES ? MIRT_OK
                               : mirt__file_fail(path, "cannot open its directory"); /* see mirt__file_commit */
    const bool synced = mirt__file_sync(directory);
    mirt_status status = synced ? MIRT_OK : mirt__file_fail(path, "cannot sync its directory");
    mirt__file_close(&directory);
    return status;
}

/* Renames the finished temporary file. */
static mirt_status mirt__file_replace(mirt__file_writer *writer, int directory) {
    if (!mirt__file_sync(writer->fd)) return mirt__file_fail(writer->path, "cannot sync the file");
    int fd = writer->fd;
    writer->fd = -1;
    /* After EINTR the descriptor is closed nevertheless, and its data are safe. */
    if (MIRRORTRAIN_CLOSE(fd) != 0 && errno != EINTR) return mirt__file_fail(writer->path, "cannot close the file");
    if (MIRRORTRAIN_RENAME(writer->temporary, writer->path) != 0)
        return mirt__file_fail(writer->path, "cannot put the new file in place of the old one");
    writer->temporary[0] = 0;
    if (directory >= 0 && !mirt__file_sync(directory))
        return mirt__file_fail(writer->path, "the new file is in place, but may not survive a power failure");
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__file_commit(mirt__file_writer *writer) {
    if (writer->status == MIRT_OK) {
        int directory = mirt__file_open_directory(writer->path);
        /* A directory that is writable but not readable cannot be synced; the file is written nevertheless. */
        if (directory < 0 && errno != EACCES)
            writer->status = mirt__file_fail(writer->path, "cannot open its directory");
        else writer->status = mirt__file_replace(writer, directory);
        if (directory >= 0) MIRRORTRAIN_CLOSE(directory);
    }
    mirt_status status = writer->status;
    mirt__file_abort(writer);
    return status;
}

MIRT__LIB void mirt__file_abort(mirt__file_writer *writer) {
    if (writer->fd >= 0) MIRRORTRAIN_CLOSE(writer->fd);
    if (writer->temporary && writer->temporary[0]) MIRRORTRAIN_UNLINK(writer->temporary);
    mirt__file_forget(writer);
}

MIRT_API mirt_status mirt_write_file(const char *path, const void *data, size_t size) {
    mirt__file_writer writer;
    if (!path || (!data && size)) return mirt__fail_missing(__func__, path ? "data" : "path");
    if (mirt__file_begin(&writer, path) == MIRT_OK) mirt__file_append(&writer, data, size);
    if (writer.status == MIRT_OK) return mirt__file_commit(&writer);
    const mirt_status status = writer.status;
    mirt__file_abort(&writer);
    return status;
}

/* >>logs */

static mirt_status mirt__append_prepare(mirt__appender *a, int64_t keep) {
    struct stat info;
    if (MIRRORTRAIN_FSTAT(a->fd, &info) != 0) return mirt__file_fail(a->path, "cannot get the status of the file");
    if (!S_ISREG(info.st_mode)) return MIRT_OK; /* a pipe or /dev/null has no end to seek */
    if (keep >= 0 && info.st_size > (off_t)keep) {
        if (MIRRORTRAIN_FTRUNCATE(a->fd, (off_t)keep) != 0) return mirt__file_fail(a->path, "cannot shorten the file");
        info.st_size = (off_t)keep;
    }
    a->size = (uint64_t)info.st_size;
    return MIRT_OK;
}

static mirt_status mirt__append_forget(mirt__appender *a, mirt_status status) {
    mirt__file_close(&a->fd);
    mirt__free(a->path);
    a->path = NULL;
    return status;
}

/* `path` is a symbolic link. One to a device or a pipe, such as /dev/stdout, is followed; a file that it points to may
   belong to somebody else and must not be truncated. */
static mirt_status mirt__append_follow(mirt__appender *a, const char *path) {
    struct stat info;
    a->fd = mirt__file_open_as(path, O_WRONLY | O_NONBLOCK, 0);
    if (a->fd >= 0 && MIRRORTRAIN_FSTAT(a->fd, &info) == 0 && !S_ISREG(info.st_mode)) return MIRT_OK;
    return mirt__append_forget(
        a, mirt__fail(MIRT_E_IO,
                      "%s: is a symbolic link, and logs do not follow links to files: remove it, or name the file it "
                      "points to",
                      path));
}

MIRT__LIB mirt_status mirt__append_open(mirt__appender *a, const char *path, int64_t keep) {
    memset(a, 0, sizeof *a);
    a->fd = -1;
    if (!(a->path = mirt__strdup(path))) return mirt_last_status();
    a->fd = mirt__file_open_as(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW, 0666);
    if (a->fd < 0 && (errno == ELOOP || errno == EMLINK)) return mirt__append_follow(a, path);
    mirt_status status = a->fd >= 0       ? mirt__append_prepare(a, keep)
                         : errno == ENXIO ? mirt__file_fail_pipe(path) /* it has no reader yet */
                                          : mirt__file_fail(path, "cannot open for writing");
    return status == MIRT_OK ? MIRT_OK : mirt__append_forget(a, status);
}

MIRT__LIB mirt_status mirt__append(mirt__appender *a, const void *data, size_t size) {
    if (a->fd < 0) return mirt__fail(MIRT_E_STATE, "cannot write to a log that is not open");
    mirt_status status = mirt__file_write_at(a->fd, a->path, a->size, data, size);
    if (status == MIRT_OK) a->size += size;
    return status;
}

MIRT__LIB mirt_status mirt__append_sync(mirt__appender *a) {
    if (a->fd < 0) return MIRT_OK;
    if (!mirt__file_sync(a->fd)) return mirt__file_fail(a->path, "cannot sync the file");
    mirt_status status = a->entered ? MIRT_OK : mirt__file_sync_entry(a->path);
    a->entered = status == MIRT_OK;
    return status;
}

MIRT__LIB mirt_status mirt__append_close(mirt__appender *a) {
    const int fd = a->fd;
    a->fd = -1;
    return mirt__append_forget(a, fd < 0 || MIRRORTRAIN_CLOSE(fd) == 0 || errno == EINTR
                                      ? MIRT_OK
                                      : mirt__file_fail(a->path, "cannot close the file"));
}

/* Creates `path` unless it exists, and syncs its parent, so that files synced in it survive a power failure. */
static mirt_status mirt__make_one_directory(const char *path) {
    if (MIRRORTRAIN_MKDIR(path, 0777) == 0) return mirt__file_sync_entry(path);
    const int code = errno;
    const mode_t mode = mirt__file_mode(path);
    if (S_ISDIR(mode)) return MIRT_OK;
    errno = mode ? ENOTDIR : code;
    return mirt__file_fail(path, "cannot create the directory");
}

MIRT__LIB mirt_status mirt__make_directory(const char *path) {
    mirt_status status = MIRT_OK;
    char *copy = mirt__strdup(path);
    if (!copy) return mirt_last_status();
    for (char *at = copy + 1; *copy && *at && status == MIRT_OK; at++) {
        if (*at != '/' || at[-1] == '/') continue;
        *at = 0;
        status = mirt__make_one_directory(copy);
        *at = '/';
    }
    if (status == MIRT_OK) status = mirt__make_one_directory(copy);
    mirt__free(copy);
    return status;
}

MIRT__LIB mirt_status mirt__make_directory_of(const char *path) {
    char *copy = mirt__strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    mirt_status status = copy ? MIRT_OK : MIRT_E_NOMEM;
    if (slash && slash > copy) {
        *slash = 0;
        status = mirt__make_directory(copy);
    }
    mirt__free(copy);
    return status;
}

#undef MIRT__FILE_CHUNK
#undef MIRT__TEMPORARY_BYTES
