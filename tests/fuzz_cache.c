/* Fuzzes files of mirt_cache_with. The first byte chooses whether head and checksums are made valid, and what reads the
   cache; the rest is the file after its header, or all of it. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "fuzz_main.h"

enum { SAMPLES = 4, PIXELS = 3, FIELDS = PIXELS + (int)sizeof(float), RECORD = FIELDS + 16 };
enum { RAW = 1, UNSEALED = 2, ANY_LENGTH = 4, ANY_ORDER = 8, BATCHED = 16, SHUFFLED = 32, WITHOUT_FILE = 64 };

static int give(void *const *out, int64_t index, void *user) {
    const float label = (float)index;
    (void)user;
    memset(out[0], (int)index, PIXELS);
    memcpy(out[1], &label, sizeof label);
    return 0;
}

static mirt_dataset *cached(const char *path, int flags) {
    mirt_generator_desc d;
    mirt_cache_desc cache;
    memset(&d, 0, sizeof d);
    memset(&cache, 0, sizeof cache);
    d.fn = give;
    d.num_x = d.num_y = 1;
    d.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(PIXELS));
    d.y[0].dtype = MIRT_FLOAT32;
    d.samples = SAMPLES;
    d.any_order = flags & ANY_ORDER;
    d.name = "fuzz";
    cache.file = path;
    mirt_dataset *dataset = mirt_cache_with(mirt_dataset_from_generator(&d), &cache);
    if (flags & SHUFFLED) dataset = mirt_shuffle(dataset, 3);
    return flags & BATCHED ? mirt_batch(dataset, 3) : dataset;
}

/* One pass; how many rows there were. */
static int64_t read_all(mirt_dataset *dataset, int64_t epoch) {
    mirt__batch batch;
    int64_t rows = 0;
    if (!dataset || mirt__dataset_begin(dataset, 1, epoch) != MIRT_OK) return -1;
    while (mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows) {
        for (int64_t i = 0; i < batch.rows; i++) {
            const unsigned char *x = (const unsigned char *)batch.field[0] + i * PIXELS;
            FUZZ_CHECK(batch.index[i] >= 0 && batch.index[i] >> 48 == 0);
            FUZZ_PLANT(x[0] == 0xA5 && x[1] == 0x5A);
        }
        rows += batch.rows;
        FUZZ_CHECK(rows <= SAMPLES);
    }
    return rows;
}

/* The file of a cache that a pass has written. */
static const uint8_t *written(const char *path, size_t *size) {
    static uint8_t bytes[4096];
    static size_t count;
    if (!count) {
        unlink(path);
        mirt_dataset *dataset = cached(path, 0);
        FUZZ_CHECK(read_all(dataset, 0) == SAMPLES);
        mirt_dataset_destroy(dataset);
        FILE *file = fopen(path, "rb");
        count = file ? fread(bytes, 1, sizeof bytes, file) : 0;
        if (file) fclose(file);
        FUZZ_CHECK(count > SAMPLES * RECORD && count < sizeof bytes);
    }
    *size = count;
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[512];
    uint8_t file[8192];
    size_t whole;
    fuzz_input in = {data, data + size};
    const int flags = fuzz_byte(&in);
    const uint8_t *right = written(fuzz_path("cache", path), &whole);
    const size_t head = whole - SAMPLES * RECORD, left = (size_t)(in.end - in.at);
    size_t length = flags & (RAW | ANY_LENGTH) ? (flags & RAW ? 0 : head) + left : whole;
    if (length > sizeof file) length = sizeof file;
    memcpy(file, right, head);
    const size_t from = flags & RAW ? 0 : head;
    if (length > from) fuzz_bytes(&in, file + from, length - from);
    for (size_t at = head; !(flags & UNSEALED) && at + RECORD <= length; at += RECORD) {
        const uint32_t crc = mirt__crc32c(0, file + at, FIELDS + 8);
        memcpy(file + at + FIELDS + 8, &crc, sizeof crc);
    }
    if (flags & WITHOUT_FILE) unlink(path);
    else fuzz_put(path, file, length);
    mirt_dataset *dataset = cached(path, flags);
    for (int64_t epoch = 0; epoch < 2; epoch++) read_all(dataset, epoch);
    mirt_dataset_destroy(dataset);
    return 0;
}
