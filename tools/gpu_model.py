#!/usr/bin/env python3
"""Models the seconds of a step on a GPU from the printed graph.

    mirrortrain graph --devices gpu --model resnet50 --batch 256 --dtype bf16 | tools/gpu_model.py - [--gpu h200]
    tools/gpu_model.py --published

Prints a Markdown table: launches, GFLOP, GB and milliseconds of each kind of node, and what bounds it; then images per
second and the error band. --published: the model of a design whose rates are published, beside them. They are
estimates, not measurements.

A kernel takes what the slowest of memory, tensor cores and instruction issue takes, and 0.3 of the others, which do not
overlap completely. Constants of instructions are counts in SASS for sm_90; those of GPUs are what others measured, or
data sheets times the share that good kernels reach.
"""
import argparse
import os
import re
import sys
from collections import namedtuple

# tb: TB/s of memory that a copy reaches; mma, library: TFLOP/s of bfloat16 that mma.sync and cuBLAS or cuDNN reach;
# issue: instructions of a warp per second: processors * 4 * clock * 0.65.
Gpu = namedtuple("Gpu", "tb mma library processors clock")
GPUS = {
    "h200": Gpu(4.3, 510, 680, 132, 1.755e9),
    "h100": Gpu(3.0, 510, 680, 132, 1.755e9),
    "a100": Gpu(1.8, 220, 250, 108, 1.41e9),
    "v100": Gpu(0.8, 80, 95, 80, 1.53e9),
}
LAUNCH = 2.0e-6
OVERLAP = 0.3   # of what is not the slowest
REACHED = 0.8   # of tb, by kernels that read and write several tensors
# Instructions of a warp of a product, by the columns of its tile: a step of 32 of k; where the next tap begins; all
# else, but for its rows; what places of rows cost, where they are not pixels one after another; what a block of a phase
# of a strided gradient works out. As if by four warps: more in a step where the operand is normalized, or is the
# gradient of a normalization.
STEP, TAP, NORM, BACK = {128: 102, 64: 110, 32: 87}, {128: 36, 64: 46, 32: 51}, 620, 500
TILE, PLACES, PHASE = {128: 659, 64: 697, 32: 594}, {128: 87, 64: 173, 32: 173}, 500
# A row of four columns of each thread, by how it ends: with moments; with sums of a gradient through a normalization
# and ReLU or SiLU, and what masks it; written, perhaps added to, and normalized alone; what SiLU takes besides.
# Columns: what their normalization takes, once; what is saved without sums. Unusual: more in kernels for all endings.
MOMENTS, GRADIENT, SILU_GRADIENT, MASKED, WRITTEN, NORMALIZED, SILU = 33, 88, 172, 12, 54, 39, 87
COLUMNS, NO_SUMS, UNUSUAL = 180, 119, 47
# Of a step of a weight gradient of 128 columns by eight warps or of 64 by four, and what the first line of tiles adds
# for the bias; of products of few channels (panel.cuh): a step, a tile, and what a block does besides; of depthwise
# convolutions of 3x3, of an output or a gradient of the input: stored with stride 1 and 2, lazy.
WEIGHTS, WEIGHTS_BIAS = {128: 108, 64: 128}, 55
PANEL_STEP, PANEL_TILE, PANEL_BLOCK = 57, 62, 460
DEPTHWISE, DEPTHWISE_BACK = {1: 18, 2: 26, "lazy": 41}, {1: 44, 2: 28, "lazy": 95}
# Images per second of one GPU in training ResNet50 v1.5 in mixed precision, and whose figures they are.
PUBLISHED = (
    ("v100", "separate", 1200, "NVIDIA DeepLearningExamples, PyTorch 21.03, DGX-1 16 GB"),
    ("a100", "separate", 2470, "NVIDIA DeepLearningExamples, PyTorch 21.03, DGX A100 80 GB"),
    ("h100", "fused", 7136, "MLPerf Training 3.0, 3.0-2053: 13.466 min on 8 GPUs, taken as 36 epochs"),
)


def source(file, pattern):
    """The integers of the one place in src/cuda that matches: the model chooses tiles by the same numbers."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "cuda", file)
    with open(path, encoding="utf-8") as text:
        found = re.findall(pattern, text.read())
    if len(found) != 1:
        raise ValueError("%s has %d places that match %s" % (path, len(found), pattern))
    return [int(number) for number in (found[0] if isinstance(found[0], tuple) else found)]


def defined(file, name):
    return source(file, r"#define %s (\d+)\b" % name)[0]


BLOCKS = defined("tiles.cuh", "MIRT__CU_MM_BLOCKS")
PANEL_ROWS, PANEL_DEPTH, PANEL_BLOCKS, PANEL_TILES = (
    defined("panel.cuh", "MIRT__CU_PANEL_" + name) for name in ("ROWS", "DEPTH", "BLOCKS", "TILES"))
# More columns than the first and up to the second leave a fourth or more of two tiles of 128 empty.
FOURTH_EMPTY = source("multiply.cuh", r"mirt__cu_mm_fourth_empty\(int columns\) "
                                      r"\{ return columns > (\d+) && columns <= (\d+); \}")
Tensor = namedtuple("Tensor", "bytes shape")
Node = namedtuple("Node", "kind name outs flags reads")


def ceil(a, b):
    return -(-a // b)


def fourth_empty(n):
    return FOURTH_EMPTY[0] < n <= FOURTH_EMPTY[1]


def tile_of(m, n, bare):
    """Rows and columns of the tiles of a product that is no panel's (mirt__cu_multiply_tiles)."""
    down = ceil(m, 128)
    if n > 64 and not (bare and fourth_empty(n)) and down * ceil(n, 128) >= BLOCKS:
        return 128, 128
    if down * ceil(n, 64) < BLOCKS:
        return 64, 64
    return 128, 32 if bare and n <= 32 else 64


def panel_of(m, n):
    """Columns of a panel, and tiles and blocks of a product (mirt__cu_panel_plan_of)."""
    down = ceil(m, PANEL_ROWS)
    columns = 64 if n <= 64 or fourth_empty(n) or down * ceil(n, 128) < BLOCKS else 128
    across = ceil(n, columns)
    together = min(max(down * across // PANEL_BLOCKS, 1), PANEL_TILES)
    return columns, down * across, ceil(down, together) * across


def ends(flags, rows, columns=True):
    """Instructions of a thread that finishes so many rows of four columns; `columns`: and what it knows of these."""
    once = COLUMNS if columns else 0
    if "+moments" in flags:
        return rows * MOMENTS
    if "+sums" in flags:
        return once + rows * ((SILU_GRADIENT if "*silu'" in flags else GRADIENT) + MASKED * ("+add" in flags))
    norm = "+normalize" in flags
    row = NORMALIZED if norm and not flags & {"+add", "+bias"} else WRITTEN
    return rows * (row + SILU * ("+silu" in flags)) + once * norm - NO_SUMS * columns


def tensor_of(dtype, shape):
    count = 1
    for d in shape:
        count *= d
    return Tensor(count * {"bfloat16": 2, "float16": 2, "uint8": 1}.get(dtype, 4), shape)


def read(text, batch):
    """Nodes of a graph's text, with the bytes and shapes of their outputs."""
    for line in text.splitlines():
        found = re.match(r"  (\w+)\s+(\S+)\s+((?:bfloat16|float16|float32|int32|uint8) \(.*)", line)
        if not found:
            continue
        kind, name, rest = found.groups()
        outs = []
        for dtype, dims in re.findall(r"(\w+) \(([^)]*)\)", rest):
            outs.append(tensor_of(dtype, [batch if d == "rows" else int(d) for d in dims.split(", ") if d]))
        yield Node(kind, name, outs, set(re.findall(r"\+\w+|\*\w+'?", rest)), re.findall(r"reads (\S+)", rest))


class Model:
    """Adds up nodes by their kind."""

    def __init__(self, gpu):
        self.gpu, self.rows = gpu, {}
        self.at, self.kernels = None, {}  # the index of the node, and (kind, seconds) of each node's kernels
        self.issue = gpu.processors * 4 * gpu.clock * 0.65

    def add(self, kind, bytes_moved, flop=0, instructions=0, flops_reached=None):
        """A kernel; returns its seconds."""
        memory = bytes_moved / (self.gpu.tb * 1e12 * REACHED)
        tensor = flop / ((flops_reached or self.gpu.mma) * 1e12)
        issue = instructions / self.issue
        slowest = max(memory, tensor, issue)
        seconds = slowest + OVERLAP * (memory + tensor + issue - slowest) + LAUNCH
        self.kernels.setdefault(self.at, []).append((kind, seconds))
        row = self.rows.setdefault(kind, [0, 0.0, 0.0, 0.0, {"memory": 0.0, "tensor cores": 0.0, "issue": 0.0}])
        row[0] += 1
        row[1] += flop
        row[2] += bytes_moved
        row[3] += seconds
        row[4][{memory: "memory", tensor: "tensor cores", issue: "issue"}[slowest]] += seconds
        return seconds

    def product(self, kind, m, n, k, taps, bytes_moved, flags, alone, more=0, phases=1):
        """A product by the library's own kernels, in tiles of 128 x 128 or less. alone: of pixels one after another;
        more: instructions of a step; phases: of a strided gradient."""
        rows, columns = tile_of(m, n, not more)
        tiles, steps = ceil(m, rows) * ceil(n, columns), ceil(ceil(k, 8) * 8 * taps, 32)
        warps = max(4, columns // 16)
        step = STEP[columns] + more * 4 / warps + (TAP[columns] * min(1, 32 / k) if taps > 1 else 0)
        around = TILE[columns] + (0 if alone else PLACES[columns]) + PHASE * (phases - 1) / phases
        finished = rows * columns / 128 / warps
        end = ends(flags, finished) + (UNUSUAL * finished if more else 0)
        instructions = tiles * warps * (steps * step + around + end)
        return self.add(kind, bytes_moved, 2.0 * tiles * rows * columns * steps * 32, instructions)

    def panel(self, kind, m, n, k, bytes_moved, flags):
        """A product by panel.cuh, each 16 columns of a tile by a warp."""
        columns, tiles, blocks = panel_of(m, n)
        steps, warps = ceil(k, 32), columns // 16
        instructions = warps * (tiles * (steps * PANEL_STEP + PANEL_TILE + ends(flags, 8, False)) +
                                blocks * (PANEL_BLOCK + ends(flags, 0)))
        return self.add(kind, bytes_moved, 2.0 * tiles * PANEL_ROWS * columns * steps * 32, instructions)

    def total(self):
        return sum(row[3] for row in self.rows.values())

    def table(self):
        lines = ["| kind of node | launches | GFLOP | GB | ms | bound by |", "|---|---|---|---|---|---|"]
        for kind, (count, flop, moved, seconds, bounds) in sorted(self.rows.items(), key=lambda item: -item[1][3]):
            lines.append("| %s | %d | %.0f | %.2f | %.2f | %s |" %
                         (kind, count, flop / 1e9, moved / 1e9, seconds * 1e3, max(bounds, key=bounds.get)))
        return "\n".join(lines)


def step(nodes, gpu, parameters, shapes=None):
    """The model of a training or forward step, of a list of nodes. shapes: {name: (kernel, image)} of convolutions that
    have no gradients, whose text says what those are; an image is a Tensor."""
    model = Model(gpu)
    forward = {node.name: node for node in nodes if node.kind == "conv2d"}
    weights = {name: kernel for name, (kernel, _) in (shapes or {}).items()}
    inputs = {name: image for name, (_, image) in (shapes or {}).items()}
    for node in nodes:
        for out in node.outs:
            if node.kind in ("conv2d_weight_grad", "conv2d_input_grad") and len(out.shape) == 4 and out.bytes and \
                    out is not (node.outs[0] if node.kind == "conv2d_input_grad" else None):
                weights[node.name] = out.shape
        if node.kind == "conv2d_input_grad":
            inputs[node.name] = node.outs[0]
    before = None
    for model.at, node in enumerate(nodes):
        out = node.outs[0]
        if node.kind == "conv2d":
            x = inputs.get(node.name) or before
            convolution(model, node, forward, weights, x, out)
        elif node.kind in ("conv2d_input_grad", "conv2d_weight_grad"):
            convolution(model, node, forward, weights, inputs.get(node.name), forward[node.name].outs[0])
        elif node.kind == "normalize":
            model.add("normalize", out.bytes * (3 if "+add" in node.flags else 2))
        elif node.kind == "norm_grad_input":
            model.add("norm_grad_input", 3 * out.bytes)
        elif node.kind in ("norm_grad_sums", "norm_stats"):
            model.add(node.kind, 2 * before.bytes)
        elif node.kind == "matmul":
            model.add("matmul", 2 * sum(tensor.bytes for tensor in node.outs))
        elif node.kind == "reduce" and before is not None:
            model.add("other", before.bytes * (2 if "*product" in node.flags else 1))
        elif node.kind == "binary" and "+add" in node.flags:
            model.add("other", 3 * out.bytes)
        elif node.kind not in ("constant", "all_reduce", "update"):
            model.add("other", 2 * sum(tensor.bytes for tensor in node.outs))
        if len(out.shape) == 4 and node.kind != "conv2d_weight_grad":
            before = out
    model.at = None
    if parameters:
        model.add("update", 28.0 * parameters)
    return model


def filled(model, tensor):
    """An operand that is first written down in 16 bits, its channels filled up; returns what products read."""
    rows, h, w, channels = tensor.shape
    written = 2.0 * rows * h * w * ceil(channels, 8) * 8
    model.add("operands of products", tensor.bytes + written)
    return Tensor(written, tensor.shape)


def convolution(model, node, forward, weights, x, y):
    """A convolution or its gradients; x: the image, y: the output."""
    shape = weights.get(node.name)
    if not shape or x is None:  # the first one of a step without its gradient
        shape = shape or [3, 3, 3, y.shape[3]]
    kh, kw, ci, co = shape
    taps, images = kh * kw, y.shape[0]
    if x is None:
        stride = 2
        sides = [side * stride for side in y.shape[1:3]]
        x = Tensor(images * sides[0] * sides[1] * 4 * ci, [images, *sides, ci])
    lazy_x = any(not name.endswith("'") and not name.startswith("x*") for name in node.reads)
    lazy_dy = any(name.endswith("'") for name in node.reads)
    pixels, sources = images * y.shape[1] * y.shape[2], images * x.shape[1] * x.shape[2]
    both = "+weight" in node.flags
    extra = x.bytes * (("+add" in node.flags) + ("+sums" in node.flags))
    if ci == 1 and co > 1 and x.shape[3] > 1:
        how = "lazy" if node.reads else 1 if pixels == sources else 2
        if node.kind == "conv2d":
            model.add("depthwise", x.bytes + y.bytes, instructions=pixels * co * DEPTHWISE[how] / 32)
        else:
            model.add("depthwise gradients", 2 * x.bytes + 2 * y.bytes + extra,
                      instructions=sources * co * DEPTHWISE_BACK[how] / 32)
        return
    strided = 1 if kh > 1 else pixels / sources
    alone = taps == 1 and pixels == sources
    if node.kind == "conv2d":
        if ci % 8:
            x = filled(model, x)
        if alone and ci <= PANEL_DEPTH and not lazy_x:
            model.panel("conv2d", pixels, co, ci, x.bytes + y.bytes, node.flags)
        else:
            model.product("conv2d", pixels, co, ci, taps, x.bytes * strided + y.bytes, node.flags, alone,
                          NORM if lazy_x else 0)
    if node.kind == "conv2d_input_grad" and alone and not lazy_dy and not node.flags & {"+add", "+sums"}:
        model.add("conv2d_input_grad, cuBLAS", x.bytes + y.bytes, 2.0 * pixels * ci * co,
                  flops_reached=model.gpu.library)
    elif node.kind == "conv2d_input_grad" and alone and co <= PANEL_DEPTH and not lazy_dy:
        model.panel("conv2d_input_grad", pixels, ci, co, x.bytes + y.bytes + extra, node.flags)
    elif node.kind == "conv2d_input_grad":
        model.product("conv2d_input_grad", sources, ci, co, taps * pixels / sources if kh > 1 else pixels / sources,
                      y.bytes * (2 if lazy_dy else 1) + x.bytes + extra, node.flags, alone, BACK if lazy_dy else 0,
                      sources / pixels)
    if (both or node.kind == "conv2d_weight_grad") and taps == 1 and pixels == sources and not node.reads:
        model.add("conv2d_weight_grad, cuBLAS", x.bytes + y.bytes, 2.0 * pixels * ci * co,
                  flops_reached=model.gpu.library)
        if len(node.outs) > 1 and not both:
            model.add("bias gradient", y.bytes)
    elif both or node.kind == "conv2d_weight_grad":
        rows = taps * ceil(ci, 8) * 8
        columns = 128 if rows > 64 and co > 64 else 64
        down, across, steps = ceil(rows, 128), ceil(co, columns), pixels / 32
        for lazy, tensor, channels in ((lazy_x, x, ci), (lazy_dy, y, co)):
            if lazy or channels % 8:
                filled(model, tensor)
        bias = WEIGHTS_BIAS if len(node.outs) > 1 and not both else 0
        model.add("conv2d_weight_grad", x.bytes * strided + y.bytes, 2.0 * down * across * 128 * columns * pixels,
                  across * steps * columns / 16 * (down * WEIGHTS[columns] + bias))


def resnet50():
    """(pixels in, pixels out, input channels, output channels, kernel side, residual, relu) of each convolution."""
    yield 224 * 224, 112 * 112, 3, 64, 7, False, True
    side, channels = 56, 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            small = side // stride
            yield side * side, side * side, channels, width, 1, False, True
            yield side * side, small * small, width, width, 3, False, True
            yield small * small, small * small, width, 4 * width, 1, True, True
            if block == 0:
                yield side * side, small * small, channels, 4 * width, 1, False, False
            side, channels = small, 4 * width


def known(gpu, design, batch=256):
    """Images per second of ResNet50 by a known design: convolutions of cuDNN; normalization, activation and residual
    "separate", as PyTorch's, or "fused" into convolutions but for one pass each way, as in MLPerf's MXNet."""
    model = Model(gpu)
    for source, pixels, ci, co, side, residual, relu in resnet50():
        x, y = 2.0 * batch * source * ci, 2.0 * batch * pixels * co
        flop = 2.0 * batch * pixels * ci * co * side * side
        for kind in ("forward", "weight gradient") + (("input gradient",) if ci > 3 else ()):
            model.add(kind, x + y, flop, flops_reached=gpu.library)
        if design == "separate":
            model.add("normalization", 3 * y)
            model.add("normalization gradient", 5 * y)
            if relu:
                model.add("activation", 2 * y)
                model.add("activation gradient", 3 * y)
            if residual:
                model.add("residual", 3 * y)
                model.add("residual gradient", 3 * y)
        else:
            model.add("normalization", (3 if residual else 2) * y)
            model.add("normalization gradient", (4 if residual else 3) * y)
    model.add("pooling", 2.0 * batch * 64 * (112 * 112 + 56 * 56) * 3)
    model.add("update", 25.6e6 * 28)
    return batch / model.total()


def band():
    """The largest ratio between the model and a published rate, either way."""
    worst = 1
    for name, design, rate, _ in PUBLISHED:
        ratio = known(GPUS[name], design) / rate
        worst = max(worst, ratio, 1 / ratio)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graph", nargs="?", help="the text of mirrortrain graph, - for stdin")
    parser.add_argument("--gpu", choices=sorted(GPUS), default="h200")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--published", action="store_true", help="the model beside published rates")
    args = parser.parse_args()
    if args.published:
        print("| ResNet50, batch 256 | published | model | model to published | |\n|---|---|---|---|---|")
        for name, design, rate, source in PUBLISHED:
            modeled = known(GPUS[name], design)
            print("| %s, %s | %d | %.0f | %.2f | %s |" % (name, design, rate, modeled, modeled / rate, source))
        return 0
    if not args.graph:
        parser.error("the text of a graph, or --published")
    try:
        with sys.stdin if args.graph == "-" else open(args.graph, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        print("gpu_model: %s: %s" % (args.graph, error), file=sys.stderr)
        return 1
    nodes = list(read(text, args.batch))
    if not any(node.kind == "conv2d" for node in nodes):
        print("gpu_model: no convolutions in it; it reads what mirrortrain graph prints", file=sys.stderr)
        return 1
    parameters = sum(int(n) for n in re.findall(r"update\s.*?bucket \d+, (\d+)", text))
    model = step(nodes, GPUS[args.gpu], parameters)
    rate, error = args.batch / model.total(), band()
    print(model.table())
    print("\n%s, batch %d: %.1f ms, %.0f images/s, between %.0f and %.0f by the error of published rates" %
          (args.gpu, args.batch, model.total() * 1e3, rate, rate / error, rate * error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
