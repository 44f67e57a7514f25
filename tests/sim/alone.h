#ifndef ALONE_H
#define ALONE_H
/* The device of a test that includes kernels alone, with what of context.cu these call. After src/cuda/cuda.cuh. */
#include <cstdio>
#include <cstdlib>

static mirt__cu cu;
static void mirt__cu_failed(mirt__cu *device, cudaError_t error, const char *what) {
    (void)device;
    printf("Bail out! %s: %s\n", what, cudaGetErrorName(error));
    exit(1);
}
static bool mirt__cu_try(mirt__cu *device, cudaError_t error, const char *what) {
    if (error != cudaSuccess) mirt__cu_failed(device, error, what);
    return true;
}

#endif
