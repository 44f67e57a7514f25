/* Data sets of image files, which are read, decoded and resized on demand. */

#include "../base/file.h"
#include "../base/team.h"
#include "image_files.h"

static bool mirt__images_is_corrupt(mirt_status status) {
    return status == MIRT_E_FORMAT || status == MIRT_E_IO || status == MIRT_E_NOT_FOUND || status == MIRT_E_CALLBACK;
}

static void mirt__images_log(const mirt_image_directory_desc *desc, mirt_log_level level, const char *text) {
    MIRT__OUTSIDE;
    if (desc->log) desc->log(level, text, desc->log_user);
}

/* Stores the reason the first time; several threads may call it. */
static mirt_status mirt__images_note(mirt__image_dataset *images, int64_t i) {
    if (__atomic_load_n(&images->reason[i], __ATOMIC_ACQUIRE)) return MIRT_OK;
    char *none = NULL, *reason = mirt__strdup(mirt_last_error());
    if (!reason) return MIRT_E_NOMEM;
    if (__atomic_compare_exchange_n(&images->reason[i], &none, reason, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        mirt__images_log(&images->desc, MIRT_LOG_WARNING, reason);
    else mirt__free(reason);
    return MIRT_OK;
}

static void mirt__images_label(const mirt__image_dataset *images, int64_t i, void *out) {
    int32_t label = images->list.file[i].label;
    float *number = (float *)out;
    if (images->desc.label_mode == MIRT_LABELS_INT) memcpy(out, &label, sizeof label);
    if (images->desc.label_mode == MIRT_LABELS_BINARY) *number = (float)label;
    for (int k = 0; images->desc.label_mode == MIRT_LABELS_CATEGORICAL && k < images->list.num_classes; k++)
        number[k] = k == label ? 1.0f : 0.0f;
}

static mirt_status mirt__images_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                     int64_t *index) {
    mirt__image_dataset *images = (mirt__image_dataset *)dataset;
    *index = i;
    if (!field)
        return images->desc.corrupt == MIRT_CORRUPT_SKIP && __atomic_load_n(&images->reason[i], __ATOMIC_ACQUIRE)
                   ? MIRT__SKIPPED
                   : MIRT_OK;
    if (images->desc.label_mode != MIRT_LABELS_NONE) mirt__images_label(images, i, field[1]);
    const mirt__file_part file = mirt__image_list_part_of(&images->list, i);
    mirt__at_begin(dataset, work, file.name, i);
    mirt_status status = mirt__images_load(&images->desc, &file, images, work, field[0]);
    mirt__at_end(dataset, work);
    if (!mirt__images_is_corrupt(status) || images->desc.corrupt == MIRT_CORRUPT_FAIL) return status;
    if (mirt__images_note(images, i) != MIRT_OK) return MIRT_E_NOMEM;
    if (images->desc.corrupt == MIRT_CORRUPT_SKIP) return MIRT__SKIPPED;
    memset(field[0], 0, dataset->spec.field[0].bytes);
    return MIRT_OK;
}

static void mirt__images_release(mirt_dataset *dataset) {
    mirt__image_dataset *images = (mirt__image_dataset *)dataset;
    for (int64_t i = 0; images->reason && i < images->list.count; i++) mirt__free(images->reason[i]);
    mirt__free(images->reason);
    mirt__free(images->shard);
    mirt__image_list_free(&images->list);
}

static const mirt__stage mirt__images_stage = {
    NULL, NULL, NULL, mirt__images_make, mirt__dataset_fill_made, mirt__images_release, NULL};

MIRT__LIB const mirt__image_dataset *mirt__images_of(const mirt_dataset *dataset) {
    while (dataset && dataset->source) dataset = dataset->source;
    return dataset && dataset->stage == &mirt__images_stage ? (const mirt__image_dataset *)dataset : NULL;
}

MIRT_API const char *mirt_dataset_file(const mirt_dataset *dataset, int64_t index) {
    const mirt__image_dataset *images = mirt__images_of(dataset);
    return images && index >= 0 && index < images->list.count ? images->list.file[index].path : NULL;
}

static void mirt__tell_of_corrupt(mirt_corrupt_fn fn, const char *path, const char *reason, void *user) {
    MIRT__OUTSIDE;
    fn(path, reason, user);
}

MIRT_API int64_t mirt_corrupt_images(const mirt_dataset *dataset, mirt_corrupt_fn fn, void *user) {
    MIRT__ENTER;
    const mirt__image_dataset *images = mirt__images_of(dataset);
    int64_t found = 0;
    for (int64_t i = 0; images && i < images->list.count; i++) {
        const char *reason = __atomic_load_n(&images->reason[i], __ATOMIC_ACQUIRE);
        found += reason != NULL;
        if (reason && fn) mirt__tell_of_corrupt(fn, images->list.file[i].path, reason, user);
    }
    return found;
}

/* >>making data sets */

/* Where files and labels come from. */
typedef struct mirt__images_from {
    const char *what; /* that a caller names */
    mirt_status (*list)(mirt__image_list *list, const char *path, const mirt_image_directory_desc *desc);
} mirt__images_from;
static const mirt__images_from mirt__images_from_directory = {"directory", mirt__image_list_directory},
                               mirt__images_from_csv = {"file of paths and labels", mirt__image_list_csv},
                               mirt__images_from_shards = {"shards", mirt__image_list_shards};

static void mirt__images_say(const mirt_image_directory_desc *desc, mirt_log_level level, const char *format, ...)
    MIRT__PRINTF(3, 4);
static void mirt__images_say(const mirt_image_directory_desc *desc, mirt_log_level level, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    mirt__vprint(text, sizeof text, format, args);
    va_end(args);
    mirt__images_log(desc, level, text);
}

/* Keras silently accepts classes without images, but each costs an output. The labels are still sorted. */
static void mirt__images_warn_of_empty(const char *path, const mirt_image_directory_desc *desc,
                                       const mirt__image_list *list) {
    int64_t i = 0;
    for (int c = 0; c < list->num_classes; c++) {
        if (i == list->count || list->file[i].label != c)
            mirt__images_say(desc, MIRT_LOG_WARNING, "%s: no image of the class \"%s\"", path, list->classes[c]);
        while (i < list->count && list->file[i].label == c) i++;
    }
}

static mirt_status mirt__images_list(const char *path, const mirt__images_from *from,
                                     const mirt_image_directory_desc *desc, mirt__image_list *list) {
    mirt_status status = from->list(list, path, desc);
    if (status != MIRT_OK) return status;
    if (desc->label_mode == MIRT_LABELS_BINARY && list->num_classes != 2)
        status = mirt__fail(MIRT_E_INVALID, "%s: binary labels need exactly 2 classes, but there %s %d", path,
                            list->num_classes == 1 ? "is" : "are", list->num_classes);
    const bool numbered = desc->label_mode == MIRT_LABELS_BINARY || desc->label_mode == MIRT_LABELS_CATEGORICAL;
    for (int64_t i = 0; numbered && i < list->count && status == MIRT_OK; i++) {
        const mirt__image_file *file = &list->file[i];
        if (file->label < 0 || file->label >= list->num_classes)
            status = mirt__fail(MIRT_E_INVALID, "%s: the label %ld of %s is not one of %d classes, 0 to %d", path,
                                (long)file->label, file->path, list->num_classes, list->num_classes - 1);
    }
    if (status != MIRT_OK) {
        mirt__image_list_free(list);
        return status;
    }
    const char *many = list->count == 1 ? "" : "s";
    if (list->classes)
        mirt__images_say(desc, MIRT_LOG_INFO, "Found %lld file%s belonging to %d class%s.", (long long)list->count,
                         many, list->num_classes, list->num_classes == 1 ? "" : "es");
    else mirt__images_say(desc, MIRT_LOG_INFO, "Found %lld file%s.", (long long)list->count, many);
    if (list->classes && from == &mirt__images_from_directory && !desc->labels)
        mirt__images_warn_of_empty(path, desc, list);
    /* Members of shards stay in their order; a split takes a random share of them. */
    if (!desc->no_shuffle && (!list->shards || desc->validation_split > 0)) mirt__image_list_shuffle(list, desc->seed);
    return MIRT_OK;
}

/* Identifies the names of the files, not their contents, and all settings that affect pixels or the handling of corrupt
   files. */
static uint64_t mirt__images_identity(const mirt__image_list *list, const mirt_image_directory_desc *desc) {
    const mirt_decode_desc *d = &desc->decode;
    const int64_t option[] = {(int64_t)desc->color_mode,
                              (int64_t)desc->interpolation,
                              desc->antialias,
                              desc->crop_to_aspect_ratio,
                              desc->pad_to_aspect_ratio,
                              (int64_t)desc->corrupt,
                              d->least_height,
                              d->least_width,
                              d->max_side,
                              d->max_pixels,
                              d->max_bytes,
                              d->decoder != NULL};
    uint64_t identity = mirt__hash("images");
    for (int i = 0; i < MIRT__COUNT(option); i++) identity = mirt__identity_with(identity, (uint64_t)option[i]);
    for (int64_t i = 0; i < list->count; i++)
        identity = mirt__identity_with(mirt__identity_with(identity, mirt__hash(list->file[i].path)),
                                       (uint64_t)list->file[i].label);
    return identity;
}

/* For shuffles: the shard of each sample. */
static mirt_status mirt__images_set_shards(mirt__image_dataset *images) {
    images->shard = (int32_t *)mirt__calloc((size_t)images->list.count, sizeof(int32_t));
    if (!images->shard) return MIRT_E_NOMEM;
    for (int64_t i = 0; i < images->list.count; i++) images->shard[i] = images->list.file[i].shard;
    images->base.shard = images->shard;
    images->base.num_shards = images->list.num_shards;
    return MIRT_OK;
}

/* Creates the source stage; takes ownership of the list. */
static mirt_dataset *mirt__images_source(mirt__image_list *list, const mirt_image_directory_desc *desc) {
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__image_dataset), &mirt__images_stage);
    if (!dataset) {
        mirt__image_list_free(list);
        return NULL;
    }
    mirt__image_dataset *images = (mirt__image_dataset *)dataset;
    images->list = *list;
    images->desc = *desc;
    images->desc.class_names = NULL;
    images->desc.labels = NULL;
    dataset->skips = desc->corrupt == MIRT_CORRUPT_SKIP;
    const char *end = list->count ? strrchr(list->file[0].path, '.') : NULL;
    dataset->cost = end && (end[1] == 'j' || end[1] == 'J') ? "JPEG decoding" : "image decoding";
    dataset->identity = mirt__images_identity(&images->list, desc);
    mirt__data_spec *spec = &dataset->spec;
    spec->num_x = 1;
    mirt__data_add_field(spec, desc->dtype,
                         MIRT_SHAPE(desc->height, desc->width, mirt__mode_channels(desc->color_mode)));
    if (desc->label_mode != MIRT_LABELS_NONE) {
        int64_t numbers = desc->label_mode == MIRT_LABELS_BINARY        ? 1
                          : desc->label_mode == MIRT_LABELS_CATEGORICAL ? list->num_classes
                                                                        : 0;
        mirt__data_add_field(spec, desc->label_mode == MIRT_LABELS_INT ? MIRT_INT32 : MIRT_FLOAT32,
                             MIRT_SHAPE(numbers));
        spec->num_y = 1;
    }
    spec->samples = list->count;
    mirt_status status = mirt__dataset_check_spec(dataset);
    images->reason = (char **)mirt__calloc((size_t)list->count, sizeof(char *));
    if (!images->reason) status = MIRT_E_NOMEM;
    if (status == MIRT_OK && list->shards) status = mirt__images_set_shards(images);
    if (status == MIRT_OK && list->classes)
        status = mirt_set_class_names(dataset, list->classes, list->num_classes);
    return mirt__dataset_checked(status, &dataset);
}

/* Shuffles of shards go through a buffer of so many samples, as in WebDataset's examples. */
#define MIRT__SHARD_BUFFER 1000

/* Creates the stages for a subset of the files, or for all, which leaves the list empty. */
static mirt_dataset *mirt__images_build(const char *path, mirt__image_list *list, const mirt_image_directory_desc *desc,
                                        mirt_subset subset, bool shuffle) {
    const double split = desc->validation_split;
    const bool validates = subset == MIRT_SUBSET_VALIDATION;
    const int64_t validation = (int64_t)(split * (double)list->count), training = list->count - validation,
                  first = validates ? training : 0,
                  files = subset == MIRT_SUBSET_ALL ? list->count : validates ? validation : training;
    mirt__image_list part;
    if (subset != MIRT_SUBSET_ALL && (validation == 0 || training == 0)) {
        mirt__fail(MIRT_E_INVALID,
                   "%s: a validation_split of %g of %lld files leaves none for %s: at least %lld are needed", path,
                   split, (long long)list->count, validation ? "training" : "validation",
                   (long long)ceil(validation ? 1 / (1 - split) : 1 / split));
        return NULL;
    }
    if (subset != MIRT_SUBSET_ALL)
        mirt__images_say(desc, MIRT_LOG_INFO, "Using %lld files for %s.", (long long)files,
                         validates ? "validation" : "training");
    const bool sharded = list->shards != NULL;
    if (subset == MIRT_SUBSET_ALL) {
        part = *list;
        memset(list, 0, sizeof *list);
    } else if (mirt__image_list_part(list, first, files, &part) != MIRT_OK) {
        return NULL;
    }
    mirt_dataset *dataset = mirt__images_source(&part, desc);
    if (desc->batch_size == MIRT_NO_BATCH) return dataset;
    if (shuffle) dataset = mirt_shuffle(dataset, sharded ? MIRT__SHARD_BUFFER : files);
    return mirt_prefetch(mirt_batch(dataset, desc->batch_size), MIRT_AUTOTUNE);
}

/* The parts would become classes. */
static mirt_status mirt__images_refuse_parts(const char *directory, const mirt_image_directory_desc *desc) {
    mirt__image_parts parts;
    if (desc->labels || desc->label_mode == MIRT_LABELS_NONE) return MIRT_OK;
    mirt_status status = mirt__image_parts_find(&parts, directory, desc);
    if (status == MIRT_OK && parts.training)
        status = mirt__fail(MIRT_E_INVALID,
                            "%s is split into parts, which are not classes: pass %s or %s, or call "
                            "mirt_image_datasets_from_directory for both; class_names that list them make them classes",
                            directory, parts.training, parts.validation);
    mirt__pool_free(&parts.pool);
    return status;
}

static mirt_status mirt__images_labels_check(const char *caller, const mirt__images_from *from,
                                             const mirt_image_directory_desc *desc) {
    if (!desc->labels || from == &mirt__images_from_directory) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "%s: labels are in the %s", caller,
                      from == &mirt__images_from_csv ? "file" : "shards");
}

static mirt_dataset *mirt__images_open(const char *caller, const char *path, const mirt__images_from *from,
                                       const mirt_image_directory_desc *given) {
    mirt_image_directory_desc desc;
    mirt__image_list list;
    mirt__images_defaults(given, &desc);
    if (mirt__images_labels_check(caller, from, &desc) != MIRT_OK) return NULL;
    if (!path) mirt__fail_missing(caller, from->what);
    if (!path || mirt__images_check(caller, &desc) != MIRT_OK || mirt__decoder_missing(&desc.decode) ||
        (from == &mirt__images_from_directory && mirt__images_refuse_parts(path, &desc) != MIRT_OK) ||
        mirt__images_list(path, from, &desc, &list) != MIRT_OK)
        return NULL;
    mirt_dataset *dataset = mirt__images_build(path, &list, &desc, desc.subset, !desc.no_shuffle);
    mirt__image_list_free(&list);
    return dataset;
}

MIRT_API mirt_dataset *mirt_image_dataset_from_directory(const char *directory, const mirt_image_directory_desc *desc) {
    MIRT__ENTER;
    return mirt__images_open("mirt_image_dataset_from_directory", directory, &mirt__images_from_directory, desc);
}

MIRT_API mirt_dataset *mirt_image_dataset_from_csv(const char *csv, const mirt_image_directory_desc *desc) {
    MIRT__ENTER;
    return mirt__images_open("mirt_image_dataset_from_csv", csv, &mirt__images_from_csv, desc);
}

MIRT_API mirt_dataset *mirt_tar_dataset(const char *shards, const mirt_image_directory_desc *desc) {
    MIRT__ENTER;
    return mirt__images_open("mirt_tar_dataset", shards, &mirt__images_from_shards, desc);
}

/* Both lists are sorted, or are the caller's class_names. */
static mirt_status mirt__images_same_classes(const mirt__image_parts *parts, const mirt__image_list list[2]) {
    const int counts[] = {list[0].num_classes, list[1].num_classes};
    int i = 0, order = 0;
    while (i < counts[0] && i < counts[1] && (order = strcmp(list[0].classes[i], list[1].classes[i])) == 0) i++;
    if (i == counts[0] && i == counts[1]) return MIRT_OK;
    const int extra = i == counts[0] || order > 0;
    const char *path[] = {parts->training, parts->validation};
    return mirt__fail(MIRT_E_INVALID, "%s has no subdirectory for the class \"%s\", which %s has", path[1 - extra],
                      list[extra].classes[i], path[extra]);
}

/* Opens both parts of a directory that is already split; both are NULL otherwise. */
static mirt_status mirt__images_open_parts(const mirt__image_parts *parts, const mirt_image_directory_desc *given,
                                           mirt_dataset *out[2]) {
    const char *path[] = {parts->training, parts->validation};
    mirt_image_directory_desc desc = *given;
    mirt__image_list list[2];
    memset(list, 0, sizeof list);
    mirt__images_say(&desc, MIRT_LOG_INFO, "Using %s for training and %s for validation%s.", path[0], path[1],
                     desc.validation_split > 0 ? "; validation_split does not apply" : "");
    desc.validation_split = 0;
    desc.subset = MIRT_SUBSET_ALL;
    mirt_status status = mirt__images_list(path[0], &mirt__images_from_directory, &desc, &list[0]);
    desc.no_shuffle = true; /* classes of the validation data */
    if (status == MIRT_OK) status = mirt__images_list(path[1], &mirt__images_from_directory, &desc, &list[1]);
    if (status == MIRT_OK) status = mirt__images_same_classes(parts, list);
    for (int i = 0; i < 2 && status == MIRT_OK; i++) {
        out[i] = mirt__images_build(path[i], &list[i], &desc, MIRT_SUBSET_ALL, i == 0 && !given->no_shuffle);
        if (!out[i]) status = mirt_last_status();
    }
    for (int i = 0; i < 2; i++) mirt__image_list_free(&list[i]);
    return status;
}

/* Opens both subsets of one list. */
static mirt_status mirt__images_open_split(const char *path, const mirt__images_from *from,
                                           const mirt_image_directory_desc *desc, mirt_dataset *out[2]) {
    mirt__image_list list;
    mirt_status status = mirt__images_list(path, from, desc, &list);
    if (status != MIRT_OK) return status;
    out[0] = mirt__images_build(path, &list, desc, MIRT_SUBSET_TRAINING, !desc->no_shuffle);
    if (out[0]) out[1] = mirt__images_build(path, &list, desc, MIRT_SUBSET_VALIDATION, false);
    mirt__image_list_free(&list);
    return out[1] ? MIRT_OK : mirt_last_status();
}

/* What is checked before two subsets are opened; sets both to NULL. */
static mirt_status mirt__images_both_check(const char *caller, const char *path, const mirt__images_from *from,
                                           const mirt_image_directory_desc *given, mirt_image_directory_desc *desc,
                                           mirt_dataset **training, mirt_dataset **validation) {
    if (!training || !validation) return mirt__fail_missing(caller, "pointers for the data sets");
    *training = *validation = NULL;
    if (!path) return mirt__fail_missing(caller, from->what);
    mirt__images_defaults(given, desc);
    desc->subset = desc->validation_split > 0 ? MIRT_SUBSET_TRAINING : MIRT_SUBSET_ALL;
    if (mirt__images_labels_check(caller, from, desc) != MIRT_OK || mirt__images_check(caller, desc) != MIRT_OK)
        return mirt_last_status();
    return mirt__decoder_missing(&desc->decode) ? MIRT_E_NOT_FOUND : MIRT_OK;
}

MIRT_API mirt_status mirt_image_datasets_from_directory(const char *directory, const mirt_image_directory_desc *given,
                                                        mirt_dataset **training, mirt_dataset **validation) {
    MIRT__ENTER;
    static const char caller[] = "mirt_image_datasets_from_directory";
    mirt_image_directory_desc desc;
    mirt__image_parts parts;
    mirt_dataset *out[2] = {NULL, NULL};
    mirt_status status = mirt__images_both_check(caller, directory, &mirt__images_from_directory, given, &desc,
                                                 training, validation);
    if (status != MIRT_OK) return status;
    memset(&parts, 0, sizeof parts);
    if (!desc.labels) status = mirt__image_parts_find(&parts, directory, &desc);
    if (status == MIRT_OK && parts.training) status = mirt__images_open_parts(&parts, &desc, out);
    else if (status == MIRT_OK && desc.validation_split > 0)
        status = mirt__images_open_split(directory, &mirt__images_from_directory, &desc, out);
    else if (status == MIRT_OK)
        status = mirt__fail(MIRT_E_INVALID, "%s: %s has no train/ and validation/: validation_split must be above 0",
                            caller, directory);
    mirt__pool_free(&parts.pool);
    *training = mirt__dataset_checked(status, &out[0]);
    *validation = mirt__dataset_checked(status, &out[1]);
    return status;
}

MIRT_API mirt_status mirt_tar_datasets(const char *shards, const mirt_image_directory_desc *given,
                                       mirt_dataset **training, mirt_dataset **validation) {
    MIRT__ENTER;
    static const char caller[] = "mirt_tar_datasets";
    mirt_image_directory_desc desc;
    mirt_dataset *out[2] = {NULL, NULL};
    mirt_status status =
        mirt__images_both_check(caller, shards, &mirt__images_from_shards, given, &desc, training, validation);
    if (status == MIRT_OK && desc.validation_split == 0)
        status = mirt__fail(MIRT_E_INVALID, "%s: validation_split must be above 0", caller);
    if (status != MIRT_OK) return status;
    status = mirt__images_open_split(shards, &mirt__images_from_shards, &desc, out);
    *training = mirt__dataset_checked(status, &out[0]);
    *validation = mirt__dataset_checked(status, &out[1]);
    return status;
}

MIRT_API mirt_status mirt_image_directory_part(const char *directory, const mirt_image_directory_desc *given,
                                               mirt_subset part, char *path, size_t size) {
    MIRT__ENTER;
    static const char caller[] = "mirt_image_directory_part";
    mirt_image_directory_desc desc;
    mirt__image_parts parts;
    if (!directory || !path) return mirt__fail_missing(caller, directory ? "buffer for the path" : "directory");
    if (part != MIRT_SUBSET_TRAINING && part != MIRT_SUBSET_VALIDATION)
        return mirt__fail(MIRT_E_INVALID, "%s: invalid part (%d)", caller, (int)part);
    mirt__images_defaults(given, &desc);
    if (mirt__images_check_names(caller, &desc) != MIRT_OK) return MIRT_E_INVALID;
    mirt_status status = mirt__image_parts_find(&parts, directory, &desc);
    const char *found = part == MIRT_SUBSET_TRAINING ? parts.training : parts.validation;
    const size_t length = found ? strlen(found) + 1 : 0;
    if (status == MIRT_OK && !found)
        status = mirt__fail(MIRT_E_NOT_FOUND, "%s is not split into train/ and validation/", directory);
    if (status == MIRT_OK && length > size)
        status = mirt__fail(MIRT_E_INVALID, "%s: a path of %llu bytes does not fit into %llu", caller,
                            (unsigned long long)length, (unsigned long long)size);
    if (status == MIRT_OK) memcpy(path, found, length);
    mirt__pool_free(&parts.pool);
    return status;
}

/* >>verifying */

typedef struct mirt__verify {
    const mirt__image_list *list;
    const mirt_decode_desc *desc;
    char **reason;
    int no_memory;
} mirt__verify;

static void mirt__verify_one(void *arg, int64_t task, int member) {
    mirt__verify *verify = (mirt__verify *)arg;
    mirt_image image;
    (void)member;
    const mirt__file_part file = mirt__image_list_part_of(verify->list, task);
    mirt_status status = mirt__image_read(&file, MIRT_RGB, verify->desc, &image);
    if (status == MIRT_OK) mirt_image_free(&image);
    else if (mirt__images_is_corrupt(status)) verify->reason[task] = mirt__strdup(mirt_last_error());
    if (status != MIRT_OK && !verify->reason[task]) __atomic_store_n(&verify->no_memory, 1, __ATOMIC_RELAXED);
}

/* The images below a directory; without any, or where archives are named, those in shards. */
static mirt_status mirt__verify_list(const char *path, const mirt_image_directory_desc *desc, mirt__image_list *list) {
    const bool directory = mirt__is_directory(path), archives = mirt__name_ends(path, ".tar") && !directory;
    mirt__error error;
    mirt_status status =
        mirt__images_list(path, archives ? &mirt__images_from_shards : &mirt__images_from_directory, desc, list);
    if (status != MIRT_E_NOT_FOUND || !directory) return status;
    mirt__error_get(&error);
    status = mirt__images_list(path, &mirt__images_from_shards, desc, list);
    if (status == MIRT_E_NOT_FOUND) mirt__error_set(&error);
    return status;
}

MIRT_API mirt_status mirt_verify_images(const char *directory, const mirt_decode_desc *decode, mirt_corrupt_fn fn,
                                        void *user, int64_t *images, int64_t *corrupt) {
    MIRT__ENTER;
    mirt_image_directory_desc desc;
    mirt__image_list list;
    mirt__verify verify;
    int64_t found = 0;
    mirt__images_defaults(NULL, &desc);
    if (decode) desc.decode = *decode;
    desc.label_mode = MIRT_LABELS_NONE;
    desc.no_shuffle = true;
    desc.follow_links = true;
    if (!directory) return mirt__fail_missing("mirt_verify_images", "directory");
    if (mirt__decoder_missing(&desc.decode)) return MIRT_E_NOT_FOUND;
    mirt_status status = mirt__verify_list(directory, &desc, &list);
    if (status != MIRT_OK) return status;
    memset(&verify, 0, sizeof verify);
    verify.list = &list;
    verify.desc = &desc.decode;
    verify.reason = (char **)mirt__calloc((size_t)list.count, sizeof(char *));
    mirt__team *team = verify.reason ? mirt__team_create(mirt__cpu_cores(), false) : NULL;
    if (team) mirt__team_for(team, list.count, mirt__verify_one, &verify);
    else status = mirt_last_status();
    mirt__team_destroy(team);
    if (verify.no_memory) status = (mirt__no_memory(0), MIRT_E_NOMEM);
    for (int64_t i = 0; verify.reason && i < list.count; i++) {
        if (!verify.reason[i]) continue;
        found++;
        if (fn && status == MIRT_OK) mirt__tell_of_corrupt(fn, list.file[i].path, verify.reason[i], user);
        mirt__free(verify.reason[i]);
    }
    if (images) *images = list.count;
    if (corrupt) *corrupt = found;
    mirt__free(verify.reason);
    mirt__image_list_free(&list);
    return status;
}

#undef MIRT__SHARD_BUFFER
