/* What mirt_fit refuses, and data, callbacks and rates that fail in it. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

enum { SAMPLES = 12, FEATURES = 4, CLASSES = 3 };

static float features[SAMPLES][FEATURES], pairs[SAMPLES][2][CLASSES];
static int32_t labels[SAMPLES];
static mirt_strategy *strategy;

static void draw(void) {
    mirt__random random = mirt__random_stream(7, 8);
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = (int32_t)mirt__random_below(&random, CLASSES);
        for (int k = 0; k < FEATURES; k++) features[i][k] = (float)mirt__random_below(&random, 1000) / 500 - 1;
    }
}

static mirt_array xs(void) { return mirt_make_array(features, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, FEATURES)); }
static mirt_array ys(void) { return mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(SAMPLES)); }
static mirt_dataset *samples(void) { return mirt_batch(mirt_arrays(xs(), ys()), 4); }

static mirt_tensor *dense(mirt_tensor *x, int units) {
    mirt_dense_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    return mirt_dense(x, &desc);
}

static mirt_compile_desc classes_of(int output) {
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.optimizer = mirt_sgd(0.1f, 0, false);
    desc.losses[output] = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.from_logits = true;
    return desc;
}

static mirt_model *classifier(void) {
    const mirt_compile_desc desc = classes_of(0);
    mirt_model *model = mirt_model_create(strategy, "classifier");
    mirt_model_output(model, dense(mirt_input(model, MIRT_SHAPE(FEATURES)), CLASSES));
    if (mirt_compile(model, &desc) != MIRT_OK) ok(0, "compiled: %s", mirt_last_error());
    return model;
}

static mirt_fit_desc quiet(void) {
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.no_progress = true;
    return desc;
}

static void refused(bool failed, mirt_status status, const char *says) {
    ok(failed && mirt_last_status() == status && strstr(mirt_last_error(), says), "%s: \"%s\"",
       mirt_status_text(mirt_last_status()), mirt_last_error());
}

/* A fit as if nothing had been. */
static bool trains(mirt_model *model, mirt_dataset *data) {
    const mirt_fit_desc desc = quiet();
    const mirt_history *history = mirt_fit(model, data, &desc);
    return history && history->epochs == 1 && history->steps == 3;
}

/* >>the description */

static void test_negative(void) {
    enum { FIELDS = 7 };
    mirt_model *model = classifier();
    mirt_dataset *data = samples(), *whole = mirt_arrays(xs(), ys());
    for (int i = 0; i < FIELDS; i++) {
        mirt_fit_desc desc = quiet();
        switch (i) {
        case 0: desc.epochs = -1; break;
        case 1: desc.batch = -1; break;
        case 2: desc.max_steps = -1; break;
        case 3: desc.initial_epoch = -1; break;
        case 4: desc.steps_per_epoch = -1; break;
        case 5: desc.validation_steps = -1; break;
        default: desc.validation_freq = -1; break;
        }
        refused(!mirt_fit(model, i == 1 ? whole : data, &desc), MIRT_E_INVALID,
                "mirt_fit: epochs, batch and the numbers of steps cannot be negative");
    }
    ok(mirt_step(model) == 0 && trains(model, data), "which changes nothing");
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(whole);
    mirt_model_destroy(model);
}

/* >>data that are in use */

typedef struct nested {
    mirt_model *model;
    mirt_dataset *outer, *own;
    int refusals;
} nested;

static int fit_with_the_same(const mirt_event *event, void *user) {
    nested *n = (nested *)user;
    mirt_fit_desc desc = quiet();
    (void)event;
    n->refusals += !mirt_fit(n->model, n->outer, &desc) && mirt_last_status() == MIRT_E_STATE &&
                   strcmp(mirt_last_error(), "mirt_fit: this data set is being trained on already") == 0;
    desc.validation = n->outer;
    n->refusals += !mirt_fit(n->model, n->own, &desc) && mirt_last_status() == MIRT_E_STATE &&
                   strcmp(mirt_last_error(), "mirt_fit: the validation data are being trained on") == 0;
    return 0;
}

static void test_busy(void) {
    nested n = {classifier(), samples(), samples(), 0};
    mirt_model *model = classifier();
    mirt_callback callback;
    mirt_fit_desc desc = quiet();
    memset(&callback, 0, sizeof callback);
    callback.batch_end = fit_with_the_same;
    callback.user = &n;
    desc.callbacks[0] = &callback;
    const mirt_history *history = mirt_fit(model, n.outer, &desc);
    ok(history && history->steps == 3 && n.refusals == 6 && mirt_step(n.model) == 0,
       "data that another fit reads are neither trained nor validated with: %d of 6", n.refusals);
    ok(trains(n.model, n.outer) && trains(n.model, n.own), "afterwards they are");
    mirt_dataset_destroy(n.outer);
    mirt_dataset_destroy(n.own);
    mirt_model_destroy(n.model);
    mirt_model_destroy(model);
}

/* >>data that fail or end */

static int64_t bad_sample; /* -1: none */

static int fail_at(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)out, (void)user;
    return index == bad_sample ? 9 : 0;
}

static mirt_dataset *failing(void) {
    mirt_map_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.fn = fail_at;
    desc.name = "sometimes";
    return mirt_batch(mirt_map(mirt_arrays(xs(), ys()), &desc), 4);
}

static void test_failing_data(void) {
    mirt_dataset *data = samples(), *bad = failing();
    mirt_model *model = classifier();
    mirt_fit_desc desc = quiet();
    desc.validation = bad;
    bad_sample = 6;
    refused(!mirt_fit(model, data, &desc), MIRT_E_CALLBACK, "sometimes");
    ok(strstr(mirt_last_error(), "6") && strstr(mirt_last_error(), "9") && mirt_step(model) == 3,
       "validation fails by sample and code, after the epoch's steps: %d", (int)mirt_step(model));
    desc.validation = NULL;
    refused(!mirt_fit(model, bad, &desc), MIRT_E_CALLBACK, "sometimes");
    ok(mirt_step(model) == 4, "training fails at the second batch");
    bad_sample = -1;
    desc.validation = bad;
    const mirt_history *history = mirt_fit(model, data, &desc);
    ok(history && isfinite(mirt_history_last(history, "val_loss")) && trains(model, bad), "and neither is left in use");
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(bad);
    mirt_model_destroy(model);
}

typedef struct stream {
    int64_t length;
    int begun;
} stream;

static int begin_stream(int64_t epoch, void *user) { return (void)epoch, ((stream *)user)->begun++, 0; }

static int next_of_stream(void *const *out, int64_t index, void *user) {
    if (index >= ((const stream *)user)->length) return MIRT_END_OF_DATA;
    memcpy(out[0], features[index], sizeof features[0]);
    memcpy(out[1], &labels[index], sizeof labels[0]);
    return 0;
}

static void test_stream(void) {
    stream s = {0, 0};
    mirt_generator_desc desc;
    mirt_fit_desc fit = quiet();
    mirt_model *model = classifier();
    memset(&desc, 0, sizeof desc);
    desc.fn = next_of_stream;
    desc.begin = begin_stream;
    desc.user = &s;
    desc.num_x = desc.num_y = 1;
    desc.x[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(FEATURES));
    desc.y[0].dtype = MIRT_INT32;
    mirt_dataset *data = mirt_batch(mirt_dataset_from_generator(&desc), 4);
    fit.steps_per_epoch = 5;
    fit.epochs = 2;
    const mirt_history *history = mirt_fit(model, data, &fit);
    ok(history && history->epochs == 0 && history->steps == 0 && mirt_step(model) == 0 && s.begun >= 2,
       "a stream without samples is asked once more, and gives no epoch: %s", history ? "" : mirt_last_error());
    s.length = 6;
    s.begun = 0;
    history = mirt_fit(model, data, &fit);
    ok(history && history->epochs == 2 && history->steps == 10 && s.begun == 5,
       "one of two batches is begun five times for two epochs of five steps: %d", s.begun);
    mirt_dataset_destroy(data);
    mirt_model_destroy(model);
}

/* >>rates */

static float sick_rate(int epoch, float rate, void *user) {
    (void)user;
    return epoch == 1 ? NAN : rate;
}

static void test_rate(void) {
    mirt_model *model = classifier();
    mirt_dataset *data = samples();
    mirt_fit_desc desc = quiet();
    desc.epochs = 3;
    desc.learning_rate = sick_rate;
    refused(!mirt_fit(model, data, &desc), MIRT_E_INVALID, "learning rate");
    ok(mirt_step(model) == 3 && trains(model, data), "after the first epoch; the rate before it stays");
    mirt_dataset_destroy(data);
    mirt_model_destroy(model);
}

/* >>callbacks that fail */

static int just_fail(const mirt_event *event, void *user) {
    (void)event, (void)user;
    return MIRT_CALLBACK_FAILED;
}

static int fail_with_reason(const mirt_event *event, void *user) {
    float value;
    (void)user;
    mirt_get_weight(event->model, "nothing", 0, &value, 1);
    return MIRT_CALLBACK_FAILED;
}

static void test_callbacks(void) {
    mirt_model *model = classifier();
    mirt_dataset *data = samples();
    mirt_callback callback;
    mirt_fit_desc desc = quiet();
    memset(&callback, 0, sizeof callback);
    desc.callbacks[0] = &callback;
    callback.batch_end = just_fail;
    refused(!mirt_fit(model, data, &desc), MIRT_E_CALLBACK, "the callback of the caller failed");
    callback.name = "mine";
    refused(!mirt_fit(model, data, &desc), MIRT_E_CALLBACK, "the callback mine failed");
    callback.batch_end = fail_with_reason;
    refused(!mirt_fit(model, data, &desc), MIRT_E_NOT_FOUND, "has no weight \"nothing\"");
    ok(mirt_step(model) == 3 && trains(model, data), "each after one step, and the next fit is none the worse");
    mirt_dataset_destroy(data);
    mirt_model_destroy(model);
}

/* >>weights of classes */

/* Two outputs, of which the second has the loss. */
static mirt_model *second_output(void) {
    const mirt_compile_desc desc = classes_of(1);
    mirt_tensor *out[2];
    mirt_model *model = mirt_model_create(strategy, "two");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(FEATURES));
    out[0] = dense(x, 5);
    out[1] = dense(x, CLASSES);
    mirt_model_outputs(model, out, 2);
    if (mirt_compile(model, &desc) != MIRT_OK) ok(0, "compiled: %s", mirt_last_error());
    return model;
}

static void test_class_weights(void) {
    const float once[CLASSES] = {1, 1, 1}, twice[CLASSES] = {2, 2, 2};
    float odd[CLASSES] = {1, INFINITY, 1};
    mirt_dataset *data = mirt_batch(mirt_arrays(xs(), ys()), SAMPLES);
    mirt_fit_desc desc = quiet();
    double loss[2];
    desc.num_class_weights = CLASSES;
    for (int i = 0; i < 2; i++) {
        mirt_model *model = second_output();
        desc.class_weights = i ? twice : once;
        loss[i] = mirt_history_last(mirt_fit(model, data, &desc), "loss");
        mirt_model_destroy(model);
    }
    ok(loss[0] > 0 && fabs(loss[1] - 2 * loss[0]) < 1e-5, "of the output that has a loss: %g, doubled %g", loss[0],
       loss[1]);
    mirt_model *model = second_output();
    desc.class_weights = odd;
    refused(!mirt_fit(model, data, &desc), MIRT_E_INVALID, "the weight of class 1 is inf");
    odd[1] = -0.5f;
    refused(!mirt_fit(model, data, &desc), MIRT_E_INVALID, "the weight of class 1 is -0.5");
    desc.num_class_weights = 5;
    refused(!mirt_fit(model, data, &desc), MIRT_E_SHAPE, "has 3 classes");
    mirt_dataset_destroy(data);
    mirt_model_destroy(model);
}

static void test_weights_of_many(void) {
    const float weights[CLASSES] = {1, 2, 3};
    mirt_compile_desc compile = classes_of(0);
    mirt_fit_desc desc = quiet();
    mirt_model *model = mirt_model_create(strategy, "many");
    mirt_model_output(model, mirt_reshape(dense(mirt_input(model, MIRT_SHAPE(FEATURES)), 2 * CLASSES),
                                          MIRT_SHAPE(2, CLASSES)));
    compile.losses[0] = MIRT_MEAN_SQUARED_ERROR;
    desc.class_weights = weights;
    desc.num_class_weights = CLASSES;
    ok(mirt_compile(model, &compile) == MIRT_OK, "an output of two times three values");
    mirt_dataset *data =
        mirt_batch(mirt_arrays(xs(), mirt_make_array(pairs, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 2, CLASSES))), 4);
    refused(!mirt_fit(model, data, &desc), MIRT_E_SHAPE,
            "class weights need class numbers or one-hot labels, not 6 values per sample");
    desc.class_weights = NULL;
    ok(mirt_fit(model, data, &desc) != NULL, "without them it trains");
    mirt_dataset_destroy(data);
    mirt_model_destroy(model);
}

/* >>names of classes */

static void check_names(int units, const char *const *names, int count, int taken, const char *what) {
    mirt_compile_desc compile = classes_of(0);
    mirt_fit_desc desc = quiet();
    mirt_model *model = mirt_model_create(strategy, "named");
    static float targets[SAMPLES][CLASSES];
    int have = -1;
    mirt_model_output(model, dense(mirt_input(model, MIRT_SHAPE(FEATURES)), units));
    compile.losses[0] = MIRT_MEAN_SQUARED_ERROR;
    mirt_dataset *data = mirt_arrays(xs(), mirt_make_array(targets, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, units)));
    const bool good = mirt_set_class_names(data, names, count) == MIRT_OK && mirt_compile(model, &compile) == MIRT_OK &&
                      mirt_fit(model, data, &desc);
    const char *const *own = mirt_model_class_names(model, &have);
    bool same = good && have == taken && (taken > 0) == (own != NULL);
    for (int i = 0; same && i < taken; i++) same = strcmp(own[i], names[i]) == 0;
    ok(same, "%s: the model has %d names%s%s", what, have, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_model_destroy(model);
}

static void test_names(void) {
    static const char *const names[] = {"cat", "dog", "cow"}, *const odd[] = {"cat", "d\xff"};
    check_names(3, names, 3, 3, "a name for each unit");
    check_names(1, names, 2, 2, "two classes of one unit");
    check_names(1, names, 3, 0, "three classes of one unit");
    check_names(2, names, 3, 0, "three classes of two units");
    check_names(2, odd, 2, 0, "a name that no file could hold");
}

int main(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "2";
    desc.replicas = 2;
    desc.threads = 1;
    desc.seed = 3;
    desc.silent = true;
    strategy = mirt_strategy_create(&desc);
    draw();
    test_negative();
    test_busy();
    test_failing_data();
    test_stream();
    test_rate();
    test_callbacks();
    test_class_weights();
    test_weights_of_many();
    test_names();
    mirt_strategy_destroy(strategy);
    return done_testing();
}
