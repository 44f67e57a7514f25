/* Tests full lists, calls during a fit, and models that cannot be saved. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "gallery.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { FEATURES = 3, ROWS = 8 };
static float numbers[ROWS * FEATURES];
static char path[400];

static mirt_tensor *record(mirt_tensor *labels, mirt_tensor *output, void *user) {
    return (void)user, mirt_square(mirt_subtract(labels, output));
}
static int batches;
static int count_batch(const mirt_event *event, void *user) { return (void)event, (void)user, batches++, 0; }

/* As many inputs, outputs, losses, metrics, callbacks, boundaries and logs as there may be. */
static void check_full(mirt_strategy *s) {
    static mirt_custom_metric metrics[MIRT_MAX_METRICS];
    static char metric_names[MIRT_MAX_METRICS][8];
    static mirt_callback counting;
    mirt_tensor *in[MIRT_MAX_INPUTS], *out[MIRT_MAX_OUTPUTS];
    int64_t boundaries[MIRT_MAX_BOUNDARIES];
    float values[MIRT_MAX_BOUNDARIES + 1];
    mirt_compile_desc c;
    mirt_fit_desc fit;
    mirt_data data;
    memset(&c, 0, sizeof c);
    memset(&fit, 0, sizeof fit);
    memset(&data, 0, sizeof data);
    mirt_model *m = mirt_model_create(s, "full");
    mirt_tensor *sum = NULL;
    for (int i = 0; i < MIRT_MAX_INPUTS; i++) {
        in[i] = mirt_input(m, MIRT_SHAPE(FEATURES));
        sum = sum ? mirt_add(sum, in[i]) : in[i];
        data.x[i] = mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(ROWS, FEATURES));
    }
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) {
        out[i] = gallery_dense(sum, 1, 0);
        c.losses[i] = MIRT_MEAN_SQUARED_ERROR;
        c.loss_weights[i] = 1;
        data.y[i] = mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1));
    }
    data.weights = mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(ROWS));
    mirt_model_outputs(m, out, MIRT_MAX_OUTPUTS);
    for (int i = 0; i <= MIRT_MAX_BOUNDARIES; i++) {
        if (i < MIRT_MAX_BOUNDARIES) boundaries[i] = i + 1;
        values[i] = 0.01f / (float)(i + 1);
    }
    c.optimizer = mirt_sgd(0.01f, 0, false);
    c.optimizer.decay = mirt_piecewise_constant(boundaries, values, MIRT_MAX_BOUNDARIES);
    for (int i = 0; i < MIRT_MAX_METRICS; i++) {
        snprintf(metric_names[i], sizeof metric_names[i], "m%d", i);
        metrics[i].name = metric_names[i];
        metrics[i].record = record;
        metrics[i].direction = MIRT_MODE_MIN;
    }
    ok(mirt_compile(m, &c) == MIRT_OK, "a model of %d inputs and %d outputs: %s", MIRT_MAX_INPUTS, MIRT_MAX_OUTPUTS,
       mirt_last_error());
    counting.batch_end = count_batch;
    for (int i = 0; i < MIRT_MAX_CALLBACKS; i++) fit.callbacks[i] = &counting;
    fit.no_progress = true;
    fit.batch = ROWS;
    fit.validation = mirt_arrays_of(&data);
    mirt_dataset *train = mirt_arrays_of(&data);
    ok(mirt_fit(m, train, &fit) && batches == MIRT_MAX_CALLBACKS, "is trained with %d callbacks: %s", batches,
       mirt_last_error());
    mirt_callback *plenty[2] = {mirt_progbar_logger(), mirt_terminate_on_nan(MIRT_NAN_STOP)};
    fit.callbacks[0] = plenty[0];
    fit.callbacks[MIRT_MAX_CALLBACKS - 1] = plenty[1];
    ok(mirt_fit(m, train, &fit) != NULL, "also with ready-made ones first and last: %s", mirt_last_error());
    float prediction[MIRT_MAX_OUTPUTS][ROWS], *to[MIRT_MAX_OUTPUTS];
    size_t capacity[MIRT_MAX_OUTPUTS];
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) to[i] = prediction[i], capacity[i] = ROWS;
    ok(mirt_predict_on_batch(m, &data, to, capacity) == MIRT_OK, "it predicts");
    ok(mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK, "it is saved: %s", mirt_last_error());
    mirt_model *loaded = mirt_load(s, path);
    ok(loaded && mirt_get_learning_rate(loaded) == mirt_get_learning_rate(m), "and loaded: %s",
       loaded ? "" : mirt_last_error());
    mirt_model_destroy(loaded);
    /* One output, as many metrics as there may be of both kinds. */
    mirt_model *one = mirt_model_create(s, "one");
    mirt_model_output(one, gallery_dense(mirt_input(one, MIRT_SHAPE(FEATURES)), 1, 0));
    memset(&c, 0, sizeof c);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    for (int i = 0; i < MIRT_MAX_METRICS; i++) {
        c.metrics[i] = i % 2 ? MIRT_MAE : MIRT_MSE;
        c.custom_metrics[i] = &metrics[i];
    }
    mirt_status status = mirt_compile(one, &c);
    ok(status == MIRT_OK, "%d metrics of each kind: %s", MIRT_MAX_METRICS, mirt_last_error());
    mirt_logs logs;
    ok(mirt_evaluate_arrays(one, data.x[0], data.y[0], &logs) == MIRT_OK && logs.count == 1 + 2 * MIRT_MAX_METRICS,
       "%d logs", logs.count);
    ok(isnan(mirt_logs_value(&logs, "none")) && isnan(mirt_logs_value(NULL, "loss")) &&
           isnan(mirt_logs_value(&logs, NULL)),
       "logs that are not there");
    ok(mirt_save(one, path, MIRT_SAVE_ALL) == MIRT_OK && (loaded = mirt_load(s, path)) != NULL, "saved and loaded: %s",
       mirt_last_error());
    mirt_model_destroy(loaded);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(fit.validation);
    for (int i = 0; i < 2; i++) mirt_callback_destroy(plenty[i]);
    mirt_model_destroy(one);
    mirt_model_destroy(m);
}

/* Calls on a model that is being trained, from a callback. */
static int refused, asked;
static void wait_for_it(bool failed, const char *call) {
    asked++;
    const bool right = failed && mirt_last_status() == MIRT_E_STATE;
    refused += right;
    if (!right) printf("# %s: %s\n", call, failed ? mirt_last_error() : "done");
}
#define WAITS(call) wait_for_it(call, #call)
static int busy_batch(const mirt_event *event, void *user) {
    const mirt_metric metric[1] = {MIRT_MSE};
    mirt_model *m = event->model, *other = (mirt_model *)user;
    mirt_data data;
    double number;
    memset(&data, 0, sizeof data);
    data.x[0] = mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(ROWS, FEATURES));
    data.y[0] = mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1));
    if (event->batch != 0) return 0;
    WAITS(mirt_compile(m, NULL) != MIRT_OK);
    WAITS(mirt_set_metrics(m, metric, NULL, 1) != MIRT_OK);
    WAITS(mirt_set_dtype_policy(m, "mixed_bfloat16") != MIRT_OK);
    WAITS(!mirt_input(m, MIRT_SHAPE(FEATURES)));
    WAITS(!mirt_variable(m, "late", MIRT_SHAPE(FEATURES), mirt_zeros(), true));
    WAITS(!gallery_dense(mirt_output_of(m, 0), 2, 0));
    WAITS(mirt_add_loss(m, mirt_output_of(m, 0)) != MIRT_OK);
    WAITS(!mirt_call(m, mirt_input(other, MIRT_SHAPE(FEATURES)), MIRT_TRAINING_AUTO));
    WAITS(!mirt_fit_arrays(m, data.x[0], data.y[0], NULL));
    WAITS(mirt_train_on_batch(m, &data, NULL) != MIRT_OK);
    WAITS(mirt_train_step(m, data.x[0], data.y[0], &number) != MIRT_OK);
    WAITS(mirt_scatter(m, data.x[0], data.y[0]) != MIRT_OK);
    WAITS(mirt_profile_begin(m) != MIRT_OK);
    mirt_profile_end(m);
    mirt_model_output(m, mirt_output_of(m, 0));
    WAITS(mirt_last_status() != MIRT_OK);
    return 0;
}

static void check_busy(mirt_strategy *s) {
    mirt_compile_desc c;
    mirt_fit_desc fit;
    mirt_callback busy;
    memset(&c, 0, sizeof c);
    memset(&fit, 0, sizeof fit);
    memset(&busy, 0, sizeof busy);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_model *m = mirt_model_create(s, "busy"), *other = mirt_model_create(s, "other");
    mirt_model_output(m, gallery_dense(mirt_input(m, MIRT_SHAPE(FEATURES)), 1, 0));
    mirt_compile(m, &c);
    busy.batch_end = busy_batch;
    busy.user = other;
    fit.callbacks[0] = &busy;
    fit.no_progress = true;
    fit.batch = 4;
    const mirt_history *h = mirt_fit_arrays(m, mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(ROWS, FEATURES)),
                                            mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1)), &fit);
    ok(h && refused == asked, "%d of %d calls have to wait until fit returns%s%s", refused, asked, h ? "" : ": ",
       h ? "" : mirt_last_error());
    ok(mirt_step(m) == 2, "and fit goes through");
    mirt_model_destroy(m);
    mirt_model_destroy(other);
}

/* A tensor from inside of a custom layer, an operation that files cannot hold. */
static mirt_tensor *leaked;
static mirt_tensor *leak(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in, (void)config, (void)user;
    mirt_tensor *w = mirt_layer_variable(layer, "w", MIRT_SHAPE(FEATURES), mirt_ones(), true);
    leaked = mirt_multiply(in[0], w);
    return mirt_scale(leaked, 1, 0);
}
static const mirt_layer_class leaking = {"Leaking", 1, 0, NULL, 0, leak, NULL};

static void check_unsaved(mirt_strategy *s) {
    for (int i = 0; i < 4; i++) {
        mirt_model *m = mirt_model_create(s, "inside");
        mirt_tensor *x = mirt_input(m, MIRT_SHAPE(FEATURES)), *y = mirt_custom_layer(&leaking, &x, 1, NULL, NULL);
        if (i == 0) y = mirt_add(y, leaked);
        if (i == 1) y = gallery_dense(leaked, 1, 0);
        if (i == 2) mirt_add_loss(m, mirt_reduce_sum(leaked, 2u, false));
        if (i == 3) y = leaked;
        mirt_model_output(m, y);
        ok(mirt_compile(m, NULL) == MIRT_OK, "a model that reads from inside of a layer (%d): %s", i,
           mirt_last_error());
        ok(mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_E_STATE && strstr(mirt_last_error(), "from inside of leaking"),
           "it is not saved whole: %s", mirt_last_error());
        ok(mirt_save(m, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK && mirt_load_weights(m, path) == MIRT_OK,
           "its weights are: %s", mirt_last_error());
        mirt_model_destroy(m);
    }
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_full_%ld.safetensors", tap_tmpdir(), (long)getpid());
    for (int i = 0; i < ROWS * FEATURES; i++) numbers[i] = (float)(i % 5);
    mirt_strategy *s = strategy_of(1, 1, 1);
    check_full(s);
    check_busy(s);
    check_unsaved(s);
    mirt_strategy_destroy(s);
    unlink(path);
    return done_testing();
}
