/* A model of training on many devices, and the published tables it is fitted to. */
#include "scaling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* >>networks */

static const double usual_latency = 30e-6;
static const network networks[] = {
    {"10G", 10, 30e-6},       /* Ethernet, TCP */
    {"25G", 25, 30e-6},
    {"100G", 100, 10e-6},     /* Ethernet, RDMA */
    {"ib", 200, 2e-6},        /* InfiniBand HDR */
    {"nvlink", 2400, 5e-6},   /* 300 GB/s each way */
};
enum { NETWORKS = sizeof networks / sizeof networks[0] };

/* A decimal number in [0, most] followed by `unit`, which may be missing if `bare`. */
static bool parse_amount(const char *text, const char *unit, bool bare, double most, double *out) {
    char *end;
    if (*text < '0' || *text > '9' || strspn(text, "0123456789.") != strcspn(text, unit)) return false;
    *out = strtod(text, &end);
    return *out <= most && (strcmp(end, unit) == 0 || (bare && !*end));
}

bool parse_network(const char *text, network *out) {
    const double most = 1e6;
    const size_t length = strcspn(text, ":");
    const char *latency = text[length] ? text + length + 1 : NULL;
    double microseconds;
    bool good = false;
    memset(out, 0, sizeof *out);
    if (length < sizeof out->name) memcpy(out->name, text, length);
    for (int i = 0; i < NETWORKS && !good; i++) {
        good = strcmp(networks[i].name, out->name) == 0;
        if (good) *out = networks[i];
    }
    if (!good) {
        good = parse_amount(out->name, "G", true, most, &out->gbit) && out->gbit > 0;
        out->latency = usual_latency;
    }
    if (good && latency) {
        good = parse_amount(latency, "us", false, most, &microseconds);
        if (good) out->latency = microseconds * 1e-6;
    }
    if (!good)
        complain("--network is \"%s\"; it must be 10G, 25G, 100G, ib, nvlink or a number of Gbit/s, each with or "
                 "without a latency: 40G:20us",
                 text);
    return good;
}

/* >>the model */

/* Bytes that go through each link, each way, as a share of what is added up: no exchange takes less. */
static double share_through_link(int n) { return 2.0 * (n - 1) / n; }

static double exchange_seconds(const scaling_case *c, int devices) {
    const int own = devices < c->per_host ? devices : c->per_host, hosts = (devices + c->per_host - 1) / c->per_host;
    const double gigabits = c->bytes * 8e-9;
    double seconds = 0;
    if (own > 1 && c->local_gbit > 0) seconds += share_through_link(own) * gigabits / c->local_gbit;
    if (hosts > 1)
        seconds += share_through_link(hosts) * gigabits / c->link.gbit + 2 * ceil(log2(hosts)) * c->link.latency;
    return seconds;
}

/* The slowest of `devices` steps with normally distributed times, as a share of a step more than their mean. */
static double slowest_of(int devices, double jitter) {
    return devices > 1 ? jitter * sqrt(2 * log(devices)) : 0;
}

/* The backward pass takes two thirds of a step. */
static double hidden_share(double overlap) { return overlap * 2 / 3; }

scaling_guess guess_step(const scaling_case *c, int devices) {
    scaling_guess g;
    g.exchange = exchange_seconds(c, devices);
    g.exposed = fmax(g.exchange - hidden_share(c->overlap) * c->step, 0);
    g.waiting = slowest_of(devices, c->jitter) * c->step;
    g.step = c->step + g.waiting + g.exposed;
    return g;
}

double step_alone(const scaling_case *c, int devices, double seconds) {
    const double slower = 1 + slowest_of(devices, c->jitter), exchange = exchange_seconds(c, devices);
    const double hidden = hidden_share(c->overlap), alone = seconds / slower;
    if (exchange <= hidden * alone) return alone;
    return fmax((seconds - exchange) / (slower - hidden), 0);
}

double guess_efficiency(const scaling_case *c, int devices) { return c->step / guess_step(c, devices).step; }

/* >>published tables */

const char *const published_sources[PUBLISHED_SOURCES] = {
    "Goyal et al. 2017, arXiv:1706.02677: P100, 50 Gbit/s Ethernet",
    "Horovod 2017 and 2018, its README and docs/benchmarks: P100, 25 Gbit/s RoCE",
    "TensorFlow benchmarks, May 2017, synthetic data: K80 of EC2 p2.8xlarge (10 Gbit/s), P100 of a DGX-1",
};

enum { GOYAL, HOROVOD, TENSORFLOW };
/* Where a source has percentages alone, `rate` is the speed of such a device in the tables for one DGX-1 (of ResNet-101
   that of a similar network): it only says which part of an exchange can be hidden. */
const published_point published[] = {
    /* source, network, images per device, MB; reference devices and images/s; devices, per host, Gbit/s, result */
    {GOYAL, "ResNet-50", 32, 102, 8, 1485, 256, 8, 50, 0.90},
    {HOROVOD, "Inception V3", 64, 95, 1, 142, 128, 4, 25, 0.90},
    {HOROVOD, "ResNet-101", 64, 178, 1, 130, 128, 4, 25, 0.90},
    {HOROVOD, "VGG-16", 64, 553, 1, 154, 128, 4, 25, 0.79},
    {HOROVOD, "Inception V3", 64, 95, 1, 142, 512, 4, 25, 0.90},
    {HOROVOD, "ResNet-101", 64, 178, 1, 130, 512, 4, 25, 0.90},
    {HOROVOD, "VGG-16", 64, 553, 1, 154, 512, 4, 25, 0.68},
    {TENSORFLOW, "Inception V3", 64, 95, 1, 29.7, 8, 8, 10, 229},
    {TENSORFLOW, "Inception V3", 64, 95, 8, 229, 16, 8, 10, 459},
    {TENSORFLOW, "Inception V3", 64, 95, 8, 229, 32, 8, 10, 902},
    {TENSORFLOW, "Inception V3", 64, 95, 8, 229, 64, 8, 10, 1783},
    {TENSORFLOW, "ResNet-50", 64, 102, 1, 52.4, 8, 8, 10, 378},
    {TENSORFLOW, "ResNet-50", 64, 102, 8, 378, 16, 8, 10, 751},
    {TENSORFLOW, "ResNet-50", 64, 102, 8, 378, 32, 8, 10, 1388},
    {TENSORFLOW, "ResNet-50", 64, 102, 8, 378, 64, 8, 10, 2744},
    {TENSORFLOW, "ResNet-152", 32, 241, 1, 19.4, 8, 8, 10, 146},
    {TENSORFLOW, "ResNet-152", 32, 241, 8, 146, 16, 8, 10, 291},
    {TENSORFLOW, "ResNet-152", 32, 241, 8, 146, 32, 8, 10, 565},
    {TENSORFLOW, "ResNet-152", 32, 241, 8, 146, 64, 8, 10, 981},
    {TENSORFLOW, "Inception V3", 64, 95, 1, 142, 8, 8, 10, 1131}, /* DGX-1 from here on */
    {TENSORFLOW, "ResNet-50", 64, 102, 1, 219, 8, 8, 10, 1734},
    {TENSORFLOW, "ResNet-152", 64, 241, 1, 91.8, 8, 8, 10, 716},
    {TENSORFLOW, "VGG-16", 64, 553, 1, 154, 8, 8, 10, 1081},
};
const int published_count = sizeof published / sizeof published[0];

double published_efficiency(const published_point *p) {
    return p->result > 1 ? p->result / p->devices / (p->rate / p->reference) : p->result;
}

double guess_published(const published_point *p, const scaling_fit *fit) {
    scaling_case c;
    memset(&c, 0, sizeof c);
    c.bytes = p->megabytes * 1e6;
    c.per_host = p->per_host;
    c.link.gbit = p->gbit;
    c.link.latency = usual_latency;
    c.jitter = fit->jitter;
    c.overlap = fit->overlap;
    const double step = p->batch * p->reference / p->rate; /* as published */
    c.step = step_alone(&c, p->reference, step);
    return step / guess_step(&c, p->devices).step;
}

double error_of_fit(const scaling_fit *fit, int without) {
    double sum = 0;
    int count = 0;
    for (int i = 0; i < published_count; i++) {
        if (published[i].source == without) continue;
        const double error = guess_published(&published[i], fit) - published_efficiency(&published[i]);
        sum += error * error;
        count++;
    }
    return 100 * sqrt(sum / count);
}

scaling_fit fit_published(int without) {
    scaling_fit best = {0, 0};
    double least = HUGE_VAL;
    for (int j = 0; j <= 40; j++) {
        for (int k = 0; k <= 20; k++) {
            const scaling_fit fit = {j / 500.0, k / 20.0};
            const double error = error_of_fit(&fit, without);
            if (error >= least) continue;
            least = error;
            best = fit;
        }
    }
    return best;
}
