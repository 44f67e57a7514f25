#!/usr/bin/env python3
"""Reads event files with tfevents.py and with the tensorboard package, if installed. The package may be in this Python,
or in the one that MIRT_TENSORBOARD_PYTHON names."""
import glob
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
import tfevents


def f32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def expected(log):
    """{directory: {tag: {step: value}}} that a log of JSON lines comes to; None: any value."""
    out = {"train": {}, "validation": {}}
    steps = 0
    for line in log:
        if line["event"] == "step" and (line["step"] + 1) % 2 == 0:
            for name in ("loss", "accuracy", "learning_rate"):
                out["train"].setdefault("batch_" + name, {})[line["step"] + 1] = line[name]
        if line["event"] != "epoch":
            continue
        steps = line["step"]
        for device in line["use"]["devices"]:
            for tag, name in (("busy", "busy"), ("input_wait", "input"), ("memory", "bytes")):
                out["train"].setdefault("device_%s/%s" % (tag, device["name"]), {})[steps] = device[name]
        out["train"].setdefault("process_memory", {})[steps] = None
        for name in ("loss", "accuracy", "learning_rate"):
            out["train"].setdefault("epoch_" + name, {})[line["epoch"]] = line[name]
        for name in ("loss", "accuracy"):
            out["validation"].setdefault("epoch_" + name, {})[line["epoch"]] = line["val_" + name]
            out["validation"].setdefault("evaluation_%s_vs_iterations" % name, {})[steps] = line["val_" + name]
    return out


def same(found, wanted):
    return found.keys() == wanted.keys() and all(
        found[t].keys() == wanted[t].keys()
        and all(wanted[t][s] is None or found[t][s] == f32(wanted[t][s]) for s in wanted[t])
        for t in wanted
    )


def weights(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = (t["shape"], list(struct.unpack("<%df" % ((b - a) // 4), data[8 + size + a:8 + size + b])))
    return out


def histogram(values):
    least, most = min(values), max(values)
    width = (most - least) / 30
    count = [0] * 30
    for v in values:
        count[min(29, int((v - least) / width)) if width else 29] += 1
    return [(least + i * width, least + (i + 1) * width, count[i]) for i in range(30)]


def near(rows, wanted):
    """The same edges; a number at an edge may be counted on either side."""
    edges = all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for r, w in zip(rows, wanted) for a, b in zip(r[:2], w[:2])
    )
    return (
        len(rows) == 30
        and edges
        and sum(abs(r[2] - w[2]) for r, w in zip(rows, wanted)) <= 2
        and sum(r[2] for r in rows) == sum(w[2] for w in wanted)
    )


def png_pixels(data):
    """(width, height, lines) of an image of one channel."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height = 8, b"", 0, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    raw = zlib.decompress(packed)
    return width, height, [raw[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)]


def check(home):
    with open(home + "/log.jsonl") as f:
        log = [json.loads(line) for line in f]
    wanted, found, others, files = expected(log), {}, {}, 0
    for directory in ("", "train", "validation"):
        paths = glob.glob(os.path.join(home, "tensorboard", directory, "events.out.tfevents.*"))
        files += len(paths) == 1
        for path in paths:
            events = list(tfevents.events(path))
            tap.ok(
                events[0].get("version") == "brain.Event:2" and abs(events[0]["time"] - os.stat(path).st_mtime) < 120,
                "%s: %d events, whose checksums are right" % (directory or "the directory", len(events)),
            )
            for e in events:
                if e.get("plugin") == "scalars":
                    found.setdefault(directory, {}).setdefault(e["tag"], {})[e["step"]] = e["values"][0]
                else:
                    others.setdefault(directory, []).append(e)
    tap.ok(files == 3, "a file in each directory")
    tap.ok(
        same(found.get("train", {}), wanted["train"]),
        "train: the tags, steps and values of the log: " + ", ".join(sorted(found.get("train", {}))),
    )
    tap.ok(
        same(found.get("validation", {}), wanted["validation"]),
        "validation: " + ", ".join(sorted(found.get("validation", {}))),
    )
    graph = [e["graph"] for e in others["train"] if "graph" in e]
    names = [n["name"] for n in graph[0]] if graph else []
    tap.ok(
        len(graph) == 1
        and "conv2d" in names
        and all(i in names[:k] for k, n in enumerate(graph[0]) for i in n["input"]),
        "the graph, inputs before what reads them: " + ", ".join(names),
    )
    w = weights(home + "/model.safetensors")
    last = {e["tag"]: e for e in others["train"] if e["step"] == 2 and "tag" in e}
    good = [
        name
        for name in w
        if near([last[name + "/histogram"]["values"][3 * i : 3 * i + 3] for i in range(30)], histogram(w[name][1]))
    ]
    tap.ok(good == list(w) and len(good) == 4, "histograms are of the weights: " + ", ".join(good))
    image = last["dense/kernel/image"]
    width, height, lines = png_pixels(image["values"][2])
    shape, values = w["dense/kernel"]
    least, most = min(values), max(values)
    exact = all(
        abs(lines[y][x] - 255 * (values[x * shape[1] + y] - least) / (most - least)) < 0.51
        for y in range(height)
        for x in range(width)
    )
    tap.ok(
        (width, height) == (shape[0], shape[1])
        and image["values"][:2] == [str(width).encode(), str(height).encode()]
        and exact,
        "a picture of a dense kernel, lying, black to white",
    )
    kernels = png_pixels(last["conv2d/kernel/image"]["values"][2])
    tap.ok(kernels[:2] == (4 * 3 + 3 * 4, 3), "a sheet of the convolution's kernels")
    root = {e["tag"]: e for e in others[""] if "tag" in e}
    session = tfevents.fields(tfevents.fields(root["_hparams_/session_start_info"]["content"])[3][0])
    hparams = {}
    for entry in session[1]:
        e = tfevents.fields(entry)
        value = tfevents.fields(e[2][0])
        hparams[e[1][0].decode()] = value[2][0] if 2 in value else value[3][0].decode()
    tap.ok(
        hparams.get("batch_size") == 50
        and hparams.get("optimizer") == "adam"
        and abs(hparams.get("learning_rate", 0) - 1e-3) < 1e-9,
        "hyper-parameters: %s" % hparams,
    )
    tap.ok(json.loads(root["environment"]["values"][0]) == log[0]["environment"], "the environment as text")
    own = list(tfevents.events(glob.glob(home + "/own/events*")[0]))[1:]
    loss = [e for e in own if e["tag"] == "loss"]
    rest = {e["tag"]: e for e in own}
    tap.ok(
        [e["step"] for e in loss] == [1, 3000000000]
        and loss[0]["values"] == [0.25]
        and math.isnan(loss[1]["values"][0])
        and rest["note"]["values"] == ["na\u00efve".encode()],
        "a custom writer: numbers and text",
    )
    rows = {t: [rest[t]["values"][3 * i:3 * i + 3] for i in range(30)] for t in ("values", "none", "one")}
    tap.ok(
        near(rows["values"], histogram(list(range(99))))
        and all(r == [0, 0, 0] for r in rows["none"])
        and rows["one"][29] == [7, 7, 1]
        and sum(r[2] for r in rows["one"]) == 1,
        "its histograms: NaN is left out, of nothing, of one number",
    )
    tap.ok(
        png_pixels(rest["picture"]["values"][2])[2][:3]
        == [bytes(10 * (4 * y + x) for x in range(4)) for y in range(3)],
        "its picture, dot for dot",
    )
    path = glob.glob(home + "/tensorboard/train/events*")[0]
    with open(path, "r+b") as f:
        f.seek(200)
        f.write(b"!")
    try:
        list(tfevents.events(path))
        tap.ok(False, "the reader sees a damaged byte")
    except ValueError as e:
        tap.ok(True, "the reader sees a damaged byte: %s" % os.path.basename(str(e)))


def check_real(home):
    """In a Python that has tensorboard."""
    from tensorboard.backend.event_processing import plugin_event_multiplexer
    from tensorboard.plugins.hparams import metadata
    from tensorboard.util import tensor_util
    with open(home + "/log.jsonl") as f:
        wanted = expected([json.loads(line) for line in f])
    board = plugin_event_multiplexer.EventMultiplexer(
        tensor_size_guidance={k: 0 for k in ("scalars", "images", "histograms", "text", "hparams")}
    ).AddRunsFromDirectory(home + "/tensorboard")
    board.Reload()
    runs, about = board.Runs(), board.AllSummaryMetadata()
    tap.ok(set(runs) == {".", "train", "validation"}, "tensorboard finds the runs: %s" % sorted(runs))
    for run in ("train", "validation"):
        tags = {t for t, m in about.get(run, {}).items() if m.plugin_data.plugin_name == "scalars"}
        found = {
            t: {e.step: float(tensor_util.make_ndarray(e.tensor_proto)) for e in board.Tensors(run, t)} for t in tags
        }
        tap.ok(same(found, wanted[run]), "tensorboard reads every scalar of %s: %s" % (run, ", ".join(sorted(found))))
    kinds = {}
    for tag, m in about["train"].items():
        kinds.setdefault(m.plugin_data.plugin_name, []).append(
            (tag, tensor_util.make_ndarray(board.Tensors("train", tag)[0].tensor_proto))
        )
    tap.ok(
        len(kinds.get("histograms", [])) == 4 and all(a.shape == (30, 3) for _, a in kinds["histograms"]),
        "its histograms",
    )
    tap.ok(len(kinds.get("images", [])) == 4 and all(a[2][:4] == b"\x89PNG" for _, a in kinds["images"]), "its images")
    tap.ok(
        board.Graph("train") is not None and len(board.Graph("train").node) >= 6,
        "its graph: " + ", ".join(n.op for n in board.Graph("train").node),
    )
    session = metadata.parse_session_start_info_plugin_data(
        about["."]["_hparams_/session_start_info"].plugin_data.content
    )
    experiment = metadata.parse_experiment_plugin_data(about["."]["_hparams_/experiment"].plugin_data.content)
    tap.ok(
        session.hparams["batch_size"].number_value == 50
        and session.hparams["model"].string_value == "digits"
        and len(experiment.hparam_infos) == len(session.hparams)
        and [m.name.tag for m in experiment.metric_infos] == ["epoch_loss", "epoch_accuracy"],
        "its hyper-parameters: " + ", ".join(sorted(session.hparams)),
    )


def python_with_tensorboard():
    for python in (os.environ.get("MIRT_TENSORBOARD_PYTHON"), sys.executable):
        if (
            python
            and subprocess.run(
                [python, "-c", "import tensorboard.backend.event_processing.plugin_event_multiplexer"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ).returncode
            == 0
        ):
            return python
    return None


def main():
    if len(sys.argv) > 2:
        tap.count = int(sys.argv[2])
        check_real(sys.argv[1])
        print("FAILED" if tap.failures else "PASSED", tap.count)
        return 0
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/tests/test_events")
    with tempfile.TemporaryDirectory(prefix="mirt_tensorboard.") as home:
        made = subprocess.run([os.environ.get("MIRT_TEST_EVENTS", program), home], stderr=subprocess.PIPE)
        tap.ok(
            made.returncode == 0 and os.path.exists(home + "/model.safetensors"),
            "a run: " + made.stderr.decode().strip().split("\n")[-1],
        )
        python = python_with_tensorboard()
        if python:
            read = subprocess.run(
                [python, os.path.abspath(__file__), home, str(tap.count)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            lines = read.stdout.decode().strip().split("\n")
            end = lines[-1].split()
            print("\n".join(lines[:-1]), flush=True)
            if read.returncode == 0 and end[0] in ("PASSED", "FAILED"):
                tap.count, tap.failures = int(end[1]), tap.failures + (end[0] == "FAILED")
            else:
                tap.ok(False, "tensorboard: " + read.stderr.decode()[-600:].replace("\n", " | "))
        else:
            tap.skip("no tensorboard package: MIRT_TENSORBOARD_PYTHON names a Python that has it")
        check(home)
    return tap.done()


sys.exit(main())
