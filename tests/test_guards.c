/* Tests the guards of training: weight copies that differ, and non-finite losses. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

static struct {
    int lines;
    char last[1024];
} said;

static void hear(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (level > MIRT_LOG_WARNING || !strstr(text, "not finite")) return;
    said.lines++;
    snprintf(said.last, sizeof said.last, "%s", text);
}

/* >>drift */

typedef struct flip {
    int device, variable;
    int64_t at; /* the batch after which it happens */
    int bit;
} flip;

static void flip_bit(mirt_model *m, const flip *f) {
    const mirt__variable *v = &m->variable[f->variable];
    uint32_t bits;
    float *at = (float *)(void *)(m->device_weight[f->device] + v->offset) + v->count / 2;
    memcpy(&bits, at, sizeof bits);
    bits ^= 1u << f->bit;
    memcpy(at, &bits, sizeof bits);
}

static int flip_at(const mirt_event *event, void *user) {
    const flip *f = (const flip *)user;
    if (event->batch == f->at && event->epoch == 1) flip_bit(event->model, f);
    return 0;
}

static void check_drift(int devices, int device) {
    char name[32];
    mirt_strategy *s = strategy_of(devices, devices, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    int found = 0, named = 0;
    ok(mirt__weights_to_devices(m) == MIRT_OK && mirt_check_drift(m) == MIRT_OK, "%d copies of initial weights agree",
       devices);
    snprintf(name, sizeof name, "device cpu:%d (replica %d)", devices == 2 ? 1 : device, devices == 2 ? 1 : device);
    for (int i = 0; i < m->num_variables; i++) {
        for (int bit = 0; bit < 32; bit += 31) {
            flip f = {0, 0, 0, 0};
            f.device = device;
            f.variable = i;
            f.bit = bit;
            flip_bit(m, &f);
            bool drift = mirt_check_drift(m) == MIRT_E_DRIFT;
            found += drift;
            named += drift && strstr(mirt_last_error(), name) && strstr(mirt_last_error(), m->variable[i].name);
            flip_bit(m, &f);
        }
    }
    ok(found == 2 * m->num_variables && named == found,
       "one bit in the copy of device %d of %d: %d of %d found, %d named: %s", device, devices, found,
       2 * m->num_variables, named, mirt_last_error());
    ok(mirt_check_drift(m) == MIRT_OK, "and they agree again");
    mirt_strategy_destroy(s);
}

static void check_drift_in_fit(int64_t every, bool finds) {
    flip f = {1, 2, 8, 3}; /* the last batch of the second epoch; an update would mend it */
    mirt_strategy *s = strategy_of(2, 4, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, IMAGES), images_y(0, IMAGES)), 37);
    mirt_callback callback;
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    memset(&callback, 0, sizeof callback);
    callback.batch_end = flip_at;
    callback.user = &f;
    fit.callbacks[0] = &callback;
    fit.epochs = 2;
    fit.no_progress = true;
    fit.check_drift_every = every;
    mirt_history *h = mirt_fit(m, data, &fit);
    ok((h == NULL) == finds &&
           (!finds || (mirt_last_status() == MIRT_E_DRIFT && strstr(mirt_last_error(), "cpu:1 (replicas 2 to 3)") &&
                       strstr(mirt_last_error(), m->variable[2].name))),
       "check_drift_every %d: %s", (int)every, finds ? mirt_last_error() : "nobody looked");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>losses that are not finite */

enum { WIDTH = 8, ROWS = 24, LAYERS = 4 };
static float rows_x[ROWS][WIDTH];
static uint8_t rows_y[ROWS];

static mirt_strategy *hearing(int devices, int replicas) {
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_set_log(s, hear, NULL);
    memset(&said, 0, sizeof said);
    for (int i = 0; i < ROWS; i++) {
        rows_y[i] = (uint8_t)(i % 3);
        for (int k = 0; k < WIDTH; k++) rows_x[i][k] = 1.0f + (float)((i + k) % 5) / 4;
    }
    return s;
}

static mirt_model *tower(mirt_strategy *s) {
    static const char *const names[LAYERS] = {"ground", "first", "second", "roof"};
    mirt_model *m = mirt_model_create(s, "tower");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(WIDTH));
    for (int i = 0; i < LAYERS; i++)
        x = named_dense(x, names[i], i == LAYERS - 1 ? 3 : WIDTH, i == LAYERS - 1 ? MIRT_LINEAR : MIRT_RELU);
    mirt_model_output(m, x);
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static bool fill(mirt_model *m, const char *name, float value) {
    float block[WIDTH * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++) block[i] = value;
    size_t count = strstr(name, "roof") ? WIDTH * 3 : WIDTH * WIDTH;
    return mirt_set_weight(m, name, block, count) == MIRT_OK;
}

/* Trains for two epochs of 3 batches of 8; returns the steps that were applied, or -1. */
static int64_t run(mirt_model *m, mirt_nan_policy policy) {
    mirt_callback *callback = mirt_terminate_on_nan(policy);
    mirt_dataset *data = mirt_batch(mirt_arrays(mirt_make_array(rows_x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, WIDTH)),
                                                mirt_make_array(rows_y, MIRT_UINT8, MIRT_SHAPE(ROWS))),
                                    8);
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.callbacks[0] = callback;
    fit.epochs = 2;
    fit.no_progress = true;
    mirt_history *h = mirt_fit(m, data, &fit);
    mirt_dataset_destroy(data);
    mirt_callback_destroy(callback);
    return h ? mirt_step(m) : -1;
}

static void check_not_finite(int devices) {
    static const char *const kernels[LAYERS] = {"ground/kernel", "first/kernel", "second/kernel", "roof/kernel"};
    for (int i = 0; i < LAYERS; i++) {
        char layer[32], before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
        snprintf(layer, sizeof layer, "layer %.*s (", (int)strcspn(kernels[i], "/"), kernels[i]);
        mirt_strategy *s = hearing(devices, 4);
        mirt_model *m = tower(s);
        for (int k = 0; k < LAYERS; k++) fill(m, kernels[k], k == i ? 3e38f : 0.125f);
        digest_weights(m, 0, before);
        ok(run(m, MIRT_NAN_STOP) == 0 && said.lines == 1 && strstr(said.last, layer) && strstr(said.last, "replica 0,"),
           "too large in %s %d devices: %s", layer, devices, said.last);
        digest_weights(m, 0, after);
        ok(strcmp(before, after) == 0, "weights are those before the step");
        mirt_strategy_destroy(s);
        s = hearing(devices, 4);
        m = tower(s);
        fill(m, kernels[i], (float)NAN);
        snprintf(layer, sizeof layer, "weights %s", kernels[i]);
        ok(run(m, MIRT_NAN_STOP) == 0 && said.lines == 1 && strstr(said.last, layer), "NaN set: %s", said.last);
        mirt_strategy_destroy(s);
    }
    mirt_strategy *s = hearing(devices, 4);
    mirt_model *m = tower(s);
    rows_x[8 + 5][2] = (float)NAN; /* the second batch, rows 4 and 5: replica 2 */
    ok(run(m, MIRT_NAN_STOP) == 1 && said.lines == 1 && strstr(said.last, "replica 2,") &&
           strstr(said.last, "input number 0") && strstr(said.last, "step 2 "),
       "NaN in the data: %s", said.last);
    mirt_strategy_destroy(s);
    s = hearing(devices, 4);
    m = tower(s);
    fill(m, "ground/kernel", 100);
    for (int k = 0; k < WIDTH; k++) rows_x[16 + 7][k] = 1e38f; /* replica 3 alone */
    ok(run(m, MIRT_NAN_STOP) == 2 && strstr(said.last, "replica 3,") && strstr(said.last, "layer ground"),
       "too large in one replica: %s", said.last);
    mirt_strategy_destroy(s);
}

static void check_policies(void) {
    char plain[MIRT__SHA256_HEX], have[MIRT__SHA256_HEX];
    for (int bad = 0; bad < 2; bad++) {
        for (int policy = MIRT_NAN_STOP; policy <= MIRT_NAN_OFF; policy++) {
            mirt_strategy *s = hearing(2, 4);
            mirt_model *m = tower(s);
            if (bad) rows_x[8 + 5][2] = (float)NAN;
            int64_t steps = run(m, (mirt_nan_policy)policy);
            digest_weights(m, 1, have);
            if (!bad && policy == MIRT_NAN_STOP) memcpy(plain, have, sizeof plain);
            if (!bad)
                ok(steps == 6 && said.lines == 0 && strcmp(plain, have) == 0,
                   "policy %d changes nothing where all is finite", policy);
            else if (policy != MIRT_NAN_STOP)
                ok(steps == 6 && (said.lines > 0) == (policy == MIRT_NAN_WARN), "policy %d: %d steps, %d warnings",
                   policy, (int)steps, said.lines);
            mirt_strategy_destroy(s);
        }
    }
    ok(!mirt_terminate_on_nan((mirt_nan_policy)7) && mirt_last_status() == MIRT_E_INVALID, "%s", mirt_last_error());
}

/* An op of the user that fails when the step is run again to see where its loss became no number. */
static int copies_once(const mirt_op_call *call, void *user) {
    memcpy(call->out, call->in[0], (size_t)mirt__shape_count(&call->out_shape) * sizeof(float));
    return __atomic_fetch_add((int *)user, 1, __ATOMIC_RELAXED) ? 5 : 0;
}
static int copies_back(const mirt_op_call *call, void *user) {
    (void)user;
    memcpy(call->din[0], call->dout, (size_t)mirt__shape_count(&call->out_shape) * sizeof(float));
    return 0;
}

static void check_failing_search(mirt_nan_policy policy) {
    mirt_strategy *s = hearing(1, 1);
    mirt_model *m = mirt_model_create(s, "once");
    mirt_tensor *x = named_dense(mirt_input(m, MIRT_SHAPE(WIDTH)), "ground", 3, MIRT_LINEAR);
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    mirt_op_class op;
    char before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    int calls = 0;
    memset(&op, 0, sizeof op);
    op.name = "once";
    op.forward = copies_once;
    op.backward = copies_back;
    op.user = &calls;
    mirt_model_output(m, mirt_custom_op(&op, &x, 1, NULL));
    rows_x[3][2] = (float)NAN;
    const bool good = mirt_compile(m, &c) == MIRT_OK;
    if (good) digest_weights(m, 0, before);
    const int64_t steps = good ? run(m, policy) : 0;
    digest_weights(m, 0, after);
    ok(steps == -1 && calls == 2 && mirt_last_status() == MIRT_E_CALLBACK &&
           strstr(mirt_last_error(), "once gave the code 5") && strcmp(before, after) == 0,
       "policy %d, an op that fails in the search: nothing is changed: %s", policy, mirt_last_error());
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    check_drift(2, 1);
    check_drift(3, 0);
    check_drift(4, 3);
    check_drift_in_fit(0, true);
    check_drift_in_fit(-1, false);
    check_not_finite(1);
    check_not_finite(2);
    check_not_finite(3);
    check_policies();
    check_failing_search(MIRT_NAN_STOP);
    check_failing_search(MIRT_NAN_WARN);
    return done_testing();
}
