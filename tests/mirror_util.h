#ifndef MIRROR_UTIL_H
#define MIRROR_UTIL_H
/* What the tests of mirrored training share: strategies, a small network, digests of its weights. */

#include "tap.h"

/* `shares`: of each device, NULL: equal ones. */
TAP_UNUSED static mirt_strategy *strategy_shared(const char *shares, int devices, int replicas, int threads) {
    mirt_strategy_desc d;
    char text[16];
    memset(&d, 0, sizeof d);
    snprintf(text, sizeof text, "%d", devices);
    d.devices = text;
    d.replicas = replicas;
    d.threads = threads;
    d.seed = 11;
    d.silent = true;
    d.shares = shares;
    return mirt_strategy_create(&d);
}

TAP_UNUSED static mirt_strategy *strategy_of(int devices, int replicas, int threads) {
    return strategy_shared(NULL, devices, replicas, threads);
}

/* Synthetic images of 13x11 with classes 0 to 4 that depend on them, so that training has something to learn. */
enum { IMAGE_H = 13, IMAGE_W = 11, IMAGE = IMAGE_H * IMAGE_W, IMAGE_CLASSES = 5, IMAGES = 302 };
static uint8_t image_pixels[IMAGES][IMAGE];
static uint8_t image_classes[IMAGES];

TAP_UNUSED static void draw_images(void) {
    mirt__random random = mirt__random_stream(3, 4);
    for (int i = 0; i < IMAGES; i++) {
        image_classes[i] = (uint8_t)mirt__random_below(&random, IMAGE_CLASSES);
        for (int k = 0; k < IMAGE; k++) {
            int stripe = (k % IMAGE_W + k / IMAGE_W * image_classes[i]) % (image_classes[i] + 2) == 0;
            image_pixels[i][k] = (uint8_t)(mirt__random_below(&random, 128) + (stripe ? 127 : 0));
        }
    }
}

TAP_UNUSED static mirt_array images_x(int64_t first, int64_t count) {
    return mirt_make_array(image_pixels[first], MIRT_UINT8, MIRT_SHAPE(count, IMAGE_H, IMAGE_W, 1));
}
TAP_UNUSED static mirt_array images_y(int64_t first, int64_t count) {
    return mirt_make_array(image_classes + first, MIRT_UINT8, MIRT_SHAPE(count));
}

/* Convolution, fused pooling, a second convolution, dropout twice; not compiled. */
TAP_UNUSED static mirt_model *image_net(mirt_strategy *s, float dropout) {
    mirt_model *m = mirt_model_create(s, "images");
    mirt_conv2d_desc conv, conv_2;
    mirt_dense_desc hidden, logits;
    memset(&conv, 0, sizeof conv);
    memset(&conv_2, 0, sizeof conv_2);
    memset(&hidden, 0, sizeof hidden);
    memset(&logits, 0, sizeof logits);
    conv.filters = 6;
    conv.kernel[0] = 3;
    conv.activation = MIRT_RELU;
    conv_2.filters = 5;
    conv_2.kernel[0] = 2;
    conv_2.padding = MIRT_SAME;
    conv_2.activation = MIRT_TANH;
    hidden.units = 19;
    hidden.activation = MIRT_RELU;
    logits.units = IMAGE_CLASSES;
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
    x = mirt_max_pool2d(mirt_conv2d(x, &conv), NULL);
    x = mirt_conv2d(mirt_dropout(x, dropout), &conv_2);
    x = mirt_dense(mirt_flatten(x), &hidden);
    mirt_model_output(m, mirt_dense(mirt_dropout(x, dropout), &logits));
    return m;
}

TAP_UNUSED static mirt_compile_desc image_compile(mirt_optimizer optimizer) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = optimizer;
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.metrics[0] = MIRT_ACCURACY;
    return c;
}

TAP_UNUSED static mirt_model *image_model(mirt_strategy *s, mirt_optimizer optimizer, float dropout) {
    mirt_model *m = image_net(s, dropout);
    mirt_compile_desc c = image_compile(optimizer);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* Convolution, batch normalization, pooling. */
TAP_UNUSED static mirt_model *image_norm_model(mirt_strategy *s, bool synchronized) {
    mirt_model *m = mirt_model_create(s, "norms");
    mirt_conv2d_desc conv;
    mirt_batch_norm_desc norm;
    mirt_dense_desc dense;
    memset(&conv, 0, sizeof conv);
    memset(&norm, 0, sizeof norm);
    memset(&dense, 0, sizeof dense);
    conv.filters = 6;
    conv.kernel[0] = 3;
    conv.no_bias = true;
    norm.synchronized = synchronized;
    norm.momentum = 0.8f;
    dense.units = IMAGE_CLASSES;
    mirt_tensor *x = mirt_conv2d(mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0), &conv);
    x = mirt_max_pool2d(mirt_activation(mirt_batch_norm(x, &norm), MIRT_RELU), NULL);
    mirt_model_output(m, mirt_dense(mirt_flatten(x), &dense));
    mirt_compile_desc c = image_compile(mirt_sgd(0.1f, 0.9f, false));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* All weights as the public function gives them, one device's copy; freed by the caller. */
TAP_UNUSED static float *all_weights(mirt_model *m, int device, size_t *count) {
    mirt_weight_info info;
    float *out = NULL;
    *count = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (int i = 0; i < mirt_num_weights(m); i++) {
            if (mirt_weight(m, i, &info) != MIRT_OK) return out;
            if (out && mirt_get_weight(m, info.name, device, out + at, (size_t)info.count) != MIRT_OK) return out;
            at += (size_t)info.count;
        }
        *count = at;
        if (!out) out = (float *)calloc(at + 1, sizeof *out);
    }
    return out;
}

TAP_UNUSED static void digest_of(const void *data, size_t size, char out[MIRT__SHA256_HEX]) {
    mirt__sha256 sha;
    mirt__sha256_begin(&sha);
    mirt__sha256_add(&sha, data, size);
    mirt__sha256_end(&sha, out);
}

TAP_UNUSED static void digest_weights(mirt_model *m, int device, char out[MIRT__SHA256_HEX]) {
    size_t count;
    float *w = all_weights(m, device, &count);
    digest_of(w, count * sizeof *w, out);
    free(w);
}

TAP_UNUSED static bool copies_agree(mirt_model *m) {
    char first[MIRT__SHA256_HEX], other[MIRT__SHA256_HEX];
    digest_weights(m, 0, first);
    for (int d = 1; d < mirt_num_devices(m->strategy); d++) {
        digest_weights(m, d, other);
        if (strcmp(first, other) != 0) return false;
    }
    return true;
}

/* A whole file; freed by the caller. */
TAP_UNUSED static char *file_bytes(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    *size = 0;
    if (!f) return NULL;
    if (fseek(f, 0, SEEK_END) == 0) {
        long length = ftell(f);
        rewind(f);
        data = (char *)malloc((size_t)length + 1);
        if (data) *size = fread(data, 1, (size_t)length, f);
    }
    fclose(f);
    return data;
}

TAP_UNUSED static mirt_tensor *named_dense(mirt_tensor *x, const char *name, int units,
                                           mirt_activation_kind activation) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.activation = activation;
    d.name = name;
    return mirt_dense(x, &d);
}

/* A directory of this run's own. */
TAP_UNUSED static const char *work_directory(void) {
    static char directory[256];
    if (directory[0]) return directory;
    snprintf(directory, sizeof directory, "%s/mirrortrain-test-XXXXXX", tap_tmpdir());
    return mkdtemp(directory);
}
#endif
