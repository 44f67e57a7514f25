/* Saves and loads models of any shape as a whole. They have several inputs and outputs, operations and weights
   outside of layers, loss terms, and custom layers with inner layers. A loaded model predicts, trains and is saved
   again with bit-identical results. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/formula.h"
#include "tap.h"

#include <unistd.h>

static mirt_strategy *strategy;
static char path[512], path_2[512];

static mirt_strategy *quiet(int replicas, uint64_t seed) {
    ZEROED(mirt_strategy_desc, d);
    d.devices = "1";
    d.threads = 1;
    d.replicas = replicas;
    d.seed = seed;
    d.silent = true;
    return mirt_strategy_create(&d);
}

/* >>a custom layer: scale * dense(x) + shift, and a term of the loss */

typedef struct mine {
    int units;
    float scale;
    bool shifted;
} mine;
static int mine_builds;

static mirt_tensor *mine_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    const mine *m = (const mine *)config;
    ZEROED(mirt_dense_desc, d);
    mine_builds++;
    if (num_in != 1 || user != &mine_builds || m->units > 100) return NULL;
    d.units = m->units;
    mirt_tensor *y = mirt_scale(mirt_dense(in[0], &d), m->scale, 0);
    mirt_tensor *shift = mirt_layer_variable(layer, "shift", MIRT_SHAPE(m->units), mirt_constant(0.25f), true);
    mirt_layer_variable(layer, "unused", MIRT_SHAPE(2), mirt_zeros(), false);
    mirt_layer_add_loss(layer, mirt_scale(mirt_reduce_sum(mirt_square(shift), 0, false), 0.5f, 0));
    return m->shifted ? mirt_add(y, shift) : y;
}

static mirt_layer_class mine_class(void) {
    static const mirt_field fields[] = {{"units", MIRT_FIELD_INT, offsetof(mine, units)},
                                        {"scale", MIRT_FIELD_FLOAT, offsetof(mine, scale)},
                                        {"shifted", MIRT_FIELD_BOOL, offsetof(mine, shifted)}};
    ZEROED(mirt_layer_class, c);
    c.class_name = "MyDense";
    c.config_size = sizeof(mine);
    c.fields = fields;
    c.num_fields = 3;
    c.build = mine_build;
    c.user = &mine_builds;
    return c;
}

static mirt_tensor *mine_layer(mirt_tensor *x, int units, float scale, const char *name) {
    mirt_layer_class c = mine_class();
    ZEROED(mine, m);
    m.units = units;
    m.scale = scale;
    m.shifted = true;
    return mirt_custom_layer(&c, &x, 1, &m, name);
}

/* >>a model with everything */

/* Every operation that public functions record, one after the other: (rows, 4) -> (rows, 4). */
static mirt_tensor *operations(mirt_tensor *x) {
    static const float table[6] = {1, -2, 3, 0.5f, 0.25f, -0.125f};
    static const int32_t places[4] = {2, 0, 1, 1};
    static const uint8_t bytes[4] = {1, 0, 3, 7};
    const int64_t begin[2] = {0, 1}, size[2] = {-1, 2}, before[2] = {0, 1};
    const int swapped[3] = {0, 2, 1};
    mirt_tensor *parts[2], *two[2];
    mirt_tensor *y = mirt_add(mirt_relu6(mirt_elu(x, 0.75f)), mirt_stop_gradient(mirt_tanh(x)));
    y = mirt_maximum(mirt_clip(y, -INFINITY, 2), mirt_minimum(mirt_negative(y), mirt_power(mirt_abs(x), 1.5f)));
    y = mirt_where(mirt_logical_and(mirt_less(x, y), mirt_logical_not(mirt_equal(x, y))),
                   mirt_divide(y, mirt_scale(mirt_square(x), 1, 2)), mirt_softplus(y));
    y = mirt_subtract(y, mirt_matmul(mirt_log_softmax(y),
                                     mirt_constant_tensor(y, mirt_make_array(table, MIRT_FLOAT32, MIRT_SHAPE(1, 4))),
                                     false, true));
    y = mirt_multiply(
        mirt_softmax(y),
        mirt_cast(mirt_constant_tensor(y, mirt_make_array(bytes, MIRT_UINT8, MIRT_SHAPE(4))), MIRT_FLOAT32));
    mirt_tensor *rows = mirt_gather(mirt_constant_tensor(y, mirt_make_array(table, MIRT_FLOAT32, MIRT_SHAPE(3, 2))),
                                    mirt_constant_tensor(y, mirt_make_array(places, MIRT_INT32, MIRT_SHAPE(4))));
    y = mirt_add(y, mirt_reduce_sum(rows, 2u, false));
    y = mirt_add(y, mirt_one_hot(mirt_argmax(x, 1), 4));
    y = mirt_add(y, mirt_cumsum(mirt_slice(mirt_pad(y, before, before, -1), begin, size), 1)
                        ? mirt_pad(mirt_slice(y, begin, size), before, before, 0.5f)
                        : NULL);
    mirt_split_tensor(y, 2, 1, parts);
    two[0] = parts[1];
    two[1] = mirt_cumsum(parts[0], -1);
    y = mirt_concat(two, 2, 1);
    y = mirt_reshape(mirt_transpose(mirt_reshape(y, MIRT_SHAPE(2, 2)), swapped), MIRT_SHAPE(4));
    return mirt_subtract(y, mirt_add(mirt_reduce_min(y, 2u, true), mirt_reduce_variance(y, 2u, true)));
}

static mirt_model *everything(mirt_strategy *s, bool train) {
    ZEROED(mirt_conv2d_desc, conv);
    ZEROED(mirt_dense_desc, dense);
    ZEROED(mirt_compile_desc, compile);
    mirt_tensor *both[2], *outputs[2];
    mirt_model *model = mirt_model_create(s, "everything");
    conv.filters = 3;
    conv.kernel[0] = 2;
    conv.kernel_regularizer.l1 = 0.01f;
    conv.bias_regularizer.l2 = 0.25f;
    dense.units = 4;
    dense.kernel_regularizer.l2 = 0.5f;
    mirt_next_name(model, "image");
    mirt_tensor *image = mirt_input(model, MIRT_SHAPE(4, 5, 2)), *more = mirt_input(model, MIRT_SHAPE(4));
    mirt_tensor *weight = mirt_variable(model, "mix", MIRT_SHAPE(4), mirt_random_normal(0, 1), true);
    mirt_tensor *x = mirt_global_max_pool2d(mirt_batch_norm(mirt_conv2d(image, &conv), NULL));
    x = mirt_activation(mirt_dense(mirt_activation(x, MIRT_LINEAR), &dense), MIRT_SILU);
    both[0] = operations(x);
    both[1] = mirt_multiply(more, weight);
    mirt_next_name(model, "joined");
    outputs[0] = mine_layer(mirt_dropout(mirt_concatenate(both, 2, -1), 0.25f), 3, 1.5f, "own");
    outputs[1] = mirt_reduce_mean(mine_layer(outputs[0], 2, -1, NULL), 2u, true);
    mirt_model_outputs(model, outputs, 2);
    mirt_add_loss(model, mirt_scale(mirt_reduce_sum(mirt_square(weight), 0, false), 0.125f, 0));
    mirt_add_loss(model, mirt_reduce_mean(mirt_square(outputs[1]), 0, false));
    compile.loss = train ? MIRT_MEAN_SQUARED_ERROR : MIRT_LOSS_NONE;
    compile.losses[1] = train ? MIRT_BINARY_CROSSENTROPY : MIRT_LOSS_NONE;
    compile.loss_weights[1] = 0.5f;
    compile.from_logits = true;
    if (mirt_compile(model, &compile) == MIRT_OK) return model;
    mirt_model_destroy(model);
    return NULL;
}

enum { ROWS = 5, IMAGE = ROWS * 40 };
static float images[IMAGE], mores[ROWS * 4], wants[ROWS * 3], truths[ROWS];

static mirt_data batch(bool labels) {
    ZEROED(mirt_data, d);
    for (int i = 0; i < IMAGE; i++) images[i] = golden_uniform(1, (uint32_t)i);
    for (int i = 0; i < ROWS * 4; i++) mores[i] = golden_uniform(2, (uint32_t)i);
    for (int i = 0; i < ROWS * 3; i++) wants[i] = golden_uniform(3, (uint32_t)i);
    for (int i = 0; i < ROWS; i++) truths[i] = (float)(i % 2);
    d.x[0] = mirt_make_array(images, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 4, 5, 2));
    d.x[1] = mirt_make_array(mores, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 4));
    if (!labels) return d;
    d.y[0] = mirt_make_array(wants, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 3));
    d.y[1] = mirt_make_array(truths, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1));
    return d;
}

/* Both outputs, or a failure. */
static bool predicted(mirt_model *model, float out[ROWS * 4]) {
    mirt_data d = batch(false);
    float *const to[2] = {out, out + ROWS * 3};
    const size_t capacity[2] = {ROWS * 3, ROWS};
    return model && mirt_predict_on_batch(model, &d, to, capacity) == MIRT_OK;
}

static void test_everything(void) {
    float before[ROWS * 4], after[ROWS * 4];
    mirt_data data = batch(true);
    mirt_logs logs, loaded_logs;
    memset(&logs, 0, sizeof logs);
    mirt_strategy *other = quiet(2, 99);
    mirt_layer_class c = mine_class();
    mirt_model *model = everything(strategy, true);
    ok(model != NULL, "a model with everything is recorded: %s", mirt_last_error());
    ok(model && mirt_train_on_batch(model, &data, &logs) == MIRT_OK, "it trains: %s", mirt_last_error());
    ok(model && predicted(model, before) && mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK, "it is saved whole: %s",
       mirt_last_error());
    mirt_model *none = mirt_load(other, path);
    ok(!none && mirt_last_status() == MIRT_E_FORMAT &&
           strstr(mirt_last_error(), "layer own: unknown layer class MyDense") &&
           strstr(mirt_last_error(), "mirt_register_layer"),
       "a strategy that does not know the class: %s", mirt_last_error());
    ok(mirt_register_layer(other, &c) == MIRT_OK, "which it learns");
    mirt_model *loaded = mirt_load(other, path);
    ok(loaded != NULL, "then it is loaded: %s", mirt_last_error());
    ok(loaded && predicted(loaded, after) && memcmp(before, after, sizeof before) == 0,
       "predictions are the same bits: %s", mirt_last_error());
    bool names = loaded && mirt_num_weights(loaded) == mirt_num_weights(model);
    for (int i = 0; names && i < mirt_num_weights(model); i++) {
        mirt_weight_info a, b;
        names = mirt_weight(model, i, &a) == MIRT_OK && mirt_weight(loaded, i, &b) == MIRT_OK &&
                strcmp(a.name, b.name) == 0 && a.trainable == b.trainable;
    }
    ok(names, "weights have the same names");
    ok(loaded && mirt_save(loaded, path_2, MIRT_SAVE_ALL) == MIRT_OK && tap_same_file(path, path_2),
       "it is saved again to the same bytes: %s", mirt_last_error());
    mirt_model *twin = mirt_load(strategy, path);
    memset(&loaded_logs, 0, sizeof loaded_logs);
    bool trained = twin && mirt_train_on_batch(model, &data, &logs) == MIRT_OK &&
                   mirt_train_on_batch(twin, &data, &loaded_logs) == MIRT_OK;
    ok(trained && logs.count == loaded_logs.count &&
           memcmp(logs.value, loaded_logs.value, (size_t)logs.count * sizeof *logs.value) == 0 &&
           predicted(model, before) && predicted(twin, after) && memcmp(before, after, sizeof before) == 0,
       "and continues training bit-identically: loss %.6f and %.6f: %s", logs.value[0], loaded_logs.value[0],
       mirt_last_error());
    float weight[24];
    ok(model && mirt_get_weight(model, "own/dense/kernel", 0, weight, 24) == MIRT_OK &&
           mirt_get_weight(model, "my_dense/shift", 0, weight, 2) == MIRT_OK &&
           mirt_get_weight(model, "mix", 0, weight, 4) == MIRT_OK &&
           mirt_get_weight(model, "my_dense/dense/bias", 0, weight, 2) == MIRT_OK,
       "a layer inside of a layer has its name before its own: %s", mirt_last_error());
    mirt_model_destroy(model);
    mirt_strategy_destroy(other);
}

/* >>models inside of models */

static mirt_model *inner(const char *name, mirt_model *part) {
    ZEROED(mirt_dense_desc, d);
    mirt_tensor *out[2];
    mirt_model *model = mirt_model_create(strategy, name);
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(3));
    d.units = 3;
    d.kernel_regularizer.l2 = 0.125f;
    if (part) x = mirt_add(mirt_call(part, x, MIRT_TRAINING_AUTO), x);
    out[0] = mirt_batch_norm(mirt_dense(x, &d), NULL);
    out[1] = mirt_dropout(mirt_tanh(out[0]), 0.5f);
    mirt_model_outputs(model, out, part ? 2 : 1);
    return model;
}

/* `middle`, which has `base` inside, is called twice, and shares its weights. */
static void test_parts(void) {
    ZEROED(mirt_compile_desc, compile);
    ZEROED(mirt_data, data);
    mirt_tensor *first[MIRT_MAX_OUTPUTS], *second[MIRT_MAX_OUTPUTS];
    float before[ROWS * 3], after[ROWS * 3], moved[3] = {0}, still[3] = {0};
    double loss = 0, loaded_loss = 1;
    batch(true);
    data.x[0] = mirt_make_array(mores, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 3));
    data.y[0] = mirt_make_array(wants, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 3));
    mirt_model *base = inner("base", NULL), *middle = inner("middle", base),
               *model = mirt_model_create(strategy, "outer");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(3));
    mirt_call_many(middle, &x, 1, MIRT_TRAINING_AUTO, first);
    mirt_next_name(model, "again");
    mirt_call_many(middle, first + 1, 1, MIRT_TRAINING_OFF, second);
    mirt_model_output(model, mirt_add(second[1], mirt_negative(first[0])));
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    compile.optimizer = mirt_sgd(0.5f, 0.9f, false);
    ok(mirt_set_trainable(model, "middle/base", false) == MIRT_OK && mirt_compile(model, &compile) == MIRT_OK,
       "a model in a model in a model: %s", mirt_last_error());
    ok(mirt_train_step(model, data.x[0], data.y[0], NULL) == MIRT_OK &&
           mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK,
       "is trained and saved: %s", mirt_last_error());
    mirt_model *loaded = mirt_load(strategy, path);
    ok(loaded && mirt_num_weights(loaded) == mirt_num_weights(model) && mirt_num_weights(model) == 12,
       "and loaded, each weight once: %s", mirt_last_error());
    ok(loaded && mirt_save(loaded, path_2, MIRT_SAVE_ALL) == MIRT_OK && tap_same_file(path, path_2),
       "saving it again gives the same bytes: %s", mirt_last_error());
    if (loaded) {
        mirt_get_weight(loaded, "middle/base/dense/bias", 0, still, 3);
        mirt_train_step(model, data.x[0], data.y[0], &loss);
        mirt_train_step(loaded, data.x[0], data.y[0], &loaded_loss);
        mirt_get_weight(loaded, "middle/base/dense/bias", 0, moved, 3);
    }
    ok(loaded && loss == loaded_loss && memcmp(still, moved, sizeof still) == 0,
       "both continue training bit-identically (%g, %g), what was frozen still is", loss, loaded_loss);
    ok(loaded && mirt_predict_arrays(model, data.x[0], before, ROWS * 3) == MIRT_OK &&
           mirt_predict_arrays(loaded, data.x[0], after, ROWS * 3) == MIRT_OK &&
           memcmp(before, after, sizeof before) == 0,
       "and predict the same: %s", mirt_last_error());
    mirt_model_destroy(loaded);
    mirt_model_destroy(model);
}

/* >>regularizers */

static void test_regularizers(void) {
    static const float x[2] = {1, 2}, y[2] = {0, 0}, kernel[2] = {3, -2}, bias[1] = {0.5f};
    float dk[2] = {0, 0}, db[1] = {0};
    for (int replicas = 1; replicas <= 3; replicas++) {
        mirt_strategy *s = quiet(replicas, 0);
        ZEROED(mirt_dense_desc, d);
        ZEROED(mirt_compile_desc, compile);
        double loss = 0;
        d.units = 1;
        d.kernel_regularizer.l1 = 0.5f;
        d.kernel_regularizer.l2 = 0.25f;
        d.bias_regularizer.l2 = 2;
        compile.loss = MIRT_MEAN_SQUARED_ERROR;
        mirt_model *model = mirt_model_create(s, NULL);
        mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(2)), &d));
        const mirt_array xs = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(1, 2)),
                         ys = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(1, 1));
        bool good =
            mirt_compile(model, &compile) == MIRT_OK && mirt_set_weight(model, "dense/kernel", kernel, 2) == MIRT_OK &&
            mirt_set_weight(model, "dense/bias", bias, 1) == MIRT_OK && mirt_scatter(model, xs, ys) == MIRT_OK &&
            mirt_grad(model, &loss) == MIRT_OK && mirt_all_reduce(model) == MIRT_OK &&
            mirt_get_gradient(model, "dense/kernel", 0, dk, 2) == MIRT_OK &&
            mirt_get_gradient(model, "dense/bias", 0, db, 1) == MIRT_OK;
        /* y = 3 - 4 + 0.5 = -0.5: 0.25 + 0.5 * 5 + 0.25 * 13 + 2 * 0.25 */
        ok(good && loss == 6.5 && dk[0] == -1 + 0.5f + 1.5f && dk[1] == -2 - 0.5f - 1 && db[0] == -1 + 2,
           "%d replica(s): regularizers are in the loss (%g) and the gradients (%g, %g, %g) once: %s", replicas, loss,
           (double)dk[0], (double)dk[1], (double)db[0], good ? "" : mirt_last_error());
        mirt_strategy_destroy(s);
    }
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_graphs_%ld_a.safetensors", tap_tmpdir(), (long)getpid());
    snprintf(path_2, sizeof path_2, "%s/mirt_graphs_%ld_b.safetensors", tap_tmpdir(), (long)getpid());
    strategy = quiet(1, 7);
    test_everything();
    test_parts();
    test_regularizers();
    unlink(path);
    unlink(path_2);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
