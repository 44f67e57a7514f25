#ifndef MIRT__BASICS_API_H
#define MIRT__BASICS_API_H
/* Status codes, errors, shapes and arrays. */

#include "configuration_api.h"

MIRT__BEGIN_C

/* >>basics -------------------------------------------------------------------------------- */
/* Threads: any thread may call these at any time; the last error and status are the calling thread's own. */

/* Status codes and their texts. Functions that return a pointer return NULL instead of a code;
   mirt_last_status() then says which one, and mirt_last_error() says it in a sentence. */
#define MIRT_STATUS_LIST(X) \
    X(MIRT_OK, "ok") \
    X(MIRT_E_INVALID, "invalid argument") \
    X(MIRT_E_SHAPE, "shapes do not fit") \
    X(MIRT_E_NOMEM, "out of memory") \
    X(MIRT_E_IO, "input or output failed") \
    X(MIRT_E_FORMAT, "file is damaged or of another format") \
    X(MIRT_E_NOT_FOUND, "not found") \
    X(MIRT_E_DEVICE, "no such device") \
    X(MIRT_E_STATE, "called at the wrong time") \
    X(MIRT_E_THREAD, "threads could not be started") \
    X(MIRT_E_CALLBACK, "code of the caller failed") \
    X(MIRT_E_TIMEOUT, "no progress within the time limit") \
    X(MIRT_E_DRIFT, "copies of the weights differ") \
    X(MIRT_E_WORKER, "another process is lost, or differs")

typedef enum mirt_status {
#define MIRT__STATUS_ENUM(code, text) code,
    MIRT_STATUS_LIST(MIRT__STATUS_ENUM)
#undef MIRT__STATUS_ENUM
    MIRT__STATUS_COUNT
} mirt_status;

/* The version the implementation was compiled from, "major.minor.patch". */
MIRT_API const char *mirt_version(void);

/* A short fixed text for a status code. */
MIRT_API const char *mirt_status_text(mirt_status status);

/* What went wrong in the calling thread's last failed call, as one sentence that names the
   culprit; "" before the first failure. Valid until that thread's next failed call. */
MIRT_API const char *mirt_last_error(void);
MIRT_API mirt_status mirt_last_status(void);

/* Where a failure comes from, and so who can do something about it: data and files that are read; the machine and what
   surrounds the program; what was asked for, which does not go together; memory, disk or threads that ran out; a
   mistake in the program, or in code that it gave to the library, or in the library. */
typedef enum mirt_cause {
    MIRT_CAUSE_NONE = 0,
    MIRT_CAUSE_INPUT,
    MIRT_CAUSE_ENVIRONMENT,
    MIRT_CAUSE_CONFIGURATION,
    MIRT_CAUSE_RESOURCES,
    MIRT_CAUSE_BUG,
    MIRT__CAUSE_COUNT
} mirt_cause;
/* Of the calling thread's last failed call; MIRT_CAUSE_NONE before the first. */
MIRT_API mirt_cause mirt_last_cause(void);
/* "input", "environment", "configuration", "resources", "bug"; "none". */
MIRT_API const char *mirt_cause_text(mirt_cause cause);

/* Makes text safe to print on a terminal: control characters (C0, DEL, C1), characters that reorder the text around
   them and bytes that are not UTF-8 become \xNN, byte by byte; all else is copied. For names that come from files: of
   classes, layers, files. Writes at most `size` bytes including the final 0 and cuts between characters; `out` may be
   NULL if size is 0. Returns the length of the whole text, as snprintf does. The library's own messages, log lines and
   texts are printable already. */
MIRT_API size_t mirt_printable(const char *text, char *out, size_t size);

/* Replaces the file at `path` as a whole, or creates it: after a crash or a power failure it holds the old bytes or the
   new ones. A symbolic link at `path` is itself replaced. MIRT_E_NOT_FOUND (no such directory), MIRT_E_IO,
   MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_write_file(const char *path, const void *data, size_t size);
/* Creates an empty, private file beside `path` under a name that did not exist before; no link is followed. Returns a
   descriptor for writing, which the caller closes before removing or renaming the file; -1 on failure, and errno says
   why. `name`, of at least strlen(path) + 48 bytes, receives the name. Those of the library itself are made so too, but
   with the mode of the file that they replace, or for a new one the mode that the umask leaves. */
MIRT_API int mirt_create_temporary(const char *path, char *name, size_t size);

/* Element types. Pixels stay MIRT_UINT8 until a kernel reads them; a MIRT_BOOL is one byte, 0 or 1. */
typedef enum mirt_dtype { MIRT_FLOAT32 = 0, MIRT_INT32, MIRT_UINT8, MIRT_BOOL, MIRT__DTYPE_COUNT } mirt_dtype;

#define MIRT_MAX_RANK 6
/* Inputs and outputs of a model, and so arrays of inputs and of labels. */
#define MIRT_MAX_INPUTS 8
#define MIRT_MAX_OUTPUTS 8
/* The first dimension of a batched tensor, known only when it runs. */
#define MIRT_ROWS (-1)

typedef struct mirt_shape {
    int rank;
    int64_t dim[MIRT_MAX_RANK];
} mirt_shape;

/* MIRT_SHAPE(28, 28, 1): one to six positive dimensions, in C and in C++. */
#define MIRT_SHAPE(...) MIRT__SHAPE_6(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define MIRT__SHAPE_6(a, b, c, d, e, f, ...) mirt_make_shape(a, b, c, d, e, f)
/* Six dimensions; the first 0 ends the shape. */
MIRT_API mirt_shape mirt_make_shape(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f);

/* A borrowed, dense, row-major block in host memory; the first dimension counts samples. */
typedef struct mirt_array {
    const void *data;
    mirt_dtype dtype;
    mirt_shape shape;
} mirt_array;

/* mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(n, 28, 28, 1)). Borrows data. */
MIRT_API mirt_array mirt_make_array(const void *data, mirt_dtype dtype, mirt_shape shape);

MIRT__END_C

#endif /* MIRT__BASICS_API_H */
