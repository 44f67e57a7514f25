/* mirrortrain scaling --predict: measures a step here and prints what the model makes of it. */
#include "posix.h"
#include "scaling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENOUGH_STEPS = 20 }; /* to measure jitter */

bool check_prediction(const options *o, network *link) {
    const char *needs = o->predict ? NULL : o->network ? "network" : o->devices_per_host ? "devices-per-host" : NULL;
    if (needs) complain("--%s is for --predict N", needs);
    else if (o->predict && o->batch_list.count > 1)
        complain("--predict takes one --batch, the images of each device, not %d", o->batch_list.count);
    return !needs && (!o->predict || o->batch_list.count == 1) && parse_network(o->network ? o->network : "10G", link);
}

/* >>tables */

static double percent(double share) { return 100 * fmin(fmax(share, 0), 1); }

static void print_guess(const scaling_case *c, int64_t batch, int devices) {
    scaling_case hides = *c;
    const scaling_guess g = guess_step(c, devices);
    const double efficiency = guess_efficiency(c, devices), band = PREDICTION_BAND / 100.0;
    hides.overlap = FITTED_OVERLAP;
    const int hosts = (devices + c->per_host - 1) / c->per_host;
    printf("%8d %8d %10lld %12.1f %9.2f %9.0f %% %6.0f to %3.0f %% %10.2f %10.2f %9.0f %%\n", devices, hosts,
           (long long)batch * devices, (double)batch * devices / g.step, 1e3 * g.step, 100 * efficiency,
           percent(efficiency - band), percent(efficiency + band), 1e3 * g.exposed, 1e3 * g.waiting,
           100 * guess_efficiency(&hides, devices));
}

/* 1, 2, 4, ... and `most`. */
static void print_guesses(const scaling_case *c, int64_t batch, int64_t most) {
    printf("%8s %8s %10s %12s %9s %11s %15s %10s %10s %11s\n", "devices", "hosts", "batch", "images/s", "ms/step",
           "efficiency", "band", "exchange", "waiting", "overlapped");
    for (int64_t n = 1; n < most; n *= 2) print_guess(c, batch, (int)n);
    print_guess(c, batch, (int)most);
    printf("efficiency: if nothing hides the exchange; overlapped: if up to %.0f %% of the backward pass hides it "
           "(processes exchange\ngradients during that pass), as fitted to the systems below; band: +-%d points of "
           "efficiency; exchange, waiting:\nmilliseconds of a step, for the all-reduce and for the slowest device\n",
           100 * FITTED_OVERLAP, PREDICTION_BAND);
}

static void print_published_row(const published_point *p, const scaling_fit *fit, const scaling_fit *without) {
    const double measured = 100 * published_efficiency(p), guessed = 100 * guess_published(p, fit);
    printf("%7d %-13s %6.0f %8d %8d %7.0f G %8.0f %% %8.0f %% %+7.1f %11.0f %%\n", p->source + 1, p->model, p->batch,
           p->reference, p->devices, p->gbit, measured, guessed, guessed - measured,
           100 * guess_published(p, without));
}

static void print_published(void) {
    const scaling_fit fit = {FITTED_JITTER, FITTED_OVERLAP};
    double worst = 0;
    printf("\npublished efficiencies, and those of the model\n%7s %-13s %6s %8s %8s %9s %10s %10s %7s %13s\n", "source",
           "network", "images", "of", "devices", "link", "published", "model", "error", "left out");
    for (int s = 0; s < PUBLISHED_SOURCES; s++) {
        const scaling_fit without = fit_published(s);
        for (int i = 0; i < published_count; i++) {
            if (published[i].source != s) continue;
            print_published_row(&published[i], &fit, &without);
            worst = fmax(worst, fabs(guess_published(&published[i], &without) - published_efficiency(&published[i])));
        }
    }
    for (int s = 0; s < PUBLISHED_SOURCES; s++) tell("%7d %s", s + 1, published_sources[s]);
    printf("images: of each device; of: the number of devices that the efficiency is compared with; left out: by the "
           "model fitted to\nthe other sources alone, which is wrong by up to %.0f points; the model fitted to all by "
           "%.1f (root mean square)\n",
           100 * worst, error_of_fit(&fit, -1));
}

void print_prediction(const options *o, const calibration *from) {
    const answer *a = &from->own;
    const bool measured = a->spread.steps >= ENOUGH_STEPS;
    scaling_case c;
    char local[64] = "";
    memset(&c, 0, sizeof c);
    c.bytes = a->bytes;
    c.per_host = from->per_host;
    c.link = from->link;
    c.local_gbit = from->local_gbit;
    c.jitter = measured ? a->spread.usual : FITTED_JITTER;
    c.step = step_alone(&c, from->devices, step_of(a));
    if (c.local_gbit > 0) snprintf(local, sizeof local, ", %.0f Gbit/s between those of a host", c.local_gbit);
    printf("\na model's figures, not measured: %s, %lld images for each device, %d device%s in a host,\n%.4g Gbit/s "
           "and %.3g us a message between hosts%s\n",
           o->model, (long long)from->batch, c.per_host, c.per_host == 1 ? "" : "s", c.link.gbit,
           c.link.latency * 1e6, local);
    tell("measured here: %.2f ms per step on %d device%s of %d thread%s; %.1f MB of gradients; jitter %.1f %% (%s)",
         1e3 * step_of(a), from->devices, from->devices == 1 ? "" : "s", a->timing.threads,
         a->timing.threads == 1 ? "" : "s", c.bytes * 1e-6, 100 * c.jitter,
         measured ? "measured, without interruptions" : "that of the published tables, as steps were too few");
    print_guesses(&c, from->batch, o->predict);
    print_published();
}

/* >>measuring */

/* Between devices of this machine, from the time in which they add up gradients; 0: not known. */
static double local_speed(const answer *a, int devices) {
    const double seconds = a->timing.steps ? a->timing.seconds[MIRT_PHASE_REDUCE] / (double)a->timing.steps : 0;
    return seconds > 0 ? 2.0 * (devices - 1) / devices * a->bytes * 8e-9 / seconds : 0;
}

int measure_prediction(const options *o, const network *link) {
    calibration from;
    bool gpus = false;
    if (o->device_counts.count) {
        complain("--device-counts is for measured tables, not for --predict");
        return EXIT_USAGE;
    }
    const int here = count_devices(&gpus);
    memset(&from, 0, sizeof from);
    if (!here) return EXIT_FAILED;
    from.link = *link;
    from.batch = o->batch_list.rows[0];
    from.devices = 1;
    from.per_host = o->devices_per_host ? (int)o->devices_per_host : gpus ? here : 1;
    const bool whole = from.per_host > 1 && from.per_host <= here; /* there are as many here */
    point p = {1, (int)o->threads, from.batch, true, true, 0};
    if (gpus) p.threads = 1;
    else if (!p.threads) p.threads = whole ? here / from.per_host : here;
    from.own = ask(o, &p);
    int status = from.own.status;
    if (status == EXIT_OK && whole) {
        p.devices = from.per_host;
        p.batch = from.batch * from.per_host;
        p.spread = false;
        const answer all = ask(o, &p);
        from.local_gbit = local_speed(&all, p.devices);
        status = all.status;
    }
    if (status == EXIT_OK) print_prediction(o, &from);
    return status;
}
