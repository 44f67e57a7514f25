/* Costs decide which tensors are stored, lazy or computed twice. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "conv_networks.h"
#include "tiled_reads_emulated.h"
#include "tap.h"

typedef struct outcome {
    int stored, lazy, twice, wrong; /* lines of each choice, and those whose choice is not the cheaper one */
    double bytes;                   /* of the stored ones */
    int once_more;                  /* nodes */
    double loss;
    size_t memory, count;
    float *weights;
} outcome;

/* Reads one line of the costs. */
static void read_line(const char *line, outcome *o) {
    static const char *const label[] = {" stored ", " lazy ", " twice "};
    double bytes, store, again;
    char last[32];
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(line, label[i]), *end = strchr(line, '\n');
        if (!at || (end && at > end)) continue;
        if (sscanf(at + strlen(label[i]), "%lf %lf %31s", &bytes, &store, last) != 3) break;
        again = strcmp(last, "-") == 0 ? HUGE_VAL : strtod(last, NULL);
        const bool wrong = i == 0 ? again < store : i == 1 ? again > store : again >= store;
        if (wrong) printf("# %.*s\n", end ? (int)(end - line) : 200, line);
        o->wrong += wrong;
        if (i == 0) o->bytes += bytes;
        ++*(i == 0 ? &o->stored : i == 1 ? &o->lazy : &o->twice);
        return;
    }
    printf("# %.100s\n", line);
    o->wrong++;
}

static int columns;            /* of the costs, */
static int lazy_by_columns[2]; /* and the lazy tensors without and with them */

static outcome run(const network *net, const mirt__kernels *kernels, bool half, double pass, double again,
                   double held) {
    const how h = {false, false, half ? MIRT__POLICY_MIXED_BFLOAT16 : MIRT__POLICY_FLOAT32};
    const mirt_array x = mirt_make_array(data_x, MIRT_UINT8, MIRT_SHAPE(SAMPLES, SIDE, SIDE, 3));
    const mirt_array y = mirt_make_array(data_y, MIRT_UINT8, MIRT_SHAPE(SAMPLES));
    outcome o;
    mirt_memory memory;
    memset(&o, 0, sizeof o);
    mirt_strategy *s = strategy_of(1, 2, 1);
    s->able.costs.pass = pass;
    s->able.costs.again = again;
    s->able.costs.columns = columns;
    s->able.costs.held = held;
    s->kernels = kernels;
    mirt_model *m = build(s, net, &h);
    for (int step = 0; step < 3; step++) {
        if (!m || mirt_train_step(m, x, y, &o.loss) != MIRT_OK) printf("# %s\n", mirt_last_error());
    }
    if (m && mirt_plan_memory(m, SAMPLES, &memory) == MIRT_OK) o.memory = memory.activations;
    const char *text = m ? mirt_graph_text(m, SAMPLES) : NULL;
    for (const char *at = text; at && (at = strstr(at, "once more")) != NULL; at++) o.once_more++;
    text = m ? mirt_graph_costs(m, SAMPLES) : NULL;
    for (int line = 0; text && *text; line++) {
        if (line > 1) read_line(text, &o);
        text = strchr(text, '\n');
        if (text) text++;
    }
    o.weights = m ? all_weights(m, 0, &o.count) : NULL;
    mirt_strategy_destroy(s);
    return o;
}

static double apart(const outcome *a, const outcome *b) {
    double most = 0;
    for (size_t i = 0; i < a->count && a->count == b->count; i++) {
        most = fmax(most, fabs((double)a->weights[i] - (double)b->weights[i]));
    }
    return a->count && a->count == b->count ? most : HUGE_VAL;
}

static bool same(const outcome *a, const outcome *b) {
    return a->count && a->count == b->count && memcmp(a->weights, b->weights, a->count * sizeof(float)) == 0;
}

static void check(const network *net, const mirt__kernels *kernels, bool half) {
    const char *name = half ? "bfloat16" : "float32";
    outcome usual = run(net, kernels, half, 0.1, 0, 0), dear = run(net, kernels, half, 0.1, 10, 0);
    outcome scarce = run(net, kernels, half, 0.1, 0, 100), both = run(net, kernels, half, 0.1, 1000, 100);
    outcome some = run(net, kernels, half, 0.1, 0.2, 0);
    columns = 3;
    outcome tiles = run(net, kernels, half, 0.1, 0.2, 0);
    columns = 0;
    ok(usual.lazy > 0 && usual.twice == 0 && usual.once_more == 0 && usual.stored > usual.lazy,
       "%s %s, costs of cores: %d lazy, none twice, %d stored", net->name, name, usual.lazy, usual.stored);
    ok(dear.lazy == 0 && dear.twice == 0 && dear.memory > usual.memory && apart(&dear, &usual) < (half ? 3e-2 : 1e-4),
       "%s %s, dear lazy reads: none lazy, %zu bytes, not %zu, and weights as before (%.0e)", net->name, name,
       dear.memory, usual.memory, apart(&dear, &usual));
    ok(scarce.lazy == usual.lazy && scarce.twice > 0 && scarce.once_more == scarce.twice,
       "%s %s, dear memory: %d are computed twice", net->name, name, scarce.twice);
    ok(half || same(&scarce, &usual), "%s %s: computing twice changes no bit", net->name, name);
    ok(both.lazy == 0 && both.twice > scarce.twice && both.memory < dear.memory && (half || same(&both, &dear)),
       "%s %s, both dear: %d are computed twice, %zu bytes, not %zu", net->name, name, both.twice, both.memory,
       dear.memory);
    ok(some.lazy < usual.lazy, "%s %s, lazy reads of a medium price: %d are lazy", net->name, name, some.lazy);
    lazy_by_columns[0] += some.lazy;
    lazy_by_columns[1] += tiles.lazy;
    ok(!usual.wrong && !dear.wrong && !scarce.wrong && !both.wrong && !some.wrong && usual.bytes < dear.bytes,
       "%s %s: every tensor is listed with the cheaper choice (%d, %d, %d, %d, %d are not)", net->name, name,
       usual.wrong, dear.wrong, scarce.wrong, both.wrong, some.wrong);
    free(usual.weights);
    free(dear.weights);
    free(scarce.weights);
    free(both.weights);
    free(some.weights);
    free(tiles.weights);
}

/* Each allocation fails once while a plan is made in which nodes run twice. */
static void check_no_memory(const network *net, const mirt__kernels *kernels) {
    const how h = {false, false, MIRT__POLICY_FLOAT32};
    mirt_strategy *s = strategy_of(1, 1, 1);
    s->able.costs.pass = 0.1;
    s->able.costs.again = 1000;
    s->able.costs.held = 100;
    s->kernels = kernels;
    mirt_model *m = build(s, net, &h);
    const char *text = m ? mirt_graph_costs(m, SAMPLES) : NULL;
    char *want = strdup(text ? text : "");
    const long before = allocations;
    mirt_graph_costs(m, SAMPLES);
    const long count = allocations - before;
    int failed = 0, wrong = 0;
    for (long i = 1; m && i <= count; i++) {
        fails = allocations + i;
        text = mirt_graph_costs(m, SAMPLES);
        if (!text) failed++;
        if (text ? strcmp(text, want) != 0 : mirt_last_status() != MIRT_E_NOMEM) wrong++;
    }
    fails = 0;
    text = m ? mirt_graph_costs(m, SAMPLES) : NULL;
    ok(strstr(want, " twice ") && failed > 100 && !wrong && text && strcmp(text, want) == 0,
       "%ld allocations: %d fail, %d with another error, and then there is the same plan", count, failed, wrong);
    free(want);
    mirt_strategy_destroy(s);
    ok(live_blocks == 0, "all memory is freed (%ld blocks are not)", live_blocks);
}

static void check_choices(void) {
    static const struct {
        mirt__choice costs;
        mirt__storage want;
    } cases[] = {
        {{1, 1, 1}, MIRT__LAZY}, {{1, 2, 1}, MIRT__STORED}, {{2, 3, 1}, MIRT__TWICE}, {{0, 0, HUGE_VAL}, MIRT__LAZY},
        {{1, HUGE_VAL, HUGE_VAL}, MIRT__STORED}, {{3, 2, 1}, MIRT__TWICE},
        {{HUGE_VAL, HUGE_VAL, HUGE_VAL}, MIRT__STORED},
    };
    bool good = true;
    for (int i = 0; i < MIRT__COUNT(cases); i++) good = good && mirt__choose(&cases[i].costs) == cases[i].want;
    ok(good, "the cheapest choice; of equal ones lazy before stored before twice");
}

int main(void) {
    const mirt__kernels *best = mirt__kernels_best();
    mirt__kernels off = *best, on = emulated_table(&off);
    draw_data();
    check_choices();
    for (int i = 0; i < MIRT__COUNT(networks); i++) {
        for (int half = 0; half < 2; half++) check(&networks[i], &on, half != 0);
    }
    ok(lazy_by_columns[1] < lazy_by_columns[0], "that are computed for every 3 columns: %d are lazy, not %d",
       lazy_by_columns[1], lazy_by_columns[0]);
    check_no_memory(&networks[MIRT__COUNT(networks) - 1], &on);
    return done_testing();
}
