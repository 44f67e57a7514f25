#include "model.h"
/* Learning rates as functions of the step, with the formulas of keras.optimizers.schedules, in double precision. */

static mirt_schedule mirt__schedule_new(mirt_schedule_kind kind, float initial, int64_t steps) {
    mirt_schedule s;
    memset(&s, 0, sizeof s);
    s.kind = kind;
    s.initial = initial;
    s.steps = steps;
    return s;
}

MIRT_API mirt_schedule mirt_piecewise_constant(const int64_t *boundaries, const float *values, int count) {
    MIRT__ENTER;
    mirt_schedule s = mirt__schedule_new(MIRT_PIECEWISE_CONSTANT, 0, 0);
    s.boundaries = -1; /* for mirt__schedule_check */
    if (!boundaries || !values || count < 1 || count > MIRT_MAX_BOUNDARIES) return s;
    s.boundaries = count;
    s.initial = values[0];
    memcpy(s.boundary, boundaries, (size_t)count * sizeof *boundaries);
    memcpy(s.value, values, ((size_t)count + 1) * sizeof *values);
    return s;
}

MIRT_API mirt_schedule mirt_exponential_decay(float initial, int64_t steps, float rate, bool staircase) {
    MIRT__ENTER;
    mirt_schedule s = mirt__schedule_new(MIRT_EXPONENTIAL_DECAY, initial, steps);
    s.rate = rate;
    s.staircase = staircase;
    return s;
}

MIRT_API mirt_schedule mirt_inverse_time_decay(float initial, int64_t steps, float rate, bool staircase) {
    MIRT__ENTER;
    mirt_schedule s = mirt_exponential_decay(initial, steps, rate, staircase);
    s.kind = MIRT_INVERSE_TIME_DECAY;
    return s;
}

MIRT_API mirt_schedule mirt_polynomial_decay(float initial, int64_t steps, float end, float power, bool cycle) {
    MIRT__ENTER;
    mirt_schedule s = mirt__schedule_new(MIRT_POLYNOMIAL_DECAY, initial, steps);
    s.end = end;
    s.power = power;
    s.cycle = cycle;
    return s;
}

MIRT_API mirt_schedule mirt_cosine_decay(float initial, int64_t steps, float alpha) {
    MIRT__ENTER;
    mirt_schedule s = mirt__schedule_new(MIRT_COSINE_DECAY, initial, steps);
    s.alpha = alpha;
    return s;
}

MIRT_API mirt_schedule mirt_cosine_restarts(float initial, int64_t first_steps, float t_mul, float m_mul, float alpha) {
    MIRT__ENTER;
    mirt_schedule s = mirt_cosine_decay(initial, first_steps, alpha);
    s.kind = MIRT_COSINE_RESTARTS;
    s.t_mul = t_mul;
    s.m_mul = m_mul;
    return s;
}

/* >>the rate at a step */

static double mirt__piecewise_rate(const mirt_schedule *s, double step) {
    int i = 0;
    while (i < s->boundaries && step > (double)s->boundary[i]) i++;
    return (double)s->value[i];
}

static double mirt__exponential_rate(const mirt_schedule *s, double step) {
    double p = step / (double)s->steps, rate = mirt__as_written(s->rate);
    if (s->staircase) p = floor(p);
    return (double)s->initial * (s->kind == MIRT_EXPONENTIAL_DECAY ? pow(rate, p) : 1 / (1 + rate * p));
}

static double mirt__polynomial_rate(const mirt_schedule *s, double step) {
    double steps = (double)s->steps;
    if (!s->cycle && step > steps) step = steps;
    if (s->cycle && step > 0) steps *= ceil(step / steps);
    return ((double)s->initial - (double)s->end) * pow(1 - step / steps, mirt__as_written(s->power)) + (double)s->end;
}

static double mirt__cosine(double high, double alpha, double done) {
    const double pi = 3.14159265358979323846;
    return high * ((1 - alpha) * 0.5 * (1 + cos(pi * done)) + alpha);
}

static double mirt__cosine_rate(const mirt_schedule *s, double step) {
    const double first = (double)s->initial, warm = (double)s->warmup_steps,
                 target = warm > 0 ? (double)s->warmup_target : first;
    if (step < warm) return first + (target - first) * (step / warm);
    double done = (step - warm) / (double)s->steps;
    return mirt__cosine(target, mirt__as_written(s->alpha), done < 1 ? done : 1);
}

static double mirt__restarts_rate(const mirt_schedule *s, double step) {
    double length = 1, high = 1, done = step / (double)s->steps, longer = mirt__as_written(s->t_mul);
    double alpha = mirt__as_written(s->alpha);
    if (longer == 1) {
        high = pow(mirt__as_written(s->m_mul), floor(done));
        done -= floor(done);
    }
    for (; longer > 1 && done >= length; length *= longer) { /* at most some hundred periods, since their length
                                                                grows */
        done -= length;
        high *= mirt__as_written(s->m_mul);
    }
    return (double)s->initial * ((1 - alpha) * mirt__cosine(high, 0, done / length) + alpha);
}

static const mirt__field mirt__piecewise_fields[] = {MIRT__ONLY_FIELD("boundaries", BOUNDARIES),
                                                     MIRT__ONLY_FIELD("values", VALUES)};
#define MIRT__FIRST_FIELDS(steps_name) \
    MIRT__FIELD(mirt_schedule, "initial_learning_rate", FLOAT, initial), \
        MIRT__FIELD(mirt_schedule, steps_name, INT64, steps)
static const mirt__field mirt__exponential_fields[] = {MIRT__FIRST_FIELDS("decay_steps"),
                                                       MIRT__FIELD(mirt_schedule, "decay_rate", FLOAT, rate),
                                                       MIRT__OWN_FIELD(mirt_schedule, BOOL, staircase)};
static const mirt__field mirt__polynomial_fields[] = {MIRT__FIRST_FIELDS("decay_steps"),
                                                      MIRT__FIELD(mirt_schedule, "end_learning_rate", FLOAT, end),
                                                      MIRT__OWN_FIELD(mirt_schedule, FLOAT, power),
                                                      MIRT__OWN_FIELD(mirt_schedule, BOOL, cycle)};
static const mirt__field mirt__cosine_fields[] = {MIRT__FIRST_FIELDS("decay_steps"),
                                                  MIRT__OWN_FIELD(mirt_schedule, FLOAT, alpha),
                                                  MIRT__OWN_FIELD(mirt_schedule, FLOAT, warmup_target),
                                                  MIRT__OWN_FIELD(mirt_schedule, INT64, warmup_steps)};
static const mirt__field mirt__restarts_fields[] = {MIRT__FIRST_FIELDS("first_decay_steps"),
                                                    MIRT__OWN_FIELD(mirt_schedule, FLOAT, t_mul),
                                                    MIRT__OWN_FIELD(mirt_schedule, FLOAT, m_mul),
                                                    MIRT__OWN_FIELD(mirt_schedule, FLOAT, alpha)};
#undef MIRT__FIRST_FIELDS

/* The rate at a step, and what files have of it. */
static double (*const mirt__schedule_rates[])(const mirt_schedule *schedule, double step) = {
    NULL, mirt__piecewise_rate, mirt__exponential_rate, mirt__polynomial_rate, mirt__exponential_rate,
    mirt__cosine_rate, mirt__restarts_rate};
static const mirt__object_class mirt__schedule_table[] = {
    {NULL, NULL, 0},
    {"PiecewiseConstantDecay", MIRT__FIELDS(mirt__piecewise_fields)},
    {"ExponentialDecay", MIRT__FIELDS(mirt__exponential_fields)},
    {"PolynomialDecay", MIRT__FIELDS(mirt__polynomial_fields)},
    {"InverseTimeDecay", MIRT__FIELDS(mirt__exponential_fields)},
    {"CosineDecay", MIRT__FIELDS(mirt__cosine_fields)},
    {"CosineDecayRestarts", MIRT__FIELDS(mirt__restarts_fields)},
};
MIRT__STATIC_ASSERT(MIRT__COUNT(mirt__schedule_table) == MIRT__SCHEDULE_COUNT &&
                        MIRT__COUNT(mirt__schedule_rates) == MIRT__SCHEDULE_COUNT,
                    "a row for each schedule");

MIRT__LIB const mirt__object_class *mirt__schedule_classes(void) { return mirt__schedule_table; }

MIRT__LIB double mirt__schedule_rate(const mirt_schedule *schedule, int64_t step) {
    return mirt__schedule_rates[schedule->kind](schedule, step > 0 ? (double)step : 0);
}

/* >>checks */

static mirt_status mirt__piecewise_check(const mirt_schedule *s) {
    if (s->boundaries < 1 || s->boundaries > MIRT_MAX_BOUNDARIES) {
        return mirt__fail(
            MIRT_E_INVALID,
            "a piecewise constant learning rate needs 1 to %d boundaries and one more value than boundaries",
            MIRT_MAX_BOUNDARIES);
    }
    for (int i = 0; i <= s->boundaries; i++) {
        if (!mirt__is_rate((double)s->value[i]))
            return mirt__fail(MIRT_E_INVALID, "value %d of the learning rate is %g; it must be finite and not negative",
                              i, (double)s->value[i]);
        if (i > 0 && i < s->boundaries && s->boundary[i] <= s->boundary[i - 1]) {
            return mirt__fail(MIRT_E_INVALID, "the boundaries of the learning rate must increase; %lld follows %lld",
                              (long long)s->boundary[i], (long long)s->boundary[i - 1]);
        }
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__schedule_check(const mirt_schedule *s) {
    if (s->kind == MIRT_SCHEDULE_NONE) return MIRT_OK;
    if ((int)s->kind < 0 || s->kind >= MIRT__SCHEDULE_COUNT)
        return mirt__fail(MIRT_E_INVALID, "invalid learning-rate schedule (%d)", (int)s->kind);
    if (s->kind == MIRT_PIECEWISE_CONSTANT) return mirt__piecewise_check(s);
    const char *name = mirt__schedule_table[s->kind].name;
    if (!mirt__is_rate((double)s->initial))
        return mirt__fail(MIRT_E_INVALID, "%s begins with the learning rate %g; it must be finite and not negative",
                          name, (double)s->initial);
    if (s->steps < 1)
        return mirt__fail(MIRT_E_INVALID, "%s takes %lld steps; it must be at least one", name,
                          (long long)s->steps);
    if (!mirt__is_rate((double)s->rate) || !mirt__is_rate((double)s->end) || !mirt__is_rate((double)s->power) ||
        !mirt__is_rate((double)s->warmup_target) || s->warmup_steps < 0) {
        return mirt__fail(MIRT_E_INVALID, "%s: rates, power and warm-up must be finite and not negative",
                          name);
    }
    if (!(s->alpha >= 0 && s->alpha <= 1))
        return mirt__fail(MIRT_E_INVALID, "%s: alpha is %g; it must be in [0, 1]", name, (double)s->alpha);
    if (s->kind == MIRT_COSINE_RESTARTS && !(s->t_mul >= 1 && s->t_mul <= FLT_MAX && mirt__is_rate((double)s->m_mul))) {
        return mirt__fail(MIRT_E_INVALID,
                          "%s: t_mul is %g and m_mul %g; t_mul must be at least 1 and m_mul not negative",
                          name, (double)s->t_mul, (double)s->m_mul);
    }
    return MIRT_OK;
}

MIRT_API double mirt_schedule_at(const mirt_schedule *schedule, int64_t step) {
    MIRT__ENTER;
    bool good = schedule && schedule->kind && mirt__schedule_check(schedule) == MIRT_OK;
    return good ? mirt__schedule_rate(schedule, step) : (double)NAN;
}

/* >>by epochs */

MIRT_API float mirt_lr_ramp(int epoch, float learning_rate, void *desc) {
    MIRT__ENTER;
    const mirt_lr_ramp_desc *d = (const mirt_lr_ramp_desc *)desc;
    if (!d) return learning_rate;
    const int past = epoch - d->ramp_epochs - d->sustain_epochs;
    if (epoch < d->ramp_epochs)
        return (float)(((double)d->max - (double)d->start) / d->ramp_epochs * epoch + (double)d->start);
    if (past < 0) return d->max;
    return (float)(((double)d->max - (double)d->min) * pow(mirt__as_written(d->decay), past) + (double)d->min);
}

MIRT_API float mirt_scale_learning_rate(const mirt_strategy *strategy, float rate) {
    MIRT__ENTER;
    return strategy ? rate * (float)mirt_num_replicas(strategy) : rate;
}
