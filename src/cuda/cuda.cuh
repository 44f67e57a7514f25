#ifndef MIRT__CUDA_CUH
#define MIRT__CUDA_CUH
/* What all GPU code stands on. Kernels are C++17 that also compiles for a simulated device (MIRT_SIM): launches by
   MIRT_LAUNCH, shared memory by MIRT_SHARED, instructions beyond C++ in ptx.cuh alone. */

#include "../device/device.h"

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
