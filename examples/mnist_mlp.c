// cc -O2 examples/mnist_mlp.c -o mnist_mlp -lm -lpthread
/* A multilayer perceptron trained on arrays: 784-128-10, one-hot labels, batches of 32, 10 epochs.

       ./mnist_mlp [DIR] [DEVICES]

   DIR holds the four files of MNIST, plain or .gz; if it is missing or "", the library draws digits. DEVICES is passed
   to mirt_mirrored: "2" splits the cores in two. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 10, PIXELS = 28 * 28, BATCH = 32, EPOCHS = 10 };

typedef struct arrays {
    mirt_data data; /* x[0]: uint8 [n, 784]; y[0]: uint8 [n] */
    mirt_array y;   /* float32 [n, 10] */
} arrays;

/* Keras: mnist.load_data(), x.reshape(n, 784), to_categorical(y, 10). Pixels stay bytes: the model divides by 255. */
static bool load(const char *dir, mirt_split split, arrays *out) {
    const int drawn = split == MIRT_TRAIN ? 6000 : 1000;
    mirt_dataset *dataset = dir ? mirt_mnist(dir, split) : mirt_drawn_digits(drawn, 0, split);
    bool good = mirt_dataset_arrays(dataset, &out->data) == MIRT_OK &&
                mirt_to_categorical(out->data.y[0], CLASSES, &out->y) == MIRT_OK;
    mirt_dataset_destroy(dataset);
    if (good) out->data.x[0].shape = MIRT_SHAPE(out->data.x[0].shape.dim[0], PIXELS);
    return good;
}

static mirt_model *build(mirt_strategy *strategy) {
    mirt_model *model = mirt_model_create(strategy, "mlp");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(PIXELS)), 1.0f / 255, 0);
    x = mirt_dense(x, &(mirt_dense_desc){.units = 128, .activation = MIRT_RELU});
    mirt_model_output(model, mirt_dense(x, &(mirt_dense_desc){.units = CLASSES}));
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f), .loss = MIRT_CATEGORICAL_CROSSENTROPY,
        .from_logits = true, .metrics = {MIRT_ACCURACY}});
    return model;
}

/* The number of rows of `scores` whose largest value is at the label. */
static int count_right(const float *scores, const unsigned char *labels, int rows) {
    int right = 0;
    for (int i = 0; i < rows; i++, scores += CLASSES) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++) best = scores[c] > scores[best] ? c : best;
        right += best == labels[i];
    }
    return right;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 && *argv[1] ? argv[1] : NULL;
    arrays train = {0}, test = {0};
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* line buffering, also into a pipe */
    if (!load(dir, MIRT_TRAIN, &train) || !load(dir, MIRT_TEST, &test)) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    const int rows = (int)test.y.shape.dim[0];
    if (!dir) printf("no DIR: the digits are drawn, and fewer than MNIST's 60000 and 10000\n");
    printf("%d images for training, %d for testing\n", (int)train.y.shape.dim[0], rows);

    mirt_strategy *strategy = mirt_mirrored(argc > 2 ? argv[2] : NULL);
    printf("replicas: %d\n", mirt_num_replicas(strategy));
    if (mirt_num_replicas(strategy) == 1)
        printf("One replica: all cores are one device. DEVICES \"2\" makes two: ./mnist_mlp \"%s\" 2\n",
            dir ? dir : "");
    mirt_model *model = build(strategy);
    mirt_history *history = mirt_fit_arrays(model, train.data.x[0], train.y,
        &(mirt_fit_desc){.epochs = EPOCHS, .batch = BATCH});
    float *scores = (float *)malloc((size_t)rows * CLASSES * sizeof *scores);
    mirt_logs logs;
    if (!scores || !history || mirt_evaluate_arrays(model, test.data.x[0], test.y, &logs) != MIRT_OK ||
        mirt_predict_arrays(model, test.data.x[0], scores, (size_t)rows * CLASSES) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("evaluate: loss %.4f, accuracy %.4f, after %.1f s of training\n", mirt_logs_value(&logs, "loss"),
        mirt_logs_value(&logs, "accuracy"), history->seconds);
    printf("predict: %d of %d right\n", count_right(scores, (const unsigned char *)test.data.y[0].data, rows), rows);
    mirt_strategy_destroy(strategy);
    mirt_data_free(&train.data), mirt_array_free(&train.y);
    mirt_data_free(&test.data), mirt_array_free(&test.y);
    free(scores);
    return 0;
}
