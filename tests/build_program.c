/* Trains and saves a small model, or loads one and predicts: build_program train|predict FILE. Without training in the
   library it only predicts. build_program call LAYER: predicts with a layer that is called as in training.
   Prints a digest of the predictions, which is the same in all builds if the predictions are bit-identical. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 28, IMAGES = 5, CLASSES = 10 };

static int fail(mirt_strategy *strategy) {
    fprintf(stderr, "%s\n", mirt_last_error());
    mirt_strategy_destroy(strategy);
    return 1;
}

#ifdef MIRRORTRAIN_NO_TRAIN
static mirt_model *train(mirt_strategy *strategy, const char *path) {
    (void)strategy;
    (void)path;
    return NULL;
}
#else
static mirt_model *train(mirt_strategy *strategy, const char *path) {
    mirt_model *model = mirt_model_create(strategy, "small");
    mirt_conv2d_desc conv;
    mirt_depthwise_conv2d_desc depthwise;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    mirt_fit_desc fit;
    memset(&conv, 0, sizeof conv);
    memset(&depthwise, 0, sizeof depthwise);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    memset(&fit, 0, sizeof fit);
    conv.filters = 12;
    conv.kernel[0] = conv.kernel[1] = 3;
    depthwise.kernel[0] = depthwise.kernel[1] = 3;
    dense.units = CLASSES;
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    compile.optimizer = mirt_sgd(0.05f, 0.9f, true);
    fit.no_progress = true;
    fit.max_steps = 3;
    mirt_tensor *x = mirt_rescale(mirt_input(model, mirt_make_shape(SIDE, SIDE, 1, 0, 0, 0)), 1.0f / 255, 0);
    x = mirt_relu_layer(mirt_batch_norm(mirt_conv2d(x, &conv), NULL), NULL);
    x = mirt_max_pool2d(mirt_depthwise_conv2d(x, &depthwise), NULL);
    mirt_model_output(model, mirt_dense(mirt_flatten(x), &dense));
    if (mirt_compile(model, &compile) != MIRT_OK) return NULL;
    mirt_dataset *digits = mirt_batch(mirt_drawn_digits(96, 0, MIRT_TRAIN), 32);
    const bool trained = digits && mirt_fit(model, digits, &fit) && mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK;
    mirt_dataset_destroy(digits);
    return trained ? model : NULL;
}
#endif

/* A part of one layer, "dropout", "augment" or "statistics", called as in training. */
static int call_in_training(mirt_strategy *strategy, const char *layer) {
    static float pixels[4], out[4];
    mirt_augmentation flip;
    memset(&flip, 0, sizeof flip);
    flip.kind = MIRT_RANDOM_FLIP;
    mirt_model *part = mirt_model_create(strategy, "part"), *model = mirt_model_create(strategy, "whole");
    const mirt_shape shape = mirt_make_shape(2, 2, 1, 0, 0, 0);
    mirt_tensor *x = mirt_input(part, shape);
    mirt_model_output(part, strcmp(layer, "dropout") == 0  ? mirt_dropout(x, 0.5f)
                            : strcmp(layer, "augment") == 0 ? mirt_augmentation_layer(x, &flip)
                                                            : mirt_batch_norm(x, NULL));
    mirt_model_output(model, mirt_call(part, mirt_input(model, shape), MIRT_TRAINING_ON));
    const mirt_array images = mirt_make_array(pixels, MIRT_FLOAT32, mirt_make_shape(1, 2, 2, 1, 0, 0));
    if (mirt_predict_arrays(model, images, out, 4) != MIRT_OK) return fail(strategy);
    mirt_strategy_destroy(strategy);
    return 0;
}

int main(int argc, char **argv) {
    static float image[IMAGES * SIDE * SIDE], score[IMAGES * CLASSES], score_again[IMAGES * CLASSES];
    static mirt_data batch;
    static mirt_array none;
    unsigned char bytes[sizeof score];
    unsigned long long digest = 14695981039346656037ull; /* FNV-1a */
    if (argc != 3) return 2;
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "cpu:0";
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    if (!strategy) return fail(NULL);
    if (strcmp(argv[1], "call") == 0) return call_in_training(strategy, argv[2]);
    mirt_model *model = strcmp(argv[1], "train") == 0 ? train(strategy, argv[2]) : mirt_load(strategy, argv[2]);
    if (!model) return fail(strategy);
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++) image[i] = (float)(i * 37 % 256);
    const mirt_array x = mirt_make_array(image, MIRT_FLOAT32, mirt_make_shape(IMAGES, SIDE, SIDE, 1, 0, 0));
    if (mirt_predict_arrays(model, x, score, IMAGES * CLASSES) != MIRT_OK) return fail(strategy);
    /* A data set in batches, and one batch, give the same. */
    float *again = score_again;
    const size_t capacity = IMAGES * CLASSES;
    mirt_dataset *images = mirt_batch(mirt_arrays(x, none), 2);
    const bool predicted = images && mirt_predict(model, images, again, capacity) == MIRT_OK;
    mirt_dataset_destroy(images);
    if (!predicted || memcmp(again, score, sizeof score) != 0) return fail(strategy);
    memset(score_again, 0, sizeof score_again);
    batch.x[0] = x;
    if (mirt_predict_on_batch(model, &batch, &again, &capacity) != MIRT_OK) return fail(strategy);
    if (memcmp(again, score, sizeof score) != 0) return fail(strategy);
    memcpy(bytes, score, sizeof score);
    for (size_t i = 0; i < sizeof score; i++) digest = (digest ^ bytes[i]) * 1099511628211ull;
    printf("%016llx\n", digest);
    mirt_strategy_destroy(strategy);
    return 0;
}
