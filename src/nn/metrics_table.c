#include "../ops/ops.h"
#include "model.h"
/* The table of metrics. All are ratios of sums over samples, added in double precision in their order; counts are exact
   on any number of devices. */

/* >>accuracy, the only metric computed on the devices */

/* Keras chooses the kind of "accuracy" by the shapes of labels and predictions. */
static mirt__accuracy_kind mirt__accuracy_kind_of(const mirt_model *model, int output) {
    const mirt__loss_class *loss = mirt__output_loss(model, output);
    if (loss && loss->sparse) return MIRT__ACCURACY_SPARSE;
    return mirt__last_dim(model->output[output]) == 1 ? MIRT__ACCURACY_BINARY : MIRT__ACCURACY_CATEGORICAL;
}

static mirt_tensor *mirt__accuracy_record(const mirt_model *model, int number, mirt_tensor *output,
                                          mirt_tensor *labels) {
    mirt__accuracy_kind kind = mirt__accuracy_kind_of(model, number);
    /* A custom loss does not define the labels: one label for each position is a class number. */
    if (kind == MIRT__ACCURACY_CATEGORICAL && labels && mirt__shape_count(&labels->shape) == mirt__positions(output))
        kind = MIRT__ACCURACY_SPARSE;
    labels = mirt__labels_form(kind == MIRT__ACCURACY_SPARSE, labels, output);
    mirt_tensor *right = mirt__accuracy_op(kind, output, labels);
    return right && right->shape.rank > 1 ? mirt_reduce_mean(right, 0, false) : right;
}

MIRT__LIB mirt_status mirt__metric_check(const mirt_model *model, const mirt__metric_use *use) {
    const char *name = use->cls->name, *maker = mirt__output_name(model, use->output);
    const mirt__metric_takes takes = use->cls->takes;
    const bool numbers = takes == MIRT__TAKES_NUMBERS, classes = numbers || takes == MIRT__TAKES_ONE_HOT;
    const mirt_tensor *output = model->output[use->output];
    const mirt__loss_class *loss = mirt__output_loss(model, use->output);
    const bool vector = output->shape.rank >= 2;
    char text[96];
    if ((classes && !(vector && mirt__last_dim(output) >= 2)) ||
        (takes == MIRT__TAKES_BY_SHAPE && !vector &&
         mirt__accuracy_kind_of(model, use->output) != MIRT__ACCURACY_BINARY)) {
        return mirt__fail(MIRT_E_SHAPE, "%s needs an output of (rows, classes) or (rows, ..., classes); %s is %s", name,
                          maker, mirt__shape_text(&output->shape, text));
    }
    if (loss && loss->sparse && takes == MIRT__TAKES_VALUES)
        return mirt__fail(MIRT_E_INVALID, "%s compares values; %s of %s takes class numbers", name, loss->name, maker);
    if (loss && classes && loss->sparse != numbers)
        return mirt__fail(MIRT_E_INVALID, "%s takes %s; %s of %s takes %s", name,
                          numbers ? "class numbers" : "one-hot labels", loss->name, maker,
                          loss->sparse ? "class numbers" : "one value per output");
    return MIRT_OK;
}

/* >>counting: the sums of a batch */

static double mirt__label_at(const mirt__counted *c, int64_t i) { return mirt__element(c->labels, c->dtype, i); }

/* The label of output j in a row; a class number means the index of the 1. */
static double mirt__label_of(const mirt__counted *c, int64_t row, int64_t j) {
    return c->sparse ? (double)(mirt__label_at(c, row) == (double)j) : mirt__label_at(c, row * c->n + j);
}

static int64_t mirt__class_of(const mirt__counted *c, int64_t row) {
    int64_t best = 0;
    const double number = c->sparse ? mirt__label_at(c, row) : 0;
    if (c->sparse) return number >= 0 && number < (double)c->n ? (int64_t)number : -1;
    for (int64_t j = 1; j < c->n; j++)
        best = mirt__label_at(c, row * c->n + j) > mirt__label_at(c, row * c->n + best) ? j : best;
    return best;
}

static void mirt__count_best(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    (void)use;
    for (int64_t r = 0; r < c->rows; r++) {
        const mirt__real *x = c->x + r * c->n;
        int64_t best = 0;
        for (int64_t j = 1; j < c->n; j++) best = x[j] > x[best] ? j : best;
        sum[0] += best == mirt__class_of(c, r);
    }
}

/* Like TensorFlow's in_top_k: fewer than k predictions are larger, and all are finite. */
static void mirt__count_top_k(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    for (int64_t r = 0; r < c->rows; r++) {
        const mirt__real *x = c->x + r * c->n;
        const int64_t label = mirt__class_of(c, r);
        bool good = label >= 0 && label < c->n && isfinite((double)x[label]);
        int64_t larger = 0;
        for (int64_t j = 0; good && j < c->n; j++) {
            larger += x[j] > x[label];
            good = isfinite((double)x[j]) && larger < use->options.k;
        }
        sum[0] += good;
    }
}

static void mirt__count_binary(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    const mirt__real threshold = use->options.threshold;
    for (int64_t i = 0; i < c->rows * c->n; i++)
        sum[0] += mirt__label_of(c, i / c->n, i % c->n) == (c->x[i] > threshold ? 1.0 : 0.0);
}

/* True positives, false positives, false negatives. */
static void mirt__count_positives(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    const mirt__real threshold = use->options.threshold;
    for (int64_t r = 0; r < c->rows; r++) {
        for (int64_t j = 0; j < c->n; j++) {
            const bool is = mirt__label_of(c, r, j) != 0, said = c->x[r * c->n + j] > threshold;
            sum[0] += is && said;
            sum[1] += !is && said;
            sum[2] += is && !said;
        }
    }
}

/* Counts positives by the largest threshold below them, then negatives; in float32, as in Keras. */
static void mirt__count_buckets(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    const int buckets = use->options.num_thresholds;
    for (int64_t r = 0; r < c->rows; r++) {
        for (int64_t j = 0; j < c->n; j++) {
            const float x = (float)c->x[r * c->n + j], p = x > 0 ? (x < 1 ? x : 1) : 0;
            const int bucket = (int)ceilf(p * (float)(buckets - 1)) - 1;
            sum[(bucket > 0 ? bucket : 0) + (mirt__label_of(c, r, j) != 0 ? 0 : buckets)] += 1;
        }
    }
}

static void mirt__count_errors(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    const bool squared = use->metric == MIRT_MSE;
    for (int64_t i = 0; i < c->rows * c->n; i++) {
        const double off = fabs((double)c->x[i] - mirt__label_at(c, i));
        sum[0] += squared ? off * off : off;
    }
}

/* >>results of the sums */

static double mirt__ratio(double a, double b) { return b != 0 ? a / b : 0; }

static double mirt__mean_of_samples(const mirt__metric_use *use, const double *sum, int64_t samples) {
    return mirt__ratio(sum[0], (double)samples * (double)use->positions);
}

static double mirt__mean_of_elements(const mirt__metric_use *use, const double *sum, int64_t samples) {
    return mirt__ratio(sum[0], (double)samples * (double)use->elements);
}

/* Precision, recall or F1, of true positives, false positives and false negatives. */
static double mirt__share_of_hits(const mirt__metric_use *use, const double *sum, int64_t samples) {
    const double hits = use->metric == MIRT_F1_SCORE ? 2 * sum[0] : sum[0];
    const double wrong = use->metric == MIRT_RECALL ? 0 : sum[1], missed = use->metric == MIRT_PRECISION ? 0 : sum[2];
    (void)samples;
    return mirt__ratio(hits, hits + wrong + missed);
}

/* The area between two adjacent thresholds; tp and fp are counts above the lower one, tp_in and fp_in those in between.
   Precision is interpolated as in Davis & Goadrich 2006. */
static double mirt__auc_part(bool pr, double tp, double fp, double tp_in, double fp_in, double positives,
                             double negatives) {
    const double above_tp = tp - tp_in, above = tp + fp - tp_in - fp_in;
    if (!pr) return mirt__ratio(fp_in, negatives) * (mirt__ratio(tp, positives) + mirt__ratio(above_tp, positives)) / 2;
    const double slope = mirt__ratio(tp_in, tp_in + fp_in), intercept = above_tp - slope * above;
    const double ratio = tp + fp > 0 && above > 0 ? (tp + fp) / above : 1;
    return mirt__ratio(slope * (tp_in + intercept * log(ratio)), positives);
}

static double mirt__auc_of(const mirt__metric_use *use, const double *sum, int64_t samples) {
    const int buckets = use->options.num_thresholds;
    double positives = 0, negatives = 0, area = 0, tp, fp;
    (void)samples;
    for (int i = 0; i < buckets; i++) {
        positives += sum[i];
        negatives += sum[buckets + i];
    }
    tp = positives;
    fp = negatives;
    for (int i = 0; i + 1 < buckets; i++) {
        area += mirt__auc_part(use->options.curve == MIRT_PR, tp, fp, sum[i], sum[buckets + i], positives, negatives);
        tp -= sum[i];
        fp -= sum[buckets + i];
    }
    return area;
}

/* >>the table */

static const mirt__metric_class mirt__metric_table[] = {
    {NULL, MIRT__TAKES_ANY, NULL, 0, NULL, NULL, MIRT_MODE_AUTO},
    {"accuracy", MIRT__TAKES_BY_SHAPE, mirt__accuracy_record, 0, NULL, NULL, MIRT_MODE_MAX},
    {"binary_accuracy", MIRT__TAKES_VALUES, NULL, 1, mirt__count_binary, mirt__mean_of_elements, MIRT_MODE_MAX},
    {"categorical_accuracy", MIRT__TAKES_ONE_HOT, NULL, 1, mirt__count_best, mirt__mean_of_samples, MIRT_MODE_MAX},
    {"sparse_categorical_accuracy", MIRT__TAKES_NUMBERS, NULL, 1, mirt__count_best, mirt__mean_of_samples,
     MIRT_MODE_MAX},
    {"top_k_categorical_accuracy", MIRT__TAKES_ONE_HOT, NULL, 1, mirt__count_top_k, mirt__mean_of_samples,
     MIRT_MODE_MAX},
    {"sparse_top_k_categorical_accuracy", MIRT__TAKES_NUMBERS, NULL, 1, mirt__count_top_k, mirt__mean_of_samples,
     MIRT_MODE_MAX},
    {"precision", MIRT__TAKES_ANY, NULL, 3, mirt__count_positives, mirt__share_of_hits, MIRT_MODE_MAX},
    {"recall", MIRT__TAKES_ANY, NULL, 3, mirt__count_positives, mirt__share_of_hits, MIRT_MODE_MAX},
    {"f1_score", MIRT__TAKES_ANY, NULL, 3, mirt__count_positives, mirt__share_of_hits, MIRT_MODE_MAX},
    {"auc", MIRT__TAKES_ANY, NULL, 0, mirt__count_buckets, mirt__auc_of, MIRT_MODE_MAX},
    {"mean_absolute_error", MIRT__TAKES_VALUES, NULL, 1, mirt__count_errors, mirt__mean_of_elements, MIRT_MODE_MIN},
    {"mean_squared_error", MIRT__TAKES_VALUES, NULL, 1, mirt__count_errors, mirt__mean_of_elements, MIRT_MODE_MIN},
};
MIRT__STATIC_ASSERT(MIRT__COUNT(mirt__metric_table) == MIRT__METRIC_COUNT, "a row for each metric");

MIRT__LIB const mirt__metric_class *mirt__metric_class_get(mirt_metric metric) {
    return (int)metric > MIRT_METRIC_NONE && metric < MIRT__METRIC_COUNT ? &mirt__metric_table[metric] : NULL;
}

MIRT__LIB mirt_mode mirt__metric_direction(const mirt__metric_use *use) {
    return use->cls ? use->cls->direction : use->custom.direction;
}

MIRT__LIB int mirt__metric_sums(const mirt__metric_use *use) {
    return use->cls && use->cls->count ? (use->cls->sums ? use->cls->sums : 2 * use->options.num_thresholds) : 0;
}

MIRT__LIB bool mirt__metric_compares(const mirt_model *model, const mirt__metric_use *use) {
    const mirt__loss_class *loss = mirt__output_loss(model, use->output);
    if (use->metric == MIRT_ACCURACY)
        return mirt__accuracy_kind_of(model, use->output) == MIRT__ACCURACY_BINARY && !use->options.from_logits;
    return use->cls && (use->cls->count == mirt__count_binary || use->cls->count == mirt__count_positives) &&
           !use->options.from_logits && use->options.threshold == 0.5f && !(loss && loss->undo == MIRT_SOFTMAX);
}
