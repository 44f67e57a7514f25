/* Compares networks with and without tiled reads. Losses, gradients, weights and predictions of convolutions and
   batch normalization agree to rounding, over replicas and devices, with less memory. Once on emulated kernels,
   which tests the graph alone, then on the machine's. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "conv_networks.h"
#include "tiled_reads_emulated.h"
#include "tap.h"

#include <unistd.h>

/* >>one run of a network */

typedef struct outcome {
    double loss[3];
    float *gradient, *weights, *predicted;
    size_t gradients, count;
    size_t memory;
    char *text;
} outcome;

static void forget(outcome *o) {
    free(o->gradient);
    free(o->weights);
    free(o->predicted);
    free(o->text);
}

/* Two steps, on all samples and on fewer, then gradients and predictions. */
static outcome run(const network *net, const how *h, int replicas, int devices, const mirt__kernels *kernels) {
    outcome o;
    mirt_memory memory;
    memset(&o, 0, sizeof o);
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    s->kernels = kernels;
    mirt_model *m = build(s, net, h);
    const mirt_shape all = MIRT_SHAPE(SAMPLES, SIDE, SIDE, 3), fewer = MIRT_SHAPE(SAMPLES - 3, SIDE, SIDE, 3);
    mirt_array x = mirt_make_array(data_x, MIRT_UINT8, all),
               y = mirt_make_array(data_y, MIRT_UINT8, MIRT_SHAPE(SAMPLES));
    mirt_array less_x = mirt_make_array(data_x, MIRT_UINT8, fewer),
               less_y = mirt_make_array(data_y, MIRT_UINT8, MIRT_SHAPE(SAMPLES - 3));
    mirt_weight_info info;
    if (!m || mirt_train_step(m, x, y, &o.loss[0]) != MIRT_OK ||
        mirt_train_step(m, less_x, less_y, &o.loss[1]) != MIRT_OK)
        printf("# %s\n", mirt_last_error());
    o.gradient = (float *)calloc(MAX_WEIGHTS, sizeof(float));
    if (mirt_scatter(m, x, y) != MIRT_OK || mirt_grad(m, &o.loss[2]) != MIRT_OK || mirt_all_reduce(m) != MIRT_OK)
        printf("# %s\n", mirt_last_error());
    for (int i = 0; i < mirt_num_weights(m); i++) {
        if (mirt_weight(m, i, &info) != MIRT_OK || !info.trainable ||
            mirt_get_gradient(m, info.name, 0, o.gradient + o.gradients, (size_t)info.count) != MIRT_OK)
            continue;
        o.gradients += (size_t)info.count;
    }
    o.weights = all_weights(m, 0, &o.count);
    o.predicted = (float *)calloc(SAMPLES * CLASSES, sizeof(float));
    if (mirt_predict_arrays(m, x, o.predicted, SAMPLES * CLASSES) != MIRT_OK) printf("# %s\n", mirt_last_error());
    if (mirt_plan_memory(m, SAMPLES, &memory) == MIRT_OK) o.memory = memory.activations;
    const char *text = mirt_graph_text(m, SAMPLES);
    o.text = strdup(text ? text : "");
    mirt_strategy_destroy(s);
    return o;
}

/* Largest distance, relative to the largest number. */
static double apart(const float *a, const float *b, size_t count) {
    double most = 1e-20, distance = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)b[i]));
        distance = fmax(distance, fabs((double)a[i] - (double)b[i]));
        if (!(fabs((double)a[i]) < 1e30)) return INFINITY;
    }
    return distance / most;
}

static void check(const network *net, const how *h, int replicas, int devices, const mirt__kernels *on,
                  const mirt__kernels *off) {
    outcome a = run(net, h, replicas, devices, on), b = run(net, h, replicas, devices, off);
    double loss = 0;
    for (int i = 0; i < 3; i++) loss = fmax(loss, fabs(a.loss[i] / b.loss[i] - 1));
    const double gradient = apart(a.gradient, b.gradient, b.gradients), weights = apart(a.weights, b.weights, b.count),
                 predicted = apart(a.predicted, b.predicted, SAMPLES * CLASSES);
    ok(loss < 1e-5 && gradient < 3e-4 && weights < 2e-5 && predicted < 5e-5 && a.gradients == b.gradients &&
           b.loss[0] > 0,
       "%s%s%s, %s, %d replicas on %d devices: as unfused (losses %.0e, gradients %.0e, weights %.0e, predictions "
       "%.0e)",
       net->name, h->synchronized ? " synchronized" : "", h->frozen ? " frozen" : "", on->name, replicas, devices, loss,
       gradient, weights, predicted);
    ok(a.memory < b.memory, "%s%s: %zu bytes of tensors, unfused %zu", net->name, h->frozen ? " frozen" : "", a.memory,
       b.memory);
    if (getenv("SHOW")) printf("%s\n", a.text);
    forget(&a);
    forget(&b);
}

/* In bfloat16 numbers have eight bits: near zero they change what relu lets through, so that only smooth networks keep
   their gradients. Where kernels have no tiled reads nothing is rounded. */
static void check_half(const network *net, mirt__policy policy, const mirt__kernels *on, const mirt__kernels *off) {
    const how plain = {false, false, MIRT__POLICY_FLOAT32}, half = {false, false, policy};
    const char *name = mirt__policy_name(policy);
    outcome a = run(net, &half, 2, 2, on), b = run(net, &plain, 2, 2, on), c = run(net, &half, 2, 2, off),
            d = run(net, &plain, 2, 2, off);
    const bool smooth = net->body == squeeze;
    const double first = fabs(a.loss[0] / b.loss[0] - 1), loss = fabs(a.loss[2] / b.loss[2] - 1),
                 gradient = apart(a.gradient, b.gradient, b.gradients);
    ok(first < 0.01 && loss < (smooth ? 0.01 : 0.2) && gradient < (smooth ? 0.03 : 3) && gradient > 1e-4,
       "%s, %s: %s is near float32 (losses %.0e and %.0e, gradients %.0e)", net->name, on->name, name, first, loss,
       gradient);
    ok(a.memory < b.memory, "%s: %zu bytes of tensors in %s, %zu in float32", net->name, a.memory, name, b.memory);
    ok(apart(c.weights, d.weights, d.count) == 0, "%s: without tiled reads the policy changes nothing", net->name);
    if (getenv("SHOW")) printf("%s\n", a.text);
    forget(&a);
    forget(&b);
    forget(&c);
    forget(&d);
}

static void check_all(const mirt__kernels *on, const mirt__kernels *off) {
    static const how own = {false, false, MIRT__POLICY_FLOAT32}, synchronized = {true, false, MIRT__POLICY_FLOAT32},
                     frozen = {false, true, MIRT__POLICY_FLOAT32};
    for (int n = 0; n < (int)(sizeof networks / sizeof networks[0]); n++) {
        check(&networks[n], &own, 1, 1, on, off);
        check(&networks[n], &own, 2, 1, on, off);
        check(&networks[n], &own, 3, 2, on, off);
        check(&networks[n], &synchronized, 2, 2, on, off);
        check(&networks[n], &frozen, 2, 2, on, off);
        check_half(&networks[n], MIRT__POLICY_MIXED_BFLOAT16, on, off);
        check_half(&networks[n], MIRT__POLICY_STORE_BFLOAT16, on, off);
    }
}

static char heard[400];

static void hear(mirt_log_level level, const char *message, void *user) {
    (void)level;
    (void)user;
    snprintf(heard, sizeof heard, "%s", message);
}

/* A model of a GPU's policy, on cores whose kernels have no products of bfloat16. */
static void check_policy_of_gpus(mirt_strategy *s, mirt_model *m, const char *path) {
    const mirt__kernels *own = s->kernels;
    mirt__kernels emulating = *own;
    s->able.float16 = true;
    const bool saved = mirt_set_dtype_policy(m, "mixed_float16") == MIRT_OK &&
                       mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK && m->policy == MIRT__POLICY_MIXED_FLOAT16;
    s->able.float16 = false;
    emulating.half = false;
    s->kernels = &emulating;
    mirt_set_log(s, hear, NULL);
    const mirt_model *again = saved ? mirt_load(s, path) : NULL;
    s->kernels = own;
    ok(again && again->policy == MIRT__POLICY_MIXED_BFLOAT16 && strstr(heard, "products of bfloat16 are emulated"),
       "cores take mixed_bfloat16 for mixed_float16, with its warning: %s", again ? heard : mirt_last_error());
}

static void check_policy(void) {
    char path[600];
    mirt_strategy *s = strategy_of(1, 1, 1);
    static const how half = {false, false, MIRT__POLICY_MIXED_BFLOAT16};
    mirt_model *m = build(s, &networks[0], &half), *again;
    snprintf(path, sizeof path, "%s/mirt-policy-%ld.safetensors", tap_tmpdir(), (long)getpid());
    ok(m && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK && (again = mirt_load(s, path)) != NULL &&
           again->policy == MIRT__POLICY_MIXED_BFLOAT16,
       "the policy is saved with a model");
    ok(m && mirt_set_dtype_policy(m, "float32") == MIRT_OK && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK &&
           (again = mirt_load(s, path)) != NULL && !again->policy,
       "and may be taken back");
    ok(mirt_set_dtype_policy(m, "store_bfloat16") == MIRT_OK && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK &&
           (again = mirt_load(s, path)) != NULL && again->policy == MIRT__POLICY_STORE_BFLOAT16,
       "store_bfloat16 is saved, too");
    check_policy_of_gpus(s, m, path);
    remove(path);
    ok(mirt_set_dtype_policy(m, "store_bfloat") == MIRT_E_NOT_FOUND &&
           strstr(mirt_last_error(), "did you mean \"store_bfloat16\"?"),
       "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, "mixed_bfloat6") == MIRT_E_NOT_FOUND &&
           strstr(mirt_last_error(), "did you mean \"mixed_bfloat16\"?"),
       "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, "mixed_float16") == MIRT_E_INVALID, "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, "float16") == MIRT_E_INVALID, "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, "bfloat16") == MIRT_E_NOT_FOUND &&
           strstr(mirt_last_error(), "did you mean \"mixed_bfloat16\"?"),
       "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, "int8") == MIRT_E_NOT_FOUND, "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, NULL) == MIRT_E_INVALID && mirt_set_dtype_policy(NULL, "float32") == MIRT_E_INVALID,
       "no model, no policy");
    mirt_strategy_destroy(s);
}

/* Images that are given out: what a convolution makes, a view of it, what is read as it is normalized, a sum that the
   next layers read too, and what nothing else reads. */
enum { OUTPUTS = 5, EACH = SIDE * SIDE / 4 * 6 };
static void outputs_of(float (*made)[SAMPLES * EACH], mirt__policy policy, const mirt__kernels *kernels) {
    const how h = {false, false, policy};
    mirt_strategy *s = strategy_of(2, 2, 1);
    s->kernels = kernels;
    mirt_model *m = mirt_model_create(s, "images");
    float *to[OUTPUTS];
    size_t capacity[OUTPUTS];
    mirt_data data;
    mirt_tensor *out[OUTPUTS],
        *x = mirt_relu(norm(
            conv(mirt_rescale(mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 3)), 1 / 127.5f, -1), 6, 3, 2, MIRT_SAME, false),
            &h));
    out[2] = norm(conv(x, 6, 1, 1, MIRT_SAME, true), &h);
    out[3] = mirt_add(x, out[2]);
    out[0] = conv(mirt_relu(norm(conv(out[3], 8, 3, 1, MIRT_SAME, false), &h)), 6, 1, 1, MIRT_SAME, true);
    out[1] = mirt_flatten(out[0]);
    out[4] = conv(out[3], 6, 3, 1, MIRT_SAME, true);
    mirt_model_outputs(m, out, OUTPUTS);
    memset(&data, 0, sizeof data);
    data.x[0] = mirt_make_array(data_x, MIRT_UINT8, MIRT_SHAPE(SAMPLES, SIDE, SIDE, 3));
    for (int i = 0; i < OUTPUTS; i++) {
        to[i] = made[i];
        capacity[i] = SAMPLES * EACH;
    }
    if (mirt_set_dtype_policy(m, mirt__policy_name(policy)) != MIRT_OK ||
        mirt_predict_on_batch(m, &data, to, capacity) != MIRT_OK)
        printf("# %s\n", mirt_last_error());
    mirt_strategy_destroy(s);
}

static void check_outputs(const mirt__kernels *on, const mirt__kernels *off) {
    static const mirt__policy policy[] = {MIRT__POLICY_FLOAT32, MIRT__POLICY_MIXED_BFLOAT16,
                                          MIRT__POLICY_STORE_BFLOAT16};
    static float made[4][OUTPUTS][SAMPLES * EACH];
    double most[3] = {0, 0, 0}, least = 1;
    outputs_of(made[3], MIRT__POLICY_FLOAT32, off);
    for (int k = 0; k < 3; k++) {
        outputs_of(made[k], policy[k], on);
        for (int i = 0; i < OUTPUTS; i++) {
            const double distance = apart(made[k][i], made[3][i], SAMPLES * EACH);
            if (!(distance <= most[k])) most[k] = distance;
            if (k == 1 && distance < least) least = distance;
        }
        ok(memcmp(made[k][0], made[k][1], sizeof made[k][0]) == 0, "%s: a view of an output has its numbers", on->name);
    }
    ok(most[0] < 1e-5 && made[3][0][0] != 0, "%s: several outputs of images are as unfused (%.0e)", on->name, most[0]);
    ok(most[1] < 0.03 && least > 0 && most[2] < most[1] && most[2] > 1e-4,
       "%s: and are near them in mixed_bfloat16 (%.0e) and store_bfloat16 (%.0e)", on->name, most[1], most[2]);
}

/* Two convolutions; `from_floats`: the second alone, of what the first has made. */
enum { BETWEEN = SIDE * SIDE * 6, LAST = SIDE * SIDE * 5 };
static mirt_model *two_convolutions(mirt_strategy *s, bool from_floats) {
    mirt_model *m = mirt_model_create(s, from_floats ? "second" : "both");
    mirt_tensor *out[2];
    out[0] = from_floats ? mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 6))
                         : conv(mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 3)), 6, 3, 1, MIRT_SAME, true);
    out[1] = conv(out[0], 5, 3, 1, MIRT_SAME, false);
    if (from_floats) mirt_model_output(m, out[1]);
    else mirt_model_outputs(m, out, 2);
    return m;
}

/* Under store_bfloat16 the image between two convolutions is rounded, and nothing else is: the second one gives the
   bits that it gives in float32 for the same image rounded by hand. */
static void check_stored(void) {
    static float x[SAMPLES * SIDE * SIDE * 3], between[SAMPLES * BETWEEN], last[SAMPLES * LAST], want[SAMPLES * LAST];
    float *to[2] = {between, last}, weights[3 * 3 * 6 * 5];
    const size_t capacity[2] = {SAMPLES * BETWEEN, SAMPLES * LAST};
    mirt_strategy *s = strategy_of(1, 1, 2);
    mirt_model *both = two_convolutions(s, false), *second = two_convolutions(s, true), *view;
    mirt_data data;
    memset(&data, 0, sizeof data);
    for (int i = 0; i < (int)(sizeof x / sizeof *x); i++) x[i] = sinf((float)i);
    data.x[0] = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, SIDE, SIDE, 3));
    bool good = mirt_predict_on_batch(both, &data, to, capacity) == MIRT_OK &&
                mirt_get_weight(both, "conv2d_1/kernel", 0, weights, sizeof weights / sizeof *weights) == MIRT_OK &&
                mirt_set_weight(second, "conv2d/kernel", weights, sizeof weights / sizeof *weights) == MIRT_OK;
    const float unrounded = last[0];
    for (int i = 0; i < SAMPLES * BETWEEN; i++) between[i] = half_to_float(float_to_half(between[i]));
    data.x[0] = mirt_make_array(between, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, SIDE, SIDE, 6));
    good = good && mirt_predict_arrays(second, data.x[0], want, SAMPLES * LAST) == MIRT_OK;
    mirt_tensor *out = mirt_output_of(both, 1);
    view = mirt_model_view(both, &out, 1);
    good = good && view && mirt_set_dtype_policy(both, "store_bfloat16") == MIRT_OK &&
           mirt_predict_arrays(view, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, SIDE, SIDE, 3)), last,
                               SAMPLES * LAST) == MIRT_OK;
    ok(good && memcmp(last, want, sizeof want) == 0 && want[0] != unrounded,
       "store_bfloat16 rounds what is stored between convolutions, and nothing else");
    mirt_strategy_destroy(s);
}

static double bfloat(float x) { return (double)half_to_float(float_to_half(x)); }

/* tanh(x w1 + b1) w2 + b2, whose operands are rounded by hand. */
static void check_dense(void) {
    enum { ROWS = 7, IN = 13, HIDDEN = 6, OUT = 3 };
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = mirt_model_create(s, "dense");
    mirt_dense_desc hidden, logits;
    float x[ROWS * IN], w1[IN * HIDDEN], w2[HIDDEN * OUT], y[ROWS * OUT];
    double worst = 0, plain = 0;
    memset(&hidden, 0, sizeof hidden);
    memset(&logits, 0, sizeof logits);
    hidden.units = HIDDEN;
    hidden.activation = MIRT_TANH;
    logits.units = OUT;
    mirt_model_output(m, mirt_dense(mirt_dense(mirt_input(m, MIRT_SHAPE(IN)), &hidden), &logits));
    for (int i = 0; i < ROWS * IN; i++) x[i] = sinf((float)i);
    ok(mirt_set_dtype_policy(m, "mixed_bfloat16") == MIRT_OK &&
           mirt_predict_arrays(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, IN)), y, ROWS * OUT) == MIRT_OK &&
           mirt_get_weight(m, "dense/kernel", 0, w1, IN * HIDDEN) == MIRT_OK &&
           mirt_get_weight(m, "dense_1/kernel", 0, w2, HIDDEN * OUT) == MIRT_OK,
       "dense layers predict in mixed_bfloat16");
    for (int r = 0; r < ROWS; r++) {
        for (int o = 0; o < OUT; o++) {
            double rounded = 0, exact = 0;
            for (int h = 0; h < HIDDEN; h++) {
                double u = 0, v = 0;
                for (int i = 0; i < IN; i++) {
                    u += bfloat(x[r * IN + i]) * bfloat(w1[i * HIDDEN + h]);
                    v += (double)x[r * IN + i] * (double)w1[i * HIDDEN + h];
                }
                rounded += bfloat((float)tanh(u)) * bfloat(w2[h * OUT + o]);
                exact += tanh(v) * (double)w2[h * OUT + o];
            }
            worst = fmax(worst, fabs((double)y[r * OUT + o] - rounded));
            plain = fmax(plain, fabs((double)y[r * OUT + o] - exact));
        }
    }
    ok(worst < 1e-5 && plain > 1e-4,
       "dense layers multiply numbers rounded to bfloat16 (%.0e from that, %.0e from float32)", worst, plain);
    mirt_strategy_destroy(s);
}

int main(void) {
    const mirt__kernels *best = mirt__kernels_best();
    mirt__kernels off = *best, on = emulated_table(&off), real = *best;
    real.tiled_reads = true;
    off.tiled_reads = false;
    on.name = "written out";
    draw_data();
    check_all(&on, &off);
    check_outputs(&on, &off);
    check_policy();
    if (best->tiled_reads) {
        check_dense();
        check_stored();
        check_all(&real, &off);
        check_outputs(&real, &off);
    }
    return done_testing();
}
