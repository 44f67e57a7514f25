// cc -O2 examples/cats_vs_dogs.c -o cats_vs_dogs -lm -lpthread
/* Fine-tuning MobileNetV2 on photographs of cats and dogs, on one device and on several: all layers are
   trained, under a new head, at a learning rate that rises and then falls.

       ./cats_vs_dogs [DIR] [WEIGHTS] [DEVICES]

   DIR has a directory of photographs for each of two classes; without it the library draws small ones. WEIGHTS is a
   .safetensors file for MobileNetV2 of width 0.35 without its top, as tools/fetch_weights.py makes: photographs
   then need few epochs. DEVICES: "2" splits the cores in two, which is the default. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>

typedef struct plan {
    const char *dir, *weights;
    int size, epochs, batch; /* of images; of one device */
} plan;

/* Up for two epochs, then down by a third each; `user` is the peak. Keras: LearningRateScheduler. */
static float ramp(int epoch, float rate, void *user) {
    float peak = *(const float *)user;
    (void)rate;
    for (int e = 2; e < epoch; e++) peak *= 2.0f / 3;
    return epoch < 2 ? peak * (float)(epoch + 1) / 3 : peak;
}

static mirt_model *build(mirt_strategy *strategy, const plan *p) {
    mirt_model *base = mirt_mobilenet_v2(strategy, &(mirt_application_desc){.size = p->size, .alpha = 0.35f, .no_top = true,
        .pooling = MIRT_POOLING_AVG, .preprocessing = MIRT_PREPROCESSING_ON, .weights = p->weights, .name = "base"});
    mirt_model *model = mirt_model_create(strategy, "cats_vs_dogs");
    mirt_tensor *x = mirt_call(base, mirt_input(model, MIRT_SHAPE(p->size, p->size, 3)), MIRT_TRAINING_AUTO);
    x = mirt_dense(x, &(mirt_dense_desc){.units = 512, .activation = MIRT_RELU});
    x = mirt_dropout(x, 0.5f);
    mirt_model_output(model, mirt_dense(x, &(mirt_dense_desc){.units = 1, .activation = MIRT_SIGMOID}));
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-4f), .loss = MIRT_BINARY_CROSSENTROPY,
        .metrics = {MIRT_ACCURACY}}); /* which takes what is above a half for dogs: not for logits */
    return model;
}

/* Decoded once and then kept; a fifth is for validation. */
static void open_data(const plan *p, int batch, mirt_dataset **train, mirt_dataset **test) {
    if (p->dir) {
        mirt_image_datasets_from_directory(p->dir, &(mirt_image_directory_desc){.height = p->size, .width = p->size,
            .label_mode = MIRT_LABELS_BINARY, .batch_size = MIRT_NO_BATCH, .has_seed = true, .seed = 1, .validation_split = 0.2,
            .dtype = MIRT_UINT8, .corrupt = MIRT_CORRUPT_SKIP}, train, test);
    } else {
        *train = mirt_drawn_photos(96, p->size, p->size, 1, MIRT_TRAIN);
        *test = mirt_drawn_photos(32, p->size, p->size, 1, MIRT_TEST);
    }
    *train = mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(*train), 10000), batch), MIRT_AUTOTUNE);
    *test = mirt_batch(mirt_cache(*test), batch);
}

/* Trains on these devices; seconds in *seconds and validation accuracy, or -1. */
static double train_on(const char *devices, const plan *p, double *seconds) {
    mirt_dataset *train = NULL, *test = NULL;
    mirt_strategy *strategy = mirt_mirrored(devices);
    int replicas = mirt_num_replicas(strategy);
    float peak = 1e-4f * (float)replicas; /* as many times the batch, as many times the rate */
    open_data(p, p->batch * replicas, &train, &test);
    mirt_history *history = !test ? NULL : mirt_fit(build(strategy, p), train, &(mirt_fit_desc){.epochs = p->epochs, .validation = test,
        .learning_rate = ramp, .learning_rate_user = &peak});
    double accuracy = history ? mirt_history_last(history, "val_accuracy") : -1;
    *seconds = history ? history->seconds : 0;
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return accuracy;
}

int main(int argc, char **argv) {
    plan p = {.dir = argc > 1 ? argv[1] : NULL, .weights = argc > 2 ? argv[2] : NULL};
    const char *devices[] = {"1", argc > 3 ? argv[3] : "2"};
    double seconds[2], accuracy[2];
    p.size = p.dir ? 224 : 48;
    p.epochs = p.dir ? 6 : 2;
    p.batch = p.dir ? 32 : 8;
    for (int i = 0; i < 2; i++) {
        accuracy[i] = train_on(devices[i], &p, &seconds[i]);
        if (accuracy[i] >= 0) continue;
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("\ndevices  seconds  speed-up  validation accuracy\n");
    for (int i = 0; i < 2; i++) printf("%-7s %8.2f %9.2f %20.4f\n", devices[i], seconds[i], seconds[0] / seconds[i], accuracy[i]);
    return 0;
}
