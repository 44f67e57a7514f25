#ifndef BENCH_PHOTOS_H
#define BENCH_PHOTOS_H
/* Clock, epochs and answers of the programs that time photographs. Include after mirrortrain.h. */
#include <stdio.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Images of one epoch; -1: it failed. */
static int64_t drain(mirt_dataset *dataset) {
    mirt_global_batch batch;
    int64_t images = 0;
    mirt_status status;
    while ((status = mirt_dataset_next(dataset, &batch)) == MIRT_OK && batch.rows) images += batch.rows;
    return status == MIRT_OK ? images : -1;
}

/* An epoch of training; -1: it failed. `waited` is the share of its time in which batches were waited for. */
static int64_t train(mirt_model *model, mirt_dataset *dataset, double *waited) {
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.no_progress = true;
    const mirt_history *history = mirt_fit(model, dataset, &desc);
    if (!history) return -1;
    *waited = history->input_seconds / history->seconds;
    return mirt_dataset_size(dataset);
}

/* Says that it is ready, then, for every line with a number of seconds, makes batches, or trains the model if there is
   one, for whole epochs of at least as long. */
static bool answer(const char *name, mirt_model *model, mirt_dataset *photos) {
    double seconds, waited = 0;
    bool good = photos && (model || drain(photos) > 0); /* buffers and threads are there after one epoch */
    if (good) printf("{\"name\": \"%s\"}\n", name);
    fflush(stdout);
    while (good && scanf("%lf", &seconds) == 1) {
        int64_t images = 0, some = 0;
        const double begun = now();
        while (some >= 0 && now() - begun < seconds)
            images += some = model ? train(model, photos, &waited) : drain(photos);
        good = some >= 0;
        printf("{\"images_per_second\": %.2f, \"waited\": %.5f}\n", (double)images / (now() - begun), waited);
        fflush(stdout);
    }
    return good;
}
#endif
