// cc -O2 examples/mnist_mlp.c -o mnist_mlp -lm -lpthread
/* A multilayer perceptron from arrays: 784-128-10, one-hot labels, categorical cross-entropy.

       ./mnist_mlp [DIR]

   Data that is in memory already goes straight into fit, evaluate and predict, borrowed and not
   copied. Here the arrays are filled from MNIST's files in DIR, gunzipped, or from a formula
   without one. (mirt_mnist, as in mnist.c, reads .gz too.) */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 10, SIDE = 28, PIXELS = SIDE * SIDE, TRAIN = 6000, TEST = 1000 };

/* A bar whose angle is the class, at a random place, in noise. */
static void draw(unsigned char *image, int label, unsigned *seed) {
    double dx = cos(label * 3.14159265 / CLASSES), dy = sin(label * 3.14159265 / CLASSES);
    for (int i = 0; i < PIXELS; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        image[i] = (unsigned char)(*seed >> 25);
    }
    double cx = 12 + (*seed >> 16) % 5, cy = 12 + (*seed >> 24) % 5;
    for (double t = -9; t <= 9; t += 0.25) image[(int)(cy + t * dy + 0.5) * SIDE + (int)(cx + t * dx + 0.5)] = 255;
}

/* `count` images and labels from a plain IDX pair, or drawn. False if a file is missing or too short. */
static int fill(const char *dir, const char *name, unsigned char *images, unsigned char *labels, int count) {
    unsigned seed = (unsigned)name[1];
    for (int i = 0; !dir && i < count; i++) {
        labels[i] = (unsigned char)(i % CLASSES);
        draw(images + (size_t)i * PIXELS, labels[i], &seed);
    }
    const struct { const char *kind; long header; unsigned char *to; size_t size; } file[2] = {
        {"images-idx3", 16, images, (size_t)count * PIXELS}, {"labels-idx1", 8, labels, (size_t)count}};
    for (int i = 0; dir && i < 2; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s-%s-ubyte", dir, name, file[i].kind);
        FILE *f = fopen(path, "rb");
        int good = f && fseek(f, file[i].header, SEEK_SET) == 0 && fread(file[i].to, 1, file[i].size, f) == file[i].size;
        if (f) fclose(f);
        if (!good) {
            fprintf(stderr, "%s: cannot be read; this example wants the plain file, so gunzip it first\n", path);
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : NULL;
    int train = dir ? 60000 : TRAIN, test = dir ? 10000 : TEST, count = train + test;
    unsigned char *images = (unsigned char *)malloc((size_t)count * PIXELS), *labels = (unsigned char *)malloc((size_t)count);
    float *one_hot = (float *)calloc((size_t)count * CLASSES, sizeof *one_hot);
    float *scores = (float *)malloc((size_t)test * CLASSES * sizeof *scores);
    if (!images || !labels || !one_hot || !scores) return 1;
    if (!fill(dir, "train", images, labels, train)) return 1;
    if (!fill(dir, "t10k", images + (size_t)train * PIXELS, labels + train, test)) return 1;
    for (int i = 0; i < count; i++) one_hot[(size_t)i * CLASSES + labels[i]] = 1;

    /* Pixels stay bytes; the first dense layer reads and rescales them as it goes. */
    mirt_array x = mirt_make_array(images, MIRT_UINT8, MIRT_SHAPE(train, PIXELS));
    mirt_array y = mirt_make_array(one_hot, MIRT_FLOAT32, MIRT_SHAPE(train, CLASSES));
    mirt_array x_test = mirt_make_array(images + (size_t)train * PIXELS, MIRT_UINT8, MIRT_SHAPE(test, PIXELS));
    mirt_array y_test = mirt_make_array(one_hot + (size_t)train * CLASSES, MIRT_FLOAT32, MIRT_SHAPE(test, CLASSES));

    mirt_strategy *strategy = mirt_mirrored(NULL);
    mirt_model *model = mirt_model_create(strategy, "mlp");
    mirt_tensor *t = mirt_rescale(mirt_input(model, MIRT_SHAPE(PIXELS)), 1.0f / 255, 0);
    t = mirt_dense(t, &(mirt_dense_desc){.units = 128, .activation = MIRT_RELU});
    t = mirt_dense(mirt_dropout(t, 0.1f), &(mirt_dense_desc){.units = CLASSES});
    mirt_model_output(model, t);
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f), .loss = MIRT_CATEGORICAL_CROSSENTROPY,
        .from_logits = true, .metrics = {MIRT_ACCURACY}});

    mirt_logs logs;
    if (!mirt_fit_arrays(model, x, y, &(mirt_fit_desc){.epochs = 5, .batch = 64}) ||
        mirt_evaluate_arrays(model, x_test, y_test, &logs) != MIRT_OK ||
        mirt_predict_arrays(model, x_test, scores, (size_t)test * CLASSES) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    int right = 0;
    for (int i = 0; i < test; i++) {
        const float *row = scores + (size_t)i * CLASSES;
        int best = 0;
        for (int c = 1; c < CLASSES; c++) best = row[c] > row[best] ? c : best;
        right += best == labels[train + i];
    }
    printf("evaluate: %s %.4f, %s %.4f\npredict: %d of %d right\n", logs.name[0], logs.value[0], logs.name[1], logs.value[1],
        right, test);
    mirt_strategy_destroy(strategy);
    free(images), free(labels), free(one_hot), free(scores);
    return 0;
}
