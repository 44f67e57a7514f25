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

static bool mirt__ref_ignored(const mirt__loss *l, int64_t r) {
    return l->how.has_ignore_class && ((const int32_t *)l->labels)[r] == l->how.ignore_class;
}

/* -log of the probability of the label of row r. Keras normalizes clipped probabilities again. */
static mirt__real mirt__ref_sparse_categorical_crossentropy(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n, largest = mirt__ref_max(x, l->n);
    mirt__real sum = 0, loss = 0;
    if (mirt__ref_ignored(l, r)) return 0;
    for (int64_t j = 0; !l->how.from_logits && j < l->n; j++) sum += mirt__ref_clip(x[j]);
    const mirt__real log_sum = l->how.from_logits ? mirt__ref_log_sum(x, l->n, largest) : mirt__ln(sum);
    for (int64_t j = 0; j < l->n; j++) {
        const mirt__real t = mirt__ref_target(l, r, j);
        if (t == 0) continue;
        loss += t * (log_sum - (l->how.from_logits ? x[j] - largest : mirt__ln(mirt__ref_clip(x[j]))));
    }
    return loss;
}

/* d loss / d x of row r, into dx. */
static void mirt__ref_sparse_categorical_crossentropy_grad(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n;
    const bool logits = l->how.from_logits;
    mirt__real *dx = l->dx + r * l->n, largest = mirt__ref_max(x, l->n), sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += logits ? mirt__exp(x[j] - largest) : mirt__ref_clip(x[j]);
    for (int64_t j = 0; j < l->n; j++) {
        const mirt__real t = mirt__ref_target(l, r, j);
        if (mirt__ref_ignored(l, r)) dx[j] = 0;
        else if (logits) dx[j] = mirt__exp(x[j] - largest) / sum - t;
        else dx[j] = mirt__ref_unclipped(x[j]) * (1 / sum - t / mirt__ref_clip(x[j]));
    }
}

/* The sum of -t * log of the probability of each class; classes with t = 0 are ignored. */
static mirt__real mirt__ref_categorical_crossentropy(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n;
    mirt__real loss = 0;
    if (l->how.from_logits) {
        mirt__real largest = mirt__ref_max(x, l->n), log_sum = mirt__ref_log_sum(x, l->n, largest);
        for (int64_t j = 0; j < l->n; j++) {
            const mirt__real t = mirt__ref_target(l, r, j);
            loss += t == 0 ? 0 : t * (log_sum - (x[j] - largest));
        }
        return loss;
    }
    mirt__real sum = 0;
    for (int64_t j = 0; j < l->n; j++) sum += x[j];
    for (int64_t j = 0; j < l->n; j++) loss -= mirt__ref_target(l, r, j) * mirt__ln(mirt__ref_clip(x[j] / sum));
    return loss;
}

static void mirt__ref_categorical_crossentropy_grad(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n;
    mirt__real *dx = l->dx + r * l->n, largest = mirt__ref_max(x, l->n), sum = 0, total = 0;
    for (int64_t j = 0; j < l->n; j++) sum += l->how.from_logits ? mirt__exp(x[j] - largest) : x[j];
    if (l->how.from_logits) {
        for (int64_t j = 0; j < l->n; j++) total += mirt__ref_target(l, r, j);
        for (int64_t j = 0; j < l->n; j++)
            dx[j] = mirt__exp(x[j] - largest) / sum * total - mirt__ref_target(l, r, j);
        return;
    }
    /* With q = x / sum and g = d loss / d q: dx = (g - sum of g q) / sum. */
    for (int64_t j = 0; j < l->n; j++) {
        mirt__real q = x[j] / sum;
        dx[j] = -mirt__ref_target(l, r, j) / mirt__ref_clip(q) * mirt__ref_unclipped(q);
        total += dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) dx[j] = (dx[j] - total) / sum;
}

/* The probability of class j: softmax of logits, otherwise its share of the sum. */
static mirt__real mirt__ref_share(const mirt__loss *l, int64_t r, int64_t j) {
    const mirt__real *x = l->x + r * l->n, largest = mirt__ref_max(x, l->n);
    mirt__real sum = 0;
    for (int64_t k = 0; k < l->n; k++) sum += l->how.from_logits ? mirt__exp(x[k] - largest) : x[k];
    return (l->how.from_logits ? mirt__exp(x[j] - largest) : x[j]) / sum;
}

/* m^gamma, and its derivative by m without the infinite one at 0. */
static mirt__real mirt__ref_focus(const mirt__loss *l, mirt__real m) { return mirt__pow(m, (mirt__real)l->how.gamma); }
static mirt__real mirt__ref_focus_grad(const mirt__loss *l, mirt__real m) {
    const mirt__real gamma = (mirt__real)l->how.gamma;
    return m == 0 || gamma == 0 ? 0 : gamma * mirt__pow(m, gamma - 1);
}

/* The sum of -t * log q * alpha * (1 - q)^gamma over classes. Lin et al. 2018. */
static mirt__real mirt__ref_categorical_focal_crossentropy(const mirt__loss *l, int64_t r) {
    mirt__real loss = 0;
    for (int64_t j = 0; j < l->n; j++) {
        const mirt__real q = mirt__ref_clip(mirt__ref_share(l, r, j));
        loss -= mirt__ref_target(l, r, j) * mirt__ln(q) * (mirt__real)l->how.alpha * mirt__ref_focus(l, 1 - q);
    }
    return loss;
}

/* With g = d loss / d q: of logits dx = q (g - sum of g q), otherwise dx = (g - sum of g q) / sum. */
static void mirt__ref_categorical_focal_crossentropy_grad(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n;
    mirt__real *dx = l->dx + r * l->n, sum = 0, total = 0;
    for (int64_t j = 0; j < l->n; j++) {
        const mirt__real q = mirt__ref_share(l, r, j), t = mirt__ref_target(l, r, j);
        dx[j] = mirt__ref_unclipped(q) * (mirt__real)l->how.alpha * t *
                (mirt__ref_focus_grad(l, 1 - q) * mirt__ln(mirt__ref_clip(q)) - mirt__ref_focus(l, 1 - q) / q);
        sum += x[j];
        total += mirt__ref_unclipped(q) == 0 ? 0 : dx[j] * q;
    }
    for (int64_t j = 0; j < l->n; j++) {
        if (mirt__ref_unclipped(mirt__ref_share(l, r, j)) == 0) dx[j] = 0;
        dx[j] = (dx[j] - total) * (l->how.from_logits ? mirt__ref_share(l, r, j) : 1 / sum);
    }
}

/* 1 / norm, of which Keras takes at most 1e7. */
static mirt__real mirt__ref_inverse_norm(mirt__real squares) {
    const mirt__real inverse = 1 / mirt__sqrt(squares);
    return inverse > (mirt__real)1e7 ? (mirt__real)1e7 : inverse;
}

/* -cos of the angle between x and t. */
static mirt__real mirt__ref_cosine_similarity(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    mirt__real product = 0, squares[2] = {0, 0};
    for (int64_t j = 0; j < l->n; j++) {
        squares[0] += x[j] * x[j];
        squares[1] += t[j] * t[j];
    }
    const mirt__real of_x = mirt__ref_inverse_norm(squares[0]), of_t = mirt__ref_inverse_norm(squares[1]);
    for (int64_t j = 0; j < l->n; j++) product += (t[j] * of_t) * (x[j] * of_x);
    return -product;
}

static void mirt__ref_cosine_similarity_grad(const mirt__loss *l, int64_t r) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    mirt__real *dx = l->dx + r * l->n, product = 0, squares[2] = {0, 0};
    for (int64_t j = 0; j < l->n; j++) {
        squares[0] += x[j] * x[j];
        squares[1] += t[j] * t[j];
    }
    const mirt__real of_x = mirt__ref_inverse_norm(squares[0]), of_t = mirt__ref_inverse_norm(squares[1]);
    for (int64_t j = 0; j < l->n; j++) product += (t[j] * of_t) * (x[j] * of_x);
    if (1 / mirt__sqrt(squares[0]) > (mirt__real)1e7) product = 0; /* the bound does not depend on x */
    for (int64_t j = 0; j < l->n; j++) dx[j] = (product * (x[j] * of_x) - t[j] * of_t) * of_x;
}

/* Losses of ELEMENTS and SUMS: the function whose mean or sum is the loss, and its derivative by x. from_logits: x goes
   into the activation of MIRT_LOSS_LIST first. */

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

static mirt__real mirt__ref_mean_absolute_error(const mirt__loss *l, mirt__real x, mirt__real t) {
    (void)l;
    return mirt__fabs(x - t);
}
static mirt__real mirt__ref_mean_absolute_error_grad(const mirt__loss *l, mirt__real x, mirt__real t) {
    (void)l;
    return x > t ? (mirt__real)1 : x < t ? (mirt__real)-1 : x - t;
}

/* Squared up to delta, straight beyond it. */
static mirt__real mirt__ref_huber(const mirt__loss *l, mirt__real x, mirt__real t) {
    const mirt__real e = x - t, off = mirt__fabs(e), delta = (mirt__real)l->how.delta;
    return off <= delta ? e * e / 2 : delta * off - delta * delta / 2;
}
static mirt__real mirt__ref_huber_grad(const mirt__loss *l, mirt__real x, mirt__real t) {
    const mirt__real e = x - t, delta = (mirt__real)l->how.delta;
    return e > delta ? delta : e < -delta ? -delta : e;
}

/* max(1 - t x, 0) with labels of -1 and 1; 0 is -1, as Keras has it where all labels are 0 or 1. */
static mirt__real mirt__ref_hinge(const mirt__loss *l, mirt__real x, mirt__real t) {
    const mirt__real m = 1 - (t == 0 ? -1 : t) * x;
    (void)l;
    return m < 0 ? 0 : m;
}
static mirt__real mirt__ref_hinge_grad(const mirt__loss *l, mirt__real x, mirt__real t) {
    return mirt__ref_hinge(l, x, t) > 0 ? (t == 0 ? 1 : -t) : 0;
}
static mirt__real mirt__ref_squared_hinge(const mirt__loss *l, mirt__real x, mirt__real t) {
    return mirt__ref_hinge(l, x, t) * mirt__ref_hinge(l, x, t);
}
static mirt__real mirt__ref_squared_hinge_grad(const mirt__loss *l, mirt__real x, mirt__real t) {
    return 2 * mirt__ref_hinge(l, x, t) * (t == 0 ? 1 : -t);
}

/* log(cosh(x - t)) in the form that cannot overflow. */
static mirt__real mirt__ref_log_cosh(const mirt__loss *l, mirt__real x, mirt__real t) {
    const mirt__real off = mirt__fabs(x - t);
    (void)l;
    return off + mirt__log1p(mirt__exp(-2 * off)) - mirt__ln((mirt__real)2);
}
static mirt__real mirt__ref_log_cosh_grad(const mirt__loss *l, mirt__real x, mirt__real t) {
    (void)l;
    return mirt__tanh(x - t);
}

/* t log(t / x), both between 1e-7 and 1. */
static mirt__real mirt__ref_kl_clip(mirt__real p) {
    return p < mirt__ref_smallest ? mirt__ref_smallest : p > 1 ? (mirt__real)1 : p;
}
static mirt__real mirt__ref_kl_divergence(const mirt__loss *l, mirt__real x, mirt__real t) {
    (void)l;
    return mirt__ref_kl_clip(t) * mirt__ln(mirt__ref_kl_clip(t) / mirt__ref_kl_clip(x));
}
static mirt__real mirt__ref_kl_divergence_grad(const mirt__loss *l, mirt__real x, mirt__real t) {
    (void)l;
    return x < mirt__ref_smallest || x > 1 ? 0 : -mirt__ref_kl_clip(t) / x;
}

/* m^gamma times the binary crossentropy, where m is the probability of the wrong class; Keras takes it as it is, not
   clipped. With apply_class_balancing class 1 weighs alpha and class 0 the rest. */
static mirt__real mirt__ref_balance(const mirt__loss *l, mirt__real t) {
    const mirt__real alpha = (mirt__real)l->how.alpha;
    return l->how.apply_class_balancing ? t * alpha + (1 - t) * (1 - alpha) : 1;
}
static mirt__real mirt__ref_binary_focal_crossentropy(const mirt__loss *l, mirt__real x, mirt__real label) {
    const mirt__real p = l->how.from_logits ? mirt__ref_activate(MIRT_SIGMOID, x) : x,
                     q = l->how.from_logits ? mirt__ref_activate(MIRT_SIGMOID, -x) : 1 - x,
                     t = mirt__ref_binary_target(l, label), m = t * q + (1 - t) * p;
    return mirt__ref_balance(l, t) * mirt__ref_focus(l, m) * mirt__ref_binary_crossentropy(l, x, label);
}
static mirt__real mirt__ref_binary_focal_crossentropy_grad(const mirt__loss *l, mirt__real x, mirt__real label) {
    const mirt__real p = l->how.from_logits ? mirt__ref_activate(MIRT_SIGMOID, x) : x,
                     q = l->how.from_logits ? mirt__ref_activate(MIRT_SIGMOID, -x) : 1 - x,
                     t = mirt__ref_binary_target(l, label), m = t * q + (1 - t) * p;
    const mirt__real dm = (1 - 2 * t) * (l->how.from_logits ? p * q : 1);
    return mirt__ref_balance(l, t) * (mirt__ref_focus(l, m) * mirt__ref_binary_crossentropy_grad(l, x, label) +
                                      mirt__ref_focus_grad(l, m) * dm * mirt__ref_binary_crossentropy(l, x, label));
}

typedef mirt__real (*mirt__ref_element)(const mirt__loss *l, mirt__real x, mirt__real t);

static mirt__real mirt__ref_mean(const mirt__loss *l, int64_t r, int64_t n, mirt__ref_element element) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    mirt__real loss = 0;
    for (int64_t j = 0; j < l->n; j++) loss += element(l, x[j], t[j]);
    return loss / (mirt__real)n;
}

static void mirt__ref_mean_grad(const mirt__loss *l, int64_t r, int64_t n, mirt__ref_element grad) {
    const mirt__real *x = l->x + r * l->n, *t = (const mirt__real *)l->labels + r * l->n;
    for (int64_t j = 0; j < l->n; j++) l->dx[r * l->n + j] = grad(l, x[j], t[j]) / (mirt__real)n;
}

static mirt__real mirt__ref_no_loss(void) { return 0; }

#define MIRT__REF_SPARSE(name, grad) mirt__ref_##name##grad(l, r)
#define MIRT__REF_CATEGORICAL MIRT__REF_SPARSE
#define MIRT__REF_VECTORS MIRT__REF_SPARSE
#define MIRT__REF_ELEMENTS(name, grad) mirt__ref_mean##grad(l, r, l->n, mirt__ref_##name##grad)
#define MIRT__REF_SUMS(name, grad) mirt__ref_mean##grad(l, r, 1, mirt__ref_##name##grad)
#define MIRT__REF_RECORDED(name, grad) mirt__ref_no_loss()
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
#undef MIRT__REF_VECTORS
#undef MIRT__REF_ELEMENTS
#undef MIRT__REF_SUMS
#undef MIRT__REF_RECORDED
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
