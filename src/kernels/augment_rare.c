/* Image transforms whose loops stay scalar: the quotients of a perspective, AugMix, CLAHE, elastic transforms. */

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

MIRT__LIB void mirt__augment_clahe(const mirt__transform *t, mirt__real *x, mirt__real *level) {
    const int64_t high = mirt__transform_tile(t->h, t->bins), wide = mirt__transform_tile(t->w, t->size);
    for (int64_t j = 0; j < t->c; j++) {
        for (int k = 0; k < t->bins * t->size; k++) {
            int32_t count[MIRT__TRANSFORM_BINS] = {0};
            for (int64_t i = 0; i < high * wide; i++) {
                const int64_t row = mirt__transform_mirrored(k / t->size * high + i / wide, t->h),
                              column = mirt__transform_mirrored(k % t->size * wide + i % wide, t->w);
                count[mirt__transform_byte(t, x[(row * t->w + column) * t->c + j])]++;
            }
            mirt__transform_tile_levels(t, count, level + (int64_t)k * MIRT__TRANSFORM_BINS);
        }
        for (int64_t i = 0; i < t->h * t->w; i++) {
            mirt__real *const at = x + i * t->c + j;
            *at = mirt__transform_tiled(t, level, i / t->w, i % t->w, *at);
        }
    }
}

MIRT__LIB void mirt__augment_elastic(const mirt__augment *a, const mirt__transform *t, const double drawn[4],
                                     const mirt__real *x, mirt__real *y, mirt__real *room) {
    const int64_t h = t->h, w = t->w, line = 2 * w;
    const mirt__transform_elastic e = mirt__transform_elastic_of(t, drawn);
    mirt__real *const noise = room, *const row = noise + h * line, *const kernel = row + line, share[4];
    int64_t from[4];
    mirt__transform_gauss(e.sigma, e.reach, kernel);
    mirt__augment_noise(a, t, 0, h * line, noise);
    for (int64_t i = 0; i < h * line; i += w) { /* across */
        memset(row, 0, (size_t)line * sizeof *row);
        memcpy(row + e.reach, noise + i, (size_t)w * sizeof *row);
        memset(noise + i, 0, (size_t)w * sizeof *row);
        for (int k = 0; k <= 2 * e.reach; k++) mirt__augment_add(noise + i, row + k, kernel[k], w);
    }
    for (int64_t i = 0; i < h * w; i++) {
        const int64_t oy = i / w, ox = i % w;
        if (ox == 0) { /* down, for this row */
            memset(row, 0, (size_t)line * sizeof *row);
            for (int k = 0; k <= 2 * e.reach; k++) {
                const int64_t from_row = oy + k - e.reach;
                if (from_row >= 0 && from_row < h) mirt__augment_add(row, noise + from_row * line, kernel[k], line);
            }
        }
        mirt__transform_neighbors(t, (mirt__real)ox + e.by * row[ox], (mirt__real)oy + e.by * row[w + ox], from, share);
        for (int64_t j = 0; j < t->c; j++) {
            mirt__real v = 0;
            for (int k = 0; k < 4; k++) {
                if (share[k] > 0) v += share[k] * (from[k] < 0 ? (mirt__real)t->value : x[from[k] * t->c + j]);
            }
            y[i * t->c + j] = mirt__transform_clip(v, (mirt__real)t->range[0], (mirt__real)t->range[1]);
        }
    }
}

#include "optimize_end.inc"
