#include "storage.h"
/* Decides by costs which tensors are stored, lazy or computed twice. */

/* Reads of a 16-bit copy by each normalization: its own, and those of both gradients of the convolution that compute
   its input's gradient lazily. */
#define MIRT__COPY_READS 3

MIRT__LIB mirt__storage mirt__choose(const mirt__choice *choice) {
    if (choice->lazy <= choice->store && choice->lazy <= choice->twice && choice->lazy < HUGE_VAL) return MIRT__LAZY;
    return choice->twice < choice->store ? MIRT__TWICE : MIRT__STORED;
}

/* Bytes read to compute the node's outputs; in the place of a lazy tensor those that its node reads. Weights and
   statistics do not count beside images, so that the cheaper choice is the same for every number of rows. */
static double mirt__storage_inputs(const mirt__node *node, int64_t rows) {
    const bool batched = mirt__is_batched(&node->out[0]->shape);
    double bytes = 0;
    for (int k = 0; k < node->num_in; k++) {
        const mirt_tensor *t = node->in[k];
        if ((node->op->shape_only >> k & 1) || (batched && !mirt__is_batched(&t->shape))) continue;
        bytes += t->lazy ? mirt__storage_inputs(t->node, rows) : (double)mirt__tensor_bytes(t, rows);
    }
    return bytes;
}

/* A node reads all inputs once, however many outputs it has: its first one pays for them. */
static double mirt__storage_pass(const mirt_tensor *t, int64_t rows) {
    return (t->slot ? 0 : mirt__storage_inputs(t->node, rows)) + (double)mirt__tensor_bytes(t, rows);
}

/* `held`: between the passes, if it is stored. */
static mirt__choice mirt__storage_choice(const mirt_tensor *t, const mirt__storage_costs *costs, int64_t rows,
                                         bool held) {
    mirt__choice choice = {0, HUGE_VAL, HUGE_VAL};
    const double pass = costs->pass * mirt__storage_pass(t, rows), bytes = (double)mirt__tensor_bytes(t, rows);
    choice.store = pass + (held ? costs->held * bytes : 0) + costs->read * t->lazy_readers * bytes;
    if (t->lazy_readers)
        choice.lazy = costs->read * t->lazy_readers * mirt__storage_inputs(t->node, rows) +
                      costs->again * (double)t->lazy_again * bytes / (double)mirt__dtype_size(t->dtype);
    if (t->repeatable) choice.twice = 2 * pass;
    return choice;
}

MIRT__LIB bool mirt__storage_lazy(mirt_tensor *t, const mirt__storage_costs *costs) {
    t->lazy_readers = t->uses;
    t->lazy_again = t->pass.tiled.again;
    const mirt__choice choice = mirt__storage_choice(t, costs, 1, t->pass.tiled.held);
    t->lazy = mirt__choose(&choice) == MIRT__LAZY;
    return t->lazy;
}

MIRT__TRAINING_LIB bool mirt__storage_copy(const mirt_tensor *t, int readers, const mirt__storage_costs *costs) {
    const double bytes = (double)mirt__tensor_bytes(t, 1), copied = bytes / 2;
    return readers > 0 && costs->pass * (bytes + copied) <= costs->pass * MIRT__COPY_READS * readers * (bytes - copied);
}

/* Finds which tensors backward nodes read. What an alias or a lazy tensor is read by reads its inputs. */
MIRT__TRAINING void mirt__storage_find(mirt__graph *graph) {
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        node->position = i;
        for (int k = 0; k < node->num_out; k++) {
            mirt__stored_tensor *s = &node->out[k]->pass.stored;
            s->first_backward = graph->count;
            s->last_backward = -1;
            s->plain = true;
            s->again = NULL;
        }
    }
    for (int i = graph->count - 1; i >= 0; i--) {
        const mirt__node *node = graph->node[i];
        const bool passes = node->op->alias || (node->num_out && node->out[0]->lazy);
        for (int k = 0; k < node->num_in; k++) {
            mirt__stored_tensor *s = &node->in[k]->pass.stored;
            if (node->op->shape_only >> k & 1) continue;
            const mirt__stored_tensor *by = &node->out[0]->pass.stored; /* nodes with inputs have outputs */
            const int first = passes ? by->first_backward : node->backward ? i : graph->count;
            const int last = passes ? by->last_backward : node->backward ? i : -1;
            if (first < s->first_backward) s->first_backward = first;
            if (last > s->last_backward) s->last_backward = last;
            if (passes) s->plain = false;
        }
    }
}

MIRT__TRAINING bool mirt__storage_held(const mirt_tensor *t) {
    return !t->node->backward && t->pass.stored.last_backward >= 0;
}

/* Whether the node can run a second time: it is one pass that draws and exchanges nothing, and its inputs are still in
   memory where the backward pass first reads its output. */
MIRT__TRAINING bool mirt__storage_again(const mirt_tensor *t) {
    const mirt__node *node = t->node;
    const mirt__op *op = node->op;
    if (!mirt__storage_held(t) || t->lazy || !t->pass.stored.plain || node->num_out != 1 || !node->num_in) return false;
    if (!op->run || op->macs || op->alias || op->meets || op->user_code || !op->row_wise) return false;
    for (int k = 0; k < node->num_in; k++) {
        const mirt_tensor *in = node->in[k];
        const mirt__stored_tensor *s = &in->pass.stored;
        const bool leaf = in->node->op->space != MIRT__SPACE_NONE;
        const bool there = s->last_backward >= t->pass.stored.first_backward && !s->again && !in->node->op->alias;
        if (in->lazy || (!leaf && !there)) return false;
    }
    return true;
}

/* The node once more, as the last one. */
MIRT__TRAINING mirt_tensor *mirt__storage_repeat(mirt__graph *graph, const mirt_tensor *t) {
    const mirt__node *node = t->node;
    graph->scope = node->name;
    graph->backward = true;
    graph->of_model = node->of_model;
    mirt_tensor *again = mirt__record(graph, node->id, &node->a, node->in, node->num_in);
    graph->backward = graph->of_model = false;
    graph->scope = NULL;
    if (again) again->node->repeats = node;
    return again;
}

MIRT__TRAINING_LIB void mirt__storage_twice(mirt__graph *graph, const mirt__storage_costs *costs,
                                            mirt_tensor *const *keep, int count) {
    const int nodes = graph->count;
    mirt__storage_find(graph);
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i]->pass.stored.plain = false;
    }
    for (int i = 0; i < nodes; i++) {
        mirt_tensor *t = graph->node[i]->num_out ? graph->node[i]->out[0] : NULL;
        if (!t) continue;
        t->repeatable = mirt__storage_again(t);
        const mirt__choice choice = mirt__storage_choice(t, costs, 1, mirt__storage_held(t));
        if (mirt__choose(&choice) != MIRT__TWICE) continue;
        mirt_tensor *again = mirt__storage_repeat(graph, t);
        if (!again) return;
        again->node->position = t->pass.stored.first_backward;
        t->pass.stored.again = again;
    }
    for (int i = 0; i < nodes; i++) {
        mirt__node *node = graph->node[i];
        for (int k = 0; node->backward && k < node->num_in; k++) {
            mirt_tensor *again = node->in[k]->pass.stored.again;
            if (again) node->in[k] = again;
        }
    }
    mirt__graph_place(graph, nodes);
}

MIRT__TRAINING void mirt__cost_text(double cost, mirt__text *out) {
    if (cost < HUGE_VAL) mirt__text_add(out, " %12.3f", cost * 1e-3);
    else mirt__text_add(out, " %12s", "-");
}

MIRT__TRAINING void mirt__storage_line(const mirt_tensor *t, const mirt__storage_costs *costs, int64_t rows,
                                       mirt__text *out) {
    const mirt__node *node = t->node;
    const bool twice = t->pass.stored.again != NULL; /* then nothing of the backward pass reads it any more */
    const mirt__choice choice = mirt__storage_choice(t, costs, rows, mirt__storage_held(t) || twice);
    char shape[96];
    mirt__text_add(out, "  %-24s %-28s %-6s %14.0f", mirt__shown(node->op->name).text, mirt__shown(node->name).text,
                   t->lazy ? "lazy" : twice ? "twice" : "stored", (double)mirt__tensor_bytes(t, rows));
    mirt__cost_text(choice.store, out);
    mirt__cost_text(t->lazy ? choice.lazy : twice ? choice.twice : fmin(choice.lazy, choice.twice), out);
    mirt__text_add(out, "  %s %s\n", mirt__dtype_name(t->dtype), mirt__shape_text(&t->shape, shape));
}

MIRT__TRAINING_LIB void mirt__storage_text(mirt__program *program, const mirt__storage_costs *costs, mirt__text *out) {
    mirt__graph *graph = &program->graph;
    mirt__storage_find(graph);
    for (int i = 0; i < graph->count; i++) {
        const mirt__node *repeats = graph->node[i]->repeats;
        if (repeats) repeats->out[0]->pass.stored.again = graph->node[i]->out[0];
    }
    mirt__text_add(out, "  %-24s %-28s %-6s %14s %12s %12s\n", "operation", "layer", "choice", "bytes", "store us",
                   "recompute us");
    for (int i = 0; i < graph->count; i++) {
        const mirt__node *node = graph->node[i];
        for (int k = 0; node->op->run && k < node->num_out; k++) {
            const mirt_tensor *t = node->out[k];
            if (t->space != MIRT__SPACE_NONE || t->lazy) mirt__storage_line(t, costs, program->max_rows, out);
        }
    }
}

#undef MIRT__COPY_READS
