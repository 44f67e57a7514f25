/* Version, status texts, the thread's last error, shapes, element types, clock. */

#include "base.h"

MIRT_API const char *mirt_version(void) {
    return MIRT_VERSION_STRING;
}

MIRT_API const char *mirt_status_text(mirt_status status) {
    static const char *const texts[] = {
#define MIRT__STATUS_TEXT(code, text) text,
        MIRT_STATUS_LIST(MIRT__STATUS_TEXT)
#undef MIRT__STATUS_TEXT
    };
    int code = (int)status;
    return code >= 0 && code < MIRT__COUNT(texts) ? texts[code] : "unknown status";
}

#define MIRT__ERROR_SIZE 512

/* The library's only writable global; per thread, so that several strategies may fail at once. */
static __thread mirt__error mirt__last_error;

MIRT_API const char *mirt_last_error(void) { return mirt__last_error.text; }
MIRT_API mirt_status mirt_last_status(void) { return mirt__last_error.status; }
MIRT_API mirt_cause mirt_last_cause(void) { return mirt__last_error.cause; }
MIRT__LIB uint32_t mirt__error_number(void) { return mirt__last_error.number; }
MIRT__LIB void mirt__error_get(mirt__error *out) { *out = mirt__last_error; }
MIRT__LIB void mirt__error_set(const mirt__error *error) { mirt__last_error = *error; }

MIRT_API const char *mirt_cause_text(mirt_cause cause) {
    static const char *const texts[MIRT__CAUSE_COUNT] = {
        "none", "input", "environment", "configuration", "resources", "bug"
    };
    return (int)cause >= 0 && cause < MIRT__CAUSE_COUNT ? texts[cause] : "unknown cause";
}

static mirt_cause mirt__cause_of(mirt_status status) {
    switch (status) {
    case MIRT_OK: return MIRT_CAUSE_NONE;
    case MIRT_E_FORMAT: return MIRT_CAUSE_INPUT;
    case MIRT_E_IO:
    case MIRT_E_DEVICE:
    case MIRT_E_TIMEOUT:
    case MIRT_E_DRIFT:
    case MIRT_E_WORKER: return MIRT_CAUSE_ENVIRONMENT;
    case MIRT_E_NOMEM:
    case MIRT_E_THREAD: return MIRT_CAUSE_RESOURCES;
    case MIRT_E_STATE:
    case MIRT_E_CALLBACK: return MIRT_CAUSE_BUG;
    default: return MIRT_CAUSE_CONFIGURATION;
    }
}

MIRT__LIB mirt_status mirt__because(mirt_cause cause, mirt_status status) {
    mirt__last_error.cause = cause;
    return status;
}

MIRT__LIB mirt_status mirt__fail(mirt_status status, const char *format, ...) {
    /* Uses a second buffer, because an argument may be the current error itself. */
    char text[MIRT__ERROR_SIZE];
    va_list args;
    va_start(args, format);
    mirt__vprint(text, sizeof text, format, args);
    va_end(args);
    memcpy(mirt__last_error.text, text, strlen(text) + 1);
    mirt__last_error.status = status;
    mirt__last_error.cause = mirt__cause_of(status);
    mirt__last_error.number++;
    return status;
}

MIRT__LIB mirt_status mirt__fail_at(const char *format, ...) {
    char text[MIRT__ERROR_SIZE];
    va_list args;
    va_start(args, format);
    mirt__vprint(text, sizeof text, format, args);
    va_end(args);
    mirt__line_add(text, sizeof text, ": %s", mirt__last_error.text);
    memcpy(mirt__last_error.text, text, strlen(text) + 1);
    return mirt__last_error.status;
}

static const char mirt__error_before[] = "; the previous error: ";

/* Whether a failed call of the library may be the reason that an argument is NULL; paths, outputs and data come from
   the caller. */
static bool mirt__is_made_here(const char *what) {
    static const char *const made[] = {"strategy", "model", "data set", "tensor", "output", "function", "writer"};
    for (int i = 0; i < MIRT__COUNT(made); i++) {
        if (strcmp(what, made[i]) == 0) return true;
    }
    return false;
}

MIRT__LIB mirt_status mirt__fail_missing(const char *caller, const char *what) {
    if (mirt__last_error.status == MIRT_OK || !mirt__is_made_here(what))
        return mirt__fail(MIRT_E_INVALID, "%s: no %s", caller, what);
    char cause[MIRT__ERROR_SIZE];
    const char *last = strstr(mirt__last_error.text, mirt__error_before);
    snprintf(cause, sizeof cause, "%s", last ? last + strlen(mirt__error_before) : mirt__last_error.text);
    return mirt__fail(mirt__last_error.status, "%s: no %s%s%s", caller, what, mirt__error_before, cause);
}

#undef MIRT__ERROR_SIZE

MIRT_API mirt_shape mirt_make_shape(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f) {
    const int64_t dims[MIRT_MAX_RANK] = {a, b, c, d, e, f};
    mirt_shape shape;
    memset(&shape, 0, sizeof shape);
    while (shape.rank < MIRT_MAX_RANK && dims[shape.rank] != 0) {
        shape.dim[shape.rank] = dims[shape.rank];
        shape.rank++;
    }
    return shape;
}

MIRT_API mirt_array mirt_make_array(const void *data, mirt_dtype dtype, mirt_shape shape) {
    const mirt_array array = {data, dtype, shape};
    return array;
}

MIRT__LIB bool mirt__dtype_known(mirt_dtype dtype) { return (int)dtype >= 0 && dtype < MIRT__DTYPE_COUNT; }

/* In the order of their numbers. */
static const struct {
    const char *name;
    size_t size;
} mirt__dtypes[] = {{"float32", sizeof(mirt__real)}, {"int32", 4}, {"uint8", 1}, {"bool", 1}, {"bfloat16", 2},
                    {"float16", 2}};

MIRT__LIB size_t mirt__dtype_size(mirt_dtype dtype) {
    return (int)dtype >= 0 && (int)dtype < MIRT__COUNT(mirt__dtypes) ? mirt__dtypes[dtype].size : 0;
}

MIRT__LIB double mirt__element(const void *data, mirt_dtype dtype, int64_t i) {
    if (dtype == MIRT_FLOAT32) return (double)((const float *)data)[i];
    return dtype == MIRT_INT32 ? (double)((const int32_t *)data)[i] : (double)((const uint8_t *)data)[i];
}

MIRT__LIB const char *mirt__dtype_name(mirt_dtype dtype) {
    return mirt__dtype_size(dtype) ? mirt__dtypes[dtype].name : "unknown dtype";
}

MIRT__LIB const char *mirt__shape_text(const mirt_shape *shape, char out[96]) {
    size_t used = 0;
    out[used++] = '(';
    for (int i = 0; i < shape->rank && i < MIRT_MAX_RANK; i++) {
        /* The longest text, six int64 and their commas, is truncated. */
        size_t room = 96 - used;
        const char *comma = i ? ", " : "";
        int wrote = shape->dim[i] == MIRT_ROWS
                        ? snprintf(out + used, room, "%srows", comma)
                        : snprintf(out + used, room, "%s%lld", comma, (long long)shape->dim[i]);
        if (wrote < 0 || (size_t)wrote + 2 > room) break;
        used += (size_t)wrote;
    }
    out[used++] = ')';
    out[used] = 0;
    return out;
}

MIRT__LIB int64_t mirt__shape_count(const mirt_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dim[i];
        if (i == 0 && dim == MIRT_ROWS) continue;
        if (dim < 0 || (dim > 0 && count > INT64_MAX / dim)) return -1;
        count *= dim;
    }
    return count;
}

MIRT__LIB bool mirt__shape_equal(const mirt_shape *a, const mirt_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

MIRT__LIB mirt_shape mirt__row_shape(const mirt_shape *shape) {
    mirt_shape row;
    memset(&row, 0, sizeof row);
    while (row.rank + 1 < shape->rank) {
        row.dim[row.rank] = shape->dim[row.rank + 1];
        row.rank++;
    }
    return row;
}

static double mirt__seconds(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) return 0.0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

MIRT__LIB double mirt__now(void) { return mirt__seconds(CLOCK_MONOTONIC); }

MIRT__LIB double mirt__clock(void) { return mirt__seconds(CLOCK_REALTIME); }

MIRT__LIB int64_t mirt__share(int64_t total, int64_t shares, int64_t index, int64_t *first) {
    int64_t each = total / shares, extra = total % shares;
    *first = index * each + (index < extra ? index : extra);
    return each + (index < extra);
}
