#!/usr/bin/env python3
"""Training rate of mirrortrain's MNIST convnet beside TensorFlow's and PyTorch's, in one run:
windows of each take turns, medians are compared. Writes the figures to a JSON file.

All train the same network in float32 with Adam at the same global batch. Ours shuffles all of the
data, converts its bytes and reports accuracy in every step, and its clock leaves out reading the files;
the peers take float32 batches from memory, in order, and only Keras' fit reports accuracy.

  bench.py --data DIR --peer-python "ENV_TF/bin/python ENV_TORCH/bin/python"
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


class Ours:
    """One setting of the mirrortrain program at one batch."""

    def __init__(self, args, name, batch, flags, core=None):
        self.name, self.batch, self.core = name, batch, core
        self.command = args.ours.split() + ["fit", "--model", "mnist", "--batch", str(batch), "--epochs", "1000"]
        self.command += flags
        self.command += ["--data", args.data] if args.data else []
        self.rate = self.fit(200)  # also finds how many steps fill a window
        self.rates = []

    def fit(self, steps):
        # One device of one core has the other core for nothing, not even for the thread that prefetches.
        pin = None if self.core is None else lambda: os.sched_setaffinity(0, {self.core})
        result = subprocess.run(self.command + ["--max-steps", str(steps)], capture_output=True, text=True, preexec_fn=pin)
        found = re.search(r"images_per_second=(\S+)", (result.stdout.strip().splitlines() or [""])[-1])
        if result.returncode or not found:
            sys.exit("bench: %s\n%s" % (" ".join(self.command), result.stderr.strip() or "no final line"))
        return float(found.group(1))

    def window(self, seconds):
        self.rates.append(self.fit(max(1, int(self.rate * seconds / self.batch))))


class Peer:
    """One mode of a peer at one batch, in a process that several of them share."""

    def __init__(self, process, name, batch, mode):
        self.process, self.name, self.batch, self.mode, self.rates = process, name, batch, mode, []

    def window(self, seconds):
        self.process.stdin.write("%d %g %s\n" % (self.batch, seconds, self.mode))
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("bench: %s ended early" % self.name)
        self.rates.append(float(answer))


def start_peer(python, module, script, args):
    """Starts a peer's script and lets it find its best modes; returns its runners, none without
    the package."""
    look = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('%s'))" % module
    try:
        if subprocess.run([python, "-c", look], capture_output=True).returncode:
            return None
    except OSError as error:
        sys.exit("bench: --peer-python %s does not run: %s" % (python, error))
    command = [python, os.path.join(HERE, script), "--serve", "--batch", ",".join(map(str, args.batch)),
               "--threads", str(args.cores), "--seconds", "2"] + (["--mnist", args.data] if args.data else [])
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True)
    runners, trials = [], []
    for line in process.stdout:
        if line.strip() == "ready":
            break
        row = json.loads(line)
        trials.append(row)
        name = "%s %s" % (row["peer"], row["version"])
        # Keras' fit is what its users call; the two fastest modes are what the library can do.
        if row.get("final") or row["mode"] == "fit":
            if (row["batch"], row["mode"]) not in [(r.batch, r.mode) for r in runners]:
                runners.append(Peer(process, "%s, %s" % (name, row["mode"]), row["batch"], row["mode"]))
    print("%s: %s" % (module, "measured %d settings" % len(trials) if runners else "failed"), flush=True)
    return process, runners, trials


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default="build/mirrortrain", help="the program's command")
    parser.add_argument("--data", default=os.environ.get("MIRT_MNIST_DIR"),
                        help="directory with MNIST's files; drawn digits and random pixels without it")
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON", ""),
                        help="interpreters with tensorflow or torch, separated by spaces or colons")
    parser.add_argument("--batch", default="64,128", type=lambda text: [int(b) for b in text.split(",")])
    parser.add_argument("--seconds", type=float, default=1, help="of one window")
    parser.add_argument("--repeat", type=int, default=5, help="windows of each")
    parser.add_argument("--out", default="build/bench.json")
    args = parser.parse_args()
    args.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

    try:
        subprocess.run(args.ours.split() + ["--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("bench: %s does not run: %s" % (args.ours, error))

    load = os.getloadavg()[0]  # of others: our own work comes after
    peers = []
    for module, script in (("tensorflow", "peer_tensorflow.py"), ("torch", "peer_pytorch.py")):
        found = None
        for python in re.split(r"[\s:]+", args.peer_python.strip()):
            found = found or (start_peer(python, module, script, args) if python else None)
        if found:
            peers.append(found)
        else:
            print("%s: skipped, no interpreter in --peer-python (PEER_PYTHON) has it" % module)

    table = []
    for batch in args.batch:
        runners = [Ours(args, "mirrortrain, 2 devices", batch, ["--devices", "2", "--threads", "1"]),
                   Ours(args, "mirrortrain, 1 device", batch, ["--devices", "1", "--threads", "1", "--replicas", "2"],
                        core=min(os.sched_getaffinity(0)))]
        runners += [r for _, group, _ in peers for r in group if r.batch == batch]
        for _ in range(args.repeat):
            for runner in runners:
                runner.window(args.seconds)
        ours = statistics.median(runners[0].rates)
        for runner in runners:
            rate = statistics.median(runner.rates)
            table.append({"batch": batch, "name": runner.name, "images_per_second": round(rate, 1),
                          "lowest": min(runner.rates), "highest": max(runner.rates),
                          "two_devices_to_this": round(ours / rate, 3)})
    for process, _, _ in peers:
        process.stdin.close()
        process.wait()

    print("\nMNIST convnet, training images per second, median of %d windows of %g s; %s, %d cores, load before %.1f"
          % (args.repeat, args.seconds, cpu_name(), args.cores, load))
    print("%-6s %-58s %10s %21s %9s" % ("batch", "", "images/s", "lowest .. highest", "ours is"))
    for row in table:
        print("%-6d %-58s %10.0f %10.0f..%9.0f %8.2fx" % (row["batch"], row["name"], row["images_per_second"],
                                                         row["lowest"], row["highest"], row["two_devices_to_this"]))
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out, "w") as file:
        json.dump({"cpu": cpu_name(), "cores": args.cores, "load": load, "seconds": args.seconds,
                   "repeat": args.repeat, "table": table,
                   "peer_settings": [row for _, _, trials in peers for row in trials]}, file, indent=1)
    print("written to %s" % args.out)


main()
