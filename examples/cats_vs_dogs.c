// cc -O2 examples/cats_vs_dogs.c -o cats_vs_dogs -lm -lpthread
/* Fine-tunes MobileNetV2 on photographs of cats and dogs, on one device and on several. All layers are trained with a
   new head, at a learning rate that rises for five epochs and then decays.

       ./cats_vs_dogs [DIR] [WEIGHTS] [DEVICES] [ALPHA]

   DIR has a directory of photographs for each of two classes, or train/ and validation/ with these. If it is missing or
   "", the library draws small pictures. WEIGHTS is a .safetensors file for MobileNetV2 of width ALPHA without its top,
   made by tools/fetch_weights.py. DEVICES: "2", the default, splits the cores in two. ALPHA: default 1, as in the
   tutorial; 0.35 is the smallest width with pretrained weights. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>

enum { EPOCHS = 10 };

typedef struct plan {
    const char *dir, *weights;
    float alpha;
    int size, batch; /* size of images; batch per replica */
} plan;

static mirt_model *build(mirt_strategy *strategy, const plan *p) {
    mirt_model *extractor = mirt_mobilenet_v2(strategy, &(mirt_application_desc){.size = p->size, .alpha = p->alpha,
        .no_top = true, .preprocessing = MIRT_PREPROCESSING_ON, .weights = p->weights, .name = "extractor"});
    mirt_model *model = mirt_model_create(strategy, "cats_vs_dogs");
    mirt_tensor *x = mirt_call(extractor, mirt_input(model, MIRT_SHAPE(p->size, p->size, 3)), MIRT_TRAINING_AUTO);
    x = mirt_dense(mirt_global_average_pool2d(x), &(mirt_dense_desc){.units = 512, .activation = MIRT_RELU});
    mirt_model_output(model, mirt_dense(mirt_dropout(x, 0.5f), &(mirt_dense_desc){.units = 1})); /* a logit */
    /* A logit above 0 means a probability above 0.5: accuracy applies the sigmoid first. */
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f), .loss = MIRT_BINARY_CROSSENTROPY,
        .from_logits = true, .metrics = {MIRT_BINARY_ACCURACY},
        .metric_options = {{.from_logits = true, .name = "accuracy"}}});
    return model;
}

/* Uses a fifth for validation, unless DIR is split already. Photographs are decoded once and cached as bytes. */
static void open_data(const plan *p, mirt_dataset **train, mirt_dataset **test) {
    *train = *test = NULL;
    if (p->dir) {
        mirt_image_datasets_from_directory(p->dir, &(mirt_image_directory_desc){.height = p->size, .width = p->size,
            .label_mode = MIRT_LABELS_BINARY, .batch_size = MIRT_NO_BATCH, .has_seed = true, .seed = 1,
            .validation_split = 0.2, .dtype = MIRT_UINT8, .corrupt = MIRT_CORRUPT_SKIP}, train, test);
    } else {
        *train = mirt_drawn_photos(96, p->size, p->size, 1, MIRT_TRAIN);
        *test = mirt_drawn_photos(32, p->size, p->size, 1, MIRT_TEST);
    }
    *train = mirt_cache(*train);
    *test = mirt_cache(*test);
}

static int print_rate(const mirt_event *event, void *user) {
    (void)user;
    printf("Epoch %d: learning rate %g\n", event->epoch + 1, mirt_get_learning_rate(event->model));
    return 0;
}

/* Trains on these devices; returns the validation accuracy and sets *seconds, or returns -1. */
static double train_on(const char *devices, const plan *p, double *seconds) {
    mirt_dataset *train, *test;
    mirt_strategy *strategy = mirt_mirrored(devices);
    const int replicas = mirt_num_replicas(strategy), batch = p->batch * replicas;
    mirt_lr_ramp_desc ramp = {.start = 1e-5f, .max = mirt_scale_learning_rate(strategy, 5e-5f), .min = 1e-5f,
        .ramp_epochs = 5, .sustain_epochs = 0, .decay = 0.8f};
    const mirt_callback print = {.epoch_end = print_rate};
    open_data(p, &train, &test);
    /* The stream is endless, so an epoch is a number of steps, in which each photograph occurs once. */
    const int64_t images = mirt_dataset_size(train), steps = replicas ? (images + batch - 1) / batch : 0;
    train = mirt_prefetch(mirt_batch(mirt_repeat(mirt_shuffle(train, 1024), 0), batch), MIRT_AUTOTUNE);
    test = mirt_batch(test, batch);
    printf("replicas: %d, %lld images, %lld steps of %d per epoch\n", replicas, (long long)images, (long long)steps,
        batch);
    mirt_history *history = !test ? NULL : mirt_fit(build(strategy, p), train, &(mirt_fit_desc){.epochs = EPOCHS,
        .steps_per_epoch = steps, .validation = test, .learning_rate = mirt_lr_ramp, .learning_rate_user = &ramp,
        .callbacks = {&print}});
    double accuracy = history ? mirt_history_last(history, "val_accuracy") : -1;
    *seconds = history ? history->seconds : 0;
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return accuracy;
}

int main(int argc, char **argv) {
    plan p = {.dir = argc > 1 && *argv[1] ? argv[1] : NULL, .weights = argc > 2 && *argv[2] ? argv[2] : NULL};
    const char *devices[] = {"1", argc > 3 && *argv[3] ? argv[3] : "2"};
    double seconds[2], accuracy[2];
    p.alpha = argc > 4 ? (float)atof(argv[4]) : 1;
    p.size = p.dir ? 224 : 48;
    p.batch = p.dir ? 32 : 8;
    for (int i = 0; i < 2; i++) {
        accuracy[i] = train_on(devices[i], &p, &seconds[i]);
        if (accuracy[i] >= 0) continue;
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("\ndevices  seconds  speed-up  validation accuracy\n");
    for (int i = 0; i < 2; i++)
        printf("%-7s %8.2f %9.2f %20.4f\n", devices[i], seconds[i], seconds[0] / seconds[i], accuracy[i]);
    if (!p.dir) printf("No DIR: the pictures are small drawings.\n");
    if (!p.weights)
        printf("No WEIGHTS: the network begins with random weights. For the first thousands of steps the running "
               "averages\n"
               "of batch normalization, with momentum 0.999, are inaccurate: validation accuracy stays near 0.5.\n");
    return 0;
}
