/* The report's section about parameter servers. */
#include "posix.h"
#include "report.h"

#include <math.h>

enum { MOST_BINS = 64 };

/* Adds up the epochs; returns the number of bins that are used. */
static int read_staleness(const run_log *log, double *bin, double *updates, double *sum, double *most) {
    int bins = 0;
    *updates = *sum = *most = 0;
    for (int i = 0; i < MOST_BINS; i++) bin[i] = 0;
    for (int i = 0; i < log->epochs; i++) {
        const value *seen = member(log->epoch[i], "staleness");
        const double count = number_of(seen, "updates"), mean = number_of(seen, "mean"), max = number_of(seen, "max");
        const value *histogram = member(seen, "histogram");
        int at = 0;
        if (!(count > 0) || !(mean >= 0) || !(max >= 0)) continue;
        *updates += count;
        *sum += count * mean;
        *most = fmax(*most, max);
        for (const value *v = histogram ? histogram->first : NULL; v && at < MOST_BINS; v = v->next, at++)
            bin[at] += v->kind == VALUE_NUMBER && v->number > 0 ? v->number : 0;
        bins = at > bins ? at : bins;
    }
    return bins;
}

void add_staleness(page *p, const run_log *log) {
    double bin[MOST_BINS], updates, sum, most;
    const int bins = read_staleness(log, bin, &updates, &sum, &most);
    if (!(updates > 0)) return;
    add(p, "<section><h2>Parameter servers</h2><div class=\"card\"><h3>Staleness of gradients</h3>"
           "<p>Mean %.2f, at most %.0f: updates by other workers between a worker\xe2\x80\x99s pull and its push. "
           "%.0f updates in all: each server counts one per batch.</p>"
           "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Staleness\">"
           "<table><thead><tr><th scope=\"col\">Staleness</th><th scope=\"col\">Share</th><th scope=\"col\">Updates"
           "</th></tr></thead><tbody>",
        sum / updates, most, updates);
    for (int i = 0; i < bins; i++) {
        const double share = 100 * fmin(bin[i] / updates, 1);
        add(p, "<tr><th scope=\"row\">%d%s</th><td><span class=\"meter\" aria-hidden=\"true\">"
               "<i style=\"width:%.0f%%\"></i></span>%.1f\xc2\xa0%%</td><td>%.0f</td></tr>",
            i, i + 1 == bins && most > i ? " or more" : "", share, share, bin[i]);
    }
    add(p, "</tbody></table></div></div></section>");
}
