#include "models.h"
/* Simonyan & Zisserman 2014. Keras: applications.VGG16. */

MIRT__LIB void mirt__build_vgg16(mirt__network *n) {
    static const struct { short filters, convolutions; } blocks[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
    mirt_pool2d_desc pool;
    char suffix[16];
    memset(&pool, 0, sizeof pool);
    if (n->d.preprocessing == MIRT_PREPROCESSING_ON) mirt__network_caffe(n);
    for (int i = 0; i < MIRT__COUNT(blocks); i++) {
        snprintf(n->prefix, sizeof n->prefix, "block%d_", i + 1);
        for (int k = 1; k <= blocks[i].convolutions; k++) {
            snprintf(suffix, sizeof suffix, "conv%d", k);
            mirt__network_conv(n, suffix, blocks[i].filters, 3, 1, MIRT_SAME, true, MIRT_RELU);
        }
        pool.name = mirt__network_name(n, "pool");
        n->x = mirt_max_pool2d(n->x, &pool);
    }
    n->prefix[0] = 0;
    if (n->d.no_top) {
        mirt__network_top(n, NULL, NULL);
        return;
    }
    n->x = mirt_flatten(n->x);
    mirt__network_dense(n, "fc1", 4096, MIRT_RELU);
    mirt__network_dense(n, "fc2", 4096, MIRT_RELU);
    mirt__network_dense(n, "predictions", n->d.classes, mirt__network_scores(n));
}
