/* Arrays of the caller: whole data sets, single elements, one-hot labels. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "data_util.h"

/* A read that has to fail with this status and these words, and leave nothing. */
static void not_read(mirt_status status, const mirt_data *out, mirt_status expected, const char *part) {
    mirt_data empty;
    memset(&empty, 0, sizeof empty);
    ok(status == expected && says(expected, part) && (!out || memcmp(out, &empty, sizeof empty) == 0), "refused: %s",
       status == MIRT_OK ? "(it was not)" : mirt_last_error());
    if (!strstr(mirt_last_error(), part)) printf("# expected: %s\n", part);
}

static void test_whole(void) {
    static unsigned char plain[N * 144 + 16], packed[N * 144 + 4096];
    const mirt_shape xs = MIRT_SHAPE(N, 12, 12, 1), ys = MIRT_SHAPE(N);
    mirt_data data;
    for (int batched = 0; batched < 2; batched++) {
        mirt_dataset *d = mirt_idx(packed_path, labels_path);
        if (batched) d = mirt_prefetch(mirt_batch(d, 64), 2);
        int wrong = mirt_dataset_arrays(d, &data) != MIRT_OK || !mirt__shape_equal(&data.x[0].shape, &xs) ||
                    data.x[0].dtype != MIRT_UINT8 || !mirt__shape_equal(&data.y[0].shape, &ys) ||
                    data.y[0].dtype != MIRT_UINT8 || data.x[1].data || data.weights.data;
        for (int i = 0; !wrong && i < N; i++) {
            wrong += ((const unsigned char *)data.y[0].data)[i] != i % 10;
            for (int k = 0; k < 144; k++)
                wrong += ((const unsigned char *)data.x[0].data)[i * 144 + k] != six_pixel(i, k / 12, k % 12);
        }
        ok(!wrong, "all samples of .gz files in arrays%s", batched ? ", from batches" : "");
        mirt_data_free(&data);
        ok(!data.x[0].data && !data.y[0].data && data.x[0].shape.rank == 0, "which are empty when freed");
        mirt_data_free(&data);
        mirt_dataset_destroy(d);
    }
    mirt_dataset *d = mirt_take(mirt_shuffle(mirt_idx(images_path, NULL), 9), 7),
                 *kept = mirt_cache(mirt_idx(images_path, labels_path));
    ok(mirt_dataset_arrays(d, &data) == MIRT_OK && data.x[0].shape.dim[0] == 7 && !data.y[0].data,
       "a part of a stream, without labels");
    mirt_data_free(&data);
    mirt_dataset_destroy(d);

    size_t size = make_idx(plain, N, false), n = make_stored(packed, plain, size, 1000);
    packed[n - 8] ^= 1;
    d = mirt_idx(write_file("crc.gz", packed, n), NULL);
    not_read(mirt_dataset_arrays(d, &data), &data, MIRT_E_FORMAT, "crc.gz");
    mirt_dataset_destroy(d);
    d = mirt_repeat(mirt_arrays(mirt_make_array(plain, MIRT_UINT8, MIRT_SHAPE(2, 3)),
                                mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(2))),
                    0);
    not_read(mirt_dataset_arrays(d, &data), &data, MIRT_E_INVALID,
             "mirt_dataset_arrays: the data set is endless or of unknown length; limit it with mirt_take");
    ok(mirt_dataset_read(d, 1001, NULL, &data) == MIRT_OK && memcmp(data.x[0].data, plain + 3, 3) == 0,
       "though it has a sample 1001");
    mirt_data_free(&data);
    not_read(mirt_dataset_read(d, -1, NULL, &data), &data, MIRT_E_INVALID, "mirt_dataset_read: there is no sample -1");
    mirt_dataset_destroy(d);
    not_read(mirt_dataset_arrays(NULL, &data), &data, MIRT_E_INVALID, "mirt_dataset_arrays: no data set");
    not_read(mirt_dataset_arrays(kept, NULL), NULL, MIRT_E_INVALID, "mirt_dataset_arrays: out is NULL");
    not_read(mirt_dataset_read(NULL, 0, NULL, &data), &data, MIRT_E_INVALID, "mirt_dataset_read: no data set");
    not_read(mirt_dataset_read(kept, 0, NULL, NULL), NULL, MIRT_E_INVALID,
             "mirt_dataset_read: out is NULL");
    const mirt_read_desc past = {-1, 0};
    not_read(mirt_dataset_read(kept, 0, &past, &data), &data, MIRT_E_INVALID,
             "mirt_dataset_read: epoch -1 is negative");
    not_read(mirt_dataset_read(kept, N, NULL, &data), &data, MIRT_E_INVALID,
             "mirt_dataset_read: there is no sample 250; the data set has those from 0 to 249");
    kept = mirt_batch(kept, 100);
    not_read(mirt_dataset_read(kept, 3, NULL, &data), &data, MIRT_E_INVALID,
             "mirt_dataset_read: there is no batch 3; the data set has those from 0 to 2");
    not_read(mirt_dataset_read(kept, INT64_MAX, NULL, &data), &data, MIRT_E_INVALID,
             "there is no batch 9223372036854775807");
    ok(mirt_dataset_read(kept, 2, NULL, &data) == MIRT_OK && data.x[0].shape.dim[0] == 50 &&
           ((const unsigned char *)data.y[0].data)[49] == 9,
       "the last batch is smaller");
    mirt_data_free(&data);
    mirt_data_free(NULL);
    mirt_array_free(NULL);
    mirt_dataset_destroy(kept);
}

static int fills(void *const *out, int64_t index, void *user) {
    const int *count = (const int *)user;
    if (index >= *count) return MIRT_END_OF_DATA;
    *(float *)out[0] = (float)index;
    return 0;
}

/* Generators end where they say, or before; samples may have as many dimensions as an array without the samples'. */
static void test_generated(void) {
    int count = 5;
    mirt_generator_desc desc = {.fn = fills, .user = &count, .num_x = 1};
    mirt_data data;
    mirt_dataset *d = mirt_dataset_from_generator(&desc);
    not_read(mirt_dataset_arrays(d, &data), &data, MIRT_E_INVALID, "endless or of unknown length");
    d = mirt_batch(mirt_take(d, 8), 3);
    ok(mirt_dataset_arrays(d, &data) == MIRT_OK && data.x[0].shape.rank == 1 && data.x[0].shape.dim[0] == 5 &&
           ((const float *)data.x[0].data)[4] == 4,
       "a stream that ends before its limit: those samples that it has");
    mirt_data_free(&data);
    not_read(mirt_dataset_read(d, 2, NULL, &data), &data, MIRT_E_INVALID,
             "mirt_dataset_read: the data set ended before batch 2");
    count = 0;
    not_read(mirt_dataset_arrays(d, &data), &data, MIRT_E_INVALID, "mirt_dataset_arrays: the data set has no samples");
    mirt_dataset_destroy(d);
    count = 2;
    desc.samples = 2;
    desc.x[0].shape = MIRT_SHAPE(1, 1, 1, 1, 1, 1);
    d = mirt_dataset_from_generator(&desc);
    not_read(mirt_dataset_arrays(d, &data), &data, MIRT_E_SHAPE,
             "a sample of x has 6 dimensions; an array of samples would have more than 6");
    not_read(mirt_dataset_read(d, 0, NULL, &data), &data, MIRT_E_SHAPE, "a sample of x has 6 dimensions");
    mirt_dataset_destroy(d);
}

static mirt_dataset *photos(uint64_t seed) {
    mirt_augmentation list[2];
    const int count = mirt_parse_augmentation("flip,rotation:0.2", list, 2);
    mirt_dataset *d = mirt_cache(mirt_shuffle(mirt_drawn_photos(20, 8, 8, seed, MIRT_TRAIN), 20));
    return mirt_prefetch(mirt_batch(mirt_shuffle(mirt_augment(d, list, count), 20), 6), MIRT_AUTOTUNE);
}

/* Elements that are read are those that a loop gets, also where every stage depends on the epoch, and a loop is not
   disturbed. */
static void test_elements(void) {
    mirt_strategy_desc s;
    mirt_global_batch batch;
    mirt_data data[2][4], one;
    memset(&s, 0, sizeof s);
    s.devices = "1";
    s.threads = 1;
    s.seed = 77;
    s.silent = true;
    mirt_strategy *strategy = mirt_strategy_create(&s);
    mirt_dataset *read = photos(3), *loop = mirt_distribute(strategy, photos(3));
    for (int k = 7; k >= 0; k--) { /* backwards: nothing may depend on earlier reads */
        const mirt_read_desc desc = {k / 4, 77};
        if (!ok(mirt_dataset_read(read, k % 4, &desc, &data[k / 4][k % 4]) == MIRT_OK, "batch %d of epoch %d is read",
                k % 4, k / 4))
            return;
    }
    int wrong = 0, seen = 0, varied = memcmp(data[0][0].x[0].data, data[1][0].x[0].data, 6 * 192) != 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int k = 0; mirt_dataset_next(loop, &batch) == MIRT_OK && batch.rows > 0; k++, seen++) {
            const mirt_data *got = &data[epoch][k % 4];
            wrong += got->x[0].shape.dim[0] != batch.rows ||
                     memcmp(got->x[0].data, batch.field[0], (size_t)batch.rows * 192) != 0 ||
                     memcmp(got->y[0].data, batch.field[1], (size_t)batch.rows * sizeof(float)) != 0;
            if (epoch + k == 0) {
                not_read(mirt_dataset_read(loop, 0, NULL, &one), &one, MIRT_E_STATE,
                         "mirt_dataset_read: mirt_dataset_next is in the middle of an epoch");
                not_read(mirt_dataset_arrays(loop, &one), &one, MIRT_E_STATE,
                         "mirt_dataset_arrays: mirt_dataset_next is in the middle of an epoch");
                ok(mirt_save_grid(in_folder("sheet.png"), loop, 1, 1) == MIRT_E_STATE, "%s", mirt_last_error());
            }
        }
        const mirt_read_desc desc = {epoch, 77};
        wrong += mirt_dataset_read(loop, 3, &desc, &one) != MIRT_OK || one.x[0].shape.dim[0] != 2 ||
                 memcmp(one.x[0].data, data[epoch][3].x[0].data, 2 * 192) != 0;
        mirt_data_free(&one);
    }
    ok(wrong == 0 && seen == 8 && varied, "and are those of a loop that reads nothing (%d of %d differ)", wrong, seen);
    for (int k = 0; k < 8; k++) mirt_data_free(&data[k / 4][k % 4]);
    mirt_dataset_destroy(read);
    mirt_dataset_destroy(loop);
    mirt_strategy_destroy(strategy);
}

static void test_categorical(void) {
    static const unsigned char bytes[3] = {2, 0, 1};
    static const int32_t ints[3] = {4, -1, 0};
    static const float floats[4] = {1, 0, 3, 1.5f};
    const mirt_array three = mirt_make_array(bytes, MIRT_UINT8, MIRT_SHAPE(3));
    mirt_array out;
    for (int k = 0; k < 2; k++) {
        const mirt_shape shape = MIRT_SHAPE(3, 3 + k);
        int wrong = mirt_to_categorical(three, k ? 4 : 0, &out) != MIRT_OK || out.dtype != MIRT_FLOAT32 ||
                    !mirt__shape_equal(&out.shape, &shape);
        for (int i = 0; !wrong && i < 3 * (3 + k); i++)
            wrong = ((const float *)out.data)[i] != (float)(i % (3 + k) == bytes[i / (3 + k)]);
        ok(!wrong, "one-hot labels of %s", k ? "four classes" : "as many classes as occur");
        mirt_array_free(&out);
    }
    ok(mirt_to_categorical(mirt_make_array(floats, MIRT_FLOAT32, MIRT_SHAPE(3, 1)), 5, &out) == MIRT_OK &&
           ((const float *)out.data)[13] == 1,
       "of floats in a column");
    mirt_array_free(&out);
    ok(!out.data, "empty when freed");
#define NOT_CATEGORICAL(labels, classes, status, part)                                                                 \
    ok(mirt_to_categorical(labels, classes, &out) == status && !out.data && says(status, part), "refused: %s",         \
       mirt_last_error())
    NOT_CATEGORICAL(three, 2, MIRT_E_INVALID, "label 2 of sample 0 is not a class from 0 to 1");
    NOT_CATEGORICAL(mirt_make_array(ints, MIRT_INT32, MIRT_SHAPE(3)), 0, MIRT_E_INVALID, "label -1 of sample 1");
    NOT_CATEGORICAL(mirt_make_array(floats, MIRT_FLOAT32, MIRT_SHAPE(4)), 9, MIRT_E_INVALID, "label 1.5 of sample 3");
    NOT_CATEGORICAL(three, -1, MIRT_E_INVALID, "-1 classes");
    NOT_CATEGORICAL(mirt_make_array(bytes, MIRT_UINT8, MIRT_SHAPE(1, 3)), 4, MIRT_E_SHAPE,
                    "labels must be one per sample, (n) or (n, 1), not (1, 3)");
    NOT_CATEGORICAL(mirt_make_array(bytes, MIRT_UINT8, MIRT_SHAPE(0)), 4, MIRT_E_SHAPE,
                    "labels must be one per sample");
    NOT_CATEGORICAL(mirt_make_array(bytes, (mirt_dtype)9, MIRT_SHAPE(3)), 4, MIRT_E_INVALID, "unknown dtype 9");
    NOT_CATEGORICAL(three, INT64_MAX, MIRT_E_NOMEM, "memory");
    mirt_array odd = three;
    for (int k = 0; k < 3; k++) {
        odd.shape.rank = k == 0 ? -1 : k == 1 ? MIRT_MAX_RANK + 1 : INT_MAX;
        NOT_CATEGORICAL(odd, 3, MIRT_E_SHAPE, "labels must be one per sample");
    }
    ok(mirt_to_categorical(mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(3)), 4, &out) != MIRT_OK &&
           mirt_to_categorical(three, 4, NULL) != MIRT_OK,
       "nothing given");
}

/* One call after another that allocates. False: a call that failed left arrays. */
static bool read_things(mirt_dataset *d, mirt_status *status) {
    static const mirt_data empty;
    mirt_data whole = empty, batch;
    mirt_array rows = empty.weights;
    bool good = true;
    *status = mirt_dataset_read(d, 3, NULL, &batch);
    if (*status != MIRT_OK) good = !batch.x[0].data && !batch.y[0].data;
    else if ((*status = mirt_dataset_arrays(d, &whole)) != MIRT_OK) good = !whole.x[0].data && !whole.y[0].data;
    else if ((*status = mirt_to_categorical(whole.y[0], 10, &rows)) != MIRT_OK) good = !rows.data;
    mirt_data_free(&batch);
    mirt_data_free(&whole);
    mirt_array_free(&rows);
    return good;
}

/* Each allocation fails once; the same calls and an epoch follow. */
static void test_read_memory(void) {
    for (int kind = 0; kind < 2; kind++) {
        long live = live_blocks, failed = 0, badly = 0;
        for (bool done = false; !done && !badly;) {
            mirt_status status;
            int64_t rows;
            fails = 0;
            mirt_dataset *d = mirt_batch(mirt_shuffle(mirt_cache(mirt_idx(packed_path, labels_path)), 5), 16);
            d = kind ? mirt_accumulate(d, 2) : mirt_prefetch(d, 2);
            allocations = 0;
            fails = ++failed;
            badly += !read_things(d, &status);
            fails = 0;
            done = status == MIRT_OK;
            badly += !done && !says(MIRT_E_NOMEM, "out of memory");
            run_epoch(d, 0, 0, &rows, &status);
            badly += status != MIRT_OK || rows != N;
            badly += !read_things(d, &status) || status != MIRT_OK;
            mirt_dataset_destroy(d);
            badly += live_blocks != live;
        }
        ok(badly == 0 && failed > 6,
           "out of memory at each of %ld allocations: said so, nothing lost, and then it works", failed - 1);
    }
}

static void test_mnist_arrays(void) {
    const char *directory = mnist_directory();
    for (int split = 0; directory && split < 2; split++) {
        mirt_data data;
        mirt_dataset *d = mirt_mnist(directory, split ? MIRT_TEST : MIRT_TRAIN);
        const int64_t n = split ? 10000 : 60000;
        const mirt_shape x = MIRT_SHAPE(n, 28, 28, 1), y = MIRT_SHAPE(n);
        uint64_t sum = 0;
        if (!d && mirt_last_status() == MIRT_E_NOT_FOUND) {
            skip("MNIST is not in %s (MIRT_MNIST_DIR)", directory);
            continue;
        }
        const mirt_status status = mirt_dataset_arrays(d, &data);
        for (int64_t i = 0; status == MIRT_OK && i < n * 784; i++) sum += ((const unsigned char *)data.x[0].data)[i];
        /* The mean pixel of the training set is 33.3184. */
        ok(status == MIRT_OK && mirt__shape_equal(&data.x[0].shape, &x) && mirt__shape_equal(&data.y[0].shape, &y) &&
               sum == (split ? MNIST_INK : 1567298545u),
           "MNIST: %lld images and labels in arrays (%llu)", (long long)n, (unsigned long long)sum);
        mirt_data_free(&data);
        mirt_dataset_destroy(d);
    }
}

int main(void) {
    make_folder();
    test_whole();
    test_generated();
    test_elements();
    test_categorical();
    test_read_memory();
    test_mnist_arrays();
    static const char *const names[] = {"crc.gz"};
    remove_folder(names, MIRT__COUNT(names));
    ok(live_blocks == 0, "no block is left (%ld)", live_blocks);
    return done_testing();
}
