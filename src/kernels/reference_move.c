/* Reference: strided copies, rows by index, and operations along one axis. */

#include "reference.h"

/* The threshold is the greatest of (sum - 1) / count of the numbers from each x on upwards. */
static void mirt__ref_sparsemax(const mirt__scan *s, int64_t first) {
    double threshold = -INFINITY;
    for (int64_t i = 0; i < s->n; i++) {
        double sum = -1, count = 0;
        for (int64_t j = 0; j < s->n; j++) {
            const mirt__real x = s->x[first + j * s->inner];
            if (x >= s->x[first + i * s->inner]) {
                sum += x;
                count++;
            }
        }
        threshold = fmax(threshold, sum / count);
    }
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t at = first + i * s->inner;
        ((mirt__real *)s->y)[at] = (mirt__real)fmax(s->x[at] - threshold, 0);
    }
}

MIRT__LIB void mirt__ref_scan(const mirt__scan *s) {
    for (int64_t at = 0; at < s->outer * s->inner; at++) {
        const int64_t first = at / s->inner * s->n * s->inner + at % s->inner;
        const bool back = s->kind == MIRT__CUMSUM_BACK;
        int64_t best = 0;
        double sum = 0;
        for (int64_t i = 0; i < s->n; i++) {
            const int64_t place = first + (back ? s->n - 1 - i : i) * s->inner;
            const mirt__real x = s->x[place], most = s->x[first + best * s->inner];
            sum += x;
            if (s->kind == MIRT__ARGMIN ? x < most : x > most) best = i;
            if (s->kind == MIRT__CUMSUM || back) ((mirt__real *)s->y)[place] = (mirt__real)sum;
        }
        if (s->kind == MIRT__SPARSEMAX) mirt__ref_sparsemax(s, first);
        if (s->kind == MIRT__ARGMAX || s->kind == MIRT__ARGMIN) ((int32_t *)s->y)[at] = (int32_t)best;
    }
}

MIRT__LIB void mirt__ref_move(const mirt__move *m) {
    const size_t size = mirt__dtype_size(m->dtype);
    int64_t count = 1;
    for (int i = 0; i < m->rank; i++) count *= m->dim[i];
    for (int64_t at = 0; at < count; at++) {
        memcpy((char *)m->y + (size_t)mirt__ref_offset(at, m->rank, m->dim, m->to) * size,
               (const char *)m->x + (size_t)mirt__ref_offset(at, m->rank, m->dim, m->from) * size, size);
    }
}

static int64_t mirt__ref_gather_index(const mirt__gather *g, int64_t i) {
    const int64_t index = mirt__index_at(g->indices, g->dtype, i);
    return index >= 0 && index < g->n ? index : -1;
}

MIRT__LIB void mirt__ref_gather(const mirt__gather *g) {
    for (int64_t i = 0; i < g->count; i++) {
        const int64_t row = mirt__ref_gather_index(g, i);
        for (int64_t j = 0; j < g->width; j++) g->y[i * g->width + j] = row < 0 ? 0 : g->x[row * g->width + j];
    }
}

MIRT__LIB void mirt__ref_gather_grad(const mirt__gather *g) {
    for (int64_t i = 0; i < g->n * g->width; i++) g->y[i] = 0;
    for (int64_t i = 0; i < g->count; i++) {
        const int64_t row = mirt__ref_gather_index(g, i);
        for (int64_t j = 0; row >= 0 && j < g->width; j++) g->y[row * g->width + j] += g->x[i * g->width + j];
    }
}
