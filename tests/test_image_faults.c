/* Each allocation for photographs fails once. The call reports it, nothing leaks, and no image counts as corrupt. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_NO_THREADS
#include "failing_malloc.h"
#define MIRRORTRAIN_MALLOC(size) hook_malloc(size)
#define MIRRORTRAIN_FREE(block) hook_free(block)
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/images.h"
#include "image_util.h"
#include "tar_util.h"
#include "tap.h"

#include <sys/stat.h>
#include <unistd.h>

static char directory[512], csv[560], shards[560];

static mirt_status run_decode(int which) {
    static unsigned char file[IMAGE_MOST];
    mirt_image image;
    size_t size = image_unhex(golden_files[which].file, file);
    mirt_status status =
        mirt_decode_image(file, size, golden_files[which].channels == 1 ? MIRT_GRAYSCALE : MIRT_RGB, NULL, &image);
    mirt_image_free(&image);
    return status;
}

static mirt_status run_dataset(int which) {
    mirt_image_directory_desc desc;
    mirt__batch batch;
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = 4;
    desc.batch_size = 2;
    desc.has_seed = true;
    desc.corrupt = MIRT_CORRUPT_SKIP;
    mirt_dataset *dataset =
        which == 2   ? mirt_tar_dataset(shards, &desc)
        : which == 1 ? mirt_image_dataset_from_csv(csv, &desc)
                     : mirt_image_dataset_from_directory(directory, &desc);
    if (!dataset) return mirt_last_status();
    mirt_status status = mirt__dataset_begin(dataset, 0, 0);
    while (status == MIRT_OK && (status = mirt__dataset_next(dataset, &batch)) == MIRT_OK && batch.rows) continue;
    if (mirt_corrupt_images(dataset, NULL, NULL) > 1) status = MIRT_E_FORMAT; /* one is */
    mirt_dataset_destroy(dataset);
    return status;
}

static mirt_status run_verify(int which) {
    int64_t images, corrupt;
    (void)which;
    return mirt_verify_images(directory, NULL, NULL, NULL, &images, &corrupt);
}

/* Two shards: a long name in a pax header, and a photograph without bytes. */
static void write_shards(void) {
    static unsigned char file[IMAGE_MOST];
    static tar_bytes tar;
    char path[600];
    snprintf(shards, sizeof shards, "%s/{0..1}.tar", directory);
    for (int i = 0; i < 2; i++) {
        tar.size = 0;
        tar_pax(&tar, "path", "a/long/name.bmp");
        tar_add(&tar, "a.bmp", file, i ? 0 : image_write_bmp(file, 5, 6), '0');
        tar_text(&tar, "a/long/name.cls", i ? "1" : "0");
        tar_add(&tar, "b.bmp", file, image_write_bmp(file, 3, 2), '0');
        tar_text(&tar, "b.cls", "1");
        tar_end(&tar);
        snprintf(path, sizeof path, "%s/%d.tar", directory, i);
        image_write_file(path, tar.data, tar.size);
    }
}

static void fail_each(const char *name, mirt_status (*run)(int), int which) {
    long before = live_blocks, wrong = 0;
    fails = allocations = 0;
    mirt_status status = run(which);
    long count = allocations;
    wrong += status != MIRT_OK || live_blocks != before;
    for (long k = 1; k <= count; k++) {
        allocations = 0;
        fails = k;
        status = run(which);
        if (status != MIRT_E_NOMEM || live_blocks != before) {
            if (!wrong++)
                printf("# allocation %ld: %s, %ld blocks left: %s\n", k, mirt_status_text(status), live_blocks - before,
                       mirt_last_error());
            before = live_blocks;
        }
    }
    fails = 0;
    ok(wrong == 0, "%s: each of %ld allocations may fail", name, count);
}

int main(void) {
    static unsigned char file[IMAGE_MOST];
    char path[600];
    mirt_decode_desc desc;
    memset(&desc, 0, sizeof desc);
    if (mirt__decoder_missing(&desc)) {
        skip("%s", mirt_last_error());
        return done_testing();
    }
    for (int i = 0; i < MIRT__COUNT(golden_files); i++) fail_each(golden_files[i].name, run_decode, i);
    snprintf(directory, sizeof directory, "%s/mirt_image_faults_%ld", tap_tmpdir(), (long)getpid());
    snprintf(csv, sizeof csv, "%s/list.csv", directory);
    mkdir(directory, 0777);
    snprintf(path, sizeof path, "%s/a", directory);
    mkdir(path, 0777);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/a/%d.bmp", directory, i);
        image_write_file(path, file, i == 1 ? 0 : image_write_bmp(file, 5, 6));
    }
    image_write_file(csv, "a/0.bmp,x\na/1.bmp,y\na/2.bmp,y\n", 30);
    fail_each("a directory", run_dataset, 0);
    fail_each("a list", run_dataset, 1);
    write_shards();
    fail_each("shards", run_dataset, 2);
    fail_each("verifying", run_verify, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/a/%d.bmp", directory, i);
        unlink(path);
    }
    unlink(csv);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d.tar", directory, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/a", directory);
    rmdir(path);
    rmdir(directory);
    return done_testing();
}
