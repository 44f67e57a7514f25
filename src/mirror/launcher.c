#include "strategy.h"
/* What started this process, and whether other processes belong to it. */

static const mirt__launcher mirt__launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"MPICH", "PMI_SIZE", "PMI_RANK"},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}
};

MIRT__LIB int mirt__environment_number(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return 0;
    const long value = strtol(text, &end, 10);
    return *end || value < 0 || value > INT_MAX ? 0 : (int)value;
}

/* The launcher that started several processes, which are not to be independent; otherwise NULL. */
static const mirt__launcher *mirt__launcher_here(void) {
    if (mirt__environment_number("MIRT_WORKERS") == 1) return NULL;
    for (int i = 0; i < MIRT__COUNT(mirt__launchers); i++) {
        if (mirt__environment_number(mirt__launchers[i].size) > 1) return &mirt__launchers[i];
    }
    return NULL;
}

static int mirt__launcher_warned; /* atomic */

/* Once in the log of the first process: several processes, each of which trains alone. */
static void mirt__warn_of_copies(const mirt_strategy *s, const mirt__launcher *launcher) {
    if (!launcher || mirt__environment_number(launcher->rank) > 0) return;
    if (__atomic_exchange_n(&mirt__launcher_warned, 1, __ATOMIC_RELAXED)) return;
    mirt__log(s, MIRT_LOG_WARNING,
              "%s started %d processes, each of which trains a model of its own: mirt_multi_worker makes them train "
              "one together; MIRT_WORKERS=1 says that independent runs are wanted",
              launcher->name, mirt__environment_number(launcher->size));
}

/* Several processes were started, which this program cannot join. */
static mirt_status mirt__launcher_alone(const mirt__launcher *launcher) {
    const int started = mirt__environment_number(launcher->size);
    return mirt__fail(MIRT_E_WORKER,
                      "%s started %d processes (%s), but this program is built without MPI and would train %d times: "
                      "compile it with mpicc and mirrortrain_mpi.c, or set MIRT_WORKERS=1 for independent runs",
                      launcher->name, started, launcher->size, started);
}

MIRT__LIB mirt_status mirt__peers_join(mirt_strategy *s, double limit, int gpus) {
    const mirt__launcher *launcher = mirt__launcher_here();
    bool found = false;
    if (s->kind != MIRT_MULTI_WORKER && !s->servers) return mirt__warn_of_copies(s, launcher), MIRT_OK;
    if (MIRT__TOGETHER && mirt__peers_start(s, launcher, limit, gpus, &found) != MIRT_OK) return mirt_last_status();
    return launcher && !found ? mirt__launcher_alone(launcher) : MIRT_OK;
}
