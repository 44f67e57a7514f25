#include "models.h"
/* He et al. 2016. Keras: applications.ResNet50 and ResNet101; torchvision: resnet18 and resnet34. */

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

/* Without biases, and padded on all sides where it has a stride. */
static void mirt__resnet_basic_block(mirt__network *n, int stage, int block, int filters, int stride) {
    mirt_tensor *shortcut = n->x, *inner;
    const bool projects = stride != 1 || mirt_tensor_shape(n->x).dim[3] != filters;
    snprintf(n->prefix, sizeof n->prefix, "conv%d_block%d_", stage, block);
    if (stride != 1) mirt__network_pad(n, "1_pad", 1, 1);
    mirt__network_conv(n, "1_conv", filters, 3, stride, stride != 1 ? MIRT_VALID : MIRT_SAME, false, MIRT_LINEAR);
    mirt__network_norm(n, "1_bn");
    mirt__network_activation(n, "1_relu", MIRT_RELU);
    mirt__network_conv(n, "2_conv", filters, 3, 1, MIRT_SAME, false, MIRT_LINEAR);
    mirt__network_norm(n, "2_bn");
    inner = n->x;
    if (projects) {
        n->x = shortcut;
        mirt__network_conv(n, "0_conv", filters, 1, stride, MIRT_VALID, false, MIRT_LINEAR);
        mirt__network_norm(n, "0_bn");
        shortcut = n->x;
    }
    mirt__network_add(n, "add", shortcut, inner);
    mirt__network_activation(n, "out", MIRT_RELU);
}

MIRT__LIB void mirt__build_resnet(mirt__network *n) {
    static const struct { signed char blocks[4]; bool basic; } variants[] = {
        {{2, 2, 2, 2}, true}, {{3, 4, 6, 3}, true}, {{3, 4, 6, 3}, false}, {{3, 4, 23, 3}, false}
    };
    const signed char *blocks = variants[n->variant].blocks;
    const bool basic = variants[n->variant].basic;
    mirt_pool2d_desc pool;
    memset(&pool, 0, sizeof pool);
    if (basic) { /* numbers of torchvision */
        n->momentum = 0.9f;
        n->conv_initializer = mirt_variance_scaling(2, MIRT_FAN_OUT, MIRT_DIST_UNTRUNCATED_NORMAL);
        n->top_initializer = mirt_variance_scaling(1 / 3.0f, MIRT_FAN_IN, MIRT_DIST_UNIFORM);
    }
    n->epsilon = basic ? 1e-5f : 1.001e-5f;
    if (n->d.preprocessing == MIRT_PREPROCESSING_ON) {
        if (basic) mirt__network_imagenet(n);
        else mirt__network_caffe(n);
    }
    mirt__network_pad(n, "conv1_pad", 3, 3);
    mirt__network_conv(n, "conv1_conv", 64, 7, 2, MIRT_VALID, !basic, MIRT_LINEAR);
    mirt__network_norm(n, "conv1_bn");
    mirt__network_activation(n, "conv1_relu", MIRT_RELU);
    mirt__network_pad(n, "pool1_pad", 1, 1);
    pool.size[0] = 3;
    pool.strides[0] = 2;
    pool.name = "pool1_pool";
    n->x = mirt_max_pool2d(n->x, &pool);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < blocks[i]; k++)
            (basic ? mirt__resnet_basic_block : mirt__resnet_block)(n, i + 2, k + 1, 64 << i, i && !k ? 2 : 1);
    }
    mirt__network_top(n, "avg_pool", "max_pool");
}
