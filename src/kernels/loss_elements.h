#ifndef MIRT__LOSS_ELEMENTS_H
#define MIRT__LOSS_ELEMENTS_H
/* Losses of ELEMENTS and SUMS in MIRT_LOSS_LIST, for the CPU's fast kernels and GPUs.

   The loss of a sample is the mean of NAME(how, x, t) over its n outputs x and labels t, or the loss of a position
   their sum. NAME_grad is the derivative by x, times `scale` and divided by n (of a sum: 1). With how->from_logits the
   row's activation is applied to x first. The formulas are explained in reference_loss.c. */

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

MIRT__ELEMENT float mirt__sign(float e) { return e > 0 ? 1.0f : e < 0 ? -1.0f : e; }

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

MIRT__ELEMENT float mirt__mean_absolute_error(const mirt_loss_options *how, float x, float t) {
    (void)how;
    return fabsf(x - t);
}
MIRT__ELEMENT float mirt__mean_absolute_error_grad(const mirt_loss_options *how, float x, float t, float scale,
                                                   float n) {
    (void)how;
    return scale / n * mirt__sign(x - t);
}

MIRT__ELEMENT float mirt__huber(const mirt_loss_options *how, float x, float t) {
    const float e = x - t, off = fabsf(e), delta = how->delta;
    return off <= delta ? 0.5f * e * e : delta * off - 0.5f * delta * delta;
}
MIRT__ELEMENT float mirt__huber_grad(const mirt_loss_options *how, float x, float t, float scale, float n) {
    const float e = x - t, delta = how->delta;
    return scale / n * (e > delta ? delta : e < -delta ? -delta : e);
}

/* How far x lies on the wrong side of the margin; labels of 0 are -1. */
MIRT__ELEMENT float mirt__margin(float x, float t) {
    const float m = 1 - (t == 0 ? -1 : t) * x;
    return m < 0 ? 0 : m;
}
MIRT__ELEMENT float mirt__hinge(const mirt_loss_options *how, float x, float t) {
    (void)how;
    return mirt__margin(x, t);
}
MIRT__ELEMENT float mirt__hinge_grad(const mirt_loss_options *how, float x, float t, float scale, float n) {
    (void)how;
    return mirt__margin(x, t) > 0 ? scale / n * (t == 0 ? 1 : -t) : 0;
}
MIRT__ELEMENT float mirt__squared_hinge(const mirt_loss_options *how, float x, float t) {
    (void)how;
    return mirt__margin(x, t) * mirt__margin(x, t);
}
MIRT__ELEMENT float mirt__squared_hinge_grad(const mirt_loss_options *how, float x, float t, float scale, float n) {
    (void)how;
    return scale / n * (2 * mirt__margin(x, t) * (t == 0 ? 1 : -t));
}

MIRT__ELEMENT float mirt__log_cosh(const mirt_loss_options *how, float x, float t) {
    const float off = fabsf(x - t);
    (void)how;
    return off + log1pf(expf(-2 * off)) - 0.69314718f;
}
MIRT__ELEMENT float mirt__log_cosh_grad(const mirt_loss_options *how, float x, float t, float scale, float n) {
    (void)how;
    return scale / n * tanhf(x - t);
}

/* Of probabilities up to 1. */
MIRT__ELEMENT float mirt__kl_clipped(float p) { return p < MIRT__SMALLEST ? MIRT__SMALLEST : p > 1 ? 1 : p; }
MIRT__ELEMENT float mirt__kl_divergence(const mirt_loss_options *how, float x, float t) {
    const float p = mirt__kl_clipped(t);
    (void)how;
    return p * logf(p / mirt__kl_clipped(x));
}
MIRT__ELEMENT float mirt__kl_divergence_grad(const mirt_loss_options *how, float x, float t, float scale, float n) {
    (void)how;
    return x < MIRT__SMALLEST || x > 1 ? 0 : scale / n * (-mirt__kl_clipped(t) / x);
}

/* m^gamma, and its derivative by m without the infinite one at 0. */
MIRT__ELEMENT float mirt__focus(const mirt_loss_options *how, float m) { return powf(m, how->gamma); }
MIRT__ELEMENT float mirt__focus_grad(const mirt_loss_options *how, float m) {
    return m == 0 || how->gamma == 0 ? 0 : how->gamma * powf(m, how->gamma - 1);
}

/* p and q are the probabilities of 1 and 0. */
MIRT__ELEMENT float mirt__binary_focal_crossentropy(const mirt_loss_options *how, float x, float t) {
    const float entropy = mirt__binary_crossentropy(how, x, t);
    const float p = how->from_logits ? 1 / (1 + expf(-x)) : x, q = how->from_logits ? 1 / (1 + expf(x)) : 1 - x;
    t = mirt__smoothed(how, t, 0.5f);
    const float weight = how->apply_class_balancing ? t * how->alpha + (1 - t) * (1 - how->alpha) : 1;
    return weight * mirt__focus(how, t * q + (1 - t) * p) * entropy;
}
MIRT__ELEMENT float mirt__binary_focal_crossentropy_grad(const mirt_loss_options *how, float x, float t, float scale,
                                                         float n) {
    const float entropy = mirt__binary_crossentropy(how, x, t),
                slope = mirt__binary_crossentropy_grad(how, x, t, 1, 1);
    const float p = how->from_logits ? 1 / (1 + expf(-x)) : x, q = how->from_logits ? 1 / (1 + expf(x)) : 1 - x;
    t = mirt__smoothed(how, t, 0.5f);
    const float weight = how->apply_class_balancing ? t * how->alpha + (1 - t) * (1 - how->alpha) : 1;
    const float m = t * q + (1 - t) * p, dm = (1 - 2 * t) * (how->from_logits ? p * q : 1);
    return scale / n * weight * (mirt__focus(how, m) * slope + mirt__focus_grad(how, m) * dm * entropy);
}

/* Of one class of a categorical focal crossentropy with the probability q; and its derivative by q. */
MIRT__ELEMENT float mirt__focal(const mirt_loss_options *how, float q, float t) {
    const float p = mirt__clipped(q);
    return -t * logf(p) * how->alpha * mirt__focus(how, 1 - p);
}
MIRT__ELEMENT float mirt__focal_grad(const mirt_loss_options *how, float q, float t) {
    if (mirt__is_clipped(q)) return 0;
    return how->alpha * t * (mirt__focus_grad(how, 1 - q) * logf(q) - mirt__focus(how, 1 - q) / q);
}

/* 1 / the norm of a vector with these squares, of which Keras takes at most 1e7; and whether that is less. */
MIRT__ELEMENT float mirt__inverse_norm(float squares) {
    const float inverse = 1 / sqrtf(squares);
    return inverse > 1e7f ? 1e7f : inverse;
}
MIRT__ELEMENT bool mirt__is_short(float squares) { return 1 / sqrtf(squares) > 1e7f; }

/* Losses of RECORDED have no kernel. */
MIRT__ELEMENT float mirt__no_loss(void) { return 0; }

#undef MIRT__SMALLEST
#undef MIRT__LARGEST

#undef MIRT__ELEMENT
#ifndef __CUDACC__
#include "optimize_end.inc"
#endif
#endif
#endif
