/* Reads fields of objects from JSON. */

#include "config.h"
#include "config_names.h"

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

/* Reads `minimum` to `maximum` integers, each from `low` to `high`, and returns how many, or -1. */
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

MIRT__LIB mirt_status mirt__read_object(const mirt__json *object, const char *key, const mirt__object_class *classes,
                                        int count, int *index, void *out) {
    const mirt__json *json = mirt__json_get(object, key, MIRT__JSON_OBJECT), *config;
    const char *names[MIRT__MAX_CLASSES];
    for (int i = 0; i < count; i++) names[i] = classes[i].name;
    if (!json || mirt__read_name(json, "class_name", names, count, index) != MIRT_OK ||
        !(config = mirt__json_get(json, "config", MIRT__JSON_OBJECT)))
        return mirt_last_status();
    return mirt__read_fields(config, classes[*index].fields, classes[*index].num_fields, out);
}

MIRT__STATIC_ASSERT(MIRT__INIT_COUNT <= MIRT__MAX_CLASSES, "mirt__read_object has room for each initializer");
static mirt_status mirt__read_initializer(const mirt__json *object, const char *key, mirt_initializer *out) {
    int kind;
    memset(out, 0, sizeof *out);
    if (mirt__read_object(object, key, mirt__initializer_classes, MIRT__INIT_COUNT, &kind, out) != MIRT_OK)
        return mirt_last_status();
    out->kind = (mirt_initializer_kind)kind;
    return MIRT_OK;
}

/* Whether a member is missing or null. */
static bool mirt__lacks(const mirt__json *object, const char *key) {
    const mirt__json *json = mirt__json_member(object, key);
    return !json || json->type == MIRT__JSON_NULL;
}

/* No regularizer if it is missing or null. */
static mirt_status mirt__read_regularizer(const mirt__json *object, const char *key, mirt_regularizer *out) {
    int index;
    out->l1 = out->l2 = 0;
    return mirt__lacks(object, key) ? MIRT_OK
                                    : mirt__read_object(object, key, &mirt__regularizer_class, 1, &index, out);
}

MIRT__STATIC_ASSERT(MIRT__CONSTRAINT_COUNT <= MIRT__MAX_CLASSES, "mirt__read_object has room for each constraint");
static mirt_status mirt__read_constraint(const mirt__json *object, const char *key, mirt_constraint *out) {
    int kind;
    memset(out, 0, sizeof *out);
    if (mirt__lacks(object, key)) return MIRT_OK;
    if (mirt__read_object(object, key, mirt__constraint_classes, MIRT__CONSTRAINT_COUNT, &kind, out) != MIRT_OK)
        return mirt_last_status();
    out->kind = (mirt_constraint_kind)kind;
    return MIRT_OK;
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

/* Reads at most `maximum` numbers, and returns how many, or -1; `minimum` is 0 or `maximum`. */
static int mirt__read_floats(const mirt__json *object, const char *key, float *out, int minimum, int maximum) {
    const mirt__json *array = mirt__json_get(object, key, MIRT__JSON_ARRAY);
    if (!array) return -1;
    bool good = array->count >= (size_t)minimum && array->count <= (size_t)maximum;
    for (size_t i = 0; good && i < array->count; i++) {
        good = array->item[i]->type == MIRT__JSON_NUMBER;
        if (good) out[i] = (float)array->item[i]->number;
    }
    if (good) return (int)array->count;
    mirt__fail(MIRT_E_FORMAT, minimum ? "%s must be %d numbers" : "%s must be at most %d numbers", key, maximum);
    return -1;
}

MIRT__LIB mirt_status mirt__read_field(const mirt__json *config, const mirt__field *field, void *object) {
    const char *name = field->name;
    void *at = (char *)object + field->offset;
    int64_t values[MIRT_MAX_RANK];
    mirt_schedule *schedule = (mirt_schedule *)at;
    const mirt__json *text;
    mirt_status status;
    int index;
    switch (field->kind) {
    case MIRT__FIELD_INT: return mirt__read_int(config, name, 0, (int *)at);
    case MIRT__FIELD_SIGNED: return mirt__read_int(config, name, INT_MIN, (int *)at);
    case MIRT__FIELD_INT2X2: return mirt__read_2x2(config, name, (int *)at);
    case MIRT__FIELD_INT2:
        if (mirt__read_ints(config, name, values, 2, 2, 1, INT_MAX) < 0) return mirt_last_status();
        ((int *)at)[0] = (int)values[0];
        ((int *)at)[1] = (int)values[1];
        return MIRT_OK;
    case MIRT__FIELD_EXTRA2:
        if (mirt__lacks(config, name)) return MIRT_OK;
        if (mirt__read_ints(config, name, values, 2, 2, 0, INT_MAX) < 0) return mirt_last_status();
        for (int i = 0; i < 2; i++) ((int *)at)[i] = values[i] ? (int)values[i] : -1;
        return MIRT_OK;
    case MIRT__FIELD_FLOAT: return mirt__read_float(config, name, (float *)at);
    case MIRT__FIELD_LIMIT: return mirt__read_limit(config, name, (float *)at);
    case MIRT__FIELD_INT64: return mirt__json_get_int(config, name, INT64_MIN, INT64_MAX, (int64_t *)at);
    case MIRT__FIELD_BOOL: /* missing in files older than the field */
        return mirt__json_member(config, name) ? mirt__read_bool(config, name, (bool *)at) : MIRT_OK;
    case MIRT__FIELD_NO:
        status = mirt__read_bool(config, name, (bool *)at);
        *(bool *)at = !*(bool *)at;
        return status;
    case MIRT__FIELD_TEXT:
        if ((text = mirt__json_get(config, name, MIRT__JSON_STRING)) != NULL) *(const char **)at = text->string;
        return text ? MIRT_OK : mirt_last_status();
    case MIRT__FIELD_BOUNDARIES:
        index = mirt__read_ints(config, name, schedule->boundary, 1, MIRT_MAX_BOUNDARIES, INT64_MIN, INT64_MAX);
        schedule->boundaries = index;
        return index < 0 ? mirt_last_status() : MIRT_OK;
    case MIRT__FIELD_VALUES:
        index = mirt__read_floats(config, name, schedule->value, 0, MIRT_MAX_BOUNDARIES + 1);
        schedule->initial = schedule->value[0];
        if (index < 0) return mirt_last_status();
        if (index == schedule->boundaries + 1) return MIRT_OK;
        return mirt__fail(MIRT_E_FORMAT, "%d boundaries need %d values, not %d", schedule->boundaries,
                          schedule->boundaries + 1, index);
    case MIRT__FIELD_INITIALIZER: return mirt__read_initializer(config, name, (mirt_initializer *)at);
    case MIRT__FIELD_REGULARIZER: return mirt__read_regularizer(config, name, (mirt_regularizer *)at);
    case MIRT__FIELD_CONSTRAINT: return mirt__read_constraint(config, name, (mirt_constraint *)at);
    case MIRT__FIELD_CHANNELS:
    case MIRT__FIELD_FLOAT2:
        index = field->kind == MIRT__FIELD_FLOAT2 ? 2 : MIRT_MAX_CHANNELS;
        return mirt__read_floats(config, name, (float *)at, index, index) < 0 ? mirt_last_status() : MIRT_OK;
    case MIRT__FIELD_NOISE: /* missing in files older than the field */
        if (mirt__lacks(config, name)) return MIRT_OK;
        return mirt__read_shape(config, name, 1, MIRT_MAX_RANK - 1, (mirt_shape *)at);
    case MIRT__FIELD_SHAPE: return mirt__read_shape(config, name, 1, MIRT_MAX_RANK - 1, (mirt_shape *)at);
    case MIRT__FIELD_DIMS: return mirt__read_shape(config, name, 0, MIRT_MAX_RANK, (mirt_shape *)at);
    case MIRT__FIELD_AXES:
        index = mirt__read_ints(config, name, (int64_t *)at, MIRT_MAX_RANK, MIRT_MAX_RANK, -1, MIRT__MAX_ELEMENTS);
        return index < 0 ? mirt_last_status() : MIRT_OK;
    default: /* an enumeration */
        status = mirt__read_name(config, name, mirt__field_names[field->kind].list,
                                 mirt__field_names[field->kind].count, &index);
        if (status == MIRT_OK) memcpy(at, &index, sizeof index);
        return status;
    }
}

MIRT__LIB mirt_status mirt__read_fields(const mirt__json *json, const mirt__field *fields, int count, void *object) {
    for (int i = 0; i < count; i++) { /* `fields` may be NULL */
        const mirt__field *f = &fields[i];
        if (f->optional && !mirt__json_member(json, f->name)) continue;
        if (mirt__read_field(json, f, object) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}
