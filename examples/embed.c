// cc -O2 examples/embed.c examples/embed_other.c -o embed -lm -lpthread
/* The library inside a program that has its own main, memory, log and files. This file contains the implementation and
   trains; embed_other.c includes only the declarations and predicts from memory. */
#include <stddef.h>

void *app_malloc(size_t size);
void app_free(void *pointer);
#define MIRRORTRAIN_MALLOC(size) app_malloc(size)
#define MIRRORTRAIN_FREE(pointer) app_free(pointer)
#define _POSIX_C_SOURCE 200809L /* since a system header comes before it */
#define MIRRORTRAIN_NO_ONNX /* saves no such files, and is smaller without */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* embed_other.c */
int digits_open(const void *model, size_t size);
int digits_classify(const unsigned char pixels[28 * 28], float *confidence);
void digits_close(void);

/* Counts bytes; each block begins with its size. Several threads may allocate at once. */
static long long bytes_in_use, bytes_at_most;
#define BLOCK_HEAD 16
void *app_malloc(size_t size) {
    char *block = (char *)malloc(size + BLOCK_HEAD);
    if (!block) return NULL;
    memcpy(block, &size, sizeof size);
    long long now = __atomic_add_fetch(&bytes_in_use, (long long)size, __ATOMIC_RELAXED);
    if (now > bytes_at_most) bytes_at_most = now; /* accurate enough */
    return block + BLOCK_HEAD;
}
void app_free(void *pointer) {
    size_t size;
    memcpy(&size, (char *)pointer - BLOCK_HEAD, sizeof size);
    __atomic_sub_fetch(&bytes_in_use, (long long)size, __ATOMIC_RELAXED);
    free((char *)pointer - BLOCK_HEAD);
}

static void app_log(mirt_log_level level, const char *text, void *user) {
    if (level != MIRT_LOG_PROGRESS) printf("%s: %s\n", (const char *)user, text);
}

static int train_and_save(const char *path) {
    mirt_strategy *strategy = mirt_strategy_create(&(mirt_strategy_desc){.log = app_log, .log_user = "training"});
    mirt_dataset *train = mirt_batch(mirt_drawn_digits(4000, 0, MIRT_TRAIN), 64);
    mirt_model *model = mirt_model_by_name(strategy, "mnist");
    mirt_compile(model, &(mirt_compile_desc){.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true});
    mirt_history *history = mirt_fit(model, train, &(mirt_fit_desc){.no_progress = true});
    int failed = !history || mirt_save(model, path, MIRT_SAVE_ALL) != MIRT_OK;
    if (failed) fprintf(stderr, "%s\n", mirt_last_error());
    else printf("trained: loss %.3f\n", mirt_history_last(history, "loss"));
    mirt_dataset_destroy(train);
    mirt_strategy_destroy(strategy);
    return failed;
}

/* This program reads files in its own way. */
static void *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*size);
    if (data && fread(data, 1, *size, file) != *size) *size = 0;
    fclose(file);
    return data;
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

int main(void) {
    size_t size = 0;
    if (train_and_save("embed.safetensors") != 0) return 1;
    printf("memory: %lld bytes at most, %lld left\n", bytes_at_most, bytes_in_use);
    void *file = read_file("embed.safetensors", &size);
    remove("embed.safetensors");
    if (!file || digits_open(file, size) != 0) {
        free(file);
        return 1;
    }
    free(file); /* the model has copied the data */

    /* A stroke from top to bottom: a one. */
    unsigned char pixels[28 * 28] = {0};
    for (int y = 5; y < 23; y++) memset(pixels + 28 * y + 13, 255, 3);
    float confidence = 0;
    int digit = digits_classify(pixels, &confidence); /* the first call plans and allocates */
    const long long before = bytes_in_use;
    double best = 1e9;
    for (int i = 0; i < 2000 && digit >= 0; i++) {
        const double began = microseconds();
        digit = digits_classify(pixels, &confidence);
        const double spent = microseconds() - began;
        if (spent < best) best = spent;
    }
    printf("a %d (%.0f %% sure), %.1f us per call at best\n", digit, 100 * confidence, best);
    printf("memory: %lld bytes grown over 2000 calls", bytes_in_use - before);
    digits_close();
    printf(", %lld left\n", bytes_in_use);
    return digit == 1 && bytes_in_use == 0 ? 0 : 1;
}
