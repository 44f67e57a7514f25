#!/usr/bin/env python3
"""Writes ops.h: what float64 Keras and TensorFlow say about single operations at odd shapes."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf
import torch
from keras.src.trainers.compile_utils import is_binary_or_sparse_categorical

from formula import c_array, grid, uniform

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

HEAD = """#ifndef GOLDEN_OPS_H
#define GOLDEN_OPS_H
/* Made by make_ops.py with TensorFlow %s, Keras %s in float64; do not edit.
   Include after mirrortrain.h. */
#include "formula.h"

/* x [rows, h, w, ci], kernel [kh, kw, ci / groups, co] and the gradient dy [rows, oh, ow, co] are
   golden_grid(seed, i), of seeds seed, seed + 1 and seed + 2; no bias. */
typedef struct golden_conv {
    int rows, h, w, ci, kh, kw, co, stride_h, stride_w, dilation_h, dilation_w, groups;
    mirt_padding padding;
    int oh, ow;
    unsigned seed;
    const double *y, *dx, *dkernel;
} golden_conv;

/* x [rows, h, w, c] and dy [rows, oh, ow, c] are golden_grid(seed, i), of seeds seed and seed + 1. */
typedef struct golden_pool {
    int average, rows, h, w, c, kh, kw, stride_h, stride_w;
    mirt_padding padding;
    int oh, ow;
    unsigned seed;
    const double *y, *dx;
} golden_pool;

/* Predictions x [rows, n]; labels [rows] for the sparse loss, [rows, n] otherwise. loss [rows] is
   before any reduction; dx [rows, n] is the gradient of sum(dloss * loss). */
typedef struct golden_loss {
    mirt_loss kind;
    int from_logits, rows, n;
    const float *x, *labels, *dloss;
    const double *loss, *dx;
    mirt_loss_options how;
} golden_loss;

/* y = softmax(x) over [rows, n]; dx is the gradient of sum(dy * y). */
typedef struct golden_softmax {
    int rows, n;
    const float *x, *dy;
    const double *y, *dx;
} golden_softmax;

/* GOLDEN_STEPS updates of GOLDEN_COUNT weights that start as golden_optimizer_start, with the
   gradients golden_optimizer_gradient [step][weight]; weight [step][weight] is after each step,
   slots after the last (SGD: momentum, NULL when plain; Adam: m and v). */
#define GOLDEN_STEPS 5
#define GOLDEN_COUNT 7
typedef struct golden_optimizer {
    mirt_optimizer_kind kind;
    float learning_rate, momentum;
    int nesterov;
    const double *weight, *slot_0, *slot_1;
} golden_optimizer;

/* Which accuracy "accuracy" means for labels of rank label_rank ending in label_last, and
   predictions [rows, n]: kind is 'b'inary, 's'parse or 'c'ategorical; value [rows] per sample. */
typedef struct golden_accuracy {
    int label_rank, label_last, rows, n;
    char kind;
    const float *x, *labels;
    const double *value;
} golden_accuracy;

"""

text, count = [HEAD % (tf.__version__, keras.__version__)], [0]


def array(values, kind="double"):
    """Writes an array and returns its name."""
    count[0] += 1
    name = "golden_%d" % count[0]
    text.append(c_array(kind, name, values))
    return name


def table(kind, rows):
    """The rows of one struct type, as golden_<kind>_cases[]."""
    body = ",\n".join("    {%s}" % ", ".join(map(str, row)) for row in rows)
    text.append("\nstatic const golden_%s golden_%s_cases[] = {\n%s\n};\n\n" % (kind, kind, body))


def f64(values):
    return tf.constant(values, tf.float64)


def differentiate(function, *inputs, dy):
    """function's value and the gradients of sum(dy * value); compiled, as TensorFlow's CPU kernels
    lack gradients of grouped and dilated convolutions."""
    @tf.function(jit_compile=True)
    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = function(*inputs)
        return y, tape.gradient(y, inputs, dy(y))
    y, gradients = run(*map(f64, inputs))
    return y.numpy(), [g.numpy() for g in gradients]


def convolutions():
    rows = []
    # rows h w ci | kh kw co | strides | dilation | groups | padding
    for seed, (n, h, w, ci, kh, kw, co, sh, sw, dh, dw, groups, padding) in enumerate([
            (2, 5, 7, 1, 3, 3, 3, 1, 1, 1, 1, 1, "valid"),
            (1, 6, 5, 3, 3, 2, 2, 1, 1, 1, 1, 1, "same"),
            (2, 4, 4, 1, 3, 3, 2, 2, 2, 1, 1, 1, "same"),
            (1, 7, 5, 2, 3, 3, 3, 2, 1, 1, 1, 1, "same"),
            (1, 8, 7, 2, 5, 3, 2, 3, 2, 1, 1, 1, "valid"),
            (1, 7, 8, 2, 3, 2, 3, 1, 1, 2, 3, 1, "valid"),
            (1, 6, 7, 1, 3, 3, 2, 1, 1, 2, 2, 1, "same"),
            (1, 5, 4, 4, 3, 3, 6, 1, 1, 1, 1, 2, "same"),
            (2, 5, 5, 3, 3, 3, 3, 2, 2, 1, 1, 3, "same"),
            (3, 3, 2, 5, 1, 1, 4, 1, 1, 1, 1, 1, "valid"),
            (1, 5, 5, 2, 1, 1, 3, 2, 2, 1, 1, 1, "same"),
            (1, 2, 3, 2, 5, 4, 2, 1, 1, 1, 1, 1, "same")]):
        seed = 100 + 3 * seed
        layer = keras.layers.Conv2D(co, (kh, kw), strides=(sh, sw), dilation_rate=(dh, dw), groups=groups,
                                    padding=padding, use_bias=False)
        layer.build((None, h, w, ci))
        kernel = grid(seed + 1, (kh, kw, ci // groups, co))

        def conv(x, k):
            return layer.convolution_op(x, k)

        y, (dx, dk) = differentiate(conv, grid(seed, (n, h, w, ci)), kernel,
                                    dy=lambda y: f64(grid(seed + 2, y.shape)))
        rows.append((n, h, w, ci, kh, kw, co, sh, sw, dh, dw, groups, "MIRT_" + padding.upper(), *y.shape[1:3], seed,
                     array(y), array(dx), array(dk)))
    table("conv", rows)


def pools():
    rows, negative = [], False
    # rows h w c | kh kw | strides | padding
    for seed, (n, h, w, c, kh, kw, sh, sw, padding) in enumerate([
            (2, 6, 4, 3, 2, 2, 2, 2, "valid"),
            (1, 5, 7, 2, 2, 2, 2, 2, "valid"),
            (1, 5, 7, 2, 2, 2, 2, 2, "same"),
            (1, 7, 6, 2, 3, 3, 2, 2, "same"),
            (1, 5, 6, 1, 3, 2, 1, 1, "same"),
            (1, 4, 5, 1, 3, 3, 1, 1, "valid"),
            (1, 8, 7, 1, 2, 2, 3, 3, "valid")]):
        seed = 200 + 2 * seed
        for average in (0, 1):
            kind = keras.layers.AveragePooling2D if average else keras.layers.MaxPooling2D
            layer = kind((kh, kw), (sh, sw), padding)
            x = f64(grid(seed, (n, h, w, c)))
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x)
            dx = tape.gradient(y, x, f64(grid(seed + 1, y.shape)))
            negative |= padding == "same" and not average and bool((y[:, -1].numpy() < 0).any())
            rows.append((average, n, h, w, c, kh, kw, sh, sw, "MIRT_" + padding.upper(), y.shape[1], y.shape[2], seed,
                         array(y), array(dx)))
    assert negative  # a padded window whose maximum is below the padding's zero
    table("pool", rows)


def losses():
    rows = []

    def how(options):
        """mirt_loss_options."""
        o = dict(options)
        ignored, gamma, axes = o.pop("ignore_class", None), o.pop("gamma", None), o.pop("axis", ())
        margin = o.pop("margin", None)
        fields = (int(o.pop("from_logits", 0)), o.pop("label_smoothing", 0), int(ignored is not None), ignored or 0,
                  o.pop("delta", 0), o.pop("alpha", 0), gamma or 0, int(gamma is not None),
                  int(o.pop("apply_class_balancing", 0)), sum(1 << axis for axis in axes), o.pop("beta", 0),
                  o.pop("q", 0), margin or 0, int(margin is not None), int(not o.pop("remove_diagonal", True)))
        assert not o
        return "{%s}" % ", ".join("%rf" % f if isinstance(f, float) else str(f) for f in fields)

    def smoothed_classes(labels, x, from_logits=False, label_smoothing=0.0):
        """Keras smooths no class numbers; PyTorch does. Keras's crossentropy of probabilities is that of their
        clipped logarithms."""
        logits = torch.tensor(x.numpy(), requires_grad=True)
        scores = logits if from_logits else torch.log(torch.clip(logits, 1e-7, 1 - 1e-7))
        loss = torch.nn.functional.cross_entropy(
            scores, torch.tensor(labels.astype(np.int64)), reduction="none", label_smoothing=label_smoothing)
        return loss, logits

    def add(kind, from_logits, x, labels, **options):
        x, labels = np.asarray(x, np.float32), np.asarray(labels, np.float32)
        dloss = uniform(300 + len(rows), (len(x),))
        function = getattr(keras.losses, kind)
        if from_logits is not None:
            options["from_logits"] = bool(from_logits)
        prediction = f64(x)
        if kind.startswith("sparse") and "label_smoothing" in options:
            loss, logits = smoothed_classes(labels, prediction, **options)
            loss.backward(torch.tensor(dloss.astype(np.float64)))
            loss, dx = loss.detach().numpy(), logits.grad.numpy()
        else:
            with tf.GradientTape() as tape:
                tape.watch(prediction)
                loss = function(f64(labels), prediction, **options)
            dx = tape.gradient(loss, prediction, f64(dloss))
        assert np.isfinite(loss).all() and np.isfinite(dx).all(), kind
        rows.append(("MIRT_" + kind.upper(), int(from_logits or 0), *x.shape, array(x, "float"),
                     array(labels, "float"), array(dloss, "float"), array(loss), array(dx), how(options)))

    logits = uniform(310, (5, 7)) * np.float32(8)
    logits[1] *= np.float32(8)      # saturates
    logits[2] += np.float32(1000)   # overflows unless the largest is taken out
    share = uniform(311, (5, 7)) / np.float32(2) + np.float32(0.5)
    share[1, :2] = 0, 1             # beyond the clip
    share[3] *= np.float32(0.25)    # sums to less than one
    classes = np.array([0, 0, 6, 3, 5])
    one_hot = np.eye(7)[classes]
    soft = np.array(one_hot)
    soft[0], soft[2] = [.25, .5, 0, 0, .25, 0, 0], [.125] * 6 + [.25]
    for from_logits, x in ((1, logits), (0, share)):
        add("sparse_categorical_crossentropy", from_logits, x, classes)
        add("categorical_crossentropy", from_logits, x, soft)
    binary_logits = np.array([[0, 3, -2.5], [40, -40, 0.25], [1e-3, -100, 100], [-6, 9, -0.75]])
    binary = np.array([[0.5, 0.9, 0.1], [0, 1, 0.25], [1e-3, 0, 1], [0.75, 0.6, 0.3]])
    labels = np.array([[0, 1, 0], [1, 1, 0], [1, 0, 1], [0, 0.25, 1]])
    add("binary_crossentropy", 1, binary_logits, labels)
    add("binary_crossentropy", 0, binary, labels)
    add("binary_crossentropy", 1, binary_logits[:, 1:2], labels[:, 1:2])
    add("mean_squared_error", None, grid(312, (4, 5)), grid(313, (4, 5)))
    add("mean_squared_error", None, uniform(314, (3, 1)), uniform(315, (3, 1)))
    for from_logits, x in ((1, logits), (0, share)):
        add("sparse_categorical_crossentropy", from_logits, x, classes, label_smoothing=0.125)
        add("sparse_categorical_crossentropy", from_logits, x, [0, 255, 6, 255, 5], ignore_class=255)
        add("sparse_categorical_crossentropy", from_logits, x, [0, -1, 6, 0, 5], ignore_class=-1)
        add("sparse_categorical_crossentropy", from_logits, x, classes, ignore_class=0)
        add("categorical_crossentropy", from_logits, x, soft, label_smoothing=0.25)
        add("categorical_focal_crossentropy", from_logits, x, soft)
        add("categorical_focal_crossentropy", from_logits, x, soft, alpha=0.5, gamma=1.5, label_smoothing=0.125)
        add("categorical_focal_crossentropy", from_logits, x, one_hot, gamma=0.0)
    for from_logits, x in ((1, binary_logits), (0, binary)):
        add("binary_crossentropy", from_logits, x, labels, label_smoothing=0.25)
        add("binary_focal_crossentropy", from_logits, x, labels)
        add("binary_focal_crossentropy", from_logits, x, labels, apply_class_balancing=True, alpha=0.75, gamma=1.5,
            label_smoothing=0.125)
        add("binary_focal_crossentropy", from_logits, x[[0, 3]], labels[[0, 3]], gamma=0.0)  # 0^-1 is a NaN of Keras's
    x, t = uniform(320, (4, 7)) * np.float32(3), uniform(321, (4, 7))
    x[0, 0] = t[0, 0]
    add("mean_absolute_error", None, x, t)
    add("huber", None, x, t)
    add("huber", None, x, t, delta=0.25)
    add("log_cosh", None, x * np.float32(16), t)
    for signs in (np.where(t > 0, 1, 0), np.where(t > 0, 1, -1)):
        add("hinge", None, x, signs)
        add("squared_hinge", None, x, signs)
    add("kl_divergence", None, share, soft)
    add("cosine_similarity", None, x, t)
    add("dice", None, binary, np.round(labels), axis=(1,))
    add("tversky", None, binary, labels, axis=(1,))
    add("tversky", None, binary, labels, axis=(1,), alpha=0.25, beta=1.5)
    for q in (0.5, 0.75):
        add("categorical_generalized_cross_entropy", None, share, [0, 1, 6, 3, 5], q=q)
    add("categorical_hinge", None, x, one_hot[:4])
    add("poisson", None, share, soft)
    for outputs, targets in ((share, soft), (x, t)):  # also negative ones
        add("mean_squared_logarithmic_error", None, outputs, targets)
    t[0, 0] = 0  # what divides is 1e-7
    add("mean_absolute_percentage_error", None, x[:1], t[:1])
    add("mean_absolute_percentage_error", None, x[1:], t[1:])
    add("log_cosh", None, x[:, :5] * np.float32(2 ** -16), 0 * t[:, :5])  # 1 - 2 sigmoid(-2 |x|) has no digits left
    rest = uniform(322, (17, 8))
    unit = rest / np.sqrt((rest * rest).sum(1, keepdims=True))
    for x, groups in ((unit[:1], [3]), (unit[:5, :3], [2] * 5), (unit[:5, :3], [0, 1, -5, 3, 1000000]),
                      (unit[:5, :3], [0, 1, 0, 1, 7]), (unit, [k * k % 5 - 2 for k in range(17)])):
        add("circle", None, x, groups)
        add("circle", None, x, groups, gamma=2.0, margin=0.25, remove_diagonal=False)
    add("circle", None, unit[:5, :3], [0, 1, 0, 1, 1], gamma=16.0, margin=0.0)
    add("circle", None, rest[:7] * 2, [0, 1, 0, 1, 1, 2, 0], gamma=0.5, margin=-0.125)  # cosines beyond -1 and 1
    # The edges of both maxima: cosines 1 and -margin, of one class and of two.
    edges = [[1, 0], [1, 0], [1, 0], [-0.25, 0], [0, 1], [0, -0.25]]
    add("circle", None, edges, [0, 0, 1, 1, 1, 0], gamma=4.0, margin=0.25)
    table("loss", rows)

    rows = []
    for x in (logits, uniform(316, (3, 1)), uniform(317, (2, 19)) * np.float32(128)):
        dy = uniform(318, x.shape)
        y, (dx,) = differentiate(tf.nn.softmax, x, dy=lambda y: f64(dy))
        rows.append((*x.shape, array(x, "float"), array(dy, "float"), array(y), array(dx)))
    table("softmax", rows)


def optimizers():
    steps, size = 5, 7
    start, gradients = uniform(400, (size,)), uniform(401, (steps, size))
    gradients[:, 2] = 0                      # never moves
    gradients[:, 4] *= np.float32(2 ** -20)  # epsilon shows
    gradients[3:, 5] = 0                     # momentum alone
    text.append(c_array("float", "golden_optimizer_start", start))
    text.append(c_array("float", "golden_optimizer_gradient", gradients))
    rows = []
    for kind, rate, momentum, nesterov in (
            ("SGD", 0.125, 0, 0), ("SGD", 0.125, 0.875, 0), ("SGD", 0.125, 0.875, 1), ("ADAM", 0.0625, 0, 0)):
        if kind == "SGD":
            optimizer = keras.optimizers.SGD(rate, momentum=float(momentum), nesterov=bool(nesterov))
        else:
            optimizer = keras.optimizers.Adam(rate)
        variable = keras.Variable(start.astype("float64"), dtype="float64")
        optimizer.build([variable])
        weights = []
        for gradient in gradients:
            optimizer.apply([f64(gradient)])
            weights.append(variable.numpy())
        slots = [optimizer._momentums[0], optimizer._velocities[0]] if kind == "ADAM" else \
            [optimizer.momentums[0]] if momentum else []
        names = [array(s.value.numpy()) for s in slots] + ["NULL", "NULL"]
        rows.append(("MIRT_" + kind, "%sf" % rate, "%sf" % float(momentum), nesterov, array(weights), *names[:2]))
    table("optimizer", rows)


def accuracies():
    ties = [[1, 3, 3, 0], [0, 0, 0, 0], [-1, -2, -3, -0.5], [5, 1, 2, 5]]
    half = [[0.5], [0.50000006], [0.25], [1]]
    rows = []
    for x, labels in (
            (ties, [1, 0, 3, 3]), (ties, [[2], [1], [3], [0]]),
            (ties, [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0]]),
            (ties, [[0, 1, 1, 0], [0, 0, 0, 0], [.1, .2, .3, .4], [.5, 0, 0, .5]]),
            (half, [[0], [1], [1], [1]]), (half, [1, 1, 0, 0])):
        x, labels = np.array(x, np.float32), np.array(labels, np.float32)
        binary, sparse = is_binary_or_sparse_categorical(labels, x)
        name = "binary" if binary else "sparse_categorical" if sparse else "categorical"
        # Labels of shape [rows] meet predictions [rows, 1] as [rows, 1] in Keras' trainer.
        shaped = labels.reshape(x.shape) if binary else labels
        value = getattr(keras.metrics, name + "_accuracy")(f64(shaped), f64(x))
        last = labels.shape[1] if labels.ndim > 1 else 0
        rows.append((labels.ndim, last, *x.shape, "'%s'" % name[0], array(x, "float"), array(labels, "float"),
                     array(value)))
    table("accuracy", rows)


for part in (convolutions, pools, losses, optimizers, accuracies):
    part()
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.h"), "w") as out:
    out.write("".join(text).rstrip() + "\n\n#endif\n")
