#include "half.h"
#include "../ops/ops.h"
/* Stores images as 16-bit numbers under dtype policies that ask for it. */

/* Whether an elementwise kernel runs that reads and writes them so: not where readers compute what it would, and not in
   losses and metrics. */
static bool mirt__half_runs(const mirt__node *node, bool elements) {
    return elements && node->of_model && node->op->half_elements && !node->out[0]->lazy;
}

/* Whether the node's kernel can write its first output so. */
static bool mirt__half_makes(const mirt__node *node, bool elements) {
    if (mirt__half_runs(node, elements)) return true;
    return node->op->half_out && node->op->half && node->op->half(node);
}

/* Whether `t` is a stored image in float32: rows of the batch with the four axes of what convolutions make. Tensors
   without rows are made of weights. */
static bool mirt__half_image(const mirt_tensor *t) {
    return !t->lazy && t->shape.rank == 4 && mirt__is_batched(&t->shape) && t->dtype == MIRT_FLOAT32;
}

/* Whether it can read the input so. */
static bool mirt__half_reads(const mirt__node *node, int input, bool elements) {
    if (node->op->shape_only >> input & 1 || mirt__half_runs(node, elements)) return true;
    return (node->op->half_in >> input & 1) && node->op->half && node->op->half(node);
}

/* `t` cannot be stored so; returns whether it could be until now. */
static bool mirt__half_refuse(mirt_tensor *t) {
    const bool news = t->pass.half.possible;
    t->pass.half.possible = false;
    return news;
}

/* What stands in `tied` is of one dtype: all or none. */
static bool mirt__half_tie(mirt_tensor *const *tied, int count) {
    bool all = true, news = false;
    for (int k = 0; k < count; k++) all = all && tied[k]->pass.half.possible;
    for (int k = 0; k < count && !all; k++) news = mirt__half_refuse(tied[k]) || news;
    return news;
}

static bool mirt__half_ties(const mirt__node *node) {
    mirt_tensor *tied[MIRT__MAX_FUSED_IN + 1];
    return node->op->half_tied && mirt__half_tie(tied, node->op->half_tied(node, tied));
}

/* Whether a gradient made in float32 is worth a copy of half the size for the normalizations that read it several
   times, while nothing needs it as it is. */
MIRT__TRAINING bool mirt__half_worth(const mirt_tensor *t, const mirt__storage_costs *costs, bool elements) {
    return t && mirt__half_image(t) && t->node->op->run && !mirt__half_makes(t->node, elements) &&
           t->pass.half.readers == t->uses && mirt__storage_copy(t, t->pass.half.profits, costs);
}

/* Puts those copies behind what they copy. */
MIRT__TRAINING bool mirt__half_cast(mirt__graph *graph, const mirt__storage_costs *costs, bool elements) {
    const int n = graph->count;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            mirt__half_tensor *t = &graph->node[i]->out[k]->pass.half;
            t->cast = NULL;
            t->readers = t->profits = 0;
        }
    }
    for (int i = 0; i < n; i++) {
        const mirt__node *node = graph->node[i];
        for (int k = 0; k < node->num_in; k++) node->in[k]->pass.half.readers += mirt__half_reads(node, k, elements);
        if (node->op->half_copied) node->in[0]->pass.half.profits++;
    }
    for (int i = 0; i < n; i++) {
        mirt_tensor *t = graph->node[i]->out[0];
        mirt__attrs a = mirt__attrs_of(MIRT__OP_cast);
        if (!mirt__half_worth(t, costs, elements)) continue;
        a.dtype = MIRT_FLOAT32;
        a.half = true;
        graph->scope = t->node->name;
        t->pass.half.cast = mirt__apply(MIRT__OP_cast, &a, &t, 1);
        if (!t->pass.half.cast) break;
        t->pass.half.cast->node->position = i + 1;
    }
    graph->scope = NULL;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < graph->node[i]->num_in; k++) {
            mirt_tensor *cast = graph->node[i]->in[k]->pass.half.cast;
            if (cast) graph->node[i]->in[k] = cast;
        }
    }
    mirt__graph_place(graph, n);
    return graph->status == MIRT_OK;
}

MIRT__LIB void mirt__fuse_half(mirt__graph *graph, const mirt__storage_costs *costs, const mirt__half_rule *rule,
                               mirt_tensor *const *keep, int count) {
    const bool elements = rule->elements;
    if (MIRT__TRAINS && !mirt__half_cast(graph, costs, elements)) return;
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        for (int k = 0; k < node->num_out; k++) {
            mirt_tensor *t = node->out[k];
            t->pass.half.possible = k == 0 && mirt__half_image(t) && mirt__half_makes(node, elements);
        }
    }
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i]->pass.half.possible = false;
    }
    for (int i = 0; i < graph->count; i++) {
        const mirt__node *node = graph->node[i];
        for (int k = 0; k < node->num_in; k++) node->in[k]->pass.half.possible &= mirt__half_reads(node, k, elements);
    }
    for (bool news = true; news;) {
        news = false;
        for (int i = graph->count - 1; i >= 0; i--) news = mirt__half_ties(graph->node[i]) || news;
    }
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        if (node->id == MIRT__OP_cast && node->a.half && node->out[0]->pass.half.possible) node->a.dtype = rule->dtype;
        else node->a.half = rule->products && node->op->half_products && node->op->half_products(node);
        for (int k = 0; k < node->num_out; k++) {
            if (node->out[k]->pass.half.possible) node->out[k]->dtype = rule->dtype;
        }
    }
}
