/* Tests worker threads: any number makes the same samples in order. Also their errors. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "simulated_time.h"
#include "tap.h"

#include <pthread.h>
#include <unistd.h>

/* A costly source: the synthetic images, some of which cannot be made. */
typedef struct source_dataset {
    mirt_dataset base;
    int64_t fails;       /* this sample, and the ones after it */
    int lost[2];         /* samples [lost[0], lost[1]) are skipped, */
    int every;           /* and every so many */
    long microseconds;   /* that each takes, the first of them longest */
    int at_once, most;   /* threads in make, atomic; the most there have been */
    int *made;           /* counts the samples made, atomic */
    bool elsewhere;      /* a thread that is not the one that built this has been here */
    pthread_t home;
} source_dataset;

static mirt_status source_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field, int64_t *index) {
    source_dataset *source = (source_dataset *)dataset;
    int now = __atomic_add_fetch(&source->at_once, 1, __ATOMIC_RELAXED),
        most = __atomic_load_n(&source->most, __ATOMIC_RELAXED);
    while (now > most &&
           !__atomic_compare_exchange_n(&source->most, &most, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    if (source->made) __atomic_add_fetch(source->made, 1, __ATOMIC_RELAXED);
    if (!pthread_equal(pthread_self(), source->home)) __atomic_store_n(&source->elsewhere, true, __ATOMIC_RELAXED);
    simulated_sleep((double)source->microseconds * (i % 7 == 0 ? 3e-6 : 1e-6));
    *index = i;
    uint8_t *room = (uint8_t *)mirt__work_room(work, dataset, IMAGE);
    mirt_status status = room ? MIRT_OK : MIRT_E_NOMEM;
    if ((i >= source->lost[0] && i < source->lost[1]) || (source->every && i % source->every == 0))
        status = MIRT__SKIPPED;
    else if (source->fails && i >= source->fails)
        status = mirt__fail(MIRT_E_FORMAT, "image %lld is damaged", (long long)i);
    else if (room && field) {
        memcpy(room, image_pixels[i], IMAGE);
        memcpy(field[0], room, IMAGE);
        memcpy(field[1], &image_classes[i], 1);
    }
    __atomic_sub_fetch(&source->at_once, 1, __ATOMIC_RELAXED);
    return status;
}

static const mirt__stage source_stage = {NULL, NULL, NULL, source_make, mirt__dataset_fill_made, NULL, NULL};

static mirt_dataset *source_of(int64_t samples) {
    mirt_dataset *d = mirt__dataset_new(sizeof(source_dataset), &source_stage);
    d->spec.samples = samples;
    d->spec.num_x = d->spec.num_y = 1;
    mirt__data_add_field(&d->spec, MIRT_UINT8, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1));
    mirt__data_add_field(&d->spec, MIRT_UINT8, mirt_make_shape(0, 0, 0, 0, 0, 0));
    mirt__dataset_check_spec(d);
    d->skips = true;
    ((source_dataset *)d)->home = pthread_self();
    return d;
}

static source_dataset *source_under(mirt_dataset *d) {
    while (d->source) d = d->source;
    return (source_dataset *)d;
}

/* Turns an image over; sample `*user` fails. */
static int turn(const void *const *in, void *const *out, int64_t index, void *user) {
    for (int k = 0; k < IMAGE; k++) ((uint8_t *)out[0])[k] = (uint8_t)(255 - ((const uint8_t *)in[0])[k]);
    return user && index >= *(const int64_t *)user ? 7 : 0;
}

static mirt_dataset *map_of(mirt_dataset *d, int64_t *fails) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = turn;
    map.user = fails;
    map.name = "turn";
    return mirt_map(d, &map);
}

static mirt_dataset *workers_of(mirt_dataset *d, int workers) {
    if (mirt_dataset_workers(d, workers) == MIRT_OK) return d;
    ok(false, "%s", mirt_last_error());
    return d;
}

/* Runs through an epoch: rows seen, or -1 at a row that is not what `expect` lists (NULL: the source's order), turned
   over or not. */
static int64_t epoch_is(mirt_dataset *d, int64_t epoch, const int64_t *expect, int64_t count, bool turned,
                        int64_t *batches) {
    mirt__batch b;
    int64_t seen = 0;
    *batches = 0;
    if (mirt__dataset_begin(d, 11, epoch) != MIRT_OK) return -2;
    for (;;) {
        if (mirt__dataset_next(d, &b) != MIRT_OK) return -3;
        if (b.rows == 0) return seen;
        for (int64_t row = 0; row < b.rows; row++, seen++) {
            int64_t i = b.index[row];
            const uint8_t *pixel = (const uint8_t *)b.field[0] + row * IMAGE;
            if (seen >= count || i != (expect ? expect[seen] : seen) ||
                ((const uint8_t *)b.field[1])[row] != image_classes[i])
                return -1;
            for (int k = 0; k < IMAGE; k++) {
                if (pixel[k] != (turned ? 255 - image_pixels[i][k] : image_pixels[i][k])) return -1;
            }
        }
        ++*batches;
    }
}

/* The order of mirt_shuffle over `samples`, without those the source skips. */
static int64_t shuffled(int64_t samples, int64_t epoch, int every, int64_t *out) {
    int64_t order[IMAGES], count = 0;
    mirt__random random = mirt__random_stream(11, mirt__hash("shuffle") + ((uint64_t)1 << 48) + (uint64_t)epoch);
    for (int64_t i = 0; i < samples; i++) {
        int64_t j = (int64_t)mirt__random_below(&random, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int64_t i = 0; i < samples; i++) {
        if (!every || order[i] % every) out[count++] = order[i];
    }
    return count;
}

static const int numbers[] = {1, 2, 3, 5, 16, MIRT_AUTOTUNE};

static void test_order(void) {
    for (int n = 0; n < (int)(sizeof numbers / sizeof *numbers); n++) {
        for (int kind = 0; kind < 6; kind++) {
            int64_t expect[IMAGES], batches = 0;
            bool right = true;
            mirt_dataset *d = map_of(mirt_shuffle(source_of(203), 1), NULL);
            source_under(d)->every = 10;
            source_under(d)->microseconds = kind == 2 ? 50 : 0;
            if (kind == 5) d = mirt_cache(d);
            d = mirt_batch(workers_of(d, numbers[n]), kind == 4 ? 1 : 16);
            if (kind) d = mirt_prefetch(d, kind == 1 ? 1 : MIRT_AUTOTUNE);
            for (int epoch = 0; epoch < 3; epoch++) {
                int64_t count = shuffled(203, kind == 5 ? 0 : epoch, 10, expect);
                if (kind == 3) { /* broken off first */
                    mirt__batch b;
                    mirt__dataset_begin(d, 11, 77);
                    mirt__dataset_next(d, &b);
                    if (epoch) mirt__dataset_next(d, &b);
                }
                right = right && epoch_is(d, epoch, expect, count, true, &batches) == count && count == 182;
            }
            ok(right, "%d workers, %s: every sample in its place", numbers[n],
               kind == 0   ? "no prefetch"
               : kind == 1 ? "prefetch 1"
               : kind == 2 ? "slow samples"
               : kind == 3 ? "epochs broken off"
               : kind == 4 ? "batches of 1"
                           : "a cache");
            mirt_dataset_destroy(d);
        }
    }
}

/* Passes one after the other, each an epoch of its own; batches cross their ends. */
static void test_repeat(void) {
    for (int n = 0; n < (int)(sizeof numbers / sizeof *numbers); n++) {
        for (int kind = 0; kind < 4; kind++) {
            int64_t all[3 * 62], batches, first = kind == 2 ? 70 : 0, most = kind == 2 ? 100 : kind == 3 ? 150 : 186;
            for (int pass = 0; pass < 3; pass++)
                shuffled(62, kind == 3 ? ((int64_t)pass << 24) + 4 : 4 * 3 + pass, 0, all + 62 * pass);
            mirt_dataset *d = map_of(mirt_repeat(mirt_shuffle(source_of(62), 1), kind == 3 ? 0 : 3), NULL);
            if (kind >= 2) d = mirt_take(mirt_skip(d, first), most);
            d = mirt_prefetch(mirt_batch(workers_of(d, numbers[n]), 16), kind == 1 ? MIRT_AUTOTUNE : 2);
            int64_t got = epoch_is(d, 4, all + first, most, true, &batches);
            ok(got == most, "%d workers, %s: %d samples in their places", numbers[n],
               kind < 2    ? "3 passes"
               : kind == 2 ? "a part of 3 passes"
                           : "a part of all passes",
               (int)got);
            mirt_dataset_destroy(d);
        }
    }
    mirt_dataset *d = mirt_prefetch(mirt_batch(workers_of(mirt_repeat(source_of(20), 0), 2), 8), 2);
    int64_t batches;
    source_under(d)->every = 1;
    ok(epoch_is(d, 0, NULL, 0, true, &batches) == 0, "what is repeated for ever and always skipped has an end");
    mirt_dataset_destroy(d);
}

static void test_lost_batches(void) {
    for (int n = 0; n < 3; n++) {
        for (int ahead = 0; ahead < 3; ahead++) {
            int64_t expect[100], batches, count = 0;
            for (int i = 0; i < 100; i++) {
                if (i < 30 || i >= 83) expect[count++] = i;
            }
            mirt_dataset *d = mirt_batch(workers_of(source_of(100), numbers[n]), 10);
            source_under(d)->lost[0] = 30;
            source_under(d)->lost[1] = 83;
            if (ahead == 1) d = mirt_accumulate(d, 2);
            if (ahead) d = mirt_prefetch(d, 3);
            int64_t got = epoch_is(d, 0, expect, count, false, &batches);
            ok(got == count && batches == (ahead == 1 ? 3 : 5),
               "%d workers: batches that lose all their rows are passed over (%d of %d)", numbers[n], (int)got,
               (int)count);
            mirt_dataset_destroy(d);
        }
    }
    mirt_dataset *d = mirt_prefetch(mirt_batch(workers_of(source_of(40), 3), 8), 2);
    int64_t batches;
    source_under(d)->every = 1;
    ok(epoch_is(d, 0, NULL, 0, false, &batches) == 0 && batches == 0, "nothing but skipped samples is an empty epoch");
    mirt_dataset_destroy(d);
}

static void test_failures(void) {
    for (int n = 0; n < (int)(sizeof numbers / sizeof *numbers); n++) {
        for (int ahead = 0; ahead < 2; ahead++) {
            int64_t fails = 57, batches;
            mirt_dataset *d = mirt_batch(workers_of(map_of(source_of(200), &fails), numbers[n]), 32);
            if (ahead) d = mirt_prefetch(d, 3);
            source_under(d)->microseconds = 20;
            int64_t got = epoch_is(d, 0, NULL, 200, true, &batches);
            ok(got == -3 && mirt_last_status() == MIRT_E_CALLBACK &&
                   strcmp(mirt_last_error(), "turn returned 7 for sample 57") == 0,
               "%d workers: the first sample that fails is named: %s", numbers[n], mirt_last_error());
            fails = 1000;
            ok(epoch_is(d, 1, NULL, 200, true, &batches) == 200, "and the next epoch is whole");
            source_under(d)->fails = 100;
            got = epoch_is(d, 2, NULL, 200, true, &batches);
            ok(got == -3 && mirt_last_status() == MIRT_E_FORMAT &&
                   strcmp(mirt_last_error(), "image 100 is damaged") == 0,
               "so is a damaged one: %s", mirt_last_error());
            mirt_dataset_destroy(d);
        }
    }
}

static void test_breaking_off(void) {
    int good = 0;
    for (int i = 0; i < 60; i++) {
        mirt__batch b;
        mirt_dataset *d = mirt_prefetch(
            mirt_batch(workers_of(map_of(mirt_shuffle(source_of(100), 9), NULL), 1 + i % 5), 1 + i % 9), 1 + i % 4);
        source_under(d)->microseconds = i % 3 * 10;
        good += mirt__dataset_begin(d, 11, i) == MIRT_OK;
        for (int k = 0; k < i % 8; k++) good -= mirt__dataset_next(d, &b) != MIRT_OK || b.rows == 0;
        mirt_dataset_destroy(d);
    }
    ok(good == 60, "data sets are destroyed in mid-epoch");
}

#ifndef MIRRORTRAIN_NO_THREADS
static void test_numbers(void) {
    int64_t batches;
    simulated_begin(20e-6, 6); /* how many threads there are depends on how long samples take */
    for (int ahead = 0; ahead < 2; ahead++) {
        mirt_dataset *d = mirt_batch(workers_of(source_of(300), 4), 30);
        if (ahead) d = mirt_prefetch(d, 2);
        source_under(d)->microseconds = 300;
        epoch_is(d, 0, NULL, 300, false, &batches);
        ok(source_under(d)->most == 4, "4 workers work at once (%d)", source_under(d)->most);
        mirt_dataset_destroy(d);
        d = mirt_batch(source_of(300), 30);
        if (ahead) d = mirt_prefetch(d, MIRT_AUTOTUNE);
        source_under(d)->microseconds = 300;
        epoch_is(d, 0, NULL, 300, false, &batches);
        ok(source_under(d)->most > 2 && source_under(d)->most <= 6,
           "slow samples get threads, at most one per core (%d)", source_under(d)->most);
        mirt_dataset_destroy(d);
    }
    mirt_dataset *d = mirt_batch(source_of(300), 30);
    epoch_is(d, 0, NULL, 300, false, &batches);
    ok(!source_under(d)->elsewhere, "fast samples are made where they are asked for");
    mirt_dataset_destroy(d);
    /* a consumer slower than the source, although that is costly: nobody waits, so no more threads */
    d = mirt_prefetch(mirt_batch(source_of(300), 10), 4);
    source_under(d)->microseconds = 300;
    mirt__batch b;
    mirt__dataset_begin(d, 11, 0);
    for (int i = 0; i < 10 && mirt__dataset_next(d, &b) == MIRT_OK && b.rows; i++) {
        simulated_sleep(0.02);
    }
    ok(source_under(d)->most <= 4, "a consumer that does not wait needs few of them (%d)", source_under(d)->most);
    mirt_dataset_destroy(d);
    simulated_end();
}
#endif

static void test_drop_remainder(void) {
    int64_t batches;
    for (int made = 0; made < 3; made++) {
        mirt_dataset *d = made ? source_of(23) : mirt_arrays(images_x(0, 23), images_y(0, 23));
        if (made == 2) d = mirt_repeat(d, 1); /* a stream */
        d = mirt_batch_drop_remainder(d, 5);
        ok(mirt_dataset_size(d) == 20 && mirt_dataset_batches(d) == 4 &&
               epoch_is(d, 0, NULL, 20, false, &batches) == 20 && batches == 4,
           "23 samples in full batches of 5");
        mirt_dataset_destroy(d);
    }
    ok(!mirt_batch_drop_remainder(source_of(23), 24) &&
           strcmp(mirt_last_error(), "mirt_batch_drop_remainder(24) leaves none of 23 samples") == 0,
       "%s", mirt_last_error());
    mirt_dataset *d = mirt_take(mirt_batch_drop_remainder(mirt_repeat(source_of(7), 0), 5), 3);
    ok(mirt_dataset_size(d) == 15 && mirt_dataset_batches(d) == 3, "and of a stream without end");
    mirt_dataset_destroy(d);
}

/* >>a custom source */

typedef struct counter {
    int64_t epoch, fails, ends;
    int passes, calls; /* atomic */
} counter;

static int count_begin(int64_t epoch, void *user) {
    counter *c = (counter *)user;
    c->epoch = epoch;
    c->passes++;
    return epoch == 99 ? 5 : 0;
}

static int count_next(void *const *out, int64_t index, void *user) {
    counter *c = (counter *)user;
    __atomic_add_fetch(&c->calls, 1, __ATOMIC_RELAXED);
    if (index == c->ends) return MIRT_END_OF_DATA;
    if (c->fails && index >= c->fails) return 3;
    for (int i = 0; i < 3; i++) ((float *)out[0])[i] = (float)(index * 3 + i + 1000 * c->epoch);
    *(int32_t *)out[1] = (int32_t)(index + 7);
    if (index % 2) *(float *)out[2] = 0.5f;
    return 0;
}

static mirt_generator_desc counting(counter *c, int64_t samples, bool any_order) {
    mirt_generator_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(c, 0, sizeof *c);
    c->ends = -1;
    desc.fn = count_next;
    desc.begin = count_begin;
    desc.user = c;
    desc.x[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(3));
    desc.y[0].dtype = MIRT_INT32;
    desc.num_x = desc.num_y = 1;
    desc.weights = true;
    desc.samples = samples;
    desc.any_order = any_order;
    return desc;
}

/* Samples of an epoch, -1 at one that is not right. */
static int64_t count_epoch(mirt_dataset *d, int64_t epoch, bool in_order) {
    mirt__batch b;
    int64_t seen = 0;
    if (mirt__dataset_begin(d, 1, epoch) != MIRT_OK) return -2;
    for (;;) {
        if (mirt__dataset_next(d, &b) != MIRT_OK) return -3;
        if (b.rows == 0) return seen;
        for (int64_t row = 0; row < b.rows; row++, seen++) {
            int64_t i = b.index[row];
            const float *x = (const float *)b.field[0] + 3 * row;
            if ((in_order && i != seen) || x[0] != (float)(i * 3 + 1000 * epoch) || x[2] != x[0] + 2 ||
                ((const int32_t *)b.field[1])[row] != (int32_t)(i + 7) ||
                ((const float *)b.field[2])[row] != (i % 2 ? 0.5f : 1.0f))
                return -1;
        }
    }
}

static void test_generator(void) {
    counter c;
    for (int kind = 0; kind < 4; kind++) {
        mirt_generator_desc desc = counting(&c, kind == 1 ? 0 : 50, kind >= 2);
        mirt_dataset *d = mirt_dataset_from_generator(&desc);
        if (kind == 1) c.ends = 50;
        if (kind == 3) d = mirt_shuffle(d, 1);
        d = mirt_prefetch(mirt_batch(workers_of(d, 3), 8), 2);
        ok(mirt_dataset_size(d) == (kind == 1 ? -1 : 50) && count_epoch(d, 0, kind < 3) == 50 &&
               count_epoch(d, 1, kind < 3) == 50 && c.passes == 2 && c.calls == (kind == 1 ? 102 : 100),
           "samples of a function, %s",
           kind == 0   ? "so many"
           : kind == 1 ? "until it ends"
           : kind == 2 ? "in any order"
                       : "shuffled");
        c.fails = 33;
        ok(count_epoch(d, 2, false) == -3 &&
               strstr(mirt_last_error(),
                      kind == 3 ? "the generator returned 3 for sample " : "the generator returned 3 for sample 33"),
           "that fails: %s", mirt_last_error());
        ok(count_epoch(d, 99, false) == -2 &&
               strcmp(mirt_last_error(), "the generator returned 5 at the beginning of epoch 99") == 0,
           "%s", mirt_last_error());
        mirt_dataset_destroy(d);
    }
    for (int bad = 0; bad < 8; bad++) {
        static const char *const part[8] = {"needs a function", "needs a function", "0 inputs",
                                            "9 labels",         "-1 samples",       "in any order need their number",
                                            "7 dimensions",     "unknown dtype 77"};
        mirt_generator_desc desc = counting(&c, 9, false);
        if (bad == 1) desc.fn = NULL;
        if (bad == 2) desc.num_x = 0;
        if (bad == 3) desc.num_y = 9;
        if (bad == 4) desc.samples = -1;
        if (bad == 5) desc.samples = 0;
        if (bad == 5) desc.any_order = true;
        if (bad == 6) desc.x[0].shape.rank = 7;
        if (bad == 7) desc.y[0].dtype = (mirt_dtype)77;
        mirt_dataset *d = mirt_dataset_from_generator(bad ? &desc : NULL);
        ok(!d && strstr(mirt_last_error(), part[bad]), "refused: %s", mirt_last_error());
        mirt_dataset_destroy(d);
    }
}

/* >>caches in files */

static mirt_dataset *cached(const char *path, int64_t samples, const char *map_name, uint64_t identity, int workers) {
    mirt_cache_desc cache;
    mirt_map_desc map;
    memset(&cache, 0, sizeof cache);
    memset(&map, 0, sizeof map);
    map.fn = turn;
    map.name = map_name;
    cache.file = path;
    mirt_dataset *d = source_of(samples);
    d->identity = identity;
    source_under(d)->every = 10;
    source_under(d)->home = pthread_self();
    return mirt_batch(mirt_cache_with(workers_of(mirt_map(d, &map), workers), &cache), 16);
}

/* What an epoch of cached samples gives; how many of them were made for it into *made. */
static int64_t cached_epoch(mirt_dataset *d, int samples, int *made) {
    int64_t expect[IMAGES], batches, count = 0;
    source_dataset *source = source_under(d); /* gone after the first epoch */
    for (int i = 0; i < samples; i++) {
        if (i % 10) expect[count++] = i;
    }
    *made = 0;
    source->made = made;
    int64_t got = epoch_is(d, 0, expect, count, true, &batches);
    return got == count ? got : got < 0 ? got : -9;
}

static void spoil(const char *path, long at, int how) {
    FILE *f = fopen(path, "r+b");
    if (!f) return;
    if (how == 0) {
        fseek(f, at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(c ^ 1, f);
    } else if (how == 1 && ftruncate(fileno(f), at)) {
        printf("# not shortened\n");
    }
    fclose(f);
}

/* Gives a record of the file another index, and the checksum that belongs to it. */
static void move_sample(const char *path, long record, int64_t index) {
    unsigned char bytes[IMAGE + 1 + 16];
    FILE *f = fopen(path, "r+b");
    if (!f) return;
    fseek(f, record, SEEK_SET);
    if (fread(bytes, 1, sizeof bytes, f) != sizeof bytes) printf("# too short\n");
    memcpy(bytes + IMAGE + 1, &index, sizeof index);
    const uint32_t crc = mirt__crc32c(0, bytes, IMAGE + 1 + sizeof index);
    memcpy(bytes + IMAGE + 1 + sizeof index, &crc, sizeof crc);
    fseek(f, record, SEEK_SET);
    fwrite(bytes, 1, sizeof bytes, f);
    fclose(f);
}

static void test_cache_file(void) {
    char path[300];
    int made;
    int64_t batches;
    snprintf(path, sizeof path, "%s/cache", work_directory());
    static const struct { const char *what, *name; int samples; uint64_t identity; int workers, made;
    } run[] = {
        {"written", "a", 150, 1, 1, 150},           {"found again", "a", 150, 1, 3, 0},
        {"of another source", "a", 150, 2, 3, 150}, {"of another map", "b", 150, 2, MIRT_AUTOTUNE, 150},
        {"of fewer samples", "b", 140, 2, 2, 140},  {"found again", "b", 140, 2, 2, 0},
    };
    for (int i = 0; i < (int)(sizeof run / sizeof *run); i++) {
        mirt_dataset *d = cached(path, run[i].samples, run[i].name, run[i].identity, run[i].workers);
        int64_t got = cached_epoch(d, run[i].samples, &made), again = epoch_is(d, 3, NULL, 0, true, &batches);
        ok(got == run[i].samples * 9 / 10 && made == run[i].made && again == -1,
           "a file of samples, %s: %d samples, %d made", run[i].what, (int)got, made);
        mirt_dataset_destroy(d);
    }
    const long record = IMAGE + 1 + 16; /* index and checksum follow each sample */
    size_t size;
    free(file_bytes(path, &size));
    const long head = (long)size - 140 * record;
    for (int i = 0; i < 5; i++) { /* what is no whole file is written anew */
        spoil(path, i == 0 ? 0 : i == 1 ? head - 1 : i == 2 ? head + 140 * record - 1 : i == 3 ? 5 : 0, i < 2 ? 0 : 1);
        mirt_dataset *d = cached(path, 140, "b", 2, 2);
        int64_t got = cached_epoch(d, 140, &made);
        ok(got == 126 && made == 140, "a damaged or shortened file is written anew (%d, %d made)", (int)got, made);
        mirt_dataset_destroy(d);
    }
    for (int i = 0; i < 3; i++) {
        spoil(path, head + 33 * record + (i == 0 ? 5 : i == 1 ? IMAGE + 1 : IMAGE + 1 + 8), 0);
        mirt_dataset *d = cached(path, 140, "b", 2, 2);
        int64_t got = cached_epoch(d, 140, &made);
        ok(got == -3 && mirt_last_status() == MIRT_E_FORMAT &&
               strstr(mirt_last_error(), "sample 33 of the cache is damaged"),
           "a damaged sample is named: %s", mirt_last_error());
        spoil(path, head + 33 * record + (i == 0 ? 5 : i == 1 ? IMAGE + 1 : IMAGE + 1 + 8), 0);
        mirt_dataset_destroy(d);
    }
    for (int i = 0; i < 4; i++) { /* memory is kept for each index up to the largest */
        const int64_t index[] = {140, (int64_t)1 << 40, -1, 33};
        move_sample(path, head + 33 * record, index[i]);
        mirt_dataset *d = cached(path, 140, "b", 2, 2);
        int64_t got = cached_epoch(d, 140, &made);
        if (index[i] == 33) ok(got == 126, "a sample with its own index is read");
        else
            ok(got == -3 && mirt_last_status() == MIRT_E_FORMAT &&
                   strstr(mirt_last_error(), "sample 33 of the cache is damaged"),
               "index %lld of a cache of 140 samples: %s", (long long)index[i], mirt_last_error());
        mirt_dataset_destroy(d);
    }
    for (int seed = 1; seed <= 3; seed++) { /* pictures of another seed in the same file */
        mirt_cache_desc desc;
        mirt__batch one, other;
        memset(&desc, 0, sizeof desc);
        desc.file = path;
        mirt_dataset *kept = mirt_cache_with(mirt_drawn_photos(5, 16, 16, seed < 3 ? (uint64_t)seed : 2, MIRT_TRAIN),
                                             &desc),
                     *fresh = mirt_drawn_photos(5, 16, 16, seed < 3 ? (uint64_t)seed : 2, MIRT_TRAIN);
        bool same = mirt__dataset_begin(kept, 0, 0) == MIRT_OK && mirt__dataset_begin(fresh, 0, 0) == MIRT_OK;
        for (int i = 0; i < 5 && same; i++) {
            same = mirt__dataset_next(kept, &one) == MIRT_OK && mirt__dataset_next(fresh, &other) == MIRT_OK &&
                   one.rows && other.rows && memcmp(one.field[0], other.field[0], 16 * 16 * 3) == 0 &&
                   memcmp(one.field[1], other.field[1], 4) == 0;
        }
        ok(same, "pictures from the cache are those drawn");
        mirt_dataset_destroy(kept);
        mirt_dataset_destroy(fresh);
    }
    mirt_dataset *d = cached("/nowhere/at/all", 20, "b", 2, 2);
    ok(cached_epoch(d, 20, &made) == -2 && mirt_last_status() == MIRT_E_NOT_FOUND, "no such directory: %s",
       mirt_last_error());
    mirt_dataset_destroy(d);
    d = cached(work_directory(), 20, "b", 2, 2);
    ok(cached_epoch(d, 20, &made) == -2, "a directory is no file: %s", mirt_last_error());
    mirt_dataset_destroy(d);
    mirt_cache_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.budget_bytes = 150 * (IMAGE + 1);
    d = mirt_cache_with(source_of(150), &desc);
    ok(d != NULL, "a cache of just its budget");
    mirt_dataset_destroy(d);
    desc.budget_bytes--;
    d = mirt_cache_with(source_of(150), &desc);
    ok(!d && mirt_last_status() == MIRT_E_NOMEM, "%s", mirt_last_error());
    desc.budget_bytes = 0;
    desc.file = "";
    ok(!mirt_cache_with(source_of(150), &desc), "%s", mirt_last_error());
    unlink(path);
    rmdir(work_directory());
}

static void test_refusals(void) {
    mirt_dataset *d = mirt_batch(source_of(9), 4);
    mirt__batch b;
    ok(mirt_dataset_workers(NULL, 2) == MIRT_E_INVALID && mirt_dataset_workers(d, 0) == MIRT_E_INVALID &&
           strcmp(mirt_last_error(), "mirt_dataset_workers(0): the number must be 1 to 256, or MIRT_AUTOTUNE") == 0 &&
           mirt_dataset_workers(d, 257) == MIRT_E_INVALID && mirt_dataset_workers(d, -2) == MIRT_E_INVALID &&
           mirt_dataset_workers(d, 256) == MIRT_OK && mirt_dataset_workers(d, 2) == MIRT_OK,
       "%s", mirt_last_error());
    ok(mirt__dataset_begin(d, 0, 0) == MIRT_OK && mirt__dataset_next(d, &b) == MIRT_OK &&
           mirt_dataset_workers(d, 3) == MIRT_E_STATE,
       "%s", mirt_last_error());
    mirt_dataset_destroy(d);
}

/* Training on shuffled, mapped images of which some are skipped: the same bits for any number of workers. */
static void test_training(void) {
    char first[MIRT__SHA256_HEX], sha[MIRT__SHA256_HEX];
    for (int n = 0; n < (int)(sizeof numbers / sizeof *numbers); n++) {
        mirt_fit_desc fit;
        memset(&fit, 0, sizeof fit);
        fit.epochs = 2;
        fit.no_progress = true;
        mirt_strategy *s = strategy_of(1, 2, 1);
        mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.25f);
        mirt_dataset *d = mirt_prefetch(mirt_batch(map_of(mirt_shuffle(source_of(150), 1), NULL), 16), 3);
        source_under(d)->every = 9;
        workers_of(d, numbers[n]);
        bool trained = mirt_fit(m, d, &fit) != NULL;
        digest_weights(m, 0, n ? sha : first);
        ok(trained && (n == 0 || strcmp(sha, first) == 0), "%d workers: the same weights, %s", numbers[n],
           n ? sha : first);
        mirt_dataset_destroy(d);
        mirt_strategy_destroy(s);
    }
}

/* >>waiting for input */

typedef struct waiting {
    char line[400]; /* the last of an epoch */
    double waited, seconds;
    int wrong, steps;
} waiting;

static void keep_line(mirt_log_level level, const char *line, void *user) {
    if (level == MIRT_LOG_PROGRESS) snprintf(((waiting *)user)->line, sizeof ((waiting *)user)->line, "%s", line);
}

static int note_waiting(const mirt_event *event, void *user) {
    waiting *w = (waiting *)user;
    w->wrong += event->input_seconds < w->waited || event->input_seconds > event->seconds;
    w->waited = event->input_seconds;
    w->seconds = event->seconds;
    w->steps++;
    return 0;
}

void hook_point(int point, int device, int number) {
    (void)device, (void)number;
    if (simulated.on && point == MIRT__POINT_REPLAY) simulated_sleep(5e-3);
}

static void test_waiting(void) {
    for (int slow = 0; slow < 2; slow++) {
        simulated_begin(20e-6, 1);
        waiting w;
        mirt_fit_desc fit;
        mirt_callback callback;
        memset(&w, 0, sizeof w);
        memset(&fit, 0, sizeof fit);
        memset(&callback, 0, sizeof callback);
        callback.user = &w;
        callback.batch_end = note_waiting;
        fit.callbacks[0] = &callback;
        mirt_strategy_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.devices = "1";
        desc.log = keep_line;
        desc.log_user = &w;
        mirt_strategy *s = mirt_strategy_create(&desc);
        mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
        mirt_dataset *d = slow ? workers_of(source_of(96), 1) : mirt_arrays(images_x(0, 96), images_y(0, 96));
        if (slow) source_under(d)->microseconds = 3000;
        mirt_history *h = mirt_fit(m, d, &fit);
        ok(h && w.steps == 3 && w.wrong == 0 && h->input_seconds >= w.waited && h->input_seconds <= h->seconds &&
               (slow ? h->input_seconds > 0.1 && h->input_seconds > h->seconds / 2 &&
                           strstr(w.line, " - waited for input: ")
                     : h->input_seconds < 1e-3),
           "%s samples: %.4f of %.4f s waited for input: %s", slow ? "slow" : "fast", h ? h->input_seconds : -1,
           h ? h->seconds : -1, w.line);
        mirt_dataset_destroy(d);
        mirt_strategy_destroy(s);
        simulated_end();
    }
}

int main(void) {
    draw_images();
    test_order();
    test_repeat();
    test_lost_batches();
    test_failures();
    test_breaking_off();
#ifndef MIRRORTRAIN_NO_THREADS
    test_numbers();
#endif
    test_drop_remainder();
    test_generator();
    test_cache_file();
    test_refusals();
    test_training();
    test_waiting();
    return done_testing();
}
