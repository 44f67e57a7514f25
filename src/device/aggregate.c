#include "devices.h"
/* Combines the replicas' values of a variable, such as moving averages, into one. */

/* Number `i` of `active` values; a mean from differences to the first one: exactly that number when all are equal. */
static mirt__real mirt__aggregate_number(mirt_aggregation kind, int active, const mirt__real *const *value,
                                         const int64_t *rows, double total, int64_t i) {
    const double first = (double)value[0][i];
    double sum = 0;
    if (kind == MIRT_AGGREGATE_MEAN) {
        for (int r = 1; r < active; r++) sum += (double)rows[r] * ((double)value[r][i] - first);
        sum /= total;
    }
    for (int r = 1; r < active && kind == MIRT_AGGREGATE_SUM; r++) sum += (double)value[r][i];
    return (mirt__real)(first + sum);
}

static double mirt__aggregate_rows(int active, const int64_t *rows) {
    double total = 0;
    for (int r = 0; r < active; r++) total += (double)rows[r];
    return total;
}

MIRT__LIB void mirt__aggregate(mirt_aggregation kind, int active, const mirt__real *const *value, const int64_t *rows,
                               int64_t count, mirt__real *out) {
    const double total = mirt__aggregate_rows(active, rows);
    for (int64_t i = 0; i < count && kind != MIRT_AGGREGATE_NONE; i++)
        out[i] = mirt__aggregate_number(kind, active, value, rows, total, i);
}

MIRT__LIB void mirt__aggregate_variable(const mirt__aggregated *a, int active, const mirt__real *const *value,
                                        const int64_t *rows, mirt__real *variable) {
    const double total = mirt__aggregate_rows(active, rows);
    for (int64_t i = 0; i < a->count; i++) {
        const mirt__real now = mirt__aggregate_number(a->kind, active, value, rows, total, i);
        /* products are rounded by the conversion: nothing is left to fuse */
        const mirt__real kept = (mirt__real)((double)a->kept * (double)variable[i]),
                         taken = (mirt__real)((double)a->taken * (double)now);
        variable[i] = a->kept > 0 ? kept + taken : now;
    }
}

/* Chan, Golub and LeVeque: moments of two sets of rows joined. */
MIRT__LIB void mirt__combine_moments(int active, const mirt__real *const *mean, const mirt__real *const *variance,
                                     const int64_t *rows, int64_t count, mirt__real *mean_out,
                                     mirt__real *variance_out) {
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
