#include "../ops/ops.h"
#include "model.h"
/* The table of metrics. All are ratios of sums over samples, added in double precision in their order; counts are exact
   on any number of devices. */

/* >>metrics computed on the devices: accuracy and losses */

/* Keras chooses the kind of "accuracy" by the shapes of labels and predictions. */
static mirt__accuracy_kind mirt__accuracy_kind_of(const mirt_model *model, int output) {
    const mirt__loss_class *loss = mirt__output_loss(model, output);
    if (loss && loss->sparse) return MIRT__ACCURACY_SPARSE;
    return mirt__last_dim(model->output[output]) == 1 ? MIRT__ACCURACY_BINARY : MIRT__ACCURACY_CATEGORICAL;
}

/* Of values for each position, their mean in the sample. */
static mirt_tensor *mirt__mean_of_positions(mirt_tensor *values) {
    return values && values->shape.rank > 1 ? mirt_reduce_mean(values, 0, false) : values;
}

static mirt_tensor *mirt__accuracy_record(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output,
                                          mirt_tensor *labels) {
    mirt__accuracy_kind kind = mirt__accuracy_kind_of(model, use->output);
    /* A custom loss does not define the labels: one label for each position is a class number. */
    if (kind == MIRT__ACCURACY_CATEGORICAL && labels && mirt__shape_count(&labels->shape) == mirt__positions(output))
        kind = MIRT__ACCURACY_SPARSE;
    labels = mirt__labels_form(kind == MIRT__ACCURACY_SPARSE, labels, output);
    return mirt__mean_of_positions(mirt__accuracy_op(kind, output, labels));
}

MIRT__LIB mirt_loss_options mirt__metric_loss_options(const mirt_model *model, const mirt__metric_use *use) {
    const mirt_loss_options *own = &model->config.loss_options[use->output];
    mirt_loss_options how;
    memset(&how, 0, sizeof how);
    how.has_ignore_class = own->has_ignore_class;
    how.ignore_class = own->ignore_class;
    return how;
}

/* The loss of each sample. `output` is as the model makes it: a loss of logits is more accurate than one of their
   probabilities. */
static mirt_tensor *mirt__loss_metric_record(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output,
                                             mirt_tensor *labels) {
    mirt_loss_options how = mirt__metric_loss_options(model, use);
    how.from_logits = use->options.from_logits && mirt__output_logits(model, use->output);
    return mirt__mean_of_positions(mirt__loss_of(use->options.loss, &how, output, labels));
}

/* What the metric takes; a loss decides by its labels. */
static mirt__metric_takes mirt__metric_takes_of(const mirt__metric_use *use) {
    const mirt__loss_class *loss = use->metric == MIRT_METRIC_LOSS ? mirt__loss_class_get(use->options.loss) : NULL;
    if (!loss) return use->cls->takes;
    return loss->sparse ? MIRT__TAKES_NUMBERS : loss->classes ? MIRT__TAKES_ONE_HOT : MIRT__TAKES_VALUES;
}

enum { MIRT__MOST_GROUPS = 1 << 20 };

static bool mirt__is_f_score(const mirt__metric_use *use) {
    return use->metric == MIRT_F1_SCORE || use->metric == MIRT_FBETA_SCORE;
}

/* Whether it is one of IoU's, of a confusion matrix. */
static bool mirt__counts_classes(const mirt__metric_use *use) {
    return use->metric == MIRT_MEAN_IOU || (use->metric >= MIRT_IOU && use->metric <= MIRT_ONE_HOT_MEAN_IOU);
}

MIRT__LIB void mirt__metric_settle(const mirt_model *model, mirt__metric_use *use) {
    mirt_metric_options *o = &use->options;
    const bool given = o->has_threshold || o->threshold != 0, hits = use->cls && use->cls->sums == MIRT__SUMS_HITS;
    const bool iou = mirt__counts_classes(use);
    const bool single = (iou && o->sparse_y_pred) || use->metric == MIRT_BINARY_IOU;
    use->n = single ? 1 : mirt__last_dim(model->output[use->output]);
    use->positions = mirt__shape_count(&model->output[use->output]->shape) / use->n;
    use->class_id = o->has_class_id || o->class_id ? o->class_id : -1;
    use->largest = hits && !iou && o->average && !given && !o->k;
    use->groups = 1;
    if (iou) use->groups = o->num_classes ? o->num_classes : use->n > 1 ? use->n : 2;
    else if (o->average && use->class_id < 0 && hits) use->groups = use->n;
    if (!given) o->threshold = hits && !iou && (o->k || use->largest) ? -INFINITY : 0.5f;
    if (!hits && !o->k) o->k = 5;
    if (o->beta == 0) o->beta = 1;
    if (!o->num_thresholds) o->num_thresholds = 200;
}

MIRT__LIB mirt_status mirt__metric_check(const mirt_model *model, const mirt__metric_use *use) {
    const char *name = use->cls->name, *maker = mirt__output_name(model, use->output);
    const mirt__metric_takes takes = mirt__metric_takes_of(use);
    const bool numbers = takes == MIRT__TAKES_NUMBERS, classes = numbers || takes == MIRT__TAKES_ONE_HOT;
    const mirt_tensor *output = model->output[use->output];
    const mirt__loss_class *loss = mirt__output_loss(model, use->output);
    const bool iou = mirt__counts_classes(use), one_hot_numbers = iou && use->options.sparse_y_pred;
    const int64_t groups = iou ? use->groups : use->n;
    char text[96];
    if (use->metric == MIRT_METRIC_LOSS && !use->options.loss)
        return mirt__fail(MIRT_E_INVALID, "MIRT_METRIC_LOSS needs a `loss` in its options");
    if (use->metric == MIRT_METRIC_LOSS && (use->options.loss == MIRT_DICE || use->options.loss == MIRT_TVERSKY ||
                                            use->options.loss == MIRT_CIRCLE))
        return mirt__fail(MIRT_E_INVALID, "%s depends on the other samples of a batch: it cannot be a metric",
                          mirt__loss_class_get(use->options.loss)->name);
    if (use->options.average && use->metric >= MIRT_TRUE_POSITIVES && use->metric <= MIRT_FALSE_NEGATIVES)
        return mirt__fail(MIRT_E_INVALID, "%s has no average; precision, recall, F1 and F-beta have", name);
    if (classes && use->n < 2 && !one_hot_numbers)
        return mirt__fail(MIRT_E_SHAPE, "%s needs an output of (rows, classes) or (rows, ..., classes); %s is %s", name,
                          maker, mirt__shape_text(&output->shape, text));
    if (use->metric == MIRT_R2_SCORE && output->shape.rank != 2)
        return mirt__fail(MIRT_E_SHAPE, "%s needs an output of (rows, n); %s is %s", name, maker,
                          mirt__shape_text(&output->shape, text));
    if (one_hot_numbers && use->options.num_classes < 1)
        return mirt__fail(MIRT_E_INVALID, "%s of class numbers (sparse_y_pred) needs num_classes", name);
    if (mirt__metric_sums(use) > 3 * MIRT__MOST_GROUPS)
        return mirt__fail(MIRT_E_INVALID, "%s counts at most %d classes or outputs; %s has %lld", name,
                          MIRT__MOST_GROUPS, maker, (long long)groups);
    if ((use->metric == MIRT_IOU || use->metric == MIRT_ONE_HOT_IOU) && use->class_id < 0 &&
        !use->options.target_classes)
        return mirt__fail(MIRT_E_INVALID, "%s needs class_id or target_classes", name);
    if (iou && use->options.target_classes >> (groups < 31 ? groups : 31))
        return mirt__fail(MIRT_E_INVALID, "%s: target_classes is 0x%x; %s has %lld classes, the first 31 can be set",
                          name, use->options.target_classes, maker, (long long)groups);
    if (use->class_id >= groups && (use->cls->sums == MIRT__SUMS_HITS || use->cls->sums == MIRT__SUMS_BUCKETS))
        return mirt__fail(MIRT_E_INVALID, "%s: class_id is %lld; %s has %lld classes", name, (long long)use->class_id,
                          maker, (long long)groups);
    if (loss && loss->sparse && takes == MIRT__TAKES_VALUES)
        return mirt__fail(MIRT_E_INVALID, "%s compares values; %s of %s takes class numbers", name, loss->name, maker);
    if (loss && classes && loss->sparse != numbers)
        return mirt__fail(MIRT_E_INVALID, "%s takes %s; %s of %s takes %s", name,
                          numbers ? "class numbers" : "one-hot labels", loss->name, maker,
                          loss->sparse ? "class numbers" : "one value per output");
    return MIRT_OK;
}

/* >>labels and weights of a batch */

static double mirt__label_at(const mirt__counted *c, int64_t i) { return mirt__element(c->labels, c->dtype, i); }

/* The label of output j in a row; a class number means the index of the 1. */
static double mirt__label_of(const mirt__counted *c, int64_t row, int64_t j) {
    if (c->width == 1 && c->n > 1) return mirt__label_at(c, row) == (double)j;
    return mirt__label_at(c, row * c->n + j);
}

/* The class that a number means; -1: none of them. */
static int64_t mirt__class_number(double number, int64_t classes) {
    return number > -1 && number < (double)classes ? (int64_t)number : -1;
}

/* The class of a row's label, a number or one of `width` values. */
static int64_t mirt__class_of(const mirt__counted *c, int64_t row, int64_t classes) {
    int64_t best = 0;
    if (c->width == 1) return mirt__class_number(mirt__label_at(c, row), classes);
    for (int64_t j = 1; j < c->width; j++)
        best = mirt__label_at(c, row * c->width + j) > mirt__label_at(c, row * c->width + best) ? j : best;
    return best;
}

static int64_t mirt__best_of(const mirt__real *x, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) best = x[j] > x[best] ? j : best;
    return best;
}

/* The weight of a row, for which its label's class counts as it does in the loss. */
static double mirt__row_weight(const mirt__counted *c, int64_t row) {
    const int n = c->num_class_weights;
    double weight = c->weights ? (double)c->weights[row / (c->rows / c->samples)] : 1, own = 0;
    if (!c->class_weights) return weight;
    for (int j = 0; c->width == n && j < n; j++) own += mirt__label_at(c, row * n + j) * (double)c->class_weights[j];
    if (c->width != n) {
        const int64_t label = mirt__class_number(mirt__label_at(c, row * c->width), n);
        own = label < 0 ? 0 : (double)c->class_weights[label];
    }
    return weight * own;
}

MIRT__LIB double mirt__sample_weight(const mirt__counted *c, int64_t sample) {
    const int64_t positions = c->rows / c->samples;
    double sum = 0;
    if (!c->class_weights) return mirt__row_weight(c, sample * positions);
    for (int64_t p = 0; p < positions; p++) sum += mirt__row_weight(c, sample * positions + p);
    return sum / (double)positions;
}

/* >>values of a row, which are added up with its weight */

static double mirt__is_best(const mirt__metric_use *use, const mirt__counted *c, int64_t row) {
    (void)use;
    return mirt__best_of(c->x + row * c->n, c->n) == mirt__class_of(c, row, c->n);
}

/* Like TensorFlow's in_top_k: fewer than k predictions are larger, and all are finite. */
static double mirt__is_in_top_k(const mirt__metric_use *use, const mirt__counted *c, int64_t row) {
    const mirt__real *x = c->x + row * c->n;
    const int64_t label = mirt__class_of(c, row, c->n);
    bool good = label >= 0 && label < c->n && isfinite((double)x[label]);
    int64_t larger = 0;
    for (int64_t j = 0; good && j < c->n; j++) {
        larger += x[j] > x[label];
        good = isfinite((double)x[j]) && larger < use->options.k;
    }
    return good;
}

static double mirt__agreements(const mirt__metric_use *use, const mirt__counted *c, int64_t row) {
    const mirt__real threshold = use->options.threshold;
    double sum = 0;
    for (int64_t j = 0; j < c->n; j++)
        sum += mirt__label_of(c, row, j) == (c->x[row * c->n + j] > threshold ? 1.0 : 0.0);
    return sum;
}

static double mirt__errors(const mirt__metric_use *use, const mirt__counted *c, int64_t row) {
    double sum = 0;
    for (int64_t i = row * c->n; i < (row + 1) * c->n; i++) {
        const double off = fabs((double)c->x[i] - mirt__label_at(c, i));
        sum += use->metric == MIRT_MAE ? off : off * off;
    }
    return sum;
}

/* Of predictions and labels, for Pearson's and the concordance correlation without their means. */
static double mirt__correlation(const mirt__metric_use *use, const mirt__counted *c, int64_t row) {
    const bool centered = use->metric != MIRT_METRIC_COSINE_SIMILARITY;
    double xx = 0, tt = 0, xt = 0, x_mean = 0, t_mean = 0;
    for (int64_t i = row * c->n; centered && i < (row + 1) * c->n; i++) {
        x_mean += (double)c->x[i] / (double)c->n;
        t_mean += mirt__label_at(c, i) / (double)c->n;
    }
    for (int64_t i = row * c->n; i < (row + 1) * c->n; i++) {
        const double x = (double)c->x[i] - x_mean, label = mirt__label_at(c, i) - t_mean;
        xx += x * x;
        tt += label * label;
        xt += x * label;
    }
    if (use->metric == MIRT_CONCORDANCE_CORRELATION) {
        const double n = (double)c->n, off = x_mean - t_mean;
        return 2 * xt / n / ((xx + tt) / n + off * off + 1e-7); /* as Keras */
    }
    xx = sqrt(xx);
    tt = sqrt(tt);
    if (centered) return xt / (xx * tt); /* NaN of constant rows, as Keras */
    return xt / ((xx > 1e-7 ? xx : 1e-7) * (tt > 1e-7 ? tt : 1e-7)); /* as Keras */
}

static void mirt__count_values(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    for (int64_t r = 0; r < c->rows; r++) sum[0] += mirt__row_weight(c, r) * use->cls->value(use, c, r);
}

/* >>other sums of a batch */

/* Adds to the true positives, false positives and false negatives of output or class j. */
static void mirt__count_hit(const mirt__metric_use *use, int64_t j, bool is, bool said, double weight, double *sum) {
    double *to = sum + (use->groups > 1 ? 3 * j : 0);
    if (is && said) to[0] += weight;
    else if (said) to[1] += weight;
    else if (is) to[2] += weight;
}

/* The k-th largest of a row's outputs; of equals the first one is before the others. -1: fewer are numbers. */
static int64_t mirt__kth_of(const mirt__real *x, int64_t n, int64_t k) {
    int64_t last = -1;
    for (int64_t i = 0; i < k; i++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++) {
            if (!(x[j] == x[j]) || (last >= 0 && (x[j] > x[last] || (x[j] == x[last] && j <= last)))) continue;
            if (best < 0 || x[j] > x[best]) best = j;
        }
        if (best < 0) return -1;
        last = best;
    }
    return last;
}

/* Whether output j of a row counts as 1; `last`: the least of the outputs that may, -1: all may. */
static bool mirt__is_said(const mirt__metric_use *use, const mirt__real *x, int64_t j, int64_t last) {
    if (use->largest && mirt__is_f_score(use))
        return last >= 0 && x[j] >= x[last] && fabs((double)x[j]) > 1e-9; /* as Keras */
    return x[j] > (mirt__real)use->options.threshold && (last < 0 || x[j] > x[last] || (x[j] == x[last] && j <= last));
}

static void mirt__count_positives(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    const int64_t k = use->largest ? 1 : use->options.k, begin = use->class_id < 0 ? 0 : use->class_id,
                  end = use->class_id < 0 ? c->n : use->class_id + 1;
    for (int64_t r = 0; r < c->rows; r++) {
        const mirt__real *x = c->x + r * c->n;
        const int64_t last = !k || k > c->n ? -1 : mirt__kth_of(x, c->n, k);
        const double weight = mirt__row_weight(c, r);
        for (int64_t j = begin; j < end; j++)
            mirt__count_hit(use, j, mirt__label_of(c, r, j) != 0, mirt__is_said(use, x, j, last), weight, sum);
    }
}

static void mirt__count_classes(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    const mirt_metric_options *o = &use->options;
    const bool ignores = o->has_ignore_class || o->ignore_class;
    for (int64_t r = 0; r < c->rows; r++) {
        const mirt__real *x = c->x + r * c->n;
        const int64_t is = mirt__class_of(c, r, use->groups),
                      said = o->sparse_y_pred ? mirt__class_number((double)x[0], use->groups)
                             : c->n > 1       ? mirt__best_of(x, c->n)
                                              : x[0] >= (mirt__real)o->threshold; /* as Keras, unlike precision */
        if (is < 0 || is >= use->groups || said < 0 || said >= use->groups || (ignores && is == o->ignore_class))
            continue;
        const double weight = mirt__row_weight(c, r);
        mirt__count_hit(use, is, true, said == is, weight, sum);
        if (said != is) mirt__count_hit(use, said, false, true, weight, sum);
    }
}

/* Counts positives by the largest threshold below them, then negatives; in float32, as in Keras. The last threshold, 1,
   is below none; its count is that of zeros, which are above the first threshold for AUC alone. */
static void mirt__count_buckets(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    const int buckets = use->options.num_thresholds;
    const int64_t begin = use->class_id < 0 ? 0 : use->class_id, end = use->class_id < 0 ? c->n : use->class_id + 1;
    for (int64_t r = 0; r < c->rows; r++) {
        const double weight = mirt__row_weight(c, r);
        for (int64_t j = begin; j < end; j++) {
            const float x = (float)c->x[r * c->n + j], p = x > 0 ? (x < 1 ? x : 1) : 0;
            const int above = (int)ceilf(p * (float)(buckets - 1));
            const int bucket = above ? above - 1 : use->metric == MIRT_AUC ? 0 : buckets - 1;
            sum[bucket + (mirt__label_of(c, r, j) != 0 ? 0 : buckets)] += weight;
        }
    }
}

/* Squares of errors, labels and their squares, by output. */
static void mirt__count_variance(const mirt__metric_use *use, const mirt__counted *c, double *sum) {
    (void)use;
    for (int64_t r = 0; r < c->rows; r++) {
        const double weight = mirt__row_weight(c, r);
        for (int64_t j = 0; j < c->n; j++) {
            const double label = mirt__label_at(c, r * c->n + j), off = (double)c->x[r * c->n + j] - label;
            sum[3 * j] += weight * off * off;
            sum[3 * j + 1] += weight * label;
            sum[3 * j + 2] += weight * label * label;
        }
    }
}

/* >>results of the sums */

static double mirt__ratio(double a, double b) { return b != 0 ? a / b : 0; }

static double mirt__mean_of_rows(const mirt__metric_use *use, const double *sum, double samples) {
    return mirt__ratio(sum[0], samples * (double)use->positions);
}

static double mirt__mean_of_elements(const mirt__metric_use *use, const double *sum, double samples) {
    const double mean = mirt__ratio(sum[0], samples * (double)use->positions * (double)use->n);
    return use->metric == MIRT_ROOT_MEAN_SQUARED_ERROR ? sqrt(mean) : mean;
}

/* Keras's uniform average; an output whose labels are all the same scores 0. */
static double mirt__explained(const mirt__metric_use *use, const double *sum, double samples) {
    double score = 0;
    for (int64_t j = 0; j < use->n; j++) {
        const double *of = sum + 3 * j, total = of[2] - of[1] * mirt__ratio(of[1], samples);
        score += total != 0 ? 1 - of[0] / total : of[0] != 0 ? 0 : (double)NAN;
    }
    return score / (double)use->n;
}

MIRT__LIB double mirt__metric_of_group(const mirt__metric_use *use, const double *sums, int64_t group) {
    const bool f = mirt__is_f_score(use);
    const double beta = f ? (double)use->options.beta : 1, *of = sums + 3 * group;
    const double hits = f ? (1 + beta * beta) * of[0] : of[0], wrong = use->metric == MIRT_RECALL ? 0 : of[1],
                 missed = use->metric == MIRT_PRECISION ? 0 : beta * beta * of[2];
    if (mirt__counts_classes(use) && !(hits + wrong + missed > 0)) return (double)NAN;
    return mirt__ratio(hits, hits + wrong + missed);
}

/* All groups as one. */
static double mirt__micro_average(const mirt__metric_use *use, const double *sum) {
    double all[3] = {0, 0, 0};
    for (int64_t i = 0; i < 3 * use->groups; i++) all[i % 3] += sum[i];
    return mirt__metric_of_group(use, all, 0);
}

/* Whether group g is one of those whose mean it is. */
static bool mirt__is_target(const mirt__metric_use *use, int64_t g) {
    const unsigned targets = mirt__counts_classes(use) ? use->options.target_classes : 0;
    return (use->groups == 1 || use->class_id < 0 || g == use->class_id) &&
           (!targets || (g < 31 && (targets >> g & 1u)));
}

/* Precision, recall, F1 or IoU: of one group, or the mean of several by their weights; one that does not occur has
   none. */
static double mirt__share_of_hits(const mirt__metric_use *use, const double *sum, double samples) {
    const bool iou = mirt__counts_classes(use), by_labels = use->options.average == MIRT_WEIGHTED && !iou;
    double total = 0, weights = 0;
    (void)samples;
    if (!iou && use->options.average <= MIRT_MICRO) return mirt__micro_average(use, sum);
    for (int64_t g = 0; g < use->groups; g++) {
        const double value = mirt__metric_of_group(use, sum, g), weight = by_labels ? sum[3 * g] + sum[3 * g + 2] : 1;
        if (!(value == value) || !mirt__is_target(use, g)) continue;
        total += weight * value;
        weights += weight;
    }
    return mirt__ratio(total, weights);
}

static double mirt__number_of_hits(const mirt__metric_use *use, const double *sum, double samples) {
    const double all = samples * (double)use->positions * (double)(use->class_id < 0 ? use->n : 1);
    return use->metric == MIRT_TRUE_POSITIVES    ? sum[0]
           : use->metric == MIRT_FALSE_POSITIVES ? sum[1]
           : use->metric == MIRT_FALSE_NEGATIVES ? sum[2]
                                                 : all - sum[0] - sum[1] - sum[2];
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

static double mirt__total(const double *sum, int count) {
    double total = 0;
    for (int i = 0; i < count; i++) total += sum[i];
    return total;
}

static double mirt__auc_of(const mirt__metric_use *use, const double *sum, double samples) {
    const int buckets = use->options.num_thresholds;
    const double positives = mirt__total(sum, buckets), negatives = mirt__total(sum + buckets, buckets);
    double area = 0, tp = positives, fp = negatives;
    (void)samples;
    for (int i = 0; i + 1 < buckets; i++) {
        area += mirt__auc_part(use->options.curve == MIRT_PR, tp, fp, sum[i], sum[buckets + i], positives, negatives);
        tp -= sum[i];
        fp -= sum[buckets + i];
    }
    return area;
}

/* The best of one share at thresholds where another is at least `at`, from the highest threshold to the lowest. */
static double mirt__best_at(const mirt__metric_use *use, const double *sum, double samples) {
    const int buckets = use->options.num_thresholds;
    const bool wants_recall =
        use->metric == MIRT_SENSITIVITY_AT_SPECIFICITY || use->metric == MIRT_RECALL_AT_PRECISION;
    const bool precision = use->metric == MIRT_PRECISION_AT_RECALL || use->metric == MIRT_RECALL_AT_PRECISION;
    const double positives = mirt__total(sum, buckets), negatives = mirt__total(sum + buckets, buckets);
    double tp = 0, fp = 0, best = 0;
    (void)samples;
    for (int i = buckets - 1; i >= 0; i--) {
        tp += i + 1 < buckets ? sum[i] : 0;
        fp += i + 1 < buckets ? sum[buckets + i] : 0;
        const double recall = mirt__ratio(tp, positives),
                     other = precision ? mirt__ratio(tp, tp + fp) : mirt__ratio(negatives - fp, negatives);
        const double value = wants_recall ? recall : other;
        if ((float)(wants_recall ? other : recall) >= use->options.at && value > best) best = value; /* as Keras */
    }
    return best;
}

/* >>the table */

#define MIRT__SHARE MIRT_MODE_MAX, true
#define MIRT__SCORE MIRT_MODE_MAX, false
#define MIRT__ERROR MIRT_MODE_MIN, false
#define MIRT__VALUES(value, per) NULL, 1, mirt__count_values, value, mirt__mean_of_##per
#define MIRT__HITS(result) MIRT__TAKES_ANY, NULL, MIRT__SUMS_HITS, mirt__count_positives, NULL, mirt__##result
#define MIRT__CLASSES NULL, MIRT__SUMS_HITS, mirt__count_classes, NULL, mirt__share_of_hits, MIRT__SHARE
#define MIRT__THRESHOLDS(result) \
    MIRT__TAKES_ANY, NULL, MIRT__SUMS_BUCKETS, mirt__count_buckets, NULL, result, MIRT__SHARE
static const mirt__metric_class mirt__metric_table[] = {
    {NULL, MIRT__TAKES_ANY, NULL, 0, NULL, NULL, NULL, MIRT_MODE_AUTO, false},
    {"accuracy", MIRT__TAKES_BY_SHAPE, mirt__accuracy_record, 0, NULL, NULL, NULL, MIRT__SHARE},
    {"binary_accuracy", MIRT__TAKES_VALUES, MIRT__VALUES(mirt__agreements, elements), MIRT__SHARE},
    {"categorical_accuracy", MIRT__TAKES_ONE_HOT, MIRT__VALUES(mirt__is_best, rows), MIRT__SHARE},
    {"sparse_categorical_accuracy", MIRT__TAKES_NUMBERS, MIRT__VALUES(mirt__is_best, rows), MIRT__SHARE},
    {"top_k_categorical_accuracy", MIRT__TAKES_ONE_HOT, MIRT__VALUES(mirt__is_in_top_k, rows), MIRT__SHARE},
    {"sparse_top_k_categorical_accuracy", MIRT__TAKES_NUMBERS, MIRT__VALUES(mirt__is_in_top_k, rows), MIRT__SHARE},
    {"precision", MIRT__HITS(share_of_hits), MIRT__SHARE},
    {"recall", MIRT__HITS(share_of_hits), MIRT__SHARE},
    {"f1_score", MIRT__HITS(share_of_hits), MIRT__SHARE},
    {"auc", MIRT__THRESHOLDS(mirt__auc_of)},
    {"mean_absolute_error", MIRT__TAKES_VALUES, MIRT__VALUES(mirt__errors, elements), MIRT__ERROR},
    {"mean_squared_error", MIRT__TAKES_VALUES, MIRT__VALUES(mirt__errors, elements), MIRT__ERROR},
    {"mean_io_u", MIRT__TAKES_ANY, MIRT__CLASSES},
    {"true_positives", MIRT__HITS(number_of_hits), MIRT_MODE_AUTO, false},
    {"false_positives", MIRT__HITS(number_of_hits), MIRT_MODE_AUTO, false},
    {"true_negatives", MIRT__HITS(number_of_hits), MIRT_MODE_AUTO, false},
    {"false_negatives", MIRT__HITS(number_of_hits), MIRT_MODE_AUTO, false},
    {"root_mean_squared_error", MIRT__TAKES_VALUES, MIRT__VALUES(mirt__errors, elements), MIRT__ERROR},
    {"r2_score", MIRT__TAKES_VALUES, NULL, MIRT__SUMS_OUTPUTS, mirt__count_variance, NULL, mirt__explained,
     MIRT__SCORE},
    {"cosine_similarity", MIRT__TAKES_VALUES, MIRT__VALUES(mirt__correlation, rows), MIRT__SCORE},
    {"loss", MIRT__TAKES_ANY, mirt__loss_metric_record, 0, NULL, NULL, NULL, MIRT__ERROR},
    {"fbeta_score", MIRT__HITS(share_of_hits), MIRT__SHARE},
    {"io_u", MIRT__TAKES_ANY, MIRT__CLASSES},
    {"binary_io_u", MIRT__TAKES_VALUES, MIRT__CLASSES},
    {"one_hot_io_u", MIRT__TAKES_ONE_HOT, MIRT__CLASSES},
    {"one_hot_mean_io_u", MIRT__TAKES_ONE_HOT, MIRT__CLASSES},
    {"pearson_correlation", MIRT__TAKES_VALUES, MIRT__VALUES(mirt__correlation, rows), MIRT__SCORE},
    {"concordance_correlation", MIRT__TAKES_VALUES, MIRT__VALUES(mirt__correlation, rows), MIRT__SCORE},
    {"sensitivity_at_specificity", MIRT__THRESHOLDS(mirt__best_at)},
    {"specificity_at_sensitivity", MIRT__THRESHOLDS(mirt__best_at)},
    {"precision_at_recall", MIRT__THRESHOLDS(mirt__best_at)},
    {"recall_at_precision", MIRT__THRESHOLDS(mirt__best_at)},
};
#undef MIRT__SHARE
#undef MIRT__SCORE
#undef MIRT__ERROR
#undef MIRT__VALUES
#undef MIRT__HITS
#undef MIRT__CLASSES
#undef MIRT__THRESHOLDS
MIRT__STATIC_ASSERT(MIRT__COUNT(mirt__metric_table) == MIRT__METRIC_COUNT, "a row for each metric");

MIRT__LIB const mirt__metric_class *mirt__metric_class_get(mirt_metric metric) {
    return (int)metric > MIRT_METRIC_NONE && metric < MIRT__METRIC_COUNT ? &mirt__metric_table[metric] : NULL;
}

MIRT__LIB mirt_mode mirt__metric_direction(const mirt__metric_use *use) {
    return use->cls ? use->cls->direction : use->custom.direction;
}

MIRT__LIB int mirt__metric_sums(const mirt__metric_use *use) {
    if (!use->cls || !use->cls->count) return 0;
    const int64_t sets = use->cls->sums == MIRT__SUMS_HITS ? use->groups : use->n;
    if (use->cls->sums == MIRT__SUMS_BUCKETS) return 2 * use->options.num_thresholds;
    return use->cls->sums > 0 ? use->cls->sums : sets <= MIRT__MOST_GROUPS ? (int)(3 * sets) : INT_MAX;
}

MIRT__LIB bool mirt__metric_compares(const mirt_model *model, const mirt__metric_use *use) {
    const mirt__loss_class *loss = mirt__output_loss(model, use->output);
    if (use->metric == MIRT_ACCURACY)
        return mirt__accuracy_kind_of(model, use->output) == MIRT__ACCURACY_BINARY && !use->options.from_logits;
    const bool one = use->n == 1 && !use->options.sparse_y_pred; /* mean IoU of it */
    return use->cls &&
           (use->cls->value == mirt__agreements || use->cls->count == mirt__count_positives ||
            (use->cls->count == mirt__count_classes && one)) &&
           !use->options.from_logits && use->options.threshold == 0.5f && !(loss && loss->undo == MIRT_SOFTMAX);
}

MIRT__LIB bool mirt__metric_indexes(const mirt__metric_use *use) {
    return use->metric == MIRT_METRIC_LOSS && use->cls && mirt__metric_takes_of(use) == MIRT__TAKES_NUMBERS;
}

MIRT__LIB bool mirt__metric_by_class(const mirt__metric_use *use) {
    return use->cls && use->cls->result == mirt__share_of_hits &&
           (mirt__counts_classes(use) || (use->options.average && use->class_id < 0));
}
