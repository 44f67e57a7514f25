#include "ops.h"
/* Activations that are composed of other operations. */

MIRT_API mirt_tensor *mirt_celu(mirt_tensor *x, float alpha) {
    if (x && !(alpha > 0)) {
        mirt__fail(MIRT_E_INVALID, "celu: alpha is %g; it must be positive", (double)alpha);
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    if (alpha == 1) return mirt_elu(x, 1);
    return mirt_scale(mirt_elu(mirt_scale(x, 1 / alpha, 0), 1), alpha, 0);
}

MIRT_API mirt_tensor *mirt_glu(mirt_tensor *x, int axis) {
    mirt_tensor *half[2];
    return mirt_split_tensor(x, 2, axis, half) ? mirt_multiply(half[0], mirt_sigmoid(half[1])) : NULL;
}

/* x where `above` is greater than the threshold, `value` elsewhere. */
static mirt_tensor *mirt__kept_above(mirt_tensor *x, mirt_tensor *above, float threshold, float value) {
    if (!x || !above) return NULL;
    mirt__graph *graph = x->node->graph;
    return mirt__where_op(mirt__logic_op(MIRT__IS_LESS, mirt__scalar_op(graph, threshold), above), x,
                          mirt__scalar_op(graph, value));
}

MIRT_API mirt_tensor *mirt_threshold(mirt_tensor *x, float threshold, float value) {
    return mirt__kept_above(x, x, threshold, value);
}

MIRT_API mirt_tensor *mirt_hard_shrink(mirt_tensor *x, float threshold) {
    return mirt__kept_above(x, mirt_abs(x), threshold, 0);
}

MIRT_API mirt_tensor *mirt_soft_shrink(mirt_tensor *x, float threshold) {
    return mirt_subtract(x, mirt_clip(x, -threshold, threshold));
}

MIRT_API mirt_tensor *mirt_squareplus(mirt_tensor *x, float b) {
    return mirt_scale(mirt_add(x, mirt_sqrt(mirt_scale(mirt_square(x), 1, b))), 0.5f, 0);
}

MIRT_API mirt_tensor *mirt_hard_tanh(mirt_tensor *x) { return mirt_clip(x, -1, 1); }
MIRT_API mirt_tensor *mirt_log_sigmoid(mirt_tensor *x) { return mirt_negative(mirt_softplus(mirt_negative(x))); }
MIRT_API mirt_tensor *mirt_sparse_sigmoid(mirt_tensor *x) { return mirt_clip(mirt_scale(x, 0.5f, 0.5f), 0, 1); }
MIRT_API mirt_tensor *mirt_tanh_shrink(mirt_tensor *x) { return mirt_subtract(x, mirt_tanh(x)); }

/* A parabola from -1 to 1, where it meets x: what is above 1 is added to its end. */
MIRT_API mirt_tensor *mirt_sparse_plus(mirt_tensor *x) {
    return mirt_add(mirt_square(mirt_sparse_sigmoid(x)), mirt_relu(mirt_scale(x, 1, -1)));
}
