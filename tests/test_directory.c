/* Tests data sets of photographs: Keras's files, labels and splits, damaged files, lists. Also drawn photographs. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/images.h"
#include "tree_util.h"

/* >>the files and their order, beside Keras */

static int list_wrong(const mirt_dataset *dataset, const golden_list *golden, int first, int count) {
    const mirt__image_dataset *images = mirt__images_of(dataset);
    int wrong =
        mirt_dataset_size(dataset) != count || mirt_dataset_file(dataset, count) || mirt_dataset_file(dataset, -1);
    for (int i = 0; !wrong && i < count; i++) {
        const char *path = mirt_dataset_file(dataset, i);
        wrong = strcmp(path, at_root(golden->path[first + i])) != 0 ||
                (golden->labels && images->list.file[i].label != golden->label[first + i]);
        if (wrong) printf("# %d: %s instead of %s\n", i, path, golden->path[first + i]);
    }
    return wrong;
}

static void test_lists(void) {
    static const char *const chosen[] = {"b", "a"};
    start_tree("data");
    for (int i = 0; i < MIRT__COUNT(golden_tree); i++) {
        const char *name = golden_tree[i];
        size_t length = strlen(name);
        bool directory = name[length - 1] == '/' || !strchr(strrchr(name, '/') ? strrchr(name, '/') : name, '.');
        make_directories(name);
        if (directory) mkdir(at_root(name), 0777);
        else image_write_file(at_root(name), "", 0);
    }
    bool linked = symlink("../b", at_root("Zz/link")) == 0;
    for (int i = 0; i < MIRT__COUNT(golden_lists); i++) {
        const golden_list *golden = &golden_lists[i];
        mirt_image_directory_desc desc = small_desc();
        desc.no_shuffle = !golden->shuffle;
        desc.has_seed = golden->shuffle;
        desc.seed = golden->seed;
        desc.follow_links = golden->follow_links;
        desc.label_mode = golden->labels ? MIRT_LABELS_INT : MIRT_LABELS_NONE;
        if (golden->class_names) desc.class_names = chosen, desc.num_class_names = 2;
        int wrong = 0, rest = golden->count - golden->validation;
        if (golden->validation) {
            mirt_dataset *training, *validation;
            desc.validation_split = ((double)golden->validation + 0.01) / golden->count;
            wrong = mirt_image_datasets_from_directory(root, &desc, &training, &validation) != MIRT_OK ||
                    list_wrong(training, golden, 0, rest) || list_wrong(validation, golden, rest, golden->validation);
            mirt_dataset_destroy(training);
            mirt_dataset_destroy(validation);
            desc.subset = MIRT_SUBSET_TRAINING;
            training = mirt_image_dataset_from_directory(root, &desc);
            desc.subset = MIRT_SUBSET_VALIDATION;
            validation = mirt_image_dataset_from_directory(root, &desc);
            wrong += !training || !validation || list_wrong(training, golden, 0, rest) ||
                     list_wrong(validation, golden, rest, golden->validation);
            mirt_dataset_destroy(training);
            mirt_dataset_destroy(validation);
        } else {
            mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
            wrong = !dataset || list_wrong(dataset, golden, 0, golden->count);
            mirt_dataset_destroy(dataset);
        }
        if (golden->follow_links && !linked) skip("no links here");
        else
            ok(!wrong,
               "Keras's files, labels and order: %d of them, shuffle %d, labels %d, links %d, %d for validation",
               golden->count, golden->shuffle, golden->labels, golden->follow_links, golden->validation);
    }
    mirt_image_directory_desc desc = small_desc();
    desc.follow_links = true;
    bool circles = linked && symlink("..", at_root("a/up")) == 0 && symlink("a", at_root("again")) == 0 &&
                   symlink("round", at_root("a/round")) == 0;
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
    if (!circles) skip("no links here");
    else
        ok(dataset && mirt_dataset_size(dataset) > 14, "cycles of links end: %lld files",
           (long long)mirt_dataset_size(dataset));
    mirt_dataset_destroy(dataset);
    remove_tree();
}

/* >>samples */

static void test_samples(void) {
    static const char *const reversed[] = {"two words", "one"};
    static const mirt_label_mode modes[] = {MIRT_LABELS_INT, MIRT_LABELS_BINARY, MIRT_LABELS_CATEGORICAL,
                                            MIRT_LABELS_NONE};
    start_tree("samples");
    put("one/a.bmp", 3, 2);
    put("two words/\xC3\xA9.bmp", 6, 4);
    for (int k = 0; k < 8; k++) {
        mirt_image_directory_desc desc = small_desc();
        mirt__batch batch;
        desc.label_mode = modes[k % 4];
        desc.dtype = k < 4 ? MIRT_FLOAT32 : MIRT_UINT8;
        if (k == 1 || k == 5) desc.class_names = reversed, desc.num_class_names = 2;
        mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
        int wrong = !dataset || mirt__dataset_begin(dataset, 0, 0) != MIRT_OK, names;
        for (int i = 0; i < 2 && !wrong; i++) {
            wrong = mirt__dataset_next(dataset, &batch) != MIRT_OK || batch.rows != 1 || batch.index[0] != i;
            if (wrong) break;
            bool doubled = (desc.class_names ? 1 - i : i) == 1; /* six pixels to three, by the mean of two: 4.5, 13.5,
                                                                   ... and two rows */
            for (int p = 0; p < 18; p++) {
                float expected = doubled ? (float)(p / 9 * 100 + 25) + (float)(p % 9 / 3 * 6 + p % 3) + 1.5f
                                         : (float)(p / 9 * 50 + p % 9);
                float given = desc.dtype == MIRT_UINT8 ? ((const unsigned char *)batch.field[0])[p]
                                                       : ((const float *)batch.field[0])[p];
                wrong += fabsf(given - expected) > (desc.dtype == MIRT_UINT8 ? 0.5f : 1e-4f);
            }
            const float *number = (const float *)batch.field[1];
            if (desc.label_mode == MIRT_LABELS_INT) wrong += *(const int32_t *)batch.field[1] != i;
            if (desc.label_mode == MIRT_LABELS_BINARY) wrong += *number != (float)i;
            if (desc.label_mode == MIRT_LABELS_CATEGORICAL) wrong += number[i] != 1 || number[1 - i] != 0;
        }
        wrong += dataset && (mirt__dataset_next(dataset, &batch) != MIRT_OK || batch.rows != 0);
        const char *const *classes = mirt_class_names(dataset, &names);
        if (desc.label_mode == MIRT_LABELS_NONE) wrong += classes != NULL;
        else wrong += names != 2 || strcmp(classes[desc.class_names ? 1 : 0], "one") != 0;
        ok(wrong == 0, "pixels, labels and names of label mode %d, dtype %d: %s", (int)desc.label_mode, (int)desc.dtype,
           wrong ? mirt_last_error() : "right");
        mirt_dataset_destroy(dataset);
    }
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, NULL);
    mirt__batch batch;
    const mirt__data_spec *spec = dataset ? mirt__dataset_spec(dataset) : NULL;
    ok(spec && spec->batch == 32 && spec->field[0].shape.dim[0] == 256 && spec->field[0].shape.dim[1] == 256 &&
           spec->field[0].shape.dim[2] == 3 && spec->field[0].dtype == MIRT_FLOAT32 &&
           spec->field[1].dtype == MIRT_INT32 && spec->field[1].shape.rank == 0,
       "Keras's defaults");
    ok(dataset && mirt__dataset_begin(dataset, 0, 0) == MIRT_OK && mirt__dataset_next(dataset, &batch) == MIRT_OK &&
           batch.rows == 2,
       "and a batch of them: %s", mirt_last_error());
    mirt_dataset_destroy(dataset);
    remove_tree();
}

/* Where a padded image has nothing stands 0, whatever came before it. */
static void test_pads(void) {
    int zeros = 0, others = 0;
    start_tree("pads");
    put("one/tall.bmp", 2, 12);
    put("two/wide.bmp", 12, 2);
    mirt_image_directory_desc desc = small_desc();
    mirt__batch batch;
    desc.height = desc.width = 4;
    desc.pad_to_aspect_ratio = true;
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
    bool good = dataset && mirt__dataset_begin(dataset, 0, 0) == MIRT_OK &&
                mirt__dataset_next(dataset, &batch) == MIRT_OK && mirt__dataset_next(dataset, &batch) == MIRT_OK &&
                batch.rows == 1;
    for (int i = 0; good && i < 48; i++) {
        if (i / 12 == 1) others += ((const float *)batch.field[0])[i] != 0;
        else zeros += ((const float *)batch.field[0])[i] == 0;
    }
    ok(zeros == 36 && others > 0, "pads are 0: %d of 36 numbers", zeros);
    mirt_dataset_destroy(dataset);
    remove_tree();
}

/* One file by itself gives the same pixels as in a data set. */
static void test_one_file(void) {
    static const int sizes[][2] = {{11, 7}, {5, 3}, {4, 6}, {48, 40}};
    char name[32];
    int wrong = 0, compared = 0;
    start_tree("single");
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%d.bmp", i % 2 ? "b" : "a", i);
        put(name, sizes[i][0], sizes[i][1]);
    }
    for (int k = 0; k < 24; k++) {
        unsigned char out[5 * 6 * 3 * 4 + 1];
        mirt_image_directory_desc desc = small_desc();
        mirt__batch batch;
        desc.height = 5;
        desc.width = 6;
        desc.dtype = k % 2 ? MIRT_FLOAT32 : MIRT_UINT8;
        desc.crop_to_aspect_ratio = k / 2 % 3 == 1;
        desc.pad_to_aspect_ratio = k / 2 % 3 == 2;
        desc.interpolation = k / 6 % 2 ? MIRT_LANCZOS3 : MIRT_BILINEAR;
        desc.antialias = k >= 12;
        desc.color_mode = k % 5 == 0 ? MIRT_GRAYSCALE : MIRT_RGB;
        mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
        const size_t bytes = (size_t)30 * (desc.color_mode == MIRT_RGB ? 3 : 1) * (desc.dtype == MIRT_UINT8 ? 1 : 4);
        bool good = dataset && mirt__dataset_begin(dataset, 0, 0) == MIRT_OK;
        for (int i = 0; good && i < 4; i++) {
            memset(out, 0xA5, sizeof out);
            good = mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows == 1 &&
                   mirt_load_image(mirt_dataset_file(dataset, batch.index[0]), &desc, out) == MIRT_OK;
            if (!good) break;
            wrong += memcmp(out, batch.field[0], bytes) != 0 || out[bytes] != 0xA5;
            compared++;
        }
        mirt_dataset_destroy(dataset);
    }
    ok(wrong == 0 && compared == 96, "%d images read by themselves are those of data sets, bit for bit; %d differ",
       compared, wrong);
    mirt_image_directory_desc desc = small_desc();
    float out[18];
    desc.dtype = MIRT_INT32;
    ok(mirt_load_image(at_root("a/0.bmp"), &desc, out) == MIRT_E_INVALID &&
           strstr(mirt_last_error(), "mirt_load_image: pixels"),
       "%s", mirt_last_error());
    desc.dtype = MIRT_FLOAT32;
    ok(mirt_load_image(at_root("a/none.bmp"), &desc, out) == MIRT_E_NOT_FOUND && strstr(mirt_last_error(), "none.bmp"),
       "%s", mirt_last_error());
    ok(mirt_load_image(NULL, &desc, out) != MIRT_OK && mirt_load_image("x", &desc, NULL) != MIRT_OK, "%s",
       mirt_last_error());
    remove_tree();
}

static void test_given_labels(void) {
    static const int32_t labels[] = {7, 3, 7};
    int count;
    start_tree("labels");
    put("x/a.bmp", 3, 2);
    put("x/b.bmp", 3, 2);
    put("c.bmp", 3, 2);
    mirt_image_directory_desc desc = small_desc();
    mirt__batch batch;
    desc.labels = labels;
    desc.num_labels = 3;
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
    const char *const *names = mirt_class_names(dataset, &count);
    ok(dataset && count == 2 && strcmp(names[0], "3") == 0 && strcmp(names[1], "7") == 0 &&
           mirt__dataset_begin(dataset, 0, 0) == MIRT_OK && mirt__dataset_next(dataset, &batch) == MIRT_OK &&
           *(const int32_t *)batch.field[1] == 7 && strstr(mirt_dataset_file(dataset, 0), "c.bmp"),
       "labels one by one, for files in sorted order");
    mirt_dataset_destroy(dataset);
    desc.num_labels = 2;
    ok(refused(root, &desc, MIRT_E_INVALID, "2 labels for the 3 images"), "%s", mirt_last_error());
    desc.num_labels = 3;
    desc.label_mode = MIRT_LABELS_CATEGORICAL;
    ok(refused(root, &desc, MIRT_E_INVALID, "0 to 1"), "%s", mirt_last_error());
    remove_tree();
}

/* >>what can be wrong */

static void test_wrong_options(void) {
    static const char *const classes[] = {"cast", "dogs"}, *const twice[] = {"cats", "cats"};
    start_tree("wrong");
    mirt_image_directory_desc desc = small_desc();
    ok(refused(at_root("nowhere"), &desc, MIRT_E_NOT_FOUND, "cannot open the directory"), "%s", mirt_last_error());
    ok(refused(root, &desc, MIRT_E_NOT_FOUND, "has no subdirectories, which are needed as the classes"), "%s",
       mirt_last_error());
    make_directories("cats/x");
    ok(refused(root, &desc, MIRT_E_NOT_FOUND, "no images found"), "%s", mirt_last_error());
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "cats/%d.bmp", i);
        put(name, 3, 2);
    }
    ok(refused(at_root("cats/0.bmp"), &desc, MIRT_E_IO, "is not a directory"), "%s", mirt_last_error());
    desc.label_mode = MIRT_LABELS_BINARY;
    ok(refused(root, &desc, MIRT_E_INVALID, "exactly 2 classes, but there is 1"), "%s", mirt_last_error());
    desc.label_mode = MIRT_LABELS_INT;
    desc.class_names = classes, desc.num_class_names = 2;
    ok(refused(root, &desc, MIRT_E_NOT_FOUND, "did you mean \"cats\"?"), "%s", mirt_last_error());
    desc.class_names = twice;
    ok(refused(root, &desc, MIRT_E_INVALID, "no name, or the name of another class"), "%s", mirt_last_error());
    desc.class_names = NULL;
    desc.validation_split = 0.1;
    ok(refused(root, &desc, MIRT_E_INVALID, "set together"), "%s", mirt_last_error());
    desc.subset = MIRT_SUBSET_VALIDATION;
    ok(refused(root, &desc, MIRT_E_INVALID, "of 6 files leaves none for validation: at least 10 are needed"), "%s",
       mirt_last_error());
    desc.subset = MIRT_SUBSET_TRAINING;
    ok(refused(root, &desc, MIRT_E_INVALID, "leaves none for validation"), "and for training alone: %s",
       mirt_last_error());
    desc.no_shuffle = false;
    ok(refused(root, &desc, MIRT_E_INVALID, "needs a seed"), "%s", mirt_last_error());
    desc.validation_split = 1;
    ok(refused(root, &desc, MIRT_E_INVALID, "above 0 and below 1"), "%s", mirt_last_error());
    desc = small_desc();
    desc.crop_to_aspect_ratio = desc.pad_to_aspect_ratio = true;
    ok(refused(root, &desc, MIRT_E_INVALID, "exclude each other"), "%s", mirt_last_error());
    desc = small_desc();
    desc.height = -1;
    ok(refused(root, &desc, MIRT_E_INVALID, "both must be positive"), "%s", mirt_last_error());
    desc = small_desc();
    desc.interpolation = MIRT__INTERPOLATION_COUNT;
    ok(refused(root, &desc, MIRT_E_INVALID, "invalid interpolation"), "%s", mirt_last_error());
    desc = small_desc();
    desc.dtype = MIRT_INT32;
    ok(refused(root, &desc, MIRT_E_INVALID, "MIRT_FLOAT32 or MIRT_UINT8"), "%s", mirt_last_error());
    ok(refused(NULL, NULL, MIRT_E_INVALID, "directory"), "%s", mirt_last_error());
    ok(!mirt_dataset_file(NULL, 0) && mirt_corrupt_images(NULL, NULL, NULL) == 0, "no data set has no files");
    remove_tree();
}

static int noted;
static void note(const char *path, const char *reason, void *user) {
    noted += strstr(reason, path) != NULL;
    (void)user;
}
static int logged;
static void count_log(mirt_log_level level, const char *text, void *user) {
    (void)user;
    logged += level == MIRT_LOG_WARNING || strcmp(text, "Found 5 files belonging to 2 classes.") == 0;
}

static int empty;
static void empty_log(mirt_log_level level, const char *text, void *user) {
    (void)user;
    empty += level == MIRT_LOG_WARNING && (strstr(text, "root: no image of the class \"void\"") ||
                                           strstr(text, "root: no image of the class \"zz\""));
}

/* Damage among good files, under each policy. */
static void test_corrupt(void) {
    static const char *const policies[] = {"fail", "skip", "zero"};
    start_tree("corrupt");
    put("a/1.bmp", 3, 2);
    put("a/2.jpg", 0, 0);
    put("b/3.bmp", 3, 2);
    put("b/4.png", 0, 0);
    image_write_file(at_root("b/4.png"), "not a picture", 13);
    put("b/5.bmp", 3, 2);
    for (int k = 0; k < 6; k++) {
        mirt_image_directory_desc desc = small_desc();
        mirt__batch batch;
        int rows = 0, zeros = 0;
        mirt_status status = MIRT_OK;
        noted = logged = 0;
        desc.corrupt = (mirt_corrupt)(k % 3);
        desc.batch_size = k < 3 ? MIRT_NO_BATCH : 2;
        desc.log = count_log;
        mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
        for (int epoch = 0; dataset && epoch < 2 && status == MIRT_OK; epoch++) {
            status = mirt__dataset_begin(dataset, 0, epoch);
            while (status == MIRT_OK && (status = mirt__dataset_next(dataset, &batch)) == MIRT_OK && batch.rows) {
                for (int64_t i = 0; i < batch.rows; i++, rows++)
                    zeros += ((const float *)batch.field[0])[18 * i + 17] == 0;
            }
        }
        int64_t count = mirt_corrupt_images(dataset, note, NULL);
        if (desc.corrupt == MIRT_CORRUPT_FAIL)
            ok(status == MIRT_E_FORMAT && strstr(mirt_last_error(), at_root("a/2.jpg")) &&
                   strstr(mirt_last_error(), "empty"),
               "fail: %s", mirt_last_error());
        else
            ok(status == MIRT_OK && rows == (desc.corrupt == MIRT_CORRUPT_SKIP ? 6 : 10) &&
                   zeros == (desc.corrupt == MIRT_CORRUPT_SKIP ? 0 : 4) && count == 2 && noted == 2 && logged == 3,
               "%s, in batches of %d: %d rows in two epochs, %d zero, %d named and counted, %d lines logged",
               policies[k % 3], (int)desc.batch_size, rows, zeros, noted, logged);
        /* Element k is the k-th of those that are left; a batch may lose rows. */
        if (desc.corrupt == MIRT_CORRUPT_SKIP) {
            mirt_data all, last;
            ok(mirt_dataset_arrays(dataset, &all) == MIRT_OK && all.x[0].shape.dim[0] == 3 &&
                   mirt_dataset_read(dataset, 2, NULL, &last) == MIRT_OK &&
                   memcmp((const float *)last.x[0].data + 18 * (last.x[0].shape.dim[0] - 1),
                          (const float *)all.x[0].data + 36, 18 * sizeof(float)) == 0 &&
                   ((const int32_t *)all.y[0].data)[0] == 0 && ((const int32_t *)all.y[0].data)[2] == 1,
               "three images are left");
            mirt_data_free(&all);
            mirt_data_free(&last);
            ok(mirt_dataset_read(dataset, 3, NULL, &last) == MIRT_E_INVALID && !last.x[0].data, "%s",
               mirt_last_error());
        }
        mirt_dataset_destroy(dataset);
    }
    int64_t images, corrupt;
    noted = 0;
    ok(mirt_verify_images(root, NULL, note, NULL, &images, &corrupt) == MIRT_OK && images == 5 && corrupt == 2 &&
           noted == 2,
       "verify finds them");
    ok(mirt_verify_images(at_root("nowhere"), NULL, note, NULL, &images, &corrupt) == MIRT_E_NOT_FOUND, "%s",
       mirt_last_error());
    remove_tree();
}

/* Classes with and without pictures, some through links. */
static void test_classes(void) {
    int64_t images = 0, corrupt = 0;
    start_tree("classes");
    put("a/1.bmp", 3, 2);
    put("store/deep/2.bmp", 3, 2);
    put("store/3.txt", 0, 0);
    make_directories("root/void/");
    put("root/a/1.bmp", 3, 2);
    put("root/zz/notes.txt", 0, 0);
    bool linked = symlink("../store", at_root("root/linked")) == 0 && symlink("../../a", at_root("root/a/more")) == 0;
    mirt_image_directory_desc desc = small_desc();
    desc.follow_links = true;
    desc.log = empty_log;
    mirt_dataset *dataset = mirt_image_dataset_from_directory(at_root("root"), &desc);
    ok(dataset && empty == 2, "classes without a picture are named: %d", empty);
    mirt_status status = mirt_verify_images(at_root("root"), NULL, note, NULL, &images, &corrupt);
    if (!linked) skip("no links here");
    else
        ok(status == MIRT_OK && corrupt == 0 && images == 3 && images == mirt_dataset_size(dataset),
           "the same files are verified and read: %lld, %lld", (long long)images,
           (long long)mirt_dataset_size(dataset));
    mirt_dataset_destroy(dataset);
    remove_tree();
}

/* >>files of samples: one is found again by what made it, and by nothing else */

static int other_decoder(const unsigned char *bytes, size_t size, mirt_image *out, void *user) {
    (void)bytes, (void)size, (void)out, (void)user;
    return MIRT_OTHER_DECODER;
}

static int as_it_is(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)out, (void)index, (void)user;
    return 0;
}

static int counted(void *const *out, int64_t index, void *user) {
    (void)user;
    *(float *)out[0] = (float)index;
    return 0;
}

static mirt_dataset *named_map(mirt_dataset *d, const char *name) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = as_it_is;
    map.name = name;
    return mirt_map(d, &map);
}

static mirt_dataset *named_generator(const char *name) {
    mirt_generator_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.fn = counted;
    desc.x[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(1));
    desc.num_x = 1;
    desc.samples = 4;
    desc.name = name;
    return mirt_dataset_from_generator(&desc);
}

enum { KEPT = 44 };
typedef struct kept_head {
    unsigned char byte[1024]; /* whom the file belongs to */
} kept_head;

/* Four images; each kind differs from the others in one thing. */
static mirt_dataset *kept_of(int kind) {
    static const char *const reversed[] = {"two", "one"};
    mirt_image_directory_desc desc = small_desc();
    mirt_augmentation flip;
    memset(&flip, 0, sizeof flip);
    switch (kind) {
    case 1: desc.antialias = true; break;
    case 2: desc.crop_to_aspect_ratio = true; break;
    case 3: desc.pad_to_aspect_ratio = true; break;
    case 4: desc.interpolation = MIRT_NEAREST; break;
    case 5: desc.color_mode = MIRT_GRAYSCALE; break;
    case 6: desc.color_mode = MIRT_RGBA; break;
    case 7: desc.dtype = MIRT_UINT8; break;
    case 8: desc.height = 3, desc.width = 2; break;
    case 9: desc.class_names = reversed, desc.num_class_names = 2; break;
    case 10: desc.corrupt = MIRT_CORRUPT_ZERO; break;
    case 11: desc.reduced_scale = true; break;
    case 12: desc.decode.least_width = 9; break;
    case 13: desc.decode.max_side = 9; break;
    case 14: desc.decode.max_pixels = 99; break;
    case 15: desc.decode.max_bytes = 999; break;
    case 16: desc.decode.decoder = other_decoder; break;
    case 22: case 23: return named_generator(kind == 22 ? "a" : "b");
    case 24:
    case 25:
    case 26: return named_map(mirt_drawn_digits(4, kind == 25 ? 2 : 1, kind == 26 ? MIRT_TEST : MIRT_TRAIN), "digits");
    case 27:
    case 28:
    case 29: return mirt_idx(at_root(kind == 28 ? "images2" : "images1"), at_root(kind == 29 ? "labels2" : "labels1"));
    case 30:
    case 31:
    case 42: return mirt_drawn_photos(4, 8, 8, kind == 42 ? 2 : 1, kind == 31 ? MIRT_TEST : MIRT_TRAIN);
    case 43: return mirt_drawn_photos(4, 8, 12, 1, MIRT_TRAIN);
    }
    mirt_dataset *d = mirt_image_dataset_from_directory(at_root(kind == 17 ? "other" : "data"), &desc);
    switch (kind) {
    case 18: case 19: case 20: return mirt_shuffle(d, 9);
    case 21: case 41: return mirt_shuffle(mirt_repeat(d, 1), kind == 21 ? 2 : 3);
    case 32: return mirt_take(mirt_shuffle(d, 9), 2);
    case 33: return mirt_shuffle(mirt_take(d, 2), 9);
    case 34: return mirt_skip(d, 2);
    case 35: return mirt_repeat(mirt_take(d, 2), 2);
    case 36: return mirt_repeat(mirt_take(d, 1), 4);
    case 37: return named_map(d, "a");
    case 38: return named_map(d, "b");
    case 39:
    case 40: flip.mode = kind == 39 ? MIRT_FLIP_HORIZONTAL : MIRT_FLIP_VERTICAL; return mirt_augment(d, &flip, 1);
    }
    return d;
}

/* Whether the file is read; *inode is another one's if it was written. */
static bool keep(int kind, kept_head *head, ino_t *inode) {
    struct stat info;
    mirt_cache_desc cache;
    mirt__batch batch;
    FILE *file;
    memset(&cache, 0, sizeof cache);
    char path[1024];
    snprintf(path, sizeof path, "%s", at_root("kept"));
    cache.file = path;
    mirt_dataset *d = mirt_cache_with(kept_of(kind), &cache);
    bool good = d && mirt__dataset_begin(d, kind == 19 ? 2 : 1, kind == 20) == MIRT_OK &&
                mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows == 1;
    mirt_dataset_destroy(d);
    good = good && stat(path, &info) == 0 && (file = fopen(path, "rb")) != NULL;
    if (!good) return false;
    good = fread(head, sizeof *head, 1, file) == 1;
    fclose(file);
    *inode = info.st_ino;
    return good;
}

static void test_kept(void) {
    static const unsigned char idx[] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4},
                               idx_labels[] = {0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4};
    static kept_head head[KEPT];
    int same = 0;
    start_tree("kept");
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s/%s/%d.bmp", i < 4 ? "data" : "other", i % 4 < 2 ? "one" : "two", i % 4);
        put(name, 6, 4);
    }
    for (int i = 0; i < 2; i++) {
        image_write_file(at_root(i ? "images2" : "images1"), idx, sizeof idx);
        image_write_file(at_root(i ? "labels2" : "labels1"), idx_labels, sizeof idx_labels);
    }
    for (int kind = 0; kind < KEPT; kind++) {
        kept_head again;
        ino_t written = 0, found = 1;
        ok(keep(kind, &head[kind], &written) && keep(kind, &again, &found) && written == found,
           "kept samples %d are found again: %s", kind, written == found ? "" : mirt_last_error());
        for (int k = 0; k < kind; k++) {
            if (memcmp(&head[k], &head[kind], sizeof again) != 0) continue;
            printf("# %d and %d\n", k, kind);
            same++;
        }
    }
    ok(same == 0, "and none of them by another data set");
    remove_tree();
}

/* >>lists of comma-separated values */

static void test_csv(void) {
    static const char *const bad[][2] = {
        {"a.bmp\n", "line 1: no label"},
        {"a.bmp,cat,3\n", "line 1: more than a path and a label"},
        {"path,label\na.bmp,x\n\"b.bmp,x\n", "line 3: a quote is not closed"},
        {"", "no images found"},
        {"path,label\n", "no images found"},
    };
    static const char *const classes[] = {"dog", "cat"};
    const char *list =
        "\xEF\xBB\xBFpath,label\r\nb.bmp,dog\r\n\r\n\"d,1/\"\"c\"\".bmp\" , cat\nmissing.bmp,10\nb.bmp,9";
    int count;
    start_tree("csv");
    put("b.bmp", 3, 2);
    put("d,1/\"c\".bmp", 3, 2);
    image_write_file(at_root("list.csv"), list, strlen(list));
    mirt_image_directory_desc desc = small_desc();
    mirt_dataset *dataset = mirt_image_dataset_from_csv(at_root("list.csv"), &desc);
    const char *const *names = mirt_class_names(dataset, &count);
    ok(dataset && mirt_dataset_size(dataset) == 4 && count == 4 && strcmp(names[0], "9") == 0 &&
           strcmp(names[1], "10") == 0 && strcmp(names[2], "cat") == 0 && strcmp(names[3], "dog") == 0,
       "paths and labels, with a header, quotes, empty lines and line ends of all kinds: %s", mirt_last_error());
    mirt__batch batch;
    bool good = dataset && mirt__dataset_begin(dataset, 0, 0) == MIRT_OK &&
                mirt__dataset_next(dataset, &batch) == MIRT_OK && *(const int32_t *)batch.field[1] == 3 &&
                mirt__dataset_next(dataset, &batch) == MIRT_OK && *(const int32_t *)batch.field[1] == 2;
    ok(good && mirt__dataset_next(dataset, &batch) == MIRT_E_NOT_FOUND && strstr(mirt_last_error(), "missing.bmp"),
       "a missing file is an error when it is read: %s", mirt_last_error());
    mirt_dataset_destroy(dataset);
    desc.class_names = classes, desc.num_class_names = 2;
    ok(!mirt_image_dataset_from_csv(at_root("list.csv"), &desc) &&
           strstr(mirt_last_error(), "not among the class names"),
       "%s", mirt_last_error());
    desc.class_names = NULL;
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        put("a.bmp", 3, 2);
        image_write_file(at_root("bad.csv"), bad[i][0], strlen(bad[i][0]));
        ok(!mirt_image_dataset_from_csv(at_root("bad.csv"), &desc) && strstr(mirt_last_error(), bad[i][1]), "%s",
           mirt_last_error());
    }
    ok(!mirt_image_dataset_from_csv(at_root("none.csv"), &desc) && mirt_last_status() == MIRT_E_NOT_FOUND, "%s",
       mirt_last_error());
    image_write_file(at_root("bad.csv"), "b.bmp\nb.bmp\n", 12);
    desc.label_mode = MIRT_LABELS_NONE;
    dataset = mirt_image_dataset_from_csv(at_root("bad.csv"), &desc);
    ok(mirt_dataset_size(dataset) == 2, "without labels a line is a path");
    mirt_dataset_destroy(dataset);
    remove_tree();
}

static void test_drawn(void) {
    enum { SIDE = 40, COUNT = 30 };
    static unsigned char pixels[2][COUNT][SIDE * SIDE * 3];
    int dogs = 0, same = 0, equal = 0, turns = 0, before = 0;
    for (int k = 0; k < 2; k++) {
        mirt_dataset *dataset = mirt_drawn_photos(k ? COUNT + 5 : COUNT, SIDE, SIDE, 3, MIRT_TRAIN),
                     *other = mirt_drawn_photos(COUNT, SIDE, SIDE, 3, MIRT_TEST);
        mirt__batch batch, unlike;
        bool good = dataset && other && mirt__dataset_begin(dataset, (uint64_t)k, k) == MIRT_OK &&
                    mirt__dataset_begin(other, 0, 0) == MIRT_OK;
        for (int i = 0; good && i < COUNT && mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows == 1; i++) {
            memcpy(pixels[k][i], batch.field[0], sizeof pixels[k][i]);
            dogs += *(const float *)batch.field[1] == 1;
            turns += before != (*(const float *)batch.field[1] == 1);
            before = *(const float *)batch.field[1] == 1;
            if (mirt__dataset_next(other, &unlike) == MIRT_OK && unlike.rows)
                same += memcmp(unlike.field[0], batch.field[0], sizeof pixels[k][i]) == 0;
        }
        if (k) {
            int count;
            const char *const *names = mirt_class_names(dataset, &count);
            ok(count == 2 && strcmp(names[0], "cats") == 0 && strcmp(names[1], "dogs") == 0,
               "drawn photographs have the classes cats and dogs");
        }
        mirt_dataset_destroy(dataset);
        mirt_dataset_destroy(other);
    }
    for (int i = 0; i < COUNT; i++) equal += memcmp(pixels[0][i], pixels[1][i], sizeof pixels[0][i]) == 0;
    ok(equal == COUNT, "the same pixels in every epoch and of any number");
    ok(same == 0, "none of training is in the test split");
    ok(dogs == COUNT && turns > COUNT && turns < 2 * COUNT - COUNT / 4,
       "as many of each class, %d dogs of %d, in no order: %d turns", dogs / 2, COUNT, turns / 2);
    ok(!mirt_drawn_photos(0, 8, 8, 0, MIRT_TRAIN) && !mirt_drawn_photos(1, 7, 8, 0, MIRT_TRAIN) &&
           !mirt_drawn_photos(1, 8, 5000, 0, MIRT_TRAIN),
       "sizes are checked");
}

int main(void) {
    mirt_decode_desc desc;
    memset(&desc, 0, sizeof desc);
    test_drawn();
    if (mirt__decoder_missing(&desc)) {
        skip("%s", mirt_last_error());
        return done_testing();
    }
    test_lists();
    test_samples();
    test_pads();
    test_one_file();
    test_given_labels();
    test_wrong_options();
    test_corrupt();
    test_classes();
    test_csv();
    test_kept();
    return done_testing();
}
