#ifndef MIRT__TAR_H
#define MIRT__TAR_H
/* Reads the members of tar archives: ustar, pax, GNU's long names. */

#include "../base/file.h"

#define MIRT__TAR_BLOCK 512
#define MIRT__TAR_WINDOW (8 * MIRT__TAR_BLOCK)

/* An archive that is read from its begin to its end. All offsets and sizes are checked against the file's size. */
typedef struct mirt__tar {
    const char *path;
    int fd;
    uint64_t file_size;
    uint64_t at; /* offset of the next header */
    uint64_t window; /* offset of the bytes that are held */
    size_t held;
    unsigned char bytes[MIRT__TAR_WINDOW];
    mirt__text given; /* the name that a header of its own gives the next member; without data: none */
    uint64_t given_size; /* likewise; UINT64_MAX: none */
    mirt__text name; /* of the member */
    uint64_t offset, size; /* of its content in the file */
} mirt__tar;

/* `path` must live as long. On failure closing is not needed, but allowed. */
MIRT__LIB mirt_status mirt__tar_open(mirt__tar *tar, const char *path);
/* The next regular file, into name, offset and size; *got is false at the archive's end. MIRT_E_FORMAT: damaged, cut
   short, compressed, or with sparse members; the sentence names the archive. */
MIRT__LIB mirt_status mirt__tar_next(mirt__tar *tar, bool *got);
/* `size` bytes at `offset`, at most a window of them, valid until the next call; NULL with the error set. */
MIRT__LIB const unsigned char *mirt__tar_bytes(mirt__tar *tar, uint64_t offset, size_t size);
MIRT__LIB void mirt__tar_close(mirt__tar *tar);

#endif
