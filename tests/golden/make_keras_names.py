#!/usr/bin/env python3
"""Writes keras_names.txt: the names in Keras's modules, which tests/test_keras_names.py compares with the library's."""
import inspect
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
from keras.src.layers.preprocessing.image_preprocessing.base_image_preprocessing_layer import (
    BaseImagePreprocessingLayer as Augmentation,
)

HERE = os.path.dirname(os.path.abspath(__file__))


def classes(module):
    """Classes by their own names, without aliases."""
    return sorted({c.__name__ for c in vars(module).values() if inspect.isclass(c)})


def functions(module):
    plumbing = {"get", "serialize", "deserialize"}
    return sorted({f.__name__ for f in vars(module).values() if inspect.isfunction(f)} - plumbing)


def main():
    layers = classes(keras.layers)
    augmentations = [name for name in layers if issubclass(getattr(keras.layers, name, object), Augmentation)]
    lists = {
        "layers": [name for name in layers if name not in augmentations],
        "augmentations": augmentations,
        "activations": functions(keras.activations),
        "losses": classes(keras.losses),
        "metrics": classes(keras.metrics),
        "optimizers": classes(keras.optimizers),
    }
    with open(os.path.join(HERE, "keras_names.txt"), "w", encoding="utf-8") as f:
        f.write("# Made by make_keras_names.py with Keras %s; do not edit.\n" % keras.__version__)
        for module, names in lists.items():
            f.write("".join("%s %s\n" % (module, name) for name in names))


main()
