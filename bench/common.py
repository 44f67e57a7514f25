"""What the sections of the benchmark share: the machine, the program, turns of windows, tables."""
import os
import platform
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("tensorflow", "torch")


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def find_peers(text):
    """{package: interpreter} among interpreters separated by spaces or colons."""
    found = {}
    for python in re.split(r"[\s:]+", text.strip()):
        for package in PACKAGES if python else ():
            look = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('%s'))" % package
            try:
                there = subprocess.run([python, "-c", look], capture_output=True).returncode == 0
            except OSError as error:
                sys.exit("bench: %s in PEER_PYTHON does not run: %s" % (python, error))
            if there:
                found.setdefault(package, python)
    return found


def note(text):
    """Progress; results go to stdout at the end."""
    print("bench: " + text, file=sys.stderr, flush=True)


def take_turns(runners, repeat, seconds):
    """`repeat` windows of each, one after the other: an hour's moods reach all alike. Each has .window(seconds) and .rates."""
    for turn in range(repeat):
        for runner in runners:
            runner.window(seconds)
        note("window %d of %d: %s" % (turn + 1, repeat, ", ".join("%.4g" % r.rates[-1] for r in runners)))


def rates_of(runner):
    return {"images_per_second": round(statistics.median(runner.rates), 2), "lowest": round(min(runner.rates), 2),
            "highest": round(max(runner.rates), 2)}


def markdown(head, rows):
    """A table of texts."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
