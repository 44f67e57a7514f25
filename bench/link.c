/* Times steps of several processes behind a slow link, with and without overlap of exchange and backward. */
/* mpicc -O2 bench/link.c -o link -lm -lpthread; mpirun -n 2 ./link [GBIT_PER_S [LATENCY_MS [REPLICAS]]] */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

/* The engine for MPI, to be slowed down. */
#define mirt__mpi_engine mirt__fast_engine
#include "../mirrortrain_mpi.c"
#undef mirt__mpi_engine

enum { SIZE = 224, BATCH = 32, STEPS = 12 };

static double bytes_per_second, latency;
static double free_at; /* when the link has sent what was given to it; guarded by the mutex */
static pthread_mutex_t link_mutex = PTHREAD_MUTEX_INITIALIZER;

static void pause_until(double when) {
    const double left = when - mirt__now();
    const struct timespec time = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
    if (left > 0) nanosleep(&time, NULL);
}

static size_t bytes_of(const mirt__message *message, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += message[i].bytes;
    return sum;
}

/* A full-duplex link that all channels share. */
static bool slow_trade(int channel, const mirt__round *round, mirt__engine_failure *failure) {
    const size_t out = bytes_of(round->send, round->sends), in = bytes_of(round->receive, round->receives);
    const double began = mirt__now();
    const bool good = mirt__fast_engine()->trade(channel, round, failure);
    if (!bytes_per_second || !(out + in)) return good;
    pthread_mutex_lock(&link_mutex);
    free_at = (free_at > began ? free_at : began) + (double)(out > in ? out : in) / bytes_per_second;
    const double when = free_at + latency;
    pthread_mutex_unlock(&link_mutex);
    pause_until(when);
    return good;
}

/* Each process stands for a host. */
static const char *own_host(int rank) {
    static char name[16][16];
    snprintf(name[rank % 16], sizeof name[0], "host%d", rank);
    return name[rank % 16];
}

const mirt__engine *mirt__mpi_engine(void) {
    static mirt__engine engine;
    engine = *mirt__fast_engine();
    engine.trade = slow_trade;
    engine.host = own_host;
    return &engine;
}

/* Milliseconds of a step, and of its exchange those that nothing hides; false: an error, which is printed. */
static bool measure(int replicas, int64_t bucket_bytes, double *step, double *exposed) {
    static unsigned char x[BATCH * SIZE * SIZE * 3], y[BATCH];
    mirt_timing t;
    mirt_strategy *strategy = mirt_strategy_create(&(mirt_strategy_desc){.kind = MIRT_MULTI_WORKER, .devices = "1",
        .threads = 1, .replicas = replicas, .silent = true, .bucket_bytes = bucket_bytes});
    mirt_model *model = strategy ? mirt_mobilenet_v2(strategy, NULL) : NULL;
    const mirt_compile_desc how = {.optimizer = mirt_adam(1e-3f), .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY};
    bool good = model && mirt_compile(model, &how) == MIRT_OK;
    for (size_t i = 0; i < sizeof x; i++) x[i] = (unsigned char)(i * 2654435761u >> 24);
    mirt_dataset *data = mirt_arrays(mirt_make_array(x, MIRT_UINT8, MIRT_SHAPE(BATCH, SIZE, SIZE, 3)),
                                     mirt_make_array(y, MIRT_UINT8, MIRT_SHAPE(BATCH)));
    data = mirt_repeat(mirt_batch(data, BATCH), -1);
    for (int i = 0; i < 2 && good; i++) /* once to warm up */
        good = mirt_fit(model, data, &(mirt_fit_desc){.steps_per_epoch = i ? STEPS : 3, .no_progress = true}) != NULL;
    good = good && mirt_fit_timing(model, &t) == MIRT_OK;
    if (good) *step = 1e3 * t.wall / (double)t.steps;
    if (good) *exposed = 1e3 * t.seconds[MIRT_PHASE_REDUCE] / (double)t.steps;
    if (!good) fprintf(stderr, "%s\n", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(strategy);
    return good;
}

int main(int argc, char **argv) {
    const double gbit = argc > 1 ? atof(argv[1]) : 1;
    const int replicas = argc > 3 ? atoi(argv[3]) : 0;
    double step[3], exposed[3];
    for (int i = 0; i < 3; i++) {
        bytes_per_second = i ? gbit * 1e9 / 8 : 0;
        latency = 1e-3 * (argc > 2 ? atof(argv[2]) : 0.2);
        if (!measure(replicas, i == 2 ? (int64_t)1 << 30 : 0, &step[i], &exposed[i])) return 1;
        if (mirt__mpi.rank == 0)
            printf("%-28s %7.1f ms a step, %6.1f ms of it exposed exchange: %.1f %%\n",
                   i == 0 ? "no link" : i == 1 ? "overlapped with backward" : "after backward", step[i], exposed[i],
                   100 * exposed[i] / step[i]);
    }
    return 0;
}
