/* mirrortrain report: writes the log of a run as one self-contained page. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_CLASSES = 64, MOST_PHASES = 16, MOST_SAMPLES = 64, MOST_COLUMNS = 80, MOST_ROWS = 2000, MOST_CHARTS = 48,
    MOST_NAME = 120
};

/* Colors like those of Tableau and GitHub: distinct for the color-blind, with a contrast of 4.5:1 for text. */
static const char *const style[] = {
    ":root{--bg:#f5f6f8;--card:#fff;--text:#1a1f27;--muted:#5a6472;--line:#dfe3e8;--grid:#e9ecf0;--c1:#2563c9;"
    "--c2:#c4500c;--good:#1a7f4b;--bad:#b3261e;",
    "--p0:#d99a1c;--p1:#8fb8a8;--p2:#7aa5e8;--p3:#2f66c4;--p4:#b9a3e3;--p5:#d9534a;--p6:#3c9a62;--p7:#8b5fc7;"
    "--p8:#c98bb0;--p9:#9aa3ae}",
    "@media(prefers-color-scheme:dark){:root{--bg:#12151a;--card:#1a1e25;--text:#e5e8ed;--muted:#9aa5b4;--line:#2c323c;"
    "--grid:#262c35;--c1:#72a7ff;--c2:#ff9a57;",
    "--good:#5ccb8f;--bad:#ff8a80;--p0:#e6b04a;--p1:#7fae9d;--p2:#8db6f5;--p3:#4a82e0;--p4:#a48bd6;--p5:#ea6a61;"
    "--p6:#4fb37a;--p7:#a27ddb;--p8:#d69bbf;--p9:#7d8794}}",
    "*{box-sizing:border-box}html{color-scheme:light dark}body{margin:0;overflow-wrap:break-word;background:var(--bg);"
    "color:var(--text);font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;",
    "-webkit-text-size-adjust:100%}main,header{max-width:1240px;margin:0 auto;padding:0 20px}header{padding-top:28px}",
    "h1{font-size:28px;line-height:1.2;margin:2px 0 6px;overflow-wrap:anywhere}h2{font-size:19px;margin:34px 0 12px}"
    "h3{font-size:14px;margin:0 0 8px;font-weight:600}p{margin:0 0 10px}",
    ".eyebrow{color:var(--muted);font-size:13px;letter-spacing:.02em;margin:0}.muted{color:var(--muted)}"
    ".meta{color:var(--muted);display:flex;flex-wrap:wrap;gap:4px 14px;align-items:center;margin:0}",
    ".pill{border:1px solid currentColor;border-radius:99px;padding:0 10px;font-size:13px;font-weight:600}"
    ".pill.good{color:var(--good)}.pill.bad{color:var(--bad)}",
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;margin:0;min-width:0}",
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0 0;padding:0}"
    ".facts div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px;min-width:0}",
    ".facts dt{color:var(--muted);font-size:13px}.facts dd{margin:0;font-size:23px;font-weight:600;"
    "font-variant-numeric:tabular-nums;overflow-wrap:anywhere;line-height:1.3}"
    ".facts small{display:block;font-size:13px;font-weight:400;color:var(--muted)}",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:16px}"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px;align-items:start}",
    "svg{display:block;width:100%;height:auto}.tick{fill:var(--muted);font-size:11px}"
    ".grid{stroke:var(--grid);stroke-width:1;fill:none}.base{stroke:var(--line)}",
    ".line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.line.s1{stroke:var(--c1)}"
    ".line.s2{stroke:var(--c2);stroke-dasharray:6 4}.line.faint{stroke:var(--c1);stroke-width:1;opacity:.35}",
    ".dot.s1{fill:var(--c1)}.dot.s2{fill:var(--card);stroke:var(--c2);stroke-width:2}",
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:8px 0 0;padding:0;font-size:13px}"
    ".legend li,.meta span{min-width:0;overflow-wrap:anywhere}.legend b{font-variant-numeric:tabular-nums}",
    ".key{display:inline-block;width:18px;height:0;border-top:2px solid var(--c1);vertical-align:middle;"
    "margin-right:6px}.key.s2{border-top:2px dashed var(--c2)}.key.faint{border-top-width:1px;opacity:.5}",
    ".scroll{overflow-x:auto}.scroll:focus-visible{outline:2px solid var(--c1)}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13.5px;width:100%}",
    "th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "th{font-weight:600;color:var(--muted)}th:first-child,td:first-child{text-align:left;padding-left:0}"
    "td:last-child,th:last-child{padding-right:0}tr:last-child td,tr:last-child th{border-bottom:0}",
    "tbody th{color:var(--text);font-weight:400}.pairs td,.pairs th{text-align:left;white-space:normal;"
    "overflow-wrap:anywhere;vertical-align:top}.pairs th{width:38%;color:var(--muted)}",
    "details.card{margin-top:16px;padding-bottom:10px}.matrix{max-width:500px;margin:0 auto}"
    "summary{cursor:pointer;color:var(--muted);font-size:14px;margin-bottom:8px}"
    "summary:focus-visible{outline:2px solid var(--c1)}",
    ".verdict{border-left:4px solid var(--c1);font-size:16px;margin-bottom:16px}.verdict p{margin:0}"
    ".bar{height:26px;border-radius:5px;margin:2px 0 12px}.swatch{display:inline-block;width:11px;height:11px;"
    "border-radius:3px;margin-right:8px}",
    ".meter{display:inline-block;width:70px;height:8px;border-radius:4px;background:var(--grid);margin-right:8px;"
    "vertical-align:middle;overflow:hidden}.meter i{display:block;height:100%;background:var(--c1)}",
    ".right{fill:var(--c1)}.wrong{fill:var(--c2)}text.on{fill:var(--card)}text.off{fill:var(--text)}",
    ".names th:first-child,.names td:last-child{white-space:normal;overflow-wrap:anywhere;min-width:56px}"
    ".tall{max-height:540px;overflow-y:auto}.samples{display:grid;align-items:start;"
    "grid-template-columns:repeat(auto-fill,minmax(104px,1fr));gap:12px}.samples figure{background:var(--card);"
    "border:1px solid var(--line);border-radius:8px;margin:0;padding:8px;font-size:13px;line-height:1.35;min-width:0;"
    "overflow-wrap:anywhere}",
    ".samples img{display:block;width:100%;aspect-ratio:1;object-fit:contain;image-rendering:pixelated;"
    "background:#8884;border-radius:4px;margin-bottom:6px}.samples .miss{border-color:var(--bad)}"
    ".miss b{color:var(--bad)}",
    "footer{max-width:1240px;margin:30px auto 0;padding:14px 20px 30px;color:var(--muted);font-size:13px}"
    "@media(max-width:500px){main,header,footer{padding-left:12px;padding-right:12px}.card{padding:12px}"
    "h1{font-size:24px}th,td{padding:5px 6px}table{font-size:13px}thead th{white-space:normal}"
    ".meter{width:34px;margin-right:5px}.samples{grid-template-columns:repeat(3,1fr)}}",
    "@media print{body{background:#fff}.card{break-inside:avoid}}",
};

/* >>pieces */

/* Seconds since 1970 as a date. */
static void add_date(page *p, double when) {
    char text[64];
    struct tm parts;
    if (!(when > 0 && when < 253402300800.0)) return; /* from 1970 to the year 9999 */
    const time_t t = (time_t)when;
    if (gmtime_r(&t, &parts) && strftime(text, sizeof text, "%d %B %Y, %H:%M UTC", &parts))
        add(p, "<span>%s</span>", text + (*text == '0'));
}

static void add_duration(page *p, double seconds) {
    if (!isfinite(seconds) || seconds < 0) add(p, "?");
    else if (seconds < 10) add(p, "%.2f\xc2\xa0s", seconds);
    else if (seconds < 120) add(p, "%.0f\xc2\xa0s", seconds);
    else if (seconds < 7200) add(p, "%.0f\xc2\xa0min", seconds / 60);
    else add(p, "%.1f\xc2\xa0h", seconds / 3600);
}

static void add_bytes(page *p, double bytes) {
    if (!isfinite(bytes)) add(p, "?");
    else if (bytes < 1024 * 1024) add(p, "%.0f\xc2\xa0KiB", bytes / 1024);
    else if (bytes < 10.0 * 1024 * 1024 * 1024) add(p, "%.0f\xc2\xa0MiB", bytes / 1024 / 1024);
    else add(p, "%.1f\xc2\xa0GiB", bytes / 1024 / 1024 / 1024);
}

/* A number, or a dash if the log lacks it; `format` is for one double. */
static void add_known(page *p, const char *format, double number) {
    char text[64];
    if (isfinite(number)) snprintf(text, sizeof text, format, number);
    add(p, "%s", isfinite(number) ? text : "?");
}

/* The log's declaration of the values with this name, with or without val_. NULL: none. */
static const value *declared(const run_log *log, const char *name) {
    const value *logs = member(log->begin, "logs"), *v = member(logs, name);
    return v || strncmp(name, "val_", 4) != 0 ? v : member(logs, name + 4);
}

/* Whether the values are fractions from 0 to 1. */
static bool is_share(const run_log *log, const char *name) {
    const value *share = member(declared(log, name), "share");
    return share && share->kind == VALUE_BOOL && share->number != 0;
}

/* 1: large values are better, -1: small ones, 0: the log does not say. */
static int direction_of(const run_log *log, const char *name) {
    const char *direction = text_of(declared(log, name), "direction");
    return !direction ? 0 : strcmp(direction, "max") == 0 ? 1 : strcmp(direction, "min") == 0 ? -1 : 0;
}

static void add_log(page *p, const run_log *log, const char *name, double number) {
    if (is_share(log, name) && isfinite(number)) add(p, "%.2f\xc2\xa0%%", 100 * number);
    else add_number(p, number);
}

/* "val_top_k_accuracy" in words. */
static void add_name(page *p, const char *name, bool upper) {
    char words[128];
    snprintf(words, sizeof words, "%s", name);
    for (char *at = words; *at; at++) *at = *at == '_' ? ' ' : *at;
    if (upper && words[0] >= 'a' && words[0] <= 'z') words[0] = (char)(words[0] - 32);
    add_text(p, words);
}

/* Members of an epoch's line that are not logs. */
static bool is_log(const value *v) {
    static const char *const others[] = {"epoch",   "step", "time", "seconds", "input_seconds", "images_per_second",
                                         "batches", "batch"};
    bool log = v->kind == VALUE_NUMBER || v->kind == VALUE_NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) log = log && strcmp(v->key, others[i]) != 0;
    return log;
}

/* The last epoch that has the value. */
static double last_of(const run_log *log, const char *name) {
    for (int i = log->epochs; i--;) {
        const double number = number_of(log->epoch[i], name);
        if (isfinite(number)) return number;
    }
    return (double)NAN;
}

/* >>top */

static void add_fact(page *p, const char *what) { add(p, "<div><dt>%s</dt><dd>", what); }

static void add_metric_fact(page *p, const run_log *log, const char *what, const char *name) {
    const int direction = direction_of(log, name);
    const double last = last_of(log, name);
    double best = last;
    int where = -1;
    if (!isfinite(last)) return;
    for (int i = 0; i < log->epochs; i++) {
        const double number = number_of(log->epoch[i], name);
        if (!(direction > 0 ? number > best : direction < 0 && number < best)) continue;
        best = number;
        where = i;
    }
    add_fact(p, what);
    add_log(p, log, name, last);
    if (where >= 0 && fabs(best - last) > 1e-4 * fabs(last)) {
        add(p, "<small>best ");
        add_log(p, log, name, best);
        add(p, " in epoch %.0f</small>", number_of(log->epoch[where], "epoch") + 1);
    }
    add(p, "</dd></div>");
}

static void add_facts(page *p, const run_log *log) {
    const double speed = number_of(log->end, "images_per_second"), seconds = number_of(log->end, "seconds"),
                 waited = number_of(log->end, "input_seconds");
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
    if (seconds > 0) {
        add_fact(p, "Time in steps");
        add_duration(p, seconds);
        if (seconds > 0 && waited / seconds > 0.02)
            add(p, "<small>%.0f\xc2\xa0%% waiting for input</small>", 100 * waited / seconds);
        add(p, "</dd></div>");
    }
    if (isfinite(number_of(log->begin, "devices"))) {
        add_fact(p, "Devices");
        add(p, "%.0f<small>%.0f replica%s, batch %.0f</small></dd></div>", number_of(log->begin, "devices"),
            number_of(log->begin, "replicas"), number_of(log->begin, "replicas") == 1 ? "" : "s",
            number_of(log->begin, "batch"));
    }
    add(p, "</dl>");
}

/* Uses the number of epochs given when the run was last resumed. */
static void add_epochs(page *p, const run_log *log) {
    const double all = number_of(log->resumed ? log->resumed : log->begin, "epochs");
    if (!log->epochs || !(all > 0)) return;
    const value *last = log->epoch[log->epochs - 1];
    const bool cut = number_of(last, "batch") < number_of(last, "batches");
    add(p, cut ? "<span>in epoch %.0f of %.0f</span>" : "<span>%.0f of %.0f epochs</span>",
        number_of(last, "epoch") + 1, all);
}

/* How the run ended: a word, its style class, and an explanation or NULL. */
typedef struct outcome {
    const char *word, *look, *more;
} outcome;

static outcome outcome_of(const run_log *log) {
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
    for (size_t i = 0; status && i < sizeof ended / sizeof ended[0]; i++) {
        if (strcmp(status, ended[i].status) != 0) continue;
        return log->interrupted && i == 1 ? interrupted : ended[i].is;
    }
    const outcome other = {status, " bad", NULL};
    return status ? other : none[log->owner];
}

static void add_header(page *p, const run_log *log, const char *directory) {
    const char *model = text_of(log->begin, "model"), *words = text_of(log->interrupted, "resume");
    const outcome is = outcome_of(log);
    add(p, "<header><p class=\"eyebrow\">mirrortrain run report \xc2\xb7 ");
    add_text(p, directory);
    add(p, "</p><h1>");
    add_start(p, model ? model : "a run", MOST_NAME);
    add(p, "</h1><p class=\"meta\"><span class=\"pill%s\">", is.look);
    add_text(p, is.word);
    add(p, "</span>");
    add_epochs(p, log);
    if (isfinite(number_of(log->end, "step"))) add(p, "<span>%.0f steps</span>", number_of(log->end, "step"));
    if (isfinite(number_of(log->resumed, "step")))
        add(p, "<span>resumed at step %.0f</span>", number_of(log->resumed, "step"));
    add_date(p, number_of(log->begin, "time"));
    add(p, "</p>");
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

/* >>curves */

/* Values of a log over epochs or steps; adjacent ones are averaged until few enough remain to draw. */
typedef struct curve {
    double *x, *y;
    int count;
} curve;

static curve make_curve(page *p, int most) {
    curve c = {NULL, NULL, 0};
    c.x = (double *)malloc(2 * (size_t)(most + 1) * sizeof *c.x);
    c.y = c.x ? c.x + most + 1 : NULL;
    if (!c.x) p->failed = true;
    return c;
}

static curve epochs_of(page *p, const run_log *log, const char *prefix, const char *name) {
    char key[160];
    curve c = make_curve(p, log->epochs);
    snprintf(key, sizeof key, "%s%s", prefix, name);
    for (int i = 0; c.x && i < log->epochs; i++) {
        if (!member(log->epoch[i], key)) continue;
        c.x[c.count] = number_of(log->epoch[i], "epoch") + 1;
        c.y[c.count++] = number_of(log->epoch[i], key);
    }
    return c;
}

static curve steps_of(page *p, const run_log *log, bool rate) {
    const int most = 500;
    curve c = make_curve(p, most);
    for (int i = 0; c.x && i < (log->steps < most ? log->steps : most); i++) {
        const int first = log->steps <= most ? i : (int)((int64_t)i * log->steps / most),
                  end = log->steps <= most ? i + 1 : (int)((int64_t)(i + 1) * log->steps / most);
        double sum = 0;
        for (int k = first; k < end; k++) sum += rate ? log->step[k].rate : log->step[k].loss;
        c.x[c.count] = log->step[end - 1].at;
        c.y[c.count++] = sum / (end - first);
    }
    return c;
}

static void add_series(series *lines, int *count, const char *name, const char *look, const curve *c) {
    const series line = {name, look, c->count, c->x, c->y};
    if (c->count) lines[(*count)++] = line;
}

static void add_metric_chart(page *p, const run_log *log, const char *name) {
    const bool loss = strcmp(name, "loss") == 0, share = is_share(log, name);
    curve c[3] = {{NULL, NULL, 0}, {NULL, NULL, 0}, {NULL, NULL, 0}};
    series lines[3];
    char title[128];
    int count = 0;
    if (loss && log->steps > 1) c[0] = steps_of(p, log, false);
    c[1] = epochs_of(p, log, "", name);
    c[2] = epochs_of(p, log, "val_", name);
    add_series(lines, &count, "each step", "faint", &c[0]);
    add_series(lines, &count, "training", "s1", &c[1]);
    add_series(lines, &count, "validation", "s2", &c[2]);
    snprintf(title, sizeof title, "%s", name);
    for (char *at = title; *at; at++) *at = *at == '_' ? ' ' : *at;
    if (title[0] >= 'a' && title[0] <= 'z') title[0] = (char)(title[0] - 32);
    draw_chart(p, title, lines, count, share, direction_of(log, name));
    for (int i = 0; i < 3; i++) free(c[i].x);
}

/* Drawn per step if the log has steps, since it is constant within an epoch. */
static void add_rate_chart(page *p, const run_log *log) {
    series line[1];
    int count = 0;
    curve c = log->steps > 1 ? steps_of(p, log, true) : epochs_of(p, log, "", "learning_rate");
    add_series(line, &count, "learning rate", "s1", &c);
    draw_chart(p, "Learning rate", line, count, false, 0);
    free(c.x);
}

static void add_epoch_table(page *p, const run_log *log) {
    const value *longest = log->epoch[0];
    const char *keys[MOST_COLUMNS];
    const int each = (log->epochs - 1) / MOST_ROWS + 1;
    int count = 0;
    for (int i = 1; i < log->epochs; i++) longest = log->epoch[i]->count > longest->count ? log->epoch[i] : longest;
    for (const value *v = longest->first; v && count < MOST_COLUMNS; v = v->next) {
        if (is_log(v)) keys[count++] = v->key;
    }
    add(p,
        "<details class=\"card\"%s><summary>%s by epoch</summary><div class=\"scroll\" tabindex=\"0\" "
        "role=\"region\" aria-label=\"Numbers by epoch\"><table><thead><tr><th scope=\"col\">Epoch</th>",
        log->epochs <= 3 ? " open" : "", each > 1 ? "Some numbers" : "All numbers");
    for (int k = 0; k < count; k++) {
        add(p, "<th scope=\"col\">");
        add_name(p, keys[k], false);
        add(p, "</th>");
    }
    add(p, "<th scope=\"col\">seconds</th></tr></thead><tbody>");
    for (int i = (log->epochs - 1) % each; i < log->epochs; i += each) { /* always includes the last one */
        add(p, "<tr><th scope=\"row\">%.0f</th>", number_of(log->epoch[i], "epoch") + 1);
        for (int k = 0; k < count; k++) {
            const value *v = member(log->epoch[i], keys[k]);
            add(p, "<td>");
            if (!v) add(p, "\xe2\x80\x93");
            else add_log(p, log, keys[k], v->kind == VALUE_NUMBER ? v->number : (double)NAN);
            add(p, "</td>");
        }
        add(p, "<td>");
        add_known(p, "%.2f", number_of(log->epoch[i], "seconds"));
        add(p, "</td></tr>");
    }
    add(p, "</tbody></table></div></details>");
}

static void add_curves(page *p, const run_log *log) {
    add(p, "<section><h2>Learning</h2>");
    if (!log->epochs && log->steps < 2) {
        add(p, "<p class=\"muted\">No epoch has ended yet.</p></section>");
        return;
    }
    int charts = 0;
    add(p, "<div class=\"charts\">");
    if (!log->epochs) add_metric_chart(p, log, "loss");
    for (const value *v = log->epochs ? log->epoch[0]->first : NULL; v; v = v->next) {
        if (!is_log(v) || strncmp(v->key, "val_", 4) == 0 || strcmp(v->key, "learning_rate") == 0 ||
            strcmp(v->key, "batch_loss") == 0)
            continue;
        if (charts++ < MOST_CHARTS) add_metric_chart(p, log, v->key);
    }
    add_rate_chart(p, log);
    add(p, "</div>");
    if (charts > MOST_CHARTS)
        add(p, "<p class=\"muted\">The log has %d more metrics than are drawn here.</p>", charts - MOST_CHARTS);
    if (log->epochs) add_epoch_table(p, log);
    add(p, "</section>");
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

/* Adds table rows; members of a nested object are prefixed with its name. */
static void add_pairs(page *p, const value *object, const char *above, const char *const *without) {
    for (const value *v = object ? object->first : NULL; v; v = v->next) {
        char name[200];
        bool leave = false;
        for (int i = 0; without && without[i] && v->key; i++) leave = leave || strcmp(v->key, without[i]) == 0;
        if (leave || !v->key || (v->kind >= VALUE_LIST && !v->count)) continue;
        const bool within = strcmp(v->key, "compile") == 0, kind = *above && strcmp(v->key, "class_name") == 0;
        snprintf(name, sizeof name, "%s%s%s", above, *above && !kind ? " \xc2\xb7 " : "", within || kind ? "" : v->key);
        if (v->kind == VALUE_OBJECT) {
            add_pairs(p, v, name, NULL);
            continue;
        }
        add(p, "<tr><th scope=\"row\">");
        add_name(p, name, true);
        add(p, "</th><td>");
        if (v->kind == VALUE_LIST) {
            for (const value *one = v->first; one; one = one->next) {
                add_scalar(p, one);
                if (one->next) add(p, ", ");
            }
        } else {
            add_scalar(p, v);
        }
        add(p, "</td></tr>");
    }
}

static void add_settings(page *p, const run_log *log) {
    static const char *const shown[] = {"event", "time", "environment", "model", "classes", "logs", NULL};
    const value *environment = member(log->begin, "environment");
    if (!log->begin) return;
    add(p, "<section><h2>Settings and environment</h2><div class=\"two\"><div class=\"card\"><h3>The run</h3>"
           "<table class=\"pairs\"><tbody>");
    add_pairs(p, log->begin, "", shown);
    add(p, "</tbody></table></div>");
    if (environment) {
        add(p, "<div class=\"card\"><h3>Environment</h3><table class=\"pairs\"><tbody>");
        add_pairs(p, environment, "", NULL);
        add(p, "</tbody></table></div>");
    }
    add(p, "</div></section>");
}

/* >>the page */

static void add_page(page *p, const run_log *log, const char *directory) {
    add(p, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
           "<meta name=\"color-scheme\" content=\"light dark\">"
           "<link rel=\"icon\" href=\"data:,\"><title>");
    add_start(p, text_of(log->begin, "model") ? text_of(log->begin, "model") : "A run", MOST_NAME);
    add(p, " \xc2\xb7 run report</title><style>");
    for (size_t i = 0; i < sizeof style / sizeof style[0]; i++) add(p, "%s", style[i]);
    for (int i = 0; i < 10; i++) add(p, ".p%d{fill:var(--p%d)}", i, i);
    add(p, "</style></head>\n<body>");
    add_header(p, log, directory);
    add(p, "\n<main>");
    add_curves(p, log);
    add_timing(p, log);
    add_staleness(p, log);
    add_predictions(p, log);
    add_settings(p, log);
    add(p, "</main>\n<footer>Made by mirrortrain " MIRT_VERSION_STRING " from log.jsonl. Nothing on this page is "
           "loaded from elsewhere.</footer></body></html>\n");
}

bool write_page(const page *p, const char *path) {
    if (mirt_write_file(path, p->data, p->size) == MIRT_OK) return true;
    complain_of_library();
    return false;
}

bool write_report(const char *directory, bool own) {
    run_log log;
    page p;
    char path[4150];
    memset(&p, 0, sizeof p);
    if (!read_run_log(directory, &log)) return false;
    if (!own) log.owner = owner_of_run(directory);
    add_page(&p, &log, directory);
    free_run_log(&log);
    snprintf(path, sizeof path, "%s/report.html", directory);
    bool good = !p.failed;
    if (!good) complain("%s: out of memory", path);
    good = good && write_page(&p, path);
    free(p.data);
    if (good) tell("report: %s", path);
    return good;
}

int run_report(const options *o) {
    if (o->operands != 1) {
        complain("report needs the directory of one run: mirrortrain report DIR");
        return EXIT_USAGE;
    }
    return write_report(o->operand[0], false) ? EXIT_OK : EXIT_FAILED;
}
