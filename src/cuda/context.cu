/* A device: its memory, its streams, copies from and to the host, and failures. */
#include "cuda.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef MIRT_SIM
#define MIRT__CU_PINNED ((size_t)1 << 20) /* bytes of a block of pinned memory: larger copies travel in pieces */
#else
#define MIRT__CU_PINNED ((size_t)4 << 20)
#endif
#define MIRT__CU_PINNED_MOST 4
#define MIRT__CU_DELIVERIES 256
#define MIRT__CU_BLAS_ROOM ((size_t)32 << 20)
#define MIRT__CU_SMALL ((size_t)1 << 16)
#define MIRT__CU_SHORT 0.002 /* seconds of a wait without a nap */

/* Memory of the host that the machine reads by itself. */
typedef struct mirt__cu_pinned {
    char *memory;
    cudaEvent_t read; /* after the last copy out of it */
    bool busy;
    uint64_t turn;    /* when it was left; the least is the oldest */
} mirt__cu_pinned;
/* Blocks that copies of one stream leave from, each filled from its start. */
typedef struct mirt__cu_pool {
    mirt__cu_pinned block[MIRT__CU_PINNED_MOST];
    int count, at;
    size_t used;
    uint64_t turns;
} mirt__cu_pool;

typedef struct mirt__cu_delivery {
    void *to;
    size_t from, bytes;
} mirt__cu_delivery;
typedef struct mirt__cu_constants {
    struct mirt__cu_constants *next;
    void *kept, *copy; /* what it is, and the device's copy of it */
    size_t bytes;
    bool small;
} mirt__cu_constants;

/* Copies from the device that are not delivered yet. */
typedef struct mirt__cu_fetched {
    char *memory; /* pinned */
    size_t used;
    mirt__cu_delivery delivery[MIRT__CU_DELIVERIES];
    int deliveries;
} mirt__cu_fetched;

struct mirt__cu_staging {
    mirt__cu_pool pool[2]; /* of the stream of work; of the copies' */
    cudaEvent_t arrived;   /* what the copies' stream brought */
    cudaEvent_t left;      /* what it may bring something else in the place of */
    mirt__cu_fetched fetched[2]; /* of the round under way, and of the round before the mark */
    int round;                   /* which of them is the round's under way */
    cudaEvent_t mark;            /* the end of the round before */
    bool marked;                 /* which was not waited for yet */
    mirt__cu_constants *constants;
    char *small;           /* room for copies of small ones, if there is */
    size_t small_used;
};

/* exchange.cu: whether the others of its group are well; if not, that is noted. */
static bool mirt__cu_group_well(mirt__cu *cu);
/* exchange.cu: nobody waits for this device any more: it failed; it is closed. */
static void mirt__cu_group_fail(mirt__cu *cu);
static void mirt__cu_group_leave(mirt__cu *cu);
/* exchange.cu: mirt__cu_idle of all its group. */
static bool mirt__cu_frees(mirt__cu *cu);
/* nvml.cu */
static void mirt__cu_nvml_close(mirt__cu *cu);
/* graphs.cu */
static void mirt__cu_graphs_free(mirt__cu *cu);
static void mirt__cu_graphs_settle(mirt__cu *cu);
static bool mirt__cu_outside(mirt__cu *cu);
static void mirt__cu_inside(mirt__cu *cu);

/* >>failures */

static bool mirt__cu_fail(mirt__cu *cu, mirt_status status, const char *format, ...) {
    va_list arguments;
    if (cu->status != MIRT_OK) return false;
    cu->status = status;
    const int used = snprintf(cu->error, sizeof cu->error, "gpu:%d (%s): ", cu->index, cu->name);
    va_start(arguments, format);
    vsnprintf(cu->error + used, sizeof cu->error - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

/* Failures after which the device, or this program's context on it, can no longer be used. */
static const struct {
    cudaError_t error[3];
    const char *advice;
} mirt__cu_losses[] = {
    {{cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace},
     "a kernel left its memory, which is a bug: compute-sanitizer names the kernel"},
    {{cudaErrorInvalidPc, cudaErrorHardwareStackError},
     "a kernel went astray, which is a bug: compute-sanitizer names the kernel"},
    {{cudaErrorIllegalInstruction}, "compile for this GPU with -arch=native"},
    {{cudaErrorLaunchFailure},
     "a kernel went astray: compute-sanitizer names it; if it comes again elsewhere, the GPU may be damaged"},
    {{cudaErrorLaunchTimeout}, "the display's watchdog stops long kernels: train on a GPU without a display"},
    {{cudaErrorAssert}, "a kernel went astray, which is a bug"},
    {{cudaErrorECCUncorrectable},
     "its memory is damaged: see nvidia-smi -q -d ECC; a reset or a restart of the machine may help"},
    {{cudaErrorNvlinkUncorrectable}, "NVLink failed: see nvidia-smi nvlink -e; restart the machine"},
#if CUDART_VERSION >= 12080
    {{cudaErrorContained}, "an error in its memory was contained: restart the program"},
#endif
    {{cudaErrorDevicesUnavailable}, "it is held by another program in exclusive mode, or by MPS: see nvidia-smi"},
    {{cudaErrorNoDevice, cudaErrorInvalidDevice},
     "it has fallen off the bus: see dmesg for Xid 79, and restart the machine"},
    {{cudaErrorSystemNotReady}, "the machine's services are not ready: is nvidia-fabricmanager running?"},
    {{cudaErrorUnknown}, "it may have fallen off the bus: see dmesg for Xid messages, and restart the machine"}};

static void mirt__cu_failed(mirt__cu *cu, cudaError_t error, const char *what) {
    size_t left = 0, all = 0;
    (void)cudaGetLastError(); /* or the next launch would seem to have failed */
    for (int i = 0; i < 3 * MIRT__COUNT(mirt__cu_losses); i++) {
        if (mirt__cu_losses[i / 3].error[i % 3] != error) continue;
        mirt__cu_fail(cu, MIRT_E_DEVICE, "lost, %s: %s; %s. Resume from the last checkpoint", what,
                      cudaGetErrorString(error), mirt__cu_losses[i / 3].advice);
        cu->lost = true;
        return;
    }
    if (error == cudaErrorMemoryAllocation) {
        if (cudaMemGetInfo(&left, &all) != cudaSuccess) (void)cudaGetLastError();
        mirt__cu_fail(cu, MIRT_E_NOMEM,
                      "out of memory, %s: %.1f MB of %.1f MB are free; nvidia-smi shows who has the rest", what,
                      (double)left / 1e6, (double)all / 1e6);
    } else if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
               error == cudaErrorUnsupportedPtxVersion || error == cudaErrorInvalidKernelImage) {
        mirt__cu_fail(cu, MIRT_E_DEVICE,
                      "%s: the program has no code for it (%s); compile with nvcc -arch=native, or -arch=sm_%d%d", what,
                      cudaGetErrorString(error), cu->major, cu->minor);
    } else {
        mirt__cu_fail(cu, MIRT_E_DEVICE, "%s failed: %s", what, cudaGetErrorString(error));
    }
}

static bool mirt__cu_try(mirt__cu *cu, cudaError_t error, const char *what) {
    if (error != cudaSuccess) mirt__cu_failed(cu, error, what);
    return error == cudaSuccess;
}

/* Hands what failed to the library. */
static mirt_status mirt__cu_tell(mirt__cu *cu) {
    const mirt_status status = cu->status;
    if (!cu->lost) cu->status = MIRT_OK;
    return cu->host->fail(status, "%s", cu->error);
}

static void mirt__cu_nap(void) {
    struct timespec nap;
    nap.tv_sec = 0;
    nap.tv_nsec = 50000;
    nanosleep(&nap, NULL);
}

/* A wait that is looked at again and again: when it began, and when it was last looked at. */
typedef struct mirt__cu_patience {
    double begin, looked;
} mirt__cu_patience;

static mirt__cu_patience mirt__cu_begin(const mirt__cu *cu) {
    mirt__cu_patience wait;
    wait.begin = wait.looked = cu->host->now();
    return wait;
}

/* Seconds that the wait has taken so far. It begins anew when much of the limit has passed since the last look: then
   the process was suspended (SIGSTOP, a debugger, a snapshot of a virtual machine), and nobody else made progress
   either. */
static double mirt__cu_passed(const mirt__cu *cu, mirt__cu_patience *wait) {
    const double now = cu->host->now(), shortest = 0.004, longest = 1, share = 0.75 * cu->limit;
    const double late = share < shortest ? shortest : share > longest ? longest : share;
    if (cu->limit > 0 && now - wait->looked > late) wait->begin = now;
    wait->looked = now;
    return now - wait->begin;
}

/* Until the event has happened or, if it is NULL, the stream is done. Never blocks: another device may be lost that
   this one waits for. */
static bool mirt__cu_settled(mirt__cu *cu, cudaStream_t stream, cudaEvent_t event) {
    mirt__cu_patience wait = mirt__cu_begin(cu);
    bool slow = false;
    for (unsigned turn = 1;; turn++) {
        const cudaError_t state = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        if (state == cudaSuccess) {
            const double took = mirt__cu_passed(cu, &wait);
            if (took > MIRT__CU_SHORT) cu->waited = took;
            return true;
        }
        if (state != cudaErrorNotReady) return mirt__cu_failed(cu, state, "waiting for it"), false;
        (void)cudaGetLastError();
        if (!slow && turn % 64) continue;
        if (!mirt__cu_group_well(cu)) return false;
        const double passed = mirt__cu_passed(cu, &wait);
        if (cu->limit > 0 && passed > cu->limit) {
            mirt__cu_fail(
                cu, MIRT_E_TIMEOUT,
                "nothing was done in %.3g s; another GPU that it waits for may be lost, or its work may have no end",
                passed);
            cu->lost = true;
            mirt__cu_group_fail(cu);
            return false;
        }
        slow = passed > MIRT__CU_SHORT &&
               (passed < 0.8 * cu->waited || passed > 2 * cu->waited); /* the end is not to be slept over */
        if (slow) mirt__cu_nap();
    }
}

/* Freeing waits for all work in flight, on other devices too. Abandoned work may never end: then nothing is freed. */
static bool mirt__cu_idle(mirt__cu *cu) {
    const double begin = cu->host->now(), patience = 1;
    const cudaStream_t stream[3] = {cu->stream, cu->copies, cu->exchanges};
    for (int i = 0; i < 3 && cu->lost && !cu->stuck; i++) {
        while (stream[i] && !cu->stuck && cudaStreamQuery(stream[i]) == cudaErrorNotReady) {
            cu->stuck = cu->host->now() - begin > patience;
            mirt__cu_nap();
        }
        (void)cudaGetLastError();
    }
    return !cu->stuck;
}

/* >>the machine's devices */

/* What the program's code was made for: the best of it that a device can run, as 10 * major + minor; 0: there is
   none. */
static int mirt__cu_code_for(int device) {
#ifdef __CUDA_ARCH_LIST__
    const int made[] = {__CUDA_ARCH_LIST__};
    int best = 0;
    for (int i = 0; i < MIRT__COUNT(made); i++) {
        if (made[i] / 10 <= device && made[i] / 10 > best) best = made[i] / 10;
    }
    return best;
#else
    return device;
#endif
}

static const char *mirt__cu_driver_wanted(void) {
    return CUDART_VERSION >= 14000   ? "that comes with this CUDA"
           : CUDART_VERSION >= 13000 ? "580.65.06"
           : CUDART_VERSION >= 12000 ? "525.60.13"
                                     : "450.80.02";
}

static int mirt__cu_devices(const mirt__host *host) {
    int count = 0, driver = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess) return count;
    (void)cudaGetLastError();
    if (error == cudaErrorNoDevice) return 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    (void)cudaGetLastError();
    if (driver == 0) {
        host->fail(MIRT_E_NOT_FOUND, "there is no NVIDIA driver: GPUs need one of at least version %s",
                   mirt__cu_driver_wanted());
    } else if (error == cudaErrorInsufficientDriver) {
        host->fail(
            MIRT_E_DEVICE,
            "the driver is for CUDA %d.%d; this program was built with %d.%d: install a driver of at least version %s",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
            mirt__cu_driver_wanted());
    } else {
        host->fail(MIRT_E_DEVICE, "GPUs cannot be used: %s; see nvidia-smi and dmesg, and CUDA_VISIBLE_DEVICES",
                   cudaGetErrorString(error));
    }
    return -1;
}

static bool mirt__cu_properties(const mirt__host *host, int index, cudaDeviceProp *out) {
    const int count = mirt__cu_devices(host);
    if (count < 0) return false;
    if (index < 0 || index >= count) {
        if (!count)
            return host->fail(MIRT_E_DEVICE,
                              "there is no gpu:%d: this machine has no GPU, or CUDA_VISIBLE_DEVICES hides it", index),
                   false;
        return host->fail(MIRT_E_DEVICE, "there is no gpu:%d: this machine has gpu:0 to gpu:%d", index, count - 1),
               false;
    }
    const cudaError_t error = cudaGetDeviceProperties(out, index);
    if (error == cudaSuccess) return true;
    (void)cudaGetLastError();
    return host->fail(MIRT_E_DEVICE, "gpu:%d tells nothing of itself: %s; see nvidia-smi", index,
                      cudaGetErrorString(error)),
           false;
}

static bool mirt__cu_info(const mirt__host *host, int index, mirt__device_facts *out) {
    cudaDeviceProp device;
    memset(out, 0, sizeof *out);
    if (!mirt__cu_properties(host, index, &device)) return false;
    const int version = device.major * 10 + device.minor, code = mirt__cu_code_for(version);
    char late[80] = "";
    if (code && code / 10 != version / 10) /* the driver compiles it */
        snprintf(late, sizeof late, "; code for sm_%d is compiled anew: use nvcc -arch=native", code);
    snprintf(out->name, sizeof out->name, "%.63s", device.name);
    snprintf(out->description, sizeof out->description, "sm_%d, %d processors, %.1f GB%s", version,
             device.multiProcessorCount, (double)device.totalGlobalMem / 1e9, late);
    out->memory = device.totalGlobalMem;
    out->half = code >= 80;
    memcpy(out->uuid, &device.uuid, sizeof out->uuid);
    return true;
}

/* >>opening and closing */

static void mirt__cu_pool_free(mirt__cu_pool *pool) {
    for (int i = 0; i < pool->count; i++) {
        (void)cudaEventDestroy(pool->block[i].read);
        (void)cudaFreeHost(pool->block[i].memory);
    }
}

static void mirt__cu_constants_free(mirt__cu *cu) {
    for (mirt__cu_constants *c = cu->staging->constants; c;) {
        mirt__cu_constants *next = c->next;
        if (!c->small && !cu->stuck) (void)cudaFree(c->copy);
        cu->host->free(c->kept);
        cu->host->free(c);
        c = next;
    }
    cu->staging->constants = NULL;
    cu->staging->small_used = 0;
}

static void mirt__cu_free_parts(mirt__cu *cu) {
    mirt__cu_staging *s = cu->staging;
    const cudaStream_t stream[3] = {cu->stream, cu->copies, cu->exchanges};
    if (cu->blas) (void)cublasDestroy(cu->blas);
    for (int i = 0; i < 2; i++) mirt__cu_pool_free(&s->pool[i]);
    if (s->arrived) (void)cudaEventDestroy(s->arrived);
    if (s->left) (void)cudaEventDestroy(s->left);
    for (int i = 0; i < 2; i++) (void)cudaFreeHost(s->fetched[i].memory);
    if (s->mark) (void)cudaEventDestroy(s->mark);
    (void)cudaFree(s->small);
    for (int i = 0; i < MIRT__COUNT(cu->signal); i++) {
        if (cu->signal[i]) (void)cudaEventDestroy(cu->signal[i]);
    }
    (void)cudaFree(cu->blas_room);
    (void)cudaFree(cu->numbers);
    (void)cudaFree(cu->sums);
    for (int i = 0; i < 3; i++) {
        if (stream[i]) (void)cudaStreamDestroy(stream[i]);
    }
}

static void mirt__cu_close(mirt__handle *cu) {
    if (!cu) return;
    mirt__cu_enter(cu);
    mirt__cu_graphs_settle(cu);
    const cudaStream_t stream[3] = {cu->stream, cu->copies, cu->exchanges};
    for (int i = 0; i < 3; i++) {
        if (stream[i] && !cu->lost) mirt__cu_settled(cu, stream[i], NULL);
    }
    mirt__cu_group_leave(cu);
    mirt__cu_graphs_free(cu);
    mirt__cu_constants_free(cu);
    if (!cu->stuck) mirt__cu_free_parts(cu);
    (void)cudaGetLastError();
    mirt__cu_nvml_close(cu);
    cu->host->free(cu->staging);
    cu->host->free(cu->numbers_host);
    cu->host->free(cu);
}

/* The environment's switches: 0 or 1, and nothing is 1; what is stored is all, none or, as nothing, auto. */
static bool mirt__cu_check_switches(const mirt__host *host) {
    static const char *const names[] = {"MIRT_CUDA_BLAS", "MIRT_CUDA_GRAPHS", "MIRT_CUDA_NCCL"};
    const char *store = getenv("MIRT_CUDA_STORE");
    if (store && *store && strcmp(store, "auto") != 0 && strcmp(store, "all") != 0 && strcmp(store, "none") != 0) {
        host->fail(MIRT_E_DEVICE, "the environment's MIRT_CUDA_STORE is \"%.100s\"; it may be auto, all or none",
                   store);
        return false;
    }
    for (int i = 0; i < MIRT__COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (!value || !*value || strcmp(value, "0") == 0 || strcmp(value, "1") == 0) continue;
        host->fail(MIRT_E_DEVICE, "the environment's %s is \"%.100s\"; it may be 0 or 1", names[i], value);
        return false;
    }
    return true;
}

static bool mirt__cu_switched_off(const char *name) {
    const char *value = getenv(name);
    return value && strcmp(value, "0") == 0;
}

/* Its products add up in float32 throughout. */
static bool mirt__cu_open_blas(mirt__cu *cu) {
    const int precise = cu->tf32 ? (int)CUBLAS_TF32_TENSOR_OP_MATH : (int)CUBLAS_DEFAULT_MATH;
    const cublasMath_t mode = (cublasMath_t)(precise | (int)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (!mirt__cu_try(cu, cudaMalloc(&cu->blas_room, MIRT__CU_BLAS_ROOM), "taking memory for cuBLAS")) return false;
    const cublasStatus_t made = cublasCreate(&cu->blas);
    if (made != CUBLAS_STATUS_SUCCESS)
        return mirt__cu_fail(cu, MIRT_E_DEVICE, "cuBLAS cannot be used (status %d): it may not fit the driver",
                             (int)made);
    if (cublasSetStream(cu->blas, cu->stream) == CUBLAS_STATUS_SUCCESS &&
        cublasSetWorkspace(cu->blas, cu->blas_room, MIRT__CU_BLAS_ROOM) == CUBLAS_STATUS_SUCCESS &&
        cublasSetMathMode(cu->blas, mode) == CUBLAS_STATUS_SUCCESS)
        return true;
    return mirt__cu_fail(cu, MIRT_E_DEVICE, "cuBLAS takes no settings");
}

/* Makes one that says nothing of when. */
static bool mirt__cu_event(mirt__cu *cu, cudaEvent_t *event) {
    return mirt__cu_try(cu, cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making events");
}

static bool mirt__cu_open_parts(mirt__cu *cu) {
    cudaStream_t *const stream[3] = {&cu->stream, &cu->copies, &cu->exchanges};
    if (!mirt__cu_try(cu, cudaSetDevice(cu->index), "choosing the device")) return false;
    int lowest = 0, highest = 0; /* exchanges have few blocks, which must not queue after many */
    if (!mirt__cu_try(cu, cudaDeviceGetStreamPriorityRange(&lowest, &highest), "making streams")) return false;
    for (int i = 0; i < 3; i++) {
        if (!mirt__cu_try(cu, cudaStreamCreateWithPriority(stream[i], cudaStreamNonBlocking, i == 2 ? highest : lowest),
                          "making streams"))
            return false;
    }
    for (int i = 0; i < MIRT__COUNT(cu->signal); i++) {
        if (!mirt__cu_try(cu, cudaEventCreateWithFlags(&cu->signal[i], cudaEventDefault), "making events"))
            return false;
    }
    return mirt__cu_event(cu, &cu->staging->arrived) && mirt__cu_event(cu, &cu->staging->left) &&
           mirt__cu_event(cu, &cu->staging->mark) &&
           mirt__cu_try(cu, cudaMalloc((void **)&cu->numbers, MIRT__CU_NUMBERS), "taking memory for numbers") &&
           mirt__cu_try(cu, cudaMalloc((void **)&cu->sums, MIRT__CU_SUMS), "taking memory for sums of squares") &&
           (mirt__cu_switched_off("MIRT_CUDA_BLAS") || mirt__cu_open_blas(cu));
}

static int mirt__cu_one_thread(int asked, int cores, int devices) {
    (void)asked, (void)cores, (void)devices;
    return 1;
}

static mirt__handle *mirt__cu_open(const mirt__host *host, const mirt__opening *how) {
    const int index = how->index;
    cudaDeviceProp device;
    if (!mirt__cu_check_switches(host) || !mirt__cu_properties(host, index, &device)) return NULL;
    const int version = device.major * 10 + device.minor, code = mirt__cu_code_for(version);
    if (!code) {
        host->fail(MIRT_E_DEVICE,
                   "gpu:%d (%s) is sm_%d, and the program has code for newer ones alone: compile with nvcc "
                   "-arch=native, or -arch=sm_%d",
                   index, device.name, version, version);
        return NULL;
    }
    mirt__cu *cu = static_cast<mirt__cu *>(host->calloc(1, sizeof *cu));
    if (!cu) return NULL;
    cu->host = host;
    cu->index = index;
    cu->major = code / 10;
    cu->minor = code % 10;
    cu->shared_most = device.sharedMemPerBlockOptin;
    cu->tf32 = how->tf32 && code >= 80;
    snprintf(cu->name, sizeof cu->name, "%.63s", device.name);
    cu->numbers_host = static_cast<char *>(host->calloc(1, MIRT__CU_NUMBERS));
    cu->staging = static_cast<mirt__cu_staging *>(host->calloc(1, sizeof *cu->staging));
    if (!cu->numbers_host || !cu->staging) {
        host->free(cu->numbers_host);
        host->free(cu->staging);
        host->free(cu);
        return NULL;
    }
    if (mirt__cu_open_parts(cu)) return cu;
    mirt__cu_tell(cu);
    mirt__cu_close(cu);
    return NULL;
}

/* >>memory */

/* Memory is given in pieces of 2 MB: of what is free, weights, two slots and the working block may leave as much of
   their last ones. */
static size_t mirt__cu_free_bytes(mirt__handle *cu) {
    const size_t unused = (size_t)8 << 20;
    size_t left = 0, all = 0;
    mirt__cu_enter(cu);
    if (cudaMemGetInfo(&left, &all) == cudaSuccess) return left > unused ? left - unused : 0;
    (void)cudaGetLastError();
    return 0;
}

static void mirt__cu_release(mirt__handle *cu, void *memory) {
    if (!memory) return;
    mirt__cu_enter(cu);
    if (mirt__cu_frees(cu)) (void)cudaFree(memory);
    (void)cudaGetLastError();
}

static void *mirt__cu_alloc(mirt__handle *cu, size_t bytes) {
    void *memory = NULL;
    size_t left = 0, all = 0;
    const size_t size = bytes ? bytes : 1;
    mirt__cu_enter(cu);
    if (cu->status == MIRT_OK) {
        const cudaError_t error = cudaMalloc(&memory, size);
        if (error != cudaSuccess) (void)cudaGetLastError();
        if (error == cudaErrorMemoryAllocation && cudaMemGetInfo(&left, &all) == cudaSuccess)
            mirt__cu_fail(cu, MIRT_E_NOMEM, "out of memory: %.1f MB are asked for, %.1f MB of %.1f MB are free",
                          (double)bytes / 1e6, (double)left / 1e6, (double)all / 1e6);
        else if (mirt__cu_try(cu, error, "taking memory")) return memory;
    }
    mirt__cu_tell(cu);
    return NULL;
}

static void *mirt__cu_room(mirt__cu *cu, size_t bytes) {
    bytes = (bytes + 255) / 256 * 256;
    if (bytes > cu->room_most) cu->room_most = bytes;
    if (cu->mode == MIRT__CU_MEASURE || cu->status != MIRT_OK) return NULL;
    if (bytes <= cu->room_bytes) return cu->room;
    mirt__cu_fail(cu, MIRT_E_STATE, "a kernel wants %zu bytes of room; %zu were measured", bytes, cu->room_bytes);
    return NULL;
}

/* Kernels choose their room themselves, and need nothing else. */
static void mirt__cu_measure(mirt__handle *cu, void (*replay)(void *arg), void *arg, mirt__kernel_room *room) {
    cu->mode = MIRT__CU_MEASURE;
    cu->room_most = 0;
    replay(arg);
    cu->mode = MIRT__CU_RUN;
    room->scratch = 0;
    room->shared = cu->room_most;
}

static void mirt__cu_set_room(mirt__handle *cu, void *memory, size_t bytes) {
    cu->room = static_cast<char *>(memory);
    cu->room_bytes = memory ? bytes : 0;
}

/* >>copies */

static bool mirt__cu_pool_grow(mirt__cu *cu, mirt__cu_pool *pool) {
    mirt__cu_pinned *made = &pool->block[pool->count];
    if (!mirt__cu_event(cu, &made->read)) return false;
    if (!mirt__cu_try(cu, cudaMallocHost((void **)&made->memory, MIRT__CU_PINNED), "pinning memory of the host"))
        return (void)cudaEventDestroy(made->read), false;
    made->busy = false;
    pool->count++;
    return true;
}

static bool mirt__cu_fetched_make(mirt__cu *cu, mirt__cu_fetched *fetched) {
    return fetched->memory || mirt__cu_try(cu, cudaMallocHost((void **)&fetched->memory, MIRT__CU_PINNED),
                                           "pinning memory of the host");
}

/* All that steps take. Taking memory may wait for the kernels of all devices, and later one of those may wait for what
   this device has yet to launch. */
static bool mirt__cu_take_all(mirt__cu *cu) {
    if (!mirt__cu_try(cu, cudaMalloc((void **)&cu->staging->small, MIRT__CU_SMALL), "taking memory for constants"))
        return false;
    for (int i = 0; i < 2; i++) {
        while (cu->staging->pool[i].count < MIRT__CU_PINNED_MOST) {
            if (!mirt__cu_pool_grow(cu, &cu->staging->pool[i])) return false;
        }
    }
    return mirt__cu_fetched_make(cu, &cu->staging->fetched[0]) && mirt__cu_fetched_make(cu, &cu->staging->fetched[1]);
}

/* A block whose copies are done: one that is left, a new one, or the oldest, which is waited for. */
static bool mirt__cu_pool_turn(mirt__cu *cu, mirt__cu_pool *pool, cudaStream_t stream) {
    int oldest = 0;
    if (pool->count) {
        mirt__cu_pinned *left = &pool->block[pool->at];
        if (!mirt__cu_try(cu, cudaEventRecord(left->read, stream), "marking a copy")) return false;
        left->busy = true;
        left->turn = ++pool->turns;
    }
    pool->used = 0;
    for (int i = 0; i < pool->count; i++) {
        mirt__cu_pinned *block = &pool->block[i];
        if (block->busy && cudaEventQuery(block->read) == cudaSuccess) block->busy = false;
        pool->at = i;
        if (!block->busy) return true;
        if (block->turn < pool->block[oldest].turn) oldest = i;
    }
    (void)cudaGetLastError();
    if (pool->count == MIRT__CU_PINNED_MOST) {
        pool->at = oldest;
        return mirt__cu_settled(cu, NULL, pool->block[oldest].read) && (pool->block[oldest].busy = false, true);
    }
    if (!mirt__cu_pool_grow(cu, pool)) return false;
    pool->at = pool->count - 1;
    return true;
}

/* Whatever the mode is. */
static void mirt__cu_upload(mirt__cu *cu, void *to, const void *from, size_t bytes, bool beside) {
    mirt__cu_pool *pool = &cu->staging->pool[beside];
    const cudaStream_t stream = beside ? cu->copies : cu->stream;
    for (size_t done = 0; done < bytes && cu->status == MIRT_OK;) {
        if ((!pool->count || pool->used == MIRT__CU_PINNED) && !mirt__cu_pool_turn(cu, pool, stream)) return;
        const size_t left = MIRT__CU_PINNED - pool->used, piece = bytes - done < left ? bytes - done : left;
        char *pinned = pool->block[pool->at].memory + pool->used;
        memcpy(pinned, static_cast<const char *>(from) + done, piece);
        if (!mirt__cu_try(
                cu, cudaMemcpyAsync(static_cast<char *>(to) + done, pinned, piece, cudaMemcpyHostToDevice, stream),
                "copying to it"))
            return;
        done += piece;
        pool->used += (piece + 255) / 256 * 256;
    }
}

static void mirt__cu_stage(mirt__handle *cu, void *to, const void *from, size_t bytes, bool early) {
    if (!bytes || !mirt__cu_outside(cu)) return;
    mirt__cu_upload(cu, to, from, bytes, early);
    if (early && cu->status == MIRT_OK &&
        mirt__cu_try(cu, cudaEventRecord(cu->staging->arrived, cu->copies), "marking a copy")) {
        mirt__cu_try(cu, cudaStreamWaitEvent(cu->stream, cu->staging->arrived, 0), "waiting for a copy");
    }
    mirt__cu_inside(cu);
}

static void mirt__cu_behind(mirt__handle *cu) {
    if (!mirt__cu_outside(cu)) return;
    if (mirt__cu_try(cu, cudaEventRecord(cu->staging->left, cu->stream), "marking a place")) {
        mirt__cu_try(cu, cudaStreamWaitEvent(cu->copies, cu->staging->left, 0), "holding up copies");
    }
    mirt__cu_inside(cu);
}

static void mirt__cu_copy(mirt__handle *cu, void *to, const void *from, size_t bytes) {
    mirt__cu_enter(cu);
    if (mirt__cu_launches(cu) && bytes)
        mirt__cu_try(cu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cu->stream), "copying");
}

static void mirt__cu_clear(mirt__handle *cu, void *memory, size_t bytes) {
    mirt__cu_enter(cu);
    if (mirt__cu_launches(cu) && bytes)
        mirt__cu_try(cu, cudaMemsetAsync(memory, 0, bytes, cu->stream), "clearing memory");
}

/* >>numbers and constants */

/* Outside graphs each number is copied at once, in the order of the work; for graphs the numbers are gathered and
   copied together. */
static const void *mirt__cu_number(mirt__cu *cu, const void *value, size_t size) {
    const size_t room = (size + 15) / 16 * 16;
    if (cu->mode == MIRT__CU_MEASURE || cu->status != MIRT_OK) return NULL;
    if (cu->numbers_used + room > MIRT__CU_NUMBERS) {
        if (cu->mode != MIRT__CU_RUN) {
            mirt__cu_fail(cu, MIRT_E_STATE, "a step has more than %zu bytes of numbers", MIRT__CU_NUMBERS);
            return NULL;
        }
        cu->numbers_used = 0;
    }
    const size_t at = cu->numbers_used;
    cu->numbers_used += room;
    if (cu->mode == MIRT__CU_RUN) mirt__cu_upload(cu, cu->numbers + at, value, size, false);
    else memcpy(cu->numbers_host + at, value, size);
    return cu->numbers + at;
}

/* Found by content: the place may have been freed, and be another function's now. */
static const void *mirt__cu_constant_copy(mirt__cu *cu, const void *data, size_t bytes) {
    if (cu->status != MIRT_OK || cu->mode == MIRT__CU_REFRESH) return NULL;
    for (const mirt__cu_constants *c = cu->staging->constants; c; c = c->next) {
        if (c->bytes == bytes && memcmp(c->kept, data, bytes) == 0) return c->copy;
    }
    if (cu->mode == MIRT__CU_CAPTURE) {
        mirt__cu_fail(cu, MIRT_E_STATE, "a constant was not there before");
        return NULL;
    }
    mirt__cu_constants *made = static_cast<mirt__cu_constants *>(cu->host->calloc(1, sizeof *made));
    void *kept = made ? cu->host->calloc(bytes ? bytes : 1, 1) : NULL;
    if (made && cu->staging->small && bytes <= MIRT__CU_SMALL - cu->staging->small_used) {
        made->small = true;
        made->copy = cu->staging->small + cu->staging->small_used;
    }
    if (!kept || (!made->small &&
                  !mirt__cu_try(cu, cudaMalloc(&made->copy, bytes ? bytes : 1), "taking memory for a constant"))) {
        if (cu->status == MIRT_OK)
            mirt__cu_fail(cu, MIRT_E_NOMEM, "no memory of the host for a constant of %zu bytes", bytes);
        cu->host->free(kept);
        cu->host->free(made);
        return NULL;
    }
    if (made->small) cu->staging->small_used += (bytes + 255) / 256 * 256;
    memcpy(kept, data, bytes);
    made->kept = kept;
    made->bytes = bytes;
    made->next = cu->staging->constants;
    cu->staging->constants = made;
    mirt__cu_upload(cu, made->copy, data, bytes, false);
    return made->copy;
}

/* >>meetings */

static void mirt__cu_signal(mirt__handle *cu, int number) {
    if (!mirt__cu_outside(cu)) return;
    mirt__cu_try(cu, cudaEventRecord(cu->signal[number], cu->stream), "marking a place");
    mirt__cu_inside(cu);
}

static void mirt__cu_await(mirt__handle *cu, mirt__handle *other, int number) {
    if (!mirt__cu_outside(cu)) return;
    mirt__cu_try(cu, cudaStreamWaitEvent(cu->stream, other->signal[number], 0), "waiting for another GPU");
    mirt__cu_inside(cu);
}

static double mirt__cu_seconds(mirt__handle *cu, int from, int to) {
    float milliseconds = 0;
    mirt__cu_enter(cu);
    if (cudaEventElapsedTime(&milliseconds, cu->signal[from], cu->signal[to]) == cudaSuccess) return milliseconds / 1e3;
    (void)cudaGetLastError();
    return 0;
}
