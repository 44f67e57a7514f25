/* Processes that a launcher started together, and the engine that connects them. */
#include "posix.h"
#define MIRRORTRAIN_BACKEND
#include "cli.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool together, joined;
static mirt_launch launch; /* once find_launcher has been called */

bool find_launcher(bool *several) {
    const bool good = mirt_launched(&launch) == MIRT_OK;
    if (!good) launch.index = 0; /* not known, and each has something of its own to say */
    *several = launch.processes > 1;
    return good;
}

const mirt_launch *own_launch(void) { return &launch; }
static bool by_slurm(void) { return launch.launcher && strcmp(launch.launcher, "Slurm") == 0; }

void work_together(void) {
    together = true;
    if (launch.index > 0 && !freopen("/dev/null", "w", stdout)) fclose(stdout);
}

void work_alone(void) { launch.index = 0; }
void join_others(void) { joined = true; }
bool works_together(void) { return together; }
bool joined_others(void) { return joined; }
int own_number(void) { return launch.index; }
bool is_first(void) { return launch.index == 0; }
bool may_complain(void) { return launch.index == 0 || together; }

void start_words(char *out, size_t size) {
    out[0] = 0;
    if (together && (launch.mpi || by_slurm()))
        snprintf(out, size, "%s -n %d", by_slurm() ? "srun" : "mpirun", launch.processes);
}

void pretend_alone(bool alone) {
    if (alone) setenv("MIRT_WORKERS", "1", 1);
    else unsetenv("MIRT_WORKERS");
}

/* >>the engine */

/* FILE next to this program. False: its path is not known, or too long. */
static bool beside(const char *file, char *path, size_t size) {
    const ssize_t length = readlink("/proc/self/exe", path, size);
    if (length <= 0 || (size_t)length >= size) return false;
    path[length] = 0;
    char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    const size_t left = size - (size_t)(name - path);
    return snprintf(name, left, "%s", file) < (int)left;
}

static const char open_mpi[] = "mirrortrain-openmpi.so", mpich[] = "mirrortrain-mpich.so";

/* The file of an engine: the one that MIRT_MPI_ENGINE names, or that for the launcher's MPI. Slurm starts programs of
   either; of two engines that are missing, Open MPI's is reported. */
static const char *engine_file(char *path, size_t size) {
    const char *named = getenv("MIRT_MPI_ENGINE");
    const bool slurm = by_slurm();
    if (named && *named) return named;
    if ((slurm && !getenv("PMIX_RANK")) || strcmp(launch.launcher, "MPICH") == 0) {
        if (beside(mpich, path, size) && (!slurm || access(path, R_OK) == 0)) return path;
    }
    return beside(open_mpi, path, size) ? path : open_mpi;
}

static char failure[256];

static bool start_failed(const mirt_launch *unused, double limit, int *rank, int *size, char *why) {
    (void)unused;
    (void)limit;
    (void)rank;
    (void)size;
    memcpy(why, failure, sizeof failure);
    return false;
}

/* Found by the library where several processes are to train together. */
const mirt__engine *mirt__mpi_engine(void) {
    static mirt__engine missing;
    static char path[PATH_MAX];
    const mirt__engine *(*engine)(void) = NULL;
    if (!launch.mpi) return NULL;
    const char *file = engine_file(path, sizeof path);
    void *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    void *symbol = library ? dlsym(library, "mirt__mpi_engine") : NULL;
    memcpy(&engine, &symbol, sizeof engine);
    if (engine) return limited_engine(engine());
    const char *reason = dlerror(), *shown = reason ? reason : file;
    if (access(file, R_OK) == 0) snprintf(failure, sizeof failure, "%.200s", shown);
    else
        snprintf(failure, sizeof failure, "%.150s is missing: `make mpi` builds it for the MPI that is installed",
                 file);
    missing.version = MIRT__ENGINE_VERSION;
    missing.name = launch.launcher;
    missing.start = start_failed;
    return &missing;
}
