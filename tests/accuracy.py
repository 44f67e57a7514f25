#!/usr/bin/env python3
"""Compares training in bfloat16 with float32: accuracy.py build/tests/accuracy_networks; prints TAP.

The MNIST network on MIRT_MNIST_DIR, and MobileNetV2 0.35, fine-tuned from its ImageNet weights (MIRT_WEIGHTS_DIR) on
photographs (MIRT_CATSDOGS_DIR): the median accuracy of three seeds within 0.5 points. What is missing is skipped. 400
photographs train, all others test."""
import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
MNIST = os.environ.get("MIRT_MNIST_DIR", "data/mnist")
PHOTOS = os.environ.get("MIRT_CATSDOGS_DIR", "data/cats-vs-dogs")
WEIGHTS = os.path.join(
    os.environ.get("MIRT_WEIGHTS_DIR", "data/weights"), "mobilenet_v2_0.35_224_imagenet_notop.safetensors"
)
SIZE, TRAINED, SEEDS = 128, 400, (0, 1, 2)
POLICIES = ("mixed_bfloat16", "store_bfloat16")


def write_photographs(directory):
    """False: there are too few."""
    import numpy as np
    import tensorflow as tf
    paths = [sorted(glob.glob(os.path.join(PHOTOS, "*", kind, "*.jpg"))) for kind in ("cats", "dogs")]
    pairs = [path for pair in zip(*paths) for path in pair]
    if len(pairs) <= TRAINED:
        return False
    for name, part in (("train", pairs[:TRAINED]), ("test", pairs[TRAINED:])):
        with open(os.path.join(directory, name + ".u8"), "wb") as out:
            for path in part:
                image = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (SIZE, SIZE))
                out.write(np.clip(np.rint(image.numpy()), 0, 255).astype(np.uint8).tobytes())
        (np.arange(len(part)) % 2).astype(np.uint8).tofile(os.path.join(directory, name + "_labels.u8"))
    return True


def accuracy(command, policy):
    """The median over the seeds; None: it failed."""
    found = []
    for seed in SEEDS:
        run = subprocess.run(command + [policy, str(seed)], capture_output=True, text=True)
        match = re.search(r"accuracy=(\S+)", run.stdout)
        if run.returncode or not match:
            print("# %s" % (run.stderr.strip() or "no accuracy was printed"))
            return None
        found.append(float(match.group(1)))
    print("# %s, seeds %s: %s" % (policy, SEEDS, found), flush=True)
    return statistics.median(found)


def compare(number, name, command):
    single, good = accuracy(command, "float32"), True
    for policy in POLICIES:
        half = accuracy(command, policy)
        near = single is not None and half is not None and half >= single - 0.005
        found = "%s: %s in float32, %s in %s" % (name, single, half, policy)
        print("%sok %d - %s" % ("" if near else "not ", number, found), flush=True)
        number, good = number + 1, good and near
    return good


def skip(number, why):
    for i in range(len(POLICIES)):
        print("ok %d # SKIP %s" % (number + i, why))


def main():
    program, good = sys.argv[1], True
    if os.path.isdir(MNIST):
        good = compare(1, "MNIST", [program, "mnist", MNIST])
    else:
        skip(1, "no MNIST in MIRT_MNIST_DIR=%s" % MNIST)
    with tempfile.TemporaryDirectory() as directory:
        try:
            there = os.path.exists(WEIGHTS) and write_photographs(directory)
            why = "no photographs in MIRT_CATSDOGS_DIR=%s, or no weights in MIRT_WEIGHTS_DIR=%s" % (PHOTOS, WEIGHTS)
        except ImportError as error:
            there, why = False, "%s; PEER_PYTHON=/path/to/python with tensorflow" % error
        if there:
            good = compare(3, "MobileNetV2 0.35 on photographs", [program, "photographs", directory, WEIGHTS]) and good
        else:
            skip(3, why)
    print("1..4")
    sys.exit(not good)


main()
