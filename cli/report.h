#ifndef MIRRORTRAIN_REPORT_H
#define MIRRORTRAIN_REPORT_H
/* The report of a run: log (report_log.c), pictures (report_draw.c) and page (report.c). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- report_log.c --- */
typedef enum value_kind { VALUE_NULL, VALUE_BOOL, VALUE_NUMBER, VALUE_TEXT, VALUE_LIST, VALUE_OBJECT } value_kind;

/* A JSON value; a list or object points to its first element. */
typedef struct value {
    value_kind kind;
    double number;       /* of a bool: 0 or 1 */
    const char *text;
    const char *key;     /* in an object */
    int count;           /* of a list or object */
    int place;           /* next element of the same list or object */
    struct value *first, *next;
    const struct value **sorted; /* the members of a large object, sorted by key; equal keys keep their order */
} value;

const value *member(const value *object, const char *key); /* NULL: none */
double number_of(const value *object, const char *key);    /* NAN: none */
const char *text_of(const value *object, const char *key); /* NULL: none */

/* A step that the log records. */
typedef struct step_line {
    double at; /* in epochs */
    double loss, rate;
} step_line;

/* The contents of a log; the last line of each kind counts. */
typedef struct run_log {
    const value *begin, *end, *timing, *confusion, *samples;
    const value *interrupted; /* the line written after a signal, with the command that resumes; NULL: no signal */
    int owner;                /* run_owner */
    const value *resumed; /* where the run was last resumed; NULL: never */
    const value **epoch; /* in their order */
    int epochs;
    step_line *step;
    int steps;
    int strange;    /* lines that could not be read */
    struct block *blocks;
    size_t bytes;   /* of the blocks */
} run_log;

/* Reads DIR/log.jsonl. False after complaining. */
bool read_run_log(const char *directory, run_log *log);
void free_run_log(run_log *log);

/* --- report_draw.c --- */
/* A text that grows. */
typedef struct page {
    char *data;
    size_t size, capacity;
    bool failed; /* out of memory */
} page;
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void add(page *p, const char *format, ...);
/* Escaped for HTML. */
void add_text(page *p, const char *text);
/* Up to `most` characters of it. */
void add_start(page *p, const char *text, int most);
/* Replaces an existing page atomically. False after complaining. */
bool write_page(const page *p, const char *path);
/* "0.0312", "1.2e-05" */
void add_number(page *p, double number);

/* A line of a chart. */
typedef struct series {
    const char *name;
    const char *style; /* its class: s1, s2, faint */
    int count;
    const double *x, *y;
} series;

/* A chart as a figure with a title and the final value of each line; nothing if there is nothing to draw. `best` says
   which value of the last line to mention: 1 the largest, -1 the smallest, 0 neither. */
void draw_chart(page *p, const char *title, const series *lines, int count, bool share, int best);
/* Confusion matrix: how often class i (row) was predicted as class j. */
void draw_confusion(page *p, const double *count, int classes, const char *const *names);
/* A bar of parts that sum to `whole`. */
void draw_bar(page *p, const char *title, const double *part, const char *const *name, int parts, double whole);

/* --- report_staleness.c --- */
/* Nothing, unless the run had parameter servers. */
void add_staleness(page *p, const run_log *log);

#endif
