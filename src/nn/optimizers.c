/* Optimizers: defaults, checks, and the formula of each update. */

#include "model.h"

static mirt_optimizer mirt__optimizer_new(mirt_optimizer_kind kind, float learning_rate) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = kind;
    o.learning_rate = learning_rate;
    return o;
}

/* With Adam's epsilon and moving averages. */
static mirt_optimizer mirt__optimizer_averaging(mirt_optimizer_kind kind, float learning_rate) {
    mirt_optimizer o = mirt__optimizer_new(kind, learning_rate);
    o.beta_1 = 0.9f;
    o.beta_2 = 0.999f;
    o.epsilon = 1e-7f;
    return o;
}

MIRT_API mirt_optimizer mirt_adam(float learning_rate) { return mirt__optimizer_averaging(MIRT_ADAM, learning_rate); }
MIRT_API mirt_optimizer mirt_nadam(float learning_rate) { return mirt__optimizer_averaging(MIRT_NADAM, learning_rate); }
MIRT_API mirt_optimizer mirt_adamax(float learning_rate) {
    return mirt__optimizer_averaging(MIRT_ADAMAX, learning_rate);
}

MIRT_API mirt_optimizer mirt_lamb(float learning_rate) { return mirt__optimizer_averaging(MIRT_LAMB, learning_rate); }

MIRT_API mirt_optimizer mirt_muon(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_averaging(MIRT_MUON, learning_rate);
    o.weight_decay = o.adam_weight_decay = 0.004f;
    o.muon_a = 3.4445f;
    o.muon_b = -4.775f;
    o.muon_c = 2.0315f;
    o.adam_lr_ratio = 1;
    o.momentum = 0.95f;
    o.ns_steps = 5;
    o.nesterov = o.exclude_embeddings = true;
    o.rms_rate = 0.2f;
    return o;
}

MIRT_API mirt_optimizer mirt_adafactor(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_new(MIRT_ADAFACTOR, learning_rate);
    o.beta_2_decay = -0.8f;
    o.epsilon = 1e-30f;
    o.epsilon_2 = 1e-3f;
    o.clip_threshold = 1;
    return o;
}

MIRT_API mirt_optimizer mirt_adamw(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_averaging(MIRT_ADAMW, learning_rate);
    o.weight_decay = 0.004f;
    return o;
}

MIRT_API mirt_optimizer mirt_sgd(float learning_rate, float momentum, bool nesterov) {
    mirt_optimizer o = mirt__optimizer_new(MIRT_SGD, learning_rate);
    o.momentum = momentum;
    o.nesterov = nesterov;
    return o;
}

MIRT_API mirt_optimizer mirt_rmsprop(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_new(MIRT_RMSPROP, learning_rate);
    o.rho = 0.9f;
    o.epsilon = 1e-7f;
    return o;
}

MIRT_API mirt_optimizer mirt_adagrad(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_new(MIRT_ADAGRAD, learning_rate);
    o.initial_accumulator_value = 0.1f;
    o.epsilon = 1e-7f;
    return o;
}

MIRT_API mirt_optimizer mirt_lion(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_new(MIRT_LION, learning_rate);
    o.beta_1 = 0.9f;
    o.beta_2 = 0.99f;
    return o;
}

MIRT_API mirt_optimizer mirt_adadelta(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_new(MIRT_ADADELTA, learning_rate);
    o.rho = 0.95f;
    o.epsilon = 1e-7f;
    return o;
}

MIRT_API mirt_optimizer mirt_schedule_free_adamw(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_averaging(MIRT_SCHEDULE_FREE_ADAMW, learning_rate);
    o.epsilon = 1e-8f;
    return o;
}

MIRT_API mirt_optimizer mirt_ftrl(float learning_rate) {
    mirt_optimizer o = mirt__optimizer_new(MIRT_FTRL, learning_rate);
    o.initial_accumulator_value = 0.1f;
    return o;
}

static mirt_optimizer mirt__sgd_keras(float learning_rate) { return mirt_sgd(learning_rate, 0, false); }

MIRT__LIB bool mirt__is_rate(double x) { return x >= 0 && x <= (double)FLT_MAX; }

MIRT__LIB double mirt__as_written(float x) {
    double rounded = floor((double)x * 1e7 + 0.5) / 1e7;
    return (float)rounded == x ? rounded : (double)x;
}

/* >>numbers of a step, where they are not the optimizer's own */

/* Powers of the float32 numbers, as in Keras. */
static double mirt__bias_correction(float beta, int64_t step) { return 1 - pow((double)beta, (double)step); }

MIRT__LIB void mirt__adam_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    update->learning_rate =
        (float)(rate * (sqrt(mirt__bias_correction(o->beta_2, step)) / mirt__bias_correction(o->beta_1, step)));
}

static void mirt__rho_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    (void)step, (void)rate;
    update->new_1 = (float)(1 - mirt__as_written(o->rho));
}

/* Keras keeps the product of the momentum's schedule as a variable. As a function of the step it needs no place in
   checkpoints: beyond a thousand steps 1 - 0.96^step / 2 is 1. */
static double mirt__nadam_product(double beta, int64_t step) {
    double fading = 1, product = pow(beta, (double)step);
    for (int64_t i = 0; i < step && i < 1000; i++) {
        fading *= 0.96;
        product *= 1 - 0.5 * fading;
    }
    return product;
}

static void mirt__float32_betas(const mirt_optimizer *o, mirt__update *update) {
    update->new_1 = (float)(1 - (double)o->beta_1);
    update->new_2 = (float)(1 - (double)o->beta_2);
}

/* Each number of Keras's formula divided by sqrt(v / (1 - beta_2^t)) / sqrt(v). */
static void mirt__nadam_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    const double beta_1 = (double)o->beta_1, t = (double)step, size = sqrt(mirt__bias_correction(o->beta_2, step));
    const double now = beta_1 * (1 - 0.5 * pow(0.96, t)), next = beta_1 * (1 - 0.5 * pow(0.96, t + 1));
    const double product = mirt__nadam_product(mirt__as_written(o->beta_1), step);
    mirt__float32_betas(o, update);
    update->epsilon = (float)((double)o->epsilon * size);
    update->learning_rate = (float)(rate * size * next / (1 - product * next)); /* of the momentum, */
    update->momentum = (float)(rate * size * (1 - now) / (1 - product));        /* and of the gradient */
}

static void mirt__adamax_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    update->learning_rate = (float)(rate / mirt__bias_correction(o->beta_1, step));
}

static void mirt__lion_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    (void)step, (void)rate;
    mirt__float32_betas(o, update);
}

/* Of each step's average, in which all steps count alike, 1 / step is new: new_1. The weights are between it and
   Keras's momentum, which moves by `momentum` times what it does. */
static void mirt__schedule_free_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    const double size = sqrt(mirt__bias_correction(o->beta_2, step)), part = 1 / (double)step;
    mirt__float32_betas(o, update);
    if (step < o->warmup_steps) rate *= (double)step / (double)o->warmup_steps;
    update->learning_rate = (float)(rate * size);
    update->epsilon = (float)((double)o->epsilon * size);
    update->new_1 = (float)part;
    update->momentum = (float)(1 - (double)o->beta_1 * (1 - part));
    update->first = step == 1;
}

/* new_1: l1; new_2: what is added to the gradient for each unit of weight. A rate of 0, whose inverse is not finite,
   leaves weights and slots as they are. */
static void mirt__ftrl_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    (void)step;
    update->new_1 = o->l1_regularization_strength;
    update->new_2 = 2 * o->l2_shrinkage_regularization_strength;
    update->epsilon = (float)((double)o->beta + 2 * rate * (double)o->l2_regularization_strength);
    const bool moves = rate >= (double)FLT_MIN;
    if (!moves) update->learning_rate = 0;
    update->momentum = moves ? (float)(1 / rate) : 0;
}

/* Of the step alone, which the rate is not yet part of. */
static void mirt__lamb_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    (void)rate;
    update->epsilon = (float)((double)o->epsilon * sqrt(mirt__bias_correction(o->beta_2, step)));
    mirt__adam_numbers(o, step, 1, update);
}

/* Steps of SGD's kernel that turn gradients into directions. */
static void mirt__whole_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__update *update) {
    (void)o, (void)step, (void)rate;
    update->learning_rate = -1; /* a velocity then is Muon's momentum */
}

/* >>all optimizers */

static const mirt__field mirt__adam_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_1),
                                                MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_2),
                                                MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon)};
static const mirt__field mirt__sgd_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, momentum),
                                               MIRT__OWN_FIELD(mirt_optimizer, BOOL, nesterov)};
static const mirt__field mirt__rmsprop_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, rho),
                                                   MIRT__OWN_FIELD(mirt_optimizer, FLOAT, momentum),
                                                   MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon),
                                                   MIRT__OWN_FIELD(mirt_optimizer, BOOL, centered)};
static const mirt__field mirt__adagrad_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, initial_accumulator_value),
                                                   MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon)};
static const mirt__field mirt__adadelta_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, rho),
                                                    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon)};
static const mirt__field mirt__schedule_free_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_1),
                                                         MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_2),
                                                         MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon),
                                                         MIRT__OWN_FIELD(mirt_optimizer, INT64, warmup_steps)};
static const mirt__field mirt__ftrl_fields[] = {
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, initial_accumulator_value),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, l1_regularization_strength),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, l2_regularization_strength),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, l2_shrinkage_regularization_strength),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta)};

static const mirt__field mirt__muon_fields[] = {
    {"adam_beta_1", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, beta_1), false},
    {"adam_beta_2", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, beta_2), false},
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon), MIRT__OWN_FIELD(mirt_optimizer, FLOAT, adam_weight_decay),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, muon_a), MIRT__OWN_FIELD(mirt_optimizer, FLOAT, muon_b),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, muon_c), MIRT__OWN_FIELD(mirt_optimizer, FLOAT, adam_lr_ratio),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, momentum), MIRT__OWN_FIELD(mirt_optimizer, INT, ns_steps),
    MIRT__OWN_FIELD(mirt_optimizer, BOOL, nesterov), MIRT__OWN_FIELD(mirt_optimizer, BOOL, exclude_embeddings),
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, rms_rate), MIRT__OPTIONAL_FIELD(mirt_optimizer, TEXT, exclude_layers)};

static const mirt__field mirt__adafactor_fields[] = {
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_2_decay),
    {"epsilon_1", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, epsilon), false},
    MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon_2), MIRT__OWN_FIELD(mirt_optimizer, FLOAT, clip_threshold)};

#define MIRT__LION_FIELDS mirt__adam_fields, 2 /* the betas */
#define MIRT__MOMENTS {"momentum", MIRT__SLOT_ZEROS}, {"velocity", MIRT__SLOT_ZEROS}
#define MIRT__AMSGRAD {MIRT__MOMENTS, {"velocity_hat", MIRT__SLOT_AMSGRAD}}
static const mirt__optimizer_class mirt__optimizer_table[] = {
    {"adam", mirt_adam, MIRT__FIELDS(mirt__adam_fields), MIRT__AMSGRAD, mirt__adam_numbers, NULL},
    {"sgd", mirt__sgd_keras, MIRT__FIELDS(mirt__sgd_fields), {{"momentum", MIRT__SLOT_MOMENTUM}}, NULL, NULL},
    {"adamw", mirt_adamw, MIRT__FIELDS(mirt__adam_fields), MIRT__AMSGRAD, mirt__adam_numbers, NULL},
    {"rmsprop", mirt_rmsprop, MIRT__FIELDS(mirt__rmsprop_fields),
     {{"velocity", MIRT__SLOT_ZEROS}, {"momentum", MIRT__SLOT_MOMENTUM}, {"average_gradient", MIRT__SLOT_CENTERED}},
     mirt__rho_numbers, NULL},
    {"nadam", mirt_nadam, MIRT__FIELDS(mirt__adam_fields), {MIRT__MOMENTS}, mirt__nadam_numbers, NULL},
    {"adagrad", mirt_adagrad, MIRT__FIELDS(mirt__adagrad_fields), {{"accumulator", MIRT__SLOT_ACCUMULATOR}}, NULL,
     NULL},
    {"adamax", mirt_adamax, MIRT__FIELDS(mirt__adam_fields),
     {{"momentum", MIRT__SLOT_ZEROS}, {"norm", MIRT__SLOT_ZEROS}}, mirt__adamax_numbers, NULL},
    {"lion", mirt_lion, MIRT__LION_FIELDS, {{"momentum", MIRT__SLOT_ZEROS}}, mirt__lion_numbers, NULL},
    {"adadelta", mirt_adadelta, MIRT__FIELDS(mirt__adadelta_fields),
     {{"accumulated_grad", MIRT__SLOT_ZEROS}, {"accumulated_delta_var", MIRT__SLOT_ZEROS}}, mirt__rho_numbers, NULL},
    {"schedule_free_adamw", mirt_schedule_free_adamw, MIRT__FIELDS(mirt__schedule_free_fields), {MIRT__MOMENTS},
     mirt__schedule_free_numbers, NULL},
    {"ftrl", mirt_ftrl, MIRT__FIELDS(mirt__ftrl_fields),
     {{"accumulator", MIRT__SLOT_ACCUMULATOR}, {"linear", MIRT__SLOT_ZEROS}}, mirt__ftrl_numbers, NULL},
    {"lamb", mirt_lamb, MIRT__FIELDS(mirt__adam_fields), {MIRT__MOMENTS}, mirt__lamb_numbers, mirt__lamb_direction},
    {"muon", mirt_muon, MIRT__FIELDS(mirt__muon_fields), {MIRT__MOMENTS}, mirt__whole_numbers, mirt__muon_direction},
    {"adafactor", mirt_adafactor, MIRT__FIELDS(mirt__adafactor_fields),
     {{"row", MIRT__SLOT_ZEROS}, {"column", MIRT__SLOT_ZEROS}}, mirt__whole_numbers, mirt__adafactor_direction}};
#undef MIRT__LION_FIELDS
#undef MIRT__MOMENTS
#undef MIRT__AMSGRAD

static const mirt__field mirt__common_fields[] = {
    MIRT__OPTIONAL_FIELD(mirt_optimizer, BOOL, amsgrad),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, FLOAT, weight_decay),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, FLOAT, clipnorm),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, FLOAT, global_clipnorm),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, FLOAT, clipvalue),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, BOOL, use_ema),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, FLOAT, ema_momentum),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, INT64, ema_overwrite_frequency),
    MIRT__OPTIONAL_FIELD(mirt_optimizer, TEXT, exclude_from_weight_decay)};

MIRT__LIB int mirt__optimizer_common(const mirt__field **fields) {
    *fields = mirt__common_fields;
    return MIRT__COUNT(mirt__common_fields);
}

MIRT__STATIC_ASSERT(MIRT__COUNT(mirt__optimizer_table) == MIRT__OPTIMIZER_COUNT, "MIRT_OPTIMIZER_LIST has each row");

MIRT__LIB const mirt__optimizer_class *mirt__optimizer_class_get(mirt_optimizer_kind kind) {
    return &mirt__optimizer_table[kind];
}

static bool mirt__optimizer_known(const mirt_optimizer *o) {
    return (int)o->kind >= 0 && o->kind < MIRT__OPTIMIZER_COUNT;
}

MIRT__LIB void mirt__optimizer_defaults(mirt_optimizer *o) {
    if (o->use_ema && o->ema_momentum == 0) o->ema_momentum = 0.99f;
    if (!mirt__optimizer_known(o)) return;
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    const mirt_optimizer keras = cls->keras(1e-3f);
    mirt_optimizer filled = *o;
    bool any = false;
    for (int i = 0; i < cls->num_fields; i++) {
        const void *usual = (const char *)&keras + cls->fields[i].offset;
        float *own = (float *)(void *)((char *)&filled + cls->fields[i].offset);
        if (cls->fields[i].kind != MIRT__FIELD_FLOAT || *(const float *)usual == 0) continue;
        if (*own != 0) return;
        *own = *(const float *)usual;
        any = true;
    }
    if (!any) return;
    filled.nesterov = o->nesterov || keras.nesterov;
    filled.exclude_embeddings = o->exclude_embeddings || keras.exclude_embeddings;
    if (!o->ns_steps) filled.ns_steps = keras.ns_steps;
    *o = filled;
    if (o->weight_decay == 0) o->weight_decay = keras.weight_decay;
    if (o->learning_rate == 0 && !o->schedule && !o->decay.kind) o->learning_rate = keras.learning_rate;
}

/* Whether the optimizer's options ask for a slot of its row. */
static bool mirt__slot_used(const mirt_optimizer *o, const mirt__optimizer_slot *slot) {
    switch (slot->use) {
    case MIRT__SLOT_NONE: return false;
    case MIRT__SLOT_AMSGRAD: return o->amsgrad;
    case MIRT__SLOT_MOMENTUM: return o->momentum != 0;
    case MIRT__SLOT_CENTERED: return o->centered;
    case MIRT__SLOT_ZEROS:
    case MIRT__SLOT_ACCUMULATOR: break;
    }
    return true;
}

MIRT__LIB void mirt__optimizer_numbers(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                                       mirt__update *update) {
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    for (int i = 0; i < MIRT__COUNT(cls->slot); i++) {
        if (mirt__slot_used(o, &cls->slot[i])) update->slot[i] = *slot++;
    }
    update->learning_rate = (float)rate;
    update->new_1 = (float)(1 - mirt__as_written(o->beta_1));
    update->new_2 = (float)(1 - mirt__as_written(o->beta_2));
    update->epsilon = o->epsilon;
    update->momentum = o->momentum;
    update->nesterov = o->nesterov;
    if (cls->numbers) cls->numbers(o, step, rate, update);
}

MIRT__LIB int mirt__optimizer_slot_names(const mirt_optimizer *o, const char *name[MIRT__MAX_SLOTS]) {
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    int count = 0;
    for (int i = 0; i < MIRT__COUNT(cls->slot); i++) {
        if (mirt__slot_used(o, &cls->slot[i])) name[count++] = cls->slot[i].name;
    }
    if (o->use_ema) name[count++] = "average";
    return count;
}

MIRT__LIB bool mirt__optimizer_amsgrad(const mirt__optimizer_class *cls) {
    return cls->slot[2].use == MIRT__SLOT_AMSGRAD;
}

static bool mirt__optimizer_has(const mirt__optimizer_class *cls, const mirt__field *field) {
    for (int i = 0; i < cls->num_fields; i++) {
        if (cls->fields[i].offset == field->offset) return true;
    }
    return false;
}

/* The last members of the struct are options of one optimizer alone, which others do not have. */
static mirt_status mirt__optimizer_others_check(const mirt_optimizer *o) {
    const mirt__optimizer_class *own = mirt__optimizer_class_get(o->kind);
    for (int k = 0; k < MIRT__OPTIMIZER_COUNT; k++) {
        const mirt__optimizer_class *cls = &mirt__optimizer_table[k];
        for (int i = 0; i < cls->num_fields; i++) {
            const mirt__field *field = &cls->fields[i];
            if (field->offset >= offsetof(mirt_optimizer, warmup_steps) && !mirt__fields_zero(field, 1, o) &&
                !mirt__optimizer_has(own, field))
                return mirt__fail(MIRT_E_INVALID, "%s has no option %s", own->name, field->name);
        }
    }
    return MIRT_OK;
}

/* The numbers of the optimizer's own fields, and those that only other optimizers have. */
static mirt_status mirt__optimizer_own_check(const mirt_optimizer *o) {
    const mirt__optimizer_class *cls = mirt__optimizer_class_get(o->kind);
    for (int i = 0; i < cls->num_fields; i++) {
        const mirt__field *field = &cls->fields[i];
        if (field->kind != MIRT__FIELD_FLOAT) continue;
        const float value = *(const float *)(const void *)((const char *)o + field->offset);
        const bool beta_1 = field->offset == offsetof(mirt_optimizer, beta_1);
        const bool share = beta_1 || field->offset == offsetof(mirt_optimizer, beta_2) ||
                           field->offset == offsetof(mirt_optimizer, rho) ||
                           field->offset == offsetof(mirt_optimizer, momentum);
        const bool negative = field->offset >= offsetof(mirt_optimizer, muon_a) &&
                              field->offset <= offsetof(mirt_optimizer, beta_2_decay);
        const bool positive = beta_1 && (o->kind == MIRT_LION || o->kind == MIRT_SCHEDULE_FREE_ADAMW);
        const char *range = positive   ? "in (0, 1)"
                            : share    ? "in [0, 1)"
                            : negative ? "finite"
                                       : "finite and not negative";
        if (mirt__is_rate(negative ? fabs((double)value) : (double)value) && !(share && value >= 1) &&
            !(positive && value == 0))
            continue;
        return mirt__fail(MIRT_E_INVALID, "%s's %s is %g; it must be %s; start from mirt_%s", cls->name, field->name,
                          (double)value, range, cls->name);
    }
    return mirt__optimizer_others_check(o);
}

static mirt_status mirt__optimizer_extras_check(const mirt_optimizer *o) {
    const int clips = (o->clipnorm != 0) + (o->global_clipnorm != 0) + (o->clipvalue != 0);
    for (int i = 0; i < MIRT__COUNT(mirt__common_fields); i++) {
        const mirt__field *field = &mirt__common_fields[i];
        const void *at = (const char *)o + field->offset;
        if (field->kind == MIRT__FIELD_FLOAT && !mirt__is_rate((double)*(const float *)at))
            return mirt__fail(MIRT_E_INVALID, "the optimizer's %s is %g; it must be finite and not negative",
                              field->name, (double)*(const float *)at);
    }
    if (o->warmup_steps < 0)
        return mirt__fail(MIRT_E_INVALID, "warmup_steps is %lld; it must not be negative", (long long)o->warmup_steps);
    if (o->ns_steps < 0 || o->ns_steps > 100) /* five do; a file may ask for more than ever end */
        return mirt__fail(MIRT_E_INVALID, "ns_steps is %d; it must be 0 to 100", o->ns_steps);
    if (clips > 1)
        return mirt__fail(MIRT_E_INVALID, "at most one of clipnorm, global_clipnorm and clipvalue can be set");
    if (o->use_ema && !(o->ema_momentum < 1))
        return mirt__fail(MIRT_E_INVALID, "ema_momentum is %g; it must be in [0, 1)", (double)o->ema_momentum);
    if (o->ema_overwrite_frequency < 0)
        return mirt__fail(MIRT_E_INVALID,
                          "ema_overwrite_frequency is %lld; it must be a number of steps, or 0 for never",
                          (long long)o->ema_overwrite_frequency);
    if (!o->use_ema && o->ema_overwrite_frequency)
        return mirt__fail(MIRT_E_INVALID, "ema_overwrite_frequency is set, but use_ema is not");
    if (o->amsgrad && !mirt__optimizer_amsgrad(mirt__optimizer_class_get(o->kind)))
        return mirt__fail(MIRT_E_INVALID, "amsgrad is for Adam and AdamW");
    const char *const words[] = {o->exclude_from_weight_decay, o->exclude_layers};
    for (int i = 0; i < MIRT__COUNT(words); i++) {
        if (words[i] && !mirt__utf8_valid(words[i], strlen(words[i])))
            return mirt__fail(MIRT_E_INVALID, "%s is not valid UTF-8",
                              i ? "exclude_layers" : "exclude_from_weight_decay");
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__optimizer_check(const mirt_optimizer *o) {
    if (!mirt__optimizer_known(o)) return mirt__fail(MIRT_E_INVALID, "invalid optimizer (%d)", (int)o->kind);
    if (o->schedule && o->decay.kind)
        return mirt__fail(MIRT_E_INVALID, "the optimizer has two learning-rate schedules, a function and a value");
    if (mirt__schedule_check(&o->decay) != MIRT_OK) return mirt_last_status();
    if (!o->schedule && !o->decay.kind && !mirt__is_rate((double)o->learning_rate)) {
        return mirt__fail(MIRT_E_INVALID, "the learning rate is %g; it must be finite and not negative",
                          (double)o->learning_rate);
    }
    return mirt__optimizer_own_check(o) == MIRT_OK ? mirt__optimizer_extras_check(o) : mirt_last_status();
}

/* >>several optimizers */

MIRT__LIB const mirt_optimizer *mirt__optimizer_number(const mirt_compile_desc *d, int number) {
    if (!number) return &d->optimizer;
    if (number > MIRT_MAX_OPTIMIZERS) return NULL;
    const mirt_optimizer_map *map = &d->optimizers[number - 1];
    return map->weights && *map->weights ? &map->optimizer : NULL;
}

MIRT__LIB const mirt_optimizer *mirt__optimizer_named(const mirt_compile_desc *d, const char *weight) {
    const mirt_optimizer *o;
    int k = 1;
    while ((o = mirt__optimizer_number(d, k)) && !mirt__matches(weight, d->optimizers[k - 1].weights)) k++;
    return o ? o : &d->optimizer;
}

MIRT__LIB const mirt_optimizer *mirt__optimizer_of(const mirt_model *model, int variable) {
    int first;
    mirt__root(model, &first);
    variable -= first;
    if (variable < 0 || variable >= model->num_variables) return &model->config.optimizer;
    return mirt__optimizer_named(&model->config, model->variable[variable].name);
}

MIRT__LIB bool mirt__optimizers_any(const mirt_compile_desc *d, bool (*is)(const mirt_optimizer *optimizer)) {
    int k = 0;
    while (mirt__optimizer_number(d, k) && !is(mirt__optimizer_number(d, k))) k++;
    return mirt__optimizer_number(d, k) != NULL;
}

MIRT__LIB const char *mirt__optimizers_name(const mirt_compile_desc *d) {
    return mirt__optimizer_number(d, 1) ? "several optimizers" : mirt__optimizer_class_get(d->optimizer.kind)->name;
}

MIRT__LIB int mirt__slots(const mirt_compile_desc *d) {
    const char *name[MIRT__MAX_SLOTS];
    int most = 0;
    for (int k = 0; mirt__optimizer_number(d, k); k++) {
        const int slots = mirt__optimizer_slot_names(mirt__optimizer_number(d, k), name);
        if (most < slots) most = slots;
    }
    return most;
}

MIRT__LIB const char *mirt__slot_of(const mirt_compile_desc *d, const char *weight, int block) {
    const char *name[MIRT__MAX_SLOTS];
    const mirt_optimizer *o = mirt__optimizer_named(d, weight);
    const int count = mirt__optimizer_slot_names(o, name);
    if (o->use_ema && block >= count - 1) block = block == mirt__slots(d) - 1 ? count - 1 : count;
    return block < count ? name[block] : NULL;
}

MIRT__LIB mirt_status mirt__optimizers_check(const mirt_model *model, const mirt_compile_desc *d) {
    const mirt_optimizer *o;
    mirt_status status = mirt__optimizer_check(&d->optimizer);
    for (int k = 1; (o = mirt__optimizer_number(d, k)) && status == MIRT_OK; k++) {
        const char *weights = d->optimizers[k - 1].weights, *has = NULL;
        int i = 0;
        while (i < model->num_variables && mirt__optimizer_named(d, model->variable[i].name) != o) i++;
        if (i == model->num_variables || !mirt__utf8_valid(weights, strlen(weights)))
            has = "no weight that optimizers before it do not have";
        else if (o->schedule) has = "a function as its schedule; give it a value (decay)";
        else if (o->use_ema != d->optimizer.use_ema)
            has = o->use_ema ? "use_ema, the default has not" : "no use_ema, the default has it";
        if (has) return mirt__fail(MIRT_E_INVALID, "the optimizer of \"%s\" has %s", weights, has);
        status = mirt__optimizer_check(o);
        if (status != MIRT_OK) mirt__fail_at("the optimizer of \"%s\"", weights);
    }
    return status;
}

/* >>weight decay, clipping and averages */

MIRT__LIB bool mirt__optimizer_whole(const mirt_optimizer *o) {
    return mirt__optimizer_class_get(o->kind)->direction != NULL;
}

/* Whole sums are there where norms are asked for. */
MIRT__LIB bool mirt__optimizer_norms(const mirt_optimizer *o) {
    return o->clipnorm > 0 || o->global_clipnorm > 0 || mirt__optimizer_whole(o);
}

MIRT__LIB bool mirt__optimizer_by_variable(const mirt_optimizer *o) {
    return o->clipnorm > 0 || mirt__optimizer_whole(o) ||
           (o->weight_decay > 0 && o->exclude_from_weight_decay && *o->exclude_from_weight_decay);
}

/* Whether the text contains one of the words of a list. */
static bool mirt__has_word(const char *text, const char *list) {
    while (list && *list) {
        const size_t size = strcspn(list, ",");
        for (const char *at = text; size && *at; at++) {
            if (strncmp(at, list, size) == 0) return true;
        }
        list += size + (list[size] != 0);
    }
    return false;
}

/* Excluded names are searched in the weight's own name, without names of layers, as in Keras. */
static bool mirt__decays(const mirt_optimizer *o, const char *path) {
    const char *last = strrchr(path, '/');
    return !mirt__has_word(last ? last + 1 : path, o->exclude_from_weight_decay);
}

MIRT__LIB bool mirt__muon_leaves(const mirt_optimizer *o, const mirt__variable *v) {
    static const char word[] = "embedding";
    bool embeds = false;
    for (const char *at = v->name; o->exclude_embeddings && *at && !embeds; at++) {
        size_t same = 0;
        while (word[same] && (at[same] | 0x20) == word[same]) same++;
        embeds = !word[same];
    }
    return v->shape.rank != 2 || embeds || mirt__has_word(v->name, o->exclude_layers);
}

/* As in Keras, a NaN norm makes the gradient NaN; an infinite one makes its infinite elements NaN and the rest 0. */
static float mirt__clip_scale(double squares, float most) {
    const double norm = sqrt(squares);
    return norm <= (double)most ? 1.0f : (float)((double)most / norm);
}

MIRT__LIB void mirt__optimizer_extras(const mirt_optimizer *o, double squares, mirt__update *u) {
    if (isinf(squares)) squares = (double)NAN; /* then all gradients are NaN in Keras */
    u->scale = o->global_clipnorm > 0 ? mirt__clip_scale(squares, o->global_clipnorm) : 1.0f;
    u->clip = o->clipvalue;
    u->shaped = u->clip > 0 || u->scale != 1.0f;
}

MIRT__LIB void mirt__optimizer_variable(const mirt_optimizer *o, const mirt__variable *v, double squares, double rate,
                                        mirt__update *u) {
    if (o->clipnorm > 0) {
        u->scale = mirt__clip_scale(squares, o->clipnorm);
        u->shaped = u->scale != 1.0f;
    }
    const bool adam = o->kind == MIRT_MUON && mirt__muon_leaves(o, v);
    const double decay = mirt__as_written(adam ? o->adam_weight_decay : o->weight_decay);
    u->decay = mirt__decays(o, v->name) ? (float)(decay * rate) : 0;
}

MIRT__LIB void mirt__optimizer_update(const mirt_model *model, const mirt_optimizer *o, char *const *slots, double rate,
                                      mirt__update *update) {
    mirt__real *slot[MIRT__MAX_SLOTS];
    for (int i = 0; i < MIRT__MAX_SLOTS; i++) slot[i] = (mirt__real *)(void *)slots[i];
    update->kind = o->kind;
    update->decay = (float)(mirt__as_written(o->weight_decay) * rate);
    if (o->use_ema) {
        update->average = slot[mirt__slots(&model->config) - 1];
        update->keep = model->step ? o->ema_momentum : 0.0f; /* it begins with the weights after the first step */
        update->fresh = model->step ? (float)(1 - mirt__as_written(o->ema_momentum)) : 1.0f;
        update->overwrite = o->ema_overwrite_frequency && (model->step + 1) % o->ema_overwrite_frequency == 0;
    }
    mirt__optimizer_numbers(o, model->step + 1, rate, slot, update);
}

/* The averages of the trained weights. They and the weights are up to date on the host. */
static char *mirt__averages(mirt_model *model) {
    mirt__weights_to_host(mirt__root(model, NULL));
    mirt__slots_to_host(model);
    return model->slot[mirt__slots(&model->config) - 1];
}

MIRT__LIB void mirt__averages_keep(mirt_model *model) {
    const mirt_model *root = mirt__root(model, NULL);
    memcpy(mirt__averages(model), root->weight, root->trained_bytes);
    mirt__slots_changed(model);
}

MIRT__LIB void mirt__averages_swap(mirt_model *model, bool in) {
    if (model->swapped == in || !model->step) return;
    mirt_model *root = mirt__root(model, NULL);
    char *average = mirt__averages(model), piece[4096];
    for (size_t at = 0, size; at < root->trained_bytes; at += size) {
        size = root->trained_bytes - at < sizeof piece ? root->trained_bytes - at : sizeof piece;
        memcpy(piece, root->weight + at, size);
        memcpy(root->weight + at, average + at, size);
        memcpy(average + at, piece, size);
    }
    model->swapped = in;
    mirt__weights_changed(root);
    mirt__slots_changed(model);
}

MIRT_API mirt_status mirt_apply_averages(mirt_model *model) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing("mirt_apply_averages", "model");
    if (!model->compiled || !model->config.optimizer.use_ema)
        return mirt__fail(MIRT_E_STATE, "%s is not compiled with use_ema: it has no averages of its weights",
                          model->name);
    mirt__averages_swap(model, false);
    mirt_model *root = mirt__root(model, NULL);
    const char *average = mirt__averages(model);
    if (model->step) memcpy(root->weight, average, root->trained_bytes);
    mirt__weights_changed(root);
    return MIRT_OK;
}

/* >>the learning rate */

MIRT__LIB double mirt__optimizer_rate(const mirt_optimizer *o, int64_t step) {
    return o->decay.kind ? mirt__schedule_rate(&o->decay, step) : (double)o->learning_rate;
}

MIRT__LIB double mirt__rates_at(const mirt_model *model, double rate, int64_t step) {
    const mirt_optimizer *o;
    for (int k = 1; mirt__is_rate(rate) && (o = mirt__optimizer_number(&model->config, k)); k++)
        rate = mirt__optimizer_rate(o, step);
    return rate;
}

MIRT__LIB mirt_status mirt__one_rate(const mirt_model *model) {
    if (!mirt__optimizer_number(&model->config, 1)) return MIRT_OK;
    return mirt__fail(MIRT_E_STATE,
                      "%s has several optimizers, each with its learning rate or schedule (decay) from mirt_compile",
                      model->name);
}

MIRT_API double mirt_get_learning_rate(const mirt_model *model) {
    MIRT__ENTER;
    if (!model) return 0;
    const mirt_optimizer *o = &model->config.optimizer;
    if (model->rate_set) return (double)o->learning_rate;
    if (!o->schedule) return mirt__optimizer_rate(o, model->step);
    MIRT__CLAIM(model->strategy, __func__, (double)NAN);
    mirt__hold((mirt_model *)model);
    double rate;
    {
        MIRT__OUTSIDE;
        rate = (double)o->schedule(model->step, o->schedule_user);
    }
    mirt__let_go((mirt_model *)model);
    return rate;
}

MIRT__LIB mirt_status mirt__coming_rate(const mirt_model *model, double *rate) {
    *rate = mirt_get_learning_rate(model);
    const double value = mirt__rates_at(model, *rate, model->step);
    if (mirt__is_rate(value)) return MIRT_OK;
    return mirt__fail(
        MIRT_E_INVALID,
        "the learning-rate schedule gave %g for step %lld; it must be a finite number and not negative", value,
        (long long)model->step);
}

MIRT_API mirt_status mirt_set_learning_rate(mirt_model *model, double rate) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail(MIRT_E_INVALID, "mirt_set_learning_rate: no model");
    if (!mirt__is_rate(rate))
        return mirt__fail(MIRT_E_INVALID, "the learning rate is %g; it must be finite and not negative", rate);
    if (mirt__one_rate(model) != MIRT_OK) return mirt_last_status();
    model->config.optimizer.learning_rate = (float)rate;
    model->rate_set = true;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_set_schedule(mirt_model *model, const mirt_schedule *schedule) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model || !schedule) return mirt__fail_missing("mirt_set_schedule", model ? "schedule" : "model");
    if (mirt__schedule_check(schedule) != MIRT_OK || mirt__one_rate(model) != MIRT_OK) return mirt_last_status();
    model->config.optimizer.learning_rate = (float)mirt_get_learning_rate(model);
    model->config.optimizer.schedule = NULL;
    model->config.optimizer.decay = *schedule;
    model->rate_set = false;
    return MIRT_OK;
}

MIRT_API int64_t mirt_step(const mirt_model *model) { return model ? model->step : 0; }
