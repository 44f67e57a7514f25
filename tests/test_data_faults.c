/* Data sets while system calls and allocations fail, one at a time. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* Worker threads make these calls, too: everything here is atomic. */
enum { MEMORY, OPEN, READ, WRITE, SYNC, CLOSE, RENAME, LOOK, CALLS };
static const char *const call_names[CALLS] = {"allocating", "opening", "reading",  "writing",
                                              "syncing",    "closing", "renaming", "looking at a file"};
static int failing = -1;
static long calls, number, live_blocks;

static bool fails_now(int call) {
    return call == __atomic_load_n(&failing, __ATOMIC_SEQ_CST) &&
           __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) == number;
}
static int failed(int call) { return fails_now(call) ? (errno = EIO, 1) : 0; }

void *hook_malloc(size_t size) {
    void *block = fails_now(MEMORY) ? NULL : malloc(size);
    if (block) __atomic_add_fetch(&live_blocks, 1, __ATOMIC_SEQ_CST);
    return block;
}
void hook_free(void *block) {
    __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_SEQ_CST);
    free(block);
}
int hook_open(const char *path, int flags, unsigned mode) { return failed(OPEN) ? -1 : open(path, flags, mode); }
ssize_t hook_pread(int fd, void *data, size_t size, off_t at) { return failed(READ) ? -1 : pread(fd, data, size, at); }
ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t at) {
    return failed(WRITE) ? -1 : pwrite(fd, data, size, at);
}
int hook_fsync(int fd) { return failed(SYNC) ? -1 : fsync(fd); }
int hook_close(int fd) {
    const bool fail = fails_now(CLOSE);
    const int result = close(fd);
    if (fail) errno = EIO;
    return fail ? -1 : result;
}
int hook_rename(const char *from, const char *to) { return failed(RENAME) ? -1 : rename(from, to); }
int hook_fstat(int fd, struct stat *info) { return failed(LOOK) ? -1 : fstat(fd, info); }
int hook_stat(const char *path, struct stat *info) { return failed(LOOK) ? -1 : stat(path, info); }

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "image_util.h"
#include "mirror_util.h"
#include "tap.h"

enum { SAMPLES = 6, SIDE = 4 };
static uint8_t pixels[SAMPLES * SIDE * SIDE], labels[SAMPLES];

static const char *in_work(const char *name) {
    static char path[8][400];
    static int next;
    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[next], "%s/%s", work_directory(), name);
    return path[next];
}

static void write_bytes(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    if (f) fwrite(data, 1, size, f), fclose(f);
}

/* An IDX file, and the same packed by gzip without compression. */
static void write_idx(const char *name, const uint8_t *data, int rank, size_t size) {
    uint8_t file[400] = {0, 0, 8, (uint8_t)rank, 0, 0, 0, SAMPLES, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    uint8_t packed[500] = {31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 1};
    const size_t head = 4 + 4 * (size_t)rank, all = head + size;
    char gz[32];
    memcpy(file + head, data, size);
    write_bytes(in_work(name), file, all);
    const uint32_t crc = image_crc(file, all);
    packed[11] = (uint8_t)all;
    packed[12] = (uint8_t)(all >> 8);
    packed[13] = (uint8_t)~packed[11];
    packed[14] = (uint8_t)~packed[12];
    memcpy(packed + 15, file, all);
    for (int i = 0; i < 4; i++) {
        packed[15 + all + (size_t)i] = (uint8_t)(crc >> 8 * i);
        packed[19 + all + (size_t)i] = i < 2 ? (uint8_t)(all >> 8 * i) : 0;
    }
    snprintf(gz, sizeof gz, "%s.gz", name);
    write_bytes(in_work(gz), packed, 23 + all);
}

static void make_files(void) {
    static unsigned char file[IMAGE_MOST];
    for (int i = 0; i < SAMPLES * SIDE * SIDE; i++) pixels[i] = (uint8_t)(i * 37);
    for (int i = 0; i < SAMPLES; i++) labels[i] = (uint8_t)(i % 2);
    write_idx("images", pixels, 3, sizeof pixels);
    write_idx("labels", labels, 1, sizeof labels);
    for (int i = 0; i < SAMPLES; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s", in_work(i % 2 ? "tree/b" : "tree/a"));
        mirt__make_directory(path);
        snprintf(path + strlen(path), sizeof path - strlen(path), "/%d.bmp", i);
        image_write_file(path, file, image_write_bmp(file, 5, 6));
    }
    image_write_file(in_work("list.csv"), "path,label\n\"tree/a/0.bmp\",x\ntree/b/1.bmp,y\n", 43);
}

static int add_one(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)index, (void)user;
    ((uint8_t *)out[0])[0]++;
    return 0;
}
static mirt_dataset *mapped(mirt_dataset *d) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = add_one;
    map.name = "adding";
    map.add_weights = true;
    return mirt_map(d, &map);
}
static mirt_dataset *cached(mirt_dataset *d) {
    mirt_cache_desc cache;
    memset(&cache, 0, sizeof cache);
    cache.file = in_work("cache");
    return mirt_cache_with(d, &cache);
}
static mirt_dataset *augmented(mirt_dataset *d) {
    mirt_augmentation list[4];
    const int count = mirt_parse_augmentation("flip,rotation:0.1,crop:3", list, 4);
    return mirt_augment(d, list, count);
}
static mirt_dataset *one_worker(mirt_dataset *d) {
    if (d && mirt_dataset_workers(d, 1) == MIRT_OK) return d;
    mirt_dataset_destroy(d);
    return NULL;
}
static mirt_dataset *plain(void) { return mirt_idx(in_work("images"), in_work("labels")); }

/* The data sets; the second of a kind finds the file that the first one leaves. */
static mirt_dataset *make(int index) {
    mirt_image_directory_desc desc;
    mirt_dataset *both[2] = {NULL, NULL};
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = 4;
    desc.batch_size = 2;
    desc.has_seed = true;
    switch (index) {
    case 0: return mirt_batch(plain(), 4);
    case 1: return mirt_batch(mirt_idx(in_work("images.gz"), in_work("labels.gz")), 4);
    case 2: unlink(in_work("cache")); /* and as 3 */
    /* fall through */
    case 3: return one_worker(mirt_batch(cached(mapped(plain())), 4));
    case 4: return one_worker(mirt_batch(mirt_shuffle(mirt_cache(mapped(plain())), 3), 4));
    case 5:
        return one_worker(mirt_batch_drop_remainder(augmented(mirt_repeat(mirt_skip(mirt_take(plain(), 5), 1), 2)), 3));
    case 6:
        return mirt_prefetch(
            mirt_accumulate(mirt_batch(mirt_shuffle(mirt_idx(in_work("images.gz"), in_work("labels.gz")), 3), 2), 2),
            1);
    case 7: return one_worker(mirt_image_dataset_from_directory(in_work("tree"), &desc));
    case 8: return one_worker(mirt_image_dataset_from_csv(in_work("list.csv"), &desc));
    case 9:
        desc.validation_split = 0.34;
        if (mirt_image_datasets_from_directory(in_work("tree"), &desc, &both[0], &both[1]) != MIRT_OK) return NULL;
        mirt_dataset_destroy(both[1]);
        return one_worker(both[0]);
    default: return one_worker(mirt_batch(mirt_drawn_photos(5, 8, 8, 1, MIRT_TRAIN), 2));
    }
}
enum { KINDS = 11 };
static const char *const kind_names[KINDS] = {"IDX",
                                              "packed IDX",
                                              "a new cache file",
                                              "a cache file",
                                              "a cache, shuffled",
                                              "augmented, a part, repeated",
                                              "prefetched",
                                              "a directory",
                                              "a list",
                                              "a directory that is split",
                                              "drawn photographs"};

/* Two epochs; the rows of both, -1 and the error if it failed. */
static int64_t run(int index) {
    mirt__batch batch;
    int64_t rows = 0;
    mirt_dataset *d = make(index);
    mirt_status status = d ? MIRT_OK : mirt_last_status();
    for (int epoch = 0; epoch < 2 && status == MIRT_OK; epoch++) {
        status = mirt__dataset_begin(d, 3, epoch);
        while (status == MIRT_OK && (status = mirt__dataset_next(d, &batch)) == MIRT_OK && batch.rows)
            rows += batch.rows;
    }
    mirt_dataset_destroy(d);
    return status == MIRT_OK ? rows : -1;
}

/* Allocations that may fail without harm: data sets of images prefetch, and when a step waits they try to add a slot
   (mirt__prefetch_deepen), which depends on timing. Every other failed allocation must be reported. */
static int optional_slots(int kind) { return kind >= 7 && kind <= 9 ? 3 : 0; }

static void check(int kind, int call) {
    const int64_t want = run(kind);
    const long before = __atomic_load_n(&live_blocks, __ATOMIC_SEQ_CST);
    long wrong = 0, met = 0, spared = 0;
    for (number = 1; number < 2000 && wrong < 4; number++) {
        __atomic_store_n(&calls, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&failing, call, __ATOMIC_SEQ_CST);
        const int64_t rows = run(kind);
        __atomic_store_n(&failing, -1, __ATOMIC_SEQ_CST);
        const bool reached = __atomic_load_n(&calls, __ATOMIC_SEQ_CST) >= number;
        const mirt_status status = rows < 0 ? mirt_last_status() : MIRT_OK;
        met += reached;
        spared += reached && rows == want; /* closing what was read, looking for what may be there */
        bool right = reached ? rows == want || (rows < 0 && status == (call == MEMORY ? MIRT_E_NOMEM : status) &&
                                                mirt_last_error()[0])
                             : rows == want;
        right = right && !(call == MEMORY && reached && rows >= 0 && spared > optional_slots(kind)) &&
                __atomic_load_n(&live_blocks, __ATOMIC_SEQ_CST) == before;
        if (!right && wrong++ < 3)
            printf("# %s, %s number %ld: %lld rows of %lld, %s, %ld blocks left\n", kind_names[kind], call_names[call],
                   number, (long long)rows, (long long)want, rows < 0 ? mirt_last_error() : "", live_blocks - before);
        __atomic_store_n(&live_blocks, before, __ATOMIC_SEQ_CST);
        if (!reached) break;
    }
    if (!met && !wrong) return; /* there is no such call */
    ok(!wrong && run(kind) == want && want > 0, "%s: %s fails %ld times, of which %ld do no harm; then it works",
       kind_names[kind], call_names[call], met, spared);
}

int main(void) {
    char command[400];
    mirt_decode_desc desc;
    memset(&desc, 0, sizeof desc);
    make_files();
    const bool decoder = !mirt__decoder_missing(&desc);
    for (int kind = 0; kind < KINDS; kind++) {
        if (!decoder && kind >= 7 && kind <= 9) continue;
        for (int call = 0; call < CALLS; call++) check(kind, call);
    }
    ok(live_blocks == 0, "%ld blocks are left", live_blocks);
    snprintf(command, sizeof command, "rm -rf '%s'", work_directory());
    ok(system(command) == 0, "cleaned up");
    return done_testing();
}
