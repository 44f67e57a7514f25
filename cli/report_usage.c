/* The report's section about what devices did over time. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 32 };

/* Devices as the first line names them, and their means over time. */
typedef struct usage {
    int devices;
    const char *name[MOST_DEVICES + 1]; /* and "process" */
    double seconds, busy[MOST_DEVICES], input[MOST_DEVICES], samples[MOST_DEVICES];
} usage;

static const value *devices_of(const value *line) { return member(member(line, "use"), "devices"); }

/* In epochs. */
static double place_of(const value *line) {
    const double all = number_of(line, "batches"), batch = number_of(line, "batch");
    const bool ends = strcmp(text_of(line, "event"), "epoch") == 0; /* then `batch` is a number of batches */
    return number_of(line, "epoch") + (all > 0 ? fmin((batch + !ends) / all, 1) : 1);
}

static void read_usage(const run_log *log, usage *u) {
    memset(u, 0, sizeof *u);
    for (int i = 0; i < log->uses; i++) {
        const value *use = member(log->use[i], "use"), *list = devices_of(log->use[i]);
        const double seconds = number_of(use, "seconds");
        int d = 0;
        if (!(seconds > 0) || !list || list->kind != VALUE_LIST) continue;
        u->seconds += seconds;
        for (const value *v = list->first; v && d < MOST_DEVICES; v = v->next, d++) {
            if (!u->name[d]) u->name[d] = text_of(v, "name") ? text_of(v, "name") : "?";
            u->busy[d] += seconds * fmin(fmax(number_of(v, "busy"), 0), 1); /* fmax ignores NaN */
            u->input[d] += seconds * fmin(fmax(number_of(v, "input"), 0), 1);
            u->samples[d] += fmax(number_of(v, "samples"), 0);
        }
        u->devices = d > u->devices ? d : u->devices;
    }
    for (int d = 0; d < u->devices; d++) {
        u->busy[d] /= u->seconds;
        u->input[d] /= u->seconds;
    }
    u->name[u->devices] = "process";
}

/* A line for each device; for memory also one for the process, where devices have none of their own. `other`: what to
   take where a device has no `key`. */
static void add_use_chart(page *p, const run_log *log, const usage *u, const char *title, const char *key,
                          const char *other, double unit, bool share) {
    static const char *const look[] = {"s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"};
    curve c[MOST_DEVICES + 1];
    series lines[MOST_DEVICES + 1];
    int count = 0;
    for (int d = 0; d <= u->devices; d++) c[d] = make_curve(p, log->uses);
    for (int i = 0; i < log->uses && !p->failed; i++) {
        const value *list = devices_of(log->use[i]), *v = list ? list->first : NULL;
        bool own = false;
        for (int d = 0; v && d < u->devices; v = v->next, d++) {
            own = own || isfinite(number_of(v, key));
            const double number = isfinite(number_of(v, key)) || !other ? number_of(v, key) : number_of(v, other);
            if (!isfinite(number)) continue;
            c[d].x[c[d].count] = place_of(log->use[i]);
            c[d].y[c[d].count++] = number / unit;
        }
        const double process = number_of(member(log->use[i], "use"), "resident_bytes");
        curve *last = &c[u->devices];
        if (!other || own || !isfinite(process)) continue;
        last->x[last->count] = place_of(log->use[i]);
        last->y[last->count++] = process / unit;
    }
    for (int d = 0; d <= u->devices && !p->failed; d++)
        add_series(lines, &count, u->name[d], look[d % MOST_LOOKS], &c[d]);
    const chart drawn = {title, "epoch", lines, count, share, 0, false, true, false};
    draw_chart(p, &drawn);
    for (int d = 0; d <= u->devices; d++) free(c[d].x);
}

/* In a sentence: whether some devices did more than others, and whether they waited for input. */
static void add_use_verdict(page *p, const usage *u) {
    int most = 0, least = 0;
    double input = 0, samples = 0;
    for (int d = 0; d < u->devices; d++) {
        most = u->busy[d] > u->busy[most] ? d : most;
        least = u->busy[d] < u->busy[least] ? d : least;
        input += u->input[d] / u->devices;
        samples += u->samples[d];
    }
    const bool uneven = u->busy[most] - u->busy[least] > 0.15;
    add(p, "<div class=\"card verdict\"><p>");
    if (u->devices > 1) {
        add(p, uneven ? "uneven: " : "even: ");
        add_start(p, u->name[most], 60);
        add(p, " was busy %.0f\xc2\xa0%% of the time, ", 100 * u->busy[most]);
        add_start(p, u->name[least], 60);
        add(p, " %.0f\xc2\xa0%%", 100 * u->busy[least]);
        if (uneven && samples > 0)
            add(p, ", with %.0f\xc2\xa0%% and %.0f\xc2\xa0%% of the samples", 100 * u->samples[most] / samples,
                100 * u->samples[least] / samples);
    } else {
        add_start(p, u->name[0], 60);
        add(p, " was busy %.0f\xc2\xa0%% of the time", 100 * u->busy[0]);
    }
    add(p, "; %.0f\xc2\xa0%% of the time was spent waiting for input.</p></div>", 100 * input);
}

void add_usage(page *p, const run_log *log) {
    usage u;
    read_usage(log, &u);
    if (!u.devices) return;
    add(p, "<section><h2>Devices over time</h2>");
    add_use_verdict(p, &u);
    add(p, "<div class=\"charts\">");
    add_use_chart(p, log, &u, "Busy", "busy", NULL, 1, true);
    add_use_chart(p, log, &u, "Waiting for input", "input", NULL, 1, true);
    add_use_chart(p, log, &u, "Memory in MiB", "used_bytes", "bytes", 1024 * 1024, false);
    add_use_chart(p, log, &u, "Utilization, as the driver says", "utilization", NULL, 1, true);
    add_use_chart(p, log, &u, "Power in watts", "watts", NULL, 1, false);
    add(p, "</div></section>");
}
