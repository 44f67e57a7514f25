#include "graph.h"
/* Records graphs: nodes, shapes, gradients, copies of a model's nodes. */

/* A graph of no strategy has nothing to hold. */
static void mirt__hold_nothing(mirt_model *model) { (void)model; }

MIRT__LIB void mirt__graph_init(mirt__graph *graph, mirt_model *model, const mirt__op_set *ops) {
    memset(graph, 0, sizeof *graph);
    graph->ops = ops;
    graph->model = model;
    graph->hold = graph->let_go = mirt__hold_nothing;
}

MIRT__LIB void mirt__graph_free(mirt__graph *graph) {
    mirt__free(graph->node);
    mirt__free(graph->assignment);
    mirt__free(graph->term);
    mirt__pool_free(&graph->pool);
    memset(graph, 0, sizeof *graph);
}

MIRT__LIB void mirt__graph_poison(mirt__graph *graph) {
    if (graph->status != MIRT_OK) return;
    graph->status = mirt_last_status();
    snprintf(graph->error, sizeof graph->error, "%s", mirt_last_error());
}

MIRT__LIB bool mirt__is_batched(const mirt_shape *shape) { return shape->rank > 0 && shape->dim[0] == MIRT_ROWS; }

MIRT__LIB int64_t mirt__elements(const mirt_tensor *tensor, int64_t rows) {
    return mirt__shape_count(&tensor->shape) * (mirt__is_batched(&tensor->shape) ? rows : 1);
}

MIRT__LIB size_t mirt__tensor_bytes(const mirt_tensor *tensor, int64_t rows) {
    return (size_t)mirt__elements(tensor, rows) * mirt__dtype_size(tensor->dtype);
}

MIRT__LIB bool mirt__declare(mirt__node *node, mirt_dtype dtype, const mirt_shape *shape) {
    int64_t count = mirt__shape_count(shape);
    if (count < 0 || count > MIRT__MAX_ELEMENTS) {
        char text[96];
        return mirt__fail(MIRT_E_SHAPE, "a tensor of shape %s has too many elements", mirt__shape_text(shape, text)),
               false;
    }
    mirt_tensor *t = (mirt_tensor *)mirt__pool_alloc(&node->graph->pool, sizeof *t);
    if (!t) return false;
    t->node = node;
    t->slot = node->num_out;
    t->dtype = dtype;
    t->shape = *shape;
    node->out[node->num_out++] = t;
    return true;
}

static bool mirt__graph_append(mirt__graph *graph, mirt__node *node) {
    if (!mirt__grow_list((void **)&graph->node, graph->count, &graph->capacity, sizeof *graph->node)) return false;
    graph->node[graph->count++] = node;
    return true;
}

static mirt__node *mirt__graph_new_node(mirt__graph *graph, mirt__op_id id, const mirt__attrs *attrs,
                                        mirt_tensor *const *in, int num_in) {
    mirt__node *node = (mirt__node *)mirt__pool_alloc(&graph->pool, sizeof *node);
    if (!node) return NULL;
    node->id = id;
    node->op = graph->ops->get(id);
    if (attrs) node->a = *attrs;
    else node->a.family = node->op->family;
    node->graph = graph;
    node->name = graph->scope;
    node->backward = graph->backward;
    node->of_model = graph->of_model;
    node->num_in = num_in;
    if (node->a.family != node->op->family)
        return mirt__fail(MIRT_E_INVALID, "its attributes are those of another family of operations"),
               (mirt__node *)NULL;
    for (int i = 0; i < num_in; i++) {
        node->in[i] = in[i];
        if (in[i]->node->graph != graph)
            return mirt__fail(MIRT_E_INVALID, "one of its tensors is of another model"), (mirt__node *)NULL;
    }
    return node;
}

MIRT__LIB bool mirt__is_input(const mirt__node *node) { return node->op->space == MIRT__SPACE_IO; }
MIRT__LIB bool mirt__is_variable(const mirt__node *node) { return node->op->space == MIRT__SPACE_WEIGHT; }
MIRT__LIB bool mirt__by_tiles(const mirt__node *node) { return node->op->tiled_reads && node->op->tiled_reads(node); }

/* Gradients flow through the node: its outputs need them too, where they pass any on. */
static void mirt__need_gradients(mirt__node *node) {
    for (int k = 0; k < node->num_out; k++)
        node->out[k]->needs_grad = node->out[k]->dtype == MIRT_FLOAT32 && !node->op->stops_gradient;
}

static bool mirt__reads_gradients(const mirt__node *node) {
    bool needs = false;
    for (int k = 0; k < node->num_in; k++) needs = needs || node->in[k]->needs_grad;
    return needs;
}

MIRT__LIB mirt_tensor *mirt__record(mirt__graph *graph, mirt__op_id id, const mirt__attrs *attrs,
                                    mirt_tensor *const *in, int num_in) {
    MIRT__ENTER;
    if (graph->status != MIRT_OK) return NULL;
    for (int i = 0; i < num_in; i++) {
        if (!in[i]) return NULL;
    }
    mirt__node *node = mirt__graph_new_node(graph, id, attrs, in, num_in);
    if (node && node->op->shape(node) && mirt__graph_append(graph, node)) {
        if (mirt__reads_gradients(node)) mirt__need_gradients(node);
        return node->out[0];
    }
    if (mirt_last_status() != MIRT_E_NOMEM)
        mirt__fail_at("%s", graph->scope ? graph->scope : graph->ops->name(id, attrs));
    mirt__graph_poison(graph);
    return NULL;
}

/* The ancestors of `keep` are live, but for what lies behind the tensors that are replaced. */
static void mirt__mark_live(const mirt__graph *graph, mirt_tensor *const *keep, int count,
                            const mirt_tensor *const *replaced, int num_replaced) {
    for (int i = 0; i < graph->count; i++) graph->node[i]->live = false;
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i]->node->live = true;
    }
    for (int i = graph->count - 1; i >= 0; i--) {
        mirt__node *node = graph->node[i];
        for (int k = 0; k < num_replaced; k++) {
            if (node->out[0] == replaced[k]) node->live = false;
        }
        for (int k = 0; node->live && k < node->num_in; k++) node->in[k]->node->live = true;
    }
}

static const char *mirt__copy_name(mirt__graph *graph, const mirt__copying *c, const char *name) {
    if (!name || !c->prefix) return name ? mirt__pool_strdup(&graph->pool, name) : NULL;
    return mirt__pool_print(&graph->pool, "%s/%s", c->prefix, name);
}

/* Copies of copies, made in another order, have other keys; 0 is none. */
static uint64_t mirt__copy_key(const mirt__copying *c, uint64_t key) {
    uint64_t mixed = (c->prefix ? mirt__hash(c->prefix) : 0) + c->salt * 0x9E3779B97F4A7C15u;
    if (!key || !mixed) return key;
    key = (key ^ mixed) * 0xBF58476D1CE4E5B9u;
    return key ^ key >> 31;
}

MIRT__LIB mirt_tensor *mirt__graph_variable(const mirt__graph *graph, int variable) {
    for (int i = 0; i < graph->count; i++) {
        if (mirt__is_variable(graph->node[i]) && graph->node[i]->a.index == variable) return graph->node[i]->out[0];
    }
    return NULL;
}

/* What attributes own: their bytes are copied, keys of random streams become the copy's. */
static bool mirt__copy_attrs(mirt__graph *graph, const mirt__copying *c, mirt__attrs *a) {
    if (c->training != MIRT_TRAINING_AUTO && a->training == MIRT_TRAINING_AUTO) a->training = c->training;
    mirt__attrs_random *random = MIRT__IF_OF(a, random);
    mirt__attrs_data *own = MIRT__IF_OF(a, data);
    if (random) random->key = mirt__copy_key(c, random->key);
    if (!own) return true;
    own->key = mirt__copy_key(c, own->key);
    own->room = 0;
    if (!own->data) return true;
    void *data = mirt__pool_alloc(&graph->pool, own->bytes);
    if (!data) return false;
    memcpy(data, own->data, own->bytes);
    own->data = data;
    return true;
}

static bool mirt__copy_node(mirt__graph *graph, const mirt__copying *c, const mirt__node *from) {
    mirt_tensor *in[MIRT__MAX_IN];
    mirt__node copy = *from;
    for (int k = 0; k < from->num_in; k++) in[k] = from->in[k]->pass.copy;
    if (mirt__is_variable(&copy)) {
        copy.a.index += c->first_variable;
        if ((from->out[0]->pass.copy = mirt__graph_variable(graph, copy.a.index)) != NULL) return true;
    }
    if (!mirt__copy_attrs(graph, c, &copy.a)) return false;
    if (from->name && !(copy.name = mirt__copy_name(graph, c, from->name))) return false;
    if (c->mode && from->op->lower) {
        graph->scope = copy.name;
        from->out[0]->pass.copy = from->op->lower(graph, &copy, in, c->mode);
        graph->scope = NULL;
        return from->out[0]->pass.copy != NULL;
    }
    if (c->compose && from->op->user_code) {
        graph->scope = copy.name;
        from->out[0]->pass.copy = c->compose(graph, &copy, in);
        graph->scope = NULL;
        if (from->out[0]->pass.copy || graph->status != MIRT_OK) return graph->status == MIRT_OK;
    }
    mirt__node *node = mirt__graph_new_node(graph, from->id, &copy.a, in, from->num_in);
    if (!node) return false;
    node->name = copy.name;
    for (int k = 0; k < from->num_out; k++) {
        if (!mirt__declare(node, from->out[k]->dtype, &from->out[k]->shape)) return false;
        node->out[k]->needs_grad = from->out[k]->needs_grad;
        from->out[k]->pass.copy = node->out[k];
    }
    return mirt__graph_append(graph, node);
}

MIRT__LIB bool mirt__graph_copy(mirt__graph *graph, const mirt__copying *c, mirt_tensor **keep, int count) {
    bool good = true;
    mirt__mark_live(c->source, keep, count, c->replaced, c->num_replaced);
    for (int k = 0; k < c->num_replaced; k++) ((mirt_tensor *)c->replaced[k])->pass.copy = c->replacement[k];
    graph->of_model = true;
    for (int i = 0; i < c->source->count && good; i++)
        good = !c->source->node[i]->live || mirt__copy_node(graph, c, c->source->node[i]);
    graph->of_model = false;
    if (!good) return mirt__graph_poison(graph), false;
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i] = keep[i]->pass.copy;
    }
    return true;
}

MIRT__TRAINING_LIB mirt__assignment *mirt__graph_assignment(const mirt__graph *graph, int variable) {
    for (int i = 0; i < graph->num_assignments; i++) {
        if (graph->assignment[i].variable == variable) return &graph->assignment[i];
    }
    return NULL;
}

MIRT__TRAINING_LIB bool mirt__graph_assign(mirt__graph *graph, int variable, mirt_tensor *value,
                                           mirt_aggregation aggregation, double momentum) {
    mirt__assignment *a = value ? mirt__graph_assignment(graph, variable) : NULL;
    if (!value) return false;
    if (!a && !mirt__grow_list((void **)&graph->assignment, graph->num_assignments, &graph->assignment_capacity,
                                sizeof *graph->assignment))
        return mirt__graph_poison(graph), false;
    if (!a) a = &graph->assignment[graph->num_assignments++];
    a->variable = variable;
    a->value = value;
    a->aggregation = aggregation;
    a->momentum = momentum;
    return true;
}

MIRT__LIB bool mirt__graph_term_add(mirt__graph *graph, mirt_tensor *term) {
    if (!term) return false;
    if (!mirt__grow_list((void **)&graph->term, graph->num_terms, &graph->term_capacity, sizeof *graph->term))
        return mirt__graph_poison(graph), false;
    graph->term[graph->num_terms++] = term;
    return true;
}

MIRT__LIB void mirt__graph_count_uses(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) graph->node[i]->out[k]->uses = 0;
    }
    for (int i = 0; i < graph->count; i++) {
        for (int k = 0; k < graph->node[i]->num_in; k++) graph->node[i]->in[k]->uses++;
    }
    for (int i = 0; i < count; i++) {
        if (keep[i]) keep[i]->uses++;
    }
}

MIRT__TRAINING_LIB void mirt__graph_place(mirt__graph *graph, int count) {
    const int added = graph->count - count;
    if (!added) return;
    int *before = (int *)mirt__calloc((size_t)count + 1, sizeof *before); /* how many go before node i */
    mirt__node **node = (mirt__node **)mirt__calloc((size_t)graph->count, sizeof *node);
    if (before && node) {
        for (int i = 0; i < added; i++) before[graph->node[count + i]->position]++;
        for (int i = 1; i <= count; i++) before[i] += before[i - 1];
        for (int i = 0; i < count; i++) node[i + before[i]] = graph->node[i];
        for (int i = added - 1; i >= 0; i--) {
            mirt__node *more = graph->node[count + i];
            node[more->position + --before[more->position]] = more;
        }
        memcpy(graph->node, node, (size_t)graph->count * sizeof *node);
    } else {
        mirt__graph_poison(graph);
    }
    mirt__free(before);
    mirt__free(node);
}

MIRT__LIB void mirt__graph_prune(mirt__graph *graph, mirt_tensor *const *keep, int count) {
    mirt__mark_live(graph, keep, count, NULL, 0);
    int n = 0;
    for (int i = 0; i < graph->count; i++) {
        if (graph->node[i]->live) graph->node[n++] = graph->node[i];
    }
    graph->count = n;
}

MIRT__TRAINING_LIB void mirt__graph_mark_gradients(mirt__graph *graph, bool (*trainable)(const void *arg, int variable),
                                          const void *arg) {
    for (int i = 0; i < graph->count; i++) {
        mirt__node *node = graph->node[i];
        for (int k = 0; k < node->num_out; k++) node->out[k]->needs_grad = false;
        if ((mirt__is_variable(node) && trainable(arg, node->a.index)) || mirt__reads_gradients(node))
            mirt__need_gradients(node);
    }
}

MIRT__TRAINING_LIB void mirt__graph_need_gradient(mirt__graph *graph, mirt_tensor *x) {
    x->needs_grad = x->dtype == MIRT_FLOAT32;
    for (int i = 0; i < graph->count; i++) {
        if (mirt__reads_gradients(graph->node[i])) mirt__need_gradients(graph->node[i]);
    }
}

/* Adds dx to the gradient of x. */
MIRT__TRAINING bool mirt__gradient_add(mirt_tensor *x, mirt_tensor *dx) {
    x->grad = x->grad ? x->node->graph->ops->add(x->grad, dx) : dx;
    return x->grad != NULL;
}

MIRT__TRAINING void mirt__node_gradient(mirt__graph *graph, mirt__node *node) {
    mirt_tensor *dy[MIRT__MAX_OUT], *dx[MIRT__MAX_IN];
    memset(dy, 0, sizeof dy);
    memset(dx, 0, sizeof dx);
    bool reached = false;
    for (int k = 0; k < node->num_out; k++) {
        dy[k] = node->out[k]->grad;
        reached = reached || dy[k];
    }
    if (!reached || !mirt__reads_gradients(node)) return;
    if (!node->op->gradient) {
        mirt__fail(
            MIRT_E_INVALID,
            "%s%s%s is not differentiable, and a loss depends on variables through it: mirt_stop_gradient its input",
            node->name ? node->name : "", node->name ? ": " : "", graph->ops->name(node->id, &node->a));
        mirt__graph_poison(graph);
        return;
    }
    graph->scope = node->name;
    graph->of_model = node->of_model;
    node->op->gradient(node, dy, dx);
    for (int k = 0; k < node->num_in && graph->status == MIRT_OK; k++) {
        if (dx[k] && node->in[k]->needs_grad) mirt__gradient_add(node->in[k], dx[k]);
    }
}

MIRT__TRAINING_LIB bool mirt__gradients(mirt__graph *graph, mirt_tensor *const *y, mirt_tensor *const *dy, int count) {
    int nodes = graph->count;
    for (int i = 0; i < nodes; i++) {
        for (int k = 0; k < graph->node[i]->num_out; k++) graph->node[i]->out[k]->grad = NULL;
    }
    for (int i = 0; i < count; i++) {
        if (!y[i] || !dy[i] || !mirt__gradient_add(y[i], dy[i])) return false;
    }
    graph->backward = true;
    for (int i = nodes - 1; i >= 0 && graph->status == MIRT_OK; i--) mirt__node_gradient(graph, graph->node[i]);
    graph->backward = graph->of_model = false;
    graph->scope = NULL;
    return graph->status == MIRT_OK;
}
