/* The GPU's kernels as one more table beside the reference, for the tests of kernels. Linked with --wrap, this replaces
   mirt__kernel_tables and mirt__kernels_best. Each call is measured, given exactly the memory it asked for, run in an
   order that the seed chooses, and waited for. Buffers stay where tests have them: the simulated device reaches the
   host's memory. */
#include "../../src/base/base.h"
#include "../../src/device/device.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "opening.h"

void mirt_sim_host_memory(int on);
const mirt__kernels *const *__real_mirt__kernel_tables(int *count);
const mirt__kernels *const *__wrap_mirt__kernel_tables(int *count);
const mirt__kernels *__wrap_mirt__kernels_best(void);

static const mirt__host sim_host = {mirt__fail, mirt__calloc, free, mirt__now};
static pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
static const mirt__backend *sim_backend;
static const mirt__kernels *sim_reference;
static mirt__handle *sim_device;

static void sim_give_up(const char *row, const char *what) {
    printf("Bail out! %s: %s: %s\n", row, what, mirt_last_error());
    fflush(stdout);
    _Exit(1);
}

/* One call of a row. What is kept by address is forgotten before it: tests put other things at the same place. */
typedef void sim_call(const void *args, const mirt__where *where);
static void sim_run(const char *row, sim_call *call, const void *args) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.handle = sim_device;
    pthread_mutex_lock(&sim_lock);
    sim_backend->forget(sim_device, NULL);
    const size_t bytes = measured_room(sim_backend, call, args, &where);
    void *room = bytes ? sim_backend->alloc(sim_device, bytes) : NULL;
    if (bytes && !room) sim_give_up(row, "no room");
    sim_backend->room(sim_device, room, bytes);
    call(args, &where);
    if (sim_backend->wait(sim_device) != MIRT_OK) sim_give_up(row, "failed");
    sim_backend->room(sim_device, NULL, 0);
    if (room) sim_backend->release(sim_device, room);
    pthread_mutex_unlock(&sim_lock);
}

#define SIM_ROWS(row) \
    row(gemm, mirt__gemm) row(conv_forward, mirt__conv_forward) row(conv_input_grad, mirt__conv_input_grad) \
        row(conv_weight_grad, mirt__conv_weight_grad) row(conv_pool, mirt__conv_pool) \
            row(conv_pool_weight_grad, mirt__conv_pool_weight_grad) row(max_pool, mirt__pool2d) \
                row(max_pool_grad, mirt__pool2d) row(average_pool, mirt__pool2d) row(average_pool_grad, mirt__pool2d) \
                    row(unary, mirt__unary) row(binary, mirt__binary) row(logic, mirt__logic) \
                        row(reduce, mirt__reduce) row(reduce_max_grad, mirt__reduce_max_grad) row(scan, mirt__scan) \
                            row(move, mirt__move) row(gather, mirt__gather) row(gather_grad, mirt__gather) \
                                row(softmax, mirt__softmax) row(softmax_grad, mirt__softmax) row(loss, mirt__loss) \
                                    row(accuracy, mirt__accuracy) \
                                        row(dropout, mirt__dropout) row(gaussian_noise, mirt__dropout) \
                                        row(constrain, mirt__constrain) \
                                        row(cast, mirt__cast) row(one_hot, mirt__one_hot) \
                                            row(resize, mirt__resize) row(resize_grad, mirt__resize) \
                                                row(norm_stats, mirt__norm) row(normalize, mirt__norm) \
                                                    row(norm_grad_sums, mirt__norm) row(norm_grad_input, mirt__norm) \
                                                        row(augment, mirt__augment_rows) row(update, mirt__update)

#define SIM_ROW(name, type) \
    static void sim_call_##name(const void *args, const mirt__where *where) { \
        sim_backend->kernels()->name((const type *)args, where); \
    } \
    static void sim_##name(const type *args, const mirt__where *where) { \
        if (sim_backend->kernels()->name) sim_run(#name, sim_call_##name, args); \
        else sim_reference->name(args, where); \
    }
SIM_ROWS(SIM_ROW)

/* A factor for everything may stand on the stack, where a GPU reads nothing; other threads have theirs. */
static void sim_binary_by(const mirt__binary *args, const mirt__where *where) {
    mirt__real *factor = (mirt__real *)malloc(sizeof *factor);
    mirt__binary own = *args;
    if (!factor) sim_give_up("binary", "no memory");
    bool same = args->b != NULL;
    for (int i = 0; i < args->rank; i++) same = same && (args->b_stride[i] == 0 || args->dim[i] == 1);
    if (same) *factor = *(const mirt__real *)args->b;
    if (same) own.b = factor;
    sim_binary(&own, where);
    free(factor);
}

/* These take no struct. */
typedef struct sim_words {
    void *to;
    const void *from;
    int64_t count;
    mirt__real value;
} sim_words;
static void sim_call_fill(const void *args, const mirt__where *where) {
    const sim_words *w = (const sim_words *)args;
    sim_backend->kernels()->fill((mirt__real *)w->to, w->value, w->count, where);
}
static void sim_call_constant(const void *args, const mirt__where *where) {
    const sim_words *w = (const sim_words *)args;
    sim_backend->kernels()->constant(w->to, w->from, (size_t)w->count, where);
}
static void sim_call_accumulate(const void *args, const mirt__where *where) {
    const sim_words *w = (const sim_words *)args;
    sim_backend->kernels()->accumulate((mirt__real *)w->to, (const mirt__real *)w->from, w->count, where);
}
static void sim_fill(mirt__real *y, mirt__real value, int64_t count, const mirt__where *where) {
    const sim_words w = {y, NULL, count, value};
    if (sim_backend->kernels()->fill) sim_run("fill", sim_call_fill, &w);
    else sim_reference->fill(y, value, count, where);
}
static void sim_constant(void *y, const void *data, size_t bytes, const mirt__where *where) {
    const sim_words w = {y, data, (int64_t)bytes, 0};
    if (sim_backend->kernels()->constant) sim_run("constant", sim_call_constant, &w);
    else sim_reference->constant(y, data, bytes, where);
}
static void sim_accumulate(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where) {
    const sim_words w = {into, from, count, 0};
    if (sim_backend->kernels()->accumulate) sim_run("accumulate", sim_call_accumulate, &w);
    else sim_reference->accumulate(into, from, count, where);
}

static mirt__kernels sim_table;
static const mirt__kernels *sim_tables[2];

static void sim_end(void) {
    if (sim_device) sim_backend->close(sim_device);
    sim_device = NULL;
}

#define SIM_ENTRY(row, type) SIM_SET(row)
#define SIM_SET(row) \
    sim_table.row = sim_##row; \
    if (!sim_backend->kernels()->row) printf("# %s is the reference's: there is no kernel yet\n", #row);
static void sim_begin(void) {
    int count;
    sim_reference = __real_mirt__kernel_tables(&count)[count - 1];
    sim_backend = mirt__cuda_backend();
    sim_table.name = "cuda";
    sim_table.tiled_reads = sim_backend->kernels()->tiled_reads;
    sim_table.half = sim_backend->kernels()->half;
    sim_table.fused_products = sim_backend->kernels()->fused_products;
    sim_table.fused_elements = sim_backend->kernels()->fused_elements;
    SIM_ROWS(SIM_ENTRY)
    sim_table.binary = sim_binary_by;
    SIM_SET(fill)
    SIM_SET(constant)
    SIM_SET(accumulate)
    sim_tables[0] = &sim_table;
    sim_tables[1] = sim_reference;
    mirt_sim_host_memory(1);
    sim_device = sim_backend->open(&sim_host, opening(0, false));
    if (!sim_device) sim_give_up("device 0", "does not open");
    atexit(sim_end);
}

const mirt__kernels *const *__wrap_mirt__kernel_tables(int *count) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, sim_begin);
    *count = 2;
    return sim_tables;
}

const mirt__kernels *__wrap_mirt__kernels_best(void) {
    const char *name = getenv("MIRT_CPU");
    int count;
    const mirt__kernels *const *tables = __wrap_mirt__kernel_tables(&count);
    return tables[name && strcmp(name, "reference") == 0];
}
