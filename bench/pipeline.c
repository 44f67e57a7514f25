/* Batches of photographs, made and thrown away: pipeline DIRECTORY SIZE BATCH [AUGMENTATION]
   A line says that it is ready; then, for every line with a number of seconds, whole epochs for at least as long. */
#define _POSIX_C_SOURCE 200809L
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static mirt_dataset *open_photos(char **argv, int argc) {
    mirt_image_directory_desc desc;
    mirt_augmentation list[16];
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = atoi(argv[2]);
    desc.batch_size = MIRT_NO_BATCH;
    desc.no_shuffle = true;
    desc.dtype = MIRT_UINT8;
    mirt_dataset *photos = mirt_shuffle(mirt_image_dataset_from_directory(argv[1], &desc), 10000);
    int count = argc > 4 ? mirt_parse_augmentation(argv[4], list, 16) : 0;
    if (count > 0) photos = mirt_augment(photos, list, count);
    return mirt_prefetch(mirt_batch(photos, atoi(argv[3])), MIRT_AUTOTUNE);
}

/* Images of one epoch; -1: it failed. */
static int64_t drain(mirt_dataset *dataset) {
    mirt_global_batch batch;
    int64_t images = 0;
    mirt_status status;
    while ((status = mirt_dataset_next(dataset, &batch)) == MIRT_OK && batch.rows) images += batch.rows;
    return status == MIRT_OK ? images : -1;
}

int main(int argc, char **argv) {
    double seconds;
    if (argc < 4) return 2;
    mirt_strategy *strategy = mirt_strategy_create(NULL);
    mirt_dataset *photos = strategy ? mirt_distribute(strategy, open_photos(argv, argc)) : NULL;
    bool good = photos && drain(photos) > 0; /* buffers and threads are there after one epoch */
    if (good) printf("{\"name\": \"mirrortrain\"}\n");
    fflush(stdout);
    while (good && scanf("%lf", &seconds) == 1) {
        int64_t images = 0, some = 0;
        double begun = now();
        while (some >= 0 && now() - begun < seconds) images += some = drain(photos);
        good = some >= 0;
        printf("{\"images_per_second\": %.2f}\n", (double)images / (now() - begun));
        fflush(stdout);
    }
    if (!good) fprintf(stderr, "%s\n", mirt_last_error());
    mirt_dataset_destroy(photos);
    mirt_strategy_destroy(strategy);
    return !good;
}
