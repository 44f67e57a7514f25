#include "memory.h"
#include "watch.h"

#include <unistd.h>

static void mirt__log_stderr(mirt_log_level level, const char *text, void *user) {
    (void)user;
    fprintf(stderr, level == MIRT_LOG_PROGRESS && text[0] == '\r' ? "%s" : "%s\n", text);
}

MIRT__LIB bool mirt__log_is_terminal(const mirt_strategy *strategy) { return strategy->log == mirt__log_stderr && isatty(2); }

typedef struct mirt__log_line {
    const mirt_strategy *strategy;
    mirt_log_level level;
    char text[512];
} mirt__log_line;

static void mirt__log_write(void *arg) {
    const mirt__log_line *line = (const mirt__log_line *)arg;
    line->strategy->log(line->level, line->text, line->strategy->log_user);
}

MIRT__LIB void mirt__log(const mirt_strategy *strategy, mirt_log_level level, const char *format, ...) {
    mirt__log_line line;
    va_list args;
    if (!strategy->log) return;
    line.strategy = strategy;
    line.level = level;
    va_start(args, format);
    vsnprintf(line.text, sizeof line.text, format, args);
    va_end(args);
    if (strategy->log == mirt__log_stderr) mirt__log_write(&line);
    else mirt__on_caller(strategy, mirt__log_write, &line);
}

MIRT_API void mirt_set_log(mirt_strategy *strategy, mirt_log_fn fn, void *user) {
    if (!strategy) return;
    strategy->log = fn;
    strategy->log_user = user;
}

MIRT_API int mirt_devices(mirt_device_info *out, int capacity) {
    int cores = mirt__cpu_cores();
    const mirt__kernels *kernels = cores ? mirt__kernels_best() : NULL;
    if (!kernels) return 0;
    for (int i = 0; out && i < cores && i < capacity; i++) {
        snprintf(out[i].name, sizeof out[i].name, "cpu:%d", i);
        snprintf(out[i].description, sizeof out[i].description, "core %d of %d, %s kernels", i + 1, cores, kernels->name);
        out[i].cores = 1;
    }
    return cores;
}

static mirt_status mirt__no_such_device(const char *name, size_t length) {
    int cores = mirt__cpu_cores();
    char more[32] = "";
    bool gpu = length >= 3 && strncmp(name, "gpu", 3) == 0;
    if (cores > 1) snprintf(more, sizeof more, " to cpu:%d", cores - 1);
    return mirt__fail(MIRT_E_DEVICE, "there is no device \"%.*s\"%s; this machine has cpu:0%s", (int)length, name,
                      gpu ? " (this build has no GPU code)" : "", more);
}

/* "2": shares of the cores, or "cpu:0,cpu:1": these cores. */
static mirt_status mirt__parse_devices(mirt_strategy *s, const char *text) {
    char *end;
    long n = strtol(text, &end, 10);
    if (end != text && *end == 0) {
        if (n < 1 || n > MIRT__MAX_DEVICES) {
            return mirt__fail(MIRT_E_DEVICE, "%ld devices asked for; it must be between 1 and %d", n, MIRT__MAX_DEVICES);
        }
        s->num_devices = (int)n;
        for (int d = 0; d < s->num_devices; d++) snprintf(s->device[d].name, sizeof s->device[d].name, "cpu:%d", d);
        return MIRT_OK;
    }
    s->named = true;
    s->num_devices = 0;
    for (const char *at = text; ; at += strcspn(at, ",") + 1) {
        size_t length = strcspn(at, ",");
        long index = -1;
        if (length > 4 && strncmp(at, "cpu:", 4) == 0 && at[4] >= '0' && at[4] <= '9') {
            index = strtol(at + 4, &end, 10);
            if (end != at + length) index = -1;
        }
        if (index < 0 || index >= mirt__cpu_cores()) return mirt__no_such_device(at, length);
        if (s->num_devices == MIRT__MAX_DEVICES) return mirt__fail(MIRT_E_DEVICE, "more than %d devices are named", MIRT__MAX_DEVICES);
        char *name = s->device[s->num_devices].name;
        snprintf(name, sizeof s->device[0].name, "cpu:%ld", index);
        for (int d = 0; d < s->num_devices; d++) {
            if (strcmp(s->device[d].name, name) != 0) continue;
            return mirt__fail(MIRT_E_DEVICE, "device %s is named twice; for more replicas than devices set the replica count", name);
        }
        s->num_devices++;
        if (!at[length]) return MIRT_OK;
    }
}

static mirt_status mirt__check_strategy(const mirt_strategy *s) {
    if (s->kind == MIRT_ONE_DEVICE && s->num_devices > 1) {
        return mirt__fail(MIRT_E_INVALID, "a strategy of one device is given %d; name one, or take a mirrored strategy", s->num_devices);
    }
    if (s->num_replicas < s->num_devices) {
        return mirt__fail(MIRT_E_INVALID, "%d replica%s on %d devices: every device needs at least one replica", s->num_replicas,
                          s->num_replicas == 1 ? "" : "s", s->num_devices);
    }
    if (s->num_replicas > MIRT__MAX_REPLICAS) return mirt__fail(MIRT_E_INVALID, "%d replicas asked for; at most %d work", s->num_replicas, MIRT__MAX_REPLICAS);
    if (s->threads < 1 || s->threads > 1024) return mirt__fail(MIRT_E_INVALID, "%d threads per device asked for; it must be between 1 and 1024", s->threads);
#ifdef MIRRORTRAIN_NO_THREADS
    if (s->num_devices > 1 || s->threads > 1) {
        return mirt__fail(MIRT_E_THREAD, "%d devices of %d threads: built with MIRRORTRAIN_NO_THREADS there is one device of one thread",
                          s->num_devices, s->threads);
    }
#endif
    return mirt__check_parts(s, s->num_replicas);
}

static mirt_status mirt__start_threads(mirt_strategy *s, int cores) {
    bool spin = (int64_t)s->num_devices * s->threads <= cores;
    if (s->num_devices > 1 && !(s->leaders = mirt__team_create(s->num_devices, spin))) return mirt_last_status();
    for (int d = 0; d < s->num_devices && s->threads > 1; d++) {
        if (!(s->device[d].team = mirt__team_create(s->threads, spin))) return mirt_last_status();
    }
    return MIRT_OK;
}

static void mirt__introduce(const mirt_strategy *s, const mirt_strategy_desc *desc, int cores) {
    const char *why = "", *name = mirt__collective_name(s->collective, &why);
    char how[160] = "", names[MIRT__MAX_DEVICES * 10] = "";
    for (int d = 0; s->named && d < s->num_devices; d++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", s->device[d].name);
    }
    if (s->num_replicas > 1) snprintf(how, sizeof how, ", gradients summed by %s (%s: %s)", name, s->collective == MIRT_COLLECTIVE_AUTO ? "auto" : "asked for", why);
    mirt__log(s, MIRT_LOG_INFO, "mirrortrain %s: %s%d CPU device%s%s of %d thread%s (%s), %d replica%s%s%s%s", mirt_version(),
              desc->devices ? "" : "no GPU, ", s->num_devices, s->num_devices == 1 ? "" : "s", names, s->threads,
              s->threads == 1 ? "" : "s", s->kernels->name, s->num_replicas, s->num_replicas == 1 ? "" : "s",
              s->kind == MIRT_CENTRAL_STORAGE ? ", one copy of the weights" : "",
              s->winograd ? ", Winograd's convolutions" : "", how);
    const int idle = cores - s->num_devices * s->threads;
    if (idle > 0 && (s->named || desc->threads)) {
        mirt__log(s, MIRT_LOG_INFO, "%d of %d cores are left to others, as asked for", idle, cores);
    } else if (idle > 0) {
        mirt__log(s, MIRT_LOG_WARNING, "%d of %d cores stay idle: %d devices get %d each; a number of devices that divides %d uses all", idle, cores,
                  s->num_devices, s->threads, cores);
    }
    if ((int64_t)s->num_devices * s->threads > cores) {
        mirt__log(s, MIRT_LOG_WARNING, "%d device%s of %d thread%s share%s %d core%s: the same results, but not faster", s->num_devices,
                  s->num_devices == 1 ? "" : "s", s->threads, s->threads == 1 ? "" : "s", s->num_devices == 1 ? "s" : "", cores, cores == 1 ? "" : "s");
    }
}

static mirt_status mirt__strategy_start(mirt_strategy *s, const mirt_strategy_desc *desc) {
    int cores = mirt__cpu_cores();
    s->log = desc->silent ? NULL : desc->log ? desc->log : mirt__log_stderr;
    s->log_user = desc->log_user;
    s->seed = desc->seed;
    if (!cores || !(s->kernels = mirt__kernels_best())) return mirt_last_status();
    if (mirt__parse_devices(s, desc->devices ? desc->devices : "1") != MIRT_OK) return mirt_last_status();
    if ((int)desc->kind < 0 || desc->kind > MIRT_CENTRAL_STORAGE) return mirt__fail(MIRT_E_INVALID, "there is no kind of strategy number %d", (int)desc->kind);
    const char *why;
    if (!mirt__collective_name(desc->collective, &why)) return mirt__fail(MIRT_E_INVALID, "there is no collective number %d", (int)desc->collective);
    s->kind = desc->kind;
    s->winograd = desc->winograd;
    s->collective = desc->collective;
    if (desc->replicas < 0 || desc->threads < 0) return mirt__fail(MIRT_E_INVALID, "replicas and threads cannot be negative");
    s->num_replicas = desc->replicas ? desc->replicas : s->num_devices;
    s->threads = desc->threads ? desc->threads : !s->named && cores / s->num_devices > 1 ? cores / s->num_devices : 1;
    for (int d = 0; d < s->num_devices; d++) {
        s->device[d].num_replicas = mirt__device_replicas(s, s->num_replicas, d, &s->device[d].first_replica);
    }
    if (mirt__check_strategy(s) != MIRT_OK || mirt__watch_create(s, desc->timeout_seconds) != MIRT_OK || mirt__start_threads(s, cores) != MIRT_OK)
        return mirt_last_status();
    const size_t lanes = (size_t)s->num_devices * sizeof *s->lane;
    if (!(s->lane = (mirt__lane *)mirt__aligned_alloc(lanes))) return mirt_last_status();
    memset(s->lane, 0, lanes);
    for (int d = 0; d < s->num_devices; d++) mirt__lane_reset(&s->lane[d]);
    mirt__introduce(s, desc, cores);
    return MIRT_OK;
}

MIRT_API mirt_strategy *mirt_strategy_create(const mirt_strategy_desc *desc) {
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
MIRT_API mirt_strategy *mirt_central_storage(const char *devices) { return mirt__strategy_of(MIRT_CENTRAL_STORAGE, devices); }

MIRT_API void mirt_strategy_destroy(mirt_strategy *strategy) {
    if (!strategy || strategy->death) return; /* its threads may still be at work */
    if (strategy->held) {
        mirt__log(strategy, MIRT_LOG_ERROR, "a model of this strategy is being trained or recorded; it cannot be destroyed before that call returns");
        return;
    }
    mirt__models_destroy(strategy);
    mirt__watch_destroy(strategy);
    mirt__trace_drop(strategy);
    mirt__memory_free(strategy);
    for (int d = 0; d < strategy->num_devices; d++) mirt__team_destroy(strategy->device[d].team);
    mirt__team_destroy(strategy->leaders);
    mirt__aligned_free(strategy->lane);
    mirt__text_free(&strategy->environment);
    mirt__pool_free(&strategy->pool);
    mirt__free(strategy);
}

MIRT__LIB int mirt__weight_copies(const mirt_strategy *strategy) { return strategy->kind == MIRT_CENTRAL_STORAGE ? 1 : strategy->num_devices; }

MIRT_API int mirt_num_replicas(const mirt_strategy *strategy) { return strategy ? strategy->num_replicas : 0; }
MIRT_API int mirt_num_devices(const mirt_strategy *strategy) { return strategy ? strategy->num_devices : 0; }
MIRT_API int mirt_num_threads(const mirt_strategy *strategy) { return strategy ? strategy->threads : 0; }
