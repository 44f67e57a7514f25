#ifndef MIRT__MODELS_H
#define MIRT__MODELS_H
/* What the files of ready-made networks share. */
#include "../nn/layers.h"

/* A network while it is recorded; x is what the next layer takes. */
typedef struct mirt__network {
    mirt_model *model;
    mirt_tensor *x;
    mirt_application_desc d;               /* with the defaults of its family */
    int variant;                           /* of its family */
    float momentum, epsilon;               /* of its batch normalizations */
    mirt_initializer conv_initializer, top_initializer; /* zeros: the layers' own */
    char prefix[32], name[64];
} mirt__network;

/* Names of layers are the prefix and, in these functions, a suffix. */
MIRT__LIB const char *mirt__network_name(mirt__network *n, const char *suffix);
/* Without a bias unless `bias`. */
MIRT__LIB void mirt__network_conv(mirt__network *n, const char *suffix, int filters, int kernel, int stride,
                                  mirt_padding padding, bool bias, mirt_activation_kind activation);
MIRT__LIB void mirt__network_depthwise(mirt__network *n, const char *suffix, int stride, mirt_padding padding);
MIRT__LIB void mirt__network_norm(mirt__network *n, const char *suffix);
MIRT__LIB void mirt__network_activation(mirt__network *n, const char *suffix, mirt_activation_kind kind);
MIRT__LIB void mirt__network_pad(mirt__network *n, const char *suffix, int before, int after);
MIRT__LIB void mirt__network_dropout(mirt__network *n, const char *suffix, double rate, bool whole_rows);
/* a + b. */
MIRT__LIB void mirt__network_add(mirt__network *n, const char *suffix, mirt_tensor *a, mirt_tensor *b);
/* Pooling, dropout and classes, or what there is without them; `name` of the average, and of the maximum; NULL: the
   default. */
MIRT__LIB void mirt__network_top(mirt__network *n, const char *average, const char *max);

MIRT__LIB void mirt__build_mnist(mirt__network *n);
MIRT__LIB void mirt__build_mobilenet_v2(mirt__network *n);
MIRT__LIB void mirt__build_resnet50(mirt__network *n);
MIRT__LIB void mirt__build_efficientnet_v2(mirt__network *n);

#endif
