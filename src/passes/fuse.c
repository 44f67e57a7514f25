#include "fuse.h"
#include "../ops/ops.h"
/* Fuses elementwise work with the node that produces or reads its tensor. */

/* `node` takes the place of its producer: it computes what `producer` and it did together. */
static void mirt__absorb(mirt__node *node, const mirt__node *producer, mirt_tensor *extra) {
    node->id = producer->id;
    node->op = producer->op;
    node->a = producer->a;
    node->name = producer->name ? producer->name : node->name;
    node->num_in = producer->num_in;
    for (int i = 0; i < producer->num_in; i++) node->in[i] = producer->in[i];
    if (extra) node->in[node->num_in++] = extra;
}

/* Forward fusions need an untransposed matrix product. */
static bool mirt__takes(const mirt__node *node, unsigned what) {
    const mirt__attrs_matmul *t = MIRT__IF_OF(&node->a, matmul);
    return (node->op->takes & what) && !(t && (t->transpose_a || t->transpose_b));
}

static bool mirt__reads_data(const mirt__node *node) {
    return node->id == MIRT__OP_reshape || node->id == MIRT__OP_cast ||
           (node->id == MIRT__OP_unary && node->a.kind == MIRT__AFFINE);
}

/* product(reshape(rescale(cast(x)))) reads x itself, converting as it goes. */
static void mirt__fuse_reader(mirt__node *product) {
    mirt_tensor *t = product->in[0];
    mirt__node *reshape = NULL;
    bool affine = false, cast = false;
    float scale = 1, offset = 0;
    while (t->uses == 1 && !t->needs_grad && mirt__reads_data(t->node) && !(cast && t->node->id != MIRT__OP_reshape)) {
        mirt__node *node = t->node;
        if (node->id == MIRT__OP_reshape) {
            if (!reshape) reshape = node;
        } else if (node->id == MIRT__OP_cast) {
            cast = true;
        } else {
            if (affine) break;
            affine = true;
            scale = node->a.scale;
            offset = node->a.offset;
        }
        t = node->in[0];
    }
    if (!affine && !cast) return;
    product->a.affine = true;
    product->a.scale = scale;
    product->a.offset = offset;
    if (reshape) {
        reshape->in[0] = t;
        reshape->out[0]->dtype = t->dtype;
        t = reshape->out[0];
    }
    product->in[0] = t;
}

static void mirt__fuse_bias(mirt__node *node) {
    const mirt__node *p = node->in[0]->node;
    if (!mirt__takes(p, MIRT__TAKES_BIAS) || node->in[0]->uses != 1) return;
    if (p->a.bias || p->a.activation != MIRT_LINEAR) return;
    mirt__absorb(node, p, node->in[1]);
    node->a.bias = true;
}

/* Whether `node` can apply the activation to what it computes. Normalizations know the slope from their input, unless
   something else was added to it: as products, they then need one that is known from the output. */
static bool mirt__takes_activation(const mirt__node *node, mirt_activation_kind kind) {
    if (!mirt__takes(node, MIRT__TAKES_ACTIVATION)) return false;
    if (mirt__activation_get(kind)->fused) return true;
    return node->op->slope_of_input && (!node->a.residual || !node->out[0]->needs_grad);
}

static void mirt__fuse_activation(mirt__node *node) {
    mirt_activation_kind kind = mirt__activation_of(node);
    const mirt__node *p = node->in[0]->node;
    if (kind == MIRT_LINEAR || !mirt__takes_activation(p, kind) || node->in[0]->uses != 1 ||
        p->a.activation != MIRT_LINEAR)
        return;
    mirt__absorb(node, p, NULL);
    node->a.activation = kind;
}

/* A sum with a normalization's output: the kernel that writes it adds. Of two, the later one. */
static void mirt__fuse_residual(mirt__node *node) {
    if (node->a.kind != MIRT__ADD || !mirt__shape_equal(&node->in[0]->shape, &node->in[1]->shape)) return;
    for (int k = 1; k >= 0; k--) {
        const mirt__node *p = node->in[k]->node;
        if (!mirt__takes(p, MIRT__TAKES_ADDEND) || node->in[k]->uses != 1) continue;
        const mirt__attrs_norm *norm = MIRT__IF_OF(&p->a, norm);
        if (!norm || norm->last_axes) continue;
        if (p->a.activation != MIRT_LINEAR || p->a.residual) continue;
        mirt__absorb(node, p, node->in[1 - k]);
        node->a.residual = true;
        return;
    }
}

static bool mirt__is_2x2(const mirt__node *pool) {
    const mirt__attrs_window *w = MIRT__OF(&pool->a, window);
    return w->kernel[0] == 2 && w->kernel[1] == 2 && w->strides[0] == 2 && w->strides[1] == 2 &&
           w->padding == MIRT_VALID;
}

static void mirt__fuse_pool(mirt__node *node) {
    const mirt__node *p = node->in[0]->node;
    if (!mirt__is_2x2(node) || p->id != MIRT__OP_conv2d || node->in[0]->uses != 1) return;
    if (p->a.activation != MIRT_RELU) return;
    const mirt__attrs_window *w = MIRT__OF(&p->a, window);
    if (p->in[0]->needs_grad || w->padding != MIRT_VALID || w->groups != 1) return;
    if (w->strides[0] != 1 || w->strides[1] != 1 || w->dilation[0] != 1 || w->dilation[1] != 1) return;
    mirt__absorb(node, p, NULL);
    node->id = MIRT__OP_conv2d_pool;
    node->op = mirt__op_get(MIRT__OP_conv2d_pool);
    node->a.activation = MIRT_LINEAR;
    node->out[1]->dtype = MIRT_UINT8;
}

MIRT__LIB void mirt__fuse_forward(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    mirt__graph_count_uses(graph, keep, count);
    for (int i = 0; i < graph->count; i++) {
        if (mirt__takes(graph->node[i], MIRT__TAKES_READER)) mirt__fuse_reader(graph->node[i]);
    }
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        if (node->id == MIRT__OP_bias_add) mirt__fuse_bias(node);
        else if (node->id == MIRT__OP_unary) mirt__fuse_activation(node);
        else if (node->id == MIRT__OP_binary) mirt__fuse_residual(node);
        else if (node->id == MIRT__OP_max_pool2d) mirt__fuse_pool(node);
    }
    mirt__graph_prune(graph, keep, count);
}

MIRT__TRAINING_LIB void mirt__fuse_backward(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    mirt__graph_count_uses(graph, keep, count);
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        mirt_activation_kind kind = mirt__activation_grad_of(node);
        if (kind == MIRT_LINEAR || node->in[0]->uses != 1) continue;
        const mirt__node *p = node->in[0]->node;
        if (!(p->op->takes & MIRT__TAKES_MASK) || p->a.bias) continue;
        if (p->a.activation || p->a.mask_activation || p->a.column_sum) continue;
        if (!mirt__shape_equal(&node->in[0]->shape, &node->in[1]->shape)) continue;
        mirt__absorb(node, p, node->in[1]);
        node->a.mask_activation = kind;
    }
    mirt__graph_prune(graph, keep, count);
}

/* A sum or product with a tensor that is repeated: it repeats what is not stored again for that. The other operand has
   the node's shape, so that it can still be overwritten. */
MIRT__TRAINING void mirt__fuse_repeated(const mirt__node *node) {
    for (int k = 0; k < 2; k++) {
        mirt_tensor *t = node->in[k];
        if (t->node->id != MIRT__OP_broadcast || t->uses != 1) continue;
        const mirt_shape *source = &t->node->in[0]->shape;
        if (source->rank == t->shape.rank && mirt__shape_equal(&node->in[1 - k]->shape, &node->out[0]->shape))
            t->shape = *source;
    }
}

/* Whether `t` is a product that nothing else reads. */
MIRT__TRAINING bool mirt__fuse_is_product(const mirt_tensor *t) {
    const mirt__node *p = t->node;
    return p->id == MIRT__OP_binary && p->a.kind == MIRT__MULTIPLY && !p->a.residual && t->uses == 1 && !t->lazy;
}

/* A sum with a product of its shape: a smaller one would be computed again for each repetition. */
MIRT__TRAINING void mirt__fuse_addend(mirt__node *sum) {
    for (int k = 0; k < 2; k++) {
        const mirt_tensor *t = sum->in[k];
        if (!mirt__fuse_is_product(t) || !mirt__shape_equal(&t->shape, &sum->out[0]->shape)) continue;
        mirt__absorb(sum, t->node, sum->in[1 - k]);
        sum->a.residual = true;
        return;
    }
}

/* The sum or mean of a product or square along axes. */
MIRT__TRAINING void mirt__fuse_reduced(mirt__node *reduce) {
    const mirt_tensor *t = reduce->in[0];
    const mirt__node *p = t->node;
    const bool square = p->id == MIRT__OP_unary && p->a.kind == MIRT__SQUARE && t->uses == 1;
    mirt_tensor *a = p->in[0], *b = square ? a : p->in[1];
    if (reduce->a.kind >= MIRT__REDUCE_MAX || !(square || mirt__fuse_is_product(t))) return;
    if (!mirt__shape_equal(&a->shape, &t->shape) || !mirt__shape_equal(&b->shape, &t->shape)) return;
    reduce->in[0] = a;
    reduce->in[reduce->num_in++] = b;
}

MIRT__TRAINING_LIB void mirt__fuse_elements(mirt__graph *graph, bool products, mirt_tensor *const *keep, int count) {
    mirt__graph_count_uses(graph, keep, count);
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        const bool sum = node->id == MIRT__OP_binary && node->a.kind == MIRT__ADD,
                   product = node->id == MIRT__OP_binary && node->a.kind == MIRT__MULTIPLY;
        if (sum || (product && !node->out[0]->lazy)) mirt__fuse_repeated(node);
        if (sum && products) mirt__fuse_addend(node);
        if (node->id == MIRT__OP_reduce && products) mirt__fuse_reduced(node);
    }
    mirt__graph_prune(graph, keep, count);
}
