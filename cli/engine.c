/* Processes that a launcher started together, and the engine that connects them. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_BACKEND
#include "cli.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A launcher, the variables in which it says how many processes it started and which of them this one is, and the file
   with the engine for its MPI. */
typedef struct launcher {
    const char *name, *size, *rank, *file, *start;
} launcher;

static const launcher launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mirrortrain-openmpi.so", "mpirun -n"},
    {"MPICH", "PMI_SIZE", "PMI_RANK", "mirrortrain-mpich.so", "mpirun -n"},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, "srun -n"}, /* with either MPI */
};

static bool together, joined;
static int number;

static int variable(const char *name) {
    const char *text = getenv(name);
    char *end;
    const long value = text ? strtol(text, &end, 10) : 0;
    return text && *text && !*end && value > 0 && value < INT_MAX ? (int)value : 0;
}

/* NULL: one process, or independent ones. */
static const launcher *launcher_here(void) {
    if (variable("MIRT_WORKERS") == 1) return NULL;
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        if (variable(launchers[i].size) > 1) return &launchers[i];
    }
    return NULL;
}

bool find_launcher(void) {
    const launcher *from = launcher_here();
    number = from ? variable(from->rank) : 0;
    return from != NULL;
}

void work_together(void) {
    together = true;
    if (number > 0 && !freopen("/dev/null", "w", stdout)) fclose(stdout);
}

void work_alone(void) { number = 0; }
void join_others(void) { joined = true; }
bool works_together(void) { return together; }
bool joined_others(void) { return joined; }
int own_number(void) { return number; }
bool is_first(void) { return number == 0; }
bool may_complain(void) { return number == 0 || together; }

void start_words(char *out, size_t size) {
    const launcher *from = together ? launcher_here() : NULL;
    if (from) snprintf(out, size, "%s %d", from->start, variable(from->size));
    else out[0] = 0;
}

void pretend_processes(int before, int now) {
    char text[16];
    snprintf(text, sizeof text, "%d", now);
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        if (variable(launchers[i].size) == before) setenv(launchers[i].size, text, 1);
    }
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

/* The file of an engine: the one that MIRT_MPI_ENGINE names, or that for the launcher's MPI. */
static const char *engine_file(const launcher *from, char *path, size_t size) {
    const char *named = getenv("MIRT_MPI_ENGINE");
    if (named && *named) return named;
    if (from->file) return beside(from->file, path, size) ? path : from->file;
    for (int i = 1; i >= 0; i--) { /* of one that is missing, Open MPI's is reported */
        const bool known = beside(launchers[i].file, path, size);
        if (i == 0 || (known && access(path, R_OK) == 0 && !getenv("PMIX_RANK"))) break;
    }
    return path;
}

static char failure[256];

static bool start_failed(double limit, int *rank, int *size, char *why) {
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
    const launcher *from = launcher_here();
    const mirt__engine *(*engine)(void) = NULL;
    if (!from) return NULL;
    const char *file = engine_file(from, path, sizeof path);
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
    missing.name = from->name;
    missing.start = start_failed;
    return &missing;
}
