#ifndef FLOAT16_H
#define FLOAT16_H
/* IEEE binary16 numbers by arithmetic: a sign, 5 exponent bits, 10 fraction bits. */
#include <math.h>
#include <stdint.h>

#include "tap.h"

TAP_UNUSED static float f16_to_float(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float size = exponent == 31
                           ? (fraction ? NAN : INFINITY)
                           : (float)ldexp(exponent ? 1024 + fraction : fraction, (exponent ? exponent : 1) - 25);
    return bits >> 15 ? -size : size;
}

/* The nearest one, halfway the even one; from halfway beyond the largest on, infinity. */
TAP_UNUSED static uint16_t float_to_f16(float x) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    int exponent;
    if (x != x) return (uint16_t)(sign | 0x7E00);
    if (fabs((double)x) >= 65520) return (uint16_t)(sign | 0x7C00);
    (void)frexp((double)x, &exponent);
    if (exponent < -13 || x == 0) exponent = -13; /* what is smaller has the least one's steps */
    /* In steps of it, at most 2048: then it carries into the exponent, as it should. */
    const int steps = (int)nearbyint(ldexp(fabs((double)x), 11 - exponent));
    return (uint16_t)(sign | (steps + ((exponent + 13) << 10)));
}

#endif
