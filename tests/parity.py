#!/usr/bin/env python3
"""Networks in training beside Keras in float64: parity.py build/tests/parity_networks [CASE ...]; prints TAP.

MIRT_CATSDOGS_DIR has train/cats/*.jpg and train/dogs/*.jpg, MIRT_WEIGHTS_DIR the ImageNet weights of MobileNetV2 0.35
without its top as .safetensors. What is missing is skipped, or, photographs of random weights, drawn."""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

from tap import done, ok, skip

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "differential"))
from arrays import write_safetensors  # noqa: E402

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
try:
    import keras
    import tensorflow as tf
except ImportError as error:
    print("1..0 # SKIP %s; make parity PEER_PYTHON=/path/to/python with tensorflow" % error)
    sys.exit(0)

PHOTOS = os.environ.get("MIRT_CATSDOGS_DIR", "data/cats-vs-dogs")
WEIGHTS = os.environ.get("MIRT_WEIGHTS_DIR", "data/weights")
IMAGENET = "mobilenet_v2_0.35_224_imagenet_notop.safetensors"
A = keras.applications
# name: network, Keras's, preprocessing, alpha, size, rows, steps, batches whose gradients are compared, pretrained
CASES = {
    "mobilenet_v2": ("mobilenet_v2", A.MobileNetV2, A.mobilenet_v2.preprocess_input, 0.35, 128, 8, 20, 9, True),
    "resnet50": ("resnet50", A.ResNet50, A.resnet50.preprocess_input, 1, 96, 8, 1, 3, False),
    "efficientnet_v2_b0": ("efficientnet_v2_b0", A.EfficientNetV2B0, lambda x: x, 1, 128, 8, 1, 3, False),
}
RATE = 1e-5


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {k: np.frombuffer(data[v["data_offsets"][0]:v["data_offsets"][1]], np.float32).reshape(v["shape"])
            for k, v in header.items() if k != "__metadata__"}


def photographs(number, size):
    """Cats and dogs in turns, resized; None when there are too few."""
    kinds = [sorted(glob.glob(os.path.join(PHOTOS, "train", kind, "*.jpg"))) for kind in ("cats", "dogs")]
    if min(map(len, kinds)) * 2 < number:
        return None
    images = [
        tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(kinds[i % 2][i // 2]), channels=3), (size, size))
        for i in range(number)
    ]
    return np.stack([np.clip(np.rint(image.numpy()), 0, 255).astype(np.uint8) for image in images])


def drawn(number, size):
    """Smooth noise."""
    random = np.random.default_rng(5)
    image = sum(
        np.asarray(tf.image.resize(random.normal(size=(number, 2**k, 2**k, 3)), (size, size), "bicubic"))
        for k in range(1, 6)
    )
    return np.clip(128 + 40 * image, 0, 255).astype(np.uint8)


class Network:
    """A network of Keras with two classes on top, in a dtype."""

    def __init__(self, dtype, build, preprocess, alpha, size):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)
        options = {"alpha": alpha} if build is A.MobileNetV2 else {}
        base = build(weights=None, include_top=False, pooling="avg", input_shape=(size, size, 3), **options)
        for layer in base.layers:
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0
        head = keras.layers.Dense(2, name="head")
        self.model = keras.Model(base.input, head(base.output))
        self.preprocess, self.dtype = preprocess, dtype
        self.variables = {"base/%s/%s" % (layer.name, v.name): v for layer in base.layers for v in layer.weights
                          if not isinstance(layer, keras.layers.Normalization)}
        self.variables.update({"head/" + v.name: v for v in head.weights})
        self.trained = [name for name, v in self.variables.items() if v.trainable]
        self.optimizer = keras.optimizers.Adam(RATE)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(
                    keras.losses.sparse_categorical_crossentropy(y, self.model(x, training=True), from_logits=True)
                )
            return loss, tape.gradient(loss, [self.variables[name].value for name in self.trained])
        self.step_function = step

    def assign(self, values):
        for name, v in self.variables.items():
            v.assign(values[name])

    def step(self, images, labels):
        """The loss before the update."""
        loss, gradients = self.step_function(self.preprocess(images.astype(self.dtype)), labels)
        self.optimizer.apply(gradients, [self.variables[name] for name in self.trained])
        return float(loss)

    def gradients(self, images, labels):
        gradients = self.step_function(self.preprocess(images.astype(self.dtype)), labels)[1]
        return {name: np.asarray(g, np.float64) for name, g in zip(self.trained, gradients)}


def ours(program, name, alpha, rows, steps, values, images, labels, weights=None):
    """Losses of steps on batches of `rows` images, and the gradients of the first; (None, None): it failed."""
    with tempfile.TemporaryDirectory() as directory:
        at = lambda file: os.path.join(directory, file)
        write_safetensors(at("weights.safetensors"), values)
        images.tofile(at("images.u8"))
        labels.tofile(at("labels.u8"))
        command = [program, name, str(alpha), str(images.shape[1]), str(rows), str(steps), str(RATE), directory] + (
            [weights] if weights else []
        )
        if subprocess.run(command).returncode != 0:
            return None, None
        gradients, first, flat = {}, 0, np.fromfile(at("gradients.f32"), np.float32).astype(np.float64)
        for line in open(at("gradients.txt")):
            key, size = line.split()
            gradients[key] = flat[first:first + int(size)].reshape(values[key].shape)
            first += int(size)
        return np.loadtxt(at("losses.txt"), ndmin=1), gradients


def distance(a, b):
    return np.linalg.norm(a.ravel() - b.ravel())


def compare_gradients(name, have, true, single):
    """Each a list over batches. The median over batches counts: a relu whose input is zero but for rounding may go
    either way in
    one, which changes gradients by a thousandth of their norm, or more. `single`: those of float32 Keras, twice whose
    distance is
    allowed, or twice its median over variables (two numbers may be near by chance); None: 2e-3 of the norm is."""
    largest = max(np.linalg.norm(g) for g in true[0].values())
    zeros, worst_zero, bad, rows = 0, 0, [], []
    usual = (
        np.median(
            [
                distance(s[key], t[key]) / np.linalg.norm(t[key])
                for s, t in zip(single or [], true)
                for key in t
                if np.linalg.norm(t[key]) > 1e-9 * largest
            ]
        )
        if single
        else 1e-3
    )
    for key in true[0]:
        norm = np.median([np.linalg.norm(t[key]) for t in true])
        far = np.median([distance(h[key], t[key]) for h, t in zip(have, true)])
        keras_far = np.median([distance(s[key], t[key]) for s, t in zip(single, true)]) if single else 0
        limit = 2 * max(keras_far, usual * norm)
        if norm < 1e-9 * largest:  # a bias before batch normalization: rounding is all there is
            zeros, worst_zero, limit = zeros + 1, max(worst_zero, far / largest), max(1e-6 * largest, 2 * keras_far)
        else:
            rows.append((far / norm, keras_far / norm, far / limit))
        if not far <= limit:
            bad.append(key)
            print("# %s: %.3g of the norm, limit %.3g" % (key, far / norm, limit / norm))
    rows = np.array(rows)
    text = "median %.1g, worst %.1g of the norm" % (np.median(rows[:, 0]), rows[:, 0].max())
    if single:
        text += "; float32 Keras %.1g, %.1g" % (np.median(rows[:, 1]), rows[:, 1].max())
    ok(
        not bad and set(have[0]) == set(true[0]),
        "%s: gradients of %d variables, %d batches: %s; worst %.2f of what is allowed; %d true zeros within %.0g of the"
        " largest" % (name, len(rows), len(true), text, rows[:, 2].max(), zeros, worst_zero),
    )


def run(program, case):
    name, build, preprocess, alpha, size, rows, steps, batches, pretrained = CASES[case]
    weights = os.path.join(WEIGHTS, IMAGENET) if pretrained else None
    images = photographs(rows * max(steps, batches), size)
    if pretrained and (images is None or not os.path.exists(weights)):
        return skip(
            "%s: no photographs in MIRT_CATSDOGS_DIR=%s, or no weights in MIRT_WEIGHTS_DIR=%s" % (name, PHOTOS, WEIGHTS)
        )
    if images is None:
        images = drawn(rows * max(steps, batches), size)
    labels = (np.arange(len(images)) % 2).astype(np.uint8)
    parts = [slice(i * rows, (i + 1) * rows) for i in range(max(steps, batches))]
    network = Network("float64", build, preprocess, alpha, size)
    values = {key: np.asarray(v).astype(np.float32) for key, v in network.variables.items()}
    if pretrained:
        values.update({"base/" + key: v for key, v in read_safetensors(weights).items()})
    losses, gradients = ours(program, name, alpha, rows, steps, values, images, labels, weights)
    have = [gradients] + [
        ours(program, name, alpha, rows, 1, values, images[p], labels[p])[1] for p in parts[1:batches]
    ]
    if not all(have):
        return ok(False, "%s: parity_networks failed" % name)
    network.assign(values)
    true = []
    for p in parts[:batches]:
        true.append(network.gradients(images[p], labels[p]))
        network.assign(values)
    off = [abs(loss / network.step(images[p], labels[p]) - 1) for loss, p in zip(losses, parts)]
    ok(
        max(off) <= 1e-4,
        "%s: %d losses, %.6f to %.6f, within %.1e of float64's" % (name, steps, losses[0], losses[-1], max(off)),
    )
    single = None
    if not pretrained:
        network, single = Network("float32", build, preprocess, alpha, size), []
        for p in parts[:batches]:
            network.assign(values)
            single.append(network.gradients(images[p], labels[p]))
    compare_gradients(name, have, true, single)


for case in sys.argv[2:] or CASES:
    run(os.path.abspath(sys.argv[1]), case)
sys.exit(done())
