"""Keras layers that report inputs near points where a derivative jumps. Also layers that Keras lacks on one device.

Rounding may move a number to the other side of such a point, and then a gradient changes by far more than rounding
does. Models whose data come that near in float64 are drawn anew."""

import os
import sys

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import formula

POINTS = {"relu": [0], "relu6": [0, 6], "leaky_relu": [0], "hard_sigmoid": [-3, 3], "hard_swish": [-3, 3], "selu": [0],
          "hard_shrink": [-0.5, 0.5], "hard_tanh": [-1, 1], "soft_shrink": [-0.5, 0.5], "sparse_sigmoid": [-1, 1]}


class Watch:
    """The least distance seen, relative to the size of the numbers, while `on`."""

    def __init__(self):
        self.on, self.least = False, np.inf

    def note(self, gaps, like):
        gaps = np.abs(gaps)[np.isfinite(gaps) & (gaps != 0)]  # equal in float64: equal by construction, in float32 too
        if gaps.size:
            self.least = min(self.least, float(gaps.min() / (np.sqrt(np.mean(np.square(like))) + 1e-30)))

    def points(self, x, points):
        if self.on and hasattr(x, "numpy"):
            x = np.asarray(x)
            for p in points:
                self.note(x - p, np.append(x.ravel(), p))


def activation(kind, watch):
    if kind == "gelu_approximate":
        return lambda x: keras.activations.gelu(x, approximate=True)
    if kind == "sparsemax":
        return sparsemax(watch)
    function = keras.activations.get(kind)
    if kind not in POINTS:
        return function

    def watched(x):
        watch.points(x, POINTS[kind])
        return function(x)

    return watched


def threshold(at, value, watch):
    def watched(x):
        watch.points(x, [at])
        return keras.activations.threshold(x, at, value)

    return watched


def sparsemax(watch):
    def watched(x):
        y = formula.sparsemax(x)
        if watch.on and hasattr(x, "numpy"):
            above = np.max(np.where(np.asarray(y) > 0, np.asarray(x - y), -np.inf), axis=-1, keepdims=True)
            watch.note(np.asarray(x) - above, np.asarray(x))
        return y

    return watched


def watched(base, watch, note):
    """An object of a subclass of `base` whose call tells `note` its input first."""

    class Watched(base):
        def call(self, x, *args, **kwargs):
            if watch.on:
                note(x)
            return super().call(x, *args, **kwargs)

    Watched.__name__ = base.__name__
    return Watched


def window_gaps(x, size, strides, padding):
    """The largest number of every window less the second."""
    pads = [(0, 0)]
    for n, k, s in zip(x.shape[1:3], size, strides):
        total = max((-(-n // s) - 1) * s + k - n, 0) if padding == "same" else 0
        pads.append((total // 2, total - total // 2))
    x = np.pad(x, pads + [(0, 0)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=(1, 2))[:, :: strides[0], :: strides[1]]
    flat = np.sort(windows.reshape(windows.shape[:4] + (-1,)), axis=-1)
    return flat[..., -1] - flat[..., -2] if flat.shape[-1] > 1 else np.array([])


def max_pool(watch, size, strides, padding, name):
    note = lambda x: (
        watch.note(window_gaps(np.asarray(x), size, strides, padding), np.asarray(x)) if hasattr(x, "numpy") else None
    )
    return watched(keras.layers.MaxPooling2D, watch, note)(size, strides, padding, name=name)


def global_max_pool(watch, keepdims, name):
    note = lambda x: (
        watch.note(window_gaps(np.asarray(x), x.shape[1:3], (1, 1), "valid"), np.asarray(x))
        if hasattr(x, "numpy")
        else None
    )
    return watched(keras.layers.GlobalMaxPooling2D, watch, note)(keepdims=keepdims, name=name)


def extremum(watch, base, name):
    def note(xs):
        if all(hasattr(x, "numpy") for x in xs):
            flat = [np.asarray(x) for x in xs]
            for i in range(len(flat)):
                for j in range(i):
                    watch.note(flat[i] - flat[j], flat[i])

    return watched(base, watch, note)(name=name)


class FloatResizing(keras.layers.Resizing):
    """TensorFlow has gradients of most filters for float32 alone."""

    def call(self, data):
        return keras.ops.cast(super().call(keras.ops.cast(data, "float32")), self.compute_dtype)


class GroupedConv2D(keras.layers.Conv2D):
    """Keras computes groups on CPUs through XLA, anew in every call, which takes seconds. This is what they are by
    definition; check_groups compares the two."""

    def convolution_op(self, inputs, kernel):
        x, k = keras.ops.split(inputs, self.groups, axis=-1), keras.ops.split(kernel, self.groups, axis=-1)
        return keras.ops.concatenate([super(GroupedConv2D, self).convolution_op(a, b) for a, b in zip(x, k)], axis=-1)


def check_groups():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    x = np.random.RandomState(0).standard_normal((2, 4, 5, 6))
    a, b = keras.layers.Conv2D(9, 3, groups=3), GroupedConv2D(9, 3, groups=3)
    a.build(x.shape), b.build(x.shape)
    b.set_weights(a.get_weights())
    return float(np.max(np.abs(np.asarray(a(x)) - np.asarray(b(x))))) < 1e-12


class ReplicaBatchNormalization(keras.layers.BatchNormalization):
    """With the statistics of each replica's share of the rows; the moving ones move toward the mean of theirs, weighted
    by rows."""

    shares = None  # rows of each replica, set before every step

    def call(self, inputs, training=None, mask=None):
        if not (training and self.trainable) or self.shares is None or not hasattr(inputs, "numpy"):
            return super().call(inputs, training=training, mask=mask)
        parts, means, variances = [], [], []
        shares = [n for n in self.shares if n]
        for x in tf.split(inputs, shares):
            axes = list(range(len(x.shape) - 1))
            mean = tf.reduce_mean(x, axes)
            variance = tf.reduce_mean(tf.square(x - mean), axes)
            y = (x - mean) / tf.sqrt(variance + self.epsilon)
            if self.scale:
                y = y * self.gamma
            if self.center:
                y = y + self.beta
            parts.append(y)
            means.append(mean)
            variances.append(variance)
        for moving, values in ((self.moving_mean, means), (self.moving_variance, variances)):
            now = sum(v * n for v, n in zip(values, shares)) / sum(shares)
            moving.assign(moving * self.momentum + now * (1.0 - self.momentum))
        return tf.concat(parts, 0)
