#!/usr/bin/env python3
"""Tests the picture of what mirroring inserts. It is well-formed, shows every replica with its rows and device, and
nothing is outside."""
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

from tap import done, ok

PROGRAM = os.environ.get(
    "MIRRORTRAIN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "mirrortrain")
)
NAME = "{http://www.w3.org/2000/svg}"


def draw(path, *flags):
    return subprocess.run([PROGRAM, "graph", "--svg", path, *flags], capture_output=True, text=True)


def number(element, key):
    return float(element.get(key))


def check(path, devices, replicas, batch, *flags):
    run = draw(path, "--devices", str(devices), "--replicas", str(replicas), "--batch", str(batch), *flags)
    what = f"{replicas} replicas on {devices} devices, a batch of {batch} {' '.join(flags)}"
    ok(run.returncode == 0 and run.stdout == f"svg: {path}\n", f"{what}: {run.stderr.strip()}")
    if run.returncode:
        return
    root = tree.parse(path).getroot()
    wide, high = number(root, "width"), number(root, "height")
    boxes = list(root.iter(NAME + "rect"))
    inside = all(
        number(b, "x") >= 0
        and number(b, "y") >= 0
        and number(b, "x") + number(b, "width") <= wide
        and number(b, "y") + number(b, "height") <= high
        for b in boxes
    )
    texts = [t.text or "" for t in root.iter(NAME + "text")]
    ok(inside and len(boxes) > 10, f"its {len(boxes)} boxes lie inside of {wide:.0f} x {high:.0f}")
    shown = min(replicas, 8)
    ok(
        texts.count("gradients") == shown + 1 and texts.count("input_layer") == shown + 1,
        f"the model once before and {shown} times after",
    )
    rows, first = [], 0
    for replica in range(replicas):
        count = batch // replicas + (replica < batch % replicas)
        rows.append(f"rows {first} to {first + count - 1}" if count else "no rows")
        first += count
    seen = [t.text for t in root.iter(NAME + "text") if t.get("class") == "rows"]
    ok(seen == rows[:shown], f"each has its rows: {', '.join(seen)}")
    frames = [b for b in boxes if b.get("class") == "device"]
    of = [d for d in range(devices) for _ in range(replicas // devices + (d < replicas % devices))][:shown]
    ok(len(frames) == len(set(of)), f"{len(frames)} devices around them")
    optimizers = [t for t in texts if re.fullmatch(r"cpu:\d+: adam", t)]
    ok(
        len(optimizers) == (1 if "one-device" in flags else min(devices, shown)) and "adam" in texts,
        f"updates: {', '.join(optimizers)}",
    )
    sums = [t for t in texts if "+=" in t]
    ok(bool(sums) == (devices > 1), f"sums: {', '.join(sums)}")
    ok(
        (f"and {replicas - shown} more replicas like these" in texts) == (replicas > shown),
        "and it says how many are not drawn",
    )


with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "out.svg")
    check(out, 1, 1, 64)
    check(out, 2, 4, 64)
    check(out, 3, 3, 2)
    check(out, 4, 12, 64, "--collective", "ring")
    check(out, 2, 2, 13, "--collective", "one-device")
    check(out, 2, 3, 32, "--model", "mobilenet_v2", "--size", "32")
    before = open(out, "rb").read()
    run = draw(os.path.join(folder, "no", "out.svg"))
    ok(run.returncode == 1 and "out.svg: cannot create a temporary file" in run.stderr, run.stderr.strip())
    ok(before == open(out, "rb").read() and os.listdir(folder) == ["out.svg"], "nothing else is left behind")
sys.exit(done())
