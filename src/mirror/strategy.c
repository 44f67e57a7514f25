#include "memory.h"
#include "watch.h"

#include <sys/ioctl.h>
#include <unistd.h>
/* Creates strategies: opens devices, starts threads, logs what was chosen. */

static void mirt__log_stderr(mirt_log_level level, const char *text, void *user) {
    (void)user;
    fprintf(stderr, level == MIRT_LOG_PROGRESS && text[0] == '\r' ? "%s" : "%s\n", text);
}

MIRT__LIB bool mirt__writes_files(const mirt_strategy *strategy) {
    return !MIRT__GROUP(strategy) || MIRT__GROUP(strategy)->rank == 0;
}

MIRT__LIB bool mirt__log_is_users(const mirt_strategy *strategy) {
    return strategy->log && strategy->log != mirt__log_stderr;
}

MIRT__TRAINING_LIB int mirt__log_columns(const mirt_strategy *strategy) {
    enum { USUAL = 80 };
    if (strategy->log != mirt__log_stderr || !mirt__writes_files(strategy) || !isatty(2)) return 0;
#ifdef TIOCGWINSZ
    struct winsize size;
    if (ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
#endif
    const char *text = getenv("COLUMNS");
    const long columns = text ? strtol(text, NULL, 10) : 0;
    return columns > 0 && columns <= SHRT_MAX ? (int)columns : USUAL;
}

typedef struct mirt__log_line {
    const mirt_strategy *strategy;
    mirt_log_level level;
    char text[512];
} mirt__log_line;

static void mirt__log_write(void *arg) {
    const mirt__log_line *line = (const mirt__log_line *)arg;
    MIRT__OUTSIDE;
    line->strategy->log(line->level, line->text, line->strategy->log_user);
}

MIRT__LIB void mirt__log(const mirt_strategy *strategy, mirt_log_level level, const char *format, ...) {
    mirt__log_line line;
    va_list args;
    const bool other = strategy->log == mirt__log_stderr && !mirt__writes_files(strategy);
    if (!strategy->log || (other && level > MIRT_LOG_WARNING)) return;
    line.strategy = strategy;
    line.level = level;
    const size_t begin =
        other ? (size_t)snprintf(line.text, sizeof line.text, "process %d: ", MIRT__GROUP(strategy)->rank) : 0;
    va_start(args, format);
    if (level == MIRT_LOG_PROGRESS)
        vsnprintf(line.text, sizeof line.text, format, args); /* it moves the cursor itself */
    else mirt__vprint(line.text + begin, sizeof line.text - begin, format, args);
    va_end(args);
    if (strategy->log == mirt__log_stderr) mirt__log_write(&line);
    else mirt__on_caller(strategy, mirt__log_write, &line);
}

MIRT_API void mirt_set_log(mirt_strategy *strategy, mirt_log_fn fn, void *user) {
    MIRT__USE(strategy, );
    if (!strategy) return;
    strategy->log = fn;
    strategy->log_user = user;
}

MIRT__LIB double mirt__time_limit(const mirt_strategy_desc *desc) {
    const double usual = 60;
    return desc->timeout_seconds < 0 ? 0 : desc->timeout_seconds > 0 ? desc->timeout_seconds : usual;
}

static mirt_status mirt__average_set(mirt_strategy *s, const mirt_strategy_desc *desc) {
    s->average_every = desc->average_every;
    if (desc->average_every < 0)
        return mirt__fail(MIRT_E_INVALID, "average_every is %d; it cannot be negative", desc->average_every);
    if (desc->average_every && s->kind != MIRT_MULTI_WORKER)
        return mirt__fail(MIRT_E_INVALID, "average_every is for MIRT_MULTI_WORKER");
    return MIRT_OK;
}

/* Before the processes are joined. */
static mirt_status mirt__servers_set(mirt_strategy *s, const mirt_strategy_desc *desc) {
    const bool bounded = desc->max_staleness || desc->has_max_staleness;
    s->max_staleness = bounded ? desc->max_staleness : -1;
    if (s->kind == MIRT_PARAMETER_SERVER) s->servers = desc->servers ? desc->servers : 1;
    if (s->kind != MIRT_PARAMETER_SERVER && (desc->servers || bounded))
        return mirt__fail(MIRT_E_INVALID, "servers and max_staleness are for MIRT_PARAMETER_SERVER");
    if (desc->servers < 0 || desc->max_staleness < 0)
        return mirt__fail(MIRT_E_INVALID, "%d servers and a staleness of %d; neither can be negative", desc->servers,
                          desc->max_staleness);
    return MIRT_OK;
}

/* Once they are. */
static mirt_status mirt__servers_check(const mirt_strategy *s) {
    const int processes = MIRT__GROUP(s) ? MIRT__GROUP(s)->size : 1, most = 8 * MIRT__COUNT(s->peers->gone);
    if (s->servers && processes - s->servers > most)
        return mirt__fail(MIRT_E_INVALID, "%d workers; parameter servers serve at most %d", processes - s->servers,
                          most);
    if (!s->servers || s->servers < processes) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "%d parameter server%s in %d process%s: at least one has to be a worker: start more",
                      s->servers, s->servers == 1 ? "" : "s", processes, processes == 1 ? "" : "es");
}

static mirt_status mirt__check_strategy(const mirt_strategy *s) {
    if (mirt__servers_check(s) != MIRT_OK) return mirt_last_status();
    const bool cores = s->backend == mirt__cores_backend();
    if (MIRT__PEERS(s) && s->collective > MIRT_TREE && s->collective != (cores ? MIRT_MPI_ALLREDUCE : MIRT_NCCL))
        return mirt__fail(MIRT_E_INVALID, "several processes sum gradients on %s by MIRT_TREE or %s",
                          cores ? "cores" : "GPUs", cores ? "MIRT_MPI_ALLREDUCE" : "MIRT_NCCL");
    if (s->collective == MIRT_MPI_ALLREDUCE && s->kind != MIRT_MULTI_WORKER)
        return mirt__fail(MIRT_E_INVALID, "MIRT_MPI_ALLREDUCE is for MIRT_MULTI_WORKER");
    if (s->kind == MIRT_ONE_DEVICE && s->num_devices > 1) {
        return mirt__fail(MIRT_E_INVALID, "a strategy of one device is given %d; name one, or take a mirrored strategy",
                          s->num_devices);
    }
    if (s->num_replicas < s->all_devices) {
        return mirt__fail(MIRT_E_INVALID, "%d replica%s on %d devices: every device needs at least one replica",
                          s->num_replicas, s->num_replicas == 1 ? "" : "s", s->all_devices);
    }
    for (int d = 0; d < s->all_devices && s->share_before; d++) {
        if (mirt__share_begin(s, s->num_replicas, d + 1) > mirt__share_begin(s, s->num_replicas, d)) continue;
        return mirt__fail(MIRT_E_INVALID, "%d replicas in these shares leave none for device %d of %d: ask for more",
                          s->num_replicas, d, s->all_devices);
    }
    if (s->num_replicas > MIRT__MAX_REPLICAS)
        return mirt__fail(MIRT_E_INVALID, "%d replicas asked for; at most %d work", s->num_replicas,
                          MIRT__MAX_REPLICAS);
    if (s->threads < 1 || s->threads > 1024)
        return mirt__fail(MIRT_E_INVALID, "%d threads per device asked for; it must be between 1 and 1024", s->threads);
#ifdef MIRRORTRAIN_NO_THREADS
    if (s->num_devices > 1 || s->threads > 1) {
        return mirt__fail(
            MIRT_E_THREAD,
            "%d devices of %d threads: built with MIRRORTRAIN_NO_THREADS there is one device of one thread",
            s->num_devices, s->threads);
    }
#endif
    return MIRT_OK;
}

typedef struct mirt__socket_threads {
    const mirt__cpus *socket;
    bool leads; /* each member has a socket, otherwise all have this one */
} mirt__socket_threads;

static void mirt__pin_member(void *arg, int member) {
    const mirt__socket_threads *own = (const mirt__socket_threads *)arg;
    if (member) mirt__pin(&own->socket[own->leads ? member : 0]); /* member 0 is the caller, or leads the device */
}

static void mirt__pin_team(mirt__team *team, const mirt__cpus *socket, bool leads) {
    mirt__socket_threads own = {socket, leads};
    mirt__team_run(team, mirt__pin_member, &own);
}

/* `limit`: the time of so many cores is there for the threads. */
static mirt_status mirt__start_threads(mirt_strategy *s, double limit, bool simulated) {
    const int spin = (double)s->num_devices * s->threads <= limit ? (int)limit : 0;
    if (MIRT__TRAINS && simulated) {
        if (s->num_devices > 1 || s->backend != mirt__cores_backend())
            return mirt__fail(MIRT_E_INVALID, "simulate_threads is for one device of cores");
        return (s->device[0].team = mirt__team_simulated(s->threads)) ? MIRT_OK : mirt_last_status();
    }
    if (s->num_devices > 1 && !(s->leaders = mirt__team_create(s->num_devices, spin))) return mirt_last_status();
    if (s->socket) mirt__pin_team(s->leaders, s->socket, true);
    for (int d = 0; d < s->num_devices && s->threads > 1; d++) {
        if (!(s->device[d].team = mirt__team_create(s->threads, spin))) return mirt_last_status();
        if (s->socket) mirt__pin_team(s->device[d].team, &s->socket[d], false);
    }
    return MIRT_OK;
}

/* What became of the cores. */
static void mirt__introduce_cores(const mirt_strategy *s, bool asked, int cores, int fast) {
    if (MIRT__GROUP(s)) return; /* others may run on them */
    if (!asked && fast < cores)
        mirt__log(s, MIRT_LOG_INFO, "%d of %d cores are efficiency cores, which only a number of threads asks for",
                  cores - fast, cores);
    if (!asked) cores = fast;
    const int idle = cores - s->num_devices * s->threads;
    if (idle > 0 && asked) {
        mirt__log(s, MIRT_LOG_INFO, "%d of %d cores are left to others, as asked for", idle, cores);
    } else if (idle > 0) {
        mirt__log(s, MIRT_LOG_WARNING,
                  "%d of %d cores stay idle: %d devices get %d each; a number of devices that divides %d uses all",
                  idle, cores, s->num_devices, s->threads, cores);
    }
    if ((int64_t)s->num_devices * s->threads > cores) {
        mirt__log(s, MIRT_LOG_WARNING, "%d device%s of %d thread%s share%s %d core%s: the same results, but not faster",
                  s->num_devices, s->num_devices == 1 ? "" : "s", s->threads, s->threads == 1 ? "" : "s",
                  s->num_devices == 1 ? "s" : "", cores, cores == 1 ? "" : "s");
    }
}

/* What the devices are, in words: "2 CPU devices cpu:0 cpu:1 of 1 thread (avx512)". */
static void mirt__introduce_devices(const mirt_strategy *s, const mirt__found *found, char *out, size_t size) {
    char names[MIRT__MAX_DEVICES * 10] = "";
    for (int d = 0; (found->named || !s->able.in_place) && d < s->num_devices; d++)
        mirt__line_add(names, sizeof names, " %s", s->device[d].name);
    const char *several = s->num_devices == 1 ? "" : "s";
    if (!s->able.in_place) snprintf(out, size, "%d GPU%s%s", s->num_devices, several, names);
    else
        snprintf(out, size, "%s%d CPU device%s%s%s%s%s of %d thread%s (%s)",
                 !found->default_cores ? ""
                 : found->no_driver    ? "no GPU (no NVIDIA driver), "
                                       : "no GPU, ",
                 s->num_devices, several, names, found->sockets ? ", " : "", found->sockets ? found->sockets : "",
                 found->sockets ? "," : "", s->threads, s->threads == 1 ? "" : "s", s->kernels->name);
}

/* "process 0 of 4 on 2 hosts, with ", or "" where there is one. */
static void mirt__introduce_peers(const mirt_strategy *s, char *out, size_t size) {
    const mirt__peers *p = MIRT__GROUP(s);
    out[0] = 0;
    if (p)
        snprintf(out, size, "process %d of %d on %d host%s, with ", p->rank, p->size, p->hosts,
                 p->hosts == 1 ? "" : "s");
}

static void mirt__introduce(const mirt_strategy *s, const mirt__found *found, const char *about, const char *joined) {
    const char *why = "", *name = mirt__collective_name(s->collective, &why);
    char how[160] = "", kind[MIRT__MAX_DEVICES * 10 + 96], process[96];
    mirt__introduce_devices(s, found, kind, sizeof kind);
    mirt__introduce_peers(s, process, sizeof process);
    if (s->num_replicas > 1)
        snprintf(how, sizeof how, ", gradients summed by %s (%s: %s)", name,
                 s->collective == MIRT_COLLECTIVE_AUTO ? "auto" : "asked for", why);
    mirt__log(s, MIRT_LOG_INFO, "mirrortrain %s: %s%s, %d replica%s%s%s%s", mirt_version(), process, kind,
              s->num_replicas, s->num_replicas == 1 ? "" : "s",
              s->kind == MIRT_CENTRAL_STORAGE ? ", one copy of the weights" : "",
              s->winograd && s->able.in_place ? ", Winograd's convolutions" : "", how);
    if (*about) mirt__log(s, MIRT_LOG_INFO, "%s", about);
    if (*joined) mirt__log(s, MIRT_LOG_INFO, "%s", joined);
}

/* >>devices */

MIRT__TOGETHER_ONLY bool mirt__devices_hear_first(void *user, void *data, size_t bytes) {
    return mirt__peers_hear_first((mirt_strategy *)user, data, bytes) == MIRT_OK;
}

/* `about`: what the first device is; `how`: how they meet; sentences for the log. */
static mirt_status mirt__devices_open(mirt_strategy *s, const mirt_strategy_desc *desc, char about[256],
                                      char how[256]) {
    mirt__device_facts info;
    mirt__handle *handle[MIRT__MAX_DEVICES];
    mirt__joining join;
    mirt_status status = MIRT_OK;
    for (int d = 0; d < s->num_devices && status == MIRT_OK; d++) {
        const mirt__opening opening = {s->device[d].index, s->tf32, s->num_devices, s->device[d].team,
                                       s->socket ? &s->socket[d] : NULL};
        s->device[d].handle = handle[d] = s->backend->open(mirt__backend_host(), &opening);
        if (!handle[d]) status = mirt_last_status();
    }
    if (MIRT__PEERS(s)) status = mirt__peers_fare(s, status, "cannot use its devices");
    if (status != MIRT_OK) return status;
    memset(&join, 0, sizeof join);
    join.handle = handle;
    join.count = s->num_devices;
    join.collective = s->collective;
    join.shares = s->kind == MIRT_CENTRAL_STORAGE;
    join.limit = mirt__time_limit(desc);
    join.how = how;
    join.first = s->first_device;
    join.all = s->all_devices;
    join.per_host = MIRT__PEERS(s) ? mirt__peers_per_host(s) : 0;
    if (MIRT__PEERS(s)) join.hear_first = mirt__devices_hear_first;
    join.user = s;
    if (!s->backend->join(&join)) return mirt_last_status();
    s->able = join.able;
    if (MIRT__PEERS(s)) s->able.queues = false; /* after each step processes tell each other what they found */
    if (s->backend->info(mirt__backend_host(), s->device[0].index, &info) && !info.cores)
        snprintf(about, 256, "%s is %s, %s", s->device[0].name, info.name, info.description);
    return MIRT_OK;
}

static mirt_status mirt__devices_take(mirt_strategy *s, const mirt_strategy_desc *desc, mirt__found *found) {
    if (mirt__find_devices(desc->devices, s->kind == MIRT_ONE_DEVICE, desc->repeat_devices, found) != MIRT_OK)
        return mirt_last_status();
    if (found->warning[0]) mirt__log(s, MIRT_LOG_WARNING, "%s", found->warning);
    s->backend = found->backend;
    s->num_devices = found->count;
    for (int d = 0; d < found->count; d++) {
        memcpy(s->device[d].name, found->name[d], sizeof s->device[d].name);
        s->device[d].index = found->index[d];
    }
    if (found->sockets && s->num_devices > 1) {
        const size_t bytes = (size_t)s->num_devices * sizeof *s->socket;
        if (!(s->socket = (mirt__cpus *)mirt__calloc(1, bytes))) return mirt_last_status();
        memcpy(s->socket, found->socket, bytes);
    }
    return (s->kernels = s->backend->kernels()) ? MIRT_OK : mirt_last_status();
}

/* Threads of all devices, if no number is asked for. */
static int mirt__default_threads(const mirt_strategy *s, const mirt__found *found, const mirt__cores *machine) {
    const int all = s->num_devices * found->threads;
    return found->named ? s->num_devices : found->sockets && all < machine->count ? all : machine->fast;
}

static mirt_status mirt__strategy_start(mirt_strategy *s, const mirt_strategy_desc *desc) {
    mirt__cores machine;
    char about[256] = "", joined[256] = "";
    mirt__found found;
    s->process = mirt__process();
    s->log = desc->silent ? NULL : desc->log ? desc->log : mirt__log_stderr;
    s->log_user = desc->log_user;
    s->seed = desc->seed;
    if (!mirt__cores_find(&machine) || !mirt__kernels_best()) return mirt_last_status();
    if ((int)desc->kind < 0 || desc->kind > MIRT_PARAMETER_SERVER)
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_strategy_create: invalid kind (%d); it must be MIRT_MIRRORED, MIRT_ONE_DEVICE, "
                          "MIRT_CENTRAL_STORAGE, MIRT_MULTI_WORKER or MIRT_PARAMETER_SERVER",
                          (int)desc->kind);
    s->kind = desc->kind;
    if (mirt__average_set(s, desc) != MIRT_OK || mirt__servers_set(s, desc) != MIRT_OK) return mirt_last_status();
    if (mirt__devices_take(s, desc, &found) != MIRT_OK) return mirt_last_status();
    s->all_devices = s->num_devices;
    if (MIRT__TRAINS && mirt__peers_join(s, mirt__time_limit(desc), found.gpus) != MIRT_OK) return mirt_last_status();
    const char *why;
    if (!mirt__collective_name(desc->collective, &why))
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_strategy_create: invalid collective (%d); it must be one of mirt_collective",
                          (int)desc->collective);
    if (desc->shares && mirt__shares_set(s, desc->shares) != MIRT_OK) return mirt_last_status();
    s->winograd = desc->winograd;
    s->tf32 = desc->tf32;
    s->collective = desc->collective;
    if (desc->bucket_bytes < 0)
        return mirt__fail(MIRT_E_INVALID, "mirt_strategy_create: bucket_bytes is %lld; it cannot be negative",
                          (long long)desc->bucket_bytes);
    const bool by_messages = MIRT__PEERS(s) && s->backend == mirt__cores_backend();
    s->bucket_bytes = desc->bucket_bytes ? desc->bucket_bytes : (int64_t)(by_messages ? 2 : 25) << 20;
    if (MIRT__GROUP(s)) mirt__peers_cores(s, &machine);
    if (desc->replicas < 0 || desc->threads < 0)
        return mirt__fail(MIRT_E_INVALID, "mirt_strategy_create: %d replicas and %d threads; neither can be negative",
                          desc->replicas, desc->threads);
    s->num_replicas = desc->replicas ? desc->replicas : s->all_devices;
    s->threads = s->backend->threads(desc->threads, mirt__default_threads(s, &found, &machine), s->num_devices);
    for (int d = 0; d < s->num_devices; d++) {
        s->device[d].num_replicas = mirt__device_replicas(s, s->num_replicas, d, &s->device[d].first_replica);
    }
    if (mirt__check_strategy(s) != MIRT_OK || mirt__watch_create(s, desc->timeout_seconds) != MIRT_OK ||
        mirt__start_threads(s, machine.limit, desc->simulate_threads) != MIRT_OK)
        return mirt_last_status();
    const size_t timelines = (size_t)s->num_devices * sizeof *s->timeline;
    mirt__device_timeline *timeline = (mirt__device_timeline *)mirt__aligned_alloc(timelines);
    if (!timeline) return mirt_last_status();
    memset(timeline, 0, timelines);
    for (int d = 0; d < s->num_devices; d++) mirt__timeline_reset(&timeline[d]);
    __atomic_store_n(&s->timeline, timeline, __ATOMIC_RELEASE); /* threads of an engine answer already */
    if (MIRT__GROUP(s) && mirt__peers_agree(s) != MIRT_OK) return mirt_last_status();
    if (mirt__devices_open(s, desc, about, joined) != MIRT_OK) return mirt_last_status();
    if (mirt__check_parts(s, s->num_replicas) != MIRT_OK) return mirt_last_status();
    mirt__introduce(s, &found, about, joined);
    if (s->able.in_place && !desc->simulate_threads)
        mirt__introduce_cores(s, found.named || desc->threads || s->socket, machine.count, machine.fast);
    return MIRT_OK;
}

MIRT_API mirt_strategy *mirt_strategy_create(const mirt_strategy_desc *desc) {
    MIRT__ENTER;
    mirt_strategy_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    mirt_strategy *s = (mirt_strategy *)mirt__calloc(1, sizeof *s);
    if (!s) return NULL;
    if (mirt__strategy_start(s, desc ? desc : &defaults) == MIRT_OK) return s;
    mirt_strategy_destroy(s);
    return NULL;
}

static mirt_strategy *mirt__strategy_of(mirt_strategy_kind kind, const char *devices) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    desc.devices = devices;
    return mirt_strategy_create(&desc);
}

MIRT_API mirt_strategy *mirt_mirrored(const char *devices) { return mirt__strategy_of(MIRT_MIRRORED, devices); }
MIRT_API mirt_strategy *mirt_one_device(const char *device) { return mirt__strategy_of(MIRT_ONE_DEVICE, device); }
MIRT_API mirt_strategy *mirt_multi_worker(const char *devices) {
    return mirt__strategy_of(MIRT_MULTI_WORKER, devices);
}
MIRT_API mirt_strategy *mirt_central_storage(const char *devices) {
    return mirt__strategy_of(MIRT_CENTRAL_STORAGE, devices);
}

MIRT_API void mirt_strategy_destroy(mirt_strategy *strategy) {
    MIRT__ENTER;
    if (!strategy || !mirt__may_destroy(strategy, "mirt_strategy_destroy")) return;
    if (strategy->held) {
        mirt__log(
            strategy, MIRT_LOG_ERROR,
            "a model of this strategy is being trained or recorded; it cannot be destroyed before that call returns");
        return;
    }
    if (strategy->models) strategy->drop_models(strategy);
    mirt__watch_destroy(strategy);
    if (strategy->trace) strategy->drop_trace(strategy);
    mirt__memory_free(strategy);
    for (int d = 0; d < strategy->num_devices; d++) {
        mirt__device *own = &strategy->device[d];
        if (own->handle) strategy->backend->close(own->handle);
        mirt__team_destroy(own->team);
    }
    mirt__team_destroy(strategy->leaders);
    if (MIRT__GROUP(strategy)) mirt__peers_leave(strategy);
    mirt__free(strategy->socket);
    mirt__free(strategy->share_before);
    mirt__aligned_free(strategy->timeline);
    mirt__text_free(&strategy->environment);
    mirt__pool_free(&strategy->pool);
    mirt__free(strategy);
}

MIRT__LIB int mirt__device_copies(const mirt_strategy *strategy) {
    return strategy->kind == MIRT_CENTRAL_STORAGE ? 1 : strategy->num_devices;
}
MIRT__TRAINING_LIB int mirt__written_copies(const mirt_strategy *strategy) {
    return strategy->able.shards ? mirt__device_copies(strategy) : 1;
}

MIRT_API int mirt_num_replicas(const mirt_strategy *strategy) { return strategy ? strategy->num_replicas : 0; }
MIRT_API int mirt_num_devices(const mirt_strategy *strategy) { return strategy ? strategy->num_devices : 0; }
MIRT_API int mirt_num_workers(const mirt_strategy *strategy) {
    return !strategy ? 0 : MIRT__GROUP(strategy) ? MIRT__GROUP(strategy)->size : 1;
}
MIRT_API int mirt_worker_index(const mirt_strategy *strategy) {
    return strategy && MIRT__GROUP(strategy) ? MIRT__GROUP(strategy)->rank : 0;
}
MIRT_API int mirt_num_threads(const mirt_strategy *strategy) { return strategy ? strategy->threads : 0; }
