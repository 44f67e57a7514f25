/* Shared by the fast tables: layer normalization, by row. Batch normalization, by column, is in fast_norm.c. */

#include "common.h"

#include "optimize_begin.inc"

/* Rows are shifted by the mean of this many numbers, so that the summands have the size of the deviations even if the
   values are far from zero. */
#define MIRT__NORM_SHIFT 8

typedef struct mirt__common_norm {
    mirt__norm s;
    const mirt__simd *simd;
    const float *x, *dy;
    float *factor, *offset; /* per column: gamma or 1, beta or 0 */
    float *part;            /* per chunk two rows of n: partial sums */
    int64_t chunks;
} mirt__common_norm;

static float mirt__common_inverse(const mirt__norm *s, int64_t i) { return 1 / sqrtf(s->variance[i] + s->epsilon); }

static mirt__common_norm mirt__common_norm_of(const mirt__simd *simd, const mirt__norm *args,
                                              const mirt__where *where) {
    mirt__common_norm c;
    c.s = *args;
    c.simd = simd;
    c.x = (const float *)args->x;
    c.dy = (const float *)args->dy;
    c.factor = (float *)where->shared;
    c.offset = c.factor + args->n;
    c.part = c.offset + args->n;
    c.chunks = mirt__parts(args->rows, MIRT__REDUCE_CHUNK);
    for (int64_t j = 0; args->variance && j < args->n; j++) {
        c.factor[j] = args->gamma ? args->gamma[j] : 1;
        c.offset[j] = args->beta ? args->beta[j] : 0;
    }
    return c;
}

static int64_t mirt__common_chunk_rows(const mirt__common_norm *c, int64_t chunk) {
    const int64_t left = c->s.rows - chunk * MIRT__REDUCE_CHUNK;
    return mirt__min(left, MIRT__REDUCE_CHUNK);
}

/* The sum of `count` <= MIRT__REDUCE_CHUNK numbers, side by side in eight columns. */
static double mirt__common_lanes(const float *x, int64_t count) {
    float lane[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    double sum = 0;
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int j = 0; j < 8; j++) lane[j] += x[i + j];
    }
    for (; i < count; i++) lane[i & 7] += x[i];
    for (int j = 0; j < 8; j++) sum += (double)lane[j];
    return sum;
}

static void mirt__common_stats_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n, first = mirt__min(n, MIRT__NORM_SHIFT);
    float d[MIRT__REDUCE_CHUNK], square[MIRT__REDUCE_CHUNK];
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->x + row * n;
        const float shift = first > 0 ? (float)(mirt__common_lanes(x, first) / (double)first) : 0;
        double sum = 0, squares = 0;
        for (int64_t at = 0; at < n; at += MIRT__REDUCE_CHUNK) {
            const int64_t count = mirt__min(n - at, MIRT__REDUCE_CHUNK);
            for (int64_t j = 0; j < count; j++) {
                d[j] = x[at + j] - shift;
                square[j] = d[j] * d[j];
            }
            sum += mirt__common_lanes(d, count);
            squares += mirt__common_lanes(square, count);
        }
        sum /= (double)n;
        squares = squares / (double)n - sum * sum;
        c->s.out[0][row] = (float)((double)shift + sum);
        c->s.out[1][row] = (float)(squares < 0 ? 0 : squares);
    }
}

MIRT__LIB void mirt__fast_norm_stats_by_row(const mirt__simd *simd, const mirt__norm *args,
                                            const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(simd, args, where);
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_stats_rows, &c);
}

/* u of a row. */
static void mirt__common_norm_row(const mirt__common_norm *c, int64_t row, float *to) {
    const int64_t n = c->s.n;
    const float *x = c->x + row * n, *factor = c->factor, *offset = c->offset;
    const float middle = c->s.mean[row], inverse = mirt__common_inverse(&c->s, row);
    MIRT__INDEPENDENT
    for (int64_t j = 0; j < n; j++) to[j] = (x[j] - middle) * inverse * factor[j] + offset[j];
}

static void mirt__common_normalize_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    for (int64_t row = begin; row < end; row++) {
        float *y = (float *)c->s.y + row * n, *u = c->s.add ? (float *)scratch : y;
        mirt__common_norm_row(c, row, u);
        if (c->s.add) {
            const float *add = (const float *)c->s.add + row * n;
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) y[j] = u[j] + add[j];
        }
        if (c->s.activation != MIRT_LINEAR) mirt__common_activate(c->simd, c->s.activation, y, n);
    }
}

MIRT__LIB void mirt__fast_normalize_by_row(const mirt__simd *simd, const mirt__norm *args,
                                           const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(simd, args, where);
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_normalize_rows, &c);
}

/* A row of dy, or a copy multiplied by the activation's slope. */
static const float *mirt__common_norm_dy(const mirt__common_norm *c, int64_t row, void *scratch) {
    const float *dy = c->dy + row * c->s.n;
    if (c->s.activation == MIRT_LINEAR) return dy;
    mirt__common_norm_row(c, row, (float *)scratch);
    mirt__common_slope(c->simd, c->s.activation, dy, (float *)scratch, c->s.n);
    return (const float *)scratch;
}

static void mirt__common_norm_sums_chunks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t first = chunk * MIRT__REDUCE_CHUNK, rows = mirt__common_chunk_rows(c, chunk);
        float *sum = c->part + chunk * 2 * n, *product = sum + n;
        memset(sum, 0, (size_t)(2 * n) * sizeof(float));
        for (int64_t row = first; row < first + rows; row++) {
            const float *x = c->x + row * n, *dy = mirt__common_norm_dy(c, row, scratch);
            const float middle = c->s.mean[row], inverse = mirt__common_inverse(&c->s, row);
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) sum[j] += dy[j];
            MIRT__INDEPENDENT
            for (int64_t j = 0; j < n; j++) product[j] += dy[j] * ((x[j] - middle) * inverse);
        }
    }
}

static void mirt__common_norm_sums_finish(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    (void)scratch;
    for (int64_t j = begin; j < end; j++) {
        double sum = 0, product = 0;
        for (int64_t chunk = 0; chunk < c->chunks; chunk++) {
            const float *part = c->part + chunk * 2 * c->s.n + j;
            sum += (double)part[0];
            product += (double)part[c->s.n];
        }
        c->s.out[0][j] = (float)sum;
        c->s.out[1][j] = (float)product;
    }
}

MIRT__LIB void mirt__fast_norm_grad_sums_by_row(const mirt__simd *simd, const mirt__norm *args,
                                                const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(simd, args, where);
    mirt__common_range(where, c.chunks, mirt__common_step(args->n * MIRT__REDUCE_CHUNK), mirt__common_norm_sums_chunks,
                       &c);
    mirt__common_range(where, args->n, MIRT__REDUCE_COLUMNS, mirt__common_norm_sums_finish, &c);
}

static void mirt__common_norm_back_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_norm *c = (const mirt__common_norm *)args;
    const int64_t n = c->s.n;
    const float *factor = c->factor;
    float dhat[MIRT__REDUCE_CHUNK], along[MIRT__REDUCE_CHUNK];
    for (int64_t row = begin; row < end; row++) {
        const float *x = c->x + row * n, *dy = mirt__common_norm_dy(c, row, scratch);
        const float middle = c->s.mean[row], inverse = mirt__common_inverse(&c->s, row);
        float *dx = (float *)c->s.y + row * n;
        double sum = 0, product = 0;
        for (int64_t at = 0; at < n; at += MIRT__REDUCE_CHUNK) {
            const int64_t count = mirt__min(n - at, MIRT__REDUCE_CHUNK);
            for (int64_t j = 0; j < count; j++) {
                dhat[j] = dy[at + j] * factor[at + j];
                along[j] = dhat[j] * ((x[at + j] - middle) * inverse);
            }
            sum += mirt__common_lanes(dhat, count);
            product += mirt__common_lanes(along, count);
        }
        const float less = (float)(sum / (double)n), part = (float)(product / (double)n);
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < n; j++) dx[j] = (dy[j] * factor[j] - less - (x[j] - middle) * inverse * part) * inverse;
    }
}

MIRT__LIB void mirt__fast_norm_grad_input_by_row(const mirt__simd *simd, const mirt__norm *args,
                                                 const mirt__where *where) {
    const mirt__common_norm c = mirt__common_norm_of(simd, args, where);
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_norm_back_rows, &c);
}

#undef MIRT__NORM_SHIFT

#include "optimize_end.inc"
