/* mirrortrain verify and augment: photographs without a network. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

enum { SHEET_ROWS = 3, SHEET_COLUMNS = 4, SHEET_SIZE = 224 };

static void print_corrupt(const char *path, const char *reason, void *user) {
    (void)path, (void)user;
    printf("%s\n", reason);
}

int run_verify(const options *o) {
    int64_t images = 0, corrupt = 0;
    if (o->operands != 1) {
        complain("verify wants one directory: mirrortrain verify DIR");
        return EXIT_USAGE;
    }
    if (mirt_verify_images(o->operand[0], NULL, print_corrupt, NULL, &images, &corrupt) != MIRT_OK) return complain_of_library();
    printf("verify: images=%lld corrupt=%lld\n", (long long)images, (long long)corrupt);
    return corrupt ? EXIT_FAILED : EXIT_OK;
}

static mirt_dataset *open_sheet(const options *o, const mirt_augmentation *list, int count) {
    mirt_image_directory_desc desc;
    mirt_dataset *dataset;
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = o->size ? (int)o->size : SHEET_SIZE;
    desc.batch_size = MIRT_NO_BATCH;
    desc.has_seed = true;
    desc.seed = (uint32_t)o->seed;
    desc.dtype = MIRT_UINT8;
    desc.label_mode = MIRT_LABELS_NONE;
    desc.corrupt = MIRT_CORRUPT_SKIP;
    if (o->operands) dataset = mirt_image_dataset_from_directory(o->operand[0], &desc);
    else dataset = mirt_drawn_photos(SHEET_ROWS * SHEET_COLUMNS, desc.height, desc.width, o->seed, MIRT_TRAIN);
    if (!o->operands) note_drawn_photos(false);
    return mirt_augment(dataset, list, count);
}

int parse_augment(const options *o, const char *otherwise, mirt_augmentation list[MAX_AUGMENTATIONS]) {
    int count = mirt_parse_augmentation(o->augment ? o->augment : otherwise, list, MAX_AUGMENTATIONS);
    if (count < 0) {
        const char *why = library_sentence();
        complain("%s%s", why, strstr(why, "is no augmentation") ? " There are flip, rotation:0.1, zoom:0.1, translation:0.1, contrast:0.2, "
                                                                  "brightness:0.1, crop:224, center_crop:224, resizing:224" : "");
    }
    return count;
}

static bool is_png(const char *path) {
    size_t size = strlen(path);
    return size > 4 && (strcmp(path + size - 4, ".png") == 0 || strcmp(path + size - 4, ".PNG") == 0);
}

int run_augment(const options *o) {
    mirt_augmentation list[MAX_AUGMENTATIONS];
    if (o->operands > 1) complain("augment wants one directory, not %d: mirrortrain augment DIR --out sheet.png", o->operands);
    else if (!o->out) complain("augment wants to know where the sheet goes: --out sheet.png");
    else if (!is_png(o->out)) complain("--out is \"%s\"; the sheet is a PNG, so its name ends in .png", o->out);
    if (o->operands > 1 || !o->out || !is_png(o->out)) return EXIT_USAGE;
    int count = parse_augment(o, "flip,rotation:0.1,zoom:0.1", list);
    if (count < 0) return EXIT_USAGE;
    mirt_dataset *dataset = open_sheet(o, list, count);
    mirt_status status = dataset ? mirt_save_grid(o->out, dataset, SHEET_ROWS, SHEET_COLUMNS) : mirt_last_status();
    mirt_dataset_destroy(dataset);
    if (status != MIRT_OK) return complain_of_library();
    printf("saved: %s\n", o->out);
    return EXIT_OK;
}
