/* The settings of mirt_compile as JSON, and back. */
#include "config.h"

MIRT__STATIC_ASSERT(MIRT__SCHEDULE_COUNT - 1 <= MIRT__MAX_CLASSES, "mirt__read_object has room for each schedule");
static const mirt__field mirt__reduction_field = MIRT__OWN_FIELD(mirt_compile_desc, REDUCTION, reduction);

/* An object of options for each output, if there are any. */
static void mirt__write_loss_options(const mirt_compile_desc *c, mirt__text *out) {
    const mirt__field *field;
    const int fields = mirt__loss_fields(&field);
    int count = 0;
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) {
        if (!mirt__fields_zero(field, fields, &c->loss_options[i])) count = i + 1;
    }
    for (int i = 0; i < count; i++) {
        mirt__text_add(out, i ? ",{" : ",\"loss_options\":[{");
        mirt__write_fields(out, field, fields, &c->loss_options[i], true);
        mirt__text_add(out, "}");
    }
    mirt__text_add(out, count ? "]" : "");
}

/* Losses and weights per output, if there are any. */
static void mirt__write_losses(const mirt_compile_desc *c, mirt__text *out) {
    int count = 0;
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) {
        if (c->losses[i] || c->loss_weights[i] != 0) count = i + 1;
    }
    if (!count) return;
    for (int i = 0; i < count; i++) {
        mirt__text_add(out, i ? "," : ",\"losses\":[");
        mirt__json_write_string(out, mirt__loss_class_get(c->losses[i])->name);
    }
    mirt__text_add(out, "],\"loss_weights\":");
    mirt__write_floats(out, c->loss_weights, count);
}

/* A name, or {"class_name", "config"} if there are options. */
static void mirt__write_metric(mirt__text *out, const char *name, const mirt_metric_options *o) {
    mirt__object_class cls = {name, NULL, 0};
    cls.num_fields = mirt__metric_fields(&cls.fields);
    if (mirt__fields_zero(cls.fields, cls.num_fields, o)) mirt__json_write_string(out, cls.name);
    else mirt__write_object(out, &cls, o);
}

/* Custom losses or metrics by name; null for an output without one. */
static void mirt__write_custom(const mirt_compile_desc *c, mirt__text *out) {
    int losses = 0;
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) losses = c->custom_losses[i] ? i + 1 : losses;
    for (int i = 0; i < losses; i++) {
        mirt__text_add(out, i ? "," : ",\"custom_losses\":[");
        if (c->custom_losses[i]) mirt__json_write_string(out, c->custom_losses[i]->name);
        else mirt__text_add(out, "null");
    }
    mirt__text_add(out, losses ? "]" : "");
    for (int i = 0; i < MIRT_MAX_METRICS && c->custom_metrics[i]; i++) {
        mirt__text_add(out, i ? "," : ",\"custom_metrics\":[");
        mirt__write_metric(out, c->custom_metrics[i]->name, &c->custom_metric_options[i]);
    }
    mirt__text_add(out, c->custom_metrics[0] ? "]" : "");
}

/* Writes the current rate; a schedule that mirt_set_learning_rate has overridden is not saved. */
static void mirt__write_optimizer(mirt__text *out, const char *weights, const mirt_optimizer *o, double rate,
                                  bool overridden) {
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    const mirt__field *common;
    const int count = mirt__optimizer_common(&common);
    mirt__text_add(out, "{");
    mirt__write_name(out, "class_name", cls->name, true);
    if (weights) mirt__write_name(out, "weights", weights, false);
    mirt__write_number(out, "learning_rate", rate, false);
    mirt__write_fields(out, cls->fields, cls->num_fields, o, false);
    mirt__write_fields(out, common, count, o, false);
    if (o->decay.kind && !overridden) {
        mirt__write_key(out, "schedule", false);
        mirt__write_object(out, &mirt__schedule_classes()[o->decay.kind], &o->decay);
    }
    mirt__text_add(out, "}");
}

/* Optimizers for some weights, if there are any. */
static void mirt__write_mapped(mirt__text *out, const mirt_model *model) {
    const mirt_optimizer *o;
    int k = 1;
    for (; (o = mirt__optimizer_number(&model->config, k)); k++) {
        mirt__text_add(out, k > 1 ? "," : ",\"optimizers\":[");
        mirt__write_optimizer(out, model->config.optimizers[k - 1].weights, o, mirt__optimizer_rate(o, model->step),
                              false);
    }
    mirt__text_add(out, k > 1 ? "]" : "");
}

MIRT__LIB void mirt__compile_write(const mirt_model *model, mirt__text *out) {
    const mirt_compile_desc *c = &model->config;
    mirt__text_add(out, "{\"optimizer\":");
    mirt__write_optimizer(out, NULL, &c->optimizer, mirt_get_learning_rate(model), model->rate_set);
    mirt__write_mapped(out, model);
    mirt__write_name(out, "loss", mirt__loss_class_get(c->loss)->name, false);
    mirt__write_losses(c, out);
    mirt__write_loss_options(c, out);
    mirt__write_custom(c, out);
    mirt__text_add(out, ",\"from_logits\":%s", c->from_logits ? "true" : "false");
    mirt__write_field(out, &mirt__reduction_field, c, false);
    mirt__text_add(out, ",\"metrics\":[");
    for (int i = 0; i < MIRT_MAX_METRICS && c->metrics[i]; i++) {
        mirt__text_add(out, i ? "," : "");
        mirt__write_metric(out, mirt__metric_class_get(c->metrics[i])->name, &c->metric_options[i]);
    }
    mirt__text_add(out, "]}");
}

/* No schedule if it is missing. */
static mirt_status mirt__schedule_read(const mirt__json *optimizer, mirt_schedule *s) {
    int kind;
    memset(s, 0, sizeof *s);
    if (!mirt__json_member(optimizer, "schedule")) return MIRT_OK;
    if (mirt__read_object(optimizer, "schedule", mirt__schedule_classes() + 1, MIRT__SCHEDULE_COUNT - 1, &kind, s) !=
        MIRT_OK)
        return mirt_last_status();
    s->kind = (mirt_schedule_kind)(kind + 1);
    return MIRT_OK;
}

static mirt_status mirt__optimizer_read(const mirt__json *json, mirt_optimizer *o) {
    const mirt__json *name = mirt__json_get(json, "class_name", MIRT__JSON_STRING);
    char label[MIRT__JSON_LABEL];
    int kind = 0;
    if (!name) return mirt_last_status();
    while (kind < MIRT__OPTIMIZER_COUNT &&
           strcmp(mirt__optimizer_class_get((mirt_optimizer_kind)kind)->name, name->string) != 0)
        kind++;
    if (kind == MIRT__OPTIMIZER_COUNT)
        return mirt__fail(MIRT_E_FORMAT, "optimizer \"%s\" is unknown to this version",
                          mirt__json_label(name->string, label));
    o->kind = (mirt_optimizer_kind)kind;
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    const mirt__field *common;
    const int count = mirt__optimizer_common(&common);
    if (mirt__read_float(json, "learning_rate", &o->learning_rate) != MIRT_OK ||
        mirt__read_fields(json, cls->fields, cls->num_fields, o) != MIRT_OK ||
        mirt__read_fields(json, common, count, o) != MIRT_OK)
        return mirt_last_status();
    return mirt__schedule_read(json, &o->decay);
}

/* May be missing. */
static mirt_status mirt__mapped_read(const mirt__json *json, mirt_compile_desc *out) {
    const mirt__json *array = mirt__json_member(json, "optimizers");
    if (!array) return MIRT_OK;
    if (array->type != MIRT__JSON_ARRAY || array->count > MIRT_MAX_OPTIMIZERS)
        return mirt__fail(MIRT_E_FORMAT, "optimizers must be an array of at most %d objects", MIRT_MAX_OPTIMIZERS);
    for (size_t i = 0; i < array->count; i++) {
        const mirt__json *weights = mirt__json_get(array->item[i], "weights", MIRT__JSON_STRING);
        if (!weights || mirt__optimizer_read(array->item[i], &out->optimizers[i].optimizer) != MIRT_OK)
            return mirt_last_status();
        out->optimizers[i].weights = weights->string;
    }
    return MIRT_OK;
}

/* The name of a metric, whose options are read; NULL with the error set. */
static const mirt__json *mirt__metric_read(const mirt__json *json, mirt_metric_options *out) {
    const mirt__field *fields;
    const int count = mirt__metric_fields(&fields);
    const mirt__json *name = json, *config = NULL;
    if (json->type == MIRT__JSON_OBJECT) {
        if (!(config = mirt__json_get(json, "config", MIRT__JSON_OBJECT)) ||
            !(name = mirt__json_get(json, "class_name", MIRT__JSON_STRING)))
            return NULL;
    }
    if (name->type != MIRT__JSON_STRING) mirt__fail(MIRT_E_FORMAT, "a metric is not a name");
    else if (!config || mirt__read_fields(config, fields, count, out) == MIRT_OK) return name;
    return NULL;
}

static mirt_status mirt__metrics_read(const mirt__json *array, mirt_compile_desc *out) {
    char label[MIRT__JSON_LABEL];
    if (array->count > MIRT_MAX_METRICS) return mirt__fail(MIRT_E_FORMAT, "more than %d metrics", MIRT_MAX_METRICS);
    for (size_t i = 0; i < array->count; i++) {
        const mirt__json *name = mirt__metric_read(array->item[i], &out->metric_options[i]);
        int m = 1;
        if (!name) return mirt_last_status();
        while (m < MIRT__METRIC_COUNT && strcmp(mirt__metric_class_get((mirt_metric)m)->name, name->string) != 0) m++;
        if (m == MIRT__METRIC_COUNT)
            return mirt__fail(MIRT_E_FORMAT, "metric \"%s\" is unknown to this version",
                              mirt__json_label(name->string, label));
        out->metrics[i] = (mirt_metric)m;
    }
    return MIRT_OK;
}

/* Losses and weights per output; may be missing. */
static mirt_status mirt__losses_read(const mirt__json *json, const char *const *names, mirt_compile_desc *out) {
    const mirt__json *losses = mirt__json_member(json, "losses"), *weights = mirt__json_member(json, "loss_weights");
    const bool arrays = losses && weights && losses->type == MIRT__JSON_ARRAY && weights->type == MIRT__JSON_ARRAY;
    if (!losses && !weights) return MIRT_OK;
    if (!arrays || losses->count != weights->count || losses->count > MIRT_MAX_OUTPUTS) {
        return mirt__fail(MIRT_E_FORMAT, "losses and loss_weights must be arrays of at most %d, one element per output",
                          MIRT_MAX_OUTPUTS);
    }
    for (size_t i = 0; i < losses->count; i++) {
        const mirt__json *name = losses->item[i], *weight = weights->item[i];
        int loss = 0;
        while (loss < MIRT__LOSS_COUNT && (name->type != MIRT__JSON_STRING || strcmp(names[loss], name->string) != 0))
            loss++;
        if (loss == MIRT__LOSS_COUNT || weight->type != MIRT__JSON_NUMBER ||
            !(fabs(weight->number) <= (double)FLT_MAX)) {
            return mirt__fail(MIRT_E_FORMAT,
                              "loss number %zu is unknown to this version, or its weight is not a number", i + 1);
        }
        out->losses[i] = (mirt_loss)loss;
        out->loss_weights[i] = (float)weight->number;
    }
    return MIRT_OK;
}

/* May be missing. */
static mirt_status mirt__loss_options_read(const mirt__json *json, mirt_compile_desc *out) {
    const mirt__json *array = mirt__json_member(json, "loss_options");
    const mirt__field *field;
    const int fields = mirt__loss_fields(&field);
    if (!array) return MIRT_OK;
    if (array->type != MIRT__JSON_ARRAY || array->count > MIRT_MAX_OUTPUTS)
        return mirt__fail(MIRT_E_FORMAT, "loss_options must be an array of at most %d objects", MIRT_MAX_OUTPUTS);
    for (size_t i = 0; i < array->count; i++) {
        if (array->item[i]->type != MIRT__JSON_OBJECT)
            return mirt__fail(MIRT_E_FORMAT, "the loss options number %zu are not an object", i + 1);
        if (mirt__read_fields(array->item[i], field, fields, &out->loss_options[i]) != MIRT_OK)
            return mirt_last_status();
    }
    return MIRT_OK;
}

/* Reads the names of custom losses, of which null stands for an output that has none, or of custom metrics; may be
   missing. */
static mirt_status mirt__custom_read(const mirt_strategy *strategy, const mirt__json *json, bool losses,
                                     mirt_compile_desc *out) {
    const char *key = losses ? "custom_losses" : "custom_metrics";
    const int most = losses ? MIRT_MAX_OUTPUTS : MIRT_MAX_METRICS;
    const mirt__json *array = mirt__json_member(json, key);
    char label[MIRT__JSON_LABEL];
    if (!array) return MIRT_OK;
    if (array->type != MIRT__JSON_ARRAY || array->count > (size_t)most)
        return mirt__fail(MIRT_E_FORMAT, "%s must be an array of at most %d names", key, most);
    for (size_t i = 0; i < array->count; i++) {
        const mirt__json *name = array->item[i];
        if (name->type == MIRT__JSON_NULL && losses) continue;
        if (!losses && !(name = mirt__metric_read(name, &out->custom_metric_options[i]))) return mirt_last_status();
        if (name->type != MIRT__JSON_STRING) return mirt__fail(MIRT_E_FORMAT, "%s must be an array of names", key);
        if (losses) out->custom_losses[i] = mirt__custom_loss_by_name(strategy, name->string);
        else out->custom_metrics[i] = mirt__custom_metric_by_name(strategy, name->string);
        if (losses ? out->custom_losses[i] != NULL : out->custom_metrics[i] != NULL) continue;
        return mirt__fail(MIRT_E_FORMAT,
                          "%s: \"%s\" is unknown: register it with mirt_register_loss or mirt_register_metric", key,
                          mirt__json_label(name->string, label));
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__compile_read(const mirt_strategy *strategy, const mirt__json *json,
                                         mirt_compile_desc *out) {
    memset(out, 0, sizeof *out);
    if (json->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the compile settings are not an object");
    const mirt__json *optimizer = mirt__json_get(json, "optimizer", MIRT__JSON_OBJECT),
                     *metrics = mirt__json_get(json, "metrics", MIRT__JSON_ARRAY);
    const char *losses[MIRT__LOSS_COUNT];
    int loss;
    for (int i = 0; i < MIRT__LOSS_COUNT; i++) losses[i] = mirt__loss_class_get((mirt_loss)i)->name;
    if (!optimizer || !metrics || mirt__optimizer_read(optimizer, &out->optimizer) != MIRT_OK ||
        mirt__mapped_read(json, out) != MIRT_OK ||
        mirt__read_name(json, "loss", losses, MIRT__LOSS_COUNT, &loss) != MIRT_OK ||
        mirt__read_field(json, &mirt__reduction_field, out) != MIRT_OK ||
        mirt__read_bool(json, "from_logits", &out->from_logits) != MIRT_OK) {
        return mirt_last_status();
    }
    out->loss = (mirt_loss)loss;
    if (mirt__losses_read(json, losses, out) != MIRT_OK || mirt__loss_options_read(json, out) != MIRT_OK ||
        mirt__metrics_read(metrics, out) != MIRT_OK ||
        mirt__custom_read(strategy, json, true, out) != MIRT_OK)
        return mirt_last_status();
    return mirt__custom_read(strategy, json, false, out);
}
