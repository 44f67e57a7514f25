"""Compares outputs, losses, weights and metrics of a drawn model with float64 Keras.

The limit of a tensor is FACTOR times the error that float32 Keras makes on the same model: the largest distance from
float64 Keras over two float32 runs, the second on inputs and weights moved by a rounding; at least FACTOR times the
model's median of that error over tensors (a single number may be near by chance), or FACTOR roundings, relative to
the tensor's largest number (for a moving mean, to the deviation that belongs to it). The error of the very model is
the measure because it holds the model's conditioning: a gradient that is zero but for rounding, divided by its own
size by Adam, is noise of the size of the learning rate in any float32 program.

A derivative that jumps (kinks.py) is not in that measure when no run happens to cross it. Data that come within NEAR,
or 32 times float32 Keras's error, of such a point are drawn anew, and the model too if that does not help; that looks
at Keras alone."""

import os

import arrays
import draw
import keras_side
import metrics
import numpy as np
import onnx_side
import spec as texts
from case import Case, compare

FACTOR = 16
ROUNDING = 2.0**-24
NEAR = 2e-6
ATTEMPTS = 6
# Gradients so small beside the largest are zero: their float32 ones, and what Adam makes of them, are noise.
ZERO = 1e-10
LARGEST = 1e6  # training that diverges is drawn anew, too


def size_of(a):
    return float(np.max(np.abs(a))) if a.size else 0.0


class Model(Case):
    part, every = "model", 1

    def __init__(self, seed, scratch):
        self.attempts = 0
        for variation in range(4):  # a few models lie at a kink whatever the data
            self.spec = draw.draw(seed, variation)
            if self.draw_data():
                break
        else:
            raise RuntimeError("no data stay away from kinks")
        super().__init__(seed, texts.model_text(self.spec))
        for kind in "xy":
            for i, a in enumerate(self.data[kind]):
                self.files["%s%d.bin" % (kind, i)] = a
        if self.data["weights"] is not None:
            self.files["weights.bin"] = self.data["weights"]

    def draw_data(self):
        """Data, what float64 Keras makes of them, and float32 Keras's errors; False: all data are near a kink."""
        wide, narrow = keras_side.Side(self.spec, "float64"), keras_side.Side(self.spec, "float32")
        for attempt in range(ATTEMPTS):
            self.attempts += 1
            self.data = arrays.draw_data(self.spec, wide.shapes(), attempt)
            wide.watch.least = np.inf
            self.want = wide.run(self.data, watched=True)
            flat = ZERO * max(wide.steepest.values(), default=0.0)
            self.noise = {"weight/" + path for path, g in wide.steepest.items() if g < flat}
            if wide.watch.least < NEAR or not all(size_of(v) < LARGEST for v in self.want.values()):
                continue
            runs = [narrow.run(d) for d in (self.data, arrays.perturbed(self.data, attempt))]
            self.error = {k: float(np.max([size_of(r[k] - v) for r in runs])) for k, v in self.want.items()}
            forward = max(self.error[k] / (size_of(v) + 1e-30) for k, v in self.want.items() if k.startswith("before/"))
            finite = np.isfinite(list(self.error.values())).all()  # or float32 overflows, and any result would do
            if finite and wide.watch.least >= 32 * forward:
                return True
        return False

    def write(self, directory):
        super().write(directory)
        arrays.write_safetensors(os.path.join(directory, "weights.safetensors"), self.data["values"])

    def scale(self, name):
        """What roundings are relative to. A mean rounds like the numbers whose mean it is."""
        size = size_of(self.want[name])
        return max(size, size_of(self.want[name[:-4] + "variance"]) ** 0.5) if name.endswith("/moving_mean") else size

    def log_name(self, out, metric):
        several = len(self.spec["outputs"]) > 1
        return "evaluate/" + ("%s_%s" % (out["layer"], metric["name"]) if several else metric["name"])

    def metrics_of(self, out):
        return [m for m in self.spec["metrics"] if m.get("output", out["layer"]) == out["layer"]]

    def check(self, results, directory):
        complaints = []
        usual = float(np.median([self.error[k] / (size_of(v) + 1e-30) for k, v in self.want.items()]))
        for name, want in self.want.items():
            limit = FACTOR * max(self.error[name], max(ROUNDING, usual) * self.scale(name))
            if name in self.noise and self.spec["optimizer"]["kind"] != "sgd":
                limit = max(limit, 2 * self.spec["train"]["steps"] * self.spec["optimizer"]["learning_rate"])
            complaints.append(compare(name, results.get(name), want, limit))
        for number, out in enumerate(self.spec["outputs"]):
            predictions = results["after/" + out["layer"]].astype(np.float32).reshape([-1] + list(out["shape"]))
            for m in self.metrics_of(out):
                name = self.log_name(out, m)
                labels, weights = self.data["y"][number], self.data["weights"]
                complaints.append(metrics.complaint(results, name, m, out["loss"], labels, predictions, weights))
        layers = [out["layer"] for out in self.spec["outputs"]]
        complaints += onnx_side.complaints(directory, self.text, self.data["x"], layers, results)
        expected = set(self.want) | {self.log_name(o, m) for o in self.spec["outputs"] for m in self.metrics_of(o)}
        if set(results) != expected:
            complaints.append("results are not the expected ones: %s" % ", ".join(sorted(set(results) ^ expected)))
        return [c for c in complaints if c]
