/* Tests MIRT_NAN_STOP: a step that would write non-finite values is not applied. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

enum { WIDTH = 6, ROWS = 24, BATCH = 8 };
static float rows_x[ROWS][WIDTH], rows_y[ROWS];

static struct {
    int lines;
    char last[700];
} said;

static void hear(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (level != MIRT_LOG_WARNING || !strstr(text, "is not finite")) return; /* other warnings are of large inputs */
    said.lines++;
    snprintf(said.last, sizeof said.last, "%s", text);
}

static void draw_rows(float y) {
    for (int i = 0; i < ROWS; i++) {
        rows_y[i] = y;
        for (int k = 0; k < WIDTH; k++) rows_x[i][k] = 1.0f + (float)((i + k) % 5) / 4;
    }
}

/* One linear unit, zero at first; after a batch normalization, or without one. */
static mirt_model *unit(mirt_strategy *s, bool normalized, mirt_optimizer optimizer) {
    mirt_dense_desc d;
    mirt_compile_desc c;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    d.units = 1;
    d.kernel_initializer = mirt_zeros();
    c.optimizer = optimizer;
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_model *m = mirt_model_create(s, "unit");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(WIDTH));
    mirt_model_output(m, mirt_dense(normalized ? mirt_batch_norm(x, NULL) : x, &d));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* Another function of the model runs before its first step. */
static int evaluate_first(const mirt_event *event, void *user) {
    (void)user;
    mirt_evaluate_arrays(event->model, mirt_make_array(rows_x, MIRT_FLOAT32, MIRT_SHAPE(2, WIDTH)),
                         mirt_make_array(rows_y, MIRT_FLOAT32, MIRT_SHAPE(2, 1)), NULL);
    return 0;
}

/* An epoch of 3 batches; returns the steps that were applied, or -1. */
static int64_t run(mirt_model *m, mirt_nan_policy policy) {
    mirt_callback *callback = mirt_terminate_on_nan(policy);
    mirt_dataset *data = mirt_batch(mirt_arrays(mirt_make_array(rows_x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, WIDTH)),
                                                mirt_make_array(rows_y, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1))),
                                    BATCH);
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    memset(&said, 0, sizeof said);
    static const mirt_callback first = {NULL, evaluate_first, NULL, NULL, NULL, NULL, NULL,
                                        NULL, NULL,           NULL, NULL, NULL, NULL};
    fit.callbacks[0] = callback;
    fit.callbacks[1] = &first;
    fit.epochs = 1;
    fit.no_progress = true;
    mirt_history *h = mirt_fit(m, data, &fit);
    if (!h) printf("# %s\n", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_callback_destroy(callback);
    return h ? mirt_step(m) : -1;
}

/* All weights and the optimizer's state. */
static bool all_finite(mirt_model *m) {
    size_t count;
    float *w = all_weights(m, mirt_num_devices(m->strategy) - 1, &count);
    bool finite = true;
    mirt__slots_to_host(m);
    for (size_t i = 0; i < count; i++) finite = finite && isfinite(w[i]);
    for (int k = 0; k < MIRT__MAX_SLOTS && m->slot[k]; k++) {
        const float *slot = (const float *)(const void *)m->slot[k];
        for (size_t i = 0; i < m->trained_bytes / sizeof *slot; i++) finite = finite && isfinite(slot[i]);
    }
    free(w);
    return finite;
}

/* On the simulated GPUs where there are some. */
static mirt_strategy *hearing(int devices) {
    static const char *const gpus[] = {"gpu:0", "gpu:0,gpu:1", "gpu:0,gpu:1,gpu:2"};
    static const char *const cores[] = {"1", "2", "3"};
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = getenv("MIRT_SIM_DEVICES") ? gpus[devices - 1] : cores[devices - 1];
    d.replicas = 4;
    d.threads = 1;
    d.seed = 11;
    d.log = hear;
    return mirt_strategy_create(&d);
}

/* The second batch cannot be taken: one step is applied under MIRT_NAN_STOP, and all of them otherwise. */
static void check_second(const char *what, int devices, bool normalized, mirt_optimizer optimizer, const char *says,
                         const char *names) {
    for (int policy = MIRT_NAN_STOP; policy <= MIRT_NAN_OFF; policy++) {
        mirt_strategy *s = hearing(devices);
        mirt_model *m = unit(s, normalized, optimizer);
        const int64_t steps = run(m, (mirt_nan_policy)policy);
        const bool finite = all_finite(m);
        if (policy == MIRT_NAN_STOP) {
            ok(steps == 1 && finite && said.lines == 1 && strstr(said.last, says) && strstr(said.last, names) &&
                   strstr(said.last, "step 2"),
               "%s on %d devices: %d step, %s", what, devices, (int)steps, said.last);
        } else {
            const bool told = policy == MIRT_NAN_OFF ? said.lines == 0 : said.lines == 1 && strstr(said.last, says);
            ok(steps == 3 && !finite && told, "%s on %d devices, policy %d: %d steps, %s, %d lines", what, devices,
               policy, (int)steps, finite ? "finite" : "not finite", said.lines);
        }
        mirt_strategy_destroy(s);
    }
}

static void check_steps(int devices) {
    const int bad = BATCH + 5; /* of replica 2 of 4 */
    draw_rows(1);
    for (int k = 0; k < WIDTH; k++) rows_x[bad][k] = 1e20f;
    check_second("a variance that overflows", devices, true, mirt_adam(1e-3f),
                 "a moving statistic or other new state of", "batch_normalization");
    draw_rows(1);
    rows_y[bad] = 1e18f; /* its square is a finite loss, and the gradient 1e18 * 1e22 is not */
    rows_x[bad][2] = 1e22f;
    check_second("a gradient that overflows", devices, false, mirt_sgd(1e-30f, 0, false), "a gradient of", "dense");
    draw_rows(1);
    rows_y[bad] = 1e18f;
    rows_x[bad][2] = 1e3f; /* a gradient of 1e20 */
    check_second("a gradient whose square overflows", devices, false, mirt_adam(1e-3f), "a gradient of",
                 "that of dense/kernel is above 1e+17");
}

static void check_clipped(void) {
    mirt_optimizer clipped = mirt_adam(1e-3f);
    clipped.clipvalue = 1;
    draw_rows(1);
    rows_y[3] = 1e18f;
    rows_x[3][2] = 1e3f;
    mirt_strategy *s = hearing(2);
    mirt_model *m = unit(s, false, clipped);
    ok(run(m, MIRT_NAN_STOP) == 3 && said.lines == 0 && all_finite(m),
       "large gradients that are clipped do no harm: %s", said.last);
    mirt_strategy_destroy(s);
}

/* What was there before the first step: training does not read moving statistics, nor does a loss show moments. */
static void check_before(int devices) {
    float infinite[WIDTH];
    for (int k = 0; k < WIDTH; k++) infinite[k] = k == 1 ? INFINITY : 1;
    draw_rows(1);
    for (int what = 0; what < 2; what++) {
        mirt_strategy *s = hearing(devices);
        mirt_model *m = unit(s, true, mirt_adam(1e-3f));
        if (what == 0) mirt_set_weight(m, "batch_normalization/moving_variance", infinite, WIDTH);
        else mirt__slot_at(m, 1, 0)[1] = INFINITY;
        if (what == 1) mirt__slots_changed(m);
        const bool named = run(m, MIRT_NAN_STOP) == 0 &&
                           strstr(said.last, what ? "the optimizer's state of "
                                                  : "the weights batch_normalization/moving_variance") != NULL;
        ok(named && strstr(said.last, "the model before step 1 is not finite"), "on %d devices: %s", devices,
           said.last);
        mirt_strategy_destroy(s);
    }
}

int main(void) {
    for (int devices = 1; devices <= 3; devices++) {
        check_steps(devices);
        check_before(devices);
    }
    check_clipped();
    return done_testing();
}
