// cc -O2 examples/two_models.c -o two_models -lm -lpthread
/* Trains two different models at once, each on its own core. A convnet runs on cpu:0 and a multilayer perceptron on
   cpu:1, in two threads of this program. Strategies share nothing, so the weights are bit-identical to those of
   training one after the other; the program compares.

       ./two_models [DIR]        DIR holds the files of MNIST; without it the library draws digits */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct job {
    const char *name, *device, *dir;
    mirt_tensor *(*record)(mirt_tensor *pixels);
    float *weights; /* all weights, after training */
    size_t count;
    double accuracy, seconds;
    char error[256]; /* each thread has its own error text */
} job;

static mirt_tensor *convnet(mirt_tensor *x) {
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 16, .kernel = {3, 3}, .no_bias = true});
    x = mirt_activation(mirt_batch_norm(x, NULL), MIRT_RELU);
    x = mirt_flatten(mirt_max_pool2d(x, NULL));
    return mirt_dense(x, &(mirt_dense_desc){.units = 10});
}

static mirt_tensor *perceptron(mirt_tensor *x) {
    x = mirt_dense(mirt_flatten(x), &(mirt_dense_desc){.units = 256, .activation = MIRT_GELU});
    return mirt_dense(mirt_dropout(x, 0.2f), &(mirt_dense_desc){.units = 10});
}

static int copy_weights(job *j, mirt_model *model) {
    mirt_weight_info w;
    for (int i = 0; i < mirt_num_weights(model); i++) {
        mirt_weight(model, i, &w);
        float *more = (float *)realloc(j->weights, (j->count + (size_t)w.count) * sizeof *more);
        if (!more) return 1;
        j->weights = more;
        if (mirt_get_weight(model, w.name, 0, more + j->count, (size_t)w.count) != MIRT_OK) return 1;
        j->count += (size_t)w.count;
    }
    return 0;
}

/* Here one thread creates, uses and destroys a strategy, its data and its model; they could also be passed to another
   thread. */
static void *train(void *arg) {
    job *j = (job *)arg;
    mirt_strategy *strategy = mirt_strategy_create(&(mirt_strategy_desc){.devices = j->device, .silent = true});
    mirt_dataset *data = j->dir ? mirt_mnist(j->dir, MIRT_TRAIN) : mirt_drawn_digits(4000, 0, MIRT_TRAIN);
    data = mirt_batch(mirt_shuffle(mirt_cache(data), 4000), 64);
    mirt_model *model = mirt_model_create(strategy, j->name);
    mirt_model_output(model, j->record(mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0)));
    mirt_compile(model, &(mirt_compile_desc){.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true,
        .metrics = {MIRT_ACCURACY}});
    mirt_history *history = mirt_fit(model, data, &(mirt_fit_desc){.epochs = 2});
    if (!history || copy_weights(j, model) != 0) snprintf(j->error, sizeof j->error, "%s", mirt_last_error());
    else j->accuracy = mirt_history_last(history, "accuracy"), j->seconds = history->seconds;
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(strategy);
    return NULL;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : NULL, *second = mirt_devices(NULL, 0) > 1 ? "cpu:1" : "cpu:0";
    if (strcmp(second, "cpu:0") == 0) printf("this machine has one core: the two models share it\n");
    job job_of[4] = {{.name = "convnet", .device = "cpu:0", .dir = dir, .record = convnet},
                     {.name = "perceptron", .device = second, .dir = dir, .record = perceptron}};
    job_of[2] = job_of[0], job_of[3] = job_of[1];

    double began = seconds();
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) if (pthread_create(&thread[i], NULL, train, &job_of[i]) != 0) return 1;
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    double together = seconds() - began;
    began = seconds();
    for (int i = 2; i < 4; i++) train(&job_of[i]); /* alone, one after the other */
    double alone = seconds() - began;

    int different = 0;
    for (int i = 0; i < 4; i++) {
        const job *j = &job_of[i];
        printf("%-10s on %s, %s: accuracy %.4f in %.2f s%s%s\n", j->name, j->device,
               i < 2 ? "next to the other" : "alone", j->accuracy, j->seconds, *j->error ? ": " : "", j->error);
        different += *j->error || j->count != job_of[i % 2].count ||
                     memcmp(j->weights, job_of[i % 2].weights, j->count * sizeof *j->weights) != 0;
    }
    printf("both at once %.2f s, one after the other %.2f s; ", together, alone);
    printf(different ? "the weights differ\n" : "the same weights, bit for bit\n");
    for (int i = 0; i < 4; i++) free(job_of[i].weights);
    return different ? 1 : 0;
}
