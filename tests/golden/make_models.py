#!/usr/bin/env python3
"""Writes models.h: results of training models in float64 Keras. They have several inputs and outputs, models as
custom layers, losses and metrics, weights of samples and classes, and regularizers."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf
from keras import layers, losses, ops

from formula import c_array, uniform, words

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

HEAD = """#ifndef GOLDEN_MODELS_H
#define GOLDEN_MODELS_H
/* Made by make_models.py with TensorFlow %s, Keras %s in float64; do not edit. */
#include "formula.h"

/* One fit: 12 samples in their order, 4 epochs, SGD(0.1, momentum 0.9), validation after each with 7
   samples. Keras does not weight the outputs' own losses of uneven batches; they are left out there. Weight i of the list begins as golden_uniform(100 + i) / 2, to which 1 is added for
   gammas and variances. Input i is golden_uniform(10 + i), for validation 20 + i; labels are made of
   golden_word(30 + i) and 40 + i; sample weights are golden_uniform(50) + 1 and 51. value is [log][epoch]. */
typedef struct golden_fit {
    const char *name;
    int batch, validation_batch, num_logs, num_weights;
    const char *const *log;
    const double *value;
    const char *const *weight;
    const double *final; /* all of them one after the other */
} golden_fit;

"""
N, NV, EPOCHS = 12, 7, 4
text = [HEAD % (tf.__version__, keras.__version__)]
rows = []


def strings(name, values):
    text.append("static const char *const %s[] = {%s};\n" % (name, ", ".join('"%s"' % v for v in values)))


def x(i, size, validation=False):
    return uniform((20 if validation else 10) + i, (NV if validation else N, size)).astype(np.float64)


def classes(i, n, validation=False, positions=()):
    shape = (NV if validation else N,) + positions
    numbers = words((40 if validation else 30) + i, int(np.prod(shape))) % np.uint32(n)
    return numbers.astype(np.int64).reshape(shape)


def reals(i, size, validation=False):
    """Labels of a regression."""
    return uniform((40 if validation else 30) + i, (NV if validation else N, size)).astype(np.float64)


def sample_weights(validation=False):
    return uniform(51 if validation else 50, (NV if validation else N,)).astype(np.float64) + 1


def fit(name, model, names, data, validation, compile, batch=5, validation_batch=3, **options):
    """`names`: ours, and Keras's variable of each weight; data: (x, y) or (x, y, weights)."""
    for i, (ours, variable) in enumerate(names):
        shift = 1 if ours.endswith("gamma") or ours.endswith("variance") else 0
        variable.assign(uniform(100 + i, variable.shape).astype(np.float64) / 2 + shift)
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), **compile)
    weights = {"sample_weight": data[2]} if len(data) > 2 else {}
    history = model.fit(
        data[0],
        data[1],
        batch_size=batch,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        validation_data=validation,
        validation_batch_size=validation_batch,
        **weights,
        **options,
    ).history
    logs = sorted(k for k in history if not k.endswith("_loss") or k == "val_loss" or batch == 4)
    strings("golden_%s_logs" % name, logs)
    strings("golden_%s_weights" % name, [ours for ours, _ in names])
    text.append(c_array("double", "golden_%s_value" % name, np.array([history[k] for k in logs]), form="%.12g"))
    final = np.concatenate([np.asarray(v.value).ravel() for _, v in names])
    text.append(c_array("double", "golden_%s_final" % name, final, form="%.12g"))
    rows.append('{"%s", %d, %d, %d, %d, golden_%s_logs, golden_%s_value, golden_%s_weights, golden_%s_final}'
                % (name, batch, validation_batch, len(logs), len(names), name, name, name, name))
    print(name, {k: float(v[-1]) for k, v in history.items()})


def dense_names(layer, prefix=""):
    return [(prefix + layer.name + "/kernel", layer.kernel), (prefix + layer.name + "/bias", layer.bias)]


def two(name, options, weighted=False, l1=0.0, l2=0.0, digits="softmax", **batches):
    a, b = keras.Input((6,)), keras.Input((4,))
    da = layers.Dense(5, activation="relu", name="da", kernel_regularizer=keras.regularizers.L2(l2) if l2 else None)
    db = layers.Dense(3, activation="tanh", name="db", kernel_regularizer=keras.regularizers.L1(l1) if l1 else None,
                      bias_regularizer=keras.regularizers.L1L2(l1, l2) if l1 else None)
    digit, side = layers.Dense(4, activation=digits, name="digit"), layers.Dense(
        1, activation="sigmoid", name="side"
    )
    both = layers.Concatenate()([da(a), db(b)])
    model = keras.Model([a, b], [digit(both), side(both)])
    names = sum([dense_names(layer) for layer in (da, db, digit, side)], [])
    data = [
        ([x(0, 6, v), x(1, 4, v)], [classes(0, 4, v), classes(1, 2, v).reshape(-1, 1).astype(np.float64)])
        for v in (False, True)
    ]
    if weighted:
        data = [(d[0], d[1], [sample_weights(v)] * 2) for d, v in zip(data, (False, True))]
    fit(name, model, names, data[0], data[1], options, **batches)


def two_options(**more):
    return dict(loss=["sparse_categorical_crossentropy", "binary_crossentropy"], loss_weights=[1.0, 0.5],
                metrics=[["accuracy"], ["accuracy"]], **more)


two("two", two_options())
two("two_even", two_options(), weighted=True, batch=4, validation_batch=7)
two("two_weighted", two_options(), weighted=True)
two("two_regularized", two_options(), l1=0.01, l2=0.02)
two(
    "two_sum",
    dict(
        loss=[losses.SparseCategoricalCrossentropy(reduction="sum"), losses.BinaryCrossentropy(reduction="sum")],
        loss_weights=[0.25, 0.5],
    ),
    l2=0.02,
    batch=4,
    validation_batch=7,
)
two(
    "two_loss_options",
    dict(
        loss=[
            losses.SparseCategoricalCrossentropy(from_logits=True),
            losses.BinaryFocalCrossentropy(alpha=0.75, gamma=0.0, apply_class_balancing=True, label_smoothing=0.25),
        ],
        metrics=[["accuracy"], ["accuracy"]],
    ),
    digits=None,
)
two("two_one_loss", dict(loss=["sparse_categorical_crossentropy", None], metrics=[["accuracy"], []]))
M = keras.metrics
two("two_metrics", dict(loss=["sparse_categorical_crossentropy", "binary_crossentropy"],
                        metrics={"digit": ["accuracy", M.MeanIoU(4, sparse_y_pred=False, name="iou")],
                                 "side": [M.BinaryAccuracy(threshold=0.625)]},
                        weighted_metrics=[["accuracy"], ["accuracy", M.AUC(name="auc")]]), weighted=True)


# A model called twice, in a model called once.
def siamese():
    i = keras.Input((6,))
    hidden, code = layers.Dense(5, activation="tanh", name="hidden"), layers.Dense(3, name="code")
    base = keras.Model(i, code(hidden(i)), name="base")
    j = keras.Input((6,))
    mid = keras.Model(j, layers.Activation("tanh")(base(j)), name="mid")
    p, q = keras.Input((6,)), keras.Input((6,))
    out = layers.Dense(1, name="out")
    top = keras.Model([p, q], out(ops.square(mid(p) - mid(q))))
    names = sum([dense_names(layer, "mid/base/") for layer in (hidden, code)], []) + dense_names(out)
    data = [([x(0, 6, v), x(1, 6, v)], reals(0, 1, v)) for v in (False, True)]
    fit("siamese", top, names, data[0], data[1], dict(loss="mse"))


siamese()


class Inference(layers.Layer):
    """base(x, training=False) in a functional model would not do: Keras's fit overrides it."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def call(self, x):
        return self.base(x, training=False)


# A base with batch normalization, run as in inference: trained, and frozen.
def transfer(name, inference, trainable):
    i = keras.Input((6,))
    d, bn = layers.Dense(5, name="d"), layers.BatchNormalization(name="bn")
    base = keras.Model(i, layers.Dropout(0.5)(bn(d(i))) if inference else bn(d(i)), name="base")
    base.trainable = trainable
    p = keras.Input((6,))
    head = layers.Dense(3, activation="softmax", name="head")
    top = keras.Model(p, head(layers.ReLU()((Inference(base) if inference else base)(p))))
    names = dense_names(d, "base/") + [
        ("base/bn/" + v.name, v) for v in (bn.gamma, bn.beta, bn.moving_mean, bn.moving_variance)
    ]
    names += dense_names(head)
    data = [(x(0, 6, v), classes(0, 3, v)) for v in (False, True)]
    fit(name, top, names, data[0], data[1], dict(loss="sparse_categorical_crossentropy", metrics=["accuracy"]))


transfer("transfer", True, True)
transfer("frozen", False, False)


# Custom losses and metrics, weights of samples and classes.
def one(name, units, activation, size, labels, compile, weighted=False, **options):
    i = keras.Input((size,))
    hidden, out = layers.Dense(5, activation="relu", name="hidden"), layers.Dense(
        units, activation=activation, name="out"
    )
    model = keras.Model(i, out(hidden(i)))
    data = [(x(0, size, v), labels(v)) for v in (False, True)]
    if weighted:
        data = [d + (sample_weights(v),) for d, v in zip(data, (False, True))]
    fit(name, model, dense_names(hidden) + dense_names(out), data[0], data[1], compile, **options)


def binary(v):
    return classes(1, 2, v).reshape(-1, 1).astype(np.float64)


def one_hot(v):
    return np.eye(3)[classes(0, 3, v)]


def real(v):
    return 4 * reals(0, 2, v)


one("huber", 2, None, 4, real, dict(loss=losses.Huber(0.5), metrics=["mae"]))
one(
    "focal",
    1,
    "sigmoid",
    4,
    binary,
    dict(
        loss=losses.BinaryFocalCrossentropy(gamma=2.0),
        metrics=[keras.metrics.Precision(name="precision"), keras.metrics.Recall(name="recall")],
    ),
)
one("mean_loss", 2, None, 4, real, dict(loss=lambda t, y: ops.mean(ops.square(t - y))))
one(
    "sparse_weighted",
    3,
    "softmax",
    6,
    lambda v: classes(0, 3, v),
    dict(loss="sparse_categorical_crossentropy", metrics=["accuracy"]),
    True,
)
one(
    "one_hot_weighted",
    3,
    None,
    6,
    one_hot,
    dict(loss=losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"]),
    True,
)
one("mse_weighted", 2, None, 6, real, dict(loss="mse"), True)
one("sum_weighted", 2, None, 6, real, dict(loss=losses.MeanSquaredError(reduction="sum")), True)
weights = {0: 0.5, 1: 2.0, 2: 1.25}
one(
    "sparse_classes",
    3,
    "softmax",
    6,
    lambda v: classes(0, 3, v),
    dict(loss="sparse_categorical_crossentropy", metrics=["accuracy"]),
    class_weight=weights,
)
one(
    "one_hot_classes",
    3,
    "softmax",
    6,
    one_hot,
    dict(loss="categorical_crossentropy", metrics=["accuracy"]),
    class_weight=weights,
)
one(
    "binary_classes",
    1,
    "sigmoid",
    6,
    binary,
    dict(loss="binary_crossentropy", metrics=["accuracy"]),
    class_weight={0: 0.5, 1: 2.0},
)
one(
    "classes_metrics",
    3,
    "softmax",
    6,
    lambda v: classes(0, 3, v),
    dict(
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=["accuracy", "sparse_categorical_crossentropy"],
    ),
    class_weight=weights,
)
one(
    "one_hot_metrics",
    3,
    "softmax",
    6,
    one_hot,
    dict(
        loss="categorical_crossentropy",
        weighted_metrics=[
            M.CategoricalAccuracy(),
            M.F1Score(average="macro"),
            M.Precision(class_id=1, thresholds=0.25),
        ],
    ),
    class_weight=weights,
)


# Outputs with positions: reduction "sum" adds their losses up. Keras wants a weight for each position.
def positions(name, side=False, weighted=False):
    i = keras.Input((6,))
    hidden, flat = layers.Dense(5, activation="relu", name="hidden"), layers.Dense(8, name="flat")
    h = hidden(i)
    outputs, names = [layers.Reshape((2, 2, 2), name="map")(flat(h))], dense_names(hidden) + dense_names(flat)
    data = [[x(0, 6, v), [4 * reals(0, 8, v).reshape(-1, 2, 2, 2)]] for v in (False, True)]
    options = dict(loss=[losses.MeanSquaredError(reduction="sum")], loss_weights=[0.0625])
    if side:
        last = layers.Dense(1, activation="sigmoid", name="side")
        outputs.append(last(h))
        names += dense_names(last)
        for d, v in zip(data, (False, True)):
            d[1].append(binary(v))
        options["loss"].append(losses.BinaryCrossentropy(reduction="sum"))
        options["loss_weights"].append(0.5)
    if weighted:
        data = [d + [[np.repeat(sample_weights(v), 4).reshape(-1, 2, 2)]] for d, v in zip(data, (False, True))]
    batches = dict(batch=4, validation_batch=7) if side else {}
    fit(name, keras.Model(i, outputs), names, data[0], data[1], options, **batches)


positions("sum_positions")
positions("sum_positions_weighted", weighted=True)
positions("two_positions", side=True)


# Segmentation: a class for each position.
def pixels(name, loss, one_hot=False, logits=False, weighted=False, metrics=("accuracy",), labels=None):
    i = keras.Input((6,))
    hidden, flat = layers.Dense(5, activation="relu", name="hidden"), layers.Dense(12, name="flat")
    out = layers.Reshape((2, 2, 3), name="map")(flat(hidden(i)))
    data = []
    for v in (False, True):
        numbers = labels(v) if labels else classes(0, 3, v, (2, 2))
        data.append((x(0, 6, v), np.eye(3)[numbers] if one_hot else numbers))
        if weighted:
            data[-1] += (np.repeat(sample_weights(v), 4).reshape(-1, 2, 2),)
    fit(name, keras.Model(i, out if logits else layers.Softmax()(out)), dense_names(hidden) + dense_names(flat),
        data[0], data[1], dict(loss=loss, metrics=list(metrics)))


pixels("pixels", losses.SparseCategoricalCrossentropy(), metrics=("accuracy", "sparse_categorical_accuracy"))
pixels("pixels_logits", losses.SparseCategoricalCrossentropy(from_logits=True), logits=True)
pixels("pixels_one_hot", losses.CategoricalCrossentropy(), one_hot=True, metrics=("accuracy", "categorical_accuracy"))
pixels("pixels_weighted", losses.SparseCategoricalCrossentropy(), weighted=True)
pixels("pixels_sum", losses.CategoricalCrossentropy(reduction="sum"), one_hot=True, weighted=True)


# Labels that do not count: the mean is that of the others in the batch.
def ignored(number):
    def labels(v):
        numbers = classes(0, 4, v, (2, 2))
        return np.where(numbers == 3, number, numbers)

    return labels


pixels("pixels_ignored", losses.SparseCategoricalCrossentropy(ignore_class=255), labels=ignored(255))
pixels("pixels_ignored_weighted", losses.SparseCategoricalCrossentropy(ignore_class=-1), labels=ignored(-1),
       weighted=True)
pixels("pixels_ignored_sum", losses.SparseCategoricalCrossentropy(ignore_class=0, reduction="sum"), labels=ignored(0))
# A ratio of the batch, of each sample, of each class in the batch.
pixels("dice", losses.Dice(), one_hot=True)
pixels("dice_samples", losses.Dice(axis=(1, 2, 3)), one_hot=True)
pixels("dice_classes", losses.Dice(axis=(0, 1, 2)), one_hot=True)
pixels("pixels_kl", losses.KLDivergence(), one_hot=True, weighted=True)
pixels("pixels_cosine", losses.CosineSimilarity(), one_hot=True)


# Rows compared with the others of their batch; no two of a batch of two are a pair of one class and of two. The mean
# is that over samples whose loss is not 0.
def circle(name, weighted=False, class_weight=None, **options):
    i = keras.Input((6,))
    hidden, out = layers.Dense(5, activation="relu", name="hidden"), layers.Dense(3, name="out")
    data = [(x(0, 6, v), classes(0, 3, v)) + ((sample_weights(v),) if weighted else ()) for v in (False, True)]
    fit(name, keras.Model(i, layers.UnitNormalization()(out(hidden(i)))), dense_names(hidden) + dense_names(out),
        data[0], data[1], dict(loss=losses.Circle(gamma=2.0, margin=0.25, **options), metrics=["accuracy"]),
        class_weight=class_weight)


circle("circle")
circle("circle_diagonal", remove_diagonal=False)
circle("circle_weighted", weighted=True)
circle("circle_sum", reduction="sum")
circle("circle_classes", class_weight={0: 0.5, 1: 2.0, 2: 1.25})


# from_logits of a loss after its own activation: Keras warns, and reads the input of that.
one("softmax_logits", 3, "softmax", 6, lambda v: classes(0, 3, v),
    dict(loss=losses.SparseCategoricalCrossentropy(from_logits=True)))
one("sigmoid_logits", 1, "sigmoid", 6, binary, dict(loss=losses.BinaryCrossentropy(from_logits=True)))


# The regularizer of a weight that is not trained is no part of the loss.
def frozen_regularizer():
    i = keras.Input((6,))
    hidden = layers.Dense(5, activation="relu", name="hidden", kernel_regularizer=keras.regularizers.L2(0.5))
    out = layers.Dense(3, activation="softmax", name="out", kernel_regularizer=keras.regularizers.L1(0.01))
    base = keras.Model(i, hidden(i), name="base")
    base.trainable = False
    j = keras.Input((6,))
    model = keras.Model(j, out(base(j)))
    data = [(x(0, 6, v), classes(0, 3, v)) for v in (False, True)]
    names = dense_names(hidden, "base/") + dense_names(out)
    fit("frozen_regularizer", model, names, data[0], data[1], dict(loss="sparse_categorical_crossentropy"))


frozen_regularizer()

text.append("\nstatic const golden_fit golden_fits[] = {\n    %s\n};\n#endif\n" % ",\n    ".join(rows))
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.h"), "w") as f:
    f.write("".join(text))
