/* Each allocation and each thread of the stages that make samples fails once. A call then reports it, or uses fewer
   threads; nothing leaks, and the same data set works when memory is available again. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SIMULATED_WITHOUT_HOOK_THREAD
#include "simulated_time.h"

/* Counted for all threads at once; number `fails` fails. */
static long blocks_asked, blocks_live, block_fails, threads_asked, thread_fails;

void *hook_malloc(size_t size) {
    if (__atomic_add_fetch(&blocks_asked, 1, __ATOMIC_SEQ_CST) == block_fails) return NULL;
    void *block = malloc(size);
    if (block) __atomic_add_fetch(&blocks_live, 1, __ATOMIC_SEQ_CST);
    return block;
}

void hook_free(void *block) {
    __atomic_sub_fetch(&blocks_live, 1, __ATOMIC_SEQ_CST);
    free(block);
}

int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg) {
    return __atomic_add_fetch(&threads_asked, 1, __ATOMIC_SEQ_CST) == thread_fails ? 11 /* EAGAIN */
                                                                                   : simulated_create(thread, fn, arg);
}

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { SAMPLES = 61, KINDS = 7 };

static int number_of(void *const *out, int64_t index, void *user) {
    (void)user;
    *(int32_t *)out[0] = (int32_t)index;
    *(int32_t *)out[1] = (int32_t)(2 * index);
    return 0;
}

/* Slow, so that threads are asked for. */
static int thrice(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)user;
    (void)index;
    simulated_sleep(200e-6);
    *(int32_t *)out[0] = 3 * *(const int32_t *)in[0];
    return 0;
}

static char path[300];

static mirt_dataset *chain(int kind) {
    mirt_generator_desc generator;
    mirt_map_desc map;
    mirt_cache_desc cache;
    memset(&generator, 0, sizeof generator);
    memset(&map, 0, sizeof map);
    memset(&cache, 0, sizeof cache);
    generator.fn = number_of;
    generator.num_x = generator.num_y = 1;
    generator.x[0].dtype = generator.y[0].dtype = MIRT_INT32;
    generator.samples = SAMPLES;
    generator.any_order = kind != 5;
    map.fn = thrice;
    cache.file = kind == 3 ? path : NULL;
    mirt_dataset *d = mirt_map(mirt_dataset_from_generator(&generator), &map);
    if (kind == 2 || kind == 3) d = mirt_cache_with(d, &cache);
    d = mirt_shuffle(d, 100);
    if (kind == 4) d = mirt_take(mirt_skip(mirt_repeat(d, 2), SAMPLES), SAMPLES);
    if (d && kind != 6) mirt_dataset_workers(d, 3);
    d = mirt_batch(d, 8);
    return kind == 0 ? d : mirt_prefetch(d, kind == 1 ? 1 : MIRT_AUTOTUNE);
}

/* MIRT_OK: two epochs were whole. */
static mirt_status passes(mirt_dataset *d) {
    for (int epoch = 0; epoch < 2; epoch++) {
        mirt__batch b;
        int64_t seen = 0, sum = 0;
        mirt_status status = mirt__dataset_begin(d, 1, epoch);
        while (status == MIRT_OK && (status = mirt__dataset_next(d, &b)) == MIRT_OK && b.rows) {
            for (int64_t row = 0; row < b.rows; row++, seen++) {
                int32_t i = (int32_t)b.index[row];
                if (((const int32_t *)b.field[0])[row] != 3 * i || ((const int32_t *)b.field[1])[row] != 2 * i)
                    return MIRT_E_FORMAT;
                sum += i;
            }
        }
        if (status != MIRT_OK) return status;
        if (seen != SAMPLES || sum != SAMPLES * (SAMPLES - 1) / 2) return MIRT_E_FORMAT;
    }
    return MIRT_OK;
}

static void check_kind(int kind, bool threads) {
    static const char *const name[KINDS] = {"no prefetch", "prefetch", "a cache", "a cache in a file",
                                            "repeated",    "a stream", "tuned"};
    long *asked = threads ? &threads_asked : &blocks_asked, *fails = threads ? &thread_fails : &block_fails, tried = 0;
    int wrong = 0, refused = 0, survived = 0, leaks = 0, lost = 0;
    for (bool done = false; !done && tried < 500; tried++) {
        long live = blocks_live;
        unlink(path);
        *asked = 0;
        *fails = tried + 1;
        mirt_dataset *d = chain(kind);
        mirt_status status = d ? passes(d) : mirt_last_status();
        done = *asked <= tried; /* nothing was left to fail */
        *fails = 0;
        if (status == MIRT_OK) survived++;
        else if (status == (threads ? MIRT_E_THREAD : MIRT_E_NOMEM)) refused++;
        else wrong++;
        if (d && passes(d) != MIRT_OK) lost++;
        mirt_dataset_destroy(d);
        leaks += blocks_live != live;
    }
    ok(wrong == 0 && leaks == 0 && lost == 0 && tried < 500 && (refused > 0 || kind >= 5 || (threads && kind == 0)),
       "%s, each of %ld %s fails: %d refused, %d done, nothing leaks (%d), works again (%d), other errors (%d)",
       name[kind], tried - 1, threads ? "threads" : "allocations", refused, survived, leaks, lost, wrong);
}

int main(void) {
    snprintf(path, sizeof path, "%s/cache", work_directory());
    simulated_begin(20e-6, 4);
    for (int kind = 0; kind < KINDS; kind++) check_kind(kind, false);
#ifndef MIRRORTRAIN_NO_THREADS
    for (int kind = 0; kind < KINDS; kind++) check_kind(kind, true);
#endif
    simulated_end();
    unlink(path);
    rmdir(work_directory());
    return done_testing();
}
