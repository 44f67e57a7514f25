/* The data room: IDX plain and packed, bad input, order, batches, prefetch, drawn digits, memory. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "data_util.h"

#define DIGITS_HASH 0x67267B964E3333A4u

/* Six images of 12 x 12 (make_idx), and labels 0, 15, 30, ... in Fibonacci numbers of repetitions, packed by zlib. */
static const unsigned char packed_dynamic[] = {
    31, 139, 8, 8, 0, 0, 0, 0, 2, 3, 115, 105, 120, 0, 77, 146, 193, 109, 5, 49, 8, 68, 71, 138,
    20, 229, 144, 163, 139, 160, 8, 138, 160, 8, 138, 160, 8, 23, 225, 34, 40, 194, 101, 101, 134, 77, 180, 209,
    231, 91, 90, 108, 224, 49, 0, 124, 125, 0, 248, 228, 255, 123, 254, 203, 16, 137, 125, 112, 177, 22, 178, 97,
    134, 186, 160, 119, 163, 82, 103, 35, 55, 206, 133, 243, 226, 68, 227, 208, 75, 223, 69, 234, 161, 3, 109, 60,
    141, 94, 224, 50, 200, 54, 191, 27, 55, 129, 194, 65, 24, 122, 203, 28, 181, 145, 6, 232, 188, 87, 193, 85,
    200, 69, 140, 62, 202, 238, 186, 19, 8, 204, 145, 138, 125, 137, 192, 103, 215, 84, 194, 242, 210, 27, 34, 34,
    37, 189, 193, 91, 108, 165, 201, 65, 31, 46, 35, 39, 239, 74, 65, 142, 184, 98, 89, 108, 67, 33, 59, 177,
    104, 87, 44, 75, 200, 60, 107, 170, 152, 42, 30, 245, 77, 10, 22, 56, 251, 1, 105, 61, 97, 154, 151, 40,
    143, 146, 171, 68, 51, 150, 68, 22, 146, 137, 239, 232, 101, 26, 10, 178, 207, 82, 82, 159, 166, 137, 19, 240,
    82, 80, 242, 55, 44, 7, 29, 82, 215, 113, 143, 108, 88, 88, 78, 39, 108, 250, 166, 48, 17, 254, 104, 22,
    178, 1, 9, 41, 217, 236, 233, 37, 90, 74, 158, 83, 130, 33, 133, 205, 112, 94, 108, 63, 216, 244, 30, 141,
    44, 6, 157, 93, 145, 11, 139, 222, 139, 214, 0, 138, 223, 195, 194, 145, 113, 76, 84, 160, 100, 38, 150, 88,
    66, 142, 213, 173, 224, 124, 134, 76, 93, 148, 221, 116, 55, 32, 191, 75, 132, 151, 72, 175, 122, 169, 196, 98,
    101, 132, 139, 136, 50, 209, 235, 218, 157, 210, 131, 24, 244, 43, 174, 69, 78, 222, 165, 130, 254, 173, 207, 230,
    152, 80, 172, 73, 107, 177, 64, 200, 51, 99, 85, 209, 208, 31, 105, 56, 6, 22, 216, 245, 110, 51, 70, 250,
    63, 34, 237, 113, 78, 137, 195, 88, 205, 211, 37, 211, 100, 210, 238, 80, 144, 210, 34, 176, 250, 52, 77, 156,
    217, 233, 86, 199, 207, 250, 108, 142, 204, 239, 191, 133, 30, 22, 150, 211, 137, 53, 125, 83, 24, 119, 123, 52,
    115, 217, 15, 23, 103, 102, 121, 112, 3, 0, 0,
};
static const unsigned char packed_fixed[] = {
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 99, 96, 224, 96, 102, 96, 96, 96, 3, 98, 30, 48, 22, 209,
    96, 8, 72, 97, 232, 89, 192, 112, 130, 65, 68, 132, 33, 101, 11, 131, 134, 6, 67, 197, 9, 6, 160, 104,
    15, 67, 69, 10, 136, 220, 194, 144, 210, 195, 176, 224, 4, 131, 13, 80, 98, 65, 192, 22, 134, 5, 64, 81,
    160, 216, 9, 134, 20, 144, 66, 27, 6, 134, 45, 26, 64, 82, 3, 40, 202, 192, 112, 2, 168, 73, 163, 7,
    200, 223, 194, 112, 34, 133, 129, 161, 130, 97, 1, 67, 128, 6, 195, 150, 30, 16, 178, 97, 168, 232, 97, 72,
    209, 96, 96, 0, 145, 39, 78, 128, 52, 87, 84, 48, 164, 136, 0, 157, 177, 101, 1, 200, 116, 27, 144, 28,
    200, 33, 12, 26, 54, 12, 41, 32, 189, 8, 23, 49, 0, 149, 157, 208, 0, 89, 161, 145, 114, 2, 40, 26,
    0, 114, 17, 208, 149, 64, 209, 0, 160, 44, 67, 15, 200, 152, 20, 176, 211, 193, 238, 210, 0, 186, 19, 40,
    87, 1, 210, 100, 195, 16, 112, 2, 228, 22, 17, 160, 55, 64, 90, 122, 82, 24, 68, 128, 232, 4, 200, 45,
    34, 32, 39, 3, 201, 10, 176, 45, 26, 32, 27, 23, 128, 252, 13, 116, 5, 208, 130, 5, 61, 16, 135, 108,
    1, 41, 1, 26, 131, 112, 81, 202, 2, 144, 225, 32, 43, 182, 0, 245, 2, 93, 164, 17, 0, 10, 38, 160,
    58, 160, 40, 208, 24, 96, 128, 244, 44, 16, 1, 25, 106, 3, 246, 52, 208, 57, 1, 12, 54, 21, 32, 77,
    41, 64, 8, 118, 203, 2, 134, 45, 1, 160, 208, 181, 97, 56, 177, 0, 132, 192, 110, 1, 90, 7, 34, 25,
    52, 192, 254, 6, 6, 76, 64, 128, 13, 36, 204, 2, 64, 8, 236, 144, 0, 80, 72, 110, 1, 250, 9, 225,
    34, 17, 144, 225, 41, 96, 43, 128, 90, 42, 24, 122, 128, 218, 129, 18, 61, 54, 11, 24, 122, 128, 162, 11,
    64, 81, 22, 0, 118, 58, 208, 87, 64, 119, 49, 136, 0, 69, 79, 48, 108, 1, 69, 64, 5, 144, 15, 118,
    11, 48, 202, 128, 209, 4, 12, 129, 10, 16, 210, 0, 185, 37, 64, 4, 228, 228, 0, 145, 45, 91, 64, 154,
    83, 32, 145, 12, 12, 23, 144, 233, 26, 32, 57, 176, 67, 160, 137, 136, 1, 225, 34, 144, 170, 45, 34, 32,
    43, 68, 128, 54, 51, 4, 216, 128, 92, 4, 12, 38, 160, 168, 13, 40, 237, 84, 128, 20, 4, 128, 157, 126,
    2, 228, 46, 17, 160, 59, 129, 114, 41, 32, 77, 72, 201, 167, 7, 24, 77, 12, 21, 64, 59, 129, 104, 11,
    200, 45, 12, 32, 39, 131, 227, 24, 100, 11, 40, 210, 33, 65, 3, 140, 6, 160, 5, 61, 21, 136, 212, 204,
    0, 14, 122, 152, 139, 64, 233, 56, 5, 108, 197, 2, 160, 94, 80, 124, 218, 128, 130, 9, 108, 18, 40, 237,
    0, 3, 164, 2, 148, 16, 128, 182, 131, 61, 13, 116, 14, 56, 77, 111, 1, 249, 24, 146, 124, 122, 128, 81,
    102, 115, 2, 41, 65, 131, 221, 2, 180, 14, 68, 50, 136, 128, 253, 13, 12, 24, 27, 27, 13, 72, 152, 217,
    128, 16, 0, 23, 103, 102, 121, 112, 3, 0, 0,
};
static const unsigned char packed_long_words[] = {
    31,  139, 8,   0,   0,   0,   0,   0,   2,   3,   5,   193, 65,  145, 28,  65,  16,  4,   193, 149, 233, 163, 159,
    24,  28,  131, 101, 48,  12,  134, 65,  51,  104, 6,   197, 160, 24,  36,  131, 100, 16,  12,  130, 133, 208, 200,
    253, 243, 249, 243, 235, 243, 249, 253, 239, 243, 247, 231, 231, 251, 253, 62,  207, 243, 60,  239, 251, 190, 239,
    251, 190, 231, 156, 115, 206, 57,  231, 156, 115, 238, 189, 247, 222, 123, 239, 189, 247, 222, 123, 239, 189, 247,
    206, 204, 204, 204, 204, 204, 204, 204, 204, 204, 204, 204, 204, 204, 204, 204, 204, 236, 238, 238, 238, 238, 238,
    238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 238, 110, 146,
    36,  73,  146, 36,  73,  146, 36,  73,  146, 36,  73,  146, 36,  73,  146, 36,  73,  146, 36,  73,  146, 36,  73,
    146, 36,  73,  146, 36,  73,  146, 36,  73,  218, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182,
    109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219,
    182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 219, 182, 109, 1,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   80,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,
    85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,
    85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,
    85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,  85,
    85,  85,  85,  85,  85,  85,  85,  85,  245, 63,  20,  213, 8,   97,  226, 3,   0,   0,
};

/* A constructor that has to fail with this status and these words. */
static void refused(mirt_dataset *dataset, mirt_status status, const char *part) {
    ok(dataset == NULL && says(status, part), "refused: %s", dataset ? "(it was not)" : mirt_last_error());
    if (dataset && !strstr(mirt_last_error(), part)) printf("# expected: %s\n", part);
    mirt_dataset_destroy(dataset);
}

/* The samples of an epoch in order: their indices into `order`; false if one is not what make_idx wrote. */
static bool read_order(mirt_dataset *dataset, uint64_t seed, int64_t epoch, int *order, int n) {
    int count = 0;
    if (mirt__dataset_begin(dataset, seed, epoch) != MIRT_OK) return false;
    for (;;) {
        mirt__batch batch;
        if (mirt__dataset_next(dataset, &batch) != MIRT_OK) return false;
        if (batch.rows == 0) return count == n;
        for (int64_t k = 0; k < batch.rows; k++) {
            int i = (int)batch.index[k];
            const unsigned char *x = (const unsigned char *)batch.field[0] + k * 144;
            if (count == n || i < 0 || i >= n || ((const unsigned char *)batch.field[1])[k] != i % 10) return false;
            for (int p = 0; p < 144; p++) {
                if (x[p] != six_pixel(i, p / 12, p % 12)) return false;
            }
            order[count++] = i;
        }
    }
}

static bool ascending(const int *order, int n) {
    for (int i = 0; i < n; i++) {
        if (order[i] != i) return false;
    }
    return true;
}

static bool each_once(const int *order, int n) {
    int seen[1000] = {0};
    for (int i = 0; i < n; i++) seen[order[i]]++;
    for (int i = 0; i < n; i++) {
        if (seen[i] != 1) return false;
    }
    return true;
}

static void test_idx(void) {
    static int order[N];
    mirt_dataset *d = mirt_idx(images_path, labels_path);
    ok(d && read_order(d, 1, 0, order, N) && ascending(order, N), "plain files, sample by sample");
    ok(d && read_order(d, 1, 1, order, N) && ascending(order, N), "and again");
    const mirt__data_spec *spec = mirt__dataset_spec(d);
    ok(spec->field[0].shape.rank == 3 && spec->field[0].shape.dim[0] == 12 && spec->field[0].shape.dim[2] == 1 &&
           spec->field[1].shape.rank == 0 && spec->field[0].dtype == MIRT_UINT8 && spec->batch == 0 &&
           mirt_dataset_size(d) == N,
       "shapes and size");
    mirt_dataset_destroy(d);

    d = mirt_idx(packed_path, labels_path);
    ok(d && read_order(d, 1, 0, order, N) && ascending(order, N), "gzip with stored blocks");
    mirt__batch batch;
    for (int i = 0; i < 7; i++) mirt__dataset_next(d, &batch);
    mirt__dataset_begin(d, 0, 0);
    for (int i = 0; i < 7; i++) mirt__dataset_next(d, &batch);
    ok(read_order(d, 1, 1, order, N) && ascending(order, N), "restarted in mid-epoch");
    mirt_dataset_destroy(d);

    d = mirt_cache(mirt_idx(packed_path, labels_path));
    ok(d && read_order(d, 1, 0, order, N) && ascending(order, N) && read_order(d, 1, 1, order, N) &&
           ascending(order, N),
       "cached");
    mirt_dataset_destroy(d);

    d = mirt_idx(images_path, NULL);
    ok(d && !mirt__dataset_spec(d)->num_y && mirt__dataset_begin(d, 0, 0) == MIRT_OK &&
           mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows == 1 && batch.field[1] == NULL, "images alone");
    mirt_dataset_destroy(d);
    ok(mirt_dataset_size(NULL) == 0, "no data set has no samples");
    mirt_dataset_destroy(NULL);
}

/* One epoch of a file of images alone: true if it opens and reads to the end. */
static bool file_is_good(const char *path, uint64_t *hash) {
    int64_t rows;
    mirt_status status;
    mirt_dataset *d = mirt_cache(mirt_idx(path, NULL));
    if (!d) return false;
    *hash = run_epoch(d, 0, 0, &rows, &status);
    mirt_dataset_destroy(d);
    return status == MIRT_OK;
}

static void test_inflate(void) {
    static unsigned char plain[6 * 144 + 16], packed[2048];
    size_t size = make_idx(plain, 6, false);
    uint64_t expected = 0, hash = 0;
    ok(file_is_good(write_file("six", plain, size), &expected), "six images, plain");
    ok(file_is_good(write_file("six.gz", packed_dynamic, sizeof packed_dynamic), &hash) && hash == expected,
       "dynamic code words, a file name in the header");
    ok(file_is_good(write_file("six.gz", packed_fixed, sizeof packed_fixed), &hash) && hash == expected,
       "fixed code words");
    ok(file_is_good(write_file("six.gz", packed, make_stored(packed, plain, size, 7)), &hash) && hash == expected,
       "stored in pieces of seven bytes");

    /* Labels alone, by way of images of one pixel: the header differs, so only through mirt_idx's labels. */
    unsigned char ones[16 + 1000];
    put_big(ones, 0x803);
    put_big(ones + 4, 986);
    put_big(ones + 8, 1);
    put_big(ones + 12, 1);
    memset(ones + 16, 9, 986);
    write_file("ones", ones, 16 + 986);
    mirt_dataset *d =
        mirt_cache(mirt_idx(in_folder("ones"), write_file("long.gz", packed_long_words, sizeof packed_long_words)));
    int a = 1, b = 1, at = 0, wrong = d == NULL || mirt__dataset_begin(d, 0, 0) != MIRT_OK;
    for (int k = 0; k < 14 && !wrong; k++) {
        for (int i = 0; i < a; i++, at++) {
            mirt__batch batch;
            wrong += mirt__dataset_next(d, &batch) != MIRT_OK || batch.rows != 1 ||
                     *(const unsigned char *)batch.field[1] != k * 15;
        }
        int c = a + b;
        a = b;
        b = c;
    }
    ok(!wrong && at == 986, "code words of up to 13 bits");
    mirt_dataset_destroy(d);

    int accepted = 0, silent = 0;
    for (size_t cut = 0; cut < sizeof packed_dynamic; cut++) {
        mirt__fail(MIRT_OK, "%s", "");
        accepted += file_is_good(write_file("cut.gz", packed_dynamic, cut), &hash);
        silent += !strstr(mirt_last_error(), "cut.gz");
    }
    ok(accepted == 0 && silent == 0, "every truncation of a gzip file is refused, with its name (%d, %d)", accepted,
       silent);
    for (size_t cut = 0; cut < sizeof packed_fixed; cut++)
        accepted += file_is_good(write_file("cut.gz", packed_fixed, cut), &hash);
    ok(accepted == 0, "with fixed code words too");
    for (size_t cut = 0; cut < size; cut++) accepted += file_is_good(write_file("cut", plain, cut), &hash);
    ok(accepted == 0, "every truncation of a plain file is refused");

    const size_t first = 10 + 4; /* after the header and the name */
    int harmless = 0, wrong_pixels = 0;
    memcpy(packed, packed_dynamic, sizeof packed_dynamic);
    for (size_t place = first; place < sizeof packed_dynamic; place++) {
        for (int bit = 0; bit < 8; bit++) {
            packed[place] ^= (unsigned char)(1 << bit);
            if (file_is_good(write_file("flip.gz", packed, sizeof packed_dynamic), &hash)) {
                harmless += hash == expected;
                wrong_pixels += hash != expected;
            }
            packed[place] ^= (unsigned char)(1 << bit);
        }
    }
    /* Three bits change nothing, for zlib neither: two after the last word, one of a word that is not used. */
    ok(wrong_pixels == 0 && harmless == 3, "every flipped bit that matters is noticed (%d, %d)", wrong_pixels,
       harmless);

    packed[sizeof packed_dynamic - 5] ^= 1;
    d = mirt_cache(mirt_idx(write_file("crc.gz", packed, sizeof packed_dynamic), NULL));
    ok(d && mirt__dataset_begin(d, 0, 0) == MIRT_E_FORMAT &&
           strstr(mirt_last_error(), "crc.gz: damaged gzip data at byte 419: the checksum is wrong"),
       "checksum: %s", mirt_last_error());
    mirt_dataset_destroy(d);
    packed[sizeof packed_dynamic - 5] ^= 1;
    packed[sizeof packed_dynamic] = 0;
    refused(mirt_idx(write_file("more.gz", packed, sizeof packed_dynamic + 1), NULL), MIRT_E_FORMAT,
            "damaged or truncated");
    memcpy(packed + sizeof packed_dynamic, packed_dynamic, sizeof packed_dynamic);
    d = mirt_cache(mirt_idx(write_file("twice.gz", packed, 2 * sizeof packed_dynamic), NULL));
    ok(d && mirt__dataset_begin(d, 0, 0) == MIRT_E_FORMAT && strstr(mirt_last_error(), "more data follow"),
       "two members: %s", mirt_last_error());
    mirt_dataset_destroy(d);

    /* A failure in mid-stream comes through batch and prefetch, in its words. */
    packed[sizeof packed_dynamic - 7] ^= 1;
    d = mirt_prefetch(mirt_batch(mirt_idx(write_file("crc.gz", packed, sizeof packed_dynamic), NULL), 4), 2);
    int64_t rows;
    mirt_status status;
    mirt__fail(MIRT_OK, "%s", "");
    if (d) run_epoch(d, 0, 0, &rows, &status);
    ok(d && status == MIRT_E_FORMAT && says(MIRT_E_FORMAT, "the checksum is wrong"),
       "an error in the prefetch thread arrives: %s", mirt_last_error());
    if (d) run_epoch(d, 0, 1, &rows, &status);
    ok(d && status == MIRT_E_FORMAT, "and again in the next epoch");
    mirt_dataset_destroy(d);
}

static void test_bad_files(void) {
    static unsigned char plain[N * 144 + 64];
    size_t size = make_idx(plain, N, false);
    refused(mirt_idx(in_folder("absent"), labels_path), MIRT_E_NOT_FOUND, "absent: cannot open: No such file");
    refused(mirt_idx(images_path, in_folder("absent")), MIRT_E_NOT_FOUND, "absent: cannot open");
    refused(mirt_idx(NULL, labels_path), MIRT_E_INVALID, "needs the path");
    refused(mirt_idx(folder, labels_path), MIRT_E_IO, "is a directory");
    refused(mirt_idx(labels_path, labels_path), MIRT_E_FORMAT,
            "labels at byte 0: expected the magic number 0x00000803 (unsigned bytes, 3 dimensions), got 0x00000801");
    refused(mirt_idx(images_path, images_path), MIRT_E_FORMAT,
            "expected the magic number 0x00000801 (unsigned bytes, 1 dimension), got 0x00000803");
    refused(mirt_idx(write_file("cut", plain, size - 1), NULL), MIRT_E_FORMAT,
            "cut is truncated: expected 36016 bytes, got 36015");
    refused(mirt_idx(write_file("cut", plain, 9), NULL), MIRT_E_FORMAT, "cut is truncated: expected 16 bytes, got 9");
    refused(mirt_idx(write_file("empty", plain, 0), NULL), MIRT_E_FORMAT,
            "empty is truncated: expected 4 bytes, got 0");
    refused(mirt_idx(write_file("long", plain, size + 3), NULL), MIRT_E_FORMAT,
            "long is too long: expected 36016 bytes, got 36019");
    put_big(plain + 4, 0);
    refused(mirt_idx(write_file("none", plain, 16), NULL), MIRT_E_INVALID, "none holds no samples");
    put_big(plain + 4, 1);
    put_big(plain + 12, 0);
    refused(mirt_idx(write_file("flat", plain, 16), NULL), MIRT_E_FORMAT, "flat at byte 12: a dimension of 0");
    for (int i = 4; i < 16; i += 4) put_big(plain + i, 0xFFFFFFFFu);
    refused(mirt_idx(write_file("huge", plain, 16), NULL), MIRT_E_FORMAT,
            "huge at byte 8: a dimension of 4294967295 makes the file too large");
    size = make_idx(plain, N - 1, true);
    refused(mirt_idx(images_path, write_file("fewer", plain, size)), MIRT_E_SHAPE, "250 images");
    ok(strstr(mirt_last_error(), "fewer has 249 labels") != NULL, "and names the labels");

    refused(
        mirt_mnist(in_folder("nowhere"), MIRT_TRAIN), MIRT_E_NOT_FOUND,
        "nowhere: found neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz; put MNIST's four files there");
    write_file("t10k-images-idx3-ubyte", plain, size);
    refused(mirt_mnist(folder, MIRT_TEST), MIRT_E_NOT_FOUND,
            "found neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz");
    refused(mirt_mnist(NULL, MIRT_TEST), MIRT_E_INVALID, "needs a directory");
    refused(mirt_mnist(folder, (mirt_split)7), MIRT_E_INVALID, "has the splits MIRT_TRAIN and MIRT_TEST");
}

static void test_arrays(void) {
    static float x[N * 6];
    static int32_t y[N];
    const mirt_array none = mirt_make_array(NULL, MIRT_INT32, MIRT_SHAPE(N));
    for (int i = 0; i < N * 6; i++) x[i] = (float)i;
    for (int i = 0; i < N; i++) y[i] = -i;
    mirt_array xs = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(N, 2, 3)),
               ys = mirt_make_array(y, MIRT_INT32, MIRT_SHAPE(N));

    mirt_dataset *d = mirt_batch(mirt_arrays(xs, ys), 64);
    int rows[5] = {0}, count = 0;
    bool pointing = true;
    mirt__batch batch;
    mirt__dataset_begin(d, 0, 0);
    while (count < 5 && mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows > 0) {
        pointing = pointing && batch.field[0] == x + count * 64 * 6 && batch.field[1] == y + count * 64 &&
                   batch.index[1] == count * 64 + 1;
        rows[count++] = (int)batch.rows;
    }
    ok(count == 4 && rows[0] == 64 && rows[2] == 64 && rows[3] == N - 192, "the last batch is smaller");
    ok(pointing, "batches of arrays in order point into the arrays");
    mirt_dataset *same = mirt_prefetch(d, 2);
    ok(same == d, "nothing is prefetched then");
    mirt_dataset_destroy(d);

    d = mirt_batch(mirt_arrays(xs, none), 1000);
    ok(d && mirt__dataset_begin(d, 0, 0) == MIRT_OK && mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows == N &&
           !batch.field[1],
       "a batch larger than the data set, without labels");
    mirt_dataset_destroy(d);

    d = mirt_batch(mirt_shuffle(mirt_arrays(xs, ys), 1), 32);
    int wrong = 0, seen = 0;
    mirt__dataset_begin(d, 3, 0);
    while (mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows > 0) {
        for (int64_t i = 0; i < batch.rows; i++, seen++) {
            int64_t k = batch.index[i];
            wrong += memcmp((const float *)batch.field[0] + i * 6, x + k * 6, 6 * sizeof(float)) != 0 ||
                     ((const int32_t *)batch.field[1])[i] != y[k];
        }
    }
    ok(seen == N && wrong == 0, "shuffled batches of floats keep x and y together");
    mirt_dataset_destroy(d);

    mirt_dataset *arrays = mirt_arrays(xs, ys);
    d = mirt_cache(arrays);
    ok(d == arrays, "arrays are not cached twice");
    mirt_dataset *view = NULL, *view2 = NULL, *nothing = NULL;
    mirt__dataset_batched(arrays, 100, true, &view);
    mirt__dataset_batched(arrays, 100, false, &view2);
    int64_t n, n2;
    mirt_status status;
    uint64_t shuffled = run_epoch(view, 1, 0, &n, &status), ordered = run_epoch(view2, 1, 0, &n2, &status);
    ok(n == N && n2 == N && shuffled != ordered && mirt__dataset_spec(view)->batch == 100, "views borrow");
    nothing = view;
    ok(mirt__dataset_batched(view, 7, true, &nothing) == view && nothing == view, "batches stay as they are");
    mirt_dataset_destroy(view);
    mirt_dataset_destroy(view2);
    const bool none_made = !mirt__dataset_batched(arrays, 0, true, &nothing);
    mirt_dataset_destroy(nothing);
    ok(none_made && mirt_dataset_size(arrays) == N, "a view that fails leaves its data set");
    mirt_dataset_destroy(arrays);

    refused(mirt_arrays(xs, mirt_make_array(y, MIRT_INT32, MIRT_SHAPE(N - 1))), MIRT_E_SHAPE,
            "x has 250 samples, y has 249");
    refused(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(0, 2)), ys), MIRT_E_INVALID, "x is empty");
    refused(mirt_arrays(xs, mirt_make_array(y, MIRT_INT32, MIRT_SHAPE(0))), MIRT_E_INVALID, "y is empty");
    refused(mirt_arrays(none, ys), MIRT_E_INVALID, "x has no data");
    refused(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(N, -2)), ys), MIRT_E_SHAPE,
            "x has shape (250, -2): every dimension must be positive");
    refused(mirt_arrays(mirt_make_array(x, (mirt_dtype)9, MIRT_SHAPE(N, 6)), ys), MIRT_E_INVALID,
            "x has the unknown dtype 9");
    refused(mirt_arrays(mirt_make_array(x, MIRT__DTYPE_COUNT, MIRT_SHAPE(N, 6)), ys), MIRT_E_INVALID,
            "x has the unknown dtype 4");
    refused(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(N, INT64_MAX / 2, 4)), ys), MIRT_E_SHAPE,
            "too large for this machine");
    refused(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(INT64_MAX / 2, 6)), none), MIRT_E_SHAPE,
            "too many for this machine");
    refused(mirt_batch(mirt_arrays(xs, ys), 0), MIRT_E_INVALID, "a batch of 0 samples");
    refused(mirt_batch(mirt_arrays(xs, ys), -5), MIRT_E_INVALID, "a batch of -5 samples");
    refused(mirt_batch(mirt_batch(mirt_arrays(xs, ys), 5), 5), MIRT_E_INVALID, "already in batches of 5");
    refused(mirt_shuffle(mirt_batch(mirt_arrays(xs, ys), 5), 5), MIRT_E_INVALID,
            "mirt_shuffle must come before mirt_batch");
    refused(mirt_cache(mirt_batch(mirt_arrays(xs, ys), 5)), MIRT_E_INVALID, "mirt_cache must come before mirt_batch");
    refused(mirt_prefetch(mirt_batch(mirt_arrays(xs, ys), 5), 0), MIRT_E_INVALID, "a prefetch depth of 0");
    refused(mirt_shuffle(mirt_idx(images_path, labels_path), 0), MIRT_E_INVALID, "a shuffle buffer of 0 samples");
    refused(mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(mirt_mnist(in_folder("nowhere"), MIRT_TRAIN)), 5), 0), 0),
            MIRT_E_NOT_FOUND, "nowhere");
}

static void test_shuffle(void) {
    static int first[N], second[N], again[N], other[N];
    mirt_dataset *d = mirt_shuffle(mirt_cache(mirt_idx(images_path, labels_path)), 10);
    bool fine = d && read_order(d, 1, 0, first, N) && read_order(d, 1, 1, second, N) && read_order(d, 1, 0, again, N) &&
                read_order(d, 2, 0, other, N);
    ok(fine && each_once(first, N) && each_once(second, N), "a permutation");
    ok(memcmp(first, second, sizeof first) != 0, "another one each epoch");
    ok(memcmp(first, again, sizeof first) == 0, "the same for the same seed and epoch");
    ok(memcmp(first, other, sizeof first) != 0, "another one for another seed");
    int far = 0;
    for (int i = 0; i < N; i++) far += abs(first[i] - i) > N / 4;
    ok(far > N / 4, "over the whole data set (%d of %d go far)", far, N);
    mirt_dataset_destroy(d);

    d = mirt_shuffle(mirt_shuffle(mirt_cache(mirt_idx(images_path, labels_path)), 10), 10);
    fine = d && read_order(d, 1, 0, other, N);
    for (int i = 0; i < N; i++) again[i] = first[first[i]];
    ok(fine && each_once(other, N) && memcmp(other, again, sizeof other) != 0,
       "a second shuffle has an order of its own");
    mirt_dataset_destroy(d);

    const int64_t buffers[] = {1, 7, 100, N, 100000};
    for (int k = 0; k < 5; k++) {
        d = mirt_shuffle(mirt_idx(packed_path, labels_path), buffers[k]);
        fine = d && read_order(d, 1, 0, first, N) && read_order(d, 1, 1, second, N) && read_order(d, 1, 0, again, N);
        ok(fine && each_once(first, N) && each_once(second, N) && memcmp(first, again, sizeof first) == 0 &&
               (memcmp(first, second, sizeof first) != 0 || buffers[k] == 1),
           "a buffer of %lld over a stream gives each sample once", (long long)buffers[k]);
        if (buffers[k] == 1) ok(ascending(first, N), "a buffer of 1 keeps the order");
        mirt_dataset_destroy(d);
    }
}

static mirt_dataset *chain(int kind) {
    mirt_dataset *d = mirt_idx(packed_path, labels_path);
    if (kind & 1) d = mirt_cache(d);
    if (kind & 2) d = mirt_shuffle(d, 20);
    return kind & 4 ? mirt_batch(d, 16) : d;
}

static void test_prefetch(void) {
    for (int kind = 0; kind < 8; kind++) {
        mirt_dataset *plain = chain(kind), *ahead = mirt_prefetch(chain(kind), kind % 3 ? kind % 3 : MIRT_AUTOTUNE);
        bool same = true;
        for (int epoch = 0; epoch < 3; epoch++) {
            int64_t rows, rows2;
            mirt_status status, status2;
            same = same && run_epoch(plain, 5, epoch, &rows, &status) == run_epoch(ahead, 5, epoch, &rows2, &status2) &&
                   rows == N && rows2 == N && status == MIRT_OK && status2 == MIRT_OK;
            /* Broken off here and there, and begun anew by the next turn. */
            mirt__batch batch;
            mirt__dataset_begin(ahead, 9, 9);
            for (int i = 0; i < epoch * 3; i++) mirt__dataset_next(ahead, &batch);
        }
        ok(same, "prefetch changes nothing, whatever is broken off (%s%s%s)", kind & 1 ? "cache " : "",
           kind & 2 ? "shuffle " : "", kind & 4 ? "batch" : "");
        mirt_dataset_destroy(plain);
        mirt_dataset_destroy(ahead);
    }
    long live = live_blocks;
    for (int i = 0; i < 30; i++) {
        mirt_dataset *d = mirt_prefetch(chain(7), 1 + i % 4);
        mirt__batch batch;
        if (i > 0) mirt__dataset_begin(d, 0, 0);
        for (int k = 0; k < i - 1; k++) mirt__dataset_next(d, &batch);
        mirt_dataset_destroy(d);
    }
    ok(live_blocks == live, "destroyed at any time, with nothing left");
}

static void test_digits(void) {
    mirt_dataset *train = mirt_drawn_digits(500, 7, MIRT_TRAIN), *test = mirt_drawn_digits(500, 7, MIRT_TEST);
    mirt_dataset *more = mirt_batch(mirt_drawn_digits(501, 7, MIRT_TRAIN), 500),
                 *other = mirt_drawn_digits(500, 8, MIRT_TRAIN);
    int64_t rows;
    mirt_status status;
    uint64_t hash = run_epoch(train, 0, 0, &rows, &status);
    ok(rows == 500 && hash == DIGITS_HASH, "500 digits have always the same pixels (0x%016llX)",
       (unsigned long long)hash);
    ok(run_epoch(train, 3, 4, &rows, &status) == hash, "in any epoch");
    ok(run_epoch(test, 0, 0, &rows, &status) != hash && run_epoch(other, 0, 0, &rows, &status) != hash,
       "another split or seed has other ones");

    mirt__batch a, b;
    mirt__dataset_begin(more, 0, 0);
    mirt__dataset_next(more, &a);
    const unsigned char *pixels = (const unsigned char *)a.field[0], *labels = (const unsigned char *)a.field[1];
    int same = 0, equal = 0, count[10] = {0};
    mirt__dataset_begin(train, 0, 0);
    for (int i = 0; i < 500 && mirt__dataset_next(train, &b) == MIRT_OK; i++)
        same += memcmp(b.field[0], pixels + i * 784, 784) == 0;
    ok(same == 500, "more digits begin with the same ones");
    mirt__dataset_begin(test, 0, 0);
    for (int i = 0; i < 500 && mirt__dataset_next(test, &b) == MIRT_OK; i++) {
        for (int k = 0; k < 500; k++) equal += memcmp(b.field[0], pixels + k * 784, 784) == 0;
    }
    ok(equal == 0, "no digit is in both splits");
    int bright = 0;
    for (int i = 0; i < 500; i++) {
        int ink = 0;
        for (int p = 0; p < 784; p++) ink += pixels[i * 784 + p] > 120;
        bright += ink > 15 && ink < 350;
        if (labels[i] < 10) count[labels[i]]++;
    }
    int least = 500;
    for (int i = 0; i < 10; i++) least = count[i] < least ? count[i] : least;
    ok(bright == 500 && least >= 30, "each has some ink and not too much; all ten occur (%d, %d)", bright, least);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_dataset_destroy(more);
    mirt_dataset_destroy(other);
    refused(mirt_drawn_digits(0, 1, MIRT_TRAIN), MIRT_E_INVALID, "a count of at least 1, not 0");
    refused(mirt_drawn_digits(5, 1, (mirt_split)2), MIRT_E_INVALID, "has the splits MIRT_TRAIN and MIRT_TEST");
    refused(mirt_drawn_digits(INT64_MAX, 1, MIRT_TRAIN), MIRT_E_SHAPE, "too many for this machine");
}

static void test_memory(void) {
    long asked = 0, survived = 0, badly = 0, live = live_blocks;
    for (long k = 1;; k++) {
        allocations = 0;
        fails = k;
        mirt_dataset *d =
            mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(mirt_idx(packed_path, labels_path)), 5), 16), 2);
        bool fine = d != NULL;
        if (fine && mirt__dataset_begin(d, 0, 0) != MIRT_OK) {
            int64_t rows;
            mirt_status status;
            fine = false;
            fails = 0;
            badly += !says(MIRT_E_NOMEM, "out of memory");
            run_epoch(d, 0, 0, &rows, &status); /* tried again with memory enough */
            badly += status != MIRT_OK || rows != N;
        } else if (!fine) {
            badly += !says(MIRT_E_NOMEM, "out of memory");
        }
        mirt_dataset_destroy(d);
        badly += live_blocks != live;
        if (fine) {
            asked = allocations;
            survived = k - 1;
            break;
        }
    }
    fails = 0;
    ok(badly == 0 && asked == survived && asked > 8,
       "out of memory at each of %ld allocations: said so, nothing lost (%ld)", asked, badly);

    const int kinds[] = {4, 6, 7};
    for (int i = 0; i < 3; i++) {
        int64_t rows;
        mirt_status status;
        mirt_dataset *d = mirt_prefetch(chain(kinds[i]), 2);
        run_epoch(d, 0, 0, &rows, &status);
        allocations = 0;
        run_epoch(d, 0, 1, &rows, &status);
        run_epoch(d, 0, 2, &rows, &status);
        ok(allocations == 0 && rows == N, "nothing is allocated after the first epoch has begun");
        mirt_dataset_destroy(d);
    }

    unsigned char *block = (unsigned char *)mirt__aligned_alloc(1000);
    ok(block && (uintptr_t)block % MIRT__ALIGN == 0, "large blocks are aligned");
    mirt__aligned_free(block);
}

static void test_mnist(void) {
    const char *directory = mnist_directory();
    if (!directory) return;
    mirt_dataset *test = mirt_cache(mirt_mnist(directory, MIRT_TEST));
    if (!test && mirt_last_status() == MIRT_E_NOT_FOUND) {
        skip("MNIST is not in %s (MIRT_MNIST_DIR)", directory);
        return;
    }
    if (!ok(test != NULL && mirt_dataset_size(test) == 10000, "MNIST test: %s", mirt_last_error())) return;
    int count[10] = {0};
    uint64_t ink = 0;
    mirt__batch batch;
    mirt_status status = mirt__dataset_begin(test, 0, 0);
    while (status == MIRT_OK && (status = mirt__dataset_next(test, &batch)) == MIRT_OK && batch.rows > 0) {
        count[*(const unsigned char *)batch.field[1] % 10]++;
        for (int p = 0; p < 784; p++) ink += ((const unsigned char *)batch.field[0])[p];
    }
    ok(status == MIRT_OK && count[0] == 980 && count[1] == 1135 && count[9] == 1009 && ink == MNIST_INK,
       "its labels and pixels are right (%llu)", (unsigned long long)ink);
    mirt_dataset_destroy(test);
}

int main(void) {
    make_folder();
    test_idx();
    test_inflate();
    test_bad_files();
    test_arrays();
    test_shuffle();
    test_prefetch();
    test_digits();
    test_memory();
    test_mnist();
    static const char *const names[] = {"six", "six.gz", "ones", "long.gz", "cut", "cut.gz", "flip.gz", "crc.gz",
                                        "more.gz", "twice.gz", "empty", "long", "none", "flat", "huge", "fewer",
                                        "t10k-images-idx3-ubyte"};
    remove_folder(names, MIRT__COUNT(names));
    ok(live_blocks == 0, "no block is left (%ld)", live_blocks);
    return done_testing();
}
