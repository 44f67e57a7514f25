#ifndef MIRT__NORMAL_H
#define MIRT__NORMAL_H
/* Normal random numbers, bit-identical on CPUs and GPUs: separate additions and products. */

#include "../base/types.h"

#include <math.h>
#include <string.h>

#ifdef __CUDACC__
#define MIRT__NORMAL MIRT__BOTH
#else
#include "optimize_begin.inc"
#define MIRT__NORMAL MIRT__BOTH __attribute__((always_inline))
#endif
#if defined(__CUDACC__) && (defined(__CUDA_ARCH__) || !defined(__NVCC__))
/* On GPUs, nvcc would make one instruction of a product and the sum that takes it. */
#define MIRT__PRODUCT(a, b) __fmul_rn(a, b)
#define MIRT__TOTAL(a, b) __fadd_rn(a, b)
#else
#define MIRT__PRODUCT(a, b) ((a) * (b))
#define MIRT__TOTAL(a, b) ((a) + (b))
#endif

/* total * x + c */
#define MIRT__HORNER(total, x, c) MIRT__TOTAL(MIRT__PRODUCT(total, x), c)

/* The natural logarithm of x in [2^-24, 1]: that of a number near 1 by Cephes's polynomial, and of a power of 2. */
MIRT__NORMAL float mirt__normal_log(float x) {
    int32_t bits, rest;
    float m;
    memcpy(&bits, &x, sizeof bits);
    const int32_t power = (bits - 0x3f3504f3) >> 23; /* so that m is between the square roots of 1/2 and 2 */
    rest = bits - (int32_t)((uint32_t)power << 23);
    memcpy(&m, &rest, sizeof m);
    const float e = (float)power, z = m - 1.0f, square = MIRT__PRODUCT(z, z);
    float p = 7.0376836292e-2f;
    p = MIRT__HORNER(p, z, -1.1514610310e-1f);
    p = MIRT__HORNER(p, z, 1.1676998740e-1f);
    p = MIRT__HORNER(p, z, -1.2420140846e-1f);
    p = MIRT__HORNER(p, z, 1.4249322787e-1f);
    p = MIRT__HORNER(p, z, -1.6668057665e-1f);
    p = MIRT__HORNER(p, z, 2.0000714765e-1f);
    p = MIRT__HORNER(p, z, -2.4999993993e-1f);
    p = MIRT__HORNER(p, z, 3.3333331174e-1f);
    p = MIRT__PRODUCT(MIRT__PRODUCT(p, z), square);
    p = MIRT__HORNER(e, -2.12194440e-4f, p);
    p = MIRT__HORNER(square, -0.5f, p);
    return MIRT__HORNER(e, 0.693359375f, MIRT__TOTAL(z, p));
}

/* The standard normal number that random bits stand for: their highest one is its sign, the next 23 are the
   probability of a number that far from zero. The inverse of the error function is that of Giles 2010, "Approximating
   the erfinv function"; the largest number is 5.4. */
MIRT__NORMAL float mirt__normal(uint32_t word) {
    const float tail = MIRT__HORNER((float)(int32_t)(word >> 8 & 0x7fffffu), 1 / 8388608.0f, 1 / 16777216.0f),
                w = -mirt__normal_log(MIRT__PRODUCT(tail, 2.0f - tail)), c = w - 2.5f, f = sqrtf(w) - 3.0f;
    float center = 2.81022636e-08f, outer = -0.000200214257f;
    center = MIRT__HORNER(center, c, 3.43273939e-07f);
    center = MIRT__HORNER(center, c, -3.5233877e-06f);
    center = MIRT__HORNER(center, c, -4.39150654e-06f);
    center = MIRT__HORNER(center, c, 0.00021858087f);
    center = MIRT__HORNER(center, c, -0.00125372503f);
    center = MIRT__HORNER(center, c, -0.00417768164f);
    center = MIRT__HORNER(center, c, 0.246640727f);
    center = MIRT__HORNER(center, c, 1.50140941f);
    outer = MIRT__HORNER(outer, f, 0.000100950558f);
    outer = MIRT__HORNER(outer, f, 0.00134934322f);
    outer = MIRT__HORNER(outer, f, -0.00367342844f);
    outer = MIRT__HORNER(outer, f, 0.00573950773f);
    outer = MIRT__HORNER(outer, f, -0.0076224613f);
    outer = MIRT__HORNER(outer, f, 0.00943887047f);
    outer = MIRT__HORNER(outer, f, 1.00167406f);
    outer = MIRT__HORNER(outer, f, 2.83297682f);
    const float size = MIRT__PRODUCT(MIRT__PRODUCT(w < 5.0f ? center : outer, 1.4142135623730951f), 1.0f - tail);
    return word >> 31 ? -size : size;
}

#undef MIRT__PRODUCT
#undef MIRT__TOTAL
#undef MIRT__HORNER
#undef MIRT__NORMAL
#ifndef __CUDACC__
#include "optimize_end.inc"
#endif
#endif
