#ifndef MIRRORTRAIN_REPORT_H
#define MIRRORTRAIN_REPORT_H
/* The report of a run. Log: report_log.c; words: report_words.c; pictures: report_draw.c, report_curves.c; pages:
   report_frame.c, report.c. */

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

/* That a page is written again and again while the run is under way. */
typedef struct live_page {
    double now;   /* seconds since 1970 */
    double every; /* seconds until the page is written again, at most */
    int64_t most_steps; /* after which training ends; 0: after its epochs */
} live_page;

/* The contents of a log; the last line of each kind counts. */
typedef struct run_log {
    const value *begin, *end, *timing, *confusion, *samples;
    const value *interrupted; /* the line written after a signal, with the command that resumes; NULL: no signal */
    int owner;                /* run_owner */
    const live_page *live;    /* NULL: the page is not written again */
    const value *resumed; /* where the run was last resumed; NULL: never */
    const value **epoch; /* in their order */
    int epochs;
    const value **use; /* lines that say what devices did since the one before */
    int uses;
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
/* "0.0312", "1.2e-05" */
void add_number(page *p, double number);

/* A line of a chart. */
typedef struct series {
    const char *name;
    const char *style; /* its class: s1 to s8, or faint, for one without marks */
    int count;
    const double *x, *y;
} series;
enum { MOST_LOOKS = 8 };

typedef struct chart {
    const char *title;
    const char *over; /* unit of x: epoch, minute */
    const series *lines;
    int count;
    bool share;
    int best;       /* which value of the last line to mention: 1 the largest, -1 the smallest, 0 neither */
    bool each;      /* of each line, not only of the last one */
    bool all_marks; /* mark all points, not only the ends of epochs */
    bool tabled;    /* a table below has the numbers */
} chart;

/* As a figure with a title and the final value of each line; nothing if there is nothing to draw. */
void draw_chart(page *p, const chart *c);
/* How a line with this style looks. */
void add_key(page *p, const char *look);
/* Confusion matrix: how often class i (row) was predicted as class j. */
void draw_confusion(page *p, const double *count, int classes, const char *const *names);
/* A bar of parts that sum to `whole`. */
void draw_bar(page *p, const char *title, const double *part, const char *const *name, int parts, double whole);

/* --- report_words.c --- */
enum { MOST_NAME = 128 };
/* Seconds since 1970 as a date; nothing if there is none. */
void add_date(page *p, double when);
void add_duration(page *p, double seconds);
void add_bytes(page *p, double bytes);
/* A number, or a question mark if the log lacks it; `format` is for one double. */
void add_known(page *p, const char *format, double number);
/* Whether the values with this name are fractions from 0 to 1. */
bool is_share(const run_log *log, const char *name);
/* 1: large values are better, -1: small ones, 0: the log does not say. */
int direction_of(const run_log *log, const char *name);
/* A value of this name. */
void add_log(page *p, const run_log *log, const char *name, double number);
/* "val_top_k_accuracy" in words, shortened if necessary; `upper`: beginning with a capital letter. */
void words_of_name(const char *name, bool upper, char words[MOST_NAME]);
void add_name(page *p, const char *name, bool upper);
/* Whether this member of an epoch's line is a log. */
bool is_log(const value *v);
/* Of the last epoch that has the value; NAN: none. */
double last_of(const run_log *log, const char *name);
/* The best value by its direction, and its index among the epochs; -1: none is better than the last one. */
double best_of(const run_log *log, const char *name, int *where);

/* --- report_curves.c --- */
/* Values of a log over epochs or steps; adjacent ones are averaged until few enough remain to draw. Free x. */
typedef struct curve {
    double *x, *y;
    int count;
} curve;
/* An empty one with room for `most` points. */
curve make_curve(page *p, int most);
curve epochs_of(page *p, const run_log *log, const char *prefix, const char *name);
/* Learning rates or losses. */
curve steps_of(page *p, const run_log *log, bool rate);
/* Adds a curve, unless it is empty, to the `*count` lines of a chart. */
void add_series(series *lines, int *count, const char *name, const char *look, const curve *c);
/* The section with the curves, and the table of epochs. */
void add_curves(page *p, const run_log *log);

/* --- report_frame.c --- */
enum { MOST_TITLE = 120 }; /* characters */
/* Everything before the header, with the title "title - kind". `live`: browsers load the page again; NULL: they do
   not. */
void begin_page(page *p, const char *title, const char *kind, const live_page *live);
/* The footer and everything after it. */
void end_page(page *p, const char *from);
/* Replaces an existing page atomically, and frees the text. False after complaining. */
bool write_page(page *p, const char *path);

/* --- report.c --- */
/* How the run ended: a word, its style class, and an explanation or NULL. */
typedef struct outcome {
    const char *word, *look, *more;
} outcome;
outcome outcome_of(const run_log *log);
/* Calls `visit` for each scalar or list in `object`; names of nested members begin with those of the objects around
   them. `without`: members to leave out, up to NULL; or NULL. */
void visit_settings(const value *object, const char *above, const char *const *without,
                    void (*visit)(void *user, const char *name, const value *v), void *user);
/* The value of one of these. */
void add_setting(page *p, const value *v);
/* Makes DIR/report.html from DIR/log.jsonl. owner: run_owner; live: NULL for the last time. False after complaining. */
bool write_run_page(const char *directory, int owner, const live_page *live);

/* --- report_usage.c --- */
/* Nothing, unless the log says what devices did over time. */
void add_usage(page *p, const run_log *log);

/* --- report_staleness.c --- */
/* Nothing, unless the run had parameter servers. */
void add_staleness(page *p, const run_log *log);

#endif
