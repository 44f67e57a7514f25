#include "remote.h"
#include "timeline.h"
#include "../ops/ops.h"

enum { MIRT__TIMING_EVENT = 4 }; /* the first of the signals that tell stages of a step apart */

MIRT__LIB bool mirt__is_remote(const mirt_function *f) { return f->model->strategy->backend != NULL; }

static mirt__remote *mirt__remote_of(const mirt_function *f, int device) { return f->model->strategy->device[device].remote; }
static const mirt__backend *mirt__backend_of(const mirt_function *f) { return f->model->strategy->backend; }

MIRT__LIB mirt__where mirt__where_of(const mirt_function *f, int device) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.team = f->model->strategy->device[device].team;
    where.remote = mirt__remote_of(f, device);
    return where;
}

/* >>what a function needs there */

/* The room that a replay of `rows` rows takes. Addresses are made up: nothing is read or written. */
static size_t mirt__remote_room(const mirt_function *f, int64_t rows) {
    const mirt__backend *backend = mirt__backend_of(f);
    const uintptr_t beyond = (uintptr_t)1 << 40;
    mirt__bases b;
    mirt__step_info run;
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    b.backend = backend;
    b.remote = mirt__remote_of(f, 0);
    b.float16 = f->scaled;
    b.arena = b.replica = b.weight = b.gradient = b.state = b.scratch = b.shared = (char *)beyond; /* NOLINT */
    for (int i = 0; i < MIRT__MAX_IO; i++) b.io[i] = (char *)beyond; /* NOLINT */
    run.global_rows = rows;
    run.loss_scale = 1;
    backend->measure(b.remote, true);
    for (int segment = 0; segment <= f->program.num_cuts; segment++) mirt__program_run(&f->program, segment, f->model->strategy->kernels, &run, &b, rows);
    return backend->measure(b.remote, false);
}

static mirt_status mirt__remote_check(const mirt_function *f) {
    for (int i = 0; i < f->program.graph.count; i++) {
        const mirt__node *node = f->program.graph.node[i];
        if (!node->op->user_code) continue;
        return mirt__fail(MIRT_E_DEVICE, "%s runs code of yours, which is for CPUs: train on cores (\"cpu\"), or make it of the library's operations", node->a.user_op->name);
    }
    return MIRT_OK;
}

/* Rows of a batch that one device can have at most. */
static int64_t mirt__remote_rows_most(const mirt_function *f) {
    const int devices = f->model->strategy->num_devices;
    const int64_t replicas = (f->replicas + devices - 1) / devices, by_replicas = replicas * f->program.max_rows, by_rows = (f->max_batch + devices - 1) / devices;
    const int64_t most = by_replicas > by_rows ? by_replicas : by_rows;
    return most < f->max_batch ? most : f->max_batch;
}

static bool mirt__remote_place(size_t *total, size_t count, size_t bytes, size_t *at) {
    size_t size;
    *at = *total;
    return mirt__mul_size(count, bytes, &size) && size < SIZE_MAX / 4 && mirt__add_size(*total, mirt__align_up(size + 256), total);
}

/* The node behind which the gradients of elements [begin, end) are there, and nobody reads them any more: sums take their place. */
static int mirt__remote_ready(const mirt_function *f, int64_t begin, int64_t end) {
    int ready = 0;
    for (int i = 0; i < f->program.graph.count; i++) {
        const mirt__node *node = f->program.graph.node[i];
        for (int k = 0; k < node->num_out; k++) {
            const mirt_tensor *t = node->out[k];
            const int64_t at = (int64_t)(t->offset / sizeof(mirt__real));
            if (t->space == MIRT__SPACE_GRADIENT && at >= begin && at < end && t->last > ready) ready = t->last;
        }
    }
    return ready;
}

/* From the back of the block, where backward begins: whole variables, a small bucket first so that something travels early. */
static mirt_status mirt__remote_buckets(mirt_function *f) {
    const mirt_strategy *s = f->model->strategy;
    const int64_t first = (1 << 20) / (int64_t)sizeof(mirt__real), each = (25 << 20) / (int64_t)sizeof(mirt__real);
    int64_t end = (int64_t)(f->root->trained_bytes / sizeof(mirt__real));
    if (s->direct || s->num_devices == 1 || !f->num_applied || f->program.num_cuts) return MIRT_OK;
    if (!(f->bucket = (mirt__bucket *)mirt__calloc((size_t)f->root->num_variables + 1, sizeof *f->bucket))) return mirt_last_status();
    while (end > 0) {
        mirt__bucket *b = &f->bucket[f->num_buckets];
        b->begin = b->end = end;
        while (b->begin > 0 && b->end - b->begin < (f->num_buckets ? each : first)) {
            int64_t before = 0; /* where the last variable in front of it begins */
            for (int i = 0; i < f->root->num_variables; i++) {
                const int64_t at = (int64_t)(f->root->variable[i].offset / sizeof(mirt__real));
                if (at < b->begin && at > before) before = at;
            }
            b->begin = before;
        }
        b->ready = mirt__remote_ready(f, b->begin, b->end);
        if (f->num_buckets && b->ready < b[-1].ready) b->ready = b[-1].ready;
        end = b->begin;
        f->num_buckets++;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__remote_needs(mirt_function *f) {
    mirt__layout *l = &f->needs;
    const size_t rows = (size_t)mirt__remote_rows_most(f);
    bool good = true;
    if (mirt__remote_check(f) != MIRT_OK) return mirt_last_status();
    f->io_at = (size_t *)mirt__pool_alloc(&f->program.graph.pool, MIRT__MAX_IO * sizeof *f->io_at);
    f->remote_error = (mirt__error *)mirt__pool_alloc(&f->program.graph.pool, sizeof *f->remote_error);
    if (!f->io_at || !f->remote_error) return mirt_last_status();
    for (int i = 0; i < f->spec.num_fields; i++) good = good && mirt__remote_place(&l->io, rows, f->program.io[i].bytes, &f->io_at[i]);
    const size_t fields = l->io;
    for (int i = 0; i < f->num_results; i++) {
        const mirt__port *port = &f->program.io[MIRT__MAX_FIELDS + i];
        good = good && mirt__remote_place(&l->io, port->batched ? rows : (size_t)mirt__result_places(f), port->bytes, &f->io_at[MIRT__MAX_FIELDS + i]);
    }
    good = good && mirt__remote_place(&l->io, (size_t)f->replicas, f->state_bytes, &f->states_at);
    if (f->sends_ahead) good = good && mirt__remote_place(&l->io, 1, fields, &f->landing_at);
    if (!good) return mirt__fail(MIRT_E_NOMEM, "a batch of this size needs more memory than can be addressed");
    size_t values = 0;
    for (int i = 0; i < f->program.num_cuts; i++) {
        const mirt__node *node = f->program.graph.node[f->program.cut[i]];
        size_t count = 0;
        for (int k = 0; k < node->num_in; k++) count += (size_t)mirt__shape_count(&node->in[k]->shape);
        if (count > values) values = count;
    }
    if (values && !(f->cut_values = (mirt__real *)mirt__calloc(values * ((size_t)f->replicas + (size_t)f->model->strategy->num_devices), sizeof *f->cut_values))) return mirt_last_status();
    if (!(f->measured = (bool *)mirt__calloc((size_t)f->program.max_rows + 1, sizeof *f->measured))) return mirt_last_status();
    f->cut_stride = values;
    l->scratch = 0;
    l->shared = mirt__remote_room(f, f->program.max_rows);
    f->measured[f->program.max_rows] = true;
    return mirt__remote_buckets(f);
}

/* Fewer rows may be cut in other ways, which take more room. */
static mirt_status mirt__remote_measure(mirt_function *f, int64_t rows) {
    if (rows < 1 || rows > f->program.max_rows || f->measured[rows]) return MIRT_OK;
    const size_t room = mirt__remote_room(f, rows);
    f->measured[rows] = true;
    if (room <= f->needs.shared) return MIRT_OK;
    f->needs.shared = room;
    return mirt__memory_reserve(f->model->strategy, &f->needs);
}

MIRT__LIB mirt_status mirt__remote_begin(mirt_function *f) {
    const mirt_strategy *s = f->model->strategy;
    const mirt__backend *backend = s->backend;
    if (!backend) return MIRT_OK;
    if (f->by_replicas) {
        if (mirt__remote_measure(f, f->rows / f->replicas) != MIRT_OK || mirt__remote_measure(f, f->rows / f->replicas + 1) != MIRT_OK) return mirt_last_status();
    } else {
        for (int d = 0; d < s->num_devices; d++) {
            int64_t first, rows = mirt__share(f->rows, s->num_devices, d, &first);
            if (mirt__remote_measure(f, rows < f->program.max_rows ? rows : rows % f->program.max_rows) != MIRT_OK) return mirt_last_status();
        }
    }
    for (int d = 0; d < s->num_devices; d++) {
        mirt__bases b;
        memset(&b, 0, sizeof b);
        mirt__remote_bases(f, d, &b);
        backend->room(s->device[d].remote, b.shared, s->layout.shared);
    }
    if (mirt__weights_there(f->root) != MIRT_OK) return mirt_last_status();
    return f->num_applied ? mirt__slots_there(f->model) : MIRT_OK;
}

/* >>where things are */

static char *mirt__remote_io(const mirt_function *f, int device) {
    const mirt__layout *l = &f->model->strategy->layout;
    return f->model->strategy->block[device] + mirt__align_up(l->gradients) + mirt__align_up(l->arena) + mirt__align_up(l->replica) + mirt__align_up(l->shared) + mirt__align_up(l->scratch);
}

static char *mirt__remote_states_of(const mirt_function *f, int device) { return mirt__remote_io(f, device) + f->states_at; }

/* The rows that the device has of a batch of `rows`. */
static int64_t mirt__remote_rows_of(const mirt_function *f, int64_t rows, int device, int64_t *first) {
    const mirt_strategy *s = f->model->strategy;
    if (!f->by_replicas) return mirt__share(rows, s->num_devices, device, first);
    int replica, count = mirt__device_replicas(s, f->replicas, device, &replica);
    int64_t end;
    mirt__share(rows, f->replicas, replica, first);
    mirt__share(rows, f->replicas, replica + count, &end);
    return end - *first;
}

static int64_t mirt__remote_rows(const mirt_function *f, int device, int64_t *first) { return mirt__remote_rows_of(f, f->rows, device, first); }

MIRT__LIB void mirt__remote_bases(const mirt_function *f, int device, mirt__bases *b) {
    const mirt_strategy *s = f->model->strategy;
    const mirt__layout *l = &s->layout;
    b->backend = s->backend;
    b->remote = s->device[device].remote;
    b->float16 = f->scaled;
    b->weight = f->root->remote_weight[device];
    b->gradient = s->block[device];
    b->arena = b->gradient + mirt__align_up(l->gradients);
    b->replica = b->arena + mirt__align_up(l->arena);
    b->shared = b->replica + mirt__align_up(l->replica);
}

MIRT__LIB void mirt__remote_row_bases(const mirt_function *f, int device, mirt__bases *b, int64_t first_row, int place) {
    char *io = mirt__remote_io(f, device);
    int64_t own;
    mirt__remote_rows(f, device, &own);
    for (int i = 0; i < f->spec.num_fields; i++) b->io[i] = f->io[i] ? io + f->io_at[i] + (size_t)(first_row - own) * f->program.io[i].bytes : NULL;
    for (int i = 0; i < f->num_results; i++) {
        const mirt__port *port = &f->program.io[MIRT__MAX_FIELDS + i];
        b->io[MIRT__MAX_FIELDS + i] = io + f->io_at[MIRT__MAX_FIELDS + i] + (size_t)(port->batched ? first_row - own : (int64_t)place) * port->bytes;
    }
    b->state = mirt__remote_states_of(f, device) + (size_t)place * f->state_bytes;
}

/* >>a device's step */

/* The device's part of a batch of `all` rows to `io`. */
static void mirt__remote_send(const mirt_function *f, int device, const void *const *field, int64_t all, char *io) {
    int64_t first, rows = mirt__remote_rows_of(f, all, device, &first);
    for (int i = 0; i < f->spec.num_fields && rows > 0; i++) {
        const size_t row = f->program.io[i].bytes;
        if (row && field[i]) mirt__backend_of(f)->stage(mirt__remote_of(f, device), io + f->io_at[i], (const char *)field[i] + (size_t)first * row, (size_t)rows * row, true);
    }
}

/* Where batches land is not where the program reads: its addresses are the same in every step, and the place is free again at once. */
static void mirt__remote_take_prefetched(const mirt_function *f, int device, char *io) {
    const mirt__backend *backend = mirt__backend_of(f);
    int64_t first, rows = mirt__remote_rows(f, device, &first);
    for (int i = 0; i < f->spec.num_fields && rows > 0; i++) {
        if (f->io[i]) backend->copy(mirt__remote_of(f, device), io + f->io_at[i], io + f->landing_at + f->io_at[i], (size_t)rows * f->program.io[i].bytes);
    }
    backend->behind(mirt__remote_of(f, device));
}

MIRT__LIB void mirt__remote_scatter_ahead(const mirt_function *f, int device) {
    mirt__remote_send(f, device, f->ahead->field, f->ahead->rows, mirt__remote_io(f, device) + f->landing_at);
}

MIRT__LIB void mirt__remote_scatter(const mirt_function *f, int device) {
    const mirt__backend *backend = mirt__backend_of(f);
    char *io = mirt__remote_io(f, device);
    if (f->prefetched) mirt__remote_take_prefetched(f, device, io);
    else mirt__remote_send(f, device, f->io, f->rows, io);
    for (int i = 0; i < f->num_results && !f->by_replicas; i++) {
        const mirt__port *port = &f->program.io[MIRT__MAX_FIELDS + i];
        if (!port->batched) backend->clear(mirt__remote_of(f, device), io + f->io_at[MIRT__MAX_FIELDS + i], (size_t)mirt__result_places(f) * port->bytes);
    }
}

/* The places of results that are not batched which the device fills. */
static int mirt__remote_places(const mirt_function *f, int device, int *first) {
    const mirt_strategy *s = f->model->strategy;
    if (!f->by_replicas) {
        const int each = (f->replicas + s->num_devices - 1) / s->num_devices + 2;
        *first = device * each;
        return each;
    }
    const int active = mirt__active_replicas(f), count = mirt__device_replicas(s, f->replicas, device, first);
    return *first + count <= active ? count : active > *first ? active - *first : 0;
}

MIRT__LIB void mirt__remote_fetch(const mirt_function *f, int device) {
    const mirt__backend *backend = mirt__backend_of(f);
    const char *io = mirt__remote_io(f, device);
    int place, places = mirt__remote_places(f, device, &place);
    int64_t first, rows = mirt__remote_rows(f, device, &first);
    for (int i = 0; i < f->num_results; i++) {
        const mirt__port *port = &f->program.io[MIRT__MAX_FIELDS + i];
        const char *from = io + f->io_at[MIRT__MAX_FIELDS + i];
        if (port->batched && rows > 0) backend->fetch(mirt__remote_of(f, device), f->result[i].data + (size_t)first * port->bytes, from, (size_t)rows * port->bytes);
        if (!port->batched && places > 0)
            backend->fetch(mirt__remote_of(f, device), f->result[i].data + (size_t)place * port->bytes, from + (size_t)place * port->bytes, (size_t)places * port->bytes);
    }
}

MIRT__LIB void mirt__remote_stage(const mirt_function *f, int device, int stage) {
    mirt__lane *lane = &f->model->strategy->lane[device];
    if (!lane->timed) return;
    if (stage == 0) lane->begun = mirt__now();
    mirt__backend_of(f)->signal(mirt__remote_of(f, device), MIRT__TIMING_EVENT + stage);
}

/* The seconds of a wait are those of the device's stages, in the order in which they ended, and so are those of reading the next batch in which
   the device was still at work. Two thirds of a training replica's are its backward part. */
static void mirt__remote_deal(const mirt_function *f, int device, double from, double to) {
    static const int phase[] = {MIRT_PHASE_FORWARD, MIRT_PHASE_BACKWARD, MIRT_PHASE_REDUCE, MIRT_PHASE_UPDATE};
    mirt__lane *lane = &f->model->strategy->lane[device];
    double seconds[4] = {0, 0, 0, 0}, sum = 0, at = from;
    for (int stage = 1; stage < 4 && (stage == 1 || f->num_ranges || f->num_states); stage++) {
        const double took = mirt__backend_of(f)->seconds(mirt__remote_of(f, device), MIRT__TIMING_EVENT + stage - 1, MIRT__TIMING_EVENT + stage);
        if (!(took > 0)) continue;
        if (stage > 1 || f->program.first_gradient < 0) seconds[stage == 1 ? 0 : stage] = took;
        else seconds[0] = took / 3, seconds[1] = took * 2 / 3;
        sum += took;
    }
    for (int i = 0; i < 4; i++) {
        if (!(seconds[i] > 0)) continue;
        mirt__lane_lap(lane, phase[i], at);
        at += (to - from) * seconds[i] / sum;
    }
    const double ahead = lane->lap[MIRT__PHASE_AHEAD], work = lane->begun + sum - (from - ahead), hidden = work > ahead ? ahead : work > 0 ? work : 0;
    for (int i = 0; i < 4 && sum > 0; i++) lane->lap[phase[i]] += hidden * seconds[i] / sum;
    if (sum > 0) lane->lap[MIRT__PHASE_AHEAD] -= hidden;
}

MIRT__LIB bool mirt__remote_finish(mirt_function *f, int device) {
    mirt__lane *lane = &f->model->strategy->lane[device];
    const double from = lane->timed ? mirt__now() : 0;
    int none = MIRT_OK;
    const mirt_status status = mirt__backend_of(f)->wait(mirt__remote_of(f, device));
    if (lane->timed && status == MIRT_OK) {
        mirt__remote_deal(f, device, from, mirt__now());
        mirt__mark(f, device, MIRT__PHASE_JOIN, -1, -1);
    }
    if (status == MIRT_OK) return true;
    if (__atomic_compare_exchange_n(&f->remote_status, &none, (int)status, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        mirt__error_get(f->remote_error);
        f->remote_device = device;
    }
    return false;
}

MIRT__LIB mirt_status mirt__remote_failure(mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    const int status = __atomic_load_n(&f->remote_status, __ATOMIC_ACQUIRE);
    if (status == MIRT_OK) return MIRT_OK;
    f->remote_status = MIRT_OK;
    mirt__error_set(f->remote_error);
    mirt__fail_at("device %s", s->device[f->remote_device].name);
    if (!s->lost[0]) snprintf(s->lost, sizeof s->lost, "%s", mirt_last_error());
    return mirt_last_status();
}

/* >>work that comes back */

static bool mirt__remote_comes_back(const mirt_function *f, int device) {
    const mirt__lane *lane = &f->model->strategy->lane[device];
    return f->program.num_cuts == 0 && !f->clocks && !f->finder && !lane->names && !(f->model->profiled);
}

MIRT__LIB void mirt__remote_open(const mirt_function *f, int device, int part) {
    const bool other =
        part == 0 ? f->overlaps : part == 1 && f->model->step == 0; /* exchanges inside of it; averages that begin */
    if (mirt__remote_comes_back(f, device))
        mirt__backend_of(f)->begin(mirt__remote_of(f, device), f,
                                   ((uint64_t)f->rows * 8 + (uint64_t)part * 2 + other) * 64 +
                                       (uint64_t)(f->scaled ? ilogb(f->root->loss_scale) & 63 : 0));
}

MIRT__LIB bool mirt__remote_shut(const mirt_function *f, int device) {
    return !mirt__remote_comes_back(f, device) || mirt__backend_of(f)->end(mirt__remote_of(f, device));
}

/* >>meetings */

MIRT__LIB bool mirt__remote_meet(const mirt_function *f, int device, int number) {
    const mirt_strategy *s = f->model->strategy;
    if (s->num_devices == 1) return true;
    s->backend->signal(s->device[device].remote, number);
    if (!mirt__device_meets(f, device, MIRT_PHASE_IMBALANCE, -1)) return false;
    for (int d = 0; d < s->num_devices; d++) {
        if (d != device) s->backend->await(s->device[device].remote, s->device[d].remote, number);
    }
    return true;
}

/* Through the machine's memory: cuts are few, and their values small. Each device computes the same from all of them. */
MIRT__LIB bool mirt__remote_cut(mirt_function *f, const mirt__node *node, int device) {
    const mirt_strategy *s = f->model->strategy;
    const mirt__real *value[2][MIRT__MAX_REPLICAS];
    mirt__real *out[MIRT__MAX_OUT], *at;
    int64_t rows[MIRT__MAX_REPLICAS], none;
    int active = mirt__active_replicas(f), first, own = mirt__device_replicas(s, f->replicas, device, &first);
    mirt__bases b;
    for (int r = first; r < first + own && r < active; r++) {
        at = f->cut_values + (size_t)r * f->cut_stride;
        mirt__replica_bases(f, device, first, r, &b);
        for (int k = 0; k < node->num_in; k++) {
            s->backend->fetch(b.remote, at, mirt__address(&b, node->in[k]), mirt__tensor_bytes(node->in[k], 1));
            at += mirt__shape_count(&node->in[k]->shape);
        }
    }
    mirt__remote_finish(f, device);
    if (!mirt__device_meets(f, device, MIRT_PHASE_IMBALANCE, -1)) return false;
    MIRT__TEST_POINT(MIRT__POINT_COLLECTIVE, device, (int)f->model->step);
    for (int r = 0; r < active; r++) {
        at = f->cut_values + (size_t)r * f->cut_stride;
        rows[r] = mirt__replica_share(f, r, &none);
        for (int k = 0; k < node->num_in; at += mirt__shape_count(&node->in[k]->shape), k++) value[k][r] = at;
    }
    at = f->cut_values + (size_t)(f->replicas + device) * f->cut_stride;
    for (int k = 0; k < node->num_out; at += mirt__shape_count(&node->out[k]->shape), k++) out[k] = at;
    if (active) mirt__all_reduce_values(node, active, value, rows, out);
    for (int r = first; r < first + own && r < active; r++) {
        mirt__replica_bases(f, device, first, r, &b);
        for (int k = 0; k < node->num_out; k++) s->backend->stage(b.remote, mirt__address(&b, node->out[k]), out[k], mirt__tensor_bytes(node->out[k], 1), false);
    }
    return mirt__device_meets(f, device, MIRT_PHASE_REDUCE, -1);
}

/* >>exchange and update */

MIRT__LIB void mirt__remote_exchange_range(const mirt_function *f, int device, int64_t begin, int64_t end) {
    const mirt_strategy *s = f->model->strategy;
    mirt__exchange x;
    mirt__remote_exchange args;
    memset(&args, 0, sizeof args);
    mirt__exchange_of(f, device, &x);
    args.begin = begin;
    args.end = end;
    args.parts = x.parts;
    args.sum = mirt__gradient_at(f, device, 0);
    for (int i = 0; i < x.parts; i++) {
        args.part_device[i] = x.device[i];
        args.part[i] = mirt__gradient_at(f, x.device[i], x.slot[i]);
    }
    for (int i = 0; i + 1 < x.parts; i++) {
        args.add[i].into = x.add[i].into;
        args.add[i].from = x.add[i].from;
    }
    s->backend->exchange(s->device[device].remote, &args);
}

MIRT__LIB void mirt__remote_exchanged(const mirt_function *f, int device) { mirt__backend_of(f)->exchanged(mirt__remote_of(f, device)); }

static void mirt__remote_gather_states(const mirt_function *f, int device) {
    const mirt_strategy *s = f->model->strategy;
    char *base[MIRT__MAX_DEVICES];
    size_t begin[MIRT__MAX_DEVICES + 1];
    int first = 0, count = 0;
    for (int d = 0; d < s->num_devices; d++) {
        count = mirt__device_replicas(s, f->replicas, d, &first);
        base[d] = mirt__remote_states_of(f, d);
        begin[d] = (size_t)first * f->state_bytes;
    }
    begin[s->num_devices] = (size_t)(first + count) * f->state_bytes;
    s->backend->gather(s->device[device].remote, base, begin, s->num_devices);
}

MIRT__LIB bool mirt__remote_reduce(mirt_function *f, int device) {
    const mirt_strategy *s = f->model->strategy;
    const bool alone = s->num_devices == 1;
    if (!alone && s->direct && !mirt__remote_meet(f, device, 0)) return false;
    if (f->num_ranges && f->stage != MIRT__REDUCED) {
        if (alone || s->direct) mirt__device_sum(f, device);
        else if (!f->overlaps) mirt__remote_exchange_range(f, device, 0, (int64_t)(f->root->trained_bytes / sizeof(mirt__real)));
        if (!alone && !s->direct && !f->overlaps) s->backend->exchanged(s->device[device].remote);
    }
    if (!alone && f->num_states) mirt__remote_gather_states(f, device);
    return alone || !s->direct || mirt__remote_meet(f, device, 1);
}

MIRT__LIB void mirt__remote_states(const mirt_function *f, int device) {
    const mirt_strategy *s = f->model->strategy;
    mirt__remote_aggregate args;
    if (device >= mirt__device_copies(s) || !f->num_states) return;
    args.value = f->state;
    args.values = f->num_states;
    args.active = mirt__active_replicas(f);
    args.replicas = f->replicas;
    args.rows = f->rows;
    args.stride = (int64_t)(f->state_bytes / sizeof(mirt__real));
    args.from = (const mirt__real *)(const void *)mirt__remote_states_of(f, device);
    args.to = (mirt__real *)(void *)f->root->remote_weight[device];
    s->backend->aggregate(s->device[device].remote, &args);
}

MIRT__LIB void mirt__remote_squares(mirt_function *f, int device, int64_t first, int64_t count) {
    enum { MOST = 1024 };
    mirt__remote_piece piece[MOST];
    double squares[MOST];
    for (int64_t at = first, left = count; left > 0; at += MOST, left -= MOST) {
        const int pieces = left < (int64_t)MOST ? (int)left : (int)MOST;
        for (int i = 0; i < pieces; i++) {
            piece[i].begin = f->model->piece[at + i].begin;
            piece[i].count = f->model->piece[at + i].count;
            squares[i] = 0;
        }
        mirt__backend_of(f)->squares(mirt__remote_of(f, device), mirt__gradient_at(f, device, 0), piece, pieces, squares);
        if (!mirt__remote_finish(f, device)) return;
        for (int i = 0; i < pieces; i++) f->model->piece[at + i].squares = squares[i];
    }
}
