#!/usr/bin/env python3
"""Tests the benchmark's latency section with peers that only answer. Its figures, tables and documents are checked.

The program is played as well: what it predicts is tested elsewhere, and its times differ from run to run."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench")
DOCUMENT = """# Page

<!-- written by bench.py -->
rates
<!-- to here -->
between
<!-- latency, written by bench.py -->
old
<!-- to here -->
end
"""
# Saves a network, or serves its latency: the first answer has the first call's time.
OURS = """#!/bin/sh
case $1 in --version) exit 0 ;; save) echo "$2 $3" >"$4"; exit ;; esac
echo '{"started": true}'
while read -r seconds; do
    echo '{"ms": 2, "images_per_second": 500, "load_ms": 7, "first_ms": 3}'
done
"""
# An interpreter: which packages it has, conversions, and peers by their flags.
PEER = """#!/bin/sh
case "$*" in
*find_spec*tensorflow* | *find_spec*torch* | *find_spec*onnxruntime* | *find_spec*ai_edge_litert*) exit 0 ;;
*--convert*.onnx) echo "no exporter" >&2; exit 1 ;;
*--convert*) for file; do :; done; echo network >"$file"; exit ;;
*"--peer torch"*trace*) echo "no tracing" >&2; exit 1 ;;
*"--peer torch"*channels_last*) ms=8 ;;
*"--peer torch"*) ms=5 ;;
*"--peer litert"*) ms=4 ;;
*) exit 1 ;;
esac
echo '{"started": true, "version": "1.2"}'
while read -r seconds; do
    echo "{\\"ms\\": $ms, \\"images_per_second\\": 1, \\"load_ms\\": 1, \\"first_ms\\": 9}"
done
"""


def write(path, text, mode=0o644):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


def read(path):
    with open(path) as f:
        return f.read()


def bench(home, *flags):
    command = [sys.executable, SCRIPTS + "/bench.py", "--ours", home + "/latency", "--out", home + "/out.json"]
    return subprocess.run(
        command + ["--repeat", "2", "--seconds", "0.1", *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "PEER_PYTHON": ""},
    )


def check_program():
    flags = ["-std=c11", "-Wall", "-Wextra", "-fsyntax-only"]
    command = os.environ.get("CC", "cc").split() + flags + [SCRIPTS + "/latency.c"]
    run = subprocess.run(command, capture_output=True, text=True)
    tap.ok(run.returncode == 0 and not run.stderr, "our program is compiled %s" % run.stderr[-400:])


def check_peers(home):
    flags = ["--peer-python", home + "/peer", "--networks", "resnet50", "--document", home + "/page.md"]
    run = bench(home, *flags, "latency")
    tap.ok(run.returncode == 0, "it runs beside peers" + ": %s" % run.stderr[-400:] * (run.returncode != 0))
    sections = json.loads(read(home + "/out.json"))["sections"]["latency"] if run.returncode == 0 else {}
    one = sections.get("resnet50, threads: 1", {"table": [], "peer_settings": []})
    rows = {row["name"]: row for row in one["table"]}
    ours = ["mirrortrain", "mirrortrain, winograd"]
    tap.ok(
        list(rows) == ours + ["PyTorch 1.2, eager", "PyTorch 1.2, compiled", "LiteRT 1.2"],
        "a row of everyone that starts: %s" % ", ".join(rows),
    )
    eager = rows.get("PyTorch 1.2, eager", {})
    tap.ok(eager.get("ms") == 5 and eager.get("mode") == "", "the faster memory format takes part: %s" % eager)
    tap.ok(len(one["peer_settings"]) == 3, "all settings are kept")
    ours = rows.get("mirrortrain", {})
    tap.ok((ours.get("ms"), ours.get("first_ms"), ours.get("load_ms")) == (2, 3, 7), "ours: %s" % ours)
    tap.ok(
        not os.path.exists("/proc/self/status") or 0 < ours.get("start_mb", 0) <= ours.get("peak_mb", 0),
        "its memory before it loads, and at most: %s" % ours,
    )
    tap.ok(one.get("ours_to_best", {}).get("torch_and_litert", {}).get("ms") == 0.5, "ours to the best")
    for said in ("no exporter", "PyTorch [trace] is left out: no tracing", "PyTorch [trace channels_last] is left out"):
        tap.ok(said in run.stderr, "it says what is left out: %s" % said)
    page = read(home + "/page.md")
    tap.ok(
        page.startswith(DOCUMENT.split("old\n")[0]) and page.endswith("<!-- to here -->\nend\n") and "old" not in page,
        "only the part about latency is replaced",
    )
    row = "| LiteRT 1.2 | 4 | 4 to 4 | 2.00x | 9 | 1 |"
    tap.ok(row in page and "0.50 times the time of the faster of PyTorch and LiteRT" in page, "its table: %s" % row)
    tap.ok("one image of 224 px, 1 core;" in page, "its title")


def check_alone(home):
    run = bench(home, "--quick", "--networks", "mnist,mobilenet_v2", "latency")
    rows = [part["table"] for part in json.loads(read(home + "/out.json"))["sections"]["latency"].values()]
    tap.ok(run.returncode == 0 and all(len(part) == 1 for part in rows) and len(rows) >= 2, "it runs without peers")
    for package in ("onnxruntime", "ai_edge_litert", "torch"):
        tap.ok("bench: %s is left out: no interpreter" % package in run.stderr, "it says that %s is missing" % package)


def check_refusals(home):
    run = bench(home, "--networks", "mnist,vgg", "latency")
    tap.ok(run.returncode == 2 and "latency has no network vgg; it has mnist, " in run.stderr, "an unknown network")
    write(home + "/page.md", DOCUMENT.replace("latency, written", "written"))
    run = bench(home, "--quick", "--networks", "mnist", "--document", home + "/page.md", "latency")
    tap.ok(run.returncode == 1 and "has no part between" in run.stderr, "a document without its part")
    os.remove(home + "/latency")
    run = bench(home, "latency")
    tap.ok(run.returncode == 1 and "does not run" in run.stderr, "a program that is missing")


def main():
    with tempfile.TemporaryDirectory() as home:
        write(home + "/latency", OURS, 0o755)
        write(home + "/peer", PEER, 0o755)
        write(home + "/page.md", DOCUMENT)
        check_program()
        check_peers(home)
        check_alone(home)
        check_refusals(home)
    return tap.done()


sys.exit(main())
