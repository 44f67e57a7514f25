/* Options of losses: custom loops against fit, replicas, devices, files, refusals. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { ROWS = 13, H = 5, W = 3, CLASSES = 4, PIXELS = H * W, BATCH = 5, WEIGHTS = 64 };
static float x_values[ROWS * PIXELS * 2], one_hot[ROWS * PIXELS * CLASSES], positive[ROWS * PIXELS * CLASSES];
static uint8_t classes[ROWS * PIXELS], all_classes[ROWS * PIXELS];
static int32_t groups[ROWS]; /* no class numbers */

static void draw(void) {
    mirt__random random = mirt__random_stream(5, 6);
    for (int i = 0; i < ROWS * PIXELS * 2; i++) x_values[i] = mirt__random_unit(&random) * 2 - 1;
    for (int i = 0; i < ROWS; i++) groups[i] = i % 3 == 0 ? INT32_MIN : 70000 + i % 2;
    for (int i = 0; i < ROWS * PIXELS; i++) {
        const int c = (int)mirt__random_below(&random, CLASSES + 1);
        classes[i] = (uint8_t)(c == CLASSES ? 255 : c);
        all_classes[i] = (uint8_t)(c % CLASSES);
        for (int j = 0; j < CLASSES; j++) one_hot[i * CLASSES + j] = j == c ? 1.0f : 0.0f;
        for (int j = 0; j < CLASSES; j++) positive[i * CLASSES + j] = one_hot[i * CLASSES + j] + 1;
    }
}

typedef struct loss_case {
    mirt_loss loss;
    mirt_loss_options how;
} loss_case;

static const loss_case cases[] = {
    {MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, {.from_logits = true, .has_ignore_class = true, .ignore_class = 255}},
    {MIRT_SPARSE_CATEGORICAL_CROSSENTROPY,
     {.from_logits = true, .has_ignore_class = true, .ignore_class = 255, .label_smoothing = 0.125f}},
    {MIRT_CATEGORICAL_CROSSENTROPY, {.from_logits = true, .label_smoothing = 0.25f}},
    {MIRT_BINARY_CROSSENTROPY, {.from_logits = true, .label_smoothing = 0.25f}},
    {MIRT_BINARY_FOCAL_CROSSENTROPY, {.from_logits = true, .apply_class_balancing = true, .alpha = 0.75f}},
    {MIRT_CATEGORICAL_FOCAL_CROSSENTROPY, {.from_logits = true, .has_gamma = true}},
    {MIRT_HUBER, {.delta = 0.5f}},
    {MIRT_MEAN_ABSOLUTE_ERROR, {.delta = 0}},
    {MIRT_COSINE_SIMILARITY, {.delta = 0}},
    {MIRT_DICE, {.axes = 0}},
    {MIRT_DICE, {.axes = 0xe}},
    {MIRT_TVERSKY, {.axes = 0, .alpha = 0.25f, .beta = 1.5f}},
    {MIRT_TVERSKY, {.axes = 0xe}},
    {MIRT_CATEGORICAL_GENERALIZED_CROSS_ENTROPY, {.from_logits = true, .q = 0.75f}},
    {MIRT_CATEGORICAL_HINGE, {.delta = 0}},
    {MIRT_POISSON, {.delta = 0}},
    {MIRT_MEAN_SQUARED_LOGARITHMIC_ERROR, {.delta = 0}},
    {MIRT_MEAN_ABSOLUTE_PERCENTAGE_ERROR, {.delta = 0}},
    {MIRT_CIRCLE, {.gamma = 16, .has_margin = true, .keep_diagonal = true}},
};

static bool is_of_shares(const loss_case *c) {
    return c->loss == MIRT_DICE || c->loss == MIRT_TVERSKY || c->loss == MIRT_POISSON ||
           c->loss == MIRT_MEAN_SQUARED_LOGARITHMIC_ERROR;
}

static mirt_model *pixel_model(mirt_strategy *s, const loss_case *c) {
    mirt_conv2d_desc conv;
    mirt_compile_desc d;
    memset(&conv, 0, sizeof conv);
    memset(&d, 0, sizeof d);
    conv.filters = CLASSES;
    conv.kernel[0] = 1;
    mirt_model *m = mirt_model_create(s, "pixels");
    mirt_tensor *y = mirt_conv2d(mirt_input(m, MIRT_SHAPE(H, W, 2)), &conv);
    if (c->loss == MIRT_CIRCLE) y = mirt_unit_normalization(mirt_flatten(y), -1);
    mirt_model_output(m, is_of_shares(c) ? mirt_sigmoid(y) : y);
    d.optimizer = mirt_sgd(0.5f, 0, false);
    d.loss = c->loss;
    d.loss_options[0] = c->how;
    ok(mirt_compile(m, &d) == MIRT_OK, "%s: compiled: %s", mirt__loss_class_get(c->loss)->name, mirt_last_error());
    return m;
}

static bool is_sparse(const loss_case *c) { return mirt__loss_class_get(c->loss)->sparse; }

static mirt_dataset *pixel_data(const loss_case *c) {
    const mirt_array x = mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(ROWS, H, W, 2));
    mirt_array y = mirt_make_array(c->loss == MIRT_MEAN_ABSOLUTE_PERCENTAGE_ERROR ? positive : one_hot, MIRT_FLOAT32,
                                   MIRT_SHAPE(ROWS, H, W, CLASSES));
    if (is_sparse(c))
        y = mirt_make_array(c->how.has_ignore_class ? classes : all_classes, MIRT_UINT8, MIRT_SHAPE(ROWS, H, W, 1));
    if (c->loss == MIRT_CIRCLE) y = mirt_make_array(groups, MIRT_INT32, MIRT_SHAPE(ROWS));
    return mirt_batch(mirt_arrays(x, y), BATCH);
}

static bool record_loop(mirt_function *f, void *user) {
    const loss_case *c = (const loss_case *)user;
    mirt_tensor *y = mirt_call(f->model, mirt_function_x(f, 0), MIRT_TRAINING_ON);
    return mirt_minimize(f, mirt_loss_values_with(c->loss, &c->how, mirt_function_y(f, 0), y)) == MIRT_OK;
}

/* The weights after two epochs of a fit or of a loop; false if something failed. */
static bool trained(const loss_case *c, int devices, int replicas, bool loop, float out[WEIGHTS]) {
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *m = pixel_model(s, c);
    mirt_dataset *data = pixel_data(c);
    mirt_fit_desc fit;
    mirt_global_batch batch;
    bool good = true;
    memset(&fit, 0, sizeof fit);
    fit.epochs = 2;
    if (loop) {
        data = mirt_distribute(s, data);
        mirt_function *f = mirt_function_create(m, data, record_loop, (void *)(uintptr_t)c);
        good = f != NULL;
        for (int epochs = 0; good && epochs < 2; epochs += batch.rows == 0) {
            good = mirt_dataset_next(data, &batch) == MIRT_OK &&
                   (batch.rows == 0 || mirt_function_run(f, &batch) == MIRT_OK);
        }
    } else {
        good = mirt_fit(m, data, &fit) != NULL;
    }
    memset(out, 0, WEIGHTS * sizeof *out);
    good = good && mirt_get_weight(m, "conv2d/kernel", 0, out, 2 * CLASSES) == MIRT_OK &&
           mirt_get_weight(m, "conv2d/bias", 0, out + 2 * CLASSES, CLASSES) == MIRT_OK;
    if (!good) printf("# %s\n", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return good;
}

static void check_loops(const loss_case *c) {
    const char *name = mirt__loss_class_get(c->loss)->name;
    float fit[WEIGHTS], other[WEIGHTS], first[WEIGHTS];
    for (int replicas = 1; replicas <= 3; replicas++) {
        const bool good = trained(c, 1, replicas, false, fit);
        if (replicas == 1) memcpy(first, fit, sizeof first);
        double off = 0;
        for (int i = 0; i < WEIGHTS; i++) off = worse(off, fabs((double)fit[i] - (double)first[i]));
        if (replicas == 1 || c->loss != MIRT_CIRCLE) /* whose pairs are those of a replica */
            ok(good && off < 1e-5, "%s: %d replica(s) train as one does, within %.1e", name, replicas, off);
        ok(trained(c, 1, replicas, true, other) && memcmp(fit, other, sizeof fit) == 0,
           "%s: a loop is bit-identical to fit", name);
        if (replicas == 1) continue;
        ok(trained(c, 2, replicas, false, other) && memcmp(fit, other, sizeof fit) == 0,
           "%s: and so are two devices", name);
    }
}

/* Saved and loaded, it evaluates to the same loss. */
static void check_saved(const loss_case *c) {
    char path[600];
    mirt_logs before, after;
    snprintf(path, sizeof path, "%s/mirt_losses.safetensors", tap_tmpdir());
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = pixel_model(s, c);
    mirt_dataset *data = pixel_data(c);
    bool good = mirt_evaluate(m, data, &before) == MIRT_OK && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK;
    mirt_model *loaded = good ? mirt_load(s, path) : NULL;
    good = loaded && mirt_evaluate(loaded, data, &after) == MIRT_OK && before.value[0] == after.value[0] &&
           memcmp(&m->config.loss_options, &loaded->config.loss_options, sizeof m->config.loss_options) == 0;
    ok(good, "%s with its options is saved and loaded%s%s", mirt__loss_class_get(c->loss)->name, good ? "" : ": ",
       good ? "" : mirt_last_error());
    unlink(path);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* Options of the second output alone are in the file, too. */
static void check_saved_second(void) {
    char path[600];
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    d.losses[0] = MIRT_MEAN_SQUARED_ERROR;
    d.losses[1] = MIRT_HUBER;
    d.loss_options[1].delta = 0.5f;
    snprintf(path, sizeof path, "%s/mirt_losses.safetensors", tap_tmpdir());
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "two");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(2)), *y[2];
    y[0] = mirt_rescale(x, 2, 0);
    y[1] = mirt_rescale(x, 3, 0);
    mirt_model_outputs(m, y, 2);
    const bool good = mirt_compile(m, &d) == MIRT_OK && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK;
    mirt_model *loaded = good ? mirt_load(s, path) : NULL;
    ok(loaded && memcmp(&m->config.loss_options, &loaded->config.loss_options, sizeof m->config.loss_options) == 0,
       "options of the second loss are saved and loaded%s%s", loaded ? "" : ": ", loaded ? "" : mirt_last_error());
    unlink(path);
    mirt_strategy_destroy(s);
}

/* >>what is refused */

static void refused(bool failed, const char *says) {
    ok(failed && strstr(mirt_last_error(), says), "refused: %s", failed ? mirt_last_error() : says);
}

static mirt_status compile_with(mirt_model *m, mirt_loss loss, mirt_loss_options how) {
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    d.loss = loss;
    d.loss_options[0] = how;
    return mirt_compile(m, &d);
}

/* Each option alone, with each loss: those that Keras's class has, and our additions. */
static void check_taken(void) {
    static const struct {
        mirt_loss loss;
        const char *takes; /* each word between spaces */
    } list[] = {
        {MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, " label_smoothing ignore_class "},
        {MIRT_CATEGORICAL_CROSSENTROPY, " label_smoothing "},
        {MIRT_BINARY_CROSSENTROPY, " label_smoothing "},
        {MIRT_BINARY_FOCAL_CROSSENTROPY, " label_smoothing alpha gamma apply_class_balancing "},
        {MIRT_CATEGORICAL_FOCAL_CROSSENTROPY, " label_smoothing alpha gamma "},
        {MIRT_HUBER, " delta "},
        {MIRT_DICE, " axes "},
        {MIRT_TVERSKY, " axes alpha beta "},
        {MIRT_CATEGORICAL_GENERALIZED_CROSS_ENTROPY, " q "},
        {MIRT_CIRCLE, " gamma margin keep_diagonal "},
    };
    const struct {
        const char *name;
        mirt_loss_options how;
    } option[] = {{"label_smoothing", {.label_smoothing = 0.5f}},
                  {"ignore_class", {.has_ignore_class = true}},
                  {"ignore_class", {.has_ignore_class = true, .ignore_class = 1}},
                  {"delta", {.delta = 0.5f}},
                  {"alpha", {.alpha = 0.5f}},
                  {"gamma", {.gamma = 0.5f}},
                  {"gamma", {.has_gamma = true}},
                  {"apply_class_balancing", {.apply_class_balancing = true}},
                  {"axes", {.axes = 1}},
                  {"beta", {.beta = 0.5f}},
                  {"q", {.q = 0.5f}},
                  {"margin", {.margin = 0.5f}},
                  {"margin", {.has_margin = true}},
                  {"keep_diagonal", {.keep_diagonal = true}}};
    for (int loss = MIRT_LOSS_NONE; loss < MIRT__LOSS_COUNT; loss++) {
        const char *takes = "", *name = mirt__loss_class_get((mirt_loss)loss)->name;
        const mirt_loss_options logits = {.from_logits = true};
        for (int i = 0; i < MIRT__COUNT(list); i++) takes = (int)list[i].loss == loss ? list[i].takes : takes;
        int wrong = mirt__loss_options_check(name, (mirt_loss)loss, &logits, 4) != MIRT_OK;
        for (int i = 0; i < MIRT__COUNT(option); i++) {
            char word[32], says[96];
            snprintf(word, sizeof word, " %s ", option[i].name);
            snprintf(says, sizeof says, "%s has no option %s", name, option[i].name);
            const bool good = mirt__loss_options_check(name, (mirt_loss)loss, &option[i].how, 4) == MIRT_OK;
            wrong += strstr(takes, word) ? !good : good || strcmp(mirt_last_error(), says) != 0;
        }
        ok(wrong == 0, "%s: %d options are taken or refused wrongly", name, wrong);
    }
}

static void check_options(void) {
    const float nan_ = (float)NAN;
    const struct {
        mirt_loss loss;
        mirt_loss_options how;
        const char *says;
    } bad[] = {
        {MIRT_HUBER, {.label_smoothing = 0.1f}, "huber has no option label_smoothing"},
        {MIRT_MEAN_SQUARED_ERROR, {.delta = 1}, "mean_squared_error has no option delta"},
        {MIRT_CATEGORICAL_CROSSENTROPY, {.has_ignore_class = true}, "has no option ignore_class"},
        {MIRT_CATEGORICAL_FOCAL_CROSSENTROPY, {.apply_class_balancing = true}, "no option apply_class_balancing"},
        {MIRT_BINARY_CROSSENTROPY, {.has_gamma = true}, "binary_crossentropy has no option gamma"},
        {MIRT_BINARY_CROSSENTROPY, {.axes = 1}, "binary_crossentropy has no option axes"},
        {MIRT_LOSS_NONE, {.label_smoothing = 0.1f}, "an output without a loss has no option label_smoothing"},
        {MIRT_BINARY_CROSSENTROPY, {.label_smoothing = 1.5f}, "label_smoothing is 1.5; it must be 0 to 1"},
        {MIRT_BINARY_CROSSENTROPY, {.label_smoothing = nan_}, "it must be 0 to 1"},
        {MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, {.ignore_class = 255}, "ignore_class is 255 without has_ignore_class"},
        {MIRT_HUBER, {.delta = -1}, "delta is -1; it must be finite and not negative"},
        {MIRT_BINARY_FOCAL_CROSSENTROPY, {.alpha = -1}, "alpha is -1"},
        {MIRT_BINARY_FOCAL_CROSSENTROPY, {.gamma = nan_}, "gamma is nan; it must be finite and not negative"},
        {MIRT_TVERSKY, {.gamma = 1}, "tversky has no option gamma"},
        {MIRT_TVERSKY, {.beta = nan_}, "tversky: beta is nan; it must be finite and not negative"},
        {MIRT_DICE, {.beta = 1}, "dice has no option beta"},
        {MIRT_CATEGORICAL_GENERALIZED_CROSS_ENTROPY, {.q = 1}, "q is 1; it must be between 0 and 1"},
        {MIRT_POISSON, {.q = 0.5f}, "poisson has no option q"},
        {MIRT_CIRCLE, {.margin = nan_}, "circle: margin is nan; it must be finite"},
        {MIRT_CIRCLE, {.gamma = -1}, "circle: gamma is -1; it must be finite and not negative"},
        {MIRT_CIRCLE, {.alpha = 1}, "circle has no option alpha"},
        {MIRT_DICE, {.axes = 0x10}, "the output has 4 axes, those of the sums are 0x10"},
    };
    mirt_strategy *s = strategy_of(1, 1, 1);
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        mirt_model *m = mirt_model_create(s, NULL);
        mirt_model_output(m, mirt_sigmoid(mirt_input(m, MIRT_SHAPE(H, W, 2))));
        refused(compile_with(m, bad[i].loss, bad[i].how) == MIRT_E_INVALID, bad[i].says);
        mirt_model_destroy(m);
    }
    mirt_model *m = mirt_model_create(s, NULL);
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    d.loss = MIRT_HUBER;
    d.loss_options[1].delta = 1;
    mirt_model_output(m, mirt_sigmoid(mirt_input(m, MIRT_SHAPE(2))));
    refused(mirt_compile(m, &d) == MIRT_E_INVALID, "a loss for output 1");
    mirt_strategy_destroy(s);
}

/* Labels of other shapes and classes, and weights of classes. */
static void check_labels(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    const loss_case plain = {MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, {.from_logits = true}};
    mirt_model *m = pixel_model(s, &cases[0]), *all = pixel_model(s, &plain);
    const float weights[CLASSES] = {1, 2, 1, 1};
    const mirt_array x = mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(ROWS, H, W, 2));
    mirt_fit_desc fit;
    mirt_logs logs;
    memset(&fit, 0, sizeof fit);
    fit.class_weights = weights;
    fit.num_class_weights = CLASSES;
    refused(!mirt_fit_arrays(m, x, mirt_make_array(classes, MIRT_UINT8, MIRT_SHAPE(ROWS, W, H)), NULL),
            "labels are (3, 5) a sample, sparse_categorical_crossentropy of conv2d takes (5, 3)");
    refused(!mirt_fit_arrays(m, x, mirt_make_array(classes, MIRT_UINT8, MIRT_SHAPE(ROWS, PIXELS)), NULL),
            "labels are (15) a sample");
    refused(!mirt_fit_arrays(m, x, mirt_make_array(classes, MIRT_UINT8, MIRT_SHAPE(ROWS, H, W)), &fit),
            "class weights need one class for each sample");
    refused(mirt_evaluate_arrays(all, x, mirt_make_array(classes, MIRT_UINT8, MIRT_SHAPE(ROWS, H, W)), &logs) ==
                MIRT_E_INVALID,
            "label 255 of sample 0 is not one of the 4 classes 0 to 3");
    mirt_strategy_destroy(s);
}

/* Class numbers count, or do not, whatever their dtype is. */
static void check_dtypes(void) {
    static const mirt_dtype dtypes[] = {MIRT_UINT8, MIRT_INT32, MIRT_FLOAT32};
    static int32_t whole[ROWS * PIXELS];
    static float real[ROWS * PIXELS];
    const void *const labels[] = {classes, whole, real};
    const mirt_array x = mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(ROWS, H, W, 2));
    double loss[MIRT__COUNT(dtypes)] = {NAN, NAN, NAN};
    mirt_logs logs;
    for (int i = 0; i < ROWS * PIXELS; i++) real[i] = (float)(whole[i] = classes[i]);
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = pixel_model(s, &cases[0]);
    for (int i = 0; i < MIRT__COUNT(dtypes); i++) {
        const mirt_array y = mirt_make_array(labels[i], dtypes[i], MIRT_SHAPE(ROWS, H, W));
        if (mirt_evaluate_arrays(m, x, y, &logs) == MIRT_OK) loss[i] = mirt_logs_value(&logs, "loss");
    }
    ok(loss[0] > 0 && loss[1] == loss[0] && loss[2] == loss[0],
       "some labels are ignored: the loss is %g of bytes, %g of int32, %g of float32 (%s)", loss[0], loss[1], loss[2],
       mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>the circle loss */

static const loss_case circle_mean = {MIRT_CIRCLE, {.gamma = 2}};

static mirt_model *circle_model(mirt_strategy *s, mirt_reduction reduction) {
    mirt_model *m = pixel_model(s, &circle_mean);
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    d.loss = MIRT_CIRCLE;
    d.loss_options[0] = circle_mean.how;
    d.reduction = reduction;
    ok(mirt_compile(m, &d) == MIRT_OK, "circle: compiled again");
    return m;
}

/* The loss of rows [first, first + count), which are one batch of `replicas`. */
static double circle_loss(int replicas, mirt_reduction reduction, const int32_t *labels, int first, int count) {
    mirt_strategy *s = strategy_of(1, replicas, 1);
    mirt_model *m = circle_model(s, reduction);
    mirt_logs logs;
    const mirt_array x = mirt_make_array(x_values + first * PIXELS * 2, MIRT_FLOAT32, MIRT_SHAPE(count, H, W, 2)),
                     y = mirt_make_array(labels + first, MIRT_INT32, MIRT_SHAPE(count));
    const bool good = mirt_evaluate_arrays(m, x, y, &logs) == MIRT_OK;
    mirt_strategy_destroy(s);
    return good ? logs.value[0] : (double)NAN;
}

/* Pairs are those of a replica; the mean is that of all samples of the global batch whose loss is not 0: here of four
   and of two. */
static void check_circle_pairs(void) {
    static const int32_t labels[10] = {1, 1, 2, 2, 3, 1, 1, 2, 4, 5};
    const double a = circle_loss(1, MIRT_SUM, labels, 0, 5), b = circle_loss(1, MIRT_SUM, labels, 5, 5),
                 both = circle_loss(2, MIRT_SUM, labels, 0, 10), one = circle_loss(1, MIRT_SUM, labels, 0, 10),
                 mean = circle_loss(2, MIRT_SUM_OVER_BATCH_SIZE, labels, 0, 10);
    ok(a > 0 && b > 0 && fabs(both - (a + b)) < 1e-5 * both, "two replicas compare their own rows: %g, %g + %g", both,
       a, b);
    ok(fabs(one - both) > 0.1 * both, "one compares all rows: %g, not %g", one, both);
    ok(fabs(mean - (a + b) / 6) < 1e-6 * mean, "the mean is that of six samples: %g, %g", mean, (a + b) / 6);
    ok(fabs(circle_loss(1, MIRT_SUM_OVER_BATCH_SIZE, labels, 0, 5) - a / 4) < 1e-6 * a, "or of four of five");
    ok(circle_loss(1, MIRT_SUM_OVER_BATCH_SIZE, labels, 8, 2) == 0, "or of none, which is 0");
    ok(circle_loss(3, MIRT_SUM, labels, 0, 2) == 0, "a replica without rows, and others with one, have no pairs");
}

/* bfloat16 rounds embeddings to eight bits; the loss of these is taken in float32. */
static void check_circle_half(void) {
    double loss[2] = {NAN, NAN};
    for (int half = 0; half < 2; half++) {
        mirt_strategy *s = strategy_of(1, 1, 1);
        mirt_model *m = mirt_model_create(s, NULL);
        mirt_dense_desc dense;
        mirt_compile_desc d;
        memset(&dense, 0, sizeof dense);
        memset(&d, 0, sizeof d);
        dense.units = 8;
        d.optimizer = mirt_sgd(0.01f, 0, false);
        d.loss = MIRT_CIRCLE;
        bool good = !half || mirt_set_dtype_policy(m, "mixed_bfloat16") == MIRT_OK;
        mirt_model_output(m, mirt_unit_normalization(mirt_dense(mirt_input(m, MIRT_SHAPE(PIXELS * 2)), &dense), -1));
        const mirt_array x = mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(ROWS, PIXELS * 2)),
                         y = mirt_make_array(groups, MIRT_INT32, MIRT_SHAPE(ROWS));
        good = good && mirt_compile(m, &d) == MIRT_OK;
        for (int step = 0; step < 5; step++) good = good && mirt_train_step(m, x, y, &loss[half]) == MIRT_OK;
        ok(good, "circle trains%s%s%s", half ? " in mixed_bfloat16" : "", good ? "" : ": ",
           good ? "" : mirt_last_error());
        mirt_strategy_destroy(s);
    }
    ok(loss[0] > 1 && fabs(loss[1] - loss[0]) < 0.1 * loss[0], "to a loss of %g in mixed_bfloat16, %g in float32",
       loss[1], loss[0]);
}

static void check_circle_refusals(void) {
    const float weights[2] = {1, 2};
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, NULL), *flat = pixel_model(s, &circle_mean);
    const mirt_array x = mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(ROWS, H, W, 2));
    mirt_fit_desc fit;
    mirt_model_output(m, mirt_sigmoid(mirt_input(m, MIRT_SHAPE(H, W, 2))));
    refused(compile_with(m, MIRT_CIRCLE, circle_mean.how) == MIRT_E_SHAPE,
            "circle needs embeddings (rows, n), not (rows, 5, 3, 2): flatten the output");
    refused(!mirt_fit_arrays(flat, x, mirt_make_array(classes, MIRT_UINT8, MIRT_SHAPE(ROWS, PIXELS)), NULL),
            "circle of pixels takes 1 (the class number)");
    memset(&fit, 0, sizeof fit);
    fit.class_weights = weights;
    fit.num_class_weights = 2;
    refused(!mirt_fit_arrays(flat, x, mirt_make_array(groups, MIRT_INT32, MIRT_SHAPE(ROWS)), &fit),
            "is not one of the 2 classes 0 to 1");
    fit.num_class_weights = 1;
    refused(!mirt_fit_arrays(flat, x, mirt_make_array(groups, MIRT_INT32, MIRT_SHAPE(ROWS)), &fit),
            "num_class_weights is 1, but pixels has 2 classes: each needs a weight");
    mirt_strategy_destroy(s);
}

/* Nothing counts: the loss is 0, and nothing is trained. */
static void check_all_ignored(void) {
    static uint8_t none[ROWS * PIXELS];
    memset(none, 255, sizeof none);
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = pixel_model(s, &cases[0]);
    const mirt_array x = mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(ROWS, H, W, 2)),
                     y = mirt_make_array(none, MIRT_UINT8, MIRT_SHAPE(ROWS, H, W));
    float before[2 * CLASSES], after[2 * CLASSES];
    double loss = NAN;
    const bool good = mirt_get_weight(m, "conv2d/kernel", 0, before, 2 * CLASSES) == MIRT_OK &&
                      mirt_train_step(m, x, y, &loss) == MIRT_OK &&
                      mirt_get_weight(m, "conv2d/kernel", 0, after, 2 * CLASSES) == MIRT_OK;
    ok(good && loss == 0 && memcmp(before, after, sizeof before) == 0, "all labels are ignored: the loss is %g%s", loss,
       mirt_last_error());
    mirt_strategy_destroy(s);
}

/* A loss as a metric ignores the class that the output's loss ignores. */
static void check_metric(void) {
    const mirt_metric metric = MIRT_METRIC_LOSS;
    mirt_metric_options how;
    mirt_logs logs;
    memset(&how, 0, sizeof how);
    how.loss = cases[0].loss;
    how.from_logits = true;
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = pixel_model(s, &cases[0]);
    mirt_dataset *data = pixel_data(&cases[0]);
    const bool good = mirt_set_metrics(m, &metric, &how, 1) == MIRT_OK && mirt_evaluate(m, data, &logs) == MIRT_OK;
    const double loss = good ? mirt_logs_value(&logs, "loss") : NAN,
                 value = good ? mirt_logs_value(&logs, "sparse_categorical_crossentropy") : NAN;
    ok(loss > 0 && fabs(value - loss) < 1e-7, "as a metric the loss is %g, not %g %s", value, loss, mirt_last_error());
    how.loss = MIRT_DICE;
    refused(mirt_set_metrics(m, &metric, &how, 1) == MIRT_E_INVALID, "dice depends on the other samples of a batch");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* (1 - p^q) / q is 1 / q where the label has no probability at all, however small q is. */
static void check_no_probability(void) {
    const float p[2] = {1, 0};
    const uint8_t label = 1;
    mirt_compile_desc d;
    mirt_logs logs;
    memset(&d, 0, sizeof d);
    d.loss = MIRT_CATEGORICAL_GENERALIZED_CROSS_ENTROPY;
    d.loss_options[0].q = 0.0625f;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "shares");
    mirt_model_output(m, mirt_rescale(mirt_input(m, MIRT_SHAPE(2)), 1, 0));
    mirt_dataset *data =
        mirt_batch(mirt_arrays(mirt_make_array(p, MIRT_FLOAT32, mirt_make_shape(1, 2, 0, 0, 0, 0)),
                               mirt_make_array(&label, MIRT_UINT8, mirt_make_shape(1, 0, 0, 0, 0, 0))), 1);
    const bool good = mirt_compile(m, &d) == MIRT_OK && mirt_evaluate(m, data, &logs) == MIRT_OK;
    ok(good && mirt_logs_value(&logs, "loss") == 16, "a label without probability costs 1 / q: %g, not 16%s%s",
       good ? mirt_logs_value(&logs, "loss") : (double)NAN, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

typedef struct bad_loop {
    loss_case first, second; /* with the same labels */
    bool computed;           /* not the batch's own labels */
    const char *says;
} bad_loop;

static bool record_bad(mirt_function *f, void *user) {
    const bad_loop *b = (const bad_loop *)user;
    mirt_tensor *labels = mirt_function_y(f, 0), *y = mirt_call(f->model, mirt_function_x(f, 0), MIRT_TRAINING_ON);
    if (b->computed) labels = mirt_cast(mirt_scale(mirt_cast(labels, MIRT_FLOAT32), 1, 0), MIRT_INT32);
    mirt_tensor *a = mirt_loss_values_with(b->first.loss, &b->first.how, labels, y);
    return mirt_minimize(f, mirt_add(a, mirt_loss_values_with(b->second.loss, &b->second.how, labels, y))) == MIRT_OK;
}

static void check_bad_loops(void) {
    static bad_loop bad[5];
    for (int i = 0; i < MIRT__COUNT(bad); i++) bad[i].first = bad[i].second = cases[0];
    bad[0].second.how.ignore_class = 254;
    bad[0].says = "losses of the same labels have to ignore the same class";
    bad[1].computed = true;
    bad[1].says = "ignore_class needs labels of the batch as they are";
    bad[2].second.how.delta = 1;
    bad[2].says = "sparse_categorical_crossentropy has no option delta";
    bad[3].first.how.ignore_class = bad[3].second.how.ignore_class = 0;
    bad[3].second.how.has_ignore_class = false;
    bad[3].says = bad[0].says;
    bad[4].first = circle_mean;
    bad[4].second = cases[0];
    bad[4].says = "circle needs embeddings (rows, n), not (rows, 5, 3, 4)";
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        mirt_strategy *s = strategy_of(1, 1, 1);
        mirt_model *m = pixel_model(s, &cases[0]);
        mirt_dataset *data = mirt_distribute(s, pixel_data(&cases[0]));
        refused(!mirt_function_create(m, data, record_bad, &bad[i]), bad[i].says);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
}

int main(void) {
    draw();
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        check_loops(&cases[i]);
        check_saved(&cases[i]);
    }
    check_saved_second();
    check_taken();
    check_options();
    check_labels();
    check_dtypes();
    check_circle_pairs();
    check_circle_half();
    check_circle_refusals();
    check_all_ignored();
    check_metric();
    check_no_probability();
    check_bad_loops();
    return done_testing();
}
