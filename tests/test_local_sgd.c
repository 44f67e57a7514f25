/* Local SGD: processes train on their own rows and average their weights. */
#include "together.h"

enum { ROWS = 192, BATCH = 32, EVERY = 4, EPOCHS = 2, MOST = 1 << 14 };

typedef struct job {
    int processes, devices, every, drift_every;
    bool sgd, logs; /* logs: every step */
} job;

typedef struct result {
    int status;
    double val_loss, evaluated;
    float weight[MOST];
    char error[256];
} result;

static result *results; /* [PIPE_MOST], shared */

static mirt_model *model_with(mirt_strategy *strategy, const job *j) {
    const scene plain = {.name = "plain", .replicas = 1, .batch = BATCH};
    mirt_model *model = strategy ? mirt_model_create(strategy, "scene") : NULL;
    if (!model) return NULL;
    mirt_model_output(model, layers(mirt_input(model, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), &plain));
    mirt_compile_desc c = image_compile(j->sgd ? mirt_sgd(0.05f, 0, false) : mirt_adam(1e-3f));
    return mirt_compile(model, &c) == MIRT_OK ? model : NULL;
}

/* Returns the number of weights; 0: there is no memory, or they are more than MOST. */
static size_t take_weights(mirt_model *model, float *out) {
    size_t count;
    float *weights = all_weights(model, 0, &count);
    if (!weights || count > MOST) count = 0;
    if (count) memcpy(out, weights, count * sizeof *out);
    free(weights);
    return count;
}

static void set_weights(mirt_model *model, const float *from) {
    mirt_weight_info info;
    for (int i = 0; i < mirt_num_weights(model); i++) {
        if (mirt_weight(model, i, &info) != MIRT_OK) return;
        mirt_set_weight(model, info.name, from, (size_t)info.count);
        from += info.count;
    }
}

static mirt_status fit(mirt_model *model, const job *j, result *out) {
    mirt_dataset *train = mirt_batch(mirt_arrays(images_x(0, ROWS), images_y(0, ROWS)), BATCH),
                 *validation = mirt_batch(mirt_arrays(images_x(203, 57), images_y(203, 57)), 16);
    mirt_fit_desc d;
    mirt_logs logs;
    memset(&d, 0, sizeof d);
    d.epochs = EPOCHS;
    d.validation = validation;
    d.no_progress = true;
    d.check_drift_every = j->drift_every;
    mirt_callback *log = j->logs ? mirt_json_logger(&(mirt_json_logger_desc){.path = "/dev/null", .steps = 1}) : NULL;
    d.callbacks[0] = log;
    const mirt_history *h = mirt_fit(model, train, &d);
    mirt_status status = h ? mirt_evaluate(model, validation, &logs) : mirt_last_status();
    if (status == MIRT_OK) out->val_loss = mirt_history_last(h, "val_loss");
    if (status == MIRT_OK) out->evaluated = mirt_logs_value(&logs, "loss");
    mirt_callback_destroy(log);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(validation);
    return status;
}

static void go(const void *arg, int rank) {
    const job *j = (const job *)arg;
    result *out = &results[rank];
    char devices[16];
    snprintf(devices, sizeof devices, "%d", j->devices);
    mirt_strategy_desc d = multi_worker_desc(devices, 20);
    d.average_every = j->every;
    d.bucket_bytes = 2000;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    mirt_model *model = model_with(strategy, j);
    out->status = (int)(model ? fit(model, j, out) : mirt_last_status());
    if (out->status != MIRT_OK) {
        snprintf(out->error, sizeof out->error, "%.250s", mirt_last_error());
    } else if (!take_weights(model, out->weight)) {
        out->status = MIRT_E_STATE;
        snprintf(out->error, sizeof out->error, "more than %d weights", MOST);
    }
    mirt_strategy_destroy(strategy);
}

static bool run_job(const job *j) {
    memset(results, 0, PIPE_MOST * sizeof *results);
    return run_processes(j->processes, 30, go, j);
}

/* Two models that know nothing of each other, each trained on half of every batch, averaged by hand. */
static void train_apart(const job *j, float *out) {
    static float weight[2][MOST];
    mirt_strategy *strategy[2];
    mirt_model *model[2];
    for (int k = 0; k < 2; k++) {
        strategy[k] = mirt_one_device("cpu:0");
        mirt_set_log(strategy[k], NULL, NULL);
        model[k] = model_with(strategy[k], j);
    }
    const int steps = ROWS / BATCH;
    for (int step = 1; step <= EPOCHS * steps; step++) {
        const int64_t first = (step - 1) % steps * BATCH, half = BATCH / 2;
        size_t count = 0;
        for (int k = 0; k < 2; k++) {
            mirt_train_step(model[k], images_x(first + k * half, half), images_y(first + k * half, half), NULL);
            count = take_weights(model[k], weight[k]);
        }
        for (size_t i = 0; i < count; i++) out[i] = 0.5f * weight[0][i] + 0.5f * weight[1][i];
        if (step % j->every && step % steps) continue;
        for (int k = 0; k < 2; k++) set_weights(model[k], out);
    }
    for (int k = 0; k < 2; k++) mirt_strategy_destroy(strategy[k]);
}

static double difference(const float *a, const float *b) {
    double most = 0;
    for (int i = 0; i < MOST; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void check_apart(bool sgd) {
    static float expected[MOST];
    job j = {2, 1, EVERY, 0, sgd, sgd};
    memset(expected, 0, sizeof expected);
    const bool ran = run_job(&j);
    train_apart(&j, expected);
    ok(ran && results[0].status == MIRT_OK && memcmp(results[0].weight, expected, sizeof expected) == 0,
       "%s: two processes train as two models that are averaged by hand: %.3g %s", sgd ? "SGD" : "Adam",
       difference(results[0].weight, expected), results[0].error);
    ok(memcmp(results[0].weight, results[1].weight, sizeof expected) == 0 &&
           results[0].val_loss == results[1].val_loss && results[0].evaluated == results[0].val_loss,
       "both end with the same weights and the same validation loss, %.6f", results[0].val_loss);
}

/* The mean of weights after one step of plain SGD is that of the mean gradient. */
static void check_every_step(int processes, int devices) {
    static float mirrored[MOST];
    job j = {1, 1, 0, 0, true, false};
    run_job(&j);
    memcpy(mirrored, results[0].weight, sizeof mirrored);
    j.processes = processes;
    j.devices = devices;
    j.every = 1;
    const bool ran = run_job(&j);
    const double apart = difference(results[processes - 1].weight, mirrored);
    ok(ran && results[processes - 1].status == MIRT_OK && apart < 1e-5,
       "%d processes of %d device%s that average after every step are a mirrored strategy but for rounding: %.3g %s",
       processes, devices, devices == 1 ? "" : "s", apart, results[processes - 1].error);
}

static void check_refusals(void) {
    const job j = {2, 1, EVERY, 6, true, false};
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.average_every = 2;
    ok(!mirt_strategy_create(&d) && strstr(mirt_last_error(), "average_every is for MIRT_MULTI_WORKER"), "%s",
       mirt_last_error());
    d.kind = MIRT_MULTI_WORKER;
    d.average_every = -1;
    ok(!mirt_strategy_create(&d) && strstr(mirt_last_error(), "cannot be negative"), "%s", mirt_last_error());
    run_job(&j);
    ok(results[0].status == MIRT_E_INVALID && results[1].status == MIRT_E_INVALID &&
           strstr(results[0].error, "must be a multiple of average_every, 4"),
       "%s", results[0].error);
}

int main(void) {
    results = (result *)pipe_shared(PIPE_MOST * sizeof *results);
    if (!results) return 1;
    draw_images();
    check_apart(true);
    check_apart(false);
    check_every_step(2, 1);
    check_every_step(4, 2);
    check_refusals();
    return done_testing();
}
