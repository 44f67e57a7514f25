/* Tests calls at the wrong time or with wrong arguments. They are refused with a message and change nothing. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

enum { N = 6, SIDE = 4, PIXELS = SIDE * SIDE };
static mirt_strategy *strategy;
static uint8_t bytes[N * PIXELS], labels[N];
static float floats[N * PIXELS];

static mirt_array xs(void) { return mirt_make_array(bytes, MIRT_UINT8, MIRT_SHAPE(N, SIDE, SIDE)); }
static mirt_array fs(void) { return mirt_make_array(floats, MIRT_FLOAT32, MIRT_SHAPE(N, SIDE, SIDE)); }
static mirt_array ys(void) { return mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(N)); }

static void refused(int failed, mirt_status status, const char *says) {
    ok(failed && mirt_last_status() == status && strstr(mirt_last_error(), says), "%s", mirt_last_error());
}

static mirt_tensor *dense(mirt_tensor *x, int units, const char *name) {
    mirt_dense_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    desc.name = name;
    return mirt_dense(x, &desc);
}

static mirt_status compile(mirt_model *model, mirt_loss loss) {
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.loss = loss;
    desc.from_logits = true;
    if (loss == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY) desc.metrics[0] = MIRT_ACCURACY;
    return mirt_compile(model, &desc);
}

static mirt_model *small_model(void) {
    mirt_model *model = mirt_model_create(strategy, "small");
    mirt_model_output(model, dense(mirt_flatten(mirt_input(model, MIRT_SHAPE(SIDE, SIDE))), 3, NULL));
    compile(model, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY);
    return model;
}

static int works(mirt_model *model) {
    float out[N * 3];
    return mirt_train_step(model, xs(), ys(), NULL) == MIRT_OK &&
           mirt_predict_arrays(model, xs(), out, N * 3) == MIRT_OK;
}

static void test_views(void) {
    mirt_model *model = small_model(), *other = mirt_model_create(strategy, "other");
    mirt_tensor *flat = mirt_layer_output(model, "flatten");
    mirt_model *view = mirt_model_view(model, &flat, 1);
    float out[N * PIXELS];
    ok(mirt_predict_arrays(view, xs(), out, N * PIXELS) == MIRT_OK, "a view predicts without being compiled");
    refused(mirt_evaluate_arrays(view, xs(), ys(), NULL) != MIRT_OK, MIRT_E_STATE, "call mirt_compile first");
    mirt_compile(view, NULL);
    refused(mirt_save(view, "view.safetensors", MIRT_SAVE_ALL) != MIRT_OK, MIRT_E_STATE,
            "a view of small is saved as weights alone");
    refused(!mirt_call(view, mirt_input(other, MIRT_SHAPE(SIDE, SIDE)), MIRT_TRAINING_AUTO), MIRT_E_STATE,
            "a view shares the weights of the model");
    ok(works(model), "the model is as it was");
}

static void test_order(void) {
    float kernel[PIXELS * 3] = {0};
    mirt_model *model = small_model();
    refused(!dense(model->output[0], 4, NULL), MIRT_E_STATE, "layers come before mirt_compile");
    ok(works(model), "the model is as it was");
    mirt_model_output(model, model->input[0]);
    refused(1, MIRT_E_STATE, "mirt_model_output comes before mirt_compile");
    ok(works(model), "the model is as it was");
    refused(mirt_grad(model, NULL) != MIRT_OK, MIRT_E_STATE, "call mirt_scatter first");
    refused(mirt_get_gradient(model, "dense/kernel", 0, kernel, PIXELS * 3) != MIRT_OK, MIRT_E_STATE,
            "call mirt_grad first");
    ok(mirt_evaluate_arrays(model, xs(), ys(), NULL) == MIRT_OK && mirt_scatter(model, xs(), ys()) == MIRT_OK &&
           mirt_evaluate_arrays(model, xs(), ys(), NULL) == MIRT_OK,
       "a batch is scattered, another is evaluated");
    refused(mirt_grad(model, NULL) != MIRT_OK, MIRT_E_STATE, "call mirt_scatter first");
    ok(mirt_scatter(model, xs(), ys()) == MIRT_OK && mirt_grad(model, NULL) == MIRT_OK &&
           mirt_train_step(model, xs(), ys(), NULL) == MIRT_OK,
       "a step comes between grad and all-reduce");
    refused(mirt_all_reduce(model) != MIRT_OK, MIRT_E_STATE, "call mirt_grad first");
    refused(mirt_grad(model, NULL) != MIRT_OK, MIRT_E_STATE, "call mirt_scatter first");
    mirt_model_destroy(model);

    model = mirt_model_create(strategy, NULL);
    mirt_tensor *x = dense(mirt_flatten(mirt_input(model, MIRT_SHAPE(SIDE, SIDE))), 3, NULL);
    ok(mirt_set_weight(model, "dense/kernel", kernel, PIXELS * 3) == MIRT_OK,
       "weights may be set before the model is compiled");
    ok(dense(x, 4, NULL) != NULL, "so may layers be added");
    mirt_model_output(model, x);
    ok(compile(model, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY) == MIRT_OK && works(model), "and it is compiled");
    mirt_model_destroy(model);
}

static void test_compile_again(void) {
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    mirt_model *model = mirt_model_create(strategy, NULL);
    mirt_model_output(model, dense(mirt_input(model, MIRT_SHAPE(SIDE, SIDE)), 1, NULL));
    ok(compile(model, MIRT_MEAN_SQUARED_ERROR) == MIRT_OK, "an output of rank 3 with mean squared error");
    refused(compile(model, MIRT_CATEGORICAL_CROSSENTROPY) != MIRT_OK, MIRT_E_SHAPE,
            "categorical_crossentropy needs an output of (rows, classes)");
    desc.loss = MIRT_MEAN_SQUARED_ERROR;
    desc.metrics[0] = MIRT_SPARSE_CATEGORICAL_ACCURACY;
    refused(mirt_compile(model, &desc) != MIRT_OK, MIRT_E_SHAPE, "accuracy needs an output of (rows, classes)");
    desc.metrics[0] = MIRT_METRIC_NONE;
    refused(compile(model, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY) != MIRT_OK, MIRT_E_SHAPE,
            "needs an output of (rows, classes)");
    desc.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.optimizer = mirt_sgd(0.1f, 0, false);
    refused(mirt_compile(model, &desc) != MIRT_OK, MIRT_E_SHAPE, "needs an output of (rows, classes)");
    mirt_array y = mirt_make_array(floats, MIRT_FLOAT32, MIRT_SHAPE(N, SIDE, 1));
    ok(mirt_train_step(model, xs(), y, NULL) == MIRT_OK && mirt_save(model, "/dev/null", MIRT_SAVE_ALL) == MIRT_E_IO,
       "it still trains as it was compiled");
    mirt_model_destroy(model);
}

/* Whoever looks at errors at the end alone is told of the first. */
static void test_compile_failed(void) {
    mirt_model *model = mirt_model_create(strategy, "half_made"), *wrong = mirt_model_create(strategy, "wrong");
    mirt_model *missing = mirt_load(strategy, "nowhere.safetensors");
    mirt_model_output(model,
                      dense(mirt_call(missing, mirt_input(model, MIRT_SHAPE(PIXELS)), MIRT_TRAINING_AUTO), 3, NULL));
    refused(!mirt_fit_arrays(model, xs(), ys(), NULL), MIRT_E_NOT_FOUND, "nowhere.safetensors: cannot");
    refused(compile(model, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY) != MIRT_OK, MIRT_E_NOT_FOUND,
            "nowhere.safetensors: cannot");
    mirt_model_output(wrong, dense(mirt_input(wrong, MIRT_SHAPE(SIDE, SIDE)), 1, NULL));
    refused(!mirt_fit_arrays(wrong, xs(), ys(), NULL), MIRT_E_STATE, "wrong is not compiled; call mirt_compile first");
    ok(compile(wrong, MIRT_CATEGORICAL_CROSSENTROPY) == MIRT_E_SHAPE && !mirt_load(strategy, "elsewhere.safetensors"),
       "another failure comes between");
    refused(!mirt_fit_arrays(wrong, xs(), ys(), NULL), MIRT_E_SHAPE,
            "categorical_crossentropy needs an output of (rows, classes)");
    ok(compile(wrong, MIRT_MEAN_SQUARED_ERROR) == MIRT_OK, "and it may be compiled as it should be");
    mirt_model_destroy(model);
    mirt_model_destroy(wrong);
}

/* >>callbacks that do what they must not, and what they may */

static int nested_fit(const mirt_event *event, void *user) {
    (void)user;
    refused(!mirt_fit_arrays(event->model, xs(), ys(), NULL), MIRT_E_STATE, "from its own callback");
    refused(compile(event->model, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY) != MIRT_OK, MIRT_E_STATE, "is being trained");
    return 0;
}

static int other_dtype(const mirt_event *event, void *user) {
    mirt_logs logs;
    int *good = (int *)user;
    *good += mirt_evaluate_arrays(event->model, fs(), ys(), &logs) == MIRT_OK;
    return 0;
}

static void test_callbacks(void) {
    mirt_model *model = small_model(), *plain = small_model();
    mirt_callback wrong, busy;
    mirt_fit_desc desc;
    int good = 0;
    memset(&wrong, 0, sizeof wrong);
    memset(&busy, 0, sizeof busy);
    memset(&desc, 0, sizeof desc);
    wrong.epoch_begin = nested_fit;
    busy.user = &good;
    busy.batch_begin = busy.batch_end = other_dtype;
    desc.callbacks[0] = &busy;
    desc.epochs = 2;
    desc.batch = 4;
    desc.no_progress = true;
    desc.validation = mirt_arrays(xs(), ys());
    mirt_history *history = mirt_fit_arrays(model, xs(), ys(), &desc);
    double loss = mirt_history_last(history, "val_loss");
    ok(history && good == 8, "callbacks may evaluate data of another dtype: %s", history ? "yes" : mirt_last_error());
    memset(desc.callbacks, 0, sizeof desc.callbacks);
    history = mirt_fit_arrays(plain, xs(), ys(), &desc);
    ok(history && loss == mirt_history_last(history, "val_loss"),
       "and training continues with bit-identical results");
    desc.callbacks[0] = &wrong;
    desc.epochs = 1;
    ok(mirt_fit_arrays(model, xs(), ys(), &desc) != NULL, "fit continues after a callback was refused");
    mirt_dataset_destroy((mirt_dataset *)desc.validation);
    mirt_model_destroy(model);
    mirt_model_destroy(plain);
}

/* >>custom weights, and what is frozen */

/* The body of a function adds to the model that it is recorded for, which has its weights but is not compiled. */
static bool extend(mirt_function *f, void *user) {
    mirt_model *m = (mirt_model *)user;
    (void)f;
    refused(!mirt_variable(m, "late", MIRT_SHAPE(2), mirt_ones(), true), MIRT_E_STATE,
            "bare is being trained or recorded; weights of its own of bare have to wait");
    return false;
}

static void test_own_weights(void) {
    float values[PIXELS] = {0};
    mirt_initializer usual;
    memset(&usual, 0, sizeof usual);
    mirt_model *model = mirt_model_create(strategy, "bare");
    ok(mirt_variable(model, "w", MIRT_SHAPE(SIDE, SIDE), usual, true) != NULL &&
           mirt_get_weight(model, "w", 0, values, PIXELS) == MIRT_OK,
       "a weight whose initializer is not said");
    double most = 0, least = 0;
    for (int i = 0; i < PIXELS; i++) {
        most = fmax(most, (double)values[i]);
        least = fmin(least, (double)values[i]);
    }
    ok(most > 0 && least < 0 && most < 0.5 && least > -0.5, "begins glorot_uniform: %g to %g", least, most);
    ok(!mirt_function_create(model, NULL, extend, model), "a body that adds a weight is refused");
    ok(mirt_variable(model, "late", MIRT_SHAPE(2), mirt_ones(), true) != NULL && mirt_num_weights(model) == 2,
       "afterwards it can be added");
    mirt_model_destroy(model);
    model = small_model();
    ok(mirt_set_trainable(model, "flatten", false) == MIRT_OK && mirt_set_trainable(model, "", true) == MIRT_OK &&
           mirt_set_trainable(model, NULL, true) == MIRT_OK,
       "a layer without weights, and all of them, can be frozen");
    refused(mirt_set_trainable(model, "flaten", false) != MIRT_OK, MIRT_E_NOT_FOUND, "did you mean \"flatten\"?");
    mirt_model_destroy(model);
}

static void test_arguments(void) {
    float out[PIXELS * 3];
    mirt_model *model = small_model();
    mirt_array bad = xs();
    bad.dtype = (mirt_dtype)9;
    refused(mirt_train_step(model, bad, ys(), NULL) != MIRT_OK, MIRT_E_INVALID, "unknown dtype 9");
    bad = xs();
    bad.shape.rank = 1000;
    refused(mirt_train_step(model, bad, ys(), NULL) != MIRT_OK, MIRT_E_SHAPE, "at most 6");
    bad = ys();
    bad.shape.rank = 2;
    bad.shape.dim[1] = -1;
    refused(mirt_train_step(model, xs(), bad, NULL) != MIRT_OK, MIRT_E_SHAPE, "every dimension must be positive");
    refused(!mirt_summary(model, INT64_MAX), MIRT_E_NOMEM, "a batch of 9223372036854775807 samples");
    refused(!mirt_graph_text(model, (int64_t)1 << 60), MIRT_E_NOMEM, "a batch of 1152921504606846976 samples");
    refused(mirt_get_weight(model, "dense/kernel", 0, NULL, PIXELS * 3) != MIRT_OK, MIRT_E_INVALID, "no place");
    refused(mirt_set_weight(model, "dense/kernel", NULL, PIXELS * 3) != MIRT_OK, MIRT_E_INVALID, "no values");
    refused(mirt_get_weight(model, "dense/kernal", 0, out, PIXELS * 3) != MIRT_OK, MIRT_E_NOT_FOUND,
            "did you mean \"dense/kernel\"");
    refused(!mirt_batch(mirt_arrays(xs(), ys()), INT64_MAX), MIRT_E_INVALID, "batch");
    mirt_dataset *all = mirt_batch(mirt_arrays(xs(), ys()), INT32_MAX);
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.no_progress = true;
    ok(mirt_fit(model, all, &desc) != NULL, "a batch of INT32_MAX is all samples");
    mirt_dataset_destroy(all);
    mirt_model_destroy(model);
    refused(!mirt_model_create(strategy, "\xff"), MIRT_E_INVALID, "not valid UTF-8");
}

/* Arrays that are not a batch, and rows and gradients of missing replicas, devices and weights. */
static void test_steps(void) {
    enum { count = PIXELS * 3 };
    float out[count];
    int64_t first = 77;
    mirt_model *model = small_model();
    mirt_array bad = xs();
    ok(mirt_replica_rows(NULL, 0, &first) == 0 && first == 0 && mirt_replica_rows(model, 0, NULL) == 0,
       "no model, or none that has trained: no rows");
    bad.data = NULL;
    refused(mirt_train_step(model, bad, ys(), NULL) != MIRT_OK, MIRT_E_INVALID, "the batch has no samples");
    bad = xs();
    bad.shape.rank = 0;
    refused(mirt_train_step(model, bad, ys(), NULL) != MIRT_OK, MIRT_E_INVALID, "the batch has no samples");
    bad = xs();
    bad.shape.dim[0] = 0;
    refused(mirt_train_step(model, bad, ys(), NULL) != MIRT_OK, MIRT_E_INVALID, "the batch has no samples");
    bad = ys();
    bad.data = NULL;
    refused(mirt_train_step(model, xs(), bad, NULL) != MIRT_OK, MIRT_E_INVALID, "the batch has no labels");
    bad = ys();
    bad.shape.rank = 0;
    refused(mirt_train_step(model, xs(), bad, NULL) != MIRT_OK, MIRT_E_INVALID, "the batch has no labels");
    refused(mirt_get_gradient(model, "dense/kernel", 0, out, count) != MIRT_OK, MIRT_E_STATE, "call mirt_grad first");
    ok(mirt_scatter(model, xs(), ys()) == MIRT_OK, "what was refused changes nothing");
    refused(mirt_get_gradient(model, "dense/kernel", 0, out, count) != MIRT_OK, MIRT_E_STATE, "call mirt_grad first");
    ok(mirt_grad(model, NULL) == MIRT_OK && mirt_get_gradient(model, "dense/kernel", 0, out, count) == MIRT_OK,
       "a gradient can be had before the reduction");
    refused(mirt_get_gradient(model, "dense/kernel", -1, out, count) != MIRT_OK, MIRT_E_DEVICE,
            "mirt_get_gradient: there is no device -1; the strategy has 2");
    const int devices = mirt_num_devices(strategy);
    refused(mirt_get_gradient(model, "dense/kernel", devices, out, count) != MIRT_OK, MIRT_E_DEVICE, "is no device");
    refused(mirt_get_gradient(model, "dense/kernel", 0, out, 1) != MIRT_OK, MIRT_E_SHAPE, "elements, not 1");
    refused(mirt_get_gradient(model, NULL, 0, out, 1) != MIRT_OK, MIRT_E_INVALID, "no weight name");
    refused(mirt_get_gradient(model, "dense/kernel", 0, NULL, 1) != MIRT_OK, MIRT_E_INVALID, "no place for the values");
    refused(mirt_get_gradient(NULL, "dense/kernel", 0, out, 1) != MIRT_OK, MIRT_E_STATE, "call mirt_grad first");
    const int replicas = mirt_num_replicas(strategy);
    int64_t rows = 0;
    bool good = true;
    for (int r = 0; r < replicas; r++) {
        const int64_t own = mirt_replica_rows(model, r, &first);
        good = good && first == rows;
        rows += own;
    }
    first = 77;
    good = good && rows == N && mirt_replica_rows(model, replicas, &first) == 0 && first == 0;
    first = 77;
    ok(good && mirt_replica_rows(model, -1, &first) == 0 && first == 0, "rows of all replicas, and of no others");
    mirt_model_destroy(model);
}

/* The first of the recordings that follow is wrong, and mirt_compile tells which. */
static void wrong_recording(int which, const char *says) {
    mirt_model *model = mirt_model_create(strategy, NULL);
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(SIDE, SIDE, 2));
    mirt_conv2d_desc conv;
    mirt_pool2d_desc pool;
    char name[260];
    mirt_shape shape = MIRT_SHAPE(SIDE * SIDE * 2);
    memset(&conv, 0, sizeof conv);
    memset(&pool, 0, sizeof pool);
    memset(name, 'n', 201);
    name[201] = 0;
    conv.filters = 2;
    conv.kernel[0] = 2;
    switch (which) {
    case 0: conv.padding = (mirt_padding)5; break;
    case 1: conv.kernel_initializer = mirt_variance_scaling(1, (mirt_fan)7, MIRT_DIST_UNIFORM); break;
    case 2: conv.kernel_initializer = mirt_variance_scaling(1, MIRT_FAN_IN, (mirt_distribution)7); break;
    case 3: conv.kernel_initializer = mirt_constant((float)INFINITY); break;
    case 4: conv.name = "\xff"; break;
    case 5: conv.name = name; break;
    case 6: conv.strides[0] = -1; break;
    case 7: conv.dilation[0] = conv.dilation[1] = 1 << 30; conv.padding = MIRT_SAME; break;
    case 8: pool.padding = (mirt_padding)-1; break;
    case 9: pool.size[0] = 1 << 30; pool.padding = MIRT_SAME; break;
    case 10: shape.rank = 9; break;
    case 11: shape.rank = -1; break;
    case 12: shape.dim[0] = -1; break;
    default: break;
    }
    x = mirt_max_pool2d(mirt_conv2d(x, &conv), &pool);
    if (which >= 10 && which <= 12) mirt_reshape(model->input[0], shape);
    if (which == 13) mirt_rescale(x, (float)NAN, 0);
    if (which == 14) mirt_cast(x, (mirt_dtype)12);
    if (which == 15) mirt_one_hot(mirt_cast(x, MIRT_INT32), INT64_MAX);
    if (which == 16) mirt_activation(x, (mirt_activation_kind)99);
    if (which == 17) mirt_dropout(x, 1.5f);
    if (which == 18) mirt_reduce_sum(x, 1u << 20, false);
    if (which == 19) mirt_add(x, mirt_input(mirt_model_create(strategy, NULL), MIRT_SHAPE(1)));
    mirt_model_output(model, x ? mirt_flatten(x) : NULL);
    refused(compile(model, MIRT_MEAN_SQUARED_ERROR) != MIRT_OK, mirt_last_status(), says);
    mirt_model_destroy(model);
}

int main(void) {
    static const char *const says[] = {"conv2d: invalid padding (5); it must be MIRT_VALID or MIRT_SAME",
                                       "invalid fan mode (7)",
                                       "invalid distribution (7)",
                                       "must be finite",
                                       "UTF-8",
                                       "1 to 200 bytes",
                                       "must be positive",
                                       "too large",
                                       "max_pooling2d: invalid padding (-1)",
                                       "too large",
                                       "reshape: 9 axes",
                                       "reshape: -1 axes",
                                       "cannot be reshaped",
                                       "scale nan",
                                       "cast: invalid dtype (12); it must be one of mirt_dtype",
                                       "too many elements",
                                       "invalid activation (99); it must be one of mirt_activation_kind",
                                       "rate is 1.5",
                                       "beyond rank",
                                       "another model"};
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "2";
    desc.threads = 1;
    desc.replicas = 3;
    desc.silent = true;
    strategy = mirt_strategy_create(&desc);
    for (int i = 0; i < N; i++) labels[i] = (uint8_t)(i % 3);
    for (int i = 0; i < N * PIXELS; i++) floats[i] = bytes[i] = (uint8_t)(i * 5);
    test_order();
    test_views();
    test_compile_again();
    test_compile_failed();
    test_callbacks();
    test_own_weights();
    test_arguments();
    test_steps();
    for (int i = 0; i < MIRT__COUNT(says); i++) wrong_recording(i, says[i]);
    desc.collective = (mirt_collective)9;
    refused(!mirt_strategy_create(&desc), MIRT_E_INVALID, "invalid collective (9)");
    mirt_strategy_destroy(strategy);
    return done_testing();
}
