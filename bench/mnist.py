"""Training rate of the MNIST convnet: ours from its files or from drawn digits, as `mirrortrain fit` trains it, the peers' in
their fastest settings.

All train the same network in float32 with Adam at the same global batch. Ours shuffles all of the
data, converts its bytes and reports accuracy in every step, and its clock leaves out reading the files;
the peers take float32 batches from memory, in order, and only Keras's fit reports accuracy.
"""
import json
import os
import re
import statistics
import subprocess
import sys

import common

SCRIPTS = {"tensorflow": "peer_mnist_tensorflow.py", "torch": "peer_mnist_pytorch.py"}
BATCHES = (64, 128)


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


def start_peer(package, python, args):
    """Starts a peer's script and lets it find its best modes; returns its process, runners and trials."""
    command = [python, os.path.join(common.HERE, SCRIPTS[package]), "--serve", "--batch", ",".join(map(str, BATCHES)),
               "--threads", str(common.cores()), "--seconds", "0.5" if args.quick else "2"]
    process = subprocess.Popen(command + (["--mnist", args.data] if args.data else []), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    runners, trials = [], []
    for line in process.stdout:
        if line.strip() == "ready":
            break
        row = json.loads(line)
        trials.append(row)
        name = "%s %s" % (row["peer"], row["version"])
        # Keras's fit is what its users call; the two fastest modes are what the library can do.
        if row.get("final") or row["mode"] == "fit":
            if (row["batch"], row["mode"]) not in [(r.batch, r.mode) for r in runners]:
                runners.append(Peer(process, "%s, %s" % (name, row["mode"]), row["batch"], row["mode"]))
    common.note("%s: %s" % (package, "measured %d settings" % len(trials) if runners else "failed"))
    return process, runners, trials


def run(section, args, found):
    """The section's figures, and its table."""
    peers = [start_peer(package, python, args) for package, python in found.items()]
    seconds = args.seconds or 1
    table = []
    for batch in BATCHES:
        runners = [Ours(args, "mirrortrain, 2 devices", batch, ["--devices", "2", "--threads", "1"]),
                   Ours(args, "mirrortrain, 1 device", batch, ["--devices", "1", "--threads", "1", "--replicas", "2"],
                        core=min(os.sched_getaffinity(0)))]
        runners += [r for _, group, _ in peers for r in group if r.batch == batch]
        common.take_turns(runners, args.repeat, seconds)
        ours = statistics.median(runners[0].rates)
        for runner in runners:
            row = {"batch": batch, "name": runner.name, **common.rates_of(runner)}
            table.append({**row, "two_devices_to_this": round(ours / row["images_per_second"], 3)})
    for process, _, _ in peers:
        process.stdin.close()
        process.wait()
    text = "MNIST convnet, training with Adam, median of %d windows of %g s:\n\n" % (args.repeat, seconds)
    text += common.markdown(("batch", "", "images/s", "lowest to highest", "ours is"), [
        (str(row["batch"]), row["name"], "%.0f" % row["images_per_second"], "%.0f to %.0f" % (row["lowest"], row["highest"]),
         "%.2fx" % row["two_devices_to_this"]) for row in table])
    return {"seconds": seconds, "table": table, "peer_settings": [row for _, _, trials in peers for row in trials]}, text
