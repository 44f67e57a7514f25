#!/usr/bin/env python3
"""Writes norm.h: what float64 Keras says about normalization, transposed and depthwise convolution, and upsampling."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf

from formula import c_array, grid, uniform

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

HEAD = """#ifndef GOLDEN_NORM_H
#define GOLDEN_NORM_H
/* Made by make_norm.py with TensorFlow %s, Keras %s in float64; do not edit.
   Include after mirrortrain.h. */
#include "formula.h"

/* x [rows, h, w, c] is 2 * golden_uniform(seed), gamma golden_uniform(seed + 1) + 1.5, beta
   golden_uniform(seed + 2), dy golden_uniform(seed + 3), the moving mean golden_uniform(seed + 4), the
   moving variance golden_uniform(seed + 5) + 1.5; epsilon 1e-3, momentum 0.99. In training the
   moving statistics become those given. */
typedef struct golden_batch_norm {
    int training, rows, h, w, c, scale, center;
    unsigned seed;
    const double *y, *dx, *dgamma, *dbeta, *moving_mean, *moving_variance;
} golden_batch_norm;

/* One layer on x [rows, h, w, c]: LayerNormalization over the last `kh` axes (inputs as above),
   Conv2DTranspose, DepthwiseConv2D (co: the multiplier), UpSampling2D (stride: the size). x, kernel
   and dy are golden_grid of seed, seed + 1 and seed + 3. first and second are the gradients of the
   layer's weights. */
typedef enum golden_layer_kind { GOLDEN_LAYER_NORM, GOLDEN_TRANSPOSE, GOLDEN_DEPTHWISE, GOLDEN_NEAREST, GOLDEN_BILINEAR } golden_layer_kind;
typedef struct golden_layer {
    golden_layer_kind kind;
    int rows, h, w, c, kh, kw, co, stride_h, stride_w, dilation;
    mirt_padding padding;
    int oh, ow, oc;
    unsigned seed;
    const double *y, *dx, *first, *second;
} golden_layer;

/* Four steps of SGD(0.125) on one batch of seven images [4, 3, 2] with classes i %% 3, through Conv2D(3, 3,
   same, no bias), BatchNormalization(momentum 0.9), relu, GlobalAveragePooling2D and Dense(3), whose
   logits the cross-entropy takes. Images, then kernel, gamma, beta and the dense kernel are uniform
   of seeds 800 to 804, gamma plus 1.5; the other weights start as Keras's. `replicas`: how many parts
   of the batch (4 and 3 rows) have statistics of their own, whose moving ones are averaged by rows.
   evaluated: the loss of the trained model in inference. */
typedef struct golden_training {
    int replicas;
    double loss[4], evaluated;
    const double *kernel, *gamma, *beta, *moving_mean, *moving_variance;
} golden_training;

"""
text = [HEAD % (tf.__version__, keras.__version__)]
count = 0


def array(values):
    global count
    if values is None:
        return "NULL"
    name = "golden_norm_%d" % count
    count += 1
    text.append(c_array("double", name, values, form="%.12g"))
    return name


def table(kind, rows):
    body = ",\n".join("    {%s}" % ", ".join(map(str, row)) for row in rows)
    text.append("\nstatic const golden_%s golden_%s_cases[] = {\n%s\n};\n\n" % (kind, kind, body))


def f64(values):
    return tf.constant(values, tf.float64)


def run(layer, x, dy, **options):
    """The layer's value, and the gradients of sum(dy * value) by x and by the layer's weights."""
    weights = [v.value for v in layer.trainable_variables]

    # Compiled, as TensorFlow's CPU kernels lack dilated transposed convolutions.
    @tf.function(jit_compile=isinstance(layer, keras.layers.Conv2DTranspose))
    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, **options)
        return y, tape.gradient(y, [x] + weights, f64(dy(y.shape)))

    y, (dx, *rest) = compute(f64(x))
    return y.numpy(), dx.numpy(), [tf.convert_to_tensor(g).numpy() for g in rest] + [None, None]


def batch_norms():
    rows = []
    for number, (training, n, h, w, c, scale, center) in enumerate(
        [
            (1, 3, 2, 3, 5, 1, 1),
            (0, 3, 2, 3, 5, 1, 1),
            (1, 7, 1, 1, 3, 1, 0),
            (1, 5, 2, 1, 2, 0, 1),
            (0, 5, 1, 2, 2, 0, 0),
            (1, 4, 1, 3, 2, 0, 0),
        ]
    ):
        seed = 500 + 6 * number
        layer = keras.layers.BatchNormalization(scale=bool(scale), center=bool(center))
        layer.build((None, h, w, c))
        if scale:
            layer.gamma.assign(uniform(seed + 1, (c,)) + np.float32(1.5))
        if center:
            layer.beta.assign(uniform(seed + 2, (c,)))
        layer.moving_mean.assign(uniform(seed + 4, (c,)))
        layer.moving_variance.assign(uniform(seed + 5, (c,)) + np.float32(1.5))
        y, dx, grads = run(
            layer, uniform(seed, (n, h, w, c)) * np.float32(2), lambda s: uniform(seed + 3, s), training=bool(training)
        )
        gamma, beta = grads[0] if scale else None, grads[scale] if center else None
        moving = (layer.moving_mean.numpy(), layer.moving_variance.numpy()) if training else (None, None)
        rows.append((training, n, h, w, c, scale, center, seed, *map(array, (y, dx, gamma, beta) + moving)))
    table("batch_norm", rows)


def layers():
    rows = []

    def add(kind, layer, shape, fill, attributes, padding="valid"):
        seed = 600 + 6 * len(rows)
        layer.build((None,) + shape[1:])
        for i, v in enumerate(layer.trainable_variables):
            v.assign(fill(seed + 1 + i, v.shape) + np.float32(1.5 if kind == "LAYER_NORM" and i == 0 else 0))
        y, dx, grads = run(
            layer, fill(seed, shape) * np.float32(2 if kind == "LAYER_NORM" else 1), lambda s: fill(seed + 3, s)
        )
        rows.append(
            (
                "GOLDEN_" + kind,
                *shape,
                *attributes,
                "MIRT_" + padding.upper(),
                *y.shape[1:],
                seed,
                array(y),
                array(dx),
                array(grads[0]),
                array(grads[1]),
            )
        )

    for axes, shape in ((1, (2, 2, 1, 7)), (2, (2, 2, 3, 3)), (3, (2, 2, 2, 3))):
        add(
            "LAYER_NORM",
            keras.layers.LayerNormalization(axis=list(range(-axes, 0))),
            shape,
            uniform,
            (axes, 0, 0, 1, 1, 1),
        )
    for n, h, w, c, kh, kw, co, sh, sw, dilation, padding in (
        (1, 3, 2, 2, 3, 3, 1, 1, 1, 1, "valid"),
        (2, 3, 2, 1, 3, 3, 2, 1, 1, 1, "same"),
        (1, 2, 3, 2, 3, 2, 1, 2, 2, 1, "valid"),
        (1, 2, 3, 1, 3, 3, 2, 2, 2, 1, "same"),
        (1, 2, 2, 2, 1, 1, 2, 3, 3, 1, "valid"),
        (1, 2, 2, 1, 1, 2, 2, 3, 2, 1, "same"),
        (1, 2, 3, 1, 5, 4, 2, 2, 3, 1, "same"),
        (1, 2, 2, 2, 5, 5, 1, 3, 2, 1, "valid"),
        (1, 3, 2, 2, 3, 2, 1, 1, 1, 2, "same"),
        (1, 3, 2, 2, 2, 3, 1, 1, 1, 2, "valid"),
    ):
        add(
            "TRANSPOSE",
            keras.layers.Conv2DTranspose(co, (kh, kw), (sh, sw), padding, dilation_rate=dilation, use_bias=False),
            (n, h, w, c),
            grid,
            (kh, kw, co, sh, sw, dilation),
            padding,
        )
    for n, h, w, c, kh, kw, multiplier, stride, padding in (
        (1, 4, 5, 2, 3, 3, 1, 1, "same"),
        (2, 4, 3, 3, 3, 2, 2, 1, "valid"),
        (1, 5, 4, 2, 3, 3, 3, 2, "same"),
        (1, 3, 3, 1, 2, 2, 2, 1, "same"),
    ):
        add(
            "DEPTHWISE",
            keras.layers.DepthwiseConv2D((kh, kw), stride, padding, depth_multiplier=multiplier, use_bias=False),
            (n, h, w, c),
            grid,
            (kh, kw, multiplier, stride, stride, 1),
            padding,
        )
    for kind in ("nearest", "bilinear"):
        for shape, size in (((1, 3, 2, 2), (2, 3)), ((2, 1, 4, 1), (3, 2)), ((1, 2, 3, 1), (4, 5))):
            add(kind.upper(), keras.layers.UpSampling2D(size, interpolation=kind), shape, grid, (0, 0, 0, *size, 1))
    table("layer", rows)


def trainings():
    rows = []
    x, labels = f64(uniform(800, (7, 4, 3, 2))), tf.constant([i % 3 for i in range(7)])
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    for parts in ([slice(0, 7)], [slice(0, 4), slice(4, 7)]):
        norm = keras.layers.BatchNormalization(momentum=0.9)
        model = keras.Sequential(
            [
                keras.Input((4, 3, 2)),
                keras.layers.Conv2D(3, 3, padding="same", use_bias=False),
                norm,
                keras.layers.ReLU(),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(3),
            ]
        )
        kernel, gamma, beta, dense, bias = variables = model.trainable_variables
        moving = [norm.moving_mean, norm.moving_variance]
        for i, v in enumerate((kernel, gamma, beta, dense)):
            v.assign(uniform(801 + i, v.shape) + np.float32(1.5 if v is gamma else 0))
        optimizer = keras.optimizers.SGD(0.125)
        losses = []
        for _ in range(4):
            before, after = [v.numpy() for v in moving], [0, 0]
            with tf.GradientTape() as tape:
                total = 0
                for part in parts:
                    for v, value in zip(moving, before):
                        v.assign(value)
                    total += loss_of(labels[part], model(x[part], training=True)) / 7
                    share = (part.stop - part.start) / 7
                    after = [a + share * v.numpy() for a, v in zip(after, moving)]
            optimizer.apply(tape.gradient(total, [v.value for v in variables]), variables)
            for v, value in zip(moving, after):
                v.assign(value)
            losses.append("%.12g" % total.numpy())
        evaluated = loss_of(labels, model(x, training=False)).numpy() / 7
        rows.append(
            (
                len(parts),
                "{%s}" % ", ".join(losses),
                "%.12g" % evaluated,
                *(array(v.numpy()) for v in [kernel, gamma, beta] + moving),
            )
        )
    table("training", rows)


batch_norms()
layers()
trainings()
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "norm.h"), "w") as out:
    out.write("".join(text).rstrip() + "\n\n#endif\n")
