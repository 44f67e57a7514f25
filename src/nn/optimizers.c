/* Optimizers: defaults, checks, and the formula of each update. */

#include "model.h"

MIRT_API mirt_optimizer mirt_adam(float learning_rate) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = MIRT_ADAM;
    o.learning_rate = learning_rate;
    o.beta_1 = 0.9f;
    o.beta_2 = 0.999f;
    o.epsilon = 1e-7f;
    return o;
}

MIRT_API mirt_optimizer mirt_sgd(float learning_rate, float momentum, bool nesterov) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = MIRT_SGD;
    o.learning_rate = learning_rate;
    o.momentum = momentum;
    o.nesterov = nesterov;
    return o;
}

MIRT_API mirt_optimizer mirt_adamw(float learning_rate) {
    mirt_optimizer o = mirt_adam(learning_rate);
    o.kind = MIRT_ADAMW;
    o.weight_decay = 0.004f;
    return o;
}

MIRT_API mirt_optimizer mirt_rmsprop(float learning_rate) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = MIRT_RMSPROP;
    o.learning_rate = learning_rate;
    o.rho = 0.9f;
    o.epsilon = 1e-7f;
    return o;
}

MIRT__LIB bool mirt__is_rate(double x) { return x >= 0 && x <= (double)FLT_MAX; }

static bool mirt__is_share(float x) { return x >= 0 && x < 1; }

MIRT__LIB double mirt__as_written(float x) {
    double rounded = floor((double)x * 1e7 + 0.5) / 1e7;
    return (float)rounded == x ? rounded : (double)x;
}

static int mirt__adam_slots(const mirt_optimizer *o, const char **name) {
    name[0] = "momentum";
    name[1] = "velocity";
    name[2] = "velocity_hat";
    return 2 + o->amsgrad;
}

static mirt_status mirt__betas_check(const mirt_optimizer *o, const char *whose, const char *function) {
    if (mirt__is_share(o->beta_1) && mirt__is_share(o->beta_2) && mirt__is_rate((double)o->epsilon))
        return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "%s's beta_1 %g and beta_2 %g must be in [0, 1), and epsilon %g must not be negative; start "
                      "from %s(rate)",
                      whose, (double)o->beta_1, (double)o->beta_2, (double)o->epsilon, function);
}

static mirt_status mirt__adam_check(const mirt_optimizer *o) { return mirt__betas_check(o, "Adam", "mirt_adam"); }

/* Two moving averages, in the first slots. */
static void mirt__moments_update(const mirt_optimizer *o, int slots, mirt__real *const *slot, mirt__update *update) {
    memcpy(update->slot, slot, (size_t)slots * sizeof *slot);
    update->new_1 = (float)(1 - mirt__as_written(o->beta_1));
    update->new_2 = (float)(1 - mirt__as_written(o->beta_2));
    update->epsilon = o->epsilon;
}

static void mirt__adam_update(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                              mirt__update *update) {
    double t = (double)step;
    mirt__moments_update(o, 2 + o->amsgrad, slot, update);
    /* powers of the float32 numbers, as in Keras */
    update->learning_rate = (float)(rate * (sqrt(1 - pow((double)o->beta_2, t)) / (1 - pow((double)o->beta_1, t))));
}

static const mirt__field mirt__adam_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_1),
                                                MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_2),
                                                MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon)};
static const mirt__optimizer_class mirt__optimizer_adam = {
    "adam", mirt_adam, MIRT__FIELDS(mirt__adam_fields), true, false,
    mirt__adam_slots, mirt__adam_check, mirt__adam_update};
static const mirt__optimizer_class mirt__optimizer_adamw = {
    "adamw", mirt_adamw, MIRT__FIELDS(mirt__adam_fields), true, false,
    mirt__adam_slots, mirt__adam_check, mirt__adam_update};

static int mirt__sgd_slots(const mirt_optimizer *o, const char **name) {
    name[0] = "momentum";
    return o->momentum != 0;
}

static mirt_status mirt__sgd_check(const mirt_optimizer *o) {
    if (mirt__is_share(o->momentum)) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "SGD's momentum is %g; it must be in [0, 1)", (double)o->momentum);
}

static void mirt__sgd_update(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                             mirt__update *update) {
    (void)step;
    if (o->momentum != 0) update->slot[0] = slot[0];
    update->momentum = o->momentum;
    update->nesterov = o->nesterov;
    update->learning_rate = (float)rate;
}

static mirt_optimizer mirt__sgd_keras(float learning_rate) { return mirt_sgd(learning_rate, 0, false); }
static const mirt__field mirt__sgd_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, momentum),
                                               MIRT__OWN_FIELD(mirt_optimizer, BOOL, nesterov)};
static const mirt__optimizer_class mirt__optimizer_sgd = {
    "sgd", mirt__sgd_keras, MIRT__FIELDS(mirt__sgd_fields), false, false,
    mirt__sgd_slots, mirt__sgd_check, mirt__sgd_update};

static int mirt__rmsprop_slots(const mirt_optimizer *o, const char **name) {
    int count = 1;
    name[0] = "velocity";
    if (o->momentum != 0) name[count++] = "momentum";
    if (o->centered) name[count++] = "average_gradient";
    return count;
}

static mirt_status mirt__rmsprop_check(const mirt_optimizer *o) {
    if (mirt__is_share(o->rho) && mirt__is_share(o->momentum) && mirt__is_rate((double)o->epsilon))
        return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "RMSprop's rho %g and momentum %g must be in [0, 1), and epsilon %g must not be negative; start "
                      "from mirt_rmsprop(rate)",
                      (double)o->rho, (double)o->momentum, (double)o->epsilon);
}

static void mirt__rmsprop_update(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                                 mirt__update *update) {
    (void)step;
    update->slot[0] = *slot++;
    if (o->momentum != 0) update->slot[1] = *slot++;
    if (o->centered) update->slot[2] = *slot;
    update->new_1 = (float)(1 - mirt__as_written(o->rho));
    update->momentum = o->momentum;
    update->epsilon = o->epsilon;
    update->learning_rate = (float)rate;
}

static const mirt__field mirt__rmsprop_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, rho),
                                                   MIRT__OWN_FIELD(mirt_optimizer, FLOAT, momentum),
                                                   MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon),
                                                   MIRT__OWN_FIELD(mirt_optimizer, BOOL, centered)};
static const mirt__optimizer_class mirt__optimizer_rmsprop = {
    "rmsprop", mirt_rmsprop, MIRT__FIELDS(mirt__rmsprop_fields), false, false,
    mirt__rmsprop_slots, mirt__rmsprop_check, mirt__rmsprop_update};

MIRT_API mirt_optimizer mirt_nadam(float learning_rate) {
    mirt_optimizer o = mirt_adam(learning_rate);
    o.kind = MIRT_NADAM;
    return o;
}

static mirt_status mirt__nadam_check(const mirt_optimizer *o) { return mirt__betas_check(o, "Nadam", "mirt_nadam"); }

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

/* Each number of Keras's formula divided by sqrt(v / (1 - beta_2^t)) / sqrt(v). */
static void mirt__nadam_update(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                               mirt__update *update) {
    const double beta_1 = (double)o->beta_1, beta_2 = (double)o->beta_2, t = (double)step; /* float32, as in Keras */
    const double now = beta_1 * (1 - 0.5 * pow(0.96, t)), next = beta_1 * (1 - 0.5 * pow(0.96, t + 1));
    const double product = mirt__nadam_product(mirt__as_written(o->beta_1), step), size = sqrt(1 - pow(beta_2, t));
    memcpy(update->slot, slot, 2 * sizeof *slot);
    update->new_1 = (float)(1 - beta_1);
    update->new_2 = (float)(1 - beta_2);
    update->epsilon = (float)((double)o->epsilon * size);
    update->learning_rate = (float)(rate * size * next / (1 - product * next)); /* of the momentum, */
    update->momentum = (float)(rate * size * (1 - now) / (1 - product));        /* and of the gradient */
}

static const mirt__optimizer_class mirt__optimizer_nadam = {
    "nadam", mirt_nadam, MIRT__FIELDS(mirt__adam_fields), false, false,
    mirt__adam_slots, mirt__nadam_check, mirt__nadam_update};

MIRT_API mirt_optimizer mirt_adagrad(float learning_rate) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = MIRT_ADAGRAD;
    o.learning_rate = learning_rate;
    o.initial_accumulator_value = 0.1f;
    o.epsilon = 1e-7f;
    return o;
}

static int mirt__adagrad_slots(const mirt_optimizer *o, const char **name) {
    (void)o;
    name[0] = "accumulator";
    return 1;
}

static mirt_status mirt__adagrad_check(const mirt_optimizer *o) {
    const double initial = (double)o->initial_accumulator_value, epsilon = (double)o->epsilon;
    if (mirt__is_rate(initial) && mirt__is_rate(epsilon)) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "Adagrad's initial_accumulator_value %g and epsilon %g must be finite and not negative", initial,
                      epsilon);
}

static void mirt__adagrad_update(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                                 mirt__update *update) {
    (void)step;
    update->slot[0] = slot[0];
    update->epsilon = o->epsilon;
    update->learning_rate = (float)rate;
}

static const mirt__field mirt__adagrad_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, initial_accumulator_value),
                                                   MIRT__OWN_FIELD(mirt_optimizer, FLOAT, epsilon)};
static const mirt__optimizer_class mirt__optimizer_adagrad = {
    "adagrad", mirt_adagrad, MIRT__FIELDS(mirt__adagrad_fields), false, true,
    mirt__adagrad_slots, mirt__adagrad_check, mirt__adagrad_update};

MIRT_API mirt_optimizer mirt_adamax(float learning_rate) {
    mirt_optimizer o = mirt_adam(learning_rate);
    o.kind = MIRT_ADAMAX;
    return o;
}

static int mirt__adamax_slots(const mirt_optimizer *o, const char **name) {
    (void)o;
    name[0] = "momentum";
    name[1] = "norm";
    return 2;
}

static mirt_status mirt__adamax_check(const mirt_optimizer *o) { return mirt__betas_check(o, "Adamax", "mirt_adamax"); }

static void mirt__adamax_update(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                                mirt__update *update) {
    mirt__moments_update(o, 2, slot, update);
    update->learning_rate = (float)(rate / (1 - pow((double)o->beta_1, (double)step)));
}

static const mirt__optimizer_class mirt__optimizer_adamax = {
    "adamax", mirt_adamax, MIRT__FIELDS(mirt__adam_fields), false, false,
    mirt__adamax_slots, mirt__adamax_check, mirt__adamax_update};

MIRT_API mirt_optimizer mirt_lion(float learning_rate) {
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = MIRT_LION;
    o.learning_rate = learning_rate;
    o.beta_1 = 0.9f;
    o.beta_2 = 0.99f;
    return o;
}

static int mirt__lion_slots(const mirt_optimizer *o, const char **name) {
    (void)o;
    name[0] = "momentum";
    return 1;
}

static mirt_status mirt__lion_check(const mirt_optimizer *o) {
    if (o->beta_1 > 0 && mirt__is_share(o->beta_1) && mirt__is_share(o->beta_2)) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "Lion's beta_1 %g must be in (0, 1), and beta_2 %g in [0, 1); start from mirt_lion(rate)",
                      (double)o->beta_1, (double)o->beta_2);
}

static void mirt__lion_update(const mirt_optimizer *o, int64_t step, double rate, mirt__real *const *slot,
                              mirt__update *update) {
    (void)step;
    update->slot[0] = slot[0];
    update->new_1 = (float)(1 - (double)o->beta_1); /* float32, as in Keras */
    update->new_2 = (float)(1 - (double)o->beta_2);
    update->learning_rate = (float)rate;
}

static const mirt__field mirt__lion_fields[] = {MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_1),
                                                MIRT__OWN_FIELD(mirt_optimizer, FLOAT, beta_2)};
static const mirt__optimizer_class mirt__optimizer_lion = {
    "lion", mirt_lion, MIRT__FIELDS(mirt__lion_fields), false, false,
    mirt__lion_slots, mirt__lion_check, mirt__lion_update};

/* >>all optimizers */

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

#define MIRT__OPTIMIZER_ROW(kind, name, kernel) &mirt__optimizer_##name,
static const mirt__optimizer_class *const mirt__optimizer_table[] = {MIRT_OPTIMIZER_LIST(MIRT__OPTIMIZER_ROW)};
#undef MIRT__OPTIMIZER_ROW

MIRT__LIB const mirt__optimizer_class *mirt__optimizer_class_get(mirt_optimizer_kind kind) {
    return mirt__optimizer_table[kind];
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
    *o = filled;
    if (o->weight_decay == 0) o->weight_decay = keras.weight_decay;
    if (o->learning_rate == 0 && !o->schedule && !o->decay.kind) o->learning_rate = keras.learning_rate;
}

MIRT__LIB int mirt__optimizer_slot_names(const mirt_optimizer *o, const char *name[MIRT__MAX_SLOTS]) {
    int count = mirt__optimizer_table[o->kind]->slots(o, name);
    if (o->use_ema) name[count++] = "average";
    return count;
}

MIRT__LIB int mirt__optimizer_slots(const mirt_optimizer *o) {
    const char *name[MIRT__MAX_SLOTS];
    return mirt__optimizer_slot_names(o, name);
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
    if (o->amsgrad && !mirt__optimizer_table[o->kind]->amsgrad)
        return mirt__fail(MIRT_E_INVALID, "amsgrad is for Adam and AdamW");
    if (o->exclude_from_weight_decay &&
        !mirt__utf8_valid(o->exclude_from_weight_decay, strlen(o->exclude_from_weight_decay))) {
        return mirt__fail(MIRT_E_INVALID, "exclude_from_weight_decay is not valid UTF-8");
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
    return mirt__optimizer_table[o->kind]->check(o) == MIRT_OK ? mirt__optimizer_extras_check(o) : mirt_last_status();
}

/* >>weight decay, clipping and averages */

MIRT__LIB bool mirt__optimizer_norms(const mirt_optimizer *o) { return o->clipnorm > 0 || o->global_clipnorm > 0; }

MIRT__LIB bool mirt__optimizer_by_variable(const mirt_optimizer *o) {
    return o->clipnorm > 0 || (o->weight_decay > 0 && o->exclude_from_weight_decay && *o->exclude_from_weight_decay);
}

/* Excluded names are searched in the weight's own name, without names of layers, as in Keras. */
static bool mirt__decays(const mirt_optimizer *o, const char *path) {
    const char *list = o->exclude_from_weight_decay, *last = strrchr(path, '/'), *name = last ? last + 1 : path;
    while (list && *list) {
        const size_t size = strcspn(list, ",");
        for (const char *at = name; size && *at; at++) {
            if (strncmp(at, list, size) == 0) return false;
        }
        list += size + (list[size] != 0);
    }
    return true;
}

/* As in Keras, a NaN norm makes the gradient NaN; an infinite one makes its infinite elements NaN and the rest 0. */
static float mirt__clip_scale(double squares, float most) {
    const double norm = sqrt(squares);
    return norm <= (double)most ? 1.0f : (float)((double)most / norm);
}

MIRT__LIB void mirt__optimizer_extras(const mirt_model *model, double squares, mirt__update *u) {
    const mirt_optimizer *o = &model->config.optimizer;
    if (isinf(squares)) squares = (double)NAN; /* then all gradients are NaN in Keras */
    u->scale = o->global_clipnorm > 0 ? mirt__clip_scale(squares, o->global_clipnorm) : 1.0f;
    u->clip = o->clipvalue;
    u->shaped = u->clip > 0 || u->scale != 1.0f;
}

MIRT__LIB void mirt__optimizer_variable(const mirt_model *model, const mirt__variable *v, double squares, double rate,
                                        mirt__update *u) {
    const mirt_optimizer *o = &model->config.optimizer;
    if (o->clipnorm > 0) {
        u->scale = mirt__clip_scale(squares, o->clipnorm);
        u->shaped = u->scale != 1.0f;
    }
    u->decay = mirt__decays(o, v->name) ? (float)(mirt__as_written(o->weight_decay) * rate) : 0;
}

MIRT__LIB void mirt__optimizer_update(const mirt_model *model, char *const *slots, double rate, mirt__update *update) {
    const mirt_optimizer *o = &model->config.optimizer;
    mirt__real *slot[MIRT__MAX_SLOTS];
    for (int i = 0; i < MIRT__MAX_SLOTS; i++) slot[i] = (mirt__real *)(void *)slots[i];
    update->kind = o->kind;
    update->decay = (float)(mirt__as_written(o->weight_decay) * rate);
    if (o->use_ema) {
        update->average = slot[mirt__optimizer_slots(o) - 1];
        update->keep = model->step ? o->ema_momentum : 0.0f; /* it begins with the weights after the first step */
        update->fresh = model->step ? (float)(1 - mirt__as_written(o->ema_momentum)) : 1.0f;
        update->overwrite = o->ema_overwrite_frequency && (model->step + 1) % o->ema_overwrite_frequency == 0;
    }
    mirt__optimizer_table[o->kind]->update(o, model->step + 1, rate, slot, update);
}

/* The averages of the trained weights. They and the weights are up to date on the host. */
static char *mirt__averages(mirt_model *model) {
    mirt__weights_to_host(mirt__root(model, NULL));
    mirt__slots_to_host(model);
    return model->slot[mirt__optimizer_slots(&model->config.optimizer) - 1];
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

MIRT_API double mirt_get_learning_rate(const mirt_model *model) {
    MIRT__ENTER;
    if (!model) return 0;
    const mirt_optimizer *o = &model->config.optimizer;
    if (model->rate_set || (!o->schedule && !o->decay.kind)) return (double)o->learning_rate;
    if (!o->schedule) return mirt__schedule_rate(&o->decay, model->step);
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
    if (mirt__is_rate(*rate)) return MIRT_OK;
    return mirt__fail(
        MIRT_E_INVALID,
        "the learning-rate schedule gave %g for step %lld; it must be a finite number and not negative", *rate,
        (long long)model->step);
}

MIRT_API mirt_status mirt_set_learning_rate(mirt_model *model, double rate) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail(MIRT_E_INVALID, "mirt_set_learning_rate: no model");
    if (!mirt__is_rate(rate))
        return mirt__fail(MIRT_E_INVALID, "the learning rate is %g; it must be finite and not negative", rate);
    model->config.optimizer.learning_rate = (float)rate;
    model->rate_set = true;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_set_schedule(mirt_model *model, const mirt_schedule *schedule) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model || !schedule) return mirt__fail_missing("mirt_set_schedule", model ? "schedule" : "model");
    if (mirt__schedule_check(schedule) != MIRT_OK) return mirt_last_status();
    model->config.optimizer.learning_rate = (float)mirt_get_learning_rate(model);
    model->config.optimizer.schedule = NULL;
    model->config.optimizer.decay = *schedule;
    model->rate_set = false;
    return MIRT_OK;
}

MIRT_API int64_t mirt_step(const mirt_model *model) { return model ? model->step : 0; }
