/* Transforms of an image's values: contrast, brightness, colors, erasing. */

#include "augment.h"
#include "common.h"

#ifndef MIRT__INDEPENDENT
#define MIRT__INDEPENDENT
#endif

#include "optimize_begin.inc"

/* This many elements at a time, in whole pixels, with the repeated means of channels. */
static int64_t mirt__augment_side(int64_t c) { return MIRT__AUGMENT_CHANNELS / c * c; }

static void mirt__augment_means(const mirt__real *x, int64_t count, int64_t c, mirt__real *mean) {
    const int64_t side = mirt__augment_side(c);
    double sum[MIRT__AUGMENT_CHANNELS] = {0};
    for (int64_t i = 0; i < count; i += side) {
        const int64_t n = mirt__min(count - i, side);
        MIRT__INDEPENDENT
        for (int64_t k = 0; k < n; k++) sum[k] += (double)x[i + k];
    }
    for (int64_t k = c; k < side; k++) sum[k % c] += sum[k];
    for (int64_t k = 0; k < side; k++) mean[k] = (mirt__real)(sum[k % c] / (double)(count / c));
}

/* x * factor + part, by channel, clipped. */
static void mirt__augment_linear(const mirt__transform *t, double amount, mirt__real *x) {
    const int64_t c = t->kind == MIRT_RANDOM_CONTRAST ? t->c : 1, count = t->h * t->w * t->c,
                  side = mirt__augment_side(c);
    const mirt__real low = (mirt__real)t->range[0], high = (mirt__real)t->range[1];
    mirt__real mean[MIRT__AUGMENT_CHANNELS], factor = 1, shift = 0;
    if (t->kind == MIRT_RANDOM_CONTRAST) {
        mirt__augment_means(x, count, c, mean);
        factor = (mirt__real)amount;
    } else {
        memset(mean, 0, sizeof mean);
        shift = (mirt__real)amount;
    }
    for (int64_t i = 0; i < count; i += side) {
        const int64_t n = mirt__min(count - i, side);
        mirt__real *const at = x + i;
        MIRT__INDEPENDENT
        for (int64_t k = 0; k < n; k++) {
            const mirt__real v = (at[k] - mean[k]) * factor + mean[k] + shift;
            at[k] = v < low ? low : v > high ? high : v;
        }
    }
}

/* The pixels of an image of three channels. */
static void mirt__augment_colors(const mirt__transform *t, mirt__real amount, mirt__real *x) {
    const int64_t count = t->h * t->w;
    for (int64_t i = 0; i < count; i++) mirt__transform_color(t, amount, x + 3 * i);
}

static void mirt__augment_erase(const mirt__transform *t, uint64_t seed, uint64_t row, uint64_t step, mirt__real *x) {
    int64_t part[4];
    if (!mirt__transform_part(t, seed, row, step, part)) return;
    for (int64_t y = part[0]; y < part[1]; y++) {
        const int64_t begin = (y * t->w + part[2]) * t->c, end = (y * t->w + part[3]) * t->c;
        for (int64_t i = begin / 4 * 4; i < end; i += 4) {
            mirt__real four[4];
            mirt__transform_erased(t, seed, row, step, (uint32_t)(i / 4), four);
            for (int64_t k = mirt__max(i, begin); k < mirt__min(i + 4, end); k++) x[k] = four[k - i];
        }
    }
}

MIRT__LIB void mirt__augment_values(const mirt__transform *t, uint64_t seed, uint64_t row, uint64_t step,
                                    mirt__real *x) {
    double drawn[4];
    if (t->kind == MIRT_RANDOM_ERASING) {
        mirt__augment_erase(t, seed, row, step, x);
        return;
    }
    mirt__transform_draw(t, seed, row, step, drawn);
    const double amount = mirt__transform_amount(t, drawn);
    if (t->kind == MIRT_RANDOM_HUE || t->kind == MIRT_RANDOM_SATURATION)
        mirt__augment_colors(t, (mirt__real)amount, x);
    else mirt__augment_linear(t, amount, x);
}

#include "optimize_end.inc"
