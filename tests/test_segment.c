/* The U-Net of examples/segment.c against float64 Keras: twenty losses of classes of pixels. */
#define main segment_main
#include "../examples/segment.c"
#undef main
#include "golden/segment.h"
#include "tap.h"

#include <math.h>

enum { CONVOLUTIONS = 11, HALF = SEGMENT_ROWS / 2, MOST_WEIGHTS = 3 * 3 * 48 * 32 };
static unsigned char pixels[SEGMENT_ROWS * PIXELS * 3], classes[SEGMENT_ROWS * PIXELS];

static void draw_batch(void) {
    for (unsigned i = 0; i < sizeof pixels; i++)
        pixels[i] = (unsigned char)floorf((golden_uniform(2000, i) + 1) * 127.5f);
    for (unsigned i = 0; i < sizeof classes; i++) classes[i] = pixels[3 * i] / 64;
}

static bool set_kernel(mirt_model *model, int i, const char *name) {
    static float values[MOST_WEIGHTS];
    mirt_weight_info info;
    for (int k = 0; k < mirt_num_weights(model); k++) {
        if (mirt_weight(model, k, &info) != MIRT_OK || strcmp(info.name, name) != 0) continue;
        for (int64_t e = 0; e < info.count; e++) values[e] = golden_uniform(2010 + (unsigned)i, (unsigned)e) / 2;
        return mirt_set_weight(model, name, values, (size_t)info.count) == MIRT_OK;
    }
    return false;
}

int main(void) {
    mirt_strategy *strategy = mirt_mirrored("1");
    mirt_model *model = build(strategy);
    char name[64];
    double most = 0;
    draw_batch();
    const mirt_status compiled = mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_sgd(0.1f, 0.9f, false),
        .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true});
    ok(compiled == MIRT_OK, "the U-Net is compiled %s", mirt_last_error());
    for (int i = 0; i < CONVOLUTIONS; i++) {
        if (i == CONVOLUTIONS - 1) snprintf(name, sizeof name, "classes/kernel");
        else if (i) snprintf(name, sizeof name, "conv2d_%d/kernel", i);
        else snprintf(name, sizeof name, "conv2d/kernel");
        if (!set_kernel(model, i, name)) ok(0, "%s: %s", name, mirt_last_error());
    }
    for (int step = 0; step < SEGMENT_STEPS; step++) {
        const int first = step % 2 ? HALF : 0;
        const mirt_array x = mirt_make_array(pixels + first * PIXELS * 3, MIRT_UINT8, MIRT_SHAPE(HALF, SIDE, SIDE, 3)),
                         y = mirt_make_array(classes + first * PIXELS, MIRT_UINT8, MIRT_SHAPE(HALF, SIDE, SIDE));
        double loss = NAN;
        const bool good = mirt_train_step(model, x, y, &loss) == MIRT_OK;
        const double off = good ? fabs(loss - golden_segment[step]) : INFINITY;
        if (!(off <= most)) most = off;
        ok(off < 1e-4, "loss of step %d: %.7f, Keras %.7f%s", step, loss, golden_segment[step],
           good ? "" : mirt_last_error());
    }
    printf("# largest difference %.1e\n", most);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
