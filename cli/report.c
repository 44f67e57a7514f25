/* mirrortrain report: writes the log of a run as one self-contained page, or compares several. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 64, MOST_PHASES = 16, MOST_SAMPLES = 64 };

/* >>top */

static void add_fact(page *p, const char *what) { add(p, "<div><dt>%s</dt><dd>", what); }

static void add_metric_fact(page *p, const run_log *log, const char *what, const char *name) {
    int where;
    const double last = last_of(log, name), best = best_of(log, name, &where);
    if (!isfinite(last)) return;
    add_fact(p, what);
    add_log(p, log, name, last);
    if (where >= 0 && fabs(best - last) > 1e-4 * fabs(last)) {
        add(p, "<small>best ");
        add_log(p, log, name, best);
        add(p, " in epoch %.0f</small>", number_of(log->epoch[where], "epoch") + 1);
    }
    add(p, "</dd></div>");
}

/* The number of epochs given when the run was last resumed. */
static double all_epochs(const run_log *log) { return number_of(log->resumed ? log->resumed : log->begin, "epochs"); }

/* How far training has come, in epochs. */
static double position_of(const run_log *log) {
    const double step = log->steps ? log->step[log->steps - 1].at : 0;
    const double epoch = log->epochs ? number_of(log->epoch[log->epochs - 1], "epoch") + 1 : 0;
    return fmax(step, epoch); /* fmax ignores NaN */
}

/* Seconds until training ends, at the speed so far; NAN: not known yet. */
static double seconds_left(const run_log *log) {
    const double per_epoch = number_of(log->begin, "batches"), at = position_of(log);
    const double first = log->resumed && per_epoch > 0 ? number_of(log->resumed, "step") / per_epoch : 0;
    const double spent = log->live->now - number_of(log->resumed ? log->resumed : log->begin, "time");
    double all = all_epochs(log), left;
    if (log->live->most_steps && per_epoch > 0) all = fmin(all, (double)log->live->most_steps / per_epoch);
    left = ceil(spent * (all - at) / (at - first));
    return at > first && spent > 0 ? fmax(left, 0) : (double)NAN;
}

/* Images per second: of the whole run when it has ended, otherwise lately. */
static double speed_of(const run_log *log) {
    const value *last = log->epochs ? log->epoch[log->epochs - 1] : NULL;
    const double whole = number_of(log->end, "images_per_second");
    if (log->live && log->uses) return number_of(member(log->use[log->uses - 1], "use"), "images_per_second");
    if (!log->live || !last) return whole;
    return number_of(log->begin, "batch") * number_of(last, "batch") / number_of(last, "seconds");
}

static void add_time_fact(page *p, const run_log *log) {
    const double seconds = number_of(log->end, "seconds"), waited = number_of(log->end, "input_seconds");
    if (log->live) {
        const double left = seconds_left(log);
        add_fact(p, "Time left");
        if (isfinite(left)) add_duration(p, left);
        else add(p, "?");
        add(p, "<small>%s</small></dd></div>", isfinite(left) ? "at the speed so far" : "not known yet");
    } else if (seconds > 0) {
        add_fact(p, "Time in steps");
        add_duration(p, seconds);
        if (waited / seconds > 0.02) add(p, "<small>%.0f\xc2\xa0%% waiting for input</small>", 100 * waited / seconds);
        add(p, "</dd></div>");
    }
}

static void add_facts(page *p, const run_log *log) {
    const double speed = speed_of(log);
    add(p, "<dl class=\"facts\">");
    add_metric_fact(p, log, "Validation accuracy", "val_accuracy");
    add_metric_fact(p, log, "Validation loss", "val_loss");
    add_metric_fact(p, log, "Training accuracy", "accuracy");
    add_metric_fact(p, log, "Training loss", "loss");
    if (speed > 0) {
        add_fact(p, "Images per second");
        add(p, speed < 100 ? "%.1f" : "%.0f", speed);
        add(p, "</dd></div>");
    }
    add_time_fact(p, log);
    if (isfinite(number_of(log->begin, "devices"))) {
        add_fact(p, "Devices");
        add(p, "%.0f<small>%.0f replica%s, batch %.0f</small></dd></div>", number_of(log->begin, "devices"),
            number_of(log->begin, "replicas"), number_of(log->begin, "replicas") == 1 ? "" : "s",
            number_of(log->begin, "batch"));
    }
    add(p, "</dl>");
}

static void add_epochs(page *p, const run_log *log) {
    const double all = all_epochs(log);
    if (!(log->epochs || log->live) || !(all > 0)) return;
    if (log->live && (!log->epochs || position_of(log) < all)) {
        add(p, "<span>in epoch %.0f of %.0f</span>", fmin(floor(position_of(log)) + 1, all), all);
        return;
    }
    const value *last = log->epoch[log->epochs - 1];
    const bool cut = number_of(last, "batch") < number_of(last, "batches");
    add(p, cut ? "<span>in epoch %.0f of %.0f</span>" : "<span>%.0f of %.0f epochs</span>",
        number_of(last, "epoch") + 1, all);
}

outcome outcome_of(const run_log *log) {
    static const struct { const char *status; outcome is;
    } ended[] = {{"finished", {"finished", " good", NULL}},
                 {"stopped", {"stopped", "", "Training was stopped before the last epoch, by a callback or a limit."}},
                 {"failed", {"failed", " bad", NULL}}};
    const char *status = text_of(log->end, "status");
    const outcome none[] = {
        {"no final record", " bad",
         "The log has no final record. The run is still training, or its process ended without writing one."},
        {"ended without a final record", " bad",
         "The process was killed or the machine stopped. The same command with --resume resumes from the newest "
         "checkpoint."},
        {"running", "", "This page shows the run at the time the page was made."}};
    const outcome interrupted = {
        "interrupted", "",
        "A signal ended the run after a complete step, which has a checkpoint. This command resumes it:"};
    for (size_t i = 0; status && !log->live && i < sizeof ended / sizeof ended[0]; i++) {
        if (strcmp(status, ended[i].status) != 0) continue;
        return log->interrupted && i == 1 ? interrupted : ended[i].is;
    }
    const outcome other = {status, " bad", NULL}, live = {"running", " good", NULL};
    if (log->live) return live; /* a run that resumes may have ended before */
    return status ? other : none[log->owner];
}

/* The script of the page replaces the words with the time since then. */
static void add_age(page *p, const live_page *live) {
    add(p, "<span id=\"live\" data-at=\"%.0f\" data-every=\"%.0f\">last update ", live->now, live->every);
    add_date(p, live->now);
    add(p, "</span>");
}

static void add_header(page *p, const run_log *log, const char *directory) {
    const char *model = text_of(log->begin, "model"), *words = text_of(log->interrupted, "resume");
    const outcome is = outcome_of(log);
    add(p, "<header><p class=\"eyebrow\">mirrortrain run report \xc2\xb7 ");
    add_text(p, directory);
    add(p, "</p><h1>");
    add_start(p, model ? model : "a run", MOST_TITLE);
    add(p, "</h1><p class=\"meta\"><span id=\"state\" class=\"pill%s\">", is.look);
    add_text(p, is.word);
    add(p, "</span>");
    add_epochs(p, log);
    if (isfinite(number_of(log->end, "step"))) add(p, "<span>%.0f steps</span>", number_of(log->end, "step"));
    if (isfinite(number_of(log->resumed, "step")))
        add(p, "<span>resumed at step %.0f</span>", number_of(log->resumed, "step"));
    add(p, "<span>");
    add_date(p, number_of(log->begin, "time"));
    add(p, "</span>");
    if (log->live) add_age(p, log->live);
    add(p, "</p>");
    if (log->live)
        add(p, "<p id=\"stale\" class=\"muted\" style=\"margin-top:8px\" hidden>The fit has not written this page for "
               "more than three times its interval of %.0f\xc2\xa0s: its process was killed, or its machine stopped. "
               "The same command with --resume resumes from the newest checkpoint.</p>", log->live->every);
    if (is.more) {
        add(p, "<p class=\"muted\" style=\"margin-top:8px\">%s</p>", is.more);
        if (log->interrupted && words) {
            add(p, "<p class=\"card\"><code>");
            add_text(p, words);
            add(p, "</code></p>");
        }
    }
    if (text_of(log->end, "error")) {
        add(p, "<p class=\"card\" style=\"margin-top:12px\">");
        add_text(p, text_of(log->end, "error"));
        add(p, "</p>");
    }
    if (log->strange)
        add(p, "<p class=\"muted\">%d line%s of the log could not be read.</p>", log->strange,
            log->strange == 1 ? "" : "s");
    add_facts(p, log);
    add(p, "</header>");
}

/* >>time */

/* {"input wait": seconds, ...} */
static int read_phases(const value *phases, double *seconds, const char **names, double *sum) {
    int count = 0;
    *sum = 0;
    for (const value *v = phases ? phases->first : NULL; v && count < MOST_PHASES; v = v->next) {
        if (v->kind != VALUE_NUMBER || !v->key) continue;
        names[count] = v->key;
        seconds[count] = v->number;
        *sum += v->number;
        count++;
    }
    return count;
}

static void add_phases(page *p, const value *timing) {
    double seconds[MOST_PHASES], sum;
    const char *names[MOST_PHASES];
    const double steps = number_of(timing, "steps");
    const int count = read_phases(member(timing, "phases"), seconds, names, &sum);
    if (!(sum > 0)) return;
    add(p, "<div class=\"card\"><h3>A step, averaged over the devices</h3>");
    draw_bar(p, "Where the time of a step goes; the numbers are in the table below", seconds, names, count, sum);
    add(p, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Where the time goes\"><table><thead><tr>"
           "<th scope=\"col\">Part</th><th scope=\"col\">Share</th><th scope=\"col\">ms/step</th><th scope=\"col\">"
           "Seconds</th></tr></thead><tbody>");
    for (int i = 0; i < count; i++) {
        if (!(seconds[i] > 0)) continue;
        add(p, "<tr><th scope=\"row\"><i class=\"swatch\" style=\"background:var(--p%d)\"></i>", i % 10);
        add_text(p, names[i]);
        add(p, "</th><td>%.1f\xc2\xa0%%</td><td>%.3f</td><td>%.2f</td></tr>", sum > 0 ? 100 * seconds[i] / sum : 0,
            1000 * seconds[i] / (steps > 0 ? steps : 1), seconds[i]);
    }
    add(p, "</tbody></table></div></div>");
}

static void add_devices(page *p, const value *timing) {
    const value *devices = member(timing, "devices");
    if (!devices || !devices->count) return;
    add(p, "<div class=\"card\"><h3>Devices</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
           "aria-label=\"Devices\"><table><thead><tr><th scope=\"col\">Device</th><th scope=\"col\">Busy</th>"
           "<th scope=\"col\">Samples</th><th scope=\"col\">Memory</th></tr></thead><tbody>");
    for (const value *d = devices->first; d; d = d->next) {
        const double busy = number_of(d, "busy");
        add(p, "<tr><th scope=\"row\">");
        add_text(p, text_of(d, "name") ? text_of(d, "name") : "?");
        add(p, "</th><td><span class=\"meter\" aria-hidden=\"true\"><i style=\"width:%.0f%%\"></i></span>",
            100 * fmin(fmax(busy, 0), 1));
        add_known(p, "%.0f\xc2\xa0%%", 100 * busy);
        add(p, "</td><td>");
        add_known(p, "%.0f", number_of(d, "samples"));
        add(p, "</td><td>");
        add_bytes(p, number_of(d, "bytes"));
        add(p, "</td></tr>");
    }
    add(p, "</tbody></table></div>");
    if (number_of(timing, "peak_bytes") > 0) {
        add(p, "<p class=\"muted\" style=\"margin:10px 0 0\">Peak memory of the whole process: ");
        add_bytes(p, number_of(timing, "peak_bytes"));
        add(p, ".</p>");
    }
    add(p, "</div>");
}

static void add_timing(page *p, const run_log *log) {
    const char *said = text_of(log->timing, "verdict");
    if (!log->timing) return;
    char *verdict = said ? without_calls(said, NULL) : NULL;
    add(p, "<section><h2>Where the time goes</h2>");
    if (log->resumed && number_of(log->timing, "steps") > 0)
        add(p,
            "<p class=\"muted\">This covers the %.0f steps "
            "since the run was resumed; the time in steps "
            "above covers all of them.</p>",
            number_of(log->timing, "steps"));
    if (verdict) {
        add(p, "<div class=\"card verdict\"><p>");
        add_text(p, verdict);
        add(p, "</p></div>");
        free(verdict);
    }
    add(p, "<div class=\"two\">");
    add_phases(p, log->timing);
    add_devices(p, log->timing);
    add(p, "</div></section>");
}

/* >>predictions */

/* The names of `count` classes; NULL: they have no names. */
static const char **class_names(page *p, const value *list, int count) {
    if (!list || list->kind != VALUE_LIST || list->count != count) return NULL;
    const char **names = (const char **)malloc((size_t)count * sizeof *names);
    int i = 0;
    if (!names) p->failed = true;
    for (const value *v = list->first; names && v; v = v->next)
        names[i++] = v->kind != VALUE_TEXT ? "?" : v->text[0] ? v->text : "(no name)";
    return names;
}

/* The counts, row by row; NULL: there is no matrix, or it is too large to show. */
static double *read_matrix(page *p, const value *rows, int *classes) {
    *classes = rows && rows->kind == VALUE_LIST ? rows->count : 0;
    if (*classes < 2 || *classes > MOST_CLASSES) return NULL;
    double *count = (double *)calloc((size_t)*classes * (size_t)*classes, sizeof *count);
    if (!count) p->failed = true;
    int i = 0;
    for (const value *row = rows->first; count && row; row = row->next, i++) {
        int j = 0;
        for (const value *v = row->first; v && j < *classes; v = v->next, j++)
            count[i * *classes + j] = v->kind == VALUE_NUMBER ? v->number : 0;
    }
    return count;
}

static void add_share(page *p, double part, double whole) {
    if (whole > 0) add(p, "<td>%.1f\xc2\xa0%%</td>", 100 * part / whole);
    else add(p, "<td>\xe2\x80\x93</td>");
}

static void add_class_table(page *p, const double *count, int classes, const char *const *names) {
    add(p, "<div class=\"card\"><h3>Classes</h3><div class=\"scroll tall\" tabindex=\"0\" role=\"region\" "
           "aria-label=\"Classes\"><table class=\"names\"><thead><tr><th scope=\"col\">Class</th><th scope=\"col\">"
           "Images</th><th scope=\"col\">Recall</th><th scope=\"col\">Precision</th><th scope=\"col\">"
           "Most often confused with</th></tr></thead><tbody>");
    for (int i = 0; i < classes; i++) {
        double row = 0, column = 0;
        int other = -1;
        for (int j = 0; j < classes; j++) {
            row += count[i * classes + j];
            column += count[j * classes + i];
            if (j != i && count[i * classes + j] > 0 &&
                (other < 0 || count[i * classes + j] > count[i * classes + other]))
                other = j;
        }
        add(p, "<tr><th scope=\"row\">");
        if (names) add_start(p, names[i], 36);
        else add(p, "%d", i);
        add(p, "</th><td>%.0f</td>", row);
        add_share(p, count[i * classes + i], row);
        add_share(p, count[i * classes + i], column);
        add(p, "<td>");
        if (other < 0) add(p, "\xe2\x80\x93");
        else if (names) add_start(p, names[other], 36);
        else add(p, "%d", other);
        if (other >= 0) add(p, " (%.0f)", count[i * classes + other]);
        add(p, "</td></tr>");
    }
    add(p, "</tbody></table></div></div>");
}

static bool is_base64(const char *text) {
    return text && *text &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") == strlen(text);
}

static void add_label(page *p, const value *names, double number) {
    const value *v = names && names->kind == VALUE_LIST ? names->first : NULL;
    for (int i = 0; v && i < number; i++) v = v->next;
    if (v && v->text && v->text[0]) add_start(p, v->text, 36);
    else add(p, "%.0f", number);
}

static void add_samples(page *p, const run_log *log, const value *names) {
    int shown = 0;
    const value *items = member(log->samples, "items");
    if (!items || !items->count) return;
    add(p, "<h2>Predictions for sample images</h2><div class=\"samples\">");
    for (const value *s = items->first; s && shown < MOST_SAMPLES; s = s->next) {
        const char *png = text_of(s, "png");
        const double truth = number_of(s, "true"), said = number_of(s, "predicted"), score = number_of(s, "score");
        if (!is_base64(png) || !isfinite(said)) continue;
        shown++;
        add(p, "<figure%s><img alt=\"Validation image %.0f\" src=\"data:image/png;base64,%s\"><figcaption><b>",
            truth != said ? " class=\"miss\"" : "", number_of(s, "index"), png);
        add_label(p, names, said);
        add(p, "</b>");
        if (isfinite(score)) add(p, " %.0f\xc2\xa0%%", 100 * score);
        if (truth != said && isfinite(truth)) {
            add(p, "<br>\xe2\x9c\x97 is ");
            add_label(p, names, truth);
        }
        add(p, "</figcaption></figure>");
    }
    add(p, "</div>");
}

static void add_predictions(page *p, const run_log *log) {
    int classes;
    const value *names = member(log->confusion, "classes");
    double *count = read_matrix(p, member(log->confusion, "matrix"), &classes);
    add(p, "<section>");
    if (count) {
        const char **words = class_names(p, names, classes);
        add(p, "<h2>Confusion matrix</h2><div class=\"two\"><div class=\"card\"><h3>"
               "Validation images by true and predicted class</h3>");
        draw_confusion(p, count, classes, words);
        add(p, "</div>");
        add_class_table(p, count, classes, words);
        add(p, "</div>");
        free(words);
    }
    free(count);
    add_samples(p, log, names);
    add(p, "</section>");
}

/* >>settings */

static void add_scalar(page *p, const value *v) {
    if (v->kind == VALUE_TEXT) add_text(p, *v->text ? v->text : "\xe2\x80\x93");
    else if (v->kind == VALUE_NULL) add(p, "none");
    else if (v->kind == VALUE_BOOL) add(p, v->number ? "yes" : "no");
    else if (v->kind == VALUE_NUMBER && v->number == floor(v->number) && fabs(v->number) < 1e15)
        add(p, "%.0f", v->number);
    else if (v->kind == VALUE_NUMBER) add_number(p, v->number);
}

void add_setting(page *p, const value *v) {
    if (v->kind < VALUE_LIST) {
        add_scalar(p, v);
        return;
    }
    for (const value *one = v->first; one; one = one->next) {
        if (one->key) {
            add_name(p, one->key, false);
            add(p, " ");
        }
        add_setting(p, one);
        if (one->next) add(p, ", ");
    }
}

/* `list` ends in NULL, or is NULL. */
static bool is_listed(const char *name, const char *const *list) {
    while (list && *list && strcmp(*list, name) != 0) list++;
    return list && *list;
}

void visit_settings(const value *object, const char *above, const char *const *without,
                    void (*visit)(void *user, const char *name, const value *v), void *user) {
    for (const value *v = object ? object->first : NULL; v; v = v->next) {
        char name[200];
        if (!v->key || is_listed(v->key, without) || (v->kind >= VALUE_LIST && !v->count)) continue;
        const bool within = strcmp(v->key, "compile") == 0, kind = *above && strcmp(v->key, "class_name") == 0;
        snprintf(name, sizeof name, "%s%s%s", above, *above && !kind ? " \xc2\xb7 " : "", within || kind ? "" : v->key);
        if (v->kind == VALUE_OBJECT) visit_settings(v, name, NULL, visit, user);
        else visit(user, name, v);
    }
}

static void add_pair(void *user, const char *name, const value *v) {
    page *p = (page *)user;
    add(p, "<tr><th scope=\"row\">");
    add_name(p, name, true);
    add(p, "</th><td>");
    add_setting(p, v);
    add(p, "</td></tr>");
}

static void add_settings(page *p, const run_log *log) {
    static const char *const elsewhere[] = {"event", "time", "environment", "model", "classes", "logs", NULL};
    const value *environment = member(log->begin, "environment");
    if (!log->begin) return;
    add(p, "<section><h2>Settings and environment</h2><div class=\"two\"><div class=\"card\"><h3>The run</h3>"
           "<table class=\"pairs\"><tbody>");
    visit_settings(log->begin, "", elsewhere, add_pair, p);
    add(p, "</tbody></table></div>");
    if (environment) {
        add(p, "<div class=\"card\"><h3>Environment</h3><table class=\"pairs\"><tbody>");
        visit_settings(environment, "", NULL, add_pair, p);
        add(p, "</tbody></table></div>");
    }
    add(p, "</div></section>");
}

/* >>the page */

static void add_page(page *p, const run_log *log, const char *directory) {
    const char *model = text_of(log->begin, "model");
    begin_page(p, model ? model : "A run", "run report", log->live);
    add_header(p, log, directory);
    add(p, "\n<main>");
    add_curves(p, log);
    add_timing(p, log);
    add_usage(p, log);
    add_staleness(p, log);
    add_predictions(p, log);
    add_settings(p, log);
    end_page(p, "log.jsonl");
}

bool write_run_page(const char *directory, int owner, const live_page *live) {
    run_log log;
    page p;
    char path[4150];
    memset(&p, 0, sizeof p);
    if (!read_run_log(directory, &log)) return false;
    log.owner = owner;
    log.live = live;
    add_page(&p, &log, directory);
    free_run_log(&log);
    snprintf(path, sizeof path, "%s/report.html", directory);
    return write_page(&p, path);
}

bool write_report(const char *directory, bool own) {
    if (!write_run_page(directory, own ? OWNER_UNKNOWN : owner_of_run(directory), NULL)) return false;
    tell("report: %s/report.html", directory);
    return true;
}

int run_report(const options *o) {
    if (o->operands < 1 || o->operands > MOST_LOOKS) {
        complain("report needs the directories of one to %d runs: mirrortrain report DIR...", MOST_LOOKS);
        return EXIT_USAGE;
    }
    if (o->operands > 1) return write_comparison(o) ? EXIT_OK : EXIT_FAILED;
    if (o->out) {
        complain("--out is for a page that compares runs; the page of one run is DIR/report.html");
        return EXIT_USAGE;
    }
    return write_report(o->operand[0], false) ? EXIT_OK : EXIT_FAILED;
}
