#!/usr/bin/env python3
"""Writes callbacks.h: what Keras's callbacks do with drawn logs and in a fit.

EarlyStopping and ReduceLROnPlateau are told of drawn logs; SwapEMAWeights is in a fit in float64."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np

from formula import c_array, uniform

EPOCHS = 24


class Optimizer:
    def __init__(self):
        self.rate = np.float32(0.01)

    learning_rate = property(lambda self: self.rate, lambda self, value: setattr(self, "rate", np.float32(value)))


class Model:
    def __init__(self):
        self.optimizer, self.metrics, self.stop_training, self.weights = Optimizer(), [], False, -1

    def get_weights(self):
        return self.weights

    def set_weights(self, weights):
        self.weights = weights


def drawn(seed):
    state, values, level = seed, [], 1.0
    for _ in range(EPOCHS):
        state = (state * 1103515245 + 12345) % 2**31
        level *= 0.93
        values.append(round(level + (state >> 16) % 1000 / 4000.0, 4))
    return values


def early(seed, mode, **more):
    model = Model()
    callback = keras.callbacks.EarlyStopping(monitor="val_loss", mode=mode, restore_best_weights=True, **more)
    callback.set_model(model)
    callback.on_train_begin()
    epoch = 0
    for epoch, value in enumerate(drawn(seed)):
        model.weights = epoch
        callback.on_epoch_end(epoch, {"val_loss": value})
        if model.stop_training:
            break
    callback.on_train_end()
    return epoch, model.weights


def plateau(seed, mode, **more):
    model = Model()
    callback = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", mode=mode, **more)
    callback.set_model(model)
    callback.on_train_begin()
    rates = []
    for epoch, value in enumerate(drawn(seed)):
        callback.on_epoch_end(epoch, {"val_loss": value})
        rates.append(float(model.optimizer.rate))
    return rates


def swapped(on_epoch):
    """Two units on three inputs: validation losses, the weights after each epoch, and those in the end."""
    keras.config.set_dtype_policy("float64")
    data = [uniform(2 + i, shape).astype(np.float64) for i, shape in enumerate([(8, 3), (8, 2), (5, 3), (5, 2)])]
    start = uniform(1, (8,)).astype(np.float64)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.set_weights([start[:6].reshape(3, 2), start[6:]])
    model.compile(keras.optimizers.SGD(0.25, momentum=0.5, use_ema=True, ema_momentum=0.75), "mse")
    flat = lambda: np.concatenate([np.ravel(w) for w in model.get_weights()])
    losses, weights = [], []

    class Record(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs):
            losses.append(logs["val_loss"])
            weights.extend(flat())

    more = dict(batch_size=4, epochs=3, shuffle=False, validation_data=(data[2], data[3]), verbose=0)
    model.fit(data[0], data[1], callbacks=[keras.callbacks.SwapEMAWeights(on_epoch), Record()], **more)
    return losses, weights, flat()


early_cases, plateau_cases = [], []
for seed in range(1, 7):
    for mode in ("min", "max"):
        for patience, delta, baseline, start in (
            (0, 0, None, 0),
            (1, 0.02, None, 0),
            (2, 0, 0.8, 0),
            (3, 0.001, None, 4),
        ):
            more = dict(patience=patience, min_delta=delta, baseline=baseline, start_from_epoch=start)
            early_cases.append((seed, mode, patience, delta, baseline, start) + early(seed, mode, **more))
for seed in range(1, 4):
    for mode in ("min", "max"):
        for patience, factor, cooldown, least in ((1, 0.5, 0, 0), (2, 0.1, 2, 1e-4), (3, 0.3, 1, 2e-3)):
            plateau_cases.append(
                (
                    seed,
                    mode,
                    patience,
                    factor,
                    cooldown,
                    least,
                    plateau(seed, mode, patience=patience, factor=factor, cooldown=cooldown, min_lr=least),
                )
            )

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "callbacks.h"), "w") as out:
    out.write("/* By make_callbacks.py from Keras %s. */\n" % keras.__version__)
    out.write("enum { GOLDEN_EPOCHS = %d };\n" % EPOCHS)
    out.write("static const double golden_logs[][GOLDEN_EPOCHS] = { /* of seeds 1, 2, ... */\n")
    for seed in range(1, 7):
        out.write("    {%s},\n" % ", ".join("%.4f" % v for v in drawn(seed)))
    out.write(
        "};\ntypedef struct golden_early {\n    int seed;\n    mirt_mode mode;\n    int patience;\n    double"
        " min_delta;\n    bool has_baseline;\n    double baseline;\n    int start, last, restored; /* epochs, 0-based"
        " */\n} golden_early;\nstatic const golden_early golden_stops[] = {\n"
    )
    for seed, mode, patience, delta, baseline, start, last, restored in early_cases:
        out.write(
            "    {%d, MIRT_MODE_%s, %d, %g, %s, %g, %d, %d, %d},\n"
            % (
                seed,
                mode.upper(),
                patience,
                delta,
                "false" if baseline is None else "true",
                baseline or 0,
                start,
                last,
                restored,
            )
        )
    out.write(
        "};\ntypedef struct golden_plateau {\n    int seed;\n    mirt_mode mode;\n    int patience;\n    double"
        " factor;\n    int cooldown;\n    double least;\n    float rate[GOLDEN_EPOCHS];\n} golden_plateau;\nstatic"
        " const golden_plateau golden_rates[] = {\n"
    )
    for seed, mode, patience, factor, cooldown, least, rates in plateau_cases:
        out.write(
            "    {%d, MIRT_MODE_%s, %d, %g, %d, %g, {%s}},\n"
            % (
                seed,
                mode.upper(),
                patience,
                factor,
                cooldown,
                least,
                ", ".join("%.9gf" % r if "." in "%.9g" % r or "e" in "%.9g" % r else "%.9g.0f" % r for r in rates),
            )
        )
    out.write("};\n")
    out.write("/* Of SwapEMAWeights, without and with swap_on_epoch: see swapped() in make_callbacks.py. */\n")
    for on_epoch in (False, True):
        for what, values in zip(("losses", "weights", "last"), swapped(on_epoch)):
            out.write("\n" + c_array("double", "golden_swapped_%s_%d" % (what, on_epoch), values, "%.17g"))
