/* Shared by the fast tables: elementwise kernels, conversions, dropout. */

#include "common.h"

#ifndef MIRT__REAL_DOUBLE
#include "optimize_begin.inc"

typedef struct mirt__common_pieces {
    const mirt__where *where;
    int64_t count, step;
    mirt__common_fn fn;
    const void *args;
} mirt__common_pieces;

static void mirt__common_piece(void *arg, int64_t task, int member) {
    const mirt__common_pieces *pieces = (const mirt__common_pieces *)arg;
    int64_t begin = task * pieces->step, end = begin + pieces->step;
    char *scratch = (char *)pieces->where->scratch;
    if (scratch) scratch += (size_t)member * pieces->where->scratch_per_thread;
    pieces->fn(pieces->args, begin, end < pieces->count ? end : pieces->count, scratch);
}

MIRT__LIB void mirt__common_range(const mirt__where *where, int64_t count, int64_t step, mirt__common_fn fn, const void *args) {
    mirt__common_pieces pieces;
    pieces.where = where;
    pieces.count = count;
    pieces.step = step;
    pieces.fn = fn;
    pieces.args = args;
    mirt__team_for(where->team, count / step + (count % step != 0), mirt__common_piece, &pieces);
}

MIRT__LIB int64_t mirt__common_step(int64_t size) {
    return size <= 0 || size > MIRT__GRAIN ? 1 : MIRT__GRAIN / size;
}

static void mirt__common_unary_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__unary *u = (const mirt__unary *)args;
    const float *x = u->x, scale = u->scale, offset = u->offset;
    float *y = u->y;
    (void)scratch;
    switch (u->kind) {
    case MIRT__COPY:
        if (x != y) memcpy(y + begin, x + begin, (size_t)(end - begin) * sizeof(float));
        break;
    case MIRT__NEGATIVE:
        MIRT__INDEPENDENT
        for (int64_t i = begin; i < end; i++) y[i] = -x[i];
        break;
    case MIRT__SQUARE:
        MIRT__INDEPENDENT
        for (int64_t i = begin; i < end; i++) y[i] = x[i] * x[i];
        break;
    case MIRT__ACT_RELU:
        MIRT__INDEPENDENT
        for (int64_t i = begin; i < end; i++) y[i] = x[i] < 0 ? 0 : x[i];
        break;
    case MIRT__ACT_SIGMOID:
        for (int64_t i = begin; i < end; i++) y[i] = 1 / (1 + expf(-x[i]));
        break;
    case MIRT__ACT_TANH:
        for (int64_t i = begin; i < end; i++) y[i] = tanhf(x[i]);
        break;
    case MIRT__AFFINE:
        for (int64_t i = begin; i < end; i++) y[i] = fmaf(x[i], scale, offset);
        break;
    }
}

MIRT__LIB void mirt__common_unary(const mirt__unary *args, const mirt__where *where) {
    mirt__common_range(where, args->count, MIRT__GRAIN, mirt__common_unary_range, args);
}

#define MIRT__BINARY_PIECE 256 /* elements of an operand gathered at a time */

#define MIRT__BINARY_CASE(kind, expression) \
    case kind: \
        MIRT__INDEPENDENT \
        for (int64_t i = 0; i < count; i++) { \
            const float a = pa[i], b = pb[i]; \
            y[i] = (expression); \
        } \
        break;

static void mirt__common_binary_dense(mirt__binary_kind kind, const float *pa, const float *pb, float *y, int64_t count) {
    switch (kind) {
        MIRT__BINARY_CASE(MIRT__ADD, a + b)
        MIRT__BINARY_CASE(MIRT__SUBTRACT, a - b)
        MIRT__BINARY_CASE(MIRT__MULTIPLY, a * b)
        MIRT__BINARY_CASE(MIRT__DIVIDE, a / b)
        MIRT__BINARY_CASE(MIRT__RELU_GRAD, b > 0 ? a : 0)
        MIRT__BINARY_CASE(MIRT__SIGMOID_GRAD, a * (b * (1 - b)))
        MIRT__BINARY_CASE(MIRT__TANH_GRAD, a * (1 - b * b))
        MIRT__BINARY_CASE(MIRT__EQUAL, a == b ? 1.0f : 0.0f)
    }
}

#undef MIRT__BINARY_CASE

/* `count` elements `step` apart (0: one that repeats) side by side in `piece`, or where they lie. */
static const float *mirt__common_gather(const float *from, int64_t step, float *piece, int64_t count) {
    if (step == 1) return from;
    for (int64_t i = 0; i < count; i++) piece[i] = from[i * step];
    return piece;
}

static void mirt__common_binary_run(mirt__binary_kind kind, const float *pa, int64_t a_step, const float *pb, int64_t b_step,
                                    float *y, int64_t count) {
    float a[MIRT__BINARY_PIECE], b[MIRT__BINARY_PIECE];
    const int64_t piece = a_step == 1 && b_step == 1 ? count : MIRT__BINARY_PIECE;
    for (int64_t i = 0; i < count; i += piece) {
        const int64_t n = count - i < piece ? count - i : piece;
        mirt__common_binary_dense(kind, mirt__common_gather(pa + i * a_step, a_step, a, n),
                                  mirt__common_gather(pb + i * b_step, b_step, b, n), y + i, n);
    }
}

#undef MIRT__BINARY_PIECE

/* Elements [begin, end) of the output, cut into runs along the last dimension. */
static void mirt__common_binary_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__binary *b = (const mirt__binary *)args;
    const int last = b->rank - 1;
    const int64_t length = b->dim[last];
    (void)scratch;
    for (int64_t at = begin; at < end;) {
        int64_t rest = at / length, column = at % length;
        int64_t count = length - column < end - at ? length - column : end - at;
        int64_t a_at = column * b->a_stride[last], b_at = column * b->b_stride[last];
        for (int i = last - 1; i >= 0; i--) {
            a_at += rest % b->dim[i] * b->a_stride[i];
            b_at += rest % b->dim[i] * b->b_stride[i];
            rest /= b->dim[i];
        }
        mirt__common_binary_run(b->kind, b->a + a_at, b->a_stride[last], b->b + b_at, b->b_stride[last], b->y + at, count);
        at += count;
    }
}

/* The same call with dimensions of one left out, and neighbours that both operands walk through
   without a jump made one: same shapes become one run, a bias becomes rows by columns. */
static mirt__binary mirt__common_binary_merged(const mirt__binary *from) {
    mirt__binary b = *from;
    int rank = 0;
    for (int i = 0; i < from->rank; i++) {
        const int64_t dim = from->dim[i], a_stride = from->a_stride[i], b_stride = from->b_stride[i];
        if (dim == 1) continue;
        bool joins = rank > 0 && b.a_stride[rank - 1] == a_stride * dim && b.b_stride[rank - 1] == b_stride * dim;
        if (!joins) b.dim[rank++] = 1;
        b.dim[rank - 1] *= dim;
        b.a_stride[rank - 1] = a_stride;
        b.b_stride[rank - 1] = b_stride;
    }
    if (rank == 0) { /* a single element */
        b.dim[0] = 1;
        b.a_stride[0] = b.b_stride[0] = 1;
        rank = 1;
    }
    b.rank = rank;
    return b;
}

MIRT__LIB void mirt__common_binary(const mirt__binary *args, const mirt__where *where) {
    mirt__binary b = mirt__common_binary_merged(args);
    int64_t count = 1;
    for (int i = 0; i < b.rank; i++) count *= b.dim[i];
    mirt__common_range(where, count, MIRT__GRAIN, mirt__common_binary_range, &b);
}

#define MIRT__DRAWS 16 /* Philox blocks drawn side by side */

/* mirt__philox for the counters {block .. block + MIRT__DRAWS - 1, c1, c2, c3}, here so that the
   compiler can do several at once; each block's four words follow each other. */
static void mirt__common_draw(uint32_t block, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key, uint32_t *word) {
    for (int i = 0; i < MIRT__DRAWS; i++) {
        uint32_t x0 = block + (uint32_t)i, x1 = c1, x2 = c2, x3 = c3, k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
            x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
            x1 = (uint32_t)p1;
            x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
            x3 = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        word[4 * i] = x0;
        word[4 * i + 1] = x1;
        word[4 * i + 2] = x2;
        word[4 * i + 3] = x3;
    }
}

static void mirt__common_dropout_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__dropout *d = (const mirt__dropout *)args;
    const float kept = 1 - d->rate;
    const int32_t limit = (int32_t)ceilf(d->rate * 16777216.0f); /* unit >= rate, without the fraction */
    uint32_t word[4 * MIRT__DRAWS];
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const uint64_t row = (uint64_t)(d->first_row + r);
        for (int64_t j = 0; j < d->n; j += 4 * MIRT__DRAWS) {
            const int64_t count = d->n - j < 4 * MIRT__DRAWS ? d->n - j : 4 * MIRT__DRAWS;
            const float *x = d->x + r * d->n + j;
            float *y = d->y + r * d->n + j;
            mirt__common_draw((uint32_t)(j / 4), (uint32_t)row, (uint32_t)(row >> 32), d->step, d->key, word);
            MIRT__INDEPENDENT
            for (int64_t i = 0; i < count; i++) {
                /* Whether to keep an element cannot be predicted: bits cut off instead of a branch. */
                const float scaled = x[i] / kept;
                uint32_t bits;
                memcpy(&bits, &scaled, sizeof bits);
                bits &= (int32_t)(word[i] >> 8) >= limit ? UINT32_MAX : 0;
                memcpy(&y[i], &bits, sizeof bits);
            }
        }
    }
}

#undef MIRT__DRAWS

MIRT__LIB void mirt__common_dropout(const mirt__dropout *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_dropout_rows, args);
}

static uint8_t mirt__common_float_to_u8(float x) {
    return x >= 255 ? 255 : x > 0 ? (uint8_t)x : 0; /* NaN is not > 0 */
}

static int32_t mirt__common_float_to_i32(float x) {
    if (x >= 2147483648.0f) return INT32_MAX;
    if (x >= -2147483648.0f) return (int32_t)x;
    return x != x ? 0 : INT32_MIN;
}

static void mirt__common_cast_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__cast *c = (const mirt__cast *)args;
    const float *xf = (const float *)c->x;
    const int32_t *xi = (const int32_t *)c->x;
    const uint8_t *xb = (const uint8_t *)c->x;
    float *yf = (float *)c->y;
    int32_t *yi = (int32_t *)c->y;
    uint8_t *yb = (uint8_t *)c->y;
    (void)scratch;
    if (c->from == c->to) {
        const size_t size = mirt__dtype_size(c->from);
        memcpy(yb + (size_t)begin * size, xb + (size_t)begin * size, (size_t)(end - begin) * size);
    } else if (c->from == MIRT_FLOAT32 && c->to == MIRT_INT32) {
        for (int64_t i = begin; i < end; i++) yi[i] = mirt__common_float_to_i32(xf[i]);
    } else if (c->from == MIRT_FLOAT32) {
        for (int64_t i = begin; i < end; i++) yb[i] = mirt__common_float_to_u8(xf[i]);
    } else if (c->from == MIRT_INT32 && c->to == MIRT_FLOAT32) {
        for (int64_t i = begin; i < end; i++) yf[i] = (float)xi[i];
    } else if (c->from == MIRT_INT32) {
        for (int64_t i = begin; i < end; i++) yb[i] = (uint8_t)(xi[i] < 0 ? 0 : xi[i] > 255 ? 255 : xi[i]);
    } else if (c->to == MIRT_FLOAT32) {
        MIRT__INDEPENDENT
        for (int64_t i = begin; i < end; i++) yf[i] = (float)xb[i];
    } else {
        MIRT__INDEPENDENT
        for (int64_t i = begin; i < end; i++) yi[i] = xb[i];
    }
}

MIRT__LIB void mirt__common_cast(const mirt__cast *args, const mirt__where *where) {
    mirt__common_range(where, args->count, MIRT__GRAIN, mirt__common_cast_range, args);
}

static void mirt__common_one_hot_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__one_hot *o = (const mirt__one_hot *)args;
    (void)scratch;
    memset(o->y + begin * o->depth, 0, (size_t)((end - begin) * o->depth) * sizeof(float));
    for (int64_t i = begin; i < end; i++) {
        const int64_t index = o->dtype == MIRT_UINT8 ? ((const uint8_t *)o->x)[i] : ((const int32_t *)o->x)[i];
        if (index >= 0 && index < o->depth) o->y[i * o->depth + index] = 1;
    }
}

MIRT__LIB void mirt__common_one_hot(const mirt__one_hot *args, const mirt__where *where) {
    mirt__common_range(where, args->count, mirt__common_step(args->depth), mirt__common_one_hot_range, args);
}

#include "optimize_end.inc"
#endif
