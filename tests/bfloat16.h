#ifndef BFLOAT16_H
#define BFLOAT16_H
/* Numbers of bfloat16: the upper halves of floats. */
#include <stdint.h>

#include "tap.h"

TAP_UNUSED static float half_to_float(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The nearest one, halfway the even one. */
TAP_UNUSED static uint16_t float_to_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    const uint32_t low = bits & 0xFFFF, high = bits >> 16;
    return (uint16_t)(high + (low > 0x8000 || (low == 0x8000 && (high & 1))));
}

#endif
