"""Draws how a model is compiled and trained: optimizer, schedule, losses, metrics, weights, replicas."""

from spec import SCHEDULES, numbers

STEPS = 5


def draw_optimizer(d):
    rare = ["nadam", "adagrad", "adamax", "lion", "adadelta", "ftrl", "lamb", "muon", "adafactor"]
    kind = d.pick(["adam", "adam", "adamw", "sgd", "sgd", "rmsprop"] + rare)
    o = {"kind": kind, "learning_rate": d.pick({"sgd": [0.1, 0.05, 0.02]}.get(kind, [0.02, 0.01, 0.003]))}
    if kind in ("adam", "adamw"):
        o.update(
            beta_1=d.pick([0.9, 0.9, 0.5, 0.0]),
            beta_2=d.pick([0.999, 0.999, 0.99, 0.9]),
            epsilon=d.pick([1e-7, 1e-7, 1e-3]),
            amsgrad=d.chance(0.3),
        )
    elif kind == "sgd":
        o.update(momentum=d.pick([0.0, 0.9, 0.5]))
        o.update(nesterov=bool(o["momentum"]) and d.chance(0.5))
    elif kind in ("nadam", "adamax", "lamb"):
        o.update(beta_1=d.pick([0.9, 0.5]), beta_2=d.pick([0.999, 0.9]), epsilon=d.pick([1e-7, 1e-3]))
    elif kind == "adagrad":
        o.update(initial_accumulator_value=d.pick([0.1, 1.0]), epsilon=d.pick([1e-7, 1e-3]))
    elif kind == "adadelta":
        o.update(rho=d.pick([0.95, 0.5]), epsilon=d.pick([1e-7, 1e-3]))
    elif kind == "ftrl":
        o.update(initial_accumulator_value=d.pick([0.1, 1.0]), beta=d.pick([0.0, 0.5]))
        o.update(l2_regularization_strength=d.pick([0.0, 0.01]))  # next to L1's threshold only rounding is left
    elif kind == "adafactor":
        o.update(clip_threshold=d.pick([1.0, 0.5]), epsilon_2=d.pick([1e-3, 0.1]))
    elif kind == "muon":
        o.update(momentum=d.pick([0.95, 0.5]), nesterov=d.chance(0.5), ns_steps=d.pick([5, 3]))
    elif kind == "lion":
        o.update(beta_1=d.pick([0.9, 0.5]), beta_2=d.pick([0.99, 0.9]))
    else:
        o.update(
            rho=d.pick([0.9, 0.9, 0.99, 0.5]),
            momentum=d.pick([0.0, 0.9, 0.5]),
            epsilon=d.pick([1e-7, 1e-3]),
            centered=d.chance(0.4),
        )
    if kind == "adamw" or d.chance(0.25):
        o["weight_decay"] = d.pick([0.004, 0.1, 0.5])
        if d.chance(0.5):
            # Names of layers are left out: Keras documents that they do not count, but with TensorFlow they do.
            o["exclude_from_weight_decay"] = d.pick([["bias"], ["bias", "gamma", "beta"], ["kernel"], ["gamma"]])
    clip = d.pick([None, None, None, "clipnorm", "global_clipnorm", "clipvalue"])
    if clip:
        o[clip] = d.pick([0.01, 0.1, 0.5])
    if d.chance(0.3):
        o.update(
            use_ema=True, ema_momentum=d.pick([0.99, 0.9, 0.5]), ema_overwrite_frequency=d.pick([None, None, 2, 3])
        )
    return o


def draw_schedule(d, rate):
    """As part of a model, a schedule that changes within its few steps."""
    kind = d.pick(SCHEDULES)
    if kind == "piecewise_constant":
        return {"kind": kind, "boundaries": [1, 3], "values": [rate, rate / 2, rate * 2]}
    s = {"kind": kind, "initial": rate, "steps": d.pick([2, 3, 7])}
    if kind in ("exponential_decay", "inverse_time_decay"):
        s.update(rate=d.pick([0.5, 0.9]), staircase=d.chance(0.5))
    elif kind == "polynomial_decay":
        s.update(end=rate / 8, power=d.pick([1.0, 2.0, 0.5]), cycle=d.chance(0.5))
    elif kind == "cosine_decay":
        s.update(alpha=d.pick([0.0, 0.1]))
        if d.chance(0.5):
            s.update(warmup_steps=2, warmup_target=rate * 2)
    else:
        s.update(t_mul=d.pick([1.0, 2.0]), m_mul=d.pick([1.0, 0.75]), alpha=d.pick([0.0, 0.1]))
    return s


def metrics_of(d, out):
    loss, units = out["loss"], out["shape"][-1]
    if loss in ("mean_squared_error", "huber", "log_cosh", "cosine_similarity", "poisson"):
        return ["mae", "mse"]
    if "binary" in loss:
        return (
            ["accuracy", "binary_accuracy", "precision", "recall", "auc", "mae"]
            if len(out["shape"]) == 1 and units == 1
            else ["binary_accuracy", "mse"]
        )
    if not numbers(loss):
        return ["accuracy", "categorical_accuracy", "top_k_categorical_accuracy"]
    return ["accuracy", "sparse_categorical_accuracy", "sparse_top_k_categorical_accuracy"]


def draw_metrics(d):
    """Metrics that fit every output."""
    fitting = [set(metrics_of(d, out)) for out in d.spec["outputs"]]
    names = sorted(set.intersection(*fitting))
    chosen = [n for n in names if d.chance(0.6)]
    metrics = [{"kind": n, "name": "m%d" % i, "k": 2 if "top_k" in n else None} for i, n in enumerate(chosen)]
    for out in d.spec["outputs"] if len(d.spec["outputs"]) > 1 else []:
        if d.chance(0.5):  # of this output alone
            kind = d.pick(metrics_of(d, out))
            k = 2 if "top_k" in kind else None
            metrics.append({"kind": kind, "name": "m%d" % len(metrics), "k": k, "output": out["layer"]})
    return metrics


def frozen_layers(d):
    """Some layers with weights, if others are left."""
    with_weights = [
        l["name"]
        for l in d.spec["layers"]
        if "activation" in l and "kernel" in str(l) or l["kind"] in ("dense", "batch_norm", "layer_norm", "prelu")
    ]
    if not d.chance(0.25):
        return []
    return [n for n in with_weights[:-1] if d.chance(0.4)]


def draw_training(d, from_logits):
    spec = d.spec
    pairs = any(out["loss"] == "circle" for out in spec["outputs"])  # of rows of one replica
    replicas = 1 if pairs else d.pick([1, 1, 2, 3])
    spec["strategy"] = {
        "replicas": replicas,
        "devices": d.random.randint(1, min(2, replicas)),
        "kind": d.pick(["mirrored", "mirrored", "central_storage", "one_device"]),
        "collective": d.pick(["auto", "tree", "ring", "reduce_to_one_device"]),
    }
    spec["optimizer"] = draw_optimizer(d)
    spec["schedule"] = draw_schedule(d, spec["optimizer"]["learning_rate"]) if d.chance(0.25) else None
    spec["frozen"] = frozen_layers(d)
    spec["compile"] = {
        "from_logits": from_logits,
        "reduction": "sum" if d.chance(0.15) else "sum_over_batch_size",
        "loss_weights": [d.pick([1.0, 0.5, 2.0]) for _ in spec["outputs"]] if d.chance(0.3) else None,
    }
    spec["metrics"] = draw_metrics(d)
    weighted = d.chance(0.3)
    for m in spec["metrics"] if weighted else []:
        m["weighted"] = d.chance(0.3)
    batch = d.pick([1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16])
    batches = d.pick([1, 2, 3, 5])  # in an epoch
    accumulate = d.pick([2, 3]) if d.chance(0.12) and not pairs else 1
    rows = batch * accumulate * batches - (d.random.randint(0, batch - 1) if accumulate == 1 else 0)
    out = spec["outputs"][0]
    classes = len(spec["outputs"]) == 1 and "categorical" in out["loss"] and len(out["shape"]) == 1 and d.chance(0.3)
    spec["train"] = {
        "loop": "fit" if classes or accumulate > 1 or d.chance(0.6) else "batch",
        "batch": batch,
        "rows": rows,
        "accumulate": accumulate,
        "steps": STEPS,
        "sample_weights": weighted,
        "class_weights": [d.pick([0.5, 1.0, 2.0, 3.0]) for _ in range(out["shape"][-1])] if classes else None,
    }
