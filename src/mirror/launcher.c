#include "../formats/json.h"
#include "strategy.h"
/* What started this process, and whether other processes belong to it. */

static const char *mirt__environment_text(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

MIRT__LIB bool mirt__runs_alone(void) {
    const char *text = mirt__environment_text("MIRT_WORKERS");
    return text && !strcmp(text, "1");
}

/* Whether a text is a number in [least, most]. */
static bool mirt__number_of(const char *text, long least, long most, int *out) {
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most) return false;
    *out = (int)value;
    return true;
}

/* *out stays as it is where the variable is not set. Anything but a number in [least, most] is an error. */
static mirt_status mirt__launch_number(const char *name, long least, long most, int *out) {
    const char *text = mirt__environment_text(name);
    if (!text || mirt__number_of(text, least, most, out)) return MIRT_OK;
    return mirt__fail(MIRT_E_WORKER, "%s is \"%s\", not a number from %ld to %ld", name, mirt__label(text).text, least,
                      most);
}

/* >>where processes meet that MPI does not connect */

/* `length` bytes; an address of IPv6 may be in brackets. */
static mirt_status mirt__launch_host(mirt_launch *launch, const char *text, size_t length, const char *source) {
    if (length > 1 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof launch->host)
        return mirt__fail(MIRT_E_WORKER, "%s has no name of a host, but \"%s\"", source, mirt__label(text).text);
    memcpy(launch->host, text, length);
    launch->host[length] = 0;
    return MIRT_OK;
}

/* MASTER_ADDR and MASTER_PORT, which have defaults, NULL and 0: none. */
static mirt_status mirt__launch_at_master(mirt_launch *launch, const char *host, int port) {
    const char *named = mirt__environment_text("MASTER_ADDR"), *source = named ? "MASTER_ADDR" : "SLURM_STEP_NODELIST";
    launch->port = port;
    if (mirt__launch_number("MASTER_PORT", 1, 65535, &launch->port) != MIRT_OK) return mirt_last_status();
    if (!named) named = host;
    if (!named || !launch->port)
        return mirt__fail(MIRT_E_WORKER,
                          "%s started %d processes, but %s is not set: they meet where MASTER_ADDR and MASTER_PORT say",
                          launch->launcher, launch->processes, named ? "MASTER_PORT" : "MASTER_ADDR");
    return mirt__launch_host(launch, named, strlen(named), source);
}

/* torchrun itself may listen to MASTER_PORT; the processes then meet at the next one. */
static mirt_status mirt__meet_by_torchrun(mirt_launch *launch) {
    const char *used = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (mirt__launch_at_master(launch, NULL, 0) != MIRT_OK) return mirt_last_status();
    if (!used || strcmp(used, "True") != 0) return MIRT_OK;
    if (launch->port == 65535) return mirt__fail(MIRT_E_WORKER, "MASTER_PORT is 65535, but the next port is needed");
    launch->port++;
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

/* With MPI if that has told its number to this process; otherwise on the first host of the list. Each step of a job has
   a port of its own. */
static mirt_status mirt__meet_by_slurm(mirt_launch *launch) {
    const char *list = mirt__environment_text("SLURM_STEP_NODELIST");
    char first[sizeof launch->host];
    int job = 0, step = 0;
    launch->mpi = mirt__environment_text("PMIX_RANK") || mirt__environment_text("PMI_RANK");
    if (launch->mpi) return MIRT_OK;
    if (!list) list = mirt__environment_text("SLURM_JOB_NODELIST");
    if (list) mirt__first_of_hosts(list, first, sizeof first);
    if (mirt__launch_number("SLURM_JOB_ID", 0, INT_MAX, &job) != MIRT_OK ||
        mirt__launch_number("SLURM_STEP_ID", 0, INT_MAX, &step) != MIRT_OK)
        return mirt_last_status();
    return mirt__launch_at_master(launch, list ? first : NULL, 20000 + (job % 10000 * 17 + step % 10000) % 10000);
}

static mirt_status mirt__meet_by_mpi(mirt_launch *launch) {
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
    if (!colon || !mirt__number_of(colon + 1, 1, 65535, &launch->port))
        return mirt__fail(MIRT_E_WORKER, "TF_CONFIG: the first task's place is \"%s\", not \"HOST:PORT\"",
                          mirt__label(text).text);
    return mirt__launch_host(launch, text, (size_t)(colon - text), "TF_CONFIG");
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
    return before > 1 ? mirt__launch_at(first, launch) : MIRT_OK;
}

/* Without a cluster, as TensorFlow has it, the process is alone. */
static mirt_status mirt__meet_by_tf_config(mirt_launch *launch) {
    const char *text = mirt__environment_text("TF_CONFIG");
    mirt__pool pool;
    mirt__error error;
    mirt_status status = MIRT_OK;
    if (!text) return MIRT_OK;
    memset(&pool, 0, sizeof pool);
    const mirt__json *root = mirt__json_parse(&pool, text, strlen(text)), *cluster = mirt__json_member(root, "cluster");
    if (cluster && cluster->count) status = mirt__launch_of_tasks(root, launch);
    if (!root) {
        mirt__error_get(&error);
        status = mirt__fail(MIRT_E_WORKER, "TF_CONFIG: %.200s", error.text);
    }
    mirt__pool_free(&pool);
    return status;
}

/* >>the launch */

typedef struct mirt__launcher {
    const char *name, *size, *index; /* and its variables, NULL: it has others */
    mirt_status (*meet)(mirt_launch *launch);
} mirt__launcher;

/* The first that has started several processes counts: mpirun within a Slurm job, torchrun within srun. */
static const mirt__launcher mirt__launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", mirt__meet_by_mpi},
    {"MPICH", "PMI_SIZE", "PMI_RANK", mirt__meet_by_mpi},
    {"torchrun", "WORLD_SIZE", "RANK", mirt__meet_by_torchrun},
    {"TF_CONFIG", NULL, NULL, mirt__meet_by_tf_config},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", mirt__meet_by_slurm}
};

static mirt_status mirt__launch_by(const mirt__launcher *by, mirt_launch *launch) {
    launch->launcher = by->name;
    if (!by->size) return by->meet(launch);
    if (mirt__launch_number(by->size, 0, INT_MAX, &launch->processes) != MIRT_OK) return mirt_last_status();
    if (launch->processes < 2) return launch->processes = 1, MIRT_OK;
    if (!mirt__environment_text(by->index))
        return mirt__fail(MIRT_E_WORKER, "%s started %d processes, but %s, the number of this one, is not set",
                          by->name, launch->processes, by->index);
    if (mirt__launch_number(by->index, 0, launch->processes - 1, &launch->index) != MIRT_OK) return mirt_last_status();
    return by->meet(launch);
}

static mirt_status mirt__launch_read(mirt_launch *launch) {
    mirt_status status = MIRT_OK;
    if (mirt__runs_alone()) return MIRT_OK;
    for (int i = 0; i < MIRT__COUNT(mirt__launchers) && status == MIRT_OK && launch->processes == 1; i++)
        status = mirt__launch_by(&mirt__launchers[i], launch);
    return status;
}

MIRT_API mirt_status mirt_launched(mirt_launch *out) {
    MIRT__ENTER;
    if (!out) return mirt__fail_missing(__func__, "out");
    memset(out, 0, sizeof *out);
    out->processes = 1;
    const mirt_status status = mirt__launch_read(out);
    if (status == MIRT_OK && out->processes > 1) return MIRT_OK;
    memset(out, 0, sizeof *out); /* alone, or not known */
    out->processes = 1;
    return status;
}

static int mirt__launcher_warned; /* atomic */

/* Once in the log of the first process: several processes, each of which trains alone. */
static void mirt__warn_of_copies(const mirt_strategy *s) {
    mirt_launch launch;
    mirt__error before;
    if (__atomic_exchange_n(&mirt__launcher_warned, 1, __ATOMIC_RELAXED)) return;
    mirt__error_get(&before);
    const bool known = mirt_launched(&launch) == MIRT_OK;
    mirt__error_set(&before);
    if (!known || launch.processes == 1 || launch.index > 0) return;
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
                      launch->processes,
                      launch->mpi ? "mpicc and mirrortrain_mpi.c" : "-DMIRRORTRAIN_TCP and that file");
}

MIRT__LIB mirt_status mirt__peers_join(mirt_strategy *s, double limit, int gpus) {
    mirt_launch launch;
    bool found = false;
    if (s->kind != MIRT_MULTI_WORKER && !s->servers) return mirt__warn_of_copies(s), MIRT_OK;
    if (mirt_launched(&launch) != MIRT_OK) return mirt_last_status();
    if (MIRT__TOGETHER && mirt__peers_start(s, &launch, limit, gpus, &found) != MIRT_OK) return mirt_last_status();
    return launch.processes > 1 && !found ? mirt__launcher_alone(&launch) : MIRT_OK;
}
