/* mirrortrain report DIR DIR...: one page that compares several runs. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CURVES = 48, MOST_SETTINGS = 300, MOST_CELL = 160 };

typedef struct compared {
    char name[MOST_NAME];
    char look[4];
    run_log log;
    double epoch_seconds, speed; /* of an epoch, the median; images per second */
} compared;

typedef struct comparison {
    compared run[MOST_LOOKS];
    int runs;
} comparison;

/* >>runs */

static const char *last_part(const char *path) {
    const char *begin = path;
    for (const char *at = path; *at; at++) {
        if (*at == '/' && at[1] && at[1] != '/') begin = at + 1;
    }
    return begin;
}

static bool is_last_part(const char *path, const char *other) {
    const char *a = last_part(path), *b = last_part(other);
    return strcspn(a, "/") == strcspn(b, "/") && strncmp(a, b, strcspn(a, "/")) == 0;
}

/* The last part of its path, or where another one has the same, the end of its path. */
static void name_run(const options *o, int i, char name[MOST_NAME]) {
    const char *path = o->operand[i];
    bool same = false;
    for (int k = 0; k < o->operands; k++) same = same || (k != i && is_last_part(path, o->operand[k]));
    const size_t length = strlen(path), most = MOST_NAME - 8;
    const char *part = last_part(path);
    if (!same) snprintf(name, MOST_NAME, "%.*s", (int)strcspn(part, "/"), part);
    else if (length > most) snprintf(name, MOST_NAME, "\xe2\x80\xa6%s", path + length - most);
    else snprintf(name, MOST_NAME, "%s", path);
}

static double median_epoch(page *p, const run_log *log) {
    curve c = epochs_of(p, log, "", "seconds");
    int count = 0;
    for (int i = 0; i < c.count; i++) {
        if (c.y[i] >= 0) c.y[count++] = c.y[i];
    }
    if (count) qsort(c.y, (size_t)count, sizeof *c.y, by_size);
    const double median = count ? 0.5 * (c.y[(count - 1) / 2] + c.y[count / 2]) : (double)NAN;
    free(c.x);
    return median;
}

static bool read_runs(const options *o, page *p, comparison *all) {
    for (int i = 0; i < o->operands; i++) {
        compared *run = &all->run[i];
        if (!read_run_log(o->operand[i], &run->log)) return false;
        all->runs = i + 1;
        run->log.owner = owner_of_run(o->operand[i]);
        name_run(o, i, run->name);
        snprintf(run->look, sizeof run->look, "s%d", i + 1);
        run->epoch_seconds = median_epoch(p, &run->log);
        run->speed = number_of(run->log.end, "images_per_second");
        if (!(run->speed > 0))
            run->speed = number_of(run->log.begin, "batch") * number_of(run->log.begin, "batches") / run->epoch_seconds;
    }
    return true;
}

/* >>table */

typedef enum cell_kind { SETTING, TEXT, TIME, SPEED, TIMES, BEST, FINAL, STATE } cell_kind;
static const struct row {
    const char *title;
    cell_kind kind;
    const char *name; /* a member of the first line, or of epochs */
} rows[] = {
    {"Model", SETTING, "model"},
    {"Devices", SETTING, "devices"},
    {"Processes", SETTING, "processes"},
    {"Replicas", SETTING, "replicas"},
    {"Batch", SETTING, "batch"},
    {"Epochs", SETTING, "epochs"},
    {"State", STATE, NULL},
    {"Time per epoch", TIME, NULL},
    {"Images per second", SPEED, NULL},
    {"Speed-up", TIMES, NULL},
    {"Best validation accuracy", BEST, "val_accuracy"},
    {"Final validation accuracy", FINAL, "val_accuracy"},
    {"Best training accuracy", BEST, "accuracy"},
    {"Final training accuracy", FINAL, "accuracy"},
    {"Best validation loss", BEST, "val_loss"},
    {"Final validation loss", FINAL, "val_loss"},
    {"Final training loss", FINAL, "loss"},
};

/* Nothing: the run has no such value. */
static void add_cell(page *p, const struct row *row, const compared *run, const compared *first) {
    const value *setting = row->kind == SETTING ? member(run->log.begin, row->name) : NULL;
    const double times = run->speed / first->speed, last = row->name ? last_of(&run->log, row->name) : (double)NAN;
    switch (row->kind) {
    case SETTING:
        if (setting && setting->kind == VALUE_TEXT) add_start(p, setting->text, MOST_CELL);
        else if (setting && setting->kind < VALUE_LIST) add_setting(p, setting);
        break;
    case TIME:
        if (isfinite(run->epoch_seconds)) add_duration(p, run->epoch_seconds);
        break;
    case SPEED:
        if (isfinite(run->speed)) add(p, run->speed < 100 ? "%.1f" : "%.0f", run->speed);
        break;
    case TIMES:
        if (isfinite(times)) add(p, run == first ? "1" : "\xc3\x97\xc2\xa0%.2f", times);
        break;
    case BEST: {
        int where;
        const double best = best_of(&run->log, row->name, &where);
        if (isfinite(best)) add_log(p, &run->log, row->name, best);
        if (where >= 0) add(p, "<br><small>epoch %.0f</small>", number_of(run->log.epoch[where], "epoch") + 1);
        break;
    }
    case FINAL:
        if (isfinite(last)) add_log(p, &run->log, row->name, last);
        break;
    case STATE:
        add_start(p, outcome_of(&run->log).word, MOST_CELL);
        break;
    default: break;
    }
}

/* A row, whose cells are all made before; nothing if all are empty. Returns whether it was added. */
static bool add_row(page *p, const char *title, const page *cell, int count, bool setting, bool differing) {
    bool any = false, differs = false;
    for (int i = 0; i < count; i++) {
        any = any || cell[i].size;
        differs = differs || cell[i].size != cell[0].size ||
                  (cell[0].size && memcmp(cell[i].data, cell[0].data, cell[0].size) != 0);
    }
    differs = differs && setting;
    if (!any || (differing && !differs)) return false;
    add(p, "<tr%s><th scope=\"row\">", differs ? " class=\"differs\"" : "");
    add_name(p, title, true);
    if (differs) add(p, " <span title=\"differs\">\xe2\x89\xa0</span>");
    add(p, "</th>");
    for (int i = 0; i < count; i++) add(p, "<td>%s</td>", cell[i].size ? cell[i].data : "\xe2\x80\x93");
    add(p, "</tr>");
    return true;
}

static void free_cells(page *p, page *cell, int count) {
    for (int i = 0; i < count; i++) {
        p->failed = p->failed || cell[i].failed;
        free(cell[i].data);
        memset(&cell[i], 0, sizeof cell[i]);
    }
}

static void add_table(page *p, const comparison *all) {
    page cell[MOST_LOOKS];
    memset(cell, 0, sizeof cell);
    add(p, "<section><h2>Settings and results</h2><div class=\"card\"><div class=\"scroll\" tabindex=\"0\" "
           "role=\"region\" aria-label=\"Settings and results\"><table class=\"across\"><thead><tr>"
           "<th scope=\"col\">Run</th>");
    for (int i = 0; i < all->runs; i++) {
        add(p, "<th scope=\"col\">");
        add_key(p, all->run[i].look);
        add(p, "<br>");
        add_text(p, all->run[i].name);
        add(p, "</th>");
    }
    add(p, "</tr></thead><tbody>");
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (int i = 0; i < all->runs; i++) add_cell(&cell[i], &rows[r], &all->run[i], &all->run[0]);
        add_row(p, rows[r].title, cell, all->runs, rows[r].kind == SETTING, false);
        free_cells(p, cell, all->runs);
    }
    add(p, "</tbody></table></div><p class=\"muted\" style=\"margin:10px 0 0\">Settings that differ are marked by "
           "\xe2\x89\xa0. The time per epoch is the median, without validation; the speed-up is that of images per "
           "second against the first run.</p></div></section>");
}

/* >>other settings */

typedef struct setting {
    char name[200];
    const value *v;
} setting;

typedef struct setting_list {
    setting *at;
    int count;
    bool more; /* than there is room for */
} setting_list;

static void keep_setting(void *user, const char *name, const value *v) {
    setting_list *list = (setting_list *)user;
    if (list->count == MOST_SETTINGS) {
        list->more = true;
        return;
    }
    snprintf(list->at[list->count].name, sizeof list->at[0].name, "%s", name);
    list->at[list->count++].v = v;
}

static const value *find_setting(const setting_list *list, const char *name) {
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->at[i].name, name) == 0) return list->at[i].v;
    }
    return NULL;
}

static bool add_other_rows(page *p, const setting_list *list, int runs) {
    page cell[MOST_LOOKS];
    bool any = false;
    memset(cell, 0, sizeof cell);
    for (int r = 0; r < runs; r++) {
        for (int k = 0; k < list[r].count; k++) {
            const char *name = list[r].at[k].name;
            bool shown = false;
            for (int i = 0; i < r; i++) shown = shown || find_setting(&list[i], name);
            for (int i = 0; i < runs && !shown; i++) {
                const value *v = find_setting(&list[i], name);
                if (v && v->kind == VALUE_TEXT) add_start(&cell[i], v->text, MOST_CELL);
                else if (v) add_setting(&cell[i], v);
            }
            any = (!shown && add_row(p, name, cell, runs, true, true)) || any;
            free_cells(p, cell, runs);
        }
    }
    return any;
}

static void add_other_settings(page *p, const comparison *all) {
    static const char *const elsewhere[] = {"event", "time", "classes", "logs", "model", "devices", "processes",
                                            "replicas", "batch", "epochs", NULL};
    setting_list list[MOST_LOOKS];
    page table;
    bool more = false;
    setting *room = (setting *)malloc((size_t)all->runs * MOST_SETTINGS * sizeof *room);
    if (!room) {
        p->failed = true;
        return;
    }
    memset(&table, 0, sizeof table);
    for (int i = 0; i < all->runs; i++) {
        const setting_list empty = {room + i * MOST_SETTINGS, 0, false};
        list[i] = empty;
        visit_settings(all->run[i].log.begin, "", elsewhere, keep_setting, &list[i]);
        more = more || list[i].more;
    }
    const bool any = add_other_rows(&table, list, all->runs);
    add(p, "<section><h2>Other settings that differ</h2><div class=\"card\">");
    if (any) {
        add(p, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Other settings that differ\">"
               "<table class=\"across\"><thead><tr><th scope=\"col\">Setting</th>");
        for (int i = 0; i < all->runs; i++) {
            add(p, "<th scope=\"col\">");
            add_text(p, all->run[i].name);
            add(p, "</th>");
        }
        add(p, "</tr></thead><tbody>%s</tbody></table></div>", table.data ? table.data : "");
    } else {
        add(p, "<p class=\"muted\" style=\"margin:0\">All other settings, and the environment, are the same.</p>");
    }
    if (more) add(p, "<p class=\"muted\">The logs have more settings than are compared here.</p>");
    add(p, "</div></section>");
    p->failed = p->failed || table.failed;
    free(table.data);
    free(room);
}

/* >>curves */

/* The seconds of training after each epoch. */
static curve over_time(page *p, const run_log *log, const char *name) {
    curve c = make_curve(p, log->epochs);
    double seconds = 0;
    for (int i = 0; c.x && i < log->epochs; i++) {
        seconds += number_of(log->epoch[i], "seconds");
        if (!member(log->epoch[i], name)) continue;
        c.x[c.count] = seconds;
        c.y[c.count++] = number_of(log->epoch[i], name);
    }
    return c;
}

/* Turns the seconds of all curves into a unit that suits the longest, which is returned. */
static const char *suit_unit(curve *c, int count) {
    double most = 0;
    for (int i = 0; i < count; i++) most = c[i].count ? fmax(most, c[i].x[c[i].count - 1]) : most;
    const double unit = most < 180 ? 1 : most < 10800 ? 60 : 3600;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < c[i].count; k++) c[i].x[k] /= unit;
    }
    return most < 180 ? "second" : most < 10800 ? "minute" : "hour";
}

/* NULL: the learning rate, of steps where the log has them. */
static void add_curve(page *p, const comparison *all, const char *name, bool timed) {
    char title[MOST_NAME + 32], words[MOST_NAME];
    curve c[MOST_LOOKS];
    series lines[MOST_LOOKS];
    int count = 0, direction = 0;
    bool share = false;
    for (int i = 0; i < all->runs; i++) {
        const run_log *log = &all->run[i].log;
        c[i] = timed                     ? over_time(p, log, name)
               : !name && log->steps > 1 ? steps_of(p, log, true)
                                         : epochs_of(p, log, "", name ? name : "learning_rate");
        add_series(lines, &count, all->run[i].name, all->run[i].look, &c[i]);
        share = share || (name && is_share(log, name));
        if (name && !direction) direction = direction_of(log, name);
    }
    const bool validation = name && strncmp(name, "val_", 4) == 0;
    words_of_name(!name ? "learning_rate" : validation ? name + 4 : name, !validation, words);
    snprintf(title, sizeof title, "%s%s%s", validation ? "Validation " : "", words,
             timed ? " over training time" : "");
    const char *over = timed ? suit_unit(c, all->runs) : "epoch";
    const chart drawn = {title, over, lines, count, share, direction, true, timed, false};
    draw_chart(p, &drawn);
    for (int i = 0; i < all->runs; i++) free(c[i].x);
}

/* Adds a name unless it is there. */
static void keep_name(const char **names, int *count, const char *name) {
    for (int i = 0; i < *count; i++) {
        if (strcmp(names[i], name) == 0) return;
    }
    if (*count < MOST_CURVES) names[(*count)++] = name;
}

static void add_all_curves(page *p, const comparison *all) {
    static const char *const best[] = {"val_accuracy", "val_loss", "accuracy", "loss"};
    const char *names[MOST_CURVES], *chief = NULL;
    int count = 0;
    for (int i = 0; i < all->runs; i++) {
        const run_log *log = &all->run[i].log;
        for (const value *v = log->epochs ? log->epoch[0]->first : NULL; v && count < MOST_CURVES; v = v->next) {
            if (is_log(v) && strcmp(v->key, "learning_rate") != 0 && strcmp(v->key, "batch_loss") != 0)
                keep_name(names, &count, v->key);
        }
    }
    for (size_t k = 0; k < sizeof best / sizeof best[0] && !chief; k++) {
        for (int i = 0; i < count && !chief; i++) chief = strcmp(names[i], best[k]) == 0 ? names[i] : NULL;
    }
    add(p, "<section><h2>Learning</h2>");
    if (!count) add(p, "<p class=\"muted\">No epoch has ended yet.</p>");
    add(p, "<div class=\"charts\">");
    for (int i = 0; i < count; i++) add_curve(p, all, names[i], false);
    add_curve(p, all, NULL, false);
    if (chief) add_curve(p, all, chief, true);
    add(p, "</div></section>");
}

/* >>the page */

static void add_comparison(page *p, const comparison *all) {
    begin_page(p, "Runs compared", "mirrortrain", NULL);
    add(p, "<header><p class=\"eyebrow\">mirrortrain run comparison</p><h1>%d runs compared</h1><ul class=\"legend\">",
        all->runs);
    for (int i = 0; i < all->runs; i++) {
        add(p, "<li>");
        add_key(p, all->run[i].look);
        add_text(p, all->run[i].name);
        add(p, "</li>");
    }
    add(p, "</ul></header>\n<main>");
    add_table(p, all);
    add_all_curves(p, all);
    add_other_settings(p, all);
    end_page(p, "their logs");
}

bool write_comparison(const options *o) {
    const char *path = o->out ? o->out : "comparison.html";
    page p;
    comparison *all = (comparison *)calloc(1, sizeof *all);
    memset(&p, 0, sizeof p);
    if (!all) complain("out of memory");
    bool good = all && read_runs(o, &p, all);
    if (good) add_comparison(&p, all);
    for (int i = 0; all && i < all->runs; i++) free_run_log(&all->run[i].log);
    free(all);
    if (!good) free(p.data);
    good = good && write_page(&p, path);
    if (good) tell("report: %s", path);
    return good;
}
