#include "tiled_reads.h"
#include "../ops/ops.h"
#include "../kernels/shapes.h"
/* Moves work between convolutions into the convolutions. */

/* Removes what is of no use; counts the readers of every tensor, and finds the first one and its `input_grad`. */
static void mirt__tiled_count(mirt__graph *graph, mirt_tensor *const *keep, int count, mirt__op_id input_grad) {
    mirt__graph_prune(graph, keep, count);
    mirt__graph_count_uses(graph, keep, count);
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        node->position = i;
        for (int k = 0; k < node->num_out; k++) {
            node->out[k]->pass.tiled.input_grad = NULL;
            node->out[k]->pass.tiled.first_reader = graph->count;
        }
    }
    for (int i = graph->count - 1; i >= 0; i--) {
        mirt__node *node = graph->node[i];
        for (int k = 0; k < node->num_in; k++) node->in[k]->pass.tiled.first_reader = i;
    }
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        if (node->id == input_grad) node->in[0]->pass.tiled.input_grad = node->out[0];
    }
}

/* The node that computes `t`, if its kernel can do `what` too and has no epilogue yet but a.bias and a.activation; else
   NULL. */
static mirt__node *mirt__tiled_maker(const mirt_tensor *t, unsigned what) {
    const mirt__attrs *a = &t->node->a;
    if (t->slot || !(t->node->op->takes & what) || !mirt__by_tiles(t->node)) return NULL;
    const mirt__attrs_window *w = MIRT__IF_OF(a, window);
    return w && !w->norm && !w->slope && !w->sums ? t->node : NULL;
}

/* Whether `by` can stand where all inputs of `node` are there and none of its own readers has come yet; it then does.
 */
static bool mirt__tiled_place(mirt__graph *graph, mirt__node *by, mirt__node *node) {
    const int from = by->position, to = node->position;
    bool there = true;
    for (int k = 0; k < node->num_in; k++) there = there && node->in[k]->node->position <= from;
    if (there) return true;
    for (int k = 0; k < by->num_out; k++) {
        if (by->out[k]->pass.tiled.first_reader < to) return false;
    }
    graph->node[from] = node;
    graph->node[to] = by;
    by->position = to;
    node->position = from;
    return true;
}

static void mirt__tiled_add_in(mirt__node *node, mirt_tensor *t) {
    node->in[node->num_in++] = t;
    if (node->position < t->pass.tiled.first_reader) t->pass.tiled.first_reader = node->position;
}

/* All outputs of `from`, which has nothing left to do, become further ones of `node`. The next pruning removes it. */
static void mirt__tiled_add_outs(mirt__node *node, mirt__node *from) {
    for (int k = 0; k < from->num_out; k++) {
        from->out[k]->node = node;
        from->out[k]->slot = node->num_out;
        node->out[node->num_out++] = from->out[k];
    }
    from->num_out = 0;
}

/* The output of `node`, which has nothing left to do, becomes that of `by`. */
static void mirt__tiled_take(mirt__node *by, mirt__node *node) {
    by->out[0] = node->out[0];
    by->out[0]->node = by;
    node->num_out = 0;
}

/* >>padding */

static bool mirt__tiled_spatial(const mirt_shape *shape, const int64_t *begin) {
    return shape->rank == 4 && begin[0] == 0 && begin[3] == 0;
}

static void mirt__tiled_set_padding(mirt__node *node, const int64_t *begin, const mirt_shape *y) {
    mirt__attrs_window *w = MIRT__OF(&node->a, window);
    w->padded = true;
    for (int i = 0; i < 2; i++) {
        w->pad[i] = begin[1 + i];
        w->size[i] = y->dim[1 + i];
    }
}

/* Whether what `t` holds is nowhere below zero: the greatest number of a window that has zeros beside is the same
   without, and where it is zero no gradient flows on. */
static bool mirt__tiled_rectified(const mirt_tensor *t) {
    const bool fused = (t->node->op->takes & MIRT__TAKES_ACTIVATION) != 0;
    const mirt_activation_kind kind = fused ? t->node->a.activation : mirt__activation_of(t->node);
    return kind == MIRT_RELU || kind == MIRT_RELU6;
}

/* Whether every window of the pooling sees something of what is padded. */
static bool mirt__tiled_sees(const mirt__node *pool, const mirt__node *pad) {
    const int *kernel = MIRT__OF(&pool->a, window)->kernel;
    const int64_t *before = MIRT__OF(&pad->a, move)->begin, *after = pad->a.shape.dim;
    bool sees = true;
    for (int i = 0; i < 2; i++) sees = sees && before[1 + i] < kernel[i] && after[1 + i] < kernel[i];
    return sees;
}

static void mirt__tiled_pad(mirt__node *node) {
    const mirt__node *p = node->in[0]->node;
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    if (p->id != MIRT__OP_pad || w->padding != MIRT_VALID || w->padded || node->a.affine || p->a.scale != 0) return;
    const int64_t *before = MIRT__OF(&p->a, move)->begin;
    if (!mirt__tiled_spatial(&p->out[0]->shape, before) || p->a.shape.dim[3] != 0) return;
    if (node->id == MIRT__OP_max_pool2d && (!mirt__tiled_rectified(p->in[0]) || !mirt__tiled_sees(node, p))) return;
    const bool weights = node->id == MIRT__OP_conv2d_weight_grad;
    mirt__tiled_set_padding(node, before, weights ? &node->in[1]->shape : &node->out[0]->shape);
    node->in[0]->uses--;
    node->in[0] = p->in[0];
    node->in[0]->uses++;
}

/* The gradient of a padded input is a slice. */
MIRT__TRAINING void mirt__tiled_slice(mirt__node *node) {
    mirt__node *p = node->in[0]->node;
    const mirt_shape *y = &node->out[0]->shape;
    const int64_t *begin = MIRT__OF(&node->a, move)->begin;
    const mirt__node *forward = p->id == MIRT__OP_max_pool2d_grad ? p->in[1]->node : NULL;
    const mirt__attrs_window *pool = forward ? MIRT__OF(&forward->a, window) : NULL;
    if (pool ? !pool->padded : !mirt__tiled_maker(node->in[0], MIRT__TAKES_SLICE)) return;
    const mirt__attrs_window *w = MIRT__OF(&p->a, window);
    if (node->in[0]->uses != 1 || w->padding != MIRT_VALID || w->padded) return;
    if (p->a.mask_activation || p->a.residual) return;
    if (!mirt__tiled_spatial(y, begin) || y->dim[3] != p->out[0]->shape.dim[3]) return;
    if (pool && (pool->pad[0] != begin[1] || pool->pad[1] != begin[2])) return;
    if (pool && !mirt__shape_equal(y, &forward->in[0]->shape)) return;
    mirt__tiled_set_padding(p, begin, &p->in[0]->shape);
    p->a.shape = *y;
    mirt__tiled_take(p, node);
}

/* >>epilogues */

/* Two gradients of one tensor: the later convolution adds the other one to its own. */
MIRT__TRAINING void mirt__tiled_sum(mirt__graph *graph, mirt__node *node) {
    if (node->a.kind != MIRT__ADD) return;
    for (int k = 1; k >= 0; k--) {
        mirt_tensor *other = node->in[1 - k];
        mirt__node *p = mirt__tiled_maker(node->in[k], MIRT__TAKES_GRADIENT);
        if (!p || node->in[k]->uses != 1 || p->a.residual || p->a.mask_activation ||
            !mirt__shape_equal(&node->in[k]->shape, &other->shape))
            continue;
        if (!mirt__tiled_place(graph, p, node)) continue;
        p->a.residual = true;
        mirt__tiled_add_in(p, other);
        mirt__tiled_take(p, node);
        return;
    }
}

MIRT__TRAINING void mirt__tiled_mask(mirt__graph *graph, mirt__node *node) {
    const mirt_activation_kind kind = mirt__activation_grad_of(node);
    mirt__node *p = kind != MIRT_LINEAR ? mirt__tiled_maker(node->in[0], MIRT__TAKES_MASK) : NULL;
    if (!p || node->in[0]->uses != 1 || p->a.mask_activation ||
        !mirt__shape_equal(&node->in[0]->shape, &node->in[1]->shape))
        return;
    if (!mirt__tiled_place(graph, p, node)) return;
    p->a.mask_activation = kind;
    mirt__tiled_add_in(p, node->in[1]);
    mirt__tiled_take(p, node);
}

MIRT__TRAINING void mirt__tiled_moments(mirt__node *node) {
    mirt__node *p = mirt__tiled_maker(node->in[0], MIRT__TAKES_MOMENTS);
    if (!p || MIRT__OF(&node->a, norm)->last_axes) return;
    MIRT__OF(&p->a, window)->sums = MIRT__SUMS_MOMENTS;
    mirt__tiled_add_outs(p, node);
}

/* Squeeze and excite: the mean of every image. */
static void mirt__tiled_means(mirt__node *node) {
    const mirt_tensor *t = node->in[0];
    mirt__node *p = t->node;
    mirt__attrs_window *w = MIRT__IF_OF(&p->a, window);
    if (!(p->op->takes & MIRT__TAKES_MEANS) || t->slot != 0 || !w) return;
    if (node->a.kind != MIRT__REDUCE_MEAN || MIRT__OF(&node->a, reduce)->axes != 6) return;
    if (w->groups == 1 || !mirt__by_tiles(p) || w->sums) return;
    if (p->in[1]->shape.dim[0] * p->in[1]->shape.dim[1] > MIRT__MAX_TAPS || t->shape.dim[1] * t->shape.dim[2] == 0)
        return;
    w->sums = MIRT__SUMS_IMAGES;
    mirt__tiled_add_outs(p, node);
}

/* The sums of dy and dy * hat. With an activation what is written is dy times its slope, which only this
   normalization's own gradients may read. */
MIRT__TRAINING void mirt__tiled_sums(mirt__graph *graph, mirt__node *node) {
    mirt_tensor *dy = node->in[0];
    const mirt_activation_kind kind = node->a.mask_activation;
    mirt__node *p = mirt__tiled_maker(dy, MIRT__TAKES_NORM_SUMS);
    mirt__node *input = dy->pass.tiled.input_grad ? dy->pass.tiled.input_grad->node : NULL;
    const mirt__attrs_norm *norm = MIRT__OF(&node->a, norm);
    if (!p || norm->last_axes) return;
    if (input && input->a.of != node->a.of) input = NULL;
    if (kind != MIRT_LINEAR && dy->uses != 1 + (input != NULL)) return;
    if (!mirt__tiled_place(graph, p, node)) return;
    mirt__attrs_window *w = MIRT__OF(&p->a, window);
    w->slope = true;
    w->slope_activation = kind;
    w->scaling = norm->scaling;
    w->sums = MIRT__SUMS_GRADIENT;
    for (int k = 1; k < node->num_in; k++) mirt__tiled_add_in(p, node->in[k]);
    mirt__tiled_add_outs(p, node);
    if (kind != MIRT_LINEAR && input) input->a.mask_activation = MIRT_LINEAR;
}

/* What comes after a convolution and is all that is made of it. */
static void mirt__tiled_normalize(mirt__graph *graph, mirt__node *node) {
    mirt__node *p = mirt__tiled_maker(node->in[0], MIRT__TAKES_NORM);
    const mirt__attrs_norm *norm = MIRT__OF(&node->a, norm);
    if (!p || node->in[0]->uses != 1 || p->a.activation || p->a.residual) return;
    if (norm->last_axes || norm->batch_statistics || !mirt__tiled_place(graph, p, node)) return;
    MIRT__OF(&p->a, window)->norm = true;
    MIRT__OF(&p->a, window)->scaling = norm->scaling;
    p->a.residual = node->a.residual;
    p->a.activation = node->a.activation;
    for (int k = 1; k < node->num_in; k++) mirt__tiled_add_in(p, node->in[k]);
    mirt__tiled_take(p, node);
}

static void mirt__tiled_activation(mirt__node *node) {
    const mirt_activation_kind kind = mirt__activation_of(node);
    mirt__node *p = kind != MIRT_LINEAR ? mirt__tiled_maker(node->in[0], MIRT__TAKES_ACTIVATION) : NULL;
    if (!p || node->in[0]->uses != 1 || p->a.activation) return;
    p->a.activation = kind;
    mirt__tiled_take(p, node);
}

/* Rewrites that only training needs. */
MIRT__TRAINING void mirt__tiled_rewrite_gradient(mirt__graph *graph, mirt__node *node) {
    switch ((int)node->id) {
    case MIRT__OP_slice: mirt__tiled_slice(node); break;
    case MIRT__OP_binary:
        mirt__tiled_sum(graph, node);
        if (node->num_out) mirt__tiled_mask(graph, node);
        break;
    case MIRT__OP_norm_stats: mirt__tiled_moments(node); break;
    case MIRT__OP_norm_grad_sums: mirt__tiled_sums(graph, node); break;
    default: break;
    }
}

static void mirt__tiled_rewrite(mirt__graph *graph, mirt__node *node) {
    if (node->op->takes & MIRT__TAKES_PADDING) mirt__tiled_pad(node);
    switch ((int)node->id) {
    case MIRT__OP_unary: mirt__tiled_activation(node); break;
    case MIRT__OP_reduce: mirt__tiled_means(node); break;
    case MIRT__OP_normalize: mirt__tiled_normalize(graph, node); break;
    default:
        if (MIRT__TRAINS) mirt__tiled_rewrite_gradient(graph, node);
    }
}

/* >>both gradients of a depthwise convolution, or one of single pixels */

MIRT__TRAINING void mirt__tiled_both(mirt__node *weights) {
    const mirt_tensor *dx = weights->in[1]->pass.tiled.input_grad;
    mirt__node *p = dx ? dx->node : NULL;
    if (!mirt__by_tiles(weights) || !mirt__conv_both_pays(weights)) return;
    if (!p || p->a.of != weights->a.of) return;
    mirt__attrs_window *w = MIRT__OF(&p->a, window);
    if (w->both || w->padded != MIRT__OF(&weights->a, window)->padded) return;
    if (!mirt__shape_equal(&p->a.shape, &weights->in[0]->shape)) return;
    for (int k = 0; k < weights->num_out; k++) {
        if (weights->out[k]->pass.tiled.first_reader < p->position) return;
    }
    w->both = true;
    p->a.column_sum = weights->a.column_sum;
    mirt__tiled_add_in(p, weights->in[0]);
    mirt__tiled_add_outs(p, weights);
}

/* >>lazy tensors */

static void mirt__tiled_count_convs(const mirt__graph *graph, int columns) {
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            mirt__tiled_tensor *t = &graph->node[i]->out[k]->pass.tiled;
            t->x_readers = t->dy_readers = 0;
            t->again = 0;
            t->held = false;
        }
    }
    for (int i = 0; i < graph->count; i++) {
        const mirt__node *node = graph->node[i];
        if (!mirt__by_tiles(node)) continue;
        const mirt__attrs_window *w = MIRT__IF_OF(&node->a, window);
        for (int k = 0; k < node->num_in; k++) {
            const bool last = k == node->num_in - 1; /* x of `both` */
            const bool image = (node->op->lazy_x >> k & 1) && !node->a.affine;
            const bool x = image || (last && w && w->both), dy = node->op->lazy_dy >> k & 1;
            mirt__tiled_tensor *t = &node->in[k]->pass.tiled;
            t->x_readers += x;
            t->dy_readers += dy;
            if (x || dy) t->again += mirt__conv_again(node, k, columns);
            t->held = t->held || (node->backward && !node->in[k]->node->backward);
        }
    }
}

/* x [rows, h, w, c] times [rows, 1, 1, c], in either order. */
static bool mirt__tiled_gates(mirt__node *node) {
    if (node->op->lazy != MIRT__LAZY_GATE || node->a.kind != MIRT__MULTIPLY) return false;
    if (node->out[0]->shape.rank != 4) return false;
    for (int k = 1; k >= 0; k--) {
        mirt_tensor *x = node->in[1 - k], *gate = node->in[k];
        mirt_shape want = x->shape;
        want.dim[1] = want.dim[2] = 1;
        if (!mirt__shape_equal(&x->shape, &node->out[0]->shape) || !mirt__shape_equal(&gate->shape, &want) || x == gate)
            continue;
        node->in[0] = x;
        node->in[1] = gate;
        return true;
    }
    return false;
}

static void mirt__tiled_lazy(const mirt__graph *graph, const mirt__storage_costs *costs) {
    mirt__tiled_count_convs(graph, costs->columns);
    for (int i = 0; i < graph->count; i++) {
        mirt_tensor *t = graph->node[i]->out[0];
        if (t->uses == 0 || t->pass.tiled.x_readers != t->uses || !mirt__tiled_gates(graph->node[i])) continue;
        if (!mirt__storage_lazy(t, costs)) continue;
        mirt__tiled_tensor *x = &graph->node[i]->in[0]->pass.tiled;
        x->x_readers++;
        x->again += t->pass.tiled.again;
        x->held = x->held || t->pass.tiled.held;
    }
    for (int i = 0; i < graph->count; i++) {
        const mirt__node *node = graph->node[i];
        mirt_tensor *t = node->out[0];
        if (t->uses == 0 || t->shape.rank != 4) continue;
        const mirt__attrs_norm *norm = MIRT__IF_OF(&node->a, norm);
        if (!norm || norm->last_axes) continue;
        const bool x = node->op->lazy == MIRT__LAZY_X && t->pass.tiled.x_readers == t->uses && !node->a.residual;
        const bool dy = node->op->lazy == MIRT__LAZY_DY && t->pass.tiled.dy_readers == t->uses;
        if (x || dy) mirt__storage_lazy(t, costs);
    }
}

MIRT__LIB void mirt__fuse_tiled(mirt__graph *graph, const mirt__storage_costs *costs, mirt_tensor *const *keep,
                                 int count) {
    mirt__tiled_count(graph, keep, count, MIRT__OP_norm_grad_input);
    for (int i = 0; i < graph->count; i++) mirt__tiled_rewrite(graph, graph->node[i]);
    mirt__tiled_count(graph, keep, count, MIRT__OP_conv2d_input_grad);
    for (int i = 0; i < graph->count; i++) {
        if (MIRT__TRAINS && graph->node[i]->id == MIRT__OP_conv2d_weight_grad) mirt__tiled_both(graph->node[i]);
    }
    mirt__tiled_count(graph, keep, count, MIRT__OP_COUNT);
    mirt__tiled_lazy(graph, costs);
}
