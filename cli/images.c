/* mirrortrain verify and augment: photographs without a network. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHEET_ROWS = 3, SHEET_COLUMNS = 4, SHEET_SIZE = 224 };

static void print_corrupt(const char *path, const char *reason, void *user) {
    (void)path, (void)user;
    tell("%s", reason);
}

int run_verify(const options *o) {
    int64_t images = 0, corrupt = 0;
    if (o->operands != 1) {
        complain("verify needs one directory: mirrortrain verify DIR");
        return EXIT_USAGE;
    }
    if (mirt_verify_images(o->operand[0], NULL, print_corrupt, NULL, &images, &corrupt) != MIRT_OK)
        return complain_of_library();
    printf("verify: images=%lld corrupt=%lld\n", (long long)images, (long long)corrupt);
    return corrupt ? EXIT_FAILED : EXIT_OK;
}

static mirt_dataset *open_sheet(const options *o) {
    const int size = o->size ? (int)o->size : SHEET_SIZE;
    mirt_image_directory_desc desc;
    char train[MAX_PHOTO_PATH];
    if (!o->operands) return mirt_drawn_photos(SHEET_ROWS * SHEET_COLUMNS, size, size, o->seed, MIRT_TRAIN);
    describe_images(o, size, size, &desc);
    desc.no_shuffle = false;
    desc.label_mode = MIRT_LABELS_NONE;
    desc.corrupt = MIRT_CORRUPT_SKIP;
    return open_photographs(photo_part(o->operand[0], &desc, MIRT_SUBSET_TRAINING, train), &desc);
}

/* Reads the pixels of `count` images through a network without layers. */
static bool read_sheet(mirt_model *model, mirt_dataset *dataset, int count, size_t pixels, float *out) {
    dataset = mirt_batch(dataset, 1);
    const bool good = dataset && mirt_dataset_size(dataset) == count &&
                      mirt_predict(model, dataset, out, (size_t)count * pixels) == MIRT_OK;
    if (dataset && mirt_dataset_size(dataset) < count)
        complain("a sheet with originals needs %d photographs", SHEET_ROWS);
    else if (!good) complain_of_library();
    mirt_dataset_destroy(dataset);
    return good;
}

/* Each row has a photograph, followed by three augmented versions of it. */
static bool save_originals(const options *o, const mirt_augmentation *list, int count) {
    const int size = o->size ? (int)o->size : SHEET_SIZE, again = SHEET_COLUMNS - 1;
    const size_t pixels = (size_t)size * (size_t)size * 3;
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "cpu:0";
    desc.silent = true;
    float *read = (float *)malloc(SHEET_ROWS * SHEET_COLUMNS * pixels * sizeof *read),
          *sheet = (float *)malloc(SHEET_ROWS * SHEET_COLUMNS * pixels * sizeof *sheet);
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    mirt_model *model = strategy ? mirt_model_create(strategy, "the sheet with originals") : NULL;
    bool good = read && sheet && model;
    if (!good) complain_of_library();
    if (good) mirt_model_output(model, mirt_flatten(mirt_input(model, MIRT_SHAPE(size, size, 3))));
    good = good && read_sheet(model, mirt_take(open_sheet(o), SHEET_ROWS), SHEET_ROWS, pixels, read) &&
           read_sheet(model,
                      mirt_augment(mirt_repeat(mirt_cache(mirt_take(open_sheet(o), SHEET_ROWS)), again), list, count),
                      SHEET_ROWS * again, pixels, read + SHEET_ROWS * pixels);
    for (int i = 0; good && i < SHEET_ROWS * SHEET_COLUMNS; i++) {
        memcpy(sheet + (i % SHEET_ROWS * SHEET_COLUMNS + i / SHEET_ROWS) * pixels, read + i * pixels,
               pixels * sizeof *sheet);
    }
    if (good && mirt_write_png(
                    o->out, mirt_make_array(sheet, MIRT_FLOAT32, MIRT_SHAPE(SHEET_ROWS * SHEET_COLUMNS, size, size, 3)),
                    SHEET_COLUMNS) != MIRT_OK) {
        complain_of_library();
        good = false;
    }
    mirt_strategy_destroy(strategy);
    free(read);
    free(sheet);
    return good;
}

static bool save_augmented(const options *o, const mirt_augmentation *list, int count) {
    mirt_dataset *dataset = mirt_augment(open_sheet(o), list, count);
    const bool good = dataset && mirt_save_grid(o->out, dataset, SHEET_ROWS, SHEET_COLUMNS) == MIRT_OK;
    if (!good) complain_of_library();
    mirt_dataset_destroy(dataset);
    return good;
}

int parse_augment(const options *o, const char *otherwise, mirt_augmentation list[MAX_AUGMENTATIONS]) {
    int count = mirt_parse_augmentation(o->augment ? o->augment : otherwise, list, MAX_AUGMENTATIONS);
    if (count < 0) {
        const char *why = library_sentence();
        const bool unknown = strstr(why, "is not an augmentation");
        complain("%s%s%s", why, unknown && !strchr(why, '?') ? "." : "",
                 unknown ? " There are flip, rotation:0.1, zoom:0.1, translation:0.1, contrast:0.2, "
                           "brightness:0.1, shear:0.1, hue:0.1, saturation:0.4:0.6, erasing:0.5, "
                           "grayscale:0.2, invert:0.2, solarization:0.1, posterization:4, "
                           "color_degeneration:0.5, auto_contrast, equalization, sharpness:0.2, "
                           "gaussian_blur:0.5, color_jitter:0.2:0.2:0.2:0.1, rand_augment, aug_mix, "
                           "perspective:0.5, clahe, elastic_transform:0.5, crop:224, center_crop:224, resizing:224"
                         : "");
    }
    return count;
}

static bool is_png(const char *path) {
    size_t size = strlen(path);
    return size > 4 && (strcmp(path + size - 4, ".png") == 0 || strcmp(path + size - 4, ".PNG") == 0);
}

int run_augment(const options *o) {
    mirt_augmentation list[MAX_AUGMENTATIONS];
    if (o->operands > 1)
        complain("augment takes one directory, not %d: mirrortrain augment DIR --out sheet.png", o->operands);
    else if (!o->out) complain("augment needs the name of the file to write: --out sheet.png");
    else if (!is_png(o->out)) complain("--out is \"%s\"; the sheet is a PNG, so its name ends in .png", o->out);
    if (o->operands > 1 || !o->out || !is_png(o->out)) return EXIT_USAGE;
    int count = parse_augment(o, "flip,rotation:0.1,zoom:0.1", list);
    if (count < 0) return EXIT_USAGE;
    if (!o->operands) note_drawn_photos(false);
    if (!(o->originals ? save_originals : save_augmented)(o, list, count)) return EXIT_FAILED;
    tell("saved: %s", o->out);
    return EXIT_OK;
}
