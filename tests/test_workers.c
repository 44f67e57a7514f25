/* Threads that make samples: whatever their number, the same samples in the same order; and whatever goes wrong. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <pthread.h>

/* A costly source: the synthetic images, some of which cannot be made. */
typedef struct source_dataset {
    mirt_dataset base;
    int64_t fails;       /* this sample, and the ones behind it */
    int lost[2];         /* samples [lost[0], lost[1]) are skipped, */
    int every;           /* and every so many */
    long microseconds;   /* that each takes, the first of them longest */
    int at_once, most;   /* threads in make, atomic; the most there have been */
    int made;            /* atomic */
    bool elsewhere;      /* a thread that is not the one that built this has been here */
    pthread_t home;
} source_dataset;

static mirt_status source_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field, int64_t *index) {
    source_dataset *source = (source_dataset *)dataset;
    int now = __atomic_add_fetch(&source->at_once, 1, __ATOMIC_RELAXED), most = __atomic_load_n(&source->most, __ATOMIC_RELAXED);
    while (now > most && !__atomic_compare_exchange_n(&source->most, &most, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
    __atomic_add_fetch(&source->made, 1, __ATOMIC_RELAXED);
    if (!pthread_equal(pthread_self(), source->home)) __atomic_store_n(&source->elsewhere, true, __ATOMIC_RELAXED);
    if (source->microseconds) {
        struct timespec time = {0, source->microseconds * 1000 * (i % 7 == 0 ? 3 : 1)};
        nanosleep(&time, NULL);
    }
    *index = i;
    uint8_t *room = (uint8_t *)mirt__work_room(work, dataset, IMAGE);
    mirt_status status = room ? MIRT_OK : MIRT_E_NOMEM;
    if ((i >= source->lost[0] && i < source->lost[1]) || (source->every && i % source->every == 0)) status = MIRT__SKIPPED;
    else if (source->fails && i >= source->fails) status = mirt__fail(MIRT_E_FORMAT, "image %lld is damaged", (long long)i);
    else if (room && field) {
        memcpy(room, image_pixels[i], IMAGE);
        memcpy(field[0], room, IMAGE);
        memcpy(field[1], &image_classes[i], 1);
    }
    __atomic_sub_fetch(&source->at_once, 1, __ATOMIC_RELAXED);
    return status;
}

static const mirt__stage source_stage = {mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, source_make,
                                         mirt__dataset_fill_made, NULL, NULL};

static mirt_dataset *source_of(int64_t samples) {
    mirt_dataset *d = mirt__dataset_new(sizeof(source_dataset), &source_stage, NULL, false);
    mirt__data_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.samples = samples;
    spec.num_x = spec.num_y = 1;
    mirt__data_add_field(&spec, MIRT_UINT8, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1));
    mirt__data_add_field(&spec, MIRT_UINT8, mirt_make_shape(0, 0, 0, 0, 0, 0));
    mirt__dataset_set_spec(d, &spec);
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

/* Runs through an epoch: rows seen, or -1 at a row that is not what `expect` lists (NULL: the source's order), turned over or not. */
static int64_t epoch_is(mirt_dataset *d, int64_t epoch, const int64_t *expect, int64_t count, bool turned, int64_t *batches) {
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
            if (seen >= count || i != (expect ? expect[seen] : seen) || ((const uint8_t *)b.field[1])[row] != image_classes[i]) return -1;
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
        if (order[i] % every) out[count++] = order[i];
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
               kind == 0 ? "no prefetch" : kind == 1 ? "prefetch 1" : kind == 2 ? "slow samples" : kind == 3 ? "epochs broken off" : kind == 4 ? "batches of 1" : "a cache");
            mirt_dataset_destroy(d);
        }
    }
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
            ok(got == count && batches == (ahead == 1 ? 3 : 5), "%d workers: batches that lose all their rows are passed over (%d of %d)", numbers[n], (int)got, (int)count);
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
            ok(got == -3 && mirt_last_status() == MIRT_E_CALLBACK && strcmp(mirt_last_error(), "turn gave the code 7 for sample 57") == 0,
               "%d workers: the first sample that fails is named: %s", numbers[n], mirt_last_error());
            fails = 1000;
            ok(epoch_is(d, 1, NULL, 200, true, &batches) == 200, "and the next epoch is whole");
            source_under(d)->fails = 100;
            got = epoch_is(d, 2, NULL, 200, true, &batches);
            ok(got == -3 && mirt_last_status() == MIRT_E_FORMAT && strcmp(mirt_last_error(), "image 100 is damaged") == 0, "so is a damaged one: %s", mirt_last_error());
            mirt_dataset_destroy(d);
        }
    }
}

static void test_breaking_off(void) {
    int good = 0;
    for (int i = 0; i < 60; i++) {
        mirt__batch b;
        mirt_dataset *d = mirt_prefetch(mirt_batch(workers_of(map_of(mirt_shuffle(source_of(100), 9), NULL), 1 + i % 5), 1 + i % 9), 1 + i % 4);
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
    setenv("MIRT_CORES", "6", 1);
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
        ok(source_under(d)->most > 2 && source_under(d)->most <= 6, "slow samples get threads, at most one a core (%d)", source_under(d)->most);
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
        struct timespec time = {0, 20000000};
        nanosleep(&time, NULL);
    }
    ok(source_under(d)->most <= 4, "a consumer that does not wait needs few of them (%d)", source_under(d)->most);
    mirt_dataset_destroy(d);
    unsetenv("MIRT_CORES");
}
#endif

static void test_drop_remainder(void) {
    int64_t batches;
    for (int made = 0; made < 3; made++) {
        mirt_dataset *d = made ? source_of(23) : mirt_arrays(images_x(0, 23), images_y(0, 23));
        if (made == 2) d = mirt_repeat(d, 1); /* a stream */
        d = mirt_batch_drop_remainder(d, 5);
        ok(mirt_dataset_size(d) == 20 && mirt_dataset_batches(d) == 4 && epoch_is(d, 0, NULL, 20, false, &batches) == 20 && batches == 4,
           "23 samples in full batches of 5");
        mirt_dataset_destroy(d);
    }
    ok(!mirt_batch_drop_remainder(source_of(23), 24) && strcmp(mirt_last_error(), "mirt_batch_drop_remainder(24) leaves nothing of 23 samples") == 0, "%s", mirt_last_error());
    mirt_dataset *d = mirt_take(mirt_batch_drop_remainder(mirt_repeat(source_of(7), 0), 5), 3);
    ok(mirt_dataset_size(d) == 15 && mirt_dataset_batches(d) == 3, "and of a stream without end");
    mirt_dataset_destroy(d);
}

static void test_refusals(void) {
    mirt_dataset *d = mirt_batch(source_of(9), 4);
    mirt__batch b;
    ok(mirt_dataset_workers(NULL, 2) == MIRT_E_INVALID && mirt_dataset_workers(d, 0) == MIRT_E_INVALID &&
           strcmp(mirt_last_error(), "mirt_dataset_workers(0): 1 to 256 are possible, or MIRT_AUTOTUNE") == 0 &&
           mirt_dataset_workers(d, 257) == MIRT_E_INVALID && mirt_dataset_workers(d, -2) == MIRT_E_INVALID && mirt_dataset_workers(d, 256) == MIRT_OK &&
           mirt_dataset_workers(d, 2) == MIRT_OK, "%s", mirt_last_error());
    ok(mirt__dataset_begin(d, 0, 0) == MIRT_OK && mirt__dataset_next(d, &b) == MIRT_OK && mirt_dataset_workers(d, 3) == MIRT_E_STATE, "%s", mirt_last_error());
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
        ok(trained && (n == 0 || strcmp(sha, first) == 0), "%d workers: the same weights, %s", numbers[n], n ? sha : first);
        mirt_dataset_destroy(d);
        mirt_strategy_destroy(s);
    }
}

int main(void) {
    draw_images();
    test_order();
    test_lost_batches();
    test_failures();
    test_breaking_off();
#ifndef MIRRORTRAIN_NO_THREADS
    test_numbers();
#endif
    test_drop_remainder();
    test_refusals();
    test_training();
    return done_testing();
}
