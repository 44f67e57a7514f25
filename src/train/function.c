#include "../ops/ops.h"
#include "function.h"
/* Functions of the user: recording, running, and reading what they left. */

/* >>distributed data */

typedef struct mirt__distributed_dataset {
    mirt_dataset base;
    mirt_strategy *strategy;
    char about[96]; /* the strategy in words, which may be gone when this is needed */
    int64_t epoch; /* of the pass under way */
} mirt__distributed_dataset;

/* Also by mirt_fit and the like, after which the next pass of mirt_dataset_next begins anew. */
static mirt_status mirt__distributed_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    dataset->begun = false;
    return mirt__dataset_begin(dataset->source, seed, epoch);
}

static mirt_status mirt__distributed_read(mirt_dataset *dataset, mirt__batch *out) {
    return mirt__dataset_next(dataset->source, out);
}

static const mirt__stage mirt__distributed_stage = {
    mirt__distributed_begin, mirt__distributed_read, NULL, NULL, NULL, NULL, NULL};

static const char *mirt__strategy_about(const mirt_strategy *s, char out[96]) {
    snprintf(out, 96, "%d replica%s on %d device%s from %s", s->num_replicas, s->num_replicas == 1 ? "" : "s",
             s->num_devices, s->num_devices == 1 ? "" : "s", s->device[0].name);
    return out;
}

MIRT_API mirt_dataset *mirt_distribute(mirt_strategy *strategy, mirt_dataset *dataset) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    if (!strategy) {
        mirt__fail_missing("mirt_distribute", "strategy");
        return mirt__dataset_give_up(dataset, false);
    }
    if (!mirt__dataset_spec(dataset)->batch) {
        mirt__fail(MIRT_E_INVALID, "mirt_distribute comes after mirt_batch: global batches are dealt to the replicas");
        return mirt__dataset_give_up(dataset, false);
    }
    mirt_dataset *out = mirt__dataset_new(sizeof(mirt__distributed_dataset), &mirt__distributed_stage, dataset, false);
    if (out) {
        ((mirt__distributed_dataset *)out)->strategy = strategy;
        ((mirt__distributed_dataset *)out)->epoch = -1;
        mirt__strategy_about(strategy, ((mirt__distributed_dataset *)out)->about);
        out->joins = 1;
    }
    return out;
}

static const mirt__distributed_dataset *mirt__distributed(const mirt_dataset *dataset) {
    return dataset->stage == &mirt__distributed_stage ? (const mirt__distributed_dataset *)dataset : NULL;
}

MIRT__LIB mirt_status mirt__check_distributed(const mirt_model *model, const mirt_dataset *dataset,
                                              const char *caller) {
    char own[96];
    for (const mirt_dataset *at = dataset; at; at = at->source) {
        const mirt__distributed_dataset *d = mirt__distributed(at);
        if (!d || d->strategy == model->strategy) continue;
        return mirt__fail(MIRT_E_INVALID,
                          "%s: the data set is distributed to another strategy (%s) than that of %s (%s)", caller,
                          d->about, model->name, mirt__strategy_about(model->strategy, own));
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_dataset_next(mirt_dataset *dataset, mirt_global_batch *out) {
    MIRT__ENTER;
    mirt__batch batch;
    if (!dataset) return mirt__fail_missing("mirt_dataset_next", "data set");
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_dataset_next: no place for the batch");
    memset(out, 0, sizeof *out);
    if (!mirt__distributed(dataset))
        return mirt__fail(MIRT_E_STATE, "mirt_dataset_next reads distributed data sets: mirt_distribute makes one");
    if (mirt__own_process(dataset->process, "mirt_dataset_next", "data set") != MIRT_OK) return MIRT_E_STATE;
    if (dataset->busy)
        return mirt__fail(MIRT_E_STATE, "mirt_dataset_next: another call is reading this data set, such as mirt_fit");
    mirt__distributed_dataset *d = (mirt__distributed_dataset *)dataset;
    dataset->busy = true;
    mirt_status status = dataset->begun ? MIRT_OK : mirt__dataset_begin(dataset, d->strategy->seed, ++d->epoch);
    if (status == MIRT_OK) status = mirt__dataset_next(dataset, &batch);
    dataset->busy = false;
    dataset->begun = status == MIRT_OK && batch.rows > 0;
    if (status != MIRT_OK) return status;
    out->rows = batch.rows;
    out->epoch = d->epoch;
    memcpy(out->field, batch.field, sizeof out->field);
    out->index = batch.index;
    out->dataset = dataset;
    return MIRT_OK;
}

/* >>recording */

typedef struct mirt__user_body {
    mirt_body_fn fn;
    void *user;
} mirt__user_body;

static bool mirt__run_user_body(mirt_function *f, void *user) {
    const mirt__user_body *body = (const mirt__user_body *)user;
    bool recorded;
    {
        MIRT__OUTSIDE;
        recorded = body->fn(f, body->user);
    }
    if (recorded) return true;
    if (f->step.program.graph.status == MIRT_OK)
        mirt__fail(MIRT_E_CALLBACK, "the body of a function of %s said that it failed", f->model->name);
    return false;
}

/* They stay, for whoever holds them, but cannot run again. */
static void mirt__functions_disown(mirt_model *model) {
    for (mirt_function *f = model->functions; f; f = f->next) {
        f->root = f->model;
        f->layout = -1;
    }
}

static void mirt__functions_free(mirt_model *model) {
    while (model->functions) mirt_function_destroy(model->functions);
}

MIRT_API mirt_function *mirt_function_create(mirt_model *model, mirt_dataset *dataset, mirt_body_fn body, void *user) {
    MIRT__USE_MODEL(model, NULL);
    mirt__function_desc desc;
    mirt__data_spec none;
    mirt__user_body b;
    b.fn = body;
    b.user = user;
    if (!model) return mirt__fail_missing("mirt_function_create", "model"), (mirt_function *)NULL;
    if (!body) return mirt__fail_missing("mirt_function_create", "body"), (mirt_function *)NULL;
    if (model->graph.status != MIRT_OK)
        return mirt__fail(model->graph.status, "%s", model->graph.error), (mirt_function *)NULL;
    if (dataset && mirt__check_distributed(model, dataset, "mirt_function_create") != MIRT_OK) return NULL;
    if (dataset && !mirt__distributed(dataset)) {
        mirt__fail(
            MIRT_E_INVALID,
            "mirt_function_create: the data set is not distributed to the strategy of %s: mirt_distribute does that",
            model->name);
        return NULL;
    }
    memset(&none, 0, sizeof none);
    none.accumulate = 1;
    memset(&desc, 0, sizeof desc);
    desc.spec = dataset ? mirt__dataset_spec(dataset) : &none;
    desc.max_batch = dataset ? mirt__data_most_rows(desc.spec) : model->strategy->num_replicas;
    desc.by_replicas = true;
    mirt_function *f = mirt__function_new(model, &desc, mirt__run_user_body, &b);
    if (!f) return NULL;
    if (mirt__function_allocate(f) != MIRT_OK) {
        mirt__function_free(f);
        return NULL;
    }
    f->next = model->functions;
    model->functions = f;
    model->free_functions = mirt__functions_free;
    model->disown_functions = mirt__functions_disown;
    return f;
}

MIRT_API void mirt_function_destroy(mirt_function *function) {
    MIRT__ENTER;
    if (!function || !mirt__may_destroy(function->model->strategy, "mirt_function_destroy")) return;
    if (function->recording.active) {
        mirt__log(function->model->strategy, MIRT_LOG_ERROR,
                  "a function of %s is being recorded; its body cannot destroy it", function->model->name);
        return;
    }
    mirt_function **at = &function->model->functions;
    while (*at && *at != function) at = &(*at)->next;
    if (*at) *at = function->next;
    mirt__function_free(function);
}

/* Sticky as all recording: an error marks the function, and mirt_function_create returns it. */
static mirt_tensor *mirt__function_poison(mirt_function *f) {
    mirt__graph_poison(&f->step.program.graph);
    return NULL;
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
    if (f && f->recording.active) mirt__function_poison(f);
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
    if (mirt__need_recording(f, t, caller) == MIRT_OK) return MIRT_OK;
    if (f && f->recording.active) mirt__function_poison(f);
    return mirt_last_status();
}

static mirt_status mirt__need_optimizer(mirt_function *f, const char *caller) {
    if (f->model->compiled) return MIRT_OK;
    mirt__fail(MIRT_E_STATE, "%s: %s has no optimizer; call mirt_compile before the function is recorded", caller,
               f->model->name);
    mirt__function_poison(f);
    return mirt_last_status();
}

/* Labels that are the batch's own are checked with every batch. */
static void mirt__check_labels_of(const mirt_tensor *labels, const mirt_tensor *output) {
    mirt_function *f = output->node->graph->function;
    while (labels->node->op->alias || labels->node->id == MIRT__OP_cast) labels = labels->node->in[0];
    if (!f || !mirt__is_input(labels->node)) return;
    int *classes = &f->classes[labels->node->a.index], own = (int)mirt__last_dim(output);
    if (!*classes || own < *classes) *classes = own;
}

MIRT_API mirt_tensor *mirt_loss_values(mirt_loss loss, bool from_logits, mirt_tensor *labels, mirt_tensor *output) {
    if (!labels || !output) return NULL;
    const mirt__loss_class *cls = loss == MIRT_LOSS_NONE ? NULL : mirt__loss_class_get(loss);
    if (!cls) {
        mirt__fail(MIRT_E_INVALID, "mirt_loss_values: there is no loss number %d", (int)loss);
        return mirt__graph_poison(output->node->graph), (mirt_tensor *)NULL;
    }
    mirt_tensor *values = mirt__loss_of(loss, from_logits, output, labels);
    if (values && cls->sparse) mirt__check_labels_of(labels, output);
    return values;
}

MIRT_API mirt_status mirt_minimize(mirt_function *f, mirt_tensor *loss) {
    MIRT__ENTER;
    if (mirt__check_recording(f, loss, "mirt_minimize") != MIRT_OK ||
        mirt__need_optimizer(f, "mirt_minimize") != MIRT_OK)
        return mirt_last_status();
    if (mirt__minimize(f, loss) == MIRT_OK) return MIRT_OK;
    mirt__function_poison(f);
    return mirt_last_status();
}

MIRT_API mirt_status mirt_gradients(mirt_tensor *loss, mirt_tensor *const *x, int count, mirt_tensor **out) {
    MIRT__ENTER;
    mirt_function *f = loss ? loss->node->graph->function : NULL;
    int missing = 0;
    if (!loss || !x || !out || count < 1) {
        mirt__fail(MIRT_E_INVALID, "mirt_gradients: no loss, or nothing to differentiate it by");
        if (f && f->recording.active) mirt__function_poison(f);
        return mirt_last_status();
    }
    for (int i = 0; i < count; i++) out[i] = NULL;
    if (!f)
        return mirt__fail(MIRT_E_STATE,
                          "mirt_gradients: the loss is of a model; gradients are taken in the body of a function");
    if (mirt__check_recording(f, loss, "mirt_gradients") != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < count; i++) {
        if (mirt__check_recording(f, x[i], "mirt_gradients") != MIRT_OK) return mirt_last_status();
    }
    if (mirt__record_gradients(f, loss, x, count) != MIRT_OK) {
        mirt__function_poison(f);
        return mirt_last_status();
    }
    for (int i = 0; i < count; i++) missing += !(out[i] = x[i]->grad);
    if (missing == count) {
        mirt__fail(MIRT_E_INVALID, "mirt_gradients: the loss depends on none of the %d tensors", count);
        mirt__function_poison(f);
        return mirt_last_status();
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
        if (f && f->recording.active) mirt__function_poison(f);
        return mirt_last_status();
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
        mirt__function_poison(f);
        return mirt_last_status();
    }
    if (given) return MIRT_OK;
    mirt__fail(MIRT_E_INVALID, "mirt_apply_gradients: none of the %d weights has a gradient", count);
    mirt__function_poison(f);
    return mirt_last_status();
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
    mirt__function_poison(f);
    return mirt_last_status();
}

MIRT_API mirt_status mirt_function_result(mirt_function *f, const char *name, mirt_tensor *value) {
    if (mirt__check_recording(f, value, "mirt_function_result") != MIRT_OK) return mirt_last_status();
    bool taken = false;
    for (int i = 0; name && i < f->results.count; i++) taken = taken || strcmp(f->results.list[i].name, name) == 0;
    if (!name || taken)
        mirt__fail(MIRT_E_INVALID, "mirt_function_result: %s%s", name ? name : "no name",
                   taken ? " is a result already" : "");
    else if (mirt__result_add(f, name, value) == MIRT_OK) return MIRT_OK;
    mirt__function_poison(f);
    return mirt_last_status();
}

/* >>running */

MIRT_API mirt_status mirt_function_run(mirt_function *f, const mirt_global_batch *batch) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    mirt__batch b;
    if (!f) return mirt__fail_missing("mirt_function_run", "function");
    memset(&b, 0, sizeof b);
    if (f->recording.active)
        return mirt__fail(
            MIRT_E_STATE,
            "mirt_function_run: the function is being recorded; it runs when mirt_function_create has returned it");
    if (f->model->busy)
        return mirt__fail(MIRT_E_STATE, "mirt_function_run: %s is being trained or recorded", f->model->name);
    if (f->spec.num_fields == 0) {
        if (batch)
            return mirt__fail(
                MIRT_E_INVALID,
                "mirt_function_run: this function was made without data; every replica would compute the same");
        b.rows = f->model->strategy->num_replicas;
    } else if (!batch || !batch->dataset || batch->rows < 1) {
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_function_run: takes a batch with rows, which mirt_dataset_next has made");
    } else if (mirt__check_distributed(f->model, batch->dataset, "mirt_function_run") != MIRT_OK) {
        return mirt_last_status();
    } else if (!mirt__distributed(batch->dataset) ||
               !mirt__spec_same(mirt__dataset_spec(batch->dataset), &f->spec)) {
        return mirt__fail(MIRT_E_SHAPE,
                          "mirt_function_run: the batch is of a data set unlike the one the function was made for");
    } else {
        b.rows = batch->rows;
        memcpy(b.field, batch->field, sizeof b.field);
        b.index = batch->index;
    }
    mirt_status status = mirt__function_begin(f, &b);
    return status == MIRT_OK ? mirt__function_step(f) : status;
}

static const mirt__result *mirt__find_result(const mirt_function *f, const char *name, const char *caller) {
    mirt__suggestion guess = {name, NULL, ""};
    if (!f || !name)
        return mirt__fail(MIRT_E_INVALID, "%s: no function or no name", caller), (const mirt__result *)NULL;
    for (int i = 0; i < f->results.count; i++) {
        mirt__guess(&guess, f->results.list[i].name);
        if (strcmp(f->results.list[i].name, name) != 0) continue;
        if (f->step.rows > 0) return &f->results.list[i];
        mirt__fail(MIRT_E_STATE, "%s: the function has not run yet", caller);
        return NULL;
    }
    mirt__fail(MIRT_E_NOT_FOUND, "%s: there is no result \"%s\"%s", caller, name, mirt__did_you_mean(&guess));
    return NULL;
}

static double mirt__result_value(const mirt__result *r, int64_t i) {
    switch (r->dtype) {
    case MIRT_FLOAT32: return (double)((const mirt__real *)(const void *)r->data)[i];
    case MIRT_INT32: return (double)((const int32_t *)(const void *)r->data)[i];
    default: return (double)((const uint8_t *)r->data)[i];
    }
}

MIRT_API mirt_status mirt_reduce(mirt_function *f, const char *name, mirt_reduce_op op, double *out, size_t count) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    const mirt__result *r = mirt__find_result(f, name, "mirt_reduce");
    int64_t first;
    if (!r) return mirt_last_status();
    if (!out || (int64_t)count != r->count)
        return mirt__fail(MIRT_E_SHAPE, "mirt_reduce: %s has %lld elements, not %llu", name, (long long)r->count,
                          (unsigned long long)count);
    if (op != MIRT_REDUCE_SUM && op != MIRT_REDUCE_MEAN)
        return mirt__fail(MIRT_E_INVALID, "mirt_reduce: there is no operation number %d", (int)op);
    int64_t parts = r->batched ? f->step.rows : mirt__active_replicas(&f->step);
    for (size_t k = 0; k < count; k++) out[k] = 0;
    for (int64_t i = 0; i < parts; i++) {
        double weight =
            op == MIRT_REDUCE_MEAN && !r->batched ? (double)mirt__replica_share(&f->step, (int)i, &first) : 1;
        for (int64_t k = 0; k < r->count; k++) out[k] += weight * mirt__result_value(r, i * r->count + k);
    }
    for (size_t k = 0; k < count && op == MIRT_REDUCE_MEAN; k++) out[k] /= (double)f->step.rows;
    return MIRT_OK;
}

/* `parts` rows or replicas' values from `first`. */
static mirt_status mirt__copy_result(const mirt__result *r, int64_t first, int64_t parts, float *out, size_t capacity,
                                     size_t *written) {
    if (!out || (int64_t)capacity / (r->count ? r->count : 1) < parts) {
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld elements, there is room for %llu", r->name,
                          (long long)(parts * r->count), (unsigned long long)capacity);
    }
    for (int64_t i = 0; i < parts * r->count; i++) out[i] = (float)mirt__result_value(r, first * r->count + i);
    if (written) *written = (size_t)(parts * r->count);
    return MIRT_OK;
}

MIRT_API mirt_status mirt_gather_result(mirt_function *f, const char *name, float *out, size_t capacity,
                                        size_t *written) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    const mirt__result *r = mirt__find_result(f, name, "mirt_gather_result");
    return r ? mirt__copy_result(r, 0, r->batched ? f->step.rows : mirt__active_replicas(&f->step), out, capacity,
                                 written)
             : mirt_last_status();
}

MIRT_API mirt_status mirt_local_result(mirt_function *f, const char *name, int replica, float *out, size_t capacity,
                                       size_t *written) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    const mirt__result *r = mirt__find_result(f, name, "mirt_local_result");
    int64_t first;
    if (!r) return mirt_last_status();
    if (replica < 0 || replica >= f->step.replicas)
        return mirt__fail(MIRT_E_NOT_FOUND, "mirt_local_result: there is no replica %d of %d", replica,
                          f->step.replicas);
    int64_t rows = mirt__replica_share(&f->step, replica, &first);
    return r->batched ? mirt__copy_result(r, first, rows, out, capacity, written)
                      : mirt__copy_result(r, replica, rows > 0, out, capacity, written);
}
