/* Compares models of several inputs and outputs with float64 Keras (golden/models.h). Also nested models, custom
   losses and metrics, weights of samples and classes, regularizers, on any number of replicas. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/models.h"
#include "tap.h"

enum { N = 12, NV = 7, MOST = 16, POSITIONS = 4 };

typedef struct setting {
    mirt_strategy *strategy;
    mirt_model *model, *part[2];
    mirt_compile_desc compile;
    mirt_fit_desc fit;
    mirt_data data[2]; /* of training and validation */
    float x[2][2][N * MOST], y[2][2][N * MOST], weights[2][N];
    int32_t classes[2][2][N * POSITIONS];
    uint8_t bytes[2][N * POSITIONS]; /* the same */
} setting;

static setting s; /* too large for the stack */

/* >>data, as make_models.py has it */

static void input(int i, int size) {
    for (int v = 0; v < 2; v++) {
        int rows = v ? NV : N;
        for (int k = 0; k < rows * size; k++) s.x[v][i][k] = golden_uniform((uint32_t)(10 + 10 * v + i), (uint32_t)k);
        s.data[v].x[i] = mirt_make_array(s.x[v][i], MIRT_FLOAT32, MIRT_SHAPE(rows, size));
    }
}

/* Class numbers as label `at`. */
static void sparse_labels(int at, int i, int n) {
    for (int v = 0; v < 2; v++) {
        int rows = v ? NV : N;
        for (int k = 0; k < rows; k++)
            s.classes[v][i][k] = (int32_t)(golden_word((uint32_t)(30 + 10 * v + i), (uint32_t)k) % (uint32_t)n);
        s.data[v].y[at] = mirt_make_array(s.classes[v][i], MIRT_INT32, MIRT_SHAPE(rows));
    }
}

/* A class for each of 2x2 positions: numbers, as integers or bytes, or one-hot. */
static void position_labels(int n, mirt_dtype dtype) {
    for (int v = 0; v < 2; v++) {
        int rows = v ? NV : N;
        for (int k = 0; k < rows * POSITIONS; k++) {
            const int c = (int)(golden_word((uint32_t)(30 + 10 * v), (uint32_t)k) % (uint32_t)n);
            s.classes[v][0][k] = c;
            s.bytes[v][k] = (uint8_t)c;
            for (int j = 0; j < n; j++) s.y[v][0][k * n + j] = j == c ? 1.0f : 0.0f;
        }
        s.data[v].y[0] = dtype == MIRT_FLOAT32 ? mirt_make_array(s.y[v][0], dtype, MIRT_SHAPE(rows, 2, 2, n))
                         : dtype == MIRT_UINT8 ? mirt_make_array(s.bytes[v], dtype, MIRT_SHAPE(rows, 2, 2, 1))
                                               : mirt_make_array(s.classes[v][0], dtype, MIRT_SHAPE(rows, 2, 2));
    }
}

/* The same as floats: one number, or one-hot. */
static void float_classes(int at, int i, int n, bool one_hot) {
    int size = one_hot ? n : 1;
    sparse_labels(at, i, n);
    for (int v = 0; v < 2; v++) {
        int rows = v ? NV : N;
        for (int k = 0; k < rows * size; k++) {
            int c = s.classes[v][i][k / size];
            s.y[v][i][k] = one_hot ? (float)(c == k % size) : (float)c;
        }
        s.data[v].y[at] = mirt_make_array(s.y[v][i], MIRT_FLOAT32, MIRT_SHAPE(rows, size));
    }
}

static void real_labels(int size, float scale) {
    for (int v = 0; v < 2; v++) {
        int rows = v ? NV : N;
        for (int k = 0; k < rows * size; k++)
            s.y[v][0][k] = scale * golden_uniform((uint32_t)(30 + 10 * v), (uint32_t)k);
        s.data[v].y[0] = mirt_make_array(s.y[v][0], MIRT_FLOAT32, MIRT_SHAPE(rows, size));
    }
}

static void sample_weights(void) {
    for (int v = 0; v < 2; v++) {
        int rows = v ? NV : N;
        for (int k = 0; k < rows; k++) s.weights[v][k] = golden_uniform((uint32_t)(50 + v), (uint32_t)k) + 1;
        s.data[v].weights = mirt_make_array(s.weights[v], MIRT_FLOAT32, MIRT_SHAPE(rows));
    }
}

/* >>models */

static mirt_tensor *dense_of(mirt_tensor *x, const char *name, int units, mirt_activation_kind activation,
                             mirt_regularizer kernel, mirt_regularizer bias) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.activation = activation;
    d.name = name;
    d.kernel_regularizer = kernel;
    d.bias_regularizer = bias;
    return mirt_dense(x, &d);
}

static mirt_tensor *dense(mirt_tensor *x, const char *name, int units, mirt_activation_kind activation) {
    mirt_regularizer none = {0, 0};
    return dense_of(x, name, units, activation, none, none);
}

static void two_of(float l1, float l2, mirt_activation_kind digits) {
    mirt_regularizer kernel_a = {0, l2}, kernel_b = {l1, 0}, bias_b = {l1, l1 != 0 ? l2 : 0}, none = {0, 0};
    mirt_tensor *a = mirt_input(s.model, MIRT_SHAPE(6)), *b = mirt_input(s.model, MIRT_SHAPE(4)), *both[2], *out[2];
    both[0] = dense_of(a, "da", 5, MIRT_RELU, kernel_a, none);
    both[1] = dense_of(b, "db", 3, MIRT_TANH, kernel_b, bias_b);
    mirt_tensor *x = mirt_concatenate(both, 2, -1);
    out[0] = dense(x, "digit", 4, digits);
    out[1] = dense(x, "side", 1, MIRT_SIGMOID);
    mirt_model_outputs(s.model, out, 2);
    input(0, 6);
    input(1, 4);
    sparse_labels(0, 0, 4);
    float_classes(1, 1, 2, false);
    s.compile.losses[0] = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    s.compile.losses[1] = MIRT_BINARY_CROSSENTROPY;
    s.compile.loss_weights[1] = 0.5f;
    s.compile.metrics[0] = MIRT_ACCURACY;
}

static void two(float l1, float l2) { two_of(l1, l2, MIRT_SOFTMAX); }
static void make_two_loss_options(void) {
    two_of(0, 0, MIRT_LINEAR);
    s.compile.losses[1] = MIRT_BINARY_FOCAL_CROSSENTROPY;
    s.compile.loss_weights[1] = 0;
    s.compile.loss_options[0].from_logits = true;
    s.compile.loss_options[1].alpha = 0.75f;
    s.compile.loss_options[1].has_gamma = true;
    s.compile.loss_options[1].apply_class_balancing = true;
    s.compile.loss_options[1].label_smoothing = 0.25f;
}
static void make_two(void) { two(0, 0); }
static void make_two_weighted(void) {
    two(0, 0);
    sample_weights();
}
static void make_two_even(void) { make_two_weighted(); }
static void make_two_regularized(void) { two(0.01f, 0.02f); }
static void make_two_sum(void) {
    two(0, 0.02f);
    s.compile.reduction = MIRT_SUM;
    s.compile.loss_weights[0] = 0.25f;
    s.compile.metrics[0] = MIRT_METRIC_NONE;
}
static void make_two_one_loss(void) {
    two(0, 0);
    s.compile.losses[1] = MIRT_LOSS_NONE;
    s.compile.loss_weights[1] = 0;
    for (int v = 0; v < 2; v++) memset(&s.data[v].y[1], 0, sizeof s.data[v].y[1]);
}

/* Metrics of single outputs, the last two weighted. */
static void make_two_metrics(void) {
    static const mirt_metric kinds[] = {MIRT_ACCURACY, MIRT_MEAN_IOU, MIRT_BINARY_ACCURACY, MIRT_ACCURACY, MIRT_AUC};
    make_two_weighted();
    mirt_metric_options *o = s.compile.metric_options;
    s.compile.loss_weights[1] = 0;
    memcpy(s.compile.metrics, kinds, sizeof kinds);
    o[0].output = o[1].output = "digit";
    o[1].name = "iou";
    o[2].output = "side";
    o[2].threshold = 0.625f;
    o[3].weighted = o[4].weighted = true;
    o[4].output = "side";
}

static void make_siamese(void) {
    mirt_model *base = s.part[0] = mirt_model_create(s.strategy, "base"),
               *mid = s.part[1] = mirt_model_create(s.strategy, "mid");
    mirt_model_output(base,
                      dense(dense(mirt_input(base, MIRT_SHAPE(6)), "hidden", 5, MIRT_TANH), "code", 3, MIRT_LINEAR));
    mirt_model_output(mid,
                      mirt_activation(mirt_call(base, mirt_input(mid, MIRT_SHAPE(6)), MIRT_TRAINING_AUTO), MIRT_TANH));
    mirt_tensor *p = mirt_input(s.model, MIRT_SHAPE(6)), *q = mirt_input(s.model, MIRT_SHAPE(6));
    mirt_tensor *d = mirt_subtract(mirt_call(mid, p, MIRT_TRAINING_AUTO), mirt_call(mid, q, MIRT_TRAINING_AUTO));
    mirt_model_output(s.model, dense(mirt_square(d), "out", 1, MIRT_LINEAR));
    input(0, 6);
    input(1, 6);
    real_labels(1, 1);
    s.compile.loss = MIRT_MEAN_SQUARED_ERROR;
}

static void transfer(bool dropout, mirt_training training) {
    mirt_model *base = s.part[0] = mirt_model_create(s.strategy, "base");
    mirt_batch_norm_desc bn;
    memset(&bn, 0, sizeof bn);
    bn.name = "bn";
    mirt_tensor *x = mirt_batch_norm(dense(mirt_input(base, MIRT_SHAPE(6)), "d", 5, MIRT_LINEAR), &bn);
    mirt_model_output(base, dropout ? mirt_dropout(x, 0.5f) : x);
    x = mirt_relu_layer(mirt_call(base, mirt_input(s.model, MIRT_SHAPE(6)), training), NULL);
    mirt_model_output(s.model, dense(x, "head", 3, MIRT_SOFTMAX));
    input(0, 6);
    sparse_labels(0, 0, 3);
    s.compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    s.compile.metrics[0] = MIRT_ACCURACY;
}

static void make_transfer(void) { transfer(true, MIRT_TRAINING_OFF); }
static void make_frozen(void) {
    transfer(false, MIRT_TRAINING_AUTO);
    mirt_set_trainable(s.model, "base", false);
}

static void one(int size, int units, mirt_activation_kind activation, mirt_loss loss) {
    mirt_tensor *x = dense(mirt_input(s.model, MIRT_SHAPE(size)), "hidden", 5, MIRT_RELU);
    mirt_model_output(s.model, dense(x, "out", units, activation));
    input(0, size);
    s.compile.loss = loss;
    if (loss != MIRT_MEAN_SQUARED_ERROR && loss) s.compile.metrics[0] = MIRT_ACCURACY;
}

/* >>custom losses and metrics */

static mirt_tensor *huber(mirt_tensor *labels, mirt_tensor *output, void *user) {
    const float delta = *(const float *)user;
    mirt_tensor *e = mirt_abs(mirt_subtract(output, labels)), *small = mirt_minimum(e, mirt_scale(e, 0, delta));
    /* small^2 / 2 + delta (e - small) */
    e = mirt_add(mirt_scale(mirt_square(small), 0.5f, 0), mirt_scale(mirt_subtract(e, small), delta, 0));
    return mirt_reduce_mean(e, 0, false);
}

static mirt_tensor *mae(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    return mirt_reduce_mean(mirt_abs(mirt_subtract(output, labels)), 0, false);
}

static mirt_tensor *focal(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    mirt_tensor *p = mirt_clip(output, 1e-7f, 1 - 1e-7f), *q = mirt_scale(p, -1, 1),
                *not_label = mirt_scale(labels, -1, 1);
    mirt_tensor *right = mirt_add(mirt_multiply(labels, p), mirt_multiply(not_label, q));
    mirt_tensor *loss =
        mirt_negative(mirt_add(mirt_multiply(labels, mirt_log(p)), mirt_multiply(not_label, mirt_log(q))));
    return mirt_multiply(mirt_square(mirt_scale(right, -1, 1)), loss); /* (rows, 1) */
}

/* True positives, and all that are to be counted by: predicted or labeled ones. */
static mirt_tensor *positives(mirt_tensor *labels, mirt_tensor *output, void *user) {
    mirt_tensor *both[2], *half = mirt_scale(output, 0, 0.5f);
    mirt_tensor *predicted = mirt_cast(mirt_greater(output, half), MIRT_FLOAT32);
    both[0] = mirt_multiply(predicted, labels);
    both[1] = user ? labels : predicted;
    return mirt_concat(both, 2, -1);
}

static double ratio(const double *sums, int count, int64_t samples, void *user) {
    (void)user;
    return count == 2 && samples > 0 && sums[1] > 0 ? sums[0] / sums[1] : 0;
}

static mirt_tensor *mean_loss(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    return mirt_reduce_mean(mirt_square(mirt_subtract(output, labels)), 3u, false);
}

static float huber_delta = 0.5f;
static int labeled = 1;
static mirt_custom_loss huber_loss = {"huber", huber, &huber_delta}, focal_loss = {"focal", focal, NULL},
                        scalar_loss = {"mean", mean_loss, NULL};
static mirt_custom_metric mae_metric = {"mae", mae, NULL, NULL, MIRT_MODE_MIN},
                          precision_metric = {"precision", positives, ratio, NULL, MIRT_MODE_MAX},
                          recall_metric = {"recall", positives, ratio, &labeled, MIRT_MODE_MAX};

static void make_huber(void) {
    one(4, 2, MIRT_LINEAR, MIRT_LOSS_NONE);
    real_labels(2, 4);
    s.compile.custom_losses[0] = &huber_loss;
    s.compile.custom_metrics[0] = &mae_metric;
}
static void make_focal(void) {
    one(4, 1, MIRT_SIGMOID, MIRT_LOSS_NONE);
    float_classes(0, 1, 2, false);
    s.compile.custom_losses[0] = &focal_loss;
    s.compile.custom_metrics[0] = &precision_metric;
    s.compile.custom_metrics[1] = &recall_metric;
}
static void make_mean_loss(void) {
    one(4, 2, MIRT_LINEAR, MIRT_LOSS_NONE);
    real_labels(2, 4);
    s.compile.custom_losses[0] = &scalar_loss;
}

/* >>weights of samples and classes */

static void make_sparse_weighted(void) {
    one(6, 3, MIRT_SOFTMAX, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY);
    sparse_labels(0, 0, 3);
    sample_weights();
}
static void make_one_hot_weighted(void) {
    one(6, 3, MIRT_LINEAR, MIRT_CATEGORICAL_CROSSENTROPY);
    float_classes(0, 0, 3, true);
    s.compile.from_logits = true;
    sample_weights();
}
static void make_mse_weighted(void) {
    one(6, 2, MIRT_LINEAR, MIRT_MEAN_SQUARED_ERROR);
    real_labels(2, 4);
    sample_weights();
}
static void make_sum_weighted(void) {
    make_mse_weighted();
    s.compile.reduction = MIRT_SUM;
}
static const float class_weights[] = {0.5f, 2, 1.25f};
static void weigh_classes(int n) {
    s.fit.class_weights = class_weights;
    s.fit.num_class_weights = n;
}
static void make_sparse_classes(void) {
    make_sparse_weighted();
    for (int v = 0; v < 2; v++) memset(&s.data[v].weights, 0, sizeof s.data[v].weights);
    weigh_classes(3);
}
static void make_one_hot_classes(void) {
    one(6, 3, MIRT_SOFTMAX, MIRT_CATEGORICAL_CROSSENTROPY);
    float_classes(0, 0, 3, true);
    weigh_classes(3);
}
static void make_binary_classes(void) {
    one(6, 1, MIRT_SIGMOID, MIRT_BINARY_CROSSENTROPY);
    float_classes(0, 1, 2, false);
    weigh_classes(2);
}
static void make_classes_metrics(void) {
    make_sparse_classes();
    s.compile.metrics[1] = MIRT_ACCURACY;
    s.compile.metrics[2] = MIRT_METRIC_LOSS;
    s.compile.metric_options[1].weighted = s.compile.metric_options[2].weighted = true;
    s.compile.metric_options[2].loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
}
static void make_one_hot_metrics(void) {
    static const mirt_metric kinds[] = {MIRT_CATEGORICAL_ACCURACY, MIRT_F1_SCORE, MIRT_PRECISION};
    make_one_hot_classes();
    mirt_metric_options *o = s.compile.metric_options;
    memcpy(s.compile.metrics, kinds, sizeof kinds);
    o[0].weighted = o[1].weighted = o[2].weighted = true;
    o[1].average = MIRT_MACRO;
    o[2].class_id = 1;
    o[2].threshold = 0.25f;
}

/* >>outputs with positions, frozen regularizers */

static void positions(void) {
    mirt_tensor *x = dense(mirt_input(s.model, MIRT_SHAPE(6)), "hidden", 5, MIRT_RELU), *out[1];
    out[0] = dense(x, "flat", 8, MIRT_LINEAR);
    mirt_next_name(s.model, "map");
    out[0] = mirt_reshape_layer(out[0], MIRT_SHAPE(2, 2, 2));
    mirt_model_outputs(s.model, out, 1);
    input(0, 6);
    real_labels(8, 4);
    s.compile.losses[0] = MIRT_MEAN_SQUARED_ERROR;
    s.compile.loss_weights[0] = 0.0625f;
    s.compile.reduction = MIRT_SUM;
}
static void make_sum_positions(void) { positions(); }
static void make_sum_positions_weighted(void) {
    positions();
    sample_weights();
}
static void make_two_positions(void) {
    mirt_tensor *out[2];
    positions();
    out[0] = mirt_layer_output(s.model, "map");
    out[1] = dense(mirt_layer_output(s.model, "hidden"), "side", 1, MIRT_SIGMOID);
    mirt_model_outputs(s.model, out, 2);
    float_classes(1, 1, 2, false);
    s.compile.losses[1] = MIRT_BINARY_CROSSENTROPY;
    s.compile.loss_weights[1] = 0.5f;
}
/* A class for each position. */
static void pixels(mirt_loss loss, bool logits, mirt_dtype labels) {
    mirt_tensor *x = dense(mirt_input(s.model, MIRT_SHAPE(6)), "hidden", 5, MIRT_RELU);
    x = mirt_reshape_layer(dense(x, "flat", 12, MIRT_LINEAR), MIRT_SHAPE(2, 2, 3));
    mirt_model_output(s.model, logits ? x : mirt_softmax(x));
    input(0, 6);
    position_labels(3, labels);
    s.compile.loss = loss;
    s.compile.from_logits = logits;
    s.compile.metrics[0] = MIRT_ACCURACY;
}
static void make_pixels(void) {
    pixels(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, false, MIRT_UINT8);
    s.compile.metrics[1] = MIRT_SPARSE_CATEGORICAL_ACCURACY;
}
static void make_pixels_logits(void) { pixels(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, MIRT_INT32); }
static void make_pixels_one_hot(void) {
    pixels(MIRT_CATEGORICAL_CROSSENTROPY, false, MIRT_FLOAT32);
    s.compile.metrics[1] = MIRT_CATEGORICAL_ACCURACY;
}
static void make_pixels_weighted(void) {
    pixels(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, false, MIRT_INT32);
    sample_weights();
}
static void make_pixels_sum(void) {
    pixels(MIRT_CATEGORICAL_CROSSENTROPY, false, MIRT_FLOAT32);
    sample_weights();
    s.compile.reduction = MIRT_SUM;
}
/* Class 3 is the one to ignore. */
static void ignore(int number, mirt_dtype labels) {
    pixels(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, false, labels);
    position_labels(4, labels);
    for (int v = 0; v < 2; v++) {
        for (int k = 0; k < N * POSITIONS; k++) {
            if (s.classes[v][0][k] != 3) continue;
            s.classes[v][0][k] = number;
            s.bytes[v][k] = (uint8_t)number;
        }
    }
    s.compile.loss_options[0].has_ignore_class = true;
    s.compile.loss_options[0].ignore_class = number;
}
static void make_pixels_ignored(void) { ignore(255, MIRT_UINT8); }
static void make_pixels_ignored_weighted(void) {
    ignore(-1, MIRT_INT32);
    sample_weights();
}
static void make_pixels_ignored_sum(void) {
    ignore(0, MIRT_INT32);
    s.compile.reduction = MIRT_SUM;
}
static void make_dice(void) { pixels(MIRT_DICE, false, MIRT_FLOAT32); }
static void make_dice_samples(void) {
    make_dice();
    s.compile.loss_options[0].axes = 0xe;
}
static void make_dice_classes(void) {
    make_dice();
    s.compile.loss_options[0].axes = 7;
}
static void make_pixels_kl(void) {
    pixels(MIRT_KL_DIVERGENCE, false, MIRT_FLOAT32);
    sample_weights();
}
static void make_pixels_cosine(void) { pixels(MIRT_COSINE_SIMILARITY, false, MIRT_FLOAT32); }
static void make_circle(void) {
    mirt_tensor *x = dense(mirt_input(s.model, MIRT_SHAPE(6)), "hidden", 5, MIRT_RELU);
    mirt_model_output(s.model, mirt_unit_normalization(dense(x, "out", 3, MIRT_LINEAR), -1));
    input(0, 6);
    sparse_labels(0, 0, 3);
    s.compile.loss = MIRT_CIRCLE;
    s.compile.metrics[0] = MIRT_ACCURACY;
    s.compile.loss_options[0].gamma = 2;
    s.compile.loss_options[0].margin = 0.25f;
}
static void make_circle_diagonal(void) {
    make_circle();
    s.compile.loss_options[0].keep_diagonal = true;
}
static void make_circle_weighted(void) {
    make_circle();
    sample_weights();
}
static void make_circle_classes(void) {
    make_circle();
    weigh_classes(3);
}
static void make_circle_sum(void) {
    make_circle();
    s.compile.reduction = MIRT_SUM;
}
/* The same values as the custom ones of these names. */
static void make_listed_huber(void) {
    make_huber();
    s.compile.custom_losses[0] = NULL;
    s.compile.loss = MIRT_HUBER;
    s.compile.loss_options[0].delta = huber_delta;
}
static void make_listed_focal(void) {
    make_focal();
    s.compile.custom_losses[0] = NULL;
    s.compile.loss = MIRT_BINARY_FOCAL_CROSSENTROPY;
}
static void make_softmax_logits(void) {
    one(6, 3, MIRT_SOFTMAX, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY);
    sparse_labels(0, 0, 3);
    s.compile.from_logits = true;
    s.compile.metrics[0] = MIRT_METRIC_NONE;
}
static void make_sigmoid_logits(void) {
    one(6, 1, MIRT_SIGMOID, MIRT_BINARY_CROSSENTROPY);
    float_classes(0, 1, 2, false);
    s.compile.from_logits = true;
    s.compile.metrics[0] = MIRT_METRIC_NONE;
}
static void make_frozen_regularizer(void) {
    mirt_regularizer l2 = {0, 0.5f}, l1 = {0.01f, 0}, none = {0, 0};
    mirt_model *base = s.part[0] = mirt_model_create(s.strategy, "base");
    mirt_model_output(base, dense_of(mirt_input(base, MIRT_SHAPE(6)), "hidden", 5, MIRT_RELU, l2, none));
    mirt_tensor *x = mirt_call(base, mirt_input(s.model, MIRT_SHAPE(6)), MIRT_TRAINING_AUTO);
    mirt_model_output(s.model, dense_of(x, "out", 3, MIRT_SOFTMAX, l1, none));
    mirt_set_trainable(s.model, "base", false);
    input(0, 6);
    sparse_labels(0, 0, 3);
    s.compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
}

/* The loss of each position by the user: the library sums these, too. */
static mirt_tensor *position_loss(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    return mirt_reduce_mean(mirt_square(mirt_subtract(output, mirt_reshape(labels, MIRT_SHAPE(2, 2, 2)))), 1u << 3,
                            false);
}
static mirt_custom_loss positions_loss = {"positions", position_loss, NULL};
static void make_custom_positions(void) {
    make_sum_positions_weighted();
    s.compile.losses[0] = MIRT_LOSS_NONE;
    s.compile.custom_losses[0] = &positions_loss;
}

/* >>fits */

typedef struct make_case {
    const char *name;
    void (*make)(void);
} make_case;

static const make_case makes[] = {
    {"two", make_two},
    {"two_even", make_two_even},
    {"two_weighted", make_two_weighted},
    {"two_regularized", make_two_regularized},
    {"two_sum", make_two_sum},
    {"two_one_loss", make_two_one_loss},
    {"two_metrics", make_two_metrics},
    {"siamese", make_siamese},
    {"transfer", make_transfer},
    {"frozen", make_frozen},
    {"huber", make_huber},
    {"focal", make_focal},
    {"mean_loss", make_mean_loss},
    {"sparse_weighted", make_sparse_weighted},
    {"one_hot_weighted", make_one_hot_weighted},
    {"mse_weighted", make_mse_weighted},
    {"sum_weighted", make_sum_weighted},
    {"sparse_classes", make_sparse_classes},
    {"one_hot_classes", make_one_hot_classes},
    {"binary_classes", make_binary_classes},
    {"classes_metrics", make_classes_metrics},
    {"one_hot_metrics", make_one_hot_metrics},
    {"sum_positions", make_sum_positions},
    {"sum_positions_weighted", make_sum_positions_weighted},
    {"softmax_logits", make_softmax_logits},
    {"sigmoid_logits", make_sigmoid_logits},
    {"two_positions", make_two_positions},
    {"pixels", make_pixels},
    {"pixels_logits", make_pixels_logits},
    {"pixels_one_hot", make_pixels_one_hot},
    {"pixels_weighted", make_pixels_weighted},
    {"pixels_sum", make_pixels_sum},
    {"pixels_ignored", make_pixels_ignored},
    {"pixels_ignored_weighted", make_pixels_ignored_weighted},
    {"pixels_ignored_sum", make_pixels_ignored_sum},
    {"dice", make_dice},
    {"dice_samples", make_dice_samples},
    {"dice_classes", make_dice_classes},
    {"pixels_kl", make_pixels_kl},
    {"pixels_cosine", make_pixels_cosine},
    {"circle", make_circle},
    {"circle_diagonal", make_circle_diagonal},
    {"circle_weighted", make_circle_weighted},
    {"circle_sum", make_circle_sum},
    {"circle_classes", make_circle_classes},
    {"two_loss_options", make_two_loss_options},
    {"frozen_regularizer", make_frozen_regularizer},
};

static mirt_strategy *strategy_of(const char *devices, int replicas) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = devices;
    d.replicas = replicas;
    d.threads = 1;
    d.seed = 11;
    d.silent = true;
    return mirt_strategy_create(&d);
}

/* The greatest distance between a weight and what it should be, or 1e9. */
static double weights_off(const golden_fit *g, bool begin) {
    mirt_weight_info info;
    float value[64];
    double worst = 0;
    const double *final = g->final;
    if (mirt_num_weights(s.model) != g->num_weights) return 1e9;
    for (int i = 0; i < g->num_weights; i++) {
        bool found = false;
        for (int k = 0; k < g->num_weights && !found; k++) {
            found = mirt_weight(s.model, k, &info) == MIRT_OK && strcmp(info.name, g->weight[i]) == 0;
        }
        if (!found || info.count > 64) return printf("# no weight %s\n", g->weight[i]), 1e9;
        float shift = strstr(info.name, "gamma") || strstr(info.name, "variance") ? 1.0f : 0.0f;
        if (!begin && mirt_get_weight(s.model, info.name, 0, value, (size_t)info.count) != MIRT_OK) return 1e9;
        for (int64_t k = 0; k < info.count && !begin; k++) {
            double off = fabs((double)value[k] - final[k]);
            worst = worse(worst, off);
        }
        for (int64_t k = 0; k < info.count && begin; k++)
            value[k] = golden_uniform((uint32_t)(100 + i), (uint32_t)k) / 2 + shift;
        if (begin && mirt_set_weight(s.model, info.name, value, (size_t)info.count) != MIRT_OK) return 1e9;
        final += info.count;
    }
    return worst;
}

static double last(const mirt_history *h, const char *name) { return mirt_history_last(h, name); }

static double logs_off(const golden_fit *g, const mirt_history *h) {
    double worst = 0;
    for (int e = 0; e < 4; e++) {
        for (int i = 0; i < g->num_logs; i++) {
            double want = g->value[i * 4 + e], have = NAN;
            for (int k = 0; k < h->epoch[e].count; k++) {
                if (strcmp(h->epoch[e].name[k], g->log[i]) == 0) have = h->epoch[e].value[k];
            }
            double off = fabs(have - want) / (fabs(want) > 1 ? fabs(want) : 1);
            worst = worse(worst, off);
            if (!(off < 1e-5)) printf("# %s, epoch %d: %s is %.9g, not %.9g\n", g->name, e, g->log[i], have, want);
        }
    }
    return worst;
}

/* The model of a case, compiled, with its first weights; `make` NULL: the case's own. */
static bool begin(const golden_fit *g, void (*make)(void), const char *devices, int replicas) {
    memset(&s, 0, sizeof s);
    s.strategy = strategy_of(devices, replicas);
    s.model = mirt_model_create(s.strategy, "model");
    s.compile.optimizer = mirt_sgd(0.1f, 0.9f, false);
    for (int i = 0; i < MIRT__COUNT(makes) && !make; i++) {
        if (strcmp(makes[i].name, g->name) == 0) make = makes[i].make;
    }
    make();
    return mirt_compile(s.model, &s.compile) == MIRT_OK && weights_off(g, true) == 0;
}

static void test_golden(const golden_fit *g, void (*make)(void), const char *devices, int replicas) {
    bool good = begin(g, make, devices, replicas);
    mirt_dataset *train = mirt_arrays_of(&s.data[0]),
                 *validation = mirt_batch(mirt_arrays_of(&s.data[1]), g->validation_batch);
    s.fit.epochs = 4;
    s.fit.batch = g->batch;
    s.fit.validation = validation;
    mirt_history *h = good ? mirt_fit(s.model, train, &s.fit) : NULL;
    if (!h) printf("# %s\n", mirt_last_error());
    bool ran = h && h->epochs == 4 && h->steps == 12 /* of 4 or 5 samples */;
    double logs = ran ? logs_off(g, h) : 1e9, weights = ran ? weights_off(g, false) : 1e9;
    ok(logs < 1e-5 && weights < 1e-5, "%s, %s device(s), %d replicas: logs within %.1e, weights within %.1e of Keras",
       g->name, devices, replicas, logs, weights);
    int extra = ran ? h->epoch[0].count - g->num_logs - 1 : -1; /* the learning rate */
    bool several = mirt__num_labels(s.model) > 1 && g->batch == 5;
    ok(extra == (several ? 4 : 0), "and no other names in its logs (%d)", extra);
    if (several && !strstr(g->name, "regularized")) {
        const double w = s.compile.loss_weights[1] != 0 ? (double)s.compile.loss_weights[1] : 1;
        double off = ran ? fabs(last(h, "digit_loss") + w * last(h, "side_loss") - last(h, "loss")) : NAN;
        double val_off =
            ran ? fabs(last(h, "val_digit_loss") + w * last(h, "val_side_loss") - last(h, "val_loss")) : NAN;
        ok(off < 1e-6 && val_off < 1e-6, "the outputs' losses, weighted, make the loss (%.1e, %.1e)", off, val_off);
    }
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(validation);
    mirt_strategy_destroy(s.strategy);
}

int main(void) {
    for (int i = 0; i < MIRT__COUNT(golden_fits); i++) {
        test_golden(&golden_fits[i], NULL, "1", 1);
        /* pairs are those of a replica */
        if (strncmp(golden_fits[i].name, "circle", 6) != 0) test_golden(&golden_fits[i], NULL, "2", 4);
        if (strcmp(golden_fits[i].name, "sum_positions_weighted") == 0)
            test_golden(&golden_fits[i], make_custom_positions, "2", 4);
        if (strcmp(golden_fits[i].name, "huber") == 0) test_golden(&golden_fits[i], make_listed_huber, "2", 4);
        if (strcmp(golden_fits[i].name, "focal") == 0) test_golden(&golden_fits[i], make_listed_focal, "2", 4);
    }
    return done_testing();
}
