/* mirrortrain predict: classifies photographs with a saved model. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model, and buffers for an image and its scores. */
typedef struct seer {
    const options *o;
    mirt_model *model;
    mirt_shape x; /* (1, height, width, channels) */
    unsigned char *pixels;
    float *scores;
    int units;
} seer;

int class_of_scores(mirt_scores kind, const float *scores, int count, float *p) {
    const bool sigmoid = kind == MIRT_SCORES_SIGMOID_LOGITS;
    double sum = 0;
    int best = 0;
    if (count == 1) {
        const double one = sigmoid ? 1 / (1 + exp(-(double)scores[0])) : (double)scores[0];
        best = (double)scores[0] > (sigmoid ? 0 : 0.5);
        *p = (float)(best || kind == MIRT_SCORES_OTHER ? one : 1 - one);
        return best;
    }
    for (int i = 1; i < count; i++) best = scores[i] > scores[best] ? i : best;
    const double most = (double)scores[best];
    for (int i = 0; kind == MIRT_SCORES_SOFTMAX_LOGITS && i < count; i++) sum += exp((double)scores[i] - most);
    *p = sigmoid ? (float)(1 / (1 + exp(-most))) : sum > 0 ? (float)(1 / sum) : scores[best];
    return best;
}

/* "photo.jpg: cats 0.9876" */
static void print_class(const seer *s, const char *path) {
    int names;
    const char *const *name = mirt_model_class_names(s->model, &names);
    float p;
    const int best = class_of_scores(mirt_output_scores(s->model, 0), s->scores, s->units, &p);
    if (best < names) tell("%s: %s %.4f", path, name[best], (double)p);
    else tell("%s: class %d %.4f", path, best, (double)p);
}

static bool predict_file(const seer *s, const char *path) {
    mirt_image_directory_desc desc;
    describe_images(s->o, (int)s->x.dim[1], (int)s->x.dim[2], &desc);
    desc.color_mode = s->x.dim[3] == 1 ? MIRT_GRAYSCALE : s->x.dim[3] == 4 ? MIRT_RGBA : MIRT_RGB;
    const mirt_array pixels = mirt_make_array(s->pixels, MIRT_UINT8, s->x);
    const bool good = mirt_load_image(path, &desc, s->pixels) == MIRT_OK &&
                      mirt_predict_arrays(s->model, pixels, s->scores, (size_t)s->units) == MIRT_OK;
    if (good) print_class(s, path);
    else complain_of_library();
    return good;
}

/* Checks that the model takes images and outputs class scores, and allocates buffers for both. */
static bool open_seer(seer *s) {
    mirt_tensor *in = mirt_input_of(s->model, 0), *out = mirt_output_of(s->model, 0);
    mirt_shape y = mirt_tensor_shape(out);
    s->x = mirt_tensor_shape(in);
    if (s->x.rank != 4 || y.rank != 2 || mirt_input_of(s->model, 1) || mirt_output_of(s->model, 1) ||
        s->x.dim[3] == 2 || s->x.dim[3] > 4) {
        complain("predict needs a classifier of images");
        return false;
    }
    s->x.dim[0] = 1;
    s->units = (int)y.dim[1];
    s->pixels = (unsigned char *)malloc((size_t)(s->x.dim[1] * s->x.dim[2] * s->x.dim[3]) * sizeof *s->pixels);
    s->scores = (float *)malloc((size_t)s->units * sizeof *s->scores);
    if (s->pixels && s->scores) return true;
    complain("out of memory");
    return false;
}

int run_predict(const options *o) {
    seer s;
    int status = EXIT_FAILED;
    memset(&s, 0, sizeof s);
    s.o = o;
    if (!o->load || !o->operands) {
        complain("predict needs a model and images: mirrortrain predict --load FILE IMAGE...");
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
