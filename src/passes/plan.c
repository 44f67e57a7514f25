#include "plan.h"
#include "../ops/ops.h"
/* Gives each tensor of a program its place in memory. */

/* The tensor whose bytes `t` is. */
static mirt_tensor *mirt__bytes_of(mirt_tensor *t) {
    while (t->node->op->alias) t = t->node->in[0];
    return t;
}

static void mirt__plan_port(mirt__program *program, const mirt_tensor *t) {
    program->io[t->port].bytes = mirt__tensor_bytes(t, 1);
    program->io[t->port].batched = mirt__is_batched(&t->shape);
}

/* Outputs need a place of their own: copies those that are leaves or already placed, and aliases as results, whose
 * bytes have another shape. */
static bool mirt__plan_outputs(mirt__program *program, mirt__output *outputs, int count) {
    for (int i = 0; i < count; i++) {
        mirt_tensor *t = outputs[i].tensor;
        if (!t) continue;
        if (outputs[i].space != MIRT__SPACE_IO) t = mirt__bytes_of(t);
        if (t->lazy) t = outputs[i].tensor;
        if (!mirt__node_runs(t->node) || t->space != MIRT__SPACE_NONE) {
            t = outputs[i].tensor = mirt__unary_op(MIRT__COPY, t, 0, 0);
            if (!t) return false;
        }
        t->space = outputs[i].space;
        t->offset = outputs[i].offset;
        t->port = outputs[i].port;
        if (t->space == MIRT__SPACE_IO) mirt__plan_port(program, t);
    }
    return true;
}

static void mirt__plan_leaves(mirt__program *program, const size_t *variable_offset) {
    for (int i = 0; i < program->graph.count; i++) {
        mirt__node *node = program->graph.node[i];
        if (node->op->space != MIRT__SPACE_NONE) node->out[0]->space = node->op->space;
        if (mirt__is_input(node)) {
            node->out[0]->port = node->a.index;
            mirt__plan_port(program, node->out[0]);
        } else if (mirt__is_variable(node)) {
            node->out[0]->offset = variable_offset[node->a.index];
        }
    }
}

/* What is read of a lazy tensor is what its node reads. */
static void mirt__plan_reads(mirt_tensor *t, int at) {
    mirt_tensor *root = mirt__bytes_of(t);
    root->uses++;
    if (root->last < at) root->last = at;
    for (int k = 0; root->lazy && k < root->node->num_in; k++) mirt__plan_reads(root->node->in[k], at);
}

static void mirt__plan_lifetimes(mirt__graph *graph) {
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        for (int k = 0; k < node->num_out; k++) {
            node->out[k]->first = node->out[k]->last = i;
            node->out[k]->uses = 0;
        }
        for (int k = 0; k < node->num_in; k++) {
            if (!(node->op->shape_only >> k & 1)) mirt__plan_reads(node->in[k], i);
        }
    }
}

static bool mirt__plan_needs_place(const mirt__node *node, int slot) {
    const mirt_tensor *t = node->out[slot];
    return mirt__node_runs(node) && t->space == MIRT__SPACE_NONE && !t->lazy &&
           !(t->uses == 0 && (node->op->optional_outputs >> slot & 1));
}

MIRT__TRAINING bool mirt__plan_crosses(const mirt__program *program, const mirt_tensor *t) {
    for (int i = 0; i < program->num_cuts; i++) {
        if (t->first <= program->cut[i] && program->cut[i] <= t->last) return true;
    }
    return false;
}

/* Whether the kernel of `node` may write output 0 over the input. */
static bool mirt__plan_overwrites(const mirt__node *node, int input) {
    const bool last = node->a.residual && input == node->num_in - 1;
    const bool residual = last && (node->op->overwrites & MIRT__INPUT_RESIDUAL);
    return (residual || (node->op->overwrites >> input & 1)) && node->in[input]->dtype == node->out[0]->dtype &&
           mirt__shape_equal(&node->in[input]->shape, &node->out[0]->shape);
}

/* An output takes over the bytes of an input that dies with the node. */
static void mirt__plan_in_place(const mirt__program *program) {
    for (int i = 0; i < program->graph.count; i++) {
        const mirt__node *node = program->graph.node[i];
        for (int k = 0; k < node->num_out; k++) node->out[k]->reuses = NULL;
        for (int k = 0; k < node->num_in && mirt__plan_needs_place(node, 0) && !node->out[0]->reuses; k++) {
            mirt_tensor *t = node->out[0], *owner = mirt__bytes_of(node->in[k]);
            if (owner->reuses) owner = owner->reuses;
            if (owner->last != i || !mirt__plan_overwrites(node, k)) continue;
            if (!mirt__plan_needs_place(owner->node, owner->slot)) continue;
            if (MIRT__TRAINS && (mirt__plan_crosses(program, t) || mirt__plan_crosses(program, owner))) continue;
            t->reuses = owner;
            owner->last = t->last;
        }
    }
}

MIRT__LIB bool mirt__plan_fits(const mirt__graph *graph, int64_t rows) {
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            int64_t row = (int64_t)mirt__tensor_bytes(graph->node[i]->out[k], 1);
            if (row > 0 && rows > MIRT__MAX_BYTES / row) return false;
        }
    }
    return true;
}

/* A tensor's bytes over its life; `begin` once they have a place. */
typedef struct mirt__stay {
    size_t begin, bytes;
    mirt_tensor *tensor;
    int first, last;
} mirt__stay;

/* The tensors that need a place in `space`: those alive across a cut have their own. */
static int mirt__plan_collect(const mirt__program *program, mirt__space space, mirt__stay *list) {
    const mirt__graph *graph = &program->graph;
    int n = 0;
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            mirt_tensor *t = graph->node[i]->out[k];
            if (!mirt__plan_needs_place(graph->node[i], k) || t->reuses) continue;
            if (MIRT__TRAINS && mirt__plan_crosses(program, t) != (space == MIRT__SPACE_REPLICA)) continue;
            if (list) {
                mirt__stay s = {0, mirt__align_up(mirt__tensor_bytes(t, program->max_rows)), t, t->first, t->last};
                list[n] = s;
            }
            n++;
        }
    }
    return n;
}

/* Largest first (ties: in order of their birth). */
static int mirt__plan_order(const void *a, const void *b) {
    const mirt__stay *x = (const mirt__stay *)a, *y = (const mirt__stay *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->tensor->slot - y->tensor->slot;
}

/* `s` goes to the lowest place where it meets none of the `count` stays that are alive with it; they are sorted by
   where they begin, and it joins them. */
static void mirt__plan_lowest(mirt__stay *stay, int count, mirt__stay s) {
    size_t at = 0;
    int i;
    for (i = 0; i < count && stay[i].begin < at + s.bytes; i++) {
        const size_t end = stay[i].begin + stay[i].bytes;
        if (end > at && stay[i].first <= s.last && s.first <= stay[i].last) at = end;
    }
    while (i > 0 && stay[i - 1].begin > at) i--;
    memmove(&stay[i + 1], &stay[i], (size_t)(count - i) * sizeof *stay);
    s.begin = at;
    stay[i] = s;
}

/* Places the tensors of `space`, of which *bytes are needed. */
static bool mirt__plan_space(mirt__program *program, mirt__space space, size_t *bytes) {
    int n = mirt__plan_collect(program, space, NULL);
    mirt__stay *list = (mirt__stay *)mirt__calloc(2 * (size_t)n + 1, sizeof *list);
    if (!list) return false;
    mirt__stay *stay = list + n;
    mirt__plan_collect(program, space, list);
    qsort(list, (size_t)n, sizeof *list, mirt__plan_order);
    for (int i = 0; i < n; i++) mirt__plan_lowest(stay, i, list[i]);
    for (int i = 0; i < n; i++) {
        stay[i].tensor->space = space;
        stay[i].tensor->offset = stay[i].begin;
        if (stay[i].begin + stay[i].bytes > *bytes) *bytes = stay[i].begin + stay[i].bytes;
    }
    mirt__free(list);
    return true;
}

static void mirt__plan_aliases_and_workspace(mirt__program *program) {
    for (int i = 0; i < program->graph.count; i++) {
        mirt__node *node = program->graph.node[i];
        const mirt_tensor *place = node->op->alias ? node->in[0] : node->num_out ? node->out[0]->reuses : NULL;
        if (place) {
            node->out[0]->space = place->space;
            node->out[0]->offset = place->offset;
            node->out[0]->port = place->port;
        }
        if (!node->op->workspace || !mirt__node_runs(node)) continue;
        mirt__workspace w = {0, 0};
        node->op->workspace(node, program->max_rows, &w);
        w.scratch = mirt__align_up(w.scratch);
        w.shared = mirt__align_up(w.shared);
        if (w.scratch > program->scratch) program->scratch = w.scratch;
        if (w.shared > program->shared) program->shared = w.shared;
    }
}

MIRT__TRAINING bool mirt__plan_cuts(mirt__program *program) {
    mirt__graph *graph = &program->graph;
    program->cut = (int *)mirt__pool_alloc(&graph->pool, (size_t)graph->count * sizeof *program->cut + 1);
    for (int i = 0; program->cut && i < graph->count; i++) {
        if (graph->node[i]->op->meets) program->cut[program->num_cuts++] = i;
    }
    return program->cut != NULL;
}

MIRT__LIB bool mirt__plan(mirt__program *program, mirt__output *outputs, int num_outputs,
                          const size_t *variable_offset, int64_t max_rows) {
    program->max_rows = max_rows;
    mirt__plan_leaves(program, variable_offset);
    if (!mirt__plan_outputs(program, outputs, num_outputs) || (MIRT__TRAINS && !mirt__plan_cuts(program)))
        return false;
    mirt__plan_lifetimes(&program->graph);
    mirt__plan_in_place(program);
    if (!mirt__plan_space(program, MIRT__SPACE_ARENA, &program->arena) ||
        (MIRT__TRAINS && !mirt__plan_space(program, MIRT__SPACE_REPLICA, &program->replica))) {
        return false;
    }
    mirt__plan_aliases_and_workspace(program);
    program->first_gradient = -1;
    for (int i = program->graph.count - 1; i >= 0; i--) {
        const mirt__node *node = program->graph.node[i];
        if (node->backward && mirt__node_runs(node)) program->first_gradient = i;
    }
    return true;
}
