#include "strategy.h"
/* Values of replicas made into one. */

MIRT__LIB void mirt__aggregate(mirt_aggregation kind, int active, const mirt__real *const *value, const int64_t *rows, int64_t count, mirt__real *out) {
    double total = 0;
    if (kind == MIRT_AGGREGATE_NONE) return;
    for (int r = 0; r < active; r++) total += (double)rows[r];
    for (int64_t i = 0; i < count; i++) {
        double first = (double)value[0][i], sum = 0;
        /* the mean from differences to the first value: exactly that value when all are equal */
        if (kind == MIRT_AGGREGATE_MEAN) {
            for (int r = 1; r < active; r++) sum += (double)rows[r] * ((double)value[r][i] - first);
            sum /= total;
        }
        for (int r = 1; r < active && kind == MIRT_AGGREGATE_SUM; r++) sum += (double)value[r][i];
        out[i] = (mirt__real)(first + sum);
    }
}

/* Chan, Golub and LeVeque: moments of two sets of rows joined. */
MIRT__LIB void mirt__combine_moments(int active, const mirt__real *const *mean, const mirt__real *const *variance, const int64_t *rows, int64_t count,
                                     mirt__real *mean_out, mirt__real *variance_out) {
    for (int64_t i = 0; i < count; i++) {
        double n = (double)rows[0], m = (double)mean[0][i], squares = n * (double)variance[0][i];
        for (int r = 1; r < active; r++) {
            double more = (double)rows[r], delta = (double)mean[r][i] - m, all = n + more;
            m += delta * (more / all);
            squares += more * (double)variance[r][i] + delta * delta * (n * more / all);
            n = all;
        }
        mean_out[i] = (mirt__real)m;
        variance_out[i] = (mirt__real)(squares / n);
    }
}
