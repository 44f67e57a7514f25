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
    int relus;                             /* of MobileNetV3: named by counting */
    float momentum, epsilon;               /* of its batch normalization layers */
    mirt_initializer conv_initializer, top_initializer; /* zeros: the layers' defaults */
    char prefix[32], name[64];
} mirt__network;

/* Names of layers consist of the prefix and, in these functions, a suffix; NULL: the layer has its default name. */
MIRT__LIB const char *mirt__network_name(mirt__network *n, const char *suffix);
/* A convolution, with a bias only if `bias`. */
MIRT__LIB void mirt__network_conv(mirt__network *n, const char *suffix, int filters, int kernel, int stride,
                                  mirt_padding padding, bool bias, mirt_activation_kind activation);
MIRT__LIB void mirt__network_depthwise(mirt__network *n, const char *suffix, int kernel, int stride,
                                       mirt_padding padding);
MIRT__LIB void mirt__network_norm(mirt__network *n, const char *suffix);
MIRT__LIB void mirt__network_activation(mirt__network *n, const char *suffix, mirt_activation_kind kind);
/* max_value 0: none. */
MIRT__LIB void mirt__network_relu(mirt__network *n, const char *suffix, float max_value);
MIRT__LIB void mirt__network_pad(mirt__network *n, const char *suffix, int before, int after);
MIRT__LIB void mirt__network_dropout(mirt__network *n, const char *suffix, double rate, bool whole_rows);
/* a + b. */
MIRT__LIB void mirt__network_add(mirt__network *n, const char *suffix, mirt_tensor *a, mirt_tensor *b);
/* x times the image whose channels it weighs. */
MIRT__LIB void mirt__network_excite(mirt__network *n, const char *suffix, mirt_tensor *image);
/* The mean, or the largest value, of each channel. */
MIRT__LIB void mirt__network_pool(mirt__network *n, const char *suffix, bool max, bool keepdims);
MIRT__LIB void mirt__network_dense(mirt__network *n, const char *suffix, int units, mirt_activation_kind activation);
/* The activation of the scores. */
MIRT__LIB mirt_activation_kind mirt__network_scores(const mirt__network *n);
/* Adds pooling, dropout and classification, or only the pooling without a top. Names of the average and maximum
   pooling; NULL: the default. */
MIRT__LIB void mirt__network_top(mirt__network *n, const char *average, const char *max);
/* Makes blue, green, red with their means subtracted, as in Caffe, of pixels from 0 to 255. */
MIRT__LIB void mirt__network_caffe(mirt__network *n);
/* Divides pixels by 255, and normalizes them with the mean and the variance of ImageNet's. */
MIRT__LIB void mirt__network_imagenet(mirt__network *n);
/* The width of MobileNets in double precision: 0.35, not the nearest float. */
MIRT__LIB double mirt__network_alpha(const mirt__network *n);
/* The multiple of 8 nearest to v that is not more than a tenth below it. */
MIRT__LIB int mirt__network_filters(double v);

MIRT__LIB void mirt__build_mnist(mirt__network *n);
MIRT__LIB void mirt__build_mobilenet_v2(mirt__network *n);
MIRT__LIB void mirt__build_mobilenet_v3(mirt__network *n);
MIRT__LIB void mirt__build_resnet(mirt__network *n);
MIRT__LIB void mirt__build_vgg16(mirt__network *n);
MIRT__LIB void mirt__build_efficientnet_v2(mirt__network *n);

#endif
