#ifndef MIRT__PROCESSOR_H
#define MIRT__PROCESSOR_H
/* The instructions of processors that kernels are written for. */

#include "base.h"

#if defined(__x86_64__)
/* X(name, which word of CPUID's answers, bit, state that the system has to save): Intel's manual, volume 2A. */
#define MIRT__INSTRUCTION_LIST(X) \
    X(avx2, 1, 5, 0x6) X(fma, 0, 12, 0x6) X(avx512f, 1, 16, 0xe6) X(avx512bw, 1, 30, 0xe6) X(avx512vl, 1, 31, 0xe6) \
    X(avx512dq, 1, 17, 0xe6) X(avx512bf16, 2, 5, 0xe6)
#define MIRT__INSTRUCTION_NUMBER(name, word, bit, state) MIRT__INSTRUCTION_##name,
enum { MIRT__INSTRUCTION_LIST(MIRT__INSTRUCTION_NUMBER) MIRT__INSTRUCTION_COUNT };
#undef MIRT__INSTRUCTION_NUMBER

/* "avx2" and so on. */
MIRT__LIB const char *mirt__instruction_name(int instruction);
/* A bit for each that the processor has and whose registers the system saves. */
MIRT__LIB unsigned mirt__instructions_there(void);
#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE)
/* Whether its vectors multiply bfloat16 at half the rate of float32: Intel's, since AMX does that (Sapphire Rapids). */
MIRT__LIB bool mirt__bf16_is_slow(void);
#endif
#elif defined(__aarch64__)
/* Of compilers that know FEAT_BF16: how a function's attribute `target` names it. */
#if defined(__clang__) && __clang_major__ >= 13
#define MIRT__NEON_BF16 "bf16"
#elif !defined(__clang__) && __GNUC__ >= 10
#define MIRT__NEON_BF16 "+bf16"
#endif
/* Whether the processor has it, and the compiler. */
MIRT__LIB bool mirt__neon_bf16_there(void);
#endif

#endif
