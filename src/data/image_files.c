/* Finds image files below a directory, in Keras's order and with its labels. */

#include "../base/file.h"
#include "image_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

MIRT__LIB void mirt__image_list_free(mirt__image_list *list) {
    mirt__pool_free(&list->pool);
    mirt__free(list->file);
    memset(list, 0, sizeof *list);
}

MIRT__LIB bool mirt__list_room(void **list, int64_t count, int64_t *capacity, size_t size) {
    const int64_t more = 2 * count + 64;
    if (count < *capacity) return true;
    if (!mirt__grow(list, (size_t)count, (size_t)more, size)) return false;
    *capacity = more;
    return true;
}

MIRT__LIB mirt_status mirt__image_list_add(mirt__image_list *list, const mirt__image_file *file) {
    if (!mirt__list_room((void **)&list->file, list->count, &list->capacity, sizeof *list->file)) return MIRT_E_NOMEM;
    mirt__image_file *copy = &list->file[list->count];
    *copy = *file;
    copy->path = mirt__pool_pack(&list->pool, file->path);
    if (copy->path) list->count++;
    return copy->path ? MIRT_OK : MIRT_E_NOMEM;
}

/* Copies of `names` in the list's pool; NULL with the error set. */
static const char **mirt__image_list_names(mirt__image_list *list, const char *const *names, int count) {
    const char **copy = (const char **)mirt__pool_alloc(&list->pool, (size_t)count * sizeof(char *) + 1);
    for (int i = 0; copy && i < count; i++) {
        copy[i] = mirt__pool_strdup(&list->pool, names[i]);
        if (!copy[i]) return NULL;
    }
    return copy;
}

MIRT__LIB mirt_status mirt__image_list_set_classes(mirt__image_list *list, const char *const *names, int count) {
    list->classes = mirt__image_list_names(list, names, count);
    list->num_classes = list->classes ? count : 0;
    return list->classes ? MIRT_OK : MIRT_E_NOMEM;
}

MIRT__LIB mirt_status mirt__image_list_set_shards(mirt__image_list *list, const char *const *paths, int count) {
    list->shards = mirt__image_list_names(list, paths, count);
    list->num_shards = list->shards ? count : 0;
    return list->shards ? MIRT_OK : MIRT_E_NOMEM;
}

MIRT__LIB mirt__file_part mirt__image_list_part_of(const mirt__image_list *list, int64_t i) {
    const mirt__image_file *file = &list->file[i];
    const mirt__file_part part = {list->shards ? list->shards[file->shard] : file->path, file->path, file->offset,
                                  list->shards ? file->size : MIRT__WHOLE_FILE};
    return part;
}

static int mirt__image_file_compare(const void *a, const void *b) {
    const mirt__image_file *x = (const mirt__image_file *)a, *y = (const mirt__image_file *)b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

MIRT__LIB mirt_status mirt__image_list_part(const mirt__image_list *list, int64_t first, int64_t count,
                                            mirt__image_list *out) {
    mirt_status status = MIRT_OK;
    memset(out, 0, sizeof *out);
    for (int64_t i = first; status == MIRT_OK && i < first + count; i++)
        status = mirt__image_list_add(out, &list->file[i]);
    if (status == MIRT_OK && list->classes)
        status = mirt__image_list_set_classes(out, list->classes, list->num_classes);
    if (status == MIRT_OK && list->shards)
        status = mirt__image_list_set_shards(out, list->shards, list->num_shards);
    /* A shard is read from its begin to its end. */
    if (status == MIRT_OK && list->shards)
        qsort(out->file, (size_t)out->count, sizeof *out->file, mirt__image_file_compare);
    if (status != MIRT_OK) mirt__image_list_free(out);
    return status;
}

/* >>MT19937 (Matsumoto and Nishimura 1998), seeded and used like numpy.random.RandomState */

typedef struct mirt__twister {
    uint32_t word[624];
    int used;
} mirt__twister;

static void mirt__twister_begin(mirt__twister *twister, uint32_t seed) {
    twister->word[0] = seed;
    for (uint32_t i = 1; i < 624; i++) {
        uint32_t before = twister->word[i - 1];
        twister->word[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    twister->used = 624;
}

static uint32_t mirt__twister_next(mirt__twister *twister) {
    uint32_t *word = twister->word;
    for (int i = 0; twister->used == 624 && i < 624; i++) {
        uint32_t y = (word[i] & 0x80000000u) | (word[(i + 1) % 624] & 0x7FFFFFFFu);
        word[i] = word[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908B0DFu : 0);
    }
    if (twister->used == 624) twister->used = 0;
    uint32_t y = word[twister->used++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680u;
    y ^= (y << 15) & 0xEFC60000u;
    return y ^ (y >> 18);
}

MIRT__LIB void mirt__image_list_shuffle(mirt__image_list *list, uint32_t seed) {
    mirt__twister twister;
    mirt__twister_begin(&twister, seed);
    for (int64_t i = list->count - 1; i > 0; i--) {
        uint32_t most = (uint32_t)i, mask = most, j;
        for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
        do j = mirt__twister_next(&twister) & mask;
        while (j > most);
        const mirt__image_file file = list->file[i];
        list->file[i] = list->file[j];
        list->file[j] = file;
    }
}

/* >>directories */

typedef struct mirt__walk_dir {
    const char *path;
    dev_t device;
    ino_t inode;
} mirt__walk_dir;

typedef struct mirt__walk_file {
    const char *directory, *name;
} mirt__walk_file;

/* What a walk looks for: images anywhere below a directory, or what is in the directory itself. */
typedef enum mirt__walk_what { MIRT__WALK_IMAGES, MIRT__WALK_DIRECTORIES, MIRT__WALK_SHARDS } mirt__walk_what;

typedef struct mirt__walk {
    mirt__pool pool;
    mirt__text text;
    mirt__walk_dir *dir;
    mirt__walk_file *file;
    int64_t dirs, most_dirs, files, most_files;
    mirt__walk_what what;
    bool follow; /* follow links to directories */
} mirt__walk;

MIRT__LIB bool mirt__name_ends(const char *name, const char *lower) {
    const size_t size = strlen(name), length = strlen(lower);
    for (size_t k = 1; size >= length && k <= length; k++) {
        const char c = name[size - k];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != lower[length - k]) return false;
    }
    return size >= length;
}

MIRT__LIB bool mirt__image_name(const char *name) {
    static const char *const endings[] = {".bmp", ".gif", ".jpeg", ".jpg", ".png"};
    for (int i = 0; i < MIRT__COUNT(endings); i++)
        if (mirt__name_ends(name, endings[i])) return true;
    return false;
}

/* directory/name, until the next call; NULL with the error set. */
static const char *mirt__walk_path(mirt__walk *walk, const char *directory, const char *name) {
    const size_t size = strlen(directory);
    mirt__text_clear(&walk->text);
    mirt__text_add_bytes(&walk->text, directory, size);
    if (size == 0 || directory[size - 1] != '/') mirt__text_add_bytes(&walk->text, "/", 1);
    mirt__text_add_bytes(&walk->text, name, strlen(name));
    return walk->text.failed ? NULL : walk->text.data;
}

/* The same in the pool. */
static const char *mirt__walk_join(mirt__walk *walk, mirt__pool *pool, const char *directory, const char *name) {
    const char *path = mirt__walk_path(walk, directory, name);
    return path ? mirt__pool_strdup(pool, path) : NULL;
}

static mirt_status mirt__walk_add_dir(mirt__walk *walk, const char *path, const struct stat *info, bool link) {
    /* A cycle contains a link to a directory that has been visited. */
    for (int64_t i = 0; link && i < walk->dirs; i++) {
        if (walk->dir[i].device == info->st_dev && walk->dir[i].inode == info->st_ino) return MIRT_OK;
    }
    if (!path || !mirt__list_room((void **)&walk->dir, walk->dirs, &walk->most_dirs, sizeof *walk->dir))
        return MIRT_E_NOMEM;
    walk->dir[walk->dirs].path = path;
    walk->dir[walk->dirs].device = info->st_dev;
    walk->dir[walk->dirs++].inode = info->st_ino;
    return MIRT_OK;
}

static mirt_status mirt__walk_add_file(mirt__walk *walk, const char *directory, const char *name) {
    if (!mirt__list_room((void **)&walk->file, walk->files, &walk->most_files, sizeof *walk->file)) return MIRT_E_NOMEM;
    walk->file[walk->files].directory = directory;
    walk->file[walk->files].name = mirt__pool_pack(&walk->pool, name);
    return walk->file[walk->files++].name ? MIRT_OK : MIRT_E_NOMEM;
}

/* An entry that is no directory. A dangling link counts as a file: reading it reports the error. */
static mirt_status mirt__walk_leaf(mirt__walk *walk, const char *directory, const char *name) {
    const bool wanted = walk->what == MIRT__WALK_IMAGES   ? mirt__image_name(name)
                        : walk->what == MIRT__WALK_SHARDS ? *name != '.' && mirt__name_ends(name, ".tar")
                                                          : false;
    return wanted ? mirt__walk_add_file(walk, directory, name) : MIRT_OK;
}

static mirt_status mirt__walk_entry(mirt__walk *walk, DIR *stream, const char *directory, const struct dirent *entry) {
    const char *name = entry->d_name;
    struct stat info;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return MIRT_OK;
#ifdef _DIRENT_HAVE_D_TYPE
    const unsigned char regular = 8; /* DT_REG, which POSIX does not have; this saves a call for each file */
    if (entry->d_type == regular) return mirt__walk_leaf(walk, directory, name);
#endif
    bool found = fstatat(dirfd(stream), name, &info, AT_SYMLINK_NOFOLLOW) == 0, link = found && S_ISLNK(info.st_mode);
    if (link) found = fstatat(dirfd(stream), name, &info, 0) == 0;
    if (!found || !S_ISDIR(info.st_mode)) return mirt__walk_leaf(walk, directory, name);
    if (walk->what == MIRT__WALK_DIRECTORIES && *name != '.') return mirt__walk_add_file(walk, directory, name);
    if (walk->what != MIRT__WALK_IMAGES || (link && !walk->follow)) return MIRT_OK;
    return mirt__walk_add_dir(walk, mirt__walk_join(walk, &walk->pool, directory, name), &info, link);
}

static mirt_status mirt__walk_read(mirt__walk *walk, const char *directory) {
    mirt_status status = MIRT_OK;
    DIR *stream = MIRRORTRAIN_OPENDIR(directory);
    if (!stream)
        return mirt__fail(errno == ENOENT ? MIRT_E_NOT_FOUND : MIRT_E_IO, "%s: cannot open the directory: %s",
                          directory, strerror(errno));
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry && errno)
            status = mirt__fail(MIRT_E_IO, "%s: cannot read the directory: %s", directory, strerror(errno));
        if (!entry) break;
        status = mirt__walk_entry(walk, stream, directory, entry);
        if (status != MIRT_OK) break;
    }
    closedir(stream);
    return status;
}

static int mirt__walk_compare(const void *a, const void *b) {
    const mirt__walk_file *f = (const mirt__walk_file *)a, *g = (const mirt__walk_file *)b;
    int order = f->directory == g->directory ? 0 : strcmp(f->directory, g->directory);
    return order ? order : strcmp(f->name, g->name);
}

/* Lists what is looked for, sorted, and forgets what an earlier walk has found. */
static mirt_status mirt__walk_run(mirt__walk *walk, const char *root, mirt__walk_what what, bool follow) {
    struct stat info;
    mirt__pool_free(&walk->pool);
    walk->dirs = walk->files = 0;
    walk->what = what;
    walk->follow = follow;
    memset(&info, 0, sizeof info);
    if (MIRRORTRAIN_STAT(root, &info) != 0)
        return mirt__fail(errno == ENOENT || errno == ENOTDIR ? MIRT_E_NOT_FOUND : MIRT_E_IO,
                          "%s: cannot open the directory: %s", root, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return mirt__fail(MIRT_E_IO, "%s: is not a directory", root);
    mirt_status status = mirt__walk_add_dir(walk, mirt__pool_strdup(&walk->pool, root), &info, false);
    for (int64_t i = 0; i < walk->dirs && status == MIRT_OK; i++) status = mirt__walk_read(walk, walk->dir[i].path);
    if (status == MIRT_OK && walk->files)
        qsort(walk->file, (size_t)walk->files, sizeof *walk->file, mirt__walk_compare);
    return status;
}

static void mirt__walk_free(mirt__walk *walk) {
    mirt__pool_free(&walk->pool);
    mirt__text_free(&walk->text);
    mirt__free(walk->dir);
    mirt__free(walk->file);
}

/* Names of the parts of a directory that is already split; three names mean validation. */
enum { MIRT__PART_TRAIN = 0, MIRT__PART_VALIDATION, MIRT__PART_TEST = 4, MIRT__PARTS };
static const char *const mirt__part_names[MIRT__PARTS] = {"train", "validation", "val", "valid", "test"};

/* Whether `path` is below the subdirectory `name` of `root`. */
static bool mirt__is_below(const char *path, const char *root, const char *name) {
    const size_t size = strlen(root), length = strlen(name);
    if (strncmp(path, root, size) != 0) return false;
    path += size + (path[size] == '/');
    return strncmp(path, name, length) == 0 && path[length] == '/';
}

/* Refuses a class that is split into parts with subdirectories: it is a data set itself, whose classes would become
   one. A class listed in class_names is accepted. */
static mirt_status mirt__walk_refuse_parts(const mirt__walk *walk, const char *root) {
    int found[MIRT__PARTS] = {0}, second = MIRT__PART_VALIDATION;
    for (int64_t i = 1; i < walk->dirs; i++) {
        for (int k = 0; k < MIRT__PARTS; k++) found[k] |= mirt__is_below(walk->dir[i].path, root, mirt__part_names[k]);
    }
    while (second < MIRT__PARTS && !found[second]) second++;
    if (!found[MIRT__PART_TRAIN] || second == MIRT__PARTS) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "%s would be a class, but is split into train/ and %s/ itself: pass %s; class_names that list it "
                      "make it a class", root, mirt__part_names[second], root);
}

/* Adds all images below `root` with this label. */
static mirt_status mirt__image_list_add_tree(mirt__image_list *list, mirt__walk *walk, const char *root, bool follow,
                                             int32_t label) {
    mirt__image_file file;
    memset(&file, 0, sizeof file);
    file.label = label;
    mirt_status status = mirt__walk_run(walk, root, MIRT__WALK_IMAGES, follow);
    for (int64_t i = 0; i < walk->files && status == MIRT_OK; i++) {
        file.path = mirt__walk_path(walk, walk->file[i].directory, walk->file[i].name);
        status = file.path ? mirt__image_list_add(list, &file) : MIRT_E_NOMEM;
    }
    return status;
}

/* Uses the given classes, all of which must exist. */
static mirt_status mirt__image_list_choose_classes(mirt__image_list *list, const mirt__walk *walk,
                                                   const char *directory, const mirt_image_directory_desc *desc) {
    for (int i = 0; i < desc->num_class_names; i++) {
        mirt__suggestion guess = {desc->class_names[i], NULL, ""};
        bool found = false;
        for (int64_t k = 0; k < walk->files && !found; k++) {
            found = strcmp(walk->file[k].name, desc->class_names[i]) == 0;
            mirt__guess(&guess, walk->file[k].name);
        }
        if (!found)
            return mirt__fail(MIRT_E_NOT_FOUND, "%s has no subdirectory for the class \"%s\"%s", directory,
                              desc->class_names[i], mirt__did_you_mean(&guess));
    }
    return mirt__image_list_set_classes(list, desc->class_names, desc->num_class_names);
}

static mirt_status mirt__image_list_find_classes(mirt__image_list *list, const mirt__walk *walk) {
    const char **names = (const char **)mirt__pool_alloc(&list->pool, ((size_t)walk->files + 1) * sizeof(char *));
    for (int64_t i = 0; names && i < walk->files; i++) names[i] = walk->file[i].name;
    return names ? mirt__image_list_set_classes(list, names, (int)walk->files) : MIRT_E_NOMEM;
}

static mirt_status mirt__image_list_by_class(mirt__image_list *list, mirt__walk *walk, const char *directory,
                                             const mirt_image_directory_desc *desc) {
    mirt_status status = mirt__walk_run(walk, directory, MIRT__WALK_DIRECTORIES, true);
    if (status != MIRT_OK) return status;
    if (walk->files == 0)
        return mirt__fail(MIRT_E_NOT_FOUND, "%s has no subdirectories, which are needed as the classes", directory);
    if (walk->files > INT32_MAX) return mirt__fail(MIRT_E_INVALID, "%s has too many subdirectories", directory);
    status = desc->class_names ? mirt__image_list_choose_classes(list, walk, directory, desc)
                               : mirt__image_list_find_classes(list, walk);
    for (int i = 0; i < list->num_classes && status == MIRT_OK; i++) {
        const char *root = mirt__walk_join(walk, &list->pool, directory, list->classes[i]);
        status = root ? mirt__image_list_add_tree(list, walk, root, desc->follow_links, i) : MIRT_E_NOMEM;
        if (status == MIRT_OK && !desc->class_names) status = mirt__walk_refuse_parts(walk, root);
    }
    return status;
}

static int mirt__image_label_compare(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Uses labels given per file: their numbers are the names of the classes. */
static mirt_status mirt__image_list_set_labels(mirt__image_list *list, const char *directory,
                                               const mirt_image_directory_desc *desc) {
    if (desc->num_labels != list->count)
        return mirt__fail(MIRT_E_INVALID, "%lld labels for the %lld images below %s: one per image is needed",
                          (long long)desc->num_labels, (long long)list->count, directory);
    const size_t bytes = (size_t)list->count * sizeof(int32_t);
    int32_t *sorted = (int32_t *)mirt__pool_alloc(&list->pool, bytes);
    const char **names = (const char **)mirt__pool_alloc(&list->pool, (size_t)list->count * sizeof(char *));
    int count = 0;
    if (!sorted || !names) return MIRT_E_NOMEM;
    for (int64_t i = 0; i < list->count; i++) list->file[i].label = desc->labels[i];
    memcpy(sorted, desc->labels, bytes);
    qsort(sorted, (size_t)list->count, sizeof *sorted, mirt__image_label_compare);
    for (int64_t i = 0; i < list->count; i++) {
        char text[16];
        if (i > 0 && sorted[i] == sorted[i - 1]) continue;
        snprintf(text, sizeof text, "%ld", (long)sorted[i]);
        names[count] = mirt__pool_strdup(&list->pool, text);
        if (!names[count++]) return MIRT_E_NOMEM;
    }
    return mirt__image_list_set_classes(list, names, count);
}

MIRT__LIB mirt_status mirt__image_list_directory(mirt__image_list *list, const char *directory,
                                                 const mirt_image_directory_desc *desc) {
    mirt__walk walk;
    mirt_status status;
    memset(&walk, 0, sizeof walk);
    memset(list, 0, sizeof *list);
    if (desc->label_mode == MIRT_LABELS_NONE || desc->labels) {
        status = mirt__image_list_add_tree(list, &walk, directory, desc->follow_links, 0);
        if (status == MIRT_OK && list->count && desc->label_mode != MIRT_LABELS_NONE)
            status = mirt__image_list_set_labels(list, directory, desc);
    } else {
        status = mirt__image_list_by_class(list, &walk, directory, desc);
    }
    if (status == MIRT_OK && list->count == 0)
        status = mirt__fail(MIRT_E_NOT_FOUND,
                            "%s: no images found: no file below it%s ends in .bmp, .gif, .jpeg, .jpg or .png",
                            directory, list->classes ? "s subdirectories" : "");
    if (status == MIRT_OK && list->count > UINT32_MAX)
        status = mirt__fail(MIRT_E_INVALID, "%s: too many images", directory);
    mirt__walk_free(&walk);
    if (status != MIRT_OK) mirt__image_list_free(list);
    return status;
}

MIRT__LIB mirt_status mirt__directory_shards(const char *directory, mirt__pool *pool, const char ***path,
                                             int64_t *count) {
    mirt__walk walk;
    memset(&walk, 0, sizeof walk);
    mirt_status status = mirt__walk_run(&walk, directory, MIRT__WALK_SHARDS, false);
    *count = walk.files;
    *path = (const char **)mirt__pool_alloc(pool, ((size_t)walk.files + 1) * sizeof(char *));
    if (status == MIRT_OK && !*path) status = MIRT_E_NOMEM;
    for (int64_t i = 0; i < walk.files && status == MIRT_OK; i++) {
        (*path)[i] = mirt__walk_join(&walk, pool, directory, walk.file[i].name);
        if (!(*path)[i]) status = MIRT_E_NOMEM;
    }
    mirt__walk_free(&walk);
    return status;
}

/* >>directories that are already split */

typedef struct mirt__split {
    bool found[MIRT__PARTS];
    int64_t others; /* subdirectories with other names */
    int chosen;     /* class names that are subdirectories */
} mirt__split;

static void mirt__split_look(mirt__split *split, const mirt__walk *walk, const mirt_image_directory_desc *desc) {
    memset(split, 0, sizeof *split);
    for (int64_t i = 0; i < walk->files; i++) {
        const char *name = walk->file[i].name;
        int k = 0;
        while (k < MIRT__PARTS && strcmp(name, mirt__part_names[k]) != 0) k++;
        if (k < MIRT__PARTS) split->found[k] = true;
        else split->others++;
        for (int c = 0; desc->class_names && c < desc->num_class_names; c++)
            split->chosen += strcmp(name, desc->class_names[c]) == 0;
    }
}

static mirt_status mirt__has_subdirectories(const char *directory, bool *has) {
    mirt__walk walk;
    memset(&walk, 0, sizeof walk);
    mirt_status status = mirt__walk_run(&walk, directory, MIRT__WALK_DIRECTORIES, true);
    *has = walk.files > 0;
    mirt__walk_free(&walk);
    return status;
}

/* Checks a directory that has train/ and at least one of the others. */
static mirt_status mirt__image_parts_choose(mirt__image_parts *parts, mirt__walk *walk, const char *directory,
                                            const mirt__split *split) {
    int second[MIRT__PARTS] = {MIRT__PART_TEST}, seconds = 0;
    bool nested = true;
    for (int k = MIRT__PART_VALIDATION; k < MIRT__PART_TEST; k++) {
        if (split->found[k]) second[seconds++] = k;
    }
    const char *training = mirt__walk_join(walk, &parts->pool, directory, mirt__part_names[MIRT__PART_TRAIN]);
    const char *validation = mirt__walk_join(walk, &parts->pool, directory, mirt__part_names[second[0]]);
    mirt_status status = training && validation ? MIRT_OK : MIRT_E_NOMEM;
    /* Next to other classes these could also be classes, unless they contain classes. */
    if (status == MIRT_OK && split->others) status = mirt__has_subdirectories(training, &nested);
    if (status == MIRT_OK && split->others && nested) status = mirt__has_subdirectories(validation, &nested);
    if (status != MIRT_OK || !nested) return status;
    if (seconds == 0)
        return mirt__fail(MIRT_E_INVALID,
                          "%s is split into train/ and test/, but has no validation/ (or val/, valid/): rename test/, "
                          "or pass %s and %s separately", directory, training, validation);
    if (seconds > 1)
        return mirt__fail(MIRT_E_INVALID,
                          "%s has both %s/ and %s/: keep one for validation, or pass %s and the other separately",
                          directory, mirt__part_names[second[0]], mirt__part_names[second[1]], training);
    parts->training = training;
    parts->validation = validation;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__image_parts_find(mirt__image_parts *parts, const char *directory,
                                             const mirt_image_directory_desc *desc) {
    mirt__walk walk;
    mirt__split split;
    bool second = false;
    memset(&walk, 0, sizeof walk);
    memset(parts, 0, sizeof *parts);
    mirt_status status = mirt__walk_run(&walk, directory, MIRT__WALK_DIRECTORIES, true);
    if (status != MIRT_OK) walk.files = 0; /* a failed walk may miss names */
    mirt__split_look(&split, &walk, desc);
    for (int k = MIRT__PART_VALIDATION; k < MIRT__PARTS; k++) second = second || split.found[k];
    /* The caller has declared them to be classes. */
    const bool named = desc->class_names && split.chosen == desc->num_class_names;
    if (status == MIRT_OK && split.found[MIRT__PART_TRAIN] && second && !named)
        status = mirt__image_parts_choose(parts, &walk, directory, &split);
    mirt__walk_free(&walk);
    return status;
}
