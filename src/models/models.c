#include "../nn/model.h"
/* Ready-made networks, one function and one row each. */

/* The convnet of Keras's "Distributed training" tutorial, on pixels from 0 to 255. */
static void mirt__build_mnist(mirt_model *model) {
    mirt_conv2d_desc conv;
    mirt_dense_desc hidden, logits;
    memset(&conv, 0, sizeof conv);
    memset(&hidden, 0, sizeof hidden);
    memset(&logits, 0, sizeof logits);
    conv.filters = 32;
    conv.kernel[0] = conv.kernel[1] = 3;
    conv.activation = MIRT_RELU;
    hidden.units = 64;
    hidden.activation = MIRT_RELU;
    logits.units = 10;
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(28, 28, 1));
    x = mirt_rescale(x, 1.0f / 255, 0);
    x = mirt_conv2d(x, &conv);
    x = mirt_max_pool2d(x, NULL);
    x = mirt_flatten(x);
    x = mirt_dense(x, &hidden);
    mirt_model_output(model, mirt_dense(x, &logits));
}

typedef struct mirt__model_row {
    const char *name;
    void (*build)(mirt_model *model);
} mirt__model_row;

static const mirt__model_row mirt__model_table[] = {
    {"mnist", mirt__build_mnist},
};

MIRT_API mirt_model *mirt_model_by_name(mirt_strategy *strategy, const char *name) {
    const char *names[MIRT__COUNT(mirt__model_table)];
    for (int i = 0; i < MIRT__COUNT(mirt__model_table); i++) names[i] = mirt__model_table[i].name;
    for (int i = 0; name && i < MIRT__COUNT(mirt__model_table); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        mirt_model *model = mirt_model_create(strategy, name);
        if (model) mirt__model_table[i].build(model);
        return model;
    }
    const char *nearest = name ? mirt__nearest(name, names, MIRT__COUNT(names)) : NULL;
    mirt__fail(MIRT_E_NOT_FOUND, "there is no model \"%s\"; %s \"%s\"%s", name ? name : "", nearest ? "did you mean" : "there is",
               nearest ? nearest : names[0], nearest ? "?" : "");
    return NULL;
}
