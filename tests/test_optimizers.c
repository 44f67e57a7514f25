/* Compares optimizers and learning-rate schedules with float64 Keras. They are saved and loaded; invalid ones are
   refused. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "optimizer_util.h"
#include "tap.h"

#include <unistd.h>

/* Whether `name` of golden numbers, an optimizer's and some options, begins with this word. */
static bool is_of(const char *name, const char *optimizer) {
    const size_t size = strlen(optimizer);
    return strncmp(name, optimizer, size) == 0 && (name[size] == 0 || name[size] == ' ');
}

static const mirt__optimizer_class *listed(int kind) { return mirt__optimizer_class_get((mirt_optimizer_kind)kind); }

/* The same optimizers as in make_optimizers.py. */
static mirt_optimizer optimizer_named(const char *name) {
    const bool sgd = is_of(name, "sgd");
    int kind = 0;
    while (kind + 1 < MIRT__OPTIMIZER_COUNT && !is_of(name, listed(kind)->name)) kind++;
    mirt_optimizer o = listed(kind)->keras(sgd ? 0.05f : strcmp(name, "adadelta") == 0 ? 0.5f : 0.01f);
    o.amsgrad = strstr(name, "amsgrad") != NULL;
    o.centered = strstr(name, "centered") != NULL;
    o.use_ema = strstr(name, "ema") != NULL;
    if (strcmp(name, "adam decayed") == 0) o.weight_decay = 0.1f;
    if (strcmp(name, "sgd decayed") == 0) o.weight_decay = 0.25f;
    if (o.centered || (o.kind >= MIRT_NADAM && o.use_ema)) o.weight_decay = 0.125f;
    if (strcmp(name, "adagrad clipnorm ema") == 0) o.initial_accumulator_value = 0.5f;
    if (strcmp(name, "lion clipnorm ema") == 0) o.beta_1 = 0.75f;
    if (strcmp(name, "adadelta clipnorm ema") == 0) o.rho = 0.75f;
    if (strcmp(name, "schedule_free_adamw clipnorm ema") == 0) {
        o.beta_1 = 0.75f;
        o.warmup_steps = 7;
    }
    if (strcmp(name, "ftrl clipnorm ema") == 0) {
        o.initial_accumulator_value = 0.5f;
        o.l1_regularization_strength = 0.125f;
        o.l2_regularization_strength = 0.25f;
        o.l2_shrinkage_regularization_strength = 0.0625f;
        o.beta = 0.5f;
    }
    if (strcmp(name, "lamb clipnorm ema") == 0) {
        o.beta_1 = 0.75f;
        o.epsilon = 0.125f;
    }
    if (o.kind == MIRT_ADAFACTOR) o.learning_rate = 0.25f;
    if (strcmp(name, "adafactor clipnorm ema") == 0) {
        o.beta_2_decay = -0.5f;
        o.epsilon = 0.125f;
        o.epsilon_2 = 0.5f;
        o.clip_threshold = 0.25f;
    }
    if (strcmp(name, "muon excluded") == 0) o.exclude_layers = "none of these,kern";
    if (strcmp(name, "muon clipnorm ema") == 0) {
        o.beta_1 = o.momentum = 0.75f;
        o.adam_weight_decay = 0.25f;
        o.adam_lr_ratio = o.rms_rate = 0.5f;
        o.muon_a = 3;
        o.muon_b = -4;
        o.muon_c = 1.75f;
        o.ns_steps = 3;
        o.nesterov = false;
    }
    if (strstr(name, "excluded")) {
        o.weight_decay = 0.5f;
        o.exclude_from_weight_decay = "gamma,bias";
    }
    if (strstr(name, "global_clipnorm")) o.global_clipnorm = sgd ? 1.0f : 2.0f;
    else if (strstr(name, "clipnorm")) o.clipnorm = sgd ? 1.0f : 1.5f;
    if (strstr(name, "clipvalue")) o.clipvalue = 0.75f;
    if (strcmp(name, "sgd clipnorm") == 0 || o.clipvalue != 0) o.momentum = 0.875f;
    if (sgd) o.nesterov = strcmp(name, "sgd clipnorm") == 0;
    if (strstr(name, "overwritten")) {
        o.momentum = 0.5f;
        o.ema_momentum = 0.75f;
        o.ema_overwrite_frequency = 3;
    }
    if (strstr(name, "global_clipnorm ema")) o.ema_momentum = 0.9f;
    if (strstr(name, "cosine")) {
        o.decay = mirt_cosine_decay(0.01f, 15, 0.1f);
        o.decay.warmup_target = 0.05f;
        o.decay.warmup_steps = 4;
    }
    if (strcmp(name, "rmsprop momentum") == 0) o.rho = 0.8f;
    if (o.kind == MIRT_RMSPROP && strcmp(name, "rmsprop") != 0) o.momentum = 0.5f;
    return o;
}

static void check_update(const golden_update *c, const char *cpu) {
    const char *names[MIRT__MAX_SLOTS];
    char slots[128] = "";
    double weights = 0, state = 0, finished = 0;
    setenv("MIRT_CPU", cpu, 1);
    mirt_strategy *s = strategy_of(1, 1, 1);
    const mirt_optimizer o = optimizer_named(c->name);
    mirt_model *m = golden_model(s, o);
    bool good = m && golden_steps(m, 0, OPTIMIZER_STEPS);
    int count = mirt__optimizer_slot_names(&o, names);
    for (int i = 0; i < count; i++)
        snprintf(slots + strlen(slots), sizeof slots - strlen(slots), i ? ",%s" : "%s", names[i]);
    if (good) {
        weights = block_off(m, m->weight, c->weight);
        for (int i = 0; i < count; i++)
            state = worse(state, block_off(m, m->slot[i], c->slot + (ptrdiff_t)i * OPTIMIZER_COUNT));
        if (c->finished) good = mirt_apply_averages(m) == MIRT_OK;
        if (c->finished) finished = block_off(m, m->weight, c->finished);
    }
    ok(good && strcmp(slots, c->slots) == 0 && weights < 1e-6 && state < 1e-6 && finished < 1e-6,
       "%s, %s: weights of %d steps off by %.1e, slots (%s) by %.1e%s%s", c->name, cpu, OPTIMIZER_STEPS, weights, slots,
       state, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
    unsetenv("MIRT_CPU");
}

/* Each optimizer of the list has its own row, golden numbers, and the defaults of its function when all is zero. */
static void check_listed(mirt_optimizer_kind kind, const char *name) {
    const mirt__optimizer_class *cls = listed(kind);
    int golden = 0;
    for (int i = 0; i < MIRT__COUNT(golden_updates); i++) golden += is_of(golden_updates[i].name, name);
    ok(strcmp(cls->name, name) == 0 && golden, "%s: its row is that of %s, and make_optimizers.py has it", name,
       cls->name);
    const mirt_optimizer keras = cls->keras(0.25f);
    mirt_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = kind;
    o.learning_rate = 0.25f;
    mirt__optimizer_defaults(&o);
    bool same = keras.kind == kind && o.learning_rate == keras.learning_rate && o.weight_decay == keras.weight_decay;
    for (int i = 0; i < cls->num_fields; i++) {
        const mirt__field *field = &cls->fields[i];
        const size_t at = field->offset, size = field->kind == MIRT__FIELD_BOOL ? sizeof(bool) : sizeof(float);
        same = same && memcmp((const char *)&o + at, (const char *)&keras + at, size) == 0;
    }
    ok(same && mirt__optimizer_check(&o) == MIRT_OK, "%s: zeros become Keras's defaults, which are good", name);
    same = true;
    for (int i = 0; i < cls->num_fields; i++) {
        const mirt__field *field = &cls->fields[i];
        const float *usual = (const float *)(const void *)((const char *)&keras + field->offset);
        if (field->kind != MIRT__FIELD_FLOAT || *usual == 0) continue;
        memset(&o, 0, sizeof o);
        o.kind = kind;
        *(float *)(void *)((char *)&o + field->offset) = 0.5f;
        const mirt_optimizer before = o;
        mirt__optimizer_defaults(&o);
        same = same && memcmp(&before, &o, sizeof o) == 0;
    }
    ok(same, "%s: a single number that is set shows that the zeros are meant", name);
}

static void check_constructors(void) {
    const mirt_optimizer sgd = mirt_sgd(0.5f, 0.25f, true), adam = mirt_adam(0.5f), adamw = mirt_adamw(0.5f),
                         rmsprop = mirt_rmsprop(0.5f), nadam = mirt_nadam(0.5f), adagrad = mirt_adagrad(0.5f),
                         adamax = mirt_adamax(0.5f), lion = mirt_lion(0.5f);
    ok(sgd.kind == MIRT_SGD && sgd.learning_rate == 0.5f && sgd.momentum == 0.25f && sgd.nesterov, "mirt_sgd");
    ok(adam.kind == MIRT_ADAM && adam.learning_rate == 0.5f && adam.beta_1 == 0.9f && adam.beta_2 == 0.999f &&
           adam.epsilon == 1e-7f && adam.weight_decay == 0,
       "mirt_adam");
    ok(adamw.kind == MIRT_ADAMW && adamw.learning_rate == 0.5f && adamw.beta_1 == 0.9f && adamw.beta_2 == 0.999f &&
           adamw.epsilon == 1e-7f && adamw.weight_decay == 0.004f,
       "mirt_adamw");
    ok(rmsprop.kind == MIRT_RMSPROP && rmsprop.learning_rate == 0.5f && rmsprop.rho == 0.9f &&
           rmsprop.epsilon == 1e-7f && rmsprop.momentum == 0 && !rmsprop.centered,
       "mirt_rmsprop");
    ok(nadam.kind == MIRT_NADAM && nadam.learning_rate == 0.5f && nadam.beta_1 == 0.9f && nadam.beta_2 == 0.999f &&
           nadam.epsilon == 1e-7f && nadam.weight_decay == 0,
       "mirt_nadam");
    ok(adagrad.kind == MIRT_ADAGRAD && adagrad.learning_rate == 0.5f && adagrad.initial_accumulator_value == 0.1f &&
           adagrad.epsilon == 1e-7f,
       "mirt_adagrad");
    ok(adamax.kind == MIRT_ADAMAX && adamax.learning_rate == 0.5f && adamax.beta_1 == 0.9f &&
           adamax.beta_2 == 0.999f && adamax.epsilon == 1e-7f && adamax.weight_decay == 0,
       "mirt_adamax");
    ok(lion.kind == MIRT_LION && lion.learning_rate == 0.5f && lion.beta_1 == 0.9f && lion.beta_2 == 0.99f,
       "mirt_lion");
    const mirt_optimizer adadelta = mirt_adadelta(0.5f), free = mirt_schedule_free_adamw(0.5f), ftrl = mirt_ftrl(0.5f);
    ok(adadelta.kind == MIRT_ADADELTA && adadelta.learning_rate == 0.5f && adadelta.rho == 0.95f &&
           adadelta.epsilon == 1e-7f,
       "mirt_adadelta");
    ok(free.kind == MIRT_SCHEDULE_FREE_ADAMW && free.learning_rate == 0.5f && free.beta_1 == 0.9f &&
           free.beta_2 == 0.999f && free.epsilon == 1e-8f && free.warmup_steps == 0 && free.weight_decay == 0,
       "mirt_schedule_free_adamw");
    ok(ftrl.kind == MIRT_FTRL && ftrl.learning_rate == 0.5f && ftrl.initial_accumulator_value == 0.1f &&
           ftrl.beta == 0,
       "mirt_ftrl");
    const mirt_optimizer lamb = mirt_lamb(0.5f);
    ok(lamb.kind == MIRT_LAMB && lamb.learning_rate == 0.5f && lamb.beta_1 == 0.9f && lamb.beta_2 == 0.999f &&
           lamb.epsilon == 1e-7f && lamb.weight_decay == 0,
       "mirt_lamb");
    const mirt_optimizer muon = mirt_muon(0.5f);
    ok(muon.kind == MIRT_MUON && muon.learning_rate == 0.5f && muon.beta_1 == 0.9f && muon.beta_2 == 0.999f &&
           muon.epsilon == 1e-7f && muon.weight_decay == 0.004f && muon.adam_weight_decay == 0.004f &&
           muon.muon_a == 3.4445f && muon.muon_b == -4.775f && muon.muon_c == 2.0315f && muon.adam_lr_ratio == 1 &&
           muon.momentum == 0.95f && muon.ns_steps == 5 && muon.nesterov && muon.exclude_embeddings &&
           muon.rms_rate == 0.2f && !muon.exclude_layers,
       "mirt_muon");
    const mirt_optimizer adafactor = mirt_adafactor(0.5f);
    ok(adafactor.kind == MIRT_ADAFACTOR && adafactor.learning_rate == 0.5f && adafactor.beta_2_decay == -0.8f &&
           adafactor.epsilon == 1e-30f && adafactor.epsilon_2 == 1e-3f && adafactor.clip_threshold == 1,
       "mirt_adafactor");
}

/* Nadam's numbers are functions of the step; Keras multiplies the momentums up step by step. */
static void check_nadam_steps(void) {
    mirt_optimizer o = mirt_nadam(1);
    double product = 1, off = 0;
    mirt__real *slot[MIRT__MAX_SLOTS] = {NULL};
    o.beta_1 = 0.9990234375f; /* its product lasts for long, and it is as it is written */
    o.beta_2 = 0.75f;
    for (int64_t t = 1; t <= 3000; t++) {
        const double now = (double)o.beta_1 * (1 - 0.5 * pow(0.96, (double)t));
        const double next = (double)o.beta_1 * (1 - 0.5 * pow(0.96, (double)t + 1));
        const double size = sqrt(1 - pow(0.75, (double)t));
        mirt__update u;
        memset(&u, 0, sizeof u);
        product *= now;
        mirt__optimizer_numbers(&o, t, 1, slot, &u);
        off = worse(off, fabs((double)u.momentum / (size * (1 - now) / (1 - product)) - 1));
        off = worse(off, fabs((double)u.learning_rate / (size * next / (1 - product * next)) - 1));
        off = worse(off, fabs((double)u.epsilon / (1e-7 * size) - 1));
    }
    ok(off < 2e-7, "Nadam's numbers of 3000 steps are off by %.1e of them", off);
}

/* What most updates do without is not asked for: no scaling, no pass over single variables. */
static void check_lean_updates(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_optimizer o = mirt_adamw(0.5f);
    mirt__update u;
    mirt_model *m = golden_model(s, o);
    memset(&u, 0, sizeof u);
    if (m) mirt__optimizer_extras(&o, 4, &u);
    ok(m && !u.shaped && u.scale == 1 && u.clip == 0 && !mirt__optimizer_norms(&o) && !mirt__optimizer_by_variable(&o),
       "without clipping gradients are not scaled, and without words to exclude all weights are updated at once");
    o.clipnorm = 2;
    m = golden_model(s, o);
    memset(&u, 0, sizeof u);
    if (m) mirt__optimizer_variable(&o, &m->variable[0], 4, 0.5, &u);
    bool good = m && !u.shaped && u.scale == 1 && u.decay == (float)(0.004 * 0.5);
    if (m) mirt__optimizer_variable(&o, &m->variable[0], 16, 0.5, &u);
    ok(good && u.shaped && u.scale == 0.5f && mirt__optimizer_norms(&o) && mirt__optimizer_by_variable(&o),
       "gradients are scaled from the norm on that is too large");
    mirt_strategy_destroy(s);
}

/* A weight of norm 0, and one whose step has norm 0, go as far as Adam's step says, as in Keras. */
static void check_zero_norms(void) {
    const float zeros[6] = {0}, ones[2] = {1, 1};
    float kernel[6] = {0}, bias[2] = {0};
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = golden_model(s, mirt_lamb(0.25f));
    mirt_array x = mirt_make_array(zeros, MIRT_FLOAT32, MIRT_SHAPE(1, 3)),
               y = mirt_make_array(ones, MIRT_FLOAT32, MIRT_SHAPE(1, 2));
    bool good = m && mirt_set_weight(m, "dense/bias", zeros, 2) == MIRT_OK; /* its gradient is -1 */
    good = good && mirt_train_step(m, x, y, NULL) == MIRT_OK && mirt_get_weight(m, "dense/bias", 0, bias, 2) == MIRT_OK;
    good = good && mirt_get_weight(m, "dense/kernel", 0, kernel, 6) == MIRT_OK;
    ok(good && fabsf(bias[0] - 0.25f) < 1e-5f && fabsf(bias[1] - 0.25f) < 1e-5f,
       "Lamb: a weight of zeros goes as far as the rate: to %g", (double)bias[0]);
    for (uint32_t i = 0; good && i < 6; i++) good = kernel[i] == golden_uniform(1, i);
    ok(good, "Lamb: a weight without a gradient stays as it is");
    mirt_strategy_destroy(s);
}

/* One step of a matrix of any shape. */
static void check_matrix(const golden_matrix *c, const char *cpu) {
    const float zeros[64] = {0};
    double off = 0;
    mirt_dense_desc d;
    mirt_compile_desc how;
    const int count = c->taps * c->rows * c->columns;
    const char *name = c->taps > 1 ? "conv2d/kernel" : "dense/kernel";
    mirt_conv2d_desc conv;
    mirt_shape in = MIRT_SHAPE(1, c->rows), out = MIRT_SHAPE(1, c->columns);
    float *weight = (float *)calloc((size_t)count, sizeof *weight);
    memset(&d, 0, sizeof d);
    memset(&how, 0, sizeof how);
    memset(&conv, 0, sizeof conv);
    setenv("MIRT_CPU", cpu, 1);
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "matrix");
    d.units = conv.filters = c->columns;
    d.no_bias = conv.no_bias = true;
    conv.kernel[0] = c->taps;
    conv.kernel[1] = 1;
    if (c->taps > 1) {
        in = MIRT_SHAPE(1, c->taps, 1, c->rows);
        out = MIRT_SHAPE(1, 1, 1, c->columns);
        mirt_model_output(m, mirt_conv2d(mirt_input(m, MIRT_SHAPE(c->taps, 1, c->rows)), &conv));
    } else {
        mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(c->rows)), &d));
    }
    how.loss = MIRT_MEAN_SQUARED_ERROR;
    for (int kind = 0; kind < MIRT__OPTIMIZER_COUNT; kind++) {
        if (strcmp(listed(kind)->name, c->name) == 0) how.optimizer = listed(kind)->keras(0.25f);
    }
    for (int i = 0; i < count; i++) weight[i] = golden_uniform(2, (uint32_t)i);
    bool good = mirt_compile(m, &how) == MIRT_OK &&
                mirt_set_weight(m, name, weight, (size_t)count) == MIRT_OK &&
                mirt_scatter(m, mirt_make_array(zeros, MIRT_FLOAT32, in),
                             mirt_make_array(zeros, MIRT_FLOAT32, out)) == MIRT_OK &&
                mirt_grad(m, NULL) == MIRT_OK;
    float *g = good ? mirt__gradient_at(&m->trainer->function[MIRT__TRAIN]->step, 0, 0) : NULL;
    for (int i = 0; good && i < count; i++)
        g[m->variable[0].offset / sizeof(float) + (size_t)i] = golden_uniform(3, (uint32_t)i);
    good = good && mirt_all_reduce(m) == MIRT_OK && mirt_apply(m) == MIRT_OK &&
           mirt_get_weight(m, name, 0, weight, (size_t)count) == MIRT_OK;
    for (int i = 0; good && i < count; i++) off = worse(off, fabs((double)weight[i] - c->weight[i]));
    ok(good && off < 2e-6, "%s, %s: one step of a %d x %d x %d weight is off by %.1e%s%s", c->name, cpu, c->taps,
       c->rows, c->columns, off, good ? "" : ": ", good ? "" : mirt_last_error());
    free(weight);
    mirt_strategy_destroy(s);
    unsetenv("MIRT_CPU");
}

/* Two steps of a matrix of 16 x 3. */
static bool muon_steps(float rms_rate, float kernel[48]) {
    float x[32], y[6];
    mirt_dense_desc d;
    mirt_compile_desc how;
    memset(&d, 0, sizeof d);
    memset(&how, 0, sizeof how);
    for (uint32_t i = 0; i < 32; i++) x[i] = golden_uniform(5, i);
    for (uint32_t i = 0; i < 6; i++) y[i] = golden_uniform(6, i);
    for (uint32_t i = 0; i < 48; i++) kernel[i] = golden_uniform(7, i);
    how.loss = MIRT_MEAN_SQUARED_ERROR;
    how.optimizer = mirt_muon(0.25f);
    how.optimizer.rms_rate = rms_rate;
    d.units = 3;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "muon");
    mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(16)), &d));
    bool good = mirt_compile(m, &how) == MIRT_OK && mirt_set_weight(m, "dense/kernel", kernel, 48) == MIRT_OK;
    for (int i = 0; i < 2 && good; i++)
        good = mirt_train_step(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(2, 16)),
                               mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(2, 3)), NULL) == MIRT_OK;
    good = good && mirt_get_weight(m, "dense/kernel", 0, kernel, 48) == MIRT_OK;
    mirt_strategy_destroy(s);
    return good;
}

/* Without an rms_rate the rate is not changed, and neither is it where that is 1 over the root of the longer side. */
static void check_plain_muon(void) {
    float without[48], with[48], other[48];
    ok(muon_steps(0, without) && muon_steps(0.25f, with) && muon_steps(0.5f, other) &&
           memcmp(without, with, sizeof with) == 0 && memcmp(without, other, sizeof with) != 0,
       "Muon with an rms_rate of 0 multiplies the rate by 1");
}

/* Weights that Muon leaves to AdamW: those that are no matrices, and by their names. */
static void check_left_weights(void) {
    static const struct {
        const char *name, *layers;
        int rank;
        bool all, left;
    } cases[] = {{"dense/kernel", NULL, 2, false, false},          {"dense/bias", NULL, 1, false, true},
                 {"conv/kernel", NULL, 4, false, true},            {"scale", NULL, 0, false, true},
                 {"TokenEmbeddings/kernel", NULL, 2, false, true}, {"TokenEmbeddings/kernel", NULL, 2, true, false},
                 {"embeddin/g", NULL, 2, false, false},            {"head/kernel", "tail,head", 2, false, true},
                 {"head/kernel", "tail", 2, false, false},         {"head/kernel", ",", 2, false, false}};
    int wrong = 0;
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        mirt_optimizer o = mirt_muon(1);
        mirt__variable v;
        memset(&v, 0, sizeof v);
        v.name = cases[i].name;
        v.shape.rank = cases[i].rank;
        o.exclude_embeddings = !cases[i].all;
        o.exclude_layers = cases[i].layers;
        wrong += mirt__muon_leaves(&o, &v) != cases[i].left;
    }
    ok(wrong == 0, "Muon leaves weights to AdamW by rank and name: %d of %d are wrong", wrong, MIRT__COUNT(cases));
}

/* Keras looks for the words in a weight's own name: of a layer named "bias_head" the kernel decays, too. */
static void check_excluded_names(void) {
    float x[2] = {0, 0}, y[1] = {0}, kernel[2], before[2], bias[1], one[1] = {1};
    mirt_strategy *s = mirt_one_device("cpu");
    mirt_model *m = mirt_model_create(s, "named");
    mirt_dense_desc d;
    mirt_compile_desc c;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    mirt_set_log(s, NULL, NULL);
    d.units = 1;
    d.name = "bias_head";
    mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(2)), &d));
    c.optimizer = mirt_sgd(0.5f, 0, false);
    c.optimizer.weight_decay = 0.5f;
    c.optimizer.exclude_from_weight_decay = "gamma,bias\0kernel"; /* it ends before "kernel" */
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    y[0] = 1; /* the output is the bias, 1: no gradient */
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_set_weight(m, "bias_head/bias", one, 1) == MIRT_OK &&
                mirt_get_weight(m, "bias_head/kernel", 0, before, 2) == MIRT_OK &&
                mirt_train_step(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(1, 2)),
                                mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(1, 1)), NULL) == MIRT_OK &&
                mirt_get_weight(m, "bias_head/kernel", 0, kernel, 2) == MIRT_OK &&
                mirt_get_weight(m, "bias_head/bias", 0, bias, 1) == MIRT_OK;
    ok(good && bias[0] == 1 && kernel[0] == 0.75f * before[0] && kernel[1] == 0.75f * before[1],
       "words to exclude are sought in a weight's own name, not in its layer's%s%s", good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

/* What Keras makes of gradients {0.5, bad, -0.25} and {3, 4} clipped to 1. */
static void check_clipping(const char *cpu) {
    const float nan = (float)NAN, inf = (float)INFINITY;
    const struct {
        const char *name;
        float bad, want[3], bias[2];
    } cases[] = {
        {"clipnorm", nan, {nan, nan, nan}, {-0.6f, -0.8f}},    {"clipnorm", inf, {0, nan, 0}, {-0.6f, -0.8f}},
        {"clipnorm", -inf, {0, nan, 0}, {-0.6f, -0.8f}},       {"global_clipnorm", nan, {nan, nan, nan}, {nan, nan}},
        {"global_clipnorm", inf, {nan, nan, nan}, {nan, nan}}, {"global_clipnorm", -inf, {nan, nan, nan}, {nan, nan}},
        {"clipvalue", nan, {-0.5f, nan, 0.25f}, {-1, -1}},     {"clipvalue", inf, {-0.5f, -1, 0.25f}, {-1, -1}},
        {"clipvalue", -inf, {-0.5f, 1, 0.25f}, {-1, -1}}};
    const float zeros[6] = {0};
    setenv("MIRT_CPU", cpu, 1);
    mirt_strategy *s = strategy_of(1, 1, 1);
    for (int k = 0; k < MIRT__COUNT(cases); k++) {
        const float gradient[OPTIMIZER_COUNT] = {0.5f, cases[k].bad, -0.25f, 0, 0, 0, 3, 4};
        mirt_array x = mirt_make_array(zeros, MIRT_FLOAT32, MIRT_SHAPE(1, 3)),
                   y = mirt_make_array(zeros, MIRT_FLOAT32, MIRT_SHAPE(1, 2));
        mirt_optimizer o = mirt_sgd(1, 0, false);
        o.clipnorm = strcmp(cases[k].name, "clipnorm") == 0;
        o.global_clipnorm = strcmp(cases[k].name, "global_clipnorm") == 0;
        o.clipvalue = strcmp(cases[k].name, "clipvalue") == 0;
        mirt_model *m = golden_model(s, o);
        bool good = m && mirt_set_weight(m, "dense/kernel", zeros, 6) == MIRT_OK &&
                    mirt_set_weight(m, "dense/bias", zeros, 2) == MIRT_OK && mirt_scatter(m, x, y) == MIRT_OK &&
                    mirt_grad(m, NULL) == MIRT_OK;
        for (int i = 0; good && i < OPTIMIZER_COUNT; i++) {
            float *g = mirt__gradient_at(&m->trainer->function[MIRT__TRAIN]->step, 0, 0) +
                       m->variable[i >= 6].offset / sizeof(float);
            g[i < 6 ? i : i - 6] = gradient[i];
        }
        good = good && mirt_all_reduce(m) == MIRT_OK && mirt_apply(m) == MIRT_OK;
        int wrong = 0;
        for (int i = 0; good && i < 5; i++) {
            const float want = i < 3 ? cases[k].want[i] : cases[k].bias[i - 3];
            const float have =
                ((const float *)(const void *)(m->weight + m->variable[i >= 3].offset))[i < 3 ? i : i - 3];
            wrong += isnan(want) ? !isnan(have) : !(fabsf(have - want) < 1e-6f);
        }
        ok(good && wrong == 0, "%s of %g, %s: %d weights differ from Keras's", cases[k].name, (double)cases[k].bad, cpu,
           wrong);
        mirt_model_destroy(m);
    }
    mirt_strategy_destroy(s);
    unsetenv("MIRT_CPU");
}

/* Steps of Ftrl at a rate of 0, from the first one on, at the end of a schedule and between others. */
static void check_rate_of_0(const char *cpu) {
    static char before[3][4096];
    setenv("MIRT_CPU", cpu, 1);
    mirt_strategy *s = strategy_of(1, 1, 1);
    for (int moved = 0; moved <= 2; moved += 2) {
        mirt_optimizer o = mirt_ftrl(0.1f);
        o.decay = mirt_cosine_decay(moved ? 0.1f : 0, 2, 0);
        mirt_model *m = golden_model(s, o);
        bool good = m && golden_steps(m, 0, moved) && m->weight_bytes <= sizeof before[0];
        const char *block[3] = {m->weight, m->slot[0], m->slot[1]};
        for (int i = 0; good && i < 3; i++) memcpy(before[i], block[i], m->weight_bytes);
        good = good && golden_steps(m, moved, 3);
        for (int i = 0; good && i < 3; i++) good = memcmp(before[i], block[i], m->weight_bytes) == 0;
        ok(good, "ftrl, %s: steps at a rate of 0 change nothing after %d others", cpu, moved);
        good = m && mirt_set_learning_rate(m, 0.1f) == MIRT_OK && golden_steps(m, 5, 1);
        for (int i = 0; good && i < 2; i++)
            for (int k = 0; good && k < 2; k++)
                good = isfinite(((const float *)(const void *)(m->weight + m->variable[i].offset))[k]);
        ok(good && memcmp(before[0], m->weight, m->weight_bytes) != 0, "and one at another rate changes them");
        mirt_model_destroy(m);
    }
    mirt_strategy_destroy(s);
    unsetenv("MIRT_CPU");
}

/* >>schedules */

static mirt_schedule schedule_named(const char *name) {
    static const int64_t boundaries[] = {10, 100, 300};
    static const float values[] = {1, 0.5f, 0.25f, 0.125f};
    mirt_schedule s = mirt_cosine_decay(0.125f, 300, 0.0625f);
    if (strcmp(name, "piecewise") == 0) return mirt_piecewise_constant(boundaries, values, 3);
    if (strcmp(name, "exponential") == 0) return mirt_exponential_decay(0.125f, 100, 0.96f, false);
    if (strcmp(name, "exponential staircase") == 0) return mirt_exponential_decay(0.125f, 100, 0.5f, true);
    if (strcmp(name, "polynomial") == 0) return mirt_polynomial_decay(0.125f, 300, 0.0078125f, 2, false);
    if (strcmp(name, "polynomial cycle") == 0) return mirt_polynomial_decay(0.125f, 70, 0.0078125f, 0.5f, true);
    if (strncmp(name, "inverse", 7) == 0)
        return mirt_inverse_time_decay(0.125f, 50, 0.75f, strstr(name, "staircase") != NULL);
    if (strcmp(name, "restarts") == 0) return mirt_cosine_restarts(0.125f, 40, 2, 0.75f, 0.125f);
    if (strcmp(name, "restarts even") == 0) return mirt_cosine_restarts(0.125f, 40, 1, 0.9375f, 0);
    if (strcmp(name, "cosine") == 0) return s;
    s.initial = 0;
    s.warmup_target = 0.25f;
    s.warmup_steps = 50;
    return s;
}

static void check_schedules(void) {
    for (int i = 0; i < MIRT__COUNT(golden_schedules); i++) {
        const mirt_schedule s = schedule_named(golden_schedules[i].name);
        double off = 0;
        for (int k = 0; k < SCHEDULE_STEPS; k++) {
            double want = golden_schedules[i].rate[k];
            off = worse(off, fabs(mirt_schedule_at(&s, golden_schedule_step[k]) - want) / fmax(fabs(want), 1e-9));
        }
        ok(off < 1e-6, "%s: off by %.1e at %d steps", golden_schedules[i].name, off, SCHEDULE_STEPS);
    }
    mirt_schedule far = mirt_cosine_restarts(0.1f, 1, 1.0009765625f, 1, 0);
    ok(isfinite(mirt_schedule_at(&far, INT64_MAX)) && isnan(mirt_schedule_at(NULL, 0)),
       "a schedule answers for every step, none with NAN");
}

/* The learning rate of the CATSDOGS notebook on 8 replicas. */
static void check_ramp(void) {
    mirt_lr_ramp_desc d;
    memset(&d, 0, sizeof d);
    d.start = 1e-5f;
    d.max = 4e-4f;
    d.min = 2e-5f;
    d.ramp_epochs = 5;
    d.sustain_epochs = 2;
    d.decay = 0.8f;
    double off = 0;
    for (int epoch = 0; epoch < 20; epoch++) {
        double want = epoch < 5   ? (4e-4 - 1e-5) / 5 * epoch + 1e-5
                      : epoch < 7 ? 4e-4
                                  : (4e-4 - 2e-5) * pow(0.8, epoch - 7) + 2e-5;
        off = worse(off, fabs((double)mirt_lr_ramp(epoch, 0, &d) - want) / want);
    }
    mirt_strategy *s = strategy_of(1, 8, 1);
    ok(off < 1e-6 && mirt_lr_ramp(3, 0.5f, NULL) == 0.5f, "ramp up, sustain, decay: off by %.1e in 20 epochs", off);
    ok(mirt_scale_learning_rate(s, 0.25f) == 2 && mirt_scale_learning_rate(NULL, 0.25f) == 0.25f,
       "a rate of 0.25 is 2 on eight replicas");
    mirt_strategy_destroy(s);
}

/* >>files */

/* After seven steps, saving, and loading, thirteen more give the bits of twenty. */
static void check_saved(const char *name, bool set_rate) {
    char path[300];
    mirt_strategy *s = strategy_of(1, 1, 1);
    const mirt_optimizer o = optimizer_named(name);
    snprintf(path, sizeof path, "%s/optimizer.safetensors", work_directory());
    mirt_model *m = golden_model(s, o), *loaded = NULL;
    bool good = m && golden_steps(m, 0, 7);
    if (good && set_rate) good = mirt_set_learning_rate(m, 0.125) == MIRT_OK;
    good = good && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK && (loaded = mirt_load(s, path)) != NULL;
    const double rate = good ? mirt_get_learning_rate(loaded) : 0;
    good = good && rate == mirt_get_learning_rate(m) && golden_steps(m, 7, 13) && golden_steps(loaded, 7, 13) &&
           same_block(m, loaded, m->weight, loaded->weight);
    for (int i = 0; good && i < mirt__slots(&loaded->config); i++)
        good = same_block(m, loaded, m->slot[i], loaded->slot[i]);
    ok(good, "%s%s: saved after 7 steps and loaded, it continues as without saving%s%s", name,
       set_rate ? ", rate set" : "", good ? "" : ": ", good ? "" : mirt_last_error());
    unlink(path);
    mirt_strategy_destroy(s);
}

static void check_all_schedules_saved(void) {
    char path[300];
    mirt_strategy *s = strategy_of(1, 1, 1);
    snprintf(path, sizeof path, "%s/optimizer.safetensors", work_directory());
    for (int i = 0; i < MIRT__COUNT(golden_schedules); i++) {
        mirt_optimizer o = mirt_sgd(0, 0, false);
        o.decay = schedule_named(golden_schedules[i].name);
        mirt_model *m = golden_model(s, o), *loaded = NULL;
        bool good = m && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK && (loaded = mirt_load(s, path)) != NULL;
        double off = 0;
        for (int k = 0; good && k < SCHEDULE_STEPS; k++) {
            loaded->step = golden_schedule_step[k];
            off =
                worse(off, fabs(mirt_get_learning_rate(loaded) - mirt_schedule_at(&o.decay, golden_schedule_step[k])));
        }
        ok(good && off == 0, "%s is loaded as it was saved%s%s", golden_schedules[i].name, good ? "" : ": ",
           good ? "" : mirt_last_error());
    }
    unlink(path);
    mirt_strategy_destroy(s);
}

/* A schedule that comes later, and goes again. */
static void check_set_schedule(void) {
    mirt_schedule s = mirt_exponential_decay(0.5f, 2, 0.25f, false), none, bad = mirt_cosine_decay(1, -1, 0);
    memset(&none, 0, sizeof none);
    mirt_strategy *strategy = strategy_of(1, 1, 1);
    mirt_model *m = golden_model(strategy, mirt_sgd(0.125f, 0, false));
    m->step = 4;
    bool good = mirt_set_schedule(m, &s) == MIRT_OK && mirt_get_learning_rate(m) == 0.5 / 16;
    good = good && mirt_set_schedule(m, &bad) == MIRT_E_INVALID && mirt_get_learning_rate(m) == 0.5 / 16;
    good = good && mirt_set_schedule(m, &none) == MIRT_OK;
    m->step = 9;
    ok(good && mirt_get_learning_rate(m) == 0.5 / 16,
       "a compiled model takes a schedule, refuses a bad one, and keeps the rate in force when it goes");
    mirt_strategy_destroy(strategy);
}

/* >>averages */

/* The averages are of all weights that are trained, and mirt_fit ends with them. */
static void check_averages(void) {
    mirt_fit_desc fit;
    size_t count;
    mirt_optimizer o = mirt_sgd(0.1f, 0, false);
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    fit.epochs = 2;
    mirt_strategy *s = strategy_of(2, 3, 1);
    o.use_ema = true;
    o.ema_momentum = 0.5f;
    mirt_model *m = image_model(s, o, 0);
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 90), images_y(0, 90)), 45);
    bool good = m && mirt_fit(m, data, &fit) != NULL;
    float *have = all_weights(m, 1, &count);
    o.use_ema = false;
    mirt_model *plain = image_model(s, o, 0);
    float *mean = NULL;
    for (int step = 0; good && step < 4; step++) {
        good = mirt_train_step(plain, images_x(step % 2 * 45, 45), images_y(step % 2 * 45, 45), NULL) == MIRT_OK;
        float *now = all_weights(plain, 0, &count);
        if (!mean) mean = now;
        else for (size_t i = 0; i < count; i++) mean[i] = 0.5f * mean[i] + 0.5f * now[i];
        if (mean != now) free(now);
    }
    double off = 0;
    for (size_t i = 0; good && i < count; i++) off = worse(off, fabs((double)have[i] - (double)mean[i]));
    ok(good && off < 1e-7, "mirt_fit ends with the averages of its weights, on every device: off by %.1e", off);
    ok(mirt_apply_averages(plain) == MIRT_E_STATE, "without use_ema there are none: %s", mirt_last_error());
    free(have);
    free(mean);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>bad parameters */

static void check_bad(mirt_strategy *s, mirt_optimizer o, const char *words) {
    mirt_compile_desc c = image_compile(o);
    mirt_model *m = image_net(s, 0);
    mirt_status status = mirt_compile(m, &c);
    ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), words), "refused: %s",
       status == MIRT_OK ? words : mirt_last_error());
    mirt_model_destroy(m);
}

static void check_bad_ones(void) {
    static const int64_t backward[] = {3, 3};
    static const float rates[] = {1, -1, 0}, even[] = {1, 1, 1};
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_optimizer o = mirt_adamw(1e-3f);
    o.weight_decay = -1;
    check_bad(s, o, "weight_decay is -1");
    o = mirt_adam(1e-3f);
    o.kind = (mirt_optimizer_kind)MIRT__OPTIMIZER_COUNT;
    check_bad(s, o, "invalid optimizer (");
    o.kind = (mirt_optimizer_kind)-1;
    check_bad(s, o, "invalid optimizer (-1)");
    for (int without = 0; without < 3; without++) {
        o = mirt_adam(1e-3f);
        o.clipnorm = without != 0;
        o.global_clipnorm = without != 1;
        o.clipvalue = without != 2;
        check_bad(s, o, "at most one of clipnorm");
    }
    o = mirt_adam(1e-3f);
    o.use_ema = true;
    o.ema_overwrite_frequency = -1;
    check_bad(s, o, "ema_overwrite_frequency is -1");
    o.ema_overwrite_frequency = 0x7fc00000; /* the bits of NaN */
    o.ema_momentum = 0.5f;
    ok(mirt__optimizer_check(&o) == MIRT_OK, "every number of steps is an ema_overwrite_frequency");
    ok(mirt_get_learning_rate(NULL) == 0 && mirt_step(NULL) == 0, "no model has the rate 0 and no steps");
    o = mirt_adam(1e-3f);
    o.clipnorm = o.clipvalue = 1;
    check_bad(s, o, "at most one of clipnorm");
    o = mirt_adam(1e-3f);
    o.global_clipnorm = (float)NAN;
    check_bad(s, o, "global_clipnorm is");
    o = mirt_sgd(0.1f, 0, false);
    o.amsgrad = true;
    check_bad(s, o, "amsgrad is for Adam");
    o = mirt_sgd(0.1f, 0, false);
    o.ema_overwrite_frequency = 5;
    check_bad(s, o, "use_ema is not");
    o.use_ema = true;
    o.ema_momentum = 1;
    check_bad(s, o, "ema_momentum is 1");
    o = mirt_rmsprop(1e-3f);
    o.rho = 1;
    check_bad(s, o, "rmsprop's rho is 1; it must be in [0, 1); start from mirt_rmsprop");
    o = mirt_nadam(1e-3f);
    o.beta_1 = 1;
    check_bad(s, o, "nadam's beta_1 is 1");
    o.amsgrad = true;
    o.beta_1 = 0.5f;
    check_bad(s, o, "amsgrad is for Adam");
    o = mirt_adamax(1e-3f);
    o.beta_2 = (float)NAN;
    check_bad(s, o, "adamax's beta_2 is nan");
    o = mirt_adagrad(1e-3f);
    o.initial_accumulator_value = -1;
    check_bad(s, o, "adagrad's initial_accumulator_value is -1; it must be finite and not negative");
    o.initial_accumulator_value = (float)INFINITY;
    check_bad(s, o, "adagrad's initial_accumulator_value is inf");
    o = mirt_adam(0.1f);
    o.warmup_steps = 10;
    check_bad(s, o, "adam has no option warmup_steps");
    o.warmup_steps = 0;
    o.l2_regularization_strength = 0.1f;
    check_bad(s, o, "adam has no option l2_regularization_strength");
    o = mirt_lion(1e-3f);
    o.beta_1 = 0;
    check_bad(s, o, "lion's beta_1 is 0; it must be in (0, 1)");
    o.beta_1 = 0.5f;
    o.beta_2 = 1;
    check_bad(s, o, "lion's beta_2 is 1");
    o = mirt_adadelta(1);
    o.rho = 1;
    check_bad(s, o, "adadelta's rho is 1; it must be in [0, 1)");
    o = mirt_schedule_free_adamw(1e-3f);
    o.beta_1 = 0;
    check_bad(s, o, "schedule_free_adamw's beta_1 is 0; it must be in (0, 1)");
    o.beta_1 = 0.5f;
    o.warmup_steps = -1;
    check_bad(s, o, "warmup_steps is -1; it must not be negative");
    o = mirt_ftrl(1e-3f);
    o.l1_regularization_strength = -1;
    check_bad(s, o, "ftrl's l1_regularization_strength is -1; it must be finite and not negative");
    o.l1_regularization_strength = 0;
    o.beta = (float)INFINITY;
    check_bad(s, o, "ftrl's beta is inf");
    o = mirt_lamb(1e-3f);
    o.beta_2 = 1;
    check_bad(s, o, "lamb's beta_2 is 1; it must be in [0, 1)");
    o.beta_2 = 0.5f;
    o.amsgrad = true;
    check_bad(s, o, "amsgrad is for Adam");
    o = mirt_muon(1e-3f);
    o.muon_b = (float)NAN;
    check_bad(s, o, "muon's muon_b is nan; it must be finite");
    o.muon_b = -1;
    o.momentum = 1;
    check_bad(s, o, "muon's momentum is 1; it must be in [0, 1)");
    o.momentum = 0;
    o.beta_1 = 1;
    check_bad(s, o, "muon's adam_beta_1 is 1; it must be in [0, 1)");
    o.beta_1 = 0;
    o.rms_rate = -1;
    check_bad(s, o, "muon's rms_rate is -1; it must be finite and not negative");
    o.rms_rate = 0;
    o.ns_steps = -1;
    check_bad(s, o, "ns_steps is -1; it must be 0 to 100");
    o.ns_steps = 101;
    check_bad(s, o, "ns_steps is 101; it must be 0 to 100");
    o.ns_steps = 0;
    o.exclude_layers = "\xff";
    check_bad(s, o, "exclude_layers is not valid UTF-8");
    o = mirt_lamb(1e-3f);
    o.exclude_layers = "dense";
    check_bad(s, o, "lamb has no option exclude_layers");
    o.exclude_layers = NULL;
    o.ns_steps = 5;
    check_bad(s, o, "lamb has no option ns_steps");
    o = mirt_adafactor(1e-3f);
    o.epsilon = -1;
    check_bad(s, o, "adafactor's epsilon_1 is -1; it must be finite and not negative");
    o.epsilon = 0;
    o.beta_2_decay = (float)INFINITY;
    check_bad(s, o, "adafactor's beta_2_decay is inf; it must be finite");
    o = mirt_muon(1e-3f);
    o.clip_threshold = 1;
    check_bad(s, o, "muon has no option clip_threshold");
    o = mirt_adam(1e-3f);
    o.decay = mirt_cosine_decay(1e-3f, 0, 0);
    check_bad(s, o, "CosineDecay takes 0 steps");
    o.decay = mirt_exponential_decay(1e-3f, 10, (float)INFINITY, false);
    check_bad(s, o, "ExponentialDecay");
    o.decay = mirt_cosine_restarts(1e-3f, 10, 0.5f, 1, 0);
    check_bad(s, o, "t_mul is 0.5");
    o.decay = mirt_piecewise_constant(backward, rates, 2);
    check_bad(s, o, "value 1 of the learning rate is -1");
    o.decay = mirt_piecewise_constant(backward, even, 2);
    check_bad(s, o, "must increase");
    o.decay = mirt_piecewise_constant(backward, rates, 99);
    check_bad(s, o, "1 to 16 boundaries");
    o.decay.kind = (mirt_schedule_kind)77;
    check_bad(s, o, "schedule (77)");
    mirt_strategy_destroy(s);
}

/* >>the loss's scale of mixed_float16 */

static int scale_logs;

static void count_scale_log(mirt_log_level level, const char *text, void *user) {
    (void)user;
    scale_logs += level == MIRT_LOG_INFO && strstr(text, "the loss's scale is ") != NULL;
}

/* Whether it is `scale`, which did well for `steps`. */
static bool scale_is(const mirt_model *m, double scale, int64_t steps) {
    return m->loss_scale == scale && m->scale_steps == steps;
}

/* As Keras's LossScaleOptimizer: doubled after 2000 good steps, halved by a bad one, never below 1. */
static void check_loss_scale(void) {
    static const struct { double scale; int64_t steps; } bad[] = {
        {0, 0}, {-1, 0}, {INFINITY, 0}, {NAN, 0}, {8, -1}, {8, 2000}};
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "scaled");
    bool good = true;
    mirt_set_log(s, count_scale_log, NULL);
    mirt__loss_scale_set(m, DBL_MAX, 1999);
    good = scale_is(m, DBL_MAX, 1999);
    mirt__loss_scale_set(m, 0.5, 0);
    good = good && scale_is(m, 0.5, 0);
    mirt__loss_scale_set(m, 16, 1);
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        mirt__loss_scale_set(m, bad[i].scale, bad[i].steps);
        good = good && scale_is(m, 16, 1);
    }
    ok(good, "a loss's scale from a file is taken if it can be one");
    for (int i = 2; i < 2000; i++) mirt__loss_scale_step(m, false);
    good = scale_is(m, 16, 1999);
    mirt__loss_scale_step(m, false);
    good = good && scale_is(m, 32, 0);
    mirt__loss_scale_step(m, false);
    ok(good && scale_is(m, 32, 1) && !scale_logs, "2000 steps in range double the loss's scale, in silence");
    mirt__loss_scale_step(m, true);
    good = scale_is(m, 16, 0) && scale_logs == 1;
    for (int i = 0; i < 4; i++) mirt__loss_scale_step(m, true);
    good = good && scale_is(m, 1, 0);
    mirt__loss_scale_step(m, false);
    mirt__loss_scale_step(m, true);
    ok(good && scale_is(m, 1, 0) && scale_logs == 6, "each step out of range halves it and says so, down to 1");
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    for (int t = 0; t < tables; t++) {
        for (int i = 0; i < MIRT__COUNT(golden_updates); i++) check_update(&golden_updates[i], table[t]->name);
        for (int i = 0; i < MIRT__COUNT(golden_matrices); i++) check_matrix(&golden_matrices[i], table[t]->name);
        check_clipping(table[t]->name);
        check_rate_of_0(table[t]->name);
    }
#define CHECK_LISTED(kind, name, kernel) check_listed(kind, #name);
    MIRT_OPTIMIZER_LIST(CHECK_LISTED)
    check_constructors();
    check_nadam_steps();
    check_lean_updates();
    check_schedules();
    check_ramp();
    for (int i = 0; i < MIRT__COUNT(golden_updates); i++) check_saved(golden_updates[i].name, false);
    check_saved("sgd cosine", true);
    check_all_schedules_saved();
    check_set_schedule();
    check_averages();
    check_bad_ones();
    check_zero_norms();
    check_plain_muon();
    check_left_weights();
    check_excluded_names();
    check_loss_scale();
    return done_testing();
}
