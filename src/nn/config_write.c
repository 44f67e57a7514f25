/* Writes fields of objects as JSON. */
#include "config.h"
#include "config_names.h"

MIRT__LIB void mirt__write_key(mirt__text *out, const char *key, bool first) {
    mirt__text_add(out, first ? "" : ",");
    mirt__json_write_string(out, key);
    mirt__text_add(out, ":");
}

MIRT__LIB void mirt__write_name(mirt__text *out, const char *key, const char *value, bool first) {
    mirt__write_key(out, key, first);
    mirt__json_write_string(out, value);
}

MIRT__LIB void mirt__write_number(mirt__text *out, const char *key, double value, bool first) {
    mirt__write_key(out, key, first);
    mirt__json_write_number(out, value);
}

static void mirt__write_dims(mirt__text *out, const int64_t *dim, int count) {
    mirt__text_add(out, "[");
    for (int i = 0; i < count; i++) mirt__text_add(out, "%s%lld", i ? "," : "", (long long)dim[i]);
    mirt__text_add(out, "]");
}

MIRT__LIB void mirt__write_floats(mirt__text *out, const float *number, int count) {
    for (int i = 0; i < count; i++) {
        mirt__text_add(out, i ? "," : "[");
        mirt__json_write_number(out, (double)number[i]);
    }
    mirt__text_add(out, "]");
}

/* The value of an enumeration. */
static int mirt__choice_at(const void *at) {
    int choice;
    memcpy(&choice, at, sizeof choice);
    return choice;
}

MIRT__LIB void mirt__write_field(mirt__text *out, const mirt__field *field, const void *object, bool first) {
    const void *at = (const char *)object + field->offset;
    const int *number = (const int *)at;
    const float *real = (const float *)at;
    const mirt_shape *shape = (const mirt_shape *)at;
    const mirt_schedule *schedule = (const mirt_schedule *)at;
    mirt__write_key(out, field->name, first);
    switch (field->kind) {
    case MIRT__FIELD_INT:
    case MIRT__FIELD_SIGNED: mirt__text_add(out, "%d", *number); break;
    case MIRT__FIELD_INT2X2:
        mirt__text_add(out, "[[%d,%d],[%d,%d]]", number[0], number[1], number[2], number[3]);
        break;
    case MIRT__FIELD_INT2: mirt__text_add(out, "[%d,%d]", number[0], number[1]); break;
    case MIRT__FIELD_EXTRA2:
        mirt__text_add(out, "[%d,%d]", number[0] < 0 ? 0 : number[0], number[1] < 0 ? 0 : number[1]);
        break;
    case MIRT__FIELD_INT64: mirt__text_add(out, "%lld", (long long)*(const int64_t *)at); break;
    case MIRT__FIELD_LIMIT:
        if (isfinite(*real)) mirt__json_write_number(out, (double)*real);
        else mirt__json_write_string(out, isnan(*real) ? "nan" : *real > 0 ? "inf" : "-inf");
        break;
    case MIRT__FIELD_FLOAT: mirt__json_write_number(out, (double)*real); break;
    case MIRT__FIELD_BOOL: mirt__text_add(out, "%s", *(const bool *)at ? "true" : "false"); break;
    case MIRT__FIELD_NO: mirt__text_add(out, "%s", *(const bool *)at ? "false" : "true"); break;
    case MIRT__FIELD_TEXT: mirt__json_write_string(out, *(const char *const *)at); break;
    case MIRT__FIELD_BOUNDARIES: mirt__write_dims(out, schedule->boundary, schedule->boundaries); break;
    case MIRT__FIELD_VALUES: mirt__write_floats(out, schedule->value, schedule->boundaries + 1); break;
    case MIRT__FIELD_INITIALIZER:
        mirt__write_object(out, &mirt__initializer_classes[((const mirt_initializer *)at)->kind], at);
        break;
    case MIRT__FIELD_REGULARIZER:
        if (mirt__fields_zero(mirt__regularizer_fields, 2, at)) mirt__text_add(out, "null");
        else mirt__write_object(out, &mirt__regularizer_class, at);
        break;
    case MIRT__FIELD_CONSTRAINT: /* optional: it is one */
        mirt__write_object(out, &mirt__constraint_classes[((const mirt_constraint *)at)->kind], at);
        break;
    case MIRT__FIELD_CHANNELS: mirt__write_floats(out, real, MIRT_MAX_CHANNELS); break;
    case MIRT__FIELD_FLOAT2: mirt__write_floats(out, real, 2); break;
    case MIRT__FIELD_NOISE:
        if (!shape->rank) mirt__text_add(out, "null");
        else mirt__write_dims(out, shape->dim, shape->rank);
        break;
    case MIRT__FIELD_SHAPE:
    case MIRT__FIELD_DIMS: mirt__write_dims(out, shape->dim, shape->rank); break;
    case MIRT__FIELD_AXES: mirt__write_dims(out, (const int64_t *)at, MIRT_MAX_RANK); break;
    default: /* an enumeration */
        mirt__json_write_string(out, mirt__field_names[field->kind].list[mirt__choice_at(at)]);
        break;
    }
}

MIRT__LIB bool mirt__fields_zero(const mirt__field *fields, int count, const void *object) {
    bool zero = true;
    for (int i = 0; zero && i < count; i++) {
        const void *at = (const char *)object + fields[i].offset;
        switch (fields[i].kind) {
        case MIRT__FIELD_FLOAT: zero = *(const float *)at == 0; break;
        case MIRT__FIELD_BOOL: zero = !*(const bool *)at; break;
        case MIRT__FIELD_REGULARIZER: zero = mirt__fields_zero(mirt__regularizer_fields, 2, at); break;
        case MIRT__FIELD_INT64: zero = *(const int64_t *)at == 0; break;
        case MIRT__FIELD_TEXT: zero = !*(const char *const *)at; break;
        default: zero = mirt__choice_at(at) == 0; /* ints, too */
        }
    }
    return zero;
}

MIRT__LIB void mirt__write_fields(mirt__text *out, const mirt__field *fields, int count, const void *object,
                                  bool first) {
    for (int i = 0; i < count; i++) { /* `fields` may be NULL */
        const mirt__field *f = &fields[i];
        if (f->optional && mirt__fields_zero(f, 1, object)) continue;
        mirt__write_field(out, f, object, first);
        first = false;
    }
}

MIRT__LIB void mirt__write_object(mirt__text *out, const mirt__object_class *cls, const void *object) {
    mirt__text_add(out, "{");
    mirt__write_name(out, "class_name", cls->name, true);
    mirt__text_add(out, ",\"config\":{");
    mirt__write_fields(out, cls->fields, cls->num_fields, object, true);
    mirt__text_add(out, "}}");
}
