/* Asks x86 processors for their instructions. */

#include "processor.h"

#if defined(__x86_64__)

#include <cpuid.h>

static const struct {
    char name[11];
    unsigned char leaf, part, which, bit, state;
} mirt__instructions[] = {
#define MIRT__INSTRUCTION_ROW(name, leaf, part, which, bit, state) {#name, leaf, part, which, bit, state},
    MIRT__INSTRUCTION_LIST(MIRT__INSTRUCTION_ROW)
#undef MIRT__INSTRUCTION_ROW
};

MIRT__LIB const char *mirt__instruction_name(int instruction) { return mirt__instructions[instruction].name; }

/* Of the registers' states those that the system saves; 0: it does not say. */
static unsigned mirt__saved_states(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    __asm__ __volatile__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}

MIRT__LIB bool mirt__instruction_there(int instruction) {
    const unsigned leaf = mirt__instructions[instruction].leaf, part = mirt__instructions[instruction].part,
                   state = mirt__instructions[instruction].state;
    unsigned word[4];
    if ((mirt__saved_states() & state) != state) return false;
    if (!__get_cpuid_count(leaf, 0, &word[0], &word[1], &word[2], &word[3])) return false;
    if (part > 0 && word[0] < part) return false;
    if (part > 0) __cpuid_count(leaf, part, word[0], word[1], word[2], word[3]);
    return word[mirt__instructions[instruction].which] >> mirt__instructions[instruction].bit & 1;
}

#endif
