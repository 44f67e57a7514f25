#include "strategy.h"
/* What devices there are, and which of them a strategy has. */

static const mirt__host mirt__host_of_backends = {mirt__fail, mirt__calloc, mirt__free, mirt__now};

/* NULL: this program is built without one. */
static const mirt__backend *mirt__backend_get(void) {
#if defined(__ELF__) || defined(MIRRORTRAIN_CUDA)
    const mirt__backend *backend = mirt__cuda_backend ? mirt__cuda_backend() : NULL;
    return backend && backend->version == MIRT__BACKEND_VERSION ? backend : NULL;
#else
    return NULL;
#endif
}

MIRT__LIB bool mirt__has_backend(void) { return mirt__backend_get() != NULL; }

/* How many the backend has; 0: there are none; -1: they cannot be used, and the last error says why. */
static int mirt__count_gpus(const mirt__backend *backend) { return backend ? backend->devices(&mirt__host_of_backends) : 0; }

MIRT_API int mirt_devices(mirt_device_info *out, int capacity) {
    MIRT__ENTER;
    const int cores = mirt__cpu_cores();
    const mirt__kernels *kernels = cores ? mirt__kernels_best() : NULL;
    const mirt__backend *backend = mirt__backend_get();
    mirt__remote_info info;
    if (!kernels) return 0;
    const int others = mirt__count_gpus(backend), count = cores + (others > 0 ? others : 0);
    for (int i = 0; out && i < count && i < capacity; i++) {
        memset(&out[i], 0, sizeof out[i]);
        if (i < cores) {
            snprintf(out[i].name, sizeof out[i].name, "cpu:%d", i);
            snprintf(out[i].description, sizeof out[i].description, "core %d of %d, %s kernels", i + 1, cores, kernels->name);
            out[i].cores = 1;
        } else if (backend->info(&mirt__host_of_backends, i - cores, &info)) {
            snprintf(out[i].name, sizeof out[i].name, "%s:%d", backend->name, i - cores);
            snprintf(out[i].description, sizeof out[i].description, "%.95s", info.description);
            out[i].memory = info.memory;
        }
    }
    return count;
}

/* The number behind `prefix` in the `length` letters of `name`, or -1. */
static long mirt__device_number(const char *name, size_t length, const char *prefix) {
    const size_t front = strlen(prefix);
    char *end;
    if (length <= front || strncmp(name, prefix, front) != 0 || name[front] < '0' || name[front] > '9') return -1;
    const long index = strtol(name + front, &end, 10);
    return end == name + length ? index : -1;
}

static mirt_status mirt__no_such_device(const char *name, size_t length) {
    const mirt__backend *backend = mirt__backend_get();
    const int cores = mirt__cpu_cores(), gpus = mirt__count_gpus(backend);
    const bool gpu = (length == 3 && strncmp(name, "gpu", 3) == 0) || mirt__device_number(name, length, "gpu:") >= 0;
    char more[32] = "", others[48] = "", why[320] = "";
    if (!gpu && mirt__device_number(name, length, "cpu:") < 0) snprintf(why, sizeof why, " (names are as in \"gpu:0,gpu:1\" and \"cpu:0\")");
    else if (gpu && gpus < 0) snprintf(why, sizeof why, " (%.300s)", mirt_last_error());
    else if (gpu && !gpus) snprintf(why, sizeof why, backend ? " (no GPU is visible)" : " (this build has no GPU code: add mirrortrain_cuda.cu)");
    if (cores > 1) snprintf(more, sizeof more, " to cpu:%d", cores - 1);
    if (gpus == 1) snprintf(others, sizeof others, " and gpu:0");
    else if (gpus > 1) snprintf(others, sizeof others, " and gpu:0 to gpu:%d", gpus - 1);
    return mirt__fail(MIRT_E_DEVICE, "there is no device \"%.*s\"%s; this machine has cpu:0%s%s", (int)length, name, why, more, others);
}

static mirt_status mirt__add_device(mirt_strategy *s, const char *kind, long index, bool repeated) {
    if (s->num_devices == MIRT__MAX_DEVICES) return mirt__fail(MIRT_E_DEVICE, "more than %d devices are named", MIRT__MAX_DEVICES);
    mirt__device *own = &s->device[s->num_devices];
    snprintf(own->name, sizeof own->name, "%s:%ld", kind, index);
    own->index = (int)index;
    for (int d = 0; d < s->num_devices && !repeated; d++) {
        if (strcmp(s->device[d].name, own->name) != 0) continue;
        return mirt__fail(MIRT_E_DEVICE, "device %s is named twice; for more replicas than devices set the replica count%s", own->name,
                          s->backend ? ", for several devices on one GPU repeat_devices" : "");
    }
    s->num_devices++;
    return MIRT_OK;
}

static mirt_status mirt__all_of_backend(mirt_strategy *s, const mirt__backend *backend, int count) {
    s->backend = backend;
    for (int i = 0; i < count; i++) {
        if (mirt__add_device(s, backend->name, i, false) != MIRT_OK) return mirt_last_status();
        if (s->kind == MIRT_ONE_DEVICE) break;
    }
    return MIRT_OK;
}

static mirt_status mirt__shares_of_cores(mirt_strategy *s, long count) {
    if (count < 1 || count > MIRT__MAX_DEVICES) {
        return mirt__fail(MIRT_E_DEVICE, "%ld devices asked for; it must be between 1 and %d", count, MIRT__MAX_DEVICES);
    }
    for (long i = 0; i < count; i++) {
        if (mirt__add_device(s, "cpu", i, false) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

/* "cpu:0,cpu:1": these cores; "gpu:0,gpu:2": these GPUs. */
static mirt_status mirt__named_devices(mirt_strategy *s, const char *text, bool repeat) {
    const mirt__backend *backend = mirt__backend_get();
    int gpus = -1;
    for (const char *at = text; ; at += strcspn(at, ",") + 1) {
        const size_t length = strcspn(at, ",");
        const long core = mirt__device_number(at, length, "cpu:"), gpu = backend ? mirt__device_number(at, length, "gpu:") : -1;
        if (gpu >= 0 && gpus < 0) gpus = mirt__count_gpus(backend);
        if (gpu < 0 ? core < 0 || core >= mirt__cpu_cores() : gpu >= gpus) return mirt__no_such_device(at, length);
        if (s->num_devices && (gpu >= 0) != (s->backend != NULL)) return mirt__fail(MIRT_E_DEVICE, "a strategy has cores or GPUs, not both, as in \"%.100s\"", text);
        if (gpu >= 0) s->backend = backend;
        if (mirt__add_device(s, gpu >= 0 ? "gpu" : "cpu", gpu >= 0 ? gpu : core, gpu >= 0 && repeat) != MIRT_OK) return mirt_last_status();
        if (!at[length]) break;
    }
    s->named = !s->backend;
    return MIRT_OK;
}

/* How many GPUs a wish for all or for a number of devices finds, as the environment has it; 0: it is one for cores; -1 with the error set. */
static int mirt__wanted_gpus(mirt_strategy *s, const mirt__backend *backend, const char *asked) {
    const char *kind = getenv("MIRT_DEVICES");
    const bool gpu = kind && strcmp(kind, "gpu") == 0, cpu = kind && strcmp(kind, "cpu") == 0;
    mirt__error before;
    if (kind && *kind && !gpu && !cpu) return mirt__fail(MIRT_E_DEVICE, "the environment's MIRT_DEVICES is \"%.100s\"; it may be \"cpu\" or \"gpu\"", kind), -1;
    if (asked ? !gpu : cpu) return 0;
    mirt__error_get(&before);
    const int count = mirt__count_gpus(backend);
    if (count > 0) return count;
    if (gpu) return mirt__no_such_device("gpu", 3), mirt__fail_at("the environment's MIRT_DEVICES is \"gpu\""), -1;
    s->no_driver = count < 0 && mirt_last_status() == MIRT_E_NOT_FOUND;
    if (count < 0 && !s->no_driver) mirt__log(s, MIRT_LOG_WARNING, "GPUs cannot be used: %s", mirt_last_error());
    mirt__error_set(&before); /* nothing failed */
    return 0;
}

MIRT__LIB mirt_status mirt__parse_devices(mirt_strategy *s, const mirt_strategy_desc *desc) {
    const mirt__backend *backend = mirt__backend_get();
    const char *text = desc->devices;
    char *end;
    s->num_devices = 0;
    if (text && strcmp(text, "gpu") == 0) {
        const int all = mirt__count_gpus(backend);
        return all > 0 ? mirt__all_of_backend(s, backend, all) : mirt__no_such_device(text, strlen(text));
    }
    if (text && strcmp(text, "cpu") == 0) return mirt__shares_of_cores(s, 1);
    const long count = text ? strtol(text, &end, 10) : 1;
    if (text && (end == text || *end != 0)) return mirt__named_devices(s, text, desc->repeat_devices);
    const int gpus = mirt__wanted_gpus(s, backend, text);
    if (gpus < 0) return mirt_last_status();
    if (!gpus || count < 1) return mirt__shares_of_cores(s, count);
    if (count > gpus) return mirt__fail(MIRT_E_DEVICE, "%ld GPUs asked for; this machine has %d", count, gpus);
    return mirt__all_of_backend(s, backend, text ? (int)count : gpus);
}

MIRT__LIB mirt_status mirt__devices_open(mirt_strategy *s, const mirt_strategy_desc *desc, char about[256], char how[256]) {
    mirt__remote_info info;
    mirt__remote *remote[MIRT__MAX_DEVICES];
    mirt__remote_join join;
    for (int d = 0; d < s->num_devices; d++) {
        s->device[d].remote = remote[d] = s->backend->open(&mirt__host_of_backends, s->device[d].index, desc->tf32);
        if (!remote[d]) return mirt_last_status();
    }
    memset(&join, 0, sizeof join);
    join.remote = remote;
    join.count = s->num_devices;
    join.collective = s->collective;
    join.shares = s->kind == MIRT_CENTRAL_STORAGE;
    join.limit = desc->timeout_seconds < 0 ? 0 : desc->timeout_seconds > 0 ? desc->timeout_seconds : 60;
    join.how = how;
    if (!s->backend->join(&join)) return mirt_last_status();
    s->direct = join.direct;
    if (s->backend->info(&mirt__host_of_backends, s->device[0].index, &info)) snprintf(about, 256, "%s is %s, %s", s->device[0].name, info.name, info.description);
    return MIRT_OK;
}

MIRT__LIB void mirt__devices_close(mirt_strategy *s) {
    for (int d = 0; d < s->num_devices; d++) {
        if (s->device[d].remote) s->backend->close(s->device[d].remote);
        s->device[d].remote = NULL;
    }
}
