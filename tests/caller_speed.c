/* Measures the caller's SSE code after calls into the library, and in callbacks. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <time.h>

enum { CALLS = 20000, TIMES = 15, ROWS = 32, SIDE = 12 };

static volatile float sink;
static double in_callback;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Nanoseconds per call of expf, the minimum of several loops, since other programs may use the core in some. */
static double expf_time(void) {
    double least = 1;
    for (int time = 0; time < TIMES; time++) {
        const double began = seconds();
        float x = 0.5f;
        for (int i = 0; i < CALLS; i++) x = expf(-x);
        sink = x;
        const double spent = seconds() - began;
        if (spent < least) least = spent;
    }
    return least * 1e9 / CALLS;
}

static int on_batch_end(const mirt_event *event, void *user) {
    (void)user;
    if (event->batch == 0) in_callback = expf_time();
    return 0;
}

static void check(const char *what, double before, double after) {
    ok(after <= 1.2 * before, "%s: expf takes %.2f ns, %.2f ns before: ratio %.2f", what, after, before,
       after / before);
}

int main(void) {
    static float x[ROWS][SIDE][SIDE][1], y[ROWS][3];
    static float out[ROWS * 3];
    mirt_dense_desc dense;
    mirt_conv2d_desc conv;
    mirt_compile_desc compile;
    mirt_fit_desc fit;
    mirt_callback callback;
    memset(&dense, 0, sizeof dense);
    memset(&conv, 0, sizeof conv);
    memset(&compile, 0, sizeof compile);
    memset(&fit, 0, sizeof fit);
    memset(&callback, 0, sizeof callback);
    const mirt_array images = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, SIDE, SIDE, 1));
    const mirt_array labels = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 3));
    expf_time();
    const double before = expf_time();
    mirt_strategy *strategy = mirt_mirrored("1");
    mirt_set_log(strategy, NULL, NULL);
    mirt_model *model = mirt_model_create(strategy, "speed");
    conv.filters = 8;
    conv.kernel[0] = 3;
    dense.units = 3;
    mirt_tensor *h =
        mirt_max_pool2d(mirt_conv2d(mirt_rescale(mirt_input(model, MIRT_SHAPE(SIDE, SIDE, 1)), 0.5f, 0), &conv), NULL);
    mirt_model_output(model, mirt_dense(mirt_flatten(mirt_batch_norm(h, NULL)), &dense));
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_compile(model, &compile);
    check("mirt_compile", before, expf_time());
    mirt_predict_arrays(model, images, out, sizeof out / sizeof *out);
    check("mirt_predict_arrays", before, expf_time());
    mirt_train_step(model, images, labels, NULL);
    check("mirt_train_step", before, expf_time());
    mirt_evaluate_arrays(model, images, labels, NULL);
    check("mirt_evaluate_arrays", before, expf_time());
    callback.batch_end = on_batch_end;
    fit.callbacks[0] = &callback;
    ok(mirt_fit_arrays(model, images, labels, &fit) != NULL, "fit: %s", mirt_last_error());
    check("mirt_fit_arrays", before, expf_time());
    check("a callback", before, in_callback);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
