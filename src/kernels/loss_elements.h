#ifndef MIRT__LOSS_ELEMENTS_H
#define MIRT__LOSS_ELEMENTS_H
/* Losses of ELEMENTS in MIRT_LOSS_LIST, for the CPU's fast kernels and GPUs.

   The loss of a sample is the mean of NAME(logits, x, t) over its n outputs x and labels t; `logits`: the row's
   activation is applied to x first. NAME_grad is the derivative by x, times `scale` and divided by n. */

#include "../base/types.h"

#include <math.h>

#ifndef MIRT__REAL_DOUBLE
#ifndef __CUDACC__ /* does not support such pragmas */
#include "optimize_begin.inc"
#endif
#ifdef __CUDACC__
#define MIRT__ELEMENT MIRT__BOTH
#else /* inlined even without optimization, so that loops over elements are as fast as with the formula written out */
#define MIRT__ELEMENT MIRT__BOTH __attribute__((always_inline))
#endif

#define MIRT__SMALLEST 1e-7f
#define MIRT__LARGEST (1.0f - 1e-7f)

/* Probabilities of 0 and 1 would have infinite logarithms. */
MIRT__ELEMENT float mirt__clipped(float p) {
    return p < MIRT__SMALLEST ? MIRT__SMALLEST : p > MIRT__LARGEST ? MIRT__LARGEST : p;
}

MIRT__ELEMENT bool mirt__is_clipped(float p) { return p < MIRT__SMALLEST || p > MIRT__LARGEST; }

#undef MIRT__SMALLEST
#undef MIRT__LARGEST

MIRT__ELEMENT float mirt__binary_crossentropy(bool logits, float x, float t) {
    if (logits) return (x > 0 ? x : 0) - x * t + log1pf(expf(-fabsf(x)));
    const float p = mirt__clipped(x);
    return -(t * logf(p) + (1 - t) * logf(1 - p));
}
MIRT__ELEMENT float mirt__binary_crossentropy_grad(bool logits, float x, float t, float scale, float n) {
    const float share = scale / n;
    if (logits) return share * (1 / (1 + expf(-x)) - t);
    return mirt__is_clipped(x) ? 0 : share * ((1 - t) / (1 - x) - t / x);
}

MIRT__ELEMENT float mirt__mean_squared_error(bool logits, float x, float t) {
    (void)logits;
    return (x - t) * (x - t);
}
MIRT__ELEMENT float mirt__mean_squared_error_grad(bool logits, float x, float t, float scale, float n) {
    (void)logits;
    return scale * (2 * (x - t) / n);
}

#undef MIRT__ELEMENT
#ifndef __CUDACC__
#include "optimize_end.inc"
#endif
#endif
#endif
