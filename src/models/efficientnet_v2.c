#include "models.h"
/* Tan & Le 2021. Keras: applications.EfficientNetV2B0 to L. */

/* A stage of blocks; the first block has the stride. */
typedef struct mirt__efficient_stage { short blocks, filters, expand, stride; bool fused; } mirt__efficient_stage;
#define MIRT__EFFICIENT_STAGES 7
typedef struct mirt__efficient_variant {
    double width, depth; /* coefficients */
    int stem;
    mirt__efficient_stage stage[MIRT__EFFICIENT_STAGES]; /* the list ends at the first stage without blocks */
} mirt__efficient_variant;

#define MIRT__EFFICIENT_B(width, depth) \
    {width, depth, 32, {{1, 16, 1, 1, true}, {2, 32, 4, 2, true}, {2, 48, 4, 2, true}, {3, 96, 4, 2, false}, \
                        {5, 112, 6, 1, false}, {8, 192, 6, 2, false}, {0, 0, 0, 0, false}}}
static const mirt__efficient_variant mirt__efficient_variants[] = {
    MIRT__EFFICIENT_B(1.0, 1.0), MIRT__EFFICIENT_B(1.0, 1.1), MIRT__EFFICIENT_B(1.1, 1.2), MIRT__EFFICIENT_B(1.2, 1.4),
    {1, 1, 24, {{2, 24, 1, 1, true}, {4, 48, 4, 2, true}, {4, 64, 4, 2, true}, {6, 128, 4, 2, false},
                {9, 160, 6, 1, false}, {15, 256, 6, 2, false}, {0, 0, 0, 0, false}}},
    {1, 1, 24, {{3, 24, 1, 1, true}, {5, 48, 4, 2, true}, {5, 80, 4, 2, true}, {7, 160, 4, 2, false},
                {14, 176, 6, 1, false}, {18, 304, 6, 2, false}, {5, 512, 6, 1, false}}},
    {1, 1, 32, {{4, 32, 1, 1, true}, {7, 64, 4, 2, true}, {7, 96, 4, 2, true}, {10, 192, 4, 2, false},
                {19, 224, 6, 1, false}, {25, 384, 6, 2, false}, {7, 640, 6, 1, false}}},
};
#undef MIRT__EFFICIENT_B

static int mirt__efficient_filters(const mirt__efficient_variant *v, int filters) {
    int rounded = (int)(filters * v->width + 4) / 8 * 8;
    return rounded < 8 ? 8 : rounded;
}

static void mirt__efficient_norm_silu(mirt__network *n, const char *norm, const char *activation) {
    mirt__network_norm(n, norm);
    mirt__network_activation(n, activation, MIRT_SILU);
}

/* Hu et al. 2018. */
static void mirt__efficient_excite(mirt__network *n, int reduced) {
    mirt_tensor *image = n->x;
    const int channels = (int)mirt_tensor_shape(image).dim[3];
    mirt__network_pool(n, "se_squeeze", false, false);
    mirt_next_name(n->model, mirt__network_name(n, "se_reshape"));
    n->x = mirt_reshape_layer(n->x, MIRT_SHAPE(1, 1, channels));
    mirt__network_conv(n, "se_reduce", reduced, 1, 1, MIRT_SAME, true, MIRT_SILU);
    mirt__network_conv(n, "se_expand", channels, 1, 1, MIRT_SAME, true, MIRT_SIGMOID);
    mirt__network_excite(n, "se_excite", image);
}

static void mirt__efficient_block(mirt__network *n, const mirt__efficient_stage *stage, int filters, int stride,
                                  double drop) {
    mirt_tensor *in = n->x;
    const int channels = (int)mirt_tensor_shape(in).dim[3];
    const bool fused = stage->fused, expands = stage->expand != 1;
    if (expands) {
        mirt__network_conv(n, "expand_conv", stage->expand * channels, fused ? 3 : 1, fused ? stride : 1, MIRT_SAME,
                           false, MIRT_LINEAR);
        mirt__efficient_norm_silu(n, "expand_bn", "expand_activation");
    }
    if (!fused) {
        mirt__network_depthwise(n, "dwconv2", 3, stride, MIRT_SAME);
        mirt__efficient_norm_silu(n, "bn", "activation");
        mirt__efficient_excite(n, channels / 4);
    }
    mirt__network_conv(n, "project_conv", filters, expands ? 1 : 3, expands ? 1 : stride, MIRT_SAME, false,
                       MIRT_LINEAR);
    mirt__network_norm(n, "project_bn");
    if (!expands) mirt__network_activation(n, "project_activation", MIRT_SILU);
    if (stride != 1 || channels != filters) return;
    if (drop > 0) mirt__network_dropout(n, "drop", drop, true); /* Huang et al. 2016: drops the whole branch of a
                                                                   sample */
    mirt__network_add(n, "add", n->x, in);
}

MIRT__LIB void mirt__build_efficientnet_v2(mirt__network *n) {
    const mirt__efficient_variant *v = &mirt__efficient_variants[n->variant];
    int number = 0, blocks = 0;
    n->momentum = 0.9f;
    n->conv_initializer = mirt_variance_scaling(2, MIRT_FAN_OUT, MIRT_DIST_TRUNCATED_NORMAL);
    n->top_initializer = mirt_variance_scaling(1 / 3.0f, MIRT_FAN_OUT, MIRT_DIST_UNIFORM);
    if (n->d.preprocessing != MIRT_PREPROCESSING_OFF) {
        if (n->variant <= MIRT_EFFICIENTNET_V2_B3) mirt__network_imagenet(n);
        else n->x = mirt_rescale(n->x, 1 / 128.0f, -1);
    }
    for (int i = 0; i < MIRT__EFFICIENT_STAGES; i++) blocks += v->stage[i].blocks;
    mirt__network_conv(n, "stem_conv", mirt__efficient_filters(v, v->stem), 3, 2, MIRT_SAME, false, MIRT_LINEAR);
    mirt__efficient_norm_silu(n, "stem_bn", "stem_activation");
    for (int i = 0; i < MIRT__EFFICIENT_STAGES && v->stage[i].blocks; i++) {
        const mirt__efficient_stage *stage = &v->stage[i];
        const int repeats = (int)ceil(v->depth * stage->blocks);
        for (int k = 0; k < repeats; k++, number++) {
            snprintf(n->prefix, sizeof n->prefix, "block%d%c_", i + 1, 'a' + k);
            mirt__efficient_block(n, stage, mirt__efficient_filters(v, stage->filters), k ? 1 : stage->stride,
                                  (double)n->d.drop_connect_rate * number / blocks);
        }
    }
    n->prefix[0] = 0;
    mirt__network_conv(n, "top_conv", mirt__efficient_filters(v, 1280), 1, 1, MIRT_SAME, false, MIRT_LINEAR);
    mirt__efficient_norm_silu(n, "top_bn", "top_activation");
    mirt__network_top(n, "avg_pool", "max_pool");
}
#undef MIRT__EFFICIENT_STAGES
