#ifndef MIRT__SAFETENSORS_H
#define MIRT__SAFETENSORS_H
/* Reads and writes the safetensors format. That is 8 bytes of header length, a JSON header, the tensors' bytes, all
   little endian. Files written by this library also contain checksums in their metadata:
     mirrortrain.crc32c  JSON, {"tensor": "8 hexadecimal digits"}: CRC-32C of each tensor's bytes
     mirrortrain.sha256  SHA-256 of all tensor bytes, 64 digits
     mirrortrain.header  CRC-32C of the header in which these 8 digits are zeros
   A reader that finds one of them expects all three and verifies them. Files of other programs, without them, are also
   read. */

#include "../base/base.h"
#include "../base/digest.h"
#include "json.h"

#define MIRT__ST_RANK 8
#define MIRT__ST_HEADER_LIMIT 100000000

/* Name of a dtype and bytes of an element. */
#define MIRT__ST_DTYPE_LIST(X) \
    X(BOOL, 1) X(U8, 1) X(I8, 1) X(F8_E5M2, 1) X(F8_E4M3, 1) X(F8_E8M0, 1) X(I16, 2) X(U16, 2) X(F16, 2) X(BF16, 2) \
    X(I32, 4) X(U32, 4) X(F32, 4) X(C64, 8) X(F64, 8) X(I64, 8) X(U64, 8)

typedef enum mirt__st_dtype {
#define MIRT__ST_ENUM(name, size) MIRT__ST_##name,
    MIRT__ST_DTYPE_LIST(MIRT__ST_ENUM)
#undef MIRT__ST_ENUM
    MIRT__ST_DTYPE_COUNT
} mirt__st_dtype;

typedef struct mirt__safetensor {
    const char *name;
    mirt__st_dtype dtype;
    int rank;
    int64_t dim[MIRT__ST_RANK];
    size_t size;      /* bytes; set by the reader, computed by the writer */
    size_t at;        /* of the first among the file's bytes of tensors; set by the reader */
    const void *data; /* not aligned if read from a file; NULL if it is still there */
} mirt__safetensor;

/* A file that has been read, or whose tensors are read when they are asked for. */
typedef struct mirt__safetensors {
    mirt__safetensor *tensor; /* in the header's order */
    int count;
    const mirt__json *metadata; /* an object of strings, or NULL */
    const unsigned char *data;  /* bytes of all tensors; NULL: they are in the file, from `begin` on */
    size_t data_size;
    char sha256[MIRT__SHA256_HEX]; /* SHA-256 of these, "" if the file has none */
    const char *origin;         /* the path, or "memory" */
    unsigned char *owned;
    bool is_open;
    int fd; /* if it is open */
    uint64_t begin;
    mirt__pool pool;
} mirt__safetensors;

/* Reads and checks a whole file, or a block that is borrowed until close. Any failure closes the file; the message
   names the file, the tensor and the fault (MIRT_E_FORMAT). */
MIRT__LIB mirt_status mirt__safetensors_open(mirt__safetensors *file, const char *path);
MIRT__LIB mirt_status mirt__safetensors_open_memory(mirt__safetensors *file, const void *data, size_t size);
/* The same checks of a file whose tensors stay there: memory holds the header alone. All of it where the system does
   not know the file's size. */
MIRT__LIB mirt_status mirt__safetensors_open_streamed(mirt__safetensors *file, const char *path);
MIRT__LIB void mirt__safetensors_close(mirt__safetensors *file);
/* The tensor of that name; NULL without an error if it does not exist. */
MIRT__LIB const mirt__safetensor *mirt__safetensors_find(const mirt__safetensors *file, const char *name);
/* Copies the bytes of a tensor of the file; MIRT_E_IO, MIRT_E_FORMAT only if they are still in the file. */
MIRT__LIB mirt_status mirt__safetensor_copy(const mirt__safetensors *file, const mirt__safetensor *tensor, void *to);
MIRT__LIB const char *mirt__safetensors_metadata(const mirt__safetensors *file, const char *key);

MIRT__LIB const char *mirt__st_dtype_name(mirt__st_dtype dtype);
/* "(3, 3, 1, 32)" */
MIRT__LIB mirt__phrase mirt__st_shape_text(const mirt__safetensor *tensor);
/* Bytes of a tensor with dtype and shape; false on overflow. */
MIRT__LIB bool mirt__st_bytes(const mirt__safetensor *tensor, size_t *out);

/* The contents to write. Tensors are written in the given order without gaps. */
typedef struct mirt__safetensors_content {
    const mirt__safetensor *tensor; /* `size` is ignored */
    int count;
    const char *const *metadata; /* key, value, key, value, ... */
    int metadata_count;          /* pairs, with keys that differ from each other and from those above */
} mirt__safetensors_content;

/* Replaces `path` atomically. The same content gives the same bytes. */
MIRT__LIB mirt_status mirt__safetensors_write(const char *path, const mirt__safetensors_content *content);

#endif
