#ifndef DIFFERENTIAL_RUNNER_H
#define DIFFERENTIAL_RUNNER_H
/* The C side of `make differential`: what its parts share. */
#include "../../mirrortrain.h"

#include <stdbool.h>
#include <stddef.h>

#define MAX_KEYS 40
#define MAX_LIST 64

/* One line of a specification: a word, then KEY=VALUE. */
typedef struct item {
    char *word;
    int count;
    char *key[MAX_KEYS], *value[MAX_KEYS];
} item;

typedef struct spec {
    const char *dir;
    char *text;
    item *item;
    int count;
} spec;

/* Prints a sentence and ends the process: one case is lost, the others are not. */
void die(const char *format, ...);
/* Ends the process with the library's error unless `good`. */
void need(bool good, const char *what);
void *need_memory(size_t size);

/* The first line with this word after `after` (NULL: from the beginning), or NULL. */
const item *next_item(const spec *s, const char *word, const item *after);
/* The value, or NULL. */
const char *get_text(const item *it, const char *key);
/* Numbers; what is not there is `fallback`. */
double get_number(const item *it, const char *key, double fallback);
float get_float(const item *it, const char *key, float fallback);
int get_int(const item *it, const char *key, int fallback);
bool get_bool(const item *it, const char *key, bool fallback);
/* Values of a list; how many there are. */
int get_list(const item *it, const char *key, double *out, int most);
/* Where the value stands among `names`, which end with NULL; dies if it is not there. */
int get_name(const item *it, const char *key, const char *const *names, int fallback);
/* A list of two numbers; without it `out` is left alone. */
void get_range(const item *it, const char *key, float out[2]);
mirt_interpolation get_interpolation(const item *it);
mirt_shape get_shape(const item *it, const char *key);
int64_t shape_count(const mirt_shape *shape);
/* Splits a copy of `list` at its commas, in place. */
int split_names(char *list, const char **out, int most);

/* The file NAME of the case, `size` bytes. */
void *read_case(const spec *s, const char *name, size_t size);
/* Adds numbers to the results under a name. */
void write_result(const char *name, const double *values, size_t count);
void write_floats(const char *name, const float *values, size_t count);

/* runner_layers.c: records a layer line on the tensors in[0 .. num_in); NULL: failed. */
mirt_tensor *record_layer(mirt_model *model, const item *it, mirt_tensor **in, int num_in);
/* runner_train.c: run_model takes a model from its weights to its results. */
void run_model(const spec *s);
/* A strategy by the line `strategy`. */
mirt_strategy *make_strategy(const spec *s);
mirt_schedule make_schedule(const item *it);
void run_metrics(const spec *s);
/* runner_images.c */
void run_schedule(const spec *s);
void run_resize(const spec *s);
void run_augment(const spec *s);
void run_noise(const spec *s);
void run_directory(const spec *s);

#endif
