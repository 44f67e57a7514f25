#ifndef DATA_UTIL_H
#define DATA_UTIL_H
/* Temporary IDX files, and an epoch of a data set as one number. Include after mirrortrain.h. */
#include "tap.h"

#define MNIST_INK 264923200u /* the sum of all pixels of the test set, whose mean pixel is 33.7912 */

static char folder[512];

TAP_UNUSED static const char *in_folder(const char *name) {
    static char path[4][640];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

TAP_UNUSED static const char *write_file(const char *name, const unsigned char *data, size_t size) {
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        printf("Bail out! cannot write %s\n", path);
        exit(1);
    }
    return path;
}

TAP_UNUSED static void put_big(unsigned char *p, uint32_t value) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(value >> (24 - 8 * i));
}

TAP_UNUSED static void put_little(unsigned char *p, uint32_t value) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(value >> (8 * i));
}

/* Pixel (r, c) of image i of every file. */
TAP_UNUSED static unsigned char six_pixel(int i, int r, int c) {
    return (unsigned char)((r + c + i) % 3 ? (i * 7 + r * c + (r ^ c)) % 11 * 20 : 0);
}

/* An IDX file of n images of 12 x 12, or of labels (i mod 10) when `labels`; the bytes written. */
TAP_UNUSED static size_t make_idx(unsigned char *out, int n, bool labels) {
    size_t used = 0;
    put_big(out, labels ? 0x801 : 0x803);
    put_big(out + 4, (uint32_t)n);
    if (labels) {
        for (int i = 0; i < n; i++) out[8 + i] = (unsigned char)(i % 10);
        return 8 + (size_t)n;
    }
    put_big(out + 8, 12);
    put_big(out + 12, 12);
    used = 16;
    for (int i = 0; i < n; i++) {
        for (int p = 0; p < 144; p++) out[used++] = six_pixel(i, p / 12, p % 12);
    }
    return used;
}

TAP_UNUSED static uint32_t slow_crc(const unsigned char *data, size_t size) {
    uint32_t c = ~0u;
    for (size_t i = 0; i < size; i++) {
        c ^= data[i];
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
    }
    return ~c;
}

/* gzip with stored blocks of `piece` bytes. */
TAP_UNUSED static size_t make_stored(unsigned char *out, const unsigned char *data, size_t size, size_t piece) {
    static const unsigned char header[10] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3};
    size_t used = sizeof header, done = 0;
    memcpy(out, header, sizeof header);
    do {
        size_t n = size - done < piece ? size - done : piece;
        out[used] = done + n == size;
        out[used + 1] = (unsigned char)n;
        out[used + 2] = (unsigned char)(n >> 8);
        out[used + 3] = (unsigned char)~n;
        out[used + 4] = (unsigned char)(~n >> 8);
        memcpy(out + used + 5, data + done, n);
        used += 5 + n;
        done += n;
    } while (done < size);
    put_little(out + used, slow_crc(data, size));
    put_little(out + used + 4, (uint32_t)size);
    return used + 8;
}

TAP_UNUSED static bool says(mirt_status status, const char *part) {
    return mirt_last_status() == status && strstr(mirt_last_error(), part) != NULL;
}

/* Runs through one epoch; FNV of x, y and indices, *rows of samples; the status in *status. */
TAP_UNUSED static uint64_t run_epoch(mirt_dataset *dataset, uint64_t seed, int64_t epoch, int64_t *rows,
                                     mirt_status *status) {
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    uint64_t hash = 14695981039346656037u;
    *rows = 0;
    *status = mirt__dataset_begin(dataset, seed, epoch);
    while (*status == MIRT_OK) {
        mirt__batch batch;
        *status = mirt__dataset_next(dataset, &batch);
        if (*status != MIRT_OK || batch.rows == 0) break;
        *rows += batch.rows;
        for (int f = 0; f < spec->num_fields; f++) {
            const unsigned char *bytes = (const unsigned char *)batch.field[f];
            for (size_t i = 0; i < (size_t)batch.rows * spec->field[f].bytes; i++)
                hash = (hash ^ bytes[i]) * 1099511628211u;
        }
        for (int64_t i = 0; i < batch.rows; i++) hash = (hash ^ (uint64_t)batch.index[i]) * 1099511628211u;
    }
    return hash;
}

enum { N = 250 };
static const char *images_path, *labels_path, *packed_path;
static char images_store[640], labels_store[640], packed_store[640];

TAP_UNUSED static void make_files(void) {
    static unsigned char plain[N * 144 + 16], packed[N * 144 + 4096];
    size_t size = make_idx(plain, N, false);
    snprintf(images_store, sizeof images_store, "%s", write_file("images", plain, size));
    snprintf(packed_store, sizeof packed_store, "%s",
             write_file("images.gz", packed, make_stored(packed, plain, size, 1000)));
    size = make_idx(plain, N, true);
    snprintf(labels_store, sizeof labels_store, "%s", write_file("labels", plain, size));
    images_path = images_store;
    labels_path = labels_store;
    packed_path = packed_store;
}

/* NULL after a message that the check is skipped. */
TAP_UNUSED static const char *mnist_directory(void) {
    const char *directory = getenv("MIRT_MNIST_DIR");
    if (directory && *directory) return directory;
    skip("MNIST: MIRT_MNIST_DIR names no directory");
    return NULL;
}

/* Ends the test if there is no directory. */
TAP_UNUSED static void make_folder(void) {
    snprintf(folder, sizeof folder, "%s/mirt_data_XXXXXX", tap_tmpdir());
    if (!mkdtemp(folder)) {
        printf("Bail out! no temporary directory %s\n", folder);
        exit(1);
    }
    make_files();
}

/* Checks that these files, and those of make_files, were the only ones. */
TAP_UNUSED static void remove_folder(const char *const *names, int count) {
    static const char *const made[] = {"images", "images.gz", "labels"};
    for (int i = 0; i < MIRT__COUNT(made); i++) remove(in_folder(made[i]));
    for (int i = 0; i < count; i++) remove(in_folder(names[i]));
    ok(remove(folder) == 0, "the temporary directory is empty again");
}

#endif
