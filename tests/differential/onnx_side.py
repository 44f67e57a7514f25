"""Compares what ONNX Runtime computes from a model's .onnx files with the model's own outputs."""
import os

import numpy as np

try:
    import onnx
    import onnxruntime
except ImportError:
    onnx = None

LIMIT = 1e-4  # of an output's largest number, or of 1
checked = 0   # files so far


def swapped(a, first):
    """(rows, height, width, channels) with the channels first."""
    return a.transpose(0, 3, 1, 2) if first and a.ndim == 4 else a


def outputs_of(path, x, first):
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = [np.ascontiguousarray(swapped(a.astype(np.float32), first)) for a in x]
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), arrays)})


def complaints(directory, text, x, layers, results):
    """text: the model's description."""
    global checked
    found = []
    for name in ("folded", "kept") if onnx else ():
        path = os.path.join(directory, name + ".onnx")
        if not os.path.exists(path):
            found += [] if "sparsemax" in text else ["%s.onnx is missing" % name]
            continue
        checked += 1
        for layer, have in zip(layers, outputs_of(path, x, name == "kept")):
            want = results["after/" + layer].astype(np.float32)
            if name == "kept" and have.ndim == 4:
                have = have.transpose(0, 2, 3, 1)
            same = have.size == want.size
            difference = float(np.max(np.abs(have.reshape(-1) - want.reshape(-1)))) if same else np.inf
            limit = LIMIT * max(1, float(np.max(np.abs(want))))
            if not difference <= limit:
                found.append("%s.onnx, %s: differs by %g, at most %g" % (name, layer, difference, limit))
    return found
