#!/usr/bin/env python3
"""The program as nvcc makes it by one command, without any optimization of the host's code asked for, on the CPUs beside the one that cc -O2
makes: the library's kernels ask for their optimization themselves. The last line has the ratio of the medians; less than 0.9 is a failure."""
import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = (["--model", "mnist", "--batch", "64"], ["--model", "mobilenet_v2", "--batch", "8"])


def rate(program, flags):
    text = subprocess.run([program, "bench", "--devices", "cpu", "--seconds", "2"] + flags, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"images_per_second=(\S+)", text).group(1))


def main():
    os.chdir(ROOT)
    lib = os.path.join(os.path.dirname(os.path.dirname(subprocess.run(["sh", "-c", "command -v nvcc"], capture_output=True, text=True).stdout.strip())), "lib64")
    os.environ["LD_LIBRARY_PATH"] = lib + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    worst = 9.0
    with tempfile.TemporaryDirectory() as place:
        theirs = os.path.join(place, "mirrortrain")
        subprocess.run(["nvcc"] + glob.glob("cli/*.c") + ["mirrortrain.c", "mirrortrain_cuda.cu", "-lcublas", "-lnccl", "-ldl", "-o", theirs], check=True)
        for flags in MODELS:
            rates = {"build/mirrortrain": [], theirs: []}
            for _ in range(3):
                for program in rates:
                    rates[program].append(rate(program, flags))
            ours, nvcc = (statistics.median(r) for r in rates.values())
            worst = min(worst, nvcc / ours)
            print("%s: cc -O2 %.1f images/s, nvcc %.1f: %.3f" % (flags[1], ours, nvcc, nvcc / ours))
    print("at least %.3f of the speed" % worst)
    return worst < 0.9


sys.exit(main())
