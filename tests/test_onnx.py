#!/usr/bin/env python3
"""ONNX Runtime computes what mirrortrain does, and the checker takes the files; prints TAP.

test_onnx.py [NETWORKS]: with NETWORKS, as onnx_models.c takes them, these; otherwise operations and small models. The
packages onnx and onnxruntime may be in this Python, or in the one that MIRT_ONNX_PYTHON names.
"""
import glob
import os
import subprocess
import sys
import tempfile

import tap

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/tests/onnx_models")
ROWS = 3
LIMIT = 1e-4  # of an output's largest number, or of 1
# What no prediction contains, or ONNX does not have.
REFUSED = ("loss", "accuracy", "circle", "all_reduce", "dropout_mask", "sparsemax")

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as missing:
    other = os.environ.get("MIRT_ONNX_PYTHON")
    if other and other != sys.executable:
        os.execv(other, [other] + sys.argv)
    tap.skip("%s; pip install onnx onnxruntime" % missing)
    sys.exit(tap.done())


def shape_of(value):
    return [d.dim_value or ROWS for d in value.type.tensor_type.shape.dim]


def read_arrays(path, values):
    """The arrays of these inputs or outputs; images are stored in mirrortrain's order."""
    numbers, at, arrays = numpy.fromfile(path[:-5] + ".f32", numpy.float32), 0, []
    for shape in map(shape_of, values):
        part = numbers[at : at + int(numpy.prod(shape))]
        at += part.size
        if "+first" in path and len(shape) == 4:
            part = part.reshape([shape[i] for i in (0, 2, 3, 1)]).transpose(0, 3, 1, 2)
        arrays.append(numpy.ascontiguousarray(part.reshape(shape)))
    if at != numbers.size:
        raise ValueError("%d numbers, not %d" % (at, numbers.size))
    return arrays


def difference(have, want):
    if have.shape != want.shape:
        raise ValueError("%s, not %s" % (have.shape, want.shape))
    finite = numpy.isfinite(want)
    if not numpy.array_equal(have[~finite], want[~finite], equal_nan=True):
        raise ValueError("infinities or NaN in other places")
    have, want = have[finite], want[finite]
    return float(numpy.max(numpy.abs(have - want), initial=0)) / max(1, float(numpy.max(numpy.abs(want), initial=0)))


def spread(array):
    """How much rows of an output differ: what does not depend on the input would agree whatever is computed."""
    return float(numpy.nanmax(numpy.abs(array - array[:1]))) / max(1, float(numpy.nanmax(numpy.abs(array))))


def run(path):
    """The model, the largest difference, and how much the rows of its first output differ."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = list(model.graph.input)
    arrays = read_arrays(path, inputs + list(model.graph.output))
    got = session.run(None, {value.name: array for value, array in zip(inputs, arrays)})
    return model, max(difference(*pair) for pair in zip(got, arrays[len(inputs) :])), spread(got[0])


def run_all(home, least):
    """At least so many models, by name, and how much the rows of their outputs differ."""
    models, spreads, worst = {}, {}, 0
    for path in sorted(glob.glob(home + "/*.onnx")):
        name = os.path.basename(path)[:-5]
        try:
            models[name], most, spreads[name] = run(path)
        except Exception as error:  # the checker's and the runtime's errors have no class in common
            tap.ok(False, "%s: %s" % (name, str(error).strip()[:300].replace("\n", " ")))
            continue
        worst = max(worst, most) if most <= LIMIT else numpy.inf
        if not most <= LIMIT:
            tap.ok(False, "%s: differs by %g" % (name, most))
    enough = len(models) >= least
    tap.ok(enough and worst <= LIMIT, "%d models: ONNX Runtime differs by %.2g at most" % (len(models), worst))
    return models, spreads


def check_refused(home):
    said = [open(path).read().strip() for path in glob.glob(home + "/*.refused")]
    usual = ["%s cannot be written as ONNX" % op for op in REFUSED] + ["cube is an op of your own"]
    others = [text for text in said if not any(part in text for part in usual)]
    tap.ok(said and not others, "%d are refused for what ONNX does not have: %s" % (len(said), others[:3]))


def ops_of(model):
    return [node.op_type for node in model.graph.node]


def check_forms(models):
    """Names, orders of axes, and what becomes of normalizations."""
    folded, kept, first = models["residual"], models["residual+norm"], models["residual+first"]
    tap.ok(
        "BatchNormalization" not in ops_of(folded) and ops_of(kept).count("BatchNormalization") == 2,
        "normalization is folded into the convolutions before it, or kept",
    )
    weights = {w.name: list(w.dims) for w in kept.graph.initializer}
    tap.ok(
        weights.get("conv2d/kernel") == [8, 3, 3, 3] and weights.get("batch_normalization/moving_variance") == [8],
        "weights have their names: %s" % sorted(weights)[2:5],
    )
    ends = [value.name for value in list(kept.graph.input) + list(kept.graph.output)]
    tap.ok(ends == ["input_layer", "dense"], "the ends have the names of their layers: %s" % ends)
    ends = [value.name for value in list(models["view"].graph.input) + list(models["view"].graph.output)]
    tap.ok(ends == ["input_layer", "conv2d", "batch_normalization"], "a view's, too: %s" % ends)
    tap.ok(
        shape_of(first.graph.input[0]) == [ROWS, 3, 15, 14]
        and first.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows",
        "channels come first, rows are free",
    )
    turns = ops_of(first).count("Transpose"), ops_of(folded).count("Transpose")
    tap.ok(turns == (0, 1), "no image is transposed then, and one otherwise: %s" % (turns,))
    reader = models["shared+norm"].graph
    kernels = [node.input[1] for node in reader.node if node.op_type == "Conv"]
    tap.ok(len(kernels) == 2 and len(set(kernels)) == 1, "weights that are used twice are stored once: %s" % kernels)


def main():
    networks = sys.argv[1:2]
    with tempfile.TemporaryDirectory() as home:
        made = subprocess.run([PROGRAM, home] + networks, capture_output=True, text=True)
        tap.ok(made.returncode == 0, "onnx_models: " + made.stdout.strip()[:300])
        models, spreads = run_all(home, 2 * len(networks[0].split()) if networks else 440)
        if networks:
            least = min(spreads, key=spreads.get)
            tap.ok(spreads[least] > 0.01, "outputs depend on images, least: %s, %.2g" % (least, spreads[least]))
        else:
            check_refused(home)
            check_forms(models)


if __name__ == "__main__":
    main()
    sys.exit(tap.done())
