"""What the sections of the benchmark share: the machine, the program, turns of windows, tables."""
import atexit
import json
import os
import platform
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

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


def separate_cores():
    """A processor of each core that this process may use; empty where the system does not say."""
    found = {}
    for cpu in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ():
        try:
            with open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu) as file:
                found.setdefault(file.read(), cpu)
        except OSError:
            found[cpu] = cpu
    return sorted(found.values())


def find_peers(text, packages=PACKAGES):
    """{package: interpreter} among interpreters separated by spaces or colons."""
    found = {}
    for python in re.split(r"[\s:]+", text.strip()):
        for package in packages if python else ():
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


class Worker:
    """A process that answers every number of seconds with a line of JSON; stopped between windows: waiting threads may spin.
    It runs on `cores`, or on all."""

    def __init__(self, command, limit, cores=None):
        self.rates, self.limit = [], limit
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        start_new_session=True,
                                        preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None)
        atexit.register(self.close)

    def signal(self, number):
        """It may have workers of its own."""
        os.killpg(self.process.pid, number)

    def answer(self):
        """The next line of JSON, or a RuntimeError."""
        end = time.monotonic() + self.limit
        while time.monotonic() < end:
            if not select.select([self.process.stdout], [], [], 1)[0]:
                continue
            line = self.process.stdout.readline()
            if not line:
                self.errors.seek(0)
                said = self.errors.read().decode(errors="replace").strip().splitlines()
                raise RuntimeError(said[-1][:200] if said else "it ended")
            if line.startswith(b"{"):
                return json.loads(line)
        raise RuntimeError("not done after %g s" % self.limit)

    def ask(self, seconds):
        """The answer to so many seconds."""
        self.signal(signal.SIGCONT)
        self.process.stdin.write(b"%g\n" % seconds)
        row = self.answer()
        self.signal(signal.SIGSTOP)
        return row

    def window(self, seconds):
        """The answer, whose rate is kept."""
        row = self.ask(seconds)
        self.rates.append(row["images_per_second"])
        return row

    def peak_mb(self):
        """Megabytes (10^6) of the process at its largest; None where /proc does not say."""
        try:
            with open("/proc/%d/status" % self.process.pid) as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024 / 1e6
        except (OSError, StopIteration):
            return None

    def close(self):
        try:
            self.signal(signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            stream.close()


def rates_of(runner):
    return {"images_per_second": round(statistics.median(runner.rates), 2), "lowest": round(min(runner.rates), 2),
            "highest": round(max(runner.rates), 2)}


def markdown(head, rows):
    """A table of texts."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
