/* Each allocation fails once while images are augmented and written as PNG. They are augmented in a data set and by
   layers, and used by mirt_adapt; failures are reported as MIRT_E_NOMEM, and nothing leaks. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <unistd.h>

enum { ROWS = 6, SIDE = 8 };
static unsigned char pixels[ROWS][SIDE][SIDE][3];
static float targets[ROWS];
static char path[512];

static mirt_dataset *images(void) {
    return mirt_arrays(mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(ROWS, SIDE, SIDE, 3)),
                       mirt_make_array(targets, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1)));
}

static mirt_status in_a_data_set(void) {
    mirt_augmentation list[8];
    mirt_normalization_desc normalization;
    const int count = mirt_parse_augmentation("flip,rotation:0.1,contrast:0.2,zoom:0.2,crop:5", list, 8);
    memset(&normalization, 0, sizeof normalization);
    mirt_dataset *data = mirt_cut_mix(mirt_mix_up(mirt_one_hot_labels(images(), 1), 0), 0, 0);
    data = mirt_augment(mirt_repeat(mirt_augment(data, list, 4), 2), &list[4], count - 4);
    if (!data) return mirt_last_status();
    mirt_status status = mirt_adapt(&normalization, data);
    if (status == MIRT_OK) status = mirt_save_grid(path, data, 3, 4);
    mirt_dataset_destroy(data);
    return status;
}

static mirt_status by_layers(void) {
    mirt_strategy_desc s;
    mirt_compile_desc c;
    mirt_dense_desc dense;
    mirt_augmentation list[8];
    memset(&s, 0, sizeof s);
    memset(&c, 0, sizeof c);
    memset(&dense, 0, sizeof dense);
    s.devices = "1";
    s.threads = 1;
    s.silent = true;
    dense.units = 1;
    c.optimizer = mirt_sgd(0.01f, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_strategy *strategy = mirt_strategy_create(&s);
    if (!strategy) return mirt_last_status();
    mirt_model *model = mirt_model_create(strategy, "faults"), *loaded = NULL;
    const int count =
        mirt_parse_augmentation("flip,rotation:0.1,contrast:0.2,zoom:0.2,crop:5,resizing:7,center_crop:4", list, 8);
    mirt_tensor *x = model ? mirt_input(model, MIRT_SHAPE(SIDE, SIDE, 3)) : NULL;
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    if (model) mirt_model_output(model, mirt_dense(mirt_flatten(x), &dense));
    mirt_status status = model ? mirt_compile(model, &c) : mirt_last_status();
    if (status == MIRT_OK) {
        mirt_dataset *data = mirt_batch(images(), 4);
        if (!data || !mirt_fit(model, data, NULL)) status = mirt_last_status();
        mirt_dataset_destroy(data);
    }
    if (status == MIRT_OK) status = mirt_save(model, path, (mirt_save_flags)0);
    if (status == MIRT_OK && !(loaded = mirt_load(strategy, path))) status = mirt_last_status();
    mirt_strategy_destroy(strategy);
    return status;
}

static void check(const char *name, mirt_status (*run)(void)) {
    long failed = 0, wrong = 0, leaks = 0;
    mirt_status status;
    do {
        allocations = 0;
        fails = ++failed;
        status = run();
        if (allocations < fails) break;
        wrong += status != MIRT_E_NOMEM;
        leaks += live_blocks != 0;
    } while (failed < 5000);
    fails = 0;
    ok(status == MIRT_OK && live_blocks == 0 && failed > 5, "%s: works when nothing fails (%s)", name,
       status == MIRT_OK ? "" : mirt_last_error());
    ok(wrong == 0 && leaks == 0, "%s: each of %ld failing allocations is reported, nothing is lost (%ld, %ld)", name,
       failed - 1, wrong, leaks);
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_augment_faults_%ld", tap_tmpdir(), (long)getpid());
    check("in a data set", in_a_data_set);
    check("by layers", by_layers);
    unlink(path);
    return done_testing();
}
