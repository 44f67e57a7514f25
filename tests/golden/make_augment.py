#!/usr/bin/env python3
"""Writes augment.h: augmented images by float64 Keras layers with fixed random numbers. Also the images of one affine
warp by the product of several matrices."""
import os
from statistics import NormalDist
from unittest import mock

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

from formula import uniform

# of pixels; matrices are float32 in Keras, and RandomRotation knows no other floatx
keras.config.set_dtype_policy("float64")

PROJECTIONS, FIRST = 4, 6
HEAD = """#ifndef GOLDEN_AUGMENT_H
#define GOLDEN_AUGMENT_H
/* Made by make_augment.py with TensorFlow %s, Keras %s in float64; do not edit.
   Include after mirrortrain.h. */
#include "formula.h"

/* x is golden_uniform(seed, i) / 2 + 1 / 2. y as its norm, its products with golden_uniform(1000 + k, i), and its first numbers. */
#define GOLDEN_PROJECTIONS %d
#define GOLDEN_FIRST %d
typedef struct golden_augment {
    const char *label;
    mirt_shape shape, y_shape;
    unsigned seed;
    int count;
    mirt_augmentation list[3];
    double norm, product[GOLDEN_PROJECTIONS], first[GOLDEN_FIRST];
} golden_augment;

static const golden_augment golden_augments[] = {
"""
FILLS = ["reflect", "constant", "wrap", "nearest"]
SHAPES = [(6, 5, 1), (5, 7, 3), (7, 4, 4), (4, 6, 5), (9, 140, 3), (1, 6, 3), (12, 1, 2)]


def pair(v):
    return "{%s, %s}" % tuple(("%.9gf" % x if "." in "%.9g" % x or "e" in "%.9g" % x else "%.9g.0f" % x) for x in v)


def entry(
    kind,
    factor=(0, 0),
    height=(0, 0),
    width=(0, 0),
    fill="reflect",
    interpolation="bilinear",
    value=0,
    size=(0, 0),
    crop=False,
    value_range=(0, 0),
    shear=((0, 0), (0, 0)),
    scale=(0, 0),
    solarizes=((0, 0), (0, 0)),
    bins=0,
    size_of_kernel=0,
    sigma=(0, 0),
    jitter=((0, 0), (0, 0), (0, 0), (0, 0)),
    num_ops=0,
    chains=(0, 0, 0, False),
    tiles=(0, 0, 0),
):
    return (
        "{MIRT_%s, MIRT_FLIP_HORIZONTAL_AND_VERTICAL, %s, %s, %s, MIRT_FILL_%s, MIRT_%s, %.9g, %d, %d, %s, %s, NULL,"
        " false, %s, %s, %s, %s, %s, %d, %d, %s, %s, %s,"
        " %s, %s, %d, %d, %d, %.9g, %s, %.9g, {%d, %d}}"
        % (
            kind.upper(),
            pair(factor),
            pair(height),
            pair(width),
            fill.upper(),
            interpolation.upper(),
            value,
            size[0],
            size[1],
            str(crop).lower(),
            pair(value_range),
            pair(shear[0]),
            pair(shear[1]),
            pair(scale),
            pair(solarizes[0]),
            pair(solarizes[1]),
            bins,
            size_of_kernel,
            pair(sigma),
            *(pair(f) for f in jitter),
            num_ops,
            *chains[:3],
            str(chains[3]).lower(),
            *tiles,
        )
    )


# Each: the description in C, the layer, and which input pixel an output pixel is: a matrix of homogeneous x, y.
def rotation(turns, **kw):
    def matrix(h, w):
        a, cx, cy = 2 * np.pi * turns, (w - 1) / 2, (h - 1) / 2
        c, s = np.cos(a), np.sin(a)
        return np.array([[c, -s, cx - c * cx + s * cy], [s, c, cy - s * cx - c * cy], [0, 0, 1]]), (h, w)
    return entry("random_rotation", (turns, turns), **kw), L.RandomRotation((turns, turns), **keras_of(kw)), matrix


def zoom(high, wide, **kw):
    def matrix(h, w):
        zy, zx = 1 + high, 1 + (high if wide is None else wide)
        return np.array([[zx, 0, (w - 1) / 2 * (1 - zx)], [0, zy, (h - 1) / 2 * (1 - zy)], [0, 0, 1]]), (h, w)
    return (entry("random_zoom", height=(high, high), width=(0, 0) if wide is None else (wide, wide), **kw),
            L.RandomZoom((high, high), None if wide is None else (wide, wide), **keras_of(kw)), matrix)


def translation(down, right, **kw):
    def matrix(h, w):
        return np.array([[1, 0, -right * w], [0, 1, -down * h], [0, 0, 1]]), (h, w)
    return (
        entry("random_translation", height=(down, down), width=(right, right), **kw),
        L.RandomTranslation((down, down), (right, right), **keras_of(kw)),
        matrix,
    )


def center_crop(high, wide):
    def matrix(h, w):
        return np.array([[1, 0, (w - wide) // 2], [0, 1, (h - high) // 2], [0, 0, 1]]), (high, wide)
    return entry("center_crop", size=(high, wide)), L.CenterCrop(high, wide), matrix


def resizing(high, wide, interpolation="bilinear", crop=False):
    def matrix(h, w):
        return np.array([[w / wide, 0, w / wide / 2 - 0.5], [0, h / high, h / high / 2 - 0.5], [0, 0, 1]]), (high, wide)
    return (entry("resizing", size=(high, wide), interpolation=interpolation, crop=crop),
            L.Resizing(high, wide, interpolation=interpolation, crop_to_aspect_ratio=crop), matrix)


def contrast(factor, value_range):
    # between 1 - l and 1 + u: one number where l = -u, which RandomContrast does not take
    def layer(x, training):
        c = L.RandomContrast(0.5, value_range=value_range)
        return c.transform_images(x, {"contrast_factor": tf.constant(1 + factor, tf.float64)}, training=True)
    return (1 + factor, value_range), layer, None


def brightness(factor, value_range):
    return (
        entry("random_brightness", (factor, factor), value_range=value_range),
        L.RandomBrightness((factor, factor), value_range=value_range),
        None,
    )


# ---- transforms that draw more than one number: Keras is given those that the kernels draw


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def drawn(block, key, row, step=0):
    """Words of a block for the transform of this key, mixed with the seed."""
    return philox([block, row & 0xFFFFFFFF, row >> 32, step & 0xFFFFFFFF], [key & 0xFFFFFFFF, key >> 32])


def units(words):
    return [(w >> 8) / 2.0**24 for w in words]


# As test_augment.c has them.
KEY, SEED, ROW = 1, 5, 3


def given(layer, numbers, noise=None):
    """The layer, whose random numbers in [0, 1) are `numbers`, in its order."""

    def call(x, training):
        left = list(numbers)

        def uniform_numbers(*args, **kw):
            shape = kw.get("shape", args[0] if args else ())
            count = int(np.prod(shape))
            u = np.reshape([left.pop(0) for _ in range(count)], shape)
            return tf.constant(kw.get("minval", 0) + u * (kw.get("maxval", 1) - kw.get("minval", 0)), tf.float64)

        def whole_numbers(shape, minval, maxval, dtype="int32", **kw):
            u = [left.pop(0) for _ in range(int(np.prod(shape)))]
            return tf.cast(tf.constant(minval + np.floor(np.array(u) * (maxval - minval))), dtype)

        def normal_numbers(shape, **kw):
            return tf.constant(noise(int(np.prod(shape))).reshape(shape), tf.float64)

        source = layer.backend.random
        with (
            mock.patch.object(source, "uniform", uniform_numbers),
            mock.patch.object(source, "randint", whole_numbers),
            mock.patch.object(source, "normal", normal_numbers),
        ):
            y = layer(x, training=training)
        assert not left, left
        return y

    for name in ("fill_value", "fill_mode"):
        if hasattr(layer, name):
            setattr(call, name, getattr(layer, name))
    return call


def shear(x_factor, y_factor, row=ROW, **kw):
    u = units(drawn(0, KEY ^ SEED, row))
    layer = L.RandomShear(x_factor, y_factor, **keras_of(kw))

    def matrix(h, w):
        sign = -1 if u[2] > 0.5 else 1
        y, x = (sign * (f[0] + v * (f[1] - f[0])) for f, v in ((y_factor, u[0]), (x_factor, u[1])))
        return np.array([[1, x, 0], [y, 1, 0], [0, 0, 1]]), (h, w)

    return entry("random_shear", shear=(x_factor, y_factor), **kw), given(layer, [u[2], u[0], u[1]]), matrix


def perspective(factor, scale, interpolation="bilinear", value=0, key=KEY):
    u, chance = units(drawn(0, key ^ SEED, ROW)), units(drawn(1, key ^ SEED, ROW))
    layer = L.RandomPerspective(factor, scale, interpolation=interpolation, fill_value=value)
    # of the corners in Keras's order, across and down; a corner at 0 stays there, whatever is drawn
    corners = [0.3, 0.9, u[0], 0.4, 0.7, u[2], u[1], u[3]]
    with_chance = given(layer, chance[:2] + corners)

    def homography(w, h):
        start = np.array([[0, 0], [w, 0], [0, h], [w, h]], np.float64)
        end = start * (1 + scale * (np.reshape(corners, (4, 2)) - 0.5))
        solve = keras.src.backend.tensorflow.image.compute_homography_matrix
        return np.append(solve(tf.constant(start[None]), tf.constant(end[None])), 1).reshape(3, 3)

    def call(x, training):
        def in_float64(images, start, end, **kw):
            # Keras's own would solve the equations in float32
            rows = homography(*np.asarray(start)[0, 3]).ravel()[None, :8]
            return tf.raw_ops.ImageProjectiveTransformV3(
                images=images, transforms=rows.astype(np.float32), output_shape=images.shape[1:3],
                fill_value=kw["fill_value"], interpolation=kw["interpolation"].upper())

        with mock.patch.object(layer.backend.image, "perspective_transform", in_float64):
            return with_chance(x, training)

    call.fill_value, call.fill_mode = value, "constant"
    text = entry("random_perspective", factor, interpolation=interpolation, value=value, scale=(scale, 0))
    return text, call, lambda h, w: (homography(w - 1, h - 1), (h, w))


def hue(factor, value_range, row=ROW):
    u = units(drawn(0, KEY ^ SEED, row))
    layer = L.RandomHue(factor, value_range=value_range)
    return entry("random_hue", factor, value_range=value_range), given(layer, [u[1], u[0]]), None


def saturation(factor, value_range):
    u = units(drawn(0, KEY ^ SEED, ROW))
    layer = L.RandomSaturation(factor, value_range=value_range)
    return entry("random_saturation", factor, value_range=value_range), given(layer, [u[0]]), None


def normal(word):
    """The kernels' normal number of random bits."""
    return NormalDist().inv_cdf(((word >> 8 & 0x7FFFFF) + 0.5) / 2.0**24) * (1 if word >> 31 else -1)


def normals(count, key=KEY):
    """The kernels' noise of an image."""
    z = np.empty((count + 3) // 4 * 4)
    for group in range(len(z) // 4):
        z[4 * group : 4 * group + 4] = [normal(word) for word in drawn(2 + group, key ^ SEED, ROW)]
    return z[:count]


def erasing(factor, scale, value, value_range):
    """value None: noise."""
    u, chance = units(drawn(0, KEY ^ SEED, ROW)), units(drawn(1, KEY ^ SEED, ROW))
    layer = L.RandomErasing(factor, scale or (0.02, 0.33), fill_value=value, value_range=value_range)
    fill = dict(fill="reflect" if value is None else "constant", value=value or 0)
    return (entry("random_erasing", factor, value_range=value_range, scale=scale or (0, 0), **fill),
            given(layer, u + chance[:2], normals), None)


def grayscale(factor):
    chance = units(drawn(1, KEY ^ SEED, ROW))
    return entry("random_grayscale", (factor, 0)), given(L.RandomGrayscale(factor), [chance[1]]), None


def invert(factor, value_range):
    chance = units(drawn(1, KEY ^ SEED, ROW))
    layer = L.RandomInvert(factor, value_range=value_range)
    return entry("random_invert", factor, value_range=value_range), given(layer, chance[:2]), None


def solarization(addition, threshold, value_range):
    u = units(drawn(0, KEY ^ SEED, ROW))
    layer = L.Solarization(addition, threshold, value_range=value_range)
    return entry("solarization", value_range=value_range, solarizes=(addition, threshold)), given(layer, u[:2]), None


def posterization(factor, value_range):
    u = units(drawn(0, KEY ^ SEED, ROW))
    layer = L.RandomPosterization(factor, value_range=value_range)
    numbers = [] if factor[0] == factor[1] else [u[0]]
    return entry("random_posterization", factor, value_range=value_range), given(layer, numbers), None


def degeneration(factor, value_range):
    u = units(drawn(0, KEY ^ SEED, ROW))
    layer = L.RandomColorDegeneration(factor, value_range=value_range)
    return entry("random_color_degeneration", factor, value_range=value_range), given(layer, [u[0]]), None


def auto_contrast(value_range):
    return entry("auto_contrast", value_range=value_range), L.AutoContrast(value_range=value_range), None


def equalization(bins, value_range):
    layer = L.Equalization(value_range=value_range, bins=bins or 256)
    return entry("equalization", value_range=value_range, bins=bins), layer, None


def clahe(limit, grid, value_range):
    layer = L.ContrastLimitedAdaptiveHistogramEqualization(value_range, limit, grid)
    return entry("clahe", value_range=value_range, tiles=(limit, *grid)), layer, None


def sharpness(factor, value_range):
    u = units(drawn(0, KEY ^ SEED, ROW))
    layer = L.RandomSharpness(factor, value_range=value_range)
    return entry("random_sharpness", factor, value_range=value_range), given(layer, [u[0]]), None


def blur(factor, size, sigma, value_range):
    u, chance = units(drawn(0, KEY ^ SEED, ROW)), units(drawn(1, KEY ^ SEED, ROW))
    layer = L.RandomGaussianBlur(factor, kernel_size=size, sigma=sigma, value_range=value_range)
    text = entry("random_gaussian_blur", factor, value_range=value_range, size_of_kernel=size, sigma=sigma)
    return text, given(layer, chance[:2] + u[:2]), None


def elastic(factor, scale, value_range, interpolation="bilinear", fill="reflect", value=0, key=KEY):
    chance, strength = units(drawn(1, key ^ SEED, ROW)), units(drawn(0, key ^ SEED, ROW))[0]
    names = dict(interpolation=interpolation, fill_mode=fill, fill_value=value)
    layer = L.RandomElasticTransform(factor, scale, value_range=value_range, **names)
    keras_image = keras.src.backend.tensorflow.image
    read = keras_image.map_coordinates

    def map_coordinates(image, places, order, **kw):
        # float32 and float64 have to round to the same pixel
        halves = [np.abs(np.asarray(place) % 1 - 0.5).min() for place in places]
        assert order or min(halves) > 2e-5, halves
        if kw["fill_mode"] == "reflect":
            # on TensorFlow, unlike elsewhere and in Keras's documentation, the upper and left edges are not repeated
            places = [place + 100.0 * size for place, size in zip(places, image.shape)]
        return read(image, places, order, **kw)

    def call(x, training):
        height, width = x.shape[1:3]
        noise = normals(2 * height * width, key).reshape(height, 2, width)
        left = [noise[None, :, 0], noise[None, :, 1]]  # Keras's own would be the same for both directions
        one_after_the_other = lambda shape, **kw: tf.constant(left.pop(0), tf.float64)
        with (
            mock.patch.object(tf.random, "stateless_normal", one_after_the_other),
            mock.patch.object(keras_image, "map_coordinates", map_coordinates),
        ):
            y = given(layer, chance[:2] + [strength])(x, training)
        assert not left
        return y

    text = entry("random_elastic_transform", factor, value_range=value_range, scale=scale, fill=fill,
                 interpolation=interpolation, value=value)
    return text, call, None


def member(i):
    """What number i of an augmentation that consists of several draws."""
    return units(drawn(0, KEY ^ SEED ^ i * 0xD1B54A32D192ED03 % 2**64, ROW))


def jitter(brightness, contrast, saturation, hue, value_range):
    factors = dict(brightness_factor=brightness, contrast_factor=contrast, saturation_factor=saturation, hue_factor=hue)
    layer = L.RandomColorJitter(value_range, **{k: v for k, v in factors.items() if v})
    which = [k for k, v in factors.items() if v]
    numbers = []
    for i, name in enumerate(which):
        u = member(i)
        numbers += [u[1], u[0]] if name == "hue_factor" else [u[0]]
    text = entry("random_color_jitter", value_range=value_range, jitter=[v or (0, 0) for v in factors.values()])
    return text, given(layer, numbers), None


def picked(draw, choices):
    """Which of the choices an image draws."""
    return int(units(drawn(0, KEY ^ SEED ^ (draw + 1) * 0xA0761D6478BD642F % 2**64, ROW))[0] * choices)


def changed(layer, name, factor, u, x):
    """An image by one of RandAugment's or AugMix's layers, of which some refuse float64, with numbers u."""
    numbers = {
        "random_shear": [u[2], u[0], u[1]],
        "solarization": u[:2],
        "random_posterization": u[:1] if int(8 * factor[1]) > 1 else [],
        "auto_contrast": [],
        "equalization": [],
    }.get(name, u[:1])
    if name == "random_contrast":
        by = {"contrast_factor": tf.constant(1 - factor[0] + u[0] * sum(factor), tf.float64)}
        return layer.random_contrast.transform_images(x, by)
    if name == "random_rotation":
        by = factor[0] + u[0] * (factor[1] - factor[0])
        return L.RandomRotation((by, by))(x, training=True)
    if name == "random_translation":
        by = [factor[0] + v * (factor[1] - factor[0]) for v in u[:2]]
        return L.RandomTranslation((by[0], by[0]), (by[1], by[1]))(x, training=True)
    return given(getattr(layer, name), numbers)(x, training=True)


def rand_augment(num_ops, factor, value_range):
    # not RandAugment itself, which computes all changes for each choice
    layer = L.RandAugment(value_range, factor=factor)
    names = layer._AUGMENT_LAYERS

    def call(x, training):
        for op in range(num_ops):
            pick = picked(op, len(names))
            x = changed(layer, names[pick], factor, member(op * len(names) + pick), x)
        return x

    return entry("rand_augment", factor, value_range=value_range, num_ops=num_ops), call, None


def log_gamma(alpha, i):
    """The kernels' gamma number i of an image, as a logarithm."""
    d = max(alpha, alpha + (alpha < 1)) - 1 / 3
    for block in range(64):
        u = units(drawn(i * 64 + block, KEY ^ SEED, ROW))
        z = np.sqrt(-2 * np.log(1 - u[0])) * np.cos(2 * np.pi * u[1])
        v = (1 + z / np.sqrt(9 * d)) ** 3
        if v > 0 and np.log(1 - u[2]) < 0.5 * z * z + d * (1 - v + np.log(v)):
            return np.log(d * v) + (np.log(1 - u[3]) / alpha if alpha < 1 else 0)


def aug_mix(chains, depth, alpha, fewer, factor, value_range):
    layer = L.AugMix(value_range, chains, depth, factor, alpha, all_ops=not fewer)
    names = layer._augment_layers
    gammas = np.exp([log_gamma(alpha, i) for i in range(chains + 2)])
    lists = []
    for chain in range(chains):
        picks = [picked(chain * depth + k, len(names) + 1) for k in range(depth)]
        first = 1 + chain * (depth * len(names) + 1)
        lists.append(
            [
                {"layer_name": names[p], "transformation": member(first + k * len(names) + p)}
                for k, p in enumerate(picks)
                if p < len(names)
            ]
        )

    def call(x, training):
        transformation = {
            "chain_mixing_weights": gammas[:chains] / np.sum(gammas[:chains]),
            "weight_sample": gammas[chains] / np.sum(gammas[chains:]),
            "chain_transforms": lists,
        }
        doubles = mock.Mock(wraps=layer)
        for name in names:
            images = lambda x, u, name=name: changed(layer, name, factor, u, x)
            setattr(doubles, name, mock.Mock(transform_images=images))
        doubles.backend, doubles.compute_dtype, doubles.value_range = layer.backend, "float64", value_range
        return L.AugMix.transform_images(doubles, x, transformation, training)

    text = entry("aug_mix", factor, value_range=value_range, chains=(chains, depth, alpha, fewer))
    return text, call, None


def keras_of(kw):
    names = {"fill": "fill_mode", "value": "fill_value", "interpolation": "interpolation"}
    return {names[k]: v for k, v in kw.items()}


CASES = []
for i, fill in enumerate(FILLS):
    for j, interpolation in enumerate(["bilinear", "nearest"]):
        kw = dict(fill=fill, interpolation=interpolation, value=0.75 if fill == "constant" else 0)
        for k, one in enumerate(
            [
                rotation(0.07, **kw),
                rotation(-0.29, **kw),
                zoom(0.6, -0.45, **kw),
                zoom(-0.3, None, **kw),
                zoom(0.95, None, **kw),
                translation(0.31, -0.83, **kw),
            ]
        ):
            CASES.append(([one], SHAPES[(3 * i + 2 * j + k) % len(SHAPES)]))
for shape in SHAPES[:5]:
    CASES.append(([rotation(-0.11)], shape))
    CASES.append(([brightness(0.25, (0, 1))], shape))
    CASES.append(([brightness(-0.5, (-0.25, 1.25))], shape))
for size in [(4, 6), (9, 10), (2, 3), (7, 3)]:
    CASES += [
        ([resizing(*size)], (5, 7, 3)),
        ([resizing(*size, "nearest")], (6, 5, 1)),
        ([resizing(*size, crop=True)], (7, 4, 4)),
        ([center_crop(*size)], (5, 7, 3)),
    ]
CASES += [
    ([rotation(0.05), zoom(0.2, -0.1)], (9, 140, 3)),
    ([zoom(-0.2, None), rotation(-0.17), translation(0.1, 0.2)], (6, 5, 1)),
    ([translation(-0.4, 0.3, fill="wrap"), rotation(0.4, fill="wrap")], (7, 4, 4)),
    ([rotation(0.04, fill="constant", value=0.5), zoom(0.5, 0.25, fill="constant", value=0.5)], (5, 7, 3)),
    ([center_crop(4, 5), rotation(0.08)], (7, 9, 3)),
    ([rotation(0.08), center_crop(4, 5)], (7, 9, 3)),
    ([resizing(8, 11), rotation(-0.06), center_crop(7, 9)], (5, 7, 3)),
    ([zoom(0.3, -0.3, fill="nearest"), resizing(4, 4)], (5, 7, 3)),
    ([translation(0.95, -0.97, fill="wrap")], (7, 4, 4)),
]
for i, fill in enumerate(FILLS):
    for j, interpolation in enumerate(["bilinear", "nearest"]):
        kw = dict(fill=fill, interpolation=interpolation, value=0.75 if fill == "constant" else 0)
        CASES.append(([shear((0.3, 0.7), (0.0, 0.4), **kw)], SHAPES[(2 * i + j) % len(SHAPES)]))
        CASES.append(([shear((0.9, 0.9), (0.8, 1.0), **kw)], SHAPES[(i + 3 * j + 2) % len(SHAPES)]))
CASES += [
    ([shear((0.1, 0.3), (0.2, 0.2)), rotation(0.06)], (9, 140, 3)),
    ([shear((0.2, 0.5), (0.0, 0.0), fill="wrap"), zoom(0.3, 0.2, fill="wrap")], (7, 4, 4)),
]
for shape in [(5, 7, 3), (9, 140, 3), (1, 6, 3), (12, 1, 3)]:
    CASES += [
        ([hue((0.2, 0.9), (0, 1))], shape),
        ([hue((1.0, 1.0), (-0.5, 1.5))], shape),
        ([hue((0.1, 0.3), (0.25, 0.75))], shape),
        ([saturation((0.1, 0.4), (0, 1))], shape),
        ([saturation((0.6, 0.9), (0, 1))], shape),
        ([saturation((0.7, 0.8), (0, 255))], shape),
        ([saturation((0.5, 0.9), (0.25, 0.5))], shape),
    ]
for shape in SHAPES:
    CASES += [
        ([erasing((1.0, 1.0), None, 0.5, (0, 1))], shape),
        ([erasing((0.5, 1.0), (0.2, 0.9), -3.0, (-0.25, 1))], shape),
        ([erasing((0.0, 0.01), (0.3, 0.6), 0.5, (0, 1))], shape),
        ([erasing((1.0, 1.0), (0.5, 1.0), None, (-2, 1.5))], shape),
        ([erasing((1.0, 1.0), (1.0, 1.0), None, (0, 1))], shape),
    ]
for shape in SHAPES:
    CASES += [
        ([invert((1.0, 1.0), (0, 1))], shape),
        ([invert((0.9, 1.0), (-0.5, 2))], shape),
        ([invert((0.0, 0.01), (0, 1))], shape),
        ([solarization((0.0, 0.0), (0.2, 0.9), (0, 1))], shape),
        ([solarization((0.1, 0.6), (0.3, 0.8), (-0.25, 1.5))], shape),
        ([posterization((2, 5), (0, 1))], shape),
        ([posterization((3, 3), (-0.5, 1.5))], shape),
        ([posterization((1, 8), (-0.1, 1.05))], shape),
        ([auto_contrast((0, 1))], shape),
        ([auto_contrast((-1, 2))], shape),
        ([equalization(0, (0, 1))], shape),
        ([equalization(17, (-0.5, 1.5))], shape),
        ([equalization(200, (0, 255))], shape),
    ]
for shape in [(5, 7, 3), (9, 140, 3), (6, 5, 1)]:
    CASES += [
        ([grayscale(1.0)], shape),
        ([grayscale(0.001)], shape),
        ([degeneration((0.2, 0.9), (0, 1))], shape),
        ([degeneration((1.0, 1.0), (0.25, 0.75))], shape),
    ]
for shape in SHAPES:
    CASES += [
        ([sharpness((0.0, 0.4), (0, 1))], shape),
        ([sharpness((0.7, 1.0), (-1, 2))], shape),
        ([blur((1.0, 1.0), 3, (0.5, 1.0), (0, 1))], shape),
        ([blur((1.0, 1.0), 7, (0.1, 3.0), (0.25, 0.5))], shape),
        ([blur((0.0, 0.01), 3, (0.5, 1.0), (0.25, 0.75))], shape),
    ]
for shape in [(5, 7, 3), (9, 140, 3)]:
    CASES += [
        ([jitter((-0.2, 0.4), (0.2, 0.3), (0.1, 0.9), (0.1, 0.8), (0, 1))], shape),
        ([jitter(None, (0.3, 0.6), None, (0.5, 0.8), (-0.5, 1.5))], shape),
        ([rand_augment(1, (0.1, 0.5), (0, 1))], shape),
        ([rand_augment(8, (0.2, 0.4), (0, 1))], shape),
    ]
CASES.append(([rand_augment(8, (0.0, 1.0), (-0.5, 1.5))], (6, 5, 1)))
for i, shape in enumerate(SHAPES[:5] + [(33, 21, 3)]):
    CASES += [
        ([perspective((1.0, 1.0), 1.0, value=0.5 * (i % 2))], shape),
        ([perspective((1.0, 1.0), 0.4, "nearest", value=0.75)], shape),
        ([perspective((0.0, 0.01), 0.5)], shape),
    ]
CASES += [
    ([perspective((0.9, 1.0), 0.7, value=0.25), center_crop(3, 4)], (6, 5, 1)),
    ([rotation(0.08, fill="constant", value=0.25), perspective((1.0, 1.0), 0.6, value=0.25, key=2)], (9, 140, 3)),
]
for shape in [(5, 7, 3), (9, 140, 3), (6, 5, 1)]:
    CASES.append(([aug_mix(5, 4, 0.3, False, (0.1, 0.6), (0.25, 0.75))], shape))
# An auto contrast comes before an equalization: images whose extremes float32 does not round to another level.
for shape in [(9, 140, 3), (6, 5, 1)]:
    CASES.append(([aug_mix(3, 3, 1.0, False, (0.0, 0.3), (0, 1))], shape))
CASES += [
    ([aug_mix(2, 5, 4.0, True, (0.2, 0.5), (0, 1))], (7, 4, 4)),
    ([aug_mix(1, 1, 0.01, True, (0.0, 1.0), (-1, 2))], (4, 6, 5)),
]
for shape in SHAPES + [(33, 21, 3), (64, 48, 2)]:
    CASES += [
        ([clahe(4.0, (8, 8) if min(shape[:2]) > 3 else (2, 1), (0, 1))], shape),
        ([clahe(20.0, (2, 2), (-0.5, 1.5))], shape),
        ([clahe(-1.0, (1, 2), (0.25, 0.75))], shape),
    ]
# Also of one row or column, and with a sigma below 1, whose kernel has one number.
for shape in SHAPES + [(33, 21, 3), (48, 64, 1), (47, 41, 4)]:
    for fill in FILLS:
        kw = dict(fill=fill, value=0.75 if fill == "constant" else 0)
        CASES.append(([elastic((1.0, 1.0), (0.9, 1.0), (0, 1), **kw)], shape))
        CASES.append(([elastic((0.9, 1.0), (0.0, 1.0), (0.25, 0.75), "nearest", **kw)], shape))
    CASES.append(([elastic((0.0, 0.01), (0.5, 1.0), (0.25, 0.75))], shape))
for shape in [(5, 7, 3), (33, 21, 3)]:
    CASES += [
        ([rotation(0.07), elastic((1.0, 1.0), (1, 1), (0, 1), fill="wrap", key=2), brightness(0.25, (0, 1))], shape),
        ([brightness(-0.5, (-0.25, 1.25)), elastic((0.9, 1.0), (0.5, 0.9), (0, 1), key=2), zoom(0.3, -0.2)], shape),
    ]


def one_after_another(entries, x):
    for _, layer, _ in entries:
        x = layer(x, training=True)
    return x[0]


def one_warp(entries, x):
    """As one layer would, by the product of the matrices."""
    total, (h, w) = np.eye(3), x.shape[:2]
    for _, _, matrix in entries:
        m, (h, w) = matrix(h, w)
        total = total @ m
    filling = [layer for _, layer, _ in entries if hasattr(layer, "fill_value") and not isinstance(layer, L.Resizing)][
        0
    ]
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.constant(x[None]),
        transforms=tf.constant((total / total[2, 2]).ravel()[None, :8].astype(np.float32)),
        output_shape=[h, w],
        fill_value=filling.fill_value,
        interpolation="BILINEAR",
        fill_mode=filling.fill_mode.upper(),
    )[0]


text = [HEAD % (tf.__version__, keras.__version__, PROJECTIONS, FIRST)]
for number, (entries, shape) in enumerate(CASES):
    seed = 20000 + number
    x = uniform(seed, shape).astype(np.float64) / 2 + 0.5
    warp = len(entries) > 1 and all(matrix for _, _, matrix in entries)
    y = np.asarray(one_warp(entries, x) if warp else one_after_another(entries, tf.constant(x[None])))
    flat = y.ravel()
    shapes = ["{3, {%d, %d, %d}}" % s for s in (shape, y.shape)]
    text.append(
        '    {"%s %d", %s, %s, %d, %d,\n     {%s},\n     %.12g, {%s}, {%s}},\n'
        % (
            entries[0][0][6:].split(",")[0].lower(),
            number,
            *shapes,
            seed,
            len(entries),
            ",\n      ".join(e[0] for e in entries),
            np.sqrt(np.sum(flat * flat)),
            ", ".join(
                "%.12g" % np.dot(flat, uniform(1000 + k, flat.shape).astype(np.float64)) for k in range(PROJECTIONS)
            ),
            ", ".join("%.12g" % v for v in list(flat[:FIRST]) + [0] * (FIRST - min(FIRST, len(flat)))),
        )
    )
text.append("};\n\n")

text.append(
    """/* RandomContrast by a factor, clipped to a range; of the shape, the seed and with the numbers as above. */
typedef struct golden_contrast {
    mirt_shape shape;
    unsigned seed;
    double factor;
    float low, high;
    double norm, product[GOLDEN_PROJECTIONS];
} golden_contrast;

static const golden_contrast golden_contrasts[] = {
"""
)
for number, (factor, value_range, shape) in enumerate(
    [(0.5, (0, 1), (6, 5, 1)), (-0.25, (0, 1), (5, 7, 3)), (1.0, (-1, 2), (4, 6, 5)), (-1.0, (0, 255), (9, 140, 3))]
):
    seed = 30000 + number
    x = uniform(seed, shape).astype(np.float64) / 2 + 0.5
    flat = np.asarray(contrast(factor, value_range)[1](tf.constant(x[None]), True)[0]).ravel()
    text.append(
        '    {{3, {%d, %d, %d}}, %d, %.12g, %d, %d, %.12g, {%s}},\n'
        % (
            *shape,
            seed,
            1 + factor,
            *value_range,
            np.sqrt(np.sum(flat * flat)),
            ", ".join(
                "%.12g" % np.dot(flat, uniform(1000 + k, flat.shape).astype(np.float64)) for k in range(PROJECTIONS)
            ),
        )
    )
text.append("};\n\n")

# ---- mixtures of a data set's samples: Keras's layers get the shares, partners and places that the stages draw


def fnv(name):
    h = 14695981039346656037
    for c in name.encode():
        h = ((h ^ c) * 1099511628211) % 2**64
    return h


def beta(alpha, key, row, step):
    for block in range(1, 65):
        w = [(v + 0.5) / 2.0**32 for v in drawn(block, key, row, step)]
        for u, v in (w[:2], w[2:]):
            x, y = np.log(u) / alpha, np.log(v) / alpha
            if np.logaddexp(x, y) <= 0:
                return 1 / (1 + np.exp(y - x))


def mixture(cuts, low, high, shape, seed, samples, classes, run_seed, epoch):
    key = fnv("mirt_cut_mix" if cuts else "mirt_mix_up") * 0x9E3779B97F4A7C15 % 2**64 ^ run_seed
    words = [drawn(0, key, i, epoch) for i in range(samples)]
    u = np.array([units(w) for w in words])
    partners = np.array([w[0] * samples >> 32 for w in words])
    low, high = float(np.float32(low)), float(np.float32(high))
    alphas = low + u[:, 1] * (high - low) + (1e-6 if cuts else 0)
    shares = np.array([beta(min(a, 1), key, i, epoch) for i, a in enumerate(alphas)])
    images = np.stack([uniform(seed + i, shape).astype(np.float64) / 2 + 0.5 for i in range(samples)])
    labels = np.eye(classes)[np.arange(samples) * 7 % classes]
    x, share = tf.constant(images), tf.constant(shares)
    if not cuts:
        layer, drawn_now = L.MixUp(low), {"mix_weight": share, "permutation_order": tf.constant(partners)}
    else:
        layer, places = L.CutMix((low, high)), [tf.constant(u[:, 2]), tf.constant(u[:, 3])]
        source = layer.backend.random
        with mock.patch.object(layer, "_generate_mix_weight", lambda *a: share), mock.patch.object(
            source, "uniform", lambda **kw: places.pop(0)
        ), mock.patch.object(source, "shuffle", lambda *a, **kw: tf.constant(partners)):
            drawn_now = layer.get_random_transformation(x, training=True, seed=1)
    y = np.asarray(layer.transform_images(x, drawn_now, training=True)).ravel()
    z = np.asarray(layer.transform_labels(tf.constant(labels), drawn_now, training=True)).ravel()
    return "    {%s, %s, {3, {%d, %d, %d}}, %d, %d, %d, %d, %d,\n     %.12g, {%s}, {%s}},\n" % (
        str(cuts).lower(), pair((low, high)), *shape, seed, samples, classes, run_seed, epoch, np.sqrt(np.sum(y * y)),
        ", ".join("%.12g" % np.dot(y, uniform(1000 + k, y.shape).astype(np.float64)) for k in range(PROJECTIONS)),
        ", ".join("%.12g" % v for v in z),
    )


text.append(
    """/* All samples of an epoch by MixUp and CutMix: image i is golden_uniform(seed + i, k) / 2 + 1 / 2, its class
   7 i % classes. Numbers as above, of all images in one row; labels [samples][classes]. */
typedef struct golden_mixture {
    bool cuts;
    float range[2]; /* of alpha */
    mirt_shape shape;
    unsigned seed;
    int samples, classes, run_seed, epoch;
    double norm, product[GOLDEN_PROJECTIONS], label[64];
} golden_mixture;

static const golden_mixture golden_mixtures[] = {
"""
)
for number, (cuts, low, high, shape, samples, classes) in enumerate(
    [
        (False, 0.2, 0.2, (5, 7, 3), 9, 4),
        (False, 1.0, 1.0, (4, 3, 1), 12, 5),
        (False, 0.01, 0.01, (2, 2, 2), 7, 3),
        (True, 0.0, 1.0, (9, 11, 3), 9, 4),
        (True, 1.0, 1.0, (16, 5, 1), 12, 5),
        (True, 0.25, 0.5, (7, 8, 2), 1, 2),
    ]
):
    text.append(mixture(cuts, low, high, shape, 40000 + 50 * number, samples, classes, 9, number % 3))
text.append("};\n\n#endif\n")
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "augment.h"), "w") as f:
    f.write("".join(text))
