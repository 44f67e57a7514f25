#ifndef MIRT__JSON_H
#define MIRT__JSON_H
/* A strict JSON reader (RFC 8259), and writers of strings and numbers. They do not depend on the locale. */

#include "../base/base.h"

#define MIRT__JSON_DEPTH 64          /* nesting depth of containers */
#define MIRT__JSON_VALUES (1 << 18)  /* values of one text: limits the memory that a hostile text takes */
#define MIRT__JSON_DIGITS 128        /* characters of one number */

typedef enum mirt__json_type {
    MIRT__JSON_NULL = 0, MIRT__JSON_BOOL, MIRT__JSON_NUMBER, MIRT__JSON_STRING, MIRT__JSON_ARRAY, MIRT__JSON_OBJECT
} mirt__json_type;

typedef struct mirt__json {
    mirt__json_type type;
    bool truth;
    bool integral;           /* written without fraction or exponent, and fits `integer` */
    int64_t integer;
    double number;
    const char *string;      /* UTF-8 that ends in 0 and contains no other 0 */
    const char *key;         /* name of a member of an object */
    size_t offset, end;      /* offsets in the text: of the value's first byte, and after its last one */
    size_t count;            /* items or members */
    struct mirt__json **item; /* in the order of the text */
    struct mirt__json **by_key; /* members in the order of their keys */
    struct mirt__json *next; /* the item or member after this one */
} mirt__json;

/* Parses all of `text` as one value allocated from `pool`. Returns NULL with the error set (MIRT_E_FORMAT with the
   offset, MIRT_E_NOMEM); `pool` may then contain parts. Duplicate names of members, invalid UTF-8, U+0000 and numbers
   outside of double are errors. */
MIRT__LIB mirt__json *mirt__json_parse(mirt__pool *pool, const char *text, size_t size);
/* A member of an object, or NULL without an error: it is missing, or `object` is another value, or NULL. */
MIRT__LIB const mirt__json *mirt__json_member(const mirt__json *object, const char *key);
/* A member that must exist and have that type; NULL with the error set. */
MIRT__LIB const mirt__json *mirt__json_get(const mirt__json *object, const char *key, mirt__json_type type);
/* An integer member in [minimum, maximum]. */
MIRT__LIB mirt_status mirt__json_get_int(const mirt__json *object, const char *key, int64_t minimum, int64_t maximum,
                                         int64_t *out);
MIRT__LIB const char *mirt__json_type_name(mirt__json_type type);

/* A quoted string; `value` should be UTF-8. */
MIRT__LIB void mirt__json_write_string(mirt__text *text, const char *value);
/* Writes the first of integer, %.9g and %.17g that reads back as the same double; null if not finite. */
MIRT__LIB void mirt__json_write_number(mirt__text *text, double value);

#define MIRT__JSON_LABEL 80
/* The beginning of an untrusted name, safe to print in a message: truncated between characters, control characters
   replaced. Returns `out`. */
MIRT__LIB const char *mirt__json_label(const char *name, char out[MIRT__JSON_LABEL]);
/* The same by value. */
MIRT__LIB mirt__phrase mirt__label(const char *name);

#endif
