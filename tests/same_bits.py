#!/usr/bin/env python3
"""Compares trained weights with those of another commit.

same_bits.py COMMIT [PROGRAM...] prints TAP.

Each program of tests/same_bits.c trains with 8 replicas on 1, 2, 3 and 5 devices, CPUs and simulated GPUs. The
SHA-256 of its weights must be equal on all numbers of devices and in both trees. STEPS (200) and GPU_STEPS (20, as
the simulator takes a second for some steps) set how long programs train; CPU and GPU weights are not compared with
each other. Without NVIDIA's headers the GPUs are skipped."""
import concurrent.futures
import hashlib
import os
import subprocess
import sys

import tap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = ["mnist", "mobilenet_v2", "batch_norm", "augmentation"]
DEVICES = [1, 2, 3, 5]
STEPS = os.environ.get("STEPS", "200")
GPU_STEPS = os.environ.get("GPU_STEPS", "20")
JOBS = int(os.environ.get("JOBS", "2"))


def run(command, **more):
    return subprocess.run(command, check=True, capture_output=True, **more)


def check_out(commit):
    """The files of a commit, below build/same-bits."""
    found = subprocess.run(["git", "-C", ROOT, "rev-parse", "-q", "--verify", commit + "^{commit}"],
                           capture_output=True, text=True)
    name = found.stdout.strip()
    if found.returncode:
        sys.exit(f'same-bits: BASE is "{commit}", which is not a commit of this repository')
    tree = os.path.join(ROOT, "build", "same-bits", name)
    if not os.path.isdir(tree):
        os.makedirs(tree + ".new")
        archive = run(["git", "-C", ROOT, "archive", name]).stdout
        run(["tar", "-x", "-C", tree + ".new"], input=archive)
        os.rename(tree + ".new", tree)
    return tree


def build(tree, gpu):
    """The program, compiled with that tree's library; None: this tree cannot simulate GPUs here."""
    out = os.path.join(tree, "build", "same-bits-gpu" if gpu else "same-bits-cpu")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    source = [os.path.join(ROOT, "tests", "same_bits.c"), "-I", tree]
    if not gpu:
        run(["cc", "-O2"] + source + [os.path.join(tree, "mirrortrain.c"), "-o", out, "-lm", "-lpthread"])
        return out
    parts = ["build/sim/cuda.o", "build/sim/simulator.a", "build/tests/parts.a"]
    made = subprocess.run(["make", "-C", tree, "-j%d" % JOBS] + parts, capture_output=True, text=True)
    if made.returncode:
        print("# " + made.stderr.strip().replace("\n", "\n# "))
        return None
    run(["cc", "-O2", "-c"] + source + ["-o", out + ".o"])
    run(
        ["g++", "-rdynamic", out + ".o"]
        + [os.path.join(tree, p) for p in parts]
        + ["-o", out, "-ldl", "-lm", "-lpthread"]
    )
    return out


def digest(program, kind, name, devices):
    """SHA-256 of the trained weights, or why there are none."""
    text = ",".join("gpu:%d" % i for i in range(devices)) if kind == "gpu" else str(devices)
    steps = GPU_STEPS if kind == "gpu" else STEPS
    done = subprocess.run([program, name, text, steps], capture_output=True,
                          env=dict(os.environ, MIRT_SIM_DEVICES=str(max(DEVICES))))
    if done.returncode:
        return "failed: " + done.stderr.decode(errors="replace").strip()
    return hashlib.sha256(done.stdout).hexdigest()


def compare(kind, name, mine, base):
    """One line of TAP for each number of devices."""
    jobs = [(tree, devices) for tree in (base, mine) for devices in DEVICES]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        found = dict(zip(jobs, pool.map(lambda job: digest(job[0], kind, name, job[1]), jobs)))
    want = found[(base, 1)]
    for devices in DEVICES:
        before, now = found[(base, devices)], found[(mine, devices)]
        same = before == now == want and not want.startswith("failed")
        tap.ok(same, "%s on %d %s: %s" % (name, devices, kind, want[:16] if same else "%s, now %s; on one device %s" %
                                         (before, now, want)))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: same_bits.py COMMIT [PROGRAM...]")
    base = check_out(sys.argv[1])
    for kind in ("cpu", "gpu"):
        mine, other = build(ROOT, kind == "gpu"), build(base, kind == "gpu")
        if not mine or not other:
            tap.skip("%s: the program could not be built" % kind)
            continue
        for name in sys.argv[2:] or PROGRAMS:
            compare(kind, name, mine, other)
    sys.exit(tap.done())


main()
