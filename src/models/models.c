#include "models.h"
/* The table of ready-made networks. */

typedef struct mirt__application_row {
    const char *name;
    const char *keras; /* the model's default name; NULL: composed of width and size */
    void (*build)(mirt__network *n);
    short variant, size;
    bool alpha, dropout, drop_connect; /* whether these settings apply */
} mirt__application_row;

static const mirt__application_row mirt__application_table[] = {
    /* a family's rows are in the order of its variants */
    {"efficientnet_v2_b0", "efficientnetv2-b0", mirt__build_efficientnet_v2, 0, 224, false, true, true},
    {"efficientnet_v2_b1", "efficientnetv2-b1", mirt__build_efficientnet_v2, 1, 240, false, true, true},
    {"efficientnet_v2_b2", "efficientnetv2-b2", mirt__build_efficientnet_v2, 2, 260, false, true, true},
    {"efficientnet_v2_b3", "efficientnetv2-b3", mirt__build_efficientnet_v2, 3, 300, false, true, true},
    {"efficientnet_v2_s", "efficientnetv2-s", mirt__build_efficientnet_v2, 4, 384, false, true, true},
    {"efficientnet_v2_m", "efficientnetv2-m", mirt__build_efficientnet_v2, 5, 480, false, true, true},
    {"efficientnet_v2_l", "efficientnetv2-l", mirt__build_efficientnet_v2, 6, 480, false, true, true},
    {"mobilenet_v2", NULL, mirt__build_mobilenet_v2, 0, 224, true, false, false},
    {"mobilenet_v3_small", "MobileNetV3Small", mirt__build_mobilenet_v3, 0, 224, true, true, false},
    {"mobilenet_v3_large", "MobileNetV3Large", mirt__build_mobilenet_v3, 1, 224, true, true, false},
    {"resnet18", "resnet18", mirt__build_resnet, 0, 224, false, false, false},
    {"resnet34", "resnet34", mirt__build_resnet, 1, 224, false, false, false},
    {"resnet50", "resnet50", mirt__build_resnet, 2, 224, false, false, false},
    {"resnet101", "resnet101", mirt__build_resnet, 3, 224, false, false, false},
    {"vgg16", "vgg16", mirt__build_vgg16, 0, 224, false, false, false},
    {"mnist", "mnist", mirt__build_mnist, 0, 28, false, false, false},
};

/* Checks a rate; 0 means the default, and negative means no dropout. */
static mirt_status mirt__application_rate(bool used, const char *what, float *rate) {
    if (!(*rate < 1))
        return mirt__fail(MIRT_E_INVALID, "%s is %g; it must be below 1; negative turns it off", what, (double)*rate);
    if (*rate > 0 && !used)
        return mirt__fail(MIRT_E_INVALID, "%s is %g, but this network does not use it", what, (double)*rate);
    if (*rate == 0) *rate = used ? 0.2f : 0;
    return MIRT_OK;
}

/* Checks the description and sets defaults. */
static mirt_status mirt__application_settings(const mirt__application_row *row, mirt_application_desc *d) {
    if (row->build != mirt__build_mnist && d->size < 32)
        return mirt__fail(MIRT_E_SHAPE, "size is %d; it must be at least 32, since images are halved five times",
                          d->size);
    if (d->alpha != 0 && d->alpha != 1 && !row->alpha)
        return mirt__fail(MIRT_E_INVALID, "alpha is %g, but this network has only one width", (double)d->alpha);
    if (d->alpha == 0) d->alpha = 1;
    if (!(d->alpha > 0 && d->alpha <= 16))
        return mirt__fail(MIRT_E_INVALID, "alpha is %g; it must be above 0 and at most 16", (double)d->alpha);
    if (d->classes < 0) return mirt__fail(MIRT_E_INVALID, "classes is %d; it must be positive", d->classes);
    if (d->classes && d->no_top)
        return mirt__fail(MIRT_E_INVALID, "classes is %d, but a network without its top has no classes", d->classes);
    if (!d->classes) d->classes = row->build == mirt__build_mnist ? 10 : 1000;
    if ((int)d->pooling < 0 || d->pooling > MIRT_POOLING_MAX)
        return mirt__fail(MIRT_E_INVALID, "invalid pooling (%d)", (int)d->pooling);
    if (d->pooling && !d->no_top)
        return mirt__fail(MIRT_E_INVALID, "pooling applies only to a network without its top");
    if ((int)d->preprocessing < 0 || d->preprocessing > MIRT_PREPROCESSING_OFF)
        return mirt__fail(MIRT_E_INVALID, "invalid preprocessing (%d)", (int)d->preprocessing);
    if (mirt__application_rate(row->dropout, "dropout_rate", &d->dropout_rate) != MIRT_OK) return mirt_last_status();
    return mirt__application_rate(row->drop_connect, "drop_connect_rate", &d->drop_connect_rate);
}

static mirt_model *mirt__application_build(mirt_strategy *strategy, const mirt__application_row *row,
                                           const mirt_application_desc *desc) {
    mirt__network n;
    char name[64];
    memset(&n, 0, sizeof n);
    if (desc) n.d = *desc;
    if (!n.d.size) n.d.size = row->size;
    if (row->build == mirt__build_mnist && (n.d.size != row->size || n.d.no_top)) {
        mirt__fail(MIRT_E_INVALID, "%s takes images of %dx%d and cannot be built without its top", row->name,
                   row->size, row->size);
        return NULL;
    }
    if (mirt__application_settings(row, &n.d) != MIRT_OK) {
        mirt__fail_at("%s", row->name);
        return NULL;
    }
    n.variant = row->variant;
    snprintf(name, sizeof name, "mobilenetv2_%.2f_%d", (double)n.d.alpha, n.d.size);
    n.model = mirt_model_create(strategy, n.d.name ? n.d.name : row->keras ? row->keras : name);
    if (!n.model) return NULL;
    n.x = mirt_input(n.model, MIRT_SHAPE(n.d.size, n.d.size, row->build == mirt__build_mnist ? 1 : 3));
    row->build(&n);
    mirt_model_output(n.model, n.x);
    if (!n.d.weights || mirt_load_weights(n.model, n.d.weights) == MIRT_OK) return n.model;
    if (row->alpha && mirt_last_status() == MIRT_E_SHAPE)
        mirt__fail(MIRT_E_SHAPE, "%s; alpha is %g here: check that the file has the same width", mirt_last_error(),
                   (double)n.d.alpha);
    mirt_model_destroy(n.model);
    return NULL;
}

MIRT_API mirt_model *mirt_application(mirt_strategy *strategy, const char *name, const mirt_application_desc *desc) {
    MIRT__USE(strategy, NULL);
    const char *names[MIRT__COUNT(mirt__application_table)];
    for (int i = 0; i < MIRT__COUNT(names); i++) names[i] = mirt__application_table[i].name;
    for (int i = 0; name && i < MIRT__COUNT(names); i++) {
        if (strcmp(name, names[i]) == 0) return mirt__application_build(strategy, &mirt__application_table[i], desc);
    }
    const char *nearest = name ? mirt__nearest(name, names, MIRT__COUNT(names)) : NULL;
    if (nearest) mirt__fail(MIRT_E_NOT_FOUND, "there is no model \"%s\"; did you mean \"%s\"?", name, nearest);
    else
        mirt__fail(MIRT_E_NOT_FOUND,
                   "there is no model \"%s\"; there are mobilenet_v2, mobilenet_v3_small and _large, resnet18, "
                   "resnet34, resnet50, resnet101, vgg16, efficientnet_v2_b0 to _b3, _s, _m, _l, and mnist",
                   name ? name : "");
    return NULL;
}

MIRT_API mirt_model *mirt_model_by_name(mirt_strategy *strategy, const char *name) {
    return mirt_application(strategy, name, NULL);
}
MIRT_API mirt_model *mirt_mobilenet_v2(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "mobilenet_v2", desc);
}
MIRT_API mirt_model *mirt_mobilenet_v3_small(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "mobilenet_v3_small", desc);
}
MIRT_API mirt_model *mirt_mobilenet_v3_large(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "mobilenet_v3_large", desc);
}
MIRT_API mirt_model *mirt_resnet18(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "resnet18", desc);
}
MIRT_API mirt_model *mirt_resnet34(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "resnet34", desc);
}
MIRT_API mirt_model *mirt_resnet50(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "resnet50", desc);
}
MIRT_API mirt_model *mirt_resnet101(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "resnet101", desc);
}
MIRT_API mirt_model *mirt_vgg16(mirt_strategy *strategy, const mirt_application_desc *desc) {
    return mirt_application(strategy, "vgg16", desc);
}

MIRT_API mirt_model *mirt_efficientnet_v2(mirt_strategy *strategy, mirt_efficientnet_v2_variant variant,
                                          const mirt_application_desc *desc) {
    if ((int)variant >= 0 && variant <= MIRT_EFFICIENTNET_V2_L)
        return mirt__application_build(strategy, &mirt__application_table[variant], desc);
    mirt__fail(MIRT_E_INVALID,
               "mirt_efficientnet_v2: invalid variant (%d); it must be one of mirt_efficientnet_v2_variant",
               (int)variant);
    return NULL;
}
