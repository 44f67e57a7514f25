/* Training, predicting and reading data in a build without threads. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_NO_THREADS
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

static mirt_strategy *strategy(const char *devices, int threads, double timeout) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = devices;
    d.threads = threads;
    d.replicas = 2;
    d.seed = 11;
    d.silent = true;
    d.timeout_seconds = timeout;
    return mirt_strategy_create(&d);
}

static int add_one(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)index, (void)user;
    ((uint8_t *)out[0])[0]++;
    return 0;
}

static mirt_dataset *images(int64_t count) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = add_one;
    mirt_dataset *d = mirt_map(mirt_arrays(images_x(0, count), images_y(0, count)), &map);
    return mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(d), 50), 10), 2);
}

int main(void) {
    static float out[20 * IMAGE_CLASSES];
    mirt_fit_desc fit;
    mirt_logs logs;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    fit.epochs = 2;
    draw_images();
    ok(!strategy("2", 1, 0) && mirt_last_status() == MIRT_E_THREAD, "two devices: %s", mirt_last_error());
    ok(!strategy("1", 2, 0) && mirt_last_status() == MIRT_E_THREAD, "two threads: %s", mirt_last_error());
    mirt_strategy *s = strategy("1", 1, 5);
    ok(s && mirt_num_devices(s) == 1 && mirt_num_threads(s) == 1 && mirt_num_replicas(s) == 2,
       "one device of one thread, two replicas");
    const char *environment = mirt_environment(s);
    ok(environment && strstr(environment, "\"threads\": false"), "the environment says so");
    mirt_model *m = image_model(s, mirt_adam(0.01f), 0.25f);
    mirt_dataset *train = images(60), *test = images(20);
    fit.validation = test;
    const mirt_history *h = mirt_fit(m, train, &fit);
    ok(h && mirt_step(m) == 12 && mirt_logs_value(&h->epoch[1], "loss") < mirt_logs_value(&h->epoch[0], "loss"),
       "it trains: %s", h ? "" : mirt_last_error());
    ok(mirt_evaluate(m, test, &logs) == MIRT_OK && mirt_predict(m, test, out, 20 * IMAGE_CLASSES) == MIRT_OK,
       "evaluates and predicts");
    ok(mirt_check_drift(m) == MIRT_OK && mirt_timing_text(m) && mirt_summary(m, 4), "and tells about it");
    ok(mirt_dataset_workers(train, 4) == MIRT_OK, "workers may be asked for, and there are none");
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(s);
    return done_testing();
}
