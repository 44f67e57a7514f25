#include "circle.h"
#include "reference.h"
/* The circle loss of a row, for all tables of the CPU. */

#include "optimize_begin.inc"

#define MIRT__CIRCLE_LANES 8

/* The cosine is a sum of sums of every eighth product, so that all instruction sets add in one order. */
static mirt__circle_pair mirt__circle_pair_of(const mirt__loss *l, int64_t r, int64_t j) {
    const mirt__real *a = l->x + r * l->n, *b = l->x + j * l->n;
    const int32_t *label = (const int32_t *)l->labels;
    mirt__real lane[MIRT__CIRCLE_LANES] = {0}, cosine = 0;
    int64_t k = 0;
    for (; k + MIRT__CIRCLE_LANES <= l->n; k += MIRT__CIRCLE_LANES)
        for (int i = 0; i < MIRT__CIRCLE_LANES; i++) lane[i] += a[k + i] * b[k + i];
    for (; k < l->n; k++) lane[k % MIRT__CIRCLE_LANES] += a[k] * b[k];
    for (int i = 0; i < MIRT__CIRCLE_LANES; i++) cosine += lane[i];
    return mirt__circle_of(&l->how, label[r] != label[j], cosine);
}

/* Each sum is kept divided by the exponential of its largest value so far. */
static void mirt__circle_sums(const mirt__loss *l, int64_t r) {
    mirt__real most[2] = {MIRT__NO_PAIR, MIRT__NO_PAIR}, sum[2] = {0, 0};
    for (int64_t j = 0; j < l->rows; j++) {
        if (j == r && !l->how.keep_diagonal) continue;
        const mirt__circle_pair pair = mirt__circle_pair_of(l, r, j);
        const mirt__real before = most[pair.other], top = pair.value > before ? pair.value : before;
        most[pair.other] = top;
        sum[pair.other] = sum[pair.other] * mirt__exp(before - top) + mirt__exp(pair.value - top);
    }
    for (int i = 0; i < 2; i++) l->loss[2 * r + i] = sum[i] == 0 ? MIRT__NO_PAIR : most[i] + mirt__ln(sum[i]);
}

/* The derivative of the loss by the pair's value in the sum of row r: none where its other sum has no pair. */
static mirt__real mirt__circle_share(const mirt__loss *l, int64_t r, const mirt__circle_pair *pair) {
    const int64_t at = 2 * r + pair->other;
    return l->loss[at ^ 1] == MIRT__NO_PAIR ? 0 : l->dloss[at] * mirt__exp(pair->value - l->loss[at]);
}

/* Row r is in its own sums, and in those of each row that it makes a pair with. */
static void mirt__circle_grad(const mirt__loss *l, int64_t r) {
    mirt__real *dx = l->dx + r * l->n;
    memset(dx, 0, (size_t)l->n * sizeof *dx);
    for (int64_t j = 0; j < l->rows; j++) {
        if (j == r && !l->how.keep_diagonal) continue;
        const mirt__circle_pair pair = mirt__circle_pair_of(l, r, j);
        const mirt__real part = pair.slope * (mirt__circle_share(l, r, &pair) + mirt__circle_share(l, j, &pair));
        for (int64_t k = 0; k < l->n; k++) dx[k] += part * l->x[j * l->n + k];
    }
}

MIRT__LIB void mirt__circle_row(const mirt__loss *l, int64_t r) {
    if (l->dx) mirt__circle_grad(l, r);
    else mirt__circle_sums(l, r);
}

#undef MIRT__CIRCLE_LANES

#include "optimize_end.inc"
