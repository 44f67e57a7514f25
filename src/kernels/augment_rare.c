/* Image transforms whose loops stay scalar: the quotients of a perspective, AugMix. */

#include "augment.h"

#include "optimize_drivers.inc"

MIRT__LIB void mirt__augment_divide(const float m[3], int64_t oy, int64_t ox, int64_t n, float *x, float *y) {
    const float by_y = m[1] * (float)oy;
    for (int64_t i = 0; i < n; i++) {
        const float by = m[0] * (float)(ox + i) + by_y + m[2];
        x[i] /= by;
        y[i] /= by;
    }
}

MIRT__LIB void mirt__augment_mix(const mirt__augment *a, const mirt__transform *t, mirt__real *x, mirt__real *kept) {
    const int64_t count = t->h * t->w * t->c;
    mirt__real share[2];
    mirt__transform_shares(t, a->seed, a->row, a->step, share);
    for (int64_t i = 0; i < count; i++) x[i] = mirt__transform_mixed(t, share, x[i], kept + i, kept + count + i);
}

#include "optimize_end.inc"
