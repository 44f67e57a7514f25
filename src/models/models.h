#ifndef MIRT__MODELS_H
#define MIRT__MODELS_H
/* Declarations shared by the ready-made networks. */
#include "../nn/layers.h"

/* A network while it is recorded; x is the input of the next layer. */
typedef struct mirt__network {
    mirt_model *model;
    mirt_tensor *x;
    mirt_application_desc d;               /* with the defaults of its family filled in */
    int variant;                           /* data of the variant */
    float momentum, epsilon;               /* of its batch normalization layers */
    mirt_initializer conv_initializer, top_initializer; /* zeros: the layers' defaults */
    char prefix[32], name[64];
} mirt__network;

/* Names of layers consist of the prefix and, in these functions, a suffix. */
MIRT__LIB const char *mirt__network_name(mirt__network *n, const char *suffix);
/* A convolution, with a bias only if `bias`. */
MIRT__LIB void mirt__network_conv(mirt__network *n, const char *suffix, int filters, int kernel, int stride,
                                  mirt_padding padding, bool bias, mirt_activation_kind activation);
MIRT__LIB void mirt__network_depthwise(mirt__network *n, const char *suffix, int stride, mirt_padding padding);
MIRT__LIB void mirt__network_norm(mirt__network *n, const char *suffix);
MIRT__LIB void mirt__network_activation(mirt__network *n, const char *suffix, mirt_activation_kind kind);
MIRT__LIB void mirt__network_pad(mirt__network *n, const char *suffix, int before, int after);
MIRT__LIB void mirt__network_dropout(mirt__network *n, const char *suffix, double rate, bool whole_rows);
/* a + b. */
MIRT__LIB void mirt__network_add(mirt__network *n, const char *suffix, mirt_tensor *a, mirt_tensor *b);
/* Adds pooling, dropout and classification, or only the pooling without a top. Names of the average and maximum
   pooling; NULL: the default. */
MIRT__LIB void mirt__network_top(mirt__network *n, const char *average, const char *max);

MIRT__LIB void mirt__build_mnist(mirt__network *n);
MIRT__LIB void mirt__build_mobilenet_v2(mirt__network *n);
MIRT__LIB void mirt__build_resnet50(mirt__network *n);
MIRT__LIB void mirt__build_efficientnet_v2(mirt__network *n);

#endif
