/* mirrortrain predict: what a saved model sees on photographs. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model, and room for an image and what it says of it. */
typedef struct seer {
    mirt_model *model;
    mirt_shape x; /* (1, height, width, channels) */
    float *pixels, *scores;
    int units;
} seer;

void make_probabilities(float *p, int count) {
    double sum = 0, most = (double)p[0];
    bool good = true;
    for (int i = 0; i < count; i++) {
        good = good && p[i] >= 0 && p[i] <= 1;
        sum += (double)p[i];
        if ((double)p[i] > most) most = (double)p[i];
    }
    if (count == 1 && !good) p[0] = (float)(1 / (1 + exp(-(double)p[0])));
    if (count == 1 || (good && fabs(sum - 1) < 1e-3)) return;
    sum = 0;
    for (int i = 0; i < count; i++) sum += exp((double)p[i] - most);
    for (int i = 0; i < count; i++) p[i] = (float)(exp((double)p[i] - most) / sum);
}

/* "photo.jpg: cats 0.9876" */
static void print_class(const seer *s, const char *path) {
    int names, best = 0;
    const char *const *name = mirt_model_class_names(s->model, &names);
    float p = s->scores[0];
    make_probabilities(s->scores, s->units);
    if (s->units == 1) {
        best = s->scores[0] > 0.5f;
        p = best ? s->scores[0] : 1 - s->scores[0];
    } else {
        for (int i = 1; i < s->units; i++) best = s->scores[i] > s->scores[best] ? i : best;
        p = s->scores[best];
    }
    if (best < names) tell("%s: %s %.4f", path, name[best], (double)p);
    else tell("%s: class %d %.4f", path, best, (double)p);
}

static bool predict_file(const seer *s, const char *path) {
    mirt_image image;
    mirt_color_mode mode = s->x.dim[3] == 1 ? MIRT_GRAYSCALE : s->x.dim[3] == 4 ? MIRT_RGBA : MIRT_RGB;
    bool good = mirt_read_image(path, mode, NULL, &image) == MIRT_OK;
    if (good) {
        good = mirt_resize_image(&image, (int)s->x.dim[1], (int)s->x.dim[2], MIRT_BILINEAR, false, s->pixels) == MIRT_OK;
        mirt_image_free(&image);
    }
    good = good && mirt_predict_arrays(s->model, mirt_make_array(s->pixels, MIRT_FLOAT32, s->x), s->scores, (size_t)s->units) == MIRT_OK;
    if (good) print_class(s, path);
    else complain_of_library();
    return good;
}

/* Whether it takes images and gives scores of classes; room for both. */
static bool open_seer(seer *s) {
    mirt_tensor *in = mirt_input_of(s->model, 0), *out = mirt_output_of(s->model, 0);
    mirt_shape y = mirt_tensor_shape(out);
    s->x = mirt_tensor_shape(in);
    if (s->x.rank != 4 || y.rank != 2 || mirt_input_of(s->model, 1) || mirt_output_of(s->model, 1) || s->x.dim[3] == 2 || s->x.dim[3] > 4) {
        complain("predict wants a model that tells classes of images apart");
        return false;
    }
    s->x.dim[0] = 1;
    s->units = (int)y.dim[1];
    s->pixels = (float *)malloc((size_t)(s->x.dim[1] * s->x.dim[2] * s->x.dim[3]) * sizeof *s->pixels);
    s->scores = (float *)malloc((size_t)s->units * sizeof *s->scores);
    if (s->pixels && s->scores) return true;
    complain("out of memory");
    return false;
}

int run_predict(const options *o) {
    seer s;
    int status = EXIT_FAILED;
    memset(&s, 0, sizeof s);
    if (!o->load || !o->operands) {
        complain("predict wants a model and images: mirrortrain predict --load FILE IMAGE...");
        return EXIT_USAGE;
    }
    mirt_strategy *strategy = open_strategy(o, true, &status);
    s.model = strategy ? mirt_load(strategy, o->load) : NULL;
    if (strategy && !s.model) complain_of_library();
    if (s.model && open_seer(&s)) {
        status = EXIT_OK;
        for (int i = 0; i < o->operands; i++) {
            if (!predict_file(&s, o->operand[i])) status = EXIT_FAILED;
        }
    }
    free(s.pixels);
    free(s.scores);
    mirt_strategy_destroy(strategy);
    return status;
}
