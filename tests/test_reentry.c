/* What a program may do from inside its callbacks, and calls that are given nothing. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

enum { SAMPLES = 10, FEATURES = 4 };

static float x[SAMPLES][FEATURES], y[SAMPLES][1];
static mirt_strategy *strategy;
static mirt_dataset *train;
static mirt_status seen;
static char said[512];
static int warnings;

static mirt_model *model_of(mirt_optimizer optimizer) {
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    dense.units = 1;
    compile.optimizer = optimizer;
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_model *model = mirt_model_create(strategy, "plane");
    mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(FEATURES)), &dense));
    ok(mirt_compile(model, &compile) == MIRT_OK, "compiled: %s", mirt_last_error());
    return model;
}

static int evaluate_training_data(const mirt_event *event, void *user) {
    mirt_logs logs;
    (void)user;
    seen = mirt_evaluate(event->model, train, &logs);
    return 0;
}

static int read_training_data(const mirt_event *event, void *user) {
    mirt_data data;
    (void)event, (void)user;
    seen = mirt_dataset_read(train, 0, NULL, &data);
    if (seen == mirt_dataset_arrays(train, &data) && seen == mirt_save_grid("nothing.png", train, 1, 1)) return 0;
    return seen = MIRT_OK;
}

static int destroy_everything(const mirt_event *event, void *user) {
    (void)user;
    mirt_model_destroy(event->model);
    mirt_strategy_destroy(strategy);
    mirt_dataset_destroy(train);
    seen = mirt_last_status();
    return 0;
}

static void listen(mirt_log_level level, const char *text, void *user) {
    (void)user;
    warnings += level == MIRT_LOG_WARNING;
    if (level <= MIRT_LOG_WARNING) snprintf(said, sizeof said, "%s", text);
}

static mirt_history *fit(mirt_model *model, int (*batch_end)(const mirt_event *event, void *user), int epochs,
                         int64_t steps) {
    mirt_callback callback;
    mirt_fit_desc desc;
    memset(&callback, 0, sizeof callback);
    memset(&desc, 0, sizeof desc);
    callback.batch_end = batch_end;
    desc.callbacks[0] = &callback;
    desc.epochs = epochs;
    desc.max_steps = steps;
    desc.no_progress = true;
    return mirt_fit(model, train, &desc);
}

static float sick(int64_t step, void *user) {
    (void)user;
    return step > 2 ? NAN : 0.01f;
}

static void test_callbacks(void) {
    mirt_history *history = fit(model_of(mirt_sgd(0.001f, 0, false)), evaluate_training_data, 3, 0);
    ok(history && history->steps == 15, "every step of three epochs is made");
    ok(seen == MIRT_E_STATE && strstr(mirt_last_error(), "another call is reading this data set"),
       "evaluating the data under way: %s", mirt_last_error());
    history = fit(model_of(mirt_sgd(0.001f, 0, false)), read_training_data, 1, 0);
    ok(history && history->steps == 5 && seen == MIRT_E_STATE && strstr(mirt_last_error(), "reading this data set"),
       "or reading them: %s", mirt_last_error());
    said[0] = 0;
    history = fit(model_of(mirt_sgd(0.001f, 0, false)), destroy_everything, 1, 0);
    ok(history && history->steps == 5 && strstr(said, "being trained"), "destroying what is being trained: %s", said);
    ok(seen == MIRT_E_STATE && strstr(mirt_last_error(), "cannot be destroyed before that call returns"),
       "and the data: %s", mirt_last_error());
}

static void test_rates(void) {
    mirt_optimizer schedule;
    memset(&schedule, 0, sizeof schedule);
    schedule.schedule = sick;
    mirt_model *model = model_of(schedule);
    ok(!fit(model, NULL, 2, 0) && mirt_step(model) == 3 && strstr(mirt_last_error(), "schedule gave nan for step 3"),
       "%s", mirt_last_error());
    float kernel[FEATURES];
    mirt_get_weight(model, "dense/kernel", 0, kernel, FEATURES);
    ok(kernel[1] == kernel[1], "an Adam of zeros has Keras's betas and epsilon: a gradient of zero moves nothing");
    said[0] = 0;
    warnings = 0;
    mirt_history *history = fit(model_of(mirt_sgd(1e20f, 0, false)), NULL, 4, 0);
    double loss = mirt_history_last(history, "loss");
    ok(history && loss != loss && strstr(said, "not a number since step") && warnings == 1,
       "a loss that is lost is told once: %s", said);
    history = fit(model_of(mirt_adam(0.001f)), NULL, INT_MAX, 7);
    ok(history && history->steps == 7, "the number of epochs costs nothing before they come: %s",
       history ? "" : mirt_last_error());
}

/* >>code of the user that reaches for what it is part of */

static mirt_model *victim, *kin;
static bool refused;

/* Everything that would pull the ground from under a call of `victim` that is under way. */
static void meddle(void) {
    mirt_logs logs;
    mirt_array a = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(2, FEATURES)),
               b = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(2, 1));
    refused = mirt_compile(victim, NULL) == MIRT_E_STATE && mirt_train_step(victim, a, b, NULL) == MIRT_E_STATE;
    if (kin) { /* shares the weights, which would have to move */
        mirt_set_trainable(kin, "dense", false);
        refused = refused && mirt_compile(kin, NULL) == MIRT_E_STATE;
        mirt_set_trainable(kin, "dense", true);
    }
    static int depth;
    if (depth++ == 0) mirt_evaluate_arrays(victim, a, b, &logs);
    depth--;
    said[0] = 0;
    mirt_model_destroy(victim);
    refused = refused && strstr(said, "cannot be destroyed");
    said[0] = 0;
    mirt_strategy_destroy(strategy);
    refused = refused && strstr(said, "cannot be destroyed");
}

static int meddle_at_batch_end(const mirt_event *event, void *user) {
    (void)event, (void)user;
    meddle();
    return 0;
}

static bool meddle_in_body(mirt_function *f, void *user) {
    (void)user;
    meddle();
    return mirt_function_result(f, "weight", mirt_function_variable(f, "dense/kernel")) == MIRT_OK;
}

static mirt_tensor *meddle_in_loss(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    meddle();
    return mirt_square(mirt_subtract(labels, output));
}

static double meddle_in_result(const double *sums, int count, int64_t samples, void *user) {
    (void)sums, (void)count, (void)samples, (void)user;
    meddle();
    return 1;
}

static float meddle_in_schedule(int64_t step, void *user) {
    (void)step, (void)user;
    meddle();
    return 0.01f;
}

static int meddle_in_map(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)out, (void)index, (void)user;
    meddle();
    return 0;
}

/* Samples made by threads beside the one that runs the model. */
static int others_run, others_refused;
static int evaluate_in_map(const void *const *in, void *const *out, int64_t index, void *user) {
    mirt_logs logs;
    (void)in, (void)out, (void)index, (void)user;
    const mirt_status status = mirt_evaluate_arrays(victim, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(2, FEATURES)),
                                                    mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(2, 1)), &logs);
    __atomic_add_fetch(&others_run, 1, __ATOMIC_RELAXED);
    if (status == MIRT_E_STATE && strstr(mirt_last_error(), "another thread"))
        __atomic_add_fetch(&others_refused, 1, __ATOMIC_RELAXED);
    return 0;
}

static int meddle_in_forward(const mirt_op_call *call, void *user) {
    float out[2];
    (void)user;
    meddle();
    refused = refused && mirt_predict_arrays(victim, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(2, FEATURES)), out,
                                             2) == MIRT_E_STATE;
    memcpy(call->out, call->in[0], (size_t)(call->out_shape.dim[0] * call->out_shape.dim[1]) * sizeof(float));
    return 0;
}

static int meddle_in_shape(const mirt_shape *in, int num_in, const void *config, mirt_shape *out, void *user) {
    (void)num_in, (void)config, (void)user;
    *out = in[0];
    meddle();
    return 0;
}

static mirt_tensor *meddle_in_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config,
                                    void *user) {
    (void)layer, (void)num_in, (void)config, (void)user;
    float w[FEATURES];
    meddle();
    refused = refused && mirt_get_weight(victim, "dense/kernel", 0, w, FEATURES) == MIRT_E_STATE;
    return mirt_scale(in[0], 2, 0);
}

static mirt_model *odd_model(bool shape, bool forward, bool build) {
    static const mirt_layer_class layer = {"Odd", 1, 0, NULL, 0, meddle_in_build, NULL};
    mirt_op_class op;
    mirt_dense_desc dense;
    memset(&op, 0, sizeof op);
    memset(&dense, 0, sizeof dense);
    op.name = "odd";
    op.shape = shape ? meddle_in_shape : NULL;
    op.forward = meddle_in_forward;
    dense.units = 1;
    victim = mirt_model_create(strategy, "odd");
    mirt_tensor *t = mirt_dense(mirt_input(victim, MIRT_SHAPE(FEATURES)), &dense);
    if (shape || forward) t = mirt_custom_op(&op, &t, 1, NULL);
    if (build) t = mirt_custom_layer(&layer, &t, 1, NULL, NULL);
    mirt_model_output(victim, t);
    return victim;
}

static void meddled(const char *where) {
    ok(refused, "%s: the model is left alone: %s", where, mirt_last_error());
    refused = false;
}

static void test_meddling(void) {
    static const mirt_custom_loss loss = {"odd", meddle_in_loss, NULL};
    static const mirt_custom_metric metric = {"odd", meddle_in_loss, meddle_in_result, NULL, MIRT_MODE_AUTO};
    mirt_compile_desc desc;
    mirt_map_desc map;
    mirt_logs logs;
    mirt_array a = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, FEATURES)),
               b = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 1));
    victim = model_of(mirt_sgd(0.001f, 0, false));
    kin = mirt_model_view(victim, victim->output, 1);
    fit(victim, meddle_at_batch_end, 1, 0);
    meddled("a callback of fit");
    mirt_function *f = mirt_function_create(victim, NULL, meddle_in_body, NULL);
    meddled("the body of a function");
    ok(f && mirt_function_run(f, NULL) == MIRT_OK, "which runs: %s", f ? "" : mirt_last_error());
    mirt_model_destroy(kin);
    kin = NULL;
    memset(&desc, 0, sizeof desc);
    desc.custom_losses[0] = &loss;
    desc.custom_metrics[0] = &metric;
    desc.optimizer.schedule = meddle_in_schedule;
    ok(mirt_compile(victim, &desc) == MIRT_OK && mirt_train_step(victim, a, b, NULL) == MIRT_OK,
       "a step with such a loss, metric and schedule");
    meddled("a schedule");
    ok(mirt_evaluate_arrays(victim, a, b, &logs) == MIRT_OK, "and an evaluation: %s", mirt_last_error());
    meddled("a metric's result");
    memset(&map, 0, sizeof map);
    map.fn = meddle_in_map;
    mirt_dataset *mapped = mirt_batch(mirt_map(mirt_arrays(a, b), &map), 4);
    mirt_dataset_workers(mapped, 1); /* meddle writes what several threads may not */
    ok(mirt_evaluate(victim, mapped, &logs) == MIRT_OK, "data that are mapped: %s", mirt_last_error());
    meddled("a map");
    mirt_dataset_destroy(mapped);
    map.fn = evaluate_in_map;
    mapped = mirt_batch(mirt_map(mirt_arrays(a, b), &map), 4);
    mirt_dataset_workers(mapped, 3);
    const mirt_status status = mirt_evaluate(victim, mapped, &logs);
    ok(status == MIRT_OK && others_run == SAMPLES && others_refused == SAMPLES,
       "threads that make samples cannot run the model that waits for them: %d of %d were refused", others_refused,
       others_run);
    mirt_dataset_destroy(mapped);
    mirt_compile(odd_model(false, true, false), NULL);
    float out[2];
    ok(mirt_predict_arrays(victim, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(2, FEATURES)), out, 2) == MIRT_OK,
       "a custom op");
    meddled("an op's forward");
    odd_model(false, false, true);
    meddled("a layer's build function");
    odd_model(true, true, false);
    meddled("an op's shape function");
}

/* A part's part goes with its outermost model too. */
static void test_orphans(void) {
    mirt_dense_desc dense;
    float w[FEATURES];
    memset(&dense, 0, sizeof dense);
    dense.units = 1;
    mirt_model *m[3];
    for (int i = 0; i < 3; i++) {
        m[i] = mirt_model_create(strategy, "nest");
        mirt_tensor *in = mirt_input(m[i], MIRT_SHAPE(FEATURES));
        mirt_model_output(m[i], i ? mirt_call(m[i - 1], in, MIRT_TRAINING_AUTO) : mirt_dense(in, &dense));
    }
    mirt_compile(m[2], NULL);
    mirt_compile(m[0], NULL);
    refused = false;
    mirt_function *f = mirt_function_create(m[0], NULL, meddle_in_body, NULL);
    ok(f && mirt_function_run(f, NULL) == MIRT_OK && mirt_get_weight(m[0], "dense/kernel", 0, w, FEATURES) == MIRT_OK,
       "a part of a part: %s", mirt_last_error());
    mirt_model_destroy(m[2]);
    ok(mirt_function_run(f, NULL) == MIRT_E_STATE && mirt_compile(m[0], NULL) == MIRT_E_STATE &&
           mirt_compile(m[1], NULL) == MIRT_E_STATE,
       "its weights went: %s", mirt_last_error());
    mirt_model_destroy(m[1]);
    mirt_model_destroy(m[0]);
}

/* >>calls on a data set from the function that makes its samples */

static mirt_dataset *mapped;
static int inner, entered;

static int call_back(const void *const *in, void *const *out, int64_t index, void *user) {
    mirt_data data;
    (void)index, (void)user;
    memcpy(out[0], in[0], FEATURES * sizeof(float));
    if (out[1]) memcpy(out[1], in[1], sizeof(float));
    if (entered++ > 0) return 0;
    memset(&data, 0, sizeof data);
    if (inner == 0) seen = mirt_dataset_read(mapped, 1, NULL, &data);
    else if (inner == 1) seen = mirt_dataset_arrays(mapped, &data);
    else if (inner == 2) seen = mirt_save_grid("nothing.png", mapped, 1, 1);
    else mirt_dataset_destroy(mapped), seen = mirt_last_status();
    mirt_data_free(&data);
    return 0;
}

static mirt_status read_whole(mirt_model *model, int outer) {
    mirt_normalization_desc normalization;
    mirt_data data;
    mirt_logs logs;
    float predicted[SAMPLES];
    memset(&normalization, 0, sizeof normalization);
    memset(&data, 0, sizeof data);
    if (outer == 0) return mirt_evaluate(model, mapped, &logs);
    if (outer == 1) return mirt_predict(model, mapped, predicted, SAMPLES);
    if (outer == 2) return mirt_adapt(&normalization, mapped);
    if (outer == 3) return mirt_save_grid("/dev/null/none.png", mapped, 2, 2);
    const mirt_status status = mirt_dataset_arrays(mapped, &data);
    mirt_data_free(&data);
    return status;
}

static int fails;

static int fail_once(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)index, (void)user;
    memcpy(out[0], in[0], FEATURES * sizeof(float));
    if (out[1]) memcpy(out[1], in[1], sizeof(float));
    return fails++ == 4;
}

static void test_failed_epoch(void) {
    mirt_global_batch batch;
    mirt_map_desc desc;
    mirt_data data;
    memset(&desc, 0, sizeof desc);
    desc.fn = fail_once;
    desc.shape = MIRT_SHAPE(FEATURES);
    mirt_dataset *d = mirt_batch(mirt_map(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, FEATURES)),
                                                      mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 1))), &desc),
                                 2);
    d = mirt_distribute(strategy, d);
    int before = 0;
    while (mirt_dataset_next(d, &batch) == MIRT_OK && before < SAMPLES) before++;
    ok(before < SAMPLES / 2, "an epoch fails after %d batches: %s", before, mirt_last_error());
    ok(mirt_dataset_read(d, 0, NULL, &data) == MIRT_OK, "then no epoch has begun: %s", mirt_last_error());
    mirt_data_free(&data);
    ok(mirt_dataset_next(d, &batch) == MIRT_OK && batch.epoch == 1 && batch.rows == 2, "and the next call begins one");
    mirt_dataset_destroy(d);
}

static void test_maps(void) {
    static const char *const outers[] = {"evaluate", "predict", "adapt", "save_grid", "arrays"};
    static const char *const inners[] = {"read", "arrays", "save_grid", "destroy"};
    mirt_model *model = model_of(mirt_sgd(0.1f, 0, false));
    for (int outer = 0; outer < MIRT__COUNT(outers); outer++) {
        const bool image = outer == 3;
        for (inner = 0; inner < MIRT__COUNT(inners); inner++) {
            mirt_map_desc desc;
            memset(&desc, 0, sizeof desc);
            desc.fn = call_back;
            desc.shape = image ? MIRT_SHAPE(2, 2, 1) : MIRT_SHAPE(FEATURES);
            entered = 0;
            seen = MIRT_OK;
            mapped = mirt_batch(mirt_map(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, FEATURES)),
                                                     mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 1))),
                                         &desc),
                                3);
            const mirt_status status = read_whole(model, outer);
            ok(seen == MIRT_E_STATE && entered > 1 && (status == MIRT_OK) == !image,
               "%s within %s of the same data set is refused: %s", inners[inner], outers[outer], mirt_last_error());
            mirt_dataset_destroy(mapped);
        }
    }
    mirt_model_destroy(model);
}

static void test_nothing(void) {
    mirt_fit(NULL, NULL, NULL);
    mirt_fit(NULL, NULL, NULL);
    const char *first = strstr(mirt_last_error(), "previous error");
    ok(first && !strstr(first + 1, "previous error"), "what failed before is told once: %s", mirt_last_error());
    ok(mirt_grad(NULL, NULL) != MIRT_OK && !strncmp(mirt_last_error(), "mirt_grad: no model", 19), "%s",
       mirt_last_error());
}

int main(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.log = listen;
    strategy = mirt_strategy_create(&desc);
    for (int i = 0; i < SAMPLES; i++) {
        x[i][0] = (float)i;
        y[i][0] = (float)i;
    }
    train = mirt_batch(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, FEATURES)),
                                   mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 1))), 2);
    ok(mirt_fit(NULL, train, NULL) == NULL && !strcmp(mirt_last_error(), "mirt_fit: no model"), "%s",
       mirt_last_error());
    test_callbacks();
    test_rates();
    test_meddling();
    test_orphans();
    test_maps();
    test_failed_epoch();
    test_nothing();
    mirt_dataset_destroy(train);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
