/* The model of scaling --predict: published tables, limits, and names of networks. */
#include "../cli/scaling_model.c"
#include "../cli/shares.c"
#include "tap.h"

static char said[256];

void complain(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
}

/* >>shares */

static void test_shares(void) {
    static const struct {
        double speed[4];
        int count;
        const char *shares; /* NULL: equal ones */
    } cases[] = {
        {{1, 1}, 2, NULL},           {{1, 1.09, 1.05}, 3, NULL}, {{2, 1}, 2, "2,1"},
        {{1, 3.1}, 2, "1,3"},        {{1.5, 1, 1}, 3, "3,2,2"},  {{10, 10, 40, 10}, 4, "1,1,4,1"},
        {{0, 1}, 2, NULL},           {{8, 7}, 2, "7,6"},         {{1, 100}, 2, "1,100"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64] = "";
        const bool uneven = propose_shares(cases[i].speed, cases[i].count, text, sizeof text);
        ok(uneven == (cases[i].shares != NULL) && (!uneven || strcmp(text, cases[i].shares) == 0),
           "speeds of %g, %g, ...: %s", cases[i].speed[0], cases[i].speed[1], uneven ? text : "equal shares");
    }
    const double wide[4] = {1, 1000, 1000, 1000};
    char small[8];
    ok(!propose_shares(wide, 4, small, sizeof small), "shares that have no room are not proposed");
}

/* >>published tables */

static void test_published(void) {
    const scaling_fit fit = {FITTED_JITTER, FITTED_OVERLAP};
    double sum = 0, worst = 0;
    for (int i = 0; i < published_count; i++) {
        const published_point *p = &published[i];
        const double error = 100 * (guess_published(p, &fit) - published_efficiency(p));
        sum += error * error;
        worst = fmax(worst, fabs(error));
        ok(fabs(error) <= PREDICTION_BAND, "%s on %d devices, compared with %d: %+.1f points", p->model, p->devices,
           p->reference, error);
    }
    const double rms = sqrt(sum / published_count);
    ok(fabs(rms - 4.6) <= 0.05, "root mean square of the errors: %.2f points", rms);
    ok(fabs(worst - 13.3) <= 0.05, "the largest one: %.2f points", worst);
    ok(fabs(rms - error_of_fit(&fit, -1)) < 1e-9, "which the model knows itself");
}

static void test_fit(void) {
    static const double documented[PUBLISHED_SOURCES] = {6, 25, 13};
    const scaling_fit best = fit_published(-1), fit = {FITTED_JITTER, FITTED_OVERLAP};
    ok(fabs(best.jitter - fit.jitter) < 1e-9 && fabs(best.overlap - fit.overlap) < 1e-9,
       "the constants are those that fit best: %.3f, %.2f", best.jitter, best.overlap);
    for (int s = 0; s < PUBLISHED_SOURCES; s++) {
        const scaling_fit without = fit_published(s);
        double worst = 0;
        for (int i = 0; i < published_count; i++) {
            const double error = guess_published(&published[i], &without) - published_efficiency(&published[i]);
            if (published[i].source == s) worst = fmax(worst, 100 * fabs(error));
        }
        ok(fabs(worst - documented[s]) <= 0.5, "fitted without source %d, the model is up to %.1f points away from it",
           s + 1, worst);
    }
    ok(error_of_fit(&fit, 0) != error_of_fit(&fit, -1), "a source can be left out");
}

/* What is published, by hand. */
static void test_table(void) {
    int of[PUBLISHED_SOURCES] = {0};
    for (int i = 0; i < published_count; i++) of[published[i].source]++;
    ok(of[0] == 1 && of[1] == 6 && of[2] == 16, "23 points of three sources");
    for (int i = 0; i < published_count; i++) {
        const double e = published_efficiency(&published[i]);
        if (e < 0.675 || e > 1.005) ok(false, "point %d: an efficiency of %g", i, e);
    }
    for (int i = 0; i < published_count; i++) {
        if (published[i].result == 2744)
            ok(fabs(published_efficiency(&published[i]) - 2744 / 64.0 / (378 / 8.0)) < 1e-12, "2744 images/s on 64");
    }
}

/* >>limits */

static scaling_case example(void) {
    scaling_case c;
    memset(&c, 0, sizeof c);
    c.step = 0.2;
    c.bytes = 100e6;
    c.per_host = 4;
    c.link.gbit = 25;
    c.link.latency = 30e-6;
    c.jitter = 0.03;
    return c;
}

static void test_limits(void) {
    scaling_case c = example();
    int wrong = 0;
    ok(guess_efficiency(&c, 1) == 1, "one device has 100 %%");
    for (int n = 2; n <= 4096; n++) wrong += guess_efficiency(&c, n) > guess_efficiency(&c, n - 1);
    ok(wrong == 0 && guess_efficiency(&c, 4096) < guess_efficiency(&c, 2), "more devices are never more efficient");
    c.local_gbit = 80;
    for (int n = 2; n <= 4096; n++) wrong += guess_efficiency(&c, n) > guess_efficiency(&c, n - 1);
    ok(wrong == 0, "nor with a speed between the devices of a host");
    double last = 0;
    for (double gbit = 1; gbit < 2000; gbit *= 1.5) {
        c.link.gbit = gbit;
        wrong += guess_efficiency(&c, 64) <= last;
        last = guess_efficiency(&c, 64);
    }
    ok(wrong == 0, "a faster link is more efficient");
    c = example();
    const double plain = guess_efficiency(&c, 64);
    c.overlap = 0.5;
    ok(guess_efficiency(&c, 64) > plain, "so is overlap");
    c.jitter = 0.06;
    const double shaky = guess_efficiency(&c, 64);
    c.jitter = 0.03;
    ok(shaky < guess_efficiency(&c, 64), "jitter is not");
}

/* 16 hosts of 4 devices; 0.8 Gbit over 25 Gbit/s, 30/16 of it through each link; 8 messages one after the other. */
static void test_by_hand(void) {
    scaling_case c = example();
    const double exchange = 30.0 / 16 * 0.8 / 25 + 8 * 30e-6, waiting = 0.2 * 0.03 * sqrt(2 * log(64));
    scaling_guess g = guess_step(&c, 64);
    ok(fabs(g.exchange - exchange) < 1e-12, "the exchange: %.2f ms", 1e3 * g.exchange);
    ok(fabs(g.waiting - waiting) < 1e-12 && fabs(g.step - 0.2 - exchange - waiting) < 1e-12, "the step: %.2f ms",
       1e3 * g.step);
    c.overlap = 0.3; /* 0.3 of two thirds of 0.2 s hide 40 ms */
    g = guess_step(&c, 64);
    ok(fabs(g.exposed - (exchange - 0.04)) < 1e-12, "the exposed part: %.2f ms", 1e3 * g.exposed);
    c.overlap = 1;
    ok(guess_step(&c, 64).exposed == 0, "all of it can be hidden");
    ok(guess_step(&c, 4).exchange == 0 && guess_step(&c, 5).exchange > 0, "a host alone does not use its link");
}

static void test_step_alone(void) {
    static const double overlaps[] = {0, 0.3, 1};
    scaling_case c = example();
    for (int i = 0; i < 3; i++) {
        c.overlap = overlaps[i];
        const double alone = step_alone(&c, 64, guess_step(&c, 64).step);
        ok(fabs(alone - c.step) < 1e-12, "a step of one from that of 64, overlap %.1f", c.overlap);
    }
}

/* >>networks */

static void test_networks(void) {
    static const char *const wrong[] = {"", "5G6", "wifi", "0", "0G", "-1", "10G:", "10G:30", "10G:us", "10G:-1us",
                                        "nan", "1e3", "10Gbit", "10G:30us,", "1.2.3", "infinityG"};
    network n;
    ok(parse_network("25G", &n) && n.gbit == 25 && n.latency == 30e-6, "25G");
    ok(parse_network("ib", &n) && n.gbit == 200 && n.latency < 5e-6, "ib");
    ok(parse_network("nvlink:9us", &n) && n.gbit == 2400 && fabs(n.latency - 9e-6) < 1e-15, "nvlink:9us");
    ok(parse_network("10G:0us", &n) && n.gbit == 10 && n.latency == 0, "10G:0us");
    ok(parse_network("40", &n) && n.gbit == 40 && n.latency == 30e-6, "40");
    ok(parse_network("2.5G:12.5us", &n) && n.gbit == 2.5 && fabs(n.latency - 12.5e-6) < 1e-15, "2.5G:12.5us");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        said[0] = 0;
        ok(!parse_network(wrong[i], &n) && strstr(said, "it must be 10G, 25G, 100G, ib, nvlink"), "\"%s\" is refused",
           wrong[i]);
    }
}

int main(void) {
    test_shares();
    test_published();
    test_fit();
    test_table();
    test_limits();
    test_by_hand();
    test_step_alone();
    test_networks();
    return done_testing();
}
