#ifndef MIRT__FILE_H
#define MIRT__FILE_H
/* Files: read piece by piece or whole, or replaced atomically. */

#include "base.h"

/* What more than one file needs of the calls that file.c lists. */
#ifndef MIRRORTRAIN_STAT
#define MIRRORTRAIN_STAT(path, info) stat(path, info)
#endif
#ifndef MIRRORTRAIN_OPENDIR
#define MIRRORTRAIN_OPENDIR(path) opendir(path)
#endif

/* Opens a regular file for reading and says its size: MIRT_E_NOT_FOUND, MIRT_E_IO. *fd is -1 after a
   failure, which mirt__file_close allows. */
MIRT__LIB mirt_status mirt__file_open(const char *path, int *fd, uint64_t *size);
MIRT__LIB void mirt__file_close(int *fd);
/* Bytes read, fewer than `size` only at the end of the file; -1 and errno. */
MIRT__LIB int64_t mirt__file_read_at(int fd, uint64_t offset, void *data, size_t size);
/* False only if nothing is there. */
MIRT__LIB bool mirt__file_exists(const char *path);

MIRT__LIB bool mirt__is_directory(const char *path);
/* Something that is neither a file nor a directory, such as a pipe or /dev/null: it keeps no bytes to look at. */
MIRT__LIB bool mirt__is_device(const char *path);
/* Makes the directory that `path` lies in, and those above it, unless they are there; they outlast a power failure. */
MIRT__LIB mirt_status mirt__make_directory_of(const char *path);
/* Removes a file; that it is not there is no failure. */
MIRT__LIB mirt_status mirt__file_remove(const char *path);
/* The beginning of a file of the system's as text, at most `capacity` - 1 bytes of it; "" and no error where there is
   none. */
MIRT__LIB void mirt__file_peek(const char *path, char *text, size_t capacity);

/* Reads all of `path` into *data, which mirt__aligned_free frees; one zero byte follows the *size
   bytes. MIRT_E_NOT_FOUND, MIRT_E_IO, MIRT_E_NOMEM; MIRT_E_FORMAT above `limit` bytes. */
MIRT__LIB mirt_status mirt__file_read(const char *path, size_t limit, unsigned char **data, size_t *size);

/* A file that is written beside `path` under a temporary name and takes its place only when
   everything is on the disk. Until then, and after any failure, what was at `path` stays as it
   was. A symbolic link at `path` is replaced itself. Every begun writer ends in exactly one commit
   or abort. */
typedef struct mirt__file_writer {
    int fd;              /* -1: not begun, or ended */
    uint64_t size;       /* bytes appended */
    char *path, *temporary;
    mirt_status status;  /* the first failure; it makes all later calls fail */
} mirt__file_writer;

/* On failure there is nothing to abort (but abort is allowed). */
MIRT__LIB mirt_status mirt__file_begin(mirt__file_writer *writer, const char *path);
MIRT__LIB mirt_status mirt__file_append(mirt__file_writer *writer, const void *data, size_t size);
/* Overwrites bytes that were appended before. */
MIRT__LIB mirt_status mirt__file_patch(mirt__file_writer *writer, uint64_t offset, const void *data, size_t size);
/* The only failure after which the new file stands at `path` is that its directory could not be
   synced; the message says so. */
MIRT__LIB mirt_status mirt__file_commit(mirt__file_writer *writer);
MIRT__LIB void mirt__file_abort(mirt__file_writer *writer);

/* A file that grows at its end, such as a log: what was written stays when the program is killed. */
typedef struct mirt__appender {
    int fd; /* -1: not open */
    uint64_t size;
    char *path;
    bool entered; /* its directory was synced since it was opened */
} mirt__appender;

/* Makes the file, or keeps the first `keep` bytes of what is there; negative: all of it. A symbolic link is followed
   only to a device or a pipe. */
MIRT__LIB mirt_status mirt__append_open(mirt__appender *appender, const char *path, int64_t keep);
/* After a failure the file ends where it did, or the next write begins there. */
MIRT__LIB mirt_status mirt__append(mirt__appender *appender, const void *data, size_t size);
/* What was written so far stays when power fails, too. */
MIRT__LIB mirt_status mirt__append_sync(mirt__appender *appender);
MIRT__LIB mirt_status mirt__append_close(mirt__appender *appender);
/* Makes a directory, and those it lies in, unless they are there. */
MIRT__LIB mirt_status mirt__make_directory(const char *path);

#endif
