#include "models.h"
/* Sandler et al. 2018. Keras: applications.MobileNetV2. */

static void mirt__mobilenet_norm_relu(mirt__network *n, const char *norm, const char *relu) {
    mirt__network_norm(n, norm);
    mirt__network_relu(n, relu, 6);
}

static void mirt__mobilenet_block(mirt__network *n, int number, int filters, int stride) {
    mirt_tensor *in = n->x;
    const int channels = (int)mirt_tensor_shape(in).dim[3];
    snprintf(n->prefix, sizeof n->prefix, number ? "block_%d_" : "expanded_conv_", number);
    if (number) {
        mirt__network_conv(n, "expand", 6 * channels, 1, 1, MIRT_SAME, false, MIRT_LINEAR);
        mirt__mobilenet_norm_relu(n, "expand_BN", "expand_relu");
    }
    if (stride == 2) mirt__network_pad(n, "pad", (int)mirt_tensor_shape(n->x).dim[1] % 2, 1);
    mirt__network_depthwise(n, "depthwise", 3, stride, stride == 1 ? MIRT_SAME : MIRT_VALID);
    mirt__mobilenet_norm_relu(n, "depthwise_BN", "depthwise_relu");
    mirt__network_conv(n, "project", filters, 1, 1, MIRT_SAME, false, MIRT_LINEAR);
    mirt__network_norm(n, "project_BN");
    if (channels == filters && stride == 1) mirt__network_add(n, "add", in, n->x);
}

MIRT__LIB void mirt__build_mobilenet_v2(mirt__network *n) {
    static const struct { short filters, stride, blocks; } stages[] = {
        {16, 1, 1}, {24, 2, 2}, {32, 2, 3}, {64, 2, 4}, {96, 1, 3}, {160, 2, 3}, {320, 1, 1}
    };
    const double alpha = mirt__network_alpha(n);
    int number = 0;
    n->momentum = 0.999f;
    n->epsilon = 1e-3f;
    if (n->d.preprocessing == MIRT_PREPROCESSING_ON) n->x = mirt_rescale(n->x, 1 / 127.5f, -1);
    mirt__network_conv(n, "Conv1", mirt__network_filters(32 * alpha), 3, 2, MIRT_SAME, false, MIRT_LINEAR);
    mirt__mobilenet_norm_relu(n, "bn_Conv1", "Conv1_relu");
    for (int i = 0; i < MIRT__COUNT(stages); i++) {
        for (int k = 0; k < stages[i].blocks; k++) {
            mirt__mobilenet_block(n, number++, mirt__network_filters(floor(stages[i].filters * alpha)),
                                  k ? 1 : stages[i].stride);
        }
    }
    n->prefix[0] = 0;
    mirt__network_conv(n, "Conv_1", alpha > 1 ? mirt__network_filters(1280 * alpha) : 1280, 1, 1, MIRT_VALID, false,
                       MIRT_LINEAR);
    mirt__mobilenet_norm_relu(n, "Conv_1_bn", "out_relu");
    mirt__network_top(n, NULL, NULL);
}
