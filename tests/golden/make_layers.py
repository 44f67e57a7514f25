#!/usr/bin/env python3
"""Writes layers.h: outputs, gradients, weights and names of float64 Keras layers."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf
import torch
from keras import layers as L

from formula import sparsemax, uniform

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

ROWS, IMAGE = 2, (4, 5, 3)
PROJECTIONS = 4

HEAD = """#ifndef GOLDEN_LAYERS_H
#define GOLDEN_LAYERS_H
/* Made by make_layers.py with TensorFlow %s, Keras %s in float64; do not edit.
   Include after mirrortrain.h. */
#include "formula.h"

/* An array as its norm and its products with golden_uniform(1000 + k, i). */
#define GOLDEN_PROJECTIONS %d
typedef struct golden_sum {
    const char *name;
    int count, trainable;
    double norm, product[GOLDEN_PROJECTIONS];
} golden_sum;

/* x [GOLDEN_ROWS, shape] is golden_uniform(seed, i), weight number k golden_uniform(seed + 1 + k, i) / 2, or, a
   variance, its absolute value and 0.5; t [GOLDEN_ROWS, y] is golden_uniform(seed + 50, i). y is in inference,
   the gradients in training: of mean((y(x + shift) - t)^2), by the weights and a shift of one sample's shape.
   weight: gradients of trainable weights, others' values after the step. */
#define GOLDEN_ROWS %d
typedef struct golden_layer {
    const char *label;
    mirt_shape shape, y_shape;
    unsigned seed;
    golden_sum y, shift;
    int num_weights;
    golden_sum weight[4];
} golden_layer;

"""


def others(x):
    """Three tensors to be merged."""
    return [x, x * 0.5 + 0.25, x * x]


def merge(layer, count=3, broadcast=False):
    def call(x):
        parts = others(x)[:count]
        if broadcast:
            parts[1] = tf.reduce_sum(parts[1], axis=(1, 2), keepdims=True)
        return layer(parts)
    call.layer = layer
    return call


def double(layer):
    """tf.image.resize gives float32."""
    def call(x, **kw):
        return tf.cast(layer(x, **kw), tf.float64)
    call.layer = layer
    return call


class Grouped(keras.layers.Layer):
    """A transposed convolution of groups, or dilated, which TensorFlow is not on CPUs; PyTorch checks the output."""

    def __init__(self, filters, kernel, groups=1, strides=(1, 1), dilation=1):
        super().__init__(name="conv2d_transpose")
        self.filters, self.kernel_size, self.groups, self.strides = filters, kernel, groups, strides
        self.dilation = dilation

    def build(self, shape):
        each = self.filters // self.groups
        self.kernel = self.add_weight(name="kernel", shape=self.kernel_size + (each, shape[-1]))
        self.bias = self.add_weight(name="bias", shape=(self.filters,))

    def dilated(self):
        """The kernel with zeros between its taps."""
        h, w, f, c = self.kernel.shape
        d = self.dilation
        k = tf.pad(tf.reshape(self.kernel.value, (h, 1, w, 1, f, c)),
                   ((0, 0), (0, d - 1), (0, 0), (0, d - 1), (0, 0), (0, 0)))
        return tf.reshape(k, (h * d, w * d, f, c))[: (h - 1) * d + 1, : (w - 1) * d + 1]

    def call(self, x):
        parts = zip(tf.split(x, self.groups, -1), tf.split(self.dilated(), self.groups, -1))
        y = [keras.ops.conv_transpose(p, k, self.strides, padding="valid") for p, k in parts]
        return tf.concat(y, -1) + self.bias

    def check(self, x, y):
        weight = np.transpose(self.kernel.numpy(), (3, 2, 0, 1))
        other = torch.nn.functional.conv_transpose2d(
            torch.tensor(np.transpose(x, (0, 3, 1, 2)).copy()), torch.tensor(weight.copy()),
            torch.tensor(self.bias.numpy()), stride=self.strides, groups=self.groups, dilation=self.dilation
        )
        np.testing.assert_allclose(np.transpose(other.numpy(), (0, 2, 3, 1)), y, atol=1e-12)


CASES = {
    "dense": (L.Dense(4, activation="relu"), (5,)),
    "dense of images": (L.Dense(4, use_bias=False, activation="tanh"), IMAGE),
    "conv2d": (L.Conv2D(4, 3), IMAGE),
    "conv2d same": (L.Conv2D(3, (2, 3), strides=2, padding="same", activation="elu"), IMAGE),
    "conv2d dilated": (L.Conv2D(2, 2, dilation_rate=(2, 3), use_bias=False), IMAGE),
    "conv2d groups": (L.Conv2D(6, (3, 2), groups=3, padding="same"), IMAGE),
    "conv2d_transpose": (L.Conv2DTranspose(2, 3), IMAGE),
    "conv2d_transpose strides": (L.Conv2DTranspose(4, (3, 2), strides=2, padding="same", activation="relu"), IMAGE),
    "conv2d_transpose far": (L.Conv2DTranspose(2, 2, strides=3, use_bias=False), IMAGE),
    "depthwise_conv2d": (L.DepthwiseConv2D(3), IMAGE),
    "depthwise_conv2d multiplier": (
        L.DepthwiseConv2D((2, 3), strides=2, padding="same", depth_multiplier=2, activation="silu"),
        IMAGE,
    ),
    "separable_conv2d": (L.SeparableConv2D(5, 3), IMAGE),
    "separable_conv2d multiplier": (
        L.SeparableConv2D(2, 2, padding="same", depth_multiplier=2, use_bias=False, activation="relu6"),
        IMAGE,
    ),
    "max_pooling2d": (L.MaxPooling2D(), IMAGE),
    "max_pooling2d same": (L.MaxPooling2D((3, 2), strides=(2, 1), padding="same"), IMAGE),
    "average_pooling2d": (L.AveragePooling2D((2, 2)), IMAGE),
    "average_pooling2d same": (L.AveragePooling2D(3, strides=2, padding="same"), IMAGE),
    "global_average_pooling2d": (L.GlobalAveragePooling2D(), IMAGE),
    "global_average_pooling2d keepdims": (L.GlobalAveragePooling2D(keepdims=True), IMAGE),
    "global_max_pooling2d": (L.GlobalMaxPooling2D(), IMAGE),
    "global_max_pooling2d keepdims": (L.GlobalMaxPooling2D(keepdims=True), IMAGE),
    "zero_padding2d": (L.ZeroPadding2D(((1, 0), (2, 3))), IMAGE),
    "cropping2d": (L.Cropping2D(((1, 0), (2, 1))), IMAGE),
    "up_sampling2d": (L.UpSampling2D(), IMAGE),
    "up_sampling2d bilinear": (L.UpSampling2D((3, 2), interpolation="bilinear"), IMAGE),
    "flatten": (L.Flatten(), IMAGE),
    "reshape": (L.Reshape((-1, 6)), IMAGE),
    "permute": (L.Permute((3, 1, 2)), IMAGE),
    "rescaling": (L.Rescaling(0.5, -0.25), IMAGE),
    "re_lu": (L.ReLU(), IMAGE),
    "re_lu max": (L.ReLU(max_value=0.5, negative_slope=0.25), IMAGE),
    "re_lu threshold": (L.ReLU(max_value=0.75, negative_slope=0.125, threshold=0.25), IMAGE),
    "leaky_re_lu": (L.LeakyReLU(negative_slope=0.3), IMAGE),
    "elu": (L.ELU(alpha=0.5), IMAGE),
    "p_re_lu": (L.PReLU(), IMAGE),
    "p_re_lu shared": (L.PReLU(shared_axes=[1, 2]), IMAGE),
    "softmax": (L.Softmax(), IMAGE),
}
for name in (
    "linear",
    "relu",
    "sigmoid",
    "tanh",
    "softmax",
    "relu6",
    "leaky_relu",
    "elu",
    "gelu",
    "silu",
    "hard_sigmoid",
    "hard_silu",
    "softplus",
):
    function = (lambda x: keras.activations.gelu(x, approximate=False)) if name == "gelu" else name
    CASES["activation " + name] = (L.Activation(function), (7,))
CASES.update({
    "batch_normalization": (L.BatchNormalization(), IMAGE),
    "batch_normalization of features": (L.BatchNormalization(momentum=0.75, epsilon=0.01, scale=False), (5,)),
    "batch_normalization plain": (L.BatchNormalization(center=False, scale=False), IMAGE),
    "layer_normalization": (L.LayerNormalization(), IMAGE),
    "layer_normalization axes": (L.LayerNormalization(axis=[-2, -1], epsilon=0.01, center=False), IMAGE),
    "add": (merge(L.Add()), IMAGE),
    "add broadcast": (merge(L.Add(), 2, True), IMAGE),
    "subtract": (merge(L.Subtract(), 2), IMAGE),
    "multiply": (merge(L.Multiply()), IMAGE),
    "average": (merge(L.Average()), IMAGE),
    "maximum": (merge(L.Maximum()), IMAGE),
    "minimum": (merge(L.Minimum()), IMAGE),
    "concatenate": (merge(L.Concatenate()), IMAGE),
    "concatenate axis": (merge(L.Concatenate(axis=1), 2), IMAGE),
    "normalization": (L.Normalization(mean=[0.485, 0.456, -0.25], variance=[0.05, 0.3, 2.0]), IMAGE),
    "center_crop": (L.CenterCrop(3, 2), IMAGE),
    "center_crop larger": (double(L.CenterCrop(6, 4)), IMAGE),
    "resizing": (double(L.Resizing(3, 7)), IMAGE),
    "resizing crop": (double(L.Resizing(4, 3, interpolation="nearest", crop_to_aspect_ratio=True)), IMAGE),
    "group_normalization": (L.GroupNormalization(groups=2), (4, 5, 6)),
    "group_normalization of features": (L.GroupNormalization(groups=3, epsilon=0.01, scale=False), (12,)),
    "group_normalization of instances": (L.GroupNormalization(groups=-1, center=False), IMAGE),
    "unit_normalization": (L.UnitNormalization(), IMAGE),
    "unit_normalization axis": (L.UnitNormalization(axis=1), IMAGE),
    "softmax axis": (L.Softmax(axis=1), IMAGE),
    "softmax axis from the end": (L.Softmax(axis=-2), IMAGE),
    "adaptive_average_pooling2d": (L.AdaptiveAveragePooling2D((2, 3)), IMAGE),
    "adaptive_average_pooling2d tiled": (L.AdaptiveAveragePooling2D((2, 5)), IMAGE),
    "adaptive_average_pooling2d larger": (L.AdaptiveAveragePooling2D((6, 2)), (4, 9, 2)),
    "adaptive_max_pooling2d": (L.AdaptiveMaxPooling2D((3, 2)), IMAGE),
    "adaptive_max_pooling2d tiled": (L.AdaptiveMaxPooling2D((2, 5)), IMAGE),
    "adaptive_max_pooling2d many": (L.AdaptiveMaxPooling2D((3, 9)), (4, 11, 2)),
    "batch_normalization axis": (L.BatchNormalization(axis=1), IMAGE),
    "batch_normalization axis from the end": (L.BatchNormalization(axis=-2, momentum=0.0), IMAGE),
    "layer_normalization height and width": (L.LayerNormalization(axis=[1, 2]), IMAGE),
    "layer_normalization height and channels": (L.LayerNormalization(axis=[-1, 1], epsilon=0.01), IMAGE),
    "conv2d_transpose padded": (L.Conv2DTranspose(3, 3, strides=2, padding="same", output_padding=1), IMAGE),
    "conv2d_transpose unpadded": (L.Conv2DTranspose(2, (2, 3), strides=3, output_padding=0), IMAGE),
    "conv2d_transpose padded differently": (L.Conv2DTranspose(2, (3, 2), strides=(2, 3), output_padding=(1, 2)), IMAGE),
    "conv2d_transpose dilated": (Grouped(2, (2, 3), dilation=2), IMAGE),
    "conv2d_transpose groups": (Grouped(6, (3, 4), groups=2, strides=(2, 3)), (2, 3, 4)),
    "activity_regularization": (L.ActivityRegularization(), IMAGE),
})
for name in ("selu", "mish", "softsign", "exponential", "log_softmax"):
    CASES["activation " + name] = (L.Activation(name), (7,))
CASES["activation gelu_approximate"] = (L.Activation(lambda x: keras.activations.gelu(x, approximate=True)), (7,))
COMPOSED = "celu glu hard_shrink hard_tanh log_sigmoid soft_shrink sparse_plus sparse_sigmoid squareplus tanh_shrink"
for name in COMPOSED.split():
    CASES["activation " + name] = (L.Activation(name), (8,))
CASES["rms_normalization"] = (L.RMSNormalization(), IMAGE)
CASES["rms_normalization axes"] = (L.RMSNormalization(axis=[-2, -1], epsilon=0.01), IMAGE)
CASES["auto contrast"] = (double(L.AutoContrast(value_range=(-0.5, 1.5))), IMAGE)

CASES["activation sparsemax"] = (L.Activation(sparsemax), (8,))
CASES["dot"] = (merge(L.Dot(axes=1), 2), (5,))
CASES["dot pixels"] = (merge(L.Dot(axes=2, normalize=True), 2), IMAGE)
CASES["dot axes"] = (merge(L.Dot(axes=(1, -1)), 2), (3, 3))


def summary(name, array, trainable=True):
    flat = np.asarray(array, np.float64).ravel()
    products = ", ".join(
        "%.12g" % np.dot(flat, uniform(1000 + k, flat.shape).astype(np.float64)) for k in range(PROJECTIONS)
    )
    return '{"%s", %d, %d, %.12g, {%s}}' % (name, flat.size, trainable, np.sqrt(np.sum(flat * flat)), products)


def shape_text(shape):
    return "{%d, {%s}}" % (len(shape), ", ".join(map(str, shape)))


def case(number, label, call, shape):
    keras.utils.clear_session()
    seed = 10000 + 100 * number
    layer = getattr(call, "layer", call)
    x = tf.constant(uniform(seed, (ROWS,) + shape).astype(np.float64))
    shift = tf.Variable(np.zeros(shape))
    y = call(x)
    for k, weight in enumerate(layer.weights):
        value = uniform(seed + 1 + k, weight.shape).astype(np.float64) / 2
        weight.assign(np.abs(value) + 0.5 if "variance" in weight.path else value)
    stateful = isinstance(layer, L.BatchNormalization)
    y = call(x, training=False) if stateful else call(x)
    if hasattr(layer, "check"):
        layer.check(x.numpy(), y.numpy())
    t = tf.constant(uniform(seed + 50, y.shape).astype(np.float64))
    with tf.GradientTape() as tape:
        out = call(x + shift, training=True) if stateful else call(x + shift)
        loss = tf.reduce_mean(tf.square(out - t))
    gradients = tape.gradient(loss, [shift] + [w.value for w in layer.trainable_weights])
    gradients = [
        g if g is not None else tf.zeros_like(v)
        for g, v in zip(gradients, [shift] + [w.value for w in layer.trainable_weights])
    ]
    rows = []
    for weight in layer.weights:
        value = (
            gradients[1 + [id(w) for w in layer.trainable_weights].index(id(weight))]
            if weight.trainable
            else weight.value
        )
        rows.append(summary(weight.path.split("/")[-1], value, weight.trainable))
    return '    {"%s", %s, %s, %d,\n     %s,\n     %s,\n     %d, {%s}},\n' % (
        label, shape_text(shape), shape_text(tuple(y.shape[1:])), seed, summary("y", y), summary("shift", gradients[0]),
        len(rows), ",\n      ".join(rows) if rows else '{NULL, 0, 0, 0, {0}}')


text = [
    HEAD % (tf.__version__, keras.__version__, PROJECTIONS, ROWS),
    "static const golden_layer golden_layers[] = {\n",
]
for number, (label, (call, shape)) in enumerate(CASES.items()):
    text.append(case(number, label, call, shape))
text.append("};\n\n/* What AlphaDropout(0.5) makes of ones in training. */\n")
values = np.unique(L.AlphaDropout(0.5)(tf.ones((64, 64), tf.float64), training=True))
values = ", ".join("%.12g" % v for v in values)
text.append("static const double golden_alpha_dropout[2] = {%s};\n" % values)
text.append("\n#endif\n")
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.h"), "w") as f:
    f.write("".join(text))
