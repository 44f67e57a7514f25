#ifndef MIRT__CUDA_PTX_CUH
#define MIRT__CUDA_PTX_CUH
/* Tensor-core and copy instructions in PTX. They need compute capability 8.0, those for products of float16 only 7.5;
   the host launches no kernel that uses them on older devices. The simulator has its own. */

#include "cuda.cuh"

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
