/* Photographs for fit and evaluate, and networks with a new head for them. */
#include "posix.h"
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_PHOTOS "data/cats-vs-dogs"
#define DEFAULT_SPLIT 0.2
#define DRAWN_PHOTOS 400
#define CACHE_BYTES ((int64_t)1 << 30)
enum { MAX_HEAD = 256 };

static int64_t corrupt; /* damaged photographs since the data sets were opened; a filled cache no longer reports them */

void log_nothing(mirt_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user;
}

/* From any thread. */
static void log_images(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (level == MIRT_LOG_WARNING) __atomic_fetch_add(&corrupt, 1, __ATOMIC_RELAXED);
    note("%s", text);
}

/* >>directories */

/* The directories in `path` that are not among the `known` names: how many, and some of them in `names`. */
static int other_directories(const char *path, const char *const *known, int count, char *names, size_t size) {
    char entry_path[MAX_PHOTO_PATH];
    int found = 0;
    names[0] = 0;
    DIR *stream = opendir(path);
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        int i = 0;
        while (i < count && strcmp(known[i], entry->d_name) != 0) i++;
        const int length = snprintf(entry_path, sizeof entry_path, "%s/%s", path, entry->d_name);
        if (i < count || entry->d_name[0] == '.' || length < 0 || (size_t)length >= sizeof entry_path) continue;
        if (!is_directory(entry_path)) continue;
        const size_t used = strlen(names);
        if (used + strlen(entry->d_name) + 8 < size)
            snprintf(names + used, size - used, "%s\"%s\"", used ? ", " : "", entry->d_name);
        found++;
    }
    if (stream) closedir(stream);
    return found;
}

bool has_directories(const char *path) {
    char names[16];
    return other_directories(path, NULL, 0, names, sizeof names) > 0;
}

static bool is_shard(const char *name) {
    const size_t size = strlen(name);
    return size > 4 && strcasecmp(name + size - 4, ".tar") == 0;
}

bool has_shards(const char *path) {
    if (!is_directory(path)) return is_shard(path);
    bool found = false;
    DIR *stream = opendir(path);
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;)
        found = found || (entry->d_name[0] != '.' && is_shard(entry->d_name));
    if (stream) closedir(stream);
    return found && !has_directories(path); /* archives may lie beside the directories that came out of them */
}

mirt_dataset *open_photographs(const char *path, const mirt_image_directory_desc *desc) {
    return has_shards(path) ? mirt_tar_dataset(path, desc) : mirt_image_dataset_from_directory(path, desc);
}

const char *photo_part(const char *directory, const mirt_image_directory_desc *desc, mirt_subset part,
                       char path[MAX_PHOTO_PATH]) {
    return mirt_image_directory_part(directory, desc, part, path, MAX_PHOTO_PATH) == MIRT_OK ? path : directory;
}

/* NULL: the photographs are drawn. */
static const char *photo_directory(const options *o) {
    return o->data ? o->data : is_directory(DEFAULT_PHOTOS) ? DEFAULT_PHOTOS : NULL;
}

/* >>data sets */

void note_drawn_photos(bool looked) {
    note("data: no %s, so the program draws animals itself",
         looked ? "--data and no " DEFAULT_PHOTOS : "directory was named");
}

void describe_images(const options *o, int height, int width, mirt_image_directory_desc *desc) {
    memset(desc, 0, sizeof *desc);
    desc->height = height;
    desc->width = width;
    desc->batch_size = MIRT_NO_BATCH;
    desc->has_seed = true;
    desc->seed = (uint32_t)o->seed;
    desc->no_shuffle = true;
    desc->follow_links = true; /* as verify */
    desc->dtype = MIRT_UINT8;
    if (chosen(o->corrupt, "skip")) desc->corrupt = MIRT_CORRUPT_SKIP;
    if (chosen(o->corrupt, "zero")) desc->corrupt = MIRT_CORRUPT_ZERO;
    desc->log = log_images;
}

/* Validation classes must be among the training classes; false after complaining. */
static bool same_classes(const char *training, const char *validation, const char *const *names, int count) {
    char more[512];
    const int found = other_directories(validation, names, count, more, sizeof more);
    if (!found) return true;
    complain("--validation %s: %s has no class%s %s", validation, training, found == 1 ? "" : "es", more);
    return false;
}

/* Opens the photographs for training and validation; false after complaining. */
static bool open_directories(const options *o, const char *directory, const mirt_image_directory_desc *desc,
                             mirt_dataset **training, mirt_dataset **test) {
    char train[MAX_PHOTO_PATH], validation[MAX_PHOTO_PATH];
    mirt_image_directory_desc d = *desc;
    const char *first = photo_part(directory, desc, MIRT_SUBSET_TRAINING, train);
    const bool shards = has_shards(first), parts = first != directory;
    d.no_shuffle = o->validation || parts; /* otherwise a random share of the files is used for validation */
    d.validation_split = d.no_shuffle ? 0 : o->validation_split > 0 ? o->validation_split : DEFAULT_SPLIT;
    if (o->validation || (shards && parts)) {
        *training = open_photographs(first, &d);
        d.class_names = mirt_class_names(*training, &d.num_class_names);
        const char *second = photo_part(o->validation ? o->validation : directory, &d, MIRT_SUBSET_VALIDATION,
                                        validation);
        if (*training && !same_classes(first, second, d.class_names, d.num_class_names)) return false;
        *test = *training ? open_photographs(second, &d) : NULL;
    } else if (shards) {
        mirt_tar_datasets(directory, &d, training, test);
    } else {
        mirt_image_datasets_from_directory(directory, &d, training, test);
    }
    corrupt = 0; /* classes without a photograph are logged too */
    if (*training && *test) return true;
    complain_of_library();
    return false;
}

static bool open_photo_sets(const options *o, int height, int width, mirt_dataset **training, mirt_dataset **test) {
    mirt_image_directory_desc desc;
    const char *directory = photo_directory(o);
    describe_images(o, height, width, &desc);
    if (directory) return open_directories(o, directory, &desc, training, test);
    note_drawn_photos(true);
    if (!o->weights && strncmp(o->model, "mobilenet_", 10) == 0)
        fprintf(stderr,
                "  from scratch val_accuracy stays near 0.5 for thousands of steps: evaluation uses %s's "
                "running averages, with momentum 0.999 as in Keras\n",
                o->model);
    *training = mirt_drawn_photos(DRAWN_PHOTOS, height, width, o->seed, MIRT_TRAIN);
    *test = mirt_drawn_photos(DRAWN_PHOTOS / 4, height, width, o->seed, MIRT_TEST);
    if (*training && *test) return true;
    complain_of_library();
    return false;
}

/* Caches decoded photographs in memory if they fit and are needed more than once. */
static mirt_dataset *keep_photos(const options *o, mirt_dataset *dataset, int height, int width) {
    const bool vary = o->augment || mixes_photos(o); /* otherwise features of frozen layers are cached instead */
    const bool once = o->epochs < 2 || (o->freeze && !vary);
    const int64_t samples = mirt_dataset_size(dataset);
    return o->no_cache || once || samples > CACHE_BYTES / ((int64_t)3 * height * width) ? dataset : mirt_cache(dataset);
}

/* Whether --augment produces images of the size that the network takes; false after complaining. */
static bool augment_fits(const options *o, const mirt_augmentation *list, int count, int height, int width) {
    int made = height, across = width;
    for (int i = 0; i < count; i++) {
        if (list[i].kind != MIRT_RANDOM_CROP && list[i].kind != MIRT_CENTER_CROP && list[i].kind != MIRT_RESIZING)
            continue;
        made = list[i].height;
        across = list[i].width ? list[i].width : made;
    }
    if (made == height && across == width) return true;
    if (made != across)
        complain("--augment %s produces images of %d x %d, but %s takes %d x %d: end it with resizing:%d", o->augment,
                 made, across, o->model, height, width, height);
    else
        complain("--augment %s produces images of size %d: give --size %d, or end it with resizing:%d", o->augment,
                 made, made, height);
    return false;
}

bool mixes_photos(const options *o) { return o->mix_up > 0 || o->cut_mix > 0; }

static int class_as_float(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)index, (void)user;
    *(float *)out[1] = (float)*(const int32_t *)in[1];
    return 0;
}

/* Labels that can be mixed: of two classes the share of the second one, as the network's output, otherwise one-hot. */
static mirt_dataset *with_soft_labels(const options *o, mirt_dataset *dataset) {
    mirt_map_desc desc;
    int classes = 0;
    mirt_class_names(dataset, &classes);
    if (!mixes_photos(o) || !photo_directory(o)) return dataset; /* those that are drawn have such labels */
    if (classes > 2) return mirt_one_hot_labels(dataset, classes);
    memset(&desc, 0, sizeof desc);
    desc.fn = class_as_float;
    desc.num_y = 1;
    desc.y[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(0));
    return mirt_map(dataset, &desc);
}

/* Adds the stages for training; false after complaining. */
static bool prepare_photos(const options *o, const mirt_augmentation *list, int count, int height, int width,
                           training_job *j) {
    mirt_dataset *d = keep_photos(o, j->training, height, width);
    if (!o->no_shuffle) d = mirt_shuffle(d, 10000);
    if (count > 0) d = mirt_augment(d, list, count);
    d = with_soft_labels(o, d);
    if (o->mix_up > 0) d = mirt_mix_up(d, o->mix_up);
    if (o->cut_mix > 0) d = mirt_cut_mix(d, 0, o->cut_mix);
    j->training = mirt_prefetch(mirt_accumulate(mirt_batch(d, o->batch), (int)o->accumulate), MIRT_AUTOTUNE);
    if (j->training)
        j->test = mirt_prefetch(mirt_batch(with_soft_labels(o, keep_photos(o, j->test, height, width)), o->batch),
                                MIRT_AUTOTUNE);
    if (j->training && j->test) return true;
    complain_of_library();
    return false;
}

/* >>networks */

/* A word of --head: units of a dense layer, or dropout:RATE. NULL after complaining. */
static mirt_tensor *head_layer(const options *o, mirt_tensor *x, const char *word) {
    mirt_dense_desc dense;
    char *end;
    memset(&dense, 0, sizeof dense);
    if (strncmp(word, "dropout:", 8) == 0) {
        float rate = strtof(word + 8, &end);
        if (word[8] && !*end && rate >= 0 && rate < 1) return mirt_dropout(x, rate);
    } else {
        long units = strtol(word, &end, 10);
        dense.units = (int)units;
        dense.activation = MIRT_RELU;
        if (*word >= '1' && *word <= '9' && !*end && units <= 65536) return mirt_dense(x, &dense);
    }
    complain("--head is \"%s\"; it must list units of dense layers and dropout:RATE, such as 512,dropout:0.5, not "
             "\"%s\"", o->head, word);
    return NULL;
}

/* The layers of --head on x, and one for the classes; NULL after complaining. */
static mirt_tensor *add_head(const options *o, mirt_tensor *x, int classes) {
    mirt_dense_desc last;
    char words[MAX_HEAD];
    memset(&last, 0, sizeof last);
    if (o->head && strlen(o->head) >= sizeof words) {
        complain("--head has %d characters; at most %d are allowed", (int)strlen(o->head), (int)sizeof words - 1);
        return NULL;
    }
    snprintf(words, sizeof words, "%s", o->head ? o->head : "");
    for (char *word = words, *next; x && word && *word; word = next) {
        next = strchr(word, ',');
        if (next) *next++ = 0;
        if (!(x = head_layer(o, x, word))) return NULL;
    }
    last.units = classes == 2 ? 1 : classes;
    last.activation = classes == 2 ? MIRT_SIGMOID : MIRT_SOFTMAX;
    last.name = "predictions";
    return mirt_dense(x, &last);
}

/* `base` with a head for the classes of the data, compiled; NULL after complaining. */
static mirt_model *build_classifier(mirt_strategy *strategy, const options *o, mirt_model *base, int classes,
                                    int *status) {
    mirt_shape shape = mirt_tensor_shape(mirt_input_of(base, 0));
    mirt_model *model = mirt_model_create(strategy, "photographs");
    if (!model) return complain_of_model(status);
    mirt_next_name(model, "base");
    mirt_tensor *x =
        mirt_call(base, mirt_input(model, mirt_make_shape(shape.dim[1], shape.dim[2], shape.dim[3], 0, 0, 0)),
                  MIRT_TRAINING_AUTO);
    if (x) x = add_head(o, x, classes);
    else complain_of_library();
    if (!x) return NULL;
    mirt_model_output(model, x);
    if (!set_policy(model, o))
        return complain_of_model(status);
    if (o->freeze && mirt_set_trainable(base, strcmp(o->freeze, "base") == 0 ? NULL : o->freeze, false) != MIRT_OK)
        return complain_of_model(status);
    return compile_model(model, o, false, status);
}

/* --validation-split is for directories that are not split yet; false after complaining. */
static bool check_photo_split(const options *o) {
    char train[MAX_PHOTO_PATH];
    const char *directory = photo_directory(o);
    if (!(o->validation_split > 0)) return true;
    if (!directory) complain("--validation-split needs --data DIR, the photographs to split");
    else if (photo_part(directory, NULL, MIRT_SUBSET_TRAINING, train) == train)
        complain("--validation-split: %s is already split into parts; leave it out, or give --data %s", directory,
                 train);
    else return true;
    return false;
}

/* Whether the flags are compatible; false after complaining. */
static bool check_photo_flags(const options *o) {
    if (o->classes)
        complain("--classes does not apply to fit with photographs: the names of their directories are the classes");
    else if (chosen(o->pooling, "none"))
        complain("--pooling none does not work with a head, which needs one number per feature; use avg or max");
    else if (o->validation && o->validation_split > 0)
        complain("--validation and --validation-split exclude each other; give one of them");
    else if (o->validation && !photo_directory(o))
        complain("--validation also needs --data DIR, the photographs to train on");
    else if (o->mix_up > 1 || o->cut_mix > 1)
        complain("--%s is %g; it must be at most 1", o->mix_up > 1 ? "mix-up" : "cut-mix",
                 (double)(o->mix_up > 1 ? o->mix_up : o->cut_mix));
    else return check_photo_split(o);
    return false;
}

bool open_photo_job(mirt_strategy *strategy, const options *o, training_job *j, int *status) {
    mirt_augmentation list[MAX_AUGMENTATIONS];
    options without = *o;
    int classes = 0, count = 0;
    without.no_top = true;
    *status = EXIT_USAGE;
    if (!check_photo_flags(o) || (o->augment && (count = parse_augment(o, NULL, list)) < 0)) return false;
    FILE *weights = o->weights ? open_to_read(o->weights) : NULL;
    if (o->weights && !weights) { /* the job fails, as for --init */
        complain("%s: cannot open: %s", o->weights, reason_of(errno));
        *status = EXIT_FAILED;
        return false;
    }
    if (weights) fclose(weights);
    mirt_model *base = build_model(strategy, &without, status);
    if (!base) return false;
    if (o->freeze && !o->weights && !o->init)
        note("--freeze without --weights: frozen layers keep random weights; --weights FILE loads pretrained ones");
    mirt_shape shape = mirt_tensor_shape(mirt_input_of(base, 0));
    const int height = (int)shape.dim[1], width = (int)shape.dim[2];
    if (!augment_fits(o, list, count, height, width)) return false;
    *status = EXIT_FAILED;
    if (!open_photo_sets(o, height, width, &j->training, &j->test)) return false;
    mirt_class_names(j->training, &classes);
    if (classes < 2) {
        complain("%s: photographs of %d class%s; at least two classes are needed, each in its own directory",
                 photo_directory(o), classes, classes == 1 ? "" : "es");
        return false;
    }
    *status = EXIT_USAGE;
    j->model = build_classifier(strategy, o, base, classes, status);
    if (!j->model) return false;
    *status = EXIT_FAILED;
    return prepare_photos(o, list, count, height, width, j);
}

int complain_of_photos(const options *o) {
    const mirt_status status = mirt_last_status();
    const bool damaged = status == MIRT_E_FORMAT || status == MIRT_E_IO || status == MIRT_E_NOT_FOUND;
    const char *directory = photo_directory(o), *second = o->validation;
    if (second && strncmp(mirt_last_error(), second, strlen(second)) == 0) directory = second;
    if (!damaged || !directory || (o->corrupt && !chosen(o->corrupt, "fail"))) return complain_of_library();
    complain("%s; --corrupt skip leaves it out, `mirrortrain verify %s` lists all damaged ones", mirt_last_error(),
             directory);
    return EXIT_FAILED;
}

void tell_of_corrupt(const options *o) {
    if (!corrupt) return;
    note("corrupt: %lld photograph%s %s", (long long)corrupt, corrupt == 1 ? "" : "s",
         chosen(o->corrupt, "zero") ? "replaced by black images" : "left out");
}

/* Says which photographs are evaluated, since the model may have been trained on some of them. */
static void tell_of_part(const options *o, const char *directory, bool part, int64_t images) {
    if (part) note("evaluating %s", directory);
    else if (o->validation_split > 0)
        note("evaluating the photographs of %s that fit holds out with --validation-split %g and --seed %llu",
             directory, o->validation_split, (unsigned long long)o->seed);
    else
        note("evaluating all %lld photographs of %s, which has no validation/: if fit held out a share of them, the "
             "model was trained on the others; --validation-split %g, with fit's share and --seed, evaluates only that "
             "share",
             (long long)images, directory, DEFAULT_SPLIT);
}

mirt_dataset *open_photo_test(const mirt_model *model, const options *o) {
    mirt_image_directory_desc desc;
    char validation[MAX_PHOTO_PATH];
    mirt_shape shape = mirt_tensor_shape(mirt_input_of(model, 0));
    const char *directory = photo_directory(o), *part = NULL;
    mirt_dataset *dataset;
    if (!check_photo_split(o)) return NULL;
    describe_images(o, (int)shape.dim[1], (int)shape.dim[2], &desc);
    desc.class_names = mirt_model_class_names(model, &desc.num_class_names);
    if (directory) part = photo_part(directory, &desc, MIRT_SUBSET_VALIDATION, validation);
    if (o->validation_split > 0) { /* the files in the order in which fit splits them */
        desc.no_shuffle = false;
        desc.validation_split = o->validation_split;
        desc.subset = MIRT_SUBSET_VALIDATION;
    }
    if (directory) dataset = open_photographs(part, &desc);
    else dataset = mirt_drawn_photos(DRAWN_PHOTOS / 4, desc.height, desc.width, o->seed, MIRT_TEST);
    if (!directory) note_drawn_photos(true);
    else if (dataset) tell_of_part(o, part, part != directory, mirt_dataset_size(dataset));
    corrupt = 0;
    if (!dataset) complain_of_library();
    return dataset;
}

mirt_dataset *open_photo_validation(const options *o, int height, int width, label_form *labels) {
    mirt_image_directory_desc desc;
    const char *directory = photo_directory(o);
    mirt_dataset *training = NULL, *test = NULL;
    describe_images(o, height, width, &desc);
    desc.log = log_nothing;
    *labels = directory ? LABEL_INT32 : LABEL_FLOAT32;
    if (directory) open_directories(o, directory, &desc, &training, &test);
    else if (!(test = mirt_drawn_photos(DRAWN_PHOTOS / 4, height, width, o->seed, MIRT_TEST))) complain_of_library();
    mirt_dataset_destroy(training);
    return test;
}
