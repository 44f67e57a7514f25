// cc -O2 examples/segment.c -o segment -lm -lpthread
/* Segmentation: a small U-Net finds circles, squares and triangles, pixel by pixel.

       ./segment [DEVICES]

   DEVICES is passed to mirt_mirrored: "2" splits the cores in two. Writes segments.png: in each row two images, each
   followed by the classes of its pixels and by what the network says. Ronneberger et al. 2015. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { SIDE = 48, PIXELS = SIDE * SIDE, CLASSES = 4, TRAIN = 768, TEST = 128, BATCH = 16, EPOCHS = 8, SHOWN = 8 };

static unsigned char images[TRAIN + TEST][SIDE][SIDE][3], labels[TRAIN + TEST][SIDE][SIDE];
static float scores[TEST][SIDE][SIDE][CLASSES];

static int draw(int n) { /* from 0 to n - 1 */
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 16) % (unsigned)n);
}

/* Whether (x, y), from the shape's center, is inside: 1 is a circle, 2 a square, 3 a triangle. */
static bool is_inside(int shape, int x, int y, int radius) {
    if (shape == 1) return x * x + y * y <= radius * radius;
    if (shape == 2) return abs(x) <= radius * 4 / 5 && abs(y) <= radius * 4 / 5;
    return y <= radius * 3 / 5 && y >= -radius && 2 * abs(x) <= y + radius;
}

static void draw_shape(int i) {
    const int shape = 1 + draw(CLASSES - 1), radius = 6 + draw(8), cx = draw(SIDE), cy = draw(SIDE);
    const int color[3] = {40 + draw(216), 40 + draw(216), 40 + draw(216)};
    for (int p = 0; p < PIXELS; p++) {
        const int y = p / SIDE, x = p % SIDE;
        if (!is_inside(shape, x - cx, y - cy, radius)) continue;
        labels[i][y][x] = (unsigned char)shape;
        for (int c = 0; c < 3; c++) images[i][y][x][c] = (unsigned char)(color[c] - draw(30));
    }
}

/* Noise, and up to three shapes; later ones cover earlier ones. */
static void draw_image(int i) {
    for (int p = 0; p < PIXELS * 3; p++) (&images[i][0][0][0])[p] = (unsigned char)draw(60);
    for (int k = 1 + draw(3); k > 0; k--) draw_shape(i);
}

static mirt_dataset *open_data(int first, int count) {
    const mirt_data data = {
        .x = {mirt_make_array(images[first], MIRT_UINT8, MIRT_SHAPE(count, SIDE, SIDE, 3))},
        .y = {mirt_make_array(labels[first], MIRT_UINT8, MIRT_SHAPE(count, SIDE, SIDE))}};
    return mirt_arrays_of(&data);
}

static mirt_tensor *convolve(mirt_tensor *x, int filters) {
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = filters, .kernel = {3}, .padding = MIRT_SAME, .no_bias = true});
    return mirt_activation(mirt_batch_norm(x, &(mirt_batch_norm_desc){.momentum = 0.9f}), MIRT_RELU);
}

static mirt_tensor *convolve_twice(mirt_tensor *x, int filters) { return convolve(convolve(x, filters), filters); }
/* Twice as large, beside what the way down has at that size. */
static mirt_tensor *join(mirt_tensor *x, mirt_tensor *beside) {
    mirt_tensor *both[2] = {mirt_up_sampling2d(x, NULL), beside};
    return mirt_concatenate(both, 2, -1);
}

static mirt_model *build(mirt_strategy *strategy) {
    mirt_model *model = mirt_model_create(strategy, "unet");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(SIDE, SIDE, 3)), 1.0f / 255, 0);
    mirt_tensor *large = convolve_twice(x, 8), *middle = convolve_twice(mirt_max_pool2d(large, NULL), 16);
    x = convolve_twice(mirt_max_pool2d(middle, NULL), 32);
    x = convolve_twice(join(x, middle), 16);
    x = convolve_twice(join(x, large), 8);
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = CLASSES, .kernel = {1}, .name = "classes"});
    mirt_model_output(model, x); /* (rows, height, width, classes): the loss is of each pixel */
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(3e-3f),
        .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true,
        .metrics = {MIRT_ACCURACY, MIRT_MEAN_IOU}});
    return model;
}

static bool save_picture(const char *path) {
    static const float colors[CLASSES][3] = {{20, 20, 30}, {86, 180, 233}, {230, 159, 0}, {0, 158, 115}};
    static float sheet[SHOWN][3][PIXELS][3]; /* the image, its classes, the prediction */
    for (int i = 0; i < SHOWN; i++) {
        for (int p = 0; p < PIXELS; p++) {
            const float *score = &scores[i][0][0][0] + (size_t)p * CLASSES;
            int best = 0;
            for (int c = 1; c < CLASSES; c++) best = score[c] > score[best] ? c : best;
            for (int c = 0; c < 3; c++) sheet[i][0][p][c] = (&images[TRAIN + i][0][0][0])[p * 3 + c];
            memcpy(sheet[i][1][p], colors[(&labels[TRAIN + i][0][0])[p]], sizeof *colors);
            memcpy(sheet[i][2][p], colors[best], sizeof *colors);
        }
    }
    const mirt_array array = mirt_make_array(sheet, MIRT_FLOAT32, MIRT_SHAPE(SHOWN * 3, SIDE, SIDE, 3));
    return mirt_write_png(path, array, 6) == MIRT_OK;
}

int main(int argc, char **argv) {
    mirt_logs logs;
    for (int i = 0; i < TRAIN + TEST; i++) draw_image(i);
    mirt_strategy *strategy = mirt_mirrored(argc > 1 ? argv[1] : NULL);
    mirt_model *model = strategy ? build(strategy) : NULL;
    mirt_dataset *train = mirt_batch(mirt_shuffle(open_data(0, TRAIN), TRAIN), BATCH);
    mirt_dataset *test = mirt_batch(open_data(TRAIN, TEST), BATCH);
    if (!model || !mirt_fit(model, train, &(mirt_fit_desc){.epochs = EPOCHS, .validation = test}) ||
        mirt_evaluate(model, test, &logs) != MIRT_OK ||
        mirt_predict(model, test, &scores[0][0][0][0], sizeof scores / sizeof(float)) != MIRT_OK ||
        !save_picture("segments.png")) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    printf("evaluate: accuracy %.4f, mean intersection over union %.4f\nsaved: segments.png\n",
           mirt_logs_value(&logs, "accuracy"), mirt_logs_value(&logs, "mean_io_u"));
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return 0;
}
