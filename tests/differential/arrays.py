"""Draws a model's weights and data in float32, and writes the library's files."""

import json
import struct

import numpy as np

from spec import numbers


def draw_weight(random, path, shape):
    name = path.split("/")[-1]
    normal = lambda scale: random.standard_normal(shape) * scale
    if "kernel" in name:
        fan = int(np.prod(shape[:2])) if name == "depthwise_kernel" else int(np.prod(shape[:-1]))
        values = normal(1.2 / np.sqrt(max(fan, 1)))
    elif name in ("gamma", "scale"):
        values = random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0, 1.0], shape)
    elif name == "moving_variance":
        values = random.uniform(0.5, 2, shape)
    elif name == "alpha":
        values = random.uniform(0.1, 0.4, shape)
    else:
        values = normal(0.3)
    return values.astype(np.float32)


def draw_labels(random, out, rows, soft):
    shape, loss = out["shape"], out["loss"]
    if numbers(loss):
        return random.randint(0, shape[-1], [rows] + shape[:-1]).astype(np.int32)
    if loss == "kl_divergence" or "categorical" in loss:
        if soft and random.random_sample() < 0.3:  # labels that are probabilities; weights of classes need one-hot ones
            p = random.uniform(0.1, 1, [rows] + shape)
            return (p / p.sum(-1, keepdims=True)).astype(np.float32)
        return np.eye(shape[-1], dtype=np.float32)[random.randint(0, shape[-1], [rows] + shape[:-1])]
    if "binary" in loss or loss == "poisson":
        return random.randint(0, 2, [rows] + shape).astype(np.float32)
    return (random.standard_normal([rows] + shape) * 0.7).astype(np.float32)


def draw_data(spec, shapes, attempt):
    """Inputs, labels, weights of samples (or None) and weights by name, `shapes`: theirs."""
    random = np.random.RandomState((spec["seed"] * 1000003 + attempt) % 2**32)
    rows, xs = spec["train"]["rows"], []
    for x in spec["inputs"]:
        shape = [rows] + list(x["shape"])
        xs.append(
            random.randint(0, 256, shape).astype(np.uint8)
            if x["dtype"] == "uint8"
            else (random.standard_normal(shape) * 0.8).astype(np.float32)
        )
    ys = [draw_labels(random, out, rows, not spec["train"]["class_weights"]) for out in spec["outputs"]]
    weights = random.uniform(0.2, 2, rows).astype(np.float32) if spec["train"]["sample_weights"] else None
    return {
        "x": xs,
        "y": ys,
        "weights": weights,
        "values": {path: draw_weight(random, path, shape) for path, shape in shapes.items()},
    }


def perturbed(data, seed):
    """The same but for a rounding: each float32 number of inputs and weights moves by at most one place."""
    random = np.random.RandomState(seed)

    def moved(a):
        if a.dtype != np.float32:
            return a
        side = random.randint(-1, 2, a.shape)
        return np.where(side == 0, a, np.nextafter(a, np.where(side > 0, np.inf, -np.inf).astype(np.float32)))

    return dict(data, x=[moved(x) for x in data["x"]], values={k: moved(v) for k, v in data["values"].items()})


def write_safetensors(path, arrays):
    header, at = {}, 0
    for name, a in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [at, at + 4 * a.size]}
        at += 4 * a.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in arrays.values():
            f.write(np.ascontiguousarray(a, np.float32).tobytes())
