"""Compares resizing of images, and augmentation whose factors are fixed."""

import random
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from case import Case, compare
from draws import key_of, normals
from keras import layers as L
from spec import line

METHODS = ["bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"]
# Pixels are up to 255 and TensorFlow adds up in float32, some ten products of weights whose own rounding is the
# largest error.
RESIZED = 255 * 2.0**-18


class Resize(Case):
    part, every = "resize", 2

    def __init__(self, seed, scratch):
        r, n = random.Random("resize %d" % seed), np.random.RandomState(seed % 2**32)
        shape = [r.choice([1, 2, 3, 5, 8, 13]), r.choice([1, 2, 4, 7, 11, 16]), r.choice([1, 3, 4])]
        image = n.randint(0, 256, shape).astype(np.uint8)
        self.want, lines = [], []
        for _ in range(6):
            size, method = [r.randint(1, 20), r.randint(1, 20)], r.choice(METHODS)
            antialias = method not in ("nearest", "area") and r.random() < 0.5
            lines.append(line("to", size=size, interpolation=method, antialias=antialias))
            self.want.append(np.asarray(tf.image.resize(image, size, method, antialias=antialias), np.float64).ravel())
        super().__init__(seed, "\n".join([line("resize", shape=shape)] + lines) + "\n")
        self.files = {"image.bin": image}

    def check(self, results, directory):
        complaints = []
        for i, want in enumerate(self.want):
            problem = compare("resized/%d" % i, results.get("resized/%d" % i), want, RESIZED)
            complaints.append(problem and "%s: %s" % (self.text.split("\n")[1 + i], problem))
        return [c for c in complaints if c]


# ---- augmentation: the part of an image that an output pixel comes from, as a matrix of homogeneous x, y


def rotation(turns, h, w):
    a, cx, cy = 2 * np.pi * turns, (w - 1) / 2, (h - 1) / 2
    c, s = np.cos(a), np.sin(a)
    return np.array([[c, -s, cx - c * cx + s * cy], [s, c, cy - s * cx - c * cy], [0, 0, 1]])


def zoom(high, wide, h, w):
    return np.array([[1 + wide, 0, -(w - 1) / 2 * wide], [0, 1 + high, -(h - 1) / 2 * high], [0, 0, 1]])


def translation(down, right, h, w):
    return np.array([[1, 0, -right * w], [0, 1, -down * h], [0, 0, 1]])


def warp(images, matrix, t):
    rows = np.repeat(matrix.ravel()[None, :8].astype(np.float32), len(images), 0)
    return np.asarray(
        tf.raw_ops.ImageProjectiveTransformV3(
            images=tf.constant(images),
            transforms=rows,
            output_shape=images.shape[1:3],
            fill_value=t.get("fill_value", 0.0),
            interpolation=t["interpolation"].upper(),
            fill_mode=t["fill_mode"].upper(),
        ),
        np.float64,
    )


def near_images(images, matrix, t):
    """How far each pixel is moved by roundings of the matrix: at an edge between two pixels, or of the filled part,
    by much."""
    base = warp(images, matrix, t)
    spread = np.zeros_like(base)
    by = 2.0**-20 * max(images.shape[1:3])
    for dx, dy in ((by, by), (by, -by), (-by, by), (-by, -by)):
        moved = matrix.copy()
        moved[0, 2] += dx
        moved[1, 2] += dy
        spread = np.maximum(spread, np.abs(warp(images, moved, t) - base))
    return 4 * spread + 2.0**-16


class Augment(Case):
    part, every = "augment", 1
    KINDS = [
        "random_rotation",
        "random_zoom",
        "random_translation",
        "random_brightness",
        "random_contrast",
        "random_flip",
        "random_crop",
        "random_shear",
        "random_hue",
        "random_saturation",
        "random_erasing",
        "clahe",
        "random_elastic_transform",
    ]

    def __init__(self, seed, scratch):
        r, n = random.Random("augment %d" % seed), np.random.RandomState(seed % 2**32)
        keras.config.set_floatx("float32")  # matrices: RandomRotation knows no other
        keras.config.set_dtype_policy("float64")  # pixels
        shape, rows = [r.randint(2, 11), r.randint(2, 11), r.choice([1, 3, 4])], r.randint(1, 3)
        t = {"kind": r.choice(self.KINDS)}
        if t["kind"] in ("random_hue", "random_saturation"):
            shape[2] = 3
        if t["kind"] == "random_elastic_transform":
            shape[:2] = [r.randint(1, 50), r.randint(1, 50)]  # a larger kernel blurs the noise of a larger image
        self.images = n.uniform(0, 1, [rows] + shape).astype(np.float32)
        getattr(self, "draw_" + t["kind"])(r, t, shape)
        self.transform = t
        super().__init__(
            seed,
            "\n".join(
                [
                    line("augment", shape=shape, rows=rows, **{"as": r.choice(["layer", "stage"])}),
                    line("strategy", replicas=r.choice([1, 2]), devices=1),
                    line("transform", **t),
                ]
            )
            + "\n",
        )
        self.files = {"image.bin": self.images}

    def moved(self, t, layer, matrix):
        x = self.images.astype(np.float64)
        want, limit = (
            np.asarray(layer(tf.constant(x), training=True), np.float64).ravel(),
            near_images(x, matrix, t).ravel(),
        )
        self.judge = lambda y: compare("pixels", y, want, limit)

    def filling(self, r, t):
        t.update(
            fill_mode=r.choice(["reflect", "constant", "wrap", "nearest"]),
            interpolation=r.choice(["bilinear", "nearest"]),
        )
        if t["fill_mode"] == "constant":
            t["fill_value"] = 0.75
        return {k: v for k, v in t.items() if k.startswith("fill") or k == "interpolation"}

    def draw_random_rotation(self, r, t, shape):
        turns, fill = round(r.uniform(-0.5, 0.5), 3), self.filling(r, t)
        t["factor"] = [turns, turns]
        self.moved(t, L.RandomRotation((turns, turns), **fill), rotation(turns, *shape[:2]))

    def draw_random_zoom(self, r, t, shape):
        high, wide, fill = (
            round(r.uniform(-0.5, 0.9), 3),
            r.choice([None, round(r.uniform(-0.5, 0.9), 3)]),
            self.filling(r, t),
        )
        t.update(height_factor=[high, high], width_factor=wide and [wide, wide])
        self.moved(
            t,
            L.RandomZoom((high, high), wide and (wide, wide), **fill),
            zoom(high, high if wide is None else wide, *shape[:2]),
        )

    def draw_random_translation(self, r, t, shape):
        down, right, fill = round(r.uniform(-0.9, 0.9), 3), round(r.uniform(-0.9, 0.9), 3), self.filling(r, t)
        t.update(height_factor=[down, down], width_factor=[right, right])
        self.moved(t, L.RandomTranslation((down, down), (right, right), **fill), translation(down, right, *shape[:2]))

    def draw_random_brightness(self, r, t, shape):
        factor, high = round(r.uniform(-0.9, 0.9), 3), r.choice([1.0, 0.5])
        t.update(factor=[factor, factor], value_range=[0.0, high])
        layer = L.RandomBrightness((factor, factor), value_range=(0.0, high))
        want = np.asarray(layer(tf.constant(self.images.astype(np.float64)), training=True), np.float64).ravel()
        self.judge = lambda y: compare("pixels", y, want, 2.0**-20)

    def draw_random_contrast(self, r, t, shape):
        """The factor of each image is unknown: one within the range must explain all of its pixels."""
        low, high = round(r.uniform(0.1, 0.9), 2), round(r.uniform(0.1, 0.9), 2)
        t.update(factor=[low, high], value_range=[0.0, 1.0])
        layer = L.RandomContrast((low, high), value_range=(0.0, 1.0))

        def judge(y):
            if y is None or y.size != self.images.size:
                return "no pixels"
            for x, out in zip(self.images.astype(np.float64), y.reshape(self.images.shape)):
                away, free = x - x.mean((0, 1)), (out > 0.001) & (out < 0.999)
                factor = np.sum((away * (out - x.mean((0, 1))))[free]) / (np.sum(np.square(away)[free]) + 1e-30)
                if not 1 - low - 1e-4 <= factor <= 1 + high + 1e-4:
                    return "a contrast of %.5g; it should lie within %g and %g" % (factor, 1 - low, 1 + high)
                want = layer.transform_images(
                    tf.constant(x[None]), {"contrast_factor": tf.constant(factor, tf.float64)}, training=True
                )
                problem = compare("contrast %.5g" % factor, out.ravel(), np.asarray(want, np.float64).ravel(), 1e-5)
                if problem:
                    return problem
            return None

        self.judge = judge

    def one_of(self, choices):
        def judge(y):
            for x, out in zip(
                self.images,
                (y if y is not None else np.zeros(0)).reshape(
                    [len(self.images)] + list(choices(self.images[0])[0].shape)
                ),
            ):
                if min(float(np.max(np.abs(out - c))) for c in choices(x)) > 1e-6:
                    return "an image that is none of the possible ones"
            return None

        self.judge = judge

    def nearest(self, choices, limits):
        """Each image is one of its choices, arrays of all images."""

        def judge(y):
            if y is None or y.size != self.images.size:
                return "no pixels"
            y, problem = y.reshape(self.images.shape), None
            for i in range(len(y)):
                for want, limit in zip(choices, limits):
                    limit = np.broadcast_to(limit, want.shape)
                    problem = compare("pixels of %d" % i, y[i].ravel(), want[i].ravel(), limit[i].ravel())
                    if not problem:
                        break
                if problem:
                    return problem
            return None

        self.judge = judge

    def draw_random_shear(self, r, t, shape):
        x, y, fill = round(r.uniform(0, 1), 3), round(r.uniform(0, 1), 3), self.filling(r, t)
        t.update(x_factor=[x, x], y_factor=[y, y])
        images = self.images.astype(np.float64)
        layer = L.RandomShear((x, x), (y, y), **fill)
        choices, limits = [], []
        for sign in (1, -1):
            factor = tf.constant([[sign * x, sign * y]] * len(images), tf.float64)
            matrix = np.array([[1, sign * x, 0], [sign * y, 1, 0], [0, 0, 1]])
            choices.append(np.asarray(layer.transform_images(tf.constant(images), {"shear_factor": factor})))
            limits.append(near_images(images, matrix, t))
        self.nearest(choices, limits)

    def draw_random_hue(self, r, t, shape):
        factor, high = round(r.uniform(0, 1), 3), r.choice([1.0, 1.5])
        t.update(factor=[factor, factor], value_range=[0.0, high])
        layer, images = L.RandomHue((factor, factor), value_range=(0.0, high)), tf.constant(self.images, tf.float64)
        turns = [tf.constant([sign * factor * 0.5] * len(self.images), tf.float64) for sign in (1, -1)]
        self.nearest([np.asarray(layer.transform_images(images, {"factor": v})) for v in turns], [1e-5, 1e-5])

    def draw_random_saturation(self, r, t, shape):
        factor = round(r.uniform(0, 0.95), 3)
        t.update(factor=[factor, factor], value_range=[0.0, 1.0])
        layer = L.RandomSaturation((factor, factor), value_range=(0.0, 1.0))
        want = np.asarray(layer(tf.constant(self.images.astype(np.float64)), training=True), np.float64).ravel()
        self.judge = lambda y: compare("pixels", y, want, 2e-5)

    def draw_clahe(self, r, t, shape):
        limit, grid = round(r.uniform(-1, 20), 2), [r.randint(1, min(8, 2 * length)) for length in shape[:2]]
        t.update(clip_limit=limit, tile_grid_size=grid, value_range=r.choice([[0.0, 1.0], [-0.5, 1.5], [0.2, 0.7]]))
        layer = L.ContrastLimitedAdaptiveHistogramEqualization(t["value_range"], limit, grid)
        want = np.asarray(layer(tf.constant(self.images.astype(np.float64)), training=True), np.float64).ravel()
        self.judge = lambda y: compare("pixels", y, want, 2e-6)

    def draw_random_elastic_transform(self, r, t, shape):
        """Keras's layer with the library's noise, which for both directions is its own."""
        scale, fill = float(np.float32(r.uniform(0, 1))), r.choice(["reflect", "constant", "wrap", "nearest"])
        how = dict(interpolation=r.choice(["bilinear", "nearest"]), fill_mode=fill, fill_value=0.25)
        t.update(factor=[1.0, 1.0], scale=[scale, scale], value_range=r.choice([[0.0, 1.0], [0.2, 0.7]]), **how)
        layer = L.RandomElasticTransform((1.0, 1.0), (scale, scale), value_range=t["value_range"], **how)
        keras_image, near, wants = keras.src.backend.tensorflow.image, [], {}
        read = keras_image.map_coordinates

        def map_coordinates(image, places, order, **kw):
            near.append(np.max([np.abs(np.asarray(place) % 1 - 0.5) < 1e-3 for place in places], 0))
            if kw["fill_mode"] == "reflect":  # TensorFlow's does not repeat the upper and left edges
                places = [place + 100.0 * size for place, size in zip(places, image.shape)]
            return read(image, places, order, **kw)

        for way in ("layer", "stage"):
            rows = range(len(self.images))
            noise = [normals(key_of(way, t["kind"]), row, 2 * shape[0] * shape[1]) for row in rows]
            noise = np.reshape(noise, (-1, shape[0], 2, shape[1]))
            left, near[:] = [noise[:, :, 0], noise[:, :, 1]], []
            with (
                mock.patch.object(tf.random, "stateless_normal", lambda **kw: tf.constant(left.pop(0), tf.float64)),
                mock.patch.object(keras_image, "map_coordinates", map_coordinates),
            ):
                y = np.asarray(layer(tf.constant(self.images.astype(np.float64)), training=True), np.float64)
            # those between two pixels may be either of them
            jumps = np.moveaxis(np.reshape(near, (shape[2], -1, *shape[:2])), 0, -1).ravel()
            wants[way] = y.ravel(), np.where(jumps & (how["interpolation"] == "nearest"), 1, 2e-4)
        self.judge = lambda y: compare("pixels", y, *wants["stage" if "as=stage" in self.text else "layer"])

    def draw_random_erasing(self, r, t, shape):
        """A rectangle of the size that Keras's bounds give, wherever it lies."""
        scale = round(r.uniform(0.02, 1), 3)
        t.update(factor=[1.0, 1.0], scale=[scale, scale], value_range=[-1.5, 1.0])
        t.update(fill_mode="constant", fill_value=-2.0)

        def judge(y):
            if y is None or y.size != self.images.size:
                return "no pixels"
            for x, out in zip(self.images, y.reshape(self.images.shape)):
                gone = np.all(out == -1.5, axis=2)
                if np.any(out[~gone] != x[~gone]):
                    return "pixels beside what is erased have changed"
                if not gone.any() and np.sqrt(scale) * min(shape[:2]) <= 1:
                    continue  # less than a pixel wide or high
                for axis, length in ((1, shape[0]), (0, shape[1])):
                    at = np.flatnonzero(np.any(gone, axis=axis))
                    if abs(len(at) - np.sqrt(scale) * length) > 1 or (len(at) and at[-1] - at[0] + 1 != len(at)):
                        return "%d of %d erased, with a scale of %g" % (len(at), length, scale)
                if np.sum(gone) != np.sum(np.any(gone, 0)) * np.sum(np.any(gone, 1)):
                    return "what is erased is no rectangle"
            return None

        self.judge = judge

    def draw_random_flip(self, r, t, shape):
        t["mode"] = r.choice(["horizontal_and_vertical", "horizontal", "vertical"])
        wide, high = t["mode"] != "vertical", t["mode"] != "horizontal"
        self.one_of(lambda x: [x] + [x[:, ::-1]] * wide + [x[::-1]] * high + [x[::-1, ::-1]] * (wide and high))

    def draw_random_crop(self, r, t, shape):
        h, w = r.randint(1, shape[0]), r.randint(1, shape[1])
        t["size"] = [h, w]
        self.one_of(
            lambda x: [x[i : i + h, j : j + w] for i in range(shape[0] - h + 1) for j in range(shape[1] - w + 1)]
        )

    def check(self, results, directory):
        problem = self.judge(results.get("pixels"))
        return [problem] if problem else []
