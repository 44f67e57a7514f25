#include "model.h"
#include "../ops/ops.h"
/* Creates models, keeps them alive and destroys them. */

static void mirt__models_destroy(mirt_strategy *strategy) {
    for (mirt_model *m = strategy->models; m; m = m->next) m->owner = NULL;
    while (strategy->models) mirt_model_destroy(strategy->models);
}

MIRT_API mirt_model *mirt_model_create(mirt_strategy *strategy, const char *name) {
    MIRT__USE(strategy, NULL);
    if (!strategy) {
        mirt__fail_missing("mirt_model_create", "strategy");
        return NULL;
    }
    if (mirt__usable(strategy) != MIRT_OK) return NULL;
    if (name && !mirt__utf8_valid(name, strlen(name))) {
        mirt__fail(MIRT_E_INVALID, "a model's name is not valid UTF-8");
        return NULL;
    }
    mirt_model *model = (mirt_model *)mirt__calloc(1, sizeof *model);
    if (!model) return NULL;
    mirt__model_graph_init(&model->graph, model);
    model->name = mirt__pool_strdup(&model->graph.pool, name ? name : "model");
    if (!model->name) {
        mirt__free(model);
        return NULL;
    }
    model->strategy = strategy;
    model->graph.serial = ++strategy->graphs;
    model->next = strategy->models;
    if (model->next) model->next->previous = model;
    strategy->models = model;
    strategy->drop_models = mirt__models_destroy;
    return model;
}

MIRT__LIB mirt_strategy *mirt__strategy_of_model(const mirt_model *model) { return model ? model->strategy : NULL; }

MIRT__LIB void mirt__model_graph_init(mirt__graph *graph, mirt_model *model) {
    mirt__graph_init(graph, model, mirt__ops());
    graph->hold = mirt__hold;
    graph->let_go = mirt__let_go;
}

MIRT__LIB void mirt__hold(mirt_model *model) {
    if (!model) return;
    model->busy++;
    model->strategy->held++;
}

MIRT__LIB void mirt__let_go(mirt_model *model) {
    if (!model) return;
    model->busy--;
    model->strategy->held--;
}

/* The weights of its parts go with a model, and with those what was made for them. */
static void mirt__weights_gone(mirt_model *model, const char *owner) {
    if (model->graph.status == MIRT_OK) { /* destroying is no error, so the thread's last one stays */
        model->graph.status = MIRT_E_STATE;
        snprintf(model->graph.error, sizeof model->graph.error,
                 "the weights of %s went with %s, of which it was a part", model->name, owner);
    }
    mirt__compile_forget(model);
    if (model->functions) model->disown_functions(model);
    for (mirt_model *m = model->strategy->models; m; m = m->next) {
        if (m->owner == model) mirt__weights_gone(m, owner);
    }
}

/* A model without weights leaves its parts as they were before they became parts. */
static void mirt__orphan_parts(mirt_model *model, bool weights) {
    mirt_model *m = model->strategy->models;
    while (m) {
        if (m->owner != model) {
            m = m->next;
            continue;
        }
        if (weights) mirt__weights_gone(m, model->name);
        m->owner = NULL;
        if (m->doomed) mirt_model_destroy(m);
        m = model->strategy->models; /* its own parts may have gone too */
    }
}

MIRT_API void mirt_model_destroy(mirt_model *model) {
    MIRT__ENTER;
    if (!model || !mirt__may_destroy(model->strategy, "mirt_model_destroy")) return;
    const mirt_model *busy = mirt__family_busy(model);
    if (busy) {
        mirt__log(model->strategy, MIRT_LOG_ERROR,
                  "%s is being trained or recorded; %s cannot be destroyed before that call returns", busy->name,
                  model == busy ? "it" : model->name);
        return;
    }
    if (model->owner && !model->is_view) { /* it is a layer of its owner, and lives as long */
        model->doomed = true;
        return;
    }
    const bool weights = mirt__root(model, NULL)->weight || model->num_kept;
    mirt__compile_forget(model);
    if (model->functions) model->free_functions(model);
    mirt__weights_free(model);
    mirt__kept_free(model);
    mirt__orphan_parts(model, weights);
    if (model->previous) model->previous->next = model->next;
    else model->strategy->models = model->next;
    if (model->next) model->next->previous = model->previous;
    mirt__free(model->history_logs);
    mirt__free(model->class_names);
    mirt__text_free(&model->profile_text);
    mirt__text_free(&model->summary);
    mirt__text_free(&model->graph_text);
    mirt__text_free(&model->load_text);
    mirt__text_free(&model->timing_text);
    mirt__free(model->variable);
    mirt__free(model->layer);
    mirt__graph_free(&model->graph);
    mirt__free(model);
}

MIRT__LIB mirt_tensor *mirt__model_poison(mirt_model *model) {
    mirt__graph_poison(&model->graph);
    return NULL;
}

static mirt_status mirt__check_output(const mirt_model *model, const mirt_tensor *output) {
    if (output->node->graph != &model->graph)
        return mirt__fail(MIRT_E_INVALID, "%s: the output is a tensor of another model", model->name);
    if (mirt__is_batched(&output->shape) && output->dtype == MIRT_FLOAT32) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "%s: the output must be a float32 batch", model->name);
}

/* False: outputs cannot be set. mirt_compile then returns the error, because mirt_model_output returns nothing. */
static bool mirt__outputs_allowed(mirt_model *model) {
    const mirt_model *busy = mirt__family_busy(model);
    if (model->owner && !model->is_view)
        mirt__fail(MIRT_E_STATE, "%s is a part of %s already; its outputs are declared before that", model->name,
                   model->owner->name);
    else if (model->compiled)
        mirt__fail(
            MIRT_E_STATE,
            "%s is compiled; mirt_model_output comes before mirt_compile. To build on it, call it in a new model "
            "(mirt_call)",
            model->name);
    else if (busy)
        mirt__fail(MIRT_E_STATE,
                   "%s is being trained or recorded; the outputs of %s have to wait until that call returns",
                   busy->name, model->name);
    else return true;
    if (!model->refusal[0]) snprintf(model->refusal, sizeof model->refusal, "%s", mirt_last_error());
    return false;
}

MIRT_API void mirt_model_outputs(mirt_model *model, mirt_tensor *const *outputs, int count) {
    MIRT__USE_MODEL(model, );
    if (!model || !mirt__outputs_allowed(model)) return;
    if (count < 1 || count > MIRT_MAX_OUTPUTS) {
        mirt__fail(MIRT_E_INVALID, "%s: %d outputs; it must be 1 to %d", model->name, count, MIRT_MAX_OUTPUTS);
        mirt__model_poison(model);
        return;
    }
    for (int i = 0; i < count; i++) {
        /* it has failed: the first error stays */
        if (model->graph.status != MIRT_OK && (!outputs || !outputs[i])) return;
        if (!outputs || !outputs[i]) mirt__fail_missing("mirt_model_output", "tensor");
        else if (mirt__check_output(model, outputs[i]) == MIRT_OK) continue;
        mirt__model_poison(model);
        return;
    }
    mirt__trainer_drop(model); /* what it predicts with has the outputs of before */
    for (int i = 0; i < count; i++) model->output[i] = outputs[i];
    model->num_outputs = count;
}

MIRT_API void mirt_model_output(mirt_model *model, mirt_tensor *output) { mirt_model_outputs(model, &output, 1); }

MIRT_API mirt_tensor *mirt_input_of(const mirt_model *model, int index) {
    return model && index >= 0 && index < model->num_inputs ? model->input[index] : NULL;
}

MIRT_API mirt_tensor *mirt_output_of(const mirt_model *model, int index) {
    return model && index >= 0 && index < model->num_outputs ? model->output[index] : NULL;
}

MIRT__LIB void mirt__trainer_drop(mirt_model *model) {
    if (model->trainer) model->free_trainer(model);
}

MIRT__LIB void mirt__compile_forget(mirt_model *model) {
    mirt__trainer_drop(model);
    if (MIRT__TRAINS) mirt__device_slots_free(model);
    for (int i = 0; i < MIRT__MAX_SLOTS; i++) {
        mirt__aligned_free(model->slot[i]);
        model->slot[i] = NULL;
    }
    mirt__free(model->piece);
    model->piece = NULL;
    model->num_pieces = 0;
    model->compiled = false;
}
