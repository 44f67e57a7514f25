#ifndef MIRT__JSON_H
#define MIRT__JSON_H
/* A strict JSON reader (RFC 8259) and the two writers that need care. Neither depends on the
   locale. */

#include "../base/base.h"

#define MIRT__JSON_DEPTH 64          /* containers inside each other */
#define MIRT__JSON_VALUES (1 << 18)  /* values of one text: bounds the memory a hostile text costs */
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
    const char *string;      /* UTF-8 that ends in 0 and has no other 0 */
    const char *key;         /* of a member of an object */
    size_t offset;           /* of the value's first byte in the text */
    size_t count;            /* items or members */
    struct mirt__json **item; /* in the order of the text */
    struct mirt__json **by_key; /* members in the order of their keys */
    struct mirt__json *next; /* the item or member after this one */
} mirt__json;

/* The whole of `text` as one value allocated from `pool`, or NULL with the error set
   (MIRT_E_FORMAT with the offset, MIRT_E_NOMEM); then `pool` may hold parts. Two members of the
   same name, invalid UTF-8, U+0000 and numbers beyond double are errors. */
MIRT__LIB mirt__json *mirt__json_parse(mirt__pool *pool, const char *text, size_t size);
/* The member of an object, or NULL, without an error, when there is none. */
MIRT__LIB const mirt__json *mirt__json_member(const mirt__json *object, const char *key);
/* The member, which must be there and of that type; NULL with the error set. */
MIRT__LIB const mirt__json *mirt__json_get(const mirt__json *object, const char *key, mirt__json_type type);
/* An integer member in [minimum, maximum]. */
MIRT__LIB mirt_status mirt__json_get_int(const mirt__json *object, const char *key, int64_t minimum, int64_t maximum,
                                         int64_t *out);
MIRT__LIB const char *mirt__json_type_name(mirt__json_type type);

/* A quoted string; `value` should be UTF-8. */
MIRT__LIB void mirt__json_write_string(mirt__text *text, const char *value);
/* The first of integer, %.9g and %.17g that reads back as the same double; null when not finite. */
MIRT__LIB void mirt__json_write_number(mirt__text *text, double value);

#define MIRT__JSON_LABEL 80
/* The beginning of a foreign name, safe to print in a message: cut between characters, control
   characters replaced. Returns `out`. */
MIRT__LIB const char *mirt__json_label(const char *name, char out[MIRT__JSON_LABEL]);

#endif
