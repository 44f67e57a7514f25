#!/usr/bin/env python3
"""The model of a step on a GPU: its sums, and published rates."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import gpu_model
from tap import done, ok

# As mirrortrain graph prints it: one convolution of 3x3 that reads a normalization lazily or not, and its gradients.
LINES = """\
training step of one replica, as recorded, differentiated and fused:
  normalize                bn             bfloat16 (rows, 56, 56, 64) @arena+0  +relu
  conv2d                   conv           bfloat16 (rows, 56, 56, 64) @arena+0, float32 (64) @state+0%s  +moments
  conv2d_weight_grad       conv           float32 (3, 3, 64, 64) @gradient+0, float32 (64) @gradient+64%s
  conv2d_input_grad        conv           bfloat16 (rows, 56, 56, 64) @arena+0%s
  update     bucket 0, 36928 elements
"""
GPU = gpu_model.GPUS["h200"]


def seconds(lazy):
    text = LINES % (("  reads bn+relu", "  reads bn+relu reads bn'", "  reads bn'") if lazy else ("", "", ""))
    return gpu_model.step(list(gpu_model.read(text, 256)), GPU, 36928)


stored, lazy = seconds(False), seconds(True)
pixels = 256 * 56 * 56
flop = 2 * pixels * 64 * 64 * 9
ok(stored.rows["conv2d"][1] == flop and stored.rows["conv2d_input_grad"][1] == flop,
   "a convolution's operations: %g and %g, not %g" %
   (stored.rows["conv2d"][1], stored.rows["conv2d_input_grad"][1], flop))
ok(stored.rows["conv2d"][2] == 2 * 2 * pixels * 64, "its bytes: image and output in 16 bits")
ok(stored.rows["normalize"][2] == 2 * 2 * pixels * 64 and stored.rows["normalize"][0] == 1, "a normalization's bytes")
ok(lazy.rows["conv2d"][3] > 2 * stored.rows["conv2d"][3],
   "normalizing for nine taps takes longer than the product: %.3g and %.3g s" %
   (lazy.rows["conv2d"][3], stored.rows["conv2d"][3]))
pixelwise = LINES.replace("(3, 3, 64, 64)", "(1, 1, 64, 64)")
rows = gpu_model.step(list(gpu_model.read(pixelwise % ("", "", ""), 256)), GPU, 36928).rows
ok("conv2d_weight_grad, cuBLAS" in rows and "bias gradient" in rows, "weights of single pixels are cuBLAS's")
rows = gpu_model.step(list(gpu_model.read(pixelwise % ("", "  reads bn'", ""), 256)), GPU, 36928).rows
ok("conv2d_weight_grad" in rows, "but not those of lazy operands")
ok(abs(stored.total() - sum(row[3] for row in stored.rows.values())) < 1e-12 and stored.rows["update"][0] == 1,
   "the sum of all kinds")
ok(abs(sum(part for parts in stored.kernels.values() for _, part in parts) - stored.total()) < 1e-12 and
   [kind for kind, _ in stored.kernels[3]] == ["conv2d_input_grad"] and
   [kind for kind, _ in stored.kernels[None]] == ["update"], "the same by nodes")
forward = "\n".join(line for line in (LINES % ("", "", "")).splitlines() if "_grad" not in line)
shapes = {"conv": ([3, 3, 64, 64], gpu_model.tensor_of("bfloat16", [256, 56, 56, 64]))}
alone = gpu_model.step(list(gpu_model.read(forward, 256)), GPU, 0, shapes)
ok(alone.rows["conv2d"] == stored.rows["conv2d"] and "update" not in alone.rows,
   "a forward step alone needs the shapes of kernels")
pixels = 256 * 14 * 14
ok([gpu_model.tile_of(m, n, bare) for m, n, bare in ((pixels, 256, True), (pixels, 160, True), (pixels, 160, False),
                                                     (pixels, 32, True), (256, 128, True), (128 * 70, 128, True))] ==
   [(128, 128), (128, 64), (128, 128), (128, 32), (64, 64), (128, 64)], "tiles of products are those of the kernels")
ok([gpu_model.panel_of(m, n) for m, n in ((pixels, 256), (pixels, 160), (64 * 100, 100), (64 * 4099, 24))] ==
   [(128, 1568, 1568), (64, 2352, 1176), (64, 200, 200), (64, 4099, 1025)], "and panels, several tiles to a block")
try:
    gpu_model.defined("panel.cuh", "MIRT__CU_NONE")
    ok(False, "a number that the kernels do not define is an error")
except ValueError as error:
    ok("MIRT__CU_NONE" in str(error), "a number that the kernels do not define is an error")
ok(sum(1 for _ in gpu_model.resnet50()) == 53, "ResNet50 has 53 convolutions")
macs = sum(pixels * ci * co * side * side for _, pixels, ci, co, side, _, _ in gpu_model.resnet50())
ok(4.0e9 < macs < 4.2e9, "of %.2f GMAC" % (macs / 1e9))
for name, design, rate, source in gpu_model.PUBLISHED:
    modeled = gpu_model.known(gpu_model.GPUS[name], design)
    ok(0.75 < modeled / rate < 1.25, "%s: %.0f images/s modeled, %d published (%s)" % (name, modeled, rate, source))
ok(1 < gpu_model.band() < 1.25, "the error band is that of the worst of them")


def run(text, *flags):
    return subprocess.run([sys.executable, gpu_model.__file__, *flags], input=text, capture_output=True, text=True)


result = run(LINES % ("", "", ""), "-")
ok(result.returncode == 0 and "images/s, between" in result.stdout and "| conv2d |" in result.stdout,
   "the program prints the table and the band: %s" % result.stdout.strip().splitlines()[-1:])
ok(run("nothing\n", "-").returncode == 1, "a text without convolutions is an error")
for what, place in (("a graph that is not there", "/no/such/graph"), ("bytes that are no text", sys.executable)):
    result = run("", place)
    ok(result.returncode == 1 and result.stderr.startswith("gpu_model: %s: " % place),
       "%s is an error that names it: %s" % (what, result.stderr.strip()))
ok("a100, separate" in run("", "--published").stdout, "published rates are printed on request")
sys.exit(done())
