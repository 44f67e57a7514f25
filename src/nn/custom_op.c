#include "../ops/ops.h"
#include "model.h"
/* User-defined ops. The strategy stores a copy of each class when it is registered or first used, for reading files. */

struct mirt__op_entry {
    mirt_op_class op;
    struct mirt__op_entry *next;
};

MIRT__LIB bool mirt__short_name(const char *name) {
    return name && *name && strlen(name) <= 100 && mirt__utf8_valid(name, strlen(name));
}

static mirt_status mirt__op_class_check(const mirt_op_class *op) {
    if (!op || !mirt__short_name(op->name))
        return mirt__fail(MIRT_E_INVALID, "an op needs a name of 1 to 100 bytes of UTF-8");
    if (!op->forward) return mirt__fail(MIRT_E_INVALID, "op %s has no forward function", op->name);
    if (op->config_size > 1 << 20)
        return mirt__fail(MIRT_E_INVALID, "op %s: its config has %zu bytes; at most one megabyte is allowed", op->name,
                          op->config_size);
    return MIRT_OK;
}

MIRT__LIB const mirt_op_class *mirt__op_class_by_name(const mirt_strategy *strategy, const char *name) {
    for (const struct mirt__op_entry *e = strategy->op_classes; e; e = e->next) {
        if (strcmp(e->op.name, name) == 0) return &e->op;
    }
    return NULL;
}

/* The strategy's copy of `op`, created if it does not exist. */
static const mirt_op_class *mirt__op_class_of(mirt_strategy *strategy, const mirt_op_class *op) {
    if (mirt__op_class_check(op) != MIRT_OK) return NULL;
    const mirt_op_class *known = mirt__op_class_by_name(strategy, op->name);
    if (known && known->shape == op->shape && known->forward == op->forward && known->backward == op->backward &&
        known->user == op->user && known->compose == op->compose && known->config_size == op->config_size) {
        return known;
    }
    struct mirt__op_entry *e = (struct mirt__op_entry *)mirt__pool_alloc(&strategy->pool, sizeof *e);
    const char *name = e ? mirt__pool_strdup(&strategy->pool, op->name) : NULL;
    if (!name) return NULL;
    e->op = *op;
    e->op.name = name;
    e->next = strategy->op_classes;
    strategy->op_classes = e;
    return &e->op;
}

MIRT_API mirt_status mirt_register_op(mirt_strategy *strategy, const mirt_op_class *op) {
    MIRT__USE(strategy, mirt_last_status());
    if (!strategy) return mirt__fail_missing("mirt_register_op", "strategy");
    return mirt__op_class_of(strategy, op) ? MIRT_OK : mirt_last_status();
}

MIRT__LIB mirt_tensor *mirt__user_op(mirt__graph *graph, const mirt_op_class *op, mirt_tensor *const *in, int num_in,
                                     const void *config) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_user);
    mirt__attrs_data *data = MIRT__OF(&a, data);
    data->user_op = op;
    if (num_in < 1 || num_in > MIRT__MAX_IN - 2) {
        mirt__fail(MIRT_E_INVALID, "%s: %d tensors; the number must be 1 to %d", op->name, num_in,
                   MIRT__MAX_IN - 2);
        return NULL;
    }
    if (op->config_size) {
        void *copy = mirt__pool_alloc(&graph->pool, op->config_size);
        if (!copy) return NULL;
        memcpy(copy, config, op->config_size);
        data->data = copy;
        data->bytes = op->config_size;
        a.dtype = MIRT_UINT8;
    }
    return mirt__record(graph, MIRT__OP_user, &a, in, num_in);
}

MIRT_API mirt_tensor *mirt_custom_op(const mirt_op_class *op, mirt_tensor *const *in, int num_in, const void *config) {
    MIRT__ENTER;
    if (!in || num_in < 1 || !in[0]) return NULL;
    mirt__graph *graph = in[0]->node->graph;
    const mirt_model *model = graph->model ? graph->model : graph->root;
    if (graph->status != MIRT_OK) return NULL;
    for (int i = 0; i < num_in && i < MIRT__MAX_IN; i++) {
        if (!in[i]) return NULL;
    }
    const mirt_op_class *own = mirt__op_class_of(model->strategy, op);
    if (own && own->config_size && !config) {
        mirt__fail(MIRT_E_INVALID, "%s needs its config of %zu bytes", own->name, own->config_size);
        own = NULL;
    }
    mirt_tensor *out = own ? mirt__user_op(graph, own, in, num_in, config) : NULL;
    if (!out) mirt__graph_poison(graph);
    return out;
}
