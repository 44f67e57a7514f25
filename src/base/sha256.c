/* SHA-256 (FIPS 180-4). */
#include "digest.h"

static const uint32_t mirt__sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t mirt__sha256_rotate(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

static void mirt__sha256_block(uint32_t state[8], const unsigned char *in) {
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 16; i++, in += 4)
        w[i] = (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | (uint32_t)in[3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (mirt__sha256_rotate(x, 7) ^ mirt__sha256_rotate(x, 18) ^ x >> 3)
             + (mirt__sha256_rotate(y, 17) ^ mirt__sha256_rotate(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t sum1 = mirt__sha256_rotate(e, 6) ^ mirt__sha256_rotate(e, 11) ^ mirt__sha256_rotate(e, 25);
        uint32_t sum0 = mirt__sha256_rotate(a, 2) ^ mirt__sha256_rotate(a, 13) ^ mirt__sha256_rotate(a, 22);
        uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + mirt__sha256_k[i] + w[i];
        uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

MIRT__LIB void mirt__sha256_begin(mirt__sha256 *sha) {
    static const uint32_t start[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(sha->state, start, sizeof start);
    sha->length = 0;
}

MIRT__LIB void mirt__sha256_add(mirt__sha256 *sha, const void *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data;
    size_t have = (size_t)(sha->length % 64);
    sha->length += size;
    if (have > 0) {
        size_t take = size < 64 - have ? size : 64 - have;
        if (take > 0) memcpy(sha->block + have, at, take);
        if (have + take < 64) return;
        mirt__sha256_block(sha->state, sha->block);
        at += take;
        size -= take;
    }
    for (; size >= 64; size -= 64, at += 64) mirt__sha256_block(sha->state, at);
    if (size > 0) memcpy(sha->block, at, size);
}

MIRT__LIB void mirt__sha256_end(mirt__sha256 *sha, char out[MIRT__SHA256_HEX]) {
    uint64_t bits = sha->length * 8;
    size_t have = (size_t)(sha->length % 64);
    unsigned char tail[128] = {0x80};
    size_t padding = (have < 56 ? 56 : 120) - have;
    for (int i = 0; i < 8; i++) tail[padding + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    mirt__sha256_add(sha, tail, padding + 8);
    for (int i = 0; i < 64; i++) out[i] = "0123456789abcdef"[sha->state[i / 8] >> (28 - 4 * (i % 8)) & 15u];
    out[64] = 0;
}
