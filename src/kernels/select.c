/* Selects the kernels that run on this machine. */

#include "fast.h"
#include "reference.h"

#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__x86_64__)
#define MIRT__TABLES_X86
#endif

static const mirt__kernels *const mirt__select_tables[] = {
#ifdef MIRT__TABLES_X86
    &mirt__kernels_avx512bf16, &mirt__kernels_avx512, &mirt__kernels_avx2,
#endif
#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__aarch64__)
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
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    first = avx512 && __builtin_cpu_supports("avx512bf16") ? 0 : avx512 ? 1 : avx2 ? 2 : 3;
#endif
    *count = MIRT__COUNT(mirt__select_tables) - first;
    return mirt__select_tables + first;
}

MIRT__LIB const mirt__kernels *mirt__kernels_best(void) {
    int count;
    const mirt__kernels *const *tables = mirt__kernel_tables(&count);
    const char *name = getenv("MIRT_CPU");
    char names[128] = "";
    if (!name || !*name) return tables[0];
    for (int i = 0; i < count; i++) {
        if (strcmp(name, tables[i]->name) == 0) return tables[i];
        mirt__line_add(names, sizeof names, "%s%s", !i ? "" : i + 1 < count ? ", " : " and ", tables[i]->name);
    }
    return mirt__fail(MIRT_E_DEVICE, "the environment variable MIRT_CPU is \"%s\"; this machine has %s kernels", name,
                      names),
           (const mirt__kernels *)NULL;
}

#undef MIRT__TABLES_X86
