#!/usr/bin/env python3
"""Checks that the trace of a fit is valid trace-event JSON. It has a row per device with adjacent phases, and
operations inside of them."""
import json
import os
import subprocess
import sys
import tempfile

from tap import done, ok

PROGRAM = os.path.abspath(os.environ.get("MIRRORTRAIN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/mirrortrain")))
PHASES = {"input wait", "scatter", "forward", "backward", "all-reduce, hidden", "all-reduce, exposed", "update", "imbalance",
          "callbacks", "launch overhead", "waiting for other devices' updates"}


def trace(folder, *flags):
    path = os.path.join(folder, "trace.json")
    run = subprocess.run([PROGRAM, "fit", "--epochs", "1", "--trace", path, *flags],
                         cwd=folder, capture_output=True, text=True)
    if run.returncode:
        return None, run.stderr
    with open(path, encoding="utf-8") as file:
        return json.load(file), run.stderr


def outside(slices):
    """Slices that neither lie inside the one they begin in nor after it."""
    wrong, stack = 0, []
    for s in sorted(slices, key=lambda s: (s["ts"], -s["dur"])):
        while stack and stack[-1] <= s["ts"] + 0.002:
            stack.pop()
        end = s["ts"] + s["dur"]
        wrong += bool(stack) and end > stack[-1] + 0.002
        stack.append(end)
    return wrong


def check(folder, devices, replicas, steps):
    found, log = trace(folder, "--devices", str(devices), "--replicas", str(replicas), "--max-steps", str(steps))
    ok(found is not None, f"{devices} devices, {replicas} replicas: valid JSON {'' if found else log}")
    if found is None:
        return
    events = found["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    ok(rows == {d: f"cpu:{d}" for d in range(devices)} and {s["tid"] for s in slices} == set(rows), f"a row per device: {rows}")
    ok(all(s["dur"] >= 0 and s["ts"] >= 0 and s["name"] for s in slices) and found["otherData"]["left_out"] == 0, f"{len(slices)} slices")
    for d in rows:
        own = [s for s in slices if s["tid"] == d]
        ok(outside(own) == 0, f"those of cpu:{d} lie inside of each other or side by side")
        training = [s for s in own if s["name"] == "backward"]
        ok(len(training) == steps * replicas // devices, f"cpu:{d} goes backward once for each of its replicas and {steps} steps")
        for step in range(steps):
            names = {s["name"] for s in own if s["args"]["step"] == step}
            if not {"input wait", "forward", "backward", "update"} <= names or not any("conv2d" in n for n in names):
                ok(False, f"step {step} of cpu:{d} has its phases and operations, not {sorted(names)}")
                break
            first = {name: min(s["ts"] for s in own if s["args"]["step"] == step and s["name"] == name) for name in ("forward", "backward", "update")}
            if not first["forward"] < first["backward"] < first["update"]:
                ok(False, f"step {step} of cpu:{d} goes forward, backward and updates in this order, not {first}")
                break
        else:
            ok(True, f"every step of cpu:{d} has its phases, one after the other, and operations")
        inside = [s for s in own if s["name"] not in PHASES and not s["name"].startswith("all-reduce (")]
        homes = sorted((s["ts"], s["ts"] + s["dur"]) for s in own if s["name"] in ("forward", "backward"))
        lost = sum(1 for s in inside if not any(a - 0.002 <= s["ts"] and s["ts"] + s["dur"] <= b + 0.002 for a, b in homes))
        ok(inside and lost == 0, f"its {len(inside)} operations lie in forward and backward")
    sums = {s["name"] for s in slices if s["name"].startswith("all-reduce (")}
    ok(bool(sums) == (devices > 1) and all("+=" in s and "adam" in s for s in sums), f"what is added up is named: {sorted(sums)}")
    ok(any(s["name"] == "all-reduce, hidden" for s in slices) == (replicas > devices), "replicas of one device are added up there, before devices meet")


with tempfile.TemporaryDirectory() as temporary:
    check(temporary, 1, 1, 3)
    check(temporary, 2, 2, 8)
    check(temporary, 2, 4, 5)
    run = subprocess.run([PROGRAM, "fit", "--max-steps", "1", "--trace", os.path.join(temporary, "no", "where.json")],
                         cwd=temporary, capture_output=True, text=True)
    ok(run.returncode == 1 and "where.json" in run.stderr, f"a directory that is not there: {run.stderr.strip().splitlines()[-1]}")
sys.exit(done())
