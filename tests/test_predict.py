#!/usr/bin/env python3
"""`mirrortrain predict` and `evaluate` agree on images, and distinguish logits from probabilities."""
import csv
import io
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_file
import tap

PROGRAM = os.environ.get("MIRRORTRAIN") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../build/mirrortrain"
)


def run(*args):
    return subprocess.run(
        [PROGRAM] + list(args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        universal_newlines=True,
    )


def predict(model, *images):
    """[(class, probability as it is printed)]"""
    made = run("predict", "--load", model, *images)
    return (
        [tuple(line.rsplit(": ", 1)[1].split(" ")) for line in made.stdout.split("\n") if line]
        if made.returncode == 0
        else made.stderr
    )


def evaluate(model, data, *flags):
    """(loss, accuracy), and the whole line."""
    made = run("evaluate", "--load", model, "--data", data, *flags)
    match = re.match(r"evaluate: loss=(\S+) accuracy=(\S+)", made.stdout)
    return (float(match.group(1)), float(match.group(2))) if match else made.stderr


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def check_scores(home):
    """Scores that every image gets, so that only what is made of them differs."""
    image, data, model = home + "/one/dogs/0.bmp", home + "/one", home + "/scores.safetensors"
    model_file.write_bitmap(image, 8, 8, 1)
    os.makedirs(data + "/cats", exist_ok=True)
    one, many = ("cats", "dogs"), ("cats", "dogs", "owls")
    soft = [math.exp(x) / sum(math.exp(y) for y in (0.3, 0.9, 0.1)) for x in (0.3, 0.9, 0.1)]
    bce, cce, mse = "binary_crossentropy", "sparse_categorical_crossentropy", "mean_squared_error"
    cases = (
        ("a logit between 0 and 0.5", [0.3], one, "linear", bce, True, "dogs", sigmoid(0.3)),
        ("a negative logit", [-0.3], one, "linear", bce, True, "cats", sigmoid(0.3)),
        ("a logit between 0.5 and 1", [0.7], one, "linear", bce, True, "dogs", sigmoid(0.7)),
        ("a large logit", [3.0], one, "linear", bce, True, "dogs", sigmoid(3)),
        ("a sigmoid", [0.3], one, "sigmoid", bce, False, "dogs", sigmoid(0.3)),
        ("a sigmoid, negative", [-2.0], one, "sigmoid", bce, False, "cats", sigmoid(2)),
        ("a sigmoid without a loss", [0.3], one, "sigmoid", "none", False, "dogs", sigmoid(0.3)),
        ("a sigmoid that from_logits denies", [-0.3], one, "sigmoid", bce, True, "cats", sigmoid(0.3)),
        ("a logit without a loss", [0.3], one, "linear", "none", True, "dogs", sigmoid(0.3)),
        ("what the loss takes for a probability", [0.3], one, "linear", bce, False, "cats", 0.7),
        ("a number", [0.3], one, "linear", mse, False, "cats", 0.3),
        ("logits that could be probabilities", [0.3, 0.9, 0.1], many, "linear", cce, True, "dogs", soft[1]),
        (
            "logits that sum to 1",
            [0.2, 0.5, 0.3],
            many,
            "linear",
            cce,
            True,
            "dogs",
            math.exp(0.5) / (math.exp(0.2) + math.exp(0.5) + math.exp(0.3)),
        ),
        ("a softmax", [0.3, 0.9, 0.1], many, "softmax", cce, False, "dogs", soft[1]),
        ("logits of several labels", [-1.0, 0.4, 0.1], many, "linear", bce, True, "dogs", sigmoid(0.4)),
        ("numbers", [0.3, 0.9, 0.1], many, "linear", "none", False, "dogs", 0.9),
    )
    for name, scores, classes, activation, loss, logits, want, p in cases:
        model_file.flat_model(model, scores, classes=classes, activation=activation, loss=loss, from_logits=logits)
        said = predict(model, image)
        tap.ok(
            said == [(want, "%.4f" % p)],
            (
                "%s: %s, not %s" % (name, said, (want, "%.4f" % p))
                if said != [(want, "%.4f" % p)]
                else "%s: %s %.4f" % (name, want, p)
            ),
        )
        if loss == bce and len(scores) == 1:
            measured = evaluate(model, data)
            loss_of, right = measured if isinstance(measured, tuple) else (math.nan, math.nan)
            tap.ok(right == (want == "dogs"), "evaluate counts it as %s: accuracy %g, loss %g" % (want, right, loss_of))


def check_pixels(home):
    """A kernel so steep that pixels rounded otherwise give other probabilities, on images of other sizes than the
    model's."""
    draw = random.Random(7)
    side, model, data = model_file.SIDE, home + "/steep.safetensors", home + "/photos"
    kernel = [draw.choice((-1, 1)) * (1.0 + draw.random()) for _ in range(side * side * 3)]
    model_file.write_model(model, kernel, [0.0], activation="sigmoid", from_logits=False)
    images = []
    for i in range(60):
        images.append("%s/%s/%02d.bmp" % (data, ("cats", "dogs")[i % 2], i))
        model_file.write_bitmap(images[-1], draw.randrange(9, 40), draw.randrange(9, 40), i)
    said = predict(model, *images)
    tap.ok(len(said) == 60 and len({c for c, _ in said}) == 2, "60 images are %s" % sorted({c for c, _ in said}))
    right = sum(c == path.split("/")[-2] for (c, _), path in zip(said, images))
    measured = evaluate(model, data)
    tap.ok(
        isinstance(measured, tuple) and abs(measured[1] * 60 - right) < 1e-3,
        "predict gets %d of 60 right, evaluate %s" % (right, measured),
    )
    for batch, devices in (("1", "1"), ("7", "2")):
        other = evaluate(model, data, "--batch", batch, "--devices", devices)
        tap.ok(other == measured, "in batches of %s on %s devices too: %s" % (batch, devices, other))


def check_probabilities(home):
    """One image at a time: its loss is minus the logarithm of the probability that predict prints."""
    draw = random.Random(11)
    model, wrong, between, shown = home + "/soft.safetensors", 0, 0, []
    side = model_file.SIDE
    for i in range(12):
        data = "%s/single%d" % (home, i)
        os.makedirs(data + "/cats")
        image = data + "/dogs/0.bmp"
        model_file.write_bitmap(image, draw.randrange(9, 60), draw.randrange(9, 60), 100 + i)
        kernel = [draw.choice((-1, 1)) * 0.1 for _ in range(side * side * 3)]
        model_file.write_model(model, kernel, [0.0], activation="sigmoid", from_logits=False)
        # The bias puts the probability where it is sensitive: bisected by what predict says.
        low, high = -1000.0, 1000.0
        for _ in range(40):
            middle = (low + high) / 2
            model_file.write_model(model, kernel, [middle], activation="sigmoid", from_logits=False)
            name, p = predict(model, image)[0]
            p = float(p) if name == "dogs" else 1 - float(p)
            if 0.2 < p < 0.8:
                break
            low, high = (middle, high) if p < 0.5 else (low, middle)
        measured = evaluate(model, data)
        between += 0.1 < p < 0.9
        wrong += not isinstance(measured, tuple) or abs(math.exp(-measured[0]) - p) > 0.6e-4
        shown.append((p, math.exp(-measured[0]) if isinstance(measured, tuple) else measured))
    tap.ok(
        between == 12 and wrong == 0,
        "the probabilities of 12 images that are resized are those evaluate computes with: %s"
        % (shown if wrong or between < 12 else shown[:3]),
    )


def check_formats(home):
    """All classes of images, of files and of a directory, as CSV and JSON."""
    classes, model, data = ("cats", 'a "dog", big', "owls"), home + "/formats.safetensors", home + "/formats"
    scores = [0.3, 0.9, 0.1]
    sums = sum(math.exp(y) for y in scores)
    want = [math.exp(x) / sums for x in scores]
    model_file.flat_model(
        model, scores, classes=classes, activation="linear", loss="sparse_categorical_crossentropy", from_logits=True
    )
    images = [data + "/" + name for name in ("a.bmp", "more/b, c.bmp", "more/\u00fc.bmp")]
    for i, image in enumerate(images):
        model_file.write_bitmap(image, 8, 8, i)
    close = lambda got: len(got) == 3 and all(abs(float(x) - y) < 1e-5 for x, y in zip(got, want))
    made = run("predict", "--load", model, "--format", "csv", data)
    rows = list(csv.reader(io.StringIO(made.stdout)))
    tap.ok(
        rows and rows[0] == ["file", "class", "probability"] + list(classes),
        "CSV has a column for each class: %s" % (rows[:1] or made.stderr),
    )
    tap.ok(
        [row[:2] for row in rows[1:]] == [[image, classes[1]] for image in images]
        and all(close(row[3:]) and row[2] == row[4] for row in rows[1:]),
        "and a row for each image of a directory: %s" % rows[1:],
    )
    made = run("predict", "--load", model, "--format", "json", *images)
    found = json.loads(made.stdout)
    tap.ok(
        [(f["file"], f["class"]) for f in found] == [(image, classes[1]) for image in images]
        and all(close([f["classes"][c] for c in classes]) for f in found),
        "JSON has the same: %s" % found[:1],
    )
    model_file.flat_model(model, [0.3], classes=("cats", "dogs"), loss="binary_crossentropy", from_logits=True)
    found = json.loads(run("predict", "--load", model, "--format", "json", images[0]).stdout)[0]
    tap.ok(
        found["class"] == "dogs"
        and abs(found["classes"]["dogs"] - sigmoid(0.3)) < 1e-5
        and abs(found["classes"]["cats"] + found["classes"]["dogs"] - 1) < 1e-5,
        "one output is two classes: %s" % found,
    )
    made = run("predict", "--load", model, "--format", "json", data + "/nothing.bmp")
    tap.ok(made.returncode == 1 and json.loads(made.stdout) == [], "a file that is missing leaves valid JSON")
    made = run("predict", "--load", model, "--format", "xml", images[0])
    tap.ok(
        made.returncode == 2 and "choose one of text|csv|json" in made.stderr, "an unknown format: %s" % made.stderr
    )


def main():
    with tempfile.TemporaryDirectory(prefix="mirt_predict.") as home:
        model_file.write_bitmap(home + "/probe.bmp", 8, 8, 0)
        model_file.flat_model(home + "/probe.safetensors", [0.0])
        if "no decoder" in run("predict", "--load", home + "/probe.safetensors", home + "/probe.bmp").stderr:
            tap.skip("compiled without an image decoder")
        else:
            check_scores(home)
            check_pixels(home)
            check_probabilities(home)
            check_formats(home)
    return tap.done()


sys.exit(main())
