/* Every op's gradient against central differences, all in double: the reference kernels compiled
   with double for float. */
#define MIRT__REAL_DOUBLE
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "op_cases.h"
#include "tap.h"

static double weighted(const op_run *r) {
    const double *dy = (const double *)(const void *)(r->weight + r->offset[r->operands]);
    double sum = 0;
    for (int64_t i = 0; i < r->values; i++) sum += r->value[i] * dy[i];
    return sum;
}

/* The largest error relative to the gradient's largest element. */
static double worst_error(op_run *r, const mirt__kernels *reference) {
    double worst = 0, largest = 1e-30;
    double *analytic = (double *)malloc(r->weight_bytes);
    op_replay(r, reference, NULL);
    memcpy(analytic, r->gradient, r->weight_bytes);
    for (int v = 0; v < r->operands; v++) {
        double *w = (double *)(void *)(r->weight + r->offset[v]), *g = analytic + r->offset[v] / sizeof(double);
        for (int64_t i = 0; i < r->count[v]; i++) {
            const double keep = w[i], h = 1e-5;
            w[i] = keep + h;
            op_replay(r, reference, NULL);
            double up = weighted(r);
            w[i] = keep - h;
            op_replay(r, reference, NULL);
            double down = weighted(r);
            w[i] = keep;
            double error = fabs((up - down) / (2 * h) - g[i]);
            if (fabs(g[i]) > largest) largest = fabs(g[i]);
            worst = worse(worst, error);
        }
    }
    free(analytic);
    return worst / largest;
}

int main(void) {
    int tables;
    const mirt__kernels *reference = mirt__kernel_tables(&tables)[0];
    ok(tables == 1 && strcmp(reference->name, "reference") == 0, "double has the reference kernels alone");
    for (int c = 0; c < MIRT__COUNT(op_cases); c++) {
        for (int fuse = 0; fuse < 2; fuse++) {
            for (int64_t rows = 1; rows <= 4; rows += 3) {
                op_run r;
                if (!op_begin(&r, &op_cases[c], rows, 1, fuse != 0)) {
                    ok(0, "%s: %s", op_cases[c].name, mirt_last_error());
                    continue;
                }
                if (r.differentiable) {
                    double error = worst_error(&r, reference);
                    ok(error < 1e-6, "%s%s, %d rows: relative error %.1e", op_cases[c].name, fuse ? " fused" : "", (int)rows, error);
                }
                op_end(&r);
                if (!op_cases[c].x_shape[0]) break;
            }
        }
    }
    return done_testing();
}
