#include "ops.h"
/* Dropout and Gaussian noise. */

/* rate, key. Outside of training it is left out. Its gradient is the same mask on dy. With a.shape, whose
   dimensions are the input's or 1, one draw is for all elements along those that are 1: in training it becomes
   the product of the input and a mask of that shape, which is 0 or 1 / (1 - rate). a.kind is a mirt__dropout_kind: the
   others become products, and sums, with a mask, too. */

static bool mirt__dropout_shape(mirt__node *node) {
    const float rate = MIRT__OF(&node->a, random)->rate;
    const bool one = node->a.kind == MIRT__DROPOUT_ZEROS;
    if (!(rate >= 0 && (one ? rate <= 1 : rate < 1))) {
        return mirt__fail(MIRT_E_INVALID, "rate is %g; it must lie between 0 and 1%s", (double)rate,
                          one ? "" : ", and be below 1"),
               false;
    }
    const mirt_shape *x = &node->in[0]->shape, *noise = &node->a.shape;
    bool fits = !noise->rank || (noise->rank == x->rank && noise->dim[0] == x->dim[0]);
    for (int i = 1; fits && i < noise->rank; i++) fits = noise->dim[i] == 1 || noise->dim[i] == x->dim[i];
    if (!fits) {
        char text[96], other[96];
        return mirt__fail(MIRT_E_SHAPE,
                          "noise of %s for %s; its rows are those of the input, and its other dimensions either the "
                          "input's or 1",
                          mirt__shape_text(noise, text), mirt__shape_text(x, other)),
               false;
    }
    return mirt__need_float(node, 1) && mirt__declare(node, MIRT_FLOAT32, x);
}

/* The work of a node on what call->in[0] is. */
MIRT__TRAINING mirt__dropout mirt__dropout_args(const mirt__call *call) {
    const mirt_shape *shape = &call->node->out[0]->shape;
    const mirt__attrs_random *a = MIRT__OF(&call->node->a, random);
    mirt__dropout d;
    d.rows = mirt__is_batched(shape) ? call->rows : 1;
    d.n = mirt__shape_count(shape);
    d.first_row = call->run->first_row;
    d.key = a->key ^ call->run->seed ^ ((uint64_t)call->run->step >> 32 << 32);
    d.step = (uint32_t)call->run->step;
    d.rate = a->rate;
    d.x = mirt__in(call, 0);
    d.y = mirt__out(call, 0);
    return d;
}

MIRT__TRAINING void mirt__dropout_run(const mirt__call *call) {
    const mirt__dropout d = mirt__dropout_args(call);
    call->kernels->dropout(&d, &call->where);
}

MIRT__TRAINING void mirt__dropout_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    dx[0] = mirt__apply(MIRT__OP_dropout, &node->a, dy, 1);
}

static mirt_tensor *mirt__dropout_lower(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in,
                                        const mirt__mode *mode) {
    (void)graph;
    if (!mirt__in_training(node, mode)) return in[0];
    if (!MIRT__TRAINS) return mirt__without_training("apply dropout");
    return node->a.shape.rank || node->a.kind ? mirt__masked_op(in[0], &node->a)
                                              : mirt__apply(MIRT__OP_dropout, &node->a, in, 1);
}

static bool mirt__dropout_keeps_all(const mirt__node *node, const mirt__mode *mode) {
    (void)mode;
    return MIRT__OF(&node->a, random)->rate == 0;
}

MIRT__OP_ROW(dropout, mirt__dropout_shape, MIRT__TRAINING_ENTRY(mirt__dropout_run),
    MIRT__SET_GRADIENT(mirt__dropout_gradient) MIRT__SET(lower, mirt__dropout_lower) MIRT__IS(row_wise)
    MIRT__IS(keeps_range) MIRT__SET(steady, mirt__dropout_keeps_all))

/* Dropout of ones, or normal numbers around 1. Its input says only whether there are rows. */
MIRT__TRAINING void mirt__dropout_mask_run(const mirt__call *call) {
    mirt__call inplace = *call;
    call->kernels->fill(mirt__out(call, 0), 1, mirt__elements(call->node->out[0], call->rows), &call->where);
    inplace.in[0] = call->out[0];
    mirt__dropout d = mirt__dropout_args(&inplace);
    if (call->node->a.kind != MIRT__DROPOUT_GAUSSIAN) {
        call->kernels->dropout(&d, &call->where);
        return;
    }
    d.rate = sqrtf(d.rate / (1 - d.rate));
    call->kernels->gaussian_noise(&d, &call->where);
}

MIRT__OP_ROW(dropout_mask, mirt__shape_given, MIRT__TRAINING_ENTRY(mirt__dropout_mask_run),
    MIRT__IS(stops_gradient) MIRT__SET(shape_only, MIRT__INPUT(0)))

/* AlphaDropout, by a mask of 0 and 1 / (1 - rate): what is dropped becomes the least value of selu, and all is scaled
   and moved so that mean and variance stay. */
MIRT__TRAINING mirt_tensor *mirt__alpha_dropped(mirt_tensor *x, mirt_tensor *mask, double rate) {
    const double least = -(double)MIRT__SELU_SCALE * (double)MIRT__SELU_ALPHA,
                 scale = (1 - rate) / sqrt((1 - rate) * (1 + rate * least * least));
    return mirt__binary_op(
        MIRT__ADD, mirt__binary_op(MIRT__MULTIPLY, x, mirt__unary_op(MIRT__AFFINE, mask, (float)scale, 0)),
        mirt__unary_op(MIRT__AFFINE, mask, (float)(-scale * least), (float)(scale * least)));
}

MIRT__LIB mirt_tensor *mirt__masked_op(mirt_tensor *x, const mirt__attrs *a) {
    mirt__attrs attrs = *a;
    if (!a->shape.rank) attrs.shape = x->shape;
    mirt_tensor *mask = mirt__apply(MIRT__OP_dropout_mask, &attrs, &x, 1);
    if (MIRT__TRAINS && a->kind == MIRT__DROPOUT_ALPHA)
        return mirt__alpha_dropped(x, mask, (double)MIRT__OF(a, random)->rate);
    return mirt__binary_op(MIRT__MULTIPLY, x, mask);
}

MIRT__LIB mirt_tensor *mirt__random_op(mirt__op_id id, mirt_tensor *x, mirt__dropout_kind kind, float rate,
                                       uint64_t key, const mirt_shape *noise) {
    mirt__attrs a = mirt__attrs_of(id);
    MIRT__OF(&a, random)->rate = rate;
    MIRT__OF(&a, random)->key = key;
    a.kind = (int)kind;
    if (noise) a.shape = *noise;
    return mirt__apply(id, &a, &x, 1);
}

/* x + a.rate * normal numbers. Outside of training it is left out. */
static bool mirt__gaussian_noise_shape(mirt__node *node) {
    const float stddev = MIRT__OF(&node->a, random)->rate;
    if (!(stddev >= 0 && stddev <= FLT_MAX))
        return mirt__fail(MIRT_E_INVALID, "stddev is %g; it must be finite and not negative", (double)stddev), false;
    return mirt__need_float(node, 1) && mirt__shape_kept(node);
}

MIRT__TRAINING void mirt__gaussian_noise_run(const mirt__call *call) {
    const mirt__dropout d = mirt__dropout_args(call);
    call->kernels->gaussian_noise(&d, &call->where);
}

MIRT__TRAINING void mirt__gaussian_noise_gradient(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx) {
    (void)node;
    dx[0] = dy[0];
}

static mirt_tensor *mirt__gaussian_noise_lower(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in,
                                               const mirt__mode *mode) {
    (void)graph;
    if (!mirt__in_training(node, mode)) return in[0];
    if (!MIRT__TRAINS) return mirt__without_training("add noise");
    return mirt__apply(MIRT__OP_gaussian_noise, &node->a, in, 1);
}

MIRT__OP_ROW(gaussian_noise, mirt__gaussian_noise_shape, MIRT__TRAINING_ENTRY(mirt__gaussian_noise_run),
    MIRT__SET_GRADIENT(mirt__gaussian_noise_gradient) MIRT__SET(lower, mirt__gaussian_noise_lower) MIRT__IS(row_wise)
    MIRT__SET(overwrites, MIRT__INPUT(0)) MIRT__SET(steady, mirt__dropout_keeps_all))
