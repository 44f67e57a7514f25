#!/usr/bin/env python3
"""mirrortrain on a GPU beside PyTorch on it, within ten minutes: training with Adam and frozen forward passes, bfloat16 and float32, batches of 64
and 256. Prints a table and puts it, with date and device, into docs/performance.md.

  gpu.py --ours build/gpu/mirrortrain --peer-python ENV/bin/python

Ours takes bytes and preprocesses them in every step; PyTorch is given floats that are on the GPU already. PyTorch runs its networks in
channels_last, under autocast for bfloat16: eager, from a CUDA graph, and compiled (reduce-overhead), the last as long as there is time.
Bytes are those of the design: each convolution's output read and written as its neighbours need it, fused.
"""
import argparse
import json
import os
import re
import select
import subprocess
import sys
import time

import common

HERE = os.path.dirname(os.path.abspath(__file__))
# MB (bfloat16) of an image, training and forward.
CASES = {
    "mnist": {"flags": [], "size": 28, "mb": 0.15, "floor": 1.2},
    "mobilenet_v2": {"flags": [], "size": 224, "mb": 134, "floor": 1.2},
    "resnet50": {"flags": [], "size": 224, "mb": 250, "floor": 1.0},
    "efficientnet_v2_m": {"flags": [], "size": 224, "mb": 407, "floor": 1.0},
    "efficientnet_v2_m forward": {"flags": ["--no-top", "--forward"], "size": 224, "mb": 78, "floor": 1.0},
}
BATCHES, DTYPES = (256, 64), ("bf16", "float32")
MARK = "<!-- gpu-bench -->\n"


def ours(args, case, dtype, batch, seconds):
    """The program's images and GFLOP a second; an error's first line and None where it fails."""
    name = case.split()[0]
    command = [args.ours, "bench", "--model", name, "--batch", str(batch), "--devices", args.device, "--seconds", str(seconds)] + CASES[case]["flags"]
    command += ["--size", str(CASES[case]["size"])] if name != "mnist" else []
    command += ["--dtype", dtype] if dtype != "float32" else []
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        return "longer than 90 s", None
    found = re.search(r"images_per_second=(\S+).* gflops=(\S+)", result.stdout)
    if result.returncode or not found:
        return (result.stderr.strip().splitlines() or ["no bench line"])[-1][:160], None
    return float(found.group(1)), float(found.group(2))


class Peer:
    """PyTorch in a process that is asked for one setting at a time."""

    def __init__(self, python, device):
        self.process = subprocess.Popen([python, os.path.join(HERE, "peer_gpu.py"), "--device", device], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.about = self.answer(60)

    def answer(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not select.select([self.process.stdout], [], [], min(1, max(0, end - time.monotonic())))[0]:
                continue
            line = self.process.stdout.readline()
            if not line:
                return {"error": "it ended"}
            if line.startswith(b"{"):
                return json.loads(line)
        self.process.kill()
        return {"error": "not done after %.0f s" % seconds}

    def ask(self, seconds, **what):
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return {"error": "it ended"}
        return self.answer(seconds)

    def alive(self):
        return self.process.poll() is None and "error" not in self.about


def peer_rows(args, python, left):
    """{(case, dtype, batch): {mode: rate or error}}, the most important first; stops when the time is up."""
    rows, peer = {}, Peer(python, args.torch_device)
    if not peer.alive():
        common.note("PyTorch is left out: %s" % peer.about.get("error"))
        return {}, None
    plan = [(mode, case, dtype, batch) for mode in ("eager", "graph") for dtype in DTYPES for case in CASES for batch in BATCHES]
    plan += [("compile", case, dtype, batch) for dtype in DTYPES for batch in BATCHES for case in CASES]
    about = peer.about
    for mode, case, dtype, batch in plan:
        if left() < 15:
            rows.setdefault((case, dtype, batch), {})[mode] = "no time"
            continue
        answer = peer.ask(min(left() - 5, 200 if mode == "compile" else 60), network=case.split()[0], forward="forward" in case, dtype=dtype, batch=batch,
                          size=CASES[case]["size"], mode=mode, seconds=args.seconds)
        rows.setdefault((case, dtype, batch), {})[mode] = answer.get("images_per_second", answer.get("error"))
        common.note("PyTorch %s %s %s %d: %s" % (mode, case, dtype, batch, answer.get("images_per_second", answer.get("error"))))
        if not peer.alive() and left() > 20:
            peer = Peer(python, args.torch_device)
    peer.process.kill()
    return rows, about


def gpu_name():
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout
        return text.strip().splitlines()[0].replace(", ", ", driver ")
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def put(path, text):
    """Into the document before its mark, or at its end."""
    with open(path) as file:
        old = file.read()
    with open(path, "w") as file:
        file.write(old.replace(MARK, text + "\n" + MARK, 1) if MARK in old else old + "\n" + text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default="build/gpu/mirrortrain")
    parser.add_argument("--device", default="gpu:0")
    parser.add_argument("--torch-device", default="cuda:0")
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON", ""), help="interpreters, of which one has torch")
    parser.add_argument("--seconds", type=float, default=2, help="of a measurement")
    parser.add_argument("--limit", type=float, default=560, help="seconds for everything")
    parser.add_argument("--out", default="build/gpu/bench.json")
    parser.add_argument("--document", default="docs/performance.md")
    args = parser.parse_args()
    begin = time.monotonic()
    name = gpu_name()
    if not name and args.device.startswith("gpu"):
        print("gpu-bench: skipped, nvidia-smi knows no GPU")
        return 0

    def left():
        return args.limit - (time.monotonic() - begin)

    rates = {}
    for dtype in DTYPES:
        for case in CASES:
            for batch in BATCHES:
                rates[case, dtype, batch] = ours(args, case, dtype, batch, max(1, round(args.seconds))) if left() > 60 else ("no time", None)
                common.note("ours %s %s %d: %s" % (case, dtype, batch, rates[case, dtype, batch][0]))
    python = common.find_peers(args.peer_python).get("torch")
    rows, about = peer_rows(args, python, left) if python else ({}, None)
    if not python:
        common.note("PyTorch is left out: no interpreter in PEER_PYTHON has it")

    def shown(rate):
        return "%.0f" % rate if isinstance(rate, float) else str(rate or "")

    table, kept = [], []
    for (case, dtype, batch), (rate, gflops) in rates.items():
        modes, facts = rows.get((case, dtype, batch), {}), CASES[case]
        best = max((r for r in modes.values() if isinstance(r, float)), default=None)
        ratio = rate / best if best and isinstance(rate, float) else None
        moved = rate * facts["mb"] * (1 if dtype == "bf16" else 2) * 1e-6 if isinstance(rate, float) else None
        table.append((case, dtype, str(batch), shown(rate), *(shown(modes.get(mode)) for mode in ("eager", "graph", "compile")),
                      "" if ratio is None else "%.2fx%s" % (ratio, "" if dtype != "bf16" or ratio >= facts["floor"] else " (below %.1fx)" % facts["floor"]),
                      "" if moved is None else "%.2f" % moved, "" if moved is None else "%.1f" % (gflops * 1e-3)))
        kept.append({"case": case, "dtype": dtype, "batch": batch, "ours": rate, "torch": modes, "ratio_to_best": ratio})
    text = "%s, %s%s; images a second:\n\n" % (name or args.device, time.strftime("%Y-%m-%d"), ", PyTorch %s" % about["version"] if about and "version" in about else "")
    text += common.markdown(("", "dtype", "batch", "ours", "PyTorch eager", "graph", "compile", "ours to its best", "TB/s", "TFLOP/s"), table)
    print(text)
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out, "w") as file:
        json.dump({"gpu": name, "table": kept, "seconds": time.monotonic() - begin}, file, indent=1)
    if args.document:
        put(args.document, text)
    print("%.0f s; written to %s%s" % (time.monotonic() - begin, args.out, " and " + args.document if args.document else ""))
    return 0


sys.exit(main())
