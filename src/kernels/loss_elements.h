#ifndef MIRT__LOSS_ELEMENTS_H
#define MIRT__LOSS_ELEMENTS_H
/* Binary crossentropy and mean squared error, for the CPU's fast kernels and GPUs.

   The loss of a sample is the mean of NAME(how, x, t) over its n outputs x and labels t. NAME_grad is the derivative by
   x, times `scale` and divided by n. With how->from_logits the row's activation is applied to x first. The formulas are
   explained in reference_loss.c. */

#include "table.h"

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

/* 1 - clipped(p); of float32 that difference would be 1.2e-7 at least. */
MIRT__ELEMENT float mirt__clipped_rest(float p) { return p > MIRT__LARGEST ? MIRT__SMALLEST : 1 - mirt__clipped(p); }

MIRT__ELEMENT bool mirt__is_clipped(float p) { return p < MIRT__SMALLEST || p > MIRT__LARGEST; }

/* The label t, of which label_smoothing is dealt evenly to all classes. */
MIRT__ELEMENT float mirt__smoothed(const mirt_loss_options *how, float t, float even) {
    return t * (1 - how->label_smoothing) + how->label_smoothing * even;
}

MIRT__ELEMENT bool mirt__is_ignored(const mirt_loss_options *how, int32_t label) {
    return how->has_ignore_class && label == how->ignore_class;
}

MIRT__ELEMENT float mirt__binary_crossentropy(const mirt_loss_options *how, float x, float t) {
    t = mirt__smoothed(how, t, 0.5f);
    if (how->from_logits) return (x > 0 ? x : 0) - x * t + log1pf(expf(-fabsf(x)));
    return -(t * logf(mirt__clipped(x)) + (1 - t) * logf(mirt__clipped_rest(x)));
}
MIRT__ELEMENT float mirt__binary_crossentropy_grad(const mirt_loss_options *how, float x, float t, float scale,
                                                   float n) {
    const float share = scale / n;
    t = mirt__smoothed(how, t, 0.5f);
    if (how->from_logits) return share * (1 / (1 + expf(-x)) - t);
    return mirt__is_clipped(x) ? 0 : share * ((1 - t) / (1 - x) - t / x);
}

MIRT__ELEMENT float mirt__mean_squared_error(const mirt_loss_options *how, float x, float t) {
    (void)how;
    return (x - t) * (x - t);
}
MIRT__ELEMENT float mirt__mean_squared_error_grad(const mirt_loss_options *how, float x, float t, float scale,
                                                  float n) {
    (void)how;
    return scale * (2 * (x - t) / n);
}

#undef MIRT__SMALLEST
#undef MIRT__LARGEST

#undef MIRT__ELEMENT
#ifndef __CUDACC__
#include "optimize_end.inc"
#endif
#endif
#endif
