/* Shared by the fast tables: softmax, losses and accuracy, row by row. The formulas are explained
   in reference_loss.c. */

#include "common.h"
#include "loss_elements.h"

#include "optimize_begin.inc"

static float mirt__common_max(const float *x, int64_t n) {
    float best = x[0];
    for (int64_t j = 1; j < n; j++) best = x[j] > best ? x[j] : best;
    return best;
}

static int64_t mirt__common_argmax(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) best = x[j] > x[best] ? j : best;
    return best;
}

static float mirt__common_total(const float *x, int64_t n) {
    float sum = 0;
    for (int64_t j = 0; j < n; j++) sum += x[j];
    return sum;
}

static void mirt__common_softmax_row(const mirt__simd *simd, const float *x, float *y, int64_t n) {
    const float largest = mirt__common_max(x, n);
    simd->exp(x, largest, y, n);
    const float sum = mirt__common_total(y, n);
    for (int64_t j = 0; j < n; j++) y[j] /= sum;
}

/* log(sum of exp(x)) minus the largest x. */
static float mirt__common_log_sum(const mirt__simd *simd, const float *x, int64_t n, float largest) {
    float sum = 0, piece[256];
    for (int64_t j = 0; j < n; j += 256) {
        const int64_t count = mirt__min(n - j, 256);
        simd->exp(x + j, largest, piece, count);
        for (int64_t i = 0; i < count; i++) sum += piece[i];
    }
    return logf(sum);
}

static void mirt__common_softmax_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_call *call = (const mirt__common_call *)args;
    const mirt__softmax *s = (const mirt__softmax *)call->args;
    (void)scratch;
    for (int64_t r = begin; r < end && s->n > 0; r++) {
        const float *x = s->x + r * s->n;
        float *y = s->y + r * s->n;
        if (s->log) {
            const float largest = mirt__common_max(x, s->n),
                        log_sum = mirt__common_log_sum(call->simd, x, s->n, largest);
            for (int64_t j = 0; j < s->n; j++) y[j] = x[j] - largest - log_sum;
        } else {
            mirt__common_softmax_row(call->simd, x, y, s->n);
        }
    }
}

static void mirt__common_softmax_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__softmax *s = (const mirt__softmax *)args;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *p = s->x + r * s->n, *dy = s->dy + r * s->n;
        float *dx = s->y + r * s->n, sum = 0;
        for (int64_t j = 0; j < s->n; j++) sum += s->log ? dy[j] : dy[j] * p[j];
        for (int64_t j = 0; j < s->n; j++) dx[j] = s->log ? dy[j] - expf(p[j]) * sum : p[j] * (dy[j] - sum);
    }
}

MIRT__LIB void mirt__fast_softmax(const mirt__simd *simd, const mirt__softmax *args, const mirt__where *where) {
    const mirt__common_call call = {args, simd};
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_softmax_rows, &call);
}

MIRT__LIB void mirt__common_softmax_grad(const mirt__softmax *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_softmax_back, args);
}

/* The loss of row r. */
static float mirt__common_sparse_categorical_crossentropy(const mirt__simd *simd, const mirt__loss *l, int64_t r) {
    const float *x = l->x + r * l->n, s = l->how.label_smoothing;
    const int32_t label = ((const int32_t *)l->labels)[r];
    const float at = label >= 0 && label < l->n ? x[label] : NAN;
    float sum = 0, even = 0; /* the sum of log probabilities, up to log_sum */
    if (mirt__is_ignored(&l->how, label)) return 0;
    if (l->how.from_logits) {
        const float largest = mirt__common_max(x, l->n), log_sum = mirt__common_log_sum(simd, x, l->n, largest);
        for (int64_t j = 0; s != 0 && j < l->n; j++) even += x[j] - largest;
        return log_sum - ((1 - s) * (at - largest) + s / (float)l->n * even);
    }
    for (int64_t j = 0; j < l->n; j++) sum += mirt__clipped(x[j]);
    for (int64_t j = 0; s != 0 && j < l->n; j++) even += logf(mirt__clipped(x[j]));
    return logf(sum) - ((1 - s) * logf(mirt__clipped(at)) + s / (float)l->n * even);
}

static float mirt__common_categorical_crossentropy(const mirt__simd *simd, const mirt__loss *l, int64_t r) {
    const float *x = l->x + r * l->n, *label = (const float *)l->labels + r * l->n, even = 1 / (float)l->n;
    float loss = 0;
    if (l->how.from_logits) {
        const float largest = mirt__common_max(x, l->n), log_sum = mirt__common_log_sum(simd, x, l->n, largest);
        for (int64_t j = 0; j < l->n; j++) {
            const float t = mirt__smoothed(&l->how, label[j], even);
            if (t != 0) loss += t * (log_sum - (x[j] - largest));
        }
    } else {
        const float sum = mirt__common_total(x, l->n);
        for (int64_t j = 0; j < l->n; j++) {
            const float t = mirt__smoothed(&l->how, label[j], even);
            if (t != 0) loss -= t * logf(mirt__clipped(x[j] / sum));
        }
    }
    return loss;
}

/* The gradient of row r. */
static void mirt__common_sparse_categorical_crossentropy_grad(const mirt__simd *simd, const mirt__loss *l,
                                                              int64_t r) {
    const float *x = l->x + r * l->n, scale = l->dloss[r], s = l->how.label_smoothing, even = s / (float)l->n;
    const int32_t label = ((const int32_t *)l->labels)[r];
    float *dx = l->dx + r * l->n, sum = 0;
    if (mirt__is_ignored(&l->how, label)) {
        memset(dx, 0, (size_t)l->n * sizeof *dx);
        return;
    }
    if (l->how.from_logits) {
        mirt__common_softmax_row(simd, x, dx, l->n);
        for (int64_t j = 0; s != 0 && j < l->n; j++) dx[j] -= even;
        if (label >= 0 && label < l->n) dx[label] -= 1 - s;
        for (int64_t j = 0; j < l->n; j++) dx[j] *= scale;
        return;
    }
    for (int64_t j = 0; j < l->n; j++) sum += mirt__clipped(x[j]);
    for (int64_t j = 0; j < l->n; j++) {
        const float hit = ((j == label ? 1 - s : 0) + even) / mirt__clipped(x[j]);
        dx[j] = mirt__is_clipped(x[j]) ? 0 : scale * (1 / sum - hit);
    }
}

static void mirt__common_categorical_crossentropy_grad(const mirt__simd *simd, const mirt__loss *l, int64_t r) {
    const float *x = l->x + r * l->n, *label = (const float *)l->labels + r * l->n, scale = l->dloss[r];
    const float even = 1 / (float)l->n;
    float *dx = l->dx + r * l->n, total = 0;
    if (l->how.from_logits) {
        for (int64_t j = 0; j < l->n; j++) total += mirt__smoothed(&l->how, label[j], even);
        mirt__common_softmax_row(simd, x, dx, l->n);
        for (int64_t j = 0; j < l->n; j++) dx[j] = scale * (dx[j] * total - mirt__smoothed(&l->how, label[j], even));
        return;
    }
    const float sum = mirt__common_total(x, l->n);
    for (int64_t j = 0; j < l->n; j++) {
        const float q = x[j] / sum;
        dx[j] = mirt__is_clipped(q) ? 0 : -mirt__smoothed(&l->how, label[j], even) / q;
        total += dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) dx[j] = scale * ((dx[j] - total) / sum);
}

/* Inlined, so that the loops contain the called function; the copy of the options cannot be what dx points to. */
MIRT__INLINE void mirt__common_mean(const mirt__loss *l, int64_t r,
                                    float (*element)(const mirt_loss_options *how, float x, float t),
                                    float (*grad)(const mirt_loss_options *how, float x, float t, float scale,
                                                  float n)) {
    const float *x = l->x + r * l->n, *t = (const float *)l->labels + r * l->n, n = (float)l->n;
    const mirt_loss_options how = l->how;
    float loss = 0;
    if (l->dx) {
        const float scale = l->dloss[r];
        float *dx = l->dx + r * l->n;
        for (int64_t j = 0, count = l->n; j < count; j++) dx[j] = grad(&how, x[j], t[j], scale, n);
        return;
    }
    for (int64_t j = 0; j < l->n; j++) loss += element(&how, x[j], t[j]);
    l->loss[r] = loss / n;
}

/* Losses of rows, or gradients if there is a dx. */
static void mirt__common_loss_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_call *call = (const mirt__common_call *)args;
    const mirt__loss *l = (const mirt__loss *)call->args;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        switch (l->kind) {
        case MIRT_CIRCLE: mirt__circle_row(l, r); break;
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            if (l->dx) mirt__common_sparse_categorical_crossentropy_grad(call->simd, l, r);
            else l->loss[r] = mirt__common_sparse_categorical_crossentropy(call->simd, l, r);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY:
            if (l->dx) mirt__common_categorical_crossentropy_grad(call->simd, l, r);
            else l->loss[r] = mirt__common_categorical_crossentropy(call->simd, l, r);
            break;
        case MIRT_BINARY_CROSSENTROPY:
            mirt__common_mean(l, r, mirt__binary_crossentropy, mirt__binary_crossentropy_grad);
            break;
        default: mirt__common_mean(l, r, mirt__mean_squared_error, mirt__mean_squared_error_grad);
        }
    }
}

MIRT__LIB void mirt__fast_loss(const mirt__simd *simd, const mirt__loss *args, const mirt__where *where) {
    const mirt__common_call call = {args, simd};
    const int64_t again = args->kind == MIRT_CIRCLE ? args->rows : 8; /* how often a row is read */
    mirt__common_range(where, args->rows, mirt__common_step(args->n * again), mirt__common_loss_rows, &call);
}

static void mirt__common_accuracy_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__accuracy *a = (const mirt__accuracy *)args;
    const float *labels = (const float *)a->labels;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->x + r * a->n;
        float right = 0;
        switch (a->kind) {
        case MIRT__ACCURACY_SPARSE: right = mirt__common_argmax(x, a->n) == ((const int32_t *)a->labels)[r]; break;
        case MIRT__ACCURACY_CATEGORICAL:
            right = mirt__common_argmax(x, a->n) == mirt__common_argmax(labels + r * a->n, a->n);
            break;
        case MIRT__ACCURACY_BINARY:
            for (int64_t j = 0; j < a->n; j++) right += labels[r * a->n + j] == (x[j] > 0.5f ? 1.0f : 0.0f);
            right /= (float)a->n;
            break;
        }
        a->y[r] = right;
    }
}

MIRT__LIB void mirt__common_accuracy(const mirt__accuracy *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_accuracy_rows, args);
}

#include "optimize_end.inc"
