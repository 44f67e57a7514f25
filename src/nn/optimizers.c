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

MIRT__LIB void mirt__optimizer_defaults(mirt_optimizer *o) {
    if (o->kind != MIRT_ADAM || o->beta_1 != 0 || o->beta_2 != 0 || o->epsilon != 0) return;
    const mirt_optimizer keras = mirt_adam(1e-3f);
    o->beta_1 = keras.beta_1;
    o->beta_2 = keras.beta_2;
    o->epsilon = keras.epsilon;
    if (o->learning_rate == 0 && !o->schedule) o->learning_rate = keras.learning_rate;
}

static bool mirt__is_share(float x) { return x >= 0 && x < 1; }

/* The decimal number that was meant: 0.999f is 0.99900001287, which would leave 1 - beta off by 1.3e-5. */
static double mirt__as_written(float beta) {
    double rounded = floor((double)beta * 1e7 + 0.5) / 1e7;
    return (float)rounded == beta ? rounded : (double)beta;
}

static int mirt__adam_slots(const mirt_optimizer *o) {
    (void)o;
    return 2;
}

static mirt_status mirt__adam_check(const mirt_optimizer *o) {
    if (mirt__is_share(o->beta_1) && mirt__is_share(o->beta_2) && o->epsilon >= 0 && o->epsilon <= FLT_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "Adam's beta_1 %g and beta_2 %g must lie in [0, 1) and epsilon %g not below 0; start from mirt_adam(rate)",
                      (double)o->beta_1, (double)o->beta_2, (double)o->epsilon);
}

static mirt__update_fn mirt__adam_update(const mirt_optimizer *o, const mirt__kernels *kernels, int64_t step, double rate, mirt__update *update) {
    double t = (double)step;
    update->new_1 = (float)(1 - mirt__as_written(o->beta_1));
    update->new_2 = (float)(1 - mirt__as_written(o->beta_2));
    update->epsilon = o->epsilon;
    /* the powers are of the float32 numbers, as in Keras */
    update->learning_rate = (float)(rate * (sqrt(1 - pow((double)o->beta_2, t)) / (1 - pow((double)o->beta_1, t))));
    return kernels->adam;
}

static int mirt__sgd_slots(const mirt_optimizer *o) { return o->momentum != 0; }

static mirt_status mirt__sgd_check(const mirt_optimizer *o) {
    if (mirt__is_share(o->momentum)) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "SGD's momentum is %g; it must lie in [0, 1)", (double)o->momentum);
}

static mirt__update_fn mirt__sgd_update(const mirt_optimizer *o, const mirt__kernels *kernels, int64_t step, double rate, mirt__update *update) {
    (void)step;
    update->momentum = o->momentum;
    update->nesterov = o->nesterov;
    update->learning_rate = (float)rate;
    return kernels->sgd;
}

static const mirt__field mirt__adam_fields[] = {{"beta_1", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, beta_1)},
                                                {"beta_2", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, beta_2)},
                                                {"epsilon", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, epsilon)}};
static const mirt__field mirt__sgd_fields[] = {{"momentum", MIRT__FIELD_FLOAT, offsetof(mirt_optimizer, momentum)},
                                               {"nesterov", MIRT__FIELD_BOOL, offsetof(mirt_optimizer, nesterov)}};

/* One row an optimizer. Keras calls Adam's moments momentum and velocity. */
static const mirt__optimizer_class mirt__optimizer_table[MIRT__OPTIMIZER_COUNT] = {
    {"adam", {"momentum", "velocity"}, mirt__adam_fields, MIRT__COUNT(mirt__adam_fields), mirt__adam_slots, mirt__adam_check, mirt__adam_update},
    {"sgd", {"momentum", NULL}, mirt__sgd_fields, MIRT__COUNT(mirt__sgd_fields), mirt__sgd_slots, mirt__sgd_check, mirt__sgd_update},
};

MIRT__LIB const mirt__optimizer_class *mirt__optimizer_class_get(mirt_optimizer_kind kind) { return &mirt__optimizer_table[kind]; }

MIRT__LIB int mirt__optimizer_slots(const mirt_optimizer *o) { return mirt__optimizer_table[o->kind].slots(o); }

MIRT__LIB mirt_status mirt__optimizer_check(const mirt_optimizer *o) {
    if ((int)o->kind < 0 || o->kind >= MIRT__OPTIMIZER_COUNT) return mirt__fail(MIRT_E_INVALID, "there is no optimizer number %d", (int)o->kind);
    if (!o->schedule && !(o->learning_rate >= 0 && o->learning_rate <= FLT_MAX)) {
        return mirt__fail(MIRT_E_INVALID, "the learning rate is %g; it must be a number and not negative", (double)o->learning_rate);
    }
    return mirt__optimizer_table[o->kind].check(o);
}

MIRT__LIB mirt__update_fn mirt__optimizer_update(const mirt_model *model, const mirt__kernels *kernels, double rate, mirt__update *update) {
    const mirt_optimizer *o = &model->config.optimizer;
    for (int i = 0; i < 2; i++) update->slot[i] = (mirt__real *)(void *)model->slot[i];
    return mirt__optimizer_table[o->kind].update(o, kernels, model->step + 1, rate, update);
}

MIRT_API double mirt_get_learning_rate(const mirt_model *model) {
    if (!model) return 0;
    const mirt_optimizer *o = &model->config.optimizer;
    if (!o->schedule || model->rate_set) return (double)o->learning_rate;
    mirt__hold((mirt_model *)model);
    double rate = (double)o->schedule(model->step, o->schedule_user);
    mirt__let_go((mirt_model *)model);
    return rate;
}

MIRT_API mirt_status mirt_set_learning_rate(mirt_model *model, double rate) {
    if (!model) return mirt__fail(MIRT_E_INVALID, "mirt_set_learning_rate: no model");
    if (!(rate >= 0 && rate <= (double)FLT_MAX)) return mirt__fail(MIRT_E_INVALID, "the learning rate is %g; it must be a number and not negative", rate);
    model->config.optimizer.learning_rate = (float)rate;
    model->rate_set = true;
    return MIRT_OK;
}

MIRT_API int64_t mirt_step(const mirt_model *model) { return model ? model->step : 0; }
