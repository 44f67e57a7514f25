#!/usr/bin/env python3
"""Writes constraints.h: steps of float64 Keras with constraints of weights and penalties of activities."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf
from keras import constraints as C
from keras import layers as L
from keras import regularizers as R

from formula import uniform

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

ROWS, STEPS, RATE, MOMENTUM = 6, 4, 0.5, 0.5
PROJECTIONS = 4

HEAD = """#ifndef GOLDEN_CONSTRAINTS_H
#define GOLDEN_CONSTRAINTS_H
/* Made by make_constraints.py with TensorFlow %s, Keras %s in float64; do not edit. */
#include "formula.h"

/* x is golden_uniform(seed, i), weight number k golden_uniform(seed + 1 + k, i), t golden_uniform(seed + 50, i). loss:
   before each step of SGD on the mean squared error and the penalties. weight: after the last step, as its norm and its
   products with golden_uniform(1000 + k, i). */
enum { CONSTRAINT_ROWS = %d, CONSTRAINT_STEPS = %d, CONSTRAINT_PROJECTIONS = %d };
static const float constraint_rate = %gf, constraint_momentum = %gf;
typedef struct golden_constrained {
    const char *label;
    unsigned seed;
    double loss[CONSTRAINT_STEPS];
    int num_weights;
    struct {
        const char *name;
        int count;
        double norm, product[CONSTRAINT_PROJECTIONS];
    } weight[3];
} golden_constrained;

static const golden_constrained golden_constraints[] = {
"""



class Spectral(L.SpectralNormalization):
    """Keras normalizes where a step begins, this where it ends, as constraints do."""

    def call(self, inputs, training=False):
        return self.layer(inputs)

    def normalize(self):
        u, kernel = self.normalized_weights()
        self.vector_u.assign(u)
        self.kernel.assign(kernel)


ROW, IMAGE = (5,), (4, 5, 3)
CASES = {
    "max_norm": (L.Dense(4, kernel_constraint=C.MaxNorm(0.75), bias_constraint=C.MaxNorm(0.5)), ROW),
    "non_neg": (L.Dense(4, kernel_constraint=C.NonNeg(), bias_constraint=C.NonNeg()), ROW),
    "unit_norm": (L.Conv2D(4, 3, kernel_constraint=C.UnitNorm(axis=[0, 1, 2])), IMAGE),
    "min_max_norm": (L.Conv2D(2, 2, kernel_constraint=C.MinMaxNorm(0.5, 0.75, rate=0.5, axis=[0, 1, 2])), IMAGE),
    "min_max_norm last": (L.Dense(3, kernel_constraint=C.MinMaxNorm(0.9, 1.1, axis=1)), ROW),
    "transposed": (L.Conv2DTranspose(2, 2, kernel_constraint=C.MaxNorm(0.5, axis=[0, 1, 3])), IMAGE),
    "depthwise": (L.DepthwiseConv2D(2, depthwise_constraint=C.MaxNorm(0.5, axis=[0, 1])), IMAGE),
    "separable": (
        L.SeparableConv2D(3, 2, depthwise_constraint=C.UnitNorm(axis=[0, 1]), pointwise_constraint=C.NonNeg()),
        IMAGE,
    ),
    "layer_norm": (L.LayerNormalization(gamma_constraint=C.NonNeg(), beta_constraint=C.MaxNorm(0.25)), ROW),
    "prelu": (L.PReLU(alpha_constraint=C.NonNeg()), ROW),
    "activity l2": (L.Dense(4, activation="tanh", activity_regularizer=R.L2(0.25)), ROW),
    "activity l1": (L.Conv2D(2, 2, activation="relu", activity_regularizer=R.L1(0.125)), IMAGE),
    "activity l1l2": (L.DepthwiseConv2D(2, activity_regularizer=R.L1L2(0.015625, 0.03125)), IMAGE),
    "activity separable": (L.SeparableConv2D(2, 2, activity_regularizer=R.L1L2(0.015625, 0.03125)), IMAGE),
    "activity sum": (L.Dense(4, activation="tanh", activity_regularizer=R.L1L2(0.5, 0.5)), ROW),
    "activity layer": (keras.Sequential([L.Dense(4), L.ActivityRegularization(0.125, 0.25)]), ROW),
    "spectral": (Spectral(L.Dense(4)), ROW),
    "spectral conv": (Spectral(L.Conv2D(4, 2), power_iterations=3), IMAGE),
}
ORDER = ("vector_u", "bias")  # after the other weights of a layer


def summary(weight):
    flat = weight.numpy().ravel()
    products = ", ".join(
        "%.12g" % np.dot(flat, uniform(1000 + k, flat.shape).astype(float)) for k in range(PROJECTIONS)
    )
    return '{"%s", %d, %.12g, {%s}}' % (weight.path.split("/")[-1], flat.size, np.sqrt(np.sum(flat * flat)), products)


def case(number, label, layer, shape):
    keras.utils.clear_session()
    seed = 40000 + 100 * number
    x = uniform(seed, (ROWS,) + shape).astype(float)
    inputs = keras.Input(shape)
    model = keras.Model(inputs, layer(inputs))
    t = uniform(seed + 50, (ROWS,) + model.output_shape[1:]).astype(float)
    weights = sorted(model.weights, key=lambda w: ORDER.index(w.name) + 1 if w.name in ORDER else 0)
    for k, weight in enumerate(weights):
        weight.assign(uniform(seed + 1 + k, weight.shape).astype(float))
    reduction = "sum" if "sum" in label else "sum_over_batch_size"
    model.compile(keras.optimizers.SGD(RATE, momentum=MOMENTUM), keras.losses.MeanSquaredError(reduction=reduction))
    losses = [model.evaluate(x, t, verbose=0)]
    for step in range(STEPS):
        model.fit(x, t, batch_size=ROWS, verbose=0)
        if isinstance(layer, Spectral):
            layer.normalize()
        losses.append(model.evaluate(x, t, verbose=0))
    return '    {"%s", %d, {%s}, %d,\n     {%s}},\n' % (
        label, seed, ", ".join("%.12g" % v for v in losses[:STEPS]), len(weights),
        ",\n      ".join(summary(w) for w in weights))


text = [HEAD % (tf.__version__, keras.__version__, ROWS, STEPS, PROJECTIONS, RATE, MOMENTUM)]
for number, (label, (layer, shape)) in enumerate(CASES.items()):
    text.append(case(number, label, layer, shape))
text.append("};\n\n#endif\n")
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "constraints.h"), "w") as f:
    f.write("".join(text))
