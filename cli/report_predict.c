/* Logs a run's confusion matrix and sample predictions for its validation images. */
#include "posix.h"
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_IMAGES = 20000, SHOWN = 24, SHOWN_WRONG = 10, SHOWN_SIDE = 96, MOST_CLASSES = 64 };
#define MOST_PIXELS ((size_t)32 << 20) /* bytes of the images to choose from */

/* Collects labels and pixels by their places in the data. */
typedef struct gallery {
    label_form labels;
    int64_t images, kept; /* the number of images, spread over the data, whose pixels are kept */
    int height, width, channels;
    int *truth; /* -1: not seen */
    unsigned char *pixels;
    float *scores;
    mirt_scores kind;
    int units, classes;
    int64_t *place; /* the label of the k-th prediction */
    int64_t predictions;
} gallery;

static uint64_t scrambled(int64_t number) { return (uint64_t)number * 0x9E3779B97F4A7C15u >> 40; }

/* The place of the image in slot `s`: one from each section of the data, which may be sorted by class or alternate
   between classes. */
static int64_t place_of_slot(const gallery *g, int64_t s) {
    const int64_t first = s * g->images / g->kept, next = (s + 1) * g->images / g->kept;
    return first + (int64_t)(scrambled(s) % (uint64_t)(next - first));
}

/* The slot that keeps this image, or -1. */
static int64_t slot_of(const gallery *g, int64_t place) {
    const int64_t s = g->images ? place * g->kept / g->images : 0;
    for (int64_t i = s; i <= s + 1 && i < g->kept; i++) {
        if (place_of_slot(g, i) == place) return i;
    }
    return -1;
}

static int keep_image(const void *const *in, void *const *out, int64_t index, void *user) {
    gallery *g = (gallery *)user;
    const size_t bytes = (size_t)g->height * (size_t)g->width * (size_t)g->channels;
    (void)out;
    if (index < 0 || index >= g->images) return 0;
    int32_t number;
    float share;
    if (g->labels == LABEL_INT32) memcpy(&number, in[1], sizeof number);
    else if (g->labels == LABEL_FLOAT32) memcpy(&share, in[1], sizeof share);
    g->truth[index] = g->labels == LABEL_INT32     ? number
                      : g->labels == LABEL_FLOAT32 ? share > 0.5f
                                                   : *(const unsigned char *)in[1];
    const int64_t slot = slot_of(g, index);
    if (slot >= 0) memcpy(g->pixels + (size_t)slot * bytes, in[0], bytes);
    return 0;
}

/* The predicted class and its score. */
static int class_of(const gallery *g, int64_t k, float *score) {
    return class_of_scores(g->kind, g->scores + k * g->units, g->units, score);
}

/* Predicts; the data set is used up. */
static bool see(gallery *g, mirt_model *model, mirt_dataset *dataset, int64_t batch) {
    const size_t bytes = (size_t)g->height * (size_t)g->width * (size_t)g->channels;
    mirt_map_desc watch;
    memset(&watch, 0, sizeof watch);
    watch.fn = keep_image;
    watch.user = g;
    dataset = mirt_map(mirt_take(dataset, g->images), &watch);
    if (works_together()) dataset = mirt_repeat(dataset, 1); /* every process reads all images then */
    dataset = mirt_batch(dataset, batch);
    g->kept = g->images < (int64_t)(MOST_PIXELS / bytes) ? g->images : (int64_t)(MOST_PIXELS / bytes);
    g->truth = (int *)malloc((size_t)g->images * sizeof *g->truth);
    g->place = (int64_t *)malloc((size_t)g->images * sizeof *g->place);
    g->pixels = (unsigned char *)malloc((size_t)g->kept * bytes + 1);
    g->scores = (float *)malloc((size_t)g->images * (size_t)g->units * sizeof *g->scores);
    bool good = g->truth && g->place && g->pixels && g->scores;
    if (!good) complain("out of memory");
    for (int64_t i = 0; good && i < g->images; i++) g->truth[i] = -1;
    if (good &&
        (!dataset || mirt_predict(model, dataset, g->scores, (size_t)g->images * (size_t)g->units) != MIRT_OK)) {
        complain_of_library();
        good = false;
    }
    for (int64_t i = 0; good && i < g->images; i++) {
        if (g->truth[i] >= 0) g->place[g->predictions++] = i; /* damaged images may have been left out */
    }
    mirt_dataset_destroy(dataset);
    return good;
}

/* >>lines */

void log_interruption(const options *o, int signal, const char *resume) {
    char path[4200];
    snprintf(path, sizeof path, "%s/log.jsonl", o->run);
    FILE *file = open_to_append(path);
    if (!file) return;
    fprintf(file, "{\"event\":\"interrupted\",\"signal\":\"%s\",\"resume\":", name_of_signal(signal));
    print_json_text(file, resume);
    fputs("}\n", file);
    fclose(file);
}

static void print_confusion(FILE *file, const gallery *g, const mirt_model *model) {
    int64_t *count = (int64_t *)calloc((size_t)g->classes * (size_t)g->classes, sizeof *count);
    int names;
    const char *const *name = mirt_model_class_names(model, &names);
    float score;
    for (int64_t k = 0; count && k < g->predictions; k++) {
        const int truth = g->truth[g->place[k]];
        if (truth < g->classes) count[truth * g->classes + class_of(g, k, &score)]++;
    }
    if (count) fprintf(file, "{\"event\":\"confusion\",\"classes\":[");
    for (int i = 0; count && i < g->classes; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        fputs(i ? "," : "", file);
        print_json_text(file, i < names ? name[i] : number);
    }
    for (int i = 0; count && i < g->classes && g->classes <= MOST_CLASSES; i++) {
        for (int j = 0; j < g->classes; j++)
            fprintf(file, "%s%lld", j ? "," : i ? "],[" : "],\"matrix\":[[", (long long)count[i * g->classes + j]);
    }
    if (count) fputs(g->classes <= MOST_CLASSES ? "]]}\n" : "]}\n", file);
    free(count);
}

/* Appends the file as base64; false if it cannot be read. */
static bool print_file(FILE *out, const char *path) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE *file = open_to_read(path);
    unsigned char b[3];
    size_t got;
    if (!file) return false;
    while ((got = fread(b, 1, 3, file)) > 0) {
        for (size_t i = got; i < 3; i++) b[i] = 0;
        const unsigned word = (unsigned)b[0] << 16 | (unsigned)b[1] << 8 | b[2];
        for (size_t i = 0; i < 4; i++) putc(i <= got ? digits[word >> (18 - 6 * i) & 63] : '=', out);
    }
    const bool good = !ferror(file);
    fclose(file);
    return good;
}

/* Appends an image as a small PNG, through a file in the run's directory. */
static bool print_image(FILE *out, const gallery *g, int64_t place, const char *directory) {
    char path[4150], name[4200];
    float small[SHOWN_SIDE * SHOWN_SIDE * 4];
    mirt_image image = {g->pixels +
                            (size_t)slot_of(g, place) * (size_t)g->height * (size_t)g->width * (size_t)g->channels,
                        g->width, g->height, g->channels};
    mirt_array array = mirt_make_array(image.pixels, MIRT_UINT8, MIRT_SHAPE(g->height, g->width, g->channels));
    const int side = g->height > g->width ? g->height : g->width;
    if (side > SHOWN_SIDE) {
        const int height = g->height * SHOWN_SIDE / side > 0 ? g->height * SHOWN_SIDE / side : 1,
                  width = g->width * SHOWN_SIDE / side > 0 ? g->width * SHOWN_SIDE / side : 1;
        if (mirt_resize_image(&image, height, width, MIRT_BILINEAR, true, small) != MIRT_OK)
            return complain_of_library(), false;
        array = mirt_make_array(small, MIRT_FLOAT32, MIRT_SHAPE(height, width, g->channels));
    }
    snprintf(path, sizeof path, "%s/.sample", directory);
    const int fd = mirt_create_temporary(path, name, sizeof name);
    if (fd < 0) return complain_of_library(), false;
    close(fd);
    bool good = mirt_write_png(name, array, 1) == MIRT_OK;
    if (good) good = print_file(out, name);
    else complain_of_library();
    remove(name);
    return good;
}

/* A prediction that may be shown. */
typedef struct candidate {
    int64_t k;     /* index of the prediction */
    int64_t place; /* place in the data */
    int truth, rank; /* rank: number of earlier predictions of its class */
    float score;
} candidate;

/* Orders by class, then mistakes by descending score and correct ones by a scrambled place, since neighbors are often
   alike. */
static int by_class(const void *a, const void *b) {
    const candidate *x = (const candidate *)a, *y = (const candidate *)b;
    if (x->truth != y->truth) return x->truth < y->truth ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* The first of every class, then the second of every class, and so on; equal ranks by descending score. */
static int by_rank(const void *a, const void *b) {
    const candidate *x = (const candidate *)a, *y = (const candidate *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int by_place(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Adds up to `most` wrong or correct predictions, spread over the classes. */
static int choose_of(const gallery *g, bool wrong, candidate *list, int64_t chosen_ones[SHOWN], int count, int most) {
    int64_t candidates = 0;
    for (int64_t k = 0; k < g->predictions; k++) {
        candidate c = {k, g->place[k], g->truth[g->place[k]], 0, 0};
        float score;
        if ((class_of(g, k, &score) != c.truth) != wrong || slot_of(g, c.place) < 0) continue;
        /* 24 bits of a scrambled place are exact in a float. */
        c.score = wrong ? score : (float)scrambled(c.place);
        list[candidates++] = c;
    }
    qsort(list, (size_t)candidates, sizeof *list, by_class);
    for (int64_t i = 1; i < candidates; i++)
        list[i].rank = list[i].truth == list[i - 1].truth ? list[i - 1].rank + 1 : 0;
    qsort(list, (size_t)candidates, sizeof *list, by_rank);
    for (int64_t i = 0; i < candidates && count < most; i++) chosen_ones[count++] = list[i].k;
    return count;
}

/* Selects predictions to show, in the order of the data: mistakes with the highest scores of every class, then correct
   ones. */
static int choose(const gallery *g, int64_t chosen_ones[SHOWN]) {
    candidate *list = (candidate *)malloc((size_t)(g->predictions + 1) * sizeof *list);
    if (!list) return 0;
    int count = choose_of(g, true, list, chosen_ones, 0, SHOWN_WRONG);
    count = choose_of(g, false, list, chosen_ones, count, SHOWN);
    free(list);
    qsort(chosen_ones, (size_t)count, sizeof *chosen_ones, by_place);
    return count;
}

static bool print_samples(FILE *file, const gallery *g, const char *directory) {
    int64_t which[SHOWN];
    bool good = true;
    const int count = choose(g, which);
    fprintf(file, "{\"event\":\"samples\",\"items\":[");
    for (int i = 0; i < count && good; i++) {
        float score;
        const int said = class_of(g, which[i], &score);
        fprintf(file, "%s{\"index\":%lld,\"true\":%d,\"predicted\":%d,\"score\":", i ? "," : "",
                (long long)g->place[which[i]], g->truth[g->place[which[i]]], said);
        fprintf(file, isfinite(score) ? "%.4f,\"png\":\"" : "null,\"png\":\"", (double)score);
        good = print_image(file, g, g->place[which[i]], directory);
        fputs("\"}", file);
    }
    fputs("]}\n", file);
    return good;
}

bool log_predictions(const options *o, mirt_model *model, const char *directory) {
    char path[4200];
    gallery g;
    memset(&g, 0, sizeof g);
    const mirt_shape x = mirt_tensor_shape(mirt_input_of(model, 0)), y = mirt_tensor_shape(mirt_output_of(model, 0));
    if (x.rank != 4 || y.rank != 2 || y.dim[1] > 4096) return true; /* not a classifier of images */
    g.height = (int)x.dim[1];
    g.width = (int)x.dim[2];
    g.channels = (int)x.dim[3];
    g.units = (int)y.dim[1];
    g.classes = g.units > 1 ? g.units : 2;
    g.labels = LABEL_UINT8;
    g.kind = mirt_output_scores(model, 0);
    mirt_dataset *dataset =
        is_for_digits(o) ? open_data(o, MIRT_TEST, false) : open_photo_validation(o, g.height, g.width, &g.labels);
    if (!dataset) return false;
    g.images = mirt_dataset_size(dataset) < MOST_IMAGES ? mirt_dataset_size(dataset) : MOST_IMAGES;
    snprintf(path, sizeof path, "%s/log.jsonl", directory);
    bool good = see(&g, model, dataset, o->batch);
    const bool writes = good && is_first();
    FILE *file = writes ? open_to_append(path) : NULL;
    if (file) {
        print_confusion(file, &g, model);
        good = print_samples(file, &g, directory);
    }
    bool written = file && !ferror(file);
    int code = errno;
    if (file && fclose(file) != 0 && written) {
        written = false;
        code = errno;
    }
    if (writes && good && !written) {
        complain("%s: cannot write: %s", path, reason_of(code));
        good = false;
    }
    free(g.truth);
    free(g.place);
    free(g.pixels);
    free(g.scores);
    return good;
}
