// cc -O2 examples/resnet50_directory.c -o resnet50_directory -lm -lpthread
/* Trains ResNet50 from scratch on a directory of photographs, mirrored over the machine's devices.

       ./resnet50_directory [DIR] [EPOCHS] [DEVICES]

   DIR has a directory of photographs for each class, of which a third is for validation, or train/ and validation/ with
   these. If it is missing or "", the library draws small photographs of two classes. DEVICES is passed to
   mirt_mirrored: "2" splits the cores in two. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH_PER_REPLICA = 16 };

/* Labels are one-hot; pixels use nearest interpolation, float32 from 0 to 255 as always. */
static void open_data(const char *dir, int size, mirt_dataset **train, mirt_dataset **test) {
    *train = *test = NULL;
    if (dir) {
        mirt_image_datasets_from_directory(dir, &(mirt_image_directory_desc){.height = size, .width = size,
            .label_mode = MIRT_LABELS_CATEGORICAL, .interpolation = MIRT_NEAREST, .batch_size = MIRT_NO_BATCH,
            .has_seed = true, .seed = 123, .validation_split = 0.33, .corrupt = MIRT_CORRUPT_SKIP}, train, test);
    } else {
        *train = mirt_drawn_photos(48, size, size, 1, MIRT_TRAIN);
        *test = mirt_drawn_photos(16, size, size, 1, MIRT_TEST);
    }
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 && *argv[1] ? argv[1] : NULL;
    const int size = dir ? 224 : 32, epochs = argc > 2 ? atoi(argv[2]) : 2;
    if (epochs < 1) return fprintf(stderr, "EPOCHS is \"%s\"; it must be a positive number, such as 10\n", argv[2]), 2;
    mirt_strategy *strategy = mirt_mirrored(argc > 3 ? argv[3] : NULL);
    const int batch = BATCH_PER_REPLICA * mirt_num_replicas(strategy); /* a batch is always the global batch */
    printf("replicas: %d\n", mirt_num_replicas(strategy));
    if (mirt_num_replicas(strategy) == 1)
        printf("One replica: all cores are one device. DEVICES \"2\" makes two: ./resnet50_directory \"%s\" %d 2\n",
            dir ? dir : "", epochs);

    mirt_dataset *train, *test;
    open_data(dir, size, &train, &test);
    int classes = 0;
    const char *const *names = mirt_class_names(train, &classes);
    for (int i = 0; i < classes; i++) printf("class %d: %s\n", i, names[i]);
    train = mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(train), 10000), batch), MIRT_AUTOTUNE);
    test = mirt_prefetch(mirt_batch(mirt_cache(test), batch), MIRT_AUTOTUNE);

    mirt_model *model = mirt_resnet50(strategy, &(mirt_application_desc){.size = size, .classes = classes,
        .preprocessing = MIRT_PREPROCESSING_ON});
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f), .metrics = {MIRT_ACCURACY},
        .loss = dir ? MIRT_CATEGORICAL_CROSSENTROPY : MIRT_SPARSE_CATEGORICAL_CROSSENTROPY}); /* drawn: class numbers */
    mirt_history *history = mirt_fit(model, train, &(mirt_fit_desc){.epochs = epochs, .validation = test});
    mirt_logs logs;
    if (!history || mirt_evaluate(model, test, &logs) != MIRT_OK) { /* reports any error from above */
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("%.1f photographs per second; validation: %s %.4f, %s %.4f\n", history->images_per_second, logs.name[0],
        logs.value[0], logs.name[1], logs.value[1]);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return 0;
}
