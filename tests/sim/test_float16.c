/* mixed_float16 on simulated GPUs, and what mixed policies store. Conversions of every float16 number; kernels
   that store float16; training whose bits do not depend on the number of GPUs, nor on what is stored or who
   multiplies. The scale is halved, and the step skipped, when one replica's gradients overflow; it is doubled in time,
   and saved. Four devices. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "../float16.h"
#include "four_devices.h"
#include "opening.h"
#include "../tap.h"
#include "sim.h"

#include <unistd.h>

/* >>kernels */

static const mirt__host test_host = {mirt__fail, mirt__calloc, free, mirt__now};
static const mirt__backend *backend;
static mirt__handle *gpu;

static void *put(const void *data, size_t bytes) {
    void *there = backend->alloc(gpu, bytes + 16);
    if (!there) exit(1);
    backend->copy_in(gpu, there, data, bytes, false);
    return there;
}
static bool get(void *to, void *from, size_t bytes) {
    backend->copy_out(gpu, to, from, bytes);
    const bool good = backend->wait(gpu) == MIRT_OK;
    backend->release(gpu, from);
    return good;
}
static mirt__where with_room(size_t bytes) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.handle = gpu;
    where.float16 = true;
    backend->room(gpu, bytes ? backend->alloc(gpu, bytes) : NULL, bytes);
    return where;
}

/* Every number of float16, its neighbors in float32, and halfway between them. */
static void check_rounding(void) {
    enum { COUNT = 4 * 65536 };
    float *x = (float *)calloc(COUNT, sizeof *x);
    uint16_t *y = (uint16_t *)calloc(COUNT, sizeof *y);
    const mirt__where where = with_room(0);
    mirt__cast c;
    int wrong = 0, infinite = 0, small = 0;
    for (int i = 0; i < 65536; i++) {
        const float one = f16_to_float((uint16_t)i), next = f16_to_float((uint16_t)(i + 1));
        x[4 * i] = one;
        x[4 * i + 1] = nextafterf(one, INFINITY);
        x[4 * i + 2] = (i & 0x7FFF) == 0x7BFF ? (i >> 15 ? -65520.0f : 65520.0f) : (one + next) / 2;
        x[4 * i + 3] = nextafterf(x[4 * i + 2], one);
    }
    memset(&c, 0, sizeof c);
    c.from = MIRT_FLOAT32;
    c.to = (mirt_dtype)MIRT__FLOAT16;
    c.count = COUNT;
    c.x = put(x, COUNT * sizeof *x);
    c.y = put(y, COUNT * sizeof *y);
    backend->kernels()->cast(&c, &where);
    const bool good = get(y, c.y, COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) {
        const uint16_t want = float_to_f16(x[i]);
        wrong += x[i] != x[i] ? (y[i] & 0x7C00) != 0x7C00 || !(y[i] & 1023) : y[i] != want;
        infinite += (y[i] & 0x7FFF) == 0x7C00 && fabsf(x[i]) < 1e9f;
        small += (y[i] & 0x7C00) == 0 && (y[i] & 1023) != 0;
    }
    ok(good && !wrong && infinite > 1 && small > 4000,
       "%d numbers are rounded to the nearest, %d of them to infinity, %d to what is below the least normal one: %d "
       "otherwise",
       COUNT, infinite, small, wrong);
    free(x);
    free(y);
}

/* Every number is read as what it is: sums of rows of eight, of which seven are 0. */
static void check_reading(void) {
    enum { COUNT = 65536 };
    uint16_t *x = (uint16_t *)calloc(8 * COUNT, sizeof *x);
    float *y = (float *)calloc(COUNT, sizeof *y);
    mirt__reduce r;
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) x[8 * i + i % 8] = (uint16_t)i;
    const mirt__where where = with_room(0);
    memset(&r, 0, sizeof r);
    r.kind = MIRT__REDUCE_SUM;
    r.rank = 2;
    r.axes = 2;
    r.dim[0] = COUNT;
    r.dim[1] = 8;
    r.x = put(x, 8 * COUNT * sizeof *x);
    r.x_dtype = (mirt_dtype)MIRT__FLOAT16;
    r.y = (float *)put(y, COUNT * sizeof *y);
    backend->kernels()->reduce(&r, &where);
    const bool good = get(y, r.y, COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) {
        const float want = f16_to_float((uint16_t)i);
        wrong += want != want ? y[i] == y[i] : y[i] != want;
    }
    ok(good && !wrong, "%d numbers are read as what they are: %d otherwise", COUNT, wrong);
    free(x);
    free(y);
}

/* A product beyond 65504 is infinite, one below is not, whatever multiplies; small ones keep the steps that float16 has
   there. */
static void check_range(bool blas) {
    enum { PIXELS = 64, CHANNELS = 16 };
    static const double values[] = {65504, 65519, 65521, 1e6, 1, 3e-3, 6e-6, -70000};
    uint16_t x[PIXELS * CHANNELS], y[PIXELS * CHANNELS];
    float kernel[CHANNELS * CHANNELS];
    mirt__conv_forward f;
    int wrong = 0;
    memset(&f, 0, sizeof f);
    memset(kernel, 0, sizeof kernel);
    for (int i = 0; i < PIXELS * CHANNELS; i++)
        x[i] = float_to_f16(i % CHANNELS < 8 ? (float)values[i % 8] / 64 : ldexpf((float)(i % 8) + 1.25f, -14));
    for (int i = 0; i < CHANNELS; i++) kernel[i * CHANNELS + i] = i < 8 ? 64 : 1.0f / 1024;
    f.s.rows = 1;
    f.s.h = f.s.oh = PIXELS;
    f.s.w = f.s.ow = f.s.kh = f.s.kw = f.s.stride_h = f.s.stride_w = f.s.dilation_h = f.s.dilation_w = f.s.groups = 1;
    f.s.ci = f.s.co = CHANNELS;
    f.half = true;
    f.x.dtype = f.y_dtype = (mirt_dtype)MIRT__FLOAT16;
    f.x.channels = CHANNELS;
    f.x.data = put(x, sizeof x);
    f.y = put(y, sizeof y);
    f.kernel = (const float *)put(kernel, sizeof kernel);
    const mirt__where where = with_room(1 << 20);
    setenv("MIRT_CUDA_BLAS", blas ? "1" : "0", 1);
    backend->kernels()->conv_forward(&f, &where);
    unsetenv("MIRT_CUDA_BLAS");
    const bool good = get(y, f.y, sizeof y);
    for (int i = 0; i < PIXELS * CHANNELS; i++)
        wrong += y[i] != float_to_f16(kernel[i % CHANNELS * (CHANNELS + 1)] * f16_to_float(x[i]));
    ok(good && !wrong && y[3] == 0x7C00 && y[7] == 0xFC00 && y[0] == 0x7BFF,
       "products %s: to infinity from 65520 on (%04x %04x %04x), %d otherwise", blas ? "of cuBLAS" : "of our own", y[0],
       y[3], y[7], wrong);
}

/* >>networks */

static mirt_model *compiled(mirt_model *m, const char *policy, mirt_optimizer optimizer) {
    mirt_compile_desc c = image_compile(optimizer);
    return m && mirt_set_dtype_policy(m, policy) == MIRT_OK && mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

enum { DIGITS = 40, BATCH = 8 };
static uint8_t digit_pixels[DIGITS][28 * 28], digit_labels[DIGITS];
static void draw_digits(void) {
    mirt__random random = mirt__random_stream(5, 6);
    for (int i = 0; i < DIGITS; i++) {
        digit_labels[i] = (uint8_t)(i * 7 % 10);
        for (int k = 0; k < 28 * 28; k++)
            digit_pixels[i][k] = (uint8_t)((k / 28 * (digit_labels[i] + 1) + k % 28) % 11 < 4
                                               ? 200 + mirt__random_below(&random, 56)
                                               : mirt__random_below(&random, 60));
    }
}

/* MNIST's, as Keras's example has it. */
static mirt_model *build_mnist(mirt_strategy *s, const char *policy) {
    return compiled(mirt_application(s, "mnist", NULL), policy, mirt_adam(1e-3f));
}

/* Images that are stored in 16 bits: normalized, deep, added, pooled. */
static mirt_model *build_norms(mirt_strategy *s, const char *policy) {
    mirt_model *m = mirt_model_create(s, "norms");
    mirt_conv2d_desc conv;
    mirt_depthwise_conv2d_desc deep;
    mirt_dense_desc logits;
    memset(&conv, 0, sizeof conv);
    memset(&deep, 0, sizeof deep);
    memset(&logits, 0, sizeof logits);
    conv.filters = 8;
    conv.kernel[0] = conv.kernel[1] = deep.kernel[0] = deep.kernel[1] = 3;
    conv.padding = deep.padding = MIRT_SAME;
    conv.no_bias = deep.no_bias = true;
    logits.units = 10;
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0), *both[2];
    x = mirt_max_pool2d(mirt_activation(mirt_batch_norm(mirt_conv2d(x, &conv), NULL), MIRT_RELU), NULL);
    both[0] = x;
    x = mirt_activation(mirt_batch_norm(mirt_depthwise_conv2d(x, &deep), NULL), MIRT_RELU6);
    conv.kernel[0] = conv.kernel[1] = 1;
    both[1] = mirt_batch_norm(mirt_conv2d(x, &conv), NULL);
    x = mirt_global_average_pool2d(mirt_activation(mirt_add_layer(both, 2), MIRT_RELU));
    mirt_model_output(m, mirt_dense(x, &logits));
    return compiled(m, policy, mirt_sgd(0.05f, 0.9f, false));
}

/* As EfficientNet's blocks: gated by channels, and the branch of a sample dropped. Weights are regularized. */
static mirt_model *build_gates(mirt_strategy *s, const char *policy) {
    mirt_model *m = mirt_model_create(s, "gates");
    mirt_conv2d_desc conv;
    mirt_dropout_desc drop;
    mirt_dense_desc logits;
    memset(&conv, 0, sizeof conv);
    memset(&drop, 0, sizeof drop);
    memset(&logits, 0, sizeof logits);
    conv.filters = 16;
    conv.kernel[0] = conv.kernel[1] = conv.strides[0] = conv.strides[1] = 2;
    conv.no_bias = true;
    conv.kernel_regularizer.l2 = 1e-3f;
    drop.rate = 0.2f;
    drop.noise_shape = MIRT_SHAPE(1, 1, 1);
    logits.units = 10;
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0), *in[2], *gate[2];
    in[1] = mirt_activation(mirt_batch_norm(mirt_conv2d(x, &conv), NULL), MIRT_SILU);
    conv.kernel[0] = conv.kernel[1] = conv.strides[0] = conv.strides[1] = 1;
    gate[0] = mirt_activation(mirt_batch_norm(mirt_conv2d(in[1], &conv), NULL), MIRT_SILU);
    x = mirt_reshape_layer(mirt_global_average_pool2d(gate[0]), MIRT_SHAPE(1, 1, 16));
    conv.activation = MIRT_SIGMOID;
    gate[1] = mirt_conv2d(x, &conv);
    conv.activation = MIRT_LINEAR;
    in[0] = mirt_dropout_layer(mirt_batch_norm(mirt_conv2d(mirt_multiply_layer(gate, 2), &conv), NULL), &drop);
    x = mirt_global_average_pool2d(mirt_add_layer(in, 2));
    mirt_model_output(m, mirt_dense(x, &logits));
    return compiled(m, policy, mirt_sgd(0.05f, 0.9f, false));
}

static const char *excluded; /* from weight decay, of the following */
static mirt_model *build_decayed(mirt_strategy *s, const char *policy) {
    mirt_optimizer o = mirt_sgd(0.05f, 0.9f, false);
    o.weight_decay = 0.25f;
    o.exclude_from_weight_decay = excluded;
    return compiled(mirt_application(s, "mnist", NULL), policy, o);
}

typedef struct network {
    const char *name;
    mirt_model *(*build)(mirt_strategy *s, const char *policy);
    bool stores; /* images in 16 bits */
} network;

/* Step number `step`; `weight`: of one sample's loss, the last but one of the batch; 1: of all. */
static bool train(mirt_model *m, int step, float weight) {
    float weights[BATCH];
    mirt_data data;
    mirt_logs logs;
    const int first = step * BATCH % DIGITS;
    memset(&data, 0, sizeof data);
    for (int i = 0; i < BATCH; i++) weights[i] = i == BATCH - 2 ? weight : 1;
    data.x[0] = mirt_make_array(digit_pixels[first], MIRT_UINT8, MIRT_SHAPE(BATCH, 28, 28, 1));
    data.y[0] = mirt_make_array(digit_labels + first, MIRT_UINT8, MIRT_SHAPE(BATCH));
    data.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(BATCH));
    const bool good = mirt_train_on_batch(m, &data, &logs) == MIRT_OK;
    if (!good) printf("# step %d: %s\n", step, mirt_last_error());
    return good;
}

static float *trained(const network *n, const char *devices, const char *policy, int steps, size_t *count) {
    mirt_strategy *s = strategy_on(devices, 4);
    mirt_model *m = s ? n->build(s, policy) : NULL;
    float *weights = NULL;
    bool good = m != NULL;
    for (int step = 0; good && step < steps; step++) good = train(m, step, 1);
    if (good) weights = all_weights(m, 0, count);
    ok(good && copies_agree(m) && mirt_step(m) == steps, "%s, %s on %s: %d steps%s%s", n->name, policy, devices, steps,
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
    return weights;
}

static double furthest(const float *have, const float *want, size_t count) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        sum += ((double)have[i] - (double)want[i]) * ((double)have[i] - (double)want[i]);
        all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

/* What nodes store, and that nothing is stored as bfloat16, nor what is made of weights in 16 bits. */
static void check_stored(const network *n) {
    mirt_strategy *s = strategy_on("gpu:0", 1);
    mirt_model *m = s ? n->build(s, "mixed_float16") : NULL;
    int halves = 0, others = 0, weights = 0;
    if (m && train(m, 0, 1)) {
        const mirt__graph *graph = &m->trainer->function[MIRT__TRAIN]->step.program.graph;
        for (int i = 0; i < graph->count; i++) {
            for (int k = 0; k < graph->node[i]->num_out; k++) {
                const mirt_tensor *t = graph->node[i]->out[k];
                halves += (int)t->dtype == MIRT__FLOAT16;
                others += (int)t->dtype == MIRT__BFLOAT16;
                weights += !mirt__dtype_known(t->dtype) && !mirt__is_batched(&t->shape);
            }
        }
    }
    ok((halves > 4) == n->stores && others == 0 && weights == 0,
       "%s: %d tensors are stored as float16, %d of them made of weights, %d as bfloat16", n->name, halves, weights,
       others);
    mirt_strategy_destroy(s);
}

static void check_training(const network *n, int steps) {
    static const char *const devices[] = {"gpu:0,gpu:1", "gpu:0,gpu:1,gpu:2", "gpu"};
    size_t count = 0, own;
    float *one = trained(n, "gpu:0", "mixed_float16", steps, &count),
          *plain = trained(n, "cpu", "float32", steps, &own),
          *brain = trained(n, "gpu:0", "mixed_bfloat16", steps, &own);
    for (int i = small_tier() ? 1 : 0; i < MIRT__COUNT(devices) && one; i++) {
        float *many = trained(n, devices[i], "mixed_float16", steps, &own);
        ok(many && own == count && memcmp(many, one, count * sizeof *many) == 0, "%s: %s have the bits of one", n->name,
           devices[i]);
        free(many);
    }
    if (one && plain && brain) {
        const double off = furthest(one, plain, count), brain_off = furthest(brain, plain, count);
        ok(off > 1e-8 && off < 1e-2 && off < brain_off / 2,
           "%s: float16's weights are %.1e from float32's, bfloat16's %.1e", n->name, off, brain_off);
    }
    free(one);
    free(plain);
    free(brain);
}

/* Gradients of weights that are updated one by one are made smaller once, too. */
static void check_by_variable(void) {
    const network decayed = {"with weight decay", build_decayed, false};
    size_t count = 0, own;
    excluded = NULL;
    float *together = trained(&decayed, "gpu:0", "mixed_float16", 3, &count);
    excluded = "none of these";
    float *single = trained(&decayed, "gpu:0", "mixed_float16", 3, &own);
    ok(together && single && own == count && memcmp(single, together, count * sizeof *single) == 0,
       "weights that are updated one by one, as some may be excluded from decay, have the bits of all at once");
    free(together);
    free(single);
}

/* Whatever is stored, and whoever multiplies: the bits do not depend on the number of GPUs, and rounding is what it is
   with float32's weights as the measure. */
static void check_choices(const network *n, const char *policy, int first, int steps) {
    static const char *const devices[] = {"gpu:0", "gpu:0,gpu:1", "gpu:0,gpu:1,gpu:2", "gpu"};
    size_t count = 0, own;
    float *plain = trained(n, "cpu", "float32", steps, &count), *one = NULL;
    for (int i = first; plain && i < 6 * 4; i++) {
        const char *store = i / 8 == 0 ? "none" : i / 8 == 1 ? "all" : "auto", *blas = i / 4 % 2 ? "1" : "0";
        if (i % 4 % 2 && small_tier()) continue;
        setenv("MIRT_CUDA_STORE", store, 1);
        setenv("MIRT_CUDA_BLAS", blas, 1);
        float *have = trained(n, devices[i % 4], policy, steps, &own);
        unsetenv("MIRT_CUDA_STORE");
        unsetenv("MIRT_CUDA_BLAS");
        if (i % 4 == 0) {
            free(one);
            one = have;
            const double off = have ? furthest(have, plain, count) : 1;
            ok(off > 1e-8 && off < 2e-4, "%s, %s, stored: %s, cuBLAS: %s: weights are %.1e from float32's", n->name,
               policy, store, blas, off);
            continue;
        }
        ok(one && have && own == count && memcmp(have, one, count * sizeof *have) == 0,
           "%s, stored: %s, cuBLAS: %s: %s have the bits of one", n->name, store, blas, devices[i % 4]);
        free(have);
    }
    free(one);
    free(plain);
}

static mirt_tensor *far_squares(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    return mirt_reduce_mean(mirt_square(mirt_subtract(output, mirt_scale(labels, 4, 0))), 14, false);
}

/* A custom loss is computed in float32: squares of differences beyond 256 are no float16. */
static double far_loss(const char *devices, const char *policy) {
    static const mirt_custom_loss squares = {"far_squares", far_squares, NULL};
    mirt_strategy *s = strategy_on(devices, 2);
    mirt_model *m = s ? mirt_model_create(s, "far") : NULL;
    mirt_conv2d_desc conv;
    mirt_compile_desc c;
    mirt_data data;
    mirt_logs logs;
    double loss = NAN;
    memset(&conv, 0, sizeof conv);
    memset(&c, 0, sizeof c);
    memset(&data, 0, sizeof data);
    conv.filters = 1;
    conv.kernel[0] = conv.kernel[1] = 3;
    conv.padding = MIRT_SAME;
    c.optimizer = mirt_sgd(1e-5f, 0, false);
    c.custom_losses[0] = &squares;
    data.x[0] = data.y[0] = mirt_make_array(digit_pixels, MIRT_UINT8, MIRT_SHAPE(BATCH, 28, 28, 1));
    if (!m) return loss;
    mirt_model_output(m, mirt_conv2d(mirt_rescale(mirt_input(m, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0), &conv));
    if (mirt_set_dtype_policy(m, policy) == MIRT_OK && mirt_compile(m, &c) == MIRT_OK &&
        mirt_train_on_batch(m, &data, &logs) == MIRT_OK)
        loss = mirt_logs_value(&logs, "loss");
    mirt_strategy_destroy(s);
    return loss;
}
static void check_custom_loss(void) {
    const double plain = far_loss("cpu", "float32"), brain = far_loss("gpu:0", "mixed_bfloat16"),
                 own = far_loss("gpu:0", "mixed_float16");
    ok(fabs(brain - plain) < 1e-5 * plain && fabs(own - plain) < 1e-5 * plain,
       "a custom loss of %.1f: mixed_bfloat16 has %.1f, mixed_float16 %.1f", plain, brain, own);
}

/* >>the loss's scale */

/* All that a file has of the model. */
static void state_of(mirt_model *m, char out[MIRT__SHA256_HEX]) {
    char path[300];
    size_t size;
    snprintf(path, sizeof path, "%s/state.safetensors", work_directory());
    if (mirt_save(m, path, MIRT_SAVE_ALL) != MIRT_OK) printf("# %s\n", mirt_last_error());
    char *bytes = file_bytes(path, &size);
    digest_of(bytes, size, out);
    free(bytes);
    unlink(path);
}

/* One sample's gradients overflow: those of replica 3. */
static void check_overflow(const network *n, const char *devices) {
    mirt_strategy *s = strategy_on(devices, 4), *t = strategy_on("gpu:0", 4);
    mirt_model *m = s ? n->build(s, "mixed_float16") : NULL, *other = t ? n->build(t, "mixed_float16") : NULL;
    char before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    bool good = m && other && train(m, 0, 1) && train(other, 0, 1);
    if (!good) printf("# %s\n", mirt_last_error());
    const double scale = good ? m->loss_scale : 0;
    if (good) {
        m->loss_scale = scale / 2; /* so that the files differ in nothing but what the step changes */
        m->scale_steps = 0;
        state_of(m, before);
        m->loss_scale = scale;
    }
    good = good && train(m, 1, 1e5f);
    ok(good && scale == 32768 && m->loss_scale == 16384 && m->scale_steps == 0,
       "%s on %s: a gradient beyond float16 halves the scale of the loss, %g to %g", n->name, devices, scale,
       good ? m->loss_scale : 0);
    if (good) state_of(m, after);
    ok(good && strcmp(before, after) == 0 && mirt_step(m) == 1 && copies_agree(m),
       "weights, statistics, optimizer's state and the number of steps are what they were");
    /* And training continues as if the step had not been. */
    if (good) other->loss_scale = 16384, other->scale_steps = 0;
    good = good && train(m, 2, 1) && train(other, 2, 1) && train(m, 3, 1) && train(other, 3, 1);
    if (good) state_of(m, before), state_of(other, after);
    ok(good && strcmp(before, after) == 0 && mirt_step(m) == 3 && m->scale_steps == 2,
       "further steps have the bits of a run without that one");
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

static void check_growth(const network *n) {
    mirt_strategy *s = strategy_on("gpu:0,gpu:1", 4);
    mirt_model *m = s ? n->build(s, "mixed_float16") : NULL;
    bool good = m && train(m, 0, 1);
    if (good) m->scale_steps = 1998;
    good = good && train(m, 1, 1) && m->loss_scale == 32768 && m->scale_steps == 1999 && train(m, 2, 1);
    ok(good && m->loss_scale == 65536 && m->scale_steps == 0, "after 2000 steps without one the scale doubles: %g",
       good ? m->loss_scale : 0);
    if (good) m->loss_scale = 1;
    ok(good && train(m, 3, 1e9f) && m->loss_scale == 1, "and it never falls below 1");
    mirt_strategy_destroy(s);
}

/* Saved and loaded on other devices, a step left out before: the file of the run that was not interrupted. */
static void check_saved(const network *n) {
    char path[300], want[MIRT__SHA256_HEX], have[MIRT__SHA256_HEX];
    snprintf(path, sizeof path, "%s/run.safetensors", work_directory());
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on(k ? "gpu:0,gpu:2,gpu:3" : "gpu:0", 4);
        mirt_model *m = s ? n->build(s, "mixed_float16") : NULL;
        bool good = m && train(m, 0, 1) && train(m, 1, 1e5f) && train(m, 2, 1);
        if (k && good) {
            good = mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK;
            mirt_strategy_destroy(s);
            s = strategy_on("gpu:1,gpu:2", 4);
            m = good && s ? mirt_load(s, path) : NULL;
            good = m && m->policy == MIRT__POLICY_MIXED_FLOAT16 && m->loss_scale == 16384 && m->scale_steps == 1;
        }
        for (int step = 3; good && step < 6; step++) good = train(m, step, 1);
        ok(good, "six steps, of which one overflows%s%s%s", k ? ", saved and loaded in between" : "", good ? "" : ": ",
           good ? "" : mirt_last_error());
        if (good) state_of(m, k ? have : want);
        mirt_strategy_destroy(s);
    }
    ok(strcmp(have, want) == 0, "%s: the loss's scale is saved, and resuming from the file is bit-identical",
       n->name);
    unlink(path);
}

/* A fit that was broken off. */
static void check_resumed(const network *n) {
    char path[300], want[MIRT__SHA256_HEX], have[MIRT__SHA256_HEX];
    float weights[DIGITS];
    mirt_model_checkpoint_desc checkpoints;
    mirt_data data;
    memset(&checkpoints, 0, sizeof checkpoints);
    memset(&data, 0, sizeof data);
    snprintf(path, sizeof path, "%s/fit.safetensors", work_directory());
    for (int i = 0; i < DIGITS; i++) weights[i] = i == 9 ? 1e5f : 1;
    data.x[0] = mirt_make_array(digit_pixels, MIRT_UINT8, MIRT_SHAPE(DIGITS, 28, 28, 1));
    data.y[0] = mirt_make_array(digit_labels, MIRT_UINT8, MIRT_SHAPE(DIGITS));
    data.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(DIGITS));
    checkpoints.path = path;
    checkpoints.at_end = true;
    for (int k = 0; k < 3; k++) { /* whole; its first part; its second */
        mirt_strategy *s = strategy_on(k ? k == 2 ? "gpu:1" : "gpu:0,gpu:3" : "gpu:0", 4);
        mirt_model *m = s ? n->build(s, "mixed_float16") : NULL;
        mirt_callback *writer = k == 1 ? mirt_model_checkpoint(&checkpoints) : NULL;
        mirt_fit_desc fit;
        memset(&fit, 0, sizeof fit);
        fit.epochs = 2;
        fit.batch = BATCH;
        fit.no_progress = true;
        fit.max_steps = k == 1 ? 4 : 0;
        fit.callbacks[0] = writer;
        fit.resume = k == 2 ? path : NULL;
        mirt_dataset *set = m ? mirt_batch(mirt_shuffle(mirt_arrays_of(&data), 16), BATCH) : NULL;
        const bool good = set && mirt_fit(m, set, &fit) != NULL;
        ok(good && m->loss_scale < 32768, "a fit%s: the scale is %g%s%s",
           k == 1 ? ", broken off"
           : k    ? ", resumed"
                  : "",
           good ? m->loss_scale : 0, good ? "" : ": ", good ? "" : mirt_last_error());
        if (good && k != 1) digest_weights(m, 0, k ? have : want);
        mirt_dataset_destroy(set);
        mirt_strategy_destroy(s);
        mirt_callback_destroy(writer);
    }
    ok(strcmp(have, want) == 0, "a resumed fit is bit-identical");
    unlink(path);
}

/* What users see is not scaled; what is predicted is near float32's. */
static void check_seen(const network *n, const char *weight, size_t count) {
    static const char *const policies[] = {"float32", "mixed_float16"};
    float gradient[2][512], predicted[2][BATCH * 10];
    mirt_data data;
    double worst = 0, off = 0;
    memset(&data, 0, sizeof data);
    data.x[0] = mirt_make_array(digit_pixels, MIRT_UINT8, MIRT_SHAPE(BATCH, 28, 28, 1));
    data.y[0] = mirt_make_array(digit_labels, MIRT_UINT8, MIRT_SHAPE(BATCH));
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on("gpu:0,gpu:1", 2);
        mirt_model *m = s ? n->build(s, policies[k]) : NULL;
        double loss;
        ok(m && mirt_scatter(m, data.x[0], data.y[0]) == MIRT_OK && mirt_grad(m, &loss) == MIRT_OK &&
               mirt_all_reduce(m) == MIRT_OK && mirt_get_gradient(m, weight, 0, gradient[k], count) == MIRT_OK &&
               mirt_apply(m) == MIRT_OK && mirt_step(m) == 1 &&
               mirt_predict_arrays(m, data.x[0], predicted[k], BATCH * 10) == MIRT_OK,
           "%s, %s: stages of a step, and predictions%s%s", n->name, policies[k],
           mirt_last_status() == MIRT_OK ? "" : ": ", mirt_last_status() == MIRT_OK ? "" : mirt_last_error());
        mirt_strategy_destroy(s);
    }
    off = furthest(gradient[1], gradient[0], count);
    worst = furthest(predicted[1], predicted[0], BATCH * 10);
    ok(off < 5e-3 && worst < 5e-3, "gradients are float32's but for %.1e, predictions but for %.1e", off, worst);
}

/* An image that leaves float16's range is found to be the cause of a loss of NaN. */
static void check_found(void) {
    mirt_strategy *s = strategy_on("gpu:0,gpu:1", 2);
    mirt_model *m = s ? build_norms(s, "mixed_float16") : NULL;
    mirt_callback *stops = mirt_terminate_on_nan(MIRT_NAN_STOP);
    float kernel[72];
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.batch = BATCH;
    fit.no_progress = true;
    fit.callbacks[0] = stops;
    for (int i = 0; i < 72; i++) kernel[i] = 6e4f;
    const bool good = m && mirt_set_weight(m, "conv2d/kernel", kernel, 72) == MIRT_OK &&
                      mirt_fit_arrays(m, mirt_make_array(digit_pixels, MIRT_UINT8, MIRT_SHAPE(BATCH, 28, 28, 1)),
                                      mirt_make_array(digit_labels, MIRT_UINT8, MIRT_SHAPE(BATCH)), &fit);
    ok(good && strstr(m->not_finite, "conv2d") && strstr(m->not_finite, "float16 (") &&
           !strstr(m->not_finite, "bfloat16"),
       "an image beyond float16 is found: \"%s\"", m ? m->not_finite : "");
    mirt_strategy_destroy(s);
    mirt_callback_destroy(stops);
}

int main(void) {
    const network mnist = {"MNIST's network", build_mnist, false}, norms = {"a normalized one", build_norms, true},
                  gates = {"a gated one", build_gates, true};
    const bool small = small_tier();
    if (!four_devices()) return done_testing();
    backend = mirt__cuda_backend();
    gpu = backend->open(&test_host, opening(0, false));
    if (!gpu) return 1;
    check_rounding();
    check_reading();
    check_range(true);
    check_range(false);
    backend->close(gpu);
    draw_digits();
    check_stored(&mnist);
    check_stored(&norms);
    check_stored(&gates);
    check_custom_loss();
    check_training(&mnist, small ? 3 : 20);
    check_training(&norms, small ? 4 : 15);
    check_training(&gates, small ? 3 : 10);
    check_by_variable();
    check_choices(&gates, "mixed_bfloat16", 0, small ? 2 : 6);
    check_choices(&gates, "store_bfloat16", small ? 16 : 0, small ? 2 : 6);
    check_overflow(&norms, "gpu");
    if (!small) check_overflow(&mnist, "gpu:0,gpu:1");
    check_growth(&norms);
    check_saved(&norms);
    check_resumed(&norms);
    check_seen(&norms, "dense/kernel", 80);
    check_found();
    mirt_sim_set("capability", 75); /* tensor cores that know float16 alone, and copies that are waited for */
    check_training(&norms, small ? 2 : 8);
    return done_testing();
}
