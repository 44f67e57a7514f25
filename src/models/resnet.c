#include "models.h"
/* He et al. 2016. Keras: applications.ResNet50. */

/* Layers are recorded in the order in which Keras lists them. */
static void mirt__resnet_block(mirt__network *n, int stage, int block, int filters, int stride) {
    mirt_tensor *in = n->x, *inner, *shortcut = n->x;
    snprintf(n->prefix, sizeof n->prefix, "conv%d_block%d_", stage, block);
    mirt__network_conv(n, "1_conv", filters, 1, stride, MIRT_VALID, true, MIRT_LINEAR);
    mirt__network_norm(n, "1_bn");
    mirt__network_activation(n, "1_relu", MIRT_RELU);
    mirt__network_conv(n, "2_conv", filters, 3, 1, MIRT_SAME, true, MIRT_LINEAR);
    mirt__network_norm(n, "2_bn");
    mirt__network_activation(n, "2_relu", MIRT_RELU);
    inner = n->x;
    if (block == 1) {
        n->x = in;
        mirt__network_conv(n, "0_conv", 4 * filters, 1, stride, MIRT_VALID, true, MIRT_LINEAR);
        shortcut = n->x;
    }
    n->x = inner;
    mirt__network_conv(n, "3_conv", 4 * filters, 1, 1, MIRT_VALID, true, MIRT_LINEAR);
    inner = n->x;
    if (block == 1) {
        n->x = shortcut;
        mirt__network_norm(n, "0_bn");
        shortcut = n->x;
    }
    n->x = inner;
    mirt__network_norm(n, "3_bn");
    mirt__network_add(n, "add", shortcut, n->x);
    mirt__network_activation(n, "out", MIRT_RELU);
}

MIRT__LIB void mirt__build_resnet50(mirt__network *n) {
    static const signed char blocks[] = {3, 4, 6, 3};
    if (n->d.preprocessing == MIRT_PREPROCESSING_ON) { /* as in Caffe: blue, green, red, with their means subtracted */
        mirt_normalization_desc d;
        memset(&d, 0, sizeof d);
        d.reverse = true;
        d.mean[0] = 103.939f;
        d.mean[1] = 116.779f;
        d.mean[2] = 123.68f;
        n->x = mirt_normalization(n->x, &d);
    }
    n->epsilon = 1.001e-5f;
    mirt__network_pad(n, "conv1_pad", 3, 3);
    mirt__network_conv(n, "conv1_conv", 64, 7, 2, MIRT_VALID, true, MIRT_LINEAR);
    mirt__network_norm(n, "conv1_bn");
    mirt__network_activation(n, "conv1_relu", MIRT_RELU);
    mirt__network_pad(n, "pool1_pad", 1, 1);
    mirt_pool2d_desc pool;
    memset(&pool, 0, sizeof pool);
    pool.size[0] = 3;
    pool.strides[0] = 2;
    pool.name = "pool1_pool";
    n->x = mirt_max_pool2d(n->x, &pool);
    for (int i = 0; i < MIRT__COUNT(blocks); i++) {
        for (int k = 0; k < blocks[i]; k++) mirt__resnet_block(n, i + 2, k + 1, 64 << i, i && !k ? 2 : 1);
    }
    mirt__network_top(n, "avg_pool", "max_pool");
}
