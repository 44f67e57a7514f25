/* Requests of data sets, images, files and strategies beyond their limits. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

static uint8_t pixels[12 * 16], labels[12];
static float values[12];
static const char *const names[2] = {"a", "b"};

static mirt_array as(mirt_dtype dtype, mirt_shape shape) {
    return mirt_make_array(dtype == MIRT_FLOAT32 ? (const void *)values : pixels, dtype, shape);
}
static mirt_dataset *images(void) {
    return mirt_arrays(as(MIRT_UINT8, MIRT_SHAPE(12, 4, 4, 1)), mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(12)));
}
static mirt_dataset *numbers(void) {
    return mirt_arrays(as(MIRT_FLOAT32, MIRT_SHAPE(12)), as(MIRT_FLOAT32, MIRT_SHAPE(12)));
}

static void judge(bool done, const char *says, const char *call) {
    const mirt_status status = mirt_last_status();
    ok(!done && status != MIRT_OK && status != MIRT_E_NOMEM && strstr(mirt_last_error(), says), "%.90s: %s", call,
       done ? "done" : mirt_last_error());
}
/* A data set that is made is destroyed; one that is given to a stage that fails is, too. */
static void data_judge(mirt_dataset *made, const char *says, const char *call) {
    judge(made != NULL, says, call);
    mirt_dataset_destroy(made);
}
#define DATA(call, says) data_judge(call, says, #call)
#define STATUS(call, says) judge((call) == MIRT_OK, says, #call)

static int no_map(const void *const *in, void *const *out, int64_t index, void *user) {
    return (void)in, (void)out, (void)index, (void)user, 0;
}
static int no_samples(void *const *out, int64_t index, void *user) {
    return (void)out, (void)index, (void)user, MIRT_END_OF_DATA;
}

static mirt_dataset *mapped(mirt_map_desc desc) { return mirt_map(images(), &desc); }
static mirt_dataset *generated(mirt_generator_desc desc) {
    desc.fn = no_samples;
    if (!desc.x[0].shape.rank) desc.x[0] = as(MIRT_FLOAT32, MIRT_SHAPE(3));
    return mirt_dataset_from_generator(&desc);
}
#define GENERATED(...) generated((mirt_generator_desc){__VA_ARGS__})

static mirt_array with_rank(int rank) {
    mirt_array a = as(MIRT_FLOAT32, MIRT_SHAPE(3));
    a.shape.rank = rank;
    return a;
}

static void check_stages(void) {
    DATA(mirt_take(images(), -1), "mirt_take(-1)");
    DATA(mirt_take(images(), 0), "mirt_take(0)");
    DATA(mirt_take(images(), (int64_t)1 << 40), "mirt_take(");
    DATA(mirt_skip(images(), -1), "mirt_skip(-1)");
    DATA(mirt_skip(images(), 12), "12");
    DATA(mirt_shuffle(images(), 0), "a shuffle buffer of 0");
    DATA(mirt_shuffle(images(), -1), "a shuffle buffer of -1");
    DATA(mirt_shuffle(mirt_batch(images(), 2), 4), "mirt_batch");
    DATA(mirt_batch(images(), 0), "a batch of 0");
    DATA(mirt_batch(images(), -1), "a batch of -1");
    DATA(mirt_batch(images(), (int64_t)1 << 40), "a batch of 1099511627776");
    DATA(mirt_batch(mirt_batch(images(), 2), 2), "already in batches");
    DATA(mirt_batch_drop_remainder(images(), 13), "leaves none of 12 samples");
    DATA(mirt_accumulate(images(), 2), "mirt_batch");
    DATA(mirt_accumulate(mirt_batch(images(), 2), 0), "mirt_accumulate");
    DATA(mirt_accumulate(mirt_batch(images(), 2), -1), "mirt_accumulate");
    DATA(mirt_prefetch(images(), -7), "depth of -7");
    DATA(mirt_prefetch(mirt_batch(images(), 2), 1 << 30), "depth of 1073741824");
    DATA(mirt_cache(mirt_batch(images(), 2)), "mirt_batch");
    ok(!mirt_cache_with(mapped((mirt_map_desc){.fn = no_map}), &(mirt_cache_desc){.budget_bytes = 10}) &&
           mirt_last_status() == MIRT_E_NOMEM, "a cache above its budget: %s", mirt_last_error());
    DATA(mirt_cache_with(mapped((mirt_map_desc){.fn = no_map}), &(mirt_cache_desc){.file = ""}), "empty name");
    DATA(mirt_map(images(), NULL), "mirt_map");
    DATA(mapped((mirt_map_desc){.fn = NULL}), "mirt_map");
    DATA(mapped((mirt_map_desc){.fn = no_map, .shape = with_rank(-1).shape}), "mirt_map");
    DATA(mapped((mirt_map_desc){.fn = no_map, .shape = with_rank(99).shape}), "mirt_map");
    DATA(mapped((mirt_map_desc){.fn = no_map, .dtype = (mirt_dtype)99, .shape = MIRT_SHAPE(3)}), "");
    DATA(mirt_map(mirt_batch(images(), 2), &(mirt_map_desc){.fn = no_map}), "mirt_batch");
    DATA(mirt_repeat(images(), (int64_t)1 << 40), "mirt_repeat");
    DATA(mirt_repeat(mirt_repeat(mirt_repeat(images(), INT32_MAX), INT32_MAX), INT32_MAX),
         "too many to repeat that often");
    DATA(mirt_dataset_from_generator(NULL), "needs a function");
    DATA(mirt_dataset_from_generator(&(mirt_generator_desc){.num_x = 1}), "needs a function");
    DATA(GENERATED(.num_x = 0), "0");
    DATA(GENERATED(.num_x = 99), "99");
    DATA(GENERATED(.num_x = 1, .num_y = -1), "-1");
    DATA(GENERATED(.num_x = 1, .num_y = 99), "99");
    DATA(GENERATED(.num_x = 1, .samples = -1), "-1");
    DATA(GENERATED(.num_x = 1, .samples = (int64_t)1 << 40), "samples");
    DATA(GENERATED(.num_x = 1, .any_order = true), "samples in any order need their number");
    DATA(GENERATED(.num_x = 1, .x = {with_rank(-1)}), "-1");
    DATA(GENERATED(.num_x = 1, .x = {with_rank(99)}), "99");
    mirt_dataset *d = mirt_repeat(images(), -5);
    ok(d && mirt_dataset_size(d) == -1, "to repeat less than no times is without an end");
    STATUS(mirt_dataset_arrays(d, &(mirt_data){0}), "end");
    mirt_dataset_destroy(d);
    d = images();
    STATUS(mirt_dataset_workers(d, 0), "mirt_dataset_workers(0)");
    STATUS(mirt_dataset_workers(d, -9), "mirt_dataset_workers(-9)");
    STATUS(mirt_dataset_workers(d, 1 << 20), "mirt_dataset_workers");
    STATUS(mirt_dataset_workers(NULL, 1), "data set");
    STATUS(mirt_dataset_read(d, -1, NULL, &(mirt_data){0}), "no sample -1");
    STATUS(mirt_dataset_read(d, 12, NULL, &(mirt_data){0}), "no sample 12");
    STATUS(mirt_dataset_read(NULL, 0, NULL, &(mirt_data){0}), "data set");
    STATUS(mirt_dataset_read(d, 0, NULL, NULL), "mirt_dataset_read");
    STATUS(mirt_dataset_arrays(d, NULL), "mirt_dataset_arrays");
    STATUS(mirt_set_class_names(d, NULL, 2), "mirt_set_class_names");
    STATUS(mirt_set_class_names(NULL, names, 2), "mirt_set_class_names");
    STATUS(mirt_set_class_names(d, names, -2), "mirt_set_class_names");
    d = mirt_batch(d, 5);
    STATUS(mirt_dataset_read(d, 3, NULL, &(mirt_data){0}), "no batch 3");
    mirt_dataset_destroy(d);
    ok(!mirt_batch(NULL, 1) && !mirt_take(NULL, 1) && !mirt_repeat(NULL, 1) && !mirt_prefetch(NULL, 1) &&
           !mirt_cache(NULL),
       "stages of nothing are nothing");
    ok(mirt_dataset_size(NULL) == 0 && mirt_dataset_batches(NULL) == 0 && !mirt_class_names(NULL, NULL),
       "and so is what they hold");
    STATUS(mirt_to_categorical(as(MIRT_FLOAT32, MIRT_SHAPE(12)), -1, &(mirt_array){0}), "");
    STATUS(mirt_to_categorical(as(MIRT_UINT8, MIRT_SHAPE(12, 4, 4)), 2, &(mirt_array){0}), "");
    ok(mirt_to_categorical(as(MIRT_UINT8, MIRT_SHAPE(12)), INT64_MAX / 2, &(mirt_array){0}) == MIRT_E_NOMEM,
       "more classes than memory: %s", mirt_last_error());
    DATA(mirt_drawn_digits(0, 1, MIRT_TRAIN), "mirt_drawn_digits");
    DATA(mirt_drawn_digits(5, 1, (mirt_split)9), "mirt_drawn_digits");
    DATA(mirt_drawn_photos(0, 8, 8, 1, MIRT_TRAIN), "mirt_drawn_photos");
    DATA(mirt_drawn_photos(4, 7, 8, 1, MIRT_TRAIN), "mirt_drawn_photos");
    DATA(mirt_drawn_photos(4, 8, 7, 1, MIRT_TRAIN), "mirt_drawn_photos");
    DATA(mirt_drawn_photos(4, 1 << 20, 8, 1, MIRT_TRAIN), "mirt_drawn_photos");
    DATA(mirt_drawn_photos(4, 8, 1 << 20, 1, MIRT_TRAIN), "mirt_drawn_photos");
    DATA(mirt_drawn_photos(4, 8, 8, 1, (mirt_split)9), "not 9");
    DATA(mirt_idx(NULL, NULL), "path");
    DATA(mirt_mnist(NULL, MIRT_TRAIN), "");
    DATA(mirt_mnist("/mirrortrain-test/none/", MIRT_TRAIN), "/mirrortrain-test/none/");
    DATA(mirt_mnist("", MIRT_TRAIN), "");
    DATA(mirt_mnist("/mirrortrain-test/none", (mirt_split)9), "9");
}

static mirt_dataset *augmented(mirt_dataset *d, const char *text) {
    mirt_augmentation list[8];
    const int count = mirt_parse_augmentation(text, list, 8);
    return mirt_augment(d, list, count);
}

static void check_images(void) {
    mirt_augmentation list[4], many[64];
    mirt_normalization_desc normalization;
    mirt_image image = {0}, other = {0};
    static float resized[64];
    memset(list, 0, sizeof list);
    memset(many, 0, sizeof many);
    memset(&normalization, 0, sizeof normalization);
    DATA(mirt_augment(images(), NULL, 1), "mirt_augment");
    DATA(mirt_augment(images(), list, 0), "mirt_augment");
    DATA(mirt_augment(images(), many, 64), "mirt_augment");
    DATA(augmented(numbers(), "flip"), "mirt_augment");
    DATA(augmented(mirt_arrays(as(MIRT_INT32, MIRT_SHAPE(3, 2, 2, 1)), as(MIRT_UINT8, MIRT_SHAPE(3))), "flip"),
         "mirt_augment");
    list[0].kind = MIRT_RANDOM_CROP;
    DATA(mirt_augment(images(), list, 1), "mirt_augment: number 0");
    judge(mirt_parse_augmentation(NULL, list, 4) >= 0, "text", "mirt_parse_augmentation");
    judge(mirt_parse_augmentation("flip", NULL, 4) >= 0, "list", "mirt_parse_augmentation");
    static const char *const texts[] = {"flap",
                                        "crop",
                                        "crop:x",
                                        "crop:-2",
                                        "flip:sideways",
                                        "rotation",
                                        "rotation:",
                                        "rotation:.x",
                                        "rotation:+0.1:0.2:0.3:0.4",
                                        "flip,flip,flip,flip,flip",
                                        "zoom:0.1:mirror",
                                        "resizing",
                                        ","};
    for (int i = 0; i < MIRT__COUNT(texts); i++) judge(mirt_parse_augmentation(texts[i], list, 4) >= 0, "", texts[i]);
    ok(mirt_parse_augmentation("zoom:-0.1:0.1", list, 4) == 1 && (double)list[0].width_factor[0] > 0.09,
       "numbers with signs: %s", mirt_last_error());
    mirt_dataset *d = numbers();
    STATUS(mirt_adapt(NULL, d), "description");
    STATUS(mirt_adapt(&normalization, NULL), "data set");
    STATUS(mirt_adapt(&normalization, d), "mirt_adapt");
    mirt_dataset_destroy(d);
    d = mirt_take(GENERATED(.num_x = 1), 3);
    STATUS(mirt_adapt(&normalization, d), "no samples");
    mirt_dataset_destroy(d);
    d = images();
    ok(mirt_adapt(&normalization, d) == MIRT_OK && (double)normalization.mean[0] == 7.5,
       "images of bytes are adapted to: %g", (double)normalization.mean[0]);
    STATUS(mirt_save_grid(NULL, d, 2, 2), "path");
    STATUS(mirt_save_grid("never.png", NULL, 2, 2), "data set");
    STATUS(mirt_save_grid("never.png", d, 0, 2), "0 rows");
    STATUS(mirt_save_grid("never.png", d, 2, 0), "0 columns");
    STATUS(mirt_save_grid("never.png", d, 1025, 2), "1025 rows");
    STATUS(mirt_save_grid("never.png", d, 2, 1025), "1025 columns");
    mirt_dataset_destroy(d);
    d = numbers();
    STATUS(mirt_save_grid("never.png", d, 2, 2), "takes images");
    mirt_dataset_destroy(d);
    d = generated((mirt_generator_desc){.num_x = 1, .x = {as(MIRT_UINT8, MIRT_SHAPE(2, 2, 1))}});
    STATUS(mirt_save_grid("never.png", d, 2, 2), "no samples");
    mirt_dataset_destroy(d);
    STATUS(mirt_write_png(NULL, as(MIRT_UINT8, MIRT_SHAPE(2, 2, 1)), 1), "path");
    STATUS(mirt_write_png("never.png", mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(2, 2, 1)), 1), "images");
    STATUS(mirt_write_png("never.png", as(MIRT_UINT8, MIRT_SHAPE(2, 2)), 1), "");
    STATUS(mirt_write_png("never.png", as(MIRT_INT32, MIRT_SHAPE(2, 2, 1)), 1), "");
    STATUS(mirt_write_png("never.png", as(MIRT_UINT8, MIRT_SHAPE(2, 2, 9)), 1), "");
    STATUS(mirt_write_png("never.png", as(MIRT_UINT8, MIRT_SHAPE(2, -2, 1)), 1), "");
    STATUS(mirt_write_png("never.png", as(MIRT_UINT8, MIRT_SHAPE(2, (int64_t)1 << 33, 1)), 1), "");
    STATUS(mirt_write_png("never.png", as(MIRT_UINT8, MIRT_SHAPE((int64_t)1 << 30, 64, 64, 1)), 1), "");
    STATUS(mirt_write_png("never.png", as(MIRT_UINT8, MIRT_SHAPE((int64_t)1 << 30, 64, 64, 1)), 1 << 30), "");
    STATUS(mirt_image_create(NULL, 2, 2, 3), "image");
    STATUS(mirt_image_create(&image, 0, 2, 3), "");
    STATUS(mirt_image_create(&image, 2, 0, 3), "");
    STATUS(mirt_image_create(&image, 2, 2, 0), "");
    STATUS(mirt_image_create(&image, 2, 2, 5), "");
    ok(mirt_image_create(&image, INT_MAX, INT_MAX, 4) == MIRT_E_NOMEM && !image.pixels,
       "an image larger than memory: %s", mirt_last_error());
    ok(mirt_image_create(&image, 3, 2, 3) == MIRT_OK, "an image");
    STATUS(mirt_resize_image(NULL, 2, 2, MIRT_BILINEAR, false, resized), "image");
    STATUS(mirt_resize_image(&other, 2, 2, MIRT_BILINEAR, false, resized), "image");
    STATUS(mirt_resize_image(&image, 0, 2, MIRT_BILINEAR, false, resized), "");
    STATUS(mirt_resize_image(&image, 2, -1, MIRT_BILINEAR, false, resized), "");
    STATUS(mirt_resize_image(&image, 2, 2, (mirt_interpolation)-1, false, resized), "interpolation");
    STATUS(mirt_resize_image(&image, 2, 2, (mirt_interpolation)99, false, resized), "interpolation");
    STATUS(mirt_resize_image(&image, 1, INT_MAX, MIRT_BICUBIC, false, resized), "");
    for (int i = 0; i < 4; i++) {
        mirt_image bad = image;
        if (i == 0) bad.width = 0;
        if (i == 1) bad.height = -1;
        if (i == 2) bad.channels = 0;
        if (i == 3) bad.channels = 5;
        STATUS(mirt_resize_image(&bad, 2, 2, MIRT_BILINEAR, false, resized), "");
    }
    mirt_image_free(&image);
    STATUS(mirt_decode_image(NULL, 3, MIRT_RGB, NULL, &image), "bytes");
    STATUS(mirt_decode_image("x", 1, MIRT_RGB, NULL, NULL), "");
    STATUS(mirt_decode_image("x", 1, (mirt_color_mode)9, NULL, &image), "color mode");
    STATUS(mirt_decode_image("x", 1, (mirt_color_mode)-1, NULL, &image), "color mode");
    STATUS(mirt_read_image(NULL, MIRT_RGB, NULL, &image), "path");
    STATUS(mirt_read_image("/mirrortrain-test/none.png", MIRT_RGB, NULL, &image), "/mirrortrain-test/none.png");
    STATUS(mirt_read_image("x", (mirt_color_mode)9, NULL, &image), "color mode");
    const mirt_decode_desc limits[5] = {
        {.max_side = -1}, {.max_pixels = -1}, {.max_bytes = -1}, {.least_height = -1}, {.least_width = -1}};
    for (int i = 0; i < 5; i++) STATUS(mirt_decode_image("x", 1, MIRT_RGB, &limits[i], &image), "");
    STATUS(mirt_verify_images(NULL, NULL, NULL, NULL, NULL, NULL), "directory");
    STATUS(mirt_verify_images("/mirrortrain-test/none", &limits[0], NULL, NULL, NULL, NULL), "");
    STATUS(mirt_verify_images("/mirrortrain-test/none", NULL, NULL, NULL, NULL, NULL), "/mirrortrain-test/none");
}

#define DIRECTORY(...)                                                                                                 \
    mirt_image_dataset_from_directory("/mirrortrain-test/none", &(mirt_image_directory_desc){__VA_ARGS__})

static void check_directories(void) {
    static const int32_t both_label = 0;
    mirt_dataset *both[2];
    char path[64];
    DATA(mirt_image_dataset_from_directory(NULL, NULL), "directory");
    DATA(mirt_image_dataset_from_csv(NULL, NULL), "file of paths and labels");
    DATA(
        mirt_image_dataset_from_csv("x", &(mirt_image_directory_desc){.labels = (const int32_t[]){1}, .num_labels = 1}),
        "labels are in the file");
    DATA(DIRECTORY(.height = 0), "/mirrortrain-test/none");
    DATA(DIRECTORY(.height = -1), "-1");
    DATA(DIRECTORY(.width = -1), "-1");
    DATA(DIRECTORY(.color_mode = (mirt_color_mode)9), "invalid color mode (9)");
    DATA(DIRECTORY(.color_mode = (mirt_color_mode)-1), "invalid color mode (-1)");
    DATA(DIRECTORY(.interpolation = (mirt_interpolation)99), "99");
    DATA(DIRECTORY(.interpolation = (mirt_interpolation)-1), "-1");
    DATA(DIRECTORY(.label_mode = (mirt_label_mode)9), "invalid label mode (9)");
    DATA(DIRECTORY(.label_mode = (mirt_label_mode)-1), "invalid label mode (-1)");
    DATA(DIRECTORY(.corrupt = (mirt_corrupt)9), "invalid policy for corrupt images (9)");
    DATA(DIRECTORY(.corrupt = (mirt_corrupt)-1), "invalid policy for corrupt images (-1)");
    DATA(DIRECTORY(.dtype = MIRT_INT32), "");
    DATA(DIRECTORY(.batch_size = -2), "invalid batch size (-2)");
    DATA(DIRECTORY(.crop_to_aspect_ratio = true, .pad_to_aspect_ratio = true), "");
    DATA(DIRECTORY(.class_names = names, .num_class_names = -1), "");
    DATA(DIRECTORY(.class_names = (const char *const[]){"a", NULL}, .num_class_names = 2), "");
    DATA(DIRECTORY(.class_names = (const char *const[]){"a", "a"}, .num_class_names = 2), "");
    DATA(DIRECTORY(.class_names = names, .num_class_names = 2, .labels = (const int32_t[]){1}, .num_labels = 1),
         "class_names are for labels by subdirectories");
    DATA(DIRECTORY(.class_names = names, .num_class_names = 2, .label_mode = MIRT_LABELS_NONE),
         "class_names are for labels by subdirectories");
    DATA(DIRECTORY(.labels = (const int32_t[]){1}, .num_labels = -1), "");
    DATA(DIRECTORY(.validation_split = 1), "1");
    DATA(DIRECTORY(.validation_split = -0.5), "-0.5");
    DATA(DIRECTORY(.validation_split = (double)NAN), "nan");
    DATA(DIRECTORY(.validation_split = 0.5, .subset = (mirt_subset)9), "invalid subset (9)");
    DATA(DIRECTORY(.validation_split = 0.5, .subset = (mirt_subset)-1), "invalid subset (-1)");
    DATA(DIRECTORY(.validation_split = 0.5, .subset = MIRT_SUBSET_TRAINING), "seed");
    DATA(DIRECTORY(.decode = {.max_side = -1}), "");
    STATUS(mirt_image_datasets_from_directory("x", NULL, NULL, &both[1]), "no pointers for the data sets");
    STATUS(mirt_tar_datasets("x", NULL, NULL, &both[1]), "mirt_tar_datasets: no pointers for the data sets");
    STATUS(mirt_tar_datasets("x", NULL, &both[0], NULL), "no pointers for the data sets");
    STATUS(mirt_tar_datasets(NULL, NULL, &both[0], &both[1]), "mirt_tar_datasets: no shards");
    STATUS(mirt_tar_datasets("x", NULL, &both[0], &both[1]), "mirt_tar_datasets: validation_split must be above 0");
    STATUS(mirt_tar_datasets("x", &(mirt_image_directory_desc){.labels = &both_label, .num_labels = 1}, &both[0],
                             &both[1]),
           "mirt_tar_datasets: labels are in the shards");
    STATUS(mirt_image_datasets_from_directory("x", NULL, &both[0], NULL), "no pointers for the data sets");
    STATUS(mirt_image_datasets_from_directory(NULL, NULL, &both[0], &both[1]), "directory");
    STATUS(mirt_image_datasets_from_directory("/mirrortrain-test/none", &(mirt_image_directory_desc){.height = -1},
                                              &both[0], &both[1]),
           "-1");
    ok(!both[0] && !both[1], "both are NULL");
    STATUS(mirt_image_directory_part(NULL, NULL, MIRT_SUBSET_TRAINING, path, sizeof path), "directory");
    STATUS(mirt_image_directory_part("x", NULL, MIRT_SUBSET_TRAINING, NULL, 1), "no buffer for the path");
    STATUS(mirt_image_directory_part("x", NULL, MIRT_SUBSET_ALL, path, sizeof path), "");
    STATUS(mirt_image_directory_part("/mirrortrain-test/none", NULL, MIRT_SUBSET_TRAINING, path, sizeof path),
           "/mirrortrain-test/none");
    STATUS(mirt_load_image(NULL, NULL, path), "");
    STATUS(mirt_load_image("x", NULL, NULL), "");
    ok(!mirt_dataset_file(NULL, 0) && mirt_corrupt_images(NULL, NULL, NULL) == 0, "no data set has no files");
    mirt_dataset *d = images();
    ok(!mirt_dataset_file(d, 0) && mirt_corrupt_images(d, NULL, NULL) == 0, "nor have arrays");
    mirt_dataset_destroy(d);
}

static void check_confusion(void) {
    static const int64_t counts[4] = {1, 2, 3, 4}, negative[4] = {1, -2, 3, 4}, many[4] = {INT64_MAX, INT64_MAX, 3, 4},
                         none[4] = {0, 0, 0, 0};
    char path[400];
    snprintf(path, sizeof path, "%s/confusion.png", work_directory());
    STATUS(mirt_save_confusion_png(NULL, counts, 2, NULL), "path");
    STATUS(mirt_save_confusion_png(path, NULL, 2, NULL), "matrix");
    STATUS(mirt_save_confusion_png(path, counts, 1, NULL), "1 classes");
    STATUS(mirt_save_confusion_png(path, counts, 4097, NULL), "4097 classes");
    STATUS(mirt_save_confusion_png(path, negative, 2, NULL), "");
    STATUS(mirt_save_confusion_png(path, many, 2, NULL), "");
    ok(mirt_save_confusion_png(path, none, 2, NULL) == MIRT_OK, "a matrix of nothing");
    ok(mirt_save_confusion_png(path, counts, 2, (const char *const[]){"\x01name", NULL}) == MIRT_OK,
       "names that are missing or not printable: %s", mirt_last_error());
    for (int classes = 13; classes < 700; classes = classes * 5 / 2) {
        int64_t *large = (int64_t *)calloc((size_t)classes * (size_t)classes, sizeof *large);
        for (int i = 0; large && i < classes; i++) large[i * classes + i] = i * 1000;
        ok(large && mirt_save_confusion_png(path, large, classes, NULL) == MIRT_OK, "%d classes: %s", classes,
           mirt_last_error());
        free(large);
    }
    unlink(path);
    rmdir(work_directory());
}

static mirt_strategy *strategy(mirt_strategy_desc desc) {
    desc.silent = true;
    return mirt_strategy_create(&desc);
}
#define STRATEGY(...) strategy((mirt_strategy_desc){__VA_ARGS__})
static void strategy_judge(mirt_strategy *made, const char *says, const char *call) {
    judge(made != NULL, says, call);
    mirt_strategy_destroy(made);
}
#define REFUSED(call, says) strategy_judge(call, says, #call)

static void check_strategies(void) {
    static const char *const devices[] = {
        "",       "x",           "cpu:",      "cpu:x",  "cpu:0x", "cpu:-1",
        "cpu:0,", "cpu:0,cpu:0", "cpu:99999", "gpu:99", "gpux",   "cpu:99999999999999999999",
        "0",      "-1",          "99999",     "2x",     "cpu:0 "};
    for (int i = 0; i < MIRT__COUNT(devices); i++) REFUSED(STRATEGY(.devices = devices[i]), "");
    REFUSED(STRATEGY(.kind = (mirt_strategy_kind)-1), "-1");
    REFUSED(STRATEGY(.kind = (mirt_strategy_kind)9), "9");
    REFUSED(STRATEGY(.devices = "1", .collective = (mirt_collective)-1), "-1");
    REFUSED(STRATEGY(.devices = "1", .collective = (mirt_collective)99), "99");
    REFUSED(STRATEGY(.devices = "1", .collective = MIRT_NCCL), "NCCL");
    REFUSED(STRATEGY(.devices = "1", .replicas = -1),
            "mirt_strategy_create: -1 replicas and 0 threads; neither can be negative");
    REFUSED(STRATEGY(.devices = "1", .threads = -1), "0 replicas and -1 threads");
    REFUSED(STRATEGY(.devices = "1", .threads = 1025), "1025 threads");
    REFUSED(STRATEGY(.devices = "2", .replicas = 1), "every device needs at least one replica");
    REFUSED(STRATEGY(.devices = "1", .replicas = 1 << 20), "replicas");
    REFUSED(STRATEGY(.devices = "1", .timeout_seconds = (double)NAN), "");
    setenv("MIRT_DEVICES", "tpu", 1);
    REFUSED(mirt_mirrored("1"), "MIRT_DEVICES is \"tpu\"");
    setenv("MIRT_DEVICES", "gpu", 1);
    REFUSED(mirt_mirrored("1"), "MIRT_DEVICES is \"gpu\"");
    setenv("MIRT_DEVICES", "cpu", 1);
    mirt_strategy *s = STRATEGY(.devices = NULL);
    ok(s && mirt_num_devices(s) == 1, "the environment asks for cores: %s", s ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
    setenv("MIRT_DEVICES", "", 1);
    s = STRATEGY(.devices = "cpu");
    ok(s && mirt_num_replicas(s) == 1 && mirt_num_threads(s) >= 1, "an empty wish is none");
    mirt_strategy_destroy(s);
    unsetenv("MIRT_DEVICES");
    setenv("MIRT_CPU", "z80", 1);
    REFUSED(mirt_mirrored("1"), "MIRT_CPU is \"z80\"");
    unsetenv("MIRT_CPU");
    ok(mirt_num_replicas(NULL) == 0 && mirt_num_devices(NULL) == 0 && mirt_num_threads(NULL) == 0,
       "no strategy has no devices");
    mirt_set_log(NULL, NULL, NULL);
    mirt_strategy_destroy(NULL);
    mirt_device_info info[1];
    ok(mirt_devices(NULL, 0) >= 1 && mirt_devices(info, 1) == mirt_devices(NULL, 0) &&
           strcmp(info[0].name, "cpu:0") == 0,
       "devices are counted beyond the room that there is");
}

int main(void) {
    for (int i = 0; i < 12 * 16; i++) pixels[i] = (uint8_t)(i % 16);
    for (int i = 0; i < 12; i++) labels[i] = (uint8_t)(i % 2), values[i] = (float)i;
    check_stages();
    check_images();
    check_directories();
    check_confusion();
    check_strategies();
    return done_testing();
}
