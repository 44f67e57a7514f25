#!/usr/bin/env python3
"""Writes segment.h: losses of the U-Net of examples/segment.c in float64 Keras."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf

from formula import c_array, uniform

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
layers = keras.layers

HEAD = """#ifndef GOLDEN_SEGMENT_H
#define GOLDEN_SEGMENT_H
/* Made by make_segment.py with TensorFlow %s, Keras %s in float64; do not edit. */
#include "formula.h"

/* Twenty steps of SGD(0.1, momentum 0.9) on SEGMENT_ROWS images of 48 by 48. (Adam makes whole steps of gradients that
   are 0 but for rounding: float32 Keras itself is 4e-4 off.) The images' bytes are floor((u + 1) * 127.5), u being
   golden_uniform(2000); the class of a pixel is its first byte by 64. Even steps take the first half of the rows, odd
   ones the second. The i-th convolution begins with half of golden_uniform(2010 + i), everything else as in Keras. */
enum { SEGMENT_ROWS = 8, SEGMENT_STEPS = 20 };
"""
ROWS, STEPS, SIDE = 8, 20, 48
convolutions = []


def convolution(x, filters, size, bias):
    layer = layers.Conv2D(filters, size, padding="same", use_bias=bias)
    x = layer(x)
    layer.kernel.assign(uniform(2010 + len(convolutions), layer.kernel.shape).astype(np.float64) / 2)
    convolutions.append(layer)
    return x


def twice(x, filters):
    for _ in range(2):
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(convolution(x, filters, 3, False)))
    return x


def join(x, beside):
    return layers.Concatenate()([layers.UpSampling2D()(x), beside])


def main():
    start = keras.Input((SIDE, SIDE, 3))
    large = twice(layers.Rescaling(1 / 255)(start), 8)
    middle = twice(layers.MaxPooling2D()(large), 16)
    x = twice(layers.MaxPooling2D()(middle), 32)
    x = twice(join(x, middle), 16)
    x = twice(join(x, large), 8)
    model = keras.Model(start, convolution(x, 4, 1, True))
    pixels = np.floor((uniform(2000, (ROWS, SIDE, SIDE, 3)) + np.float32(1)) * np.float32(127.5))
    classes = (pixels[..., 0] // 64).astype(np.int64)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = []
    for step in range(STEPS):
        rows = slice(0, ROWS // 2) if step % 2 == 0 else slice(ROWS // 2, ROWS)
        with tf.GradientTape() as tape:
            loss = loss_of(classes[rows], model(tf.constant(pixels[rows].astype(np.float64)), training=True))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        losses.append(float(loss))
    text = [HEAD % (tf.__version__, keras.__version__), c_array("double", "golden_segment", losses, form="%.12g")]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "segment.h"), "w", encoding="utf-8") as f:
        f.write("".join(text) + "\n#endif\n")


main()
