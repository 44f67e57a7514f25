// cc -O2 examples/custom_loop.c -o custom_loop -lm -lpthread
/* A custom training loop, as in TensorFlow's tutorial "Custom training with tf.distribute". It has a distributed data
   set, a step that every replica runs on its share of the batch, and a loss that is reduced over all replicas. The step
   is recorded once and replayed, so it is as fast as fit and gives bit-identical weights: this program runs both and
   compares.

       ./custom_loop [DIR] [DEVICES]

   DIR holds the files of MNIST; without it the library draws digits. DEVICES is passed to mirt_mirrored. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EPOCHS = 3, BATCH = 64 };

/* The step, recorded by running this once. Keras: the function traced by tf.function and run by strategy.run. */
static bool step_body(mirt_function *f, void *user) {
    mirt_tensor *images = mirt_function_x(f, 0);
    mirt_tensor *labels = mirt_cast(mirt_function_y(f, 0), MIRT_INT32);
    mirt_tensor *logits = mirt_call((mirt_model *)user, images, MIRT_TRAINING_ON);
    /* One value per sample. The library divides by the actual global batch, so there is no scaling by replicas. */
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, labels, logits);
    mirt_minimize(f, loss); /* gradients, their sum over all replicas, and the optimizer */
    mirt_function_result(f, "loss", loss);
    mirt_function_result(f, "right", mirt_cast(mirt_equal(mirt_argmax(logits, 1), labels), MIRT_FLOAT32));
    return true; /* mirt_function_create returns any error from above */
}

static mirt_model *digits_model(mirt_strategy *strategy) {
    mirt_model *model = mirt_model_create(strategy, "digits");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 32, .kernel = {3, 3}, .activation = MIRT_RELU});
    x = mirt_dropout(mirt_flatten(mirt_max_pool2d(x, NULL)), 0.2f);
    x = mirt_dense(x, &(mirt_dense_desc){.units = 64, .activation = MIRT_RELU});
    mirt_model_output(model, mirt_dense(x, &(mirt_dense_desc){.units = 10}));
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f),
        .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true, .metrics = {MIRT_ACCURACY}});
    return model;
}

static mirt_dataset *digits_data(const char *dir) {
    mirt_dataset *data = dir ? mirt_mnist(dir, MIRT_TRAIN) : mirt_drawn_digits(6000, 0, MIRT_TRAIN);
    return mirt_batch(mirt_shuffle(mirt_cache(data), 10000), BATCH);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Trains with a loop; returns images per second, or 0. */
static double train_by_loop(mirt_strategy *strategy, mirt_model *model, const char *dir) {
    mirt_dataset *data = mirt_distribute(strategy, digits_data(dir));
    mirt_function *step = mirt_function_create(model, data, step_body, model);
    double spent = 0, images = 0;
    bool good = step != NULL;
    for (int epoch = 0; good && epoch < EPOCHS; epoch++) {
        double total = 0, right = 0, loss, hits, began = seconds();
        int64_t rows = 0;
        mirt_global_batch batch;
        for (;;) {
            good = mirt_dataset_next(data, &batch) == MIRT_OK;
            if (!good || batch.rows == 0) break; /* the epoch is over */
            good = mirt_function_run(step, &batch) == MIRT_OK &&
                   mirt_reduce(step, "loss", MIRT_REDUCE_MEAN, &loss, 1) == MIRT_OK &&
                   mirt_reduce(step, "right", MIRT_REDUCE_SUM, &hits, 1) == MIRT_OK;
            if (!good) break;
            total += loss * (double)batch.rows;
            right += hits;
            rows += batch.rows;
        }
        spent += seconds() - began;
        images += (double)rows;
        if (good)
            printf("loop, epoch %d: loss %.4f, accuracy %.4f\n", epoch + 1, total / (double)rows, right / (double)rows);
    }
    mirt_function_destroy(step);
    mirt_dataset_destroy(data);
    return good ? images / spent : 0;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : NULL;
    mirt_strategy *strategy = mirt_mirrored(argc > 2 ? argv[2] : "2");
    mirt_model *by_loop = digits_model(strategy), *by_fit = digits_model(strategy);

    double loop_speed = train_by_loop(strategy, by_loop, dir);
    mirt_dataset *data = digits_data(dir);
    mirt_history *history = loop_speed > 0 ? mirt_fit(by_fit, data, &(mirt_fit_desc){.epochs = EPOCHS}) : NULL;
    if (!history) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("loop: %.0f images/s, fit: %.0f images/s\n", loop_speed, history->images_per_second);

    int different = 0;
    for (int i = 0; i < mirt_num_weights(by_fit); i++) {
        mirt_weight_info weight;
        mirt_weight(by_fit, i, &weight);
        size_t count = (size_t)weight.count;
        float *both = (float *)calloc(2 * count, sizeof *both);
        if (!both || mirt_get_weight(by_fit, weight.name, 0, both, count) != MIRT_OK ||
            mirt_get_weight(by_loop, weight.name, 0, both + count, count) != MIRT_OK) return 1;
        different += memcmp(both, both + count, count * sizeof *both) != 0;
        free(both);
    }
    printf(different ? "%d weights differ\n" : "all weights are equal, bit for bit\n", different);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(strategy);
    return different ? 1 : 0;
}
