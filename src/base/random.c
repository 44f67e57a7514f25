/* Counter-based random numbers: the value at a position depends on seed, key and position only. */

#include "base.h"

MIRT__LIB mirt__random mirt__random_stream(uint64_t seed, uint64_t key) {
    mirt__random random;
    memset(&random, 0, sizeof random);
    random.seed = seed;
    random.key = key;
    return random;
}

MIRT__LIB uint32_t mirt__random_u32(mirt__random *random) {
    if (random->left == 0) {
        const uint32_t counter[4] = {(uint32_t)random->position, (uint32_t)(random->position >> 32),
                                     (uint32_t)random->key, (uint32_t)(random->key >> 32)};
        const uint32_t key[2] = {(uint32_t)random->seed, (uint32_t)(random->seed >> 32)};
        mirt__philox(counter, key, random->word);
        random->position++;
        random->left = 4;
    }
    return random->word[4 - random->left--];
}

MIRT__TRAINING_LIB uint64_t mirt__random_below(mirt__random *random, uint64_t bound) {
    if (bound <= 1) return 0;
    if (bound <= UINT32_MAX) {
        /* Lemire 2019: multiply, and draw again only in the small biased range. */
        uint32_t bound32 = (uint32_t)bound;
        uint64_t product = (uint64_t)mirt__random_u32(random) * bound32;
        if ((uint32_t)product < bound32) {
            uint32_t threshold = (uint32_t)(0u - bound32) % bound32;
            while ((uint32_t)product < threshold) product = (uint64_t)mirt__random_u32(random) * bound32;
        }
        return product >> 32;
    }
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    for (;;) {
        uint64_t value = mirt__random_u32(random);
        value |= (uint64_t)mirt__random_u32(random) << 32;
        if (value < limit) return value % bound;
    }
}

MIRT__LIB float mirt__random_unit(mirt__random *random) {
    return (float)(mirt__random_u32(random) >> 8) * (1.0f / 16777216.0f);
}

MIRT__LIB double mirt__random_normal(mirt__random *random) {
    double radius = ((double)mirt__random_u32(random) + 1.0) / 4294967296.0; /* (0, 1]: its logarithm is finite */
    double turn = (double)mirt__random_u32(random) / 4294967296.0;
    return sqrt(-2.0 * log(radius)) * cos(6.283185307179586 * turn);
}

MIRT__LIB uint64_t mirt__hash(const char *text) {
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++) {
        hash ^= (unsigned char)*text;
        hash *= 1099511628211u;
    }
    return hash;
}
