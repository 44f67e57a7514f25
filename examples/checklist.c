// cc -O2 examples/checklist.c -o checklist -lm -lpthread
/* Checks whether mirrored training works on this machine, as docs/validation-checklist.md explains. Prints one line per
   check, then the environment. Exit status 1 if a check fails. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNEL = 13 * 13 * 8 * 10 };
typedef struct result { double loss, accuracy; bool quiet; float kernel[KERNEL]; } result;
static int failed;
static char heard[4096]; /* the text of all warnings */

static void check(const char *id, bool good, const char *what) {
    printf("%-6s %s  %s\n", good ? "ok" : "FAILED", id, what);
    failed += !good;
}

static void hear(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (level == MIRT_LOG_WARNING) strncat(heard, text, sizeof heard - strlen(heard) - 1);
}

static mirt_strategy *open_strategy(const char *devices, int replicas) {
    heard[0] = 0;
    return mirt_strategy_create(&(mirt_strategy_desc){.devices = devices, .replicas = replicas, .log = hear});
}

static mirt_model *make_model(mirt_strategy *strategy) {
    mirt_model *model = mirt_model_create(strategy, "checklist");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 8, .kernel = {3, 3}, .activation = MIRT_RELU});
    mirt_model_output(model, mirt_dense(mirt_flatten(mirt_max_pool2d(x, NULL)), &(mirt_dense_desc){.units = 10}));
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(5e-3f),
        .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true, .metrics = {MIRT_ACCURACY}});
    return model;
}

/* Trains for two epochs and saves the model to `path` unless that is NULL. The loss is negative after an error. */
static result train(const char *devices, int replicas, int64_t samples, int64_t batch, const char *path) {
    static result r;
    mirt_strategy *strategy = open_strategy(devices, replicas);
    mirt_model *model = make_model(strategy);
    mirt_dataset *digits =
        mirt_batch(mirt_shuffle(mirt_cache(mirt_drawn_digits(samples, 0, MIRT_TRAIN)), samples), batch);
    mirt_dataset *test = mirt_batch(mirt_drawn_digits(501, 0, MIRT_TEST), 50);
    mirt_history *h = mirt_fit(model, digits, &(mirt_fit_desc){.epochs = 2, .validation = test, .no_progress = true});
    bool good = h && mirt_get_weight(model, "dense/kernel", 0, r.kernel, KERNEL) == MIRT_OK &&
                (!path || mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK);
    r.loss = good ? mirt_history_last(h, "val_loss") : -1;
    r.accuracy = good ? mirt_history_last(h, "val_accuracy") : 0;
    r.quiet = !heard[0] || (strstr(heard, "share") && strstr(heard, "cores")); /* a warning if there is one core */
    mirt_dataset_destroy(digits), mirt_dataset_destroy(test), mirt_strategy_destroy(strategy);
    return r;
}

/* The loss of the model in `path` on the test digits, in batches of `batch`. */
static double evaluate(const char *path, const char *devices, int64_t batch) {
    mirt_logs logs;
    mirt_strategy *strategy = open_strategy(devices, 0);
    mirt_dataset *test = mirt_batch(mirt_drawn_digits(501, 0, MIRT_TEST), batch);
    mirt_model *model = mirt_load(strategy, path);
    double loss = mirt_evaluate(model, test, &logs) == MIRT_OK ? mirt_logs_value(&logs, "loss") : -1;
    mirt_dataset_destroy(test), mirt_strategy_destroy(strategy);
    return loss;
}

/* The warnings for a small program with a mistake: `share` different samples repeated, in batches of `batch`. */
static bool warns(const char *devices, int replicas, int batch, int share, float scale, bool logits, const char *says) {
    static float x[96][4], y[96][1];
    for (int i = 0; i < 96 * 4; i++) x[i / 4][i % 4] = scale * (float)((i / 4 % share * 7 + i % 4 * 3) % 11) / 11;
    for (int i = 0; i < 96; i++) y[i][0] = (float)(i % 2);
    mirt_strategy *strategy = open_strategy(devices, replicas);
    mirt_model *model = mirt_model_create(strategy, "pitfall");
    const mirt_dense_desc dense = {.units = 1, .activation = logits ? MIRT_LINEAR : MIRT_SIGMOID};
    mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(4)), &dense));
    mirt_compile(model, &(mirt_compile_desc){.loss = MIRT_BINARY_CROSSENTROPY, .from_logits = logits,
        .metrics = {MIRT_ACCURACY}});
    const mirt_array labels = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(96, 1));
    mirt_dataset *data = mirt_batch(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(96, 4)), labels), batch);
    bool good = mirt_fit(model, data, &(mirt_fit_desc){.no_progress = true}) && strstr(heard, says);
    mirt_dataset_destroy(data), mirt_strategy_destroy(strategy);
    return good;
}

int main(void) {
    const char *path = "checklist.safetensors";
    static result two, one; /* too large for the stack */
    two = train("2", 2, 4000, 32, path);
    check("B1", two.loss >= 0 && two.accuracy > 0.9, "a small network classifies over 90 % of digits correctly");
    one = train("1", 2, 4000, 32, NULL);
    check("B2", memcmp(one.kernel, two.kernel, sizeof one.kernel) == 0, "one device and two are bit-identical");
    check("B3", evaluate(path, "1", 50) == two.loss && evaluate(path, "2", 50) == two.loss, "same loss after loading");
    check("B4", two.quiet, "no warnings");
    check("E1", evaluate(path, "2", 7) == two.loss && evaluate(path, "2", 501) == two.loss, "same loss in all batches");
    one = train("2", 4, 61, 3, NULL);
    check("E2", one.loss >= 0 && isfinite(one.loss), "batches of fewer samples than replicas work");
    check("F1", !mirt_mirrored("gpu:7") && strstr(mirt_last_error(), "no device"), "a missing device is an error");
    check("F2", evaluate("no/file", "1", 50) < 0 && strstr(mirt_last_error(), "no/file"), "a missing file is named");
    FILE *file = fopen(path, "r+b");
    bool damaged = file && fseek(file, -99, SEEK_END) == 0 && fputs("?!", file) != EOF;
    damaged = file && fclose(file) == 0 && damaged;
    check("F3", damaged && evaluate(path, "1", 50) < 0 && strstr(mirt_last_error(), path), "a damaged file is named");
    const bool lost = train("2", 2, 120, 60, "no/such/directory/model").loss < 0;
    check("F4", lost && strstr(mirt_last_error(), "no/such/directory"), "a missing directory is named");
    setenv("MIRT_CORES", "5", 1);
    check("P1", warns("3", 0, 48, 96, 1, false, "stay idle"), "a warning about idle cores");
    unsetenv("MIRT_CORES");
    check("P2", warns("2", 4, 16, 96, 1, false, "the global batch"), "a batch meant for each replica");
    check("P3", warns("2", 2, 48, 96, 255, false, "mirt_rescale"), "inputs without scaling");
    check("P4", warns("2", 2, 48, 24, 1, false, "the same 24 samples"), "equal samples on all replicas");
    check("P5", warns("2", 2, 48, 96, 1, true, "are logits"), "accuracy of logits");
    mirt_strategy *strategy = open_strategy(NULL, 0);
    printf("%s\n", strategy ? mirt_environment(strategy) : mirt_last_error());
    mirt_strategy_destroy(strategy), remove(path);
    return failed != 0;
}
