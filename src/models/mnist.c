#include "models.h"
/* The convnet of Keras's "Distributed training" tutorial. */

MIRT__LIB void mirt__build_mnist(mirt__network *n) {
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    if (n->d.preprocessing != MIRT_PREPROCESSING_OFF) n->x = mirt_rescale(n->x, 1.0f / 255, 0);
    mirt_conv2d_desc conv;
    memset(&conv, 0, sizeof conv);
    conv.filters = 32;
    conv.kernel[0] = conv.kernel[1] = 3;
    conv.activation = MIRT_RELU;
    n->x = mirt_flatten(mirt_max_pool2d(mirt_conv2d(n->x, &conv), NULL));
    dense.units = 64;
    dense.activation = MIRT_RELU;
    n->x = mirt_dense(n->x, &dense);
    dense.units = n->d.classes;
    dense.activation = MIRT_LINEAR;
    n->x = mirt_dense(n->x, &dense);
}
