/* CRC-32, CRC-32C and a fast 64-bit hash. */
#include "digest.h"

#define MIRT__CASTAGNOLI 0x82F63B78u
#define MIRT__ETHERNET 0xEDB88320u

static uint32_t mirt__crc_byte(uint32_t polynomial, uint32_t crc) {
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1u)));
    return crc;
}

/* Four bytes at a time. The tables are on the stack; filling them costs no more than a kilobyte of input without
   tables. */
static uint32_t mirt__crc_words(uint32_t polynomial, uint32_t crc, const unsigned char *at, size_t words) {
    uint32_t table[4][256];
    for (uint32_t i = 0; i < 256; i++) table[0][i] = mirt__crc_byte(polynomial, i);
    for (int t = 1; t < 4; t++)
        for (int i = 0; i < 256; i++) table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 255u];
    for (; words > 0; words--, at += 4) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = table[3][crc & 255u] ^ table[2][(crc >> 8) & 255u] ^ table[1][(crc >> 16) & 255u] ^ table[0][crc >> 24];
    }
    return crc;
}

static uint32_t mirt__crc_of(uint32_t polynomial, uint32_t crc, const void *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data;
    crc = ~crc;
    if (size >= 1024) {
        size_t words = size / 4;
        crc = mirt__crc_words(polynomial, crc, at, words);
        at += 4 * words;
        size -= 4 * words;
    }
    for (; size > 0; size--) crc = mirt__crc_byte(polynomial, crc ^ *at++);
    return ~crc;
}

MIRT__LIB uint32_t mirt__crc32c(uint32_t crc, const void *data, size_t size) {
    return mirt__crc_of(MIRT__CASTAGNOLI, crc, data, size);
}

MIRT__LIB uint32_t mirt__crc32(uint32_t crc, const void *data, size_t size) {
    return mirt__crc_of(MIRT__ETHERNET, crc, data, size);
}

MIRT__LIB uint32_t mirt__adler32(const void *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data;
    uint32_t a = 1, b = 0;
    while (size) {
        size_t run = size < 5552 ? size : 5552; /* sums stay below 2^32 */
        size -= run;
        for (; run; run--) b += a += *at++;
        a %= 65521;
        b %= 65521;
    }
    return b << 16 | a;
}

#undef MIRT__CASTAGNOLI
#undef MIRT__ETHERNET

/* >>comparing */

enum { MIRT__HASH_LANES = 4 };

MIRT__LIB uint64_t mirt__hash_bytes(uint64_t hash, const void *block, size_t bytes) {
    const char *data = (const char *)block;
    const uint64_t prime = 0x9E3779B97F4A7C15u;
    uint64_t lane[MIRT__HASH_LANES], word[MIRT__HASH_LANES];
    for (int k = 0; k < MIRT__HASH_LANES; k++) lane[k] = hash + (uint64_t)k;
    for (; bytes >= sizeof word; bytes -= sizeof word, data += sizeof word) {
        memcpy(word, data, sizeof word);
        for (int k = 0; k < MIRT__HASH_LANES; k++) {
            lane[k] = (lane[k] ^ word[k]) * prime;
            lane[k] ^= lane[k] >> 32;
        }
    }
    memset(word, 0, sizeof word);
    memcpy(word, data, bytes);
    for (int k = 0; k < MIRT__HASH_LANES; k++) hash = (hash ^ lane[k] ^ word[k] * prime) * prime ^ hash >> 29;
    return hash;
}
