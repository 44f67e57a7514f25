#include "models.h"
/* Howard et al. 2019. Keras: applications.MobileNetV3Small and MobileNetV3Large. */

/* A block: whether it has squeeze-and-excite, and hard swish in place of relu. */
typedef struct mirt__mobilenet_v3_block {
    double expand;
    short filters;
    signed char kernel, stride;
    bool excites, swish;
} mirt__mobilenet_v3_block;

static const mirt__mobilenet_v3_block mirt__mobilenet_v3_small[] = {
    {1, 16, 3, 2, true, false}, {72 / 16.0, 24, 3, 2, false, false}, {88 / 24.0, 24, 3, 1, false, false},
    {4, 40, 5, 2, true, true}, {6, 40, 5, 1, true, true}, {6, 40, 5, 1, true, true}, {3, 48, 5, 1, true, true},
    {3, 48, 5, 1, true, true}, {6, 96, 5, 2, true, true}, {6, 96, 5, 1, true, true}, {6, 96, 5, 1, true, true}
};
static const mirt__mobilenet_v3_block mirt__mobilenet_v3_large[] = {
    {1, 16, 3, 1, false, false}, {4, 24, 3, 2, false, false}, {3, 24, 3, 1, false, false}, {3, 40, 5, 2, true, false},
    {3, 40, 5, 1, true, false}, {3, 40, 5, 1, true, false}, {6, 80, 3, 2, false, true}, {2.5, 80, 3, 1, false, true},
    {2.3, 80, 3, 1, false, true}, {2.3, 80, 3, 1, false, true}, {6, 112, 3, 1, true, true}, {6, 112, 3, 1, true, true},
    {6, 160, 5, 2, true, true}, {6, 160, 5, 1, true, true}, {6, 160, 5, 1, true, true}
};

/* The name of a relu that Keras leaves to counting. */
static const char *mirt__mobilenet_v3_relu(mirt__network *n) {
    snprintf(n->name, sizeof n->name, n->relus ? "re_lu_%d" : "re_lu", n->relus);
    n->relus++;
    return n->name;
}

static void mirt__mobilenet_v3_norm(mirt__network *n, const char *norm, bool swish) {
    mirt_relu_desc relu;
    memset(&relu, 0, sizeof relu);
    mirt__network_norm(n, norm);
    if (swish) {
        n->x = mirt_activation(n->x, MIRT_HARD_SWISH);
    } else {
        relu.name = mirt__mobilenet_v3_relu(n);
        n->x = mirt_relu_layer(n->x, &relu);
    }
}

/* Hu et al. 2018. Keras computes hard sigmoid as ReLU(max_value=6) between two operations: one layer here. */
static void mirt__mobilenet_v3_excite(mirt__network *n) {
    mirt_tensor *image = n->x;
    const int channels = (int)mirt_tensor_shape(image).dim[3];
    mirt__network_pool(n, "squeeze_excite_avg_pool", false, true);
    mirt__network_conv(n, "squeeze_excite_conv", mirt__network_filters(channels * 0.25), 1, 1, MIRT_SAME, true,
                       MIRT_LINEAR);
    mirt__network_relu(n, "squeeze_excite_relu", 0);
    mirt__network_conv(n, "squeeze_excite_conv_1", channels, 1, 1, MIRT_SAME, true, MIRT_LINEAR);
    mirt_next_name(n->model, mirt__mobilenet_v3_relu(n));
    n->x = mirt_activation(n->x, MIRT_HARD_SIGMOID);
    mirt__network_excite(n, "squeeze_excite_mul", image);
}

static void mirt__mobilenet_v3_add(mirt__network *n, const mirt__mobilenet_v3_block *block, int number, int filters) {
    mirt_tensor *in = n->x;
    const int channels = (int)mirt_tensor_shape(in).dim[3];
    snprintf(n->prefix, sizeof n->prefix, number ? "expanded_conv_%d_" : "expanded_conv_", number);
    if (number) {
        mirt__network_conv(n, "expand", mirt__network_filters(channels * block->expand), 1, 1, MIRT_SAME, false,
                           MIRT_LINEAR);
        mirt__mobilenet_v3_norm(n, "expand_bn", block->swish);
    }
    if (block->stride == 2) {
        const int half = block->kernel / 2, even = mirt_tensor_shape(n->x).dim[1] % 2 == 0;
        mirt__network_pad(n, "depthwise_pad", half - even, half);
    }
    mirt__network_depthwise(n, "depthwise", block->kernel, block->stride, block->stride == 1 ? MIRT_SAME : MIRT_VALID);
    mirt__mobilenet_v3_norm(n, "depthwise_bn", block->swish);
    if (block->excites) mirt__mobilenet_v3_excite(n);
    mirt__network_conv(n, "project", filters, 1, 1, MIRT_SAME, false, MIRT_LINEAR);
    mirt__network_norm(n, "project_bn");
    if (channels == filters && block->stride == 1) mirt__network_add(n, "add", in, n->x);
}

MIRT__LIB void mirt__build_mobilenet_v3(mirt__network *n) {
    const bool large = n->variant;
    const mirt__mobilenet_v3_block *block = large ? mirt__mobilenet_v3_large : mirt__mobilenet_v3_small;
    const int blocks = large ? MIRT__COUNT(mirt__mobilenet_v3_large) : MIRT__COUNT(mirt__mobilenet_v3_small);
    const double alpha = mirt__network_alpha(n);
    const int last = large ? 1280 : 1024;
    n->momentum = 0.999f;
    n->epsilon = 1e-3f;
    if (n->d.preprocessing != MIRT_PREPROCESSING_OFF) n->x = mirt_rescale(n->x, 1 / 127.5f, -1);
    mirt__network_conv(n, "conv", 16, 3, 2, MIRT_SAME, false, MIRT_LINEAR);
    mirt__mobilenet_v3_norm(n, "conv_bn", true);
    for (int i = 0; i < blocks; i++)
        mirt__mobilenet_v3_add(n, &block[i], i, mirt__network_filters(block[i].filters * alpha));
    n->prefix[0] = 0;
    mirt__network_conv(n, "conv_1", 6 * (int)mirt_tensor_shape(n->x).dim[3], 1, 1, MIRT_SAME, false, MIRT_LINEAR);
    mirt__mobilenet_v3_norm(n, "conv_1_bn", true);
    if (n->d.no_top) {
        mirt__network_top(n, "avg_pool", "max_pool");
        return;
    }
    mirt__network_pool(n, NULL, false, true);
    mirt__network_conv(n, "conv_2", alpha > 1 ? mirt__network_filters(last * alpha) : last, 1, 1, MIRT_SAME, true,
                       MIRT_LINEAR);
    n->x = mirt_activation(n->x, MIRT_HARD_SWISH);
    if (n->d.dropout_rate > 0) mirt__network_dropout(n, NULL, (double)n->d.dropout_rate, false);
    mirt__network_conv(n, "logits", n->d.classes, 1, 1, MIRT_SAME, true, MIRT_LINEAR);
    n->x = mirt_flatten(n->x);
    mirt__network_activation(n, "predictions", mirt__network_scores(n));
}
