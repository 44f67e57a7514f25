/* Words and numbers of a log as a page shows them. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void add_date(page *p, double when) {
    char text[64];
    struct tm parts;
    if (!(when > 0 && when < 253402300800.0)) return; /* from 1970 to the year 9999 */
    const time_t t = (time_t)when;
    if (gmtime_r(&t, &parts) && strftime(text, sizeof text, "%d %B %Y, %H:%M UTC", &parts))
        add(p, "%s", text + (*text == '0'));
}

void add_duration(page *p, double seconds) {
    if (!isfinite(seconds) || seconds < 0) add(p, "?");
    else if (seconds < 10 && seconds != floor(seconds)) add(p, "%.2f\xc2\xa0s", seconds);
    else if (seconds < 120) add(p, "%.0f\xc2\xa0s", seconds);
    else if (seconds < 7200) add(p, "%.0f\xc2\xa0min", seconds / 60);
    else add(p, "%.1f\xc2\xa0h", seconds / 3600);
}

void add_bytes(page *p, double bytes) {
    if (!isfinite(bytes)) add(p, "?");
    else if (bytes < 1024 * 1024) add(p, "%.0f\xc2\xa0KiB", bytes / 1024);
    else if (bytes < 10.0 * 1024 * 1024 * 1024) add(p, "%.0f\xc2\xa0MiB", bytes / 1024 / 1024);
    else add(p, "%.1f\xc2\xa0GiB", bytes / 1024 / 1024 / 1024);
}

void add_known(page *p, const char *format, double number) {
    char text[64];
    if (isfinite(number)) snprintf(text, sizeof text, format, number);
    add(p, "%s", isfinite(number) ? text : "?");
}

/* The log's declaration of the values with this name, with or without val_. NULL: none. */
static const value *declared(const run_log *log, const char *name) {
    const value *logs = member(log->begin, "logs"), *v = member(logs, name);
    return v || strncmp(name, "val_", 4) != 0 ? v : member(logs, name + 4);
}

bool is_share(const run_log *log, const char *name) {
    const value *share = member(declared(log, name), "share");
    return share && share->kind == VALUE_BOOL && share->number != 0;
}

int direction_of(const run_log *log, const char *name) {
    const char *direction = text_of(declared(log, name), "direction");
    return !direction ? 0 : strcmp(direction, "max") == 0 ? 1 : strcmp(direction, "min") == 0 ? -1 : 0;
}

void add_log(page *p, const run_log *log, const char *name, double number) {
    if (is_share(log, name) && isfinite(number)) add(p, "%.2f\xc2\xa0%%", 100 * number);
    else add_number(p, number);
}

void words_of_name(const char *name, bool upper, char words[MOST_NAME]) {
    snprintf(words, MOST_NAME, "%s", name);
    for (char *at = words; *at; at++) *at = *at == '_' ? ' ' : *at;
    if (upper && words[0] >= 'a' && words[0] <= 'z') words[0] = (char)(words[0] - 32);
}

void add_name(page *p, const char *name, bool upper) {
    char words[MOST_NAME];
    words_of_name(name, upper, words);
    add_text(p, words);
}

bool is_log(const value *v) {
    static const char *const others[] = {"epoch",   "step", "time", "seconds", "input_seconds", "images_per_second",
                                         "batches", "batch"};
    bool log = v->kind == VALUE_NUMBER || v->kind == VALUE_NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) log = log && strcmp(v->key, others[i]) != 0;
    return log;
}

double last_of(const run_log *log, const char *name) {
    for (int i = log->epochs; i--;) {
        const double number = number_of(log->epoch[i], name);
        if (isfinite(number)) return number;
    }
    return (double)NAN;
}

double best_of(const run_log *log, const char *name, int *where) {
    const int direction = direction_of(log, name);
    double best = last_of(log, name);
    *where = -1;
    for (int i = 0; i < log->epochs; i++) {
        const double number = number_of(log->epoch[i], name);
        if (!(direction > 0 ? number > best : direction < 0 && number < best)) continue;
        best = number;
        *where = i;
    }
    return best;
}
