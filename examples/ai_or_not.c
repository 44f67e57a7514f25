// cc -O2 examples/ai_or_not.c -o ai_or_not -lm -lpthread
/* Transfer learning: is a picture drawn by a machine or not? A frozen EfficientNetV2, pictures augmented inside of the
   model, and a head of one unit.

       ./ai_or_not [DIR] [WEIGHTS] [NETWORK]

   DIR has train/ and validation/ (or val/), with a directory of pictures for each of two classes; without it the library
   draws small ones.
   WEIGHTS is a .safetensors file for NETWORK without its top, as tools/fetch_weights.py makes. NETWORK: efficientnet_v2_b0,
   which small machines can do, or the tutorial's efficientnet_v2_m. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <unistd.h>

enum { BATCH = 32 };
static const mirt_augmentation changes[] = {
    {.kind = MIRT_RANDOM_FLIP},
    {.kind = MIRT_RANDOM_ROTATION, .factor = {0.2f}},
    {.kind = MIRT_RANDOM_ZOOM, .height_factor = {0.2f}},
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

static mirt_dataset *pictures(const char *dir, const char *part, int size) {
    char path[4096];
    if (!dir) return mirt_drawn_photos(part[0] == 't' ? 64 : 32, size, size, 1, part[0] == 't' ? MIRT_TRAIN : MIRT_TEST);
    snprintf(path, sizeof path, "%s/val", dir);
    if (part[0] == 't' || access(path, F_OK) != 0) snprintf(path, sizeof path, "%s/%s", dir, part);
    return mirt_image_dataset_from_directory(path, &(mirt_image_directory_desc){.height = size, .width = size,
        .label_mode = MIRT_LABELS_BINARY, .batch_size = MIRT_NO_BATCH, .no_shuffle = true, .dtype = MIRT_UINT8});
}

static mirt_model *build(mirt_strategy *strategy, const char *network, const char *weights, int size) {
    mirt_model *extractor = mirt_application(strategy, network, &(mirt_application_desc){.size = size, .no_top = true,
        .weights = weights, .name = "extractor"});
    mirt_model *model = mirt_model_create(strategy, "ai_or_not");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(size, size, 3));
    for (int i = 0; i < CHANGES; i++) x = mirt_augmentation_layer(x, &changes[i]); /* in training alone, resampled once */
    x = mirt_call(extractor, x, MIRT_TRAINING_OFF);
    x = mirt_global_average_pool2d(x);
    x = mirt_dropout(x, 0.2f);
    mirt_model_output(model, mirt_dense(x, &(mirt_dense_desc){.units = 1, .activation = MIRT_SIGMOID}));
    mirt_set_trainable(model, "extractor", false);
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f), .loss = MIRT_BINARY_CROSSENTROPY, .metrics = {MIRT_ACCURACY}});
    return model;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : NULL, *weights = argc > 2 ? argv[2] : NULL;
    const char *network = argc > 3 ? argv[3] : "efficientnet_v2_b0";
    const int size = dir ? 224 : 48;
    mirt_strategy *strategy = mirt_mirrored(NULL);
    printf("replicas: %d\n", mirt_num_replicas(strategy));

    mirt_dataset *train = mirt_cache(pictures(dir, "train", size)), *test = mirt_cache(pictures(dir, "validation", size));
    if (!train || !test) { /* training without validation data is nothing wrong to mirt_fit */
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    mirt_dataset *sheet = mirt_augment(mirt_take(pictures(dir, "train", size), 12), changes, CHANGES);
    if (!sheet || mirt_save_grid("augmented.png", sheet, 3, 4) != MIRT_OK) fprintf(stderr, "%s\n", mirt_last_error());
    else printf("augmented.png: twelve pictures as training sees them\n");
    train = mirt_prefetch(mirt_batch(mirt_shuffle(train, 10000), BATCH), MIRT_AUTOTUNE);
    test = mirt_batch(test, BATCH);

    mirt_model *model = build(strategy, network, weights, size);
    const char *summary = mirt_summary(model, BATCH);
    if (summary) printf("%s\n", summary);
    mirt_history *history = mirt_fit(model, train, &(mirt_fit_desc){.epochs = dir ? 10 : 2, .validation = test});
    if (!history || mirt_save(model, "ai_or_not.safetensors", MIRT_SAVE_ALL) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("validation accuracy %.4f; now try: mirrortrain predict --load ai_or_not.safetensors PICTURE...\n",
        mirt_history_last(history, "val_accuracy"));
    mirt_dataset_destroy(sheet);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return 0;
}
