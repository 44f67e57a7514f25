/* Softmax, losses and accuracy: one warp, or one block for long rows, per row. */
#include "../kernels/circle.h"
#include "../kernels/loss_elements.h"
#include "math.cuh"

#define MIRT__CU_ROW_BLOCK 256
#define MIRT__CU_LONG_ROW 2048 /* from here on a row is a block's */

/* The threads of a row. */
template <bool BLOCK> struct mirt__cu_row_group {
    int lane, size;
    int64_t row, step; /* the first row, and how far to the next */
    float *room;
    __device__ explicit mirt__cu_row_group(float *shared) {
        const int warps = MIRT__CU_ROW_BLOCK / 32;
        lane = BLOCK ? (int)threadIdx.x : (int)threadIdx.x % 32;
        size = BLOCK ? MIRT__CU_ROW_BLOCK : 32;
        row = BLOCK ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * warps + threadIdx.x / 32;
        step = (int64_t)gridDim.x * (BLOCK ? 1 : warps);
        room = shared;
    }
    __device__ float sum(float x) const { return BLOCK ? mirt__cu_block_sum(x, room) : mirt__cu_warp_sum(x); }
    __device__ float max(float x) const { return BLOCK ? mirt__cu_block_max(x, room) : mirt__cu_warp_max(x); }
};
#define MIRT__CU_EACH(j, n) for (int64_t j = group.lane; j < (n); j += group.size)

/* A kernel by rows. */
#define MIRT__CU_BY_ROWS(cu, kernel, args) \
    MIRT_LAUNCH(cu, ((args).n >= MIRT__CU_LONG_ROW ? kernel<true> : kernel<false>), \
                mirt__cu_blocks((args).rows, (args).n >= MIRT__CU_LONG_ROW ? 1 : MIRT__CU_ROW_BLOCK / 32), \
                MIRT__CU_ROW_BLOCK, 0, args)

template <bool BLOCK>
static inline __device__ float mirt__cu_row_max(const mirt__cu_row_group<BLOCK> &group, const float *x, int64_t n) {
    float most = -INFINITY;
    MIRT__CU_EACH(j, n) most = fmaxf(most, x[j]);
    return group.max(most);
}
template <bool BLOCK>
static inline __device__ float mirt__cu_row_sum(const mirt__cu_row_group<BLOCK> &group, const float *x, int64_t n) {
    float sum = 0;
    MIRT__CU_EACH(j, n) sum += x[j];
    return group.sum(sum);
}
/* The sum of exp(x - most). */
template <bool BLOCK>
static inline __device__ float mirt__cu_row_exp(const mirt__cu_row_group<BLOCK> &group, const float *x, int64_t n,
                                                float most) {
    float sum = 0;
    MIRT__CU_EACH(j, n) sum += expf(x[j] - most);
    return group.sum(sum);
}

/* ---- softmax. Each thread reads and writes the same places. */

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_softmax_kernel(const mirt__softmax s) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < s.rows; r += group.step) {
        const float *x = s.x + r * s.n;
        float *y = s.y + r * s.n;
        const float most = mirt__cu_row_max(group, x, s.n);
        if (s.log) {
            const float log_sum = logf(mirt__cu_row_exp(group, x, s.n, most));
            MIRT__CU_EACH(j, s.n) y[j] = x[j] - most - log_sum;
            continue;
        }
        float sum = 0;
        MIRT__CU_EACH(j, s.n) {
            const float e = expf(x[j] - most);
            y[j] = e;
            sum += e;
        }
        sum = group.sum(sum);
        MIRT__CU_EACH(j, s.n) y[j] /= sum;
    }
}

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_softmax_grad_kernel(const mirt__softmax s) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < s.rows; r += group.step) {
        const float *p = s.x + r * s.n, *dy = s.dy + r * s.n;
        float *dx = s.y + r * s.n, sum = 0;
        MIRT__CU_EACH(j, s.n) sum += s.log ? dy[j] : dy[j] * p[j];
        sum = group.sum(sum);
        MIRT__CU_EACH(j, s.n) dx[j] = s.log ? dy[j] - expf(p[j]) * sum : p[j] * (dy[j] - sum);
    }
}

static void mirt__cu_softmax(const mirt__softmax *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows > 0 && args->n > 0) MIRT__CU_BY_ROWS(cu, mirt__cu_softmax_kernel, *args);
}
static void mirt__cu_softmax_grad(const mirt__softmax *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows > 0 && args->n > 0) MIRT__CU_BY_ROWS(cu, mirt__cu_softmax_grad_kernel, *args);
}

/* ---- losses: the formulas are explained in the library's reference kernels */

/* The loss of row r: -log of the probability of its label, the sum of clipped probabilities being 1. */
template <bool BLOCK>
static inline __device__ float mirt__cu_sparse_categorical_crossentropy(const mirt__cu_row_group<BLOCK> &group,
                                                                        const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, s = l.how.label_smoothing;
    const int32_t label = static_cast<const int32_t *>(l.labels)[r];
    const float at = label >= 0 && label < l.n ? x[label] : NAN;
    float sum = 0, even = 0; /* the sum of log probabilities, up to log_sum */
    if (mirt__is_ignored(&l.how, label)) return 0;
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), log_sum = logf(mirt__cu_row_exp(group, x, l.n, most));
        if (s == 0) return log_sum - (at - most);
        MIRT__CU_EACH(j, l.n) even += x[j] - most;
        return log_sum - ((1 - s) * (at - most) + s / (float)l.n * group.sum(even));
    }
    MIRT__CU_EACH(j, l.n) sum += mirt__clipped(x[j]);
    sum = group.sum(sum);
    if (s == 0) return logf(sum) - logf(mirt__clipped(at));
    MIRT__CU_EACH(j, l.n) even += logf(mirt__clipped(x[j]));
    return logf(sum) - ((1 - s) * logf(mirt__clipped(at)) + s / (float)l.n * group.sum(even));
}

template <bool BLOCK>
static inline __device__ float mirt__cu_categorical_crossentropy(const mirt__cu_row_group<BLOCK> &group,
                                                                 const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, *label = static_cast<const float *>(l.labels) + r * l.n, even = 1 / (float)l.n;
    float loss = 0;
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), log_sum = logf(mirt__cu_row_exp(group, x, l.n, most));
        MIRT__CU_EACH(j, l.n) {
            const float t = mirt__smoothed(&l.how, label[j], even);
            if (t != 0) loss += t * (log_sum - (x[j] - most));
        }
    } else {
        const float sum = mirt__cu_row_sum(group, x, l.n);
        MIRT__CU_EACH(j, l.n) {
            const float t = mirt__smoothed(&l.how, label[j], even);
            if (t != 0) loss -= t * logf(mirt__clipped(x[j] / sum));
        }
    }
    return group.sum(loss);
}

template <float (*ELEMENT)(const mirt_loss_options *how, float x, float t), bool BLOCK>
static inline __device__ float mirt__cu_mean(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, *t = static_cast<const float *>(l.labels) + r * l.n;
    float loss = 0;
    MIRT__CU_EACH(j, l.n) loss += ELEMENT(&l.how, x[j], t[j]);
    return group.sum(loss) / (float)l.n;
}

/* False: rows r and j are no pair. */
template <bool BLOCK>
static inline __device__ bool mirt__cu_circle_pair(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                   int64_t r, int64_t j, mirt__circle_pair *pair) {
    const int32_t *label = static_cast<const int32_t *>(l.labels);
    float cosine = 0;
    if (j == r && !l.how.keep_diagonal) return false;
    MIRT__CU_EACH(k, l.n) cosine += l.x[r * l.n + k] * l.x[j * l.n + k];
    *pair = mirt__circle_of(&l.how, label[r] != label[j], group.sum(cosine));
    return true;
}

/* As mirt__circle_row. */
template <bool BLOCK>
static inline __device__ void mirt__cu_circle_sums(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                   int64_t r) {
    float most[2] = {MIRT__NO_PAIR, MIRT__NO_PAIR}, sum[2] = {0, 0};
    mirt__circle_pair pair;
    for (int64_t j = 0; j < l.rows; j++) {
        if (!mirt__cu_circle_pair(group, l, r, j, &pair)) continue;
        const int i = pair.other;
        const float top = fmaxf(most[i], pair.value);
        sum[i] = sum[i] * expf(most[i] - top) + expf(pair.value - top);
        most[i] = top;
    }
    for (int i = 0; i < 2 && group.lane == 0; i++)
        l.loss[2 * r + i] = sum[i] == 0 ? MIRT__NO_PAIR : most[i] + logf(sum[i]);
}

static inline __device__ float mirt__cu_circle_share(const mirt__loss &l, int64_t r, const mirt__circle_pair &pair) {
    const int64_t at = 2 * r + pair.other;
    return l.loss[at ^ 1] == MIRT__NO_PAIR ? 0.0f : l.dloss[at] * expf(pair.value - l.loss[at]);
}

/* Its gradient. */
template <bool BLOCK>
static inline __device__ void mirt__cu_circle_grad(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                   int64_t r) {
    float *dx = l.dx + r * l.n;
    mirt__circle_pair pair;
    MIRT__CU_EACH(k, l.n) dx[k] = 0;
    for (int64_t j = 0; j < l.rows; j++) {
        if (!mirt__cu_circle_pair(group, l, r, j, &pair)) continue;
        const float part = pair.slope * (mirt__cu_circle_share(l, r, pair) + mirt__cu_circle_share(l, j, pair));
        MIRT__CU_EACH(k, l.n) dx[k] += part * l.x[j * l.n + k];
    }
}

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_loss_kernel(const mirt__loss l) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < l.rows; r += group.step) {
        float loss = 0;
        switch (l.kind) {
        case MIRT_CIRCLE: mirt__cu_circle_sums(group, l, r); continue;
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            loss = mirt__cu_sparse_categorical_crossentropy(group, l, r);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: loss = mirt__cu_categorical_crossentropy(group, l, r); break;
        case MIRT_BINARY_CROSSENTROPY: loss = mirt__cu_mean<mirt__binary_crossentropy>(group, l, r); break;
        default: loss = mirt__cu_mean<mirt__mean_squared_error>(group, l, r);
        }
        if (group.lane == 0) l.loss[r] = loss;
    }
}
template <bool BLOCK>
static inline __device__ void mirt__cu_sparse_categorical_crossentropy_grad(const mirt__cu_row_group<BLOCK> &group,
                                                                            const mirt__loss &l, int64_t r) {
    const int32_t label = static_cast<const int32_t *>(l.labels)[r];
    const float *x = l.x + r * l.n, scale = l.dloss[r], even = l.how.label_smoothing / (float)l.n;
    const float own = 1 - l.how.label_smoothing;
    float *dx = l.dx + r * l.n;
    if (mirt__is_ignored(&l.how, label)) {
        MIRT__CU_EACH(j, l.n) dx[j] = 0;
        return;
    }
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), sum = mirt__cu_row_exp(group, x, l.n, most);
        MIRT__CU_EACH(j, l.n) dx[j] = (expf(x[j] - most) / sum - ((j == label ? own : 0.0f) + even)) * scale;
        return;
    }
    float sum = 0;
    MIRT__CU_EACH(j, l.n) sum += mirt__clipped(x[j]);
    sum = group.sum(sum);
    MIRT__CU_EACH(j, l.n)
        dx[j] = mirt__is_clipped(x[j]) ? 0.0f : scale * (1 / sum - ((j == label ? own : 0.0f) + even) / x[j]);
}

template <bool BLOCK>
static inline __device__ void mirt__cu_categorical_crossentropy_grad(const mirt__cu_row_group<BLOCK> &group,
                                                                     const mirt__loss &l, int64_t r) {
    const float *x = l.x + r * l.n, *label = static_cast<const float *>(l.labels) + r * l.n, scale = l.dloss[r];
    const float even = 1 / (float)l.n;
    float *dx = l.dx + r * l.n, total = 0;
    if (l.how.from_logits) {
        const float most = mirt__cu_row_max(group, x, l.n), sum = mirt__cu_row_exp(group, x, l.n, most);
        MIRT__CU_EACH(j, l.n) total += mirt__smoothed(&l.how, label[j], even);
        total = group.sum(total);
        MIRT__CU_EACH(j, l.n)
            dx[j] = scale * (expf(x[j] - most) / sum * total - mirt__smoothed(&l.how, label[j], even));
        return;
    }
    const float sum = mirt__cu_row_sum(group, x, l.n);
    MIRT__CU_EACH(j, l.n) {
        const float q = x[j] / sum;
        total += mirt__is_clipped(q) ? 0.0f : -mirt__smoothed(&l.how, label[j], even) / q * q;
    }
    total = group.sum(total);
    MIRT__CU_EACH(j, l.n) {
        const float q = x[j] / sum;
        const float own = mirt__is_clipped(q) ? 0.0f : -mirt__smoothed(&l.how, label[j], even) / q;
        dx[j] = scale * ((own - total) / sum);
    }
}

/* The division by n is done once per row. */
template <float (*ELEMENT)(const mirt_loss_options *how, float x, float t, float scale, float n), bool BLOCK>
static inline __device__ void mirt__cu_mean_grad(const mirt__cu_row_group<BLOCK> &group, const mirt__loss &l,
                                                 int64_t r) {
    const float *x = l.x + r * l.n, *t = static_cast<const float *>(l.labels) + r * l.n;
    const float share = l.dloss[r] / (float)l.n;
    MIRT__CU_EACH(j, l.n) l.dx[r * l.n + j] = ELEMENT(&l.how, x[j], t[j], share, 1.0f);
}

template <bool BLOCK>
static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK) mirt__cu_loss_grad_kernel(const mirt__loss l) {
    MIRT_SHARED(float, room, 32);
    const mirt__cu_row_group<BLOCK> group(room);
    for (int64_t r = group.row; r < l.rows; r += group.step) {
        switch (l.kind) {
        case MIRT_CIRCLE: mirt__cu_circle_grad(group, l, r); break;
        case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
            mirt__cu_sparse_categorical_crossentropy_grad(group, l, r);
            break;
        case MIRT_CATEGORICAL_CROSSENTROPY: mirt__cu_categorical_crossentropy_grad(group, l, r); break;
        case MIRT_BINARY_CROSSENTROPY: mirt__cu_mean_grad<mirt__binary_crossentropy_grad>(group, l, r); break;
        default: mirt__cu_mean_grad<mirt__mean_squared_error_grad>(group, l, r);
        }
    }
}
static void mirt__cu_loss(const mirt__loss *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows == 0 || (args->dx && args->n == 0)) return;
    if (args->dx) MIRT__CU_BY_ROWS(cu, mirt__cu_loss_grad_kernel, *args);
    else MIRT__CU_BY_ROWS(cu, mirt__cu_loss_kernel, *args);
}

/* ---- accuracy: a warp for each row, however long */

static __global__ void __launch_bounds__(MIRT__CU_ROW_BLOCK)
    mirt__cu_accuracy_kernel(mirt__accuracy_kind kind, int64_t rows, int64_t n, const float *predicted,
                             const void *labels, float *y) {
    const mirt__cu_row_group<false> group(NULL);
    for (int64_t r = group.row; r < rows; r += group.step) {
        const float *x = predicted + r * n, *t = static_cast<const float *>(labels) + r * n;
        float right = 0;
        if (kind == MIRT__ACCURACY_BINARY) {
            MIRT__CU_EACH(j, n) right += t[j] == (x[j] > 0.5f ? 1.0f : 0.0f) ? 1.0f : 0.0f;
            right = group.sum(right) / (float)n;
        } else {
            const int32_t at = kind == MIRT__ACCURACY_SPARSE ? static_cast<const int32_t *>(labels)[r]
                                                             : mirt__cu_warp_argmax(t, n, 1.0f);
            right = mirt__cu_warp_argmax(x, n, 1.0f) == at ? 1.0f : 0.0f;
        }
        if (group.lane == 0) y[r] = right;
    }
}

static void mirt__cu_accuracy(const mirt__accuracy *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    if (args->rows <= 0 || args->n <= 0) return;
    MIRT_LAUNCH(cu, mirt__cu_accuracy_kernel, mirt__cu_blocks(args->rows, MIRT__CU_ROW_BLOCK / 32), MIRT__CU_ROW_BLOCK,
                0, args->kind, args->rows, args->n, args->x, args->labels, args->y);
}
#undef MIRT__CU_EACH
#undef MIRT__CU_BY_ROWS
