/* Trains one network for `make parity`, run by parity.py. Arguments: NETWORK ALPHA SIZE ROWS STEPS RATE DIR [WEIGHTS].
   The network, without its top, averaged, and with two classes on top, is trained on DIR/images.u8 and labels.u8, from
   DIR/weights.safetensors. Writes DIR/losses.txt, one per step, and the first step's gradients: gradients.f32 and their
   names and sizes in gradients.txt. WEIGHTS: a file that the network alone must load, every weight of it. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "parity_networks: %s: %s\n", what, mirt_last_error());
    return 1;
}

static void *read_file(const char *dir, const char *name, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    void *data = malloc(size);
    if (f && data && fread(data, 1, size, f) == size) {
        fclose(f);
        return data;
    }
    if (f) fclose(f);
    free(data);
    fprintf(stderr, "parity_networks: %s: not there, or too short\n", path);
    return NULL;
}

static FILE *create(const char *dir, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f) fprintf(stderr, "parity_networks: %s cannot be written\n", path);
    return f;
}

static int write_gradients(mirt_model *model, const char *dir) {
    FILE *names = create(dir, "gradients.txt"), *values = create(dir, "gradients.f32");
    int bad = !names || !values;
    for (int i = 0; !bad && i < mirt_num_weights(model); i++) {
        mirt_weight_info w;
        mirt_weight(model, i, &w);
        if (!w.trainable) continue;
        float *g = (float *)malloc((size_t)w.count * sizeof *g);
        bad = !g || mirt_get_gradient(model, w.name, 0, g, (size_t)w.count) != MIRT_OK;
        if (bad) failed(w.name);
        else
            bad = fprintf(names, "%s %lld\n", w.name, (long long)w.count) < 0 ||
                  fwrite(g, sizeof *g, (size_t)w.count, values) != (size_t)w.count;
        free(g);
    }
    if (names && fclose(names)) bad = 1;
    if (values && fclose(values)) bad = 1;
    return bad;
}

int main(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: parity_networks NETWORK ALPHA SIZE ROWS STEPS RATE DIR [WEIGHTS]\n");
        return 2;
    }
    mirt_application_desc d;
    mirt_compile_desc c;
    mirt_dense_desc head;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    memset(&head, 0, sizeof head);
    d.alpha = strtof(argv[2], NULL);
    d.size = atoi(argv[3]);
    d.no_top = true;
    d.pooling = MIRT_POOLING_AVG;
    d.preprocessing = MIRT_PREPROCESSING_ON;
    d.drop_connect_rate = -1;
    d.name = "base";
    head.units = 2;
    head.name = "head";
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.optimizer = mirt_adam(strtof(argv[6], NULL));
    const int rows = atoi(argv[4]), steps = atoi(argv[5]);
    const char *dir = argv[7];
    const size_t image = (size_t)d.size * (size_t)d.size * 3;
    mirt_strategy_desc s;
    memset(&s, 0, sizeof s);
    s.silent = true;
    mirt_strategy *strategy = mirt_strategy_create(&s);
    mirt_model *base = mirt_application(strategy, argv[1], &d);
    if (!base) return failed(argv[1]);
    if (argc > 8 && mirt_load_weights(base, argv[8]) != MIRT_OK) return failed(argv[8]);
    /* the one that was filled takes no layers */
    mirt_model *fresh = argc > 8 ? mirt_application(strategy, argv[1], &d) : base;
    mirt_model *model = mirt_model_create(strategy, "parity");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(d.size, d.size, 3));
    mirt_model_output(model, mirt_dense(mirt_call(fresh, x, MIRT_TRAINING_AUTO), &head));
    char path[1024];
    snprintf(path, sizeof path, "%s/weights.safetensors", dir);
    if (mirt_compile(model, &c) != MIRT_OK) return failed("compile");
    if (mirt_load_weights(model, path) != MIRT_OK) return failed(path);
    uint8_t *images = (uint8_t *)read_file(dir, "images.u8", image * (size_t)rows * (size_t)steps);
    uint8_t *labels = (uint8_t *)read_file(dir, "labels.u8", (size_t)rows * (size_t)steps);
    FILE *losses = create(dir, "losses.txt");
    int bad = !images || !labels || !losses;
    for (int i = 0; !bad && i < steps; i++) {
        double loss;
        bad =
            mirt_scatter(model,
                         mirt_make_array(images + image * (size_t)rows * (size_t)i, MIRT_UINT8,
                                         MIRT_SHAPE(rows, d.size, d.size, 3)),
                         mirt_make_array(labels + (size_t)rows * (size_t)i, MIRT_UINT8, MIRT_SHAPE(rows))) != MIRT_OK ||
            mirt_grad(model, &loss) != MIRT_OK || mirt_all_reduce(model) != MIRT_OK;
        if (!bad && i == 0) bad = write_gradients(model, dir);
        if (!bad) bad = mirt_apply(model) != MIRT_OK || fprintf(losses, "%.12g\n", loss) < 0;
        if (bad) failed("a step");
    }
    if (losses && fclose(losses)) bad = 1;
    free(images);
    free(labels);
    mirt_strategy_destroy(strategy);
    return bad;
}
