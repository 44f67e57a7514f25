#!/usr/bin/env python3
"""Writes metrics.h: what Keras's metrics say about random predictions."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf

from formula import c_array, uniform, words

HEAD = """#ifndef GOLDEN_METRICS_H
#define GOLDEN_METRICS_H
/* Made by make_metrics.py with TensorFlow %s, Keras %s; do not edit. Include after mirrortrain.h. */
#include "formula.h"

/* METRIC_ROWS rows of n predictions p = golden_uniform(seed, i) / 2 + 0.5, in every eighth row all rounded down to quarters. Labels: of
   one output golden_word(seed + 1, row) >> 16 < 65536 p, or 1 - that where the word is a multiple of 4; of several classes, the class
   with the largest golden_uniform(seed + 1, i) + p, as a number or one-hot. With positions the first 210 rows are those
   of 35 samples of (2, 3). Weights of samples are golden_uniform(seed + 2, sample) + 1.25. Options that are -1 are not
   given; by_class is average=None, or the IoU of each class. */
enum { METRIC_ROWS = 211 };
typedef struct golden_metric {
    const char *name;
    int n, sparse, k;
    double threshold;
    int thresholds;
    const char *curve;
    unsigned seed;
    double value;
    const char *average;
    int class_id, weighted, positions, ignore, classes;
    double by_class[9], beta, at;
    unsigned targets;
} golden_metric;

static const golden_metric golden_metrics[] = {
"""
ROWS = 211
M = keras.metrics
CASES = [
    ("binary_accuracy", 1, 0, 0, .5, 0, "ROC", lambda: M.BinaryAccuracy()),
    ("binary_accuracy", 4, 0, 0, .25, 0, "ROC", lambda: M.BinaryAccuracy(threshold=.25)),
    ("categorical_accuracy", 5, 0, 0, 0, 0, "ROC", lambda: M.CategoricalAccuracy()),
    ("sparse_categorical_accuracy", 5, 1, 0, 0, 0, "ROC", lambda: M.SparseCategoricalAccuracy()),
    ("top_k_categorical_accuracy", 9, 0, 0, 0, 0, "ROC", lambda: M.TopKCategoricalAccuracy()),
    ("top_k_categorical_accuracy", 9, 0, 2, 0, 0, "ROC", lambda: M.TopKCategoricalAccuracy(k=2)),
    ("sparse_top_k_categorical_accuracy", 9, 1, 3, 0, 0, "ROC", lambda: M.SparseTopKCategoricalAccuracy(k=3)),
    ("precision", 1, 0, 0, .5, 0, "ROC", lambda: M.Precision()),
    ("precision", 5, 0, 0, .75, 0, "ROC", lambda: M.Precision(thresholds=.75)),
    ("precision", 5, 1, 0, .75, 0, "ROC", lambda: M.Precision(thresholds=.75)),
    ("recall", 1, 0, 0, .5, 0, "ROC", lambda: M.Recall()),
    ("recall", 5, 1, 0, .25, 0, "ROC", lambda: M.Recall(thresholds=.25)),
    ("f1_score", 1, 0, 0, .5, 0, "ROC", lambda: M.F1Score(average="micro", threshold=.5)),
    ("f1_score", 5, 0, 0, .5, 0, "ROC", lambda: M.F1Score(average="micro", threshold=.5)),
    ("auc", 1, 0, 0, 0, 0, "ROC", lambda: M.AUC()),
    ("auc", 1, 0, 0, 0, 0, "PR", lambda: M.AUC(curve="PR")),
    ("auc", 5, 0, 0, 0, 0, "ROC", lambda: M.AUC()),
    ("auc", 5, 1, 0, 0, 0, "PR", lambda: M.AUC(curve="PR")),
    ("auc", 1, 0, 0, 0, 11, "ROC", lambda: M.AUC(num_thresholds=11)),
    ("auc", 1, 0, 0, 0, 11, "PR", lambda: M.AUC(num_thresholds=11, curve="PR")),
    ("mean_absolute_error", 4, 0, 0, 0, 0, "ROC", lambda: M.MeanAbsoluteError()),
    ("mean_squared_error", 4, 0, 0, 0, 0, "ROC", lambda: M.MeanSquaredError()),
    ("binary_accuracy", 4, 0, 0, 0, 0, "ROC", lambda: M.BinaryAccuracy(threshold=0)),
    ("precision", 5, 0, 0, 0, 0, "ROC", lambda: M.Precision(thresholds=0)),
]


# (name, n, options, metric): options may be sparse, k, threshold (-1: none), average, class_id, weighted, positions,
# ignore, beta, at, targets (target_class_ids); `by_class` makes the metric with the values of each class.
def case(name, n, make, by_class=None, **options):
    return (name, n, options.get("sparse", 0), options.get("k", 0), options.get("threshold", -1),
            options.get("thresholds", 0), "ROC", make, by_class, options)


class Mean:
    """The mean of a metric over classes: Keras has no other average of precision and recall."""

    def __init__(self, n, make):
        self.metrics = [make(i) for i in range(n)]

    def update_state(self, *data, **weights):
        for m in self.metrics:
            m.update_state(*data, **weights)

    def values(self):
        return np.array([float(m.result()) for m in self.metrics])

    def result(self):
        return np.mean(self.values())


class ByClass(Mean):
    def result(self):
        return self.values()


def iou(n, **options):
    kind = M.IoU if options.pop("sparse_y_true", True) else M.OneHotIoU
    more = {"sparse_y_pred": False} if kind is M.IoU else {}
    return lambda: ByClass(n, lambda i: kind(n, target_class_ids=[i], dtype="float64", **more, **options))


for average in ("micro", "macro", "weighted"):
    CASES.append(case("f1_score", 5, lambda a=average: M.F1Score(average=a), lambda: M.F1Score(), average=average))
CASES += [
    case("f1_score", 4, lambda: M.F1Score(average="macro", threshold=0.25), lambda: M.F1Score(threshold=0.25),
         average="macro", threshold=0.25),
    case("f1_score", 5, lambda: M.F1Score(average="weighted"), lambda: M.F1Score(), average="weighted", weighted=1,
         sparse=1),
    case("precision", 5, lambda: Mean(5, lambda i: M.Precision(top_k=1, class_id=i)),
         lambda: ByClass(5, lambda i: M.Precision(top_k=1, class_id=i)), average="macro"),
    case("recall", 5, lambda: Mean(5, lambda i: M.Recall(top_k=1, class_id=i)),
         lambda: ByClass(5, lambda i: M.Recall(top_k=1, class_id=i)), average="macro", sparse=1),
    case("precision", 5, lambda: M.Precision(class_id=0), class_id=0, threshold=0.5),
    case("precision", 9, lambda: M.Precision(top_k=3), k=3),
    case("recall", 9, lambda: M.Recall(top_k=3, class_id=7, thresholds=0.75), k=3, class_id=7, threshold=0.75,
         sparse=1),
    case("recall", 9, lambda: M.Recall(top_k=2), k=2, weighted=1),
    case("mean_io_u", 5, lambda: M.MeanIoU(5, sparse_y_pred=False), iou(5), sparse=1),
    case("mean_io_u", 5, lambda: M.MeanIoU(5, sparse_y_pred=False, ignore_class=2), iou(5, ignore_class=2), sparse=1,
         ignore=2),
    case("mean_io_u", 5, lambda: M.MeanIoU(5, sparse_y_pred=False, dtype="float64", ignore_class=0),
         iou(5, ignore_class=0), sparse=1, positions=1, weighted=1, ignore=0),
    case("mean_io_u", 4, lambda: M.OneHotMeanIoU(4), iou(4, sparse_y_true=False), positions=1),
    case("mean_io_u", 1, lambda: M.BinaryIoU(threshold=0.5),
         lambda: ByClass(2, lambda i: M.BinaryIoU(target_class_ids=[i], threshold=0.5)), positions=1),
    case("mean_io_u", 5, lambda: M.IoU(5, [3], sparse_y_pred=False), iou(5), sparse=1, class_id=3),
    case("sparse_categorical_accuracy", 5, lambda: M.SparseCategoricalAccuracy(), sparse=1, positions=1),
    case("sparse_categorical_accuracy", 5, lambda: M.SparseCategoricalAccuracy(), sparse=1, weighted=1),
    case("accuracy", 5, lambda: M.SparseCategoricalAccuracy(), sparse=1, weighted=1),
    case("accuracy", 1, lambda: M.BinaryAccuracy(), weighted=1),
    case("sparse_top_k_categorical_accuracy", 9, lambda: M.SparseTopKCategoricalAccuracy(k=3), sparse=1, positions=1,
         weighted=1, k=3),
    case("binary_accuracy", 4, lambda: M.BinaryAccuracy(threshold=0.25), weighted=1, threshold=0.25),
    case("auc", 1, lambda: M.AUC(), weighted=1),
    case("mean_absolute_error", 4, lambda: M.MeanAbsoluteError(), weighted=1, positions=1),
    case("root_mean_squared_error", 4, lambda: M.RootMeanSquaredError()),
    case("root_mean_squared_error", 4, lambda: M.RootMeanSquaredError(), weighted=1),
    case("r2_score", 4, lambda: M.R2Score()),
    case("r2_score", 4, lambda: M.R2Score(), weighted=1),
    case("cosine_similarity", 4, lambda: M.CosineSimilarity()),
    case("cosine_similarity", 4, lambda: M.CosineSimilarity(), weighted=1, positions=1),
    case("true_positives", 5, lambda: M.TruePositives(), sparse=1),
    case("false_positives", 1, lambda: M.FalsePositives(thresholds=0.25), threshold=0.25, weighted=1),
    case("true_negatives", 5, lambda: M.TrueNegatives(), weighted=1),
    case("false_negatives", 1, lambda: M.FalseNegatives(thresholds=0.75), threshold=0.75),
    case("binary_crossentropy", 1, lambda: M.BinaryCrossentropy()),
    case("categorical_crossentropy", 5, lambda: M.CategoricalCrossentropy(), weighted=1),
    case("sparse_categorical_crossentropy", 5, lambda: M.SparseCategoricalCrossentropy(), sparse=1),
    case("sparse_categorical_crossentropy", 5, lambda: M.SparseCategoricalCrossentropy(), sparse=1, positions=1,
         weighted=1),
    case("accuracy", 5, lambda: M.SparseCategoricalAccuracy(), sparse=1, positions=1, weighted=1),
    case("categorical_hinge", 5, lambda: M.CategoricalHinge(), weighted=1),
    case("hinge", 4, lambda: M.Hinge()),
    case("squared_hinge", 4, lambda: M.SquaredHinge(), weighted=1),
    case("kl_divergence", 4, lambda: M.KLDivergence(), positions=1, weighted=1),
    case("log_cosh", 4, lambda: M.LogCoshError()),
    case("poisson", 1, lambda: M.Poisson(), weighted=1),
    case("mean_absolute_percentage_error", 4, lambda: M.MeanAbsolutePercentageError()),
    case("mean_squared_logarithmic_error", 4, lambda: M.MeanSquaredLogarithmicError(), positions=1),
    case("fbeta_score", 5, lambda: M.FBetaScore(average="macro", beta=0.5), lambda: M.FBetaScore(beta=0.5),
         average="macro", beta=0.5),
    case("fbeta_score", 5, lambda: M.FBetaScore(average="weighted", beta=2.0, threshold=0.75),
         lambda: M.FBetaScore(beta=2.0, threshold=0.75), average="weighted", beta=2, threshold=0.75, weighted=1,
         sparse=1),
    case("fbeta_score", 4, lambda: M.FBetaScore(average="micro"), average="micro"),
    case("io_u", 5, lambda: M.IoU(5, [0, 3], sparse_y_pred=False, dtype="float64", ignore_class=2),
         iou(5, ignore_class=2), sparse=1, targets=[0, 3], ignore=2, weighted=1),
    case("io_u", 5, lambda: M.IoU(5, [4], sparse_y_pred=False), iou(5), sparse=1, class_id=4, positions=1),
    case("binary_io_u", 1, lambda: M.BinaryIoU(threshold=0.25),
         lambda: ByClass(2, lambda i: M.BinaryIoU(target_class_ids=[i], threshold=0.25)), threshold=0.25),
    case("binary_io_u", 4, lambda: M.BinaryIoU(target_class_ids=[1]),
         lambda: ByClass(2, lambda i: M.BinaryIoU(target_class_ids=[i])), targets=[1], positions=1),
    case("one_hot_io_u", 5, lambda: M.OneHotIoU(5, [1, 2, 4]), iou(5, sparse_y_true=False), targets=[1, 2, 4]),
    case("one_hot_mean_io_u", 5, lambda: M.OneHotMeanIoU(5, dtype="float64", ignore_class=1),
         iou(5, sparse_y_true=False, ignore_class=1), ignore=1, weighted=1),
    case("pearson_correlation", 4, lambda: M.PearsonCorrelation()),
    case("pearson_correlation", 4, lambda: M.PearsonCorrelation(), weighted=1, positions=1),
    case("concordance_correlation", 4, lambda: M.ConcordanceCorrelation(), weighted=1),
    case("concordance_correlation", 9, lambda: M.ConcordanceCorrelation(), positions=1),
]
for at in (0, 0.5, 0.8, 1):  # of 7 thresholds; 0.8 of the default's number of class 2, with weights
    n, few = (5, {"class_id": 2}) if at == 0.8 else (1, {"num_thresholds": 7})
    options = {"at": at, "thresholds": 7} if n == 1 else {"at": at, "class_id": 2, "weighted": 1}
    for kind in (M.SensitivityAtSpecificity, M.SpecificityAtSensitivity, M.PrecisionAtRecall, M.RecallAtPrecision):
        name = keras.src.utils.naming.to_snake_case(kind.__name__)
        CASES.append(case(name, n, lambda a=at, k=kind, o=few: k(a, **o), **options))
text = [HEAD % (tf.__version__, keras.__version__)]
for seed, (name, n, sparse, k, threshold, thresholds, curve, make, *more) in enumerate(CASES):
    seed = 40 + 10 * seed
    by_class, options = more or (None, {})
    p = uniform(seed, (ROWS, n)) / np.float32(2) + np.float32(.5)
    p[::8] = np.floor(p[::8] * 4) / 4
    if n == 1:
        w = words(seed + 1, ROWS)
        y = ((w >> np.uint32(16)).astype(np.float64) < 65536.0 * p[:, 0]) ^ (w % 4 == 0)
        y = y.astype(np.float32)[:, None]
    else:
        y = np.eye(n, dtype=np.float32)[np.argmax(uniform(seed + 1, (ROWS, n)) + p, axis=1)]
    if options.get("positions"):
        p, y = p[:210].reshape(35, 2, 3, n), y[:210].reshape(35, 2, 3, n)
    weights = uniform(seed + 2, len(p)) + np.float32(1.25)
    metric, classes = make(), by_class() if by_class else None
    for at in range(0, ROWS, 50):
        if at >= len(p):
            break
        numbers = sparse and ("sparse" in name or "io_u" in name or name == "accuracy")
        labels = np.argmax(y[at:at + 50], axis=-1) if numbers else y[at:at + 50]
        w = weights[at:at + 50]
        if options.get("positions") and "error" not in name:  # Keras wants a weight for each position
            w = np.broadcast_to(w[:, None, None], w.shape + (2, 3))
            w = w[..., None] if n == 1 else w
        w = {"sample_weight": w} if options.get("weighted") else {}
        for m in [metric, classes] if classes else [metric]:
            m.update_state(labels, p[at:at + 50], **w)
    values = np.asarray(classes.result()) if classes else np.zeros(1)
    text.append(
        '    {"%s", %d, %d, %d, %.9g, %d, "%s", %d, %.9g, "%s", %d, %d, %d, %d, %d, {%s}, %.9g, %.9g, 0x%x},\n'
        % (name, n, sparse, k, threshold, thresholds, curve, seed, float(np.asarray(metric.result())),
           options.get("average", "auto"), options.get("class_id", -1), options.get("weighted", 0),
           options.get("positions", 0), options.get("ignore", -1), len(values) if classes else 0,
           ", ".join("%.9g" % v for v in values), options.get("beta", 0), options.get("at", 0),
           sum(1 << i for i in options.get("targets", [])))
    )
text.append("};\n\n#endif\n")
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.h"), "w").write("".join(text))
