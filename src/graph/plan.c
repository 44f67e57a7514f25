#include "program.h"
#include "../ops/ops.h"

/* The tensor whose bytes `t` is. */
static mirt_tensor *mirt__bytes_of(mirt_tensor *t) {
    while (t->node->op->alias) t = t->node->in[0];
    return t;
}

static void mirt__plan_port(mirt__program *program, const mirt_tensor *t) {
    program->io[t->offset].bytes = mirt__tensor_bytes(t, 1);
    program->io[t->offset].batched = mirt__is_batched(&t->shape);
}

/* Outputs need a place of their own: copies those that are leaves, aliases or already placed. */
static bool mirt__plan_outputs(mirt__program *program, mirt__output *outputs, int count) {
    for (int i = 0; i < count; i++) {
        mirt_tensor *t = outputs[i].tensor;
        if (!t) continue;
        if (!mirt__node_runs(t->node) || t->space != MIRT__SPACE_NONE) {
            t = outputs[i].tensor = mirt__unary_op(MIRT__COPY, t, 0, 0);
            if (!t) return false;
        }
        t->space = outputs[i].space;
        t->offset = outputs[i].offset;
        if (t->space == MIRT__SPACE_IO) mirt__plan_port(program, t);
    }
    return true;
}

static void mirt__plan_leaves(mirt__program *program, const size_t *variable_offset) {
    for (int i = 0; i < program->graph.count; i++) {
        mirt__node *node = program->graph.node[i];
        if (node->id == MIRT__OP_input) {
            node->out[0]->space = MIRT__SPACE_IO;
            node->out[0]->offset = (size_t)node->a.index;
            mirt__plan_port(program, node->out[0]);
        } else if (node->id == MIRT__OP_variable) {
            node->out[0]->space = MIRT__SPACE_WEIGHT;
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
        for (int k = 0; k < node->num_in; k++) mirt__plan_reads(node->in[k], i);
    }
}

/* Tensors that need arena memory, largest first (ties: in order of their birth). */
static int mirt__plan_order(const void *a, const void *b) {
    const mirt_tensor *x = *(mirt_tensor *const *)a, *y = *(mirt_tensor *const *)b;
    if (x->offset != y->offset) return x->offset > y->offset ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->slot - y->slot;
}

static bool mirt__plan_needs_place(const mirt__node *node, int slot) {
    const mirt_tensor *t = node->out[slot];
    return mirt__node_runs(node) && t->space == MIRT__SPACE_NONE && !t->lazy && !(t->uses == 0 && (node->op->optional_outputs >> slot & 1));
}

/* Whether the bytes of every tensor at `rows` rows can be counted with. */
static bool mirt__plan_check(const mirt__graph *graph, int64_t rows) {
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            int64_t row = (int64_t)mirt__tensor_bytes(graph->node[i]->out[k], 1);
            if (row == 0 || rows <= MIRT__MAX_BYTES / row) continue;
            return mirt__fail(MIRT_E_NOMEM, "batches of %lld samples need more memory than any machine has", (long long)rows), false;
        }
    }
    return true;
}

static bool mirt__plan_crosses(const mirt__program *program, const mirt_tensor *t) {
    for (int i = 0; i < program->num_cuts; i++) {
        if (t->first <= program->cut[i] && program->cut[i] <= t->last) return true;
    }
    return false;
}

/* The tensors that need a place in `space`: those alive across a cut have their own. */
static int mirt__plan_collect(const mirt__program *program, mirt__space space, mirt_tensor **list) {
    const mirt__graph *graph = &program->graph;
    int n = 0;
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) {
            if (!mirt__plan_needs_place(graph->node[i], k)) continue;
            if (mirt__plan_crosses(program, graph->node[i]->out[k]) != (space == MIRT__SPACE_REPLICA)) continue;
            if (list) {
                list[n] = graph->node[i]->out[k];
                list[n]->offset = mirt__align_up(mirt__tensor_bytes(list[n], program->max_rows)); /* its size, until it is placed */
            }
            n++;
        }
    }
    return n;
}

static bool mirt__plan_overlap(const mirt_tensor *a, const mirt_tensor *b) { return a->first <= b->last && b->first <= a->last; }

/* The lowest offset where `t` meets no placed tensor that is alive with it. `size` and `place`
   run beside `list`. */
static size_t mirt__plan_lowest(mirt_tensor *const *list, const size_t *size, const size_t *place, int placed, const mirt_tensor *t, size_t bytes) {
    size_t at = 0;
    for (int i = 0; i < placed;) {
        bool hit = mirt__plan_overlap(list[i], t) && at < place[i] + size[i] && place[i] < at + bytes;
        if (hit) {
            at = place[i] + size[i];
            i = 0;
        } else {
            i++;
        }
    }
    return at;
}

/* Places the tensors of `space`, of which *bytes are needed. */
static bool mirt__plan_space(mirt__program *program, mirt__space space, size_t *bytes) {
    int n = mirt__plan_collect(program, space, NULL);
    mirt_tensor **list = (mirt_tensor **)mirt__calloc((size_t)n + 1, sizeof *list);
    size_t *size = (size_t *)mirt__calloc((size_t)n + 1, 2 * sizeof *size);
    bool good = list && size;
    if (good) {
        size_t *place = size + n;
        mirt__plan_collect(program, space, list);
        qsort(list, (size_t)n, sizeof *list, mirt__plan_order);
        for (int i = 0; i < n; i++) {
            size[i] = list[i]->offset;
            place[i] = mirt__plan_lowest(list, size, place, i, list[i], size[i]);
            if (place[i] + size[i] > *bytes) *bytes = place[i] + size[i];
        }
        for (int i = 0; i < n; i++) {
            list[i]->space = space;
            list[i]->offset = place[i];
        }
    }
    mirt__free(list);
    mirt__free(size);
    return good;
}

static void mirt__plan_aliases_and_workspace(mirt__program *program) {
    for (int i = 0; i < program->graph.count; i++) {
        mirt__node *node = program->graph.node[i];
        if (node->op->alias) {
            node->out[0]->space = node->in[0]->space;
            node->out[0]->offset = node->in[0]->offset;
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

static bool mirt__plan_cuts(mirt__program *program) {
    mirt__graph *graph = &program->graph;
    program->cut = (int *)mirt__pool_alloc(&graph->pool, (size_t)graph->count * sizeof *program->cut + 1);
    for (int i = 0; program->cut && i < graph->count; i++) {
        if (graph->node[i]->id == MIRT__OP_all_reduce) program->cut[program->num_cuts++] = i;
    }
    return program->cut != NULL;
}

MIRT__LIB bool mirt__plan(mirt__program *program, mirt__output *outputs, int num_outputs,
                          const size_t *variable_offset, int64_t max_rows) {
    program->max_rows = max_rows;
    mirt__plan_leaves(program, variable_offset);
    if (!mirt__plan_outputs(program, outputs, num_outputs) || !mirt__plan_check(&program->graph, max_rows) || !mirt__plan_cuts(program)) return false;
    mirt__plan_lifetimes(&program->graph);
    if (!mirt__plan_space(program, MIRT__SPACE_ARENA, &program->arena) ||
        !mirt__plan_space(program, MIRT__SPACE_REPLICA, &program->replica)) {
        return false;
    }
    mirt__plan_aliases_and_workspace(program);
    return true;
}
