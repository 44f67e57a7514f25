/* Schedules, resizing, augmentation, noise and directories of images. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* schedule KIND... at=STEPS -> rate/0, rate/1, ... */
void run_schedule(const spec *s) {
    int number = 0;
    for (const item *it = next_item(s, "schedule", NULL); it; it = next_item(s, "schedule", it), number++) {
        const mirt_schedule schedule = make_schedule(it);
        double at[MAX_LIST], rate[MAX_LIST];
        char name[32];
        const int count = get_list(it, "at", at, MAX_LIST);
        for (int i = 0; i < count; i++) rate[i] = mirt_schedule_at(&schedule, (int64_t)at[i]);
        snprintf(name, sizeof name, "rate/%d", number);
        write_result(name, rate, (size_t)count);
    }
}

/* resize shape=H,W,C, then lines to size=H,W interpolation antialias -> resized/0, ... */
void run_resize(const spec *s) {
    const mirt_shape shape = get_shape(next_item(s, "resize", NULL), "shape");
    int number = 0;
    mirt_image image;
    need(mirt_image_create(&image, (int)shape.dim[1], (int)shape.dim[0], (int)shape.dim[2]) == MIRT_OK, "image");
    unsigned char *pixels = (unsigned char *)read_case(s, "image.bin", (size_t)shape_count(&shape));
    memcpy(image.pixels, pixels, (size_t)shape_count(&shape));
    for (const item *it = next_item(s, "to", NULL); it; it = next_item(s, "to", it), number++) {
        const mirt_shape size = get_shape(it, "size");
        const size_t count = (size_t)(size.dim[0] * size.dim[1] * shape.dim[2]);
        float *out = (float *)need_memory(count * sizeof *out);
        char name[32];
        need(mirt_resize_image(&image, (int)size.dim[0], (int)size.dim[1],
                               get_interpolation(it),
                               get_bool(it, "antialias", false), out) == MIRT_OK,
             "resize");
        snprintf(name, sizeof name, "resized/%d", number);
        write_floats(name, out, count);
        free(out);
    }
    mirt_image_free(&image);
    free(pixels);
}

/* ---- augmentation */

static mirt_augmentation get_transform(const item *it) {
    static const char *const kinds[] = {
        "random_flip", "random_rotation", "random_zoom",     "random_translation", "random_crop",
        "center_crop", "resizing",        "random_contrast", "random_brightness",  "random_shear",
        "random_hue",  "random_saturation", "random_erasing", "random_grayscale", "random_invert", "solarization",
        "random_posterization", "random_color_degeneration", "auto_contrast", "equalization", "random_sharpness",
        "random_gaussian_blur", "random_color_jitter", "rand_augment", "random_perspective", "aug_mix", "clahe",
        "random_elastic_transform", NULL};
    static const char *const modes[] = {"horizontal_and_vertical", "horizontal", "vertical", NULL};
    static const char *const fills[] = {"reflect", "constant", "wrap", "nearest", NULL};
    mirt_augmentation d;
    float size[2] = {0, 0}, tiles[2] = {0, 0};
    memset(&d, 0, sizeof d);
    d.kind = (mirt_augmentation_kind)get_name(it, "kind", kinds, 0);
    d.mode = (mirt_flip_mode)get_name(it, "mode", modes, 0);
    get_range(it, "factor", d.factor);
    get_range(it, "height_factor", d.height_factor);
    get_range(it, "width_factor", d.width_factor);
    get_range(it, "value_range", d.value_range);
    get_range(it, "x_factor", d.x_factor);
    get_range(it, "y_factor", d.y_factor);
    get_range(it, "scale", d.scale);
    get_range(it, "size", size);
    d.height = (int)size[0];
    d.width = (int)size[1];
    d.fill_mode = (mirt_fill_mode)get_name(it, "fill_mode", fills, 0);
    d.fill_value = get_float(it, "fill_value", 0);
    d.interpolation = get_interpolation(it);
    d.clip_limit = get_float(it, "clip_limit", 0);
    get_range(it, "tile_grid_size", tiles);
    d.tile_grid_size[0] = (int)tiles[0];
    d.tile_grid_size[1] = (int)tiles[1];
    d.crop_to_aspect_ratio = get_bool(it, "crop_to_aspect_ratio", false);
    return d;
}

typedef struct body {
    mirt_model *model;
    bool call, labels;
} body;

static bool record_body(mirt_function *function, void *user) {
    const body *b = (const body *)user;
    mirt_tensor *x = mirt_cast(mirt_function_x(function, 0), MIRT_FLOAT32);
    if (b->call) x = mirt_call(b->model, x, MIRT_TRAINING_ON);
    if (b->labels) mirt_function_result(function, "labels", mirt_cast(mirt_function_y(function, 0), MIRT_FLOAT32));
    return mirt_function_result(function, "pixels", x) == MIRT_OK;
}

static void write_gathered(mirt_function *function, const char *result, const char *name) {
    const size_t most = (size_t)1 << 22;
    float *out = (float *)need_memory(most * sizeof *out);
    size_t count = 0;
    need(mirt_gather_result(function, result, out, most, &count) == MIRT_OK, result);
    write_floats(name, out, count);
    free(out);
}

/* Writes the first batch of `dataset`, which holds all samples, as a step of a function sees it. */
static void write_samples(mirt_strategy *strategy, mirt_dataset *dataset, body *b) {
    mirt_global_batch batch;
    mirt_dataset *distributed = mirt_distribute(strategy, dataset);
    need(distributed != NULL, "distribute");
    mirt_function *function = mirt_function_create(b->model, distributed, record_body, b);
    need(function != NULL, "function");
    need(mirt_dataset_next(distributed, &batch) == MIRT_OK, "next batch");
    need(mirt_function_run(function, &batch) == MIRT_OK, "run");
    write_gathered(function, "pixels", "pixels");
    if (b->labels) write_gathered(function, "labels", "labels");
    mirt_dataset_destroy(distributed);
}

/* augment shape=H,W,C rows as=layer|stage, then lines transform kind... -> pixels */
void run_augment(const spec *s) {
    const item *it = next_item(s, "augment", NULL);
    const mirt_shape shape = get_shape(it, "shape");
    const int64_t rows = get_int(it, "rows", 1);
    mirt_array none;
    mirt_augmentation list[8];
    int count = 0;
    body b;
    mirt_strategy *strategy = make_strategy(s);
    memset(&b, 0, sizeof b);
    memset(&none, 0, sizeof none);
    for (const item *t = next_item(s, "transform", NULL); t && count < 8; t = next_item(s, "transform", t))
        list[count++] = get_transform(t);
    b.model = mirt_model_create(strategy, "augmented");
    b.call = strcmp(get_text(it, "as"), "layer") == 0;
    mirt_tensor *x = mirt_input(b.model, shape);
    for (int i = 0; b.call && i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    mirt_model_output(b.model, mirt_rescale(x, 1, 0));
    need(mirt_compile(b.model, NULL) == MIRT_OK, "compile");
    float *pixels = (float *)read_case(s, "image.bin", (size_t)(rows * shape_count(&shape)) * sizeof(float));
    mirt_dataset *dataset = mirt_arrays(
        mirt_make_array(pixels, MIRT_FLOAT32, mirt_make_shape(rows, shape.dim[0], shape.dim[1], shape.dim[2], 0, 0)),
        none);
    if (!b.call) dataset = mirt_augment(dataset, list, count);
    write_samples(strategy, mirt_batch(dataset, rows), &b);
    mirt_strategy_destroy(strategy);
    free(pixels);
}

/* noise shape=... rows, then a layer kind... -> pixels, as in training */
void run_noise(const spec *s) {
    const item *it = next_item(s, "noise", NULL), *layer = next_item(s, "layer", NULL);
    const mirt_shape shape = get_shape(it, "shape");
    const int64_t rows = get_int(it, "rows", 1);
    mirt_shape all = shape;
    mirt_array none;
    body b;
    mirt_strategy *strategy = make_strategy(s);
    memset(&b, 0, sizeof b);
    memset(&none, 0, sizeof none);
    b.model = mirt_model_create(strategy, "noisy");
    b.call = true;
    mirt_tensor *x = mirt_input(b.model, shape);
    mirt_model_output(b.model, record_layer(b.model, layer, &x, 1));
    need(mirt_compile(b.model, NULL) == MIRT_OK, "compile");
    for (int i = all.rank++; i > 0; i--) all.dim[i] = all.dim[i - 1];
    all.dim[0] = rows;
    float *numbers = (float *)read_case(s, "x.bin", (size_t)shape_count(&all) * sizeof(float));
    write_samples(strategy, mirt_batch(mirt_arrays(mirt_make_array(numbers, MIRT_FLOAT32, all), none), rows), &b);
    mirt_strategy_destroy(strategy);
    free(numbers);
}

/* ---- directories */

static void write_paths(const spec *s, const char *root, const mirt_dataset *dataset) {
    char path[2048];
    snprintf(path, sizeof path, "%s/paths.txt", s->dir);
    FILE *f = fopen(path, "wb");
    for (int64_t i = 0; f && i < mirt_dataset_size(dataset); i++)
        fprintf(f, "%s\n", mirt_dataset_file(dataset, i) + strlen(root) + 1);
    if (!f || fclose(f)) die("%s cannot be written", path);
}

/* directory root=PATH options... -> paths.txt, and with pixels=1 pixels and labels in the files' order */
void run_directory(const spec *s) {
    static const char *const colors[] = {"rgb", "grayscale", "rgba", NULL}, *const labels[] = {"int", "binary",
                                                                                               "categorical", "none",
                                                                                               NULL};
    static const char *const subsets[] = {"all", "training", "validation", NULL};
    const item *it = next_item(s, "directory", NULL);
    const char *root = get_text(it, "root"), *names[MAX_LIST];
    const mirt_shape size = get_shape(it, "size");
    mirt_image_directory_desc d;
    char text[1024];
    memset(&d, 0, sizeof d);
    d.height = (int)size.dim[0];
    d.width = (int)size.dim[1];
    d.batch_size = MIRT_NO_BATCH;
    d.color_mode = (mirt_color_mode)get_name(it, "color_mode", colors, 0);
    d.label_mode = (mirt_label_mode)get_name(it, "label_mode", labels, 0);
    d.no_shuffle = !get_bool(it, "shuffle", true);
    d.has_seed = get_text(it, "seed") != NULL;
    d.seed = (uint32_t)get_number(it, "seed", 0);
    d.validation_split = get_number(it, "validation_split", 0);
    d.subset = (mirt_subset)get_name(it, "subset", subsets, 0);
    d.interpolation = get_interpolation(it);
    d.crop_to_aspect_ratio = get_bool(it, "crop_to_aspect_ratio", false);
    d.pad_to_aspect_ratio = get_bool(it, "pad_to_aspect_ratio", false);
    d.follow_links = get_bool(it, "follow_links", false);
    if (get_text(it, "class_names")) {
        snprintf(text, sizeof text, "%s", get_text(it, "class_names"));
        d.num_class_names = split_names(text, names, MAX_LIST);
        d.class_names = names;
    }
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &d);
    need(dataset != NULL, root);
    write_paths(s, root, dataset);
    if (get_bool(it, "pixels", false)) {
        mirt_strategy *strategy = make_strategy(s);
        body b;
        const int channels = d.color_mode == MIRT_RGB ? 3 : d.color_mode == MIRT_GRAYSCALE ? 1 : 4;
        memset(&b, 0, sizeof b);
        b.labels = d.label_mode != MIRT_LABELS_NONE;
        b.model = mirt_model_create(strategy, "pixels");
        mirt_model_output(
            b.model, mirt_rescale(mirt_input(b.model, mirt_make_shape(d.height, d.width, channels, 0, 0, 0)), 1, 0));
        need(mirt_compile(b.model, NULL) == MIRT_OK, "compile");
        const int64_t count = mirt_dataset_size(dataset);
        write_samples(strategy, mirt_batch(dataset, count), &b);
        mirt_strategy_destroy(strategy);
    } else {
        mirt_dataset_destroy(dataset);
    }
}
