/* Reference: batch and layer normalization. */

#include "reference.h"

static int64_t mirt__ref_norm_of(const mirt__norm *s, int64_t row, int64_t j) { return s->by_row ? row : j; }

static mirt__real mirt__ref_norm_inverse(const mirt__norm *s, int64_t row, int64_t j) {
    return 1 / mirt__sqrt(s->variance[mirt__ref_norm_of(s, row, j)] + (mirt__real)s->epsilon);
}

static mirt__real mirt__ref_norm_hat(const mirt__norm *s, int64_t row, int64_t j) {
    return (((const mirt__real *)s->x)[row * s->n + j] - s->mean[mirt__ref_norm_of(s, row, j)]) *
           mirt__ref_norm_inverse(s, row, j);
}

static mirt__real mirt__ref_norm_u(const mirt__norm *s, int64_t row, int64_t j) {
    mirt__real u = mirt__ref_norm_hat(s, row, j);
    if (s->gamma) u *= s->gamma[j];
    return s->beta ? u + s->beta[j] : u;
}

/* The gradient through the activation. */
static mirt__real mirt__ref_norm_dy(const mirt__norm *s, int64_t row, int64_t j) {
    const mirt__real dy = ((const mirt__real *)s->dy)[row * s->n + j];
    return s->activation == MIRT_LINEAR ? dy : dy * mirt__ref_slope(s->activation, mirt__ref_norm_u(s, row, j));
}

/* The gradient of hat. */
static mirt__real mirt__ref_norm_dhat(const mirt__norm *s, int64_t row, int64_t j) {
    return s->gamma ? mirt__ref_norm_dy(s, row, j) * s->gamma[j] : mirt__ref_norm_dy(s, row, j);
}

MIRT__LIB void mirt__ref_norm_stats(const mirt__norm *s) {
    const int64_t outputs = s->by_row ? s->rows : s->n, count = s->by_row ? s->n : s->rows, step = s->by_row ? 1 : s->n;
    for (int64_t i = 0; i < outputs; i++) {
        const mirt__real *x = (const mirt__real *)s->x + (s->by_row ? i * s->n : i);
        double mean = 0, variance = 0;
        for (int64_t k = 0; k < count; k++) mean += x[k * step];
        if (count > 0) mean /= (double)count;
        for (int64_t k = 0; k < count; k++) variance += (x[k * step] - mean) * (x[k * step] - mean);
        if (count > 0) variance /= (double)count;
        s->out[0][i] = (mirt__real)mean;
        s->out[1][i] = (mirt__real)variance;
    }
}

MIRT__LIB void mirt__ref_normalize(const mirt__norm *s) {
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t j = 0; j < s->n; j++) {
            const int64_t at = row * s->n + j;
            mirt__real u = mirt__ref_norm_u(s, row, j);
            if (s->add) u += ((const mirt__real *)s->add)[at];
            ((mirt__real *)s->y)[at] = mirt__ref_activate(s->activation, u);
        }
    }
}

MIRT__LIB void mirt__ref_norm_grad_sums(const mirt__norm *s) {
    for (int64_t j = 0; j < s->n; j++) {
        double sum = 0, product = 0;
        for (int64_t row = 0; row < s->rows; row++) {
            const double dy = mirt__ref_norm_dy(s, row, j);
            sum += dy;
            product += dy * mirt__ref_norm_hat(s, row, j);
        }
        s->out[0][j] = (mirt__real)sum;
        s->out[1][j] = (mirt__real)product;
    }
}

/* d hat minus the part of the statistics: its mean, and its projection on hat. */
static void mirt__ref_norm_back_row(const mirt__norm *s, int64_t row) {
    double sum = 0, product = 0;
    for (int64_t j = 0; j < s->n; j++) {
        sum += mirt__ref_norm_dhat(s, row, j);
        product += mirt__ref_norm_dhat(s, row, j) * mirt__ref_norm_hat(s, row, j);
    }
    const mirt__real mean = (mirt__real)(sum / (double)s->n), part = (mirt__real)(product / (double)s->n);
    for (int64_t j = 0; j < s->n; j++) {
        ((mirt__real *)s->y)[row * s->n + j] =
            (mirt__ref_norm_dhat(s, row, j) - mean - mirt__ref_norm_hat(s, row, j) * part) *
            mirt__ref_norm_inverse(s, row, j);
    }
}

MIRT__LIB void mirt__ref_norm_grad_input(const mirt__norm *s) {
    for (int64_t row = 0; row < s->rows; row++) {
        if (s->by_row) {
            mirt__ref_norm_back_row(s, row);
            continue;
        }
        for (int64_t j = 0; j < s->n; j++) {
            mirt__real dhat = mirt__ref_norm_dhat(s, row, j);
            if (s->sum[0]) {
                const mirt__real away =
                    (mirt__real)((s->sum[0][j] + mirt__ref_norm_hat(s, row, j) * s->sum[1][j]) / s->count);
                dhat -= s->gamma ? away * s->gamma[j] : away;
            }
            ((mirt__real *)s->y)[row * s->n + j] = dhat * mirt__ref_norm_inverse(s, row, j);
        }
    }
}
