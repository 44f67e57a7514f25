/* Compares several optimizers for one model with Keras's MultiOptimizer. They are trained on any number of devices,
   saved and resumed; invalid ones are refused. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "optimizer_util.h"
#include "tap.h"

#include <unistd.h>

/* >>Keras's numbers */

/* The same optimizers as in make_optimizers.py. */
static mirt_compile_desc golden_compile(const char *name) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    mirt_optimizer *bias = &c.optimizers[0].optimizer;
    c.optimizers[0].weights = "dense/bias";
    c.optimizer = mirt_sgd(0.05f, 0, false);
    if (strcmp(name, "sgd, adam") == 0) {
        c.optimizer.momentum = 0.5f;
        *bias = mirt_adam(0.01f);
        bias->amsgrad = true;
    } else if (strcmp(name, "adamw, lion") == 0) {
        c.optimizer = mirt_adamw(1);
        c.optimizer.decay = mirt_cosine_decay(0.01f, 15, 0.125f);
        c.optimizer.clipnorm = 1.5f;
        *bias = mirt_lion(1);
        bias->decay = mirt_exponential_decay(0.02f, 4, 0.5f, false);
        bias->weight_decay = 0.125f;
        bias->global_clipnorm = 0.5f;
    } else if (strcmp(name, "adagrad, ftrl") == 0) {
        c.optimizer = mirt_adagrad(0.01f);
        c.optimizer.ema_momentum = 0.75f;
        *bias = mirt_ftrl(0.02f);
        bias->initial_accumulator_value = bias->ema_momentum = 0.5f;
        bias->ema_overwrite_frequency = 3;
        c.optimizer.use_ema = bias->use_ema = true;
    } else if (strcmp(name, "lamb, rmsprop") == 0) {
        c.optimizer = mirt_lamb(0.01f);
        *bias = mirt_rmsprop(1);
        bias->decay = mirt_cosine_decay(0.02f, 15, 0.125f);
        bias->clipvalue = 0.75f;
    } else {
        c.optimizer.global_clipnorm = 1;
        *bias = mirt_adafactor(0.25f);
    }
    return c;
}

/* The names of what the blocks hold of the kernel, then of the bias. */
static void slot_names(const mirt_compile_desc *c, char out[128]) {
    out[0] = 0;
    for (int v = 0; v < 2; v++) {
        bool first = true;
        for (int i = 0; i < mirt__slots(c); i++) {
            const char *name = mirt__slot_of(c, v ? "dense/bias" : "dense/kernel", i);
            if (name) snprintf(out + strlen(out), 128 - strlen(out), first ? "%s" : ",%s", name);
            first = first && !name;
        }
        if (!v) snprintf(out + strlen(out), 128 - strlen(out), ";");
    }
}

static void check_golden(const golden_update *c, const char *cpu) {
    char slots[128], path[300];
    double weights = 0, state = 0, finished = 0;
    setenv("MIRT_CPU", cpu, 1);
    mirt_strategy *s = strategy_of(1, 1, 1);
    const mirt_compile_desc desc = golden_compile(c->name);
    mirt_model *m = golden_model_of(s, desc), *loaded = NULL;
    snprintf(path, sizeof path, "%s/several.safetensors", work_directory());
    slot_names(&desc, slots);
    bool good = m && golden_steps(m, 0, 7) && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK &&
                (loaded = mirt_load(s, path)) != NULL && golden_steps(m, 7, OPTIMIZER_STEPS - 7) &&
                golden_steps(loaded, 7, OPTIMIZER_STEPS - 7);
    const bool same = good && same_block(m, loaded, m->weight, loaded->weight);
    for (int i = 0; good && i < mirt__slots(&desc); i++) {
        state = worse(state, block_off(m, m->slot[i], c->slot + (ptrdiff_t)i * OPTIMIZER_COUNT));
        good = same_block(m, loaded, m->slot[i], loaded->slot[i]);
    }
    if (good) weights = block_off(m, m->weight, c->weight);
    if (good && c->finished) {
        good = mirt_apply_averages(m) == MIRT_OK;
        finished = block_off(m, m->weight, c->finished);
    }
    ok(good && strcmp(slots, c->slots) == 0 && weights < 1e-6 && state < 1e-6 && finished < 1e-6,
       "%s, %s: weights of %d steps off by %.1e, slots (%s) by %.1e%s%s", c->name, cpu, OPTIMIZER_STEPS, weights, slots,
       state, good ? "" : ": ", good ? "" : mirt_last_error());
    ok(same, "saved after 7 steps and loaded, it continues as without saving");
    unlink(path);
    mirt_strategy_destroy(s);
    unsetenv("MIRT_CPU");
}

/* >>the same bits */

/* Updates of elements, clipping by three kinds of norms, averages, and optimizers that look at whole weights. */
enum { PLAIN, CLIPPED, AVERAGED, WHOLE, KINDS };
static const char *const kind_names[] = {"plain", "clipped", "averaged", "whole weights"};

static mirt_compile_desc several(int kind) {
    mirt_compile_desc c = image_compile(mirt_adamw(2e-3f));
    c.optimizers[0].weights = "conv2d"; /* not conv2d_1 */
    c.optimizers[0].optimizer = mirt_sgd(0.05f, 0.9f, true);
    c.optimizers[1].weights = "dense*";
    c.optimizers[1].optimizer = mirt_lion(1);
    c.optimizers[1].optimizer.decay = mirt_exponential_decay(1e-3f, 4, 0.5f, false);
    c.optimizers[2].weights = "conv2d_1/bias";
    c.optimizers[2].optimizer = mirt_ftrl(0.05f);
    if (kind == CLIPPED) {
        c.optimizer.clipnorm = 0.125f;
        c.optimizers[0].optimizer.clipvalue = 0.01f;
        c.optimizers[1].optimizer.global_clipnorm = 0.25f;
    }
    if (kind == WHOLE) {
        c.optimizers[0].optimizer = mirt_lamb(0.05f);
        c.optimizers[1].optimizer = mirt_muon(0.02f);
        c.optimizers[1].optimizer.exclude_layers = "dense_1";
    }
    for (int k = 0; k < 3 && kind == AVERAGED; k++) {
        c.optimizers[k].optimizer.use_ema = c.optimizer.use_ema = true;
        c.optimizers[k].optimizer.ema_overwrite_frequency = k;
    }
    return c;
}

static mirt_model *compiled(mirt_strategy *s, const mirt_compile_desc *c, float dropout) {
    mirt_model *m = image_net(s, dropout);
    return mirt_compile(m, c) == MIRT_OK ? m : NULL;
}

static bool steps(mirt_model *m, int first, int count) {
    bool good = m != NULL;
    for (int i = first; good && i < first + count; i++)
        good = mirt_train_step(m, images_x(i * 29, 29 - i % 2), images_y(i * 29, 29 - i % 2), NULL) == MIRT_OK;
    return good;
}

static void check_devices(int kind) {
    char want[MIRT__SHA256_HEX] = "", have[MIRT__SHA256_HEX] = "", other[MIRT__SHA256_HEX] = "";
    for (int replicas = 1; replicas <= 3; replicas++) {
        memcpy(other, want, sizeof other);
        for (int devices = 1; devices <= replicas; devices++) {
            const mirt_compile_desc c = several(kind);
            mirt_strategy *s = strategy_of(devices, replicas, 1 + devices % 2);
            mirt_model *m = compiled(s, &c, 0.3f);
            const bool good = steps(m, 0, 10) && copies_agree(m);
            if (good) digest_weights(m, 0, devices == 1 ? want : have);
            if (devices > 1)
                ok(good && strcmp(want, have) == 0, "%s: %d replicas on %d devices train as on one%s%s",
                   kind_names[kind], replicas, devices, good ? "" : ": ", good ? "" : mirt_last_error());
            mirt_strategy_destroy(s);
        }
        ok(want[0] && strcmp(want, other) != 0, "%s: %d replicas have bits of their own", kind_names[kind], replicas);
    }
}

/* Patterns with the default's optimizer change no bit, whatever the optimizer. */
static void check_as_one(int kind) {
    char digest[3][MIRT__SHA256_HEX] = {"", "", ""};
    const mirt__optimizer_class *cls = mirt__optimizer_class_get((mirt_optimizer_kind)kind);
    bool good = true;
    for (int k = 0; k < 3 && good; k++) {
        mirt_compile_desc c = image_compile(cls->keras(0.01f));
        c.optimizer.clipnorm = kind % 2 ? 0.125f : 0;
        c.optimizer.decay = mirt_cosine_decay(0.01f, 8, 0.125f);
        c.optimizers[0].optimizer = c.optimizers[1].optimizer = c.optimizer;
        c.optimizers[0].weights = k ? "conv2d*" : NULL;
        c.optimizers[1].weights = k ? "dense/bias" : NULL;
        if (k == 2) c.optimizers[0].optimizer.decay.initial = 0.02f;
        mirt_strategy *s = strategy_of(2, 2, 1);
        mirt_model *m = compiled(s, &c, 0);
        good = steps(m, 0, 5) && copies_agree(m);
        if (good) digest_weights(m, 0, digest[k]);
        mirt_strategy_destroy(s);
    }
    ok(good && strcmp(digest[0], digest[1]) == 0 && strcmp(digest[0], digest[2]) != 0,
       "%s for some weights and for all others: the bits of one; another rate shows%s%s", cls->name, good ? "" : ": ",
       good ? "" : mirt_last_error());
}

/* Neighbors that one optimizer updates are updated at once. */
static int updates;
static const mirt__kernels *counted;

static void count_update(const mirt__update *args, const mirt__where *where) {
    updates++;
    counted->update(args, where);
}

static void check_fused(void) {
    int count[3];
    bool good = true;
    for (int k = 0; k < 3; k++) {
        mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
        c.optimizers[0].optimizer = c.optimizers[1].optimizer = mirt_sgd(0.01f, 0, false);
        c.optimizers[0].weights = k ? "conv2d*" : NULL; /* the first four weights of eight; */
        c.optimizers[1].weights = k == 2 ? "dense_1/kernel" : NULL; /* and the seventh: two more pieces */
        mirt_strategy *s = strategy_of(1, 1, 1);
        mirt_model *m = compiled(s, &c, 0);
        good = good && steps(m, 0, 1);
        mirt__kernels own = *s->kernels;
        counted = s->kernels;
        own.update = count_update;
        s->kernels = &own;
        updates = 0;
        good = good && steps(m, 1, 1);
        count[k] = updates;
        s->kernels = counted;
        mirt_strategy_destroy(s);
    }
    ok(good && count[0] > 0 && count[1] == count[0] + 1 && count[2] == count[0] + 3,
       "a step of one optimizer has %d updates, of two %d, alternating %d", count[0], count[1], count[2]);
}

/* >>which weights */

/* The length of what a step of rate 1 changes in the weights of these layers. */
static double moved(mirt_model *m, const float *before, const float *after, const char *pattern) {
    mirt_weight_info info;
    double sum = 0;
    size_t at = 0;
    for (int i = 0; i < mirt_num_weights(m) && mirt_weight(m, i, &info) == MIRT_OK; at += (size_t)info.count, i++) {
        for (int64_t k = 0; k < info.count && mirt__matches(info.name, pattern); k++) {
            const double d = (double)after[at + (size_t)k] - (double)before[at + (size_t)k];
            sum += d * d;
        }
    }
    return sqrt(sum);
}

static void check_own_norms(void) {
    size_t count;
    mirt_compile_desc c = image_compile(mirt_sgd(1, 0, false));
    c.optimizer.global_clipnorm = 0.03125f;
    c.optimizers[0].weights = "conv2d*";
    c.optimizers[0].optimizer = c.optimizer;
    c.optimizers[0].optimizer.global_clipnorm = 0.0625f;
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = compiled(s, &c, 0);
    float *before = m ? all_weights(m, 0, &count) : NULL;
    const bool good = steps(m, 0, 1);
    float *after = good ? all_weights(m, 0, &count) : NULL;
    const double convs = good ? moved(m, before, after, "conv2d*") : 0,
                 denses = good ? moved(m, before, after, "dense*") : 0;
    ok(fabs(convs - 0.0625) < 1e-6 && fabs(denses - 0.03125) < 1e-6,
       "global_clipnorm is the norm of an optimizer's own weights: %g and %g", convs, denses);
    free(before);
    free(after);
    mirt_strategy_destroy(s);
}

static void check_frozen(void) {
    size_t count;
    mirt_compile_desc c = several(WHOLE);
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = image_net(s, 0);
    mirt_set_trainable(m, "conv2d", false);
    bool good = mirt_compile(m, &c) == MIRT_OK;
    float *before = good ? all_weights(m, 0, &count) : NULL;
    good = good && steps(m, 0, 2);
    float *after = good ? all_weights(m, 0, &count) : NULL;
    ok(good && moved(m, before, after, "conv2d") == 0 && moved(m, before, after, "conv2d_1") > 0,
       "a pattern may name frozen weights, which stay%s%s", good ? "" : ": ", good ? "" : mirt_last_error());
    free(before);
    free(after);
    mirt_strategy_destroy(s);
}

/* The pattern of the optimizer of the root's variable, in a model; "": the default. */
static const char *pattern_of(const mirt_model *m, int variable) {
    const mirt_optimizer *o = mirt__optimizer_of(m, variable);
    for (int k = 1; mirt__optimizer_number(&m->config, k); k++) {
        if (mirt__optimizer_number(&m->config, k) == o) return m->config.optimizers[k - 1].weights;
    }
    return "";
}

static mirt_tensor *two_units(mirt_tensor *x, const char *name) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = 2;
    d.name = name;
    return mirt_dense(x, &d);
}

/* A part's patterns are for its own names, its owner's for those with the part's name before them. */
static void check_parts(void) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *part = mirt_model_create(s, "part"), *owner = mirt_model_create(s, "owner");
    mirt_model_output(part, two_units(two_units(mirt_input(part, MIRT_SHAPE(2)), "a"), "b"));
    mirt_tensor *x = two_units(mirt_input(owner, MIRT_SHAPE(2)), "a");
    mirt_model_output(owner, mirt_call(part, x, MIRT_TRAINING_AUTO));
    c.optimizers[0].weights = "part/b";
    c.optimizers[1].weights = "a/bias";
    bool good = mirt_compile(owner, &c) == MIRT_OK;
    c.optimizers[0].weights = "a";
    c.optimizers[1].weights = NULL;
    good = good && mirt_compile(part, &c) == MIRT_OK && owner->num_variables == 6;
    static const char *const owners[] = {"", "a/bias", "", "", "part/b", "part/b"},
                      *const parts[] = {"", "", "a", "a", "", ""};
    for (int i = 0; good && i < 6; i++)
        good = strcmp(pattern_of(owner, i), owners[i]) == 0 && strcmp(pattern_of(part, i), parts[i]) == 0;
    ok(good, "a part's weights have the optimizers of the model that is trained");
    mirt_strategy_destroy(s);
}

/* The most that there can be, and none after one without weights. */
static void check_limits(void) {
    mirt_compile_desc c;
    char names[MIRT_MAX_OPTIMIZERS][8];
    memset(&c, 0, sizeof c);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "many");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(2));
    for (int i = 0; i < MIRT_MAX_OPTIMIZERS; i++) {
        snprintf(names[i], sizeof names[i], "d%d", i);
        x = two_units(x, names[i]);
        c.optimizers[i].weights = names[i];
        c.optimizers[i].optimizer = mirt_sgd((float)i, 0, false);
    }
    mirt_model_output(m, x);
    bool good = mirt_compile(m, &c) == MIRT_OK && !mirt__optimizer_number(&m->config, MIRT_MAX_OPTIMIZERS + 1);
    const mirt_optimizer *o = mirt__optimizer_of(m, 2 * MIRT_MAX_OPTIMIZERS - 1);
    good = good && o->learning_rate == (float)(MIRT_MAX_OPTIMIZERS - 1);
    memset(names, 0, sizeof names);
    ok(good && strcmp(pattern_of(m, 1), "d0") == 0, "%d optimizers, whose patterns are copied", MIRT_MAX_OPTIMIZERS);
    memset(&c, 0, sizeof c);
    c.optimizers[1].weights = "no such layer";
    ok(mirt_compile(m, &c) == MIRT_OK && !mirt__optimizer_number(&m->config, 1) && strcmp(pattern_of(m, 1), "") == 0,
       "the list ends at the first without weights");
    c.optimizers[1].weights = NULL;
    c.optimizers[0].weights = "d3";
    ok(mirt_compile(m, &c) == MIRT_OK && mirt__optimizer_of(m, 7)->kind == MIRT_ADAM &&
           mirt__optimizer_of(m, 7)->beta_1 == 0.9f && strcmp(pattern_of(m, 7), "d3") == 0,
       "one of zeros is Adam");
    mirt_strategy_destroy(s);
}

/* >>learning rates */

static float half_rate(int64_t step, void *user) {
    (void)step, (void)user;
    return 0.5f;
}

static float rate_of_epoch(int epoch, float rate, void *user) {
    (void)epoch, (void)user;
    return rate;
}

static void check_fit_refused(mirt_callback *callback, bool by_fit) {
    const mirt_compile_desc c = several(PLAIN);
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    fit.callbacks[0] = callback;
    if (by_fit) fit.learning_rate = rate_of_epoch;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = compiled(s, &c, 0);
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 60), images_y(0, 60)), 30);
    const bool trained = m && mirt_fit(m, data, &fit);
    ok(m && !trained && mirt_last_status() == MIRT_E_STATE &&
           strstr(mirt_last_error(), "images has several optimizers"),
       "a rate for all is refused: %s", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    mirt_callback_destroy(callback);
}

static void check_rates(void) {
    static const int64_t boundary = 0;
    static const float values[] = {0.5f, 0.25f};
    mirt_compile_desc c = several(PLAIN);
    const mirt_schedule schedule = mirt_cosine_decay(0.5f, 4, 0);
    mirt_reduce_lr_desc plateau;
    mirt_strategy *s = strategy_of(1, 1, 1);
    c.optimizer.decay = mirt_piecewise_constant(&boundary, values, 1);
    mirt_model *m = compiled(s, &c, 0);
    bool good = m && mirt_get_learning_rate(m) == 0.5 && mirt_set_learning_rate(m, 0.5) == MIRT_E_STATE;
    ok(good && strstr(mirt_last_error(), "images has several optimizers, each with its learning rate or schedule"),
       "mirt_set_learning_rate: %s", mirt_last_error());
    good = good && mirt_set_schedule(m, &schedule) == MIRT_E_STATE;
    ok(good && strstr(mirt_last_error(), "several optimizers"), "mirt_set_schedule: %s", mirt_last_error());
    ok(steps(m, 0, 1) && mirt_get_learning_rate(m) == 0.25, "the rate of a model is its optimizer's");
    c.optimizers[1].optimizer.decay = mirt_exponential_decay(1e-3f, 1, 1e30f, false);
    m = compiled(s, &c, 0);
    good = steps(m, 0, 2);
    ok(good && !steps(m, 2, 1) && strstr(mirt_last_error(), "schedule gave 1e+57 for step 2"), "refused: %s",
       mirt_last_error());
    mirt_strategy_destroy(s);
    check_fit_refused(NULL, true);
    memset(&plateau, 0, sizeof plateau);
    plateau.monitor = "loss";
    check_fit_refused(mirt_reduce_lr_on_plateau(&plateau), false);
    check_fit_refused(mirt_learning_rate_scheduler(rate_of_epoch, NULL), false);
}

/* >>invalid ones */

static void check_bad(mirt_strategy *s, mirt_compile_desc c, const char *words) {
    mirt_model *m = image_net(s, 0);
    const mirt_status status = mirt_compile(m, &c);
    ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), words), "refused: %s",
       status == MIRT_OK ? words : mirt_last_error());
    mirt_model_destroy(m);
}

static void check_bad_ones(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_compile_desc c = several(PLAIN);
    c.optimizers[2].weights = "head*";
    check_bad(s, c, "the optimizer of \"head*\" has no weight that optimizers before it do not have");
    c.optimizers[2].weights = "dense_1";
    check_bad(s, c, "the optimizer of \"dense_1\" has no weight");
    c.optimizers[0].weights = "conv";
    check_bad(s, c, "the optimizer of \"conv\" has no weight");
    c = several(PLAIN);
    c.optimizers[1].optimizer.schedule = half_rate;
    check_bad(s, c, "the optimizer of \"dense*\" has a function as its schedule; give it a value (decay)");
    c = several(PLAIN);
    c.optimizer.use_ema = true;
    check_bad(s, c, "the optimizer of \"conv2d\" has no use_ema, the default has it");
    c = several(AVERAGED);
    c.optimizer.use_ema = false;
    check_bad(s, c, "the optimizer of \"conv2d\" has use_ema, the default has not");
    c = several(PLAIN);
    c.optimizers[1].optimizer.weight_decay = -1;
    check_bad(s, c, "the optimizer of \"dense*\": the optimizer's weight_decay is -1");
    c.optimizers[1].optimizer.kind = (mirt_optimizer_kind)77;
    check_bad(s, c, "the optimizer of \"dense*\": invalid optimizer (77)");
    c = image_compile(mirt_adam(1));
    c.optimizers[0].weights = "\xc3*"; /* a half of the first letter */
    mirt_model *m = mirt_model_create(s, "accents");
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    c.metrics[0] = MIRT_METRIC_NONE;
    mirt_model_output(m, two_units(mirt_input(m, MIRT_SHAPE(2)), "\xc3\xa9"));
    ok(mirt_compile(m, &c) == MIRT_E_INVALID, "half a letter is no pattern");
    mirt_strategy_destroy(s);
}

/* >>files */

static void check_json(mirt_strategy *s, const char *optimizers, const char *words) {
    char text[4096];
    mirt_compile_desc c;
    mirt__pool pool = {NULL};
    snprintf(text, sizeof text,
             "{\"optimizer\":{\"class_name\":\"sgd\",\"learning_rate\":1,\"momentum\":0,\"nesterov\":false}%s,"
             "\"loss\":\"mean_squared_error\",\"from_logits\":false,\"reduction\":\"sum\",\"metrics\":[]}",
             optimizers);
    const mirt__json *json = mirt__json_parse(&pool, text, strlen(text));
    const mirt_status status = json ? mirt__compile_read(s, json, &c) : MIRT_E_INVALID;
    if (!words) ok(status == MIRT_OK, "read: %s%s", optimizers, status == MIRT_OK ? "" : mirt_last_error());
    else ok(status == MIRT_E_FORMAT && strstr(mirt_last_error(), words), "refused: %s", mirt_last_error());
    mirt__pool_free(&pool);
}

static void check_files(void) {
    static const char sgd[] = "{\"class_name\":\"sgd\",\"weights\":\"a\",\"learning_rate\":1,\"momentum\":0,"
                              "\"nesterov\":false}";
    char many[4096] = ",\"optimizers\":[";
    mirt_strategy *s = strategy_of(1, 1, 1);
    check_json(s, "", NULL);
    check_json(s, ",\"optimizers\":[]", NULL);
    check_json(s, ",\"optimizers\":{}", "optimizers must be an array of at most 16 objects");
    check_json(s, ",\"optimizers\":[7]", "\"weights\" is missing");
    check_json(s, ",\"optimizers\":[{\"weights\":7}]", "\"weights\" is a number");
    check_json(s, ",\"optimizers\":[{\"weights\":\"a\"}]", "\"class_name\" is missing");
    for (int i = 0; i <= MIRT_MAX_OPTIMIZERS; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), i ? ",%s" : "%s", sgd);
    snprintf(many + strlen(many), sizeof many - strlen(many), "]");
    check_json(s, many, "optimizers must be an array of at most 16 objects");
    mirt_strategy_destroy(s);
}

/* A run resumes with the optimizers that it had, each for the weights that it had. */
static void check_other_run(void) {
    char path[300];
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 60), images_y(0, 60)), 30);
    mirt_compile_desc c = several(PLAIN);
    mirt_model_checkpoint_desc d;
    mirt_fit_desc fit;
    memset(&d, 0, sizeof d);
    memset(&fit, 0, sizeof fit);
    snprintf(path, sizeof path, "%s/run.safetensors", work_directory());
    d.path = path;
    fit.no_progress = true;
    mirt_callback *checkpoint = mirt_model_checkpoint(&d);
    fit.callbacks[0] = checkpoint;
    mirt_model *m = compiled(s, &c, 0);
    ok(m && mirt_fit(m, data, &fit), "a run with several optimizers writes a checkpoint");
    mirt_callback_destroy(checkpoint);
    fit.callbacks[0] = NULL;
    fit.resume = path;
    fit.epochs = 2;
    c.optimizers[0].weights = "conv2d/kernel";
    c.optimizers[3].weights = "conv2d/bias"; /* as before, said in another way */
    c.optimizers[3].optimizer = c.optimizers[0].optimizer;
    m = compiled(s, &c, 0);
    const bool trained = m && mirt_fit(m, data, &fit);
    ok(trained, "which resumes where each weight has its optimizer%s%s", trained ? "" : ": ",
       trained ? "" : mirt_last_error());
    c.optimizers[3].optimizer = mirt_rmsprop(1e-3f);
    m = compiled(s, &c, 0);
    ok(m && !mirt_fit(m, data, &fit) &&
           strstr(mirt_last_error(), "it is of a run with the optimizer sgd (1 values per weight) for conv2d/bias, "
                                     "this model is compiled with rmsprop (1)"),
       "and is refused otherwise: %s", mirt_last_error());
    unlink(path);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    for (int t = 0; t < tables; t++) {
        for (int i = 0; i < MIRT__COUNT(golden_several); i++) check_golden(&golden_several[i], table[t]->name);
    }
    for (int kind = 0; kind < KINDS; kind++) check_devices(kind);
    for (int kind = 0; kind < MIRT__OPTIMIZER_COUNT; kind++) check_as_one(kind);
    check_fused();
    check_own_norms();
    check_frozen();
    check_parts();
    check_limits();
    check_rates();
    check_bad_ones();
    check_files();
    check_other_run();
    return done_testing();
}
