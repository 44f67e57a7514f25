#!/usr/bin/env python3
"""Writes tensors.h: what float64 Keras says about operations on tensors, and their gradients."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf
from keras import ops

from formula import c_array, grid, sparsemax, uniform

keras.config.set_floatx("float64")

HEAD = """#ifndef GOLDEN_TENSORS_H
#define GOLDEN_TENSORS_H
/* Made by make_tensors.py with TensorFlow %s, Keras %s in float64; do not edit. */
#include "formula.h"

/* Operand i is golden_uniform (or golden_grid) of seed + i, times `scale`, plus `offset`, in float32;
   shapes end at 0. y [values]; dx[i] is the gradient of sum(dy * y), dy being golden_uniform of
   seed + 9, or NULL where there is none. */
typedef struct golden_tensor {
    const char *name;
    int on_grid;
    unsigned seed;
    float scale, offset;
    int operands, shape[3][4], values;
    const double *y, *dx[3];
} golden_tensor;

"""
text, rows = [HEAD % (tf.__version__, keras.__version__)], []


def array(values):
    name = "golden_tensor_%d" % len(text)
    text.append(c_array("double", name, values, "%.12g"))
    return name


def add(name, function, *shapes, make=uniform, scale=2.0, offset=0.0):
    seed = 700 + 16 * len(rows)
    operands = [make(seed + i, s) * np.float32(scale) + np.float32(offset) for i, s in enumerate(shapes)]
    operands = [tf.constant(x, tf.float64) for x in operands]
    with tf.GradientTape() as tape:
        tape.watch(operands)
        y = function(*operands)
    dx = ["NULL"] * 3
    if y.dtype == tf.float64:
        gradients = tape.gradient(y, operands, tf.constant(uniform(seed + 9, y.shape), tf.float64))
        dx[:len(shapes)] = [array(tf.convert_to_tensor(g)) for g in gradients]
    padded = [list(s) + [0] * (4 - len(s)) for s in shapes] + [[0] * 4] * (3 - len(shapes))
    shape = "{%s}" % ", ".join("{%s}" % ", ".join(map(str, s)) for s in padded)
    rows.append(
        '    {"%s", %d, %d, %sf, %sf, %d, %s, %d, %s, {%s}}'
        % (
            name,
            make is grid,
            seed,
            float(scale),
            float(offset),
            len(shapes),
            shape,
            int(np.prod(y.shape)),
            array(y),
            ", ".join(dx),
        )
    )


flat = (3, 7)
for name in "linear relu sigmoid tanh softmax relu6 leaky_relu elu gelu silu hard_sigmoid hard_swish softplus".split():
    add(name, keras.activations.get(name), flat, scale=8)
for name in "exp abs".split():
    add(name, getattr(ops, name), flat)
for name in "log sqrt rsqrt".split():
    add(name, getattr(ops, name), flat, scale=1, offset=1.25)
add("sign", lambda x: x + ops.sign(x), flat, make=grid)
add("floor", lambda x: x + tf.stop_gradient(ops.floor(x)), flat, make=grid)
add("clip", lambda x: ops.clip(x, -0.5, 1.25), flat, make=grid)
add("power", lambda x: ops.power(x, 2.5), flat, scale=1, offset=1.25)
add("leaky_relu_slope", lambda x: keras.layers.LeakyReLU(dtype="float64")(x), flat)
add("elu_alpha", lambda x: keras.activations.elu(x, alpha=1.5), flat)
add("maximum", ops.maximum, (3, 1, 5), (4, 1), make=grid, scale=0.5)
add("minimum", ops.minimum, (2, 5), (2, 5), make=grid, scale=0.5)
add("where", lambda a, b: ops.where(ops.less(a, b), a * b, b), (3, 1, 4), (2, 1), make=grid)
add("log_softmax", lambda x: ops.log_softmax(x), (3, 5), scale=64)
add("reduce_min", lambda x: ops.min(x, axis=(0, 2)), (3, 4, 3), make=grid, scale=1)
add("reduce_max", lambda x: ops.max(x, axis=1, keepdims=True), (3, 4, 3), make=grid, scale=1)
add("reduce_variance", lambda x: ops.var(x, axis=(0, 2)), (3, 4, 5))
add("reduce_variance_far", lambda x: ops.var(x, axis=1), (2, 33), scale=1, offset=1000)
add("argmax", lambda x: tf.argmax(x, axis=1), (3, 5, 2), make=grid)
add("argmin", lambda x: tf.argmin(x, axis=-1), (3, 2, 9), make=grid)
add("cumsum", lambda x: ops.cumsum(x, axis=1), (2, 5, 3))
add("transpose", lambda x: ops.transpose(x, (2, 0, 1)), (3, 2, 4))
add("concat", lambda *x: ops.concatenate(x, axis=1), (2, 1, 2), (2, 3, 2), (2, 2, 2))
add("split", lambda x: ops.multiply(*ops.split(x, 2, axis=-1)), (3, 6))
add("slice", lambda x: tf.slice(x, (1, 0, 2), (2, -1, 2)), (3, 2, 5))
add("pad", lambda x: ops.pad(x, ((1, 0), (0, 2)), constant_values=-1.5), (2, 3))
add("gather", lambda x: ops.take(x, np.array([[3, 0, 3], [1, 3, 0]]), axis=0), (4, 3))
add("negative", ops.negative, flat)
add("square", ops.square, flat)
add("scale", lambda x: x * 1.5 - 0.25, flat)
for name in "selu mish softsign exponential".split():
    add(name, keras.activations.get(name), flat, scale=8)
add("gelu_approximate", lambda x: keras.activations.gelu(x, approximate=True), flat, scale=8)
COMPOSED = "celu glu hard_shrink hard_tanh log_sigmoid soft_shrink sparse_plus sparse_sigmoid squareplus tanh_shrink"
for name in COMPOSED.split():
    add(name, keras.activations.get(name), (3, 8), scale=4)
add("celu_alpha", lambda x: keras.activations.celu(x, alpha=0.75), flat, scale=4)
add("glu_axis", lambda x: keras.activations.glu(x, axis=1), (3, 4, 2), scale=4)
add("hard_shrink_threshold", lambda x: keras.activations.hard_shrink(x, threshold=1.25), flat, scale=4)
add("soft_shrink_threshold", lambda x: keras.activations.soft_shrink(x, threshold=1.25), flat, scale=4)
add("squareplus_b", lambda x: ops.squareplus(x, b=0.5), flat, scale=4)
add("threshold", lambda x: keras.activations.threshold(x, 0.25, -1.5), flat)
add("sparsemax", sparsemax, (3, 8))
add("sparsemax_axis", lambda x: sparsemax(x, axis=1), (3, 4, 2))
text.append("\nstatic const golden_tensor golden_tensor_cases[] = {\n%s\n};\n" % ",\n".join(rows))
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tensors.h"), "w") as out:
    out.write("".join(text) + "\n#endif\n")
