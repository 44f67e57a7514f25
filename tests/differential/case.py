"""A drawn comparison: the C runner's input, and the check of its results."""

import os

import numpy as np


class Case:
    part, every = "model", 1

    def __init__(self, seed, text):
        self.seed, self.text = seed, text
        self.files = {}  # name: array, beside the specification

    def write(self, directory):
        with open(os.path.join(directory, "spec.txt"), "w") as f:
            f.write(self.text)
        for name, a in self.files.items():
            np.ascontiguousarray(a).tofile(os.path.join(directory, name))

    def check(self, results, directory):
        """Complaints, the worst first; `results`: arrays by name."""
        raise NotImplementedError


def compare(name, have, want, limit):
    """None, or how far apart the two are; `limit`: a number or an array of them."""
    if have is None or have.shape != want.shape:
        return "%s: %s numbers instead of %d" % (name, "no" if have is None else have.size, want.size)
    finite = np.isfinite(want)
    if not np.array_equal(np.where(finite, 0, want), np.where(np.isfinite(have), 0, have), equal_nan=True):
        return "%s: numbers that are not finite" % name
    excess = np.abs(np.where(finite, have - want, 0)) - limit
    if have.size == 0 or np.max(excess) <= 0:
        return None
    i = int(np.argmax(excess))
    return "%s: number %d is %.9g instead of %.9g, limit %.2g" % (
        name,
        i,
        have[i],
        want[i],
        np.broadcast_to(limit, want.shape)[i],
    )


def read_results(directory):
    values, results, at = np.fromfile(os.path.join(directory, "results.f64")), {}, 0
    for text in open(os.path.join(directory, "results.txt")):
        name, count = text.rsplit(" ", 1)
        results[name] = values[at : at + int(count)]
        at += int(count)
    return results
