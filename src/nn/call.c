#include "layers.h"
/* Calls models on tensors, as part of another model or in a function. */

static mirt_status mirt__call_check(const mirt_model *model, mirt_tensor *const *x, int count) {
    char have[96], want[96];
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (!model->num_outputs)
        return mirt__fail(MIRT_E_STATE, "%s has no output: end with mirt_model_output", model->name);
    if (count != model->num_inputs) {
        return mirt__fail(MIRT_E_INVALID, "%s takes %d tensor%s, not %d", model->name, model->num_inputs,
                          model->num_inputs == 1 ? "" : "s", count);
    }
    for (int i = 0; i < count; i++) {
        if (x[i]->dtype == MIRT_FLOAT32 && mirt__shape_equal(&x[i]->shape, &model->input[i]->shape)) continue;
        return mirt__fail(MIRT_E_SHAPE, "%s takes float32 %s, not %s %s%s", model->name,
                          mirt__shape_text(&model->input[i]->shape, want), mirt__dtype_name(x[i]->dtype),
                          mirt__shape_text(&x[i]->shape, have), x[i]->dtype != MIRT_FLOAT32 ? ": cast it first" : "");
    }
    return MIRT_OK;
}

MIRT__LIB int mirt__call_variables(const mirt__graph *graph, const mirt_model *model) {
    const mirt_model *top = graph->root ? graph->root : graph->model;
    int first = 0;
    const mirt_model *m = model;
    for (; m != top && m->owner; m = m->owner) first += m->owner_first;
    if (m == top) return first;
    return mirt__fail(MIRT_E_INVALID, "%s is not a part of %s, whose function this is", model->name, top->name), -1;
}

/* Whether a number depends only on weights. */
MIRT__TRAINING bool mirt__of_weights(const mirt__graph *graph, const mirt_tensor *t) {
    for (int i = 0; i < graph->count; i++) graph->node[i]->live = graph->node[i] == t->node;
    for (int i = graph->count - 1; i >= 0; i--) {
        const mirt__node *node = graph->node[i];
        if (node->live && mirt__is_input(node)) return false;
        for (int k = 0; node->live && k < node->num_in; k++) node->in[k]->node->live = true;
    }
    return true;
}

/* Whether a term of the model's loss counts in this graph: terms that depend only on weights count once, regardless of
   the number of calls; the regularizer of a weight counts while the weight is trained, as in Keras. */
MIRT__TRAINING bool mirt__term_counts(const mirt__graph *graph, const mirt_model *model, const mirt_tensor *term,
                                      int first, bool again) {
    const mirt__node *node = term->node;
    if (again && mirt__of_weights(&model->graph, term)) return false;
    if (!graph->root || !node->a.regularizer || mirt__is_batched(&term->shape)) return true;
    while (!mirt__is_variable(node)) node = node->in[0]->node;
    return mirt__is_trained(&graph->root->variable[first + node->a.index]);
}

static bool mirt__call_copy(mirt__graph *graph, mirt_model *model, const mirt__stretch *from, mirt_tensor *const *x,
                            mirt_training training, const char *prefix, uint64_t salt, const mirt__stretch *to,
                            mirt_tensor **out) {
    mirt__copying c;
    int outputs = to->count, terms = MIRT__TRAINS && to->tensor == model->output ? model->graph.num_terms : 0;
    mirt_tensor **keep = (mirt_tensor **)mirt__pool_alloc(&graph->pool, (size_t)(outputs + terms) * sizeof *keep + 1);
    if (!keep) return false;
    memcpy(keep, to->tensor, (size_t)outputs * sizeof *keep);
    const int first = mirt__call_variables(graph, model);
    for (int i = 0; MIRT__TRAINS && i < terms; i++) {
        mirt_tensor *term = model->graph.term[i];
        keep[outputs + i] = mirt__term_counts(graph, model, term, first, salt != 0) ? term : NULL;
    }
    memset(&c, 0, sizeof c);
    c.source = &model->graph;
    c.replaced = (const mirt_tensor *const *)from->tensor;
    c.replacement = x;
    c.num_replaced = from->count;
    c.first_variable = first;
    c.prefix = prefix;
    c.salt = salt;
    c.training = training;
    c.mode = graph->mode;
    if (!mirt__graph_copy(graph, &c, keep, outputs + terms)) return false;
    for (int i = 0; MIRT__TRAINS && i < terms; i++) {
        if (!keep[outputs + i]) continue;
        keep[outputs + i]->node->a.regularizer = model->graph.term[i]->node->a.regularizer; /* also as a feature */
        if (!mirt__graph_term_add(graph, keep[outputs + i])) return false;
    }
    memcpy(out, keep, (size_t)outputs * sizeof *out);
    return true;
}

/* Records the whole model. */
static bool mirt__call_all(mirt__graph *graph, mirt_model *model, mirt_tensor *const *x, mirt_training training,
                           const char *prefix, uint64_t salt, mirt_tensor **out) {
    const mirt__stretch from = {model->input, model->num_inputs}, to = {model->output, model->num_outputs};
    return mirt__call_copy(graph, model, &from, x, training, prefix, salt, &to, out);
}

MIRT__TRAINING_LIB bool mirt__call_stretch(mirt__graph *graph, mirt_model *model, const mirt__stretch *from,
                                  mirt_tensor *const *x, const mirt__stretch *to, mirt_tensor **out) {
    return mirt__call_copy(graph, model, from, x, MIRT_TRAINING_AUTO, NULL, 0, to, out);
}

/* The number of earlier calls of the model in this graph: each call uses other random numbers. */
static uint64_t mirt__call_number(mirt_model *model, const mirt__graph *graph) {
    if (model->called_in != graph->serial) model->calls = 0;
    model->called_in = graph->serial;
    return model->calls++;
}

/* >>as a layer */

typedef struct mirt__functional_desc {
    mirt_model *part;
    mirt_training training;
} mirt__functional_desc;

static mirt_tensor *mirt__functional_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt__functional_desc *d = (const mirt__functional_desc *)layer->desc;
    mirt_model *model = layer->model;
    (void)x;
    if (mirt__adopt(model, d->part, layer->name) != MIRT_OK) return NULL;
    layer->num_out = d->part->num_outputs;
    uint64_t salt = mirt__call_number(d->part, &model->graph);
    return mirt__call_all(&model->graph, d->part, layer->in, d->training, layer->name, salt, layer->out) ? layer->out[0]
                                                                                                         : NULL;
}

static const mirt__layer_class mirt__functional_layer = {
    "Functional",           "functional", 1,   MIRT_MAX_INPUTS, NULL, 0, sizeof(mirt__functional_desc),
    mirt__functional_build, NULL,         NULL};

MIRT__TRAINING_LIB mirt_model *mirt__layer_part(const mirt__layer *layer, mirt_training *training) {
    const mirt__functional_desc *d = (const mirt__functional_desc *)layer->desc;
    if (layer->cls != &mirt__functional_layer) return NULL;
    *training = d->training;
    return d->part;
}

static bool mirt__layer_is_named(const mirt_model *model, const char *name) {
    for (int i = 0; i < model->num_layers; i++) {
        if (strcmp(model->layer[i]->name, name) == 0) return true;
    }
    return false;
}

/* `name` NULL: the model's name, with a number if it is taken. */
static bool mirt__call_as_layer(mirt_model *model, mirt_model *part, mirt_tensor *const *x, mirt_training training,
                                const char *name, mirt_tensor **out) {
    mirt__functional_desc d;
    char own[256];
    memset(&d, 0, sizeof d);
    d.part = part;
    d.training = training;
    if (!name && !model->next_name) {
        snprintf(own, sizeof own, "%s", part->name);
        for (int i = 1; mirt__layer_is_named(model, own); i++) snprintf(own, sizeof own, "%.200s_%d", part->name, i);
        name = own;
    }
    if (!mirt__layer_add(model, &mirt__functional_layer, x, part->num_inputs, &d, name)) return false;
    const mirt__layer *layer = model->building ? model->building->children : model->layer[model->num_layers - 1];
    memcpy(out, layer->out, (size_t)part->num_outputs * sizeof *out);
    return true;
}

MIRT__LIB bool mirt__call_named(mirt_model *model, mirt_model *part, mirt_tensor *const *x, int count,
                                mirt_training training, const char *name) {
    mirt_tensor *out[MIRT_MAX_OUTPUTS];
    return mirt__call_check(part, x, count) == MIRT_OK && mirt__call_as_layer(model, part, x, training, name, out);
}

static bool mirt__call_into(mirt__graph *graph, mirt_model *model, mirt_tensor *const *x, mirt_training training,
                            mirt_tensor **out) {
    if (graph->model) return mirt__call_as_layer(graph->model, model, x, training, NULL, out);
    if (mirt__call_variables(graph, model) < 0) return false;
    return mirt__call_all(graph, model, x, training, NULL, mirt__call_number(model, graph), out);
}

MIRT_API mirt_tensor *mirt_call_many(mirt_model *model, mirt_tensor *const *x, int count, mirt_training training,
                                     mirt_tensor **out) {
    MIRT__USE_MODEL(model, NULL);
    mirt_tensor *own[MIRT_MAX_OUTPUTS], *in[MIRT_MAX_INPUTS];
    if (!x || count < 1 || !x[0]) return NULL;
    mirt__graph *graph = x[0]->node->graph;
    if (!model) return mirt__fail_missing("mirt_call", "model"), mirt__graph_poison(graph), (mirt_tensor *)NULL;
    for (int i = 0; i < count; i++) {
        if (!x[i] || graph->status != MIRT_OK) return NULL;
        if (i < MIRT_MAX_INPUTS && !(in[i] = mirt_cast(x[i], MIRT_FLOAT32))) return NULL;
    }
    bool known = (int)training >= MIRT_TRAINING_AUTO && training <= MIRT_TRAINING_OFF;
    if (!known) mirt__fail(MIRT_E_INVALID, "%s: invalid training mode (%d)", model->name, (int)training);
    if (!known || mirt__call_check(model, in, count) != MIRT_OK ||
        !mirt__call_into(graph, model, in, training, out ? out : own)) {
        mirt__graph_poison(graph);
        return NULL;
    }
    return out ? out[0] : own[0];
}

MIRT_API mirt_tensor *mirt_call(mirt_model *model, mirt_tensor *x, mirt_training training) {
    return mirt_call_many(model, &x, 1, training, NULL);
}

/* >>views */

MIRT_API mirt_tensor *mirt_layer_output(mirt_model *model, const char *layer) {
    MIRT__USE_MODEL(model, NULL);
    if (!model || !layer) {
        mirt__fail(MIRT_E_INVALID, "mirt_layer_output: no model or no name");
        return NULL;
    }
    int index = mirt__layer_find(model, layer);
    return index < 0 ? NULL : model->layer[index]->out[0];
}

static bool mirt__view_record(mirt_model *view, mirt_model *model, mirt_tensor *const *outputs, int count) {
    mirt__copying c;
    mirt_tensor *in[MIRT_MAX_INPUTS], *keep[MIRT_MAX_OUTPUTS];
    for (int i = 0; i < model->num_inputs; i++) {
        if (!(in[i] = mirt_input(view, mirt__row_shape(&model->input[i]->shape)))) return false;
    }
    for (int i = 0; i < model->num_variables; i++) {
        if (!mirt__variable_new(view, &model->variable[i], NULL)) return false;
    }
    memset(&c, 0, sizeof c);
    c.source = &model->graph;
    c.replaced = (const mirt_tensor *const *)model->input;
    c.replacement = in;
    c.num_replaced = model->num_inputs;
    memcpy(keep, outputs, (size_t)count * sizeof *keep);
    if (!mirt__graph_copy(&view->graph, &c, keep, count)) return false;
    mirt_model_outputs(view, keep, count);
    return view->graph.status == MIRT_OK;
}

MIRT_API mirt_model *mirt_model_view(mirt_model *model, mirt_tensor *const *outputs, int count) {
    MIRT__USE_MODEL(model, NULL);
    if (!model || !outputs) {
        mirt__fail(MIRT_E_INVALID, "mirt_model_view: no model or no outputs");
        return NULL;
    }
    if (count < 1 || count > MIRT_MAX_OUTPUTS) {
        mirt__fail(MIRT_E_INVALID, "mirt_model_view: %d outputs; it must be 1 to %d", count, MIRT_MAX_OUTPUTS);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        if (!outputs[i]) {
            mirt__fail_missing("mirt_model_view", "output");
            return NULL;
        }
        if (outputs[i]->node->graph != &model->graph) {
            mirt__fail(MIRT_E_INVALID, "mirt_model_view: an output is a tensor of another model than %s",
                       model->name);
            return NULL;
        }
    }
    if (model->graph.status != MIRT_OK) {
        mirt__fail(model->graph.status, "%s", model->graph.error);
        return NULL;
    }
    if (mirt__model_materialize(model) != MIRT_OK) return NULL;
    mirt_model *view = mirt_model_create(model->strategy, model->name);
    if (!view) return NULL;
    if (!mirt__view_record(view, model, outputs, count)) {
        mirt_model_destroy(view);
        return NULL;
    }
    view->owner = model->is_view ? model->owner : model;
    view->is_view = true;
    return view;
}
