#!/usr/bin/env python3
"""Writes optimizers.h: what float64 Keras's optimizers and learning-rate schedules do."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf

from formula import c_array, uniform

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

HEAD = """#ifndef GOLDEN_OPTIMIZERS_H
#define GOLDEN_OPTIMIZERS_H
/* Made by make_optimizers.py with TensorFlow %s, Keras %s in float64; do not edit.
   Include after mirrortrain.h. */
#include "formula.h"

/* OPTIMIZER_STEPS updates of a kernel [3, 2] and a bias [2]. They begin as golden_uniform(1); the gradient of step t is
   golden_uniform(10 + t), times 4 where t is odd. weight: the last ones, kernel before bias, and slot: the optimizer's
   variables in the order of its names; averages: the weights that Keras ends with. */
enum { OPTIMIZER_STEPS = 20, OPTIMIZER_COUNT = 8 };
typedef struct golden_update {
    const char *name, *slots;
    const double *weight, *slot, *finished;
} golden_update;

/* The same weights, each updated by an optimizer of its own: `slots` of the kernel, then of the bias. In `slot` an
   average lies in the last block of both, other blocks that one of them does without are 0. */

/* A matrix, or a convolution's kernel [taps, 1, rows, columns], after one step: it began as golden_uniform(2), and its
   gradient was golden_uniform(3). */
typedef struct golden_matrix {
    const char *name;
    int taps, rows, columns;
    const double *weight;
} golden_matrix;

/* Rates at steps SCHEDULE_STEP[]. */
typedef struct golden_schedule {
    const char *name;
    const double *rate;
} golden_schedule;

"""
opt = keras.optimizers
f64 = np.float64
S = opt.schedules


class ScheduleFreeAdamW(opt.ScheduleFreeAdamW):
    """The momentum that it keeps from before an update is not another name for the updated one."""

    def assign_sub(self, variable, value):
        variable._value = tf.Variable(variable._value - value)


UPDATES = {
    "adam": lambda: opt.Adam(0.01),
    "adam amsgrad": lambda: opt.Adam(0.01, amsgrad=True),
    "adam decayed": lambda: opt.Adam(0.01, weight_decay=0.1),
    "adamw": lambda: opt.AdamW(0.01),
    "adamw excluded": lambda: opt.AdamW(0.01, weight_decay=0.5),
    "adamw clipnorm": lambda: opt.AdamW(0.01, clipnorm=1.5),
    "adamw global_clipnorm ema": lambda: opt.AdamW(0.01, global_clipnorm=2.0, use_ema=True, ema_momentum=0.9),
    "sgd decayed": lambda: opt.SGD(0.05, weight_decay=0.25),
    "sgd clipnorm": lambda: opt.SGD(0.05, momentum=0.875, nesterov=True, clipnorm=1.0),
    "sgd global_clipnorm": lambda: opt.SGD(0.05, global_clipnorm=1.0),
    "sgd clipvalue": lambda: opt.SGD(0.05, momentum=0.875, clipvalue=0.75),
    "sgd ema": lambda: opt.SGD(0.05, use_ema=True),
    "sgd ema overwritten": lambda: opt.SGD(
        0.05, momentum=0.5, use_ema=True, ema_momentum=0.75, ema_overwrite_frequency=3
    ),
    "sgd cosine": lambda: opt.SGD(S.CosineDecay(f64(0.01), 15, alpha=0.1, warmup_target=f64(0.05), warmup_steps=4)),
    "rmsprop": lambda: opt.RMSprop(0.01),
    "rmsprop momentum": lambda: opt.RMSprop(0.01, rho=0.8, momentum=0.5),
    "rmsprop centered": lambda: opt.RMSprop(0.01, centered=True, momentum=0.5, weight_decay=0.125),
    "nadam": lambda: opt.Nadam(0.01),
    "nadam clipnorm ema": lambda: opt.Nadam(0.01, weight_decay=0.125, clipnorm=1.5, use_ema=True),
    "adagrad": lambda: opt.Adagrad(0.01),
    "adagrad clipnorm ema": lambda: opt.Adagrad(
        0.01, initial_accumulator_value=0.5, weight_decay=0.125, clipnorm=1.5, use_ema=True
    ),
    "adamax": lambda: opt.Adamax(0.01),
    "adamax clipnorm ema": lambda: opt.Adamax(0.01, weight_decay=0.125, clipnorm=1.5, use_ema=True),
    "lion": lambda: opt.Lion(0.01),
    "lion clipnorm ema": lambda: opt.Lion(0.01, beta_1=0.75, weight_decay=0.125, clipnorm=1.5, use_ema=True),
    "adadelta": lambda: opt.Adadelta(0.5),
    "adadelta clipnorm ema": lambda: opt.Adadelta(0.01, rho=0.75, weight_decay=0.125, clipnorm=1.5, use_ema=True),
    "schedule_free_adamw": lambda: ScheduleFreeAdamW(0.01),
    "schedule_free_adamw clipnorm ema": lambda: ScheduleFreeAdamW(
        0.01, beta_1=0.75, warmup_steps=7, weight_decay=0.125, clipnorm=1.5, use_ema=True
    ),
    "ftrl": lambda: opt.Ftrl(0.01),
    "ftrl clipnorm ema": lambda: opt.Ftrl(
        0.01,
        initial_accumulator_value=0.5,
        l1_regularization_strength=0.125,
        l2_regularization_strength=0.25,
        l2_shrinkage_regularization_strength=0.0625,
        beta=0.5,
        weight_decay=0.125,
        clipnorm=1.5,
        use_ema=True,
    ),
    "lamb": lambda: opt.Lamb(0.01),
    "lamb clipnorm ema": lambda: opt.Lamb(
        0.01, beta_1=0.75, epsilon=0.125, weight_decay=0.125, clipnorm=1.5, use_ema=True
    ),
    "muon": lambda: opt.Muon(0.01),
    "muon clipnorm ema": lambda: opt.Muon(
        0.01,
        adam_beta_1=0.75,
        adam_weight_decay=0.25,
        weight_decay=0.125,
        adam_lr_ratio=0.5,
        muon_a=3.0,
        muon_b=-4.0,
        muon_c=1.75,
        momentum=0.75,
        ns_steps=3,
        nesterov=False,
        rms_rate=0.5,
        clipnorm=1.5,
        use_ema=True,
    ),
    "adafactor": lambda: opt.Adafactor(0.25),
    "adafactor clipnorm ema": lambda: opt.Adafactor(
        0.25,
        beta_2_decay=-0.5,
        epsilon_1=0.125,
        epsilon_2=0.5,
        clip_threshold=0.25,
        relative_step=False,
        weight_decay=0.125,
        clipnorm=1.5,
        use_ema=True,
    ),
    "muon excluded": lambda: opt.Muon(0.01, exclude_layers=["kern"], weight_decay=0.5),
}
text = [HEAD % (tf.__version__, keras.__version__)]


def factors(optimizer, kinds):
    """Means of rows (of the bias: of its squares) and of columns, at the front of blocks like the weights."""
    row, column = np.zeros(8), np.zeros(8)
    row[:3], column[:2], row[6:] = optimizer._r[0].numpy(), optimizer._c[0].numpy(), optimizer._v[1].numpy()
    average = {"average": kinds["average"]} if "average" in kinds else {}
    return {"row": [keras.Variable(row)], "column": [keras.Variable(column)], **average}


def is_muon(name):
    return name.split()[0] == "muon"


def update(number, name):
    optimizer = UPDATES[name]()
    if "excluded" in name:
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    start = uniform(1, (8,)).astype(f64)
    weights = [keras.Variable(start[:6].reshape(3, 2), name="kernel"), keras.Variable(start[6:], name="bias")]
    optimizer.build(weights)
    for step in range(20):
        gradient = uniform(10 + step, (8,)).astype(f64) * (4 if step % 2 else 1)
        optimizer.apply([tf.constant(gradient[:6].reshape(3, 2)), tf.constant(gradient[6:])])
    flat = lambda variables: np.concatenate([np.ravel(v.numpy()) for v in variables])
    text.append(c_array("double", f"optimizer_{number}_weight", flat(weights), "%.17g"))
    kinds = {}
    for v in (
        optimizer.variables[2:]
        if not isinstance(optimizer._learning_rate, S.LearningRateSchedule)
        else optimizer.variables[1:]
    ):
        if len(v.shape):  # not Nadam's product of momentums, which the library computes from the step
            kinds.setdefault(v.name.split("_", 1)[-1], []).append(v)
    if name.split()[0] == "adafactor":
        kinds = factors(optimizer, kinds)
    # Of matrices Muon has no velocities.
    if is_muon(name) and len(kinds["velocity"]) == 1:
        kinds["velocity"].insert(0, keras.Variable(np.zeros((3, 2))))
    # Keras makes the averages first; the library keeps them last.
    names = sorted(kinds, key=lambda n: n == "average")
    slots = "NULL"
    if names:
        slots = f"optimizer_{number}_slot"
        text.append(c_array("double", slots, np.concatenate([flat(kinds[n]) for n in names]), "%.17g"))
    finished = "NULL"
    if optimizer.use_ema:
        optimizer.finalize_variable_values(weights)
        finished = f"optimizer_{number}_finished"
        text.append(c_array("double", finished, flat(weights), "%.17g"))
    arrays = f"optimizer_{number}_weight, {slots}, {finished}"
    row = f'    {{"{name}", "{",".join(names)}", {arrays}}},'
    return row if len(row) <= 120 else row.replace(f" {arrays}", f"\n     {arrays}")


rows = [update(i, name) for i, name in enumerate(UPDATES)]
text.append("static const golden_update golden_updates[] = {\n%s\n};\n" % "\n".join(rows))

def cosine(initial):
    return S.CosineDecay(f64(initial), 15, alpha=0.125)


# (default, the bias's)
SEVERAL = {
    "sgd, adam": lambda: (opt.SGD(0.05, momentum=0.5), opt.Adam(0.01, amsgrad=True)),
    "adamw, lion": lambda: (
        opt.AdamW(cosine(0.01), clipnorm=1.5),
        opt.Lion(S.ExponentialDecay(f64(0.02), 4, f64(0.5)), weight_decay=0.125, global_clipnorm=0.5),
    ),
    "adagrad, ftrl": lambda: (
        opt.Adagrad(0.01, use_ema=True, ema_momentum=0.75),
        opt.Ftrl(0.02, initial_accumulator_value=0.5, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3),
    ),
    "lamb, rmsprop": lambda: (opt.Lamb(0.01), opt.RMSprop(cosine(0.02), clipvalue=0.75)),
    "sgd, adafactor": lambda: (opt.SGD(0.05, global_clipnorm=1.0), opt.Adafactor(0.25)),
}


def several(number, name):
    own = SEVERAL[name]()
    start = uniform(1, (8,)).astype(f64)
    weights = [keras.Variable(start[:6].reshape(3, 2), name="kernel"), keras.Variable(start[6:], name="bias")]
    optimizer = opt.MultiOptimizer(opt.OptimizerMap(own[0], {"bias": own[1]}))
    optimizer.build(weights)
    for step in range(20):
        gradient = uniform(10 + step, (8,)).astype(f64) * (4 if step % 2 else 1)
        optimizer.apply([tf.constant(gradient[:6].reshape(3, 2)), tf.constant(gradient[6:])])
    flat = np.concatenate([np.ravel(w.numpy()) for w in weights])
    names, blocks = [], [{}, {}]
    for o, block in zip(own, blocks):
        for v in o.variables:
            if len(v.shape):
                block[v.name.split("_", 1)[-1]] = np.ravel(v.numpy())
        if isinstance(o, opt.Adafactor):  # of a vector, only the mean of squares
            block.clear()
            block.update(row=np.ravel(o._v[0].numpy()), column=np.zeros(2))
        names.append(sorted(block, key=lambda n: n == "average"))
    averages = "average" in names[0]
    count = max(len(n) for n in names)
    state = np.zeros((count, 8))
    for n, block, at in zip(names, blocks, (slice(0, 6), slice(6, 8))):
        for i, key in enumerate(n):
            state[count - 1 if key == "average" else i, at] = block[key]
    text.append(c_array("double", f"several_{number}_weight", flat, "%.17g"))
    text.append(c_array("double", f"several_{number}_slot", np.ravel(state), "%.17g"))
    finished = "NULL"
    if averages:
        optimizer.finalize_variable_values(weights)
        finished = f"several_{number}_finished"
        text.append(c_array("double", finished, np.concatenate([np.ravel(w.numpy()) for w in weights]), "%.17g"))
    slots = ";".join(",".join(n) for n in names)
    return f'    {{"{name}", "{slots}",\n     several_{number}_weight, several_{number}_slot, {finished}}},'


rows = [several(i, name) for i, name in enumerate(SEVERAL)]
text.append("static const golden_update golden_several[] = {\n%s\n};\n" % "\n".join(rows))

# One step of matrices that begin as golden_uniform(2); their gradient is golden_uniform(3).
SHAPES = [(1, 1, 6), (1, 6, 1), (1, 4, 7), (1, 7, 4), (1, 5, 5), (1, 19, 34)]


def matrix(number, kind, make, shape):
    optimizer = make()
    shape, (taps, rows, columns) = ((shape[0], 1) if shape[0] > 1 else ()) + shape[1:], shape
    weight = keras.Variable(uniform(2, shape).astype(f64), name="kernel")
    optimizer.build([weight])
    optimizer.apply([tf.constant(uniform(3, shape).astype(f64))])
    text.append(c_array("double", f"matrix_{number}", np.ravel(weight.numpy()), "%.17g"))
    return f'    {{"{kind}", {taps}, {rows}, {columns}, matrix_{number}}},'


MATRICES = {"muon": lambda: opt.Muon(0.25), "adafactor": lambda: opt.Adafactor(0.25)}
rows = [
    matrix(i, kind, make, shape)
    for i, (kind, make, shape) in enumerate((k, m, s) for k, m in MATRICES.items() for s in SHAPES + [(3, 4, 5)])
]
text.append("static const golden_matrix golden_matrices[] = {\n%s\n};\n" % "\n".join(rows))

STEPS = [0, 1, 2, 5, 9, 10, 11, 25, 50, 99, 101, 150, 299, 301, 555, 1000, 7777, 100001]
SCHEDULES = {
    "piecewise": S.PiecewiseConstantDecay([10, 100, 300], [f64(1.0), f64(0.5), f64(0.25), f64(0.125)]),
    "exponential": S.ExponentialDecay(f64(0.125), 100, f64(0.96)),
    "exponential staircase": S.ExponentialDecay(f64(0.125), 100, f64(0.5), staircase=True),
    "polynomial": S.PolynomialDecay(f64(0.125), 300, f64(0.0078125), power=f64(2.0)),
    "polynomial cycle": S.PolynomialDecay(f64(0.125), 70, f64(0.0078125), power=f64(0.5), cycle=True),
    "inverse": S.InverseTimeDecay(f64(0.125), 50, f64(0.75)),
    "inverse staircase": S.InverseTimeDecay(f64(0.125), 50, f64(0.75), staircase=True),
    "cosine": S.CosineDecay(f64(0.125), 300, alpha=0.0625),
    "cosine warmup": S.CosineDecay(f64(0.0), 300, alpha=0.0625, warmup_target=f64(0.25), warmup_steps=50),
    "restarts": S.CosineDecayRestarts(f64(0.125), 40, t_mul=2.0, m_mul=0.75, alpha=0.125),
    "restarts even": S.CosineDecayRestarts(f64(0.125), 40, t_mul=1.0, m_mul=0.9375, alpha=0.0),
}
text.append("enum { SCHEDULE_STEPS = %d };" % len(STEPS))
text.append(c_array("int", "golden_schedule_step", STEPS, "%d"))
rows = []
for i, (name, schedule) in enumerate(SCHEDULES.items()):
    rates = [
        float(np.asarray(schedule(tf.constant(step, tf.float64) if name != "piecewise" else step))) for step in STEPS
    ]
    text.append(c_array("double", f"schedule_{i}", rates, "%.17g"))
    rows.append(f'    {{"{name}", schedule_{i}}},')
text.append("static const golden_schedule golden_schedules[] = {\n%s\n};\n" % "\n".join(rows))

open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.h"), "w").write(
    "\n".join(text) + "\n#endif\n"
)
