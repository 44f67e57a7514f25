#ifndef FLAG_TABLE_H
#define FLAG_TABLE_H
/* The table of flags, which drives parsing, --help and suggestions. */
#include "cli.h"

typedef enum flag_kind {
    FLAG_SWITCH, FLAG_TEXT, FLAG_COUNT, FLAG_BOUND, FLAG_SEED, FLAG_NUMBER, FLAG_SHARE, FLAG_RATES, FLAG_BATCHES,
    FLAG_BYTES, FLAG_NAME
} flag_kind;

typedef struct flag {
    const char *name;  /* without its dashes; NULL: `help` is the title of the group of flags that follows */
    const char *value; /* how --help names its value; NULL for a switch; for a name: all choices, a|b|c */
    flag_kind kind;
    int64_t most;  /* largest value of a count, from 1, or of a bound, from 0 */
    size_t offset; /* in options: bool, const char *, int64_t, uint64_t, float, double, rates or batches by kind */
    int commands;
    const char *help; /* NULL: not for users */
} flag;

extern const flag flags[];
extern const int flag_count;

#endif
