/* Dropout and Gaussian noise, with the random numbers of CPUs. */
#include "../kernels/normal.h"
#include "cuda.cuh"
#include "math.cuh"

/* What is another in each step. */
typedef struct mirt__cu_dropout_draw {
    int64_t first_row;
    uint64_t key;
    uint32_t step;
} mirt__cu_dropout_draw;

typedef struct mirt__cu_dropout_args {
    int64_t rows, n;
    mirt__cu_divisor pieces; /* of four elements in a row */
    uint32_t limit;          /* 24 bits that stay are not below it */
    float kept;              /* noise: the standard deviation */
    const float *x;
    float *y;
    const mirt__cu_dropout_draw *draw;
} mirt__cu_dropout_args;

/* Four elements have the words of one draw. `WHOLE`: rows are whole pieces, and aligned. */
template <bool WHOLE, bool NOISE>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_dropout_kernel(const mirt__cu_dropout_args d) {
    const mirt__cu_dropout_draw draw = *d.draw;
    MIRT__CU_PIECES(at, left, d.rows * d.pieces.by, 1) {
        int64_t piece;
        const int64_t r = mirt__cu_divmod(at, d.pieces, &piece), begin = r * d.n + piece * 4,
                      count = WHOLE ? 4 : d.n - piece * 4;
        const uint64_t row = (uint64_t)(draw.first_row + r);
        const uint32_t counter[4] = {(uint32_t)piece, (uint32_t)row, (uint32_t)(row >> 32), draw.step};
        const uint32_t key[2] = {(uint32_t)draw.key, (uint32_t)(draw.key >> 32)};
        uint32_t word[4];
        float v[4];
        if (WHOLE) mirt__cu_load_n<4>(d.x + begin, v);
        mirt__philox(counter, key, word);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (!WHOLE) v[j] = j < count ? d.x[begin + j] : 0.0f;
            if (NOISE) v[j] = __fadd_rn(v[j], __fmul_rn(d.kept, mirt__normal(word[j])));
            else v[j] = word[j] >> 8 >= d.limit ? v[j] / d.kept : 0.0f;
            if (!WHOLE && j < count) d.y[begin + j] = v[j];
        }
        if (WHOLE) mirt__cu_store_n<4>(d.y + begin, v);
    }
}

template <bool NOISE> static void mirt__cu_drawn(const mirt__dropout *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    mirt__cu_dropout_draw draw;
    mirt__cu_dropout_args d;
    if (args->rows <= 0 || args->n <= 0) return;
    memset(&draw, 0, sizeof draw);
    draw.first_row = args->first_row;
    draw.key = args->key;
    draw.step = args->step;
    d.rows = args->rows;
    d.n = args->n;
    d.pieces = mirt__cu_divisor_of(mirt__cu_ceil(args->n, 4));
    d.limit = NOISE ? 0 : (uint32_t)ceilf(args->rate * 16777216.0f);
    d.kept = NOISE ? args->rate : 1 - args->rate;
    d.x = args->x;
    d.y = args->y;
    d.draw = static_cast<const mirt__cu_dropout_draw *>(mirt__cu_number(cu, &draw, sizeof draw));
    const bool whole = d.n % 4 == 0 && mirt__cu_aligned(d.x, 16) && mirt__cu_aligned(d.y, 16);
    MIRT__CU_LAUNCH_PIECES(
        cu, (whole ? mirt__cu_dropout_kernel<true, NOISE> : mirt__cu_dropout_kernel<false, NOISE>),
        d.rows * d.pieces.by, d);
}

static void mirt__cu_dropout(const mirt__dropout *args, const mirt__where *where) {
    mirt__cu_drawn<false>(args, where);
}

static void mirt__cu_gaussian_noise(const mirt__dropout *args, const mirt__where *where) {
    mirt__cu_drawn<true>(args, where);
}
