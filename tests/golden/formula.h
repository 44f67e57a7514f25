#ifndef GOLDEN_FORMULA_H
#define GOLDEN_FORMULA_H
/* The numbers that the goldens start from; formula.py is the same in Python, bit for bit. */
#include <stdint.h>

#if defined(__GNUC__)
#define GOLDEN_UNUSED __attribute__((unused))
#else
#define GOLDEN_UNUSED
#endif

/* Murmur3's finalizer over (seed, index). */
GOLDEN_UNUSED static uint32_t golden_word(uint32_t seed, uint32_t index) {
    uint32_t x = index * 2654435761u + seed;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return x;
}

/* Multiples of 2^-23 in [-1, 1); scale by a power of two only. */
GOLDEN_UNUSED static float golden_uniform(uint32_t seed, uint32_t index) {
    return (float)((int32_t)(golden_word(seed, index) >> 8) - (1 << 23)) / (float)(1 << 23);
}

/* Quarters in [-2, 2): sums of their products are exact in float32, and maxima tie. */
GOLDEN_UNUSED static float golden_grid(uint32_t seed, uint32_t index) {
    return (float)((int32_t)(golden_word(seed, index) >> 28) - 8) / 4.0f;
}

#endif
