#include "../kernels/kernels.h"
#include "devices.h"
/* Lists the devices of this machine and finds those that a description names. */

MIRT__LIB const mirt__host *mirt__backend_host(void) {
    static const mirt__host host = {mirt__fail, mirt__calloc, mirt__free, mirt__now};
    return &host;
}

/* NULL: this program is built without one. */
static const mirt__backend *mirt__backend_get(void) {
#if defined(__ELF__) || defined(MIRRORTRAIN_CUDA)
    const mirt__backend *backend = MIRT__IF_FOUND(mirt__cuda_backend);
    return backend && backend->version == MIRT__BACKEND_VERSION ? backend : NULL;
#else
    return NULL;
#endif
}

MIRT__LIB bool mirt__has_backend(void) { return mirt__backend_get() != NULL; }

/* How many the backend has; 0: there are none; -1: they cannot be used, and the last error says why. */
static int mirt__count_gpus(const mirt__backend *backend) {
    return backend ? backend->devices(mirt__backend_host()) : 0;
}

MIRT_API int mirt_devices(mirt_device_info *out, int capacity) {
    MIRT__ENTER;
    const mirt__backend *kind[] = {mirt__cores_backend(), mirt__backend_get()};
    const int first = kind[0]->kernels() ? kind[0]->devices(mirt__backend_host()) : 0;
    int count = 0;
    for (int k = 0; first && k < MIRT__COUNT(kind); k++) {
        const int own = k ? mirt__count_gpus(kind[k]) : first;
        for (int i = 0; i < own; i++, count++) {
            mirt__device_facts info;
            if (!out || count >= capacity) continue;
            memset(&out[count], 0, sizeof out[count]);
            if (!kind[k]->info(mirt__backend_host(), i, &info)) continue;
            snprintf(out[count].name, sizeof out[count].name, "%s:%d", kind[k]->name, i);
            snprintf(out[count].description, sizeof out[count].description, "%.95s", info.description);
            out[count].memory = info.memory;
            out[count].cores = info.cores;
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
    if (!gpu && mirt__device_number(name, length, "cpu:") < 0)
        snprintf(why, sizeof why, " (names are as in \"gpu:0,gpu:1\" and \"cpu:0\")");
    else if (gpu && gpus < 0) snprintf(why, sizeof why, " (%.300s)", mirt_last_error());
    else if (gpu && !gpus)
        snprintf(why, sizeof why,
                 backend ? " (no GPU is visible)" : " (this build has no GPU code: add mirrortrain_cuda.cu)");
    if (cores > 1) snprintf(more, sizeof more, " to cpu:%d", cores - 1);
    if (gpus == 1) snprintf(others, sizeof others, " and gpu:0");
    else if (gpus > 1) snprintf(others, sizeof others, " and gpu:0 to gpu:%d", gpus - 1);
    return mirt__fail(MIRT_E_DEVICE, "there is no device \"%.*s\"%s; this machine has cpu:0%s%s", (int)length, name,
                      why, more, others);
}

static mirt_status mirt__add_device(mirt__found *found, long index, bool repeated) {
    if (found->count == MIRT__MAX_DEVICES)
        return mirt__fail(MIRT_E_DEVICE, "more than %d devices are named", MIRT__MAX_DEVICES);
    char *name = found->name[found->count];
    snprintf(name, sizeof found->name[0], "%s:%ld", found->backend->name, index);
    found->index[found->count] = (int)index;
    for (int d = 0; d < found->count && !repeated; d++) {
        if (strcmp(found->name[d], name) != 0) continue;
        return mirt__fail(
            MIRT_E_DEVICE, "device %s is named twice; for more replicas than devices set the replica count%s", name,
            found->backend == mirt__cores_backend() ? "" : ", for several devices on one GPU repeat_devices");
    }
    found->count++;
    return MIRT_OK;
}

static mirt_status mirt__all_of_backend(mirt__found *found, const mirt__backend *backend, long count, bool one) {
    found->backend = backend;
    found->gpus = -1;
    for (long i = 0; i < (one ? 1 : count); i++) {
        if (mirt__add_device(found, i, false) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

/* `count` of them; 0: all that there are. */
static mirt_status mirt__some_gpus(mirt__found *found, const mirt__backend *backend, long count, long all, bool one) {
    if (mirt__all_of_backend(found, backend, count ? count : all, one) != MIRT_OK) return mirt_last_status();
    found->gpus = (int)count;
    return MIRT_OK;
}

static mirt_status mirt__shares_of_cores(mirt__found *found, long count) {
    if (count < 1 || count > MIRT__MAX_DEVICES) {
        return mirt__fail(MIRT_E_DEVICE, "%ld devices asked for; it must be between 1 and %d", count,
                          MIRT__MAX_DEVICES);
    }
    return mirt__all_of_backend(found, mirt__cores_backend(), count, false);
}

/* "auto": one device per socket. */
static mirt_status mirt__sockets_of_cores(mirt__found *found) {
    mirt__cores cores;
    if (!mirt__cores_find(&cores)) return mirt_last_status();
    const int count = mirt__sockets_find(&cores, found->socket, MIRT__MAX_DEVICES, &found->threads, &found->sockets);
    return mirt__shares_of_cores(found, count);
}

/* "cpu:0,cpu:1": these cores; "gpu:0,gpu:2": these GPUs. */
static mirt_status mirt__named_devices(mirt__found *found, const char *text, bool repeat) {
    const mirt__backend *cores = mirt__cores_backend(), *gpus = mirt__backend_get();
    int others = -1;
    for (const char *at = text; ; at += strcspn(at, ",") + 1) {
        const size_t length = strcspn(at, ",");
        const long core = mirt__device_number(at, length, "cpu:"),
                   gpu = gpus ? mirt__device_number(at, length, "gpu:") : -1;
        const mirt__backend *own = gpu >= 0 ? gpus : cores;
        if (gpu >= 0 && others < 0) others = mirt__count_gpus(gpus);
        if (gpu < 0 ? core < 0 || core >= mirt__cpu_cores() : gpu >= others) return mirt__no_such_device(at, length);
        if (found->count && own != found->backend)
            return mirt__fail(MIRT_E_DEVICE, "a strategy has cores or GPUs, not both, as in \"%.100s\"", text);
        found->backend = own;
        if (mirt__add_device(found, gpu >= 0 ? gpu : core, gpu >= 0 && repeat) != MIRT_OK) return mirt_last_status();
        if (!at[length]) break;
    }
    found->named = found->backend == cores;
    found->gpus = -1;
    return MIRT_OK;
}

/* How many GPUs a wish for all or for a number of devices finds, as the environment has it; 0: it is one for cores; -1
 * with the error set. */
static int mirt__wanted_gpus(mirt__found *found, const mirt__backend *gpus, const char *asked) {
    const char *kind = getenv("MIRT_DEVICES");
    const bool gpu = kind && strcmp(kind, "gpu") == 0, cpu = kind && strcmp(kind, "cpu") == 0;
    mirt__error before;
    if (kind && *kind && !gpu && !cpu)
        return mirt__fail(MIRT_E_DEVICE, "the environment's MIRT_DEVICES is \"%.100s\"; it may be \"cpu\" or \"gpu\"",
                          kind),
               -1;
    if (asked ? !gpu : cpu) return 0;
    mirt__error_get(&before);
    const int count = mirt__count_gpus(gpus);
    if (count > 0) return count;
    if (gpu) return mirt__no_such_device("gpu", 3), mirt__fail_at("the environment's MIRT_DEVICES is \"gpu\""), -1;
    found->no_driver = count < 0 && mirt_last_status() == MIRT_E_NOT_FOUND;
    if (count < 0 && !found->no_driver)
        snprintf(found->warning, sizeof found->warning, "GPUs cannot be used: %s", mirt_last_error());
    mirt__error_set(&before); /* nothing failed */
    return 0;
}

MIRT__LIB mirt_status mirt__find_devices(const char *text, bool one, bool repeat, mirt__found *found) {
    const mirt__backend *gpus = mirt__backend_get();
    char *end;
    memset(found, 0, sizeof *found);
    if (text && strcmp(text, "gpu") == 0) {
        const int all = mirt__count_gpus(gpus);
        return all > 0 ? mirt__some_gpus(found, gpus, 0, all, one) : mirt__no_such_device(text, strlen(text));
    }
    if (text && strcmp(text, "auto") == 0 && !one) return mirt__sockets_of_cores(found);
    if (text && (strcmp(text, "cpu") == 0 || strcmp(text, "auto") == 0)) return mirt__shares_of_cores(found, 1);
    const long count = text ? strtol(text, &end, 10) : 1;
    if (text && (end == text || *end != 0)) return mirt__named_devices(found, text, repeat);
    const int wanted = mirt__wanted_gpus(found, gpus, text);
    if (wanted < 0) return mirt_last_status();
    found->default_cores = !text;
    if (!wanted || count < 1) return mirt__shares_of_cores(found, count);
    if (count > wanted) return mirt__fail(MIRT_E_DEVICE, "%ld GPUs asked for; this machine has %d", count, wanted);
    return mirt__some_gpus(found, gpus, text ? count : 0, wanted, one);
}
