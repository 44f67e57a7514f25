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
    const float *x = l->x + r * l->n;
    const int32_t label = ((const int32_t *)l->labels)[r];
    if (l->from_logits) {
        const float largest = mirt__common_max(x, l->n);
        return mirt__common_log_sum(simd, x, l->n, largest) - (x[label] - largest);
    }
    float sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__clipped(x[j]);
    return logf(sum) - logf(mirt__clipped(x[label]));
}

static float mirt__common_categorical_crossentropy(const mirt__simd *simd, const mirt__loss *l, int64_t r) {
    const float *x = l->x + r * l->n, *t = (const float *)l->labels + r * l->n;
    float loss = 0;
    if (l->from_logits) {
        const float largest = mirt__common_max(x, l->n), log_sum = mirt__common_log_sum(simd, x, l->n, largest);
        for (int64_t j = 0; j < l->n; j++) {
            if (t[j] != 0) loss += t[j] * (log_sum - (x[j] - largest));
        }
    } else {
        const float sum = mirt__common_total(x, l->n);
        for (int64_t j = 0; j < l->n; j++) {
            if (t[j] != 0) loss -= t[j] * logf(mirt__clipped(x[j] / sum));
        }
    }
    return loss;
}

/* Inlined, so that the loops contain the called function. */
MIRT__INLINE float mirt__common_mean(const mirt__loss *l, int64_t r,
                                     float (*element)(bool logits, float x, float t)) {
    const float *x = l->x + r * l->n, *t = (const float *)l->labels + r * l->n;
    float loss = 0;
    for (int64_t j = 0; j < l->n; j++) loss += element(l->from_logits, x[j], t[j]);
    return loss / (float)l->n;
}

/* The gradient of row r. */
static void mirt__common_sparse_categorical_crossentropy_grad(const mirt__simd *simd, const mirt__loss *l,
                                                              int64_t r) {
    const float *x = l->x + r * l->n, scale = l->dloss[r];
    const int32_t label = ((const int32_t *)l->labels)[r];
    float *dx = l->dx + r * l->n;
    if (l->from_logits) {
        mirt__common_softmax_row(simd, x, dx, l->n);
        dx[label] -= 1;
        for (int64_t j = 0; j < l->n; j++) dx[j] *= scale;
        return;
    }
    float sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__clipped(x[j]);
    for (int64_t j = 0; j < l->n; j++) {
        const float hit = j == label ? 1 / mirt__clipped(x[j]) : 0;
        dx[j] = mirt__is_clipped(x[j]) ? 0 : scale * (1 / sum - hit);
    }
}

static void mirt__common_categorical_crossentropy_grad(const mirt__simd *simd, const mirt__loss *l, int64_t r) {
    const float *x = l->x + r * l->n, *t = (const float *)l->labels + r * l->n, scale = l->dloss[r];
    float *dx = l->dx + r * l->n;
    if (l->from_logits) {
        const float total = mirt__common_total(t, l->n);
        mirt__common_softmax_row(simd, x, dx, l->n);
        for (int64_t j = 0; j < l->n; j++) dx[j] = scale * (dx[j] * total - t[j]);
        return;
    }
    const float sum = mirt__common_total(x, l->n);
    float total = 0;
    for (int64_t j = 0; j < l->n; j++) {
        const float q = x[j] / sum;
        dx[j] = mirt__is_clipped(q) ? 0 : -t[j] / q;
        total += dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) dx[j] = scale * ((dx[j] - total) / sum);
}

MIRT__INLINE void mirt__common_mean_grad(const mirt__loss *l, int64_t r,
                                         float (*element)(bool logits, float x, float t, float scale, float n)) {
    const float *x = l->x + r * l->n, *t = (const float *)l->labels + r * l->n;
    const float scale = l->dloss[r], n = (float)l->n;
    const bool logits = l->from_logits;
    float *dx = l->dx + r * l->n;
    for (int64_t j = 0, count = l->n; j < count; j++) dx[j] = element(logits, x[j], t[j], scale, n);
}

/* The labels of its row in MIRT_LOSS_LIST determine whether a loss is a function of rows, or the mean of a function of
   elements. */
#define MIRT__COMMON_SPARSE(name, grad) mirt__common_##name##grad(call->simd, l, r)
#define MIRT__COMMON_CATEGORICAL MIRT__COMMON_SPARSE
#define MIRT__COMMON_ELEMENTS(name, grad) mirt__common_mean##grad(l, r, mirt__##name##grad)
#define MIRT__COMMON_LOSS(kind, name, labels, activation) \
    case kind: \
        if (l->dx) MIRT__COMMON_##labels(name, _grad); \
        else l->loss[r] = MIRT__COMMON_##labels(name, ); \
        break;
/* Losses of rows, or gradients if there is a dx. */
static void mirt__common_loss_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_call *call = (const mirt__common_call *)args;
    const mirt__loss *l = (const mirt__loss *)call->args;
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        switch (l->kind) {
        MIRT_LOSS_LIST(MIRT__COMMON_LOSS)
        case MIRT_LOSS_NONE:
        case MIRT__LOSS_COUNT: break;
        }
    }
}
#undef MIRT__COMMON_SPARSE
#undef MIRT__COMMON_CATEGORICAL
#undef MIRT__COMMON_ELEMENTS
#undef MIRT__COMMON_LOSS

MIRT__LIB void mirt__fast_loss(const mirt__simd *simd, const mirt__loss *args, const mirt__where *where) {
    const mirt__common_call call = {args, simd};
    mirt__common_range(where, args->rows, mirt__common_step(args->n * 8), mirt__common_loss_rows, &call);
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
