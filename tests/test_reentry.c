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

static int destroy_everything(const mirt_event *event, void *user) {
    (void)user;
    mirt_model_destroy(event->model);
    mirt_strategy_destroy(strategy);
    return 0;
}

static void listen(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (level <= MIRT_LOG_WARNING) snprintf(said, sizeof said, "%s", text);
}

static mirt_history *fit(mirt_model *model, int (*batch_end)(const mirt_event *event, void *user), int epochs, int64_t steps) {
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
    ok(seen == MIRT_E_STATE && strstr(mirt_last_error(), "being trained on"), "evaluating the data under way: %s", mirt_last_error());
    said[0] = 0;
    history = fit(model_of(mirt_sgd(0.001f, 0, false)), destroy_everything, 1, 0);
    ok(history && history->steps == 5 && strstr(said, "being trained"), "destroying what is being trained: %s", said);
}

static void test_rates(void) {
    mirt_optimizer schedule;
    memset(&schedule, 0, sizeof schedule);
    schedule.schedule = sick;
    mirt_model *model = model_of(schedule);
    ok(!fit(model, NULL, 2, 0) && mirt_step(model) == 3 && strstr(mirt_last_error(), "schedule gave nan for step 3"), "%s", mirt_last_error());
    float kernel[FEATURES];
    mirt_get_weight(model, "dense/kernel", 0, kernel, FEATURES);
    ok(kernel[1] == kernel[1], "an Adam of zeros has Keras's betas and epsilon: a gradient of zero moves nothing");
    said[0] = 0;
    mirt_history *history = fit(model_of(mirt_sgd(1e20f, 0, false)), NULL, 4, 0);
    double loss = mirt_history_last(history, "loss");
    ok(history && loss != loss && strstr(said, "not a number since step"), "a loss that is lost is told: %s", said);
    history = fit(model_of(mirt_adam(0.001f)), NULL, INT_MAX, 7);
    ok(history && history->steps == 7, "the number of epochs costs nothing before they come: %s", history ? "" : mirt_last_error());
}

static void test_nothing(void) {
    mirt_fit(NULL, NULL, NULL);
    mirt_fit(NULL, NULL, NULL);
    const char *first = strstr(mirt_last_error(), "before it");
    ok(first && !strstr(first + 1, "before it"), "what failed before is told once: %s", mirt_last_error());
    ok(mirt_grad(NULL, NULL) != MIRT_OK && !strncmp(mirt_last_error(), "mirt_grad: no model", 19), "%s", mirt_last_error());
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
    ok(mirt_fit(NULL, train, NULL) == NULL && !strcmp(mirt_last_error(), "mirt_fit: no model"), "%s", mirt_last_error());
    test_callbacks();
    test_rates();
    test_nothing();
    mirt_dataset_destroy(train);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
