/* Networks of convolutions and batch normalization with the fusion into strips on and off: losses, gradients, weights and
   predictions agree to rounding, over replicas and devices, and less memory is needed. Once on kernels that write out
   what readers and epilogues say, which tests the graph alone, then on the machine's. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "strips_emulated.h"
#include "tap.h"

#include <unistd.h>

enum { SIDE = 12, SAMPLES = 14, CLASSES = 4, MAX_WEIGHTS = 200000 };
static uint8_t data_x[SAMPLES][SIDE * SIDE * 3];
static uint8_t data_y[SAMPLES];

static void draw_data(void) {
    mirt__random random = mirt__random_stream(7, 8);
    for (int i = 0; i < SAMPLES; i++) {
        data_y[i] = (uint8_t)(i % CLASSES);
        for (int k = 0; k < SIDE * SIDE * 3; k++) data_x[i][k] = (uint8_t)(mirt__random_below(&random, 160) + (k % (data_y[i] + 2) == 0 ? 95 : 0));
    }
}

/* >>networks */

typedef struct how {
    bool synchronized, frozen, half;
} how;

static mirt_tensor *conv(mirt_tensor *x, int filters, int kernel, int stride, mirt_padding padding, bool bias) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = filters;
    d.kernel[0] = d.kernel[1] = kernel;
    d.strides[0] = d.strides[1] = stride;
    d.padding = padding;
    d.no_bias = !bias;
    return mirt_conv2d(x, &d);
}

static mirt_tensor *depthwise(mirt_tensor *x, int kernel, int stride, mirt_padding padding) {
    mirt_depthwise_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.kernel[0] = d.kernel[1] = kernel;
    d.strides[0] = d.strides[1] = stride;
    d.padding = padding;
    d.no_bias = true;
    return mirt_depthwise_conv2d(x, &d);
}

static mirt_tensor *norm(mirt_tensor *x, const how *h) {
    mirt_batch_norm_desc d;
    memset(&d, 0, sizeof d);
    d.momentum = 0.9f;
    d.synchronized = h->synchronized;
    return mirt_batch_norm(x, &d);
}

static mirt_tensor *mobile_block(mirt_tensor *x, int expand, int filters, int stride, const how *h) {
    mirt_tensor *y = mirt_relu6(norm(conv(x, expand, 1, 1, MIRT_SAME, false), h));
    if (stride == 2) y = mirt_zero_padding2d(y, 0, 1, 0, 1);
    y = mirt_relu6(norm(depthwise(y, 3, stride, stride == 2 ? MIRT_VALID : MIRT_SAME), h));
    y = norm(conv(y, filters, 1, 1, MIRT_SAME, false), h);
    mirt_tensor *both[2] = {x, y};
    return stride == 1 && x->shape.dim[3] == filters ? mirt_add_layer(both, 2) : y;
}

static mirt_tensor *mobile(mirt_tensor *x, const how *h) {
    x = mirt_relu6(norm(conv(x, 8, 3, 2, MIRT_SAME, false), h));
    x = mobile_block(x, 18, 6, 1, h);
    x = mobile_block(x, 20, 6, 1, h);
    x = mobile_block(x, 20, 6, 1, h);
    x = mobile_block(x, 17, 9, 2, h);
    return mirt_relu6(norm(conv(x, 21, 1, 1, MIRT_SAME, false), h));
}

static mirt_tensor *resnet_block(mirt_tensor *x, int filters, int stride, bool shortcut, const how *h) {
    mirt_tensor *sum[2] = {x, x};
    if (shortcut) sum[0] = norm(conv(x, 2 * filters, 1, stride, MIRT_SAME, true), h);
    mirt_tensor *y = mirt_relu(norm(conv(x, filters, 1, stride, MIRT_SAME, true), h));
    y = mirt_relu(norm(conv(y, filters, 3, 1, MIRT_SAME, true), h));
    sum[1] = norm(conv(y, 2 * filters, 1, 1, MIRT_SAME, true), h);
    return mirt_relu(mirt_add_layer(sum, 2));
}

static mirt_tensor *resnet(mirt_tensor *x, const how *h) {
    mirt_pool2d_desc pool;
    memset(&pool, 0, sizeof pool);
    pool.size[0] = pool.size[1] = 3;
    pool.strides[0] = pool.strides[1] = 2;
    x = mirt_relu(norm(conv(mirt_zero_padding2d(x, 2, 2, 2, 2), 8, 5, 1, MIRT_VALID, true), h));
    x = mirt_max_pool2d(mirt_zero_padding2d(x, 1, 1, 1, 1), &pool);
    x = resnet_block(x, 5, 1, true, h);
    x = resnet_block(x, 5, 1, false, h);
    return resnet_block(x, 7, 2, true, h);
}

static mirt_tensor *squeeze_block(mirt_tensor *x, int expand, int filters, const how *h) {
    mirt_tensor *y = mirt_silu(norm(conv(x, expand, 1, 1, MIRT_SAME, false), h));
    y = mirt_silu(norm(depthwise(y, 5, 1, MIRT_SAME), h));
    mirt_tensor *gate = mirt_reduce_mean(y, 6, true);
    gate = mirt_sigmoid(conv(mirt_silu(conv(gate, 3, 1, 1, MIRT_SAME, true)), expand, 1, 1, MIRT_SAME, true));
    mirt_tensor *gated[2] = {gate, y}, *both[2] = {NULL, x};
    y = norm(conv(mirt_multiply_layer(gated, 2), filters, 1, 1, MIRT_SAME, false), h);
    both[0] = y;
    return x->shape.dim[3] == filters ? mirt_add_layer(both, 2) : y;
}

static mirt_tensor *squeeze(mirt_tensor *x, const how *h) {
    x = mirt_silu(norm(conv(x, 6, 3, 2, MIRT_SAME, false), h));
    x = squeeze_block(x, 11, 7, h);
    x = squeeze_block(x, 13, 7, h);
    return mirt_gelu(norm(conv(x, 12, 3, 1, MIRT_SAME, true), h));
}

static mirt_tensor *dilated(mirt_tensor *x, int filters, int groups, int dilation, bool depth) {
    mirt_conv2d_desc d;
    mirt_depthwise_conv2d_desc w;
    memset(&d, 0, sizeof d);
    memset(&w, 0, sizeof w);
    d.filters = filters;
    d.groups = groups;
    d.kernel[0] = w.kernel[0] = 3;
    d.kernel[1] = w.kernel[1] = 2;
    d.dilation[0] = w.dilation[0] = dilation;
    d.padding = w.padding = MIRT_SAME;
    w.depth_multiplier = filters;
    return depth ? mirt_depthwise_conv2d(x, &w) : mirt_conv2d(x, &d);
}

/* What is not to be fused, or only in part: groups, multipliers, dilation, biases of depthwise convolutions, two readers of
   what would be lazy, sums of more than two gradients, padding of one side, a normalization of a normalization, shared
   statistics, layers in between. */
static mirt_tensor *odd(mirt_tensor *x, const how *h) {
    mirt_tensor *in[3];
    x = mirt_tanh(norm(conv(mirt_zero_padding2d(x, 0, 2, 1, 0), 6, 3, 2, MIRT_VALID, true), h));
    mirt_tensor *a = norm(conv(x, 8, 1, 1, MIRT_SAME, false), h), *b = mirt_relu6(a);
    in[0] = norm(dilated(b, 8, 2, 2, false), h);
    in[1] = norm(dilated(b, 1, 0, 2, true), h);
    in[2] = norm(norm(conv(mirt_zero_padding2d(b, 1, 1, 1, 1), 8, 3, 1, MIRT_VALID, false), h), h);
    x = mirt_silu(mirt_add_layer(in, 3));
    b = mirt_leaky_relu(norm(dilated(x, 2, 0, 1, true), h), 0.1f);
    x = norm(conv(mirt_add(b, mirt_concat(in, 2, 3)), 8, 1, 1, MIRT_SAME, true), h);
    x = mirt_relu(mirt_add(x, a));
    a = mirt_elu(norm(depthwise(mirt_zero_padding2d(x, 2, 0, 0, 2), 3, 2, MIRT_VALID), h), 1);
    b = mirt_multiply(a, mirt_sigmoid(mirt_reduce_mean(x, 6, true)));
    x = mirt_add(conv(b, 7, 1, 1, MIRT_SAME, false), conv(a, 7, 3, 1, MIRT_SAME, true));
    return mirt_relu(mirt_layer_norm(mirt_max_pool2d(mirt_zero_padding2d(norm(x, h), 0, 1, 0, 1), NULL), NULL));
}

typedef struct network {
    const char *name;
    mirt_tensor *(*body)(mirt_tensor *x, const how *h);
} network;
static const network networks[] = {{"mobile", mobile}, {"resnet", resnet}, {"squeeze", squeeze}, {"odd", odd}};

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

static mirt_model *build(mirt_strategy *s, const network *net, const how *h) {
    mirt_model *m = mirt_model_create(s, net->name);
    mirt_dense_desc dense;
    mirt_compile_desc c = image_compile(mirt_sgd(0.02f, 0, false));
    memset(&dense, 0, sizeof dense);
    dense.units = CLASSES;
    mirt_tensor *x = mirt_global_average_pool2d(net->body(mirt_rescale(mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 3)), 1 / 127.5f, -1), h));
    mirt_model_output(m, mirt_dense(x, &dense));
    if (h->half && mirt_set_dtype_policy(m, "mixed_bfloat16") != MIRT_OK) return NULL;
    if (h->frozen) mirt_set_trainable(m, "batch_normalization*", false);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
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
    mirt_array x = mirt_make_array(data_x, MIRT_UINT8, all), y = mirt_make_array(data_y, MIRT_UINT8, MIRT_SHAPE(SAMPLES));
    mirt_array less_x = mirt_make_array(data_x, MIRT_UINT8, fewer), less_y = mirt_make_array(data_y, MIRT_UINT8, MIRT_SHAPE(SAMPLES - 3));
    mirt_weight_info info;
    if (!m || mirt_train_step(m, x, y, &o.loss[0]) != MIRT_OK || mirt_train_step(m, less_x, less_y, &o.loss[1]) != MIRT_OK) printf("# %s\n", mirt_last_error());
    o.gradient = (float *)calloc(MAX_WEIGHTS, sizeof(float));
    if (mirt_scatter(m, x, y) != MIRT_OK || mirt_grad(m, &o.loss[2]) != MIRT_OK || mirt_all_reduce(m) != MIRT_OK) printf("# %s\n", mirt_last_error());
    for (int i = 0; i < mirt_num_weights(m); i++) {
        if (mirt_weight(m, i, &info) != MIRT_OK || !info.trainable || mirt_get_gradient(m, info.name, 0, o.gradient + o.gradients, (size_t)info.count) != MIRT_OK) continue;
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

static void check(const network *net, const how *h, int replicas, int devices, const mirt__kernels *on, const mirt__kernels *off) {
    outcome a = run(net, h, replicas, devices, on), b = run(net, h, replicas, devices, off);
    double loss = 0;
    for (int i = 0; i < 3; i++) loss = fmax(loss, fabs(a.loss[i] / b.loss[i] - 1));
    const double gradient = apart(a.gradient, b.gradient, b.gradients), weights = apart(a.weights, b.weights, b.count), predicted = apart(a.predicted, b.predicted, SAMPLES * CLASSES);
    ok(loss < 1e-5 && gradient < 3e-4 && weights < 2e-5 && predicted < 5e-5 && a.gradients == b.gradients && b.loss[0] > 0,
       "%s%s%s, %s, %d replicas on %d devices: as unfused (losses %.0e, gradients %.0e, weights %.0e, predictions %.0e)", net->name, h->synchronized ? " synchronized" : "",
       h->frozen ? " frozen" : "", on->name, replicas, devices, loss, gradient, weights, predicted);
    ok(a.memory < b.memory, "%s%s: %zu bytes of tensors, unfused %zu", net->name, h->frozen ? " frozen" : "", a.memory, b.memory);
    if (getenv("SHOW")) printf("%s\n", a.text);
    forget(&a);
    forget(&b);
}

/* Under mixed_bfloat16 numbers have eight bits: near zero they change what relu lets through, so that only smooth networks
   keep their gradients. Where kernels have no strips nothing is rounded. */
static void check_half(const network *net, const mirt__kernels *on, const mirt__kernels *off) {
    static const how plain = {false, false, false}, half = {false, false, true};
    outcome a = run(net, &half, 2, 2, on), b = run(net, &plain, 2, 2, on), c = run(net, &half, 2, 2, off), d = run(net, &plain, 2, 2, off);
    const bool smooth = net->body == squeeze;
    const double first = fabs(a.loss[0] / b.loss[0] - 1), loss = fabs(a.loss[2] / b.loss[2] - 1), gradient = apart(a.gradient, b.gradient, b.gradients);
    ok(first < 0.01 && loss < (smooth ? 0.01 : 0.2) && gradient < (smooth ? 0.03 : 3) && gradient > 1e-4,
       "%s, %s: mixed_bfloat16 is near float32 (losses %.0e and %.0e, gradients %.0e)", net->name, on->name, first, loss, gradient);
    ok(a.memory < b.memory, "%s: %zu bytes of tensors in mixed_bfloat16, %zu in float32", net->name, a.memory, b.memory);
    ok(apart(c.weights, d.weights, d.count) == 0, "%s: without strips the policy changes nothing", net->name);
    if (getenv("SHOW")) printf("%s\n", a.text);
    forget(&a);
    forget(&b);
    forget(&c);
    forget(&d);
}

static void check_all(const mirt__kernels *on, const mirt__kernels *off) {
    static const how own = {false, false, false}, synchronized = {true, false, false}, frozen = {false, true, false};
    for (int n = 0; n < (int)(sizeof networks / sizeof networks[0]); n++) {
        check(&networks[n], &own, 1, 1, on, off);
        check(&networks[n], &own, 2, 1, on, off);
        check(&networks[n], &own, 3, 2, on, off);
        check(&networks[n], &synchronized, 2, 2, on, off);
        check(&networks[n], &frozen, 2, 2, on, off);
        check_half(&networks[n], on, off);
    }
}

static void check_policy(void) {
    char path[600];
    mirt_strategy *s = strategy_of(1, 1, 1);
    static const how half = {false, false, true};
    mirt_model *m = build(s, &networks[0], &half), *again;
    snprintf(path, sizeof path, "%s/mirt-policy-%ld.safetensors", tap_tmpdir(), (long)getpid());
    ok(m && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK && (again = mirt_load(s, path)) != NULL && again->half, "the policy is saved with a model");
    ok(m && mirt_set_dtype_policy(m, "float32") == MIRT_OK && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK && (again = mirt_load(s, path)) != NULL && !again->half,
       "and may be taken back");
    remove(path);
    ok(mirt_set_dtype_policy(m, "mixed_bfloat6") == MIRT_E_NOT_FOUND && strstr(mirt_last_error(), "did you mean \"mixed_bfloat16\"?"), "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, "mixed_float16") == MIRT_E_INVALID, "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, "int8") == MIRT_E_NOT_FOUND, "%s", mirt_last_error());
    ok(mirt_set_dtype_policy(m, NULL) == MIRT_E_INVALID && mirt_set_dtype_policy(NULL, "float32") == MIRT_E_INVALID, "no model, no policy");
    mirt_strategy_destroy(s);
}

int main(void) {
    const mirt__kernels *best = mirt__kernels_best();
    mirt__kernels off = *best, on = emulated_table(&off), real = *best;
    real.strips = true;
    off.strips = false;
    on.name = "written out";
    draw_data();
    check_all(&on, &off);
    check_policy();
    if (best->strips) check_all(&real, &off);
    return done_testing();
}
