#ifndef MIRT__DIGEST_H
#define MIRT__DIGEST_H
/* Checksums of bytes: SHA-256 (FIPS 180-4), CRC-32C (Castagnoli), and the CRC-32 and Adler-32 of PNG. */

#include "base.h"

#define MIRT__SHA256_HEX 65 /* 64 hexadecimal digits and the final 0 */

typedef struct mirt__sha256 {
    uint32_t state[8];
    uint64_t length; /* number of bytes so far */
    unsigned char block[64];
} mirt__sha256;

MIRT__LIB void mirt__sha256_begin(mirt__sha256 *sha);
MIRT__LIB void mirt__sha256_add(mirt__sha256 *sha, const void *data, size_t size);
/* The digest as lower-case hexadecimal; `sha` is used up. */
MIRT__LIB void mirt__sha256_end(mirt__sha256 *sha, char out[MIRT__SHA256_HEX]);

/* Continues from the checksum of the preceding bytes; 0 to begin. */
MIRT__LIB uint32_t mirt__crc32c(uint32_t crc, const void *data, size_t size);
MIRT__LIB uint32_t mirt__crc32(uint32_t crc, const void *data, size_t size);

/* The checksum of all bytes at once. */
MIRT__LIB uint32_t mirt__adler32(const void *data, size_t size);

/* Hashes blocks of memory in sequence, at the speed of memory; the first `hash` is 0. Each step is a bijection of the
   previous hash, so a single different bit is always detected. For comparisons within a run. */
MIRT__LIB uint64_t mirt__hash_bytes(uint64_t hash, const void *block, size_t bytes);

#endif
