#ifndef MIRT__TRANSFORM_H
#define MIRT__TRANSFORM_H
/* Random image transforms: their random numbers, the positions they read, and their fusion. */

#include "normal.h"
#include "table.h"

#include <math.h>
#include <string.h>

#define MIRT__TRANSFORM_BINS 256 /* at most, of equalization */
#define MIRT__TRANSFORM_TAPS 31  /* at most, of a blur's kernel to a side */
#define MIRT__TRANSFORM_CHAINS 5 /* at most, of AugMix, and changes in each */

/* What a kind of transform does. */
enum {
    MIRT__MOVES = 1,     /* pixels */
    MIRT__FILLS = 2,     /* has a fill mode for what comes from outside of the image */
    MIRT__SIZES = 4,     /* ... a height and width */
    MIRT__RANGES = 8,    /* ... a value range */
    MIRT__FILTERS = 16,  /* needs the neighbors of a pixel */
    MIRT__COLORS = 32,   /* changes red, green and blue together */
    MIRT__GRAYS = 64,    /* ... or one channel */
    MIRT__LINEAR = 128,  /* x becomes (x - from) * factor + to, alike in a channel */
    MIRT__MEASURES = 256, /* ... by the channel's mean or extremes */
    MIRT__CHANCES = 512  /* happens by a chance that is drawn from its first factor */
};
MIRT__BOTH int mirt__transform_traits(mirt_augmentation_kind kind) {
    switch ((int)kind) {
    case MIRT_RANDOM_FLIP: return MIRT__MOVES;
    case MIRT_RANDOM_ROTATION:
    case MIRT_RANDOM_ZOOM:
    case MIRT_RANDOM_TRANSLATION:
    case MIRT_RANDOM_SHEAR: return MIRT__MOVES | MIRT__FILLS;
    case MIRT_RANDOM_PERSPECTIVE: return MIRT__MOVES | MIRT__FILLS | MIRT__CHANCES;
    case MIRT_RANDOM_CROP:
    case MIRT_CENTER_CROP:
    case MIRT_RESIZING: return MIRT__MOVES | MIRT__SIZES;
    case MIRT_RANDOM_CONTRAST:
    case MIRT_AUTO_CONTRAST: return MIRT__RANGES | MIRT__LINEAR | MIRT__MEASURES;
    case MIRT_RANDOM_BRIGHTNESS: return MIRT__RANGES | MIRT__LINEAR;
    case MIRT_RANDOM_INVERT: return MIRT__RANGES | MIRT__LINEAR | MIRT__CHANCES;
    case MIRT_RANDOM_HUE:
    case MIRT_RANDOM_SATURATION: return MIRT__RANGES | MIRT__COLORS;
    case MIRT_RANDOM_GRAYSCALE: return MIRT__COLORS | MIRT__GRAYS | MIRT__CHANCES;
    case MIRT_RANDOM_COLOR_DEGENERATION: return MIRT__RANGES | MIRT__COLORS | MIRT__GRAYS;
    case MIRT_RANDOM_COLOR_JITTER:
    case MIRT_RAND_AUGMENT: return MIRT__RANGES | MIRT__GRAYS;
    case MIRT_RANDOM_ERASING: return MIRT__RANGES | MIRT__CHANCES;
    case MIRT_RANDOM_SHARPNESS: return MIRT__RANGES | MIRT__FILTERS;
    case MIRT_RANDOM_GAUSSIAN_BLUR: return MIRT__RANGES | MIRT__FILTERS | MIRT__CHANCES;
    case MIRT_RANDOM_ELASTIC_TRANSFORM: return MIRT__RANGES | MIRT__FILTERS | MIRT__CHANCES | MIRT__FILLS;
    default: return MIRT__RANGES;
    }
}

/* Whether it makes another image of the whole image. */
MIRT__BOTH bool mirt__transform_remakes(const mirt__transform *t) {
    return (mirt__transform_traits(t->kind) & (MIRT__MOVES | MIRT__FILTERS)) != 0;
}

/* >>what is computed for an image */

#ifndef __CUDACC__
#include "optimize_drivers.inc"
#endif

/* Four random words for the transform with this key of image `row` at time `step`; others for each block. */
MIRT__BOTH void mirt__transform_words(uint64_t owner, uint64_t seed, uint64_t row, uint64_t step, uint32_t block,
                                      uint32_t word[4]) {
    const uint64_t mixed = owner ^ seed ^ (step >> 32 << 32);
    const uint32_t counter[4] = {block, (uint32_t)row, (uint32_t)(row >> 32), (uint32_t)step},
                   key[2] = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    mirt__philox(counter, key, word);
}

/* Of these, numbers in [0, 1). */
MIRT__BOTH void mirt__transform_units(const uint32_t word[4], double out[4]) {
    for (int i = 0; i < 4; i++) out[i] = (double)(word[i] >> 8) / 16777216.0;
}

MIRT__BOTH void mirt__transform_block(uint64_t owner, uint64_t seed, uint64_t row, uint64_t step, uint32_t block,
                                      double out[4]) {
    uint32_t word[4];
    mirt__transform_words(owner, seed, row, step, block, word);
    mirt__transform_units(word, out);
}

/* The numbers of the first block, all that most transforms draw. */
MIRT__BOTH void mirt__transform_draw(const mirt__transform *t, uint64_t seed, uint64_t row, uint64_t step,
                                     double out[4]) {
    mirt__transform_block(t->key, seed, row, step, 0, out);
}

MIRT__BOTH double mirt__transform_between(const mirt__transform *t, int axis, double drawn) {
    return (double)t->low[axis] + drawn * ((double)t->high[axis] - (double)t->low[axis]);
}

/* Whether the image is transformed at all. */
MIRT__BOTH bool mirt__transform_applies(const mirt__transform *t, uint64_t seed, uint64_t row, uint64_t step) {
    double drawn[4];
    if (t->choices) {
        mirt__transform_block(t->chooser, seed, row, step, 0, drawn);
        if ((int)(drawn[0] * t->choices) != t->choice) return false;
    }
    if (!(mirt__transform_traits(t->kind) & MIRT__CHANCES)) return true;
    mirt__transform_block(t->key, seed, row, step, 1, drawn);
    return drawn[1] < mirt__transform_between(t, 0, drawn[0]);
}

/* Whether only the central part, the window, is resized. */
MIRT__BOTH bool mirt__transform_fits(const mirt__transform *t) {
    return (t->kind == MIRT_RESIZING && t->crop) ||
           ((t->kind == MIRT_RANDOM_CROP || t->kind == MIRT_CENTER_CROP) && (t->h < t->oh || t->w < t->ow));
}

MIRT__BOTH void mirt__transform_window(const mirt__transform *t, int64_t begin[2], int64_t size[2]) {
    const int64_t high = t->w * t->oh / t->ow, wide = t->h * t->ow / t->oh;
    size[0] = high > t->h ? t->h : high < 1 ? 1 : high;
    size[1] = wide > t->w ? t->w : wide < 1 ? 1 : wide;
    begin[0] = (t->h - size[0]) / 2;
    begin[1] = (t->w - size[1]) / 2;
}

/* A perspective, whose corners right of, below and diagonal to the upper left one move to shares of the width and the
   height: like Keras's system of equations, solved. The upper left corner stays. */
MIRT__BOTH void mirt__transform_perspective(const mirt__transform *t, const double drawn[4], double m[9]) {
    const double right = (double)(t->w - 1), down = (double)(t->h - 1);
    double to[4]; /* across: the right corner, the diagonal one; down: the lower corner, the diagonal one */
    for (int i = 0; i < 4; i++) to[i] = 1 + (drawn[i] - 0.5) * (double)t->high[1];
    if (!(right > 0) || !(down > 0)) return;
    m[6] = (to[3] / to[2] - 1) / (right * to[1]);
    m[7] = (to[1] / to[0] - 1) / (down * to[3]);
    m[0] = right * m[6] + 1 / to[0];
    m[4] = down * m[7] + 1 / to[2];
}

/* The composition of a and b: the positions in a's input of b's outputs. */
MIRT__BOTH void mirt__transform_then(double a[9], const double b[9]) {
    double both[9];
    for (int i = 0; i < 9; i += 3) {
        for (int k = 0; k < 3; k++) both[i + k] = a[i] * b[k] + a[i + 1] * b[3 + k] + a[i + 2] * b[6 + k];
    }
    memcpy(a, both, sizeof both);
}

/* The logarithm of gamma-distributed number `i` of an image: Marsaglia and Tsang 2000, "A simple method for generating
   gamma variables". */
MIRT__BOTH double mirt__transform_log_gamma(const mirt__transform *t, uint64_t seed, uint64_t row, uint64_t step,
                                            int i) {
    const double alpha = (double)t->low[0], d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
    double v = 1, drawn[4];
    for (uint32_t k = 0; k < 64; k++) {
        mirt__transform_block(t->key, seed, row, step, (uint32_t)i * 64 + k, drawn);
        const double z = sqrt(-2 * log(1 - drawn[0])) * cos(drawn[1] * 6.283185307179586), root = 1 + c * z;
        v = root * root * root;
        if (root > 0 && log(1 - drawn[2]) < 0.5 * z * z + d * (1 - v + log(v))) break;
    }
    v = v > 0 ? v : 1; /* after 64 refusals */
    return log(d * v) + (alpha < 1 ? log(1 - drawn[3]) / alpha : 0);
}

/* AugMix: the share that the chain just ended has of all chains, and that of the image itself. */
MIRT__BOTH void mirt__transform_shares(const mirt__transform *t, uint64_t seed, uint64_t row, uint64_t step,
                                       mirt__real share[2]) {
    double drawn[MIRT__TRANSFORM_CHAINS + 2], sum = 0;
    const int ended = t->size > 0 ? t->size - 1 : 0;
    for (int i = 0; i < t->bins + 2; i++) drawn[i] = mirt__transform_log_gamma(t, seed, row, step, i);
    for (int i = 0; i < t->bins; i++) sum += exp(drawn[i] - drawn[ended]);
    share[0] = (mirt__real)(1 / sum);
    share[1] = (mirt__real)(1 / (1 + exp(drawn[t->bins + 1] - drawn[t->bins])));
}

/* The 2 reach + 1 numbers of the kernel of a blur. */
MIRT__BOTH void mirt__transform_gauss(double sigma, int reach, mirt__real *out) {
    double sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = -reach; i <= reach; i++) {
            const double at = i ? i / sigma : 0, v = exp(-0.5 * at * at);
            if (pass) out[i + reach] = (mirt__real)(v / sum);
            else sum += v;
        }
    }
}

/* The position in t's input, or in its window, of output (x, y): m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5], both
   over m[6] x + m[7] y + m[8]. */
MIRT__BOTH void mirt__transform_matrix(const mirt__transform *t, const double drawn[4], double m[9]) {
    const double h = (double)t->h, w = (double)t->w, middle_x = (w - 1) / 2, middle_y = (h - 1) / 2;
    double xx = 1, xy = 0, x = 0, yx = 0, yy = 1, y = 0, turn;
    int64_t begin[2] = {0, 0}, size[2];
    size[0] = t->h;
    size[1] = t->w;
    switch ((int)t->kind) {
    case MIRT_RANDOM_FLIP:
        if (t->mode != MIRT_FLIP_VERTICAL && drawn[0] < 0.5) xx = -1, x = w - 1;
        if (t->mode != MIRT_FLIP_HORIZONTAL && drawn[1] < 0.5) yy = -1, y = h - 1;
        break;
    case MIRT_RANDOM_ROTATION:
        turn = mirt__transform_between(t, 0, drawn[0]) * 6.283185307179586;
        xx = yy = cos(turn);
        yx = sin(turn);
        xy = -yx;
        x = middle_x - middle_x * xx - middle_y * xy;
        y = middle_y - middle_x * yx - middle_y * yy;
        break;
    case MIRT_RANDOM_ZOOM:
        yy = 1 + mirt__transform_between(t, 0, drawn[0]);
        xx = t->paired ? yy : 1 + mirt__transform_between(t, 1, drawn[1]);
        x = middle_x * (1 - xx);
        y = middle_y * (1 - yy);
        break;
    case MIRT_RANDOM_TRANSLATION:
        y = -h * mirt__transform_between(t, 0, drawn[0]);
        x = -w * mirt__transform_between(t, 1, drawn[1]);
        break;
    case MIRT_RANDOM_SHEAR: /* away from the upper left corner, in both directions with the same sign */
        turn = drawn[2] > 0.5 ? -1 : 1;
        yx = turn * mirt__transform_between(t, 0, drawn[0]);
        xy = turn * mirt__transform_between(t, 1, drawn[1]);
        break;
    case MIRT_RANDOM_CROP:
    case MIRT_CENTER_CROP:
    case MIRT_RESIZING:
        if (mirt__transform_fits(t)) mirt__transform_window(t, begin, size);
        if (mirt__transform_fits(t) || t->kind == MIRT_RESIZING) {
            yy = (double)size[0] / (double)t->oh;
            xx = (double)size[1] / (double)t->ow;
            y = yy / 2 - 0.5;
            x = xx / 2 - 0.5;
        } else {
            const bool center = t->kind == MIRT_CENTER_CROP;
            y = center ? (double)((t->h - t->oh) / 2) : floor(drawn[0] * (double)(t->h - t->oh + 1));
            x = center ? (double)((t->w - t->ow) / 2) : floor(drawn[1] * (double)(t->w - t->ow + 1));
        }
        break;
    }
    m[0] = xx;
    m[1] = xy;
    m[2] = x;
    m[3] = yx;
    m[4] = yy;
    m[5] = y;
    m[6] = m[7] = 0;
    m[8] = 1;
    if (t->kind == MIRT_RANDOM_PERSPECTIVE) mirt__transform_perspective(t, drawn, m);
}

/* Transforms that run in one pass: on values, or one warp. */
typedef struct mirt__transform_pass {
    int end; /* the first transform after it */
    bool remakes, moves; /* another image; by a warp, not a filter */
    bool filled, chosen; /* fill and value, and nearest, of the transform that uses them */
    mirt_fill_mode fill;
    bool nearest, sized;
    float value;
} mirt__transform_pass;

/* Whether `t` can be part of the same warp; if so, applies its settings. */
MIRT__BOTH bool mirt__transform_joins(mirt__transform_pass *p, const mirt__transform *t) {
    const bool fills = (mirt__transform_traits(t->kind) & MIRT__FILLS) != 0, sized = t->kind == MIRT_RESIZING;
    if ((fills || sized) && p->chosen && p->nearest != t->nearest) return false;
    if (fills && p->filled &&
        (p->fill != t->fill || (t->fill == MIRT_FILL_CONSTANT && (p->value < t->value || p->value > t->value))))
        return false;
    /* A resized image repeats its edges. */
    const mirt_fill_mode fill = fills ? t->fill : p->fill;
    if ((sized || p->sized) && (fills || p->filled) && (fill == MIRT_FILL_CONSTANT || fill == MIRT_FILL_WRAP))
        return false;
    if (fills) {
        p->filled = true;
        p->fill = t->fill;
        p->value = t->value;
    }
    if (fills || sized) {
        p->chosen = true;
        p->nearest = t->nearest;
    }
    p->sized = p->sized || sized;
    return true;
}

/* The pass that begins with transform `first`. A window needs a separate pass. */
MIRT__BOTH mirt__transform_pass mirt__transform_pass_of(const mirt__transform *t, int count, int first) {
    mirt__transform_pass p;
    memset(&p, 0, sizeof p);
    p.fill = MIRT_FILL_NEAREST;
    p.remakes = mirt__transform_remakes(&t[first]);
    p.moves = (mirt__transform_traits(t[first].kind) & MIRT__MOVES) != 0;
    p.end = first + 1;
    while (p.end < count && !p.remakes && !mirt__transform_remakes(&t[p.end])) p.end++;
    if (!p.moves) return p;
    mirt__transform_joins(&p, &t[first]);
    while (p.end < count && (mirt__transform_traits(t[p.end].kind) & MIRT__MOVES) && !mirt__transform_fits(&t[p.end]) &&
           mirt__transform_joins(&p, &t[p.end]))
        p.end++;
    return p;
}

#ifndef __CUDACC__
#include "optimize_end.inc"
#endif

/* >>values */

#ifndef __CUDACC__ /* does not support such pragmas */
#include "optimize_begin.inc"
#define MIRT__TRANSFORM_INLINE MIRT__BOTH __attribute__((always_inline))
#else
#define MIRT__TRANSFORM_INLINE MIRT__BOTH
#endif

/* The number by which a transform changes the values of an image: a factor, what is added, turns of the hue, or bits
   that are lost. Solarization has a second one, of axis 1. */
MIRT__BOTH double mirt__transform_amount(const mirt__transform *t, int axis, const double drawn[4]) {
    const double between = mirt__transform_between(t, axis, drawn[axis]), low = (double)t->low[axis];
    switch ((int)t->kind) {
    case MIRT_RANDOM_CONTRAST: return 1 + between;
    case MIRT_RANDOM_BRIGHTNESS: return between * ((double)t->range[1] - (double)t->range[0]);
    case MIRT_RANDOM_HUE: return drawn[1] > 0.5 ? -0.5 * between : 0.5 * between;
    case MIRT_RANDOM_SATURATION: return between / (1 - between + 1e-7); /* with Keras's epsilon */
    case MIRT_SOLARIZATION: return low + drawn[axis] * (255 * (double)t->high[axis] - low); /* Keras's lower end */
    case MIRT_RANDOM_POSTERIZATION: return 8 - floor(between);
    default: return between;
    }
}

/* a * b, which GPUs do not contract with an addition. */
MIRT__TRANSFORM_INLINE mirt__real mirt__transform_times(mirt__real a, mirt__real b) {
#if defined(__CUDACC__) && (defined(__CUDA_ARCH__) || !defined(__NVCC__))
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

MIRT__TRANSFORM_INLINE mirt__real mirt__transform_clip(mirt__real v, mirt__real low, mirt__real high) {
    return v < low ? low : v > high ? high : v;
}

/* x from value_range to 0 to 255. */
MIRT__TRANSFORM_INLINE mirt__real mirt__transform_to_bytes(const mirt__transform *t, mirt__real x) {
    const mirt__real low = (mirt__real)t->range[0], span = (mirt__real)t->range[1] - low;
    return mirt__transform_times((x - low) / span, 255);
}

/* ... and back. */
MIRT__TRANSFORM_INLINE mirt__real mirt__transform_of_bytes(const mirt__transform *t, mirt__real x) {
    const mirt__real low = (mirt__real)t->range[0], span = (mirt__real)t->range[1] - low;
    return mirt__transform_times(x / 255, span) + low;
}

/* Solarization and posterization of a number. */
MIRT__TRANSFORM_INLINE mirt__real mirt__transform_level(const mirt__transform *t, const mirt__real amount[2],
                                                        mirt__real x) {
    mirt__real v = mirt__transform_to_bytes(t, x);
    if (t->kind == MIRT_SOLARIZATION) {
        v = mirt__transform_clip(v + amount[0], 0, 255);
        v = v < amount[1] ? v : 255 - v;
    } else {
        const int bits = (int)amount[0];
        v = (mirt__real)((v > 0 ? v < 255 ? (int)v : 255 : 0) >> bits << bits);
    }
    return mirt__transform_of_bytes(t, v);
}

/* The bin of a number when levels are equalized. */
MIRT__TRANSFORM_INLINE int mirt__transform_bin(const mirt__transform *t, mirt__real x) {
    const mirt__real last = (mirt__real)(t->bins - 1), at = mirt__transform_to_bytes(t, x) * last / 255;
    return at > 0 ? at < last ? (int)at : t->bins - 1 : 0;
}

/* What the numbers of a channel become, by their bin, if `count` of them lie in each; false: all lie in one, and they
   stay. */
MIRT__BOTH bool mirt__transform_equalized(const mirt__transform *t, const int32_t *count, mirt__real *level) {
    int64_t total = 0, least = 0, sum = 0;
    for (int i = 0; i < t->bins; i++) {
        if (total == 0) least = count[i];
        total += count[i];
    }
    for (int i = 0; i < t->bins; i++) {
        sum += count[i];
        level[i] = mirt__transform_of_bytes(
            t, (mirt__real)(sum > least ? rint((double)((sum - least) * 255) / (double)(total - least)) : 0));
    }
    return total > least;
}

/* AugMix: what follows a number x of a chain that ended. *first is the image's number, *sum that of the chains. */
MIRT__TRANSFORM_INLINE mirt__real mirt__transform_mixed(const mirt__transform *t, const mirt__real share[2],
                                                        mirt__real x, mirt__real *first, mirt__real *sum) {
    if (t->size == 0) return *first = x;
    *sum = (t->size > 1 ? *sum : 0) + mirt__transform_times(share[0], x);
    if (t->size < t->bins) return *first;
    return mirt__transform_clip(mirt__transform_times(share[1], *first) + mirt__transform_times(1 - share[1], *sum),
                                (mirt__real)t->range[0], (mirt__real)t->range[1]);
}

/* CLAHE's bin of a number. */
MIRT__TRANSFORM_INLINE int mirt__transform_byte(const mirt__transform *t, mirt__real x) {
    const mirt__real at = mirt__transform_to_bytes(t, x);
    return at > 0 ? at < 255 ? (int)at : 255 : 0;
}

/* Rows or columns of each of `count` tiles of an image of `length`, and where one beyond its end is mirrored to. */
MIRT__BOTH int64_t mirt__transform_tile(int64_t length, int count) { return (length + count - 1) / count; }
MIRT__BOTH int64_t mirt__transform_mirrored(int64_t at, int64_t length) {
    return at < length ? at : 2 * length - 1 - at;
}

/* What the numbers of a tile become, by their bin, if `count` of them lie in each. */
MIRT__BOTH void mirt__transform_tile_levels(const mirt__transform *t, const int32_t *count, mirt__real *level) {
    const mirt__real pixels =
        (mirt__real)(mirt__transform_tile(t->h, t->bins) * mirt__transform_tile(t->w, t->size));
    const mirt__real limit = t->low[0] > 0 ? (mirt__real)t->low[0] * pixels / MIRT__TRANSFORM_BINS : pixels;
    mirt__real excess = 0, sum = 0, least = 0;
    for (int i = 0; i < MIRT__TRANSFORM_BINS; i++)
        excess += (mirt__real)count[i] > limit ? (mirt__real)count[i] - limit : 0;
    for (int i = 0; i < MIRT__TRANSFORM_BINS; i++) {
        sum += ((mirt__real)count[i] > limit ? limit : (mirt__real)count[i]) + excess / MIRT__TRANSFORM_BINS;
        if (i == 0) least = sum;
        level[i] = mirt__transform_clip((sum - least) * 255 / (pixels > least ? pixels - least : 1), 0, 255);
    }
}

/* Number x at (row, column) by the levels of a channel's tiles, between the four whose middles are nearest. */
MIRT__BOTH mirt__real mirt__transform_tiled(const mirt__transform *t, const mirt__real *level, int64_t row,
                                            int64_t column, mirt__real x) {
    const int64_t place[2] = {row, column}, length[2] = {t->h, t->w};
    const int count[2] = {t->bins, t->size}, bin = mirt__transform_byte(t, x);
    mirt__real share[2], value[2];
    int tile[2][2];
    for (int i = 0; i < 2; i++) {
        const mirt__real size = (mirt__real)mirt__transform_tile(length[i], count[i]),
                         at = ((mirt__real)place[i] - size / 2) / size + 1;
        const int below = (int)at, last = count[i] - 1;
        share[i] = at - (mirt__real)below;
        tile[i][0] = below > 0 ? below - 1 : 0;
        tile[i][1] = below < last ? below : last;
    }
    for (int i = 0; i < 2; i++) {
        const mirt__real *const across = level + (int64_t)tile[0][i] * count[1] * MIRT__TRANSFORM_BINS + bin;
        value[i] = mirt__transform_times(across[tile[1][0] * MIRT__TRANSFORM_BINS], 1 - share[1]) +
                   mirt__transform_times(across[tile[1][1] * MIRT__TRANSFORM_BINS], share[1]);
    }
    return mirt__transform_of_bytes(
        t, mirt__transform_times(value[0], 1 - share[0]) + mirt__transform_times(value[1], share[0]));
}

/* What makes y = (x - from) * factor + to of the numbers of a channel, clipped to [low, high]. */
typedef struct mirt__transform_line {
    mirt__real from, factor, to, low, high;
} mirt__transform_line;

/* `stat`: the channel's mean, or its least number, and `most` the greatest one. */
MIRT__BOTH mirt__transform_line mirt__transform_line_of(const mirt__transform *t, mirt__real amount, mirt__real stat,
                                                        mirt__real most) {
    mirt__transform_line l;
    l.low = (mirt__real)t->range[0];
    l.high = (mirt__real)t->range[1];
    l.from = l.to = 0;
    l.factor = 1;
    if (t->kind == MIRT_RANDOM_CONTRAST) {
        l.from = l.to = stat;
        l.factor = amount;
    } else if (t->kind == MIRT_RANDOM_BRIGHTNESS) {
        l.to = amount;
    } else if (t->kind == MIRT_RANDOM_INVERT || !(stat < most)) { /* not clipped */
        const bool inverts = t->kind == MIRT_RANDOM_INVERT;
        l.from = inverts ? l.high : 0;
        l.factor = inverts ? -1 : 1;
        l.low = -INFINITY;
        l.high = INFINITY;
    } else {
        l.from = stat;
        l.factor = (l.high - l.low) / (most - stat);
        l.to = l.low;
    }
    return l;
}

MIRT__TRANSFORM_INLINE mirt__real mirt__transform_linear_of(const mirt__transform_line *l, mirt__real x) {
    return mirt__transform_clip(mirt__transform_times(x - l->from, l->factor) + l->to, l->low, l->high);
}

/* Makes red, green and blue grayer; one channel is gray. */
MIRT__TRANSFORM_INLINE void mirt__transform_gray(const mirt__transform *t, mirt__real amount, mirt__real rgb[3]) {
    const mirt__real gray = t->c == 1 ? rgb[0]
                                      : mirt__transform_times(rgb[0], (mirt__real)0.2989) +
                                            mirt__transform_times(rgb[1], (mirt__real)0.587) +
                                            mirt__transform_times(rgb[2], (mirt__real)0.114);
    for (int j = 0; j < t->c; j++)
        rgb[j] = t->kind == MIRT_RANDOM_GRAYSCALE
                     ? gray
                     : mirt__transform_clip(rgb[j] + mirt__transform_times(amount, gray - rgb[j]),
                                            (mirt__real)t->range[0], (mirt__real)t->range[1]);
}

/* Changes red, green and blue: hue and saturation like TensorFlow's rgb_to_hsv and hsv_to_rgb. A pixel with a number
   that is not finite becomes NaN there. */
MIRT__TRANSFORM_INLINE void mirt__transform_color(const mirt__transform *t, mirt__real amount, mirt__real rgb[3]) {
    if (t->kind == MIRT_RANDOM_GRAYSCALE || t->kind == MIRT_RANDOM_COLOR_DEGENERATION) {
        mirt__transform_gray(t, amount, rgb);
        return;
    }
    const bool turns = t->kind == MIRT_RANDOM_HUE;
    const mirt__real low = turns ? (mirt__real)t->range[0] : 0,
                     span = turns ? (mirt__real)t->range[1] - (mirt__real)t->range[0] : 1,
                     r = (rgb[0] - low) / span, g = (rgb[1] - low) / span, b = (rgb[2] - low) / span;
    const mirt__real most = r > g ? (r > b ? r : b) : (g > b ? g : b),
                     least = r < g ? (r < b ? r : b) : (g < b ? g : b);
    const mirt__real range = most - least, sixth = (mirt__real)1 / 6, part = sixth / (range > 0 ? range : 1);
    const mirt__real nothing = (r + g + b) - (r + g + b);
    mirt__real s = most > 0 ? range / most : 0;
    mirt__real h = !(most > r) ? part * (g - b) : !(most > g) ? part * (b - r) + 2 * sixth : part * (r - g) + 4 * sixth;
    h = !(range > 0) ? 0 : h < 0 ? h + 1 : h;
    if (turns) {
        h += amount;
        h = h > 1 ? h - 1 : h;
        h = h < 0 ? h + 1 : h;
    } else {
        s = mirt__transform_clip(s * amount, (mirt__real)t->range[0], (mirt__real)t->range[1]);
    }
    h *= 6;
    const mirt__real from_red = h > 3 ? h - 3 : 3 - h, from_green = h > 2 ? h - 2 : 2 - h,
                     from_blue = h > 4 ? h - 4 : 4 - h;
    rgb[0] = (1 - s + s * mirt__transform_clip(from_red - 1, 0, 1)) * most + nothing;
    rgb[1] = (1 - s + s * mirt__transform_clip(2 - from_green, 0, 1)) * most + nothing;
    rgb[2] = (1 - s + s * mirt__transform_clip(2 - from_blue, 0, 1)) * most + nothing;
    for (int j = 0; j < 3 && turns; j++) rgb[j] = mirt__transform_clip(rgb[j], 0, 1) * span + low;
}

/* The pixels of one side of a part that has `share` of `length` and lies where `drawn` says: [out[0], out[1]). */
MIRT__BOTH void mirt__transform_side(double share, double drawn, int64_t length, int64_t out[2]) {
    const double size = share * (double)length, begin = drawn * ((double)length - size);
    for (int i = 0; i < 2; i++) {
        const int64_t at = (int64_t)ceil(i ? begin + size : begin);
        out[i] = at > length ? length : at;
    }
}

/* What is erased: rows [part[0], part[1]) and columns [part[2], part[3]). */
MIRT__BOTH void mirt__transform_part(const mirt__transform *t, const double drawn[4], int64_t part[4]) {
    mirt__transform_side(sqrt(mirt__transform_between(t, 1, drawn[1])), drawn[3], t->h, part);
    mirt__transform_side(sqrt(mirt__transform_between(t, 1, drawn[0])), drawn[2], t->w, part + 2);
}

/* What replaces a number of an erased image: its fill value, or a normal number in the range. */
MIRT__TRANSFORM_INLINE mirt__real mirt__transform_erased(const mirt__transform *t, mirt__real normal) {
    const mirt__real v = t->fill == MIRT_FILL_CONSTANT ? (mirt__real)t->value
                                                       : mirt__transform_times(normal, (mirt__real)t->range[1]);
    return mirt__transform_clip(v, (mirt__real)t->range[0], (mirt__real)t->range[1]);
}

/* y = center x + side (sum over the kernel down[] across[]), clipped; outside of the image is 0. */
typedef struct mirt__transform_filter {
    int reach; /* the kernel has 2 reach + 1 numbers to a side */
    mirt__real center, side, low, high, down[MIRT__TRANSFORM_TAPS], across[MIRT__TRANSFORM_TAPS];
} mirt__transform_filter;

/* An image that is not filtered. */
MIRT__TRANSFORM_INLINE mirt__real mirt__transform_unfiltered(const mirt__transform *t, mirt__real x) {
    return t->kind == MIRT_RANDOM_SHARPNESS
               ? x
               : mirt__transform_clip(x, (mirt__real)t->range[0], (mirt__real)t->range[1]);
}

/* Blurs, or moves towards a kernel of ones with 5 in the middle, over 13. */
MIRT__BOTH void mirt__transform_filter_of(const mirt__transform *t, const double drawn[4],
                                          mirt__transform_filter *out) {
    const bool blurs = t->kind == MIRT_RANDOM_GAUSSIAN_BLUR;
    const double towards = 1 - 2 * mirt__transform_between(t, 0, drawn[0]);
    out->reach = blurs ? t->size / 2 : 1;
    out->center = blurs ? 0 : (mirt__real)(1 - 9 * towards / 13);
    out->side = blurs ? 1 : (mirt__real)(towards / 13);
    out->low = (mirt__real)t->range[0];
    out->high = (mirt__real)t->range[1];
    for (int i = 0; i < 3; i++) out->down[i] = out->across[i] = 1;
    if (!blurs) return;
    mirt__transform_gauss(mirt__transform_between(t, 1, drawn[0]) + 1e-6, out->reach, out->across);
    mirt__transform_gauss(mirt__transform_between(t, 1, drawn[1]) + 1e-6, out->reach, out->down);
}

MIRT__TRANSFORM_INLINE mirt__real mirt__transform_filtered(const mirt__transform_filter *f, mirt__real x,
                                                           mirt__real sum) {
    return mirt__transform_clip(mirt__transform_times(f->center, x) + mirt__transform_times(f->side, sum), f->low,
                                f->high);
}

#undef MIRT__TRANSFORM_INLINE
#ifndef __CUDACC__
#include "optimize_end.inc"
#endif

/* >>elastic transforms: noise of an image, [h][2][w], moves x and y of its pixels */

#ifndef __CUDACC__
#include "optimize_drivers.inc"
#endif

typedef struct mirt__transform_elastic {
    double sigma; /* of the blur of the noise, in pixels */
    int reach;    /* its kernel has 2 reach + 1 numbers, at most as many as an image has columns */
    mirt__real by; /* pixels that blurred noise of 1 moves */
} mirt__transform_elastic;

MIRT__BOTH mirt__transform_elastic mirt__transform_elastic_of(const mirt__transform *t, const double drawn[4]) {
    const double scale = mirt__transform_between(t, 1, drawn[0]), h = (double)t->h, w = (double)t->w;
    mirt__transform_elastic e;
    e.sigma = (h < w ? h : w) * (0.05 * scale);
    e.reach = 3 * (int)e.sigma;
    e.by = (mirt__real)(e.sigma * ((h < w ? w : h) * (0.1 * scale)));
    return e;
}

/* The pixel of `length` that index `at` stands for, or -1: it is filled. */
MIRT__BOTH int64_t mirt__transform_index(mirt_fill_mode fill, int64_t at, int64_t length) {
    const int64_t period = fill == MIRT_FILL_REFLECT ? 2 * length : length;
    if (at >= 0 && at < length) return at;
    if (fill == MIRT_FILL_CONSTANT) return -1;
    if (fill == MIRT_FILL_NEAREST) return at < 0 ? 0 : length - 1;
    at %= period;
    at += at < 0 ? period : 0;
    return at < length ? at : period - 1 - at;
}

/* The pixels that (x, y) lies between, or -1, and their shares, which are 0 but for one if only the nearest is read. */
MIRT__BOTH void mirt__transform_neighbors(const mirt__transform *t, mirt__real x, mirt__real y, int64_t from[4],
                                          mirt__real share[4]) {
    for (int k = 0; k < 4; k++) {
        share[k] = 1;
        from[k] = 0;
        for (int i = 0; i < 2; i++) {
            const mirt__real at = (i ? x : y) + (t->nearest ? (mirt__real)0.5 : 0);
            const int64_t length = i ? t->w : t->h, whole = (int64_t)at, first = whole - (at < (mirt__real)whole);
            const int next = i ? k % 2 : k / 2;
            const mirt__real part = t->nearest ? 0 : at - (mirt__real)first;
            const int64_t index = mirt__transform_index(t->fill, first + next, length);
            share[k] *= next ? part : 1 - part;
            from[k] = index < 0 || from[k] < 0 ? -1 : from[k] * length + index;
        }
    }
}

#ifndef __CUDACC__
#include "optimize_end.inc"
#endif

#endif
