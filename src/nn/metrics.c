#include "../ops/ops.h"
#include "model.h"

/* Keras's choice for "accuracy": by the shapes of labels and predictions. */
static mirt__accuracy_kind mirt__accuracy_kind_of(const mirt_model *model, int output) {
    const mirt__loss_class *loss = mirt__output_loss(model, output);
    if (loss && loss->sparse) return MIRT__ACCURACY_SPARSE;
    return mirt__last_dim(model->output[output]) == 1 ? MIRT__ACCURACY_BINARY : MIRT__ACCURACY_CATEGORICAL;
}

static mirt_status mirt__accuracy_check(const mirt_model *model, int output) {
    char text[96];
    if (model->output[output]->shape.rank == 2 || mirt__accuracy_kind_of(model, output) == MIRT__ACCURACY_BINARY) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "accuracy needs an output of (rows, classes); %s is %s", mirt__output_name(model, output),
                      mirt__shape_text(&model->output[output]->shape, text));
}

static mirt_tensor *mirt__accuracy_record(const mirt_model *model, int number, mirt_tensor *output, mirt_tensor *labels) {
    mirt__accuracy_kind kind = mirt__accuracy_kind_of(model, number);
    mirt_shape shape = output->shape;
    /* A loss of the user's does not say what labels are: one a sample is a class number. */
    if (kind == MIRT__ACCURACY_CATEGORICAL && labels && mirt__shape_count(&labels->shape) == 1) kind = MIRT__ACCURACY_SPARSE;
    if (kind == MIRT__ACCURACY_SPARSE) shape.rank--;
    labels = mirt_cast(labels, kind == MIRT__ACCURACY_SPARSE ? MIRT_INT32 : MIRT_FLOAT32);
    if (labels && mirt__shape_count(&labels->shape) == mirt__shape_count(&shape)) labels = mirt__reshape_op(labels, &shape);
    return mirt__accuracy_op(kind, output, labels);
}

static const mirt__metric_class mirt__metric_table[MIRT__METRIC_COUNT] = {
    {NULL, NULL, NULL},
    {"accuracy", mirt__accuracy_check, mirt__accuracy_record},
};

MIRT__LIB const mirt__metric_class *mirt__metric_class_get(mirt_metric metric) {
    return (int)metric > MIRT_METRIC_NONE && metric < MIRT__METRIC_COUNT ? &mirt__metric_table[metric] : NULL;
}

/* The layer that made an output, or NULL. */
static const mirt__layer *mirt__output_layer(const mirt_model *model, int output) {
    for (int i = model->num_layers - 1; i >= 0; i--) {
        for (int k = 0; k < model->layer[i]->num_out; k++) {
            if (model->layer[i]->out[k] == model->output[output]) return model->layer[i];
        }
    }
    return NULL;
}

MIRT__LIB const char *mirt__output_name(const mirt_model *model, int output) {
    const mirt__layer *layer = mirt__output_layer(model, output);
    return layer ? layer->name : model->name;
}

/* "accuracy"; of a model with several outputs, behind the name of the layer that made the output. */
static const char *mirt__log_name(mirt_model *model, int output, const char *before, const char *name) {
    char full[512];
    const mirt__layer *layer = mirt__output_layer(model, output);
    int same = 0; /* outputs before that the layer made too */
    for (int i = 0; layer && i < output; i++) same += mirt__output_layer(model, i) == layer;
    if (model->num_outputs == 1) snprintf(full, sizeof full, "%s%s", before, name);
    else if (layer && !same) snprintf(full, sizeof full, "%s%s_%s", before, layer->name, name);
    else if (layer) snprintf(full, sizeof full, "%s%s_%d_%s", before, layer->name, same, name);
    else snprintf(full, sizeof full, "%soutput_%d_%s", before, output, name);
    return mirt__pool_strdup(&model->graph.pool, full);
}

static mirt_status mirt__metric_use_add(mirt_model *model, int output, const mirt__metric_class *cls, const mirt_custom_metric *custom) {
    if (model->num_metrics == MIRT__MAX_METRIC_USES) return mirt__fail(MIRT_E_INVALID, "%s has more than %d metrics in all", model->name, MIRT__MAX_METRIC_USES);
    mirt__metric_use *use = &model->metric[model->num_metrics];
    memset(use, 0, sizeof *use);
    use->output = output;
    use->cls = cls;
    if (custom) use->custom = *custom;
    use->name = mirt__log_name(model, output, "", cls ? cls->name : custom->name);
    use->val_name = mirt__log_name(model, output, "val_", cls ? cls->name : custom->name);
    if (!use->name || !use->val_name) return mirt_last_status();
    model->num_metrics++;
    return cls ? cls->check(model, output) : MIRT_OK;
}

static mirt_status mirt__output_metrics(mirt_model *model, int output) {
    const mirt_compile_desc *c = &model->config;
    if (!(model->loss_name[output] = mirt__log_name(model, output, "", "loss")) ||
        !(model->val_loss_name[output] = mirt__log_name(model, output, "val_", "loss"))) {
        return mirt_last_status();
    }
    for (int i = 0; i < MIRT_MAX_METRICS && c->metrics[i] != MIRT_METRIC_NONE; i++) {
        const mirt__metric_class *cls = mirt__metric_class_get(c->metrics[i]);
        if (!cls) return mirt__fail(MIRT_E_INVALID, "there is no metric number %d", (int)c->metrics[i]);
        if (mirt__metric_use_add(model, output, cls, NULL) != MIRT_OK) return mirt_last_status();
    }
    for (int i = 0; i < MIRT_MAX_METRICS && c->custom_metrics[i]; i++) {
        if (mirt__metric_use_add(model, output, NULL, c->custom_metrics[i]) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

static mirt_status mirt__custom_metrics_take(mirt_model *model) {
    for (int i = 0; i < MIRT_MAX_METRICS && model->config.custom_metrics[i]; i++) {
        const mirt_custom_metric *own = mirt__custom_metric_of(model->strategy, model->config.custom_metrics[i]);
        if (!own) return mirt__fail_at("metric number %d", i + 1);
        model->config.custom_metrics[i] = own;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__metrics_collect(mirt_model *model) {
    model->num_metrics = 0;
    if (mirt__custom_metrics_take(model) != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < model->num_outputs; i++) {
        if (mirt__output_has_loss(model, i) && mirt__output_metrics(model, i) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

MIRT__LIB bool mirt__metric_compares(const mirt_model *model, const mirt__metric_use *use) {
    return use->cls == &mirt__metric_table[MIRT_ACCURACY] && mirt__accuracy_kind_of(model, use->output) == MIRT__ACCURACY_BINARY;
}

MIRT__LIB mirt_tensor *mirt__metric_record(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output, mirt_tensor *labels) {
    if (use->cls) return use->cls->record(model, use->output, output, labels);
    mirt_tensor *value = use->custom.record(mirt_cast(labels, MIRT_FLOAT32), output, use->custom.user);
    return mirt__custom_result("metric", use->name, output, value, value && mirt__is_batched(&value->shape) && value->shape.rank <= 2, "(rows) or (rows, n)");
}
