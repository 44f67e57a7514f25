"""Compares data sets of directories: files, order, split, labels and pixels."""

import contextlib
import io
import os
import random

import keras
import numpy as np
import tensorflow as tf
from case import Case, compare
from spec import line

NAMES = ["a", "b", "B", "a10", "a2", "Zz", "cats", "dogs", "_x", "0", "9", "ab-c", "a.b", "z"]
DECOYS = ["notes.txt", "image.jpg.bak", "README", ".keep"]
# A level for gray, which two decoders round differently, and TensorFlow's float32 sums of resized pixels.
LIMITS = {"grayscale": 1.01, "rgb": 255 * 2.0**-18, "rgba": 255 * 2.0**-18}
SIDES = [1, 2, 3, 5, 8, 11]
PADDED_SIDES = [5, 8, 11]  # Keras refuses to pad where the resized image would have no pixels


def write_bmp(path, image):
    """24 bits, rows from below, each padded to four bytes."""
    h, w = image.shape[:2]
    stride = (3 * w + 3) // 4 * 4
    rows = b"".join(np.ascontiguousarray(row[:, ::-1]).tobytes() + bytes(stride - 3 * w) for row in image[::-1])
    number = lambda n, size=4: int(n).to_bytes(size, "little")
    head = (
        b"BM"
        + number(54 + len(rows))
        + number(0)
        + number(54)
        + number(40)
        + number(w)
        + number(h)
        + number(1, 2)
        + number(24, 2)
    )
    with open(path, "wb") as f:
        f.write(head + number(0) + number(len(rows)) + number(2835) * 2 + number(0) * 2 + rows)


def write_image(path, n, sides):
    image = n.randint(0, 256, [n.choice(sides), n.choice(sides), 3]).astype(np.uint8)
    if path.lower().endswith(".bmp"):
        return write_bmp(path, image)
    with open(path, "wb") as f:
        f.write(tf.io.encode_png(image).numpy())


def make_tree(root, classes, r, n, sides, endings):
    """Files at several depths below each class."""
    for name in classes:
        files = 0
        while files < 4 or r.random() < 0.8:
            below = r.choice(["", "", "", "sub", "sub/deep", "sub-2"])
            os.makedirs(os.path.join(root, name, below), exist_ok=True)
            write_image(
                os.path.join(root, name, below, r.choice(NAMES) + str(r.randint(0, 30)) + r.choice(endings)), n, sides
            )
            files += 1
            if r.random() < 0.2:
                open(os.path.join(root, name, below, r.choice(DECOYS)), "w").close()
    if r.random() < 0.3:
        write_image(os.path.join(root, "loose.png"), n, sides)


class Directory(Case):
    part, every = "directory", 3

    def __init__(self, seed, scratch):
        r, n = random.Random("directory %d" % seed), np.random.RandomState(seed % 2**32)
        self.root = os.path.join(scratch, "directory%d" % seed)
        classes = r.sample(NAMES, r.choice([2, 2, 3, 5]))
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
        self.pixels = r.random() < 0.6
        o = {
            "color_mode": r.choice(["rgb", "rgb", "grayscale", "rgba"]) if self.pixels else "rgb",
            "image_size": (r.randint(3, 9), r.randint(3, 9)),
            "interpolation": r.choice(["bilinear", "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5"]),
            "shuffle": r.random() < 0.6,
            "seed": r.choice([0, 1, 7, 123, 1337, 2**32 - 1]),
            "label_mode": r.choice(["int", "categorical", "int"] + (["binary"] * 2 if len(classes) == 2 else [])),
        }
        fit = r.choice([None, None, "crop_to_aspect_ratio", "pad_to_aspect_ratio"])
        if fit:
            o[fit] = True
        if r.random() < 0.5:
            o.update(validation_split=r.choice([0.2, 0.25, 0.5]), subset=r.choice(["training", "validation"]))
        if r.random() < 0.3 and o["label_mode"] != "binary":
            o["class_names"] = r.sample(classes, len(classes))
        endings = [".png", ".PNG"] + (
            [".bmp", ".Bmp"] if o["color_mode"] != "grayscale" else []
        )  # TensorFlow decodes no BMP as gray
        make_tree(self.root, classes, r, n, PADDED_SIDES if fit == "pad_to_aspect_ratio" else SIDES, endings)
        # Keras's pixels and labels by path: its data set is shuffled again as it is read.
        load = lambda **options: keras.utils.image_dataset_from_directory(
            self.root, batch_size=None, verbose=False, **options
        )
        with contextlib.redirect_stdout(io.StringIO()):  # it tells of its split whatever `verbose` is
            dataset = load(**o)
        self.paths = [os.path.relpath(p, self.root) for p in dataset.file_paths]
        plain = {k: v for k, v in o.items() if k not in ("validation_split", "subset", "shuffle")}
        everything = load(shuffle=False, **plain)
        known = {os.path.relpath(p, self.root): xy for p, xy in zip(everything.file_paths, everything)}
        self.want = [
            np.concatenate([np.asarray(known[p][i], np.float64).ravel() for p in self.paths]) for i in range(2)
        ]
        self.color = o["color_mode"]
        settings = {"size" if k == "image_size" else k: v for k, v in o.items()}
        super().__init__(
            seed,
            "\n".join(
                [
                    line("directory", root=self.root, pixels=self.pixels, **settings),
                    line("strategy", replicas=1, devices=1),
                ]
            )
            + "\n",
        )

    def check(self, results, directory):
        paths = open(os.path.join(directory, "paths.txt"), encoding="utf-8").read().split("\n")[:-1]
        if paths != self.paths:
            at = next(
                (i for i, (a, b) in enumerate(zip(paths, self.paths)) if a != b), min(len(paths), len(self.paths))
            )
            return [
                "file %d is %s instead of %s"
                % (at, "".join(paths[at : at + 1]) or "missing", "".join(self.paths[at : at + 1]) or "none")
            ]
        if not self.pixels:
            return []
        complaints = [
            compare("pixels", results.get("pixels"), self.want[0], LIMITS[self.color]),
            compare("labels", results.get("labels"), self.want[1], 0),
        ]
        return [c for c in complaints if c]
