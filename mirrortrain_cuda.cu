#define MIRRORTRAIN_BACKEND
#include "mirrortrain.h"

/* >>section cuda/cuda.cuh */

#ifndef MIRT__CUDA_CUH
#define MIRT__CUDA_CUH
/* What all GPU code stands on. Kernels are C++17 that also compiles for a simulated device (MIRT_SIM): launches by
   MIRT_LAUNCH, shared memory by MIRT_SHARED, instructions beyond C++ in ptx.cuh alone. */

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cublas_v2.h>
#include <string.h>

#ifndef MIRT_SIM /* which has its own */
#define MIRT_SHARED(type, name, count) __shared__ __align__(16) type name[count]
/* One array of bytes for all kernels: their types differ. */
#define MIRT_DYNAMIC_SHARED(type, name) \
    extern __shared__ __align__(128) unsigned char mirt__cu_dynamic[]; \
    type *name = reinterpret_cast<type *>(mirt__cu_dynamic)
#endif

/* What becomes of what is enqueued. */
typedef enum mirt__cu_mode {
    MIRT__CU_RUN,
    MIRT__CU_MEASURE, /* nothing but the room it wants is noted */
    MIRT__CU_CAPTURE, /* it becomes a graph */
    MIRT__CU_REFRESH  /* it is in a graph already: the numbers that change are noted */
} mirt__cu_mode;

typedef struct mirt__cu_graphs mirt__cu_graphs;
typedef struct mirt__cu_staging mirt__cu_staging;
typedef struct mirt__cu_group mirt__cu_group;
typedef struct mirt__cu_nvml mirt__cu_nvml;

/* An opened device. */
typedef struct mirt__handle {
    const mirt__host *host;
    int index;
    int major, minor;   /* of the machine, or of the code for it, where that was made for an older one */
    char name[64];
    size_t shared_most; /* bytes of shared memory that a block may ask for */
    double limit;       /* seconds that a wait takes at most; 0: any */
    cudaStream_t stream, copies, exchanges;
    cudaEvent_t signal[12];
    mirt__cu_mode mode, inner; /* inner: what it is again after what is not part of a graph */
    bool tf32;
    mirt_status status; /* the first failure since the last wait, */
    char error[400];    /* and its sentence */
    bool lost;          /* nothing can be done with it any more */
    bool stuck;         /* and what it does has no end */
    double waited;      /* seconds of the last wait that was not short: the next will be as long */
    char *room;
    size_t room_bytes, room_most;
    /* numbers that change from step to step, at the same places each time */
    char *numbers, *numbers_host;
    size_t numbers_used;
    cublasHandle_t blas;
    void *blas_room;
    char *sums; /* MIRT__CU_SUMS bytes: pieces of a block, then the sums of their squares */
    mirt__cu_staging *staging;
    mirt__cu_graphs *graphs;
    mirt__cu_group *group;
    int rank;
    mirt__cu_nvml *nvml; /* NULL: not asked for yet, or not there */
    bool nvml_tried;     /* looked for; without `nvml` it is missing */
} mirt__cu;

/* Whether kernels are to be launched now. */
static inline bool mirt__cu_launches(const mirt__cu *cu) {
    return cu->status == MIRT_OK && (cu->mode == MIRT__CU_RUN || cu->mode == MIRT__CU_CAPTURE);
}
/* context.cu: notes the first failure; `what` is what was tried. */
static void mirt__cu_failed(mirt__cu *cu, cudaError_t error, const char *what);
/* The same by status and sentence; false. */
static bool mirt__cu_fail(mirt__cu *cu, mirt_status status, const char *format, ...);
/* context.cu: temporary memory of this call, aligned to 256 bytes; one request per kernel function for all it needs.
   NULL while measuring or after a failure: the caller continues, nothing is launched. */
static void *mirt__cu_room(mirt__cu *cu, size_t bytes);
/* context.cu: where the device finds the `size` <= 256 bytes of `value`, which may change each time the same work is
   replayed. */
static const void *mirt__cu_number(mirt__cu *cu, const void *value, size_t size);
#define MIRT__CU_NUMBERS ((size_t)1 << 18) /* bytes of a step's */
#define MIRT__CU_SUMS (MIRT__MOST_SQUARES * (sizeof(mirt__square_piece) + sizeof(double)))
/* context.cu: the device's copy of what the host has at `data`, made when it is asked for the first time; NULL after a
   failure. */
static const void *mirt__cu_constant_copy(mirt__cu *cu, const void *data, size_t bytes);
/* context.cu: a call of the runtime; false if it failed, which is noted. */
static bool mirt__cu_try(mirt__cu *cu, cudaError_t error, const char *what);

/* Loads a kernel, as its first launch would. Loading may wait for all kernels at work, and those of NCCL may wait for
   what the calling thread has yet to launch: what first runs beside them is loaded before. */
template <class KERNEL> static inline bool mirt__cu_load(mirt__cu *cu, KERNEL *kernel) {
    cudaFuncAttributes facts;
    return mirt__cu_try(cu, cudaFuncGetAttributes(&facts, reinterpret_cast<const void *>(kernel)), "loading its code");
}
/* blas.cu: the kernel that takes over, perhaps beside exchanges, where cublasLt has no fused one. */
static bool mirt__cu_blas_load(mirt__cu *cu);

/* The calling thread works on this device from here on: it may have been on another one. False: it has failed. */
static inline bool mirt__cu_enter(mirt__cu *cu) {
    int now = -1;
    if (cudaGetDevice(&now) != cudaSuccess || now != cu->index)
        mirt__cu_try(cu, cudaSetDevice(cu->index), "choosing the device");
    return cu->status == MIRT_OK;
}
static inline mirt__cu *mirt__cu_of(const mirt__where *where) {
    mirt__cu_enter(where->handle);
    return where->handle;
}
/* What a call multiplies: numbers of float32, or rounded to 16 bits. */
static inline mirt_dtype mirt__cu_factors(bool half, const mirt__where *where) {
    return !half ? MIRT_FLOAT32 : where->float16 ? (mirt_dtype)MIRT__FLOAT16 : (mirt_dtype)MIRT__BFLOAT16;
}
/* Whether there are instructions for products of such. */
static inline bool mirt__cu_multiplies(const mirt__cu *cu, mirt_dtype factors) {
    return (int)factors == MIRT__FLOAT16 ? cu->major * 10 + cu->minor >= 75
                                         : cu->major >= 8 && (int)factors == MIRT__BFLOAT16;
}
/* How numbers are multiplied: float32 by FMA or as tf32; by instructions for bfloat16 and float16. */
typedef enum mirt__cu_math { MIRT__CU_BY_FMA, MIRT__CU_BY_TF32, MIRT__CU_BY_HALF, MIRT__CU_BY_FLOAT16 } mirt__cu_math;
static inline mirt__cu_math mirt__cu_math_of(const mirt__cu *cu, mirt_dtype factors) {
    if (mirt__cu_multiplies(cu, factors))
        return (int)factors == MIRT__FLOAT16 ? MIRT__CU_BY_FLOAT16 : MIRT__CU_BY_HALF;
    return factors == MIRT_FLOAT32 && cu->tf32 && cu->major >= 8 ? MIRT__CU_BY_TF32 : MIRT__CU_BY_FMA;
}
static inline int64_t mirt__cu_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Blocks of a kernel that goes over `count` items in steps of the whole grid: enough for the machine, and a function of
   count alone. */
static inline unsigned mirt__cu_blocks(int64_t count, int threads) {
    const int64_t blocks = mirt__cu_ceil(count, threads);
    return (unsigned)(blocks < 1 ? 1 : blocks > 4096 ? 4096 : blocks);
}

#ifdef MIRT_SIM
/* Arguments have their values now, the kernel runs later. */
template <class T> struct mirt__cu_same {
    typedef T type;
};
template <class... P>
static inline void mirt__cu_enqueue(dim3 grid, dim3 block, size_t shared, cudaStream_t at, const char *name,
                                    void (*kernel)(P...), typename mirt__cu_same<P>::type... values) {
    mirt_sim::launch(grid, block, shared, at, [=] { kernel(values...); }, name, reinterpret_cast<const void *>(kernel));
}
#define MIRT__CU_GO(at, kernel, grid, block, shared, ...) \
    mirt__cu_enqueue((grid), (block), (size_t)(shared), (at), #kernel, mirt__cu_kernel, __VA_ARGS__)
#else
#define MIRT__CU_GO(at, kernel, grid, block, shared, ...) \
    kernel<<<(grid), (block), (size_t)(shared), (at)>>>(__VA_ARGS__)
#endif
/* More than 48 KB of shared memory are asked for on each device. */
#define MIRT__CU_START(cu, at, kernel, grid, block, shared, ...) \
    do { \
        const auto mirt__cu_kernel = kernel; \
        if ((size_t)(shared) > 48 * 1024) { \
            (void)cudaFuncSetAttribute(reinterpret_cast<const void *>(mirt__cu_kernel), \
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(shared)); \
        } \
        MIRT__CU_GO(at, kernel, grid, block, shared, __VA_ARGS__); \
    } while (0)
/* kernel<<<grid, block, shared bytes>>>(...) on a stream of the device; template kernels stand in parentheses. */
#define MIRT_LAUNCH_ON(cu, at, kernel, grid, block, shared, ...) \
    do { \
        if (!mirt__cu_launches(cu)) break; \
        MIRT__CU_START(cu, at, kernel, grid, block, shared, __VA_ARGS__); \
        const cudaError_t mirt__cu_launched = cudaGetLastError(); \
        if (mirt__cu_launched != cudaSuccess) mirt__cu_failed(cu, mirt__cu_launched, #kernel); \
    } while (0)
#define MIRT_LAUNCH(cu, kernel, grid, block, shared, ...) \
    MIRT_LAUNCH_ON(cu, (cu)->stream, kernel, grid, block, shared, __VA_ARGS__)

#endif

/* >>section cuda/context.cu */

/* A device: its memory, its streams, copies from and to the host, and failures. */

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

/* >>section cuda/nvml.cu */

/* What the driver says about a GPU, by NVIDIA's management library (NVML). */

#include <dlfcn.h>

/* The functions used; their types are plain integers and pointers, and 0 is success. The library belongs to the driver:
   it is loaded when somebody asks for the first time, and nothing is known where it is missing. */
struct mirt__cu_nvml {
    void *library, *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus, void **device);
    int (*rates)(void *device, unsigned out[2]);             /* percent of time: kernels, memory */
    int (*memory)(void *device, unsigned long long out[3]); /* bytes: total, free, used */
    int (*power)(void *device, unsigned *milliwatts);
};

static bool mirt__cu_nvml_load(mirt__cu_nvml *n) {
    const struct {
        const char *name;
        void *function;
    } all[] = {{"nvmlInit_v2", &n->init},
               {"nvmlShutdown", &n->shutdown},
               {"nvmlDeviceGetHandleByPciBusId_v2", &n->find},
               {"nvmlDeviceGetUtilizationRates", &n->rates},
               {"nvmlDeviceGetMemoryInfo", &n->memory},
               {"nvmlDeviceGetPowerUsage", &n->power}};
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; n->library && i < sizeof all / sizeof all[0]; i++) {
        void *symbol = dlsym(n->library, all[i].name);
        memcpy(all[i].function, &symbol, sizeof symbol);
        if (!symbol) return false;
    }
    return n->library && n->init() == 0;
}

static void mirt__cu_nvml_close(mirt__cu *cu) {
    if (!cu->nvml) return;
    cu->nvml->shutdown();
    dlclose(cu->nvml->library);
    cu->host->free(cu->nvml);
    cu->nvml = NULL;
}

/* The numbers of devices are the program's in CUDA and the machine's in NVML; the bus is the same in both. */
static bool mirt__cu_nvml_open(mirt__cu *cu) {
    char bus[64];
    if (cu->nvml || cu->nvml_tried) return cu->nvml != NULL;
    cu->nvml_tried = true;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, cu->index) != cudaSuccess) return (void)cudaGetLastError(), false;
    mirt__cu_nvml *n = static_cast<mirt__cu_nvml *>(cu->host->calloc(1, sizeof *n));
    if (!n) return false;
    if (!mirt__cu_nvml_load(n)) {
        if (n->library) dlclose(n->library);
        cu->host->free(n);
        return false;
    }
    cu->nvml = n;
    if (n->find(bus, &n->device) == 0) return true;
    mirt__cu_nvml_close(cu);
    return false;
}

static bool mirt__cu_gauge(mirt__handle *cu, mirt__gauges *out) {
    unsigned percent[2] = {0, 0}, milliwatts = 0;
    unsigned long long bytes[3] = {0, 0, 0};
    if (cu->lost || !mirt__cu_nvml_open(cu)) return false;
    const mirt__cu_nvml *n = cu->nvml;
    out->utilization = n->rates(n->device, percent) == 0 ? percent[0] / 100.0 : -1;
    const bool memory = n->memory(n->device, bytes) == 0;
    out->all_memory = memory ? static_cast<double>(bytes[0]) : -1;
    out->memory = memory ? static_cast<double>(bytes[2]) : -1;
    out->watts = n->power(n->device, &milliwatts) == 0 ? milliwatts / 1000.0 : -1;
    return true;
}

/* >>section cuda/fetch.cu */

/* Copies from the device to the host, and waits for its work. */

/* What has come from the device goes where it is wanted. */
static void mirt__cu_deliver(const mirt__cu *cu, mirt__cu_fetched *fetched) {
    for (int i = 0; i < fetched->deliveries && cu->status == MIRT_OK; i++)
        memcpy(fetched->delivery[i].to, fetched->memory + fetched->delivery[i].from, fetched->delivery[i].bytes);
    fetched->deliveries = 0;
    fetched->used = 0;
}

/* The round before the mark first. After a failure nothing is delivered, then or later. */
static void mirt__cu_deliver_all(const mirt__cu *cu) {
    mirt__cu_staging *s = cu->staging;
    for (int i = 1; i >= 0; i--) mirt__cu_deliver(cu, &s->fetched[s->round ^ i]);
}

static void mirt__cu_download(mirt__cu *cu, void *to, const void *from, size_t bytes) {
    mirt__cu_fetched *f = &cu->staging->fetched[cu->staging->round];
    if (!mirt__cu_fetched_make(cu, f)) return;
    for (size_t done = 0; done < bytes;) {
        if (f->used == MIRT__CU_PINNED || f->deliveries == MIRT__CU_DELIVERIES) {
            if (!mirt__cu_settled(cu, cu->stream, NULL)) return;
            mirt__cu_deliver_all(cu);
        }
        const size_t left = MIRT__CU_PINNED - f->used, piece = bytes - done < left ? bytes - done : left;
        mirt__cu_delivery *d = &f->delivery[f->deliveries];
        d->to = static_cast<char *>(to) + done;
        d->from = f->used;
        d->bytes = piece;
        if (!mirt__cu_try(cu,
                          cudaMemcpyAsync(f->memory + d->from, static_cast<const char *>(from) + done, piece,
                                          cudaMemcpyDeviceToHost, cu->stream),
                          "copying from it"))
            return;
        f->deliveries++;
        f->used += (piece + 255) / 256 * 256;
        done += piece;
    }
}

static void mirt__cu_fetch(mirt__handle *cu, void *to, const void *from, size_t bytes) {
    if (!bytes || !mirt__cu_outside(cu)) return;
    mirt__cu_download(cu, to, from, bytes);
    mirt__cu_inside(cu);
}

static mirt_status mirt__cu_wait(mirt__handle *cu) {
    mirt__cu_staging *s = cu->staging;
    mirt__cu_enter(cu);
    mirt__cu_graphs_settle(cu);
    const bool done = !cu->lost && mirt__cu_settled(cu, cu->copies, NULL) &&
                      mirt__cu_settled(cu, cu->exchanges, NULL) && mirt__cu_settled(cu, cu->stream, NULL);
    mirt__cu_deliver_all(cu);
    s->marked = false;
    for (int i = 0; i < 2 && done; i++) {
        for (int k = 0; k < s->pool[i].count; k++) s->pool[i].block[k].busy = false;
        s->pool[i].used = 0;
    }
    if (cu->status == MIRT_OK) return MIRT_OK;
    mirt__cu_group_fail(cu);
    return mirt__cu_tell(cu);
}

static void mirt__cu_mark(mirt__handle *cu) {
    mirt__cu_staging *s = cu->staging;
    if (mirt__cu_enter(cu)) mirt__cu_try(cu, cudaEventRecord(s->mark, cu->stream), "marking a step");
    s->marked = true;
    s->round ^= 1;
}

/* Blocks of pinned memory that later copies still read stay busy: mirt__cu_pool_turn asks their events. */
static mirt_status mirt__cu_wait_mark(mirt__handle *cu) {
    mirt__cu_staging *s = cu->staging;
    mirt__cu_enter(cu);
    mirt__cu_graphs_settle(cu);
    if (s->marked && cu->status == MIRT_OK && mirt__cu_settled(cu, NULL, s->mark))
        mirt__cu_deliver(cu, &s->fetched[s->round ^ 1]);
    s->marked = false;
    if (cu->status == MIRT_OK) return MIRT_OK;
    mirt__cu_deliver_all(cu);
    mirt__cu_group_fail(cu);
    return mirt__cu_tell(cu);
}

/* >>section cuda/graphs.cu */

/* CUDA graphs: repeated work is captured once and then replayed. A graph is launched as a whole, or in a few pieces
   where other work stands between. The first time, the work just runs. The second time it is captured without running,
   so `end` asks for it once more. From then on the same code runs without its launches and only gathers the numbers
   that change. */

#define MIRT__CU_GRAPH_PIECES 64

typedef struct mirt__cu_graph {
    struct mirt__cu_graph *next;
    const void *owner;
    uint64_t key;
    bool seen, ready;
    bool eager; /* it cannot be a graph */
    int pieces, at;
    struct {
        cudaGraphExec_t exec; /* NULL: nothing */
        size_t numbers;       /* their end */
    } piece[MIRT__CU_GRAPH_PIECES];
} mirt__cu_graph;

struct mirt__cu_graphs {
    mirt__cu_graph *list, *now;
    mirt__cu_graph *again; /* was not done, and has to be enqueued once more */
    size_t uploaded;       /* of the numbers of now */
    bool off;
};

static void mirt__cu_graph_clear(const mirt__cu *cu, mirt__cu_graph *graph) {
    for (int i = 0; i < graph->pieces; i++) {
        if (graph->piece[i].exec && !cu->stuck) (void)cudaGraphExecDestroy(graph->piece[i].exec);
    }
    graph->pieces = 0;
    graph->ready = false;
}

static mirt__cu_graph *mirt__cu_graph_of(mirt__cu *cu, const void *owner, uint64_t key) {
    mirt__cu_graphs *graphs = cu->graphs;
    for (mirt__cu_graph *g = graphs->list; g; g = g->next) {
        if (g->owner == owner && g->key == key) return g;
    }
    mirt__cu_graph *made = static_cast<mirt__cu_graph *>(cu->host->calloc(1, sizeof *made));
    if (!made) return NULL;
    made->owner = owner;
    made->key = key;
    made->next = graphs->list;
    return graphs->list = made;
}

/* For good; what is left of this round does nothing. */
static void mirt__cu_graph_give_up(mirt__cu *cu, mirt__cu_graph *graph) {
    mirt__cu_graph_clear(cu, graph);
    graph->eager = true;
    cu->mode = MIRT__CU_REFRESH;
    (void)cudaGetLastError();
}

static void mirt__cu_capture(mirt__cu *cu, mirt__cu_graph *graph) {
    const cudaError_t error = cudaStreamBeginCapture(cu->stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) cu->mode = MIRT__CU_CAPTURE;
    else mirt__cu_graph_give_up(cu, graph);
}

/* The stream captures no more, whatever becomes of what it captured. */
static cudaError_t mirt__cu_capture_end(mirt__cu *cu, cudaGraph_t *captured) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    *captured = NULL;
    const cudaError_t error = cudaStreamEndCapture(cu->stream, captured);
    if (error == cudaSuccess) return error;
    (void)cudaGetLastError();
    *captured = NULL;
    if (cudaStreamIsCapturing(cu->stream, &state) == cudaSuccess && state != cudaStreamCaptureStatusNone)
        (void)cudaStreamEndCapture(cu->stream, captured);
    return error;
}

/* What was captured becomes a piece. */
static void mirt__cu_captured(mirt__cu *cu, mirt__cu_graph *graph) {
    cudaGraph_t captured = NULL;
    cudaGraphExec_t exec = NULL;
    size_t nodes = 0;
    cudaError_t error = mirt__cu_capture_end(cu, &captured);
    const bool full = graph->pieces == MIRT__CU_GRAPH_PIECES;
    if (error == cudaSuccess) error = cudaGraphGetNodes(captured, NULL, &nodes);
    if (error == cudaSuccess && nodes && !full && cu->status == MIRT_OK) {
#if CUDART_VERSION >= 12000
        error = cudaGraphInstantiate(&exec, captured, 0);
#else
        error = cudaGraphInstantiateWithFlags(&exec, captured, 0);
#endif
    }
    if (captured) (void)cudaGraphDestroy(captured);
    if (cu->status == MIRT_OK && error == cudaSuccess && !full) {
        graph->piece[graph->pieces].exec = exec;
        graph->piece[graph->pieces++].numbers = cu->numbers_used;
        return;
    }
    mirt__cu_graph_give_up(cu, graph);
    if (!cu->lost) cu->status = MIRT_OK; /* it comes again when all is done without a graph, if it does */
}

/* Launches the piece that was gone through. */
static void mirt__cu_graph_launch(mirt__cu *cu, mirt__cu_graph *graph) {
    if (cu->status != MIRT_OK) return;
    if (graph->at == graph->pieces || graph->piece[graph->at].numbers != cu->numbers_used) {
        mirt__cu_fail(cu, MIRT_E_STATE, "replayed work has %zu bytes of numbers up to its piece %d of %d",
                      cu->numbers_used, graph->at, graph->pieces);
        return;
    }
    const size_t from = cu->graphs->uploaded, bytes = cu->numbers_used - from;
    if (bytes) mirt__cu_upload(cu, cu->numbers + from, cu->numbers_host + from, bytes, false);
    cu->graphs->uploaded = cu->numbers_used;
    cudaGraphExec_t exec = graph->piece[graph->at++].exec;
    if (exec && cu->status == MIRT_OK) mirt__cu_try(cu, cudaGraphLaunch(exec, cu->stream), "launching a graph");
}

/* What is not part of a graph stands here: whether it is to be done; if so, it ends with mirt__cu_inside. */
static bool mirt__cu_outside(mirt__cu *cu) {
    mirt__cu_graph *graph = cu->graphs ? cu->graphs->now : NULL;
    mirt__cu_enter(cu);
    cu->inner = cu->mode;
    if (cu->mode == MIRT__CU_CAPTURE) {
        mirt__cu_captured(cu, graph);
        if (!graph->eager) mirt__cu_capture(cu, graph);
        return false;
    }
    if (cu->mode == MIRT__CU_REFRESH) {
        if (graph->eager) return false;
        mirt__cu_graph_launch(cu, graph);
        if (cu->status == MIRT_OK) cu->mode = MIRT__CU_RUN;
    }
    return mirt__cu_launches(cu);
}
static void mirt__cu_inside(mirt__cu *cu) { cu->mode = cu->inner; }

static void mirt__cu_begin(mirt__handle *cu, const void *owner, uint64_t key) {
    mirt__cu_enter(cu);
    if (cu->mode != MIRT__CU_RUN || cu->status != MIRT_OK) return;
    if (!cu->graphs) {
        cu->graphs = static_cast<mirt__cu_graphs *>(cu->host->calloc(1, sizeof *cu->graphs));
        if (!cu->graphs) return;
        cu->graphs->off = mirt__cu_switched_off("MIRT_CUDA_GRAPHS");
    }
    mirt__cu_graphs *graphs = cu->graphs;
    if (graphs->off) return;
    mirt__cu_graph *graph = graphs->now = mirt__cu_graph_of(cu, owner, key);
    if (graphs->again && graphs->again != graph)
        mirt__cu_fail(cu, MIRT_E_STATE, "work that was captured was not enqueued again");
    graphs->again = NULL;
    if (!graph || graph->eager || !graph->seen) return;
    cu->numbers_used = graphs->uploaded = 0;
    graph->at = 0;
    if (graph->ready) cu->mode = MIRT__CU_REFRESH;
    else mirt__cu_capture(cu, graph);
}

static bool mirt__cu_end(mirt__handle *cu) {
    mirt__cu_graph *graph = cu->graphs ? cu->graphs->now : NULL;
    mirt__cu_enter(cu);
    if (!graph || cu->mode == MIRT__CU_MEASURE) return true;
    if (cu->mode == MIRT__CU_CAPTURE) mirt__cu_captured(cu, graph);
    if (cu->mode == MIRT__CU_REFRESH && graph->ready) mirt__cu_graph_launch(cu, graph);
    const bool done = cu->mode == MIRT__CU_RUN || graph->ready || cu->status != MIRT_OK;
    graph->seen = true;
    graph->ready = graph->pieces > 0;
    cu->mode = MIRT__CU_RUN;
    cu->graphs->now = NULL;
    cu->graphs->again = done ? NULL : graph;
    return done;
}

/* All is to be done now: what waits in the middle cannot be a graph, and must not come here as one. */
static void mirt__cu_graphs_settle(mirt__cu *cu) {
    mirt__cu_graphs *graphs = cu->graphs;
    if (!graphs || cu->mode == MIRT__CU_MEASURE) return;
    if (cu->mode == MIRT__CU_CAPTURE) {
        cudaGraph_t captured = NULL;
        (void)mirt__cu_capture_end(cu, &captured);
        if (captured) (void)cudaGraphDestroy(captured);
        mirt__cu_graph_clear(cu, graphs->now);
    }
    if (cu->mode != MIRT__CU_RUN) mirt__cu_fail(cu, MIRT_E_STATE, "captured work was begun and not ended");
    else if (graphs->now) graphs->now->eager = true;
    if (graphs->again) mirt__cu_fail(cu, MIRT_E_STATE, "work that was captured was not enqueued again");
    cu->mode = MIRT__CU_RUN;
    graphs->now = graphs->again = NULL;
}

static void mirt__cu_graphs_drop(mirt__cu *cu, const void *owner) {
    for (mirt__cu_graph **at = &cu->graphs->list; *at;) {
        mirt__cu_graph *graph = *at;
        if (owner && graph->owner != owner) {
            at = &graph->next;
            continue;
        }
        *at = graph->next;
        mirt__cu_graph_clear(cu, graph);
        cu->host->free(graph);
    }
}

static void mirt__cu_forget(mirt__handle *cu, const void *owner) {
    mirt__cu_enter(cu);
    mirt__cu_graphs_settle(cu);
    if (!cu->lost) mirt__cu_settled(cu, cu->stream, NULL);
    (void)mirt__cu_frees(cu);
    if (cu->graphs) mirt__cu_graphs_drop(cu, owner);
    if (!cu->graphs || !cu->graphs->list) mirt__cu_constants_free(cu);
    (void)cudaGetLastError();
}

static void mirt__cu_graphs_free(mirt__cu *cu) {
    if (!cu->graphs) return;
    mirt__cu_graphs_settle(cu);
    mirt__cu_graphs_drop(cu, NULL);
    cu->host->free(cu->graphs);
    cu->graphs = NULL;
}

/* >>section cuda/math.cuh */

#ifndef MIRT__CUDA_MATH_CUH
#define MIRT__CUDA_MATH_CUH
/* Arithmetic on devices: activations, 16-bit numbers, vector accesses, sums over warps and blocks. Also quotients by a
   divisor that is the same for a whole kernel. */

#include <math.h>
#include <stdint.h>

/* ---- Activations. As on CPUs; exponentials are those of the device's library at full precision. */

#define MIRT__CU_ELU_SCALE 1.0f
#define MIRT__CU_LEAKY_SCALE 0.2f
static inline __device__ float mirt__cu_layer_scale(mirt_activation_kind kind) {
    return kind == MIRT_LEAKY_RELU ? MIRT__CU_LEAKY_SCALE : MIRT__CU_ELU_SCALE;
}

/* Not a number stays none; far below zero nothing overflows. The exact exponential and quotient would take more time
   than the products that these follow; the fast ones' errors stay below a rounding of 1. */
static inline __device__ float mirt__cu_sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
static inline __device__ float mirt__cu_silu(float x) {
    const float above = x < -88.0f ? -88.0f : x;
    return __fdividef(above, 1.0f + __expf(-above));
}
static inline __device__ float mirt__cu_softplus(float x) { return (x < 0 ? 0.0f : x) + log1pf(expf(-fabsf(x))); }
/* The standard normal distribution's probability of less than x. */
static inline __device__ float mirt__cu_normal(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
static inline __device__ float mirt__cu_hard_sigmoid(float x) { return (x < -3 ? 0.0f : x > 3 ? 6.0f : x + 3) / 6.0f; }

static inline __device__ float mirt__cu_clamped(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}
/* tanh(softplus(x)) = n / (n + 2), n = e (e + 2), e = exp(x). */
static inline __device__ float mirt__cu_mish(float x) {
    const float e = expf(mirt__cu_clamped(x, -88.0f, 20.0f)), n = e * (e + 2);
    return (x < -88.0f ? -88.0f : x) * (n / (n + 2));
}
static inline __device__ float mirt__cu_mish_slope(float u) {
    const float x = mirt__cu_clamped(u, -88.0f, 20.0f), e = expf(x), n = e * (e + 2), w = n + 2;
    return n / w + x * (4 * e * (e + 1)) / (w * w);
}
static inline __device__ float mirt__cu_gelu_gate(float x) {
    return mirt__cu_sigmoid(x * fmaf(MIRT__GELU_CUBE, x * x, MIRT__GELU_SLOPE));
}
static inline __device__ float mirt__cu_gelu_approximate_slope(float u) {
    const float x = mirt__cu_clamped(u, -12.0f, 12.0f), s = mirt__cu_gelu_gate(x);
    return fmaf(x * (s * (1 - s)), fmaf(3 * MIRT__GELU_CUBE, x * x, MIRT__GELU_SLOPE), s);
}

/* The rarer ones by a call, which keeps kernels small. */
static __attribute__((noinline)) __device__ float mirt__cu_activate_curved(mirt_activation_kind kind, float x,
                                                                           float scale) {
    switch (kind) {
    case MIRT_TANH: return tanhf(x);
    case MIRT_ELU: return x > 0 ? x : expm1f(x) * scale;
    case MIRT_GELU: return x * mirt__cu_normal(x);
    case MIRT_SOFTPLUS: return mirt__cu_softplus(x);
    case MIRT_HARD_SIGMOID: return mirt__cu_hard_sigmoid(x);
    case MIRT_HARD_SWISH: return x * mirt__cu_hard_sigmoid(x);
    case MIRT_SELU: return MIRT__SELU_SCALE * (x > 0 ? x : expm1f(x) * MIRT__SELU_ALPHA);
    case MIRT_MISH: return mirt__cu_mish(x);
    case MIRT_SOFTSIGN: return x / (1 + fabsf(x));
    case MIRT_EXPONENTIAL: return expf(x);
    case MIRT_GELU_APPROXIMATE: return (x < -12.0f ? -12.0f : x) * mirt__cu_gelu_gate(x);
    case MIRT_RELU:
    case MIRT_RELU6:
    case MIRT_LEAKY_RELU:
    case MIRT_SIGMOID:
    case MIRT_SILU: break; /* mirt__cu_activate_by */
    MIRT__NOT_ELEMENTWISE;
    }
    return x;
}
static __attribute__((noinline)) __device__ float mirt__cu_slope_curved(mirt_activation_kind kind, float u,
                                                                        float scale) {
    float s;
    switch (kind) {
    case MIRT_TANH: s = tanhf(u); return 1 - s * s;
    case MIRT_ELU: return u > 0 ? 1.0f : expf(u) * scale;
    case MIRT_GELU: return fmaf(u, expf(-0.5f * u * u) * 0.39894228040143268f, mirt__cu_normal(u)); /* 1 / sqrt(2 pi) */
    case MIRT_SOFTPLUS: return mirt__cu_sigmoid(u);
    case MIRT_HARD_SIGMOID: return u > -3 && u < 3 ? 1 / 6.0f : 0.0f;
    case MIRT_HARD_SWISH: return mirt__cu_hard_sigmoid(u) + (u > -3 && u < 3 ? u / 6.0f : 0.0f);
    case MIRT_SELU: return MIRT__SELU_SCALE * (u > 0 ? 1.0f : expf(u) * MIRT__SELU_ALPHA);
    case MIRT_MISH: return mirt__cu_mish_slope(u);
    case MIRT_SOFTSIGN: s = 1 + fabsf(u); return 1 / (s * s);
    case MIRT_EXPONENTIAL: return expf(u);
    case MIRT_GELU_APPROXIMATE: return mirt__cu_gelu_approximate_slope(u);
    case MIRT_RELU:
    case MIRT_RELU6:
    case MIRT_LEAKY_RELU:
    case MIRT_SIGMOID:
    case MIRT_SILU: break; /* mirt__cu_times_slope_by */
    MIRT__NOT_ELEMENTWISE;
    }
    return 1;
}

/* activation(x); `scale` is the slope of leaky relu below zero, or elu's factor. */
static inline __device__ float mirt__cu_activate_by(mirt_activation_kind kind, float x, float scale) {
    switch (kind) {
    case MIRT_RELU: return x < 0 ? 0.0f : x;
    case MIRT_RELU6: return x < 0 ? 0.0f : x > 6 ? 6.0f : x;
    case MIRT_LEAKY_RELU: return x > 0 ? x : x * scale;
    case MIRT_SIGMOID: return mirt__cu_sigmoid(x);
    case MIRT_SILU: return mirt__cu_silu(x);
    case MIRT_TANH:
    case MIRT_ELU:
    case MIRT_GELU:
    case MIRT_HARD_SIGMOID:
    case MIRT_HARD_SWISH:
    case MIRT_SOFTPLUS:
    case MIRT_SELU:
    case MIRT_MISH:
    case MIRT_SOFTSIGN:
    case MIRT_EXPONENTIAL:
    case MIRT_GELU_APPROXIMATE: return mirt__cu_activate_curved(kind, x, scale);
    MIRT__NOT_ELEMENTWISE;
    }
    return x;
}
/* g times the activation's derivative at its input u. */
static inline __device__ float mirt__cu_times_slope_by(mirt_activation_kind kind, float g, float u, float scale) {
    float s;
    switch (kind) {
    case MIRT_RELU: return u > 0 ? g : 0.0f;
    case MIRT_RELU6: return u > 0 && u < 6 ? g : 0.0f;
    case MIRT_LEAKY_RELU: return u > 0 ? g : g * scale;
    case MIRT_SIGMOID: s = mirt__cu_sigmoid(u); return g * (s * (1 - s));
    case MIRT_SILU: s = mirt__cu_sigmoid(u); return g * (s * fmaf(u, 1 - s, 1.0f));
    case MIRT_TANH:
    case MIRT_ELU:
    case MIRT_GELU:
    case MIRT_HARD_SIGMOID:
    case MIRT_HARD_SWISH:
    case MIRT_SOFTPLUS:
    case MIRT_SELU:
    case MIRT_MISH:
    case MIRT_SOFTSIGN:
    case MIRT_EXPONENTIAL:
    case MIRT_GELU_APPROXIMATE: return g * mirt__cu_slope_curved(kind, u, scale);
    MIRT__NOT_ELEMENTWISE;
    }
    return g;
}
/* g times the derivative of a fused activation given its output y. */
static inline __device__ float mirt__cu_times_slope_of_output(mirt_activation_kind kind, float g, float y) {
    switch (kind) {
    case MIRT_RELU: return y > 0 ? g : 0.0f;
    case MIRT_RELU6: return y > 0 && y < 6 ? g : 0.0f;
    case MIRT_SIGMOID: return g * (y * (1 - y));
    case MIRT_TANH: return g * (1 - y * y);
    default: return g;
    }
}
/* Of layers. */
static inline __device__ float mirt__cu_activate(mirt_activation_kind kind, float x) {
    return mirt__cu_activate_by(kind, x, mirt__cu_layer_scale(kind));
}
static inline __device__ float mirt__cu_times_slope(mirt_activation_kind kind, float g, float u) {
    return mirt__cu_times_slope_by(kind, g, u, mirt__cu_layer_scale(kind));
}
static inline __device__ float mirt__cu_slope_of_output(mirt_activation_kind kind, float y) {
    return mirt__cu_times_slope_of_output(kind, 1.0f, y);
}

/* ---- Numbers of 16 bits: bfloat16 as uint16_t, and float16. Rounded to the nearest even; not a number stays none. */

struct mirt__cu_f16 {
    uint16_t bits;
};
template <bool FLOAT16> struct mirt__cu_half_of {
    typedef uint16_t type;
};
template <> struct mirt__cu_half_of<true> {
    typedef mirt__cu_f16 type;
};
static inline __host__ __device__ bool mirt__cu_is_half(mirt_dtype dtype) { return (int)dtype >= MIRT__BFLOAT16; }

static inline __device__ float mirt__cu_from_half(uint16_t half) { return __uint_as_float((uint32_t)half << 16); }
static inline __device__ float mirt__cu_from_half(mirt__cu_f16 half) {
    __half_raw raw;
    raw.x = half.bits;
    return __half2float(__half(raw));
}
static inline __device__ void mirt__cu_to_half(float x, uint16_t *to) {
    *to = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
static inline __device__ void mirt__cu_to_half(float x, mirt__cu_f16 *to) {
    to->bits = static_cast<__half_raw>(__float2half_rn(x)).x;
}
/* Two in a word, the first one low. */
template <bool FLOAT16> static inline __device__ uint32_t mirt__cu_to_word(float low, float high) {
    if constexpr (FLOAT16) {
        const __half2_raw both = static_cast<__half2_raw>(__floats2half2_rn(low, high));
        return (uint32_t)both.x | (uint32_t)both.y << 16;
    } else {
        return (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(low)) |
               (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16;
    }
}
template <bool FLOAT16> static inline __device__ void mirt__cu_from_word(uint32_t word, float *low, float *high) {
    if constexpr (FLOAT16) {
        __half2_raw both;
        both.x = (unsigned short)word;
        both.y = (unsigned short)(word >> 16);
        const float2 floats = __half22float2(__half2(both));
        *low = floats.x;
        *high = floats.y;
    } else {
        *low = __uint_as_float(word << 16);
        *high = __uint_as_float(word & 0xFFFF0000u);
    }
}
/* x as it is read back from memory of a dtype. */
static inline __device__ float mirt__cu_round(float x, mirt_dtype dtype) {
    if ((int)dtype == MIRT__FLOAT16) return __half2float(__float2half_rn(x));
    return (int)dtype == MIRT__BFLOAT16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

/* ---- Accesses. N neighbors from number `at` on, as float; addresses are multiples of N elements (at most of 16
   bytes). */

template <int BYTES> struct mirt__cu_bytes { /* 4, 8 or 16 as one access */
    uint32_t word[BYTES / 4];
};
template <int BYTES> static inline __device__ mirt__cu_bytes<BYTES> mirt__cu_load_bytes(const void *from) {
    mirt__cu_bytes<BYTES> to;
#ifdef MIRT_SIM
    mirt_sim::check_aligned(from, BYTES);
    memcpy(to.word, from, BYTES);
#else
    if (BYTES == 16) {
        const uint4 v = *static_cast<const uint4 *>(from);
        to.word[0] = v.x, to.word[1 % (BYTES / 4)] = v.y, to.word[2 % (BYTES / 4)] = v.z,
        to.word[3 % (BYTES / 4)] = v.w;
    } else if (BYTES == 8) {
        const uint2 v = *static_cast<const uint2 *>(from);
        to.word[0] = v.x, to.word[1 % (BYTES / 4)] = v.y;
    } else {
        to.word[0] = *static_cast<const uint32_t *>(from);
    }
#endif
    return to;
}
template <int BYTES> static inline __device__ void mirt__cu_store_bytes(void *to, const mirt__cu_bytes<BYTES> &from) {
#ifdef MIRT_SIM
    mirt__cu_bytes<BYTES> whole = from;
    mirt_sim::check_aligned(to, BYTES);
    mirt_sim::keep_whole(whole);
    memcpy(to, whole.word, BYTES);
#else
    if (BYTES == 16) {
        *static_cast<uint4 *>(to) = make_uint4(from.word[0], from.word[1 % (BYTES / 4)], from.word[2 % (BYTES / 4)],
                                               from.word[3 % (BYTES / 4)]);
    } else if (BYTES == 8) {
        *static_cast<uint2 *>(to) = make_uint2(from.word[0], from.word[1 % (BYTES / 4)]);
    } else {
        *static_cast<uint32_t *>(to) = from.word[0];
    }
#endif
}

/* N is 1, 2, 4 or 8. */
template <int N> static inline __device__ void mirt__cu_load_n(const float *x, float *to) {
    if (N == 1) {
        to[0] = x[0];
        return;
    }
    const int piece = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += piece) {
        const mirt__cu_bytes<piece * 4> v = mirt__cu_load_bytes<piece * 4>(x + i);
#pragma unroll
        for (int j = 0; j < piece; j++) to[i + j] = __uint_as_float(v.word[j]);
    }
}
template <int N, bool FLOAT16, class H> static inline __device__ void mirt__cu_load_halves(const H *x, float *to) {
    if (N == 1) {
        to[0] = mirt__cu_from_half(x[0]);
        return;
    }
    const int pairs = N < 2 ? 1 : N / 2;
    const mirt__cu_bytes<pairs * 4> v = mirt__cu_load_bytes<pairs * 4>(x);
#pragma unroll
    for (int j = 0; j < pairs; j++) mirt__cu_from_word<FLOAT16>(v.word[j], &to[2 * j], &to[2 * j + (N > 1)]);
}
template <int N>
static inline __device__ void mirt__cu_load_n(const uint16_t *x, float *to) {
    mirt__cu_load_halves<N, false>(x, to);
}
template <int N>
static inline __device__ void mirt__cu_load_n(const mirt__cu_f16 *x, float *to) {
    mirt__cu_load_halves<N, true>(x, to);
}
template <int N> static inline __device__ void mirt__cu_load_n(const uint8_t *x, float *to) {
    if (N < 4) {
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = (float)x[j];
        return;
    }
    const int words = N < 4 ? 1 : N / 4;
    const mirt__cu_bytes<words * 4> v = mirt__cu_load_bytes<words * 4>(x);
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = (float)(v.word[j / 4] >> j % 4 * 8 & 255);
}
template <int N> static inline __device__ void mirt__cu_load_n(const int32_t *x, float *to) {
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = (float)x[j];
}
template <int N> static inline __device__ void mirt__cu_store_n(float *y, const float *from) {
    if (N == 1) {
        y[0] = from[0];
        return;
    }
    const int piece = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += piece) {
        mirt__cu_bytes<piece * 4> v;
#pragma unroll
        for (int j = 0; j < piece; j++) v.word[j] = __float_as_uint(from[i + j]);
        mirt__cu_store_bytes<piece * 4>(y + i, v);
    }
}
template <int N, bool FLOAT16, class H> static inline __device__ void mirt__cu_store_halves(H *y, const float *from) {
    if (N == 1) {
        mirt__cu_to_half(from[0], y);
        return;
    }
    const int pairs = N < 2 ? 1 : N / 2;
    mirt__cu_bytes<pairs * 4> v;
#pragma unroll
    for (int j = 0; j < pairs; j++) v.word[j] = mirt__cu_to_word<FLOAT16>(from[2 * j], from[2 * j + (N > 1)]);
    mirt__cu_store_bytes<pairs * 4>(y, v);
}
template <int N>
static inline __device__ void mirt__cu_store_n(uint16_t *y, const float *from) {
    mirt__cu_store_halves<N, false>(y, from);
}
template <int N>
static inline __device__ void mirt__cu_store_n(mirt__cu_f16 *y, const float *from) {
    mirt__cu_store_halves<N, true>(y, from);
}

/* Goes over [0, count) in pieces of N by all threads of a grid: `first`, and how many there are. */
#define MIRT__CU_PIECES(first, left, count, N) \
    for (int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * (N), left = (count) - first; left > 0; \
         first += (int64_t)gridDim.x * blockDim.x * (N), left = (count) - first)
/* Up to N neighbors of x. */
template <int N> static inline __device__ void mirt__cu_load_left(const float *x, int64_t left, float *to) {
    if (N == 1 || left >= N) {
        mirt__cu_load_n<N>(x, to);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = j < left ? x[j] : 0.0f;
    }
}
template <int N> static inline __device__ void mirt__cu_store_left(float *y, int64_t left, const float *from) {
    if (N == 1 || left >= N) {
        mirt__cu_store_n<N>(y, from);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j < left) y[j] = from[j];
        }
    }
}

/* Of float32, 16 bits, uint8, bool or int32. */
template <int N>
static inline __device__ void mirt__cu_load_as(const void *x, mirt_dtype dtype, int64_t at, float *to) {
    switch ((int)dtype) {
    case MIRT__BFLOAT16: mirt__cu_load_n<N>(static_cast<const uint16_t *>(x) + at, to); break;
    case MIRT__FLOAT16: mirt__cu_load_n<N>(static_cast<const mirt__cu_f16 *>(x) + at, to); break;
    case MIRT_UINT8:
    case MIRT_BOOL: mirt__cu_load_n<N>(static_cast<const uint8_t *>(x) + at, to); break;
    case MIRT_INT32: mirt__cu_load_n<N>(static_cast<const int32_t *>(x) + at, to); break;
    default: mirt__cu_load_n<N>(static_cast<const float *>(x) + at, to); break;
    }
}
static inline __device__ float mirt__cu_load(const void *x, mirt_dtype dtype, int64_t at) {
    float value;
    mirt__cu_load_as<1>(x, dtype, at, &value);
    return value;
}
/* To float32 or 16 bits. */
template <int N>
static inline __device__ void mirt__cu_store_as(void *y, mirt_dtype dtype, int64_t at, const float *from) {
    if ((int)dtype == MIRT__BFLOAT16) mirt__cu_store_n<N>(static_cast<uint16_t *>(y) + at, from);
    else if ((int)dtype == MIRT__FLOAT16) mirt__cu_store_n<N>(static_cast<mirt__cu_f16 *>(y) + at, from);
    else mirt__cu_store_n<N>(static_cast<float *>(y) + at, from);
}
static inline __device__ void mirt__cu_store(void *y, mirt_dtype dtype, int64_t at, float value) {
    mirt__cu_store_as<1>(y, dtype, at, &value);
}

static inline int64_t mirt__cu_size(mirt_dtype dtype) {
    return dtype == MIRT_UINT8 || dtype == MIRT_BOOL ? 1 : mirt__cu_is_half(dtype) ? 2 : 4;
}
/* Whether `pointer` (NULL: yes) begins at a multiple of `bytes`, a power of two. */
static inline bool mirt__cu_aligned(const void *pointer, int64_t bytes) {
    return ((uintptr_t)pointer & (uintptr_t)(bytes - 1)) == 0;
}
/* Whether N neighbors at multiples of N can be accessed at once. */
static inline bool mirt__cu_aligned_for(const void *pointer, mirt_dtype dtype, int64_t n) {
    const int64_t bytes = n * mirt__cu_size(dtype);
    return mirt__cu_aligned(pointer, bytes < 16 ? bytes : 16);
}

/* ---- Quotients of numbers >= 0 by one that is the same for a whole kernel. */

/* By a product with `magic`, which is 2^64 * (2^shift / by - 1), rounded up; `small` is that of 2^32. */
typedef struct mirt__cu_divisor {
    int64_t by;
    uint64_t magic;
    uint32_t small; /* 0: `by` is too large */
    int shift;
} mirt__cu_divisor;
static inline mirt__cu_divisor mirt__cu_divisor_of(int64_t by) {
    mirt__cu_divisor d;
    d.by = by < 1 ? 1 : by;
    d.shift = 0;
    while (((uint64_t)1 << d.shift) < (uint64_t)d.by) d.shift++;
    uint64_t rest = ((uint64_t)1 << d.shift) - (uint64_t)d.by;
    d.magic = 0;
    d.small = d.by > INT32_MAX ? 0 : (uint32_t)((rest << 32) / (uint64_t)d.by + 1);
    for (int i = 0; rest > 0 && i < 64; i++) { /* never 0 later on */
        const bool more = (rest <<= 1) >= (uint64_t)d.by;
        d.magic = d.magic << 1 | (more ? 1 : 0);
        if (more) rest -= (uint64_t)d.by;
    }
    d.magic++;
    return d;
}
static inline __device__ int64_t mirt__cu_divide(int64_t n, const mirt__cu_divisor &d) {
    if ((uint64_t)n >> 31 || d.small == 0)
        return (int64_t)((__umul64hi((uint64_t)n, d.magic) + (uint64_t)n) >> d.shift);
    const uint32_t low = (uint32_t)n;
    return (int64_t)(((uint32_t)(((uint64_t)low * d.small) >> 32) + low) >> d.shift);
}
/* The quotient; *rest takes what remains. */
static inline __device__ int64_t mirt__cu_divmod(int64_t n, const mirt__cu_divisor &d, int64_t *rest) {
    const int64_t quotient = mirt__cu_divide(n, d);
    *rest = n - quotient * d.by;
    return quotient;
}
/* Where n and the divisor are known to be below 2^31. */
static inline __device__ uint32_t mirt__cu_divide32(uint32_t n, const mirt__cu_divisor &d) {
    return ((uint32_t)(((uint64_t)n * d.small) >> 32) + n) >> d.shift;
}

/* ---- Over the threads of a warp or a block, all of which call; the order of additions depends on nothing. */

#define MIRT__CU_ALL 0xFFFFFFFFu
struct mirt__cu_plus {
    template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};
/* A number before none: what is not a number counts for nothing, unless there is nothing else. */
struct mirt__cu_greater {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct mirt__cu_less {
    __device__ float operator()(float a, float b) const { return fminf(a, b); }
};
/* Of each `width` neighboring lanes (a power of two); all of them get it. `what` is commutative. */
template <int WIDTH, class T, class F> static inline __device__ T mirt__cu_lanes(T x, F what) {
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) x = what(x, __shfl_xor_sync(MIRT__CU_ALL, x, step));
    return x;
}
template <class T> static inline __device__ T mirt__cu_warp_sum(T x) { return mirt__cu_lanes<32>(x, mirt__cu_plus()); }
static inline __device__ float mirt__cu_warp_max(float x) { return mirt__cu_lanes<32>(x, mirt__cu_greater()); }
/* Of a block of whole warps along x; all threads get it. `room` is 32 T in shared memory, `none` what adds nothing. */
template <class T, class F> static inline __device__ T mirt__cu_block_all(T x, F what, T none, T *room) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    x = mirt__cu_lanes<32>(x, what);
    if (warps == 1) return x;
    __syncthreads(); /* the last call's readers have gone */
    if (lane == 0) room[warp] = x;
    __syncthreads();
    return mirt__cu_lanes<32>(lane < warps ? room[lane] : none, what);
}
template <class T>
static inline __device__ T mirt__cu_block_sum(T x, T *room) {
    return mirt__cu_block_all(x, mirt__cu_plus(), (T)0, room);
}
static inline __device__ float mirt__cu_block_max(float x, float *room) {
    return mirt__cu_block_all(x, mirt__cu_greater(), -INFINITY, room);
}

#endif

/* >>section cuda/update.cu */

/* Adds gradients of several buffers and updates weights, with the CPU kernels' rounding. */

/* Buffers and the additions that make one sum of them, in order. */
typedef struct mirt__cu_parts {
    int count;
    const float *part[MIRT__MAX_PARTS];
    uint8_t into[MIRT__MAX_PARTS], from[MIRT__MAX_PARTS];
} mirt__cu_parts;

template <class ADDITION>
static void mirt__cu_parts_take(mirt__cu_parts *parts, int count, const mirt__real *const *part, const ADDITION *add) {
    memset(parts, 0, sizeof *parts);
    parts->count = count;
    for (int i = 0; i < count; i++) parts->part[i] = part[i];
    for (int i = 0; i + 1 < count; i++) {
        parts->into[i] = (uint8_t)add[i].into;
        parts->from[i] = (uint8_t)add[i].from;
    }
}

/* The sum of the W elements at i. */
template <int W, int MOST>
static inline __device__ void mirt__cu_parts_sum(const mirt__cu_parts &parts, int64_t i, int64_t there, float *sum) {
    if (MOST <= 2) {
        mirt__cu_load_left<W>(parts.part[parts.into[0]] + i, there, sum);
        if (parts.count == 1) return;
        float other[W];
        mirt__cu_load_left<W>(parts.part[parts.from[0]] + i, there, other);
        for (int k = 0; k < W; k++) sum[k] = __fadd_rn(sum[k], other[k]);
    } else {
        float value[MOST][W];
        int root = 0;
        for (int p = 0; p < parts.count; p++) mirt__cu_load_left<W>(parts.part[p] + i, there, value[p]);
        for (int t = 0; t + 1 < parts.count; t++) {
            const int from = parts.from[t];
            root = parts.into[t];
            for (int k = 0; k < W; k++) value[root][k] = __fadd_rn(value[root][k], value[from][k]);
        }
        for (int k = 0; k < W; k++) sum[k] = value[root][k];
    }
}

/* sum[0 .. count) of the parts. */
template <int W, int MOST>
static __global__ void __launch_bounds__(256)
    mirt__cu_sum_kernel(const mirt__cu_parts parts, float *sum, int64_t count) {
    MIRT__CU_PIECES(i, left, count, W) {
        float value[W];
        mirt__cu_parts_sum<W, MOST>(parts, i, left, value);
        mirt__cu_store_left<W>(sum + i, left, value);
    }
}

static void mirt__cu_sum_parts(mirt__cu *cu, cudaStream_t stream, const mirt__cu_parts &parts, float *sum,
                               int64_t count) {
    bool wide = mirt__cu_aligned(sum, 16);
    if (count <= 0 || parts.count < 1) return;
    for (int i = 0; i < parts.count; i++) wide = wide && mirt__cu_aligned(parts.part[i], 16);
    const unsigned blocks = mirt__cu_blocks(mirt__cu_ceil(count, wide ? 4 : 1), 256);
    const auto sum_of_parts = !wide              ? mirt__cu_sum_kernel<1, MIRT__MAX_PARTS>
                              : parts.count <= 2 ? mirt__cu_sum_kernel<4, 2>
                              : parts.count <= 8 ? mirt__cu_sum_kernel<4, 8>
                                                 : mirt__cu_sum_kernel<4, MIRT__MAX_PARTS>;
    MIRT_LAUNCH_ON(cu, stream, sum_of_parts, blocks, 256, 0, parts, sum, count);
}

/* >>updates */

/* What a step may change. */
typedef struct mirt__cu_rates {
    float *average;
    float rate, new_1, new_2, epsilon, momentum, scale, clip, decay, keep, fresh;
    int nesterov, first, shaped, from_zero, overwrite;
} mirt__cu_rates;

typedef struct mirt__cu_updated {
    int64_t begin, end;
    int copies;
    float *slot[3];
    float *weight[MIRT__MAX_PARTS];
} mirt__cu_updated;

/* The kernels of MIRT_OPTIMIZER_LIST: g becomes what is taken off the weight; velocities of SGD are added to it. */
struct mirt__cu_sgd {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W];
        for (int k = 0; k < W; k++) g[k] = __fmul_rn(r.rate, g[k]);
        if (!u.slot[0]) return;
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) a[k] = __fsub_rn(__fmul_rn(r.momentum, a[k]), g[k]);
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) g[k] = -(r.nesterov ? __fsub_rn(__fmul_rn(r.momentum, a[k]), g[k]) : a[k]);
    }
};
/* The moving averages a of gradients and b of their squares, in slots 0 and 1. */
template <int W>
static inline __device__ void mirt__cu_moments(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i,
                                               int64_t there, const float *g, float *a, float *b) {
    mirt__cu_load_left<W>(u.slot[0] + i, there, a);
    mirt__cu_load_left<W>(u.slot[1] + i, there, b);
    for (int k = 0; k < W; k++) {
        a[k] = __fmaf_rn(__fsub_rn(g[k], a[k]), r.new_1, a[k]);
        b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_2, b[k]);
    }
    mirt__cu_store_left<W>(u.slot[0] + i, there, a);
    mirt__cu_store_left<W>(u.slot[1] + i, there, b);
}
struct mirt__cu_adam {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W], c[W];
        mirt__cu_moments<W>(u, r, i, there, g, a, b);
        if (u.slot[2]) {
            mirt__cu_load_left<W>(u.slot[2] + i, there, c);
            for (int k = 0; k < W; k++) b[k] = c[k] > b[k] ? c[k] : b[k];
            mirt__cu_store_left<W>(u.slot[2] + i, there, b);
        }
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, a[k]), __fadd_rn(__fsqrt_rn(b[k]), r.epsilon));
    }
};
struct mirt__cu_rmsprop {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W], c[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, b);
        for (int k = 0; k < W; k++) b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_1, b[k]);
        mirt__cu_store_left<W>(u.slot[0] + i, there, b);
        if (u.slot[2]) {
            mirt__cu_load_left<W>(u.slot[2] + i, there, a);
            for (int k = 0; k < W; k++) a[k] = __fmaf_rn(__fsub_rn(g[k], a[k]), r.new_1, a[k]);
            mirt__cu_store_left<W>(u.slot[2] + i, there, a);
            for (int k = 0; k < W; k++) {
                b[k] = __fsub_rn(b[k], __fmul_rn(a[k], a[k]));
                b[k] = 0.0f > b[k] ? 0.0f : b[k]; /* a variance: rounding alone can make it negative */
            }
        }
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, g[k]), __fsqrt_rn(__fadd_rn(b[k], r.epsilon)));
        if (!u.slot[1]) return;
        mirt__cu_load_left<W>(u.slot[1] + i, there, c);
        for (int k = 0; k < W; k++) g[k] = __fadd_rn(__fmul_rn(r.momentum, c[k]), g[k]);
        mirt__cu_store_left<W>(u.slot[1] + i, there, g);
    }
};
struct mirt__cu_nadam {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_moments<W>(u, r, i, there, g, a, b);
        for (int k = 0; k < W; k++)
            g[k] = __fdiv_rn(__fadd_rn(__fmul_rn(r.rate, a[k]), __fmul_rn(r.momentum, g[k])),
                             __fadd_rn(__fsqrt_rn(b[k]), r.epsilon));
    }
};
struct mirt__cu_adagrad {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) a[k] = __fadd_rn(a[k], __fmul_rn(g[k], g[k]));
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        /* In one loop with the division registers spill. */
        for (int k = 0; k < W; k++) a[k] = __fsqrt_rn(__fadd_rn(a[k], r.epsilon));
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, g[k]), a[k]);
    }
};
struct mirt__cu_adamax {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) {
            a[k] = __fmaf_rn(__fsub_rn(g[k], a[k]), r.new_1, a[k]);
            b[k] = __fsub_rn(b[k], __fmul_rn(b[k], r.new_2));
            b[k] = b[k] > fabsf(g[k]) ? b[k] : fabsf(g[k]);
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, a[k]), __fadd_rn(b[k], r.epsilon));
    }
};
struct mirt__cu_lion {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) {
            const float ahead = __fsub_rn(g[k], a[k]), way = __fmaf_rn(ahead, r.new_1, a[k]);
            a[k] = __fmaf_rn(ahead, r.new_2, a[k]);
            g[k] = way > 0 ? r.rate : way < 0 ? -r.rate : __fmul_rn(r.rate, way);
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
    }
};

struct mirt__cu_adadelta {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) a[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), a[k]), r.new_1, a[k]);
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        for (int k = 0; k < W; k++) a[k] = __fsqrt_rn(__fadd_rn(a[k], r.epsilon));
        for (int k = 0; k < W; k++) {
            g[k] = __fdiv_rn(__fmul_rn(__fsqrt_rn(__fadd_rn(b[k], r.epsilon)), g[k]), a[k]);
            b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_1, b[k]);
            g[k] = __fmul_rn(g[k], r.rate);
        }
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
    }
};
/* The weights as they are before the update, after their decay. */
template <int W>
static inline __device__ void mirt__cu_decayed(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i,
                                               int64_t there, float *weight) {
    mirt__cu_load_left<W>(u.weight[0] + i, there, weight);
    for (int k = 0; k < W; k++) {
        if (r.from_zero) weight[k] = 0;
        if (r.decay != 0) weight[k] = __fsub_rn(weight[k], __fmul_rn(weight[k], r.decay));
    }
}
struct mirt__cu_schedule_free {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W];
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) b[k] = __fmaf_rn(__fsub_rn(__fmul_rn(g[k], g[k]), b[k]), r.new_2, b[k]);
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
        for (int k = 0; k < W; k++) g[k] = __fdiv_rn(__fmul_rn(r.rate, g[k]), __fadd_rn(__fsqrt_rn(b[k]), r.epsilon));
        mirt__cu_load_left<W>((r.first ? u.weight[0] : u.slot[0]) + i, there, a);
        mirt__cu_decayed<W>(u, r, i, there, b);
        for (int k = 0; k < W; k++) {
            b[k] = __fmul_rn(r.new_1, __fsub_rn(b[k], a[k]));
            a[k] = __fsub_rn(a[k], g[k]);
            g[k] = __fadd_rn(b[k], __fmul_rn(r.momentum, g[k]));
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
    }
};
struct mirt__cu_ftrl {
    template <int W>
    static inline __device__ void step(const mirt__cu_updated &u, const mirt__cu_rates &r, int64_t i, int64_t there,
                                       float *g) {
        float a[W], b[W], weight[W];
        if (r.rate == 0) {
            for (int k = 0; k < W; k++) g[k] = 0;
            return;
        }
        mirt__cu_load_left<W>(u.slot[0] + i, there, a);
        mirt__cu_load_left<W>(u.slot[1] + i, there, b);
        mirt__cu_decayed<W>(u, r, i, there, weight);
        for (int k = 0; k < W; k++) {
            const float before = __fsqrt_rn(a[k]);
            a[k] = __fadd_rn(a[k], __fmul_rn(g[k], g[k]));
            const float root = __fsqrt_rn(a[k]), rise = __fmul_rn(__fsub_rn(root, before), r.momentum);
            b[k] = __fadd_rn(b[k], __fadd_rn(g[k], __fmul_rn(__fsub_rn(r.new_2, rise), weight[k])));
            float clipped = -r.new_1 > b[k] ? -r.new_1 : b[k];
            clipped = r.new_1 < clipped ? r.new_1 : clipped;
            g[k] = __fsub_rn(weight[k],
                             __fdiv_rn(__fmul_rn(__fsub_rn(clipped, b[k]), r.rate), __fadd_rn(root, r.epsilon)));
        }
        mirt__cu_store_left<W>(u.slot[0] + i, there, a);
        mirt__cu_store_left<W>(u.slot[1] + i, there, b);
    }
};

template <class RULE, int W, int MOST>
static __global__ void __launch_bounds__(256)
    mirt__cu_update_kernel(const mirt__cu_parts parts, const mirt__cu_updated u, const mirt__cu_rates *rates) {
    const mirt__cu_rates r = *rates;
    MIRT__CU_PIECES(at, there, u.end - u.begin, W) {
        const int64_t i = u.begin + at;
        float g[W], weight[W];
        mirt__cu_parts_sum<W, MOST>(parts, i, there, g);
        if (r.shaped) {
            for (int k = 0; k < W; k++) {
                g[k] = __fmul_rn(g[k], r.scale);
                if (r.clip == 0) continue;
                g[k] = -r.clip > g[k] ? -r.clip : g[k]; /* what is no number stays none */
                g[k] = r.clip < g[k] ? r.clip : g[k];
            }
        }
        RULE::template step<W>(u, r, i, there, g);
        mirt__cu_decayed<W>(u, r, i, there, weight);
        for (int k = 0; k < W; k++) weight[k] = __fsub_rn(weight[k], g[k]);
        if (r.average) {
            float average[W];
            mirt__cu_load_left<W>(r.average + i, there, average);
            for (int k = 0; k < W; k++)
                average[k] = __fadd_rn(__fmul_rn(r.keep, average[k]), __fmul_rn(r.fresh, weight[k]));
            mirt__cu_store_left<W>(r.average + i, there, average);
            for (int k = 0; k < W && r.overwrite; k++) weight[k] = average[k];
        }
        for (int c = 0; c < u.copies; c++) mirt__cu_store_left<W>(u.weight[c] + i, there, weight);
    }
}

template <class RULE> static void mirt__cu_update_by(const mirt__update *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_parts parts;
    mirt__cu_updated u;
    mirt__cu_rates r;
    const int64_t count = args->end - args->begin;
    bool wide = args->begin % 4 == 0 && mirt__cu_aligned(args->average, 16);
    if (count <= 0) return;
    memset(&r, 0, sizeof r);
    memset(&u, 0, sizeof u);
    mirt__cu_parts_take(&parts, args->parts, args->part, args->tree);
    u.begin = args->begin;
    u.end = args->end;
    for (int c = 0; c < args->copies; c++) { /* the same memory may be named for several devices */
        bool named = false;
        for (int k = 0; k < u.copies; k++) named = named || u.weight[k] == args->weight[c];
        if (!named) u.weight[u.copies++] = args->weight[c];
    }
    for (int i = 0; i < 3; i++) {
        u.slot[i] = args->slot[i];
        wide = wide && mirt__cu_aligned(u.slot[i], 16);
    }
    for (int i = 0; i < parts.count; i++) wide = wide && mirt__cu_aligned(parts.part[i], 16);
    for (int i = 0; i < u.copies; i++) wide = wide && mirt__cu_aligned(u.weight[i], 16);
    r.average = args->average;
    r.rate = args->learning_rate;
    r.new_1 = args->new_1;
    r.new_2 = args->new_2;
    r.epsilon = args->epsilon;
    r.momentum = args->momentum;
    r.scale = args->scale;
    r.clip = args->clip;
    r.decay = args->decay;
    r.keep = args->keep;
    r.fresh = args->fresh;
    r.nesterov = args->nesterov;
    r.first = args->first;
    r.shaped = args->shaped;
    r.from_zero = args->from_zero;
    r.overwrite = args->overwrite;
    const mirt__cu_rates *rates = static_cast<const mirt__cu_rates *>(mirt__cu_number(cu, &r, sizeof r));
    const unsigned blocks = mirt__cu_blocks(mirt__cu_ceil(count, wide ? 4 : 1), 256);
    const auto update = !wide              ? mirt__cu_update_kernel<RULE, 1, MIRT__MAX_PARTS>
                        : parts.count <= 2 ? mirt__cu_update_kernel<RULE, 4, 2>
                                           : mirt__cu_update_kernel<RULE, 4, MIRT__MAX_PARTS>;
    MIRT_LAUNCH(cu, update, blocks, 256, 0, parts, u, rates);
}

#define MIRT__CU_UPDATE(kind, name, kernel) case kind: mirt__cu_update_by<mirt__cu_##kernel>(args, where); break;
static void mirt__cu_update(const mirt__update *args, const mirt__where *where) {
    switch (args->kind) {
    MIRT_OPTIMIZER_LIST(MIRT__CU_UPDATE)
    case MIRT__OPTIMIZER_COUNT: break;
    }
}
#undef MIRT__CU_UPDATE

/* >>squares and variables */

/* Eight neighboring threads a piece, which add up every eighth number; squares of float32 are exact in double. */
static __global__ void __launch_bounds__(128)
    mirt__cu_squares_kernel(const float *block, const mirt__square_piece *piece, int pieces, double *squares) {
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = (int)(thread % 8);
    const int64_t number = thread / 8;
    double sum = 0;
    if (number < pieces) {
        const float *g = block + piece[number].begin;
        const int64_t count = piece[number].count, whole = count / 8 * 8;
        for (int64_t i = lane; i < whole; i += 8) sum += (double)g[i] * (double)g[i];
        for (int64_t i = whole; i < count && lane == 0; i++) sum += (double)g[i] * (double)g[i];
    }
    for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0 && number < pieces) squares[number] = sum;
}

static void mirt__cu_squares_now(mirt__cu *cu, const mirt__real *block, const mirt__square_piece *piece, int pieces,
                                 double *squares) {
    const mirt__square_piece *there = reinterpret_cast<const mirt__square_piece *>(cu->sums);
    double *to = reinterpret_cast<double *>(cu->sums + MIRT__MOST_SQUARES * sizeof *piece);
    mirt__cu_upload(cu, cu->sums, piece, (size_t)pieces * sizeof *piece, false);
    MIRT_LAUNCH(cu, mirt__cu_squares_kernel, (unsigned)mirt__cu_ceil(pieces, 16), 128, 0, block, there, pieces, to);
    mirt__cu_download(cu, squares, to, (size_t)pieces * sizeof *squares);
}

static void mirt__cu_squares(mirt__handle *cu, const mirt__real *block, const mirt__square_piece *piece, int pieces,
                             double *squares) {
    if (pieces < 1 || !mirt__cu_outside(cu)) return;
    mirt__cu_squares_now(cu, block, piece, pieces, squares);
    mirt__cu_inside(cu);
}

/* As mirt__aggregate_variable; a row of blocks a variable. */
static __global__ void __launch_bounds__(256) mirt__cu_aggregate_kernel(const mirt__aggregation_job a) {
    const mirt__aggregated v = a.value[blockIdx.y];
    const int64_t step = (int64_t)gridDim.x * blockDim.x, share = a.rows / a.replicas, more = a.rows % a.replicas;
    const float *from = a.from + v.from;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < v.count; i += step) {
        const double first = (double)from[i];
        double sum = 0, total = (double)(share + (0 < more));
        for (int r = 1; r < a.active && v.kind == MIRT_AGGREGATE_MEAN; r++) {
            const double rows = (double)(share + (r < more));
            total += rows;
            sum += rows * ((double)from[r * a.stride + i] - first);
        }
        if (v.kind == MIRT_AGGREGATE_MEAN) sum /= total;
        for (int r = 1; r < a.active && v.kind == MIRT_AGGREGATE_SUM; r++) sum += (double)from[r * a.stride + i];
        const float now = (float)(first + sum);
        float *to = a.to + v.to + i;
        *to = v.kept > 0 ? __fadd_rn(__fmul_rn(v.kept, *to), __fmul_rn(v.taken, now)) : now;
    }
}

static void mirt__cu_aggregate(mirt__handle *cu, const mirt__aggregation_job *args) {
    enum { MOST = 32768 }; /* rows of blocks */
    mirt__cu_enter(cu);
    if (args->active < 1) return;
    for (int at = 0; at < args->values; at += MOST) {
        const int values = args->values - at < (int)MOST ? args->values - at : (int)MOST;
        int64_t most = 0;
        for (int i = at; i < at + values; i++) most = args->value[i].count > most ? args->value[i].count : most;
        mirt__aggregation_job own = *args;
        own.value = static_cast<const mirt__aggregated *>(
            mirt__cu_constant_copy(cu, args->value + at, (size_t)values * sizeof *args->value));
        MIRT_LAUNCH(cu, mirt__cu_aggregate_kernel, dim3(mirt__cu_blocks(most, 256 * 8), (unsigned)values), 256, 0, own);
    }
}

/* >>loading */

template <class RULE> static bool mirt__cu_load_update(mirt__cu *cu) {
    return mirt__cu_load(cu, mirt__cu_update_kernel<RULE, 1, MIRT__MAX_PARTS>) &&
           mirt__cu_load(cu, mirt__cu_update_kernel<RULE, 4, 2>) &&
           mirt__cu_load(cu, mirt__cu_update_kernel<RULE, 4, MIRT__MAX_PARTS>);
}

/* The kernels that first run beside exchanges. */
#define MIRT__CU_LOAD_UPDATE(kind, name, kernel) && mirt__cu_load_update<mirt__cu_##kernel>(cu)
static bool mirt__cu_load_late(mirt__cu *cu) {
    return mirt__cu_load(cu, mirt__cu_sum_kernel<1, MIRT__MAX_PARTS>) && mirt__cu_load(cu, mirt__cu_sum_kernel<4, 2>) &&
           mirt__cu_load(cu, mirt__cu_sum_kernel<4, 8>) && mirt__cu_load(cu, mirt__cu_sum_kernel<4, MIRT__MAX_PARTS>) &&
           mirt__cu_load(cu, mirt__cu_squares_kernel) && mirt__cu_blas_load(cu) &&
           mirt__cu_load(cu, mirt__cu_aggregate_kernel) MIRT_OPTIMIZER_LIST(MIRT__CU_LOAD_UPDATE);
}
#undef MIRT__CU_LOAD_UPDATE

/* >>section cuda/exchange.cu */

/* Several devices exchange gradients: by NCCL, or each in the others' memory. */

#include <sched.h>
#include <stdio.h>

#if defined(__has_include) && !defined(MIRRORTRAIN_NO_NCCL)
#if __has_include(<nccl.h>)
#include <nccl.h>
#define MIRT__CU_NCCL 1
#endif
#endif
#ifndef MIRT__CU_NCCL
#define MIRT__CU_NCCL 0
#endif

#define MIRT__CU_MEMBERS 32
#ifdef MIRT_SIM
#define MIRT__CU_INBOX \
    ((int64_t)1 << 13) /* numbers of other devices that one has at a time: in reality those of most buckets */
#define MIRT__CU_TRIAL ((int64_t)1 << 12)
#else
#define MIRT__CU_INBOX ((int64_t)8 << 20)
#define MIRT__CU_TRIAL ((int64_t)1 << 22)
#endif

/* The devices of this process, `rank` of a device counts them; with those of other processes they are ranks of NCCL,
   numbered in the order of processes. */
struct mirt__cu_group {
    const mirt__host *host;
    int count, there; /* members, and those that have not left */
    int first, all;   /* the first member's number among all ranks, and how many they are */
    int per_host;     /* as mirt__joining has it */
    mirt_collective collective;
    mirt__cu *member[MIRT__CU_MEMBERS];
    float *inbox[MIRT__CU_MEMBERS];
    cudaEvent_t ready[MIRT__CU_MEMBERS], done[MIRT__CU_MEMBERS]; /* what an exchange reads; the exchange */
    bool under_way[MIRT__CU_MEMBERS];
    int broken;    /* 1: a member is writing the reason; 2: the group can no longer be used */
    int broken_by;
    char why[300];
#if MIRT__CU_NCCL
    ncclComm_t comm[MIRT__CU_MEMBERS];
    bool joining; /* what fails is NCCL's, or of the way that it found */
    bool unheard; /* the library's messages failed, and it has said why */
#endif
};

static int mirt__cu_rank_of(const mirt__cu *cu) { return cu->group->first + cu->rank; }

/* >>failures */

/* The others shall not wait for this device. */
static void mirt__cu_group_break(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    int whole = 0;
    if (!__atomic_compare_exchange_n(&group->broken, &whole, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    group->broken_by = mirt__cu_rank_of(cu);
    snprintf(group->why, sizeof group->why, "%.299s", cu->error);
    __atomic_store_n(&group->broken, 2, __ATOMIC_RELEASE);
}

/* What is under way of a rank ends, be it joining: even memory could not be freed before. By its own thread, or when it
   has none any more; another device may be the thread's afterwards. */
static void mirt__cu_group_abort(mirt__cu_group *group, int rank) {
#if MIRT__CU_NCCL
    ncclComm_t comm = __atomic_exchange_n(&group->comm[rank], static_cast<ncclComm_t>(NULL), __ATOMIC_ACQ_REL);
    if (comm) (void)ncclCommAbort(comm);
#else
    (void)group, (void)rank;
#endif
}

/* After a failure of a device. */
static void mirt__cu_group_fail(mirt__cu *cu) {
#if MIRT__CU_NCCL
    if (!cu->group || !cu->group->comm[cu->rank]) return;
    mirt__cu_group_break(cu);
    mirt__cu_group_abort(cu->group, cu->rank);
    mirt__cu_enter(cu);
    cu->lost = true;
#else
    (void)cu;
#endif
}

static bool mirt__cu_group_well(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    if (!group || cu->lost) return !cu->lost;
#if MIRT__CU_NCCL
    ncclResult_t state = ncclSuccess;
    ncclComm_t comm = group->comm[cu->rank];
    if (!comm) return true;
    if (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess && state != ncclInProgress) {
        mirt__cu_fail(cu, MIRT_E_DEVICE, "NCCL failed on rank %d: %s (%s); resume from the last checkpoint",
                      mirt__cu_rank_of(cu), ncclGetErrorString(state), ncclGetLastError(comm));
        mirt__cu_group_break(cu);
    } else if (__atomic_load_n(&group->broken, __ATOMIC_ACQUIRE) == 2) {
        mirt__cu_fail(cu, MIRT_E_DEVICE, "rank %d, which it waits for, failed: %.250s", group->broken_by, group->why);
    } else {
        return true;
    }
    cu->lost = true;
    mirt__cu_group_abort(group, cu->rank);
    mirt__cu_enter(cu);
    return false;
#else
    return true;
#endif
}

/* Freeing waits for the work of all: what waits for others in NCCL ends first, and none is freed of where one of them
   has no end. */
static bool mirt__cu_frees(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    bool stuck = false;
    for (int d = 0; group && d < group->count; d++) {
        if (group->member[d] && group->member[d]->lost) mirt__cu_group_abort(group, d);
    }
    mirt__cu_enter(cu);
    for (int d = 0; group && d < group->count; d++)
        stuck = (group->member[d] && !mirt__cu_idle(group->member[d])) || stuck;
    stuck = !mirt__cu_idle(cu) || stuck;
    for (int d = 0; group && stuck && d < group->count; d++) {
        if (group->member[d]) group->member[d]->stuck = true;
    }
    return !stuck;
}

static void mirt__cu_group_leave(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    if (!group) return (void)mirt__cu_frees(cu);
    if (cu->status != MIRT_OK) mirt__cu_group_break(cu);
    for (int d = 0; d < group->count; d++) {
        /* all is done: destroying would wait for the others, which may be closed by this thread later; or else freeing
           may wait for theirs */
        if (d == cu->rank || __atomic_load_n(&group->broken, __ATOMIC_ACQUIRE)) mirt__cu_group_abort(group, d);
    }
    mirt__cu_enter(cu);
    if (group->inbox[cu->rank] && mirt__cu_frees(cu)) (void)cudaFree(group->inbox[cu->rank]);
    if (group->ready[cu->rank]) (void)cudaEventDestroy(group->ready[cu->rank]);
    if (group->done[cu->rank]) (void)cudaEventDestroy(group->done[cu->rank]);
    (void)mirt__cu_frees(cu);
    group->member[cu->rank] = NULL;
    cu->group = NULL;
    if (__atomic_sub_fetch(&group->there, 1, __ATOMIC_ACQ_REL) == 0) group->host->free(group);
}

/* >>NCCL */

#if MIRT__CU_NCCL
/* Exchanges run beside the work, after what was enqueued before. */
static bool mirt__cu_exchange_begin(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    return mirt__cu_try(cu, cudaEventRecord(group->ready[cu->rank], cu->stream), "marking an exchange") &&
           mirt__cu_try(cu, cudaStreamWaitEvent(cu->exchanges, group->ready[cu->rank], 0), "waiting for an exchange");
}
static void mirt__cu_exchange_end(mirt__cu *cu) {
    if (cu->status == MIRT_OK)
        cu->group->under_way[cu->rank] = mirt__cu_try(cu, cudaEventRecord(cu->group->done[cu->rank], cu->exchanges),
                                                      "marking an exchange");
}

static bool mirt__cu_nccl(mirt__cu *cu, ncclResult_t result, const char *what) {
    ncclComm_t comm = cu->group->comm[cu->rank];
    if (result == ncclSuccess || result == ncclInProgress) return true;
    mirt__cu_fail(cu, MIRT_E_DEVICE, "NCCL failed on rank %d, %s: %s (%s)", mirt__cu_rank_of(cu), what,
                  ncclGetErrorString(result), comm ? ncclGetLastError(comm) : "");
    cu->lost = true;
    mirt__cu_group_break(cu);
    return false;
}

/* Until what was asked of a communicator has been enqueued. NCCL does that in a thread of its own, unless
   NCCL_COMM_BLOCKING=1 lets calls block. */
static bool mirt__cu_nccl_settled(mirt__cu *cu, const char *what) {
    mirt__cu_patience wait = mirt__cu_begin(cu);
    for (;;) {
        ncclResult_t state = ncclSuccess;
        if (!mirt__cu_nccl(cu, ncclCommGetAsyncError(cu->group->comm[cu->rank], &state), what) ||
            !mirt__cu_nccl(cu, state, what))
            return false;
        if (state == ncclSuccess) return true;
        if (__atomic_load_n(&cu->group->broken, __ATOMIC_ACQUIRE) == 2) return mirt__cu_group_well(cu);
        const double passed = mirt__cu_passed(cu, &wait);
        if (cu->limit > 0 && passed > cu->limit) {
            mirt__cu_fail(cu, MIRT_E_TIMEOUT, "NCCL, rank %d of %d, %s: nothing came from the others in %.3g s",
                          mirt__cu_rank_of(cu), cu->group->all, what, cu->limit);
            cu->lost = true;
            mirt__cu_group_break(cu);
            return false;
        }
        if (passed > MIRT__CU_SHORT) mirt__cu_nap();
        else sched_yield();
    }
}

static bool mirt__cu_nccl_start(mirt__cu *cu) { return mirt__cu_nccl(cu, ncclGroupStart(), "beginning"); }
static bool mirt__cu_nccl_end(mirt__cu *cu, const char *what) {
    const bool ended = mirt__cu_nccl(cu, ncclGroupEnd(), what);
    return ended && cu->status == MIRT_OK && mirt__cu_nccl_settled(cu, what);
}

/* Ranks first, first + step, ..., which add up something, each a chunk of it, and then have all of it. */
typedef struct mirt__cu_circle {
    int first, step, count;
} mirt__cu_circle;

/* What they add up: parts in memory of ranks of the circle, and the additions that make one of them. */
typedef struct mirt__cu_sum {
    mirt__cu_circle circle;
    int place; /* of this rank in the circle */
    int parts;
    int holder[MIRT__MAX_PARTS]; /* a part's place, */
    const mirt__real *part[MIRT__MAX_PARTS]; /* and its address, if this rank has it */
    mirt__addition add[MIRT__MAX_PARTS];
    float *sum;
} mirt__cu_sum;

/* Of `length` elements those that the rank at a place adds up. */
static int64_t mirt__cu_chunk(const mirt__cu_group *group, const mirt__cu_circle *circle, int64_t length, int place,
                              int64_t *first) {
    const int64_t lines = mirt__cu_ceil(length, 16);
    if (group->collective == MIRT_REDUCE_TO_ONE_DEVICE) {
        *first = place ? length : 0;
        return place ? 0 : length;
    }
    *first = lines * place / circle->count * 16;
    const int64_t end = lines * (place + 1) / circle->count * 16;
    return (end < length ? end : length) - *first;
}

/* Every part's chunk goes to the rank that adds it up; those of other ranks land in the inbox, one after the other. */
static void mirt__cu_tree_send(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    mirt__cu_group *group = cu->group;
    const mirt__cu_circle *c = &s->circle;
    ncclComm_t comm = group->comm[cu->rank];
    int64_t first, own = mirt__cu_chunk(group, c, length, s->place, &first);
    float *inbox = group->inbox[cu->rank];
    for (int p = 0; p < s->parts && cu->status == MIRT_OK; p++) {
        const int from = s->holder[p];
        for (int to = 0; from == s->place && to < c->count; to++) {
            const int64_t count = mirt__cu_chunk(group, c, length, to, &first);
            if (to != s->place && count > 0)
                mirt__cu_nccl(cu,
                              ncclSend(s->part[p] + at + first, (size_t)count, ncclFloat, c->first + to * c->step, comm,
                                       cu->exchanges),
                              "sending");
        }
        if (from == s->place || own <= 0) continue;
        mirt__cu_nccl(
            cu, ncclRecv(inbox, (size_t)own, ncclFloat, c->first + from * c->step, comm, cu->exchanges), "receiving");
        inbox += (own + 15) / 16 * 16;
    }
}

static void mirt__cu_tree_add(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    mirt__cu_group *group = cu->group;
    mirt__cu_parts parts;
    int64_t first, own = mirt__cu_chunk(group, &s->circle, length, s->place, &first);
    float *inbox = group->inbox[cu->rank];
    mirt__cu_parts_take(&parts, s->parts, s->part, s->add);
    for (int p = 0; p < s->parts; p++) {
        if (s->holder[p] == s->place) {
            parts.part[p] += at + first;
        } else {
            parts.part[p] = inbox;
            inbox += (own + 15) / 16 * 16;
        }
    }
    mirt__cu_sum_parts(cu, cu->exchanges, parts, s->sum + at + first, own);
}

/* Everybody's bytes [begin[i], begin[i + 1]) at base, i: a place in the circle. */
static void mirt__cu_spread(mirt__cu *cu, const mirt__cu_circle *c, int place, char *base, const size_t *begin) {
    ncclComm_t comm = cu->group->comm[cu->rank];
    const size_t own = begin[place + 1] - begin[place];
    for (int i = 0; i < c->count && cu->status == MIRT_OK; i++) {
        const size_t theirs = begin[i + 1] - begin[i];
        const int rank = c->first + i * c->step;
        if (i == place) continue;
        if (own) mirt__cu_nccl(cu, ncclSend(base + begin[place], own, ncclChar, rank, comm, cu->exchanges), "sending");
        if (theirs)
            mirt__cu_nccl(cu, ncclRecv(base + begin[i], theirs, ncclChar, rank, comm, cu->exchanges), "receiving");
    }
}
static void mirt__cu_tree_spread(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    size_t begin[MIRT__CU_MEMBERS + 1];
    int64_t first;
    for (int i = 0; i < s->circle.count; i++) {
        mirt__cu_chunk(cu->group, &s->circle, length, i, &first);
        begin[i] = (size_t)first * sizeof(float);
    }
    begin[s->circle.count] = (size_t)length * sizeof(float);
    mirt__cu_spread(cu, &s->circle, s->place, reinterpret_cast<char *>(s->sum + at), begin);
}

static mirt__cu_circle mirt__cu_everyone(const mirt__cu_group *group) {
    const mirt__cu_circle all = {0, 1, group->all};
    return all;
}

/* Of all ranks. */
static void mirt__cu_sum_of(const mirt__cu *cu, const mirt__reduction *args, mirt__cu_sum *s) {
    s->circle = mirt__cu_everyone(cu->group);
    s->place = mirt__cu_rank_of(cu);
    s->parts = args->parts;
    memcpy(s->holder, args->part_device, sizeof s->holder);
    memcpy(s->part, args->part, sizeof s->part);
    memcpy(s->add, args->add, sizeof s->add);
    s->sum = args->sum[args->device];
}

/* The same in two sums, first within hosts, and then of what ranks with the same place on their hosts have got: less
   goes between hosts. The additions are the same, and so are the bits. False: some host's parts do not become one
   before they are added to another's. */
static bool mirt__cu_sums_of_hosts(const mirt__cu *cu, const mirt__cu_sum *all, mirt__cu_sum *within,
                                   mirt__cu_sum *between) {
    const int size = cu->group->per_host;
    int left[MIRT__CU_MEMBERS], host_of[MIRT__MAX_PARTS], index[MIRT__MAX_PARTS], added = 0;
    bool met[MIRT__CU_MEMBERS]; /* its parts have been added to another host's, or those to its */
    if (size < 2 || size == cu->group->all) return false;
    const int hosts = cu->group->all / size, host = all->place / size;
    memset(left, 0, sizeof left);
    memset(met, 0, sizeof met);
    const mirt__cu_circle inner = {host * size, 1, size}, outer = {all->place % size, size, hosts};
    within->circle = inner;
    within->place = all->place % size;
    between->circle = outer;
    between->place = host;
    within->parts = between->parts = 0;
    within->sum = between->sum = all->sum;
    for (int p = 0; p < all->parts; p++) {
        host_of[p] = all->holder[p] / size;
        left[host_of[p]]++;
        if (host_of[p] != host) continue;
        index[p] = within->parts;
        within->holder[within->parts] = all->holder[p] % size;
        within->part[within->parts++] = all->part[p];
    }
    for (int i = 0; i + 1 < all->parts; i++) {
        const int into = all->add[i].into, from = all->add[i].from;
        if (host_of[into] != host_of[from]) {
            met[host_of[into]] = met[host_of[from]] = true;
            continue;
        }
        if (met[host_of[into]]) return false;
        left[host_of[into]]--;
        if (host_of[into] != host) continue;
        within->add[added].into = index[into];
        within->add[added++].from = index[from];
    }
    for (int h = 0; h < hosts; h++) {
        if (left[h] > 1) return false;
        if (left[h]) {
            left[h] = between->parts;
            between->holder[between->parts] = h;
            between->part[between->parts++] = all->sum;
        }
    }
    added = 0;
    for (int i = 0; i + 1 < all->parts; i++) {
        const int into = host_of[all->add[i].into], from = host_of[all->add[i].from];
        if (into == from) continue;
        between->add[added].into = left[into];
        between->add[added++].from = left[from];
    }
    return true;
}

/* Elements that the inbox has room for at a time; the same on all ranks. */
static int64_t mirt__cu_tree_length(const mirt__cu_group *group, int ranks, int parts) {
    const int64_t chunk = MIRT__CU_INBOX / parts / 16 * 16 - 16;
    return group->collective == MIRT_REDUCE_TO_ONE_DEVICE ? chunk : chunk * ranks;
}

/* Each rank of the circle gets the sum of its chunk, */
static bool mirt__cu_tree_gather(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    if (!mirt__cu_nccl_start(cu)) return false;
    mirt__cu_tree_send(cu, s, at, length);
    if (!mirt__cu_nccl_end(cu, "sending parts")) return false;
    mirt__cu_tree_add(cu, s, at, length);
    return true;
}

/* and then all chunks. */
static bool mirt__cu_tree_share(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    if (!mirt__cu_nccl_start(cu)) return false;
    mirt__cu_tree_spread(cu, s, at, length);
    return mirt__cu_nccl_end(cu, "spreading sums");
}

static void mirt__cu_tree(mirt__cu *cu, const mirt__reduction *args) {
    mirt__cu_sum all, within, between;
    mirt__cu_sum_of(cu, args, &all);
    const bool hosts = mirt__cu_sums_of_hosts(cu, &all, &within, &between);
    const mirt__cu_sum *first = hosts ? &within : &all;
    const int64_t most = mirt__cu_tree_length(cu->group, first->circle.count, args->parts);
    for (int64_t at = args->begin; at < args->end && cu->status == MIRT_OK; at += most) {
        const int64_t length = args->end - at < most ? args->end - at : most;
        int64_t begin, own = mirt__cu_chunk(cu->group, &first->circle, length, first->place, &begin);
        if (!mirt__cu_tree_gather(cu, first, at, length)) return;
        if (hosts && (!mirt__cu_tree_gather(cu, &between, at + begin, own) ||
                      !mirt__cu_tree_share(cu, &between, at + begin, own)))
            return;
        if (!mirt__cu_tree_share(cu, first, at, length)) return;
    }
}

/* The device's own sum, of the later parts to the earlier ones. */
static bool mirt__cu_own_sum(mirt__cu *cu, const mirt__reduction *args) {
    mirt__cu_parts own;
    const mirt__real *part[MIRT__MAX_PARTS];
    mirt__addition add[MIRT__MAX_PARTS];
    float *sum = args->sum[args->device] + args->begin;
    int parts = 0;
    for (int p = 0; p < args->parts; p++) {
        if (args->part_device[p] == mirt__cu_rank_of(cu)) part[parts++] = args->part[p] + args->begin;
    }
    for (int i = 0; i + 1 < parts; i++) {
        add[i].into = parts - 2 - i;
        add[i].from = parts - 1 - i;
    }
    mirt__cu_parts_take(&own, parts, part, add);
    if (parts > 1 || (parts && part[0] != sum))
        mirt__cu_sum_parts(cu, cu->exchanges, own, sum, args->end - args->begin);
    return parts || args->end <= args->begin || /* it had no rows */
           mirt__cu_try(cu, cudaMemsetAsync(sum, 0, (size_t)(args->end - args->begin) * sizeof *sum, cu->exchanges),
                        "clearing gradients");
}

/* NCCL's own order of additions; the first bucket is small, so that the rest goes beside something. */
static void mirt__cu_buckets(mirt__cu *cu, const mirt__reduction *args) {
    ncclComm_t comm = cu->group->comm[cu->rank];
    float *sum = args->sum[args->device];
    int64_t bucket = (int64_t)1 << 18;
    if (!mirt__cu_own_sum(cu, args)) return;
    for (int64_t at = args->begin; at < args->end && cu->status == MIRT_OK; at += bucket, bucket = (int64_t)25 << 18) {
        const int64_t count = args->end - at < bucket ? args->end - at : bucket;
        if (!mirt__cu_nccl_start(cu)) return;
        mirt__cu_nccl(cu,
                      ncclAllReduce(sum + at, sum + at, (size_t)count, ncclFloat, ncclSum, comm, cu->exchanges),
                      "adding");
        mirt__cu_nccl_end(cu, "adding");
    }
}
#endif

/* Whether something that all devices do is to be done. If not since this one failed, the others shall not wait for
   it. */
static bool mirt__cu_meets(mirt__cu *cu) {
    const bool now = mirt__cu_outside(cu);
    if (cu->group && cu->status != MIRT_OK) mirt__cu_group_break(cu);
    return now;
}

#if MIRT__CU_NCCL
static void mirt__cu_exchange(mirt__cu *cu, const mirt__reduction *args) {
    if (!mirt__cu_meets(cu)) return;
    if (mirt__cu_group_well(cu) && mirt__cu_exchange_begin(cu)) {
        if (cu->group->collective == MIRT_NCCL) mirt__cu_buckets(cu, args);
        else mirt__cu_tree(cu, args);
        mirt__cu_exchange_end(cu);
    }
    mirt__cu_inside(cu);
}
#endif

/* What is enqueued next follows the exchanges. */
static void mirt__cu_exchange_join(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    if (!group->under_way[cu->rank] || cu->status != MIRT_OK) return;
    group->under_way[cu->rank] = false;
    mirt__cu_try(cu, cudaStreamWaitEvent(cu->stream, group->done[cu->rank], 0), "waiting for an exchange");
}

static void mirt__cu_exchanged(mirt__handle *cu) {
    if (!cu->group || !mirt__cu_meets(cu)) return;
    mirt__cu_exchange_join(cu);
    mirt__cu_inside(cu);
}

static void mirt__cu_gather_now(mirt__cu *cu, char *const *base, const size_t *begin, int devices) {
    const int device = cu->rank;
#if MIRT__CU_NCCL
    if (cu->group && cu->group->comm[cu->rank]) {
        if (!mirt__cu_group_well(cu) || !mirt__cu_exchange_begin(cu) || !mirt__cu_nccl_start(cu)) return;
        const mirt__cu_circle all = mirt__cu_everyone(cu->group);
        mirt__cu_spread(cu, &all, mirt__cu_rank_of(cu), base[device], begin);
        mirt__cu_nccl_end(cu, "gathering");
        mirt__cu_exchange_end(cu);
        mirt__cu_exchange_join(cu);
        return;
    }
#endif
    for (int d = 0; d < devices; d++) {
        const size_t bytes = begin[device + 1] - begin[device];
        if (d == device || base[d] == base[device] || !bytes) continue;
        mirt__cu_try(cu,
                     cudaMemcpyAsync(base[d] + begin[device], base[device] + begin[device], bytes, cudaMemcpyDefault,
                                     cu->stream),
                     "gathering");
    }
}

static void mirt__cu_gather(mirt__handle *cu, char *const *base, const size_t *begin, int devices) {
    if (!mirt__cu_meets(cu)) return;
    mirt__cu_gather_now(cu, base, begin, devices);
    mirt__cu_inside(cu);
}

/* >>section cuda/join.cu */

/* Devices are joined: by NCCL, over all processes, or each in the others' memory. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

/* What the trial adds up: whole numbers, whose sums are exact in any order. */
static __global__ void __launch_bounds__(256) mirt__cu_trial_kernel(float *to, int64_t count, float factor) {
    MIRT__CU_PIECES(i, left, count, 1) to[i] = (float)(i % 1021) * factor;
}

/* One thread does the work of all devices for once. */
typedef struct mirt__cu_trial {
    mirt__cu_group *group;
    mirt__reduction exchange[MIRT__CU_MEMBERS];
    float *value[MIRT__CU_MEMBERS], *sum[MIRT__CU_MEMBERS];
    bool direct;
} mirt__cu_trial;

static bool mirt__cu_all_well(const mirt__cu_group *group, mirt__cu **culprit) {
    for (int d = 0; d < group->count; d++) {
        *culprit = group->member[d];
        if ((*culprit)->status != MIRT_OK) return false;
    }
    return true;
}

static bool mirt__cu_all_settled(const mirt__cu_group *group) {
    for (int d = 0; d < group->count; d++) {
        mirt__cu_enter(group->member[d]);
        if (!mirt__cu_settled(group->member[d], group->member[d]->exchanges, NULL)) return false;
    }
    return true;
}

#if MIRT__CU_NCCL
static bool mirt__cu_all_end(const mirt__cu_group *group, const char *what) {
    mirt__cu *culprit;
    const ncclResult_t ended = ncclGroupEnd();
    bool good = mirt__cu_all_well(group, &culprit) && mirt__cu_nccl(group->member[0], ended, what);
    for (int d = 0; d < group->count && good; d++) good = mirt__cu_nccl_settled(group->member[d], what);
    return good;
}

/* The first makes all connections that will be used: states are sent as chunks are. */
static bool mirt__cu_trial_piece(mirt__cu_trial *t, int64_t at, int64_t length, bool first) {
    mirt__cu_group *group = t->group;
    const bool whole = group->collective == MIRT_NCCL;
    for (int stage = 0; stage < (whole && !first ? 1 : 3); stage++) {
        if (whole && stage == 1) continue;
        if (stage != 1 && !mirt__cu_nccl_start(group->member[0])) return false;
        for (int d = 0; d < group->count; d++) {
            mirt__cu *cu = group->member[d];
            mirt__cu_sum sum;
            mirt__cu_sum_of(cu, &t->exchange[d], &sum);
            mirt__cu_enter(cu);
            if (whole && stage == 0) {
                mirt__cu_nccl(cu,
                              ncclAllReduce(t->value[d] + at, t->sum[d] + at, (size_t)length, ncclFloat, ncclSum,
                                            group->comm[d], cu->exchanges),
                              "adding");
            } else if (stage == 0) {
                mirt__cu_tree_send(cu, &sum, at, length);
            } else if (stage == 1) {
                mirt__cu_tree_add(cu, &sum, at, length);
            } else {
                mirt__cu_tree_spread(cu, &sum, at, length);
            }
        }
        if (stage != 1 && !mirt__cu_all_end(group, "trying it")) return false;
    }
    return true;
}

static bool mirt__cu_trial_nccl(mirt__cu_trial *t, bool first) {
    const int64_t most = mirt__cu_tree_length(t->group, t->group->all, t->group->all);
    for (int64_t at = 0; at < MIRT__CU_TRIAL; at += most) {
        if (!mirt__cu_trial_piece(t, at, MIRT__CU_TRIAL - at < most ? MIRT__CU_TRIAL - at : most, first)) return false;
    }
    return true;
}
#endif

static bool mirt__cu_trial_run(mirt__cu_trial *t, bool first) {
    (void)first;
#if MIRT__CU_NCCL
    if (!t->direct && !mirt__cu_trial_nccl(t, first)) return false;
#endif
    for (int d = 0; d < t->group->count && t->direct; d++) { /* each adds up what all have in their memory */
        mirt__cu *cu = t->group->member[d];
        mirt__cu_parts parts;
        mirt__cu_enter(cu);
        mirt__cu_parts_take(&parts, t->exchange[d].parts, t->exchange[d].part, t->exchange[d].add);
        mirt__cu_sum_parts(cu, cu->exchanges, parts, t->sum[d], MIRT__CU_TRIAL);
    }
    return mirt__cu_all_settled(t->group);
}

static bool mirt__cu_trial_check(mirt__cu_trial *t, int device) {
    mirt__cu *cu = t->group->member[device];
    enum { SAMPLE = 4096 };
    float *sample = static_cast<float *>(cu->host->calloc(SAMPLE, sizeof *sample));
    if (!sample) return mirt__cu_fail(cu, MIRT_E_NOMEM, "no memory for a trial");
    const int64_t all = (int64_t)t->group->all * (t->group->all + 1) / 2, from = MIRT__CU_TRIAL - SAMPLE;
    mirt__cu_download(cu, sample, t->sum[device] + from, SAMPLE * sizeof *sample);
    bool good = mirt__cu_settled(cu, cu->stream, NULL);
    mirt__cu_deliver_all(cu);
    for (int i = 0; good && i < SAMPLE; i++) {
        if (sample[i] == (float)((from + i) % 1021 * all)) continue;
        good = mirt__cu_fail(cu, MIRT_E_DEVICE, "sums over GPUs come out wrong%s",
                             t->direct ? ": reaching another GPU's memory does not work on this machine (the IOMMU may "
                                         "be in the way); build with NCCL"
                                       : "");
    }
    cu->host->free(sample);
    return good;
}

/* Sums a few megabytes, to see that it works, and how fast. Seconds, or below 0. */
static double mirt__cu_try_out(mirt__cu_trial *t) {
    mirt__cu_group *group = t->group;
    double best = -1;
    bool good = true;
    for (int d = 0; d < group->count && good; d++) {
        mirt__cu *cu = group->member[d];
        good = mirt__cu_enter(cu) &&
               mirt__cu_try(cu, cudaMalloc((void **)&t->value[d], 2 * MIRT__CU_TRIAL * sizeof(float)),
                            "taking memory for a trial");
        if (!good) break;
        t->sum[d] = t->value[d] + MIRT__CU_TRIAL;
        float *value = t->value[d];
        const float factor = (float)(mirt__cu_rank_of(cu) + 1);
        MIRT_LAUNCH_ON(cu, cu->exchanges, mirt__cu_trial_kernel, mirt__cu_blocks(MIRT__CU_TRIAL, 256), 256, 0, value,
                       MIRT__CU_TRIAL, factor);
    }
    good = good && mirt__cu_all_settled(group);
    for (int d = 0; d < group->count && good; d++) {
        mirt__reduction *x = &t->exchange[d];
        x->end = MIRT__CU_TRIAL;
        x->parts = group->all;
        x->device = d;
        x->sum[d] = t->sum[d];
        for (int p = 0; p < group->all; p++) {
            const int member = p - group->first;
            x->part_device[p] = p;
            x->part[p] = member >= 0 && member < group->count ? t->value[member] : NULL;
            x->add[p].into = 0;
            x->add[p].from = p + 1;
        }
    }
    for (int turn = 0; turn < 4 && good; turn++) {
        const double begin = group->host->now();
        good = mirt__cu_trial_run(t, turn == 0);
        const double took = group->host->now() - begin;
        if (turn > 0 && (best < 0 || took < best)) best = took;
    }
    for (int d = 0; d < group->count && good; d++) good = mirt__cu_trial_check(t, d);
    for (int d = 0; d < group->count && !good; d++) mirt__cu_group_abort(group, d);
    for (int d = 0; d < group->count; d++) {
        mirt__cu_enter(group->member[d]);
        if (t->value[d] && mirt__cu_frees(group->member[d])) (void)cudaFree(t->value[d]);
    }
    return good ? best : -1;
}

/* Each device shall reach the others' memory. */
static bool mirt__cu_reach(const mirt__cu_group *group, const char *why) {
    for (int a = 0; a < group->count; a++) {
        mirt__cu *cu = group->member[a];
        mirt__cu_enter(cu);
        for (int b = 0; b < group->count; b++) {
            const int other = group->member[b]->index;
            int can = 0;
            if (other == cu->index) continue;
            if (!mirt__cu_try(cu, cudaDeviceCanAccessPeer(&can, cu->index, other), "asking for another GPU's memory"))
                return false;
            if (!can)
                return mirt__cu_fail(cu, MIRT_E_DEVICE, "it cannot reach the memory of gpu:%d, and %s: %s", other, why,
                                     MIRT__CU_NCCL ? "use one of the two, or mirrored weights on different GPUs"
                                                   : "build with NCCL (nvcc ... -lnccl), or use one GPU");
            const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
            if (error == cudaErrorPeerAccessAlreadyEnabled) (void)cudaGetLastError();
            else if (!mirt__cu_try(cu, error, "reaching another GPU's memory")) return false;
        }
    }
    return true;
}

#if MIRT__CU_NCCL
/* What to try when devices do not meet. Containers have little of what NCCL shares among its threads where GPUs do not
   reach each other. */
static void mirt__cu_advise(mirt__cu *cu) {
    struct statvfs s;
    const size_t used = strlen(cu->error), left = sizeof cu->error - used;
    const mirt__cu_group *group = cu->group;
    const bool one_host = group->all == group->count || group->per_host == group->all;
    const double wanted = 40.0 * (group->per_host ? group->per_host : group->count),
                 free_mb = statvfs("/dev/shm", &s) == 0 ? (double)s.f_bavail * (double)s.f_frsize / 1e6 : wanted;
    const int said = snprintf(cu->error + used, left, "; NCCL_DEBUG=INFO tells more; try %sNCCL_P2P_DISABLE=1",
                              one_host ? "NCCL_SOCKET_IFNAME=lo, or " : "");
    if (said < 0 || (size_t)said >= left || free_mb >= wanted) return;
    snprintf(cu->error + used + said, left - (size_t)said,
             "; /dev/shm has %.0f MB free, which may be too little (docker run --shm-size=1g)", free_mb);
}

/* Communicators that do not block can be aborted at any time. Of the versions of NCCL, 2.26 was seen to hang with
   such. */
static bool mirt__cu_join_nccl(mirt__cu_group *group, const mirt__joining *join, int *version) {
    mirt__cu *first = group->member[0];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    if (!mirt__cu_nccl(first, ncclGetVersion(version), "asking its version")) return false;
    if (*version / 10000 != NCCL_MAJOR || *version < NCCL_VERSION_CODE)
        return mirt__cu_fail(
            first, MIRT_E_DEVICE,
            "the program was built with nccl.h of NCCL %d.%d.%d, and runs with the library of %d.%d.%d: "
            "build and run with the same",
            NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, *version / 10000, *version / 100 % 100, *version % 100);
    config.blocking = *version / 100 == 226;
    if (group->collective == MIRT_NCCL) { /* the same sums in each run */
        setenv("NCCL_ALGO", "Ring", 0);
        setenv("NCCL_PROTO", "Simple", 0);
        setenv("NCCL_NVLS_ENABLE", "0", 0);
    }
    group->joining = true;
    if (group->first == 0 && !mirt__cu_nccl(first, ncclGetUniqueId(&id), "beginning")) return false;
    group->unheard = join->hear_first && !join->hear_first(join->user, &id, sizeof id);
    if (group->unheard) return false;
    if (!mirt__cu_nccl_start(first)) return false;
    bool good = true;
    for (int d = 0; d < group->count && good; d++) {
        good = mirt__cu_enter(group->member[d]) &&
               mirt__cu_nccl(group->member[d],
                             ncclCommInitRankConfig(&group->comm[d], group->all, id, group->first + d, &config),
                             "joining");
    }
    good = mirt__cu_all_end(group, "joining");
    for (int d = 0; d < group->count && good; d++) {
        mirt__cu *cu = group->member[d];
        good = mirt__cu_enter(cu) && mirt__cu_take_all(cu) && mirt__cu_load_late(cu) &&
               mirt__cu_try(cu, cudaMalloc((void **)&group->inbox[d], MIRT__CU_INBOX * sizeof(float)),
                            "taking memory for exchanges");
    }
    return good;
}
#endif

static bool mirt__cu_join_group(mirt__cu_group *group, mirt__joining *join) {
    mirt__cu_trial trial;
    mirt__cu *culprit;
    bool twice = false;
    memset(&trial, 0, sizeof trial);
    trial.group = group;
    for (int a = 0; a < group->count; a++) {
        for (int b = 0; b < a; b++) twice = twice || group->member[a]->index == group->member[b]->index;
    }
#if MIRT__CU_NCCL
    const char *why = twice          ? "a GPU is named twice"
                      : join->shares ? "the weights are in one place"
                                     : "MIRT_CUDA_NCCL is 0";
    trial.direct = twice || join->shares || mirt__cu_switched_off("MIRT_CUDA_NCCL");
#else
    const char *why = "the program is built without NCCL";
    trial.direct = true;
#endif
    join->able.direct = trial.direct;
    if (trial.direct && (join->collective == MIRT_NCCL || group->all > group->count))
        return mirt__cu_fail(group->member[0], MIRT_E_INVALID, "NCCL cannot join these devices: %s", why);
    for (int d = 0; d < group->count; d++) {
        mirt__cu *cu = group->member[d];
        if (!mirt__cu_enter(cu) || !mirt__cu_event(cu, &group->ready[d]) || !mirt__cu_event(cu, &group->done[d]))
            return false;
    }
    int version = 0;
#if MIRT__CU_NCCL
    if (!trial.direct && !mirt__cu_join_nccl(group, join, &version)) return false;
#endif
    if (trial.direct && !mirt__cu_reach(group, why)) return false;
    const double took = mirt__cu_try_out(&trial);
    if (took < 0 || !mirt__cu_all_well(group, &culprit)) return false;
    const double megabytes = (double)MIRT__CU_TRIAL * sizeof(float) / 1e6, speed = megabytes / 1e3 / took;
    if (trial.direct) {
        snprintf(join->how, 256, "each reads the others' memory, as %s; %.3g GB/s for sums of %.3g MB", why, speed,
                 megabytes);
    } else {
        snprintf(join->how, 256, "NCCL %d.%d.%d, %s; %.3g GB/s for sums of %.3g MB", version / 10000,
                 version / 100 % 100, version % 100,
                 join->collective == MIRT_NCCL ? "its all-reduce"
                                               : "chunks sent to all, added in the fixed order, sent back",
                 speed, megabytes);
    }
    return true;
}

/* An H200 moves 4.3 TB/s, of which kernels reach 0.8. To normalize 4096 elements of a tile takes 550 instructions of
   each of 4 warps; the GPU issues 6e11 in a second. The same on all GPUs, so that results do not depend on which it
   is. */
static void mirt__cu_storage_costs(mirt__storage_costs *costs) {
    const char *given = getenv("MIRT_CUDA_STORE");
    costs->pass = costs->read = 0.29e-3;
    costs->again = 4 * 550 / 4096.0 / 6e11 * 1e9;
    costs->columns = 128;
    if (given && strcmp(given, "none") == 0) costs->read = costs->again = 0;
    if (given && strcmp(given, "all") == 0) costs->again = 1;
}

static bool mirt__cu_join(mirt__joining *join) {
    mirt__cu *culprit = NULL;
    join->able.direct = join->all == join->count;
    for (int d = 0; d < join->count; d++) join->handle[d]->limit = join->limit;
    join->able.queues = join->able.float16 = true;
    mirt__cu_storage_costs(&join->able.costs);
    join->how[0] = 0;
    if (join->all < 2) return true;
    const mirt__host *host = join->handle[0]->host;
    if (join->all > MIRT__CU_MEMBERS)
        return host->fail(MIRT_E_INVALID, "%d devices; at most %d can meet", join->all, MIRT__CU_MEMBERS), false;
    mirt__cu_group *group = static_cast<mirt__cu_group *>(host->calloc(1, sizeof *group));
    if (!group) return false;
    group->host = host;
    group->count = group->there = join->count;
    group->first = join->first;
    group->all = join->all;
    group->per_host = join->per_host;
    group->collective = join->collective;
    for (int d = 0; d < join->count; d++) {
        group->member[d] = join->handle[d];
        join->handle[d]->group = group;
        join->handle[d]->rank = d;
    }
    if (mirt__cu_join_group(group, join)) return true;
    for (int d = 0; d < join->count; d++) mirt__cu_group_abort(group, d);
#if MIRT__CU_NCCL
    if (group->unheard) return false;
#endif
    if (mirt__cu_all_well(group, &culprit)) mirt__cu_fail(culprit, MIRT_E_DEVICE, "the devices could not be joined");
#if MIRT__CU_NCCL
    if (group->joining && culprit->status != MIRT_E_NOMEM) mirt__cu_advise(culprit);
#endif
    mirt__cu_tell(culprit);
    return false;
}

/* >>section cuda/ptx.cuh */

#ifndef MIRT__CUDA_PTX_CUH
#define MIRT__CUDA_PTX_CUH
/* Tensor-core and copy instructions in PTX. They need compute capability 8.0, those for products of float16 only 7.5;
   the host launches no kernel that uses them on older devices. The simulator has its own. */

#ifndef MIRT_SIM
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define MIRT__CU_PTX(...) __trap()
#else
#define MIRT__CU_PTX(...) asm volatile(__VA_ARGS__)
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
#define MIRT__CU_PTX75(...) __trap()
#else
#define MIRT__CU_PTX75(...) asm volatile(__VA_ARGS__)
#endif

#define MIRT__CU_MMA(shape) \
    MIRT__CU_PTX("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/* d[16 rows][8 columns] += a[16][16] b[16][8], numbers of bfloat16: lane 4 g + t has d of rows g (two neighbors from
   column 2 t on) and g + 8, a of rows g and g + 8 at columns 2 t, then of both at 2 t + 8, b of column g at rows 2 t
   and 2 t + 8. */
static inline __device__ void mirt__cu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    MIRT__CU_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
}
/* The same of float16; older machines multiply 8 columns of a at a time. */
static inline __device__ void mirt__cu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#pragma unroll
    for (int k = 0; k < 2; k++) {
        MIRT__CU_PTX75("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                       : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                       : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
    }
#else
    MIRT__CU_MMA("m16n8k16.row.col.f32.f16.f16.f32");
#endif
}
/* Of tf32, a[16][8] b[8][8]: a of rows g and g + 8 at column t, then of both at t + 4, b of column g at rows t and t +
   4. */
static inline __device__ void mirt__cu_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    MIRT__CU_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
}
/* Four matrices of 8 rows of 16 bytes in shared memory, whose rows lanes 0 to 7, 8 to 15 ... point at: lane 4 g + t
   gets numbers 2 t and 2 t + 1 of row g; of the transposed ones with _trans. */
#define MIRT__CU_LDMATRIX(name, how) \
    static inline __device__ void name(uint32_t r[4], const void *row) { \
        const unsigned at = (unsigned)__cvta_generic_to_shared(row); \
        (void)at; \
        MIRT__CU_PTX75("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                       : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) \
                       : "r"(at) \
                       : "memory"); \
    }
MIRT__CU_LDMATRIX(mirt__cu_ldmatrix_x4, "")
MIRT__CU_LDMATRIX(mirt__cu_ldmatrix_x4_trans, ".trans")
#undef MIRT__CU_LDMATRIX
/* 16 bytes on their way to shared memory, zeros unless `valid`; both aligned to that. Older machines have them there at
   once. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
static inline __device__ void mirt__cu_cp_async16(void *shared, const void *global, bool valid) {
    *static_cast<uint4 *>(shared) = valid ? *static_cast<const uint4 *>(global) : make_uint4(0, 0, 0, 0);
}
static inline __device__ void mirt__cu_cp_async_commit() {}
template <int N> static inline __device__ void mirt__cu_cp_async_wait() {}
#else
static inline __device__ void mirt__cu_cp_async16(void *shared, const void *global, bool valid) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(shared);
    const int bytes = valid ? 16 : 0;
    (void)at, (void)bytes, (void)global;
    MIRT__CU_PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(global), "r"(bytes) : "memory");
}
static inline __device__ void mirt__cu_cp_async_commit() { MIRT__CU_PTX("cp.async.commit_group;" : : : "memory"); }
/* Until all but the newest N groups of them are there. */
template <int N>
static inline __device__ void mirt__cu_cp_async_wait() {
    MIRT__CU_PTX("cp.async.wait_group %0;" : : "n"(N) : "memory");
}
#endif
#undef MIRT__CU_MMA
#undef MIRT__CU_PTX
#undef MIRT__CU_PTX75
#endif

template <bool FLOAT16>
static inline __device__ void mirt__cu_mma_half(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    if constexpr (FLOAT16) mirt__cu_mma_f16(d, a, b);
    else mirt__cu_mma_bf16(d, a, b);
}

/* x as tf32, to the nearest, ties away from zero. */
static inline __device__ uint32_t mirt__cu_to_tf32(float x) {
    return x != x ? __float_as_uint(x) : (__float_as_uint(x) + 0x1000u) & 0xFFFFE000u;
}

#endif

/* >>section cuda/reader.cuh */

#ifndef MIRT__CUDA_READER_CUH
#define MIRT__CUDA_READER_CUH
/* Inputs as kernels read them (mirt__reader): neighboring channels of a pixel, as float. Each thread or block
   computes the constants of a column's normalization once (mirt__cu_columns). */

/* What there is to do beyond loading and `affine`; MIRT__CU_READ_ANY as a kernel's parameter: as the reader says. */
enum {
    MIRT__CU_READ_ANY = -1, MIRT__CU_READ_PLAIN = 0, MIRT__CU_READ_NORM = 1, MIRT__CU_READ_GATE = 2, MIRT__CU_READ_BACK
    = 4
};

typedef struct mirt__cu_reader {
    const void *data, *z;
    mirt_dtype dtype; /* of both */
    int kind,
        width; /* width: 8, 4 or 1, the most neighbors that may be read at once, at multiples of it within a pixel */
    bool affine;
    float scale, offset;
    int64_t channels; /* 0: not known, data is plain */
    mirt__scaling norm; /* of kinds NORM and BACK */
    const float *sum[2];
    double count;
    const float *gate;
    int64_t gate_pixels;
} mirt__cu_reader;

/* N columns of it. */
template <int N> struct mirt__cu_columns {
    float mean[N], factor[N], offset[N], less[N], part[N];
};
#define MIRT__CU_COLUMN_ROWS 5 /* floats of a column */

/* NULL: zeros. */
static inline mirt__scaling mirt__cu_scaling_of(const mirt__scaling *s) {
    mirt__scaling none;
    memset(&none, 0, sizeof none);
    return s ? *s : none;
}
/* `channels`: of the last axis of what is read, where the reader does not say. */
static mirt__cu_reader mirt__cu_reader_of(const mirt__reader *reader, int64_t channels) {
    mirt__cu_reader r;
    memset(&r, 0, sizeof r);
    r.data = reader->data;
    r.dtype = reader->dtype;
    r.affine = reader->affine;
    r.scale = reader->scale;
    r.offset = reader->offset;
    r.channels = reader->channels > 0 ? reader->channels : channels;
    if (reader->back) {
        r.kind = MIRT__CU_READ_BACK;
        r.norm = reader->back->norm;
        r.z = reader->back->z;
        r.sum[0] = reader->back->sum[0];
        r.sum[1] = reader->back->sum[1];
        r.count = reader->back->count;
    } else if (reader->norm) {
        r.kind = MIRT__CU_READ_NORM;
        r.norm = *reader->norm;
    }
    if (reader->gate) {
        r.kind |= MIRT__CU_READ_GATE;
        r.gate = reader->gate;
        r.gate_pixels = reader->gate_pixels > 0 ? reader->gate_pixels : 1;
    }
    r.width = r.channels % 8 == 0 ? 8 : r.channels % 4 == 0 ? 4 : 1;
    while (r.width > 1 &&
           !(mirt__cu_aligned_for(r.data, r.dtype, r.width) && mirt__cu_aligned_for(r.z, r.dtype, r.width)))
        r.width = r.width == 8 ? 4 : 1;
    if (!mirt__cu_aligned(r.gate, 16)) r.width = 1;
    return r;
}

#define MIRT__CU_KIND(known, r) ((known) == MIRT__CU_READ_ANY ? (r).kind : (known))

static inline __device__ float mirt__cu_norm_inverse_of(float variance, float epsilon) {
    return __fdiv_rn(1.0f, __fsqrt_rn(variance + epsilon));
}
static inline __device__ float mirt__cu_norm_inverse(const mirt__scaling &n, int64_t j) {
    return mirt__cu_norm_inverse_of(n.variance[j], n.epsilon);
}
/* gamma / sqrt(variance + epsilon) */
static inline __device__ float mirt__cu_norm_factor(const mirt__scaling &n, int64_t j) {
    const float inverse = mirt__cu_norm_inverse(n, j);
    return n.gamma ? __fmul_rn(n.gamma[j], inverse) : inverse;
}
static inline __device__ float mirt__cu_normed(float x, float mean, float factor, float offset) {
    return __fadd_rn(__fmul_rn(__fsub_rn(x, mean), factor), offset);
}

/* Columns [j, j + N), which exist. */
template <int KIND, int N>
static inline __device__ void mirt__cu_columns_of(const mirt__cu_reader &r, int64_t j, mirt__cu_columns<N> &c) {
    const int kind = MIRT__CU_KIND(KIND, r);
    if (!(kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_BACK))) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        c.mean[i] = r.norm.mean[j + i];
        c.factor[i] = mirt__cu_norm_factor(r.norm, j + i);
        c.offset[i] = r.norm.beta ? r.norm.beta[j + i] : 0.0f;
        if (kind & MIRT__CU_READ_BACK) {
            c.less[i] = r.sum[0] ? (float)((double)r.sum[0][j + i] / r.count) : 0.0f;
            c.part[i] = r.sum[0] ? __fmul_rn((float)((double)r.sum[1][j + i] / r.count),
                                             mirt__cu_norm_inverse(r.norm, j + i))
                                 : 0.0f;
        }
    }
}
/* Floats of shared memory for rows of n columns; `some` of these are put there by all threads of a block (a barrier
   comes after), and got from there. */
static inline __host__ __device__ int mirt__cu_columns_floats(const mirt__cu_reader &r, int n) {
    return r.kind & MIRT__CU_READ_BACK ? 5 * n : r.kind & MIRT__CU_READ_NORM ? 3 * n : 0;
}
/* One of them, of `channel`, at place `at` of a row. */
static inline __device__ void mirt__cu_column_put(const mirt__cu_reader &r, int64_t channel, float *shared, int n,
                                                  int at) {
    mirt__cu_columns<1> c;
    if (!(r.kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_BACK))) return;
    mirt__cu_columns_of<MIRT__CU_READ_ANY, 1>(r, channel, c);
    shared[at] = c.mean[0];
    shared[n + at] = c.factor[0];
    shared[2 * n + at] = c.offset[0];
    if (!(r.kind & MIRT__CU_READ_BACK)) return;
    shared[3 * n + at] = c.less[0];
    shared[4 * n + at] = c.part[0];
}
static inline __device__ void mirt__cu_columns_put(const mirt__cu_reader &r, int64_t first, int some, int n,
                                                   float *shared, int thread, int threads) {
    for (int j = thread; j < some; j += threads) mirt__cu_column_put(r, first + j, shared, n, j);
}
/* Columns [j, j + N) of those: N 4 or 8 need n and j to be multiples of 4, and `shared` aligned. */
template <int KIND, int N>
static inline __device__ void mirt__cu_columns_get(const mirt__cu_reader &r, const float *shared, int n, int j,
                                                   mirt__cu_columns<N> &c) {
    const int kind = MIRT__CU_KIND(KIND, r);
    if (!(kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_BACK))) return;
    mirt__cu_load_n<N>(shared + j, c.mean);
    mirt__cu_load_n<N>(shared + n + j, c.factor);
    mirt__cu_load_n<N>(shared + 2 * n + j, c.offset);
    if (kind & MIRT__CU_READ_BACK) {
        mirt__cu_load_n<N>(shared + 3 * n + j, c.less);
        mirt__cu_load_n<N>(shared + 4 * n + j, c.part);
    }
}

/* activation(x), of N numbers: one branch for the usual ones. SIMPLE: it is one of mirt__cu_simple. */
template <int N, bool SIMPLE = false>
static inline __device__ void mirt__cu_activate_n(mirt_activation_kind kind, float *x) {
    if (kind == MIRT_LINEAR) return;
    if (SIMPLE ? kind != MIRT_SILU : kind == MIRT_RELU || kind == MIRT_RELU6) {
        const float most = kind == MIRT_RELU6 ? 6.0f : INFINITY;
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = x[i] < 0 ? 0.0f : x[i] > most ? most : x[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = mirt__cu_activate(SIMPLE ? MIRT_SILU : kind, x[i]);
}
/* g times the slope at u. */
template <int N, bool SIMPLE = false>
static inline __device__ void mirt__cu_times_slope_n(mirt_activation_kind kind, float *g, const float *u) {
    if (kind == MIRT_LINEAR) return;
    if (SIMPLE ? kind != MIRT_SILU : kind == MIRT_RELU || kind == MIRT_RELU6) {
        const float most = kind == MIRT_RELU6 ? 6.0f : INFINITY;
#pragma unroll
        for (int i = 0; i < N; i++) g[i] = u[i] > 0 && u[i] < most ? g[i] : 0.0f;
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) g[i] = mirt__cu_times_slope(SIMPLE ? MIRT_SILU : kind, g[i], u[i]);
}
/* Activations that need no calls. */
static inline bool mirt__cu_simple(mirt_activation_kind kind) {
    return kind == MIRT_LINEAR || kind == MIRT_RELU || kind == MIRT_RELU6 || kind == MIRT_SILU;
}

/* Where the gates of a pixel's image begin in `gate`, which is worked out once for a pixel; 0 without gates. */
static inline __device__ int64_t mirt__cu_gate_of(const mirt__cu_reader &r, int64_t pixel) {
    return r.kind & MIRT__CU_READ_GATE ? pixel / r.gate_pixels * r.channels : 0;
}

/* N elements as they lie in memory, which take their time to come: */
template <int N> struct mirt__cu_raw {
    uint32_t x[N], z[N];
};
template <int N, class T> static inline __device__ void mirt__cu_fetch_as(const T *from, uint32_t *to) {
    if constexpr (N == 1) {
        to[0] = from[0];
    } else {
        constexpr int BYTES = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
#pragma unroll
        for (int i = 0; i < N; i += BYTES / sizeof(T)) { /* more than once for words alone */
            const mirt__cu_bytes<BYTES> v = mirt__cu_load_bytes<BYTES>(from + i);
#pragma unroll
            for (int j = 0; j < BYTES / 4; j++) to[i + j] = v.word[j];
        }
    }
}
template <int N>
static inline __device__ void mirt__cu_fetch_words(const void *from, mirt_dtype dtype, int64_t at, uint32_t *to) {
    if (mirt__cu_is_half(dtype)) mirt__cu_fetch_as<N>(static_cast<const uint16_t *>(from) + at, to);
    else if (dtype == MIRT_UINT8 || dtype == MIRT_BOOL)
        mirt__cu_fetch_as<N>(static_cast<const uint8_t *>(from) + at, to);
    else mirt__cu_fetch_as<N>(static_cast<const uint32_t *>(from) + at, to);
}
template <bool FLOAT16, int N> static inline __device__ void mirt__cu_make_halves(const uint32_t *words, float *to) {
    float none;
#pragma unroll
    for (int i = 0; i < N; i += 2)
        mirt__cu_from_word<FLOAT16>(words[i / 2], &to[i], i + 1 < N ? &to[(i + 1) % N] : &none);
}
template <int N> static inline __device__ void mirt__cu_make_words(const uint32_t *words, mirt_dtype dtype, float *to) {
    if ((int)dtype == MIRT__BFLOAT16) {
        mirt__cu_make_halves<false, N>(words, to);
    } else if ((int)dtype == MIRT__FLOAT16) {
        mirt__cu_make_halves<true, N>(words, to);
    } else if (dtype == MIRT_UINT8 || dtype == MIRT_BOOL) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = (float)(words[i / 4] >> i % 4 * 8 & 255);
    } else if (dtype == MIRT_INT32) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = (float)(int32_t)words[i];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = __uint_as_float(words[i]);
    }
}
/* Elements [at, at + N) of a pixel. N is 1, or 4 or 8 and at most the reader's width. */
template <int KIND, int N>
static inline __device__ void mirt__cu_fetch(const mirt__cu_reader &r, int64_t at, mirt__cu_raw<N> &raw) {
    mirt__cu_fetch_words<N>(r.data, r.dtype, at, raw.x);
    if (MIRT__CU_KIND(KIND, r) & MIRT__CU_READ_BACK) mirt__cu_fetch_words<N>(r.z, r.dtype, at, raw.z);
}
/* What they are: channels [j, j + N) of a pixel, whose gates are at gate[gates + j]; c has those columns. */
template <int KIND, int N>
static inline __device__ void mirt__cu_make(const mirt__cu_reader &r, const mirt__cu_columns<N> &c,
                                            const mirt__cu_raw<N> &raw, int64_t gates, int64_t j, float *to) {
    const int kind = MIRT__CU_KIND(KIND, r);
    mirt__cu_make_words<N>(raw.x, r.dtype, to);
    if (kind & MIRT__CU_READ_BACK) {
        float z[N], u[N];
        mirt__cu_make_words<N>(raw.z, r.dtype, z);
#pragma unroll
        for (int i = 0; i < N; i++) {
            z[i] = __fsub_rn(z[i], c.mean[i]);
            u[i] = __fadd_rn(__fmul_rn(z[i], c.factor[i]), c.offset[i]);
        }
        mirt__cu_times_slope_n<N>(r.norm.activation, to, u);
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = __fmul_rn(__fsub_rn(__fsub_rn(to[i], c.less[i]), __fmul_rn(z[i], c.part[i])), c.factor[i]);
    } else if (kind & MIRT__CU_READ_NORM) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = mirt__cu_normed(to[i], c.mean[i], c.factor[i], c.offset[i]);
        mirt__cu_activate_n<N>(r.norm.activation, to);
    } else if (r.affine) {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = fmaf(to[i], r.scale, r.offset);
    }
    if (kind & MIRT__CU_READ_GATE) {
        float gate[N];
        mirt__cu_load_n<N>(r.gate + gates + j, gate);
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = __fmul_rn(to[i], gate[i]);
    }
}
/* Both at once. */
template <int KIND, int N>
static inline __device__ void mirt__cu_read(const mirt__cu_reader &r, const mirt__cu_columns<N> &c, int64_t at,
                                            int64_t gates, int64_t j, float *to) {
    mirt__cu_raw<N> raw;
    mirt__cu_fetch<KIND, N>(r, at, raw);
    mirt__cu_make<KIND, N>(r, c, raw, gates, j, to);
}
/* One element, whose channel and gates are not known yet. */
static inline __device__ float mirt__cu_read_one(const mirt__cu_reader &r, int64_t at) {
    mirt__cu_columns<1> c;
    float x;
    int64_t j = 0, pixel = 0;
    if (r.kind != MIRT__CU_READ_PLAIN) {
        pixel = at / r.channels;
        j = at - pixel * r.channels;
        mirt__cu_columns_of<MIRT__CU_READ_ANY, 1>(r, j, c);
    }
    mirt__cu_read<MIRT__CU_READ_ANY, 1>(r, c, at, mirt__cu_gate_of(r, pixel), j, &x);
    return x;
}

#endif

/* >>section cuda/epilogue.cuh */

#ifndef MIRT__CUDA_EPILOGUE_CUH
#define MIRT__CUDA_EPILOGUE_CUH
/* What happens to outputs before they are stored (mirt__epilogue), and their column sums. Each thread adds up what it
   stores, a block combines its threads' sums into a chunk, and a small kernel adds the chunks in ascending order, in
   double. */

/* Usual epilogues, for which kernels may have code of their own. MOMENTS: of what is normalized next, perhaps with a
   bias. GRADIENT: of what was normalized, with an activation of mirt__cu_simple, perhaps added and masked by ReLU.
   OUTPUT: no sums, masks or slopes, an activation of mirt__cu_simple. NORMALIZED: of these, one that is normalized
   without a bias, to which nothing is added. */
typedef enum mirt__cu_ending {
    MIRT__CU_END_ANY,
    MIRT__CU_END_MOMENTS,
    MIRT__CU_END_GRADIENT,
    MIRT__CU_END_OUTPUT,
    MIRT__CU_END_NORMALIZED
} mirt__cu_ending;
/* Calls of(constant) with the constant that equals `ending`, so that `of` may name a template's instance. */
#define MIRT__CU_BY_ENDING(ending, of) \
    ((ending) == MIRT__CU_END_MOMENTS      ? of(MIRT__CU_END_MOMENTS) \
     : (ending) == MIRT__CU_END_GRADIENT   ? of(MIRT__CU_END_GRADIENT) \
     : (ending) == MIRT__CU_END_OUTPUT     ? of(MIRT__CU_END_OUTPUT) \
     : (ending) == MIRT__CU_END_NORMALIZED ? of(MIRT__CU_END_NORMALIZED) \
                                           : of(MIRT__CU_END_ANY))

typedef struct mirt__cu_epilogue {
    void *y;
    mirt_dtype dtype; /* of y, add, mask and slope_x: float32 or 16 bits */
    int width;        /* 8, 4 or 1: the most neighbors in a row that may be handled at once, at multiples of it */
    int64_t columns;
    const float *bias;
    const void *add, *mask, *slope_x;
    mirt__scaling norm, slope; /* mean NULL: there is none */
    mirt_activation_kind activation, mask_activation;
    mirt__column_sums sums;
} mirt__cu_epilogue;

static mirt__cu_epilogue mirt__cu_epilogue_of(const mirt__epilogue *e, void *y, mirt_dtype dtype, int64_t columns) {
    mirt__cu_epilogue d;
    memset(&d, 0, sizeof d);
    d.y = y;
    d.dtype = dtype;
    d.columns = columns;
    d.bias = e->bias;
    d.norm = mirt__cu_scaling_of(e->norm);
    d.add = e->add;
    d.activation = e->activation;
    d.mask = e->mask;
    d.mask_activation = e->mask_activation;
    d.slope = mirt__cu_scaling_of(e->slope);
    d.slope_x = e->slope ? e->slope_x : NULL;
    d.sums = e->sums;
    d.width = columns % 8 == 0 ? 8 : columns % 4 == 0 ? 4 : 1;
    while (d.width > 1 &&
           !(mirt__cu_aligned_for(y, dtype, d.width) && mirt__cu_aligned_for(d.add, dtype, d.width) &&
             mirt__cu_aligned_for(d.mask, dtype, d.width) && mirt__cu_aligned_for(d.slope_x, dtype, d.width))) {
        d.width = d.width == 8 ? 4 : 1;
    }
    return d;
}
/* Which usual one it is, where four neighbors can be handled at once. */
static inline mirt__cu_ending mirt__cu_ending_of(const mirt__cu_epilogue &e) {
    if (e.width < 4) return MIRT__CU_END_ANY;
    if (e.sums == MIRT__SUMS_NONE && !e.mask && !e.slope.mean && mirt__cu_simple(e.activation))
        return e.norm.mean && !e.bias && !e.add ? MIRT__CU_END_NORMALIZED : MIRT__CU_END_OUTPUT;
    if (e.norm.mean || e.activation != MIRT_LINEAR) return MIRT__CU_END_ANY;
    if (e.sums == MIRT__SUMS_MOMENTS && !e.add && !e.mask && !e.slope.mean) return MIRT__CU_END_MOMENTS;
    if (e.sums == MIRT__SUMS_GRADIENT && !e.bias && e.slope.mean && mirt__cu_simple(e.slope.activation) &&
        (!e.mask || e.mask_activation == MIRT_RELU))
        return MIRT__CU_END_GRADIENT;
    return MIRT__CU_END_ANY;
}
/* The same, such that a compiler knows which one it is, and from element `at` on. */
template <int END, int DTYPE>
static inline __device__ mirt__cu_epilogue mirt__cu_ending_from(const mirt__cu_epilogue &from, int64_t at) {
    mirt__cu_epilogue e = from;
    const bool written = END == MIRT__CU_END_OUTPUT || END == MIRT__CU_END_NORMALIZED;
    if (END != MIRT__CU_END_ANY) {
        e.dtype = (mirt_dtype)DTYPE;
        e.width = 4;
        e.mask_activation = MIRT_RELU;
        e.sums = END == MIRT__CU_END_MOMENTS    ? MIRT__SUMS_MOMENTS
                 : END == MIRT__CU_END_GRADIENT ? MIRT__SUMS_GRADIENT
                                                : MIRT__SUMS_NONE;
        if (END == MIRT__CU_END_MOMENTS || END == MIRT__CU_END_NORMALIZED) e.add = NULL;
        if (END == MIRT__CU_END_GRADIENT || END == MIRT__CU_END_NORMALIZED) e.bias = NULL;
        if (END != MIRT__CU_END_GRADIENT) {
            e.mask = NULL;
            e.slope.mean = NULL;
        }
        if (!written) {
            e.norm.mean = NULL;
            e.activation = MIRT_LINEAR;
        }
    }
    const int64_t bytes = at * (mirt__cu_is_half(e.dtype) ? 2 : 4);
    e.y = static_cast<char *>(e.y) + bytes;
    if (e.add) e.add = static_cast<const char *>(e.add) + bytes;
    if (e.mask) e.mask = static_cast<const char *>(e.mask) + bytes;
    if (e.slope.mean) e.slope_x = static_cast<const char *>(e.slope_x) + bytes;
    return e;
}

/* N columns of it; those that do not exist are not looked at. */
template <int N> struct mirt__cu_finish_columns {
    float bias[N], mean[N], factor[N], offset[N], slope_mean[N], slope_factor[N], slope_offset[N];
};
/* Columns [j, j + n), at most N. */
template <int N>
static inline __device__ void mirt__cu_finish_columns_of(const mirt__cu_epilogue &e, int64_t j, int n,
                                                         mirt__cu_finish_columns<N> &c) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i >= n) break;
        c.bias[i] = e.bias ? e.bias[j + i] : 0.0f;
        if (e.norm.mean) {
            c.mean[i] = e.norm.mean[j + i];
            c.factor[i] = mirt__cu_norm_factor(e.norm, j + i);
            c.offset[i] = e.norm.beta ? e.norm.beta[j + i] : 0.0f;
        }
        if (e.slope.mean) {
            c.slope_mean[i] = e.slope.mean[j + i];
            c.slope_factor[i] = mirt__cu_norm_factor(e.slope, j + i);
            c.slope_offset[i] = e.slope.beta ? e.slope.beta[j + i] : 0.0f;
        }
    }
}

/* Elements [at, at + n) of tensors like y, at most N of them, on their way: N words at once, or one by one as floats. N
   is 1, 4 or 8. */
template <int N> struct mirt__cu_finish_raw {
    uint32_t add[N], mask[N], z[N];
};
template <int N>
static inline __device__ void mirt__cu_finish_words(const mirt__cu_epilogue &e, const void *from, int64_t at, int n,
                                                    uint32_t *to) {
    if (n >= N && N <= e.width) {
        if (mirt__cu_is_half(e.dtype)) mirt__cu_fetch_words<N>(from, (mirt_dtype)MIRT__BFLOAT16, at, to);
        else mirt__cu_fetch_words<N>(from, MIRT_FLOAT32, at, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = i < n ? __float_as_uint(mirt__cu_load(from, e.dtype, at + i)) : 0;
}
template <int N>
static inline __device__ void mirt__cu_finish_floats(const mirt__cu_epilogue &e, int n, const uint32_t *words,
                                                     float *to) {
    if (n >= N && N <= e.width && mirt__cu_is_half(e.dtype)) {
        if ((int)e.dtype == MIRT__FLOAT16) mirt__cu_make_halves<true, N>(words, to);
        else mirt__cu_make_halves<false, N>(words, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = __uint_as_float(words[i]);
}
template <int N>
static inline __device__ void mirt__cu_finish_fetch(const mirt__cu_epilogue &e, int64_t at, int n,
                                                    mirt__cu_finish_raw<N> &raw) {
    if (e.add) mirt__cu_finish_words<N>(e, e.add, at, n, raw.add);
    if (e.mask) mirt__cu_finish_words<N>(e, e.mask, at, n, raw.mask);
    if (e.slope.mean) mirt__cu_finish_words<N>(e, e.slope_x, at, n, raw.z);
}
/* x, n columns, becomes what is to be stored. z takes slope_x, where there is a slope; SIMPLE: activations are of
   mirt__cu_simple. */
template <int N, bool SIMPLE = false>
static inline __device__ void mirt__cu_finish_with(const mirt__cu_epilogue &e, const mirt__cu_finish_columns<N> &c,
                                                   const mirt__cu_finish_raw<N> &raw, int n, float *x, float *z) {
    float other[N];
    if (e.bias) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __fadd_rn(x[i], c.bias[i]);
    }
    if (e.norm.mean) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = mirt__cu_normed(x[i], c.mean[i], c.factor[i], c.offset[i]);
    }
    if (e.add) {
        mirt__cu_finish_floats<N>(e, n, raw.add, other);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __fadd_rn(x[i], other[i]);
    }
    mirt__cu_activate_n<N, SIMPLE>(e.activation, x);
    if (e.mask) {
        mirt__cu_finish_floats<N>(e, n, raw.mask, other);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = mirt__cu_times_slope_of_output(e.mask_activation, x[i], other[i]);
    }
    if (e.slope.mean) {
        mirt__cu_finish_floats<N>(e, n, raw.z, z);
#pragma unroll
        for (int i = 0; i < N; i++)
            other[i] = mirt__cu_normed(z[i], c.slope_mean[i], c.slope_factor[i], c.slope_offset[i]);
        mirt__cu_times_slope_n<N, SIMPLE>(e.slope.activation, x, other);
    }
}
/* Both at once; the first column is element `at` of y. */
template <int N>
static inline __device__ void mirt__cu_finish(const mirt__cu_epilogue &e, const mirt__cu_finish_columns<N> &c,
                                              int64_t at, int n, float *x, float *z) {
    mirt__cu_finish_raw<N> raw;
    mirt__cu_finish_fetch<N>(e, at, n, raw);
    mirt__cu_finish_with<N>(e, c, raw, n, x, z);
}
template <int N>
static inline __device__ void mirt__cu_finish_store(const mirt__cu_epilogue &e, int64_t at, int n, const float *x) {
    if (n >= N && N <= e.width) {
        mirt__cu_store_as<N>(e.y, e.dtype, at, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i < n) mirt__cu_store(e.y, e.dtype, at + i, x[i]);
    }
}

/* ---- Sums of columns. */

/* What a thread has seen of N columns. Moments are of what lies above the first number; of gradients: dy and dy *
   (slope_x - mean). */
template <int N> struct mirt__cu_sums {
    float count, shift[N], first[N], second[N];
};
template <int N> static inline __device__ void mirt__cu_sums_begin(mirt__cu_sums<N> &s) {
    s.count = 0;
#pragma unroll
    for (int i = 0; i < N; i++) s.shift[i] = s.first[i] = s.second[i] = 0;
}
/* The same as mirt__cu_moments_add, but the caller sets the shift and the count. */
template <int N> static inline __device__ void mirt__cu_moments_above(mirt__cu_sums<N> &s, const float *x) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float away = x[i] - s.shift[i];
        s.first[i] += away;
        s.second[i] = fmaf(away, away, s.second[i]);
    }
}
template <int N>
static inline __device__ void mirt__cu_moments_add(mirt__cu_sums<N> &s, const float *x, bool later = false) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (!later && s.count == 0) s.shift[i] = x[i];
    }
    mirt__cu_moments_above<N>(s, x);
    s.count += 1;
}
/* `later`: these are not the first. */
template <int N>
static inline __device__ void mirt__cu_sums_add(const mirt__cu_epilogue &e, const mirt__cu_finish_columns<N> &c,
                                                mirt__cu_sums<N> &s, const float *x, const float *z,
                                                bool later = false) {
    if (e.sums == MIRT__SUMS_NONE) return;
    if (e.sums == MIRT__SUMS_MOMENTS) return mirt__cu_moments_add<N>(s, x, later);
#pragma unroll
    for (int i = 0; i < N; i++) {
        s.first[i] += x[i];
        if (e.sums == MIRT__SUMS_GRADIENT) s.second[i] = fmaf(x[i], z[i] - c.slope_mean[i], s.second[i]);
    }
    s.count += 1;
}

/* Where chunks' sums lie: of chunk i, `columns` first sums, second sums and, of moments, what those are above of; and
   how many numbers. Room of mirt__cu_sums_bytes. */
typedef struct mirt__cu_chunks {
    float *part, *count;
    double *group;
    int64_t columns, chunks;
} mirt__cu_chunks;

#define MIRT__CU_SUM_LANES 16
#define MIRT__CU_SUM_GROUP 128 /* chunks that one block adds up: each lane asks for all of its own at once */
static inline int64_t mirt__cu_round_up(int64_t n, int64_t to) { return mirt__cu_ceil(n, to) * to; }
static size_t mirt__cu_sums_bytes(mirt__column_sums sums, int64_t columns, int64_t chunks) {
    if (sums == MIRT__SUMS_NONE || chunks < 1) return 0;
    const int64_t groups = mirt__cu_ceil(chunks, MIRT__CU_SUM_GROUP);
    return (size_t)(mirt__cu_round_up(chunks * 3 * columns * 4, 256) + mirt__cu_round_up(chunks * 4, 256) +
                    (groups > 1 ? mirt__cu_round_up(groups * 3 * columns * 8, 256) : 0));
}
static mirt__cu_chunks mirt__cu_chunks_of(void *room, mirt__column_sums sums, int64_t columns, int64_t chunks) {
    mirt__cu_chunks c;
    memset(&c, 0, sizeof c);
    c.columns = columns;
    c.chunks = chunks;
    if (!room || sums == MIRT__SUMS_NONE) return c;
    char *at = (char *)room;
    c.part = (float *)at;
    at += mirt__cu_round_up(chunks * 3 * columns * 4, 256);
    c.count = (float *)at;
    c.group = (double *)(at + mirt__cu_round_up(chunks * 4, 256));
    return c;
}

/* Floats of shared memory for mirt__cu_sums_leave. */
static inline __host__ __device__ int mirt__cu_sums_floats(int lanes, int columns) { return lanes * (3 * columns + 1); }
/* All threads of a block call: thread `across` + `lane` * (columns / N) has the sums of columns [across * N, ...) of
   the block's `columns`, of which `n` exist; they become chunk `chunk`'s from column `first` on. `counts`: this block
   is the one to say how many numbers. */
template <int N>
static inline __device__ void mirt__cu_sums_leave(const mirt__cu_epilogue &e, const mirt__cu_chunks &to,
                                                  const mirt__cu_sums<N> &s, int across, int lane, int lanes,
                                                  int columns, int n, int64_t chunk, int64_t first, bool counts,
                                                  float *shared) {
    float *count = shared + lanes * 3 * columns;
    const bool moments = e.sums == MIRT__SUMS_MOMENTS;
    if (e.sums == MIRT__SUMS_NONE) return;
    __syncthreads(); /* of what was in `shared` */
    if (lane < lanes) {
        float *mine = shared + lane * 3 * columns + across * N;
        if (across == 0) count[lane] = s.count;
#pragma unroll
        for (int i = 0; i < N; i++) {
            mine[i] = s.first[i];
            mine[columns + i] = s.second[i];
            mine[2 * columns + i] = s.shift[i];
        }
    }
    __syncthreads();
    const int thread = (int)(threadIdx.x + blockDim.x * threadIdx.y), threads = (int)(blockDim.x * blockDim.y);
    for (int j = thread; j < n; j += threads) {
        float a = 0, b = 0, shift = 0, all = 0;
        for (int i = 0; i < lanes; i++) {
            const float more = count[i], x = shared[3 * i * columns + j], y = shared[(3 * i + 1) * columns + j],
                        z = shared[(3 * i + 2) * columns + j];
            if (more == 0) continue;
            if (all == 0) shift = z;
            if (moments) { /* all are brought above the same number, which is one of them */
                const float away = z - shift;
                a += fmaf(more, away, x);
                b += fmaf(away, fmaf(more, away, 2 * x), y);
            } else {
                a += x;
                b += y;
            }
            all += more;
        }
        float *part = to.part + 3 * chunk * to.columns + first + j;
        part[0] = a;
        part[to.columns] = b;
        part[2 * to.columns] = shift;
        if (counts && j == 0) to.count[chunk] = all;
    }
}

/* What `all` numbers' sums a and b in column j make; moments about `shift`. */
static inline __device__ void mirt__cu_sums_out(const mirt__cu_epilogue &e, int64_t j, double shift, double all,
                                                double a, double b, float *out0, float *out1) {
    if (e.sums == MIRT__SUMS_MOMENTS) {
        const double average = all > 0 ? a / all : 0, squares = b - average * a;
        out0[j] = (float)(shift + average);
        out1[j] = (float)(all > 0 && squares > 0 ? squares / all : 0);
    } else {
        out0[j] = (float)a;
        out1[j] = (float)(b / sqrt((double)e.slope.variance[j] + (double)e.slope.epsilon));
    }
}

/* A column's sums over the lanes of a block, in their order; lane 0 gets them. */
static inline __device__ void mirt__cu_sums_of_lanes(double *room, double *all, double *a, double *b) {
    const int lane = (int)threadIdx.y, x = (int)threadIdx.x;
    room[(3 * lane) * 32 + x] = *all;
    room[(3 * lane + 1) * 32 + x] = *a;
    room[(3 * lane + 2) * 32 + x] = *b;
    __syncthreads();
    for (int i = 1; i < MIRT__CU_SUM_LANES && lane == 0; i++) {
        *all += room[(3 * i) * 32 + x];
        *a += room[(3 * i + 1) * 32 + x];
        *b += room[(3 * i + 2) * 32 + x];
    }
}
/* The sums of the group of chunks blockIdx.y: moments about the shift of the first chunk. */
static __global__ void __launch_bounds__(32 * MIRT__CU_SUM_LANES)
mirt__cu_sums_kernel(mirt__cu_epilogue e, mirt__cu_chunks from, float *out0, float *out1) {
    MIRT_SHARED(double, room, 3 * MIRT__CU_SUM_LANES * 32);
    const int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x, begin = (int64_t)blockIdx.y * MIRT__CU_SUM_GROUP;
    const int64_t end = begin + MIRT__CU_SUM_GROUP < from.chunks ? begin + MIRT__CU_SUM_GROUP : from.chunks;
    const bool moments = e.sums == MIRT__SUMS_MOMENTS;
    double all = 0, a = 0, b = 0, shift = 0;
    if (j < from.columns) {
        if (moments && end > begin) shift = (double)from.part[2 * from.columns + j];
#pragma unroll
        for (int k = 0; k < MIRT__CU_SUM_GROUP / MIRT__CU_SUM_LANES; k++) {
            const int64_t i = begin + threadIdx.y + k * MIRT__CU_SUM_LANES;
            if (i >= end) continue;
            const float *part = from.part + 3 * i * from.columns + j;
            const double count = (double)from.count[i], p = (double)part[0], q = (double)part[from.columns];
            const double away = moments ? (double)part[2 * from.columns] - shift : 0;
            if (count == 0) continue;
            all += count;
            a += p + count * away;
            b += q + away * (2 * p + count * away);
        }
    }
    mirt__cu_sums_of_lanes(room, &all, &a, &b);
    if (threadIdx.y > 0 || j >= from.columns) return;
    if (gridDim.y > 1) {
        double *group = from.group + (int64_t)blockIdx.y * 3 * from.columns + j;
        group[0] = all;
        group[from.columns] = a;
        group[2 * from.columns] = b;
        return;
    }
    mirt__cu_sums_out(e, j, shift, all, a, b, out0, out1);
}
static __global__ void __launch_bounds__(32 * MIRT__CU_SUM_LANES)
    mirt__cu_sums_groups_kernel(mirt__cu_epilogue e, mirt__cu_chunks from, int64_t groups, float *out0, float *out1) {
    MIRT_SHARED(double, room, 3 * MIRT__CU_SUM_LANES * 32);
    const int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x;
    double all = 0, a = 0, b = 0;
    for (int64_t i = threadIdx.y; i < groups && j < from.columns; i += MIRT__CU_SUM_LANES) {
        const double *group = from.group + i * 3 * from.columns + j;
        all += group[0];
        a += group[from.columns];
        b += group[2 * from.columns];
    }
    mirt__cu_sums_of_lanes(room, &all, &a, &b);
    if (threadIdx.y > 0 || j >= from.columns) return;
    const double shift = e.sums == MIRT__SUMS_MOMENTS ? (double)from.part[2 * from.columns + j] : 0;
    mirt__cu_sums_out(e, j, shift, all, a, b, out0, out1);
}
/* Means of images, each of which has `each` chunks of sums and `pixels` pixels. */
static __global__ void __launch_bounds__(128)
    mirt__cu_sums_images_kernel(mirt__cu_chunks from, int64_t each, double pixels, int64_t images, float *out) {
    const int64_t at = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (at >= images * from.columns) return;
    const int64_t image = at / from.columns, j = at - image * from.columns;
    double sum = 0;
    for (int64_t i = image * each; i < (image + 1) * each; i++) sum += (double)from.part[3 * i * from.columns + j];
    out[at] = (float)(sum / pixels);
}

/* The chunks' sums as the epilogue's; chunk 0 has numbers, unless there is none: zeros. Of images: each has as many
   chunks, `pixels` numbers per column. */
static void mirt__cu_sums_finish(mirt__cu *cu, const mirt__cu_epilogue *epilogue, const mirt__cu_chunks *chunks,
                                 mirt__real *const *sum, int64_t images, int64_t pixels) {
    const mirt__cu_epilogue e = *epilogue;
    const mirt__cu_chunks from = *chunks;
    float *out0 = sum[0], *out1 = sum[1];
    if (e.sums == MIRT__SUMS_NONE || from.columns < 1) return;
    if (e.sums == MIRT__SUMS_IMAGES) {
        if (images < 1 || from.chunks < 1) return;
        const int64_t each = from.chunks / images;
        MIRT_LAUNCH(cu, mirt__cu_sums_images_kernel, (unsigned)mirt__cu_ceil(images * from.columns, 128), 128, 0, from,
                    each, (double)pixels, images, out0);
        return;
    }
    const int64_t groups = from.chunks > MIRT__CU_SUM_GROUP ? mirt__cu_ceil(from.chunks, MIRT__CU_SUM_GROUP) : 1;
    const dim3 grid((unsigned)mirt__cu_ceil(from.columns, 32), (unsigned)groups), block(32, MIRT__CU_SUM_LANES);
    MIRT_LAUNCH(cu, mirt__cu_sums_kernel, grid, block, 0, e, from, out0, out1);
    if (groups > 1)
        MIRT_LAUNCH(cu, mirt__cu_sums_groups_kernel, grid.x, block, 0, e, from, groups, out0, out1);
}

#endif

/* >>section cuda/layout.cuh */

#ifndef MIRT__CUDA_LAYOUT_CUH
#define MIRT__CUDA_LAYOUT_CUH
/* Kernels whose threads keep their columns (channels): N neighbors each, accessed at once. */

/* A block of across * down threads: thread t has vector t % across of the block's columns, and every down-th of its
   rows. */
typedef struct mirt__cu_layout {
    int across, down;
    unsigned blocks; /* side by side, for all columns */
} mirt__cu_layout;
static inline mirt__cu_layout mirt__cu_layout_of(int64_t vectors, int most, int threads) {
    mirt__cu_layout c;
    c.blocks = (unsigned)mirt__cu_ceil(vectors < 1 ? 1 : vectors, most);
    c.across = (int)mirt__cu_ceil(vectors < 1 ? 1 : vectors, (int64_t)c.blocks);
    c.down = threads / c.across < 1 ? 1 : threads / c.across;
    return c;
}

/* What a grid goes over: lines of pixels, whose channels are taken N at a time. */
typedef struct mirt__cu_pixels {
    int64_t lines; /* of all images, below 2^31 */
    mirt__cu_divisor by_lines, by_vectors; /* lines of an image; vectors of a pixel */
    int items, across, down; /* of a line: vectors; of a block: those at a time, and lines */
} mirt__cu_pixels;
/* *grid: blocks of so many *threads; 0 where there is nothing. */
static void mirt__cu_pixels_of(mirt__cu_pixels *p, int64_t images, int64_t height, int64_t width, int64_t vectors,
                               unsigned *grid, unsigned *threads) {
    p->lines = images * height;
    p->by_lines = mirt__cu_divisor_of(height);
    p->by_vectors = mirt__cu_divisor_of(vectors);
    p->items = (int)(width * vectors);
    p->across = p->items < 256 ? p->items < 1 ? 1 : p->items : 256;
    p->down = 256 / p->across;
    const int64_t blocks = mirt__cu_ceil(p->lines, p->down);
    *grid = (unsigned)(p->items == 0 ? 0 : blocks < 1 << 20 ? blocks : 1 << 20);
    *threads = (unsigned)(p->across * p->down);
}
#define MIRT__CU_PIXELS_EACH(a) \
    for (int64_t line = (int64_t)blockIdx.x * a.down + (int)threadIdx.x / a.across; line < a.lines; \
         line += (int64_t)gridDim.x * a.down) \
        for (int item = (int)threadIdx.x % a.across; item < a.items; item += a.across)
/* There: N channels from `c` on of pixel `column` of row `y` of image `image`. */
#define MIRT__CU_PIXELS_PLACE(a) \
    const int64_t image = mirt__cu_divide32((uint32_t)line, a.by_lines), y = line - image * a.by_lines.by; \
    const int column = (int)mirt__cu_divide32((uint32_t)item, a.by_vectors), \
              c = (item - column * (int)a.by_vectors.by) * N;

/* Windows of an image that are pooled or convolved. */
typedef struct mirt__cu_windows {
    int h, w, oh, ow, kh, kw, stride_h, stride_w, top, left; /* top, left: padding */
} mirt__cu_windows;
template <class S> static void mirt__cu_windows_of(mirt__cu_windows *p, const S *s) {
    p->h = (int)s->h;
    p->w = (int)s->w;
    p->oh = (int)s->oh;
    p->ow = (int)s->ow;
    p->kh = s->kh;
    p->kw = s->kw;
    p->stride_h = s->stride_h;
    p->stride_w = s->stride_w;
    p->top = (int)s->pad_top;
    p->left = (int)s->pad_left;
}

/* Whether pixels of y are made of those of x. */
static bool mirt__cu_pixelwise(const mirt__conv *s) {
    return s->kh == 1 && s->kw == 1 && s->stride_h == 1 && s->stride_w == 1 && s->pad_top == 0 && s->pad_left == 0 &&
           s->oh == s->h && s->ow == s->w;
}

/* What the compiler knows of the dtypes of a kernel's tensors. */
typedef enum mirt__cu_dtypes {
    MIRT__CU_FLOATS, MIRT__CU_HALVES /* bfloat16 */, MIRT__CU_FLOAT16S, MIRT__CU_EITHER
} mirt__cu_dtypes;
static inline mirt__cu_dtypes mirt__cu_dtypes_of(mirt_dtype dtype) {
    return (int)dtype == MIRT__FLOAT16    ? MIRT__CU_FLOAT16S
           : (int)dtype == MIRT__BFLOAT16 ? MIRT__CU_HALVES
                                          : MIRT__CU_FLOATS;
}
#define MIRT__CU_ARE(dtypes, one) (DTYPES == dtypes || (DTYPES == MIRT__CU_EITHER && (int)dtype == one))
template <int DTYPES, int N>
static inline __device__ void mirt__cu_get(const void *x, mirt_dtype dtype, int64_t at, float *to) {
    if (MIRT__CU_ARE(MIRT__CU_HALVES, MIRT__BFLOAT16)) mirt__cu_load_n<N>(static_cast<const uint16_t *>(x) + at, to);
    else if (MIRT__CU_ARE(MIRT__CU_FLOAT16S, MIRT__FLOAT16))
        mirt__cu_load_n<N>(static_cast<const mirt__cu_f16 *>(x) + at, to);
    else mirt__cu_load_n<N>(static_cast<const float *>(x) + at, to);
}
template <int DTYPES, int N>
static inline __device__ void mirt__cu_put(void *y, mirt_dtype dtype, int64_t at, const float *from) {
    if (MIRT__CU_ARE(MIRT__CU_HALVES, MIRT__BFLOAT16)) mirt__cu_store_n<N>(static_cast<uint16_t *>(y) + at, from);
    else if (MIRT__CU_ARE(MIRT__CU_FLOAT16S, MIRT__FLOAT16))
        mirt__cu_store_n<N>(static_cast<mirt__cu_f16 *>(y) + at, from);
    else mirt__cu_store_n<N>(static_cast<float *>(y) + at, from);
}
#undef MIRT__CU_ARE
/* N numbers as they lie in memory, which take their time to come, and what they are. */
template <int DTYPES> static inline __device__ mirt_dtype mirt__cu_dtype_of(mirt_dtype dtype) {
    return DTYPES == MIRT__CU_EITHER ? dtype
                                     : (mirt_dtype)(DTYPES == MIRT__CU_FLOAT16S ? (int)MIRT__FLOAT16
                                                    : DTYPES == MIRT__CU_HALVES ? (int)MIRT__BFLOAT16
                                                                                : (int)MIRT_FLOAT32);
}
template <int DTYPES, int N>
static inline __device__ void mirt__cu_fetch_of(const void *x, mirt_dtype dtype, int64_t at, uint32_t *words) {
    mirt__cu_fetch_words<N>(x, mirt__cu_dtype_of<DTYPES>(dtype), at, words);
}
template <int DTYPES, int N>
static inline __device__ void mirt__cu_make_of(const uint32_t *words, mirt_dtype dtype, float *to) {
    mirt__cu_make_words<N>(words, mirt__cu_dtype_of<DTYPES>(dtype), to);
}

/* Sums of `count` numbers of each thread over the rows of threads of a block, by a tree: row 0 gets them. `room`: count
   floats for each thread. */
static inline __device__ void mirt__cu_down_sum(float *x, int count, int across, int down, float *room) {
    const int t = (int)threadIdx.x, all = across * down, row = t / across;
    for (int i = 0; i < count; i++) room[i * all + t] = x[i];
    for (int left = down; left > 1;) {
        const int half = (left + 1) / 2;
        __syncthreads();
        if (row + half < left) {
            for (int i = 0; i < count; i++) room[i * all + t] += room[i * all + t + half * across];
        }
        left = half;
    }
    if (row > 0) return;
    for (int i = 0; i < count; i++) x[i] = room[i * all + t];
}

#endif

/* >>section cuda/norm.cu */

/* Batch and layer normalization on their own. */

#define MIRT__CU_NORM_BLOCKS 1056 /* of a pass: four or eight for each of 132 processors */
#define MIRT__CU_NORM_CHUNK 64    /* rows whose sums one block takes, at least, */
#define MIRT__CU_NORM_CHUNKS 1024 /* so that there are no more of them */

struct mirt__cu_norm_call : mirt__norm {
    int across;
    int64_t chunk;
    float *part; /* [chunks][2 or 3][n] */
    int down;
};

/* The constants of a normalization in some columns; by rows mean is 0, factor gamma. */
template <int N> struct mirt__cu_norm_column {
    float mean[N], factor[N], offset[N];
};
template <int N>
static inline __device__ void mirt__cu_norm_columns(const mirt__cu_norm_call &a, int64_t column,
                                                    mirt__cu_norm_column<N> *k) {
#pragma unroll
    for (int v = 0; v < N; v++) {
        k->mean[v] = a.by_row ? 0.0f : a.mean[column + v];
        k->factor[v] = a.gamma ? a.gamma[column + v] : 1.0f;
        if (!a.by_row)
            k->factor[v] = __fmul_rn(k->factor[v], mirt__cu_norm_inverse_of(a.variance[column + v], a.epsilon));
        k->offset[v] = a.beta ? a.beta[column + v] : 0.0f;
    }
}

/* Rows that a thread asks for before it works on them: with fewer, memory waits. Activations that need calls are left
   to kernels for one row at a time, which would be too large otherwise. */
#define MIRT__CU_NORM_ROWS 4

/* y = activation(u + add). SIMPLE: an activation of mirt__cu_simple. */
template <int DTYPES, int N, bool SIMPLE>
static __global__ __launch_bounds__(256, DTYPES == MIRT__CU_FLOATS ? 2 : 4)
    void mirt__cu_norm_apply(mirt__cu_norm_call a) {
    const int rows = SIMPLE ? MIRT__CU_NORM_ROWS : 1, lane = (int)threadIdx.x % a.across;
    const int64_t column = ((int64_t)blockIdx.y * a.across + lane) * N, step = (int64_t)gridDim.x * a.down,
                  next = step * a.n;
    if (column >= a.n) return;
    mirt__cu_norm_column<N> k;
    mirt__cu_norm_columns<N>(a, column, &k);
    for (int64_t row = (int64_t)blockIdx.x * a.down + (int)threadIdx.x / a.across; row < a.rows;
         row += rows * step) {
        const int64_t at = row * a.n + column;
        uint32_t x_words[rows][N], add_words[rows][N];
#pragma unroll
        for (int i = 0; i < rows; i++) {
            if (row + i * step >= a.rows) break;
            mirt__cu_fetch_of<DTYPES, N>(a.x, a.x_dtype, at + i * next, x_words[i]);
            if (a.add) mirt__cu_fetch_of<DTYPES, N>(a.add, a.add_dtype, at + i * next, add_words[i]);
        }
#pragma unroll
        for (int i = 0; i < rows; i++) {
            float x[N];
            if (row + i * step >= a.rows) break;
            mirt__cu_make_of<DTYPES, N>(x_words[i], a.x_dtype, x);
            if (a.by_row) {
                const float mean = a.mean[row + i * step],
                            inverse = mirt__cu_norm_inverse_of(a.variance[row + i * step], a.epsilon);
#pragma unroll
                for (int v = 0; v < N; v++) x[v] = __fmul_rn(x[v] - mean, inverse);
            }
#pragma unroll
            for (int v = 0; v < N; v++) x[v] = __fadd_rn(__fmul_rn(x[v] - k.mean[v], k.factor[v]), k.offset[v]);
            if (a.add) {
                float add[N];
                mirt__cu_make_of<DTYPES, N>(add_words[i], a.add_dtype, add);
#pragma unroll
                for (int v = 0; v < N; v++) x[v] += add[v];
            }
            mirt__cu_activate_n<N, SIMPLE>(a.activation, x);
            mirt__cu_put<DTYPES, N>(a.y, a.y_dtype, at + i * next, x);
        }
    }
}

/* The gradient of x, of columns. */
template <int DTYPES, int N, bool SIMPLE>
static __global__ __launch_bounds__(256, 2) void mirt__cu_norm_back(mirt__cu_norm_call a) {
    const int rows = SIMPLE ? MIRT__CU_NORM_ROWS : 1, lane = (int)threadIdx.x % a.across;
    const int64_t column = ((int64_t)blockIdx.y * a.across + lane) * N, step = (int64_t)gridDim.x * a.down,
                  next = step * a.n;
    if (column >= a.n) return;
    mirt__cu_norm_column<N> k;
    float less[N], part[N];
    mirt__cu_norm_columns<N>(a, column, &k);
    const double share = a.sum[0] ? 1 / a.count : 0;
#pragma unroll
    for (int v = 0; v < N; v++) {
        less[v] = a.sum[0] ? (float)((double)a.sum[0][column + v] * share) : 0.0f;
        part[v] = a.sum[0] ? (float)((double)a.sum[1][column + v] * share) *
                                 mirt__cu_norm_inverse_of(a.variance[column + v], a.epsilon)
                           : 0.0f;
    }
    for (int64_t row = (int64_t)blockIdx.x * a.down + (int)threadIdx.x / a.across; row < a.rows;
         row += rows * step) {
        const int64_t at = row * a.n + column;
        uint32_t x_words[rows][N], g_words[rows][N];
#pragma unroll
        for (int i = 0; i < rows; i++) {
            if (row + i * step >= a.rows) break;
            mirt__cu_fetch_of<DTYPES, N>(a.x, a.x_dtype, at + i * next, x_words[i]);
            mirt__cu_fetch_of<DTYPES, N>(a.dy, a.dy_dtype, at + i * next, g_words[i]);
        }
#pragma unroll
        for (int i = 0; i < rows; i++) {
            float x[N], g[N], u[N];
            if (row + i * step >= a.rows) break;
            mirt__cu_make_of<DTYPES, N>(x_words[i], a.x_dtype, x);
            mirt__cu_make_of<DTYPES, N>(g_words[i], a.dy_dtype, g);
#pragma unroll
            for (int v = 0; v < N; v++) {
                x[v] -= k.mean[v];
                u[v] = __fadd_rn(__fmul_rn(x[v], k.factor[v]), k.offset[v]);
            }
            mirt__cu_times_slope_n<N, SIMPLE>(a.activation, g, u);
#pragma unroll
            for (int v = 0; v < N; v++) g[v] = (g[v] - less[v] - x[v] * part[v]) * k.factor[v];
            mirt__cu_put<DTYPES, N>(a.y, a.y_dtype, at + i * next, g);
        }
    }
}

/* >>sums of columns */

typedef enum mirt__cu_norm_sum {
    MIRT__CU_NORM_MOMENTS, MIRT__CU_NORM_GRADIENT, MIRT__CU_NORM_GRADIENT_BY_ROW
} mirt__cu_norm_sum;

/* Of the chunk of rows blockIdx.x. Moments: its first row, and the sums of what differs from it and of its squares. */
template <int DTYPES, int N, int SUM>
static __global__ __launch_bounds__(256) void mirt__cu_norm_sums(mirt__cu_norm_call a) {
    MIRT_DYNAMIC_SHARED(float, room);
    const int lane = (int)threadIdx.x % a.across;
    const int64_t column = ((int64_t)blockIdx.y * a.across + lane) * N, first = (int64_t)blockIdx.x * a.chunk;
    const int64_t end = a.rows - first < a.chunk ? a.rows : first + a.chunk;
    const bool live = column < a.n;
    mirt__cu_norm_column<N> k;
    float sum[2 * N] = {0};
    if (live && SUM == MIRT__CU_NORM_MOMENTS) mirt__cu_get<DTYPES, N>(a.x, a.x_dtype, first * a.n + column, k.mean);
    else if (live) mirt__cu_norm_columns<N>(a, column, &k);
    for (int64_t row = first + (int)threadIdx.x / a.across; live && row < end; row += 2 * a.down) {
        float x[2][N], g[2][N];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (row + i * a.down >= end) break;
            mirt__cu_get<DTYPES, N>(a.x, a.x_dtype, (row + i * a.down) * a.n + column, x[i]);
            if (SUM != MIRT__CU_NORM_MOMENTS)
                mirt__cu_get<DTYPES, N>(a.dy, a.dy_dtype, (row + i * a.down) * a.n + column, g[i]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (row + i * a.down >= end) break;
            if (SUM == MIRT__CU_NORM_MOMENTS) {
#pragma unroll
                for (int v = 0; v < N; v++) {
                    const float away = x[i][v] - k.mean[v];
                    sum[v] += away;
                    sum[N + v] = fmaf(away, away, sum[N + v]);
                }
                continue;
            }
            const float mean = SUM == MIRT__CU_NORM_GRADIENT_BY_ROW ? a.mean[row + i * a.down] : 0.0f;
            const float inverse = SUM == MIRT__CU_NORM_GRADIENT_BY_ROW
                                      ? mirt__cu_norm_inverse_of(a.variance[row + i * a.down], a.epsilon)
                                      : 0.0f;
            float u[N];
#pragma unroll
            for (int v = 0; v < N; v++) {
                x[i][v] = SUM == MIRT__CU_NORM_GRADIENT_BY_ROW ? __fmul_rn(x[i][v] - mean, inverse)
                                                               : x[i][v] - k.mean[v];
                u[v] = __fadd_rn(__fmul_rn(x[i][v], k.factor[v]), k.offset[v]);
            }
            mirt__cu_times_slope_n<N>(a.activation, g[i], u);
#pragma unroll
            for (int v = 0; v < N; v++) {
                sum[v] += g[i][v];
                sum[N + v] = fmaf(g[i][v], x[i][v], sum[N + v]);
            }
        }
    }
    mirt__cu_down_sum(sum, 2 * N, a.across, a.down, room);
    if (!live || (int)threadIdx.x >= a.across) return;
    float *part = a.part + (int64_t)blockIdx.x * (SUM == MIRT__CU_NORM_MOMENTS ? 3 : 2) * a.n + column;
    if (SUM == MIRT__CU_NORM_MOMENTS) {
#pragma unroll
        for (int v = 0; v < N; v++) part[v] = k.mean[v];
        part += a.n;
    }
#pragma unroll
    for (int v = 0; v < N; v++) {
        part[v] = sum[v];
        part[a.n + v] = sum[N + v];
    }
}

/* The sum over the block's rows of threads, of MIRT__CU_FINISH_COLUMNS each; all get it. */
#define MIRT__CU_FINISH_COLUMNS 8
#define MIRT__CU_FINISH_MOST 128
static inline __device__ double mirt__cu_finish_sum(double x, double *room) {
    const int t = (int)threadIdx.x;
    __syncthreads();
    room[t] = x;
    for (int half = (int)blockDim.x / MIRT__CU_FINISH_COLUMNS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half * MIRT__CU_FINISH_COLUMNS) room[t] += room[t + half * MIRT__CU_FINISH_COLUMNS];
    }
    __syncthreads();
    return room[t % MIRT__CU_FINISH_COLUMNS];
}

/* All chunks' sums in double: the mean first, then what the chunks' squares are about it, all of one sign. */
template <int SUM>
static __global__ __launch_bounds__(MIRT__CU_FINISH_COLUMNS *MIRT__CU_FINISH_MOST) void mirt__cu_norm_finish(
    mirt__cu_norm_call a, int64_t chunks) {
    MIRT_SHARED(double, room, MIRT__CU_FINISH_COLUMNS * MIRT__CU_FINISH_MOST);
    const int64_t column = (int64_t)blockIdx.x * MIRT__CU_FINISH_COLUMNS + (int)threadIdx.x % MIRT__CU_FINISH_COLUMNS;
    const int64_t first = (int)threadIdx.x / MIRT__CU_FINISH_COLUMNS, step = (int)blockDim.x / MIRT__CU_FINISH_COLUMNS;
    const int64_t wide = (SUM == MIRT__CU_NORM_MOMENTS ? 3 : 2) * a.n;
    const bool live = column < a.n;
    const float *part = a.part + column;
    double one = 0, two = 0;
    if (SUM == MIRT__CU_NORM_MOMENTS) {
        for (int64_t chunk = first; live && chunk < chunks; chunk += step) {
            const int64_t left = a.rows - chunk * a.chunk, rows = left < a.chunk ? left : a.chunk;
            one += (double)part[chunk * wide] * (double)rows + (double)part[chunk * wide + a.n];
        }
        one = mirt__cu_finish_sum(one, room);
        if (a.rows > 0) one /= (double)a.rows;
        const double share = 1 / (double)a.chunk;
        for (int64_t chunk = first; live && chunk < chunks; chunk += step) {
            const int64_t left = a.rows - chunk * a.chunk, rows = left < a.chunk ? left : a.chunk;
            const double sum = (double)part[chunk * wide + a.n],
                         average = rows < a.chunk ? sum / (double)rows : sum * share;
            const double away = (double)part[chunk * wide] - one + average,
                         squares = (double)part[chunk * wide + 2 * a.n] - average * sum;
            two += (squares < 0 ? 0 : squares) + away * away * (double)rows;
        }
        two = mirt__cu_finish_sum(two, room);
        if (a.rows > 0) two /= (double)a.rows;
    } else {
        for (int64_t chunk = first; live && chunk < chunks; chunk += step) {
            one += (double)part[chunk * wide];
            two += (double)part[chunk * wide + a.n];
        }
        one = mirt__cu_finish_sum(one, room);
        two = mirt__cu_finish_sum(two, room);
        if (SUM == MIRT__CU_NORM_GRADIENT && live) two /= sqrt((double)a.variance[column] + (double)a.epsilon);
    }
    if (!live || first > 0) return;
    a.out[0][column] = (float)one;
    a.out[1][column] = (float)two;
}

/* >>by rows, of float32: a block each */

template <int N> static __global__ void mirt__cu_norm_row_stats(mirt__cu_norm_call a) {
    MIRT_SHARED(double, room, 32);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *x = static_cast<const float *>(a.x) + row * a.n;
        const float shift = a.n > 0 ? x[0] : 0.0f;
        float sum = 0, squares = 0, away[N];
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_load_n<N>(x + j, away);
#pragma unroll
            for (int v = 0; v < N; v++) sum += away[v] - shift;
        }
        const double mean = (double)shift + mirt__cu_block_sum((double)sum, room) / (double)a.n;
        /* About the rounded mean, and what that rounding makes. */
        const float middle = (float)mean;
        sum = 0;
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_load_n<N>(x + j, away);
#pragma unroll
            for (int v = 0; v < N; v++) {
                away[v] -= middle;
                sum += away[v];
                squares = fmaf(away[v], away[v], squares);
            }
        }
        const double rest = mirt__cu_block_sum((double)sum, room) / (double)a.n,
                     all = mirt__cu_block_sum((double)squares, room) / (double)a.n - rest * rest;
        if (threadIdx.x > 0) continue;
        a.out[0][row] = a.n > 0 ? (float)((double)middle + rest) : 0.0f;
        a.out[1][row] = a.n > 0 && all > 0 ? (float)all : 0.0f;
    }
}

/* dhat, and hat in place of x. */
template <int N>
static inline __device__ void mirt__cu_norm_row_read(const mirt__cu_norm_call &a, int64_t at, int64_t column,
                                                     float mean, float inverse, float *hat, float *g) {
    float u[N], gamma[N];
    mirt__cu_load_n<N>(static_cast<const float *>(a.x) + at, hat);
    mirt__cu_load_n<N>(static_cast<const float *>(a.dy) + at, g);
#pragma unroll
    for (int v = 0; v < N; v++) {
        hat[v] = __fmul_rn(hat[v] - mean, inverse);
        gamma[v] = a.gamma ? a.gamma[column + v] : 1.0f;
        u[v] = __fadd_rn(__fmul_rn(hat[v], gamma[v]),
                         a.beta && a.activation != MIRT_LINEAR ? a.beta[column + v] : 0.0f);
    }
    mirt__cu_times_slope_n<N>(a.activation, g, u);
#pragma unroll
    for (int v = 0; v < N; v++) g[v] *= gamma[v];
}
template <int N> static __global__ void mirt__cu_norm_row_back(mirt__cu_norm_call a) {
    MIRT_SHARED(double, room, 32);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float mean = a.mean[row], inverse = mirt__cu_norm_inverse_of(a.variance[row], a.epsilon);
        float sum = 0, product = 0, hat[N], g[N];
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_norm_row_read<N>(a, row * a.n + j, j, mean, inverse, hat, g);
#pragma unroll
            for (int v = 0; v < N; v++) {
                sum += g[v];
                product = fmaf(g[v], hat[v], product);
            }
        }
        const float less = (float)(mirt__cu_block_sum((double)sum, room) / (double)a.n),
                    part = (float)(mirt__cu_block_sum((double)product, room) / (double)a.n);
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.n; j += (int64_t)blockDim.x * N) {
            mirt__cu_norm_row_read<N>(a, row * a.n + j, j, mean, inverse, hat, g);
#pragma unroll
            for (int v = 0; v < N; v++) g[v] = (g[v] - less - hat[v] * part) * inverse;
            mirt__cu_store_n<N>(static_cast<float *>(a.y) + row * a.n + j, g);
        }
    }
}

/* >>calls */

/* Columns at once, at most `most`, where all that is accessed allows it; *dtypes. NULL stands for what is not. */
static int mirt__cu_norm_vector(const mirt__cu_norm_call *a, bool x, bool dy, bool y, int most, int *dtypes) {
    const void *const data[4] = {x ? a->x : NULL, dy ? a->dy : NULL, y ? a->add : NULL, y ? a->y : NULL};
    const mirt_dtype dtype[4] = {a->x_dtype, a->dy_dtype, a->add_dtype, a->y_dtype};
    const mirt_dtype one = x ? a->x_dtype : a->y_dtype;
    const int vector = mirt__cu_is_half(one) ? most : 4;
    bool all = a->n % vector == 0;
    for (int i = 0; i < 4; i++)
        all = all && (!data[i] || (dtype[i] == one && mirt__cu_aligned_for(data[i], one, vector)));
    *dtypes = all ? mirt__cu_dtypes_of(one) : MIRT__CU_EITHER;
    return all ? vector : 1;
}
/* Kernels by mirt__cu_dtypes. */
typedef void (*mirt__cu_norm_kernel)(mirt__cu_norm_call);
#define MIRT__CU_NORM_KERNELS(kernel, n, simple) \
    { \
        kernel<MIRT__CU_FLOATS, 4, simple>, kernel<MIRT__CU_HALVES, n, simple>, \
            kernel<MIRT__CU_FLOAT16S, n, simple>, kernel<MIRT__CU_EITHER, 1, simple> \
    }
/* Four columns at a time leave registers for twice as many threads, which memory needs where only x is read. */
static const mirt__cu_norm_kernel
    mirt__cu_norm_applies[2][4] = {MIRT__CU_NORM_KERNELS(mirt__cu_norm_apply, 4, false),
                                   MIRT__CU_NORM_KERNELS(mirt__cu_norm_apply, 4, true)},
    mirt__cu_norm_backs[2][4] = {MIRT__CU_NORM_KERNELS(mirt__cu_norm_back, 8, false),
                                 MIRT__CU_NORM_KERNELS(mirt__cu_norm_back, 8, true)};
#undef MIRT__CU_NORM_KERNELS

template <int SUM> static void mirt__cu_norm_column_sums(mirt__cu *cu, mirt__cu_norm_call *a) {
    static const mirt__cu_norm_kernel norm_sums[] = {
        mirt__cu_norm_sums<MIRT__CU_FLOATS, 4, SUM>, mirt__cu_norm_sums<MIRT__CU_HALVES, 8, SUM>,
        mirt__cu_norm_sums<MIRT__CU_FLOAT16S, 8, SUM>, mirt__cu_norm_sums<MIRT__CU_EITHER, 1, SUM>};
    int dtypes;
    const int64_t vector = mirt__cu_norm_vector(a, true, SUM != MIRT__CU_NORM_MOMENTS, false, 8, &dtypes);
    const mirt__cu_layout c = mirt__cu_layout_of(mirt__cu_ceil(a->n, vector), 64, 256);
    const int64_t most = MIRT__CU_NORM_CHUNKS / c.blocks > 1 ? MIRT__CU_NORM_CHUNKS / c.blocks : 1,
                  share = mirt__cu_ceil(a->rows, most);
    const int64_t wide = SUM == MIRT__CU_NORM_MOMENTS ? 3 : 2;
    if (a->n == 0) return;
    a->across = c.across;
    a->down = c.down;
    a->chunk = share > MIRT__CU_NORM_CHUNK ? share : MIRT__CU_NORM_CHUNK;
    const int64_t chunks = mirt__cu_ceil(a->rows, a->chunk);
    a->part = static_cast<float *>(mirt__cu_room(cu, (size_t)(chunks * wide * a->n) * sizeof(float)));
    const mirt__cu_norm_call call = *a;
    const dim3 grid((unsigned)chunks, c.blocks), block((unsigned)(c.across * c.down));
    const size_t shared = (size_t)(c.across * c.down) * 2 * (size_t)vector * sizeof(float);
    if (chunks > 0) MIRT_LAUNCH(cu, norm_sums[dtypes], grid, block, shared, call);
    int lanes = 4;
    while (lanes < MIRT__CU_FINISH_MOST && lanes < chunks) lanes *= 2;
    const unsigned blocks = (unsigned)mirt__cu_ceil(a->n, MIRT__CU_FINISH_COLUMNS),
                   threads = (unsigned)(lanes * MIRT__CU_FINISH_COLUMNS);
    MIRT_LAUNCH(cu, mirt__cu_norm_finish<SUM>, blocks, threads, 0, call, chunks);
}

/* A block for a row, whose threads take n numbers at a time. */
static void mirt__cu_norm_by_rows(mirt__cu *cu, mirt__cu_norm_kernel norm_of_rows, const mirt__cu_norm_call &a, int n) {
    const int64_t vectors = a.n / n;
    const unsigned threads = vectors > 1024 ? 256 : vectors > 512 ? 128 : vectors > 256 ? 64 : 32;
    MIRT_LAUNCH(cu, norm_of_rows, (unsigned)(a.rows > 1 << 20 ? 1 << 20 : a.rows), threads, 0, a);
}

static void mirt__cu_norm_stats(const mirt__norm *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    if (!args->by_row) return mirt__cu_norm_column_sums<MIRT__CU_NORM_MOMENTS>(cu, &a);
    if (a.rows == 0) return;
    const bool four = a.n % 4 == 0 && mirt__cu_aligned(a.x, 16);
    mirt__cu_norm_by_rows(cu, four ? mirt__cu_norm_row_stats<4> : mirt__cu_norm_row_stats<1>, a, four ? 4 : 1);
}

/* A pass over rows. Each thread takes several, so that it computes the constants of its columns once. */
static void mirt__cu_norm_pass(mirt__cu *cu, mirt__cu_norm_kernel norm_of_columns, mirt__cu_norm_call a, int vector) {
    const mirt__cu_layout c = mirt__cu_layout_of(mirt__cu_ceil(a.n, vector), 256, 256);
    const int64_t blocks = mirt__cu_ceil(a.rows, (int64_t)c.down * MIRT__CU_NORM_ROWS),
                  most = c.blocks < 512 ? MIRT__CU_NORM_BLOCKS / (int64_t)c.blocks : 2;
    a.across = c.across;
    a.down = c.down;
    MIRT_LAUNCH(cu, norm_of_columns, dim3((unsigned)(blocks < most ? blocks : most), c.blocks), c.across * c.down, 0,
                a);
}

static void mirt__cu_normalize(const mirt__norm *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    int dtypes;
    const int vector = mirt__cu_norm_vector(&a, true, false, true, 4, &dtypes);
    if (a.rows > 0 && a.n > 0)
        mirt__cu_norm_pass(cu, mirt__cu_norm_applies[mirt__cu_simple(a.activation)][dtypes], a, vector);
}

static void mirt__cu_norm_grad_sums(const mirt__norm *args, const mirt__where *where) {
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    if (args->by_row) mirt__cu_norm_column_sums<MIRT__CU_NORM_GRADIENT_BY_ROW>(mirt__cu_of(where), &a);
    else mirt__cu_norm_column_sums<MIRT__CU_NORM_GRADIENT>(mirt__cu_of(where), &a);
}

static void mirt__cu_norm_grad_input(const mirt__norm *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_norm_call a = {*args, 0, 0, NULL, 0};
    int dtypes;
    a.add = NULL;
    const int vector = mirt__cu_norm_vector(&a, true, true, true, 8, &dtypes);
    if (a.rows == 0 || a.n == 0) return;
    if (!args->by_row) mirt__cu_norm_pass(cu, mirt__cu_norm_backs[mirt__cu_simple(a.activation)][dtypes], a, vector);
    else if (vector == 4) mirt__cu_norm_by_rows(cu, mirt__cu_norm_row_back<4>, a, 4);
    else mirt__cu_norm_by_rows(cu, mirt__cu_norm_row_back<1>, a, 1);
}
#undef MIRT__CU_NORM_BLOCKS
#undef MIRT__CU_NORM_CHUNK
#undef MIRT__CU_NORM_CHUNKS
#undef MIRT__CU_NORM_ROWS

/* >>section cuda/pool.cu */

/* Max and average pooling and their gradients. A thread owns N neighboring channels of a pixel; gradients gather from
   the windows that contain the pixel. */

struct mirt__cu_pool_call : mirt__cu_pixels, mirt__cu_windows {
    int64_t x_image, y_image; /* numbers in an image of x, of y (as in the forward call) */
    int c;
    const void *x;
    void *y, *which;
    mirt_dtype dtype;
};

/* Places in windows. */
template <int N, class PLACE> static inline __device__ void mirt__cu_pool_store(PLACE *to, const int *place) {
    if constexpr (sizeof(PLACE) == 1 && N >= 4) {
        mirt__cu_bytes<N> bytes;
#pragma unroll
        for (int v = 0; v < N; v += 4)
            bytes.word[v / 4] = (uint32_t)place[v] | (uint32_t)place[v + 1] << 8 | (uint32_t)place[v + 2] << 16 |
                                (uint32_t)place[v + 3] << 24;
        mirt__cu_store_bytes<N>(to, bytes);
    } else {
#pragma unroll
        for (int v = 0; v < N; v++) to[v] = (PLACE)place[v];
    }
}
/* Place v of N as mirt__cu_fetch_as has read them. */
template <int N, class PLACE> static inline __device__ int mirt__cu_pool_place(const uint32_t *words, int v) {
    return (int)(sizeof(PLACE) == 1 && N >= 4 ? words[v / 4] >> v % 4 * 8 & 255 : words[v]);
}

/* The part [first, end) of a window's kernel that lies inside. */
static inline __device__ int mirt__cu_pool_first(int start) { return start < 0 ? -start : 0; }
static inline __device__ int mirt__cu_pool_end(int start, int kernel, int size) {
    return size - start < kernel ? size - start : kernel;
}
/* The windows [first, end) that place `at` (padding counted) lies in. */
static inline __device__ int mirt__cu_pool_behind(int at, int kernel, int stride) {
    return at < kernel ? 0 : (at - kernel) / stride + 1;
}
static inline __device__ int mirt__cu_pool_beyond(int at, int stride, int windows) {
    return at / stride + 1 < windows ? at / stride + 1 : windows;
}

template <int DTYPES, int N, class PLACE>
static __global__ __launch_bounds__(256) void mirt__cu_pool_max(mirt__cu_pool_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int top = (int)y * a.stride_h - a.top, left = column * a.stride_w - a.left;
        const int ky1 = mirt__cu_pool_end(top, a.kh, a.h), kx1 = mirt__cu_pool_end(left, a.kw, a.w);
        float best[N], value[N];
        int place[N];
#pragma unroll
        for (int v = 0; v < N; v++) {
            best[v] = -INFINITY;
            place[v] = 0;
        }
        bool first = true;
        for (int ky = mirt__cu_pool_first(top); ky < ky1; ky++) {
            for (int kx = mirt__cu_pool_first(left); kx < kx1; kx++, first = false) {
                mirt__cu_get<DTYPES, N>(a.x, a.dtype,
                                        image * a.x_image + ((int64_t)(top + ky) * a.w + left + kx) * a.c + c, value);
#pragma unroll
                for (int v = 0; v < N; v++) {
                    const bool more = value[v] > best[v] || first;
                    best[v] = more ? value[v] : best[v];
                    place[v] = more ? ky * a.kw + kx : place[v];
                }
            }
        }
        const int64_t at = image * a.y_image + (y * a.ow + column) * a.c + c;
        mirt__cu_put<DTYPES, N>(a.y, a.dtype, at, best);
        mirt__cu_pool_store<N, PLACE>(static_cast<PLACE *>(a.which) + at, place);
    }
}

template <int DTYPES, int N, class PLACE>
static __global__ __launch_bounds__(256) void mirt__cu_pool_max_back(mirt__cu_pool_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int down = (int)y + a.top, right = column + a.left;
        const int oy1 = mirt__cu_pool_beyond(down, a.stride_h, a.oh),
                  ox0 = mirt__cu_pool_behind(right, a.kw, a.stride_w),
                  ox1 = mirt__cu_pool_beyond(right, a.stride_w, a.ow);
        float sum[N] = {0};
        /* Two by two windows at a time, all asked for before the first is looked at. */
        for (int oy = mirt__cu_pool_behind(down, a.kh, a.stride_h); oy < oy1; oy += 2) {
            for (int ox = ox0; ox < ox1; ox += 2) {
                uint32_t places[4][N], dy_words[4][N];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int64_t at = image * a.y_image + ((int64_t)(oy + i / 2) * a.ow + ox + i % 2) * a.c + c;
                    if (oy + i / 2 >= oy1 || ox + i % 2 >= ox1) continue;
                    mirt__cu_fetch_as<N>(static_cast<const PLACE *>(a.which) + at, places[i]);
                    mirt__cu_fetch_of<DTYPES, N>(a.x, a.dtype, at, dy_words[i]);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int mine = (down - (oy + i / 2) * a.stride_h) * a.kw + right - (ox + i % 2) * a.stride_w;
                    float dy[N];
                    if (oy + i / 2 >= oy1 || ox + i % 2 >= ox1) continue;
                    mirt__cu_make_of<DTYPES, N>(dy_words[i], a.dtype, dy);
#pragma unroll
                    for (int v = 0; v < N; v++)
                        sum[v] += mirt__cu_pool_place<N, PLACE>(places[i], v) == mine ? dy[v] : 0.0f;
                }
            }
        }
        mirt__cu_put<DTYPES, N>(a.y, a.dtype, image * a.x_image + (y * a.w + column) * a.c + c, sum);
    }
}

template <int N> static __global__ __launch_bounds__(256) void mirt__cu_pool_average(mirt__cu_pool_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int top = (int)y * a.stride_h - a.top, left = column * a.stride_w - a.left;
        const int ky0 = mirt__cu_pool_first(top), kx0 = mirt__cu_pool_first(left),
                  ky1 = mirt__cu_pool_end(top, a.kh, a.h), kx1 = mirt__cu_pool_end(left, a.kw, a.w);
        float sum[N] = {0}, value[N];
        for (int ky = ky0; ky < ky1; ky++) {
            for (int kx = kx0; kx < kx1; kx++) {
                mirt__cu_load_n<N>(static_cast<const float *>(a.x) + image * a.x_image +
                                       ((int64_t)(top + ky) * a.w + left + kx) * a.c + c,
                                   value);
#pragma unroll
                for (int v = 0; v < N; v++) sum[v] += value[v];
            }
        }
        const float count = (float)((ky1 - ky0) * (kx1 - kx0));
#pragma unroll
        for (int v = 0; v < N; v++) sum[v] /= count;
        mirt__cu_store_n<N>(static_cast<float *>(a.y) + image * a.y_image + (y * a.ow + column) * a.c + c, sum);
    }
}

template <int N> static __global__ __launch_bounds__(256) void mirt__cu_pool_average_back(mirt__cu_pool_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int down = (int)y + a.top, right = column + a.left;
        const int oy1 = mirt__cu_pool_beyond(down, a.stride_h, a.oh),
                  ox0 = mirt__cu_pool_behind(right, a.kw, a.stride_w),
                  ox1 = mirt__cu_pool_beyond(right, a.stride_w, a.ow);
        float sum[N] = {0}, dy[N];
        for (int oy = mirt__cu_pool_behind(down, a.kh, a.stride_h); oy < oy1; oy++) {
            const int top = oy * a.stride_h - a.top,
                      rows = mirt__cu_pool_end(top, a.kh, a.h) - mirt__cu_pool_first(top);
            for (int ox = ox0; ox < ox1; ox++) {
                const int left = ox * a.stride_w - a.left,
                          columns = mirt__cu_pool_end(left, a.kw, a.w) - mirt__cu_pool_first(left);
                const float count = (float)(rows * columns);
                mirt__cu_load_n<N>(
                    static_cast<const float *>(a.x) + image * a.y_image + ((int64_t)oy * a.ow + ox) * a.c + c, dy);
#pragma unroll
                for (int v = 0; v < N; v++) sum[v] += dy[v] / count;
            }
        }
        mirt__cu_store_n<N>(static_cast<float *>(a.y) + image * a.x_image + (y * a.w + column) * a.c + c, sum);
    }
}

/* Kernels of vectors by mirt__cu_dtypes, then that of places in int32. */
typedef void (*const mirt__cu_pool_kernels[MIRT__CU_EITHER + 2])(mirt__cu_pool_call);

static void mirt__cu_pool_run(const mirt__pool2d *p, bool back, const mirt__cu_pool_kernels kernels,
                              const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const bool wide = (int64_t)p->kh * p->kw > UINT8_MAX + 1;
    const int vector = mirt__cu_is_half(p->dtype) ? 8 : 4;
    const bool whole = p->c % vector == 0 && mirt__cu_aligned(p->x, 16) && mirt__cu_aligned(p->y, 16) && !wide &&
                       mirt__cu_aligned(p->which, vector);
    const auto pooling = kernels[wide ? MIRT__CU_EITHER + 1 : whole ? mirt__cu_dtypes_of(p->dtype) : MIRT__CU_EITHER];
    mirt__cu_pool_call a;
    unsigned grid, threads;
    memset(&a, 0, sizeof a);
    mirt__cu_windows_of(&a, p);
    a.c = (int)p->c;
    a.x = p->x;
    a.y = p->y;
    a.which = p->which;
    a.dtype = p->dtype;
    a.x_image = p->h * p->w * p->c;
    a.y_image = p->oh * p->ow * p->c;
    mirt__cu_pixels_of(&a, p->rows, back ? p->h : p->oh, back ? p->w : p->ow, p->c / (whole ? vector : 1), &grid,
                       &threads);
    if (grid > 0) MIRT_LAUNCH(cu, pooling, grid, threads, 0, a);
}
#define MIRT__CU_MAX_POOLS(kernel) \
    {kernel<MIRT__CU_FLOATS, 4, uint8_t>, kernel<MIRT__CU_HALVES, 8, uint8_t>, \
     kernel<MIRT__CU_FLOAT16S, 8, uint8_t>, kernel<MIRT__CU_EITHER, 1, uint8_t>, kernel<MIRT__CU_EITHER, 1, int32_t>}
static void mirt__cu_max_pool(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_MAX_POOLS(mirt__cu_pool_max);
    mirt__cu_pool_run(args, false, kernels, where);
}
static void mirt__cu_max_pool_grad(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_MAX_POOLS(mirt__cu_pool_max_back);
    mirt__cu_pool_run(args, true, kernels, where);
}
#undef MIRT__CU_MAX_POOLS
#define MIRT__CU_AVERAGE_POOLS(kernel) {kernel<4>, NULL, NULL, kernel<1>, kernel<1>}
static void mirt__cu_average_pool(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_AVERAGE_POOLS(mirt__cu_pool_average);
    mirt__cu_pool_run(args, false, kernels, where);
}
static void mirt__cu_average_pool_grad(const mirt__pool2d *args, const mirt__where *where) {
    static const mirt__cu_pool_kernels kernels = MIRT__CU_AVERAGE_POOLS(mirt__cu_pool_average_back);
    mirt__cu_pool_run(args, true, kernels, where);
}
#undef MIRT__CU_AVERAGE_POOLS

/* >>section cuda/resize.cu */

/* Images of another size: a thread has N neighboring channels of a pixel. Gradients gather from the outputs that read
   it. */

struct mirt__cu_resize_call : mirt__cu_pixels {
    int h, w, c, oh, ow;
    bool bilinear;
    const float *x;
    float *y;
};

typedef struct mirt__cu_between {
    int low, high;
    float part;
} mirt__cu_between;
/* Where output o reads an axis, as mirt__resize_at: in units of half an output step, in numbers of type I. */
template <class I> static inline __device__ mirt__cu_between mirt__cu_resize_at(I o, I in, I out, bool bilinear) {
    const I center = (2 * o + 1) * in, at = center - out;
    mirt__cu_between b;
    b.part = 0;
    if (!bilinear) {
        b.low = b.high = (int)(center / (2 * out));
        return b;
    }
    const I low = at < 0 ? -1 : at / (2 * out);
    b.low = low < 0 ? 0 : (int)low;
    b.high = low + 1 < in ? (int)low + 1 : (int)in - 1;
    if (b.high != b.low) b.part = (float)(at - low * 2 * out) / (float)(2 * out);
    return b;
}
/* The first output that may read `place`; what the last one may be is known by the next place's first. */
template <class I> static inline __device__ int mirt__cu_resize_first(I place, I in, I out) {
    if (place <= 0) return 0;
    const I first = (out * (2 * place - 1) / in - 1) / 2 - 1;
    return first < 0 ? 0 : first < out ? (int)first : (int)out;
}
template <class I> static inline __device__ int mirt__cu_resize_end(I place, I in, I out) {
    if (place + 1 >= in) return (int)out;
    const I end = (out * (2 * place + 3) / in) / 2 + 2;
    return end < out ? (int)end : (int)out;
}
/* How much of an output goes to `place`. */
static inline __device__ float mirt__cu_resize_share(const mirt__cu_between &b, int place) {
    return (b.low == place ? 1.0f - b.part : 0.0f) + (b.high == place && b.high != b.low ? b.part : 0.0f);
}

template <class I, int N>
static __global__ __launch_bounds__(256) void mirt__cu_resize_forward(mirt__cu_resize_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const mirt__cu_between v = mirt__cu_resize_at<I>((I)y, a.h, a.oh, a.bilinear),
                               u = mirt__cu_resize_at<I>(column, a.w, a.ow, a.bilinear);
        const float *above = a.x + (image * a.h + v.low) * a.w * a.c + c,
                    *below = a.x + (image * a.h + v.high) * a.w * a.c + c;
        float x[4][N];
        mirt__cu_load_n<N>(above + (int64_t)u.low * a.c, x[0]);
        if (a.bilinear) {
            mirt__cu_load_n<N>(above + (int64_t)u.high * a.c, x[1]);
            mirt__cu_load_n<N>(below + (int64_t)u.low * a.c, x[2]);
            mirt__cu_load_n<N>(below + (int64_t)u.high * a.c, x[3]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float top = x[0][i] + (x[1][i] - x[0][i]) * u.part,
                            bottom = x[2][i] + (x[3][i] - x[2][i]) * u.part;
                x[0][i] = top + (bottom - top) * v.part;
            }
        }
        mirt__cu_store_n<N>(a.y + (line * a.ow + column) * a.c + c, x[0]);
    }
}

template <class I, int N> static __global__ __launch_bounds__(256) void mirt__cu_resize_back(mirt__cu_resize_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int oy1 = mirt__cu_resize_end<I>((I)y, a.h, a.oh), ox0 = mirt__cu_resize_first<I>(column, a.w, a.ow),
                  ox1 = mirt__cu_resize_end<I>(column, a.w, a.ow);
        float sum[N] = {0}, dy[N];
        for (int oy = mirt__cu_resize_first<I>((I)y, a.h, a.oh); oy < oy1; oy++) {
            const float down = mirt__cu_resize_share(mirt__cu_resize_at<I>(oy, a.h, a.oh, a.bilinear), (int)y);
            if (down == 0) continue;
            for (int ox = ox0; ox < ox1; ox++) {
                const float share = down *
                                    mirt__cu_resize_share(mirt__cu_resize_at<I>(ox, a.w, a.ow, a.bilinear), column);
                if (share == 0) continue;
                mirt__cu_load_n<N>(a.x + ((image * a.oh + oy) * a.ow + ox) * a.c + c, dy);
#pragma unroll
                for (int i = 0; i < N; i++) sum[i] += share * dy[i];
            }
        }
        mirt__cu_store_n<N>(a.y + (line * a.w + column) * a.c + c, sum);
    }
}

template <class I, int N> static void mirt__cu_resize_by(const mirt__resize *r, bool back, mirt__cu *cu) {
    mirt__cu_resize_call a;
    unsigned grid, threads;
    memset(&a, 0, sizeof a);
    a.h = (int)r->h;
    a.w = (int)r->w;
    a.c = (int)r->c;
    a.oh = (int)r->oh;
    a.ow = (int)r->ow;
    a.bilinear = r->bilinear;
    a.x = r->x;
    a.y = r->y;
    mirt__cu_pixels_of(&a, r->rows, back ? r->h : r->oh, back ? r->w : r->ow, r->c / N, &grid, &threads);
    if (grid == 0) return;
    if (back) MIRT_LAUNCH(cu, (mirt__cu_resize_back<I, N>), grid, threads, 0, a);
    else MIRT_LAUNCH(cu, (mirt__cu_resize_forward<I, N>), grid, threads, 0, a);
}
static void mirt__cu_resize_run(const mirt__resize *r, bool back, mirt__cu *cu) {
    const bool four = r->c % 4 == 0 && mirt__cu_aligned(r->x, 16) && mirt__cu_aligned(r->y, 16);
    const int64_t most_in = r->h > r->w ? r->h : r->w, most_out = r->oh > r->ow ? r->oh : r->ow;
    const bool small = (2 * most_out + 3) * (2 * most_in + 3) < INT32_MAX;
    if (small && four) mirt__cu_resize_by<int, 4>(r, back, cu);
    else if (small) mirt__cu_resize_by<int, 1>(r, back, cu);
    else if (four) mirt__cu_resize_by<int64_t, 4>(r, back, cu);
    else mirt__cu_resize_by<int64_t, 1>(r, back, cu);
}
static void mirt__cu_resize(const mirt__resize *args, const mirt__where *where) {
    mirt__cu_resize_run(args, false, mirt__cu_of(where));
}
static void mirt__cu_resize_grad(const mirt__resize *args, const mirt__where *where) {
    mirt__cu_resize_run(args, true, mirt__cu_of(where));
}

/* >>section cuda/augment.cu */

/* Random transforms of images, as src/kernels/augment.c. Consecutive transforms that move pixels are one warp, whose
   matrix each block draws; transforms of values run over the image in place. */

#define MIRT__CU_AUGMENT_CHANNELS 64 /* whose contrast can change */
#define MIRT__CU_AUGMENT_PIXELS 2048 /* of a block */

/* What changes from step to step. */
typedef struct mirt__cu_augment_numbers {
    uint64_t seed, first_row, step;
} mirt__cu_augment_numbers;

/* A pass of transforms [first, end) over all images. */
typedef struct mirt__cu_augment {
    const mirt__transform *transform; /* on the device */
    const mirt__cu_augment_numbers *numbers;
    int first, end;
    const void *x;
    float *y;
    mirt_dtype x_dtype;
    mirt_fill_mode fill;
    bool nearest;
    float value;
    float *measured;                            /* of each channel of each image */
    float *kept;                                /* of each image two images, of AugMix, or the noise that moves it */
    int h, w, line, c, oh, ow, at_y,
        at_x; /* the part of x that is read begins at (at_y, at_x); line: numbers in a row of x */
    int64_t x_image, y_image;                   /* numbers in images */
    int parts;                                  /* blocks of an image */
    mirt__cu_divisor by_parts, by_line;         /* by_line: of y */
} mirt__cu_augment;

/* >>what is drawn */

/* Of all transforms of the pass, one after the other, as float. */
static __device__ void mirt__cu_augment_matrices(const mirt__cu_augment &a, int64_t image, float *to) {
    double m[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, next[9], drawn[4];
    const uint64_t seed = a.numbers->seed, row = a.numbers->first_row + (uint64_t)image, step = a.numbers->step;
    for (int k = a.first; k < a.end; k++) {
        if (!mirt__transform_applies(&a.transform[k], seed, row, step)) continue;
        mirt__transform_draw(&a.transform[k], seed, row, step, drawn);
        mirt__transform_matrix(&a.transform[k], drawn, next);
        mirt__transform_then(m, next);
    }
    for (int i = 0; i < 9; i++) to[i] = (float)m[i];
}

/* >>one affine warp */

/* As TensorFlow's MapCoordinate, which may lie half a pixel beyond the edge pixels' centers: they are repeated. */
static inline __device__ float mirt__cu_augment_inside(mirt_fill_mode fill, float at, int length) {
    const float last = (float)(length - 1), twice = (float)(2 * (int64_t)length), once = (float)length;
    if (last == 0 && fill != MIRT_FILL_CONSTANT) return 0;
    if (fill == MIRT_FILL_CONSTANT) return at < -2 ? -2.0f : at > once + 1 ? once + 1 : at;
    if (fill == MIRT_FILL_REFLECT && at < 0) {
        if (at <= -twice) at = __fadd_rn(at, __fmul_rn(twice, (float)(int64_t)(-at / twice)));
        at = at < -once ? at + twice : -at - 1;
    } else if (fill == MIRT_FILL_REFLECT && at > last) {
        if (at >= twice) at = __fsub_rn(at, __fmul_rn(twice, (float)(int64_t)(at / twice)));
        if (at >= once) at = twice - at - 1;
    } else if (fill == MIRT_FILL_WRAP && at < 0) {
        at = __fadd_rn(at, __fmul_rn(once, (float)((int64_t)(-at / last) + 1)));
    } else if (fill == MIRT_FILL_WRAP && at > last) {
        at = __fsub_rn(at, __fmul_rn(once, (float)(int64_t)(at / last)));
    }
    return at < 0 ? 0.0f : at > last ? last : at;
}
/* Half away from zero, as std::round; what is left of the image stays there. */
static inline __device__ int mirt__cu_augment_nearest(float at) {
    const int whole = (int)at;
    return at <= -0.5f ? -1 : whole + (at - (float)whole >= 0.5f ? 1 : 0);
}
/* Channel j of a pixel of the image at x, wherever it is. */
template <class T>
static inline __device__ float mirt__cu_augment_read(const mirt__cu_augment &a, const T *x, int row, int column,
                                                     int j) {
    if (row < 0 || row >= a.h || column < 0 || column >= a.w) return a.value;
    return (float)x[(int64_t)row * a.line + (int64_t)column * a.c + j];
}

template <class T> static __global__ __launch_bounds__(256) void mirt__cu_augment_warp(mirt__cu_augment a) {
    MIRT_SHARED(float, m, 9);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), pixels = a.oh * a.ow, begin = part * MIRT__CU_AUGMENT_PIXELS;
    const int end = pixels - begin < MIRT__CU_AUGMENT_PIXELS ? pixels : begin + MIRT__CU_AUGMENT_PIXELS;
    const T *x = static_cast<const T *>(a.x) + image * a.x_image + (int64_t)a.at_y * a.line + (int64_t)a.at_x * a.c;
    const float last_x = (float)(a.w - 1), last_y = (float)(a.h - 1);
    if (threadIdx.x == 0) mirt__cu_augment_matrices(a, image, m);
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int oy = (int)mirt__cu_divide32((uint32_t)i, a.by_line), ox = i - oy * a.ow;
        float px = __fadd_rn(__fadd_rn(__fmul_rn(m[0], (float)ox), __fmul_rn(m[1], (float)oy)), m[2]);
        float py = __fadd_rn(__fadd_rn(__fmul_rn(m[3], (float)ox), __fmul_rn(m[4], (float)oy)), m[5]);
        const float by = __fadd_rn(__fadd_rn(__fmul_rn(m[6], (float)ox), __fmul_rn(m[7], (float)oy)), m[8]);
        px = __fdiv_rn(px, by);
        py = __fdiv_rn(py, by);
        if (!(px >= 0 && px <= last_x && py >= 0 && py <= last_y)) {
            px = mirt__cu_augment_inside(a.fill, px, a.w);
            py = mirt__cu_augment_inside(a.fill, py, a.h);
        }
        const bool outside = !(px > -1 && py > -1 && px < (float)a.w && py < (float)a.h);
        const int x0 = outside     ? -2
                       : a.nearest ? mirt__cu_augment_nearest(px)
                                   : (int)floorf(px),
                  y0 = outside     ? -2
                       : a.nearest ? mirt__cu_augment_nearest(py)
                                   : (int)floorf(py);
        const float fx = px - (float)x0, fy = py - (float)y0, gx = (float)x0 + 1 - px, gy = (float)y0 + 1 - py;
        float *y = a.y + image * a.y_image + (int64_t)i * a.c;
        const bool between = !a.nearest && !outside;
        for (int j = 0; j < a.c; j++) {
            float v = mirt__cu_augment_read<T>(a, x, y0, x0, j);
            if (between) {
                const float right = mirt__cu_augment_read<T>(a, x, y0, x0 + 1, j),
                            below = mirt__cu_augment_read<T>(a, x, y0 + 1, x0, j);
                v = gy * (gx * v + fx * right) +
                    fy * (gx * below + fx * mirt__cu_augment_read<T>(a, x, y0 + 1, x0 + 1, j));
            }
            y[j] = v;
        }
    }
}

/* >>values */

/* What pass a.first draws for one image. */
typedef struct mirt__cu_augment_drawn {
    uint64_t seed, row, step;
    double numbers[4];
    float amount[2];
    bool applies;
} mirt__cu_augment_drawn;

static inline __device__ void mirt__cu_augment_begin(const mirt__cu_augment &a, int64_t image,
                                                     mirt__cu_augment_drawn *out) {
    const mirt__transform &t = a.transform[a.first];
    out->seed = a.numbers->seed;
    out->row = a.numbers->first_row + (uint64_t)image;
    out->step = a.numbers->step;
    out->applies = mirt__transform_applies(&t, out->seed, out->row, out->step);
    mirt__transform_draw(&t, out->seed, out->row, out->step, out->numbers);
    for (int k = 0; k < 2; k++) out->amount[k] = (float)mirt__transform_amount(&t, k, out->numbers);
    if (t.kind == MIRT_AUG_MIX) mirt__transform_shares(&t, out->seed, out->row, out->step, out->amount);
}

/* The mean of each channel of image blockIdx.x, or its least and greatest number; thread t has channel t % c of every
   some pixels. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_statistics(mirt__cu_augment a) {
    MIRT_SHARED(double, sums, 256);
    MIRT_SHARED(double, more, 256);
    const int t = (int)threadIdx.x, threads = 256 / a.c * a.c;
    const int64_t image = blockIdx.x;
    const bool extremes = a.transform[a.first].kind == MIRT_AUTO_CONTRAST;
    double sum = extremes ? INFINITY : 0, most = -INFINITY;
    for (int64_t i = t; t < threads && i < a.x_image; i += threads) {
        const double x = (double)mirt__cu_load(a.x, a.x_dtype, image * a.x_image + i);
        sum = !extremes ? sum + x : x < sum ? x : sum;
        most = x > most ? x : most;
    }
    sums[t] = sum;
    more[t] = most;
    __syncthreads();
    if (t >= a.c) return;
    for (int i = t + a.c; i < threads; i += a.c) {
        sum = !extremes ? sum + sums[i] : sums[i] < sum ? sums[i] : sum;
        most = more[i] > most ? more[i] : most;
    }
    float *const to = a.measured + (image * a.c + t) * 2;
    to[0] = (float)(extremes ? sum : sum / (double)(a.x_image / a.c));
    to[1] = (float)most;
}
/* What the numbers of channel blockIdx.y of image blockIdx.x become, by their bin; the first is negative: they stay. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_levels(mirt__cu_augment a) {
    MIRT_SHARED(int32_t, count, MIRT__TRANSFORM_BINS);
    const mirt__transform &t = a.transform[a.first];
    const int64_t image = blockIdx.x;
    float *const to = a.measured + (image * a.c + blockIdx.y) * (MIRT__TRANSFORM_BINS + 1);
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = blockIdx.y + (int64_t)threadIdx.x * a.c; i < a.x_image; i += (int64_t)blockDim.x * a.c)
        atomicAdd(&count[mirt__transform_bin(&t, mirt__cu_load(a.x, a.x_dtype, image * a.x_image + i))], 1);
    __syncthreads();
    if (threadIdx.x == 0) to[0] = mirt__transform_equalized(&t, count, to + 1) ? 1.0f : -1.0f;
}
/* What the numbers of a tile become: tile and channel blockIdx.y of image blockIdx.x. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_tiles(mirt__cu_augment a) {
    MIRT_SHARED(int32_t, count, MIRT__TRANSFORM_BINS);
    const mirt__transform &t = a.transform[a.first];
    const int64_t image = blockIdx.x, high = mirt__transform_tile(t.h, t.bins),
                  wide = mirt__transform_tile(t.w, t.size);
    const int tiles = t.bins * t.size, channel = (int)blockIdx.y / tiles, tile = (int)blockIdx.y % tiles;
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < high * wide; i += blockDim.x) {
        const int64_t row = mirt__transform_mirrored(tile / t.size * high + i / wide, t.h),
                      column = mirt__transform_mirrored(tile % t.size * wide + i % wide, t.w),
                      at = image * a.x_image + (row * t.w + column) * a.c + channel;
        atomicAdd(&count[mirt__transform_byte(&t, mirt__cu_load(a.x, a.x_dtype, at))], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        mirt__transform_tile_levels(&t, count,
                                    a.measured + (image * gridDim.y + blockIdx.y) * MIRT__TRANSFORM_BINS);
}
/* Number i of an image that is changed, whose channel is j. */
static inline __device__ float mirt__cu_augment_value(const mirt__cu_augment &a, const mirt__transform &t,
                                                      const mirt__cu_augment_drawn &d, const mirt__transform_line *line,
                                                      const int64_t part[4], int64_t image, int i, float x) {
    if (t.kind == MIRT_EQUALIZATION) {
        const float *const level = a.measured + (image * a.c + i % a.c) * (MIRT__TRANSFORM_BINS + 1);
        return level[0] < 0 ? x : level[1 + mirt__transform_bin(&t, x)];
    }
    if (t.kind == MIRT_CLAHE) {
        const int pixel = i / a.c, row = pixel / (int)t.w, tiles = t.bins * t.size;
        const float *const level = a.measured + (image * a.c + i % a.c) * tiles * MIRT__TRANSFORM_BINS;
        return mirt__transform_tiled(&t, level, row, pixel - row * (int)t.w, x);
    }
    if (t.kind == MIRT_AUG_MIX) {
        float *const first = a.kept + image * 2 * a.x_image + i;
        return mirt__transform_mixed(&t, d.amount, x, first, first + a.x_image);
    }
    if (t.kind == MIRT_RANDOM_ERASING) {
        const int pixel = i / a.c, row = pixel / (int)t.w, column = pixel - row * (int)t.w;
        uint32_t word[4];
        if (row < part[0] || row >= part[1] || column < part[2] || column >= part[3]) return x;
        mirt__transform_words(t.key, d.seed, d.row, d.step, (uint32_t)(2 + i / 4), word);
        return mirt__transform_erased(&t, mirt__normal(word[i % 4]));
    }
    return line ? mirt__transform_linear_of(line, x) : mirt__transform_level(&t, d.amount, x);
}
/* Each number by itself. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_values(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_drawn, drawn, 1);
    MIRT_SHARED(mirt__transform_line, line, MIRT__CU_AUGMENT_CHANNELS);
    MIRT_SHARED(int64_t, erased, 4);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int end = a.x_image - begin < each ? (int)a.x_image : begin + each;
    const mirt__transform &t = a.transform[a.first];
    const bool linear = (mirt__transform_traits(t.kind) & MIRT__LINEAR) != 0,
               measures = (mirt__transform_traits(t.kind) & MIRT__MEASURES) != 0;
    const int c = measures ? a.c : 1;
    if (threadIdx.x == 0) {
        mirt__cu_augment_begin(a, image, drawn);
        if (t.kind == MIRT_RANDOM_ERASING) mirt__transform_part(&t, drawn->numbers, erased);
    }
    __syncthreads();
    if (linear && (int)threadIdx.x < c) {
        const float *const stat = a.measured + (image * a.c + threadIdx.x) * 2;
        line[threadIdx.x] =
            mirt__transform_line_of(&t, drawn->amount[0], measures ? stat[0] : 0.0f, measures ? stat[1] : 0.0f);
    }
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int64_t at = image * a.x_image + i;
        const float x = mirt__cu_load(a.x, a.x_dtype, at);
        const int j = c > 1 ? i - (int)mirt__cu_divide32((uint32_t)i, a.by_line) * c : 0;
        a.y[at] = !drawn->applies ? x
                                  : mirt__cu_augment_value(a, t, *drawn, linear ? &line[j] : NULL, erased, image, i, x);
    }
}
/* Red, green and blue together. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_colors(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_drawn, drawn, 1);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int pixels = (int)(a.x_image / a.c), end = pixels - begin < each ? pixels : begin + each;
    if (threadIdx.x == 0) mirt__cu_augment_begin(a, image, drawn);
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int64_t at = image * a.x_image + (int64_t)a.c * i;
        float rgb[3];
        for (int j = 0; j < a.c; j++) rgb[j] = mirt__cu_load(a.x, a.x_dtype, at + j);
        if (drawn->applies) mirt__transform_color(&a.transform[a.first], drawn->amount[0], rgb);
        for (int j = 0; j < a.c; j++) a.y[at + j] = rgb[j];
    }
}

/* Each number by its neighbors of the same channel: sums down the columns, then of these across. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_filter(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_drawn, drawn, 1);
    MIRT_SHARED(mirt__transform_filter, filter, 1);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int end = a.x_image - begin < each ? (int)a.x_image : begin + each;
    const mirt__transform &t = a.transform[a.first];
    const int line = (int)(t.w * t.c), c = (int)t.c, h = (int)t.h;
    if (threadIdx.x == 0) {
        mirt__cu_augment_begin(a, image, drawn);
        mirt__transform_filter_of(&t, drawn->numbers, filter);
    }
    __syncthreads();
    const mirt__transform_filter &f = *filter;
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int64_t at = image * a.x_image + i;
        const int row = i / line, column = i - row * line, reach = drawn->applies ? f.reach : -1;
        const float x = mirt__cu_load(a.x, a.x_dtype, at);
        float sum = 0;
        for (int k = -reach; k <= reach; k++) {
            float down = 0;
            if (column + k * c < 0 || column + k * c >= line) continue;
            for (int j = -reach; j <= reach; j++) {
                if (row + j < 0 || row + j >= h) continue;
                down += mirt__transform_times(
                    f.down[j + reach], mirt__cu_load(a.x, a.x_dtype, at + (int64_t)j * line + (int64_t)k * c));
            }
            sum += mirt__transform_times(f.across[k + reach], down);
        }
        a.y[at] = drawn->applies ? mirt__transform_filtered(&f, x, sum) : mirt__transform_unfiltered(&t, x);
    }
}

/* >>elastic transforms */

/* Numbers that an image keeps: its noise, this blurred across, and the kernel of the blur. */
MIRT__BOTH int64_t mirt__cu_augment_elastic_room(const mirt__transform *t) {
    return (4 * t->h + 1) * t->w;
}
/* What a block computes: numbers [begin, end) of `count` of an image. */
typedef struct mirt__cu_augment_share {
    mirt__cu_augment_drawn drawn;
    mirt__transform_elastic elastic;
    int64_t image, begin, end;
    float *room; /* the image's */
} mirt__cu_augment_share;
static __device__ void mirt__cu_augment_share_of(const mirt__cu_augment &a, int64_t count,
                                                 mirt__cu_augment_share *share) {
    if (threadIdx.x == 0) {
        share->image = mirt__cu_divide32(blockIdx.x, a.by_parts);
        share->begin = (int64_t)(blockIdx.x - share->image * a.parts) * MIRT__CU_AUGMENT_PIXELS;
        share->end = count - share->begin < MIRT__CU_AUGMENT_PIXELS ? count : share->begin + MIRT__CU_AUGMENT_PIXELS;
        share->room = a.kept + share->image * mirt__cu_augment_elastic_room(&a.transform[a.first]);
        mirt__cu_augment_begin(a, share->image, &share->drawn);
        share->elastic = mirt__transform_elastic_of(&a.transform[a.first], share->drawn.numbers);
    }
    __syncthreads();
}
static __global__ __launch_bounds__(256) void mirt__cu_augment_noise(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_share, own, 1);
    const mirt__transform &t = a.transform[a.first];
    const int64_t count = 2 * t.h * t.w;
    mirt__cu_augment_share_of(a, count, own);
    const mirt__cu_augment_drawn *const d = &own->drawn;
    if (own->begin == 0 && threadIdx.x == 0)
        mirt__transform_gauss(own->elastic.sigma, own->elastic.reach, own->room + 2 * count);
    for (int64_t i = own->begin + 4 * (int64_t)threadIdx.x; i < own->end && d->applies; i += 4 * blockDim.x) {
        uint32_t word[4];
        mirt__transform_words(t.key, d->seed, d->row, d->step, (uint32_t)(2 + i / 4), word);
        for (int k = 0; k < 4 && i + k < own->end; k++) own->room[i + k] = mirt__normal(word[k]);
    }
}
static __global__ __launch_bounds__(256) void mirt__cu_augment_across(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_share, own, 1);
    const mirt__transform &t = a.transform[a.first];
    const int64_t count = 2 * t.h * t.w;
    mirt__cu_augment_share_of(a, count, own);
    float *const noise = own->room;
    const int64_t reach = own->elastic.reach;
    const float *const kernel = noise + 2 * count + reach;
    for (int64_t i = own->begin + (int64_t)threadIdx.x; i < own->end && own->drawn.applies; i += blockDim.x) {
        const int64_t column = i % t.w;
        float sum = 0;
        for (int64_t k = -reach; k <= reach; k++) {
            if (column + k >= 0 && column + k < t.w) sum += mirt__transform_times(kernel[k], noise[i + k]);
        }
        noise[count + i] = sum;
    }
}
/* Blurs down, and reads the pixels where that moves them. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_elastic(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_share, own, 1);
    const mirt__transform &t = a.transform[a.first];
    const int64_t line = 2 * t.w, count = t.h * line;
    mirt__cu_augment_share_of(a, t.h * t.w, own);
    const mirt__transform_elastic *const e = &own->elastic;
    const float *const across = own->room + count, *const kernel = across + count + e->reach;
    const int64_t at = own->image * a.x_image;
    for (int64_t i = own->begin + (int64_t)threadIdx.x; i < own->end; i += blockDim.x) {
        const int64_t oy = i / t.w, ox = i % t.w;
        int64_t from[4] = {i, -1, -1, -1};
        float moved[2] = {0, 0}, share[4] = {1, 0, 0, 0};
        if (own->drawn.applies) {
            for (int64_t k = -e->reach; k <= e->reach; k++) {
                if (oy + k < 0 || oy + k >= t.h) continue;
                const float *const row = across + (oy + k) * line + ox;
                moved[0] += mirt__transform_times(kernel[k], row[0]);
                moved[1] += mirt__transform_times(kernel[k], row[t.w]);
            }
            mirt__transform_neighbors(&t, (float)ox + mirt__transform_times(e->by, moved[0]),
                                      (float)oy + mirt__transform_times(e->by, moved[1]), from, share);
        }
        for (int j = 0; j < a.c; j++) {
            float v = 0;
            for (int k = 0; k < 4; k++) {
                if (share[k] > 0)
                    v += mirt__transform_times(
                        share[k], from[k] < 0 ? t.value : mirt__cu_load(a.x, a.x_dtype, at + from[k] * a.c + j));
            }
            a.y[at + i * a.c + j] = mirt__transform_clip(v, t.range[0], t.range[1]);
        }
    }
}

/* >>a list of transforms */

/* Blocks of all images. */
static unsigned mirt__cu_augment_blocks(mirt__cu_augment *a, int64_t numbers, int64_t rows) {
    a->parts = (int)mirt__cu_ceil(numbers, MIRT__CU_AUGMENT_PIXELS);
    a->by_parts = mirt__cu_divisor_of(a->parts);
    return (unsigned)(a->parts * rows);
}
static void mirt__cu_augment_run_warp(mirt__cu *cu, mirt__cu_augment a, const mirt__transform_pass *pass,
                                      const mirt__transform *t, int64_t rows) {
    const mirt__transform *const first = &t[a.first], *const last = &t[pass->end - 1];
    int64_t begin[2] = {0, 0}, size[2] = {first->h, first->w};
    if (mirt__transform_fits(first)) mirt__transform_window(first, begin, size);
    a.end = pass->end;
    a.h = (int)size[0];
    a.w = (int)size[1];
    a.at_y = (int)begin[0];
    a.at_x = (int)begin[1];
    a.line = (int)(first->w * first->c);
    a.oh = (int)last->oh;
    a.ow = (int)last->ow;
    a.fill = pass->fill;
    a.nearest = pass->nearest;
    a.value = pass->value;
    a.y_image = last->oh * last->ow * last->c;
    a.by_line = mirt__cu_divisor_of(a.ow);
    const unsigned blocks = mirt__cu_augment_blocks(&a, (int64_t)a.oh * a.ow, rows);
    if (a.x_dtype == MIRT_UINT8) MIRT_LAUNCH(cu, (mirt__cu_augment_warp<uint8_t>), blocks, 256, 0, a);
    else MIRT_LAUNCH(cu, (mirt__cu_augment_warp<float>), blocks, 256, 0, a);
}
/* Number a.first, which filters. */
static void mirt__cu_augment_run_filter(mirt__cu *cu, mirt__cu_augment a, const mirt__transform *t, int64_t rows) {
    if (t->kind != MIRT_RANDOM_ELASTIC_TRANSFORM) {
        const unsigned blocks = mirt__cu_augment_blocks(&a, a.x_image, rows);
        MIRT_LAUNCH(cu, mirt__cu_augment_filter, blocks, 256, 0, a);
        return;
    }
    const unsigned twice = mirt__cu_augment_blocks(&a, 2 * t->h * t->w, rows);
    MIRT_LAUNCH(cu, mirt__cu_augment_noise, twice, 256, 0, a);
    MIRT_LAUNCH(cu, mirt__cu_augment_across, twice, 256, 0, a);
    const unsigned once = mirt__cu_augment_blocks(&a, t->h * t->w, rows);
    MIRT_LAUNCH(cu, mirt__cu_augment_elastic, once, 256, 0, a);
}
/* Number a.first, from x to y. */
static void mirt__cu_augment_run_values(mirt__cu *cu, mirt__cu_augment a, const mirt__transform *t, int64_t rows) {
    const mirt_augmentation_kind kind = t[a.first].kind;
    const int traits = mirt__transform_traits(kind);
    const bool colors = (traits & MIRT__COLORS) != 0;
    const unsigned blocks = mirt__cu_augment_blocks(&a, colors ? a.x_image / a.c : a.x_image, rows);
    a.by_line = mirt__cu_divisor_of(a.c);
    if (colors) {
        MIRT_LAUNCH(cu, mirt__cu_augment_colors, blocks, 256, 0, a);
        return;
    }
    if (traits & MIRT__MEASURES) MIRT_LAUNCH(cu, mirt__cu_augment_statistics, (unsigned)rows, 256, 0, a);
    if (kind == MIRT_EQUALIZATION)
        MIRT_LAUNCH(cu, mirt__cu_augment_levels, dim3((unsigned)rows, (unsigned)a.c), MIRT__TRANSFORM_BINS, 0, a);
    if (kind == MIRT_CLAHE) {
        const unsigned tiles = (unsigned)(a.c * t[a.first].bins * t[a.first].size);
        MIRT_LAUNCH(cu, mirt__cu_augment_tiles, dim3((unsigned)rows, tiles), MIRT__TRANSFORM_BINS, 0, a);
    }
    MIRT_LAUNCH(cu, mirt__cu_augment_values, blocks, 256, 0, a);
}

static void mirt__cu_augment_all(const mirt__augment_rows *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__transform *const t = args->transform;
    mirt__cu_augment_numbers numbers;
    mirt__cu_augment a;
    int warps = 0, turn = 0;
    int measured = 0; /* numbers of each channel */
    int64_t most = 0, kept = 0; /* numbers in the largest image between two passes, and that an image keeps */
    if (args->rows == 0 || args->count < 1) return;
    for (int i = 0, end; i < args->count; i = end) {
        const mirt__transform_pass pass = mirt__transform_pass_of(t, args->count, i);
        const mirt__transform *last = &t[pass.end - 1];
        end = pass.end;
        warps += pass.remakes;
        for (int k = i; k < end; k++) {
            const int each = t[k].kind == MIRT_EQUALIZATION ? MIRT__TRANSFORM_BINS + 1
                             : t[k].kind == MIRT_CLAHE      ? MIRT__TRANSFORM_BINS * t[k].bins * t[k].size
                                                            : 2;
            const int64_t keeps = t[k].kind == MIRT_AUG_MIX                    ? 2 * t[k].h * t[k].w * t[k].c
                                  : t[k].kind == MIRT_RANDOM_ELASTIC_TRANSFORM ? mirt__cu_augment_elastic_room(&t[k])
                                                                               : 0;
            if (keeps > kept) kept = keeps;
            if ((each > 2 || (mirt__transform_traits(t[k].kind) & MIRT__MEASURES)) && each > measured) measured = each;
        }
        if (end < args->count && last->oh * last->ow * last->c > most) most = last->oh * last->ow * last->c;
    }
    /* An image goes to y with the last warp; those before it, and values that come before it, to one of two places. */
    const bool leads = !mirt__transform_remakes(&t[0]);
    const int between = warps - (leads && warps > 0 ? 0 : 1), buffers = between > 2 ? 2 : between < 0 ? 0 : between;
    const int64_t half = mirt__cu_ceil(args->rows * most * 4, 256) * 256,
                  means = mirt__cu_ceil(args->rows * t[0].c * measured * 4, 256) * 256;
    char *room = static_cast<char *>(mirt__cu_room(cu, (size_t)(means + buffers * half + args->rows * kept * 4)));
    memset(&numbers, 0, sizeof numbers);
    numbers.seed = args->seed;
    numbers.first_row = args->first_row;
    numbers.step = args->step;
    memset(&a, 0, sizeof a);
    a.transform = static_cast<const mirt__transform *>(mirt__cu_constant_copy(cu, t, (size_t)args->count * sizeof *t));
    a.numbers = static_cast<const mirt__cu_augment_numbers *>(mirt__cu_number(cu, &numbers, sizeof numbers));
    a.measured = (float *)room;
    a.kept = kept ? (float *)(room + means + buffers * half) : NULL;
    a.x = args->x;
    a.x_dtype = args->x_dtype;
    a.c = (int)t[0].c;
    for (int i = 0, end; i < args->count; i = end) {
        const mirt__transform_pass pass = mirt__transform_pass_of(t, args->count, i);
        float *const old = a.x == args->x ? NULL : a.y;
        end = pass.end;
        warps -= pass.remakes;
        a.first = i;
        a.x_image = t[i].h * t[i].w * t[i].c;
        if (pass.remakes || !old)
            a.y = warps == 0 ? args->y : room ? (float *)(room + means + (turn++ & 1) * half) : NULL;
        if (pass.moves) mirt__cu_augment_run_warp(cu, a, &pass, t, args->rows);
        if (pass.remakes && !pass.moves) mirt__cu_augment_run_filter(cu, a, &t[i], args->rows);
        for (; !pass.remakes && a.first < end; a.first++) {
            mirt__cu_augment_run_values(cu, a, t, args->rows);
            a.x = a.y;
            a.x_dtype = MIRT_FLOAT32;
        }
        a.x = a.y;
        a.x_dtype = MIRT_FLOAT32;
    }
}
#undef MIRT__CU_AUGMENT_CHANNELS
#undef MIRT__CU_AUGMENT_PIXELS

/* >>section cuda/elementwise.cu */

/* Elementwise kernels, with broadcasting, and conversions. */

#define MIRT__CU_ELEMENT_BLOCK 256
/* A kernel that goes over `count` by MIRT__CU_PIECES. */
#define MIRT__CU_LAUNCH_PIECES(cu, kernel, count, ...) \
    MIRT_LAUNCH(cu, kernel, mirt__cu_blocks(count, MIRT__CU_ELEMENT_BLOCK), MIRT__CU_ELEMENT_BLOCK, 0, __VA_ARGS__)

/* ---- Elements of operands that are walked through together, in row-major order of `dim`. Dimensions of one are left
   out, and neighbors that no operand jumps between are one: same shapes become one run, a bias becomes rows by
   columns. */
typedef struct mirt__cu_walk {
    int rank, operands;
    int64_t count;
    mirt__cu_divisor dim[MIRT_MAX_RANK];
    int64_t stride[3][MIRT_MAX_RANK];
} mirt__cu_walk;

static mirt__cu_walk mirt__cu_walk_of(int rank, const int64_t *dim, int operands, const int64_t *const *stride) {
    mirt__cu_walk w;
    int64_t size[MIRT_MAX_RANK] = {1};
    memset(&w, 0, sizeof w);
    w.operands = operands;
    w.count = 1;
    for (int i = 0; i < rank; i++) {
        bool joins = w.rank > 0;
        w.count *= dim[i];
        if (dim[i] == 1) continue;
        for (int k = 0; k < operands; k++) joins = joins && w.stride[k][w.rank - 1] == stride[k][i] * dim[i];
        if (!joins) size[w.rank++] = 1;
        size[w.rank - 1] *= dim[i];
        for (int k = 0; k < operands; k++) w.stride[k][w.rank - 1] = stride[k][i];
    }
    if (w.rank == 0) {
        w.rank = 1;
        for (int k = 0; k < operands; k++) w.stride[k][0] = 1;
    }
    for (int i = 0; i < w.rank; i++) w.dim[i] = mirt__cu_divisor_of(size[i]);
    return w;
}

/* Whether n neighbors along the last dimension can be taken at a time: they lie side by side or are one, and all of
   them begin at multiples of n. */
static bool mirt__cu_walk_by(const mirt__cu_walk *w, int64_t n) {
    const int last = w->rank - 1;
    if (last > 0 && w->dim[last].by % n) return false;
    for (int k = 0; k < w->operands; k++) {
        if (w->stride[k][last] != 0 && w->stride[k][last] != 1) return false;
        for (int i = 0; i < last; i++) {
            if (w->stride[k][last] && w->stride[k][i] % n) return false;
        }
    }
    return true;
}

/* Where element number `at` lies in each operand. */
template <int OPERANDS>
static inline __device__ void mirt__cu_walk_place(const mirt__cu_walk &w, int64_t at, int64_t *place) {
#pragma unroll
    for (int k = 0; k < OPERANDS; k++) place[k] = 0;
    for (int i = w.rank - 1; i > 0; i--) {
        int64_t rest;
        at = mirt__cu_divmod(at, w.dim[i], &rest);
#pragma unroll
        for (int k = 0; k < OPERANDS; k++) place[k] += rest * w.stride[k][i];
    }
#pragma unroll
    for (int k = 0; k < OPERANDS; k++) place[k] += at * w.stride[k][0];
}

/* Up to N neighbors of float32 or 16 bits. */
template <int N>
static inline __device__ void mirt__cu_get_left(const void *x, mirt_dtype dtype, int64_t at, int64_t left, float *to) {
    if (N == 1 || left >= N) {
        mirt__cu_get<MIRT__CU_EITHER, N>(x, dtype, at, to);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            to[j] = 0;
            if (j < left) mirt__cu_get<MIRT__CU_EITHER, 1>(x, dtype, at + j, to + j);
        }
    }
}
template <int N>
static inline __device__ void mirt__cu_put_left(void *y, mirt_dtype dtype, int64_t at, int64_t left,
                                                const float *from) {
    if (N == 1 || left >= N) {
        mirt__cu_put<MIRT__CU_EITHER, N>(y, dtype, at, from);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j < left) mirt__cu_put<MIRT__CU_EITHER, 1>(y, dtype, at + j, from + j);
        }
    }
}

/* The number of neighbors that a thread takes of tensors that begin there (NULL: of none): 8 where some are of 16 bits,
   otherwise 4, or fewer. `walk`: how they are walked through, or NULL for one run. */
static int mirt__cu_element_width(const mirt__cu_walk *walk, const void *const *x, const mirt_dtype *dtype, int count) {
    bool halves = false;
    for (int k = 0; k < count; k++) halves = halves || (x[k] && mirt__cu_is_half(dtype[k]));
    for (int n = halves ? 8 : 4; n > 1; n = n == 8 ? 4 : 1) {
        bool good = !walk || mirt__cu_walk_by(walk, n);
        for (int k = 0; k < count; k++) good = good && mirt__cu_aligned_for(x[k], dtype[k], n);
        if (good) return n;
    }
    return 1;
}

/* ---- unary */

/* The rows that say CALL. */
#define MIRT__CU_RARE_INLINE(expression) break;
#define MIRT__CU_RARE_CALL(expression) return expression;
#define MIRT__CU_RARE(number, id, label, function, reference, fast, gpu, gradient) case MIRT__##id: MIRT__CU_RARE_##gpu
static __attribute__((noinline)) __device__ float mirt__cu_unary_rare(mirt__unary_kind kind, float x, float scale) {
    switch (kind) { MIRT__UNARY_LIST(MIRT__CU_RARE) }
    return NAN;
}

#define MIRT__CU_UNARY_INLINE(expression) \
    _Pragma("unroll") for (int j = 0; j < N; j++) { \
        const float x = v[j]; \
        v[j] = (expression); \
    }
#define MIRT__CU_UNARY_CALL(expression) rare = true;
#define MIRT__CU_UNARY(number, id, label, function, reference, fast, gpu, ...) \
    case MIRT__##id: \
        MIRT__CU_UNARY_##gpu \
        break;

template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_unary_kernel(const mirt__unary u) {
    const float scale = u.scale, offset = u.offset;
    MIRT__CU_PIECES(at, left, u.count, N) {
        float v[N];
        mirt__cu_get_left<N>(u.x, u.x_dtype, at, left, v);
        bool rare = false;
        switch (u.kind) { MIRT__UNARY_LIST(MIRT__CU_UNARY) }
        for (int j = 0; rare && j < N; j++) v[j] = mirt__cu_unary_rare(u.kind, v[j], scale);
        mirt__cu_put_left<N>(u.y, u.y_dtype, at, left, v);
    }
}

static void mirt__cu_unary(const mirt__unary *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__unary u = *args;
    if (u.count <= 0) return;
    const void *const of[2] = {u.x, u.y};
    const mirt_dtype dtype[2] = {u.x_dtype, u.y_dtype};
    const int n = mirt__cu_element_width(NULL, of, dtype, 2);
    MIRT__CU_LAUNCH_PIECES(cu,
                           (n == 8   ? mirt__cu_unary_kernel<8>
                            : n == 4 ? mirt__cu_unary_kernel<4>
                                     : mirt__cu_unary_kernel<1>),
                           mirt__cu_ceil(u.count, n), u);
}

/* ---- binary */

typedef struct mirt__cu_binary_args {
    mirt__binary b; /* b.b is NULL: it is the number `scale` */
    mirt__cu_walk walk;
} mirt__cu_binary_args;

#undef MIRT__CU_RARE
#define MIRT__CU_RARE(number, id, label, function, reference, fast, gpu) case MIRT__##id: MIRT__CU_RARE_##gpu
static __attribute__((noinline)) __device__ float mirt__cu_binary_rare(mirt__binary_kind kind, float a, float b,
                                                                       float scale) {
    switch (kind) { MIRT__BINARY_LIST(MIRT__CU_RARE) }
    return NAN;
}
#undef MIRT__CU_RARE_INLINE
#undef MIRT__CU_RARE_CALL
#undef MIRT__CU_RARE

#define MIRT__CU_BINARY_INLINE(expression) \
    _Pragma("unroll") for (int j = 0; j < N; j++) { \
        const float a = v[j], b = w[j]; \
        v[j] = (expression); \
    }
#define MIRT__CU_BINARY_CALL(expression) rare = true;
#define MIRT__CU_BINARY(number, id, label, function, reference, fast, gpu) \
    case MIRT__##id: \
        MIRT__CU_BINARY_##gpu \
        break;

/* N neighbors of an operand, or one that stands for all of them. */
template <int N>
static inline __device__ void mirt__cu_get_step(const void *x, mirt_dtype dtype, int64_t at, int64_t step, int64_t left,
                                                float *to) {
    if (N > 1 && step == 0) {
        float one;
        mirt__cu_get<MIRT__CU_EITHER, 1>(x, dtype, at, &one);
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = one;
        return;
    }
    mirt__cu_get_left<N>(x, dtype, at, left, to);
}

/* ADDS: c is added. */
template <int N, bool ADDS>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_binary_kernel(const mirt__cu_binary_args call) {
    const mirt__binary &args = call.b;
    const float scale = args.scale, offset = args.offset;
    const int last = call.walk.rank - 1;
    const int64_t a_step = call.walk.stride[0][last], b_step = call.walk.stride[1][last];
    MIRT__CU_PIECES(at, left, call.walk.count, N) {
        float v[N], w[N];
        int64_t place[ADDS ? 3 : 2];
        mirt__cu_walk_place<ADDS ? 3 : 2>(call.walk, at, place);
        mirt__cu_get_step<N>(args.a, args.a_dtype, place[0], a_step, left, v);
        if (args.b) {
            mirt__cu_get_step<N>(args.b, args.b_dtype, place[1], b_step, left, w);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) w[j] = scale;
        }
        bool rare = false;
        switch (args.kind) { MIRT__BINARY_LIST(MIRT__CU_BINARY) }
        for (int j = 0; rare && j < N; j++) v[j] = mirt__cu_binary_rare(args.kind, v[j], w[j], scale);
        if constexpr (ADDS) {
            mirt__cu_get_step<N>(args.c, args.c_dtype, place[2], call.walk.stride[2][last], left, w);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = __fadd_rn(v[j], w[j]);
        }
        mirt__cu_put_left<N>(args.y, args.y_dtype, at, left, v);
    }
}
#undef MIRT__CU_UNARY_INLINE
#undef MIRT__CU_UNARY_CALL
#undef MIRT__CU_UNARY
#undef MIRT__CU_BINARY_INLINE
#undef MIRT__CU_BINARY_CALL
#undef MIRT__CU_BINARY

template <bool ADDS> static void mirt__cu_binary_launch(mirt__cu *cu, const mirt__cu_binary_args &call, int n) {
    MIRT__CU_LAUNCH_PIECES(cu,
                           (n == 8   ? mirt__cu_binary_kernel<8, ADDS>
                            : n == 4 ? mirt__cu_binary_kernel<4, ADDS>
                                     : mirt__cu_binary_kernel<1, ADDS>),
                           mirt__cu_ceil(call.walk.count, n), call);
}
static void mirt__cu_binary(const mirt__binary *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t *const stride[3] = {args->a_stride, args->b_stride, args->c_stride};
    mirt__cu_binary_args call;
    mirt__binary *b = &call.b;
    *b = *args;
    if (b->number) b->b = NULL;
    call.walk = mirt__cu_walk_of(b->rank, b->dim, b->c ? 3 : 2, stride);
    if (call.walk.count <= 0) return;
    const void *const of[4] = {b->a, b->b, b->c, b->y};
    const mirt_dtype dtype[4] = {b->a_dtype, b->b_dtype, b->c_dtype, b->y_dtype};
    const int n = mirt__cu_element_width(&call.walk, of, dtype, 4);
    if (b->c) mirt__cu_binary_launch<true>(cu, call, n);
    else mirt__cu_binary_launch<false>(cu, call, n);
}

static void mirt__cu_accumulate(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where) {
    mirt__binary b;
    memset(&b, 0, sizeof b);
    b.kind = MIRT__ADD;
    b.rank = 1;
    b.dim[0] = count;
    b.a_stride[0] = b.b_stride[0] = 1;
    b.a = into;
    b.b = from;
    b.y = into;
    mirt__cu_binary(&b, where);
}

/* ---- logic */

typedef struct mirt__cu_logic_args {
    mirt__logic_kind kind;
    const void *in[3];
    void *y;
    mirt__cu_walk walk;
} mirt__cu_logic_args;

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_logic_kernel(const mirt__cu_logic_args l) {
    const bool choice = l.kind == MIRT__WHERE;
    const T *x = static_cast<const T *>(l.in[choice ? 1 : 0]), *z = static_cast<const T *>(l.in[choice ? 2 : 1]);
    uint8_t *truth = static_cast<uint8_t *>(l.y);
    MIRT__CU_PIECES(at, left, l.walk.count, 1) {
        int64_t place[3];
        mirt__cu_walk_place<3>(l.walk, at, place);
        if (choice) {
            static_cast<T *>(l.y)[at] = static_cast<const uint8_t *>(l.in[0])[place[0]] ? x[place[1]] : z[place[2]];
            continue;
        }
        const T a = x[place[0]], b = l.kind == MIRT__NOT ? (T)0 : z[place[1]];
        bool is = false;
#define MIRT__CU_TRUTH(number, id, label, value) case MIRT__##id: is = value; break;
#define MIRT__CU_CHOICE(number, id, label) case MIRT__##id: break;
        switch (l.kind) { MIRT__LOGIC_LIST(MIRT__CU_TRUTH, MIRT__CU_CHOICE) }
#undef MIRT__CU_TRUTH
#undef MIRT__CU_CHOICE
        truth[at] = is ? 1 : 0;
    }
}

static void mirt__cu_logic(const mirt__logic *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t *const stride[3] = {args->stride[0], args->stride[1], args->stride[2]};
    mirt__cu_logic_args l;
    l.kind = args->kind;
    for (int k = 0; k < 3; k++) l.in[k] = args->in[k];
    l.y = args->y;
    l.walk = mirt__cu_walk_of(args->rank, args->dim,
                              args->kind == MIRT__WHERE ? 3
                              : args->kind == MIRT__NOT ? 1
                                                        : 2,
                              stride);
    if (l.walk.count <= 0) return;
    const auto logic = args->dtype == MIRT_FLOAT32 ? mirt__cu_logic_kernel<float>
                       : args->dtype == MIRT_INT32 ? mirt__cu_logic_kernel<int32_t>
                                                   : mirt__cu_logic_kernel<uint8_t>;
    MIRT__CU_LAUNCH_PIECES(cu, logic, l.walk.count, l);
}

/* ---- cast */

/* Truncated toward zero, saturated; not a number becomes 0. */
static inline __device__ int32_t mirt__cu_to_int(float x) {
    return x >= 2147483648.0f ? INT32_MAX : x >= -2147483648.0f ? (int32_t)x : x != x ? 0 : INT32_MIN;
}
static inline __device__ int32_t mirt__cu_to_int(int32_t x) { return x; }
static inline __device__ int32_t mirt__cu_to_int(uint8_t x) { return x; }
static inline __device__ uint8_t mirt__cu_to_byte(float x) { return (uint8_t)(x >= 255 ? 255 : x > 0 ? (int)x : 0); }
static inline __device__ uint8_t mirt__cu_to_byte(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }
static inline __device__ uint8_t mirt__cu_to_byte(uint8_t x) { return x; }

/* N neighbors as one access where there are so many. */
template <int N, class T> struct mirt__cu_pack {
    T v[N];
};
template <int N, class T> static inline __device__ mirt__cu_pack<N, T> mirt__cu_pack_load(const T *x, int64_t left) {
    mirt__cu_pack<N, T> p;
    if (N * sizeof(T) >= 4 && left >= N) {
        const int bytes = N * sizeof(T) < 4 ? 4 : N * sizeof(T) > 16 ? 16 : (int)(N * sizeof(T));
        const mirt__cu_bytes<bytes> raw = mirt__cu_load_bytes<bytes>(x);
        memcpy(p.v, raw.word, sizeof p.v);
        return p;
    }
#pragma unroll
    for (int j = 0; j < N; j++) p.v[j] = j < left ? x[j] : (T)0;
    return p;
}
template <int N, class T>
static inline __device__ void mirt__cu_pack_store(T *y, int64_t left, const mirt__cu_pack<N, T> &p) {
    if (N * sizeof(T) >= 4 && left >= N) {
        const int bytes = N * sizeof(T) < 4 ? 4 : N * sizeof(T) > 16 ? 16 : (int)(N * sizeof(T));
        mirt__cu_bytes<bytes> raw;
        memcpy(raw.word, p.v, sizeof p.v);
        mirt__cu_store_bytes<bytes>(y, raw);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j < left) y[j] = p.v[j];
    }
}

template <int N, class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_cast_kernel(const T *x, void *y, mirt_dtype to, int64_t count) {
    MIRT__CU_PIECES(at, left, count, N) {
        const mirt__cu_pack<N, T> from = mirt__cu_pack_load<N>(x + at, left);
        if (to == MIRT_FLOAT32) {
            mirt__cu_pack<N, float> v;
#pragma unroll
            for (int j = 0; j < N; j++) v.v[j] = (float)from.v[j];
            mirt__cu_pack_store<N>(static_cast<float *>(y) + at, left, v);
        } else if (to == MIRT_INT32) {
            mirt__cu_pack<N, int32_t> v;
#pragma unroll
            for (int j = 0; j < N; j++) v.v[j] = mirt__cu_to_int(from.v[j]);
            mirt__cu_pack_store<N>(static_cast<int32_t *>(y) + at, left, v);
        } else if ((int)to == MIRT__BFLOAT16) {
            mirt__cu_pack<N, uint16_t> v;
#pragma unroll
            for (int j = 0; j < N; j++) mirt__cu_to_half((float)from.v[j], &v.v[j]);
            mirt__cu_pack_store<N>(static_cast<uint16_t *>(y) + at, left, v);
        } else if ((int)to == MIRT__FLOAT16) {
            mirt__cu_pack<N, mirt__cu_f16> v;
#pragma unroll
            for (int j = 0; j < N; j++) mirt__cu_to_half((float)from.v[j], &v.v[j]);
            mirt__cu_pack_store<N>(static_cast<mirt__cu_f16 *>(y) + at, left, v);
        } else {
            mirt__cu_pack<N, uint8_t> v;
#pragma unroll
            for (int j = 0; j < N; j++)
                v.v[j] = to == MIRT_BOOL ? (uint8_t)(from.v[j] != (T)0) : mirt__cu_to_byte(from.v[j]);
            mirt__cu_pack_store<N>(static_cast<uint8_t *>(y) + at, left, v);
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_copy_kernel(const T *x, T *y, int64_t count) {
    MIRT__CU_PIECES(at, left, count, 1) y[at] = x[at];
}
template <class T> static bool mirt__cu_copy_as(mirt__cu *cu, void *y, const void *x, int64_t bytes) {
    const int64_t size = sizeof(T);
    if (bytes % size || !mirt__cu_aligned(x, size) || !mirt__cu_aligned(y, size)) return false;
    MIRT__CU_LAUNCH_PIECES(cu, mirt__cu_copy_kernel<T>, bytes / size, static_cast<const T *>(x), static_cast<T *>(y),
                           bytes / size);
    return true;
}
/* Within the device; `x` and `y` are the same or do not meet. */
static void mirt__cu_copy_bytes(mirt__cu *cu, void *y, const void *x, int64_t bytes) {
    if (x == y || bytes <= 0 || mirt__cu_copy_as<uint4>(cu, y, x, bytes)) return;
    if (!mirt__cu_copy_as<uint32_t>(cu, y, x, bytes)) mirt__cu_copy_as<uint8_t>(cu, y, x, bytes);
}

template <class T> static void mirt__cu_cast_from(mirt__cu *cu, const mirt__cast *c) {
    const int n = mirt__cu_aligned_for(c->x, c->from, 4) && mirt__cu_aligned_for(c->y, c->to, 4) ? 4 : 1;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_cast_kernel<4, T> : mirt__cu_cast_kernel<1, T>),
                           mirt__cu_ceil(c->count, n), static_cast<const T *>(c->x), c->y, c->to, c->count);
}

static void mirt__cu_cast(const mirt__cast *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->count <= 0) return;
    if (args->from == args->to) {
        mirt__cu_copy_bytes(cu, args->y, args->x, args->count * mirt__cu_size(args->from));
    } else if (args->from == MIRT_FLOAT32) {
        mirt__cu_cast_from<float>(cu, args);
    } else if (args->from == MIRT_INT32) {
        mirt__cu_cast_from<int32_t>(cu, args);
    } else {
        mirt__cu_cast_from<uint8_t>(cu, args);
    }
}

/* ---- fill and constant */

template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_fill_kernel(float *y, const float *value, int64_t count) {
    const float one = *value;
    float v[N];
#pragma unroll
    for (int j = 0; j < N; j++) v[j] = one;
    MIRT__CU_PIECES(at, left, count, N) mirt__cu_store_left<N>(y + at, left, v);
}

/* The value may be another one in each step: the share of the loss of a batch's samples is. */
static void mirt__cu_fill(mirt__real *y, mirt__real value, int64_t count, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (count <= 0) return;
    const float *number = static_cast<const float *>(mirt__cu_number(cu, &value, sizeof value));
    const int n = mirt__cu_aligned(y, 16) ? 4 : 1;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_fill_kernel<4> : mirt__cu_fill_kernel<1>), mirt__cu_ceil(count, n), y,
                           number, count);
}

static void mirt__cu_constant(void *y, const void *data, size_t bytes, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (bytes == 0) return;
    const void *copy = mirt__cu_constant_copy(cu, data, bytes);
    if (copy) mirt__cu_copy_bytes(cu, y, copy, (int64_t)bytes);
}

/* >>section cuda/move.cu */

/* Moves between regular places, and rows by index. */

/* ---- move: operand 0 is x, operand 1 is y */

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_move_kernel(const T *x, T *y, const mirt__cu_walk walk) {
    MIRT__CU_PIECES(at, left, walk.count, 1) {
        int64_t place[2];
        mirt__cu_walk_place<2>(walk, at, place);
        y[place[1]] = x[place[0]];
    }
}

/* A transposition: two dimensions, each of which lies side by side in one of x and y, are moved by tiles; `walk` goes
   over the others. */
#define MIRT__CU_TILE 32
typedef struct mirt__cu_turn {
    mirt__cu_walk walk;
    int64_t down, across;     /* of the dimension along which x, and along which y, lies side by side */
    int64_t from_step, to_step; /* x along `across`, y along `down` */
    mirt__cu_divisor tiles, tiles_across;
} mirt__cu_turn;

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_turn_kernel(const T *x, T *y, const mirt__cu_turn turn) {
    MIRT_SHARED(T, tile, MIRT__CU_TILE * (MIRT__CU_TILE + 1));
    const int lane = (int)threadIdx.x % MIRT__CU_TILE, line = (int)threadIdx.x / MIRT__CU_TILE;
    const int lines = MIRT__CU_ELEMENT_BLOCK / MIRT__CU_TILE;
    for (int64_t at = blockIdx.x; at < turn.walk.count * turn.tiles.by; at += gridDim.x) {
        int64_t rest, column, place[2];
        mirt__cu_walk_place<2>(turn.walk, mirt__cu_divmod(at, turn.tiles, &rest), place);
        const int64_t down = mirt__cu_divmod(rest, turn.tiles_across, &column) * MIRT__CU_TILE,
                      across = column * MIRT__CU_TILE;
        for (int i = line; i < MIRT__CU_TILE; i += lines) {
            if (down + lane < turn.down && across + i < turn.across) {
                tile[i * (MIRT__CU_TILE + 1) + lane] = x[place[0] + (across + i) * turn.from_step + down + lane];
            }
        }
        __syncthreads();
        for (int i = line; i < MIRT__CU_TILE; i += lines) {
            if (across + lane < turn.across && down + i < turn.down) {
                y[place[1] + (down + i) * turn.to_step + across + lane] = tile[lane * (MIRT__CU_TILE + 1) + i];
            }
        }
        __syncthreads();
    }
}

/* Whether it is one, of dimensions long enough. */
static bool mirt__cu_turn_of(const mirt__cu_walk *w, mirt__cu_turn *turn) {
    const int last = w->rank - 1;
    int side = -1;
    for (int i = 0; i < last; i++) {
        if (w->stride[0][i] == 1) side = i;
    }
    if (side < 0 || w->stride[1][last] != 1 || w->dim[side].by < 8 || w->dim[last].by < 8) return false;
    turn->walk = *w;
    turn->down = w->dim[side].by;
    turn->across = w->dim[last].by;
    turn->from_step = w->stride[0][last];
    turn->to_step = w->stride[1][side];
    turn->walk.count /= turn->down * turn->across;
    turn->walk.rank = 0;
    for (int i = 0; i < last; i++) {
        const int to = turn->walk.rank;
        if (i == side) continue;
        turn->walk.dim[to] = w->dim[i];
        for (int k = 0; k < 2; k++) turn->walk.stride[k][to] = w->stride[k][i];
        turn->walk.rank++;
    }
    if (turn->walk.rank == 0) { /* a single one */
        turn->walk.rank = 1;
        turn->walk.dim[0] = mirt__cu_divisor_of(1);
    }
    const int64_t tiles_across = mirt__cu_ceil(turn->across, MIRT__CU_TILE);
    turn->tiles_across = mirt__cu_divisor_of(tiles_across);
    turn->tiles = mirt__cu_divisor_of(mirt__cu_ceil(turn->down, MIRT__CU_TILE) * tiles_across);
    return true;
}

template <class T> static void mirt__cu_move_as(mirt__cu *cu, const void *from, void *to, const mirt__cu_walk *walk) {
    const T *x = static_cast<const T *>(from);
    T *y = static_cast<T *>(to);
    if constexpr (sizeof(T) <= 4) {
        mirt__cu_turn turn;
        if (mirt__cu_turn_of(walk, &turn)) {
            const int64_t tiles = turn.walk.count * turn.tiles.by;
            MIRT_LAUNCH(cu, (mirt__cu_turn_kernel<T>), (unsigned)(tiles < 1 << 20 ? tiles : 1 << 20),
                        MIRT__CU_ELEMENT_BLOCK, 0, x, y, turn);
            return;
        }
    }
    MIRT__CU_LAUNCH_PIECES(cu, mirt__cu_move_kernel<T>, walk->count, x, y, *walk);
}

/* Makes elements of n neighbors each, where x and y allow it. */
static bool mirt__cu_move_widen(mirt__cu_walk *w, int64_t n, const void *x, const void *y, int64_t bytes) {
    const int last = w->rank - 1;
    bool can = w->dim[last].by % n == 0 && mirt__cu_aligned(x, bytes) && mirt__cu_aligned(y, bytes);
    for (int k = 0; k < 2; k++) {
        can = can && w->stride[k][last] == 1;
        for (int i = 0; i < last; i++) can = can && w->stride[k][i] % n == 0;
    }
    if (!can) return false;
    w->count /= n;
    w->dim[last] = mirt__cu_divisor_of(w->dim[last].by / n);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < last; i++) w->stride[k][i] /= n;
    }
    return true;
}

static void mirt__cu_move(const mirt__move *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t *const stride[2] = {args->from, args->to};
    mirt__cu_walk walk = mirt__cu_walk_of(args->rank, args->dim, 2, stride);
    int64_t size = mirt__cu_size(args->dtype);
    if (walk.count <= 0) return;
    for (int64_t bytes = 16; bytes > size; bytes /= 2) {
        if (mirt__cu_move_widen(&walk, bytes / size, args->x, args->y, bytes)) size = bytes;
    }
    switch (size) {
    case 1: mirt__cu_move_as<uint8_t>(cu, args->x, args->y, &walk); break;
    case 2: mirt__cu_move_as<uint16_t>(cu, args->x, args->y, &walk); break;
    case 4: mirt__cu_move_as<uint32_t>(cu, args->x, args->y, &walk); break;
    case 8: mirt__cu_move_as<uint2>(cu, args->x, args->y, &walk); break;
    default: mirt__cu_move_as<uint4>(cu, args->x, args->y, &walk); break;
    }
}

/* ---- one_hot, gather */

static inline __device__ int64_t mirt__cu_index(const void *indices, mirt_dtype dtype, int64_t at) {
    return dtype == MIRT_UINT8 ? (int64_t) static_cast<const uint8_t *>(indices)[at]
                               : (int64_t) static_cast<const int32_t *>(indices)[at];
}

template <int N> static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
mirt__cu_one_hot_kernel(const void *x, mirt_dtype dtype, float *y, int64_t count, const mirt__cu_divisor depth) {
    MIRT__CU_PIECES(at, left, count, N) {
        float v[N];
        int64_t column, row = mirt__cu_divmod(at, depth, &column), index = mirt__cu_index(x, dtype, row);
#pragma unroll
        for (int j = 0; j < N; j++) {
            v[j] = column == index ? 1.0f : 0.0f;
            if (j + 1 < N && ++column == depth.by && j + 1 < left) {
                column = 0;
                index = mirt__cu_index(x, dtype, ++row);
            }
        }
        mirt__cu_store_left<N>(y + at, left, v);
    }
}

static void mirt__cu_one_hot(const mirt__one_hot *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t count = args->count * args->depth;
    if (count <= 0) return;
    const mirt__cu_divisor depth = mirt__cu_divisor_of(args->depth);
    const int n = mirt__cu_aligned(args->y, 16) ? 4 : 1;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_one_hot_kernel<4> : mirt__cu_one_hot_kernel<1>),
                           mirt__cu_ceil(count, n), args->x, args->dtype, args->y, count, depth);
}

struct mirt__cu_gather_args : mirt__gather {
    mirt__cu_divisor pieces; /* of a row: of N columns; of the gradient: of 32 * N */
};

/* N divides the width. */
template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_gather_kernel(const mirt__cu_gather_args g) {
    MIRT__CU_PIECES(at, left, g.count * g.pieces.by, 1) {
        float v[N] = {0};
        int64_t piece;
        const int64_t index = mirt__cu_index(g.indices, g.dtype, mirt__cu_divmod(at, g.pieces, &piece));
        if (index >= 0 && index < g.n) mirt__cu_load_n<N>(g.x + index * g.width + piece * N, v);
        mirt__cu_store_n<N>(g.y + at * N, v);
    }
}

/* A warp for each row of y and piece of its columns looks through all indices; so no sum is shared, and its order is
   theirs. */
template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_gather_grad_kernel(const mirt__cu_gather_args g) {
    const int lane = (int)threadIdx.x % 32, warps = MIRT__CU_ELEMENT_BLOCK / 32;
    for (int64_t at = (int64_t)blockIdx.x * warps + threadIdx.x / 32; at < g.n * g.pieces.by;
         at += (int64_t)gridDim.x * warps) {
        int64_t piece;
        const int64_t row = mirt__cu_divmod(at, g.pieces, &piece), column = (piece * 32 + lane) * N;
        float sum[N] = {0};
        for (int64_t i = 0; i < g.count; i += 32) {
            unsigned found = __ballot_sync(MIRT__CU_ALL,
                                           i + lane < g.count && mirt__cu_index(g.indices, g.dtype, i + lane) == row);
            for (; found; found &= found - 1) {
                float v[N];
                if (column >= g.width) continue;
                mirt__cu_load_n<N>(g.x + (i + __ffs((int)found) - 1) * g.width + column, v);
#pragma unroll
                for (int j = 0; j < N; j++) sum[j] += v[j];
            }
        }
        if (column < g.width) mirt__cu_store_n<N>(g.y + row * g.width + column, sum);
    }
}

static mirt__cu_gather_args mirt__cu_gather_of(const mirt__gather *args, int *n, int lanes) {
    *n = args->width % 4 == 0 && mirt__cu_aligned(args->x, 16) && mirt__cu_aligned(args->y, 16) ? 4 : 1;
    return {*args, mirt__cu_divisor_of(mirt__cu_ceil(args->width, *n * lanes))};
}

static void mirt__cu_gather(const mirt__gather *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int n;
    const mirt__cu_gather_args g = mirt__cu_gather_of(args, &n, 1);
    if (g.count <= 0 || g.width <= 0) return;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_gather_kernel<4> : mirt__cu_gather_kernel<1>), g.count * g.pieces.by,
                           g);
}

static void mirt__cu_gather_grad(const mirt__gather *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int n;
    const mirt__cu_gather_args g = mirt__cu_gather_of(args, &n, 32);
    if (g.n <= 0 || g.width <= 0) return;
    MIRT_LAUNCH(cu, (n == 4 ? mirt__cu_gather_grad_kernel<4> : mirt__cu_gather_grad_kernel<1>),
                mirt__cu_blocks(g.n * g.pieces.by, MIRT__CU_ELEMENT_BLOCK / 32), MIRT__CU_ELEMENT_BLOCK, 0, g);
}

/* >>section cuda/reduce.cu */

/* Reductions over any axes, and what runs along one axis. */

#define MIRT__CU_REDUCE_BLOCK 256

/* Dimensions: sizes, and steps in x. */
typedef struct mirt__cu_axes {
    int rank;
    int64_t count;
    mirt__cu_divisor dim[MIRT_MAX_RANK];
    int64_t step[MIRT_MAX_RANK];
} mirt__cu_axes;

/* x's outputs are `kept` by `columns`, those being outputs whose inputs lie side by side; each is made of the elements
   of `gone`. A block has `down` threads for the elements of each of `across` pieces of columns of each of `rows` of
   kept, all powers of two, and takes a chunk of those elements, whose sums are added up in a second step. Each thread
   takes every `down`th element of the chunk. Without columns, elements that lie side by side are taken N at a time
   instead. All sizes but the number of blocks follow from columns and gone alone, so that a row of kept does not depend
   on the others. */
typedef struct mirt__cu_reduction {
    mirt__reduce_kind kind;
    const void *x, *by; /* by: what x is multiplied by, or NULL */
    float *y, *partial;
    int across, down, rows; /* as powers of two: 1 << across ... */
    int64_t columns, chunk, chunks, count; /* count: of the elements in each output */
    mirt__cu_divisor blocks, pieces; /* blocks of columns; those of all chunks */
    mirt__cu_axes kept, gone;
} mirt__cu_reduction;

/* Adds an axis outside all others; it joins the outermost one where that leaves no jump. They stand innermost first. */
static void mirt__cu_axes_add(mirt__cu_axes *axes, int64_t dim, int64_t step) {
    const int last = axes->rank - 1;
    axes->count *= dim;
    if (last >= 0 && axes->step[last] * axes->dim[last].by == step) {
        axes->dim[last] = mirt__cu_divisor_of(axes->dim[last].by * dim);
        return;
    }
    axes->dim[axes->rank] = mirt__cu_divisor_of(dim);
    axes->step[axes->rank++] = step;
}

static inline __device__ int64_t mirt__cu_axes_place(const mirt__cu_axes &axes, int64_t at) {
    const int last = axes.rank - 1;
    int64_t place = 0;
    for (int i = 0; i < last; i++) {
        int64_t rest;
        at = mirt__cu_divmod(at, axes.dim[i], &rest);
        place += rest * axes.step[i];
    }
    return last >= 0 ? place + at * axes.step[last] : 0;
}

/* The power of two that is not below n, at most 1 << most. */
static int mirt__cu_power(int64_t n, int most) {
    int power = 0;
    while (power < most && (int64_t)1 << power < n) power++;
    return power;
}

/* Whether places in axes, but for their first ones, are multiples of n. */
static bool mirt__cu_axes_by(const mirt__cu_axes *axes, int first, int64_t n) {
    for (int i = first; i < axes->rank; i++) {
        if (axes->step[i] % n) return false;
    }
    return true;
}

/* *n: how many neighbors are taken at a time, columns or elements. */
static mirt__cu_reduction mirt__cu_reduction_of(const mirt__reduce *r, bool split, int *n) {
    mirt__cu_reduction s;
    int64_t step = 1;
    bool innermost = true;
    memset(&s, 0, sizeof s);
    s.kind = r->kind;
    s.x = r->x;
    s.by = r->by;
    s.y = r->y;
    s.kept.count = s.gone.count = s.columns = 1;
    for (int i = r->rank - 1; i >= 0; step *= r->dim[i], i--) {
        if (r->dim[i] == 1) continue;
        const bool gone = r->axes >> i & 1;
        innermost = innermost && !gone;
        if (innermost) s.columns *= r->dim[i];
        else mirt__cu_axes_add(gone ? &s.gone : &s.kept, r->dim[i], step);
    }
    s.count = s.gone.count;
    *n = mirt__cu_aligned_for(r->x, r->x_dtype, 4) && mirt__cu_aligned_for(r->by, r->x_dtype, 4) ? 4 : 1;
    if (s.columns > 1) {
        if (s.columns % 4 || !mirt__cu_aligned(r->y, 16)) *n = 1; /* then all steps are multiples of 4 */
        s.across = mirt__cu_power(mirt__cu_ceil(s.columns, *n), 5);
    } else if (!split || s.gone.rank == 0 || s.gone.step[0] != 1 || s.gone.dim[0].by % 4 ||
               !mirt__cu_axes_by(&s.gone, 1, 4) || !mirt__cu_axes_by(&s.kept, 0, 4)) {
        *n = 1;
    } else if (*n == 4) {
        s.gone.dim[0] = mirt__cu_divisor_of(s.gone.dim[0].by / 4);
        s.gone.step[0] = 4;
        s.gone.count /= 4;
    }
    s.down = mirt__cu_power(s.gone.count, 8 - s.across);
    s.rows = 8 - s.across - s.down;
    /* Each thread takes 32 elements, or more where there would be over 512 chunks, up to 256, which float32 adds up
       accurately. */
    int64_t each = mirt__cu_ceil(s.gone.count, (int64_t)512 << s.down);
    each = each < 32 ? 32 : each > 256 ? 256 : each;
    s.chunk = split ? each << s.down : s.gone.count;
    s.chunks = split && s.gone.count > 0 ? mirt__cu_ceil(s.gone.count, s.chunk) : 1;
    const int64_t blocks = mirt__cu_ceil(s.columns, (int64_t)*n << s.across);
    s.blocks = mirt__cu_divisor_of(blocks);
    s.pieces = mirt__cu_divisor_of(blocks * s.chunks);
    return s;
}

static unsigned mirt__cu_reduction_blocks(const mirt__cu_reduction *s) {
    return (unsigned)(mirt__cu_ceil(s->kept.count, (int64_t)1 << s->rows) * s->pieces.by);
}

/* What a thread of a reduction has to do. */
typedef struct mirt__cu_reducing {
    int64_t begin, end, step; /* elements */
    int64_t x, y;             /* where its columns begin in x, not counting the elements, and in y */
    int64_t chunk;
    int down;                 /* number among the threads with the same columns */
    bool has;                 /* columns at all */
} mirt__cu_reducing;
template <int N> static inline __device__ mirt__cu_reducing mirt__cu_reducing_of(const mirt__cu_reduction &s) {
    mirt__cu_reducing r;
    int64_t rest, block, row = mirt__cu_divmod(blockIdx.x, s.pieces, &rest);
    const int across = (int)threadIdx.x & ((1 << s.across) - 1);
    r.down = ((int)threadIdx.x >> s.across) & ((1 << s.down) - 1);
    r.chunk = mirt__cu_divmod(rest, s.blocks, &block);
    row = (row << s.rows) + ((int)threadIdx.x >> (s.across + s.down));
    const int64_t column = s.columns > 1 ? ((block << s.across) + across) * N : 0;
    r.has = row < s.kept.count && column < s.columns;
    r.begin = r.chunk * s.chunk + r.down;
    r.end = r.chunk * s.chunk + s.chunk;
    if (r.end > s.gone.count) r.end = s.gone.count;
    if (!r.has) r.end = r.begin;
    r.step = (int64_t)1 << s.down;
    r.x = r.has ? mirt__cu_axes_place(s.kept, row) + column : 0;
    r.y = row * s.columns + column;
    return r;
}

/* Not a number is what there is before the first element. */
static inline __device__ float mirt__cu_reduce_pair(mirt__reduce_kind kind, float a, float b) {
    return kind == MIRT__REDUCE_MAX ? fmaxf(a, b) : kind == MIRT__REDUCE_MIN ? fminf(a, b) : a + b;
}
static inline __device__ float mirt__cu_reduce_none(mirt__reduce_kind kind) {
    return kind >= MIRT__REDUCE_MAX ? NAN : 0.0f;
}

/* What becomes of all elements of an output. */
static inline __device__ float mirt__cu_reduce_done(mirt__reduce_kind kind, float x, int64_t count) {
    if (kind == MIRT__REDUCE_MEAN) return x / (float)count;
    if (kind == MIRT__REDUCE_SUM || count > 0) return x;
    return kind == MIRT__REDUCE_MIN ? INFINITY : -INFINITY;
}

template <int N, class T, class F>
static inline __device__ void mirt__cu_reduce_threads(const mirt__cu_reduction &s, int down, T *sum, T *room, F what) {
    for (int half = 1 << s.down >> 1; half > 0; half >>= 1) {
#pragma unroll
        for (int j = 0; j < N; j++) room[j * MIRT__CU_REDUCE_BLOCK + (int)threadIdx.x] = sum[j];
        __syncthreads();
        if (down < half) {
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] = what(sum[j], room[j * MIRT__CU_REDUCE_BLOCK + (int)threadIdx.x + (half << s.across)]);
        }
        __syncthreads();
    }
}

template <int N, class T>
static __global__ void __launch_bounds__(MIRT__CU_REDUCE_BLOCK) mirt__cu_reduce_kernel(const mirt__cu_reduction s) {
    MIRT_SHARED(float, room, N * MIRT__CU_REDUCE_BLOCK);
    const mirt__cu_reducing r = mirt__cu_reducing_of<N>(s);
    const T *x = static_cast<const T *>(s.x) + r.x, *by = s.by ? static_cast<const T *>(s.by) + r.x : NULL;
    const mirt__reduce_kind kind = s.kind;
    float sum[N];
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] = mirt__cu_reduce_none(kind);
#pragma unroll 4
    for (int64_t at = r.begin; at < r.end; at += r.step) {
        float v[N], w[N];
        const int64_t place = mirt__cu_axes_place(s.gone, at);
        mirt__cu_load_n<N>(x + place, v);
        if (by) mirt__cu_load_n<N>(by + place, w);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] = mirt__cu_reduce_pair(kind, sum[j], by ? __fmul_rn(v[j], w[j]) : v[j]);
    }
    mirt__cu_reduce_threads<N>(s, r.down, sum, room,
                               [=](float a, float b) { return mirt__cu_reduce_pair(kind, a, b); });
    if (r.down || !r.has) return;
    if (s.columns == 1) {
#pragma unroll
        for (int step = N / 2; step > 0; step /= 2) {
#pragma unroll
            for (int j = 0; j < step; j++) sum[j] = mirt__cu_reduce_pair(kind, sum[j], sum[j + step]);
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j > 0 && s.columns == 1) break;
        if (s.chunks > 1) s.partial[r.chunk * s.kept.count * s.columns + r.y + j] = sum[j];
        else s.y[r.y + j] = mirt__cu_reduce_done(kind, sum[j], s.count);
    }
}

/* A warp for the chunks of 32 / LANES outputs, in double. */
#define MIRT__CU_FINISH_WARPS 32
static __global__ void __launch_bounds__(1024)
    mirt__cu_reduce_finish_kernel(mirt__reduce_kind kind, const float *partial, float *y, int64_t outputs,
                                  int64_t chunks, int64_t count) {
    MIRT_SHARED(double, room, 1024);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    const int64_t output = (int64_t)blockIdx.x * 32 + lane;
    double sum = kind >= MIRT__REDUCE_MAX ? NAN : 0.0;
    if (output < outputs) {
#pragma unroll 4
        for (int64_t i = warp; i < chunks; i += warps) {
            const float x = partial[i * outputs + output];
            if (kind == MIRT__REDUCE_MAX) sum = fmax(sum, (double)x);
            else if (kind == MIRT__REDUCE_MIN) sum = fmin(sum, (double)x);
            else sum += x;
        }
    }
    room[threadIdx.x] = sum;
    __syncthreads();
    if (warp || output >= outputs) return;
    for (int i = 1; i < warps; i++) {
        const double x = room[i * 32 + lane];
        sum = kind == MIRT__REDUCE_MAX ? fmax(sum, x) : kind == MIRT__REDUCE_MIN ? fmin(sum, x) : sum + x;
    }
    y[output] = mirt__cu_reduce_done(kind, (float)sum, count);
}

template <class T> static auto mirt__cu_reduce_of(int n) {
    return n == 4 ? mirt__cu_reduce_kernel<4, T> : mirt__cu_reduce_kernel<1, T>;
}
static void mirt__cu_reduce(const mirt__reduce *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int n;
    mirt__cu_reduction s = mirt__cu_reduction_of(args, true, &n);
    const int64_t outputs = s.kept.count * s.columns;
    if (outputs <= 0) return;
    if (s.chunks > 1) s.partial = static_cast<float *>(mirt__cu_room(cu, (size_t)(outputs * s.chunks) * sizeof(float)));
    const auto reduce = (int)args->x_dtype == MIRT__BFLOAT16  ? mirt__cu_reduce_of<uint16_t>(n)
                        : (int)args->x_dtype == MIRT__FLOAT16 ? mirt__cu_reduce_of<mirt__cu_f16>(n)
                                                              : mirt__cu_reduce_of<float>(n);
    MIRT_LAUNCH(cu, reduce, mirt__cu_reduction_blocks(&s), MIRT__CU_REDUCE_BLOCK, 0, s);
    if (s.chunks > 1) {
        const int warps = s.chunks < 8 ? 4 : s.chunks < 64 ? 8 : MIRT__CU_FINISH_WARPS;
        MIRT_LAUNCH(cu, mirt__cu_reduce_finish_kernel, (unsigned)mirt__cu_ceil(outputs, 32), warps * 32, 0, s.kind,
                    s.partial, s.y, outputs, s.chunks, s.count);
    }
}

/* A block goes over its elements twice: to count those that equal the extreme, and to share dy among them. */
static __global__ void __launch_bounds__(MIRT__CU_REDUCE_BLOCK)
    mirt__cu_reduce_max_grad_kernel(const mirt__cu_reduction s, const float *dy, float *dx) {
    MIRT_SHARED(int, room, MIRT__CU_REDUCE_BLOCK);
    const mirt__cu_reducing r = mirt__cu_reducing_of<1>(s);
    const float *x = static_cast<const float *>(s.x) + r.x, most = r.has ? s.y[r.y] : 0.0f;
    int equal = 0;
    for (int64_t at = r.begin; at < r.end; at += r.step) equal += x[mirt__cu_axes_place(s.gone, at)] == most;
    mirt__cu_reduce_threads<1>(s, r.down, &equal, room, mirt__cu_plus());
    if (r.down == 0) room[threadIdx.x] = equal;
    __syncthreads();
    if (!r.has) return;
    const float share = dy[r.y] / (float)room[(int)threadIdx.x - (r.down << s.across)];
    for (int64_t at = r.begin; at < r.end; at += r.step) {
        const int64_t place = mirt__cu_axes_place(s.gone, at);
        dx[r.x + place] = x[place] == most ? share : 0.0f;
    }
}

static void mirt__cu_reduce_max_grad(const mirt__reduce_max_grad *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__reduce plain = args->s;
    int n;
    mirt__cu_reduction s = mirt__cu_reduction_of(&plain, false, &n);
    if (n > 1) { /* one column for each thread */
        s.across = mirt__cu_power(s.columns, 5);
        s.down = mirt__cu_power(s.gone.count, 8 - s.across);
        s.rows = 8 - s.across - s.down;
        s.blocks = s.pieces = mirt__cu_divisor_of(mirt__cu_ceil(s.columns, (int64_t)1 << s.across));
    }
    if (s.kept.count * s.columns * s.gone.count <= 0) return;
    MIRT_LAUNCH(cu, mirt__cu_reduce_max_grad_kernel, mirt__cu_reduction_blocks(&s), MIRT__CU_REDUCE_BLOCK, 0, s,
                args->dy, args->dx);
}

/* ---- scan */

struct mirt__cu_scan_args : mirt__scan {
    mirt__cu_divisor by_inner;
};

/* A thread for each line. */
static __global__ void __launch_bounds__(64) mirt__cu_cumsum_kernel(const mirt__cu_scan_args s) {
    const int64_t step = s.kind == MIRT__CUMSUM_BACK ? -s.inner : s.inner;
    MIRT__CU_PIECES(at, left, s.outer * s.inner, 1) {
        int64_t column;
        const int64_t row = mirt__cu_divmod(at, s.by_inner, &column),
                      first = (row * s.n + (step < 0 ? s.n - 1 : 0)) * s.inner + column;
        const float *x = s.x + first;
        float *y = static_cast<float *>(s.y) + first, sum = 0;
        for (int64_t i = 0; i < s.n; i++) y[i * step] = sum += x[i * step];
    }
}
static __global__ void __launch_bounds__(64) mirt__cu_sparsemax_kernel(const mirt__cu_scan_args s) {
    MIRT__CU_PIECES(at, left, s.outer * s.inner, 1) {
        int64_t column;
        const int64_t row = mirt__cu_divmod(at, s.by_inner, &column);
        mirt__sparsemax_line(&s, row * s.n * s.inner + column);
    }
}
static __global__ void __launch_bounds__(64) mirt__cu_extreme_kernel(const mirt__cu_scan_args s) {
    const bool least = s.kind == MIRT__ARGMIN;
    MIRT__CU_PIECES(at, left, s.outer * s.inner, 1) {
        int64_t column;
        const int64_t row = mirt__cu_divmod(at, s.by_inner, &column);
        const float *line = s.x + row * s.n * s.inner + column;
        float most = line[0];
        int32_t best = 0;
        for (int64_t i = 1; i < s.n; i++) {
            const float x = line[i * s.inner];
            if (least ? x < most : x > most) {
                most = x;
                best = (int32_t)i;
            }
        }
        static_cast<int32_t *>(s.y)[at] = best;
    }
}

/* The place of the first of the largest of n > 0 numbers side by side (`sign` -1: of the smallest), by a whole warp. As
   one after the other finds it, what is not a number is above none; a first one that is not stays. */
static inline __device__ int32_t mirt__cu_warp_argmax(const float *x, int64_t n, float sign) {
    const int lane = (int)threadIdx.x % 32;
    float most = -INFINITY;
    int32_t best = INT32_MAX;
    for (int64_t i = lane; i < n; i += 32) {
        const float v = sign * x[i];
        if (v > most || (v == most && best == INT32_MAX)) {
            most = v;
            best = (int32_t)i;
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float v = __shfl_xor_sync(MIRT__CU_ALL, most, step);
        const int32_t place = __shfl_xor_sync(MIRT__CU_ALL, best, step);
        if (v > most || (v == most && place < best)) {
            most = v;
            best = place;
        }
    }
    return x[0] != x[0] || best == INT32_MAX ? 0 : best;
}

/* A warp for each row, along which the numbers lie side by side. */
static __global__ void __launch_bounds__(MIRT__CU_REDUCE_BLOCK) mirt__cu_argmax_kernel(const mirt__cu_scan_args s) {
    const int warps = MIRT__CU_REDUCE_BLOCK / 32;
    for (int64_t row = (int64_t)blockIdx.x * warps + threadIdx.x / 32; row < s.outer;
         row += (int64_t)gridDim.x * warps) {
        const int32_t best = mirt__cu_warp_argmax(s.x + row * s.n, s.n, s.kind == MIRT__ARGMIN ? -1.0f : 1.0f);
        if (threadIdx.x % 32 == 0) static_cast<int32_t *>(s.y)[row] = best;
    }
}

static void mirt__cu_scan(const mirt__scan *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__cu_scan_args s = {*args, mirt__cu_divisor_of(args->inner)};
    const int64_t lines = args->outer * args->inner;
    if (lines <= 0 || args->n <= 0) return;
    if (args->kind == MIRT__CUMSUM || args->kind == MIRT__CUMSUM_BACK) {
        MIRT_LAUNCH(cu, mirt__cu_cumsum_kernel, mirt__cu_blocks(lines, 64), 64, 0, s);
    } else if (args->kind == MIRT__SPARSEMAX) {
        MIRT_LAUNCH(cu, mirt__cu_sparsemax_kernel, mirt__cu_blocks(lines, 64), 64, 0, s);
    } else if (args->inner == 1) {
        MIRT_LAUNCH(cu, mirt__cu_argmax_kernel, mirt__cu_blocks(args->outer, MIRT__CU_REDUCE_BLOCK / 32),
                    MIRT__CU_REDUCE_BLOCK, 0, s);
    } else {
        MIRT_LAUNCH(cu, mirt__cu_extreme_kernel, mirt__cu_blocks(lines, 64), 64, 0, s);
    }
}

/* >>section cuda/loss.cu */

/* Softmax, losses and accuracy: one warp, or one block for long rows, per row. */

#define MIRT__CU_ROW_BLOCK 256
#define MIRT__CU_LONG_ROW 2048 /* from here on a row is a block's */

/* The threads of a row. */
template <bool BLOCK> struct mirt__cu_row_group {
    int lane, size;
    int64_t row, step; /* the first row, and how far to the next */
    float *room;
    __device__ explicit mirt__cu_row_group(float *shared) {
        const int warps = MIRT__CU_ROW_BLOCK / 32;
        lane = BLOCK ? (int)threadIdx.x : (int)threadIdx.x % 32;
        size = BLOCK ? MIRT__CU_ROW_BLOCK : 32;
        row = BLOCK ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * warps + threadIdx.x / 32;
        step = (int64_t)gridDim.x * (BLOCK ? 1 : warps);
        room = shared;
    }
    __device__ float sum(float x) const { return BLOCK ? mirt__cu_block_sum(x, room) : mirt__cu_warp_sum(x); }
    __device__ float max(float x) const { return BLOCK ? mirt__cu_block_max(x, room) : mirt__cu_warp_max(x); }
};
#define MIRT__CU_EACH(j, n) for (int64_t j = group.lane; j < (n); j += group.size)

/* A kernel by rows. */
#define MIRT__CU_BY_ROWS(cu, kernel, args) \
    MIRT_LAUNCH(cu, ((args).n >= MIRT__CU_LONG_ROW ? kernel<true> : kernel<false>), \
                mirt__cu_blocks((args).rows, (args).n >= MIRT__CU_LONG_ROW ? 1 : MIRT__CU_ROW_BLOCK / 32), \
                MIRT__CU_ROW_BLOCK, 0, args)

template <bool BLOCK>
static inline __device__ float mirt__cu_row_max(const mirt__cu_row_group<BLOCK> &group, const float *x, int64_t n) {
    float most = -INFINITY;
    MIRT__CU_EACH(j, n) most = fmaxf(most, x[j]);
    return group.max(most);
}
template <bool BLOCK>
static inline __device__ float mirt__cu_row_sum(const mirt__cu_row_group<BLOCK> &group, const float *x, int64_t n) {
    float sum = 0;
    MIRT__CU_EACH(j, n) sum += x[j];
    return group.sum(sum);
}
/* The sum of exp(x - most). */
template <bool BLOCK>
static inline __device__ float mirt__cu_row_exp(const mirt__cu_row_group<BLOCK> &group, const float *x, int64_t n,
                                                float most) {
    float sum = 0;
    MIRT__CU_EACH(j, n) sum += expf(x[j] - most);
    return group.sum(sum);
}

/* ---- softmax. Each thread reads and writes the same places. */

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_softmax_kernel(const mirt__softmax s) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < s.rows; r += group.step) {
        const float *x = s.x + r * s.n;
        float *y = s.y + r * s.n;
        const float most = mirt__cu_row_max(group, x, s.n);
        if (s.log) {
            const float log_sum = logf(mirt__cu_row_exp(group, x, s.n, most));
            MIRT__CU_EACH(j, s.n) y[j] = x[j] - most - log_sum;
            continue;
        }
        float sum = 0;
        MIRT__CU_EACH(j, s.n) {
            const float e = expf(x[j] - most);
            y[j] = e;
            sum += e;
        }
        sum = group.sum(sum);
        MIRT__CU_EACH(j, s.n) y[j] /= sum;
    }
}

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_softmax_grad_kernel(const mirt__softmax s) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < s.rows; r += group.step) {
        const float *p = s.x + r * s.n, *dy = s.dy + r * s.n;
        float *dx = s.y + r * s.n, sum = 0;
        MIRT__CU_EACH(j, s.n) sum += s.log ? dy[j] : dy[j] * p[j];
        sum = group.sum(sum);
        MIRT__CU_EACH(j, s.n) dx[j] = s.log ? dy[j] - expf(p[j]) * sum : p[j] * (dy[j] - sum);
    }
}

static void mirt__cu_softmax(const mirt__softmax *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows > 0 && args->n > 0) MIRT__CU_BY_ROWS(cu, mirt__cu_softmax_kernel, *args);
}
static void mirt__cu_softmax_grad(const mirt__softmax *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows > 0 && args->n > 0) MIRT__CU_BY_ROWS(cu, mirt__cu_softmax_grad_kernel, *args);
}

/* ---- losses: the formulas are explained in the library's reference kernels */

/* The loss of row r: -log of the probability of its label, the sum of clipped probabilities being 1. */
template <bool BLOCK>
static inline __device__ float mirt__cu_sparse_categorical_crossentropy(const mirt__cu_row_group<BLOCK> &group,
                                                                        const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, s = l.how.label_smoothing;
    const int32_t label = static_cast<const int32_t *>(l.labels)[r];
    const float at = label >= 0 && label < l.n ? x[label] : NAN;
    float sum = 0, even = 0; /* the sum of log probabilities, up to log_sum */
    if (mirt__is_ignored(&l.how, label)) return 0;
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), log_sum = logf(mirt__cu_row_exp(group, x, l.n, most));
        if (s == 0) return log_sum - (at - most);
        MIRT__CU_EACH(j, l.n) even += x[j] - most;
        return log_sum - ((1 - s) * (at - most) + s / (float)l.n * group.sum(even));
    }
    MIRT__CU_EACH(j, l.n) sum += mirt__clipped(x[j]);
    sum = group.sum(sum);
    if (s == 0) return logf(sum) - logf(mirt__clipped(at));
    MIRT__CU_EACH(j, l.n) even += logf(mirt__clipped(x[j]));
    return logf(sum) - ((1 - s) * logf(mirt__clipped(at)) + s / (float)l.n * group.sum(even));
}

template <bool BLOCK>
static inline __device__ float mirt__cu_categorical_crossentropy(const mirt__cu_row_group<BLOCK> &group,
                                                                 const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, *label = static_cast<const float *>(l.labels) + r * l.n, even = 1 / (float)l.n;
    float loss = 0;
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), log_sum = logf(mirt__cu_row_exp(group, x, l.n, most));
        MIRT__CU_EACH(j, l.n) {
            const float t = mirt__smoothed(&l.how, label[j], even);
            if (t != 0) loss += t * (log_sum - (x[j] - most));
        }
    } else {
        const float sum = mirt__cu_row_sum(group, x, l.n);
        MIRT__CU_EACH(j, l.n) {
            const float t = mirt__smoothed(&l.how, label[j], even);
            if (t != 0) loss -= t * logf(mirt__clipped(x[j] / sum));
        }
    }
    return group.sum(loss);
}

template <float (*ELEMENT)(const mirt_loss_options *how, float x, float t), bool BLOCK>
static inline __device__ float mirt__cu_mean(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, *t = static_cast<const float *>(l.labels) + r * l.n;
    float loss = 0;
    MIRT__CU_EACH(j, l.n) loss += ELEMENT(&l.how, x[j], t[j]);
    return group.sum(loss) / (float)l.n;
}

/* False: rows r and j are no pair. */
template <bool BLOCK>
static inline __device__ bool mirt__cu_circle_pair(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                   int64_t r, int64_t j, mirt__circle_pair *pair) {
    const int32_t *label = static_cast<const int32_t *>(l.labels);
    float cosine = 0;
    if (j == r && !l.how.keep_diagonal) return false;
    MIRT__CU_EACH(k, l.n) cosine += l.x[r * l.n + k] * l.x[j * l.n + k];
    *pair = mirt__circle_of(&l.how, label[r] != label[j], group.sum(cosine));
    return true;
}

/* As mirt__circle_row. */
template <bool BLOCK>
static inline __device__ void mirt__cu_circle_sums(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                   int64_t r) {
    float most[2] = {MIRT__NO_PAIR, MIRT__NO_PAIR}, sum[2] = {0, 0};
    mirt__circle_pair pair;
    for (int64_t j = 0; j < l.rows; j++) {
        if (!mirt__cu_circle_pair(group, l, r, j, &pair)) continue;
        const int i = pair.other;
        const float top = fmaxf(most[i], pair.value);
        sum[i] = sum[i] * expf(most[i] - top) + expf(pair.value - top);
        most[i] = top;
    }
    for (int i = 0; i < 2 && group.lane == 0; i++)
        l.loss[2 * r + i] = sum[i] == 0 ? MIRT__NO_PAIR : most[i] + logf(sum[i]);
}

static inline __device__ float mirt__cu_circle_share(const mirt__loss &l, int64_t r, const mirt__circle_pair &pair) {
    const int64_t at = 2 * r + pair.other;
    return l.loss[at ^ 1] == MIRT__NO_PAIR ? 0.0f : l.dloss[at] * expf(pair.value - l.loss[at]);
}

/* Its gradient. */
template <bool BLOCK>
static inline __device__ void mirt__cu_circle_grad(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                   int64_t r) {
    float *dx = l.dx + r * l.n;
    mirt__circle_pair pair;
    MIRT__CU_EACH(k, l.n) dx[k] = 0;
    for (int64_t j = 0; j < l.rows; j++) {
        if (!mirt__cu_circle_pair(group, l, r, j, &pair)) continue;
        const float part = pair.slope * (mirt__cu_circle_share(l, r, pair) + mirt__cu_circle_share(l, j, pair));
        MIRT__CU_EACH(k, l.n) dx[k] += part * l.x[j * l.n + k];
    }
}

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_loss_kernel(const mirt__loss l) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < l.rows; r += group.step) {
        float loss = 0;
        switch (l.kind) {
        case MIRT_CIRCLE: mirt__cu_circle_sums(group, l, r); continue;
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            loss = mirt__cu_sparse_categorical_crossentropy(group, l, r);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: loss = mirt__cu_categorical_crossentropy(group, l, r); break;
        case MIRT_BINARY_CROSSENTROPY: loss = mirt__cu_mean<mirt__binary_crossentropy>(group, l, r); break;
        default: loss = mirt__cu_mean<mirt__mean_squared_error>(group, l, r);
        }
        if (group.lane == 0) l.loss[r] = loss;
    }
}
template <bool BLOCK>
static inline __device__ void mirt__cu_sparse_categorical_crossentropy_grad(const mirt__cu_row_group<BLOCK> &group,
                                                                            const mirt__loss &l, int64_t r) {
    const int32_t label = static_cast<const int32_t *>(l.labels)[r];
    const float *x = l.x + r * l.n, scale = l.dloss[r], even = l.how.label_smoothing / (float)l.n;
    const float own = 1 - l.how.label_smoothing;
    float *dx = l.dx + r * l.n;
    if (mirt__is_ignored(&l.how, label)) {
        MIRT__CU_EACH(j, l.n) dx[j] = 0;
        return;
    }
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), sum = mirt__cu_row_exp(group, x, l.n, most);
        MIRT__CU_EACH(j, l.n) dx[j] = (expf(x[j] - most) / sum - ((j == label ? own : 0.0f) + even)) * scale;
        return;
    }
    float sum = 0;
    MIRT__CU_EACH(j, l.n) sum += mirt__clipped(x[j]);
    sum = group.sum(sum);
    MIRT__CU_EACH(j, l.n)
        dx[j] = mirt__is_clipped(x[j]) ? 0.0f : scale * (1 / sum - ((j == label ? own : 0.0f) + even) / x[j]);
}

template <bool BLOCK>
static inline __device__ void mirt__cu_categorical_crossentropy_grad(const mirt__cu_row_group<BLOCK> &group,
                                                                     const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, *label = static_cast<const float *>(l.labels) + r * l.n, scale = l.dloss[r];
    const float even = 1 / (float)l.n;
    float *dx = l.dx + r * l.n, total = 0;
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), sum = mirt__cu_row_exp(group, x, l.n, most);
        MIRT__CU_EACH(j, l.n) total += mirt__smoothed(&l.how, label[j], even);
        total = group.sum(total);
        MIRT__CU_EACH(j, l.n)
            dx[j] = scale * (expf(x[j] - most) / sum * total - mirt__smoothed(&l.how, label[j], even));
        return;
    }
    const float sum = mirt__cu_row_sum(group, x, l.n);
    MIRT__CU_EACH(j, l.n) {
        const float q = x[j] / sum;
        total += mirt__is_clipped(q) ? 0.0f : -mirt__smoothed(&l.how, label[j], even) / q * q;
    }
    total = group.sum(total);
    MIRT__CU_EACH(j, l.n) {
        const float q = x[j] / sum;
        const float own = mirt__is_clipped(q) ? 0.0f : -mirt__smoothed(&l.how, label[j], even) / q;
        dx[j] = scale * ((own - total) / sum);
    }
}

/* The division by n is done once per row. */
template <float (*ELEMENT)(const mirt_loss_options *how, float x, float t, float scale, float n), bool BLOCK>
static inline __device__ void mirt__cu_mean_grad(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                 int64_t r) {
    const float *x = l.x + r * l.n, *t = static_cast<const float *>(l.labels) + r * l.n;
    const float share = l.dloss[r] / (float)l.n;
    MIRT__CU_EACH(j, l.n) l.dx[r * l.n + j] = ELEMENT(&l.how, x[j], t[j], share, 1.0f);
}

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_loss_grad_kernel(const mirt__loss l) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < l.rows; r += group.step) {
        switch (l.kind) {
        case MIRT_CIRCLE: mirt__cu_circle_grad(group, l, r); break;
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            mirt__cu_sparse_categorical_crossentropy_grad(group, l, r);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: mirt__cu_categorical_crossentropy_grad(group, l, r); break;
        case MIRT_BINARY_CROSSENTROPY: mirt__cu_mean_grad<mirt__binary_crossentropy_grad>(group, l, r); break;
        default: mirt__cu_mean_grad<mirt__mean_squared_error_grad>(group, l, r);
        }
    }
}
static void mirt__cu_loss(const mirt__loss *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows == 0 || (args->dx && args->n == 0)) return;
    if (args->dx) MIRT__CU_BY_ROWS(cu, mirt__cu_loss_grad_kernel, *args);
    else MIRT__CU_BY_ROWS(cu, mirt__cu_loss_kernel, *args);
}

/* ---- accuracy: a warp for each row, however long */

static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK)
    mirt__cu_accuracy_kernel(mirt__accuracy_kind kind, int64_t rows, int64_t n, const float *predicted,
                             const void *labels, float *y) {
    const mirt__cu_row_group<false> group(NULL);
    for (int64_t r = group.row; r < rows; r += group.step) {
        const float *x = predicted + r * n, *t = static_cast<const float *>(labels) + r * n;
        float right = 0;
        if (kind == MIRT__ACCURACY_BINARY) {
            MIRT__CU_EACH(j, n) right += t[j] == (x[j] > 0.5f ? 1.0f : 0.0f) ? 1.0f : 0.0f;
            right = group.sum(right) / (float)n;
        } else {
            const int32_t at = kind == MIRT__ACCURACY_SPARSE ? static_cast<const int32_t *>(labels)[r]
                                                             : mirt__cu_warp_argmax(t, n, 1.0f);
            right = mirt__cu_warp_argmax(x, n, 1.0f) == at ? 1.0f : 0.0f;
        }
        if (group.lane == 0) y[r] = right;
    }
}

static void mirt__cu_accuracy(const mirt__accuracy *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows <= 0 || args->n <= 0) return;
    MIRT_LAUNCH(cu, mirt__cu_accuracy_kernel, mirt__cu_blocks(args->rows, MIRT__CU_ROW_BLOCK / 32), MIRT__CU_ROW_BLOCK,
                0, args->kind, args->rows, args->n, args->x, args->labels, args->y);
}
#undef MIRT__CU_EACH
#undef MIRT__CU_BY_ROWS

/* >>section cuda/dropout.cu */

/* Dropout and Gaussian noise, with the random numbers of CPUs. */

/* What is another in each step. */
typedef struct mirt__cu_dropout_draw {
    int64_t first_row;
    uint64_t key;
    uint32_t step;
} mirt__cu_dropout_draw;

typedef struct mirt__cu_dropout_args {
    int64_t rows, n;
    mirt__cu_divisor pieces; /* of four elements in a row */
    uint32_t limit;          /* 24 bits that stay are not below it */
    float kept;              /* noise: the standard deviation */
    const float *x;
    float *y;
    const mirt__cu_dropout_draw *draw;
} mirt__cu_dropout_args;

/* Four elements have the words of one draw. `WHOLE`: rows are whole pieces, and aligned. */
template <bool WHOLE, bool NOISE>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_dropout_kernel(const mirt__cu_dropout_args d) {
    const mirt__cu_dropout_draw draw = *d.draw;
    MIRT__CU_PIECES(at, left, d.rows * d.pieces.by, 1) {
        int64_t piece;
        const int64_t r = mirt__cu_divmod(at, d.pieces, &piece), begin = r * d.n + piece * 4,
                      count = WHOLE ? 4 : d.n - piece * 4;
        const uint64_t row = (uint64_t)(draw.first_row + r);
        const uint32_t counter[4] = {(uint32_t)piece, (uint32_t)row, (uint32_t)(row >> 32), draw.step};
        const uint32_t key[2] = {(uint32_t)draw.key, (uint32_t)(draw.key >> 32)};
        uint32_t word[4];
        float v[4];
        if (WHOLE) mirt__cu_load_n<4>(d.x + begin, v);
        mirt__philox(counter, key, word);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (!WHOLE) v[j] = j < count ? d.x[begin + j] : 0.0f;
            if (NOISE) v[j] = __fadd_rn(v[j], __fmul_rn(d.kept, mirt__normal(word[j])));
            else v[j] = word[j] >> 8 >= d.limit ? v[j] / d.kept : 0.0f;
            if (!WHOLE && j < count) d.y[begin + j] = v[j];
        }
        if (WHOLE) mirt__cu_store_n<4>(d.y + begin, v);
    }
}

template <bool NOISE> static void mirt__cu_drawn(const mirt__dropout *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_dropout_draw draw;
    mirt__cu_dropout_args d;
    if (args->rows <= 0 || args->n <= 0) return;
    memset(&draw, 0, sizeof draw);
    draw.first_row = args->first_row;
    draw.key = args->key;
    draw.step = args->step;
    d.rows = args->rows;
    d.n = args->n;
    d.pieces = mirt__cu_divisor_of(mirt__cu_ceil(args->n, 4));
    d.limit = NOISE ? 0 : (uint32_t)ceilf(args->rate * 16777216.0f);
    d.kept = NOISE ? args->rate : 1 - args->rate;
    d.x = args->x;
    d.y = args->y;
    d.draw = static_cast<const mirt__cu_dropout_draw *>(mirt__cu_number(cu, &draw, sizeof draw));
    const bool whole = d.n % 4 == 0 && mirt__cu_aligned(d.x, 16) && mirt__cu_aligned(d.y, 16);
    MIRT__CU_LAUNCH_PIECES(
        cu, (whole ? mirt__cu_dropout_kernel<true, NOISE> : mirt__cu_dropout_kernel<false, NOISE>),
        d.rows * d.pieces.by, d);
}

static void mirt__cu_dropout(const mirt__dropout *args, const mirt__where *where) {
    mirt__cu_drawn<false>(args, where);
}

static void mirt__cu_gaussian_noise(const mirt__dropout *args, const mirt__where *where) {
    mirt__cu_drawn<true>(args, where);
}

/* >>section cuda/constrain.cu */

/* Constraints of weights: norms by one block each. */

typedef struct mirt__cu_constrain_args {
    mirt_constraint c;
    mirt__cu_axes kept, gone;
    float *w;
} mirt__cu_constrain_args;

static mirt__cu_axes mirt__cu_constrain_axes(const mirt__constrain *args, unsigned axes) {
    mirt__cu_axes a;
    int64_t step = 1;
    memset(&a, 0, sizeof a);
    a.count = 1;
    for (int i = args->rank - 1; i >= 0; step *= args->dim[i--]) {
        if (axes >> i & 1) mirt__cu_axes_add(&a, args->dim[i], step);
    }
    return a;
}

#define MIRT__CU_CONSTRAIN_BLOCK 128

static __global__ void __launch_bounds__(MIRT__CU_CONSTRAIN_BLOCK)
    mirt__cu_constrain_kernel(const mirt__cu_constrain_args a) {
    MIRT_SHARED(double, sums, MIRT__CU_CONSTRAIN_BLOCK);
    const int thread = (int)threadIdx.x;
    for (int64_t at = blockIdx.x; at < a.kept.count; at += gridDim.x) {
        float *w = a.w + mirt__cu_axes_place(a.kept, at);
        double sum = 0;
        for (int64_t r = thread; r < a.gone.count; r += MIRT__CU_CONSTRAIN_BLOCK) {
            const double x = (double)w[mirt__cu_axes_place(a.gone, r)];
            sum += x * x;
        }
        sums[thread] = sum;
        __syncthreads();
        for (int half = MIRT__CU_CONSTRAIN_BLOCK / 2; half > 0; half /= 2) { /* a tree */
            if (thread < half) sums[thread] += sums[thread + half];
            __syncthreads();
        }
        const float norm = (float)sqrt(sums[0]), least = a.c.min_value, most = a.c.max_value,
                    clipped = norm < least ? least : norm > most ? most : norm, below = 1e-7f + norm,
                    desired = __fadd_rn(__fmul_rn(a.c.rate, clipped), __fmul_rn(1 - a.c.rate, norm));
        for (int64_t r = thread; r < a.gone.count; r += MIRT__CU_CONSTRAIN_BLOCK) {
            float *x = w + mirt__cu_axes_place(a.gone, r);
            *x = a.c.kind == MIRT_UNIT_NORM ? *x / below : *x * (desired / below);
        }
        __syncthreads(); /* the next norm takes the place of this one */
    }
}

/* A power iteration of a block's threads, as mirt__spectral_norm has it: the next u in `sum`, not divided by its norm,
   which is returned. */
static inline __device__ double mirt__cu_spectral_step(const float *w, const float *u, int64_t rows, int columns,
                                                       double *sum, double *v) {
    const int thread = (int)threadIdx.x, lane = thread % 32;
    double squares = 0, norm = 0;
    for (int j = thread; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK) sum[j] = 0;
    for (int64_t first = 0; first < rows; first += MIRT__CU_CONSTRAIN_BLOCK) {
        const int count = (int)(rows - first < MIRT__CU_CONSTRAIN_BLOCK ? rows - first : MIRT__CU_CONSTRAIN_BLOCK);
        const float *part = w + first * columns;
        for (int r = thread / 32; r < count; r += MIRT__CU_CONSTRAIN_BLOCK / 32) {
            double product = 0;
            for (int j = lane; j < columns; j += 32) product += (double)part[(int64_t)r * columns + j] * (double)u[j];
            product = mirt__cu_warp_sum(product);
            if (lane == 0) v[r] = product;
        }
        __syncthreads();
        for (int r = 0; r < count; r++) squares += v[r] * v[r];
        for (int j = thread; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK) {
            double x = sum[j];
            for (int r = 0; r < count; r++) x += v[r] * (double)part[(int64_t)r * columns + j];
            sum[j] = x;
        }
        __syncthreads();
    }
    const double length = fmax(sqrt(squares), 1e-7);
    for (int j = 0; j < columns; j++) norm += sum[j] / length * (sum[j] / length);
    __syncthreads();
    for (int j = thread; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK) sum[j] /= length;
    return sqrt(norm);
}

static __global__ void __launch_bounds__(MIRT__CU_CONSTRAIN_BLOCK)
    mirt__cu_spectral_kernel(float *w, float *u, int64_t rows, int columns, int iterations) {
    MIRT_SHARED(double, sum, MIRT__SPECTRAL_COLUMNS);
    MIRT_SHARED(double, v, MIRT__CU_CONSTRAIN_BLOCK);
    double norm = 0;
    for (int k = 0; k < iterations; k++) {
        norm = mirt__cu_spectral_step(w, u, rows, columns, sum, v);
        if (!(norm > 0)) return;
        for (int j = (int)threadIdx.x; j < columns; j += MIRT__CU_CONSTRAIN_BLOCK)
            u[j] = (float)(sum[j] / fmax(norm, 1e-7));
        __syncthreads();
    }
    const double sigma = norm * norm / fmax(norm, 1e-7);
    for (int64_t i = threadIdx.x; i < rows * columns; i += MIRT__CU_CONSTRAIN_BLOCK)
        w[i] = (float)((double)w[i] / sigma);
}

static void mirt__cu_spectral_norm(const mirt__constrain *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int64_t rows = 1;
    for (int i = 0; i < args->rank - 1; i++) rows *= args->dim[i];
    MIRT_LAUNCH(cu, mirt__cu_spectral_kernel, 1, MIRT__CU_CONSTRAIN_BLOCK, 0, args->w, args->u, rows,
                (int)args->dim[args->rank - 1], args->constraint.power_iterations);
}

static void mirt__cu_not_negative(const mirt__constrain *args, const mirt__where *where) {
    mirt__unary u;
    memset(&u, 0, sizeof u);
    u.kind = MIRT__ACT_RELU;
    u.count = 1;
    for (int i = 0; i < args->rank; i++) u.count *= args->dim[i];
    u.x = args->w;
    u.y = args->w;
    mirt__cu_unary(&u, where);
}

static void mirt__cu_constrain(const mirt__constrain *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_constrain_args a;
    const unsigned axes = (unsigned)args->constraint.axis;
    if (args->constraint.kind == MIRT_NON_NEG) {
        mirt__cu_not_negative(args, where);
        return;
    }
    if (args->constraint.kind == MIRT_SPECTRAL_NORM) {
        mirt__cu_spectral_norm(args, where);
        return;
    }
    memset(&a, 0, sizeof a);
    a.c = args->constraint;
    a.kept = mirt__cu_constrain_axes(args, ~axes);
    a.gone = mirt__cu_constrain_axes(args, axes);
    a.w = args->w;
    if (a.kept.count <= 0 || a.gone.count <= 0) return;
    const unsigned blocks = (unsigned)(a.kept.count < 65536 ? a.kept.count : 65536);
    MIRT_LAUNCH(cu, mirt__cu_constrain_kernel, blocks, MIRT__CU_CONSTRAIN_BLOCK, 0, a);
}

#undef MIRT__CU_CONSTRAIN_BLOCK

/* >>section cuda/parts.cuh */

#ifndef MIRT__CUDA_PARTS_CUH
#define MIRT__CUDA_PARTS_CUH
/* Partial sums of weight gradients, and their total. */

/* to[i] = the sum of part[p * stride + i] over `parts`: by the threads of a column of a block, which each take some
   that follow each other, then in their order. The first `count` numbers go to `to`, the others to `rest`. */
static __global__ void __launch_bounds__(1024)
    mirt__cu_parts_add(const float *part, int64_t parts, int64_t stride, int64_t count, float *to, int64_t more,
                       float *rest) {
    MIRT_SHARED(float, sums, 1024);
    const int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x, each = (parts + blockDim.y - 1) / blockDim.y;
    const int64_t first = threadIdx.y * each, end = first + each < parts ? first + each : parts;
    float sum = 0;
    if (i < count + more) {
        const float *from = part + i;
        int64_t p = first;
        for (; p + 4 <= end; p += 4) {
            const float a = from[p * stride], b = from[(p + 1) * stride], c = from[(p + 2) * stride],
                        d = from[(p + 3) * stride];
            sum += (a + b) + (c + d);
        }
        for (; p < end; p++) sum += from[p * stride];
    }
    sums[threadIdx.y * 32 + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || i >= count + more) return;
    for (int t = 1; t < (int)blockDim.y; t++) sum += sums[t * 32 + threadIdx.x];
    if (i < count) to[i] = sum;
    else rest[i - count] = sum;
}
/* The same of few parts, four numbers per thread: all lengths are multiples of four. */
static __global__ void __launch_bounds__(256)
    mirt__cu_parts_add_few(const float *part, int64_t parts, int64_t stride, int64_t count, float *to, int64_t more,
                           float *rest) {
    const int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 4;
    float sum[4] = {0, 0, 0, 0};
    if (i >= count + more) return;
    for (int64_t p = 0; p < parts; p += 4) {
        float x[4][4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (p + k < parts) mirt__cu_load_n<4>(part + (p + k) * stride + i, x[k]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (p + k >= parts) break;
#pragma unroll
            for (int v = 0; v < 4; v++) sum[v] += x[k][v];
        }
    }
    mirt__cu_store_n<4>(i < count ? to + i : rest + (i - count), sum);
}
/* No parts: zeros. `rest` may be NULL. */
static void mirt__cu_parts_total(mirt__cu *cu, const float *part, int64_t parts, int64_t stride, int64_t count,
                                 float *to, int64_t more, float *rest) {
    if (!rest) more = 0;
    if (count + more < 1) return;
    if (parts <= 32 && count + more >= 1 << 14 && (stride | count | more) % 4 == 0 && mirt__cu_aligned(part, 16) &&
        mirt__cu_aligned(to, 16) && mirt__cu_aligned(rest, 16)) {
        MIRT_LAUNCH(cu, mirt__cu_parts_add_few, (unsigned)mirt__cu_ceil(count + more, 1024), 256, 0, part, parts,
                    stride, count, to, more, rest);
        return;
    }
    const dim3 block(32, parts > 64 ? 32 : 8);
    MIRT_LAUNCH(cu, mirt__cu_parts_add, (unsigned)mirt__cu_ceil(count + more, 32), block, 0, part, parts, stride, count,
                to, more, rest);
}

#endif

/* >>section cuda/depthwise.cuh */

#ifndef MIRT__CUDA_DEPTHWISE_CUH
#define MIRT__CUDA_DEPTHWISE_CUH
/* Depthwise convolutions: what a thread works on, and how it reads rows. */

/* A unit is a segment of `length` columns of a block of rows of an image. Forward they are those of y, backward of dx:
   there number i of a line stands for those that y's number i is the last to reach, stride * i - padding and on. */
struct mirt__cu_depth : mirt__cu_windows {
    int rows, c, dilation_h, dilation_w;
    mirt__cu_reader x, dy;
    const float *kernel;
    mirt__cu_epilogue e;
    mirt__cu_chunks sums;
    float *part; /* of each block: sums of dkernel, then of db */
    bool db;
    int first_y, first_x, end_y, end_x, length;
    int64_t units, each; /* of an image, where sums are; blocks for those */
    mirt__cu_divisor by_segments, by_lines, by_each;
    int across, down;
    unsigned blocks, beside; /* of the grid: for all units, for all columns */
};

/* >>what is read */

/* N numbers as they lie in memory. HALF: 0, or which of mirt__cu_dtypes of 16 bits. */
template <int HALF, int N> struct mirt__cu_depth_raw {
    mirt__cu_bytes<HALF ? 2 * N : 4 * N> bytes;
};
/* Number `at` of a tensor, from where numbers near it are few bytes away. */
template <int HALF> static inline __device__ char *mirt__cu_depth_near(const void *from, int64_t at) {
    return static_cast<char *>(const_cast<void *>(from)) + at * (HALF ? 2 : 4);
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_floats(const mirt__cu_depth_raw<HALF, N> &raw, float *to) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if constexpr (HALF == MIRT__CU_FLOATS) to[i] = __uint_as_float(raw.bytes.word[i]);
        else if (i % 2 == 0) mirt__cu_from_word<HALF == MIRT__CU_FLOAT16S>(raw.bytes.word[i / 2], &to[i], &to[i + 1]);
    }
}
/* x as its reader has it; dy with the z beside it. Zero where there is none. */
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_x(const mirt__cu_reader &r, const mirt__cu_columns<N> &c,
                                               const mirt__cu_depth_raw<HALF, N> &raw, bool there, float *to) {
    mirt__cu_depth_floats<HALF, N>(raw, to);
    if (r.kind == MIRT__CU_READ_PLAIN) return;
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = mirt__cu_normed(to[i], c.mean[i], c.factor[i], c.offset[i]);
    mirt__cu_activate_n<N, true>(r.norm.activation, to);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = there ? to[i] : 0.0f;
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_dy(const mirt__cu_reader &r, const mirt__cu_columns<N> &c,
                                                const mirt__cu_depth_raw<HALF, N> &raw,
                                                const mirt__cu_depth_raw<HALF, N> &raw_z, bool there, float *to) {
    float z[N], u[N];
    mirt__cu_depth_floats<HALF, N>(raw, to);
    if (r.kind == MIRT__CU_READ_PLAIN) return;
    mirt__cu_depth_floats<HALF, N>(raw_z, z);
#pragma unroll
    for (int i = 0; i < N; i++) {
        z[i] = __fsub_rn(z[i], c.mean[i]);
        u[i] = __fadd_rn(__fmul_rn(z[i], c.factor[i]), c.offset[i]);
    }
    mirt__cu_times_slope_n<N, true>(r.norm.activation, to, u);
#pragma unroll
    for (int i = 0; i < N; i++) {
        to[i] = __fmul_rn(__fsub_rn(__fsub_rn(to[i], c.less[i]), __fmul_rn(z[i], c.part[i])), c.factor[i]);
        to[i] = there ? to[i] : 0.0f;
    }
}

template <int HALF, int N> static inline __device__ void mirt__cu_depth_none(mirt__cu_depth_raw<HALF, N> &raw) {
#pragma unroll
    for (int i = 0; i < (HALF ? N / 2 : N); i++) raw.bytes.word[i] = 0;
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_load(mirt__cu_depth_raw<HALF, N> &raw, const char *near, int away,
                                                  bool there) {
    if (there) raw.bytes = mirt__cu_load_bytes<HALF ? 2 * N : 4 * N>(near + (int64_t)away * (HALF ? 2 : 4));
    else mirt__cu_depth_none<HALF, N>(raw);
}

/* >>rows of stored tensors, in loops whose time is that of their instructions */

/* Keeps a value in its register. The compiler would move its computation into a branch, and repeat it in each pass. */
template <class T> static inline __device__ void mirt__cu_depth_keep(T &value) {
#ifdef MIRT_SIM
    (void)value;
#else
    if constexpr (sizeof value == 8) asm volatile("" : "+l"(value));
    else asm volatile("" : "+r"(value));
#endif
}
/* Sets zero in a rare branch. The compiler would set a constant before the branch, in each pass. */
static inline __device__ void mirt__cu_depth_clear(float &value) {
#ifdef MIRT_SIM
    value = 0;
#else
    asm volatile("mov.b32 %0, 0;" : "=f"(value));
#endif
}
/* The address `bytes` after a pointer that mirt__cu_depth_keep hid, so that the compiler no longer knows its memory. */
static inline __device__ char *mirt__cu_depth_after(char *kept, int64_t bytes) {
    char *at = kept + bytes;
#ifndef MIRT_SIM
    __builtin_assume(__isGlobal(at));
#endif
    return at;
}
/* Row `at` of `rows`, or the nearest one. */
static inline __device__ int mirt__cu_depth_nearest(int at, int rows) { return at < 0 ? 0 : at < rows ? at : rows - 1; }
/* Replaces a row beyond the image by zeros during the conversion to floats. With bfloat16 this takes no additional
   instruction: `low` multiplies a word to get its lower number, `high` selects the upper one. With other types `low`
   selects all of a word. */
template <int HALF> struct mirt__cu_depth_mask {
    uint32_t low, high;
};
template <int HALF> static inline __device__ void mirt__cu_depth_mask_of(bool there, mirt__cu_depth_mask<HALF> &mask) {
    mask.low = !there ? 0u : HALF == MIRT__CU_HALVES ? 0x10000u : ~0u;
    mask.high = there ? 0xFFFF0000u : 0u;
    mirt__cu_depth_keep(mask.low);
    if (HALF == MIRT__CU_HALVES) mirt__cu_depth_keep(mask.high);
}
template <int HALF, int N>
static inline __device__ void mirt__cu_depth_masked(const mirt__cu_depth_raw<HALF, N> &raw,
                                                    const mirt__cu_depth_mask<HALF> &mask, float *to) {
    if constexpr (HALF == MIRT__CU_HALVES) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            to[i] = __uint_as_float(raw.bytes.word[i / 2] * mask.low);
            to[i + 1] = __uint_as_float(raw.bytes.word[i / 2] & mask.high);
        }
    } else {
        mirt__cu_depth_raw<HALF, N> kept;
#pragma unroll
        for (int i = 0; i < (HALF ? N / 2 : N); i++) kept.bytes.word[i] = raw.bytes.word[i] & mask.low;
        mirt__cu_depth_floats<HALF, N>(kept, to);
    }
}

/* Where a thread is. */
typedef struct mirt__cu_depth_place {
    int lane, column, j; /* of its threads of one column; vector of columns in the block; first channel */
    bool live;
    int64_t group, begin, step; /* image, where there are sums of it; units begin, begin + step, ... of it */
} mirt__cu_depth_place;
template <int N> static inline __device__ mirt__cu_depth_place mirt__cu_depth_place_of(const mirt__cu_depth &d) {
    mirt__cu_depth_place p;
    p.lane = (int)threadIdx.x / d.across;
    p.column = (int)threadIdx.x - p.lane * d.across;
    p.j = ((int)blockIdx.y * d.across + p.column) * N;
    p.live = p.j < d.c;
    p.group = mirt__cu_divide32(blockIdx.x, d.by_each);
    p.begin = ((int64_t)blockIdx.x - p.group * d.each) * d.down + p.lane;
    p.step = d.each * d.down;
    return p;
}
/* The block's sums of columns become a chunk. */
template <int N>
static inline __device__ void mirt__cu_depth_leave(const mirt__cu_depth &d, const mirt__cu_depth_place &p,
                                                   const mirt__cu_sums<N> &s, float *room) {
    const int first = (int)blockIdx.y * d.across * N, left = d.c - first, columns = d.across * N;
    mirt__cu_sums_leave<N>(d.e, d.sums, s, p.column, p.lane, d.down, columns, left < columns ? left : columns,
                           blockIdx.x, first, blockIdx.y == 0, room);
}

#endif

/* >>section cuda/depthwise.cu */

/* Depthwise convolutions and both of their gradients in one pass. A thread owns some neighboring channels and walks
   along a segment of the image's columns, holding in registers the outputs that the current column reaches. Shapes
   without such a kernel are computed pixel by pixel. */

#define MIRT__CU_DEPTH_TAPS 64
#define MIRT__CU_DEPTH_BLOCKS 1024  /* of a grid, at most: as many chunks of sums */
#define MIRT__CU_DEPTH_THREADS 262144 /* for which segments are cut shorter */

/* >>forward: `LINES` rows of y at a time; column o + t of x, taken S at a time, reaches outputs o, o - 1, ... */

/* The usual ones, whose image is stored. TRAINS: nothing follows but the moments. PREDICTS: a normalization follows, an
   activation of mirt__cu_simple, and perhaps sums of images. Their loop is unrolled by as many columns as it takes for
   each sum to stay in its register. */
typedef enum mirt__cu_depth_usual {
    MIRT__CU_DEPTH_ANY, MIRT__CU_DEPTH_TRAINS, MIRT__CU_DEPTH_PREDICTS
} mirt__cu_depth_usual;
template <int K, int S, int LINES, int N, int HALF, int USUAL>
static __global__ __launch_bounds__(128, K == 3 ? 3 : 2)
    void mirt__cu_depth_forward(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    constexpr int OPEN = (K + S - 1) / S, READ = (LINES - 1) * S + K, TURNS = USUAL && K == 3 ? OPEN : 1;
    constexpr bool TRAINS = USUAL == MIRT__CU_DEPTH_TRAINS, PREDICTS = USUAL == MIRT__CU_DEPTH_PREDICTS;
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    mirt__cu_finish_columns<N> finish;
    mirt__cu_columns<N> columns;
    mirt__cu_sums<N> sums;
    float k[K * K][N];
    mirt__cu_sums_begin<N>(sums);
    if (p.live) {
        if (!USUAL) mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.x, p.j, columns);
        if (!TRAINS) mirt__cu_finish_columns_of<N>(d.e, p.j, N, finish);
#pragma unroll
        for (int t = 0; t < K * K; t++) mirt__cu_load_n<N>(d.kernel + (int64_t)t * d.c + p.j, k[t]);
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        const int64_t unit = p.group * d.units + i;
        const uint32_t line = mirt__cu_divide32((uint32_t)unit, d.by_segments),
                       image = mirt__cu_divide32(line, d.by_lines);
        const int oy = (int)(line - image * (uint32_t)d.by_lines.by) * LINES, iy = oy * S - d.top;
        const int begin = (int)(unit - (int64_t)line * d.by_segments.by) * d.length,
                  end = d.ow - begin < d.length ? d.ow : begin + d.length, last = end + OPEN - 1;
        const int lines = d.oh - oy < LINES ? d.oh - oy : LINES;
        const int64_t row = (int64_t)d.w * d.c, y_row = (int64_t)d.ow * d.c, column = d.c * (HALF ? 2 : 4);
        /* Rows, shifted so that pass o reads column o * S of x and writes column o of y. */
        char *x_near[READ], *y_near[LINES];
        mirt__cu_depth_mask<HALF> mask[READ];
#pragma unroll
        for (int q = 0; q < READ; q++) {
            const int nearest = USUAL ? mirt__cu_depth_nearest(iy + q, d.h) : iy + q;
            x_near[q] =
                mirt__cu_depth_near<HALF>(d.x.data, ((int64_t)image * d.h + nearest) * row - d.left * d.c + p.j);
            if (USUAL) mirt__cu_depth_keep(x_near[q]);
            if (USUAL) mirt__cu_depth_mask_of<HALF>(iy + q == nearest, mask[q]);
        }
#pragma unroll
        for (int r = 0; r < LINES; r++) {
            y_near[r] =
                mirt__cu_depth_near<HALF>(d.e.y, ((int64_t)image * d.oh + oy + r) * y_row - (OPEN - 1) * d.c + p.j);
            if (USUAL) mirt__cu_depth_keep(y_near[r]);
        }
        /* Columns where x begins and ends; the pass whose outputs set the shift, -1 if it is set. */
        int before = d.left, after = d.h > 0 ? d.left + d.w : 0, shift_at = sums.count == 0 ? begin + OPEN - 1 : -1;
        if (USUAL) {
            mirt__cu_depth_keep(before);
            mirt__cu_depth_keep(after);
        }
        if (TRAINS) {
            mirt__cu_depth_keep(shift_at);
            sums.count += (float)(lines * (end - begin));
        }
        float sum[LINES][OPEN][N] = {};
#pragma unroll 1
        for (int o = begin; o < last;) {
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                if (o >= last) continue;
#pragma unroll
                for (int t = 0; t < S; t++) {
                    if (o * S + t >= before && o * S + t < after) {
                        mirt__cu_depth_raw<HALF, N> raw[READ];
#pragma unroll
                        for (int q = 0; q < READ; q++)
                            mirt__cu_depth_load<HALF, N>(raw[q],
                                                         mirt__cu_depth_after(x_near[q], (o * S + t) * column), 0,
                                                         USUAL || (iy + q >= 0 && iy + q < d.h));
#pragma unroll
                        for (int q = 0; q < READ; q++) {
                            float x[N];
                            if constexpr (USUAL) mirt__cu_depth_masked<HALF, N>(raw[q], mask[q], x);
                            else mirt__cu_depth_x<HALF, N>(d.x, columns, raw[q], iy + q >= 0 && iy + q < d.h, x);
#pragma unroll
                            for (int r = 0; r < LINES; r++) {
                                const int ky = q - r * S;
                                if (ky < 0 || ky >= K) continue;
#pragma unroll
                                for (int m = 0; m < OPEN; m++) {
                                    if (t + m * S >= K) continue;
                                    float *const to = sum[r][(m + OPEN - turn) % OPEN];
#pragma unroll
                                    for (int v = 0; v < N; v++)
                                        to[v] = fmaf(x[v], k[ky * K + t + m * S][v], m + t + ky > 0 ? to[v] : 0.0f);
                                }
                            }
                        }
                    } else if (t == 0) {
#pragma unroll
                        for (int i = 0; i < LINES * N; i++)
                            mirt__cu_depth_clear(sum[i / N][(OPEN - turn) % OPEN][i % N]);
                    }
                }
                if (o >= begin + OPEN - 1) {
                    constexpr int DONE = 2 * OPEN - 1;
                    if (TRAINS && o == shift_at) {
#pragma unroll
                        for (int v = 0; v < N; v++) sums.shift[v] = sum[0][(DONE - turn) % OPEN][v];
                    }
#pragma unroll
                    for (int r = 0; r < LINES; r++) {
                        if (r >= lines) break;
                        float *const y = sum[r][(DONE - turn) % OPEN];
                        if (!USUAL && d.e.bias) {
#pragma unroll
                            for (int v = 0; v < N; v++) y[v] = __fadd_rn(y[v], finish.bias[v]);
                        }
                        if (PREDICTS || (!USUAL && d.e.norm.mean)) {
#pragma unroll
                            for (int v = 0; v < N; v++)
                                y[v] = mirt__cu_normed(y[v], finish.mean[v], finish.factor[v], finish.offset[v]);
                        }
                        if (!TRAINS) mirt__cu_activate_n<N, true>(d.e.activation, y);
                        mirt__cu_put<HALF, N>(mirt__cu_depth_after(y_near[r], o * column), d.e.dtype, 0, y);
                        if (TRAINS) mirt__cu_moments_above<N>(sums, y);
                        else mirt__cu_sums_add<N>(d.e, finish, sums, y, y);
                    }
                }
#pragma unroll
                for (int r = 0; r < LINES && TURNS == 1; r++) {
#pragma unroll
                    for (int m = OPEN - 1; m > 0; m--) {
#pragma unroll
                        for (int v = 0; v < N; v++) sum[r][m][v] = sum[r][m - 1][v];
                    }
                }
                o++;
            }
        }
    }
    mirt__cu_depth_leave<N>(d, p, sums, room);
}

/* >>backward: column o of dy reaches K columns of dx from o * S - left on; after it the first S of them are done */

typedef enum mirt__cu_depth_wants {
    MIRT__CU_DEPTH_DX, MIRT__CU_DEPTH_BOTH, MIRT__CU_DEPTH_DKERNEL
} mirt__cu_depth_wants;

/* The sums of dkernel and db of a block; `room`: N floats for each thread. */
template <int TAPS, int N>
static inline __device__ void mirt__cu_depth_parts(const mirt__cu_depth &d, const mirt__cu_depth_place &p,
                                                   float (*sum)[N], float *room) {
    float *part = d.part + (int64_t)blockIdx.x * (TAPS + 1) * d.c + p.j;
#pragma unroll
    for (int t = 0; t < TAPS + 1; t++) {
        if (t == TAPS && !d.db) break;
        __syncthreads();
        mirt__cu_down_sum(sum[t], N, d.across, d.down, room);
        if (!p.live || p.lane > 0) continue;
#pragma unroll
        for (int v = 0; v < N; v++) part[(int64_t)t * d.c + v] = sum[t][v];
    }
}

/* USUAL: of training, with operands that are stored: the gradient of a normalization's output, times the slope of ReLU
   or ReLU6, with its sums. Its loop is unrolled as that of forward. Offsets are relative to the beginnings of tensors,
   which have fewer than 2^31 numbers: an address then takes one instruction. */
template <int K, int S, int LINES, int N, int HALF, int WANTS, bool USUAL>
static __global__ __launch_bounds__(128, HALF && K == 3 ? 3 : 2) void mirt__cu_depth_back(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    constexpr int OPEN = (K + S - 1) / S, READ = LINES + OPEN - 1, MAKE = LINES * S,
                  TURNS = USUAL && K == 3 && S == 1 ? K : 1;
    constexpr bool DX = WANTS != MIRT__CU_DEPTH_DKERNEL, DK = WANTS != MIRT__CU_DEPTH_DX;
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    mirt__cu_finish_columns<N> finish;
    mirt__cu_columns<N> columns, x_columns;
    mirt__cu_sums<N> sums;
    float k[DX ? K * K : 1][N], dk[DK ? K * K + 1 : 1][N] = {};
    const float most = d.e.slope.activation == MIRT_RELU6 ? 6.0f : INFINITY;
    if (DX) mirt__cu_sums_begin<N>(sums);
    if (p.live) {
        if (!USUAL) mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.dy, p.j, columns);
        if (DK && !USUAL) mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.x, p.j, x_columns);
        if (DX) {
            mirt__cu_finish_columns_of<N>(d.e, p.j, N, finish);
#pragma unroll
            for (int t = 0; t < K * K; t++) mirt__cu_load_n<N>(d.kernel + (int64_t)t * d.c + p.j, k[t]);
        }
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        const uint32_t unit = (uint32_t)i, line = mirt__cu_divide32(unit, d.by_segments),
                       image = mirt__cu_divide32(line, d.by_lines);
        const int a = d.first_y + (int)(line - image * (uint32_t)d.by_lines.by) * LINES, iy = a * S - d.top,
                  a0 = a - (OPEN - 1); /* first rows of dy that reach dx, of dx, of dy */
        const int begin = d.first_x + (int)(unit - line * (uint32_t)d.by_segments.by) * d.length,
                  end = d.end_x - begin < d.length ? d.end_x : begin + d.length;
        int x0 = begin * S - d.left > 0 ? begin * S - d.left : 0,
            x1 = d.h < 1 ? 0 : end * S - d.left < d.w ? end * S - d.left : d.w, /* of dx */
            after = d.oh > 0 ? d.ow : 0;
        const int row = d.ow * d.c, x_row = d.w * d.c;
        const int64_t dy_first = ((int64_t)image * d.oh + a0) * row + p.j,
                      x_first = ((int64_t)image * d.h + iy) * x_row + p.j;
        const int64_t dy_from = USUAL ? 0 : dy_first, x_from = USUAL ? 0 : x_first;
        const char *const dy_near = mirt__cu_depth_near<HALF>(d.dy.data, dy_from),
                   *const z_near = mirt__cu_depth_near<HALF>(d.dy.z, dy_from);
        const char *const x_near = mirt__cu_depth_near<HALF>(d.x.data, x_from),
                   *const slope_near = mirt__cu_depth_near<HALF>(d.e.slope_x, x_from);
        char *const dx_near = mirt__cu_depth_near<HALF>(d.e.y, x_from);
        /* USUAL: offsets of column o of each row of dy, and of column o * S - left of x; how many rows of x exist. */
        mirt__cu_depth_mask<HALF> dy_mask[READ], x_mask[MAKE];
        int dy_away[READ], x_away[MAKE], made_rows = 0;
        if (USUAL) {
#pragma unroll
            for (int q = 0; q < READ; q++) {
                const int nearest = mirt__cu_depth_nearest(a0 + q, d.oh);
                mirt__cu_depth_mask_of<HALF>(a0 + q == nearest, dy_mask[q]);
                dy_away[q] = (int)dy_first + (nearest - a0) * row + (begin - (OPEN - 1)) * d.c;
            }
#pragma unroll
            for (int q = 0; q < MAKE; q++) {
                const int nearest = mirt__cu_depth_nearest(iy + q, d.h);
                mirt__cu_depth_mask_of<HALF>(iy + q == nearest, x_mask[q]);
                x_away[q] = (int)x_first + (nearest - iy) * x_row + ((begin - (OPEN - 1)) * S - d.left) * d.c;
                made_rows += iy + q == nearest;
            }
            if (x1 > x0) sums.count += (float)(made_rows * (x1 - x0));
            mirt__cu_depth_keep(x0);
            mirt__cu_depth_keep(x1);
            mirt__cu_depth_keep(after);
        }
        float sum[DX ? MAKE : 1][K][N] = {}, x[DK ? MAKE : 1][K][N] = {};
#pragma unroll 1
        for (int o = begin - (OPEN - 1); o < end;) {
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                if (o >= end) continue;
                const bool inside = o >= 0 && (USUAL ? o < after : o < d.ow && d.oh > 0);
                const int ix = o * S - d.left;
                mirt__cu_depth_raw<HALF, N> raw[READ], raw_z[READ], raw_x[DK ? MAKE : 1][S], slope[MAKE][S];
                const auto take_slope = [&](int s) {
#pragma unroll
                    for (int q = 0; q < MAKE; q++)
                        mirt__cu_depth_load<HALF, N>(slope[q][s], slope_near,
                                                     USUAL ? x_away[q] + s * d.c : (ix + s) * d.c + q * x_row,
                                                     USUAL || (iy + q >= 0 && iy + q < d.h));
                };
                if (!USUAL || inside) {
#pragma unroll
                    for (int q = 0; q < READ; q++) {
                        const bool there = USUAL || (inside && a0 + q >= 0 && a0 + q < d.oh);
                        const int away = USUAL ? dy_away[q] : o * d.c + q * row;
                        mirt__cu_depth_load<HALF, N>(raw[q], dy_near, away, there);
                        if (!USUAL && d.dy.kind != MIRT__CU_READ_PLAIN)
                            mirt__cu_depth_load<HALF, N>(raw_z[q], z_near, away, there);
                    }
                }
                if constexpr (DK) {
#pragma unroll
                    for (int s = 0; s < S; s++) {
                        const int column = ix + K - S + s;
                        const bool beside = column >= x0 && column < x1;
#pragma unroll
                        for (int q = 0; q < MAKE; q++)
                            mirt__cu_depth_load<HALF, N>(
                                raw_x[q][s], x_near, USUAL ? x_away[q] + (K - S + s) * d.c : column * d.c + q * x_row,
                                beside && (USUAL || (iy + q >= 0 && iy + q < d.h)));
#pragma unroll
                        for (int q = 0; q < MAKE; q++) {
                            float *const to = x[q][(K - S + s + turn * S) % K];
                            if constexpr (USUAL) mirt__cu_depth_masked<HALF, N>(raw_x[q][s], x_mask[q], to);
                            else mirt__cu_depth_x<HALF, N>(d.x, x_columns, raw_x[q][s],
                                                           beside && iy + q >= 0 && iy + q < d.h, to);
                        }
                    }
                }
                if (USUAL) { /* early, so that the loads overlap with the products */
#pragma unroll
                    for (int s = 0; s < S; s++) {
                        if (ix + s >= x0 && ix + s < x1) take_slope(s);
                    }
                }
                if (!USUAL || inside) {
#pragma unroll
                    for (int q = 0; q < READ; q++) {
                        float g[N];
                        if constexpr (USUAL) mirt__cu_depth_masked<HALF, N>(raw[q], dy_mask[q], g);
                        else mirt__cu_depth_dy<HALF, N>(d.dy, columns, raw[q], raw_z[q],
                                                        inside && a0 + q >= 0 && a0 + q < d.oh, g);
#pragma unroll
                        for (int made = 0; made < MAKE; made++) {
                            const int ky = made - (q - (OPEN - 1)) * S;
                            if (ky < 0 || ky >= K) continue;
#pragma unroll
                            for (int kx = 0; kx < K; kx++) {
                                const int slot = (kx + turn * S) % K, tap = ky * K + kx;
                                const bool first = kx + S >= K && ky + S >= K;
#pragma unroll
                                for (int v = 0; v < N; v++) {
                                    if constexpr (DX) {
                                        float &to = sum[made][slot][v];
                                        to = fmaf(g[v], k[tap][v], first ? 0.0f : to);
                                    }
                                    if constexpr (DK) dk[tap][v] = fmaf(g[v], x[made][slot][v], dk[tap][v]);
                                }
                            }
                        }
                        if (DK && !USUAL && q >= OPEN - 1 && o >= begin) {
#pragma unroll
                            for (int v = 0; v < N; v++) dk[DK ? K * K : 0][v] += g[v];
                        }
                    }
                } else if (DX) {
#pragma unroll
                    for (int i = 0; i < MAKE * S * N; i++)
                        mirt__cu_depth_clear(sum[i / (S * N)][(K - S + i / N % S + turn * S) % K][i % N]);
                }
#pragma unroll
                for (int s = 0; s < S && DX; s++) {
                    if (USUAL ? ix + s < x0 || ix + s >= x1 : o < begin || ix + s < 0 || ix + s >= d.w) continue;
                    if (!USUAL && d.e.slope.mean) take_slope(s);
#pragma unroll
                    for (int q = 0; q < MAKE; q++) {
                        if (USUAL ? !x_mask[q].low : iy + q < 0 || iy + q >= d.h) continue;
                        float *const g = sum[DX ? q : 0][(s + turn * S) % K], z[N], u[N];
                        if constexpr (USUAL) {
                            mirt__cu_depth_floats<HALF, N>(slope[q][s], z);
#pragma unroll
                            for (int v = 0; v < N; v++) {
                                const float away = __fsub_rn(z[v], finish.slope_mean[v]);
                                u[v] = __fadd_rn(__fmul_rn(away, finish.slope_factor[v]), finish.slope_offset[v]);
                                g[v] = u[v] > 0 && u[v] < most ? g[v] : 0.0f;
                                sums.first[v] += g[v];
                                sums.second[v] = fmaf(g[v], away, sums.second[v]);
                            }
                        } else {
                            if (d.e.slope.mean) {
                                mirt__cu_depth_floats<HALF, N>(slope[q][s], z);
#pragma unroll
                                for (int v = 0; v < N; v++)
                                    u[v] = mirt__cu_normed(z[v], finish.slope_mean[v], finish.slope_factor[v],
                                                           finish.slope_offset[v]);
                                mirt__cu_times_slope_n<N, true>(d.e.slope.activation, g, u);
                            }
                            mirt__cu_sums_add<N>(d.e, finish, sums, g, z);
                        }
                        mirt__cu_put<HALF, N>(dx_near, d.e.dtype,
                                              (int64_t)(USUAL ? x_away[q] + s * d.c : (ix + s) * d.c + q * x_row), g);
                    }
                }
#pragma unroll
                for (int q = 0; q < READ && USUAL; q++) dy_away[q] += d.c;
#pragma unroll
                for (int q = 0; q < MAKE; q++) {
                    if (USUAL) x_away[q] += S * d.c;
#pragma unroll
                    for (int kx = 0; kx + S < K && TURNS == 1; kx++) {
#pragma unroll
                        for (int v = 0; v < N; v++) {
                            if constexpr (DX) sum[q][kx][v] = sum[q][kx + S][v];
                            if constexpr (DK) x[q][kx][v] = x[q][kx + S][v];
                        }
                    }
                }
                o++;
            }
        }
    }
    if (DX) mirt__cu_depth_leave<N>(d, p, sums, room);
    if (DK) mirt__cu_depth_parts<DK ? K * K : 0, N>(d, p, dk, room);
}

/* >>any shape, reader and epilogue: pixel by pixel */

/* Where a target reads an axis of `size` by a tap, or (BACK) is read from by it; below 0: nowhere. */
template <bool BACK>
static inline __device__ int mirt__cu_depth_tap(int at, int tap, int stride, int dilation, int pad, int size) {
    int from = BACK ? at + pad - tap * dilation : at * stride + tap * dilation - pad;
    if (BACK && from >= 0) from = from % stride ? -1 : from / stride;
    return from < size ? from : -1;
}
template <int N, bool BACK> static __global__ __launch_bounds__(128) void mirt__cu_depth_any(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    const mirt__cu_reader &read = BACK ? d.dy : d.x;
    const int high = BACK ? d.oh : d.h, wide = BACK ? d.ow : d.w, across = BACK ? d.w : d.ow, down = BACK ? d.h : d.oh;
    mirt__cu_finish_columns<N> finish;
    mirt__cu_columns<N> columns;
    mirt__cu_sums<N> sums;
    mirt__cu_sums_begin<N>(sums);
    if (p.live) {
        mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(read, p.j, columns);
        mirt__cu_finish_columns_of<N>(d.e, p.j, N, finish);
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        const int64_t unit = p.group * d.units + i, line = unit / across, image = line / down;
        const int column = (int)(unit - line * across), row = (int)(line - image * down);
        float sum[N] = {0}, x[N], k[N], z[N];
        for (int ky = 0; ky < d.kh; ky++) {
            const int y = mirt__cu_depth_tap<BACK>(row, ky, d.stride_h, d.dilation_h, d.top, high);
            for (int kx = 0; y >= 0 && kx < d.kw; kx++) {
                const int at = mirt__cu_depth_tap<BACK>(column, kx, d.stride_w, d.dilation_w, d.left, wide);
                if (at < 0) continue;
                const int64_t pixel = (image * high + y) * wide + at;
                mirt__cu_read<MIRT__CU_READ_ANY, N>(read, columns, pixel * d.c + p.j, mirt__cu_gate_of(read, pixel),
                                                    p.j, x);
                mirt__cu_load_n<N>(d.kernel + (int64_t)(ky * d.kw + kx) * d.c + p.j, k);
#pragma unroll
                for (int v = 0; v < N; v++) sum[v] = fmaf(x[v], k[v], sum[v]);
            }
        }
        mirt__cu_finish<N>(d.e, finish, unit * d.c + p.j, N, sum, z);
        mirt__cu_finish_store<N>(d.e, unit * d.c + p.j, N, sum);
        mirt__cu_sums_add<N>(d.e, finish, sums, sum, z);
    }
    mirt__cu_depth_leave<N>(d, p, sums, room);
}

/* Tap blockIdx.z of dkernel, or db where there are no more of them. */
template <int N> static __global__ __launch_bounds__(128) void mirt__cu_depth_any_weights(mirt__cu_depth d) {
    MIRT_DYNAMIC_SHARED(float, room);
    const mirt__cu_depth_place p = mirt__cu_depth_place_of<N>(d);
    const int taps = d.kh * d.kw, tap = (int)blockIdx.z, ky = tap / d.kw, kx = tap - ky * d.kw;
    mirt__cu_columns<N> columns, x_columns;
    float sum[N] = {0}, g[N], x[N];
#pragma unroll
    for (int v = 0; v < N; v++) x[v] = 1;
    if (p.live) {
        mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.dy, p.j, columns);
        mirt__cu_columns_of<MIRT__CU_READ_ANY, N>(d.x, p.j, x_columns);
    }
    for (int64_t i = p.begin; p.live && i < d.units; i += p.step) {
        if (tap < taps) {
            const int64_t line = i / d.ow, image = line / d.oh;
            const int ix = (int)(i - line * d.ow) * d.stride_w + kx * d.dilation_w - d.left,
                      iy = (int)(line - image * d.oh) * d.stride_h + ky * d.dilation_h - d.top;
            if (ix < 0 || ix >= d.w || iy < 0 || iy >= d.h) continue;
            const int64_t pixel = (image * d.h + iy) * d.w + ix;
            mirt__cu_read<MIRT__CU_READ_ANY, N>(d.x, x_columns, pixel * d.c + p.j, mirt__cu_gate_of(d.x, pixel), p.j,
                                                x);
        }
        mirt__cu_read<MIRT__CU_READ_ANY, N>(d.dy, columns, i * d.c + p.j, mirt__cu_gate_of(d.dy, i), p.j, g);
#pragma unroll
        for (int v = 0; v < N; v++) sum[v] = fmaf(g[v], x[v], sum[v]);
    }
    mirt__cu_down_sum(sum, N, d.across, d.down, room);
    if (!p.live || p.lane > 0) return;
    float *part = d.part + ((int64_t)blockIdx.x * (taps + 1) + tap) * d.c + p.j;
#pragma unroll
    for (int v = 0; v < N; v++) part[v] = sum[v];
}

/* >>calls */

static mirt__cu_depth mirt__cu_depth_of(const mirt__conv *s, const mirt__real *kernel) {
    mirt__cu_depth d;
    memset(&d, 0, sizeof d);
    mirt__cu_windows_of(&d, s);
    d.rows = (int)s->rows;
    d.c = (int)s->ci;
    d.dilation_h = s->dilation_h;
    d.dilation_w = s->dilation_w;
    d.kernel = kernel;
    return d;
}
static bool mirt__cu_depth_is(const mirt__conv *s) {
    return s->groups > 1 && s->groups == s->ci && s->ci == s->co && (int64_t)s->kh * s->kw <= MIRT__CU_DEPTH_TAPS;
}
/* 3 or 5 where there are kernels for the shape, otherwise 0. */
static int mirt__cu_depth_size(const mirt__cu_depth *d) {
    const bool square = d->kh == d->kw && d->stride_h == d->stride_w && d->dilation_h == 1 && d->dilation_w == 1 &&
                        d->c % 4 == 0;
    return square && (d->kh == 3 || d->kh == 5) && (d->stride_h == 1 || d->stride_h == 2) &&
                   mirt__cu_aligned(d->kernel, 16)
               ? d->kh
               : 0;
}
/* Whether they can read it; kind: what else it may be but plain. */
static bool mirt__cu_depth_reads(const mirt__cu_reader *r, int kind, mirt_dtype dtype) {
    return r->dtype == dtype && (dtype == MIRT_FLOAT32 || mirt__cu_is_half(dtype)) && !r->affine &&
           (r->kind == MIRT__CU_READ_PLAIN || r->kind == kind) && r->width >= 4 &&
           mirt__cu_simple(r->norm.activation);
}
static bool mirt__cu_depth_finishes(const mirt__cu_epilogue *e, mirt_dtype dtype) {
    return e->dtype == dtype && e->width >= 4 && !e->add && !e->mask && mirt__cu_simple(e->activation) &&
           mirt__cu_simple(e->slope.activation);
}

/* Lines of `lines` rows, segments of `columns` columns: of all images, or of one for sums of each. */
static void mirt__cu_depth_cut(mirt__cu_depth *d, int64_t lines, int64_t columns, int n, bool whole, bool images) {
    const int64_t vectors = mirt__cu_ceil(d->c, n);
    const mirt__cu_layout layout = mirt__cu_layout_of(vectors, 64, 128);
    d->across = layout.across;
    d->down = layout.down;
    d->beside = layout.blocks;
    d->length = whole ? 1 : (int)columns;
    while (!whole && d->length > 16 &&
           (int64_t)d->rows * lines * mirt__cu_ceil(columns, d->length) * vectors < MIRT__CU_DEPTH_THREADS)
        d->length = (d->length + 1) / 2;
    const int64_t segments = columns > 0 ? mirt__cu_ceil(columns, d->length < 1 ? 1 : d->length) : 0,
                  image = lines * segments;
    d->by_segments = mirt__cu_divisor_of(segments);
    d->by_lines = mirt__cu_divisor_of(lines);
    d->units = images ? image : image * d->rows;
    if (images && d->down > image) d->down = image < 1 ? 1 : (int)image;
    const int64_t blocks = mirt__cu_ceil(d->units, d->down),
                  share = MIRT__CU_DEPTH_BLOCKS / d->beside / (images && d->rows > 0 ? d->rows : 1),
                  most = share < 1 ? 1 : share;
    d->each = blocks < 1 ? 1 : blocks < most ? blocks : most;
    d->by_each = mirt__cu_divisor_of(d->each);
    d->blocks = (unsigned)(images ? d->each * d->rows : d->each);
}

/* Room for the chunks of sums of d's blocks, then for parts of dkernel of `weights`' (which may be d). */
static void mirt__cu_depth_room(mirt__cu *cu, mirt__cu_depth *d, mirt__cu_depth *weights, int taps) {
    const int64_t sums = mirt__cu_round_up((int64_t)mirt__cu_sums_bytes(d->e.sums, d->c, d->blocks), 256);
    char *room = static_cast<char *>(mirt__cu_room(cu, (size_t)(sums + (int64_t)weights->blocks * taps * d->c * 4)));
    d->sums = mirt__cu_chunks_of(room, d->e.sums, d->c, d->blocks);
    weights->part = room ? (float *)(room + sums) : NULL;
}

typedef void (*mirt__cu_depth_kernel)(mirt__cu_depth);
/* Threads have `n` channels each; the grid is `taps` deep. */
static void mirt__cu_depth_launch(mirt__cu *cu, mirt__cu_depth_kernel depthwise, const mirt__cu_depth &d, int n,
                                  int taps) {
    const int floats = mirt__cu_sums_floats(d.down, d.across * n), least = d.across * d.down * n;
    MIRT_LAUNCH(cu, depthwise, dim3(d.blocks, d.beside, (unsigned)taps), d.across * d.down,
                (size_t)(floats > least ? floats : least) * sizeof(float), d);
}

template <int K, int S, int LINES, int USUAL>
static mirt__cu_depth_kernel mirt__cu_depth_forward_as(mirt__cu_dtypes dtypes) {
    return dtypes == MIRT__CU_FLOATS   ? mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_FLOATS, USUAL>
           : dtypes == MIRT__CU_HALVES ? mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_HALVES, USUAL>
                                       : mirt__cu_depth_forward<K, S, LINES, 4, MIRT__CU_FLOAT16S, USUAL>;
}
template <int K, int S, int LINES>
static mirt__cu_depth_kernel mirt__cu_depth_forward_of(mirt__cu_dtypes dtypes, mirt__cu_depth_usual usual) {
    return usual == MIRT__CU_DEPTH_TRAINS     ? mirt__cu_depth_forward_as<K, S, LINES, MIRT__CU_DEPTH_TRAINS>(dtypes)
           : usual == MIRT__CU_DEPTH_PREDICTS ? mirt__cu_depth_forward_as<K, S, LINES, MIRT__CU_DEPTH_PREDICTS>(dtypes)
                                              : mirt__cu_depth_forward_as<K, S, LINES, MIRT__CU_DEPTH_ANY>(dtypes);
}
static mirt__cu_depth_usual mirt__cu_depth_usual_of(const mirt__cu_depth *d) {
    if (d->x.kind != MIRT__CU_READ_PLAIN || d->e.bias) return MIRT__CU_DEPTH_ANY;
    if (d->e.norm.mean)
        return d->e.sums == MIRT__SUMS_MOMENTS ? MIRT__CU_DEPTH_ANY : MIRT__CU_DEPTH_PREDICTS;
    return d->e.activation == MIRT_LINEAR && d->e.sums == MIRT__SUMS_MOMENTS ? MIRT__CU_DEPTH_TRAINS
                                                                              : MIRT__CU_DEPTH_ANY;
}
static bool mirt__cu_depthwise_forward(const mirt__conv_forward *args, mirt__cu *cu) {
    if (!mirt__cu_depth_is(&args->s)) return false;
    mirt__cu_depth d = mirt__cu_depth_of(&args->s, args->kernel);
    d.x = mirt__cu_reader_of(&args->x, args->s.ci);
    d.e = mirt__cu_epilogue_of(&args->epilogue, args->y, args->y_dtype, args->s.co);
    const mirt__cu_dtypes dtypes = mirt__cu_dtypes_of(args->y_dtype);
    const bool images = d.e.sums == MIRT__SUMS_IMAGES;
    const bool reads = mirt__cu_depth_reads(&d.x, MIRT__CU_READ_NORM, args->y_dtype) &&
                       mirt__cu_depth_finishes(&d.e, args->y_dtype) && !d.e.slope.mean;
    const mirt__cu_depth_usual usual = mirt__cu_depth_usual_of(&d);
    /* Three blocks have registers for four lines only if nothing else follows. */
    const int size = reads ? mirt__cu_depth_size(&d) : 0, stride = d.stride_h,
              lines = size == 3 && stride == 1 && usual == MIRT__CU_DEPTH_TRAINS ? 4 : 2;
    const int n = size ? 4 : d.x.width >= 4 && d.e.width >= 4 && mirt__cu_aligned(d.kernel, 16) ? 4 : 1;
    if (images && d.rows == 0) return true;
    mirt__cu_depth_cut(&d, size ? mirt__cu_ceil(d.oh, lines) : d.oh, d.ow, n, !size, images);
    mirt__cu_depth_room(cu, &d, &d, 0);
    mirt__cu_depth_launch(cu,
                          !size && n == 4            ? mirt__cu_depth_any<4, false>
                          : !size                    ? mirt__cu_depth_any<1, false>
                          : lines == 4 ? mirt__cu_depth_forward_as<3, 1, 4, MIRT__CU_DEPTH_TRAINS>(dtypes)
                          : size == 3 && stride == 1 && usual
                              ? mirt__cu_depth_forward_as<3, 1, 2, MIRT__CU_DEPTH_PREDICTS>(dtypes)
                          : size == 3 && stride == 1 ? mirt__cu_depth_forward_as<3, 1, 2, MIRT__CU_DEPTH_ANY>(dtypes)
                          : size == 3                ? mirt__cu_depth_forward_of<3, 2, 2>(dtypes, usual)
                          : stride == 1              ? mirt__cu_depth_forward_of<5, 1, 2>(dtypes, usual)
                                                     : mirt__cu_depth_forward_of<5, 2, 2>(dtypes, usual),
                          d, n, 1);
    mirt__cu_sums_finish(cu, &d.e, &d.sums, args->epilogue.sum, d.rows, (int64_t)d.oh * d.ow);
    return true;
}

/* Kernels of one size and stride, which make what is wanted. */
template <int K, int S, int LINES, int HALF>
static mirt__cu_depth_kernel mirt__cu_depth_back_as(mirt__cu_depth_wants wants, bool usual) {
    return usual                          ? mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_BOTH, true>
           : wants == MIRT__CU_DEPTH_DX   ? mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_DX, false>
           : wants == MIRT__CU_DEPTH_BOTH ? mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_BOTH, false>
                                          : mirt__cu_depth_back<K, S, LINES, 2, HALF, MIRT__CU_DEPTH_DKERNEL, false>;
}
template <int K, int S, int LINES>
static mirt__cu_depth_kernel mirt__cu_depth_back_of(mirt__cu_dtypes dtypes, mirt__cu_depth_wants wants, bool usual) {
    return dtypes == MIRT__CU_FLOATS   ? mirt__cu_depth_back_as<K, S, LINES, MIRT__CU_FLOATS>(wants, usual)
           : dtypes == MIRT__CU_HALVES ? mirt__cu_depth_back_as<K, S, LINES, MIRT__CU_HALVES>(wants, usual)
                                       : mirt__cu_depth_back_as<K, S, LINES, MIRT__CU_FLOAT16S>(wants, usual);
}
static bool mirt__cu_depth_trains(const mirt__cu_depth *d, mirt__cu_depth_wants wants) {
    const mirt_activation_kind kind = d->e.slope.activation;
    const int64_t x = (int64_t)d->h * d->w, y = (int64_t)d->oh * d->ow, pixels = x > y ? x : y;
    return wants == MIRT__CU_DEPTH_BOTH && !d->db && d->dy.kind == MIRT__CU_READ_PLAIN &&
           d->x.kind == MIRT__CU_READ_PLAIN && d->e.slope.mean && (kind == MIRT_RELU || kind == MIRT_RELU6) &&
           d->e.sums == MIRT__SUMS_GRADIENT && (d->rows + 1) * pixels * d->c < INT32_MAX;
}
/* d has what is read, and e where dx is wanted. */
static void mirt__cu_depth_gradients(mirt__cu *cu, mirt__cu_depth d, mirt__cu_depth_wants wants, mirt__real *const *sum,
                                     mirt__real *dkernel, mirt__real *db) {
    const bool dx = wants != MIRT__CU_DEPTH_DKERNEL, dk = wants != MIRT__CU_DEPTH_DX;
    const mirt_dtype dtype = d.dy.dtype;
    const mirt__cu_dtypes dtypes = mirt__cu_dtypes_of(dtype);
    const bool fast = mirt__cu_depth_reads(&d.dy, MIRT__CU_READ_BACK, dtype) &&
                      (!dk || mirt__cu_depth_reads(&d.x, MIRT__CU_READ_NORM, dtype)) &&
                      (!dx || (mirt__cu_depth_finishes(&d.e, dtype) && !d.e.bias && !d.e.norm.mean &&
                               d.e.activation == MIRT_LINEAR));
    const int size = fast ? mirt__cu_depth_size(&d) : 0, stride = d.stride_h, taps = d.kh * d.kw;
    const int parts = dk ? taps + 1 : 0; /* of a channel's sums */
    mirt__cu_depth weights = d; /* where dkernel has kernels of its own */
    d.db = db != NULL;
    if (!size) {
        const bool four = d.dy.width >= 4 && (!dx || (d.e.width >= 4 && mirt__cu_aligned(d.kernel, 16))) &&
                          (!dk || d.x.width >= 4);
        const int n = four ? 4 : 1;
        if (dx) mirt__cu_depth_cut(&d, d.h, d.w, n, true, false);
        if (dk) mirt__cu_depth_cut(&weights, d.oh, d.ow, n, true, false);
        mirt__cu_depth_room(cu, &d, &weights, parts);
        if (dx) mirt__cu_depth_launch(cu, four ? mirt__cu_depth_any<4, true> : mirt__cu_depth_any<1, true>, d, n, 1);
        if (dk)
            mirt__cu_depth_launch(cu, four ? mirt__cu_depth_any_weights<4> : mirt__cu_depth_any_weights<1>, weights, n,
                                  taps + (db != NULL));
    } else {
        const int lines = size == 3 && stride == 1 ? 4 : size == 5 && stride == 2 ? 1 : 2;
        /* Places of y's grid that dx reaches back to; of all of y where db wants them. */
        d.first_y = db ? 0 : d.top / stride;
        d.first_x = db ? 0 : d.left / stride;
        d.end_y = (d.h - 1 + d.top) / stride + 1;
        d.end_x = (d.w - 1 + d.left) / stride + 1;
        if (d.end_y < d.oh && db) d.end_y = d.oh;
        if (d.end_x < d.ow && db) d.end_x = d.ow;
        mirt__cu_depth_cut(&d, mirt__cu_ceil(d.end_y - d.first_y, lines), d.end_x - d.first_x, 2, false, false);
        mirt__cu_depth_room(cu, &d, &d, parts);
        const bool usual = mirt__cu_depth_trains(&d, wants);
        mirt__cu_depth_launch(cu,
                              size == 3 && stride == 1 ? mirt__cu_depth_back_of<3, 1, 4>(dtypes, wants, usual)
                              : size == 3              ? mirt__cu_depth_back_of<3, 2, 2>(dtypes, wants, usual)
                              : stride == 1            ? mirt__cu_depth_back_of<5, 1, 2>(dtypes, wants, usual)
                                                       : mirt__cu_depth_back_of<5, 2, 1>(dtypes, wants, usual),
                              d, 2, 1);
        weights = d;
    }
    if (dx) mirt__cu_sums_finish(cu, &d.e, &d.sums, sum, d.rows, (int64_t)d.h * d.w);
    if (dk)
        mirt__cu_parts_total(cu, weights.part, weights.blocks, (int64_t)(taps + 1) * d.c, (int64_t)taps * d.c, dkernel,
                             d.c, db);
}

static bool mirt__cu_depthwise_input_grad(const mirt__conv_input_grad *args, mirt__cu *cu) {
    if (!mirt__cu_depth_is(&args->s)) return false;
    mirt__cu_depth d = mirt__cu_depth_of(&args->s, args->kernel);
    d.dy = mirt__cu_reader_of(&args->dy, args->s.co);
    d.e = mirt__cu_epilogue_of(&args->epilogue, args->dx, args->dx_dtype, args->s.ci);
    if (args->x) d.x = mirt__cu_reader_of(args->x, args->s.ci);
    mirt__cu_depth_gradients(
        cu, d, args->x && args->dkernel ? args->dx ? MIRT__CU_DEPTH_BOTH : MIRT__CU_DEPTH_DKERNEL : MIRT__CU_DEPTH_DX,
        args->epilogue.sum, args->dkernel, args->db);
    return true;
}
static bool mirt__cu_depthwise_weight_grad(const mirt__conv_weight_grad *args, mirt__cu *cu) {
    if (!mirt__cu_depth_is(&args->s)) return false;
    mirt__cu_depth d = mirt__cu_depth_of(&args->s, NULL);
    d.x = mirt__cu_reader_of(&args->x, args->s.ci);
    d.dy = mirt__cu_reader_of(&args->dy, args->s.co);
    mirt__cu_depth_gradients(cu, d, MIRT__CU_DEPTH_DKERNEL, NULL, args->dkernel, args->db);
    return true;
}
#undef MIRT__CU_DEPTH_TAPS
#undef MIRT__CU_DEPTH_BLOCKS
#undef MIRT__CU_DEPTH_THREADS

/* >>section cuda/blas.cu */

/* Matrix products by cuBLAS, of operands that lie in memory as they are multiplied. That is dense layers and 1x1
   convolutions. MIRT_CUDA_BLAS=0 turns it off. */

#include <cublasLt.h>
#include <dlfcn.h>
#include <limits.h>

/* cublasLt comes with cuBLAS, which needs it; found at run time, it needs no library on the command line. */
#define MIRT__CU_LT_LIST(X) \
    X(MatmulDescCreate) \
    X(MatmulDescDestroy) \
    X(MatmulDescSetAttribute) \
    X(MatrixLayoutCreate) \
    X(MatrixLayoutDestroy) \
    X(MatmulPreferenceCreate) \
    X(MatmulPreferenceDestroy) \
    X(MatmulPreferenceSetAttribute) \
    X(MatmulAlgoGetHeuristic) \
    X(Matmul)
typedef struct mirt__cu_lt {
#define MIRT__CU_LT_MEMBER(name) decltype(&cublasLt##name) name;
    MIRT__CU_LT_LIST(MIRT__CU_LT_MEMBER)
#undef MIRT__CU_LT_MEMBER
    bool there;
} mirt__cu_lt;

static mirt__cu_lt mirt__cu_lt_load() {
    mirt__cu_lt lt;
    lt.there = true;
#define MIRT__CU_LT_FIND(name) \
    lt.name = reinterpret_cast<decltype(lt.name)>(dlsym(RTLD_DEFAULT, "cublasLt" #name)); \
    lt.there = lt.there && lt.name;
    MIRT__CU_LT_LIST(MIRT__CU_LT_FIND)
#undef MIRT__CU_LT_FIND
    return lt;
}
#undef MIRT__CU_LT_LIST

/* c[m, n] = a[m, k] b[k, n], as mirt__gemm; for cuBLAS, whose matrices lie by columns, n x m = (n x k) (k x m). */
typedef struct mirt__cu_product {
    int m, n, k;
    const void *a, *b;
    void *c;
    cudaDataType from, to;
    cublasOperation_t a_as, b_as;
    int a_pitch, b_pitch;
} mirt__cu_product;

static bool mirt__cu_blas_side(int64_t step, int64_t next, int64_t along, int64_t across, cublasOperation_t *as,
                               int *pitch) {
    const bool plain = next == 1;
    const int64_t line = plain ? along : across, lines = plain ? step : next;
    *as = plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    *pitch = (int)(lines > line ? lines : line);
    return lines <= INT_MAX && line <= INT_MAX;
}
static bool mirt__cu_blas_product(mirt__cu_product *p, cudaDataType from, cudaDataType to, int64_t m, int64_t n,
                                  int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
                                  int64_t b_col, void *c) {
    if (m < 1 || n < 1 || k < 1 || m > INT_MAX || n > INT_MAX || k > INT_MAX) return false;
    p->m = (int)m;
    p->n = (int)n;
    p->k = (int)k;
    p->a = a;
    p->b = b;
    p->c = c;
    p->from = from;
    p->to = to;
    return mirt__cu_blas_side(a_row, a_col, k, m, &p->a_as, &p->a_pitch) &&
           mirt__cu_blas_side(b_row, b_col, n, k, &p->b_as, &p->b_pitch);
}

static void mirt__cu_blas_run(mirt__cu *cu, const mirt__cu_product *p) {
    const float one = 1, zero = 0;
    if (!mirt__cu_launches(cu)) return;
    const cublasStatus_t status =
        p->from == CUDA_R_32F
            ? cublasSgemm(cu->blas, p->b_as, p->a_as, p->n, p->m, p->k, &one, (const float *)p->b, p->b_pitch,
                          (const float *)p->a, p->a_pitch, &zero, (float *)p->c, p->n)
            : cublasGemmEx(cu->blas, p->b_as, p->a_as, p->n, p->m, p->k, &one, p->b, p->from, p->b_pitch, p->a, p->from,
                           p->a_pitch, &zero, p->c, p->to, p->n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
        mirt__cu_fail(cu, MIRT_E_DEVICE, "cuBLAS could not multiply (status %d); MIRT_CUDA_BLAS=0 does without it",
                      (int)status);
}

static uint32_t mirt__cu_blas_alignment(const void *pointer) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(pointer) & 255;
    return at ? (uint32_t)(at & (~at + 1)) : 256;
}

/* The product of float32 with bias and relu in the same kernel; false where cublasLt has none for it. */
static bool mirt__cu_blas_fused(mirt__cu *cu, const mirt__cu_product *p, const float *bias, bool relu) {
    static const mirt__cu_lt lt = mirt__cu_lt_load();
    if (!lt.there || !mirt__cu_aligned(bias, 16))
        return false; /* it reads a bias by 16 bytes, whatever it is told of alignment */
    const float one = 1, zero = 0;
    const cublasLtEpilogue_t epilogue = bias ? relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS
                                             : CUBLASLT_EPILOGUE_RELU;
    const size_t room = MIRT__CU_BLAS_ROOM;
    const auto good = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t a = NULL, b = NULL, c = NULL;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto &value) {
        return good(lt.MatmulDescSetAttribute(desc, what, &value, sizeof value));
    };
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto &value) {
        return good(lt.MatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
    };
    const bool a_plain = p->a_as == CUBLAS_OP_N, b_plain = p->b_as == CUBLAS_OP_N;
    const uint64_t a_rows = (uint64_t)(a_plain ? p->k : p->m), a_cols = (uint64_t)(a_plain ? p->m : p->k);
    const uint64_t b_rows = (uint64_t)(b_plain ? p->n : p->k), b_cols = (uint64_t)(b_plain ? p->k : p->n);
    /* A handle of cuBLAS is one of cublasLt, too. */
    const cublasLtHandle_t handle = reinterpret_cast<cublasLtHandle_t>(cu->blas);
    const bool fine =
        good(lt.MatmulDescCreate(&desc, cu->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
        set(CUBLASLT_MATMUL_DESC_TRANSA, p->b_as) && set(CUBLASLT_MATMUL_DESC_TRANSB, p->a_as) &&
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) && (!bias || set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)) &&
        good(lt.MatrixLayoutCreate(&b, CUDA_R_32F, b_rows, b_cols, p->b_pitch)) &&
        good(lt.MatrixLayoutCreate(&a, CUDA_R_32F, a_rows, a_cols, p->a_pitch)) &&
        good(lt.MatrixLayoutCreate(&c, CUDA_R_32F, (uint64_t)p->n, (uint64_t)p->m, p->n)) &&
        good(lt.MatmulPreferenceCreate(&preference)) && prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, room) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, mirt__cu_blas_alignment(p->b)) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, mirt__cu_blas_alignment(p->a)) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, mirt__cu_blas_alignment(p->c)) &&
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, mirt__cu_blas_alignment(p->c)) &&
        good(lt.MatmulAlgoGetHeuristic(handle, desc, b, a, c, c, preference, 1, &found, &count)) && count > 0 &&
        good(lt.Matmul(handle, desc, &one, p->b, b, p->a, a, &zero, p->c, c, p->c, c, &found.algo, cu->blas_room, room,
                       cu->stream));
    if (preference) lt.MatmulPreferenceDestroy(preference);
    if (c) lt.MatrixLayoutDestroy(c);
    if (a) lt.MatrixLayoutDestroy(a);
    if (b) lt.MatrixLayoutDestroy(b);
    if (desc) lt.MatmulDescDestroy(desc);
    return fine;
}

/* Bias, activation and mask of c [rows, n], in place. */
static __global__ void __launch_bounds__(256)
    mirt__cu_blas_finish(float *c, int64_t rows, int64_t n, const float *bias, mirt_activation_kind activation,
                         const float *mask, mirt_activation_kind mask_activation) {
    const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x;
    if (column >= n) return;
    const float add = bias ? bias[column] : 0;
    for (int64_t row = (int64_t)blockIdx.y * 8 + threadIdx.y; row < rows; row += (int64_t)gridDim.y * 8) {
        const int64_t at = row * n + column;
        float y = mirt__cu_activate(activation, c[at] + add);
        if (mask) y *= mirt__cu_slope_of_output(mask_activation, mask[at]);
        c[at] = y;
    }
}

/* Sums of the columns of x [rows, n], `each` rows a part; parts [part, n]. */
template <class T>
static __global__ void __launch_bounds__(256)
    mirt__cu_blas_columns(const T *x, int64_t rows, int64_t n, int64_t each, float *parts) {
    MIRT_SHARED(float, sums, 256);
    const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x, first = (int64_t)blockIdx.y * each;
    const int64_t end = first + each < rows ? first + each : rows;
    float sum = 0;
    if (column < n) {
        for (int64_t row = first + threadIdx.y; row < end; row += 8) sum += (float)x[row * n + column];
    }
    sums[threadIdx.y * 32 + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= n) return;
    for (int i = 1; i < 8; i++) sum += sums[i * 32 + threadIdx.x];
    parts[(int64_t)blockIdx.y * n + column] = sum;
}

/* Long columns have parts, whose sums take room. */
#define MIRT__CU_BLAS_COLUMN 1024
template <class T>
static void mirt__cu_blas_column_sums(mirt__cu *cu, const void *from, int64_t rows, int64_t n, float *sums) {
    const int64_t whole = mirt__cu_ceil(rows, MIRT__CU_BLAS_COLUMN), parts = whole > 512 ? 512 : whole,
                  each = mirt__cu_ceil(rows, parts > 1 ? parts : 1);
    const dim3 block(32, 8);
    const unsigned across = (unsigned)mirt__cu_ceil(n, 32);
    const T *x = static_cast<const T *>(from);
    if (parts <= 1) {
        MIRT_LAUNCH(cu, mirt__cu_blas_columns<T>, dim3(across), block, 0, x, rows, n, rows, sums);
        return;
    }
    float *room = static_cast<float *>(mirt__cu_room(cu, (size_t)(parts * n) * sizeof(float)));
    MIRT_LAUNCH(cu, mirt__cu_blas_columns<T>, dim3(across, (unsigned)mirt__cu_ceil(rows, each)), block, 0, x, rows, n,
                each, room);
    MIRT_LAUNCH(cu, mirt__cu_blas_columns<float>, dim3(across), block, 0, room, mirt__cu_ceil(rows, each), n, parts,
                sums);
}

static bool mirt__cu_blas_on(const mirt__cu *cu) { return cu->blas && !mirt__cu_switched_off("MIRT_CUDA_BLAS"); }
static bool mirt__cu_blas_plain(const mirt__reader *r, mirt_dtype dtype) {
    return r->dtype == dtype && !r->affine && !r->norm && !r->gate && !r->back;
}
static bool mirt__cu_blas_load(mirt__cu *cu) { return !cu->blas || mirt__cu_load(cu, mirt__cu_blas_finish); }

/* What can be done to a finished product of float32. */
static bool mirt__cu_blas_finishes(const mirt__epilogue *e) {
    return !e->norm && !e->add && !e->slope && e->sums == MIRT__SUMS_NONE;
}
static bool mirt__cu_blas_nothing(const mirt__epilogue *e) {
    return mirt__cu_blas_finishes(e) && !e->bias && e->activation == MIRT_LINEAR && !e->mask;
}

/* Whether that takes a kernel of its own, which small products are not worth. */
#define MIRT__CU_BLAS_WORTH ((int64_t)1 << 22) /* multiplications */
static bool mirt__cu_blas_worth(const mirt__cu_product *p, const mirt__epilogue *e) {
    return (!e->mask && (e->activation == MIRT_LINEAR || e->activation == MIRT_RELU)) ||
           (int64_t)p->m * p->n * p->k >= MIRT__CU_BLAS_WORTH;
}

/* The product and what follows it. */
static void mirt__cu_blas_finished(mirt__cu *cu, const mirt__cu_product *p, const mirt__epilogue *e) {
    const bool relu = e->activation == MIRT_RELU;
    const bool nothing = mirt__cu_blas_nothing(e), fuses = p->from == CUDA_R_32F && !e->mask &&
                                                           (relu || e->activation == MIRT_LINEAR);
    if (!mirt__cu_launches(cu)) return;
    if (!nothing && fuses && mirt__cu_blas_fused(cu, p, e->bias, relu)) return;
    mirt__cu_blas_run(cu, p);
    if (nothing) return;
    const int64_t down = mirt__cu_ceil(p->m, 8);
    MIRT_LAUNCH(cu, mirt__cu_blas_finish,
                dim3((unsigned)mirt__cu_ceil(p->n, 32), (unsigned)(down > 4096 ? 4096 : down)), dim3(32, 8), 0,
                (float *)p->c, (int64_t)p->m, (int64_t)p->n, e->bias, e->activation, (const float *)e->mask,
                e->mask_activation);
}

static bool mirt__cu_blas_gemm(const mirt__gemm *g, mirt__cu *cu) {
    mirt__cu_product p;
    if (!mirt__cu_blas_on(cu) || !mirt__cu_blas_plain(&g->a, MIRT_FLOAT32) || !mirt__cu_blas_finishes(&g->epilogue))
        return false;
    if ((g->a_row != 1 && g->a_col != 1) || (g->b_row != 1 && g->b_col != 1) || (g->column_sum && g->b_row != g->n))
        return false;
    if (!mirt__cu_blas_product(&p, CUDA_R_32F, CUDA_R_32F, g->m, g->n, g->k, g->a.data, g->a_row, g->a_col, g->b,
                               g->b_row, g->b_col, g->c))
        return false;
    if (!mirt__cu_blas_worth(&p, &g->epilogue)) return false;
    if (g->column_sum) mirt__cu_blas_column_sums<float>(cu, g->b, g->k, g->n, g->column_sum);
    mirt__cu_blas_finished(cu, &p, &g->epilogue);
    return true;
}

/* Whether a convolution can be a product of cuBLAS. */
static bool mirt__cu_blas_can(const mirt__cu *cu, const mirt__conv *s, mirt_dtype factors, const mirt__reader *x) {
    return mirt__cu_blas_on(cu) && mirt__cu_pixelwise(s) && s->groups == 1 && mirt__cu_blas_plain(x, factors) &&
           (factors == MIRT_FLOAT32 || mirt__cu_multiplies(cu, factors));
}

static cudaDataType mirt__cu_blas_type(mirt_dtype dtype) {
    return dtype == MIRT_FLOAT32 ? CUDA_R_32F : (int)dtype == MIRT__FLOAT16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* Weights rounded to 16 bits. */
static __global__ void __launch_bounds__(256)
    mirt__cu_blas_round(const float *x, int64_t count, void *y, mirt_dtype dtype) {
    MIRT__CU_PIECES(i, left, count, 1) mirt__cu_store(y, dtype, i, x[i]);
}

/* out[pixels, n] = in[pixels, k] and the kernel [k, n], or, for a gradient, [n, k]. */
static bool mirt__cu_blas_conv(mirt__cu *cu, const mirt__conv *s, bool back, mirt_dtype factors, const mirt__reader *in,
                               const float *kernel, void *out, mirt_dtype out_dtype, const mirt__epilogue *e) {
    mirt__cu_product p;
    if (!mirt__cu_blas_can(cu, s, factors, in)) return false;
    if (out_dtype == MIRT_FLOAT32 ? !mirt__cu_blas_finishes(e) : out_dtype != factors || !mirt__cu_blas_nothing(e))
        return false;
    const int64_t pixels = s->rows * s->h * s->w, n = back ? s->ci : s->co, k = back ? s->co : s->ci;
    if (!mirt__cu_blas_product(&p, mirt__cu_blas_type(factors), mirt__cu_blas_type(out_dtype), pixels, n, k, in->data,
                               k, 1, kernel, back ? 1 : n, back ? k : 1, out) ||
        !mirt__cu_blas_worth(&p, e))
        return false;
    if (factors != MIRT_FLOAT32) {
        void *rounded = mirt__cu_room(cu, (size_t)(n * k) * 2);
        MIRT_LAUNCH(cu, mirt__cu_blas_round, mirt__cu_blocks(n * k, 256), 256, 0, kernel, n * k, rounded, factors);
        p.b = rounded;
    }
    mirt__cu_blas_finished(cu, &p, e);
    return true;
}

static bool mirt__cu_blas_conv_weight_grad(const mirt__conv_weight_grad *g, mirt_dtype factors, mirt__cu *cu) {
    const mirt__conv *s = &g->s;
    const int64_t pixels = s->rows * s->h * s->w;
    mirt__cu_product p;
    if (!mirt__cu_blas_can(cu, s, factors, &g->x) || !mirt__cu_blas_plain(&g->dy, factors) ||
        !mirt__cu_blas_product(&p, mirt__cu_blas_type(factors), CUDA_R_32F, s->ci, s->co, pixels, g->x.data, 1,
                               s->ci, g->dy.data, s->co, 1, g->dkernel))
        return false;
    if (g->db) {
        const auto column_sums = (int)factors == MIRT__FLOAT16    ? mirt__cu_blas_column_sums<__half>
                                 : (int)factors == MIRT__BFLOAT16 ? mirt__cu_blas_column_sums<__nv_bfloat16>
                                                                  : mirt__cu_blas_column_sums<float>;
        column_sums(cu, g->dy.data, pixels, s->co, g->db);
    }
    mirt__cu_blas_run(cu, &p);
    return true;
}

/* >>section cuda/spread.cuh */

#ifndef MIRT__CUDA_SPREAD_CUH
#define MIRT__CUDA_SPREAD_CUH
/* Inputs that products cannot read as they lie in memory are written down first. They are as products want them then:
   each group's channels filled up with zeros. */

typedef struct mirt__cu_mm_spread {
    mirt__cu_reader x;
    void *to;
    int64_t pixels, stride,
        turned; /* stride: from pixel to pixel; turned: element p * turned + i is channel p of pixel i */
    int k, k_pad, groups;
    mirt_dtype dtype, factors; /* of `to`; what numbers are rounded to */
    bool wide; /* all channels of a piece exist and can be read at once */
    int across, down; /* of a block of mirt__cu_mm_spread_wide_kernel: pieces, and pixels at a time */
    mirt__cu_divisor by_pieces, by_pixels, by_groups;
} mirt__cu_mm_spread;

/* Four channels per thread. */
static __global__ void __launch_bounds__(256) mirt__cu_mm_spread_kernel(mirt__cu_mm_spread p) {
    const int64_t pieces = p.k_pad / 4, all = p.pixels * p.groups * pieces;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all; at += (int64_t)gridDim.x * 256) {
        float value[4] = {0, 0, 0, 0};
        int64_t set, piece, group;
        if (p.turned) piece = mirt__cu_divmod(at, p.by_pixels, &set);
        else set = mirt__cu_divmod(at, p.by_pieces, &piece);
        const int64_t pixel = mirt__cu_divmod(set, p.by_groups, &group), j = piece * 4;
        const int64_t from = pixel * p.stride + group * p.k + j;
        if (p.wide && j < p.k) {
            mirt__cu_columns<4> c;
            mirt__cu_columns_of<MIRT__CU_READ_ANY, 4>(p.x, group * p.k + j, c);
            mirt__cu_read<MIRT__CU_READ_ANY, 4>(p.x, c, from, mirt__cu_gate_of(p.x, pixel), group * p.k + j, value);
        } else {
#pragma unroll 1
            for (int i = 0; i < 4 && j + i < p.k; i++) {
                const float one = mirt__cu_read_one(p.x, p.turned ? (j + i) * p.turned + pixel : from + i);
                value[0] = i == 0 ? one : value[0];
                value[1] = i == 1 ? one : value[1];
                value[2] = i == 2 ? one : value[2];
                value[3] = i == 3 ? one : value[3];
            }
        }
        const int64_t to = set * p.k_pad + j;
#pragma unroll
        for (int i = 0; i < 4; i++) value[i] = p.dtype == p.factors ? value[i] : mirt__cu_round(value[i], p.factors);
        mirt__cu_store_as<4>(p.to, p.dtype, to, value);
    }
}

/* Four channels per thread as well, of one group: those of its columns in each pixel it comes to, whose constants it
   works out once. */
static __global__ void __launch_bounds__(256, 2) mirt__cu_mm_spread_wide_kernel(mirt__cu_mm_spread p) {
    const int rows = 4;
    const int64_t j = ((int64_t)blockIdx.y * p.across + (int)threadIdx.x % p.across) * 4,
                  step = (int64_t)gridDim.x * p.down;
    mirt__cu_columns<4> c;
    if (j >= p.k_pad) return;
    if (j < p.k) mirt__cu_columns_of<MIRT__CU_READ_ANY, 4>(p.x, j, c);
    for (int64_t first = (int64_t)blockIdx.x * p.down + (int)threadIdx.x / p.across; first < p.pixels;
         first += rows * step) {
        mirt__cu_raw<4> raw[rows];
#pragma unroll
        for (int i = 0; i < rows && j < p.k; i++) {
            if (first + i * step >= p.pixels) break;
            mirt__cu_fetch<MIRT__CU_READ_ANY, 4>(p.x, (first + i * step) * p.stride + j, raw[i]);
        }
#pragma unroll
        for (int i = 0; i < rows; i++) {
            const int64_t pixel = first + i * step;
            float value[4] = {0, 0, 0, 0};
            if (pixel >= p.pixels) break;
            if (j < p.k)
                mirt__cu_make<MIRT__CU_READ_ANY, 4>(p.x, c, raw[i], mirt__cu_gate_of(p.x, pixel), j, value);
#pragma unroll
            for (int v = 0; v < 4; v++)
                value[v] = p.dtype == p.factors ? value[v] : mirt__cu_round(value[v], p.factors);
            mirt__cu_store_as<4>(p.to, p.dtype, pixel * p.k_pad + j, value);
        }
    }
}

/* A pixel per thread, of up to four channels that are read as they are: colors. */
static __global__ void __launch_bounds__(256) mirt__cu_mm_spread_colors_kernel(mirt__cu_mm_spread p) {
    for (int64_t pixel = (int64_t)blockIdx.x * 256 + threadIdx.x; pixel < p.pixels;
         pixel += (int64_t)gridDim.x * 256) {
        uint32_t word[4];
        float value[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i < p.k) mirt__cu_fetch_words<1>(p.x.data, p.x.dtype, pixel * p.stride + i, &word[i]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i >= p.k) break;
            mirt__cu_make_words<1>(&word[i], p.x.dtype, &value[i]);
            if (p.x.affine) value[i] = fmaf(value[i], p.x.scale, p.x.offset);
            if (p.dtype != p.factors) value[i] = mirt__cu_round(value[i], p.factors);
        }
        if (p.k_pad == 8) mirt__cu_store_as<8>(p.to, p.dtype, pixel * 8, value);
        else mirt__cu_store_as<4>(p.to, p.dtype, pixel * 4, value);
    }
}

/* Of `pixels` that are `stride` elements apart, each of which has k channels per group. */
static mirt__cu_mm_spread mirt__cu_mm_spread_of(const mirt__cu_reader &x, int64_t pixels, int64_t stride, int groups,
                                                int k, mirt_dtype dtype, mirt_dtype factors, int64_t turned) {
    mirt__cu_mm_spread s;
    memset(&s, 0, sizeof s);
    s.x = x;
    s.pixels = pixels;
    s.stride = stride;
    s.turned = turned;
    s.k = k;
    s.k_pad = (int)mirt__cu_round_up(k, dtype == MIRT_FLOAT32 ? 4 : 8);
    s.groups = groups;
    s.dtype = dtype;
    s.factors = factors;
    s.wide = k % 4 == 0 && x.width >= 4 && !turned;
    s.by_pieces = mirt__cu_divisor_of(s.k_pad / 4);
    s.by_pixels = mirt__cu_divisor_of(pixels);
    s.by_groups = mirt__cu_divisor_of(groups);
    return s;
}
static int64_t mirt__cu_mm_spread_bytes(const mirt__cu_mm_spread &s) {
    return s.pixels * s.groups * s.k_pad * (s.dtype == MIRT_FLOAT32 ? 4 : 2);
}
static void mirt__cu_mm_spread_run(mirt__cu *cu, mirt__cu_mm_spread s, void *to) {
    s.to = to;
    if (s.pixels < 1 || s.k_pad < 1) return;
    if (s.groups == 1 && s.wide) {
        const mirt__cu_layout c = mirt__cu_layout_of(s.k_pad / 4, 256, 256);
        const int64_t blocks = mirt__cu_ceil(s.pixels, c.down * 4), most = c.blocks < 1024 ? 2048 / c.blocks : 2;
        s.across = c.across;
        s.down = c.down;
        MIRT_LAUNCH(cu, mirt__cu_mm_spread_wide_kernel, dim3((unsigned)(blocks < most ? blocks : most), c.blocks),
                    c.across * c.down, 0, s);
    } else if (s.groups == 1 && !s.turned && s.k <= 4 && s.x.kind == MIRT__CU_READ_PLAIN) {
        MIRT_LAUNCH(cu, mirt__cu_mm_spread_colors_kernel, mirt__cu_blocks(s.pixels, 256), 256, 0, s);
    } else {
        MIRT_LAUNCH(cu, mirt__cu_mm_spread_kernel, mirt__cu_blocks(s.pixels * s.groups * (s.k_pad / 4), 256), 256, 0,
                    s);
    }
}

/* A call's memory: what is asked for first, then where it is. */
typedef struct mirt__cu_mm_rooms {
    int64_t x, b, partial, chunks, end;
} mirt__cu_mm_rooms;
static int64_t mirt__cu_mm_rooms_take(mirt__cu_mm_rooms *r, int64_t bytes) {
    const int64_t at = r->end;
    r->end += mirt__cu_round_up(bytes, 256);
    return at;
}

#endif

/* >>section cuda/weight_grad.cuh */

#ifndef MIRT__CUDA_WEIGHT_GRAD_CUH
#define MIRT__CUDA_WEIGHT_GRAD_CUH
/* Weight gradients of tensors stored in 16 bits, and what their kernels share. Nothing is computed while tensors are
   read, so that copies to shared memory run stages ahead of the products. */

struct mirt__cu_wgrad : mirt__conv {
    mirt__cu_reader x, dy;
    int64_t lines, n;         /* of a group: lines and columns of dkernel */
    int64_t m, channels;      /* of a group: rows of the product, channels of x; with those that are filled up */
    int64_t filled;           /* of the channels, the last ones, zeros */
    int64_t x_row, dy_row;    /* from one pixel to the next, in pieces of 8 */
    int64_t pixels, part;     /* of dy: all, in a part */
    int tiles_m, tiles_n;
    bool flat;                /* x's pixels are dy's */
    int width;                /* neighbors that are read at once */
    bool large;               /* tiles of 128 by 128 */
    mirt_dtype factors;       /* what numbers are rounded to */
    bool gate_images;         /* an image has the same gates */
    mirt__cu_divisor image, line;
    float *sums;              /* of part 0: dkernel, then db */
    int64_t sum_floats;       /* from one part to the next */
    bool bias;
    float *dkernel, *db;      /* where there is one part only */
};

/* Where a part of the pixels begins: pixels are counted from there on. */
struct mirt__cu_wgrad_start {
    int64_t pixel, row; /* row: its image */
    uint32_t rest;      /* pixels of that image before it */
    int count;
};
static inline __device__ mirt__cu_wgrad_start mirt__cu_wgrad_start_of(const mirt__cu_wgrad &g) {
    mirt__cu_wgrad_start start;
    start.pixel = (int64_t)blockIdx.y * g.part;
    start.count = (int)(start.pixel + g.part < g.pixels ? g.part : g.pixels - start.pixel);
    start.row = start.pixel / g.image.by;
    start.rest = (uint32_t)(start.pixel - start.row * g.image.by);
    return start;
}

/* Which tile of dkernel a block computes. */
struct mirt__cu_wgrad_tile {
    int64_t group, m0, n0;
    bool bias; /* it adds up dy, too */
};
template <int BM, int BN> static inline __device__ mirt__cu_wgrad_tile mirt__cu_wgrad_tile_of(const mirt__cu_wgrad &g) {
    const unsigned down = blockIdx.x % (unsigned)g.tiles_m, rest = blockIdx.x / (unsigned)g.tiles_m;
    mirt__cu_wgrad_tile t;
    t.group = rest / (unsigned)g.tiles_n;
    t.m0 = (int64_t)down * BM;
    t.n0 = (int64_t)(rest % (unsigned)g.tiles_n) * BN;
    t.bias = g.bias && down == 0;
    return t;
}
static inline __device__ float *mirt__cu_wgrad_to(const mirt__cu_wgrad &g) {
    return g.dkernel ? g.dkernel : g.sums + (int64_t)blockIdx.y * g.sum_floats;
}

/* The sums of a lane as mma.sync has them; row, column: of its first one. */
template <int MT, int NT>
static inline __device__ void mirt__cu_wgrad_leave(const mirt__cu_wgrad &g, int64_t group, int64_t row, int64_t column,
                                                   const float (&d)[MT][NT][4]) {
    float *to = mirt__cu_wgrad_to(g);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        int64_t r = row + i * 8;
        if (r >= g.m) break;
        if (g.filled) {
            const int64_t tap = r / g.channels;
            if (r - tap * g.channels >= g.channels - g.filled) continue;
            r -= tap * g.filled;
        }
#pragma unroll
        for (int j = 0; j < 2 * NT; j++) {
            const int64_t c = column + j / 2 * 8 + j % 2;
            if (c < g.n) to[r * g.co + group * g.n + c] = d[i / 2][j / 2][i % 2 * 2 + j % 2];
        }
    }
}
/* db of a tile from its threads' sums: those of the same column of dy, in their order. */
template <int THREADS, int BN>
static inline __device__ void mirt__cu_wgrad_leave_bias(const mirt__cu_wgrad &g, const mirt__cu_wgrad_tile &t,
                                                        float sum, float *room) {
    const int thread = (int)threadIdx.x;
    room[thread] = sum;
    __syncthreads();
    if (thread >= BN || t.n0 + thread >= g.n) return;
    for (int i = 1; i < THREADS / BN; i++) sum += room[i * BN + thread];
    (g.dkernel ? g.db : mirt__cu_wgrad_to(g) + g.lines * g.co)[t.group * g.n + t.n0 + thread] = sum;
}

/* ---- Through copies: tiles of 128 by BN, 32 pixels a stage. Warps multiply 64 by 32, which leaves room for 16 of them
   on a processor. */

/* Tensors have fewer numbers than this: pieces of 8 are counted in 32 bits. */
#define MIRT__CU_WGRAD_NUMBERS ((int64_t)1 << 34)

template <int BN> struct mirt__cu_wgrad_copies {
    static constexpr int BM = 128, BK = 32, THREADS = 2 * BN, RESIDENT = BN == 128 ? 2 : 4;
    static constexpr int STAGES = 4, AHEAD = STAGES - 1;
    static constexpr int A_BYTES = BK * BM * 2, STAGE = A_BYTES + BK * BN * 2;
    /* Pixels of x are looked up for so many steps at a time, a pixel per thread, while those before are read. */
    static constexpr int BYTES = STAGES * STAGE + 2 * THREADS * (int)sizeof(int4);

    /* Rows of a tile are pixels. Eight rows have the same piece in different banks, for ldmatrix. */
    template <int COLUMNS> static __device__ int place(int row, int piece) {
        return row * COLUMNS * 2 + (piece ^ (row & 7)) * 16;
    }

    static constexpr int X_LINES = THREADS / (BM / 8), DY_LINES = THREADS / (BN / 8); /* that are copied at a time */
    const uint4 *x, *dy;
    int x_put, dy_put, line;    /* where a thread's first pieces go in a stage; its first pixel of x */
    int y, across;              /* of its tap, from a pixel of dy: lines, pixels */
    unsigned tap, dy_at;        /* pieces: that far from a pixel's first one; its next one of dy */
    int left;                   /* pixels from that one on */

    __device__ void begin(const mirt__cu_wgrad &g, const mirt__cu_wgrad_tile &t, const mirt__cu_wgrad_start &start) {
        const int thread = (int)threadIdx.x, piece = thread % (BM / 8), dy_piece = thread % (BN / 8),
                  dy_line = thread / (BN / 8);
        const int64_t row = t.m0 + piece * 8, column = t.n0 + dy_piece * 8;
        const int64_t nth = row / g.channels, down = nth / g.kw;
        line = thread / (BM / 8);
        x = static_cast<const uint4 *>(g.x.data);
        dy = static_cast<const uint4 *>(g.dy.data);
        x_put = place<BM>(line, piece);
        dy_put = A_BYTES + place<BN>(dy_line, dy_piece);
        y = (int)(down * g.dilation_h - g.pad_top);
        across = (int)((nth - down * g.kw) * g.dilation_w - g.pad_left);
        tap = (unsigned)(((int64_t)y * g.w + across) * g.x_row +
                         (t.group * g.channels + row - nth * g.channels) / 8);
        if (row >= g.m) y = -(1 << 29);
        dy_at = (unsigned)((start.pixel + dy_line) * g.dy_row + t.group * (g.dy_row / g.groups) + column / 8);
        left = column < g.n ? start.count - dy_line : 0;
    }
    /* Pixel k of a part, as taps read x from it: its piece, line and place in the line; far above x if there is
       none. */
    static __device__ int4 pixel(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k) {
        if (k >= start.count) return make_int4(0, -(1 << 29), 0, 0);
        const uint32_t within = start.rest + (uint32_t)k, image = mirt__cu_divide32(within, g.image),
                       of = within - image * (uint32_t)g.image.by, down = mirt__cu_divide32(of, g.line);
        const int iy = (int)down * g.stride_h, ix = (int)(of - down * (uint32_t)g.line.by) * g.stride_w;
        return make_int4((int)((((start.row + image) * g.h + iy) * g.w + ix) * g.x_row), iy, ix, 0);
    }
    /* Pixel k is kept at `to`, as one access. */
    static __device__ void keep(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k, int4 *to) {
        const int4 p = pixel(g, start, k);
        mirt__cu_bytes<16> raw;
        memcpy(raw.word, &p, sizeof p);
        mirt__cu_store_bytes<16>(to, raw);
    }
    /* Asks for the next 32 pixels; `pixels`: those of x. */
    __device__ void ask(const mirt__cu_wgrad &g, const int4 *pixels, unsigned char *stage) {
        int4 p[BK / X_LINES]; /* all of them first: each copy after a load costs three instructions of waiting */
#pragma unroll
        for (int i = 0; i < BK / X_LINES; i++) p[i] = pixels[line + i * X_LINES];
#pragma unroll
        for (int i = 0; i < BK / X_LINES; i++) {
            const bool valid = (unsigned)(p[i].y + y) < (unsigned)g.h && (unsigned)(p[i].z + across) < (unsigned)g.w;
            mirt__cu_cp_async16(stage + x_put + i * X_LINES * BM * 2, x + ((unsigned)p[i].x + tap), valid);
        }
        const unsigned row = (unsigned)g.dy_row;
#pragma unroll
        for (int i = 0; i < BK / DY_LINES; i++)
            mirt__cu_cp_async16(stage + dy_put + i * DY_LINES * BN * 2, dy + (dy_at + i * DY_LINES * row),
                                i * DY_LINES < left);
        dy_at += BK * row;
        left -= BK;
        mirt__cu_cp_async_commit();
    }
};

/* A part's sums of a tile, in the order of pixels. */
template <bool FLOAT16, int BN>
static __global__ void __launch_bounds__(mirt__cu_wgrad_copies<BN>::THREADS, mirt__cu_wgrad_copies<BN>::RESIDENT)
    mirt__cu_copied_wgrad_kernel(const mirt__cu_wgrad g) {
    typedef mirt__cu_wgrad_copies<BN> S;
    typedef typename mirt__cu_half_of<FLOAT16>::type H;
    MIRT_DYNAMIC_SHARED(unsigned char, shared);
    int4 *pixels = reinterpret_cast<int4 *>(shared + S::STAGES * S::STAGE);
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int wm = warp / (BN / 32) * 64, wn = warp % (BN / 32) * 32;
    const int a_at = S::template place<S::BM>(lane % 8 + lane / 16 * 8, wm / 8 + lane / 8 % 2),
              b_at = S::A_BYTES + S::template place<BN>(lane % 16, wn / 8 + lane / 16);
    const int bias_at = S::A_BYTES + S::template place<BN>(thread / BN, thread % BN / 8) + thread % 8 * 2;
    const mirt__cu_wgrad_tile t = mirt__cu_wgrad_tile_of<S::BM, BN>(g);
    const mirt__cu_wgrad_start start = mirt__cu_wgrad_start_of(g);
    float d[4][4][4], sum = 0;
    memset(&d, 0, sizeof d);
    S copies;
    copies.begin(g, t, start);
    for (int i = thread; i < 2 * S::THREADS; i += S::THREADS) S::keep(g, start, i, pixels + i);
    __syncthreads();
    for (int i = 0; i < S::AHEAD; i++) copies.ask(g, pixels + i * S::BK, shared + i * S::STAGE);
    unsigned turn = S::AHEAD * S::BK; /* of pixels: those of the next stage */
    int now = 0, next = S::AHEAD * S::STAGE;
#pragma unroll 1
    for (int k = 0; k < start.count; k += S::BK) {
        mirt__cu_cp_async_wait<S::STAGES - 2>();
        __syncthreads(); /* all of this stage is there, and nobody is at the one before any more */
        if (turn % S::THREADS == 0)
            S::keep(g, start, k + S::AHEAD * S::BK + S::THREADS + thread, pixels + (turn ^ S::THREADS) + thread);
        copies.ask(g, pixels + turn, shared + next);
        turn = (turn + S::BK) % (2 * S::THREADS);
        const unsigned char *stage = shared + now;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t b[2][4];
#pragma unroll
            for (int j = 0; j < 2; j++) mirt__cu_ldmatrix_x4_trans(b[j], stage + (b_at ^ j * 32) + half * 16 * BN * 2);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t a[4];
                mirt__cu_ldmatrix_x4_trans(a, stage + (a_at ^ i * 32) + half * 16 * S::BM * 2);
#pragma unroll
                for (int j = 0; j < 4; j++) mirt__cu_mma_half<FLOAT16>(d[i][j], a, b[j / 2] + j % 2 * 2);
            }
        }
        if (t.bias) {
#pragma unroll
            for (int i = 0; i < S::BK; i += 2)
                sum += mirt__cu_from_half(
                    *reinterpret_cast<const H *>(stage + (bias_at ^ (i & 6) * 16) + i * BN * 2));
        }
        next = now;
        now = now + S::STAGE == S::STAGES * S::STAGE ? 0 : now + S::STAGE;
    }
    mirt__cu_wgrad_leave(g, t.group, t.m0 + wm + lane / 4, t.n0 + wn + lane % 4 * 2, d);
    mirt__cu_cp_async_wait<0>();
    if (!t.bias) return;
    __syncthreads();
    mirt__cu_wgrad_leave_bias<S::THREADS, BN>(g, t, sum, reinterpret_cast<float *>(shared));
}

template <bool FLOAT16, int BN>
static void mirt__cu_copied_wgrad_launch(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    typedef mirt__cu_wgrad_copies<BN> S;
    const dim3 grid((unsigned)((int64_t)g.tiles_m * g.tiles_n * g.groups), (unsigned)parts);
    MIRT_LAUNCH(cu, (mirt__cu_copied_wgrad_kernel<FLOAT16, BN>), grid, S::THREADS, S::BYTES, g);
}
/* Parts are those of tiles of 64 by 64, where they are not large. */
template <bool FLOAT16> static void mirt__cu_copied_wgrad(mirt__cu *cu, mirt__cu_wgrad g, int64_t parts) {
    g.tiles_m = (int)mirt__cu_ceil(g.m, 128);
    if (g.large) mirt__cu_copied_wgrad_launch<FLOAT16, 128>(cu, g, parts);
    else mirt__cu_copied_wgrad_launch<FLOAT16, 64>(cu, g, parts);
}

#endif

/* >>section cuda/conv_grad.cu */

/* Weight gradients of convolutions. dkernel[tap, c][o] is a product over all pixels of dy, which are divided into parts
   that depend on the shape alone; the sums of the parts are added in order. */

/* Blocks that a device should have: so that large ones run evenly. Pixels that a part has at least. */
#define MIRT__CU_WGRAD_BLOCKS 792
#define MIRT__CU_WGRAD_LARGE 528
#define MIRT__CU_WGRAD_PIXELS 512
#define MIRT__CU_WGRAD_SUMS ((int64_t)1 << 24) /* floats of all parts, about */

/* ---- Of floats, by FMA or TF32: tiles of BM by BN, 16 pixels at a time. */

template <int BM_, int BN_> struct mirt__cu_wgrad_shape {
    static constexpr int BM = BM_, BN = BN_, BK = 16;
    static constexpr int THREADS = BM * BN >= 128 * 128 ? 256 : 128;
    static constexpr int WARPS_N = THREADS == 256 ? 4 : 2, WARPS_M = THREADS / 32 / WARPS_N;
    static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;           /* of a warp */
    static constexpr int TN = BN >= 128 ? 8 : 4, TM = BM * BN / THREADS / TN; /* of a thread, by FMA */
    static constexpr int A_PITCH = BM + 8, B_PITCH = BN + 8;
    static constexpr int A_FLOATS = BK * A_PITCH, B_FLOATS = BK * B_PITCH;
    static constexpr int SHARE = THREADS / BN; /* threads of a column */
    static constexpr int BYTES = (2 * (A_FLOATS + B_FLOATS) + MIRT__CU_COLUMN_ROWS * (BM + BN)) * (int)sizeof(float);
};

/* V numbers to shared memory. */
template <int V> static inline __device__ void mirt__cu_wgrad_put(float *to, float *v, mirt_dtype factors) {
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = mirt__cu_round(v[i], factors);
    mirt__cu_store_n<V>(to, v);
}

/* A thread's share of a tile: V neighbors of every DOWN-th pixel, in raw form from when they are asked for until they
   are put. */
template <class S, int V, bool X> struct mirt__cu_wgrad_side {
    static constexpr int COLUMNS = X ? S::BM : S::BN, PITCH = X ? S::A_PITCH : S::B_PITCH, ACROSS = COLUMNS / V,
                         DOWN = S::THREADS / ACROSS;
    static constexpr int COUNT = V > 1 ? S::BK / DOWN : 1;
    mirt__cu_raw<V> raw[COUNT];
    int64_t gates[X ? COUNT : 1];
    unsigned there; /* of those, bits */
    int column, line;
    int64_t channel, y, x; /* y, x: of its tap, from the first */

    /* As the reader is, but for what is known of it here: the usual ones have neighbors. */
    static __device__ mirt__cu_reader reader(const mirt__cu_wgrad &g) {
        mirt__cu_reader r = X ? g.x : g.dy;
        if (V > 1) r.kind &= X ? MIRT__CU_READ_NORM | MIRT__CU_READ_GATE : MIRT__CU_READ_BACK;
        return r;
    }
    __device__ bool begin(const mirt__cu_wgrad &g, int64_t group, int64_t first, int thread) {
        column = thread % ACROSS * V;
        line = thread / ACROSS;
        there = 0;
        const int64_t at = first + column;
        if (!X) {
            channel = group * g.n + at;
            y = x = 0;
            return at < g.n;
        }
        const int64_t tap = at / g.channels, down = tap / g.kw;
        channel = group * g.channels + (at - tap * g.channels);
        y = down * g.dilation_h - g.pad_top;
        x = (tap - down * g.kw) * g.dilation_w - g.pad_left;
        return at < g.m;
    }
    /* Asks for pixel k of the part; false: there is nothing. */
    __device__ bool fetch_one(const mirt__cu_wgrad &g, const mirt__cu_reader &r, const mirt__cu_wgrad_start &start,
                              int k, mirt__cu_raw<V> &to, int64_t &gate) {
        int64_t pixel = start.pixel + k;
        if (k >= start.count) return false;
        if (X && (!g.flat || r.kind & MIRT__CU_READ_GATE)) {
            const uint32_t within = start.rest + (uint32_t)k, image = mirt__cu_divide32(within, g.image);
            const int64_t row = start.row + image;
            if (!g.flat) {
                const uint32_t place = within - image * (uint32_t)g.image.by, oy = mirt__cu_divide32(place, g.line),
                               ox = place - oy * (uint32_t)g.line.by;
                const int64_t iy = (int64_t)oy * g.stride_h + y, ix = (int64_t)ox * g.stride_w + x;
                if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) return false;
                pixel = (row * g.h + iy) * g.w + ix;
            }
            gate = g.gate_images ? row * g.ci : mirt__cu_gate_of(r, pixel);
        }
        if (!X && V == 1) gate = mirt__cu_gate_of(r, pixel);
        mirt__cu_fetch<MIRT__CU_READ_ANY, V>(r, pixel * (X ? g.ci : g.co) + channel, to);
        return true;
    }
    /* Pixels [k, k + BK) of the part; without V, only when they are put. */
    __device__ void fetch(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k, bool mine) {
        if (V == 1) return;
        const mirt__cu_reader r = reader(g);
        there = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (mine && fetch_one(g, r, start, k + line + i * DOWN, raw[i], gates[X ? i : 0])) there |= 1u << i;
        }
    }
    __device__ void put(const mirt__cu_wgrad &g, const mirt__cu_wgrad_start &start, int k, bool mine,
                        const float *columns, float *shared) {
        const mirt__cu_reader r = reader(g);
        mirt__cu_columns<V> c;
        mirt__cu_columns_get<MIRT__CU_READ_ANY, V>(r, columns, COLUMNS, column, c);
        if constexpr (V > 1) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                float v[V] = {0};
                if (there >> i & 1) mirt__cu_make<MIRT__CU_READ_ANY, V>(r, c, raw[i], X ? gates[i] : 0, channel, v);
                mirt__cu_wgrad_put<V>(shared + (line + i * DOWN) * PITCH + column, v, g.factors);
            }
        } else {
#pragma unroll 2
            for (int i = line; i < S::BK; i += DOWN) {
                float v[1] = {0};
                if (mine && fetch_one(g, r, start, k + i, raw[0], gates[0]))
                    mirt__cu_make<MIRT__CU_READ_ANY, 1>(r, c, raw[0], gates[0], channel, v);
                mirt__cu_wgrad_put<1>(shared + i * PITCH + column, v, g.factors);
            }
        }
    }
};

/* The sums of a thread. */
template <class S, int BY> struct mirt__cu_wgrad_sums {
    static constexpr int MT = S::WM / 16, NT = S::WN / 8;
    float d[BY == MIRT__CU_BY_FMA ? 1 : MT][BY == MIRT__CU_BY_FMA ? 1 : NT][4];
    float c[BY == MIRT__CU_BY_FMA ? S::TM : 1][BY == MIRT__CU_BY_FMA ? S::TN : 1];
};

template <class S, int BY>
static __device__ void mirt__cu_wgrad_multiply(mirt__cu_wgrad_sums<S, BY> &sums, int thread,
                                               const float *as, const float *bs) {
    constexpr int MT = S::WM / 16, NT = S::WN / 8;
    const int lane = thread % 32, warp = thread / 32, wm = warp / S::WARPS_N * S::WM, wn = warp % S::WARPS_N * S::WN;
    if constexpr (BY == MIRT__CU_BY_FMA) {
        const int tx = thread % 16 * 4, ty = thread / 16 * 4;
        constexpr int DOWN = S::THREADS / 16 * 4;
#pragma unroll
        for (int k = 0; k < S::BK; k++) {
            float a[S::TM], b[S::TN];
#pragma unroll
            for (int i = 0; i < S::TM; i += 4) mirt__cu_load_n<4>(as + k * S::A_PITCH + ty + i / 4 * DOWN, a + i);
#pragma unroll
            for (int j = 0; j < S::TN; j += 4) mirt__cu_load_n<4>(bs + k * S::B_PITCH + tx + j / 4 * 64, b + j);
#pragma unroll
            for (int i = 0; i < S::TM; i++) {
#pragma unroll
                for (int j = 0; j < S::TN; j++) sums.c[i][j] = fmaf(a[i], b[j], sums.c[i][j]);
            }
        }
    } else {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int k = 0; k < S::BK; k += 8) {
            uint32_t a[MT][4], b[NT][2];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                const float *from = as + (k + t) * S::A_PITCH + wm + i * 16 + g;
#pragma unroll
                for (int e = 0; e < 4; e++) a[i][e] = mirt__cu_to_tf32(from[e / 2 * 4 * S::A_PITCH + e % 2 * 8]);
            }
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const float *from = bs + (k + t) * S::B_PITCH + wn + j * 8 + g;
                b[j][0] = mirt__cu_to_tf32(from[0]), b[j][1] = mirt__cu_to_tf32(from[4 * S::B_PITCH]);
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < NT; j++) mirt__cu_mma_tf32(sums.d[i][j], a[i], b[j]);
            }
        }
    }
}

/* A tile of one part's sums: x is read with its taps as the rows of a matrix [pixels][taps * channels], dy is one
   [pixels][columns]. Both lie in shared memory by pixels, two tiles of each: some warps read the next one while others
   multiply. */
template <int BY, int BM, int BN, int V>
static __global__ void __launch_bounds__(mirt__cu_wgrad_shape<BM, BN>::THREADS, BM > 64 ? 1 : 3)
    mirt__cu_wgrad_kernel(const mirt__cu_wgrad g) {
    typedef mirt__cu_wgrad_shape<BM, BN> S;
    MIRT_DYNAMIC_SHARED(float, shared);
    float *as = shared, *bs = shared + 2 * S::A_FLOATS, *a_columns = bs + 2 * S::B_FLOATS,
          *b_columns = a_columns + MIRT__CU_COLUMN_ROWS * BM;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const mirt__cu_wgrad_tile t = mirt__cu_wgrad_tile_of<BM, BN>(g);
    const int64_t group = t.group, m0 = t.m0, n0 = t.n0;
    for (int i = thread; i < BM; i += S::THREADS) {
        if (m0 + i < g.m) mirt__cu_column_put(g.x, group * g.channels + (m0 + i) % g.channels, a_columns, BM, i);
    }
    for (int i = thread; i < BN && n0 + i < g.n; i += S::THREADS)
        mirt__cu_column_put(g.dy, group * g.n + n0 + i, b_columns, BN, i);
    mirt__cu_wgrad_side<S, V, true> x;
    mirt__cu_wgrad_side<S, V, false> dy;
    const bool x_mine = x.begin(g, group, m0, thread), dy_mine = dy.begin(g, group, n0, thread);
    mirt__cu_wgrad_sums<S, BY> sums;
    float sum = 0;
    memset(&sums, 0, sizeof sums);
    const mirt__cu_wgrad_start start = mirt__cu_wgrad_start_of(g);
    __syncthreads();
    /* A tile is asked for, the one before is multiplied, then it is put beside that. */
    int at = 1;
#pragma unroll 1
    for (int k = -S::BK; k < start.count; k += S::BK, at ^= 1) {
        const bool more = k + S::BK < start.count;
        const float *a = as + at * S::A_FLOATS, *b = bs + at * S::B_FLOATS;
        if (more) {
            x.fetch(g, start, k + S::BK, x_mine);
            dy.fetch(g, start, k + S::BK, dy_mine);
        }
        if (k >= 0) {
            mirt__cu_wgrad_multiply<S, BY>(sums, thread, a, b);
            if (t.bias) {
#pragma unroll 4
                for (int i = thread / BN; i < S::BK; i += S::SHARE) sum += b[i * S::B_PITCH + thread % BN];
            }
        }
        if (more) {
            x.put(g, start, k + S::BK, x_mine, a_columns, as + (at ^ 1) * S::A_FLOATS);
            dy.put(g, start, k + S::BK, dy_mine, b_columns, bs + (at ^ 1) * S::B_FLOATS);
        }
        __syncthreads();
    }

    if constexpr (BY == MIRT__CU_BY_FMA) {
        float *to = mirt__cu_wgrad_to(g);
        const int tx = thread % 16 * 4, ty = thread / 16 * 4;
#pragma unroll
        for (int i = 0; i < S::TM; i++) {
            const int64_t row = m0 + ty + i / 4 * (S::THREADS / 16 * 4) + i % 4;
#pragma unroll
            for (int j = 0; j < S::TN; j++) {
                const int64_t column = n0 + tx + j / 4 * 64 + j % 4;
                if (row < g.m && column < g.n) to[row * g.co + group * g.n + column] = sums.c[i][j];
            }
        }
    } else {
        const int wm = warp / S::WARPS_N * S::WM + lane / 4, wn = warp % S::WARPS_N * S::WN + lane % 4 * 2;
        mirt__cu_wgrad_leave(g, group, m0 + wm, n0 + wn, sums.d);
    }
    if (t.bias) mirt__cu_wgrad_leave_bias<S::THREADS, BN>(g, t, sum, shared);
}

template <int BY, int BM, int BN, int V>
static void mirt__cu_wgrad_launch(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    typedef mirt__cu_wgrad_shape<BM, BN> S;
    const dim3 grid((unsigned)((int64_t)g.tiles_m * g.tiles_n * g.groups), (unsigned)parts);
    MIRT_LAUNCH(cu, (mirt__cu_wgrad_kernel<BY, BM, BN, V>), grid, S::THREADS, S::BYTES, g);
}
template <int BY> static void mirt__cu_wgrad_by(mirt__cu *cu, const mirt__cu_wgrad &g, int64_t parts) {
    if (g.large) mirt__cu_wgrad_launch<BY, 128, 128, 4>(cu, g, parts);
    else if (g.width == 4) mirt__cu_wgrad_launch<BY, 64, 64, 4>(cu, g, parts);
    else mirt__cu_wgrad_launch<BY, 64, 64, 1>(cu, g, parts);
}

/* What is not stored as it is multiplied is written down first. */
static bool mirt__cu_wgrad_stored(const mirt__cu_reader &r, int64_t channels, mirt_dtype factors) {
    return r.kind == MIRT__CU_READ_PLAIN && !r.affine && r.dtype == factors && r.width == 8 && channels % 8 == 0;
}

static void mirt__cu_conv_weight_grad(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__conv *s = &args->s;
    const mirt_dtype factors = mirt__cu_factors(args->half, where);
    if (mirt__cu_depthwise_weight_grad(args, cu) || mirt__cu_blas_conv_weight_grad(args, factors, cu)) return;
    mirt__cu_wgrad g;
    memset(&g, 0, sizeof g);
    static_cast<mirt__conv &>(g) = *s;
    g.x = mirt__cu_reader_of(&args->x, s->ci);
    g.dy = mirt__cu_reader_of(&args->dy, s->co);
    g.channels = s->ci / s->groups;
    g.lines = (int64_t)s->kh * s->kw * g.channels;
    g.n = s->co / s->groups;
    g.pixels = s->rows * s->oh * s->ow;
    g.flat = mirt__cu_pixelwise(s);
    g.image = mirt__cu_divisor_of(s->oh * s->ow);
    g.line = mirt__cu_divisor_of(s->ow);
    g.gate_images = g.x.gate_pixels == s->h * s->w;
    g.bias = args->db != NULL;
    g.factors = factors;
    if (g.lines < 1 || s->co < 1) return;

    const mirt__cu_math math = mirt__cu_math_of(cu, factors);
    const int64_t sources = s->rows * s->h * s->w, x_padded = mirt__cu_round_up(g.channels, 8),
                  dy_padded = mirt__cu_round_up(g.n, 8);
    const bool half = math >= MIRT__CU_BY_HALF && sources * s->groups * x_padded < MIRT__CU_WGRAD_NUMBERS &&
                      g.pixels * s->groups * dy_padded < MIRT__CU_WGRAD_NUMBERS;
    const bool x_spread = half && !mirt__cu_wgrad_stored(g.x, g.channels, factors),
               dy_spread = half && !mirt__cu_wgrad_stored(g.dy, g.n, factors);
    mirt__cu_mm_spread x, dy;
    mirt__cu_mm_rooms r;
    memset(&r, 0, sizeof r);
    memset(&x, 0, sizeof x);
    memset(&dy, 0, sizeof dy);
    if (x_spread) {
        x = mirt__cu_mm_spread_of(g.x, sources, s->ci, s->groups, (int)g.channels, factors, factors, 0);
        r.x = mirt__cu_mm_rooms_take(&r, mirt__cu_mm_spread_bytes(x));
    }
    if (dy_spread) {
        dy = mirt__cu_mm_spread_of(g.dy, g.pixels, s->co, s->groups, (int)g.n, factors, factors, 0);
        r.b = mirt__cu_mm_rooms_take(&r, mirt__cu_mm_spread_bytes(dy));
    }
    if (half) {
        g.filled = x_padded - g.channels;
        g.channels = x_padded;
        g.x_row = s->groups * x_padded / 8;
        g.dy_row = s->groups * dy_padded / 8;
    } else {
        const bool odd = g.x.kind & MIRT__CU_READ_BACK || g.dy.kind & (MIRT__CU_READ_NORM | MIRT__CU_READ_GATE);
        g.width = !odd && g.x.width >= 4 && g.dy.width >= 4 && g.channels % 4 == 0 && g.n % 4 == 0 ? 4 : 1;
    }
    g.m = (int64_t)s->kh * s->kw * g.channels;
    g.large = (half ? mirt__cu_wgrad_copies<128>::BYTES <= cu->shared_most : g.width == 4) && g.m > 64 && g.n > 64;
    const int tile = g.large ? 128 : 64;
    g.tiles_m = (int)mirt__cu_ceil(g.m, tile);
    g.tiles_n = (int)mirt__cu_ceil(g.n, tile);
    g.sum_floats = g.lines * s->co + (g.bias ? s->co : 0);
    /* Never more parts for fewer pixels. */
    int64_t parts = (g.large ? MIRT__CU_WGRAD_LARGE : MIRT__CU_WGRAD_BLOCKS) /
                    ((int64_t)g.tiles_m * g.tiles_n * s->groups);
    const int64_t worth = g.pixels / MIRT__CU_WGRAD_PIXELS, most = MIRT__CU_WGRAD_SUMS / g.sum_floats;
    if (parts > worth) parts = worth;
    if (parts > most) parts = most;
    if (parts <= g.pixels >> 30) parts = (g.pixels >> 30) + 1; /* they are counted in 32 bits */
    g.part = mirt__cu_ceil(mirt__cu_ceil(g.pixels, parts), 32) * 32;
    if (parts > 1) r.partial = mirt__cu_mm_rooms_take(&r, parts * g.sum_floats * (int64_t)sizeof(float));
    char *room = r.end > 0 ? (char *)mirt__cu_room(cu, (size_t)r.end) : NULL;
    if (r.end > 0 && !room) return;
    g.sums = (float *)(room + r.partial);
    parts = g.pixels > 0 ? mirt__cu_ceil(g.pixels, g.part) : 0;
    if (parts == 1) {
        g.dkernel = args->dkernel;
        g.db = args->db;
    }
    if (x_spread) {
        mirt__cu_mm_spread_run(cu, x, room + r.x);
        g.x.data = room + r.x;
    }
    if (dy_spread) {
        mirt__cu_mm_spread_run(cu, dy, room + r.b);
        g.dy.data = room + r.b;
    }
    if (parts > 0) {
        if (half && math == MIRT__CU_BY_FLOAT16) mirt__cu_copied_wgrad<true>(cu, g, parts);
        else if (half) mirt__cu_copied_wgrad<false>(cu, g, parts);
        else if (math == MIRT__CU_BY_TF32) mirt__cu_wgrad_by<MIRT__CU_BY_TF32>(cu, g, parts);
        else mirt__cu_wgrad_by<MIRT__CU_BY_FMA>(cu, g, parts);
    }
    if (parts != 1)
        mirt__cu_parts_total(cu, g.sums, parts, g.sum_floats, g.lines * s->co, args->dkernel, s->co, args->db);
}

/* >>section cuda/conv_pool.cu */

/* Convolutions fused with 2x2 max pooling. Values that pooling drops are never stored; the first layers of small
   networks are of this kind. */

/* Tiles of windows of an image: the input below one is read into shared memory once, where it has room and is plain.
   Lanes are channels of y, and the eight warps of a block share its windows. */
struct mirt__cu_pooled : mirt__conv {
    mirt__cu_reader x;
    int64_t across, down;               /* windows of an image */
    int64_t image;                      /* elements of x in one */
    int taps;                           /* kh * kw * ci */
    int tile_h, tile_w, tiles_x, tiles; /* windows of a tile; tiles of an image */
    int patch_w, patch_h,
        pitch; /* what it reads of x: pixels; floats from row to row, of x itself where it has no room */
    int64_t all;                        /* tiles of all images */
};
#define MIRT__CU_POOLED_FLOATS 8192 /* of a patch, at most */

/* A tile's place. */
struct mirt__cu_pooled_tile {
    int64_t row, window; /* image; its first window in y */
    int64_t first;       /* element of x in its corner */
    int height, width;   /* in windows */
};
static inline __device__ mirt__cu_pooled_tile mirt__cu_pooled_at(const mirt__cu_pooled &p, int64_t number) {
    mirt__cu_pooled_tile t;
    t.row = number / p.tiles;
    const int rest = (int)(number - t.row * p.tiles), y = rest / p.tiles_x * p.tile_h, x = rest % p.tiles_x * p.tile_w;
    t.height = p.down - y < p.tile_h ? (int)p.down - y : p.tile_h;
    t.width = p.across - x < p.tile_w ? (int)p.across - x : p.tile_w;
    t.window = (t.row * p.down + y) * p.across + x;
    t.first = t.row * p.image + ((int64_t)2 * y * p.w + 2 * x) * p.ci;
    return t;
}
static inline __device__ void mirt__cu_pooled_patch(const mirt__cu_pooled &p, const mirt__cu_pooled_tile &t,
                                                    float *patch) {
    mirt__cu_reader x = p.x;
    x.kind = MIRT__CU_READ_PLAIN;
    const int line = (2 * t.width + p.kw - 1) * (int)p.ci, lines = 2 * t.height + p.kh - 1;
    for (int y = (int)threadIdx.y; y < lines; y += 8) {
        const int64_t from = t.first + y * p.w * p.ci;
        for (int i = (int)threadIdx.x; i < line; i += 32) patch[y * p.pitch + i] = mirt__cu_read_one(x, from + i);
    }
}

static inline __device__ void mirt__cu_pooled_leave(const float *sum, float bias, int64_t at, float *y,
                                                    uint8_t *which) {
    float best = sum[0] + bias;
    int place = 0;
#pragma unroll
    for (int i = 1; i < 4; i++) {
        const float other = sum[i] + bias;
        if (other > best) {
            best = other;
            place = i;
        }
    }
    y[at] = mirt__cu_activate(MIRT_RELU, best);
    if (which) which[at] = (uint8_t)(best > 0 ? place : 4);
}

/* K by K taps of C channels, or any with K 0, whose patches may be in memory. */
template <int K, int C, bool PATCHED>
static __global__ void __launch_bounds__(256)
    mirt__cu_pooled_forward(const mirt__cu_pooled p, const float *kernel, const float *bias, float *y, uint8_t *which) {
    MIRT_DYNAMIC_SHARED(float, patch);
    const int64_t o = (int64_t)blockIdx.y * 32 + threadIdx.x;
    const mirt__cu_pooled_tile t = mirt__cu_pooled_at(p, blockIdx.x);
    if (PATCHED) {
        mirt__cu_pooled_patch(p, t, patch);
        __syncthreads();
    }
    if (o >= p.co) return;
    const float add = bias ? bias[o] : 0;
    constexpr int TAPS = K * K * C > 0 ? K * K * C : 1;
    float weight[TAPS];
    if (K > 0) {
#pragma unroll
        for (int i = 0; i < TAPS; i++) weight[i] = kernel[i * p.co + o];
    }
    for (int i = (int)threadIdx.y; i < t.height * t.width; i += 8) {
        const int wy = i / t.width, wx = i % t.width;
        float sum[4] = {0, 0, 0, 0};
        if constexpr (K > 0) {
            /* Of each place in ascending order of taps; a row of x is read for two rows of places. */
            const float *from = patch + 2 * wy * p.pitch + 2 * wx * C;
            float line[2][(K + 1) * C];
#pragma unroll
            for (int j = 0; j < (K + 1) * C; j++) line[0][j] = from[j];
#pragma unroll
            for (int ky = 0; ky < K; ky++) {
                float *low = line[ky % 2], *high = line[(ky + 1) % 2];
#pragma unroll
                for (int j = 0; j < (K + 1) * C; j++) high[j] = from[(ky + 1) * p.pitch + j];
#pragma unroll
                for (int j = 0; j < K * C; j++) {
                    const float w = weight[ky * K * C + j];
                    sum[0] = fmaf(low[j], w, sum[0]);
                    sum[1] = fmaf(low[j + C], w, sum[1]);
                    sum[2] = fmaf(high[j], w, sum[2]);
                    sum[3] = fmaf(high[j + C], w, sum[3]);
                }
            }
        } else {
            const int ci = (int)p.ci;
            const int64_t corner = (int64_t)2 * wy * p.pitch + 2 * wx * ci;
            for (int ky = 0; ky < p.kh; ky++) {
                for (int j = 0; j < p.kw * ci; j++) {
                    const float w = kernel[(int64_t)(ky * p.kw * ci + j) * p.co + o];
                    const int64_t at = corner + (int64_t)ky * p.pitch + j;
#pragma unroll
                    for (int place = 0; place < 4; place++) {
                        const int64_t from = at + place / 2 * p.pitch + place % 2 * ci;
                        sum[place] = fmaf(PATCHED ? patch[from] : mirt__cu_read_one(p.x, t.first + from), w,
                                          sum[place]);
                    }
                }
            }
        }
        mirt__cu_pooled_leave(sum, add, (t.window + wy * p.across + wx) * p.co + o, y, which);
    }
}

/* Sums of some tiles: a thread has TAPS rows of dkernel in its column. Blocks of the same blockIdx.x have the same
   tiles; z: the first of those rows. Then all warps' sums are added up in their order. */
template <int TAPS, bool PATCHED>
static __global__ void __launch_bounds__(256)
    mirt__cu_pooled_grad(const mirt__cu_pooled p, int64_t each, const float *dy, const uint8_t *which, float *sums,
                         int64_t stride, float *bias_sums, int64_t bias_stride) {
    MIRT_DYNAMIC_SHARED(float, shared);
    float *total = shared, *patch = shared + (TAPS + 1) * 32;
    const int lane = (int)threadIdx.x, first_tap = (int)blockIdx.z * TAPS;
    const int64_t o = (int64_t)blockIdx.y * 32 + lane;
    const int64_t first = blockIdx.x * each, end = first + each < p.all ? first + each : p.all;
    int offset[TAPS];
    float sum[TAPS], dy_sum = 0;
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        const int tap = first_tap + i < p.taps ? first_tap + i : 0, line = p.kw * (int)p.ci;
        offset[i] = tap / line * p.pitch + tap % line;
        sum[i] = 0;
    }
    for (int64_t number = first; number < end; number++) {
        const mirt__cu_pooled_tile t = mirt__cu_pooled_at(p, number);
        if (PATCHED) {
            __syncthreads();
            mirt__cu_pooled_patch(p, t, patch);
            __syncthreads();
        }
        for (int i = (int)threadIdx.y; o < p.co && i < t.height * t.width; i += 8) {
            const int wy = i / t.width, wx = i % t.width;
            const int64_t at = (t.window + wy * p.across + wx) * p.co + o;
            const int place = which[at];
            if (place > 3) continue;
            const float d = dy[at];
            const int from = (2 * wy + place / 2) * p.pitch + (2 * wx + place % 2) * (int)p.ci;
            dy_sum += d;
#pragma unroll
            for (int j = 0; j < TAPS; j++) {
                const float x = PATCHED ? patch[from + offset[j]] : mirt__cu_read_one(p.x, t.first + from + offset[j]);
                sum[j] = fmaf(d, x, sum[j]);
            }
        }
    }
    for (int warp = 0; warp < 8; warp++) {
        if ((int)threadIdx.y == warp) {
#pragma unroll
            for (int j = 0; j < TAPS; j++) total[j * 32 + lane] = warp ? total[j * 32 + lane] + sum[j] : sum[j];
            total[TAPS * 32 + lane] = warp ? total[TAPS * 32 + lane] + dy_sum : dy_sum;
        }
        __syncthreads();
    }
    if (o >= p.co) return;
    for (int j = (int)threadIdx.y; j < TAPS && first_tap + j < p.taps; j += 8) {
        sums[blockIdx.x * stride + (int64_t)(first_tap + j) * p.co + o] = total[j * 32 + lane];
    }
    if (bias_sums && first_tap == 0 && threadIdx.y == 0)
        bias_sums[blockIdx.x * bias_stride + o] = total[TAPS * 32 + lane];
}

/* Tiles of some 64 windows, whose patches have room; *floats: of one, 0 where it has none. */
static mirt__cu_pooled mirt__cu_pooled_of(const mirt__conv *s, const mirt__reader *x, int *floats) {
    mirt__cu_pooled p;
    memset(&p, 0, sizeof p);
    static_cast<mirt__conv &>(p) = *s;
    p.x = mirt__cu_reader_of(x, s->ci);
    p.down = s->oh / 2;
    p.across = s->ow / 2;
    p.image = s->h * s->w * s->ci;
    p.taps = (int)(s->kh * s->kw * s->ci);
    p.tile_w = (int)(p.across < 16 ? p.across : 16);
    if (p.tile_w < 1) p.tile_w = 1;
    p.tile_h = 64 / p.tile_w;
    if (p.tile_h > p.down) p.tile_h = (int)(p.down < 1 ? 1 : p.down);
    for (;;) {
        p.patch_w = 2 * p.tile_w + p.kw - 1;
        p.patch_h = 2 * p.tile_h + p.kh - 1;
        *floats = 0;
        if (p.x.kind == MIRT__CU_READ_PLAIN && p.patch_w * p.ci * p.patch_h <= MIRT__CU_POOLED_FLOATS) {
            p.pitch = p.patch_w * (int)p.ci;
            *floats = p.pitch * p.patch_h;
            break;
        }
        p.pitch = (int)(p.w * p.ci);
        if (p.tile_h > 1) p.tile_h /= 2;
        else if (p.tile_w > 1) p.tile_w /= 2;
        else break;
    }
    p.tiles_x = (int)mirt__cu_ceil(p.across, p.tile_w);
    p.tiles = p.tiles_x * (int)mirt__cu_ceil(p.down, p.tile_h);
    p.all = s->rows * p.tiles;
    return p;
}

static void mirt__cu_conv_pool(const mirt__conv_pool *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__conv *s = &args->s;
    int floats;
    const mirt__cu_pooled p = mirt__cu_pooled_of(s, &args->x, &floats);
    if (p.all < 1 || p.co < 1) return;
    const bool patched = floats > 0, square = patched && p.kh == p.kw;
    const auto pooled = square && p.kh == 3 && p.ci == 1   ? mirt__cu_pooled_forward<3, 1, true>
                        : square && p.kh == 3 && p.ci == 3 ? mirt__cu_pooled_forward<3, 3, true>
                        : square && p.kh == 5 && p.ci == 1 ? mirt__cu_pooled_forward<5, 1, true>
                        : patched                          ? mirt__cu_pooled_forward<0, 0, true>
                                                           : mirt__cu_pooled_forward<0, 0, false>;
    MIRT_LAUNCH(cu, pooled, dim3((unsigned)p.all, (unsigned)mirt__cu_ceil(p.co, 32)), dim3(32, 8),
                patched ? (size_t)floats * sizeof(float) : 16, p, args->kernel, args->bias, args->y, args->which);
}

#define MIRT__CU_POOLED_PARTS 256
static void mirt__cu_conv_pool_weight_grad(const mirt__conv_pool_weight_grad *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__conv *s = &args->s;
    int floats;
    const mirt__cu_pooled p = mirt__cu_pooled_of(s, &args->x, &floats);
    if (p.co < 1 || p.taps < 1) return;
    int64_t parts = p.all < MIRT__CU_POOLED_PARTS ? p.all : MIRT__CU_POOLED_PARTS;
    const int64_t count = p.taps * p.co, stride = count + p.co;
    const int64_t most = ((int64_t)1 << 24) / stride;
    if (parts > most) parts = most;
    if (parts < 1) parts = 1;
    float *sums = NULL;
    if (parts > 1) sums = (float *)mirt__cu_room(cu, (size_t)(parts * stride) * sizeof(float));
    const int64_t each = mirt__cu_ceil(p.all, parts);
    parts = each > 0 ? mirt__cu_ceil(p.all, each) : 0;
    const int taps = floats == 0 ? 1 : p.taps <= 9 ? 9 : p.taps <= 27 ? 27 : 32;
    const dim3 grid((unsigned)parts, (unsigned)mirt__cu_ceil(p.co, 32), (unsigned)mirt__cu_ceil(p.taps, taps));
    const auto pooled_grad = taps == 1    ? mirt__cu_pooled_grad<1, false>
                             : taps == 9  ? mirt__cu_pooled_grad<9, true>
                             : taps == 27 ? mirt__cu_pooled_grad<27, true>
                                          : mirt__cu_pooled_grad<32, true>;
    float *to = args->dkernel, *bias = args->db;
    if (parts != 1) {
        to = sums;
        bias = args->db && sums ? sums + count : NULL;
    }
    if (parts > 0)
        MIRT_LAUNCH(cu, pooled_grad, grid, dim3(32, 8), (size_t)((taps + 1) * 32 + floats) * sizeof(float), p, each,
                    args->dy, args->which, to, stride, bias, stride);
    if (parts != 1) mirt__cu_parts_total(cu, sums, parts, stride, count, args->dkernel, p.co, args->db);
}

/* >>section cuda/tiles.cuh */

#ifndef MIRT__CUDA_TILES_CUH
#define MIRT__CUDA_TILES_CUH
/* Tiles of matrix products: what their rows read from images, and their sums. */

/* A phase of an axis: targets first + i * step, i < count, read sources i * move + off + tap * tap_off, tap < taps. */
typedef struct mirt__cu_mm_line {
    int first, step, count, move, off, tap_off, taps;
} mirt__cu_mm_line;
/* An axis of target and source: target t reads source t * stride - pad + tap * dilation; `back`: the source that reads
   t so. Then targets fall into phases, by t % stride, each of which has its own taps: every tap_step-th. */
typedef struct mirt__cu_mm_axis {
    int source, target, kernel, stride, dilation, pad, phases, tap_step;
    bool back;
    mirt__cu_mm_line line; /* of the first phase, most often the only one, which blocks need not work out */
} mirt__cu_mm_axis;
static inline __host__ __device__ mirt__cu_mm_line mirt__cu_mm_line_of(const mirt__cu_mm_axis &a, int phase) {
    mirt__cu_mm_line l;
    if (!a.back) {
        l.first = 0;
        l.step = 1;
        l.count = a.target;
        l.move = a.stride;
        l.off = -a.pad;
        l.tap_off = a.dilation;
        l.taps = a.kernel;
        return l;
    }
    int tap = 0;
    while (tap < a.tap_step && (phase + a.pad - tap * a.dilation) % a.stride != 0) tap++;
    const bool none = tap == a.tap_step || tap >= a.kernel;
    l.first = phase;
    l.step = a.stride;
    l.count = (a.target - phase + a.stride - 1) / a.stride;
    l.move = 1;
    l.off = none ? 0 : (phase + a.pad - tap * a.dilation) / a.stride;
    l.tap_off = -(a.tap_step * a.dilation / a.stride);
    l.taps = none ? 0 : (a.kernel - tap + a.tap_step - 1) / a.tap_step;
    return l;
}

/* x is float32 or, for products of 16 bits, of those; it is read by 16 bytes, so k is a multiple of 4 or 8, and
   addresses are of 16. */
typedef struct mirt__cu_multiply {
    mirt__cu_reader x;    /* activations: mirt__cu_simple; gates are of whole images */
    mirt__cu_mm_axis down, across;
    int64_t images;
    int groups, c, k, n;  /* of a pixel of the source; of a group: channels of the source, of the target */
    bool pixelwise;       /* pixels of the target are products of the pixels at their places in the source */
    const void *b; /* of each group, phase and k in turn b_row numbers, floats or of 16 bits, aligned to 16 bytes */
    int64_t b_row, b_group;
    mirt__cu_epilogue e;
    mirt__cu_chunks chunks;
    int64_t pixels;
    int blocks_m, blocks_n, splits, split_steps; /* of k, each of which leaves its sums in `partial` */
    float *partial;
} mirt__cu_multiply;

#ifndef MIRT__CU_MM_BLOCKS
#define MIRT__CU_MM_BLOCKS 128 /* so many keep a machine busy; tests say another number */
#endif
#define MIRT__CU_MM_SLAB 64 /* rows of a tile that are finished at a time, where shared memory may be short */

template <int BM, int BN, int MATH> struct mirt__cu_mm_tile {
    static const bool half = MATH >= MIRT__CU_BY_HALF;
    typedef typename mirt__cu_half_of<MATH == MIRT__CU_BY_FLOAT16>::type H;
    static const int k = half ? 32 : 16; /* of a step */
    static const int warp_n = 32, warp_m = half && (BM == 64 || BN == 32) ? 32 : 64;
    static const int threads = BM / warp_m * (BN / warp_n) * 32;
    static const int resident = !half ? 1 : BN == 32 ? 4 : BN == 64 ? 3 : 2; /* blocks of a processor, at least */
    static const int stages = half ? 4 : 2;
    static const int a_row = BM + (MATH == MIRT__CU_BY_TF32 ? 8 : 4),
                     b_row = BN + (MATH == MIRT__CU_BY_TF32 ? 8 : 0); /* of floats [k][row] */
    static const int a_bytes = half ? BM * k * 2 : a_row * k * 4, b_bytes = half ? BN * k * 2 : b_row * k * 4;
    static const int slab_rows = half ? BM : MIRT__CU_MM_SLAB, slab_row = BN + 4, slab = slab_rows * slab_row * 4;
    static const int info = BM * 32; /* mirt__cu_mm_row, out, image */
};
/* Bytes of shared memory for the stages; of 16 bits z has its place in them, too. */
static inline __host__ __device__ int mirt__cu_mm_work_bytes(int stages, int a_bytes, int b_bytes, int slab, bool z) {
    const int bytes = stages * (a_bytes + b_bytes + (z ? a_bytes : 0));
    return bytes > slab ? bytes : slab;
}

struct mirt__cu_mm_row { /* a pixel of the target: what its first tap reads, and where that begins */
    int64_t at;
    int y, x;
};
#define MIRT__CU_MM_TAPS 15 /* of an axis, at most, where rows have a bit for each */
struct mirt__cu_mm_bits { /* the same of what is copied as it is stored */
    int64_t at;
    unsigned reads, none; /* reads: by which taps across it reads something, and from bit 16 on by which down */
};
template <bool BARE> struct mirt__cu_mm_row_by {
    typedef mirt__cu_mm_row type;
};
template <> struct mirt__cu_mm_row_by<true> {
    typedef mirt__cu_mm_bits type;
};
/* In shared memory, as one access. */
template <class ROW> static inline __device__ ROW mirt__cu_mm_row_get(const ROW *from) {
    ROW row;
    const mirt__cu_bytes<16> raw = mirt__cu_load_bytes<16>(from);
    memcpy(&row, raw.word, sizeof row);
    return row;
}
template <class ROW> static inline __device__ void mirt__cu_mm_row_put(ROW *to, const ROW &row) {
    mirt__cu_bytes<16> raw;
    memcpy(raw.word, &row, sizeof row);
    mirt__cu_store_bytes<16>(to, raw);
}
/* Where a thread is in k. */
struct mirt__cu_mm_walk {
    int c, y, x;
};
static inline __device__ void mirt__cu_mm_walk_on(mirt__cu_mm_walk &w, int by, int k, int taps_x) {
    w.c += by;
    while (w.c >= k) {
        w.c -= k;
        if (++w.x == taps_x) {
            w.x = 0;
            w.y++;
        }
    }
}

/* Taps of the phases before one, whose own taps down are `taps`. */
static inline __device__ int64_t mirt__cu_mm_taps_before(const mirt__cu_mm_axis &y, const mirt__cu_mm_axis &x, int down,
                                                         int across, int taps) {
    int64_t above = 0, all_across = 0, left = 0;
    for (int i = 0; i < x.phases; i++) {
        const int here = mirt__cu_mm_line_of(x, i).taps;
        all_across += here;
        left += i < across ? here : 0;
    }
    for (int i = 0; i < down; i++) above += mirt__cu_mm_line_of(y, i).taps;
    return above * all_across + taps * left;
}

/* What a block is for. */
struct mirt__cu_mm_block {
    mirt__cu_mm_line down, across;
    int group, column, steps, first_step, depth, phase; /* depth: of k */
    int64_t row, rows, part, b_at; /* part: of rows, of all phases */
};
template <int BM, int BN, int K>
static inline __device__ mirt__cu_mm_block mirt__cu_mm_block_of(const mirt__cu_multiply &p) {
    mirt__cu_mm_block b;
    unsigned at = blockIdx.x;
    b.column = (int)(at % (unsigned)p.blocks_n) * BN;
    at /= (unsigned)p.blocks_n;
    b.row = (int64_t)(at % (unsigned)p.blocks_m) * BM;
    at /= (unsigned)p.blocks_m;
    b.group = b.phase = 0;
    b.down = p.down.line;
    b.across = p.across.line;
    b.b_at = 0;
    if (at > 0) {
        b.group = (int)(at % (unsigned)p.groups);
        b.phase = (int)(at / (unsigned)p.groups);
        b.b_at = b.group * p.b_group;
    }
    if (b.phase > 0) {
        const int down = b.phase / p.across.phases, across = b.phase - down * p.across.phases;
        b.down = mirt__cu_mm_line_of(p.down, down);
        b.across = mirt__cu_mm_line_of(p.across, across);
        b.b_at += mirt__cu_mm_taps_before(p.down, p.across, down, across, b.down.taps) * p.k * p.b_row;
    }
    b.rows = p.images * b.down.count * b.across.count;
    b.part = (int64_t)b.phase * p.blocks_m + b.row / BM;
    b.depth = b.row < b.rows ? b.down.taps * b.across.taps * p.k : 0;
    b.steps = (b.depth + K - 1) / K;
    b.first_step = 0;
    if (p.splits > 1) {
        b.first_step = (int)blockIdx.y * p.split_steps;
        b.steps = b.steps < b.first_step + p.split_steps ? b.steps : b.first_step + p.split_steps;
    }
    return b;
}

/* Most numbers are short, and so are their divisions. */
static inline __device__ int64_t mirt__cu_mm_divide(int64_t n, int by) {
    return (uint64_t)n >> 32 ? n / by : (int64_t)((uint32_t)n / (uint32_t)by);
}

/* Row m of a phase: what it reads, where in y it is stored (-1: nowhere), which image it is of. */
static inline __device__ mirt__cu_mm_row mirt__cu_mm_row_of(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                            int64_t m, int64_t *out, int64_t *image) {
    mirt__cu_mm_row r;
    r.at = 0;
    r.y = r.x = -(1 << 29);
    *out = -1;
    *image = 0;
    if (m >= b.rows) return r;
    const int64_t lines = mirt__cu_mm_divide(m, b.across.count), x = m - lines * b.across.count;
    const int64_t of = mirt__cu_mm_divide(lines, b.down.count), y = lines - of * b.down.count;
    r.y = (int)y * b.down.move + b.down.off;
    r.x = (int)x * b.across.move + b.across.off;
    r.at = ((of * p.down.source + r.y) * p.across.source + r.x) * p.c + (int64_t)b.group * p.k;
    *out = ((of * p.down.target + b.down.first + y * b.down.step) * p.across.target + b.across.first +
            x * b.across.step) * p.e.columns;
    *image = of;
    return r;
}
/* Of all rows of a tile. */
template <int BM, int THREADS>
static inline __device__ void mirt__cu_mm_rows_put(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                   mirt__cu_mm_row *rows, int64_t *out, int *image) {
    for (int i = (int)threadIdx.x; i < BM; i += THREADS) {
        int64_t of;
        mirt__cu_mm_row_put(rows + i, mirt__cu_mm_row_of(p, b, b.row + i, out + i, &of));
        image[i] = (int)of;
    }
}
/* Bits of the taps of a line that read one of `source` from `first` on. */
static inline __device__ unsigned mirt__cu_mm_taps_that_read(const mirt__cu_mm_line &line, int first, int source) {
    unsigned bits = 0;
#pragma unroll 1
    for (int tap = 0; tap < line.taps; tap++, first += line.tap_off)
        bits |= ((unsigned)first < (unsigned)source ? 1u : 0u) << tap;
    return bits;
}
template <int BM, int THREADS>
static inline __device__ void mirt__cu_mm_rows_put(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                   mirt__cu_mm_bits *rows, int64_t *out) {
    for (int i = (int)threadIdx.x; i < BM; i += THREADS) {
        const int64_t m = b.row + i;
        mirt__cu_mm_bits bits;
        bits.none = 0;
        if (p.pixelwise) {
            bits.at = m * p.c;
            bits.reads = m < b.rows ? 1u | 1u << 16 : 0u;
            out[i] = m < b.rows ? m * p.e.columns : -1;
        } else {
            int64_t image;
            const mirt__cu_mm_row r = mirt__cu_mm_row_of(p, b, m, out + i, &image);
            bits.at = r.at;
            bits.reads = mirt__cu_mm_taps_that_read(b.across, r.x, p.across.source) |
                         mirt__cu_mm_taps_that_read(b.down, r.y, p.down.source) << 16;
        }
        mirt__cu_mm_row_put(rows + i, bits);
    }
}

/* Whether a row reads something by a tap. */
static inline __device__ bool mirt__cu_mm_row_reads(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                    const mirt__cu_mm_row &r, const mirt__cu_mm_walk &w) {
    const int y = r.y + w.y * b.down.tap_off, x = r.x + w.x * b.across.tap_off;
    return (unsigned)y < (unsigned)p.down.source && (unsigned)x < (unsigned)p.across.source && w.y < b.down.taps;
}
/* How far from what the first tap reads a tap reads, in all rows. */
static inline __device__ int64_t mirt__cu_mm_tap_at(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                    const mirt__cu_mm_walk &w) {
    return ((int64_t)(w.y * b.down.tap_off) * p.across.source + w.x * b.across.tap_off) * p.c;
}

/* The place of a row of x among the floats of a k. Four lanes store numbers whose k are 4 apart, and 4 pitches of tf32
   are a multiple of all banks: so rows are moved by 8 from one such k to the next. */
template <int MATH> static inline __host__ __device__ int mirt__cu_mm_float_a(int k, int row) {
    return MATH == MIRT__CU_BY_TF32 ? row ^ (k >> 2 & 3) * 8 : row;
}
/* Numbers of 16 bits in shared memory: rows of 64 bytes for x, of BN * 2 for b, whose pieces of 16 bytes lie so that
   eight rows' pieces of the same number lie in different banks. */
static inline __device__ int mirt__cu_mm_half_a(int row, int piece) { return row * 64 + (piece ^ (row >> 1 & 3)) * 16; }
template <int BN>
static inline __device__ int mirt__cu_mm_half_b(int k, int piece) {
    return BN == 32 ? mirt__cu_mm_half_a(k, piece) : k * BN * 2 + (piece ^ (k & 7)) * 16;
}

/* One step of k: sums += tile of x times tile of b. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_sums_of {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int mt = tile::warp_m / 16, nt = tile::warp_n / 8;
    float d[MATH == MIRT__CU_BY_FMA ? 16 : mt * nt][4]; /* by FMA: 8 rows of 8, in halves */

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < (MATH == MIRT__CU_BY_FMA ? 16 : mt * nt); i++) d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
    }
    __device__ void add(const char *a_tile, const char *b_tile) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        const int row = warp / (BN / tile::warp_n) * tile::warp_m, column = warp % (BN / tile::warp_n) * tile::warp_n;
        if constexpr (tile::half) {
            /* Rows 8 apart have their pieces at the same places, which the bits of the others do not touch. */
            const int a_at = mirt__cu_mm_half_a(row + lane % 16, lane / 16),
                      b_at = mirt__cu_mm_half_b<BN>(lane % 16, column / 8 + lane / 16);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                uint32_t b[nt / 2][4];
#pragma unroll
                for (int j = 0; j < nt / 2; j++)
                    mirt__cu_ldmatrix_x4_trans(b[j], b_tile + (b_at ^ j * 32) + k * 16 * BN * 2);
#pragma unroll
                for (int i = 0; i < mt; i++) {
                    uint32_t a[4];
                    mirt__cu_ldmatrix_x4(a, a_tile + (a_at ^ k * 32) + i * 16 * 64);
#pragma unroll
                    for (int j = 0; j < nt; j++)
                        mirt__cu_mma_half<MATH == MIRT__CU_BY_FLOAT16>(d[i * nt + j], a, b[j / 2] + j % 2 * 2);
                }
            }
        } else if constexpr (MATH == MIRT__CU_BY_TF32) {
            const uint32_t *as = reinterpret_cast<const uint32_t *>(a_tile) + row + lane / 4,
                           *bs = reinterpret_cast<const uint32_t *>(b_tile) + column + lane / 4;
#pragma unroll
            for (int k = 0; k < tile::k; k += 8) {
                uint32_t a[mt][4], b[nt][2];
                const int at = k + lane % 4;
#pragma unroll
                for (int i = 0; i < mt; i++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) /* `row` and lane / 4 have none of the bits that move */
                        a[i][e] = as[(at + e / 2 * 4) * tile::a_row +
                                     mirt__cu_mm_float_a<MATH>(k + e / 2 * 4, i * 16 + e % 2 * 8)];
                }
#pragma unroll
                for (int j = 0; j < nt; j++) {
                    b[j][0] = bs[at * tile::b_row + j * 8];
                    b[j][1] = bs[(at + 4) * tile::b_row + j * 8];
                }
#pragma unroll
                for (int i = 0; i < mt; i++) {
#pragma unroll
                    for (int j = 0; j < nt; j++) mirt__cu_mma_tf32(d[i * nt + j], a[i], b[j]);
                }
            }
        } else {
            const int x = (int)threadIdx.x % (BN / 8), y = (int)threadIdx.x / (BN / 8);
            const float *as = reinterpret_cast<const float *>(a_tile) + y * 4,
                        *bs = reinterpret_cast<const float *>(b_tile) + x * 4;
#pragma unroll
            for (int k = 0; k < tile::k; k++) {
                float a[8], b[8];
                mirt__cu_load_n<4>(as + k * tile::a_row, a);
                mirt__cu_load_n<4>(as + k * tile::a_row + BM / 2, a + 4);
                mirt__cu_load_n<4>(bs + k * tile::b_row, b);
                mirt__cu_load_n<4>(bs + k * tile::b_row + BN / 2, b + 4);
#pragma unroll
                for (int i = 0; i < 8; i++) {
#pragma unroll
                    for (int j = 0; j < 8; j++) d[i * 2 + j / 4][j % 4] = fmaf(a[i], b[j], d[i * 2 + j / 4][j % 4]);
                }
            }
        }
    }
    /* Rows of a slab into shared memory. */
    __device__ void put(float *to, int slab) const {
        if constexpr (MATH == MIRT__CU_BY_FMA) {
            const int x = (int)threadIdx.x % (BN / 8), y = (int)threadIdx.x / (BN / 8);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const int row = i / 4 * (BM / 2) + y * 4 + i % 4 - slab * tile::slab_rows;
                if (row < 0 || row >= tile::slab_rows) continue;
                mirt__cu_store_n<4>(to + row * tile::slab_row + x * 4, d[i * 2]);
                mirt__cu_store_n<4>(to + row * tile::slab_row + BN / 2 + x * 4, d[i * 2 + 1]);
            }
        } else {
            const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
            const int row = warp / (BN / tile::warp_n) * tile::warp_m - slab * tile::slab_rows,
                      column = warp % (BN / tile::warp_n) * tile::warp_n;
            if (row < 0 || row >= tile::slab_rows) return;
#pragma unroll
            for (int i = 0; i < mt; i++) {
#pragma unroll
                for (int j = 0; j < nt; j++) {
                    float *at = to + (row + i * 16 + lane / 4) * tile::slab_row + column + j * 8 + lane % 4 * 2;
                    mirt__cu_store_n<2>(at, d[i * nt + j]);
                    mirt__cu_store_n<2>(at + 8 * tile::slab_row, d[i * nt + j] + 2);
                }
            }
        }
    }
};

#endif

/* >>section cuda/multiply.cuh */

#ifndef MIRT__CUDA_MULTIPLY_CUH
#define MIRT__CUDA_MULTIPLY_CUH
/* Matrix products whose left side is read from images: convolutions, input gradients, dense layers. A block computes a
   tile of the output, pixels by channels, and goes over k = (tap, channel) in ascending order. */

/* Columns of a thread in slabs, four side by side. */
template <int BN, int THREADS> struct mirt__cu_mm_finisher {
    static const int across = BN / 4, lanes = THREADS / across;
    mirt__cu_finish_columns<4> columns;
    mirt__cu_sums<4> sums;
    int x, lane, n; /* n: how many columns exist from its first one on; it is not cut off at 4, because ptxas 13.0 takes
                       min(n, 4) == 4 for n > 4 */
    int64_t column;

    __device__ void begin(const mirt__cu_multiply &p, int group, int first) {
        x = (int)threadIdx.x % across;
        lane = (int)threadIdx.x / across;
        n = p.n - first - 4 * x;
        column = (int64_t)group * p.n + first + 4 * x;
        mirt__cu_finish_columns_of<4>(p.e, column, n, columns);
        mirt__cu_sums_begin(sums);
    }
    /* The n columns of ROWS pixels at `at` in y, of which `value` has the sums: first all that is read is asked for.
       Those that are not `there` come last. SIMPLE: as of mirt__cu_finish_with. */
    template <int ROWS, bool SIMPLE, class AT>
    __device__ void finish(const mirt__cu_epilogue &e, const AT *at, const bool *there, int n, float (*value)[4]) {
        mirt__cu_finish_raw<4> raw[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (there[i]) mirt__cu_finish_fetch<4>(e, at[i], n, raw[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float z[4] = {0, 0, 0, 0};
            if (!there[i]) continue;
            mirt__cu_finish_with<4, SIMPLE>(e, columns, raw[i], n, value[i], z);
            mirt__cu_sums_add<4>(e, columns, sums, value[i], z, i > 0);
            mirt__cu_finish_store<4>(e, at[i], n, value[i]);
        }
    }
    /* Finishes rows of a slab that lie at `places`. DTYPE: as of mirt__cu_ending_from. */
    template <int END, int DTYPE, class PLACES>
    __device__ void slab(const mirt__cu_epilogue &from, const float *values, int rows, const PLACES &places) {
        /* More rows at once would not fit in their registers. */
        const int batch = END == MIRT__CU_END_ANY ? 1 : THREADS == 128 || END == MIRT__CU_END_MOMENTS ? 4 : 2;
        const int all = END == MIRT__CU_END_ANY ? n : 4;
        if (n <= 0) return;
        const mirt__cu_epilogue e = mirt__cu_ending_from<END, DTYPE>(from, places.first + column);
#pragma unroll 1
        for (int r = lane; r < rows; r += lanes * batch) {
            float value[batch][4];
            typename PLACES::type at[batch];
            bool there[batch];
#pragma unroll
            for (int i = 0; i < batch; i++) {
                at[i] = places.at(r + i * lanes);
                there[i] = places.there(r + i * lanes, at[i]);
                mirt__cu_load_n<4>(values + (r + i * lanes) * (BN + 4) + 4 * x, value[i]);
            }
            finish<batch, END != MIRT__CU_END_ANY>(e, at, there, all, value);
        }
    }
    /* Leaves rows of a slab to mirt__cu_multiply_splits_kernel. */
    __device__ void leave(const mirt__cu_multiply &p, const float *values, int rows, const int64_t *out) const {
        float *to = p.partial + (int64_t)blockIdx.y * p.pixels * p.e.columns + column;
#pragma unroll 1
        for (int r = lane; r < rows; r += lanes) {
            float value[4];
            mirt__cu_load_n<4>(values + r * (BN + 4) + 4 * x, value);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (out[r] >= 0 && j < n) to[out[r] + j] = value[j];
            }
        }
    }
    __device__ void end(const mirt__cu_multiply &p, int group, int first, int64_t part, float *shared) {
        const int exist = p.n - first < BN ? p.n - first : BN;
        mirt__cu_sums_leave<4>(p.e, p.chunks, sums, x, lane, lanes, BN, exist, part, (int64_t)group * p.n + first,
                               group == 0 && first == 0, shared);
    }
};
/* Places in y of rows that mirt__cu_mm_rows_put has worked out. */
struct mirt__cu_mm_places {
    typedef int64_t type;
    static const int64_t first = 0;
    const int64_t *out;
    __device__ int64_t at(int row) const { return out[row]; }
    __device__ bool there(int, int64_t at) const { return at >= 0; }
};
static inline __host__ __device__ constexpr int mirt__cu_mm_dtype(int math) {
    return math == MIRT__CU_BY_FLOAT16 ? (int)MIRT__FLOAT16 : (int)MIRT__BFLOAT16;
}
/* Whether a fourth or more of two tiles of 128 columns would be empty: three of 64 cost less, although x is read once
   more. */
static bool mirt__cu_mm_fourth_empty(int columns) { return columns > 128 && columns <= 192; }
/* How a product ends, where kernels have code of their own for that. */
static mirt__cu_ending mirt__cu_multiply_ending(const mirt__cu_multiply &p, mirt__cu_math math) {
    return p.splits == 1 && (int)p.e.dtype == mirt__cu_mm_dtype(math) ? mirt__cu_ending_of(p.e) : MIRT__CU_END_ANY;
}
/* Whether x is multiplied as it is stored, by few enough taps. */
static bool mirt__cu_multiply_is_bare(const mirt__cu_multiply &p, int math) {
    return math >= MIRT__CU_BY_HALF && p.x.kind == MIRT__CU_READ_PLAIN && !p.x.affine &&
           p.down.kernel <= MIRT__CU_MM_TAPS && p.across.kernel <= MIRT__CU_MM_TAPS;
}
template <int BM, int BN, int MATH, int END>
static inline __device__ void mirt__cu_multiply_end(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                    const mirt__cu_mm_sums_of<BM, BN, MATH> &sums, float *slab,
                                                    const int64_t *out) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    mirt__cu_mm_finisher<BN, tile::threads> finisher;
#pragma unroll
    for (int i = 0; i < BM / tile::slab_rows; i++) {
        mirt__cu_mm_places places;
        places.out = out + i * tile::slab_rows;
        __syncthreads();
        sums.put(slab, i);
        __syncthreads();
        if (i == 0) finisher.begin(p, b.group, b.column);
        if (END == MIRT__CU_END_ANY && p.splits > 1) finisher.leave(p, slab, tile::slab_rows, places.out);
        else finisher.template slab<END, mirt__cu_mm_dtype(MATH)>(p.e, slab, tile::slab_rows, places);
    }
    if (p.splits == 1) finisher.end(p, b.group, b.column, b.part, slab);
}

/* What a reader makes of N numbers. */
template <int N>
static inline __device__ void mirt__cu_mm_quick(const mirt__cu_reader &r, const mirt__cu_columns<N> &c, float *x,
                                                float *z, const float *gate) {
    const mirt_activation_kind kind = r.norm.activation;
    const float most = kind == MIRT_RELU6 ? 6.0f : INFINITY;
    if (r.kind & MIRT__CU_READ_BACK) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            z[i] = __fsub_rn(z[i], c.mean[i]);
            const float u = __fadd_rn(__fmul_rn(z[i], c.factor[i]), c.offset[i]);
            if (kind == MIRT_SILU) {
                const float s = mirt__cu_sigmoid(u);
                x[i] *= s * fmaf(u, 1.0f - s, 1.0f);
            } else if (kind != MIRT_LINEAR) {
                x[i] = u > 0 && u < most ? x[i] : 0.0f;
            }
            x[i] = __fmul_rn(__fsub_rn(__fsub_rn(x[i], c.less[i]), __fmul_rn(z[i], c.part[i])), c.factor[i]);
        }
    } else if (r.kind & MIRT__CU_READ_NORM) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = mirt__cu_normed(x[i], c.mean[i], c.factor[i], c.offset[i]);
            if (kind == MIRT_SILU) {
                x[i] = mirt__cu_silu(x[i]);
            } else if (kind != MIRT_LINEAR) {
                x[i] = x[i] < 0 ? 0.0f : x[i] > most ? most : x[i];
            }
        }
    } else if (r.affine) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = fmaf(x[i], r.scale, r.offset);
    }
    if (r.kind & MIRT__CU_READ_GATE) {
        float by[N];
        mirt__cu_load_n<N>(gate, by);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __fmul_rn(x[i], by[i]);
    }
}
/* A thread's share of a step's x, of floats, on its way through registers. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_left {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int pieces = tile::k / 4, step = tile::threads / pieces, count = BM / step;
    mirt__cu_mm_walk at;
    int piece, row, c;
    unsigned live;
    int64_t from[count];
    mirt__cu_bytes<16> x[count], z[count];

    __device__ void look(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const mirt__cu_mm_row r = mirt__cu_mm_row_get(info + row + i * step);
            from[i] = mirt__cu_mm_row_reads(p, b, r, at) ? r.at + mirt__cu_mm_tap_at(p, b, at) : -1;
        }
    }
    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
        piece = (int)threadIdx.x % pieces;
        row = (int)threadIdx.x / pieces;
        at.c = at.y = at.x = 0;
        mirt__cu_mm_walk_on(at, b.first_step * tile::k + piece * 4, p.k, b.across.taps);
        look(p, b, info);
    }
    /* Asks for what the next step reads. */
    __device__ void fetch(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
        const mirt__cu_mm_walk was = at;
        c = at.c;
        live = 0;
#pragma unroll
        for (int i = 0; i < count; i++) {
            if (from[i] < 0) continue;
            live |= 1u << i;
            x[i] = mirt__cu_load_bytes<16>(static_cast<const float *>(p.x.data) + from[i] + c);
            if (p.x.kind & MIRT__CU_READ_BACK)
                z[i] = mirt__cu_load_bytes<16>(static_cast<const float *>(p.x.z) + from[i] + c);
        }
        mirt__cu_mm_walk_on(at, tile::k, p.k, b.across.taps);
        if (at.y != was.y || at.x != was.x) look(p, b, info);
    }
    /* What it asked for, as it is read, into the tile. */
    __device__ void store(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const int *image, const float *shared,
                          char *to) {
        mirt__cu_columns<4> columns;
        if (live) mirt__cu_columns_get<MIRT__CU_READ_ANY, 4>(p.x, shared, p.k, c, columns);
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int line = row + i * step, at_line = mirt__cu_mm_float_a<MATH>(piece * 4, line);
            float value[4] = {0, 0, 0, 0}, other[4] = {0, 0, 0, 0};
            if (live >> i & 1) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    value[e] = __uint_as_float(x[i].word[e]);
                    other[e] = __uint_as_float(z[i].word[e]);
                }
                mirt__cu_mm_quick<4>(p.x, columns, value, other,
                                     p.x.gate + image[line] * p.x.channels + (int64_t)b.group * p.k + c);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t *place = reinterpret_cast<uint32_t *>(to) + (piece * 4 + e) * tile::a_row + at_line;
                *place = MATH == MIRT__CU_BY_TF32 ? mirt__cu_to_tf32(value[e]) : __float_as_uint(value[e]);
            }
        }
    }
};
/* And of b. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_right {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int pieces = BN / 4, step = tile::threads / pieces, count = tile::k / step;
    mirt__cu_bytes<16> word[count];
    int piece, row;
    const float *from;
    bool inside;

    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b) {
        piece = (int)threadIdx.x % pieces;
        row = (int)threadIdx.x / pieces;
        inside = b.column + piece * 4 < p.n;
        from = static_cast<const float *>(p.b) + b.b_at + b.column + piece * 4;
    }
    __device__ void fetch(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, int s) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int k = s * tile::k + row + i * step;
            if (inside && k < b.depth) word[i] = mirt__cu_load_bytes<16>(from + k * p.b_row);
            else word[i].word[0] = word[i].word[1] = word[i].word[2] = word[i].word[3] = 0;
        }
    }
    __device__ void store(char *to) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            if (MATH == MIRT__CU_BY_TF32) {
#pragma unroll
                for (int e = 0; e < 4; e++) word[i].word[e] = mirt__cu_to_tf32(__uint_as_float(word[i].word[e]));
            }
            mirt__cu_store_bytes<16>(to + ((row + i * step) * tile::b_row + piece * 4) * 4, word[i]);
        }
    }
};
template <int BM, int BN, int MATH>
static inline __device__ void mirt__cu_mm_through_registers(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                            const mirt__cu_mm_row *rows, const int *image,
                                                            const float *columns, char *work,
                                                            mirt__cu_mm_sums_of<BM, BN, MATH> &sums) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    const int bytes = tile::a_bytes + tile::b_bytes;
    mirt__cu_mm_left<BM, BN, MATH> left;
    mirt__cu_mm_right<BM, BN, MATH> right;
    if (b.first_step >= b.steps) return;
    left.begin(p, b, rows);
    right.begin(p, b);
    left.fetch(p, b, rows);
    right.fetch(p, b, b.first_step);
    left.store(p, b, image, columns, work);
    right.store(work + tile::a_bytes);
    __syncthreads();
    for (int s = b.first_step; s < b.steps; s++) {
        char *now = work + (s - b.first_step) % 2 * bytes, *next = work + (s + 1 - b.first_step) % 2 * bytes;
        const bool more = s + 1 < b.steps;
        if (more) {
            left.fetch(p, b, rows);
            right.fetch(p, b, s + 1);
        }
        sums.add(now, now + tile::a_bytes);
        if (more) {
            left.store(p, b, image, columns, next);
            right.store(next + tile::a_bytes);
        }
        __syncthreads();
    }
}

/* A thread's share of copies of 16 bits to shared memory, of which each stage has a step of k. BARE: x is multiplied as
   it is stored; otherwise each thread makes what it copied there what its reader reads. */
template <int BM, int BN, int MATH, bool BARE> struct mirt__cu_mm_copies {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    typedef typename tile::H H;
    static const int step = tile::threads / 4, count = BM / step, b_step = tile::threads / (BN / 8),
                     b_count = tile::k / b_step, ahead = tile::stages - 1;
    typedef typename mirt__cu_mm_row_by<BARE>::type line;
    mirt__cu_mm_walk at;
    int piece, row, a_at, b_at, b_left; /* b_left: rows of b from the thread's first one on */
    const H *x[count], *right[b_count]; /* of which nothing is read where there is nothing */
    bool there[count], back;
    /* BARE: mirt__cu_mm_bits.reads; how far it is from the end of a tap to the next one's first channel, and how much
       farther to the next line's. */
    unsigned reads[count];
    int next_tap;
    int64_t next_line;
    /* For transforms: `there` of all stages, as bits, the newest in the lowest; the oldest stage's channel. */
    unsigned live;
    int c;

    /* What the thread reads by another tap. */
    __device__ void look(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const line *rows) {
        const int64_t off = mirt__cu_mm_tap_at(p, b, at) + at.c;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const line r = mirt__cu_mm_row_get(rows + row + i * step);
            x[i] = static_cast<const H *>(p.x.data) + (r.at + off);
            if constexpr (BARE) reads[i] = r.reads;
            else there[i] = mirt__cu_mm_row_reads(p, b, r, at);
        }
        if constexpr (BARE) test();
    }
    /* Which rows read something by the tap. There is no line of taps MIRT__CU_MM_TAPS. */
    __device__ void test() {
        const unsigned tap = 1u << at.x | 1u << 16 << (at.y < MIRT__CU_MM_TAPS ? at.y : MIRT__CU_MM_TAPS);
#pragma unroll
        for (int i = 0; i < count; i++) there[i] = (reads[i] & tap) == tap;
    }
    /* The same as mirt__cu_mm_walk_on and `look`, but rows are only moved. */
    __device__ void move(const mirt__cu_multiply &p, const mirt__cu_mm_block &b) {
        int64_t by = 0;
        do {
            at.c -= p.k;
            by += next_tap;
            if (++at.x == b.across.taps) {
                at.x = 0;
                at.y++;
                by += next_line;
            }
        } while (at.c >= p.k);
#pragma unroll
        for (int i = 0; i < count; i++) x[i] += by;
        test();
    }
    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const line *rows) {
        const int first = b.first_step * tile::k, b_piece = (int)threadIdx.x % (BN / 8),
                  b_row = (int)threadIdx.x / (BN / 8);
        piece = (int)threadIdx.x % 4;
        row = (int)threadIdx.x / 4;
        a_at = mirt__cu_mm_half_a(row, piece); /* those of rows 8 apart lie alike */
        b_at = mirt__cu_mm_half_b<BN>(b_row, b_piece);
        b_left = b.column + b_piece * 8 < p.b_row ? b.depth - first - b_row : 0;
#pragma unroll
        for (int i = 0; i < b_count; i++)
            right[i] = static_cast<const H *>(p.b) + b.b_at + b.column + b_piece * 8 +
                       (int64_t)(first + b_row + i * b_step) * p.b_row;
        at.c = at.y = at.x = 0;
        mirt__cu_mm_walk_on(at, first + piece * 8, p.k, b.across.taps);
        c = at.c;
        live = 0;
        back = !BARE && (p.x.kind & MIRT__CU_READ_BACK) != 0;
        next_tap = b.across.tap_off * p.c - p.k;
        next_line = ((int64_t)b.down.tap_off * p.across.source - (int64_t)b.across.taps * b.across.tap_off) * p.c;
        look(p, b, rows);
    }
    /* Asks for the next step. */
    __device__ void ask(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const line *rows, char *to) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            char *place = to + a_at + i * step * 64;
            mirt__cu_cp_async16(place, x[i], there[i]);
            if (back)
                mirt__cu_cp_async16(place + tile::a_bytes + tile::b_bytes,
                                    static_cast<const H *>(p.x.z) + (x[i] - static_cast<const H *>(p.x.data)),
                                    there[i]);
            x[i] += tile::k;
            live |= (there[i] ? 1u : 0u) << i;
        }
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            mirt__cu_cp_async16(to + tile::a_bytes + b_at + i * b_step * BN * 2, right[i], i * b_step < b_left);
            right[i] += tile::k * p.b_row;
        }
        b_left -= tile::k;
        at.c += tile::k;
        if (at.c < p.k) return;
        if constexpr (BARE) {
            move(p, b);
        } else {
            mirt__cu_mm_walk_on(at, 0, p.k, b.across.taps);
            look(p, b, rows);
        }
    }
    /* What came is as its reader reads it. */
    __device__ void make(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const int *image, const float *columns,
                         char *done) {
        const unsigned mine = live >> (ahead - 1) * count;
#pragma unroll 1
        for (int part = 0; part < 8; part += 4) {
            mirt__cu_columns<4> k;
            mirt__cu_columns_get<MIRT__CU_READ_ANY, 4>(p.x, columns, p.k, c + part, k);
#pragma unroll 1
            for (int i = 0; i < count; i++) {
                if (!(mine >> i & 1)) continue;
                const int line = row + i * step, at_byte = a_at + i * step * 64 + part * 2;
                H *place = reinterpret_cast<H *>(done + at_byte);
                float value[4], other[4] = {0, 0, 0, 0};
                mirt__cu_load_n<4>(place, value);
                if (back)
                    mirt__cu_load_n<4>(reinterpret_cast<const H *>(done + tile::a_bytes + tile::b_bytes + at_byte),
                                       other);
                mirt__cu_mm_quick<4>(p.x, k, value, other,
                                     p.x.gate + image[line] * p.x.channels + (int64_t)b.group * p.k + c + part);
                mirt__cu_store_n<4>(place, value);
            }
        }
        c += tile::k;
        while (c >= p.k) c -= p.k;
    }
};
/* Stages are copied while older ones are multiplied. */
template <int BM, int BN, int MATH, bool BARE>
static inline __device__ void mirt__cu_mm_through_copies(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                         const typename mirt__cu_mm_row_by<BARE>::type *rows,
                                                         const int *image, const float *columns, char *work,
                                                         mirt__cu_mm_sums_of<BM, BN, MATH> &sums) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    typedef mirt__cu_mm_copies<BM, BN, MATH, BARE> mine;
    mine copies;
    if (b.first_step >= b.steps) return;
    copies.begin(p, b, rows);
    const int stage = tile::a_bytes + tile::b_bytes + (copies.back ? tile::a_bytes : 0),
              end = tile::stages * stage, steps = b.steps - b.first_step;
    /* The oldest stage is the one after the newest. */
#pragma unroll 1
    for (int s = -mine::ahead, newest = 0; s < steps; s++) {
        const int oldest = newest + stage == end ? 0 : newest + stage;
        if (s >= 0) {
            mirt__cu_cp_async_wait<tile::stages - 2>();
            if constexpr (!BARE) copies.make(p, b, image, columns, work + oldest);
            __syncthreads(); /* all of this stage is there, and nobody is at the one before any more */
        }
        copies.live <<= mine::count;
        if (s + mine::ahead < steps) copies.ask(p, b, rows, work + newest);
        mirt__cu_cp_async_commit();
        if (s >= 0) sums.add(work + oldest, work + oldest + tile::a_bytes);
        newest = oldest;
    }
    mirt__cu_cp_async_wait<0>();
}

/* BARE: x is read as it is stored, in 16 bits, and lines have few enough taps. END: of mirt__cu_ending. */
template <int BM, int BN, int MATH, bool BARE, int END>
static __global__ void __launch_bounds__((mirt__cu_mm_tile<BM, BN, MATH>::threads),
                                         (!BARE && BN == 128 ? 1 : mirt__cu_mm_tile<BM, BN, MATH>::resident))
    mirt__cu_multiply_kernel(mirt__cu_multiply p) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    MIRT_DYNAMIC_SHARED(char, work);
    const int bytes = mirt__cu_mm_work_bytes(tile::stages, tile::a_bytes, tile::b_bytes, tile::slab,
                                             tile::half && p.x.kind & MIRT__CU_READ_BACK);
    typedef typename mirt__cu_mm_row_by<BARE>::type row;
    row *rows = reinterpret_cast<row *>(work + bytes);
    int64_t *out = reinterpret_cast<int64_t *>(rows + BM);
    int *image = reinterpret_cast<int *>(out + BM);
    float *columns = reinterpret_cast<float *>(work + bytes + tile::info);
    const mirt__cu_mm_block b = mirt__cu_mm_block_of<BM, BN, tile::k>(p);
    if constexpr (BARE) {
        mirt__cu_mm_rows_put<BM, tile::threads>(p, b, rows, out);
    } else {
        mirt__cu_mm_rows_put<BM, tile::threads>(p, b, rows, out, image);
        mirt__cu_columns_put(p.x, (int64_t)b.group * p.k, p.k, p.k, columns, (int)threadIdx.x, tile::threads);
    }
    __syncthreads();

    mirt__cu_mm_sums_of<BM, BN, MATH> sums;
    sums.clear();
    if constexpr (tile::half) mirt__cu_mm_through_copies<BM, BN, MATH, BARE>(p, b, rows, image, columns, work, sums);
    else mirt__cu_mm_through_registers<BM, BN, MATH>(p, b, rows, image, columns, work, sums);
    mirt__cu_multiply_end<BM, BN, MATH, END>(p, b, sums, reinterpret_cast<float *>(work), out);
}

/* The sums of all parts of k in ascending order, finished: MIRT__CU_MM_SLAB pixels by 128 columns per block. */
static __global__ void __launch_bounds__(256) mirt__cu_multiply_splits_kernel(mirt__cu_multiply p) {
    MIRT_SHARED(float, shared, 8 * (3 * 128 + 1));
    mirt__cu_mm_finisher<128, 256> f;
    const int column = (int)(blockIdx.x % p.blocks_n) * 128;
    const int64_t chunk = blockIdx.x / p.blocks_n, first = chunk * MIRT__CU_MM_SLAB;
    const int splits = p.splits;
    f.begin(p, 0, column);
    for (int64_t pixel = first + f.lane; pixel < first + MIRT__CU_MM_SLAB && pixel < p.pixels && f.n > 0;
         pixel += f.lanes) {
        float value[1][4] = {{0, 0, 0, 0}};
        for (int s = 0; s < splits; s++) {
            const float *from = p.partial + (s * p.pixels + pixel) * p.e.columns + f.column;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (i < f.n) value[0][i] += from[i];
            }
        }
        const int64_t at = pixel * p.e.columns + f.column;
        const bool there = true;
        f.template finish<1, false>(p.e, &at, &there, f.n, value);
    }
    f.end(p, 0, column, chunk, shared);
}

#endif

/* >>section cuda/panel.cuh */

#ifndef MIRT__CUDA_PANEL_CUH
#define MIRT__CUDA_PANEL_CUH
/* Products of single pixels of few channels, in 16 bits. A block has all of k of its columns of b in shared memory and
   goes over several tiles of rows: while one is finished, the next one's x is already on its way. */

#define MIRT__CU_PANEL_ROWS 64 /* of a tile */

template <int BN, int MATH> struct mirt__cu_panel {
    static const int rows = MIRT__CU_PANEL_ROWS;
    typedef mirt__cu_mm_tile<rows, BN, MATH> tile;
    static const unsigned ring = tile::stages * tile::a_bytes;
};
/* Bytes of shared memory: b, the stages of x, and what tiles are finished in. */
template <int BN, int MATH> static int mirt__cu_panel_bytes(int steps) {
    typedef mirt__cu_panel<BN, MATH> panel;
    return steps * panel::tile::b_bytes + (int)panel::ring + panel::tile::slab;
}

/* A thread's share of the copies of x, step by step and tile by tile. Rows and k that do not exist are zeros. */
template <int BN, int MATH> struct mirt__cu_panel_copies {
    typedef typename mirt__cu_panel<BN, MATH>::tile tile;
    static const int rows = mirt__cu_panel<BN, MATH>::rows, apart = tile::threads / 4, count = rows / apart;
    const typename tile::H *x; /* the thread's first piece of a tile's first row that it copies */
    int at, exist, left, k; /* exist: of k, from that piece on; left: of rows; k: of the next step, in all threads */

    __device__ void begin(const mirt__cu_multiply &p, int64_t first, int rows_left) {
        const int row = (int)threadIdx.x / 4, piece = (int)threadIdx.x % 4;
        x = static_cast<const typename tile::H *>(p.x.data) + (first + row) * p.c + piece * 8;
        at = mirt__cu_mm_half_a(row, piece); /* those of rows 8 apart lie alike */
        exist = p.k - piece * 8;
        left = rows_left - row;
        k = 0;
    }
    /* Asks for the next step. */
    __device__ void ask(const mirt__cu_multiply &p, char *stage) {
#pragma unroll
        for (int i = 0; i < count; i++)
            mirt__cu_cp_async16(stage + at + i * apart * 64, x + (k + i * apart * p.c),
                                k < exist && i * apart < left);
        mirt__cu_cp_async_commit();
        k += tile::k;
        if (k < p.k) return;
        k = 0;
        x += (int64_t)rows * p.c;
        left -= rows;
    }
};

/* Asks for all of k of a block's columns of b; the copies belong to the first stage's. */
template <int BN, int MATH>
static inline __device__ void mirt__cu_panel_ask(const mirt__cu_multiply &p, int column, int depth, char *panel) {
    typedef typename mirt__cu_panel<BN, MATH>::tile tile;
    const int piece = (int)threadIdx.x % (BN / 8);
    const bool inside = column + piece * 8 < p.b_row;
    const typename tile::H *b = static_cast<const typename tile::H *>(p.b) + column + piece * 8;
    for (int k = (int)threadIdx.x / (BN / 8); k < depth; k += tile::threads / (BN / 8))
        mirt__cu_cp_async16(panel + mirt__cu_mm_half_b<BN>(k, piece), b + k * p.b_row, inside && k < p.k);
}

/* Places in y of a tile's rows, which are pixels one after another. */
struct mirt__cu_panel_places {
    typedef int type;
    int64_t first;
    int columns, exist;
    __device__ int at(int row) const { return row * columns; }
    __device__ bool there(int row, int) const { return row < exist; }
};

/* `tiles`: of a block, at most. */
template <int BN, int MATH, int END>
static __global__ void __launch_bounds__((mirt__cu_panel<BN, MATH>::tile::threads),
                                         (mirt__cu_panel<BN, MATH>::tile::resident))
    mirt__cu_panel_kernel(mirt__cu_multiply p, int tiles) {
    typedef mirt__cu_panel<BN, MATH> panel;
    typedef typename panel::tile tile;
    MIRT_DYNAMIC_SHARED(char, stages);
    float *slab = reinterpret_cast<float *>(stages + panel::ring);
    char *b = stages + panel::ring + tile::slab;
    const int column = (int)(blockIdx.x % (unsigned)p.blocks_n) * BN, chunk = (int)(blockIdx.x / (unsigned)p.blocks_n),
              steps = (p.k + tile::k - 1) / tile::k, most = tiles * panel::rows;
    int64_t first = (int64_t)chunk * most;
    int left = p.pixels - first < most ? (int)(p.pixels - first) : most;

    mirt__cu_panel_copies<BN, MATH> copies;
    copies.begin(p, first, left);
    mirt__cu_panel_ask<BN, MATH>(p, column, steps * tile::k, b);
#pragma unroll
    for (int s = 0; s < tile::stages - 1; s++) copies.ask(p, stages + s * tile::a_bytes);
    mirt__cu_mm_finisher<BN, tile::threads> finisher;
    finisher.begin(p, 0, column);

    mirt__cu_mm_sums_of<panel::rows, BN, MATH> sums;
    unsigned oldest = 0;
#pragma unroll 1
    for (; left > 0; left -= panel::rows, first += panel::rows) {
        sums.clear();
#pragma unroll 1
        for (int s = 0; s < steps; s++) {
            mirt__cu_cp_async_wait<tile::stages - 2>();
            /* All of this stage is there, and nobody is at the one before or at the slab any more. */
            __syncthreads();
            copies.ask(p, stages + (oldest + (tile::stages - 1) * tile::a_bytes) % panel::ring);
            sums.add(stages + oldest, b + s * tile::b_bytes);
            oldest = (oldest + tile::a_bytes) % panel::ring;
        }
        sums.put(slab, 0);
        __syncthreads();
        mirt__cu_panel_places places;
        places.columns = (int)p.e.columns;
        places.first = first * places.columns;
        places.exist = left;
        finisher.template slab<END, mirt__cu_mm_dtype(MATH)>(p.e, slab, panel::rows, places);
    }
    mirt__cu_cp_async_wait<0>();
    finisher.end(p, 0, column, chunk, slab);
}

/* ---- Which products, and in which blocks. */

#ifndef MIRT__CU_PANEL_DEPTH
#define MIRT__CU_PANEL_DEPTH 192 /* of k: where there is more, steps are most of a tile; tests say another number */
#endif
#ifndef MIRT__CU_PANEL_BLOCKS
#define MIRT__CU_PANEL_BLOCKS 1024
#endif
#define MIRT__CU_PANEL_TILES 8

typedef struct mirt__cu_panel_plan {
    int columns, tiles; /* of a block */
} mirt__cu_panel_plan;

typedef void (*mirt__cu_panel_code)(mirt__cu_multiply, int);
template <int BN, int MATH> static mirt__cu_panel_code mirt__cu_panel_ending(mirt__cu_ending ending) {
#define MIRT__CU_PANEL(end) mirt__cu_panel_kernel<BN, MATH, end>
    return MIRT__CU_BY_ENDING(ending, MIRT__CU_PANEL);
#undef MIRT__CU_PANEL
}
template <int BN, int MATH>
static bool mirt__cu_panel_as(mirt__cu *cu, const mirt__cu_multiply &p, const mirt__cu_panel_plan &plan, bool launch) {
    typedef typename mirt__cu_panel<BN, MATH>::tile tile;
    const int bytes = mirt__cu_panel_bytes<BN, MATH>((p.k + tile::k - 1) / tile::k), reserved = 1 << 10;
    const mirt__cu_panel_code panel_kernel =
        mirt__cu_panel_ending<BN, MATH>(mirt__cu_multiply_ending(p, (mirt__cu_math)MATH));
    if (launch)
        MIRT_LAUNCH(cu, panel_kernel, (unsigned)p.blocks_m * (unsigned)p.blocks_n, tile::threads, bytes, p, plan.tiles);
    /* All that a processor is to hold; the driver takes some of its shared memory for each. */
    return (size_t)(tile::resident * (bytes + reserved)) <= cu->shared_most + reserved;
}
/* Launches the kernel; returns whether there is room for it. */
static bool mirt__cu_panel_launch(mirt__cu *cu, const mirt__cu_multiply &p, mirt__cu_math math,
                                  const mirt__cu_panel_plan &plan, bool launch) {
    if (math == MIRT__CU_BY_FLOAT16)
        return plan.columns == 64 ? mirt__cu_panel_as<64, MIRT__CU_BY_FLOAT16>(cu, p, plan, launch)
                                  : mirt__cu_panel_as<128, MIRT__CU_BY_FLOAT16>(cu, p, plan, launch);
    return plan.columns == 64 ? mirt__cu_panel_as<64, MIRT__CU_BY_HALF>(cu, p, plan, launch)
                              : mirt__cu_panel_as<128, MIRT__CU_BY_HALF>(cu, p, plan, launch);
}

/* Sets the blocks of a product that this kernel is for; false: another one. A function of shapes, and of whether there
   is room: never of how many processors there are. */
static bool mirt__cu_panel_plan_of(mirt__cu *cu, mirt__cu_multiply *p, mirt__cu_math math, mirt__cu_panel_plan *plan) {
    const int64_t down = mirt__cu_ceil(p->pixels, MIRT__CU_PANEL_ROWS);
    if (!mirt__cu_multiply_is_bare(*p, math) || !p->pixelwise || p->k < 1 || p->k > MIRT__CU_PANEL_DEPTH) return false;
    /* Fewer columns where more would be empty, but not so few that x, which is read again for all of them, is most of
       what is read; and where there are few tiles. */
    plan->columns = p->n <= 64 || mirt__cu_mm_fourth_empty(p->n) ||
                            down * mirt__cu_ceil(p->n, 128) < MIRT__CU_MM_BLOCKS
                        ? 64
                        : 128;
    p->blocks_n = (int)mirt__cu_ceil(p->n, plan->columns);
    /* The more tiles, the less is set up; 132 processors with two to four blocks each want a thousand blocks, lest many
       idle while the last ones end. */
    const int64_t tiles = down * p->blocks_n / MIRT__CU_PANEL_BLOCKS;
    plan->tiles = (int)(tiles < 1 ? 1 : tiles > MIRT__CU_PANEL_TILES ? MIRT__CU_PANEL_TILES : tiles);
    p->blocks_m = (int)mirt__cu_ceil(down, plan->tiles);
    p->splits = 1;
    return mirt__cu_panel_launch(cu, *p, math, *plan, false);
}

#endif

/* >>section cuda/colors.cuh */

#ifndef MIRT__CUDA_COLORS_CUH
#define MIRT__CUDA_COLORS_CUH
/* Products of pixels with a small square matrix, as in preprocessing. They are one pass over memory; tiles of products
   would take many times as long. */

typedef struct mirt__cu_colors {
    mirt__cu_reader x; /* stored, or converted and affine */
    const float *b, *bias;
    int64_t b_row, b_column, pixels;
    void *y;
    mirt_dtype y_dtype, factors; /* factors: what numbers are rounded to */
    bool wide; /* four pixels of x and of y can be accessed at once */
} mirt__cu_colors;

/* Four pixels of N channels per thread. */
template <int N> static __global__ void __launch_bounds__(256) mirt__cu_colors_kernel(const mirt__cu_colors c) {
    float b[N][N], bias[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        bias[j] = c.bias ? c.bias[j] : 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++) b[k][j] = mirt__cu_round(c.b[k * c.b_row + j * c.b_column], c.factors);
    }
    MIRT__CU_PIECES(at, left, c.pixels, 4) {
        const bool wide = c.wide && left >= 4;
        float x[4 * N], y[4 * N];
#pragma unroll
        for (int i = 0; i < 4 * N; i += 4) {
            if (wide) mirt__cu_load_as<4>(c.x.data, c.x.dtype, at * N + i, x + i);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            if (!wide) x[i] = i < left * N ? mirt__cu_load(c.x.data, c.x.dtype, at * N + i) : 0.0f;
            x[i] = mirt__cu_round(c.x.affine ? fmaf(x[i], c.x.scale, c.x.offset) : x[i], c.factors);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < N; k++) sum = fmaf(x[i / N * N + k], b[k][i % N], sum);
            y[i] = c.bias ? __fadd_rn(sum, bias[i % N]) : sum;
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i += 4) {
            if (wide) mirt__cu_put<MIRT__CU_EITHER, 4>(c.y, c.y_dtype, at * N + i, y + i);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            if (!wide && i < left * N) mirt__cu_put<MIRT__CU_EITHER, 1>(c.y, c.y_dtype, at * N + i, y + i);
        }
    }
}

/* Pixels of n channels, side by side, times b; false: another kernel has to. */
static bool mirt__cu_multiply_colors(mirt__cu *cu, mirt__cu_colors c, int64_t n, int64_t k,
                                     const mirt__cu_epilogue &e) {
    if (n != k || n < 2 || n > 4 || c.x.kind != MIRT__CU_READ_PLAIN || c.pixels < 1) return false;
    if (e.activation != MIRT_LINEAR || e.mask || e.add || e.norm.mean || e.slope.mean || e.sums) return false;
    c.bias = e.bias;
    c.y = e.y;
    c.y_dtype = e.dtype;
    c.wide = mirt__cu_aligned_for(c.x.data, c.x.dtype, 4) && mirt__cu_aligned_for(c.y, c.y_dtype, 4);
    const unsigned blocks = mirt__cu_blocks(mirt__cu_ceil(c.pixels, 4), 256);
    MIRT_LAUNCH(cu, (n == 2   ? mirt__cu_colors_kernel<2>
                     : n == 3 ? mirt__cu_colors_kernel<3>
                              : mirt__cu_colors_kernel<4>),
                blocks, 256, 0, c);
    return true;
}

#endif

/* >>section cuda/conv.cu */

/* Convolutions, the gradients of their inputs and dense layers, by multiply.cuh. */

/* ---- Weights as products want them: rows of k in the order in which they come, each of a few columns more than there
   are, zeros. */

typedef struct mirt__cu_mm_pack {
    const float *from;
    void *to;
    int64_t tap, row, column, group;       /* distances in `from` of taps, k, columns and groups */
    mirt__cu_mm_axis down, across;
    int k, n, groups;
    int64_t k_pad, n_pad, tiles_k, tiles_n, rows; /* rows: of a group */
    mirt_dtype dtype, factors; /* of `to`; what numbers are rounded to */
} mirt__cu_mm_pack;

static __global__ void __launch_bounds__(256) mirt__cu_mm_pack_kernel(mirt__cu_mm_pack p) {
    MIRT_SHARED(float, tile, 32 * 33);
    int64_t at = blockIdx.x;
    const int64_t n0 = at % p.tiles_n * 32;
    at /= p.tiles_n;
    const int64_t k0 = at % p.tiles_k * 32;
    at /= p.tiles_k;
    const int taps = p.down.kernel * p.across.kernel, tap = (int)(at % taps), ky = tap / p.across.kernel,
              kx = tap - ky * p.across.kernel;
    const int64_t group = at / taps;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;
    const float *from = p.from + group * p.group + tap * p.tap;
    /* Where this tap's rows begin: those of phases before, then taps before in its phase. */
    int64_t first = tap;
    if (p.down.back) {
        const int down = ((ky * p.down.dilation - p.down.pad) % p.down.stride + p.down.stride) % p.down.stride;
        const int across = ((kx * p.across.dilation - p.across.pad) % p.across.stride + p.across.stride) %
                           p.across.stride;
        if (down >= p.down.phases || across >= p.across.phases) return; /* no target reads by it */
        first = mirt__cu_mm_taps_before(p.down, p.across, down, across, mirt__cu_mm_line_of(p.down, down).taps) +
                (int64_t)(ky / p.down.tap_step) * mirt__cu_mm_line_of(p.across, across).taps + kx / p.across.tap_step;
    }
    for (int i = y; i < 32; i += 8) {
        const int64_t k = p.row == 1 ? k0 + x : k0 + i, n = p.row == 1 ? n0 + i : n0 + x;
        tile[p.row == 1 ? x * 33 + i : i * 33 + x] = k < p.k && n < p.n ? from[k * p.row + n * p.column] : 0.0f;
    }
    __syncthreads();
    for (int i = y; i < 32; i += 8) {
        if (k0 + i >= p.k_pad || n0 + x >= p.n_pad) continue;
        const int64_t to = (group * p.rows + first * p.k_pad + k0 + i) * p.n_pad + n0 + x;
        const float value = tile[i * 33 + x];
        mirt__cu_store(p.to, p.dtype, to, p.dtype == p.factors ? value : mirt__cu_round(value, p.factors));
    }
}

/* ---- Which tile, and what room that takes. */

/* Of a convolution from `in` to `out`. */
static mirt__cu_mm_axis mirt__cu_mm_axis_of(bool back, int64_t in, int64_t out, int kernel, int stride, int dilation,
                                            int64_t pad) {
    mirt__cu_mm_axis a;
    a.back = back;
    a.source = (int)(back ? out : in);
    a.target = (int)(back ? in : out);
    a.kernel = kernel;
    a.stride = stride;
    a.dilation = dilation;
    a.pad = (int)pad;
    a.phases = !back ? 1 : a.target < stride ? a.target : stride;
    a.tap_step = 1;
    while (back && (int64_t)a.tap_step * dilation % stride != 0) a.tap_step++;
    a.line = mirt__cu_mm_line_of(a, 0);
    return a;
}
static int mirt__cu_mm_axis_taps(const mirt__cu_mm_axis *a) { /* of a phase, at most */
    int most = 0;
    for (int i = 0; i < a->phases; i++) {
        const int taps = mirt__cu_mm_line_of(*a, i).taps;
        if (taps > most) most = taps;
    }
    return most;
}

typedef struct mirt__cu_mm_job {
    mirt__cu_multiply p;
    mirt__cu_mm_pack pack; /* from, distances */
    int64_t turned;     /* as of mirt__cu_mm_spread */
    mirt__real *const *sum;
    mirt_dtype factors; /* mirt__cu_factors */
} mirt__cu_mm_job;

#define MIRT__CU_MM_PARTIAL (1 << 24) /* floats of partial sums, at most */
#define MIRT__CU_MM_COLUMNS (48 << 10) /* bytes of columns in shared memory, at most */
#define MIRT__CU_MM_BACK (12 << 10)    /* beside gradients and z of 16 bits, so that two blocks fit a processor */

typedef void (*mirt__cu_multiply_code)(mirt__cu_multiply);
/* The kernel for what is multiplied as it is stored. */
template <int BM, int BN, int MATH> static mirt__cu_multiply_code mirt__cu_multiply_bare(mirt__cu_ending ending) {
#define MIRT__CU_BARE(end) mirt__cu_multiply_kernel<BM, BN, MATH, true, end>
    if constexpr (BM == 128) return MIRT__CU_BY_ENDING(ending, MIRT__CU_BARE);
    else return MIRT__CU_BARE(MIRT__CU_END_ANY);
#undef MIRT__CU_BARE
}
template <int BM, int BN, int MATH>
static int mirt__cu_multiply_as(mirt__cu *cu, const mirt__cu_multiply &p, int columns, bool launch) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    const dim3 grid((unsigned)((int64_t)p.blocks_m * p.blocks_n * p.groups * p.down.phases * p.across.phases),
                    (unsigned)p.splits);
    const int bytes = mirt__cu_mm_work_bytes(tile::stages, tile::a_bytes, tile::b_bytes, tile::slab,
                                             tile::half && p.x.kind & MIRT__CU_READ_BACK) +
                      tile::info;
    mirt__cu_multiply_code multiply_kernel = NULL;
    if constexpr (tile::half) {
        if (mirt__cu_multiply_is_bare(p, MATH))
            multiply_kernel = mirt__cu_multiply_bare<BM, BN, MATH>(mirt__cu_multiply_ending(p, (mirt__cu_math)MATH));
    }
    if constexpr (BN > 32) {
        if (!multiply_kernel) multiply_kernel = mirt__cu_multiply_kernel<BM, BN, MATH, false, MIRT__CU_END_ANY>;
    }
    if (launch) MIRT_LAUNCH(cu, multiply_kernel, grid, tile::threads, bytes + columns, p);
    return bytes;
}
template <int MATH>
static int mirt__cu_multiply_by(mirt__cu *cu, const mirt__cu_multiply &p, int bm, int bn, int columns, bool launch) {
    if constexpr (MATH >= MIRT__CU_BY_HALF) {
        if (bn == 32) return mirt__cu_multiply_as<128, 32, MATH>(cu, p, columns, launch);
    }
    return bn == 128   ? mirt__cu_multiply_as<128, 128, MATH>(cu, p, columns, launch)
           : bm == 128 ? mirt__cu_multiply_as<128, 64, MATH>(cu, p, columns, launch)
                       : mirt__cu_multiply_as<64, 64, MATH>(cu, p, columns, launch);
}
/* Launches one of the kernels; returns what it takes of shared memory beside the columns. */
static int mirt__cu_multiply_launch(mirt__cu *cu, const mirt__cu_multiply &p, mirt__cu_math math, int bm, int bn,
                                    int columns, bool launch) {
    return math == MIRT__CU_BY_HALF      ? mirt__cu_multiply_by<MIRT__CU_BY_HALF>(cu, p, bm, bn, columns, launch)
           : math == MIRT__CU_BY_FLOAT16 ? mirt__cu_multiply_by<MIRT__CU_BY_FLOAT16>(cu, p, bm, bn, columns, launch)
           : math == MIRT__CU_BY_TF32    ? mirt__cu_multiply_by<MIRT__CU_BY_TF32>(cu, p, bm, bn, columns, launch)
                                         : mirt__cu_multiply_by<MIRT__CU_BY_FMA>(cu, p, bm, bn, columns, launch);
}
/* Whether a kernel has room for itself and so many bytes of columns. */
static bool mirt__cu_multiply_fits(mirt__cu *cu, const mirt__cu_multiply &p, mirt__cu_math math, int bm, int bn,
                                   int columns) {
    return (size_t)(mirt__cu_multiply_launch(cu, p, math, bm, bn, 0, false) + columns) <= cu->shared_most;
}

/* Products of single pixels with a small matrix, which take no tiles; false: another product. */
static bool mirt__cu_multiply_small(mirt__cu *cu, const mirt__cu_mm_job *job) {
    const mirt__cu_multiply *p = &job->p;
    mirt__cu_colors c;
    if (!p->pixelwise || p->c != p->k || job->turned) return false;
    memset(&c, 0, sizeof c);
    c.x = p->x;
    c.b = job->pack.from;
    c.b_row = job->pack.row;
    c.b_column = job->pack.column;
    c.pixels = p->pixels;
    c.factors = job->factors;
    return mirt__cu_multiply_colors(cu, c, p->n, p->k, p->e);
}

/* Sets the tile, the blocks, and the parts of k: functions of shapes, and of what there is room for. */
static void mirt__cu_multiply_tiles(mirt__cu *cu, mirt__cu_multiply *p, mirt__cu_math math, int columns, int *bm,
                                    int *bn) {
    const int64_t rows = p->images * p->down.line.count * p->across.line.count,
                  sets = (int64_t)p->groups * p->down.phases * p->across.phases;
    const int64_t tiles = mirt__cu_ceil(rows, 128) * sets;
    const bool fourth_empty = mirt__cu_mm_fourth_empty(p->n), bare = mirt__cu_multiply_is_bare(*p, math);
    *bm = 128;
    *bn = 64;
    if (p->n > 64 && !(bare && fourth_empty) && tiles * mirt__cu_ceil(p->n, 128) >= MIRT__CU_MM_BLOCKS) *bn = 128;
    else if (tiles * mirt__cu_ceil(p->n, 64) < MIRT__CU_MM_BLOCKS) *bm = 64;
    else if (bare && p->n <= 32) *bn = 32;
    if (*bn != 64 && !mirt__cu_multiply_fits(cu, *p, math, *bm, *bn, columns)) *bn = 64;
    if (*bm == 128 && !mirt__cu_multiply_fits(cu, *p, math, *bm, *bn, columns)) *bm = 64;
    p->blocks_m = (int)mirt__cu_ceil(rows, *bm);
    p->blocks_n = (int)mirt__cu_ceil(p->n, *bn);
    const int64_t blocks = (int64_t)p->blocks_m * p->blocks_n * sets,
                  depth = (int64_t)mirt__cu_mm_axis_taps(&p->down) * mirt__cu_mm_axis_taps(&p->across) * p->k;
    const int64_t steps = mirt__cu_ceil(depth, math < MIRT__CU_BY_HALF ? 16 : 32), all = p->pixels * p->e.columns;
    int64_t splits = 1;
    if (blocks < MIRT__CU_MM_BLOCKS / 2 && steps >= 16 && all <= MIRT__CU_MM_PARTIAL / 2) {
        splits = mirt__cu_ceil(MIRT__CU_MM_BLOCKS, blocks);
        if (splits > steps / 8) splits = steps / 8;
        if (splits > 32) splits = 32;
        if (splits > MIRT__CU_MM_PARTIAL / all) splits = MIRT__CU_MM_PARTIAL / all;
    }
    p->split_steps = (int)mirt__cu_ceil(steps, splits);
    p->splits = splits > 1 ? (int)mirt__cu_ceil(steps, p->split_steps) : 1;
}

static void mirt__cu_multiply_run(mirt__cu *cu, mirt__cu_mm_job *job) {
    mirt__cu_multiply *p = &job->p;
    mirt__cu_mm_pack *w = &job->pack;
    const mirt__cu_math math = mirt__cu_math_of(cu, job->factors);
    const bool half = job->factors != MIRT_FLOAT32,
               exact = math < MIRT__CU_BY_HALF; /* rounded numbers are multiplied as floats */
    const mirt_dtype dtype = exact ? MIRT_FLOAT32 : job->factors;
    const int vector = exact ? 4 : 8, taps = p->down.kernel * p->across.kernel, k = p->k, size = exact ? 4 : 2;
    const bool round = half && exact, whole = !(p->x.kind & MIRT__CU_READ_GATE) ||
                                              p->x.gate_pixels == (int64_t)p->down.source * p->across.source;
    int columns = mirt__cu_columns_floats(p->x, k) * 4;
    const int most = !exact && p->x.kind & MIRT__CU_READ_BACK ? MIRT__CU_MM_BACK : MIRT__CU_MM_COLUMNS;
    const bool narrow = columns > most || !mirt__cu_multiply_fits(cu, *p, math, 64, 64, columns);
    const bool spread = narrow || k % vector != 0 || p->x.width < vector || p->x.dtype != dtype || !whole || round ||
                        job->turned || !mirt__cu_simple(p->x.norm.activation);
    mirt__cu_mm_spread s;
    mirt__cu_mm_rooms r;
    memset(&r, 0, sizeof r);
    memset(&s, 0, sizeof s);
    if (p->groups > 1 && p->n % 4 != 0) p->e.width = 1;
    if (spread) {
        s = mirt__cu_mm_spread_of(p->x, p->images * p->down.source * p->across.source, p->c, p->groups, k, dtype,
                               job->factors, job->turned);
        p->k = s.k_pad;
        p->c = p->groups * s.k_pad;
        r.x = mirt__cu_mm_rooms_take(&r, mirt__cu_mm_spread_bytes(s));
        memset(&p->x, 0, sizeof p->x);
        p->x.dtype = dtype;
        p->x.width = 8;
        columns = 0;
    }

    mirt__cu_panel_plan panel;
    int bm = 0, bn = 0;
    const bool by_panel = mirt__cu_panel_plan_of(cu, p, math, &panel);
    if (!by_panel) mirt__cu_multiply_tiles(cu, p, math, columns, &bm, &bn);

    /* Weights are used where they are if they lie as they should. */
    const bool packed = half || p->k != k || p->down.back || w->column != 1 || w->row % 4 != 0 || p->n % 4 != 0 ||
                        (taps > 1 && w->tap != w->row * k) || !mirt__cu_aligned(w->from, 16);
    w->k = k;
    w->k_pad = p->k;
    w->n = p->n;
    w->groups = p->groups;
    w->n_pad = mirt__cu_round_up(p->n, vector);
    w->rows = (int64_t)taps * p->k;
    w->down = p->down;
    w->across = p->across;
    w->tiles_k = mirt__cu_ceil(p->k, 32);
    w->tiles_n = mirt__cu_ceil(w->n_pad, 32);
    w->dtype = dtype;
    w->factors = job->factors;
    if (packed) r.b = mirt__cu_mm_rooms_take(&r, w->groups * w->rows * w->n_pad * size);
    if (p->splits > 1) r.partial = mirt__cu_mm_rooms_take(&r, p->splits * p->pixels * p->e.columns * 4);
    const int64_t chunks = p->splits > 1 ? mirt__cu_ceil(p->pixels, MIRT__CU_MM_SLAB)
                                         : (int64_t)p->blocks_m * p->down.phases * p->across.phases;
    r.chunks = mirt__cu_mm_rooms_take(&r, (int64_t)mirt__cu_sums_bytes(p->e.sums, p->e.columns, chunks));
    char *room = r.end > 0 ? (char *)mirt__cu_room(cu, (size_t)r.end) : NULL;
    if (r.end > 0 && !room) return;

    if (spread) {
        mirt__cu_mm_spread_run(cu, s, room + r.x);
        p->x.data = room + r.x;
    }
    if (packed && w->tiles_k > 0) {
        w->to = room + r.b;
        const mirt__cu_mm_pack pack = *w;
        const dim3 block(32, 8);
        MIRT_LAUNCH(cu, mirt__cu_mm_pack_kernel, (unsigned)(pack.tiles_n * pack.tiles_k * taps * pack.groups), block, 0,
                    pack);
    }
    p->b = packed ? w->to : w->from;
    p->b_row = packed ? w->n_pad : w->row;
    p->b_group = packed ? w->rows * w->n_pad : w->group;
    if (p->splits > 1) p->partial = (float *)(room + r.partial);
    p->chunks = mirt__cu_chunks_of(room ? room + r.chunks : NULL, p->e.sums, p->e.columns, chunks);

    if (by_panel) mirt__cu_panel_launch(cu, *p, math, panel, true);
    else mirt__cu_multiply_launch(cu, *p, math, bm, bn, columns, true);
    if (p->splits > 1) {
        mirt__cu_multiply together = *p;
        together.n = (int)p->e.columns;
        together.groups = 1;
        together.blocks_n = (int)mirt__cu_ceil(p->e.columns, 128);
        MIRT_LAUNCH(cu, mirt__cu_multiply_splits_kernel, (unsigned)(chunks * together.blocks_n), 256, 0, together);
    }
    mirt__cu_sums_finish(cu, &p->e, &p->chunks, job->sum, p->images, p->pixels);
}

/* ---- The table's functions. */

/* y = x by the kernel or, back, by its transpose. */
static void mirt__cu_conv_by(mirt__cu *cu, const mirt__conv *s, bool back, mirt_dtype factors, const mirt__reader *x,
                             const mirt__real *kernel, void *y, mirt_dtype dtype, const mirt__epilogue *epilogue) {
    const int64_t ci = s->ci / s->groups, co = s->co / s->groups, columns = back ? s->ci : s->co;
    mirt__cu_mm_job job;
    mirt__cu_multiply *p = &job.p;
    memset(&job, 0, sizeof job);
    p->e = mirt__cu_epilogue_of(epilogue, y, dtype, columns);
    if (s->rows < 1 || (back ? s->h : s->oh) < 1 || (back ? s->w : s->ow) < 1 || columns < 1) {
        const mirt__cu_chunks none = mirt__cu_chunks_of(NULL, p->e.sums, columns, 0);
        mirt__cu_sums_finish(cu, &p->e, &none, epilogue->sum, 0, 0);
        return;
    }
    p->down = mirt__cu_mm_axis_of(back, s->h, s->oh, s->kh, s->stride_h, s->dilation_h, s->pad_top);
    p->across = mirt__cu_mm_axis_of(back, s->w, s->ow, s->kw, s->stride_w, s->dilation_w, s->pad_left);
    p->images = s->rows;
    p->pixels = s->rows * p->down.target * p->across.target;
    p->pixelwise = mirt__cu_pixelwise(s) && s->groups == 1;
    p->groups = s->groups;
    p->c = (int)(back ? s->co : s->ci);
    p->k = (int)(back ? co : ci);
    p->n = (int)(back ? ci : co);
    p->x = mirt__cu_reader_of(x, p->c);
    job.pack.from = kernel;
    job.pack.tap = ci * s->co;
    job.pack.row = back ? 1 : s->co;
    job.pack.column = back ? s->co : 1;
    job.pack.group = co;
    job.sum = epilogue->sum;
    job.factors = factors;
    /* What is small first: cuBLAS, too, would take tiles for it. */
    if (mirt__cu_multiply_small(cu, &job) ||
        mirt__cu_blas_conv(cu, s, back, factors, x, kernel, y, dtype, epilogue))
        return;
    mirt__cu_multiply_run(cu, &job);
}

static void mirt__cu_conv_forward(const mirt__conv_forward *f, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (mirt__cu_depthwise_forward(f, cu)) return;
    mirt__cu_conv_by(cu, &f->s, false, mirt__cu_factors(f->half, where), &f->x, f->kernel, f->y, f->y_dtype,
                     &f->epilogue);
}

static void mirt__cu_conv_input_grad(const mirt__conv_input_grad *g, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (mirt__cu_depthwise_input_grad(g, cu)) return;
    if (g->x) { /* first, as dx may lie where x or dy does */
        mirt__conv_weight_grad w;
        memset(&w, 0, sizeof w);
        w.s = g->s;
        w.x = *g->x;
        w.dy = g->dy;
        w.dkernel = g->dkernel;
        w.db = g->db;
        w.half = g->half;
        mirt__cu_conv_weight_grad(&w, where);
    }
    mirt__cu_conv_by(cu, &g->s, true, mirt__cu_factors(g->half, where), &g->dy, g->kernel, g->dx, g->dx_dtype,
                     &g->epilogue);
}

/* The sums over p of b[p, j], 32 columns per block, in double. */
static __global__ void __launch_bounds__(512)
    mirt__cu_column_sum_kernel(const float *b, int64_t k, int64_t n, int64_t row, int64_t column, float *out) {
    MIRT_SHARED(double, part, 16 * 32);
    const int x = (int)threadIdx.x, lane = (int)threadIdx.y;
    const int64_t j = (int64_t)blockIdx.x * 32 + x;
    double sum = 0;
    if (j < n) {
#pragma unroll 4
        for (int64_t i = lane; i < k; i += 16) sum += (double)b[i * row + j * column];
    }
    part[lane * 32 + x] = sum;
    __syncthreads();
    if (lane > 0 || j >= n) return;
    for (int i = 1; i < 16; i++) sum += part[i * 32 + x];
    out[j] = (float)sum;
}

static void mirt__cu_gemm(const mirt__gemm *g, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_mm_job job;
    mirt__cu_multiply *p = &job.p;
    if (g->n < 1 || mirt__cu_blas_gemm(g, cu)) return;
    if (g->column_sum) {
        MIRT_LAUNCH(cu, mirt__cu_column_sum_kernel, (unsigned)mirt__cu_ceil(g->n, 32), dim3(32, 16), 0, g->b, g->k,
                    g->n, g->b_row, g->b_col, g->column_sum);
    }
    if (g->m < 1) return;
    memset(&job, 0, sizeof job);
    p->down = p->across = mirt__cu_mm_axis_of(false, 1, 1, 1, 1, 1, 0);
    p->images = p->pixels = g->m;
    p->pixelwise = true;
    p->groups = 1;
    p->c = (int)g->a_row;
    p->k = (int)g->k;
    p->n = (int)g->n;
    if (g->a_col != 1) job.turned = g->a_col;
    p->x = mirt__cu_reader_of(&g->a, g->a_col == 1 ? g->a_row : g->a_col);
    p->e = mirt__cu_epilogue_of(&g->epilogue, g->c, MIRT_FLOAT32, g->n);
    job.sum = g->epilogue.sum;
    job.pack.from = g->b;
    job.pack.row = g->b_row;
    job.pack.column = g->b_col;
    if (!mirt__cu_multiply_small(cu, &job)) mirt__cu_multiply_run(cu, &job);
}

/* >>section cuda/table.cu */

/* The table of kernels. */

static const mirt__kernels mirt__cu_kernels = {
    "cuda", true, true, true, true,
#define MIRT__KERNEL_ENTRY(name, arguments, fast, use) mirt__cu_##name,
    MIRT__KERNEL_LIST(MIRT__KERNEL_ENTRY)
#undef MIRT__KERNEL_ENTRY
    mirt__cu_augment_all,
    mirt__cu_fill,
    mirt__cu_constant,
    mirt__cu_accumulate,
    mirt__cu_update
};

/* >>section cuda/backend.cu */

/* The device table of GPUs, which the library finds by its name. */

static const mirt__kernels *mirt__cu_kernels_get(void) { return &mirt__cu_kernels; }

/* Devices that reach each other's memory add up their shares themselves. */
static void mirt__cu_reduce(mirt__handle *cu, const mirt__reduction *r) {
    const int64_t begin = r->own_begin, count = r->own_end - r->own_begin;
    mirt__where where;
#if MIRT__CU_NCCL
    if (cu->group && cu->group->comm[cu->rank]) return mirt__cu_exchange(cu, r);
#endif
    memset(&where, 0, sizeof where);
    where.handle = cu;
    if (count <= 0 || r->parts < 1) return;
    for (int i = 0; i + 1 < r->parts; i++)
        mirt__cu_accumulate(r->part[r->add[i].into] + begin, r->part[r->add[i].from] + begin, count, &where);
    for (int d = 0; d < r->devices; d++) {
        if (r->sum[d] != r->part[0])
            mirt__cu_copy(cu, r->sum[d] + begin, r->part[0] + begin, (size_t)count * sizeof *r->sum[d]);
    }
}

extern "C" const mirt__backend *mirt__cuda_backend(void) {
    static const mirt__backend backend = {
        MIRT__BACKEND_VERSION, "gpu",           mirt__cu_kernels_get, mirt__cu_devices,   mirt__cu_info,
        mirt__cu_one_thread,   mirt__cu_open,   mirt__cu_close,       mirt__cu_join,      mirt__cu_alloc,
        mirt__cu_release,      mirt__cu_free_bytes, mirt__cu_stage,   mirt__cu_behind,    mirt__cu_fetch,
        mirt__cu_copy,         mirt__cu_clear,  mirt__cu_wait,        mirt__cu_mark,      mirt__cu_wait_mark,
        mirt__cu_measure,      mirt__cu_set_room,
        mirt__cu_begin,        mirt__cu_end,    mirt__cu_forget,      mirt__cu_signal,    mirt__cu_await,
        mirt__cu_reduce,       mirt__cu_exchanged, mirt__cu_gather,   mirt__cu_aggregate, mirt__cu_squares,
        mirt__cu_seconds,      mirt__cu_gauge};
    return &backend;
}

/*
mirrortrain is available under two licences; choose the one that you prefer.

Alternative A - MIT License

Copyright (c) 2026 the mirrortrain authors

Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in
the Software without restriction, including without limitation the rights to
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies
of the Software, and to permit persons to whom the Software is furnished to do
so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.

Alternative B - Public Domain (www.unlicense.org)

This is free and unencumbered software released into the public domain.

Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
software, either in source code form or as a compiled binary, for any purpose,
commercial or non-commercial, and by any means.

In jurisdictions that recognize copyright laws, the author or authors of this
software dedicate any and all copyright interest in the software to the public
domain. We make this dedication for the benefit of the public at large and to
the detriment of our heirs and successors. We intend this dedication to be an
overt act of relinquishment in perpetuity of all present and future rights to
this software under copyright law.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
