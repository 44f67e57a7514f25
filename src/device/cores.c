/* The device table of this machine's CPU cores: work is done when the call returns. */
#include "../kernels/kernels.h"
#include "devices.h"

typedef struct mirt__core {
    mirt__team *team;
    const mirt__kernels *kernels;
    const mirt__cpus *socket; /* which its memory is next to, or NULL */
    int devices; /* of the strategy, which share the machine's memory */
} mirt__core;

static mirt__core *mirt__core_of(mirt__handle *handle) { return (mirt__core *)(void *)handle; }

static int mirt__core_devices(const mirt__host *host) { return (void)host, mirt__cpu_cores(); }

static bool mirt__core_info(const mirt__host *host, int index, mirt__device_facts *out) {
    const mirt__kernels *kernels = mirt__kernels_best();
    (void)host;
    memset(out, 0, sizeof *out);
    if (!kernels) return false;
    snprintf(out->name, sizeof out->name, "core %d", index);
    snprintf(out->description, sizeof out->description, "core %d of %d, %s kernels", index + 1, mirt__cpu_cores(),
             kernels->name);
    out->cores = 1;
    return true;
}

static int mirt__core_threads(int asked, int cores, int devices) {
    return asked ? asked : cores / devices > 1 ? cores / devices : 1;
}

static mirt__handle *mirt__core_open(const mirt__host *host, const mirt__opening *how) {
    mirt__core *core = (mirt__core *)host->calloc(1, sizeof *core);
    if (!core) return NULL;
    core->team = how->team;
    core->kernels = mirt__kernels_best();
    core->devices = how->devices;
    core->socket = how->socket;
    return (mirt__handle *)(void *)core;
}

static void mirt__core_close(mirt__handle *handle) { mirt__free(handle); }

static bool mirt__core_join(mirt__joining *join) {
    if (join->collective == MIRT_NCCL) {
        mirt__fail(MIRT_E_INVALID, "NCCL joins GPUs, and these devices are cores: leave the collective out");
        return false;
    }
    join->able.in_place = join->able.direct = join->able.shards = true;
    /* 10 GB/s per pass. Convolutions are bound by arithmetic, which hides what they read, and memory is not scarce:
       every tensor that can be lazy is, and none is computed twice. */
    join->able.costs.pass = 0.1;
    return true;
}

/* >>memory */

static const size_t mirt__touched = (size_t)1 << 21; /* bytes that a thread touches at a time: a huge page */

typedef struct mirt__touch {
    char *memory;
    size_t bytes;
} mirt__touch;

static void mirt__core_touch(void *arg, int64_t task, int member) {
    const mirt__touch *touch = (const mirt__touch *)arg;
    const size_t begin = (size_t)task * mirt__touched, left = touch->bytes - begin;
    (void)member;
    memset(touch->memory + begin, 0, left < mirt__touched ? left : mirt__touched);
}

/* Systems place a page next to the core that writes it first. */
static void *mirt__core_alloc(mirt__handle *handle, size_t bytes) {
    const mirt__core *core = mirt__core_of(handle);
    mirt__touch touch = {(char *)mirt__aligned_alloc(bytes), bytes};
    mirt__pinned pinned;
    if (!touch.memory || !core->socket) return touch.memory;
    mirt__pin_begin(&pinned, core->socket); /* the calling thread takes part */
    mirt__team_for(core->team, mirt__parts((int64_t)bytes, (int64_t)mirt__touched), mirt__core_touch, &touch);
    mirt__pin_end(&pinned);
    return touch.memory;
}

static void mirt__core_release(mirt__handle *handle, void *memory) { (void)handle, mirt__aligned_free(memory); }

static size_t mirt__core_free_bytes(mirt__handle *handle) {
    mirt_machine_info machine;
    return mirt_machine(&machine) == MIRT_OK ? (size_t)machine.memory_available / (size_t)mirt__core_of(handle)->devices
                                             : 0;
}

static void mirt__core_copy(mirt__handle *handle, void *to, const void *from, size_t bytes) {
    (void)handle;
    if (to != from && bytes) memcpy(to, from, bytes);
}

static void mirt__core_copy_in(mirt__handle *handle, void *to, const void *from, size_t bytes, bool early) {
    (void)early;
    mirt__core_copy(handle, to, from, bytes);
}

static void mirt__core_clear(mirt__handle *handle, void *memory, size_t bytes) {
    (void)handle, memset(memory, 0, bytes);
}

/* >>order: everything is done already */

static void mirt__core_nothing(mirt__handle *handle) { (void)handle; }
static mirt_status mirt__core_wait(mirt__handle *handle) { return (void)handle, MIRT_OK; }
static void mirt__core_begin(mirt__handle *handle, const void *owner, uint64_t key) {
    (void)handle, (void)owner, (void)key;
}
static bool mirt__core_end(mirt__handle *handle) { return (void)handle, true; }
static void mirt__core_forget(mirt__handle *handle, const void *owner) { (void)handle, (void)owner; }
static void mirt__core_signal(mirt__handle *handle, int number) { (void)handle, (void)number; }
static void mirt__core_await(mirt__handle *handle, mirt__handle *other, int number) {
    (void)handle, (void)other, (void)number;
}
static double mirt__core_seconds(mirt__handle *handle, int from, int to) {
    return (void)handle, (void)from, (void)to, 0;
}

/* Kernels of cores take what the ops declare. */
static void mirt__core_measure(mirt__handle *handle, void (*replay)(void *arg), void *arg, mirt__kernel_room *room) {
    (void)handle, (void)replay, (void)arg, (void)room;
}
static void mirt__core_room(mirt__handle *handle, void *memory, size_t bytes) {
    (void)handle, (void)memory, (void)bytes;
}

/* >>reductions */

MIRT__TRAINING void mirt__core_reduce(mirt__handle *handle, const mirt__reduction *r) {
    const mirt__core *core = mirt__core_of(handle);
    const int64_t begin = r->own_begin, count = r->own_end - r->own_begin;
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.team = core->team;
    if (count <= 0) return;
    for (int i = 0; i + 1 < r->parts; i++)
        core->kernels->accumulate(r->part[r->add[i].into] + begin, r->part[r->add[i].from] + begin, count, &where);
    for (int d = 0; d < r->devices; d++)
        mirt__core_copy(handle, r->sum[d] + begin, r->part[0] + begin, (size_t)count * sizeof(mirt__real));
}

/* Replicas' states are in the host's memory, where every device finds all of them. */
MIRT__TRAINING void mirt__core_gather(mirt__handle *handle, char *const *base, const size_t *begin, int devices) {
    (void)handle, (void)base, (void)begin, (void)devices;
}

MIRT__TRAINING void mirt__core_aggregate(mirt__handle *handle, const mirt__aggregation_job *a) {
    const mirt__real *value[MIRT__MAX_REPLICAS];
    int64_t rows[MIRT__MAX_REPLICAS], first;
    (void)handle;
    for (int r = 0; r < a->active; r++) rows[r] = mirt__share(a->rows, a->replicas, r, &first);
    for (int i = 0; i < a->values; i++) {
        for (int r = 0; r < a->active; r++) value[r] = a->from + r * a->stride + a->value[i].from;
        mirt__aggregate_variable(&a->value[i], a->active, value, rows, a->to + a->value[i].to);
    }
}

typedef struct mirt__squares_job {
    const mirt__real *block;
    const mirt__square_piece *piece;
    double *squares;
} mirt__squares_job;

/* Squares of float32 numbers are exact in double, and the order of additions depends on the elements' places alone. */
MIRT__TRAINING void mirt__squares_task(void *arg, int64_t task, int member) {
    const mirt__squares_job *job = (const mirt__squares_job *)arg;
    const mirt__square_piece *p = &job->piece[task];
    const mirt__real *g = job->block + p->begin;
    double sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t i = 0;
    (void)member;
    for (; i + 8 <= p->count; i += 8) {
        for (int k = 0; k < 8; k++) sum[k] += (double)g[i + k] * (double)g[i + k];
    }
    for (; i < p->count; i++) sum[0] += (double)g[i] * (double)g[i];
    job->squares[task] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

MIRT__TRAINING void mirt__core_squares(mirt__handle *handle, const mirt__real *block, const mirt__square_piece *piece,
                                       int pieces, double *squares) {
    mirt__squares_job job;
    job.block = block;
    job.piece = piece;
    job.squares = squares;
    mirt__team_for(mirt__core_of(handle)->team, pieces, mirt__squares_task, &job);
}

MIRT__LIB const mirt__backend *mirt__cores_backend(void) {
    static const mirt__backend cores = {
        MIRT__BACKEND_VERSION, "cpu",
        mirt__kernels_best,    mirt__core_devices, mirt__core_info,     mirt__core_threads,   mirt__core_open,
        mirt__core_close,      mirt__core_join,    mirt__core_alloc,    mirt__core_release,   mirt__core_free_bytes,
        mirt__core_copy_in,    mirt__core_nothing, mirt__core_copy,     mirt__core_copy,      mirt__core_clear,
        mirt__core_wait,       mirt__core_nothing, mirt__core_wait,     mirt__core_measure,   mirt__core_room,
        mirt__core_begin,      mirt__core_end,     mirt__core_forget,   mirt__core_signal,    mirt__core_await,
        MIRT__TRAINING_ENTRY(mirt__core_reduce),
        mirt__core_nothing, MIRT__TRAINING_ENTRY(mirt__core_gather), MIRT__TRAINING_ENTRY(mirt__core_aggregate),
        MIRT__TRAINING_ENTRY(mirt__core_squares), mirt__core_seconds, NULL};
    return &cores;
}
