// cc -O2 examples/ai_or_not.c -o ai_or_not -lm -lpthread
/* Transfer learning: is a picture drawn by a machine or not? A frozen EfficientNetV2, augmentation inside the model,
   and a head of one unit.

       ./ai_or_not [DIR] [WEIGHTS] [NETWORK] [DEVICES]

   DIR has a directory of pictures for each of two classes, or train/ and validation/ (or val/) with these. Without it,
   or where it is "", the library draws small pictures. WEIGHTS is a .safetensors file for NETWORK without its top, as
   tools/fetch_weights.py makes. NETWORK is the tutorial's efficientnet_v2_m where WEIGHTS is given, otherwise the small
   efficientnet_v2_b0. DEVICES is as for mirt_mirrored: "2" splits the cores in two. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>

enum { BATCH = 32, EPOCHS = 10, COPIES = 12 };
static const mirt_augmentation changes[] = {
    {.kind = MIRT_RANDOM_FLIP, .mode = MIRT_FLIP_HORIZONTAL_AND_VERTICAL},
    {.kind = MIRT_RANDOM_ROTATION, .factor = {0.2f}},
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

/* The argument, or NULL if it is missing or "". */
static const char *argument(int argc, char **argv, int i) { return argc > i && *argv[i] ? argv[i] : NULL; }

/* Decodes images once and caches them as bytes. */
static void open_data(const char *dir, int size, mirt_dataset **train, mirt_dataset **test) {
    *train = *test = NULL;
    if (dir) {
        mirt_image_datasets_from_directory(dir, &(mirt_image_directory_desc){.height = size, .width = size,
            .label_mode = MIRT_LABELS_BINARY, .batch_size = MIRT_NO_BATCH, .has_seed = true, .seed = 1,
            .validation_split = 0.2, .dtype = MIRT_UINT8}, train, test);
    } else {
        *train = mirt_drawn_photos(64, size, size, 1, MIRT_TRAIN);
        *test = mirt_drawn_photos(32, size, size, 1, MIRT_TEST);
    }
    *train = mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(*train), 10000), BATCH), MIRT_AUTOTUNE);
    *test = mirt_batch(mirt_cache(*test), BATCH);
}

/* Augments the first picture of the first batch twelve times. Keras: for images, _ in train.take(1). */
static bool save_sheet(mirt_dataset *train, const char *path) {
    mirt_data batch;
    const mirt_array no_labels = {0};
    if (mirt_dataset_read(train, 0, NULL, &batch) != MIRT_OK) return false;
    mirt_array first = batch.x[0];
    first.shape.dim[0] = 1;
    mirt_dataset *copies = mirt_augment(mirt_repeat(mirt_arrays(first, no_labels), COPIES), changes, CHANGES);
    bool good = copies && mirt_save_grid(path, copies, 3, 4) == MIRT_OK;
    mirt_dataset_destroy(copies);
    mirt_data_free(&batch);
    return good;
}

static mirt_model *build(mirt_strategy *strategy, const char *network, const char *weights, int size) {
    mirt_model *extractor = mirt_application(strategy, network, &(mirt_application_desc){.size = size, .no_top = true,
        .weights = weights, .name = "extractor"});
    mirt_model *model = mirt_model_create(strategy, "ai_or_not");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(size, size, 3));
    for (int i = 0; i < CHANGES; i++) x = mirt_augmentation_layer(x, &changes[i]); /* only in training */
    x = mirt_global_average_pool2d(mirt_call(extractor, x, MIRT_TRAINING_OFF));
    x = mirt_dense(mirt_dropout(x, 0.2f), &(mirt_dense_desc){.units = 1, .activation = MIRT_SIGMOID});
    mirt_model_output(model, x);
    mirt_set_trainable(model, "extractor", false);
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f), .loss = MIRT_BINARY_CROSSENTROPY,
        .metrics = {MIRT_BINARY_ACCURACY}});
    return model;
}

static int fail(void) { return fprintf(stderr, "%s\n", mirt_last_error()), 1; }

int main(int argc, char **argv) {
    const char *dir = argument(argc, argv, 1), *weights = argument(argc, argv, 2), *network = argument(argc, argv, 3);
    const int size = dir ? 224 : 48;
    mirt_dataset *train, *test;
    if (!network) network = weights ? "efficientnet_v2_m" : "efficientnet_v2_b0";
    mirt_strategy *strategy = mirt_mirrored(argument(argc, argv, 4));
    printf("network: %s\nreplicas: %d\n", network, mirt_num_replicas(strategy));
    if (mirt_num_replicas(strategy) == 1)
        printf("One replica: all cores are one device. DEVICES \"2\" makes two: ./ai_or_not \"%s\" \"\" \"\" 2\n",
            dir ? dir : "");
    open_data(dir, size, &train, &test);
    if (!train || !test || !save_sheet(train, "augmented.png")) return fail();
    printf("augmented.png: one picture, augmented twelve times\n");

    mirt_model *model = build(strategy, network, weights, size);
    const char *summary = mirt_summary(model, BATCH);
    if (summary) printf("%s\n", summary);
    mirt_history *history = mirt_fit(model, train, &(mirt_fit_desc){.epochs = EPOCHS, .validation = test});
    if (!history || mirt_save(model, "ai_or_not.safetensors", MIRT_SAVE_ALL) != MIRT_OK) return fail();
    printf("validation accuracy %.4f; now try: mirrortrain predict --load ai_or_not.safetensors PICTURE...\n",
        mirt_history_last(history, "val_binary_accuracy"));
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return 0;
}
