#!/usr/bin/env python3
"""Writes batch_norm.h: eight Adam steps with BatchNormalization in float64 Keras, then inference."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf

from formula import c_array, uniform

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

HEAD = """#ifndef GOLDEN_BATCH_NORM_H
#define GOLDEN_BATCH_NORM_H
/* Made by make_batch_norm.py with TensorFlow %s, Keras %s in float64; do not edit. */
#include "formula.h"

/* Eight steps of Adam(0.01) through Dense(9, no bias), BatchNormalization(momentum 0.9), relu and Dense(4), whose
   logits the cross-entropy takes, on 13 rows of 7 with classes (i * 5 + 1) %% 4: rows 0 to 7 and 8 to 12 in turn.
   Rows, kernel, gamma, beta, moving mean, moving variance, second kernel and bias are golden_uniform of seeds 900
   to 907, gamma and the moving variance plus 1.5. `weights`: these seven in this order after the last step;
   evaluated: the loss of all rows in inference. */
typedef struct golden_adam_norm {
    int frozen;
    double loss[8], evaluated;
    const double *weights;
} golden_adam_norm;

"""
text = [HEAD % (tf.__version__, keras.__version__)]


def start(seed, shape, plus=0.0):
    return uniform(seed, shape).astype(np.float64) + plus


def run(frozen):
    x, labels = tf.constant(start(900, (13, 7))), tf.constant([(i * 5 + 1) % 4 for i in range(13)])
    norm = keras.layers.BatchNormalization(momentum=0.9)
    model = keras.Sequential(
        [keras.Input((7,)), keras.layers.Dense(9, use_bias=False), norm, keras.layers.ReLU(), keras.layers.Dense(4)]
    )
    first, last = model.layers[0], model.layers[-1]
    order = [first.kernel, norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance, last.kernel, last.bias]
    for i, v in enumerate(order):
        v.assign(start(901 + i, v.shape, 1.5 if i in (1, 4) else 0.0))
    norm.trainable = not frozen
    optimizer = keras.optimizers.Adam(0.01)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = []
    for step in range(8):
        rows = slice(0, 8) if step % 2 == 0 else slice(8, 13)
        with tf.GradientTape() as tape:
            loss = loss_of(labels[rows], model(x[rows], training=True))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        losses.append(float(loss))
    weights = np.concatenate([np.asarray(v).ravel() for v in order])
    return losses, float(loss_of(labels, model(x, training=False))), weights


rows = []
for frozen in (0, 1):
    losses, evaluated, weights = run(frozen)
    text.append(c_array("double", "golden_adam_norm_%d" % frozen, weights, form="%.12g"))
    rows.append(
        "    {%d, {%s}, %.12g, golden_adam_norm_%d}"
        % (frozen, ", ".join("%.12g" % v for v in losses), evaluated, frozen)
    )
text.append("\nstatic const golden_adam_norm golden_adam_norm_cases[] = {\n%s\n};\n\n#endif\n" % ",\n".join(rows))
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "batch_norm.h"), "w").write("".join(text))
