#define MIRRORTRAIN_BACKEND
#include "mirrortrain.h"

/* >>section cuda/cuda.cuh */

#ifndef MIRT__CUDA_CUH
#define MIRT__CUDA_CUH
/* What all GPU code stands on. Kernels are C++17 that also compiles for a simulated device (MIRT_SIM): launches by MIRT_LAUNCH,
   shared memory by MIRT_SHARED, instructions beyond C++ in ptx.cuh alone. */

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <string.h>

#ifdef MIRT_SIM
#define MIRT_SHARED(type, name, count) MIRT_SIM_SHARED(type, name, count)
#define MIRT_DYNAMIC_SHARED(type, name) MIRT_SIM_DYNAMIC_SHARED(type, name)
#else
#define MIRT_SHARED(type, name, count) __shared__ type name[count]
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

/* An opened device. */
typedef struct mirt__remote {
    const mirt__host *host;
    int index, major, minor, processors;
    size_t shared_most; /* bytes of shared memory that a block may ask for */
    cudaStream_t stream, copies, exchanges;
    cudaEvent_t signal[8];
    mirt__cu_mode mode;
    bool tf32;
    mirt_status status; /* the first failure since the last wait, */
    char error[400];    /* and its sentence */
    char *room;
    size_t room_bytes, room_most;
    /* numbers that change from step to step, at the same places each time */
    char *numbers, *numbers_host;
    size_t numbers_used;
    cublasHandle_t blas;
    void *blas_room;
    mirt__cu_staging *staging;
    mirt__cu_graphs *graphs;
    mirt__cu_group *group;
    int rank;
} mirt__cu;

/* Whether kernels are to be launched now. */
static inline bool mirt__cu_launches(const mirt__cu *cu) {
    return cu->status == MIRT_OK && (cu->mode == MIRT__CU_RUN || cu->mode == MIRT__CU_CAPTURE);
}
/* context.cu: notes the first failure; `what` is what was tried. */
static void mirt__cu_failed(mirt__cu *cu, cudaError_t error, const char *what);
static void mirt__cu_fail(mirt__cu *cu, mirt_status status, const char *format, ...);
/* context.cu: temporary memory of this call, aligned to 256 bytes; one request a kernel function, of all it needs. NULL while measuring or after
   a failure: go on, nothing is launched then. */
static void *mirt__cu_room(mirt__cu *cu, size_t bytes);
/* context.cu: where the device finds the `size` <= 256 bytes of `value`, which may change each time the same work comes back. */
static const void *mirt__cu_number(mirt__cu *cu, const void *value, size_t size);
#define MIRT__CU_NUMBERS (1 << 18) /* bytes of a step's */

static inline mirt__cu *mirt__cu_of(const mirt__where *where) { return where->remote; }
static inline int64_t mirt__cu_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Blocks of a kernel that goes over `count` items in steps of the whole grid: enough for the machine, and a function of count alone. */
static inline unsigned mirt__cu_blocks(int64_t count, int threads) {
    const int64_t blocks = mirt__cu_ceil(count, threads);
    return (unsigned)(blocks < 1 ? 1 : blocks > 4096 ? 4096 : blocks);
}

#ifdef MIRT_SIM
#define MIRT__CU_START(cu, at, kernel, grid, block, shared, ...) \
    mirt_sim::launch((grid), (block), (size_t)(shared), (at), #kernel, [=] { kernel(__VA_ARGS__); })
#else
#define MIRT__CU_START(cu, at, kernel, grid, block, shared, ...) \
    do { \
        if ((size_t)(shared) > 48 * 1024) (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(shared)); \
        kernel<<<(grid), (block), (size_t)(shared), (at)>>>(__VA_ARGS__); \
    } while (0)
#endif
/* kernel<<<grid, block, shared bytes>>>(...) on a stream of the device; template kernels stand in parentheses. */
#define MIRT_LAUNCH_ON(cu, at, kernel, grid, block, shared, ...) \
    do { \
        if (!mirt__cu_launches(cu)) break; \
        MIRT__CU_START(cu, at, kernel, grid, block, shared, __VA_ARGS__); \
        const cudaError_t mirt__cu_launched = cudaGetLastError(); \
        if (mirt__cu_launched != cudaSuccess) mirt__cu_failed(cu, mirt__cu_launched, #kernel); \
    } while (0)
#define MIRT_LAUNCH(cu, kernel, grid, block, shared, ...) MIRT_LAUNCH_ON(cu, (cu)->stream, kernel, grid, block, shared, __VA_ARGS__)

#endif

/* >>section cuda/table.cu */

/* The table of kernels. */

static const mirt__kernels mirt__cu_kernels = {
    "cuda", true, true,
    NULL, /* gemm */
    NULL, /* conv_forward */
    NULL, /* conv_input_grad */
    NULL, /* conv_weight_grad */
    NULL, /* conv_pool */
    NULL, /* conv_pool_weight_grad */
    NULL, /* max_pool */
    NULL, /* max_pool_grad */
    NULL, /* average_pool */
    NULL, /* average_pool_grad */
    NULL, /* unary */
    NULL, /* binary */
    NULL, /* logic */
    NULL, /* reduce */
    NULL, /* reduce_max_grad */
    NULL, /* scan */
    NULL, /* move */
    NULL, /* gather */
    NULL, /* gather_grad */
    NULL, /* softmax */
    NULL, /* softmax_grad */
    NULL, /* loss */
    NULL, /* loss_grad */
    NULL, /* accuracy */
    NULL, /* dropout */
    NULL, /* cast */
    NULL, /* one_hot */
    NULL, /* resize */
    NULL, /* resize_grad */
    NULL, /* norm_stats */
    NULL, /* normalize */
    NULL, /* norm_grad_sums */
    NULL, /* norm_grad_input */
    NULL, /* augment */
    NULL, /* fill */
    NULL, /* constant */
    NULL, /* accumulate */
    NULL, /* sgd */
    NULL, /* adam */
    NULL  /* rmsprop */
};

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
