/* Shared by the fast tables: elementwise kernels, conversions, dropout, noise. */

#include "common.h"
#include "normal.h"

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
    pieces->fn(pieces->args, begin, mirt__min(end, pieces->count), mirt__scratch(pieces->where, member));
}

MIRT__LIB void mirt__common_range(const mirt__where *where, int64_t count, int64_t step, mirt__common_fn fn,
                                  const void *args) {
    mirt__common_pieces pieces;
    pieces.where = where;
    pieces.count = count;
    pieces.step = step;
    pieces.fn = fn;
    pieces.args = args;
    mirt__team_for(where->team, mirt__parts(count, step), mirt__common_piece, &pieces);
}

MIRT__LIB int64_t mirt__common_step(int64_t size) {
    return size <= 0 || size > MIRT__GRAIN ? 1 : MIRT__GRAIN / size;
}


#define MIRT__UNARY_LOOP(expression) \
    MIRT__INDEPENDENT \
    for (int64_t i = begin; i < end; i++) { \
        const float x = px[i]; \
        y[i] = (expression); \
    }
#define MIRT__UNARY_COPY \
    if (px != y) memcpy(y + begin, px + begin, (size_t)(end - begin) * sizeof(float));
#define MIRT__UNARY_ACTIVATION(kind) call->simd->activate(kind, scale, px + begin, y + begin, end - begin);
#define MIRT__UNARY_CASE(number, id, label, function, reference, fast, ...) \
    case MIRT__##id: \
        MIRT__UNARY_##fast \
        break;

static void mirt__common_unary_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_call *call = (const mirt__common_call *)args;
    const mirt__unary *u = (const mirt__unary *)call->args;
    const float *px = (const float *)u->x, scale = u->scale, offset = u->offset;
    float *y = (float *)u->y;
    (void)scratch;
    switch (u->kind) { MIRT__UNARY_LIST(MIRT__UNARY_CASE) }
}

#undef MIRT__UNARY_LOOP
#undef MIRT__UNARY_COPY
#undef MIRT__UNARY_ACTIVATION
#undef MIRT__UNARY_CASE

MIRT__LIB void mirt__fast_unary(const mirt__simd *simd, const mirt__unary *args, const mirt__where *where) {
    const mirt__common_call call = {args, simd};
    mirt__common_range(where, args->count, MIRT__GRAIN, mirt__common_unary_range, &call);
}

MIRT__LIB mirt__common_walk mirt__common_walk_of(const void *args, int rank, const int64_t *dim, int operands,
                                                 const int64_t *const *stride) {
    mirt__common_walk w;
    memset(&w, 0, sizeof w);
    w.args = args;
    w.operands = operands;
    w.count = 1;
    for (int i = 0; i < rank; i++) {
        bool joins = w.rank > 0;
        w.count *= dim[i];
        if (dim[i] == 1) continue;
        for (int k = 0; k < operands; k++) joins = joins && w.stride[k][w.rank - 1] == stride[k][i] * dim[i];
        if (!joins) w.dim[w.rank++] = 1;
        w.dim[w.rank - 1] *= dim[i];
        for (int k = 0; k < operands; k++) w.stride[k][w.rank - 1] = stride[k][i];
    }
    if (w.rank == 0) { /* a single element */
        w.rank = 1;
        w.dim[0] = 1;
        for (int k = 0; k < operands; k++) w.stride[k][0] = 1;
    }
    return w;
}

MIRT__LIB int64_t mirt__common_walk_line(const mirt__common_walk *w, int64_t at, int64_t most, int64_t *place) {
    const int last = w->rank - 1;
    int64_t rest = at / w->dim[last], column = at % w->dim[last], left = w->dim[last] - column;
    for (int k = 0; k < w->operands; k++) place[k] = column * w->stride[k][last];
    for (int i = last - 1; i >= 0; rest /= w->dim[i], i--) {
        for (int k = 0; k < w->operands; k++) place[k] += rest % w->dim[i] * w->stride[k][i];
    }
    return mirt__min(left, most);
}

#define MIRT__BINARY_PIECE 256 /* elements of an operand that are gathered at a time */

#define MIRT__BINARY_LOOP(expression) \
    MIRT__INDEPENDENT \
    for (int64_t i = 0; i < count; i++) { \
        const float a = pa[i], b = pb[i]; \
        y[i] = (expression); \
    }
#define MIRT__BINARY_SLOPE(kind) simd->slope(kind, scale, pa, pb, y, count);
#define MIRT__BINARY_CASE(number, id, label, function, reference, fast, ...) \
    case MIRT__##id: \
        if (MIRT__RECORDED_##function) { \
            MIRT__BINARY_##fast \
        } \
        break;

static void mirt__common_binary_dense(const mirt__binary *args, const mirt__simd *simd, const float *pa,
                                      const float *pb, float *y, int64_t count) {
    const float scale = args->scale, offset = args->offset;
    switch (args->kind) { MIRT__BINARY_LIST(MIRT__BINARY_CASE) }
}

#undef MIRT__BINARY_LOOP
#undef MIRT__BINARY_SLOPE
#undef MIRT__BINARY_CASE

MIRT__LIB void mirt__common_activate(const mirt__simd *simd, mirt_activation_kind kind, float *x, int64_t count) {
    mirt__unary u;
    const mirt__common_call call = {&u, simd};
    memset(&u, 0, sizeof u);
    u.kind = mirt__activation_get(kind)->unary;
    u.scale = mirt__activation_get(kind)->scale;
    u.x = u.y = x;
    mirt__common_unary_range(&call, 0, count, NULL);
}

MIRT__LIB void mirt__common_slope(const mirt__simd *simd, mirt_activation_kind kind, const float *dy, float *u,
                                  int64_t count) {
    mirt__binary b;
    memset(&b, 0, sizeof b);
    b.kind = mirt__activation_get(kind)->grad;
    b.scale = mirt__activation_get(kind)->scale;
    if (kind == MIRT_SIGMOID || kind == MIRT_TANH) mirt__common_activate(simd, kind, u, count);
    mirt__common_binary_dense(&b, simd, dy, u, u, count);
}

/* Gathers `count` elements `step` apart (0: one repeated) in `piece`, or returns them in place. */
static const float *mirt__common_gather_line(const float *from, int64_t step, float *piece, int64_t count) {
    if (step == 1) return from;
    for (int64_t i = 0; i < count; i++) piece[i] = from[i * step];
    return piece;
}

static void mirt__common_binary_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_walk *walk = (const mirt__common_walk *)args;
    const mirt__common_call *call = (const mirt__common_call *)walk->args;
    const mirt__binary *b = (const mirt__binary *)call->args;
    const int64_t *step[3] = {walk->stride[0] + walk->rank - 1, walk->stride[1] + walk->rank - 1,
                              walk->stride[2] + walk->rank - 1};
    const bool dense = *step[0] == 1 && *step[1] == 1 && !b->c;
    const float *pa = (const float *)b->a, *pb = (const float *)b->b, *pc = (const float *)b->c;
    float *y = (float *)b->y, piece[2][MIRT__BINARY_PIECE], f[MIRT__BINARY_PIECE];
    (void)scratch;
    for (int64_t at = begin, count, place[3]; at < end; at += count) {
        count = mirt__common_walk_line(walk, at, dense ? end - at : mirt__min(end - at, MIRT__BINARY_PIECE), place);
        mirt__common_binary_dense(
            b, call->simd, mirt__common_gather_line(pa + place[0], *step[0], piece[0], count),
            mirt__common_gather_line(pb + place[1], *step[1], piece[1], count), pc ? f : y + at, count);
        if (!pc) continue;
        const float *c = mirt__common_gather_line(pc + place[2], *step[2], piece[0], count);
        for (int64_t i = 0; i < count; i++) y[at + i] = f[i] + c[i];
    }
}

MIRT__LIB void mirt__fast_binary(const mirt__simd *simd, const mirt__binary *args, const mirt__where *where) {
    const int64_t *const stride[3] = {args->a_stride, args->b_stride, args->c_stride};
    const mirt__common_call call = {args, simd};
    const mirt__common_walk walk = mirt__common_walk_of(&call, args->rank, args->dim, args->c ? 3 : 2, stride);
    mirt__common_range(where, walk.count, MIRT__GRAIN, mirt__common_binary_range, &walk);
}

#undef MIRT__BINARY_PIECE

MIRT__LIB void mirt__common_draw(uint32_t block, const uint32_t counter[3], uint64_t key, uint32_t *word) {
    const uint32_t seed[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (uint32_t i = 0; i < MIRT__DRAWS; i++) {
        const uint32_t full[4] = {block + i, counter[0], counter[1], counter[2]};
        mirt__philox(full, seed, word + 4 * i);
    }
}

/* y from x and the same number of random words. */
typedef void (*mirt__common_drawn)(const mirt__dropout *d, const uint32_t *word, const float *x, float *y,
                                   int64_t count);
typedef struct mirt__common_drawing {
    const mirt__dropout *d;
    const mirt__simd *simd;
    mirt__common_drawn run;
} mirt__common_drawing;

static void mirt__common_drop(const mirt__dropout *d, const uint32_t *word, const float *x, float *y, int64_t count) {
    const float kept = 1 - d->rate;
    const int32_t limit = (int32_t)ceilf(d->rate * 16777216.0f); /* unit >= rate, without the fraction */
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        /* Whether an element is kept is unpredictable, so bits are masked instead of branching. */
        const float scaled = x[i] / kept;
        uint32_t bits;
        memcpy(&bits, &scaled, sizeof bits);
        bits &= (int32_t)(word[i] >> 8) >= limit ? UINT32_MAX : 0;
        memcpy(&y[i], &bits, sizeof bits);
    }
}

static void mirt__common_add_noise(const mirt__dropout *d, const uint32_t *word, const float *x, float *y,
                                   int64_t count) {
    const float stddev = d->rate;
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < count; i++) y[i] = x[i] + stddev * mirt__normal(word[i]);
}

static void mirt__common_drawn_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_drawing *call = (const mirt__common_drawing *)args;
    const mirt__dropout *d = call->d;
    uint32_t word[4 * MIRT__DRAWS];
    (void)scratch;
    for (int64_t r = begin; r < end; r++) {
        const uint64_t row = (uint64_t)(d->first_row + r);
        const uint32_t counter[3] = {(uint32_t)row, (uint32_t)(row >> 32), d->step};
        for (int64_t j = 0; j < d->n; j += 4 * MIRT__DRAWS) {
            const int64_t at = r * d->n + j;
            call->simd->draw((uint32_t)(j / 4), counter, d->key, word);
            call->run(d, word, d->x + at, d->y + at, mirt__min(d->n - j, 4 * MIRT__DRAWS));
        }
    }
}

static void mirt__common_draw_rows(const mirt__simd *simd, const mirt__dropout *args, mirt__common_drawn run,
                                   const mirt__where *where) {
    const mirt__common_drawing call = {args, simd, run};
    mirt__common_range(where, args->rows, mirt__common_step(args->n), mirt__common_drawn_rows, &call);
}

MIRT__LIB void mirt__fast_dropout(const mirt__simd *simd, const mirt__dropout *args, const mirt__where *where) {
    mirt__common_draw_rows(simd, args, mirt__common_drop, where);
}

MIRT__LIB void mirt__fast_gaussian_noise(const mirt__simd *simd, const mirt__dropout *args, const mirt__where *where) {
    mirt__common_draw_rows(simd, args, mirt__common_add_noise, where);
}

static uint8_t mirt__common_float_to_u8(float x) {
    return x >= 255 ? 255 : x > 0 ? (uint8_t)x : 0; /* NaN is not > 0 */
}

static int32_t mirt__common_float_to_i32(float x) {
    if (x >= 2147483648.0f) return INT32_MAX;
    if (x >= -2147483648.0f) return (int32_t)x;
    return x != x ? 0 : INT32_MIN;
}

/* Rounds to nearest even; NaN stays NaN. */
static void mirt__common_cast_half(const float *x, uint16_t *y, int64_t count) {
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        y[i] = (uint16_t)(x[i] == x[i] ? (word + 0x7FFF + (word >> 16 & 1)) >> 16 : word >> 16 | 0x40);
    }
}

static void mirt__common_cast_bytes(const uint8_t *x, float *y, int64_t count) {
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < count; i++) y[i] = (float)x[i];
}

#include "optimize_end.inc"

/* Casts that models make of each image are above; the others are rare. */
#include "optimize_drivers.inc"
#define MIRT__CAST(y, value) \
    for (int64_t i = begin; i < end; i++) (y)[i] = value;
/* A bool is read as a byte. */
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
    } else if (c->from == MIRT_FLOAT32) {
        if (c->to == (mirt_dtype)MIRT__BFLOAT16) {
            mirt__common_cast_half(xf + begin, (uint16_t *)c->y + begin, end - begin);
        } else if (c->to == MIRT_INT32) {
            MIRT__CAST(yi, mirt__common_float_to_i32(xf[i]))
        } else if (c->to == MIRT_BOOL) {
            MIRT__CAST(yb, xf[i] != 0)
        } else {
            MIRT__CAST(yb, mirt__common_float_to_u8(xf[i]))
        }
    } else if (c->to == MIRT_BOOL) {
        MIRT__CAST(yb, c->from == MIRT_INT32 ? xi[i] != 0 : xb[i] != 0)
    } else if (c->from == MIRT_INT32 && c->to == MIRT_FLOAT32) {
        MIRT__CAST(yf, (float)xi[i])
    } else if (c->from == MIRT_INT32) {
        MIRT__CAST(yb, (uint8_t)(xi[i] < 0 ? 0 : xi[i] > 255 ? 255 : xi[i]))
    } else if (c->to == MIRT_FLOAT32) {
        mirt__common_cast_bytes(xb + begin, yf + begin, end - begin);
    } else if (c->to == MIRT_INT32) {
        MIRT__CAST(yi, xb[i])
    } else if (xb != yb) {
        memcpy(yb + begin, xb + begin, (size_t)(end - begin));
    }
}
#undef MIRT__CAST

MIRT__LIB void mirt__common_cast(const mirt__cast *args, const mirt__where *where) {
    mirt__common_range(where, args->count, MIRT__GRAIN, mirt__common_cast_range, args);
}

static void mirt__common_one_hot_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__one_hot *o = (const mirt__one_hot *)args;
    (void)scratch;
    memset(o->y + begin * o->depth, 0, (size_t)((end - begin) * o->depth) * sizeof(float));
    for (int64_t i = begin; i < end; i++) {
        const int64_t index = mirt__index_at(o->x, o->dtype, i);
        if (index >= 0 && index < o->depth) o->y[i * o->depth + index] = 1;
    }
}

MIRT__LIB void mirt__common_one_hot(const mirt__one_hot *args, const mirt__where *where) {
    mirt__common_range(where, args->count, mirt__common_step(args->depth), mirt__common_one_hot_range, args);
}

#include "optimize_end.inc"
