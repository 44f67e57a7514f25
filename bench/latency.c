/* Prediction of one image: latency save MODEL SIZE FILE writes a network with random weights, latency FILE THREADS
   [winograd] loads it. A line says that the program runs; then every line with a number of seconds is answered with the
   median latency of predictions for that long. Before the first, the model is loaded and predicts for the first time. */
#define _POSIX_C_SOURCE 200809L
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEAST_CALLS = 5, MAX_CALLS = 200000 };

/* A model and what it is called with. */
typedef struct caller {
    mirt_model *model;
    mirt_array image;
    float *pixels, *scores;
    size_t classes;
    double load_ms, first_ms;
} caller;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Cores without a log. */
static mirt_strategy *open_cores(int threads, bool winograd) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "cpu";
    desc.kind = MIRT_ONE_DEVICE;
    desc.threads = threads;
    desc.silent = true;
    desc.winograd = winograd;
    return mirt_strategy_create(&desc);
}

/* Peers get prepared floats and return logits, so this network does no more. */
static bool save_network(const char *name, int size, const char *path) {
    mirt_application_desc desc;
    mirt_compile_desc compile;
    memset(&desc, 0, sizeof desc);
    memset(&compile, 0, sizeof compile);
    compile.loss = MIRT_LOSS_NONE;
    desc.size = size;
    desc.logits = true;
    desc.preprocessing = MIRT_PREPROCESSING_OFF;
    mirt_strategy *strategy = open_cores(0, false);
    mirt_model *model = strategy ? mirt_application(strategy, name, &desc) : NULL;
    const bool good = model && mirt_set_trainable(model, NULL, false) == MIRT_OK &&
                      mirt_compile(model, &compile) == MIRT_OK && mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK;
    mirt_strategy_destroy(strategy);
    return good;
}

static bool draw_image(caller *c) {
    mirt_shape x = mirt_tensor_shape(mirt_input_of(c->model, 0)), y = mirt_tensor_shape(mirt_output_of(c->model, 0));
    size_t pixels = 1;
    uint32_t state = 1;
    for (int i = 1; i < x.rank; i++) pixels *= (size_t)x.dim[i];
    c->classes = (size_t)y.dim[y.rank - 1];
    c->pixels = (float *)malloc(pixels * sizeof *c->pixels);
    c->scores = (float *)malloc(c->classes * sizeof *c->scores);
    if (!c->pixels || !c->scores) return false;
    for (size_t i = 0; i < pixels; i++) {
        state = state * 1664525u + 1013904223u;
        c->pixels[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
    x.dim[0] = 1;
    c->image = mirt_make_array(c->pixels, MIRT_FLOAT32, x);
    return true;
}

static bool predict(caller *c) {
    return mirt_predict_arrays(c->model, c->image, c->scores, c->classes) == MIRT_OK;
}

static bool load_and_predict(caller *c, mirt_strategy *strategy, const char *path) {
    const double begun = now_ms();
    c->model = mirt_load(strategy, path);
    if (!c->model || !draw_image(c)) return false;
    const double loaded = now_ms();
    if (!predict(c)) return false;
    c->load_ms = loaded - begun;
    c->first_ms = now_ms() - loaded;
    return true;
}

/* The median of the calls of a window in milliseconds; negative: one failed. */
static double measure(caller *c, double seconds, double *times) {
    const double begun = now_ms();
    int count = 0;
    while (count < MAX_CALLS) {
        const double start = now_ms();
        if (count >= LEAST_CALLS && start - begun >= 1e3 * seconds) break;
        if (!predict(c)) return -1;
        times[count++] = now_ms() - start;
    }
    qsort(times, (size_t)count, sizeof *times, by_size);
    return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

static bool answer(caller *c, mirt_strategy *strategy, const char *path) {
    static double times[MAX_CALLS];
    double seconds;
    bool good = true;
    printf("{\"started\": true}\n");
    fflush(stdout);
    while (good && scanf("%lf", &seconds) == 1) {
        if (!c->model && !load_and_predict(c, strategy, path)) return false;
        const double ms = measure(c, seconds, times);
        good = ms >= 0;
        if (good)
            printf("{\"ms\": %.5f, \"images_per_second\": %.4f, \"load_ms\": %.3f, \"first_ms\": %.4f}\n", ms, 1e3 / ms,
                   c->load_ms, c->first_ms);
        fflush(stdout);
    }
    return good;
}

static bool serve(const char *path, int threads, bool winograd) {
    caller c;
    memset(&c, 0, sizeof c);
    mirt_strategy *strategy = open_cores(threads, winograd);
    const bool good = strategy && answer(&c, strategy, path);
    if (!good) fprintf(stderr, "latency: %s\n", mirt_last_error());
    mirt_strategy_destroy(strategy);
    free(c.pixels);
    free(c.scores);
    return good;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "save") == 0) {
        if (save_network(argv[2], atoi(argv[3]), argv[4])) return 0;
        fprintf(stderr, "latency: %s\n", mirt_last_error());
        return 1;
    }
    if (argc == 3 || (argc == 4 && strcmp(argv[3], "winograd") == 0)) return !serve(argv[1], atoi(argv[2]), argc == 4);
    fputs("usage: latency save MODEL SIZE FILE | latency FILE THREADS [winograd]\n", stderr);
    return 2;
}
