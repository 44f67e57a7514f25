/* Sources of data that fail, read through every stage. Each call says why and frees all memory. Once the source works
   again, it reads what it should. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

static long live_blocks; /* atomic */
void *hook_malloc(size_t size) {
    void *block = size >> 40 ? NULL : malloc(size); /* sanitizers end the program instead */
    if (block) __atomic_add_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    return block;
}
void hook_free(void *block) {
    if (block) __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    free(block);
}

#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { SIDE = 6, PIXELS = SIDE * SIDE, SAMPLES = 23, CODE = 77, NEVER = -2, AT_BEGIN = -1 };

static int fails_at; /* the sample at which a source fails, AT_BEGIN or NEVER; atomic */
static void fail_at(int place) { __atomic_store_n(&fails_at, place, __ATOMIC_RELAXED); }
static int failing(void) { return __atomic_load_n(&fails_at, __ATOMIC_RELAXED); }

static int begin_source(int64_t epoch, void *user) {
    (void)epoch, (void)user;
    return failing() == AT_BEGIN ? CODE : 0;
}
static int make_sample(void *const *out, int64_t index, void *user) {
    const bool stream = user != NULL;
    if (stream && index >= SAMPLES) return MIRT_END_OF_DATA;
    if (index == failing()) return CODE;
    for (int i = 0; i < PIXELS; i++) ((uint8_t *)out[0])[i] = (uint8_t)(index * 31 + i * 7);
    *(int32_t *)out[1] = (int32_t)(index % 3);
    return 0;
}
static int darken(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)index, (void)user;
    for (int i = 0; i < PIXELS; i++) ((uint8_t *)out[0])[i] = (uint8_t)(((const uint8_t *)in[0])[i] / 2);
    return 0;
}

typedef enum source { STREAM, COUNTED, ANY_ORDER, SOURCES } source;
static const char *const source_names[SOURCES] = {"a stream", "a source of known length",
                                                  "a source with random access"};

static mirt_dataset *source_of(source kind) {
    static char stream;
    mirt_generator_desc d;
    memset(&d, 0, sizeof d);
    d.fn = make_sample;
    d.begin = begin_source;
    d.user = kind == STREAM ? &stream : NULL;
    d.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(SIDE, SIDE, 1));
    d.y[0] = mirt_make_array(NULL, MIRT_INT32, mirt_make_shape(0, 0, 0, 0, 0, 0));
    d.num_x = d.num_y = 1;
    d.samples = kind == STREAM ? 0 : SAMPLES;
    d.any_order = kind == ANY_ORDER;
    d.name = "the well";
    return mirt_dataset_from_generator(&d);
}

typedef enum chain {
    PLAIN, MAPPED, FLIPPED, SHUFFLED, CACHED, KEPT, REPEATED, SKIPPED, BATCHED, DROPPED, JOINED, AHEAD, ALL, CHAINS
} chain;
static const char *const chain_names[CHAINS] = {
    "alone",    "mapped",            "augmented",  "shuffled",         "cached",            "cached in a file",
    "repeated", "without its first", "in batches", "in whole batches", "in joined batches", "prefetched",
    "through all stages"
};

static mirt_dataset *chain_of(chain kind, mirt_dataset *d) {
    mirt_augmentation flip;
    mirt_map_desc map;
    mirt_cache_desc cache;
    char path[400];
    memset(&map, 0, sizeof map);
    memset(&cache, 0, sizeof cache);
    map.fn = darken;
    mirt_parse_augmentation("flip", &flip, 1);
    d = mirt_take(d, SAMPLES - 2); /* a stream, too, ends here */
    if (kind == SKIPPED) d = mirt_skip(d, 1);
    if (kind == MAPPED || kind == ALL) d = mirt_map(d, &map);
    if (kind == CACHED || kind == ALL) d = mirt_cache(d);
    if (kind == KEPT) {
        snprintf(path, sizeof path, "%s/cache", work_directory());
        unlink(path);
        cache.file = path;
        d = mirt_cache_with(d, &cache);
    }
    if (kind == SHUFFLED || kind == ALL) d = mirt_shuffle(d, 5);
    if (kind == FLIPPED || kind == ALL) d = mirt_augment(d, &flip, 1);
    if (kind == REPEATED) d = mirt_repeat(d, 2);
    if (kind == DROPPED) d = mirt_batch_drop_remainder(d, 4);
    if (kind == BATCHED || kind == JOINED || kind == AHEAD || kind == ALL) d = mirt_batch(d, 4);
    if (kind == JOINED) d = mirt_accumulate(d, 2);
    if (kind == AHEAD || kind == ALL) d = mirt_prefetch(d, 2);
    return d;
}

typedef enum reader { READ, ARRAYS, ADAPT, GRID, READERS } reader;
static const char *const reader_names[READERS] = {"mirt_dataset_read", "mirt_dataset_arrays", "mirt_adapt",
                                                  "mirt_save_grid"};
static char picture[400];

/* What a call makes of the data: 64 bits of it. */
static mirt_status read_by(reader how, mirt_dataset *d, uint64_t *seen) {
    mirt_normalization_desc normal;
    mirt_data data;
    mirt_status status;
    size_t size = 0;
    *seen = 0;
    memset(&data, 0, sizeof data);
    memset(&normal, 0, sizeof normal);
    const unsigned char *bytes = NULL;
    char *file = NULL;
    switch (how) {
    case READ:
    case ARRAYS:
        status = how == READ ? mirt_dataset_read(d, mirt_dataset_batches(d) > 0 ? 1 : 6, NULL, &data)
                             : mirt_dataset_arrays(d, &data);
        bytes = (const unsigned char *)data.x[0].data;
        size = bytes ? (size_t)(data.x[0].shape.dim[0] * PIXELS) : 0;
        break;
    case ADAPT:
        status = mirt_adapt(&normal, d);
        bytes = (const unsigned char *)normal.mean;
        size = sizeof normal.mean;
        break;
    default:
        unlink(picture);
        status = mirt_save_grid(picture, d, 4, 5);
        bytes = (const unsigned char *)(file = file_bytes(picture, &size));
        break;
    }
    for (size_t i = 0; i < size; i++) *seen = *seen * 31 + bytes[i];
    mirt_data_free(&data);
    free(file);
    return status;
}

static void check(source from, chain through) {
    const int places[] = {AT_BEGIN, 3, 6};
    int wrong = 0, failed = 0;
    char said[300] = "";
    uint64_t want[READERS], seen;
    fail_at(NEVER);
    mirt_dataset *d = chain_of(through, source_of(from));
    for (int how = 0; d && how < READERS; how++) {
        const mirt_status status = read_by((reader)how, d, &want[how]);
        if (status != MIRT_OK) printf("# %s: %s\n", reader_names[how], mirt_last_error());
        wrong += status != MIRT_OK;
    }
    mirt_dataset_destroy(d);
    for (int i = 0; d && i < MIRT__COUNT(places); i++) {
        for (int how = 0; how < READERS; how++) {
            fail_at(NEVER);
            mirt_dataset *other = chain_of(through, source_of(from));
            fail_at(places[i]);
            const mirt_status status = read_by((reader)how, other, &seen);
            /* With random access one element may be read without the sample that fails. */
            const bool unread = from == ANY_ORDER && how == READ && places[i] != AT_BEGIN && status == MIRT_OK;
            const bool good = unread ? seen == want[how]
                                     : status == MIRT_E_CALLBACK && strstr(mirt_last_error(), "the well") &&
                                           strstr(mirt_last_error(), "77") && seen == 0;
            if (!good)
                printf("# %s, failing at %d: status %d, \"%s\"\n", reader_names[how], places[i], (int)status,
                       mirt_last_error());
            else if (!unread) snprintf(said, sizeof said, "%s", mirt_last_error());
            wrong += !good;
            fail_at(NEVER);
            failed++;
            if (read_by((reader)how, other, &seen) != MIRT_OK || seen != want[how]) {
                printf("# %s does not recover after failing at %d: %s\n", reader_names[how], places[i],
                       mirt_last_error());
                wrong++;
            }
            mirt_dataset_destroy(other);
        }
    }
    ok(d && wrong == 0, "%s %s: %d failures and what follows: \"%s\"", source_names[from], chain_names[through], failed,
       said);
}

/* >>samples that no memory can hold */

static mirt_dataset *huge_of(int64_t side, int inputs, int64_t samples) {
    mirt_generator_desc d;
    memset(&d, 0, sizeof d);
    d.fn = make_sample; /* is never called */
    d.num_x = inputs;
    for (int i = 0; i < inputs; i++) d.x[i] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(side, (int64_t)1 << 30, 1));
    d.samples = samples;
    return mirt_dataset_from_generator(&d);
}

static void refused(mirt_status status, mirt_status want, const char *what) {
    ok(status == want, "%s: status %d, \"%s\"", what, (int)status, status ? mirt_last_error() : "");
}
static void unreadable(mirt_dataset *d, const char *what) {
    mirt_data data;
    refused(d ? mirt_dataset_read(d, 0, NULL, &data) : mirt_last_status(), MIRT_E_NOMEM, what);
    ok(!d || (!data.x[0].data && data.x[0].shape.rank == 0), "and there are no arrays");
    mirt_dataset_destroy(d);
}

static void check_huge(void) {
    const int64_t side = (int64_t)1 << 30;
    mirt_normalization_desc normal;
    mirt_data data;
    memset(&normal, 0, sizeof normal);
    ok(!huge_of(side * side, 1, 0), "2^90 bytes in a sample: %s", mirt_last_error());
    ok(!huge_of(side, 1, 1000), "2^60 bytes, 1000 times: %s", mirt_last_error());
    mirt_dataset *d = mirt_take(huge_of(side, 1, 0), 64);
    refused(d ? MIRT_OK : mirt_last_status(), MIRT_OK, "some of a stream of such samples");
    refused(mirt_dataset_arrays(d, &data), MIRT_E_NOMEM, "all of them");
    refused(mirt_adapt(&normal, d), MIRT_E_NOMEM, "their mean");
    refused(mirt_save_grid(picture, d, 8, 8), MIRT_E_SHAPE, "a picture of 2^66 bytes");
    refused(mirt_save_grid(picture, d, 1, 1), MIRT_E_NOMEM, "a picture of 2^60 bytes");
    unreadable(d, "one of them");
    for (int batch = 1; batch <= 64; batch *= 2) unreadable(mirt_batch(huge_of(side, 1, 0), batch), "a batch");
    unreadable(mirt_batch(huge_of(side, 4, 0), 2), "a batch of 2^63 bytes in four inputs");
    unreadable(mirt_shuffle(huge_of(side, 1, 0), 20), "shuffled");
    unreadable(mirt_cache(mirt_take(huge_of(side, 1, 0), 3)), "cached");
    unreadable(mirt_accumulate(mirt_batch(huge_of(side, 1, 0), 4), 4), "in joined batches");
}

int main(void) {
    snprintf(picture, sizeof picture, "%s/grid.png", work_directory());
    for (int from = 0; from < SOURCES; from++) {
        for (int through = 0; through < CHAINS; through++) check((source)from, (chain)through);
    }
    check_huge();
    ok(live_blocks == 0, "no memory is lost");
    return done_testing();
}
