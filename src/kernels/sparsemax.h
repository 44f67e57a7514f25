#ifndef MIRT__SPARSEMAX_H
#define MIRT__SPARSEMAX_H
/* Sparsemax of one line, for the CPU's fast kernels and GPUs. */

#include "table.h"

#include <math.h>

/* The line whose first element is at `first`: max(x - threshold, 0), which sums to 1. Newton's method begins with a
   threshold that is at most the true one; the numbers above it become fewer with each round but the last one. */
MIRT__BOTH void mirt__sparsemax_line(const mirt__scan *s, int64_t first) {
    const mirt__real *x = s->x + first;
    mirt__real *y = (mirt__real *)s->y + first, most = -INFINITY, threshold = -1;
    for (int64_t i = 0; i < s->n; i++) most = x[i * s->inner] > most ? x[i * s->inner] : most;
    for (int64_t count = s->n + 1, above = 0;; count = above) {
        mirt__real sum = -1;
        above = 0;
        for (int64_t i = 0; i < s->n; i++) {
            const mirt__real z = x[i * s->inner] - most;
            if (z > threshold) {
                sum += z;
                above++;
            }
        }
        if (above == 0 || above >= count) break;
        threshold = sum / (mirt__real)above;
    }
    for (int64_t i = 0; i < s->n; i++) {
        const mirt__real z = x[i * s->inner] - most - threshold;
        y[i * s->inner] = z <= 0 ? 0 : z;
    }
}

#endif
