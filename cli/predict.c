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
    int64_t shown; /* images printed so far */
} seer;

/* What scores are divided by to become probabilities: of a softmax, in steps that do not overflow. */
typedef struct scale {
    mirt_scores kind;
    int count;
    double most, sum;
} scale;

static scale scale_of(mirt_scores kind, const float *scores, int count) {
    scale s = {kind, count, (double)scores[0], 0};
    for (int i = 1; i < count; i++) s.most = (double)scores[i] > s.most ? (double)scores[i] : s.most;
    for (int i = 0; kind == MIRT_SCORES_SOFTMAX_LOGITS && i < count; i++) s.sum += exp((double)scores[i] - s.most);
    return s;
}

/* The probability of class i; a single output is that of class 1. */
static float probability_of(const scale *s, const float *scores, int i) {
    const double x = (double)scores[s->count == 1 ? 0 : i];
    const double p = s->kind == MIRT_SCORES_SIGMOID_LOGITS                   ? 1 / (1 + exp(-x))
                     : s->kind == MIRT_SCORES_SOFTMAX_LOGITS && s->count > 1 ? exp(x - s->most) / s->sum
                                                                             : x;
    return (float)(s->count == 1 && i == 0 && s->kind != MIRT_SCORES_OTHER ? 1 - p : p);
}

int class_of_scores(mirt_scores kind, const float *scores, int count, float *p) {
    const scale s = scale_of(kind, scores, count);
    int best = 0;
    if (count == 1) best = (double)scores[0] > (kind == MIRT_SCORES_SIGMOID_LOGITS ? 0 : 0.5);
    for (int i = 1; i < count; i++) best = scores[i] > scores[best] ? i : best;
    *p = probability_of(&s, scores, best);
    return best;
}

static int classes_of(const seer *s) { return s->units == 1 ? 2 : s->units; }

/* The name of a class for output, or its number as written to `number`. */
static const char *name_of_class(const seer *s, int i, char number[24]) {
    int names;
    const char *const *name = mirt_model_class_names(s->model, &names);
    snprintf(number, 24, "%s%d", chosen(s->o->format, "text") ? "class " : "", i);
    return i < names ? name[i] : number;
}

/* RFC 4180: quotes where needed. */
static void print_cell(const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv_head(const seer *s) {
    char number[24];
    fputs("file,class,probability", stdout);
    for (int i = 0; i < classes_of(s); i++) {
        putchar(',');
        print_cell(name_of_class(s, i, number));
    }
    putchar('\n');
}

/* JSON has no NaN. */
static void print_json_number(double value) {
    if (isfinite(value)) printf("%.6g", value);
    else fputs("null", stdout);
}

/* The image whose scores were computed: "photo.jpg: cats 0.9876", or a row or an object with all classes. */
static void print_image(seer *s, const char *path) {
    char number[24];
    const scale of = scale_of(mirt_output_scores(s->model, 0), s->scores, s->units);
    float p;
    const int best = class_of_scores(of.kind, s->scores, s->units, &p);
    const char *name = name_of_class(s, best, number);
    if (chosen(s->o->format, "csv")) {
        print_cell(path);
        putchar(',');
        print_cell(name);
        printf(",%.6g", (double)p);
        for (int i = 0; i < classes_of(s); i++) printf(",%.6g", (double)probability_of(&of, s->scores, i));
        putchar('\n');
    } else if (chosen(s->o->format, "json")) {
        fputs(s->shown ? ",\n{\"file\":" : "{\"file\":", stdout);
        print_json_text(stdout, path);
        fputs(",\"class\":", stdout);
        print_json_text(stdout, name);
        fputs(",\"probability\":", stdout);
        print_json_number((double)p);
        for (int i = 0; i < classes_of(s); i++) {
            fputs(i ? "," : ",\"classes\":{", stdout);
            print_json_text(stdout, name_of_class(s, i, number));
            putchar(':');
            print_json_number((double)probability_of(&of, s->scores, i));
        }
        fputs("}}", stdout);
    } else {
        tell("%s: %s %.4f", path, name, (double)p);
    }
    s->shown++;
}

static void describe_predicted(const seer *s, mirt_image_directory_desc *desc) {
    describe_images(s->o, (int)s->x.dim[1], (int)s->x.dim[2], desc);
    desc->color_mode = s->x.dim[3] == 1 ? MIRT_GRAYSCALE : s->x.dim[3] == 4 ? MIRT_RGBA : MIRT_RGB;
}

static bool predict_file(seer *s, const char *path) {
    mirt_image_directory_desc desc;
    describe_predicted(s, &desc);
    const mirt_array pixels = mirt_make_array(s->pixels, MIRT_UINT8, s->x);
    const bool good = mirt_load_image(path, &desc, s->pixels) == MIRT_OK &&
                      mirt_predict_arrays(s->model, pixels, s->scores, (size_t)s->units) == MIRT_OK;
    if (good) print_image(s, path);
    else complain_of_library();
    return good;
}

/* All images below a directory, or in shards; those that are damaged are complained of and left out. */
static bool predict_all(seer *s, const char *path) {
    mirt_image_directory_desc desc;
    describe_predicted(s, &desc);
    desc.label_mode = MIRT_LABELS_NONE;
    mirt_dataset *dataset = open_photographs(path, &desc);
    bool good = dataset || complain_of_library() == EXIT_OK;
    for (int64_t i = 0; i < mirt_dataset_size(dataset); i++) {
        mirt_data data;
        const bool read = mirt_dataset_read(dataset, i, NULL, &data) == MIRT_OK &&
                          mirt_predict_arrays(s->model, data.x[0], s->scores, (size_t)s->units) == MIRT_OK;
        if (read) print_image(s, mirt_dataset_file(dataset, i));
        else complain_of_library();
        good = good && read;
        mirt_data_free(&data);
    }
    mirt_dataset_destroy(dataset);
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
        complain("predict needs a model and images: mirrortrain predict --load FILE IMAGE|DIR...");
        return EXIT_USAGE;
    }
    mirt_strategy *strategy = open_strategy(o, true, &status);
    s.model = strategy ? mirt_load(strategy, o->load) : NULL;
    if (strategy && !s.model) complain_of_library();
    if (s.model && open_seer(&s)) {
        status = EXIT_OK;
        if (chosen(o->format, "csv")) print_csv_head(&s);
        if (chosen(o->format, "json")) fputs("[", stdout);
        for (int i = 0; i < o->operands; i++) {
            const char *path = o->operand[i];
            if (!(is_directory(path) || has_shards(path) ? predict_all : predict_file)(&s, path)) status = EXIT_FAILED;
        }
        if (chosen(o->format, "json")) fputs("]\n", stdout);
    }
    free(s.pixels);
    free(s.scores);
    mirt_strategy_destroy(strategy);
    return status;
}
