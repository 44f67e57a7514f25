#include "../ops/ops.h"
#include "step.h"
/* Where a step's data are on the devices, and how they get there. */

MIRT__LIB int64_t mirt__replica_share(const mirt__step *step, int replica, int64_t *first) {
    return mirt__share(step->rows, step->replicas, replica, first);
}

MIRT__LIB int mirt__active_replicas(const mirt__step *step) {
    return step->rows < step->replicas ? (int)step->rows : step->replicas;
}

MIRT__LIB mirt__real *mirt__gradient_at(const mirt__step *step, int device, int slot) {
    return (mirt__real *)(void *)(step->strategy->block[device] + (size_t)slot * step->gradient_bytes);
}

static mirt__handle *mirt__device_of(const mirt__step *step, int device) {
    return step->strategy->device[device].handle;
}

MIRT__LIB mirt__where mirt__where_of(const mirt__step *step, int device) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.team = step->strategy->device[device].team;
    where.handle = mirt__device_of(step, device);
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
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    b.backend = step->strategy->backend;
    b.handle = mirt__device_of(step, 0);
    b.float16 = step->float16;
    b.arena = b.replica = b.weight = b.gradient = b.state = b.scratch = b.shared = (char *)beyond; /* NOLINT */
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
    const int devices = step->strategy->num_devices;
    const int64_t replicas = (step->replicas + devices - 1) / devices, by_replicas = replicas * step->program.max_rows,
                  by_rows = (step->max_rows + devices - 1) / devices;
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
    size_t *total = &step->needs.io;
    const size_t rows = (size_t)mirt__device_rows_most(step);
    bool good = true;
    for (int i = 0; i < step->num_fields; i++)
        good = good && mirt__place_copy(total, rows, step->program.io[i].bytes, &step->io_at[i]);
    const size_t fields = *total;
    for (int i = step->result_port; i < step->result_port + step->num_results; i++) {
        const mirt__port *port = &step->program.io[i];
        good = good && mirt__place_copy(total, port->batched ? rows : (size_t)mirt__result_places(step), port->bytes,
                                        &step->io_at[i]);
    }
    good = good && mirt__place_copy(total, (size_t)step->replicas, step->state_bytes, &step->states_at);
    return good && (!step->sends_ahead || mirt__place_copy(total, 1, fields, &step->ahead_at));
}

static mirt_status mirt__place_cuts(mirt__step *step) {
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
    const size_t local = (size_t)((step->replicas + s->num_devices - 1) / s->num_devices);
    const size_t slots = step->has_gradients ? (size_t)mirt__gradient_slots(s, step->replicas, p->num_cuts > 0) : 0;
    if (mirt__check_user_code(step) != MIRT_OK) return mirt_last_status();
    if (!s->able.in_place) {
        step->io_at = (size_t *)mirt__pool_alloc(&step->program.graph.pool, MIRT__MAX_IO * sizeof *step->io_at);
        step->measured = (bool *)mirt__calloc((size_t)p->max_rows + 1, sizeof *step->measured);
        if (!step->io_at || !step->measured) return mirt_last_status();
        step->measured[p->max_rows] = true;
    }
    l->arena = p->arena;
    if (!mirt__mul_size(slots, step->gradient_bytes, &l->gradients) ||
        !mirt__mul_size(local, p->replica, &l->replica) || (step->io_at && !mirt__place_copies(step)) ||
        !mirt__step_room(step, p->max_rows, &room)) {
        return mirt__fail(MIRT_E_NOMEM, "a batch of this size needs more memory than can be addressed");
    }
    l->shared = room.shared;
    l->scratch = room.scratch;
    return mirt__place_cuts(step);
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
        int64_t first, rows = mirt__share(step->rows, s->num_devices, d, &first);
        if (!step->by_replicas) mirt__step_measure(step, rows < most ? rows : rows % most);
    }
    for (int more = 0; more < 2 && step->by_replicas; more++)
        mirt__step_measure(step, step->rows / step->replicas + more);
    if (mirt__memory_reserve(step->strategy, &step->needs) != MIRT_OK) return mirt_last_status();
    for (int d = 0; d < s->num_devices; d++) {
        mirt__bases b;
        mirt__device_bases(step, d, &b);
        s->backend->room(b.handle, b.shared, s->layout.shared);
    }
    return MIRT_OK;
}

MIRT__LIB void mirt__step_take_memory(mirt__step *step) {
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
    mirt__free(step->cut_values);
    mirt__free(step->clocks);
    for (int d = 0; d < s->num_devices; d++) s->backend->forget(mirt__device_of(step, d), step->owner);
}

/* Results that are not batched have a place for every replica, and for every piece in which devices share rows. */
MIRT__LIB int mirt__result_places(const mirt__step *step) { return step->replicas + 3 * step->strategy->num_devices; }

/* >>addresses */

MIRT__LIB void mirt__device_bases(const mirt__step *step, int device, mirt__bases *b) {
    const mirt_strategy *s = step->strategy;
    const mirt__layout *l = &s->layout;
    memset(b, 0, sizeof *b);
    b->team = s->device[device].team;
    b->backend = s->backend;
    b->handle = s->device[device].handle;
    b->float16 = step->float16;
    b->weight = step->weight[device];
    b->gradient = s->block[device];
    b->arena = b->gradient + mirt__align_up(l->gradients);
    b->replica = b->arena + mirt__align_up(l->arena);
    b->shared = b->replica + mirt__align_up(l->replica);
    b->scratch = b->shared + mirt__align_up(l->shared);
    b->scratch_per_thread = l->scratch / (size_t)s->threads;
}

static size_t mirt__port_place(const mirt__step *step, int port) { return step->io_at ? step->io_at[port] : 0; }

/* The device's copies of batch, results and states. */
static char *mirt__copies_of(const mirt__step *step, int device) {
    const mirt__layout *l = &step->strategy->layout;
    return step->strategy->block[device] + mirt__align_up(l->gradients) + mirt__align_up(l->arena) +
           mirt__align_up(l->replica) + mirt__align_up(l->shared) + mirt__align_up(l->scratch);
}

/* Where the device has what is at `host`, or `at` bytes into its copies. */
static char *mirt__placed(const mirt__step *step, int device, char *host, size_t at) {
    return step->strategy->able.in_place ? host : mirt__copies_of(step, device) + at;
}

MIRT__LIB char *mirt__states_of(const mirt__step *step, int device) {
    return mirt__placed(step, device, step->states, step->states_at);
}

/* The rows that the device has of a batch of `rows`. */
static int64_t mirt__device_rows(const mirt__step *step, int64_t rows, int device, int64_t *first) {
    const mirt_strategy *s = step->strategy;
    if (!step->by_replicas) return mirt__share(rows, s->num_devices, device, first);
    int replica, count = mirt__device_replicas(s, step->replicas, device, &replica);
    int64_t end;
    mirt__share(rows, step->replicas, replica, first);
    mirt__share(rows, step->replicas, replica + count, &end);
    return end - *first;
}

/* The device's first row of a field, on the host. A program never writes an input. */
static char *mirt__field_host(const void *const *field, int i, size_t row_bytes, int64_t first) {
    char *base;
    memcpy(&base, &field[i], sizeof base);
    return base ? base + (size_t)first * row_bytes : NULL;
}

/* Its first row of a field or of a batched result, or the first place of another result; NULL: the batch lacks the
 * field. */
static char *mirt__port_at(const mirt__step *step, int device, int port, int64_t first) {
    const mirt__port *p = &step->program.io[port];
    char *host;
    if (port < step->result_port) host = mirt__field_host(step->io, port, p->bytes, first);
    else host = step->result[port - step->result_port] + (p->batched ? (size_t)first * p->bytes : 0);
    return host ? mirt__placed(step, device, host, mirt__port_place(step, port)) : NULL;
}

MIRT__LIB void mirt__row_bases(const mirt__step *step, int device, mirt__bases *b, int64_t first_row, int place) {
    int64_t own; /* the device's first row */
    mirt__device_rows(step, step->rows, device, &own);
    for (int i = 0; i < step->num_fields; i++) {
        char *base = mirt__port_at(step, device, i, own);
        b->io[i] = base ? base + (size_t)(first_row - own) * step->program.io[i].bytes : NULL;
    }
    for (int i = step->result_port; i < step->result_port + step->num_results; i++) {
        const mirt__port *p = &step->program.io[i];
        b->io[i] =
            mirt__port_at(step, device, i, own) + (size_t)(p->batched ? first_row - own : (int64_t)place) * p->bytes;
    }
    b->state = mirt__states_of(step, device) + (size_t)place * step->state_bytes;
}

MIRT__LIB void mirt__replica_bases(const mirt__step *step, int device, int first, int replica, mirt__bases *b) {
    int64_t row;
    mirt__device_bases(step, device, b);
    mirt__replica_share(step, replica, &row);
    mirt__row_bases(step, device, b, row, replica);
    b->replica += (size_t)(replica - first) * step->program.replica;
    if (step->program.num_cuts)
        b->gradient = (char *)mirt__gradient_at(step, device, replica - first); /* a cut may read it */
}

/* >>scatter and fetch */

/* The places of results that are not batched which the device fills. */
static int mirt__device_places(const mirt__step *step, int device, int *first) {
    const mirt_strategy *s = step->strategy;
    if (!step->by_replicas) {
        const int each = (step->replicas + s->num_devices - 1) / s->num_devices + 2;
        *first = device * each;
        return each;
    }
    const int active = mirt__active_replicas(step), count = mirt__device_replicas(s, step->replicas, device, first);
    return *first + count <= active ? count : active > *first ? active - *first : 0;
}

/* The device's part of a batch of `all` rows, to copies that lie `behind` bytes after those of the batch under way. */
static void mirt__send(const mirt__step *step, int device, const void *const *field, int64_t all, size_t behind) {
    const mirt__backend *backend = step->strategy->backend;
    int64_t first, rows = mirt__device_rows(step, all, device, &first);
    for (int i = 0; i < step->num_fields && rows > 0; i++) {
        const size_t row = step->program.io[i].bytes;
        char *host = mirt__field_host(field, i, row, first);
        if (row && host)
            backend->copy_in(mirt__device_of(step, device),
                             mirt__placed(step, device, host, mirt__port_place(step, i) + behind), host,
                             (size_t)rows * row, true);
    }
}

/* Batches are not sent to where the program reads: its addresses are the same in every step, and the place is free
 * again at once. */
static void mirt__take_prefetched(const mirt__step *step, int device) {
    const mirt__backend *backend = step->strategy->backend;
    const char *copies = mirt__copies_of(step, device);
    int64_t first, rows = mirt__device_rows(step, step->rows, device, &first);
    for (int i = 0; i < step->num_fields && rows > 0; i++) {
        char *to = mirt__port_at(step, device, i, first);
        if (to)
            backend->copy(mirt__device_of(step, device), to, copies + step->ahead_at + step->io_at[i],
                          (size_t)rows * step->program.io[i].bytes);
    }
    backend->behind(mirt__device_of(step, device));
}

MIRT__LIB void mirt__step_scatter_ahead(const mirt__step *step, int device) {
    if (step->ahead) mirt__send(step, device, step->ahead, step->ahead_rows, step->ahead_at);
}

MIRT__LIB void mirt__step_scatter(const mirt__step *step, int device) {
    const mirt__backend *backend = step->strategy->backend;
    int place, places = mirt__device_places(step, device, &place);
    if (step->prefetched) mirt__take_prefetched(step, device);
    else mirt__send(step, device, step->io, step->rows, 0);
    for (int i = step->result_port; i < step->result_port + step->num_results && !step->by_replicas; i++) {
        const mirt__port *port = &step->program.io[i];
        if (!port->batched)
            backend->clear(mirt__device_of(step, device),
                           mirt__port_at(step, device, i, 0) + (size_t)place * port->bytes,
                           (size_t)places * port->bytes);
    }
}

MIRT__LIB void mirt__step_fetch(const mirt__step *step, int device) {
    const mirt__backend *backend = step->strategy->backend;
    int place, places = mirt__device_places(step, device, &place);
    int64_t first, rows = mirt__device_rows(step, step->rows, device, &first);
    for (int i = 0; i < step->num_results; i++) {
        const mirt__port *port = &step->program.io[step->result_port + i];
        const size_t at = (size_t)(port->batched ? first : (int64_t)place) * port->bytes;
        const char *from = mirt__port_at(step, device, step->result_port + i, first) + (port->batched ? 0 : at);
        const int64_t count = port->batched ? rows : (int64_t)places;
        if (count > 0)
            backend->copy_out(mirt__device_of(step, device), step->result[i] + at, from, (size_t)count * port->bytes);
    }
}
