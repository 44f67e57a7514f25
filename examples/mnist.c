// cc -O2 examples/mnist.c -o mnist -lm -lpthread
/* The complete tutorial "Distributed training with Keras" in C. A convnet classifies digits, mirrored over the devices
   of this machine, with callbacks; its latest checkpoint is evaluated; it is saved, and loaded with and without a
   mirrored strategy.

       ./mnist [DIR] [DEVICES]

   DIR holds the four files of MNIST, plain or .gz; if it is missing or "", the library draws digits. DEVICES is passed
   to mirt_mirrored: "2" splits the cores in two. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>

/* Falls in three steps. */
static float decay(int epoch, float rate, void *user) {
    (void)rate, (void)user;
    return epoch < 3 ? 1e-3f : epoch < 7 ? 1e-4f : 1e-5f;
}

static int print_rate(const mirt_event *event, void *user) {
    (void)user;
    printf("Learning rate for epoch %d is %g\n", event->epoch + 1, mirt_get_learning_rate(event->model));
    return 0; /* another value would stop training */
}

static mirt_model *make_model(mirt_strategy *strategy) { /* needs no strategy scope */
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
    return model;
}

static bool evaluate(const char *what, mirt_model *model, mirt_dataset *test) {
    mirt_logs logs;
    if (mirt_evaluate(model, test, &logs) != MIRT_OK) return false;
    printf("%s: eval loss %.6f, eval accuracy %.4f\n", what, mirt_logs_value(&logs, "loss"),
           mirt_logs_value(&logs, "accuracy"));
    return true;
}

/* Earlier failures are passed on, so one of these reports the first error. */
static bool run(mirt_model *model, mirt_dataset *train, mirt_dataset *test, mirt_strategy *strategy,
                mirt_strategy *plain) {
    const mirt_callback print = {.epoch_end = print_rate};
    mirt_callback *ready[] = {
        mirt_tensorboard(&(mirt_tensorboard_desc){.log_dir = "logs"}), /* tensorboard --logdir=logs */
        mirt_model_checkpoint(
            &(mirt_model_checkpoint_desc){.path = "training_checkpoints/ckpt_{epoch}", .weights_only = true}),
        mirt_learning_rate_scheduler(decay, NULL),
    };
    char latest[256];
    mirt_history *history = NULL;
    if (ready[0] && ready[1] && ready[2]) {
        history =
            mirt_fit(model, train, &(mirt_fit_desc){.epochs = 12, .callbacks = {ready[0], ready[1], ready[2], &print}});
    }
    for (int i = 0; i < 3; i++) mirt_callback_destroy(ready[i]);
    if (!history) return false;

    if (mirt_latest_checkpoint(strategy, "training_checkpoints", latest, sizeof latest) != MIRT_OK) return false;
    printf("latest checkpoint: %s\n", latest);
    if (mirt_load_weights(model, latest) != MIRT_OK || !evaluate("from the checkpoint", model, test)) return false;

    /* Loading needs no model code and works with any strategy, with equal results. */
    if (mirt_save(model, "mnist.safetensors", MIRT_SAVE_ALL) != MIRT_OK) return false;
    mirt_model *unreplicated = mirt_load(plain, "mnist.safetensors"),
               *replicated = mirt_load(strategy, "mnist.safetensors");
    return evaluate("loaded on one device", unreplicated, test) &&
           evaluate("loaded under the strategy", replicated, test);
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 && *argv[1] ? argv[1] : NULL;
    mirt_strategy *strategy = mirt_mirrored(argc > 2 ? argv[2] : NULL), *plain = mirt_one_device(NULL);
    printf("Number of devices: %d\n", mirt_num_replicas(strategy));
    if (mirt_num_replicas(strategy) == 1)
        printf("One replica: all cores are one device. DEVICES \"2\" makes two: ./mnist \"%s\" 2\n", dir ? dir : "");
    const int batch = 64 * mirt_num_replicas(strategy); /* a batch is always the global batch */

    mirt_dataset *train = dir ? mirt_mnist(dir, MIRT_TRAIN) : mirt_drawn_digits(12000, 0, MIRT_TRAIN);
    mirt_dataset *test = dir ? mirt_mnist(dir, MIRT_TEST) : mirt_drawn_digits(2000, 0, MIRT_TEST);
    train = mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(train), 10000), batch), MIRT_AUTOTUNE);
    test = mirt_batch(mirt_cache(test), batch);

    const bool good = run(make_model(strategy), train, test, strategy, plain);
    if (!good) fprintf(stderr, "%s\n", mirt_last_error());
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(plain); /* and the models in it */
    mirt_strategy_destroy(strategy);
    return good ? 0 : 1;
}
