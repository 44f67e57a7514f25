/* The C side of `make differential`. `runner DIR` runs the case that DIR/spec.txt describes, with the public API only,
   and writes DIR/results.txt (name and number of values per line) and DIR/results.f64. */
#include "runner.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *result_names, *result_values;

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void need(bool good, const char *what) {
    if (!good) die("%s: %s", what, mirt_last_error());
}

void *need_memory(size_t size) {
    void *p = calloc(1, size + 1);
    if (!p) die("out of memory");
    return p;
}

/* ---- reading a specification */

static void *read_file(const char *dir, const char *name, size_t *size) {
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f) die("%s cannot be opened", path);
    const long length = fseek(f, 0, SEEK_END) ? -1 : ftell(f);
    if (length < 0 || fseek(f, 0, SEEK_SET)) die("%s cannot be read", path);
    char *data = (char *)need_memory((size_t)length);
    if (fread(data, 1, (size_t)length, f) != (size_t)length) die("%s cannot be read", path);
    fclose(f);
    *size = (size_t)length;
    return data;
}

static void parse_line(char *line, item *out) {
    memset(out, 0, sizeof *out);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        if (!out->word) {
            out->word = word;
        } else {
            if (!equals || out->count == MAX_KEYS) die("%s: not KEY=VALUE, or too many of them", word);
            *equals = 0;
            out->key[out->count] = word;
            out->value[out->count++] = equals + 1;
        }
    }
}

static void parse_spec(const char *dir, spec *s) {
    size_t size;
    s->dir = dir;
    s->text = (char *)read_file(dir, "spec.txt", &size);
    s->count = 1;
    for (size_t i = 0; i < size; i++) s->count += s->text[i] == '\n';
    s->item = (item *)need_memory((size_t)s->count * sizeof *s->item);
    s->count = 0;
    for (char *line = s->text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        if (*line && *line != '#') parse_line(line, &s->item[s->count++]);
        line = end ? end + 1 : NULL;
    }
}

const item *next_item(const spec *s, const char *word, const item *after) {
    for (const item *it = after ? after + 1 : s->item; it < s->item + s->count; it++) {
        if (strcmp(it->word, word) == 0) return it;
    }
    return NULL;
}

const char *get_text(const item *it, const char *key) {
    for (int i = 0; it && i < it->count; i++) {
        if (strcmp(it->key[i], key) == 0) return it->value[i];
    }
    return NULL;
}

double get_number(const item *it, const char *key, double fallback) {
    const char *text = get_text(it, key);
    return text ? strtod(text, NULL) : fallback;
}

float get_float(const item *it, const char *key, float fallback) {
    const char *text = get_text(it, key);
    return text ? strtof(text, NULL) : fallback;
}

int get_int(const item *it, const char *key, int fallback) { return (int)get_number(it, key, fallback); }
bool get_bool(const item *it, const char *key, bool fallback) { return get_number(it, key, fallback) != 0; }

int get_list(const item *it, const char *key, double *out, int most) {
    const char *text = get_text(it, key);
    int count = 0;
    for (char *end; text && *text; text = *end == ',' ? end + 1 : end) {
        if (count == most) die("%s: more than %d values", key, most);
        out[count++] = strtod(text, &end);
        if (end == text) die("%s: %s is not a number", key, text);
    }
    return count;
}

int get_name(const item *it, const char *key, const char *const *names, int fallback) {
    const char *text = get_text(it, key);
    if (!text) return fallback;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0) return i;
    }
    die("%s=%s is not known", key, text);
    return 0;
}

void get_range(const item *it, const char *key, float out[2]) {
    double range[2];
    const int count = get_list(it, key, range, 2);
    for (int i = 0; i < count; i++) out[i] = (float)range[i];
}

mirt_interpolation get_interpolation(const item *it) {
    static const char *const names[] = {"bilinear", "nearest",  "bicubic",       "area", "lanczos3",
                                        "lanczos5", "gaussian", "mitchellcubic", NULL};
    return (mirt_interpolation)get_name(it, "interpolation", names, MIRT_BILINEAR);
}

mirt_shape get_shape(const item *it, const char *key) {
    double dim[MIRT_MAX_RANK];
    mirt_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.rank = get_list(it, key, dim, MIRT_MAX_RANK - 1);
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = (int64_t)dim[i];
    return shape;
}

int64_t shape_count(const mirt_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= shape->dim[i];
    return count;
}

int split_names(char *list, const char **out, int most) {
    int count = 0;
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        if (count == most) die("more than %d names", most);
        out[count++] = name;
    }
    return count;
}

void *read_case(const spec *s, const char *name, size_t size) {
    size_t have;
    void *data = read_file(s->dir, name, &have);
    if (have != size) die("%s has %zu bytes; it should have %zu", name, have, size);
    return data;
}

/* ---- results */

void write_result(const char *name, const double *values, size_t count) {
    if (fprintf(result_names, "%s %zu\n", name, count) < 0 ||
        fwrite(values, sizeof *values, count, result_values) != count)
        die("results cannot be written");
}

void write_floats(const char *name, const float *values, size_t count) {
    double *wide = (double *)need_memory(count * sizeof *wide);
    for (size_t i = 0; i < count; i++) wide[i] = (double)values[i];
    write_result(name, wide, count);
    free(wide);
}

static FILE *create(const char *dir, const char *name) {
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f) die("%s cannot be written", path);
    return f;
}

int main(int argc, char **argv) {
    static const struct {
        const char *word;
        void (*run)(const spec *s);
    } kinds[] = {{"model", run_model},   {"schedules", run_schedule}, {"metrics", run_metrics},
                 {"resize", run_resize}, {"augment", run_augment},    {"directory", run_directory},
                 {"noise", run_noise}};
    spec s;
    if (argc != 2) die("usage: runner DIR");
    parse_spec(argv[1], &s);
    if (!s.count) die("the specification is empty");
    result_names = create(argv[1], "results.txt");
    result_values = create(argv[1], "results.f64");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].word, s.item[0].word) != 0) continue;
        kinds[i].run(&s);
        if (fclose(result_names) || fclose(result_values)) die("results cannot be written");
        return 0;
    }
    die("there is no case of kind %s", s.item[0].word);
}
