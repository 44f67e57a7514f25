/* Batches of photographs, made and thrown away: pipeline DIRECTORY SIZE BATCH [AUGMENTATION]; or with "train" as AUGMENTATION MobileNetV2 1.0
   is trained on them. A line says that it is ready; then, for every line with a number of seconds, whole epochs for at least as long. */
#define _POSIX_C_SOURCE 200809L
#include "../mirrortrain.h"

#include <stdlib.h>
#include <string.h>

#include "photos.h"

static mirt_dataset *open_photos(char **argv, int argc) {
    mirt_image_directory_desc desc;
    mirt_augmentation list[16];
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = atoi(argv[2]);
    desc.batch_size = MIRT_NO_BATCH;
    desc.no_shuffle = true;
    desc.dtype = MIRT_UINT8;
    desc.label_mode = MIRT_LABELS_BINARY;
    mirt_dataset *photos = mirt_shuffle(mirt_image_dataset_from_directory(argv[1], &desc), 10000);
    int count = argc > 4 && strcmp(argv[4], "train") != 0 ? mirt_parse_augmentation(argv[4], list, 16) : 0;
    if (count > 0) photos = mirt_augment(photos, list, count);
    return mirt_prefetch(mirt_batch(photos, atoi(argv[3])), MIRT_AUTOTUNE);
}

static mirt_model *make_network(mirt_strategy *strategy, int size) {
    mirt_application_desc desc;
    mirt_compile_desc compile;
    mirt_dense_desc last;
    memset(&desc, 0, sizeof desc);
    memset(&compile, 0, sizeof compile);
    memset(&last, 0, sizeof last);
    desc.size = size;
    desc.no_top = true;
    desc.pooling = MIRT_POOLING_AVG;
    desc.preprocessing = MIRT_PREPROCESSING_ON;
    mirt_model *base = mirt_mobilenet_v2(strategy, &desc), *model = mirt_model_create(strategy, "photographs");
    if (!base || !model) return NULL;
    last.units = 1;
    last.activation = MIRT_SIGMOID;
    mirt_model_output(model, mirt_dense(mirt_call(base, mirt_input(model, MIRT_SHAPE(size, size, 3)), MIRT_TRAINING_AUTO), &last));
    compile.loss = MIRT_BINARY_CROSSENTROPY;
    compile.optimizer = mirt_adam(1e-4f);
    return mirt_compile(model, &compile) == MIRT_OK ? model : NULL;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    mirt_strategy *strategy = mirt_strategy_create(NULL);
    const bool trains = argc > 4 && strcmp(argv[4], "train") == 0;
    mirt_model *model = strategy && trains ? make_network(strategy, atoi(argv[2])) : NULL;
    mirt_dataset *photos = strategy ? open_photos(argv, argc) : NULL;
    if (!trains && photos) photos = mirt_distribute(strategy, photos);
#ifdef MIRRORTRAIN_TURBOJPEG
    const char *name = "mirrortrain, TurboJPEG";
#else
    const char *name = "mirrortrain";
#endif
    const bool good = (!trains || model) && answer(name, model, photos);
    if (!good) fprintf(stderr, "%s\n", mirt_last_error());
    mirt_dataset_destroy(photos);
    mirt_strategy_destroy(strategy);
    return !good;
}
