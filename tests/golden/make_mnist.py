#!/usr/bin/env python3
"""Writes mnist_losses.h: the first 100 steps of the MNIST tutorial in float64 Keras.

Initial weights: golden_uniform(seed, flat index) of formula.h times a power of two near the
glorot limit, seeds and scales in VARIABLES below; biases are zero. Data: the first 6400 training
images in file order, pixels / 255, batches of 64. Adam 1e-3 with Keras' other defaults.

A rounding error that puts a relu or a pooled maximum on the other side makes float32 leave this
trajectory for good, at some seeds within ten steps. The seeds here are ones where Keras itself in
float32, with and without XLA, stays within 4e-6 of every slot's largest value for all 100 steps.
"""
import argparse
import gzip
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf

from formula import c_array, uniform, words

STEPS, BATCH, SAMPLES = 100, 64, 16
SNAPSHOTS = (10, 100)
# name, shape, seed, scale
VARIABLES = [
    ("conv2d/kernel", (3, 3, 1, 32), 11, 1 / 8),
    ("conv2d/bias", (32,), 0, 0),
    ("dense/kernel", (5408, 64), 12, 1 / 32),
    ("dense/bias", (64,), 0, 0),
    ("dense_1/kernel", (64, 10), 13, 1 / 4),
    ("dense_1/bias", (10,), 0, 0),
]


def read_idx(directory, name, header, count):
    path = os.path.join(directory, name)
    with gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb") as file:
        return np.frombuffer(file.read(header + count)[header:], np.uint8)


def train(dtype, x, y):
    """Returns the losses and, for every snapshot, weights and slots as (name, kind, array)."""
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)])
    model.set_weights([uniform(seed, shape) * np.float32(scale) for _, shape, seed, scale in VARIABLES])
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    adam = keras.optimizers.Adam(1e-3)
    adam.build(model.trainable_variables)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        adam.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]))
        return loss

    x = tf.constant(x / np.array(255, dtype), dtype)
    y = tf.constant(y, tf.int32)
    assert model.weights[0].dtype == dtype
    losses, states = [], []
    for i in range(STEPS):
        losses.append(float(step(x[i * BATCH:(i + 1) * BATCH], y[i * BATCH:(i + 1) * BATCH])))
        if i + 1 in SNAPSHOTS:
            for kind, group in (("weight", model.weights), ("m", adam._momentums), ("v", adam._velocities)):
                states += [(i + 1, variable[0], kind, value.numpy()) for variable, value in zip(VARIABLES, group)]
    return losses, states


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", default=os.environ.get("MIRT_MNIST_DIR"))
    parser.add_argument("--out", default=os.path.join(here, "mnist_losses.h"))
    args = parser.parse_args()
    if not args.mnist:
        parser.error("--mnist or MIRT_MNIST_DIR must name a directory with the four files of MNIST")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    x = read_idx(args.mnist, "train-images-idx3-ubyte", 16, STEPS * BATCH * 784).reshape(-1, 28, 28, 1)
    y = read_idx(args.mnist, "train-labels-idx1-ubyte", 8, STEPS * BATCH)

    losses, states = train("float64", x, y)
    losses32, states32 = train("float32", x, y)
    off = np.abs(np.array(losses32) / losses - 1)
    print("float32 Keras from float64 Keras, losses, relative: first 10 %.2g, all %.2g" % (off[:10].max(), off.max()))

    arrays, rows = [c_array("double", "golden_mnist_loss", losses, "%.17g")], []
    for (step, name, kind, value), (_, _, _, value32) in zip(states, states32):
        flat, largest = value.ravel(), np.abs(value).max()
        print("  step %3d %-14s %-6s largest %.6g, float32 off by %.2g of it"
              % (step, name, kind, largest, np.abs(value - value32).max() / largest))
        live = np.flatnonzero(flat)
        index = [int(np.abs(flat).argmax())] + [int(live[w % live.size]) for w in words(4, SAMPLES - 1)]
        tag = "golden_mnist_%s_%s_%d" % (name.replace("/", "_"), kind, step)
        arrays += [c_array("int32_t", tag + "_at", index, "%d"), c_array("double", tag, flat[index])]
        rows.append('    {%d, "%s", "%s", %d, %.9g, %s_at, %s}' % (step, name, kind, flat.size, largest, tag, tag))

    with open(args.out, "w") as out:
        out.write("""#ifndef GOLDEN_MNIST_LOSSES_H
#define GOLDEN_MNIST_LOSSES_H
/* Made by make_mnist.py with TensorFlow %s, Keras %s in float64; do not edit.
   The mnist model on pixels / 255 from these weights (formula.h), biases zero:
%s   The first %d batches of %d training images in file order; sparse categorical cross-entropy from
   logits; Adam 1e-3. */
#include "formula.h"

#define GOLDEN_MNIST_STEPS %d
#define GOLDEN_MNIST_BATCH %d
#define GOLDEN_MNIST_SAMPLES %d

/* Weights and Adam's slots (m, v) after `step` steps: the largest magnitude over the whole
   variable, and samples at flat indices; the first sample is the largest one. */
typedef struct golden_mnist_state {
    int step;
    const char *name, *kind;
    int32_t count;
    double largest;
    const int32_t *at;
    const double *value;
} golden_mnist_state;

""" % (tf.__version__, keras.__version__,
            "".join("     %-14s [i] = golden_uniform(%d, i) / %d\n" % (n, s, round(1 / c))
                    for n, _, s, c in VARIABLES if s),
            STEPS, BATCH, STEPS, BATCH, SAMPLES))
        out.write("\n".join(arrays))
        out.write("\nstatic const golden_mnist_state golden_mnist_states[] = {\n%s\n};\n\n#endif\n" % ",\n".join(rows))


main()
