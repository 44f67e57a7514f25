/* Selects the kernels that run on this machine. */

#include "../base/processor.h"
#include "fast.h"
#include "reference.h"

#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__x86_64__)
#define MIRT__TABLES_X86
#elif !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__aarch64__)
#define MIRT__TABLES_ARM64
#endif

static const mirt__kernels *const mirt__select_tables[] = {
#ifdef MIRT__TABLES_X86
    &mirt__kernels_avx512bf16, &mirt__kernels_avx512, &mirt__kernels_avx2,
#endif
#ifdef MIRT__TABLES_ARM64
#ifdef MIRT__NEON_BF16
    &mirt__kernels_neonbf16,
#endif
    &mirt__kernels_neon,
#endif
#ifndef MIRT__REAL_DOUBLE
    &mirt__kernels_plain,
#endif
#ifndef MIRRORTRAIN_NO_TRAIN
    &mirt__kernels_reference
#endif
};

/* A machine that runs one table also runs all tables after it. */
MIRT__LIB const mirt__kernels *const *mirt__kernel_tables(int *count) {
    int first = 0;
#ifdef MIRT__TABLES_X86
    const unsigned there = mirt__instructions_there(), avx2 = (2u << MIRT__INSTRUCTION_fma) - 1,
                   avx512 = (2u << MIRT__INSTRUCTION_avx512dq) - 1, all = (2u << MIRT__INSTRUCTION_avx512bf16) - 1;
    first = (there & all) == all ? 0 : (there & avx512) == avx512 ? 1 : (there & avx2) == avx2 ? 2 : 3;
#elif defined(MIRT__TABLES_ARM64) && defined(MIRT__NEON_BF16)
    first = mirt__neon_bf16_there() ? 0 : 1;
#endif
    *count = MIRT__COUNT(mirt__select_tables) - first;
    return mirt__select_tables + first;
}

MIRT__LIB const mirt__kernels *mirt__kernels_best(void) {
    int count;
    const mirt__kernels *const *tables = mirt__kernel_tables(&count), *best = tables[0];
    const char *name = getenv("MIRT_CPU");
    char names[128] = "";
#ifdef MIRT__TABLES_X86
    /* Emulated products take less time than slow ones, and the other kernels are the same. */
    if (tables[0]->half && mirt__bf16_is_slow()) best = tables[1];
#endif
    if (!name || !*name) return best;
    for (int i = 0; i < count; i++) {
        if (strcmp(name, tables[i]->name) == 0) return tables[i];
        mirt__line_add(names, sizeof names, "%s%s", !i ? "" : i + 1 < count ? ", " : " and ", tables[i]->name);
    }
    return mirt__fail(MIRT_E_DEVICE, "the environment variable MIRT_CPU is \"%s\"; this machine has %s kernels", name,
                      names),
           (const mirt__kernels *)NULL;
}

#undef MIRT__TABLES_X86
#undef MIRT__TABLES_ARM64
