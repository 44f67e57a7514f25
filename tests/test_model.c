/* Tests recording a network: refusals and their messages, initial weights, and default values. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

/* >>errors */

static mirt_strategy *strategy;

typedef mirt_tensor *(*recorder_fn)(mirt_model *m, mirt_tensor *x);

/* Records a network on x of (rows, 6, 5, 4) that must fail: NULL from then on, and from compile the
   first error, which says both words. */
static void check_refused(const char *what, recorder_fn record, mirt_status status, const char *word,
                          const char *word_2) {
    mirt_model *m = mirt_model_create(strategy, "net");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(6, 5, 4)), *y = record(m, x);
    mirt_conv2d_desc later;
    memset(&later, 0, sizeof later);
    mirt_tensor *z = mirt_conv2d(y, &later); /* NULL handed on, not an error of its own */
    mirt_model_output(m, z ? z : x);
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    mirt_status got = mirt_compile(m, &c);
    const char *text = mirt_last_error();
    ok(!y && !z && got == status && strstr(text, word) && strstr(text, word_2), "%s: \"%s\"", what, text);
    ok(!mirt_flatten(x) && mirt_compile(m, &c) == status, "%s: the model stays marked", what);
    mirt_model_destroy(m);
}

static mirt_conv2d_desc conv_desc(int filters, int kh, int kw, int groups) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = filters;
    d.kernel[0] = kh;
    d.kernel[1] = kw;
    d.groups = groups;
    return d;
}
static mirt_tensor *dense_of(mirt_tensor *x, int units, const char *name) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.name = name;
    return mirt_dense(x, &d);
}

static mirt_tensor *no_kernel(mirt_model *m, mirt_tensor *x) {
    mirt_conv2d_desc d = conv_desc(3, 0, 0, 1);
    (void)m;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *negative_kernel(mirt_model *m, mirt_tensor *x) {
    mirt_conv2d_desc d = conv_desc(3, -2, 3, 1);
    (void)m;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *large_kernel(mirt_model *m, mirt_tensor *x) {
    mirt_conv2d_desc d = conv_desc(3, 7, 3, 1);
    (void)m;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *no_filters(mirt_model *m, mirt_tensor *x) {
    mirt_conv2d_desc d = conv_desc(0, 3, 3, 1);
    (void)m;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *wrong_groups(mirt_model *m, mirt_tensor *x) {
    mirt_conv2d_desc d = conv_desc(6, 3, 3, 3);
    (void)m;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *odd_filters(mirt_model *m, mirt_tensor *x) {
    mirt_conv2d_desc d = conv_desc(5, 3, 3, 2);
    (void)m;
    return mirt_conv2d(x, &d);
}
static mirt_tensor *flat_conv(mirt_model *m, mirt_tensor *x) {
    mirt_conv2d_desc d = conv_desc(5, 3, 3, 1);
    (void)m;
    return mirt_conv2d(mirt_flatten(x), &d);
}
static mirt_tensor *no_desc(mirt_model *m, mirt_tensor *x) { (void)m; return mirt_dense(x, NULL); }
static mirt_tensor *no_units(mirt_model *m, mirt_tensor *x) { (void)m; return dense_of(x, 0, NULL); }
static mirt_tensor *many_inputs(mirt_model *m, mirt_tensor *x) {
    for (int i = 0; i < MIRT_MAX_INPUTS; i++) x = mirt_input(m, MIRT_SHAPE(3));
    return x;
}
static mirt_tensor *same_name(mirt_model *m, mirt_tensor *x) {
    (void)m;
    return dense_of(dense_of(x, 4, "twice"), 4, "twice");
}
static mirt_tensor *bad_name(mirt_model *m, mirt_tensor *x) { (void)m; return dense_of(x, 4, "a/b"); }
static mirt_tensor *large_pool(mirt_model *m, mirt_tensor *x) {
    mirt_pool2d_desc d;
    (void)m;
    memset(&d, 0, sizeof d);
    d.size[0] = 8;
    return mirt_max_pool2d(x, &d);
}
static mirt_tensor *bad_rate(mirt_model *m, mirt_tensor *x) { (void)m; return mirt_dropout(x, 1.5f); }
static mirt_tensor *bad_sum(mirt_model *m, mirt_tensor *x) { (void)m; return mirt_add(x, dense_of(x, 3, NULL)); }
static mirt_tensor *bad_reshape(mirt_model *m, mirt_tensor *x) { (void)m; return mirt_reshape(x, MIRT_SHAPE(7, 7)); }
static mirt_tensor *bad_matmul(mirt_model *m, mirt_tensor *x) {
    (void)m;
    return mirt_matmul(mirt_flatten(x), mirt_flatten(x), false, false);
}
static mirt_tensor *strangers(mirt_model *m, mirt_tensor *x) {
    mirt_model *other = mirt_model_create(strategy, "other");
    mirt_tensor *y = mirt_add(x, mirt_input(other, MIRT_SHAPE(6, 5, 4)));
    (void)m;
    mirt_model_destroy(other);
    return y;
}

static void check_errors(void) {
    check_refused("no kernel size", no_kernel, MIRT_E_INVALID, "conv2d", "0x0");
    check_refused("a negative kernel", negative_kernel, MIRT_E_INVALID, "conv2d", "-2x3");
    check_refused("a kernel larger than the image", large_kernel, MIRT_E_SHAPE, "conv2d", "7");
    check_refused("no filters", no_filters, MIRT_E_INVALID, "conv2d", "filters is 0");
    check_refused("groups that do not divide the channels", wrong_groups, MIRT_E_SHAPE, "4 input channels", "3 groups");
    check_refused("groups that do not divide the filters", odd_filters, MIRT_E_SHAPE, "5 filters", "2 groups");
    check_refused("a convolution of vectors", flat_conv, MIRT_E_SHAPE, "conv2d", "channels");
    check_refused("no description", no_desc, MIRT_E_INVALID, "dense", "description");
    check_refused("no units", no_units, MIRT_E_INVALID, "dense", "units is 0");
    check_refused("nine inputs", many_inputs, MIRT_E_STATE, "input", "at most 8");
    check_refused("two layers of one name", same_name, MIRT_E_INVALID, "already", "\"twice\"");
    check_refused("a name with a slash", bad_name, MIRT_E_INVALID, "\"a/b\"", "'/'");
    check_refused("a window larger than the image", large_pool, MIRT_E_SHAPE, "max_pooling2d", "8");
    check_refused("a dropout rate above 1", bad_rate, MIRT_E_INVALID, "dropout", "1.5");
    check_refused("shapes that do not broadcast", bad_sum, MIRT_E_SHAPE, "4", "3");
    check_refused("a reshape to another size", bad_reshape, MIRT_E_SHAPE, "(rows, 6, 5, 4)", "(rows, 7, 7)");
    check_refused("a product of two batches", bad_matmul, MIRT_E_SHAPE, "matmul", "");
    check_refused("a tensor of another model", strangers, MIRT_E_INVALID, "another model", "");
}

static void check_compile_errors(void) {
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    mirt_model *m = mirt_model_create(strategy, "bare");
    ok(mirt_compile(m, &c) == MIRT_E_STATE && strstr(mirt_last_error(), "mirt_input"), "no input: \"%s\"",
       mirt_last_error());
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(7));
    ok(mirt_compile(m, &c) == MIRT_E_STATE && strstr(mirt_last_error(), "mirt_model_output"), "no output: \"%s\"",
       mirt_last_error());
    mirt_model_output(m, dense_of(x, 1, NULL));
    ok(mirt_compile(m, &c) == MIRT_E_SHAPE && strstr(mirt_last_error(), "classes") &&
           strstr(mirt_last_error(), "(rows, 1)"),
       "one class: \"%s\"", mirt_last_error());
    c.loss = MIRT_BINARY_CROSSENTROPY;
    c.optimizer = mirt_adam(-1);
    ok(mirt_compile(m, &c) == MIRT_E_INVALID && strstr(mirt_last_error(), "-1"), "a negative learning rate: \"%s\"",
       mirt_last_error());
    c.optimizer = mirt_sgd(0.1f, 1, false);
    ok(mirt_compile(m, &c) == MIRT_E_INVALID && strstr(mirt_last_error(), "momentum is 1"), "a momentum of 1: \"%s\"",
       mirt_last_error());
    c.optimizer = mirt_adam(1e-3f);
    ok(mirt_compile(m, &c) == MIRT_OK, "and with that put right it compiles");
    ok(mirt_compile(NULL, &c) != MIRT_OK && mirt_last_error()[0], "no model: \"%s\"", mirt_last_error());
    ok(!mirt_model_by_name(strategy, "mnits") && strstr(mirt_last_error(), "\"mnist\""), "a name nearly right: \"%s\"",
       mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(strategy, "outputs");
    mirt_model *other = mirt_model_create(strategy, "other");
    mirt_input(m, MIRT_SHAPE(7));
    mirt_model_output(m, mirt_input(other, MIRT_SHAPE(7)));
    ok(mirt_compile(m, &c) == MIRT_E_INVALID && strstr(mirt_last_error(), "another model"),
       "another model's output: \"%s\"", mirt_last_error());
    mirt_model_destroy(m);
    mirt_model_destroy(other);
}

static void check_weight_errors(void) {
    float v[28];
    mirt_model *m = mirt_model_create(strategy, "net");
    mirt_model_output(m, dense_of(mirt_input(m, MIRT_SHAPE(7)), 4, NULL));
    ok(mirt_get_weight(m, "dense/kernal", 0, v, 28) == MIRT_E_NOT_FOUND &&
           strstr(mirt_last_error(), "\"dense/kernel\""),
       "a name nearly right: \"%s\"", mirt_last_error());
    ok(mirt_get_weight(m, "dense/kernel", 1, v, 28) == MIRT_E_DEVICE &&
           mirt_get_weight(m, "dense/kernel", -1, v, 28) == MIRT_E_DEVICE &&
           strstr(mirt_last_error(), "mirt_get_weight: there is no device -1; the strategy has"),
       "no such device: \"%s\"", mirt_last_error());
    ok(mirt_set_weight(m, "dense/kernel", v, 27) == MIRT_E_SHAPE && strstr(mirt_last_error(), "28") &&
           strstr(mirt_last_error(), "27"),
       "another size: \"%s\"", mirt_last_error());
    ok(mirt_weight(m, 2, NULL) != MIRT_OK && mirt_num_weights(m) == 2, "the weights are numbered 0 and 1");
    mirt_model_destroy(m);
}

/* >>initial weights */

typedef struct moments {
    double mean, variance, low, high;
    size_t count;
} moments;

/* Of a dense kernel of 150 x 400, or of a convolution's 3 x 5 x 40 x 100 in two groups. */
static moments moments_of(mirt_initializer initializer, bool convolution) {
    moments s;
    memset(&s, 0, sizeof s);
    s.count = 60000;
    float *v = (float *)calloc(s.count, sizeof *v);
    mirt_model *m = mirt_model_create(strategy, "weights");
    mirt_dense_desc d;
    mirt_conv2d_desc c = conv_desc(100, 3, 5, 2);
    memset(&d, 0, sizeof d);
    d.units = 400;
    d.kernel_initializer = initializer;
    d.name = "layer";
    c.kernel_initializer = initializer;
    c.name = "layer";
    if (convolution) mirt_conv2d(mirt_input(m, MIRT_SHAPE(5, 5, 80)), &c);
    else mirt_dense(mirt_input(m, MIRT_SHAPE(150)), &d);
    if (mirt_get_weight(m, "layer/kernel", 0, v, s.count) != MIRT_OK) s.count = 0;
    s.low = INFINITY;
    s.high = -INFINITY;
    for (size_t i = 0; i < s.count; i++) {
        s.mean += (double)v[i] / (double)s.count;
        s.low = fmin(s.low, (double)v[i]);
        s.high = fmax(s.high, (double)v[i]);
    }
    for (size_t i = 0; i < s.count; i++)
        s.variance += ((double)v[i] - s.mean) * ((double)v[i] - s.mean) / (double)s.count;
    free(v);
    mirt_model_destroy(m);
    return s;
}

/* The mean of 60000 numbers is off by less than 5 of its standard deviations, their variance by
   less than 3 %: sqrt(2 / 60000) is 0.6 %. Nothing is beyond the limit, something is near it. */
static void check_moments(const char *name, mirt_initializer initializer, bool convolution, double mean,
                          double variance, double limit) {
    moments s = moments_of(initializer, convolution);
    double reach = fmax(s.high - mean, mean - s.low);
    bool limited = limit > 0 ? reach <= limit * (1 + 1e-6) && reach > 0.99 * limit : reach > 3.5 * sqrt(variance);
    ok(s.count && fabs(s.mean - mean) < 5 * sqrt(variance / 60000) && fabs(s.variance / variance - 1) < 0.03 && limited,
       "%s%s: mean %.5f, variance %.4g (%.4g), reach %.4g (%.4g)", name, convolution ? ", convolution" : "", s.mean,
       s.variance, variance, reach, limit);
}

static void check_initializers(void) {
    /* a normal distribution cut at two standard deviations keeps 0.87963 of its own */
    const double cut = 0.87962566103423978;
    check_moments("random_uniform", mirt_random_uniform(-0.5f, 1.5f), false, 0.5, 4.0 / 12, 1);
    check_moments("random_normal", mirt_random_normal(0.25f, 0.5f), false, 0.25, 0.25, 0);
    check_moments("truncated_normal", mirt_truncated_normal(-1, 0.5f), false, -1, 0.25 * cut * cut, 1);
    for (int k = 0; k < 2; k++) {
        double in = k ? 3 * 5 * 40 : 150, out = k ? 3 * 5 * 100 : 400, average = (in + out) / 2;
        mirt_initializer standard;
        memset(&standard, 0, sizeof standard);
        check_moments("the default, glorot_uniform", standard, k != 0, 0, 1 / average, sqrt(3 / average));
        check_moments("glorot_uniform", mirt_glorot_uniform(), k != 0, 0, 1 / average, sqrt(3 / average));
        check_moments("glorot_normal", mirt_glorot_normal(), k != 0, 0, 1 / average, 2 * sqrt(1 / average) / cut);
        check_moments("he_uniform", mirt_he_uniform(), k != 0, 0, 2 / in, sqrt(6 / in));
        check_moments("he_normal", mirt_he_normal(), k != 0, 0, 2 / in, 2 * sqrt(2 / in) / cut);
        check_moments("variance_scaling fan_out normal",
                      mirt_variance_scaling(3, MIRT_FAN_OUT, MIRT_DIST_UNTRUNCATED_NORMAL), k != 0, 0, 3 / out, 0);
        check_moments("variance_scaling fan_out uniform", mirt_variance_scaling(3, MIRT_FAN_OUT, MIRT_DIST_UNIFORM),
                      k != 0, 0, 3 / out, sqrt(9 / out));
    }
    moments zeros = moments_of(mirt_zeros(), false), ones = moments_of(mirt_ones(), false),
            same = moments_of(mirt_constant(-2.5f), true);
    ok(zeros.count && zeros.low == 0 && zeros.high == 0 && ones.low == 1 && ones.high == 1 && same.low == -2.5 &&
           same.high == -2.5,
       "zeros, ones and constant");
}

static void check_seeds(void) {
    char digest[4][MIRT__SHA256_HEX];
    for (int i = 0; i < 4; i++) {
        mirt_strategy_desc d;
        memset(&d, 0, sizeof d);
        d.devices = i == 1 ? "3" : "1";
        d.seed = i == 2 ? 12 : 11;
        d.silent = true;
        mirt_strategy *s = mirt_strategy_create(&d);
        mirt_model *m = mirt_model_create(s, "seeds");
        mirt_tensor *x = mirt_input(m, MIRT_SHAPE(20));
        dense_of(x, 20, "a");
        dense_of(x, 20, "b");
        digest_weights(m, mirt_num_devices(s) - 1, digest[i]);
        if (i == 3) {
            float a[400], b[400];
            mirt_get_weight(m, "a/kernel", 0, a, 400);
            mirt_get_weight(m, "b/kernel", 0, b, 400);
            ok(memcmp(a, b, sizeof a) != 0, "layers start from different weights");
        }
        mirt_strategy_destroy(s);
    }
    ok(strcmp(digest[0], digest[1]) == 0 && strcmp(digest[0], digest[3]) == 0,
       "a seed gives the same weights on every device of any strategy");
    ok(strcmp(digest[0], digest[2]) != 0, "another seed gives others");
}

static void check_copies(void) {
    const float seven = 7;
    mirt_strategy *s = strategy_of(3, 3, 1);
    mirt_model *m = mirt_model_create(s, "copies");
    dense_of(mirt_input(m, MIRT_SHAPE(1)), 1, "a");
    bool good = mirt_set_weight(m, "a/kernel", &seven, 1) == MIRT_OK;
    for (int d = 0; d < 3; d++) {
        float have = 0;
        good = good && mirt_get_weight(m, "a/kernel", d, &have, 1) == MIRT_OK && have == 7;
    }
    ok(good, "a weight is set on every device");
    mirt_strategy_destroy(s);
}

/* A second compile keeps the weights, and starts the optimizer anew. */
static void check_compile_anew(void) {
    char before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    mirt_model *m = image_model(strategy, mirt_adam(1e-3f), 0);
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    bool good = m && mirt_train_step(m, images_x(0, 9), images_y(0, 9), NULL) == MIRT_OK && mirt_step(m) == 1 &&
                mirt_set_learning_rate(m, 0.5) == MIRT_OK;
    digest_weights(m, 0, before);
    good = good && mirt_compile(m, &c) == MIRT_OK;
    digest_weights(m, 0, after);
    float largest = 0;
    for (size_t i = 0; good && i < m->weight_bytes / sizeof(float); i++)
        largest = fmaxf(largest, fabsf(((const float *)(const void *)m->slot[1])[i]));
    ok(good && strcmp(before, after) == 0 && mirt_step(m) == 0 && largest == 0 &&
           mirt_get_learning_rate(m) == (double)1e-3f,
       "a second compile keeps the weights and starts steps, slots and rate anew");
    mirt_model_destroy(m);
}

/* >>layers on a model that has its weights: Keras's Model(base.input, Dense(base.output)) */

/* Not compiled. */
static mirt_model *base_model(mirt_strategy *s, const char *name) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_model_output(
        m, dense_of(
               mirt_batch_norm(dense_of(mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1))), 7, "one"), NULL),
               6, "two"));
    return m;
}

static void set_all(mirt_model *m, float value) {
    for (int i = 0; i < mirt_num_weights(m); i++) {
        mirt_weight_info info;
        if (mirt_weight(m, i, &info) != MIRT_OK) return;
        float *v = (float *)calloc((size_t)info.count, sizeof *v);
        for (int64_t k = 0; k < info.count; k++) v[k] = value + 0.01f * (float)((k + i) % 11);
        mirt_set_weight(m, info.name, v, (size_t)info.count);
        free(v);
    }
}

static mirt_status compile_head(mirt_model *m) {
    mirt_compile_desc c = image_compile(mirt_adam(1e-2f));
    return mirt_compile(m, &c);
}

/* The same weights and the same training, wherever the weights were before the head. */
static void check_head(const char *devices) {
    char trained[2][MIRT__SHA256_HEX];
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = devices;
    d.seed = 5;
    d.silent = true;
    mirt_strategy *s = mirt_strategy_create(&d);
    for (int late = 0; late < 2; late++) {
        mirt_model *m = base_model(s, "base");
        size_t base = 0, all = 0;
        if (late) set_all(m, 0.2f);
        float *before = late ? all_weights(m, 0, &base) : NULL;
        mirt_tensor *x = dense_of(mirt_output_of(m, 0), IMAGE_CLASSES, "head");
        mirt_model_output(m, x);
        ok(x && compile_head(m) == MIRT_OK && mirt_output_of(m, 0) == x, "%s devices: a head on a model %s weights: %s",
           devices, late ? "that has its" : "without", x ? "compiled" : mirt_last_error());
        if (!late) set_all(m, 0.2f);
        float *after = all_weights(m, mirt_num_devices(s) - 1, &all), head[6 * IMAGE_CLASSES], fresh[6 * IMAGE_CLASSES];
        if (late) {
            mirt_model *other = base_model(s, "base");
            dense_of(mirt_output_of(other, 0), IMAGE_CLASSES, "head");
            const bool read = mirt_get_weight(other, "head/kernel", 0, fresh, 6 * IMAGE_CLASSES) == MIRT_OK &&
                              mirt_get_weight(m, "head/kernel", 0, head, 6 * IMAGE_CLASSES) == MIRT_OK;
            ok(all > base && memcmp(before, after, base * sizeof *before) == 0,
               "the weights that were there are kept: %d of %d", (int)base, (int)all);
            ok(read && memcmp(head, fresh, sizeof head) == 0,
               "the new layer begins as it does in a model recorded at once");
            mirt_model_destroy(other);
            set_all(m, 0.2f);
        }
        bool good = true;
        for (int i = 0; i < 3 && good; i++)
            good = mirt_train_step(m, images_x(9 * i, 9), images_y(9 * i, 9), NULL) == MIRT_OK;
        digest_weights(m, 0, trained[late]);
        ok(good && copies_agree(m), "it trains: %s", good ? "three steps" : mirt_last_error());
        free(before);
        free(after);
        mirt_model_destroy(m);
    }
    ok(strcmp(trained[0], trained[1]) == 0, "and to the same bits");
    mirt_strategy_destroy(s);
}

/* A ready-made network with weights from a file, the head after one of its layers. */
static void check_ready_made(void) {
    char path[1024];
    mirt_application_desc with;
    memset(&with, 0, sizeof with);
    snprintf(path, sizeof path, "%s/test_model_%ld.safetensors", tap_tmpdir(), (long)getpid());
    mirt_model *trained = mirt_application(strategy, "mnist", NULL);
    set_all(trained, 0.1f);
    ok(mirt_save(trained, path, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK, "weights for a ready-made network are saved");
    with.weights = path;
    mirt_model *m = mirt_application(strategy, "mnist", &with);
    mirt_tensor *x = mirt_relu(mirt_output_of(m, 0)), *y = dense_of(x, 3, "head");
    mirt_model_output(m, y);
    mirt_weight_info first;
    mirt_weight(trained, 0, &first);
    float *have = (float *)calloc((size_t)first.count + 1, sizeof *have),
          *want = (float *)calloc((size_t)first.count + 1, sizeof *want);
    const bool compiled = compile_head(m) == MIRT_OK;
    const bool read = mirt_get_weight(m, first.name, 0, have, (size_t)first.count) == MIRT_OK &&
                      mirt_get_weight(trained, first.name, 0, want, (size_t)first.count) == MIRT_OK;
    ok(y && compiled && mirt_tensor_shape(mirt_output_of(m, 0)).dim[1] == 3 && read &&
           memcmp(have, want, (size_t)first.count * sizeof *have) == 0,
       "a head on a ready-made network with weights: %s", compiled ? "compiled" : mirt_last_error());
    free(have);
    free(want);
    remove(path);
    mirt_model_destroy(m);
    mirt_model_destroy(trained);
}

static bool call_body(mirt_function *function, void *user) {
    return mirt_function_result(function, "y",
                                mirt_call((mirt_model *)user, mirt_function_x(function, 0), MIRT_TRAINING_OFF)) ==
           MIRT_OK;
}

/* What knows the weights' old places: predictions, a view, a part, a function. */
static void check_sharers(void) {
    float seen[2][6], kernel[2][7 * 6];
    mirt_model *part = base_model(strategy, "part"), *m = mirt_model_create(strategy, "whole");
    set_all(part, 0.3f);
    mirt_tensor *x = mirt_call(part, mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), MIRT_TRAINING_AUTO);
    mirt_model_output(m, x);
    mirt_model *view = mirt_model_view(m, &x, 1);
    mirt_dataset *data = mirt_distribute(strategy, mirt_batch(mirt_arrays(images_x(0, 4), images_y(0, 4)), 4));
    mirt_function *f = mirt_function_create(m, data, call_body, part);
    bool good = view && f && mirt_predict_arrays(m, images_x(0, 1), seen[0], 6) == MIRT_OK &&
                mirt_get_weight(part, "two/kernel", 0, kernel[0], 42) == MIRT_OK;
    ok(good, "a model, a view of it and a part in it: %s", good ? "ready" : mirt_last_error());
    mirt_tensor *y = mirt_multiply(x, mirt_variable(m, "scale", MIRT_SHAPE(6), mirt_constant(2), true));
    mirt_model_output(m, y);
    ok(y && mirt_get_weight(part, "two/kernel", 0, kernel[1], 42) == MIRT_OK &&
           memcmp(kernel[0], kernel[1], sizeof kernel[0]) == 0,
       "a part keeps its weights when the whole gets another");
    y = dense_of(y, 2, "head");
    ok(y && mirt_predict_arrays(view, images_x(0, 1), seen[1], 6) == MIRT_OK &&
           memcmp(seen[0], seen[1], sizeof seen[0]) == 0,
       "a view predicts what it did");
    good = mirt_predict_arrays(m, images_x(0, 1), seen[1], 6) == MIRT_OK;
    for (int i = 0; i < 6; i++) good = good && seen[1][i] == 2 * seen[0][i];
    ok(good, "predictions are those of the new output");
    mirt_global_batch batch;
    mirt_dataset_next(data, &batch);
    ok(mirt_function_run(f, &batch) == MIRT_E_STATE, "a function recorded before says so: \"%s\"", mirt_last_error());
    ok(compile_head(view) == MIRT_OK && mirt_train_step(view, images_x(0, 4), images_y(0, 4), NULL) == MIRT_OK,
       "the view is trained: %s", mirt_last_error());
    ok(!dense_of(y, 3, "late") && mirt_last_status() == MIRT_E_STATE && strstr(mirt_last_error(), "is compiled"),
       "then the whole gets no more layers: \"%s\"", mirt_last_error());
    ok(mirt_train_step(view, images_x(0, 4), images_y(0, 4), NULL) == MIRT_OK,
       "and the view's optimizer keeps its state: %s", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_model_destroy(view);
    mirt_model_destroy(m);
    mirt_model_destroy(part);
}

/* What cannot be added is an error of the call, and of the next mirt_compile where the call returns nothing. */
static void check_dropped(void) {
    mirt_model *m = base_model(strategy, "base"), *part = base_model(strategy, "part"),
               *whole = mirt_model_create(strategy, "whole");
    ok(compile_head(m) == MIRT_OK, "compiled");
    mirt_tensor *x = dense_of(mirt_output_of(m, 0), 5, NULL);
    ok(!x && mirt_last_status() == MIRT_E_STATE && strstr(mirt_last_error(), "mirt_call(base, mirt_input(new_model"),
       "a head on a compiled model: \"%s\"", mirt_last_error());
    ok(!mirt_variable(m, "w", MIRT_SHAPE(2), mirt_zeros(), true) && mirt_last_status() == MIRT_E_STATE,
       "a weight of its own: \"%s\"", mirt_last_error());
    ok(compile_head(m) == MIRT_OK, "and the caller may continue without");
    mirt_model_output(m, x);
    ok(mirt_train_step(m, images_x(0, 9), images_y(0, 9), NULL) == MIRT_OK, "the model is as it was");
    ok(compile_head(m) == MIRT_E_STATE && strstr(mirt_last_error(), "base is compiled"),
       "but is not compiled without its new output: \"%s\"", mirt_last_error());
    ok(compile_head(m) == MIRT_OK, "which is said once: %s", mirt_last_error());
    mirt_model_destroy(m);

    x = mirt_call(part, mirt_input(whole, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), MIRT_TRAINING_AUTO);
    ok(x && !dense_of(mirt_output_of(part, 0), 5, NULL) && mirt_last_status() == MIRT_E_STATE,
       "a head on a part: \"%s\"", mirt_last_error());
    mirt_model_output(part, mirt_relu(mirt_output_of(part, 0)));
    ok(mirt_last_status() == MIRT_E_STATE && compile_head(part) == MIRT_E_STATE &&
           strstr(mirt_last_error(), "is a part of whole already"),
       "another output of it: \"%s\"", mirt_last_error());
    mirt_model_output(whole, x);
    ok(compile_head(whole) == MIRT_OK, "the whole compiles");
    mirt_model_destroy(whole);
    mirt_model_destroy(part);

    for (int k = 0; k < 3; k++) {
        m = base_model(strategy, "base");
        mirt_tensor *none[2] = {mirt_output_of(m, 0), NULL};
        if (k == 0) mirt_model_output(m, NULL);
        else mirt_model_outputs(m, k == 1 ? none : NULL, k == 1 ? 2 : 1);
        ok(compile_head(m) != MIRT_OK && strstr(mirt_last_error(), "mirt_model_output: no tensor"),
           "NULL as an output: \"%.120s\"", mirt_last_error());
        mirt_model_destroy(m);
    }
}

/* >>defaults of layers */

static mirt_shape pooled(int size_h, int size_w, int stride_h, int stride_w) {
    mirt_pool2d_desc d;
    memset(&d, 0, sizeof d);
    d.size[0] = size_h;
    d.size[1] = size_w;
    d.strides[0] = stride_h;
    d.strides[1] = stride_w;
    mirt_model *m = mirt_model_create(strategy, "pool");
    mirt_shape shape = mirt_tensor_shape(mirt_max_pool2d(mirt_input(m, MIRT_SHAPE(25, 25, 1)), &d));
    mirt_model_destroy(m);
    return shape;
}

static void check_defaults(void) {
    static const int set[][6] = {{0, 0, 0, 0, 12, 12}, {3, 0, 0, 0, 8, 8},   {3, 2, 0, 0, 8, 12},
                                 {3, 2, 3, 0, 8, 8},   {3, 2, 1, 0, 23, 24}, {3, 2, 2, 5, 12, 5}};
    for (int i = 0; i < MIRT__COUNT(set); i++) {
        mirt_shape s = pooled(set[i][0], set[i][1], set[i][2], set[i][3]);
        ok(s.rank == 4 && s.dim[1] == set[i][4] && s.dim[2] == set[i][5],
           "pool %d, %d with strides %d, %d makes %d x %d of 25 x 25", set[i][0], set[i][1], set[i][2], set[i][3],
           (int)s.dim[1], (int)s.dim[2]);
    }
}

/* >>losses after their activation */

/* The loss of logits (x, -x) after `kind` against `y`, in evaluate; NAN when it fails. */
static double loss_behind(mirt_activation_kind kind, mirt_loss loss, float x, const float *y, int labels) {
    const float logits[2] = {x, -x};
    mirt_logs logs;
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = loss;
    mirt_model *m = mirt_model_create(strategy, "after");
    mirt_model_output(m, mirt_activation(mirt_input(m, MIRT_SHAPE(2)), kind));
    bool good = mirt_compile(m, &c) == MIRT_OK &&
                mirt_evaluate_arrays(m, mirt_make_array(logits, MIRT_FLOAT32, MIRT_SHAPE(1, 2)),
                                     mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(1, labels)), &logs) == MIRT_OK;
    mirt_model_destroy(m);
    return good ? logs.value[0] : NAN;
}

/* Probabilities are clipped at 1e-7, a loss of 16.1; computed from the logits it knows no such bound. */
static void check_losses_behind_activations(void) {
    const float second[1] = {1}, wrong[2] = {0, 1};
    double sparse = loss_behind(MIRT_SOFTMAX, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, 20, second, 1);
    double categorical = loss_behind(MIRT_SOFTMAX, MIRT_CATEGORICAL_CROSSENTROPY, 20, wrong, 2);
    double binary = loss_behind(MIRT_SIGMOID, MIRT_BINARY_CROSSENTROPY, 20, wrong, 2);
    double squared = loss_behind(MIRT_SIGMOID, MIRT_MEAN_SQUARED_ERROR, 20, wrong, 2);
    double other = loss_behind(MIRT_SIGMOID, MIRT_CATEGORICAL_CROSSENTROPY, 20, wrong, 2);
    ok(fabs(sparse - 40) < 1e-5 && fabs(categorical - 40) < 1e-5, "softmax and its losses: %.4f, %.4f", sparse,
       categorical);
    ok(fabs(binary - 20) < 1e-5, "sigmoid and its loss: %.4f", binary);
    ok(fabs(squared - 1) < 1e-5 && fabs(other - 16.118) < 1e-2,
       "losses of other activations take what these give: %.4f, %.4f", squared, other);
}

/* Counted by hand: a convolution of 4 filters of 3x3x2 with biases makes (4, 3, 4) of (6, 5, 2). */
static void check_summary(void) {
    static const struct { const char *layer; int64_t parameters, macs;
    } want[] = {{"conv2d (Conv2D)", 3 * 3 * 2 * 4 + 4, 4 * 3 * 4 * 18},
                {"batch_normalization (BatchNormalization)", 16, 0},
                {"flatten (Flatten)", 0, 0},
                {"dense (Dense)", 48 * 3 + 3, 48 * 3}};
    mirt_model *m = mirt_model_create(strategy, "counted");
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    conv.filters = 4;
    conv.kernel[0] = dense.units = 3;
    mirt_tensor *x = mirt_batch_norm(mirt_conv2d(mirt_input(m, MIRT_SHAPE(6, 5, 2)), &conv), NULL);
    mirt_model_output(m, mirt_dense(mirt_flatten(x), &dense));
    const char *text = mirt_compile(m, NULL) == MIRT_OK ? mirt_summary(m, 4) : NULL;
    if (!ok(text != NULL, "a summary%s", text ? "" : mirt_last_error())) return;
    for (int i = 0; i < MIRT__COUNT(want); i++) {
        /* of the class, then of the shape */
        const char *line = strstr(text, want[i].layer), *numbers = line ? strchr(line, ')') : NULL;
        long long parameters = -1;
        double macs = -1;
        numbers = numbers ? strchr(numbers + 1, ')') : NULL;
        bool good = numbers && sscanf(numbers + 1, "%lld %lf", &parameters, &macs) == 2 &&
                    parameters == want[i].parameters && macs == (double)want[i].macs;
        ok(good, "%s: %lld parameters, %g multiply-accumulates", want[i].layer, parameters, macs);
    }
    ok(strstr(text, "Total parameters: 239 (956 bytes), 0.001 million") &&
           strstr(text, "Trainable: 231, not trainable: 8\n"),
       "and in all");
    mirt_model_destroy(m);
}

int main(void) {
    draw_images();
    strategy = strategy_of(1, 1, 1);
    check_errors();
    check_compile_errors();
    check_weight_errors();
    check_initializers();
    check_seeds();
    check_copies();
    check_compile_anew();
    check_head("1");
    check_head("3");
    check_ready_made();
    check_sharers();
    check_dropped();
    check_defaults();
    check_losses_behind_activations();
    check_summary();
    mirt_strategy_destroy(strategy);
    return done_testing();
}
