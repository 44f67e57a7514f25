/* Trains one program and writes its weights: same_bits PROGRAM DEVICES STEPS. */
/* Uses public calls that exist since version 0.1 only, because it is compiled against older commits, too. */
#include "mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLICAS = 8, SAMPLES = 403, BATCH = 29 }; /* uneven shares, and a last batch of 26 */

static mirt_tensor *conv(mirt_tensor *x, int filters, mirt_activation_kind activation) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = filters;
    d.kernel[0] = 3;
    d.activation = activation;
    return mirt_conv2d(x, &d);
}

static mirt_tensor *dense(mirt_tensor *x, int units, mirt_activation_kind activation) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.activation = activation;
    return mirt_dense(x, &d);
}

static mirt_tensor *batch_norm(mirt_tensor *x, bool synchronized) {
    mirt_batch_norm_desc d;
    memset(&d, 0, sizeof d);
    d.synchronized = synchronized;
    return mirt_batch_norm(x, &d);
}

/* >>the networks: each returns logits of 10 classes, from images of 28x28x1 or 32x32x3 */

static mirt_tensor *convnet(mirt_tensor *x) {
    x = conv(mirt_rescale(x, 1.0f / 255, 0), 32, MIRT_RELU);
    return dense(mirt_dropout(dense(mirt_flatten(mirt_max_pool2d(x, NULL)), 64, MIRT_RELU), 0.2f), 10, MIRT_LINEAR);
}

static mirt_tensor *normalized(mirt_tensor *x) {
    x = mirt_relu(batch_norm(conv(mirt_rescale(x, 1.0f / 255, 0), 8, MIRT_LINEAR), false));
    x = mirt_max_pool2d(mirt_relu(batch_norm(conv(x, 16, MIRT_LINEAR), true)), NULL);
    return dense(mirt_global_average_pool2d(x), 10, MIRT_LINEAR);
}

static mirt_tensor *augmented(mirt_tensor *x) {
    static const char list[] = "flip,rotation:0.1,zoom:0.2,translation:0.1,contrast:0.2,brightness:0.1,crop:24";
    mirt_augmentation layer[16];
    const int count = mirt_parse_augmentation(list, layer, 16);
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &layer[i]);
    x = mirt_max_pool2d(conv(mirt_rescale(x, 1.0f / 255, 0), 16, MIRT_RELU), NULL);
    return dense(mirt_flatten(x), 10, MIRT_LINEAR);
}

static mirt_model *build_network(mirt_strategy *strategy, mirt_shape shape, mirt_tensor *(*network)(mirt_tensor *x)) {
    mirt_model *model = mirt_model_create(strategy, "network");
    mirt_model_output(model, network(mirt_input(model, shape)));
    return model;
}

static mirt_model *build_mobilenet(mirt_strategy *strategy) {
    mirt_application_desc d;
    memset(&d, 0, sizeof d);
    d.size = 32;
    d.alpha = 0.35f;
    d.no_top = true;
    d.pooling = MIRT_POOLING_AVG;
    d.preprocessing = MIRT_PREPROCESSING_ON;
    d.name = "base";
    mirt_model *base = mirt_mobilenet_v2(strategy, &d), *model = mirt_model_create(strategy, "network");
    mirt_tensor *x = mirt_call(base, mirt_input(model, MIRT_SHAPE(32, 32, 3)), MIRT_TRAINING_AUTO);
    mirt_model_output(model, dense(x, 10, MIRT_LINEAR));
    return model;
}

static mirt_model *build(mirt_strategy *strategy, const char *program) {
    const mirt_shape digits = MIRT_SHAPE(28, 28, 1), photos = MIRT_SHAPE(32, 32, 3);
    if (strcmp(program, "mnist") == 0) return build_network(strategy, digits, convnet);
    if (strcmp(program, "batch_norm") == 0) return build_network(strategy, digits, normalized);
    if (strcmp(program, "augmentation") == 0) return build_network(strategy, photos, augmented);
    return strcmp(program, "mobilenet_v2") == 0 ? build_mobilenet(strategy) : NULL;
}

/* The augmentation program also augments its samples, before they are batched. */
static mirt_dataset *open_data(const char *program) {
    const bool digits = strcmp(program, "mnist") == 0 || strcmp(program, "batch_norm") == 0;
    mirt_augmentation list[4];
    mirt_dataset *data = digits ? mirt_drawn_digits(SAMPLES, 3, MIRT_TRAIN)
                                : mirt_drawn_photos(SAMPLES, 32, 32, 3, MIRT_TRAIN);
    data = mirt_shuffle(data, 100);
    if (strcmp(program, "augmentation") == 0)
        data = mirt_augment(data, list, mirt_parse_augmentation("flip:horizontal,zoom:0.1:0.2", list, 4));
    return mirt_batch(data, BATCH);
}

static bool train(mirt_model *model, const char *program, int64_t steps) {
    mirt_compile_desc compile;
    mirt_fit_desc fit;
    memset(&compile, 0, sizeof compile);
    memset(&fit, 0, sizeof fit);
    compile.optimizer = mirt_adam(1e-3f);
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    fit.epochs = 1000;
    fit.max_steps = steps;
    fit.no_progress = true;
    mirt_dataset *data = open_data(program);
    const bool good = mirt_compile(model, &compile) == MIRT_OK && data && mirt_fit(model, data, &fit);
    mirt_dataset_destroy(data);
    return good;
}

/* Every weight's name and values, to stdout. */
static bool write_weights(mirt_model *model) {
    mirt_weight_info info;
    for (int i = 0; i < mirt_num_weights(model); i++) {
        if (mirt_weight(model, i, &info) != MIRT_OK) return false;
        float *values = (float *)malloc((size_t)info.count * sizeof *values + 1);
        bool good = values && mirt_get_weight(model, info.name, 0, values, (size_t)info.count) == MIRT_OK;
        good = good && printf("%s\n", info.name) > 0;
        good = good && fwrite(values, sizeof *values, (size_t)info.count, stdout) == (size_t)info.count;
        free(values);
        if (!good) return false;
    }
    return fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    if (argc != 4) return fprintf(stderr, "usage: same_bits PROGRAM DEVICES STEPS\n"), 2;
    d.devices = argv[2];
    d.replicas = REPLICAS;
    d.threads = 1;
    d.seed = 11;
    d.silent = true;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    mirt_model *model = strategy ? build(strategy, argv[1]) : NULL;
    const bool good = model && train(model, argv[1], atoll(argv[3])) && write_weights(model);
    if (!good)
        fprintf(stderr, "same_bits %s %s: %s\n", argv[1], argv[2], model ? mirt_last_error() : "no such program");
    mirt_strategy_destroy(strategy);
    return good ? 0 : 1;
}
