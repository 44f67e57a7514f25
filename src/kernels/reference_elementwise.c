/* Reference: elementwise kernels, broadcasting, reductions, dropout, conversions, optimizers. */

#include "reference.h"

/* The cumulative standard normal distribution at x. */
static mirt__real mirt__ref_normal(mirt__real x) { return mirt__erfc(-x * (mirt__real)0.70710678118654752440) / 2; }

/* The density of the standard normal distribution. */
static mirt__real mirt__ref_density(mirt__real x) { return mirt__exp(-x * x / 2) * (mirt__real)0.39894228040143267794; }
static mirt__real mirt__ref_sigmoid(mirt__real x) { return 1 / (1 + mirt__exp(-x)); }
static mirt__real mirt__ref_relu6(mirt__real x) { return x < 0 ? 0 : x > 6 ? 6 : x; }
static mirt__real mirt__ref_silu_slope(mirt__real x, mirt__real sigmoid) {
    return sigmoid + x * sigmoid * (1 - sigmoid);
}
/* tanh(softplus(x)) */
static mirt__real mirt__ref_mish_gate(mirt__real x) { return mirt__tanh(mirt__log1p(mirt__exp(x))); }
static mirt__real mirt__ref_mish_slope(mirt__real x) {
    const mirt__real gate = mirt__ref_mish_gate(x);
    return gate + x * (1 - gate * gate) * mirt__ref_sigmoid(x);
}
static mirt__real mirt__ref_gelu_gate(mirt__real x) {
    return mirt__ref_sigmoid(x * (MIRT__GELU_SLOPE + MIRT__GELU_CUBE * x * x));
}
static mirt__real mirt__ref_gelu_slope(mirt__real x) {
    const mirt__real gate = mirt__ref_gelu_gate(x);
    return gate + x * gate * (1 - gate) * (MIRT__GELU_SLOPE + 3 * MIRT__GELU_CUBE * x * x);
}
static mirt__real mirt__ref_is(bool condition) { return condition ? (mirt__real)1 : (mirt__real)0; }

static mirt__real mirt__ref_unary_of(mirt__unary_kind kind, mirt__real x, mirt__real scale, mirt__real offset) {
    switch (kind) {
#define MIRT__REFERENCE_CASE(number, id, label, function, reference, ...) case MIRT__##id: return reference;
        MIRT__UNARY_LIST(MIRT__REFERENCE_CASE)
    }
    return NAN;
}

static mirt__real mirt__ref_binary_of(mirt__binary_kind kind, mirt__real a, mirt__real b, mirt__real scale,
                                    mirt__real offset) {
    switch (kind) {
        MIRT__BINARY_LIST(MIRT__REFERENCE_CASE)
#undef MIRT__REFERENCE_CASE
    }
    return NAN;
}

MIRT__LIB mirt__real mirt__ref_activate(mirt_activation_kind kind, mirt__real x) {
    const mirt__activation_class *c = mirt__activation_get(kind);
    return mirt__ref_unary_of(c->unary, x, (mirt__real)c->scale, 0);
}

MIRT__LIB mirt__real mirt__ref_derivative(mirt_activation_kind kind, mirt__real y) {
    const mirt__activation_class *c = mirt__activation_get(kind);
    return c->fused ? mirt__ref_binary_of(c->grad, 1, y, 0, 0) : 1;
}

MIRT__LIB mirt__real mirt__ref_slope(mirt_activation_kind kind, mirt__real x) {
    const mirt__activation_class *c = mirt__activation_get(kind);
    if (c->fused || c->unary == MIRT__COPY) return mirt__ref_derivative(kind, mirt__ref_activate(kind, x));
    return mirt__ref_binary_of(c->grad, 1, x, (mirt__real)c->scale, 0);
}

MIRT__LIB void mirt__ref_unary(const mirt__unary *u) {
    const mirt__real *x = (const mirt__real *)u->x;
    mirt__real *y = (mirt__real *)u->y;
    for (int64_t i = 0; i < u->count; i++)
        y[i] = mirt__ref_unary_of(u->kind, x[i], (mirt__real)u->scale, (mirt__real)u->offset);
}

MIRT__LIB int64_t mirt__ref_offset(int64_t at, int rank, const int64_t *dim, const int64_t *stride) {
    int64_t offset = 0;
    for (int i = rank - 1; i >= 0; at /= dim[i], i--) offset += at % dim[i] * stride[i];
    return offset;
}

static int64_t mirt__ref_count(const int64_t *dim, int rank) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dim[i];
    return count;
}

MIRT__LIB void mirt__ref_binary(const mirt__binary *b) {
    const int64_t count = mirt__ref_count(b->dim, b->rank);
    const mirt__real *left = (const mirt__real *)b->a, *right = (const mirt__real *)b->b;
    mirt__real *y = (mirt__real *)b->y;
    for (int64_t at = 0; at < count; at++) {
        y[at] = mirt__ref_binary_of(b->kind, left[mirt__ref_offset(at, b->rank, b->dim, b->a_stride)],
                                    right[mirt__ref_offset(at, b->rank, b->dim, b->b_stride)], (mirt__real)b->scale,
                                    (mirt__real)b->offset);
    }
}

/* Double represents the numbers of every dtype. */
static double mirt__ref_number(const void *x, mirt_dtype dtype, int64_t at) {
    switch (dtype) {
    case MIRT_INT32: return (double)((const int32_t *)x)[at];
    case MIRT_UINT8:
    case MIRT_BOOL: return (double)((const uint8_t *)x)[at];
    default: return (double)((const mirt__real *)x)[at];
    }
}

static void mirt__ref_logic_at(const mirt__logic *l, const int64_t *in, int64_t at) {
    const bool where = l->kind == MIRT__WHERE;
    const double a = mirt__ref_number(l->in[where], l->dtype, in[where]),
                 b = mirt__ref_number(l->in[where + 1], l->dtype, in[where + 1]);
    uint8_t *y = (uint8_t *)l->y;
    const size_t size = mirt__dtype_size(l->dtype);
    const int from = where && ((const uint8_t *)l->in[0])[in[0]] ? 1 : 2;
    switch (l->kind) {
#define MIRT__REFERENCE_CASE(number, id, label, value) case MIRT__##id: y[at] = value; break;
#define MIRT__REFERENCE_CHOICE(number, id, label) \
    case MIRT__##id: memcpy(y + (size_t)at * size, (const char *)l->in[from] + (size_t)in[from] * size, size); break;
        MIRT__LOGIC_LIST(MIRT__REFERENCE_CASE, MIRT__REFERENCE_CHOICE)
#undef MIRT__REFERENCE_CHOICE
#undef MIRT__REFERENCE_CASE
    }
}

MIRT__LIB void mirt__ref_logic(const mirt__logic *l) {
    const int64_t count = mirt__ref_count(l->dim, l->rank);
    for (int64_t at = 0; at < count; at++) {
        int64_t in[3];
        for (int k = 0; k < 3; k++) in[k] = mirt__ref_offset(at, l->rank, l->dim, l->stride[k]);
        mirt__ref_logic_at(l, in, at);
    }
}

/* Some of the dimensions, their row-major steps in x, and the number of elements. */
typedef struct mirt__ref_axes {
    int rank;
    int64_t dim[MIRT_MAX_RANK], step[MIRT_MAX_RANK], count;
} mirt__ref_axes;
typedef struct mirt__ref_split {
    mirt__ref_axes kept, gone;
} mirt__ref_split;

static mirt__ref_split mirt__ref_split_of(const mirt__reduce *r) {
    mirt__ref_split s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < r->rank; i++) {
        mirt__ref_axes *axes = r->axes >> i & 1 ? &s.gone : &s.kept;
        axes->dim[axes->rank] = r->dim[i];
        axes->step[axes->rank++] = mirt__ref_count(r->dim + i + 1, r->rank - i - 1);
    }
    s.kept.count = mirt__ref_count(s.kept.dim, s.kept.rank);
    s.gone.count = mirt__ref_count(s.gone.dim, s.gone.rank);
    return s;
}

/* The offset in x of reduced element `gone` of output `kept`. */
static int64_t mirt__ref_place(const mirt__ref_split *s, int64_t kept, int64_t gone) {
    return mirt__ref_offset(kept, s->kept.rank, s->kept.dim, s->kept.step) +
           mirt__ref_offset(gone, s->gone.rank, s->gone.dim, s->gone.step);
}

MIRT__LIB void mirt__ref_reduce(const mirt__reduce *r) {
    mirt__ref_split s = mirt__ref_split_of(r);
    for (int64_t i = 0; i < s.kept.count; i++) {
        double sum = 0;
        mirt__real best = (mirt__real)(r->kind == MIRT__REDUCE_MIN ? INFINITY : -INFINITY);
        for (int64_t j = 0; j < s.gone.count; j++) {
            mirt__real x = ((const mirt__real *)r->x)[mirt__ref_place(&s, i, j)];
            sum += x;
            if (j == 0 || (r->kind == MIRT__REDUCE_MIN ? x < best : x > best)) best = x;
        }
        if (r->kind == MIRT__REDUCE_MEAN) sum /= (double)s.gone.count;
        r->y[i] = r->kind >= MIRT__REDUCE_MAX ? best : (mirt__real)sum;
    }
}

MIRT__LIB void mirt__ref_reduce_max_grad(const mirt__reduce_max_grad *g) {
    mirt__ref_split s = mirt__ref_split_of(&g->s);
    const mirt__real *x = (const mirt__real *)g->s.x;
    for (int64_t i = 0; i < s.kept.count; i++) {
        int64_t equal = 0;
        for (int64_t j = 0; j < s.gone.count; j++) equal += x[mirt__ref_place(&s, i, j)] == g->s.y[i];
        for (int64_t j = 0; j < s.gone.count; j++) {
            int64_t at = mirt__ref_place(&s, i, j);
            g->dx[at] = x[at] == g->s.y[i] ? g->dy[i] / (mirt__real)equal : 0;
        }
    }
}

/* The random bits of element j of row r. */
static uint32_t mirt__ref_word(const mirt__dropout *d, int64_t r, int64_t j) {
    const uint32_t key[2] = {(uint32_t)d->key, (uint32_t)(d->key >> 32)};
    const uint64_t row = (uint64_t)(d->first_row + r);
    const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)row, (uint32_t)(row >> 32), d->step};
    uint32_t word[4];
    mirt__philox(counter, key, word);
    return word[j % 4];
}

MIRT__LIB void mirt__ref_dropout(const mirt__dropout *d) {
    for (int64_t i = 0; i < d->rows * d->n; i++) {
        float unit = (float)(mirt__ref_word(d, i / d->n, i % d->n) >> 8) * (1.0f / 16777216.0f);
        d->y[i] = unit >= d->rate ? d->x[i] / (1 - (mirt__real)d->rate) : 0;
    }
}

/* mirt__normal: what is farther from zero has the probability (bits + 1/2) / 2^23. */
static double mirt__ref_normal_number(uint32_t word) {
    const double beyond = ((double)(word >> 8 & 0x7fffffu) + 0.5) / 8388608.0;
    double low = 0, high = 8;
    for (int i = 0; i < 36; i++) {
        const double middle = (low + high) / 2;
        if (erfc(middle * 0.70710678118654752440) > beyond) low = middle;
        else high = middle;
    }
    return word >> 31 ? -low : low;
}

MIRT__LIB void mirt__ref_gaussian_noise(const mirt__dropout *d) {
    for (int64_t i = 0; i < d->rows * d->n; i++)
        d->y[i] = (mirt__real)(d->x[i] + d->rate * mirt__ref_normal_number(mirt__ref_word(d, i / d->n, i % d->n)));
}

/* x truncated toward zero and kept between low and high; 0 for NaN. */
static double mirt__ref_saturate(double x, double low, double high) {
    if (x != x) return 0;
    return x <= low ? low : x >= high ? high : x;
}

MIRT__LIB void mirt__ref_cast(const mirt__cast *c) {
    for (int64_t i = 0; i < c->count; i++) {
        const double x = mirt__ref_number(c->x, c->from, i);
        switch (c->to) {
        case MIRT_UINT8: ((uint8_t *)c->y)[i] = (uint8_t)mirt__ref_saturate(x, 0, 255); break;
        case MIRT_BOOL: ((uint8_t *)c->y)[i] = x != 0; break;
        case MIRT_INT32: ((int32_t *)c->y)[i] = (int32_t)mirt__ref_saturate(x, INT32_MIN, INT32_MAX); break;
        default: ((mirt__real *)c->y)[i] = (mirt__real)x; break;
        }
    }
}

MIRT__LIB void mirt__ref_one_hot(const mirt__one_hot *o) {
    for (int64_t i = 0; i < o->count; i++) {
        int64_t index = mirt__index_at(o->x, o->dtype, i);
        for (int64_t j = 0; j < o->depth; j++) o->y[i * o->depth + j] = j == index ? (mirt__real)1 : (mirt__real)0;
    }
}

MIRT__LIB void mirt__ref_accumulate(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < count; i++) into[i] = into[i] + from[i];
}

MIRT__LIB void mirt__ref_constrain(const mirt__constrain *args) {
    const mirt_constraint *c = &args->constraint;
    const mirt__real eps = (mirt__real)1e-7, least = (mirt__real)c->min_value, most = (mirt__real)c->max_value;
    mirt__reduce r;
    if (c->kind == MIRT_SPECTRAL_NORM) {
        mirt__spectral_norm(args);
        return;
    }
    memset(&r, 0, sizeof r);
    r.rank = args->rank;
    r.axes = (unsigned)c->axis;
    memcpy(r.dim, args->dim, sizeof r.dim);
    const mirt__ref_split s = mirt__ref_split_of(&r);
    for (int64_t i = 0; i < s.kept.count; i++) {
        double sum = 0;
        for (int64_t j = 0; j < s.gone.count; j++) {
            const double w = (double)args->w[mirt__ref_place(&s, i, j)];
            sum += w * w;
        }
        const mirt__real norm = (mirt__real)sqrt(sum), clipped = norm < least ? least : norm > most ? most : norm,
                         desired = (mirt__real)c->rate * clipped + (1 - (mirt__real)c->rate) * norm;
        for (int64_t j = 0; j < s.gone.count; j++) {
            mirt__real *w = &args->w[mirt__ref_place(&s, i, j)];
            if (c->kind == MIRT_NON_NEG) *w = *w < 0 ? 0 : *w;
            else *w = c->kind == MIRT_UNIT_NORM ? *w / (eps + norm) : *w * (desired / (eps + norm));
        }
    }
}

/* The gradient of element i: its parts added by the caller's tree, then scaled and clipped. */
static mirt__real mirt__ref_gradient(const mirt__update *u, int64_t i) {
    mirt__real sum[MIRT__MAX_PARTS], result = u->part[0][i];
    for (int p = 0; p < u->parts; p++) sum[p] = u->part[p][i];
    for (int t = 0; t + 1 < u->parts; t++) {
        sum[u->tree[t].into] += sum[u->tree[t].from];
        result = sum[u->tree[t].into];
    }
    if (!u->shaped) return result;
    result *= u->scale;
    if (u->clip == 0) return result;
    return result > u->clip ? u->clip : result < -u->clip ? -u->clip : result;
}

MIRT__LIB void mirt__ref_update_by(const mirt__update *u, mirt__ref_step step) {
    for (int64_t i = u->begin; i < u->end; i++) {
        mirt__real weight = u->from_zero ? 0 : u->weight[0][i];
        if (u->decay != 0) weight -= weight * u->decay;
        weight -= step(u, i, mirt__ref_gradient(u, i), weight);
        if (u->average) {
            u->average[i] = u->keep * u->average[i] + u->fresh * weight;
            if (u->overwrite) weight = u->average[i];
        }
        for (int copy = 0; copy < u->copies; copy++) u->weight[copy][i] = weight;
    }
}

/* A moving average towards x, in a slot; returns it. */
static mirt__real mirt__ref_average(const mirt__update *u, int slot, int64_t i, mirt__real x, mirt__real fresh) {
    return u->slot[slot][i] += (x - u->slot[slot][i]) * fresh;
}

MIRT__LIB MIRT__REF_STEP(sgd) {
    const mirt__real step = u->learning_rate * g, momentum = u->momentum;
    (void)weight;
    if (!u->slot[0]) return step;
    const mirt__real velocity = u->slot[0][i] = momentum * u->slot[0][i] - step;
    return u->nesterov ? step - momentum * velocity : -velocity;
}

MIRT__LIB MIRT__REF_STEP(adam) {
    const mirt__real m = mirt__ref_average(u, 0, i, g, u->new_1);
    mirt__real v = mirt__ref_average(u, 1, i, g * g, u->new_2);
    (void)weight;
    if (u->slot[2]) v = u->slot[2][i] = u->slot[2][i] > v ? u->slot[2][i] : v;
    return m * u->learning_rate / (mirt__sqrt(v) + u->epsilon);
}

MIRT__LIB MIRT__REF_STEP(rmsprop) {
    mirt__real v = mirt__ref_average(u, 0, i, g * g, u->new_1);
    (void)weight;
    if (u->slot[2]) {
        const mirt__real mean = mirt__ref_average(u, 2, i, g, u->new_1);
        v -= mean * mean; /* a variance: rounding alone can make it negative */
        v = v < 0 ? 0 : v;
    }
    const mirt__real step = u->learning_rate * g / mirt__sqrt(v + u->epsilon);
    return u->slot[1] ? u->slot[1][i] = u->momentum * u->slot[1][i] + step : step;
}

MIRT__LIB MIRT__REF_STEP(nadam) {
    const mirt__real m = mirt__ref_average(u, 0, i, g, u->new_1), v = mirt__ref_average(u, 1, i, g * g, u->new_2);
    (void)weight;
    return (u->learning_rate * m + u->momentum * g) / (mirt__sqrt(v) + u->epsilon);
}

MIRT__LIB MIRT__REF_STEP(adagrad) {
    const mirt__real v = u->slot[0][i] += g * g;
    (void)weight;
    return u->learning_rate * g / mirt__sqrt(v + u->epsilon);
}

MIRT__LIB MIRT__REF_STEP(adamax) {
    const mirt__real m = mirt__ref_average(u, 0, i, g, u->new_1), size = mirt__fabs(g),
                     faded = u->slot[1][i] - u->slot[1][i] * u->new_2, norm = faded > size ? faded : size;
    (void)weight;
    u->slot[1][i] = norm;
    return m * u->learning_rate / (norm + u->epsilon);
}

MIRT__LIB MIRT__REF_STEP(lion) {
    const mirt__real m = u->slot[0][i], ahead = g - m, way = m + ahead * u->new_1;
    (void)weight;
    u->slot[0][i] = m + ahead * u->new_2;
    return u->learning_rate * (way > 0 ? 1 : way < 0 ? -1 : way);
}

MIRT__LIB MIRT__REF_STEP(adadelta) {
    const mirt__real v = mirt__ref_average(u, 0, i, g * g, u->new_1),
                     step = mirt__sqrt(u->slot[1][i] + u->epsilon) * g / mirt__sqrt(v + u->epsilon);
    (void)weight;
    mirt__ref_average(u, 1, i, step * step, u->new_1);
    return u->learning_rate * step;
}

MIRT__LIB MIRT__REF_STEP(schedule_free) {
    const mirt__real z = u->first ? u->weight[0][i] : u->slot[0][i], v = mirt__ref_average(u, 1, i, g * g, u->new_2),
                     step = u->learning_rate * g / (mirt__sqrt(v) + u->epsilon);
    u->slot[0][i] = z - step;
    return u->new_1 * (weight - z) + u->momentum * step;
}

MIRT__LIB MIRT__REF_STEP(ftrl) {
    if (u->learning_rate == 0) return 0;
    const mirt__real n = u->slot[0][i] + g * g, l1 = u->new_1,
                     rise = (mirt__sqrt(n) - mirt__sqrt(u->slot[0][i])) * u->momentum;
    const mirt__real linear = u->slot[1][i] += g + (u->new_2 - rise) * weight;
    const mirt__real clipped = linear > l1 ? l1 : linear < -l1 ? -l1 : linear;
    u->slot[0][i] = n;
    return weight - (clipped - linear) * u->learning_rate / (mirt__sqrt(n) + u->epsilon);
}
