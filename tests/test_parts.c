/* Tests models as parts of others, and views. Who owns the weights, what is trained, lifetimes, and what is
   refused. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <unistd.h>

#include "mirror_util.h"

enum { N = 12, IN = 6, MOST = 512 };
static float xs[N * IN];
static int32_t classes[N];

static mirt_array x_array(void) { return mirt_make_array(xs, MIRT_FLOAT32, MIRT_SHAPE(N, IN)); }
static mirt_array c_array(void) { return mirt_make_array(classes, MIRT_INT32, MIRT_SHAPE(N)); }
static mirt_array no_array(void) { return mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(1)); }

/* IN -> 4 -> 3. */
static mirt_model *make_base(mirt_strategy *s, const char *name) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(
        m, named_dense(named_dense(mirt_input(m, MIRT_SHAPE(IN)), "hidden", 4, MIRT_TANH), "code", 3, MIRT_LINEAR));
    return m;
}

/* The base, and a layer for classes upon it. */
static mirt_model *make_top(mirt_strategy *s, mirt_model *base, const char *name) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(
        m, named_dense(mirt_call(base, mirt_input(m, MIRT_SHAPE(IN)), MIRT_TRAINING_AUTO), "head", 3, MIRT_LINEAR));
    return m;
}

static mirt_status compile(mirt_model *m, bool loss) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.from_logits = true;
    if (loss) c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    return mirt_compile(m, &c);
}

static mirt_status train(mirt_model *m, int steps) {
    mirt_status status = MIRT_OK;
    for (int i = 0; i < steps && status == MIRT_OK; i++) status = mirt_train_step(m, x_array(), c_array(), NULL);
    return status;
}

/* All weights whose names begin with `prefix`, one after the other. */
static int weights_of(mirt_model *m, const char *prefix, float *out) {
    mirt_weight_info info;
    int at = 0;
    for (int i = 0; i < mirt_num_weights(m); i++) {
        if (mirt_weight(m, i, &info) != MIRT_OK || strncmp(info.name, prefix, strlen(prefix)) != 0) continue;
        if (at + info.count > MOST ||
            mirt_get_weight(m, info.name, mirt_num_devices(m->strategy) - 1, out + at, (size_t)info.count) != MIRT_OK)
            return -1;
        at += (int)info.count;
    }
    return at;
}

static bool same(const float *a, const float *b, int n) { return n > 0 && memcmp(a, b, (size_t)n * sizeof *a) == 0; }

static bool refused(mirt_status status, const char *words) {
    bool good = mirt_last_status() == status && strstr(mirt_last_error(), words);
    if (!good) printf("# %s: %s\n", mirt_status_text(mirt_last_status()), mirt_last_error());
    return good;
}

/* >>weights */

static void test_sharing(mirt_strategy *s) {
    float a[MOST], b[MOST], c[MOST], out[N * 3], again[N * 3];
    mirt_weight_info info;
    mirt_model *base = make_base(s, "base"), *top;
    int n = weights_of(base, "", a); /* makes them */
    top = make_top(s, base, "top");
    bool named = mirt_weight(top, 0, &info) == MIRT_OK;
    ok(named && mirt_num_weights(top) == 6 && strcmp(info.name, "base/hidden/kernel") == 0,
       "a part's weights are named after it: %s", info.name);
    ok(compile(top, true) == MIRT_OK && n == IN * 4 + 4 + 15, "the model with a part compiles");
    int m = weights_of(top, "base/", b);
    ok(m == n && same(a, b, n), "a part keeps the weights it had");
    n = weights_of(base, "", c);
    ok(n == m && same(b, c, n), "and reads the same by itself");
    for (int i = 0; i < 15; i++) c[i] = (float)i;
    ok(mirt_set_weight(base, "code/kernel", c, 12) == MIRT_OK &&
           mirt_get_weight(top, "base/code/kernel", 0, b, 12) == MIRT_OK && same(b, c, 12),
       "set in the part, read in the owner");
    ok(mirt_set_weight(top, "base/code/bias", c + 12, 3) == MIRT_OK &&
           mirt_get_weight(base, "code/bias", 0, b, 3) == MIRT_OK && same(b, c + 12, 3),
       "set in the owner, read in the part");
    ok(compile(base, false) == MIRT_OK && mirt_predict_arrays(base, x_array(), out, N * 3) == MIRT_OK,
       "a part predicts by itself");
    ok(train(top, 3) == MIRT_OK, "its owner trains");
    ok(mirt_predict_arrays(base, x_array(), again, N * 3) == MIRT_OK && memcmp(out, again, sizeof out) != 0,
       "after that the part predicts something else");
    n = weights_of(base, "", c);
    weights_of(top, "base/", b);
    ok(same(b, c, n), "with its owner's weights");
    ok(compile(base, true) == MIRT_OK && train(base, 2) == MIRT_OK, "a part is trained by itself");
    n = weights_of(top, "base/", b);
    ok(!same(b, c, n) && weights_of(base, "", c) == n && same(b, c, n), "which its owner sees");
    n = weights_of(top, "head", b);
    ok(train(base, 1) == MIRT_OK && weights_of(top, "head", c) == n && same(b, c, n) && train(top, 1) == MIRT_OK,
       "and the rest of the owner stays");
    mirt_model_destroy(base);
    ok(train(top, 1) == MIRT_OK, "destroyed, it still is a layer of its owner");
    mirt_model_destroy(top);
}

static void test_lifetimes(mirt_strategy *s) {
    mirt_model *base = make_base(s, "base"), *top = make_top(s, base, "top");
    mirt_model_destroy(top);
    ok(compile(base, true) == MIRT_OK && train(base, 1) == MIRT_OK,
       "an owner destroyed before it had weights leaves the part as it was");
    top = make_top(s, base, "top");
    ok(compile(top, true) == MIRT_OK && train(top, 1) == MIRT_OK, "which can become a part again");
    ok(compile(base, false) == MIRT_OK, "and be compiled");
    mirt_model_destroy(top);
    float out[N * 3];
    ok(mirt_predict_arrays(base, x_array(), out, N * 3) == MIRT_E_STATE && refused(MIRT_E_STATE, "went with"),
       "an owner takes the weights with it: \"%s\"", mirt_last_error());
    ok(compile(base, false) == MIRT_E_STATE && refused(MIRT_E_STATE, "went with top"), "compile says so: \"%s\"",
       mirt_last_error());
    mirt_model_destroy(base);
    /* Three deep, the outermost destroyed. */
    base = make_base(s, "base");
    mirt_model *mid = make_top(s, base, "mid"), *outer = make_top(s, mid, "outer");
    ok(compile(outer, true) == MIRT_OK && train(outer, 1) == MIRT_OK && compile(base, false) == MIRT_OK &&
           compile(mid, true) == MIRT_OK && train(mid, 1) == MIRT_OK,
       "three deep, all trained");
    mirt_model_destroy(outer);
    ok(compile(base, false) == MIRT_E_STATE && refused(MIRT_E_STATE, "went with outer"),
       "the innermost lost its weights too: \"%s\"", mirt_last_error());
    ok(mirt_predict_arrays(base, x_array(), out, N * 3) == MIRT_E_STATE &&
           mirt_train_step(mid, x_array(), c_array(), NULL) == MIRT_E_STATE,
       "and nothing runs on them");
    mirt_model_destroy(mid);
    mirt_model_destroy(base);
    base = make_base(s, "base");
    mid = make_top(s, base, "mid");
    outer = make_top(s, mid, "outer");
    mirt_model_destroy(base);
    mirt_model_destroy(mid);
    ok(compile(outer, true) == MIRT_OK && train(outer, 1) == MIRT_OK, "parts destroyed before their owner is compiled");
    mirt_model_destroy(outer);
    base = make_base(s, "base");
    mirt_model *view = mirt_model_view(base, base->output, 1),
               *deep = view ? mirt_model_view(view, view->output, 1) : NULL;
    mirt_model_destroy(view);
    ok(deep && compile(deep, false) == MIRT_OK && mirt_predict_arrays(deep, x_array(), out, N * 3) == MIRT_OK,
       "a view of a view outlives it");
    mirt_model_destroy(base);
    ok(mirt_predict_arrays(deep, x_array(), out, N * 3) == MIRT_E_STATE && compile(deep, false) == MIRT_E_STATE &&
           refused(MIRT_E_STATE, "went with base"),
       "but not the model: \"%s\"", mirt_last_error());
    mirt_model_destroy(deep);
    base = make_base(s, "left");
    mid = make_top(s, base, "over");
    ok(compile(mid, true) == MIRT_OK, "left to the strategy");
}

/* Sums of the weights of what the base makes of x. */
static bool record_sum(mirt_function *f, void *user) {
    mirt_tensor *y = mirt_call((mirt_model *)user, mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), MIRT_TRAINING_OFF);
    return mirt_function_result(f, "sum", mirt_reduce_sum(y, 0, false)) == MIRT_OK;
}

static void test_functions(mirt_strategy *s) {
    mirt_global_batch batch;
    double sum[2];
    mirt_dataset *d = mirt_distribute(s, mirt_batch(mirt_arrays(x_array(), no_array()), N));
    mirt_model *base = make_base(s, "base");
    mirt_function *early = mirt_function_create(base, d, record_sum, base);
    ok(early && mirt_dataset_next(d, &batch) == MIRT_OK && mirt_function_run(early, &batch) == MIRT_OK &&
           mirt_reduce(early, "sum", MIRT_REDUCE_SUM, &sum[0], 1) == MIRT_OK,
       "a function of a base");
    mirt_model *top = make_top(s, base, "top");
    ok(compile(top, true) == MIRT_OK && mirt_function_run(early, &batch) == MIRT_E_STATE &&
           refused(MIRT_E_STATE, "record it again"),
       "which becomes a part: \"%s\"", mirt_last_error());
    mirt_function *late = mirt_function_create(base, d, record_sum, base),
                  *of_top = mirt_function_create(top, d, record_sum, base);
    ok(late && mirt_function_run(late, &batch) == MIRT_OK &&
           mirt_reduce(late, "sum", MIRT_REDUCE_SUM, &sum[1], 1) == MIRT_OK && sum[0] == sum[1],
       "recorded again it gives the same");
    ok(of_top && mirt_function_run(of_top, &batch) == MIRT_OK &&
           mirt_reduce(of_top, "sum", MIRT_REDUCE_SUM, &sum[1], 1) == MIRT_OK && sum[0] == sum[1],
       "and in a function of its owner");
    mirt_model_destroy(top);
    ok(mirt_function_run(late, &batch) == MIRT_E_STATE && mirt_function_run(early, &batch) == MIRT_E_STATE,
       "without the owner's weights it does not run: \"%s\"", mirt_last_error());
    ok(mirt_reduce(late, "sum", MIRT_REDUCE_SUM, &sum[1], 1) == MIRT_OK && sum[0] == sum[1], "but keeps what it left");
    mirt_function_destroy(late);
    mirt_model_destroy(base);
    mirt_dataset_destroy(d);
}

static void test_three_deep(mirt_strategy *s) {
    mirt_weight_info info;
    float a[MOST], b[MOST], c[MOST];
    mirt_model *base = make_base(s, "base"), *mid = make_top(s, base, "mid");
    int n = weights_of(mid, "base/", a);
    mirt_model *outer = make_top(s, mid, "outer");
    bool named = mirt_weight(outer, 0, &info) == MIRT_OK;
    ok(named && compile(outer, true) == MIRT_OK && strcmp(info.name, "mid/base/hidden/kernel") == 0, "three deep: %s",
       info.name);
    ok(weights_of(outer, "mid/base/", b) == n && same(a, b, n), "weights made in the middle stay");
    ok(train(outer, 2) == MIRT_OK && weights_of(outer, "mid/base/", b) == n && weights_of(base, "", c) == n &&
           same(b, c, n),
       "the innermost shares them");
    ok(mirt_set_trainable(mid, "base", false) == MIRT_OK && mirt_weight(outer, 0, &info) == MIRT_OK &&
           !info.trainable && mirt_weight(base, 0, &info) == MIRT_OK && !info.trainable,
       "frozen in the middle is frozen everywhere");
    ok(compile(outer, true) == MIRT_OK && train(outer, 2) == MIRT_OK && weights_of(outer, "mid/base/", c) == n &&
           same(b, c, n),
       "and not trained");
    mirt_model_destroy(outer);
    mirt_model_destroy(mid);
    mirt_model_destroy(base);
}

/* A base that was trained, saved and loaded. */
static void test_loaded(mirt_strategy *s) {
    char path[300], a[MIRT__SHA256_HEX], b[MIRT__SHA256_HEX];
    float code[N * 3], again[N * 3];
    snprintf(path, sizeof path, "%s/base.safetensors", work_directory());
    mirt_model *base = make_base(s, "base");
    ok(compile(base, true) == MIRT_OK && train(base, 3) == MIRT_OK &&
           mirt_predict_arrays(base, x_array(), code, N * 3) == MIRT_OK &&
           mirt_save(base, path, MIRT_SAVE_ALL) == MIRT_OK,
       "a base is trained and saved");
    mirt_model *loaded = mirt_load(s, path), *top = loaded ? make_top(s, loaded, "top") : NULL;
    ok(top && mirt_set_trainable(top, loaded->name, false) == MIRT_OK && compile(top, true) == MIRT_OK &&
           train(top, 2) == MIRT_OK,
       "loaded, it is the frozen part of another model");
    ok(compile(loaded, false) == MIRT_OK && mirt_predict_arrays(loaded, x_array(), again, N * 3) == MIRT_OK &&
           memcmp(code, again, sizeof code) == 0,
       "and gives what it gave before");
    mirt_model *plain = make_base(s, "base"), *other = make_top(s, plain, "top");
    ok(compile(other, true) == MIRT_OK && mirt_load_weights(plain, path) == MIRT_OK &&
           mirt_load_weights(base, path) == MIRT_OK,
       "weights are loaded into a part");
    digest_weights(plain, 0, a);
    digest_weights(base, 0, b);
    ok(strcmp(a, b) == 0 && copies_agree(other), "on every device");
    unlink(path);
    mirt_model_destroy(other);
    mirt_model_destroy(plain);
    mirt_model_destroy(top);
    mirt_model_destroy(loaded);
    mirt_model_destroy(base);
}

/* >>freezing */

/* Whether the kernels of dense and dense_1 are trainable: bits. */
/* A model with weights that has grown since by the layer "late". */
static mirt_model *make_grown(mirt_strategy *s, mirt_model *base) {
    float w[MOST];
    mirt_model *m = mirt_model_create(s, "grown");
    mirt_tensor *t = named_dense(mirt_call(base, mirt_input(m, MIRT_SHAPE(IN)), MIRT_TRAINING_AUTO), "head", 3,
                                 MIRT_LINEAR);
    const bool made = weights_of(m, "head/", w) == 12;
    mirt_model_output(m, named_dense(t, "late", 5, MIRT_LINEAR));
    return made ? m : NULL;
}

/* Nothing is drawn for a part that is loaded, but it is for what is made with it. */
static void test_grown(mirt_strategy *s) {
    char path[300];
    float want[MOST], have[MOST];
    snprintf(path, sizeof path, "%s/grown.safetensors", work_directory());
    mirt_model *base = make_base(s, "grown_base"), *other = make_base(s, "other_base");
    const float kernel[4 * 3] = {1, 2, 3};
    const bool saved = mirt_set_weight(base, "code/kernel", kernel, 12) == MIRT_OK &&
                       mirt_save(base, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK;
    mirt_model *m = make_grown(s, other), *twin = make_grown(s, make_base(s, "twin_base"));
    ok(saved && m && twin && mirt_load_weights(other, path) == MIRT_OK, "a part of a model that has grown is loaded");
    const int n = weights_of(twin, "late/", want);
    ok(n == 20 && weights_of(m, "late/", have) == n && same(want, have, n) && want[0] != 0,
       "and the new layer has its initial weights");
    const int heads = weights_of(twin, "head/", want);
    ok(weights_of(m, "head/", have) == heads && same(want, have, heads), "the old one those that it had");
    const int bases = weights_of(base, "", want);
    ok(weights_of(other, "", have) == bases && same(want, have, bases), "and the part those of the file");
    mirt_model *fresh = make_base(s, "fresh_base");
    ok(mirt_load_weights(fresh, path) == MIRT_OK && weights_of(fresh, "", have) == bases && same(want, have, bases),
       "as does a model that had no weights");
    mirt_model *bad = make_top(s, make_base(s, "bad_base"), "bad");
    ok(mirt_load_weights(bad, path) == MIRT_E_NOT_FOUND && weights_of(bad, "head/", have) == 12 && have[0] != 0,
       "one that the file does not fit has its initial weights");
    unlink(path);
    mirt_model_destroy(bad);
    mirt_model_destroy(fresh);
    mirt_model_destroy(twin);
    mirt_model_destroy(m);
    mirt_model_destroy(other);
    mirt_model_destroy(base);
}

static int trainable_of(mirt_model *m) {
    mirt_weight_info info;
    int bits = 0;
    for (int i = 0; i < mirt_num_weights(m); i++) {
        if (mirt_weight(m, i, &info) == MIRT_OK && info.trainable && strstr(info.name, "/kernel"))
            bits |= strncmp(info.name, "dense/", 6) == 0 ? 1 : 2;
    }
    return bits;
}

static void test_prefixes(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "plain");
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = 2;
    mirt_model_output(m, mirt_dense(mirt_dense(mirt_input(m, MIRT_SHAPE(3)), &d), &d));
    ok(trainable_of(m) == 3 && mirt_set_trainable(m, "dense", false) == MIRT_OK && trainable_of(m) == 2,
       "\"dense\" is not dense_1");
    ok(mirt_set_trainable(m, "dense/kernel", true) == MIRT_OK && trainable_of(m) == 3, "a weight by its name");
    ok(mirt_set_trainable(m, "dense*", false) == MIRT_OK && trainable_of(m) == 0, "\"dense*\" is both");
    ok(mirt_set_trainable(m, "dens", false) == MIRT_E_NOT_FOUND, "\"%s\"", mirt_last_error());
    mirt_model_destroy(m);
}

static void test_freezing(mirt_strategy *s) {
    float a[MOST], b[MOST], g[64];
    mirt_memory all, frozen;
    mirt_model *base = make_base(s, "base"), *top = make_top(s, base, "top");
    ok(compile(top, true) == MIRT_OK && train(top, 2) == MIRT_OK, "trained with everything trainable");
    ok(mirt_plan_memory(top, N, &all) == MIRT_OK, "and its memory");
    int n = weights_of(top, "base/", a);
    ok(mirt_set_trainable(top, "base", false) == MIRT_OK, "frozen");
    ok(train(top, 2) == MIRT_OK && weights_of(top, "base/", b) == n && !same(a, b, n),
       "which takes effect with the next compile");
    weights_of(top, "base/", a);
    ok(mirt_plan_memory(top, N, &frozen) == MIRT_OK && memcmp(&all, &frozen, sizeof all) == 0,
       "until then memory is what it was");
    ok(compile(top, true) == MIRT_OK && weights_of(top, "base/", b) == n && same(a, b, n),
       "compiling again keeps the weights");
    ok(mirt_plan_memory(top, N, &frozen) == MIRT_OK && frozen.slots < all.slots && frozen.gradients < all.gradients &&
           frozen.weights == all.weights,
       "no slots (%d for %d bytes) and no gradients (%d for %d) of frozen weights", (int)frozen.slots, (int)all.slots,
       (int)frozen.gradients, (int)all.gradients);
    ok(train(top, 3) == MIRT_OK && weights_of(top, "base/", b) == n && same(a, b, n),
       "training leaves frozen bits alone");
    ok(mirt_scatter(top, x_array(), c_array()) == MIRT_OK && mirt_grad(top, NULL) == MIRT_OK &&
           mirt_get_gradient(top, "base/hidden/kernel", 0, g, 24) == MIRT_E_INVALID &&
           refused(MIRT_E_INVALID, "not trained"),
       "\"%s\"", mirt_last_error());
    ok(mirt_set_trainable(base, NULL, true) == MIRT_OK && train(top, 1) == MIRT_OK &&
           weights_of(top, "base/", b) == n && same(a, b, n),
       "unfrozen by the part, but not compiled yet");
    ok(mirt_save(top, "/nonexistent/x", MIRT_SAVE_ALL) != MIRT_OK, "saving meanwhile touches nothing it has not");
    ok(compile(top, true) == MIRT_OK && weights_of(top, "base/", b) == n && same(a, b, n),
       "the second phase begins with the same weights");
    ok(train(top, 1) == MIRT_OK && weights_of(top, "base/", b) == n && !same(a, b, n) && copies_agree(top),
       "and trains them, on every device alike");
    ok(mirt_plan_memory(top, N, &frozen) == MIRT_OK && frozen.slots == all.slots, "with all the slots");
    ok(mirt_set_trainable(top, "base/hidden", false) == MIRT_OK && mirt_set_trainable(top, "he*", false) == MIRT_OK &&
           compile(top, true) == MIRT_OK && train(top, 1) == MIRT_OK,
       "one layer of a part, and all that begins so");
    ok(mirt_set_trainable(top, "", false) == MIRT_OK && compile(top, true) == MIRT_OK &&
           mirt_train_step(top, x_array(), c_array(), NULL) == MIRT_OK,
       "everything frozen still runs");
    const char *summary = compile(base, false) == MIRT_OK ? mirt_summary(base, 2) : NULL;
    ok(summary && strstr(summary, "Trainable: 0, "), "the part knows it too");
    ok(mirt_set_trainable(top, "bass", false) == MIRT_E_NOT_FOUND && refused(MIRT_E_NOT_FOUND, "did you mean"),
       "\"%s\"", mirt_last_error());
    ok(mirt_set_trainable(NULL, "base", false) != MIRT_OK, "\"%s\"", mirt_last_error());
    mirt_model_destroy(top);
    mirt_model_destroy(base);
}

/* Rows of `m` in training: the sums of its two outputs for every row. */
typedef struct probe {
    mirt_model *model;
    int calls;
} probe;

static bool record_probe(mirt_function *f, void *user) {
    const probe *p = (const probe *)user;
    mirt_tensor *x = mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), *out[MIRT_MAX_OUTPUTS];
    static const char *const name[] = {"first", "second"};
    mirt_tensor *y = mirt_call_many(p->model, &x, 1, MIRT_TRAINING_ON, out);
    for (int i = 0; i < 2 && y; i++) {
        if (mirt_function_result(
                f, name[i], p->calls == 2 ? (i ? mirt_call(p->model, x, MIRT_TRAINING_ON) : y) : out[i]) != MIRT_OK)
            return false;
    }
    return y != NULL;
}

/* Whether the two results of a run in training are the same bits. */
static int probe_same(mirt_strategy *s, mirt_model *m, int calls, float *first) {
    probe p = {m, calls};
    float other[N * IN];
    mirt_global_batch batch;
    size_t n = 0, k = 0;
    mirt_dataset *d = mirt_distribute(s, mirt_batch(mirt_arrays(x_array(), no_array()), N));
    mirt_function *f = mirt_function_create(m, d, record_probe, &p);
    bool good = f && mirt_dataset_next(d, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
                mirt_gather_result(f, "first", first, N * IN, &n) == MIRT_OK &&
                mirt_gather_result(f, "second", other, N * IN, &k) == MIRT_OK;
    if (!good) printf("# %s\n", mirt_last_error());
    mirt_function_destroy(f);
    mirt_dataset_destroy(d);
    return !good ? -1 : n == k && memcmp(first, other, n * sizeof *other) == 0;
}

static mirt_model *dropper(mirt_strategy *s, const char *name) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(m, mirt_dropout(mirt_input(m, MIRT_SHAPE(IN)), 0.5f));
    return m;
}

static void test_dropout(mirt_strategy *s) {
    float out[N * IN], plain[N * IN];
    mirt_tensor *outs[2];
    mirt_model *base = dropper(s, "base"), *top = mirt_model_create(s, "top");
    mirt_tensor *x = mirt_input(top, MIRT_SHAPE(IN));
    outs[0] = mirt_call(base, x, MIRT_TRAINING_AUTO);
    outs[1] = mirt_call(base, x, MIRT_TRAINING_AUTO);
    mirt_model_outputs(top, outs, 2);
    ok(probe_same(s, top, 1, out) == 0, "dropout in a part differs between two calls");
    base = dropper(s, "base");
    top = mirt_model_create(s, "top");
    x = mirt_input(top, MIRT_SHAPE(IN));
    outs[0] = mirt_call(base, x, MIRT_TRAINING_AUTO);
    outs[1] = mirt_dropout(x, 0.5f);
    mirt_model_outputs(top, outs, 2);
    ok(probe_same(s, top, 1, out) == 0, "dropout in a part differs from that around it, whose name is the same");
    ok(probe_same(s, top, 2, out) == 0, "and in a function between two calls of the model");
    base = dropper(s, "base");
    mirt_model *mid = mirt_model_create(s, "mid");
    x = mirt_input(mid, MIRT_SHAPE(IN));
    outs[0] = mirt_call(base, x, MIRT_TRAINING_AUTO);
    outs[1] = mirt_call(base, x, MIRT_TRAINING_AUTO);
    mirt_model_outputs(mid, outs, 2);
    top = mirt_model_create(s, "top");
    x = mirt_input(top, MIRT_SHAPE(IN));
    mirt_tensor *first[MIRT_MAX_OUTPUTS], *second[MIRT_MAX_OUTPUTS];
    mirt_call_many(mid, &x, 1, MIRT_TRAINING_AUTO, first);
    mirt_call_many(mid, &x, 1, MIRT_TRAINING_AUTO, second);
    outs[0] = first[0];
    outs[1] = second[1];
    mirt_model_outputs(top, outs, 2);
    ok(probe_same(s, top, 1, out) == 0, "the second call in the second call is not the first in the first");
    base = dropper(s, "base");
    top = mirt_model_create(s, "top");
    x = mirt_input(top, MIRT_SHAPE(IN));
    outs[0] = mirt_call(base, x, MIRT_TRAINING_OFF);
    outs[1] = x;
    mirt_model_outputs(top, outs, 2);
    ok(probe_same(s, top, 1, plain) == 1 && memcmp(plain, xs, sizeof plain) == 0,
       "a part called as in inference drops nothing in training; an input can be an output");
}

/* >>views */

static void test_views(mirt_strategy *s) {
    float out[N * 4], kernel[24], bias[4], code[N * 3], direct[N * 3];
    mirt_model *m = make_base(s, "base");
    ok(compile(m, true) == MIRT_OK && train(m, 2) == MIRT_OK, "a model for views");
    mirt_tensor *hidden = mirt_layer_output(m, "hidden");
    mirt_model *view = mirt_model_view(m, &hidden, 1);
    ok(view && compile(view, false) == MIRT_OK && mirt_predict_arrays(view, x_array(), out, N * 4) == MIRT_OK,
       "what a hidden layer gives");
    double worst = 0;
    for (int phase = 0; phase < 2; phase++) {
        mirt_get_weight(m, "hidden/kernel", 0, kernel, 24);
        mirt_get_weight(m, "hidden/bias", 0, bias, 4);
        for (int i = 0; i < N * 4; i++) {
            double sum = (double)bias[i % 4];
            for (int k = 0; k < IN; k++) sum += (double)xs[i / 4 * IN + k] * (double)kernel[k * 4 + i % 4];
            worst = worse(worst, fabs(tanh(sum) - (double)out[i]));
        }
        ok(worst < 1e-6, "%s: within %.1e of double precision", phase ? "after training too" : "right", worst);
        if (phase == 0)
            ok(train(m, 2) == MIRT_OK && mirt_predict_arrays(view, x_array(), out, N * 4) == MIRT_OK,
               "training continues beside a view");
    }
    mirt_tensor *both[3] = {mirt_layer_output(m, "code"), hidden, m->input[0]};
    float *outs[3] = {code, out, kernel};
    size_t capacity[3] = {N * 3, N * 4, 24};
    float first[N * IN];
    outs[2] = first;
    capacity[2] = N * IN;
    mirt_model *three = mirt_model_view(m, both, 3);
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = x_array();
    ok(three && compile(three, false) == MIRT_OK && mirt_predict_on_batch(three, &data, outs, capacity) == MIRT_OK &&
           mirt_predict_arrays(m, x_array(), direct, N * 3) == MIRT_OK && memcmp(direct, code, sizeof code) == 0 &&
           memcmp(first, xs, sizeof xs) == 0,
       "several outputs, the input among them");
    both[1] = both[0];
    mirt_model *twice = mirt_model_view(m, both, 2);
    outs[1] = first;
    ok(twice && compile(twice, false) == MIRT_OK && mirt_predict_on_batch(twice, &data, outs, capacity) == MIRT_OK &&
           memcmp(first, code, sizeof code) == 0,
       "one output twice");
    ok(mirt_set_trainable(view, "hidden", false) == MIRT_OK && compile(m, true) == MIRT_OK, "freezing by a view");
    mirt_get_weight(m, "hidden/kernel", 0, kernel, 24);
    float later[24];
    ok(train(m, 2) == MIRT_OK && mirt_get_weight(view, "hidden/kernel", 0, later, 24) == MIRT_OK &&
           same(kernel, later, 24),
       "freezes the model");
    ok(!named_dense(view->input[0], "more", 2, MIRT_LINEAR) && refused(MIRT_E_STATE, "view of base"),
       "no layers for a view: \"%s\"", mirt_last_error());
    ok(mirt_evaluate_arrays(view, x_array(), x_array(), NULL) == MIRT_E_STATE &&
           mirt_predict_arrays(view, x_array(), out, N * 4) == MIRT_OK,
       "which is to be compiled again where weights moved, but not to predict");
    mirt_model *top = mirt_model_create(s, "top");
    ok(!mirt_call(view, mirt_input(top, MIRT_SHAPE(IN)), MIRT_TRAINING_AUTO) &&
           refused(MIRT_E_STATE, "a view shares the weights"),
       "nor is it a part: \"%s\"", mirt_last_error());
    ok(!mirt_layer_output(m, "hiden") && refused(MIRT_E_NOT_FOUND, "did you mean \"hidden\""), "\"%s\"",
       mirt_last_error());
    ok(!mirt_layer_output(NULL, "x") && !mirt_layer_output(m, NULL), "\"%s\"", mirt_last_error());
    ok(!mirt_model_view(NULL, both, 1) && !mirt_model_view(m, NULL, 1) && !mirt_model_view(m, both, 0) &&
           !mirt_model_view(m, both, 9),
       "\"%s\"", mirt_last_error());
    mirt_tensor *nothing = NULL, *foreign = mirt_input(top, MIRT_SHAPE(3));
    mirt_model *other = make_base(s, "other");
    foreign = other->output[0];
    ok(!mirt_model_view(m, &nothing, 1) && refused(MIRT_E_INVALID, "output"), "\"%s\"", mirt_last_error());
    ok(!mirt_model_view(m, &foreign, 1) && refused(MIRT_E_INVALID, "another model"), "\"%s\"", mirt_last_error());
    mirt_model_destroy(view);
    mirt_model_destroy(three);
    mirt_model_destroy(twice);
    mirt_model_destroy(top);
    mirt_model_destroy(other);
    mirt_model_destroy(m);
}

/* >>misuse */

static mirt_tensor *build_with_part(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                    void *user) {
    (void)layer;
    (void)num_in;
    (void)config;
    return mirt_call((mirt_model *)user, in[0], MIRT_TRAINING_AUTO);
}

static void test_misuse(mirt_strategy *s) {
    mirt_model *a = mirt_model_create(s, "a"), *b;
    mirt_tensor *x = mirt_input(a, MIRT_SHAPE(IN));
    mirt_model_output(a, named_dense(x, "d", IN, MIRT_LINEAR));
    ok(!mirt_call(a, x, MIRT_TRAINING_AUTO) && compile(a, false) == MIRT_E_INVALID &&
           refused(MIRT_E_INVALID, "a: cannot be a part of itself"),
       "a model in itself: \"%s\"", mirt_last_error());
    a = make_base(s, "a");
    b = mirt_model_create(s, "b");
    x = mirt_input(b, MIRT_SHAPE(IN));
    mirt_tensor *y = mirt_call(a, x, MIRT_TRAINING_AUTO);
    mirt_model_output(b, y);
    ok(y && !mirt_call(b, mirt_input(a, MIRT_SHAPE(IN)), MIRT_TRAINING_AUTO) &&
           refused(MIRT_E_STATE, "a is a part of b already"),
       "or in its part: \"%s\"", mirt_last_error());
    ok(!named_dense(a->output[0], "late", 2, MIRT_LINEAR) && refused(MIRT_E_STATE, "a is a part of b already"),
       "a part gets no more layers: \"%s\"", mirt_last_error());
    ok(!mirt_variable(a, "late", MIRT_SHAPE(2), mirt_zeros(), true) && refused(MIRT_E_STATE, "a "),
       "nor weights: \"%s\"", mirt_last_error());
    ok(mirt_add_loss(a, a->output[0]) == MIRT_E_STATE && refused(MIRT_E_STATE, "part"), "nor losses: \"%s\"",
       mirt_last_error());
    ok(compile(b, true) == MIRT_OK && train(b, 1) == MIRT_OK, "its owner works on");
    mirt_model *c = make_top(s, a, "c");
    ok(compile(c, false) == MIRT_E_STATE && refused(MIRT_E_STATE, "a: is a part of b already"),
       "a model in two owners: \"%s\"", mirt_last_error());
    c = mirt_model_create(s, "c");
    ok(!mirt_call(NULL, mirt_input(c, MIRT_SHAPE(IN)), MIRT_TRAINING_AUTO) && compile(c, false) != MIRT_OK &&
           refused(mirt_last_status(), "no model"),
       "no model: \"%s\"", mirt_last_error());
    c = mirt_model_create(s, "c");
    a = make_base(s, "a");
    ok(!mirt_call(a, mirt_input(c, MIRT_SHAPE(IN + 1)), MIRT_TRAINING_AUTO) && compile(c, false) == MIRT_E_SHAPE,
       "another shape: \"%s\"", mirt_last_error());
    c = mirt_model_create(s, "c");
    mirt_tensor *two[2] = {mirt_input(c, MIRT_SHAPE(IN)), mirt_input(c, MIRT_SHAPE(IN))};
    ok(!mirt_call_many(a, two, 2, MIRT_TRAINING_AUTO, NULL) && compile(c, false) == MIRT_E_INVALID,
       "too many tensors: \"%s\"", mirt_last_error());
    c = mirt_model_create(s, "c");
    two[0] = mirt_input(c, MIRT_SHAPE(IN));
    b = mirt_model_create(s, "b");
    mirt_input(b, MIRT_SHAPE(IN));
    ok(!mirt_call(b, two[0], MIRT_TRAINING_AUTO) && compile(c, false) == MIRT_E_STATE &&
           refused(MIRT_E_STATE, "no output"),
       "a part without an output: \"%s\"", mirt_last_error());
    c = mirt_model_create(s, "c");
    two[0] = mirt_input(c, MIRT_SHAPE(IN));
    ok(!mirt_call(a, two[0], (mirt_training)9) && compile(c, false) == MIRT_E_INVALID,
       "no such way of training: \"%s\"", mirt_last_error());
    ok(!mirt_call(a, NULL, MIRT_TRAINING_AUTO) && !mirt_call_many(a, NULL, 1, MIRT_TRAINING_AUTO, NULL) &&
           !mirt_call_many(a, two, 0, MIRT_TRAINING_AUTO, NULL),
       "nothing to be called on");
    mirt_strategy *other = strategy_of(1, 1, 1);
    c = mirt_model_create(other, "c");
    ok(!mirt_call(a, mirt_input(c, MIRT_SHAPE(IN)), MIRT_TRAINING_AUTO) && compile(c, false) == MIRT_E_INVALID &&
           refused(MIRT_E_INVALID, "strateg"),
       "a part of another strategy: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(other);
    /* In a custom layer. */
    mirt_layer_class mine;
    memset(&mine, 0, sizeof mine);
    mine.class_name = "Mine";
    mine.build = build_with_part;
    mine.user = a = make_base(s, "inner");
    c = mirt_model_create(s, "c");
    x = mirt_input(c, MIRT_SHAPE(IN));
    mirt_model_output(c, mirt_custom_layer(&mine, &x, 1, NULL, NULL));
    mirt_weight_info info;
    memset(&info, 0, sizeof info);
    bool trained = compile(c, true) == MIRT_OK && train(c, 1) == MIRT_OK && mirt_weight(c, 0, &info) == MIRT_OK;
    ok(trained, "a model in a custom layer: %s", trained ? info.name : mirt_last_error());
    /* Numbers that go with no output. */
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    d.losses[1] = MIRT_MEAN_SQUARED_ERROR;
    ok(mirt_compile(c, &d) == MIRT_E_INVALID && refused(MIRT_E_INVALID, "output 1"), "\"%s\"", mirt_last_error());
    ok(train(c, 1) == MIRT_OK, "after which it is as it was");
    memset(&d, 0, sizeof d);
    d.loss = (mirt_loss)77;
    ok(mirt_compile(c, &d) == MIRT_E_INVALID, "\"%s\"", mirt_last_error());
    memset(&d, 0, sizeof d);
    d.loss = MIRT_MEAN_SQUARED_ERROR;
    d.metrics[0] = (mirt_metric)-3;
    ok(mirt_compile(c, &d) == MIRT_E_INVALID, "\"%s\"", mirt_last_error());
    memset(&d, 0, sizeof d);
    d.loss = MIRT_MEAN_SQUARED_ERROR;
    d.loss_weights[0] = NAN;
    ok(mirt_compile(c, &d) == MIRT_E_INVALID, "\"%s\"", mirt_last_error());
    ok(train(c, 1) == MIRT_OK, "after all of which it is as it was");
    /* Bare weights. */
    c = mirt_model_create(s, "bare");
    ok(compile(c, false) == MIRT_E_STATE, "nothing at all: \"%s\"", mirt_last_error());
    mirt_shape odd;
    memset(&odd, 0, sizeof odd);
    ok(mirt_variable(c, "number", odd, mirt_ones(), true) != NULL, "one number is a weight");
    mirt_variable(c, "v", MIRT_SHAPE(3), mirt_zeros(), true);
    ok(compile(c, true) == MIRT_OK, "weights alone compile");
    float out[3];
    mirt_memory memory;
    ok(mirt_predict_arrays(c, x_array(), out, 3) != MIRT_OK &&
           mirt_train_step(c, x_array(), c_array(), NULL) != MIRT_OK,
       "but predict nothing: \"%s\"", mirt_last_error());
    ok(mirt_plan_memory(c, 4, &memory) == MIRT_E_STATE && !mirt_summary(c, 4) && !mirt_graph_text(c, 4), "\"%s\"",
       mirt_last_error());
    ok(!mirt_variable(c, "w", MIRT_SHAPE(2), mirt_zeros(), true) &&
           refused(MIRT_E_STATE, "bare is compiled: weights of its own come before"),
       "\"%s\"", mirt_last_error());
    static const char *const names[] = {NULL, "", "v", "a/b", "\xff"};
    for (int i = 0; i < 5; i++) {
        c = mirt_model_create(s, "c");
        mirt_variable(c, "v", MIRT_SHAPE(3), mirt_zeros(), true);
        ok(!mirt_variable(c, names[i], MIRT_SHAPE(3), mirt_zeros(), true) && compile(c, false) == MIRT_E_INVALID,
           "\"%s\"", mirt_last_error());
    }
    for (int i = 0; i < 4; i++) {
        mirt_initializer initializer = i == 3 ? mirt_random_uniform(2, NAN) : mirt_zeros();
        odd = mirt_make_shape(i == 0 ? -1 : 3, 0, 0, 0, 0, 0);
        odd.rank = i == 1 ? 9 : i == 2 ? -2 : 1;
        c = mirt_model_create(s, "c");
        ok(!mirt_variable(c, "v", odd, initializer, true) && compile(c, false) != MIRT_OK, "\"%s\"", mirt_last_error());
    }
    ok(!mirt_variable(NULL, "v", MIRT_SHAPE(3), mirt_zeros(), true), "no model, no weight");
    a = make_base(s, "a");
    c = make_base(s, "c");
    ok(mirt_add_loss(NULL, a->output[0]) == MIRT_E_INVALID && mirt_add_loss(a, NULL) == MIRT_E_INVALID, "\"%s\"",
       mirt_last_error());
    ok(mirt_add_loss(c, a->output[0]) == MIRT_E_INVALID && refused(MIRT_E_INVALID, "another model"), "\"%s\"",
       mirt_last_error());
    ok(compile(a, true) == MIRT_OK && mirt_add_loss(a, a->output[0]) == MIRT_E_STATE &&
           refused(MIRT_E_STATE, "compiled"),
       "\"%s\"", mirt_last_error());
    ok(train(a, 1) == MIRT_OK, "and it trains on");
    mirt_tensor *foreign = a->output[0];
    c = make_base(s, "c");
    mirt_model_outputs(c, &foreign, 1);
    ok(compile(c, false) == MIRT_E_INVALID && refused(MIRT_E_INVALID, "another model"), "\"%s\"", mirt_last_error());
}

/* >>while it is being trained */

typedef struct intruder {
    mirt_model *owner, *part, *view;
    mirt_status compiled_owner, compiled_part, compiled_view;
    bool adopted;
} intruder;

static int intrude(const mirt_event *event, void *user) {
    intruder *i = (intruder *)user;
    if (event->batch > 0) return 0;
    if (mirt_set_trainable(i->part, "hidden", false) != MIRT_OK) mirt_set_trainable(i->owner, "part/hidden", false);
    mirt_model_destroy(i->owner);
    i->compiled_owner = compile(i->owner, true);
    i->compiled_part = compile(i->part, true);
    i->compiled_view = compile(i->view, false);
    mirt_model *thief = make_top(i->owner->strategy, i->part, "thief");
    i->adopted = compile(thief, false) == MIRT_OK;
    mirt_model_destroy(thief);
    return 0;
}

static void test_intruders(mirt_strategy *s) {
    for (int who = 0; who < 2; who++) {
        intruder i;
        mirt_callback callback;
        mirt_fit_desc fit;
        memset(&i, 0, sizeof i);
        memset(&callback, 0, sizeof callback);
        memset(&fit, 0, sizeof fit);
        i.part = make_base(s, "part");
        i.owner = make_top(s, i.part, "owner");
        compile(i.owner, true);
        i.view = mirt_model_view(i.owner, i.owner->output, 1);
        compile(i.part, true);
        callback.batch_end = intrude;
        callback.user = &i;
        fit.callbacks[0] = &callback;
        fit.batch = 5;
        fit.no_progress = true;
        mirt_history *h = mirt_fit_arrays(who ? i.part : i.owner, x_array(), c_array(), &fit);
        ok(h && h->steps == 3, "%s is trained while callbacks reach for it", who ? "a part" : "an owner");
        ok(i.compiled_owner == MIRT_E_STATE && i.compiled_part == MIRT_E_STATE && i.compiled_view == MIRT_E_STATE &&
               !i.adopted,
           "which are kept from moving its weights");
        ok(compile(i.owner, true) == MIRT_OK && train(i.owner, 1) == MIRT_OK, "until it is over");
        mirt_model_destroy(i.owner);
        mirt_model_destroy(i.part);
        mirt_model_destroy(i.view);
    }
}

int main(void) {
    for (int i = 0; i < N * IN; i++) xs[i] = (float)((i * 37 % 101) - 50) / 50.0f;
    for (int i = 0; i < N; i++) classes[i] = i % 3;
    for (int i = 0; i < 3; i++) {
        mirt_strategy_desc central;
        memset(&central, 0, sizeof central);
        central.kind = MIRT_CENTRAL_STORAGE;
        central.devices = "2";
        central.threads = 1;
        central.silent = true;
        mirt_strategy *s = i < 2 ? strategy_of(i + 1, 2 * i + 2, 1) : mirt_strategy_create(&central);
        test_loaded(s);
        test_grown(s);
        test_sharing(s);
        test_three_deep(s);
        test_lifetimes(s);
        test_functions(s);
        test_prefixes(s);
        test_freezing(s);
        test_dropout(s);
        test_views(s);
        test_misuse(s);
        test_intruders(s);
        mirt_strategy_destroy(s);
    }
    return done_testing();
}
