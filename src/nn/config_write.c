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

MIRT__LIB void mirt__write_dims(mirt__text *out, const int64_t *dim, int count) {
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
