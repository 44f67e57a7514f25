#include "ops.h"
/* Batch and layer normalization, and their gradients. */

/* Batch normalization (last_axes 0: over all axes but the last) and layer normalization (over the
   last last_axes axes), scaling.epsilon.
   norm_stats: x -> mean, variance. normalize: x, mean, variance, [gamma], [beta] (scaling.gamma, scaling.beta);
   batch_statistics: the statistics are x's own, and the gradient flows through them;
   synchronized: they are of all replicas' rows. With a.residual the last
   input is added before a.activation (elementwise). norm_grad_sums: dy, x, mean, variance, [gamma], [beta] -> gradients
   of beta and gamma. norm_grad_input: dy, x, mean, variance, [gamma], [beta], [the two sums] -> dx. dy counts times the
   slope of a.mask_activation.
   batch_norm: see ops.h; also momentum, a.training. */

MIRT__LIB mirt_shape mirt__norm_last(const mirt_shape *shape, int last_axes) {
    mirt_shape last;
    memset(&last, 0, sizeof last);
    last.rank = last_axes ? last_axes : 1;
    for (int i = 0; i < last.rank; i++) last.dim[i] = shape->dim[shape->rank - last.rank + i];
    return last;
}

static mirt_tensor *mirt__norm_x(const mirt__node *node) {
    bool grad = node->id == MIRT__OP_norm_grad_sums || node->id == MIRT__OP_norm_grad_input;
    return node->in[grad ? 1 : 0];
}

static void mirt__norm_args(const mirt__node *node, int64_t rows, mirt__norm *s) {
    const mirt__attrs_norm *own = MIRT__OF(&node->a, norm);
    const mirt_tensor *x = mirt__norm_x(node);
    const mirt_shape last = mirt__norm_last(&x->shape, own->last_axes);
    memset(s, 0, sizeof *s);
    s->n = mirt__shape_count(&last);
    s->rows = s->n ? mirt__elements(x, rows) / s->n : 0;
    s->by_row = own->last_axes > 0;
    s->epsilon = own->scaling.epsilon;
    s->activation = node->a.activation ? node->a.activation : node->a.mask_activation;
    s->x_dtype = x->dtype;
}

static void mirt__norm_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    mirt__norm s;
    mirt__norm_args(node, rows, &s);
    out->shared = mirt__norm_shared(&s);
    out->scratch = mirt__norm_scratch(&s);
}

/* Whether x has the axes: its rows are not among the last ones. */
static bool mirt__norm_check(const mirt__node *node) {
    const mirt__attrs_norm *own = MIRT__OF(&node->a, norm);
    const mirt_shape *x = &node->in[0]->shape;
    const int most = x->rank - mirt__is_batched(x);
    char text[96];
    if (!mirt__need_float(node, node->num_in)) return false;
    if (own->last_axes >= 0 && own->last_axes <= most && most > 0) return true;
    mirt__fail(MIRT_E_SHAPE, "input is %s; it has %d axes to normalize over, not %d", mirt__shape_text(x, text), most,
               own->last_axes ? own->last_axes : 1);
    return false;
}

static bool mirt__norm_fits(const mirt__node *node, int input, const mirt_shape *shape, const char *name) {
    char text[96], wanted[96];
    if (input < node->num_in && mirt__shape_equal(&node->in[input]->shape, shape)) return true;
    return mirt__fail(MIRT_E_SHAPE, "%s is %s; it should be %s", name,
                      input < node->num_in ? mirt__shape_text(&node->in[input]->shape, text) : "missing",
                      mirt__shape_text(shape, wanted)),
           false;
}

/* The shape of mean and variance. */
static mirt_shape mirt__norm_stats_of(const mirt__node *node) {
    const mirt__attrs_norm *own = MIRT__OF(&node->a, norm);
    mirt_shape shape = mirt__norm_x(node)->shape;
    if (!own->last_axes) return mirt__norm_last(&shape, 0);
    shape.rank -= own->last_axes;
    for (int i = shape.rank; i < MIRT_MAX_RANK; i++) shape.dim[i] = 0;
    return shape;
}

static bool mirt__declare_two(mirt__node *node, mirt_shape shape) {
    return mirt__declare(node, MIRT_FLOAT32, &shape) && mirt__declare(node, MIRT_FLOAT32, &shape);
}

static bool mirt__norm_stats_shape(mirt__node *node) {
    return mirt__norm_check(node) && mirt__declare_two(node, mirt__norm_stats_of(node));
}

static void mirt__norm_stats_run(const mirt__call *call) {
    mirt__norm s;
    mirt__norm_args(call->node, call->rows, &s);
    s.x = call->in[0];
    for (int i = 0; i < 2; i++) s.out[i] = mirt__out(call, i);
    call->kernels->norm_stats(&s, &call->where);
}

/* Only batch normalization reads and writes 16-bit images. */
static bool mirt__norm_by_channel(const mirt__node *node) { return MIRT__OF(&node->a, norm)->last_axes == 0; }

MIRT__OP_ROW(norm_stats, mirt__norm_stats_shape, mirt__norm_stats_run,
    MIRT__SET(workspace, mirt__norm_workspace) MIRT__IS(row_wise) MIRT__SET(half, mirt__norm_by_channel)
    MIRT__SET(half_in, MIRT__INPUTS_ALL))

/* Of normalize and batch_norm, whose inputs are alike. */
static bool mirt__normalize_shape(mirt__node *node) {
    const mirt__attrs_norm *own = MIRT__OF(&node->a, norm);
    int next = 3;
    if (!mirt__norm_check(node)) return false;
    const mirt_shape stats = mirt__norm_stats_of(node), last = mirt__norm_last(&node->in[0]->shape, own->last_axes);
    return mirt__norm_fits(node, 1, &stats, "mean") && mirt__norm_fits(node, 2, &stats, "variance") &&
           (!own->scaling.gamma || mirt__norm_fits(node, next++, &last, "gamma")) &&
           (!own->scaling.beta || mirt__norm_fits(node, next++, &last, "beta")) &&
           (!node->a.residual || mirt__norm_fits(node, next, &node->in[0]->shape, "what is added")) &&
           mirt__shape_kept(node);
}

/* x and what follows it, from input `at` on; returns the input after those. */
static int mirt__norm_inputs_at(const mirt__call *call, int at, mirt__norm *s) {
    const mirt__attrs_scaling *scaling = &MIRT__OF(&call->node->a, norm)->scaling;
    mirt__norm_args(call->node, call->rows, s);
    s->x = call->in[at++];
    s->mean = mirt__in(call, at++);
    s->variance = mirt__in(call, at++);
    if (scaling->gamma) s->gamma = mirt__in(call, at++);
    if (scaling->beta) s->beta = mirt__in(call, at++);
    return at;
}

static void mirt__normalize_run(const mirt__call *call) {
    mirt__norm s;
    const int next = mirt__norm_inputs_at(call, 0, &s);
    if (call->node->a.residual) {
        s.add = call->in[next];
        s.add_dtype = call->node->in[next]->dtype;
    }
    s.y = call->out[0];
    s.y_dtype = call->node->out[0]->dtype;
    call->kernels->normalize(&s, &call->where);
}

/* A gradient's node, of the activation too. */
MIRT__TRAINING mirt_tensor *mirt__norm_grad_op(mirt__node *node, mirt__op_id id, mirt_tensor **in, int count) {
    mirt__attrs a = node->a;
    a.mask_activation = a.residual ? MIRT_LINEAR : a.activation;
    a.activation = MIRT_LINEAR;
    a.residual = false;
    a.of = node;
    return mirt__apply(id, &a, in, count);
}

/* dx. in: dy, x and what follows it; sums: of dy and dy * hat over this replica's rows, or NULL. */
MIRT__TRAINING mirt_tensor *mirt__norm_input_gradient(mirt__node *node, mirt_tensor **in, int count,
                                                      mirt_tensor *sums) {
    const mirt__attrs_norm *own = MIRT__OF(&node->a, norm);
    if (own->batch_statistics && !own->last_axes) {
        in[count] = sums->node->out[0];
        in[count + 1] = sums->node->out[1];
        if (own->synchronized && !mirt__all_reduce_op(in + count, 2, MIRT__ALL_REDUCE_SUM)) return NULL;
        count += 2;
    }
    return mirt__norm_grad_op(node, MIRT__OP_norm_grad_input, in, count);
}

/* What is added has the sum's gradient: through an activation it is known from the output. */
MIRT__TRAINING void mirt__normalize_gradient(mirt__node *node, mirt_tensor *const *dys, mirt_tensor **dx) {
    const mirt__attrs_norm *own = MIRT__OF(&node->a, norm);
    const int gamma = 3, beta = 3 + own->scaling.gamma, end = beta + own->scaling.beta;
    const bool wants_gamma = own->scaling.gamma && node->in[gamma]->needs_grad;
    const bool wants_beta = own->scaling.beta && node->in[beta]->needs_grad;
    mirt_tensor *dy = node->a.residual ? mirt__activation_grad_op(node->a.activation, dys[0], node->out[0]) : dys[0];
    mirt_tensor *in[MIRT__MAX_IN] = {dy}, *sums = NULL;
    if (node->a.residual && node->in[end]->needs_grad) dx[end] = dy;
    for (int i = 0; i < end; i++) in[i + 1] = node->in[i];
    if (wants_gamma || wants_beta || (node->in[0]->needs_grad && own->batch_statistics && !own->last_axes)) {
        sums = mirt__norm_grad_op(node, MIRT__OP_norm_grad_sums, in, end + 1);
        if (!sums) return;
        if (wants_beta) dx[beta] = sums->node->out[0];
        if (wants_gamma) dx[gamma] = sums->node->out[1];
    }
    if (node->in[0]->needs_grad) dx[0] = mirt__norm_input_gradient(node, in, end + 1, sums);
}

MIRT__OP_ROW(normalize, mirt__normalize_shape, mirt__normalize_run,
    MIRT__SET_GRADIENT(mirt__normalize_gradient) MIRT__SET(workspace, mirt__norm_workspace) MIRT__IS(row_wise)
    MIRT__SET(overwrites, MIRT__INPUT_RESIDUAL) MIRT__SET(takes, MIRT__TAKES_ACTIVATION | MIRT__TAKES_ADDEND)
    MIRT__IS(slope_of_input) MIRT__SET(lazy, MIRT__LAZY_X) MIRT__SET(half, mirt__norm_by_channel)
    MIRT__SET(half_in, MIRT__INPUTS_ALL) MIRT__IS(half_out))

MIRT__TRAINING bool mirt__norm_grad_sums_shape(mirt__node *node) {
    return mirt__declare_two(node, mirt__norm_last(&node->in[1]->shape, MIRT__OF(&node->a, norm)->last_axes));
}

MIRT__TRAINING int mirt__norm_grad_args(const mirt__call *call, mirt__norm *s) {
    const int next = mirt__norm_inputs_at(call, 1, s);
    s->dy = call->in[0];
    s->dy_dtype = call->node->in[0]->dtype;
    return next;
}

MIRT__TRAINING void mirt__norm_grad_sums_run(const mirt__call *call) {
    mirt__norm s;
    mirt__norm_grad_args(call, &s);
    for (int i = 0; i < 2; i++) s.out[i] = mirt__out(call, i);
    call->kernels->norm_grad_sums(&s, &call->where);
}

MIRT__TRAINING_ROW(norm_grad_sums, mirt__norm_grad_sums_shape, mirt__norm_grad_sums_run,
    MIRT__SET(workspace, mirt__norm_workspace) MIRT__SET(half, mirt__norm_by_channel)
    MIRT__SET(half_in, MIRT__INPUTS_ALL) MIRT__IS(half_copied))

MIRT__TRAINING bool mirt__norm_grad_input_shape(mirt__node *node) {
    return mirt__declare(node, MIRT_FLOAT32, &node->in[1]->shape);
}

MIRT__TRAINING_LIB double mirt__norm_count(const mirt__call *call, const mirt__node *node, int64_t rows) {
    const mirt__attrs_norm *own = MIRT__OF(&node->a, norm);
    const bool global = own->synchronized && mirt__is_batched(&node->in[1]->shape);
    return global ? (double)rows * ((double)call->run->global_rows / (double)call->rows) : (double)rows;
}

MIRT__TRAINING void mirt__norm_grad_input_run(const mirt__call *call) {
    const mirt__node *node = call->node;
    mirt__norm s;
    const int sums = mirt__norm_grad_args(call, &s);
    for (int i = 0; i < 2 && sums < node->num_in; i++) s.sum[i] = mirt__in(call, sums + i);
    s.count = mirt__norm_count(call, node, s.rows);
    s.y = call->out[0];
    s.y_dtype = node->out[0]->dtype;
    call->kernels->norm_grad_input(&s, &call->where);
}

/* Readers that compute the gradient read dy and x with one kernel. */
MIRT__TRAINING int mirt__norm_grad_half_tied(const mirt__node *node, mirt_tensor **tied) {
    for (int k = 0; k < 2; k++) tied[k] = node->in[k];
    return node->out[0]->lazy ? 2 : 0;
}

MIRT__TRAINING_ROW(norm_grad_input, mirt__norm_grad_input_shape, mirt__norm_grad_input_run,
    MIRT__SET(workspace, mirt__norm_workspace) MIRT__SET(overwrites, MIRT__INPUT(0)) MIRT__SET(lazy, MIRT__LAZY_DY)
    MIRT__SET(half, mirt__norm_by_channel) MIRT__SET(half_in, MIRT__INPUTS_ALL) MIRT__IS(half_out)
    MIRT__IS(half_copied) MIRT__SET(half_tied, mirt__norm_grad_half_tied))

/* Inputs of a normalization up to beta. */
static int mirt__norm_inputs(const mirt__attrs *a) {
    const mirt__attrs_scaling *scaling = &MIRT__OF(a, norm)->scaling;
    return 3 + scaling->gamma + scaling->beta;
}

MIRT__LIB mirt_tensor *mirt__normalize_op(mirt_tensor *const *in, const mirt__attrs *a) {
    return mirt__apply(MIRT__OP_normalize, a, in, mirt__norm_inputs(a) + a->residual);
}

/* x's statistics into in[1] and in[2]. */
static bool mirt__norm_stats_op(mirt_tensor **in, const mirt__attrs *a) {
    in[1] = mirt__apply(MIRT__OP_norm_stats, a, in, 1);
    in[2] = in[1] ? in[1]->node->out[1] : NULL;
    return in[1] != NULL;
}

MIRT__LIB mirt_tensor *mirt__layer_norm_op(mirt_tensor *x, mirt_tensor *gamma, mirt_tensor *beta,
                                           const mirt__attrs *a) {
    mirt_tensor *in[5] = {x, NULL, NULL, gamma ? gamma : beta, beta};
    mirt__attrs attrs = *a;
    mirt__attrs_norm *own = MIRT__OF(&attrs, norm);
    own->scaling.gamma = gamma != NULL;
    own->scaling.beta = beta != NULL;
    own->batch_statistics = true;
    return mirt__norm_stats_op(in, &attrs) ? mirt__normalize_op(in, &attrs) : NULL;
}

static bool mirt__batch_norm_shape(mirt__node *node) {
    const mirt__attrs_norm *a = MIRT__OF(&node->a, norm);
    const float epsilon = a->scaling.epsilon;
    if (!(epsilon >= 0 && epsilon <= FLT_MAX)) {
        return mirt__fail(MIRT_E_INVALID, "epsilon is %g; it must not be below 0", (double)epsilon), false;
    }
    if (!(a->momentum >= 0 && a->momentum <= 1))
        return mirt__fail(MIRT_E_INVALID, "momentum is %g; it must lie in [0, 1]", a->momentum), false;
    for (int i = 1; i < 3; i++) {
        if (mirt__is_variable(node->in[i]->node)) continue;
        return mirt__fail(MIRT_E_INVALID, "the moving statistics must be variables"), false;
    }
    return mirt__normalize_shape(node);
}

MIRT__LIB mirt_tensor *mirt__batch_norm_op(mirt_tensor *const *in, const mirt__attrs *a) {
    return mirt__apply(MIRT__OP_batch_norm, a, in, mirt__norm_inputs(a));
}

MIRT__TRAINING mirt_tensor *mirt__moving_average(mirt_tensor *moving, mirt_tensor *batch, double momentum) {
    mirt_tensor *kept = mirt__unary_op(MIRT__AFFINE, moving, (float)momentum, 0);
    return mirt__binary_op(MIRT__ADD, kept, mirt__unary_op(MIRT__AFFINE, batch, (float)(1 - momentum), 0));
}

MIRT__TRAINING_LIB mirt_tensor *mirt__batch_norm_training(mirt_tensor *const *in, const mirt__attrs *a,
                                                          mirt_tensor **mean, mirt_tensor **variance) {
    mirt__attrs attrs = *a;
    mirt__attrs_norm *own = MIRT__OF(&attrs, norm);
    mirt_tensor *now[5] = {in[0], NULL, NULL, NULL, NULL};
    for (int i = 3; i < mirt__norm_inputs(a); i++) now[i] = in[i];
    own->last_axes = 0;
    own->batch_statistics = true;
    if (!mirt__norm_stats_op(now, &attrs)) return NULL;
    if (own->synchronized && !mirt__all_reduce_op(now + 1, 2, MIRT__ALL_REDUCE_MOMENTS)) return NULL;
    *mean = now[1];
    *variance = now[2];
    return mirt__normalize_op(now, &attrs);
}

MIRT__LIB mirt_tensor *mirt__batch_norm_inference(mirt_tensor *const *in, const mirt__attrs *a) {
    mirt__attrs attrs = *a;
    mirt__attrs_norm *own = MIRT__OF(&attrs, norm);
    own->last_axes = 0;
    own->batch_statistics = own->synchronized = false;
    return mirt__normalize_op(in, &attrs);
}

/* A moving statistic goes on to that of this batch: behind the step, with all replicas' in one, or in the step where
   one call of the layer goes on from another. */
MIRT__TRAINING bool mirt__batch_norm_moves(mirt__graph *graph, mirt_tensor *moving, mirt_tensor *batch,
                                           double momentum) {
    mirt__assignment *earlier = mirt__graph_assignment(graph, moving->node->a.index);
    if (!earlier) return mirt__graph_assign(graph, moving->node->a.index, batch, MIRT_AGGREGATE_MEAN, momentum);
    if (earlier->momentum > 0) earlier->value = mirt__moving_average(moving, earlier->value, earlier->momentum);
    earlier->value = mirt__moving_average(earlier->value, batch, momentum);
    earlier->momentum = 0;
    return earlier->value != NULL;
}

static bool mirt__norm_frozen(const mirt_tensor *mean, const mirt__mode *mode) {
    return mode->frozen && mode->frozen(mode->arg, mean->node->a.index);
}
static bool mirt__batch_norm_frozen(const mirt__node *node, const mirt__mode *mode) {
    return mirt__norm_frozen(node->in[1], mode);
}

/* As Keras, a frozen layer normalizes by its moving statistics even in training. */
static mirt_tensor *mirt__batch_norm_lower(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in,
                                           const mirt__mode *mode) {
    const double momentum = MIRT__OF(&node->a, norm)->momentum;
    mirt_tensor *mean, *variance;
    const bool training = mirt__in_training(node, mode) && !mirt__norm_frozen(in[1], mode);
    if (!training) return mirt__batch_norm_inference(in, &node->a);
    if (!MIRT__TRAINS) return mirt__without_training("take the statistics of a batch");
    mirt_tensor *y = mirt__batch_norm_training(in, &node->a, &mean, &variance);
    const bool moved = y && mirt__batch_norm_moves(graph, in[1], mean, momentum) &&
                       mirt__batch_norm_moves(graph, in[2], variance, momentum);
    return moved ? y : NULL;
}

MIRT__OP_ROW(batch_norm, mirt__batch_norm_shape, NULL,
    MIRT__SET(lower, mirt__batch_norm_lower) MIRT__IS(row_wise) MIRT__SET(steady, mirt__batch_norm_frozen))
