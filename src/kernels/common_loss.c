/* Shared by the fast tables: softmax, losses and accuracy, row by row. The formulas are explained
   in reference_loss.c. */

#include "common.h"

#ifndef MIRT__REAL_DOUBLE
#include "optimize_begin.inc"

#define MIRT__SMALLEST 1e-7f
#define MIRT__LARGEST (1.0f - 1e-7f)

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

static float mirt__common_clipped(float p) {
    return p < MIRT__SMALLEST ? MIRT__SMALLEST : p > MIRT__LARGEST ? MIRT__LARGEST : p;
}

static bool mirt__common_is_clipped(float p) {
    return p < MIRT__SMALLEST || p > MIRT__LARGEST;
}

static void mirt__common_softmax_row(const mirt__curves *curves, const float *x, float *y, int64_t n) {
    const float largest = mirt__common_max(x, n);
    curves->exp(x, largest, y, n);
    const float sum = mirt__common_total(y, n);
    for (int64_t j = 0; j < n; j++) y[j] /= sum;
}

/* log(sum of exp(x)), less the largest x. */
static float mirt__common_log_sum(const mirt__curves *curves, const float *x, int64_t n, float largest) {
    float sum = 0, piece[256];
    for (int64_t j = 0; j < n; j += 256) {
        const int64_t count = n - j < 256 ? n - j : 256;
        curves->exp(x + j, largest, piece, count);
        for (int64_t i = 0; i < count; i++) sum += piece[i];
    }
    return logf(sum);
}

static void mirt__common_softmax_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_curved *curved = (const mirt__common_curved *)args;
    const mirt__softmax *s = (const mirt__softmax *)curved->args;
    (void)scratch;
    for (int64_t r = begin; r < end && s->n > 0; r++) {
        const float *x = s->x + r * s->n;
        float *y = s->y + r * s->n;
        if (s->log) {
            const float largest = mirt__common_max(x, s->n), log_sum = mirt__common_log_sum(curved->curves, x, s->n, largest);
            for (int64_t j = 0; j < s->n; j++) y[j] = x[j] - largest - log_sum;
        } else {
            mirt__common_softmax_row(curved->curves, x, y, s->n);
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

MIRT__LIB void mirt__common_softmax(const mirt__softmax *args, const mirt__where *where, const mirt__curves *curves) {
    const mirt__common_curved curved = {args, curves};
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_softmax_rows, &curved);
}

MIRT__LIB void mirt__common_softmax_grad(const mirt__softmax *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_softmax_back, args);
}

static float mirt__common_sparse(const mirt__curves *curves, const mirt__loss *l, const float *x, int32_t label) {
    if (l->from_logits) {
        const float largest = mirt__common_max(x, l->n);
        return mirt__common_log_sum(curves, x, l->n, largest) - (x[label] - largest);
    }
    float sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__common_clipped(x[j]);
    return logf(sum) - logf(mirt__common_clipped(x[label]));
}

static float mirt__common_categorical(const mirt__curves *curves, const mirt__loss *l, const float *x, const float *t) {
    float loss = 0;
    if (l->from_logits) {
        const float largest = mirt__common_max(x, l->n), log_sum = mirt__common_log_sum(curves, x, l->n, largest);
        for (int64_t j = 0; j < l->n; j++) {
            if (t[j] != 0) loss += t[j] * (log_sum - (x[j] - largest));
        }
    } else {
        const float sum = mirt__common_total(x, l->n);
        for (int64_t j = 0; j < l->n; j++) {
            if (t[j] != 0) loss -= t[j] * logf(mirt__common_clipped(x[j] / sum));
        }
    }
    return loss;
}

static float mirt__common_binary_loss(const mirt__loss *l, const float *x, const float *t) {
    float loss = 0;
    for (int64_t j = 0; j < l->n; j++) {
        if (l->from_logits) {
            loss += (x[j] > 0 ? x[j] : 0) - x[j] * t[j] + log1pf(expf(-fabsf(x[j])));
        } else {
            const float p = mirt__common_clipped(x[j]);
            loss -= t[j] * logf(p) + (1 - t[j]) * logf(1 - p);
        }
    }
    return loss / (float)l->n;
}

static float mirt__common_squared(const mirt__loss *l, const float *x, const float *t) {
    float loss = 0;
    for (int64_t j = 0; j < l->n; j++) loss += (x[j] - t[j]) * (x[j] - t[j]);
    return loss / (float)l->n;
}

static void mirt__common_loss_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_curved *curved = (const mirt__common_curved *)args;
    const mirt__loss *l = (const mirt__loss *)curved->args;
    const float *labels = (const float *)l->labels;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = l->x + r * l->n;
        switch (l->kind) {
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            l->loss[r] = mirt__common_sparse(curved->curves, l, x, ((const int32_t *)l->labels)[r]);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: l->loss[r] = mirt__common_categorical(curved->curves, l, x, labels + r * l->n); break;
        case MIRT_BINARY_CROSSENTROPY: l->loss[r] = mirt__common_binary_loss(l, x, labels + r * l->n); break;
        default: l->loss[r] = mirt__common_squared(l, x, labels + r * l->n); break;
        }
    }
}

/* In the gradients `scale` is the loss's own gradient. */
static void mirt__common_sparse_grad(const mirt__curves *curves, const mirt__loss *l, const float *x, int32_t label, float scale, float *dx) {
    if (l->from_logits) {
        mirt__common_softmax_row(curves, x, dx, l->n);
        dx[label] -= 1;
        for (int64_t j = 0; j < l->n; j++) dx[j] *= scale;
        return;
    }
    float sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__common_clipped(x[j]);
    for (int64_t j = 0; j < l->n; j++) {
        const float hit = j == label ? 1 / mirt__common_clipped(x[j]) : 0;
        dx[j] = mirt__common_is_clipped(x[j]) ? 0 : scale * (1 / sum - hit);
    }
}

static void mirt__common_categorical_grad(const mirt__curves *curves, const mirt__loss *l, const float *x, const float *t, float scale, float *dx) {
    if (l->from_logits) {
        const float total = mirt__common_total(t, l->n);
        mirt__common_softmax_row(curves, x, dx, l->n);
        for (int64_t j = 0; j < l->n; j++) dx[j] = scale * (dx[j] * total - t[j]);
        return;
    }
    const float sum = mirt__common_total(x, l->n);
    float total = 0;
    for (int64_t j = 0; j < l->n; j++) {
        const float q = x[j] / sum;
        dx[j] = mirt__common_is_clipped(q) ? 0 : -t[j] / q;
        total += dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) dx[j] = scale * ((dx[j] - total) / sum);
}

static void mirt__common_binary_loss_grad(const mirt__loss *l, const float *x, const float *t, float scale, float *dx) {
    const float share = scale / (float)l->n;
    for (int64_t j = 0; j < l->n; j++) {
        if (l->from_logits) dx[j] = share * (1 / (1 + expf(-x[j])) - t[j]);
        else dx[j] = mirt__common_is_clipped(x[j]) ? 0 : share * ((1 - t[j]) / (1 - x[j]) - t[j] / x[j]);
    }
}

static void mirt__common_loss_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_curved *curved = (const mirt__common_curved *)args;
    const mirt__loss *l = (const mirt__loss *)curved->args;
    const float *labels = (const float *)l->labels;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = l->x + r * l->n, scale = l->dloss[r];
        float *dx = l->dx + r * l->n;
        switch (l->kind) {
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            mirt__common_sparse_grad(curved->curves, l, x, ((const int32_t *)l->labels)[r], scale, dx);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: mirt__common_categorical_grad(curved->curves, l, x, labels + r * l->n, scale, dx); break;
        case MIRT_BINARY_CROSSENTROPY: mirt__common_binary_loss_grad(l, x, labels + r * l->n, scale, dx); break;
        default:
            for (int64_t j = 0; j < l->n; j++) dx[j] = scale * (2 * (x[j] - labels[r * l->n + j]) / (float)l->n);
        }
    }
}

MIRT__LIB void mirt__common_loss(const mirt__loss *args, const mirt__where *where, const mirt__curves *curves) {
    const mirt__common_curved curved = {args, curves};
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_loss_rows, &curved);
}

MIRT__LIB void mirt__common_loss_grad(const mirt__loss *args, const mirt__where *where, const mirt__curves *curves) {
    const mirt__common_curved curved = {args, curves};
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_loss_back, &curved);
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

#undef MIRT__SMALLEST
#undef MIRT__LARGEST
#include "optimize_end.inc"
#endif
