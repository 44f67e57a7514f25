"""Compares metrics of predictions with ties. They are the inputs of a model without weights, which evaluates them."""

import keras
import numpy as np
import random
from case import Case, compare
from spec import line, numbers

LIMIT = 2e-6  # of the metric, or of 1: counts are exact; Keras divides them, and adds up areas, in float32
CLASSES = {
    "categorical_accuracy": "CategoricalAccuracy",
    "sparse_categorical_accuracy": "SparseCategoricalAccuracy",
    "mae": "MeanAbsoluteError",
    "mse": "MeanSquaredError",
    "root_mean_squared_error": "RootMeanSquaredError",
    "r2_score": "R2Score",
    "cosine_similarity": "CosineSimilarity",
    "pearson_correlation": "PearsonCorrelation",
    "concordance_correlation": "ConcordanceCorrelation",
}
AT = {
    "sensitivity_at_specificity": "SensitivityAtSpecificity",
    "specificity_at_sensitivity": "SpecificityAtSensitivity",
    "precision_at_recall": "PrecisionAtRecall",
    "recall_at_precision": "RecallAtPrecision",
}
LOSSES = {
    "binary_crossentropy": "BinaryCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
}
COUNTS = {
    "true_positives": "TruePositives",
    "false_positives": "FalsePositives",
    "true_negatives": "TrueNegatives",
    "false_negatives": "FalseNegatives",
}


def keras_metric(m, loss, units):
    M, kind = keras.metrics, m["kind"]
    threshold = 0.5 if m.get("threshold") is None else m["threshold"]
    if kind == "accuracy":
        kind = (
            "sparse_categorical_accuracy"
            if numbers(loss)
            else "binary_accuracy" if units == 1 else "categorical_accuracy"
        )
    if kind in CLASSES:
        return getattr(M, CLASSES[kind])()
    if kind in COUNTS:
        return getattr(M, COUNTS[kind])(thresholds=threshold)
    if kind in AT:
        return getattr(M, AT[kind])(m["at"], num_thresholds=m.get("num_thresholds") or 200, class_id=m.get("class_id"))
    if kind == "fbeta_score":
        return M.FBetaScore(average=m["average"], beta=m["beta"], threshold=m.get("threshold"))
    if kind == "io_u":
        make = M.IoU if numbers(loss) else M.OneHotIoU
        more = {"sparse_y_pred": False} if numbers(loss) else {}
        return make(units, [m["class_id"]], dtype="float64", **more)
    if kind == "loss":
        return getattr(M, LOSSES[m["loss"]])()
    if kind == "mean_io_u" and units == 1:
        return M.BinaryIoU(threshold=threshold, dtype="float64")
    if kind == "mean_io_u":
        make = M.MeanIoU if numbers(loss) else M.OneHotMeanIoU
        more = {"sparse_y_pred": False} if numbers(loss) else {}
        return make(units, ignore_class=m.get("ignore_class"), dtype="float64", **more)
    if kind == "binary_accuracy":
        return M.BinaryAccuracy(threshold=threshold)
    if kind == "top_k_categorical_accuracy":
        return M.TopKCategoricalAccuracy(k=m.get("k") or 5)
    if kind == "sparse_top_k_categorical_accuracy":
        return M.SparseTopKCategoricalAccuracy(k=m.get("k") or 5)
    if kind in ("precision", "recall"):
        make = {"precision": M.Precision, "recall": M.Recall}[kind]
        return make(thresholds=m.get("threshold") if m.get("k") else threshold, top_k=m.get("k"),
                    class_id=m.get("class_id"))
    if kind == "f1_score" and m.get("average"):
        return M.F1Score(average=m["average"], threshold=m.get("threshold"))
    if kind == "f1_score":
        return M.F1Score(average="micro", threshold=threshold)
    return M.AUC(num_thresholds=m.get("num_thresholds") or 200, curve=m.get("curve") or "ROC")


def value(m, loss, labels, predictions, weights=None):
    """Keras's, of float32 predictions (rows, ...); class numbers count as one-hot labels where a metric wants
    these."""
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    metric = keras_metric(m, loss, predictions.shape[-1])
    sparse = numbers(loss) and "sparse" not in m["kind"]
    if sparse and m["kind"] not in ("accuracy", "mean_io_u", "io_u", "loss"):
        labels = np.eye(predictions.shape[-1], dtype=np.float32)[labels]
    metric.update_state(labels, predictions, **({"sample_weight": weights} if m.get("weighted") else {}))
    return float(np.asarray(metric.result()))


def complaint(results, name, m, loss, labels, predictions, weights=None):
    """None, or how far the evaluated metric is from Keras's."""
    want = value(m, loss, labels, predictions, weights)
    return compare(name, results.get(name), np.array([want]), LIMIT * max(1, abs(want)))


def draw_options(random, kind, units=1, loss=""):
    m = {"kind": kind}
    if kind in LOSSES:
        m = {"kind": "loss", "loss": kind}
    if kind in ("precision", "recall") and units > 1 and random.random() < 0.5:
        m["class_id"] = random.randrange(units)
    if kind in ("precision", "recall") and units > 1 and random.random() < 0.3:
        m["k"] = random.randint(1, units)
    if kind == "fbeta_score" or (kind == "f1_score" and random.random() < 0.6):
        m["average"] = random.choice(["micro", "macro", "weighted"])
    if kind == "fbeta_score":
        m["beta"] = random.choice([0.5, 2.0])
    if kind in AT:
        m.update(at=random.choice([0.25, 0.5, 0.75]), num_thresholds=random.choice([None, 11, 50]))
    if kind == "io_u" or (kind in AT and units > 1 and random.random() < 0.5):
        m["class_id"] = random.randrange(units)
    if kind == "mean_io_u" and units > 1 and random.random() < 0.5:
        m["ignore_class"] = random.randrange(units)
    if "top_k" in kind and random.random() < 0.8:
        m["k"] = random.choice([1, 2, 3])
    cut = ["binary_accuracy", "precision", "recall", "f1_score", "fbeta_score"] + list(COUNTS)
    cut += ["mean_io_u"] * (units == 1)
    if kind in cut and random.random() < 0.6:
        m["threshold"] = random.choice([0.25, 0.75, 0.5, 0.3])
    if kind == "auc":
        m.update(num_thresholds=random.choice([None, 2, 11, 50]), curve=random.choice(["ROC", "PR"]))
    return m


class Metrics(Case):
    part, every = "metrics", 1

    def __init__(self, seed, scratch):
        r, n = random.Random("metrics %d" % seed), np.random.RandomState(seed % 2**32)
        loss = r.choice(
            ["sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy", "mean_squared_error"]
        )
        units, rows = r.choice([2, 3, 5, 9]) if "categorical" in loss else r.choice([1, 1, 2, 4]), r.choice(
            [1, 2, 7, 33, 64]
        )
        fitting = {
            "sparse_categorical_crossentropy": [
                "accuracy",
                "sparse_categorical_accuracy",
                "sparse_top_k_categorical_accuracy",
                "mean_io_u",
                "io_u",
                loss,
            ],
            "categorical_crossentropy": [
                "accuracy",
                "categorical_accuracy",
                "top_k_categorical_accuracy",
                "binary_accuracy",
                "mae",
                "mean_io_u",
                "io_u",
                loss,
            ],
            "binary_crossentropy": ["binary_accuracy", "mae", "mse", loss]
            + (["accuracy", "mean_io_u"] if units == 1 else []),
            "mean_squared_error": ["mae", "mse", "root_mean_squared_error", "cosine_similarity"]
            + (["r2_score"] if rows > 30 else [])
            + (["pearson_correlation", "concordance_correlation"] if units > 2 else []),
        }[loss]
        place = r.choice([(), (), (2, 3), (1, 5)])  # positions
        positives = ["precision", "recall", "f1_score", "fbeta_score", "auc"] + list(COUNTS) + list(AT)
        positives = positives if loss != "mean_squared_error" else []
        self.metrics = [
            dict(draw_options(r, k, units, loss), name="m%d" % i)
            for i, k in enumerate(r.sample(fitting + positives, min(6, len(fitting + positives))))
            if not place or k not in ("f1_score", "fbeta_score", "r2_score")  # of (rows, classes) alone in Keras
        ]
        if r.random() < 0.5 and positives:
            self.metrics.append(dict(draw_options(r, "auc"), name="m9"))
        weights = n.choice([0.25, 0.5, 1.0, 2.0, 3.0], rows).astype(np.float32) if r.random() < 0.5 else None
        for m in self.metrics:
            if weights is not None and r.random() < 0.6:
                m["weighted"] = True
        self.weights = weights
        self.loss, logits = loss, loss != "mean_squared_error" and r.random() < 0.3
        self.labels = {
            "s": lambda: n.randint(0, units, (rows,) + place).astype(np.int32),
            "c": lambda: np.eye(units, dtype=np.float32)[n.randint(0, units, (rows,) + place)],
            "b": lambda: n.randint(0, 2, (rows,) + place + (units,)).astype(np.float32),
            "m": lambda: n.standard_normal((rows,) + place + (units,)).astype(np.float32),
        }[loss[0]]()
        x = n.uniform(0, 1, (rows,) + place + (units,)).astype(np.float32)
        tied = n.random_sample(rows) < 0.4
        x[tied] = np.floor(x[tied] * 4) / 4
        if loss == "categorical_crossentropy":
            x = np.maximum(x, np.float32(2**-10))  # it divides by the sum
        self.predictions = x
        if logits:
            x = (x * 6 - 3).astype(np.float32)
            e = np.exp(x.astype(np.float64))  # TensorFlow's float32 softmax may break ties
            self.predictions = (
                (e / np.sum(e, axis=-1, keepdims=True)).astype(np.float32)
                if "categorical" in loss
                else np.asarray(keras.ops.sigmoid(x), np.float32)
            )
            for m in self.metrics:
                m["from_logits"] = True
        replicas = r.choice([1, 2, 3])
        super().__init__(
            seed,
            "\n".join(
                [
                    "metrics",
                    line("strategy", replicas=replicas, devices=1),
                    line("input", name="x0", shape=place + (units,), dtype="float32"),
                    line("layer", kind="rescaling", name="n0", **{"in": "x0"}, scale=1.0, offset=0.0),
                    line("output", layer="n0", loss=loss, shape=place + (units,)),
                    line("compile", from_logits=logits),
                    line("train", rows=rows, batch=r.choice([1, 5, 32]), sample_weights=weights is not None),
                ]
                + [line("metric", **m) for m in self.metrics]
            )
            + "\n",
        )
        self.files = {"x0.bin": x, "y0.bin": self.labels}
        if weights is not None:
            self.files["weights.bin"] = weights
            if place:  # Keras wants one for each position
                self.weights = np.broadcast_to(weights[:, None, None], (rows,) + place)

    def check(self, results, directory):
        complaints = []
        for m in self.metrics:
            name = "evaluate/" + m["name"]
            problem = complaint(results, name, m, self.loss, self.labels, self.predictions, self.weights)
            complaints.append(problem and "%s: %s" % (m["kind"], problem))
        return [c for c in complaints if c]
