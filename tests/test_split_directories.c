/* Tests directories that are already split into train/ and validation/. They are recognized by calls for both parts,
   and refused by others. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tree_util.h"

static char said[512];
static void keep_log(mirt_log_level level, const char *text, void *user) {
    (void)level, (void)user;
    if (strstr(text, "Using")) snprintf(said, sizeof said, "%s", text);
}

/* Three images in each subdirectory of each part, "train/a/0.bmp" and so on; the names end in NULL. */
static void put_parts(const char *const *part, const char *const *class_name) {
    char name[64];
    for (; *part; part++) {
        for (int c = 0; class_name[c]; c++) {
            for (int i = 0; i < 3; i++) {
                snprintf(name, sizeof name, "%s/%s/%d.bmp", *part, class_name[c], i);
                put(name, 3, 2);
            }
        }
    }
}

/* What both calls make of the tree: "T V" files of parts in the both-call; of one data set its number of classes. */
static void both(const char *wanted, const char *words, const mirt_image_directory_desc *desc, const char *what) {
    mirt_dataset *training, *validation;
    char found[64] = "refused";
    int classes = 0, others = 0, strays = 0;
    said[0] = 0;
    mirt_status status = mirt_image_datasets_from_directory(root, desc, &training, &validation);
    if (status == MIRT_OK) {
        mirt_class_names(training, &classes);
        mirt_class_names(validation, &others);
        snprintf(found, sizeof found, "%lld+%lld of %d", (long long)mirt_dataset_size(training),
                 (long long)mirt_dataset_size(validation), classes);
        for (int i = 0; *wanted == 'p' && i < mirt_dataset_size(training); i++)
            strays += strstr(mirt_dataset_file(training, i), "/train/") == NULL;
        for (int i = 0; *wanted == 'p' && i < mirt_dataset_size(validation); i++)
            strays += strstr(mirt_dataset_file(validation, i), "/val") == NULL;
    }
    ok(strcmp(found, *wanted == 'p' ? wanted + 1 : wanted) == 0 && classes == others && strays == 0 &&
       (status == MIRT_OK ? strstr(said, words) != NULL : status == MIRT_E_INVALID && !training && !validation &&
          strstr(mirt_last_error(), words)),
       "%s: both give %s: %s", what, found, status == MIRT_OK ? said : mirt_last_error());
    mirt_dataset_destroy(training);
    mirt_dataset_destroy(validation);
}

static void one(int wanted, const mirt_image_directory_desc *desc, const char *what) {
    int classes = 0;
    char path[1200];
    mirt_image_directory_desc d = *desc;
    d.validation_split = 0;
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &d);
    mirt_class_names(dataset, &classes);
    if (wanted) ok(dataset && classes == wanted, "%s: one data set of %d classes: %s", what, classes,
       dataset ? "" : mirt_last_error());
    else ok(!dataset && mirt_last_status() == MIRT_E_INVALID && strstr(mirt_last_error(), "/train"), "%s: refused: %s",
       what, mirt_last_error());
    mirt_status status = mirt_image_directory_part(root, &d, MIRT_SUBSET_VALIDATION, path, sizeof path);
    ok(wanted ? status == MIRT_E_NOT_FOUND : status == MIRT_OK ? strstr(path,
       "/val") != NULL : status == MIRT_E_INVALID, "%s: its part: %s", what,
       status == MIRT_OK ? path : mirt_last_error());
    mirt_dataset_destroy(dataset);
}

/* The same of a tree that has these parts. */
static void parts_give(const char *const *part, const char *const *class_name, const char *wanted, const char *words,
                       int classes, const mirt_image_directory_desc *desc, const char *what) {
    start_tree("parts");
    put_parts(part, class_name);
    both(wanted, words, desc, what);
    one(classes, desc, what);
    remove_tree();
}

/* Both parts are refused because something is not there. */
static void lacks(const char *words, const mirt_image_directory_desc *desc, const char *what) {
    mirt_dataset *training, *validation;
    ok(mirt_image_datasets_from_directory(root, desc, &training, &validation) == MIRT_E_NOT_FOUND && !training &&
           !validation && strstr(mirt_last_error(), words),
       "%s: %s", what, mirt_last_error());
}

static const char *const pets[] = {"cats", "dogs", NULL}, *const usual[] = {"train", "validation", NULL};

static mirt_image_directory_desc split_desc(void) {
    mirt_image_directory_desc desc = small_desc();
    desc.log = keep_log;
    desc.validation_split = 0.34;
    return desc;
}

static void test_split_already(void) {
    static const char *const more[] = {"cats", "dogs", "owls", NULL};
    char path[1200];
    mirt_image_directory_desc desc = split_desc(), shuffled;

    start_tree("split");
    put_parts(usual, pets);
    both("p6+6 of 2", "/train for training and ", &desc, "train/ and validation/");
    both("p6+6 of 2", "validation_split does not apply", &desc, "a share");
    one(0, &desc, "train/ and validation/");
    shuffled = desc;
    shuffled.validation_split = 0;
    shuffled.no_shuffle = false;
    shuffled.has_seed = false;
    both("p6+6 of 2", "/validation for validation.", &shuffled, "no share and no seed");
    shuffled = desc;
    shuffled.label_mode = MIRT_LABELS_BINARY;
    both("p6+6 of 2", "Using", &shuffled, "binary labels");
    ok(refused(root, &shuffled, MIRT_E_INVALID, "set together"), "%s", mirt_last_error());
    shuffled.subset = MIRT_SUBSET_VALIDATION;
    ok(refused(root, &shuffled, MIRT_E_INVALID, "is split into parts"), "a subset of a split directory: %s",
       mirt_last_error());
    shuffled = desc;
    shuffled.class_names = usual, shuffled.num_class_names = 2;
    both("8+4 of 2", "Using 4 files for validation", &shuffled, "parts named as classes");
    one(2, &shuffled, "parts named as classes");
    shuffled.class_names = more, shuffled.num_class_names = 2;
    both("p6+6 of 2", "Using", &shuffled, "classes by name");
    one(0, &shuffled, "classes by name");
    shuffled = desc;
    shuffled.label_mode = MIRT_LABELS_NONE;
    both("p6+6 of 0", "Using", &shuffled, "no labels");
    shuffled.validation_split = 0;
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &shuffled);
    ok(dataset && mirt_dataset_size(dataset) == 12, "one data set without labels takes all files");
    mirt_dataset_destroy(dataset);
    ok(mirt_image_directory_part(root, NULL, MIRT_SUBSET_TRAINING, path, sizeof path) == MIRT_OK && strcmp(path,
       at_root("train")) == 0, "the part is %s", path);
    ok(mirt_image_directory_part(root, NULL, MIRT_SUBSET_TRAINING, path, strlen(root)) == MIRT_E_INVALID, "%s",
       mirt_last_error());
    ok(mirt_image_directory_part(root, NULL, MIRT_SUBSET_ALL, path, sizeof path) == MIRT_E_INVALID, "%s",
       mirt_last_error());
    ok(mirt_image_directory_part(at_root("none"), NULL, MIRT_SUBSET_TRAINING, path, sizeof path) == MIRT_E_NOT_FOUND &&
           mirt_image_directory_part(NULL, NULL, MIRT_SUBSET_TRAINING, path, sizeof path) == MIRT_E_INVALID &&
           strcmp(mirt_last_error(), "mirt_image_directory_part: no directory") == 0,
       "a message that does not depend on the failure before: %s", mirt_last_error());
    static const char *const nameless[] = {"train", NULL}, *const same[] = {"train", "train"};
    mirt_image_directory_desc odd;
    memset(&odd, 0, sizeof odd);
    for (int k = 0; k < 3; k++) {
        odd.class_names = k == 1 ? same : nameless;
        odd.num_class_names = k < 2 ? 2 : 0;
        ok(mirt_image_directory_part(root, &odd, MIRT_SUBSET_TRAINING, path, sizeof path) == MIRT_E_INVALID, "%s",
           mirt_last_error());
    }
    ok(mirt_image_directory_part(at_root("none"), NULL, MIRT_SUBSET_TRAINING, path, sizeof path) == MIRT_E_NOT_FOUND,
       "%s", mirt_last_error());
    make_directories("old/");
    both("p6+6 of 2", "Using", &desc, "an empty directory beside them");
    one(0, &desc, "an empty directory beside them");
    make_directories("train/owls/");
    both("refused", "validation has no subdirectory for the class \"owls\", which ", &desc,
       "a class that validation lacks");
    make_directories("validation/owls/");
    make_directories("validation/ants/");
    both("refused", "train has no subdirectory for the class \"ants\", which ", &desc, "a class that training lacks");
    shuffled.label_mode = MIRT_LABELS_INT;
    shuffled.class_names = pets, shuffled.num_class_names = 2;
    both("p6+6 of 2", "Using", &shuffled, "classes that both have, by name");
    remove_tree();
}

/* Names of parts, and classes that have such names. */
static void test_split_names(void) {
    static const char *const rails[] = {"car", "train", NULL}, *const tested[] = {"train", "val", "test", NULL},
                      *const test_only[] = {"train", "test", NULL}, *const valid[] = {"train", "valid", NULL},
                      *const twice[] = {"train", "val", "validation", NULL},
                      *const extra[] = {"train", "validation", "old", NULL},
                      *const alone[] = {"train", "car", "plane", NULL};
    char path[1200];
    mirt_image_directory_desc desc = split_desc(), shuffled;
    parts_give(tested, pets, "p6+6 of 2", "/val for validation", 0, &desc, "train/, val/ and test/");
    parts_give(test_only, pets, "refused", "has no validation/ (or val/, valid/)", 0, &desc, "train/ and test/");
    parts_give(twice, pets, "refused", "has both validation/ and val/", 0, &desc, "two parts for validation");
    parts_give(extra, pets, "p6+6 of 2", "Using", 0, &desc, "another directory beside them");
    parts_give(alone, pets, "12+6 of 3", "files for", 3, &desc, "a class named train");

    start_tree("valid");
    put_parts(valid, rails);
    shuffled = desc;
    shuffled.class_names = rails, shuffled.num_class_names = 2;
    both("p6+6 of 2", "/valid for validation", &shuffled, "a class with the name of a part");
    remove_tree();

    start_tree("flat");
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%d.bmp", usual[i % 2], i);
        put(path, 3, 2);
    }
    one(0, &desc, "images right in the parts");
    lacks("train has no subdirectories", &desc, "images right in the parts");
    put("car/0.bmp", 3, 2);
    put("plane/0.bmp", 3, 2);
    both("6+2 of 4", "files for", &desc, "classes that have the names of parts");
    one(4, &desc, "classes that have the names of parts");
    remove_tree();

    start_tree("nested");
    put_parts(pets, usual);
    both("8+4 of 2", "files for", &desc, "parts below the classes");
    one(2, &desc, "parts below the classes");
    shuffled = desc;
    shuffled.validation_split = 0;
    both("refused", "validation_split must be above 0", &shuffled, "no share for a directory that is not split");
    remove_tree();
}

/* A directory one level above the data set would be one class. */
static void test_split_class(void) {
    static const char *const nested[] = {"inner", "other", NULL};
    mirt_image_directory_desc desc = split_desc();
    desc.validation_split = 0;
    start_tree("above");
    put("inner/train/cats/a.bmp", 2, 2);
    put("inner/val/cats/a.bmp", 2, 2);
    put("other/a.bmp", 2, 2);
    ok(refused(root, &desc, MIRT_E_INVALID, "inner would be a class, but is split into train/ and val/ itself: pass "),
       "a class that is split itself: %s", mirt_last_error());
    desc.class_names = nested, desc.num_class_names = 2;
    mirt_dataset *dataset = mirt_image_dataset_from_directory(root, &desc);
    ok(dataset && mirt_dataset_size(dataset) == 3, "unless class_names list it");
    mirt_dataset_destroy(dataset);
    desc.class_names = NULL;
    put("other/deep/train/cats/a.bmp", 2, 2);
    put("other/deep/val/cats/a.bmp", 2, 2);
    ok(refused(at_root("other"), &desc, MIRT_E_INVALID, "other/deep would be a class"), "%s", mirt_last_error());
    desc.class_names = nested + 1, desc.num_class_names = 1;
    dataset = mirt_image_dataset_from_directory(root, &desc);
    ok(dataset && mirt_dataset_size(dataset) == 3, "parts deeper within a class are files of it");
    mirt_dataset_destroy(dataset);
    remove_tree();
}

/* Parts without classes or images, and parts that are links. */
static void test_split_places(void) {
    static const char *const train[] = {"train", NULL}, *const validation[] = {"validation", NULL};
    mirt_image_directory_desc desc = split_desc();

    start_tree("empty");
    put_parts(train, pets);
    make_directories("validation/");
    lacks("validation has no subdirectories", &desc, "an empty part");
    one(0, &desc, "an empty part");
    make_directories("validation/cats/");
    make_directories("validation/dogs/");
    lacks("validation: no images found", &desc, "a part without images");
    remove_tree();

    start_tree("links");
    make_directories("pets/");
    put_parts(validation, pets);
    put("store/cats/0.bmp", 3, 2);
    put("store/dogs/0.bmp", 3, 2);
    bool linked = symlink("../store", at_root("pets/train")) == 0 && symlink("../validation", at_root("pets/val")) == 0;
    char whole[512];
    snprintf(whole, sizeof whole, "%s", root);
    snprintf(root, sizeof root, "%.500s/pets", whole);
    if (!linked) skip("no links here");
    else both("p2+6 of 2", "/val for validation", &desc, "parts that are links");
    if (linked) one(0, &desc, "parts that are links");
    snprintf(root, sizeof root, "%s", whole);
    remove_tree();
}

int main(void) {
    test_split_already();
    test_split_names();
    test_split_class();
    test_split_places();
    return done_testing();
}
