/* Times the sum of gradients over processes beside MPI_Allreduce, in alternation. */
/* mpicc -O2 bench/allreduce.c mirrortrain_mpi.c -o allreduce -lm -lpthread; mpirun -n 2 ./allreduce */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <mpi.h>

enum { TIMES = 31 };

static void add(void *user, float *into, const float *from, int64_t count) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    ((const mirt__kernels *)user)->accumulate(into, from, count, &where);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds of both for so many numbers; false: out of memory, or messages failed. */
static bool measure(int rank, int size, int64_t count, double *tree, double *native) {
    double times[2][TIMES];
    int begin[65];
    mirt__waiting waiting;
    mirt__engine_failure failure;
    mirt__group_plan plan;
    mirt__group_sum sum;
    float *own = (float *)calloc((size_t)count, sizeof *own), *out = (float *)calloc((size_t)count, sizeof *own);
    for (int p = 0; p <= size; p++) begin[p] = p;
    if (!own || !out || mirt__group_plan_make(&plan, size, begin, size, rank, count) != MIRT_OK) return false;
    memset(&waiting, 0, sizeof waiting);
    memset(&sum, 0, sizeof sum);
    waiting.hurry = 1;
    sum.engine = mirt__mpi_engine();
    sum.waiting = &waiting;
    sum.slot = &own;
    sum.sum = own;
    sum.inbox = (float *)calloc((size_t)plan.inbox + 1, sizeof *own);
    sum.add = add;
    sum.user = (void *)(uintptr_t)mirt__kernels_best();
    bool good = sum.inbox != NULL;
    for (int i = 0; i < 2 * TIMES && good; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double from = MPI_Wtime();
        if (i % 2) MPI_Allreduce(own, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        else good = mirt__group_sum_run(&plan, &sum, &failure);
        times[i % 2][i / 2] = MPI_Wtime() - from;
    }
    for (int k = 0; k < 2; k++) qsort(times[k], TIMES, sizeof **times, ascending);
    *tree = 1e3 * times[0][TIMES / 2];
    *native = 1e3 * times[1][TIMES / 2];
    mirt__group_plan_free(&plan);
    free(sum.inbox);
    free(own);
    free(out);
    return good;
}

int main(void) {
    static const double megabytes[] = {1.4, 14, 102};
    int rank, size;
    char why[256];
    mirt_launch launch;
    if (mirt_launched(&launch) != MIRT_OK) return fprintf(stderr, "%s\n", mirt_last_error()), 1;
    if (!mirt__mpi_engine()->start(&launch, 60, &rank, &size, why)) return fprintf(stderr, "%s\n", why), 1;
    if (size > 64) return fprintf(stderr, "at most 64 processes\n"), 1;
    for (int i = 0; i < (int)(sizeof megabytes / sizeof *megabytes); i++) {
        double tree, native;
        if (!measure(rank, size, (int64_t)(megabytes[i] * 1e6 / 4), &tree, &native)) return 1;
        if (rank == 0)
            printf("%6.1f MB, %d processes: tree %.3f ms, MPI_Allreduce %.3f ms, ratio %.2f\n", megabytes[i], size, tree,
                   native, tree / native);
    }
    return 0;
}
