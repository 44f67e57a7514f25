// cc -O2 examples/mnist.c -o mnist -lm -lpthread
/* The tutorial "Distributed training with Keras" in C: a convnet that reads digits, mirrored over
   the devices of this machine.

       ./mnist [DIR] [DEVICES]

   DIR holds the four files of MNIST, plain or .gz; without it the library draws digits itself.
   DEVICES is as for mirt_mirrored: "2" splits the cores in two. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>

/* Falls in three stairs. Keras: LearningRateScheduler. */
static float decay(int epoch, float rate, void *user) {
    (void)rate, (void)user;
    return epoch < 3 ? 1e-3f : epoch < 7 ? 1e-4f : 1e-5f;
}

static int print_rate(const mirt_event *event, void *user) {
    (void)user;
    printf("epoch %d: learning rate %g\n", event->epoch + 1, mirt_get_learning_rate(event->model));
    return 0; /* anything else would end training here */
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : NULL;
    mirt_strategy *strategy = mirt_mirrored(argc > 2 ? argv[2] : NULL);
    int batch = 64 * mirt_num_replicas(strategy); /* a batch is always the global batch */
    printf("replicas: %d, global batch: %d\n", mirt_num_replicas(strategy), batch);

    mirt_dataset *train = dir ? mirt_mnist(dir, MIRT_TRAIN) : mirt_drawn_digits(12000, 0, MIRT_TRAIN);
    mirt_dataset *test = dir ? mirt_mnist(dir, MIRT_TEST) : mirt_drawn_digits(2000, 0, MIRT_TEST);
    train = mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(train), 10000), batch), MIRT_AUTOTUNE);
    test = mirt_batch(mirt_cache(test), batch);

    mirt_model *model = mirt_model_create(strategy, "mnist");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(28, 28, 1));
    x = mirt_rescale(x, 1.0f / 255, 0);
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 32, .kernel = {3, 3}, .activation = MIRT_RELU});
    x = mirt_max_pool2d(x, NULL);
    x = mirt_flatten(x);
    x = mirt_dense(x, &(mirt_dense_desc){.units = 64, .activation = MIRT_RELU});
    x = mirt_dense(x, &(mirt_dense_desc){.units = 10});
    mirt_model_output(model, x);
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f),
        .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true, .metrics = {MIRT_ACCURACY}});
    const char *summary = mirt_summary(model, batch);
    if (summary) printf("%s\n", summary);

    /* Whatever failed above was handed on; the first error comes out here. */
    const mirt_callback rates = {.epoch_end = print_rate};
    mirt_history *history = mirt_fit(model, train, &(mirt_fit_desc){.epochs = 12, .validation = test,
        .callbacks = {&rates}, .learning_rate = decay});
    if (!history || mirt_save(model, "mnist.safetensors", MIRT_SAVE_ALL) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("test accuracy %.4f after %lld steps, %.0f images/s\n", mirt_history_last(history, "val_accuracy"),
        (long long)history->steps, history->images_per_second);

    /* The file needs no model code, and any strategy will do: the same bits come out. */
    mirt_strategy *one = mirt_mirrored(NULL);
    mirt_model *loaded = mirt_load(one, "mnist.safetensors");
    mirt_logs logs;
    if (mirt_evaluate(loaded, test, &logs) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("loaded again: %s %.6f, %s %.4f\n", logs.name[0], logs.value[0], logs.name[1], logs.value[1]);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(one); /* and the models in it */
    mirt_strategy_destroy(strategy);
    return 0;
}
