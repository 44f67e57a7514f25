/* Transfer learning: weights by name in part, frozen bases, and their features kept over epochs. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <unistd.h>

#include "mirror_util.h"

enum { MOST = 512 };
static char path[300], path_b[300];

/* 6 -> `hidden` -> 3. */
static mirt_model *make_base(mirt_strategy *s, const char *name, int hidden, const char *last) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(
        m, named_dense(named_dense(mirt_input(m, MIRT_SHAPE(6)), "hidden", hidden, MIRT_TANH), last, 3, MIRT_LINEAR));
    return m;
}

static mirt_model *make_top(mirt_strategy *s, mirt_model *base, const char *name) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(
        m, named_dense(mirt_call(base, mirt_input(m, MIRT_SHAPE(6)), MIRT_TRAINING_AUTO), "head", 2, MIRT_LINEAR));
    return m;
}

static bool set_all(mirt_model *m, float value) {
    float v[MOST];
    mirt_weight_info info;
    bool good = true;
    for (int i = 0; i < mirt_num_weights(m); i++) {
        good = good && mirt_weight(m, i, &info) == MIRT_OK && info.count <= MOST;
        for (int k = 0; good && k < info.count; k++) v[k] = value + (float)k;
        good = good && mirt_set_weight(m, info.name, v, (size_t)info.count) == MIRT_OK;
    }
    return good;
}

static bool begins(mirt_model *m, const char *name, size_t count, float value) {
    float v[MOST];
    return mirt_get_weight(m, name, mirt_num_devices(m->strategy) - 1, v, count) == MIRT_OK && v[0] == value;
}

static bool reports(const mirt_load_report *r, int loaded, int missing, int mismatched, int extra) {
    bool good = r->loaded == loaded && r->missing == missing && r->mismatched == mismatched && r->extra == extra;
    if (!good)
        printf("# loaded %d, missing %d, mismatched %d, extra %d\n%s\n", r->loaded, r->missing, r->mismatched, r->extra,
               r->text ? r->text : "-");
    return good;
}

/* >>weights by name */

static void check_partial(void) {
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_load_report r;
    mirt_load_desc d;
    mirt_model *from = make_base(s, "from", 4, "code"), *same = make_base(s, "same", 4, "code"),
               *to = make_base(s, "to", 4, "other"), *wide = make_base(s, "wide", 5, "code");
    bool good = set_all(from, 7) && mirt_save(from, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK;
    ok(good && mirt_load_weights_partial(same, path, NULL, &r) == MIRT_OK && reports(&r, 4, 0, 0, 0) &&
           strcmp(r.text, "") == 0 && begins(same, "code/bias", 3, 7),
       "all of it fits: nothing to tell");
    ok(set_all(to, 1) && mirt_load_weights_partial(to, path, NULL, &r) == MIRT_OK && reports(&r, 2, 2, 0, 2) &&
           begins(to, "hidden/kernel", 24, 7) && begins(to, "other/kernel", 12, 1),
       "what has another name stays as it was");
    ok(strcmp(r.text, "missing: other/kernel (4, 3)\nmissing: other/bias (3)\nextra: code/kernel (4, 3)\nextra: "
                      "code/bias (3)\n") == 0,
       "and is listed");
    ok(set_all(wide, 1) && mirt_load_weights_partial(wide, path, NULL, &r) == MIRT_OK && reports(&r, 1, 0, 3, 0) &&
           begins(wide, "hidden/bias", 5, 1) && begins(wide, "code/bias", 3, 7),
       "what has another shape too");
    ok(strstr(r.text, "mismatched: hidden/kernel is (6, 5), in the file F32 (6, 4)\n") != NULL, "and is listed");
    ok(mirt_load_weights(wide, path) == MIRT_E_SHAPE && mirt_load_weights(to, path) == MIRT_E_NOT_FOUND,
       "strictly, either is an error: \"%s\"", mirt_last_error());

    mirt_model *top = make_top(s, make_base(s, "base", 4, "code"), "top");
    memset(&d, 0, sizeof d);
    d.prefix = "base";
    ok(set_all(top, 1) && mirt_load_weights_partial(top, path, &d, &r) == MIRT_OK && reports(&r, 4, 0, 0, 0) &&
           begins(top, "base/hidden/kernel", 24, 7) && begins(top, "head/bias", 2, 1),
       "into a part by its name");
    ok(mirt_compile(top, NULL) == MIRT_OK && set_all(top, 2) && mirt_save(top, path_b, MIRT_SAVE_ALL) == MIRT_OK,
       "a model with a part is saved");
    d.prefix = NULL;
    d.file_prefix = "base";
    ok(set_all(from, 1) && mirt_load_weights_partial(from, path_b, &d, &r) == MIRT_OK && reports(&r, 4, 0, 0, 2) &&
           begins(from, "code/kernel", 12, 2),
       "out of a part, without the optimizer's state being extra");
    d.file_prefix = NULL;
    d.prefix = "hid*";
    ok(set_all(to, 1) && mirt_load_weights_partial(to, path, &d, &r) == MIRT_OK && reports(&r, 2, 0, 0, 2) &&
           begins(to, "hidden/bias", 4, 7),
       "layers by the beginning of their names");
    d.prefix = "bass";
    ok(mirt_load_weights_partial(top, path, &d, NULL) == MIRT_E_NOT_FOUND && strstr(mirt_last_error(), "base"),
       "\"%s\"", mirt_last_error());
    ok(mirt_load_weights_partial(top, path, NULL, &r) == MIRT_E_NOT_FOUND && r.loaded == 0 && r.missing == 6,
       "nothing fits: \"%s\"", mirt_last_error());
    ok(mirt_load_weights_partial(top, "/nowhere/x.safetensors", NULL, &r) == MIRT_E_NOT_FOUND && !r.text &&
           mirt_load_weights_partial(NULL, path, NULL, &r) == MIRT_E_INVALID &&
           mirt_load_weights_partial(top, NULL, NULL, NULL) == MIRT_E_INVALID,
       "no file, no model, no path: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

/* A base that has its weights becomes a part and keeps them; a network takes them when it is made. */
static void check_applications(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_application_desc d;
    float a[3 * 3 * 3 * 16], b[3 * 3 * 3 * 16];
    memset(&d, 0, sizeof d);
    d.size = 32;
    d.alpha = 0.35f;
    d.no_top = true;
    d.pooling = MIRT_POOLING_AVG;
    mirt_model *from = mirt_mobilenet_v2(s, &d);
    bool good = mirt_get_weight(from, "Conv1/kernel", 0, a, 3 * 3 * 3 * 16) == MIRT_OK &&
                mirt_save(from, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK;
    d.weights = path;
    d.name = "base";
    s->seed = 99;
    mirt_model *base = mirt_mobilenet_v2(s, &d), *m = mirt_model_create(s, "pets");
    mirt_model_output(m, named_dense(mirt_call(base, mirt_input(m, MIRT_SHAPE(32, 32, 3)), MIRT_TRAINING_OFF), "head",
                                     1, MIRT_LINEAR));
    ok(good && base && mirt_compile(m, NULL) == MIRT_OK &&
           mirt_get_weight(m, "base/Conv1/kernel", 0, b, 3 * 3 * 3 * 16) == MIRT_OK && memcmp(a, b, sizeof a) == 0,
       "a network made with a file of weights keeps them as a part");
    mirt_memory all, frozen;
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = MIRT_BINARY_CROSSENTROPY;
    c.from_logits = true;
    good = mirt_compile(m, &c) == MIRT_OK && mirt_plan_memory(m, 4, &all) == MIRT_OK &&
           mirt_set_trainable(base, NULL, false) == MIRT_OK && mirt_compile(m, &c) == MIRT_OK &&
           mirt_plan_memory(m, 4, &frozen) == MIRT_OK;
    ok(good && frozen.gradients < 4 * 1281 + 128 && frozen.slots < 8 * 1281 + 256 && all.gradients > 4 * 390000 &&
           frozen.weights == all.weights,
       "frozen weights have no gradients and no slots: %d and %d bytes, not %d and %d", (int)frozen.gradients,
       (int)frozen.slots, (int)all.gradients, (int)all.slots);
    d.weights = "/nowhere/x.safetensors";
    ok(!mirt_mobilenet_v2(s, &d) && mirt_last_status() == MIRT_E_NOT_FOUND, "no such file: \"%s\"", mirt_last_error());
    d.weights = path;
    d.alpha = 0.5f;
    ok(!mirt_mobilenet_v2(s, &d) && mirt_last_status() == MIRT_E_SHAPE &&
           strstr(mirt_last_error(), "alpha is 0.5 here: check that the file has the same width"),
       "weights of another network: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>features of frozen layers */

static char log_text[4096];
static void keep_log(mirt_log_level level, const char *text, void *user) {
    size_t used = strlen(log_text);
    (void)level, (void)user;
    if (used + strlen(text) + 2 < sizeof log_text) snprintf(log_text + used, sizeof log_text - used, "%s\n", text);
}

/* Convolution, normalization, pooling: the base; dropout and two dense layers: the head. */
static mirt_model *frozen_net(mirt_strategy *s, bool random_base) {
    mirt_conv2d_desc conv;
    memset(&conv, 0, sizeof conv);
    conv.filters = 6;
    conv.kernel[0] = 3;
    mirt_model *base = mirt_model_create(s, "base"), *m = mirt_model_create(s, "pets");
    static const float one = 1;
    mirt_tensor *x = mirt_rescale(mirt_input(base, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 127, -1);
    /* work of no layer that could be frozen */
    x = mirt_matmul(x, mirt_constant_tensor(x, mirt_make_array(&one, MIRT_FLOAT32, MIRT_SHAPE(1, 1))), false, false);
    x = mirt_activation(mirt_batch_norm(mirt_conv2d(x, &conv), NULL), MIRT_RELU);
    if (random_base) x = mirt_dropout(x, 0.1f);
    mirt_model_output(base, mirt_global_average_pool2d(x));
    x = mirt_call(base, mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), MIRT_TRAINING_AUTO);
    mirt_batch_norm_desc bare; /* without weights that are trained, but with averages that move */
    memset(&bare, 0, sizeof bare);
    bare.no_scale = bare.no_center = true;
    x = mirt_batch_norm(x, &bare);
    x = mirt_batch_norm(named_dense(mirt_dropout(x, 0.3f), "hidden", 8, MIRT_RELU), NULL);
    mirt_model_output(m, named_dense(x, "head", IMAGE_CLASSES, MIRT_LINEAR));
    return m;
}

static mirt_status compile_net(mirt_model *m, bool frozen) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.metrics[0] = MIRT_ACCURACY;
    c.optimizer = mirt_adam(1e-2f);
    mirt_set_trainable(m, "base", !frozen);
    return mirt_compile(m, &c);
}

/* What a case trains on, and how. */
typedef enum wares {
    PLAIN, SHUFFLED, TAKEN, ACCUMULATED, WINDOW, MAPPED, MAPPED_CACHED, AUGMENTED, REPEATED_MAP, MAPPED_REPEAT,
    AUGMENTED_REPEAT, STREAM, BATCH_VIEW, WEIGHTED
} wares;
typedef struct feature_case {
    const char *name;
    wares data;
    bool kept;       /* expected; with a budget those of training alone */
    int steps_per_epoch;
    bool validates;
    int64_t budget;
    bool random_base, unfrozen, edits;
} feature_case;

static int invert(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)index, (void)user;
    for (int i = 0; i < IMAGE; i++) ((uint8_t *)out[0])[i] = (uint8_t)(255 - ((const uint8_t *)in[0])[i]);
    return 0;
}

/* Other pixels at every call. */
static int fade_calls;
static int fade(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)index, (void)user;
    fade_calls++;
    for (int i = 0; i < IMAGE; i++)
        ((uint8_t *)out[0])[i] = (uint8_t)(((const uint8_t *)in[0])[i] * (fade_calls % 7) / 6);
    return 0;
}

static mirt_dataset *wares_of(wares kind) {
    mirt_map_desc map;
    mirt_augmentation flip;
    mirt_data data;
    memset(&flip, 0, sizeof flip);
    static float weight[IMAGES];
    memset(&map, 0, sizeof map);
    memset(&data, 0, sizeof data);
    map.fn = invert;
    data.x[0] = images_x(0, 100);
    data.y[0] = images_y(0, 100);
    for (int i = 0; i < 100; i++) weight[i] = (float)(1 + i % 3);
    if (kind == WEIGHTED) data.weights = mirt_make_array(weight, MIRT_FLOAT32, MIRT_SHAPE(100));
    mirt_dataset *d = mirt_arrays_of(&data);
    switch (kind) {
    case SHUFFLED: return mirt_prefetch(mirt_batch(mirt_shuffle(d, 100), 16), 2);
    case TAKEN: return mirt_prefetch(mirt_batch(mirt_take(mirt_shuffle(d, 100), 50), 16), 2);
    case ACCUMULATED: return mirt_accumulate(mirt_batch(mirt_shuffle(mirt_skip(d, 9), 100), 8), 2);
    case WINDOW: return mirt_take(mirt_batch(mirt_shuffle(d, 100), 16), 3);
    case MAPPED: return mirt_batch(mirt_shuffle(mirt_map(d, &map), 100), 16);
    case MAPPED_CACHED: return mirt_batch(mirt_shuffle(mirt_cache(mirt_map(d, &map)), 100), 16);
    case AUGMENTED: return mirt_batch(mirt_augment(mirt_shuffle(mirt_cache(d), 100), &flip, 1), 16);
    case REPEATED_MAP: return mirt_batch(mirt_cache(mirt_repeat(mirt_map(mirt_take(d, 40), &map), 2)), 16);
    case MAPPED_REPEAT:
        map.fn = fade;
        fade_calls = 0;
        return mirt_batch(mirt_cache(mirt_map(mirt_repeat(mirt_take(d, 40), 2), &map)), 16);
    case AUGMENTED_REPEAT: return mirt_batch(mirt_cache(mirt_augment(mirt_repeat(mirt_take(d, 40), 2), &flip, 1)), 16);
    case STREAM: return mirt_batch(mirt_repeat(d, 2), 16);
    case BATCH_VIEW: return d;
    default: return mirt_batch(d, 16);
    }
}

/* A frozen weight changes in the middle of training. */
static int edit_weight(const mirt_event *event, void *user) {
    float v[6] = {0.5f, -0.5f, 0.25f, 1, 2, -1};
    if (*(const bool *)user && event->epoch == 1 && event->batch == 2)
        mirt_set_weight(event->model, "base/conv2d/bias", v, 6);
    return 0;
}

/* Trains; SHA-256 of the weights into `digest`, what was logged of features into log_text, all losses into `loss`. */
static bool fit_case(const feature_case *c, int devices, bool allowed, char digest[MIRT__SHA256_HEX], double loss[3][2],
                     int64_t *made) {
    mirt_fit_desc fit;
    mirt_callback callback;
    memset(&fit, 0, sizeof fit);
    memset(&callback, 0, sizeof callback);
    callback.batch_end = edit_weight;
    callback.user = (void *)&c->edits;
    mirt_strategy *s = strategy_of(devices, 4, 1);
    log_text[0] = 0;
    mirt_set_log(s, keep_log, NULL);
    mirt_model *m = frozen_net(s, c->random_base);
    mirt_dataset *data = wares_of(c->data),
                 *validation = c->validates ? mirt_batch(mirt_arrays(images_x(100, 41), images_y(100, 41)), 16) : NULL;
    fit.epochs = 3;
    fit.steps_per_epoch = c->steps_per_epoch;
    fit.batch = c->data == BATCH_VIEW ? 16 : 0;
    fit.validation = validation;
    fit.no_progress = true;
    fit.feature_cache_bytes = allowed ? c->budget : -1;
    fit.callbacks[0] = &callback;
    bool good = data && compile_net(m, !c->unfrozen) == MIRT_OK && mirt_profile_begin(m) == MIRT_OK;
    mirt_history *h = good ? mirt_fit(m, data, &fit) : NULL;
    good = h && h->epochs == 3;
    if (!good) printf("# %s: %s\n", c->name, mirt_last_error());
    for (int e = 0; good && e < 3; e++) {
        loss[e][0] = mirt_logs_value(&h->epoch[e], "loss");
        loss[e][1] = c->validates ? mirt_logs_value(&h->epoch[e], "val_loss") : 0;
    }
    const mirt_function *f = good ? m->trainer->function[MIRT__FEATURES] : NULL;
    *made = f && f->step.clocks ? f->step.clocks->rows : 0;
    digest_weights(m, 0, digest);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(validation);
    mirt_strategy_destroy(s);
    return good;
}

static void check_features(void) {
    static const feature_case cases[] = {
        {"in order", PLAIN, true, 0, true, 0, false, false, false},
        {"shuffled, prefetched", SHUFFLED, true, 0, true, 0, false, false, false},
        {"other samples in every epoch", TAKEN, true, 0, true, 0, false, false, false},
        {"accumulated", ACCUMULATED, true, 0, false, 0, false, false, false},
        {"batches taken after mirt_batch", WINDOW, false, 0, false, 0, false, false, false},
        {"mapped", MAPPED, false, 0, false, 0, false, false, false},
        {"mapped and cached", MAPPED_CACHED, true, 0, true, 0, false, false, false},
        {"augmented", AUGMENTED, false, 0, true, 0, false, false, false},
        {"repeated over what may change", REPEATED_MAP, false, 0, false, 0, false, false, false},
        {"mapped over what is repeated, and cached", MAPPED_REPEAT, false, 0, false, 0, false, false, false},
        {"augmented over what is repeated, and cached", AUGMENTED_REPEAT, false, 0, false, 0, false, false, false},
        {"a stream", STREAM, false, 0, false, 0, false, false, false},
        {"not in batches", BATCH_VIEW, true, 0, true, 0, false, false, false},
        {"with weights", WEIGHTED, true, 0, false, 0, false, false, false},
        {"epochs that end within a pass", SHUFFLED, true, 5, true, 0, false, false, false},
        {"a budget that is too small", SHUFFLED, false, 0, true, 1000, false, false, false},
        {"a budget for those of training", SHUFFLED, true, 0, true, 4000, false, false, false},
        {"random layers in the base", SHUFFLED, true, 0, true, 0, true, false, false},
        {"nothing frozen", SHUFFLED, false, 0, true, 0, false, true, false},
        {"a frozen weight that is set meanwhile", SHUFFLED, true, 0, true, 0, false, false, true},
    };
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        const feature_case *c = &cases[i];
        char kept[MIRT__SHA256_HEX], anew[MIRT__SHA256_HEX], other[MIRT__SHA256_HEX];
        double loss[3][2], want[3][2];
        int64_t made, none;
        bool good = fit_case(c, 2, true, kept, loss, &made);
        bool logged = strstr(log_text, "computed once") != NULL, refused = strstr(log_text, "computed anew") != NULL;
        good = good && fit_case(c, 2, false, anew, want, &none) && !strstr(log_text, "features");
        ok(good && logged == c->kept && refused == (c->kept ? c->budget > 0 : !c->unfrozen), "features, %s: %s",
           c->name, c->kept ? "kept" : "computed anew");
        ok(good && strcmp(kept, anew) == 0 && memcmp(loss, want, sizeof loss) == 0,
           "features, %s: the same bits as without", c->name);
        ok(good && fit_case(c, 1, true, other, loss, &made) && strcmp(kept, other) == 0,
           "features, %s: on any number of devices", c->name);
        if (i == 0) ok(made == 100 + 41, "each sample's are made once: %lld of 141", (long long)made);
        if (i == 2)
            ok(made > 50 + 41 && made <= 100 + 41, "samples that come later are made then: %lld of at most 141",
               (long long)made);
    }
}

/* >>names of classes */

static void check_names(void) {
    static const char *const animals[] = {"Katze", "\xe7\x8a\xac", "ein \"Pferd\""};
    static const char *const bad[] = {"a", "\xff", "c"};
    mirt_strategy *s = strategy_of(1, 1, 1);
    float x[12] = {1, 2, 3};
    uint8_t y[2] = {0, 2};
    int count = -1;
    mirt_model *m = make_base(s, "m", 4, "code");
    mirt_dataset *data =
        mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(2, 6)), mirt_make_array(y, MIRT_UINT8, MIRT_SHAPE(2)));
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_set_class_names(data, animals, 3) == MIRT_OK;
    ok(!mirt_model_class_names(m, &count) && count == 0 && !mirt_model_class_names(NULL, NULL),
       "a model has no names of classes");
    data = mirt_shuffle(data, 2);
    good = good && mirt_fit(m, data, NULL) != NULL && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK;
    mirt_model *loaded = good ? mirt_load(s, path) : NULL;
    const char *const *names = mirt_model_class_names(loaded, &count);
    ok(loaded && names && count == 3 && strcmp(names[0], animals[0]) == 0 && strcmp(names[1], animals[1]) == 0 &&
           strcmp(names[2], animals[2]) == 0,
       "it has those of the data it was trained on, saved and loaded");
    ok(mirt_save(loaded, path_b, MIRT_SAVE_ALL) == MIRT_OK && tap_same_file(path, path_b), "and saved again");
    ok(mirt_set_class_names(data, animals, 2) == MIRT_OK && mirt_fit(m, data, NULL) &&
           mirt_model_class_names(m, &count) && count == 3,
       "names of two classes are not those of three");
    ok(mirt_set_class_names(data, bad, 3) == MIRT_OK && mirt_fit(m, data, NULL) &&
           strcmp(mirt_model_class_names(m, NULL)[0], "Katze") == 0,
       "names that are not UTF-8 are not taken");
    ok(mirt_set_model_class_names(m, bad, 3) == MIRT_E_INVALID &&
           mirt_set_model_class_names(m, NULL, 3) == MIRT_E_INVALID &&
           mirt_set_model_class_names(NULL, animals, 3) == MIRT_E_INVALID,
       "nor set: \"%s\"", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* Samples that are made when they are asked for: later epochs ask for none. */
static void check_made(void) {
    mirt_fit_desc fit;
    float first[2], second[2];
    for (int i = 0; i < 2; i++) {
        mirt_strategy *s = strategy_of(1, 1, 1);
        mirt_application_desc d;
        memset(&fit, 0, sizeof fit);
        memset(&d, 0, sizeof d);
        d.size = 32;
        d.alpha = 0.35f;
        d.no_top = true;
        d.pooling = MIRT_POOLING_AVG;
        d.name = "base";
        mirt_model *m = mirt_model_create(s, "pets"), *base = mirt_mobilenet_v2(s, &d);
        mirt_model_output(
            m,
            named_dense(mirt_dropout(mirt_call(base, mirt_input(m, MIRT_SHAPE(32, 32, 3)), MIRT_TRAINING_AUTO), 0.2f),
                        "head", 1, MIRT_SIGMOID));
        mirt_dataset *data =
            mirt_prefetch(mirt_batch(mirt_shuffle(mirt_drawn_photos(20, 32, 32, 1, MIRT_TRAIN), 20), 8), 2);
        mirt_compile_desc c;
        memset(&c, 0, sizeof c);
        c.loss = MIRT_BINARY_CROSSENTROPY;
        fit.epochs = 3;
        fit.no_progress = true;
        fit.feature_cache_bytes = i ? -1 : 0;
        log_text[0] = 0;
        mirt_set_log(s, keep_log, NULL);
        bool good = data && mirt_set_trainable(base, NULL, false) == MIRT_OK && mirt_compile(m, &c) == MIRT_OK &&
                    mirt_fit(m, data, &fit) != NULL &&
                    mirt_get_weight(m, "head/bias", 0, i ? second : first, 1) == MIRT_OK;
        mirt_timing timing;
        memset(&timing, 0, sizeof timing);
        good = good && mirt_fit_timing(m, &timing) == MIRT_OK;
        const double waited = timing.seconds[MIRT_PHASE_INPUT];
        ok(good && fabs(m->history.input_seconds - waited) <= 1e-6 * timing.wall,
           "the history and the table count the same input wait: %.6f and %.6f of %.6f s", m->history.input_seconds,
           waited, timing.wall);
        ok(good && (strstr(log_text, "computed once for each of 20") != NULL) == !i, "drawn photographs, %s: %s",
           i ? "computed anew" : "kept", good ? "" : mirt_last_error());
        if (i) ok(good && memcmp(first, second, sizeof(float)) == 0 && first[0] != 0, "the same bits");
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
}

static int random_warnings(void) {
    int count = 0;
    for (const char *at = log_text; (at = strstr(at, "frozen with the random weights")) != NULL; at++) count++;
    return count;
}

/* How the base of a frozen net got its weights. */
typedef enum base_weights { DRAWN, SET, LOADED, TRAINED, TRAINED_APART, THAWED, BASES } base_weights;

/* One warning in two fits of a frozen base that has the initializers' random weights, none otherwise. */
static void check_random_base(void) {
    static const char *const names[BASES] = {
        "drawn", "set", "loaded", "trained and frozen then", "compiled anew between", "not frozen"};
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    for (int i = 0; i < BASES; i++) {
        mirt_strategy *s = strategy_of(2, 2, 1);
        mirt_model *m = frozen_net(s, false);
        mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 32), images_y(0, 32)), 16);
        const bool trained = i == TRAINED || i == TRAINED_APART;
        float kernel[54] = {0};
        log_text[0] = 0;
        mirt_set_log(s, keep_log, NULL);
        bool good = true;
        if (trained) good = compile_net(m, false) == MIRT_OK && mirt_fit(m, data, &fit) != NULL;
        if (i == TRAINED_APART) good = good && compile_net(m, false) == MIRT_OK;
        if (i == SET) good = mirt_set_weight(m, "base/conv2d/kernel", kernel, 54) == MIRT_OK;
        if (i == LOADED)
            good = mirt_save(m, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK && mirt_load_weights(m, path) == MIRT_OK;
        good = good && compile_net(m, i != THAWED) == MIRT_OK && mirt_fit(m, data, &fit) && mirt_fit(m, data, &fit);
        ok(good && random_warnings() == (i == DRAWN), "a base with weights that were %s: %d warnings%s%s", names[i],
           random_warnings(), good ? "" : ": ", good ? "" : mirt_last_error());
        if (i == DRAWN)
            ok(strstr(log_text, "pets: base is frozen") && strstr(log_text, "mirt_load_weights"), "%s", log_text);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
}

/* Logits of flattened images by three layers, the first two of them frozen and drawn by an initializer. */
static mirt_model *frozen_layers(mirt_strategy *s, const char *name, int frozen, mirt_initializer initializer) {
    static const char *const names[] = {"first", "second", "head"};
    static const int units[] = {6, 5, IMAGE_CLASSES};
    mirt_model *m = mirt_model_create(s, name);
    mirt_tensor *x = mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)));
    for (int i = 0; i < 3; i++) {
        mirt_dense_desc d;
        memset(&d, 0, sizeof d);
        d.units = units[i];
        d.name = names[i];
        d.kernel_initializer = initializer;
        x = mirt_dense(x, &d);
    }
    mirt_model_output(m, x);
    for (int i = 0; i < frozen; i++) mirt_set_trainable(m, names[i], false);
    return m;
}

static bool trained_once(mirt_model *m) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 32), images_y(0, 32)), 16);
    const bool good = mirt_compile(m, &c) == MIRT_OK && mirt_fit(m, data, &fit);
    mirt_dataset_destroy(data);
    return good;
}

/* Frozen layers of the model itself count as one base: one of them that was loaded says that all are meant. */
static void check_random_layers(void) {
    static const struct {
        const char *what, *words;
        int frozen;
        bool constant, set;
    } cases[] = {{"one layer", "plain: first is frozen with", 1, false, false},
                 {"two layers", "plain: first and 1 more layers are frozen with", 2, false, false},
                 {"two layers, one of them set", NULL, 2, false, true},
                 {"two layers of a constant", NULL, 2, true, false}};
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        mirt_strategy *s = strategy_of(1, 1, 1);
        mirt_model *m = frozen_layers(s, "plain", cases[i].frozen,
                                      cases[i].constant ? mirt_constant(0.5f) : mirt_glorot_uniform());
        const float bias[6] = {0};
        log_text[0] = 0;
        mirt_set_log(s, keep_log, NULL);
        bool good = !cases[i].set || mirt_set_weight(m, "first/bias", bias, 6) == MIRT_OK;
        good = good && trained_once(m);
        ok(good && random_warnings() == (cases[i].words != NULL) &&
               (!cases[i].words || strstr(log_text, cases[i].words)),
           "%s frozen: %d warnings%s%s", cases[i].what, random_warnings(), good ? "" : ": ",
           good ? "" : mirt_last_error());
        mirt_strategy_destroy(s);
    }
}

/* A part that was trained as a model of its own, before or after it became a part, is not random. */
static void check_trained_part(void) {
    for (int after = 0; after < 2; after++) {
        mirt_strategy *s = strategy_of(1, 1, 1);
        mirt_model *part = frozen_layers(s, "part", 0, mirt_glorot_uniform()), *m = mirt_model_create(s, "whole");
        log_text[0] = 0;
        mirt_set_log(s, keep_log, NULL);
        bool good = after || trained_once(part);
        mirt_tensor *x = mirt_call(part, mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), MIRT_TRAINING_AUTO);
        mirt_model_output(m, named_dense(x, "head", IMAGE_CLASSES, MIRT_LINEAR));
        if (after) good = trained_once(part);
        good = good && mirt_set_trainable(m, "part", false) == MIRT_OK && trained_once(m);
        ok(good && random_warnings() == 0, "a part that was trained %s it became one: %d warnings%s%s",
           after ? "after" : "before", random_warnings(), good ? "" : ": ", good ? "" : mirt_last_error());
        mirt_strategy_destroy(s);
    }
}

/* Regularized activities count by their mean over the rows, also where losses are summed: of layers that are trained,
   of frozen ones anew, and as features of these. */
static void check_frozen_activities(void) {
    double loss[3] = {NAN, NAN, NAN};
    for (int way = 0; way < 3; way++) {
        static const float x[5][3] = {{1, 0, 2}, {0, 3, 1}, {2, 2, 0}, {1, 1, 1}, {0, 1, 3}}, y[5] = {1, 0, 2, 1, 3};
        mirt_dense_desc dense;
        mirt_compile_desc desc;
        mirt_fit_desc fit;
        mirt_strategy *s = strategy_of(1, 2, 1);
        mirt_model *m = mirt_model_create(s, NULL);
        memset(&dense, 0, sizeof dense);
        memset(&desc, 0, sizeof desc);
        memset(&fit, 0, sizeof fit);
        dense.units = 2;
        dense.name = "base";
        dense.activity_regularizer.l2 = 0.5f;
        mirt_tensor *t = mirt_dense(mirt_input(m, MIRT_SHAPE(3)), &dense);
        memset(&dense, 0, sizeof dense);
        dense.units = 1;
        mirt_model_output(m, mirt_dense(t, &dense));
        desc.optimizer = mirt_sgd(0, 0, false);
        desc.loss = MIRT_MEAN_SQUARED_ERROR;
        desc.reduction = MIRT_SUM;
        const bool good = mirt_set_trainable(m, "base", way == 0) == MIRT_OK && mirt_compile(m, &desc) == MIRT_OK;
        fit.epochs = 3;
        fit.batch = 5;
        fit.no_progress = true;
        fit.feature_cache_bytes = way < 2 ? -1 : 0;
        const mirt_history *h =
            good ? mirt_fit_arrays(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(5, 3)),
                                   mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(5, 1)), &fit)
                 : NULL;
        if (h) loss[way] = mirt_history_last(h, "loss");
        mirt_strategy_destroy(s);
    }
    ok(loss[1] == loss[0] && loss[2] == loss[0], "a penalty of activities counts alike: %g, %g frozen, %g as a feature",
       loss[0], loss[1], loss[2]);
}

int main(void) {
    const char *directory = work_directory();
    if (!directory) return 1;
    snprintf(path, sizeof path, "%s/a.safetensors", directory);
    snprintf(path_b, sizeof path_b, "%s/b.safetensors", directory);
    check_partial();
    check_applications();
    draw_images();
    check_features();
    check_made();
    check_random_base();
    check_random_layers();
    check_trained_part();
    check_frozen_activities();
    check_names();
    remove(path);
    remove(path_b);
    rmdir(directory);
    return done_testing();
}
