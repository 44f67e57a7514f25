/* Metrics against Keras, over any split of the samples; confusion matrices and their pictures. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/metrics.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { MOST = 9 };
static float p_values[METRIC_ROWS * MOST], one_hot[METRIC_ROWS * MOST], weight_values[METRIC_ROWS];
static int32_t classes_of[METRIC_ROWS];

/* The predictions and labels of make_metrics.py. */
static void draw(unsigned seed, int n) {
    for (int r = 0; r < METRIC_ROWS; r++) {
        int best = 0;
        float largest = -9;
        for (int j = 0; j < n; j++) {
            const uint32_t i = (uint32_t)(r * n + j);
            float *p = &p_values[i];
            *p = golden_uniform(seed, i) / 2 + 0.5f;
            if (r % 8 == 0) *p = floorf(*p * 4) / 4;
            const float score = golden_uniform(seed + 1, i) + *p;
            if (score > largest) best = j;
            if (score > largest) largest = score;
        }
        const uint32_t word = golden_word(seed + 1, (uint32_t)r);
        classes_of[r] = n > 1 ? best : ((double)(word >> 16) < 65536.0 * (double)p_values[r]) ^ (word % 4 == 0);
        for (int j = 0; j < n; j++) one_hot[r * n + j] = n > 1 ? j == best : (float)classes_of[r];
        weight_values[r] = golden_uniform(seed + 2, (uint32_t)r) + 1.25f;
    }
}

static mirt_dataset *metric_data(int n, bool sparse, int64_t batch) {
    mirt_array x = mirt_make_array(p_values, MIRT_FLOAT32, MIRT_SHAPE(METRIC_ROWS, n));
    mirt_array y = sparse ? mirt_make_array(classes_of, MIRT_INT32, MIRT_SHAPE(METRIC_ROWS))
                          : mirt_make_array(one_hot, MIRT_FLOAT32, MIRT_SHAPE(METRIC_ROWS, n));
    return mirt_batch(mirt_arrays(x, y), batch);
}

/* The same with weights, or as 35 samples of 2 by 3 positions. */
static mirt_dataset *golden_data(const golden_metric *c, int64_t batch) {
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = mirt_make_array(p_values, MIRT_FLOAT32, c->positions ? MIRT_SHAPE(35, 2, 3, c->n)
                                                                     : MIRT_SHAPE(METRIC_ROWS, c->n));
    data.y[0] = data.x[0];
    data.y[0].data = one_hot;
    if (c->sparse) data.y[0] = mirt_make_array(classes_of, MIRT_INT32, c->positions ? MIRT_SHAPE(35, 2, 3)
                                                                                    : MIRT_SHAPE(METRIC_ROWS));
    if (c->weighted)
        data.weights = mirt_make_array(weight_values, MIRT_FLOAT32, MIRT_SHAPE(c->positions ? 35 : METRIC_ROWS));
    return mirt_batch(mirt_arrays_of(&data), batch);
}

static double weights_of(int rows) {
    double sum = 0;
    for (int r = 0; r < rows; r++) sum += (double)weight_values[r];
    return sum;
}

static mirt_tensor *any_labels(mirt_tensor *labels, mirt_tensor *output, void *user) {
    return (void)labels, (void)user, mirt_reduce_mean(mirt_square(output), 0, false);
}
static const mirt_custom_loss loss_of_any_labels = {"any_labels", any_labels, NULL};

/* A model whose outputs are its inputs. */
static mirt_model *identity(mirt_strategy *s, int n, bool sparse, mirt_activation_kind activation) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = n == 1   ? MIRT_BINARY_CROSSENTROPY
             : sparse ? MIRT_SPARSE_CATEGORICAL_CROSSENTROPY
             : n == 4 ? MIRT_MEAN_SQUARED_ERROR
                      : MIRT_CATEGORICAL_CROSSENTROPY;
    c.from_logits = activation == MIRT_LINEAR;
    mirt_model *m = mirt_model_create(s, "identity");
    mirt_model_output(m, mirt_activation(mirt_input(m, MIRT_SHAPE(n)), activation));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* The same with positions. */
static mirt_model *identity_map(mirt_strategy *s, int n, bool sparse) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = sparse ? MIRT_SPARSE_CATEGORICAL_CROSSENTROPY : MIRT_MEAN_SQUARED_ERROR;
    c.from_logits = true;
    mirt_model *m = mirt_model_create(s, "map");
    mirt_model_output(m, mirt_activation(mirt_input(m, MIRT_SHAPE(2, 3, n)), MIRT_LINEAR));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_metric metric_named(const char *name) {
    for (int i = 1; i < MIRT__METRIC_COUNT; i++) {
        if (strcmp(mirt__metric_class_get((mirt_metric)i)->name, name) == 0) return (mirt_metric)i;
    }
    return MIRT_METRIC_NONE;
}

static double evaluated(mirt_model *m, mirt_metric metric, const mirt_metric_options *o, int n, bool sparse,
                        int64_t batch) {
    mirt_logs logs;
    mirt_dataset *data = metric_data(n, sparse, batch);
    bool good = mirt_set_metrics(m, &metric, o, 1) == MIRT_OK && mirt_evaluate(m, data, &logs) == MIRT_OK;
    mirt_dataset_destroy(data);
    return good ? mirt_logs_value(&logs, o->name ? o->name : mirt__metric_class_get(metric)->name) : (double)NAN;
}

static mirt_loss loss_named(const char *name) {
    for (int i = 1; i < MIRT__LOSS_COUNT; i++) {
        if (strcmp(mirt__loss_class_get((mirt_loss)i)->name, name) == 0) return (mirt_loss)i;
    }
    return MIRT_LOSS_NONE;
}

static mirt_metric_options golden_options(const golden_metric *c) {
    static const char *const averages[] = {"auto", "micro", "macro", "weighted"};
    mirt_metric_options o;
    memset(&o, 0, sizeof o);
    o.k = c->k;
    o.threshold = c->threshold >= 0 ? (float)c->threshold : 0;
    o.has_threshold = c->threshold >= 0;
    o.num_thresholds = c->thresholds;
    o.curve = strcmp(c->curve, "PR") == 0 ? MIRT_PR : MIRT_ROC;
    while (strcmp(averages[o.average], c->average) != 0) o.average = (mirt_average)(o.average + 1);
    o.weighted = c->weighted != 0;
    o.class_id = c->class_id > 0 ? c->class_id : 0;
    o.has_class_id = c->class_id >= 0;
    o.ignore_class = c->ignore > 0 ? c->ignore : 0;
    o.has_ignore_class = c->ignore >= 0;
    o.beta = (float)c->beta;
    o.at = (float)c->at;
    o.target_classes = c->targets;
    o.loss = metric_named(c->name) ? MIRT_LOSS_NONE : loss_named(c->name);
    return o;
}

/* Evaluates the only metric of a model; *off: how far the values of classes are from Keras's. */
static double golden_value(mirt_model *m, const golden_metric *c, int64_t batch, double *off) {
    const mirt_metric_options o = golden_options(c);
    const mirt_metric metric = o.loss ? MIRT_METRIC_LOSS : metric_named(c->name);
    double values[MOST];
    mirt_logs logs;
    mirt_dataset *data = golden_data(c, batch);
    bool good = m && mirt_set_metrics(m, &metric, &o, 1) == MIRT_OK && mirt_evaluate(m, data, &logs) == MIRT_OK;
    mirt_dataset_destroy(data);
    *off = 0;
    if (good && c->classes) good = mirt_metric_result(m, c->name, values, c->classes) == MIRT_OK;
    for (int i = 0; good && i < c->classes; i++) {
        const double own = isnan(values[i]) ? 0 : values[i]; /* Keras's is 0 for a class that does not occur */
        *off = worse(*off, fabs(own - c->by_class[i]));
    }
    return good ? mirt_logs_value(&logs, c->name) : (double)NAN;
}

static void check_golden(const golden_metric *c) {
    static const int splits[][2] = {{1, 211}, {1, 1}, {3, 50}, {5, 64}, {8, 7}};
    double value = 0, spread = 0, off = 0;
    const bool recorded = golden_options(c).loss != MIRT_LOSS_NONE;
    draw(c->seed, c->n);
    for (int i = 0; i < MIRT__COUNT(splits); i++) {
        mirt_strategy *s = strategy_of(1 + i % 2, splits[i][0] + i % 2, 1);
        mirt_model *m = c->positions ? identity_map(s, c->n, c->sparse != 0)
                                     : identity(s, c->n, c->sparse != 0, MIRT_LINEAR);
        double other, own = golden_value(m, c, splits[i][1], &other);
        off = worse(off, other);
        if (i) spread = worse(spread, fabs(own - value));
        else value = own;
        mirt_strategy_destroy(s);
    }
    ok(fabs(value - c->value) < 1e-6 * (1 + fabs(c->value)) && off < 1e-6 &&
           spread <= (recorded ? 1e-6 * (1 + fabs(value)) : 0),
       "%s of %d, %s%s%s%s%s: %.9g, Keras %.9g; splits and batches differ by %g, classes by %g%s%s", c->name, c->n,
       c->sparse ? "class numbers" : "one-hot", c->curve[0] == 'P' ? ", PR" : "", c->positions ? ", positions" : "",
       c->weighted ? ", weighted" : "", strcmp(c->average, "auto") == 0 ? "" : ", by class", value, c->value, spread,
       off, isnan(value) ? ": " : "", isnan(value) ? mirt_last_error() : "");
}

/* Logits, told to be some, count as the probabilities they stand for. */
static void check_from_logits(int n, bool sparse) {
    static const mirt_metric kinds[] = {MIRT_PRECISION, MIRT_RECALL,          MIRT_F1_SCORE,
                                        MIRT_AUC,       MIRT_BINARY_ACCURACY, MIRT_ACCURACY};
    const int count = n > 1 ? 4 : MIRT__COUNT(kinds); /* accuracies of several classes are the same of logits */
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *logits = identity(s, n, sparse, MIRT_LINEAR),
               *probabilities = identity(s, n, sparse, n > 1 ? MIRT_SOFTMAX : MIRT_SIGMOID);
    mirt_metric_options plain, told;
    memset(&plain, 0, sizeof plain);
    draw(7, n);
    for (int i = 0; i < METRIC_ROWS * n; i++) p_values[i] = 4 * p_values[i] - 2;
    told = plain;
    told.from_logits = true;
    for (int i = 0; i < count; i++) {
        double a = evaluated(logits, kinds[i], &told, n, sparse, 32),
               b = evaluated(probabilities, kinds[i], &plain, n, sparse, 32),
               c = evaluated(logits, kinds[i], &plain, n, sparse, 32);
        ok(a == b && a != c, "%s of %d logits: %g, as of their probabilities", mirt__metric_class_get(kinds[i])->name,
           n, a);
    }
    mirt_strategy_destroy(s);
}

/* Names, several at a time, in training, with options that are saved. */
/* Scores that are not finite: with one among them, no class is among the first, whatever k is; so has it in_top_k of
   TensorFlow. */
static void check_not_finite(bool sparse) {
    const float nan = (float)NAN, inf = (float)INFINITY;
    const float x[10][4] = {{0.5f, 0.4f, 0.3f, 0.2f}, {nan, 0.5f, 0.3f, 0.2f}, {0.5f, nan, 0.3f, 0.2f},
                            {inf, 0.5f, 0.3f, 0.2f},  {0.5f, inf, 0.3f, 0.2f}, {-inf, 0.5f, 0.3f, 0.2f},
                            {inf, inf, 0.3f, 0.2f},   {nan, nan, nan, nan},    {0.5f, 0.4f, 0.3f, -inf},
                            {0.2f, 0.3f, 0.4f, 0.5f}};
    const int32_t labels[10] = {0};
    float hot[10][4] = {{0}};
    int wrong = 0;
    for (int r = 0; r < 10; r++) hot[r][0] = 1;
    for (int replicas = 1; replicas < 4; replicas++) {
        mirt_strategy *s = strategy_of(1, replicas, 1);
        mirt_model *m = identity(s, 4, sparse, MIRT_LINEAR);
        for (int k = 1; k < 6; k++) {
            mirt_metric_options o;
            mirt_logs logs;
            const mirt_metric metric =
                metric_named(sparse ? "sparse_top_k_categorical_accuracy" : "top_k_categorical_accuracy");
            memset(&o, 0, sizeof o);
            o.k = k;
            o.name = "top";
            mirt_array y = sparse ? mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(10))
                                  : mirt_make_array(hot, MIRT_FLOAT32, MIRT_SHAPE(10, 4));
            bool good =
                m && mirt_set_metrics(m, &metric, &o, 1) == MIRT_OK &&
                mirt_evaluate_arrays(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(10, 4)), y, &logs) == MIRT_OK;
            wrong += !good || fabs(mirt_logs_value(&logs, "top") - (k >= 4 ? 0.2 : 0.1)) > 1e-9;
        }
        mirt_strategy_destroy(s);
    }
    ok(wrong == 0, "top-k of scores that are not finite, %s: %d of 15 differ from Keras's",
       sparse ? "class numbers" : "one-hot", wrong);
}

static void check_in_training(void) {
    static const char *const names[] = {"accuracy", "sparse_top_k_categorical_accuracy", "top2", "auc", "auc_1",
                                        "precision", "fbeta_score", "io_u", "recall_at_precision"};
    char path[300];
    mirt_fit_desc fit;
    mirt_logs before, after;
    bool good = true;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    fit.epochs = 2;
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_compile_desc c = image_compile(mirt_adam(1e-2f));
    c.metrics[1] = c.metrics[2] = MIRT_SPARSE_TOP_K_CATEGORICAL_ACCURACY;
    c.metrics[3] = c.metrics[4] = MIRT_AUC;
    c.metrics[5] = c.metrics[6] = MIRT_PRECISION;
    c.metric_options[2].k = 2;
    c.metric_options[2].name = "top2";
    c.metric_options[3].from_logits = c.metric_options[4].from_logits = c.metric_options[5].from_logits = true;
    c.metric_options[4].curve = MIRT_PR;
    c.metric_options[4].num_thresholds = 50;
    c.metric_options[5].threshold = 0.25f;
    c.metric_options[6].has_threshold = true;
    c.metrics[7] = MIRT_FBETA_SCORE;
    c.metric_options[7].average = MIRT_MACRO;
    c.metric_options[7].beta = 2;
    c.metrics[8] = MIRT_IOU;
    c.metric_options[8].target_classes = 0x16;
    c.metrics[9] = MIRT_RECALL_AT_PRECISION;
    c.metric_options[9].at = 0.375f;
    c.metric_options[9].from_logits = true;
    mirt_model *m = image_net(s, 0);
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, IMAGES), images_y(0, IMAGES)), 40),
                 *test = mirt_batch(mirt_arrays(images_x(0, 100), images_y(0, 100)), 31);
    fit.validation = test;
    mirt_history *h = mirt_compile(m, &c) == MIRT_OK ? mirt_fit(m, data, &fit) : NULL;
    for (int i = 0; h && i < MIRT__COUNT(names); i++) {
        char val[64];
        snprintf(val, sizeof val, "val_%s", names[i]);
        double value = mirt_history_last(h, names[i]), other = mirt_history_last(h, val);
        good = good && value > 0.2 && value <= 1 && other > 0.2 && other <= 1;
    }
    double accuracy = mirt_history_last(h, "accuracy"), top2 = mirt_history_last(h, "top2"),
           all = mirt_history_last(h, "sparse_top_k_categorical_accuracy");
    ok(h && good && accuracy < top2 && top2 < 1 && all == 1,
       "in training: accuracy %g, of the first two %g, of the first five of five %g%s%s", accuracy, top2, all,
       h ? "" : ": ", h ? "" : mirt_last_error());
    snprintf(path, sizeof path, "%s/metrics.safetensors", work_directory());
    mirt_model *loaded = h && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK ? mirt_load(s, path) : NULL;
    good = loaded && mirt_evaluate(m, test, &before) == MIRT_OK && mirt_evaluate(loaded, test, &after) == MIRT_OK &&
           before.count == 11 && after.count == 11;
    for (int i = 0; good && i < 11; i++)
        good = strcmp(before.name[i], after.name[i]) == 0 && before.value[i] == after.value[i];
    ok(good, "metrics with their options are saved and loaded%s%s", good ? "" : ": ", good ? "" : mirt_last_error());
    unlink(path);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(s);
}

/* Values by class that there are not. */
static void check_no_result(void) {
    static const mirt_metric kinds[2] = {MIRT_PRECISION, MIRT_RECALL};
    mirt_metric_options o[2];
    double values[MOST];
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = identity(s, 5, true, MIRT_LINEAR);
    memset(o, 0, sizeof o);
    o[1].average = MIRT_WEIGHTED;
    ok(mirt_set_metrics(m, kinds, o, 2) == MIRT_OK && mirt_metric_result(m, "recall", values, 5) == MIRT_E_STATE,
       "refused: %s", mirt_last_error());
    mirt_dataset *data = metric_data(5, true, 100);
    ok(mirt_evaluate(m, data, NULL) == MIRT_OK && mirt_metric_result(m, "val_recall", values, 5) == MIRT_OK,
       "then there are some, by the name in validation too");
    ok(mirt_metric_result(m, "recall", values, 4) == MIRT_E_SHAPE, "refused: %s", mirt_last_error());
    ok(mirt_metric_result(m, "recall_1", values, 5) == MIRT_E_NOT_FOUND, "refused: %s", mirt_last_error());
    ok(mirt_metric_result(m, "precision", values, 5) == MIRT_E_INVALID, "refused: %s", mirt_last_error());
    ok(mirt_metric_result(m, NULL, values, 5) == MIRT_E_INVALID &&
           mirt_metric_result(m, "recall", NULL, 5) == MIRT_E_INVALID &&
           mirt_metric_result(NULL, "recall", values, 5) == MIRT_E_INVALID,
       "refused: %s", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>metrics of single outputs */

static mirt_tensor *distance(mirt_tensor *labels, mirt_tensor *output, void *user) {
    return (void)user, mirt_abs(mirt_subtract(labels, output));
}

/* A model of two outputs with weighted and other metrics; saved, loaded and with other metrics. */
static void check_outputs(void) {
    static const char *const names[] = {"loss",
                                        "a_loss",
                                        "b_loss",
                                        "a_recall",
                                        "a_far",
                                        "a_precision",
                                        "b_mean_squared_error",
                                        "b_weighted_mean_squared_error",
                                        "b_weighted_mean_squared_error_1"};
    const mirt_custom_metric far = {"distance", distance, NULL, NULL, MIRT_MODE_MIN};
    char path[300];
    mirt_compile_desc c;
    mirt_data data;
    mirt_logs before, after;
    mirt_tensor *out[2];
    memset(&c, 0, sizeof c);
    memset(&data, 0, sizeof data);
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = mirt_model_create(s, "two");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(4));
    mirt_next_name(m, "a");
    out[0] = mirt_activation(x, MIRT_SIGMOID);
    mirt_next_name(m, "b");
    out[1] = mirt_activation(x, MIRT_LINEAR);
    mirt_model_outputs(m, out, 2);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    c.metrics[0] = MIRT_PRECISION;
    c.metrics[1] = c.metrics[2] = c.metrics[3] = MIRT_MSE;
    c.metrics[4] = MIRT_RECALL;
    c.metric_options[0].output = c.metric_options[4].output = "a";
    c.metric_options[0].weighted = c.metric_options[2].weighted = c.metric_options[3].weighted = true;
    c.metric_options[1].output = c.metric_options[2].output = c.metric_options[3].output = "b";
    c.metric_options[4].average = MIRT_WEIGHTED;
    c.custom_metrics[0] = &far;
    c.custom_metric_options[0].output = "a";
    c.custom_metric_options[0].name = "far";
    draw(3, 4);
    data.x[0] = data.y[0] = data.y[1] = mirt_make_array(p_values, MIRT_FLOAT32, MIRT_SHAPE(METRIC_ROWS, 4));
    data.y[0].data = data.y[1].data = one_hot;
    data.weights = mirt_make_array(weight_values, MIRT_FLOAT32, MIRT_SHAPE(METRIC_ROWS));
    mirt_dataset *set = mirt_batch(mirt_arrays_of(&data), 50);
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_evaluate(m, set, &before) == MIRT_OK && before.count == 9;
    for (int i = 0; good && i < 9; i++) {
        good = strcmp(before.name[i], names[i]) == 0;
        if (!good) printf("# %s, not %s\n", before.name[i], names[i]);
    }
    ok(good && before.value[6] != before.value[7] && before.value[7] == before.value[8] &&
           fabs(before.value[7] - before.value[2] * METRIC_ROWS / weights_of(METRIC_ROWS)) < 1e-7,
       "each output has its metrics, the weighted ones last%s%s", good ? "" : ": ", good ? "" : mirt_last_error());
    snprintf(path, sizeof path, "%s/outputs.safetensors", work_directory());
    mirt_model *loaded = good && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK ? mirt_load(s, path) : NULL;
    good = loaded && mirt_evaluate(loaded, set, &after) == MIRT_OK && after.count == before.count;
    for (int i = 0; good && i < 9; i++)
        good = strcmp(before.name[i], after.name[i]) == 0 && before.value[i] == after.value[i];
    ok(good, "they are saved and loaded%s%s", good ? "" : ": ", good ? "" : mirt_last_error());
    good = mirt_set_metrics(m, &c.metrics[4], &c.metric_options[4], 1) == MIRT_OK &&
           mirt_evaluate(m, set, &after) == MIRT_OK;
    ok(good && after.count == 5 && strcmp(after.name[3], "a_recall") == 0 && after.value[3] == before.value[3],
       "mirt_set_metrics gives one output a metric and keeps the custom ones");
    c.custom_metric_options[0].output = "c";
    ok(mirt_compile(m, &c) == MIRT_E_INVALID &&
           strstr(mirt_last_error(), "no output \"c\" with a loss; there are: a, b"),
       "refused: %s", mirt_last_error());
    unlink(path);
    mirt_dataset_destroy(set);
    mirt_strategy_destroy(s);
}

/* >>mean IoU */

/* Of outputs of odd sizes, against a count in plain C; any number of replicas counts the same. */
static void check_iou(int height, int width, int n, int samples, int void_class) {
    int64_t hit[MOST] = {0}, all[MOST] = {0};
    double want = 0, values[MOST];
    int classes = 0, wrong = 0;
    mirt_metric_options o;
    const mirt_metric metric = MIRT_MEAN_IOU;
    memset(&o, 0, sizeof o);
    o.ignore_class = void_class;
    o.has_ignore_class = true;
    draw((unsigned)(height * 100 + n), n);
    const int pixels = samples * height * width;
    uint8_t labels[METRIC_ROWS];
    for (int r = 0; r < pixels; r++) {
        int best = 0;
        for (int j = 1; j < n; j++) best = p_values[r * n + j] > p_values[r * n + best] ? j : best;
        labels[r] = r % 11 == 3 ? 255 : (uint8_t)classes_of[r];
        if (labels[r] == 255 || labels[r] == void_class) continue;
        hit[best] += best == labels[r];
        all[best]++;
        all[labels[r]] += best != labels[r];
    }
    for (int j = 0; j < n; j++) want += all[j] ? (double)hit[j] / (double)all[j] : 0;
    for (int j = 0; j < n; j++) classes += all[j] > 0;
    for (int replicas = 1; replicas < 4; replicas++) {
        mirt_logs logs;
        mirt_compile_desc c;
        mirt_data data;
        memset(&c, 0, sizeof c);
        memset(&data, 0, sizeof data);
        c.custom_losses[0] = &loss_of_any_labels;
        data.x[0] = mirt_make_array(p_values, MIRT_FLOAT32, MIRT_SHAPE(samples, height, width, n));
        data.y[0] = mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(samples, height, width));
        mirt_strategy *s = strategy_of(1 + replicas / 2, replicas, 1);
        mirt_model *m = mirt_model_create(s, "map");
        mirt_model_output(m, mirt_activation(mirt_input(m, MIRT_SHAPE(height, width, n)), MIRT_LINEAR));
        mirt_dataset *set = mirt_batch(mirt_arrays_of(&data), replicas + 1);
        bool good = mirt_compile(m, &c) == MIRT_OK && mirt_set_metrics(m, &metric, &o, 1) == MIRT_OK &&
                    mirt_evaluate(m, set, &logs) == MIRT_OK &&
                    mirt_metric_result(m, "mean_io_u", values, n) == MIRT_OK;
        wrong += !good || mirt_logs_value(&logs, "mean_io_u") != want / classes;
        for (int j = 0; good && j < n; j++)
            wrong += all[j] ? values[j] != (double)hit[j] / (double)all[j] : !isnan(values[j]);
        mirt_dataset_destroy(set);
        mirt_strategy_destroy(s);
    }
    ok(!wrong, "mean IoU of %d samples of %d by %d pixels, %d classes: %g%s%s", samples, height, width, n,
       want / classes, wrong ? ": " : "", wrong ? mirt_last_error() : "");
}

/* Outputs that are class numbers give the IoU of those that make them. */
static void check_class_numbers(bool hot) {
    float numbers[METRIC_ROWS];
    double own[5], other[5];
    mirt_metric_options o;
    mirt_compile_desc c;
    mirt_logs logs[2];
    const mirt_metric metric = MIRT_MEAN_IOU;
    memset(&o, 0, sizeof o);
    memset(&c, 0, sizeof c);
    c.custom_losses[0] = &loss_of_any_labels;
    draw(77, 5);
    for (int r = 0; r < METRIC_ROWS; r++) {
        int best = 0;
        for (int j = 1; j < 5; j++) best = p_values[r * 5 + j] > p_values[r * 5 + best] ? j : best;
        numbers[r] = (float)best;
    }
    mirt_array y = hot ? mirt_make_array(one_hot, MIRT_FLOAT32, MIRT_SHAPE(METRIC_ROWS, 5))
                       : mirt_make_array(classes_of, MIRT_INT32, MIRT_SHAPE(METRIC_ROWS));
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = mirt_model_create(s, "numbers"), *scores = mirt_model_create(s, "scores");
    mirt_model_output(m, mirt_reduce_mean(mirt_activation(mirt_input(m, MIRT_SHAPE(1)), MIRT_LINEAR), 2, true));
    mirt_model_output(scores, mirt_activation(mirt_input(scores, MIRT_SHAPE(5)), MIRT_LINEAR));
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_compile(scores, &c) == MIRT_OK &&
                mirt_set_metrics(scores, &metric, &o, 1) == MIRT_OK &&
                mirt_evaluate_arrays(scores, mirt_make_array(p_values, MIRT_FLOAT32, MIRT_SHAPE(METRIC_ROWS, 5)), y,
                                     &logs[0]) == MIRT_OK &&
                mirt_metric_result(scores, "mean_io_u", own, 5) == MIRT_OK;
    o.sparse_y_pred = true;
    o.num_classes = 5;
    good = good && mirt_set_metrics(m, &metric, &o, 1) == MIRT_OK &&
           mirt_evaluate_arrays(m, mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(METRIC_ROWS, 1)), y, &logs[1]) ==
               MIRT_OK &&
           mirt_metric_result(m, "mean_io_u", other, 5) == MIRT_OK && memcmp(own, other, sizeof own) == 0;
    ok(good, "outputs that are class numbers, with %s labels%s%s", hot ? "one-hot" : "such", good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

static void refused(mirt_model *m, mirt_metric metric, const mirt_metric_options *o, const char *words) {
    mirt_status status = mirt_set_metrics(m, &metric, o, 1);
    ok(status != MIRT_OK && strstr(mirt_last_error(), words), "refused: %s",
       status == MIRT_OK ? words : mirt_last_error());
}

static void check_bad(void) {
    mirt_metric_options o;
    memset(&o, 0, sizeof o);
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *sparse = identity(s, 5, true, MIRT_LINEAR), *dense = identity(s, 5, false, MIRT_LINEAR),
               *one = identity(s, 1, false, MIRT_LINEAR);
    refused(sparse, MIRT_TOP_K_CATEGORICAL_ACCURACY, NULL, "takes one-hot labels; sparse_categorical_crossentropy of");
    refused(dense, MIRT_SPARSE_CATEGORICAL_ACCURACY, NULL, "takes class numbers; categorical_crossentropy of");
    refused(one, MIRT_CATEGORICAL_ACCURACY, NULL, "(rows, ..., classes)");
    refused(sparse, MIRT_MSE, NULL, "compares values");
    refused(sparse, (mirt_metric)99, NULL, "invalid metric (99)");
    o.average = MIRT_MACRO;
    refused(dense, MIRT_TRUE_POSITIVES, &o, "no average; precision, recall, F1 and F-beta have");
    o.average = MIRT_AVERAGE_AUTO;
    o.k = -2;
    refused(sparse, MIRT_SPARSE_TOP_K_CATEGORICAL_ACCURACY, &o, "k is -2");
    o.k = 0;
    o.num_thresholds = 1;
    refused(one, MIRT_AUC, &o, "1 thresholds");
    o.num_thresholds = 0;
    o.threshold = (float)NAN;
    refused(one, MIRT_PRECISION, &o, "threshold is");
    o.threshold = 0;
    o.name = "";
    refused(one, MIRT_PRECISION, &o, "its name in logs");
    memset(&o, 0, sizeof o);
    o.average = (mirt_average)7;
    refused(sparse, MIRT_F1_SCORE, &o, "invalid average (7)");
    o.average = MIRT_MACRO;
    o.class_id = 5;
    refused(sparse, MIRT_F1_SCORE, &o, "class_id is 5; activation has 5 classes");
    o.class_id = -1;
    refused(sparse, MIRT_PRECISION, &o, "class_id is -1");
    o.class_id = 0;
    o.num_classes = 1;
    refused(sparse, MIRT_MEAN_IOU, &o, "num_classes is 1");
    o.num_classes = INT_MAX;
    refused(sparse, MIRT_MEAN_IOU, &o, "at most 1048576 classes");
    o.num_classes = 0;
    o.sparse_y_pred = true;
    refused(one, MIRT_MEAN_IOU, &o, "needs num_classes");
    o.loss = (mirt_loss)-1;
    refused(one, MIRT_METRIC_LOSS, &o, "invalid loss (-1)");
    o.loss = MIRT_LOSS_NONE;
    refused(one, MIRT_METRIC_LOSS, &o, "needs a `loss`");
    o.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    refused(dense, MIRT_METRIC_LOSS, &o, "takes class numbers; categorical_crossentropy of");
    o.loss = MIRT_TVERSKY;
    refused(one, MIRT_METRIC_LOSS, &o, "tversky depends on the other samples of a batch: it cannot be");
    o.loss = MIRT_CIRCLE;
    refused(sparse, MIRT_METRIC_LOSS, &o, "circle depends on the other samples of a batch");
    memset(&o, 0, sizeof o);
    refused(sparse, MIRT_IOU, &o, "io_u needs class_id or target_classes");
    o.target_classes = 0x21;
    refused(dense, MIRT_ONE_HOT_IOU, &o, "one_hot_io_u: target_classes is 0x21; activation has 5 classes");
    refused(one, MIRT_BINARY_IOU, &o, "binary_io_u: target_classes is 0x21; activation has 2 classes");
    refused(sparse, MIRT_ONE_HOT_MEAN_IOU, NULL, "takes one-hot labels; sparse_categorical_crossentropy of");
    refused(sparse, MIRT_PEARSON_CORRELATION, NULL, "compares values");
    o.target_classes = 0;
    o.class_id = 5;
    refused(dense, MIRT_PRECISION_AT_RECALL, &o, "class_id is 5; activation has 5 classes");
    o.class_id = 0;
    o.beta = -1;
    refused(dense, MIRT_FBETA_SCORE, &o, "beta is -1; it must be positive and finite");
    o.beta = 0;
    o.at = 1.5f;
    refused(dense, MIRT_RECALL_AT_PRECISION, &o, "`at` is 1.5; it must be 0 to 1");
    o.at = 0;
    o.output = "nothing";
    refused(one, MIRT_PRECISION, &o, "no output \"nothing\" with a loss; there are: activation");
    refused(sparse, MIRT_R2_SCORE, NULL, "compares values");
    memset(&o, 0, sizeof o);
    ok(evaluated(one, MIRT_RECALL, &o, 1, false, 10) >= 0, "what was refused left the model as it was");
    mirt_strategy_destroy(s);
}

/* >>confusion */

static void check_confusion(int n, bool sparse) {
    enum { MOST_CLASSES = 9 };
    int64_t counts[MOST_CLASSES * MOST_CLASSES], want[MOST_CLASSES * MOST_CLASSES];
    const int classes = n == 1 ? 2 : n;
    memset(want, 0, sizeof want);
    draw(3, n);
    for (int r = 0; r < METRIC_ROWS; r++) {
        int best = n == 1 && p_values[r] > 0.5f;
        for (int j = 1; j < n; j++) best = p_values[r * n + j] > p_values[r * n + best] ? j : best;
        want[classes_of[r] * classes + best]++;
    }
    for (int devices = 1; devices < 4; devices++) {
        mirt_strategy *s = strategy_of(devices, 3, 1);
        mirt_model *m = mirt_model_create(s, "identity");
        mirt_model_output(m, mirt_activation(mirt_input(m, MIRT_SHAPE(n)), MIRT_LINEAR));
        mirt_dataset *data = metric_data(n, sparse, 17);
        mirt_status status = mirt_confusion_matrix(m, data, counts, classes);
        ok(status == MIRT_OK && memcmp(counts, want, sizeof *counts * (size_t)(classes * classes)) == 0,
           "%d classes, %d devices: every sample is where it belongs%s%s", classes, devices, status ? ": " : "",
           status ? mirt_last_error() : "");
        if (devices == 3) {
            ok(mirt_confusion_matrix(m, data, counts, classes + 1) == MIRT_E_SHAPE, "refused: %s", mirt_last_error());
            classes_of[5] = 77;
            if (sparse)
                ok(mirt_confusion_matrix(m, data, counts, classes) == MIRT_E_INVALID &&
                       strstr(mirt_last_error(), "sample 5"),
                   "refused: %s", mirt_last_error());
        }
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
}

/* A picture can be read again, and is as large as its classes need. */
static void check_picture(int classes, const char *const *names) {
    char path[300];
    int64_t *counts = (int64_t *)calloc((size_t)classes * (size_t)classes, sizeof *counts);
    for (int i = 0; i < classes; i++) {
        for (int j = 0; j < classes; j++)
            counts[i * classes + j] = i == j ? 970 + i : (i * 7 + j * 3) % 11 > 7 ? 13 * (i + 1) : 0;
    }
    snprintf(path, sizeof path, "%s/confusion.png", work_directory());
    mirt_status status = mirt_save_confusion_png(path, counts, classes, names);
    mirt_image info;
    memset(&info, 0, sizeof info);
    bool good = status == MIRT_OK && mirt_read_image(path, MIRT_RGB, NULL, &info) == MIRT_OK;
    ok(good && info.width > classes && info.height > classes, "a picture of %d classes: %d by %d pixels%s%s", classes,
       (int)info.width, (int)info.height, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_image_free(&info);
    unlink(path);
    free(counts);
}

/* Above 512 classes a cell is two pixels, without letters or gaps. Letters that no picture can show are question
   marks. */
static void check_small_cells(void) {
    enum { SMALL = 600, LEFT = 40, SIDE = LEFT + 2 * SMALL + 12 };
    static const unsigned char blue[3] = {31, 95, 168}, gray[3] = {247, 247, 247};
    static const char *const odd[][2] = {{"?a?", "b"}, {"\x01"
                                                       "a\x7f",
                                                       "b"}};
    char path[300];
    int64_t *counts = (int64_t *)calloc((size_t)SMALL * SMALL, sizeof *counts);
    for (int i = 0; i < SMALL; i++) counts[i * SMALL + i] = i + 1;
    snprintf(path, sizeof path, "%s/confusion.png", work_directory());
    mirt_status status = mirt_save_confusion_png(path, counts, SMALL, NULL);
    mirt_image picture, other;
    memset(&picture, 0, sizeof picture);
    memset(&other, 0, sizeof other);
    bool good = status == MIRT_OK && mirt_read_image(path, MIRT_RGB, NULL, &picture) == MIRT_OK &&
                picture.width == SIDE && picture.height == SIDE;
    for (int i = 0; good && i < 2 * SMALL; i += 149) {
        for (int j = 0; good && j < 2 * SMALL; j++) {
            const unsigned char *at = picture.pixels + ((size_t)(LEFT + i) * SIDE + (size_t)(LEFT + j)) * 3;
            good = memcmp(at, i / 2 == j / 2 ? blue : gray, 3) == 0;
        }
    }
    ok(good, "%d classes: %d by %d pixels, each cell two by two", SMALL, (int)picture.width,
       (int)picture.height);
    mirt_image_free(&picture);
    good = mirt_save_confusion_png(path, counts, 2, odd[0]) == MIRT_OK &&
           mirt_read_image(path, MIRT_RGB, NULL, &picture) == MIRT_OK &&
           mirt_save_confusion_png(path, counts, 2, odd[1]) == MIRT_OK &&
           mirt_read_image(path, MIRT_RGB, NULL, &other) == MIRT_OK;
    ok(good && picture.width == other.width && picture.height == other.height &&
           memcmp(picture.pixels, other.pixels, (size_t)picture.width * (size_t)picture.height * 3) == 0,
       "control characters in names are question marks");
    mirt_image_free(&picture);
    mirt_image_free(&other);
    unlink(path);
    free(counts);
}

/* Counts that no samples add up to: refused, and nothing is written. */
static void check_counts_refused(void) {
    const int64_t most = (int64_t)1 << 53;
    const struct {
        const char *what, *says;
        int64_t counts[9];
    } cases[] = {
        {"negative", "row 1, column 2 is -1", {1, 2, 3, 4, 5, -1, 7, 8, 9}},
        {"INT64_MIN", "row 0, column 0 is -9223372036854775808", {INT64_MIN, 2, 3, 4, 5, 6, 7, 8, 9}},
        {"above 2^53", "row 2 add up to more than 2^53 (column 1", {1, 2, 3, 4, 5, 6, 7, most, 9}},
        {"above 2^53 together", "row 0 add up to more than 2^53 (column 2 is 1)", {most - 1, 1, 1, 4, 5, 6, 7, 8, 9}},
        {"above int64 together", "row 1 add up to more than 2^53", {1, 2, 3, INT64_MAX, INT64_MAX, 6, 7, 8, 9}},
        {"as large as can be", NULL, {most, 0, 0, 0, most - 5, 5, 0, 0, most}},
    };
    char path[300];
    snprintf(path, sizeof path, "%s/refused.png", work_directory());
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        const mirt_status status = mirt_save_confusion_png(path, cases[i].counts, 3, NULL);
        const bool written = access(path, F_OK) == 0;
        if (cases[i].says)
            ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), cases[i].says) && !written, "%s: %s",
               cases[i].what, mirt_last_error());
        else ok(status == MIRT_OK && written, "%s: written", cases[i].what);
        unlink(path);
    }
}

/* Keras 3.15: `_direction` of its metrics. */
static void check_directions(void) {
    int wrong = 0;
    for (int i = 1; i < MIRT__METRIC_COUNT; i++) {
        const mirt_metric metric = (mirt_metric)i;
        const bool error = metric == MIRT_MAE || metric == MIRT_MSE || metric == MIRT_ROOT_MEAN_SQUARED_ERROR ||
                           metric == MIRT_METRIC_LOSS,
                   count = metric >= MIRT_TRUE_POSITIVES && metric <= MIRT_FALSE_NEGATIVES;
        const mirt_mode want = error ? MIRT_MODE_MIN : count ? MIRT_MODE_AUTO : MIRT_MODE_MAX;
        wrong += mirt__metric_class_get(metric)->direction != want;
    }
    ok(!wrong, "every metric declares Keras's direction");
}

int main(void) {
    static const char *const animals[] = {"cat", "dog"};
    static const char *const long_names[] = {"airplane",
                                             "automobile",
                                             "bird",
                                             "cat",
                                             "deer",
                                             "dog",
                                             "frog",
                                             "horse",
                                             "ship",
                                             "a name of many letters",
                                             "Stra\xc3\x9f"
                                             "e"};
    draw_images();
    for (int i = 0; i < MIRT__COUNT(golden_metrics); i++) check_golden(&golden_metrics[i]);
    check_directions();
    check_not_finite(true);
    check_not_finite(false);
    check_from_logits(1, false);
    check_from_logits(5, true);
    check_in_training();
    check_bad();
    check_no_result();
    check_outputs();
    check_iou(2, 3, 5, 7, 0);
    check_iou(1, 13, 2, 9, 1);
    check_iou(11, 1, 9, 5, 3);
    check_class_numbers(false);
    check_class_numbers(true);
    check_confusion(1, false);
    check_confusion(5, true);
    check_confusion(9, false);
    check_counts_refused();
    check_picture(2, animals);
    check_picture(11, long_names);
    check_picture(25, NULL);
    check_picture(300, NULL);
    check_small_cells();
    const int64_t counts[4] = {1, 2, 3, 4};
    ok(mirt_save_confusion_png("/nowhere/at/all.png", counts, 2, NULL) != MIRT_OK, "refused: %s", mirt_last_error());
    return done_testing();
}
