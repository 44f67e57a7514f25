"""A drawn model as text, from which Keras and the C runner are built."""


def numbers(loss):
    """Whether the labels of a loss are class numbers."""
    return loss in ("sparse_categorical_crossentropy", "categorical_generalized_cross_entropy", "circle")


def text_of(value):
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(map(text_of, value))
    return repr(value) if isinstance(value, float) else str(value)


def line(word, **attributes):
    """One line: a word, then KEY=VALUE; lists by commas, and what is None left out."""
    return " ".join([word] + ["%s=%s" % (k, text_of(v)) for k, v in attributes.items() if v is not None])


def model_text(spec):
    lines = [line("model", seed=spec["seed"]), line("strategy", **spec["strategy"])]
    lines += [line("input", **x) for x in spec["inputs"]]
    lines += [line("layer", **layer) for layer in spec["layers"]]
    lines += [line("output", **out) for out in spec["outputs"]]
    if spec["frozen"]:
        lines.append(line("frozen", layers=spec["frozen"]))
    lines.append(line("optimizer", **spec["optimizer"]))
    if spec["schedule"]:
        lines.append(line("schedule", **spec["schedule"]))
    lines += [line("compile", **spec["compile"])]
    lines += [line("metric", **metric) for metric in spec["metrics"]]
    lines.append(line("train", **spec["train"]))
    return "\n".join(lines) + "\n"


SCHEDULES = (
    "piecewise_constant",
    "exponential_decay",
    "polynomial_decay",
    "inverse_time_decay",
    "cosine_decay",
    "cosine_restarts",
)
