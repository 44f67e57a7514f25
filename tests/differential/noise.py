"""Compares layers that draw random numbers in training, of which Keras's get the library's."""

import random
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from case import Case, compare
from draws import fnv, normals, words
from keras import layers as L
from spec import line


class Noise(Case):
    part, every = "noise", 2
    KINDS = {
        "dropout": lambda rate, shape: L.Dropout(rate, noise_shape=shape),
        "alpha_dropout": lambda rate, shape: L.AlphaDropout(rate, noise_shape=shape),
        "gaussian_dropout": lambda rate, shape: L.GaussianDropout(rate),
        "spatial_dropout2d": lambda rate, shape: L.SpatialDropout2D(rate),
        "gaussian_noise": lambda rate, shape: L.GaussianNoise(rate),
    }

    def __init__(self, seed, scratch):
        r, n = random.Random("noise %d" % seed), np.random.RandomState(seed % 2**32)
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
        kind, rate, rows = r.choice(sorted(self.KINDS)), float(np.float32(r.uniform(0.01, 0.95))), r.randint(1, 5)
        shape = [r.randint(1, 9) for _ in range(3 if kind == "spatial_dropout2d" else r.randint(1, 3))]
        noise = None
        if kind in ("dropout", "alpha_dropout") and r.random() < 0.5:
            noise = [length if r.random() < 0.5 else 1 for length in shape]
        x = n.uniform(-2, 2, [rows] + shape).astype(np.float32)
        layer = self.KINDS[kind](rate, noise and tuple([rows] + noise))
        key, source = fnv("drawn"), keras.src.backend.random

        def uniform(shape, **kw):
            count = int(np.prod(shape[1:]))
            u = [words(key, row, range((count + 3) // 4)).ravel()[:count] for row in range(rows)]
            return tf.constant((np.reshape(u, shape) >> np.uint64(8)) / 2.0**24, tf.float64)

        def normal(shape, mean, stddev, **kw):
            z = [normals(key, row, int(np.prod(shape[1:])), 0) for row in range(rows)]
            return tf.constant(mean + stddev * np.reshape(z, shape), tf.float64)

        def dropout(x, rate, noise_shape=None, **kw):
            return tf.where(uniform(noise_shape or x.shape) >= rate, x / (1 - rate), 0)

        with (
            mock.patch.object(source, "uniform", uniform),
            mock.patch.object(source, "normal", normal),
            mock.patch.object(source, "dropout", dropout),
        ):
            self.want = np.asarray(layer(tf.constant(x.astype(np.float64)), training=True), np.float64).ravel()
        super().__init__(
            seed,
            "\n".join(
                [
                    line("noise", shape=shape, rows=rows),
                    line("strategy", replicas=r.choice([1, 2]), devices=1),
                    line("layer", kind=kind, name="drawn", rate=rate, noise_shape=noise),
                ]
            )
            + "\n",
        )
        self.files = {"x.bin": x}

    def check(self, results, directory):
        problem = compare("pixels", results.get("pixels"), self.want, 1e-5 * (1 + np.abs(self.want)))
        return [problem] if problem else []
