"""Builds a drawn model in Keras and trains it, in float64 or float32."""

import kinks
import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

O, S = keras.optimizers, keras.optimizers.schedules


def set_dtype(dtype):
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)


def constraint(kind, least, most, rate, *axes):
    C, axes = keras.constraints, [int(a) for a in axes]
    if kind == 1:
        return C.MaxNorm(most, axes)
    return C.NonNeg() if kind == 2 else C.UnitNorm(axes) if kind == 3 else C.MinMaxNorm(least, most, rate, axes)


def regularizers(layer):
    drawn = {k: constraint(*v) for k, v in layer.items() if k.endswith("_constraint")}
    return dict(drawn, **{k: keras.regularizers.L1L2(*v) for k, v in layer.items() if k.endswith("_regularizer")})


def window(layer):
    return dict(kernel_size=layer["kernel"], strides=layer["strides"], padding=layer["padding"])


def make_conv(layer, watch, name):
    kind = layer["kind"]
    common = dict(
        window(layer),
        use_bias=layer["use_bias"],
        activation=kinks.activation(layer["activation"], watch),
        name=name,
        **regularizers(layer)
    )
    if kind == "conv2d_transpose":
        padding = layer["output_padding"] and [max(p, 0) for p in layer["output_padding"]]
        return L.Conv2DTranspose(layer["filters"], output_padding=padding, **common)
    common["dilation_rate"] = layer["dilation"]
    if kind == "depthwise_conv2d":
        return L.DepthwiseConv2D(depth_multiplier=layer["depth_multiplier"], **common)
    if kind == "separable_conv2d":
        return L.SeparableConv2D(layer["filters"], depth_multiplier=layer["depth_multiplier"], **common)
    base = kinks.GroupedConv2D if layer["groups"] > 1 else L.Conv2D
    return base(layer["filters"], groups=layer["groups"], **common)


def make_batch_norm(layer, watch, name):
    base = L.BatchNormalization if layer["synchronized"] else kinks.ReplicaBatchNormalization
    return base(
        axis=layer["axis"] or -1,
        momentum=layer["momentum"],
        epsilon=layer["epsilon"],
        center=layer["center"],
        scale=layer["scale"],
        name=name,
        **regularizers(layer)
    )


def make_relu(layer, watch, name):
    points = [layer["threshold"]] + ([layer["max_value"]] if layer["max_value"] else [])
    return kinks.watched(L.ReLU, watch, lambda x: watch.points(x, points))(
        max_value=layer["max_value"] or None,
        negative_slope=layer["negative_slope"],
        threshold=layer["threshold"],
        name=name,
    )


def at_zero(base):
    return lambda layer, watch, **options: kinks.watched(base, watch, lambda x: watch.points(x, [0]))(**options)


def border(layer):
    b = layer["border"]
    return (b[0:2], b[2:4])


MAKERS = {
    "conv2d": make_conv,
    "conv2d_transpose": make_conv,
    "depthwise_conv2d": make_conv,
    "separable_conv2d": make_conv,
    "batch_norm": make_batch_norm,
    "relu": make_relu,
    "dense": lambda l, w, name: L.Dense(
        l["units"],
        use_bias=l["use_bias"],
        activation=kinks.activation(l["activation"], w),
        name=name,
        **regularizers(l)
    ),
    "max_pool2d": lambda l, w, name: kinks.max_pool(w, l["size"], l["strides"], l["padding"], name),
    "average_pool2d": lambda l, w, name: L.AveragePooling2D(l["size"], l["strides"], l["padding"], name=name),
    "global_max_pool2d": lambda l, w, name: kinks.global_max_pool(w, l["keepdims"], name),
    "global_average_pool2d": lambda l, w, name: L.GlobalAveragePooling2D(keepdims=l["keepdims"], name=name),
    "up_sampling2d": lambda l, w, name: L.UpSampling2D(
        l["size"], interpolation="bilinear" if l["bilinear"] else "nearest", name=name
    ),
    "zero_padding2d": lambda l, w, name: L.ZeroPadding2D(border(l), name=name),
    "cropping2d": lambda l, w, name: L.Cropping2D(border(l), name=name),
    "resizing": lambda l, w, name: kinks.FloatResizing(
        *l["size"],
        interpolation=l["interpolation"],
        crop_to_aspect_ratio=l["crop_to_aspect_ratio"],
        antialias=l["antialias"],
        name=name
    ),
    "center_crop": lambda l, w, name: L.CenterCrop(*l["size"], name=name),
    "layer_norm": lambda l, w, name: L.LayerNormalization(
        axis=l.get("axis") or list(range(-l["axes"], 0)),
        epsilon=l["epsilon"],
        center=l["center"],
        scale=l["scale"],
        name=name,
        **regularizers(l)
    ),
    "rms_norm": lambda l, w, name: L.RMSNormalization(axis=l["axis"], epsilon=l["epsilon"], name=name),
    "normalization": lambda l, w, name: L.Normalization(mean=l["mean"], variance=l["variance"], name=name),
    "rescaling": lambda l, w, name: L.Rescaling(l["scale"], l["offset"], name=name),
    "dropout": lambda l, w, name: L.Dropout(l["rate"], name=name),
    "flatten": lambda l, w, name: L.Flatten(name=name),
    "reshape": lambda l, w, name: L.Reshape(l["target"], name=name),
    "permute": lambda l, w, name: L.Permute(l["dims"], name=name),
    "activation": lambda l, w, name: L.Activation(kinks.activation(l["activation"], w), name=name),
    "leaky_relu": lambda l, w, name: at_zero(L.LeakyReLU)(l, w, negative_slope=l["slope"], name=name),
    "elu": lambda l, w, name: at_zero(L.ELU)(l, w, alpha=l["alpha"], name=name),
    "prelu": lambda l, w, name: at_zero(L.PReLU)(l, w, shared_axes=l["shared_axes"], name=name, **regularizers(l)),
    "softmax": lambda l, w, name: L.Softmax(name=name),
    "softmax_axis": lambda l, w, name: L.Softmax(axis=l["axis"], name=name),
    "group_norm": lambda l, w, name: L.GroupNormalization(
        groups=l["groups"],
        epsilon=l["epsilon"],
        center=l["center"],
        scale=l["scale"],
        name=name,
        **regularizers(l)
    ),
    "unit_normalization": lambda l, w, name: L.UnitNormalization(axis=l["axis"], name=name),
    "adaptive_average_pool2d": lambda l, w, name: L.AdaptiveAveragePooling2D(l["size"], name=name),
    "gaussian_noise": lambda l, w, name: L.GaussianNoise(l["rate"], name=name),
    "spatial_dropout2d": lambda l, w, name: L.SpatialDropout2D(l["rate"], name=name),
    "activity_regularization": lambda l, w, name: L.ActivityRegularization(l["l1"], l["l2"], name=name),
    "threshold": lambda l, w, name: L.Activation(kinks.threshold(l["threshold"], l["value"], w), name=name),
    "glu": lambda l, w, name: L.Lambda(keras.activations.glu, name=name),
    "dot": lambda l, w, name: L.Dot(axes=l["axes"], normalize=l["normalize"], name=name),
    "concatenate": lambda l, w, name: L.Concatenate(axis=l["axis"], name=name),
    "add": lambda l, w, name: L.Add(name=name),
    "subtract": lambda l, w, name: L.Subtract(name=name),
    "multiply": lambda l, w, name: L.Multiply(name=name),
    "average": lambda l, w, name: L.Average(name=name),
    "maximum": lambda l, w, name: kinks.extremum(w, L.Maximum, name),
    "minimum": lambda l, w, name: kinks.extremum(w, L.Minimum, name),
}


def make_schedule(s, number=float):
    kind = s["kind"]
    if kind == "piecewise_constant":
        return S.PiecewiseConstantDecay(s["boundaries"], [number(v) for v in s["values"]])
    initial, steps = number(s["initial"]), s["steps"]
    if kind == "exponential_decay":
        return S.ExponentialDecay(initial, steps, number(s["rate"]), staircase=s["staircase"])
    if kind == "inverse_time_decay":
        return S.InverseTimeDecay(initial, steps, number(s["rate"]), staircase=s["staircase"])
    if kind == "polynomial_decay":
        return S.PolynomialDecay(initial, steps, number(s["end"]), power=number(s["power"]), cycle=s["cycle"])
    if kind == "cosine_restarts":
        return S.CosineDecayRestarts(initial, steps, t_mul=s["t_mul"], m_mul=s["m_mul"], alpha=s["alpha"])
    warm = (
        {"warmup_target": number(s["warmup_target"]), "warmup_steps": s["warmup_steps"]} if "warmup_steps" in s else {}
    )
    return S.CosineDecay(initial, steps, alpha=s["alpha"], **warm)


class Muon(O.Muon):
    """The rate of a schedule is float32, which Keras does not cast."""

    def _muon_update_step(self, gradient, variable, lr, m):
        super()._muon_update_step(gradient, variable, keras.ops.cast(lr, variable.dtype), m)


def make_optimizer(o, schedule):
    o = {k: v for k, v in o.items() if v is not None}
    kind, excluded = o.pop("kind"), o.pop("exclude_from_weight_decay", None)
    if schedule:
        o["learning_rate"] = make_schedule(schedule)
    kinds = {"adam": O.Adam, "adamw": O.AdamW, "sgd": O.SGD, "rmsprop": O.RMSprop}
    kinds.update(nadam=O.Nadam, adagrad=O.Adagrad, adamax=O.Adamax, lion=O.Lion, adadelta=O.Adadelta, ftrl=O.Ftrl)
    kinds.update(lamb=O.Lamb, muon=Muon, adafactor=O.Adafactor)
    optimizer = kinds[kind](**o)
    if excluded:
        optimizer.exclude_from_weight_decay(var_names=excluded)
    return optimizer


def watched_circle(loss, margin, watch):
    def watched(y, p, sample_weight=None):
        if watch.on:
            other = np.asarray(y)[:, None] != np.asarray(y)[None]
            watch.points((np.asarray(p) @ np.asarray(p).T)[other], [1, -margin])
        return loss(y, p, sample_weight=sample_weight)

    return watched


def watched_ignoring(loss, watch):
    """With ignore_class Keras forgets the logits that probabilities come from, and clips these."""

    def watched(y, p, sample_weight=None):
        watch.points(p, [keras.backend.epsilon()])
        return loss(y, p, sample_weight=sample_weight)

    return watched


def make_loss(out, from_logits, reduction, watch):
    name = "".join({"kl": "KL"}.get(word, word.capitalize()) for word in out["loss"].split("_"))
    names = ("label_smoothing", "ignore_class", "q", "gamma", "margin", "remove_diagonal")
    options = {k: out[k] for k in names if k in out}
    if "crossentropy" in out["loss"]:
        options["from_logits"] = from_logits
    loss = getattr(keras.losses, name)(reduction=reduction, **options)
    if out["loss"] == "circle":
        return watched_circle(loss, options["margin"], watch)
    return watched_ignoring(loss, watch) if "ignore_class" in options and not from_logits else loss


def shares_of(rows, replicas):
    return [rows // replicas + (i < rows % replicas) for i in range(replicas)]


class Side:
    """The model in one dtype."""

    def __init__(self, spec, dtype):
        set_dtype(dtype)
        self.spec, self.dtype, self.watch = spec, dtype, kinks.Watch()
        tensors, inputs, self.layers = {}, [], {}
        for x in spec["inputs"]:
            tensors[x["name"]] = keras.Input(x["shape"], name=x["name"])
            inputs.append(tensors[x["name"]])
        for layer in spec["layers"]:
            made = MAKERS[layer["kind"]](layer, self.watch, name=layer["name"])
            self.layers[layer["name"]] = made
            given = [tensors[name] for name in layer["in"]]
            tensors[layer["name"]] = made(given if len(given) > 1 else given[0])
        self.outputs = [out["layer"] for out in spec["outputs"]]
        self.model = keras.Model(inputs, [tensors[name] for name in self.outputs])
        for name in spec["frozen"]:
            self.layers[name].trainable = False
        self.variables = {v.path: v for v in self.model.weights}
        c = spec["compile"]
        self.losses = [make_loss(out, c["from_logits"], c["reduction"], self.watch) for out in spec["outputs"]]
        self.loss_weights = c["loss_weights"] or [1.0] * len(self.losses)

    def shapes(self):
        return {path: tuple(v.shape) for path, v in self.variables.items()}

    def predict(self, data):
        y = self.model([x.astype(self.dtype) for x in data["x"]], training=False)
        return [np.asarray(v, np.float64) for v in (y if isinstance(y, (list, tuple)) else [y])]

    def output_losses(self, labels, predictions, weights):
        out = []
        for loss, y, p in zip(self.losses, labels, predictions):
            w = (
                None
                if weights is None
                else tf.constant(weights.reshape([-1] + [1] * max(len(p.shape) - 2, 0)), self.dtype)
            )
            y = tf.constant(y) if y.dtype == np.int32 else tf.constant(y, self.dtype)
            out.append(loss(y, p, sample_weight=w))
        return out

    def total(self, losses):
        total = sum(l * w for l, w in zip(losses, self.loss_weights))
        return total + sum(self.model.losses) if self.model.losses else total

    def row_weights(self, data, part, classes):
        weights = None if data["weights"] is None else data["weights"][part].astype(np.float64)
        if not classes:
            return weights
        y = data["y"][0][part]
        by_class = (
            np.asarray(classes, np.float64)[y]
            if y.ndim == 1
            else y.astype(np.float64) @ np.asarray(classes, np.float64)
        )
        return by_class if weights is None else weights * by_class

    def step(self, data, part, optimizer):
        train = self.spec["train"]
        rows = len(data["x"][0][part])
        for layer in self.layers.values():
            if isinstance(layer, kinks.ReplicaBatchNormalization):
                layer.shares = shares_of(rows, self.spec["strategy"]["replicas"] * train["accumulate"])
        with tf.GradientTape() as tape:
            p = self.model([x[part].astype(self.dtype) for x in data["x"]], training=True)
            p = p if isinstance(p, (list, tuple)) else [p]
            weights = self.row_weights(data, part, train["class_weights"])
            loss = self.total(self.output_losses([y[part] for y in data["y"]], p, weights))
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        for g, v in zip(gradients, variables):
            if g is not None:
                self.steepest[v.path] = max(self.steepest.get(v.path, 0.0), float(tf.reduce_max(tf.abs(g))))
        pairs = [(g, v) for g, v in zip(gradients, variables) if g is not None]
        optimizer.apply([g for g, _ in pairs], [v for _, v in pairs])
        return float(loss)

    def evaluate(self, data, results):
        """Losses as over batches, weighted by their rows."""
        batch, rows = self.spec["train"]["batch"], self.spec["train"]["rows"]
        total, parts = 0.0, np.zeros(len(self.losses))
        for first in range(0, rows, batch):
            part = slice(first, min(first + batch, rows))
            weights = None if data["weights"] is None else data["weights"][part]
            p = self.model([x[part].astype(self.dtype) for x in data["x"]], training=False)
            losses = self.output_losses(
                [y[part] for y in data["y"]], p if isinstance(p, (list, tuple)) else [p], weights
            )
            share = (part.stop - first) / rows
            total += float(self.total(losses)) * share
            parts += np.array([float(l) for l in losses]) * share
        results["evaluate/loss"] = np.array([total])
        if len(self.losses) > 1:
            for name, value in zip(self.outputs, parts):
                results["evaluate/%s_loss" % name] = np.array([value])

    def run(self, data, watched=False):
        """The results that the C runner writes too, but for metrics."""
        set_dtype(self.dtype)
        spec, train = self.spec, self.spec["train"]
        for path, v in self.variables.items():
            v.assign(data["values"][path])
        optimizer = make_optimizer(spec["optimizer"], spec["schedule"])
        optimizer.build(self.model.trainable_variables)
        results, losses, self.steepest = {}, [], {}
        for name, value in zip(self.outputs, self.predict(data)):
            results["before/" + name] = value.ravel()
        size = train["batch"] * train["accumulate"]
        firsts = list(range(0, train["rows"], size))
        for step in range(train["steps"]):
            self.watch.on = watched
            first = firsts[step % len(firsts)]
            losses.append(self.step(data, slice(first, min(first + size, train["rows"])), optimizer))
            self.watch.on = False
        if spec["optimizer"].get("use_ema"):
            optimizer.finalize_variable_values(self.model.trainable_variables)
        results["loss"] = np.array(losses)
        for name, value in zip(self.outputs, self.predict(data)):
            results["after/" + name] = value.ravel()
        self.evaluate(data, results)
        for path, v in self.variables.items():
            results["weight/" + path] = np.asarray(v, np.float64).ravel()
        return results
