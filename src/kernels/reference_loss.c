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

/* Options as mirt__real. */
static mirt__real mirt__ref_smoothing(const mirt__loss *l) { return (mirt__real)l->how.label_smoothing; }

/* The share of class j in the label of row r, of which label_smoothing is dealt to all classes alike. */
static mirt__real mirt__ref_target(const mirt__loss *l, int64_t r, int64_t j) {
    const mirt__real s = mirt__ref_smoothing(l);
    const bool sparse = l->kind == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    const mirt__real t = sparse ? (mirt__real)(j == ((const int32_t *)l->labels)[r])
                                : ((const mirt__real *)l->labels)[r * l->n + j];
    return t * (1 - s) + s / (mirt__real)l->n;
}

/* The crossentropy of row r: the sum of -t * log of the probability of each class; classes with t = 0 are ignored.
   Keras divides probabilities by their sum after clipping them where labels are class numbers, and before it
   otherwise. */
static void mirt__ref_crossentropy(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n, largest = mirt__ref_max(x, l->n);
    const bool logits = l->how.from_logits, sparse = l->kind == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    mirt__real sum = 0;
    l->loss[r] = 0;
    if (sparse && l->how.has_ignore_class && ((const int32_t *)l->labels)[r] == l->how.ignore_class) return;
    for (int64_t j = 0; j < l->n; j++)
        sum += logits ? mirt__exp(x[j] - largest) : sparse ? mirt__ref_clip(x[j]) : x[j];
    for (int64_t j = 0; j < l->n; j++) {
        const mirt__real t = mirt__ref_target(l, r, j);
        if (t == 0) continue;
        if (logits) l->loss[r] += t * (mirt__ln(sum) - (x[j] - largest));
        else if (sparse) l->loss[r] += t * (mirt__ln(sum) - mirt__ln(mirt__ref_clip(x[j])));
        else l->loss[r] -= t * mirt__ln(mirt__ref_clip(x[j] / sum));
    }
}

/* d loss / d x of row r, into dx. Of probabilities that are clipped last, with q = x / sum and g = d loss / d q:
   dx = (g - sum of g q) / sum. */
static void mirt__ref_crossentropy_grad(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n, largest = mirt__ref_max(x, l->n);
    const bool logits = l->how.from_logits, sparse = l->kind == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    const bool ignored = sparse && l->how.has_ignore_class &&
                         ((const int32_t *)l->labels)[r] == l->how.ignore_class;
    mirt__real *dx = l->dx + r * l->n, sum = 0, total = 0;
    for (int64_t j = 0; j < l->n; j++)
        sum += logits ? mirt__exp(x[j] - largest) : sparse ? mirt__ref_clip(x[j]) : x[j];
    for (int64_t j = 0; j < l->n; j++) {
        const mirt__real t = mirt__ref_target(l, r, j), q = x[j] / sum;
        if (logits) dx[j] = -t;
        else if (sparse) dx[j] = mirt__ref_unclipped(x[j]) * (1 / sum - t / mirt__ref_clip(x[j]));
        else dx[j] = -t / mirt__ref_clip(q) * mirt__ref_unclipped(q);
        total += logits ? t : dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) {
        if (ignored) dx[j] = 0;
        else if (logits) dx[j] += mirt__exp(x[j] - largest) / sum * total;
        else if (!sparse) dx[j] = (dx[j] - total) / sum;
    }
}

/* The function whose mean is the loss, and its derivative by x. from_logits: x goes into the activation of
   MIRT_LOSS_LIST first. */

/* Labels are drawn towards 1/2. */
static mirt__real mirt__ref_binary_target(const mirt__loss *l, mirt__real t) {
    return t * (1 - mirt__ref_smoothing(l)) + mirt__ref_smoothing(l) / 2;
}

/* -(t log p + (1 - t) log(1 - p)); from logits in the form that cannot overflow. */
static mirt__real mirt__ref_binary_crossentropy(const mirt__loss *l, mirt__real x, mirt__real label) {
    const mirt__real p = mirt__ref_clip(x), t = mirt__ref_binary_target(l, label);
    if (l->how.from_logits) return (x > 0 ? x : 0) - x * t + mirt__log1p(mirt__exp(-mirt__fabs(x)));
    const mirt__real rest = x > mirt__ref_largest ? mirt__ref_smallest : 1 - p; /* of float32: not 1.2e-7 */
    return -(t * mirt__ln(p) + (1 - t) * mirt__ln(rest));
}
static mirt__real mirt__ref_binary_crossentropy_grad(const mirt__loss *l, mirt__real x, mirt__real label) {
    const mirt__real p = mirt__ref_clip(x), t = mirt__ref_binary_target(l, label);
    if (l->how.from_logits) return mirt__ref_activate(MIRT_SIGMOID, x) - t;
    return mirt__ref_unclipped(x) * ((1 - t) / (1 - p) - t / p);
}

static mirt__real mirt__ref_mean_squared_error(const mirt__loss *l, mirt__real x, mirt__real t) {
    (void)l;
    return (x - t) * (x - t);
}
static mirt__real mirt__ref_mean_squared_error_grad(const mirt__loss *l, mirt__real x, mirt__real t) {
    (void)l;
    return 2 * (x - t);
}

typedef mirt__real (*mirt__ref_element)(const mirt__loss *l, mirt__real x, mirt__real t);

static void mirt__ref_mean(const mirt__loss *l, int64_t r, mirt__ref_element element, mirt__ref_element grad) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    mirt__real loss = 0;
    for (int64_t j = 0; j < l->n; j++) {
        if (l->dx) l->dx[r * l->n + j] = grad(l, x[j], t[j]) / (mirt__real)l->n;
        else loss += element(l, x[j], t[j]);
    }
    if (!l->dx) l->loss[r] = loss / (mirt__real)l->n;
}

MIRT__LIB void mirt__ref_loss(const mirt__loss *l) {
    for (int64_t r = 0; r < l->rows; r++) {
        switch (l->kind) {
        case MIRT_CIRCLE: mirt__circle_row(l, r); continue;
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
        case MIRT_CATEGORICAL_CROSSENTROPY:
            if (l->dx) mirt__ref_crossentropy_grad(l, r);
            else mirt__ref_crossentropy(l, r);
            break;
        case MIRT_BINARY_CROSSENTROPY:
            mirt__ref_mean(l, r, mirt__ref_binary_crossentropy, mirt__ref_binary_crossentropy_grad);
            break;
        default: mirt__ref_mean(l, r, mirt__ref_mean_squared_error, mirt__ref_mean_squared_error_grad);
        }
        for (int64_t j = 0; l->dx && j < l->n; j++) l->dx[r * l->n + j] *= l->dloss[r];
    }
}

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
