#include "model.h"
#include "../formats/json.h"
#include "../ops/ops.h"

MIRT_API mirt_model *mirt_model_create(mirt_strategy *strategy, const char *name) {
    if (!strategy) {
        mirt__fail_missing("mirt_model_create", "strategy");
        return NULL;
    }
    if (name && !mirt__utf8_valid(name, strlen(name))) return mirt__fail(MIRT_E_INVALID, "a model's name is not valid UTF-8"), (mirt_model *)NULL;
    mirt_model *model = (mirt_model *)mirt__calloc(1, sizeof *model);
    if (!model) return NULL;
    mirt__graph_init(&model->graph, model);
    model->name = mirt__pool_strdup(&model->graph.pool, name ? name : "model");
    if (!model->name) {
        mirt__free(model);
        return NULL;
    }
    model->strategy = strategy;
    model->next = strategy->models;
    if (model->next) model->next->previous = model;
    strategy->models = model;
    return model;
}

MIRT_API void mirt_model_destroy(mirt_model *model) {
    if (!model) return;
    if (model->busy) {
        mirt__log(model->strategy, MIRT_LOG_ERROR, "%s is being trained; it cannot be destroyed before mirt_fit returns", model->name);
        return;
    }
    mirt__trainer_free(model);
    for (int d = 0; d < mirt__weight_copies(model->strategy); d++) mirt__aligned_free(model->weight[d]);
    for (int i = 0; i < 2; i++) mirt__aligned_free(model->slot[i]);
    if (model->previous) model->previous->next = model->next;
    else model->strategy->models = model->next;
    if (model->next) model->next->previous = model->previous;
    mirt__free(model->history_logs);
    mirt__text_free(&model->summary);
    mirt__text_free(&model->graph_text);
    mirt__free(model->term);
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
    if (output->node->graph != &model->graph) return mirt__fail(MIRT_E_INVALID, "%s: the output is a tensor of another model", model->name);
    if (mirt__is_batched(&output->shape) && output->dtype == MIRT_FLOAT32) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "%s: the output must be a float32 batch", model->name);
}

MIRT_API void mirt_model_outputs(mirt_model *model, mirt_tensor *const *outputs, int count) {
    if (!model || !outputs) return;
    if (model->compiled) {
        mirt__fail(MIRT_E_STATE, "%s is compiled; its outputs come before mirt_compile", model->name);
        return;
    }
    if (count < 1 || count > MIRT_MAX_OUTPUTS) {
        mirt__fail(MIRT_E_INVALID, "%s: %d outputs; it must be 1 to %d", model->name, count, MIRT_MAX_OUTPUTS);
        mirt__model_poison(model);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (!outputs[i]) return;
        if (mirt__check_output(model, outputs[i]) == MIRT_OK) continue;
        mirt__model_poison(model);
        return;
    }
    for (int i = 0; i < count; i++) model->output[i] = outputs[i];
    model->num_outputs = count;
}

MIRT_API void mirt_model_output(mirt_model *model, mirt_tensor *output) { mirt_model_outputs(model, &output, 1); }

/* >>compile */

static mirt_status mirt__compile_check(mirt_model *model, const mirt_compile_desc *desc) {
    mirt_dtype dtype;
    int64_t per_sample;
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (!model->num_inputs) return mirt__fail(MIRT_E_STATE, "%s has no input: begin with mirt_input", model->name);
    if (!model->num_outputs) return mirt__fail(MIRT_E_STATE, "%s has no output: end with mirt_model_output", model->name);
    if (!mirt__loss_class_get(desc->loss)) return mirt__fail(MIRT_E_INVALID, "there is no loss number %d", (int)desc->loss);
    if ((int)desc->reduction < 0 || desc->reduction > MIRT_SUM) return mirt__fail(MIRT_E_INVALID, "there is no reduction number %d", (int)desc->reduction);
    for (int i = 0; i < MIRT_MAX_METRICS && desc->metrics[i] != MIRT_METRIC_NONE; i++) {
        if (!mirt__metric_class_get(desc->metrics[i])) return mirt__fail(MIRT_E_INVALID, "there is no metric number %d", (int)desc->metrics[i]);
    }
    if (mirt__optimizer_check(&desc->optimizer) != MIRT_OK) return mirt_last_status();
    model->config = *desc;
    if (desc->loss == MIRT_LOSS_NONE) return MIRT_OK;
    mirt_status status = mirt__labels_wanted(model, &dtype, &per_sample);
    for (int i = 0; status == MIRT_OK && i < mirt__num_metrics(model); i++) status = mirt__metric_class_get(desc->metrics[i])->check(model);
    return status;
}

/* Zeroed optimizer state; false with the error set and nothing made. */
static bool mirt__slots_create(const mirt_model *model, const mirt_optimizer *optimizer, char *slot[2]) {
    slot[0] = slot[1] = NULL;
    for (int i = 0; i < mirt__optimizer_slots(optimizer); i++) {
        slot[i] = (char *)mirt__aligned_alloc(model->weight_bytes);
        if (!slot[i]) {
            mirt__aligned_free(slot[0]);
            return false;
        }
        memset(slot[i], 0, model->weight_bytes);
    }
    return true;
}

MIRT_API mirt_status mirt_compile(mirt_model *model, const mirt_compile_desc *desc) {
    if (!model) return mirt__fail_missing("mirt_compile", "model");
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    mirt__optimizer_defaults(&d.optimizer);
    if (model->busy) return mirt__fail(MIRT_E_STATE, "%s is being trained; mirt_compile has to wait until mirt_fit returns", model->name);
    mirt_compile_desc before = model->config;
    char *slot[2];
    if (mirt__compile_check(model, &d) != MIRT_OK || mirt__model_materialize(model) != MIRT_OK || !mirt__slots_create(model, &d.optimizer, slot)) {
        model->config = before;
        return mirt_last_status();
    }
    mirt__trainer_free(model);
    for (int i = 0; i < 2; i++) {
        mirt__aligned_free(model->slot[i]);
        model->slot[i] = slot[i];
    }
    model->step = 0;
    model->rate_set = false;
    model->compiled = true;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__model_materialize(mirt_model *model) {
    int copies = mirt__weight_copies(model->strategy);
    if (model->weight[0]) return MIRT_OK;
    for (int d = 0; d < copies; d++) {
        model->weight[d] = (char *)mirt__aligned_alloc(model->weight_bytes);
        if (model->weight[d]) continue;
        while (d-- > 0) {
            mirt__aligned_free(model->weight[d]);
            model->weight[d] = NULL;
        }
        return mirt_last_status();
    }
    memset(model->weight[0], 0, model->weight_bytes);
    for (int i = 0; i < model->num_variables; i++) {
        mirt__initialize(&model->variable[i], model->strategy->seed, mirt__weight_at(model, 0, &model->variable[i]));
    }
    for (int d = 1; d < copies; d++) memcpy(model->weight[d], model->weight[0], model->weight_bytes);
    for (int d = copies; d < model->strategy->num_devices; d++) model->weight[d] = model->weight[0];
    return MIRT_OK;
}

/* >>weights */

MIRT__LIB mirt__real *mirt__weight_at(const mirt_model *model, int device, const mirt__variable *variable) {
    return (mirt__real *)(void *)(model->weight[device] + variable->offset);
}

MIRT_API int mirt_num_weights(const mirt_model *model) { return model ? model->num_variables : 0; }

MIRT_API mirt_status mirt_weight(const mirt_model *model, int index, mirt_weight_info *out) {
    if (!model || !out) return mirt__fail(MIRT_E_INVALID, "mirt_weight: no model or no place for the answer");
    if (index < 0 || index >= model->num_variables) {
        return mirt__fail(MIRT_E_NOT_FOUND, "there is no weight %d; %s has %d", index, model->name, model->num_variables);
    }
    const mirt__variable *v = &model->variable[index];
    out->name = v->name;
    out->shape = v->shape;
    out->count = v->count;
    out->trainable = v->trainable;
    return MIRT_OK;
}

/* The index of the variable `name`, or -1 with an error that names the nearest one. */
MIRT__LIB int mirt__variable_find(const mirt_model *model, const char *name) {
    const char *nearest = NULL;
    for (int i = 0; i < model->num_variables; i++) {
        const char *pair[2] = {nearest, model->variable[i].name};
        if (strcmp(pair[1], name) == 0) return i;
        nearest = nearest ? mirt__nearest(name, pair, 2) : mirt__nearest(name, pair + 1, 1);
    }
    mirt__fail(MIRT_E_NOT_FOUND, "%s has no weight \"%s\"%s%s%s", model->name, name, nearest ? "; did you mean \"" : "", nearest ? nearest : "",
               nearest ? "\"?" : "");
    return -1;
}

static const mirt__variable *mirt__variable_checked(mirt_model *model, const char *name, int device, size_t count) {
    if (!model || !name) return mirt__fail(MIRT_E_INVALID, "no model or no weight name"), (const mirt__variable *)NULL;
    int index = mirt__variable_find(model, name);
    if (index < 0) return NULL;
    if (device < 0 || device >= model->strategy->num_devices) {
        return mirt__fail(MIRT_E_DEVICE, "there is no device %d; the strategy has %d", device, model->strategy->num_devices), (const mirt__variable *)NULL;
    }
    if ((int64_t)count != model->variable[index].count) {
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld elements, not %llu", name, (long long)model->variable[index].count, (unsigned long long)count), (const mirt__variable *)NULL;
    }
    if (mirt__model_materialize(model) != MIRT_OK) return NULL;
    return &model->variable[index];
}

MIRT_API mirt_status mirt_get_weight(mirt_model *model, const char *name, int device, float *out, size_t count) {
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_get_weight: no place for the values");
    const mirt__variable *v = mirt__variable_checked(model, name, device, count);
    if (!v) return mirt_last_status();
    const mirt__real *from = mirt__weight_at(model, device, v);
    for (size_t i = 0; i < count; i++) out[i] = (float)from[i];
    return MIRT_OK;
}

MIRT_API mirt_status mirt_set_weight(mirt_model *model, const char *name, const float *values, size_t count) {
    if (!values) return mirt__fail(MIRT_E_INVALID, "mirt_set_weight: no values");
    const mirt__variable *v = mirt__variable_checked(model, name, 0, count);
    if (!v) return mirt_last_status();
    for (int d = 0; d < mirt__weight_copies(model->strategy); d++) {
        mirt__real *to = mirt__weight_at(model, d, v);
        for (size_t i = 0; i < count; i++) to[i] = (mirt__real)values[i];
    }
    return MIRT_OK;
}
