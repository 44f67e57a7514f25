/* Steps of the user's own: what is refused, in their bodies and around them. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"

static const net_kind plain_net = {0, 0, 0, false, false, false},
                      regularized_net = {0.3f, 0, 0.01f, false, false, false};

static mirt_tensor *stray; /* a tensor of something else */
static mirt_function *recorded;

typedef enum mistake {
    WRONG_TENSOR,
    WRONG_X,
    WRONG_Y,
    WRONG_VARIABLE,
    NO_VARIABLE,
    NO_RESULT_NAME,
    SAME_RESULT,
    MANY_RESULTS,
    NO_LOSS,
    LOSS_OF_INTEGERS,
    BATCHED_REDUCE,
    WRONG_REDUCE,
    ASSIGN_TRAINED,
    ASSIGN_NONE,
    ASSIGN_SHAPE,
    ASSIGN_TENSOR,
    APPLY_TWICE,
    APPLY_AND_MINIMIZE,
    APPLY_SHAPE,
    APPLY_TENSOR,
    APPLY_STATE,
    APPLY_NOTHING,
    NOTHING_GIVEN,
    NO_GRADIENTS,
    RUNS_ITSELF,
    DESTROYS_ITSELF,
    FAILS,
    OTHER_MODEL,
    LOSS_SHAPE,
    OTHER_TRAINABLE,
    NO_COUNT,
    APPLY_STRAY_WEIGHT,
    APPLY_STRAY_GRADIENT,
    ASSIGN_STRAY,
    GRADIENT_BY_STRAY,
    MISTAKES
} mistake;

static bool record_mistake(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w"), *state = mirt_function_variable(f, "state"),
                *square = mirt_square(w), *none = NULL;
    int count;
    switch (*(const mistake *)user) {
    case WRONG_TENSOR: mirt_minimize(f, stray); break;
    case WRONG_X: mirt_function_x(f, 1); break;
    case WRONG_Y: mirt_function_y(f, -1); break;
    case WRONG_VARIABLE: mirt_function_variable(f, "stat"); break;
    case NO_VARIABLE: mirt_function_variable(f, NULL); break;
    case NO_RESULT_NAME: mirt_function_result(f, NULL, w); break;
    case SAME_RESULT: mirt_function_result(f, "a", w); mirt_function_result(f, "a", w); break;
    case MANY_RESULTS:
        for (int i = 0; i < 200; i++) {
            char name[16];
            snprintf(name, sizeof name, "r%d", i);
            if (mirt_function_result(f, name, w) != MIRT_OK) break;
        }
        break;
    case NO_LOSS: mirt_loss_values((mirt_loss)99, true, mirt_function_y(f, 0), mirt_function_x(f, 0)); break;
    case LOSS_OF_INTEGERS: mirt_minimize(f, mirt_function_y(f, 0)); break;
    case BATCHED_REDUCE: mirt_replica_all_reduce(mirt_function_x(f, 0), MIRT_REDUCE_SUM); break;
    case WRONG_REDUCE: mirt_replica_all_reduce(w, (mirt_reduce_op)5); break;
    case ASSIGN_TRAINED: mirt_assign(f, w, square, MIRT_AGGREGATE_SUM); break;
    case ASSIGN_NONE: mirt_assign(f, state, square, MIRT_AGGREGATE_NONE); break;
    case ASSIGN_SHAPE: mirt_assign(f, state, mirt_reduce_sum(w, 0, false), MIRT_AGGREGATE_MEAN); break;
    case ASSIGN_TENSOR: mirt_assign(f, square, square, MIRT_AGGREGATE_MEAN); break;
    case APPLY_TWICE: mirt_apply_gradients(f, &w, &square, 1); mirt_apply_gradients(f, &w, &w, 1); break;
    case APPLY_AND_MINIMIZE:
        mirt_apply_gradients(f, &w, &square, 1);
        mirt_minimize(f, mirt_reduce_sum(w, 0, false));
        break;
    case APPLY_SHAPE: square = mirt_reduce_sum(w, 0, false); mirt_apply_gradients(f, &w, &square, 1); break;
    case APPLY_TENSOR: mirt_apply_gradients(f, &square, &w, 1); break;
    case APPLY_STATE: mirt_apply_gradients(f, &state, &w, 1); break;
    case APPLY_NOTHING: mirt_apply_gradients(f, &w, &none, 1); break;
    case NOTHING_GIVEN: mirt_apply_gradients(f, NULL, NULL, 0); return false;
    case RUNS_ITSELF: return mirt_function_run(f, NULL) != MIRT_E_STATE;
    case NO_GRADIENTS: mirt_gradients(square, &w, 0, &none); return false;
    case DESTROYS_ITSELF: mirt_function_destroy(f); return false;
    case FAILS: return false;
    case OTHER_MODEL:
        mirt_call((mirt_model *)stray->node->graph->model, mirt_function_x(f, 0), MIRT_TRAINING_ON);
        break;
    case LOSS_SHAPE: mirt_minimize(f, w); break;
    case OTHER_TRAINABLE: mirt_trainable(f, (mirt_model *)stray->node->graph->model, &count); break;
    case NO_COUNT: mirt_trainable(f, NULL, NULL); break;
    case APPLY_STRAY_WEIGHT: {
        mirt_tensor *two[2] = {w, stray}, *given[2] = {square, square};
        mirt_apply_gradients(f, two, given, 2);
        break;
    }
    case APPLY_STRAY_GRADIENT: mirt_apply_gradients(f, &w, &stray, 1); break;
    case ASSIGN_STRAY: mirt_assign(f, state, stray, MIRT_AGGREGATE_MEAN); break;
    case GRADIENT_BY_STRAY: mirt_gradients(mirt_reduce_sum(square, 0, false), &stray, 1, &none); break;
    default: break;
    }
    return true;
}

static bool record_kept(mirt_function *f, void *user) {
    (void)user;
    stray = mirt_square(mirt_function_variable(f, "w"));
    return mirt_function_result(f, "square", stray) == MIRT_OK;
}

static void check_mistakes(void) {
    static const struct { mirt_status status; const char *text;
    } want[MISTAKES] = {
        {MIRT_E_INVALID, "another function"},
        {MIRT_E_NOT_FOUND, "no input number 1"},
        {MIRT_E_NOT_FOUND, "no label number -1"},
        {MIRT_E_NOT_FOUND, "\"state\""},
        {MIRT_E_INVALID, "name"},
        {MIRT_E_INVALID, "no name"},
        {MIRT_E_INVALID, "a is a result already"},
        {MIRT_E_INVALID, "results"},
        {MIRT_E_INVALID, "mirt_loss_values: invalid loss (99)"},
        {MIRT_E_SHAPE, "int32"},
        {MIRT_E_SHAPE, "reduce them first"},
        {MIRT_E_INVALID, "sums or averages"},
        {MIRT_E_INVALID, "w is trained"},
        {MIRT_E_INVALID, "aggregation"},
        {MIRT_E_SHAPE, "state is (3)"},
        {MIRT_E_INVALID, "not a weight"},
        {MIRT_E_INVALID, "w has a gradient already"},
        {MIRT_E_INVALID, "w has a gradient already"},
        {MIRT_E_SHAPE, "gradient of w"},
        {MIRT_E_INVALID, "not a trainable weight"},
        {MIRT_E_INVALID, "not a trainable weight"},
        {MIRT_E_INVALID, "none of the 1"},
        {MIRT_E_INVALID, "no variables"},
        {MIRT_E_INVALID, "nothing to differentiate"},
        {MIRT_E_CALLBACK, "said that it failed"},
        {MIRT_E_CALLBACK, "said that it failed"},
        {MIRT_E_CALLBACK, "said that it failed"},
        {MIRT_E_INVALID, "not a part of bare"},
        {MIRT_E_SHAPE, "one number"},
        {MIRT_E_INVALID, "not a part of bare"},
        {MIRT_E_INVALID, "no place for the count"},
        {MIRT_E_INVALID, "mirt_apply_gradients"},
        {MIRT_E_INVALID, "mirt_apply_gradients"},
        {MIRT_E_INVALID, "mirt_assign"},
        {MIRT_E_INVALID, "mirt_gradients"},
    };
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = bare_model(s, mirt_sgd(0.1f, 0, false)),
               *other = row_model(s, &plain_net, mirt_sgd(0.1f, 0, false));
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(9), 4));
    for (int i = 0; i < MISTAKES; i++) {
        mistake which = (mistake)i;
        if (which == WRONG_TENSOR) recorded = mirt_function_create(m, data, record_kept, NULL);
        if (which == OTHER_MODEL) stray = mirt_layer_output(other, "dense");
        if (which == APPLY_STRAY_WEIGHT) mirt_function_create(m, data, record_kept, NULL);
        if (which != NO_VARIABLE) mirt__fail(MIRT_E_IO, "stale");
        mirt_function *f = mirt_function_create(m, data, record_mistake, &which);
        ok(!f && (which == NO_VARIABLE || mirt_last_status() == want[i].status) &&
               strstr(mirt_last_error(), want[i].text) && !strstr(mirt_last_error(), "stale"),
           "mistake %d: %s: \"%s\"", i, mirt_status_text(mirt_last_status()), mirt_last_error());
    }
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

#define REFUSED(call, want, part) \
    do { \
        bool refused = (call); \
        ok(refused &&mirt_last_status() == (want) && strstr(mirt_last_error(), part), "%s: \"%s\"", #call, \
           mirt_last_error()); \
    } while (0)

/* Two losses of the same labels, of which the first has a class less. */
static bool record_two_losses(mirt_function *f, void *user) {
    const int64_t from[2] = {0, 0}, size[2] = {-1, ROW_CLASSES - 1};
    mirt_tensor *out = mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON),
                *labels = mirt_reshape(mirt_function_y(f, 0), MIRT_SHAPE(1));
    mirt_minimize(f, mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, labels, mirt_slice(out, from, size)));
    return mirt_minimize(f, mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, labels, out)) == MIRT_OK;
}

static mirt_dataset *watched;
static int predicted;

/* In a callback of fit: predicting is allowed, running a function is not, nor reading the data being trained on. */
static int watch(const mirt_event *event, void *user) {
    mirt_function *f = (mirt_function *)user;
    mirt_global_batch batch;
    float out[5 * ROW_CLASSES];
    if (mirt_function_run(f, NULL) == MIRT_E_STATE && mirt_dataset_next(watched, &batch) == MIRT_E_STATE &&
        mirt_predict_arrays(event->model, mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(5, ROW_IN)), out,
                            5 * ROW_CLASSES) == MIRT_OK) {
        predicted++;
    }
    return 0;
}

static void check_misuse(void) {
    mirt_strategy *s = strategy_of(2, 3, 1), *t = strategy_of(1, 1, 1);
    mirt_model *m = row_model(s, &regularized_net, mirt_adam(0.01f)), *loose = row_net(s, &plain_net);
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(20), 8)), *plain = mirt_batch(rows_of(9), 4),
                 *elsewhere = mirt_distribute(t, mirt_batch(rows_of(9), 4));
    mirt_dataset *wide = mirt_distribute(s, mirt_batch(mirt_arrays(images_x(0, 9), images_y(0, 9)), 4)),
                 *larger = mirt_distribute(s, mirt_batch(rows_of(20), 9));
    mirt_dataset *joined = mirt_distribute(s, mirt_accumulate(mirt_batch(rows_of(20), 4), 2));
    mirt_global_batch batch;
    double loss;
    float rows[8];
    char before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    REFUSED(!mirt_function_create(NULL, data, record_step, m), mirt_last_status(), "model");
    REFUSED(!mirt_function_create(m, data, NULL, m), mirt_last_status(), "body");
    REFUSED(!mirt_function_create(m, plain, record_step, m), MIRT_E_INVALID, "mirt_distribute");
    REFUSED(!mirt_function_create(m, elsewhere, record_step, m), MIRT_E_INVALID, "another strategy");
    REFUSED(!mirt_function_create(loose, data, record_step, loose), MIRT_E_STATE, "mirt_compile");
    REFUSED(mirt_dataset_next(plain, &batch) != MIRT_OK, MIRT_E_STATE, "mirt_distribute");
    REFUSED(mirt_dataset_next(NULL, &batch) != MIRT_OK, mirt_last_status(), "data set");
    REFUSED(mirt_dataset_next(data, NULL) != MIRT_OK, MIRT_E_INVALID, "no place");
    REFUSED(!mirt_distribute(s, rows_of(9)), MIRT_E_INVALID, "mirt_batch");
    REFUSED(!mirt_distribute(NULL, mirt_batch(rows_of(9), 4)), mirt_last_status(), "strategy");
    ok(!mirt_distribute(s, NULL), "NULL is handed through");
    mirt_function *f = mirt_function_create(m, data, record_step, m);
    REFUSED(mirt_function_run(NULL, NULL) != MIRT_OK, mirt_last_status(), "function");
    REFUSED(mirt_function_run(f, NULL) != MIRT_OK, MIRT_E_INVALID, "mirt_dataset_next");
    mirt_dataset_next(wide, &batch);
    REFUSED(mirt_function_run(f, &batch) != MIRT_OK, MIRT_E_SHAPE, "unlike");
    mirt_dataset_next(elsewhere, &batch);
    REFUSED(mirt_function_run(f, &batch) != MIRT_OK, MIRT_E_INVALID, "another strategy (1 replica on 1 device");
    mirt_fit_desc apart;
    mirt_logs logs;
    memset(&apart, 0, sizeof apart);
    apart.no_progress = true;
    REFUSED(!mirt_fit(m, elsewhere, &apart), MIRT_E_INVALID, "than that of rows (3 replicas on 2 devices");
    apart.validation = elsewhere;
    REFUSED(!mirt_fit(m, plain, &apart), MIRT_E_INVALID, "another strategy");
    REFUSED(mirt_evaluate(m, elsewhere, &logs) != MIRT_OK, MIRT_E_INVALID, "another strategy");
    REFUSED(mirt_predict(m, elsewhere, rows, 8) != MIRT_OK, MIRT_E_INVALID, "another strategy");
    /* Two float32 fields both, but the second are weights, not labels. */
    static float pairs[4][ROW_IN], seconds[4];
    mirt_data labeled, weighed;
    memset(&labeled, 0, sizeof labeled);
    labeled.x[0] = mirt_make_array(pairs, MIRT_FLOAT32, MIRT_SHAPE(4, ROW_IN));
    weighed = labeled;
    labeled.y[0] = weighed.weights = mirt_make_array(seconds, MIRT_FLOAT32, MIRT_SHAPE(4));
    mirt_dataset *with_labels = mirt_distribute(s, mirt_batch(mirt_arrays_of(&labeled), 4)),
                 *with_weights = mirt_distribute(s, mirt_batch(mirt_arrays_of(&weighed), 4));
    mirt_function *sums = mirt_function_create(bare_model(s, mirt_sgd(0.1f, 0, false)), with_labels, record_kept, NULL);
    mirt_dataset_next(with_weights, &batch);
    REFUSED(mirt_function_run(sums, &batch) != MIRT_OK, MIRT_E_SHAPE, "unlike");
    ok(mirt_dataset_next(with_labels, &batch) == MIRT_OK && mirt_function_run(sums, &batch) == MIRT_OK,
       "labels and weights are told apart");
    mirt_dataset_destroy(with_labels);
    mirt_dataset_destroy(with_weights);
    mirt_dataset_next(joined, &batch);
    REFUSED(mirt_function_run(f, &batch) != MIRT_OK, MIRT_E_SHAPE, "unlike");
    mirt_dataset_next(larger, &batch);
    REFUSED(mirt_function_run(f, &batch) != MIRT_OK, MIRT_E_SHAPE, "larger than the 8");
    REFUSED(mirt_reduce(f, "loss", MIRT_REDUCE_MEAN, &loss, 1) != MIRT_OK, MIRT_E_STATE, "not run yet");
    mirt_dataset_next(data, &batch);
    ok(mirt_function_run(f, &batch) == MIRT_OK, "its own batch runs%s", mirt_last_error());
    REFUSED(mirt_reduce(f, "los", MIRT_REDUCE_MEAN, &loss, 1) != MIRT_OK, MIRT_E_NOT_FOUND, "\"loss\"");
    REFUSED(mirt_reduce(f, "loss", MIRT_REDUCE_MEAN, &loss, 2) != MIRT_OK, MIRT_E_SHAPE, "1 elements");
    REFUSED(mirt_reduce(f, "loss", (mirt_reduce_op)7, &loss, 1) != MIRT_OK, MIRT_E_INVALID,
            "mirt_reduce: invalid operation (7); it must be MIRT_REDUCE_SUM or MIRT_REDUCE_MEAN");
    REFUSED(mirt_gather_result(f, "loss", rows, 7, NULL) != MIRT_OK, MIRT_E_SHAPE,
            "mirt_gather_result: loss has 8 elements, there is room for 7");
    REFUSED(mirt_gather_result(f, NULL, rows, 7, NULL) != MIRT_OK, MIRT_E_INVALID, "name");
    REFUSED(mirt_local_result(f, "loss", 3, rows, 8, NULL) != MIRT_OK, MIRT_E_NOT_FOUND, "3 of 3");
    REFUSED(mirt_minimize(f, f->results.list[0].tensor) != MIRT_OK, MIRT_E_STATE, "recorded already");
    REFUSED(mirt_minimize(NULL, f->results.list[0].tensor) != MIRT_OK, mirt_last_status(), "function");
    REFUSED(mirt_gradients(mirt_layer_output(m, "dense"), &stray, 1, &stray) != MIRT_OK, MIRT_E_STATE, "of a model");
    int count = 7;
    REFUSED(!mirt_trainable(f, m, &count) && count == 0, MIRT_E_STATE, "recorded already");
    REFUSED(!mirt_trainable(NULL, NULL, &count), mirt_last_status(), "model");
    REFUSED(!mirt_trainable(NULL, m, NULL), MIRT_E_INVALID, "no place for the count");
    ok(mirt_trainable(NULL, m, &count) && count == 4, "outside of a body: %d tensors of the model", count);
    REFUSED(!mirt_replica_all_reduce(mirt_layer_output(loose, "dense"), MIRT_REDUCE_SUM), MIRT_E_INVALID,
            "body of a function");

    mirt_function *bare = mirt_function_create(bare_model(s, mirt_sgd(0.1f, 0, false)), NULL, record_count, NULL);
    REFUSED(mirt_function_run(bare, &batch) != MIRT_OK, MIRT_E_INVALID, "without data");

    /* A label that is no class changes nothing. */
    digest_state(m, before);
    mirt_dataset_next(data, &batch);
    int32_t label = row_y[9];
    row_y[9] = ROW_CLASSES;
    REFUSED(mirt_function_run(f, &batch) != MIRT_OK, MIRT_E_INVALID, "sample 9");
    row_y[9] = label;
    digest_state(m, after);
    ok(strcmp(before, after) == 0, "which changes nothing");

    mirt_function *two = mirt_function_create(m, data, record_two_losses, m);
    for (int i = 8; i < 16; i++) row_y[i] = row_y[i] == ROW_CLASSES - 1 ? 0 : row_y[i];
    ok(mirt_function_run(two, &batch) == MIRT_OK, "two losses of one label%s", mirt_last_error());
    row_y[12] = ROW_CLASSES - 1;
    REFUSED(mirt_function_run(two, &batch) != MIRT_OK, MIRT_E_INVALID,
            "label 3 of sample 12 is not one of the 3 classes");
    draw_rows();

    /* The end of an epoch is no batch. */
    do mirt_dataset_next(data, &batch);
    while (batch.rows);
    REFUSED(mirt_function_run(f, &batch) != MIRT_OK, MIRT_E_INVALID, "with rows");

    /* fit on the distributed data, with a callback that looks around. */
    mirt_callback callback;
    mirt_fit_desc fit;
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    callback.batch_end = watch;
    callback.user = f;
    fit.callbacks[0] = &callback;
    fit.no_progress = true;
    watched = data;
    ok(mirt_dataset_next(data, &batch) == MIRT_OK && batch.rows == 8, "in the middle of an epoch");
    ok(mirt_fit(m, data, &fit) && predicted == 3,
       "callbacks may predict, but not run functions of the model nor read its data: %d%s", predicted,
       predicted ? "" : mirt_last_error());
    mirt_dataset_next(data, &batch);
    ok(batch.rows == 8 && mirt_function_run(f, &batch) == MIRT_OK, "after fit the data begin anew");

    /* Compiled again. */
    mirt_compile_desc c = row_compile(mirt_sgd(0.1f, 0, false));
    ok(mirt_compile(m, &c) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK && mirt_step(m) == 1,
       "another optimizer is taken as it is");
    mirt_set_trainable(m, "dense", false);
    ok(mirt_compile(m, &c) == MIRT_OK, "compiled with other weights to train");
    REFUSED(mirt_function_run(f, &batch) != MIRT_OK, MIRT_E_STATE, "record it again");
    mirt_function *again = mirt_function_create(m, data, record_step, m);
    ok(again && mirt_function_run(again, &batch) == MIRT_OK, "which works%s", again ? "" : mirt_last_error());
    mirt_function_destroy(f);
    mirt_function_destroy(NULL);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(plain);
    mirt_dataset_destroy(elsewhere);
    mirt_dataset_destroy(wide);
    mirt_dataset_destroy(larger);
    mirt_dataset_destroy(joined);
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

/* >>what a body is given */

static int listed, listed_of_none;
static bool no_weights;

/* Labels that are made in the body cannot be checked with a batch. */
static bool record_given(mirt_function *f, void *user) {
    mirt_tensor *out = mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON),
                *weights = mirt_function_weights(f);
    no_weights = !weights;
    mirt_trainable(f, (mirt_model *)user, &listed);
    mirt_trainable(f, NULL, &listed_of_none);
    if (weights && mirt_function_result(f, "weights", weights) != MIRT_OK) return false;
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_argmax(out, 1), out);
    return mirt_function_result(f, "loss", loss) == MIRT_OK;
}

static void check_given(void) {
    enum { ROWS = 5 };
    static float weights[ROWS] = {1, 0.5f, 2, 0, 3};
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = row_model(s, &plain_net, mirt_sgd(0.1f, 0, false));
    mirt_data samples;
    mirt_global_batch batch;
    float out[ROWS];
    memset(&samples, 0, sizeof samples);
    samples.x[0] = mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, ROW_IN));
    samples.y[0] = mirt_make_array(row_y, MIRT_INT32, MIRT_SHAPE(ROWS));
    mirt_dataset *plain = mirt_distribute(s, mirt_batch(mirt_arrays_of(&samples), ROWS)), *data;
    samples.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(ROWS));
    data = mirt_distribute(s, mirt_batch(mirt_arrays_of(&samples), ROWS));
    mirt_function *bare = mirt_function_create(m, plain, record_given, m);
    ok(bare && no_weights && !mirt_function_weights(NULL), "data without weights give none");
    mirt_function *f = mirt_function_create(m, data, record_given, m);
    ok(f && !no_weights && listed == 4 && listed_of_none == 4, "the weights of all trained layers: %d, by default %d",
       listed, listed_of_none);
    ok(f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
           mirt_gather_result(f, "weights", out, ROWS, NULL) == MIRT_OK && memcmp(out, weights, sizeof out) == 0,
       "weights of samples are in the body");
    bool likeliest = mirt_gather_result(f, "loss", out, ROWS, NULL) == MIRT_OK;
    for (int i = 0; i < ROWS; i++) likeliest = likeliest && out[i] > 0 && (double)out[i] <= log(ROW_CLASSES);
    ok(likeliest, "the loss of the likeliest class is at most that of equal ones");

    /* Batches that nobody has read. */
    mirt_global_batch own = batch;
    double sum;
    own.dataset = NULL;
    REFUSED(mirt_function_run(f, &own) != MIRT_OK, MIRT_E_INVALID, "which mirt_dataset_next has made");
    own = batch;
    own.rows = 0;
    REFUSED(mirt_function_run(f, &own) != MIRT_OK, MIRT_E_INVALID, "a batch with rows");
    mirt_dataset *loose = mirt_batch(mirt_arrays_of(&samples), ROWS);
    own = batch;
    own.dataset = loose;
    REFUSED(mirt_function_run(f, &own) != MIRT_OK, MIRT_E_SHAPE, "unlike the one the function was made for");
    REFUSED(mirt_gather_result(f, "loss", NULL, ROWS, NULL) != MIRT_OK, MIRT_E_INVALID,
            "mirt_gather_result: no place for the values of loss");
    REFUSED(mirt_reduce(f, "loss", MIRT_REDUCE_SUM, NULL, 1) != MIRT_OK, MIRT_E_INVALID,
            "mirt_reduce: no place for the values of loss");
    ok(mirt_function_run(f, &batch) == MIRT_OK && mirt_reduce(f, "loss", MIRT_REDUCE_SUM, &sum, 1) == MIRT_OK &&
           sum > 0,
       "the batch that was read runs again");
    mirt_dataset_destroy(loose);
    mirt_dataset_destroy(plain);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* A model that lacks an optimizer, and one whose recording failed. */
static bool apply_without(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w");
    (void)user;
    return mirt_apply_gradients(f, &w, &w, 1) == MIRT_OK;
}

static void check_unfinished(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *bare = mirt_model_create(s, "bare"), *broken = mirt_model_create(s, "broken");
    int count = 9;
    mirt_variable(bare, "w", MIRT_SHAPE(W), mirt_ones(), true);
    REFUSED(!mirt_function_create(bare, NULL, apply_without, NULL), MIRT_E_STATE,
            "mirt_apply_gradients: bare has no optimizer; call mirt_compile");
    mirt_flatten(mirt_rescale(mirt_input(broken, MIRT_SHAPE(2)), (float)NAN, 0));
    REFUSED(!mirt_trainable(NULL, broken, &count) && count == 0, mirt_last_status(), "scale nan");
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_rows();
    check_mistakes();
    check_given();
    check_unfinished();
    check_misuse();
    return done_testing();
}
