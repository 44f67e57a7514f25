#include "../ops/ops.h"
#include "function.h"
/* Calls in the body of a user's function: fields, gradients, states, results. */

/* Sticky as all recording: an error marks the function, and mirt_function_create returns it. */
static mirt_tensor *mirt__function_poison(mirt_function *f) {
    mirt__graph_poison(&f->step.program.graph);
    return NULL;
}

/* Returns the current error, and marks a function that is being recorded. */
static mirt_status mirt__body_failed(mirt_function *f) {
    if (f && f->recording.active) mirt__function_poison(f);
    return mirt_last_status();
}

static mirt_tensor *mirt__function_field(mirt_function *f, int field, bool there, const char *what, int index) {
    if (!f || f->step.program.graph.status != MIRT_OK) return NULL;
    if (there) return f->recording.field[field];
    mirt__fail(MIRT_E_NOT_FOUND, "the data of this function have no %s number %d", what, index);
    return mirt__function_poison(f);
}

MIRT_API mirt_tensor *mirt_function_x(mirt_function *f, int index) {
    return mirt__function_field(f, index, f && index >= 0 && index < f->spec.num_x, "input", index);
}

MIRT_API mirt_tensor *mirt_function_y(mirt_function *f, int index) {
    bool there = f && index >= 0 && index < f->spec.num_y;
    return mirt__function_field(f, there ? f->spec.num_x + index : 0, there, "label", index);
}

MIRT_API mirt_tensor *mirt_function_weights(mirt_function *f) {
    return f && f->spec.has_weights ? f->recording.field[f->spec.num_x + f->spec.num_y] : NULL;
}

MIRT_API mirt_tensor *mirt_function_variable(mirt_function *f, const char *name) {
    int first;
    if (!f || f->step.program.graph.status != MIRT_OK) return NULL;
    if (!name) return mirt__fail_missing("mirt_function_variable", "name"), mirt__function_poison(f);
    int index = mirt__variable_find(f->model, name);
    if (index < 0) return mirt__function_poison(f);
    mirt__root(f->model, &first);
    mirt_tensor *there = mirt__graph_variable(&f->step.program.graph, first + index);
    return there ? there
                 : mirt__variable_op(&f->step.program.graph, first + index, &f->root->variable[first + index].shape);
}

/* The tensors of `model`'s trainable variables in the graph, in their order; NULL with the error set. In the body of a
   function (`root` given) a variable is trainable if the optimizer updates it, elsewhere if the next mirt_compile
   makes it so. */
static mirt_tensor **mirt__trainable_in(mirt__graph *graph, const mirt_model *model, int first, const mirt_model *root,
                                        int *count) {
    mirt_tensor **out = (mirt_tensor **)mirt__pool_alloc(&graph->pool, (size_t)model->num_variables * sizeof *out + 1);
    *count = 0;
    for (int i = 0; out && i < model->num_variables; i++) {
        const mirt__variable *v = root ? &root->variable[first + i] : &model->variable[i];
        if (root ? !mirt__is_trained(v) : !v->trainable || v->freeze) continue;
        mirt_tensor *t = mirt__graph_variable(graph, first + i);
        if (!t && root && !(t = mirt__variable_op(graph, first + i, &v->shape))) return NULL;
        if (t) out[(*count)++] = t; /* the graph of a model may lack weights of a part that no output reads */
    }
    return out;
}

MIRT_API mirt_tensor *const *mirt_trainable(mirt_function *f, mirt_model *model, int *count) {
    MIRT__USE_MODEL(f ? f->model : model, NULL);
    int first = 0, n = 0;
    if (count) *count = 0;
    if (f && f->step.program.graph.status != MIRT_OK) {
        mirt__fail(f->step.program.graph.status, "%s", f->step.program.graph.error);
        return NULL;
    }
    if (!f && !model) mirt__fail_missing("mirt_trainable", "model");
    else if (!count) mirt__fail(MIRT_E_INVALID, "mirt_trainable: no place for the count");
    else if (!f && model->graph.status != MIRT_OK) mirt__fail(model->graph.status, "%s", model->graph.error);
    else if (f && !f->recording.active) {
        mirt__fail(MIRT_E_STATE, "mirt_trainable: the function is recorded already; call it in the function's body");
    } else {
        mirt__graph *graph = f ? &f->step.program.graph : &model->graph;
        if (!model) model = f->model;
        if (f) first = mirt__call_variables(graph, model);
        mirt_tensor **out = first >= 0 ? mirt__trainable_in(graph, model, first, f ? f->root : NULL, &n) : NULL;
        if (out) return *count = n, out;
    }
    mirt__body_failed(f);
    return NULL;
}

MIRT_API mirt_tensor *mirt_function_constant(mirt_function *f, mirt_array value) {
    return f && f->step.program.graph.status == MIRT_OK ? mirt__constant_op(&f->step.program.graph, value) : NULL;
}

MIRT_API mirt_tensor *mirt_function_loss_term(mirt_function *f, int index) {
    return f && index >= 0 && index < f->step.program.graph.num_terms ? f->step.program.graph.term[index] : NULL;
}

/* Whether the call can be made now; marks the function if not. */
static mirt_status mirt__check_recording(mirt_function *f, const mirt_tensor *t, const char *caller) {
    if (f && f->step.program.graph.status != MIRT_OK)
        return mirt__fail(f->step.program.graph.status, "%s", f->step.program.graph.error);
    return mirt__need_recording(f, t, caller) == MIRT_OK ? MIRT_OK : mirt__body_failed(f);
}

static mirt_status mirt__need_optimizer(mirt_function *f, const char *caller) {
    if (f->model->compiled) return MIRT_OK;
    mirt__fail(MIRT_E_STATE, "%s: %s has no optimizer; call mirt_compile before the function is recorded", caller,
               f->model->name);
    return mirt__body_failed(f);
}

/* Labels that are the batch's own are checked with every batch. */
static mirt_tensor *mirt__own_labels_use(const mirt_tensor *labels, const mirt_tensor *output,
                                         const mirt_loss_options *how, mirt_tensor *values) {
    mirt_function *f = output->node->graph->function;
    while (labels->node->op->alias || labels->node->id == MIRT__OP_cast) labels = labels->node->in[0];
    if (f && mirt__is_input(labels->node))
        return mirt__class_numbers_use(f, labels->node->a.index, mirt__last_dim(output), how, values);
    if (!how->has_ignore_class) return values;
    mirt__fail(MIRT_E_INVALID, "ignore_class needs labels of the batch as they are, to count those that are left");
    mirt__graph_poison(output->node->graph);
    return NULL;
}

MIRT_API mirt_tensor *mirt_loss_values_with(mirt_loss loss, const mirt_loss_options *options, mirt_tensor *labels,
                                            mirt_tensor *output) {
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    if (options) how = *options;
    if (!labels || !output) return NULL;
    const mirt__loss_class *cls = loss == MIRT_LOSS_NONE ? NULL : mirt__loss_class_get(loss);
    if (!cls) mirt__fail(MIRT_E_INVALID, "mirt_loss_values: invalid loss (%d)", (int)loss);
    if (!cls || mirt__loss_options_check(cls->name, loss, &how, output->shape.rank) != MIRT_OK) {
        mirt__graph_poison(output->node->graph);
        return NULL;
    }
    const mirt_function *f = output->node->graph->function;
    mirt_tensor *values = mirt__loss_of(loss, &how, output, labels);
    values = mirt__loss_counted(loss, f ? f->model->config.reduction : MIRT_SUM_OVER_BATCH_SIZE, values);
    const bool batched = values && mirt__is_batched(&values->shape);
    if (values && values->shape.rank > batched) values = mirt_reduce_mean(values, 0, false);
    return values && cls->sparse && cls->classes ? mirt__own_labels_use(labels, output, &how, values) : values;
}

MIRT_API mirt_tensor *mirt_loss_values(mirt_loss loss, bool from_logits, mirt_tensor *labels, mirt_tensor *output) {
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    how.from_logits = from_logits;
    return mirt_loss_values_with(loss, &how, labels, output);
}

MIRT_API mirt_status mirt_minimize(mirt_function *f, mirt_tensor *loss) {
    MIRT__ENTER;
    if (mirt__check_recording(f, loss, "mirt_minimize") != MIRT_OK ||
        mirt__need_optimizer(f, "mirt_minimize") != MIRT_OK)
        return mirt_last_status();
    return mirt__minimize(f, loss) == MIRT_OK ? MIRT_OK : mirt__body_failed(f);
}

MIRT_API mirt_status mirt_gradients(mirt_tensor *loss, mirt_tensor *const *x, int count, mirt_tensor **out) {
    MIRT__ENTER;
    mirt_function *f = loss ? loss->node->graph->function : NULL;
    int missing = 0;
    if (!loss || !x || !out || count < 1) {
        mirt__fail(MIRT_E_INVALID, "mirt_gradients: no loss, or nothing to differentiate it by");
        return mirt__body_failed(f);
    }
    for (int i = 0; i < count; i++) out[i] = NULL;
    if (!f)
        return mirt__fail(MIRT_E_STATE,
                          "mirt_gradients: the loss is of a model; gradients are taken in the body of a function");
    if (mirt__check_recording(f, loss, "mirt_gradients") != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < count; i++) {
        if (mirt__check_recording(f, x[i], "mirt_gradients") != MIRT_OK) return mirt_last_status();
    }
    if (mirt__record_gradients(f, loss, x, count) != MIRT_OK) return mirt__body_failed(f);
    for (int i = 0; i < count; i++) missing += !(out[i] = x[i]->grad);
    if (missing == count) {
        mirt__fail(MIRT_E_INVALID, "mirt_gradients: the loss depends on none of the %d tensors", count);
        return mirt__body_failed(f);
    }
    if (missing) {
        mirt__log(f->model->strategy, MIRT_LOG_WARNING,
                  "gradients do not exist for %d of the %d tensors: the loss does not depend on them", missing, count);
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_apply_gradients(mirt_function *f, mirt_tensor *const *variables,
                                          mirt_tensor *const *gradients, int count) {
    MIRT__ENTER;
    char a[96], b[96];
    int given = 0;
    if (!variables || !gradients || count < 1) {
        mirt__fail(MIRT_E_INVALID, "mirt_apply_gradients: no variables or no gradients");
        return mirt__body_failed(f);
    }
    if (mirt__check_recording(f, variables[0], "mirt_apply_gradients") != MIRT_OK ||
        mirt__need_optimizer(f, "mirt_apply_gradients") != MIRT_OK)
        return mirt_last_status();
    for (int i = 0; i < count; i++) {
        const mirt_tensor *v = variables[i], *g = gradients[i];
        if (!g) continue;
        given++;
        if (mirt__check_recording(f, v, "mirt_apply_gradients") != MIRT_OK ||
            mirt__check_recording(f, g, "mirt_apply_gradients") != MIRT_OK)
            return mirt_last_status();
        bool variable = mirt__is_variable(v->node) && mirt__is_trained(&f->root->variable[v->node->a.index]);
        if (!variable)
            mirt__fail(MIRT_E_INVALID, "mirt_apply_gradients: tensor number %d is not a trainable weight", i + 1);
        else if (g->dtype != MIRT_FLOAT32 || !mirt__shape_equal(&v->shape, &g->shape)) {
            mirt__fail(MIRT_E_SHAPE, "mirt_apply_gradients: the gradient of %s is %s, not %s",
                       f->root->variable[v->node->a.index].name, mirt__shape_text(&g->shape, a),
                       mirt__shape_text(&v->shape, b));
        } else if (mirt__apply_gradient(f, v->node->a.index, gradients[i]) == MIRT_OK) {
            continue;
        }
        return mirt__body_failed(f);
    }
    if (given) return MIRT_OK;
    mirt__fail(MIRT_E_INVALID, "mirt_apply_gradients: none of the %d weights has a gradient", count);
    return mirt__body_failed(f);
}

MIRT_API mirt_tensor *mirt_replica_all_reduce(mirt_tensor *x, mirt_reduce_op op) {
    if (!x) return NULL;
    if (!x->node->graph->function || ((int)op != MIRT_REDUCE_SUM && op != MIRT_REDUCE_MEAN)) {
        mirt__fail(MIRT_E_INVALID, "mirt_replica_all_reduce sums or averages over replicas, in the body of a function");
        mirt__graph_poison(x->node->graph);
        return NULL;
    }
    return mirt__all_reduce_op(&x, 1, op == MIRT_REDUCE_MEAN ? MIRT__ALL_REDUCE_MEAN : MIRT__ALL_REDUCE_SUM);
}

MIRT_API mirt_status mirt_assign(mirt_function *f, mirt_tensor *variable, mirt_tensor *value,
                                 mirt_aggregation aggregation) {
    char a[96], b[96];
    if (mirt__check_recording(f, variable, "mirt_assign") != MIRT_OK ||
        mirt__check_recording(f, value, "mirt_assign") != MIRT_OK)
        return mirt_last_status();
    const mirt__variable *v = mirt__is_variable(variable->node) ? &f->root->variable[variable->node->a.index] : NULL;
    if (!v) mirt__fail(MIRT_E_INVALID, "mirt_assign: what is to be written is not a weight");
    else if (mirt__is_trained(v))
        mirt__fail(MIRT_E_INVALID, "mirt_assign: %s is trained: the optimizer writes it", v->name);
    else if ((int)aggregation <= MIRT_AGGREGATE_NONE || aggregation > MIRT_AGGREGATE_FIRST) {
        mirt__fail(MIRT_E_INVALID,
                   "mirt_assign: %s is written by every replica; an aggregation has to say which value holds", v->name);
    } else if (value->dtype != MIRT_FLOAT32 || !mirt__shape_equal(&variable->shape, &value->shape)) {
        mirt__fail(MIRT_E_SHAPE, "mirt_assign: %s is %s, its new value %s", v->name,
                   mirt__shape_text(&variable->shape, a), mirt__shape_text(&value->shape, b));
    } else if (mirt__graph_assign(&f->step.program.graph, variable->node->a.index, value, aggregation, 0)) {
        return MIRT_OK;
    }
    return mirt__body_failed(f);
}

MIRT_API mirt_status mirt_function_result(mirt_function *f, const char *name, mirt_tensor *value) {
    if (mirt__check_recording(f, value, "mirt_function_result") != MIRT_OK) return mirt_last_status();
    bool taken = false;
    for (int i = 0; name && i < f->results.count; i++) taken = taken || strcmp(f->results.list[i].name, name) == 0;
    if (!name || taken)
        mirt__fail(MIRT_E_INVALID, "mirt_function_result: %s%s", name ? name : "no name",
                   taken ? " is a result already" : "");
    else if (mirt__result_add(f, name, value) == MIRT_OK) return MIRT_OK;
    return mirt__body_failed(f);
}
