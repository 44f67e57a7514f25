/* Transfer learning: weights by name in part, frozen bases, and their features kept over epochs. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <unistd.h>

#include "mirror_util.h"

enum { MOST = 512 };
static char path[300], path_b[300];

static mirt_tensor *dense(mirt_tensor *x, const char *name, int units, mirt_activation_kind activation) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.activation = activation;
    d.name = name;
    return mirt_dense(x, &d);
}

/* 6 -> `hidden` -> 3. */
static mirt_model *make_base(mirt_strategy *s, const char *name, int hidden, const char *last) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(m, dense(dense(mirt_input(m, MIRT_SHAPE(6)), "hidden", hidden, MIRT_TANH), last, 3, MIRT_LINEAR));
    return m;
}

static mirt_model *make_top(mirt_strategy *s, mirt_model *base, const char *name) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(m, dense(mirt_call(base, mirt_input(m, MIRT_SHAPE(6)), MIRT_TRAINING_AUTO), "head", 2, MIRT_LINEAR));
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
    if (!good) printf("# loaded %d, missing %d, mismatched %d, extra %d\n%s\n", r->loaded, r->missing, r->mismatched, r->extra, r->text ? r->text : "-");
    return good;
}

/* >>weights by name */

static void check_partial(void) {
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_load_report r;
    mirt_load_desc d;
    mirt_model *from = make_base(s, "from", 4, "code"), *same = make_base(s, "same", 4, "code"), *to = make_base(s, "to", 4, "other"), *wide = make_base(s, "wide", 5, "code");
    bool good = set_all(from, 7) && mirt_save(from, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK;
    ok(good && mirt_load_weights_partial(same, path, NULL, &r) == MIRT_OK && reports(&r, 4, 0, 0, 0) && strcmp(r.text, "") == 0 && begins(same, "code/bias", 3, 7),
       "all of it fits: nothing to tell");
    ok(set_all(to, 1) && mirt_load_weights_partial(to, path, NULL, &r) == MIRT_OK && reports(&r, 2, 2, 0, 2) && begins(to, "hidden/kernel", 24, 7) && begins(to, "other/kernel", 12, 1),
       "what has another name stays as it was");
    ok(strcmp(r.text, "missing: other/kernel (4, 3)\nmissing: other/bias (3)\nextra: code/kernel (4, 3)\nextra: code/bias (3)\n") == 0, "and is listed");
    ok(set_all(wide, 1) && mirt_load_weights_partial(wide, path, NULL, &r) == MIRT_OK && reports(&r, 1, 0, 3, 0) && begins(wide, "hidden/bias", 5, 1) && begins(wide, "code/bias", 3, 7),
       "what has another shape too");
    ok(strstr(r.text, "mismatched: hidden/kernel is (6, 5), in the file F32 (6, 4)\n") != NULL, "and is listed");
    ok(mirt_load_weights(wide, path) == MIRT_E_SHAPE && mirt_load_weights(to, path) == MIRT_E_NOT_FOUND, "strictly, either is an error: \"%s\"", mirt_last_error());

    mirt_model *top = make_top(s, make_base(s, "base", 4, "code"), "top");
    memset(&d, 0, sizeof d);
    d.prefix = "base";
    ok(set_all(top, 1) && mirt_load_weights_partial(top, path, &d, &r) == MIRT_OK && reports(&r, 4, 0, 0, 0) && begins(top, "base/hidden/kernel", 24, 7) && begins(top, "head/bias", 2, 1),
       "into a part by its name");
    ok(mirt_compile(top, NULL) == MIRT_OK && set_all(top, 2) && mirt_save(top, path_b, MIRT_SAVE_ALL) == MIRT_OK, "a model with a part is saved");
    d.prefix = NULL;
    d.file_prefix = "base";
    ok(set_all(from, 1) && mirt_load_weights_partial(from, path_b, &d, &r) == MIRT_OK && reports(&r, 4, 0, 0, 2) && begins(from, "code/kernel", 12, 2), "out of a part, without the optimizer's state being extra");
    d.file_prefix = NULL;
    d.prefix = "hid*";
    ok(set_all(to, 1) && mirt_load_weights_partial(to, path, &d, &r) == MIRT_OK && reports(&r, 2, 0, 0, 2) && begins(to, "hidden/bias", 4, 7), "layers by the beginning of their names");
    d.prefix = "bass";
    ok(mirt_load_weights_partial(top, path, &d, NULL) == MIRT_E_NOT_FOUND && strstr(mirt_last_error(), "base"), "\"%s\"", mirt_last_error());
    ok(mirt_load_weights_partial(top, path, NULL, &r) == MIRT_E_NOT_FOUND && r.loaded == 0 && r.missing == 6, "nothing fits: \"%s\"", mirt_last_error());
    ok(mirt_load_weights_partial(top, "/nowhere/x.safetensors", NULL, &r) == MIRT_E_NOT_FOUND && !r.text && mirt_load_weights_partial(NULL, path, NULL, &r) == MIRT_E_INVALID && mirt_load_weights_partial(top, NULL, NULL, NULL) == MIRT_E_INVALID,
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
    bool good = mirt_get_weight(from, "Conv1/kernel", 0, a, 3 * 3 * 3 * 16) == MIRT_OK && mirt_save(from, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK;
    d.weights = path;
    d.name = "base";
    s->seed = 99;
    mirt_model *base = mirt_mobilenet_v2(s, &d), *m = mirt_model_create(s, "pets");
    mirt_model_output(m, dense(mirt_call(base, mirt_input(m, MIRT_SHAPE(32, 32, 3)), MIRT_TRAINING_OFF), "head", 1, MIRT_LINEAR));
    ok(good && base && mirt_compile(m, NULL) == MIRT_OK && mirt_get_weight(m, "base/Conv1/kernel", 0, b, 3 * 3 * 3 * 16) == MIRT_OK && memcmp(a, b, sizeof a) == 0,
       "a network made with a file of weights keeps them as a part");
    d.weights = "/nowhere/x.safetensors";
    ok(!mirt_mobilenet_v2(s, &d) && mirt_last_status() == MIRT_E_NOT_FOUND, "no such file: \"%s\"", mirt_last_error());
    d.weights = path;
    d.alpha = 0.5f;
    ok(!mirt_mobilenet_v2(s, &d) && mirt_last_status() == MIRT_E_SHAPE, "weights of another network: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/mirt_transfer_%d.safetensors", (int)getpid());
    snprintf(path_b, sizeof path_b, "/tmp/mirt_transfer_%d_b.safetensors", (int)getpid());
    check_partial();
    check_applications();
    remove(path);
    remove(path_b);
    return done_testing();
}
