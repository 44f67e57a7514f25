/* Writes and reads settings of layers, optimizers and metrics as JSON. */

#include "config.h"
#include "config_names.h"
#include "../ops/ops.h"

MIRT__LIB mirt_status mirt__read_name(const mirt__json *object, const char *key, const char *const *names, int count,
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

MIRT__LIB mirt_status mirt__read_float(const mirt__json *object, const char *key, float *out) {
    const mirt__json *value = mirt__json_get(object, key, MIRT__JSON_NUMBER);
    if (!value) return mirt_last_status();
    *out = (float)value->number;
    return isfinite(*out) ? MIRT_OK : mirt__fail(MIRT_E_FORMAT, "%s is out of range for float32", key);
}

MIRT__LIB mirt_status mirt__read_bool(const mirt__json *object, const char *key, bool *out) {
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

MIRT__LIB int mirt__read_ints(const mirt__json *object, const char *key, int64_t *out, int minimum, int maximum,
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
