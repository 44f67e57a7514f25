/* Reference: softmax, losses and accuracy. */

#include "reference.h"

static mirt__real mirt__ref_max(const mirt__real *x, int64_t n) {
    mirt__real best = x[0];
    for (int64_t j = 1; j < n; j++) best = x[j] > best ? x[j] : best;
    return best;
}

/* The index of the first of the largest elements. */
static int64_t mirt__ref_argmax(const mirt__real *x, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) best = x[j] > x[best] ? j : best;
    return best;
}

MIRT__LIB void mirt__ref_softmax(const mirt__softmax *s) {
    for (int64_t r = 0; s->n > 0 && r < s->rows; r++) {
        const mirt__real *x = s->x + r * s->n;
        mirt__real *y = s->y + r * s->n, best = mirt__ref_max(x, s->n), sum = 0;
        for (int64_t j = 0; j < s->n; j++) {
            y[j] = mirt__exp(x[j] - best); /* the largest becomes 1, so nothing overflows */
            sum += y[j];
        }
        for (int64_t j = 0; j < s->n; j++) y[j] = s->log ? x[j] - best - mirt__ln(sum) : y[j] / sum;
    }
}

MIRT__LIB void mirt__ref_softmax_grad(const mirt__softmax *s) {
    for (int64_t r = 0; r < s->rows; r++) {
        const mirt__real *p = s->x + r * s->n, *dy = s->dy + r * s->n;
        double sum = 0;
        for (int64_t j = 0; j < s->n; j++) sum += s->log ? (double)dy[j] : (double)dy[j] * p[j];
        for (int64_t j = 0; j < s->n; j++) {
            s->y[r * s->n + j] = s->log ? dy[j] - mirt__exp(p[j]) * (mirt__real)sum : p[j] * (dy[j] - (mirt__real)sum);
        }
    }
}

/* Probabilities of 0 and 1 would have infinite logarithms. */
static const mirt__real mirt__ref_smallest = (mirt__real)1e-7, mirt__ref_largest = (mirt__real)(1 - 1e-7);

static mirt__real mirt__ref_clip(mirt__real p) {
    return p < mirt__ref_smallest ? mirt__ref_smallest : p > mirt__ref_largest ? mirt__ref_largest : p;
}

/* The derivative of mirt__ref_clip. */
static mirt__real mirt__ref_unclipped(mirt__real p) {
    return p < mirt__ref_smallest || p > mirt__ref_largest ? (mirt__real)0 : (mirt__real)1;
}

/* log(sum of exp(x)) minus the largest x. */
static mirt__real mirt__ref_log_sum(const mirt__real *x, int64_t n, mirt__real largest) {
    mirt__real sum = 0;
    for (int64_t j = 0; j < n; j++) sum += mirt__exp(x[j] - largest);
    return mirt__ln(sum);
}

/* -log of the probability of the label of row r. Keras normalizes clipped probabilities again. */
static mirt__real mirt__ref_sparse_categorical_crossentropy(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n;
    const int32_t label = ((const int32_t *)l->labels)[r];
    if (l->from_logits) {
        mirt__real largest = mirt__ref_max(x, l->n);
        return mirt__ref_log_sum(x, l->n, largest) - (x[label] - largest);
    }
    mirt__real sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += mirt__ref_clip(x[j]);
    return mirt__ln(sum) - mirt__ln(mirt__ref_clip(x[label]));
}

/* d loss / d x of row r, into dx. */
static void mirt__ref_sparse_categorical_crossentropy_grad(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n;
    const int32_t label = ((const int32_t *)l->labels)[r];
    mirt__real *dx = l->dx + r * l->n, largest = mirt__ref_max(x, l->n), sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += l->from_logits ? mirt__exp(x[j] - largest) : mirt__ref_clip(x[j]);
    for (int64_t j = 0; j < l->n; j++) {
        mirt__real hit = j == label ? (mirt__real)1 : (mirt__real)0;
        if (l->from_logits) {
            dx[j] = mirt__exp(x[j] - largest) / sum - hit;
        } else {
            dx[j] = mirt__ref_unclipped(x[j]) * (1 / sum - hit / mirt__ref_clip(x[j]));
        }
    }
}

/* The sum of -t * log of the probability of each class; classes with t = 0 are ignored. */
static mirt__real mirt__ref_categorical_crossentropy(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    mirt__real loss = 0;
    if (l->from_logits) {
        mirt__real largest = mirt__ref_max(x, l->n), log_sum = mirt__ref_log_sum(x, l->n, largest);
        for (int64_t j = 0; j < l->n; j++) loss += t[j] == 0 ? 0 : t[j] * (log_sum - (x[j] - largest));
        return loss;
    }
    mirt__real sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += x[j];
    for (int64_t j = 0; j < l->n; j++) loss -= t[j] * mirt__ln(mirt__ref_clip(x[j] / sum));
    return loss;
}

static void mirt__ref_categorical_crossentropy_grad(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    mirt__real *dx = l->dx + r * l->n, largest = mirt__ref_max(x, l->n), sum = 0, total = 0;
    for (int64_t j = 0; j < l->n; j++) sum += l->from_logits ? mirt__exp(x[j] - largest) : x[j];
    if (l->from_logits) {
        for (int64_t j = 0; j < l->n; j++) total += t[j];
        for (int64_t j = 0; j < l->n; j++) dx[j] = mirt__exp(x[j] - largest) / sum * total - t[j];
        return;
    }
    /* With q = x / sum and g = d loss / d q: dx = (g - sum of g q) / sum. */
    for (int64_t j = 0; j < l->n; j++) {
        mirt__real q = x[j] / sum;
        dx[j] = -t[j] / mirt__ref_clip(q) * mirt__ref_unclipped(q);
        total += dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) dx[j] = (dx[j] - total) / sum;
}

/* Losses of ELEMENTS: the function whose mean is the loss, and its derivative by x. `logits`: x goes into the
   activation of MIRT_LOSS_LIST first. */

/* -(t log p + (1 - t) log(1 - p)); from logits in the form that cannot overflow. */
static mirt__real mirt__ref_binary_crossentropy(bool logits, mirt__real x, mirt__real t) {
    if (logits) return (x > 0 ? x : 0) - x * t + mirt__log1p(mirt__exp(-mirt__fabs(x)));
    const mirt__real p = mirt__ref_clip(x);
    return -(t * mirt__ln(p) + (1 - t) * mirt__ln(1 - p));
}
static mirt__real mirt__ref_binary_crossentropy_grad(bool logits, mirt__real x, mirt__real t) {
    if (logits) return mirt__ref_activate(MIRT_SIGMOID, x) - t;
    const mirt__real p = mirt__ref_clip(x);
    return mirt__ref_unclipped(x) * ((1 - t) / (1 - p) - t / p);
}

static mirt__real mirt__ref_mean_squared_error(bool logits, mirt__real x, mirt__real t) {
    (void)logits;
    return (x - t) * (x - t);
}
static mirt__real mirt__ref_mean_squared_error_grad(bool logits, mirt__real x, mirt__real t) {
    (void)logits;
    return 2 * (x - t);
}

typedef mirt__real (*mirt__ref_element)(bool logits, mirt__real x, mirt__real t);

static mirt__real mirt__ref_mean(const mirt__loss *l, int64_t r, mirt__ref_element element) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    mirt__real loss = 0;
    for (int64_t j = 0; j < l->n; j++) loss += element(l->from_logits, x[j], t[j]);
    return loss / (mirt__real)l->n;
}

static void mirt__ref_mean_grad(const mirt__loss *l, int64_t r, mirt__ref_element grad) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    for (int64_t j = 0; j < l->n; j++) l->dx[r * l->n + j] = grad(l->from_logits, x[j], t[j]) / (mirt__real)l->n;
}

#define MIRT__REF_SPARSE(name, grad) mirt__ref_##name##grad(l, r)
#define MIRT__REF_CATEGORICAL MIRT__REF_SPARSE
#define MIRT__REF_ELEMENTS(name, grad) mirt__ref_mean##grad(l, r, mirt__ref_##name##grad)
#define MIRT__REF_LOSS(kind, name, labels, activation) \
    case kind: \
        if (l->dx) MIRT__REF_##labels(name, _grad); \
        else l->loss[r] = MIRT__REF_##labels(name, ); \
        break;
MIRT__LIB void mirt__ref_loss(const mirt__loss *l) {
    for (int64_t r = 0; r < l->rows; r++) {
        switch (l->kind) {
        MIRT_LOSS_LIST(MIRT__REF_LOSS)
        case MIRT_LOSS_NONE:
        case MIRT__LOSS_COUNT: break;
        }
        for (int64_t j = 0; l->dx && j < l->n; j++) l->dx[r * l->n + j] *= l->dloss[r];
    }
}
#undef MIRT__REF_SPARSE
#undef MIRT__REF_CATEGORICAL
#undef MIRT__REF_ELEMENTS
#undef MIRT__REF_LOSS

MIRT__LIB void mirt__ref_accuracy(const mirt__accuracy *a) {
    const mirt__real *labels = (const mirt__real *)a->labels;
    for (int64_t r = 0; r < a->rows; r++) {
        const mirt__real *x = a->x + r * a->n;
        mirt__real right = 0;
        switch (a->kind) {
        case MIRT__ACCURACY_SPARSE: right = mirt__ref_argmax(x, a->n) == ((const int32_t *)a->labels)[r]; break;
        case MIRT__ACCURACY_CATEGORICAL:
            right = mirt__ref_argmax(x, a->n) == mirt__ref_argmax(labels + r * a->n, a->n);
            break;
        case MIRT__ACCURACY_BINARY:
            for (int64_t j = 0; j < a->n; j++) right += labels[r * a->n + j] == (x[j] > (mirt__real)0.5 ? 1 : 0);
            right /= (mirt__real)a->n;
            break;
        }
        a->y[r] = right;
    }
}
