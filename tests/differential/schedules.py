"""Compares learning-rate schedules at single steps."""

import random

import keras_side
import numpy as np
import tensorflow as tf
from case import Case, compare
from spec import SCHEDULES, line

RELATIVE = 1e-6  # rates and their parameters are float32 numbers, formulas are double: a few roundings


def draw_schedule(r, kind):
    rate = lambda: float("%.3g" % (10 ** r.uniform(-4, 0)))
    if kind == "piecewise_constant":
        boundaries = sorted(r.sample(range(1, 500), r.randint(1, 6)))
        return {"kind": kind, "boundaries": boundaries, "values": [rate() for _ in range(len(boundaries) + 1)]}
    s = {"kind": kind, "initial": rate(), "steps": r.randint(1, 200)}
    if kind in ("exponential_decay", "inverse_time_decay"):
        s.update(rate=round(r.uniform(0.1, 1), 2), staircase=r.random() < 0.5)
    elif kind == "polynomial_decay":
        s.update(end=rate(), power=r.choice([1.0, 2.0, 0.5, 3.0]), cycle=r.random() < 0.5)
    elif kind == "cosine_decay":
        s.update(alpha=r.choice([0.0, 0.1, 0.5]))
        if r.random() < 0.5:
            s.update(warmup_steps=r.randint(1, 50), warmup_target=rate())
    else:
        s.update(t_mul=r.choice([1.0, 1.5, 2.0]), m_mul=r.choice([1.0, 0.9, 0.5]), alpha=r.choice([0.0, 0.1]))
    return s


class Schedules(Case):
    part, every = "schedules", 3

    def __init__(self, seed, scratch):
        r = random.Random("schedules %d" % seed)
        keras_side.set_dtype("float64")
        self.want, lines = [], []
        for kind in SCHEDULES:
            s = draw_schedule(r, kind)
            around = (
                s["boundaries"] + [b + 1 for b in s["boundaries"]]
                if kind == "piecewise_constant"
                else [s["steps"] - 1, s["steps"], s["steps"] + 1]
            )
            schedule = keras_side.make_schedule(s, np.float64)
            at = lambda step: float(
                np.asarray(schedule(tf.constant(step, tf.float64) if kind != "piecewise_constant" else step))
            )
            steps = sorted(set([0, 1] + around + [r.randint(0, 1000) for _ in range(12)]))
            if kind == "cosine_restarts":  # where a period ends, rounding decides which one it is
                steps = [t for t in steps if abs(at(t + 1e-6) - at(t - 1e-6)) < 1e-4 * s["initial"]]
            lines.append(line("schedule", **s, at=steps))
            self.want.append(np.array([at(step) for step in steps]))
        super().__init__(seed, "schedules\n" + "\n".join(lines) + "\n")

    def check(self, results, directory):
        complaints = []
        for i, want in enumerate(self.want):
            limit = RELATIVE * np.abs(want) + RELATIVE * 0.1 * np.max(np.abs(want))
            problem = compare("rate/%d" % i, results.get("rate/%d" % i), want, limit)
            complaints.append(problem and "%s: %s" % (self.text.split("\n")[1 + i], problem))
        return [c for c in complaints if c]
