/* The curves of a run, and its table of epochs. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 80, MOST_ROWS = 2000, MOST_CHARTS = 48 };

curve make_curve(page *p, int most) {
    curve c = {NULL, NULL, 0};
    c.x = (double *)malloc(2 * (size_t)(most + 1) * sizeof *c.x);
    c.y = c.x ? c.x + most + 1 : NULL;
    if (!c.x) p->failed = true;
    return c;
}

curve epochs_of(page *p, const run_log *log, const char *prefix, const char *name) {
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

curve steps_of(page *p, const run_log *log, bool rate) {
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

void add_series(series *lines, int *count, const char *name, const char *look, const curve *c) {
    const series line = {name, look, c->count, c->x, c->y};
    if (c->count) lines[(*count)++] = line;
}

static void add_metric_chart(page *p, const run_log *log, const char *name) {
    const bool loss = strcmp(name, "loss") == 0, share = is_share(log, name);
    curve c[3] = {{NULL, NULL, 0}, {NULL, NULL, 0}, {NULL, NULL, 0}};
    series lines[3];
    char title[MOST_NAME];
    int count = 0;
    if (loss && log->steps > 1) c[0] = steps_of(p, log, false);
    c[1] = epochs_of(p, log, "", name);
    c[2] = epochs_of(p, log, "val_", name);
    add_series(lines, &count, "each step", "faint", &c[0]);
    add_series(lines, &count, "training", "s1", &c[1]);
    add_series(lines, &count, "validation", "s2", &c[2]);
    words_of_name(name, true, title);
    const chart drawn = {title, "epoch", lines, count, share, direction_of(log, name), false, false,
                         log->epochs > 0};
    draw_chart(p, &drawn);
    for (int i = 0; i < 3; i++) free(c[i].x);
}

/* Drawn per step if the log has steps, since it is constant within an epoch. */
static void add_rate_chart(page *p, const run_log *log) {
    series line[1];
    int count = 0;
    curve c = log->steps > 1 ? steps_of(p, log, true) : epochs_of(p, log, "", "learning_rate");
    add_series(line, &count, "learning rate", "s1", &c);
    const chart drawn = {"Learning rate", "epoch", line, count, false, 0, false, false, log->epochs > 0};
    draw_chart(p, &drawn);
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

void add_curves(page *p, const run_log *log) {
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

