/* A directory of as many photographs as ImageNet's, or shards of them: imagenet open|rate DIRECTORY BATCH. With "open" one line says how many
   seconds, seconds of cores and MiB opening took, and seconds the first batch and the first of another epoch; "rate" is as pipeline.c. */
#define _DEFAULT_SOURCE
#include "../mirrortrain.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "photos.h"

static double mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* Seconds of all threads on cores. */
static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool has_shards(const char *path) {
    DIR *stream = opendir(path);
    bool found = false;
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        const size_t size = strlen(entry->d_name);
        found = found || (size > 4 && strcmp(entry->d_name + size - 4, ".tar") == 0);
    }
    if (stream) closedir(stream);
    return found;
}

static mirt_dataset *open_photos(const char *path, int batch) {
    mirt_image_directory_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = 224;
    desc.batch_size = batch;
    desc.dtype = MIRT_UINT8;
    return has_shards(path) ? mirt_tar_dataset(path, &desc) : mirt_image_dataset_from_directory(path, &desc);
}

static bool open_once(const char *path, int batch) {
    const mirt_read_desc second = {1, 0};
    mirt_data read;
    const double before = mib(), busy = cpu();
    double time[4];
    time[0] = now();
    mirt_dataset *photos = open_photos(path, batch);
    if (!photos) return false;
    time[1] = now();
    const double most = mib() - before, spent = cpu() - busy;
    bool good = mirt_dataset_read(photos, 0, NULL, &read) == MIRT_OK;
    if (good) mirt_data_free(&read);
    time[2] = now();
    good = good && mirt_dataset_read(photos, 0, &second, &read) == MIRT_OK;
    if (good) mirt_data_free(&read);
    time[3] = now();
    printf("{\"open\": %.4f, \"cpu\": %.4f, \"mib\": %.1f, \"first\": %.4f, \"again\": %.4f}\n", time[1] - time[0], spent, most,
           time[2] - time[1], time[3] - time[2]);
    mirt_dataset_destroy(photos);
    return good;
}

static bool rate(mirt_strategy *strategy, const char *path, int batch) {
    mirt_dataset *photos = open_photos(path, batch);
    if (photos) photos = mirt_distribute(strategy, photos);
    const bool good = answer("mirrortrain", NULL, photos);
    mirt_dataset_destroy(photos);
    return good;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    mirt_strategy *strategy = mirt_strategy_create(NULL);
    const bool opens = strcmp(argv[1], "open") == 0;
    const bool good = strategy && (opens ? open_once(argv[2], atoi(argv[3])) : rate(strategy, argv[2], atoi(argv[3])));
    if (!good) fprintf(stderr, "%s\n", mirt_last_error());
    mirt_strategy_destroy(strategy);
    return !good;
}
