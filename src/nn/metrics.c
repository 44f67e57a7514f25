#include "../ops/ops.h"
#include "model.h"
/* Adds up metrics over samples and reads their values. */

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

typedef struct mirt__output_label {
    char text[420];
} mirt__output_label;

/* What logs call an output: the layer that made it, with a number if it made another one before. */
static mirt__output_label mirt__label_of_output(const mirt_model *model, int output) {
    mirt__output_label label;
    const mirt__layer *layer = mirt__output_layer(model, output);
    int same = 0; /* earlier outputs made by the same layer */
    for (int i = 0; layer && i < output; i++) same += mirt__output_layer(model, i) == layer;
    if (layer && !same) snprintf(label.text, sizeof label.text, "%s", layer->name);
    else if (layer) snprintf(label.text, sizeof label.text, "%s_%d", layer->name, same);
    else snprintf(label.text, sizeof label.text, "output_%d", output);
    return label;
}

/* "accuracy"; in a model with several outputs "digit_accuracy". */
static const char *mirt__log_name(mirt_model *model, int output, const char *before, const char *name) {
    char full[900];
    if (model->num_outputs == 1) snprintf(full, sizeof full, "%s%s", before, name);
    else snprintf(full, sizeof full, "%s%s_%s", before, mirt__label_of_output(model, output).text, name);
    return mirt__pool_strdup(&model->graph.pool, full);
}

/* "auc", or "auc_1" if the output already has one; then "weighted_auc" of a weighted one, as in Keras. */
static const char *mirt__metric_name(mirt_model *model, int output, bool weighted, const char *name, char *text,
                                     size_t size) {
    int same = 0;
    bool again = weighted;
    snprintf(text, size, "%s", name);
    for (int i = 0; i < model->num_metrics; i++) {
        if (model->metric[i].output != output || strcmp(model->metric[i].own_name, text) != 0) continue;
        if (again) snprintf(text, size, "weighted_%.370s", name);
        else snprintf(text, size, "%s%.370s_%d", weighted ? "weighted_" : "", name, ++same);
        again = false;
        i = -1;
    }
    return mirt__pool_strdup(&model->graph.pool, text);
}

/* Whether there is an output of this name with a loss. */
static mirt_status mirt__output_named(const mirt_model *model, const char *name) {
    char names[600];
    size_t used = 0;
    names[0] = 0;
    for (int i = 0; i < model->num_outputs; i++) {
        const mirt__output_label label = mirt__label_of_output(model, i);
        if (!mirt__output_has_loss(model, i)) continue;
        if (strcmp(label.text, name) == 0) return MIRT_OK;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%.60s", used ? ", " : "", label.text);
    }
    return mirt__fail(MIRT_E_INVALID, "%s has no output \"%s\" with a loss; there are: %s", model->name, name, names);
}

/* Checks options and copies their texts. */
static mirt_status mirt__options_take(mirt_model *model, mirt_metric_options *o) {
    if (o->output && mirt__output_named(model, o->output) != MIRT_OK) return mirt_last_status();
    if (o->output && !(o->output = mirt__pool_strdup(&model->graph.pool, o->output))) return MIRT_E_NOMEM;
    if ((int)o->average < 0 || o->average > MIRT_WEIGHTED)
        return mirt__fail(MIRT_E_INVALID, "invalid average (%d)", (int)o->average);
    if (o->class_id < 0) return mirt__fail(MIRT_E_INVALID, "class_id is %d; it must not be negative", o->class_id);
    if (o->num_classes < 0 || o->num_classes == 1)
        return mirt__fail(MIRT_E_INVALID, "num_classes is %d; it must be at least 2", o->num_classes);
    if (!mirt__loss_class_get(o->loss)) return mirt__fail(MIRT_E_INVALID, "invalid loss (%d)", (int)o->loss);
    if (o->k < 0) return mirt__fail(MIRT_E_INVALID, "k is %d; it must be at least 1", o->k);
    if (!isfinite(o->threshold))
        return mirt__fail(MIRT_E_INVALID, "the threshold is %g; it must be finite", (double)o->threshold);
    if (o->num_thresholds && (o->num_thresholds < 2 || o->num_thresholds > 100000))
        return mirt__fail(MIRT_E_INVALID, "%d thresholds; the number must be 2 to 100000", o->num_thresholds);
    if (!(o->beta >= 0 && o->beta <= FLT_MAX))
        return mirt__fail(MIRT_E_INVALID, "beta is %g; it must be positive and finite", (double)o->beta);
    if (!(o->at >= 0 && o->at <= 1))
        return mirt__fail(MIRT_E_INVALID, "`at` is %g; it must be 0 to 1", (double)o->at);
    if ((int)o->curve < 0 || o->curve > MIRT_PR)
        return mirt__fail(MIRT_E_INVALID, "invalid curve (%d)", (int)o->curve);
    if (o->name && !(*o->name && mirt__custom_named(o->name)))
        return mirt__fail(MIRT_E_INVALID, "its name in logs must be UTF-8 and not empty");
    if (o->name && !(o->name = mirt__pool_strdup(&model->graph.pool, o->name))) return MIRT_E_NOMEM;
    return MIRT_OK;
}

/* The name in logs, unless another metric of the output has it. */
static const char *mirt__metric_own_name(const mirt__metric_use *use) {
    return use->options.name                  ? use->options.name
           : use->metric == MIRT_METRIC_LOSS ? mirt__loss_class_get(use->options.loss)->name
           : use->cls                         ? use->cls->name
                                              : use->custom.name;
}

static mirt_status mirt__metric_use_add(mirt_model *model, int output, mirt_metric metric,
                                        const mirt_metric_options *options, const mirt_custom_metric *custom) {
    char text[400];
    if (model->num_metrics == MIRT__MAX_METRIC_USES)
        return mirt__fail(MIRT_E_INVALID, "%s has more than %d metrics in all", model->name, MIRT__MAX_METRIC_USES);
    mirt__metric_use *use = &model->metric[model->num_metrics];
    memset(use, 0, sizeof *use);
    use->output = output;
    use->metric = metric;
    use->cls = mirt__metric_class_get(metric);
    if (custom) use->custom = *custom;
    use->options = *options;
    mirt__metric_settle(model, use);
    use->own_name =
        mirt__metric_name(model, output, options->weighted, mirt__metric_own_name(use), text, sizeof text);
    if (!use->own_name) return mirt_last_status();
    use->name = mirt__log_name(model, output, "", use->own_name);
    use->val_name = mirt__log_name(model, output, "val_", use->own_name);
    if (!use->name || !use->val_name) return mirt_last_status();
    model->num_metrics++;
    return use->cls ? mirt__metric_check(model, use) : MIRT_OK;
}

/* Adds the output's weighted or other metrics. */
static mirt_status mirt__output_metrics_add(mirt_model *model, int output, bool weighted) {
    const mirt_compile_desc *c = &model->config;
    const mirt__output_label label = mirt__label_of_output(model, output);
    for (int own = 0; own < 2; own++) {
        for (int i = 0; i < MIRT_MAX_METRICS && (own ? c->custom_metrics[i] != NULL : c->metrics[i] != 0); i++) {
            const mirt_metric_options *o = own ? &c->custom_metric_options[i] : &c->metric_options[i];
            if (o->weighted != weighted || (o->output && strcmp(o->output, label.text) != 0)) continue;
            if (mirt__metric_use_add(model, output, own ? MIRT_METRIC_NONE : c->metrics[i], o,
                                     own ? c->custom_metrics[i] : NULL) != MIRT_OK)
                return mirt_last_status();
        }
    }
    return MIRT_OK;
}

static mirt_status mirt__output_metrics(mirt_model *model, int output) {
    if (!(model->loss_name[output] = mirt__log_name(model, output, "", "loss")) ||
        !(model->val_loss_name[output] = mirt__log_name(model, output, "val_", "loss"))) {
        return mirt_last_status();
    }
    return mirt__output_metrics_add(model, output, false) == MIRT_OK
               ? mirt__output_metrics_add(model, output, true) /* in logs after the others, as in Keras */
               : mirt_last_status();
}

/* Checks built-in and custom metrics, whose copies become the model's. */
static mirt_status mirt__metrics_take(mirt_model *model) {
    mirt_compile_desc *c = &model->config;
    for (int own = 0; own < 2; own++) {
        for (int i = 0; i < MIRT_MAX_METRICS && (own ? c->custom_metrics[i] != NULL : c->metrics[i] != 0); i++) {
            const mirt__metric_class *cls = own ? NULL : mirt__metric_class_get(c->metrics[i]);
            if (!own && !cls) return mirt__fail(MIRT_E_INVALID, "invalid metric (%d)", (int)c->metrics[i]);
            const mirt_custom_metric *custom =
                own ? mirt__custom_metric_of(model->strategy, c->custom_metrics[i]) : NULL;
            if (own && !custom) return mirt__fail_at("metric number %d", i + 1);
            if (own) c->custom_metrics[i] = custom;
            const mirt_status status = mirt__options_take(model, own ? &c->custom_metric_options[i]
                                                                     : &c->metric_options[i]);
            if (status == MIRT_E_INVALID) mirt__fail_at("%s", own ? custom->name : cls->name);
            if (status != MIRT_OK) return status;
        }
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__metrics_collect(mirt_model *model) {
    model->num_metrics = 0;
    if (mirt__metrics_take(model) != MIRT_OK) return mirt_last_status();
    for (int i = 0; i < model->num_outputs; i++) {
        if (mirt__output_has_loss(model, i) && mirt__output_metrics(model, i) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_set_metrics(mirt_model *model, const mirt_metric *metrics, const mirt_metric_options *options,
                                      int count) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__metric_use before[MIRT__MAX_METRIC_USES];
    if (!model) return mirt__fail_missing("mirt_set_metrics", "model");
    if (!model->compiled)
        return mirt__fail(MIRT_E_STATE, "mirt_set_metrics: %s is not compiled; call mirt_compile first", model->name);
    if (model->busy)
        return mirt__fail(MIRT_E_STATE,
                          "%s is being trained or recorded; call mirt_set_metrics after that call returns",
                          model->name);
    if (count < 0 || count > MIRT_MAX_METRICS || (count && !metrics))
        return mirt__fail(MIRT_E_INVALID, "mirt_set_metrics: %d metrics; at most %d are allowed", count,
                          MIRT_MAX_METRICS);
    const mirt_compile_desc config = model->config;
    const int num = model->num_metrics;
    memcpy(before, model->metric, sizeof before);
    memset(model->config.metrics, 0, sizeof model->config.metrics);
    memset(model->config.metric_options, 0, sizeof model->config.metric_options);
    for (int i = 0; i < count; i++) {
        model->config.metrics[i] = metrics[i];
        if (options) model->config.metric_options[i] = options[i];
    }
    if (mirt__metrics_collect(model) == MIRT_OK) {
        mirt__trainer_drop(model);
        return MIRT_OK;
    }
    model->config = config;
    model->num_metrics = num;
    memcpy(model->metric, before, sizeof before);
    return mirt_last_status();
}

MIRT__LIB int mirt__metric_fields(const mirt__field **fields) {
#define MIRT__OPTION(kind, member) MIRT__OPTIONAL_FIELD(mirt_metric_options, kind, member)
    static const mirt__field list[] = {
        MIRT__OPTION(INT, k), MIRT__OPTION(FLOAT, threshold), MIRT__OPTION(INT, num_thresholds),
        MIRT__OPTION(BOOL, from_logits), MIRT__OPTION(BOOL, has_threshold), MIRT__OPTION(CURVE, curve),
        MIRT__OPTION(TEXT, name), MIRT__OPTION(AVERAGE, average), MIRT__OPTION(BOOL, weighted),
        MIRT__OPTION(TEXT, output), MIRT__OPTION(INT, class_id), MIRT__OPTION(BOOL, has_class_id),
        MIRT__OPTION(INT, num_classes), MIRT__OPTION(SIGNED, ignore_class), MIRT__OPTION(BOOL, has_ignore_class),
        MIRT__OPTION(BOOL, sparse_y_pred), MIRT__OPTION(LOSS, loss), MIRT__OPTION(FLOAT, beta),
        MIRT__OPTION(FLOAT, at), MIRT__OPTION(INT, target_classes)};
#undef MIRT__OPTION
    *fields = list;
    return MIRT__COUNT(list);
}

MIRT__LIB bool mirt__metric_shares(const mirt__metric_use *a, const mirt__metric_use *b) {
    return mirt__metric_sums(a) && mirt__metric_sums(b) && a->output == b->output &&
           a->options.from_logits == b->options.from_logits;
}

/* Predictions in the form that the metric takes: probabilities if its options say that the outputs are logits. */
static mirt_tensor *mirt__metric_scores(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output) {
    const mirt__loss_class *loss = mirt__output_loss(model, use->output);
    const bool probabilities =
        mirt_output_scores(model, use->output) == MIRT_SCORES_PROBABILITIES; /* by an activation */
    if (!use->options.from_logits || !mirt__output_logits(model, use->output) || probabilities) return output;
    if (!loss || loss->undo != MIRT_SOFTMAX) return mirt__activation_op(MIRT_SIGMOID, output);
    /* Rounding in a softmax could make the largest scores equal. */
    return use->metric == MIRT_ACCURACY ? output : mirt_softmax(output);
}

/* Records a counting metric on predictions and unconverted labels. */
static mirt_tensor *mirt__counted_record(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output,
                                         const mirt_tensor *labels) {
    const int64_t have = mirt__shape_count(&labels->shape), values = use->positions * use->n;
    const bool values_only = use->cls->takes == MIRT__TAKES_VALUES && use->metric != MIRT_BINARY_ACCURACY;
    const bool one_hot = use->cls->count && use->n == 1 && use->options.sparse_y_pred && have == values * use->groups;
    if (have == values || one_hot || (have == use->positions && !values_only))
        return mirt__metric_scores(model, use, output);
    mirt__fail(MIRT_E_SHAPE, "%s of %s compares %lld values per sample; the labels have %lld", use->cls->name,
               mirt__output_name(model, use->output), (long long)values, (long long)have);
    return NULL;
}

MIRT__LIB mirt_tensor *mirt__metric_record(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output,
                                           mirt_tensor *labels) {
    if (use->cls && use->cls->count) return mirt__counted_record(model, use, output, labels);
    if (use->metric == MIRT_METRIC_LOSS) return use->cls->record(model, use, output, labels);
    if (use->cls) return use->cls->record(model, use, mirt__metric_scores(model, use, output), labels);
    mirt_tensor *value, *cast = mirt_cast(labels, MIRT_FLOAT32);
    {
        MIRT__OUTSIDE;
        value = use->custom.record(cast, output, use->custom.user);
    }
    return mirt__custom_result("metric", use->name, output, value,
                               value && mirt__is_batched(&value->shape) && value->shape.rank <= 2,
                               "(rows) or (rows, n)");
}

MIRT__LIB void mirt__metrics_warn(mirt_model *model) {
    for (int i = 0; i < model->num_metrics && !model->threshold_warned; i++) {
        const mirt__metric_use *use = &model->metric[i];
        const mirt__loss_class *loss = mirt__output_loss(model, use->output);
        const mirt__node *node = model->output[use->output]->node;
        const bool sums = node->op->weighted_sum, sigmoid = loss && loss->undo == MIRT_SIGMOID;
        const bool logits = sigmoid && mirt_output_scores(model, use->output) == MIRT_SCORES_SIGMOID_LOGITS;
        if (!use->cls || !mirt__metric_compares(model, use) || (!logits && (!sums || sigmoid))) continue;
        model->threshold_warned = true;
        mirt__log(model->strategy, MIRT_LOG_WARNING,
                  "%s counts outputs above 0.5 as ones, but those of %s are %s: give it MIRT_SIGMOID%s", use->name,
                  mirt__output_name(model, use->output),
                  logits ? "logits, whose threshold is 0" : "sums of a layer without an activation",
                  logits ? " and leave out from_logits" : "");
    }
}
