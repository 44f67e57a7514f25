#ifndef MIRT__OPTIMIZE_H
#define MIRT__OPTIMIZE_H
/* How compilers optimize kernels, code that waits for kernels, and code that runs once. */

/* Clang has no pragma for it. No code may contract a * b + c: the numerical law forbids it in kernels, and initial
   weights must not depend on flags. */
#if defined(__clang__)
#define MIRT__KERNELS_BEGIN \
    _Pragma("STDC FP_CONTRACT OFF") _Pragma("clang diagnostic push") \
    _Pragma("clang diagnostic ignored \"-Wpass-failed\"") /* a loop marked independent may call the math library */
#define MIRT__KERNELS_END _Pragma("clang diagnostic pop") _Pragma("STDC FP_CONTRACT DEFAULT")
#define MIRT__DRIVERS_BEGIN MIRT__KERNELS_BEGIN
#elif defined(MIRRORTRAIN_DEBUG)
#ifdef __OPTIMIZE__
#define MIRT__KERNELS_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=off\")")
#else
#define MIRT__KERNELS_BEGIN _Pragma("GCC push_options")
#endif
#define MIRT__KERNELS_END _Pragma("GCC pop_options")
#define MIRT__DRIVERS_BEGIN MIRT__KERNELS_BEGIN
#else
/* Optimized even if the including program is not. gcc -O2 alone vectorizes only loops of known length; the cost model
   allows all. */
#define MIRT__KERNELS_BEGIN \
    _Pragma("GCC push_options") \
    _Pragma("GCC optimize(\"O1,expensive-optimizations,tree-loop-vectorize,vect-cost-model=dynamic,fp-contract=off\")")
#define MIRT__KERNELS_END _Pragma("GCC pop_options")
/* Drivers of kernels: more only takes longer to compile. */
#define MIRT__DRIVERS_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"Og,fp-contract=off\")")
#endif

/* gcc compiles code that waits for kernels in half the time this way, at the size of O1, and code that runs once
   (recording models, reading and writing files) in half of that, but for predict-only programs, which are wanted small.
   Without optimization nothing changes. */
#if defined(__clang__) || !defined(__OPTIMIZE__)
#define MIRT__COLD_BEGIN
#define MIRT__ONCE_BEGIN
#define MIRT__COLD_END
#else
#define MIRT__COLD_BEGIN MIRT__DRIVERS_BEGIN
#if defined(MIRRORTRAIN_DEBUG) || defined(MIRRORTRAIN_NO_TRAIN)
#define MIRT__ONCE_BEGIN MIRT__COLD_BEGIN
#else
#define MIRT__ONCE_BEGIN \
    _Pragma("GCC push_options") _Pragma("GCC optimize(\"O0,expensive-optimizations,fp-contract=off\")")
#endif
#define MIRT__COLD_END MIRT__KERNELS_END
#endif

#endif
