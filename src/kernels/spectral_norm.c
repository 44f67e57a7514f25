#include "kernels.h"
/* Spectral normalization of a weight, for all tables of the CPU. */

/* Adds v w to `sum`, where v is w u; returns the sum of squares of v. */
MIRT__TRAINING double mirt__spectral_products(const mirt__constrain *args, int64_t rows, int64_t columns, double *sum) {
    double squares = 0;
    for (int64_t i = 0; i < rows; i++) {
        const mirt__real *w = args->w + i * columns;
        double v = 0;
        for (int64_t j = 0; j < columns; j++) v += (double)w[j] * (double)args->u[j];
        for (int64_t j = 0; j < columns; j++) sum[j] += v * (double)w[j];
        squares += v * v;
    }
    return squares;
}

MIRT__TRAINING_LIB void mirt__spectral_norm(const mirt__constrain *args) {
    const int64_t columns = args->dim[args->rank - 1];
    double sum[MIRT__SPECTRAL_COLUMNS], norm = 0;
    int64_t rows = 1;
    for (int i = 0; i < args->rank - 1; i++) rows *= args->dim[i];
    for (int k = 0; k < args->constraint.power_iterations; k++) {
        for (int64_t j = 0; j < columns; j++) sum[j] = 0;
        const double length = fmax(sqrt(mirt__spectral_products(args, rows, columns, sum)), 1e-7);
        norm = 0;
        for (int64_t j = 0; j < columns; j++) {
            sum[j] /= length;
            norm += sum[j] * sum[j];
        }
        norm = sqrt(norm);
        if (!(norm > 0)) return; /* a kernel of zeros, or one that is not finite, stays */
        for (int64_t j = 0; j < columns; j++) args->u[j] = (mirt__real)(sum[j] / fmax(norm, 1e-7));
    }
    const double sigma = norm * norm / fmax(norm, 1e-7);
    for (int64_t i = 0; i < rows * columns; i++) args->w[i] = (mirt__real)((double)args->w[i] / sigma);
}
