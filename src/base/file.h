#ifndef MIRT__FILE_H
#define MIRT__FILE_H
/* Files: reading in parts or whole, replacing atomically, appending to logs. */

#include "base.h"

/* The hooks listed in file.c that other files need, too. */
#ifndef MIRRORTRAIN_STAT
#define MIRRORTRAIN_STAT(path, info) stat(path, info)
#endif
#ifndef MIRRORTRAIN_OPENDIR
#define MIRRORTRAIN_OPENDIR(path) opendir(path)
#endif

/* Sets the error "path: what: reason" from errno: MIRT_E_NOT_FOUND, MIRT_E_NOMEM or MIRT_E_IO. */
MIRT__LIB mirt_status mirt__file_fail(const char *path, const char *what);
/* Opens a regular file for reading and returns its size: MIRT_E_NOT_FOUND, MIRT_E_IO. *fd is -1 after a failure, which
   mirt__file_close accepts. */
MIRT__LIB mirt_status mirt__file_open(const char *path, int *fd, uint64_t *size);
MIRT__LIB void mirt__file_close(int *fd);
/* Returns the number of bytes read, less than `size` only at the end of the file; -1 and errno. */
MIRT__LIB int64_t mirt__file_read_at(int fd, uint64_t offset, void *data, size_t size);
/* False only if `path` does not exist. */
MIRT__LIB bool mirt__file_exists(const char *path);

MIRT__LIB bool mirt__is_directory(const char *path);
/* Whether `path` is neither a file nor a directory, such as a pipe or /dev/null, whose data cannot be read again. */
MIRT__LIB bool mirt__is_device(const char *path);
/* Creates the missing parent directories of `path`; they survive a power failure. */
MIRT__LIB mirt_status mirt__make_directory_of(const char *path);
/* Removes a file; not an error if it does not exist. */
MIRT__LIB mirt_status mirt__file_remove(const char *path);
/* Reads the beginning of a system file as text, at most `capacity` - 1 bytes; "" without an error if it does not
   exist. */
MIRT__LIB void mirt__file_peek(const char *path, char *text, size_t capacity);

/* Reads all of `path` into *data, which mirt__aligned_free frees; one zero byte follows the *size
   bytes. MIRT_E_NOT_FOUND, MIRT_E_IO, MIRT_E_NOMEM; MIRT_E_FORMAT above `limit` bytes. */
MIRT__LIB mirt_status mirt__file_read(const char *path, size_t limit, unsigned char **data, size_t *size);

/* A part of a file. */
typedef struct mirt__file_part {
    const char *path, *name; /* the file, and what errors call the part */
    uint64_t offset, size;   /* of MIRT__WHOLE_FILE: to the end */
} mirt__file_part;
#define MIRT__WHOLE_FILE UINT64_MAX
/* The same for a part; MIRT_E_FORMAT also if the file ends before the part does. */
MIRT__LIB mirt_status mirt__file_read_part(const mirt__file_part *part, size_t limit, unsigned char **data,
                                           size_t *size);

/* A file that is written next to `path` under a temporary name and replaces it after everything has been synced. Until
   then, and after any failure, an existing file at `path` is unchanged. A symbolic link at `path` is replaced itself.
   Every begun writer ends with exactly one commit or abort. */
typedef struct mirt__file_writer {
    int fd;              /* -1: not begun, or ended */
    uint64_t size;       /* bytes appended */
    char *path, *temporary;
    mirt_status status;  /* the first failure; it makes all later calls fail */
} mirt__file_writer;

/* On failure abort is not needed, but allowed. */
MIRT__LIB mirt_status mirt__file_begin(mirt__file_writer *writer, const char *path);
MIRT__LIB mirt_status mirt__file_append(mirt__file_writer *writer, const void *data, size_t size);
/* Overwrites bytes that were appended earlier. */
MIRT__LIB mirt_status mirt__file_patch(mirt__file_writer *writer, uint64_t offset, const void *data, size_t size);
/* If only syncing the directory fails, the new file is at `path` nevertheless, and the message says so. */
MIRT__LIB mirt_status mirt__file_commit(mirt__file_writer *writer);
MIRT__LIB void mirt__file_abort(mirt__file_writer *writer);

/* A file to append to, such as a log: written data survive when the program is killed. */
typedef struct mirt__appender {
    int fd; /* -1: not open */
    uint64_t size;
    char *path;
    bool entered; /* its directory has been synced since it was opened */
} mirt__appender;

/* Creates the file, or keeps the first `keep` bytes of an existing one; negative: all of it. A symbolic link is
   followed only to a device or a pipe. */
MIRT__LIB mirt_status mirt__append_open(mirt__appender *appender, const char *path, int64_t keep);
/* After a failure the file is truncated to its previous end, or the next write begins there. */
MIRT__LIB mirt_status mirt__append(mirt__appender *appender, const void *data, size_t size);
/* Makes the data written so far survive a power failure. */
MIRT__LIB mirt_status mirt__append_sync(mirt__appender *appender);
MIRT__LIB mirt_status mirt__append_close(mirt__appender *appender);
/* Creates a directory and its missing parents. */
MIRT__LIB mirt_status mirt__make_directory(const char *path);

#endif
