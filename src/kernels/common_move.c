/* Kernels shared by the fast tables: strided copies, rows by index, operations along one axis. */

#include "common.h"
#include "sparsemax.h"

#include "optimize_begin.inc"

/* `count` elements of `size` bytes, `from` and `to` bytes apart. */
static void mirt__common_move_line(char *y, const char *x, size_t size, int64_t to, int64_t from, int64_t count) {
    if (from == (int64_t)size && to == from) {
        memcpy(y, x, (size_t)count * size);
    } else if (size == 1) {
        for (int64_t i = 0; i < count; i++) y[i * to] = x[i * from];
    } else {
        for (int64_t i = 0; i < count; i++) memcpy(y + i * to, x + i * from, 4); /* float32 or int32 */
    }
}

static void mirt__common_move_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_walk *walk = (const mirt__common_walk *)args;
    const mirt__move *m = (const mirt__move *)walk->args;
    const int64_t size = (int64_t)mirt__dtype_size(m->dtype);
    const int last = walk->rank - 1;
    (void)scratch;
    for (int64_t at = begin, count, place[3]; at < end; at += count) {
        count = mirt__common_walk_line(walk, at, end - at, place);
        mirt__common_move_line((char *)m->y + place[1] * size, (const char *)m->x + place[0] * size, (size_t)size,
                               walk->stride[1][last] * size, walk->stride[0][last] * size, count);
    }
}

MIRT__LIB void mirt__common_move(const mirt__move *args, const mirt__where *where) {
    const int64_t *const stride[2] = {args->from, args->to};
    const mirt__common_walk walk = mirt__common_walk_of(args, args->rank, args->dim, 2, stride);
    mirt__common_range(where, walk.count, MIRT__GRAIN, mirt__common_move_range, &walk);
}

/* The row of index i, or -1. */
static int64_t mirt__common_gather_index(const mirt__gather *g, int64_t i) {
    const int64_t index = mirt__index_at(g->indices, g->dtype, i);
    return index >= 0 && index < g->n ? index : -1;
}

static void mirt__common_gather_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__gather *g = (const mirt__gather *)args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = mirt__common_gather_index(g, i);
        if (row < 0) memset(g->y + i * g->width, 0, (size_t)g->width * sizeof(float));
        else memcpy(g->y + i * g->width, g->x + row * g->width, (size_t)g->width * sizeof(float));
    }
}

MIRT__LIB void mirt__common_gather(const mirt__gather *args, const mirt__where *where) {
    mirt__common_range(where, args->count, mirt__common_step(args->width), mirt__common_gather_range, args);
}

/* Blocks of columns, so that one thread computes each sum. */
static void mirt__common_gather_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__gather *g = (const mirt__gather *)args;
    (void)scratch;
    for (int64_t r = 0; r < g->n; r++) memset(g->y + r * g->width + begin, 0, (size_t)(end - begin) * sizeof(float));
    for (int64_t i = 0; i < g->count; i++) {
        const int64_t row = mirt__common_gather_index(g, i);
        float *y = g->y + row * g->width;
        const float *x = g->x + i * g->width;
        if (row < 0) continue;
        MIRT__INDEPENDENT
        for (int64_t j = begin; j < end; j++) y[j] += x[j];
    }
}

MIRT__LIB void mirt__common_gather_grad(const mirt__gather *args, const mirt__where *where) {
    mirt__common_range(where, args->width, MIRT__REDUCE_COLUMNS, mirt__common_gather_back, args);
}

/* Up to MIRT__REDUCE_COLUMNS adjacent columns; `place` is the first element of the first one. */
static void mirt__common_scan_block(const mirt__scan *s, int64_t place, int64_t outer, int64_t column, int64_t width) {
    float most[MIRT__REDUCE_COLUMNS];
    int32_t best[MIRT__REDUCE_COLUMNS];
    const bool extreme = s->kind == MIRT__ARGMAX || s->kind == MIRT__ARGMIN, back = s->kind == MIRT__CUMSUM_BACK;
    if (s->kind == MIRT__SPARSEMAX) {
        for (int64_t j = 0; j < width; j++) mirt__sparsemax_line(s, place + j);
        return;
    }
    for (int64_t j = 0; j < width; j++) {
        most[j] = extreme ? s->x[place + j] : 0;
        best[j] = 0;
    }
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t at = place + (back ? s->n - 1 - i : i) * s->inner;
        const float *x = s->x + at;
        if (extreme) {
            for (int64_t j = 0; j < width; j++) {
                const bool better = s->kind == MIRT__ARGMIN ? x[j] < most[j] : x[j] > most[j];
                most[j] = better ? x[j] : most[j];
                best[j] = better ? (int32_t)i : best[j];
            }
        } else {
            float *y = (float *)s->y + at;
            for (int64_t j = 0; j < width; j++) y[j] = most[j] += x[j];
        }
    }
    if (extreme) memcpy((int32_t *)s->y + outer * s->inner + column, best, (size_t)width * sizeof best[0]);
}

static void mirt__common_scan_blocks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__scan *s = (const mirt__scan *)args;
    const int64_t blocks = mirt__parts(s->inner, MIRT__REDUCE_COLUMNS);
    (void)scratch;
    for (int64_t b = begin; b < end; b++) {
        const int64_t outer = b / blocks, column = b % blocks * MIRT__REDUCE_COLUMNS, left = s->inner - column;
        mirt__common_scan_block(s, outer * s->n * s->inner + column, outer, column,
                                mirt__min(left, MIRT__REDUCE_COLUMNS));
    }
}

MIRT__LIB void mirt__common_scan(const mirt__scan *args, const mirt__where *where) {
    const int64_t blocks = mirt__parts(args->inner, MIRT__REDUCE_COLUMNS);
    const int64_t width = mirt__min(args->inner, MIRT__REDUCE_COLUMNS);
    mirt__common_range(where, args->outer * blocks, mirt__common_step(args->n * width), mirt__common_scan_blocks, args);
}

#include "optimize_end.inc"
