#ifndef MIRT__TYPES_H
#define MIRT__TYPES_H
/* Types of numbers and memory for the kernels of all backends. */

#include "../mirrortrain_api.h"
#include "optimize.h"

/* The number type of MIRT_FLOAT32 tensors. Only gradient tests make it double, and then only the reference kernels
   exist. */
#ifdef MIRT__REAL_DOUBLE
typedef double mirt__real;
#else
typedef float mirt__real;
#endif

/* Threads that work together (base/team.h). */
typedef struct mirt__team mirt__team;
/* A set of cores (base/cpus.h). */
typedef struct mirt__cpus mirt__cpus;

/* Functions that CPUs and GPUs both run. */
#ifdef __CUDACC__
#define MIRT__BOTH static inline __host__ __device__
#else
#define MIRT__BOTH static inline
#endif

#ifdef __cplusplus
#define MIRT__STATIC_ASSERT(condition, message) static_assert(condition, message)
#else
#define MIRT__STATIC_ASSERT(condition, message) _Static_assert(condition, message)
#endif

#define MIRT__ALIGN 64
#define MIRT__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Storage formats of the mixed policies, mixed_float16 only on GPUs; these are not dtypes for users. */
#define MIRT__BFLOAT16 MIRT__DTYPE_COUNT
#define MIRT__FLOAT16 (MIRT__DTYPE_COUNT + 1)

/* Philox4x32-10 (Salmon et al. 2011): counter -> four words. */
MIRT__BOTH void mirt__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
