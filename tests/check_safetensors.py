#!/usr/bin/env python3
"""Opens a file that mirrortrain saved with Python's safetensors and prints what is in it.
Exit status 1 when it does not open or is not what --expect-mnist says."""
import argparse
import json
import sys

import numpy as np
from safetensors import safe_open

MNIST = {
    "conv2d/kernel": (3, 3, 1, 32), "conv2d/bias": (32,),
    "dense/kernel": (5408, 64), "dense/bias": (64,),
    "dense_1/kernel": (64, 10), "dense_1/bias": (10,),
}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file")
parser.add_argument("--expect-mnist", action="store_true", help="the mnist model's weights, as Keras shapes them")
args = parser.parse_args()

problems, tensors = [], {}
try:
    with safe_open(args.file, framework="numpy") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}
except Exception as error:
    sys.exit("%s: %s" % (args.file, error))
for name, tensor in sorted(tensors.items()):
    print("%-32s %-8s %s" % (name, tensor.dtype, list(tensor.shape)))
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        problems.append("%s holds values that are not finite" % name)
for key, value in sorted(metadata.items()):
    print("metadata %s: %d characters" % (key, len(value)))
    if value.lstrip().startswith(("{", "[")):
        try:
            json.loads(value)
        except ValueError as error:
            problems.append("metadata %s is not JSON: %s" % (key, error))
if args.expect_mnist:
    for name, shape in MNIST.items():
        if name not in tensors:
            problems.append("%s is missing" % name)
        elif tensors[name].shape != shape or tensors[name].dtype != np.float32:
            problems.append("%s is %s %s, expected float32 %s"
                            % (name, tensors[name].dtype, list(tensors[name].shape), list(shape)))
for problem in problems:
    print("%s: %s" % (args.file, problem), file=sys.stderr)
sys.exit(bool(problems))
