#include "../ops/ops.h"
#include "step.h"
/* Where a step's data are on the devices, and how they get there. */

MIRT__TRAINING_LIB int64_t mirt__replica_share(const mirt__step *step, int replica, int64_t *first) {
    return mirt__share(step->rows, step->replicas, replica, first);
}

MIRT__TRAINING_LIB int mirt__active_replicas(const mirt__step *step) {
    return step->rows < step->replicas ? (int)step->rows : step->replicas;
}

MIRT__TRAINING_LIB int mirt__own_replicas(const mirt__step *step, int device, int *first) {
    const int active = mirt__active_replicas(step);
    const int count = mirt__device_replicas(step->strategy, step->replicas, device, first);
    return *first + count < active ? *first + count : active;
}

MIRT__TRAINING_LIB mirt__real *mirt__gradient_at(const mirt__step *step, int device, int slot) {
    return (mirt__real *)(void *)(step->strategy->block[device] + (size_t)slot * step->gradient_bytes);
}

MIRT__TRAINING_LIB mirt__real *mirt__sum_at(const mirt__step *step, int device) {
    return mirt__gradient_at(step, MIRT__HOST_PEERS(step->strategy) ? 0 : device, 0);
}

static mirt__handle *mirt__device_of(const mirt__step *step, int device) {
    return step->strategy->device[device].handle;
}

MIRT__LIB mirt__where mirt__where_of(const mirt__step *step, int device) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.team = step->strategy->device[device].team;
    where.handle = mirt__device_of(step, device);
    where.float16 = step->float16;
    return where;
}

/* >>what a step needs */

/* A replay that computes nothing: addresses are made up. */
typedef struct mirt__dry {
    const mirt__step *step;
    int64_t rows;
} mirt__dry;

static void mirt__dry_replay(void *arg) {
    const mirt__dry *dry = (const mirt__dry *)arg;
    const mirt__step *step = dry->step;
    const uintptr_t beyond = (uintptr_t)1 << 40;
    mirt__bases b;
    mirt__step_info run;
    memset(&run, 0, sizeof run);
    b.backend = step->strategy->backend;
    b.where = mirt__where_of(step, 0);
    b.where.scratch = b.where.shared = (void *)beyond; /* NOLINT */
    b.arena = b.replica = b.weight = b.gradient = b.state = (char *)beyond; /* NOLINT */
    for (int i = 0; i < MIRT__MAX_IO; i++) b.io[i] = (char *)beyond; /* NOLINT */
    run.global_rows = dry->rows;
    run.loss_scale = 1;
    for (int segment = 0; segment <= step->program.num_cuts; segment++)
        mirt__program_run(&step->program, segment, step->strategy->kernels, &run, &b, dry->rows);
}

/* Room for a replay of `rows` rows; false where it cannot be counted. */
static bool mirt__step_room(const mirt__step *step, int64_t rows, mirt__kernel_room *room) {
    const mirt_strategy *s = step->strategy;
    mirt__dry dry;
    dry.step = step;
    dry.rows = rows;
    room->shared = step->program.shared;
    if (!mirt__mul_size(step->program.scratch, (size_t)s->threads, &room->scratch)) return false;
    s->backend->measure(mirt__device_of(step, 0), mirt__dry_replay, &dry, room);
    return true;
}

static mirt_status mirt__check_user_code(const mirt__step *step) {
    for (int i = 0; i < step->program.graph.count && !step->strategy->able.in_place; i++) {
        const mirt__node *node = step->program.graph.node[i];
        if (!node->op->user_code) continue;
        return mirt__fail(MIRT_E_DEVICE,
                          "%s runs code of yours, which is for CPUs: train on cores (\"cpu\"), or make it of the "
                          "library's operations",
                          MIRT__OF(&node->a, data)->user_op->name);
    }
    return MIRT_OK;
}

/* Rows of a batch that one device can have at most. */
static int64_t mirt__device_rows_most(const mirt__step *step) {
    const mirt_strategy *s = step->strategy;
    const int64_t by_replicas = (int64_t)mirt__most_replicas(s, step->replicas) * step->program.max_rows;
    int64_t by_rows = 0;
    for (int d = 0; d < s->num_devices; d++) {
        int64_t first;
        const int64_t rows = mirt__device_share(s, step->max_rows, d, &first);
        if (rows > by_rows) by_rows = rows;
    }
    const int64_t most = by_replicas > by_rows ? by_replicas : by_rows;
    return most < step->max_rows ? most : step->max_rows;
}

static bool mirt__place_copy(size_t *total, size_t count, size_t bytes, size_t *at) {
    size_t size;
    *at = *total;
    return mirt__mul_size(count, bytes, &size) && size < SIZE_MAX / 4 &&
           mirt__add_size(*total, mirt__align_up(size + 256), total);
}

/* Copies of the batch, of results and states, where the device needs them; false on overflow. */
static bool mirt__place_copies(mirt__step *step) {
    size_t *total = &step->needs.io, fields = 0;
    const size_t rows = (size_t)mirt__device_rows_most(step), places = (size_t)mirt__result_places(step);
    bool good = true;
    for (int i = 0; i < step->result_port + step->num_results; i++) {
        const mirt__port *port = &step->program.io[i];
        if (port->bytes)
            good = good && mirt__place_copy(total, port->batched ? rows : places, port->bytes, &step->io_at[i]);
        if (i < step->result_port) fields = *total;
    }
    good = good && mirt__place_copy(total, (size_t)step->replicas, step->state_bytes, &step->states_at);
    return good && (!step->sends_ahead || mirt__place_copy(total, 1, fields, &step->ahead_at));
}

MIRT__TRAINING mirt_status mirt__place_cuts(mirt__step *step) {
    const size_t holders = (size_t)step->replicas + (size_t)step->strategy->num_devices;
    for (int i = 0; i < step->program.num_cuts; i++) {
        const mirt__node *node = step->program.graph.node[step->program.cut[i]];
        size_t count = 0;
        for (int k = 0; k < node->num_in; k++) count += (size_t)mirt__shape_count(&node->in[k]->shape);
        if (count > step->cut_stride) step->cut_stride = count;
    }
    if (!step->cut_stride) return MIRT_OK;
    step->cut_values = (mirt__real *)mirt__calloc(step->cut_stride * holders, sizeof *step->cut_values);
    return step->cut_values ? MIRT_OK : mirt_last_status();
}

MIRT__LIB mirt_status mirt__step_needs(mirt__step *step) {
    const mirt_strategy *s = step->strategy;
    const mirt__program *p = &step->program;
    mirt__layout *l = &step->needs;
    mirt__kernel_room room;
    const size_t local = (size_t)mirt__most_replicas(s, step->replicas);
    const size_t slots =
        MIRT__TRAINS && step->has_gradients ? (size_t)mirt__gradient_slots(s, step->replicas, p->num_cuts > 0) : 0;
    if (mirt__check_user_code(step) != MIRT_OK) return mirt_last_status();
    if (!s->able.in_place) {
        step->measured = (bool *)mirt__calloc((size_t)p->max_rows + 1, sizeof *step->measured);
        step->ran = (bool *)mirt__calloc((size_t)step->max_rows + 1, sizeof *step->ran);
        if (!step->measured || !step->ran) return mirt_last_status();
        step->measured[p->max_rows] = true;
    }
    l->arena = p->arena;
    if (!mirt__mul_size(slots, step->gradient_bytes, &l->gradients) ||
        !mirt__mul_size(local, p->replica, &l->replica) || (step->measured && !mirt__place_copies(step)) ||
        !mirt__step_room(step, p->max_rows, &room)) {
        return mirt__fail(MIRT_E_NOMEM, "a batch of this size needs more memory than can be addressed");
    }
    l->shared = room.shared;
    l->scratch = room.scratch;
    return MIRT__TRAINS ? mirt__place_cuts(step) : MIRT_OK;
}

/* Fewer rows may be split in other ways, which take more room. */
static void mirt__step_measure(mirt__step *step, int64_t rows) {
    mirt__kernel_room room;
    if (!step->measured || rows < 1 || rows > step->program.max_rows || step->measured[rows]) return;
    step->measured[rows] = true;
    if (mirt__step_room(step, rows, &room) && room.shared > step->needs.shared) step->needs.shared = room.shared;
}

MIRT__LIB mirt_status mirt__step_reserve(mirt__step *step) {
    const mirt_strategy *s = step->strategy;
    const int64_t most = step->program.max_rows;
    for (int d = 0; d < s->num_devices; d++) {
        int64_t first, rows = mirt__device_share(s, step->rows, d, &first);
        if (!step->by_replicas) mirt__step_measure(step, rows < most ? rows : rows % most);
    }
    for (int more = 0; more < 2 && step->by_replicas; more++)
        mirt__step_measure(step, step->rows / step->replicas + more);
    if (mirt__memory_reserve(step->strategy, &step->needs) != MIRT_OK) return mirt_last_status();
    for (int d = 0; d < s->num_devices; d++) {
        mirt__bases b;
        mirt__device_bases(step, d, &b);
        s->backend->room(b.where.handle, b.where.shared, s->layout.shared);
    }
    return MIRT_OK;
}

MIRT__TRAINING_LIB void mirt__step_take_memory(mirt__step *step) {
    mirt_strategy *s = step->strategy;
    if (s->in_memory == step->owner) return;
    for (int d = 0; d < s->num_devices; d++)
        s->backend->clear(mirt__device_of(step, d), s->block[d], step->needs.gradients);
    s->in_memory = step->owner;
}

MIRT__LIB void mirt__step_free(mirt__step *step) {
    mirt_strategy *s = step->strategy;
    if (s->in_memory == step->owner) s->in_memory = NULL;
    if (s->prefetched == step->owner) s->prefetched = NULL;
    mirt__program_free(&step->program);
    mirt__free(step->state);
    mirt__free(step->range);
    mirt__free(step->bucket);
    mirt__free(step->measured);
    mirt__free(step->ran);
    mirt__free(step->cut_values);
    mirt__free(step->clocks);
    if (MIRT__PEERS(s)) mirt__peers_free(step);
    for (int d = 0; d < s->num_devices; d++) s->backend->forget(mirt__device_of(step, d), step->owner);
}

/* Results that are not batched have a place for every replica, and for every piece in which devices share rows. */
MIRT__LIB int mirt__result_places(const mirt__step *step) {
    return step->strategy->all_devices * mirt__device_pieces(step);
}

MIRT__LIB int mirt__device_pieces(const mirt__step *step) {
    return mirt__most_replicas(step->strategy, step->replicas) + 2;
}

/* >>addresses */

MIRT__LIB void mirt__device_bases(const mirt__step *step, int device, mirt__bases *b) {
    const mirt_strategy *s = step->strategy;
    const mirt__layout *l = &s->layout;
    memset(b, 0, sizeof *b);
    b->where = mirt__where_of(step, device);
    b->backend = s->backend;
    b->weight = step->weight[device];
    b->gradient = s->block[device];
    b->arena = b->gradient + mirt__align_up(l->gradients);
    b->replica = b->arena + mirt__align_up(l->arena);
    b->where.shared = b->replica + mirt__align_up(l->replica);
    b->where.scratch = (char *)b->where.shared + mirt__align_up(l->shared);
    b->where.scratch_per_thread = l->scratch / (size_t)s->threads;
}

/* Where the device has what is at `host`, or `at` bytes into its copies of batch, results and states. */
static char *mirt__placed(const mirt__step *step, int device, char *host, size_t at) {
    mirt__bases b;
    if (step->strategy->able.in_place) return host;
    mirt__device_bases(step, device, &b);
    return (char *)b.where.scratch + mirt__align_up(step->strategy->layout.scratch) + at;
}

MIRT__LIB char *mirt__states_of(const mirt__step *step, int device) {
    return mirt__placed(step, device, step->states, step->states_at);
}

/* The rows that the device has of a batch of `rows`. */
static int64_t mirt__device_rows(const mirt__step *step, int64_t rows, int device, int64_t *first) {
    const mirt_strategy *s = step->strategy;
    if (!MIRT__TRAINS || !step->by_replicas) return mirt__device_share(s, rows, device, first);
    int replica, count = mirt__device_replicas(s, step->replicas, device, &replica);
    int64_t end;
    mirt__share(rows, step->replicas, replica, first);
    mirt__share(rows, step->replicas, replica + count, &end);
    return end - *first;
}

/* The places of results that are not batched which the device fills. */
static int64_t mirt__device_places(const mirt__step *step, int device, int64_t *first) {
    if (!MIRT__TRAINS || !step->by_replicas) {
        const int each = mirt__device_pieces(step);
        *first = (int64_t)(step->strategy->first_device + device) * each;
        return each;
    }
    int begin, end = mirt__own_replicas(step, device, &begin);
    *first = begin;
    return end > begin ? end - begin : 0;
}

/* What a device has of a field or a result: from which row on, or from which place of one that is not batched. */
typedef struct mirt__held {
    int64_t first;
    size_t bytes;
    char *host, *there; /* on the host, and where the program finds it; NULL: the batch lacks the field */
} mirt__held;

static mirt__held mirt__held_of(const mirt__step *step, int device, int port, const void *const *field, int64_t all) {
    const mirt__port *p = &step->program.io[port];
    mirt__held h;
    memset(&h, 0, sizeof h);
    if (port < step->result_port) memcpy(&h.host, &field[port], sizeof h.host); /* a program never writes an input */
    else h.host = step->result[port - step->result_port];
    if (!h.host || !p->bytes) return h;
    const int64_t count = p->batched ? mirt__device_rows(step, all, device, &h.first)
                                     : mirt__device_places(step, device, &h.first);
    const size_t before = (size_t)h.first * p->bytes;
    h.bytes = (size_t)count * p->bytes;
    h.host += before;
    h.there = mirt__placed(step, device, h.host, step->io_at[port] + (p->batched ? 0 : before));
    return h;
}

MIRT__LIB void mirt__row_bases(const mirt__step *step, int device, mirt__bases *b, int64_t first_row, int place) {
    for (int i = 0; i < step->result_port + step->num_results; i++) {
        const mirt__held h = mirt__held_of(step, device, i, step->io, step->rows);
        const int64_t at = (step->program.io[i].batched ? first_row : (int64_t)place) - h.first;
        b->io[i] = h.there ? h.there + at * (int64_t)step->program.io[i].bytes : NULL;
    }
    b->state = mirt__states_of(step, device) + (size_t)place * step->state_bytes;
}

MIRT__TRAINING_LIB void mirt__replica_bases(const mirt__step *step, int device, int first, int replica,
                                            mirt__bases *b) {
    int64_t row;
    mirt__device_bases(step, device, b);
    mirt__replica_share(step, replica, &row);
    mirt__row_bases(step, device, b, row, replica);
    b->replica += (size_t)(replica - first) * step->program.replica;
    if (step->program.num_cuts)
        b->gradient = (char *)mirt__gradient_at(step, device, replica - first); /* a cut may read it */
}

/* >>scatter and fetch */

/* The device's part of a batch of `all` rows, to copies that lie `behind` bytes after those of the batch under way. */
static void mirt__send(const mirt__step *step, int device, const void *const *field, int64_t all, size_t behind) {
    for (int i = 0; i < step->num_fields; i++) {
        const mirt__held h = mirt__held_of(step, device, i, field, all);
        if (h.bytes)
            step->strategy->backend->copy_in(mirt__device_of(step, device), h.there + behind, h.host, h.bytes, true);
    }
}

/* Batches are not sent to where the program reads: its addresses are the same in every step, and the place is free
 * again at once. */
static void mirt__take_prefetched(const mirt__step *step, int device) {
    const mirt__backend *backend = step->strategy->backend;
    for (int i = 0; i < step->num_fields; i++) {
        const mirt__held h = mirt__held_of(step, device, i, step->io, step->rows);
        if (h.bytes) backend->copy(mirt__device_of(step, device), h.there, h.there + step->ahead_at, h.bytes);
    }
    backend->behind(mirt__device_of(step, device));
}

MIRT__LIB void mirt__step_scatter_ahead(const mirt__step *step, int device) {
    if (step->ahead) mirt__send(step, device, step->ahead, step->ahead_rows, step->ahead_at);
}

MIRT__LIB void mirt__step_scatter(const mirt__step *step, int device) {
    if (step->prefetched) mirt__take_prefetched(step, device);
    else if (!step->same) mirt__send(step, device, step->io, step->rows, 0);
    for (int i = step->result_port; i < step->result_port + step->num_results && !step->by_replicas; i++) {
        const mirt__held h = mirt__held_of(step, device, i, NULL, step->rows);
        if (!step->program.io[i].batched && h.bytes)
            step->strategy->backend->clear(mirt__device_of(step, device), h.there, h.bytes);
    }
}

MIRT__LIB void mirt__step_fetch(const mirt__step *step, int device) {
    for (int i = step->result_port; i < step->result_port + step->num_results; i++) {
        const mirt__held h = mirt__held_of(step, device, i, NULL, step->rows);
        if (h.bytes) step->strategy->backend->copy_out(mirt__device_of(step, device), h.host, h.there, h.bytes);
    }
}
