/* Transforms of an image's values: contrast, brightness, colors, levels, erasing, filters. */

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
    for (int64_t k = 0; k < c; k++) mean[k] = (mirt__real)(sum[k] / (double)(count / c));
}

/* The least and the greatest number of each channel. */
static void mirt__augment_extremes(const mirt__real *x, int64_t count, int64_t c, mirt__real *least, mirt__real *most) {
    for (int64_t k = 0; k < c; k++) {
        least[k] = (mirt__real)INFINITY;
        most[k] = -(mirt__real)INFINITY;
    }
    for (int64_t i = 0; i < count; i += c) {
        for (int64_t k = 0; k < c; k++) {
            least[k] = x[i + k] < least[k] ? x[i + k] : least[k];
            most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
        }
    }
}

/* (x - from) * factor + to, by channel, clipped. */
static void mirt__augment_linear(const mirt__transform *t, mirt__real amount, mirt__real *x) {
    const bool centers = t->kind == MIRT_RANDOM_CONTRAST, stretches = t->kind == MIRT_AUTO_CONTRAST;
    const int64_t c = centers || stretches ? t->c : 1, count = t->h * t->w * t->c, side = mirt__augment_side(c);
    mirt__real stat[2][MIRT__AUGMENT_CHANNELS] = {{0}}, from[MIRT__AUGMENT_CHANNELS],
        factor[MIRT__AUGMENT_CHANNELS], to[MIRT__AUGMENT_CHANNELS], low[MIRT__AUGMENT_CHANNELS],
        high[MIRT__AUGMENT_CHANNELS];
    if (centers) mirt__augment_means(x, count, c, stat[0]);
    if (stretches) mirt__augment_extremes(x, count, c, stat[0], stat[1]);
    for (int64_t k = 0; k < side; k++) {
        const mirt__transform_line line = mirt__transform_line_of(t, amount, stat[0][k % c], stat[1][k % c]);
        from[k] = line.from;
        factor[k] = line.factor;
        to[k] = line.to;
        low[k] = line.low;
        high[k] = line.high;
    }
    for (int64_t i = 0; i < count; i += side) {
        const int64_t n = mirt__min(count - i, side);
        mirt__real *const at = x + i;
        MIRT__INDEPENDENT
        for (int64_t k = 0; k < n; k++) {
            const mirt__real v = (at[k] - from[k]) * factor[k] + to[k];
            at[k] = v < low[k] ? low[k] : v > high[k] ? high[k] : v;
        }
    }
}

static void mirt__augment_equalize(const mirt__transform *t, mirt__real *x) {
    const int64_t count = t->h * t->w * t->c;
    for (int64_t j = 0; j < t->c; j++) {
        int32_t bins[MIRT__TRANSFORM_BINS] = {0};
        mirt__real level[MIRT__TRANSFORM_BINS];
        for (int64_t i = j; i < count; i += t->c) bins[mirt__transform_bin(t, x[i])]++;
        if (!mirt__transform_equalized(t, bins, level)) continue;
        for (int64_t i = j; i < count; i += t->c) x[i] = level[mirt__transform_bin(t, x[i])];
    }
}

MIRT__LIB void mirt__augment_noise(const mirt__augment *a, const mirt__transform *t, int64_t begin, int64_t end,
                                   mirt__real *out) {
    for (int64_t i = begin / 4 * 4; i < end; i += 4) {
        uint32_t word[4];
        mirt__transform_words(t->key, a->seed, a->row, a->step, (uint32_t)(2 + i / 4), word);
        for (int64_t k = mirt__max(i, begin); k < mirt__min(i + 4, end); k++)
            out[k - begin] = (mirt__real)mirt__normal(word[k - i]);
    }
}

static void mirt__augment_erase(const mirt__transform *t, const mirt__augment *a, const double drawn[4],
                                mirt__real *x) {
    int64_t part[4];
    mirt__transform_part(t, drawn, part);
    for (int64_t y = part[0]; y < part[1]; y++) {
        const int64_t begin = (y * t->w + part[2]) * t->c, end = (y * t->w + part[3]) * t->c;
        if (t->fill != MIRT_FILL_CONSTANT) mirt__augment_noise(a, t, begin, end, x + begin);
        for (int64_t i = begin; i < end; i++) x[i] = mirt__transform_erased(t, x[i]);
    }
}

MIRT__LIB void mirt__augment_values(const mirt__augment *a, const mirt__transform *t, mirt__real *x,
                                    mirt__real *kept) {
    const int64_t pixels = t->h * t->w;
    mirt__real amount[2];
    double drawn[4];
    if (!mirt__transform_applies(t, a->seed, a->row, a->step)) return;
    mirt__transform_draw(t, a->seed, a->row, a->step, drawn);
    for (int axis = 0; axis < 2; axis++) amount[axis] = (mirt__real)mirt__transform_amount(t, axis, drawn);
    if (mirt__transform_traits(t->kind) & MIRT__LINEAR) mirt__augment_linear(t, amount[0], x);
    else if (t->kind == MIRT_RANDOM_ERASING) mirt__augment_erase(t, a, drawn, x);
    else if (t->kind == MIRT_EQUALIZATION) mirt__augment_equalize(t, x);
    else if (t->kind == MIRT_AUG_MIX) mirt__augment_mix(a, t, x, kept);
    else if (t->kind == MIRT_CLAHE) mirt__augment_clahe(t, x, kept);
    else if (mirt__transform_traits(t->kind) & MIRT__COLORS)
        for (int64_t i = 0; i < pixels; i++) mirt__transform_color(t, amount[0], x + t->c * i);
    else
        for (int64_t i = 0; i < pixels * t->c; i++) x[i] = mirt__transform_level(t, amount, x[i]);
}

#define MIRT__FILTER_PIECE 1024 /* numbers of a row at a time */

MIRT__LIB void mirt__augment_add(mirt__real *to, const mirt__real *from, mirt__real factor, int64_t count) {
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}

/* Numbers [begin, end) of a row: sums down the columns, then of these across. */
static void mirt__augment_filter_piece(const mirt__transform *t, const mirt__transform_filter *f, const mirt__real *x,
                                       int64_t row, int64_t begin, int64_t end, mirt__real *y) {
    mirt__real down[MIRT__FILTER_PIECE + MIRT__FILTER_BESIDE];
    const int64_t line = t->w * t->c, beside = f->reach * t->c, first = mirt__max(begin - beside, 0),
                  last = mirt__min(end + beside, line);
    memset(down, 0, sizeof down);
    for (int64_t k = mirt__max(row - f->reach, 0); k <= mirt__min(row + f->reach, t->h - 1); k++)
        mirt__augment_add(down, x + k * line + first, f->down[k - row + f->reach], last - first);
    memset(y + row * line + begin, 0, (size_t)(end - begin) * sizeof *y);
    for (int k = -f->reach; k <= f->reach; k++) {
        const int64_t low = mirt__max(begin, -k * t->c), high = mirt__min(end, line - k * t->c);
        mirt__augment_add(y + row * line + low, down + (low + k * t->c - first), f->across[k + f->reach], high - low);
    }
    MIRT__INDEPENDENT
    for (int64_t i = row * line + begin; i < row * line + end; i++) y[i] = mirt__transform_filtered(f, x[i], y[i]);
}

MIRT__LIB void mirt__augment_filter(const mirt__augment *a, const mirt__transform *t, const mirt__real *x,
                                    mirt__real *y, mirt__real *kept) {
    const int64_t line = t->w * t->c;
    mirt__transform_filter f;
    double drawn[4];
    if (!mirt__transform_applies(t, a->seed, a->row, a->step)) {
        for (int64_t i = 0; i < t->h * line; i++) y[i] = mirt__transform_unfiltered(t, x[i]);
        return;
    }
    mirt__transform_draw(t, a->seed, a->row, a->step, drawn);
    if (t->kind == MIRT_RANDOM_ELASTIC_TRANSFORM) {
        mirt__augment_elastic(a, t, drawn, x, y, kept);
        return;
    }
    mirt__transform_filter_of(t, drawn, &f);
    for (int64_t row = 0; row < t->h; row++) {
        for (int64_t i = 0; i < line; i += MIRT__FILTER_PIECE)
            mirt__augment_filter_piece(t, &f, x, row, i, mirt__min(i + MIRT__FILTER_PIECE, line), y);
    }
}

#include "optimize_end.inc"
