/* Tests tar archives of photographs beside Python's tarfile and WebDataset: samples, orders, resuming, damage. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/tar.h"
#include "tar_util.h"
#include "tree_util.h"

#include <fcntl.h>

static tar_bytes tar;
static int shards_opened;

int hook_open(const char *path, int flags, unsigned mode) {
    const size_t size = strlen(path);
    if (size > 4 && strcmp(path + size - 4, ".tar") == 0) __atomic_fetch_add(&shards_opened, 1, __ATOMIC_RELAXED);
    return open(path, flags, mode);
}

static void put_tar(const char *name) { image_write_file(at_root(name), tar.data, tar.size); }

/* A BMP of its own for each number. */
static size_t photo(int number, unsigned char *out) { return image_write_bmp(out, 2 + number % 5, 1 + number / 5 % 4); }

static void add_photo(int number, int label) {
    unsigned char bytes[IMAGE_MOST];
    char name[64], text[16];
    snprintf(name, sizeof name, "%06d.bmp", number);
    tar_add(&tar, name, bytes, photo(number, bytes), '0');
    snprintf(name, sizeof name, "%06d.cls", number);
    snprintf(text, sizeof text, "%d", label);
    if (label >= 0) tar_text(&tar, name, text);
}

/* Shards NAME-000000.tar and so on with these numbers of samples, numbered from 0, whose labels are number % 3. */
static void put_shards(const char *name, const int *counts, int shards) {
    int number = 0;
    char path[64];
    for (int s = 0; s < shards; s++) {
        tar.size = 0;
        for (int i = 0; i < counts[s]; i++, number++) add_photo(number, number % 3);
        tar_end(&tar);
        snprintf(path, sizeof path, "%s-%06d.tar", name, s);
        put_tar(path);
    }
}

static bool fails(const char *shards, const mirt_image_directory_desc *desc, mirt_status status, const char *words) {
    mirt_dataset *dataset = mirt_tar_dataset(shards, desc);
    const bool failed = !dataset && mirt_last_status() == status && strstr(mirt_last_error(), words) != NULL;
    if (!failed) printf("# %s: %s\n", dataset ? "no error" : "instead", mirt_last_error());
    mirt_dataset_destroy(dataset);
    return failed;
}

/* >>what Python writes, and WebDataset finds in it */

static void test_golden(const char *kind, const golden_block *block, const golden_sample *sample, int samples) {
    mirt_image_directory_desc desc = small_desc();
    const unsigned char *pixels;
    mirt__batch batch;
    int wrong = 0;
    memset(&tar, 0, sizeof tar);
    for (; block->bytes; block++) image_unhex(block->bytes, tar.data + 512 * block->at);
    tar.size = 512 * (size_t)block->at;
    put_tar("golden.tar");
    desc.dtype = MIRT_UINT8;
    mirt_dataset *dataset = mirt_tar_dataset(at_root("golden.tar"), &desc);
    int classes = 0;
    mirt_class_names(dataset, &classes);
    if (!dataset || mirt_dataset_size(dataset) != samples || classes != 12) wrong = 1;
    if (dataset && mirt__dataset_begin(dataset, 0, 0) != MIRT_OK) wrong = 1;
    for (int i = 0; i < samples && !wrong; i++) {
        const char *path = mirt_dataset_file(dataset, i), *name = path + strlen(at_root("golden.tar")) + 1;
        wrong = mirt__dataset_next(dataset, &batch) != MIRT_OK || batch.rows != 1;
        pixels = (const unsigned char *)batch.field[0];
        wrong = wrong || pixels[0] != sample[i].shade || pixels[17] != sample[i].shade ||
                *(const int32_t *)batch.field[1] != sample[i].label ||
                strncmp(name, sample[i].key, strlen(sample[i].key)) != 0;
        if (wrong) printf("# sample %d: %s\n", i, path);
    }
    ok(!wrong, "%s: the samples of WebDataset, %d of them: %s", kind, samples, wrong ? mirt_last_error() : "right");
    mirt_dataset_destroy(dataset);
}

/* >>samples and their order */

enum { SHARDS = 5, SAMPLES = 41, BATCH = 4, PASS = (SAMPLES + BATCH - 1) / BATCH };
static const int counts[SHARDS] = {9, 1, 17, 0, 14};

/* The same photographs as files by themselves. */
static void test_pixels(void) {
    unsigned char bytes[IMAGE_MOST], alone[18], *all;
    mirt_image_directory_desc desc = small_desc();
    mirt_data data;
    int wrong = 0;
    desc.dtype = MIRT_UINT8;
    mirt_dataset *dataset = mirt_tar_dataset(root, &desc);
    bool good = dataset && mirt_dataset_arrays(dataset, &data) == MIRT_OK && data.x[0].shape.dim[0] == SAMPLES;
    for (int i = 0; i < SAMPLES && good; i++) {
        image_write_file(at_root("alone.bmp"), bytes, photo(i, bytes));
        all = (unsigned char *)data.x[0].data + 18 * i;
        good = mirt_load_image(at_root("alone.bmp"), &desc, alone) == MIRT_OK;
        wrong += memcmp(alone, all, 18) != 0 || ((const int32_t *)data.y[0].data)[i] != i % 3;
    }
    ok(good && !wrong, "members of %d shards have the pixels and labels of files: %d differ", SHARDS, wrong);
    if (good) mirt_data_free(&data);
    mirt_dataset_destroy(dataset);
}

static void test_names(void) {
    static const char *const forms[] = {"s-{000000..000004}.tar", "./s-00000{0,1,2,3,4}.tar", "{s}-00000{0..4}.tar",
                                        "s-000000.tar::s-{000001..000004}.tar", "."};
    mirt_image_directory_desc desc = small_desc();
    char home[1024];
    int wrong = 0;
    if (!getcwd(home, sizeof home) || chdir(root) != 0) {
        ok(false, "cannot change to %s", root);
        return;
    }
    for (int i = 0; i < MIRT__COUNT(forms); i++) {
        mirt_dataset *dataset = mirt_tar_dataset(forms[i], &desc);
        if (mirt_dataset_size(dataset) != SAMPLES) printf("# %s: %s\n", forms[i], mirt_last_error());
        wrong += mirt_dataset_size(dataset) != SAMPLES;
        mirt_dataset_destroy(dataset);
    }
    ok(!wrong, "shards are named by ranges, alternatives, lists and directories");
    mirt_dataset *dataset = mirt_tar_dataset("s-{000004..000000}.tar", &desc);
    const char *first = mirt_dataset_file(dataset, 0);
    ok(first && strcmp(first, "s-000004.tar/000027.bmp") == 0, "a range may count down: %s", first ? first : "none");
    mirt_dataset_destroy(dataset);
    ok(fails("s-{000000..000005}.tar", &desc, MIRT_E_NOT_FOUND, "s-000005.tar"), "a shard that is missing is named");
    ok(fails("s-000000.tar::", &desc, MIRT_E_INVALID, "without a name"), "an empty name in a list");
    ok(fails("{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}", &desc, MIRT_E_INVALID, "more than 1048576 shards"),
       "the number of shards is bounded");
    if (chdir(home) != 0) printf("# cannot change to %s\n", home);
}

/* The indices of one pass, batch by batch; false on failure. */
static bool read_order(mirt_dataset *dataset, uint64_t seed, int64_t epoch, int64_t over, int64_t *out, int *count) {
    mirt__batch batch;
    *count = 0;
    if (!dataset || (over && !mirt__dataset_pass_over(dataset, over)) ||
        mirt__dataset_begin(dataset, seed, epoch) != MIRT_OK)
        return false;
    while (mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows) {
        for (int64_t i = 0; i < batch.rows; i++) {
            if (((const int32_t *)batch.field[1])[i] != batch.index[i] % 3 || *count == SAMPLES) return false;
            out[(*count)++] = batch.index[i];
        }
    }
    return true;
}

static int shard_of(int64_t index) {
    int shard = 0;
    for (int64_t end = counts[0]; index >= end; end += counts[++shard]) continue;
    return shard;
}

/* Whether `order` is some order of shards, each in its order, after a buffer of so many. */
static bool is_buffered(const int64_t *order, int buffer) {
    int64_t next[SHARDS] = {0}, sequence[SAMPLES];
    int at[SAMPLES], turn[SHARDS], shards = 0, used = 0;
    bool seen[SHARDS] = {false};
    /* A shard's first sample leaves the buffer in some order; the order of shards follows from the mean place. */
    double place[SHARDS] = {0};
    for (int i = 0; i < SAMPLES; i++) {
        const int s = shard_of(order[i]);
        place[s] += (double)i / (counts[s] ? counts[s] : 1);
        seen[s] = true;
    }
    for (int s = 0; s < SHARDS; s++) {
        if (!seen[s]) continue;
        int k = shards++;
        for (; k > 0 && place[turn[k - 1]] > place[s]; k--) turn[k] = turn[k - 1];
        turn[k] = s;
    }
    for (int s = 1; s < SHARDS; s++) next[s] = next[s - 1] + counts[s - 1];
    for (int k = 0; k < shards; k++)
        for (int i = 0; i < counts[turn[k]]; i++) sequence[used++] = next[turn[k]] + i;
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < SAMPLES; k++)
            if (sequence[k] == order[i]) at[i] = k;
    /* A sample cannot leave before it has come. */
    for (int i = 0; i < SAMPLES; i++)
        if (at[i] >= i + buffer) return false;
    return used == SAMPLES;
}

static int add_one(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)out, (void)index, (void)user;
    return 0;
}

static mirt_dataset *open_order(int buffer, int workers, bool mapped) {
    mirt_image_directory_desc desc = small_desc();
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = add_one;
    mirt_dataset *dataset = mirt_tar_dataset(root, &desc);
    if (mapped) dataset = mirt_map(dataset, &map);
    dataset = mirt_prefetch(mirt_batch(mirt_shuffle(dataset, buffer), BATCH), 2);
    if (dataset && mirt_dataset_workers(dataset, workers) != MIRT_OK) return NULL;
    return dataset;
}

static void test_orders(void) {
    static const int buffers[] = {1, 2, 7, 40};
    int64_t order[3][SAMPLES];
    int count, wrong = 0, unbuffered = 0, same = 0, repeated = 0, resumed = 0;
    for (int b = 0; b < MIRT__COUNT(buffers); b++) {
        for (int workers = 1; workers <= 3; workers++) {
            mirt_dataset *dataset = open_order(buffers[b], workers, workers == 2);
            for (int64_t epoch = 0; epoch < 4; epoch++) {
                bool seen[SAMPLES] = {false};
                wrong += !read_order(dataset, 3, epoch, 0, order[epoch % 2], &count) || count != SAMPLES;
                for (int i = 0; i < count; i++) wrong += seen[order[epoch % 2][i]], seen[order[epoch % 2][i]] = true;
                unbuffered += !is_buffered(order[epoch % 2], buffers[b]);
                if (epoch) same += memcmp(order[0], order[1], sizeof order[0]) == 0;
            }
            /* Epoch 2 of another number of workers, and after some batches. */
            mirt_dataset *other = open_order(buffers[b], 4 - workers, workers == 1);
            repeated += !read_order(other, 3, 2, 0, order[2], &count) ||
                        memcmp(order[2], order[0], sizeof order[0]) != 0;
            for (int64_t over = 1; over < PASS; over++)
                resumed += !read_order(dataset, 3, 2, over, order[1], &count) ||
                           count != SAMPLES - (int)over * BATCH ||
                           memcmp(order[1], order[0] + over * BATCH, (size_t)count * sizeof **order) != 0;
            mirt_dataset_destroy(other);
            mirt_dataset_destroy(dataset);
        }
    }
    ok(!wrong, "every sample once in an epoch");
    ok(!unbuffered, "whatever the buffer, shards come one after the other: %d do not", unbuffered);
    ok(!same, "every epoch has another order: %d have not", same);
    ok(!repeated, "any number of workers gives one order: %d differ", repeated);
    ok(!resumed, "an epoch is resumed after any batch: %d differ", resumed);
    int sorted = 0, changed = 0;
    for (int64_t epoch = 0; epoch < 40; epoch++) {
        mirt_dataset *dataset = open_order(1, 1, false);
        read_order(dataset, 1, epoch, 0, order[0], &count);
        sorted += shard_of(order[0][0]) == 0;
        changed += shard_of(order[0][0]) == 4;
        mirt_dataset_destroy(dataset);
    }
    ok(sorted > 2 && sorted < 22 && changed > 2, "any shard may be the first: %d times that, %d times the last", sorted,
       changed);
    mirt_dataset *dataset = open_order(SAMPLES, 1, false);
    bool good = read_order(dataset, 1, 0, 0, order[0], &count) && count == SAMPLES;
    ok(good && !is_buffered(order[0], 7), "a buffer for all is a full permutation");
    mirt_dataset_destroy(dataset);
}

/* Samples of shards that other stages leave out or keep. */
static void test_stages(void) {
    mirt_image_directory_desc desc = small_desc();
    int64_t order[SAMPLES];
    int count = 0, wrong = 0;
    mirt_dataset *dataset =
        mirt_batch(mirt_shuffle(mirt_take(mirt_skip(mirt_tar_dataset(root, &desc), 5), 20), 1), BATCH);
    bool good = read_order(dataset, 1, 1, 0, order, &count) && count == 20;
    for (int i = 1; i < count; i++)
        wrong += order[i] != order[i - 1] + 1 && shard_of(order[i]) == shard_of(order[i - 1]);
    ok(good && !wrong, "some of the samples, shard by shard: %d are not", wrong);
    mirt_dataset_destroy(dataset);
    dataset = mirt_batch(mirt_shuffle(mirt_cache(mirt_tar_dataset(root, &desc)), 1), BATCH);
    good = read_order(dataset, 1, 1, 0, order, &count) && count == SAMPLES;
    ok(good && !is_buffered(order, 7), "after a cache the permutation is full");
    mirt_dataset_destroy(dataset);
    dataset = mirt_tar_dataset(root, NULL);
    ok(dataset && mirt_dataset_batches(dataset) == 2 && mirt_dataset_size(dataset) == SAMPLES, "Keras's defaults");
    mirt_dataset_destroy(dataset);
}

/* Rows that several processes make are together those that one makes. */
static void test_parts(void) {
    int wrong = 0, strange = 0;
    for (int of = 2; of < 4; of++) {
        mirt__batch batch, whole;
        mirt_dataset *one = open_order(7, 1, false), *parts[3] = {open_order(7, 2, false), open_order(7, 1, true),
                                                                  open_order(7, 3, false)};
        bool good = one && mirt__dataset_begin(one, 5, 1) == MIRT_OK;
        for (int p = 0; p < of && good; p++) {
            const mirt__data_part part = {of, p, p + 1};
            mirt__dataset_set_part(parts[p], &part);
            good = mirt__dataset_begin(parts[p], 5, 1) == MIRT_OK;
        }
        while (good && mirt__dataset_next(one, &whole) == MIRT_OK && whole.rows) {
            for (int p = 0; p < of; p++) {
                const mirt__data_part part = {of, p, p + 1};
                int64_t begin, end;
                good = good && mirt__dataset_next(parts[p], &batch) == MIRT_OK && batch.rows == whole.rows;
                mirt__part_rows(&part, whole.rows, &begin, &end);
                for (int64_t i = 0; i < whole.rows && good; i++) strange += batch.index[i] != whole.index[i];
                for (int64_t i = begin; i < end && good; i++)
                    wrong += memcmp((const float *)batch.field[0] + 18 * i, (const float *)whole.field[0] + 18 * i,
                                    18 * sizeof(float)) != 0;
            }
        }
        wrong += !good;
        for (int p = 0; p < 3; p++) mirt_dataset_destroy(parts[p]);
        mirt_dataset_destroy(one);
    }
    ok(!wrong && !strange, "each process makes its own rows: %d differ, %d of their numbers", wrong, strange);
}

static void test_split(void) {
    int counted[SAMPLES] = {0}, wrong = 0;
    int64_t sizes[2];
    for (int k = 0; k < 4; k++) {
        mirt_image_directory_desc desc = small_desc();
        desc.no_shuffle = k / 2;
        desc.has_seed = true;
        desc.seed = 9;
        desc.validation_split = 0.25;
        desc.subset = k % 2 ? MIRT_SUBSET_VALIDATION : MIRT_SUBSET_TRAINING;
        mirt_dataset *dataset = mirt_tar_dataset(root, &desc);
        sizes[k % 2] = mirt_dataset_size(dataset);
        int before = -1;
        for (int i = 0; i < sizes[k % 2]; i++) {
            const int number = atoi(strrchr(mirt_dataset_file(dataset, i), '/') + 1);
            counted[number]++;
            wrong += number <= before || (k == 3 && number != SAMPLES - 10 + i);
            before = number;
        }
        wrong += sizes[k % 2] != (k % 2 ? 10 : 31);
        mirt_dataset_destroy(dataset);
    }
    for (int i = 0; i < SAMPLES; i++) wrong += counted[i] != 2;
    ok(!wrong, "a split leaves each sample to one part, in the order of the shards: %d wrong", wrong);
}

/* Both parts at once are those that are opened one by one, from headers that are read once. */
static void test_both_parts(void) {
    mirt_image_directory_desc desc = small_desc();
    mirt_dataset *both[2];
    int wrong = 0, shards;
    desc.has_seed = true;
    desc.seed = 9;
    desc.validation_split = 0.25;
    shards_opened = 0;
    bool good = mirt_tar_datasets(root, &desc, &both[0], &both[1]) == MIRT_OK;
    const int opened = shards_opened;
    shards_opened = 0;
    for (int k = 0; good && k < 2; k++) {
        desc.subset = k ? MIRT_SUBSET_VALIDATION : MIRT_SUBSET_TRAINING;
        mirt_dataset *alone = mirt_tar_dataset(root, &desc);
        const int64_t size = mirt_dataset_size(alone);
        int classes[2];
        wrong += mirt_dataset_size(both[k]) != size;
        for (int64_t i = 0; i < size; i++)
            wrong += strcmp(mirt_dataset_file(alone, i), mirt_dataset_file(both[k], i)) != 0;
        wrong += !mirt_class_names(alone, &classes[0]) || !mirt_class_names(both[k], &classes[1]) ||
                 classes[0] != classes[1];
        mirt_dataset_destroy(alone);
    }
    shards = shards_opened / 2;
    ok(good && !wrong, "both parts at once are those opened one by one: %d wrong", wrong);
    ok(shards > 1 && opened == shards, "which opens each of %d shards once: %d times", shards, opened);
    if (good) mirt_dataset_destroy(both[0]);
    if (good) mirt_dataset_destroy(both[1]);
}

/* >>what is refused */

static void test_samples_refused(void) {
    mirt_image_directory_desc desc = small_desc(), none = small_desc(), named = small_desc();
    static const char *const names[] = {"a", "b"};
    static const int32_t labels[] = {0};
    static const char *const wrong_labels[] = {"", "x", "1x", "-1", "1.0", "2147483648", "99999999999999999999", "1 2"};
    int wrong = 0;
    none.label_mode = MIRT_LABELS_NONE;
    named.class_names = names;
    named.num_class_names = 2;
    const char *path = at_root("one.tar");
    tar.size = 0;
    add_photo(0, 2);
    add_photo(1, -1);
    tar_end(&tar);
    put_tar("one.tar");
    ok(fails(path, &desc, MIRT_E_FORMAT, "\"000001\" has no label"), "a sample without a label");
    mirt_dataset *dataset = mirt_tar_dataset(path, &none);
    ok(mirt_dataset_size(dataset) == 2, "which it does not need without labels");
    mirt_dataset_destroy(dataset);
    tar.size = 0;
    tar_text(&tar, "a/7.cls", "1");
    tar_end(&tar);
    put_tar("one.tar");
    ok(fails(path, &desc, MIRT_E_FORMAT, "\"a/7\" has no image"), "a label without an image");
    ok(fails(path, &none, MIRT_E_NOT_FOUND, "no images found"), "no image at all");
    tar.size = 0;
    tar_text(&tar, "7.jpg", "");
    tar_text(&tar, "7.png", "");
    tar_end(&tar);
    put_tar("one.tar");
    ok(fails(path, &none, MIRT_E_FORMAT, "two images"), "two images");
    tar.size = 0;
    tar_text(&tar, "7.cls", "1");
    tar_text(&tar, "7.cls", "1");
    tar_end(&tar);
    put_tar("one.tar");
    ok(fails(path, &desc, MIRT_E_FORMAT, "two labels"), "two labels");
    for (int i = 0; i < MIRT__COUNT(wrong_labels); i++) {
        tar.size = 0;
        tar_text(&tar, "7.jpg", "");
        tar_text(&tar, "7.cls", wrong_labels[i]);
        tar_end(&tar);
        put_tar("one.tar");
        wrong += !fails(path, &desc, MIRT_E_FORMAT, "not a class number");
    }
    ok(!wrong, "labels that are no class numbers: %d pass", wrong);
    tar.size = 0;
    tar_text(&tar, "7.jpg", "");
    tar_text(&tar, "7.cls", "2000000000");
    tar_end(&tar);
    put_tar("one.tar");
    ok(fails(path, &desc, MIRT_E_FORMAT, "2000000000"), "a label so large that names for its classes fill the memory");
    ok(fails(path, &named, MIRT_E_INVALID, "not one of 2 classes"), "a label above the classes that are named");
    named.labels = labels;
    named.num_labels = 1;
    ok(fails(path, &named, MIRT_E_INVALID, "labels are in the shards"), "labels of the caller");
    ok(fails(NULL, NULL, MIRT_E_INVALID, "shards"), "no shards");
    mkdir(at_root("empty"), 0777);
    ok(fails(at_root("empty"), NULL, MIRT_E_NOT_FOUND, "no file in it ends in .tar"), "a directory without shards");
}

/* Each block of an archive, cut off, or with one byte changed in a header. */
static void test_damage(void) {
    mirt_image_directory_desc desc = small_desc();
    const char *path = at_root("cut.tar");
    int passed = 0, cuts = 0, flips = 0;
    tar.size = 0;
    tar_pax(&tar, "path", "a/long name/000000.bmp");
    add_photo(0, 1);
    add_photo(1, 0);
    const size_t size = tar.size;
    tar_end(&tar);
    put_tar("cut.tar");
    mirt_dataset *dataset = mirt_tar_dataset(path, &desc);
    desc.label_mode = MIRT_LABELS_NONE;
    ok(!dataset && strstr(mirt_last_error(), "\"a/long name/000000\" has no label") != NULL,
       "a pax header names one member only: %s", dataset ? "it opens" : mirt_last_error());
    mirt_dataset_destroy(dataset);
    for (size_t cut = 0; cut <= size; cut += cut % 512 == 0 ? 1 : cut % 512 == 1 ? 510 : 1) {
        image_write_file(path, tar.data, cut);
        passed += !fails(path, &desc, MIRT_E_FORMAT, "cut.tar: the archive");
        cuts++;
    }
    ok(!passed, "%d archives that are cut short: %d pass", cuts, passed);
    passed = 0;
    for (size_t at = 0; at < size; at += 1 + at % 3) {
        const size_t block = at / 512 * 512;
        if (memcmp(tar.data + block + 257, "ustar", 5) != 0) continue;
        tar.data[at] ^= 0x15;
        put_tar("cut.tar");
        dataset = mirt_tar_dataset(path, &desc);
        passed += dataset != NULL || !strstr(mirt_last_error(), at < 512 ? "no header" : "damaged header");
        mirt_dataset_destroy(dataset);
        tar.data[at] ^= 0x15;
        flips++;
    }
    ok(!passed && flips > 900, "%d headers with one byte changed: %d pass", flips, passed);
}

/* Headers that are whole, but lie. */
static void test_lies(void) {
    static const struct {
        const char *key, *value, *words;
    } pax[] = {{"size", "99999999999999999999", "not a number"}, {"size", "9223372036854775807", "not a number"},
               {"size", "", "not a number"}, {"size", "1e3", "not a number"}, {"size", "4096", "ends inside"},
               {"size", "922337203685477579", "ends inside"}, {"GNU.sparse.major", "1", "sparse"}};
    static const char *const records[] = {"9 path=x\n", "11 path=ab\n", "path=x\n", "99999999999999999999 path=x\n",
                                          "0 path=x\n", "3 \n", "1\n", " 9 path=x\n", "10 path=x\nx"};
    mirt_image_directory_desc desc = small_desc();
    const char *path = at_root("lie.tar");
    unsigned char bytes[IMAGE_MOST];
    int wrong = 0;
    desc.label_mode = MIRT_LABELS_NONE;
    for (int i = 0; i < MIRT__COUNT(pax); i++) {
        tar.size = 0;
        tar_pax(&tar, pax[i].key, pax[i].value);
        add_photo(0, -1);
        tar_end(&tar);
        put_tar("lie.tar");
        wrong += !fails(path, &desc, MIRT_E_FORMAT, pax[i].words);
    }
    ok(!wrong, "numbers in pax headers: %d pass", wrong);
    wrong = 0;
    for (int i = 0; i < MIRT__COUNT(records); i++) {
        tar.size = 0;
        tar_add(&tar, "x", records[i], strlen(records[i]), 'x');
        add_photo(0, -1);
        tar_end(&tar);
        put_tar("lie.tar");
        if (i < 2) {
            mirt_dataset *dataset = mirt_tar_dataset(path, &desc);
            wrong += dataset || mirt_last_status() != MIRT_E_NOT_FOUND; /* "x" and "ab" are no images */
            mirt_dataset_destroy(dataset);
        } else {
            wrong += !fails(path, &desc, MIRT_E_FORMAT, "damaged pax header");
        }
    }
    ok(!wrong, "damaged records of pax headers: %d pass", wrong);
    /* Sizes in base 256: of the member, below zero, beyond 63 bits. */
    static const unsigned char base256[][12] = {{0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                                                {0xFF, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
                                                {0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0},
                                                {0x80, 0, 0, 0, 127, 255, 255, 255, 255, 255, 255, 255}};
    wrong = 0;
    for (int i = 0; i < MIRT__COUNT(base256); i++) {
        const size_t size = photo(0, bytes);
        tar.size = 0;
        tar_add(&tar, "0.bmp", bytes, size, '0');
        memcpy(tar.data + 124, base256[i], 12);
        if (i == 0) tar.data[134] = (unsigned char)(size >> 8), tar.data[135] = (unsigned char)size;
        tar_seal(tar.data);
        tar_end(&tar);
        put_tar("lie.tar");
        mirt_dataset *dataset = mirt_tar_dataset(path, &desc);
        wrong += (dataset != NULL) != (i == 0);
        mirt_dataset_destroy(dataset);
    }
    ok(!wrong, "sizes in base 256: %d are wrong", wrong);
    tar.size = 0;
    tar_add(&tar, "0.bmp", "", 0, 'S');
    tar_end(&tar);
    put_tar("lie.tar");
    ok(fails(path, &desc, MIRT_E_FORMAT, "sparse"), "a sparse file");
    memset(tar.data, 'x', 600);
    memcpy(tar.data, "\x1F\x8B", 2);
    image_write_file(path, tar.data, 600);
    ok(fails(path, &desc, MIRT_E_FORMAT, "gunzip"), "a compressed archive");
}

/* Whether the archive's only members are photographs of these numbers, in their whole length. */
static bool has_photos(const int *numbers, int count) {
    mirt_image_directory_desc desc = small_desc();
    unsigned char bytes[IMAGE_MOST];
    desc.label_mode = MIRT_LABELS_NONE;
    tar_end(&tar);
    put_tar("strange.tar");
    mirt_dataset *dataset = mirt_tar_dataset(at_root("strange.tar"), &desc);
    bool good = mirt_dataset_size(dataset) == count;
    for (int i = 0; good && i < count; i++) {
        const mirt__image_file *file = &mirt__images_of(dataset)->list.file[i];
        const size_t size = photo(numbers[i], bytes);
        good = file->size == size && memcmp(tar.data + file->offset, bytes, size) == 0;
    }
    if (!good) printf("# %s\n", dataset ? "other photographs" : mirt_last_error());
    mirt_dataset_destroy(dataset);
    return good;
}

/* What some programs write, and others do not. */
static void test_strange(void) {
    static const int numbers[] = {3, 4};
    unsigned char bytes[IMAGE_MOST];
    char text[16];
    size_t size = photo(3, bytes);
    int sum = 0;
    tar.size = 0;
    tar_add(&tar, "\xfc.bmp", bytes, size, '0');
    memset(tar.data + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (signed char)tar.data[i];
    snprintf((char *)tar.data + 148, 8, "%06o", (unsigned)sum);
    ok(has_photos(numbers, 1), "a checksum of signed bytes");
    tar.size = 0;
    tar_header(&tar, "link.bmp", 5000, '1');
    add_photo(3, -1);
    ok(has_photos(numbers, 1), "the size of what a link names is none of its own");
    snprintf(text, sizeof text, "%d", (int)size);
    tar.size = 0;
    tar_pax(&tar, "size", text);
    tar_header(&tar, "000003.bmp", 0, '0');
    memset(tar.data + tar.size, 0, 512);
    memcpy(tar.data + tar.size, bytes, size);
    tar.size += 512;
    add_photo(4, -1);
    ok(size <= 512 && size != photo(4, bytes) && has_photos(numbers, 2), "a size in a pax header is of one member");
}

/* Archives that change after they were opened, and images that cannot be decoded. */
static void test_changed(void) {
    mirt_image_directory_desc desc = small_desc();
    const char *path = at_root("later.tar");
    mirt__batch batch;
    tar.size = 0;
    for (int i = 0; i < 3; i++) add_photo(i, 0);
    const size_t size = tar.size;
    tar_text(&tar, "3.jpg", "this is no photograph");
    tar_text(&tar, "3.cls", "0");
    tar_end(&tar);
    put_tar("later.tar");
    mirt_dataset *dataset = mirt_tar_dataset(path, &desc);
    mirt_status status = dataset ? mirt__dataset_begin(dataset, 0, 0) : mirt_last_status();
    for (int i = 0; i < 4 && status == MIRT_OK; i++) status = mirt__dataset_next(dataset, &batch);
    ok(status == MIRT_E_FORMAT && strstr(mirt_last_error(), "later.tar/3.jpg"), "%s", mirt_last_error());
    mirt_dataset_destroy(dataset);
    int64_t images = 0, corrupt = 0;
    status = mirt_verify_images(path, NULL, NULL, NULL, &images, &corrupt);
    ok(status == MIRT_OK && images == 4 && corrupt == 1, "verifying an archive finds it: %s", mirt_last_error());
    desc.corrupt = MIRT_CORRUPT_SKIP;
    dataset = mirt_tar_dataset(path, &desc);
    int rows = 0;
    bool good = dataset && mirt__dataset_begin(dataset, 0, 0) == MIRT_OK;
    while (good && mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows) rows++;
    ok(rows == 3 && mirt_corrupt_images(dataset, NULL, NULL) == 1, "it may be left out");
    mirt_dataset *mixed = mirt_mix_up(mirt_one_hot_labels(mirt_tar_dataset(path, &desc), 2), 1);
    int lost = 0;
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        int left = 0;
        if (mixed && mirt__dataset_begin(mixed, 0, epoch) == MIRT_OK)
            while (mirt__dataset_next(mixed, &batch) == MIRT_OK && batch.rows) left++;
        lost += left != 3;
    }
    ok(!lost, "what would be mixed with it stays as it is: %d of 20 epochs lack samples", lost);
    mirt_dataset_destroy(mixed);
    if (truncate(path, (off_t)size - 512 * 3) != 0) printf("# %s stays as long\n", path);
    good = dataset && mirt__dataset_begin(dataset, 0, 1) == MIRT_OK;
    for (rows = 0; good && mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows;) rows++;
    ok(rows == 2 && mirt_corrupt_images(dataset, NULL, NULL) == 2, "so is what the archive no longer has");
    mirt_dataset_destroy(dataset);
}

int main(void) {
    mirt_decode_desc desc;
    memset(&desc, 0, sizeof desc);
    if (mirt__decoder_missing(&desc)) {
        skip("%s", mirt_last_error());
        return done_testing();
    }
    start_tree("tar");
    test_golden("ustar", golden_ustar, golden_ustar_samples, MIRT__COUNT(golden_ustar_samples));
    test_golden("pax", golden_pax, golden_pax_samples, MIRT__COUNT(golden_pax_samples));
    test_golden("GNU", golden_gnu, golden_gnu_samples, MIRT__COUNT(golden_gnu_samples));
    test_samples_refused();
    test_damage();
    test_lies();
    test_strange();
    test_changed();
    remove_tree();
    start_tree("shards");
    put_shards("s", counts, SHARDS);
    test_names();
    test_pixels();
    test_orders();
    test_stages();
    test_parts();
    test_split();
    test_both_parts();
    remove_tree();
    return done_testing();
}
