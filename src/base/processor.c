/* Asks processors for their instructions. */

#include "processor.h"

#if defined(__x86_64__)

#include <cpuid.h>

static const struct {
    char name[11];
    unsigned char word, bit, state;
} mirt__instructions[] = {
#define MIRT__INSTRUCTION_ROW(name, word, bit, state) {#name, word, bit, state},
    MIRT__INSTRUCTION_LIST(MIRT__INSTRUCTION_ROW)
#undef MIRT__INSTRUCTION_ROW
};

MIRT__LIB const char *mirt__instruction_name(int instruction) { return mirt__instructions[instruction].name; }

MIRT__LIB unsigned mirt__instructions_there(void) {
    unsigned a, b, c, d, word[3] = {0, 0, 0}, saved = 0, there = 0; /* ecx of leaf 1, ebx of 7, eax of 7's part 1 */
    if (__get_cpuid(1, &a, &b, &word[0], &d) && word[0] >> 27 & 1) /* the system says what it saves */
        __asm__ __volatile__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if (__get_cpuid_count(7, 0, &a, &word[1], &c, &d) && a >= 1) __cpuid_count(7, 1, word[2], b, c, d);
    for (int i = 0; i < MIRT__INSTRUCTION_COUNT; i++) {
        const unsigned state = mirt__instructions[i].state, has = word[mirt__instructions[i].word];
        if ((saved & state) == state) there |= (has >> mirt__instructions[i].bit & 1) << i;
    }
    return there;
}

#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE)
MIRT__LIB bool mirt__bf16_is_slow(void) {
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1; /* AMX-BF16 */
}
#endif

#elif defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

MIRT__LIB bool mirt__neon_bf16_there(void) {
#if !defined(MIRT__NEON_BF16)
    return false;
#elif defined(__linux__)
    return getauxval(26) >> 14 & 1; /* AT_HWCAP2, HWCAP2_BF16 */
#elif defined(__APPLE__)
    int there = 0;
    size_t size = sizeof there;
    return sysctlbyname("hw.optional.arm.FEAT_BF16", &there, &size, NULL, 0) == 0 && there;
#else
    return false;
#endif
}

#endif
