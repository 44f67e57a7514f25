/* Gradients are the same whatever else is frozen: weights, biases or layers. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

enum { ROWS = 9, MOST = 4000 };

typedef enum middle { DENSE_LAYER, CONV, STRIDED, GROUPED, DEPTHWISE, TRANSPOSED, SEPARABLE, MIDDLES } middle;
static const char *const names[MIDDLES] = {"dense",     "convolution", "strided convolution", "groups",
                                           "depthwise", "transposed",  "separable"};

static mirt_tensor *layer(middle kind, mirt_tensor *x) {
    mirt_conv2d_desc conv;
    mirt_depthwise_conv2d_desc depthwise;
    mirt_separable_conv2d_desc separable;
    mirt_dense_desc dense;
    memset(&conv, 0, sizeof conv);
    memset(&depthwise, 0, sizeof depthwise);
    memset(&separable, 0, sizeof separable);
    memset(&dense, 0, sizeof dense);
    conv.name = depthwise.name = separable.depthwise.name = dense.name = "middle";
    conv.filters = separable.filters = 4;
    conv.kernel[0] = depthwise.kernel[0] = separable.depthwise.kernel[0] = 3;
    conv.groups = kind == GROUPED ? 2 : 1;
    conv.strides[0] = kind == STRIDED ? 2 : 1;
    conv.activation = MIRT_TANH;
    dense.units = 5;
    switch (kind) {
    case DENSE_LAYER: return mirt_dense(x, &dense);
    case DEPTHWISE: return mirt_depthwise_conv2d(x, &depthwise);
    case TRANSPOSED: return mirt_conv2d_transpose(x, &conv);
    case SEPARABLE: return mirt_separable_conv2d(x, &separable);
    default: return mirt_conv2d(x, &conv);
    }
}

/* A convolution, the layer in the middle, a dense layer; `frozen` names what is not trained. */
static mirt_model *model_of(mirt_strategy *s, middle kind, const char *const *frozen) {
    mirt_model *m = mirt_model_create(s, "m");
    mirt_conv2d_desc first;
    mirt_dense_desc last;
    mirt_compile_desc c = image_compile(mirt_sgd(0.1f, 0, false));
    memset(&first, 0, sizeof first);
    memset(&last, 0, sizeof last);
    first.name = "first";
    first.filters = 4;
    first.kernel[0] = 4;
    first.strides[0] = 2;
    last.name = "last";
    last.units = IMAGE_CLASSES;
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
    x = layer(kind, mirt_conv2d(x, &first));
    mirt_model_output(m, mirt_dense(mirt_flatten(x), &last));
    for (int i = 0; frozen[i]; i++) {
        if (mirt_set_trainable(m, frozen[i], false) != MIRT_OK) printf("# %s\n", mirt_last_error());
    }
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* The gradient of every trained weight. */
typedef struct gradients {
    int count;
    char name[16][64];
    size_t size[16];
    float value[16][MOST];
} gradients;

static bool gradients_of(middle kind, const char *const *frozen, int devices, gradients *out) {
    mirt_strategy *s = strategy_of(devices, 2, 1);
    mirt_model *m = model_of(s, kind, frozen);
    mirt_weight_info info;
    bool good = m && mirt_scatter(m, images_x(0, ROWS), images_y(0, ROWS)) == MIRT_OK &&
                mirt_grad(m, NULL) == MIRT_OK && mirt_all_reduce(m) == MIRT_OK;
    memset(out, 0, sizeof *out);
    for (int i = 0; good && i < mirt_num_weights(m); i++) {
        good = mirt_weight(m, i, &info) == MIRT_OK && info.count <= MOST;
        if (!good || !info.trainable) continue;
        snprintf(out->name[out->count], sizeof out->name[0], "%s", info.name);
        out->size[out->count] = (size_t)info.count;
        good = mirt_get_gradient(m, info.name, 0, out->value[out->count++], (size_t)info.count) == MIRT_OK;
    }
    if (!good) printf("# %s\n", mirt_last_error());
    mirt_strategy_destroy(s);
    return good;
}

/* Whether each of these gradients is one of those, to rounding, and not zero. */
static bool among(const gradients *some, const gradients *all) {
    for (int i = 0; i < some->count; i++) {
        int k = 0;
        double most = 0, worst = 0;
        while (k < all->count && strcmp(all->name[k], some->name[i]) != 0) k++;
        if (k == all->count || all->size[k] != some->size[i]) return false;
        for (size_t e = 0; e < some->size[i]; e++) {
            most = fmax(most, fabs((double)all->value[k][e]));
            worst = worse(worst, fabs((double)all->value[k][e] - (double)some->value[i][e]));
        }
        if (!(most > 0 && worst <= 1e-5 * most)) return false;
    }
    return some->count > 0;
}

static void check(middle kind) {
    static const char *const cases[][5] = {{"middle/bias"},
                                           {"middle/kernel"},
                                           {"middle"},
                                           {"first"},
                                           {"first", "middle/bias"},
                                           {"first", "middle/kernel"},
                                           {"first", "middle"},
                                           {"first/kernel", "middle", "last/kernel"},
                                           {"first/bias", "last/bias"}};
    static const char *const separable[][5] = {{"middle/bias"},
                                               {"middle/depthwise_kernel"},
                                               {"middle/pointwise_kernel"},
                                               {"middle/depthwise_kernel", "middle/pointwise_kernel"},
                                               {"first", "middle/depthwise_kernel"},
                                               {"first", "middle/pointwise_kernel"},
                                               {"middle"},
                                               {"first", "middle"},
                                               {"first/bias", "last/bias"}};
    static const char *const nothing[1] = {NULL};
    static gradients all, some;
    if (!ok(gradients_of(kind, nothing, 1, &all) && all.count >= 6, "%s: %d gradients, none frozen", names[kind],
            all.count))
        return;
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        const char *const *frozen = kind == SEPARABLE ? separable[i] : cases[i];
        const bool good = gradients_of(kind, frozen, 1 + i % 2, &some) && among(&some, &all) && some.count < all.count;
        ok(good, "%s, without %s%s%s: the other %d gradients are the same", names[kind], frozen[0],
           frozen[1] ? " and " : "", frozen[1] ? frozen[1] : "", some.count);
    }
}

int main(void) {
    draw_images();
    for (int kind = 0; kind < MIDDLES; kind++) check((middle)kind);
    return done_testing();
}
