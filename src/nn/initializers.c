/* Initializers of weights. */

#include "model.h"

static mirt_initializer mirt__initializer(mirt_initializer_kind kind, float a, float b, mirt_fan mode,
                                          mirt_distribution distribution) {
    const mirt_initializer i = {kind, a, b, mode, distribution};
    return i;
}

static mirt_initializer mirt__plain_initializer(mirt_initializer_kind kind, float a, float b) {
    return mirt__initializer(kind, a, b, MIRT_FAN_IN, MIRT_DIST_TRUNCATED_NORMAL);
}

MIRT_API mirt_initializer mirt_zeros(void) { return mirt__plain_initializer(MIRT_INIT_ZEROS, 0, 0); }
MIRT_API mirt_initializer mirt_ones(void) { return mirt__plain_initializer(MIRT_INIT_ONES, 0, 0); }
MIRT_API mirt_initializer mirt_constant(float value) { return mirt__plain_initializer(MIRT_INIT_CONSTANT, value, 0); }
MIRT_API mirt_initializer mirt_random_uniform(float minimum, float maximum) {
    return mirt__plain_initializer(MIRT_INIT_UNIFORM, minimum, maximum);
}
MIRT_API mirt_initializer mirt_random_normal(float mean, float stddev) {
    return mirt__plain_initializer(MIRT_INIT_NORMAL, mean, stddev);
}
MIRT_API mirt_initializer mirt_truncated_normal(float mean, float stddev) {
    return mirt__plain_initializer(MIRT_INIT_TRUNCATED_NORMAL, mean, stddev);
}
MIRT_API mirt_initializer mirt_variance_scaling(float scale, mirt_fan mode, mirt_distribution distribution) {
    return mirt__initializer(MIRT_INIT_VARIANCE_SCALING, scale, 0, mode, distribution);
}
MIRT_API mirt_initializer mirt_glorot_uniform(void) {
    return mirt_variance_scaling(1, MIRT_FAN_AVG, MIRT_DIST_UNIFORM);
}
MIRT_API mirt_initializer mirt_glorot_normal(void) {
    return mirt_variance_scaling(1, MIRT_FAN_AVG, MIRT_DIST_TRUNCATED_NORMAL);
}
MIRT_API mirt_initializer mirt_he_uniform(void) { return mirt_variance_scaling(2, MIRT_FAN_IN, MIRT_DIST_UNIFORM); }
MIRT_API mirt_initializer mirt_he_normal(void) {
    return mirt_variance_scaling(2, MIRT_FAN_IN, MIRT_DIST_TRUNCATED_NORMAL);
}

MIRT__LIB mirt_status mirt__initializer_check(const mirt_initializer *i) {
    if ((int)i->kind < 0 || i->kind >= MIRT__INIT_COUNT)
        return mirt__fail(MIRT_E_INVALID, "invalid initializer (%d)", (int)i->kind);
    if ((int)i->mode < 0 || i->mode > MIRT_FAN_AVG)
        return mirt__fail(MIRT_E_INVALID, "invalid fan mode (%d)", (int)i->mode);
    if ((int)i->distribution < 0 || i->distribution > MIRT_DIST_UNIFORM)
        return mirt__fail(MIRT_E_INVALID, "invalid distribution (%d)", (int)i->distribution);
    if (!isfinite(i->a) || !isfinite(i->b))
        return mirt__fail(MIRT_E_INVALID, "the parameters of an initializer are %g and %g; they must be finite",
                          (double)i->a, (double)i->b);
    bool spread = i->kind == MIRT_INIT_NORMAL || i->kind == MIRT_INIT_TRUNCATED_NORMAL;
    if (spread && !(i->b >= 0))
        return mirt__fail(MIRT_E_INVALID, "the standard deviation of an initializer is %g; it must not be negative",
                          (double)i->b);
    if (i->kind == MIRT_INIT_VARIANCE_SCALING && !(i->a > 0)) {
        return mirt__fail(MIRT_E_INVALID, "VarianceScaling's scale is %g; it must be positive", (double)i->a);
    }
    return MIRT_OK;
}

static double mirt__draw_truncated(mirt__random *random) {
    double z;
    do z = mirt__random_normal(random);
    while (z < -2 || z > 2);
    return z;
}

/* Expresses VarianceScaling by the simpler kinds. The standard deviation of the truncated normal is divided by that of
   a unit normal truncated at 2, as in Keras. */
static mirt_initializer mirt__scaled_initializer(const mirt__variable *v) {
    const mirt_initializer *i = &v->initializer;
    double fan = i->mode == MIRT_FAN_IN    ? v->fan_in
                 : i->mode == MIRT_FAN_OUT ? v->fan_out
                                           : 0.5 * (v->fan_in + v->fan_out);
    double variance = (double)i->a / (fan > 1 ? fan : 1);
    if (i->distribution == MIRT_DIST_UNIFORM) {
        float limit = (float)sqrt(3 * variance);
        return mirt_random_uniform(-limit, limit);
    }
    if (i->distribution == MIRT_DIST_UNTRUNCATED_NORMAL) return mirt_random_normal(0, (float)sqrt(variance));
    return mirt_truncated_normal(0, (float)(sqrt(variance) / 0.87962566103423978));
}

MIRT__LIB void mirt__initialize(const mirt__variable *variable, uint64_t seed, mirt__real *out) {
    mirt_initializer i = variable->initializer;
    mirt__random random = mirt__random_stream(seed, mirt__hash(variable->name));
    if (i.kind == MIRT_INIT_VARIANCE_SCALING) i = mirt__scaled_initializer(variable);
    for (int64_t k = 0; k < variable->count; k++) {
        float value = 0;
        switch (i.kind) {
        case MIRT_INIT_ONES: value = 1; break;
        case MIRT_INIT_CONSTANT: value = i.a; break;
        case MIRT_INIT_UNIFORM: value = i.a + (i.b - i.a) * mirt__random_unit(&random); break;
        case MIRT_INIT_NORMAL: value = (float)((double)i.a + (double)i.b * mirt__random_normal(&random)); break;
        case MIRT_INIT_TRUNCATED_NORMAL:
            value = (float)((double)i.a + (double)i.b * mirt__draw_truncated(&random));
            break;
        default: break;
        }
        out[k] = (mirt__real)value;
    }
}
