#include "../base/digest.h"
#include "strategy.h"

/* Joins the processes that train together: finds the engine, numbers all devices, compares settings. */

static const mirt__engine *mirt__engine_here(const mirt_launch *launch) {
#if defined(__ELF__) || defined(MIRRORTRAIN_MPI)
    if (launch->mpi || launch->processes == 1) return MIRT__IF_FOUND(mirt__mpi_engine);
#endif
#if defined(__ELF__) || defined(MIRRORTRAIN_TCP)
    if (!launch->mpi && launch->processes > 1) return MIRT__IF_FOUND(mirt__tcp_engine);
#endif
    (void)launch;
    return NULL;
}

/* >>the group */

/* Of a process: hashes of its affinity mask and of the GPUs that it sees, how many these are, and mirt__found.gpus. */
typedef struct mirt__place {
    uint64_t cores, gpus;
    int32_t all, asked;
} mirt__place;

/* What a process asks for of the GPUs that it shares with others of its host. */
typedef struct mirt__gpu_share {
    int sharers, before; /* processes, and those before it */
    int asked, first;    /* GPUs that they ask for, and that those before it do */
    bool some, all;      /* some ask for a number of GPUs, some for their share of all */
} mirt__gpu_share;

static mirt__gpu_share mirt__gpu_share_of(const mirt__peers *w, const mirt__place *place, int rank) {
    mirt__gpu_share share;
    memset(&share, 0, sizeof share);
    for (int p = 0; p < w->size; p++) {
        if (place[p].asked < 0 || place[p].gpus != place[rank].gpus ||
            strcmp(w->engine->host(p), w->engine->host(rank)) != 0)
            continue;
        share.sharers++;
        share.before += p < rank;
        share.asked += place[p].asked ? place[p].asked : 1;
        share.first += p < rank ? place[p].asked : 0;
        share.some = share.some || place[p].asked;
        share.all = share.all || !place[p].asked;
    }
    return share;
}

/* The same verdict in all processes. */
static mirt_status mirt__gpus_check(const mirt__peers *w, const mirt__place *place) {
    for (int p = 0; p < w->size; p++) {
        const mirt__gpu_share share = mirt__gpu_share_of(w, place, p);
        if (share.asked > place[p].all)
            return mirt__fail(MIRT_E_DEVICE,
                              "%d processes on %s share %d GPU%s: start fewer processes, or name the devices of each",
                              share.sharers, w->engine->host(p), place[p].all, place[p].all == 1 ? "" : "s");
        if (share.some && share.all)
            return mirt__fail(MIRT_E_DEVICE,
                              "of the processes on %s some ask for all GPUs and some for a number: give each a number",
                              w->engine->host(p));
    }
    return MIRT_OK;
}

/* The processes of a host that see the same GPUs divide them, but for those that are named. */
static void mirt__gpus_divide(mirt_strategy *s, const mirt__place *place) {
    const mirt__place *own = &place[s->peers->rank];
    const mirt__gpu_share share = mirt__gpu_share_of(s->peers, place, s->peers->rank);
    const int first = own->asked ? share.first : own->all * share.before / share.sharers,
              end = own->asked ? first + own->asked : own->all * (share.before + 1) / share.sharers;
    s->num_devices = end - first;
    for (int d = 0; d < s->num_devices; d++) {
        s->device[d].index = first + d;
        snprintf(s->device[d].name, sizeof s->device[d].name, "%s:%d", s->backend->name, first + d);
    }
}

/* Finds out who is on the cores and GPUs of this process. `gpus`: as mirt__found has it. */
static mirt_status mirt__peers_place(mirt_strategy *s, int gpus) {
    mirt__peers *w = s->peers;
    mirt__place own;
    mirt__device_facts facts;
    char list[MIRT__AFFINITY];
    memset(&own, 0, sizeof own);
    mirt__affinity(list, sizeof list);
    own.cores = mirt__hash_bytes(0, list, strlen(list));
    own.asked = gpus;
    own.all = gpus < 0 ? 0 : s->backend->devices(mirt__backend_host());
    for (int i = 0; i < own.all; i++) {
        memset(&facts, 0, sizeof facts); /* that it cannot be asked is said when it is opened */
        s->backend->info(mirt__backend_host(), i, &facts);
        own.gpus = mirt__hash_bytes(own.gpus, facts.uuid, sizeof facts.uuid);
    }
    const mirt__place *place = (const mirt__place *)mirt__peers_tell(s, &own, sizeof own);
    if (!place || mirt__gpus_check(w, place) != MIRT_OK) return mirt_last_status();
    for (int p = 0; p < w->size; p++)
        w->sharers += place[p].cores == own.cores && !strcmp(w->engine->host(p), w->engine->host(w->rank));
    if (gpus >= 0) mirt__gpus_divide(s, place);
    return MIRT_OK;
}

/* Numbers the devices of all processes. */
static mirt_status mirt__peers_number(mirt_strategy *s) {
    mirt__peers *w = s->peers;
    const int32_t own = s->num_devices;
    if (!(w->first_device = (int *)mirt__calloc((size_t)w->size + 1, sizeof *w->first_device)))
        return mirt_last_status();
    const int32_t *devices = (const int32_t *)mirt__peers_tell(s, &own, sizeof own);
    if (!devices) return mirt_last_status();
    for (int p = 0; p < w->size; p++) {
        if (devices[p] < 1 || devices[p] > MIRT__MAX_DEVICES)
            return mirt__fail(MIRT_E_WORKER, "process %d has %d devices, which cannot be", p, (int)devices[p]);
        w->first_device[p + 1] = w->first_device[p] + devices[p];
    }
    if (s->servers) return MIRT_OK; /* each process trains on its own */
    s->first_device = w->first_device[w->rank];
    s->all_devices = w->first_device[w->size];
    return MIRT_OK;
}

static int mirt__peers_hosts(const mirt__peers *w) {
    int hosts = 0;
    for (int i = 0; i < w->size; i++) {
        int first = 0;
        while (strcmp(w->engine->host(first), w->engine->host(i)) != 0) first++;
        hosts += first == i;
    }
    return hosts;
}

/* Between hosts, or where a core is idle, summing gradients during the backward pass saves time. On busy cores of one
   host messages are copies, which take the time that they save. All processes have to do the same. */
static mirt_status mirt__peers_choose_overlap(mirt_strategy *s) {
    mirt__peers *w = s->peers;
    const int32_t own = w->hosts > 1 || s->num_devices * s->threads < mirt__cpu_cores() / w->sharers;
    const int32_t *wish = (const int32_t *)mirt__peers_tell(s, &own, sizeof own);
    w->overlaps = wish != NULL;
    for (int p = 0; wish && p < w->size; p++) w->overlaps = w->overlaps && wish[p];
    return wish ? MIRT_OK : mirt_last_status();
}

MIRT__LIB int mirt__peers_per_host(const mirt_strategy *s) {
    const mirt__peers *w = s->peers;
    int per_host = 0;
    for (int first = 0, end; first < w->size; first = end) {
        const char *host = w->engine->host(first);
        for (end = first; end < w->size && !strcmp(w->engine->host(end), host); end++) {}
        const int devices = w->first_device[end] - w->first_device[first];
        if (per_host && devices != per_host) return 0;
        per_host = devices;
        for (int p = end; p < w->size; p++) {
            if (!strcmp(w->engine->host(p), host)) return 0;
        }
    }
    return per_host;
}

static int mirt__part_of(int cores, int parts) { return cores / parts > 1 ? cores / parts : 1; }

MIRT__LIB void mirt__peers_cores(const mirt_strategy *s, mirt__cores *cores) {
    cores->count = mirt__part_of(cores->count, s->peers->sharers);
    cores->fast = mirt__part_of(cores->fast, s->peers->sharers);
    cores->limit /= s->peers->sharers;
}

MIRT__LIB mirt_status mirt__peers_start(mirt_strategy *s, const mirt_launch *launch, double limit, int gpus,
                                        bool *found) {
    const mirt__engine *engine = mirt__engine_here(launch);
    int rank = 0, size = 1;
    char why[256] = "";
    *found = engine && engine->version == MIRT__ENGINE_VERSION;
    if (!*found || mirt__runs_alone()) return MIRT_OK;
    if (!engine->start(launch, limit, &rank, &size, why))
        return mirt__fail(MIRT_E_WORKER, "%s could not be started: %s", engine->name, why);
    if (size == 1 && launch->processes > 1)
        return mirt__fail(MIRT_E_WORKER,
                          "%s started %d processes, but this program's MPI, %s, knows of 1: start it with the mpirun "
                          "of the MPI that it is built with",
                          launch->launcher, launch->processes, engine->name);
    if (size == 1) return MIRT_OK;
    mirt__peers *w = (mirt__peers *)mirt__calloc(1, sizeof *w);
    if (!(s->peers = w)) return mirt_last_status();
    w->engine = engine;
    w->rank = rank;
    w->size = size;
    for (int i = 0; i < MIRT__BEFORES; i++) {
        w->before[i] = (int64_t *)mirt__calloc((size_t)size + 1, sizeof *w->before[i]);
        if (!w->before[i]) return mirt_last_status();
    }
    for (int p = 0; p <= size; p++) w->before[MIRT__BEFORE_ONE][p] = p;
    if (!(w->flags = (mirt__peer_flags *)mirt__calloc((size_t)size, sizeof *w->flags))) return mirt_last_status();
    w->hosts = mirt__peers_hosts(w);
    mirt__peers_open(s, limit);
    return mirt__peers_place(s, gpus) == MIRT_OK ? mirt__peers_number(s) : mirt_last_status();
}

/* >>settings */

/* What has to be the same in all processes. */
typedef struct mirt__setting {
    char name[32], value[48];
} mirt__setting;
enum { MIRT__SETTINGS = 13 };

static void mirt__setting_text(mirt__setting *setting, const char *name, const char *value) {
    snprintf(setting->name, sizeof setting->name, "%s", name);
    snprintf(setting->value, sizeof setting->value, "%s", value);
}

static void mirt__setting_number(mirt__setting *setting, const char *name, long long value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", value);
    mirt__setting_text(setting, name, text);
}

static void mirt__settings_of(const mirt_strategy *s, mirt__setting setting[MIRT__SETTINGS]) {
#if defined(__aarch64__)
    static const char processor[] = "arm64";
#else
    static const char processor[] = "x86-64";
#endif
    const size_t bytes = ((size_t)s->all_devices + 1) * sizeof *s->share_before;
    const uint64_t shares = s->share_before ? mirt__hash_bytes(0, s->share_before, bytes) : 0;
    const char *why;
    memset(setting, 0, MIRT__SETTINGS * sizeof *setting);
    mirt__setting_text(&setting[0], "version", mirt_version());
    mirt__setting_text(&setting[1], "processor", processor);
    mirt__setting_text(&setting[2], "backend", s->backend->name);
    mirt__setting_text(&setting[3], "collective", mirt__collective_name(s->collective, &why));
    mirt__setting_number(&setting[4], "replicas", s->servers ? 0 : s->num_replicas); /* servers: each has its own */
    mirt__setting_number(&setting[5], "seed", (long long)s->seed);
    mirt__setting_number(&setting[6], "winograd", s->winograd);
    mirt__setting_number(&setting[7], "bucket_bytes", s->bucket_bytes);
    mirt__setting_number(&setting[8], "shares (hash)", (long long)shares);
    mirt__setting_number(&setting[9], "servers", s->servers);
    mirt__setting_number(&setting[10], "max_staleness", (long long)s->max_staleness);
    mirt__setting_number(&setting[11], "average_every", s->average_every);
    mirt__setting_number(&setting[12], "tf32", s->tf32);
}

static mirt_status mirt__settings_compare(const mirt_strategy *s, const mirt__setting *all) {
    const mirt__peers *w = s->peers;
    for (int p = 1; p < w->size; p++) {
        for (int i = 0; i < MIRT__SETTINGS; i++) {
            const mirt__setting *first = &all[i], *own = &all[p * MIRT__SETTINGS + i];
            if (memcmp(first, own, sizeof *own) == 0) continue;
            return mirt__fail(MIRT_E_WORKER,
                              "processes differ: %.32s is %.48s in process 0 (%s) and %.48s in process %d (%s)",
                              first->name, first->value, w->engine->host(0), own->value, p, w->engine->host(p));
        }
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__peers_agree(mirt_strategy *s) {
    mirt__setting own[MIRT__SETTINGS];
    if (s->collective == MIRT_MPI_ALLREDUCE && !s->peers->engine->all_reduce)
        return mirt__fail(MIRT_E_INVALID, "MIRT_MPI_ALLREDUCE needs MPI, but the processes are connected by %s",
                          s->peers->engine->name);
    mirt__settings_of(s, own);
    const mirt__setting *all = (const mirt__setting *)mirt__peers_tell(s, own, sizeof own);
    if (!all || mirt__settings_compare(s, all) != MIRT_OK) return mirt_last_status();
    if (s->backend == mirt__cores_backend() || (!s->servers && !s->average_every)) return mirt__peers_choose_overlap(s);
    return mirt__fail(MIRT_E_DEVICE, "%s for cores so far: ask for \"cpu\"",
                      s->servers ? "parameter servers are" : "average_every is");
}
