#include "../base/digest.h"
#include "strategy.h"

/* Joins the processes that train together: finds the engine, numbers all devices, compares settings. */

static const mirt__engine *mirt__engine_here(void) {
#if defined(__ELF__) || defined(MIRRORTRAIN_MPI)
    const mirt__engine *engine = mirt__mpi_engine ? mirt__mpi_engine() : NULL;
    return engine && engine->version == MIRT__ENGINE_VERSION ? engine : NULL;
#else
    return NULL;
#endif
}

/* >>the group */

/* What the others need to know of a process. */
typedef struct mirt__place {
    uint64_t cores; /* a hash of its affinity mask */
    int32_t devices;
} mirt__place;

/* Numbers the devices of all processes, and counts those that have to share the cores of this one. */
static mirt_status mirt__peers_number(mirt_strategy *s) {
    mirt__peers *w = s->peers;
    mirt__place own;
    char list[MIRT__AFFINITY];
    memset(&own, 0, sizeof own);
    mirt__affinity(list, sizeof list);
    own.cores = mirt__hash_bytes(0, list, strlen(list));
    own.devices = s->num_devices;
    if (!(w->first_device = (int *)mirt__calloc((size_t)w->size + 1, sizeof *w->first_device)))
        return mirt_last_status();
    const mirt__place *place = (const mirt__place *)mirt__peers_tell(s, &own, sizeof own);
    if (!place) return mirt_last_status();
    for (int p = 0; p < w->size; p++) {
        const int devices = place[p].devices;
        if (devices < 1 || devices > MIRT__MAX_DEVICES)
            return mirt__fail(MIRT_E_WORKER, "process %d has %d devices, which cannot be", p, devices);
        w->first_device[p + 1] = w->first_device[p] + devices;
        w->sharers += place[p].cores == own.cores && !strcmp(w->engine->host(p), w->engine->host(w->rank));
    }
    if (s->servers) return MIRT_OK; /* each process trains on its own */
    s->first_device = w->first_device[w->rank];
    s->all_devices = w->first_device[w->size];
    return MIRT_OK;
}

MIRT__LIB int mirt__peers_cores(const mirt_strategy *s, int cores) {
    const int share = cores / s->peers->sharers;
    return share > 1 ? share : 1;
}

MIRT__LIB mirt_status mirt__peers_start(mirt_strategy *s, const mirt__launcher *launcher, double limit, bool *found) {
    const mirt__engine *engine = mirt__engine_here();
    const int expected = launcher ? mirt__environment_number(launcher->size) : 1;
    int rank = 0, size = 1;
    char why[256] = "";
    *found = engine != NULL;
    if (!engine || mirt__environment_number("MIRT_WORKERS") == 1) return MIRT_OK;
    if (!engine->start(limit, &rank, &size, why))
        return mirt__fail(MIRT_E_WORKER, "%s could not be started: %s", engine->name, why);
    if (launcher && size != expected)
        return mirt__fail(MIRT_E_WORKER,
                          "%s started %d processes (%s), but this program's MPI, %s, knows of %d: start it with the "
                          "mpirun of the MPI that it is built with",
                          launcher->name, expected, launcher->size, engine->name, size);
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
    mirt__peers_open(s, limit);
    return mirt__peers_number(s);
}

/* >>settings */

/* What has to be the same in all processes. */
typedef struct mirt__setting {
    char name[32], value[48];
} mirt__setting;
enum { MIRT__SETTINGS = 12 };

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
    mirt__settings_of(s, own);
    const mirt__setting *all = (const mirt__setting *)mirt__peers_tell(s, own, sizeof own);
    if (!all || mirt__settings_compare(s, all) != MIRT_OK) return mirt_last_status();
    if (s->able.in_place) return MIRT_OK;
    return mirt__fail(MIRT_E_DEVICE, "several processes train together on cores so far: ask for \"cpu\"");
}
