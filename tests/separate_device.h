#ifndef SEPARATE_DEVICE_H
#define SEPARATE_DEVICE_H
/* A third kind of device, for tests: CPU cores with separate memory, delays and counters. It fills the device table
   where the library looks for GPUs, so that a program with this header has the devices "test:0" to "test:5". */
#include <pthread.h>
#include <time.h>

enum { SEPARATE_DEVICES = 6, SEPARATE_BLOCKS = 64, SEPARATE_LOG = 256 };

/* What the devices of the next strategy can do. */
static mirt__abilities separate_able;

typedef struct separate_block {
    char *memory;
    size_t bytes;
} separate_block;

typedef struct separate_group {
    pthread_barrier_t meeting;
    int members;
} separate_group;

/* An opened device: in front of the CPU's, whose kernels it runs. */
typedef struct separate {
    mirt__handle *core;
    int index;
    separate_block block[SEPARATE_BLOCKS];
    separate_group *group; /* of the devices of a strategy, shared by them */
    bool first;
    int64_t bytes_in, bytes_out, waits, captures;
    int reductions;
    mirt__range reduced[SEPARATE_LOG]; /* in the order of calls */
    int strays;                        /* copies to or from what is not the device's memory */
} separate;

static separate *separate_of(mirt__handle *handle) { return (separate *)(void *)handle; }

static const mirt__backend *separate_cores(void) { return mirt__cores_backend(); }

static void separate_delay(const separate *d) {
    const struct timespec pause = {0, 20000 * (long)(1 + d->index)};
    nanosleep(&pause, NULL);
}

/* Whether the bytes lie in memory of the device. */
static bool separate_owns(const separate *d, const void *memory, size_t bytes) {
    for (int i = 0; i < SEPARATE_BLOCKS; i++) {
        const separate_block *b = &d->block[i];
        const uintptr_t at = (uintptr_t)memory, begin = (uintptr_t)b->memory;
        if (b->memory && at >= begin && bytes <= b->bytes && at - begin <= b->bytes - bytes) return true;
    }
    return false;
}

static int separate_devices(const mirt__host *host) { return (void)host, SEPARATE_DEVICES; }

static bool separate_info(const mirt__host *host, int index, mirt__device_facts *out) {
    (void)host;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "test device %d", index);
    out->memory = (size_t)1 << 30;
    return true;
}

static int separate_threads(int asked, int cores, int devices) { return (void)asked, (void)cores, (void)devices, 1; }

static mirt__handle *separate_open(const mirt__host *host, const mirt__opening *how) {
    separate *d = (separate *)calloc(1, sizeof *d);
    if (!d || !(d->core = separate_cores()->open(host, how))) return free(d), (mirt__handle *)NULL;
    d->index = how->index;
    return (mirt__handle *)(void *)d;
}

static void separate_close(mirt__handle *handle) {
    separate *d = separate_of(handle);
    separate_cores()->close(d->core);
    if (d->first) {
        pthread_barrier_destroy(&d->group->meeting);
        free(d->group);
    }
    free(d);
}

static bool separate_join(mirt__joining *join) {
    separate_group *group = (separate_group *)calloc(1, sizeof *group);
    if (!group || pthread_barrier_init(&group->meeting, NULL, (unsigned)join->count)) return false;
    group->members = join->count;
    for (int i = 0; i < join->count; i++) separate_of(join->handle[i])->group = group;
    separate_of(join->handle[0])->first = true;
    join->able = separate_able;
    join->able.direct = join->able.direct || join->shares || join->count == 1;
    return true;
}

/* Memory that holds NaN until something is written. */
static void *separate_alloc(mirt__handle *handle, size_t bytes) {
    separate *d = separate_of(handle);
    for (int i = 0; i < SEPARATE_BLOCKS; i++) {
        if (d->block[i].memory) continue;
        char *memory = (char *)mirt__aligned_alloc(bytes ? bytes : 1);
        if (!memory) return NULL;
        memset(memory, 0xff, bytes);
        d->block[i].memory = memory;
        d->block[i].bytes = bytes;
        return memory;
    }
    mirt__fail(MIRT_E_NOMEM, "the test device has no more than %d blocks", SEPARATE_BLOCKS);
    return NULL;
}

static void separate_release(mirt__handle *handle, void *memory) {
    separate *d = separate_of(handle);
    for (int i = 0; i < SEPARATE_BLOCKS; i++) {
        if (d->block[i].memory != memory) continue;
        mirt__aligned_free(memory);
        d->block[i].memory = NULL;
    }
}

static size_t separate_free_bytes(mirt__handle *handle) { return (void)handle, (size_t)1 << 30; }

static void separate_copy_in(mirt__handle *handle, void *to, const void *from, size_t bytes, bool early) {
    separate *d = separate_of(handle);
    (void)early;
    d->strays += !separate_owns(d, to, bytes) || separate_owns(d, from, 1);
    d->bytes_in += (int64_t)bytes;
    separate_delay(d);
    memcpy(to, from, bytes);
}

static void separate_copy_out(mirt__handle *handle, void *to, const void *from, size_t bytes) {
    separate *d = separate_of(handle);
    d->strays += !separate_owns(d, from, bytes) || separate_owns(d, to, 1);
    d->bytes_out += (int64_t)bytes;
    separate_delay(d);
    memcpy(to, from, bytes);
}

static void separate_copy(mirt__handle *handle, void *to, const void *from, size_t bytes) {
    separate *d = separate_of(handle);
    d->strays += !separate_owns(d, to, bytes);
    if (to != from) memmove(to, from, bytes);
}

static void separate_clear(mirt__handle *handle, void *memory, size_t bytes) {
    separate *d = separate_of(handle);
    d->strays += bytes && !separate_owns(d, memory, bytes);
    memset(memory, 0, bytes);
}

static void separate_nothing(mirt__handle *handle) { (void)handle; }
static mirt_status separate_wait(mirt__handle *handle) { return separate_of(handle)->waits++, MIRT_OK; }
static void separate_measure(mirt__handle *handle, void (*replay)(void *arg), void *arg, mirt__kernel_room *room) {
    (void)handle, (void)replay, (void)arg, (void)room; /* the CPU's kernels take what the ops declare */
}
static void separate_room(mirt__handle *handle, void *memory, size_t bytes) { (void)handle, (void)memory, (void)bytes; }
static void separate_begin(mirt__handle *handle, const void *owner, uint64_t key) {
    (void)owner, (void)key;
    separate_of(handle)->captures++;
}
static bool separate_end(mirt__handle *handle) { return (void)handle, true; }
static void separate_forget(mirt__handle *handle, const void *owner) { (void)handle, (void)owner; }
static void separate_signal(mirt__handle *handle, int number) { (void)handle, (void)number; }
static void separate_await(mirt__handle *handle, mirt__handle *other, int number) {
    (void)handle, (void)other, (void)number;
}
static double separate_seconds(mirt__handle *handle, int from, int to) { return (void)handle, (void)from, (void)to, 0; }

/* Devices that are not direct meet here: each adds up all elements from the parts of all, then they meet again. */
static void separate_reduce_all(separate *d, const mirt__reduction *r) {
    const int64_t count = r->end - r->begin;
    float *part = (float *)calloc((size_t)(count * (r->parts + 1)), sizeof *part);
    pthread_barrier_wait(&d->group->meeting);
    for (int i = 0; i < r->parts; i++) memcpy(part + i * count, r->part[i] + r->begin, (size_t)count * sizeof *part);
    for (int i = 0; i + 1 < r->parts; i++) {
        for (int64_t k = 0; k < count; k++) part[r->add[i].into * count + k] += part[r->add[i].from * count + k];
    }
    pthread_barrier_wait(&d->group->meeting);
    memcpy(r->sum[r->device] + r->begin, part, (size_t)count * sizeof *part);
    free(part);
}

static void separate_reduce(mirt__handle *handle, const mirt__reduction *r) {
    separate *d = separate_of(handle);
    if (d->reductions < SEPARATE_LOG) {
        d->reduced[d->reductions].begin = r->begin;
        d->reduced[d->reductions++].end = r->end;
    }
    separate_delay(d);
    if (separate_able.direct || d->group->members == 1) separate_cores()->reduce(d->core, r);
    else separate_reduce_all(d, r);
}

/* Every device writes its bytes to the others, or where they are not direct fetches theirs after a meeting. */
static void separate_gather(mirt__handle *handle, char *const *base, const size_t *begin, int devices) {
    separate *d = separate_of(handle);
    int own = 0;
    while (own < devices && !separate_owns(d, base[own], 1)) own++;
    if (!separate_able.direct) pthread_barrier_wait(&d->group->meeting);
    for (int k = 0; k < devices; k++) {
        if (k == own) continue;
        const int from = separate_able.direct ? own : k, to = separate_able.direct ? k : own;
        memcpy(base[to] + begin[from], base[from] + begin[from], begin[from + 1] - begin[from]);
    }
    if (!separate_able.direct) pthread_barrier_wait(&d->group->meeting);
}

static void separate_aggregate(mirt__handle *handle, const mirt__aggregation_job *args) {
    separate_cores()->aggregate(separate_of(handle)->core, args);
}

static void separate_squares(mirt__handle *handle, const mirt__real *block, const mirt__square_piece *piece, int pieces,
                             double *squares) {
    separate_cores()->squares(separate_of(handle)->core, block, piece, pieces, squares);
}

static bool separate_gauge(mirt__handle *handle, mirt__gauges *out) {
    const mirt__gauges gauges = {0.75, 3 << 20, 4 << 20, -1};
    (void)handle;
    *out = gauges;
    return true;
}

extern const mirt__backend *mirt__cuda_backend(void);
const mirt__backend *mirt__cuda_backend(void) {
    static const mirt__backend table = {
        MIRT__BACKEND_VERSION, "test",
        mirt__kernels_best,    separate_devices,   separate_info,    separate_threads,  separate_open,
        separate_close,        separate_join,      separate_alloc,   separate_release,  separate_free_bytes,
        separate_copy_in,      separate_nothing,   separate_copy_out, separate_copy,    separate_clear,
        separate_wait,         separate_nothing,   separate_wait,    separate_measure,  separate_room,
        separate_begin,        separate_end,       separate_forget,  separate_signal,   separate_await,
        separate_reduce,       separate_nothing,   separate_gather,  separate_aggregate, separate_squares,
        separate_seconds,      separate_gauge};
    return &table;
}

#endif
