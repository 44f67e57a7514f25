/* Writes and reads settings of layers, optimizers and metrics as JSON. */

#include "config.h"
#include "../ops/ops.h"

static const char *const mirt__training_names[] = {"auto", "on", "off"};
static const char *const mirt__padding_names[] = {"valid", "same"};
static const char *const mirt__flip_names[] = {"horizontal_and_vertical", "horizontal", "vertical"};
static const char *const mirt__fill_names[] = {"reflect", "constant", "wrap", "nearest"};
static const char *const mirt__interpolation_names[MIRT__INTERPOLATION_COUNT] = {
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"};
static const char *const mirt__fan_names[] = {"fan_in", "fan_out", "fan_avg"};
static const char *const mirt__distribution_names[] = {"truncated_normal", "untruncated_normal", "uniform"};
static const char *const mirt__curve_names[] = {"ROC", "PR"};
static const char *const mirt__reduction_names[] = {"sum_over_batch_size", "sum"};
static const char *const mirt__initializer_names[MIRT__INIT_COUNT] = {
    "Default", "Zeros", "Ones", "Constant", "RandomUniform", "RandomNormal", "TruncatedNormal", "VarianceScaling"};
/* Keras's names of an initializer's parameters a and b. */
static const char *const mirt__initializer_a[MIRT__INIT_COUNT] = {NULL,     NULL,   NULL,   "value",
                                                                  "minval", "mean", "mean", "scale"};
static const char *const mirt__initializer_b[MIRT__INIT_COUNT] = {NULL,     NULL,     NULL,     NULL,
                                                                  "maxval", "stddev", "stddev", NULL};

/* >>writing */

MIRT__LIB void mirt__write_key(mirt__text *out, const char *key, bool first) {
    mirt__text_add(out, first ? "" : ",");
    mirt__json_write_string(out, key);
    mirt__text_add(out, ":");
}

MIRT__LIB void mirt__write_name(mirt__text *out, const char *key, const char *value, bool first) {
    mirt__write_key(out, key, first);
    mirt__json_write_string(out, value);
}

static void mirt__write_number(mirt__text *out, const char *key, double value, bool first) {
    mirt__write_key(out, key, first);
    mirt__json_write_number(out, value);
}

static void mirt__write_initializer(mirt__text *out, const mirt_initializer *i) {
    mirt__text_add(out, "{");
    mirt__write_name(out, "class_name", mirt__initializer_names[i->kind], true);
    mirt__write_key(out, "config", false);
    mirt__text_add(out, "{");
    bool first = true;
    if (mirt__initializer_a[i->kind])
        mirt__write_number(out, mirt__initializer_a[i->kind], (double)i->a, first), first = false;
    if (mirt__initializer_b[i->kind]) mirt__write_number(out, mirt__initializer_b[i->kind], (double)i->b, first);
    if (i->kind == MIRT_INIT_VARIANCE_SCALING) {
        mirt__write_name(out, "mode", mirt__fan_names[i->mode], false);
        mirt__write_name(out, "distribution", mirt__distribution_names[i->distribution], false);
    }
    mirt__text_add(out, "}}");
}

static void mirt__write_dims(mirt__text *out, const int64_t *dim, int count) {
    mirt__text_add(out, "[");
    for (int i = 0; i < count; i++) mirt__text_add(out, "%s%lld", i ? "," : "", (long long)dim[i]);
    mirt__text_add(out, "]");
}

static void mirt__write_floats(mirt__text *out, const float *number, int count) {
    for (int i = 0; i < count; i++) {
        mirt__text_add(out, i ? "," : "[");
        mirt__json_write_number(out, (double)number[i]);
    }
    mirt__text_add(out, "]");
}

static void mirt__write_regularizer(mirt__text *out, const mirt_regularizer *r) {
    if (r->l1 == 0 && r->l2 == 0) {
        mirt__text_add(out, "null");
        return;
    }
    mirt__text_add(out, "{\"class_name\":\"L1L2\",\"config\":{");
    mirt__write_number(out, "l1", (double)r->l1, true);
    mirt__write_number(out, "l2", (double)r->l2, false);
    mirt__text_add(out, "}}");
}

MIRT__LIB void mirt__write_field(mirt__text *out, const mirt__field *field, const char *desc, bool first) {
    const void *at = desc + field->offset;
    mirt__write_key(out, field->name, first);
    switch (field->kind) {
    case MIRT__FIELD_INT:
    case MIRT__FIELD_SIGNED: mirt__text_add(out, "%d", *(const int *)at); break;
    case MIRT__FIELD_INT2X2:
        mirt__text_add(out, "[[%d,%d],[%d,%d]]", ((const int *)at)[0], ((const int *)at)[1], ((const int *)at)[2],
                       ((const int *)at)[3]);
        break;
    case MIRT__FIELD_INT2: mirt__text_add(out, "[%d,%d]", ((const int *)at)[0], ((const int *)at)[1]); break;
    case MIRT__FIELD_INT64: mirt__text_add(out, "%lld", (long long)*(const int64_t *)at); break;
    case MIRT__FIELD_FLOAT: mirt__json_write_number(out, (double)*(const float *)at); break;
    case MIRT__FIELD_LIMIT:
        if (isfinite(*(const float *)at)) mirt__json_write_number(out, (double)*(const float *)at);
        else mirt__json_write_string(out, isnan(*(const float *)at) ? "nan" : *(const float *)at > 0 ? "inf" : "-inf");
        break;
    case MIRT__FIELD_DOUBLE: mirt__json_write_number(out, *(const double *)at); break;
    case MIRT__FIELD_DTYPE: mirt__json_write_string(out, mirt__dtype_name(*(const mirt_dtype *)at)); break;
    case MIRT__FIELD_TRAINING: mirt__json_write_string(out, mirt__training_names[*(const mirt_training *)at]); break;
    case MIRT__FIELD_BOOL: mirt__text_add(out, "%s", *(const bool *)at ? "true" : "false"); break;
    case MIRT__FIELD_NO: mirt__text_add(out, "%s", *(const bool *)at ? "false" : "true"); break;
    case MIRT__FIELD_PADDING: mirt__json_write_string(out, mirt__padding_names[*(const mirt_padding *)at]); break;
    case MIRT__FIELD_ACTIVATION:
        mirt__json_write_string(out, mirt__activation_get(*(const mirt_activation_kind *)at)->name);
        break;
    case MIRT__FIELD_INITIALIZER: mirt__write_initializer(out, (const mirt_initializer *)at); break;
    case MIRT__FIELD_REGULARIZER: mirt__write_regularizer(out, (const mirt_regularizer *)at); break;
    case MIRT__FIELD_CHANNELS: mirt__write_floats(out, (const float *)at, MIRT_MAX_CHANNELS); break;
    case MIRT__FIELD_FLOAT2: mirt__write_floats(out, (const float *)at, 2); break;
    case MIRT__FIELD_FLIP: mirt__json_write_string(out, mirt__flip_names[*(const mirt_flip_mode *)at]); break;
    case MIRT__FIELD_FILL: mirt__json_write_string(out, mirt__fill_names[*(const mirt_fill_mode *)at]); break;
    case MIRT__FIELD_INTERPOLATION:
        mirt__json_write_string(out, mirt__interpolation_names[*(const mirt_interpolation *)at]);
        break;
    case MIRT__FIELD_NOISE:
        if (!((const mirt_shape *)at)->rank) mirt__text_add(out, "null");
        else mirt__write_dims(out, ((const mirt_shape *)at)->dim, ((const mirt_shape *)at)->rank);
        break;
    case MIRT__FIELD_SHAPE:
    case MIRT__FIELD_DIMS: mirt__write_dims(out, ((const mirt_shape *)at)->dim, ((const mirt_shape *)at)->rank); break;
    case MIRT__FIELD_AXES: mirt__write_dims(out, (const int64_t *)at, MIRT_MAX_RANK); break;
    }
}

/* Losses and weights per output, if there are any. */
static void mirt__write_losses(const mirt_compile_desc *c, mirt__text *out) {
    int count = 0;
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) {
        if (c->losses[i] || c->loss_weights[i] != 0) count = i + 1;
    }
    for (int i = 0; i < count; i++) {
        mirt__text_add(out, i ? "," : ",\"losses\":[");
        mirt__json_write_string(out, mirt__loss_name(c->losses[i]));
    }
    for (int i = 0; i < count; i++) {
        mirt__text_add(out, i ? "," : "],\"loss_weights\":[");
        mirt__json_write_number(out, (double)c->loss_weights[i]);
    }
    if (count) mirt__text_add(out, "]");
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
        mirt__json_write_string(out, c->custom_metrics[i]->name);
    }
    mirt__text_add(out, c->custom_metrics[0] ? "]" : "");
}

static void mirt__write_schedule(mirt__text *out, const mirt_schedule *s) {
    const mirt__schedule_class *cls = mirt__schedule_class_get(s->kind);
    mirt__text_add(out, ",\"schedule\":{");
    mirt__write_name(out, "class_name", cls->class_name, true);
    mirt__text_add(out, ",\"config\":{");
    for (int i = 0; i < cls->num_fields; i++) mirt__write_field(out, &cls->fields[i], (const char *)s, i == 0);
    if (!cls->fields) {
        mirt__text_add(out, "\"boundaries\":");
        mirt__write_dims(out, s->boundary, s->boundaries);
        mirt__text_add(out, ",\"values\":");
        mirt__write_floats(out, s->value, s->boundaries + 1);
    }
    mirt__text_add(out, "}}");
}

static bool mirt__field_is_zero(const mirt__field *field, const void *at) {
    if (field->kind == MIRT__FIELD_FLOAT) return *(const float *)at == 0;
    if (field->kind == MIRT__FIELD_INT) return *(const int *)at == 0;
    return field->kind == MIRT__FIELD_BOOL ? !*(const bool *)at : *(const int64_t *)at == 0;
}

/* Writes the current rate; a schedule that mirt_set_learning_rate has overridden is not saved. */
static void mirt__write_optimizer(mirt__text *out, const mirt_model *model) {
    const mirt_optimizer *o = &model->config.optimizer;
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    int common;
    const mirt__field *field = mirt__optimizer_common(&common);
    mirt__text_add(out, "{");
    mirt__write_name(out, "class_name", cls->name, true);
    mirt__write_number(out, "learning_rate", mirt_get_learning_rate(model), false);
    for (int i = 0; i < cls->num_fields; i++) mirt__write_field(out, &cls->fields[i], (const char *)o, false);
    for (int i = 0; i < common; i++) {
        if (!mirt__field_is_zero(&field[i], (const char *)o + field[i].offset))
            mirt__write_field(out, &field[i], (const char *)o, false);
    }
    if (o->exclude_from_weight_decay)
        mirt__write_name(out, "exclude_from_weight_decay", o->exclude_from_weight_decay, false);
    if (o->decay.kind && !model->rate_set) mirt__write_schedule(out, &o->decay);
    mirt__text_add(out, "}");
}

/* A name, or {"class_name", "config"} if there are options. */
static void mirt__write_metric(mirt__text *out, mirt_metric metric, const mirt_metric_options *o) {
    const char *name = mirt__metric_class_get(metric)->name;
    int count, written = 0;
    const mirt__field *field = mirt__metric_fields(&count);
    bool plain = !o->name && o->curve == MIRT_ROC;
    for (int i = 0; i < count; i++) plain = plain && mirt__field_is_zero(&field[i], (const char *)o + field[i].offset);
    if (plain) {
        mirt__json_write_string(out, name);
        return;
    }
    mirt__text_add(out, "{");
    mirt__write_name(out, "class_name", name, true);
    mirt__text_add(out, ",\"config\":{");
    for (int i = 0; i < count; i++) {
        if (!mirt__field_is_zero(&field[i], (const char *)o + field[i].offset))
            mirt__write_field(out, &field[i], (const char *)o, written++ == 0);
    }
    if (o->curve) mirt__write_name(out, "curve", mirt__curve_names[o->curve], written++ == 0);
    if (o->name) mirt__write_name(out, "name", o->name, written++ == 0);
    mirt__text_add(out, "}}");
}

MIRT__LIB void mirt__compile_write(const mirt_model *model, mirt__text *out) {
    const mirt_compile_desc *c = &model->config;
    mirt__text_add(out, "{\"optimizer\":");
    mirt__write_optimizer(out, model);
    mirt__write_name(out, "loss", mirt__loss_name(c->loss), false);
    mirt__write_losses(c, out);
    mirt__write_custom(c, out);
    mirt__text_add(out, ",\"from_logits\":%s", c->from_logits ? "true" : "false");
    mirt__write_name(out, "reduction", mirt__reduction_names[c->reduction], false);
    mirt__text_add(out, ",\"metrics\":[");
    for (int i = 0; i < MIRT_MAX_METRICS && c->metrics[i]; i++) {
        mirt__text_add(out, i ? "," : "");
        mirt__write_metric(out, c->metrics[i], &c->metric_options[i]);
    }
    mirt__text_add(out, "]}");
}

/* >>reading */

/* The index of a string member among `names`. */
static mirt_status mirt__read_name(const mirt__json *object, const char *key, const char *const *names, int count,
                                   int *out) {
    const mirt__json *value = mirt__json_get(object, key, MIRT__JSON_STRING);
    char label[MIRT__JSON_LABEL];
    if (!value) return mirt_last_status();
    for (*out = 0; *out < count; ++*out) {
        if (strcmp(names[*out], value->string) == 0) return MIRT_OK;
    }
    return mirt__fail(MIRT_E_FORMAT, "%s is \"%s\", which is unknown to this version", key,
                      mirt__json_label(value->string, label));
}

static mirt_status mirt__read_float(const mirt__json *object, const char *key, float *out) {
    const mirt__json *value = mirt__json_get(object, key, MIRT__JSON_NUMBER);
    if (!value) return mirt_last_status();
    *out = (float)value->number;
    return isfinite(*out) ? MIRT_OK : mirt__fail(MIRT_E_FORMAT, "%s is out of range for float32", key);
}

static mirt_status mirt__read_bool(const mirt__json *object, const char *key, bool *out) {
    const mirt__json *value = mirt__json_get(object, key, MIRT__JSON_BOOL);
    if (!value) return mirt_last_status();
    *out = value->truth;
    return MIRT_OK;
}

static mirt_status mirt__read_int(const mirt__json *object, const char *key, int minimum, int *out) {
    int64_t value;
    if (mirt__json_get_int(object, key, minimum, INT_MAX, &value) != MIRT_OK) return mirt_last_status();
    *out = (int)value;
    return MIRT_OK;
}

/* Reads an array of `minimum` to `maximum` integers, each from `low` to `high`; returns their number, or -1. */
static int mirt__read_ints(const mirt__json *object, const char *key, int64_t *out, int minimum, int maximum,
                           int64_t low, int64_t high) {
    const mirt__json *array = mirt__json_get(object, key, MIRT__JSON_ARRAY);
    const char *what = low == 1 ? "positive integers" : low == 0 ? "non-negative integers" : "integers in range";
    if (!array) return -1;
    bool good = array->count >= (size_t)minimum && array->count <= (size_t)maximum;
    for (size_t i = 0; good && i < array->count; i++) {
        const mirt__json *item = array->item[i];
        good = item->type == MIRT__JSON_NUMBER && item->integral && item->integer >= low && item->integer <= high;
        if (good) out[i] = item->integer;
    }
    if (good) return (int)array->count;
    if (minimum == maximum) mirt__fail(MIRT_E_FORMAT, "%s must be %d %s", key, minimum, what);
    else mirt__fail(MIRT_E_FORMAT, "%s must be %d to %d %s", key, minimum, maximum, what);
    return -1;
}

/* Reads an int64_t, which JSON represents exactly. */
static mirt_status mirt__read_int64(const mirt__json *object, const char *key, int64_t *out) {
    return mirt__json_get_int(object, key, INT64_MIN, INT64_MAX, out);
}

static mirt_status mirt__read_limit(const mirt__json *object, const char *key, float *out) {
    static const char *const names[] = {"inf", "-inf", "nan"};
    const mirt__json *value = mirt__json_member(object, key);
    if (!value || value->type != MIRT__JSON_STRING) return mirt__read_float(object, key, out);
    *out = value->string[0] == '-' ? -INFINITY : value->string[0] == 'n' ? NAN : INFINITY;
    for (int i = 0; i < 3; i++) {
        if (strcmp(names[i], value->string) == 0) return MIRT_OK;
    }
    return mirt__fail(MIRT_E_FORMAT, "%s is neither a number nor \"inf\"", key);
}

static mirt_status mirt__read_initializer(const mirt__json *object, const char *key, mirt_initializer *out) {
    const mirt__json *json = mirt__json_get(object, key, MIRT__JSON_OBJECT), *config;
    int kind, mode = 0, distribution = 0;
    memset(out, 0, sizeof *out);
    if (!json || mirt__read_name(json, "class_name", mirt__initializer_names, MIRT__INIT_COUNT, &kind) != MIRT_OK ||
        !(config = mirt__json_get(json, "config", MIRT__JSON_OBJECT))) {
        return mirt_last_status();
    }
    out->kind = (mirt_initializer_kind)kind;
    if (mirt__initializer_a[kind] && mirt__read_float(config, mirt__initializer_a[kind], &out->a) != MIRT_OK)
        return mirt_last_status();
    if (mirt__initializer_b[kind] && mirt__read_float(config, mirt__initializer_b[kind], &out->b) != MIRT_OK)
        return mirt_last_status();
    if (out->kind != MIRT_INIT_VARIANCE_SCALING) return MIRT_OK;
    if (mirt__read_name(config, "mode", mirt__fan_names, MIRT__COUNT(mirt__fan_names), &mode) != MIRT_OK ||
        mirt__read_name(config, "distribution", mirt__distribution_names, MIRT__COUNT(mirt__distribution_names),
                        &distribution) != MIRT_OK) {
        return mirt_last_status();
    }
    out->mode = (mirt_fan)mode;
    out->distribution = (mirt_distribution)distribution;
    return MIRT_OK;
}

/* No regularizer if it is missing or null. */
static mirt_status mirt__read_regularizer(const mirt__json *object, const char *key, mirt_regularizer *out) {
    static const char *const names[] = {"L1L2"};
    const mirt__json *json = mirt__json_member(object, key), *config;
    int index;
    out->l1 = out->l2 = 0;
    if (!json || json->type == MIRT__JSON_NULL) return MIRT_OK;
    if (!(json = mirt__json_get(object, key, MIRT__JSON_OBJECT)) ||
        mirt__read_name(json, "class_name", names, 1, &index) != MIRT_OK ||
        !(config = mirt__json_get(json, "config", MIRT__JSON_OBJECT)) ||
        mirt__read_float(config, "l1", &out->l1) != MIRT_OK) {
        return mirt_last_status();
    }
    return mirt__read_float(config, "l2", &out->l2);
}

/* Reads [[top, bottom], [left, right]], not negative. */
static mirt_status mirt__read_2x2(const mirt__json *object, const char *key, int out[4]) {
    const mirt__json *array = mirt__json_get(object, key, MIRT__JSON_ARRAY);
    if (!array) return mirt_last_status();
    bool good = array->count == 2;
    for (int i = 0; good && i < 4; i++) {
        const mirt__json *pair = array->item[i / 2];
        good = pair->type == MIRT__JSON_ARRAY && pair->count == 2;
        const mirt__json *item = good ? pair->item[i % 2] : NULL;
        good =
            item && item->type == MIRT__JSON_NUMBER && item->integral && item->integer >= 0 && item->integer <= INT_MAX;
        if (good) out[i] = (int)item->integer;
    }
    return good ? MIRT_OK : mirt__fail(MIRT_E_FORMAT, "%s must be two pairs of non-negative integers", key);
}

/* `minimum` 0 allows any rank, rows of a batch and paddings; the layer checks them further. */
static mirt_status mirt__read_shape(const mirt__json *object, const char *key, int minimum, int maximum,
                                    mirt_shape *out) {
    int rank = mirt__read_ints(object, key, out->dim, minimum, maximum, minimum ? 1 : MIRT_ROWS,
                               minimum ? INT_MAX : MIRT__MAX_ELEMENTS);
    if (rank >= 0) out->rank = rank;
    return rank < 0 ? mirt_last_status() : MIRT_OK;
}

static mirt_status mirt__read_floats(const mirt__json *object, const char *key, float *out, int count) {
    const mirt__json *array = mirt__json_get(object, key, MIRT__JSON_ARRAY);
    if (!array) return mirt_last_status();
    bool good = array->count == (size_t)count;
    for (int i = 0; good && i < count; i++) {
        good = array->item[i]->type == MIRT__JSON_NUMBER;
        if (good) out[i] = (float)array->item[i]->number;
    }
    return good ? MIRT_OK : mirt__fail(MIRT_E_FORMAT, "%s must be %d numbers", key, count);
}

MIRT__LIB mirt_status mirt__read_field(const mirt__json *config, const mirt__field *field, char *desc) {
    void *at = desc + field->offset;
    int64_t values[MIRT_MAX_RANK];
    int index;
    bool truth = false;
    mirt_status status = MIRT_OK;
    const char *activations[MIRT__ACTIVATION_COUNT], *dtypes[MIRT__DTYPE_COUNT];
    switch (field->kind) {
    case MIRT__FIELD_INT: return mirt__read_int(config, field->name, 0, (int *)at);
    case MIRT__FIELD_SIGNED: return mirt__read_int(config, field->name, INT_MIN, (int *)at);
    case MIRT__FIELD_INT2X2: return mirt__read_2x2(config, field->name, (int *)at);
    case MIRT__FIELD_INT2:
        if (mirt__read_ints(config, field->name, values, 2, 2, 1, INT_MAX) < 0) return mirt_last_status();
        ((int *)at)[0] = (int)values[0];
        ((int *)at)[1] = (int)values[1];
        return MIRT_OK;
    case MIRT__FIELD_FLOAT: return mirt__read_float(config, field->name, (float *)at);
    case MIRT__FIELD_LIMIT: return mirt__read_limit(config, field->name, (float *)at);
    case MIRT__FIELD_DOUBLE: {
        const mirt__json *value = mirt__json_get(config, field->name, MIRT__JSON_NUMBER);
        if (value) *(double *)at = value->number;
        return value ? MIRT_OK : mirt_last_status();
    }
    case MIRT__FIELD_INT64: return mirt__read_int64(config, field->name, (int64_t *)at);
    case MIRT__FIELD_BOOL: /* missing in files older than the field */
        return mirt__json_member(config, field->name) ? mirt__read_bool(config, field->name, (bool *)at) : MIRT_OK;
    case MIRT__FIELD_NO:
        status = mirt__read_bool(config, field->name, &truth);
        if (status == MIRT_OK) *(bool *)at = !truth;
        return status;
    case MIRT__FIELD_PADDING:
        status = mirt__read_name(config, field->name, mirt__padding_names, MIRT__COUNT(mirt__padding_names), &index);
        if (status == MIRT_OK) *(mirt_padding *)at = (mirt_padding)index;
        return status;
    case MIRT__FIELD_ACTIVATION:
        for (int i = 0; i < MIRT__ACTIVATION_COUNT; i++)
            activations[i] = mirt__activation_get((mirt_activation_kind)i)->name;
        status = mirt__read_name(config, field->name, activations, MIRT__ACTIVATION_COUNT, &index);
        if (status == MIRT_OK) *(mirt_activation_kind *)at = (mirt_activation_kind)index;
        return status;
    case MIRT__FIELD_INITIALIZER: return mirt__read_initializer(config, field->name, (mirt_initializer *)at);
    case MIRT__FIELD_REGULARIZER: return mirt__read_regularizer(config, field->name, (mirt_regularizer *)at);
    case MIRT__FIELD_TRAINING:
        status = mirt__read_name(config, field->name, mirt__training_names, MIRT__COUNT(mirt__training_names), &index);
        if (status == MIRT_OK) *(mirt_training *)at = (mirt_training)index;
        return status;
    case MIRT__FIELD_DTYPE:
        for (int i = 0; i < MIRT__DTYPE_COUNT; i++) dtypes[i] = mirt__dtype_name((mirt_dtype)i);
        status = mirt__read_name(config, field->name, dtypes, MIRT__DTYPE_COUNT, &index);
        if (status == MIRT_OK) *(mirt_dtype *)at = (mirt_dtype)index;
        return status;
    case MIRT__FIELD_CHANNELS: return mirt__read_floats(config, field->name, (float *)at, MIRT_MAX_CHANNELS);
    case MIRT__FIELD_FLOAT2: return mirt__read_floats(config, field->name, (float *)at, 2);
    case MIRT__FIELD_FLIP:
        status = mirt__read_name(config, field->name, mirt__flip_names, MIRT__COUNT(mirt__flip_names), &index);
        if (status == MIRT_OK) *(mirt_flip_mode *)at = (mirt_flip_mode)index;
        return status;
    case MIRT__FIELD_FILL:
        status = mirt__read_name(config, field->name, mirt__fill_names, MIRT__COUNT(mirt__fill_names), &index);
        if (status == MIRT_OK) *(mirt_fill_mode *)at = (mirt_fill_mode)index;
        return status;
    case MIRT__FIELD_INTERPOLATION:
        status = mirt__read_name(config, field->name, mirt__interpolation_names, MIRT__COUNT(mirt__interpolation_names),
                                 &index);
        if (status == MIRT_OK) *(mirt_interpolation *)at = (mirt_interpolation)index;
        return status;
    case MIRT__FIELD_NOISE: { /* missing in files older than the field */
        const mirt__json *noise = mirt__json_member(config, field->name);
        if (!noise || noise->type == MIRT__JSON_NULL) return MIRT_OK;
        return mirt__read_shape(config, field->name, 1, MIRT_MAX_RANK - 1, (mirt_shape *)at);
    }
    case MIRT__FIELD_SHAPE: return mirt__read_shape(config, field->name, 1, MIRT_MAX_RANK - 1, (mirt_shape *)at);
    case MIRT__FIELD_DIMS: return mirt__read_shape(config, field->name, 0, MIRT_MAX_RANK, (mirt_shape *)at);
    case MIRT__FIELD_AXES:
        return mirt__read_ints(config, field->name, (int64_t *)at, MIRT_MAX_RANK, MIRT_MAX_RANK, -1,
                               MIRT__MAX_ELEMENTS) < 0
                   ? mirt_last_status()
                   : MIRT_OK;
    }
    return status;
}

/* Reads an array of at most `most` numbers; returns their number, or -1. */
static int mirt__read_numbers(const mirt__json *object, const char *key, double *out, int most) {
    const mirt__json *array = mirt__json_get(object, key, MIRT__JSON_ARRAY);
    if (!array) return -1;
    bool good = array->count <= (size_t)most;
    for (size_t i = 0; good && i < array->count; i++) {
        good = array->item[i]->type == MIRT__JSON_NUMBER;
        if (good) out[i] = array->item[i]->number;
    }
    if (!good) mirt__fail(MIRT_E_FORMAT, "%s must be at most %d numbers", key, most);
    return good ? (int)array->count : -1;
}

static mirt_status mirt__piecewise_read(const mirt__json *config, mirt_schedule *s) {
    double values[MIRT_MAX_BOUNDARIES + 1];
    s->boundaries = mirt__read_ints(config, "boundaries", s->boundary, 1, MIRT_MAX_BOUNDARIES, INT64_MIN, INT64_MAX);
    if (s->boundaries < 0) return mirt_last_status();
    int count = mirt__read_numbers(config, "values", values, MIRT_MAX_BOUNDARIES + 1);
    if (count < 0) return mirt_last_status();
    if (count != s->boundaries + 1)
        return mirt__fail(MIRT_E_FORMAT, "%d boundaries need %d values, not %d", s->boundaries, s->boundaries + 1,
                          count);
    for (int i = 0; i < count; i++) s->value[i] = (float)values[i];
    s->initial = s->value[0];
    return MIRT_OK;
}

/* No schedule if it is missing. */
static mirt_status mirt__schedule_read(const mirt__json *optimizer, mirt_schedule *s) {
    const char *names[MIRT__SCHEDULE_COUNT];
    const mirt__json *json, *config;
    int kind;
    memset(s, 0, sizeof *s);
    if (!mirt__json_member(optimizer, "schedule")) return MIRT_OK;
    for (int i = 1; i < MIRT__SCHEDULE_COUNT; i++)
        names[i - 1] = mirt__schedule_class_get((mirt_schedule_kind)i)->class_name;
    if (!(json = mirt__json_get(optimizer, "schedule", MIRT__JSON_OBJECT)) ||
        mirt__read_name(json, "class_name", names, MIRT__SCHEDULE_COUNT - 1, &kind) != MIRT_OK ||
        !(config = mirt__json_get(json, "config", MIRT__JSON_OBJECT))) {
        return mirt_last_status();
    }
    s->kind = (mirt_schedule_kind)(kind + 1);
    const mirt__schedule_class *cls = mirt__schedule_class_get(s->kind);
    for (int i = 0; i < cls->num_fields; i++) {
        if (mirt__read_field(config, &cls->fields[i], (char *)s) != MIRT_OK) return mirt_last_status();
    }
    return cls->fields ? MIRT_OK : mirt__piecewise_read(config, s);
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
    if (mirt__read_float(json, "learning_rate", &o->learning_rate) != MIRT_OK) return mirt_last_status();
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    for (int i = 0; i < cls->num_fields; i++) {
        if (mirt__read_field(json, &cls->fields[i], (char *)o) != MIRT_OK) return mirt_last_status();
    }
    int common;
    const mirt__field *field = mirt__optimizer_common(&common);
    for (int i = 0; i < common; i++) {
        if (mirt__json_member(json, field[i].name) && mirt__read_field(json, &field[i], (char *)o) != MIRT_OK)
            return mirt_last_status();
    }
    if (mirt__json_member(json, "exclude_from_weight_decay")) {
        const mirt__json *names = mirt__json_get(json, "exclude_from_weight_decay", MIRT__JSON_STRING);
        if (!names) return mirt_last_status();
        o->exclude_from_weight_decay = names->string; /* until mirt_compile copies it */
    }
    return mirt__schedule_read(json, &o->decay);
}

static mirt_status mirt__metric_options_read(const mirt__json *config, mirt_metric_options *o) {
    int count, curve;
    const mirt__field *field = mirt__metric_fields(&count);
    for (int i = 0; i < count; i++) {
        if (mirt__json_member(config, field[i].name) && mirt__read_field(config, &field[i], (char *)o) != MIRT_OK)
            return mirt_last_status();
    }
    if (mirt__json_member(config, "curve")) {
        if (mirt__read_name(config, "curve", mirt__curve_names, MIRT__COUNT(mirt__curve_names), &curve) != MIRT_OK)
            return mirt_last_status();
        o->curve = (mirt_curve)curve;
    }
    if (!mirt__json_member(config, "name")) return MIRT_OK;
    const mirt__json *name = mirt__json_get(config, "name", MIRT__JSON_STRING);
    if (name) o->name = name->string; /* until mirt_compile copies it */
    return name ? MIRT_OK : mirt_last_status();
}

static mirt_status mirt__metrics_read(const mirt__json *array, mirt_compile_desc *out) {
    char label[MIRT__JSON_LABEL];
    if (array->count > MIRT_MAX_METRICS) return mirt__fail(MIRT_E_FORMAT, "more than %d metrics", MIRT_MAX_METRICS);
    for (size_t i = 0; i < array->count; i++) {
        const mirt__json *name = array->item[i], *config = NULL;
        int m = 1;
        if (name->type == MIRT__JSON_OBJECT) {
            if (!(config = mirt__json_get(name, "config", MIRT__JSON_OBJECT)) ||
                !(name = mirt__json_get(name, "class_name", MIRT__JSON_STRING)))
                return mirt_last_status();
        }
        if (name->type != MIRT__JSON_STRING) return mirt__fail(MIRT_E_FORMAT, "a metric is not a name");
        while (m < MIRT__METRIC_COUNT && strcmp(mirt__metric_class_get((mirt_metric)m)->name, name->string) != 0) m++;
        if (m == MIRT__METRIC_COUNT)
            return mirt__fail(MIRT_E_FORMAT, "metric \"%s\" is unknown to this version",
                              mirt__json_label(name->string, label));
        out->metrics[i] = (mirt_metric)m;
        if (config && mirt__metric_options_read(config, &out->metric_options[i]) != MIRT_OK) return mirt_last_status();
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

/* Reads the names in an array that may be missing: `found` is called with each string and returns whether it is
   known. */
static mirt_status
mirt__custom_read(const mirt_strategy *strategy, const mirt__json *json, const char *key, mirt_compile_desc *out,
                  bool (*found)(const mirt_strategy *strategy, const char *name, mirt_compile_desc *out, size_t i),
                  int most) {
    const mirt__json *array = mirt__json_member(json, key);
    char label[MIRT__JSON_LABEL];
    if (!array) return MIRT_OK;
    if (array->type != MIRT__JSON_ARRAY || array->count > (size_t)most)
        return mirt__fail(MIRT_E_FORMAT, "%s must be an array of at most %d names", key, most);
    for (size_t i = 0; i < array->count; i++) {
        const mirt__json *name = array->item[i];
        if (name->type == MIRT__JSON_NULL) continue;
        if (name->type != MIRT__JSON_STRING) return mirt__fail(MIRT_E_FORMAT, "%s must be an array of names", key);
        if (found(strategy, name->string, out, i)) continue;
        return mirt__fail(MIRT_E_FORMAT,
                          "%s: \"%s\" is unknown: register it with mirt_register_loss or mirt_register_metric", key,
                          mirt__json_label(name->string, label));
    }
    return MIRT_OK;
}

static bool mirt__custom_loss_found(const mirt_strategy *strategy, const char *name, mirt_compile_desc *out, size_t i) {
    return (out->custom_losses[i] = mirt__custom_loss_by_name(strategy, name)) != NULL;
}

static bool mirt__custom_metric_found(const mirt_strategy *strategy, const char *name, mirt_compile_desc *out,
                                      size_t i) {
    return (out->custom_metrics[i] = mirt__custom_metric_by_name(strategy, name)) != NULL;
}

MIRT__LIB mirt_status mirt__compile_read(const mirt_strategy *strategy, const mirt__json *json,
                                         mirt_compile_desc *out) {
    memset(out, 0, sizeof *out);
    if (json->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the compile settings are not an object");
    const mirt__json *optimizer = mirt__json_get(json, "optimizer", MIRT__JSON_OBJECT),
                     *metrics = mirt__json_get(json, "metrics", MIRT__JSON_ARRAY);
    const char *losses[MIRT__LOSS_COUNT];
    int loss, reduction;
    for (int i = 0; i < MIRT__LOSS_COUNT; i++) losses[i] = mirt__loss_name((mirt_loss)i);
    if (!optimizer || !metrics || mirt__optimizer_read(optimizer, &out->optimizer) != MIRT_OK ||
        mirt__read_name(json, "loss", losses, MIRT__LOSS_COUNT, &loss) != MIRT_OK ||
        mirt__read_name(json, "reduction", mirt__reduction_names, MIRT__COUNT(mirt__reduction_names), &reduction) !=
            MIRT_OK ||
        mirt__read_bool(json, "from_logits", &out->from_logits) != MIRT_OK) {
        return mirt_last_status();
    }
    out->loss = (mirt_loss)loss;
    out->reduction = (mirt_reduction)reduction;
    if (mirt__losses_read(json, losses, out) != MIRT_OK || mirt__metrics_read(metrics, out) != MIRT_OK ||
        mirt__custom_read(strategy, json, "custom_losses", out, mirt__custom_loss_found, MIRT_MAX_OUTPUTS) != MIRT_OK) {
        return mirt_last_status();
    }
    return mirt__custom_read(strategy, json, "custom_metrics", out, mirt__custom_metric_found, MIRT_MAX_METRICS);
}
