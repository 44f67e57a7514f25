/* The table of losses, and how they are recorded. */

#include "model.h"
#include "../ops/ops.h"

#define MIRT__LOSS_SPARSE true, true
#define MIRT__LOSS_CATEGORICAL true, false
#define MIRT__LOSS_ELEMENTS false, false
#define MIRT__LOSS_ROW(loss, name, labels, activation) {#name, MIRT__LOSS_##labels, activation},
static const mirt__loss_class mirt__loss_table[] = {
    {"none", false, false, MIRT_LINEAR},
    MIRT_LOSS_LIST(MIRT__LOSS_ROW)
};
MIRT__STATIC_ASSERT(MIRT__COUNT(mirt__loss_table) == MIRT__LOSS_COUNT, "a row for each loss");
#undef MIRT__LOSS_SPARSE
#undef MIRT__LOSS_CATEGORICAL
#undef MIRT__LOSS_ELEMENTS
#undef MIRT__LOSS_ROW

MIRT__LIB const mirt__loss_class *mirt__loss_class_get(mirt_loss loss) {
    return (int)loss >= 0 && loss < MIRT__LOSS_COUNT ? &mirt__loss_table[loss] : NULL;
}

static mirt_loss mirt__output_loss_kind(const mirt_model *model, int output) {
    return model->config.losses[output] ? model->config.losses[output] : model->config.loss;
}

MIRT__LIB const mirt__loss_class *mirt__output_loss(const mirt_model *model, int output) {
    return model->config.custom_losses[output] ? NULL : &mirt__loss_table[mirt__output_loss_kind(model, output)];
}

MIRT__LIB const char *mirt__output_loss_name(const mirt_model *model, int output) {
    const mirt_custom_loss *custom = model->config.custom_losses[output];
    return custom ? custom->name : mirt__output_loss(model, output)->name;
}

MIRT__LIB bool mirt__output_has_loss(const mirt_model *model, int output) {
    return model->config.custom_losses[output] || mirt__output_loss_kind(model, output);
}

MIRT__LIB int mirt__label_number(const mirt_model *model, int output) {
    int n = 0;
    for (int i = 0; i < output; i++) n += mirt__output_has_loss(model, i);
    return n;
}

MIRT__LIB int mirt__num_labels(const mirt_model *model) { return mirt__label_number(model, model->num_outputs); }

MIRT__LIB int64_t mirt__label_count(const mirt_model *model, int output) {
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    const mirt_tensor *t = model->output[output];
    return !cls ? -1 : cls->sparse ? mirt__positions(t) : mirt__shape_count(&t->shape);
}

MIRT__LIB bool mirt__custom_named(const char *name) { return name && mirt__utf8_valid(name, strlen(name)); }

static mirt_status mirt__loss_check(mirt_model *model, int output) {
    const mirt_tensor *t = model->output[output];
    const mirt_custom_loss *custom = model->config.custom_losses[output];
    float weight = model->config.loss_weights[output];
    char text[96];
    if (!(weight >= 0 && weight <= FLT_MAX))
        return mirt__fail(MIRT_E_INVALID, "the loss weight of output %d is %g; it must be finite and not negative",
                          output, (double)weight);
    if (custom) {
        model->config.custom_losses[output] = mirt__custom_loss_of(model->strategy, custom);
        return model->config.custom_losses[output] ? MIRT_OK : mirt__fail_at("output %d", output);
    }
    if (!mirt__loss_class_get(model->config.losses[output]))
        return mirt__fail(MIRT_E_INVALID, "invalid loss (%d)", (int)model->config.losses[output]);
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    if (!cls->classes || (t->shape.rank >= 2 && mirt__last_dim(t) >= 2)) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "%s needs an output of (rows, classes) or (rows, ..., classes); %s is %s",
                      cls->name, mirt__output_name(model, output), mirt__shape_text(&t->shape, text));
}

MIRT__LIB mirt_status mirt__losses_check(mirt_model *model) {
    if (!mirt__loss_class_get(model->config.loss))
        return mirt__fail(MIRT_E_INVALID, "invalid loss (%d)", (int)model->config.loss);
    for (int i = 0; i < model->num_outputs; i++) {
        if (mirt__loss_check(model, i) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

static mirt_activation_kind mirt__last_activation(const mirt__node *node) {
    return node->id == MIRT__OP_softmax ? MIRT_SOFTMAX : mirt__activation_of(node);
}

MIRT_API mirt_scores mirt_output_scores(const mirt_model *model, int output) {
    if (!model || output < 0 || output >= model->num_outputs) return MIRT_SCORES_OTHER;
    const mirt__node *node = model->output[output]->node;
    while (node->op->alias) node = node->in[0]->node; /* flattening keeps the numbers */
    const mirt_activation_kind activation = mirt__last_activation(node);
    if (activation == MIRT_SIGMOID || activation == MIRT_SOFTMAX) return MIRT_SCORES_PROBABILITIES;
    const mirt__loss_class *cls = model->compiled ? mirt__output_loss(model, output) : NULL;
    const bool entropy = cls && cls->undo != MIRT_LINEAR, logits = model->compiled && model->config.from_logits;
    if (!logits) return entropy ? MIRT_SCORES_PROBABILITIES : MIRT_SCORES_OTHER;
    const bool one = entropy ? cls->undo == MIRT_SIGMOID : mirt__last_dim(model->output[output]) == 1;
    return one ? MIRT_SCORES_SIGMOID_LOGITS : MIRT_SCORES_SOFTMAX_LOGITS;
}

/* Treating probabilities as logits, or a layer's plain sums as probabilities, trains badly without an error. */
MIRT__LIB void mirt__losses_warn(const mirt_model *model) {
    for (int i = 0; i < model->num_outputs; i++) {
        const mirt__loss_class *cls = mirt__output_loss(model, i);
        const mirt__node *node = model->output[i]->node;
        const char *name = node->name ? node->name : model->name,
                   *softmax = cls && cls->undo == MIRT_SIGMOID ? "sigmoid" : "softmax";
        if (!cls || cls->undo == MIRT_LINEAR) continue;
        if (model->config.from_logits && mirt__last_activation(node) == cls->undo) {
            mirt__log(model->strategy, MIRT_LOG_WARNING,
                      "%s: from_logits is set, but %s ends in a %s: the loss uses the input of the %s; leave out one "
                      "of the two",
                      model->name, name, softmax, softmax);
        } else if (!model->config.from_logits && node->op->weighted_sum) {
            mirt__log(model->strategy, MIRT_LOG_WARNING,
                      "%s: %s takes probabilities, but %s has no activation: give it MIRT_%s, or set from_logits",
                      model->name, cls->name, name, cls->undo == MIRT_SIGMOID ? "SIGMOID" : "SOFTMAX");
        }
    }
}

MIRT__LIB mirt_tensor *mirt__labels_form(bool sparse, mirt_tensor *labels, const mirt_tensor *output) {
    mirt_shape shape = output->shape;
    if (!labels) return NULL;
    if (sparse) shape.rank--;
    labels = mirt_cast(labels, sparse ? MIRT_INT32 : MIRT_FLOAT32);
    return labels && mirt__shape_count(&labels->shape) == mirt__shape_count(&shape) ? mirt__reshape_op(labels, &shape)
                                                                                    : labels;
}

/* If probabilities come directly from the loss's own activation (softmax, sigmoid), the loss is computed from the input
   of that activation, which is more accurate; also with from_logits, since the output is not logits. Keras does the
   same. */
static mirt_tensor *mirt__loss_input(const mirt__loss_class *cls, mirt_tensor *output, bool *from_logits) {
    const mirt__node *node = output->node;
    if (cls->undo == MIRT_LINEAR || mirt__last_activation(node) != cls->undo) return output;
    *from_logits = true;
    return node->in[0];
}

MIRT__LIB mirt_tensor *mirt__loss_of(mirt_loss loss, bool from_logits, mirt_tensor *output, mirt_tensor *labels) {
    const mirt__loss_class *cls = &mirt__loss_table[loss];
    mirt_tensor *x = mirt__loss_input(cls, output, &from_logits);
    return mirt__loss_op(loss, from_logits, x, mirt__labels_form(cls->sparse, labels, output));
}

MIRT__LIB mirt_tensor *mirt__custom_result(const char *kind, const char *name, const mirt_tensor *output,
                                           mirt_tensor *value, bool fits, const char *want) {
    mirt__graph *graph = output->node->graph;
    char text[96];
    if (graph->status != MIRT_OK) {
        mirt__fail(graph->status, "the custom %s %s: %s", kind, name, graph->error);
        snprintf(graph->error, sizeof graph->error, "%s", mirt_last_error());
    } else if (!value) mirt__fail(MIRT_E_CALLBACK, "the custom %s %s returned nothing", kind, name);
    else if (value->node->graph != graph)
        mirt__fail(MIRT_E_CALLBACK, "the custom %s %s returned a tensor of another model or function", kind, name);
    else if (fits && value->dtype == MIRT_FLOAT32) return value;
    else
        mirt__fail(MIRT_E_CALLBACK, "the custom %s %s returned %s %s; it must be float32: %s", kind, name,
                   mirt__dtype_name(value->dtype), mirt__shape_text(&value->shape, text), want);
    mirt__graph_poison(graph);
    return NULL;
}

MIRT__LIB mirt_tensor *mirt__loss_record(const mirt_model *model, int number, mirt_tensor *output,
                                         mirt_tensor *labels) {
    const mirt_custom_loss *custom = model->config.custom_losses[number];
    if (!custom) return mirt__loss_of(mirt__output_loss_kind(model, number), model->config.from_logits, output, labels);
    mirt_tensor *loss, *cast = mirt_cast(labels, MIRT_FLOAT32);
    {
        MIRT__OUTSIDE;
        loss = custom->record(cast, output, custom->user);
    }
    return mirt__custom_result("loss", custom->name, output, loss,
                               loss && (mirt__is_batched(&loss->shape) || mirt__shape_count(&loss->shape) == 1),
                               "one value per sample, or one number");
}
