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
   with the largest golden_uniform(seed + 1, i) + p, as a number or one-hot. */
enum { METRIC_ROWS = 211 };
typedef struct golden_metric {
    const char *name;
    int n, sparse, k;
    double threshold;
    int thresholds;
    const char *curve;
    unsigned seed;
    double value;
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
text = [HEAD % (tf.__version__, keras.__version__)]
for seed, (name, n, sparse, k, threshold, thresholds, curve, make) in enumerate(CASES):
    seed = 40 + 10 * seed
    p = uniform(seed, (ROWS, n)) / np.float32(2) + np.float32(.5)
    p[::8] = np.floor(p[::8] * 4) / 4
    if n == 1:
        w = words(seed + 1, ROWS)
        y = ((w >> np.uint32(16)).astype(np.float64) < 65536.0 * p[:, 0]) ^ (w % 4 == 0)
        y = y.astype(np.float32)[:, None]
    else:
        y = np.eye(n, dtype=np.float32)[np.argmax(uniform(seed + 1, (ROWS, n)) + p, axis=1)]
    metric = make()
    for at in range(0, ROWS, 50):
        labels = np.argmax(y[at:at + 50], axis=1) if sparse and "sparse" in name else y[at:at + 50]
        metric.update_state(labels, p[at:at + 50])
    text.append(
        '    {"%s", %d, %d, %d, %.9g, %d, "%s", %d, %.9g},\n'
        % (name, n, sparse, k, threshold, thresholds, curve, seed, float(np.asarray(metric.result())))
    )
text.append("};\n\n#endif\n")
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.h"), "w").write("".join(text))
