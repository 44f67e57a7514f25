#include "../formats/json.h"
#include "strategy.h"
/* What started this process, and whether other processes belong to it. */

MIRT__LIB int mirt__environment_number(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return 0;
    const long value = strtol(text, &end, 10);
    return *end || value < 0 || value > INT_MAX ? 0 : (int)value;
}

static bool mirt__environment_has(const char *name) {
    const char *text = getenv(name);
    return text && *text;
}

/* >>launchers that set variables */

typedef struct mirt__launcher {
    const char *name, *size, *index;
} mirt__launcher;

enum { MIRT__BY_OPEN_MPI, MIRT__BY_MPICH, MIRT__BY_TORCHRUN, MIRT__BY_SLURM };
static const mirt__launcher mirt__launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"MPICH", "PMI_SIZE", "PMI_RANK"},
    {"torchrun", "WORLD_SIZE", "RANK"},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}
};

/* The first process's place, from MASTER_ADDR and MASTER_PORT; the second has a default, 0: none. */
static mirt_status mirt__launch_at_master(mirt_launch *launch, int port) {
    const int given = mirt__environment_number("MASTER_PORT");
    if (!mirt__environment_has("MASTER_ADDR") || (!given && !port))
        return mirt__fail(MIRT_E_WORKER, "%s started %d processes, but %s, which says where they meet, is not set",
                          launch->launcher, launch->processes,
                          mirt__environment_has("MASTER_ADDR") ? "MASTER_PORT" : "MASTER_ADDR");
    snprintf(launch->host, sizeof launch->host, "%s", getenv("MASTER_ADDR"));
    launch->port = given ? given : port;
    return MIRT_OK;
}

/* torchrun itself may listen to MASTER_PORT; the processes then meet at the next one. */
static mirt_status mirt__launch_by_torchrun(mirt_launch *launch) {
    const char *used = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (mirt__launch_at_master(launch, 0) != MIRT_OK) return mirt_last_status();
    launch->port += used && !strcmp(used, "True");
    return MIRT_OK;
}

/* The first host of a list such as "node[003-007,9],other". */
static void mirt__first_of_hosts(const char *list, char *out, size_t size) {
    size_t length = 0;
    for (const char *at = list; *at && *at != ',' && length + 1 < size; at++) {
        if (*at != '[') {
            out[length++] = *at;
            continue;
        }
        for (at++; *at && !strchr(",-]", *at) && length + 1 < size; at++) out[length++] = *at;
        while (*at && *at != ']') at++;
        if (!*at) break;
    }
    out[length] = 0;
}

/* With MPI if that has told its number to this process; otherwise the first host of the list is where they meet. */
static mirt_status mirt__launch_by_slurm(mirt_launch *launch) {
    const int step = mirt__environment_number("SLURM_STEP_ID");
    const int port = 20000 + (17 * (mirt__environment_number("SLURM_JOB_ID") % 10000) + step % 10000) % 10000;
    const char *list = getenv(mirt__environment_has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST"
                                                                           : "SLURM_JOB_NODELIST");
    launch->mpi = mirt__environment_has("PMIX_RANK") || mirt__environment_has("PMI_RANK");
    if (launch->mpi) return MIRT_OK;
    if (mirt__environment_has("MASTER_ADDR")) return mirt__launch_at_master(launch, port);
    if (!list || !*list)
        return mirt__fail(MIRT_E_WORKER, "Slurm started %d processes, but SLURM_STEP_NODELIST, which says where they "
                                         "meet, is not set",
                          launch->processes);
    mirt__first_of_hosts(list, launch->host, sizeof launch->host);
    launch->port = mirt__environment_number("MASTER_PORT");
    if (!launch->port) launch->port = port;
    return MIRT_OK;
}

static mirt_status mirt__launch_by(int launcher, mirt_launch *launch) {
    const mirt__launcher *by = &mirt__launchers[launcher];
    launch->launcher = by->name;
    launch->processes = mirt__environment_number(by->size);
    launch->index = mirt__environment_number(by->index);
    if (!mirt__environment_has(by->index) || launch->index >= launch->processes)
        return mirt__fail(MIRT_E_WORKER, "%s started %d processes, but %s, the number of this one, is %.40s", by->name,
                          launch->processes, by->index,
                          mirt__environment_has(by->index) ? getenv(by->index) : "not set");
    if (launcher == MIRT__BY_TORCHRUN) return mirt__launch_by_torchrun(launch);
    if (launcher == MIRT__BY_SLURM) return mirt__launch_by_slurm(launch);
    launch->mpi = true;
    return MIRT_OK;
}

/* >>TF_CONFIG */

static const mirt__json *mirt__cluster_of(const mirt__json *root, const char *type) {
    const mirt__json *tasks = mirt__json_member(mirt__json_member(root, "cluster"), type);
    return tasks && tasks->type == MIRT__JSON_ARRAY ? tasks : NULL;
}

/* "HOST:PORT" */
static mirt_status mirt__launch_at(const mirt__json *place, mirt_launch *launch) {
    const char *text = place->type == MIRT__JSON_STRING ? place->string : "", *colon = strrchr(text, ':');
    char *end = NULL;
    const long port = colon ? strtol(colon + 1, &end, 10) : 0;
    const size_t length = colon ? (size_t)(colon - text) : 0;
    const bool bracketed = length > 1 && text[0] == '[' && colon[-1] == ']'; /* an address of IPv6 */
    if (length == 0 || length >= sizeof launch->host || *end || port < 1 || port > 65535)
        return mirt__fail(MIRT_E_WORKER, "TF_CONFIG: the first task's place is \"%s\", not \"HOST:PORT\"",
                          mirt__label(text).text);
    snprintf(launch->host, sizeof launch->host, "%.*s", (int)length - 2 * bracketed, text + bracketed);
    launch->port = (int)port;
    return MIRT_OK;
}

static mirt_status mirt__launch_of_tasks(const mirt__json *root, mirt_launch *launch) {
    static const char *const types[] = {"chief", "master", "worker", "ps"};
    const mirt__json *task = mirt__json_member(root, "task"), *type = mirt__json_member(task, "type"),
                     *index = mirt__json_member(task, "index"), *first = NULL;
    int64_t before = 0;
    bool known = false;
    if (!type || type->type != MIRT__JSON_STRING || !index || !index->integral)
        return mirt__fail(MIRT_E_WORKER, "TF_CONFIG: \"task\" needs a \"type\" and an \"index\"");
    for (int i = 0; i < MIRT__COUNT(types); i++) {
        const mirt__json *tasks = mirt__cluster_of(root, types[i]);
        if (!tasks || !tasks->count) continue;
        if (!first) first = tasks->item[0];
        if (!strcmp(types[i], type->string) && index->integer >= 0 && index->integer < (int64_t)tasks->count) {
            known = true;
            launch->index = (int)(before + index->integer);
        }
        before += (int64_t)tasks->count;
    }
    if (!known)
        return mirt__fail(MIRT_E_WORKER, "TF_CONFIG: \"cluster\" has no %s %lld", mirt__label(type->string).text,
                          (long long)index->integer);
    launch->processes = (int)before;
    return mirt__launch_at(first, launch);
}

static mirt_status mirt__launch_by_tf_config(const char *text, mirt_launch *launch) {
    mirt__pool pool;
    mirt__error error;
    memset(&pool, 0, sizeof pool);
    launch->launcher = "TF_CONFIG";
    const mirt__json *root = mirt__json_parse(&pool, text, strlen(text));
    mirt_status status = root ? mirt__launch_of_tasks(root, launch) : mirt_last_status();
    if (!root) {
        mirt__error_get(&error);
        status = mirt__fail(MIRT_E_WORKER, "TF_CONFIG: %.200s", error.text);
    }
    mirt__pool_free(&pool);
    return status;
}

/* >>the launch */

static mirt_status mirt__launch_read(mirt_launch *launch) {
    const char *config = getenv("TF_CONFIG");
    if (mirt__environment_number("MIRT_WORKERS") == 1) return MIRT_OK;
    for (int i = 0; i < MIRT__COUNT(mirt__launchers); i++) {
        if (i == MIRT__BY_SLURM && config && *config) return mirt__launch_by_tf_config(config, launch);
        if (mirt__environment_number(mirt__launchers[i].size) > 1) return mirt__launch_by(i, launch);
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_launched(mirt_launch *out) {
    MIRT__ENTER;
    if (!out) return mirt__fail_missing(__func__, "out");
    memset(out, 0, sizeof *out);
    out->processes = 1;
    mirt_status status = mirt__launch_read(out);
    if (status == MIRT_OK && out->processes == 1) out->launcher = NULL;
    return status;
}

static int mirt__launcher_warned; /* atomic */

/* Once in the log of the first process: several processes, each of which trains alone. */
static void mirt__warn_of_copies(const mirt_strategy *s) {
    mirt_launch launch;
    mirt__error before;
    mirt__error_get(&before);
    const bool known = mirt_launched(&launch) == MIRT_OK;
    mirt__error_set(&before);
    if (!known || launch.processes == 1 || launch.index > 0) return;
    if (__atomic_exchange_n(&mirt__launcher_warned, 1, __ATOMIC_RELAXED)) return;
    mirt__log(s, MIRT_LOG_WARNING,
              "%s started %d processes, each of which trains a model of its own: mirt_multi_worker makes them train "
              "one together; MIRT_WORKERS=1 says that independent runs are wanted",
              launch.launcher, launch.processes);
}

/* Several processes were started, which this program cannot join. */
static mirt_status mirt__launcher_alone(const mirt_launch *launch) {
    return mirt__fail(MIRT_E_WORKER,
                      "%s started %d processes, but this program is built without %s and would train %d times: compile "
                      "it with %s, or set MIRT_WORKERS=1 for independent runs",
                      launch->launcher, launch->processes, launch->mpi ? "MPI" : "mirrortrain_tcp.c",
                      launch->processes, launch->mpi ? "mpicc and mirrortrain_mpi.c"
                                                                     : "-DMIRRORTRAIN_TCP and that file");
}

MIRT__LIB mirt_status mirt__peers_join(mirt_strategy *s, double limit, int gpus) {
    mirt_launch launch;
    bool found = false;
    if (s->kind != MIRT_MULTI_WORKER && !s->servers) return mirt__warn_of_copies(s), MIRT_OK;
    if (mirt_launched(&launch) != MIRT_OK) return mirt_last_status();
    if (MIRT__TOGETHER && mirt__peers_start(s, &launch, limit, gpus, &found) != MIRT_OK) return mirt_last_status();
    return launch.processes > 1 && !found ? mirt__launcher_alone(&launch) : MIRT_OK;
}
