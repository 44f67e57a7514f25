#!/usr/bin/env python3
"""Drawn models, metrics, schedules, images, directories and noise in C beside Keras: differential.py [OPTIONS] RUNNER.

The last line is "N passed, N failed"; a failed case is printed with its description and the command that draws it
alone."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")
try:
    import keras
    import numpy as np
    import tensorflow as tf
except ImportError as error:
    print("differential: skipped, %s; make differential PEER_PYTHON=/path/to/python with tensorflow and keras" % error)
    sys.exit(0)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "differential"))
import case as cases
import kinks
import onnx_side
import parts
import planted

LIMIT = 120  # seconds for a case in C


def run(case, runner, scratch):
    """Complaints about a case, by this runner."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        case.write(directory)
        try:
            done = subprocess.run(
                [runner, directory],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return ["the runner took more than %d s" % LIMIT]
        if done.returncode:
            text = done.stdout.decode("utf-8", "replace").strip()
            return ["the runner ended with %d: %s" % (done.returncode, text or "no message")]
        return case.check(cases.read_results(directory), directory)


def tell(case, complaints):
    print("\nFAILED: %s of seed %d; make differential MODELS=1 SEED=%d" % (case.part, case.seed, case.seed))
    for complaint in complaints[:6]:
        print("  " + complaint)
    if len(complaints) > 6:
        print("  and %d more" % (len(complaints) - 6))
    print("".join("  | %s\n" % line for line in case.text.splitlines()), flush=True)


def draw_all(options, scratch):
    for number in range(options.models):
        for part in parts.PARTS:
            if options.parts and part.part not in options.parts:
                continue
            if number % part.every == 0:
                yield part, options.seed + number, number


def compare_all(options, scratch):
    passed, failed, count, again, began, told = 0, 0, {}, 0, time.time(), time.time()
    for part, seed, number in draw_all(options, scratch):
        try:
            case = part(seed, scratch)
            complaints = run(case, options.runner, scratch)
        except Exception as error:  # one case that cannot be drawn must not hide the others
            case = cases.Case(seed, "")
            case.part, complaints = part.part, ["%s: %s" % (type(error).__name__, error)]
        again += getattr(case, "attempts", 1) - 1
        count[part.part] = count.get(part.part, 0) + 1
        passed, failed = passed + (not complaints), failed + bool(complaints)
        if complaints:
            tell(case, complaints)
        if time.time() - told > 30:
            told = time.time()
            print("%d of %d models, %d s" % (number + 1, options.models, told - began), flush=True)
    print(
        ", ".join("%d %s" % (n, name) for name, n in count.items())
        + "; %d s; data drawn anew %d times, near a kink; %d files for ONNX Runtime"
        % (time.time() - began, again, onnx_side.checked)
    )
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0 or not passed  # options that draw nothing compare nothing


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runner")
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--parts", help="some of: " + ", ".join(p.part for p in parts.PARTS), type=lambda s: s.split(",")
    )
    parser.add_argument("--planted", action="store_true", help="plant errors in the library; each must be found")
    options = parser.parse_args()
    options.runner = os.path.abspath(options.runner)
    warnings.filterwarnings("ignore")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if not kinks.check_groups():
        print("grouped convolutions by parts are not Keras's")
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        return planted.find_all(options, draw_all, run, scratch) if options.planted else compare_all(options, scratch)


sys.exit(main())
