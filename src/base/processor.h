#ifndef MIRT__PROCESSOR_H
#define MIRT__PROCESSOR_H
/* The instructions of x86 processors that kernels are written for. */

#include "base.h"

#if defined(__x86_64__)
/* X(name, leaf of CPUID, its part, register, bit, state that the system has to save): Intel's manual, volume 2A. */
#define MIRT__INSTRUCTION_LIST(X) \
    X(avx2, 7, 0, 1, 5, 0x6) X(fma, 1, 0, 2, 12, 0x6) X(avx512f, 7, 0, 1, 16, 0xe6) X(avx512bw, 7, 0, 1, 30, 0xe6) \
    X(avx512vl, 7, 0, 1, 31, 0xe6) X(avx512dq, 7, 0, 1, 17, 0xe6) X(avx512bf16, 7, 1, 0, 5, 0xe6)
#define MIRT__INSTRUCTION_NUMBER(name, leaf, part, which, bit, state) MIRT__INSTRUCTION_##name,
enum { MIRT__INSTRUCTION_LIST(MIRT__INSTRUCTION_NUMBER) MIRT__INSTRUCTION_COUNT };
#undef MIRT__INSTRUCTION_NUMBER

/* "avx2" and so on. */
MIRT__LIB const char *mirt__instruction_name(int instruction);
/* Whether the processor has it and the system saves its registers. */
MIRT__LIB bool mirt__instruction_there(int instruction);
#endif

#endif
