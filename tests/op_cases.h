#ifndef OP_CASES_H
#define OP_CASES_H
#include "replay.h"
/* Rows that say how to record each op on small operands of odd shapes. To add an op, add a row. Operands
   are variables v[0], v[1], ..., so that each has a gradient; `rows` is a batched input x, where the op needs a
   batch. */

typedef struct op_case {
    const char *name;
    mirt_tensor *(*record)(mirt__graph *graph, mirt_tensor **v, mirt_tensor *x);
    int operands;
    int64_t shape[4][MIRT_MAX_RANK]; /* of each operand, ends at 0 */
    int64_t x_shape[MIRT_MAX_RANK];  /* of one row of the batched input */
    mirt_dtype x_dtype;
    double low, high;                /* range of the operands' values */
} op_case;

#define CASE(name) static mirt_tensor *case_##name(mirt__graph *g, mirt_tensor **v, mirt_tensor *x)
#define UNUSED (void)g, (void)v, (void)x

static mirt__attrs window(int kh, int kw, int sh, int sw, int dh, int dw, int groups, mirt_padding padding) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_conv2d);
    mirt__attrs_window *w = MIRT__OF(&a, window);
    w->kernel[0] = kh;
    w->kernel[1] = kw;
    w->strides[0] = sh;
    w->strides[1] = sw;
    w->dilation[0] = dh;
    w->dilation[1] = dw;
    w->groups = groups;
    w->padding = padding;
    return a;
}

/* Shifts a batch of data by a row of operands, so that gradients pass through a batched tensor. */
static mirt_tensor *batch(mirt_tensor *x, mirt_tensor *row) { return mirt_add(x, row); }

CASE(add) { UNUSED; return mirt_add(v[0], v[1]); }
CASE(subtract) { UNUSED; return mirt_subtract(v[0], v[1]); }
CASE(multiply) { UNUSED; return mirt_multiply(v[0], v[1]); }
CASE(divide) { UNUSED; return mirt_divide(v[0], v[1]); }
CASE(square) { UNUSED; return mirt_square(v[0]); }
CASE(square_of_sum) { UNUSED; return mirt_square(mirt_add(v[0], v[1])); } /* one tensor is the gradient of both */
CASE(twice) { UNUSED; return mirt_multiply(v[0], mirt_negative(v[0])); }
CASE(relu) { UNUSED; return mirt_relu(v[0]); }
CASE(sigmoid) { UNUSED; return mirt_sigmoid(v[0]); }
CASE(tanh) { UNUSED; return mirt_tanh(v[0]); }
static const float half = 0.5f;
CASE(exp) { UNUSED; return mirt_exp(v[0]); }
CASE(log) { UNUSED; return mirt_log(v[0]); }
CASE(sqrt) { UNUSED; return mirt_sqrt(v[0]); }
CASE(rsqrt) { UNUSED; return mirt_rsqrt(v[0]); }
CASE(abs) { UNUSED; return mirt_abs(v[0]); }
CASE(relu6) { UNUSED; return mirt_relu6(v[0]); }
CASE(gelu) { UNUSED; return mirt_gelu(v[0]); }
CASE(silu) { UNUSED; return mirt_silu(v[0]); }
CASE(hard_sigmoid) { UNUSED; return mirt_hard_sigmoid(v[0]); }
CASE(hard_swish) { UNUSED; return mirt_hard_swish(v[0]); }
CASE(softplus) { UNUSED; return mirt_softplus(v[0]); }
CASE(selu) { UNUSED; return mirt_selu(v[0]); }
CASE(mish) { UNUSED; return mirt_mish(v[0]); }
CASE(softsign) { UNUSED; return mirt_softsign(v[0]); }
CASE(gelu_approximate) { UNUSED; return mirt_gelu_approximate(v[0]); }
CASE(celu) { UNUSED; return mirt_celu(v[0], 0.75f); }
CASE(glu) { UNUSED; return mirt_glu(v[0], 1); }
CASE(hard_shrink) { UNUSED; return mirt_hard_shrink(v[0], 1.25f); }
CASE(soft_shrink) { UNUSED; return mirt_soft_shrink(v[0], 1.25f); }
CASE(squareplus) { UNUSED; return mirt_squareplus(v[0], 0.5f); }
CASE(threshold) { UNUSED; return mirt_threshold(v[0], 0.25f, -1.5f); }
CASE(hard_tanh) { UNUSED; return mirt_hard_tanh(v[0]); }
CASE(log_sigmoid) { UNUSED; return mirt_log_sigmoid(v[0]); }
CASE(sparse_plus) { UNUSED; return mirt_sparse_plus(v[0]); }
CASE(sparse_sigmoid) { UNUSED; return mirt_sparse_sigmoid(v[0]); }
CASE(tanh_shrink) { UNUSED; return mirt_tanh_shrink(v[0]); }
CASE(leaky_relu) { UNUSED; return mirt_leaky_relu(v[0], 0.3f); }
CASE(elu) { UNUSED; return mirt_elu(v[0], 1.5f); }
CASE(clip) { UNUSED; return mirt_clip(v[0], -0.5f, 1.25f); }
CASE(power) { UNUSED; return mirt_power(v[0], 2.5f); }
CASE(square_and_stairs) {
    UNUSED;
    return mirt_add(mirt_square(v[0]), mirt_multiply(mirt_sign(v[0]), mirt_floor(v[0])));
} /* no gradient from the latter */
CASE(matmul_relu6) {
    UNUSED;
    return mirt_matmul(mirt_relu6(mirt__bias_add_op(mirt_matmul(batch(x, v[0]), v[1], false, false), v[2])), v[3],
                       false, true);
}
CASE(matmul_silu) {
    UNUSED;
    return mirt_silu(mirt__bias_add_op(mirt_matmul(batch(x, v[0]), v[1], false, false), v[2]));
} /* is not fused */
CASE(maximum) { UNUSED; return mirt_maximum(v[0], v[1]); }
CASE(minimum) { UNUSED; return mirt_minimum(batch(x, v[0]), v[1]); }
CASE(where) { UNUSED; return mirt_where(mirt_less(x, v[0]), mirt_square(v[0]), mirt_multiply(x, v[1])); }
CASE(where_scalar) {
    UNUSED;
    return mirt_where(mirt_greater(v[0], v[1]), mirt_multiply(v[0], v[1]),
                      mirt_constant_tensor(v[0], mirt_make_array(&half, MIRT_FLOAT32, MIRT_SHAPE(1))));
}
CASE(where_integers) { /* choices among int32 and among uint8 */
    UNUSED;
    mirt_tensor *i = mirt_cast(x, MIRT_INT32), *b = mirt_cast(x, MIRT_UINT8),
                *less = mirt_less(v[0], mirt_cast(i, MIRT_FLOAT32));
    return mirt_add(mirt_cast(mirt_where(less, i, mirt_cast(b, MIRT_INT32)), MIRT_FLOAT32),
                    mirt_cast(mirt_where(less, b, b), MIRT_FLOAT32));
}
CASE(comparisons) { /* each comparison weighs in with another power of two */
    UNUSED;
    mirt_tensor *i = mirt_cast(x, MIRT_INT32), *b = mirt_cast(x, MIRT_UINT8),
                *c = mirt_reshape(mirt_cast(v[0], MIRT_INT32), MIRT_SHAPE(1, 5));
    mirt_tensor *y = mirt_scale(mirt_cast(mirt_equal(i, c), MIRT_FLOAT32), 32, 0);
    y = mirt_add(y, mirt_scale(mirt_cast(mirt_not_equal(b, mirt_cast(c, MIRT_UINT8)), MIRT_FLOAT32), 16, 0));
    y = mirt_add(y, mirt_scale(mirt_cast(mirt_less(x, v[0]), MIRT_FLOAT32), 8, 0));
    y = mirt_add(y, mirt_scale(mirt_cast(mirt_less_equal(i, c), MIRT_FLOAT32), 4, 0));
    y = mirt_add(y, mirt_scale(mirt_cast(mirt_greater(b, mirt_cast(c, MIRT_UINT8)), MIRT_FLOAT32), 2, 0));
    return mirt_add(y, mirt_cast(mirt_greater_equal(x, v[0]), MIRT_FLOAT32));
}
CASE(logical) {
    UNUSED;
    mirt_tensor *a = mirt_less(x, v[0]), *b = mirt_cast(mirt_cast(mirt_floor(x), MIRT_UINT8), MIRT_BOOL),
                *c = mirt_cast(mirt_cast(x, MIRT_INT32), MIRT_BOOL);
    return mirt_cast(
        mirt_logical_or(mirt_logical_and(a, b), mirt_logical_not(mirt_not_equal(mirt_cast(x, MIRT_BOOL), c))),
        MIRT_FLOAT32);
}
CASE(stop_gradient) { UNUSED; return mirt_multiply(v[0], mirt_stop_gradient(mirt_floor(v[0]))); }
CASE(compare) { /* every comparison of every type, of numbers that are equal at times */
    UNUSED;
    mirt_tensor *i = mirt_cast(x, MIRT_INT32), *u = mirt_cast(mirt_cast(x, MIRT_INT32), MIRT_UINT8), *y = NULL;
    mirt_tensor *j = mirt_cast(mirt_floor(mirt_scale(x, 0.5f, 1)), MIRT_INT32), *t = mirt_cast(j, MIRT_UINT8);
    mirt_tensor *p = mirt_cast(i, MIRT_FLOAT32), *q = mirt_cast(j, MIRT_FLOAT32);
    mirt_tensor *pair[3][2] = {{p, q}, {i, j}, {u, t}};
    for (int k = 0; k < 3; k++) {
        mirt_tensor *a = pair[k][0], *b = pair[k][1];
        mirt_tensor *truth[4] = {mirt_equal(a, b), mirt_not_equal(a, b), mirt_less(a, b), mirt_less_equal(a, b)};
        for (int n = 0; n < 4; n++) {
            mirt_tensor *bit = mirt_scale(mirt_cast(truth[n], MIRT_FLOAT32), (float)(1 << (4 * k + n)), 0);
            y = y ? mirt_add(y, bit) : bit;
        }
        y = mirt_add(y, mirt_cast(mirt_where(truth[2], a, b), MIRT_FLOAT32));
    }
    return mirt_multiply(y, v[0]);
}
CASE(one_hot_of_bools) { UNUSED; return mirt_multiply(v[0], mirt_one_hot(mirt_less(x, v[0]), 2)); }
CASE(reduce_min) { UNUSED; return mirt_reduce_min(v[0], 5, true); }
CASE(reduce_min_ties) { UNUSED; return mirt_reduce_min(mirt_relu(batch(x, v[0])), 4, false); }
CASE(reduce_variance) { UNUSED; return mirt_reduce_variance(v[0], 5, false); }
CASE(argmax) { UNUSED; return mirt_cast(mirt_argmax(batch(x, v[0]), 1), MIRT_FLOAT32); }
CASE(argmin) { UNUSED; return mirt_cast(mirt_argmin(mirt_relu(batch(x, v[0])), -1), MIRT_FLOAT32); }
CASE(cumsum) { UNUSED; return mirt_cumsum(v[0], 0); }
CASE(cumsum_batched) { UNUSED; return mirt_cumsum(batch(x, v[0]), -1); }
CASE(sparsemax) { UNUSED; return mirt_sparsemax(v[0], -1); }
CASE(sparsemax_axis) { UNUSED; return mirt_sparsemax(v[0], 1); }
CASE(log_softmax) { UNUSED; return mirt_log_softmax(v[0]); }
CASE(transpose) { UNUSED; static const int axes[] = {2, 0, 3, 1}; return mirt_transpose(v[0], axes); }
CASE(transpose_batched) { UNUSED; static const int axes[] = {0, 3, 1, 2}; return mirt_transpose(batch(x, v[0]), axes); }
CASE(transpose_reversed) {
    UNUSED;
    return mirt_multiply(mirt_transpose(batch(x, v[0]), NULL), mirt_transpose(v[1], NULL));
}
CASE(concat) { UNUSED; return mirt_concat(v, 3, 1); }
CASE(concat_last) {
    UNUSED;
    mirt_tensor *all[10] = {x, batch(x, v[0]), x, batch(x, v[1]), x, batch(x, v[0]), x, x, x, batch(x, v[1])};
    return mirt_concat(all, 10, -1);
}
CASE(split) {
    UNUSED;
    mirt_tensor *part[3];
    mirt_split_tensor(batch(x, v[0]), 3, -1, part);
    return mirt_add(mirt_multiply(part[0], part[2]), part[1]);
}
CASE(slice) {
    UNUSED;
    static const int64_t begin[] = {1, 0, 2}, size[] = {2, -1, 2};
    return mirt_slice(v[0], begin, size);
}
CASE(slice_batched) {
    UNUSED;
    static const int64_t begin[] = {0, 1, 0}, size[] = {-1, 1, -1};
    return mirt_slice(batch(x, v[0]), begin, size);
}
CASE(pad) {
    UNUSED;
    static const int64_t before[] = {1, 0, 2}, after[] = {0, 3, 1};
    return mirt_pad(v[0], before, after, -1.5f);
}
CASE(pad_batched) {
    UNUSED;
    static const int64_t before[] = {0, 1, 0}, after[] = {0, 0, 2};
    return mirt_pad(batch(x, v[0]), before, after, 0);
}
CASE(gather) { UNUSED; return mirt_gather(v[0], mirt_cast(x, MIRT_INT32)); } /* indices from 0 to 4 */
CASE(gather_bytes) { UNUSED; return mirt_gather(mirt_square(v[0]), x); }
CASE(moves_of_integers) {
    UNUSED;
    static const int64_t before[] = {0, 1, 0}, after[] = {0, 0, 1}, begin[] = {0, 0, 1}, size[] = {-1, -1, -1};
    static const int axes[] = {0, 2, 1};
    mirt_tensor *two[2] = {mirt_cast(x, MIRT_INT32),
                           mirt_cast(mirt_transpose(mirt_transpose(mirt_cast(x, MIRT_UINT8), axes), axes), MIRT_INT32)};
    mirt_tensor *b = mirt_cast(mirt_slice(mirt_pad(mirt_less(x, v[0]), before, after, 0), begin, size), MIRT_FLOAT32);
    return mirt_add(mirt_reduce_sum(b, 0, false),
                    mirt_reduce_sum(mirt_cast(mirt_concat(two, 2, 1), MIRT_FLOAT32), 0, false));
}
CASE(huber) { /* composed as Keras composes it */
    UNUSED;
    mirt_tensor *error = mirt_abs(mirt_subtract(batch(x, v[0]), mirt_scale(x, 0.5f, 1)));
    return mirt_reduce_mean(
        mirt_where(mirt_less_equal(error, mirt_constant_tensor(x, mirt_make_array(&half, MIRT_FLOAT32, MIRT_SHAPE(1)))),
                   mirt_scale(mirt_square(error), 0.5f, 0), mirt_scale(error, 0.5f, -0.125f)),
        0, false);
}
CASE(affine) { UNUSED; return mirt__unary_op(MIRT__AFFINE, v[0], -0.5f, 2); }
CASE(copy) { UNUSED; return mirt__unary_op(MIRT__COPY, v[0], 0, 0); }
CASE(softmax) { UNUSED; return mirt_softmax(v[0]); }
CASE(bias_add) { UNUSED; return mirt__bias_add_op(v[0], v[1]); }
CASE(batched_bias_add) { UNUSED; return mirt__bias_add_op(batch(x, v[0]), v[1]); }
CASE(reduce_sum_all) { UNUSED; return mirt_reduce_sum(v[0], 0, false); }
CASE(reduce_sum_middle) { UNUSED; return mirt_reduce_sum(v[0], 2, false); }
CASE(reduce_sum_ends) { UNUSED; return mirt_reduce_sum(v[0], 5, true); }
CASE(reduce_mean) { UNUSED; return mirt_reduce_mean(v[0], 4, false); }
CASE(reduce_max) { UNUSED; return mirt_reduce_max(v[0], 6, false); }
CASE(reduce_mean_rows) { UNUSED; return mirt_reduce_mean(batch(x, v[0]), 1, false); }
CASE(reduce_sum_rows) { UNUSED; return mirt_reduce_sum(mirt_square(batch(x, v[0])), 1, true); }
CASE(reduce_samples) { UNUSED; return mirt_reduce_mean(mirt_square(batch(x, v[0])), 0, false); }
CASE(reshape) {
    UNUSED;
    return mirt_multiply(mirt_reshape(v[0], MIRT_SHAPE(3, 10)), mirt_reshape(v[1], MIRT_SHAPE(3, 10)));
}
CASE(matmul) { UNUSED; return mirt_matmul(v[0], v[1], false, false); }
CASE(matmul_ta) { UNUSED; return mirt_matmul(v[0], v[1], true, false); }
CASE(matmul_tb) { UNUSED; return mirt_matmul(v[0], v[1], false, true); }
CASE(matmul_both) { UNUSED; return mirt_matmul(v[0], v[1], true, true); }
CASE(matmul_batched) { UNUSED; return mirt_matmul(batch(x, v[0]), v[1], false, false); }
CASE(matmul_bias_relu) {
    UNUSED;
    return mirt_relu(mirt__bias_add_op(mirt_matmul(batch(x, v[0]), v[1], false, false), v[2]));
}
CASE(matmul_chain) {
    UNUSED;
    mirt_tensor *h = mirt_tanh(mirt__bias_add_op(mirt_matmul(batch(x, v[0]), v[1], false, false), v[2]));
    return mirt_matmul(mirt_sigmoid(mirt_matmul(h, v[3], false, false)), v[3], false, true);
}
CASE(matmul_data) { /* uint8 data through cast, rescale and flatten */
    UNUSED;
    mirt_tensor *h = mirt__unary_op(MIRT__AFFINE, mirt_cast(x, MIRT_FLOAT32), 1.0f / 64, -0.5f);
    return mirt_relu(mirt__bias_add_op(mirt_matmul(mirt_reshape(h, MIRT_SHAPE(12)), v[0], false, false), v[1]));
}
static mirt_tensor *convolved(mirt_tensor *x, mirt_tensor *k, mirt__attrs a) { return mirt__conv2d_op(x, k, &a); }
CASE(conv) { UNUSED; return convolved(v[0], v[1], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID)); }
CASE(conv_same) { UNUSED; return convolved(v[0], v[1], window(0, 0, 1, 1, 1, 1, 1, MIRT_SAME)); }
CASE(conv_strided) { UNUSED; return convolved(v[0], v[1], window(0, 0, 2, 3, 1, 1, 1, MIRT_SAME)); }
CASE(conv_dilated) { UNUSED; return convolved(v[0], v[1], window(0, 0, 1, 1, 2, 2, 1, MIRT_SAME)); }
CASE(conv_groups) { UNUSED; return convolved(v[0], v[1], window(0, 0, 1, 2, 1, 1, 2, MIRT_VALID)); }
CASE(conv_bias_sigmoid) {
    UNUSED;
    mirt_tensor *y = convolved(batch(x, v[0]), v[1], window(0, 0, 1, 1, 1, 1, 1, MIRT_SAME));
    return mirt_sigmoid(mirt__bias_add_op(y, v[2]));
}
CASE(conv_chain) { /* the inner activation's gradient becomes a mask of the outer convolution's input gradient */
    UNUSED;
    mirt_tensor *h =
        mirt_tanh(mirt__bias_add_op(convolved(batch(x, v[0]), v[1], window(0, 0, 1, 1, 1, 1, 1, MIRT_SAME)), v[2]));
    return convolved(h, v[3], window(0, 0, 2, 2, 1, 1, 1, MIRT_SAME));
}
CASE(conv_pool) { /* uint8 data through rescale, convolution, relu and pooling: one fused kernel */
    UNUSED;
    mirt_tensor *h = mirt__unary_op(MIRT__AFFINE, mirt_cast(x, MIRT_FLOAT32), 1.0f / 128, -1);
    h = mirt_relu(mirt__bias_add_op(convolved(h, v[0], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID)), v[1]));
    mirt__attrs pool = window(2, 2, 2, 2, 1, 1, 1, MIRT_VALID);
    return mirt__max_pool2d_op(h, &pool);
}
CASE(conv_pool_unbiased) {
    UNUSED;
    mirt_tensor *h = mirt__unary_op(MIRT__AFFINE, mirt_cast(x, MIRT_FLOAT32), 1.0f / 128, -1);
    mirt__attrs pool = window(2, 2, 2, 2, 1, 1, 1, MIRT_VALID);
    h = mirt_relu(convolved(h, v[0], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID)));
    return mirt__max_pool2d_op(h, &pool);
}
/* Chains that look like those the fusions know, and must stay as they are or be fused in part only. */
static mirt_tensor *data(mirt_tensor *x) {
    return mirt__unary_op(MIRT__AFFINE, mirt_cast(x, MIRT_FLOAT32), 1.0f / 128, -1);
}
static mirt_tensor *pool_2x2(mirt_tensor *x) {
    mirt__attrs a = window(2, 2, 2, 2, 1, 1, 1, MIRT_VALID);
    return mirt__max_pool2d_op(x, &a);
}
CASE(two_activations) { UNUSED; return mirt_relu(mirt_tanh(mirt_matmul(batch(x, v[0]), v[1], false, false))); }
CASE(bias_after_relu) {
    UNUSED;
    return mirt__bias_add_op(mirt_relu(mirt_matmul(batch(x, v[0]), v[1], false, false)), v[2]);
}
CASE(two_biases) {
    UNUSED;
    return mirt__bias_add_op(mirt__bias_add_op(mirt_matmul(batch(x, v[0]), v[1], false, false), v[2]), v[3]);
}
CASE(affine_with_gradient) {
    UNUSED;
    return mirt_matmul(mirt__unary_op(MIRT__AFFINE, batch(x, v[0]), -0.5f, 2), v[1], false, false);
}
CASE(two_affines) { UNUSED; return mirt_matmul(mirt__unary_op(MIRT__AFFINE, data(x), 3, 0.25f), v[0], false, false); }
CASE(read_by_two) { /* a product and its activation both have readers of their own */
    UNUSED;
    mirt_tensor *h = mirt_matmul(batch(x, v[0]), v[1], false, false), *y = mirt_tanh(h);
    return mirt_add(mirt_multiply(h, y), mirt_relu(y));
}
CASE(pool_without_relu) { UNUSED; return pool_2x2(convolved(data(x), v[0], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID))); }
CASE(pool_of_tanh) {
    UNUSED;
    return pool_2x2(mirt_tanh(convolved(data(x), v[0], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID))));
}
CASE(pool_of_same) {
    UNUSED;
    return pool_2x2(mirt_relu(convolved(data(x), v[0], window(0, 0, 1, 1, 1, 1, 1, MIRT_SAME))));
}
CASE(pool_of_groups) {
    UNUSED;
    return pool_2x2(mirt_relu(convolved(data(x), v[0], window(0, 0, 1, 1, 1, 1, 2, MIRT_VALID))));
}
CASE(pool_of_strided) {
    UNUSED;
    return pool_2x2(mirt_relu(convolved(data(x), v[0], window(0, 0, 2, 1, 1, 1, 1, MIRT_VALID))));
}
CASE(pool_of_dilated) {
    UNUSED;
    return pool_2x2(mirt_relu(convolved(data(x), v[0], window(0, 0, 1, 1, 1, 2, 1, MIRT_VALID))));
}
CASE(pool_with_gradient) {
    UNUSED;
    return pool_2x2(mirt_relu(convolved(batch(x, v[0]), v[1], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID))));
}
CASE(same_pool) {
    UNUSED;
    mirt__attrs a = window(2, 2, 2, 2, 1, 1, 1, MIRT_SAME);
    return mirt__max_pool2d_op(mirt_relu(convolved(data(x), v[0], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID))), &a);
}
CASE(overlapping_pool) {
    UNUSED;
    mirt__attrs a = window(3, 2, 2, 1, 1, 1, 1, MIRT_VALID);
    return mirt__max_pool2d_op(mirt_relu(convolved(data(x), v[0], window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID))), &a);
}
CASE(max_pool) {
    UNUSED;
    mirt__attrs a = window(2, 2, 2, 2, 1, 1, 1, MIRT_VALID);
    return mirt__max_pool2d_op(v[0], &a);
}
CASE(max_pool_same) {
    UNUSED;
    mirt__attrs a = window(3, 2, 2, 1, 1, 1, 1, MIRT_SAME);
    return mirt__max_pool2d_op(v[0], &a);
}
CASE(max_pool_sparse) {
    UNUSED;
    mirt__attrs a = window(1, 2, 3, 3, 1, 1, 1, MIRT_VALID);
    return mirt__max_pool2d_op(batch(x, v[0]), &a);
}
CASE(average_pool) {
    UNUSED;
    mirt__attrs a = window(2, 2, 2, 2, 1, 1, 1, MIRT_VALID);
    return mirt__average_pool2d_op(v[0], &a);
}
CASE(average_pool_same) {
    UNUSED;
    mirt__attrs a = window(3, 3, 2, 1, 1, 1, 1, MIRT_SAME);
    return mirt__average_pool2d_op(batch(x, v[0]), &a);
}
CASE(global_average_pool) { UNUSED; return mirt__reduce_op(MIRT__REDUCE_MEAN, batch(x, v[0]), 6u, false); }
/* scale * a * a * b, a user's own. */
static int cube_forward(const mirt_op_call *c, void *user) {
    const mirt__real *a = (const mirt__real *)c->in[0], *b = (const mirt__real *)c->in[1];
    const float scale = *(const float *)c->config;
    mirt__real *y = (mirt__real *)(void *)c->out;
    (void)user;
    if (c->num_in != 2 || c->in_dtype[0] != MIRT_FLOAT32 || c->in_dtype[1] != MIRT_FLOAT32) return 1;
    for (int64_t i = 0; i < mirt__shape_count(&c->out_shape); i++) y[i] = (mirt__real)scale * a[i] * a[i] * b[i];
    return 0;
}
static int cube_backward(const mirt_op_call *c, void *user) {
    const mirt__real *a = (const mirt__real *)c->in[0], *b = (const mirt__real *)c->in[1],
                     *dy = (const mirt__real *)(const void *)c->dout;
    const float scale = *(const float *)c->config;
    mirt__real *da = (mirt__real *)(void *)c->din[0], *db = (mirt__real *)(void *)c->din[1];
    (void)user;
    for (int64_t i = 0; i < mirt__shape_count(&c->out_shape); i++) {
        if (da) da[i] = 2 * (mirt__real)scale * a[i] * b[i] * dy[i];
        if (db) db[i] = (mirt__real)scale * a[i] * a[i] * dy[i];
    }
    return 0;
}
static const mirt_op_class cube_class = {"cube", sizeof(float), NULL, cube_forward, cube_backward, NULL, NULL};
static mirt_tensor *cube(mirt__graph *g, mirt_tensor *a, mirt_tensor *b) {
    const float scale = 0.5f;
    mirt_tensor *in[2] = {a, b};
    return mirt__user_op(g, &cube_class, in, 2, &scale);
}
CASE(user) { UNUSED; return cube(g, v[0], v[1]); }
CASE(user_rows) { UNUSED; return cube(g, batch(x, v[0]), batch(x, v[1])); }
CASE(dropout) {
    UNUSED;
    return mirt__random_op(MIRT__OP_dropout, batch(x, v[0]), MIRT__DROPOUT_ZEROS, 0.4f, 77, NULL);
}
static mirt_tensor *masked(mirt_tensor *x, int first) { /* draws for the axes from `first` on */
    mirt__attrs a = mirt__attrs_of(MIRT__OP_dropout);
    MIRT__OF(&a, random)->rate = 0.4f;
    MIRT__OF(&a, random)->key = 78;
    a.shape = x->shape;
    for (int i = 1; i < first && i < x->shape.rank; i++) a.shape.dim[i] = 1;
    return mirt__masked_op(x, &a);
}
static mirt_tensor *dropped(mirt_tensor *x, mirt__dropout_kind kind) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_dropout);
    MIRT__OF(&a, random)->rate = 0.4f;
    MIRT__OF(&a, random)->key = 80;
    a.kind = (int)kind;
    return mirt__masked_op(mirt_square(x), &a);
}
CASE(gaussian_dropout) { UNUSED; return dropped(batch(x, v[0]), MIRT__DROPOUT_GAUSSIAN); }
CASE(alpha_dropout) { UNUSED; return dropped(batch(x, v[0]), MIRT__DROPOUT_ALPHA); }
CASE(gaussian_noise) {
    UNUSED;
    return mirt__random_op(MIRT__OP_gaussian_noise, mirt_square(batch(x, v[0])), MIRT__DROPOUT_ZEROS, 0.3f, 79, NULL);
}
CASE(dropout_rows) { UNUSED; return masked(batch(x, v[0]), 9); }
static mirt_tensor *augmented(mirt_tensor *x, mirt_augmentation_kind kind, float factor) {
    mirt_augmentation d;
    mirt__transform transform;
    memset(&d, 0, sizeof d);
    d.kind = kind;
    d.factor[0] = d.height_factor[0] = d.width_factor[1] = factor;
    if (!mirt__transform_of(&d, x->shape.dim[1], x->shape.dim[2], x->shape.dim[3], &transform)) return NULL;
    transform.key = 7;
    return mirt__augment_op(x, &transform);
}
CASE(augment) {
    UNUSED;
    return mirt_add(augmented(augmented(x, MIRT_RANDOM_ROTATION, 0.2f), MIRT_RANDOM_ZOOM, 0.3f), v[0]);
} /* one warp */
CASE(augment_twice) {
    UNUSED;
    return mirt_add(augmented(augmented(augmented(x, MIRT_RANDOM_ZOOM, 0.5f), MIRT_RANDOM_CONTRAST, 0.5f),
                              MIRT_RANDOM_TRANSLATION, 0.2f),
                    v[0]);
}
CASE(dropout_channels) { UNUSED; return masked(batch(x, v[0]), 3); }

/* The class numbers or targets of the losses are made from x itself, so that one input serves. */
static mirt_tensor *classes(mirt_tensor *x) { return mirt_cast(mirt_reduce_max(x, 0, false), MIRT_INT32); }
static mirt_tensor *one_hot_classes(mirt_tensor *x, int64_t n) { return mirt_one_hot(classes(x), n); }
static mirt_tensor *loss_with(mirt_loss loss, bool from_logits, float smoothing, mirt_tensor *x, mirt_tensor *labels) {
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    how.from_logits = from_logits;
    how.label_smoothing = smoothing;
    how.axes = 2; /* of ratios */
    return mirt__loss_of(loss, &how, x, labels);
}
static mirt_tensor *loss_of(mirt_loss loss, bool from_logits, mirt_tensor *x, mirt_tensor *labels) {
    return loss_with(loss, from_logits, 0, x, labels);
}
/* Probabilities from which the loss does not go back to logits. */
static mirt_tensor *softmax_as_it_is(mirt_tensor *x) { return mirt_scale(mirt_softmax(x), 1, 0); }
static mirt_tensor *sigmoid_as_it_is(mirt_tensor *x) { return mirt_scale(mirt_sigmoid(x), 1, 0); }
static mirt_tensor *values_for(mirt_loss loss, mirt_tensor *x) {
    const bool shares = loss == MIRT_KL_DIVERGENCE || loss == MIRT_DICE || loss == MIRT_TVERSKY ||
                        loss == MIRT_POISSON || loss == MIRT_MEAN_SQUARED_LOGARITHMIC_ERROR;
    return shares ? mirt_sigmoid(x) : x;
}
#define SPARSE_CASE(loss, logits) loss_of(loss, logits, batch(x, v[0]), classes(x))
#define CATEGORICAL_CASE(loss, logits) loss_of(loss, logits, batch(x, v[0]), one_hot_classes(x, 5))
/* Rows are compared with each other: a batched case ends in a sum over them. */
static mirt_tensor *circle_of(mirt_tensor *x, mirt_tensor *groups, bool keep_diagonal) {
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    how.gamma = 2;
    how.margin = 0.25f;
    how.keep_diagonal = keep_diagonal;
    mirt_tensor *y = mirt__loss_of(MIRT_CIRCLE, &how, mirt_scale(x, 0.25f, 0), groups);
    return y ? mirt_reduce_sum(mirt_tanh(mirt_scale(y, 0.03125f, 0)), 1, false) : NULL;
}
#define GROUPS_CASE(loss, logits) circle_of(batch(x, v[0]), classes(x), false)
#define ELEMENTS_CASE VALUES_CASE
#define VALUES_CASE(loss, logits) loss_of(loss, logits, values_for(loss, batch(x, v[0])), one_hot_classes(x, 5))
#define LOSS_CASE(loss, name, labels, activation) \
    CASE(loss_##name) { UNUSED; return labels##_CASE(loss, activation != MIRT_LINEAR); }
MIRT_LOSS_LIST(LOSS_CASE)
CASE(circle_with_itself) { UNUSED; return circle_of(batch(x, v[0]), classes(x), true); }
CASE(sparse_probabilities) {
    UNUSED;
    return loss_of(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, false, softmax_as_it_is(batch(x, v[0])), classes(x));
}
CASE(categorical_probabilities) {
    UNUSED;
    return loss_of(MIRT_CATEGORICAL_CROSSENTROPY, false, softmax_as_it_is(batch(x, v[0])), one_hot_classes(x, 5));
}
CASE(binary_probabilities) {
    UNUSED;
    return loss_of(MIRT_BINARY_CROSSENTROPY, false, sigmoid_as_it_is(batch(x, v[0])), one_hot_classes(x, 5));
}
CASE(binary_focal_probabilities) {
    UNUSED;
    return loss_with(MIRT_BINARY_FOCAL_CROSSENTROPY, false, 0.25f, sigmoid_as_it_is(batch(x, v[0])),
                     one_hot_classes(x, 5));
}
CASE(categorical_focal_probabilities) {
    UNUSED;
    return loss_with(MIRT_CATEGORICAL_FOCAL_CROSSENTROPY, false, 0.25f, softmax_as_it_is(batch(x, v[0])),
                     one_hot_classes(x, 5));
}
CASE(sparse_smoothed) {
    UNUSED;
    return loss_with(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, 0.25f, batch(x, v[0]), classes(x));
}
CASE(sparse_smoothed_probabilities) {
    UNUSED;
    return loss_with(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, false, 0.25f, softmax_as_it_is(batch(x, v[0])), classes(x));
}
CASE(categorical_smoothed) {
    UNUSED;
    return loss_with(MIRT_CATEGORICAL_CROSSENTROPY, true, 0.25f, batch(x, v[0]), one_hot_classes(x, 5));
}
CASE(binary_smoothed) {
    UNUSED;
    return loss_with(MIRT_BINARY_CROSSENTROPY, true, 0.25f, batch(x, v[0]), one_hot_classes(x, 5));
}
/* A class for each position. */
static mirt_tensor *position_classes(mirt_tensor *x) { return mirt_cast(mirt_reduce_max(x, 8u, false), MIRT_INT32); }
CASE(sparse_positions) {
    UNUSED;
    return loss_of(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, batch(x, v[0]), position_classes(x));
}
CASE(sparse_ignored) {
    UNUSED;
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    how.from_logits = how.has_ignore_class = true;
    how.ignore_class = 1;
    return mirt__loss_op(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, &how, batch(x, v[0]), position_classes(x));
}
CASE(categorical_positions) {
    UNUSED;
    return loss_of(MIRT_CATEGORICAL_CROSSENTROPY, true, batch(x, v[0]), mirt_one_hot(position_classes(x), 5));
}
CASE(accuracy_positions) { UNUSED; return mirt__accuracy_op(MIRT__ACCURACY_SPARSE, x, position_classes(x)); }
CASE(accuracy_sparse) { UNUSED; return mirt__accuracy_op(MIRT__ACCURACY_SPARSE, x, classes(x)); }
CASE(accuracy_categorical) { UNUSED; return mirt__accuracy_op(MIRT__ACCURACY_CATEGORICAL, x, one_hot_classes(x, 5)); }
CASE(accuracy_binary) { UNUSED; return mirt__accuracy_op(MIRT__ACCURACY_BINARY, x, one_hot_classes(x, 5)); }

CASE(conv_transpose) {
    UNUSED;
    mirt__attrs a = window(0, 0, 1, 1, 1, 1, 1, MIRT_VALID);
    return mirt__conv2d_transpose_op(batch(x, v[0]), v[1], &a);
}
CASE(conv_transpose_same) {
    UNUSED;
    mirt__attrs a = window(0, 0, 2, 2, 1, 1, 1, MIRT_SAME);
    return mirt__conv2d_transpose_op(v[0], v[1], &a);
}
CASE(conv_transpose_strided) {
    UNUSED;
    mirt__attrs a = window(0, 0, 3, 2, 1, 1, 1, MIRT_VALID);
    return mirt__conv2d_transpose_op(v[0], v[1], &a);
}
CASE(conv_transpose_groups) {
    UNUSED;
    mirt__attrs a = window(0, 0, 2, 3, 1, 1, 2, MIRT_SAME);
    MIRT__OF(&a, window)->size[0] = 1;
    MIRT__OF(&a, window)->size[1] = 2;
    return mirt__conv2d_transpose_op(v[0], v[1], &a);
}
CASE(conv_transpose_dilated) {
    UNUSED;
    mirt__attrs a = window(0, 0, 1, 1, 2, 3, 1, MIRT_SAME);
    return mirt__conv2d_transpose_op(v[0], v[1], &a);
}
CASE(conv_transpose_relu) {
    UNUSED;
    mirt__attrs a = window(0, 0, 2, 1, 1, 1, 1, MIRT_SAME);
    return mirt_tanh(mirt__bias_add_op(mirt__conv2d_transpose_op(mirt_sigmoid(batch(x, v[0])), v[1], &a), v[2]));
}
CASE(depthwise) {
    UNUSED;
    mirt__attrs a = window(0, 0, 1, 1, 1, 1, 1, MIRT_SAME);
    return mirt__depthwise_conv2d_op(batch(x, v[0]), v[1], &a);
}
CASE(depthwise_strided) {
    UNUSED;
    mirt__attrs a = window(0, 0, 2, 2, 1, 1, 1, MIRT_VALID);
    return mirt__depthwise_conv2d_op(v[0], v[1], &a);
}
CASE(upsampling) { UNUSED; const int size[2] = {2, 3}; return mirt__upsampling2d_op(batch(x, v[0]), size, false); }
CASE(upsampling_bilinear) {
    UNUSED;
    const int size[2] = {3, 2};
    return mirt__upsampling2d_op(batch(x, v[0]), size, true);
}
CASE(resize) { UNUSED; return mirt__resize2d_op(v[0], 3, 7, false); }
CASE(resize_bilinear) { UNUSED; return mirt__resize2d_op(v[0], 3, 7, true); }

/* Normalization. Its statistics tie rows together, so that a batched case ends in a sum over them. */
static mirt__attrs norm(int last_axes, bool gamma, bool beta) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_normalize);
    mirt__attrs_norm *own = MIRT__OF(&a, norm);
    own->last_axes = last_axes;
    own->scaling.gamma = gamma;
    own->scaling.beta = beta;
    own->scaling.epsilon = 1e-3f;
    own->momentum = 0.9;
    return a;
}
static mirt_tensor *own_statistics(mirt_tensor *x, mirt_tensor *gamma, mirt_tensor *beta) {
    mirt__attrs a = norm(0, gamma, beta);
    mirt_tensor *mean = mirt__record(x->node->graph, MIRT__OP_norm_stats, &a, &x, 1);
    mirt_tensor *in[5] = {x, mean, mean ? mean->node->out[1] : NULL, gamma ? gamma : beta, beta};
    MIRT__OF(&a, norm)->batch_statistics = true;
    return mirt__normalize_op(in, &a);
}
/* What a model's layer becomes; the moving statistics are made of the data. `own`: those of the batch. */
static mirt_tensor *batch_norm(mirt_tensor *x, mirt_tensor *data, mirt_tensor **v, bool training, bool synchronized,
                               mirt_tensor **own) {
    const unsigned all_but_last = (1u << (x->shape.rank - 1)) - 1;
    mirt__attrs a = norm(0, v != NULL, v != NULL);
    mirt_tensor *in[5] = {x, mirt_reduce_mean(data, all_but_last, false),
                          mirt_reduce_mean(mirt_square(data), all_but_last, false), NULL, NULL};
    MIRT__OF(&a, norm)->synchronized = synchronized;
    if (v) {
        in[3] = v[0];
        in[4] = v[1];
    }
    return training ? mirt__batch_norm_training(in, &a, own, own + 1) : mirt__batch_norm_inference(in, &a);
}
static mirt_tensor *over_rows(mirt_tensor *y) { return y ? mirt_reduce_sum(mirt_tanh(y), 1, false) : NULL; }
CASE(normalize) { UNUSED; return own_statistics(v[0], v[1], v[2]); }
CASE(normalize_gamma) { UNUSED; return own_statistics(v[0], v[1], NULL); }
CASE(normalize_beta) { UNUSED; return own_statistics(v[0], NULL, v[1]); }
CASE(normalize_plain) { UNUSED; return own_statistics(v[0], NULL, NULL); }
CASE(normalize_relu) { UNUSED; return mirt_relu(own_statistics(v[0], v[1], v[2])); }
CASE(normalize_add_relu) { UNUSED; return mirt_relu(mirt_add(own_statistics(v[0], v[1], v[2]), v[3])); }
CASE(batch_norm_relu6) {
    UNUSED;
    mirt_tensor *own[2];
    return over_rows(mirt__activation_op(MIRT_RELU6, batch_norm(batch(x, v[0]), x, v + 1, true, true, own)));
}
CASE(batch_norm_exp) {
    UNUSED;
    mirt_tensor *own[2];
    return over_rows(mirt__activation_op(MIRT_EXPONENTIAL, batch_norm(batch(x, v[0]), x, v + 1, true, true, own)));
}
CASE(batch_norm_mish) {
    UNUSED;
    mirt_tensor *own[2];
    return over_rows(mirt__activation_op(MIRT_MISH, batch_norm(batch(x, v[0]), x, v + 1, true, true, own)));
}
CASE(layer_norm_relu) {
    UNUSED;
    mirt__attrs a = norm(1, false, false);
    return mirt_relu(mirt__layer_norm_op(batch(x, v[0]), v[1], v[2], &a));
}
CASE(batch_norm) {
    UNUSED;
    mirt_tensor *own[2];
    return over_rows(batch_norm(batch(x, v[0]), x, v + 1, true, false, own));
}
CASE(batch_norm_synchronized) {
    UNUSED;
    mirt_tensor *own[2];
    return over_rows(batch_norm(batch(x, v[0]), x, v + 1, true, true, own));
}
CASE(batch_norm_inference) { UNUSED; return over_rows(batch_norm(batch(x, v[0]), x, v + 1, false, false, NULL)); }
CASE(batch_norm_own) {
    UNUSED;
    mirt_tensor *own[2];
    return batch_norm(x, mirt_square(x), NULL, true, false, own) ? mirt_multiply(own[0], own[1]) : NULL;
}
CASE(layer_norm) {
    UNUSED;
    mirt__attrs a = norm(1, false, false);
    return mirt__layer_norm_op(batch(x, v[0]), v[1], v[2], &a);
}
CASE(layer_norm_last_two) {
    UNUSED;
    mirt__attrs a = norm(2, false, false);
    return mirt__layer_norm_op(batch(x, v[0]), v[1], v[2], &a);
}
CASE(layer_norm_plain) {
    UNUSED;
    mirt__attrs a = norm(1, false, false);
    return mirt__layer_norm_op(v[0], NULL, NULL, &a);
}
CASE(layer_norm_beta) {
    UNUSED;
    mirt__attrs a = norm(2, false, false);
    return mirt__layer_norm_op(v[0], NULL, v[1], &a);
}

#define WIDE -2.0, 2.0
#define ROW(name) #name, case_##name
static const op_case op_cases[] = {
    {ROW(add), 2, {{3, 1, 5}, {4, 1}}, {0}, MIRT_FLOAT32, WIDE},
    {"add scalar-like", case_add, 2, {{7, 3}, {1}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(subtract), 2, {{3, 1, 5}, {4, 1}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(multiply), 2, {{2, 3, 5}, {3, 1}}, {0}, MIRT_FLOAT32, WIDE},
    {"multiply same", case_multiply, 2, {{17, 9}, {17, 9}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(divide), 2, {{3, 5}, {5}}, {0}, MIRT_FLOAT32, 0.5, 2.0},
    {ROW(square), 1, {{3, 7}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(square_of_sum), 2, {{3, 7}, {3, 7}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(twice), 1, {{3, 7}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(relu), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(sigmoid), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(tanh), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(exp), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(log), 1, {{5, 13}}, {0}, MIRT_FLOAT32, 0.5, 2.0},
    {ROW(sqrt), 1, {{5, 13}}, {0}, MIRT_FLOAT32, 0.5, 2.0},
    {ROW(rsqrt), 1, {{5, 13}}, {0}, MIRT_FLOAT32, 0.5, 2.0},
    {ROW(abs), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(relu6), 1, {{5, 13}}, {0}, MIRT_FLOAT32, -4.0, 8.0},
    {ROW(gelu), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(silu), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(hard_sigmoid), 1, {{5, 13}}, {0}, MIRT_FLOAT32, -4.0, 8.0},
    {ROW(hard_swish), 1, {{5, 13}}, {0}, MIRT_FLOAT32, -4.0, 8.0},
    {ROW(softplus), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(selu), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(mish), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(softsign), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(gelu_approximate), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(celu), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(glu), 1, {{3, 6, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(hard_shrink), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(soft_shrink), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(squareplus), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(threshold), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(hard_tanh), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(log_sigmoid), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(sparse_plus), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(sparse_sigmoid), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(tanh_shrink), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(leaky_relu), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(elu), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(clip), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(power), 1, {{5, 13}}, {0}, MIRT_FLOAT32, 0.5, 2.0},
    {ROW(square_and_stairs), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_relu6), 4, {{9}, {9, 18}, {18}, {5, 18}}, {9}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_silu), 3, {{9}, {9, 18}, {18}}, {9}, MIRT_FLOAT32, WIDE},
    {ROW(maximum), 2, {{3, 1, 5}, {4, 1}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(minimum), 2, {{3, 5}, {3, 1}}, {3, 5}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(where), 2, {{3, 5}, {1, 3, 1}}, {3, 5}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(where_scalar), 2, {{4, 300}, {4, 1}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(where_integers), 1, {{5}}, {3, 5}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(comparisons), 1, {{5}}, {3, 5}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(logical), 1, {{3, 1}}, {3, 5}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(compare), 1, {{3, 5}}, {3, 5}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(stop_gradient), 1, {{3, 7}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(one_hot_of_bools), 1, {{5, 1}}, {5, 1}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(reduce_min), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_min_ties), 1, {{3, 5}}, {3, 5}, MIRT_FLOAT32, -6.0, -2.0},
    {ROW(reduce_variance), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(argmax), 1, {{7, 3}}, {7, 3}, MIRT_FLOAT32, WIDE},
    {ROW(argmin), 1, {{3, 7}}, {3, 7}, MIRT_FLOAT32, -4.0, 0.0},
    {ROW(cumsum), 1, {{9, 70}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(cumsum_batched), 1, {{3, 7}}, {3, 7}, MIRT_FLOAT32, WIDE},
    {ROW(sparsemax), 1, {{5, 11}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(sparsemax_axis), 1, {{3, 6, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(log_softmax), 1, {{5, 11}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(transpose), 1, {{3, 2, 5, 4}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(transpose_batched), 1, {{3, 2, 5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(transpose_reversed), 2, {{3, 1, 5}, {3, 7, 1}}, {3, 7, 5}, MIRT_FLOAT32, WIDE},
    {ROW(concat), 3, {{3, 2, 5}, {3, 1, 5}, {3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(concat_last), 2, {{3, 2}, {1, 2}}, {3, 2}, MIRT_FLOAT32, WIDE},
    {ROW(split), 1, {{5, 6}}, {5, 6}, MIRT_FLOAT32, WIDE},
    {ROW(slice), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(slice_batched), 1, {{3, 5}}, {3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(pad), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(pad_batched), 1, {{3, 5}}, {3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(gather), 1, {{4, 3, 70}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(gather_bytes), 1, {{200, 3}}, {70}, MIRT_UINT8, WIDE},
    {ROW(moves_of_integers), 1, {{3, 5}}, {3, 5}, MIRT_FLOAT32, 0.0, 5.0},
    {ROW(huber), 1, {{3, 5}}, {3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(affine), 1, {{5, 13}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(copy), 1, {{70}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(softmax), 1, {{5, 11}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(bias_add), 2, {{2, 3, 3, 5}, {5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(batched_bias_add), 2, {{3, 3, 5}, {5}}, {3, 3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_sum_all), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {"reduce_sum chunks", case_reduce_sum_all, 1, {{3, 400}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_sum_middle), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_sum_ends), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_mean), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_max), 1, {{3, 4, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_mean_rows), 1, {{1, 5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_sum_rows), 1, {{1, 5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(reduce_samples), 1, {{3, 2}}, {3, 2}, MIRT_FLOAT32, WIDE},
    {ROW(reshape), 2, {{5, 6}, {2, 15}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(matmul), 2, {{5, 7}, {7, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {"matmul 1x1", case_matmul, 2, {{1, 1}, {1, 1}}, {0}, MIRT_FLOAT32, WIDE},
    {"matmul odd", case_matmul, 2, {{13, 33}, {33, 67}}, {0}, MIRT_FLOAT32, WIDE},
    {"matmul rank 4", case_matmul, 2, {{2, 3, 2, 5}, {5, 4}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_ta), 2, {{7, 5}, {7, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_tb), 2, {{5, 7}, {3, 7}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_both), 2, {{7, 5}, {3, 7}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_batched), 2, {{9}, {9, 18}}, {9}, MIRT_FLOAT32, WIDE},
    {"matmul_batched rank 3", case_matmul_batched, 2, {{3, 4}, {4, 6}}, {3, 4}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_bias_relu), 3, {{9}, {9, 18}, {18}}, {9}, MIRT_FLOAT32, WIDE},
    {ROW(matmul_chain), 4, {{6}, {6, 7}, {7}, {7, 5}}, {6}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(matmul_data), 2, {{12, 5}, {5}}, {3, 4}, MIRT_UINT8, WIDE},
    {ROW(conv), 2, {{2, 6, 5, 3}, {3, 2, 3, 4}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {"conv 1x1", case_conv, 2, {{2, 4, 3, 5}, {1, 1, 5, 17}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_same), 2, {{2, 5, 4, 2}, {3, 4, 2, 3}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_strided), 2, {{1, 7, 8, 2}, {3, 2, 2, 3}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {"conv stride beyond kernel", case_conv_strided, 2, {{1, 7, 8, 2}, {1, 1, 2, 3}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_dilated), 2, {{1, 7, 6, 2}, {3, 3, 2, 3}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_groups), 2, {{2, 5, 6, 4}, {2, 3, 2, 6}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {"conv depthwise groups", case_conv_groups, 2, {{2, 5, 6, 2}, {2, 3, 1, 4}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_bias_sigmoid), 3, {{4, 5, 2}, {3, 3, 2, 3}, {3}}, {4, 5, 2}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_chain), 4, {{4, 5, 2}, {3, 3, 2, 3}, {3}, {2, 2, 3, 2}}, {4, 5, 2}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_pool), 2, {{3, 3, 1, 5}, {5}}, {8, 9, 1}, MIRT_UINT8, -1.0, 1.0},
    {"conv_pool channels", case_conv_pool, 2, {{2, 3, 3, 18}, {18}}, {6, 7, 3}, MIRT_UINT8, -1.0, 1.0},
    {ROW(conv_pool_unbiased), 1, {{2, 3, 3, 18}}, {6, 7, 3}, MIRT_UINT8, -1.0, 1.0},
    {ROW(two_activations), 2, {{9}, {9, 18}}, {9}, MIRT_FLOAT32, WIDE},
    {ROW(bias_after_relu), 3, {{9}, {9, 18}, {18}}, {9}, MIRT_FLOAT32, WIDE},
    {ROW(two_biases), 4, {{9}, {9, 18}, {18}, {18}}, {9}, MIRT_FLOAT32, WIDE},
    {ROW(affine_with_gradient), 2, {{9}, {9, 18}}, {9}, MIRT_FLOAT32, WIDE},
    {ROW(two_affines), 1, {{9, 18}}, {9}, MIRT_UINT8, WIDE},
    {ROW(read_by_two), 2, {{9}, {9, 7}}, {9}, MIRT_FLOAT32, -0.25, 0.25},
    {ROW(pool_without_relu), 1, {{3, 3, 1, 5}}, {8, 9, 1}, MIRT_UINT8, -1.0, 1.0},
    {ROW(pool_of_tanh), 1, {{3, 3, 1, 5}}, {8, 9, 1}, MIRT_UINT8, -1.0, 1.0},
    {ROW(pool_of_same), 1, {{3, 3, 1, 5}}, {8, 9, 1}, MIRT_UINT8, -1.0, 1.0},
    {ROW(pool_of_groups), 1, {{3, 3, 1, 6}}, {8, 9, 2}, MIRT_UINT8, -1.0, 1.0},
    {ROW(pool_of_strided), 1, {{3, 3, 1, 5}}, {9, 8, 1}, MIRT_UINT8, -1.0, 1.0},
    {ROW(pool_of_dilated), 1, {{3, 3, 1, 5}}, {8, 9, 1}, MIRT_UINT8, -1.0, 1.0},
    {ROW(pool_with_gradient), 2, {{6, 7, 2}, {3, 3, 2, 5}}, {6, 7, 2}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(same_pool), 1, {{3, 3, 1, 5}}, {8, 9, 1}, MIRT_UINT8, -1.0, 1.0},
    {ROW(overlapping_pool), 1, {{3, 3, 1, 5}}, {8, 9, 1}, MIRT_UINT8, -1.0, 1.0},
    {ROW(max_pool), 1, {{2, 5, 4, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(max_pool_same), 1, {{2, 5, 4, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(max_pool_sparse), 1, {{7, 8, 2}}, {7, 8, 2}, MIRT_FLOAT32, WIDE},
    {ROW(average_pool), 1, {{2, 5, 4, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(average_pool_same), 1, {{5, 4, 3}}, {5, 4, 3}, MIRT_FLOAT32, WIDE},
    {ROW(global_average_pool), 1, {{5, 4, 3}}, {5, 4, 3}, MIRT_FLOAT32, WIDE},
    {ROW(user), 2, {{3, 5}, {3, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(user_rows), 2, {{3, 5}, {5}}, {3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(dropout), 1, {{11}}, {11}, MIRT_FLOAT32, WIDE},
    {ROW(gaussian_noise), 1, {{2, 3, 5}}, {2, 3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(gaussian_dropout), 1, {{2, 3, 5}}, {2, 3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(alpha_dropout), 1, {{2, 3, 5}}, {2, 3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(dropout_rows), 1, {{2, 3, 5}}, {2, 3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(augment), 1, {{5, 4, 3}}, {5, 4, 3}, MIRT_FLOAT32, WIDE},
    {ROW(augment_twice), 1, {{6, 3, 1}}, {6, 3, 1}, MIRT_FLOAT32, WIDE},
    {ROW(dropout_channels), 1, {{2, 3, 5}}, {2, 3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(conv_transpose), 2, {{4, 3, 2}, {3, 2, 5, 2}}, {4, 3, 2}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_transpose_same), 2, {{2, 3, 4, 2}, {3, 3, 3, 2}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {"conv_transpose stride beyond kernel",
     case_conv_transpose_same,
     2,
     {{2, 3, 4, 2}, {1, 1, 3, 2}},
     {0},
     MIRT_FLOAT32,
     -1.0,
     1.0},
    {ROW(conv_transpose_strided), 2, {{1, 3, 3, 3}, {2, 5, 2, 3}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_transpose_groups), 2, {{2, 3, 4, 6}, {3, 2, 2, 6}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_transpose_dilated), 2, {{2, 5, 4, 3}, {3, 2, 2, 3}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(conv_transpose_relu), 3, {{3, 4, 2}, {3, 2, 3, 2}, {3}}, {3, 4, 2}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(depthwise), 2, {{5, 4, 3}, {3, 3, 3, 2}}, {5, 4, 3}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(depthwise_strided), 2, {{2, 6, 5, 3}, {3, 2, 3, 1}}, {0}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(upsampling), 1, {{3, 2, 5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(upsampling_bilinear), 1, {{3, 4, 5}}, {3, 4, 5}, MIRT_FLOAT32, WIDE},
    {ROW(resize), 1, {{2, 5, 4, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(resize_bilinear), 1, {{2, 5, 4, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(normalize), 3, {{7, 3, 5}, {5}, {5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(normalize_gamma), 2, {{3, 2, 3, 1}, {1}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(normalize_beta), 2, {{9, 17}, {17}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(normalize_plain), 1, {{6, 3}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(normalize_relu), 3, {{7, 3, 5}, {5}, {5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(normalize_add_relu), 4, {{7, 3, 5}, {5}, {5}, {7, 3, 5}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(batch_norm_relu6), 3, {{3, 2, 5}, {5}, {5}}, {3, 2, 5}, MIRT_FLOAT32, -6.0, 6.0},
    {ROW(batch_norm_exp), 3, {{3, 2, 5}, {5}, {5}}, {3, 2, 5}, MIRT_FLOAT32, -1.0, 1.0},
    {ROW(batch_norm_mish), 3, {{3, 2, 5}, {5}, {5}}, {3, 2, 5}, MIRT_FLOAT32, -6.0, 6.0},
    {ROW(layer_norm_relu), 3, {{3, 11}, {11}, {11}}, {3, 11}, MIRT_FLOAT32, WIDE},
    {ROW(batch_norm), 3, {{3, 2, 5}, {5}, {5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(batch_norm_synchronized), 3, {{3, 2, 5}, {5}, {5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(batch_norm_inference), 3, {{3, 2, 5}, {5}, {5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(batch_norm_own), 0, {{0}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(layer_norm), 3, {{3, 11}, {11}, {11}}, {3, 11}, MIRT_FLOAT32, WIDE},
    {ROW(layer_norm_last_two), 3, {{2, 3, 5}, {3, 5}, {3, 5}}, {2, 3, 5}, MIRT_FLOAT32, WIDE},
    {ROW(layer_norm_plain), 1, {{5, 9}}, {0}, MIRT_FLOAT32, WIDE},
    {ROW(layer_norm_beta), 2, {{4, 3}, {4, 3}}, {0}, MIRT_FLOAT32, WIDE},
#define LOSS_ROW(loss, name, labels, activation) {ROW(loss_##name), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    MIRT_LOSS_LIST(LOSS_ROW){ROW(circle_with_itself), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(sparse_probabilities), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(categorical_probabilities), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(binary_probabilities), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(binary_focal_probabilities), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(categorical_focal_probabilities), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(sparse_smoothed), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(sparse_smoothed_probabilities), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(categorical_smoothed), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(binary_smoothed), 1, {{5}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(sparse_ignored), 1, {{5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(sparse_positions), 1, {{5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(categorical_positions), 1, {{3, 2, 5}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(accuracy_positions), 0, {{0}}, {3, 2, 5}, MIRT_FLOAT32, WIDE},
    {ROW(accuracy_sparse), 0, {{0}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(accuracy_categorical), 0, {{0}}, {5}, MIRT_FLOAT32, WIDE},
    {ROW(accuracy_binary), 0, {{0}}, {5}, MIRT_FLOAT32, WIDE},
};
#undef ROW

/* >>running a case: its program, memory and values */

enum { OP_MAX_OPERANDS = 5 };
typedef struct op_run {
    mirt__program program;
    mirt__output output[1 + OP_MAX_OPERANDS];
    int outputs, operands; /* operands of the case; the weights hold dy after them */
    mirt_tensor *y;
    int64_t count[OP_MAX_OPERANDS];
    size_t offset[OP_MAX_OPERANDS], weight_bytes;
    char *weight, *gradient, *arena, *scratch, *shared, *x;
    mirt__real *value;  /* y */
    int64_t rows, values;
    bool differentiable;
} op_run;

static mirt_shape op_shape(const int64_t *dim, bool batched) {
    mirt_shape s;
    memset(&s, 0, sizeof s);
    if (batched) s.dim[s.rank++] = MIRT_ROWS;
    for (int i = 0; i < MIRT_MAX_RANK && dim[i]; i++) s.dim[s.rank++] = dim[i];
    return s;
}

static bool op_is_operand(const void *arg, int variable) { return variable < ((const op_run *)arg)->operands; }

static double op_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / 16777216.0;
}

/* Records, differentiates, plans and fills with values; `fuse` applies the fusions. */
static bool op_begin(op_run *r, const op_case *c, int64_t rows, int threads, bool fuse) {
    mirt__graph *g = &r->program.graph;
    mirt_tensor *v[OP_MAX_OPERANDS], *x = NULL, *dy = NULL;
    memset(r, 0, sizeof *r);
    mirt__graph_init(g, NULL, mirt__ops());
    r->operands = c->operands;
    r->rows = rows;
    if (c->x_shape[0]) {
        mirt_shape shape = op_shape(c->x_shape, true);
        x = mirt__input_op(g, 0, c->x_dtype, &shape);
    }
    for (int i = 0; i < c->operands; i++) {
        mirt_shape shape = op_shape(c->shape[i], false);
        v[i] = mirt__variable_op(g, i, &shape);
        r->count[i] = mirt__shape_count(&shape);
    }
    r->y = c->record(g, v, x);
    if (!r->y) return false;
    mirt__graph_mark_gradients(g, op_is_operand, r);
    if (fuse) mirt__fuse_forward(g, &r->y, 1);
    r->values = mirt__elements(r->y, rows);
    r->differentiable = r->y->needs_grad;
    if (r->differentiable) {
        /* dy comes in like the data or, when y has no rows, like a variable */
        dy = mirt__is_batched(&r->y->shape) ? mirt__input_op(g, 1, MIRT_FLOAT32, &r->y->shape)
                                            : mirt__variable_op(g, c->operands, &r->y->shape);
        if (!mirt__gradients(g, &r->y, &dy, 1)) return false;
    }
    r->count[c->operands] = r->values;
    for (int i = 0; i <= c->operands; i++) {
        r->offset[i] = r->weight_bytes;
        r->weight_bytes += mirt__align_up((size_t)r->count[i] * sizeof(mirt__real));
    }
    r->output[0].tensor = r->y;
    r->output[0].space = MIRT__SPACE_IO;
    r->output[0].port = 2;
    r->outputs = 1;
    for (int i = 0; r->differentiable && i < c->operands; i++) {
        if (!v[i]->grad) return false;
        r->output[r->outputs].tensor = v[i]->grad;
        r->output[r->outputs].space = MIRT__SPACE_GRADIENT;
        r->output[r->outputs++].offset = r->offset[i];
    }
    mirt_tensor *keep[1 + OP_MAX_OPERANDS];
    for (int i = 0; i < r->outputs; i++) keep[i] = r->output[i].tensor;
    if (fuse) mirt__fuse_backward(g, keep, r->outputs);
    if (!mirt__plan(&r->program, r->output, r->outputs, r->offset, rows)) return false;
    r->weight = (char *)mirt__aligned_alloc(r->weight_bytes);
    r->gradient = (char *)mirt__aligned_alloc(r->weight_bytes);
    r->arena = (char *)mirt__aligned_alloc(r->program.arena);
    r->scratch = (char *)mirt__aligned_alloc(r->program.scratch * (size_t)threads);
    r->shared = (char *)mirt__aligned_alloc(r->program.shared);
    r->value = (mirt__real *)mirt__aligned_alloc((size_t)r->values * sizeof(mirt__real));
    size_t x_bytes = x ? mirt__tensor_bytes(x, rows) : 0;
    r->x = (char *)mirt__aligned_alloc(x_bytes + 1);
    uint64_t seed = 42;
    for (int i = 0; i <= c->operands; i++) {
        for (int64_t k = 0; k < r->count[i]; k++) {
            double unit = op_random(&seed);
            ((mirt__real *)(void *)(r->weight + r->offset[i]))[k] =
                (mirt__real)(float)(i < c->operands ? c->low + (c->high - c->low) * unit : 2 * unit - 1);
        }
    }
    /* labels are made from x: its largest value in a row picks a class from 0 to 4 */
    for (int64_t k = 0; x && k < mirt__elements(x, rows); k++) {
        if (c->x_dtype == MIRT_UINT8) ((uint8_t *)r->x)[k] = (uint8_t)(op_random(&seed) * 256);
        else ((mirt__real *)(void *)r->x)[k] = (mirt__real)(float)(op_random(&seed) * 5);
    }
    return true;
}

static void op_bases(op_run *r, mirt__bases *b, mirt__team *team) {
    b->where.team = team;
    b->weight = r->weight;
    b->gradient = r->gradient;
    b->arena = r->arena;
    b->where.scratch = r->scratch;
    b->where.scratch_per_thread = r->program.scratch;
    b->where.shared = r->shared;
    b->io[0] = r->x;
    b->io[1] = r->weight + r->offset[r->operands];
    b->io[2] = (char *)r->value;
}

static void op_replay(op_run *r, const mirt__kernels *kernels, mirt__team *team) {
    mirt__bases b;
    mirt__step_info run;
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    run.seed = 5;
    run.step = 3;
    run.loss_scale = 1;
    run.global_rows = r->rows;
    op_bases(r, &b, team);
    replay_alone(&r->program, kernels, &run, &b, r->rows);
}

static void op_end(op_run *r) {
    mirt__aligned_free(r->weight);
    mirt__aligned_free(r->gradient);
    mirt__aligned_free(r->arena);
    mirt__aligned_free(r->scratch);
    mirt__aligned_free(r->shared);
    mirt__aligned_free(r->value);
    mirt__aligned_free(r->x);
    mirt__program_free(&r->program);
}

#endif
