/* Trains a network with a dtype policy and prints its accuracy. Usage: accuracy_networks mnist DIR | photographs DIR
   WEIGHTS, then the policy and the seed. Prints the accuracy on samples that were not trained on. DIR of photographs:
   train.u8, train_labels.u8, test.u8 and test_labels.u8, of 128 x 128 pixels; MobileNetV2 0.35 is trained from WEIGHTS,
   all of its layers but batch normalization, whose moving statistics would not follow in so few steps. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 128
#define PHOTO ((size_t)SIZE * SIZE * 3)

typedef struct photographs {
    uint8_t *pixels, *labels;
    int64_t count;
} photographs;

static void *read_all(const char *dir, const char *name, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    void *data = NULL;
    *size = 0;
    if (f && fseek(f, 0, SEEK_END) == 0 && ftell(f) > 0) {
        *size = (size_t)ftell(f);
        rewind(f);
        data = malloc(*size);
    }
    if (data && fread(data, 1, *size, f) != *size) *size = 0;
    if (f) fclose(f);
    return data;
}

static mirt_dataset *open_photographs(const char *dir, const char *split, photographs *p) {
    char name[64];
    size_t pixels, labels;
    snprintf(name, sizeof name, "%s.u8", split);
    p->pixels = (uint8_t *)read_all(dir, name, &pixels);
    snprintf(name, sizeof name, "%s_labels.u8", split);
    p->labels = (uint8_t *)read_all(dir, name, &labels);
    p->count = (int64_t)labels;
    if (!p->pixels || !p->labels || pixels != labels * PHOTO) return NULL;
    return mirt_arrays(mirt_make_array(p->pixels, MIRT_UINT8, MIRT_SHAPE(p->count, SIZE, SIZE, 3)),
                       mirt_make_array(p->labels, MIRT_UINT8, MIRT_SHAPE(p->count)));
}

static mirt_model *fine_tuned(mirt_strategy *strategy, mirt_model **base) {
    mirt_application_desc d;
    mirt_dense_desc head;
    memset(&d, 0, sizeof d);
    memset(&head, 0, sizeof head);
    d.alpha = 0.35f;
    d.size = SIZE;
    d.no_top = true;
    d.pooling = MIRT_POOLING_AVG;
    d.preprocessing = MIRT_PREPROCESSING_ON;
    d.name = "base";
    head.units = 2;
    *base = mirt_application(strategy, "mobilenet_v2", &d);
    if (!*base) return NULL;
    mirt_model *model = mirt_model_create(strategy, "photographs");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(SIZE, SIZE, 3));
    mirt_model_output(model, mirt_dense(mirt_call(*base, x, MIRT_TRAINING_AUTO), &head));
    return model;
}

static bool freeze_normalizations(mirt_model *model) {
    bool good = true;
    for (int i = 0; good && i < mirt_num_weights(model); i++) {
        mirt_weight_info w;
        char layer[256];
        mirt_weight(model, i, &w);
        const char *end = strstr(w.name, "/moving_mean");
        if (!end || snprintf(layer, sizeof layer, "%.*s", (int)(end - w.name), w.name) >= (int)sizeof layer) continue;
        good = mirt_set_trainable(model, layer, false) == MIRT_OK;
    }
    return good;
}

int main(int argc, char **argv) {
    const bool mnist = argc > 1 && strcmp(argv[1], "mnist") == 0;
    if (argc != (mnist ? 5 : 6)) {
        fprintf(stderr, "usage: accuracy_networks mnist DIR POLICY SEED | photographs DIR WEIGHTS POLICY SEED\n");
        return 2;
    }
    const char *dir = argv[2], *policy = argv[argc - 2];
    photographs part[2];
    mirt_strategy_desc s;
    mirt_compile_desc c;
    mirt_fit_desc f;
    mirt_logs logs;
    memset(part, 0, sizeof part);
    memset(&s, 0, sizeof s);
    memset(&c, 0, sizeof c);
    memset(&f, 0, sizeof f);
    s.silent = true;
    s.seed = strtoull(argv[argc - 1], NULL, 10);
    c.optimizer = mirt_adam(mnist ? 1e-3f : 1e-4f);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.metrics[0] = MIRT_ACCURACY;
    f.epochs = mnist ? 4 : 8;
    f.no_progress = true;
    mirt_strategy *strategy = mirt_strategy_create(&s);
    mirt_model *base = NULL, *model = mnist ? mirt_model_by_name(strategy, "mnist") : fine_tuned(strategy, &base);
    mirt_dataset *train = mnist ? mirt_mnist(dir, MIRT_TRAIN) : open_photographs(dir, "train", &part[0]);
    mirt_dataset *test = mnist ? mirt_mnist(dir, MIRT_TEST) : open_photographs(dir, "test", &part[1]);
    train = mirt_batch(mirt_shuffle(mirt_cache(train), 60000), mnist ? 128 : 32);
    test = mirt_batch(test, mnist ? 500 : 50);
    const bool good = model && train && test && freeze_normalizations(model) &&
                      mirt_set_dtype_policy(model, policy) == MIRT_OK && mirt_compile(model, &c) == MIRT_OK &&
                      (!base || mirt_load_weights(base, argv[3]) == MIRT_OK) &&
                      mirt_fit(model, train, &f) && mirt_evaluate(model, test, &logs) == MIRT_OK;
    if (good) printf("accuracy=%.6f loss=%.6f\n", mirt_logs_value(&logs, "accuracy"), mirt_logs_value(&logs, "loss"));
    else fprintf(stderr, "accuracy_networks: %s\n", mirt_last_error());
    mirt_dataset_destroy(test);
    mirt_dataset_destroy(train);
    mirt_strategy_destroy(strategy);
    for (int i = 0; i < 2; i++) {
        free(part[i].pixels);
        free(part[i].labels);
    }
    return good ? 0 : 1;
}
